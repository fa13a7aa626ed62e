/*
 * parts: slices of one axis that were one operator. Exporters write unbind as slices of size 1, each squeezed, where Python's own indexing is a gather; split
 * of a parameter as slices; and chunk as slices that end at multiples of a quotient, which the older exporter has computed by nodes. Backward of one operator
 * joins the gradients of its results; that of many slices fills a whole tensor for each.
 */
#include "motif.h"

#include <string.h>

#define MAX_PARTS LIMIT(256u, 2u)

struct parts {
	struct shaper s;
	struct graph *g;
	uint32_t nold, nval;
	uint32_t *behind;          uint32_t behind_cap;
	uint32_t *first, *next;    /* by value: the first slice of it; by slice: the next */
	uint32_t *uses, *user;     /* by value: how many read it, and the last one that does */
	uint32_t *with;            /* by value: what stands for it, 0 = itself */
};

struct cut {                       /* slices of one value */
	uint32_t node[MAX_PARTS], n;
	int64_t start[MAX_PARTS], end[MAX_PARTS], axis, size;
};

/* ---- finding ----------------------------------------------------------------------------------------------------------------------------- */

static bool
one_number(struct parts *p, const char *name, int64_t dflt, int64_t *out)
{
	uint32_t v = operand(&p->s, name), n;

	*out = dflt;
	return !v || (known_numbers(&p->s, v, out, 1, &n) && n == 1);
}

/* From where to where a slice of one axis goes. */
static bool
read_slice(struct parts *p, uint32_t n, int64_t *axis, int64_t *size, int64_t *start, int64_t *end)
{
	struct type x;
	int64_t step;

	p->s.n = n;
	x = in(&p->s, "data");
	if (!one_number(p, "axes", 0, axis) || !one_number(p, "starts", 0, start) || !one_number(p, "ends", 0, end) || !one_number(p, "steps", 1, &step) || step != 1)
		return false;
	if (!operand(&p->s, "starts") || !operand(&p->s, "ends") || x.rank == RANK_UNKNOWN || !wrap_axis(axis, x.rank) || !sint_eval(p->g, x.dim[*axis], size))
		return false;
	*start += *start < 0 ? *size : 0;
	*end += *end < 0 ? *size : 0;
	*end = *end > *size ? *size : *end;
	return *start >= 0 && *start < *end;
}

/* Those that do not overlap, by where they begin. */
static bool
collect(struct parts *p, uint32_t v, struct cut *c)
{
	c->n = 0;
	c->axis = 0;
	for (uint32_t n = p->first[v]; n; n = p->next[n]) {
		int64_t axis, size, start, end;
		uint32_t at = c->n;

		if (c->n == MAX_PARTS || !read_slice(p, n, &axis, &size, &start, &end) || (c->n && axis != c->axis))
			return false;
		c->axis = axis;
		c->size = size;
		for (; at && c->start[at - 1] > start; at--) {
			c->node[at] = c->node[at - 1];
			c->start[at] = c->start[at - 1];
			c->end[at] = c->end[at - 1];
		}
		c->node[at] = n;
		c->start[at] = start;
		c->end[at] = end;
		c->n++;
	}
	for (uint32_t i = 1; i < c->n; i++)
		if (c->start[i] < c->end[i - 1])
			return false;
	return c->n > 1;
}

static bool
is_whole(const struct cut *c)
{
	for (uint32_t i = 1; i < c->n; i++)
		if (c->start[i] != c->end[i - 1])
			return false;
	return c->start[0] == 0 && c->end[c->n - 1] == c->size;
}

/* The value without the axis of size 1; 0 = something else reads the slice. */
static uint32_t
squeezed(struct parts *p, uint32_t slice, int64_t axis)
{
	uint32_t v = node_outs(p->g, slice)[0], n = p->uses[v] == 1 ? p->user[v] : 0, count;
	int64_t at;

	if (!n || p->g->nodes[n].op != OP_ONNX_SQUEEZE)
		return 0;
	p->s.n = n;
	if (!known_numbers(&p->s, operand(&p->s, "axes"), &at, 1, &count) || count != 1 || !wrap_axis(&at, p->g->vals[v].rank) || at != axis)
		return 0;
	return node_outs(p->g, n)[0];
}

/* ---- writing ----------------------------------------------------------------------------------------------------------------------------- */

static uint32_t
new_node(struct parts *p, unsigned op, uint32_t like, uint32_t nout)
{
	uint32_t n = node_beside(p->g, op, like, nout), at = n - p->nold;

	ROOM(p->g->c->a, p->behind, at, p->behind_cap, 1);
	p->behind[at] = like - 1;
	return n;
}

/* Result k of the node stands for an old value, or for one that the file left out. */
static void
stand_for(struct parts *p, uint32_t n, uint32_t k, uint32_t old, uint32_t like)
{
	struct graph *g = p->g;
	uint32_t v = val_new(g, VAL_NODE, str_fmt(g->c->a, "part_%u_%u", (unsigned)n, (unsigned)k));

	g->vals[v].node = n;
	g->vals[v].out = k;
	g->vals[v].dtype = g->vals[like].dtype;
	if (g->vals[like].rank != RANK_UNKNOWN)
		val_shape(g, v, g->vals[like].rank, val_dims(g, like));
	node_outs(g, n)[k] = v;
	if (old)
		p->with[old] = v;
}

