/* Compositions: dtype and layout changes, reshapes, pieces, small elementwise families. */
#include "lower.h"

#include <string.h>

/* ---- no work ------------------------------------------------------------------------------------------ */

uint32_t
compose_NO_OP(struct call *c)
{
	(void)c;
	return 0;
}

uint32_t
compose_IDENTITY(struct call *c)
{
	return call_tensor(c, "self");
}

/* ---- dtype and layout ------------------------------------------------------------------------------------ */

enum { FORMAT_CONTIGUOUS = 0, FORMAT_CHANNELS_LAST = 2 };

static bool
has_format(const struct geom *g, int64_t format)
{
	if (format == FORMAT_CONTIGUOUS)
		return g->contiguous;
	return format < FORMAT_CHANNELS_LAST || geom_channels_last(g);
}

uint32_t
compose_TO(struct call *c)
{
	uint32_t self = call_tensor(c, "self"), other = call_tensor(c, "other");
	unsigned dt = call_dtype(c, "dtype");
	const struct value *format = call_arg(c, "memory_format");

	if (!self)
		return 0;
	if (!dt)
		dt = other ? geom_at(c->s, other)->dtype : geom_at(c->s, self)->dtype;
	if (dt == geom_at(c->s, self)->dtype && !call_bool(c, "copy") && (format->kind != ARG_INT || has_format(geom_at(c->s, self), format->u.i)))
		return self;
	return CALL(c->s, TO_COPY, V_TENSOR(self), V_DTYPE(dt), V_NONE, V_NONE, V_NONE, V_NONE, *format);
}

/* Of a number, which a trace has as a tensor without dims on the CPU, it makes one on the card. */
uint32_t
compose_TYPE_AS(struct call *c)
{
	uint32_t self = call_tensor(c, "self"), other = call_tensor(c, "other");
	const struct value *x = call_arg(c, "self");

	if (other && (x->kind == ARG_INT || x->kind == ARG_FLOAT))
		return CALL(c->s, SCALAR_TENSOR, *x, V_DTYPE(geom_at(c->s, other)->dtype), V_NONE, V_NONE, V_NONE);
	return self && other ? cast(c->s, self, geom_at(c->s, other)->dtype) : self;
}

/* where.ScalarSelf, where.ScalarOther: numbers become 0-dim tensors of the common dtype first. */
uint32_t
compose_WHERE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), other = call_tensor(c, "other"), mark = temps_mark(s);
	struct promotion p = {0};
	struct value dt;

	if (self && other)
		return CALL(s, WHERE_TENSORS, *call_arg(c, "condition"), V_TENSOR(self), V_TENSOR(other));
	if (!self && !other)
		promote_number(&p, call_arg(c, "self")->kind == ARG_FLOAT || call_arg(c, "other")->kind == ARG_FLOAT ? DT_FP32 : DT_INT64);
	else
		promote_tensor(&p, geom_at(s, self ? self : other));
	if (call_arg(c, self ? "other" : "self")->kind == ARG_FLOAT)
		promote_number(&p, DT_FP32);
	dt = V_DTYPE(promote_result(&p));
	if (!other)
		other = CALL(s, SCALAR_TENSOR, V_FLOAT(0), dt);
	if (!self)
		self = CALL(s, SCALAR_TENSOR, V_FLOAT(0), dt);
	return temps_keep(s, mark, CALL(s, WHERE_TENSORS, *call_arg(c, "condition"), V_TENSOR(cast(s, self, dt.dtype)), V_TENSOR(other)));
}

uint32_t
compose_CONTIGUOUS(struct call *c)
{
	uint32_t self = call_tensor(c, "self");
	int64_t format = call_int(c, "memory_format", FORMAT_CONTIGUOUS);

	if (!self || has_format(geom_at(c->s, self), format))
		return self;
	return CALL(c->s, CLONE, V_TENSOR(self), V_INT(format));
}

/* ---- reshapes ------------------------------------------------------------------------------------------------ */

uint32_t
do_view(struct sim *s, uint32_t t, unsigned rank, const int64_t *dim)
{
	return CALL(s, VIEW, V_TENSOR(t), V_INTS(dim, rank));
}

