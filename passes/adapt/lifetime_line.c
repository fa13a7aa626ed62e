/*
 * lifetime by line numbers: a trace's stacks have no text, but every function with its line, and values have the names that Python's locals had
 * where they were used first. What follows from that:
 *
 *   A value that another statement of a function uses is held by something there, at the least until that statement ends.
 *   The same line run again, in a loop, binds the same name again.
 *   A local whose name is known lives until that name gets another value, or the function returns. Where a statement leaves a value behind
 *   whose name is not known, that may have taken the name.
 */
#include "lifetime.h"

#include <stdlib.h>

struct lines {
	struct lifetimes *l;
	struct graph *g;
	uint32_t *at;              /* per node: its first entry; one for each line of its stack, outermost first */
	uint32_t *func, *stmt;     /* per entry: the entry with which this run of the function, this statement began */
	uint32_t *func_last, *stmt_last;       /* per such entry: last node */
	uint32_t *callee;          /* per statement: the module that it called last, 0 = none */
	uint32_t *lead;            /* per statement: nodes before it called one */
	uint32_t *first, *again;   /* per statement: the first, and the next one, on its line in this run of the function; 0 = none */
	uint32_t *next;            /* per statement: the next one of its function */
	uint32_t *results, *unnamed;        /* per statement: tensors that it leaves behind, those without known names */
	uint32_t *used_up, *replaced;          /* locals that it is the last to use, those without known names */
	uint32_t *open;            /* per statement: the end of it or of one behind it, in its function, that may bind any name; 0 = none */
	uint32_t *user, *last_use, *seen;      /* per value: first and last node that use it; statement that it was passed to */
	struct passed *passed;  uint32_t npassed, passed_cap;
	uint32_t *node, *line;     /* per entry */
	uint32_t nentry;
};

static uint32_t
depth_of(const struct graph *g, uint32_t n)
{
	return g->nodes[n].nframe ? g->nodes[n].nframe + (uint32_t)g->nodes[n].nhelper : 0;
}

/* ---- functions and statements ---------------------------------------------------------------------------------------- */

static bool
same_function(const struct lines *k, uint32_t a, uint32_t b, uint32_t d)
{
	const struct node *x = &k->g->nodes[a], *y = &k->g->nodes[b];

	if ((d < x->nframe) != (d < y->nframe))
		return false;
	if (d < x->nframe)
		return d <= calls_depth(k->g, a) && d <= calls_depth(k->g, b) && calls_same(&k->l->calls, a, b, d);
	return k->g->frames[x->frame + d].text == k->g->frames[y->frame + d].text;
}

static bool
same_statement(const struct lines *k, uint32_t a, uint32_t b, uint32_t d)
{
	const struct node *x = &k->g->nodes[a], *y = &k->g->nodes[b];

	if (k->g->frames[x->frame + d].line != k->g->frames[y->frame + d].line)
		return false;
	return d >= x->nframe || !lifetime_begins_turn(k->l, b, d, k->callee[k->stmt[k->at[a] + d]], k->lead[k->stmt[k->at[a] + d]]);
}

static void
find_statements(struct lines *k)
{
	uint32_t prev = 0;

	for (uint32_t n = 1; n < k->g->nnode; n++) {
		bool func = prev, stmt = prev;

		for (uint32_t d = 0; d < depth_of(k->g, n); d++) {
			uint32_t e = k->at[n] + d, p = prev ? k->at[prev] + d : 0;

			func = stmt && d < depth_of(k->g, prev) && same_function(k, prev, n, d);
			stmt = func && same_statement(k, prev, n, d);
			k->func[e] = func ? k->func[p] : e;
			k->stmt[e] = stmt ? k->stmt[p] : e;
			k->node[e] = n;
			k->func_last[k->func[e]] = k->stmt_last[k->stmt[e]] = n;
			if (d < k->g->nodes[n].nframe && lifetime_callee(k->g, n, d)) {
				if (!k->callee[k->stmt[e]])
					k->lead[k->stmt[e]] = n - k->node[k->stmt[e]];
				k->callee[k->stmt[e]] = lifetime_callee(k->g, n, d);
			}
			k->line[e] = k->g->frames[k->g->nodes[n].frame + d].line;
		}
		prev = depth_of(k->g, n) ? n : prev;
	}
}

