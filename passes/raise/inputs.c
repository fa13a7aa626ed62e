/*
 * inputs: what the file does not say of its inputs. Scripts have names only: the recipe's INPUT[AXIS] give the rank, else the operator
 * that reads the input does (an embedding reads whole numbers [batch, seq], a convolution an image with its weight's channels, a linear
 * layer rows as long as its weight's). Sizes become symbols INPUT[AXIS] for the pass bind.
 */
#include "../passes.h"

struct hint {
	uint8_t dtype, rank;
	int64_t dim[MAX_RANK];     /* fixed by the reader's weight; -1 = not */
	int64_t min[MAX_RANK];     /* smallest size that its reader takes */
	bool last_only;            /* dim[0] is the last one, whatever the rank */
	bool scalar;               /* it is read as a number */
};

struct inputs_pass {
	struct analysis *a;
	struct graph *g;
	bool *same;                /* per value: it is the input, maybe through conversions and branches */
};

/* ---- who reads it ---------------------------------------------------------------------------------------------------- */

static int64_t
int_at(const struct graph *g, const struct arg *a, uint32_t i, int64_t dflt)
{
	struct sint s;

	if (!a || (a->kind != ARG_INT && (a->kind != ARG_INTS || !a->count)))
		return dflt;
	s = a->kind == ARG_INT ? a->u.i : g->ints[a->first + (i < a->count ? i : a->count - 1)];
	return s.expr ? dflt : s.n;
}

static const struct val *
weight_of(const struct graph *g, uint32_t n, const char *name)
{
	const struct arg *w = node_arg(g, n, name);
	const struct val *x = w && w->kind == ARG_VAL ? &g->vals[w->u.val] : NULL;

	return x && x->rank != RANK_UNKNOWN && x->kind != VAL_NODE ? x : NULL;
}

static void
read_by_convolution(const struct graph *g, uint32_t n, struct hint *h)
{
	const struct val *w = weight_of(g, n, "weight");
	const struct arg *transposed = node_arg(g, n, "transposed");
	bool back = g->nodes[n].op == OP_CONV_TRANSPOSE || (transposed && transposed->kind == ARG_BOOL && transposed->u.b);

	if (!w || w->rank < 3)
		return;
	h->dtype = w->dtype;
	h->rank = w->rank;
	h->dim[1] = back ? g->ints[w->dim].n : g->ints[w->dim + 1].n * int_at(g, node_arg(g, n, "groups"), 0, 1);
	for (unsigned i = 2; i < w->rank && !back; i++) {
		int64_t k = g->ints[w->dim + i].n, pad = int_at(g, node_arg(g, n, "padding"), i - 2, 0);

		h->min[i] = int_at(g, node_arg(g, n, "dilation"), i - 2, 1) * (k - 1) + 1 - 2 * pad;
	}
}

static void
read_by_linear(const struct graph *g, uint32_t n, struct hint *h)
{
	const struct val *w = weight_of(g, n, "weight");

	if (!w || w->rank != 2)
		return;
	h->dtype = w->dtype;
	h->dim[0] = g->ints[w->dim + 1].n;
	h->last_only = true;
}

static void
read_by(const struct graph *g, uint32_t n, uint32_t arg, struct hint *h)
{
	unsigned op = g->nodes[n].op;

	if (op == OP_EMBEDDING && arg == 1) {
		h->dtype = DT_INT64;
		h->rank = 2;
	} else if ((op == OP_CONV || op == OP_CONV_TRANSPOSE || op == OP_CONVOLUTION) && arg == 0) {
		read_by_convolution(g, n, h);
	} else if (op == OP_LINEAR && arg == 0) {
		read_by_linear(g, n, h);
	} else if ((op == OP_CROSS_ENTROPY || op == OP_NLL_LOSS || op == OP_NLL_LOSS_ND) && arg == 1) {
		h->dtype = DT_INT64;
	} else if (op == OP_MEASURE && node_args(g, n)->kind == ARG_STR && str_eq(graph_str(g, node_args(g, n)->u.str), S("int"))) {
		h->dtype = DT_INT64;
		h->scalar = true;
	} else {
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_PARAM)
				h->dtype = g->vals[it.val].dtype;
	}
}

