/* Builders of views: they allocate nothing; the new tensor is on the operand's storage. */
#include "lower.h"

#include <string.h>

/* -1 = out of range. A 0-dim tensor takes dim 0 and -1. */
int64_t
wrap_dim(int64_t dim, unsigned rank)
{
	int64_t n = rank ? rank : 1;

	if (dim < -n || dim >= n)
		return -1;
	return dim < 0 ? dim + n : dim;
}

uint32_t
view_of(struct call *c, const struct operand *x, struct geom g)
{
	uint32_t t = tensor_alias(c->s, x->t, geom_intern(c->s->geoms, g), TF_VIEW), base = tensor_at(c->s, x->t)->base;

	if (!c->fn && c->s->grad_on && c->code->ngrad)
		tensor_at(c->s, t)->base = tensor_hold(c->s, base ? base : x->t);
	return t;
}

uint32_t
out_of_range(struct call *c)
{
	call_failed(c, "dim out of range");
	return 0;
}

uint32_t
build_alias(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	(void)dt;
	return view_of(c, x, *x->g);
}

/* Sizes with one -1, which stands for what is left. */
static bool
infer_sizes(struct call *c, const char *arg, const struct geom *x, struct geom *out)
{
	int64_t known = 1;
	int hole = -1;
	unsigned n = call_ints(c, arg, out->dim, MAX_RANK);

	out->rank = (uint8_t)n;
	out->dtype = x->dtype;
	for (unsigned i = 0; i < n; i++) {
		if (out->dim[i] < 0)
			hole = (int)i;
		else if (!mul_i64(known, out->dim[i], &known))
			return call_failed(c, "size out of range");
	}
	if (hole >= 0) {
		if (known == 0 || x->numel % known)
			return call_failed(c, "sizes do not fit the tensor");
		out->dim[hole] = x->numel / known;
	} else if (known != x->numel) {
		return call_failed(c, "sizes do not fit the tensor");
	}
	return true;
}

uint32_t
build_view(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = {0};

	(void)n;
	(void)dt;
	if (!infer_sizes(c, "size", x->g, &out))
		return 0;
	if (!geom_view(x->g, out.rank, out.dim, out.stride)) {
		call_failed(c, "view of a tensor that needs a copy");
		return 0;
	}
	return view_of(c, x, out);
}

/* The result of reshape's copy: not a view for the engine, because nobody else has the copy. */
uint32_t
build_unsafe_view(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = {0};

	(void)n;
	(void)dt;
	if (!infer_sizes(c, "size", x->g, &out))
		return 0;
	geom_contiguous(&out);
	return tensor_alias(c->s, x->t, geom_intern(c->s->geoms, out), 0);
}

/* grad.reshape(sizes of the operand): a view, or one clone whose view is not one for the engine. */
uint32_t
build_reshape_as(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[1].g;
	uint32_t t;

	(void)n;
	(void)dt;
	out.dtype = x->g->dtype;
	if (geom_view(x->g, out.rank, out.dim, out.stride))
		return view_of(c, x, out);
	c->kernel = "clone";
	t = fresh_contiguous(c, x->g->rank, x->g->dim, x->g->dtype);
	geom_contiguous(&out);
	return tensor_alias(c->s, t, geom_intern(c->s->geoms, out), 0);
}

static struct geom
permuted(const struct geom *x, const unsigned *perm)
{
	struct geom out = *x;

	for (unsigned i = 0; i < x->rank; i++) {
		out.dim[i] = x->dim[perm[i]];
		out.stride[i] = x->stride[perm[i]];
	}
	return out;
}

uint32_t
build_transpose(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t a = wrap_dim(call_int(c, "dim0", 0), x->g->rank), b = wrap_dim(call_int(c, "dim1", 1), x->g->rank);
	unsigned perm[MAX_RANK];

	(void)n;
	(void)dt;
	if (a < 0 || b < 0)
		return out_of_range(c);
	for (unsigned i = 0; i < MAX_RANK; i++)
		perm[i] = i;
	perm[a] = (unsigned)b;
	perm[b] = (unsigned)a;
	return view_of(c, x, permuted(x->g, perm));
}

