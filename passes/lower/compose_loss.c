/* Compositions: softmax and losses (SoftMax.cpp, LossNLL.cpp, Loss.cpp). */
#include "lower.h"

enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

/* ---- softmax -------------------------------------------------------------------------------------------- */

/* fp16 to fp32 is fused into the kernel; any other change of dtype is a copy first. */
static uint32_t
softmax(struct sim *s, unsigned kernel, uint32_t x, int64_t dim, unsigned dt)
{
	uint32_t mark = temps_mark(s);
	bool fused = dt == DT_FP32 && geom_at(s, x)->dtype == DT_FP16;

	if (dt && !fused)
		x = cast(s, x, dt);
	return temps_keep(s, mark, op_call(s, kernel, (const struct value[]){V_TENSOR(x), V_INT(dim), V_BOOL(fused)}, 3));
}

uint32_t
compose_SOFTMAX(struct call *c)
{
	uint32_t x = call_tensor(c, "self");

	return x ? softmax(c->s, OP_SOFTMAX_KERNEL, x, call_int(c, "dim", -1), call_dtype(c, "dtype")) : 0;
}

uint32_t
compose_LOG_SOFTMAX(struct call *c)
{
	uint32_t x = call_tensor(c, "self");

	return x ? softmax(c->s, OP_LOG_SOFTMAX_KERNEL, x, call_int(c, "dim", -1), call_dtype(c, "dtype")) : 0;
}

/* ---- cross entropy ----------------------------------------------------------------------------------------- */

/* Three dims become four around the kernel for images. */
uint32_t
compose_NLL_LOSS_ND(struct call *c)
{
	uint32_t mark = temps_mark(c->s);

	return temps_keep(c->s, mark, op_call(c->s, OP_NLL_LOSS, c->arg, 5));
}

static uint32_t
reduced(struct sim *s, uint32_t t, int64_t reduction)
{
	if (reduction == REDUCTION_NONE)
		return t;
	return reduction == REDUCTION_SUM ? CALL(s, SUM, V_TENSOR(t)) : CALL(s, MEAN, V_TENSOR(t));
}

/* Targets are probabilities: -(log_probs * target).sum() / n */
static uint32_t
soft_targets(struct sim *s, uint32_t lp, uint32_t target, int64_t class_dim, int64_t reduction)
{
	uint32_t t = CALL(s, MUL, V_TENSOR(lp), V_TENSOR(target)), p = t;

	t = reduction == REDUCTION_NONE ? CALL(s, SUM, V_TENSOR(t), V_INT(class_dim)) : CALL(s, SUM, V_TENSOR(t));
	temps_drop(s, p);
	t = CALL(s, NEG, V_TENSOR(t));
	return reduction == REDUCTION_MEAN ? CALL(s, DIV, V_TENSOR(t), V_INT(2)) : t;
}

static uint32_t
smoothed(struct sim *s, uint32_t lp, uint32_t target, struct value weight, int64_t class_dim, int64_t reduction)
{
	uint32_t nll = CALL(s, NLL_LOSS_ND, V_TENSOR(lp), V_TENSOR(target), weight, V_INT(reduction)), smooth, ignored, t;

	smooth = CALL(s, NEG, V_TENSOR(CALL(s, SUM, V_TENSOR(lp), V_INT(class_dim))));
	ignored = CALL(s, EQ, V_TENSOR(target), V_INT(-100));
	op_call_inplace(s, OP_MASKED_FILL, (const struct value[]){V_TENSOR(smooth), V_TENSOR(ignored), V_FLOAT(0)}, 3);
	t = reduced(s, smooth, reduction);
	t = CALL(s, MUL, V_TENSOR(t), V_FLOAT(0.1));
	return CALL(s, ADD, V_TENSOR(CALL(s, MUL, V_TENSOR(nll), V_FLOAT(0.9))), V_TENSOR(t));
}

/* log_softmax is asked for in the logits' own dtype, so that autocast leaves it there; nll_loss is an fp32 operator. */
uint32_t
compose_CROSS_ENTROPY(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "self"), target = call_tensor(c, "target"), mark = temps_mark(s), lp, t;
	int64_t reduction = call_int(c, "reduction", REDUCTION_MEAN), class_dim;
	const struct value *smoothing = call_arg(c, "label_smoothing");

	if (!x || !target || !geom_at(s, x)->rank) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	class_dim = geom_at(s, x)->rank == 1 ? 0 : 1;
	lp = softmax(s, OP_LOG_SOFTMAX_KERNEL, x, class_dim, geom_at(s, x)->dtype);
	if (dtype_is_float(geom_at(s, target)->dtype))
		t = soft_targets(s, lp, target, class_dim, reduction);
	else if (smoothing->kind == ARG_FLOAT && smoothing->u.f > 0)
		t = smoothed(s, lp, target, *call_arg(c, "weight"), class_dim, reduction);
	else
		t = CALL(s, NLL_LOSS_ND, V_TENSOR(lp), V_TENSOR(target), *call_arg(c, "weight"), V_INT(reduction));
	return temps_keep(s, mark, t);
}

/* ---- others ---------------------------------------------------------------------------------------------------- */

uint32_t
compose_L1_LOSS(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t = CALL(s, SUB, c->arg[0], c->arg[1]);

	t = CALL(s, ABS, V_TENSOR(t));
	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

/* target * (log(target) - input), with zeros where the target is 0 */
uint32_t
compose_KL_DIV(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t;

	if (call_bool(c, "log_target")) {
		t = CALL(s, SUB, c->arg[1], c->arg[0]);
		t = CALL(s, MUL, V_TENSOR(CALL(s, EXP, c->arg[1])), V_TENSOR(t));
	} else {
		uint32_t own = CALL(s, MUL, c->arg[1], V_TENSOR(CALL(s, LOG, c->arg[1])));

		t = CALL(s, SUB, V_TENSOR(own), V_TENSOR(CALL(s, MUL, c->arg[1], c->arg[0])));
	}
	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

uint32_t
compose_COSINE_SIMILARITY(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), n[2], t;

	for (unsigned i = 0; i < 2; i++) {
		uint32_t norm = CALL(s, VECTOR_NORM, c->arg[i], V_INT(2), *call_arg(c, "dim"), V_BOOL(true));

		norm = CALL(s, CLAMP_MIN, V_TENSOR(norm), V_FLOAT(0.1));
		n[i] = CALL(s, DIV, c->arg[i], V_TENSOR(norm));
	}
	t = CALL(s, MUL, V_TENSOR(n[0]), V_TENSOR(n[1]));
	return temps_keep(s, mark, CALL(s, SUM, V_TENSOR(t), *call_arg(c, "dim")));
}
