/* Rows of eager.def that need code: normalisation, dropout, convolution, pooling. */
#include "eager.h"

#include <string.h>

/* ---- evidence ------------------------------------------------------------------------------------------------------------------- */

/* The exporter's own record of the operator, where the file has it. */
static struct str
recorded(const struct raiser *r)
{
	return graph_str(r->g, r->g->nodes[r->s.n].fx_target);
}

/* ---- normalisation ---------------------------------------------------------------------------------------------------------------- */

static bool
normalized_shape(struct raiser *r, uint32_t n, const char *arg)
{
	int64_t dim[MAX_RANK], axis = attr_int(&r->s, "axis");
	unsigned rank;

	if (!eager_size(r, operand_at(&r->s, 0), dim, &rank) || !wrap_axis(&axis, rank))
		return false;
	eager_ints(r, n, arg, dim + axis, rank - (uint32_t)axis);
	return true;
}

bool
eager_layer_norm(struct raiser *r)
{
	uint32_t n = eager_node(r, OP_LAYER_NORM, 1);

	if (!normalized_shape(r, n, "normalized_shape"))
		return false;
	eager_tensor(r, n, "input", operand_at(&r->s, 0));
	eager_tensor(r, n, "weight", operand_at(&r->s, 1));
	eager_tensor(r, n, "bias", operand_at(&r->s, 2));
	eager_arg(r, n, "eps", arg_float(attr_float(&r->s, "epsilon")));
	eager_results(r, n);
	return true;
}

/* One operand and numbers */
static uint32_t
unary(struct raiser *r, unsigned op, uint32_t x)
{
	uint32_t n = eager_node(r, op, 1);

	eager_arg(r, n, "self", arg_val(eager_reads(r, x)));
	return n;
}

static uint32_t
binary(struct raiser *r, unsigned op, uint32_t x, const char *name, struct arg y)
{
	uint32_t n = unary(r, op, x);

	if (y.kind == ARG_VAL)
		y.u.val = eager_reads(r, y.u.val);
	eager_arg(r, n, name, y);
	return n;
}

/* Libraries write it out, in fp32 whatever the model's dtype: x * rsqrt(mean(x^2) + eps), back to the dtype, times the weight. */
bool
eager_rms_norm(struct raiser *r)
{
	static const int64_t last = -1;
	uint32_t x = operand_at(&r->s, 0), w = operand_at(&r->s, 1), wide, n;
	unsigned dtype = r->g->vals[x].dtype;

	if (str_starts(recorded(r), S("aten.rms_norm"))) {
		n = eager_node(r, OP_RMS_NORM, 1);
		if (!normalized_shape(r, n, "normalized_shape"))
			return false;
		eager_tensor(r, n, "input", x);
		eager_tensor(r, n, "weight", w);
		eager_results(r, n);
		return true;
	}
	n = binary(r, OP_TO, x, "dtype", arg_dtype(DT_FP32));
	r->g->nodes[n].flags |= NF_UPCAST;
	wide = eager_out(r, n);
	n = binary(r, OP_POW, wide, "exponent", arg_int(2));
	n = unary(r, OP_MEAN, eager_out(r, n));
	eager_ints(r, n, "dim", &last, 1);
	eager_arg(r, n, "keepdim", arg_bool(true));
	n = binary(r, OP_ADD, eager_out(r, n), "other", arg_float(attr_float(&r->s, "epsilon")));
	n = unary(r, OP_RSQRT, eager_out(r, n));
	n = binary(r, OP_MUL, wide, "other", arg_val(eager_out(r, n)));
	n = binary(r, OP_TO, eager_out(r, n), "dtype", arg_dtype(dtype));
	r->g->nodes[n].flags |= dtype == DT_FP32 ? NF_DOWNCAST : 0;
	n = binary(r, OP_MUL, w, "other", arg_val(eager_out(r, n)));
	eager_results(r, n);
	return true;
}

static uint32_t
matched(const struct raiser *r, unsigned op)
{
	for (unsigned i = 0; i < r->m.nnode; i++)
		if (r->g->nodes[r->m.node[i]].op == op)
			return r->m.node[i];
	return 0;
}