/* Results that are the operand itself, or may be. */
static void
follow(struct inputs_pass *p, uint32_t n, uint32_t arg)
{
	struct graph *g = p->g;
	unsigned op = g->nodes[n].op;
	uint32_t k = op == OP_LOOP ? arg - 1 : op == OP_ENDIF ? arg / 2 : 0;

	if (op != OP_TO && op != OP_CONTIGUOUS && op != OP_IDENTITY && op != OP_DETACH && op != OP_LOOP && op != OP_ENDIF)
		return;
	if ((op == OP_LOOP && arg < 2) || k >= g->nodes[n].nout)
		return;
	p->same[node_outs(g, n)[k]] = true;
}

static struct hint
find_hint(struct inputs_pass *p, uint32_t input)
{
	struct graph *g = p->g;
	struct hint h = {0};

	for (unsigned i = 0; i < MAX_RANK; i++)
		h.dim[i] = -1;
	p->same = NEW(p->a->c->a, bool, g->nval);
	p->same[input] = true;
	for (uint32_t n = 1; n < g->nnode && !h.rank; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (p->same[it.val]) {
				if (!h.rank && !h.last_only)
					read_by(g, n, it.arg, &h);
				follow(p, n, it.arg);
			}
	return h;
}

/* ---- giving it a shape -------------------------------------------------------------------------------------------------- */

/* The highest axis that the recipe names, and one. */
static unsigned
rank_in_recipe(const struct inputs_pass *p, struct str name)
{
	unsigned rank = 0;

	for (uint32_t i = 0; i < p->a->r->ndim; i++) {
		struct str d = p->a->r->dims[i].name;
		int64_t axis;

		if (!str_starts(d, name) || d.n < name.n + 3 || d.p[name.n] != '[' || d.p[d.n - 1] != ']')
			continue;
		if (str_int(str_sub(d, name.n + 1, d.n - 1), &axis) && axis >= 0 && axis < MAX_RANK && axis >= rank)
			rank = (unsigned)axis + 1;
	}
	return rank;
}

static void
give_shape(struct inputs_pass *p, uint32_t v, const struct hint *h, unsigned rank)
{
	struct graph *g = p->g;
	struct str name = graph_str(g, g->vals[v].name);
	struct sint dims[MAX_RANK];

	for (unsigned i = 0; i < rank; i++) {
		int64_t fixed = h->last_only ? (i + 1 == rank ? h->dim[0] : -1) : rank == h->rank ? h->dim[i] : -1;
		uint32_t s;

		dims[i] = SINT(fixed);
		if (fixed >= 0)
			continue;
		s = sym_add(g, str_fmt(p->a->c->a, "%.*s[%u]", SFMT(name), i));
		g->syms[s].min = rank == h->rank && h->min[i] > 1 ? h->min[i] : 1;
		dims[i] = sint_of_expr(g, expr_sym(g, s));
	}
	val_shape(g, v, rank, dims);
}

bool
pass_inputs(struct analysis *a)
{
	struct inputs_pass p = {.a = a, .g = a->g};
	struct graph *g = a->g;

	for (uint32_t i = 0; i < g->ninput; i++) {
		uint32_t v = g->inputs[i];
		struct str name = graph_str(g, g->vals[v].name);
		struct hint h;
		unsigned rank;

		if (g->vals[v].rank != RANK_UNKNOWN && g->vals[v].dtype)
			continue;
		h = find_hint(&p, v);
		rank = g->vals[v].rank == RANK_UNKNOWN ? rank_in_recipe(&p, name) : 0;
		if (!g->vals[v].dtype) {
			g->vals[v].dtype = h.dtype ? h.dtype : g->file_dtype;
			assume(a, "the file does not say what %.*s holds: %s, as its reader takes it", SFMT(name), dtype_info(g->vals[v].dtype)->name);
		}
		if (g->vals[v].rank == RANK_UNKNOWN && (rank || h.rank || h.scalar))
			give_shape(&p, v, &h, rank ? rank : h.rank);
	}
	return true;
}
