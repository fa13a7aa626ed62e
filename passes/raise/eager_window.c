/* Rows of eager.def that need code: axes that are rolled, and windows of axes that are read by constant positions. */
#include "eager.h"

static bool
is_op(const struct graph *g, uint32_t n, unsigned op)
{
	return n && g->nodes[n].op == op;
}

/* ---- roll ----------------------------------------------------------------------------------------------------------------------------- */

struct slice {
	uint32_t x;
	int64_t axis, start, end, size;
};

static bool
read_slice(const struct raiser *r, uint32_t n, struct slice *s)
{
	const struct graph *g = r->g;
	int64_t dim[MAX_RANK];
	double start, end, axis = 0, step = 1;
	unsigned rank;

	if (!is_op(g, n, OP_ONNX_SLICE) || !scalar_of(g, operand_of(g, n, 1), &start) || !scalar_of(g, operand_of(g, n, 2), &end) ||
	    (operand_of(g, n, 3) && !scalar_of(g, operand_of(g, n, 3), &axis)) || (operand_of(g, n, 4) && !scalar_of(g, operand_of(g, n, 4), &step)) || step != 1)
		return false;
	*s = (struct slice){.x = operand_of(g, n, 0), .axis = axis > -MAX_RANK - 1.0 && axis < MAX_RANK ? (int64_t)axis : MAX_RANK};
	if (!eager_size(r, s->x, dim, &rank) || !wrap_axis(&s->axis, rank))
		return false;
	s->size = dim[s->axis];
	start = start < 0 ? start + (double)s->size : start;
	end = end < 0 ? end + (double)s->size : end;
	s->start = start < 0 ? 0 : start > (double)s->size ? s->size : (int64_t)start;
	s->end = end < 0 ? 0 : end > (double)s->size ? s->size : (int64_t)end;
	return true;
}

/* What was rolled along one axis: its end stands before its beginning. 0 = nothing was */
static uint32_t
rolled(struct raiser *r, uint32_t n, int64_t *axis, int64_t *shift)
{
	const struct graph *g = r->g;
	struct slice tail, head;
	struct shaper s = r->s;
	int64_t along;

	if (!is_op(g, n, OP_ONNX_CONCAT) || !operand_of(g, n, 1) || operand_of(g, n, 2) || !read_slice(r, maker_of(g, operand_of(g, n, 0)), &tail) ||
	    !read_slice(r, maker_of(g, operand_of(g, n, 1)), &head))
		return 0;
	s.n = n;
	along = attr_int(&s, "axis");
	if (!wrap_axis(&along, g->vals[tail.x].rank) || tail.x != head.x || tail.axis != head.axis || tail.axis != along)
		return 0;
	if (head.start != 0 || head.end != tail.start || tail.end != tail.size || !head.end || head.end == head.size)
		return 0;
	*axis = along;
	*shift = tail.size - tail.start;
	return tail.x;
}

bool
eager_roll(struct raiser *r)
{
	int64_t axis[MAX_RANK], shift[MAX_RANK];
	uint32_t x = node_outs(r->g, r->s.n)[0], from, count = 0, n;
	struct str target = graph_str(r->g, r->g->nodes[r->s.n].fx_target);

	if (target.n && !str_starts(target, S("aten.roll")))
		return false;
	while (count < MAX_RANK && (!count || r->uses[x] == 2) && (from = rolled(r, maker_of(r->g, x), &axis[count], &shift[count])) != 0) {
		count++;
		x = from;
	}
	if (!count)
		return false;
	n = eager_node(r, OP_ROLL, 1);
	eager_tensor(r, n, "self", x);
	eager_ints(r, n, "shifts", shift, count);
	eager_ints(r, n, "dims", axis, count);
	eager_results(r, n);
	return true;
}

/* ---- windows ---------------------------------------------------------------------------------------------------------------------------- */

/* Read by an index of two axes that follows from sizes alone. */
static uint32_t
windows(const struct raiser *r, uint32_t n, int64_t *axis, int64_t *index)
{
	struct shaper s = r->s;
	unsigned rank;

	if (!is_op(r->g, n, OP_ONNX_GATHER) || !eager_size(r, operand_of(r->g, n, 1), index, &rank) || rank != 2)
		return 0;
	s.n = n;
	*axis = attr_int(&s, "axis");
	return wrap_axis(axis, r->g->vals[operand_of(r->g, n, 0)].rank) ? operand_of(r->g, n, 0) : 0;
}

/* The step that makes so many windows of an axis. */
static int64_t
step_of(int64_t size, int64_t window, int64_t count)
{
	return count > 1 && size > window ? (size - window) / (count - 1) : 1;
}

/* The elements of a window stand behind the windows, where an index has them, and not at the end: the optimiser joined that transposition with the next one. */
static void
in_place(struct raiser *r, uint32_t unfolded, int64_t axis, unsigned rank)
{
	uint32_t n = eager_node(r, OP_PERMUTE, 1);
	int64_t perm[MAX_RANK + 1];

	for (int64_t i = 0; i <= rank; i++)
		perm[i] = i <= axis ? i : i == axis + 1 ? (int64_t)rank : i - 1;
	eager_tensor(r, n, "self", unfolded);
	eager_ints(r, n, "dims", perm, rank + 1);
	eager_results(r, n);
}