static bool
read_perm(struct call *c, unsigned rank, unsigned *perm)
{
	int64_t dims[MAX_RANK];
	unsigned seen = 0, n = call_ints(c, "dims", dims, MAX_RANK);

	if (n != rank)
		return false;
	for (unsigned i = 0; i < n; i++) {
		int64_t d = wrap_dim(dims[i], rank);

		if (d < 0 || seen >> d & 1)
			return false;
		seen |= 1u << d;
		perm[i] = (unsigned)d;
	}
	return true;
}

uint32_t
build_permute(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	unsigned perm[MAX_RANK];

	(void)n;
	(void)dt;
	if (!read_perm(c, x->g->rank, perm))
		return out_of_range(c);
	return view_of(c, x, permuted(x->g, perm));
}

uint32_t
build_permute_back(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	unsigned perm[MAX_RANK], back[MAX_RANK];

	(void)n;
	(void)dt;
	if (!read_perm(c, x->g->rank, perm))
		return out_of_range(c);
	for (unsigned i = 0; i < x->g->rank; i++)
		back[perm[i]] = i;
	return view_of(c, x, permuted(x->g, back));
}

uint32_t
build_reversed(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	unsigned perm[MAX_RANK];

	(void)n;
	(void)dt;
	for (unsigned i = 0; i < x->g->rank; i++)
		perm[i] = x->g->rank - 1u - i;
	return view_of(c, x, permuted(x->g, perm));
}

static void
insert_dim(struct geom *g, unsigned d)
{
	int64_t stride = d < g->rank ? geom_times(g->dim[d], g->stride[d]) : 1;

	memmove(g->dim + d + 1, g->dim + d, (g->rank - d) * sizeof *g->dim);
	memmove(g->stride + d + 1, g->stride + d, (g->rank - d) * sizeof *g->stride);
	g->dim[d] = 1;
	g->stride[d] = stride;
	g->rank++;
}

static void
remove_dim(struct geom *g, unsigned d)
{
	g->rank--;
	memmove(g->dim + d, g->dim + d + 1, (g->rank - d) * sizeof *g->dim);
	memmove(g->stride + d, g->stride + d + 1, (g->rank - d) * sizeof *g->stride);
}

uint32_t
build_unsqueeze(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank + 1u);

	(void)n;
	(void)dt;
	if (d < 0 || out.rank == MAX_RANK)
		return out_of_range(c);
	insert_dim(&out, (unsigned)d);
	return view_of(c, x, out);
}

uint32_t
build_squeezed(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank);

	(void)n;
	(void)dt;
	if (d < 0 || !out.rank)
		return out_of_range(c);
	remove_dim(&out, (unsigned)d);
	return view_of(c, x, out);
}

uint32_t
build_squeeze(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t dims[MAX_RANK];
	unsigned count = call_ints(c, "dim", dims, MAX_RANK), mask = 0;

	(void)n;
	(void)dt;
	for (unsigned i = 0; i < count; i++) {
		int64_t d = wrap_dim(dims[i], out.rank);

		if (d < 0)
			return out_of_range(c);
		mask |= 1u << d;
	}
	if (call_arg(c, "dim")->kind == ARG_NONE)
		mask = ~0u;
	for (unsigned d = out.rank; d-- > 0;)
		if (mask >> d & 1 && out.dim[d] == 1)
			remove_dim(&out, d);
	return view_of(c, x, out);
}

/* unsqueeze_to: the operand's dims of size 1 come back; one call of unsqueeze each. */
uint32_t
build_unsqueezed_to(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	(void)dt;
	for (unsigned d = 0; d < x[1].g->rank && out.rank < x[1].g->rank; d++)
		if (x[1].g->dim[d] == 1 && (d >= out.rank || out.dim[d] != 1 || out.rank < x[1].g->rank))
			insert_dim(&out, d);
	return view_of(c, x, out);
}

static struct geom
expanded(const struct geom *x, unsigned rank, const int64_t *dim)
{
	struct geom out = {.rank = (uint8_t)rank, .dtype = x->dtype};
	unsigned pad = rank - x->rank;

	for (unsigned i = 0; i < rank; i++) {
		out.dim[i] = dim[i] < 0 && i >= pad ? x->dim[i - pad] : dim[i];
		out.stride[i] = i < pad || (x->dim[i - pad] == 1 && out.dim[i] != 1) ? 0 : x->stride[i - pad];
	}
	return out;
}

uint32_t
build_expand(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[MAX_RANK];
	unsigned rank = call_ints(c, "size", dim, MAX_RANK);

	(void)n;
	(void)dt;
	if (rank < x->g->rank) {
		call_failed(c, "fewer sizes than dims");
		return 0;
	}
	return view_of(c, x, expanded(x->g, rank, dim));
}

