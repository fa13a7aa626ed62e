/*
 * packed: while exporting, libraries also build the part of a mask that tells packed sequences apart, from running sums over jumps
 * of the position ids; while training they look at the ids first and leave it out. What is left of such a mask compares the
 * positions themselves, once for all sequences of the batch.
 *
 *   and(mask, eq(count[i], count[j]))      mask
 *   and(ones(()), mask) under it           mask: a conjunction of one is not made
 *   ids[batch, i], where ids count 0, 1, ..        i
 *   attention(.., mask) of such a mask              expand(mask): libraries expand masks over the batch, which an optimiser left to the comparison
 */
#include "masks.h"

static uint32_t
producer(const struct graph *g, uint32_t v)
{
	return g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0;
}

static bool
is_conjunction(const struct graph *g, uint32_t n)
{
	const struct arg *x = node_args(g, n);

	return n && (g->nodes[n].op == OP_BITWISE_AND || g->nodes[n].op == OP_LOGICAL_AND) && x[0].kind == ARG_VAL && x[1].kind == ARG_VAL;
}

static bool
tells_packed_apart(struct masks *m, uint32_t v)
{
	struct finding f = masks_slice_back(m, v);

	return f.counts && f.matches && !f.orders && !f.foreign && !f.from_input;
}

/* The mask without its first, all-true number. */
static uint32_t
unwrapped(const struct graph *g, uint32_t v)
{
	uint32_t n = producer(g, v), one = is_conjunction(g, n) ? node_args(g, n)[0].u.val : 0;

	if (!one || g->vals[one].rank || !producer(g, one) || g->nodes[producer(g, one)].narg < 1)
		return v;
	return node_args(g, n)[1].u.val;
}

/* 0, 1, 2, .. along the last dim, whatever is in front */
static bool
counts_up(const struct graph *g, uint32_t v)
{
	for (uint32_t n = producer(g, v); n; n = producer(g, v)) {
		const struct arg *x = node_args(g, n);
		unsigned op = g->nodes[n].op;

		if (op == OP_ARANGE)
			return true;
		if (op == OP_ADD && !(x[1].kind == ARG_INT && !x[1].u.i.expr && x[1].u.i.n == 0))
			return false;
		if (op != OP_ADD && op != OP_UNSQUEEZE && op != OP_EXPAND && op != OP_SLICE && op != OP_TO)
			return false;
		v = x->u.val;
	}
	return false;
}

static void
read_positions_directly(struct graph *g, uint32_t n)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);) {
		uint32_t p = producer(g, it.val);
		const struct arg *x = p ? node_args(g, p) : NULL;

		if (p && g->nodes[p].op == OP_INDEX && x[1].kind == ARG_VALS && x[1].count && g->ids[x[1].first + x[1].count - 1] && counts_up(g, x->u.val))
			*it.slot = g->ids[x[1].first + x[1].count - 1];
	}
}

static bool
compares_positions(unsigned op)
{
	return op == OP_LE || op == OP_LT || op == OP_GE || op == OP_GT || op == OP_SUB || op == OP_ADD;
}

/* By value: something else than attention reads it. */
static bool *
find_other_readers(const struct graph *g)
{
	bool *other = NEW(g->c->a, bool, g->nval);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			other[it.val] |= g->nodes[n].op != OP_SDPA;
	return other;
}

/* The conjunction had a row for each sequence of the batch because their positions were compared; now the mask that is left is expanded to that. */
static bool
expands(struct graph *g, uint32_t n, uint32_t mask)
{
	const struct val *y = &g->vals[node_outs(g, n)[0]];
	struct arg *a = node_args(g, n);

	if (y->rank != 4)
		return false;
	g->nodes[n].op = OP_EXPAND;
	a[0] = arg_val(mask);
	a[1] = (struct arg){.kind = ARG_INTS, .first = y->dim, .count = y->rank};
	return true;
}

void
masks_unpack(struct masks *m)
{
	struct graph *g = m->g;
	uint32_t *with = NEW(g->c->a, uint32_t, g->nval);
	bool found = false, *other = find_other_readers(g);

	for (uint32_t n = 1; n < g->nnode; n++)
		if (is_conjunction(g, n) && tells_packed_apart(m, node_args(g, n)[1].u.val)) {
			uint32_t out = node_outs(g, n)[0], mask = unwrapped(g, node_args(g, n)[0].u.val);

			if (other[out] || !expands(g, n, mask))
				with[out] = mask;
			found = true;
		}
	for (uint32_t n = 1; n < g->nnode && found; n++) {
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			while (with[*it.slot])
				*it.slot = with[*it.slot];
		if (compares_positions(g->nodes[n].op))
			read_positions_directly(g, n);
	}
	m->dropped |= found;
}
