/*
 * Which dim of an operator's results is divided when one of an operand's is. Only operators that work on each part alone are followed:
 * elementwise ones, views, products and attention over split heads, softmax and norms along other dims.
 */
#include "tensor.h"

#include <string.h>

int64_t
dim_of(const struct graph *g, uint32_t v, int axis)
{
	const struct val *x = &g->vals[v];
	int64_t n;

	if (x->rank == RANK_UNKNOWN || axis < 0 || axis >= x->rank || !sint_eval(g, val_dims(g, v)[axis], &n))
		return 0;
	return n;
}

uint32_t
first_of(const struct graph *g, uint32_t v)
{
	return g->vals[v].kind == VAL_PARAM && g->vals[v].tied ? g->vals[v].tied : v;
}

static int
rank_of(const struct graph *g, uint32_t v)
{
	return g->vals[v].rank == RANK_UNKNOWN ? -1 : g->vals[v].rank;
}

static bool
is_matrix(const struct graph *g, const struct arg *a)
{
	return a && a->kind == ARG_VAL && g->vals[a->u.val].kind == VAL_PARAM && g->vals[a->u.val].rank == 2;
}

static uint32_t
operand(const struct graph *g, uint32_t n, const char *name)
{
	const struct arg *a = node_arg(g, n, name);

	return a && a->kind == ARG_VAL ? a->u.val : 0;
}

bool
linear_of(const struct graph *g, uint32_t n, struct linear *l)
{
	unsigned op = g->nodes[n].op;

	if (op == OP_LINEAR && is_matrix(g, node_arg(g, n, "weight")))
		*l = (struct linear){operand(g, n, "input"), operand(g, n, "weight"), operand(g, n, "bias"), 0, 1};
	else if (op == OP_ADDMM && is_matrix(g, node_arg(g, n, "mat2")))
		*l = (struct linear){operand(g, n, "mat1"), operand(g, n, "mat2"), operand(g, n, "self"), 1, 0};
	else if (op == OP_MM && is_matrix(g, node_arg(g, n, "mat2")))
		*l = (struct linear){operand(g, n, "self"), operand(g, n, "mat2"), 0, 1, 0};
	else
		return false;
	return l->in && rank_of(g, l->in) > 0 && rank_of(g, node_outs(g, n)[0]) == rank_of(g, l->in);
}

/* ---- reshaping -------------------------------------------------------------------------------------------------- */

/* The dim of y, of y0 .. y1, that x's divided dim becomes. */
static int
choose(const struct divided *d, uint32_t y, int y0, int y1)
{
	unsigned skip = d->skip;
	int found = NO_WAY;

	for (int j = y0; j < y1; j++) {
		if (dim_of(d->g, y, j) <= 1)
			continue;
		found = j;
		if (!d->last && skip-- == 0)
			break;
	}
	return found;
}

/* Dims of x and y that have equal products are one group. */
static int
reshaped(const struct divided *d, uint32_t x, uint32_t y, int axis)
{
	int nx = rank_of(d->g, x), ny = rank_of(d->g, y), i = 0, j = 0;

	while (i < nx || j < ny) {
		int i0 = i, j0 = j;
		int64_t p = 1, q = 1;

		do {
			bool left = i < nx && (p <= q || j == ny);

			if (!left && j == ny)
				return NO_WAY;
			if (!mul_i64(left ? p : q, left ? dim_of(d->g, x, i++) : dim_of(d->g, y, j++), left ? &p : &q) || p < 1 || q < 1)
				return NO_WAY;
		} while (p != q);
		if (axis >= i0 && axis < i)
			return choose(d, y, j0, j);
	}
	return NO_WAY;
}

/* ---- arguments that name dims ------------------------------------------------------------------------------------- */

static int
dim_arg(const struct graph *g, uint32_t n, const char *name, int rank, int dflt)
{
	const struct arg *a = node_arg(g, n, name);
	int64_t i = dflt;

	if (a && a->kind == ARG_INT && !sint_eval(g, a->u.i, &i))
		return NO_WAY;
	i += i < 0 ? rank : 0;
	return i < 0 || i >= rank ? NO_WAY : (int)i;
}

/* Is the dim one of those of a reduction? No list means all. */
static bool
reduces(const struct graph *g, uint32_t n, int rank, int axis)
{
	const struct arg *a = node_arg(g, n, "dim");

	if (a && a->kind == ARG_INT)
		return dim_arg(g, n, "dim", rank, 0) == axis;
	if (!a || a->kind != ARG_INTS || !a->count)
		return true;
	for (uint32_t i = 0; i < a->count; i++) {
		int64_t k;

		if (!sint_eval(g, g->ints[a->first + i], &k) || k == axis || k + rank == axis)
			return true;
	}
	return false;
}

