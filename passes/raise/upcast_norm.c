/* Norms by the root of the mean square that an fp32 file shows without their conversions: where these stood. Of the pass upcast, whose head says how. */
#include "upcast.h"

#include <string.h>

static struct str
line_of(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];

	return x->nframe ? graph_str(g, g->frames[x->frame + x->nframe - 1].text) : S("");
}

static bool
says(struct str line, const char *text)
{
	return line.n && memmem(line.p, line.n, text, strlen(text)) != NULL;
}

/* ---- norms by the root of the mean square ------------------------------------------------------------------------------------------------- */

/* w, if that is what is added to 1 */
static uint32_t
one_more(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);
	double one;

	if (n && g->nodes[n].op == OP_ADD && node_arg(g, n, "other")->kind == ARG_FLOAT)
		return operand_of(g, n, 0);        /* the pass unfold made it: the number is not in the file */
	if (!n || g->nodes[n].op != OP_ONNX_ADD)
		return 0;
	if (scalar_of(g, operand_of(g, n, 0), &one) && one == 1)
		return operand_of(g, n, 1);
	return scalar_of(g, operand_of(g, n, 1), &one) && one == 1 ? operand_of(g, n, 0) : 0;
}

/* Where the result goes back: behind the product with the weight, or in front of it. */
static void
convert_back(struct upcast *u, uint32_t normed)
{
	struct graph *g = u->g;
	uint32_t y = node_outs(g, normed)[0], product = upcast_only_user(u, y), w, plus, from = normed, like = normed;

	if (product && g->nodes[product].op == OP_ONNX_MUL) {
		w = operand_of(g, product, operand_of(g, product, 0) == y ? 1 : 0);
		plus = one_more(g, w);
		if (plus) {
			uint32_t n = maker_of(g, w);

			upcast_read_instead(g, n, plus, upcast_converted(u, plus, n - 1, n, NF_UPCAST));
		}
		if (plus || says(line_of(g, product), ").to(") || says(line_of(g, product), ").type_as("))
			from = product;
		like = product;
	}
	upcast_result(u, from, from, like, NF_DOWNCAST);
}

/* (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + eps), times the weight: all of it in fp32, the weight as well. */
static bool
convert_centred(struct upcast *u, uint32_t root, uint32_t centred)
{
	struct graph *g = u->g;
	uint32_t sub = maker_of(g, centred), mean, x, v, normed = upcast_user_with(u, node_outs(g, root)[0], OP_ONNX_MUL, 0), product, w, y;

	if (!sub || g->nodes[sub].op != OP_ONNX_SUB || !normed)
		return false;
	x = operand_of(g, sub, 0);
	mean = maker_of(g, operand_of(g, sub, 1));
	if (!mean || g->nodes[mean].op != OP_ONNX_REDUCE_MEAN || operand_of(g, mean, 0) != x)
		return false;
	v = upcast_converted(u, x, mean - 1, mean, NF_UPCAST);
	for (uint32_t i = u->first[x]; i < u->first[x + 1]; i++)
		if (u->user[i] == mean || (g->nodes[u->user[i]].op == OP_ONNX_SUB && operand_of(g, u->user[i], 1) == node_outs(g, mean)[0]))
			upcast_read_instead(g, u->user[i], x, v);
	y = node_outs(g, normed)[0];
	product = upcast_only_user(u, y);
	if (product && g->nodes[product].op == OP_ONNX_MUL) {
		w = operand_of(g, product, operand_of(g, product, 0) == y ? 1 : 0);
		upcast_read_instead(g, product, w, upcast_converted(u, w, product - 1, product, NF_UPCAST));
		normed = product;
	}
	upcast_result(u, normed, normed, normed, NF_DOWNCAST);
	u->norms++;
	return true;
}

static bool
is_scaled(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);
	double c;

	return n && (g->nodes[n].op == OP_ONNX_MUL || g->nodes[n].op == OP_ONNX_DIV) && scalar_of(g, operand_of(g, n, 1), &c) && c != 1;
}

