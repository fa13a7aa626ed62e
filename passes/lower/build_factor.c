/*
 * Builders for factors of matrices [.., m, n] and their gradients: singular values, eigenvalues, LU, Householder's reflectors,
 * pseudo-inverses, exponentials. k is the smaller of m and n. Gradients follow FunctionsManual.cpp statement by statement.
 */
#include "lower.h"

static uint32_t
mismatch(struct call *c)
{
	call_failed(c, "operands do not fit together");
	return 0;
}

/* ---- matrices of the operand's batch --------------------------------------------------------------------------------- */

struct matrix {
	struct call *c;
	struct geom g;             /* rank 2 or more */
	int64_t m, n, k;
};

static bool
matrix_of(struct call *c, const struct geom *g, struct matrix *x)
{
	if (!g || g->rank < 2)
		return false;
	x->c = c;
	x->g = *g;
	x->m = g->dim[g->rank - 2];
	x->n = g->dim[g->rank - 1];
	x->k = x->m < x->n ? x->m : x->n;
	return true;
}

static uint32_t
make(const struct matrix *x, int64_t rows, int64_t cols)
{
	struct geom out = x->g;

	out.dim[out.rank - 2] = rows;
	out.dim[out.rank - 1] = cols;
	return fresh_contiguous(x->c, out.rank, out.dim, out.dtype);
}

/* One row of each matrix, or one number of each. */
static uint32_t
make_row(const struct matrix *x, int64_t cols, unsigned dtype)
{
	struct geom out = x->g;

	out.dim[out.rank - 2] = cols;
	return fresh_contiguous(x->c, out.rank - 1u, out.dim, dtype ? dtype : out.dtype);
}

static void
drop(const struct matrix *x, uint32_t t)
{
	temps_drop(x->c->s, t);
}

/* t = make(..), and what it was made from dies */
static uint32_t
next(const struct matrix *x, uint32_t old, int64_t rows, int64_t cols)
{
	uint32_t t = make(x, rows, cols);

	drop(x, old);
	return t;
}

static bool
has_grad(const struct call *c, unsigned i)
{
	return i < c->ngrads && c->grads[i];
}

/* ---- singular values -------------------------------------------------------------------------------------------------- */

static uint32_t
svd_factor(struct call *c, const struct operand *x, bool left)
{
	struct matrix a;
	bool full = call_bool(c, "full_matrices");

	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	return left ? make(&a, a.m, full ? a.m : a.k) : make(&a, full ? a.n : a.k, a.n);
}

uint32_t
build_svd_left(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	(void)dt;
	return svd_factor(c, x, true);
}

uint32_t
build_svd_right(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	(void)dt;
	return svd_factor(c, x, false);
}

/* skew(U' gU) */
static uint32_t
skewed(const struct matrix *a)
{
	return next(a, make(a, a->k, a->k), a->k, a->k);
}

/* (skew(U' gU) S + S skew(V' gV)) / E + diag(gS), k by k */
static uint32_t
svd_middle(const struct matrix *a, bool u, bool s, bool v)
{
	int64_t k = a->k;
	uint32_t squares = make_row(a, k, DT_NONE), gaps = make(a, k, k), t, diagonal;

	drop(a, squares);
	if (u && v) {
		uint32_t right = make(a, k, k), left = make(a, k, k), sum = make(a, k, k);

		t = make(a, k, k);
		drop(a, sum);
		drop(a, left);
		drop(a, right);
	} else {
		t = next(a, make(a, k, k), k, k);
	}
	drop(a, gaps);
	if (!s)
		return t;
	diagonal = make(a, k, k);
	t = next(a, t, k, k);
	drop(a, diagonal);
	return t;
}

