/*
 * Adaptive pooling into cells of unequal sizes, which an exporter writes as a read of every element of every cell by a constant index of rows and
 * columns, [out_h, cell_h, out_w, cell_w, 2], and the mean over the axes of the cells: one reduction, or a sum of selects over the sizes of the cells, what is outside of
 * a cell set to zero.
 */
#include "eager.h"

#include <string.h>

static bool
is_op(const struct graph *g, uint32_t n, unsigned op)
{
	return n && g->nodes[n].op == op;
}

/* The elements of a sum of selects, and how many selects there are; 0 = it is none. */
static uint32_t
summed(const struct graph *g, uint32_t v, int64_t *count)
{
	uint32_t n = maker_of(g, v);

	*count = 1;
	for (; is_op(g, n, OP_ONNX_ADD); n = maker_of(g, operand_of(g, n, 0)))
		++*count;
	for (unsigned axis = 0; axis < 2; axis++) {
		if (!is_op(g, n, OP_ONNX_GATHER))
			return 0;
		v = operand_of(g, n, 0);
		n = maker_of(g, v);
	}
	return v;
}

/* What the elements of the cells, [batch, channels, out_h, cell_h, out_w, cell_w], were read from; 0 = they are none. cells: those four dims */
static uint32_t
pooled(const struct raiser *r, uint32_t v, int64_t *cells)
{
	const struct graph *g = r->g;
	uint32_t n = maker_of(g, v), i;
	int64_t dim[MAX_RANK];
	unsigned rank;

	for (unsigned k = 0; k < 2 && is_op(g, n, OP_ONNX_WHERE); k++)
		n = maker_of(g, operand_of(g, n, 2));
	if (!has_perm(g, n, (const int64_t[]){4, 5, 0, 1, 2, 3}, 6))
		return 0;
	n = maker_of(g, operand_of(g, n, 0));
	i = is_op(g, n, OP_ONNX_GATHER_ND) ? operand_of(g, n, 1) : 0;
	if (!i || maker_of(g, i) || !eager_size(r, i, dim, &rank) || rank != 5 || dim[4] != 2)
		return 0;
	for (unsigned k = 0; k < 4; k++)
		cells[k] = dim[k];
	n = maker_of(g, operand_of(g, n, 0));
	return has_perm(g, n, (const int64_t[]){2, 3, 0, 1}, 4) ? operand_of(g, n, 0) : 0;
}

static bool
write(struct raiser *r, uint32_t x, const int64_t *cells)
{
	const int64_t size[] = {cells[0], cells[2]};
	uint32_t n = eager_node(r, OP_ADAPTIVE_AVG_POOL, 1);

	eager_tensor(r, n, "self", x);
	eager_ints(r, n, "output_size", size, 2);
	eager_results(r, n);
	return true;
}

/* The file stores it, in whatever dtype it is wanted. */
static bool
is_stored(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);

	return !n || ((g->nodes[n].op == OP_TO || g->nodes[n].op == OP_ONNX_CAST) && !maker_of(g, operand_of(g, n, 0)));
}

bool
eager_adaptive_pool_of_sums(struct raiser *r)
{
	int64_t count, cells[4];
	uint32_t x = summed(r->g, r->m.var[0], &count);

	x = x ? pooled(r, x, cells) : 0;
	return x && is_stored(r->g, r->m.var[1]) && count == cells[1] * cells[3] && write(r, x, cells);
}

bool
eager_adaptive_pool(struct raiser *r)
{
	const struct val *axes = &r->g->vals[r->m.var[1]];
	int64_t cells[4], first, second;
	uint32_t x = pooled(r, r->m.var[0], cells);

	if (!x || axes->data != DATA_INTS || axes->ndata != 2 || attr_int(&r->s, "keepdims"))
		return false;
	first = r->g->ints[axes->data_at].n;
	second = r->g->ints[axes->data_at + 1].n;
	return wrap_axis(&first, 6) && wrap_axis(&second, 6) && first == 3 && second == 5 && write(r, x, cells);
}

/* Pooling to one cell is written as the largest over all spatial axes; only the module that it stands in tells it from amax. */
bool
eager_adaptive_max_pool(struct raiser *r)
{
	static const int64_t one[] = {1, 1, 1};
	const struct node *x = &r->g->nodes[r->s.n];
	uint32_t n, count = r->g->vals[r->m.var[1]].ndata;
	struct str cls = x->scope ? graph_str(r->g, r->g->scopes[x->scope].cls) : S("");

	if (memmem(cls.p, cls.n, "pooling.AdaptiveMaxPool", 23) == NULL || !attr_int(&r->s, "keepdims") || !count || count > 3)
		return false;
	n = eager_node(r, OP_ADAPTIVE_MAX, 1);
	eager_tensor(r, n, "self", r->m.var[0]);
	eager_ints(r, n, "output_size", one, count);
	eager_results(r, n);
	return true;
}
