/*
 * Compositions: linear, matmul, convolutions. LinearAlgebra.cpp and Linear.cpp decide here between
 * views and copies, addmm and mm + add_, mm and bmm; the logs show each of these choices.
 */
#include "lower.h"

#include <string.h>

/* ---- matmul ---------------------------------------------------------------------------------------------- */

static int64_t
product(const int64_t *dim, unsigned n)
{
	int64_t p = 1;

	for (unsigned i = 0; i < n; i++)
		if (!mul_i64(p, dim[i], &p))
			return GEOM_MOST;
	return p;
}

/* LinearAlgebra.cpp, should_fold: can the larger operand become a matrix without a copy (or is the copy worth it)? */
static bool
should_fold(struct sim *s, uint32_t a, uint32_t b)
{
	bool first_larger = geom_at(s, a)->rank >= geom_at(s, b)->rank;
	const struct geom *large = geom_at(s, first_larger ? a : b), *small = geom_at(s, first_larger ? b : a);

	if (large->rank < 3 || small->rank > 2)
		return false;
	if (needs_grad(s, first_larger ? b : a))
		return true;
	if (geom_at(s, a)->rank == 2)
		return false;
	for (unsigned i = 0; i + 2 < large->rank; i++) {
		unsigned next = i + 3u == large->rank && !first_larger ? i + 2u : i + 1u;      /* the second operand is folded transposed */

		if (large->numel && large->stride[i] != geom_times(large->stride[next], large->dim[next]))
			return false;
	}
	return true;
}

static uint32_t
folded(struct sim *s, uint32_t a, uint32_t b)
{
	bool flip = geom_at(s, b)->rank > geom_at(s, a)->rank;
	uint32_t large = flip ? do_transpose(s, b, -2, -1) : a;
	uint32_t small = !flip ? b : geom_at(s, a)->rank == 2 ? CALL(s, T, V_TENSOR(a)) : a, t;
	const struct geom *g = geom_at(s, large);
	int64_t dim[MAX_RANK], rows[2] = {product(g->dim, g->rank - 1u), g->dim[g->rank - 1]};
	unsigned rank = g->rank - 1u;

	memcpy(dim, g->dim, rank * sizeof *dim);
	t = do_reshape(s, large, 2, rows);
	if (geom_at(s, small)->rank == 2) {
		dim[rank++] = geom_at(s, small)->dim[1];
		t = CALL(s, MM, V_TENSOR(t), V_TENSOR(small));
	} else {
		t = CALL(s, MV, V_TENSOR(t), V_TENSOR(small));
	}
	t = CALL(s, UNSAFE_VIEW, V_TENSOR(t), V_INTS(dim, rank));
	if (!flip || geom_at(s, t)->rank < 2)
		return t;
	return CALL(s, CONTIGUOUS, V_TENSOR(do_transpose(s, t, -2, -1)));
}

/* Both as [batch, rows, columns]: expand over the common batch, reshape (which may copy: the copy is what bmm saves), bmm. */
static uint32_t
batched(struct sim *s, uint32_t a, uint32_t b)
{
	struct geom x = *geom_at(s, a), y = *geom_at(s, b), batch = {0};
	const struct geom *both[2] = {&x, &y};
	int64_t m = x.rank > 1 ? x.dim[x.rank - 2] : 1, k = x.dim[x.rank - 1], p = y.rank > 1 ? y.dim[y.rank - 1] : 1, dim[MAX_RANK], flat[3];
	bool vector_a = x.rank == 1, vector_b = y.rank == 1;
	uint32_t left, right, t;

	x.rank = (uint8_t)(x.rank > 2 ? x.rank - 2 : 0);
	y.rank = (uint8_t)(y.rank > 2 ? y.rank - 2 : 0);
	if (!geom_broadcast(&batch, both, 2))
		return 0;
	memcpy(dim, batch.dim, batch.rank * sizeof *dim);
	dim[batch.rank] = m;
	dim[batch.rank + 1] = k;
	flat[0] = product(batch.dim, batch.rank);
	flat[1] = m;
	flat[2] = k;
	left = CALL(s, EXPAND, V_TENSOR(a), V_INTS(dim, batch.rank + 2u));
	left = do_reshape(s, left, 3, flat);
	if (vector_b)
		b = CALL(s, UNSQUEEZE, V_TENSOR(b), V_INT(1));
	dim[batch.rank] = flat[1] = k;
	dim[batch.rank + 1] = flat[2] = p;
	right = CALL(s, EXPAND, V_TENSOR(b), V_INTS(dim, batch.rank + 2u));
	right = do_reshape(s, right, 3, flat);
	t = CALL(s, BMM, V_TENSOR(left), V_TENSOR(right));
	batch.rank += 0;
	x.rank = batch.rank;
	if (!vector_a)
		dim[x.rank++] = m;
	if (!vector_b)
		dim[x.rank++] = p;
	return CALL(s, UNSAFE_VIEW, V_TENSOR(t), V_INTS(dim, x.rank));
}

