/*
 * Builders: the functions that formulas call. Each makes one tensor (or a view) from the geometry of
 * its operands and the arguments of the running operator. This file has the table, elementwise kernels
 * and copies; views are in build_view.c, indexing and joining in build_index.c, reductions and losses in
 * build_reduce.c, contractions, convolutions and pooling in build_dense.c.
 */
#include "lower.h"

builder *const builders[BUILD_COUNT] = {
#define BUILD(name) [BUILD_##name] = build_##name,
#include "build.def"
#undef BUILD
};

int
builder_by_name(struct str name)
{
	static const char *const names[] = {
#define BUILD(name) #name,
#include "build.def"
#undef BUILD
	};

	for (int i = 0; i < BUILD_COUNT; i++)
		if (str_eq(name, str_of(names[i])))
			return i;
	return -1;
}

uint32_t
fresh(struct call *c, struct geom g)
{
	return tensor_new(c->s, geom_intern(c->s->geoms, g), c->kernel);
}

uint32_t
fresh_contiguous(struct call *c, unsigned rank, const int64_t *dim, unsigned dtype)
{
	struct geom g = {.rank = (uint8_t)rank, .dtype = (uint8_t)dtype};

	for (unsigned i = 0; i < rank; i++) {
		if (dim[i] < 0) {
			call_failed(c, "negative size");
			return 0;
		}
		g.dim[i] = dim[i];
	}
	geom_contiguous(&g);
	return fresh(c, g);
}

unsigned
grad_dtype(const struct call *c)
{
	for (unsigned i = 0; i < c->ngrads; i++)
		if (c->grads[i])
			return geom_at(c->s, c->grads[i])->dtype;
	return DT_NONE;
}

static unsigned
float_of(unsigned dt)
{
	return dtype_info(dt)->cat >= CAT_FLOAT ? dt : DT_FP32;
}

/* ---- elementwise ------------------------------------------------------------------------------------- */

static uint32_t
elementwise(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *g[MAX_REFS];
	struct promotion p = {0};
	struct geom out = {0};
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!x[i].g)
			continue;
		if (x[i].number) {
			promote_number(&p, x[i].g->dtype);
			continue;
		}
		promote_tensor(&p, x[i].g);
		g[m++] = x[i].g;
	}
	if (!m || !geom_broadcast(&out, g, m)) {
		call_failed(c, m ? "operands do not broadcast" : "no operand is a tensor");
		return 0;
	}
	geom_elementwise(&out, g, m);
	out.dtype = (uint8_t)(dt ? dt : promote_result(&p));
	return fresh(c, out);
}

uint32_t
build_ew(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return elementwise(c, x, n, dt);
}

uint32_t
build_truediv(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct promotion p = {0};

	for (unsigned i = 0; i < n; i++) {
		if (x[i].g && x[i].number)
			promote_number(&p, x[i].g->dtype);
		else if (x[i].g)
			promote_tensor(&p, x[i].g);
	}
	return elementwise(c, x, n, dt ? dt : float_of(promote_result(&p)));
}

uint32_t
build_where(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct promotion p = {0};

	for (unsigned i = 1; i < n; i++) {
		if (x[i].g && x[i].number)
			promote_number(&p, x[i].g->dtype);
		else if (x[i].g)
			promote_tensor(&p, x[i].g);
	}
	return elementwise(c, x, n, dt ? dt : promote_result(&p));
}

uint32_t
build_clamp(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return elementwise(c, x, n, dt);
}

/* clamp_backward_min_max, of one bound (x[2]): where it counts, and that it is not beyond the other one (x[3]), if there is one. */
uint32_t
build_bound_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct operand mask[2] = {{0}}, args[2];
	uint32_t t;

	build_scalar(c, x, 1, dt);
	for (unsigned i = 0; i < 2; i++) {
		struct operand pair[2] = {x[i ? 2 : 1], x[i ? 3 : 2]};

		if (i && (n < 4 || !x[3].g))
			break;
		t = elementwise(c, pair, 2, DT_BOOL);
		if (!t)
			return 0;
		mask[i] = (struct operand){geom_at(c->s, t), t, false};
	}
	if (mask[1].g)
		elementwise(c, mask, 2, DT_BOOL);
	args[0] = mask[0];
	args[1] = x[0];
	return elementwise(c, args, 2, x[0].g->dtype);
}

