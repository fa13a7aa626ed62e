/* Builders for distances, products and factors of matrices, and Fourier transforms. */
#include "lower.h"

static uint32_t
mismatch(struct call *c)
{
	call_failed(c, "operands do not fit together");
	return 0;
}

/* ---- matrices --------------------------------------------------------------------------------------------------- */

static uint32_t
without_last(struct call *c, const struct geom *g, unsigned n, unsigned dt)
{
	if (g->rank < n)
		return mismatch(c);
	return fresh_contiguous(c, g->rank - n, g->dim, dt ? dt : g->dtype);
}

uint32_t
build_matrices(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return without_last(c, x->g, 2, dt);
}

uint32_t
build_matrix_rows(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return without_last(c, x->g, 1, dt);
}

/* Factors of matrices [.., m, n]: [.., m or k, n or k], where k is the smaller of m and n. */
static uint32_t
factor(struct call *c, const struct geom *g, bool all_rows, bool all_columns, unsigned dt)
{
	struct geom out = *g;
	int64_t k;

	if (out.rank < 2)
		return mismatch(c);
	k = g->dim[g->rank - 2] < g->dim[g->rank - 1] ? g->dim[g->rank - 2] : g->dim[g->rank - 1];
	if (!all_rows)
		out.dim[out.rank - 2] = k;
	if (!all_columns)
		out.dim[out.rank - 1] = k;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

uint32_t
build_matrix_left(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return factor(c, x->g, true, false, dt);
}

uint32_t
build_matrix_right(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return factor(c, x->g, false, true, dt);
}

uint32_t
build_matrix_core(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return factor(c, x->g, false, false, dt);
}

uint32_t
build_matrix_values(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	if (out.rank < 2)
		return mismatch(c);
	if (out.dim[out.rank - 1] < out.dim[out.rank - 2])
		out.dim[out.rank - 2] = out.dim[out.rank - 1];
	return without_last(c, &out, 1, dt);
}

/* Q in the three modes: as many columns as the smaller dim, as rows, or nothing. */
uint32_t
build_qr_left(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *mode = call_arg(c, "mode");
	int64_t none = 0;

	if (mode->kind == ARG_STR && str_eq(mode->u.s, S("r")))
		return fresh_contiguous(c, 1, &none, dt ? dt : x->g->dtype);
	return mode->kind == ARG_STR && str_eq(mode->u.s, S("complete")) ? build_square_left(c, x, n, dt) : build_matrix_left(c, x, n, dt);
}

uint32_t
build_qr_right(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *mode = call_arg(c, "mode");

	return mode->kind == ARG_STR && str_eq(mode->u.s, S("complete")) ? build_full(c, x, n, dt) : build_matrix_right(c, x, n, dt);
}

/* What a triangular solve gives: the columns of each matrix lie one behind the other. */
uint32_t
build_solved(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t step = 1;

	(void)n;
	if (out.rank < 2)
		return mismatch(c);
	out.dtype = (uint8_t)(dt ? dt : out.dtype);
	for (unsigned i = 0; i < out.rank; i++) {
		unsigned at = i < 2 ? out.rank - 2 + i : out.rank - 1 - i;

		out.stride[at] = step;
		if (!mul_i64(step, out.dim[at] ? out.dim[at] : 1, &step))
			return mismatch(c);
	}
	return fresh(c, out);
}

/* R gR' - Q' gQ, made symmetric, times Q, solved for R */
uint32_t
build_qr_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct sim *s = c->s;
	const struct operand *q = x, *r = x + 1;
	uint32_t a, b, difference, upper, sum, product, t;

	if (n < 2)
		return mismatch(c);
	a = build_matrix_core(c, r, 1, dt);
	b = build_matrix_core(c, r, 1, dt);
	difference = build_matrix_core(c, r, 1, dt);
	temps_drop(s, b);
	temps_drop(s, a);
	upper = build_matrix_core(c, r, 1, dt);
	sum = build_matrix_core(c, r, 1, dt);
	product = build_full(c, q, 1, dt);
	temps_drop(s, difference);
	temps_drop(s, sum);
	temps_drop(s, upper);
	t = build_solved(c, q, 1, dt);
	temps_drop(s, product);
	return t;
}