bool
eager_rms_norm_decomposed(struct raiser *r)
{
	uint32_t x = r->m.var[0], w = r->m.var[3], sum = matched(r, OP_ONNX_ADD), n;
	uint32_t naxes = r->g->vals[r->m.var[1]].ndata;
	int64_t dim[MAX_RANK];
	unsigned rank;
	double eps = 0;

	if (!sum || !rms_norm_was_decomposed(r->g, sum) || !eager_size(r, x, dim, &rank) || !naxes || naxes > rank)
		return false;
	if (w && (r->g->vals[w].kind == VAL_NODE || r->g->vals[w].rank != naxes))
		return false;
	scalar_of(r->g, r->m.var[2], &eps);
	n = eager_node(r, OP_RMS_NORM, 1);
	eager_tensor(r, n, "input", x);
	eager_ints(r, n, "normalized_shape", dim + rank - naxes, naxes);
	eager_tensor(r, n, "weight", w);
	eager_arg(r, n, "eps", arg_float(eps));
	eager_results(r, n);
	return true;
}

bool
eager_batch_norm(struct raiser *r)
{
	static const char *const names[] = {"input", "weight", "bias", "running_mean", "running_var"};
	uint32_t n = eager_node(r, OP_BATCH_NORM, 1);
	struct str args = graph_str(r->g, r->g->nodes[r->s.n].fx_args);
	bool recorded_training = str_starts(recorded(r), S("aten._native_batch_norm_legit")) && memmem(args.p, args.n, ", True,", 7) != NULL;

	for (unsigned i = 0; i < 5; i++)
		eager_tensor(r, n, names[i], operand_at(&r->s, i));
	eager_arg(r, n, "training", arg_bool(attr_int(&r->s, "training_mode") != 0 || recorded_training));
	eager_arg(r, n, "momentum", arg_float(1 - attr_float(&r->s, "momentum")));
	eager_arg(r, n, "eps", arg_float(attr_float(&r->s, "epsilon")));
	eager_results(r, n);
	return true;
}

/* Without running statistics the older exporter computes those of the batch. Ones and zeros stand where there are no weights. */
bool
eager_batch_norm_of_rows(struct raiser *r)
{
	uint32_t n = eager_node(r, OP_BATCH_NORM, 1), w = operand_at(&r->s, 1), b = operand_at(&r->s, 2);
	bool weights = r->g->vals[w].kind != VAL_CONST || r->g->vals[b].kind != VAL_CONST;

	eager_tensor(r, n, "input", operand_at(&r->s, 0));
	eager_tensor(r, n, "weight", weights ? w : 0);
	eager_tensor(r, n, "bias", weights ? b : 0);
	eager_arg(r, n, "training", arg_bool(true));
	eager_arg(r, n, "eps", arg_float(attr_float(&r->s, "epsilon")));
	eager_results(r, n);
	return true;
}

/* A weight of [channels, 1, 1] is one of [channels] that the exporter gave dims. */
static uint32_t
of_channels(const struct raiser *r, uint32_t v)
{
	uint32_t n = maker_of(r->g, v);

	return n && (r->g->nodes[n].op == OP_ONNX_UNSQUEEZE || r->g->nodes[n].op == OP_RESHAPE) ? operand_of(r->g, n, 0) : v;
}

/* An instance norm without weights over rows of [N, groups, rest], then the weights of the channels. */
bool
eager_group_norm(struct raiser *r)
{
	uint32_t norm, n, x = r->m.var[0], rows;
	const struct val *s = &r->g->vals[r->m.var[1]];
	int64_t dim[MAX_RANK], groups;
	unsigned rank;

	norm = r->m.nnode > 3 ? r->m.node[3] : 0;
	rows = norm ? operand_of(r->g, norm, 0) : 0;
	if (!rows || s->ndata != 3 || !eager_size(r, rows, dim, &rank) || rank != 3)
		return false;
	groups = dim[1];
	n = eager_node(r, OP_GROUP_NORM, 1);
	eager_tensor(r, n, "input", x);
	eager_arg(r, n, "num_groups", arg_int(groups));
	eager_tensor(r, n, "weight", of_channels(r, r->m.var[5]));
	eager_tensor(r, n, "bias", of_channels(r, r->m.var[6]));
	eager_results(r, n);
	return true;
}

