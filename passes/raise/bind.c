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
			s = str_list(a->c->a, s, "%.*s (%.*s[%u])", SFMT(name), SFMT(graph_str(g, g->vals[g->syms[i].input].name)),
			    g->syms[i].axis);
	}
	for (uint32_t i = 0; i < g->ninput; i++)
		if (g->vals[g->inputs[i]].rank == RANK_UNKNOWN)
			s = str_list(a->c->a, s, "%.*s, whose shape it does not have (--shape)", SFMT(graph_str(g, g->vals[g->inputs[i]].name)));
	return s.n ? s : S("none, its sizes are fixed");
}

/* ---- giving values ------------------------------------------------------------------------------------------ */

struct binding {
	const struct dim_binding *d;
	struct str symbols;        /* that got its value under another name */
	struct str fixed;          /* an axis that is a number, and another one */
	int64_t fixed_at;
	bool found;
};

static bool
give(struct analysis *a, uint32_t s, struct binding *b)
{
	struct sym *x = &a->g->syms[s];
	struct str name = graph_str(a->g, x->name);

	if (x->max >= 0 && b->d->value > x->max)
		return diag(a->c, DIAG_DIM_RANGE, SFMT(b->d->name), (long long)b->d->value, (long long)x->min, (long long)x->max);
	x->value = b->d->value;
	b->found = true;
	if (!str_eq(name, b->d->name))
		b->symbols = str_list(a->c->a, b->symbols, "%.*s", SFMT(name));
	return true;
}

static bool
is_integer(const struct graph *g, uint32_t v)
{
	unsigned cat = dtype_info(g->vals[v].dtype)->cat;

	return cat == CAT_INT || cat == CAT_BOOL;
}

/* One axis of one input. A number there must be the value asked for, unless the name binds something else as well. */
static bool
give_axis(struct analysis *a, uint32_t input, unsigned axis, struct binding *b)
{
	struct graph *g = a->g;
	struct sint dim = val_dims(g, input)[axis];
	uint32_t s = lone_symbol(g, dim);

	if (s) {
		b->found = true;
		return g->syms[s].value >= 0 || give(a, s, b);
	}
	if (dim.expr || dim.n == b->d->value) {
		b->found = true;
	} else if (!b->fixed.n) {
		b->fixed = str_fmt(a->c->a, "%.*s[%u]", SFMT(graph_str(g, g->vals[input].name)), axis);
		b->fixed_at = dim.n;
	}
	return true;
}

static bool
give_everywhere(struct analysis *a, unsigned axis, bool integers_only, struct binding *b)
{
	struct graph *g = a->g;

	for (uint32_t i = 0; i < g->ninput; i++) {
		const struct val *x = &g->vals[g->inputs[i]];

		if (x->rank == RANK_UNKNOWN || x->rank <= axis || (integers_only && !is_integer(g, g->inputs[i])))
			continue;
		if (!give_axis(a, g->inputs[i], axis, b))
			return false;
	}
	return true;
}

static bool
give_indexed(struct analysis *a, struct binding *b)
{
	struct graph *g = a->g;
	struct str name = b->d->name;
	int64_t open = str_find(name, '['), axis;
	struct str input = open < 0 ? S("") : str_sub(name, 0, (uint32_t)open);

	if (open < 0 || !str_ends(name, S("]")) || !str_int(str_sub(name, (uint32_t)open + 1, name.n - 1), &axis))
		return true;
	for (uint32_t i = 0; i < g->ninput; i++) {
		const struct val *x = &g->vals[g->inputs[i]];

		if (str_eq(graph_str(g, x->name), input) && x->rank != RANK_UNKNOWN && axis >= 0 && axis < x->rank)
			return give_axis(a, g->inputs[i], (unsigned)axis, b);
	}
	return true;
}

static bool
give_dim(struct analysis *a, struct binding *b)
{
	struct str name = b->d->name;
	uint32_t s = sym_find(a->g, name);

	if (s)
		return give(a, s, b);
	if (!give_indexed(a, b))
		return false;
	if (str_eq(name, S("batch")) && !give_everywhere(a, 0, false, b))
		return false;
	if (str_eq(name, S("seq")) && !give_everywhere(a, 1, true, b))
		return false;
	if (!b->found && b->fixed.n)
		return diag(a->c, DIAG_FIXED_DIM, SFMT(name), (long long)b->d->value, SFMT(b->fixed), (long long)b->fixed_at);
	if (!b->found) {
		struct str known = symbol_list(a);

		return diag(a->c, DIAG_UNKNOWN_DIM, SFMT(name), SFMT(known));
	}
	if (b->symbols.n)
		assume(a, "%.*s = %lld binds the file's %.*s", SFMT(name), (long long)b->d->value, SFMT(b->symbols));
	return true;
}

/* ---- what stays open -------------------------------------------------------------------------------------------- */

static bool *
symbols_in_use(const struct graph *g, struct arena *a)
{
	bool *used = NEW(a, bool, g->nsym + 1);

	for (uint32_t i = 1; i < g->nint; i++)
		if (g->ints[i].expr && g->exprs[g->ints[i].expr].op == EX_SYM)
			used[g->exprs[g->ints[i].expr].a] = true;
	return used;
}

static void
default_symbols(struct analysis *a)
{
	struct graph *g = a->g;
	const bool *used = symbols_in_use(g, a->c->a);
	struct str taken = S("");

	for (uint32_t i = 1; i < g->nsym; i++) {
		struct sym *x = &g->syms[i];

		if (x->value >= 0)
			continue;
		x->value = x->example > 0 ? x->example : x->min > 0 ? x->min : 1;
		if (x->example > 0) {
			taken = str_list(a->c->a, taken, "%.*s = %lld", SFMT(graph_str(g, x->name)), (long long)x->value);
			continue;
		}
		if (x->min == x->max || !(x->input || used[i]))
			continue;      /* the file leaves no choice, or nothing has this size */
		ROOM(a->c->a, a->unbound, a->nunbound, a->unbound_cap, 1);
		a->unbound[a->nunbound++] = graph_str(g, x->name);
		a->lower_bound = x->open = true;
	}
	for (uint32_t i = 0; i < g->ninput; i++)
		if (g->vals[g->inputs[i]].rank == RANK_UNKNOWN) {
			ROOM(a->c->a, a->unbound, a->nunbound, a->unbound_cap, 1);
			a->unbound[a->nunbound++] = graph_str(g, g->vals[g->inputs[i]].name);
			a->lower_bound = true;
		}
	if (taken.n)
		assume(a, "sizes that are not given are those of the trace: %.*s", SFMT(taken));
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
	for (uint32_t i = 0; i < a->r->ndim; i++) {
		struct binding b = {.d = &a->r->dims[i]};

		if (!give_dim(a, &b))
			return false;
	}
	default_symbols(a);
	expr_bind(a->g);
	make_numbers(a);
	return true;
}
