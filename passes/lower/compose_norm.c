/* Compositions: normalisation, dropout, pooling. */
#include "lower.h"

#include <string.h>

static double
rate(const struct value *v)
{
	return v->kind == ARG_FLOAT ? v->u.f : v->kind == ARG_INT ? (double)v->u.i : 0;
}

/* ---- normalisation --------------------------------------------------------------------------------------- */

/* One kernel on CUDA since 2.9; with a weight of another dtype the parts are run one by one. */
uint32_t
compose_RMS_NORM(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), w = call_tensor(c, "weight"), mark = temps_mark(s), t;
	int64_t shape[MAX_RANK], dims[MAX_RANK];
	unsigned n = call_ints(c, "normalized_shape", shape, MAX_RANK);

	if (!x)
		return 0;
	if (!w || geom_at(s, w)->dtype == geom_at(s, x)->dtype)
		return CALL(s, RMS_NORM_KERNEL, V_TENSOR(x), *call_arg(c, "normalized_shape"), V_TENSOR(w));
	for (unsigned i = 0; i < n; i++)
		dims[i] = (int64_t)i - (int64_t)n;
	x = cast(s, x, DT_FP32);
	t = CALL(s, POW, V_TENSOR(x), V_INT(2));
	t = CALL(s, MEAN, V_TENSOR(t), V_INTS(dims, n), V_BOOL(true));
	t = CALL(s, RSQRT, V_TENSOR(CALL(s, ADD, V_TENSOR(t), V_FLOAT(0.1))));
	t = CALL(s, MUL, V_TENSOR(x), V_TENSOR(t));
	t = CALL(s, MUL, V_TENSOR(t), V_TENSOR(w));
	return temps_keep(s, mark, t);
}

uint32_t
compose_GROUP_NORM(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), mark = temps_mark(s), t;
	const struct geom *g = x ? geom_at(s, x) : NULL;
	int64_t inner = 1;

	if (!g || g->rank < 2)
		return 0;
	for (unsigned i = 2; i < g->rank; i++)
		inner = geom_times(inner, g->dim[i]);
	if (!g->contiguous && !geom_channels_last(g))
		x = CALL(s, CONTIGUOUS, V_TENSOR(x));
	t = CALL(s, GROUP_NORM_KERNEL, V_TENSOR(x), *call_arg(c, "weight"), *call_arg(c, "bias"), V_INT(g->dim[0]), V_INT(g->dim[1]), V_INT(inner),
	    *call_arg(c, "num_groups"), *call_arg(c, "eps"));
	return temps_keep(s, mark, t);
}

/* [N, C, ..] is normalised as one batch of N*C channels; weights are repeated for it. */
uint32_t
compose_INSTANCE_NORM(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), w = call_tensor(c, "weight"), b = call_tensor(c, "bias"), mark = temps_mark(s), t;
	const struct geom *g = x ? geom_at(s, x) : NULL;
	int64_t dim[MAX_RANK], times;

	if (!g || g->rank < 2)
		return 0;
	memcpy(dim, g->dim, g->rank * sizeof *dim);
	dim[1] = geom_times(dim[0], dim[1]);
	times = dim[0];
	dim[0] = 1;
	if (w)
		w = CALL(s, REPEAT, V_TENSOR(w), V_INTS(&times, 1));
	if (b)
		b = CALL(s, REPEAT, V_TENSOR(b), V_INTS(&times, 1));
	t = do_view(s, CALL(s, CONTIGUOUS, V_TENSOR(x)), g->rank, dim);
	t = CALL(s, BATCH_NORM, V_TENSOR(t), V_TENSOR(w), V_TENSOR(b), V_NONE, V_NONE, V_BOOL(true), V_FLOAT(0.1), V_FLOAT(0.1));
	return temps_keep(s, mark, do_view(s, t, g->rank, g->dim));
}

/* ---- dropout ------------------------------------------------------------------------------------------------ */

/* Out of place: one kernel, a bool mask. In place: noise in the input's dtype, and a multiplication by it. */
uint32_t
compose_DROPOUT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), mark = temps_mark(s), noise;
	double p = rate(call_arg(c, "p"));

	if (!x || p == 0 || !call_bool(c, "train"))
		return x;
	if (!c->inplace)
		return temps_keep(s, mark, CALL(s, NATIVE_DROPOUT, V_TENSOR(x), V_FLOAT(p), V_BOOL(true)));
	noise = CALL(s, ZEROS_LIKE, V_TENSOR(x));
	op_call_inplace(s, OP_MUL, (const struct value[]){V_TENSOR(x), V_TENSOR(noise)}, 2);
	temps_release(s, mark);
	return x;
}

