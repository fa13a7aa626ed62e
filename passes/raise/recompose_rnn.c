/*
 * recompose: recurrent layers, which run_decompositions unrolls step by step. The pieces say that they come from one operator; which weights it
 * had, the module's names for them say (weight_ih_l0_reverse), and the rest follows from shapes.
 */
#include "recompose.h"

#include <string.h>

struct rnn {
	const struct pieces *p;
	uint32_t weight[RECOMPOSE_MAX], nweight;
	uint32_t x, h, c;          /* input and initial states */
	unsigned layers, dirs;
	bool biases, lstm;
	struct sint hidden;        /* size of what a step gives */
};

static uint32_t
find_weight(const struct rnn *r, const char *name, unsigned layer, bool reverse)
{
	const struct graph *g = r->p->g;
	struct str want = str_fmt(r->p->a->c->a, "%s_l%u%s", name, layer, reverse ? "_reverse" : "");

	for (uint32_t i = 0; i < r->p->noperand; i++) {
		struct str full = graph_str(g, g->vals[r->p->operand[i]].full);

		if (g->vals[r->p->operand[i]].kind == VAL_PARAM && str_ends(full, want) && (full.n == want.n || full.p[full.n - want.n - 1] == '.'))
			return r->p->operand[i];
	}
	return 0;
}

static bool
add_weight(struct rnn *r, const char *name, unsigned layer, bool reverse)
{
	uint32_t v = find_weight(r, name, layer, reverse);

	if (!v || r->nweight == RECOMPOSE_MAX)
		return false;
	r->weight[r->nweight++] = v;
	return true;
}

/* All layers and directions, each with the same kinds of weights. */
static bool
find_weights(struct rnn *r)
{
	static const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"};
	bool has[5];
	uint32_t last;

	while (r->layers < RECOMPOSE_MAX && find_weight(r, "weight_ih", r->layers, false))
		r->layers++;
	r->dirs = find_weight(r, "weight_ih", 0, true) ? 2 : 1;
	for (unsigned k = 0; k < 5; k++)
		has[k] = find_weight(r, kinds[k], 0, false) != 0;
	for (unsigned i = 0; i < r->layers * r->dirs; i++)
		for (unsigned k = 0; k < 5; k++)
			if (has[k] && !add_weight(r, kinds[k], i / r->dirs, i % r->dirs))
				return false;
	if (!r->layers || !has[1] || has[2] != has[3])
		return false;
	r->biases = has[2];
	last = find_weight(r, has[4] ? "weight_hr" : "weight_hh", 0, false);
	if (r->p->g->vals[last].rank != 2)
		return false;
	r->hidden = val_dims(r->p->g, last)[!has[4]];
	return true;
}

/* The states are read before the input. */
static bool
find_tensors(struct rnn *r)
{
	uint32_t others[3], n = 0;

	for (uint32_t i = 0; i < r->p->noperand; i++) {
		bool is_weight = false;

		for (uint32_t k = 0; k < r->nweight; k++)
			is_weight |= r->weight[k] == r->p->operand[i];
		if (!is_weight && n == 3)
			return false;
		if (!is_weight)
			others[n++] = r->p->operand[i];
	}
	if (n < 2 || (n == 3 && !r->lstm))
		return false;
	r->h = others[0];
	r->c = others[n - 2];      /* often the same zeros */
	r->x = others[n - 1];
	return r->p->g->vals[r->x].rank == 3 && r->p->g->vals[r->h].rank == 3 && val_dims(r->p->g, r->h)[0].n == r->layers * r->dirs;
}

