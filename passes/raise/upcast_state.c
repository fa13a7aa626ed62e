/*
 * State-space models, whose states decay by exp(a * dt) with a = -exp(parameter): what else they compute in fp32. Of the pass upcast, whose head says how.
 *
 *     state = exp(a * dt) * state + dt * B * x       B and x are converted where they are multiplied; and so is a parameter that scales x beside
 *     exp(cumsum(a * dt))                            states of chunks: dt, B, C and x are converted before anything is made of them
 *     conv1d(x.to(weight.dtype), ..)[:, :, :length]  in front of either
 */
#include "upcast.h"

enum { RATE = 1, DECAY = 2, SUMMED = 4 };  /* a, a * dt; its exponential; of sums over steps */

#define MOST_DEPTH 16u

struct states {
	struct upcast *u;
	struct graph *g;
	uint8_t *kind;             /* by value */
	bool *summed;              /* by value: a rate that is summed up later */
	bool *step;                /* by value: dt, without its views */
	bool *done;                /* by value: what it is made of was converted */
	bool *scaled;              /* by value: parameters that scale it were converted */
	bool *seen;                /* by node: its operands were converted */
	uint32_t nval;             /* values that these know */
};

static bool
is_view(unsigned op)
{
	return op == OP_ONNX_UNSQUEEZE || op == OP_ONNX_SQUEEZE || op == OP_ONNX_RESHAPE || op == OP_ONNX_TRANSPOSE || op == OP_ONNX_EXPAND || op == OP_RESHAPE;
}

static bool
keeps_kind(unsigned op)
{
	return is_view(op) || op == OP_ONNX_SLICE || op == OP_ONNX_GATHER || op == OP_ONNX_PAD || op == OP_ONNX_WHERE || op == OP_ONNX_NEG || op == OP_NEG;
}

/* A value without the views of it. */
static uint32_t
root_of(const struct graph *g, uint32_t v)
{
	for (unsigned i = 0; i < MOST_DEPTH; i++) {
		uint32_t n = maker_of(g, v);

		if (!n || !is_view(g->nodes[n].op))
			break;
		v = operand_of(g, n, 0);
	}
	return v;
}

/* ---- decays ----------------------------------------------------------------------------------------------------- */

/* exp of a parameter of several elements, converted or not */
static bool
is_rate(const struct graph *g, uint32_t n)
{
	uint32_t w = operand_of(g, n, 0), to = maker_of(g, w);

	if (to && g->nodes[to].op == OP_TO)
		w = operand_of(g, to, 0);
	for (unsigned i = 0; g->vals[w].kind == VAL_PARAM && g->vals[w].rank != RANK_UNKNOWN && i < g->vals[w].rank; i++)
		if (val_dims(g, w)[i].expr || val_dims(g, w)[i].n > 1)
			return true;
	return false;
}

static uint8_t
kind_of(struct states *s, uint32_t n)
{
	const struct graph *g = s->g;
	unsigned op = g->nodes[n].op;
	uint8_t found = 0;

	for (struct operands it = operands_of(g, n); operand_next(&it);)
		found |= s->kind[it.val];
	if (op == OP_ONNX_EXP || op == OP_EXP)
		return found & RATE ? (uint8_t)(DECAY | (found & SUMMED)) : is_rate(g, n) ? RATE : 0;
	if (op == OP_ONNX_CUM_SUM && found & RATE)
		return RATE | SUMMED;
	if (op == OP_ONNX_MUL || op == OP_ONNX_SUB)
		return found & RATE ? found : 0;
	return keeps_kind(op) ? found : 0;
}

static void
find_decays(struct states *s)
{
	struct graph *g = s->g;

	for (uint32_t n = 1; n < s->u->nold; n++) {
		uint8_t kind = kind_of(s, n);

		if (kind && g->nodes[n].nout)
			s->kind[node_outs(g, n)[0]] = kind;
		for (struct operands it = operands_of(g, n); kind == RATE && g->nodes[n].op == OP_ONNX_MUL && operand_next(&it);)
			if (!s->kind[it.val])
				s->step[root_of(g, it.val)] = true;
	}
	for (uint32_t n = s->u->nold; n-- > 1;) {
		bool summed = g->nodes[n].op == OP_ONNX_CUM_SUM || (g->nodes[n].nout && s->summed[node_outs(g, n)[0]]);

		for (struct operands it = operands_of(g, n); summed && operand_next(&it);)
			s->summed[it.val] |= (s->kind[it.val] & RATE) != 0;
	}
}

/* ---- states that go step by step ------------------------------------------------------------------------------------ */

static bool
is_step(const struct states *s, uint32_t v)
{
	v = root_of(s->g, v);
	return v < s->nval && s->step[v];
}

static bool
is_product(const struct graph *g, uint32_t n)
{
	return n && g->nodes[n].op == OP_ONNX_MUL && g->nodes[n].nout;
}

