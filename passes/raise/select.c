/*
 * Results of an If whose branches both stand in the graph. Where the condition follows from the file, or from the sizes once they are bound, its
 * branch is taken; where it depends on the data, the larger one is. What only the other branch needed is dropped.
 */
#include "shape.h"

static bool
condition(const struct shaper *s, int64_t *yes)
{
	return known_int(s, operand(s, "condition"), yes);
}

uint32_t
selected(const struct shaper *s)
{
	const struct arg *nodes = arg_of(s, "nodes");
	int64_t yes;

	if (condition(s, &yes))
		return operand(s, yes ? "then" : "otherwise");
	if (!s->bound)
		return 0;
	yes = nodes->kind != ARG_INTS || nodes->count != 2 || s->g->ints[nodes->first].n >= s->g->ints[nodes->first + 1].n;
	return operand(s, yes ? "then" : "otherwise");
}

/* Makers of values that nobody uses any more, and what only they used. */
static void
drop_unused(struct shaper *s, uint32_t v, uint32_t *uses, uint32_t *stack)
{
	struct graph *g = s->g;
	uint32_t n = 0;

	stack[n++] = v;
	while (n) {
		uint32_t node = g->vals[stack[--n]].node;
		bool used = g->vals[stack[n]].kind != VAL_NODE || g->nodes[node].flags & NF_DEAD;

		for (uint32_t k = 0; !used && k < g->nodes[node].nout; k++)
			used = node_outs(g, node)[k] && uses[node_outs(g, node)[k]];
		if (used)
			continue;
		g->nodes[node].flags |= NF_DEAD;
		for (struct operands it = operands_of(g, node); operand_next(&it);)
			if (--uses[it.val] == 0)
				stack[n++] = it.val;
	}
}

/* The node becomes one that passes the branch's result on. */
static void
take(struct shaper *s, uint32_t v, uint32_t *uses, uint32_t *stack)
{
	struct node *x = &s->g->nodes[s->n];
	uint32_t other = operand(s, v == operand(s, "then") ? "otherwise" : "then"), cond = operand(s, "condition");
	struct arg *a = node_args(s->g, s->n);
	int64_t yes;

	if (!condition(s, &yes))
		assume(s->a, "the condition of %.*s depends on the data: its larger branch (%s) is the one that runs", SFMT(graph_str(s->g, x->name)), v == operand(s, "then") ? "then" : "else");
	x->op = OP_ONNX_IDENTITY;
	x->narg = 1;
	a[0] = arg_val(v);
	uses[other]--;
	uses[cond]--;
	if (!uses[other])
		drop_unused(s, other, uses, stack);
	if (!uses[cond])
		drop_unused(s, cond, uses, stack);
}

void
resolve_selects(struct shaper *s)
{
	uint32_t *uses = NULL, *stack = NULL;

	for (s->n = 1; s->n < s->g->nnode; s->n++) {
		uint32_t v = s->g->nodes[s->n].op == OP_ONNX_SELECT ? selected(s) : 0;

		if (!v)
			continue;
		if (!uses) {
			uses = NEW(s->a->c->a, uint32_t, s->g->nval);
			stack = NEW(s->a->c->a, uint32_t, s->g->nval + 1);
			uses_count(s->g, uses);
		}
		if (!(s->g->nodes[s->n].flags & NF_DEAD))
			take(s, v, uses, stack);
	}
	if (uses)
		graph_compact(s->g);
}
