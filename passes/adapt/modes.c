/* modes: modules that the recipe puts in eval mode lose dropout, and their BatchNorm uses running statistics. */
#include "../passes.h"

static bool
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

static void
to_eval(struct graph *g, uint32_t n)
{
	unsigned op = g->nodes[n].op;

	if (op == OP_DROPOUT || op == OP_FEATURE_DROPOUT)
		set_false(g, n, "train");
	else if (op == OP_BATCH_NORM)
		set_false(g, n, "training");
}

bool
pass_modes(struct analysis *a)
{
	const struct recipe_value *v = &a->r->v[RK_EVAL_MODULES];
	struct graph *g = a->g;

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
