/*
 * recompose: pieces in programs that do not say where they come from (before torch 2.3, or stripped of it), by their shape: products with a
 * transposed matrix are linear layers; two products with a softmax between them, both factors of the first scaled, are attention.
 */
#include "recompose.h"

#include <stdlib.h>
#include <string.h>

struct draft {                     /* a set being collected */
	struct recompose *e;
	uint32_t node[RECOMPOSE_MAX], n;
};

static uint32_t
maker(const struct graph *g, uint32_t v)
{
	return v && g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0;
}

static uint32_t
tensor_arg(const struct graph *g, uint32_t n, const char *name)
{
	const struct arg *a = node_arg(g, n, name);

	return a && a->kind == ARG_VAL ? a->u.val : 0;
}

static void
take(struct draft *d, uint32_t n)
{
	if (d->n < RECOMPOSE_MAX)
		d->node[d->n++] = n;
}

/* The node that makes v, if that is its only reader's and nobody's else; it joins the set. */
static uint32_t
take_maker(struct draft *d, uint32_t v, const uint16_t *ops, unsigned nop)
{
	uint32_t n = d->e->uses[v] == 1 ? maker(d->e->g, v) : 0;

	for (unsigned i = 0; n && i < nop; i++)
		if (d->e->g->nodes[n].op == ops[i] && !d->e->of[n]) {
			take(d, n);
			return n;
		}
	return 0;
}

/* A product of matrices takes its factors apart as expand, clone, view, each where it is needed; the value that they begin with. */
static uint32_t
take_views(struct draft *d, uint32_t v)
{
	static const uint16_t view[] = {OP_VIEW, OP_UNSAFE_VIEW}, clone[] = {OP_CLONE}, expand[] = {OP_EXPAND};
	uint32_t n;

	if ((n = take_maker(d, v, view, 2)))
		v = node_args(d->e->g, n)->u.val;
	if ((n = take_maker(d, v, clone, 1)))
		v = node_args(d->e->g, n)->u.val;
	if ((n = take_maker(d, v, expand, 1)))
		v = node_args(d->e->g, n)->u.val;
	return v;
}

static bool
ends_with(const struct graph *g, uint32_t v, int64_t size)
{
	const struct val *x = &g->vals[v];

	return x->rank != RANK_UNKNOWN && x->rank && val_dims(g, v)[x->rank - 1].n == size;
}

static bool
is_transposition(const struct graph *g, uint32_t n)
{
	unsigned op = n ? g->nodes[n].op : OP_NONE;
	uint32_t v = n ? node_args(g, n)->u.val : 0;

	return (op == OP_T || op == OP_PERMUTE || op == OP_TRANSPOSE) && node_args(g, n)->kind == ARG_VAL && g->vals[v].rank == 2;
}

/* The only reader of a node's only result, if it comes soon. */
static uint32_t
reader(const struct recompose *e, uint32_t n)
{
	uint32_t v = node_outs(e->g, n)[0];

	if (e->uses[v] != 1)
		return 0;
	for (uint32_t m = n + 1; m < e->g->nnode && m < n + 16; m++)
		for (struct operands it = operands_of(e->g, m); operand_next(&it);)
			if (it.val == v)
				return m;
	return 0;
}

