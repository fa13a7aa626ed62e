/* Compositions: Fourier transforms of the torch.fft family and of short times, the two parts of complex numbers. */
#include "lower.h"

#include <string.h>

/* ---- parts ------------------------------------------------------------------------------------------------------------ */

static bool
is_complex(const struct sim *s, uint32_t t)
{
	return dtype_info(geom_at(s, t)->dtype)->cat == CAT_COMPLEX;
}

static uint32_t
part(struct call *c, int64_t which)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s);

	if (!self || !is_complex(s, self))
		return self;
	return temps_keep(s, mark, CALL(s, SELECT, V_TENSOR(CALL(s, VIEW_AS_REAL, V_TENSOR(self))), V_INT(-1), V_INT(which)));
}

uint32_t
compose_REAL(struct call *c)
{
	return part(c, 0);
}

uint32_t
compose_IMAG(struct call *c)
{
	return part(c, 1);
}

/* ---- transforms ------------------------------------------------------------------------------------------------------- */

enum transform { COMPLEX_TO_COMPLEX, REAL_TO_COMPLEX, COMPLEX_TO_REAL };

struct plan_fft {
	unsigned n, nsize;
	int64_t dim[MAX_RANK], size[MAX_RANK];
};

static bool
read_plan(struct call *c, uint32_t t, struct plan_fft *p)
{
	unsigned rank = geom_at(c->s, t)->rank;
	const char *sizes = op_arg_index(c->op, S("n")) >= 0 ? "n" : "s";

	p->nsize = call_ints(c, sizes, p->size, MAX_RANK);
	p->n = call_ints(c, "dim", p->dim, MAX_RANK);
	if (!p->n) {               /* two, or as many of the last as there are sizes, or all */
		unsigned last = c->op == OP_FFT2 || c->op == OP_RFFT2 || c->op == OP_IRFFT2 || c->op == OP_HFFT2 || c->op == OP_IHFFT2 ? 2 : p->nsize ? p->nsize : rank;

		for (unsigned first = rank > last ? rank - last : 0; first < rank; first++)
			p->dim[p->n++] = first;
	}
	for (unsigned i = 0; i < p->n; i++)
		if ((p->dim[i] = wrap_dim(p->dim[i], rank)) < 0)
			return call_failed(c, "dim out of range");
	return p->n && (!p->nsize || p->nsize == p->n) ? true : call_failed(c, "sizes do not fit the tensor");
}

/* Cuts dims that are too long, then pads those that are too short, all at once. */
static uint32_t
resized(struct sim *s, uint32_t t, const struct plan_fft *p, const int64_t *size)
{
	int64_t pad[2 * MAX_RANK] = {0};
	unsigned rank = geom_at(s, t)->rank;
	bool short_of = false;

	for (unsigned i = 0; i < p->n; i++) {
		int64_t have = geom_at(s, t)->dim[p->dim[i]];

		if (size[i] < 1)
			continue;
		if (size[i] < have)
			t = CALL(s, SLICE, V_TENSOR(t), V_INT(p->dim[i]), V_INT(0), V_INT(size[i]), V_INT(1));
		pad[2 * (rank - 1 - p->dim[i]) + 1] = size[i] > have ? size[i] - have : 0;
		short_of |= size[i] > have;
	}
	return short_of ? CALL(s, CONSTANT_PAD, V_TENSOR(t), V_INTS(pad, 2 * rank)) : t;
}

