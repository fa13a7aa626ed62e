/*
 * lifetime: experts whose weights an index picks, known by what they compute, calls or not. What their function picks and repeats are locals of it.
 */
#include "lifetime.h"

#define MOST_WORK 100000000u       /* nodes looked at; a real model has few picks */
#define MOST_STEPS 32u             /* from an expert's product to the sum over experts */

struct picks {
	struct lifetimes *l;
	const uint32_t *uses, *reader;     /* per value: how many read it, and the last that does */
};

/* The one reader of what a node makes; 0 = none or several. */
static uint32_t
only_reader(const struct picks *p, uint32_t n)
{
	uint32_t v = node_outs(p->l->g, n)[0];

	return v && p->uses[v] == 1 ? p->reader[v] : 0;
}

/* Where the function that picks returns: where no calls are known, when the experts' results have been added up. */
static uint32_t
end_of_experts(const struct picks *p, uint32_t pick)
{
	const struct graph *g = p->l->g;
	uint32_t frame = lifetime_frame_end(p->l, pick, calls_depth(g, pick)), next, n;

	for (n = pick; (next = lifetime_next_pick(g, n, frame)) != frame;)
		n = next;
	if (g->has_scopes)
		return frame;
	next = n;
	for (unsigned i = 0; n && i < MOST_STEPS && g->nodes[n].op != OP_SUM && g->nodes[n].op != OP_INDEX_ADD; i++)
		n = only_reader(p, n);
	return n ? n : next;
}

static uint32_t
value_at(const struct graph *g, uint32_t n, unsigned i)
{
	return g->nodes[n].narg > i && node_args(g, n)[i].kind == ARG_VAL ? node_args(g, n)[i].u.val : 0;
}

static bool
repeats(unsigned op)
{
	return op == OP_UNSQUEEZE || op == OP_EXPAND || op == OP_RESHAPE || op == OP_VIEW || op == OP_REPEAT_INTERLEAVE || op == OP_REPEAT || op == OP_INDEX;
}

/* selected = x.repeat_interleave(k): what the first weights multiply, once for each expert, and x itself are locals. */
static void
hold_tokens(const struct picks *p, uint32_t pick, uint32_t end)
{
	const struct graph *g = p->l->g;
	uint32_t product = only_reader(p, pick), v;

	if (!product || (g->nodes[product].op != OP_BMM && g->nodes[product].op != OP_MATMUL))
		return;
	v = value_at(g, product, 0);
	if (v == node_outs(g, pick)[0])
		v = value_at(g, product, 1);
	for (unsigned i = 0; v && i < MOST_STEPS; i++) {
		uint32_t n = g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0;

		lifetime_extend(p->l, v, end);
		v = n && repeats(g->nodes[n].op) ? value_at(g, n, 0) : 0;
	}
}

/* weights = self.up[ids] .. weights = self.down[ids]: experts' weights that are picked have the name until others get it, or the frame returns. */
void
lifetime_of_picked(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint32_t *uses = NEW(l->a->c->a, uint32_t, g->nval), *reader = uses_last(g, l->a->c->a);
	struct picks p = {l, uses, reader};
	uint64_t work = 0;

	uses_count(g, uses);
	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t end, next;

		if (g->nodes[n].op != OP_INDEX || g->vals[value_at(g, n, 0)].kind != VAL_PARAM)
			continue;
		end = work < MOST_WORK ? end_of_experts(&p, n) : lifetime_frame_end(l, n, calls_depth(g, n));
		next = work < MOST_WORK ? lifetime_next_pick(g, n, end) : end;
		work += g->nnode - n;
		lifetime_extend(l, node_outs(g, n)[0], next);
		if (next != end)
			hold_tokens(&p, n, end);
	}
}
