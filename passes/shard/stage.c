/*
 * The stages of a pipeline. The longest list of repeated blocks, by parameters, is cut evenly; what runs before its first block is the first
 * stage's, what runs behind its last the last one's. Values that no parameter has a part in (positions, masks, rotary tables) every stage makes for itself;
 * all others that cross a cut are sent and received.
 */
#include "stage.h"

struct cutter {
	struct analysis *a;
	const struct graph *g;
	bool *depends, *needs;     /* by value: on a parameter; on one that trains */
	uint32_t *cut;             /* first node of each stage */
};

/* ---- dependence --------------------------------------------------------------------------------------------------- */

static void
find_dependence(struct cutter *t)
{
	const struct graph *g = t->g;

	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind == VAL_PARAM) {
			t->depends[v] = true;
			t->needs[v] = g->vals[v].flags & VF_TRAINABLE;
		}
	for (uint32_t n = 1; n < g->nnode; n++) {
		bool depends = false, needs = false;

		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			depends |= t->depends[it.val];
			needs |= t->needs[it.val];
		}
		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			uint32_t v = node_outs(g, n)[k];

			t->depends[v] = depends;
			t->needs[v] = needs && !(g->nodes[n].flags & NF_NO_GRAD) && dtype_is_float(g->vals[v].dtype);
		}
	}
}

static bool
node_depends(const struct cutter *t, uint32_t n)
{
	for (uint32_t k = 0; k < t->g->nodes[n].nout; k++)
		if (t->depends[node_outs(t->g, n)[k]])
			return true;
	return t->g->nodes[n].nout == 0;
}

/* ---- cuts ----------------------------------------------------------------------------------------------------------- */

static uint64_t
elements(const struct graph *g, uint32_t v)
{
	uint64_t n = 1;

	for (unsigned i = 0; g->vals[v].rank != RANK_UNKNOWN && i < g->vals[v].rank; i++)
		if (!mul_u64(n, (uint64_t)(val_dims(g, v)[i].expr ? 0 : val_dims(g, v)[i].n), &n))
			return 0;
	return n;
}

/* The scope whose list of blocks reads the most parameters. */
static uint32_t
heaviest(const struct cutter *t, const uint32_t *block_at)
{
	uint64_t *weight = NEW(t->a->c->a, uint64_t, t->g->nscope);
	uint32_t best = 0;
	bool found = false;

	for (uint32_t i = 1; i < t->g->nnode; i++) {
		uint32_t parent = t->g->scopes[block_at[i]].parent;

		if (!block_at[i])
			continue;
		for (struct operands it = operands_of(t->g, i); operand_next(&it);)
			weight[parent] += t->g->vals[it.val].kind == VAL_PARAM ? elements(t->g, it.val) : 0;
		if (!found || weight[parent] > weight[best])
			best = parent;
		found = true;
	}
	return found ? best : UINT32_MAX;
}

/* The first node of every block of the heaviest list, in order. */
static uint32_t
find_blocks(const struct cutter *t, uint32_t *first)
{
	const struct graph *g = t->g;
	bool *block = blocks_find(g, t->a->c->a);
	uint32_t *at = NEW(t->a->c->a, uint32_t, g->nnode), best, n = 0;

	for (uint32_t i = 1; i < g->nnode; i++)
		at[i] = blocks_outermost(g, block, g->nodes[i].scope);
	best = heaviest(t, at);
	for (uint32_t i = 1, last = 0; i < g->nnode; i++)
		if (at[i] && at[i] != last && g->scopes[at[i]].parent == best) {
			first[n++] = i;
			last = at[i];
		}
	return n;
}

static bool
find_cuts(struct cutter *t, uint32_t n)
{
	uint32_t *first = NEW(t->a->c->a, uint32_t, t->g->nnode + 1), blocks = find_blocks(t, first);

	if (blocks < n)
		return false;
	t->cut = NEW(t->a->c->a, uint32_t, n + 1);
	for (uint32_t k = 0; k < n; k++)
		t->cut[k] = k ? first[(uint64_t)blocks * k / n] : 1;
	t->cut[n] = t->g->nnode;
	return true;
}