/* Of two batches of matrices one may be a batch of one: it is used as a matrix (2.13; with more batch dims than one it is expanded). */
static void
drop_single_batch(struct sim *s, uint32_t *a, uint32_t *b)
{
	const struct geom *x = geom_at(s, *a), *y = geom_at(s, *b);

	if (x->rank != 3 || y->rank != 3 || x->dim[0] == y->dim[0])
		return;
	if (x->dim[0] == 1)
		*a = CALL(s, SQUEEZE, V_TENSOR(*a), V_INT(0));
	else if (y->dim[0] == 1)
		*b = CALL(s, SQUEEZE, V_TENSOR(*b), V_INT(0));
}

uint32_t
do_matmul(struct sim *s, uint32_t a, uint32_t b)
{
	unsigned ra, rb;

	drop_single_batch(s, &a, &b);
	ra = geom_at(s, a)->rank;
	rb = geom_at(s, b)->rank;
	if (ra == 1 && rb == 1)
		return CALL(s, DOT, V_TENSOR(a), V_TENSOR(b));
	if (ra == 2 && rb == 1)
		return CALL(s, MV, V_TENSOR(a), V_TENSOR(b));
	if (ra == 1 && rb == 2) {
		uint32_t row = CALL(s, MM, V_TENSOR(CALL(s, UNSQUEEZE, V_TENSOR(a), V_INT(0))), V_TENSOR(b));

		return CALL(s, SQUEEZE, V_TENSOR(row), V_INT(0));
	}
	if (ra == 2 && rb == 2)
		return CALL(s, MM, V_TENSOR(a), V_TENSOR(b));
	return should_fold(s, a, b) ? folded(s, a, b) : batched(s, a, b);
}

uint32_t
compose_MATMUL(struct call *c)
{
	uint32_t a = call_tensor(c, "self"), b = call_tensor(c, "other"), mark = temps_mark(c->s);

	if (!a || !b || !geom_at(c->s, a)->rank || !geom_at(c->s, b)->rank) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	return temps_keep(c->s, mark, do_matmul(c->s, a, b));
}

/* ---- linear -------------------------------------------------------------------------------------------------- */

/* With a bias and an input that flattens: view, addmm, view. Else matmul, and the bias is added in place. */
uint32_t
do_linear(struct sim *s, uint32_t x, uint32_t w, uint32_t bias)
{
	const struct geom *g = geom_at(s, x);
	int64_t dim[MAX_RANK], rows[2] = {product(g->dim, g->rank - 1u), g->dim[g->rank - 1]};
	uint32_t flat, t;

	if (!bias || g->rank < 2 || (g->rank > 2 && !g->contiguous)) {
		t = do_matmul(s, x, CALL(s, T, V_TENSOR(w)));
		if (bias && t)
			op_call_inplace(s, OP_ADD, (const struct value[]){V_TENSOR(t), V_TENSOR(bias)}, 2);
		return t;
	}
	flat = g->rank == 2 ? x : do_view(s, x, 2, rows);
	t = CALL(s, ADDMM, V_TENSOR(bias), V_TENSOR(flat), V_TENSOR(CALL(s, T, V_TENSOR(w))));
	if (g->rank == 2)
		return t;
	memcpy(dim, g->dim, g->rank * sizeof *dim);
	dim[g->rank - 1] = geom_at(s, w)->dim[0];
	return do_view(s, t, g->rank, dim);
}

