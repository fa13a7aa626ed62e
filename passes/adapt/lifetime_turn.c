/*
 * lifetime, without stack traces: loops that a program runs on its own, as those over time do. They call the same modules again and again: operators that
 * follow one another at the same distance are turns of one. What is read in the next turn, and in the last one is not, has a name, "c = f * c + i * g": it lives
 * until the next turn binds the name again, and from the last turn on until the function returns.
 */
#include "lifetime.h"

#define MOST_WORK 100000000u       /* nodes looked at; a real model has few loops */

struct turns {
	struct lifetimes *l;
	const uint32_t *read;      /* per value: the last node that reads it */
	uint32_t *module;          /* per scope: the first of the same path, of which it is a later call */
	uint32_t *before, *earlier;        /* per such: where its last call began, and the one before */
	uint32_t *done;            /* per entry of calls: turns of that function are known up to there */
	uint64_t work;
};

static uint32_t
made_by(const struct graph *g, uint32_t n)
{
	return g->nodes[n].nout ? node_outs(g, n)[0] : 0;
}

static uint32_t *
find_modules(const struct graph *g)
{
	uint32_t *module = NEW(g->c->a, uint32_t, g->nscope), *of = NEW(g->c->a, uint32_t, strtab_count(g->names) + 1u);

	for (uint32_t s = 0; s < g->nscope; s++) {
		uint32_t *first = &of[g->scopes[s].path];

		*first = *first ? *first : s;
		module[s] = *first;
	}
	return module;
}

static bool
is_alike(const struct turns *t, uint32_t a, uint32_t b)
{
	const struct graph *g = t->l->g;
	uint32_t v = made_by(g, a), w = made_by(g, b);

	return g->nodes[a].op == g->nodes[b].op && t->module[g->nodes[a].scope] == t->module[g->nodes[b].scope] && v && w && graph_same_dims(g, v, w);
}

static uint32_t
distance_read(const struct turns *t, uint32_t n)
{
	uint32_t read = t->read[made_by(t->l->g, n)];

	return read > n ? read - n : 0;
}

/* Both read the same values, or some that were made at the same distance. */
static bool
reads_alike(const struct graph *g, uint32_t a, uint32_t b)
{
	struct operands x = operands_of(g, a), y = operands_of(g, b);

	while (operand_next(&x)) {
		uint32_t v = g->vals[x.val].kind == VAL_NODE ? g->vals[x.val].node : 0, w;

		if (!operand_next(&y))
			return false;
		w = g->vals[y.val].kind == VAL_NODE ? g->vals[y.val].node : 0;
		if (x.val != y.val && (!v || !w || a - v != b - w))
			return false;
	}
	return !operand_next(&y);
}

/* Is all of what runs in a period up to that node what ran in the one before? */
static bool
repeats(struct turns *t, uint32_t last, uint32_t period)
{
	for (uint32_t n = last; n > last - period; n--)
		if (t->work++ >= MOST_WORK || !is_alike(t, n - period, n) || !reads_alike(t->l->g, n - period, n))
			return false;
	return true;
}

/* Where the statement is done that node n is the end of: in the function itself, or in what it calls there. */
static uint32_t
bound_at(const struct lifetimes *l, uint32_t n, unsigned d)
{
	return calls_depth(l->g, n) > d ? l->calls.last[l->calls.at[n] + d + 1] : n;
}

/* What node n makes in a turn, and the nodes behind it at the same distance in the next ones. */
static void
carry(struct turns *t, uint32_t n, uint32_t period, unsigned d)
{
	struct lifetimes *l = t->l;
	const struct graph *g = l->g;
	uint32_t end = lifetime_frame_end(l, n, d), read = distance_read(t, n), last = n, turns = 1;

	while (end - last >= period && t->work++ < MOST_WORK && is_alike(t, n, last + period)) {
		last += period;
		turns++;
	}
	if (turns < 3 || read <= 1 || read != distance_read(t, n + period) || read == distance_read(t, last) || !repeats(t, last, period))
		return;
	for (uint32_t m = n; m < last; m += period)
		lifetime_extend(l, made_by(g, m), bound_at(l, m + period, d));
	lifetime_extend(l, made_by(g, last), end);
}

/* The first node at the same distance in the turns before; the function begins at `first`. */
static uint32_t
first_turn(struct turns *t, uint32_t n, uint32_t period, uint32_t first)
{
	while (n - first >= period && t->work++ < MOST_WORK && is_alike(t, n - period, n))
		n -= period;
	return n;
}

/* A module is called at n, as it was once and twice before. */
static void
find_turns(struct turns *t, uint32_t n, unsigned d)
{
	const struct lifetimes *l = t->l;
	uint32_t scope = t->module[scope_at(l->g, l->g->nodes[n].scope, d + 1)], b = t->before[scope], a = t->earlier[scope];
	uint32_t first = l->calls.first[l->calls.at[n] + d], frame = l->calls.at[first] + d;
	bool goes_on = t->done[frame] >= a;

	t->earlier[scope] = b;
	t->before[scope] = n;
	if (!a || n - b != b - a || !calls_same(&l->calls, n, a, d))
		return;
	for (uint32_t m = goes_on ? t->done[frame] : a; m < b; m++) {
		uint32_t turn = goes_on && m - first >= n - b && is_alike(t, m - (n - b), m) ? 0 : first_turn(t, m, n - b, first);

		if (turn)
			carry(t, turn, n - b, d);
	}
	t->done[frame] = t->done[frame] > b ? t->done[frame] : b;
}

void
lifetime_of_turns(struct lifetimes *l)
{
	const struct graph *g = l->g;
	struct arena *a = l->a->c->a;
	struct turns t = {.l = l, .read = uses_last(g, a), .module = find_modules(g), .before = NEW(a, uint32_t, g->nscope), .earlier = NEW(a, uint32_t, g->nscope)};

	if (g->nnode < 2)
		return;
	t.done = NEW(a, uint32_t, l->calls.at[g->nnode - 1] + calls_depth(g, g->nnode - 1) + 1u);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (unsigned d = 0; d < calls_depth(g, n); d++)
			if (l->calls.first[l->calls.at[n] + d + 1] == n)
				find_turns(&t, n, d);
	if (t.work > MOST_WORK)
		assume(l->a, "of what the turns of loops hand on, only what the first %u steps of a search found lives until it is bound again", MOST_WORK);
}
