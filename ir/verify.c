/*
 * What must hold of every graph between passes. Debug builds run it after each of them; a frontend's
 * result is always checked, because the file may be hostile: ids in range, definitions before uses,
 * every value made once.
 */
#include "ir.h"

static bool
bad(struct graph *g, const char *after, const char *what, uint32_t node)
{
	struct str name = node ? graph_str(g, g->nodes[node].name) : S("");
	struct str text = str_fmt(g->c->a, "%s (node %u %.*s)", what, (unsigned)node, SFMT(name));

	return diag(g->c, DIAG_INTERNAL, after, SFMT(text));
}

static bool
check_args(struct graph *g, const char *after, uint32_t n)
{
	for (uint32_t k = 0; k < g->nodes[n].narg; k++) {
		const struct arg *a = node_args(g, n) + k;

		if (a->kind == ARG_VALS && (uint64_t)a->first + a->count > g->nid)
			return bad(g, after, "operand list out of range", n);
		if (a->kind == ARG_INTS && (uint64_t)a->first + a->count > g->nint)
			return bad(g, after, "integer list out of range", n);
		if (a->kind == ARG_FLOATS && (uint64_t)a->first + a->count > g->nfloat)
			return bad(g, after, "float list out of range", n);
	}
	return true;
}

static bool
check_node(struct graph *g, const char *after, uint32_t n, bool *made)
{
	const struct node *x = &g->nodes[n];
	struct operands it = operands_of(g, n);

	if ((uint64_t)x->arg + x->narg > g->narg || (uint64_t)x->out + x->nout > g->nid || x->scope >= g->nscope || x->op >= OP_COUNT)
		return bad(g, after, "node out of range", n);
	if ((uint64_t)x->frame + x->nframe + x->nhelper > g->nframe)
		return bad(g, after, "frames out of range", n);
	if (!check_args(g, after, n))
		return false;
	while (operand_next(&it))
		if (it.val >= g->nval || !made[it.val])
			return bad(g, after, "operand used before it is made", n);
	for (uint32_t k = 0; k < x->nout; k++) {
		uint32_t v = node_outs(g, n)[k];

		if (v >= g->nval || (v && (made[v] || g->vals[v].kind != VAL_NODE || g->vals[v].node != n || g->vals[v].out != k)))
			return bad(g, after, "result made twice, or by another node", n);
		made[v] = v != 0;
	}
	return true;
}

bool
graph_verify(struct graph *g, const char *after)
{
	bool *made = NEW(g->c->a, bool, g->nval + 1);

	for (uint32_t v = 1; v < g->nval; v++) {
		const struct val *x = &g->vals[v];

		made[v] = x->kind != VAL_NODE && x->kind != VAL_NONE;
		if (x->rank != RANK_UNKNOWN && (x->rank > MAX_RANK || (uint64_t)x->dim + x->rank > g->nint))
			return bad(g, after, "dims out of range", 0);
		if (x->data != DATA_NONE && (uint64_t)x->data_at + x->ndata > (x->data == DATA_INTS ? g->nint : g->nfloat))
			return bad(g, after, "elements out of range", 0);
	}
	for (uint32_t n = 1; n < g->nnode; n++)
		if (!(g->nodes[n].flags & NF_DEAD) && !check_node(g, after, n, made))
			return false;
	for (uint32_t i = 0; i < g->noutput; i++)
		if (g->outputs[i] >= g->nval || (g->outputs[i] && !made[g->outputs[i]]))
			return bad(g, after, "output that nothing makes", 0);
	return true;
}