/* U t + (1 - U U') gU / S for the longer side's factor, which leaves [rows, cols] */
static uint32_t
svd_outside(const struct matrix *a, uint32_t t, int64_t rows, int64_t cols)
{
	uint32_t scaled, inner, projected, sum, out;

	t = next(a, t, rows, cols);
	scaled = make(a, rows, cols);
	inner = make(a, a->k, a->k);
	projected = make(a, rows, cols);
	sum = make(a, rows, cols);
	out = make(a, rows, cols);
	drop(a, t);
	drop(a, sum);
	drop(a, projected);
	drop(a, inner);
	t = make(a, a->m, a->n);
	drop(a, out);
	drop(a, scaled);
	return t;
}

uint32_t
build_svd_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	bool u = has_grad(c, 0), s = has_grad(c, 1), v = has_grad(c, 2);
	uint32_t skew_v = 0, skew_u = 0, t;
	struct matrix a;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	if (!u && !v)
		return next(&a, a.m >= a.n ? make(&a, a.k, a.n) : make(&a, a.m, a.k), a.m, a.n);
	skew_v = v ? skewed(&a) : 0;
	skew_u = u ? skewed(&a) : 0;
	t = svd_middle(&a, u, s, v);
	if (u && a.m > a.k)
		t = svd_outside(&a, t, a.m, a.k);
	else if (v && a.n > a.k)
		t = svd_outside(&a, t, a.k, a.n);
	else {
		uint32_t middle = t, inner = make(&a, a.k, a.m >= a.n ? a.n : a.k);

		t = make(&a, a.m, a.n);
		drop(&a, middle);
		drop(&a, inner);
	}
	if (skew_u)
		drop(&a, skew_u);
	if (skew_v)
		drop(&a, skew_v);
	return t;
}

/* ---- eigenvalues -------------------------------------------------------------------------------------------------------- */

uint32_t
build_complex_values(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	return matrix_of(c, x->g, &a) ? make_row(&a, a.n, complex_of(a.g.dtype)) : mismatch(c);
}

uint32_t
build_complex_full(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	a.g.dtype = (uint8_t)complex_of(a.g.dtype);
	return make(&a, a.m, a.n);
}

/* V' gV without its diagonal's part, over the differences of eigenvalues */
static uint32_t
eig_middle(const struct matrix *a, uint32_t *inner)
{
	int64_t k = a->k;
	uint32_t scaled, product, t, row, column;

	*inner = make(a, k, k);
	scaled = make(a, k, k);
	product = make(a, k, k);
	t = make(a, k, k);
	drop(a, product);
	drop(a, scaled);
	row = make_row(a, k, DT_NONE);
	column = make_row(a, k, DT_NONE);
	drop(a, make(a, k, k));
	drop(a, column);
	drop(a, row);
	return t;
}

/* solve(V', t V'): a solve makes four results, of which one stays */
static uint32_t
eig_outside(const struct matrix *a)
{
	int64_t k = a->k;
	uint32_t vectors = make(a, k, k), t = make(a, k, k), lu = make(a, k, k), pivots = make_row(a, k, DT_INT32);

	drop(a, fresh_contiguous(a->c, a->g.rank - 2u, a->g.dim, DT_INT32));
	drop(a, pivots);
	drop(a, lu);
	drop(a, vectors);
	return t;
}

uint32_t
build_eig_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t inner = 0, middle = 0, product, t;
	struct matrix a;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	if (has_grad(c, 1)) {
		middle = eig_middle(&a, &inner);
		product = make(&a, a.k, a.k);
	} else {
		product = next(&a, make(&a, a.k, a.k), a.k, a.k);
	}
	t = eig_outside(&a);
	drop(&a, product);
	if (middle) {
		drop(&a, middle);
		drop(&a, inner);
	}
	return c->fn && c->fn->meta[0] && dtype_info(c->fn->meta[0]->dtype)->cat == CAT_COMPLEX ? t : real_part(c->s, t);
}

/* ---- LU --------------------------------------------------------------------------------------------------------------------- */

uint32_t
build_square_left(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	return matrix_of(c, x->g, &a) ? make(&a, a.m, a.m) : mismatch(c);
}

