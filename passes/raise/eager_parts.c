/* Operators with several results that an exporter writes one result at a time: one node of them all stands where the first was. */
#include "eager.h"

#define MAX_PARTS 1024

struct parts {
	uint32_t x;
	int64_t axis, n;
	uint32_t *val;             /* the results that the file has; 0 = nobody reads it */
	uint32_t first;            /* the earliest of their nodes */
	int64_t found;
};

/* One element of an axis, which is taken away: v is one of the parts. */
static bool
is_part(struct raiser *r, uint32_t n, uint32_t *x, int64_t *axis, int64_t *at)
{
	const struct graph *g = r->g;
	const struct val *v = &g->vals[operand_of(g, n, 0)];
	uint32_t m = v->kind == VAL_NODE ? v->node : 0;
	double start, end, a = 0, step = 1;
	int64_t other;
	struct shaper s = r->s;

	s.n = m;
	if (!m || g->nodes[n].op != OP_ONNX_SQUEEZE || (g->nodes[m].op != OP_ONNX_SLICE && g->nodes[m].op != OP_ONNX_SPLIT))
		return false;
	*x = operand_of(g, m, 0);
	if (!scalar_of(g, operand_of(g, n, 1), &start) || g->vals[*x].rank > MAX_RANK)
		return false;
	other = (int64_t)start;
	if (g->nodes[m].op == OP_ONNX_SLICE) {
		if (!scalar_of(g, operand_of(g, m, 1), &start) || !scalar_of(g, operand_of(g, m, 2), &end) || end != start + 1 || start < 0 ||
		    (operand_of(g, m, 3) && !scalar_of(g, operand_of(g, m, 3), &a)) || (operand_of(g, m, 4) && !scalar_of(g, operand_of(g, m, 4), &step)) || step != 1)
			return false;
		*axis = (int64_t)a;
		*at = (int64_t)start;
	} else {
		*axis = attr_int(&s, "axis");
		*at = v->out;
	}
	return wrap_axis(axis, g->vals[*x].rank) && wrap_axis(&other, g->vals[*x].rank) && other == *axis;
}

/* The other parts stand shortly before the last. */
static void
find_parts(struct raiser *r, struct parts *p)
{
	uint32_t x, least = r->s.n > 4 * (uint32_t)p->n + 16 ? r->s.n - 4 * (uint32_t)p->n - 16 : 0;
	int64_t axis, at;

	for (uint32_t n = r->s.n; n > least; n--) {
		if (r->g->nodes[n].op != OP_ONNX_SQUEEZE || !is_part(r, n, &x, &axis, &at) || x != p->x || axis != p->axis || at >= p->n || p->val[at])
			continue;
		p->val[at] = node_outs(r->g, n)[0];
		p->first = r->g->vals[operand_of(r->g, n, 0)].node;
		p->found++;
	}
}

static void
write(struct raiser *r, const struct parts *p)
{
	struct graph *g = r->g;
	uint32_t n = eager_node(r, OP_UNBIND, (unsigned)p->n);

	r->behind[n - r->nold] = p->first;
	eager_tensor(r, n, "self", p->x);
	eager_arg(r, n, "dim", arg_int(p->axis));
	for (int64_t i = 0; i < p->n; i++) {
		if (!p->val[i])
			continue;
		node_outs(g, n)[i] = p->val[i];
		g->vals[p->val[i]].node = n;
		g->vals[p->val[i]].out = (uint32_t)i;
	}
}

bool
eager_unbind(struct raiser *r)
{
	struct parts p = {0};
	int64_t dim[MAX_RANK], at;
	unsigned rank;
	struct str target = graph_str(r->g, r->g->nodes[r->s.n].fx_target);

	if (!is_part(r, r->s.n, &p.x, &p.axis, &at) || !eager_size(r, p.x, dim, &rank))
		return false;
	p.n = dim[p.axis];
	if (p.n < 2 || p.n > MAX_PARTS || at >= p.n || (target.n && !str_starts(target, S("aten.unbind"))))
		return false;
	p.val = NEW(r->s.a->c->a, uint32_t, (size_t)p.n);
	find_parts(r, &p);
	if (!target.n && p.found < p.n)
		return false;
	write(r, &p);
	return true;
}
