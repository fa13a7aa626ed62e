/*
 * Shapes and strides, as ATen computes them. Strides are not decoration here: they decide whether a
 * reshape is a view or a copy, whether a matmul copies its operands, and whether a gradient can be
 * taken over as it is. Geometries are interned: equal ones are the same pointer.
 */
#include "ir.h"

#include <string.h>

/* ---- the table ----------------------------------------------------------------------------------- */

struct geoms {
	struct arena *a;
	const struct geom **slot;
	uint32_t n, mask;
};

static uint64_t
hash_geom(const struct geom *g)
{
	uint64_t h = (uint64_t)g->rank << 8 | g->dtype;

	for (unsigned i = 0; i < g->rank; i++) {
		h = (h ^ (uint64_t)g->dim[i]) * 0x9e3779b97f4a7c15u;
		h = (h ^ (uint64_t)g->stride[i]) * 0xff51afd7ed558ccdu;
		h ^= h >> 31;
	}
	return h;
}

static bool
same(const struct geom *a, const struct geom *b)
{
	return a->rank == b->rank && a->dtype == b->dtype && memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0 &&
	    memcmp(a->stride, b->stride, a->rank * sizeof *a->stride) == 0;
}

struct geoms *
geoms_new(struct arena *a)
{
	struct geoms *t = NEW(a, struct geoms, 1);

	t->a = a;
	t->mask = 1023;
	t->slot = NEW(a, const struct geom *, t->mask + 1);
	return t;
}

static uint32_t
slot_of(const struct geoms *t, const struct geom *g)
{
	uint32_t i = (uint32_t)hash_geom(g) & t->mask;

	while (t->slot[i] && !same(t->slot[i], g))
		i = (i + 1) & t->mask;
	return i;
}

static void
grow(struct geoms *t)
{
	const struct geom **old = t->slot;
	uint32_t n = t->mask + 1;

	t->mask = n * 2 - 1;
	t->slot = NEW(t->a, const struct geom *, n * 2);
	for (uint32_t i = 0; i < n; i++)
		if (old[i])
			t->slot[slot_of(t, old[i])] = old[i];
}

int64_t
geom_bounded(int64_t n)
{
	return n > GEOM_MOST ? GEOM_MOST : n < -GEOM_MOST ? -GEOM_MOST : n;
}

int64_t
geom_times(int64_t a, int64_t b)
{
	return mul_i64(a, b, &a) ? geom_bounded(a) : GEOM_MOST;
}

/* c10 TensorImpl: contiguous and non-overlapping-and-dense, dims of size 1 ignored. */
static bool
is_contiguous(const struct geom *g)
{
	int64_t k = 1;

	for (unsigned i = g->rank; i-- > 0;) {
		if (g->dim[i] == 1)
			continue;
		if (g->stride[i] != k)
			return false;
		k = geom_times(k, g->dim[i]);
	}
	return true;
}

static bool
is_dense(const struct geom *g)
{
	int64_t k = 1;
	bool used[MAX_RANK] = {false};

	for (unsigned n = 0; n < g->rank; n++) {
		int best = -1;

		for (unsigned i = 0; i < g->rank; i++)
			if (!used[i] && g->dim[i] != 1 && (best < 0 || g->stride[i] < g->stride[best]))
				best = (int)i;
		if (best < 0)
			return true;
		if (g->stride[best] != k)
			return false;
		k = geom_times(k, g->dim[best]);
		used[best] = true;
	}
	return true;
}

const struct geom *
geom_intern(struct geoms *t, struct geom g)
{
	uint32_t i = slot_of(t, &g);
	struct geom *p;

	if (t->slot[i])
		return t->slot[i];
	g.numel = 1;
	for (unsigned d = 0; d < g.rank; d++)
		g.numel = geom_times(g.numel, g.dim[d]);
	g.contiguous = g.numel == 0 || is_contiguous(&g);
	g.dense = g.numel == 0 || is_dense(&g);
	if (++t->n * 2 > t->mask) {
		grow(t);
		i = slot_of(t, &g);
	}
	p = NEW(t->a, struct geom, 1);
	*p = g;
	t->slot[i] = p;
	return p;
}

/* ---- strides ------------------------------------------------------------------------------------------ */

void
geom_contiguous(struct geom *g)
{
	int64_t k = 1;

	for (unsigned i = g->rank; i-- > 0;) {
		g->stride[i] = k;
		k = geom_times(k, g->dim[i] > 1 ? g->dim[i] : 1);
	}
}

