/* Builders for statistics and counts: norms of slices, segments, bins, unique elements, losses of rows, shares of what was reduced into a tensor. */
#include "lower.h"

static uint32_t
mismatch(struct call *c)
{
	call_failed(c, "operands do not fit together");
	return 0;
}

/* ---- norms of slices ---------------------------------------------------------------------------------------------- */

/* One number for each slice along the argument dim; sums and norms of 16-bit numbers are kept in fp32. */
static uint32_t
each_slice(struct call *c, const struct geom *g, int64_t d, unsigned dt)
{
	struct geom out = *g;

	for (unsigned i = 0; i < out.rank; i++)
		out.dim[i] = i == d ? out.dim[i] : 1;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype == DT_BF16 || out.dtype == DT_FP16 ? DT_FP32 : out.dtype);
}

/* where(norm > max, max / norm * (g - norm's gradient / norm), g) */
uint32_t
build_renorm_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *g = n > 1 ? x[1].g : x[0].g;
	struct operand self = {g, 0, false};
	int64_t d = wrap_dim(call_int(c, "dim", 0), g->rank);
	const struct value *p = call_arg(c, "p");
	bool euclidean = (p->kind == ARG_INT && p->u.i == 2) || (p->kind == ARG_FLOAT && p->u.f == 2);
	unsigned wide = g->dtype == DT_BF16 || g->dtype == DT_FP16 ? DT_FP32 : g->dtype;
	struct sim *s = c->s;
	uint32_t t, sum, zero;

	if (d < 0)
		return mismatch(c);
	each_slice(c, g, d, DT_NONE);
	t = build_like(c, &self, 1, dt);
	sum = each_slice(c, g, d, DT_NONE);
	temps_drop(s, t);
	t = build_like(c, &self, 1, wide);
	zero = euclidean ? each_slice(c, g, d, DT_BOOL) : 0;
	build_like(c, &self, 1, wide);
	temps_drop(s, zero);
	temps_drop(s, t);
	temps_drop(s, sum);
	t = each_slice(c, g, d, DT_NONE);
	each_slice(c, g, d, DT_NONE);
	temps_drop(s, t);
	t = build_like(c, &self, 1, wide);
	sum = build_like(c, &self, 1, wide);
	zero = each_slice(c, g, d, DT_NONE);
	build_like(c, &self, 1, wide);
	temps_drop(s, zero);
	temps_drop(s, sum);
	temps_drop(s, t);
	if (wide != g->dtype)
		build_like(c, &self, 1, DT_NONE);
	each_slice(c, g, d, DT_BOOL);
	return build_like(c, &self, 1, DT_NONE);
}

/* ---- segments, bins, unique elements --------------------------------------------------------------------------------- */

uint32_t
build_segments(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t lengths = call_tensor(c, "lengths"), offsets = call_tensor(c, "offsets"), t = lengths ? lengths : offsets;
	const struct geom *g = t ? geom_at(c->s, t) : NULL;
	int64_t axis = wrap_dim(call_int(c, "axis", 0), x->g->rank);
	struct geom out = *x->g;

	(void)n;
	if (!g || !g->rank || axis < 0)
		return mismatch(c);
	out.dim[axis] = g->dim[g->rank - 1] - (lengths || !g->dim[g->rank - 1] ? 0 : 1);
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* Without a least length as many as there can be in a tensor of places: as many as it has elements. */
uint32_t
build_bin_counts(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t weights = call_tensor(c, "weights");
	int64_t size = call_int(c, "minlength", 0);

	(void)n;
	size = size > 0 ? size : x->g->numel;
	if (!dt)
		dt = !weights ? DT_INT64 : geom_at(c->s, weights)->dtype == DT_FP32 ? DT_FP32 : DT_FP64;
	return fresh_contiguous(c, 1, &size, dt);
}

/* Along a dim there is a number for each slice, without one for each element; all may be different. */
static uint32_t
if_asked(struct call *c, const struct geom *g, const char *flag, bool shaped, unsigned dt)
{
	const struct value *dim = call_arg(c, "dim");
	int64_t d = dim->kind == ARG_INT ? wrap_dim(dim->u.i, g->rank) : -1, size = d >= 0 ? g->dim[d] : g->numel;

	if (!call_bool(c, flag))
		size = 0;
	if (size && shaped && d < 0)
		return fresh_contiguous(c, g->rank, g->dim, dt);
	return fresh_contiguous(c, 1, &size, dt);
}

uint32_t
build_if_asked_inverse(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return if_asked(c, x->g, "return_inverse", true, dt);
}

uint32_t
build_if_asked_counts(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return if_asked(c, x->g, "return_counts", false, dt);
}

/* ---- losses and gamma functions ------------------------------------------------------------------------------------------ */

uint32_t
build_row_loss(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	bool each = x->g->rank > 1 && call_int(c, "reduction", 1) == 0;

	(void)n;
	return fresh_contiguous(c, each, x->g->dim, dt ? dt : x->g->dtype);
}

uint32_t
build_digammas(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	uint32_t whole, t;
	int64_t p = call_int(c, "p", 1);

	(void)n;
	if (out.rank == MAX_RANK)
		return mismatch(c);
	out.dim[out.rank++] = p;
	whole = fresh_contiguous(c, 1, &p, dt ? dt : out.dtype);
	t = fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
	temps_drop(c->s, whole);
	return t;
}
