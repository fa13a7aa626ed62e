/*
 * recurrent: LSTM, GRU and RNN nodes of ONNX, one a layer, become the one operator that PyTorch's module calls. Exporters write out what stands around the
 * layers: turns of axes, the states of every layer, and the gates of the weights in another order, both biases and both directions in one
 * tensor, made by nodes or stored so.
 */
#include "recurrent.h"

#include <string.h>

/* ---- what the graph says ------------------------------------------------------------------------------------------------------------ */

/* The one node that reads a value, if it is of that operator. */
static uint32_t
only_user(const struct recurrent *r, uint32_t v, unsigned op)
{
	uint32_t n = v && r->nuser[v] == 1 ? r->user[v] : 0;

	return n && r->g->nodes[n].op == op ? n : 0;
}

static bool
swaps_batch(const struct graph *g, uint32_t n)
{
	return has_perm(g, n, (const int64_t[]){1, 0, 2}, 3);
}

/* Do the nodes come from one call? The exporter's record tells, or the module that they stand in; where there is neither, structure alone has to. */
static bool
are_together(const struct graph *g, uint32_t a, uint32_t b)
{
	if (g->nodes[a].fx_args && g->nodes[b].fx_args)
		return g->nodes[a].fx == g->nodes[b].fx;
	return g->nodes[a].scope == g->nodes[b].scope || !g->has_scopes;
}

static void
find_users(struct recurrent *r)
{
	r->user = NEW(r->g->c->a, uint32_t, r->nval);
	r->nuser = NEW(r->g->c->a, uint32_t, r->nval);
	for (uint32_t n = 1; n < r->nold; n++) {
		if (r->g->nodes[n].op == OP_ONNX_SHAPE)
			continue;
		for (struct operands it = operands_of(r->g, n); operand_next(&it);) {
			r->user[it.val] = n;
			r->nuser[it.val]++;
		}
	}
	for (uint32_t i = 0; i < r->g->noutput; i++)
		r->nuser[r->g->outputs[i]] += 2;
}

bool
recurrent_size(const struct graph *g, uint32_t v, unsigned rank, int64_t *dim)
{
	if (!v || g->vals[v].rank != rank || rank > MAX_RANK)
		return false;
	for (unsigned i = 0; i < rank; i++)
		if (!sint_eval(g, val_dims(g, v)[i], &dim[i]) || dim[i] < 0)
			return false;
	return true;
}

static uint32_t
result_of(const struct graph *g, uint32_t n, unsigned k)
{
	return k < g->nodes[n].nout ? node_outs(g, n)[k] : 0;
}

/* ---- layers ---------------------------------------------------------------------------------------------------------------------------- */

static bool
is_recurrent(unsigned op)
{
	return op == OP_ONNX_LSTM || op == OP_ONNX_GRU || op == OP_ONNX_RNN;
}

/* Nothing in PyTorch has peepholes, lengths for each row, other activations. */
static bool
is_module(struct recurrent *r, uint32_t n)
{
	struct str how;

	r->s.n = n;
	how = attr_str(&r->s, "direction");
	if (operand(&r->s, "sequence_lens") || str_eq(how, S("reverse")) || attr_int(&r->s, "layout") || arg_of(&r->s, "clip")->kind != ARG_NONE)
		return false;
	if (r->g->nodes[n].op == OP_ONNX_LSTM)
		return !operand(&r->s, "P") && !attr_int(&r->s, "input_forget");
	return r->g->nodes[n].op != OP_ONNX_GRU || attr_int(&r->s, "linear_before_reset");
}

/* [sequence, directions, batch, hidden] as the next layer wants it: the axis of one direction is taken out, or moved and joined. */
static uint32_t
joined(const struct recurrent *r, uint32_t y, unsigned directions)
{
	uint32_t n = only_user(r, y, OP_ONNX_TRANSPOSE);

	if (!n && directions == 1 && (n = only_user(r, y, OP_ONNX_SQUEEZE)) != 0)
		return node_outs(r->g, n)[0];
	if (n && has_perm(r->g, n, (const int64_t[]){0, 2, 1, 3}, 4))
		y = node_outs(r->g, n)[0];
	else if (directions != 1)
		return 0;
	n = only_user(r, y, OP_ONNX_RESHAPE);
	return n && r->g->vals[node_outs(r->g, n)[0]].rank == 3 ? node_outs(r->g, n)[0] : 0;
}