/* Ones and zeros stand where the module has no weights. */
bool
eager_instance_norm(struct raiser *r)
{
	uint32_t n;

	if (r->g->vals[r->m.var[1]].kind != VAL_CONST || r->g->vals[r->m.var[2]].kind != VAL_CONST)
		return false;
	n = eager_node(r, OP_INSTANCE_NORM, 1);
	eager_tensor(r, n, "input", r->m.var[0]);
	eager_arg(r, n, "use_input_stats", arg_bool(true));
	eager_arg(r, n, "momentum", arg_float(0.1));
	eager_arg(r, n, "eps", arg_float(attr_float(&r->s, "epsilon")));
	eager_results(r, n);
	return true;
}

/* Length 1 along all axes but one, then the lengths that train. */
static bool
normalise_weight(struct raiser *r, uint32_t v, uint32_t length, uint32_t along)
{
	const struct graph *g = r->g;
	int64_t axes[MAX_RANK], dim;
	uint32_t count, n;

	if (g->vals[v].kind != VAL_PARAM || g->vals[length].kind != VAL_PARAM || !known_numbers(&r->s, along, axes, MAX_RANK, &count) || count + 1 != g->vals[v].rank)
		return false;
	dim = count * (count + 1) / 2;
	for (uint32_t i = 0; i < count; i++) {
		if (!wrap_axis(&axes[i], g->vals[v].rank))
			return false;
		dim -= axes[i];
	}
	n = eager_node(r, OP_WEIGHT_NORM, 1);
	eager_tensor(r, n, "v", v);
	eager_tensor(r, n, "magnitude", length);
	eager_arg(r, n, "dim", arg_int(dim));
	eager_results(r, n);
	return true;
}

bool
eager_weight_norm(struct raiser *r)
{
	return normalise_weight(r, r->m.var[0], r->m.var[2], r->m.var[1]);
}

bool
eager_weight_norm_over_length(struct raiser *r)
{
	return normalise_weight(r, r->m.var[0], r->m.var[1], r->m.var[2]);
}

bool
eager_dropout(struct raiser *r)
{
	double ratio = 0.5, training = 0;
	uint32_t n;

	scalar_of(r->g, operand(&r->s, "ratio"), &ratio);
	scalar_of(r->g, operand(&r->s, "training_mode"), &training);
	n = eager_node(r, OP_DROPOUT, 1);
	eager_tensor(r, n, "input", operand_at(&r->s, 0));
	eager_arg(r, n, "p", arg_float(ratio));
	eager_arg(r, n, "train", arg_bool(training != 0 || str_starts(recorded(r), S("aten.native_dropout")) || str_starts(recorded(r), S("aten.dropout"))));
	eager_results(r, n);
	return true;
}

/* Both halves of one split, which an exporter did not size: a model's own split has sizes. */
bool
eager_glu(struct raiser *r)
{
	const struct graph *g = r->g;
	const struct val *a = &g->vals[r->m.var[0]], *b = &g->vals[r->m.var[1]];
	uint32_t split = a->kind == VAL_NODE && b->kind == VAL_NODE && a->node == b->node ? a->node : 0, n;

	if (!split || g->nodes[split].op != OP_ONNX_SPLIT || g->nodes[split].nout != 2 || a->out != 0 || b->out != 1 || r->uses[r->m.var[0]] != 1 || r->uses[r->m.var[1]] != 1)
		return false;
	if (recorded(r).n ? !str_starts(recorded(r), S("aten.glu")) : node_arg(g, split, "split")->kind != ARG_NONE)
		return false;
	n = eager_node(r, OP_GLU, 1);
	eager_tensor(r, n, "self", operand_of(g, split, 0));
	eager_arg(r, n, "dim", *node_arg(g, split, "axis"));
	eager_results(r, n);
	return true;
}

