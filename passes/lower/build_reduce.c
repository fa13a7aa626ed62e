/* Builders for reductions, norms' statistics, softmax and losses. */
#include "lower.h"

/* ---- reductions --------------------------------------------------------------------------------------- */

static bool
reduced_mask(struct call *c, const struct geom *x, unsigned *mask)
{
	int64_t dims[MAX_RANK];
	unsigned n = call_ints(c, "dim", dims, MAX_RANK);

	*mask = n ? 0 : ~0u;               /* no dims: all */
	for (unsigned i = 0; i < n; i++) {
		int64_t d = wrap_dim(dims[i], x->rank);

		if (d < 0)
			return call_failed(c, "dim out of range");
		*mask |= 1u << d;
	}
	return true;
}

static uint32_t
reduce(struct call *c, const struct geom *x, bool keep, unsigned dt)
{
	unsigned mask, rank = 0, given = call_dtype(c, "dtype");
	int64_t dim[MAX_RANK];

	if (!reduced_mask(c, x, &mask))
		return 0;
	for (unsigned i = 0; i < x->rank; i++) {
		if (!(mask >> i & 1))
			dim[rank++] = x->dim[i];
		else if (keep)
			dim[rank++] = 1;
	}
	return fresh_contiguous(c, rank, dim, dt ? dt : given ? given : x->dtype);
}

uint32_t
build_reduced(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return reduce(c, x->g, call_bool(c, "keepdim"), dt);
}

uint32_t
build_reduced_sum(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	bool integral = dtype_info(x->g->dtype)->cat <= CAT_INT && !call_dtype(c, "dtype");

	return build_reduced(c, x, n, dt ? dt : integral ? DT_INT64 : DT_NONE);
}

uint32_t
build_reduced_keep(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return reduce(c, x->g, true, dt);
}

uint32_t
build_sum_all(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return fresh_contiguous(c, 0, NULL, dt ? dt : dtype_info(x->g->dtype)->cat <= CAT_INT ? DT_INT64 : x->g->dtype);
}

/* prod_backward looks for zeros first: their places, which there are none of, or their number in each row. */
uint32_t
build_zero_mask(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t t = fresh_contiguous(c, x->g->rank, x->g->dim, DT_BOOL);

	(void)n;
	(void)dt;
	if (call_arg(c, "dim")->kind == ARG_NONE) {
		temps_drop(c->s, t);
		return x->t;
	}
	reduce(c, x->g, true, DT_INT64);
	temps_drop(c->s, fresh_contiguous(c, 0, NULL, DT_INT64));
	return t;
}

uint32_t
build_masked_sum(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	build_like(c, x, 1, dt);
	return build_sum_all(c, x, n, dt);
}

/* std_backward: the gradient of the variance, masked where the deviation is 0. */
static void
std_grad(struct call *c, const struct geom *out, unsigned dt)
{
	struct operand o = {out, 0, false};
	uint32_t twice = build_like(c, &o, 1, dt), mask;

	build_like(c, &o, 1, dt);
	mask = build_like(c, &o, 1, DT_BOOL);
	temps_drop(c->s, mask);
	temps_drop(c->s, twice);
}

/* var_mean_backward: first the variance's part, then the mean's, which is added to it. */
uint32_t
build_var_mean_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t t = 0, mark = temps_mark(c->s);

	(void)n;
	if (c->grads[0]) {
		if (c->op == OP_STD_MEAN)
			std_grad(c, geom_at(c->s, c->grads[0]), dt);
		reduce(c, x->g, true, dt);
		build_like(c, x, 1, dt);
		reduce(c, x->g, true, dt);
		t = temps_keep(c->s, mark, build_like(c, x, 1, dt));
	}
	if (c->ngrads > 1 && c->grads[1]) {
		uint32_t mean = build_like(c, x, 1, dt);

		t = t ? t : mean;
	}
	return t;
}

static double
order_of(const struct call *c)
{
	const struct value *v = call_arg(c, "ord");

	return v->kind == ARG_FLOAT ? v->u.f : v->kind == ARG_INT ? (double)v->u.i : 2;
}

static void
drop_both(struct sim *s, uint32_t a, uint32_t b)
{
	temps_drop(s, a);
	temps_drop(s, b);
}

/* What norm_backward makes of x and a norm, or a gradient, of another dtype: a norm over everything is a number, which widens nothing. */
static unsigned
widened(const struct call *c, const struct operand *norm, unsigned dt)
{
	return norm->g && (norm->g->rank || call_arg(c, "dim")->kind != ARG_NONE) ? dtype_promote(dt, norm->g->dtype) : dt;
}

