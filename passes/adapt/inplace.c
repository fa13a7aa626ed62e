/*
 * inplace: activations behind convolutions and their norms run in place in many networks (inplace=True). ONNX has no such operators: the exporters write
 * both kinds alike, so the report says that these results are counted as tensors of their own, which is never too little.
 */
#include "../passes.h"

static bool
may_run_in_place(unsigned op)
{
	switch (op) {
	case OP_RELU:
	case OP_RELU6:
	case OP_LEAKY_RELU:
	case OP_ELU:
	case OP_SELU:
	case OP_CELU:
	case OP_SILU:
	case OP_MISH:
	case OP_HARDTANH:
	case OP_HARDSWISH:
	case OP_HARDSIGMOID:
	case OP_THRESHOLD:
		return true;
	default:
		return false;
	}
}

static bool
is_of_channels(unsigned op)
{
	return op == OP_CONV || op == OP_CONVOLUTION || op == OP_BATCH_NORM || op == OP_INSTANCE_NORM || op == OP_GROUP_NORM;
}

bool
pass_inplace(struct analysis *a)
{
	const struct graph *g = a->g;
	uint32_t *uses;
	unsigned count = 0;

	if (!str_eq(g->format, S("onnx")))
		return true;
	uses = NEW(a->c->a, uint32_t, g->nval);
	uses_count(g, uses);
	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct arg *x = node_args(g, n);

		if (may_run_in_place(g->nodes[n].op) && g->nodes[n].narg && x->kind == ARG_VAL && g->vals[x->u.val].kind == VAL_NODE)
			count += uses[x->u.val] == 1 && is_of_channels(g->nodes[g->vals[x->u.val].node].op);
	}
	if (count)
		assume(a, "activations behind convolutions and norms have results of their own; in place, which ONNX does not show, they take less (%u)", count);
	return true;
}
