/*
 * How modules that take adapters are called: Linear, convolutions, embeddings, bitsandbytes' layers, each one operator; and transformers' Conv1D, a
 * linear layer whose weight is [in, out], which runs addmm(bias, x.view(rows, in), weight).view(.., out); and layers derived from Linear that write it
 * out, "x @ self.weight.T + self.bias" (Falcon's).
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

static bool
is_derived_linear(const struct graph *g, uint32_t n)
{
	return str_ends(graph_str(g, g->scopes[g->nodes[n].scope].cls), S("Linear"));
}

/* Does the sum with the layer's bias follow? */
static bool
adds_bias(const struct lora *l, uint32_t product)
{
	const struct node *x = l->behind;
	const struct arg *self = x && x->op == OP_ADD && x->narg > 1 ? &l->g->args[x->arg] : NULL;

	if (!self || x->scope != l->g->nodes[product].scope || self->kind != ARG_VAL || self->u.val != node_outs(l->g, product)[0])
		return false;
	return is_derived_linear(l->g, product) && self[1].kind == ARG_VAL && l->g->vals[self[1].u.val].kind == VAL_PARAM;
}

static bool
read_written_out(const struct lora *l, uint32_t n, struct base *b)
{
	const struct graph *g = l->g;
	bool sum = g->nodes[n].op == OP_ADD;
	uint32_t product = sum ? g->vals[value_of(g, n, "self")].node : n, turned;

	if (!is_derived_linear(g, n) || g->nodes[product].scope != g->nodes[n].scope || (!sum && adds_bias(l, product)))
		return false;
	if (sum && read_operator(g, product, b) && b->op == OP_LINEAR && !b->bias) {
		b->node[b->nnode++] = n;
	} else {
		turned = made_by(g, n, value_of(g, product, g->nodes[product].op == OP_MM ? "mat2" : "other"), OP_T, OP_TRANSPOSE);
		if (!turned || (g->nodes[product].op != OP_MATMUL && g->nodes[product].op != OP_MM))
			return false;
		*b = (struct base){.op = OP_LINEAR, .x = value_of(g, product, "self"), .weight = parameter_of(g, turned, "self"), .node = {turned, product, n}, .nnode = sum ? 3 : 2};
	}
	b->result = node_outs(g, n)[0];
	b->bias = sum ? parameter_of(g, n, "other") : 0;
	return b->x && b->weight && g->vals[b->weight].rank == 2 && (!sum || b->bias);
}

bool
lora_base(const struct lora *l, uint32_t n, struct base *b)
{
	const struct graph *g = l->g;

	if (!g->nodes[n].scope || ((!read_operator(g, n, b) || adds_bias(l, n)) && !read_conv1d(g, n, b) && !read_written_out(l, n, b)))
		return false;
	return !l->all_linear || b->op == OP_LINEAR || lora_is_quantized(b->op);
}
