/*
 * How modules that take adapters are called: Linear, convolutions, embeddings, bitsandbytes' layers, each one operator; and transformers' Conv1D, a
 * linear layer whose weight is [in, out], which runs addmm(bias, x.view(rows, in), weight).view(.., out).
 */
#include "lora.h"

static struct arg
arg_of(const struct graph *g, uint32_t n, const char *name)
{
	const struct arg *x = node_arg(g, n, name);

	return x ? *x : (struct arg){.kind = ARG_NONE};
}

static uint32_t
value_of(const struct graph *g, uint32_t n, const char *name)
{
	struct arg x = arg_of(g, n, name);

	return x.kind == ARG_VAL ? x.u.val : 0;
}

static uint32_t
parameter_of(const struct graph *g, uint32_t n, const char *name)
{
	uint32_t v = value_of(g, n, name);

	return v && g->vals[v].kind == VAL_PARAM ? v : 0;
}

bool
lora_is_quantized(unsigned op)
{
	return op == OP_LINEAR_4BIT || op == OP_LINEAR_8BIT;
}

static bool
read_operator(const struct graph *g, uint32_t n, struct base *b)
{
	unsigned op = g->nodes[n].op, rank;

	if (op != OP_LINEAR && !lora_is_quantized(op) && op != OP_CONV && op != OP_EMBEDDING)
		return false;
	*b = (struct base){
		.op = op, .x = value_of(g, n, op == OP_EMBEDDING ? "indices" : "input"), .weight = parameter_of(g, n, "weight"), .bias = parameter_of(g, n, "bias"),
		.result = node_outs(g, n)[0], .node = {n}, .nnode = 1, .stride = arg_of(g, n, "stride"), .padding = arg_of(g, n, "padding"),
		.dilation = arg_of(g, n, "dilation"), .groups = arg_of(g, n, "groups"), .padding_idx = arg_of(g, n, "padding_idx"),
	};
	rank = b->weight ? g->vals[b->weight].rank : 0;
	return b->x && (op == OP_CONV ? rank > 2 && rank < MAX_RANK : rank == 2);
}

/* The node of the same module call that made v by that operator, or by the other. */
static uint32_t
made_by(const struct graph *g, uint32_t n, uint32_t v, unsigned op, unsigned other)
{
	uint32_t m = v && g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0;

	return m && g->nodes[m].scope == g->nodes[n].scope && (g->nodes[m].op == op || g->nodes[m].op == other) ? m : 0;
}

static bool
read_conv1d(const struct graph *g, uint32_t n, struct base *b)
{
	struct str cls = graph_str(g, g->scopes[g->nodes[n].scope].cls);
	uint32_t product, rows;

	if ((g->nodes[n].op != OP_VIEW && g->nodes[n].op != OP_RESHAPE) || (cls.n && !str_ends(cls, S("Conv1D"))))
		return false;
	product = made_by(g, n, value_of(g, n, "self"), OP_ADDMM, OP_ADDMM);
	rows = product ? made_by(g, n, value_of(g, product, "mat1"), OP_VIEW, OP_RESHAPE) : 0;
	if (!rows)
		return false;
	*b = (struct base){
		.op = OP_LINEAR, .x = value_of(g, rows, "self"), .weight = parameter_of(g, product, "mat2"), .bias = parameter_of(g, product, "self"),
		.result = node_outs(g, n)[0], .turned = true, .node = {rows, product, n}, .nnode = 3,
	};
	b->flat = b->x && g->vals[b->x].rank != g->vals[b->result].rank;
	if (b->flat)                   /* an optimiser joined the view with one in front of the module */
		b->x = value_of(g, product, "mat1");
	return b->x && b->weight && g->vals[b->weight].rank == 2;
}

bool
lora_base(const struct lora *l, uint32_t n, struct base *b)
{
	const struct graph *g = l->g;

	if (!g->nodes[n].scope || (!read_operator(g, n, b) && !read_conv1d(g, n, b)))
		return false;
	return !l->all_linear || b->op == OP_LINEAR || lora_is_quantized(b->op);
}