/* ---- linear layers ------------------------------------------------------------------------------------------------------------------- */

/* The part of a parameter that a split or slice of its first axis is. */
static bool
is_part(const struct graph *g, uint32_t v, unsigned rank)
{
	uint32_t n = v && g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0, x = n ? operand_of(g, n, 0) : 0;

	return n && (g->nodes[n].op == OP_ONNX_SPLIT || g->nodes[n].op == OP_ONNX_SLICE || g->nodes[n].op == OP_SPLIT) && g->vals[x].kind == VAL_PARAM && g->vals[x].rank == rank && g->vals[v].rank == rank;
}

/* F.linear with rows of a weight and their biases, as nn.MultiheadAttention projects what it does not project at once. */
bool
eager_linear_of_parts(struct raiser *r)
{
	uint32_t w = r->m.var[1], b = r->m.var[2], n;

	if (!is_part(r->g, w, 2) || !is_part(r->g, b, 1))
		return false;
	n = eager_node(r, OP_LINEAR, 1);
	eager_tensor(r, n, "input", r->m.var[0]);
	eager_tensor(r, n, "weight", w);
	eager_tensor(r, n, "bias", b);
	eager_results(r, n);
	return true;
}

/* "x @ self.weight.T + self.bias": no linear layer, as under autocast the sum is in the dtype of the bias. */
bool
eager_sum_with_parameter(struct raiser *r)
{
	uint32_t a = operand_at(&r->s, 0), b = operand_at(&r->s, 1), n;

	if (!str_starts(recorded(r), S("aten.add")))
		return false;
	n = eager_node(r, OP_ADD, 1);
	eager_tensor(r, n, "self", a);
	eager_tensor(r, n, "other", b);
	eager_results(r, n);
	return true;
}

/* ---- convolution ------------------------------------------------------------------------------------------------------------------------ */

struct window {                    /* of a convolution or pooling, one entry a spatial dim */
	unsigned n;
	int64_t kernel[MAX_RANK], stride[MAX_RANK], pad[2 * MAX_RANK], dilation[MAX_RANK];
	bool even;                 /* begins and ends are padded alike */
};

static void
fill(const struct raiser *r, const char *name, int64_t *out, unsigned n, int64_t dflt)
{
	if (attr_ints(&r->s, name, out, n) == (int)n)
		return;
	for (unsigned i = 0; i < n; i++)
		out[i] = dflt;
}

