/* Builders for joining, indexing and moving elements: results whose shape follows from several operands or from integer arguments. */
#include "lower.h"

#include <string.h>

static uint32_t
mismatch(struct call *c)
{
	call_failed(c, "shapes do not fit");
	return 0;
}

/* ---- joining ------------------------------------------------------------------------------------------ */

static const struct value *
tensor_list(const struct call *c)
{
	static const struct value none = {.kind = ARG_VALS};
	const struct value *v = call_arg(c, "tensors");

	return v->kind == ARG_VALS ? v : &none;
}

/* cat_compute_output_memory_format: channels-last only if every input is. */
static uint32_t
joined_tensor(struct call *c, struct geom out, bool channels_last)
{
	if (channels_last)
		geom_set_channels_last(&out);
	else
		geom_contiguous(&out);
	return fresh(c, out);
}

uint32_t
build_cat(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *ts = tensor_list(c);
	struct promotion p = {0};
	struct geom out = {0};
	int64_t d = -1;
	bool last = true;

	(void)x;
	(void)n;
	for (uint32_t i = 0; i < ts->n; i++) {
		const struct geom *g = ts->u.ts[i] ? geom_at(c->s, ts->u.ts[i]) : NULL;

		if (!g)
			continue;
		promote_tensor(&p, g);
		if (g->rank == 1 && g->dim[0] == 0)        /* an empty list start joins anything */
			continue;
		last = last && geom_channels_last(g);
		if (d < 0) {
			out = *g;
			d = wrap_dim(call_int(c, "dim", 0), out.rank);
			if (d < 0 || !out.rank)
				return mismatch(c);
		} else if (g->rank != out.rank || !add_i64(out.dim[d], g->dim[d], &out.dim[d])) {
			return mismatch(c);
		}
	}
	out.dtype = (uint8_t)(dt ? dt : promote_result(&p));
	if (d < 0)
		out.rank = 1;
	return joined_tensor(c, out, last && d >= 0);
}

/* The gradient of one piece is a view into the whole (narrow). */
uint32_t
build_cat_piece(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *piece = c->fn->meta[c->elem];
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank);

	(void)n;
	(void)dt;
	if (d < 0 || (piece->rank == 1 && piece->dim[0] == 0 && out.rank != 1))
		return 0;
	out.dim[d] = piece->dim[d];
	return tensor_alias(c->s, x->t, geom_intern(c->s->geoms, out), TF_VIEW);
}

uint32_t
build_stack(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *ts = tensor_list(c);
	struct promotion p = {0};
	struct geom out = {0};
	int64_t d;

	(void)x;
	(void)n;
	if (!ts->n || !ts->u.ts[0])
		return mismatch(c);
	out = *geom_at(c->s, ts->u.ts[0]);
	for (uint32_t i = 0; i < ts->n; i++)
		if (ts->u.ts[i])
			promote_tensor(&p, geom_at(c->s, ts->u.ts[i]));
	d = wrap_dim(call_int(c, "dim", 0), out.rank + 1u);
	if (d < 0 || out.rank == MAX_RANK)
		return mismatch(c);
	memmove(out.dim + d + 1, out.dim + d, (out.rank - (size_t)d) * sizeof *out.dim);
	out.dim[d] = ts->n;
	out.rank++;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : promote_result(&p));
}

uint32_t
build_stack_piece(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank);

	(void)n;
	(void)dt;
	if (d < 0)
		return 0;
	out.rank--;
	memmove(out.dim + d, out.dim + d + 1, (out.rank - (size_t)d) * sizeof *out.dim);
	memmove(out.stride + d, out.stride + d + 1, (out.rank - (size_t)d) * sizeof *out.stride);
	return tensor_alias(c->s, x->t, geom_intern(c->s->geoms, out), TF_VIEW);
}

/* split_backward: pieces that got no gradient are made as zeros, then one cat. */
uint32_t
build_joined(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *size = call_arg(c, "split_size");
	int64_t d = wrap_dim(call_int(c, "dim", 0), x->g->rank), left = x->g->dim[d];
	struct geom piece = *x->g;

	(void)n;
	dt = dt ? dt : grad_dtype(c);
	for (uint32_t i = 0; i < c->ngrads; i++) {
		int64_t want = size->kind == ARG_INTS ? (i < size->n ? size->u.ints[i] : 0) : size->u.i;

		piece.dim[d] = want < left ? want : left;
		left -= piece.dim[d];
		if (!c->grads[i])
			fresh_contiguous(c, piece.rank, piece.dim, dt);
	}
	return fresh_contiguous(c, x->g->rank, x->g->dim, dt);
}

