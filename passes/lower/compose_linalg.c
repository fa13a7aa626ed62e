/* Compositions: products and norms of matrices, distances, diagonals; sums without NaN and other small families. */
#include "lower.h"

#include <string.h>

/* ---- products ----------------------------------------------------------------------------------------------------------- */

uint32_t
compose_INNER(struct call *c)
{
	uint32_t a = call_tensor(c, "self"), b = call_tensor(c, "other");
	int64_t last = -1;

	if (a && b && geom_at(c->s, a)->rank == 1 && geom_at(c->s, b)->rank == 1)
		return CALL(c->s, DOT, V_TENSOR(a), V_TENSOR(b));
	if (!a || !b || !geom_at(c->s, a)->rank || !geom_at(c->s, b)->rank)
		return CALL(c->s, MUL, V_TENSOR(a), V_TENSOR(b));
	return CALL(c->s, TENSORDOT, V_TENSOR(a), V_TENSOR(b), V_INTS(&last, 1), V_INTS(&last, 1));
}

uint32_t
compose_VECDOT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), product = CALL(s, MUL, V_TENSOR(call_tensor(c, "x")), V_TENSOR(call_tensor(c, "y")));

	return temps_keep(s, mark, CALL(s, SUM, V_TENSOR(product), V_INT(call_int(c, "dim", -1))));
}

#define MOST_FACTORS 24u

struct chain {
	struct sim *s;
	const uint32_t *t;
	uint8_t cut[MOST_FACTORS][MOST_FACTORS];      /* where the product of i..j is cut */
};

/* Factors i..j; at most MOST_FACTORS deep. */
static uint32_t
multiply(const struct chain *m, unsigned i, unsigned j)
{
	uint32_t a, b;

	if (i == j)
		return m->t[i];
	a = multiply(m, i, m->cut[i][j]);
	b = multiply(m, m->cut[i][j] + 1u, j);
	return CALL(m->s, MM, V_TENSOR(a), V_TENSOR(b));
}

/* The order with the fewest multiplications; of three factors the first two on a tie. */
static void
plan_chain(struct chain *m, unsigned n)
{
	double cost[MOST_FACTORS][MOST_FACTORS] = {{0}};

	for (unsigned len = 1; len < n; len++)
		for (unsigned i = 0; i + len < n; i++) {
			unsigned j = i + len;

			cost[i][j] = -1;
			for (unsigned k = j; k-- > i;) {
				double work = cost[i][k] + cost[k + 1][j] + (double)geom_at(m->s, m->t[i])->dim[0] *
				    (double)geom_at(m->s, m->t[k])->dim[1] * (double)geom_at(m->s, m->t[j])->dim[1];

				if (cost[i][j] < 0 || work < cost[i][j]) {
					cost[i][j] = work;
					m->cut[i][j] = (uint8_t)k;
				}
			}
		}
}

uint32_t
compose_MULTI_DOT(struct call *c)
{
	const struct value *v = call_arg(c, "tensors");
	struct sim *s = c->s;
	uint32_t t[MOST_FACTORS], mark = temps_mark(s);
	struct chain m = {.s = s, .t = t};
	unsigned n = v->kind == ARG_VALS ? v->n : 0;

	if (n < 2 || n > MOST_FACTORS) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		t[i] = v->u.ts[i];
		if (t[i] && geom_at(s, t[i])->rank == 1 && (i == 0 || i == n - 1))
			t[i] = CALL(s, UNSQUEEZE, V_TENSOR(t[i]), V_INT(i ? 1 : 0));
		if (!t[i] || geom_at(s, t[i])->rank != 2) {
			call_failed(c, "operands do not fit together");
			return 0;
		}
	}
	plan_chain(&m, n);
	t[0] = multiply(&m, 0, n - 1);
	if (v->u.ts[n - 1] && geom_at(s, v->u.ts[n - 1])->rank == 1)
		t[0] = CALL(s, SQUEEZE, V_TENSOR(t[0]), V_INT(1));
	if (geom_at(s, v->u.ts[0])->rank == 1)
		t[0] = CALL(s, SQUEEZE, V_TENSOR(t[0]), V_INT(0));
	return temps_keep(s, mark, t[0]);
}