static bool
add_layer(struct recurrent *r, struct stack *t, uint32_t n)
{
	struct layer *l = &t->layer[t->n];
	uint32_t y = result_of(r->g, n, 0);

	if (t->n == MAX_LAYERS || !is_module(r, n))
		return false;
	*l = (struct layer){.node = n};
	if (y && r->nuser[y]) {
		l->out = joined(r, y, t->directions);
		if (!l->out)
			return false;
	}
	t->n++;
	return true;
}

static bool
begin_stack(struct recurrent *r, struct stack *t, uint32_t n)
{
	int64_t x[3], w[3];

	r->s.n = n;
	*t = (struct stack){.input = operand(&r->s, "X"), .train = true};
	if (!recurrent_size(r->g, t->input, 3, x) || !recurrent_size(r->g, operand(&r->s, "R"), 3, w))
		return false;
	t->directions = str_eq(attr_str(&r->s, "direction"), S("bidirectional")) ? 2 : 1;
	t->batch = x[1];
	t->hidden = w[2];
	t->biases = operand(&r->s, "B") != 0;
	return w[0] == t->directions && add_layer(r, t, n);
}

/* The layer that alone reads the results of the last one, maybe behind dropout. */
static uint32_t
next_layer(struct recurrent *r, struct stack *t)
{
	struct graph *g = r->g;
	struct layer *l = &t->layer[t->n - 1];
	uint32_t v = l->out, drop = only_user(r, v, OP_ONNX_DROPOUT), n;
	double p = drop ? 0.5 : 0, train = 0;
	struct stack other;

	if (drop) {
		r->s.n = drop;
		scalar_of(g, operand(&r->s, "ratio"), &p);
		scalar_of(g, operand(&r->s, "training_mode"), &train);
		v = node_outs(g, drop)[0];
	}
	n = only_user(r, v, g->nodes[l->node].op);
	if (!n || (drop && !are_together(g, drop, n)) || !are_together(g, n, l->node) || !begin_stack(r, &other, n))
		return 0;
	if (other.input != v || other.directions != t->directions || other.hidden != t->hidden || other.biases != t->biases)
		return 0;
	l->dropout = p;
	t->train &= !drop || train != 0;
	return n;
}