static bool
is_contraction(const struct graph *g, uint32_t n)
{
	return n && (g->nodes[n].op == OP_ONNX_EINSUM || g->nodes[n].op == OP_ONNX_MATMUL);
}

static void
convert_operand(struct states *s, uint32_t n, uint32_t v)
{
	upcast_read_instead(s->g, n, v, upcast_converted(s->u, v, n - 1, n, NF_UPCAST));
	s->u->states++;
}

/* The parameter by which x is scaled and goes past the states: "x * D.float()[:, None]". */
static void
convert_skip(struct states *s, uint32_t x)
{
	struct graph *g = s->g;

	for (uint32_t i = s->u->first[x]; i < s->u->first[x + 1]; i++) {
		uint32_t n = s->u->user[i], v, p, view;

		if (!is_product(g, n) || s->seen[n])
			continue;
		v = operand_of(g, n, operand_of(g, n, 0) == x ? 1 : 0);
		p = root_of(g, v);
		if (g->vals[p].kind != VAL_PARAM)
			continue;
		s->seen[n] = true;
		for (view = n; p != v && view && operand_of(g, view, 0) != p; v = operand_of(g, view, 0))
			view = maker_of(g, v);
		convert_operand(s, view, p);
	}
}

static void
convert_skips(struct states *s, uint32_t x)
{
	for (unsigned i = 0; x && x < s->u->nval && !s->scaled[x] && i < MOST_DEPTH; i++) {
		uint32_t n = maker_of(s->g, x);

		s->scaled[x] = true;
		convert_skip(s, x);
		x = n && is_view(s->g->nodes[n].op) ? operand_of(s->g, n, 0) : 0;
	}
}

/* dt * B * x: the last two. */
static void
convert_factors(struct states *s, uint32_t n, unsigned depth)
{
	struct graph *g = s->g;
	uint32_t x[2] = {operand_of(g, n, 0), operand_of(g, n, 1)};

	if (s->seen[n] || depth == MOST_DEPTH)
		return;
	s->seen[n] = true;
	for (unsigned i = 0; i < 2; i++) {
		if (is_product(g, maker_of(g, x[i])))
			convert_factors(s, maker_of(g, x[i]), depth + 1);
		else if (x[i] < s->u->nval && !is_step(s, x[i])) {
			convert_operand(s, n, x[i]);
			convert_skips(s, x[i]);
		}
	}
}

static uint32_t
behind_slices(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);

	for (unsigned i = 0; n && i < MOST_DEPTH && (is_view(g->nodes[n].op) || g->nodes[n].op == OP_ONNX_GATHER || g->nodes[n].op == OP_ONNX_SLICE); i++)
		n = maker_of(g, operand_of(g, n, 0));
	return n;
}

/* n: decay * state, to which the input is added. */
static void
convert_step(struct states *s, uint32_t n)
{
	const struct graph *g = s->g;
	uint32_t y = node_outs(g, n)[0], sum = upcast_only_user(s->u, y), input;

	if (!sum || g->nodes[sum].op != OP_ONNX_ADD)
		return;
	input = behind_slices(g, operand_of(g, sum, operand_of(g, sum, 0) == y ? 1 : 0));
	if (is_product(g, input) && !s->kind[node_outs(g, input)[0]])
		convert_factors(s, input, 0);
}

/* ---- states of chunks --------------------------------------------------------------------------------------------------- */

static bool
repeats(unsigned op)
{
	return is_view(op) || op == OP_ONNX_PAD || op == OP_ONNX_TILE;
}

/* What the model computed, in fp32 from here on: in front of what repeats, pads and views it, and of its product with dt. */
static void
convert_source(struct states *s, uint32_t v, unsigned depth)
{
	struct graph *g = s->g;
	uint32_t n = maker_of(g, v), x = n ? operand_of(g, n, 0) : 0, y = n ? operand_of(g, n, 1) : 0;

	if (depth == MOST_DEPTH || v >= s->u->nval || s->kind[v] || s->done[v] || g->vals[v].kind != VAL_NODE)
		return;
	s->done[v] = true;
	if (is_contraction(g, n)) {
		convert_source(s, x, depth + 1);
		convert_source(s, y, depth + 1);
	} else if (is_product(g, n) && (is_step(s, x) || is_step(s, y))) {
		bool first = is_step(s, x);

		convert_operand(s, n, first ? x : y);
		convert_source(s, first ? y : x, depth + 1);
	} else if (n && repeats(g->nodes[n].op) && maker_of(g, x) && g->nodes[maker_of(g, x)].nout == 1) {
		convert_source(s, x, depth + 1);
	} else if (n) {
		upcast_result(s->u, n, n, n, NF_UPCAST);
		s->u->states++;
	}
}

