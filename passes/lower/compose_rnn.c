/*
 * Compositions: recurrent layers, run cell by cell (ATen/native/RNN.cpp) as PyTorch does without cuDNN. What cuDNN reserves for
 * backward is not documented; the gates of every step, which are kept here, are its bulk.
 */
#include "lower.h"

enum cell { CELL_LSTM, CELL_GRU, CELL_TANH, CELL_RELU };

struct layer {                     /* weights of one direction; biases 0 = none */
	uint32_t w_ih, w_hh, b_ih, b_hh, w_hr;
};

struct state {
	uint32_t h, c;
};

struct rnn {
	struct call *call;
	struct sim *s;
	enum cell kind;
	const uint32_t *params;
	unsigned nparam, per_layer;
	bool biases;
};

/* ---- one step ----------------------------------------------------------------------------------------------- */

static uint32_t
times(struct sim *s, uint32_t x, uint32_t w)
{
	return CALL(s, MATMUL, V_TENSOR(x), V_TENSOR(CALL(s, T, V_TENSOR(w))));
}

static struct state
lstm_step(struct sim *s, const struct layer *l, uint32_t x, struct state st)
{
	uint32_t mark = temps_mark(s), i = times(s, x, l->w_ih), h = times(s, st.h, l->w_hh), hy, cy;

	CALL(s, LSTM_CELL_FUSED, V_TENSOR(i), V_TENSOR(h), V_TENSOR(st.c), V_TENSOR(l->b_ih), V_TENSOR(l->b_hh));
	hy = tensor_hold(s, s->result[0]);
	cy = tensor_hold(s, s->nresult > 1 ? s->result[1] : 0);
	if (l->w_hr) {
		uint32_t projected = tensor_hold(s, times(s, hy, l->w_hr));

		tensor_drop(s, hy);
		hy = projected;
	}
	temps_release(s, mark);
	temps_take(s, hy);
	temps_take(s, cy);
	return (struct state){hy, cy};
}

static uint32_t
gru_step(struct sim *s, const struct layer *l, uint32_t x, uint32_t hx)
{
	uint32_t mark = temps_mark(s), i = times(s, x, l->w_ih), h = times(s, hx, l->w_hh);

	return temps_keep(s, mark, CALL(s, GRU_CELL_FUSED, V_TENSOR(i), V_TENSOR(h), V_TENSOR(hx), V_TENSOR(l->b_ih), V_TENSOR(l->b_hh)));
}

static uint32_t
simple_step(struct sim *s, const struct layer *l, uint32_t x, uint32_t hx, bool relu)
{
	uint32_t mark = temps_mark(s), h = CALL(s, LINEAR, V_TENSOR(hx), V_TENSOR(l->w_hh), V_TENSOR(l->b_hh));
	uint32_t i = CALL(s, LINEAR, V_TENSOR(x), V_TENSOR(l->w_ih), V_TENSOR(l->b_ih));

	op_call_inplace(s, OP_ADD, (const struct value[]){V_TENSOR(h), V_TENSOR(i)}, 2);
	return temps_keep(s, mark, relu ? CALL(s, RELU, V_TENSOR(h)) : CALL(s, TANH, V_TENSOR(h)));
}

static struct state
step(const struct rnn *r, const struct layer *l, uint32_t x, struct state st)
{
	if (r->kind == CELL_LSTM)
		return lstm_step(r->s, l, x, st);
	if (r->kind == CELL_GRU)
		return (struct state){gru_step(r->s, l, x, st.h), 0};
	return (struct state){simple_step(r->s, l, x, st.h, r->kind == CELL_RELU), 0};
}

/* ---- one direction, one layer --------------------------------------------------------------------------------- */

/* All outputs stacked, as a temporary of the caller; *st becomes the final state. */
static uint32_t
run_direction(const struct rnn *r, const struct layer *l, const uint32_t *x, uint32_t n, struct state *st, bool reverse)
{
	struct sim *s = r->s;
	uint32_t *out = NEW(s->c->a, uint32_t, n + 1);

	for (uint32_t t = 0; t < n; t++) {
		uint32_t at = reverse ? n - 1 - t : t;

		*st = step(r, l, x[at], *st);
		out[at] = st->h;
	}
	return CALL(s, STACK, V_TENSORS(out, n), V_INT(0));
}

static struct layer
layer_at(const struct rnn *r, unsigned i)
{
	const uint32_t *p = r->params + (size_t)i * r->per_layer;
	struct layer l = {.w_ih = p[0], .w_hh = p[1]};

	if (r->biases) {
		l.b_ih = p[2];
		l.b_hh = p[3];
	}
	if (r->per_layer == (r->biases ? 5u : 3u))
		l.w_hr = p[r->per_layer - 1];
	return l;
}

static uint32_t
run_layer(const struct rnn *r, unsigned i, unsigned dirs, uint32_t input, struct state *st)
{
	struct sim *s = r->s;
	uint32_t out[2], n, *x;
	struct layer l = layer_at(r, i * dirs);

	CALL(s, UNBIND, V_TENSOR(input), V_INT(0));
	n = s->nresult;
	x = NEW(s->c->a, uint32_t, n + 1);
	for (uint32_t t = 0; t < n; t++)
		x[t] = s->result[t];
	out[0] = run_direction(r, &l, x, n, &st[i * dirs], false);
	if (dirs == 1)
		return out[0];
	l = layer_at(r, i * dirs + 1);
	out[1] = run_direction(r, &l, x, n, &st[i * dirs + 1], true);
	return CALL(s, CAT, V_TENSORS(out, 2), V_INT(-1));
}

