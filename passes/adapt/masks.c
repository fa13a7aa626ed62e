/*
 * masks: while exporting, libraries always build attention masks; while training without padding they do not. What computes
 * a mask is followed back from its use: if it comes from positions and comparisons alone, the mask says "causal" or nothing.
 *
 *   scaled_dot_product_attention(q, k, v, mask)   the mask goes; is_causal is set if positions were compared with each other
 *   repeat_kv before such an attention            undone: without a mask the library passes the few heads
 *   add(scores, mask) in written-out attention     the identity, if the mask is all true; a causal one is really added
 *   where(mask, position bias, -inf)               the bias, if the mask is all true; a causal one has no batch
 *
 * Then whatever only these uses needed is dropped; results that nobody used in the first place were computed in training, too.
 */
#include "masks.h"

enum mask_kind { NOT_A_MASK, ALL_TRUE, CAUSAL };

/* ---- what a value is made of ------------------------------------------------------------------------------ */

static bool
makes_numbers(unsigned op)
{
	static const uint16_t ok[] = {
		OP_ARANGE, OP_FULL, OP_ZEROS, OP_ONES, OP_EMPTY, OP_FULL_LIKE, OP_ZEROS_LIKE, OP_NEW_FULL, OP_NEW_ZEROS, OP_SCALAR_TENSOR,
		OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_LOGICAL_AND, OP_LOGICAL_OR, OP_LOGICAL_NOT, OP_BITWISE_AND, OP_BITWISE_OR, OP_BITWISE_NOT,
		OP_WHERE, OP_MASKED_FILL, OP_TRIL, OP_TRIU, OP_CUMSUM, OP_DIFF, OP_ADD, OP_SUB, OP_RSUB, OP_MUL, OP_TO, OP_TO_COPY, OP_CLONE, OP_COPY,
		OP_CONTIGUOUS, OP_INDEX, OP_CAT, OP_STACK, OP_VIEW, OP_RESHAPE, OP_FLATTEN, OP_TRANSPOSE, OP_PERMUTE, OP_UNSQUEEZE, OP_SQUEEZE, OP_EXPAND,
		OP_EXPAND_AS, OP_SLICE, OP_SELECT, OP_REPEAT, OP_ALIAS, OP_DETACH, OP_LIFT_FRESH_COPY, OP_ANY, OP_ALL, OP_FILL, OP_ZERO, OP_IDENTITY, OP_CONSTANT_PAD,
		OP_PAD, OP_GATHER, OP_INDEX_SELECT, OP_FLOOR_DIVIDE,
	};

	for (size_t i = 0; i < sizeof ok / sizeof ok[0]; i++)
		if (ok[i] == op)
			return true;
	return false;
}

static bool
is_whole_number(const struct graph *g, uint32_t v)
{
	return dtype_info(g->vals[v].dtype)->cat <= CAT_INT && g->vals[v].dtype != DT_NONE;
}

/* positions compared with positions; a comparison with a constant says nothing about order */
static bool
orders_positions(const struct graph *g, uint32_t n)
{
	unsigned op = g->nodes[n].op;

	if (op == OP_TRIL || op == OP_TRIU)
		return true;
	return (op == OP_LT || op == OP_LE || op == OP_GT || op == OP_GE) && node_args(g, n)[0].kind == ARG_VAL && node_args(g, n)[1].kind == ARG_VAL;
}

/* Every position is at least 0. */
static bool
compares_with_constant(const struct graph *g, uint32_t n)
{
	const struct arg *x = node_args(g, n);
	unsigned op = g->nodes[n].op;
	double c;

	if (op < OP_EQ || op > OP_GE || x[0].kind != ARG_VAL || x[1].kind == ARG_VAL)
		return false;
	c = x[1].kind == ARG_INT ? (double)x[1].u.i.n : x[1].kind == ARG_FLOAT ? x[1].u.f : 0;
	return !(op == OP_GE && c <= 0) && !(op == OP_GT && c < 0);
}

/* Positions that an exporter computed because all sizes were fixed. */
static bool
is_constant(const struct graph *g, uint32_t v)
{
	return g->vals[v].kind == VAL_CONST;
}