uint32_t
compose_LINEAR(struct call *c)
{
	uint32_t x = call_tensor(c, "input"), w = call_tensor(c, "weight"), mark = temps_mark(c->s);
	const struct geom *gx = x ? geom_at(c->s, x) : NULL, *gw = w ? geom_at(c->s, w) : NULL;

	if (!gx || !gw || !gx->rank || gw->rank != 2 || gx->dim[gx->rank - 1] != gw->dim[1]) {
		call_failed(c, "shapes do not fit");
		return 0;
	}
	return temps_keep(c->s, mark, do_linear(c->s, x, w, call_tensor(c, "bias")));
}

uint32_t
compose_BILINEAR(struct call *c)
{
	struct sim *s = c->s;
	uint32_t w = call_tensor(c, "weight"), bias = call_tensor(c, "bias"), mark = temps_mark(s), t;

	if (!w || geom_at(s, w)->rank != 3) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	t = CALL(s, TRILINEAR, *call_arg(c, "input1"), V_TENSOR(w), *call_arg(c, "input2"));
	if (bias)
		t = CALL(s, ADD, V_TENSOR(t), V_TENSOR(bias));
	return temps_keep(s, mark, t);
}

/* The dims of one operand: those not named, then those named, or the reverse. */
static unsigned
sum_last(const struct geom *g, const int64_t *named, unsigned n, bool first, int64_t *perm, int64_t *rows)
{
	bool summed[MAX_RANK] = {false};
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		if (wrap_dim(named[i], g->rank) >= 0)
			summed[wrap_dim(named[i], g->rank)] = true;
	for (unsigned i = 0; first && i < n; i++)
		perm[k++] = wrap_dim(named[i], g->rank);
	for (unsigned i = 0; i < g->rank; i++)
		if (!summed[i] && k < MAX_RANK) {
			*rows = geom_times(*rows, g->dim[i]);
			perm[k++] = i;
		}
	for (unsigned i = 0; !first && i < n && k < MAX_RANK; i++)
		perm[k++] = wrap_dim(named[i], g->rank);
	return k;
}

/* tensordot: both operands as matrices, one product. */
uint32_t
compose_TENSORDOT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t a = call_tensor(c, "self"), b = call_tensor(c, "other"), mark = temps_mark(s), t;
	int64_t da[MAX_RANK], db[MAX_RANK], pa[MAX_RANK], pb[MAX_RANK], rows = 1, cols = 1, inner = 1, out[MAX_RANK], matrix[2];
	unsigned n = call_ints(c, "dims_self", da, MAX_RANK), rank = 0;
	const struct geom *ga, *gb;

	if (!a || !b || n != call_ints(c, "dims_other", db, MAX_RANK)) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	ga = geom_at(s, a);
	gb = geom_at(s, b);
	if (sum_last(ga, da, n, false, pa, &rows) != ga->rank || sum_last(gb, db, n, true, pb, &cols) != gb->rank || ga->rank + gb->rank > MAX_RANK) {
		call_failed(c, "dim out of range");
		return 0;
	}
	for (unsigned i = 0; i < ga->rank - n; i++)
		out[rank++] = ga->dim[pa[i]];
	for (unsigned i = n; i < gb->rank; i++)
		out[rank++] = gb->dim[pb[i]];
	for (unsigned i = 0; i < n; i++)
		inner = geom_times(inner, gb->dim[pb[i]]);
	matrix[0] = rows;
	matrix[1] = inner;
	a = do_reshape(s, CALL(s, PERMUTE, V_TENSOR(a), V_INTS(pa, ga->rank)), 2, matrix);
	matrix[0] = inner;
	matrix[1] = cols;
	b = do_reshape(s, CALL(s, PERMUTE, V_TENSOR(b), V_INTS(pb, gb->rank)), 2, matrix);
	t = CALL(s, MM, V_TENSOR(a), V_TENSOR(b));
	return temps_keep(s, mark, do_reshape(s, t, rank, out));
}

