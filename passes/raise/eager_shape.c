/* Rows of eager.def that need code: dtypes, views, and tensors made from sizes. */
#include "eager.h"

#include <string.h>

/* ---- dtype -------------------------------------------------------------------------------------------------------------------- */

bool
eager_cast(struct raiser *r)
{
	uint32_t n, x = operand_at(&r->s, 0);
	unsigned dtype = r->g->vals[node_outs(r->g, r->s.n)[0]].dtype;

	if (!x || !dtype)
		return false;
	n = eager_node(r, OP_TO, 1);
	eager_tensor(r, n, "self", x);
	eager_arg(r, n, "dtype", arg_dtype(dtype));
	eager_results(r, n);
	return true;
}

/* ---- views ---------------------------------------------------------------------------------------------------------------------- */

bool
eager_transpose(struct raiser *r)
{
	uint32_t n, x = operand_at(&r->s, 0), moved[MAX_RANK], nmoved = 0;
	unsigned rank = r->g->vals[x].rank;
	int64_t perm[MAX_RANK];
	int count = attr_ints(&r->s, "perm", perm, MAX_RANK);

	if (rank > MAX_RANK || (count >= 0 && (unsigned)count != rank))
		return false;
	for (unsigned i = 0; i < rank; i++) {
		if (count < 0)
			perm[i] = (int64_t)(rank - 1 - i);
		if (perm[i] != i)
			moved[nmoved++] = i;
	}
	n = eager_node(r, nmoved == 2 ? OP_TRANSPOSE : OP_PERMUTE, 1);
	eager_tensor(r, n, "self", x);
	if (nmoved == 2) {
		eager_arg(r, n, "dim0", arg_int(moved[0]));
		eager_arg(r, n, "dim1", arg_int(moved[1]));
	} else {
		eager_ints(r, n, "dims", perm, rank);
	}
	eager_results(r, n);
	return true;
}

static bool
full(struct raiser *r, double value, bool whole)
{
	uint32_t n, out = node_outs(r->g, r->s.n)[0];
	int64_t dim[MAX_RANK];
	unsigned rank;

	if (!eager_size(r, out, dim, &rank))
		return false;
	n = eager_node(r, OP_FULL, 1);
	eager_ints(r, n, "size", dim, rank);
	eager_arg(r, n, "fill_value", whole ? arg_int((int64_t)value) : arg_float(value));
	eager_arg(r, n, "dtype", arg_dtype(r->g->vals[out].dtype));
	eager_results(r, n);
	return true;
}

bool
eager_constant(struct raiser *r)
{
	return full(r, 0, r->g->vals[node_outs(r->g, r->s.n)[0]].dtype != DT_FP32);
}

/* ONNX broadcasts both ways: the result has the dims. A number that is expanded was made with those dims. */
bool
eager_expand(struct raiser *r)
{
	uint32_t n, x = operand_at(&r->s, 0), out = node_outs(r->g, r->s.n)[0];
	int64_t dim[MAX_RANK];
	unsigned rank;
	double number;

	if (scalar_of(r->g, x, &number) && r->g->vals[x].rank == 0)
		return full(r, number, r->g->vals[x].data == DATA_INTS);
	if (!eager_size(r, out, dim, &rank))
		return false;
	n = eager_node(r, OP_EXPAND, 1);
	eager_tensor(r, n, "self", x);
	eager_ints(r, n, "size", dim, rank);
	eager_results(r, n);
	return true;
}

bool
eager_unsqueeze(struct raiser *r)
{
	uint32_t n = 0, x = operand_at(&r->s, 0), count;
	int64_t axis[MAX_RANK];
	unsigned rank = r->g->vals[node_outs(r->g, r->s.n)[0]].rank;

	if (!known_numbers(&r->s, operand_at(&r->s, 1), axis, MAX_RANK, &count) || !count || rank > MAX_RANK)
		return false;
	for (unsigned at = 0; at < rank; at++)
		for (uint32_t i = 0; i < count; i++) {
			if (axis[i] + (axis[i] < 0 ? rank : 0) != at)
				continue;
			n = eager_node(r, OP_UNSQUEEZE, 1);
			eager_tensor(r, n, "self", x);
			eager_arg(r, n, "dim", arg_int(at));
			x = eager_out(r, n);
		}
	if (!n)
		return false;
	eager_results(r, n);
	return true;
}