static void
look_at(const struct masks *m, uint32_t n, struct finding *f)
{
	const struct graph *g = m->g;
	const struct arg *x = node_args(g, n);
	unsigned op = g->nodes[n].op;

	f->foreign |= !makes_numbers(op);
	if (f->foreign)
		return;                /* and it may have no operands */
	f->orders |= orders_positions(g, n);
	f->compares |= orders_positions(g, n) || (op >= OP_EQ && op <= OP_GE);
	f->bounds |= compares_with_constant(g, n);
	f->matches |= (op == OP_EQ || op == OP_NE) && x[0].kind == ARG_VAL && x[1].kind == ARG_VAL && !(is_constant(g, x[0].u.val) && is_constant(g, x[1].u.val));
	f->counts |= op == OP_CUMSUM;
	f->chunk = op == OP_FLOOR_DIVIDE && x[1].kind == ARG_INT && x[1].u.i.n > 0 && is_whole_number(g, node_outs(g, n)[0]) ? x[1].u.i.n : 0;
	f->foreign |= op == OP_FLOOR_DIVIDE && !f->chunk;
	f->chooses |= op == OP_WHERE || op == OP_MASKED_FILL;
	if (op == OP_MUL && x[0].kind == ARG_VAL && x[1].kind == ARG_VAL && !is_whole_number(g, x[0].u.val) && !is_whole_number(g, x[1].u.val))
		f->foreign = true;
	if (op == OP_SUB && x[0].kind == ARG_VAL && x[1].kind == ARG_INT && is_whole_number(g, x[0].u.val) && x[1].u.i.n > 1)
		f->window = f->window && f->window < x[1].u.i.n ? f->window : x[1].u.i.n;
}

/* A mask of positions that an exporter computed, of which it says how they were compared: with each other, unless it is "ge", with a number. */
static bool
says_comparison(const struct graph *g, uint32_t v)
{
	return is_constant(g, v) && g->vals[v].fold == FOLD_COMPARED;
}

/* Inputs and buffers of whole numbers are positions, segments or padding masks; floats among them are something else, but for a number that is filled in. */
static void
look_at_leaf(const struct masks *m, uint32_t v, struct finding *f)
{
	f->foreign |= !is_whole_number(m->g, v) && !(is_constant(m->g, v) && m->g->vals[v].rank == 0);
	f->compares |= m->g->vals[v].dtype == DT_BOOL;
	f->orders |= says_comparison(m->g, v) && !str_eq(graph_str(m->g, m->g->vals[v].folded), S("ge"));
	f->from_input |= m->g->vals[v].kind == VAL_INPUT;
}

static void
join(struct finding *f, const struct finding *of)
{
	f->orders |= of->orders;
	f->matches |= of->matches;
	f->counts |= of->counts;
	f->bounds |= of->bounds;
	f->compares |= of->compares;
	f->chooses |= of->chooses;
	f->foreign |= of->foreign;
	f->from_input |= of->from_input;
	f->chunk = f->chunk ? f->chunk : of->chunk;
	if (of->window && (!f->window || of->window < f->window))
		f->window = of->window;
}

static struct finding
found_of(const struct masks *m, uint32_t v)
{
	struct finding f = {0};

	if (m->g->vals[v].kind == VAL_NODE)
		return m->found[m->g->vals[v].node];
	look_at_leaf(m, v, &f);
	return f;
}

/* "causal, or inside of the same picture": who may look ahead there needs the mask. */
static bool
looks_ahead(const struct masks *m, uint32_t n)
{
	const struct arg *x = node_args(m->g, n);
	unsigned op = m->g->nodes[n].op;
	struct finding a, b;

	if ((op != OP_BITWISE_OR && op != OP_LOGICAL_OR) || x[0].kind != ARG_VAL || x[1].kind != ARG_VAL)
		return false;
	a = found_of(m, x[0].u.val);
	b = found_of(m, x[1].u.val);
	return (a.orders && b.matches) || (b.orders && a.matches);
}

/* "(i - padding) // size == (j - padding) // size": attention within chunks, which hides nothing where one chunk holds all keys; as a window of one more. */
static int64_t
chunk_of(const struct masks *m, uint32_t n)
{
	const struct arg *x = node_args(m->g, n);
	int64_t a, b;

	if (m->g->nodes[n].op != OP_EQ || x[0].kind != ARG_VAL || x[1].kind != ARG_VAL)
		return 0;
	a = found_of(m, x[0].u.val).chunk;
	b = found_of(m, x[1].u.val).chunk;
	return a == b && a < INT64_MAX ? a : 0;
}