/* V ((V' gV, made antisymmetric, over the differences of eigenvalues; their gradients on the diagonal) V') */
uint32_t
build_eigh_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct sim *s = c->s;
	bool values = c->ngrads > 0 && c->grads[0], vectors = c->ngrads > 1 && c->grads[1];
	uint32_t product = build_full(c, x, n, dt), difference, half, gaps, inner, right, t;

	if (!vectors) {
		t = build_full(c, x, n, dt);
		temps_drop(s, product);
		return t;
	}
	difference = build_full(c, x, n, dt);
	half = build_full(c, x, n, dt);
	temps_drop(s, difference);
	gaps = build_full(c, x, n, dt);
	inner = values ? build_full(c, x, n, dt) : half;
	temps_drop(s, gaps);
	if (values)
		temps_drop(s, half);
	right = build_full(c, x, n, dt);
	t = build_full(c, x, n, dt);
	temps_drop(s, right);
	temps_drop(s, inner);
	temps_drop(s, product);
	return t;
}

/* -(b x' + x b') L */
uint32_t
build_cholesky_solve_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct sim *s = c->s;
	uint32_t product = build_full(c, x, n, dt), sum = build_full(c, x, n, dt), t;

	temps_drop(s, product);
	product = build_full(c, x, n, dt);
	t = build_full(c, x, n, dt);
	temps_drop(s, product);
	temps_drop(s, sum);
	return t;
}

/* Time, batch, channels; the kernel's first dim runs over time. */
uint32_t
build_conv_tbc(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[3];

	if (n < 2 || x[0].g->rank != 3 || x[1].g->rank != 3)
		return mismatch(c);
	dim[0] = x[0].g->dim[0] + geom_times(2, call_int(c, "pad", 0)) - x[1].g->dim[0] + 1;
	dim[1] = x[0].g->dim[1];
	dim[2] = x[1].g->dim[2];
	return dim[0] < 0 ? mismatch(c) : fresh_contiguous(c, 3, dim, dt ? dt : x[0].g->dtype);
}

uint32_t
build_row_sums(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;

	(void)n;
	if (!out.rank)
		return mismatch(c);
	out.dim[out.rank - 1] = 1;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* tril(a b) * (tril(..) + its transpose) without the diagonal's half */
uint32_t
build_triangle_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct sim *s = c->s;
	uint32_t product = build_full(c, x, n, dt), half = build_full(c, x, n, dt), other, sum, t;

	temps_drop(s, product);
	other = build_full(c, x, n, dt);
	sum = build_full(c, x, n, dt);
	t = build_full(c, x, n, dt);
	temps_drop(s, half);
	temps_drop(s, sum);
	temps_drop(s, other);
	return t;
}

uint32_t
build_addbmm(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t dim[2];

	if (n < 2 || x[0].g->rank != 3 || x[1].g->rank != 3)
		return mismatch(c);
	dim[0] = x[0].g->dim[1];
	dim[1] = x[1].g->dim[2];
	return fresh_contiguous(c, 2, dim, dt ? dt : x[0].g->dtype);
}

/* Rows start at multiples of 16 bytes, as the card's copies want them. */
uint32_t
build_grouped_mm(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *a = x[0].g, *b = n > 1 ? x[1].g : NULL;
	uint32_t offs = call_tensor(c, "offs");
	struct geom out = {0};
	int64_t lanes, row;

	if (!b || (a->rank != 2 && a->rank != 3) || (b->rank != 2 && b->rank != 3) || (a->rank + b->rank < 6 && (!offs || geom_at(c->s, offs)->rank != 1)))
		return mismatch(c);
	if (a->rank == b->rank)
		out.dim[out.rank++] = a->rank == 3 ? a->dim[0] : geom_at(c->s, offs)->dim[0];
	out.dim[out.rank++] = a->dim[a->rank - 2];
	out.dim[out.rank++] = b->dim[b->rank - 1];
	out.dtype = (uint8_t)(dt ? dt : call_dtype(c, "out_dtype") ? call_dtype(c, "out_dtype") : a->dtype);
	geom_contiguous(&out);
	lanes = dtype_info(out.dtype)->bits ? 128 / dtype_info(out.dtype)->bits : 1;
	row = geom_times((out.dim[out.rank - 1] + lanes - 1) / lanes, lanes);
	out.stride[out.rank - 2] = row;
	if (out.rank == 3)
		out.stride[0] = geom_times(out.dim[1], row);
	return fresh(c, out);
}