/* x.contiguous(), by the record of the operator; without a record a transposed tensor under the name of a copy. */
static bool
is_contiguous(const struct graph *g, uint32_t n)
{
	struct str args = graph_str(g, g->nodes[n].fx_args), target = graph_str(g, g->nodes[n].fx_target);

	uint32_t x = maker_of(g, operand_of(g, n, 0));

	if (!target.n)
		return x && g->nodes[x].op == OP_ONNX_TRANSPOSE && str_eq(str_stem(graph_str(g, g->vals[node_outs(g, n)[0]].name)), S("clone"));
	return str_starts(target, S("aten.clone")) && args.n && memmem(args.p, args.n, "contiguous_format", 17);
}

bool
eager_identity(struct raiser *r)
{
	uint32_t n;

	if (!is_contiguous(r->g, r->s.n)) {
		eager_same(r, r->m.var[0]);
		return true;
	}
	n = eager_node(r, OP_CONTIGUOUS, 1);
	eager_tensor(r, n, "self", r->m.var[0]);
	eager_results(r, n);
	return true;
}

static bool
is_axis(const struct graph *g, uint32_t axes, int64_t want, int64_t rank)
{
	const struct val *x = &g->vals[axes];
	int64_t at = x->data == DATA_INTS && x->ndata == 1 ? g->ints[x->data_at].n : rank;

	return at == want || at + rank == want;
}

/* 0 and the last but one change places, nothing else does. */
static bool
moves_to_front(const struct graph *g, const struct arg *perm)
{
	int64_t last = (int64_t)perm->count - 2;

	for (int64_t i = 0; i < (int64_t)perm->count; i++)
		if (g->ints[perm->first + (uint32_t)i].n != (i == 0 ? last : i == last ? 0 : i))
			return false;
	return true;
}

static uint32_t
view(struct raiser *r, unsigned op, uint32_t x, const char *name, int64_t dim)
{
	uint32_t n = eager_node(r, op, 1);

	eager_tensor(r, n, "self", x);
	eager_arg(r, n, name, arg_int(dim));
	return n;
}

/*
 * nn.MultiheadAttention takes the products of query, key and value apart that it made at once: their axis is moved to the front, by way of one of size 1, and
 * the whole copied. Exporters leave out the copy.
 */
bool
eager_packed_projection(struct raiser *r)
{
	const struct arg *perm = node_arg(r->g, r->m.node[1], "perm");
	uint32_t n, x;

	if (!perm || perm->kind != ARG_INTS || perm->count < 4 || !moves_to_front(r->g, perm) || !is_axis(r->g, r->m.var[1], 0, perm->count) ||
	    !is_axis(r->g, r->m.var[2], (int64_t)perm->count - 2, perm->count))
		return false;
	n = view(r, OP_UNSQUEEZE, r->m.var[0], "dim", 0);
	n = view(r, OP_TRANSPOSE, eager_out(r, n), "dim0", 0);
	eager_arg(r, n, "dim1", arg_int(-2));
	x = eager_out(r, view(r, OP_SQUEEZE, eager_out(r, n), "dim", -2));
	n = eager_node(r, OP_CONTIGUOUS, 1);
	eager_tensor(r, n, "self", x);
	eager_results(r, n);
	return true;
}

/* Python has no slices that run backwards: an axis that is read whole so was flipped. */
static bool
flip(struct raiser *r, const int64_t *axis, const int64_t *step, uint32_t count)
{
	int64_t from[MAX_RANK], to[MAX_RANK], dims[MAX_RANK];
	unsigned rank, same;
	uint32_t n;

	if (!eager_size(r, operand_at(&r->s, 0), from, &rank) || !eager_size(r, node_outs(r->g, r->s.n)[0], to, &same) || same != rank)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		dims[i] = axis[i];
		if (step[i] != -1 || !wrap_axis(&dims[i], rank) || from[dims[i]] != to[dims[i]])
			return false;
	}
	n = eager_node(r, OP_FLIP, 1);
	eager_tensor(r, n, "self", operand_at(&r->s, 0));
	eager_ints(r, n, "dims", dims, count);
	eager_results(r, n);
	return true;
}

