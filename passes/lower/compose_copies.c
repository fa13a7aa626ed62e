/* Compositions: copies of views, which functionalised programs have instead of them, and other rewritten forms of ordinary operators. */
#include "lower.h"

/* ---- copies of views ------------------------------------------------------------------------------------------------- */

static uint32_t
copied(struct sim *s, uint32_t t)
{
	return t ? CALL(s, CLONE, V_TENSOR(t), V_INT(0)) : 0;
}

static uint32_t
copied_view(struct call *c, unsigned op)
{
	uint32_t mark = temps_mark(c->s);

	return temps_keep(c->s, mark, copied(c->s, op_call(c->s, op, c->arg, c->code->narg)));
}

static uint32_t
copied_views(struct call *c, unsigned op)
{
	struct sim *s = c->s;
	uint32_t *t, n;

	op_call(s, op, c->arg, c->code->narg);
	n = s->nresult;
	t = NEW(s->c->a, uint32_t, n + 1u);
	for (uint32_t i = 0; i < n; i++)
		t[i] = s->result[i];
	for (uint32_t i = 0; i < n; i++)
		t[i] = copied(s, t[i]);
	return call_results(c, t, n);
}

#define COPY(name) \
	uint32_t compose_##name##_COPY(struct call *c) { return copied_view(c, OP_##name); }
COPY(TRANSPOSE)
COPY(PERMUTE)
COPY(T)
COPY(UNSQUEEZE)
COPY(SQUEEZE)
COPY(EXPAND)
COPY(SLICE)
COPY(SELECT)
COPY(DIAGONAL)
COPY(UNFOLD)
COPY(AS_STRIDED)
COPY(VIEW_AS_REAL)
COPY(VIEW_AS_COMPLEX)
COPY(NARROW)

uint32_t
compose_VIEW_COPY(struct call *c)
{
	int64_t size[MAX_RANK];
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(c->s);
	unsigned n = call_ints(c, "size", size, MAX_RANK);

	return self ? temps_keep(c->s, mark, copied(c->s, do_reshape(c->s, self, n, size))) : 0;
}

uint32_t
compose_SPLIT_COPY(struct call *c)
{
	return copied_views(c, OP_SPLIT);
}

uint32_t
compose_UNBIND_COPY(struct call *c)
{
	return copied_views(c, OP_UNBIND);
}

/* ---- conversions under their old names --------------------------------------------------------------------------------- */

#define CONVERSION(name, dtype) \
	uint32_t compose_CAST_##name(struct call *c) { return cast(c->s, call_tensor(c, "self"), dtype); }
CONVERSION(FLOAT, DT_FP32)
CONVERSION(HALF, DT_FP16)
CONVERSION(DOUBLE, DT_FP64)
CONVERSION(LONG, DT_INT64)
CONVERSION(INT, DT_INT32)
CONVERSION(BYTE, DT_UINT8)

/* ---- in place ------------------------------------------------------------------------------------------------------------ */

/* A view of the diagonal is filled; of a tall matrix that wraps around, as many as fit. */
uint32_t
compose_FILL_DIAGONAL(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t;
	const struct geom *g = self ? geom_at(s, self) : NULL;
	int64_t size, stride = 0;

	if (!g || g->rank < 2) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	size = g->dim[0];
	for (unsigned i = 0; i < g->rank; i++) {
		size = g->dim[i] < size ? g->dim[i] : size;
		stride += g->stride[i];
	}
	t = CALL(s, AS_STRIDED, V_TENSOR(self), V_INTS(&size, 1), V_INTS(&stride, 1));
	if (t)
		op_call_inplace(s, OP_FILL, (const struct value[]){V_TENSOR(t), *call_arg(c, "fill_value")}, 2);
	return temps_keep(s, mark, self);
}

/* ---- vmap, whose batched dim stands in front -------------------------------------------------------------------------------- */

static uint32_t
moved(struct call *c, int64_t from, int64_t to)
{
	uint32_t self = call_tensor(c, "self");

	return self ? CALL(c->s, MOVEDIM, V_TENSOR(self), V_INT(from), V_INT(to)) : 0;
}

uint32_t
compose_ADD_BATCH_DIM(struct call *c)
{
	return moved(c, call_int(c, "batch_dim", 0), 0);
}

uint32_t
compose_REMOVE_BATCH_DIM(struct call *c)
{
	return moved(c, 0, call_int(c, "out_dim", 0));
}

/* ---- lists and pieces ------------------------------------------------------------------------------------------------------------ */

