/*
 * save: PEFT's modules_to_save. A copy of the module, parameters and buffers, trains and runs; the original stays, frozen. Tied weights
 * are tied no more: the copy is its own.
 */
#include "../passes.h"

static bool
is_saved(const struct analysis *a, struct str module)
{
	const struct recipe_value *v = &a->r->v[RK_LORA_SAVE];

	for (uint32_t i = 0; i < v->nlist; i++)
		if (module.n && v->list[i].n && str_ends(module, v->list[i]))
			return true;
	return false;
}

/* The outermost saved module that a dotted name is in; empty: none. */
static struct str
saved_module(const struct analysis *a, struct str name)
{
	for (uint32_t i = 0; i < name.n; i++)
		if (name.p[i] == '.' && is_saved(a, str_sub(name, 0, i)))
			return str_sub(name, 0, i);
	return is_saved(a, name) ? name : S("");
}

static bool
is_within(struct str path, struct str module)
{
	return str_starts(path, module) && (path.n == module.n || path.p[module.n] == '.');
}

static uint32_t
copy_of(struct analysis *a, uint32_t v, struct str module)
{
	struct graph *g = a->g;
	struct str full = graph_str(g, g->vals[v].full);
	struct str name = str_fmt(a->c->a, "%.*s.modules_to_save.default%.*s", SFMT(module), SFMT(str_sub(full, module.n, full.n)));
	uint32_t w = val_new(g, g->vals[v].kind, name);

	g->vals[w] = g->vals[v];
	g->vals[w].name = g->vals[w].full = graph_name(g, name);
	g->vals[w].tied = 0;
	if (g->vals[w].kind == VAL_PARAM && dtype_is_float(g->vals[w].dtype))
		g->vals[w].flags |= VF_TRAINABLE;
	g->vals[v].flags &= (uint8_t)~VF_TRAINABLE;
	return w;
}

/* A parameter that two modules share may be one value in the file: only the saved module reads the copy. */
static void
use_copies(struct analysis *a, const uint32_t *copy, const struct str *module, uint32_t nval)
{
	struct graph *g = a->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (it.val < nval && copy[it.val] && (!g->has_scopes || is_within(scope_path(g, g->nodes[n].scope), module[it.val])))
				*it.slot = copy[it.val];
}

bool
pass_save(struct analysis *a)
{
	struct graph *g = a->g;
	const struct recipe_value *key = &a->r->v[RK_LORA_SAVE];
	uint32_t nval = g->nval, *copy, *last, count = 0;
	struct str *module;

	if (!key->nlist || !a->r->v[RK_LORA_R].i)
		return true;
	copy = NEW(a->c->a, uint32_t, nval);
	last = NEW(a->c->a, uint32_t, nval);
	module = NEW(a->c->a, struct str, nval);
	for (uint32_t v = 1; v < nval; v++) {
		if (g->vals[v].kind == VAL_PARAM || g->vals[v].kind == VAL_BUFFER)
			module[v] = saved_module(a, graph_str(g, g->vals[v].full));
		if (!module[v].n)
			continue;
		copy[v] = copy_of(a, v, module[v]);
		count++;
	}
	/* behind the module's last parameter, all copies of a module together */
	for (uint32_t v = nval; --v > 0;) {
		if (!copy[v] || g->vals[v].kind != VAL_PARAM)
			continue;
		last[v] = v + 1 < nval && copy[v + 1] && g->vals[v + 1].kind == VAL_PARAM && str_eq(module[v], module[v + 1]) ? last[v + 1] : v;
		g->vals[copy[v]].after = last[v];
	}
	use_copies(a, copy, module, nval);
	if (!count)
		diag(a->c, DIAG_NO_MATCH, "lora.modules_to_save", SFMT(key->list[0]), "module");
	return true;
}