/* at::sum_to: one sum with keepdim over the broadcast dims, then a view without the leading ones. */
uint32_t
build_sum_to(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *g = x[0].g, *to = x[1].g;
	unsigned pad = g->rank > to->rank ? (unsigned)g->rank - to->rank : 0;
	struct geom kept = *g, out = *to;
	struct operand y = x[0];
	bool reduce = pad > 0;

	(void)n;
	(void)dt;
	for (unsigned i = 0; i < g->rank; i++)
		if (i < pad || (to->dim[i - pad] == 1 && g->dim[i] != 1)) {
			kept.dim[i] = 1;
			reduce = true;
		}
	if (!reduce)
		return x[0].t;
	c->kernel = "sum";
	y.t = fresh_contiguous(c, kept.rank, kept.dim, g->dtype);
	if (!pad)
		return y.t;
	y.g = geom_at(c->s, y.t);
	out.dtype = g->dtype;
	for (unsigned i = 0; i < to->rank; i++)
		out.stride[i] = y.g->stride[i + pad];
	return view_of(c, &y, out);
}

uint32_t
build_slice(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank), step = call_int(c, "step", 1), size, start, end;

	(void)n;
	(void)dt;
	if (d < 0 || !out.rank || step < 1)
		return out_of_range(c);
	size = out.dim[d];
	start = call_int(c, "start", 0);
	end = call_int(c, "end", INT64_MAX);
	start = start < 0 ? start + size : start;
	end = end < 0 ? end + size : end;
	start = start < 0 ? 0 : start > size ? size : start;
	end = end < start ? start : end > size ? size : end;
	out.dim[d] = end > start ? (end - start - 1) / step + 1 : 0;
	out.stride[d] = geom_times(out.stride[d], step);
	return view_of(c, x, out);
}

/* slice_scatter(g, zeros_like(src)) and its like */
uint32_t
build_scattered(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t zeros = n > 1 && x[1].g ? build_like(c, &x[1], 1, x->g->dtype) : 0, t = build_full(c, x, 1, dt);

	temps_drop(c->s, zeros);
	return t;
}

uint32_t
build_diag_embed(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t a = wrap_dim(call_int(c, "dim1", -2), out.rank + 1u), b = wrap_dim(call_int(c, "dim2", -1), out.rank + 1u), off = call_int(c, "offset", 0);
	int64_t size, dim[MAX_RANK];
	unsigned from = 0;

	(void)n;
	if (a < 0 || b < 0 || a == b || !out.rank || out.rank == MAX_RANK)
		return out_of_range(c);
	size = out.dim[out.rank - 1] + (off < 0 ? -off : off);
	for (unsigned i = 0; i <= out.rank; i++)
		dim[i] = i == a || i == b ? size : out.dim[from++];
	return fresh_contiguous(c, out.rank + 1u, dim, dt ? dt : out.dtype);
}

uint32_t
build_select(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank);

	(void)n;
	(void)dt;
	if (d < 0 || !out.rank)
		return out_of_range(c);
	remove_dim(&out, (unsigned)d);
	return view_of(c, x, out);
}

uint32_t
build_diagonal(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t a = wrap_dim(call_int(c, "dim1", 0), out.rank), b = wrap_dim(call_int(c, "dim2", 1), out.rank), off = call_int(c, "offset", 0);
	int64_t rows, cols, len, stride;

	(void)n;
	(void)dt;
	if (a < 0 || b < 0 || a == b)
		return out_of_range(c);
	rows = out.dim[a] + (off < 0 ? off : 0);
	cols = out.dim[b] - (off > 0 ? off : 0);
	len = rows < cols ? rows : cols;
	stride = out.stride[a] + out.stride[b];
	remove_dim(&out, (unsigned)(a > b ? a : b));
	remove_dim(&out, (unsigned)(a > b ? b : a));
	out.dim[out.rank] = len > 0 ? len : 0;
	out.stride[out.rank] = stride;
	out.rank++;
	return view_of(c, x, out);
}

