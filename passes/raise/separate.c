/*
 * separate: views that an exporter found to be equal in several modules and kept in the first one only (the sines that every layer unsqueezes). A
 * module gives nothing to its siblings but what it returns: each of them makes its own view again.
 */
#include "../passes.h"

struct separate {
	struct graph *g;
	uint32_t nold;
	uint32_t *behind;          uint32_t behind_cap;
	uint32_t *scope, *copy;    /* by value: for which scope the last copy of it was made, and that copy; 0 = none */
};

static bool
is_view(unsigned op)
{
	return op == OP_UNSQUEEZE || op == OP_SQUEEZE || op == OP_RESHAPE || op == OP_TRANSPOSE || op == OP_PERMUTE || op == OP_EXPAND || op == OP_SLICE || op == OP_SELECT;
}

static bool
is_inside(const struct graph *g, uint32_t scope, uint32_t outer)
{
	return g->scopes[scope].depth >= g->scopes[outer].depth && scope_at(g, scope, g->scopes[outer].depth) == outer;
}

/* A view of something that its own module did not make either. */
static bool
is_shared(const struct graph *g, uint32_t v, uint32_t reader)
{
	uint32_t n = g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0, from;

	if (!n || !g->nodes[n].scope || !is_view(g->nodes[n].op) || is_inside(g, g->nodes[reader].scope, g->nodes[n].scope))
		return false;
	from = node_args(g, n)->kind == ARG_VAL ? node_args(g, n)->u.val : 0;
	return from && (g->vals[from].kind != VAL_NODE || !is_inside(g, g->nodes[g->vals[from].node].scope, g->nodes[n].scope));
}

static uint32_t
copy_for(struct separate *s, uint32_t v, uint32_t reader)
{
	struct graph *g = s->g;
	uint32_t old = g->vals[v].node, n = node_new(g, g->nodes[old].op, g->nodes[old].narg, 1), at = n - s->nold, w;
	struct node *x = &g->nodes[n];

	w = val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_%u", SFMT(graph_str(g, g->vals[v].name)), (unsigned)n));
	for (uint32_t i = 0; i < x->narg; i++)
		node_args(g, n)[i] = node_args(g, old)[i];
	g->vals[w].dtype = g->vals[v].dtype;
	if (g->vals[v].rank != RANK_UNKNOWN)
		val_shape(g, w, g->vals[v].rank, val_dims(g, v));
	g->vals[w].node = n;
	node_outs(g, n)[0] = w;
	x->name = g->nodes[old].name;
	x->target = g->nodes[old].target;
	x->flags = g->nodes[old].flags;
	x->scope = g->nodes[reader].scope;
	x->frame = g->nodes[reader].frame;
	x->nframe = g->nodes[reader].nframe;
	x->origin = g->nodes[old].origin;
	ROOM(g->c->a, s->behind, at, s->behind_cap, 1);
	s->behind[at] = reader - 1;
	return w;
}

static void
read_copy(struct graph *g, uint32_t n, uint32_t v, uint32_t copy)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (it.val == v)
			*it.slot = copy;
}

bool
pass_separate(struct analysis *a)
{
	struct graph *g = a->g;
	struct separate s = {.g = g, .nold = g->nnode};

	if (!str_eq(g->format, S("onnx")) || !g->has_scopes)
		return true;
	s.scope = NEW(a->c->a, uint32_t, g->nval);
	s.copy = NEW(a->c->a, uint32_t, g->nval);
	for (uint32_t n = 1; n < s.nold; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			if (!is_shared(g, it.val, n))
				continue;
			if (!s.copy[it.val] || s.scope[it.val] != g->nodes[n].scope) {
				s.copy[it.val] = copy_for(&s, it.val, n);
				s.scope[it.val] = g->nodes[n].scope;
			}
			read_copy(g, n, it.val, s.copy[it.val]);
		}
	graph_splice(g, s.nold, s.behind);
	return true;
}