/* at::detail::computeStride: the strides of a view with these dims, or false if a copy is needed. */
bool
geom_view(const struct geom *x, unsigned rank, const int64_t *dim, int64_t *stride)
{
	int64_t base, tensor_n = 1, view_n = 1;
	int vd = (int)rank - 1;

	if (x->numel == 0 || x->rank == 0) {
		struct geom g = {.rank = (uint8_t)rank};

		memcpy(g.dim, dim, rank * sizeof *dim);
		geom_contiguous(&g);
		memcpy(stride, g.stride, rank * sizeof *stride);
		return true;
	}
	base = x->stride[x->rank - 1];
	for (int td = x->rank - 1; td >= 0; td--) {
		tensor_n = geom_times(tensor_n, x->dim[td]);
		if (td > 0 && (x->dim[td - 1] == 1 || x->stride[td - 1] == geom_times(tensor_n, base)))
			continue;
		while (vd >= 0 && (view_n < tensor_n || dim[vd] == 1)) {
			stride[vd] = geom_times(view_n, base);
			view_n = geom_times(view_n, dim[vd]);
			vd--;
		}
		if (view_n != tensor_n)
			return false;
		if (td > 0) {
			base = x->stride[td - 1];
			tensor_n = view_n = 1;
		}
	}
	return vd == -1;
}

bool
geom_broadcast(struct geom *out, const struct geom *const *x, unsigned n)
{
	unsigned rank = 0;

	for (unsigned k = 0; k < n; k++)
		rank = x[k]->rank > rank ? x[k]->rank : rank;
	out->rank = (uint8_t)rank;
	for (unsigned i = 0; i < rank; i++)
		out->dim[i] = 1;
	for (unsigned k = 0; k < n; k++)
		for (unsigned i = 0; i < x[k]->rank; i++) {
			int64_t *d = &out->dim[rank - x[k]->rank + i];

			if (*d == 1)
				*d = x[k]->dim[i];
			else if (x[k]->dim[i] != 1 && x[k]->dim[i] != *d)
				return false;
		}
	return true;
}

static int64_t
iter_stride(const struct geom *out, const struct geom *x, unsigned d)
{
	unsigned pad = (unsigned)out->rank - x->rank;

	if (d < pad || (x->dim[d - pad] == 1 && out->dim[d] != 1))
		return 0;
	return x->stride[d - pad];
}

/* TensorIteratorBase::reorder_dimensions: should dim a lie outside dim b? >0 swap, <0 keep, 0 no opinion. */
static int
should_swap(const struct geom *out, const struct geom *const *x, unsigned n, unsigned a, unsigned b)
{
	for (unsigned k = 0; k < n; k++) {
		int64_t sa = iter_stride(out, x[k], a), sb = iter_stride(out, x[k], b);

		if (sa == 0 || sb == 0)
			continue;
		if (sa != sb)
			return sa < sb ? -1 : 1;
		if (out->dim[a] > out->dim[b])
			return 1;
	}
	return 0;
}

void
geom_elementwise(struct geom *out, const struct geom *const *x, unsigned n)
{
	unsigned perm[MAX_RANK], rank = out->rank;
	bool plain = true;
	int64_t k = 1;

	for (unsigned i = 0; i < n; i++)
		plain = plain && x[i]->contiguous && x[i]->rank == rank && memcmp(x[i]->dim, out->dim, rank * sizeof *out->dim) == 0;
	if (plain) {
		geom_contiguous(out);
		return;
	}
	for (unsigned i = 0; i < rank; i++)
		perm[i] = rank - 1 - i;
	for (unsigned i = 1; i < rank; i++)
		for (unsigned d1 = i, d0 = i; d0-- > 0;) {
			int c = should_swap(out, x, n, perm[d0], perm[d1]);

			if (c < 0)
				break;
			if (c > 0) {
				unsigned t = perm[d0];

				perm[d0] = perm[d1];
				perm[d1] = t;
				d1 = d0;
			}
		}
	for (unsigned i = 0; i < rank; i++) {
		out->stride[perm[i]] = k;
		if (out->dim[perm[i]] > 1 && !mul_i64(k, out->dim[perm[i]], &k))
			k = INT64_MAX / 64;
	}
}

void
geom_like(struct geom *out, const struct geom *x)
{
	*out = *x;
	if (!x->dense)
		geom_elementwise(out, &x, 1);
}