/* Views of one flat tensor in the shapes of others, one behind the other. */
uint32_t
compose_UNFLATTEN_DENSE(struct call *c)
{
	const struct value *v = call_arg(c, "tensors");
	uint32_t flat = call_tensor(c, "flat"), n = v->kind == ARG_VALS ? v->n : 0, *t = NEW(c->s->c->a, uint32_t, n + 1u);
	int64_t at = 0;

	for (uint32_t i = 0; flat && i < n; i++) {
		const struct geom *g = v->u.ts[i] ? geom_at(c->s, v->u.ts[i]) : NULL;

		if (!g)
			return 0;
		t[i] = do_view(c->s, CALL(c->s, SLICE, V_TENSOR(flat), V_INT(0), V_INT(at), V_INT(at + g->numel), V_INT(1)), g->rank, g->dim);
		at = geom_bounded(at + g->numel);
	}
	return call_results(c, t, n);
}

/* The places of what is not zero, a list with one tensor for each dim. */
uint32_t
compose_NONZERO_NUMPY(struct call *c)
{
	struct sim *s = c->s;
	uint32_t t = CALL(s, NONZERO, V_TENSOR(call_tensor(c, "self"))), places[MAX_RANK], n;

	if (!t)
		return 0;
	CALL(s, UNBIND, V_TENSOR(t), V_INT(1));
	n = s->nresult < MAX_RANK ? s->nresult : MAX_RANK;
	for (uint32_t i = 0; i < n; i++)
		places[i] = s->result[i];
	return call_results(c, places, n);
}

/* ---- convolutions under their kernels' names ---------------------------------------------------------------------------------------- */

static uint32_t
slow_conv(struct call *c, bool transposed)
{
	const struct value *stride = call_arg(c, "stride"), *padding = call_arg(c, "padding"), *dilation = call_arg(c, "dilation"), *more = call_arg(c, "output_padding");

	c->s->autocast = DT_NONE;      /* no operator that autocast knows */
	return CALL(c->s, CONVOLUTION, *call_arg(c, "input"), *call_arg(c, "weight"), *call_arg(c, "bias"), *stride, *padding, *dilation, V_BOOL(transposed),
	    transposed ? *more : V_INT(0), V_INT(1));
}

uint32_t
compose_SLOW_CONV(struct call *c)
{
	return slow_conv(c, false);
}

uint32_t
compose_SLOW_CONV_TRANSPOSE(struct call *c)
{
	return slow_conv(c, true);
}

/* ---- padding that goes round ------------------------------------------------------------------------------------------------------------ */

static uint32_t
part_of(struct sim *s, uint32_t t, int64_t d, int64_t from, int64_t to)
{
	return t ? CALL(s, SLICE, V_TENSOR(t), V_INT(d), V_INT(from), V_INT(to), V_INT(1)) : 0;
}

static void
copy_onto(struct sim *s, uint32_t to, uint32_t from)
{
	if (to && from)
		op_call_inplace(s, OP_COPY, (const struct value[]){V_TENSOR(to), V_TENSOR(from)}, 2);
}

static int64_t
at_least_0(int64_t n)
{
	return n > 0 ? n : 0;
}

/* _pad_circular: the tensor into the middle of a new one, then for each dim from the last one on what stands at its one end before the other. */
uint32_t
compose_PAD_CIRCULAR(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), inner = self, out, slice;
	int64_t pad[2 * MAX_RANK], dim[MAX_RANK];
	unsigned n = call_ints(c, "pad", pad, 2 * MAX_RANK) / 2, rank = self ? geom_at(s, self)->rank : 0;

	if (n > rank) {
		call_failed(c, "sizes do not fit the tensor");
		return 0;
	}
	for (unsigned d = 0; d < rank; d++)
		dim[d] = geom_at(s, self)->dim[d] + (rank - d <= n ? pad[2 * (rank - 1 - d)] + pad[2 * (rank - 1 - d) + 1] : 0);
	out = slice = CALL(s, NEW_ZEROS, V_TENSOR(self), V_INTS(dim, rank));
	for (unsigned i = 0; i < n; i++) {
		int64_t d = (int64_t)(rank - 1 - i), size = geom_at(s, self)->dim[d];

		slice = part_of(s, slice, d, at_least_0(pad[2 * i]), dim[d] - at_least_0(pad[2 * i + 1]));
		inner = part_of(s, inner, d, at_least_0(-pad[2 * i]), size - at_least_0(-pad[2 * i + 1]));
	}
	copy_onto(s, slice, inner);
	for (unsigned i = 0; i < n; i++) {
		int64_t d = (int64_t)(rank - 1 - i), left = at_least_0(pad[2 * i]), right = at_least_0(pad[2 * i + 1]);

		if (left)
			copy_onto(s, part_of(s, out, d, 0, left), part_of(s, out, d, dim[d] - left - right, dim[d] - right));
		if (right)
			copy_onto(s, part_of(s, out, d, dim[d] - right, dim[d]), part_of(s, out, d, left, left + right));
	}
	return temps_keep(s, mark, out);
}
