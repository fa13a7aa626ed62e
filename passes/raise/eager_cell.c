/*
 * nn.LSTMCell and nn.GRUCell, which exporters write out: two linear layers, their gates by a split, and the products. PyTorch runs one fused operator. Where the state is zeros that
 * the module made, an optimiser folds the state's layer into a constant: its parameters are those that belong to the input's.
 */
#include "eager.h"

struct layer {
	uint32_t x, w, b;          /* x: 0 = it was folded into a constant */
};

struct cell {
	struct layer in, state;
	uint32_t h, c;
	int64_t rows, hidden;
	unsigned gates;
};

/* Before a conversion: what the file stores is converted where it is used. An element that was taken from a list of gates is the gate. */
static uint32_t
unconverted(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);

	return n && (g->nodes[n].op == OP_TO || g->nodes[n].op == OP_ONNX_CAST || g->nodes[n].op == OP_ONNX_IDENTITY) ? operand_of(g, n, 0) : v;
}

/* ---- gates ------------------------------------------------------------------------------------------------------------------------------- */

/* What was split into gates of one size, if these are part of them; 0 = they are not. at: of each, its place */
static uint32_t
split_of(const struct raiser *r, const uint32_t *gate, const unsigned *at, unsigned n, unsigned of)
{
	const struct graph *g = r->g;
	uint32_t first = unconverted(g, gate[0]), node = g->vals[first].kind == VAL_NODE ? g->vals[first].node : 0;
	int64_t dim[MAX_RANK], hidden = 0;
	unsigned rank;

	if (!node || g->nodes[node].op != OP_ONNX_SPLIT || g->nodes[node].nout != of)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		const struct val *x = &g->vals[unconverted(g, gate[i])];

		if (x->kind != VAL_NODE || x->node != node || x->out != at[i] || !eager_size(r, gate[i], dim, &rank) || rank != 2 || (i && dim[1] != hidden))
			return 0;
		hidden = dim[1];
	}
	return operand_of(g, node, 0);
}

/* ---- linear layers ------------------------------------------------------------------------------------------------------------------------ */

static bool
is_param(const struct graph *g, uint32_t v)
{
	return v && g->vals[v].kind == VAL_PARAM;
}

static bool
attribute_is(const struct raiser *r, uint32_t n, const char *name, int64_t want)
{
	struct shaper s = r->s;

	s.n = n;
	return attr_int(&s, name) == want;
}

/* A constant of the file, in whatever dtype it is wanted. */
static bool
is_folded(const struct graph *g, uint32_t v)
{
	v = unconverted(g, v);
	return v && g->vals[v].kind == VAL_CONST;
}

static bool
read_layer(const struct raiser *r, uint32_t v, struct layer *l)
{
	const struct graph *g = r->g;
	uint32_t n = maker_of(g, v), w = n ? operand_of(g, n, 1) : 0;

	*l = (struct layer){0};
	if (is_folded(g, v))
		return true;
	if (!n || (g->nodes[n].op != OP_ONNX_GEMM && g->nodes[n].op != OP_ONNX_MATMUL))
		return false;
	*l = (struct layer){.x = operand_of(g, n, 0), .w = w, .b = operand_of(g, n, 2)};
	if (g->nodes[n].op == OP_ONNX_MATMUL || attribute_is(r, n, "transB", 0))
		l->w = stored_transposed(g, w);
	return is_param(g, l->w) && (!l->b || is_param(g, l->b)) && (g->nodes[n].op == OP_ONNX_MATMUL || attribute_is(r, n, "transA", 0));
}