/* c10 is_channels_last_strides_2d / _3d. */
bool
geom_channels_last(const struct geom *g)
{
	static const unsigned char order4[] = {1, 3, 2, 0}, order5[] = {1, 4, 3, 2, 0};
	const unsigned char *order = g->rank == 4 ? order4 : order5;
	int64_t low = 0;

	if ((g->rank != 4 && g->rank != 5) || g->stride[1] == 0)
		return false;
	for (unsigned i = 0; i < g->rank; i++) {
		unsigned d = order[i];

		if (g->dim[d] == 0 || g->stride[d] < low || (d == 0 && low == g->stride[1]))
			return false;
		low = geom_times(g->stride[d], g->dim[d] > 1 ? g->dim[d] : 1);
	}
	return true;
}

void
geom_set_channels_last(struct geom *g)
{
	int64_t k = g->dim[1] > 1 ? g->dim[1] : 1;

	g->stride[1] = 1;
	for (unsigned d = g->rank - 1u; d >= 2; d--) {
		g->stride[d] = k;
		k = geom_times(k, g->dim[d] > 1 ? g->dim[d] : 1);
	}
	g->stride[0] = k;
}

bool
geom_same_layout(const struct geom *a, const struct geom *b)
{
	unsigned i = 0, j = 0;

	for (;;) {
		while (i < a->rank && a->dim[i] == 1)
			i++;
		while (j < b->rank && b->dim[j] == 1)
			j++;
		if (i == a->rank || j == b->rank)
			return i == a->rank && j == b->rank;
		if (a->stride[i++] != b->stride[j++])
			return false;
	}
}

uint64_t
geom_nbytes(const struct geom *g)
{
	return dtype_bytes(g->dtype, (uint64_t)g->numel);
}

/* ---- result dtypes (ATen TypeProperties.cpp: update_result_type_state, combine_categories) ----------------- */

static unsigned
promote_ints(unsigned a, unsigned b)
{
	static const uint8_t wider[] = {[8] = DT_INT16, [16] = DT_INT32, [32] = DT_INT64, [64] = DT_INT64};
	const struct dtype_info *x = dtype_info(a), *y = dtype_info(b);
	bool ua = x->name[0] == 'u', ub = y->name[0] == 'u';

	if (x->bits == y->bits && ua != ub)
		return x->bits < 8 ? DT_INT8 : wider[x->bits];
	if (x->bits == y->bits)
		return a;
	if (ua == ub)
		return x->bits > y->bits ? a : b;
	if (x->bits > y->bits ? ua : ub)                   /* the wider one is unsigned */
		return wider[x->bits > y->bits ? x->bits : y->bits];
	return x->bits > y->bits ? a : b;
}

unsigned
dtype_promote(unsigned a, unsigned b)
{
	const struct dtype_info *x = dtype_info(a), *y = dtype_info(b);

	if (a == b || b == DT_NONE)
		return a;
	if (a == DT_NONE)
		return b;
	if (x->cat == CAT_COMPLEX || y->cat == CAT_COMPLEX)
		return a == DT_C128 || b == DT_C128 || a == DT_FP64 || b == DT_FP64 ? DT_C128 : x->cat == y->cat || x->cat < y->cat ? b : a;
	if (x->cat != y->cat)
		return x->cat > y->cat ? a : b;
	if (x->cat == CAT_INT)
		return promote_ints(a, b);
	if (x->bits == y->bits)                            /* fp16 with bf16, or two kinds of fp8 */
		return DT_FP32;
	return x->bits > y->bits ? a : b;
}

void
promote_tensor(struct promotion *p, const struct geom *g)
{
	unsigned *to = g->rank ? &p->dim : &p->zero;

	*to = dtype_promote(*to, g->dtype);
}

void
promote_number(struct promotion *p, unsigned dtype)
{
	p->wrapped = dtype_promote(p->wrapped, dtype);
}

static unsigned
combine(unsigned higher, unsigned lower)
{
	unsigned ch = dtype_info(higher)->cat, cl = dtype_info(lower)->cat;

	if (ch == CAT_COMPLEX)
		return higher;
	if (ch == CAT_FLOAT)
		return cl == CAT_COMPLEX ? (higher == DT_FP64 ? DT_C128 : DT_C64) : higher;
	if (ch == CAT_BOOL || cl == CAT_FLOAT || cl == CAT_COMPLEX)
		return dtype_promote(higher, lower);
	return higher != DT_NONE ? higher : lower;
}

unsigned
promote_result(const struct promotion *p)
{
	return combine(p->dim, combine(p->zero, p->wrapped));
}
