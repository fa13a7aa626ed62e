/*
 * constants: what an ONNX exporter computed because all sizes were fixed (masks, positions, zeros for a state) is no part of the model: its program
 * makes it in every forward. So it is made in front of the first module call that reads it. What an embedding, an index or a product reads may be a
 * buffer that an older exporter has no name for: it stays, and so does what a file stores without saying what its parameters are.
 */
#include "../passes.h"

struct constants {
	struct graph *g;
	struct calls calls;
	uint32_t *first;           /* per value: the first node that reads it */
	unsigned *depth;           /* per value: of the innermost call that all its readers stand in */
	bool *stays;               /* per value */
	uint32_t *behind, count, cap;
};

static bool
reads_buffers(unsigned op)
{
	return op == OP_EMBEDDING || op == OP_INDEX || op == OP_INDEX_SELECT || op == OP_MATMUL || op == OP_LINEAR || op == OP_CONV || op == OP_CONVOLUTION || op == OP_BATCH_NORM;
}

static void
note_reader(struct constants *k, uint32_t v, uint32_t n)
{
	unsigned depth = calls_depth(k->g, n), d = k->first[v] ? k->depth[v] : depth;

	if (!k->first[v])
		k->first[v] = n;
	while (d && (depth < d || !calls_same(&k->calls, k->first[v], n, d)))
		d--;
	k->depth[v] = d;
	k->stays[v] |= reads_buffers(k->g->nodes[n].op);
}

static void
find_readers(struct constants *k)
{
	struct graph *g = k->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_CONST)
				note_reader(k, it.val, n);
	for (uint32_t i = 0; i < g->noutput; i++)
		k->stays[g->outputs[i]] = true;
}

static bool
is_computed(const struct constants *k, uint32_t v)
{
	const struct val *x = &k->g->vals[v];

	return x->kind == VAL_CONST && k->first[v] && !k->stays[v] && !x->full && !(x->flags & VF_STORED) && x->rank && x->rank <= MAX_RANK;
}

static void
make(struct constants *k, uint32_t v)
{
	struct graph *g = k->g;
	uint32_t user = k->first[v], n = node_beside(g, OP_FULL, user, 1);
	unsigned d = k->depth[v];

	*node_arg(g, n, "size") = (struct arg){.kind = ARG_INTS, .first = ints_add(g, val_dims(g, v), g->vals[v].rank), .count = g->vals[v].rank};
	*node_arg(g, n, "fill_value") = arg_float(0);
	*node_arg(g, n, "dtype") = arg_dtype(g->vals[v].dtype);
	node_outs(g, n)[0] = v;
	g->nodes[n].name = g->vals[v].name;
	g->nodes[n].flags |= NF_ADDED;
	g->nodes[n].scope = scope_at(g, g->nodes[user].scope, d);
	g->nodes[n].nframe = 0;
	g->vals[v].kind = VAL_NODE;
	g->vals[v].node = n;
	g->vals[v].out = 0;
	ROOM(g->c->a, k->behind, k->count, k->cap, 1);
	k->behind[k->count++] = (calls_depth(g, user) > d ? k->calls.first[k->calls.at[user] + d + 1] : user) - 1;
}

bool
pass_constants(struct analysis *a)
{
	struct graph *g = a->g;
	struct constants k = {.g = g, .calls = calls_find(g, a->c->a)};
	uint32_t end = g->nnode;

	if (!str_eq(g->format, S("onnx")) || !str_starts(g->producer, S("pytorch")))
		return true;
	k.first = NEW(a->c->a, uint32_t, g->nval);
	k.depth = NEW(a->c->a, unsigned, g->nval);
	k.stays = NEW(a->c->a, bool, g->nval);
	find_readers(&k);
	for (uint32_t v = 1; v < g->nval; v++)
		if (is_computed(&k, v))
			make(&k, v);
	if (!k.count)
		return true;
	graph_splice(g, end, k.behind);
	assume(a, "constants that the exporter computed from fixed sizes are made in every forward (%u)", k.count);
	return true;
}