/* reshape: a view where strides allow it, else a copy that nobody else has. dim has no -1. */
uint32_t
do_reshape(struct sim *s, uint32_t t, unsigned rank, const int64_t *dim)
{
	int64_t stride[MAX_RANK];
	uint32_t copy;

	if (!t || geom_view(geom_at(s, t), rank, dim, stride))
		return do_view(s, t, rank, dim);
	copy = CALL(s, CLONE, V_TENSOR(t), V_INT(FORMAT_CONTIGUOUS));
	return CALL(s, UNSAFE_VIEW, V_TENSOR(copy), V_INTS(dim, rank));
}

static bool
fill_hole(struct call *c, const struct geom *g, unsigned rank, int64_t *dim)
{
	int64_t known = 1;
	int hole = -1;

	for (unsigned i = 0; i < rank; i++) {
		if (dim[i] < 0)
			hole = (int)i;
		else if (!mul_i64(known, dim[i], &known))
			return call_failed(c, "size out of range");
	}
	if (hole < 0)
		return known == g->numel ? true : call_failed(c, "sizes do not fit the tensor");
	if (known == 0 || g->numel % known)
		return call_failed(c, "sizes do not fit the tensor");
	dim[hole] = g->numel / known;
	return true;
}

uint32_t
compose_RESHAPE(struct call *c)
{
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(c->s);
	int64_t dim[MAX_RANK];
	unsigned rank = call_ints(c, "shape", dim, MAX_RANK);

	if (!self || !fill_hole(c, geom_at(c->s, self), rank, dim))
		return 0;
	return temps_keep(c->s, mark, do_reshape(c->s, self, rank, dim));
}

uint32_t
compose_FLATTEN(struct call *c)
{
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(c->s);
	const struct geom *g = self ? geom_at(c->s, self) : NULL;
	int64_t first, last, dim[MAX_RANK];
	unsigned rank = 0;

	if (!g)
		return 0;
	first = wrap_dim(call_int(c, "start_dim", 0), g->rank);
	last = wrap_dim(call_int(c, "end_dim", -1), g->rank);
	if (first < 0 || last < first) {
		call_failed(c, "dim out of range");
		return 0;
	}
	if (g->rank && first == last)
		return self;
	if (!g->rank)
		dim[rank++] = 1;
	for (unsigned i = 0; i < g->rank; i++) {
		if (i > first && i <= last)
			dim[rank - 1] = geom_times(dim[rank - 1], g->dim[i]);
		else
			dim[rank++] = g->dim[i];
	}
	return temps_keep(c->s, mark, do_reshape(c->s, self, rank, dim));
}

uint32_t
compose_UNFLATTEN(struct call *c)
{
	uint32_t self = call_tensor(c, "self");
	const struct geom *g = self ? geom_at(c->s, self) : NULL;
	int64_t d = g ? wrap_dim(call_int(c, "dim", 0), g->rank) : -1, sizes[MAX_RANK], dim[MAX_RANK];
	unsigned n = call_ints(c, "sizes", sizes, MAX_RANK), rank = 0;

	if (d < 0 || g->rank + n - 1 > MAX_RANK) {
		call_failed(c, "dim out of range");
		return 0;
	}
	for (unsigned i = 0; i < g->rank; i++) {
		if (i == d) {
			memcpy(dim + rank, sizes, n * sizeof *dim);
			rank += n;
		} else {
			dim[rank++] = g->dim[i];
		}
	}
	return fill_hole(c, g, rank, dim) ? do_view(c->s, self, rank, dim) : 0;
}

uint32_t
do_transpose(struct sim *s, uint32_t t, int64_t a, int64_t b)
{
	return CALL(s, TRANSPOSE, V_TENSOR(t), V_INT(a), V_INT(b));
}

uint32_t
compose_MT(struct call *c)
{
	return do_transpose(c->s, call_tensor(c, "self"), -2, -1);
}

