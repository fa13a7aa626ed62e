/* Rows of eager.def that need code: reading and writing by index. */
#include "eager.h"

#include <string.h>

/* x[:, .., i]: the index stands at its axis. */
static bool
index_at(struct raiser *r, uint32_t x, unsigned axis, const uint32_t *index, unsigned count)
{
	uint32_t ids[2 * MAX_RANK] = {0}, n;

	if (axis + count > MAX_RANK)
		return false;
	for (unsigned i = 0; i < count; i++)
		ids[axis + i] = index[i];
	n = eager_node(r, OP_INDEX, 1);
	eager_tensor(r, n, "self", x);
	eager_tensors(r, n, "indices", ids, axis + count);
	eager_results(r, n);
	return true;
}

static bool
is_table(const struct val *v)
{
	return (v->kind == VAL_PARAM || v->kind == VAL_BUFFER || v->kind == VAL_CONST) && v->rank == 2 && dtype_is_float(v->dtype);
}

/* One number selects; rows of a table that the file stores are an embedding's. */
bool
eager_gather(struct raiser *r)
{
	uint32_t n, x = operand(&r->s, "data"), i = operand(&r->s, "indices");
	int64_t axis = attr_int(&r->s, "axis"), at;

	if (!x || !i || !wrap_axis(&axis, r->g->vals[x].rank))
		return false;
	if (r->g->vals[i].rank == 0 && known_int(&r->s, i, &at)) {
		n = eager_node(r, OP_SELECT, 1);
		eager_tensor(r, n, "self", x);
		eager_arg(r, n, "dim", arg_int(axis));
		eager_arg(r, n, "index", arg_int(at));
		eager_results(r, n);
		return true;
	}
	if (axis != 0 || !is_table(&r->g->vals[x]))
		return index_at(r, x, (unsigned)axis, &i, 1);
	n = eager_node(r, OP_EMBEDDING, 1);
	eager_tensor(r, n, "weight", x);
	eager_tensor(r, n, "indices", i);
	eager_results(r, n);
	return true;
}

/*
 * Positions that were expanded over the first dim before the exporter computed them, as its record says: they have one row. Without a record they were,
 * too: constants know nothing of the batch.
 */
static uint32_t
one_row(struct raiser *r, uint32_t v)
{
	struct graph *g = r->g;
	struct sint dim[MAX_RANK];
	unsigned rank = g->vals[v].rank;
	uint32_t row, n;

	if (g->vals[v].kind != VAL_CONST || rank < 2 || rank > MAX_RANK || (g->nodes[r->s.n].fx_target && !str_starts(eager_recorded(r, "aten.gather", 2), S("%expand"))))
		return v;
	memcpy(dim, val_dims(g, v), rank * sizeof *dim);
	dim[0] = SINT(1);
	row = val_new(g, VAL_CONST, str_fmt(g->c->a, "%.*s_row", SFMT(graph_str(g, g->vals[v].name))));
	g->vals[row].dtype = g->vals[v].dtype;
	val_shape(g, row, rank, dim);
	n = eager_node(r, OP_EXPAND, 1);
	eager_tensor(r, n, "self", row);
	eager_arg(r, n, "size", (struct arg){.kind = ARG_INTS, .first = ints_add(g, val_dims(g, v), rank), .count = rank});
	return eager_out(r, n);
}

bool
eager_gather_elements(struct raiser *r)
{
	uint32_t i = one_row(r, operand(&r->s, "indices")), n = eager_node(r, OP_GATHER, 1);

	eager_tensor(r, n, "self", operand(&r->s, "data"));
	eager_arg(r, n, "dim", arg_int(attr_int(&r->s, "axis")));
	eager_tensor(r, n, "index", i);
	eager_results(r, n);
	return true;
}

/* What an exporter did to one index of several: a new last axis, after all were made as large as each other. */
static uint32_t
plain_index(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);

	if (n && g->nodes[n].op == OP_ONNX_UNSQUEEZE)
		v = operand_of(g, n, 0), n = maker_of(g, v);
	if (n && g->nodes[n].op == OP_ONNX_EXPAND)
		v = operand_of(g, n, 0);
	return v;
}

static uint32_t
column(struct raiser *r, uint32_t i, int64_t at)
{
	uint32_t n = eager_node(r, OP_SELECT, 1);

	eager_tensor(r, n, "self", i);
	eager_arg(r, n, "dim", arg_int(-1));
	eager_arg(r, n, "index", arg_int(at));
	return eager_out(r, n);
}

/* The last axis of the indices counts the axes that they index: joined by the exporter, or columns of one tensor. */
static unsigned
indices_of(struct raiser *r, uint32_t i, uint32_t *index)
{
	uint32_t n = maker_of(r->g, i);
	unsigned count = 0, rank;
	int64_t dim[MAX_RANK];

	if (n && r->g->nodes[n].op == OP_ONNX_CONCAT) {
		for (; count < MAX_RANK && operand_of(r->g, n, count); count++)
			index[count] = plain_index(r->g, operand_of(r->g, n, count));
		return count;
	}
	index[0] = plain_index(r->g, i);
	if (index[0] != i || !eager_size(r, i, dim, &rank) || !rank || dim[rank - 1] > MAX_RANK)
		return 1;
	for (; count < dim[rank - 1]; count++)
		index[count] = column(r, i, count);
	return count;
}