/* Dims before the axis that go, or that are not there any more. */
static int
behind_reduction(const struct graph *g, uint32_t n, int in, int out, int axis, bool forward)
{
	int gone = 0, from = forward ? axis : -1;

	if (in == out)
		return reduces(g, n, in, axis) ? NO_WAY : axis;
	for (int i = 0, k = 0; i < in; i++) {
		if (reduces(g, n, in, i)) {
			gone++;
			continue;
		}
		if (!forward && k++ == axis)
			return i;
		if (forward && i == from)
			return axis - gone;
	}
	return NO_WAY;
}

static int
permuted(const struct graph *g, uint32_t n, int rank, int axis, bool forward)
{
	const struct arg *a = node_arg(g, n, "dims");

	for (uint32_t i = 0; a && a->kind == ARG_INTS && i < a->count; i++) {
		int64_t k;

		if (!sint_eval(g, g->ints[a->first + i], &k))
			return NO_WAY;
		k += k < 0 ? rank : 0;
		if (!forward && (int)i == axis)
			return (int)k;
		if (forward && k == axis)
			return (int)i;
	}
	return NO_WAY;
}

static int
swapped(int a, int b, int axis)
{
	return a < 0 || b < 0 ? NO_WAY : axis == a ? b : axis == b ? a : axis;
}

/* Dims of a normalised row, from the right. */
static int
row_dims(const struct graph *g, uint32_t n)
{
	const struct arg *a = node_arg(g, n, "normalized_shape");

	return a && a->kind == ARG_INTS ? (int)a->count : 1;
}

/* ---- kinds of operators ----------------------------------------------------------------------------------------------- */

enum kind { MIXES, ELEMENTWISE, RESHAPES, ALONG_DIM, NORM, ATTENTION, PRODUCT, TRANSPOSES, PERMUTES, REVERSES, ADDS_DIM, DROPS_DIM, REDUCES, JOINS, REPEATS, SPLITS };

/* The rows of op.def between these are the elementwise operators. */
static bool
is_elementwise(unsigned op)
{
	return (op >= OP_ABS && op < OP_GLU) || (op >= OP_ADD && op <= OP_RSHIFT) || (op >= OP_TO && op <= OP_ALIAS);
}

static enum kind
kind_of(unsigned op)
{
	switch (op) {
	case OP_DROPOUT: case OP_NATIVE_DROPOUT: case OP_IDENTITY: case OP_EXPAND: case OP_EXPAND_AS: case OP_FULL_LIKE: case OP_ZEROS_LIKE:
		return ELEMENTWISE;
	case OP_VIEW: case OP_RESHAPE: case OP_UNSAFE_VIEW: case OP_FLATTEN: case OP_UNFLATTEN: case OP_VIEW_AS: case OP_RESHAPE_AS:
		return RESHAPES;
	case OP_SLICE: case OP_NARROW: case OP_SOFTMAX: case OP_LOG_SOFTMAX:
		return ALONG_DIM;
	case OP_LAYER_NORM: case OP_RMS_NORM:
		return NORM;
	case OP_SDPA: case OP_EAGER_ATTENTION:
		return ATTENTION;
	case OP_MATMUL: case OP_BMM:
		return PRODUCT;
	case OP_TRANSPOSE:
		return TRANSPOSES;
	case OP_PERMUTE:
		return PERMUTES;
	case OP_T: case OP_MT:
		return REVERSES;
	case OP_UNSQUEEZE:
		return ADDS_DIM;
	case OP_SELECT: case OP_UNBIND:
		return DROPS_DIM;
	case OP_SUM: case OP_MEAN: case OP_VAR:
		return REDUCES;
	case OP_CAT:
		return JOINS;
	case OP_REPEAT_INTERLEAVE:
		return REPEATS;
	case OP_SPLIT: case OP_CHUNK:
		return SPLITS;
	default:
		return is_elementwise(op) ? ELEMENTWISE : MIXES;
	}
}

static uint32_t
first_operand(const struct graph *g, uint32_t n)
{
	struct operands it = operands_of(g, n);

	return operand_next(&it) ? it.val : 0;
}

static int
along_dim(const struct graph *g, uint32_t n, int rank, int axis)
{
	int dim = dim_arg(g, n, "dim", rank, 0);

	return dim == NO_WAY || dim == axis ? NO_WAY : axis;
}