/* What is found from node n back to the leaves: all is "somewhere" or "the smallest", so a node adds itself to what its operands have. */
static void
summarise(struct masks *m, uint32_t n)
{
	const struct graph *g = m->g;
	struct finding *f = &m->found[n];
	int64_t chunk = chunk_of(m, n);

	look_at(m, n, f);
	if (chunk) {
		f->matches = false;
		f->window = chunk + 1;
	}
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (g->vals[it.val].kind == VAL_NODE)
			join(f, &m->found[g->vals[it.val].node]);
		else
			look_at_leaf(m, it.val, f);
	f->foreign |= looks_ahead(m, n);
}

struct finding
masks_slice_back(const struct masks *m, uint32_t v)
{
	struct finding f = {0};

	if (m->g->vals[v].kind != VAL_NODE) {
		look_at_leaf(m, v, &f);
		return f;
	}
	f = m->found[m->g->vals[v].node];
	f.foreign |= (f.matches && !f.counts) || (f.bounds && !f.from_input && !f.counts);
	return f;
}

/* Every node that v is made of computes a mask. What is marked already has been followed back. */
static void
mark(struct masks *m, uint32_t v)
{
	struct graph *g = m->g;
	uint32_t top = 0;

	if (g->vals[v].kind == VAL_NODE)
		m->stack[top++] = g->vals[v].node;
	while (top) {
		uint32_t n = m->stack[--top];

		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			uint32_t p = g->vals[it.val].node;

			if (g->vals[it.val].kind != VAL_NODE || (g->nodes[p].flags & NF_MASK))
				continue;
			g->nodes[p].flags |= NF_MASK;
			m->stack[top++] = p;
		}
		g->nodes[n].flags |= NF_MASK;
	}
}

/* keys: how many key positions the attention has; a sliding window that covers them all hides nothing */
static enum mask_kind
classify(struct masks *m, uint32_t v, int64_t keys)
{
	if (!m->kind[v]) {
		struct finding f = masks_slice_back(m, v);

		if (f.foreign || !(f.compares || m->g->vals[v].dtype == DT_BOOL) || (f.window && f.window <= keys))
			m->kind[v] = NOT_A_MASK + 1;
		else
			m->kind[v] = (f.orders ? CAUSAL : ALL_TRUE) + 1;
		if (m->kind[v] != NOT_A_MASK + 1)
			mark(m, v);
	}
	return (enum mask_kind)(m->kind[v] - 1);
}

/* ---- uses -------------------------------------------------------------------------------------------------------- */

static int64_t
dim_of(const struct graph *g, uint32_t v, unsigned from_end)
{
	const struct val *x = &g->vals[v];

	if (x->rank == RANK_UNKNOWN || x->rank < from_end)
		return 0;
	return val_dims(g, v)[x->rank - from_end].n;
}

/* unsqueeze, slices, expand, reshape: the heads as they were before */
static uint32_t
unrepeated(const struct graph *g, uint32_t v)
{
	bool expanded = false, reshaped = false;
	uint32_t x = v;

	while (g->vals[x].kind == VAL_NODE) {
		uint32_t n = g->vals[x].node;
		unsigned op = g->nodes[n].op;

		if (op != OP_RESHAPE && op != OP_VIEW && op != OP_EXPAND && op != OP_SLICE && op != OP_UNSQUEEZE && op != OP_CLONE)
			break;
		expanded |= op == OP_EXPAND;
		reshaped |= op == OP_RESHAPE || op == OP_VIEW;
		x = node_args(g, n)->u.val;
	}
	return expanded && reshaped && dim_of(g, x, 3) != dim_of(g, v, 3) ? x : v;
}

/*
 * A whole mask that an exporter computed because all sizes were fixed: with the sizes of one run there is no padding in it. What differs from head to
 * head is a bias, not a mask.
 */
static bool
is_folded(const struct graph *g, uint32_t v)
{
	return is_constant(g, v) && !g->vals[v].full && g->vals[v].rank == 4 && dim_of(g, v, 3) == 1 && str_eq(g->format, S("onnx"));
}

/* PyTorch's own modules take masks from their caller and pass them on: it is libraries that make and drop them. */
static bool
keeps_its_mask(const struct graph *g, uint32_t n)
{
	uint32_t scope = g->nodes[n].scope;

	return scope && str_starts(graph_str(g, g->scopes[scope].cls), S("torch.nn.modules."));
}

