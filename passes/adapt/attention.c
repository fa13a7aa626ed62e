/*
 * attention: with attention=eager, scaled-dot-product attention runs as the library writes it out. A causal one needs a float mask
 * then, made once, where the exported mask was made. Also removes the nodes that masks.c left dead.
 */
#include "../passes.h"

static bool
is_causal(const struct graph *g, uint32_t n)
{
	const struct arg *a = node_arg(g, n, "is_causal");

	return g->nodes[n].op == OP_SDPA && a && a->kind == ARG_BOOL && a->u.b;
}

/* Where the exported mask was finished. */
static uint32_t
mask_before(const struct graph *g, uint32_t n)
{
	while (n > 1)
		if ((g->nodes[--n].flags & (NF_DEAD | NF_MASK)) == (NF_DEAD | NF_MASK))
			return n;
	return 0;
}

/* The dead node becomes the one that makes the mask: it keeps its place in the program text. */
static uint32_t
make_mask(struct analysis *a, uint32_t n, uint32_t attention)
{
	struct graph *g = a->g;
	uint32_t q = node_arg(g, attention, "query")->u.val, at = g->narg, v = val_new(g, VAL_NODE, S("eager_mask"));
	const struct sint *dims = val_dims(g, q);
	struct sint shape[4] = {dims[0], SINT(1), dims[2], dims[2]};
	struct node *x = &g->nodes[n];

	ROOM(a->c->a, g->args, g->narg, g->arg_cap, 3);
	g->args[at] = (struct arg){.kind = ARG_INT, .u.i = dims[0]};
	g->args[at + 1] = (struct arg){.kind = ARG_INT, .u.i = dims[2]};
	g->args[at + 2] = (struct arg){.kind = ARG_DTYPE, .dtype = a->plan.param_dtype};
	g->narg += 3;
	x->op = OP_EAGER_MASK;
	x->flags = NF_ADDED;
	x->arg = at;
	x->narg = 3;
	x->nout = 1;
	x->out = ids_add(g, &v, 1);
	g->vals[v].node = n;
	g->vals[v].dtype = g->vals[q].dtype;
	val_shape(g, v, 4, shape);
	return v;
}

static void
write_out(struct analysis *a)
{
	struct graph *g = a->g;
	uint32_t mask = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t place;

		if (g->nodes[n].op != OP_SDPA || (g->nodes[n].flags & NF_DEAD))
			continue;
		place = !mask && is_causal(g, n) && g->vals[node_arg(g, n, "query")->u.val].rank == 4 ? mask_before(g, n) : 0;
		if (place)
			mask = make_mask(a, place, n);
		if (is_causal(g, n) && mask)
			*node_arg(g, n, "attn_mask") = arg_val(mask);
		g->nodes[n].op = OP_EAGER_ATTENTION;
	}
}

bool
pass_attention(struct analysis *a)
{
	if (a->r->v[RK_ATTENTION].i == ATT_EAGER)
		write_out(a);
	graph_compact(a->g);
	return true;
}
