/* Builders for complex numbers, which are views of pairs of real ones. */
#include "lower.h"

unsigned
complex_of(unsigned dt)
{
	return dt == DT_FP64 ? DT_C128 : dt == DT_FP16 ? DT_C32 : DT_C64;
}

unsigned
real_of(unsigned dt)
{
	return dt == DT_C128 ? DT_FP64 : dt == DT_C32 ? DT_FP16 : DT_FP32;
}

uint32_t
build_conj(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return dtype_info(x->g->dtype)->cat == CAT_COMPLEX ? build_like(c, x, n, dt) : x->t;
}

uint32_t
build_complex(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return build_ew(c, x, n, dt ? dt : complex_of(x->g->dtype));
}

/* .contiguous() of a gradient that is not. */
static struct operand
contiguous_gradient(struct call *c, const struct operand *x)
{
	struct operand y = *x;

	if (c->fn && !x->g->contiguous) {
		y.t = build_full(c, x, 1, DT_NONE);
		y.g = geom_at(c->s, y.t);
	}
	return y;
}

uint32_t
build_as_real(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct operand y = contiguous_gradient(c, x);
	struct geom out = *y.g;

	(void)n;
	(void)dt;
	if (out.rank >= MAX_RANK)
		return out_of_range(c);
	for (unsigned i = 0; i < out.rank; i++)
		out.stride[i] = geom_times(out.stride[i], 2);
	out.dim[out.rank] = 2;
	out.stride[out.rank++] = 1;
	out.dtype = (uint8_t)real_of(out.dtype);
	return view_of(c, &y, out);
}

uint32_t
build_as_complex(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct operand y = contiguous_gradient(c, x);
	struct geom out = *y.g;

	(void)n;
	(void)dt;
	if (!out.rank || out.dim[out.rank - 1] != 2)
		return out_of_range(c);
	out.rank--;
	for (unsigned i = 0; i < out.rank; i++)
		out.stride[i] /= 2;
	out.dtype = (uint8_t)complex_of(out.dtype);
	return view_of(c, &y, out);
}

/* at::real, a view; of a real tensor it is the tensor itself. A gradient of a real operand takes this way. */
uint32_t
real_part(struct sim *s, uint32_t t)
{
	struct geom out = *geom_at(s, t);

	if (dtype_info(out.dtype)->cat != CAT_COMPLEX)
		return t;
	for (unsigned i = 0; i < out.rank; i++)
		out.stride[i] = geom_times(out.stride[i], 2);
	out.dtype = (uint8_t)real_of(out.dtype);
	return tensor_alias(s, t, geom_intern(s->geoms, out), TF_VIEW);
}