/* The module turns its input and its results itself, or its caller has. */
static void
find_turns(const struct recurrent *r, struct stack *t)
{
	const struct graph *g = r->g;
	uint32_t first = t->layer[0].node, in = maker_of(g, t->input), out;

	t->out = t->layer[t->n - 1].out;
	out = t->out ? only_user(r, t->out, OP_ONNX_TRANSPOSE) : 0;
	if (!swaps_batch(g, in) || !are_together(g, in, first))
		return;
	if (t->out && (!swaps_batch(g, out) || !are_together(g, out, first)))
		return;
	t->batch_first = true;
	t->input = operand_of(g, in, 0);
	t->out = t->out ? node_outs(g, out)[0] : 0;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------------------ */

static uint32_t
new_node(struct recurrent *r, const struct stack *t, unsigned op, unsigned count)
{
	struct graph *g = r->g;
	uint32_t n = node_beside(g, op, t->layer[t->n - 1].node, count), at = n - r->nold;

	for (unsigned k = 0; k < count; k++) {
		uint32_t v = val_new(g, VAL_NODE, str_fmt(g->c->a, "%s_%u_%u", op_info(op)->name, (unsigned)n, k));

		g->vals[v].node = n;
		g->vals[v].out = k;
		g->vals[v].dtype = g->vals[t->input].dtype;
		node_outs(g, n)[k] = v;
	}
	ROOM(g->c->a, r->behind, at, r->behind_cap, 1);
	r->behind[at] = t->layer[t->n - 1].node;
	return n;
}

static void
state_shape(struct graph *g, uint32_t v, const struct stack *t, int64_t states)
{
	val_shape(g, v, 3, (const struct sint[]){SINT(states), SINT(t->batch), SINT(t->hidden)});
}

/* Zeros that the module made: a constant, or one that was expanded or cut. */
static bool
is_constant(const struct graph *g, uint32_t v)
{
	for (unsigned depth = 0; v && depth < MAX_RANK; depth++) {
		uint32_t n = maker_of(g, v);

		if (!n)
			return g->vals[v].kind == VAL_CONST;
		if (g->nodes[n].op == OP_ONNX_CONSTANT_OF_SHAPE)
			return true;
		if (g->nodes[n].op != OP_ONNX_EXPAND && g->nodes[n].op != OP_ONNX_SLICE)
			return false;
		v = operand_of(g, n, 0);
	}
	return !v;
}

/* What the states of a layer are part of, and from where on; 0 = zeros. */
static uint32_t
state_source(const struct graph *g, uint32_t v, int64_t *at)
{
	uint32_t n = maker_of(g, v), axes = n ? operand_of(g, n, 3) : 0;
	double start, axis = 0;

	*at = 0;
	if (is_constant(g, v))
		return 0;
	if (!n || g->nodes[n].op != OP_ONNX_SLICE || !scalar_of(g, operand_of(g, n, 1), &start) || (axes && !scalar_of(g, axes, &axis)) || axis != 0)
		return v;
	*at = (int64_t)start;
	return operand_of(g, n, 0);
}

static uint32_t
zeros(struct recurrent *r, const struct stack *t, int64_t states)
{
	const int64_t size[] = {states, t->batch, t->hidden};
	uint32_t n = new_node(r, t, OP_ZEROS, 1);

	*node_arg(r->g, n, "size") = arg_ints(r->g, size, 3);
	*node_arg(r->g, n, "dtype") = arg_dtype(r->g->vals[t->input].dtype);
	state_shape(r->g, node_outs(r->g, n)[0], t, states);
	return node_outs(r->g, n)[0];
}

/* The first states of all layers as one tensor; 0 = they are not of one. */
static uint32_t
first_states(struct recurrent *r, const struct stack *t, const char *name)
{
	int64_t states = (int64_t)t->n * t->directions, at, dim[3];
	uint32_t source = 0;

	for (unsigned i = 0; i < t->n; i++) {
		uint32_t v;

		r->s.n = t->layer[i].node;
		v = state_source(r->g, operand(&r->s, name), &at);
		if ((i && v != source) || (v && at != (int64_t)i * t->directions))
			return 0;
		source = v;
	}
	if (!source)
		return zeros(r, t, states);
	return recurrent_size(r->g, source, 3, dim) && dim[0] == states ? source : 0;
}

/* Who reads the last states of all layers reads one result; who reads a layer's own reads a slice of it. */
static void
last_states(struct recurrent *r, const struct stack *t, unsigned k, uint32_t all)
{
	struct graph *g = r->g;
	uint32_t first = result_of(g, t->layer[0].node, k), n = t->n > 1 ? only_user(r, first, OP_ONNX_CONCAT) : 0;
	bool joins = n && node_args(g, n)->kind == ARG_VALS && node_args(g, n)->count == t->n;

	for (unsigned i = 0; joins && i < t->n; i++)
		joins = operand_of(g, n, i) == result_of(g, t->layer[i].node, k);
	if (t->n == 1 && first)
		r->with[first] = all;
	if (joins)
		r->with[node_outs(g, n)[0]] = all;
	for (unsigned i = 0; t->n > 1 && !joins && i < t->n; i++) {
		uint32_t v = result_of(g, t->layer[i].node, k), part;

		if (!v || !r->nuser[v])
			continue;
		part = new_node(r, t, OP_SLICE, 1);
		*node_arg(g, part, "self") = arg_val(all);
		*node_arg(g, part, "dim") = arg_int(0);
		*node_arg(g, part, "start") = arg_int((int64_t)i * t->directions);
		*node_arg(g, part, "end") = arg_int((int64_t)(i + 1) * t->directions);
		state_shape(g, node_outs(g, part)[0], t, t->directions);
		r->with[v] = node_outs(g, part)[0];
	}
}

static unsigned
operator_of(struct recurrent *r, uint32_t n)
{
	unsigned op = r->g->nodes[n].op;
	struct str how;

	r->s.n = n;
	how = attr_str(&r->s, "activations");
	if (op != OP_ONNX_RNN)
		return op == OP_ONNX_LSTM ? OP_LSTM : OP_GRU;
	return str_eq(how, S("Relu")) ? OP_RNN_RELU : OP_RNN_TANH;
}

static void
write_results(struct recurrent *r, const struct stack *t, uint32_t n)
{
	struct graph *g = r->g;
	int64_t states = (int64_t)t->n * t->directions;

	if (t->out) {
		uint32_t y = node_outs(g, n)[0];

		val_shape(g, y, g->vals[t->out].rank, val_dims(g, t->out));
		r->with[t->out] = y;
	}
	for (unsigned k = 1; k < g->nodes[n].nout; k++) {
		state_shape(g, node_outs(g, n)[k], t, states);
		last_states(r, t, k, node_outs(g, n)[k]);
	}
}

static bool
write_stack(struct recurrent *r, struct stack *t)
{
	struct graph *g = r->g;
	unsigned op = operator_of(r, t->layer[0].node), states = op == OP_LSTM ? 2 : 1;
	uint32_t hx[2] = {0}, n;
	struct arg params;

	hx[0] = first_states(r, t, "initial_h");
	hx[1] = op == OP_LSTM ? first_states(r, t, "initial_c") : 0;
	if (!hx[0] || (states == 2 && !hx[1]) || !recurrent_params(r, t, &params))
		return false;
	n = new_node(r, t, op, states + 1);
	*node_arg(g, n, "input") = arg_val(t->input);
	*node_arg(g, n, "hx") = states == 1 ? arg_val(hx[0]) : (struct arg){.kind = ARG_VALS, .first = ids_add(g, hx, 2), .count = 2};
	*node_arg(g, n, "params") = params;
	*node_arg(g, n, "has_biases") = arg_bool(t->biases);
	*node_arg(g, n, "num_layers") = arg_int(t->n);
	*node_arg(g, n, "dropout") = arg_float(t->layer[0].dropout);
	*node_arg(g, n, "train") = arg_bool(t->train);
	*node_arg(g, n, "bidirectional") = arg_bool(t->directions == 2);
	*node_arg(g, n, "batch_first") = arg_bool(t->batch_first);
	write_results(r, t, n);
	return true;
}

/* ---- the pass -------------------------------------------------------------------------------------------------------------------------------- */

static void
replace_values(struct recurrent *r)
{
	struct graph *g = r->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (it.val < r->nval && r->with[it.val])
				*it.slot = r->with[it.val];
	for (uint32_t i = 0; i < g->noutput; i++)
		if (g->outputs[i] < r->nval && r->with[g->outputs[i]])
			g->outputs[i] = r->with[g->outputs[i]];
}

static void
raise_stack(struct recurrent *r, uint32_t n)
{
	struct stack t;
	uint32_t made = r->g->nnode;

	if (!begin_stack(r, &t, n))
		return;
	while ((n = next_layer(r, &t)) != 0 && add_layer(r, &t, n))
		;
	find_turns(r, &t);
	for (unsigned i = 0; i < t.n; i++)
		r->done[t.layer[i].node] = true;
	if (write_stack(r, &t)) {
		r->stacks++;
		return;
	}
	for (; made < r->g->nnode; made++)
		r->g->nodes[made].flags |= NF_DEAD;
}

bool
pass_recurrent(struct analysis *a)
{
	struct graph *g = a->g;
	struct recurrent r = {.s = {.a = a, .g = g, .bound = true}, .g = g, .nold = g->nnode, .nval = g->nval};

	for (uint32_t n = 1; n < r.nold; n++) {
		if (!is_recurrent(g->nodes[n].op))
			continue;
		if (!r.with) {
			r.with = NEW(g->c->a, uint32_t, r.nval);
			r.done = NEW(g->c->a, bool, r.nold);
			find_users(&r);
		}
		if (!r.done[n])
			raise_stack(&r, n);
	}
	if (g->nnode == r.nold)
		return true;
	if (r.unpacked)
		assume(a, "parameters of recurrent layers that the exporter packed into constants are the module's own (%u)", r.unpacked);
	replace_values(&r);
	graph_splice(g, r.nold, r.behind);
	graph_compact(g);
	return true;
}
