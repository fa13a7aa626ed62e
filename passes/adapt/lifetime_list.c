/*
 * lifetime: lists that no operator shows. "skips.append(h)" runs none. But what the turns of a loop over modules made and the function reads one by one
 * in the same order, after the last turn, no single name can have held: it is in a list, which lives until the function that reads it returns.
 * What is read the other way round may have been taken out of the list (skips.pop()); what one operator joins is in lifetime_call.c.
 */
#include "lifetime.h"

#include <string.h>

struct loop {
	struct str prefix;         /* "model.layers." */
	uint32_t call;             /* the function that has the loop: its first node */
	uint32_t last;             /* node of the last turn */
	uint32_t turn;             /* the module that gave something at last, and the node that reads it last */
	uint32_t read;
	unsigned turns;
	bool unordered;
};

struct lists {
	struct lifetimes *l;
	struct loop *loops;        /* [0] is none */
	uint32_t n, cap;
	uint32_t *of;              /* per entry of calls: the loop of which it is a turn */
	const uint32_t *read;      /* per value: the last node that reads it */
	uint32_t *from;            /* per value: the loop that gave it away */
};

#define MOST_LOOPS 20000u          /* searched from the latest on, where they nearly always are */

/* "layers.3": its path without the number; empty = no entry of a list. */
static struct str
list_of(const struct graph *g, uint32_t scope)
{
	struct str path = scope_path(g, scope);
	uint32_t n = path.n;

	while (n && path.p[n - 1] >= '0' && path.p[n - 1] <= '9')
		n--;
	return n > 1 && n < path.n && path.p[n - 1] == '.' ? str_sub(path, 0, n) : S("");
}

static uint32_t
find_loop(struct lists *t, uint32_t call, struct str prefix)
{
	for (uint32_t i = t->n; i-- > 1;)
		if (t->loops[i].call == call && str_eq(t->loops[i].prefix, prefix))
			return i;
	if (t->n == MOST_LOOPS)
		return 0;
	ROOM(t->l->a->c->a, t->loops, t->n, t->cap, 1);
	t->loops[t->n] = (struct loop){.prefix = prefix, .call = call};
	return t->n++;
}

static void
find_turns(struct lists *t)
{
	const struct graph *g = t->l->g;
	const struct calls *c = &t->l->calls;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (unsigned d = 1; d <= calls_depth(g, n); d++) {
			uint32_t at = c->at[n] + d, first = c->first[at];
			struct str list = first == n ? list_of(g, scope_at(g, g->nodes[n].scope, d)) : S("");

			t->of[at] = first != n ? t->of[c->at[first] + d] : list.n ? find_loop(t, c->first[at - 1], list) : 0;
			if (t->of[at] && t->loops[t->of[at]].last < c->last[at])
				t->loops[t->of[at]].last = c->last[at];
		}
}

/* A value that is read behind the last turn of a loop in which it was made, of the outermost such. */
static void
give(struct lists *t, uint32_t v)
{
	const struct graph *g = t->l->g;
	uint32_t n = g->vals[v].node, scope;

	for (unsigned d = 1; d <= calls_depth(g, n) && !t->from[v]; d++) {
		uint32_t at = t->of[t->l->calls.at[n] + d];
		struct loop *x = &t->loops[at];

		if (!at || t->read[v] <= x->last)
			continue;
		scope = scope_at(g, g->nodes[n].scope, d);
		if (x->turn != scope) {
			x->unordered |= t->read[v] <= x->read;
			x->turns++;
		}
		x->turn = scope;
		x->read = t->read[v];
		t->from[v] = at;
	}
}

/* The end of the function that has both nodes. */
static uint32_t
common_end(const struct lifetimes *l, uint32_t maker, uint32_t reader)
{
	unsigned d = 0;

	while (d < calls_depth(l->g, maker) && d < calls_depth(l->g, reader) && calls_same(&l->calls, maker, reader, d + 1))
		d++;
	return lifetime_frame_end(l, maker, d);
}

void
lifetime_of_lists(struct lifetimes *l)
{
	struct graph *g = l->g;
	struct arena *a = l->a->c->a;
	struct lists t = {.l = l, .read = uses_last(g, a), .from = NEW(a, uint32_t, g->nval)};

	if (g->nnode < 2)
		return;
	t.of = NEW(a, uint32_t, l->calls.at[g->nnode - 1] + calls_depth(g, g->nnode - 1) + 1u);
	ROOM(a, t.loops, 0, t.cap, 1);
	t.loops[t.n++] = (struct loop){0};
	find_turns(&t);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			give(&t, node_outs(g, n)[k]);
	for (uint32_t v = 1; v < g->nval; v++)
		if (t.from[v] && t.loops[t.from[v]].turns > 1 && !t.loops[t.from[v]].unordered)
			lifetime_extend(l, v, common_end(l, g->vals[v].node, t.read[v]));
}