static bool
is_batch_first(const struct rnn *r)
{
	const struct graph *g = r->p->g;

	for (uint32_t i = 0; i < r->p->nnode; i++) {
		const struct node *x = &g->nodes[r->p->node[i]];

		if ((x->op == OP_PERMUTE || x->op == OP_TRANSPOSE) && node_args(g, r->p->node[i])->u.val == r->x)
			return true;
	}
	return false;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

/* A step's cell state is a sum, its hidden state a product with the output gate. */
static bool
is_cell_state(const struct graph *g, uint32_t v)
{
	for (unsigned depth = 0; depth < 16 && g->vals[v].kind == VAL_NODE; depth++) {
		uint32_t n = g->vals[v].node;
		const struct arg *a = node_args(g, n);

		if (g->nodes[n].op == OP_ADD)
			return true;
		if (g->nodes[n].op == OP_MUL || (a->kind != ARG_VAL && (a->kind != ARG_VALS || !a->count)))
			return false;
		v = a->kind == ARG_VAL ? a->u.val : g->ids[a->first];
	}
	return false;
}

static bool
has_dims(const struct graph *g, uint32_t v, const struct sint *dims)
{
	for (unsigned i = 0; i < 3; i++)
		if (g->vals[v].rank != 3 || val_dims(g, v)[i].n != dims[i].n || val_dims(g, v)[i].expr != dims[i].expr)
			return false;
	return true;
}

static bool
sort_results(const struct rnn *r, const struct sint *output, const struct sint *state, uint32_t out[3])
{
	for (uint32_t i = 0; i < r->p->nresult; i++) {
		uint32_t v = r->p->result[i];
		unsigned k = !out[0] && has_dims(r->p->g, v, output) ? 0 : !has_dims(r->p->g, v, state) ? 3 : r->lstm && is_cell_state(r->p->g, v) ? 2 : 1;

		if (k == 3 || out[k])
			return false;
		out[k] = v;
	}
	return true;
}

/* Results that nobody reads have left no pieces. */
static uint32_t
unread(const struct rnn *r, unsigned k, const struct sint *dims)
{
	struct graph *g = r->p->g;
	uint32_t v = val_new(g, VAL_NODE, str_fmt(r->p->a->c->a, "%.*s_unused_%u", SFMT(graph_str(g, g->nodes[r->p->made].name)), k));

	g->vals[v].dtype = g->vals[r->p->result[0]].dtype;
	val_shape(g, v, 3, dims);
	return v;
}

static bool
set_results(const struct rnn *r)
{
	struct graph *g = r->p->g;
	const struct sint *x = val_dims(g, r->x), *h = val_dims(g, r->h);
	struct sint output[3] = {x[0], x[1], SINT(r->hidden.n * r->dirs)}, state[3] = {h[0], h[1], r->hidden}, cell[3] = {h[0], h[1], h[2]};
	uint32_t out[3] = {0}, n = r->lstm ? 3 : 2;

	memcpy(cell, val_dims(g, r->c), sizeof cell);
	if (!sort_results(r, output, state, out))
		return false;
	for (unsigned k = 0; k < n; k++)
		out[k] = out[k] ? out[k] : unread(r, k, k == 0 ? output : k == 1 ? state : cell);
	g->nodes[r->p->made].out = ids_add(g, out, n);
	g->nodes[r->p->made].nout = n;
	return true;
}

/* ---- the operator ---------------------------------------------------------------------------------------------------------- */

static struct arg
dropout_of(const struct pieces *p)
{
	for (uint32_t i = 0; i < p->nnode; i++)
		if (p->g->nodes[p->node[i]].op == OP_NATIVE_DROPOUT)
			return *node_arg(p->g, p->node[i], "p");
	return arg_float(0);
}

bool
recompose_rnn(const struct pieces *p, const struct recompose_row *row)
{
	struct rnn r = {.p = p, .lstm = p->op == OP_LSTM};
	uint32_t states[2];

	(void)row;
	if (!str_ends(graph_str(p->g, p->g->nodes[p->made].fx_target), S(".input")) || !find_weights(&r) || !find_tensors(&r) || !set_results(&r))
		return false;
	states[0] = r.h;
	states[1] = r.c;
	recompose_set(p, "input", arg_val(r.x));
	recompose_set(p, "hx", r.lstm ? (struct arg){.kind = ARG_VALS, .first = ids_add(p->g, states, 2), .count = 2} : arg_val(r.h));
	recompose_set(p, "params", (struct arg){.kind = ARG_VALS, .first = ids_add(p->g, r.weight, r.nweight), .count = r.nweight});
	recompose_set(p, "has_biases", arg_bool(r.biases));
	recompose_set(p, "num_layers", arg_int(r.layers));
	recompose_set(p, "dropout", dropout_of(p));
	recompose_set(p, "train", arg_bool(true));
	recompose_set(p, "bidirectional", arg_bool(r.dirs == 2));
	recompose_set(p, "batch_first", arg_bool(is_batch_first(&r)));
	if (r.layers > 1 && node_arg(p->g, p->made, "dropout")->u.f == 0)
		assume(p->a, "%.*s: a dropout between its layers would be missing, run_decompositions leaves it out", SFMT(graph_str(p->g, p->g->nodes[p->made].name)));
	return true;
}