/* norm_backward: sgn(x) * g; or x * (g / norm), x / norm * g; or a share for each element that is the largest. */
uint32_t
build_norm_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	double p = order_of(c);
	struct sim *s = c->s;
	unsigned wide = widened(c, &x[1], dt);
	uint32_t a, b;

	(void)n;
	a = build_like(c, x, 1, p == 2 ? wide : dt);
	if (p == 0)
		return a;
	if (p > 1e300 || p < -1e300) {
		b = build_like(c, x, 1, DT_BOOL);
		a = build_like(c, x, 1, DT_BOOL);
		build_like(c, x, 1, DT_BOOL);
		drop_both(s, a, b);
		reduce(c, x->g, true, DT_INT64);
		reduce(c, x->g, true, wide);
		build_like(c, x, 1, wide);
		build_like(c, x, 1, dt);
	} else if (p == 2) {
		build_like(c, &x[1], 1, DT_BOOL);
	} else if (p != 1) {
		build_like(c, x, 1, dt);
		temps_drop(s, a);
		a = reduce(c, x->g, true, wide);
		reduce(c, x->g, true, wide);
		temps_drop(s, a);
		temps_drop(s, reduce(c, x->g, true, DT_BOOL));
	}
	return build_like(c, x, 1, wide);
}

/* Each extreme's gradient goes to the places that have it, in equal shares. */
uint32_t
build_aminmax_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < c->ngrads; i++) {
		uint32_t mask, count, share, t;

		if (!c->grads[i])
			continue;
		mask = build_like(c, x, n, DT_BOOL);
		count = reduce(c, x->g, true, DT_INT64);
		share = reduce(c, x->g, true, dt);
		t = build_like(c, x, n, dt);
		temps_drop(c->s, share);
		temps_drop(c->s, count);
		if (!sum) {
			temps_drop(c->s, mask);
			sum = t;
			continue;
		}
		share = build_like(c, x, n, dt);
		temps_drop(c->s, sum);
		temps_drop(c->s, t);
		temps_drop(c->s, mask);
		sum = share;
	}
	return sum;
}

/* ---- statistics of norms --------------------------------------------------------------------------------- */

/* native_layer_norm keeps mean and rstd as [rows.., 1..] */
uint32_t
build_rows(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t shape[MAX_RANK], dim[MAX_RANK];
	unsigned inner = call_ints(c, "normalized_shape", shape, MAX_RANK);

	(void)n;
	if (inner > x->g->rank) {
		call_failed(c, "more normalized dims than dims");
		return 0;
	}
	for (unsigned i = 0; i < x->g->rank; i++)
		dim[i] = i < x->g->rank - inner ? x->g->dim[i] : 1;
	return fresh_contiguous(c, x->g->rank, dim, x->g->dtype == DT_FP64 ? DT_FP64 : dt);
}

uint32_t
build_norm_dx(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return x->g->dtype == DT_FP32 ? build_like(c, x, n, dt) : build_full(c, x, n, dt);
}

uint32_t
build_channels(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t channels = x->g->rank > 1 ? x->g->dim[1] : 1;

	(void)n;
	return fresh_contiguous(c, 1, &channels, x->g->dtype == DT_FP64 ? DT_FP64 : dt);
}

uint32_t
build_groups(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[2] = {call_int(c, "N", 1), call_int(c, "group", 1)};

	(void)n;
	return fresh_contiguous(c, 2, dim, dt ? dt : x->g->dtype);
}

/* ---- softmax and losses ------------------------------------------------------------------------------------ */

uint32_t
build_softmax(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	unsigned given = c->op == OP_SAFE_SOFTMAX ? call_dtype(c, "dtype") : call_bool(c, "half_to_float") ? DT_FP32 : DT_NONE;

	(void)n;
	return fresh_contiguous(c, x->g->rank, x->g->dim, dt ? dt : given ? given : x->g->dtype);
}

enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

uint32_t
build_nll_loss(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	if (call_int(c, "reduction", REDUCTION_MEAN) != REDUCTION_NONE || out.rank < 1)
		return fresh_contiguous(c, 0, NULL, dt ? dt : out.dtype);
	for (unsigned i = out.rank > 1; i + 1u < out.rank; i++)        /* the class dim goes */
		out.dim[i] = out.dim[i + 1];
	out.rank--;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

uint32_t
build_loss(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	if (call_int(c, "reduction", REDUCTION_MEAN) == REDUCTION_NONE)
		return build_ew(c, x, n, dt);
	return fresh_contiguous(c, 0, NULL, dt ? dt : x->g->dtype);
}

uint32_t
build_ctc_loss(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t batch = x->g->rank > 1 ? x->g->dim[1] : 1;

	(void)n;
	return fresh_contiguous(c, 1, &batch, dt ? dt : x->g->dtype);
}

uint32_t
build_ctc_alpha(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *target = x[1].g;
	int64_t longest = target->rank > 1 ? target->dim[1] : target->numel;
	int64_t dim[3] = {x->g->rank > 1 ? x->g->dim[1] : 1, x->g->dim[0], 2 * longest + 1};

	(void)n;
	return fresh_contiguous(c, 3, dim, dt ? dt : x->g->dtype);
}
