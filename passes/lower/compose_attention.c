/*
 * Compositions: scaled-dot-product attention on each backend, and attention as libraries write it out.
 * The choice of a backend is adapt's only where the recipe forces one; otherwise it is made here, where dtype, head size and
 * mask are known, by the rules of sdp_utils.cpp (memory-model.md 1.4, lowering.md 4.4).
 */
#include "lower.h"

#include <string.h>

struct attention_args {
	uint32_t q, k, v, mask;
	double dropout;
	bool causal;
	struct value scale;
};

static double
rate(const struct value *v)
{
	return v->kind == ARG_FLOAT ? v->u.f : v->kind == ARG_INT ? (double)v->u.i : 0;
}

static bool
read_args(struct call *c, struct attention_args *a)
{
	a->q = call_tensor(c, "query");
	a->k = call_tensor(c, "key");
	a->v = call_tensor(c, "value");
	a->mask = call_tensor(c, "attn_mask");
	a->dropout = rate(call_arg(c, "dropout_p"));
	a->causal = call_bool(c, "is_causal");
	a->scale = *call_arg(c, "scale");
	if (!a->q || !a->k || !a->v || geom_at(c->s, a->q)->rank < 3 || geom_at(c->s, a->k)->rank != geom_at(c->s, a->q)->rank)
		return call_failed(c, "an operand is missing");
	if (geom_at(c->s, a->v)->rank != geom_at(c->s, a->q)->rank)
		return call_failed(c, "query and value differ in their number of dims");
	return true;
}

/* How often each head of t is read by that many heads of the query; 1 where nothing can be divided. */
static int64_t
group_size(struct sim *s, uint32_t t, int64_t heads)
{
	int64_t have = geom_at(s, t)->dim[1];

	return have > 0 ? heads / have : 1;
}

static bool
is_half(unsigned dt)
{
	return dt == DT_FP16 || dt == DT_BF16;
}

/* ---- which backend ----------------------------------------------------------------------------------------- */

/* Both fused kernels need 16-bit brain floats to be native; flash attention was not written for cards before Ampere, nor its backward for
 * heads of 193 to 224 on those with little shared memory. */
static bool
card_has_flash(const struct sim *s, const struct attention_args *a)
{
	unsigned sm = s->plan->sm;
	int64_t head = geom_at(s, a->q)->dim[3];
	bool small = sm == 86 || sm == 89 || sm >= 120;

	return !sm || (sm >= 80 && !(small && head > 192 && head <= 224 && needs_grad(s, a->q)));
}

static bool
card_has_efficient(const struct sim *s, unsigned dtype)
{
	return !s->plan->sm || s->plan->sm >= 80 || (s->plan->sm >= 50 && dtype != DT_BF16);
}

static enum attention
choose(const struct sim *s, const struct attention_args *a)
{
	const struct geom *q = geom_at(s, a->q), *k = geom_at(s, a->k), *v = geom_at(s, a->v);
	int64_t forced = s->r->v[RK_ATTENTION].i;

	if (forced == ATT_FLASH || forced == ATT_EFFICIENT || forced == ATT_MATH || forced == ATT_CUDNN)
		return q->rank == 4 ? (enum attention)forced : ATT_MATH;
	if (q->rank != 4)
		return ATT_MATH;
	if (is_half(q->dtype) && !a->mask && q->dim[3] == v->dim[3] && q->dim[3] <= 256 && q->dim[3] % 8 == 0 && card_has_flash(s, a))
		return ATT_FLASH;
	if (card_has_efficient(s, q->dtype) && q->dim[3] % (is_half(q->dtype) ? 8 : 4) == 0 && q->dim[1] == k->dim[1])
		return ATT_EFFICIENT;
	return ATT_MATH;
}

/* ---- fused kernels --------------------------------------------------------------------------------------------- */

/* aligned_tensor<8>: rows follow each other at multiples of 8 elements. */
static bool
is_aligned(const struct geom *m)
{
	for (unsigned i = 0; i + 1u < m->rank; i++)
		if (m->stride[i] % 8)
			return false;
	return !m->rank || m->stride[m->rank - 1] == 1;
}

