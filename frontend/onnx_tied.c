/*
 * ONNX files of the dynamo exporter: parameters that are one. A parameter that the signature lists and the file does not store is a second name of a
 * tied one if the module that it belongs to reads a stored one in its stead, or the first name if it belongs to no module that runs.
 */
#include "onnx.h"

#include <string.h>

bool
onnx_fx_reads(const struct graph *g, uint32_t n, const struct spec *s)
{
	struct str args = graph_str(g, g->nodes[n].fx_args);
	const char *p = args.n && s->alias.n ? memmem(args.p, args.n, s->alias.p, s->alias.n) : NULL;
	uint32_t end = p ? (uint32_t)(p - args.p) + s->alias.n : 0;

	return p && p > args.p && p[-1] == '%' && (end == args.n || !((args.p[end] | 32) >= 'a' && (args.p[end] | 32) <= 'z')) && args.p[end] != '_';
}

static void
share(struct graph *g, uint32_t v, uint32_t with)
{
	struct val *x = &g->vals[v];
	uint32_t name = x->name, full = x->full;

	*x = g->vals[with];
	x->name = name;
	x->full = full;
	val_shape(g, v, g->vals[with].rank, val_dims(g, with));
	g->vals[v > with ? v : with].tied = v > with ? with : v;
}

/* The module of a node reads a stored parameter of another module, under the name that a missing one of its own has: both are one. */
static void
tie(struct onnx *l, uint32_t n, uint32_t *operand)
{
	struct graph *g = l->g;
	struct val *x = &g->vals[*operand];
	struct str module = scope_path(g, g->nodes[n].scope), own;
	struct spec *s, *other;

	if (x->kind != VAL_PARAM || !x->full || x->full != x->name || !module.n)
		return;
	own = str_fmt(l->c->a, "%.*s.%.*s", SFMT(module), SFMT(path_last(graph_str(g, x->full))));
	s = onnx_spec(l, own);
	other = onnx_spec(l, graph_str(g, x->full));
	if (!s || !other || s == other || s->buffer || !onnx_fx_reads(g, n, other) || onnx_fx_reads(g, n, s))
		return;
	if (g->vals[s->val].kind == VAL_NONE) {
		g->vals[s->val].full = s->full;
		share(g, s->val, *operand);
	}
	if (g->vals[s->val].tied == *operand || g->vals[*operand].tied == s->val)
		*operand = s->val;
}

/* ---- the first name of a tied one -------------------------------------------------------------------------------------- */

/* The only parameter of a module that no node runs in. */
static bool
is_idle(const struct onnx *l, uint32_t spec)
{
	const struct graph *g = l->g;
	struct str full = graph_str(g, l->spec[spec].full), module = path_parent(full);

	if (!module.n)
		return false;
	for (uint32_t i = 1; i < l->nspec; i++)
		if (i != spec && str_starts(graph_str(g, l->spec[i].full), str_sub(full, 0, module.n + 1)))      /* with the dot */
			return false;
	for (uint32_t i = 0; i < g->nscope; i++)
		if (str_eq(scope_path(g, i), module))
			return false;
	return true;
}

/*
 * model.shared.weight of an encoder-decoder: listed before the tied parameter that is stored, called as it is in its own module, of a module that is
 * never called and has nothing else. named_parameters() gives the parameter this name alone, so that patterns have to match it.
 */
static uint32_t
first_name(const struct onnx *l, uint32_t stored)
{
	const struct graph *g = l->g;
	struct str own = path_last(graph_str(g, g->vals[stored].full));
	uint32_t found = 0;

	for (uint32_t i = 1; i < l->nspec && l->spec[i].val < stored; i++) {
		const struct spec *s = &l->spec[i];

		if (s->buffer || s->folded || g->vals[s->val].kind != VAL_NONE || !str_eq(path_last(graph_str(g, s->full)), own) || !is_idle(l, i))
			continue;
		if (found)
			return 0;
		found = i;
	}
	return found;
}

static void
name_first(struct onnx *l, uint32_t stored)
{
	struct graph *g = l->g;
	uint32_t i = first_name(l, stored), first = l->spec[i].val;

	if (!i)
		return;
	g->vals[first].full = l->spec[i].full;
	share(g, first, stored);
	graph_note(g, "%.*s, which the file does not store, is the first name of the tied %.*s", SFMT(graph_str(g, l->spec[i].full)),
	    SFMT(graph_str(g, g->vals[stored].full)));
	for (uint32_t v = stored + 1; v < g->nval; v++)
		if (g->vals[v].tied == stored)
			g->vals[v].tied = first;
}

/* ---- tables of sines ----------------------------------------------------------------------------------------------------- */

/* nn.Embedding whose class says that it is computed: Marian's and Pegasus's positions require no grad, which ONNX has no word for. */
static void
freeze_sines(struct onnx *l, uint32_t n)
{
	struct graph *g = l->g;
	struct str class = graph_str(g, g->scopes[g->nodes[n].scope].cls);
	uint32_t table = g->nodes[n].op == OP_ONNX_GATHER && node_args(g, n)->kind == ARG_VAL ? node_args(g, n)->u.val : 0;

	if (!table || g->vals[table].kind != VAL_PARAM || !memmem(class.p, class.n, "Sinusoidal", 10))
		return;
	g->vals[table].flags &= (uint8_t)~VF_TRAINABLE;
	graph_note(g, "tables of modules that are called sinusoidal are computed, not trained");
}

void
onnx_find_ties(struct onnx *l)
{
	struct graph *g = l->g;

	for (uint32_t n = 1; n < g->nnode; n++) {
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			tie(l, n, it.slot);
		freeze_sines(l, n);
	}
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].tied && !g->vals[g->vals[v].tied].tied && g->vals[g->vals[v].tied].kind == VAL_PARAM)
			name_first(l, g->vals[v].tied);
}
