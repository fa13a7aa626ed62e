/* Rules for ONNX operators on images and other grids: convolution, pooling, resampling. */
#include "shape.h"

#include <math.h>

/* ---- windows -------------------------------------------------------------------------------------------------------- */

#define SPATIAL 8

struct window {                    /* per spatial axis */
	unsigned n;
	int64_t kernel[SPATIAL], stride[SPATIAL], dilation[SPATIAL], begin[SPATIAL], end[SPATIAL];
	struct str pad;            /* auto_pad */
	bool known;                /* the kernel's size */
};

static bool
is_same(struct str pad)
{
	return str_eq(pad, S("SAME_UPPER")) || str_eq(pad, S("SAME_LOWER"));
}

#define LARGEST (1 << 30)          /* of anything about a window: products do not overflow */

static bool
fits(int64_t n, int64_t least)
{
	return n >= least && n <= LARGEST;
}

/* w: the kernel's type, for convolutions. */
static struct window
window_of(struct shaper *s, unsigned n, const struct type *w)
{
	struct window k = {.n = n > SPATIAL ? SPATIAL : n, .pad = attr_str(s, "auto_pad"), .known = true};
	int64_t pads[2 * SPATIAL];
	int kernel = attr_ints(s, "kernel_shape", k.kernel, SPATIAL), stride = attr_ints(s, "strides", k.stride, SPATIAL), dilation = attr_ints(s, "dilations", k.dilation, SPATIAL);
	int npad = attr_ints(s, "pads", pads, 2 * SPATIAL);

	for (unsigned i = 0; i < k.n; i++) {
		if (kernel <= (int)i) {
			struct sint size = w && w->rank != RANK_UNKNOWN && i + 2 < w->rank ? w->dim[i + 2] : UNKNOWN;

			k.kernel[i] = size.n;
			k.known &= !size.expr;
		}
		if (stride <= (int)i)
			k.stride[i] = 1;
		if (dilation <= (int)i)
			k.dilation[i] = 1;
		k.begin[i] = npad > (int)(i + k.n) ? pads[i] : 0;
		k.end[i] = npad > (int)(i + k.n) ? pads[i + k.n] : 0;
		k.known &= fits(k.kernel[i], 1) && fits(k.stride[i], 1) && fits(k.dilation[i], 1) && fits(k.begin[i], -LARGEST) && fits(k.end[i], -LARGEST);
	}
	return k;
}

static struct sint
round_up(struct shaper *s, struct sint a, int64_t by)
{
	return quotient(s, add(s, a, SINT(by - 1)), SINT(by));
}

/* Where a window begins: rounded up ones must begin inside of the image or its left padding. */
static struct sint
slide(struct shaper *s, const struct window *k, unsigned i, struct sint x, bool ceil_mode)
{
	int64_t reach = k->dilation[i] * (k->kernel[i] - 1) + 1;
	struct sint room = add(s, x, SINT(k->begin[i] + k->end[i] - reach)), n;

	if (is_same(k->pad))
		return round_up(s, x, k->stride[i]);
	if (str_eq(k->pad, S("VALID")))
		room = add(s, x, SINT(-reach));
	n = add(s, ceil_mode ? round_up(s, room, k->stride[i]) : quotient(s, room, SINT(k->stride[i])), SINT(1));
	if (ceil_mode && !n.expr && !x.expr && (n.n - 1) * k->stride[i] >= x.n + k->begin[i])
		n.n--;
	return n;
}

static void
slide_all(struct shaper *s, const struct window *k, struct type *t, bool ceil_mode)
{
	for (unsigned i = 0; i < k->n; i++)
		t->dim[i + 2] = k->known && !is_unknown(t->dim[i + 2]) ? slide(s, k, i, t->dim[i + 2], ceil_mode) : UNKNOWN;
}

/* ---- convolution ----------------------------------------------------------------------------------------------------- */

static unsigned
conv_dtype(const struct shaper *s, const struct type *x)
{
	switch (s->g->nodes[s->n].op) {
	case OP_ONNX_CONV_INTEGER:
		return DT_INT32;
	case OP_ONNX_QLINEAR_CONV:
		return in(s, "y_zero_point").dtype;
	default:
		return x->dtype;
	}
}

void
rule_conv(struct shaper *s)
{
	bool quantized = s->g->nodes[s->n].op == OP_ONNX_QLINEAR_CONV || s->g->nodes[s->n].op == OP_ONNX_CONV_INTEGER;
	struct type x = type_of(s, operand_at(s, 0)), w = in(s, quantized ? "w" : "W");
	struct window k;

	x.dtype = (uint8_t)conv_dtype(s, &x);
	if (x.rank == RANK_UNKNOWN && w.rank != RANK_UNKNOWN)
		x = typed(x.dtype, w.rank, NULL);
	if (x.rank != RANK_UNKNOWN && x.rank >= 2) {
		k = window_of(s, x.rank - 2u, &w);
		slide_all(s, &k, &x, false);
		x.dim[1] = w.rank == RANK_UNKNOWN ? UNKNOWN : w.dim[0];
	}
	set_type(s, 0, x);
}

