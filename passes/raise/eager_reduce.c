/* Rows of eager.def that need code: reductions and what is counted or drawn. */
#include "eager.h"

static uint32_t
matched(const struct raiser *r, unsigned op)
{
	for (unsigned i = r->m.nnode; i-- > 0;)
		if (r->g->nodes[r->m.node[i]].op == op)
			return r->m.node[i];
	return 0;
}

/* Not a mean and a difference of the model's own. */
static bool
is_exporters(const struct raiser *r, uint32_t n)
{
	struct str target = graph_str(r->g, r->g->nodes[n].fx_target);

	return !target.n || str_starts(target, S("prims.var")) || str_starts(target, S("aten.var")) || str_starts(target, S("aten.std"));
}

/* The mean square of what is left without the mean, which nothing else reads: of n elements, or of one less. */
static bool
variance(struct raiser *r, unsigned op)
{
	const struct val axes = r->g->vals[r->m.var[2]];
	uint32_t x = r->m.var[0], out = node_outs(r->g, r->s.n)[0], n;

	if (!is_exporters(r, matched(r, OP_ONNX_REDUCE_MEAN)))
		return false;
	n = eager_node(r, op, 1);
	eager_tensor(r, n, "self", x);
	eager_arg(r, n, "dim", (struct arg){.kind = ARG_INTS, .first = ints_add(r->g, r->g->ints + axes.data_at, axes.ndata), .count = axes.ndata});
	eager_arg(r, n, "unbiased", arg_bool(matched(r, OP_ONNX_DIV) != 0));
	eager_arg(r, n, "keepdim", arg_bool(r->g->vals[out].rank == r->g->vals[x].rank));
	eager_results(r, n);
	return true;
}

bool
eager_var(struct raiser *r)
{
	return variance(r, OP_VAR);
}

bool
eager_std(struct raiser *r)
{
	return variance(r, OP_STD);
}

/* PyTorch adds up a mask as it is. */
bool
eager_count(struct raiser *r)
{
	const struct val axes = r->g->vals[r->m.var[1]];
	uint32_t n;

	if (r->g->vals[r->m.var[0]].dtype != DT_BOOL || r->g->vals[node_outs(r->g, r->s.n)[0]].dtype != DT_INT64)
		return false;
	n = eager_node(r, OP_SUM, 1);
	eager_tensor(r, n, "self", r->m.var[0]);
	if (r->m.var[1])
		eager_arg(r, n, "dim", (struct arg){.kind = ARG_INTS, .first = ints_add(r->g, r->g->ints + axes.data_at, axes.ndata), .count = axes.ndata});
	eager_arg(r, n, "keepdim", arg_bool(attr_int(&r->s, "keepdims") != 0));
	eager_results(r, n);
	return true;
}

/* Compared with all classes in turn. */
bool
eager_one_hot_of_classes(struct raiser *r)
{
	const struct val classes = r->g->vals[r->m.var[2]];
	uint32_t n, out = node_outs(r->g, r->s.n)[0];
	int64_t dim[MAX_RANK];
	unsigned rank;

	if (classes.kind != VAL_CONST || classes.rank != 1 || classes.dtype != DT_INT64 || r->g->vals[out].dtype != DT_INT64 || !eager_size(r, out, dim, &rank) || !rank)
		return false;
	n = eager_node(r, OP_ONE_HOT, 1);
	eager_tensor(r, n, "self", r->m.var[0]);
	eager_arg(r, n, "num_classes", arg_int(dim[rank - 1]));
	eager_results(r, n);
	return true;
}

/* Whole channels: one number for each. */
bool
eager_feature_dropout(struct raiser *r)
{
	uint32_t draw = matched(r, OP_ONNX_RANDOM_UNIFORM_LIKE), n;
	int64_t dim[MAX_RANK];
	unsigned rank;
	double keep = 1;

	if (!draw || !eager_size(r, node_outs(r->g, draw)[0], dim, &rank) || rank < 3 || !scalar_of(r->g, r->m.var[2], &keep))
		return false;
	for (unsigned i = 2; i < rank; i++)
		if (dim[i] != 1)
			return false;
	n = eager_node(r, OP_FEATURE_DROPOUT, 1);
	eager_tensor(r, n, "input", r->m.var[0]);
	eager_arg(r, n, "p", arg_float(1 - keep));
	eager_arg(r, n, "train", arg_bool(true));
	eager_results(r, n);
	return true;
}