static void
simplify_attention(struct masks *m, uint32_t n)
{
	struct graph *g = m->g;
	struct arg *q = node_arg(g, n, "query"), *k = node_arg(g, n, "key"), *v = node_arg(g, n, "value"), *mask = node_arg(g, n, "attn_mask");
	enum mask_kind kind;

	if (mask->kind != ARG_VAL || q->kind != ARG_VAL || k->kind != ARG_VAL || v->kind != ARG_VAL || keeps_its_mask(g, n))
		return;
	kind = is_folded(g, mask->u.val) ? CAUSAL : classify(m, mask->u.val, dim_of(g, k->u.val, 2));
	if (kind == NOT_A_MASK)
		return;
	m->folded |= is_folded(g, mask->u.val);
	*mask = (struct arg){.kind = ARG_NONE};
	*node_arg(g, n, "is_causal") = arg_bool(kind == CAUSAL && dim_of(g, q->u.val, 2) > 1);
	k->u.val = unrepeated(g, k->u.val);
	v->u.val = unrepeated(g, v->u.val);
	m->dropped = true;
}

/* A written-out attention adds its mask; one that is all true and comes from no input would not be there in training. */
static void
simplify_sum(struct masks *m, uint32_t n)
{
	struct graph *g = m->g;
	struct arg *x = node_args(g, n);
	struct finding f;
	uint32_t s;

	if (x[0].kind != ARG_VAL || x[1].kind != ARG_VAL || (g->nodes[n].flags & NF_INPLACE))
		return;
	s = x[1].u.val;
	if ((is_whole_number(g, s) && g->vals[s].dtype != DT_BOOL) || g->vals[s].kind != VAL_NODE || is_whole_number(g, x[0].u.val))
		return;
	f = masks_slice_back(m, s);
	if (f.foreign || f.orders || f.from_input || !f.compares || !(f.chooses || g->vals[s].dtype == DT_BOOL))
		return;
	g->nodes[n].op = OP_IDENTITY;
	g->nodes[n].narg = 1;
	m->dropped = true;
}

static uint32_t
unexpanded(const struct graph *g, uint32_t v)
{
	while (g->vals[v].kind == VAL_NODE && g->nodes[g->vals[v].node].op == OP_EXPAND)
		v = node_args(g, g->vals[v].node)->u.val;
	return v;
}

#define MOST_STEPS 8u

/* Is what node n makes the mask of an attention, copied maybe? */
static bool
is_for_attention(const struct graph *g, uint32_t n)
{
	uint32_t v = node_outs(g, n)[0];

	for (uint32_t k = n + 1; k < g->nnode && k - n <= MOST_STEPS; k++) {
		unsigned op = g->nodes[k].op;
		const struct arg *x = node_args(g, k), *mask = op == OP_SDPA ? node_arg(g, k, "attn_mask") : NULL;

		if (mask && mask->kind == ARG_VAL && mask->u.val == v)
			return true;
		if ((op == OP_CONTIGUOUS || op == OP_CLONE || op == OP_ALIAS || op == OP_TO || op == OP_EXPAND) && x->kind == ARG_VAL && x->u.val == v)
			v = node_outs(g, k)[0];
	}
	return false;
}

/* Of a mask that is causal and no padding what orders positions; it comes from no input and is the same for every sequence of the batch, if it is told apart. */
static uint32_t
without_padding(const struct masks *m, uint32_t v)
{
	const struct graph *g = m->g;

	for (unsigned depth = 0; depth < MOST_STEPS && g->vals[v].kind == VAL_NODE; depth++) {
		uint32_t n = g->vals[v].node;
		const struct arg *x = node_args(g, n);
		bool both = (g->nodes[n].op == OP_BITWISE_AND || g->nodes[n].op == OP_LOGICAL_AND) && x[0].kind == ARG_VAL && x[1].kind == ARG_VAL;
		bool first = both && found_of(m, x[0].u.val).orders, second = both && found_of(m, x[1].u.val).orders;

		if (g->nodes[n].op == OP_EXPAND || g->nodes[n].op == OP_ALIAS || g->nodes[n].op == OP_TO || (first && !second))
			v = x[0].u.val;
		else if (second && !first)
			v = x[1].u.val;
		else
			break;
	}
	return v;
}

/* A bias that differs from head to head, or would: T5's attention to an encoder has one of zeros. */
static bool
is_bias(const struct masks *m, uint32_t v)
{
	return masks_slice_back(m, v).foreign || (m->g->vals[v].kind == VAL_NODE && m->g->vals[v].rank == 4 && dim_of(m->g, v, 3) > 1);
}

/*
 * where(mask, bias, -inf): the bias itself if the mask is all true; a causal one is the same for every sequence of the batch. A mask of padding that is
 * chosen by inside of a library's attention would not be there: the library makes a causal one of its own.
 */
