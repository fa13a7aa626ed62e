/*
 * DoRA, as PEFT's DoraLinearLayer computes it in every forward; on convolutions and embeddings with the differences that the functions say:
 *
 *     lora_weight = lora_B(lora_A(eye)).T.to(x.dtype)
 *     weight = base.weight.to(x.dtype)
 *     norm = linalg.norm(weight + scaling * lora_weight.detach(), dim=1)
 *     scale = (magnitude / norm).view(1, -1)
 *     lora_result = lora_B(lora_A(x))
 *     base_result = base_result - bias; with dropout: linear(x, weight) instead
 *     (scale - 1) * base_result + scale * lora_result * scaling
 */
#include "lora.h"

struct dora {
	struct lora *l;
	const struct base *b;
	uint32_t x, down, up;
};

static void
enter_scope(struct lora *l, uint32_t scope, const char *call)
{
	unsigned depth = 0;

	while (l->outer[depth])
		depth++;
	l->outer[depth] = call;
	l->scope = scope;
}

/* A function that holds its locals: a call like a module's, without a module. */
static void
enter_function(struct lora *l, const char *name, const char *call)
{
	enter_scope(l, scope_add(l->g, l->scope, scope_path(l->g, l->scope), str_of(name), 0), call);
}

static void
leave_scope(struct lora *l)
{
	unsigned depth = 0;

	while (l->outer[depth + 1])
		depth++;
	l->outer[depth] = NULL;
	l->scope = l->g->scopes[l->scope].parent;
}

/* One operator under a statement of the layer's forward; b = 0: one operand. */
static uint32_t
apply(struct dora *d, unsigned op, uint32_t line, const char *text, uint32_t a, struct arg b)
{
	struct arg args[2] = {arg_val(a), b};
	uint32_t t = lora_unranked(d->l, d->b, "dora");

	lora_node(d->l, op, args, b.kind == ARG_NONE ? 1 : 2, t, d->l->scope, line, text);
	return t;
}

static uint32_t
apply_linear(struct dora *d, const char *module, uint32_t line, const char *text, uint32_t x, uint32_t w)
{
	struct arg args[2] = {arg_val(x), arg_val(w)};
	uint32_t t = lora_unranked(d->l, d->b, module);

	lora_node(d->l, OP_LINEAR, args, 2, t, lora_scope(d->l, module, "torch.nn.modules.linear.Linear"), line, text);
	return t;
}

/* The product of the adapters, by their own forward on an identity matrix. */
static uint32_t
lora_weight(struct dora *d)
{
	static const char back[] = "lora_weight = lora_B(lora_A(x_eye)).T";
	struct lora *l = d->l;
	uint32_t t = lora_unranked(l, d->b, "eye");
	struct arg args[3] = {{.kind = ARG_INT, .u.i = val_dims(l->g, d->down)[1]}, {.kind = ARG_NONE}, arg_dtype(l->dtype)};
	struct arg none = {.kind = ARG_NONE}, like = {.kind = ARG_DTYPE_OF, .u.val = d->x};

	enter_function(l, "get_lora_weight", "lora_weight = self.get_lora_weight(lora_A, lora_B)");
	lora_node(l, OP_EYE, args, 3, t, l->scope, 1, "x_eye = torch.eye(lora_A.weight.shape[1])");
	t = apply_linear(d, "lora_A", 2, back, t, d->down);
	t = apply_linear(d, "lora_B", 2, back, t, d->up);
	t = apply(d, OP_T, 2, back, t, none);
	leave_scope(l);
	return apply(d, OP_TO, 3, "lora_weight = lora_weight.to(x.dtype)", t, like);
}

#define NORM "weight_norm = self.get_weight_norm(weight, lora_weight.detach(), scaling)"

/* Over all dims but the first: a Linear's norms are a vector, those of a convolution keep its dims. */
static uint32_t
weight_norm(struct dora *d, uint32_t weight, uint32_t added, unsigned rank)
{
	static const int64_t dims[MAX_RANK] = {1, 2, 3, 4, 5, 6, 7};
	uint32_t t = apply(d, OP_DETACH, 4, NORM, added, (struct arg){.kind = ARG_NONE});
	struct arg args[4];

	t = apply(d, OP_MUL, 4, NORM, t, arg_float(2));
	t = apply(d, OP_ADD, 4, NORM, weight, arg_val(t));
	args[0] = arg_val(t);
	args[1] = arg_int(2);
	args[2] = arg_ints(d->l->g, dims, rank - 1);
	args[3] = arg_bool(rank > 2);
	t = lora_unranked(d->l, d->b, "dora");
	lora_node(d->l, OP_VECTOR_NORM, args, 4, t, d->l->scope, 4, NORM);
	return t;
}