uint32_t
build_pivots(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	return matrix_of(c, x->g, &a) ? make_row(&a, a.k, dt) : mismatch(c);
}

/* tril(L' gL) + triu(gU U') */
static uint32_t
lu_square(const struct matrix *a, bool l, bool u)
{
	int64_t k = a->k;
	uint32_t lower = l ? next(a, make(a, k, k), k, k) : 0, product, upper, t;

	if (!u)
		return lower;
	product = make(a, k, k);
	upper = make(a, k, k);
	if (!lower) {
		drop(a, product);
		return upper;
	}
	t = make(a, k, k);
	drop(a, upper);
	drop(a, product);
	drop(a, lower);
	return t;
}

/* The square part from both gradients, and beside or below it the rest of the one that has it. */
static uint32_t
lu_oblong(const struct matrix *a, bool both)
{
	int64_t k = a->k;
	uint32_t product = both ? make(a, k, k) : 0, rest = make(a, a->m, a->n), inner = make(a, k, k), t = make(a, k, k), half;

	drop(a, inner);
	drop(a, rest);
	if (product)
		drop(a, product);
	half = make(a, k, k);
	inner = make(a, k, k);
	drop(a, half);
	drop(a, t);
	half = make(a, k, k);
	rest = make(a, k, k);
	t = make(a, a->m, a->n);
	drop(a, rest);
	drop(a, half);
	drop(a, inner);
	return t;
}

/* P (L' \ t / U') */
static uint32_t
lu_grad(const struct matrix *a, bool l, bool u)
{
	uint32_t t;

	if (a->m == a->n)
		t = next(a, lu_square(a, l, u), a->k, a->k);
	else
		t = lu_oblong(a, l && u);
	return next(a, next(a, t, a->m, a->n), a->m, a->n);
}

uint32_t
build_lu_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	return matrix_of(c, x->g, &a) ? lu_grad(&a, has_grad(c, 1), has_grad(c, 2)) : mismatch(c);
}

/* Of both factors in one matrix: they are taken apart first. */
uint32_t
build_lu_factor_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	make(&a, a.m, a.m);
	make(&a, a.m, a.k);
	make(&a, a.k, a.n);
	return lu_grad(&a, true, true);
}

uint32_t
build_lu_unpack_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;
	bool both = has_grad(c, 1) && has_grad(c, 2);
	uint32_t t;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	t = make(&a, a.m, a.n);
	if (!both)
		return t;
	make(&a, a.m, a.n);
	return make(&a, a.m, a.n);
}

/* The factors, taken apart; tril(L' \ ..) + triu(.. / U') */
uint32_t
build_lu_solve_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;
	uint32_t product, negative, right, t;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	make(&a, a.m, a.k);
	make(&a, a.k, a.n);
	product = make(&a, a.k, a.k);
	negative = make(&a, a.k, a.k);
	right = make(&a, a.k, a.k);
	drop(&a, negative);
	drop(&a, product);
	product = make(&a, a.k, a.k);
	t = next(&a, make(&a, a.k, a.k), a.k, a.k);
	drop(&a, product);
	product = make(&a, a.k, a.k);
	negative = make(&a, a.k, a.k);
	drop(&a, product);
	drop(&a, t);
	drop(&a, right);
	return negative;
}

/* A solve with the transposed matrix, which copies it; the product that is the matrix's own gradient. */
uint32_t
build_triangular_solve_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t t = build_full(c, x, n, dt);

	if (n > 1 && x[1].g)
		temps_drop(c->s, build_full(c, &x[1], 1, dt));
	return t;
}

/* ---- reflectors -------------------------------------------------------------------------------------------------------------------- */