bool
eager_gather_nd(struct raiser *r)
{
	uint32_t x = operand(&r->s, "data"), i = operand(&r->s, "indices"), index[MAX_RANK];

	return x && i && attr_int(&r->s, "batch_dims") == 0 && index_at(r, x, 0, index, indices_of(r, i, index));
}

/* x[:, i]: the axes that are indexed stand in front for the exporter's operator, and go back to their place. */
bool
eager_gather_nd_turned(struct raiser *r)
{
	const struct graph *g = r->g;
	const struct arg *outer = node_arg(g, r->m.node[0], "perm"), *inner = node_arg(g, r->m.node[2], "perm");
	struct arg back, front;
	uint32_t index[MAX_RANK], made = node_outs(g, r->m.node[1])[0];
	unsigned count, rank, kept;
	int64_t at, dim[MAX_RANK];

	if (!outer || !inner || outer->kind != ARG_INTS || inner->kind != ARG_INTS || !inner->count || !eager_size(r, made, dim, &rank) || outer->count != rank)
		return false;
	back = *outer;
	front = *inner;
	count = indices_of(r, r->m.var[1], index);
	at = g->ints[front.first].n;
	if (count > front.count || rank + count < front.count || at < 0)
		return false;
	kept = front.count - count;
	for (unsigned i = 0; i < front.count; i++)
		if (g->ints[front.first + i].n != (i < count ? at + i : i - count < (unsigned)at ? i - count : i))
			return false;
	for (unsigned i = 0; i < rank; i++)
		if (g->ints[back.first + i].n != (i < (unsigned)at ? i + rank - kept : i < (unsigned)at + rank - kept ? i - (unsigned)at : i))
			return false;
	return index_at(r, r->m.var[0], (unsigned)at, index, count);
}

/* masked_scatter: as many of the source's elements as the mask has places, written at those places. */
static bool
masked_scatter(struct raiser *r)
{
	struct graph *g = r->g;
	uint32_t at = maker_of(g, operand(&r->s, "indices")), cut = maker_of(g, operand(&r->s, "updates")), mask, source, x = operand(&r->s, "data"), n;

	if (!at || g->nodes[at].op != OP_ONNX_TRANSPOSE || !cut || g->nodes[cut].op != OP_ONNX_SLICE)
		return false;
	at = maker_of(g, operand_of(g, at, 0));
	if (!at || g->nodes[at].op != OP_ONNX_NON_ZERO)
		return false;
	mask = operand_of(g, at, 0);
	source = operand_of(g, cut, 0);
	n = maker_of(g, mask);
	if (n && g->nodes[n].op == OP_ONNX_EXPAND)
		mask = operand_of(g, n, 0);
	n = maker_of(g, source);
	if (n && g->nodes[n].op == OP_ONNX_RESHAPE)
		source = operand_of(g, n, 0);
	n = maker_of(g, x);
	if (n && g->nodes[n].op == OP_ONNX_EXPAND)
		x = operand_of(g, n, 0);
	n = eager_node(r, OP_MASKED_SCATTER, 1);
	eager_tensor(r, n, "self", x);
	eager_tensor(r, n, "mask", mask);
	eager_tensor(r, n, "source", source);
	eager_results(r, n);
	return true;
}

/* Rows added at places of one axis: index_add, which exporters write so. That index_put does the same is not told apart. */
static bool
index_add(struct raiser *r, const uint32_t *index, unsigned count)
{
	const struct graph *g = r->g;
	uint32_t x = operand(&r->s, "data"), source = operand(&r->s, "updates"), n;

	if (count != 1 || !str_eq(attr_str(&r->s, "reduction"), S("add")) || g->vals[index[0]].rank > 2 || !g->vals[x].rank || g->vals[x].rank != g->vals[source].rank)
		return false;
	n = eager_node(r, OP_INDEX_ADD, 1);
	eager_tensor(r, n, "self", x);
	eager_arg(r, n, "dim", arg_int(0));
	eager_tensor(r, n, "index", index[0]);
	eager_tensor(r, n, "source", source);
	eager_results(r, n);
	return true;
}

bool
eager_scatter_nd(struct raiser *r)
{
	uint32_t n, index[MAX_RANK];
	unsigned count;

	if (masked_scatter(r))
		return true;
	count = indices_of(r, operand(&r->s, "indices"), index);
	if (index_add(r, index, count))
		return true;
	n = eager_node(r, OP_INDEX_PUT, 1);
	eager_tensor(r, n, "self", operand(&r->s, "data"));
	eager_tensors(r, n, "indices", index, count);
	eager_tensor(r, n, "values", operand(&r->s, "updates"));
	eager_arg(r, n, "accumulate", arg_bool(str_eq(attr_str(&r->s, "reduction"), S("add"))));
	eager_results(r, n);
	return true;
}
