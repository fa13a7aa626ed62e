/*
 * fuse: the head and its cross entropy as one function that makes logits in pieces and their gradients at once (Liger's fused linear cross
 * entropy). Only where the loss reads a linear head alone: linear, perhaps to fp32, perhaps flattened, cross entropy.
 */
#include "../passes.h"

#include <string.h>

struct head {
	uint32_t loss, view, cast, linear;         /* nodes; view and cast may be 0 */
};

/* The node of a value that nobody else reads, but the caller. */
static uint32_t
maker(const struct graph *g, const uint32_t *uses, uint32_t v)
{
	uint32_t outside = 0;

	for (uint32_t i = 0; i < g->noutput; i++)
		outside += g->outputs[i] == v;
	return v && g->vals[v].kind == VAL_NODE && uses[v] == 1 + outside ? g->vals[v].node : 0;
}

static uint32_t
first_value(const struct graph *g, uint32_t n)
{
	return n && g->nodes[n].narg && node_args(g, n)->kind == ARG_VAL ? node_args(g, n)->u.val : 0;
}

static bool
flattens(unsigned op)
{
	return op == OP_VIEW || op == OP_RESHAPE || op == OP_FLATTEN || op == OP_UNSAFE_VIEW;
}

static bool
is_plain(const struct graph *g, uint32_t n, const char *name)
{
	const struct arg *x = node_arg(g, n, name);

	return !x || x->kind == ARG_NONE || (x->kind == ARG_FLOAT && x->u.f == 0);
}

static bool
find_head(const struct graph *g, const uint32_t *uses, struct head *h)
{
	uint32_t n;

	for (h->loss = g->nnode; --h->loss > 0 && g->nodes[h->loss].op != OP_CROSS_ENTROPY;)
		;
	if (!h->loss || !is_plain(g, h->loss, "weight") || !is_plain(g, h->loss, "label_smoothing") || g->vals[first_value(g, h->loss)].rank != 2)
		return false;
	n = maker(g, uses, first_value(g, h->loss));
	for (; n && (flattens(g->nodes[n].op) || g->nodes[n].op == OP_TO); n = maker(g, uses, first_value(g, n))) {
		uint32_t *place = g->nodes[n].op == OP_TO ? &h->cast : &h->view;

		if (*place)
			return false;
		*place = n;
	}
	h->linear = n;
	if (!n || g->nodes[n].op != OP_LINEAR || !is_plain(g, n, "bias") || (g->vals[node_outs(g, n)[0]].rank != 2 && !h->view))
		return false;
	return node_arg(g, n, "weight")->kind == ARG_VAL && g->vals[node_arg(g, n, "weight")->u.val].kind == VAL_PARAM;
}

/* The last hidden states are flattened as the logits were. */
static uint32_t
flat_states(struct graph *g, const struct head *h, uint32_t states)
{
	uint32_t v = h->view ? node_outs(g, h->view)[0] : states, rank = g->vals[states].rank;
	struct arg *size;
	struct sint dims[2];

	if (!h->view)
		return states;
	dims[0] = val_dims(g, v)[0];
	dims[1] = val_dims(g, states)[rank - 1];
	node_args(g, h->view)[0] = arg_val(states);
	size = node_arg(g, h->view, g->nodes[h->view].op == OP_RESHAPE ? "shape" : "size");
	if (size && g->nodes[h->view].op != OP_FLATTEN)
		*size = arg_ints(g, (const int64_t[]){dims[0].n, dims[1].n}, 2);
	g->vals[v].dtype = g->vals[states].dtype;
	val_shape(g, v, 2, dims);
	return v;
}

static void
fuse(struct analysis *a, const struct head *h)
{
	struct graph *g = a->g;
	uint32_t logits = node_outs(g, h->linear)[0], kept = 0;
	struct arg args[3] = {{0}, *node_arg(g, h->linear, "weight"), *node_arg(g, h->loss, "target")};

	args[0] = arg_val(flat_states(g, h, first_value(g, h->linear)));
	a->plan.logits = args[0].u.val;
	memcpy(node_args(g, h->loss), args, sizeof args);
	g->nodes[h->loss].op = OP_FUSED_LINEAR_CROSS_ENTROPY;
	g->nodes[h->loss].narg = 3;
	g->nodes[h->linear].flags |= NF_DEAD;
	if (h->cast)
		g->nodes[h->cast].flags |= NF_DEAD;
	for (uint32_t i = 0; i < g->noutput; i++)
		if (g->outputs[i] != logits && (!h->cast || g->outputs[i] != node_outs(g, h->cast)[0]))
			g->outputs[kept++] = g->outputs[i];
	g->noutput = kept;
	graph_compact(g);
}

bool
pass_fuse(struct analysis *a)
{
	struct graph *g = a->g;
	uint32_t *uses = NEW(a->c->a, uint32_t, g->nval);
	struct head h = {0};

	if (!a->r->v[RK_FUSED_LOSS].i)
		return true;
	if (a->r->v[RK_PARALLEL_TP].i > 1)
		return diag(a->c, DIAG_NOT_MODELLED, "parallel.tp", SFMT(str_fmt(a->c->a, "%.*s together with fused_loss", SFMT(a->r->v[RK_PARALLEL_TP].text))));
	uses_count(g, uses);
	if (!find_head(g, uses, &h) || g->nodes[h.loss].narg < 3)
		return diag(a->c, DIAG_RECIPE_CONFLICT, "fused_loss = true, but there is no cross entropy of a linear layer without bias that nothing else reads");
	fuse(a, &h);
	assume(a, "fused_loss: logits and their gradients are made in pieces, and the model returns none; by Liger-Kernel's source, not a run of it");
	return true;
}