static int
by_index(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void
finish(struct draft *d, unsigned op)
{
	uint32_t set = ++d->e->nset;

	d->e->op[set] = (uint16_t)op;
	qsort(d->node, d->n, sizeof *d->node, by_index);
	for (uint32_t i = 0; i < d->n; i++)
		if (!i || d->node[i] != d->node[i - 1])
			recompose_add_piece(d->e, set, d->node[i]);
}

/* ---- linear layers ------------------------------------------------------------------------------------------------------- */

static void
linear(struct recompose *e, uint32_t n)
{
	struct graph *g = e->g;
	struct draft d = {.e = e};
	unsigned op = g->nodes[n].op;
	uint32_t w = take_views(&d, tensor_arg(g, n, "mat2")), t = maker(g, w), next, before;

	if (!is_transposition(g, t) || e->of[t])
		return;
	if (e->uses[w] == 1)
		take(&d, t);
	else if (g->vals[node_args(g, t)->u.val].kind != VAL_PARAM)
		return;
	before = d.n;
	if (!ends_with(g, take_views(&d, tensor_arg(g, n, op == OP_ADDMM ? "mat1" : "self")), val_dims(g, w)[0].n))
		d.n = before;          /* the model's own views */
	take(&d, n);
	next = reader(e, n);
	if (next && (g->nodes[next].op == OP_VIEW || g->nodes[next].op == OP_UNSAFE_VIEW)) {
		take(&d, next);
		next = reader(e, next);
	}
	if (next && op == OP_BMM && g->nodes[next].op == OP_ADD && g->vals[tensor_arg(g, next, "other")].kind == VAL_PARAM)
		take(&d, next);
	finish(&d, OP_LINEAR);
}

/* ---- attention -------------------------------------------------------------------------------------------------------------- */

/* Swaps the last two dims. */
static bool
turns_matrix(const struct graph *g, uint32_t n)
{
	const struct arg *dims = node_arg(g, n, "dims");
	unsigned rank = g->vals[node_outs(g, n)[0]].rank;

	return g->nodes[n].op == OP_TRANSPOSE || (dims && dims->kind == ARG_INTS && dims->count == rank && rank >= 2 && g->ints[dims->first + rank - 2].n == rank - 1);
}

/* A factor of the first product: scaled; both are, which nobody writes by hand. The second is turned. */
static bool
take_scaled(struct draft *d, uint32_t v, bool turned)
{
	static const uint16_t scale[] = {OP_MUL}, turn[] = {OP_PERMUTE, OP_TRANSPOSE};
	const struct graph *g = d->e->g;
	uint32_t n = take_maker(d, take_views(d, v), scale, 1), made;

	if (!n || tensor_arg(g, n, "other"))
		return false;
	made = maker(g, node_args(g, n)->u.val);
	return !turned || (made && turns_matrix(g, made) && take_maker(d, node_args(g, n)->u.val, turn, 2));
}

/* A causal mask is made of nothing but numbers. */
static void
take_constants(struct draft *d, uint32_t v)
{
	static const uint16_t ops[] = {OP_LOGICAL_AND, OP_LE, OP_GE, OP_SUB, OP_ARANGE, OP_FULL, OP_TRIL, OP_UNSQUEEZE, OP_VIEW};
	uint32_t before = d->n, n = take_maker(d, v, ops, sizeof ops / sizeof ops[0]);

	for (uint32_t i = before; n && i < d->n; i++)
		for (struct operands it = operands_of(d->e->g, d->node[i]); operand_next(&it);)
			if (d->n == RECOMPOSE_MAX || !take_maker(d, it.val, ops, sizeof ops / sizeof ops[0])) {
				d->n = before;
				return;
			}
}

/* Scores: view(bmm) [+ mask]. */
static bool
take_scores(struct draft *d, uint32_t v)
{
	static const uint16_t sum[] = {OP_ADD}, view[] = {OP_VIEW, OP_UNSAFE_VIEW}, product[] = {OP_BMM}, made[] = {OP_WHERE}, number[] = {OP_SCALAR_TENSOR, OP_FULL};
	const struct graph *g = d->e->g;
	uint32_t n = take_maker(d, v, sum, 1), mask;

	if (n) {
		mask = take_maker(d, tensor_arg(g, n, "other"), made, 1);
		v = node_args(g, n)->u.val;
		if (mask) {
			take_maker(d, tensor_arg(g, mask, "self"), number, 2);
			take_maker(d, tensor_arg(g, mask, "other"), number, 2);
			take_constants(d, tensor_arg(g, mask, "condition"));
		}
	}
	n = take_maker(d, v, view, 2);
	n = take_maker(d, n ? node_args(g, n)->u.val : v, product, 1);
	return n && take_scaled(d, tensor_arg(g, n, "self"), false) && take_scaled(d, tensor_arg(g, n, "mat2"), true);
}

/* Rows that are masked altogether: zero where no score is finite. */
static uint32_t
skip_empty_rows(struct draft *d, uint32_t softmax, uint32_t v)
{
	static const uint16_t ops[] = {OP_EQ, OP_LOGICAL_NOT, OP_ANY, OP_LOGICAL_NOT, OP_FULL_LIKE, OP_WHERE};
	const struct graph *g = d->e->g;

	for (unsigned i = 0; i < 6; i++)
		if (softmax + 1 + i >= g->nnode || (g->nodes[softmax + 1 + i].op != ops[i] && !(i == 4 && g->nodes[softmax + 1 + i].op == OP_ZEROS_LIKE)))
			return v;
	for (unsigned i = 0; i < 6; i++)
		take(d, softmax + 1 + i);
	return node_outs(g, softmax + 6)[0];
}

/* The CPU's kernel gives its result in another layout: permute, clone, permute back. */
static void
take_layout(struct draft *d, uint32_t n)
{
	static const uint16_t ops[] = {OP_PERMUTE, OP_CLONE, OP_PERMUTE};
	uint32_t at[3];

	for (unsigned i = 0; i < 3; i++) {
		n = at[i] = i ? n + 1 : reader(d->e, n);
		if (!n || n >= d->e->g->nnode || d->e->g->nodes[n].op != ops[i] || (i < 2 && reader(d->e, n) != n + 1))
			return;
	}
	for (unsigned i = 0; i < 3; i++)
		take(d, at[i]);
}

static void
attention(struct recompose *e, uint32_t softmax)
{
	const struct graph *g = e->g;
	struct draft d = {.e = e};
	uint32_t v = node_outs(g, softmax)[0], scores = node_args(g, softmax)->kind == ARG_VAL ? node_args(g, softmax)->u.val : 0, uses = scores ? e->uses[scores] : 0, n;
	bool ok;

	take(&d, softmax);
	v = skip_empty_rows(&d, softmax, v);
	if (!scores || uses > 2 || (uses == 2 && d.n == 1))
		return;
	e->uses[scores] = 1;           /* the second reader is in the set */
	ok = take_scores(&d, scores);
	e->uses[scores] = uses;
	for (n = reader(e, maker(g, v)); ok && n && g->nodes[n].op != OP_BMM; n = reader(e, n)) {
		unsigned op = g->nodes[n].op;

		if (op != OP_NATIVE_DROPOUT && op != OP_EXPAND && op != OP_VIEW && op != OP_CLONE && op != OP_UNSAFE_VIEW)
			return;
		take(&d, n);
	}
	if (!ok || !n)
		return;
	take(&d, n);
	take_views(&d, tensor_arg(g, n, "mat2"));
	n = reader(e, n);
	if (n && g->nodes[n].op == OP_VIEW) {
		take(&d, n);
		take_layout(&d, n);
	}
	finish(&d, OP_SDPA);
}

/* ---- small ones ----------------------------------------------------------------------------------------------------------------- */

/* The mean of what gather finds in log_softmax, labels to be ignored left out: nothing else stands between the first and the last of these. */
static void
cross_entropy(struct recompose *e, uint32_t n)
{
	static const uint16_t ops[] = {OP_NE, OP_SCALAR_TENSOR, OP_FULL, OP_WHERE, OP_UNSQUEEZE, OP_GATHER, OP_SQUEEZE, OP_NEG, OP_SUM, OP_TO_COPY, OP_DIV};
	const struct graph *g = e->g;
	const struct node *x = &g->nodes[n];
	struct draft d = {.e = e, .node = {n}, .n = 1};
	uint32_t next = reader(e, n);
	bool gathers = false;

	if (next && !e->of[next] && g->nodes[next].op == OP_NLL_LOSS && tensor_arg(g, next, "self") == node_outs(g, n)[0]) {       /* up to torch 2.4 */
		struct str line = x->nframe ? graph_str(g, g->frames[x->frame + x->nframe - 1].text) : S("");

		if (g->nodes[next].frame != x->frame || (line.n && memmem(line.p, line.n, "log_softmax", 11)))
			return;        /* the model's own two calls */
		take(&d, next);
		finish(&d, OP_CROSS_ENTROPY);
		return;
	}
	for (uint32_t m = n + 1; m < g->nnode && m < n + 24; m++) {
		unsigned op = g->nodes[m].op, i;

		for (i = 0; i < sizeof ops / sizeof ops[0] && ops[i] != op; i++)
			;
		if (i == sizeof ops / sizeof ops[0] || e->of[m])
			return;
		take(&d, m);
		gathers |= op == OP_GATHER && tensor_arg(g, m, "self") == node_outs(g, n)[0];
		if (op == OP_DIV && gathers) {
			finish(&d, OP_CROSS_ENTROPY);
			return;
		}
	}
}

/* x * sigmoid(x), unless the model's own line says so. */
static void
silu(struct recompose *e, uint32_t n)
{
	const struct graph *g = e->g;
	const struct node *x = &g->nodes[n];
	struct str line = x->nframe ? graph_str(g, g->frames[x->frame + x->nframe - 1].text) : S("");
	uint32_t next = reader(e, n);
	struct draft d = {.e = e, .node = {n, next}, .n = 2};

	if (!line.n || memmem(line.p, line.n, "sigmoid", 7) || !next || g->nodes[next].op != OP_MUL || g->nodes[next].frame != x->frame || e->of[next])
		return;
	if (node_args(g, n)->kind == ARG_VAL && tensor_arg(g, next, "self") == node_args(g, n)->u.val && tensor_arg(g, next, "other") == node_outs(g, n)[0])
		finish(&d, OP_SILU);
}

/* A copy in row-major order is one where it must be: contiguous() or reshape(), which the exporter's machine may have needed where a GPU does not. */
static void
copy(struct recompose *e, uint32_t n)
{
	const struct arg *format = node_arg(e->g, n, "memory_format");
	struct draft d = {.e = e, .node = {n}, .n = 1};
	uint32_t next = reader(e, n);

	if (!format || format->kind != ARG_INT || format->u.i.n != 0)
		return;
	if (!next || e->of[next] || (e->g->nodes[next].op != OP_VIEW && e->g->nodes[next].op != OP_UNSAFE_VIEW)) {
		finish(&d, OP_CONTIGUOUS);
		return;
	}
	take(&d, next);
	finish(&d, OP_RESHAPE);
}

void
recompose_collect_by_shape(struct recompose *e)
{
	static const struct {
		uint16_t piece, whole;
	} single[] = {{OP_NATIVE_DROPOUT, OP_DROPOUT}, {OP_SOFTMAX_KERNEL, OP_SOFTMAX}, {OP_LOG_SOFTMAX_KERNEL, OP_LOG_SOFTMAX}};
	struct graph *g = e->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].op == OP_SOFTMAX_KERNEL)
			attention(e, n);
	for (uint32_t n = 1; n < g->nnode; n++) {
		unsigned op = g->nodes[n].op;

		if (!e->of[n] && (op == OP_MM || op == OP_ADDMM || op == OP_BMM))
			linear(e, n);
		if (!e->of[n] && op == OP_LOG_SOFTMAX_KERNEL)
			cross_entropy(e, n);
		if (!e->of[n] && op == OP_SIGMOID)
			silu(e, n);
		for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
			if (!e->of[n] && op == single[i].piece) {
				struct draft d = {.e = e, .node = {n}, .n = 1};

				finish(&d, single[i].whole);
			}
	}
	for (uint32_t n = 1; n < g->nnode; n++)
		if (!e->of[n] && g->nodes[n].op == OP_CLONE)
			copy(e, n);
	for (uint32_t n = 1; n < g->nnode; n++)
		if (!e->of[n] && (g->nodes[n].op == OP_VIEW || g->nodes[n].op == OP_UNSAFE_VIEW)) {
			struct draft d = {.e = e, .node = {n}, .n = 1};

			finish(&d, OP_RESHAPE);        /* what needed no copy on the exporter's machine may need one on another */
		}
}