static uint32_t
earliest(const struct cut *c)
{
	uint32_t n = c->node[0];

	for (uint32_t i = 1; i < c->n; i++)
		n = c->node[i] < n ? c->node[i] : n;
	return n;
}

static bool
write_unbind(struct parts *p, uint32_t v, const struct cut *c)
{
	uint32_t part[MAX_PARTS] = {0}, n, like = 0;
	bool recorded = str_starts(graph_str(p->g, p->g->nodes[c->node[0]].fx_target), S("aten.unbind"));

	if (c->size > MAX_PARTS || (!recorded && (!is_whole(c) || p->g->nodes[c->node[0]].fx_target)))
		return false;
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->end[i] != c->start[i] + 1 || p->g->nodes[c->node[i]].fx != p->g->nodes[c->node[0]].fx)
			return false;
		like = part[c->start[i]] = squeezed(p, c->node[i], c->axis);
		if (!like)
			return false;
	}
	n = new_node(p, OP_UNBIND, earliest(c), (uint32_t)c->size);
	*node_arg(p->g, n, "self") = arg_val(v);
	*node_arg(p->g, n, "dim") = arg_int(c->axis);
	for (uint32_t k = 0; k < (uint32_t)c->size; k++)
		stand_for(p, n, k, part[k], like);
	return true;
}

/* The k-th ends at quotient * k: of x.chunk(k), where an index of the program would be a number. */
static bool
is_chunk(struct parts *p, const struct cut *c)
{
	uint32_t quotient = 0;

	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t mul, of = 0;

		p->s.n = c->node[i];
		mul = maker_of(p->g, operand(&p->s, "ends"));
		for (unsigned k = 0; mul && p->g->nodes[mul].op == OP_ONNX_MUL && k < 2; k++)
			if (maker_of(p->g, operand_of(p->g, mul, k)) && p->g->nodes[maker_of(p->g, operand_of(p->g, mul, k))].op == OP_ONNX_DIV)
				of = operand_of(p->g, mul, k);
		if (!of || (quotient && of != quotient))
			return false;
		quotient = of;
	}
	return true;
}

static void
write_split(struct parts *p, uint32_t v, const struct cut *c)
{
	int64_t size[MAX_PARTS];
	uint32_t n;
	bool of_param = p->g->vals[v].kind == VAL_PARAM && !(p->g->vals[v].flags & VF_TRANSPOSED) && c->axis == 0;

	if (!is_whole(c) || (!of_param && !is_chunk(p, c)))
		return;
	for (uint32_t i = 0; i < c->n; i++)
		size[i] = c->end[i] - c->start[i];
	n = new_node(p, OP_SPLIT, earliest(c), c->n);
	*node_arg(p->g, n, "self") = arg_val(v);
	*node_arg(p->g, n, "split_size") = arg_ints(p->g, size, c->n);
	*node_arg(p->g, n, "dim") = arg_int(c->axis);
	for (uint32_t k = 0; k < c->n; k++)
		stand_for(p, n, k, node_outs(p->g, c->node[k])[0], node_outs(p->g, c->node[k])[0]);
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------------------------- */

static void
find_slices(struct parts *p)
{
	struct graph *g = p->g;

	p->first = NEW(g->c->a, uint32_t, p->nval);
	p->next = NEW(g->c->a, uint32_t, p->nold);
	p->uses = NEW(g->c->a, uint32_t, p->nval);
	p->user = NEW(g->c->a, uint32_t, p->nval);
	p->with = NEW(g->c->a, uint32_t, p->nval);
	uses_count(g, p->uses);
	for (uint32_t n = p->nold; n-- > 1;) {
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			p->user[it.val] = n;
		p->s.n = n;
		if (g->nodes[n].op == OP_ONNX_SLICE && operand(&p->s, "data")) {
			p->next[n] = p->first[operand(&p->s, "data")];
			p->first[operand(&p->s, "data")] = n;
		}
	}
}

static void
replace_values(struct parts *p)
{
	struct graph *g = p->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (it.val < p->nval && p->with[it.val])
				*it.slot = p->with[it.val];
	for (uint32_t i = 0; i < g->noutput; i++)
		if (g->outputs[i] < p->nval && p->with[g->outputs[i]])
			g->outputs[i] = p->with[g->outputs[i]];
}

bool
pass_parts(struct analysis *a)
{
	struct graph *g = a->g;
	struct parts p = {.s = {.a = a, .g = g, .bound = true}, .g = g, .nold = g->nnode, .nval = g->nval};
	struct cut c;

	if (!str_eq(g->format, S("onnx")))
		return true;
	find_slices(&p);
	for (uint32_t v = 1; v < p.nval; v++)
		if (p.first[v] && p.next[p.first[v]] && collect(&p, v, &c) && !write_unbind(&p, v, &c))
			write_split(&p, v, &c);
	if (g->nnode == p.nold)
		return true;
	replace_values(&p);
	graph_splice(g, p.nold, p.behind);
	return true;
}