void
rule_conv_transpose(struct shaper *s)
{
	struct type x = in(s, "X"), w = in(s, "W"), t = x;
	int64_t more[SPATIAL], shape[MAX_RANK];
	int nmore = attr_ints(s, "output_padding", more, SPATIAL), nshape = attr_ints(s, "output_shape", shape, MAX_RANK);
	struct window k;

	if (x.rank == RANK_UNKNOWN || x.rank < 2) {
		set_type(s, 0, x);
		return;
	}
	k = window_of(s, x.rank - 2u, &w);
	t.dim[1] = w.rank == RANK_UNKNOWN ? UNKNOWN : mul(s, w.dim[1], SINT(attr_int(s, "group")));
	for (unsigned i = 0; i < k.n; i++) {
		int64_t reach = k.dilation[i] * (k.kernel[i] - 1) + 1, extra = nmore > (int)i && fits(more[i], 0) ? more[i] : 0;
		struct sint *d = &t.dim[i + 2];

		if (nshape >= (int)k.n)
			*d = SINT(shape[i + (unsigned)nshape - k.n]);
		else if (!k.known)
			*d = UNKNOWN;
		else if (is_same(k.pad))
			*d = mul(s, *d, SINT(k.stride[i]));
		else
			*d = add(s, mul(s, add(s, *d, SINT(-1)), SINT(k.stride[i])), SINT(extra + reach - k.begin[i] - k.end[i]));
	}
	set_type(s, 0, t);
}

void
rule_causal_conv(struct shaper *s)
{
	struct type x = in(s, "input"), w = in(s, "weight"), t = x;

	set_type(s, 0, x);
	if (x.rank == 3)
		t.dim[2] = w.rank == 3 ? add(s, w.dim[2], SINT(-1)) : UNKNOWN;
	set_type(s, 1, t);
}

/* ---- pooling ------------------------------------------------------------------------------------------------------------- */

void
rule_pool(struct shaper *s)
{
	struct type x = in(s, "X");
	struct window k;

	if (x.rank != RANK_UNKNOWN && x.rank >= 2) {
		k = window_of(s, x.rank - 2u, NULL);
		slide_all(s, &k, &x, attr_int(s, "ceil_mode") != 0);
	}
	set_type(s, 0, x);
	x.dtype = DT_INT64;
	set_type(s, 1, x);
}

void
rule_global_pool(struct shaper *s)
{
	struct type x = in(s, "X");

	for (unsigned i = 2; x.rank != RANK_UNKNOWN && i < x.rank; i++)
		x.dim[i] = SINT(1);
	set_type(s, 0, x);
}

void
rule_max_unpool(struct shaper *s)
{
	struct type x = in(s, "X");
	const struct sint *d;
	struct window k;
	uint32_t n;

	if (operand(s, "output_shape")) {
		bool known = known_ints(s, operand(s, "output_shape"), &d, &n) && n <= MAX_RANK;

		set_result(s, 0, x.dtype, known ? n : x.rank, known ? d : NULL);
		return;
	}
	if (x.rank != RANK_UNKNOWN && x.rank >= 2) {
		k = window_of(s, x.rank - 2u, NULL);
		for (unsigned i = 0; i < k.n; i++)
			x.dim[i + 2] = k.known ? add(s, mul(s, add(s, x.dim[i + 2], SINT(-1)), SINT(k.stride[i])), SINT(k.kernel[i] - k.begin[i] - k.end[i])) : UNKNOWN;
	}
	set_type(s, 0, x);
}

void
rule_roi_pool(struct shaper *s)
{
	struct type x = in(s, "X"), rois = in(s, "rois");
	int64_t shape[2];

	if (attr_ints(s, "pooled_shape", shape, 2) == 2)
		set_result(s, 0, x.dtype, 4, (struct sint[]){rois.dim[0], x.dim[1], SINT(shape[0]), SINT(shape[1])});
}

void
rule_roi_align(struct shaper *s)
{
	struct type x = in(s, "X"), rois = in(s, "rois");

	set_result(s, 0, x.dtype, 4, (struct sint[]){rois.dim[0], x.dim[1], SINT(attr_int(s, "output_height")), SINT(attr_int(s, "output_width"))});
}