static uint32_t
base_result(struct dora *d, uint32_t weight)
{
	if (d->l->dropout)
		return apply_linear(d, "base_layer", 7, "base_result = F.linear(x, weight)", d->x, weight);
	return d->b->bias ? apply(d, OP_SUB, 7, "base_result = base_result - bias", d->b->out, arg_val(d->b->bias)) : d->b->out;
}

#define RESULT "result_dora = (mag_norm_scale - 1) * base_result + mag_norm_scale * lora_result * scaling"

static uint32_t
scaled_base(struct dora *d, uint32_t scale, uint32_t base)
{
	return apply(d, OP_MUL, 8, RESULT, apply(d, OP_SUB, 8, RESULT, scale, arg_int(1)), arg_val(base));
}

static uint32_t
scaled_lora(struct dora *d, uint32_t scale, uint32_t lora)
{
	return apply(d, OP_MUL, 8, RESULT, apply(d, OP_MUL, 8, RESULT, scale, arg_val(lora)), arg_float(2));
}

#define CALL "result = result + module.lora_magnitude_vector[active_adapter](x, base_result=base_result)"

void
lora_variant(struct lora *l)
{
	enter_function(l, "forward", "result = self.lora_variant[active_adapter].forward(self, active_adapter, x, result)");
}

static struct dora
enter(struct lora *l, const struct base *b, const char *call, const char *cls)
{
	enter_scope(l, lora_scope(l, "lora_magnitude_vector", cls), call);
	return (struct dora){.l = l, .b = b};
}

/* Back in the variant, which adds the base's result to DoRA's, and in PEFT's layer. */
static void
leave(struct dora *d, uint32_t base, uint32_t added, const char *text)
{
	uint32_t t = apply(d, OP_ADD, 2, text, base, arg_val(added));

	leave_scope(d->l);
	lora_result(d->l, d->b, t);
}