/* clamp_backward: where(mask, grad, 0) with a 0-dim zero made first; numbers' masks meet in the first, tensors' in one more. */
uint32_t
build_clamp_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct operand mask[2], args[2];
	unsigned count = 0;
	bool tensors = false;

	for (unsigned i = 2; i < n && count < 2; i++) {
		struct operand pair[2] = {x[1], x[i]};
		uint32_t t;

		if (!x[i].g)
			continue;
		if (!count)
			build_scalar(c, x, 1, dt);
		tensors |= !x[i].number;
		t = elementwise(c, pair, 2, DT_BOOL);
		if (!t)
			return 0;
		mask[count++] = (struct operand){geom_at(c->s, t), t, false};
	}
	if (!count)
		return x[0].t;
	if (count == 2 && tensors)
		elementwise(c, mask, 2, DT_BOOL);
	args[0] = mask[0];
	args[1] = x[0];
	return elementwise(c, args, 2, x[0].g->dtype);
}

uint32_t
build_like(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out;

	(void)n;
	geom_like(&out, x[0].g);
	if (dt)
		out.dtype = (uint8_t)dt;
	return fresh(c, out);
}

uint32_t
build_unary(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return build_like(c, x, n, dt ? dt : float_of(x[0].g->dtype));
}

uint32_t
build_like_sum(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	unsigned given = call_dtype(c, "dtype");

	if (!dt)
		dt = given ? given : dtype_info(x[0].g->dtype)->cat <= CAT_INT ? DT_INT64 : DT_NONE;
	return build_like(c, x, n, dt);
}

uint32_t
build_full(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return fresh_contiguous(c, x[0].g->rank, x[0].g->dim, dt ? dt : x[0].g->dtype);
}

uint32_t
build_zeros(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return build_full(c, x, n, dt ? dt : grad_dtype(c));
}

uint32_t
build_sum_like(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return build_zeros(c, x, n, dt);
}

uint32_t
build_broadcast(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *g[2] = {x[0].g, x[n - 1].g};
	struct geom out = {0};

	if (!geom_broadcast(&out, g, n)) {
		call_failed(c, "operands do not broadcast");
		return 0;
	}
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : x[0].g->dtype);
}

/* masked_fill_ of a temporary, which is made before the mask: the temporary itself. */
uint32_t
build_put(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)c;
	(void)dt;
	return x[n - 1].t;
}

uint32_t
build_scalar(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return fresh_contiguous(c, 0, NULL, dt ? dt : x[0].g->dtype);
}

static bool
is_one(const struct value *v)
{
	return (v->kind == ARG_INT && v->u.i == 1) || (v->kind == ARG_FLOAT && v->u.f == 1) || v->kind == ARG_NONE || (v->kind == ARG_BOOL && v->b);
}

uint32_t
build_scaled(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *alpha = call_arg(c, "alpha");

	return is_one(alpha) ? x[0].t : build_like(c, x, n, dt);
}

uint32_t
build_by_beta(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return is_one(call_arg(c, "beta")) ? x[0].t : build_like(c, x, n, dt);
}

/* ---- copies ----------------------------------------------------------------------------------------------- */

enum { FORMAT_CONTIGUOUS, FORMAT_PRESERVE, FORMAT_CHANNELS_LAST, FORMAT_CHANNELS_LAST_3D };

static uint32_t
in_format(struct call *c, const struct geom *x, unsigned dt)
{
	int64_t format = call_int(c, "memory_format", FORMAT_PRESERVE);
	struct geom out;

	geom_like(&out, x);
	if (format == FORMAT_CONTIGUOUS)
		geom_contiguous(&out);
	else if (format >= FORMAT_CHANNELS_LAST && x->rank >= 4)
		geom_set_channels_last(&out);
	if (dt)
		out.dtype = (uint8_t)dt;
	return fresh(c, out);
}

uint32_t
build_formatted(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return in_format(c, x[0].g, dt);
}

uint32_t
build_converted(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return in_format(c, x[0].g, dt ? dt : call_dtype(c, "dtype"));
}

uint32_t
build_cast_to(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	if (n > 1)
		dt = x[1].g->dtype;
	return !dt || x[0].g->dtype == dt ? x[0].t : build_like(c, x, 1, dt);
}

uint32_t
build_cast_back(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct operand y = *x;

	(void)n;
	if (c->fn && c->fn->meta[0])
		dt = c->fn->meta[0]->dtype;
	if (dt && y.t && dtype_info(dt)->cat != CAT_COMPLEX) {
		y.t = real_part(c->s, y.t);
		y.g = geom_at(c->s, y.t);
	}
	return build_cast_to(c, &y, 1, dt);
}

uint32_t
build_halved(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[0].g;
	int64_t d = wrap_dim(call_int(c, "dim", -1), out.rank);

	(void)n;
	(void)dt;
	if (d < 0) {
		call_failed(c, "dim out of range");
		return 0;
	}
	out.dim[d] /= 2;
	return fresh_contiguous(c, out.rank, out.dim, out.dtype);
}