/* Softmax of products, with a bias and masks, that neither the scores nor the queries nor the keys were scaled for. */
bool
upcast_is_unscaled(const struct graph *g, uint32_t softmax)
{
	uint32_t v = operand_of(g, softmax, 0), n = maker_of(g, v);

	for (unsigned depth = 0; n && depth < 4 && g->nodes[n].op == OP_ONNX_ADD; depth++)
		n = maker_of(g, v = operand_of(g, n, maker_of(g, operand_of(g, n, 0)) ? 0 : 1));
	return n && g->nodes[n].op == OP_ONNX_MATMUL && !is_scaled(g, operand_of(g, n, 0)) && !is_scaled(g, operand_of(g, n, 1));
}

/*
 * T5's norm, and those made after it, takes hidden_states.to(float32).pow(2).mean(), while the product reads what came in: a class called LayerNorm that
 * takes no mean, or, in files without classes, the norm beside attention that does not scale its scores.
 */
static bool
is_called_layer_norm(const struct upcast *u, uint32_t n)
{
	const struct graph *g = u->g;

	return g->nodes[n].scope ? str_ends(graph_str(g, g->scopes[g->nodes[n].scope].cls), S("LayerNorm")) : u->unscaled && !g->nodes[n].fx;
}

#define MOST_GATE 8u

/* Does a node of the norm's own module gate what it normalises? */
static bool
gates(unsigned op)
{
	return op == OP_ONNX_MUL || op == OP_ONNX_SIGMOID || op == OP_ONNX_RESHAPE || op == OP_ONNX_SWISH;
}

/* Who makes it, as whichever of its results; 0 = nobody. */
static uint32_t
node_of(const struct graph *g, uint32_t v)
{
	return g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0;
}

/* The nodes of the module that make x, in *node; 0 = none, or others than a gate has. */
static unsigned
gate_of(const struct upcast *u, uint32_t n, uint32_t x, uint32_t *node)
{
	const struct graph *g = u->g;
	unsigned count = 0;
	bool product = false;

	if (node_of(g, x))
		node[count++] = node_of(g, x);
	for (unsigned i = 0; i < count; i++) {
		if (g->nodes[node[i]].scope != g->nodes[n].scope || !g->nodes[n].scope)
			return 0;
		if (!gates(g->nodes[node[i]].op))
			return 0;
		product |= g->nodes[node[i]].op == OP_ONNX_MUL;
		for (struct operands it = operands_of(g, node[i]); operand_next(&it);) {
			uint32_t maker = node_of(g, it.val);

			if (!maker || g->nodes[maker].scope != g->nodes[n].scope || !dtype_is_float(g->vals[it.val].dtype))
				continue;
			if (count == MOST_GATE)
				return 0;
			node[count++] = maker;
		}
	}
	return product ? count : 0;
}

/* silu(z), its nodes in *node; 0 = v is something else */
static unsigned
silu_of(const struct graph *g, uint32_t v, uint32_t *node)
{
	uint32_t n = node_of(g, v), x, y;

	if (n && g->nodes[n].op == OP_ONNX_SWISH) {
		node[0] = n;
		return 1;
	}
	if (!n || g->nodes[n].op != OP_ONNX_MUL)
		return 0;
	x = operand_of(g, n, 0);
	y = operand_of(g, n, 1);
	for (unsigned i = 0; i < 2; i++) {
		uint32_t m = node_of(g, i ? x : y);

		if (!m || g->nodes[m].op != OP_ONNX_SIGMOID || operand_of(g, m, 0) != (i ? y : x))
			continue;
		node[0] = n;
		node[1] = m;
		return 2;
	}
	return 0;
}

