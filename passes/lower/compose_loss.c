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
	uint32_t t = CALL(s, MUL, V_TENSOR(lp), V_TENSOR(target));

	t = reduction == REDUCTION_NONE ? CALL(s, SUM, V_TENSOR(t), V_INT(class_dim)) : CALL(s, SUM, V_TENSOR(t));
	t = CALL(s, NEG, V_TENSOR(t));
	return reduction == REDUCTION_MEAN ? CALL(s, DIV, V_TENSOR(t), V_INT(2)) : t;
}

/* The sum of -log_probs over the classes where the target is not to be ignored; a mean is divided by the number of such targets. */
static uint32_t
smooth_part(struct sim *s, uint32_t lp, uint32_t target, int64_t class_dim, int64_t reduction)
{
	uint32_t sum = CALL(s, SUM, V_TENSOR(lp), V_INT(class_dim)), t = CALL(s, NEG, V_TENSOR(sum)), ignored, count, mark;

	temps_drop(s, sum);
	ignored = CALL(s, EQ, V_TENSOR(target), V_INT(-100));
	op_call_inplace(s, OP_MASKED_FILL, (const struct value[]){V_TENSOR(t), V_TENSOR(ignored), V_FLOAT(0)}, 3);
	if (reduction == REDUCTION_NONE)
		return t;
	if (reduction == REDUCTION_SUM)
		return CALL(s, SUM, V_TENSOR(t));
	mark = temps_mark(s);
	count = CALL(s, SUM, V_TENSOR(CALL(s, BITWISE_NOT, V_TENSOR(ignored))));
	return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(CALL(s, SUM, V_TENSOR(t))), V_TENSOR(count)));
}