/* ---- lines that run again ---------------------------------------------------------------------------------------------- */

struct key {
	uint32_t func, line, entry;
};

static int
by_line(const void *a, const void *b)
{
	const struct key *x = a, *y = b;

	if (x->func != y->func)
		return x->func < y->func ? -1 : 1;
	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void
find_turns(struct lines *k)
{
	struct key *keys = NEW(k->l->a->c->a, struct key, k->nentry + 1u);
	uint32_t *behind = NEW(k->l->a->c->a, uint32_t, k->nentry + 1u);
	uint32_t n = 0;

	for (uint32_t e = 1; e < k->nentry; e++)
		if (k->stmt[e] == e)
			keys[n++] = (struct key){k->func[e], k->line[e], e};
	for (uint32_t i = n; i-- > 0;) {
		k->next[keys[i].entry] = behind[keys[i].func];
		behind[keys[i].func] = keys[i].entry;
	}
	if (n)
		qsort(keys, n, sizeof *keys, by_line);
	for (uint32_t i = 0; i < n; i++) {
		bool more = i && keys[i - 1].func == keys[i].func && keys[i - 1].line == keys[i].line;

		k->first[keys[i].entry] = more ? k->first[keys[i - 1].entry] : keys[i].entry;
		if (more)
			k->again[keys[i - 1].entry] = keys[i].entry;
	}
}

/* ---- what statements use up and leave behind ----------------------------------------------------------------------------- */

/* The entry of the function whose local the value is, 0 = not known. */
static uint32_t
owner_of(const struct lines *k, uint32_t v)
{
	const struct val *x = &k->g->vals[v];
	uint32_t user = k->user[v];

	if (!x->local || !user || !x->local_depth || depth_of(k->g, user) < x->local_depth)
		return 0;
	return k->func[k->at[user] + x->local_depth - 1];
}

/* Nobody binds a name of such a tensor to a number, a mask or indices, or the other way round. */
static bool
is_map(const struct graph *g, uint32_t v)
{
	return dtype_is_float(g->vals[v].dtype) && g->vals[v].rank && g->nodes[g->vals[v].node].op != OP_BROADCAST_TENSORS;
}

/* A value that is used after the statement in which it was made, at each level of calls. */
static void
count_results(struct lines *k)
{
	for (uint32_t v = 1; v < k->g->nval; v++) {
		uint32_t n = k->last_use[v] && k->g->vals[v].kind == VAL_NODE ? k->g->vals[v].node : 0, owner = n ? owner_of(k, v) : 0;

		for (uint32_t d = 0; n && d < depth_of(k->g, n) && is_map(k->g, v); d++) {
			uint32_t s = k->stmt[k->at[n] + d];

			if (k->last_use[v] > k->stmt_last[s]) {
				k->results[s]++;
				k->unnamed[s] += k->func[k->at[n] + d] != owner;
			}
		}
	}
}

/* "f(g(x))" over several lines: g's line is behind f's and still runs first. */
static bool
is_operand(const struct lines *k, uint32_t made, uint32_t used)
{
	return k->line[used] < k->line[made] && k->first[used] > k->first[made];
}

/* A value that one statement of a function made and another is the last to use. */
struct passed {
	uint32_t used, made;       /* statements */
	uint32_t val;
	double size;               /* elements */
};

/* Within a statement the smaller ones first, of equal ones those made first. */
static int
by_user(const void *a, const void *b)
{
	const struct passed *x = a, *y = b;

	if (x->used != y->used)
		return x->used < y->used ? -1 : 1;
	if (x->size < y->size || x->size > y->size)
		return x->size < y->size ? -1 : 1;
	if (x->made != y->made)
		return x->made < y->made ? -1 : 1;
	return x->val < y->val ? -1 : x->val > y->val;
}

static double
elements(const struct graph *g, uint32_t v)
{
	double n = 1;

	for (unsigned i = 0; i < g->vals[v].rank; i++)
		n *= (double)val_dims(g, v)[i].n;
	return n;
}

/* Made in one statement of a function and used in another: until that one ends, and until the line that made it runs again. */
static void
hold_between(struct lines *k, uint32_t v, uint32_t user)
{
	uint32_t n = k->g->vals[v].node, d = 0, made, used, most = depth_of(k->g, n) < depth_of(k->g, user) ? depth_of(k->g, n) : depth_of(k->g, user);

	while (d < most && k->stmt[k->at[n] + d] == k->stmt[k->at[user] + d])
		d++;
	if (d == most || k->func[k->at[n] + d] != k->func[k->at[user] + d])
		return;
	made = k->stmt[k->at[n] + d];
	used = k->stmt[k->at[user] + d];
	if (is_operand(k, made, used))
		return;
	lifetime_extend(k->l, v, k->stmt_last[used]);
	if (k->again[made])
		lifetime_extend(k->l, v, k->stmt_last[k->again[made]]);
	if (is_map(k->g, v) && k->last_use[v] <= k->stmt_last[used] && k->seen[v] != used) {
		k->seen[v] = used;
		ROOM(k->l->a->c->a, k->passed, k->npassed, k->passed_cap, 1);
		k->passed[k->npassed++] = (struct passed){used, made, v, elements(k->g, v)};
		k->used_up[used]++;
		k->replaced[used] += owner_of(k, v) != k->func[used];
	}
}

/* Where the name of what the statement made gets another value at the latest: the line runs again, or the function returns. */
static uint32_t
latest_end(const struct lines *k, uint32_t func, uint32_t stmt)
{
	uint32_t end = k->func_last[func];

	if (stmt && k->again[stmt])
		return k->stmt_last[k->again[stmt]];
	return func == k->func[1] && end > k->l->returns ? k->l->returns : end;
}

/* What a line binds once has the same names when it runs again, even where something else was the first to use it. */
static void
name_turns(struct lines *k)
{
	uint32_t *least = NEW(k->l->a->c->a, uint32_t, k->nentry + 1u);

	for (uint32_t e = 1; e < k->nentry; e++) {
		uint32_t *best = &least[k->first[e]];

		if (k->stmt[e] == e && k->results[e] && (!*best || k->unnamed[e] + 1 < *best))
			*best = k->unnamed[e] + 1;
	}
	for (uint32_t e = 1; e < k->nentry; e++)
		if (k->stmt[e] == e && k->results[e])
			k->unnamed[e] = least[k->first[e]] - 1;
}

/* A statement that leaves more behind than it uses up, both without known names, binds a name that may be any. */
static void
find_open(struct lines *k)
{
	uint32_t *next = NEW(k->l->a->c->a, uint32_t, k->nentry + 1u);

	for (uint32_t e = k->nentry; e-- > 1;)
		if (k->stmt[e] == e) {
			k->open[e] = k->unnamed[e] > k->replaced[e] ? k->stmt_last[e] : next[k->func[e]];
			next[k->func[e]] = k->open[e];
		}
}

/*
 * h = torch.cat([h, x]): a statement that uses up more locals than it leaves values behind gives new values to some of them only; to the
 * largest, for all that is known.
 */
static void
hold_survivors(struct lines *k)
{
	if (k->npassed)
		qsort(k->passed, k->npassed, sizeof *k->passed, by_user);
	for (uint32_t i = 0, first = 0; i < k->npassed; i++) {
		uint32_t s = k->passed[i].used, next, end;

		first = i && k->passed[i - 1].used == s ? first : i;
		if (i - first + k->results[s] >= k->used_up[s] || owner_of(k, k->passed[i].val) == k->func[s])
			continue;
		next = k->next[s] ? k->open[k->next[s]] : 0;
		end = latest_end(k, k->func[s], k->passed[i].made);
		lifetime_extend(k->l, k->passed[i].val, next && next < end ? next : end);
	}
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

struct local {
	uint32_t func, name;
	uint32_t made, bound;      /* statement of the function that did, 0 = it was passed; the node after which it has the name */
	uint32_t used;             /* the last statement of the function that uses it */
	uint32_t val;
};

static int
by_name(const void *a, const void *b)
{
	const struct local *x = a, *y = b;

	if (x->func != y->func)
		return x->func < y->func ? -1 : 1;
	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	if (x->bound != y->bound)
		return x->bound < y->bound ? -1 : 1;
	return x->val < y->val ? -1 : x->val > y->val;
}

/* The level of a function that the node runs in, UINT32_MAX = it does not. */
static uint32_t
level_in(const struct lines *k, uint32_t n, uint32_t func)
{
	uint32_t d = func - k->at[k->node[func]];

	return d < depth_of(k->g, n) && k->func[k->at[n] + d] == func ? d : UINT32_MAX;
}

static uint32_t
find_locals(struct lines *k, struct local *out, uint32_t *index)
{
	uint32_t n = 0;

	for (uint32_t v = 1; v < k->g->nval; v++) {
		uint32_t func = k->g->vals[v].kind == VAL_NODE ? owner_of(k, v) : 0, made = k->g->vals[v].node, d;

		if (!func)
			continue;
		d = level_in(k, made, func);
		out[n] = (struct local){.func = func, .name = k->g->vals[v].local, .val = v};
		out[n].made = d == UINT32_MAX ? 0 : k->stmt[k->at[made] + d];
		out[n].bound = out[n].made ? k->stmt_last[out[n].made] : k->node[func];
		index[v] = ++n;
	}
	return n;
}

/* A local whose name is known: until the name gets another value, or may get one. */
static void
hold_locals(struct lines *k)
{
	struct arena *a = k->l->a->c->a;
	struct local *x = NEW(a, struct local, k->g->nval + 1u);
	uint32_t *index = NEW(a, uint32_t, k->g->nval), n = find_locals(k, x, index);

	for (uint32_t u = 1; u < k->g->nnode; u++)
		for (struct operands it = operands_of(k->g, u); operand_next(&it);) {
			uint32_t i = index[it.val], d = i && depth_of(k->g, u) ? level_in(k, u, x[i - 1].func) : UINT32_MAX;

			if (d != UINT32_MAX)
				x[i - 1].used = k->stmt[k->at[u] + d];
		}
	if (n)
		qsort(x, n, sizeof *x, by_name);
	for (uint32_t i = 0; i < n; i++) {
		bool again = i + 1 < n && x[i + 1].func == x[i].func && x[i + 1].name == x[i].name && x[i + 1].bound > x[i].bound;
		uint32_t end = again ? x[i + 1].bound : latest_end(k, x[i].func, x[i].made), open = x[i].used ? k->open[x[i].used] : 0;

		if (x[i].used)
			lifetime_extend(k->l, x[i].val, open && open < end ? open : end);
	}
}

/* ---- all of it ---------------------------------------------------------------------------------------------------------------- */

static void
make_room(struct lines *k)
{
	struct arena *a = k->l->a->c->a;
	uint32_t **all[] = {&k->func, &k->stmt, &k->func_last, &k->stmt_last, &k->callee, &k->lead, &k->first, &k->again,
		&k->next, &k->results, &k->unnamed, &k->used_up, &k->replaced, &k->open, &k->node, &k->line};

	k->at = NEW(a, uint32_t, k->g->nnode + 1u);
	k->nentry = 1;
	for (uint32_t n = 1; n < k->g->nnode; n++) {
		k->at[n] = k->nentry;
		k->nentry += depth_of(k->g, n);
	}
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		*all[i] = NEW(a, uint32_t, k->nentry + 1u);
	k->user = NEW(a, uint32_t, k->g->nval);
	k->last_use = NEW(a, uint32_t, k->g->nval);
	k->seen = NEW(a, uint32_t, k->g->nval);
}

static void
find_uses(struct lines *k)
{
	for (uint32_t u = 1; u < k->g->nnode; u++)
		for (struct operands it = operands_of(k->g, u); operand_next(&it);) {
			if (!k->user[it.val])
				k->user[it.val] = u;
			k->last_use[it.val] = u;
		}
	for (uint32_t i = 0; i < k->g->noutput; i++)
		k->last_use[k->g->outputs[i]] = k->g->nnode;
}

void
lifetime_by_line(struct lifetimes *l)
{
	struct graph *g = l->g;
	struct lines k = {.l = l, .g = g};

	make_room(&k);
	if (k.nentry == 1)
		return;
	find_statements(&k);
	find_turns(&k);
	find_uses(&k);
	count_results(&k);
	for (uint32_t u = 1; u < g->nnode; u++)
		for (struct operands it = operands_of(g, u); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_NODE && depth_of(g, u) && depth_of(g, g->vals[it.val].node))
				hold_between(&k, it.val, u);
	name_turns(&k);
	find_open(&k);
	hold_survivors(&k);
	hold_locals(&k);
}