/* "SAME" pads as much as makes the result as large as the input over the stride. */
static void
pad_automatically(const struct raiser *r, struct window *w, const int64_t *in)
{
	struct str how = attr_str(&r->s, "auto_pad");

	if (!str_starts(how, S("SAME")))
		return;
	for (unsigned i = 0; i < w->n; i++) {
		int64_t out = (in[i] + w->stride[i] - 1) / w->stride[i], all = (out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - in[i];

		all = all > 0 ? all : 0;
		w->pad[i] = str_eq(how, S("SAME_UPPER")) ? all / 2 : all - all / 2;
		w->pad[i + w->n] = all - w->pad[i];
	}
}

static bool
window_of(const struct raiser *r, struct window *w)
{
	int64_t dim[MAX_RANK], weight[MAX_RANK];
	unsigned rank, wrank;

	*w = (struct window){.even = true};
	if (!eager_size(r, operand_at(&r->s, 0), dim, &rank) || rank < 3)
		return false;
	w->n = rank - 2;
	fill(r, "kernel_shape", w->kernel, w->n, 1);
	if (eager_size(r, operand_at(&r->s, 1), weight, &wrank) && wrank == rank)
		for (unsigned i = 0; i < w->n; i++)
			w->kernel[i] = weight[i + 2];
	fill(r, "strides", w->stride, w->n, 1);
	fill(r, "dilations", w->dilation, w->n, 1);
	fill(r, "pads", w->pad, 2 * w->n, 0);
	for (unsigned i = 0; i < w->n; i++)
		if (w->stride[i] < 1)
			return false;
	pad_automatically(r, w, dim + 2);
	for (unsigned i = 0; i < w->n; i++)
		w->even &= w->pad[i] == w->pad[i + w->n];
	return true;
}

/* Was it an operator of its own? Unequal padding is, and what the record of a convolution reads by that name while the file's node reads its operand. */
static bool
was_operator(struct raiser *r, const struct window *w, const char *op, uint32_t x)
{
	struct str read = eager_recorded(r, op, 0), own = graph_str(r->g, r->g->vals[x].name);
	bool any = !w->even;

	for (unsigned i = 0; i < 2 * w->n; i++)
		any |= w->pad[i] != 0 && (str_starts(read, S("%pad")) || str_starts(read, S("%constant_pad"))) && !str_eq(str_sub(read, 1, read.n), own);
	return any;
}

static bool
is_pad(const struct raiser *r, uint32_t n, uint32_t x, const int64_t *pad, unsigned count)
{
	const struct arg *made = n ? node_arg(r->g, n, "pad") : NULL;

	if (!made || operand_of(r->g, n, 0) != x || made->kind != ARG_INTS || made->count != count)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (r->g->ints[made->first + i].n != pad[i])
			return false;
	return true;
}

/* Several that read the same padded value were given the padding each. */
static uint32_t
padded(struct raiser *r, struct window *w, const char *op, uint32_t x)
{
	int64_t pad[2 * MAX_RANK];
	uint32_t n;

	if (!was_operator(r, w, op, x))
		return x;
	for (unsigned i = 0; i < w->n; i++) {
		pad[2 * (w->n - 1 - i)] = w->pad[i];
		pad[2 * (w->n - 1 - i) + 1] = w->pad[i + w->n];
		w->pad[i] = 0;
	}
	if (is_pad(r, r->pad, x, pad, 2 * w->n)) {
		r->behind[r->pad - r->nold] = r->s.n;  /* the last is raised first */
		r->g->nodes[r->pad].scope = r->g->nodes[r->s.n].scope;
		return eager_out(r, r->pad);
	}
	n = r->pad = eager_node(r, OP_PAD, 1);
	eager_tensor(r, n, "self", x);
	eager_ints(r, n, "pad", pad, 2 * w->n);
	return eager_out(r, n);
}

/* padding="same", which shows where kernels are even. */
static bool
keeps_size(const struct window *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		int64_t all = w->dilation[i] * (w->kernel[i] - 1);

		if (w->stride[i] != 1 || w->pad[i] != all / 2 || w->pad[i + w->n] != all - all / 2)
			return false;
	}
	return !w->even;
}

/* Exporters write zeros where the layer has no bias. */
static uint32_t
bias_of(const struct raiser *r)
{
	uint32_t b = operand_at(&r->s, 2);
	const struct val *x = &r->g->vals[b];

	return x->kind == VAL_NODE ? 0 : b;
}

bool
eager_conv(struct raiser *r)
{
	struct window w;
	uint32_t n, x = operand_at(&r->s, 0);
	bool same;

	if (!window_of(r, &w))
		return false;
	if (maker_of(r->g, x) && r->g->nodes[maker_of(r->g, x)].op == OP_ONNX_TRANSPOSE)
		x = eager_copied(r, "aten.conv", 0, x);        /* a dropout of nothing is called so as well, but not in this place */
	same = keeps_size(&w);
	x = same ? x : padded(r, &w, "aten.conv", x);
	n = eager_node(r, OP_CONV, 1);
	eager_tensor(r, n, "input", x);
	eager_tensor(r, n, "weight", operand_at(&r->s, 1));
	eager_tensor(r, n, "bias", bias_of(r));
	eager_ints(r, n, "stride", w.stride, w.n);
	if (same)
		eager_arg(r, n, "padding", (struct arg){.kind = ARG_STR, .u.str = graph_name(r->g, S("same"))});
	else
		eager_ints(r, n, "padding", w.pad, w.n);
	eager_ints(r, n, "dilation", w.dilation, w.n);
	eager_arg(r, n, "groups", arg_int(attr_int(&r->s, "group")));
	eager_results(r, n);
	return true;
}