uint32_t
compose_MOVEDIM(struct call *c)
{
	uint32_t self = call_tensor(c, "self");
	unsigned rank = self ? geom_at(c->s, self)->rank : 0, n, m;
	int64_t from[MAX_RANK], to[MAX_RANK], perm[MAX_RANK];
	bool used[MAX_RANK] = {false};

	n = call_ints(c, "source", from, MAX_RANK);
	m = call_ints(c, "destination", to, MAX_RANK);
	if (n != m || !self)
		return 0;
	for (unsigned i = 0; i < rank; i++)
		perm[i] = -1;
	for (unsigned i = 0; i < n; i++) {
		int64_t a = wrap_dim(from[i], rank), b = wrap_dim(to[i], rank);

		if (a < 0 || b < 0)
			return 0;
		perm[b] = a;
		used[a] = true;
	}
	for (unsigned i = 0, next = 0; i < rank; i++) {
		if (perm[i] >= 0)
			continue;
		while (next < rank && used[next])
			next++;
		perm[i] = next++;
	}
	return CALL(c->s, PERMUTE, V_TENSOR(self), V_INTS(perm, rank));
}

uint32_t
compose_EXPAND_AS(struct call *c)
{
	uint32_t other = call_tensor(c, "other");
	const struct geom *g = other ? geom_at(c->s, other) : NULL;

	return g ? CALL(c->s, EXPAND, V_TENSOR(call_tensor(c, "self")), V_INTS(g->dim, g->rank)) : 0;
}

uint32_t
compose_VIEW_AS(struct call *c)
{
	uint32_t other = call_tensor(c, "other");
	const struct geom *g = other ? geom_at(c->s, other) : NULL;

	return g ? do_view(c->s, call_tensor(c, "self"), g->rank, g->dim) : 0;
}

uint32_t
compose_RESHAPE_AS(struct call *c)
{
	uint32_t self = call_tensor(c, "self"), other = call_tensor(c, "other"), mark = temps_mark(c->s);
	const struct geom *g = other ? geom_at(c->s, other) : NULL;

	return self && g ? temps_keep(c->s, mark, do_reshape(c->s, self, g->rank, g->dim)) : 0;
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

uint32_t
compose_NARROW(struct call *c)
{
	int64_t start = call_int(c, "start", 0), length = call_int(c, "length", 0);

	return CALL(c->s, SLICE, V_TENSOR(call_tensor(c, "self")), V_INT(call_int(c, "dim", 0)), V_INT(start), V_INT(start + length), V_INT(1));
}

uint32_t
compose_CHUNK(struct call *c)
{
	uint32_t self = call_tensor(c, "self");
	const struct geom *g = self ? geom_at(c->s, self) : NULL;
	int64_t d = g ? wrap_dim(call_int(c, "dim", 0), g->rank) : -1, chunks = call_int(c, "chunks", 1);

	if (d < 0 || chunks < 1 || !g->rank) {
		call_failed(c, "dim out of range");
		return 0;
	}
	c->several = true;
	return CALL(c->s, SPLIT, V_TENSOR(self), V_INT((g->dim[d] + chunks - 1) / chunks > 0 ? (g->dim[d] + chunks - 1) / chunks : 1), V_INT(d));
}

/* repeat_interleave(x, n, dim): unsqueeze, expand, clone, flatten. */
uint32_t
compose_REPEAT_INTERLEAVE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t;
	const struct geom *g = self ? geom_at(s, self) : NULL;
	const struct value *times = call_arg(c, "repeats");
	int64_t d, wide[MAX_RANK + 1], dim[MAX_RANK];

	if (!g || times->kind != ARG_INT || g->rank >= MAX_RANK) {
		call_failed(c, "repeats is not a number");
		return 0;
	}
	d = call_arg(c, "dim")->kind == ARG_NONE ? -1 : wrap_dim(call_int(c, "dim", 0), g->rank);
	if (d < 0) {
		int64_t flat = g->numel;

		self = do_reshape(s, self, 1, &flat);
		g = geom_at(s, self);
		d = 0;
	}
	if (!self || d >= g->rank) {
		call_failed(c, "sizes do not fit the tensor");
		return 0;
	}
	memcpy(wide, g->dim, (size_t)(d + 1) * sizeof *wide);
	wide[d + 1] = times->u.i;
	memcpy(wide + d + 2, g->dim + d + 1, (g->rank - (size_t)d - 1) * sizeof *wide);
	memcpy(dim, g->dim, g->rank * sizeof *dim);
	dim[d] = geom_times(dim[d], times->u.i);
	t = CALL(s, UNSQUEEZE, V_TENSOR(self), V_INT(d + 1));
	t = CALL(s, EXPAND, V_TENSOR(t), V_INTS(wide, g->rank + 1u));
	t = CALL(s, CLONE, V_TENSOR(t), V_INT(FORMAT_CONTIGUOUS));
	return temps_keep(s, mark, do_view(s, t, g->rank, dim));
}

