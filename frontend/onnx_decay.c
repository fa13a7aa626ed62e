/*
 * ONNX files without a signature: the rates at which the states of a state-space model decay. The exporter computed them from a parameter, and what
 * is left is a constant: one that multiplies a softplus, the step, and goes through sums and views into an exponential. -exp(parameter), as libraries write it.
 */
#include "onnx.h"

struct decay {
	struct onnx *l;
	struct graph *g;
	bool *step;                /* by value: a softplus, limited or viewed */
	uint32_t *rate;            /* by value: the constant that was multiplied with a step, before the exponential */
};

static bool
keeps_rate(unsigned op)
{
	return op == OP_ONNX_PAD || op == OP_ONNX_RESHAPE || op == OP_ONNX_TRANSPOSE || op == OP_ONNX_UNSQUEEZE || op == OP_ONNX_SQUEEZE || op == OP_ONNX_EXPAND || op == OP_ONNX_WHERE ||
	       op == OP_ONNX_CUM_SUM || op == OP_ONNX_SLICE || op == OP_ONNX_GATHER || op == OP_ONNX_SUB || op == OP_ONNX_CAST || op == OP_ONNX_IDENTITY;
}

static bool
keeps_step(unsigned op)
{
	return op == OP_ONNX_CLIP || (keeps_rate(op) && op != OP_ONNX_CUM_SUM && op != OP_ONNX_SUB);
}

/* A stored table of several numbers that nothing is known of. */
static bool
is_candidate(const struct decay *d, uint32_t v)
{
	const struct val *x = &d->g->vals[v];
	bool many = false;

	if (x->kind != VAL_CONST || x->full || !dtype_is_float(x->dtype) || x->rank == RANK_UNKNOWN || x->rank > MAX_RANK || v >= d->l->stored_cap || !d->l->stored[v])
		return false;
	for (unsigned i = 0; i < x->rank; i++)
		many |= val_dims(d->g, v)[i].n > 1;
	return many;
}

/* An operand, by place; 0 = absent, or a list. */
static uint32_t
read_at(const struct decay *d, uint32_t n, unsigned i)
{
	const struct arg *a = node_args(d->g, n);

	return d->g->nodes[n].narg > i && a[i].kind == ARG_VAL ? a[i].u.val : 0;
}

static void
take(struct decay *d, uint32_t v)
{
	struct graph *g = d->g;
	bool viewed = false;
	uint32_t p;

	if (!v || g->vals[v].full)
		return;
	for (unsigned i = 0; i < g->vals[v].rank; i++)
		viewed |= val_dims(g, v)[i].n == 1;
	p = val_new(g, VAL_NONE, str_fmt(g->c->a, "%.*s_log", SFMT(graph_str(g, g->vals[v].name))));
	g->vals[v].full = g->vals[p].name;
	g->vals[v].flags = VF_TRAINABLE;
	g->vals[v].fold = FOLD_OPERATORS;
	g->vals[v].folded = graph_name(g, viewed ? S("exp neg unsqueeze") : S("exp neg"));
}

static void
follow(struct decay *d, uint32_t n)
{
	const struct graph *g = d->g;
	unsigned op = g->nodes[n].op;
	uint32_t out = g->nodes[n].nout ? node_outs(g, n)[0] : 0, x = read_at(d, n, 0), y = read_at(d, n, 1);

	if (!out)
		return;
	if (op == OP_ONNX_MUL) {
		d->rate[out] = d->step[y] && is_candidate(d, x) ? x : d->step[x] && is_candidate(d, y) ? y : 0;
		return;
	}
	if (op == OP_ONNX_EXP) {
		take(d, d->rate[x]);
		return;
	}
	d->step[out] = op == OP_ONNX_SOFTPLUS;
	for (unsigned i = 0; i < g->nodes[n].narg; i++) {
		uint32_t v = read_at(d, n, i);

		if (keeps_rate(op) && d->rate[v])
			d->rate[out] = d->rate[v];
		d->step[out] |= keeps_step(op) && d->step[v];
	}
}

void
onnx_guess_decays(struct onnx *l)
{
	struct graph *g = l->g;
	struct decay d = {.l = l, .g = g};

	d.step = NEW(l->c->a, bool, g->nval);
	d.rate = NEW(l->c->a, uint32_t, g->nval);
	for (uint32_t n = 1; n < g->nnode; n++)
		if (op_is_onnx(g->nodes[n].op))
			follow(&d, n);
}
