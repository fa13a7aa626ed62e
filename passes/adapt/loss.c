/*
 * loss: where backward starts. A graph that returns a floating-point scalar has its loss; otherwise one is appended, with labels as
 * one more batch tensor, as the library (causal-lm) or a plain training loop (the others) would do it.
 */
#include "../passes.h"

static bool
is_scalar(const struct graph *g, uint32_t v)
{
	return v && g->vals[v].rank == 0 && dtype_is_float(g->vals[v].dtype);
}

static uint32_t
find_scalar(const struct graph *g)
{
	for (uint32_t i = 0; i < g->noutput; i++)
		if (is_scalar(g, g->outputs[i]))
			return g->outputs[i];
	return 0;
}

static uint32_t
find_logits(const struct graph *g)
{
	for (uint32_t i = 0; i < g->noutput; i++) {
		uint32_t v = g->outputs[i];

		if (v && dtype_is_float(g->vals[v].dtype) && g->vals[v].rank != RANK_UNKNOWN && g->vals[v].rank > 0)
			return v;
	}
	return 0;
}

static bool
takes_tokens(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].op == OP_EMBEDDING)
			return true;
	return false;
}

/* What is made to look like an input is compared with it: images, noise, spectrograms. */
static bool
is_like_an_input(const struct graph *g, uint32_t out)
{
	for (uint32_t i = 0; i < g->ninput; i++) {
		uint32_t v = g->inputs[i];
		bool same = dtype_is_float(g->vals[v].dtype) && g->vals[v].rank == g->vals[out].rank;

		for (unsigned k = 0; same && k < g->vals[out].rank; k++)
			same = val_dims(g, v)[k].n == val_dims(g, out)[k].n && val_dims(g, v)[k].expr == val_dims(g, out)[k].expr;
		if (same)
			return true;
	}
	return false;
}

static bool
has_input(const struct graph *g, struct str name)
{
	for (uint32_t i = 0; i < g->ninput; i++)
		if (str_eq(graph_str(g, g->vals[g->inputs[i]].name), name))
			return true;
	return false;
}

/* Predictions of every token of a text: the next one's, unless the model sees it. */
static enum loss_kind
choose_for_tokens(const struct analysis *a, const char **why)
{
	if (has_input(a->g, S("decoder_input_ids"))) {
		*why = "the decoder has inputs of its own, which are the labels moved by one";
		return LOSS_CROSS_ENTROPY;
	}
	if (a->plan.reads_both_ways) {
		*why = "attention is not causal, labels stand where their tokens are masked";
		return LOSS_CROSS_ENTROPY;
	}
	*why = "every token predicts the next";
	return LOSS_CAUSAL_LM;
}

static enum loss_kind
choose(struct analysis *a, uint32_t out)
{
	const struct graph *g = a->g;
	enum loss_kind kind = LOSS_CROSS_ENTROPY;
	const char *why = "the last dim is classes";
	const struct sint *last = val_dims(g, out) + g->vals[out].rank - 1;

	if (!last->expr && last->n == 1) {
		kind = LOSS_MSE;
		why = "one number is no choice among classes";
	} else if (g->vals[out].rank == 3 && takes_tokens(g)) {
		kind = choose_for_tokens(a, &why);
	} else if (is_like_an_input(g, out)) {
		kind = LOSS_MSE;
		why = "the output is as large as an input";
	}
	assume(a, "the graph has no scalar loss: %.*s appended (loss=auto): %s", SFMT(choice_text(RK_LOSS, kind)), why);
	return kind;
}

static uint8_t
modality_of(const struct graph *g, uint32_t v)
{
	return g->vals[v].kind == VAL_NODE ? g->nodes[g->vals[v].node].modality : g->vals[v].modality;
}

/* ---- appending ---------------------------------------------------------------------------------------------- */

static uint32_t
append(struct analysis *a, unsigned op, const struct arg *args, unsigned n, unsigned dtype, unsigned rank, const struct sint *dims)
{
	struct graph *g = a->g;
	uint32_t x = node_new(g, op, op_narg(op), 1), v = val_new(g, VAL_NODE, str_fmt(a->c->a, "loss_%s_%u", op_info(op)->name, (unsigned)x));

	for (unsigned i = 0; i < n; i++)
		node_args(g, x)[i] = args[i];
	g->nodes[x].flags = NF_ADDED | NF_LOSS;
	g->nodes[x].modality = modality_of(g, a->plan.logits);
	g->nodes[x].name = g->vals[v].name;
	g->nodes[x].target = graph_name(g, str_of(op_info(op)->name));
	g->vals[v].node = x;
	g->vals[v].dtype = (uint8_t)dtype;
	val_shape(g, v, rank, dims);
	node_outs(g, x)[0] = v;
	return v;
}
#define APPEND(op, dtype, rank, dims, ...) \
	append(a, op, (const struct arg[]){__VA_ARGS__}, (unsigned)(sizeof((const struct arg[]){__VA_ARGS__}) / sizeof(struct arg)), dtype, rank, dims)

static uint32_t
add_labels(struct analysis *a, unsigned dtype, unsigned rank, const struct sint *dims)
{
	uint32_t v = val_new(a->g, VAL_INPUT, S("labels"));

	a->g->vals[v].dtype = (uint8_t)dtype;
	a->g->vals[v].flags = VF_LABELS;
	a->g->vals[v].modality = modality_of(a->g, a->plan.logits);
	val_shape(a->g, v, rank, dims);
	graph_input(a->g, v);
	return v;
}

