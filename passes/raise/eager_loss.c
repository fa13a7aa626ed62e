/* Rows of eager.def that need code: losses that only the way they are written, or the exporter's record, tells from arithmetic of the model. */
#include "eager.h"

#include <stdlib.h>

/* ---- classes ------------------------------------------------------------------------------------------------------------------------- */

static bool
cross_entropy(struct raiser *r, unsigned op, uint32_t x)
{
	struct str how = attr_str(&r->s, "reduction"), smoothing = eager_recorded(r, "aten.cross_entropy_loss", 5);
	uint32_t n = eager_node(r, op, 1);

	eager_tensor(r, n, "self", x);
	eager_tensor(r, n, "target", operand_at(&r->s, 1));
	eager_tensor(r, n, "weight", operand_at(&r->s, 2));
	eager_arg(r, n, "reduction", arg_int(str_eq(how, S("none")) ? 0 : str_eq(how, S("sum")) ? 2 : 1));
	eager_arg(r, n, "ignore_index", *arg_of(&r->s, "ignore_index"));
	if (smoothing.n)
		eager_arg(r, n, "label_smoothing", arg_float(strtod(smoothing.p, NULL)));
	eager_results(r, n);
	return true;
}

bool
eager_cross_entropy(struct raiser *r)
{
	return cross_entropy(r, OP_CROSS_ENTROPY, r->m.var[0]);
}

bool
eager_nll_loss(struct raiser *r)
{
	return cross_entropy(r, OP_NLL_LOSS_ND, r->m.var[0]);
}

/* ---- squares --------------------------------------------------------------------------------------------------------------------------- */

/* An operand that an exporter gave the dims of both. */
static uint32_t
plain(const struct graph *g, uint32_t v, bool *expanded)
{
	uint32_t n = maker_of(g, v);

	*expanded = n && g->nodes[n].op == OP_ONNX_EXPAND;
	return *expanded ? operand_of(g, n, 0) : v;
}

static bool
from_legacy_exporter(const struct graph *g, uint32_t v)
{
	return str_starts(graph_str(g, g->vals[v].name), S("/"));
}

/*
 * The product of the difference with itself: of one node with itself the newer exporter writes it; of two that do the same, after both sides were expanded, the older one.
 * A model's own square is a power, or it is averaged in two nodes, or the record says that it is a product.
 */
static bool
is_squared(const struct raiser *r, uint32_t d, uint32_t e, uint32_t *a, uint32_t *b)
{
	const struct graph *g = r->g;
	uint32_t m = maker_of(g, d), n = maker_of(g, e);
	bool left, right;
	struct str target = graph_str(g, g->nodes[r->s.n].fx_target);

	if (!m || !n || g->nodes[m].op != OP_ONNX_SUB || g->nodes[n].op != OP_ONNX_SUB || operand_of(g, m, 0) != operand_of(g, n, 0) || operand_of(g, m, 1) != operand_of(g, n, 1))
		return false;
	*a = plain(g, operand_of(g, m, 0), &left);
	*b = plain(g, operand_of(g, m, 1), &right);
	if (target.n)
		return str_starts(target, S("aten.mse_loss"));
	return d == e ? !from_legacy_exporter(g, d) && g->nodes[r->s.n].op != OP_ONNX_MUL : left && right;
}

static bool
squares(struct raiser *r, int64_t reduction)
{
	uint32_t a, b, n;

	if (!is_squared(r, r->m.var[0], r->m.var[1], &a, &b))
		return false;
	n = eager_node(r, OP_MSE_LOSS, 1);
	eager_tensor(r, n, "self", a);
	eager_tensor(r, n, "target", b);
	eager_arg(r, n, "reduction", arg_int(reduction));
	eager_results(r, n);
	return true;
}

bool
eager_mse_loss(struct raiser *r)
{
	return squares(r, r->g->nodes[r->s.n].op == OP_ONNX_REDUCE_MEAN ? 1 : r->g->nodes[r->s.n].op == OP_ONNX_REDUCE_SUM ? 2 : 0);
}

/*
 * torch.square and x * x are one node of the older exporter. Behind relu it is the activation relu(x)^2, which is written with square: under autocast that runs
 * in fp32.
 */
bool
eager_square(struct raiser *r)
{
	const struct graph *g = r->g;
	uint32_t x = r->m.var[0], relu = maker_of(g, x), n;

	if (!relu || (g->nodes[relu].op != OP_ONNX_RELU && g->nodes[relu].op != OP_RELU) || g->nodes[r->s.n].fx_target || r->uses[x] != 2)
		return false;
	n = eager_node(r, OP_SQUARE, 1);
	eager_tensor(r, n, "self", x);
	eager_results(r, n);
	return true;
}
