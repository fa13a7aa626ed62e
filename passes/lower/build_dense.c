/* Builders for contractions, convolutions, pooling, resizing and attention: the operators that do the work. */
#include "lower.h"

#include <string.h>

static uint32_t
mismatch(struct call *c)
{
	call_failed(c, "shapes do not fit");
	return 0;
}

/* ---- matrix products ------------------------------------------------------------------------------------- */

uint32_t
build_mm(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[2];

	(void)n;
	if (x[0].g->rank != 2 || x[1].g->rank != 2)
		return mismatch(c);
	dim[0] = x[0].g->dim[0];
	dim[1] = x[1].g->dim[1];
	return fresh_contiguous(c, 2, dim, dt ? dt : x[0].g->dtype);
}

/* A column-major operand's gradient is computed transposed, so that it has the operand's layout. */
static uint32_t
in_layout_of(struct call *c, const struct geom *x, unsigned dt, const char *kernel)
{
	struct geom out = *x, turned = *x;
	unsigned col = out.rank - 1u, row = out.rank - 2u;
	uint32_t t;

	if (out.rank < 2)
		return mismatch(c);
	c->kernel = kernel;
	dt = dt ? dt : grad_dtype(c);
	if (!(x->stride[row] == 1 && x->stride[col] == x->dim[row]))
		return fresh_contiguous(c, out.rank, out.dim, dt);
	turned.dim[row] = out.dim[col];
	turned.dim[col] = out.dim[row];
	t = fresh_contiguous(c, turned.rank, turned.dim, dt);
	out = *geom_at(c->s, t);
	out.dim[row] = x->dim[row];
	out.dim[col] = x->dim[col];
	out.stride[col] = geom_at(c->s, t)->stride[row];
	out.stride[row] = geom_at(c->s, t)->stride[col];
	return tensor_alias(c->s, t, geom_intern(c->s->geoms, out), TF_VIEW);
}

/* mm_mat1_backward, mm_mat2_backward */
uint32_t
build_mm_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return in_layout_of(c, x->g, dt, "mm");
}

/* _grouped_mm_mat1_backward, _grouped_mm_mat2_backward */
uint32_t
build_grouped_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return in_layout_of(c, x->g, dt, "_grouped_mm");
}

uint32_t
build_bmm(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[3];

	(void)n;
	if (x[0].g->rank != 3 || x[1].g->rank != 3)
		return mismatch(c);
	dim[0] = x[0].g->dim[0];
	dim[1] = x[0].g->dim[1];
	dim[2] = x[1].g->dim[2];
	return fresh_contiguous(c, 3, dim, dt ? dt : x[0].g->dtype);
}

uint32_t
build_mv(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	if (x[0].g->rank != 2)
		return mismatch(c);
	return fresh_contiguous(c, 1, x[0].g->dim, dt ? dt : x[0].g->dtype);
}

uint32_t
build_outer(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[2] = {x[0].g->numel, n > 1 && x[1].g ? x[1].g->numel : 1};

	return fresh_contiguous(c, 2, dim, dt ? dt : x[0].g->dtype);
}