/* A bool mask becomes 0 / -inf in the query's dtype, one tensor a call. */
static uint32_t
bias_of_mask(struct sim *s, const struct attention_args *a)
{
	unsigned dt = geom_at(s, a->q)->dtype;
	uint32_t mark = temps_mark(s), zero, inf;

	if (!a->mask || geom_at(s, a->mask)->dtype != DT_BOOL)
		return a->mask;
	zero = CALL(s, SCALAR_TENSOR, V_FLOAT(0), V_DTYPE(dt));
	inf = CALL(s, FULL, V_INTS(NULL, 0), V_FLOAT(1), V_DTYPE(dt));
	return temps_keep(s, mark, CALL(s, WHERE, V_TENSOR(a->mask), V_TENSOR(zero), V_TENSOR(inf)));
}

/* preprocess_mask: rows that are not aligned are padded. */
static uint32_t
attention_bias(struct sim *s, const struct attention_args *a)
{
	const struct geom *q = geom_at(s, a->q), *m;
	struct geom cut;
	uint32_t bias = bias_of_mask(s, a);
	int64_t pad[2] = {0, 0}, dim[4];

	if (!bias)
		return 0;
	m = geom_at(s, bias);
	if (!is_aligned(m)) {
		cut = *m;
		pad[1] = 8 - m->dim[m->rank - 1] % 8;
		bias = CALL(s, CONSTANT_PAD, V_TENSOR(bias), V_INTS(pad, 2));
		bias = CALL(s, SLICE, V_TENSOR(bias), V_INT(-1), V_INT(0), V_INT(cut.dim[cut.rank - 1]));
	}
	memcpy(dim, q->dim, sizeof dim);
	dim[3] = geom_at(s, a->k)->dim[2];
	return CALL(s, EXPAND, V_TENSOR(bias), V_INTS(dim, 4));
}

static uint32_t
fused(struct sim *s, const struct attention_args *a, enum attention kind)
{
	bool need = s->grad_on && (needs_grad(s, a->q) || needs_grad(s, a->k) || needs_grad(s, a->v));
	uint32_t bias;

	if (kind == ATT_CUDNN)
		return CALL(s, SDPA_CUDNN, V_TENSOR(a->q), V_TENSOR(a->k), V_TENSOR(a->v), V_TENSOR(bias_of_mask(s, a)), V_BOOL(need), V_FLOAT(a->dropout), V_BOOL(a->causal));
	if (kind != ATT_EFFICIENT)
		return CALL(s, SDPA_FLASH, V_TENSOR(a->q), V_TENSOR(a->k), V_TENSOR(a->v), V_FLOAT(a->dropout), V_BOOL(a->causal));
	bias = attention_bias(s, a);
	return CALL(s, SDPA_EFFICIENT, V_TENSOR(a->q), V_TENSOR(a->k), V_TENSOR(a->v), V_TENSOR(bias), V_BOOL(need), V_FLOAT(a->dropout), V_BOOL(a->causal));
}

/* ---- the math path ------------------------------------------------------------------------------------------------- */

static uint32_t
repeat_heads(struct sim *s, uint32_t t, int64_t heads)
{
	return CALL(s, REPEAT_INTERLEAVE, V_TENSOR(t), V_INT(group_size(s, t, heads)), V_INT(1));
}

/* ones, tril, two scalars, where: made again in every call. */
static uint32_t
causal_bias(struct sim *s, const struct geom *q, const struct geom *k)
{
	int64_t dim[2] = {q->dim[q->rank - 2], k->dim[k->rank - 2]};
	unsigned dt = q->dtype;
	uint32_t mark = temps_mark(s), on = CALL(s, ONES, V_INTS(dim, 2), V_DTYPE(DT_BOOL)), low = CALL(s, TRIL, V_TENSOR(on)), zero, inf;

	temps_drop(s, on);
	zero = CALL(s, SCALAR_TENSOR, V_FLOAT(0), V_DTYPE(dt));
	inf = CALL(s, SCALAR_TENSOR, V_FLOAT(0), V_DTYPE(dt));
	return temps_keep(s, mark, CALL(s, WHERE, V_TENSOR(low), V_TENSOR(zero), V_TENSOR(inf)));
}