static uint32_t
transform(struct call *c, enum transform kind)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t = self;
	struct plan_fft p = {0};
	struct value dims;
	int64_t last;

	if (!self || !read_plan(c, self, &p))
		return 0;
	dims = V_INTS(p.dim, p.n);
	last = p.nsize ? p.size[p.n - 1] : kind == COMPLEX_TO_REAL ? 2 * (geom_at(s, self)->dim[p.dim[p.n - 1]] - 1) : 0;
	if (kind == COMPLEX_TO_REAL && p.nsize)
		p.size[p.n - 1] = last / 2 + 1;
	if (kind != REAL_TO_COMPLEX && !is_complex(s, t) && (p.n > 1 || kind == COMPLEX_TO_REAL))
		t = cast(s, t, complex_of(geom_at(s, t)->dtype));
	if (p.nsize)
		t = resized(s, t, &p, p.size);
	if (kind == COMPLEX_TO_REAL)
		t = CALL(s, FFT_C2R, V_TENSOR(t), dims, V_INT(0), V_INT(last));
	else if (is_complex(s, t))
		t = CALL(s, FFT_C2C, V_TENSOR(t), dims, V_INT(0), V_BOOL(true));
	else
		t = CALL(s, FFT_R2C, V_TENSOR(t), dims, V_INT(0), V_BOOL(kind == REAL_TO_COMPLEX));
	return temps_keep(s, mark, t);
}

/* A complex tensor's own copy: that conj() is a view until it is read is not modelled. */
static uint32_t
conjugate(struct sim *s, uint32_t t)
{
	return t && is_complex(s, t) ? CALL(s, CONJ_COPY, V_TENSOR(t)) : t;
}

uint32_t
compose_CONJ(struct call *c)
{
	return conjugate(c->s, call_tensor(c, "self"));
}

/* The last dim of a Hermitian signal goes to or from real numbers; the others are transformed before or behind it. */
static uint32_t
hermitian(struct call *c, bool to_real)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t = self;
	struct plan_fft p = {0};
	struct value last;
	int64_t size;

	if (!self || !read_plan(c, self, &p))
		return 0;
	last = V_INTS(&p.dim[p.n - 1], 1);
	size = p.nsize ? p.size[p.n - 1] : 2 * (geom_at(s, self)->dim[p.dim[p.n - 1]] - 1);
	if (to_real && p.nsize)
		p.size[p.n - 1] = size / 2 + 1;
	if (to_real && !is_complex(s, t))
		t = cast(s, t, complex_of(geom_at(s, t)->dtype));
	if (p.nsize)
		t = resized(s, t, &p, p.size);
	if (!to_real)
		t = conjugate(s, CALL(s, FFT_R2C, V_TENSOR(t), last, V_INT(0), V_BOOL(true)));
	if (p.n > 1)
		t = CALL(s, FFT_C2C, V_TENSOR(t), V_INTS(p.dim, p.n - 1), V_INT(0), V_BOOL(true));
	if (to_real)
		t = CALL(s, FFT_C2R, V_TENSOR(p.n > 1 ? conjugate(s, t) : CALL(s, CLONE, V_TENSOR(t), V_INT(0))), last, V_INT(0), V_INT(size));
	return temps_keep(s, mark, t);
}

#define HERMITIAN(name, to_real) \
	uint32_t compose_##name(struct call *c) { return hermitian(c, to_real); }
HERMITIAN(HFFT, true)
HERMITIAN(HFFT2, true)
HERMITIAN(HFFTN, true)
HERMITIAN(IHFFT, false)
HERMITIAN(IHFFT2, false)
HERMITIAN(IHFFTN, false)

uint32_t
compose_FFTSHIFT(struct call *c)
{
	uint32_t self = call_tensor(c, "self");
	int64_t dim[MAX_RANK] = {0}, by[MAX_RANK] = {0};
	unsigned n = call_ints(c, "dim", dim, MAX_RANK);

	if (!n)
		for (; self && n < geom_at(c->s, self)->rank; n++)
			dim[n] = n;
	return CALL(c->s, ROLL, V_TENSOR(self), V_INTS(by, n), V_INTS(dim, n));
}

#define FAMILY(name, kind) \
	uint32_t compose_##name(struct call *c) { return transform(c, kind); }