/* The parameter of the cell by another name in place of "weight_ih", with those dims. */
static uint32_t
sibling(struct raiser *r, uint32_t of, const char *name, unsigned rank, int64_t rows, int64_t columns)
{
	struct graph *g = r->g;
	struct str known = graph_str(g, g->vals[of].full), full;
	struct val *x;
	uint32_t v = 1;

	if (!str_ends(known, S("weight_ih")))
		return 0;
	full = str_fmt(r->s.a->c->a, "%.*s%s", SFMT(str_sub(known, 0, known.n - 9)), name);
	while (v < g->nval && !(g->vals[v].kind == VAL_PARAM && str_eq(graph_str(g, g->vals[v].full), full)) &&
	    !(g->vals[v].kind == VAL_NONE && str_eq(graph_str(g, g->vals[v].name), full)))
		v++;
	if (v == g->nval) {
		v = val_new(g, VAL_NONE, full);
		ROOM(r->s.a->c->a, r->needed, v, r->needed_cap, 1);
	}
	x = &g->vals[v];
	if (x->kind == VAL_PARAM)
		return x->rank == rank ? v : 0;
	x->kind = VAL_PARAM;
	x->full = x->name;
	x->dtype = g->vals[of].dtype;
	x->flags = VF_TRAINABLE;
	val_shape(g, v, rank, (const struct sint[]){SINT(rows), SINT(columns)});
	return v;
}

/* ---- writing --------------------------------------------------------------------------------------------------------------------------------- */

static uint32_t
zeros(struct raiser *r, const struct cell *t)
{
	const int64_t size[] = {t->rows, t->hidden};
	uint32_t n = eager_node(r, OP_ZEROS, 1), v = eager_out(r, n);

	eager_ints(r, n, "size", size, 2);
	eager_arg(r, n, "dtype", arg_dtype(r->g->vals[t->in.x].dtype));
	val_shape(r->g, v, 2, (const struct sint[]){SINT(t->rows), SINT(t->hidden)});
	r->g->vals[v].dtype = r->g->vals[t->in.x].dtype;
	return v;
}

/* Zeros of the file are made by the module, once for both states. */
static bool
complete(struct raiser *r, struct cell *t, uint32_t out)
{
	int64_t dim[MAX_RANK], gates;
	unsigned rank;

	if (!t->in.x || !t->h || (t->state.x && t->state.x != t->h && !(is_folded(r->g, t->state.x) && is_folded(r->g, t->h))) || !eager_size(r, out, dim, &rank) || rank != 2)
		return false;
	t->rows = dim[0];
	t->hidden = dim[1];
	if (!mul_i64(t->hidden, t->gates, &gates))
		return false;
	if (!t->state.x && (t->state.w = sibling(r, t->in.w, "weight_hh", 2, gates, t->hidden)) == 0)
		return false;
	if (!t->state.x && t->in.b && (t->state.b = sibling(r, t->in.w, "bias_hh", 1, gates, 0)) == 0)
		return false;
	if (!t->in.b != !t->state.b)
		return false;
	if (is_folded(r->g, t->h)) {
		bool both = t->c && is_folded(r->g, t->c);

		t->h = zeros(r, t);
		t->c = both ? t->h : t->c;
	} else if (t->c && is_folded(r->g, t->c)) {
		t->c = zeros(r, t);
	}
	return true;
}

static uint32_t
write(struct raiser *r, const struct cell *t, unsigned op)
{
	const uint32_t states[] = {t->h, t->c};
	uint32_t n = eager_node(r, op, t->c ? 2 : 1);

	eager_tensor(r, n, "input", t->in.x);
	if (t->c)
		eager_tensors(r, n, "hx", states, 2);
	else
		eager_tensor(r, n, "hx", t->h);
	eager_arg(r, n, "w_ih", arg_val(t->in.w));
	eager_arg(r, n, "w_hh", arg_val(t->state.w));
	eager_tensor(r, n, "b_ih", t->in.b);
	eager_tensor(r, n, "b_hh", t->state.b);
	r->needed[t->in.w] = r->needed[t->state.w] = true;
	eager_results(r, n);
	return n;
}

/* Read before the cell's own result is there. */
static bool
is_read_before(const struct raiser *r, uint32_t v, uint32_t node, uint32_t other)
{
	for (uint32_t n = r->g->vals[v].node + 1; n < node; n++)
		for (struct operands it = operands_of(r->g, n); n != other && operand_next(&it);)
			if (it.val == v)
				return true;
	return false;
}

/* ---- cells ----------------------------------------------------------------------------------------------------------------------------------- */

