/*
 * nograd: what ran under torch.no_grad() in a file of ONNX's newer exporter. It writes such a region into the function around it, and the modules that
 * are called there lose their place: their parameters are read where no call of theirs is known.
 *
 *     Conv(x, k.0.weight, k.0.bias) in the function of the model, not in "k.0"
 *
 * A weight alone is no evidence, as of an embedding that is the head as well; beside such evidence it counts if its module is called nowhere. Nor is a region
 * that reads what modules made whose calls are known: autocast that is turned off for some lines is written so, too, and gradients go through that. A program
 * may call functions itself with what a module holds: one module is no evidence either, nor are several if nothing else in the model trains.
 */
#include "../passes.h"

struct regions {
	struct graph *g;
	struct strtab *called;     /* paths of modules of which a call is known */
	bool *strong;              /* per value: made of what a module's known call made of its parameters */
	uint32_t *nodes;  uint32_t n, cap;     /* in such regions, as it seems */
	struct str first;          /* module whose parameters one of them reads */
	bool several;              /* there are others */
};

/* "k.0" of the parameter "k.0.weight" */
static struct str
owner_of(const struct graph *g, const struct arg *x)
{
	struct str name;
	uint32_t n;

	if (!x || x->kind != ARG_VAL || g->vals[x->u.val].kind != VAL_PARAM)
		return S("");
	name = graph_str(g, g->vals[x->u.val].full);
	for (n = name.n; n && name.p[n - 1] != '.'; n--)
		;
	return n ? str_sub(name, 0, n - 1) : S("");
}

static bool
is_inside(const struct graph *g, uint32_t n, struct str path)
{
	for (uint32_t s = g->nodes[n].scope; s; s = g->scopes[s].parent)
		if (str_eq(scope_path(g, s), path))
			return true;
	return false;
}

/* The module of a weight (and of a bias, if both) that an operator takes; empty = it takes none. */
static struct str
module_of(const struct graph *g, uint32_t n, bool *both)
{
	struct str weight = owner_of(g, node_arg(g, n, "weight")), bias = owner_of(g, node_arg(g, n, "bias"));

	*both = weight.n && str_eq(weight, bias);
	return bias.n && weight.n && !*both ? S("") : weight;
}

/* The older exporter names modules, not their classes, and keeps them in their places. */
static bool
has_classes(const struct graph *g)
{
	for (uint32_t s = 1; s < g->nscope; s++)
		if (g->scopes[s].cls)
			return true;
	return false;
}

static void
find_calls(struct regions *r)
{
	bool *seen = NEW(r->g->c->a, bool, r->g->nscope);

	for (uint32_t n = 1; n < r->g->nnode; n++)
		for (uint32_t s = r->g->nodes[n].scope; s && !seen[s]; s = r->g->scopes[s].parent) {
			seen[s] = true;
			strtab_id(r->called, scope_path(r->g, s));
		}
}

static bool
reads_strong(const struct regions *r, uint32_t n)
{
	for (struct operands it = operands_of(r->g, n); operand_next(&it);)
		if (r->strong[it.val])
			return true;
	return false;
}

static void
note(struct regions *r, uint32_t n, struct str module)
{
	r->several |= r->n && !str_eq(r->first, module);
	r->first = module;
	ROOM(r->g->c->a, r->nodes, r->n, r->cap, 1);
	r->nodes[r->n++] = n;
}

/* Finds what the regions hold; weight_alone: operators without a bias as well. */
static void
find(struct regions *r, bool weight_alone)
{
	struct graph *g = r->g;

	r->n = 0;
	for (uint32_t n = 1; n < g->nnode; n++) {
		bool both, strong = reads_strong(r, n);
		struct str module = module_of(g, n, &both);

		if (module.n && is_inside(g, n, module))
			strong = true;
		else if (module.n && !strong && (both || (weight_alone && !strtab_find(r->called, module))))
			note(r, n, module);
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			r->strong[node_outs(g, n)[k]] = strong;
	}
}

static bool
output_is_strong(const struct regions *r)
{
	for (uint32_t i = 0; i < r->g->noutput; i++)
		if (r->strong[r->g->outputs[i]])
			return true;
	return false;
}

bool
pass_nograd(struct analysis *a)
{
	struct regions r = {.g = a->g, .called = strtab_new(a->c->a)};

	if (!str_eq(a->g->format, S("onnx")) || !has_classes(a->g))
		return true;
	r.strong = NEW(a->c->a, bool, a->g->nval);
	find_calls(&r);
	find(&r, false);
	if (!r.several || !output_is_strong(&r))
		return true;
	find(&r, true);
	for (uint32_t i = 0; i < r.n; i++)
		a->g->nodes[r.nodes[i]].flags |= NF_NO_GRAD;
	assume(a, "%u operators run under torch.no_grad(): they read parameters of modules where no call of these is recorded", (unsigned)r.n);
	return true;
}