/* Without modules: what states made is gated, and normed at once. */
static unsigned
gate_of_states(const struct upcast *u, uint32_t x, uint32_t *node)
{
	const struct graph *g = u->g;
	uint32_t n = node_of(g, x);
	unsigned count = 0;

	while (n && g->nodes[n].op == OP_ONNX_RESHAPE && count < MOST_GATE - 3u) {
		node[count++] = n;
		n = node_of(g, operand_of(g, n, 0));
	}
	if (!n || g->nodes[n].op != OP_ONNX_MUL || !u->state)
		return 0;
	node[count++] = n;
	for (unsigned i = 0; i < 2; i++) {
		uint32_t v = operand_of(g, n, i);
		unsigned more = v < u->nval && u->state[v] ? silu_of(g, operand_of(g, n, !i), node + count) : 0;

		if (more)
			return count + more;
	}
	return 0;
}

static bool
is_among(const uint32_t *node, unsigned count, uint32_t n)
{
	for (unsigned i = 0; i < count; i++)
		if (node[i] == n)
			return true;
	return false;
}

/* norm(x * silu(gate)) in one module: both are converted when it begins. */
static bool
convert_gated(struct upcast *u, uint32_t n, uint32_t x)
{
	struct graph *g = u->g;
	uint32_t node[MOST_GATE], first = 0, from[2 * MOST_GATE], to[2 * MOST_GATE];
	unsigned count = g->has_scopes ? gate_of(u, n, x, node) : gate_of_states(u, x, node), made = 0;

	for (unsigned i = 0; i < count; i++)
		first = first && first < node[i] ? first : node[i];
	for (unsigned i = 0; i < count; i++)
		for (struct operands it = operands_of(g, node[i]); operand_next(&it);) {
			uint32_t v = it.val, maker = node_of(g, v);
			unsigned k = 0;

			if (!dtype_is_float(g->vals[v].dtype) || !g->vals[v].rank || maker >= u->nold || is_among(node, count, maker))
				continue;
			while (k < made && from[k] != v)
				k++;
			if (k == made && made == 2 * MOST_GATE)
				continue;
			if (k == made) {
				from[made] = v;
				to[made++] = upcast_converted(u, v, (maker > first - 1 ? maker : first - 1), node[i], NF_UPCAST);
				it = operands_of(g, node[i]);          /* the new node may have moved them */
			}
			upcast_read_instead(g, node[i], v, to[k]);
		}
	return count > 0;
}

/* "hidden_states.to(torch.float32).pow(2)": of the square alone. "self._norm(x.float())" is of all that the norm does. */
static bool
converts_square(struct str line)
{
	return (says(line, "float32") || says(line, ".float()")) && (says(line, ".pow(") || says(line, "**") || says(line, "square"));
}

void
upcast_norm(struct upcast *u, uint32_t n)
{
	struct graph *g = u->g;
	struct match m;
	uint32_t x, square, normed, v;
	struct str line, name;

	if (!motif_match(u->root[0], &u->s, n, &m) && !motif_match(u->root[1], &u->s, n, &m))
		return;
	x = m.var[0];
	if (g->vals[x].dtype != DT_FP32 || rms_norm_was_decomposed(g, m.node[2]))
		return;
	if (convert_centred(u, n, x))
		return;
	square = m.node[m.nnode - 1];
	normed = upcast_user_with(u, node_outs(g, n)[0], OP_ONNX_MUL, x);
	if (!normed)
		return;
	if (convert_gated(u, square, x)) {
		convert_back(u, normed);
		u->norms++;
		return;
	}
	line = line_of(g, square);
	v = upcast_converted(u, x, square - 1, square, NF_UPCAST);
	upcast_read_instead(g, square, x, v);
	if (!converts_square(line) && !is_called_layer_norm(u, n)) {
		upcast_read_instead(g, normed, x, v);
		line = line_of(g, normed);
		if (str_cut(&line, ' ', &name) && str_starts(line, S("= ")))
			upcast_set_statement(u, v, -1, str_fmt(g->c->a, "%.*s = %.*s.to(float32)", SFMT(name), SFMT(name)));
	}
	convert_back(u, normed);
	u->norms++;
}
