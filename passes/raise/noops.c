/*
 * noops: what the exporter wrote but no training step runs. Checks and reads of values hold nothing; x[:] over a
 * whole dim is no operator in Python (kept, its backward would allocate a full buffer). A loss broadcasts its operands; those that have
 * the size already are called after it from then on, although the program's names for them are still the ones before. Joining skips an empty tensor, which has the
 * dtype of what it is joined with: a cache begins as torch.tensor([], dtype=k.dtype), and the file has the dtype that k had there.
 */
#include "../passes.h"

static void
replace_value(struct graph *g, const uint32_t *with)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			while (with[*it.slot])
				*it.slot = with[*it.slot];
	for (uint32_t i = 0; i < g->noutput; i++)
		while (with[g->outputs[i]])
			g->outputs[i] = with[g->outputs[i]];
}

static int64_t
int_arg(const struct graph *g, uint32_t n, const char *name, int64_t dflt)
{
	const struct arg *a = node_arg(g, n, name);

	return a && a->kind == ARG_INT && !a->u.i.expr ? a->u.i.n : dflt;
}

static bool
is_whole_slice(const struct graph *g, uint32_t n)
{
	const struct arg *x = node_args(g, n);
	int64_t dim = int_arg(g, n, "dim", 0);
	const struct val *v = &g->vals[x->u.val];
	struct sint size;

	if (x->kind != ARG_VAL || v->rank == RANK_UNKNOWN || !v->rank || int_arg(g, n, "step", 1) != 1 || int_arg(g, n, "start", 0) != 0)
		return false;
	dim = dim < 0 ? dim + v->rank : dim;
	if (dim < 0 || dim >= v->rank)
		return false;
	size = val_dims(g, x->u.val)[dim];
	return !size.expr && int_arg(g, n, "end", INT64_MAX) >= size.n;
}

static bool
same_dims(const struct graph *g, uint32_t a, uint32_t b)
{
	if (g->vals[a].rank == RANK_UNKNOWN || g->vals[a].rank != g->vals[b].rank)
		return false;
	for (unsigned i = 0; i < g->vals[a].rank; i++)
		if (val_dims(g, a)[i].expr || val_dims(g, b)[i].expr || val_dims(g, a)[i].n != val_dims(g, b)[i].n)
			return false;
	return true;
}

static void
drop_broadcast(struct graph *g, uint32_t n, uint32_t *with)
{
	const struct arg *x = node_args(g, n);
	bool all = true;

	for (uint32_t k = 0; x->kind == ARG_VALS && k < x->count && k < g->nodes[n].nout; k++)
		if (node_outs(g, n)[k] && same_dims(g, g->ids[x->first + k], node_outs(g, n)[k]))
			with[node_outs(g, n)[k]] = g->ids[x->first + k];
		else
			all = false;
	if (all && x->kind == ARG_VALS)
		g->nodes[n].flags |= NF_DEAD;
}

/* torch.cat([empty, k]): of one dim without elements. */
static bool
drop_empty(struct graph *g, uint32_t n)
{
	struct arg *x = node_args(g, n);
	uint32_t *kept, count = 0;

	if (x->kind != ARG_VALS)
		return false;
	kept = NEW(g->c->a, uint32_t, x->count + 1u);
	for (uint32_t k = 0; k < x->count; k++) {
		uint32_t v = g->ids[x->first + k];
		bool empty = v && g->vals[v].rank == 1 && !val_dims(g, v)[0].expr && val_dims(g, v)[0].n == 0;

		if (!empty || (!count && k + 1 == x->count))
			kept[count++] = v;
	}
	if (count == x->count)
		return false;
	x->first = ids_add(g, kept, count);        /* another node may read the same list */
	x->count = count;
	return true;
}

/* From the end, so that a check's operand goes after the check. */
static void
drop_checks(struct graph *g, uint32_t *uses)
{
	for (uint32_t n = g->nnode; n-- > 1;) {
		struct node *x = &g->nodes[n];
		bool used = false;

		for (uint32_t k = 0; k < x->nout; k++)
			used |= uses[node_outs(g, n)[k]] > 0;
		if (x->op != OP_NO_OP || used)
			continue;
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			uses[it.val]--;
		x->flags |= NF_DEAD;
	}
}

bool
pass_noops(struct analysis *a)
{
	struct graph *g = a->g;
	uint32_t *with = NEW(a->c->a, uint32_t, g->nval), *uses = NEW(a->c->a, uint32_t, g->nval);
	unsigned empty = 0;

	uses_count(g, uses);
	drop_checks(g, uses);
	for (uint32_t n = 1; n < g->nnode; n++) {
		struct node *x = &g->nodes[n];

		if (x->op == OP_SLICE && !(x->flags & NF_INPLACE) && is_whole_slice(g, n)) {
			x->flags |= NF_DEAD;
			with[node_outs(g, n)[0]] = node_args(g, n)->u.val;
		}
		if (x->op == OP_BROADCAST_TENSORS)
			drop_broadcast(g, n, with);
		if (x->op == OP_CAT)
			empty += drop_empty(g, n);
	}
	if (empty)
		assume(a, "empty tensors that others are joined to have the others' dtype (%u)", empty);
	replace_value(g, with);
	graph_compact(g);
	return true;
}
