/*
 * shape and sizes: the type of every value that ONNX operators make. What the file declares is a start: the exporter leaves out dims inside
 * of what it took apart, and older ones all of them. Each operator's rule says how its results follow from its operands; integers that can
 * be computed are, because they are the sizes of others. A declared dim is taken where the rule knows less; where both are numbers and
 * differ, the rule wins and the file's contradictions are reported once.
 *
 * shape runs before the sizes are bound, on expressions; sizes again behind bind, on numbers. Then a size that depends on the data (how many
 * elements are not zero) is the largest that it can be.
 */
#include "shape.h"

#include <string.h>

typedef void rule(struct shaper *);

static rule *const rules[RULE_COUNT] = {
#define RULE(name) [RULE_##name] = rule_##name,
#include "../../ir/rule.def"
#undef RULE
};

void
rule_declared(struct shaper *s)
{
	(void)s;
}

/* ---- the declared type and the rule's ------------------------------------------------------------------------------- */

static bool
is_simple(const struct graph *g, struct sint d)
{
	return !d.expr || g->exprs[d.expr].op == EX_SYM;
}

static void
contradict(struct shaper *s, uint32_t v)
{
	if (s->contradictions++ == 0)
		s->first_contradiction = graph_str(s->g, s->g->vals[v].name);
}

/* Symbols that are a size of an input: only those can be bound. Exporters give others to outputs whose sizes they did not follow. */
static bool *
input_symbols(const struct graph *g, struct arena *a)
{
	bool *is = NEW(a, bool, g->nsym + 1);

	for (uint32_t i = 0; i < g->ninput; i++) {
		const struct val *x = &g->vals[g->inputs[i]];

		for (unsigned k = 0; x->rank != RANK_UNKNOWN && k < x->rank; k++) {
			struct sint d = g->ints[x->dim + k];

			if (d.expr && is_simple(g, d))
				is[g->exprs[d.expr].a] = true;
		}
	}
	return is;
}

static bool
is_input_symbol(const struct shaper *s, struct sint d)
{
	return d.expr && is_simple(s->g, d) && s->bindable[s->g->exprs[d.expr].a];
}

/* Of two sizes the one that says more; an input's symbol says more than an expression that could not be reduced to it. */
static struct sint
better(struct shaper *s, uint32_t v, struct sint declared, struct sint found)
{
	if (is_unknown(found))
		return declared;
	if (is_unknown(declared))
		return found;
	if (!declared.expr && !found.expr && declared.n != found.n)
		contradict(s, v);
	if (!found.expr)
		return found;
	return (!declared.expr || is_input_symbol(s, declared)) && !is_simple(s->g, found) ? declared : found;
}

static bool
is_valid(struct sint d)
{
	return d.expr || (d.n >= 0 && d.n <= (int64_t)1 << 48);
}