uint32_t
build_pairs(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom a = *x[0].g, b, out = {0};
	const struct geom *both[2] = {&a, &b};

	if (n < 2 || a.rank < 2 || x[1].g->rank < 2)
		return mismatch(c);
	b = *x[1].g;
	a.dim[a.rank - 1] = b.dim[b.rank - 2];
	b.dim[b.rank - 1] = b.dim[b.rank - 2];
	b.dim[b.rank - 2] = a.dim[a.rank - 2];
	if (!geom_broadcast(&out, both, 2))
		return mismatch(c);
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : a.dtype);
}

uint32_t
build_row_pairs(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t rows = x->g->rank ? x->g->dim[0] : 0, size;

	(void)n;
	if (!mul_i64(rows, rows - 1, &size))
		return mismatch(c);
	size /= 2;
	return fresh_contiguous(c, 1, &size, dt ? dt : x->g->dtype);
}

/* Zeros, into which the places of the diagonal are written; seen as a matrix. */
uint32_t
build_trace_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t size = x->g->numel, places;
	uint32_t flat;

	(void)n;
	if (x->g->rank != 2)
		return mismatch(c);
	places = x->g->dim[0] < x->g->dim[1] ? x->g->dim[0] : x->g->dim[1];
	flat = fresh_contiguous(c, 1, &size, dt ? dt : grad_dtype(c));
	temps_drop(c->s, fresh_contiguous(c, 1, &places, DT_INT64));
	return do_view(c->s, flat, 2, x->g->dim);
}

/* A solve by the factors, for the diagonal of the gradient; a singular matrix's pivots are moved off zero. */
uint32_t
build_det_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct sim *s = c->s;
	uint32_t zero, one, singular, moved, on_diagonal;

	build_matrices(c, x, n, dt);
	build_full(c, x, n, dt);
	singular = build_matrix_rows(c, x, n, DT_BOOL);
	zero = build_scalar(c, x, n, dt);
	one = build_scalar(c, x, n, dt);
	moved = build_matrix_rows(c, x, n, dt);
	temps_drop(s, one);
	temps_drop(s, zero);
	on_diagonal = build_full(c, x, n, dt);
	build_full(c, x, n, dt);
	temps_drop(s, on_diagonal);
	temps_drop(s, moved);
	temps_drop(s, singular);
	return build_full(c, x, n, dt);
}

/* ---- blocks ----------------------------------------------------------------------------------------------------------- */

/* Rows and columns of a block: a vector is a row. */
static void
block_size(const struct geom *g, int64_t *rows, int64_t *cols)
{
	*cols = g->rank ? g->dim[g->rank - 1] : 1;
	*rows = g->rank > 1 ? g->dim[0] : 1;
}

uint32_t
build_block_diag(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *v = call_arg(c, "tensors");
	int64_t dim[2] = {0, 0}, rows, cols;

	(void)n;
	for (uint32_t i = 0; v->kind == ARG_VALS && i < v->n; i++) {
		if (!v->u.ts[i] || geom_at(c->s, v->u.ts[i])->rank > 2)
			return mismatch(c);
		block_size(geom_at(c->s, v->u.ts[i]), &rows, &cols);
		if (!add_i64(dim[0], rows, &dim[0]) || !add_i64(dim[1], cols, &dim[1]))
			return mismatch(c);
	}
	return fresh_contiguous(c, 2, dim, dt ? dt : x->g->dtype);
}

/* A block of the gradient, which nothing is copied for. */
uint32_t
build_block_piece(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct geom *want = c->fn && c->fn->meta[c->elem] ? c->fn->meta[c->elem] : x->g;
	struct geom out = *want;
	int64_t rows, cols;

	(void)n;
	(void)dt;
	block_size(want, &rows, &cols);
	out.dtype = x->g->dtype;
	if (x->g->rank != 2 || rows > x->g->dim[0] || cols > x->g->dim[1])
		return mismatch(c);
	for (unsigned i = 0; i < out.rank; i++)
		out.stride[i] = x->g->stride[2 - out.rank + i];
	return view_of(c, x, out);
}

