/*
 * copies: x.contiguous() of an expanded or turned tensor changes no number, so exporters of ONNX leave it out; the record of what read the copy names it.
 *
 *     bias = bias.expand(b, -1, q, k).contiguous()      Expand alone, and in each layer an Add whose record says aten.add.Tensor(args = (%div, %clone))
 *
 * One copy is put behind what made the original, for all who read it under that name. Operators that take a copy as their own (products, views) are not asked:
 * eager_build.c, eager_attention.c.
 */
#include "motif.h"

struct copies {
	struct graph *g;
	uint32_t nold, nval;
	uint32_t *copy, *name;     /* per value: its copy, and what records call that; 0 = none */
	uint32_t *behind, cap;     /* per new node: the one whose place it follows */
};

/* The operators whose operands stand in the order in which their record has them. */
static bool
keeps_order(const struct graph *g, uint32_t n)
{
	unsigned op = g->nodes[n].op;

	return op == OP_ONNX_ADD || op == OP_ONNX_SUB || op == OP_ONNX_MUL || op == OP_ONNX_DIV;
}

static bool
is_strided(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);

	return n && (g->nodes[n].op == OP_ONNX_EXPAND || g->nodes[n].op == OP_ONNX_TRANSPOSE);
}

static uint32_t
copy_of(struct copies *k, uint32_t v, uint32_t name)
{
	struct graph *g = k->g;
	uint32_t made = maker_of(g, v), at;

	if (k->copy[v] && k->name[v] == name)
		return k->copy[v];
	k->copy[v] = node_applied(g, OP_CONTIGUOUS, v, made, "copy");
	k->name[v] = name;
	at = g->vals[k->copy[v]].node - k->nold;
	ROOM(g->c->a, k->behind, at, k->cap, 1);
	k->behind[at] = made;
	return k->copy[v];
}

bool
pass_copies(struct analysis *a)
{
	struct graph *g = a->g;
	struct copies k = {.g = g, .nold = g->nnode, .nval = g->nval};

	if (!str_eq(g->format, S("onnx")))
		return true;
	k.copy = NEW(a->c->a, uint32_t, g->nval);
	k.name = NEW(a->c->a, uint32_t, g->nval);
	for (uint32_t n = 1; n < k.nold; n++)
		for (int i = 0; keeps_order(g, n) && i < 2; i++) {
			uint32_t v = operand_of(g, n, (unsigned)i);
			struct str said = record_of(g, n, "aten.", i);

			if (!v || v >= k.nval || !str_starts(said, S("%clone")) || str_starts(graph_str(g, g->vals[v].name), S("clone")) || !is_strided(g, v))
				continue;
			v = copy_of(&k, v, graph_name(g, said));
			node_args(g, n)[i] = arg_val(v);
		}
	if (g->nnode > k.nold)
		graph_splice(g, k.nold, k.behind);
	return true;
}