/* ---- distances and norms -------------------------------------------------------------------------------------------------- */

enum { BY_SIZE = 0, BY_PRODUCT = 1, MANY_ROWS = 25 };

/* Euclidean distances of many rows go by a matrix product. */
uint32_t
compose_CDIST(struct call *c)
{
	struct sim *s = c->s;
	uint32_t a = call_tensor(c, "x1"), b = call_tensor(c, "x2");
	int64_t mode = call_int(c, "compute_mode", BY_SIZE);
	const struct value *p = call_arg(c, "p");
	bool euclidean = (p->kind == ARG_FLOAT && p->u.f == 2) || (p->kind == ARG_INT && p->u.i == 2);
	const struct geom *ga = a ? geom_at(s, a) : NULL, *gb = b ? geom_at(s, b) : NULL;

	if (!ga || !gb || ga->rank < 2 || gb->rank < 2) {
		call_failed(c, "operands do not fit together");
		return 0;
	}
	if (euclidean && (mode == BY_PRODUCT || (mode == BY_SIZE && (ga->dim[ga->rank - 2] > MANY_ROWS || gb->dim[gb->rank - 2] > MANY_ROWS))))
		return CALL(s, EUCLIDEAN_DIST, V_TENSOR(a), V_TENSOR(b));
	return CALL(s, CDIST_FORWARD, V_TENSOR(a), V_TENSOR(b), *p, V_INT(mode));
}

enum norm { NORM_FROBENIUS, NORM_NUCLEAR, NORM_SPECTRAL, NORM_SUMS };

/* 'fro', 'nuc', the largest or smallest singular value, the largest or smallest sum of a column or row */
static enum norm
norm_kind(const struct value *ord)
{
	double p = ord->kind == ARG_FLOAT ? ord->u.f : ord->kind == ARG_INT ? (double)ord->u.i : 0;

	if (ord->kind == ARG_STR)
		return str_eq(ord->u.s, S("nuc")) ? NORM_NUCLEAR : NORM_FROBENIUS;
	return p == 2 || p == -2 ? NORM_SPECTRAL : p == 0 ? NORM_FROBENIUS : NORM_SUMS;
}

/* One of each matrix's values, and the dims that it stands for put back. */
static uint32_t
norm_of_values(struct call *c, uint32_t t, bool sum, const int64_t *dim)
{
	struct sim *s = c->s;
	bool keep = call_bool(c, "keepdim");
	int64_t last = -1;
	unsigned rank = geom_at(s, t)->rank;

	(void)dim;
	t = CALL(s, SVDVALS, V_TENSOR(t));
	t = sum ? CALL(s, SUM, V_TENSOR(t), V_INTS(&last, 1), V_BOOL(keep)) : CALL(s, AMAX, V_TENSOR(t), V_INTS(&last, 1), V_BOOL(keep));
	return keep && t && geom_at(s, t)->rank < rank ? CALL(s, UNSQUEEZE, V_TENSOR(t), V_INT(-1)) : t;
}