/* ---- grids ------------------------------------------------------------------------------------------------------------- */

/* theta [N, 2, 3] or [N, 3, 4]: places of N images or volumes */
static uint32_t
grid(struct call *c, const struct operand *x, int64_t last, unsigned dt)
{
	int64_t dim[MAX_RANK];
	unsigned n = call_ints(c, "size", dim, MAX_RANK);

	if (n < 4 || n > 5)
		return mismatch(c);
	for (unsigned i = 1; i + 1 < n; i++)
		dim[i] = dim[i + 1];
	dim[n - 1] = last ? last : (int64_t)n - 2;
	return fresh_contiguous(c, n, dim, dt ? dt : x->g->dtype);
}

uint32_t
build_affine_grid(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	(void)n;
	return grid(c, x, 0, dt);
}

/* The grid that theta was applied to is made again; coordinates of each dim are written into it. */
uint32_t
build_affine_grid_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t coords = x->g->rank, dim[3];
	uint32_t base = grid(c, x, coords - 1, dt), t;

	(void)n;
	for (unsigned i = x->g->rank - 1u; base && i-- > 1;) {
		int64_t size = x->g->dim[i];
		uint32_t step[3];

		for (unsigned k = 0; k < 3; k++)
			step[k] = fresh_contiguous(c, 1, &size, x->g->dtype);
		for (unsigned k = 0; k < 3; k++)
			temps_drop(c->s, step[k]);
	}
	dim[0] = x->g->dim[0];
	dim[1] = coords - 1;
	dim[2] = coords - 2;
	t = fresh_contiguous(c, 3, dim, dt ? dt : x->g->dtype);
	return do_transpose(c->s, t, 1, 2);
}

/* ---- Fourier transforms --------------------------------------------------------------------------------------------- */

/* The dim that is cut in half: the last one of the list. */
static int64_t
halved_dim(const struct call *c, const struct geom *g)
{
	int64_t dim[MAX_RANK];
	unsigned n = call_ints(c, "dim", dim, MAX_RANK);

	return n ? wrap_dim(dim[n - 1], g->rank) : -1;
}

uint32_t
build_spectrum(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = halved_dim(c, &out);

	(void)n;
	if (d < 0)
		return out_of_range(c);
	if (call_bool(c, "onesided"))
		out.dim[d] = out.dim[d] / 2 + 1;
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : complex_of(out.dtype));
}

uint32_t
build_signal(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x->g;
	int64_t d = halved_dim(c, &out);

	(void)n;
	if (d < 0)
		return out_of_range(c);
	out.dim[d] = call_int(c, "last_dim_size", 0);
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : real_of(out.dtype));
}

/* Half a spectrum is filled up with zeros first; what is wanted is the real part of the transform. */
uint32_t
build_spectrum_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	unsigned complex = complex_of(x->g->dtype);
	uint32_t zeros = call_bool(c, "onesided") ? build_full(c, x, n, complex) : 0, t = build_full(c, x, n, complex);

	(void)dt;
	if (zeros)
		temps_drop(c->s, zeros);
	return real_part(c->s, t);
}

uint32_t
build_magnitude(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	bool complex = dtype_info(x->g->dtype)->cat == CAT_COMPLEX;

	return build_like(c, x, n, dt ? dt : complex ? real_of(x->g->dtype) : DT_NONE);
}

/* g times the perpendicular over the square of the length; zero where that is zero. A real number's angle has no gradient. */
uint32_t
build_angle_grad(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	if (dtype_info(x->g->dtype)->cat != CAT_COMPLEX)
		return build_full(c, x, n, dt);
	build_magnitude(c, x, n, dt);
	build_magnitude(c, x, n, dt);
	for (unsigned i = 0; i < 3; i++)
		build_full(c, x, n, dt);
	build_scalar(c, x, n, dt);
	build_full(c, x, n, DT_BOOL);
	return build_full(c, x, n, dt);
}