uint32_t
build_unfold(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dimension", 0), out.rank), size = call_int(c, "size", 1), step = call_int(c, "step", 1);

	(void)n;
	(void)dt;
	if (d < 0 || step < 1 || size > (out.rank ? out.dim[d] : 1) || out.rank == MAX_RANK)
		return out_of_range(c);
	out.dim[out.rank] = size;
	out.stride[out.rank] = out.rank ? out.stride[d] : 1;
	if (out.rank) {
		out.dim[d] = (out.dim[d] - size) / step + 1;
		out.stride[d] = geom_times(out.stride[d], step);
	}
	out.rank++;
	return view_of(c, x, out);
}

uint32_t
build_as_strided(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = {.dtype = x->g->dtype};

	(void)n;
	(void)dt;
	out.rank = (uint8_t)call_ints(c, "size", out.dim, MAX_RANK);
	if (call_ints(c, "stride", out.stride, MAX_RANK) != out.rank)
		return out_of_range(c);
	return view_of(c, x, out);
}

/* as_strided_backward: the gradient is scattered into what stands for the storage. */
uint32_t
build_strided_zeros(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t last = 1;
	uint32_t t;

	(void)n;
	(void)dt;
	for (unsigned i = 0; i < x->g->rank; i++)
		last = geom_bounded(last + geom_times(x->g->dim[i] - 1, x->g->stride[i]));
	if (x->g->numel == 0)
		last = 0;
	t = fresh_contiguous(c, 1, &last, c->ngrads && c->grads[0] ? geom_at(c->s, c->grads[0])->dtype : x->g->dtype);
	return tensor_alias(c->s, t, x->g, TF_VIEW);
}

/* ---- several views: the operator's results ---------------------------------------------------------------- */

#define MAX_PIECES LIMIT(1000000, 64)

static void
push_result(struct call *c, uint32_t t)
{
	struct sim *s = c->s;

	c->several = true;
	ROOM(s->c->a, s->result, s->nresult, s->result_cap, 1);
	s->result[s->nresult++] = t;
}

uint32_t
build_split(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank), left;
	const struct value *size = call_arg(c, "split_size");

	(void)n;
	(void)dt;
	if (d < 0 || !out.rank || (size->kind != ARG_INTS && (size->kind != ARG_INT || size->u.i < 1)))
		return out_of_range(c);
	left = out.dim[d];
	for (uint32_t i = 0; size->kind == ARG_INTS ? i < size->n : (left > 0 || i == 0); i++) {
		int64_t piece = size->kind == ARG_INTS ? size->u.ints[i] : size->u.i;

		if (i == MAX_PIECES)
			return out_of_range(c);
		out.dim[d] = piece < left ? piece : left;
		left -= out.dim[d];
		push_result(c, view_of(c, x, out));
	}
	return c->s->nresult ? c->s->result[0] : 0;
}

uint32_t
build_unbind(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank), count;

	(void)n;
	(void)dt;
	if (d < 0 || !out.rank || out.dim[d] > MAX_PIECES)
		return out_of_range(c);
	count = out.dim[d];
	remove_dim(&out, (unsigned)d);
	for (int64_t i = 0; i < count; i++)
		push_result(c, view_of(c, x, out));
	return c->s->nresult ? c->s->result[0] : 0;
}

/* ---- gradients of reductions --------------------------------------------------------------------------------- */

/* The gradient of a reduction as the input's rank: reduced dims are there with size 1. */
static struct geom
with_reduced(struct call *c, const struct geom *g, const struct geom *to)
{
	struct geom out = *g;
	int64_t dims[MAX_RANK];
	unsigned n = call_ints(c, "dim", dims, MAX_RANK), mask = 0;

	if (g->rank == to->rank)
		return out;
	for (unsigned i = 0; i < n; i++) {
		int64_t d = wrap_dim(dims[i], to->rank);

		mask |= d >= 0 ? 1u << d : 0;
	}
	if (!n)
		mask = ~0u;
	for (unsigned d = 0; d < to->rank && out.rank < to->rank; d++)
		if (mask >> d & 1)
			insert_dim(&out, d);
	return out;
}

uint32_t
build_unreduced(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = with_reduced(c, x[0].g, x[1].g);

	(void)n;
	(void)dt;
	return out.rank == x[0].g->rank ? x[0].t : view_of(c, x, out);
}

uint32_t
build_expand_reduced(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom in = with_reduced(c, x[0].g, x[1].g);

	(void)n;
	(void)dt;
	return view_of(c, x, expanded(&in, x[1].g->rank, x[1].g->dim));
}
