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
	return graph_same_dims(g, v, like) ? v : 0;
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
static bool
is_whole(const struct recompose *e, uint32_t n, uint32_t v, uint32_t *base)
{
	*base = e->g->vals[v].node > n ? base_of(e, node_args(e->g, n)->u.val, v) : 0;
	return *base && *base != v;
}

static uint32_t
find_whole(const struct recompose *e, const struct pieces *p, uint32_t n, uint32_t *base)
{
	for (uint32_t i = 0; i < p->nresult; i++)
		if (is_whole(e, n, p->result[i], base))
			return p->result[i];
	for (uint32_t i = p->nnode; i-- > 0;)              /* only the view of it that was written into is read again */
		if (e->g->nodes[p->node[i]].nout && is_whole(e, n, node_outs(e->g, p->node[i])[0], base))
			return node_outs(e->g, p->node[i])[0];
	return 0;
}

/* The operator that the piece is if it writes in place: leaky_relu_ is one of its own. */
static unsigned
in_place(const struct recompose *e, unsigned op)
{
	bool inplace;

	return op ? op_by_name(str_fmt(e->a->c->a, "%s_", op_info(op)->name), &inplace) : OP_NONE;
}

static uint32_t
find_write(const struct recompose *e, const struct pieces *p, unsigned op)
{
	for (uint32_t i = 0; i < p->nnode; i++)
		if (node_args(p->g, p->node[i])->kind == ARG_VAL && (p->g->nodes[p->node[i]].op == op || in_place(e, p->g->nodes[p->node[i]].op) == op))
			return p->node[i];
	return 0;
}

/* What is behind the write the same view of the whole as the one that was written into. */
static bool
is_written_view(const struct recompose *e, uint32_t n, uint32_t whole, uint32_t view)
{
	const struct graph *g = e->g;

	return is_view(g->nodes[n].op) && node_args(g, n)->kind == ARG_VAL && node_args(g, n)->u.val == whole && g->vals[view].kind == VAL_NODE &&
	    g->nodes[g->vals[view].node].op == g->nodes[n].op && graph_same_dims(g, node_outs(g, n)[0], view);
}

static void
write_in_place(struct recompose *e, uint32_t n, unsigned op)
{
	e->g->nodes[n].flags |= NF_INPLACE;
	if (in_place(e, e->g->nodes[n].op) == op)
		e->g->nodes[n].op = (uint16_t)op;
}

/* masked_fill_(mask, number) became where(mask, number as a tensor, self). */
static void
restore_masked_fill(struct recompose *e, const struct pieces *p)
{
	struct graph *g = e->g;

	for (uint32_t i = 0; i < p->nnode; i++) {
		uint32_t n = p->node[i], t;
		struct arg *a = node_args(g, n), was[3];

		if (g->nodes[n].op != OP_WHERE || a[1].kind != ARG_VAL || !recompose_is_piece(p, a[1].u.val))
			continue;
		t = g->vals[a[1].u.val].node;
		if (g->nodes[t].op != OP_SCALAR_TENSOR && g->nodes[t].op != OP_FULL)
			continue;
		memcpy(was, a, sizeof was);
		a[0] = was[2];
		a[1] = was[0];
		a[2] = *node_arg(g, t, g->nodes[t].op == OP_FULL ? "fill_value" : "s");
		g->nodes[n].op = OP_MASKED_FILL;
		g->nodes[t].flags |= NF_DEAD;
	}
}

/* index_add(self, dim, index, source) became index_put(self, [None, .., index], source, accumulate). */
static void
restore_index_add(struct recompose *e, const struct pieces *p)
{
	struct graph *g = e->g;

	for (uint32_t i = 0; i < p->nnode; i++) {
		const struct arg *a = node_args(g, p->node[i]);
		uint32_t dim = 0, made;

		if (g->nodes[p->node[i]].op != OP_INDEX_PUT || a[1].kind != ARG_VALS || a[2].kind != ARG_VAL)
			continue;
		while (dim < a[1].count && !g->ids[a[1].first + dim])
			dim++;
		if (dim + 1 != a[1].count)
			continue;
		made = node_new(g, OP_INDEX_ADD, op_narg(OP_INDEX_ADD), 0);          /* for its arguments alone */
		a = node_args(g, p->node[i]);
		node_args(g, made)[0] = a[0];
		node_args(g, made)[1] = arg_int(dim);
		node_args(g, made)[2] = arg_val(g->ids[a[1].first + dim]);
		node_args(g, made)[3] = a[2];
		g->nodes[p->node[i]].op = OP_INDEX_ADD;
		g->nodes[p->node[i]].arg = g->nodes[made].arg;
		g->nodes[p->node[i]].narg = g->nodes[made].narg;
		g->nnode = made;
	}
}

/* Functional programs write into a view by making the whole anew: the operator writes into the view again, and the whole stays itself. */
static bool
write_into_view(struct recompose *e, const struct pieces *p)
{
	struct graph *g = e->g;
	uint32_t n = find_write(e, p, p->op), whole, base = 0, view;

	n = n ? n : find_write(e, p, OP_COPY);        /* fill_ */
	whole = n ? find_whole(e, p, n, &base) : 0;
	if (!whole)
		return false;
	view = node_args(g, n)->u.val;
	for (uint32_t i = 0; i < p->nnode; i++)
		if (is_written_view(e, p->node[i], whole, view)) {
			e->now[node_outs(g, p->node[i])[0]] = view;
			g->nodes[p->node[i]].flags |= NF_DEAD;
		}
	e->now[whole] = base;
	write_in_place(e, n, p->op);
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
	return *first && e->of[g->vals[v].node] != e->of[n] && graph_same_dims(g, *first, node_outs(g, n)[0]);
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
	if (p.op == OP_INDEX_ADD)
		restore_index_add(e, &p);
	if (!p.inplace)
		return;
	if (p.op == OP_MASKED_FILL)
		restore_masked_fill(e, &p);
	for (uint32_t n = p.nnode, i = p.nnode = 0; i < n; i++)
		if (!(e->g->nodes[nodes[i]].flags & NF_DEAD))
			nodes[p.nnode++] = nodes[i];
	if (p.nnode == 1) {
		if (find_write(e, &p, p.op))
			write_in_place(e, nodes[0], p.op);
	} else if (recompose_find_results(e, &p)) {
		write_into_view(e, &p);
	}
}
