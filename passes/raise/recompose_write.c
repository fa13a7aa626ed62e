/*
 * recompose: writes in place. Functional programs give every write a new value: add_ is add, and a write into a view makes the whole tensor
 * and its views anew. Where the pieces come from an operator that writes, it does again.
 */
#include "recompose.h"

#include <string.h>

static bool
is_view(unsigned op)
{
	static const uint16_t views[] = {OP_VIEW, OP_UNSAFE_VIEW, OP_TRANSPOSE, OP_PERMUTE, OP_T, OP_UNSQUEEZE, OP_SQUEEZE, OP_EXPAND, OP_SLICE, OP_SELECT,
		OP_DIAGONAL, OP_UNFOLD, OP_AS_STRIDED, OP_SPLIT, OP_CHUNK, OP_UNBIND, OP_ALIAS, OP_DETACH, OP_NARROW, OP_VIEW_AS, OP_RESHAPE, OP_RESHAPE_AS};

	for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
		if (views[i] == op)
			return true;
	return false;
}

static bool
same_dims(const struct graph *g, uint32_t a, uint32_t b)
{
	const struct val *x = &g->vals[a], *y = &g->vals[b];

	return x->rank == y->rank && x->rank != RANK_UNKNOWN && memcmp(val_dims(g, a), val_dims(g, b), x->rank * sizeof(struct sint)) == 0;
}

/* What v is a view of, if that has the dims of another value. */
static uint32_t
base_of(const struct recompose *e, uint32_t v, uint32_t like)
{
	const struct graph *g = e->g;

	for (unsigned depth = 0; depth < 64; depth++) {
		uint32_t n = g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0;

		if (!n || !is_view(g->nodes[n].op) || node_args(g, n)->kind != ARG_VAL)
			break;
		v = node_args(g, n)->u.val;
	}
	return same_dims(g, v, like) ? v : 0;
}

static void
read_renamed(struct recompose *e, uint32_t n)
{
	for (struct operands it = operands_of(e->g, n); operand_next(&it);)
		while (e->now[*it.slot])
			*it.slot = e->now[*it.slot];
}

void
recompose_rename(struct recompose *e)
{
	struct graph *g = e->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		read_renamed(e, n);
	for (uint32_t i = 0; i < g->noutput; i++)
		while (e->now[g->outputs[i]])
			g->outputs[i] = e->now[g->outputs[i]];
}

/* The new whole, and what it was before; views of it that are made anew come behind it. */
static uint32_t
find_whole(const struct recompose *e, const struct pieces *p, uint32_t n, uint32_t *base)
{
	for (uint32_t i = 0; i < p->nresult; i++) {
		*base = e->g->vals[p->result[i]].node > n ? base_of(e, node_args(e->g, n)->u.val, p->result[i]) : 0;
		if (*base && *base != p->result[i])
			return p->result[i];
	}
	return 0;
}

static uint32_t
find_write(const struct pieces *p, unsigned op)
{
	for (uint32_t i = 0; i < p->nnode; i++)
		if (p->g->nodes[p->node[i]].op == op && node_args(p->g, p->node[i])->kind == ARG_VAL)
			return p->node[i];
	return 0;
}

/* Functional programs write into a view by making the whole anew: the operator writes into the view again, and the whole stays itself. */
static bool
write_into_view(struct recompose *e, const struct pieces *p)
{
	struct graph *g = e->g;
	uint32_t n = find_write(p, p->op), whole, base = 0;

	n = n ? n : find_write(p, OP_COPY);        /* fill_ */
	whole = n ? find_whole(e, p, n, &base) : 0;
	if (!whole)
		return false;
	e->now[whole] = base;
	g->nodes[n].flags |= NF_INPLACE;
	for (uint32_t i = 0; i < p->nnode; i++) {
		read_renamed(e, p->node[i]);
		if (p->node[i] > n && p->node[i] <= g->vals[whole].node)
			g->nodes[p->node[i]].flags |= NF_DEAD;
	}
	return true;
}

/* Behind a write, views are made anew from what an operator made inside: the same view as its result is its result. */
static bool
is_view_again(struct recompose *e, uint32_t n)
{
	const struct graph *g = e->g;
	const struct node *x = &g->nodes[n];
	uint32_t v, *first;

	if ((x->op != OP_VIEW && x->op != OP_UNSAFE_VIEW) || node_args(g, n)->kind != ARG_VAL || !graph_is_sized(g, node_outs(g, n)[0]))
		return false;
	v = node_args(g, n)->u.val;
	first = &e->view_of[v];
	if (g->vals[v].kind != VAL_NODE)
		return false;
	if (e->of[g->vals[v].node] == e->of[n] && !*first)
		*first = node_outs(g, n)[0];
	return *first && e->of[g->vals[v].node] != e->of[n] && same_dims(g, *first, node_outs(g, n)[0]);
}

/* Writes into views, and what they made anew. */
void
recompose_restore_writes(struct recompose *e, uint32_t set, uint32_t *nodes)
{
	struct pieces p = {.a = e->a, .g = e->g, .of = e->of, .set = set, .node = nodes, .op = e->op[set], .inplace = e->inplace[set]};

	for (uint32_t n = e->first[set]; n; n = e->next[n]) {
		read_renamed(e, n);
		if (is_view_again(e, n)) {
			e->now[node_outs(e->g, n)[0]] = e->view_of[node_args(e->g, n)->u.val];
			e->g->nodes[n].flags |= NF_DEAD;
		}
		nodes[p.nnode++] = n;
	}
	if (!p.inplace)
		return;
	if (p.nnode == 1) {
		if (e->g->nodes[nodes[0]].op == p.op && node_args(e->g, nodes[0])->kind == ARG_VAL)
			e->g->nodes[nodes[0]].flags |= NF_INPLACE;
	} else if (recompose_find_results(e, &p)) {
		write_into_view(e, &p);
	}
}