bool
eager_lstm_cell(struct raiser *r)
{
	const uint32_t gate[] = {r->m.var[3], r->m.var[1], r->m.var[4], r->m.var[0]};
	struct cell t = {.c = r->m.var[2], .gates = 4};
	uint32_t sum, last, n;

	sum = maker_of(r->g, split_of(r, gate, (const unsigned[]){0, 1, 2, 3}, 4, 4));
	if (!sum || r->g->nodes[sum].op != OP_ONNX_ADD || !read_layer(r, operand_of(r->g, sum, 0), &t.state) || !read_layer(r, operand_of(r->g, sum, 1), &t.in))
		return false;
	last = node_outs(r->g, r->m.node[3])[0];
	t.h = t.state.x ? t.state.x : t.c;
	if (is_read_before(r, last, r->s.n, r->m.node[2]) || !complete(r, &t, node_outs(r->g, r->s.n)[0]))
		return false;
	n = write(r, &t, OP_LSTM_CELL);
	node_outs(r->g, n)[1] = last;
	r->g->vals[last].node = n;
	r->g->vals[last].out = 1;
	r->needed[last] = false;
	return true;
}

/* h, t and the gates of the update; t is the new state's part, with the gates of reset inside. */
bool
eager_gru_cell(struct raiser *r)
{
	const struct graph *g = r->g;
	struct cell t = {.h = r->m.var[0], .gates = 3};
	uint32_t tanh = maker_of(g, r->m.var[1]), sum, product, reset, in[3] = {0}, state[3] = {0}, second;

	sum = tanh && g->nodes[tanh].op == OP_ONNX_TANH && r->uses[r->m.var[1]] == 2 ? maker_of(g, operand_of(g, tanh, 0)) : 0;
	product = sum && g->nodes[sum].op == OP_ONNX_ADD ? maker_of(g, operand_of(g, sum, 1)) : 0;
	reset = product && g->nodes[product].op == OP_ONNX_MUL ? maker_of(g, operand_of(g, product, 1)) : 0;
	second = reset && g->nodes[reset].op == OP_ONNX_SIGMOID ? maker_of(g, operand_of(g, reset, 0)) : 0;
	if (!second || g->nodes[second].op != OP_ONNX_ADD)
		return false;
	in[0] = operand_of(g, second, 1);
	in[1] = r->m.var[3];
	in[2] = operand_of(g, sum, 0);
	state[0] = operand_of(g, second, 0);
	state[1] = r->m.var[2];
	state[2] = operand_of(g, product, 0);
	if (!read_layer(r, split_of(r, in, (const unsigned[]){0, 1, 2}, 3, 3), &t.in) || !read_layer(r, split_of(r, state, (const unsigned[]){0, 1, 2}, 3, 3), &t.state))
		return false;
	return complete(r, &t, node_outs(g, r->s.n)[0]) && write(r, &t, OP_GRU_CELL);
}

/* Without gates: only the names of the weights tell it from any other two layers whose sum goes through tanh. */
static bool
plain_cell(struct raiser *r, unsigned op)
{
	struct cell t = {.gates = 1};
	uint32_t a = r->m.var[0], b = r->m.var[1];

	for (unsigned i = 0; i < 2; i++, a = r->m.var[1], b = r->m.var[0]) {
		if (!read_layer(r, a, &t.in) || !read_layer(r, b, &t.state) || !t.in.x || !str_ends(graph_str(r->g, r->g->vals[t.in.w].full), S("weight_ih")))
			continue;
		t.h = t.state.x ? t.state.x : unconverted(r->g, b);
		if (t.state.w && !str_ends(graph_str(r->g, r->g->vals[t.state.w].full), S("weight_hh")))
			continue;
		return complete(r, &t, node_outs(r->g, r->s.n)[0]) && write(r, &t, op);
	}
	return false;
}

bool
eager_rnn_tanh_cell(struct raiser *r)
{
	return plain_cell(r, OP_RNN_TANH_CELL);
}

bool
eager_rnn_relu_cell(struct raiser *r)
{
	return plain_cell(r, OP_RNN_RELU_CELL);
}