static uint32_t
matrix_norm(struct call *c, const struct value *ord, const int64_t *dim)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t = self;
	unsigned rank = self ? geom_at(s, self)->rank : 0;
	struct value keep = V_BOOL(call_bool(c, "keepdim"));
	int64_t a = wrap_dim(dim[0], rank), b = wrap_dim(dim[1], rank), first, then;
	double p = ord->kind == ARG_FLOAT ? ord->u.f : ord->kind == ARG_INT ? (double)ord->u.i : 0;

	if (rank < 2 || a < 0 || b < 0 || a == b) {
		call_failed(c, "dim out of range");
		return 0;
	}
	if (norm_kind(ord) == NORM_FROBENIUS)
		return CALL(s, VECTOR_NORM, V_TENSOR(self), V_INT(2), V_INTS(dim, 2), keep, *call_arg(c, "dtype"));
	if (norm_kind(ord) != NORM_SUMS) {
		t = b == rank - 1 ? t : do_transpose(s, t, b, -1);
		t = a == rank - 2 ? t : do_transpose(s, t, a, -2);
		return temps_keep(s, mark, norm_of_values(c, t, norm_kind(ord) == NORM_NUCLEAR, dim));
	}
	first = p == 1 || p == -1 ? a : b;
	then = first == a ? b : a;
	then -= !keep.b && then > first;
	t = CALL(s, VECTOR_NORM, V_TENSOR(self), V_INT(1), V_INTS(&first, 1), keep, *call_arg(c, "dtype"));
	return temps_keep(s, mark, CALL(s, AMAX, V_TENSOR(t), V_INTS(&then, 1), keep));
}

/* Of a vector, or of all elements, unless an order is given for two dims. */
uint32_t
compose_LINALG_NORM(struct call *c)
{
	uint32_t self = call_tensor(c, "self");
	const struct value *ord = call_arg(c, "ord"), *dim = call_arg(c, "dim");
	int64_t given[2] = {-2, -1};
	unsigned n = call_ints(c, "dim", given, 2);

	if (self && ord->kind != ARG_NONE && (n == 2 || (dim->kind == ARG_NONE && geom_at(c->s, self)->rank == 2)))
		return matrix_norm(c, ord, given);
	return CALL(c->s, VECTOR_NORM, V_TENSOR(self), ord->kind == ARG_NONE ? V_INT(2) : *ord, *dim, *call_arg(c, "keepdim"), *call_arg(c, "dtype"));
}

uint32_t
compose_NUCLEAR_NORM(struct call *c)
{
	static const struct value nuclear = {.kind = ARG_STR, .u.s = {"nuc", 3}};
	int64_t given[2] = {-2, -1};

	call_ints(c, "dim", given, 2);
	return matrix_norm(c, &nuclear, given);
}

uint32_t
compose_MATRIX_NORM(struct call *c)
{
	static const int64_t last[] = {-2, -1};
	int64_t given[2];
	unsigned n = call_ints(c, "dim", given, 2);

	return matrix_norm(c, call_arg(c, "ord"), n == 2 ? given : last);
}

/* log of the determinant, not a number where that is negative */
uint32_t
compose_LOGDET(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), sign = CALL(s, SLOGDET, V_TENSOR(call_tensor(c, "A"))), log = s->nresult > 1 ? s->result[1] : 0;
	uint32_t negative = CALL(s, EQ, V_TENSOR(sign), V_INT(-1));

	return temps_keep(s, mark, CALL(s, WHERE, V_TENSOR(negative), V_FLOAT(0), V_TENSOR(log)));
}

uint32_t
compose_SVDVALS(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s);

	CALL(s, SVD_VALUES, V_TENSOR(call_tensor(c, "A")));
	return temps_keep(s, mark, s->nresult > 1 ? s->result[1] : 0);
}

/* By squares: a^5 = a (a^2)^2. */
uint32_t
compose_MATRIX_POWER(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), a = call_tensor(c, "A"), square = 0, out = 0;
	int64_t n = call_int(c, "n", 1);

	if (n < 0)
		a = CALL(s, INVERSE, V_TENSOR(a));
	n = n < 0 && n > INT64_MIN ? -n : n;
	if (n == 0 || n == 1)
		return temps_keep(s, mark, CALL(s, CLONE, V_TENSOR(a)));
	if (n == 3)
		return temps_keep(s, mark, CALL(s, MATMUL, V_TENSOR(CALL(s, MATMUL, V_TENSOR(a), V_TENSOR(a))), V_TENSOR(a)));
	for (; n > 0; n /= 2) {
		square = square ? CALL(s, MATMUL, V_TENSOR(square), V_TENSOR(square)) : a;
		if (n % 2)
			out = out ? CALL(s, MATMUL, V_TENSOR(out), V_TENSOR(square)) : square;
	}
	return temps_keep(s, mark, out);
}