FAMILY(FFT, COMPLEX_TO_COMPLEX)
FAMILY(FFT2, COMPLEX_TO_COMPLEX)
FAMILY(FFTN, COMPLEX_TO_COMPLEX)
FAMILY(RFFT, REAL_TO_COMPLEX)
FAMILY(RFFT2, REAL_TO_COMPLEX)
FAMILY(RFFTN, REAL_TO_COMPLEX)
FAMILY(IRFFT, COMPLEX_TO_REAL)
FAMILY(IRFFT2, COMPLEX_TO_REAL)
FAMILY(IRFFTN, COMPLEX_TO_REAL)

/* ---- short times ------------------------------------------------------------------------------------------------------- */

/* [B, L] becomes overlapping frames, a view; their product with the window; its transform with frequencies before times. */
uint32_t
compose_STFT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t t = call_tensor(c, "self"), window = call_tensor(c, "window"), mark = temps_mark(s);
	int64_t n = call_int(c, "n_fft", 0), hop = call_int(c, "hop_length", n / 4), dim[3], stride[3], last = 2, pad[2];
	bool single = t && geom_at(s, t)->rank == 1;
	const struct geom *g;

	t = single ? CALL(s, UNSQUEEZE, V_TENSOR(t), V_INT(0)) : t;
	g = t ? geom_at(s, t) : NULL;
	if (!g || g->rank != 2 || n < 1 || hop < 1 || g->dim[1] < n) {
		call_failed(c, "sizes do not fit the tensor");
		return 0;
	}
	dim[0] = g->dim[0];
	dim[1] = (g->dim[1] - n) / hop + 1;
	dim[2] = n;
	stride[0] = g->stride[0];
	stride[1] = geom_times(hop, g->stride[1]);
	stride[2] = g->stride[1];
	t = CALL(s, AS_STRIDED, V_TENSOR(t), V_INTS(dim, 3), V_INTS(stride, 3));
	if (window) {
		pad[0] = (n - geom_at(s, window)->numel) / 2;
		pad[1] = n - geom_at(s, window)->numel - pad[0];
		window = pad[0] || pad[1] ? CALL(s, CONSTANT_PAD, V_TENSOR(window), V_INTS(pad, 2)) : window;
		t = CALL(s, MUL, V_TENSOR(t), V_TENSOR(window));
	}
	t = CALL(s, FFT_R2C, V_TENSOR(t), V_INTS(&last, 1), V_INT(0), V_BOOL(call_arg(c, "onesided")->kind != ARG_BOOL || call_bool(c, "onesided")));
	t = do_transpose(s, t, 1, 2);
	t = single ? CALL(s, SQUEEZE, V_TENSOR(t), V_INT(0)) : t;
	t = call_bool(c, "return_complex") ? t : CALL(s, VIEW_AS_REAL, V_TENSOR(t));
	return temps_keep(s, mark, t);
}

/* unfold_backward: frames that are added up to a signal */
static uint32_t
overlapped(struct sim *s, uint32_t frames, int64_t length, int64_t hop)
{
	int64_t size[2] = {frames ? geom_at(s, frames)->dim[0] : 0, length};

	return frames ? CALL(s, UNFOLD_BACKWARD, V_TENSOR(frames), V_INTS(size, 2), V_INT(1), V_INT(geom_at(s, frames)->dim[2]), V_INT(hop)) : 0;
}

/* Of the window, which stands in the middle of a frame if it is shorter: ones if none is given. */
static uint32_t
whole_window(struct call *c, int64_t n)
{
	struct sim *s = c->s;
	uint32_t t = call_tensor(c, "window");
	int64_t width = call_int(c, "win_length", n), pad[2] = {(n - width) / 2, n - width - (n - width) / 2};
	unsigned dt = real_of(geom_at(s, call_tensor(c, "self"))->dtype);

	t = t ? t : CALL(s, ONES, V_INTS(&width, 1), V_DTYPE(dt));
	return width == n ? t : CALL(s, CONSTANT_PAD, V_TENSOR(t), V_INTS(pad, 2));
}

