/*
 * bind: the recipe's sizes go to the file's symbols, and every symbolic integer of the graph becomes a number.
 *
 * "batch=8" binds the symbol of that name; where there is none (exporters print s77, and give every input its own), batch binds
 * every symbol that stands alone on axis 0 of an input, seq those on axis 1 of an integer input, and "ids[1]=64" the one there. What
 * stays unbound is listed, and its smallest allowed value is used so that the answer is a lower bound.
 */
#include "../passes.h"

/* ---- which symbols stand where ---------------------------------------------------------------------------- */

static uint32_t
lone_symbol(const struct graph *g, struct sint d)
{
	return d.expr && g->exprs[d.expr].op == EX_SYM ? g->exprs[d.expr].a : 0;
}

static void
find_places(struct graph *g)
{
	for (uint32_t i = 0; i < g->ninput; i++) {
		const struct val *x = &g->vals[g->inputs[i]];

		for (unsigned d = 0; x->rank != RANK_UNKNOWN && d < x->rank; d++) {
			uint32_t s = lone_symbol(g, val_dims(g, g->inputs[i])[d]);

			if (s && !g->syms[s].input) {
				g->syms[s].input = g->inputs[i];
				g->syms[s].axis = (uint8_t)d;
			}
		}
	}
}

static struct str
symbol_list(struct analysis *a)
{
	struct graph *g = a->g;
	struct str s = S("");

	for (uint32_t i = 1; i < g->nsym; i++) {
		struct str name = graph_str(g, g->syms[i].name);

		if (g->syms[i].input)
			s = str_fmt(a->c->a, "%.*s%s%.*s (%.*s[%u])", SFMT(s), s.n ? ", " : "", SFMT(name), SFMT(graph_str(g, g->vals[g->syms[i].input].name)),
			    g->syms[i].axis);
	}
	return s.n ? s : S("none, its sizes are fixed");
}

/* ---- giving values ------------------------------------------------------------------------------------------ */

static bool
give(struct analysis *a, uint32_t s, int64_t value, struct str by)
{
	struct sym *x = &a->g->syms[s];
	struct str name = graph_str(a->g, x->name);

	if (x->max >= 0 && value > x->max)
		return diag(a->c, DIAG_DIM_RANGE, SFMT(by), (long long)value, (long long)x->min, (long long)x->max);
	x->value = value;
	if (!str_eq(name, by))
		assume(a, "%.*s = %lld binds the file's symbol %.*s", SFMT(by), (long long)value, SFMT(name));
	return true;
}

static bool
is_integer(const struct graph *g, uint32_t v)
{
	unsigned cat = dtype_info(g->vals[v].dtype)->cat;

	return cat == CAT_INT || cat == CAT_BOOL;
}

/* One axis of one input; a number there must already be the value asked for. */
static bool
give_axis(struct analysis *a, uint32_t input, unsigned axis, const struct dim_binding *d, bool *found)
{
	struct graph *g = a->g;
	struct sint dim = val_dims(g, input)[axis];
	struct str where = str_fmt(a->c->a, "%.*s[%u]", SFMT(graph_str(g, g->vals[input].name)), axis);
	uint32_t s = lone_symbol(g, dim);

	if (s) {
		*found = true;
		return g->syms[s].value >= 0 || give(a, s, d->value, d->name);
	}
	if (!dim.expr && dim.n != d->value)
		return diag(a->c, DIAG_FIXED_DIM, SFMT(d->name), (long long)d->value, SFMT(where), (long long)dim.n);
	*found = true;
	return true;
}

static bool
give_everywhere(struct analysis *a, const struct dim_binding *d, unsigned axis, bool integers_only, bool *found)
{
	struct graph *g = a->g;

	for (uint32_t i = 0; i < g->ninput; i++) {
		const struct val *x = &g->vals[g->inputs[i]];

		if (x->rank == RANK_UNKNOWN || x->rank <= axis || (integers_only && !is_integer(g, g->inputs[i])))
			continue;
		if (!give_axis(a, g->inputs[i], axis, d, found))
			return false;
	}
	return true;
}

static bool
give_indexed(struct analysis *a, const struct dim_binding *d, bool *found)
{
	struct graph *g = a->g;
	int64_t open = str_find(d->name, '['), axis;
	struct str input = open < 0 ? S("") : str_sub(d->name, 0, (uint32_t)open);

	if (open < 0 || !str_ends(d->name, S("]")) || !str_int(str_sub(d->name, (uint32_t)open + 1, d->name.n - 1), &axis))
		return true;
	for (uint32_t i = 0; i < g->ninput; i++) {
		const struct val *x = &g->vals[g->inputs[i]];

		if (str_eq(graph_str(g, x->name), input) && x->rank != RANK_UNKNOWN && axis >= 0 && axis < x->rank)
			return give_axis(a, g->inputs[i], (unsigned)axis, d, found);
	}
	return true;
}

static bool
give_dim(struct analysis *a, const struct dim_binding *d)
{
	uint32_t s = sym_find(a->g, d->name);
	bool found = false;

	if (s)
		return give(a, s, d->value, d->name);
	if (!give_indexed(a, d, &found))
		return false;
	if (str_eq(d->name, S("batch")) && !give_everywhere(a, d, 0, false, &found))
		return false;
	if (str_eq(d->name, S("seq")) && !give_everywhere(a, d, 1, true, &found))
		return false;
	if (!found) {
		struct str known = symbol_list(a);

		return diag(a->c, DIAG_UNKNOWN_DIM, SFMT(d->name), SFMT(known));
	}
	return true;
}

/* ---- what stays open -------------------------------------------------------------------------------------------- */

static bool
symbol_is_used(const struct graph *g, uint32_t s)
{
	for (uint32_t i = 1; i < g->nint; i++)
		if (g->ints[i].expr && g->exprs[g->ints[i].expr].op == EX_SYM && g->exprs[g->ints[i].expr].a == s)
			return true;
	return false;
}

static void
default_symbols(struct analysis *a)
{
	struct graph *g = a->g;

	for (uint32_t i = 1; i < g->nsym; i++) {
		struct sym *x = &g->syms[i];

		if (x->value >= 0)
			continue;
		x->value = x->min > 0 ? x->min : 1;
		if (x->min == x->max || !(x->input || symbol_is_used(g, i)))
			continue;      /* the file leaves no choice, or nothing has this size */
		ROOM(a->c->a, a->unbound, a->nunbound, a->unbound_cap, 1);
		a->unbound[a->nunbound++] = graph_str(g, x->name);
		a->lower_bound = x->open = true;
	}
}

static void
make_numbers(struct analysis *a)
{
	struct graph *g = a->g;

	for (uint32_t i = 1; i < g->nint; i++) {
		int64_t n;

		if (sint_eval(g, g->ints[i], &n))
			g->ints[i] = SINT(n);
	}
	for (uint32_t i = 1; i < g->narg; i++) {
		int64_t n;

		if (g->args[i].kind == ARG_INT && sint_eval(g, g->args[i].u.i, &n))
			g->args[i].u.i = SINT(n);
	}
}

bool
pass_bind(struct analysis *a)
{
	find_places(a->g);
	for (uint32_t i = 0; i < a->r->ndim; i++)
		if (!give_dim(a, &a->r->dims[i]))
			return false;
	default_symbols(a);
	expr_bind(a->g);
	make_numbers(a);
	return true;
}