static void
simplify_choice(struct masks *m, uint32_t n)
{
	struct graph *g = m->g;
	struct arg *x = node_args(g, n);
	struct finding f;

	if (x[0].kind != ARG_VAL || x[1].kind != ARG_VAL || is_whole_number(g, x[1].u.val) || (x[2].kind == ARG_VAL && g->vals[x[2].u.val].rank))
		return;
	if (g->vals[x[0].u.val].kind != VAL_NODE && !says_comparison(g, x[0].u.val))
		return;
	f = masks_slice_back(m, x[0].u.val);
	if (f.foreign || !(f.compares || g->vals[x[0].u.val].dtype == DT_BOOL) || !is_bias(m, x[1].u.val) || (f.from_input && !is_for_attention(g, n)))
		return;                /* the numbers of a mask, not a bias */
	if (f.orders) {
		uint32_t causal = without_padding(m, x[0].u.val);

		m->dropped |= causal != unexpanded(g, x[0].u.val);
		x[0].u.val = causal;
		return;
	}
	g->nodes[n].op = OP_IDENTITY;
	x[0] = x[1];
	g->nodes[n].narg = 1;
	m->dropped = true;
}

/* ---- what only they needed ------------------------------------------------------------------------------------------ */

/* Positions that the exporter's run of the mask code computed and nobody used: without a mask that code does not run. */
static bool
is_idle_position(const struct graph *g, uint32_t n)
{
	unsigned op = g->nodes[n].op;

	if (op != OP_ARANGE && op != OP_ADD && op != OP_UNSQUEEZE && op != OP_SLICE && op != OP_EXPAND && op != OP_RESHAPE && op != OP_GE && op != OP_ZEROS)
		return false;
	return is_whole_number(g, node_outs(g, n)[0]) && !(g->nodes[n].flags & NF_INPLACE);
}

static void
sweep(struct graph *g, const uint32_t *before, uint32_t *now)
{
	for (uint32_t n = g->nnode; n-- > 1;) {
		bool used = false, was = false;

		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			used |= now[node_outs(g, n)[k]] > 0;
			was |= before[node_outs(g, n)[k]] > 0;
		}
		if (used || !(was || is_idle_position(g, n)))
			continue;
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			now[it.val]--;
		g->nodes[n].flags |= NF_DEAD;
	}
	for (uint32_t v = 1; v < g->nval; v++)
		if ((is_folded(g, v) || says_comparison(g, v)) && before[v] && !now[v])
			g->vals[v].kind = VAL_NONE;
}

static bool
reads_both_ways(const struct graph *g)
{
	bool any = false;

	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct arg *mask, *causal;

		if (g->nodes[n].op != OP_SDPA)
			continue;
		mask = node_arg(g, n, "attn_mask");
		causal = node_arg(g, n, "is_causal");
		if (mask->kind == ARG_VAL || (causal->kind == ARG_BOOL && causal->u.b))
			return false;
		any = true;
	}
	return any;
}

bool
pass_masks(struct analysis *a)
{
	struct graph *g = a->g;
	struct masks m = {.a = a, .g = g};
	uint32_t *before = NEW(a->c->a, uint32_t, g->nval), *now = NEW(a->c->a, uint32_t, g->nval);

	if (a->r->v[RK_PADDING].i || a->r->v[RK_ATTENTION].i == ATT_KEEP)
		return true;
	m.kind = NEW(a->c->a, uint8_t, g->nval);
	m.found = NEW(a->c->a, struct finding, g->nnode);
	m.stack = NEW(a->c->a, uint32_t, g->nnode);
	uses_count(g, before);
	for (uint32_t n = 1; n < g->nnode; n++) {
		if (g->nodes[n].op == OP_SDPA)
			simplify_attention(&m, n);
		else if (g->nodes[n].op == OP_ADD)
			simplify_sum(&m, n);
		else if (g->nodes[n].op == OP_WHERE)
			simplify_choice(&m, n);
		summarise(&m, n);
	}
	a->plan.reads_both_ways = reads_both_ways(g);
	masks_unpack(&m);
	if (m.dropped)
		assume(a, "no padding: attention masks that are causal or all true are dropped, as the libraries do");
	if (m.folded)
		assume(a, "masks that the exporter folded into constants are taken to be causal or all true");
	uses_count(g, now);
	sweep(g, before, now);
	return true;               /* dead nodes are still there: adapt/attention.c puts a written-out mask where the last one stood */
}
