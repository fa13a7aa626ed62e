/*
 * recompose: conversions that decomposing dropped. One to the dtype that a tensor has anyway leaves only its check behind; the check becomes
 * the conversion again, because under another precision it is one.
 */
#include "recompose.h"

#include <string.h>

static bool
is_dtype_check(const struct graph *g, uint32_t n)
{
	return g->nodes[n].op == OP_NO_OP && str_starts(graph_str(g, g->nodes[n].target), S("torch.ops.aten._assert_tensor_metadata"));
}

/* The conversion that a check came with is there still. */
static bool
converts_next(const struct graph *g, uint32_t n, uint32_t v)
{
	while (++n < g->nnode && is_dtype_check(g, n))
		;
	if (n >= g->nnode || (g->nodes[n].op != OP_TO_COPY && g->nodes[n].op != OP_TO))
		return false;
	return node_args(g, n)->kind == ARG_VAL && node_args(g, n)->u.val == v;
}

static bool
says_device(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];
	struct str line = x->nframe ? graph_str(g, g->frames[x->frame + x->nframe - 1].text) : S("");

	return memmem(line.p, line.n, "device", 6) != NULL;
}

/* The check becomes the conversion, and whoever reads the tensor behind it reads the result, as in a program that was not decomposed. */
static void
restore_conversion(struct recompose *e, uint32_t n, uint32_t *now)
{
	struct graph *g = e->g;
	uint32_t v = node_args(g, n)->u.val, to = val_new(g, VAL_NODE, str_fmt(e->a->c->a, "to_%u", (unsigned)n)), made = node_new(g, OP_TO, op_narg(OP_TO), 1);
	struct node old = g->nodes[n];

	val_shape(g, to, g->vals[v].rank, val_dims(g, v));
	g->vals[to].dtype = g->vals[v].dtype;
	g->vals[to].node = n;
	*node_arg(g, made, "self") = arg_val(v);
	*node_arg(g, made, "dtype") = arg_dtype(g->vals[v].dtype);
	if (says_device(g, n))
		*node_arg(g, made, "device") = (struct arg){.kind = ARG_STR, .u.str = graph_name(g, S("cpu"))};
	node_outs(g, made)[0] = to;
	old.op = OP_TO;
	old.arg = g->nodes[made].arg;
	old.narg = g->nodes[made].narg;
	old.out = g->nodes[made].out;
	old.nout = 1;
	g->nodes[n] = old;
	g->nnode = made;
	now[v] = to;
}

void
recompose_restore_conversions(struct recompose *e)
{
	struct graph *g = e->g;
	uint32_t *now, checks = 0;

	for (uint32_t n = 1; n < g->nnode; n++)
		checks += is_dtype_check(g, n) && node_args(g, n)->kind == ARG_VAL && !converts_next(g, n, node_args(g, n)->u.val);
	if (!checks)
		return;
	now = NEW(e->a->c->a, uint32_t, g->nval + checks);
	for (uint32_t n = 1; n < g->nnode; n++) {
		bool check = is_dtype_check(g, n) && node_args(g, n)->kind == ARG_VAL;

		check = check && !converts_next(g, n, node_args(g, n)->u.val);
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			while (now[*it.slot])
				*it.slot = now[*it.slot];
		if (check)
			restore_conversion(e, n, now);
	}
	for (uint32_t i = 0; i < g->noutput; i++)
		while (now[g->outputs[i]])
			g->outputs[i] = now[g->outputs[i]];
}
