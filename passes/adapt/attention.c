/*
 * attention: with attention=eager, scaled-dot-product attention runs as the library writes it out. A causal one needs a float mask
 * then, made once, where the exported mask was made. Also removes the nodes that masks.c left dead.
 *
 * "y.transpose(1, 2).contiguous().view(..)": where the exporter's own kernel left y so that contiguous() did nothing, the file has no contiguous().
 * The kernel of another backend leaves y otherwise, and the program copies: a view of what attention made is a reshape.
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

static bool
moves_dims(unsigned op)
{
	return op == OP_TRANSPOSE || op == OP_PERMUTE || op == OP_RESHAPE || op == OP_UNSQUEEZE || op == OP_SQUEEZE;
}

#define MOST_MOVES 4u

static bool
is_of_attention(const struct graph *g, uint32_t n)
{
	const struct arg *x = node_args(g, n);

	for (unsigned depth = 0; x->kind == ARG_VAL && g->vals[x->u.val].kind == VAL_NODE && depth < MOST_MOVES; depth++) {
		uint32_t m = g->vals[x->u.val].node;

		if (g->nodes[m].op == OP_SDPA || g->nodes[m].op == OP_EAGER_ATTENTION)
			return true;
		if (!moves_dims(g->nodes[m].op))
			return false;
		x = node_args(g, m);
	}
	return false;
}

static void
copy_where_needed(struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].op == OP_VIEW && is_of_attention(g, n))
			g->nodes[n].op = OP_RESHAPE;
}

bool
pass_attention(struct analysis *a)
{
	if (a->r->v[RK_ATTENTION].i == ATT_EAGER)
		write_out(a);
	copy_where_needed(a->g);
	graph_compact(a->g);
	return true;
}