/* ---- diagonals ------------------------------------------------------------------------------------------------------------- */

uint32_t
compose_DIAG(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s);
	struct value offset = V_INT(call_int(c, "diagonal", 0));

	if (self && geom_at(s, self)->rank == 1)
		return CALL(s, DIAG_EMBED, V_TENSOR(self), offset);
	return temps_keep(s, mark, CALL(s, CLONE, V_TENSOR(CALL(s, DIAGONAL, V_TENSOR(self), offset)), V_INT(0)));
}

uint32_t
compose_DIAGFLAT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s);
	int64_t size = self ? geom_at(s, self)->numel : 0;

	return temps_keep(s, mark, CALL(s, DIAG_EMBED, V_TENSOR(do_reshape(s, self, 1, &size)), V_INT(call_int(c, "offset", 0))));
}

/* ---- small families ---------------------------------------------------------------------------------------------------------- */

/* The sum of what is there, by how much is there. */
uint32_t
compose_NANMEAN(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), there, sum;
	struct value dim = *call_arg(c, "dim"), keep = V_BOOL(call_bool(c, "keepdim"));

	sum = CALL(s, ISNAN, V_TENSOR(self));
	there = CALL(s, SUM, V_TENSOR(sum), dim, keep);
	temps_drop(s, sum);
	sum = CALL(s, NANSUM, V_TENSOR(self), dim, keep, *call_arg(c, "dtype"));
	return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(sum), V_TENSOR(there)));
}

uint32_t
compose_RRELU(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s);

	if (!call_bool(c, "training"))
		return CALL(s, LEAKY_RELU, V_TENSOR(self));
	return temps_keep(s, mark, CALL(s, RRELU_NOISE, V_TENSOR(self), V_TENSOR(CALL(s, ZEROS_LIKE, V_TENSOR(self)))));
}

/* 0.5 * (1 + erf(x * sqrt(0.5))) */
uint32_t
compose_NDTR(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t = CALL(s, MUL, V_TENSOR(self), V_FLOAT(0.7));

	t = CALL(s, ADD, V_TENSOR(CALL(s, ERF, V_TENSOR(t))), V_INT(1));
	return temps_keep(s, mark, CALL(s, MUL, V_TENSOR(t), V_FLOAT(0.5)));
}

uint32_t
compose_FLOAT_POWER(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), self = call_tensor(c, "self"), power = call_tensor(c, "exponent");
	struct value base = self ? V_TENSOR(cast(s, self, DT_FP64)) : *call_arg(c, "self");

	if (!power)
		return temps_keep(s, mark, CALL(s, POW, base, *call_arg(c, "exponent")));
	power = cast(s, power, DT_FP64);
	return temps_keep(s, mark, self ? CALL(s, POW_TENSOR, base, V_TENSOR(power)) : CALL(s, POW_SCALAR, base, V_TENSOR(power)));
}

/* close = self == other; close |= isfinite(d) & (d <= atol + abs(rtol * other)), d = abs(self - other) */
uint32_t
compose_ISCLOSE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), other = call_tensor(c, "other"), mark = temps_mark(s), close, allowed, d, finite;

	close = CALL(s, EQ, V_TENSOR(self), V_TENSOR(other));
	allowed = CALL(s, ABS, V_TENSOR(CALL(s, MUL, V_TENSOR(other), V_FLOAT(0.1))));
	allowed = CALL(s, ADD, V_TENSOR(allowed), V_FLOAT(0.1));
	d = CALL(s, ABS, V_TENSOR(CALL(s, SUB, V_TENSOR(self), V_TENSOR(other))));
	finite = CALL(s, ISFINITE, V_TENSOR(d));
	op_call_inplace(s, OP_LOGICAL_AND, (const struct value[]){V_TENSOR(finite), V_TENSOR(CALL(s, LE, V_TENSOR(d), V_TENSOR(allowed)))}, 2);
	op_call_inplace(s, OP_LOGICAL_OR, (const struct value[]){V_TENSOR(close), V_TENSOR(finite)}, 2);
	return temps_keep(s, mark, close);
}