/* _scaled_dot_product_attention_math: half inputs are computed in fp32. */
static uint32_t
math(struct sim *s, struct attention_args a, uint32_t *weights)
{
	unsigned src = geom_at(s, a.q)->dtype;
	uint32_t qs, ks, scores, p;

	if (geom_at(s, a.q)->rank == 4 && geom_at(s, a.k)->dim[1] != geom_at(s, a.q)->dim[1] && geom_at(s, a.k)->dim[1]) {
		int64_t heads = geom_at(s, a.q)->dim[1];

		a.k = repeat_heads(s, a.k, heads);
		a.v = repeat_heads(s, a.v, heads);
	}
	if (is_half(src)) {
		a.q = cast(s, a.q, DT_FP32);
		a.k = cast(s, a.k, DT_FP32);
		a.v = cast(s, a.v, DT_FP32);
	}
	qs = CALL(s, MUL, V_TENSOR(a.q), V_FLOAT(0.5));
	if (a.causal)
		a.mask = causal_bias(s, geom_at(s, a.q), geom_at(s, a.k));
	ks = CALL(s, MUL, V_TENSOR(do_transpose(s, a.k, -2, -1)), V_FLOAT(0.5));
	scores = CALL(s, MATMUL, V_TENSOR(qs), V_TENSOR(ks));
	temps_drop(s, ks);
	if (a.mask)
		op_call_inplace(s, OP_ADD, (const struct value[]){V_TENSOR(scores), V_TENSOR(a.mask)}, 2);
	p = CALL(s, SAFE_SOFTMAX, V_TENSOR(scores), V_INT(-1));
	temps_drop(s, scores);
	if (a.dropout > 0)
		p = CALL(s, NATIVE_DROPOUT, V_TENSOR(p), V_FLOAT(a.dropout), V_BOOL(true));
	*weights = cast(s, p, src);        /* the second result: the weights in the input's dtype, alive until the call returns */
	return cast(s, CALL(s, MATMUL, V_TENSOR(p), V_TENSOR(a.v)), src);
}

/* An autocast operator, but the truth tool casts query, key, value in this order (C++ would begin with the last). */
static void
autocast_operands(struct sim *s, struct attention_args *a)
{
	uint32_t *operand[] = {&a->q, &a->k, &a->v, &a->mask};

	for (unsigned i = 0; s->autocast && i < 4; i++)
		if (*operand[i] && dtype_is_float(geom_at(s, *operand[i])->dtype))
			*operand[i] = cast(s, *operand[i], s->autocast);
}

uint32_t
compose_SDPA(struct call *c)
{
	struct attention_args a;
	uint32_t mark = temps_mark(c->s);
	enum attention kind;
	uint32_t weights;

	if (!read_args(c, &a))
		return 0;
	autocast_operands(c->s, &a);
	c->s->autocast = DT_NONE;
	kind = choose(c->s, &a);
	return temps_keep(c->s, mark, kind == ATT_MATH ? math(c->s, a, &weights) : fused(c->s, &a, kind));
}

/* The math path by its own name; its second result are the weights. */
uint32_t
compose_SDPA_MATH(struct call *c)
{
	struct attention_args a;
	uint32_t t[2] = {0};

	if (!read_args(c, &a))
		return 0;
	t[0] = math(c->s, a, &t[1]);
	return call_results(c, t, 2);
}

/* ---- attention as libraries write it out ------------------------------------------------------------------------------ */