static struct arg
no_arg(void)
{
	return (struct arg){.kind = ARG_NONE};
}

/* logits.float(); labels padded by one and shifted; cross entropy over all positions (transformers' ForCausalLMLoss). */
static uint32_t
causal_lm(struct analysis *a, uint32_t logits)
{
	struct graph *g = a->g;
	struct sint d[3], flat[2], one[1];
	const int64_t pad[2] = {0, 1};
	uint32_t labels, x, y;

	for (unsigned i = 0; i < 3; i++)
		d[i] = val_dims(g, logits)[i];
	flat[0] = one[0] = SINT(d[0].n * d[1].n);
	flat[1] = d[2];
	labels = add_labels(a, DT_INT64, 2, d);
	x = APPEND(OP_TO, DT_FP32, 3, d, arg_val(logits), arg_dtype(DT_FP32));
	d[1].n++;
	y = APPEND(OP_PAD, DT_INT64, 2, d, arg_val(labels), arg_ints(g, pad, 2));
	d[1].n--;
	y = APPEND(OP_SLICE, DT_INT64, 2, d, arg_val(y), arg_int(1), arg_int(1), arg_int(INT64_MAX));
	y = APPEND(OP_CONTIGUOUS, DT_INT64, 2, d, arg_val(y));
	x = APPEND(OP_FLATTEN, DT_FP32, 2, flat, arg_val(x), arg_int(0), arg_int(-2));
	y = APPEND(OP_FLATTEN, DT_INT64, 1, one, arg_val(y));
	return APPEND(OP_CROSS_ENTROPY, DT_FP32, 0, d, arg_val(x), arg_val(y));
}

/* F.cross_entropy(logits.flatten(0, -2), labels.flatten()): unless it is kept, the model's result is an unnamed value of the loop. */
static uint32_t
cross_entropy(struct analysis *a, uint32_t logits)
{
	struct graph *g = a->g;
	unsigned rank = g->vals[logits].rank, dt = g->vals[logits].dtype;
	struct sint d[MAX_RANK], flat[2], one[1];
	uint32_t labels, x = logits, y;

	flat[0] = SINT(1);
	for (unsigned i = 0; i < rank; i++) {
		d[i] = val_dims(g, logits)[i];
		if (i + 1 < rank)
			flat[0].n = geom_times(flat[0].n, d[i].n);
	}
	flat[1] = d[rank - 1];
	one[0] = flat[0];
	labels = add_labels(a, DT_INT64, rank - 1, d);
	if (rank > 2)
		x = APPEND(OP_FLATTEN, dt, 2, flat, arg_val(x), arg_int(0), arg_int(-2));
	y = APPEND(OP_FLATTEN, DT_INT64, 1, one, arg_val(labels));
	if (!a->r->v[RK_KEEP_OUTPUTS].i)
		g->noutput = 0;
	return APPEND(OP_CROSS_ENTROPY, dt, 0, d, arg_val(x), arg_val(y));
}

static uint32_t
mean_square(struct analysis *a, uint32_t out)
{
	struct graph *g = a->g;
	struct sint d[MAX_RANK];
	uint32_t target;

	for (unsigned i = 0; i < g->vals[out].rank; i++)
		d[i] = val_dims(g, out)[i];
	target = add_labels(a, g->vals[out].dtype, g->vals[out].rank, d);
	return APPEND(OP_MSE_LOSS, g->vals[out].dtype, 0, d, arg_val(out), arg_val(target));
}

static uint32_t
make(struct analysis *a, enum loss_kind kind, uint32_t out)
{
	struct sint none = SINT(0);

	if (kind == LOSS_CAUSAL_LM)
		return causal_lm(a, out);
	if (kind == LOSS_MSE)
		return mean_square(a, out);
	if (kind == LOSS_SUM)
		return APPEND(OP_SUM, a->g->vals[out].dtype, 0, &none, arg_val(out), no_arg());
	return cross_entropy(a, out);
}

/* The value that an in-graph loss reads: the logits of the last cross entropy, else what feeds the scalar. */
static uint32_t
logits_of(const struct graph *g, uint32_t loss)
{
	for (uint32_t n = g->nnode; n-- > 1;)
		if (g->nodes[n].op == OP_CROSS_ENTROPY && node_args(g, n)->kind == ARG_VAL)
			return node_args(g, n)->u.val;
	return loss;
}

bool
pass_loss(struct analysis *a)
{
	struct graph *g = a->g;
	enum loss_kind kind = (enum loss_kind)a->r->v[RK_LOSS].i;
	uint32_t scalar = find_scalar(g), out = find_logits(g);

	a->plan.loss = scalar;
	a->plan.logits = scalar ? logits_of(g, scalar) : out;
	if (scalar || !out)
		return true;
	if (kind == LOSS_IN_GRAPH)
		return diag(a->c, DIAG_RECIPE_CONFLICT, "loss = in-graph, but the graph returns no floating-point scalar");
	if (kind == LOSS_CAUSAL_LM && g->vals[out].rank != 3)
		return diag(a->c, DIAG_RECIPE_CONFLICT, "loss = causal-lm, but the first floating-point output is not [batch, seq, vocabulary]");
	if (kind == LOSS_AUTO)
		kind = choose(a, out);
	a->plan.loss_in_model = kind == LOSS_CAUSAL_LM;
	a->plan.loss = make(a, kind, out);
	graph_output(g, a->plan.loss);
	return true;
}