uint32_t
build_restacked(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	dt = dt ? dt : grad_dtype(c);
	for (uint32_t i = 0; i < c->ngrads; i++)
		if (!c->grads[i])
			fresh_contiguous(c, 0, NULL, dt);
	return fresh_contiguous(c, x->g->rank, x->g->dim, dt);
}

/* ---- indexing ------------------------------------------------------------------------------------------- */

uint32_t
build_gathered_rows(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[1].g;

	(void)n;
	if (out.rank + x[0].g->rank - 1u > MAX_RANK || !x[0].g->rank)
		return mismatch(c);
	for (unsigned i = 1; i < x[0].g->rank; i++)
		out.dim[out.rank++] = x[0].g->dim[i];
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : x[0].g->dtype);
}

uint32_t
build_bag_max(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t none = 0;

	(void)dt;
	return call_int(c, "mode", 0) == 2 ? build_gathered_rows(c, x, n, DT_INT64) : fresh_contiguous(c, 1, &none, DT_INT64);
}

struct index_shape {
	struct geom all;           /* broadcast shape of the index tensors */
	bool is_indexed[MAX_RANK];
	unsigned first, last, count;
	bool any;
};

/* A mask picks an unknown number of elements: all of them at most. */
static bool
read_indices(struct call *c, const struct geom *self, struct index_shape *out)
{
	const struct value *ix = call_arg(c, "indices");
	unsigned d = 0;

	*out = (struct index_shape){0};
	if (ix->kind != ARG_VALS)
		return false;
	for (uint32_t i = 0; i < ix->n && d < self->rank; i++) {
		const struct geom *g = ix->u.ts[i] ? geom_at(c->s, ix->u.ts[i]) : NULL;
		const struct geom *pair[2] = {&out->all, g};
		struct geom flat = {.rank = 1}, sum = {0};
		unsigned covers = 1;

		if (!g) {
			d++;
			continue;
		}
		if (g->dtype == DT_BOOL) {
			covers = g->rank ? g->rank : 1;
			flat.dim[0] = g->numel;
			pair[1] = &flat;
		}
		if (!geom_broadcast(&sum, pair, 2))
			return false;
		out->all = sum;
		if (!out->any)
			out->first = d;
		out->any = true;
		for (unsigned k = 0; k < covers && d < self->rank; k++)
			out->is_indexed[d++] = true;
		out->last = d - 1;
	}
	for (unsigned i = 0; i < self->rank; i++)
		out->count += out->is_indexed[i];
	return true;
}

/* Indexed dims that are neighbours are replaced where they stand, others move to the front. */
uint32_t
build_indexed(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct index_shape ix;
	struct geom out = {0};
	bool together;

	(void)n;
	if (!read_indices(c, x->g, &ix) || x->g->rank - ix.count + ix.all.rank > MAX_RANK)
		return mismatch(c);
	together = ix.any && ix.last - ix.first + 1 == ix.count;
	for (unsigned d = 0; d <= x->g->rank; d++) {
		if (ix.any && d == (together ? ix.first : 0))
			for (unsigned k = 0; k < ix.all.rank; k++)
				out.dim[out.rank++] = ix.all.dim[k];
		if (d < x->g->rank && !ix.is_indexed[d])
			out.dim[out.rank++] = x->g->dim[d];
	}
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : x->g->dtype);
}

uint32_t
build_index_select(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[0].g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank);

	(void)n;
	if (d < 0 || !x[1].g)
		return mismatch(c);
	if (out.rank)
		out.dim[d] = x[1].g->numel;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* accumulate: the gradient itself; else grad.index_put(indices, zeros_like(values)). */
uint32_t
build_index_put_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	if (call_bool(c, "accumulate"))
		return x[0].t;
	if (x[1].g)
		build_like(c, &x[1], 1, dt);
	return build_like(c, x, 1, dt);
}

uint32_t
build_shaped(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	if (!x[1].g)
		return mismatch(c);
	return fresh_contiguous(c, x[1].g->rank, x[1].g->dim, dt ? dt : x[0].g->dtype);
}