/* ---- the stack ---------------------------------------------------------------------------------------------------- */

static uint32_t
stack_states(struct sim *s, const struct state *st, unsigned n, bool cell)
{
	uint32_t *t = NEW(s->c->a, uint32_t, n + 1);

	for (unsigned i = 0; i < n; i++)
		t[i] = cell ? st[i].c : st[i].h;
	return CALL(s, STACK, V_TENSORS(t, n), V_INT(0));
}

static void
read_states(struct sim *s, const struct value *hx, struct state *st, unsigned n)
{
	for (unsigned k = 0; k < 2; k++) {
		uint32_t t = hx->kind == ARG_VALS ? (k < hx->n ? hx->u.ts[k] : 0) : k == 0 ? hx->u.t : 0;

		if (!t)
			return;
		CALL(s, UNBIND, V_TENSOR(t), V_INT(0));
		for (unsigned i = 0; i < n && i < s->nresult; i++)
			*(k ? &st[i].c : &st[i].h) = s->result[i];
	}
}

static bool
read_layers(struct rnn *r, unsigned layers, unsigned dirs)
{
	const struct value *params = call_arg(r->call, "params"), *hx = call_arg(r->call, "hx");
	unsigned total = layers * dirs;

	r->biases = call_bool(r->call, "has_biases");
	if (params->kind != ARG_VALS || !total || params->n % total || (hx->kind != ARG_VALS && hx->kind != ARG_VAL))
		return false;
	r->params = params->u.ts;
	r->nparam = params->n;
	r->per_layer = params->n / total;
	for (unsigned i = 0; i < r->nparam; i++)
		if (!r->params[i])
			return false;
	return r->per_layer >= (r->biases ? 4u : 2u);
}

static void
push(struct sim *s, uint32_t t)
{
	ROOM(s->c->a, s->result, s->nresult, s->result_cap, 1);
	s->result[s->nresult++] = t;
}

static uint32_t
run_stack(struct call *c, enum cell kind)
{
	struct rnn r = {.call = c, .s = c->s, .kind = kind};
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), h, cell = 0;
	unsigned layers = (unsigned)call_int(c, "num_layers", 1), dirs = call_bool(c, "bidirectional") ? 2 : 1;
	const struct value *p = call_arg(c, "dropout");
	bool drops = p->kind == ARG_FLOAT && p->u.f > 0 && call_bool(c, "train"), batch_first = call_bool(c, "batch_first");
	struct state *st;

	if (!x || layers > 1024 || !read_layers(&r, layers, dirs) || geom_at(s, x)->rank < 2) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	st = NEW(s->c->a, struct state, layers * dirs);
	if (batch_first)
		x = do_transpose(s, x, 0, 1);
	read_states(s, call_arg(c, "hx"), st, layers * dirs);
	for (unsigned i = 0; i < layers; i++) {
		x = run_layer(&r, i, dirs, x, st);
		if (drops && i + 1 < layers)
			x = CALL(s, DROPOUT, V_TENSOR(x), *p, V_BOOL(true));
	}
	h = stack_states(s, st, layers * dirs, false);
	if (kind == CELL_LSTM)
		cell = stack_states(s, st, layers * dirs, true);
	if (batch_first)
		x = do_transpose(s, x, 0, 1);
	c->several = true;
	s->nresult = 0;
	push(s, x);
	push(s, h);
	if (cell)
		push(s, cell);
	return x;
}

uint32_t
compose_LSTM(struct call *c)
{
	return run_stack(c, CELL_LSTM);
}

uint32_t
compose_GRU(struct call *c)
{
	return run_stack(c, CELL_GRU);
}

uint32_t
compose_RNN_TANH(struct call *c)
{
	return run_stack(c, CELL_TANH);
}

uint32_t
compose_RNN_RELU(struct call *c)
{
	return run_stack(c, CELL_RELU);
}

/* ---- cells alone ------------------------------------------------------------------------------------------------------- */

static uint32_t
run_cell(struct call *c, enum cell kind)
{
	const struct value *hx = call_arg(c, "hx");
	struct rnn r = {.call = c, .s = c->s, .kind = kind};
	struct layer l = {.w_ih = call_tensor(c, "w_ih"), .w_hh = call_tensor(c, "w_hh"), .b_ih = call_tensor(c, "b_ih"), .b_hh = call_tensor(c, "b_hh")};
	struct state st = {hx->kind == ARG_VALS && hx->n ? hx->u.ts[0] : hx->kind == ARG_VAL ? hx->u.t : 0, hx->kind == ARG_VALS && hx->n > 1 ? hx->u.ts[1] : 0};
	uint32_t x = call_tensor(c, "input");

	if (!x || !l.w_ih || !l.w_hh || !st.h || (kind == CELL_LSTM && !st.c)) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	st = step(&r, &l, x, st);
	if (kind != CELL_LSTM)
		return st.h;
	c->several = true;
	c->s->nresult = 0;
	push(c->s, st.h);
	push(c->s, st.c);
	return st.h;
}

uint32_t
compose_LSTM_CELL(struct call *c)
{
	return run_cell(c, CELL_LSTM);
}

uint32_t
compose_GRU_CELL(struct call *c)
{
	return run_cell(c, CELL_GRU);
}

uint32_t
compose_RNN_TANH_CELL(struct call *c)
{
	return run_cell(c, CELL_TANH);
}

uint32_t
compose_RNN_RELU_CELL(struct call *c)
{
	return run_cell(c, CELL_RELU);
}
