/*
 * RotaryEmbedding (opset 23): libraries write it as x * cos + cat(-x2, x1) * sin, with x1 and x2 the halves of x. The exporter makes cosines and sines of
 * half the angles anew for each use; the model made them once, of the angles written twice.
 */
#include "eager.h"

static uint32_t
one_of(struct raiser *r, unsigned op, uint32_t x)
{
	uint32_t n = eager_node(r, op, 1);

	eager_arg(r, n, "self", arg_val(eager_reads(r, x)));
	return eager_out(r, n);
}

static uint32_t
two_of(struct raiser *r, unsigned op, uint32_t x, uint32_t y)
{
	uint32_t n = eager_node(r, op, 1);

	eager_arg(r, n, "self", arg_val(eager_reads(r, x)));
	eager_arg(r, n, "other", arg_val(eager_reads(r, y)));
	return eager_out(r, n);
}

static uint32_t
joined(struct raiser *r, uint32_t x, uint32_t y)
{
	uint32_t n = eager_node(r, OP_CAT, 1), pair[2] = {x, y};

	eager_tensors(r, n, "tensors", pair, 2);
	eager_arg(r, n, "dim", arg_int(-1));
	return eager_out(r, n);
}

static uint32_t
half(struct raiser *r, uint32_t x, int64_t start, int64_t end)
{
	uint32_t n = eager_node(r, OP_SLICE, 1);

	eager_arg(r, n, "self", arg_val(eager_reads(r, x)));
	eager_arg(r, n, "dim", arg_int(-1));
	eager_arg(r, n, "start", arg_int(start));
	eager_arg(r, n, "end", arg_int(end));
	return eager_out(r, n);
}

/* The operand of the cosine or sine that a cache is, converted or not; 0 = it is none. */
static uint32_t
angles_of(const struct graph *g, uint32_t cache, unsigned op)
{
	uint32_t n = maker_of(g, cache);

	if (n && g->nodes[n].flags & NF_DOWNCAST)
		n = maker_of(g, operand_of(g, n, 0));
	return n && g->nodes[n].op == op ? operand_of(g, n, 0) : 0;
}

static uint32_t
brought_back(struct raiser *r, uint32_t x)
{
	uint32_t n = eager_node(r, OP_TO, 1);

	eager_arg(r, n, "self", arg_val(eager_reads(r, x)));
	eager_arg(r, n, "dtype", arg_dtype(DT_FP32));
	r->g->nodes[n].flags |= NF_DOWNCAST;
	return eager_out(r, n);
}

/* Once, where the first of the copies stood. */
static void
make_tables(struct raiser *r, uint32_t angles)
{
	uint32_t kept = r->s.n, n = 1, twice, cache = operand_at(&r->s, 1);
	bool back = r->g->nodes[maker_of(r->g, cache)].flags & NF_DOWNCAST;

	if (r->angles == angles)
		return;
	while (n < kept && !(r->g->nodes[n].op == OP_ONNX_COS && operand_of(r->g, n, 0) == angles))
		n++;
	r->s.n = n;
	twice = joined(r, angles, angles);
	r->cosines = one_of(r, OP_COS, twice);
	r->sines = one_of(r, OP_SIN, twice);
	if (back) {
		r->cosines = brought_back(r, r->cosines);
		r->sines = brought_back(r, r->sines);
	}
	r->angles = angles;
	r->s.n = kept;
}

static uint32_t
per_head(struct raiser *r, uint32_t table)
{
	uint32_t n = eager_node(r, OP_UNSQUEEZE, 1);

	eager_arg(r, n, "self", arg_val(eager_reads(r, table)));
	eager_arg(r, n, "dim", arg_int(1));
	return eager_out(r, n);
}

bool
eager_rotary(struct raiser *r)
{
	uint32_t x = operand_at(&r->s, 0), angles = angles_of(r->g, operand_at(&r->s, 1), OP_ONNX_COS), cosines, sines, turned, straight, n;
	int64_t dim[MAX_RANK];
	unsigned rank;

	if (!angles || angles != angles_of(r->g, operand_at(&r->s, 2), OP_ONNX_SIN) || attr_int(&r->s, "interleaved") || !eager_size(r, x, dim, &rank) || rank != 4)
		return false;
	make_tables(r, angles);
	cosines = per_head(r, r->cosines);
	sines = per_head(r, r->sines);
	straight = two_of(r, OP_MUL, x, cosines);
	turned = half(r, x, 0, dim[3] / 2);
	turned = joined(r, one_of(r, OP_NEG, half(r, x, dim[3] / 2, INT64_MAX)), turned);
	turned = two_of(r, OP_MUL, turned, sines);
	n = eager_node(r, OP_ADD, 1);
	eager_tensor(r, n, "self", straight);
	eager_tensor(r, n, "other", turned);
	eager_results(r, n);
	return true;
}