/* kron: a product with the dims of both in turn, then one view. */
uint32_t
compose_KRON(struct call *c)
{
	struct sim *s = c->s;
	uint32_t a = call_tensor(c, "self"), b = call_tensor(c, "other"), mark = temps_mark(s), t;
	int64_t wa[MAX_RANK], wb[MAX_RANK], out[MAX_RANK];
	unsigned rank = a && b ? geom_at(s, a)->rank : MAX_RANK;

	if (2 * rank > MAX_RANK || geom_at(s, b)->rank != rank) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	for (unsigned i = 0; i < rank; i++) {
		wa[2 * i] = geom_at(s, a)->dim[i];
		wb[2 * i + 1] = geom_at(s, b)->dim[i];
		wa[2 * i + 1] = wb[2 * i] = 1;
		out[i] = geom_times(wa[2 * i], wb[2 * i + 1]);
	}
	t = CALL(s, MUL, V_TENSOR(do_reshape(s, a, 2 * rank, wa)), V_TENSOR(do_reshape(s, b, 2 * rank, wb)));
	return temps_keep(s, mark, do_reshape(s, t, rank, out));
}

/* ---- convolutions ---------------------------------------------------------------------------------------------- */

/* padding="same" of an even kernel pads one side by hand first; otherwise it is a number. */
static bool
string_padding(struct call *c, const struct geom *w, int64_t *pad, int64_t *extra)
{
	const struct value *p = call_arg(c, "padding");
	int64_t dil[MAX_RANK];
	unsigned nd = w->rank - 2u, n = call_ints(c, "dilation", dil, MAX_RANK);
	bool uneven = false;

	for (unsigned i = 0; i < nd; i++) {
		int64_t total = str_eq(p->u.s, S("same")) ? geom_times(n ? dil[n == 1 ? 0 : i] : 1, w->dim[2 + i] - 1) : 0;

		pad[i] = total / 2;
		extra[2 * (nd - 1 - i)] = 0;
		extra[2 * (nd - 1 - i) + 1] = total % 2;
		uneven |= total % 2 != 0;
	}
	return uneven;
}

static uint32_t
convolve(struct call *c, bool transposed)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), w = call_tensor(c, "weight"), mark = temps_mark(s), t;
	struct value padding = *call_arg(c, "padding");
	int64_t pad[MAX_RANK], extra[2 * MAX_RANK];
	bool single;

	if (!x || !w || geom_at(s, w)->rank < 3) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	single = geom_at(s, x)->rank + 1 == geom_at(s, w)->rank;
	if (single)
		x = CALL(s, UNSQUEEZE, V_TENSOR(x), V_INT(0));
	if (padding.kind == ARG_STR) {
		unsigned nd = geom_at(s, w)->rank - 2u;

		if (string_padding(c, geom_at(s, w), pad, extra))
			x = CALL(s, CONSTANT_PAD, V_TENSOR(x), V_INTS(extra, 2 * nd));
		padding = V_INTS(pad, nd);
	}
	t = CALL(s, CONVOLUTION, V_TENSOR(x), V_TENSOR(w), *call_arg(c, "bias"), *call_arg(c, "stride"), padding, *call_arg(c, "dilation"),
	    V_BOOL(transposed), *call_arg(c, "output_padding"), *call_arg(c, "groups"));
	if (single && t)
		t = CALL(s, SQUEEZE, V_TENSOR(t), V_INT(0));
	return temps_keep(s, mark, t);
}

uint32_t
compose_CONV(struct call *c)
{
	return convolve(c, false);
}

uint32_t
compose_CONV_TRANSPOSE(struct call *c)
{
	return convolve(c, true);
}