bool
eager_conv_transpose(struct raiser *r)
{
	struct window w;
	uint32_t n;
	int64_t output[MAX_RANK];

	if (!window_of(r, &w) || !w.even)
		return false;
	fill(r, "output_padding", output, w.n, 0);
	n = eager_node(r, OP_CONV_TRANSPOSE, 1);
	eager_tensor(r, n, "input", operand_at(&r->s, 0));
	eager_tensor(r, n, "weight", operand_at(&r->s, 1));
	eager_tensor(r, n, "bias", bias_of(r));
	eager_ints(r, n, "stride", w.stride, w.n);
	eager_ints(r, n, "padding", w.pad, w.n);
	eager_ints(r, n, "output_padding", output, w.n);
	eager_arg(r, n, "groups", arg_int(attr_int(&r->s, "group")));
	eager_ints(r, n, "dilation", w.dilation, w.n);
	eager_results(r, n);
	return true;
}

/* ---- pooling, resizing --------------------------------------------------------------------------------------------------------------------- */

bool
eager_pool(struct raiser *r)
{
	bool max = r->g->nodes[r->s.n].op == OP_ONNX_MAX_POOL;
	struct window w;
	uint32_t n, x = operand_at(&r->s, 0);

	if (!window_of(r, &w))
		return false;
	x = padded(r, &w, "aten.", x);
	n = eager_node(r, max ? OP_MAX_POOL : OP_AVG_POOL, 1);
	eager_tensor(r, n, "self", x);
	eager_ints(r, n, "kernel_size", w.kernel, w.n);
	eager_ints(r, n, "stride", w.stride, w.n);
	eager_ints(r, n, "padding", w.pad, w.n);
	if (max)
		eager_ints(r, n, "dilation", w.dilation, w.n);
	eager_arg(r, n, "ceil_mode", arg_bool(attr_int(&r->s, "ceil_mode") != 0));
	eager_results(r, n);
	return true;
}

bool
eager_global_pool(struct raiser *r)
{
	static const int64_t one[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
	bool max = r->g->nodes[r->s.n].op == OP_ONNX_GLOBAL_MAX_POOL;
	unsigned rank = r->g->vals[operand_at(&r->s, 0)].rank;
	uint32_t n;

	if (rank < 3 || rank > MAX_RANK)
		return false;
	n = eager_node(r, max ? OP_ADAPTIVE_MAX : OP_ADAPTIVE_AVG_POOL, 1);
	eager_tensor(r, n, "self", operand_at(&r->s, 0));
	eager_ints(r, n, "output_size", one, rank - 2);
	eager_results(r, n);
	return true;
}

bool
eager_resize(struct raiser *r)
{
	int64_t dim[MAX_RANK];
	unsigned rank;
	uint32_t n;

	if (!eager_size(r, node_outs(r->g, r->s.n)[0], dim, &rank) || rank < 3)
		return false;
	n = eager_node(r, str_eq(attr_str(&r->s, "mode"), S("nearest")) ? OP_UPSAMPLE : OP_UPSAMPLE_LINEAR, 1);
	eager_tensor(r, n, "self", operand_at(&r->s, 0));
	eager_ints(r, n, "output_size", dim + 2, rank - 2);
	eager_results(r, n);
	return true;
}

bool
eager_einsum(struct raiser *r)
{
	const uint32_t *ids;
	uint32_t n, count = operands(&r->s, &ids), copy[16];

	if (!count || count > 16)
		return false;
	for (uint32_t i = 0; i < count; i++)
		copy[i] = ids[i];
	n = eager_node(r, OP_EINSUM, 1);
	eager_arg(r, n, "equation", *arg_of(&r->s, "equation"));
	eager_tensors(r, n, "tensors", copy, count);
	eager_results(r, n);
	return true;
}