static uint32_t
smoothed(struct sim *s, uint32_t lp, uint32_t target, struct value weight, int64_t class_dim, int64_t reduction)
{
	uint32_t nll = CALL(s, NLL_LOSS_ND, V_TENSOR(lp), V_TENSOR(target), weight, V_INT(reduction)), t;

	t = smooth_part(s, lp, target, class_dim, reduction);
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

/* xlogy(target, target) - target * input, or exp(target) * (target - input) */
uint32_t
compose_KL_DIV(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t, inner;

	if (call_bool(c, "log_target")) {
		t = CALL(s, SUB, c->arg[1], c->arg[0]);
		t = CALL(s, MUL, V_TENSOR(CALL(s, EXP, c->arg[1])), V_TENSOR(t));
	} else {
		inner = CALL(s, MUL, c->arg[1], c->arg[0]);
		t = CALL(s, SUB, V_TENSOR(CALL(s, XLOGY, c->arg[1], c->arg[1])), V_TENSOR(inner));
	}
	t = temps_keep(s, mark, t);
	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

/* The norms are kept from falling below eps in place, outside of the graph, on copies. */
uint32_t
compose_COSINE_SIMILARITY(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), norm[2], a, t;

	for (unsigned i = 0; i < 2; i++) {
		uint32_t n = CALL(s, VECTOR_NORM, c->arg[i], V_INT(2), *call_arg(c, "dim"), V_BOOL(true));

		norm[i] = CALL(s, CLONE, V_TENSOR(n));
		temps_drop(s, n);
	}
	CALL(s, SCALAR_TENSOR, V_FLOAT(0));
	t = CALL(s, DIV, c->arg[1], V_TENSOR(norm[1]));
	a = CALL(s, DIV, c->arg[0], V_TENSOR(norm[0]));
	t = CALL(s, MUL, V_TENSOR(a), V_TENSOR(t));
	return temps_keep(s, mark, CALL(s, SUM, V_TENSOR(t), *call_arg(c, "dim")));
}

/* ---- losses on pairs and triplets -------------------------------------------------------------------------------- */

static uint32_t
distance(struct call *c, unsigned a, unsigned b)
{
	return CALL(c->s, PAIRWISE_DISTANCE, c->arg[a], c->arg[b], *call_arg(c, "p"), *call_arg(c, "eps"));
}

/* clamp_min(margin + d(anchor, positive) - d(anchor, negative), 0); "swap" takes the smaller of two negative distances. */
uint32_t
compose_TRIPLET_LOSS(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), near = distance(c, 0, 1), far = distance(c, 0, 2), t;

	if (call_bool(c, "swap"))
		far = CALL(s, MINIMUM, V_TENSOR(far), V_TENSOR(distance(c, 1, 2)));
	t = CALL(s, ADD, V_TENSOR(near), V_FLOAT(1));
	t = CALL(s, SUB, V_TENSOR(t), V_TENSOR(far));
	t = temps_keep(s, mark, CALL(s, CLAMP_MIN, V_TENSOR(t), V_FLOAT(0)));
	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

/* (-target * (input1 - input2) + margin).clamp_min_(0) */
uint32_t
compose_MARGIN_RANKING_LOSS(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t = CALL(s, SUB, c->arg[0], c->arg[1]), sign = CALL(s, NEG, c->arg[2]);

	t = CALL(s, MUL, V_TENSOR(sign), V_TENSOR(t));
	t = CALL(s, ADD, V_TENSOR(t), V_FLOAT(0.1));
	t = temps_keep(s, mark, t);
	op_call_inplace(s, OP_CLAMP_MIN, (const struct value[]){V_TENSOR(t), V_FLOAT(0)}, 2);
	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

/* where(target != 1, (margin - x).clamp_min_(0), 0) + where(target != -1, x, 0) */
static uint32_t
by_sign(struct call *c, uint32_t x, unsigned compare)
{
	struct sim *s = c->s;
	uint32_t zeros = CALL(s, ZEROS_LIKE, V_TENSOR(x)), a, b, margin, side;

	CALL(s, ZEROS_LIKE, V_TENSOR(x));
	margin = CALL(s, RSUB, V_TENSOR(x), V_FLOAT(0.1));
	op_call_inplace(s, OP_CLAMP_MIN, (const struct value[]){V_TENSOR(margin), V_FLOAT(0)}, 2);
	side = op_call(s, compare, (const struct value[]){*call_arg(c, "target"), V_INT(1)}, 2);
	a = CALL(s, WHERE_TENSORS, V_TENSOR(side), V_TENSOR(margin), V_TENSOR(zeros));
	side = op_call(s, compare, (const struct value[]){*call_arg(c, "target"), V_INT(-1)}, 2);
	b = CALL(s, WHERE_TENSORS, V_TENSOR(side), V_TENSOR(x), V_TENSOR(zeros));
	return CALL(s, ADD, V_TENSOR(a), V_TENSOR(b));
}

uint32_t
compose_HINGE_EMBEDDING_LOSS(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t = by_sign(c, call_tensor(c, "self"), OP_NE);

	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

/* The cosine from three sums of products, then as above. */
uint32_t
compose_COSINE_EMBEDDING_LOSS(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), sum[3], t;
	static const unsigned pair[3][2] = {{0, 1}, {0, 0}, {1, 1}};

	for (unsigned i = 0; i < 3; i++) {
		uint32_t inner = temps_mark(s);

		t = CALL(s, SUM, V_TENSOR(CALL(s, MUL, c->arg[pair[i][0]], c->arg[pair[i][1]])), V_INT(-1));
		sum[i] = temps_keep(s, inner, i ? CALL(s, ADD, V_TENSOR(t), V_FLOAT(0.1)) : t);
	}
	t = CALL(s, MUL, V_TENSOR(sum[1]), V_TENSOR(sum[2]));
	op_call_inplace(s, OP_SQRT, (const struct value[]){V_TENSOR(t)}, 1);
	t = CALL(s, DIV, V_TENSOR(sum[0]), V_TENSOR(t));
	t = by_sign(c, t, OP_EQ);
	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

/* exp(input) - target * input, or input - target * log(input + eps) */
uint32_t
compose_POISSON_NLL_LOSS(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t;

	if (call_bool(c, "log_input")) {
		t = CALL(s, MUL, c->arg[1], c->arg[0]);
		t = CALL(s, SUB, V_TENSOR(CALL(s, EXP, c->arg[0])), V_TENSOR(t));
	} else {
		t = CALL(s, LOG, V_TENSOR(CALL(s, ADD, c->arg[0], V_FLOAT(0.1))));
		t = CALL(s, SUB, c->arg[0], V_TENSOR(CALL(s, MUL, c->arg[1], V_TENSOR(t))));
	}
	t = temps_keep(s, mark, t);
	return temps_keep(s, mark, reduced(s, t, call_int(c, "reduction", REDUCTION_MEAN)));
}

/* A loss for each sequence; their mean is by the length of each target, which is counted on the device. */
uint32_t
compose_CTC_LOSS_REDUCED(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t, lengths = call_tensor(c, "target_lengths"), scalar;
	int64_t reduction = call_int(c, "reduction", 1);

	t = CALL(s, CTC_LOSS, *call_arg(c, "log_probs"), *call_arg(c, "targets"), *call_arg(c, "input_lengths"), *call_arg(c, "target_lengths"));
	if (!t)
		return temps_keep(s, mark, 0);
	if (call_bool(c, "zero_infinity")) {
		struct geom g = *geom_at(s, t);

		scalar = CALL(s, SCALAR_TENSOR, V_FLOAT(0), V_DTYPE(g.dtype));
		t = CALL(s, WHERE, V_TENSOR(CALL(s, EQ, V_TENSOR(t), V_FLOAT(0.5))), V_TENSOR(scalar), V_TENSOR(t));
	}
	if (reduction == 0)
		return temps_keep(s, mark, t);
	if (reduction == 2)
		return temps_keep(s, mark, CALL(s, SUM, V_TENSOR(t)));
	if (!lengths)
		lengths = CALL(s, NEW_ZEROS, V_TENSOR(t), V_INTS(geom_at(s, t)->dim, geom_at(s, t)->rank));
	lengths = CALL(s, CLAMP_MIN, V_TENSOR(lengths), V_INT(1));
	return temps_keep(s, mark, CALL(s, MEAN, V_TENSOR(CALL(s, DIV, V_TENSOR(t), V_TENSOR(lengths)))));
}
