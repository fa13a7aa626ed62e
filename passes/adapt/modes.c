/*
 * modes: modules that the recipe puts in eval mode lose dropout, and their BatchNorm uses running statistics. A file in which no
 * dropout is active was exported in eval mode; what training would keep for them is not in it, which the user must hear.
 */
#include "../passes.h"

bool
in_eval_module(const struct analysis *a, uint32_t n)
{
	for (uint32_t s = a->g->nodes[n].scope; s; s = a->g->scopes[s].parent)
		if (recipe_matches(a->r, RK_EVAL_MODULES, scope_path(a->g, s)))
			return true;
	return recipe_matches(a->r, RK_EVAL_MODULES, S("")) || recipe_matches(a->r, RK_EVAL_MODULES, scope_path(a->g, a->g->nodes[n].scope));
}

static void
set_false(struct graph *g, uint32_t n, const char *arg)
{
	struct arg *x = node_arg(g, n, arg);

	if (x)
		*x = arg_bool(false);
}

static bool
is_dropout(unsigned op)
{
	return op == OP_DROPOUT || op == OP_FEATURE_DROPOUT || op == OP_ALPHA_DROPOUT || op == OP_FEATURE_ALPHA_DROPOUT;
}

static bool
is_recurrent(unsigned op)
{
	return op == OP_LSTM || op == OP_GRU || op == OP_RNN_TANH || op == OP_RNN_RELU;
}

static void
to_eval(struct graph *g, uint32_t n)
{
	unsigned op = g->nodes[n].op;

	if (is_dropout(op) || is_recurrent(op))
		set_false(g, n, "train");
	else if (op == OP_BATCH_NORM)
		set_false(g, n, "training");
}

static void
warn_of_eval_export(struct analysis *a)
{
	const struct graph *g = a->g;
	uint32_t idle = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct arg *p, *train;

		if (!is_dropout(g->nodes[n].op))
			continue;
		p = node_arg(g, n, "p");
		train = node_arg(g, n, "train");
		if (!p || !train || p->kind != ARG_FLOAT || p->u.f <= 0)
			continue;
		if (train->kind == ARG_BOOL && train->u.b)
			return;
		idle++;
	}
	if (idle)
		diag(a->c, DIAG_EVAL_EXPORT, (unsigned)idle);
}

/* The kernels that inference takes instead of whole modules know no dropout. */
static void
say_what_replaces_kernels(struct analysis *a)
{
	uint32_t found = 0;

	for (uint32_t n = 1; n < a->g->nnode; n++)
		found += a->g->nodes[n].op == OP_NATIVE_MHA || a->g->nodes[n].op == OP_ENCODER_LAYER;
	if (found)
		assume(a, "%u of inference's kernels for nn.MultiheadAttention and nn.TransformerEncoderLayer are counted as the operators that training runs; their dropout is not in the file", (unsigned)found);
}

bool
pass_modes(struct analysis *a)
{
	const struct recipe_value *v = &a->r->v[RK_EVAL_MODULES];
	struct graph *g = a->g;

	warn_of_eval_export(a);
	say_what_replaces_kernels(a);
	for (uint32_t n = 1; v->nlist && n < g->nnode; n++)
		if (in_eval_module(a, n))
			to_eval(g, n);
	for (uint32_t i = 0; i < v->nlist; i++) {
		bool hit = pattern_match(v->list[i], S(""));

		for (uint32_t s = 1; s < g->nscope && !hit; s++)
			hit = name_matches(v->list[i], scope_path(g, s));
		if (!hit)
			diag(a->c, DIAG_NO_MATCH, "eval_modules", SFMT(v->list[i]), "module");
	}
	return true;
}