uint32_t
build_trilinear(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[0].g;

	if (n < 2 || !x[1].g || !x[1].g->rank || !out.rank)
		return mismatch(c);
	out.dim[out.rank - 1] = x[1].g->dim[0];
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* ---- recurrent cells ------------------------------------------------------------------------------------------- */

uint32_t
build_rows_sum(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	if (!x->g->rank)
		return mismatch(c);
	return fresh_contiguous(c, x->g->rank - 1u, x->g->dim + 1, dt ? dt : x->g->dtype);
}

uint32_t
build_gru_workspace(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[MAX_RANK];

	(void)n;
	memcpy(dim, x->g->dim, sizeof dim);
	if (!x->g->rank || !mul_i64(dim[x->g->rank - 1], 5, &dim[x->g->rank - 1]))
		return mismatch(c);
	return fresh_contiguous(c, x->g->rank, dim, dt ? dt : x->g->dtype);
}

/* ---- convolution --------------------------------------------------------------------------------------------- */

/* An integer list with one entry for each of nd dims; one entry stands for all. */
static bool
spread(struct call *c, const char *name, unsigned nd, int64_t dflt, int64_t *out)
{
	unsigned n = call_ints(c, name, out, MAX_RANK);

	if (n == 0)
		for (unsigned i = 0; i < nd; i++)
			out[i] = dflt;
	else if (n == 1)
		for (unsigned i = 1; i < nd; i++)
			out[i] = out[0];
	else if (n != nd)
		return call_failed(c, "wrong number of sizes");
	return true;
}

/* cudnn_conv_suggest_memory_format: channels-last if the input or the weight is. */
static uint32_t
conv_tensor(struct call *c, struct geom out, const struct geom *x, const struct geom *w)
{
	if ((out.rank == 4 || out.rank == 5) && (geom_channels_last(x) || geom_channels_last(w)))
		geom_set_channels_last(&out);
	else
		geom_contiguous(&out);
	return fresh(c, out);
}

uint32_t
build_convolution(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *in = x[0].g, *w = x[1].g;
	int64_t step[MAX_RANK], pad[MAX_RANK], dil[MAX_RANK], opad[MAX_RANK];
	unsigned nd = w->rank - 2u;
	struct geom out = *in;

	(void)n;
	if (w->rank < 3 || in->rank != w->rank || !spread(c, "stride", nd, 1, step) || !spread(c, "padding", nd, 0, pad) ||
	    !spread(c, "dilation", nd, 1, dil) || !spread(c, "output_padding", nd, 0, opad))
		return mismatch(c);
	out.dim[1] = call_bool(c, "transposed") ? geom_times(w->dim[1], call_int(c, "groups", 1)) : w->dim[0];
	for (unsigned i = 0; i < nd; i++) {
		int64_t k = geom_times(dil[i], w->dim[2 + i] - 1) + 1;

		if (step[i] < 1)
			return mismatch(c);
		if (call_bool(c, "transposed"))
			out.dim[2 + i] = geom_times(in->dim[2 + i] - 1, step[i]) - 2 * pad[i] + k + opad[i];
		else
			out.dim[2 + i] = (in->dim[2 + i] + 2 * pad[i] - k) / step[i] + 1;
		if (out.dim[2 + i] < 0 || (!call_bool(c, "transposed") && in->dim[2 + i] + 2 * pad[i] < k))
			return mismatch(c);
	}
	if (dt)
		out.dtype = (uint8_t)dt;
	return conv_tensor(c, out, in, w);
}

uint32_t
build_conv_dx(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[0].g;

	(void)n;
	out.dtype = (uint8_t)(dt ? dt : grad_dtype(c));
	return conv_tensor(c, out, x[0].g, x[1].g);
}

uint32_t
build_conv_dw(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	return build_conv_dx(c, x, n, dt);
}

/* ---- pooling and resizing --------------------------------------------------------------------------------------- */

static uint32_t
formatted_as(struct call *c, struct geom out, const struct geom *x)
{
	if (geom_channels_last(x) && out.rank == x->rank)
		geom_set_channels_last(&out);
	else
		geom_contiguous(&out);
	return fresh(c, out);
}

uint32_t
build_format_like(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	if (dt)
		out.dtype = (uint8_t)dt;
	return formatted_as(c, out, x->g);
}

/* pooling_output_shape: with ceil_mode the last window must start inside the input or its left padding; it may reach over all of it. */
static int64_t
pool_size(int64_t in, int64_t k, int64_t step, int64_t pad, int64_t dil, bool ceil)
{
	int64_t span = in + 2 * pad - geom_times(dil, k - 1) - 1 + (ceil ? step - 1 : 0), out;

	if (step < 1 || span < 0)
		return span < 0 ? 0 : -1;
	out = span / step + 1;
	if (ceil && geom_times(out - 1, step) >= in + pad)
		out--;
	return out;
}

uint32_t
build_pooled(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t k[MAX_RANK], step[MAX_RANK], pad[MAX_RANK], dil[MAX_RANK];
	struct geom out = *x->g;
	unsigned nd = call_ints(c, "kernel_size", k, MAX_RANK);
	const struct value *stride = call_arg(c, "stride");

	(void)n;
	if (nd == 1 && out.rank > 3)       /* one number for a 2-D or 3-D window */
		nd = out.rank == 5 ? 3 : 2;
	if (nd > out.rank || !spread(c, "kernel_size", nd, 1, k) || !spread(c, "padding", nd, 0, pad) || !spread(c, "dilation", nd, 1, dil))
		return mismatch(c);
	if (stride->kind == ARG_NONE || (stride->kind == ARG_INTS && !stride->n))
		memcpy(step, k, sizeof step);
	else if (!spread(c, "stride", nd, 1, step))
		return mismatch(c);
	for (unsigned i = 0; i < nd; i++) {
		int64_t *d = &out.dim[out.rank - nd + i];

		*d = pool_size(*d, k[i], step[i], pad[i], dil[i], call_bool(c, "ceil_mode"));
		if (*d < 0)
			return mismatch(c);
	}
	if (dt)
		out.dtype = (uint8_t)dt;
	return formatted_as(c, out, x->g);
}

uint32_t
build_unpooled(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t size[MAX_RANK];
	unsigned nd = call_ints(c, "output_size", size, MAX_RANK);

	(void)n;
	if (!nd || nd > out.rank)
		return mismatch(c);
	memcpy(out.dim + out.rank - nd, size, nd * sizeof *size);
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

uint32_t
build_adaptive(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t size[MAX_RANK];
	struct geom out = *x->g;
	unsigned nd = call_ints(c, "output_size", size, MAX_RANK);

	(void)n;
	if (nd > out.rank)
		return mismatch(c);
	for (unsigned i = 0; i < nd; i++)
		out.dim[out.rank - nd + i] = size[i];
	if (dt)
		out.dtype = (uint8_t)dt;
	return formatted_as(c, out, x->g);
}

/* Scripts write whole factors without a point. */
static double
factor_at(const struct value *scale, unsigned i)
{
	return scale->kind == ARG_INTS ? (double)scale->u.ints[i] : scale->u.floats[i];
}

static int64_t
scaled(int64_t dim, double by)
{
	double n = (double)dim * by;

	return n > 0 ? n < (double)GEOM_MOST ? (int64_t)n : GEOM_MOST : 0;
}

uint32_t
build_upsampled(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t size[MAX_RANK];
	struct geom out = *x->g;
	unsigned nd = call_ints(c, "output_size", size, MAX_RANK);
	const struct value *scale = call_arg(c, "scale_factors");

	(void)n;
	if (nd + 2 > out.rank || (!nd && ((scale->kind != ARG_FLOATS && scale->kind != ARG_INTS) || scale->n + 2 > out.rank)))
		return mismatch(c);
	for (unsigned i = 0; i < nd; i++)
		out.dim[out.rank - nd + i] = size[i];
	for (unsigned i = 0; !nd && i < scale->n; i++)
		out.dim[out.rank - scale->n + i] = scaled(out.dim[out.rank - scale->n + i], factor_at(scale, i));
	if (dt)
		out.dtype = (uint8_t)dt;
	return formatted_as(c, out, x->g);
}

uint32_t
build_grid_sampled(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[0].g;

	(void)n;
	if (x[1].g->rank != out.rank)
		return mismatch(c);
	for (unsigned i = 2; i < out.rank; i++)
		out.dim[i] = x[1].g->dim[i - 1];
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* The efficient kernel's layout: [B, S, heads, D] in memory, seen as [B, heads, S, D]. */
uint32_t
build_bshd(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	if (out.rank != 4)
		return mismatch(c);
	if (!c->fn)                        /* the result has the values' head size */
		out.dim[3] = geom_at(c->s, call_tensor(c, "value"))->dim[3];
	out.stride[3] = 1;
	out.stride[1] = out.dim[3];
	out.stride[2] = geom_times(out.dim[3], out.dim[1]);
	out.stride[0] = geom_times(out.stride[2], out.dim[2]);
	if (dt)
		out.dtype = (uint8_t)dt;
	return fresh(c, out);
}

/* The bias' gradient: rows of a multiple of 16 elements, cut to their length. */
uint32_t
build_aligned16(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom whole = *x->g, cut;
	uint32_t t;

	(void)n;
	(void)dt;
	if (!whole.rank || !add_i64(whole.dim[whole.rank - 1], 15, &whole.dim[whole.rank - 1]))
		return mismatch(c);
	whole.dim[whole.rank - 1] &= ~(int64_t)15;
	t = fresh_contiguous(c, whole.rank, whole.dim, whole.dtype);
	cut = *geom_at(c->s, t);
	cut.dim[cut.rank - 1] = x->g->dim[cut.rank - 1];
	return tensor_alias(c->s, t, geom_intern(c->s->geoms, cut), TF_VIEW);
}

uint32_t
build_lse(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	(void)dt;
	if (x->g->rank != 4)
		return mismatch(c);
	return fresh_contiguous(c, 3, x->g->dim, DT_FP32);
}

/* Rounded up to 32 queries; nothing at all if no gradient is needed. */
uint32_t
build_lse32(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[3] = {x->g->dim[0], x->g->dim[1], (x->g->dim[2] + 31) / 32 * 32};

	(void)n;
	(void)dt;
	if (x->g->rank != 4)
		return mismatch(c);
	if (!call_bool(c, "compute_log_sumexp"))
		dim[2] = 0;
	return fresh_contiguous(c, 3, dim, DT_FP32);
}

/* ---- layers that are one kernel ----------------------------------------------------------------------------------- */

uint32_t
build_linear_rows(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[0].g;

	if (n < 2 || !x[1].g || !out.rank || !x[1].g->rank)
		return mismatch(c);
	out.dim[out.rank - 1] = x[1].g->dim[0];
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* ---- ranks of tensor parallelism ------------------------------------------------------------------------------------ */

/* Uneven parts are padded to the first one's size for the collective; what is gathered so is then the front of that, or a copy of it. */
static uint32_t
resized(struct call *c, const struct operand *x, unsigned dt, bool all)
{
	struct geom out = *x->g;
	int64_t d = wrap_dim(call_int(c, "dim", 0), out.rank), ways = call_int(c, "ways", 1), size = 0, padded;
	uint32_t t;

	if (d < 0 || ways < 1)
		return mismatch(c);
	size = all ? call_int(c, "size", 0) : out.dim[d] / ways + (out.dim[d] % ways != 0);
	if (!mul_i64(all ? out.dim[d] : size, ways, &padded))
		return mismatch(c);
	size = size ? size : padded;
	if (padded != (all ? size : out.dim[d])) {
		out.dim[d] = padded;
		t = fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
		if (all && d == 0) {
			out.dim[0] = size;
			out.dtype = (uint8_t)(dt ? dt : out.dtype);
			geom_contiguous(&out);
			return tensor_alias(c->s, t, geom_intern(c->s->geoms, out), 0);
		}
	}
	out.dim[d] = size;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

uint32_t
build_all_parts(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return resized(c, x, dt, true);
}

uint32_t
build_own_part(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return resized(c, x, dt, false);
}

uint32_t
build_own_rows(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t rows = call_int(c, "rows", 0), own = out.dim[0];
	uint32_t t;

	if (!out.rank || rows <= own)
		return build_zeros(c, x, n, dt);
	out.dim[0] = rows;
	t = fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
	out.dim[0] = own;
	out.dtype = geom_at(c->s, t)->dtype;
	geom_contiguous(&out);
	return tensor_alias(c->s, t, geom_intern(c->s->geoms, out), 0);
}

uint32_t
build_log_probs(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	bool low = x->g->dtype == DT_BF16 || x->g->dtype == DT_FP16;

	for (unsigned i = 0; i < (low ? 3u : 1u); i++)
		build_like(c, x, 1, low ? DT_FP32 : DT_NONE);
	return build_like(c, x, n, dt);
}

/* ---- the head and its loss in pieces ------------------------------------------------------------------------------- */

uint32_t
build_grad_if_trained(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const int64_t none[1] = {0};

	if (x->t && needs_grad(c->s, x->t))
		return build_full(c, x, n, dt);
	return fresh_contiguous(c, 1, none, x->g->dtype);
}

/* Rows of a piece, so that its logits take about as much as the hidden states: Liger's fused_linear_cross_entropy.py. */
static int64_t
piece_rows(int64_t tokens, int64_t hidden, int64_t classes)
{
	int64_t pieces = hidden > 0 ? classes / hidden + (classes % hidden != 0) : 1, least, rows = 1;

	least = pieces > 0 ? tokens / pieces + (tokens % pieces != 0) : tokens;
	while (rows < least && rows <= INT64_MAX / 2)
		rows *= 2;
	return rows < tokens ? rows : tokens;
}

/* The weight's gradient of a piece is made in the weight's dtype, and from 16 bits converted before it is added. */
uint32_t
build_loss_pieces(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	bool low = x->g->dtype == DT_BF16 || x->g->dtype == DT_FP16;
	int64_t rows, dim[2];
	uint32_t logits, t;

	(void)dt;
	if (n != 2 || x[0].g->rank != 2 || x[1].g->rank != 2)
		return mismatch(c);
	dim[0] = rows = piece_rows(x[0].g->dim[0], x[0].g->dim[1], x[1].g->dim[0]);
	dim[1] = x[1].g->dim[0];
	logits = fresh_contiguous(c, 2, dim, x[0].g->dtype);
	dim[1] = x[0].g->dim[1];
	t = fresh_contiguous(c, 2, dim, x[0].g->dtype);
	temps_drop(c->s, t);
	if (x[1].t && needs_grad(c->s, x[1].t)) {
		build_full(c, &x[1], 1, x[0].g->dtype);
		if (low)
			build_full(c, &x[1], 1, DT_FP32);
	}
	return logits;
}