/* ---- resampling ------------------------------------------------------------------------------------------------------------ */

static struct sint
scaled(struct shaper *s, struct sint d, double by)
{
	if (by == floor(by) && by >= 0 && by < 1e6)
		return mul(s, d, SINT((int64_t)by));
	if (d.expr || !(by >= 0 && (double)d.n * by < 1e15))
		return UNKNOWN;
	return SINT((int64_t)floor((double)d.n * by));
}

/* One factor for all axes, so that the result fits into the sizes, or covers them. */
static void
keep_ratio(struct type *t, const struct type *x, const int64_t *axes, int n, const struct sint *sizes, bool larger)
{
	double factor = 0;

	for (int i = 0; i < n; i++) {
		double f = x->dim[axes[i]].expr || sizes[i].expr || x->dim[axes[i]].n == 0 ? NAN : (double)sizes[i].n / (double)x->dim[axes[i]].n;

		factor = i == 0 || (larger ? f > factor : f < factor) || isnan(f) ? f : factor;
	}
	for (int i = 0; i < n; i++)
		t->dim[axes[i]] = !(factor >= 0 && (double)x->dim[axes[i]].n * factor < 1e15) ? UNKNOWN : SINT((int64_t)floor((double)x->dim[axes[i]].n * factor + 0.5));
}

void
rule_resize(struct shaper *s)
{
	struct type x = in(s, "X"), t = x;
	struct str policy = attr_str(s, "keep_aspect_ratio_policy");
	int64_t axes[MAX_RANK];
	int n = attr_ints(s, "axes", axes, MAX_RANK);
	const struct sint *sizes;
	const double *scales;
	uint32_t nsizes, nscales;
	bool known;

	if (n < 0)
		for (n = 0; x.rank != RANK_UNKNOWN && n < x.rank; n++)
			axes[n] = n;
	for (int i = 0; i < n; i++)
		if (!wrap_axis(&axes[i], x.rank))
			n = 0;
	known = known_ints(s, operand(s, "sizes"), &sizes, &nsizes) && nsizes == (uint32_t)n;
	if (known && policy.n && !str_eq(policy, S("stretch"))) {
		keep_ratio(&t, &x, axes, n, sizes, str_eq(policy, S("not_smaller")));
		set_type(s, 0, t);
		return;
	}
	if (!known_floats(s, operand(s, "scales"), &scales, &nscales) || nscales != (uint32_t)n)
		scales = NULL;
	for (int i = 0; i < n; i++)
		t.dim[axes[i]] = known ? sizes[i] : scales ? scaled(s, x.dim[axes[i]], scales[i]) : UNKNOWN;
	set_type(s, 0, t);
}

void
rule_grid_sample(struct shaper *s)
{
	struct type x = in(s, "X"), grid = in(s, "grid"), t = x;

	for (unsigned i = 2; x.rank != RANK_UNKNOWN && i < x.rank; i++)
		t.dim[i] = grid.rank == x.rank ? grid.dim[i - 1] : UNKNOWN;
	set_type(s, 0, t);
}

void
rule_affine_grid(struct shaper *s)
{
	const struct sint *d;
	struct type t = typed(in(s, "theta").dtype, RANK_UNKNOWN, NULL);
	uint32_t n;

	if (known_ints(s, operand(s, "size"), &d, &n) && n >= 3 && n <= 5) {
		t = typed(t.dtype, n, NULL);
		t.dim[0] = d[0];
		for (unsigned i = 2; i < n; i++)
			t.dim[i - 1] = d[i];
		t.dim[n - 1] = SINT((int64_t)n - 2);
	}
	set_type(s, 0, t);
}

void
rule_col2im(struct shaper *s)
{
	struct type x = in(s, "input"), t;
	const struct sint *image, *block;
	uint32_t n, m;

	if (!known_ints(s, operand(s, "image_shape"), &image, &n) || n + 2 > MAX_RANK || x.rank != 3) {
		set_result(s, 0, x.dtype, RANK_UNKNOWN, NULL);
		return;
	}
	t = typed(x.dtype, n + 2, NULL);
	t.dim[0] = x.dim[0];
	t.dim[1] = known_ints(s, operand(s, "block_shape"), &block, &m) ? quotient(s, x.dim[1], product(s, block, m)) : UNKNOWN;
	for (unsigned i = 0; i < n; i++)
		t.dim[i + 2] = image[i];
	set_type(s, 0, t);
}

void
rule_image_decoder(struct shaper *s)
{
	struct sint d[3] = {UNKNOWN, UNKNOWN, SINT(str_eq(attr_str(s, "pixel_format"), S("Grayscale")) ? 1 : 3)};

	set_result(s, 0, DT_UINT8, 3, d);
}