void
lora_dora(struct lora *l, const struct base *b, uint32_t x, uint32_t down, uint32_t up)
{
	uint32_t magnitude = lora_parameter(l, "lora_magnitude_vector.default.weight", 1, val_dims(l->g, b->weight) + b->turned), weight, t, lora;
	const int64_t row[2] = {1, -1};
	struct arg like = {.kind = ARG_DTYPE_OF, .u.val = x};
	struct dora d = enter(l, b, CALL, "peft.tuners.lora.dora.DoraLinearLayer");

	d.x = x;
	d.down = down;
	d.up = up;
	lora = lora_weight(&d);
	weight = apply(&d, OP_TO, 3, "weight = weight.to(x.dtype)", b->weight, like);
	if (b->turned)
		weight = apply(&d, OP_T, 4, NORM, weight, (struct arg){.kind = ARG_NONE});
	t = weight_norm(&d, weight, lora, 2);
	t = apply(&d, OP_DIV, 5, "mag_norm_scale = (magnitude / weight_norm).view(1, -1)", magnitude, arg_val(t));
	t = apply(&d, OP_VIEW, 5, "mag_norm_scale = (magnitude / weight_norm).view(1, -1)", t, arg_ints(l->g, row, 2));
	lora = apply_linear(&d, "lora_A", 6, "lora_result = lora_B(lora_A(x))", x, down);
	lora = apply_linear(&d, "lora_B", 6, "lora_result = lora_B(lora_A(x))", lora, up);
	weight = base_result(&d, weight);
	weight = scaled_base(&d, t, weight);
	t = scaled_lora(&d, t, lora);
	t = apply(&d, OP_ADD, 8, RESULT, weight, arg_val(t));
	leave_scope(l);
	leave(&d, b->out, t, CALL);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------------- */

/* lora_B's rows by lora_A's columns, as matrices. */
static uint32_t
kernel_of(struct dora *d)
{
	static const char make[] = "lora_weight = self.get_lora_weight(lora_A, lora_B).reshape(weight.shape)";
	struct graph *g = d->l->g;
	const int64_t rows[2] = {-1, d->l->rank}, columns[2] = {d->l->rank, -1};
	unsigned rank = g->vals[d->b->weight].rank;
	uint32_t a, b = apply(d, OP_VIEW, 1, make, d->up, arg_ints(g, rows, 2));
	int64_t dims[MAX_RANK];

	for (unsigned i = 0; i < rank; i++)
		dims[i] = val_dims(g, d->b->weight)[i].n;
	a = apply(d, OP_VIEW, 1, make, d->down, arg_ints(g, columns, 2));
	return apply(d, OP_RESHAPE, 1, make, apply(d, OP_MM, 1, make, b, arg_val(a)), arg_ints(g, dims, rank));
}

/* [n, 1, ..] to [1, n, ..], as the channels of the result stand. */
static uint32_t
turned(struct dora *d, uint32_t norm)
{
	struct arg args[3] = {arg_val(norm), arg_int(1), arg_int(0)};
	uint32_t t = lora_unranked(d->l, d->b, "dora");

	lora_node(d->l, OP_TRANSPOSE, args, 3, t, d->l->scope, 4, NORM);
	return t;
}

static uint32_t
convolved_base(struct dora *d)
{
	const struct base *b = d->b;
	const struct arg args[7] = {arg_val(d->x), arg_val(b->weight), {.kind = ARG_NONE}, b->stride, b->padding, b->dilation, b->groups};
	int64_t dims[MAX_RANK] = {1, -1, 1, 1, 1, 1, 1, 1};
	uint32_t t;

	if (d->l->dropout) {
		t = lora_value(d->l, b->result, "dora");
		lora_node(d->l, OP_CONV, args, 7, t, d->l->scope, 7, "base_result = self.conv_fn(x, weight)");
		return t;
	}
	if (!b->bias)
		return b->out;
	t = apply(d, OP_VIEW, 7, "base_result = base_result - bias.view(*bias_shape)", b->bias, arg_ints(d->l->g, dims, d->l->g->vals[b->weight].rank));
	return apply(d, OP_SUB, 7, "base_result = base_result - bias.view(*bias_shape)", b->out, arg_val(t));
}

/* The adapters run inside the last statement, when the base's part of it is there. */
void
lora_dora_convolution(struct lora *l, const struct base *b, uint32_t x, uint32_t down, uint32_t up)
{
	unsigned rank = l->g->vals[b->weight].rank;
	struct sint dims[MAX_RANK] = {SINT(1), val_dims(l->g, b->weight)[0], SINT(1), SINT(1), SINT(1), SINT(1), SINT(1), SINT(1)};
	uint32_t magnitude = lora_parameter(l, "lora_magnitude_vector.default.weight", rank, dims), scale, base, t;
	struct dora d = enter(l, b, CALL, "peft.tuners.lora.dora.DoraConv2dLayer");

	d.x = x;
	d.down = down;
	d.up = up;
	t = turned(&d, weight_norm(&d, b->weight, kernel_of(&d), rank));
	scale = apply(&d, OP_DIV, 5, "mag_norm_scale = magnitude / weight_norm", magnitude, arg_val(t));
	base = convolved_base(&d);
	base = scaled_base(&d, scale, base);
	t = scaled_lora(&d, scale, lora_convolve(l, b, x, down, up, 8, RESULT));
	t = apply(&d, OP_ADD, 8, RESULT, base, arg_val(t));
	leave_scope(l);
	leave(&d, b->out, t, CALL);
}

/* ---- embeddings --------------------------------------------------------------------------------------------------------- */

/* Here the whole result is scaled, and what is added is the adapters' alone. */
void
lora_dora_embedding(struct lora *l, const struct base *b, uint32_t down, uint32_t up)
{
	static const char call[] = "mag_norm_scale, dora_result = module.lora_magnitude_vector[active_adapter](x)";
	static const char make[] = "lora_weight = self.get_lora_weight(lora_A, lora_B)", scaled[] = "result_dora = mag_norm_scale * (embed_fn(x, lora_A) @ lora_B) * scaling";
	const struct arg none = {.kind = ARG_NONE};
	struct dora d = {.l = l, .b = b};
	uint32_t magnitude = lora_parameter(l, "lora_magnitude_vector.default.weight", 1, val_dims(l->g, b->weight) + 1), a, c, t, scale;
	struct arg args[3] = {{.kind = ARG_NONE}, arg_val(b->x), b->padding_idx};

	a = apply(&d, OP_T, 1, "embedding_A = module.lora_embedding_A[active_adapter].T", down, none);
	c = apply(&d, OP_T, 1, "embedding_B = module.lora_embedding_B[active_adapter].T", up, none);
	d = enter(l, b, call, "peft.tuners.lora.dora.DoraEmbeddingLayer");
	t = apply(&d, OP_T, 1, make, apply(&d, OP_MATMUL, 1, make, a, arg_val(c)), none);
	t = weight_norm(&d, apply(&d, OP_T, 4, NORM, b->weight, none), t, 2);
	scale = apply(&d, OP_DIV, 5, "mag_norm_scale = magnitude / weight_norm", magnitude, arg_val(t));
	t = lora_unranked(l, b, "lora_A");
	args[0] = arg_val(a);
	lora_node(l, OP_EMBEDDING, args, 3, t, l->scope, 8, scaled);
	t = apply(&d, OP_MATMUL, 8, scaled, t, arg_val(c));
	t = apply(&d, OP_MUL, 8, scaled, scale, arg_val(t));
	t = apply(&d, OP_MUL, 8, scaled, t, arg_float(2));
	leave_scope(l);
	leave(&d, apply(&d, OP_MUL, 2, "result = mag_norm_scale * result + dora_result", scale, arg_val(b->out)), t, "result = mag_norm_scale * result + dora_result");
}