/* n: a * dt of sums over steps, or what a decay by them is multiplied with. */
static void
convert_chunks(struct states *s, uint32_t n)
{
	const struct graph *g = s->g;
	uint32_t x = operand_of(g, n, 0), y = operand_of(g, n, 1), v = node_outs(g, n)[0];

	if (s->summed[v]) {
		if (!s->kind[x] != !s->kind[y])
			convert_operand(s, n, s->kind[x] ? y : x);
		return;
	}
	if (!((s->kind[x] | s->kind[y]) & SUMMED))
		return;
	convert_source(s, x, 0);
	convert_source(s, y, 0);
	for (uint32_t i = s->u->first[v]; i < s->u->first[v + 1]; i++)
		for (unsigned k = 0; k < 2 && is_contraction(g, s->u->user[i]); k++)
			if (operand_of(g, s->u->user[i], k) != v)
				convert_source(s, operand_of(g, s->u->user[i], k), 0);
}

/* ---- what is in front of them ------------------------------------------------------------------------------------------- */

static int64_t
int_at(const struct graph *g, uint32_t n, const char *name, unsigned i)
{
	const struct arg *a = node_arg(g, n, name);

	if (a && a->kind == ARG_INT && !a->u.i.expr)
		return a->u.i.n;
	return a && a->kind == ARG_INTS && i < a->count && !g->ints[a->first + i].expr ? g->ints[a->first + i].n : -1;
}

/* A convolution of each channel over one axis, padded so that what is behind its length can be cut off. */
static bool
is_causal(const struct graph *g, uint32_t n)
{
	uint32_t w = operand_of(g, n, 1);
	const struct sint *d = val_dims(g, w);

	return g->vals[w].rank == 3 && !d[0].expr && !d[2].expr && d[2].n > 1 && int_at(g, n, "group", 0) == d[0].n && int_at(g, n, "pads", 0) == d[2].n - 1;
}

/* conv1d(x.to(weight.dtype), weight)[:, :, :length]: autocast may have made x narrower than the weight. */
static void
convert_convolution(struct states *s, uint32_t n)
{
	struct graph *g = s->g;
	uint32_t cut = upcast_only_user(s->u, node_outs(g, n)[0]), x = operand_of(g, n, 0), v;

	if (!cut || g->nodes[cut].op != OP_ONNX_SLICE || !is_causal(g, n))
		return;
	v = upcast_converted(s->u, x, n - 1, n, NF_UPCAST);
	*node_arg(g, g->vals[v].node, "dtype") = (struct arg){.kind = ARG_DTYPE_OF, .u.val = operand_of(g, n, 1)};
	upcast_read_instead(g, n, x, v);
}

/* ---- all of it ---------------------------------------------------------------------------------------------------------- */

static bool
reads_param(const struct graph *g, uint32_t n)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (g->vals[root_of(g, it.val)].kind == VAL_PARAM)
			return true;
	return false;
}

static struct states
states_of(struct upcast *u)
{
	struct graph *g = u->g;
	struct states s = {.u = u, .g = g, .nval = g->nval};

	s.kind = NEW(g->c->a, uint8_t, g->nval);
	s.summed = NEW(g->c->a, bool, g->nval);
	s.step = NEW(g->c->a, bool, g->nval);
	s.done = NEW(g->c->a, bool, g->nval);
	s.scaled = NEW(g->c->a, bool, g->nval);
	s.seen = NEW(g->c->a, bool, u->nold);
	find_decays(&s);
	return s;
}

/* What decays have a part in, until a layer takes it. */
void
upcast_find_states(struct upcast *u)
{
	struct graph *g = u->g;
	bool any = false;
	struct states s;

	for (uint32_t n = 1; n < u->nold && !any; n++)
		any = (g->nodes[n].op == OP_ONNX_EXP || g->nodes[n].op == OP_EXP) && is_rate(g, n);
	if (!any)
		return;
	s = states_of(u);
	u->state = NEW(g->c->a, bool, g->nval);
	for (uint32_t n = 1; n < u->nold; n++) {
		unsigned op = g->nodes[n].op;
		bool state = false;

		for (struct operands it = operands_of(g, n); operand_next(&it);)
			state |= u->state[it.val] || s.kind[it.val] & DECAY;
		if ((op == OP_ONNX_MATMUL || op == OP_ONNX_GEMM || op == OP_ONNX_CONV) && reads_param(g, n))
			state = false;
		for (uint32_t i = 0; state && i < g->nodes[n].nout; i++)
			u->state[node_outs(g, n)[i]] = true;
	}
}

void
upcast_states(struct upcast *u)
{
	struct graph *g = u->g;
	struct states s = states_of(u);

	for (uint32_t n = 1; n < u->nold; n++) {
		uint32_t x = operand_of(g, n, 0), y = operand_of(g, n, 1);

		if (g->nodes[n].op == OP_ONNX_CONV && g->nodes[n].nout)
			convert_convolution(&s, n);
		if (!is_product(g, n) || x >= u->nval || y >= u->nval || s.seen[n])
			continue;
		if ((s.kind[x] | s.kind[y]) == DECAY)
			convert_step(&s, n);
		else if (s.kind[x] || s.kind[y])
			convert_chunks(&s, n);
	}
}