static bool
write_unfold(struct raiser *r, uint32_t x, int64_t axis, const int64_t *index, bool turned)
{
	int64_t dim[MAX_RANK], step;
	unsigned rank;
	uint32_t n;

	if (!eager_size(r, x, dim, &rank) || axis >= rank || rank == MAX_RANK)
		return false;
	step = step_of(dim[axis], index[1], index[0]);
	if (step < 1 || index[1] > dim[axis] || (dim[axis] - index[1]) / step + 1 != index[0])
		return false;
	n = eager_node(r, OP_UNFOLD, 1);
	eager_tensor(r, n, "self", x);
	eager_arg(r, n, "dimension", arg_int(axis));
	eager_arg(r, n, "size", arg_int(index[1]));
	eager_arg(r, n, "step", arg_int(step));
	if (turned || axis + 1 == rank)
		eager_results(r, n);
	else
		in_place(r, eager_out(r, n), axis, rank);
	return true;
}

/* The axis of a window's elements goes to the end; it is there already where the last axis is unfolded. */
bool
eager_unfold(struct raiser *r)
{
	const struct graph *g = r->g;
	uint32_t n = r->s.n, x;
	int64_t axis, index[MAX_RANK];
	const struct arg *perm = node_arg(g, n, "perm");
	bool turned = g->nodes[n].op == OP_ONNX_TRANSPOSE;

	if (!str_starts(graph_str(g, g->nodes[n].fx_target), S("aten.unfold")))
		return false;
	x = windows(r, turned ? maker_of(g, operand_of(g, n, 0)) : n, &axis, index);
	if (!x || (turned && (!perm || perm->kind != ARG_INTS)))
		return false;
	for (uint32_t i = 0; turned && i < perm->count; i++)
		if (g->ints[perm->first + i].n != (i <= axis ? i : i + 1 < perm->count ? i + 1 : axis + 1))
			return false;
	return write_unfold(r, x, axis, index, turned);
}

/* nn.Unfold gives [N, C * kh * kw, L]; the optimiser joined the view that makes it so with the model's own. */
static void
columns_as(struct raiser *r, uint32_t unfolded)
{
	int64_t dim[MAX_RANK];
	unsigned rank;
	uint32_t n;

	if (!eager_size(r, node_outs(r->g, r->s.n)[0], dim, &rank) || rank == 3) {
		eager_results(r, unfolded);
		return;
	}
	n = eager_node(r, OP_VIEW, 1);
	eager_tensor(r, n, "self", eager_out(r, unfolded));
	eager_ints(r, n, "size", dim, rank);
	eager_results(r, n);
}

/* nn.Unfold: both spatial axes of a picture, which may be padded. */
bool
eager_im2col(struct raiser *r)
{
	static const int64_t order[] = {0, 1, 2, 4, 3, 5};
	struct graph *g = r->g;
	int64_t dim[MAX_RANK], rows[MAX_RANK], columns[MAX_RANK], axis, pad[2 * MAX_RANK] = {0}, one[2] = {1, 1};
	uint32_t turn = r->m.node[1], second = maker_of(g, operand_of(g, turn, 0)), first, x, n, count = 0, padding;
	const struct arg *perm = node_arg(g, turn, "perm");
	unsigned rank;

	x = windows(r, second, &axis, columns);
	first = x && axis == 4 ? maker_of(g, x) : 0;
	x = first ? windows(r, first, &axis, rows) : 0;
	if (!x || axis != 2 || !perm || perm->kind != ARG_INTS || perm->count != 6 || !eager_size(r, x, dim, &rank) || rank != 4)
		return false;
	for (unsigned i = 0; i < 6; i++)
		if (g->ints[perm->first + i].n != order[i])
			return false;
	padding = maker_of(g, x);
	if (is_op(g, padding, OP_ONNX_PAD) && known_numbers(&r->s, operand_of(g, padding, 1), pad, 2 * MAX_RANK, &count) && count == 8)
		x = operand_of(g, padding, 0);
	n = eager_node(r, OP_IM2COL, 1);
	eager_tensor(r, n, "self", x);
	eager_ints(r, n, "kernel_size", (const int64_t[]){rows[0], columns[0]}, 2);
	eager_ints(r, n, "dilation", one, 2);
	eager_ints(r, n, "padding", (const int64_t[]){pad[2], pad[3]}, 2);
	eager_ints(r, n, "stride", (const int64_t[]){step_of(dim[2], rows[0], rows[1]), step_of(dim[3], columns[0], columns[1])}, 2);
	columns_as(r, n);
	return true;
}

static bool
window_ints(struct raiser *r, uint32_t n, const char *arg, const char *name, int64_t dflt)
{
	int64_t all[2 * MAX_RANK] = {dflt, dflt};
	int count = attr_ints(&r->s, name, all, 2 * MAX_RANK);

	if (count >= 0 && count != 2 && count != 4)
		return false;
	if (count == 4 && (all[0] != all[2] || all[1] != all[3]))
		return false;
	eager_ints(r, n, arg, all, 2);
	return true;
}

/* nn.Fold, of pictures padded alike on both sides. */
bool
eager_fold(struct raiser *r)
{
	int64_t size[2], kernel[2];
	uint32_t n, count, same;

	if (!known_numbers(&r->s, r->m.var[1], size, 2, &count) || count != 2 || !known_numbers(&r->s, r->m.var[2], kernel, 2, &same) || same != 2)
		return false;
	n = eager_node(r, OP_COL2IM, 1);
	eager_tensor(r, n, "self", r->m.var[0]);
	eager_ints(r, n, "output_size", size, 2);
	eager_ints(r, n, "kernel_size", kernel, 2);
	if (!window_ints(r, n, "dilation", "dilations", 1) || !window_ints(r, n, "padding", "pads", 0) || !window_ints(r, n, "stride", "strides", 1))
		return false;
	eager_results(r, n);
	return true;
}