/* Noise of [N, C, 1..], multiplied in. */
uint32_t
compose_FEATURE_DROPOUT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), mark = temps_mark(s), noise;
	int64_t dim[MAX_RANK];

	if (!x || rate(call_arg(c, "p")) == 0 || !call_bool(c, "train"))
		return x;
	for (unsigned i = 0; i < geom_at(s, x)->rank; i++)
		dim[i] = i < 2 ? geom_at(s, x)->dim[i] : 1;
	noise = CALL(s, NEW_ZEROS, V_TENSOR(x), V_INTS(dim, geom_at(s, x)->rank));
	return temps_keep(s, mark, CALL(s, MUL, V_TENSOR(x), V_TENSOR(noise)));
}

/* Noise, and what is added where it drops: noise - 1, both scaled in place; input * noise + that. */
static uint32_t
alpha_dropout(struct call *c, bool feature)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), mark = temps_mark(s), noise, shift, t;
	int64_t dim[MAX_RANK];

	if (!x || rate(call_arg(c, "p")) == 0 || !call_bool(c, "train"))
		return x;
	for (unsigned i = 0; i < geom_at(s, x)->rank; i++)
		dim[i] = i < 2 ? geom_at(s, x)->dim[i] : 1;
	noise = feature ? CALL(s, NEW_ZEROS, V_TENSOR(x), V_INTS(dim, geom_at(s, x)->rank)) : CALL(s, ZEROS_LIKE, V_TENSOR(x));
	shift = CALL(s, ADD, V_TENSOR(noise), V_INT(-1));
	t = CALL(s, MUL, V_TENSOR(x), V_TENSOR(noise));
	op_call_inplace(s, OP_ADD, (const struct value[]){V_TENSOR(t), V_TENSOR(shift)}, 2);
	return temps_keep(s, mark, t);
}

uint32_t
compose_ALPHA_DROPOUT(struct call *c)
{
	return alpha_dropout(c, false);
}

uint32_t
compose_FEATURE_ALPHA_DROPOUT(struct call *c)
{
	return alpha_dropout(c, true);
}

/* ---- pooling -------------------------------------------------------------------------------------------------- */

/* The kernel makes indices even where only the values are asked for. */
uint32_t
compose_MAX_POOL(struct call *c)
{
	uint32_t mark = temps_mark(c->s);

	return temps_keep(c->s, mark, op_call(c->s, OP_MAX_POOL_INDICES, c->arg, 6));
}

/* Output size 1 in every dim: a mean. */
static bool
all_ones(const int64_t *size, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (size[i] != 1)
			return false;
	return n > 0;
}

/* To one element it is a mean, restrided where the input is channels-last. */
static uint32_t
mean_of_all(struct sim *s, uint32_t x, unsigned n)
{
	static const int64_t last[] = {-1, -2, -3};
	uint32_t t = CALL(s, MEAN, V_TENSOR(x), V_INTS(last, n), V_BOOL(true));
	int64_t stride[MAX_RANK];
	struct geom g;

	if (geom_at(s, x)->rank != n + 2 || !geom_channels_last(geom_at(s, x)))
		return t;
	g = *geom_at(s, t);
	for (unsigned i = 0; i < g.rank; i++)
		stride[i] = i == 1 ? 1 : g.dim[1];
	return CALL(s, AS_STRIDED, V_TENSOR(t), V_INTS(g.dim, g.rank), V_INTS(stride, g.rank));
}

/* The one-dimensional operator is the two-dimensional one on a dim of size 1. */
uint32_t
compose_ADAPTIVE_AVG_POOL(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "self"), mark = temps_mark(s);
	int64_t size[MAX_RANK] = {1, 1};
	unsigned n = call_ints(c, "output_size", size, MAX_RANK);
	bool line = n == 1;

	if (!x || !n || n > 3 || n >= geom_at(s, x)->rank)
		return 0;
	if (line) {
		x = CALL(s, UNSQUEEZE, V_TENSOR(x), V_INT(-2));
		size[1] = size[0];
		size[0] = 1;
		n = 2;
	}
	x = all_ones(size, n) ? mean_of_all(s, x, n) : CALL(s, ADAPTIVE_AVG_KERNEL, V_TENSOR(x), V_INTS(size, n));
	if (line)
		x = CALL(s, SQUEEZE, V_TENSOR(x), V_INT(-2));
	return temps_keep(s, mark, x);
}