/* ---- stages --------------------------------------------------------------------------------------------------------------- */

static bool
is_kept(const struct val *v)
{
	return v->kind == VAL_PARAM || v->kind == VAL_BUFFER || v->kind == VAL_CONST || v->kind == VAL_INPUT;
}

/* Its own nodes, and those of nobody's that it needs; what it has, and what it must receive. */
static void
fill_stage(struct cutter *t, struct stage *s, uint32_t from, uint32_t to)
{
	const struct graph *g = t->g;
	bool *received = NEW(t->a->c->a, bool, g->nval);

	s->runs = NEW(t->a->c->a, bool, g->nnode);
	s->has = NEW(t->a->c->a, bool, g->nval);
	s->in = NEW(t->a->c->a, uint32_t, g->nval);
	for (uint32_t n = from; n < to; n++)
		s->runs[n] = node_depends(t, n);
	for (uint32_t n = g->nnode; n-- > 1;) {
		if (!s->runs[n])
			continue;
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			const struct val *v = &g->vals[it.val];

			if (is_kept(v))
				s->has[v->tied ? v->tied : it.val] = s->has[it.val] = true;
			else if (v->kind == VAL_NODE && !t->depends[it.val])
				s->runs[v->node] = true;
			else if (v->kind == VAL_NODE && v->node < from && !received[it.val])
				s->in[s->nin++] = it.val;
			received[it.val] |= v->kind == VAL_NODE;
		}
	}
}

/* What no stage needs and no parameter has a part in runs in the first, with all that it reads. */
static void
keep_idle(struct cutter *t, struct stage *all, uint32_t n)
{
	const struct graph *g = t->g;

	for (uint32_t i = g->nnode; i-- > 1;) {
		bool runs = false;

		for (uint32_t k = 0; k < n; k++)
			runs |= all[k].runs[i];
		if (runs && !all[0].runs[i])
			continue;
		all[0].runs[i] = true;
		for (struct operands it = operands_of(g, i); operand_next(&it);) {
			const struct val *v = &g->vals[it.val];

			if (is_kept(v))
				all[0].has[v->tied ? v->tied : it.val] = all[0].has[it.val] = true;
			else if (v->kind == VAL_NODE && !t->depends[it.val])
				all[0].runs[v->node] = true;
		}
	}
}

/* What later stages receive from this one. */
static void
find_outputs(struct cutter *t, struct stage *all, uint32_t n, uint32_t k)
{
	struct stage *s = &all[k];
	bool *sent = NEW(t->a->c->a, bool, t->g->nval);

	s->out = NEW(t->a->c->a, uint32_t, t->g->nval);
	for (uint32_t later = k + 1; later < n; later++)
		for (uint32_t i = 0; i < all[later].nin; i++) {
			uint32_t v = all[later].in[i];

			if (s->runs[t->g->vals[v].node] && !sent[v])
				s->out[s->nout++] = v;
			sent[v] = true;
		}
}

/* What no stage reads stays with the first. */
static void
keep_unused(struct cutter *t, struct stage *all, uint32_t n)
{
	for (uint32_t v = 1; v < t->g->nval; v++) {
		bool used = false;

		for (uint32_t k = 0; k < n; k++)
			used |= all[k].has[v];
		if (!used && is_kept(&t->g->vals[v]))
			all[0].has[v] = true;
	}
}

struct stage *
stages_find(struct analysis *a, uint32_t n, bool **needs)
{
	struct cutter t = {.a = a, .g = a->g, .depends = NEW(a->c->a, bool, a->g->nval), .needs = NEW(a->c->a, bool, a->g->nval)};
	struct stage *all = NEW(a->c->a, struct stage, n);

	find_dependence(&t);
	if (!find_cuts(&t, n))
		return NULL;
	for (uint32_t k = 0; k < n; k++) {
		fill_stage(&t, &all[k], t.cut[k], t.cut[k + 1]);
		all[k].first = k == 0;
		all[k].last = k + 1 == n;
	}
	keep_idle(&t, all, n);
	for (uint32_t k = 0; k < n; k++)
		find_outputs(&t, all, n, k);
	keep_unused(&t, all, n);
	*needs = t.needs;
	return all;
}