/* One slice an axis; whole ones are no operator in Python. */
bool
eager_slice(struct raiser *r)
{
	uint32_t n = 0, x = operand_at(&r->s, 0), count, k;
	int64_t start[MAX_RANK], end[MAX_RANK], axis[MAX_RANK], step[MAX_RANK];
	bool axes = operand(&r->s, "axes") != 0, steps = operand(&r->s, "steps") != 0;

	if (!known_numbers(&r->s, operand(&r->s, "starts"), start, MAX_RANK, &count) || !known_numbers(&r->s, operand(&r->s, "ends"), end, MAX_RANK, &k) || k != count ||
	    (axes && (!known_numbers(&r->s, operand(&r->s, "axes"), axis, MAX_RANK, &k) || k != count)) ||
	    (steps && (!known_numbers(&r->s, operand(&r->s, "steps"), step, MAX_RANK, &k) || k != count)))
		return false;
	for (uint32_t i = 0; !axes && i < count; i++)
		axis[i] = i;
	if (steps && count && step[0] < 0)
		return flip(r, axis, step, count);
	for (uint32_t i = 0; i < count; i++) {
		n = eager_node(r, OP_SLICE, 1);
		eager_tensor(r, n, "self", x);
		eager_arg(r, n, "dim", arg_int(axis[i]));
		eager_arg(r, n, "start", arg_int(start[i]));
		eager_arg(r, n, "end", arg_int(end[i]));
		eager_arg(r, n, "step", arg_int(steps ? step[i] : 1));
		x = eager_out(r, n);
	}
	if (!n)
		return false;
	eager_results(r, n);
	return true;
}

bool
eager_split(struct raiser *r)
{
	uint32_t n, nout = r->g->nodes[r->s.n].nout;
	int64_t axis = attr_int(&r->s, "axis"), dim[MAX_RANK], size[64];
	unsigned rank;

	if (nout > 64)
		return false;
	for (uint32_t k = 0; k < nout; k++) {
		int64_t at = axis;

		if (!eager_size(r, node_outs(r->g, r->s.n)[k], dim, &rank) || !wrap_axis(&at, rank))
			return false;
		size[k] = dim[at];
	}
	n = eager_node(r, OP_SPLIT, nout);
	eager_tensor(r, n, "self", operand_at(&r->s, 0));
	eager_ints(r, n, "split_size", size, nout);
	eager_arg(r, n, "dim", arg_int(axis));
	eager_results(r, n);
	return true;
}

bool
eager_concat(struct raiser *r)
{
	const uint32_t *ids;
	uint32_t count = operands(&r->s, &ids), n = eager_node(r, OP_CAT, 1);

	ids = NULL;
	count = operands(&r->s, &ids);
	eager_tensors(r, n, "tensors", ids, count);
	eager_arg(r, n, "dim", arg_int(attr_int(&r->s, "axis")));
	eager_results(r, n);
	return true;
}

/* ONNX counts from the first dim, all begins and then all ends; PyTorch from the last, begin and end of each. */
bool
eager_pad(struct raiser *r)
{
	uint32_t n, x = operand_at(&r->s, 0), count, naxis = 0;
	int64_t pads[2 * MAX_RANK], axis[MAX_RANK], out[2 * MAX_RANK] = {0};
	unsigned rank = r->g->vals[x].rank, last;
	struct str mode = attr_str(&r->s, "mode");

	if (rank > MAX_RANK || !known_numbers(&r->s, operand(&r->s, "pads"), pads, 2 * MAX_RANK, &count) ||
	    (operand(&r->s, "axes") && !known_numbers(&r->s, operand(&r->s, "axes"), axis, MAX_RANK, &naxis)))
		return false;
	for (unsigned i = 0; !naxis && i < rank; i++)
		axis[i] = i;
	naxis = naxis ? naxis : rank;
	if (count != 2 * naxis)
		return false;
	last = 0;
	for (uint32_t i = 0; i < naxis; i++) {
		unsigned from_end;

		if (!wrap_axis(&axis[i], rank))
			return false;
		from_end = rank - 1 - (unsigned)axis[i];
		out[2 * from_end] = pads[i];
		out[2 * from_end + 1] = pads[i + naxis];
		if ((pads[i] || pads[i + naxis]) && from_end + 1 > last)
			last = from_end + 1;
	}
	n = eager_node(r, OP_PAD, 1);
	eager_tensor(r, n, "self", x);
	eager_ints(r, n, "pad", out, 2 * last);
	if (!str_eq(mode, S("constant")))
		eager_arg(r, n, "mode", (struct arg){.kind = ARG_STR, .u.str = graph_name(r->g, str_eq(mode, S("edge")) ? S("replicate") : mode)});
	eager_results(r, n);
	return true;
}

bool
eager_one_hot(struct raiser *r)
{
	uint32_t n;
	int64_t depth;

	if (!known_int(&r->s, operand(&r->s, "depth"), &depth))
		return false;
	n = eager_node(r, OP_ONE_HOT, 1);
	eager_tensor(r, n, "self", operand_at(&r->s, 0));
	eager_arg(r, n, "num_classes", arg_int(depth));
	eager_results(r, n);
	return true;
}