static void
put_type(struct shaper *s, uint32_t v, struct type t)
{
	struct val *x = &s->g->vals[v];
	struct type old = type_of(s, v);

	if (t.dtype && x->dtype && t.dtype != x->dtype)
		contradict(s, v);
	if (t.dtype)
		x->dtype = t.dtype;
	if (t.rank == RANK_UNKNOWN)
		return;
	if (old.rank != RANK_UNKNOWN && old.rank != t.rank)
		contradict(s, v);
	for (unsigned i = 0; i < t.rank; i++) {
		if (!is_valid(t.dim[i]))
			t.dim[i] = UNKNOWN;
		if (old.rank == t.rank)
			t.dim[i] = better(s, v, old.dim[i], t.dim[i]);
	}
	if (old.rank == t.rank)
		memcpy(val_dims(s->g, v), t.dim, t.rank * sizeof *t.dim);
	else
		val_shape(s->g, v, t.rank, t.dim);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------------- */

static void
shape_node(struct shaper *s)
{
	unsigned n = nout(s);

	ROOM(s->a->c->a, s->out, 0, s->out_cap, n + 1);
	for (unsigned k = 0; k < n; k++)
		s->out[k] = typed(DT_NONE, RANK_UNKNOWN, NULL);
	rules[op_info(s->g->nodes[s->n].op)->rule](s);
	for (unsigned k = 0; k < n; k++)
		if (node_outs(s->g, s->n)[k])
			put_type(s, node_outs(s->g, s->n)[k], s->out[k]);
	fold_node(s);
}

/* What comes from a guess is one, too. */
static void
spread_guesses(struct shaper *s)
{
	bool guessed = false;

	for (struct operands it = operands_of(s->g, s->n); operand_next(&it);)
		guessed |= s->g->vals[it.val].guessed;
	for (unsigned k = 0; guessed && k < nout(s); k++) {
		uint32_t v = node_outs(s->g, s->n)[k];

		s->g->vals[v].guessed |= v && s->g->vals[v].rank;
	}
}

/* An operator without a row whose result has no type is taken to keep that of an operand (infer_guess.c). */
static void
guess_result(struct shaper *s)
{
	uint32_t like = value_looked_like(s->g, s->n), v = nout(s) ? node_outs(s->g, s->n)[0] : 0;
	struct val *x = &s->g->vals[v];

	if (!v || !like || s->g->vals[like].rank == RANK_UNKNOWN || (!x->guessed && x->rank != RANK_UNKNOWN && x->dtype))
		return;
	put_type(s, v, type_of(s, like));
	x = &s->g->vals[v];
	x->guessed = true;
	if (s->nguess++ == 0)
		s->first_guess = v;
}

static bool
has_onnx(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (op_is_onnx(g->nodes[n].op))
			return true;
	return false;
}

static void
report(struct shaper *s)
{
	if (s->contradictions)
		diag(s->a->c, DIAG_CONTRADICTION, (unsigned)s->contradictions, SFMT(s->first_contradiction));
	if (s->bound && s->nguess) {
		struct str name = graph_str(s->g, s->g->vals[s->first_guess].name);

		diag(s->a->c, DIAG_GUESSED, (unsigned)s->nguess, SFMT(name));
	}
	if (s->nbounded) {
		struct str name = graph_str(s->g, s->first_bounded);

		assume(s->a, "sizes that depend on the data are the largest that are possible (%u operators, the first is %.*s)", (unsigned)s->nbounded, SFMT(name));
	}
}

static void
infer(struct analysis *a, bool bound)
{
	struct shaper s = {.a = a, .g = a->g, .bound = bound, .bindable = input_symbols(a->g, a->c->a)};

	for (s.n = 1; s.n < s.g->nnode; s.n++) {
		resolve_sequence(&s);
		if (op_is_onnx(s.g->nodes[s.n].op)) {
			shape_node(&s);
			spread_guesses(&s);
		} else if (!s.g->nodes[s.n].op) {
			guess_result(&s);
		}
	}
	resolve_selects(&s);
	report(&s);
}

/* What readers see of inputs and outputs is the graph as it is here, before sizes are bound. */
bool
pass_shape(struct analysis *a)
{
	if (!has_onnx(a->g))
		return true;
	infer(a, false);
	a->report->loaded = graph_copy(a->g, a->c);
	return true;
}

static void
count_sized(struct analysis *a)
{
	a->sized = a->unsized = 0;
	for (uint32_t n = 1; n < a->g->nnode; n++)
		for (uint32_t k = 0; k < a->g->nodes[n].nout; k++) {
			uint32_t v = node_outs(a->g, n)[k];

			a->sized += v && graph_is_sized(a->g, v);
			a->unsized += v && !graph_is_sized(a->g, v);
			if (v && !graph_is_sized(a->g, v) && !a->first_unsized)
				a->first_unsized = v;
		}
}

bool
pass_sizes(struct analysis *a)
{
	if (!has_onnx(a->g))
		return true;
	infer(a, true);
	count_sized(a);
	return true;
}