/* ---- factors --------------------------------------------------------------------------------------------------------------- */

static uint32_t
singular(struct call *c, bool full, bool transposed)
{
	struct sim *s = c->s;
	uint32_t out[3] = {0};

	CALL(s, SVD_KERNEL, c->arg[0], V_BOOL(full));
	for (unsigned i = 0; i < 3 && i < s->nresult; i++)
		out[i] = s->result[i];
	if (transposed && out[2])
		out[2] = do_transpose(s, out[2], -2, -1);
	return call_results(c, out, 3);
}

uint32_t
compose_SVD(struct call *c)
{
	return singular(c, call_bool(c, "full_matrices"), false);
}

uint32_t
compose_SVD_OLD(struct call *c)
{
	return singular(c, !call_bool(c, "some"), true);
}

uint32_t
compose_EIGVALS(struct call *c)
{
	uint32_t mark = temps_mark(c->s);

	return temps_keep(c->s, mark, CALL(c->s, EIG, c->arg[0]));
}

/* The permutation has no gradient. */
static uint32_t
lower_and_upper(struct call *c)
{
	struct sim *s = c->s;
	uint32_t out[3] = {0};

	for (unsigned i = 0; i < 3 && i < s->nresult; i++)
		out[i] = s->result[i];
	out[0] = out[0] ? CALL(s, DETACH, V_TENSOR(out[0])) : 0;
	return call_results(c, out, 3);
}

uint32_t
compose_LU(struct call *c)
{
	CALL(c->s, LU_KERNEL, c->arg[0]);
	return lower_and_upper(c);
}

uint32_t
compose_LU_UNPACK(struct call *c)
{
	CALL(c->s, LU_UNPACK_KERNEL, c->arg[0], c->arg[1]);
	return lower_and_upper(c);
}

/* Both tolerances are made tensors. */
uint32_t
compose_PINVERSE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s);

	CALL(s, SCALAR_TENSOR, V_FLOAT(0.5));
	CALL(s, SCALAR_TENSOR, V_FLOAT(0.5));
	return temps_keep(s, mark, CALL(s, PINV, c->arg[0]));
}

uint32_t
compose_LU_SOLVE_OLD(struct call *c)
{
	return CALL(c->s, LU_SOLVE, c->arg[1], c->arg[2], c->arg[0]);
}

uint32_t
compose_LINALG_DIAGONAL(struct call *c)
{
	return op_call(c->s, OP_DIAGONAL, c->arg, 4);
}

/* How many singular values are above a bound. */
uint32_t
compose_MATRIX_RANK(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t = CALL(s, SVDVALS, V_TENSOR(call_tensor(c, "self")));

	t = CALL(s, GT, V_TENSOR(t), V_FLOAT(0.5));
	return temps_keep(s, mark, CALL(s, SUM, V_TENSOR(t), V_INT(-1)));
}

/* The largest singular value by the smallest, or the norms of a matrix and of its inverse. */
uint32_t
compose_COND(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t, least;
	const struct value *p = call_arg(c, "p");
	int64_t size;

	if (!self || geom_at(s, self)->rank < 2) {
		call_failed(c, "operands do not fit together");
		return 0;
	}
	if (p->kind != ARG_NONE && norm_kind(p) != NORM_SPECTRAL) {
		least = CALL(s, MATRIX_NORM, V_TENSOR(CALL(s, INVERSE, V_TENSOR(self))), *p);
		return temps_keep(s, mark, CALL(s, MUL, V_TENSOR(CALL(s, MATRIX_NORM, V_TENSOR(self), *p)), V_TENSOR(least)));
	}
	t = CALL(s, SVDVALS, V_TENSOR(self));
	size = t ? geom_at(s, t)->dim[geom_at(s, t)->rank - 1] : 0;
	least = CALL(s, SLICE, V_TENSOR(t), V_INT(-1), V_INT(size - 1), V_INT(size), V_INT(1));
	t = CALL(s, DIV, V_TENSOR(CALL(s, SLICE, V_TENSOR(t), V_INT(-1), V_INT(0), V_INT(1), V_INT(1))), V_TENSOR(least));
	return temps_keep(s, mark, CALL(s, SQUEEZE, V_TENSOR(t), V_INT(-1)));
}