struct istft {
	int64_t n, hop, length;    /* of the signal that all frames make */
	int64_t first, last;       /* what is kept of it; behind its end are zeros */
	bool single;
};

static bool
read_istft(struct call *c, const struct geom *g, struct istft *p)
{
	int64_t cut, wanted = call_int(c, "length", -1);

	p->n = call_int(c, "n_fft", 0);
	p->hop = call_int(c, "hop_length", call_int(c, "win_length", p->n) / 4);
	p->single = g->rank == 2;
	if ((g->rank != 3 && !p->single) || dtype_info(g->dtype)->cat != CAT_COMPLEX || p->n < 1 || p->hop < 1 || g->dim[g->rank - 1] < 1)
		return call_failed(c, "sizes do not fit the tensor");
	p->length = p->n + geom_times(p->hop, g->dim[g->rank - 1] - 1);
	cut = call_bool(c, "center") ? p->n / 2 : 0;
	p->first = cut;
	p->last = wanted >= 0 ? cut + wanted : p->length - cut;
	return p->first <= p->last ? true : call_failed(c, "sizes do not fit the tensor");
}

static uint32_t
kept_of(struct sim *s, uint32_t t, const struct istft *p)
{
	return CALL(s, SLICE, V_TENSOR(t), V_INT(1), V_INT(p->first), V_INT(p->last < p->length ? p->last : p->length), V_INT(1));
}

/* The frames' transforms, weighted and added up, over the squared windows that are added up the same way. */
uint32_t
compose_ISTFT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t t = call_tensor(c, "self"), mark = temps_mark(s), window, envelope, start;
	int64_t last = 2, wide[3] = {1, 0, 0}, pad[2] = {0};
	struct istft p = {0};

	if (!t || !read_istft(c, geom_at(s, t), &p))
		return 0;
	wide[1] = geom_at(s, t)->dim[geom_at(s, t)->rank - 1];
	wide[2] = p.n;
	t = CALL(s, VIEW_AS_REAL, V_TENSOR(t));
	t = p.single ? CALL(s, UNSQUEEZE, V_TENSOR(t), V_INT(0)) : t;
	window = whole_window(c, p.n);
	t = CALL(s, VIEW_AS_COMPLEX, V_TENSOR(do_transpose(s, t, 1, 2)));
	if (call_bool(c, "return_complex"))
		t = CALL(s, FFT_C2C, V_TENSOR(t), V_INTS(&last, 1), V_INT(0), V_BOOL(false));
	else
		t = CALL(s, FFT_C2R, V_TENSOR(t), V_INTS(&last, 1), V_INT(0), V_INT(p.n));
	t = CALL(s, MUL, V_TENSOR(t), V_TENSOR(do_view(s, window, 3, (const int64_t[]){1, 1, p.n})));
	t = overlapped(s, t, p.length, p.hop);
	window = CALL(s, EXPAND, V_TENSOR(CALL(s, POW, V_TENSOR(window), V_INT(2))), V_INTS(wide, 3));
	envelope = overlapped(s, window, p.length, p.hop);
	t = kept_of(s, t, &p);
	envelope = kept_of(s, envelope, &p);
	start = temps_mark(s);         /* is it zero anywhere? */
	window = temps_keep(s, start, CALL(s, LT, V_TENSOR(CALL(s, MIN_ALL, V_TENSOR(CALL(s, ABS, V_TENSOR(envelope))))), V_FLOAT(0)));
	temps_drop(s, CALL(s, LOGICAL_NOT, V_TENSOR(window)));
	t = CALL(s, DIV, V_TENSOR(t), V_TENSOR(envelope));
	pad[1] = p.last - p.length;
	t = pad[1] > 0 ? CALL(s, CONSTANT_PAD, V_TENSOR(t), V_INTS(pad, 2)) : t;
	return temps_keep(s, mark, p.single ? CALL(s, SQUEEZE, V_TENSOR(t), V_INT(0)) : t);
}