uint32_t
build_flat(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *pair[2] = {x[0].g, x[n - 1].g};
	struct geom all = {0};
	int64_t numel = 1;

	if (!geom_broadcast(&all, pair, 2))
		return mismatch(c);
	for (unsigned i = 0; i < all.rank; i++)
		numel = geom_times(numel, all.dim[i]);
	return fresh_contiguous(c, 1, &numel, dt ? dt : x[0].g->dtype);
}

uint32_t
build_nonzero(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[2] = {call_int(c, "size", x->g->numel), x->g->rank};

	(void)n;
	return fresh_contiguous(c, 2, dim, dt ? dt : DT_INT64);
}

uint32_t
build_one_hot(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	if (out.rank == MAX_RANK || call_int(c, "num_classes", -1) < 0)
		return mismatch(c);
	out.dim[out.rank++] = call_int(c, "num_classes", 0);
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : DT_INT64);
}

uint32_t
build_multinomial(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	if (out.rank)
		out.dim[out.rank - 1] = call_int(c, "num_samples", 1);
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : DT_INT64);
}

uint32_t
build_topk(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", -1), out.rank);

	(void)n;
	if (d < 0)
		return mismatch(c);
	if (out.rank)
		out.dim[d] = call_int(c, "k", 1);
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* ---- moving ------------------------------------------------------------------------------------------------ */

uint32_t
build_repeat(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t times[MAX_RANK];
	unsigned rank = call_ints(c, "repeats", times, MAX_RANK);

	(void)n;
	if (rank < x->g->rank)
		return mismatch(c);
	for (unsigned i = 0; i < x->g->rank; i++)
		if (!mul_i64(times[rank - x->g->rank + i], x->g->dim[i], &times[rank - x->g->rank + i]))
			return mismatch(c);
	return fresh_contiguous(c, rank, times, dt ? dt : x->g->dtype);
}

/* pad: pairs (before, after), the last dim first. */
uint32_t
build_padded(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t pad[2 * MAX_RANK];
	unsigned count = call_ints(c, "pad", pad, 2 * MAX_RANK);

	(void)n;
	if (count % 2 || count / 2 > out.rank)
		return mismatch(c);
	for (unsigned i = 0; i < count / 2; i++) {
		int64_t *d = &out.dim[out.rank - 1 - i];

		*d += pad[2 * i] + pad[2 * i + 1];
		if (*d < 0)
			return mismatch(c);
	}
	if (dt)
		out.dtype = (uint8_t)dt;
	return joined_tensor(c, out, geom_channels_last(x->g));
}

static uint32_t
shuffled(struct call *c, const struct geom *x, int64_t r, bool up)
{
	struct geom out = *x;
	int64_t *dim = out.dim + out.rank - 3;

	if (out.rank < 3 || r < 1)
		return mismatch(c);
	dim[0] = up ? dim[0] / geom_times(r, r) : geom_times(dim[0], geom_times(r, r));
	dim[1] = up ? geom_times(dim[1], r) : dim[1] / r;
	dim[2] = up ? geom_times(dim[2], r) : dim[2] / r;
	return fresh_contiguous(c, out.rank, out.dim, out.dtype);
}

uint32_t
build_pixel_shuffle(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	(void)dt;
	return shuffled(c, x->g, call_int(c, "upscale_factor", 1), true);
}

uint32_t
build_pixel_unshuffle(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	(void)dt;
	return shuffled(c, x->g, call_int(c, "downscale_factor", 1), false);
}

uint32_t
build_im2col(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t k[2], dil[2], pad[2], step[2], dim[3], blocks = 1;
	const struct geom *g = x->g;

	(void)n;
	if (g->rank != 4 || call_ints(c, "kernel_size", k, 2) != 2 || call_ints(c, "dilation", dil, 2) != 2 || call_ints(c, "padding", pad, 2) != 2 ||
	    call_ints(c, "stride", step, 2) != 2 || step[0] < 1 || step[1] < 1)
		return mismatch(c);
	for (unsigned i = 0; i < 2; i++)
		blocks = geom_times(blocks, (g->dim[2 + i] + 2 * pad[i] - geom_times(dil[i], k[i] - 1) - 1) / step[i] + 1);
	dim[0] = g->dim[0];
	dim[1] = geom_times(g->dim[1], geom_times(k[0], k[1]));
	dim[2] = blocks;
	return fresh_contiguous(c, 3, dim, dt ? dt : g->dtype);
}

uint32_t
build_col2im(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t k[2], dim[4];

	(void)n;
	if (x->g->rank != 3 || call_ints(c, "kernel_size", k, 2) != 2 || call_ints(c, "output_size", dim + 2, 2) != 2 || k[0] < 1 || k[1] < 1)
		return mismatch(c);
	dim[0] = x->g->dim[0];
	dim[1] = x->g->dim[1] / (k[0] * k[1]);
	return fresh_contiguous(c, 4, dim, dt ? dt : x->g->dtype);
}

/* ---- tensors out of numbers -------------------------------------------------------------------------------------- */

static double
number(const struct value *v, double dflt)
{
	return v->kind == ARG_INT ? (double)v->u.i : v->kind == ARG_FLOAT ? v->u.f : dflt;
}

uint32_t
build_arange(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *start = call_arg(c, "start"), *end = call_arg(c, "end"), *step = call_arg(c, "step");
	double a = number(start, 0), b = number(end, 0), s = number(step, 1), count;
	int64_t dim;
	bool real = start->kind == ARG_FLOAT || end->kind == ARG_FLOAT || step->kind == ARG_FLOAT;

	(void)x;
	(void)n;
	if (s == 0 || end->kind == ARG_NONE)
		return mismatch(c);
	count = (b - a) / s;
	dim = count <= 0 || count > 1e15 ? 0 : (int64_t)count + ((double)(int64_t)count < count);
	dt = dt ? dt : call_dtype(c, "dtype");
	return fresh_contiguous(c, 1, &dim, dt ? dt : real ? DT_FP32 : DT_INT64);
}

uint32_t
build_bins(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t bins = call_int(c, "bins", 0);

	(void)n;
	return fresh_contiguous(c, 1, &bins, dt ? dt : x->g->dtype);
}

uint32_t
build_linspace(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t steps = call_int(c, "steps", 0);

	(void)x;
	(void)n;
	dt = dt ? dt : call_dtype(c, "dtype");
	return fresh_contiguous(c, 1, &steps, dt ? dt : DT_FP32);
}

static unsigned
fill_dtype(const struct call *c)
{
	const struct value *v = c->code ? call_arg(c, "fill_value") : NULL;
	unsigned dt = call_dtype(c, "dtype");

	if (dt)
		return dt;
	if (v && v->kind == ARG_BOOL)
		return DT_BOOL;
	return v && v->kind == ARG_INT ? DT_INT64 : DT_FP32;
}

uint32_t
build_sized(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[MAX_RANK];
	unsigned rank = call_ints(c, "size", dim, MAX_RANK);

	(void)x;
	(void)n;
	return fresh_contiguous(c, rank, dim, dt ? dt : fill_dtype(c));
}

uint32_t
build_sized_as(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[MAX_RANK];
	unsigned rank = call_ints(c, "size", dim, MAX_RANK);

	(void)n;
	dt = dt ? dt : call_dtype(c, "dtype");
	return fresh_contiguous(c, rank, dim, dt ? dt : x->g->dtype);
}

uint32_t
build_refolded(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[MAX_RANK];
	unsigned rank = call_ints(c, "input_sizes", dim, MAX_RANK);

	(void)n;
	return fresh_contiguous(c, rank, dim, dt ? dt : x->g->dtype);
}

uint32_t
build_eye(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t rows = call_int(c, "n", 0), dim[2] = {rows, call_int(c, "m", rows)};

	(void)x;
	(void)n;
	dt = dt ? dt : call_dtype(c, "dtype");
	return fresh_contiguous(c, 2, dim, dt ? dt : DT_FP32);
}

uint32_t
build_tril_indices(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t row = call_int(c, "row", 0), col = call_int(c, "col", 0), k = call_int(c, "offset", 0) + 1, dim[2] = {2, 0}, n_ramp;

	(void)x;
	(void)n;
	if (row < 0 || col < 0)
		return mismatch(c);
	row = k < 0 ? row + k : row;           /* rows above the first element */
	k = k < 0 ? 0 : k > col ? col : k;     /* elements of the first row; each has one more, up to all */
	row = row < 0 ? 0 : row;
	n_ramp = row < col - k ? row : col - k;
	dim[1] = geom_bounded(geom_times(n_ramp, 2 * k + n_ramp - 1) / 2 + geom_times(row - n_ramp, col));
	return fresh_contiguous(c, 2, dim, dt ? dt : DT_INT64);
}