/* The norm of each slice along dim: all else becomes one row. */
uint32_t
compose_NORM_EXCEPT_DIM(struct call *c)
{
	struct sim *s = c->s;
	uint32_t v = call_tensor(c, "v"), mark = temps_mark(s), t;
	int64_t d = call_int(c, "dim", 0), size[MAX_RANK], flat[2], over = 1;
	struct geom g = v ? *geom_at(s, v) : (struct geom){0};

	if (!v || d == -1)
		return CALL(s, VECTOR_NORM, V_TENSOR(v), *call_arg(c, "pow"));
	d = wrap_dim(d, g.rank);
	if (d < 0)
		return out_of_range(c);
	for (unsigned i = 0; i < g.rank; i++)
		size[i] = i == d ? g.dim[i] : 1;
	if (d > 0 && d < g.rank - 1) {         /* as of dim 0, with the two exchanged */
		v = do_transpose(s, v, 0, d);
		g = *geom_at(s, v);
		d = 0;
	}
	flat[0] = d ? -1 : g.dim[0];
	flat[1] = d ? g.dim[d] : -1;
	over = d ? 0 : 1;
	t = CALL(s, VIEW, V_TENSOR(CALL(s, CONTIGUOUS, V_TENSOR(v))), V_INTS(flat, 2));
	t = CALL(s, VECTOR_NORM, V_TENSOR(t), *call_arg(c, "pow"), V_INTS(&over, 1));
	return temps_keep(s, mark, do_view(s, t, g.rank, size));
}

static int64_t
product_of(const int64_t *dim, unsigned n)
{
	int64_t p = 1;

	for (unsigned i = 0; i < n; i++)
		p = geom_times(p, dim[i]);
	return p;
}

/* Inverse of the matrix that the first ind dims and the others make. */
uint32_t
compose_TENSORINV(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t;
	struct geom g = self ? *geom_at(s, self) : (struct geom){0};
	int64_t ind = call_int(c, "ind", 2), square[2], size[MAX_RANK];

	if (!self || ind < 1 || ind >= g.rank) {
		call_failed(c, "dim out of range");
		return 0;
	}
	square[0] = product_of(g.dim, (unsigned)ind);
	square[1] = product_of(g.dim + ind, g.rank - (unsigned)ind);
	for (unsigned i = 0; i < g.rank; i++)
		size[i] = g.dim[(i + ind) % g.rank];
	t = CALL(s, INVERSE, V_TENSOR(do_reshape(s, self, 2, square)));
	return temps_keep(s, mark, t ? do_reshape(s, t, g.rank, size) : 0);
}

uint32_t
compose_TENSORSOLVE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), other = call_tensor(c, "other"), mark = temps_mark(s), t;
	struct geom g = self ? *geom_at(s, self) : (struct geom){0};
	unsigned rows = other ? geom_at(s, other)->rank : 0;
	int64_t square[2];

	if (!self || !other || rows > g.rank || call_arg(c, "dims")->kind == ARG_INTS) {
		call_failed(c, "operands do not fit together");
		return 0;
	}
	square[0] = geom_at(s, other)->numel;
	square[1] = product_of(g.dim + rows, g.rank - rows);
	self = do_reshape(s, self, 2, square);
	t = CALL(s, SOLVE, V_TENSOR(self), V_TENSOR(do_reshape(s, other, 1, square)));
	return temps_keep(s, mark, t ? do_reshape(s, t, g.rank - rows, g.dim + rows) : 0);
}
