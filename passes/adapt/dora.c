/*
 * DoRA on a Linear, as PEFT's DoraLinearLayer computes it in every forward:
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
	uint32_t x, down, up, outer;       /* outer: the scope of PEFT's layer */
};

/* One operator under a statement of DoraLinearLayer.forward; b = 0: one operand. */
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
	static const char make[] = "lora_weight = self.get_lora_weight(lora_A, lora_B)", convert[] = "lora_weight = lora_weight.to(x.dtype)";
	struct lora *l = d->l;
	uint32_t t = lora_unranked(l, d->b, "eye");
	struct arg args[3] = {{.kind = ARG_INT, .u.i = val_dims(l->g, d->down)[1]}, {.kind = ARG_NONE}, arg_dtype(l->dtype)};
	struct arg none = {.kind = ARG_NONE}, like = {.kind = ARG_DTYPE_OF, .u.val = d->x};

	lora_node(l, OP_EYE, args, 3, t, l->scope, 1, make);
	t = apply_linear(d, "lora_A", 1, make, t, d->down);
	t = apply_linear(d, "lora_B", 1, make, t, d->up);
	t = apply(d, OP_T, 1, make, t, none);
	return apply(d, OP_TO, 2, convert, t, like);
}

static uint32_t
column_norm(struct dora *d, uint32_t weight, uint32_t added)
{
	static const char norm[] = "weight_norm = self.get_weight_norm(weight, lora_weight.detach(), scaling)";
	const struct arg none = {.kind = ARG_NONE};
	const int64_t dim = 1;
	uint32_t t = apply(d, OP_DETACH, 4, norm, added, none);
	struct arg args[3];

	t = apply(d, OP_MUL, 4, norm, t, arg_float(2));
	t = apply(d, OP_ADD, 4, norm, weight, arg_val(t));
	args[0] = arg_val(t);
	args[1] = arg_int(2);
	args[2] = arg_ints(d->l->g, &dim, 1);
	t = lora_unranked(d->l, d->b, "dora");
	lora_node(d->l, OP_VECTOR_NORM, args, 3, t, d->l->scope, 4, norm);
	return t;
}

static uint32_t
base_result(struct dora *d, uint32_t weight)
{
	if (d->l->dropout)
		return apply_linear(d, "base_layer", 7, "base_result = F.linear(x, weight)", d->x, weight);
	return d->b->bias ? apply(d, OP_SUB, 7, "base_result = base_result - bias", d->b->out, arg_val(d->b->bias)) : d->b->out;
}

/* (scale - 1) * base_result + scale * lora_result * scaling */
static uint32_t
combine(struct dora *d, uint32_t scale, uint32_t lora, uint32_t base)
{
	static const char text[] = "result_dora = (mag_norm_scale - 1) * base_result + mag_norm_scale * lora_result * scaling";
	uint32_t t = apply(d, OP_SUB, 8, text, scale, arg_int(1)), u;

	t = apply(d, OP_MUL, 8, text, t, arg_val(base));
	u = apply(d, OP_MUL, 8, text, scale, arg_val(lora));
	u = apply(d, OP_MUL, 8, text, u, arg_float(2));
	return apply(d, OP_ADD, 8, text, t, arg_val(u));
}

void
lora_dora(struct lora *l, const struct base *b, uint32_t x, uint32_t down, uint32_t up)
{
	static const char call[] = "result = result + module.lora_magnitude_vector[active_adapter](x, base_result=base_result)";
	struct dora d = {l, b, x, down, up, l->scope};
	uint32_t magnitude = lora_parameter(l, "lora_magnitude_vector.default.weight", 1, val_dims(l->g, b->weight)), weight, t, lora;
	const int64_t row[2] = {1, -1};
	struct arg like = {.kind = ARG_DTYPE_OF, .u.val = x};

	l->outer = call;
	l->scope = lora_scope(l, "lora_magnitude_vector", "peft.tuners.lora.dora.DoraLinearLayer");
	lora = lora_weight(&d);
	weight = apply(&d, OP_TO, 3, "weight = weight.to(x.dtype)", b->weight, like);
	t = column_norm(&d, weight, lora);
	t = apply(&d, OP_DIV, 5, "mag_norm_scale = (magnitude / weight_norm).view(1, -1)", magnitude, arg_val(t));
	t = apply(&d, OP_VIEW, 5, "mag_norm_scale = (magnitude / weight_norm).view(1, -1)", t, arg_ints(l->g, row, 2));
	lora = apply_linear(&d, "lora_A", 6, "lora_result = lora_B(lora_A(x))", x, down);
	lora = apply_linear(&d, "lora_B", 6, "lora_result = lora_B(lora_A(x))", lora, up);
	t = combine(&d, t, lora, base_result(&d, weight));
	l->outer = NULL;
	l->scope = d.outer;
	t = apply(&d, OP_ADD, 2, call, b->out, arg_val(t));
	lora_result(l, b, t);
}