/* One reflector is taken off the left and, but for the last, the next put on the right of the m by m product. */
static void
reflector_step(const struct matrix *a, int64_t i)
{
	int64_t m = a->m, rest = m - i;
	uint32_t row = make(a, 1, m), column = make(a, m, 1), scaled = make(a, m, 1), number = make(a, 1, 1), line = make(a, 1, m);

	make_row(a, m, DT_NONE);                       /* the reflector's gradient stays */
	drop(a, line);
	drop(a, number);
	drop(a, scaled);
	number = make(a, 1, 1);
	make(a, 1, 1);                                 /* the factor's too */
	drop(a, number);
	drop(a, column);
	drop(a, row);
	if (i + 1 == a->n)
		return;
	row = make(a, 1, m);
	column = make(a, rest - 1, 1);
	drop(a, make(a, rest - 1, m));
	drop(a, column);
	drop(a, row);
	scaled = make(a, rest, 1);
	column = make(a, m, 1);
	drop(a, scaled);
	drop(a, make(a, m, rest));
	drop(a, column);
}

/* 1 / sigma of every reflector; the product, with the first put on. */
static void
reflector_start(const struct matrix *a)
{
	uint32_t product, t, u, row;

	make(a, a->m, a->n);
	product = make(a, a->m, a->n);
	t = make_row(a, a->n, DT_NONE);
	drop(a, product);
	u = make_row(a, a->n, DT_NONE);
	row = make_row(a, a->n, DT_NONE);
	make_row(a, a->n, DT_NONE);
	drop(a, row);
	drop(a, u);
	(void)t;
	make(a, a->m, a->m);
	row = make(a, 1, a->m);
	t = make(a, a->m, 1);
	drop(a, make(a, a->m, a->m));
	drop(a, t);
	drop(a, row);
}

uint32_t
build_reflector_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a) || a.n > a.m || a.n > c->s->c->lim.nodes)
		return mismatch(c);
	reflector_start(&a);
	for (int64_t i = 0; i < a.n; i++)
		reflector_step(&a, i);
	return make(&a, a.m, a.n);
}

uint32_t
build_tau_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)dt;
	if (n < 2 || !x[1].g)
		return mismatch(c);
	if (!c->made || !c->made[0])
		temps_drop(c->s, build_reflector_grad(c, x, 1, DT_NONE));
	return build_full(c, &x[1], 1, DT_NONE);
}

/* ---- pseudo-inverses and exponentials ------------------------------------------------------------------------------------------------ */

uint32_t
build_pinv(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	return matrix_of(c, x->g, &a) ? make(&a, a.n, a.m) : mismatch(c);
}

/* Products of the smallest sizes; everything lives until the last sum is made. */
uint32_t
build_pinv_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a))
		return mismatch(c);
	make(&a, a.k, a.k);
	make(&a, a.m, a.n);
	make(&a, a.m, a.m);
	make(&a, a.m, a.n);
	if (a.m > a.n)
		make(&a, a.m, a.n);
	make(&a, a.m, a.n);
	if (a.m <= a.n)
		make(&a, a.m, a.n);
	make(&a, a.m, a.m);
	make(&a, a.m, a.n);
	make(&a, a.n, a.m);
	for (unsigned i = 0; i < 3; i++)
		make(&a, a.m, a.n);
	return make(&a, a.m, a.n);
}

/* The exponential of a matrix of twice the size, of which a quarter is the gradient. */
uint32_t
build_exp_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct matrix a;
	uint32_t zeros, upper, lower, both, t;
	struct geom out;
	int64_t twice;

	(void)n;
	(void)dt;
	if (!matrix_of(c, x->g, &a) || !mul_i64(a.n, 2, &twice))
		return mismatch(c);
	upper = make(&a, a.n, twice);
	zeros = make(&a, a.n, a.n);
	lower = make(&a, a.n, twice);
	both = make(&a, twice, twice);
	drop(&a, lower);
	drop(&a, upper);
	drop(&a, zeros);
	t = next(&a, both, twice, twice);
	if (!t)
		return 0;
	out = *geom_at(c->s, t);
	out.dim[out.rank - 1] = out.dim[out.rank - 2] = a.n;
	return tensor_alias(c->s, t, geom_intern(c->s->geoms, out), TF_VIEW);
}