/* pad: constant_pad_nd, or a copying pad; circular ones (compose_copies.c) copy the pieces. */
uint32_t
compose_PAD(struct call *c)
{
	const struct value *mode = call_arg(c, "mode");

	if (mode->kind == ARG_STR && str_eq(mode->u.s, S("circular")))
		return CALL(c->s, PAD_CIRCULAR, V_TENSOR(call_tensor(c, "self")), *call_arg(c, "pad"));
	if (mode->kind == ARG_STR && !str_eq(mode->u.s, S("constant")))
		return CALL(c->s, PAD_COPYING, V_TENSOR(call_tensor(c, "self")), *call_arg(c, "pad"));
	return CALL(c->s, CONSTANT_PAD, V_TENSOR(call_tensor(c, "self")), *call_arg(c, "pad"));
}

static uint32_t
piece(struct sim *s, uint32_t t, int64_t d, int64_t from, int64_t size)
{
	return CALL(s, SLICE, V_TENSOR(t), V_INT(d), V_INT(from), V_INT(from + size), V_INT(1));
}

/* diff: of cat(prepend, x, append) all but the first minus all but the last; booleans by exclusive or. */
uint32_t
compose_DIFF(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), pre = call_tensor(c, "prepend"), app = call_tensor(c, "append"), mark = temps_mark(s), t = self;
	uint32_t all[3];
	unsigned n = 0;
	int64_t d = self ? wrap_dim(call_int(c, "dim", -1), geom_at(s, self)->rank) : -1;

	if (d < 0 || !geom_at(s, self)->rank) {
		call_failed(c, "dim out of range");
		return 0;
	}
	if (pre)
		all[n++] = pre;
	all[n++] = self;
	if (app)
		all[n++] = app;
	if (n > 1)
		t = CALL(s, CAT, V_TENSORS(all, n), V_INT(d));
	for (int64_t i = call_int(c, "n", 1); t && i > 0 && geom_at(s, t)->dim[d] > 0; i--) {
		int64_t size = geom_at(s, t)->dim[d] - 1;
		bool logical = geom_at(s, t)->dtype == DT_BOOL;
		struct value tail = V_TENSOR(piece(s, t, d, 1, size)), head = V_TENSOR(piece(s, t, d, 0, size));

		t = logical ? CALL(s, LOGICAL_XOR, tail, head) : CALL(s, SUB, tail, head);
	}
	return temps_keep(s, mark, t);
}

/* ---- norms of vectors ---------------------------------------------------------------------------------------------- */

uint32_t
compose_NORM(struct call *c)
{
	const struct value *p = call_arg(c, "p");
	struct value order = p->kind == ARG_INT || p->kind == ARG_FLOAT ? *p : V_INT(2);

	return CALL(c->s, VECTOR_NORM, V_TENSOR(call_tensor(c, "self")), order, *call_arg(c, "dim"), *call_arg(c, "keepdim"), *call_arg(c, "dtype"));
}

uint32_t
compose_PAIRWISE_DISTANCE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t = CALL(s, SUB, c->arg[0], c->arg[1]);

	t = CALL(s, ADD, V_TENSOR(t), V_FLOAT(0.1));
	return temps_keep(s, mark, CALL(s, VECTOR_NORM, V_TENSOR(t), *call_arg(c, "p"), V_INT(-1), *call_arg(c, "keepdim")));
}

uint32_t
compose_OUTER(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), column = CALL(s, UNSQUEEZE, V_TENSOR(call_tensor(c, "self")), V_INT(1));

	return temps_keep(s, mark, CALL(s, MUL, V_TENSOR(column), V_TENSOR(call_tensor(c, "vec2"))));
}