/* repeat_kv: expand, then a reshape that copies. */
static uint32_t
repeat_kv(struct sim *s, uint32_t t, int64_t heads)
{
	const struct geom *g = geom_at(s, t);
	int64_t wide[5] = {g->dim[0], g->dim[1], group_size(s, t, heads), g->dim[2], g->dim[3]}, dim[4] = {g->dim[0], heads, g->dim[2], g->dim[3]};

	t = CALL(s, UNSQUEEZE, V_TENSOR(t), V_INT(2));
	return do_reshape(s, CALL(s, EXPAND, V_TENSOR(t), V_INTS(wide, 5)), 4, dim);
}

/* eager_attention_forward: matmul, scale, mask, softmax in fp32, back to the query's dtype, dropout, matmul, transpose, contiguous. */
uint32_t
compose_EAGER_ATTENTION(struct call *c)
{
	struct sim *s = c->s;
	struct attention_args a;
	uint32_t mark = temps_mark(s), w, t;
	unsigned dt;

	if (!read_args(c, &a) || geom_at(s, a.q)->rank != 4 || !geom_at(s, a.k)->dim[1])
		return 0;
	dt = geom_at(s, a.q)->dtype;
	if (geom_at(s, a.k)->dim[1] != geom_at(s, a.q)->dim[1]) {
		int64_t heads = geom_at(s, a.q)->dim[1];

		a.k = repeat_kv(s, a.k, heads);
		a.v = repeat_kv(s, a.v, heads);
	}
	t = CALL(s, MATMUL, V_TENSOR(a.q), V_TENSOR(do_transpose(s, a.k, 2, 3)));
	w = CALL(s, MUL, V_TENSOR(t), V_FLOAT(0.5));
	temps_drop(s, t);
	if (a.mask) {
		t = w;
		w = CALL(s, ADD, V_TENSOR(t), V_TENSOR(a.mask));
		temps_drop(s, t);
	}
	t = w;
	w = CALL(s, SOFTMAX, V_TENSOR(t), V_INT(-1), V_DTYPE(DT_FP32));
	temps_drop(s, t);
	t = w;
	w = cast(s, t, dt);
	if (w != t)
		temps_drop(s, t);
	if (a.dropout > 0) {
		t = w;
		w = CALL(s, DROPOUT, V_TENSOR(t), V_FLOAT(a.dropout), V_BOOL(true));
		temps_drop(s, t);
	}
	t = CALL(s, MATMUL, V_TENSOR(w), V_TENSOR(a.v));
	t = CALL(s, CONTIGUOUS, V_TENSOR(do_transpose(s, t, 1, 2)));
	return temps_keep(s, mark, do_transpose(s, t, 1, 2));
}

/* The library's causal mask for attention that it writes out: bool over positions, then 0 / -inf in the compute dtype. */
uint32_t
compose_EAGER_MASK(struct call *c)
{
	struct sim *s = c->s;
	int64_t b = call_int(c, "batch", 1), n = call_int(c, "seq", 1), one = 1, square[4] = {1, 1, n, n}, out[4] = {b, 1, n, n};
	unsigned dt = call_dtype(c, "dtype");
	uint32_t mark = temps_mark(s), batch, heads, q, kv, allowed, zero, inf;

	batch = CALL(s, ARANGE, V_NONE, V_INT(b));
	heads = CALL(s, ARANGE, V_NONE, V_INT(one));
	q = CALL(s, ARANGE, V_NONE, V_INT(n));
	kv = CALL(s, ADD, V_TENSOR(q), V_INT(0));
	temps_drop(s, q);
	q = CALL(s, ARANGE, V_NONE, V_INT(n));
	CALL(s, ADD, V_TENSOR(q), V_INT(0));
	temps_drop(s, q);
	allowed = CALL(s, ONES, V_INTS(square, 4), V_DTYPE(DT_BOOL));
	(void)batch;
	(void)heads;
	(void)kv;
	temps_keep(s, mark, allowed);
	zero = CALL(s, ZEROS, V_INTS(NULL, 0), V_DTYPE(dt));
	inf = CALL(s, SCALAR_TENSOR, V_FLOAT(0), V_DTYPE(dt));
	(void)zero;
	(void)inf;
	return temps_keep(s, mark, CALL(s, ZEROS, V_INTS(out, 4), V_DTYPE(dt)));
}