/* ---- through an operator ------------------------------------------------------------------------------------------------ */

/* Operators that keep the rank and the place of every dim but those that they work along. */
static int
in_place(const struct graph *g, uint32_t n, enum kind kind, int rank, int axis)
{
	switch (kind) {
	case ALONG_DIM: case JOINS:
		return along_dim(g, n, rank, axis);
	case NORM:
		return axis < rank - row_dims(g, n) ? axis : NO_WAY;
	case ATTENTION:
		return rank >= 3 && axis == rank - 3 ? axis : NO_WAY;
	case PRODUCT:
		return axis < rank - 2 ? axis : NO_WAY;
	case TRANSPOSES:
		return swapped(dim_arg(g, n, "dim0", rank, 0), dim_arg(g, n, "dim1", rank, 0), axis);
	case REVERSES:
		return swapped(rank - 2, rank - 1, axis);
	default:           /* SPLITS, REPEATS: each piece is divided */
		return axis;
	}
}

int
axis_forward(const struct divided *d, uint32_t n, uint32_t v, int axis)
{
	const struct graph *g = d->g;
	enum kind kind = kind_of(g->nodes[n].op);
	uint32_t out = g->nodes[n].nout ? node_outs(g, n)[0] : 0;
	int in = rank_of(g, v), rank = out ? rank_of(g, out) : -1, dim;

	if (kind == MIXES || in < 0 || rank < 0)
		return NO_WAY;
	switch (kind) {
	case ELEMENTWISE:
		return rank < in ? NO_WAY : axis + rank - in;
	case RESHAPES:
		return v == first_operand(g, n) ? reshaped(d, v, out, axis) : NO_WAY;
	case PERMUTES:
		return permuted(g, n, rank, axis, true);
	case ADDS_DIM:
		dim = dim_arg(g, n, "dim", rank, 0);
		return dim == NO_WAY ? NO_WAY : axis + (dim <= axis);
	case DROPS_DIM:
		dim = dim_arg(g, n, "dim", in, 0);
		return dim == NO_WAY || dim == axis ? NO_WAY : axis - (dim < axis);
	case REDUCES:
		return behind_reduction(g, n, in, rank, axis, true);
	default:
		return in == rank || kind == ATTENTION ? in_place(g, n, kind, in, axis) : NO_WAY;
	}
}

/* An operand that is broadcast over the dim has it not, or with size 1. */
static int
broadcast(const struct graph *g, uint32_t n, uint32_t v, int in, int rank, int axis)
{
	uint32_t out = node_outs(g, n)[0];
	int k = axis - (rank - in);

	if (k < 0 || dim_of(g, v, k) == 1)
		return WHOLE;
	return dim_of(g, v, k) == dim_of(g, out, axis) ? k : NO_WAY;
}

int
axis_back(const struct divided *d, uint32_t n, uint32_t v, int axis)
{
	const struct graph *g = d->g;
	enum kind kind = kind_of(g->nodes[n].op);
	uint32_t out = node_outs(g, n)[0];
	int in = rank_of(g, v), rank = rank_of(g, out), dim;

	if (kind == MIXES || in < 0 || rank < 0)
		return NO_WAY;
	if (kind != ELEMENTWISE && kind != ATTENTION && kind != PRODUCT && kind != JOINS && v != first_operand(g, n))
		return WHOLE;      /* a norm's weight, a shape */
	switch (kind) {
	case ELEMENTWISE: case ATTENTION:
		if (kind == ATTENTION && axis != rank - 3)
			return NO_WAY;
		if (kind == ATTENTION && v != operand(g, n, "attn_mask"))
			return in == rank ? axis : NO_WAY;
		return broadcast(g, n, v, in, rank, axis);
	case RESHAPES:
		return reshaped(d, out, v, axis);
	case PERMUTES:
		return permuted(g, n, rank, axis, false);
	case ADDS_DIM:
		dim = dim_arg(g, n, "dim", rank, 0);
		return dim == NO_WAY || dim == axis ? NO_WAY : axis - (dim < axis);
	case DROPS_DIM:
		dim = dim_arg(g, n, "dim", in, 0);
		return dim == NO_WAY ? NO_WAY : axis + (dim <= axis);
	case REDUCES:
		return behind_reduction(g, n, in, rank, axis, false);
	default:
		return in == rank ? in_place(g, n, kind, in, axis) : NO_WAY;
	}
}
