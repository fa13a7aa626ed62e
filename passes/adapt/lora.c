/*
 * lora: PEFT's adapters beside the matching Linear, convolution and embedding modules.
 *
 *     result = base(x); x = x.to(A.dtype); result = result + B(A(dropout(x))) * scaling; result = result.to(base's dtype)
 *
 * Of a convolution A has the base's kernel, stride and padding, B is 1 wide and grouped as the base. Of an embedding A and B are
 * bare parameters, used transposed: embedding(x, A.T) @ B.T, without a cast or dropout.
 *
 * Over a quantised base (adapt/quantize.c) PEFT's own layers convert what the adapters give, not the sum, and nothing under autocast:
 *
 *     result = base(x)[.clone(), 4 bits]; x = x.to(A.dtype); output = B(A(dropout(x))) * scaling; output = output.to(base's dtype); result = result + output
 *
 * The base is frozen as a whole. Matching is PEFT's: a list of names (equal, or ending in "." + name), one regular expression over
 * the whole module name, or "all-linear" (every Linear and Conv1D but the output embedding).
 */
#include "lora.h"

#include <regex.h>
#include <string.h>

#define REGEX_MAX 512           /* characters */
#define REGEX_MAX_COPIED 4096  /* with what counts repeat */

/* ---- which modules ------------------------------------------------------------------------------------------- */

/* Python's classes, and groups that capture nothing, as POSIX writes them. */
static struct str
posix_regex(struct arena *a, struct str s)
{
	static const char *const from[] = {"(?:", "\\d", "\\w", "\\s"}, *const to[] = {"(", "[0-9]", "[A-Za-z0-9_]", "[ \t]"};
	struct str out = S("^(");

	while (s.n) {
		size_t k = 0;

		while (k < 4 && !str_starts(s, str_of(from[k])))
			k++;
		out = k < 4 ? str_fmt(a, "%.*s%s", SFMT(out), to[k]) : str_fmt(a, "%.*s%c", SFMT(out), s.p[0]);
		s = str_sub(s, k < 4 ? (uint32_t)strlen(from[k]) : 1, s.n);
	}
	return str_fmt(a, "%.*s)$", SFMT(out));
}

/*
 * What the C library cannot compile or match in bounded time and memory: it copies what a count repeats, nested counts multiply, and a
 * reference back to a group is a search. Names of modules need neither.
 */
static bool
is_regex_cheap(struct str s)
{
	uint32_t copied = s.n ? s.n : 1;

	if (s.n > REGEX_MAX)
		return false;
	for (uint32_t i = 0; i < s.n; i++) {
		uint32_t n = 0, most = 1;

		if (s.p[i] == '\\') {
			if (++i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
				return false;
			continue;
		}
		if (s.p[i] != '{')
			continue;
		for (i++; i < s.n && s.p[i] != '}'; i++) {
			n = s.p[i] >= '0' && s.p[i] <= '9' ? n * 10 + (uint32_t)(s.p[i] - '0') : 0;
			most = n > most ? n : most;
			if (most > REGEX_MAX_COPIED)
				return false;
		}
		copied *= most;
		if (copied > REGEX_MAX_COPIED)
			return false;
	}
	return true;
}

static void
free_regex(void *p)
{
	regfree(p);
}

static bool
read_targets(struct lora *l)
{
	const struct recipe_value *v = &l->a->r->v[RK_LORA_TARGETS];
	struct arena *a = l->a->c->a;

	if (!v->nlist)
		return diag(l->a->c, DIAG_RECIPE_CONFLICT, "lora.r is set, but lora.targets names no module");
	l->all_linear = v->nlist == 1 && str_eq(v->list[0], S("all-linear"));
	if (v->i && !l->all_linear) {      /* given as one string */
		l->re = NEW(a, regex_t, 1);
		if (!is_regex_cheap(v->list[0]) || regcomp(l->re, posix_regex(a, v->list[0]).p, REG_EXTENDED | REG_NOSUB))
			return diag(l->a->c, DIAG_BAD_VALUE, "lora.targets", SFMT(v->list[0]),
			    "module names, or a regular expression: at most 512 characters, 4096 with what its counts {m,n} repeat, no references to groups");
		arena_defer(a, free_regex, l->re);
	}
	return true;
}

static bool
is_target(const struct lora *l, struct str path)
{
	const struct recipe_value *v = &l->a->r->v[RK_LORA_TARGETS];

	if (l->all_linear)
		return !str_ends(path, S("lm_head"));
	if (l->re)
		return regexec(l->re, str_copy(l->a->c->a, path).p, 0, NULL, 0) == 0;
	for (uint32_t i = 0; i < v->nlist; i++) {
		struct str t = v->list[i];

		if (str_eq(path, t) || (str_ends(path, t) && path.n > t.n && path.p[path.n - t.n - 1] == '.'))
			return true;
	}
	return false;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* Frames of the module's caller, then those of PEFT's own around the node, then maybe one more. */
static void
set_frames(struct lora *l, uint32_t n, uint32_t line, const char *text, bool inner)
{
	struct graph *g = l->g;
	uint16_t keep = l->nframe ? (uint16_t)(l->nframe - 1) : 0, count = keep;

	if (!g->has_frames && !l->nframe)
		return;
	ROOM(l->a->c->a, g->frames, g->nframe, g->frame_cap, (uint32_t)keep + 5);
	memcpy(g->frames + g->nframe, g->frames + l->frame, keep * sizeof *g->frames);
	g->nodes[n].frame = g->nframe;
	for (unsigned i = 0; l->outer[i]; i++)
		g->frames[g->nframe + count++] = (struct frame){2, graph_name(g, str_of(l->outer[i]))};
	g->frames[g->nframe + count++] = (struct frame){line, graph_name(g, str_of(text))};
	if (inner)
		g->frames[g->nframe + count++] = (struct frame){1, graph_name(g, S("return F.linear(input, self.weight, self.bias)"))};
	g->nodes[n].nframe = count;
	g->nodes[n].nhelper = 0;
	g->nframe += count;
}

uint32_t
lora_scope(struct lora *l, const char *name, const char *cls)
{
	struct str path = str_fmt(l->a->c->a, "%.*s.%s", SFMT(scope_path(l->g, l->scope)), name);

	return scope_add(l->g, l->scope, path, str_of(cls), 0);
}

uint32_t
lora_node(struct lora *l, unsigned op, const struct arg *args, unsigned narg, uint32_t out, uint32_t scope, uint32_t line, const char *text)
{
	struct graph *g = l->g;
	uint32_t n = node_new(g, op, op_narg(op), 1);

	for (unsigned i = 0; i < narg; i++)
		node_args(g, n)[i] = args[i];
	node_outs(g, n)[0] = out;
	g->nodes[n].flags = NF_ADDED;
	g->nodes[n].modality = l->modality;
	g->nodes[n].scope = scope;
	g->nodes[n].name = g->vals[out].name;
	g->nodes[n].target = graph_name(g, str_of(op_info(op)->name));
	set_frames(l, n, line, text, scope != l->scope);
	g->vals[out].node = n;
	g->vals[out].out = 0;
	return n;
}

uint32_t
lora_value(struct lora *l, uint32_t like, const char *suffix)
{
	struct graph *g = l->g;
	uint32_t v = val_new(g, VAL_NODE, str_fmt(l->a->c->a, "%.*s_%s", SFMT(graph_str(g, g->vals[like].name)), suffix));

	g->vals[v].dtype = g->vals[like].dtype;
	g->vals[v].rank = g->vals[like].rank;
	g->vals[v].dim = g->vals[like].dim;
	return v;
}

uint32_t
lora_parameter(struct lora *l, const char *name, unsigned rank, const struct sint *dims)
{
	struct graph *g = l->g;
	struct str full = str_fmt(l->a->c->a, "%.*s.%s", SFMT(scope_path(g, l->scope)), name);
	uint32_t v = val_new(g, VAL_PARAM, full);

	g->vals[v].full = graph_name(g, full);
	g->vals[v].dtype = l->dtype;
	g->vals[v].flags = VF_TRAINABLE | VF_ADAPTER;
	g->vals[v].modality = l->modality;
	g->vals[v].after = l->after;
	val_shape(g, v, rank, dims);
	return v;
}

/* The value between the two adapters: the last dim is the rank. */
static void
narrow(struct lora *l, uint32_t v)
{
	struct sint dims[MAX_RANK];
	unsigned rank = l->g->vals[v].rank;

	if (rank == RANK_UNKNOWN || !rank)
		return;
	for (unsigned i = 0; i < rank; i++)
		dims[i] = val_dims(l->g, v)[i];
	dims[rank - 1] = SINT(l->rank);
	val_shape(l->g, v, rank, dims);
}

#define OUTPUT "output = lora_B(lora_A(dropout(x))) * scaling"
#define UP "result = result + lora_B(lora_A(dropout(x))) * scaling"

static bool
converts(const struct lora *l, const struct base *b)
{
	return !lora_is_quantized(b->op) || !l->a->plan.low_dtype;
}

static const char *
up_text(const struct base *b)
{
	return lora_is_quantized(b->op) ? OUTPUT : UP;
}

uint32_t
lora_unranked(struct lora *l, const struct base *b, const char *suffix)
{
	uint32_t v = lora_value(l, b->result, suffix);

	l->g->vals[v].rank = RANK_UNKNOWN;
	return v;
}

void
lora_result(struct lora *l, const struct base *b, uint32_t sum)
{
	struct arg args[2] = {arg_val(sum), {.kind = ARG_DTYPE_OF, .u.val = b->out}};

	lora_node(l, OP_TO, args, 2, b->result, l->scope, 4, "result = result.to(torch_result_dtype)");
}

/* result + t * scaling, in the base's dtype again */
static void
add_sum(struct lora *l, const struct base *b, uint32_t t)
{
	uint32_t u = lora_value(l, b->result, "lora_scaled"), sum = lora_value(l, b->result, "lora_sum");
	struct arg args[2] = {arg_val(t), arg_float(2)};

	lora_node(l, OP_MUL, args, 2, u, l->scope, 2, UP);
	args[0] = arg_val(b->out);
	args[1] = arg_val(u);
	lora_node(l, OP_ADD, args, 2, sum, l->scope, 2, UP);
	lora_result(l, b, sum);
}

/* The same beside a quantised base. */
static void
add_output(struct lora *l, const struct base *b, uint32_t t)
{
	uint32_t u = lora_value(l, b->result, "lora_scaled"), back;
	struct arg args[2] = {arg_val(t), arg_float(2)};

	lora_node(l, OP_MUL, args, 2, u, l->scope, 2, OUTPUT);
	if (converts(l, b)) {
		back = lora_value(l, b->result, "lora_back");
		args[0] = arg_val(u);
		args[1] = (struct arg){.kind = ARG_DTYPE_OF, .u.val = b->out};
		lora_node(l, OP_TO, args, 2, back, l->scope, 4, "output = output.to(expected_dtype)");
		u = back;
	}
	args[0] = arg_val(b->out);
	args[1] = arg_val(u);
	lora_node(l, OP_ADD, args, 2, b->result, l->scope, 5, "result = result + output");
}

static uint32_t
add_input(struct lora *l, const struct base *b)
{
	uint32_t t = b->x, u;
	struct arg args[3] = {arg_val(b->x), arg_dtype(l->dtype)};

	if (converts(l, b)) {
		t = lora_value(l, b->x, "lora_x");
		lora_node(l, OP_TO, args, 2, t, l->scope, 3, "x = self._cast_input_dtype(x, lora_A.weight.dtype)");
	}
	if (l->dora)
		lora_variant(l);
	if (!l->dropout)
		return t;
	u = lora_value(l, b->x, "lora_dropout");
	args[0] = arg_val(t);
	args[1] = arg_float(0.1);
	args[2] = arg_bool(true);
	lora_node(l, OP_DROPOUT, args, 3, u, lora_scope(l, "lora_dropout", "torch.nn.modules.dropout.Dropout"), l->dora ? 1 : 2, l->dora ? "x = dropout(x)" : up_text(b));
	return u;
}

/* PEFT's Linear4bit clones the base's result. */
static void
clone_base(struct lora *l, struct base *b)
{
	struct arg args[1] = {arg_val(b->out)};
	uint32_t t = lora_value(l, b->result, "base_clone");

	lora_node(l, OP_CLONE, args, 1, t, l->scope, 6, "result = result.clone()");
	b->out = t;
}

/* x as the module got it. */
static uint32_t
unflattened(struct lora *l, const struct base *b)
{
	struct graph *g = l->g;
	struct sint dim[MAX_RANK];
	unsigned rank = g->vals[b->result].rank;
	uint32_t v;
	struct arg args[2] = {arg_val(b->x)};

	if (!b->flat || rank == RANK_UNKNOWN || !rank)
		return b->x;
	memcpy(dim, val_dims(g, b->result), rank * sizeof *dim);
	dim[rank - 1] = val_dims(g, b->weight)[!b->turned];
	v = lora_value(l, b->x, "rows");
	val_shape(g, v, rank, dim);
	args[1] = (struct arg){.kind = ARG_INTS, .first = ints_add(g, dim, rank), .count = rank};
	lora_node(l, OP_VIEW, args, 2, v, l->scope, 2, up_text(b));
	return v;
}

static void
adapt_linear(struct lora *l, const struct base *b)
{
	const struct sint *w = val_dims(l->g, b->weight);
	struct sint down[2] = {SINT(l->rank), w[!b->turned]}, up[2] = {w[b->turned], SINT(l->rank)};
	uint32_t a = lora_parameter(l, "lora_A.default.weight", 2, down), c = lora_parameter(l, "lora_B.default.weight", 2, up);
	uint32_t t = add_input(l, b), u;
	struct arg args[2] = {arg_val(t), arg_val(a)};

	if (l->dora) {
		lora_dora(l, b, t, a, c);
		return;
	}
	u = lora_value(l, b->result, "lora_A");
	narrow(l, u);
	lora_node(l, OP_LINEAR, args, 2, u, lora_scope(l, "lora_A", "torch.nn.modules.linear.Linear"), 2, up_text(b));
	t = lora_value(l, b->result, "lora_B");
	args[0] = arg_val(u);
	args[1] = arg_val(c);
	lora_node(l, OP_LINEAR, args, 2, t, lora_scope(l, "lora_B", "torch.nn.modules.linear.Linear"), 2, up_text(b));
	if (lora_is_quantized(b->op))
		add_output(l, b, t);
	else
		add_sum(l, b, t);
}

uint32_t
lora_convolve(struct lora *l, const struct base *b, uint32_t x, uint32_t down, uint32_t up, uint32_t line, const char *text)
{
	uint32_t a = lora_unranked(l, b, "lora_A"), t = lora_value(l, b->result, "lora_B");
	const struct arg none = {.kind = ARG_NONE};
	const struct arg first[7] = {arg_val(x), arg_val(down), none, b->stride, b->padding, none, none};
	const struct arg second[7] = {arg_val(a), arg_val(up), none, none, none, none, b->groups};

	lora_node(l, OP_CONV, first, 7, a, lora_scope(l, "lora_A", "torch.nn.modules.conv.Conv2d"), line, text);
	lora_node(l, OP_CONV, second, 7, t, lora_scope(l, "lora_B", "torch.nn.modules.conv.Conv2d"), line, text);
	return t;
}

static void
adapt_convolution(struct lora *l, const struct base *b)
{
	struct graph *g = l->g;
	unsigned rank = g->vals[b->weight].rank;
	int64_t groups = b->groups.kind == ARG_INT && b->groups.u.i.n > 0 ? b->groups.u.i.n : 1;
	struct sint down[MAX_RANK], up[MAX_RANK];
	uint32_t a, c, x;

	for (unsigned i = 0; i < rank; i++) {
		down[i] = val_dims(g, b->weight)[i];
		up[i] = SINT(1);
	}
	up[0] = down[0];
	up[1] = SINT(l->rank / groups);
	down[0] = SINT(l->rank);
	down[1] = SINT(down[1].n * groups);
	a = lora_parameter(l, "lora_A.default.weight", rank, down);
	c = lora_parameter(l, "lora_B.default.weight", rank, up);
	x = add_input(l, b);
	if (l->dora)
		lora_dora_convolution(l, b, x, a, c);
	else
		add_sum(l, b, lora_convolve(l, b, x, a, c, 2, UP));
}

static void
adapt_embedding(struct lora *l, const struct base *b)
{
	const struct sint *w = val_dims(l->g, b->weight);
	struct sint down[2] = {SINT(l->rank), w[0]}, up[2] = {w[1], SINT(l->rank)};
	uint32_t a = lora_parameter(l, "lora_embedding_A.default", 2, down), c = lora_parameter(l, "lora_embedding_B.default", 2, up);
	uint32_t at = lora_unranked(l, b, "lora_A_t"), bt = lora_unranked(l, b, "lora_B_t"), t = lora_unranked(l, b, "lora_A"), u = lora_value(l, b->result, "lora_B");
	struct arg args[3] = {arg_val(a)};

	if (l->dora) {
		lora_variant(l);
		lora_dora_embedding(l, b, a, c);
		return;
	}
	lora_node(l, OP_T, args, 1, at, l->scope, 3, "embedding_A = self.lora_embedding_A[active_adapter].T");
	args[0] = arg_val(c);
	lora_node(l, OP_T, args, 1, bt, l->scope, 4, "embedding_B = self.lora_embedding_B[active_adapter].T");
	args[0] = arg_val(at);
	args[1] = arg_val(b->x);
	args[2] = b->padding_idx;
	lora_node(l, OP_EMBEDDING, args, 3, t, l->scope, 5, "after_A = self._embed(x, embedding_A)");
	args[0] = arg_val(t);
	args[1] = arg_val(bt);
	lora_node(l, OP_MATMUL, args, 2, u, l->scope, 2, "adapter_output = (after_A @ embedding_B) * scaling");
	add_sum(l, b, u);
}

/* A file without stack traces says nothing of the callers; PEFT's own frame is known all the same. */
static void
find_frames(struct lora *l, uint32_t n)
{
	struct graph *g = l->g;
	unsigned depth = g->scopes[l->scope].depth;

	l->frame = g->nodes[n].frame;
	l->nframe = g->nodes[n].nframe;
	if (l->nframe >= depth && l->nframe)       /* up to torch 2.7 the modules of torch.nn have no line of their own, and helpers have one */
		l->nframe = (uint16_t)(depth + 1);
	if (g->has_frames || l->nframe || !depth)
		return;
	ROOM(l->a->c->a, g->frames, g->nframe, g->frame_cap, depth);
	memset(g->frames + g->nframe, 0, depth * sizeof *g->frames);
	l->frame = g->nframe;
	l->nframe = (uint16_t)(depth + 1);
	g->nframe += depth;
}

/* The module keeps its node, inside base_layer, under a new result; the old result is the adapted sum. */
static bool
extend(struct lora *l, uint32_t n, struct base b)
{
	struct graph *g = l->g;
	bool linear = b.op == OP_LINEAR || lora_is_quantized(b.op);
	const char *cls = linear ? "torch.nn.modules.linear.Linear" : b.op == OP_CONV ? "torch.nn.modules.conv.Conv2d" : "torch.nn.modules.sparse.Embedding";

	l->after = b.bias ? b.bias : b.weight;
	if (b.bias && l->a->r->v[RK_LORA_BIAS].i == BIAS_LORA_ONLY)
		g->vals[b.bias].flags |= VF_TRAINABLE;
	b.out = lora_value(l, b.result, "base");
	l->scope = g->nodes[n].scope;
	find_frames(l, n);
	l->modality = g->nodes[n].modality;
	node_outs(g, n)[0] = b.out;
	g->vals[b.out].node = n;
	for (unsigned i = 0; i < b.nnode; i++) {
		g->nodes[b.node[i]].scope = lora_scope(l, "base_layer", cls);
		set_frames(l, b.node[i], 1, "result = self.base_layer(x)", true);
	}
	if (b.op == OP_LINEAR_4BIT)
		clone_base(l, &b);
	if (l->dora && l->a->r->v[RK_PARALLEL_TP].i > 1)
		return diag(l->a->c, DIAG_NOT_MODELLED, "lora.use_dora", SFMT(S("true together with parallel.tp")));
	if (l->dora && lora_is_quantized(b.op))
		return diag(l->a->c, DIAG_NOT_MODELLED, "lora.use_dora", SFMT(S("true on a quantised base")));
	if (l->dora && b.turned && l->dropout)         /* PEFT makes a parameter of the transposed weight in every forward, which gets a gradient */
		return diag(l->a->c, DIAG_NOT_MODELLED, "lora.use_dora", SFMT(S("true together with lora.dropout on a Conv1D")));
	b.x = unflattened(l, &b);
	if (linear)
		adapt_linear(l, &b);
	else if (b.op == OP_CONV)
		adapt_convolution(l, &b);
	else
		adapt_embedding(l, &b);
	l->count++;
	return true;
}

/* The embedding of most rows that reads an input: the vocabulary. */
static uint32_t
vocabulary(const struct graph *g)
{
	uint32_t found = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t w, ids;

		if (g->nodes[n].op != OP_EMBEDDING || node_args(g, n)[0].kind != ARG_VAL || node_args(g, n)[1].kind != ARG_VAL)
			continue;
		w = node_args(g, n)[0].u.val;
		ids = node_args(g, n)[1].u.val;
		while (g->vals[ids].kind == VAL_NODE && (g->nodes[g->vals[ids].node].op == OP_VIEW || g->nodes[g->vals[ids].node].op == OP_RESHAPE))
			ids = node_args(g, g->vals[ids].node)->u.val;
		if (g->vals[ids].kind == VAL_INPUT && g->vals[w].rank == 2 && (!found || val_dims(g, w)[0].n > val_dims(g, found)[0].n))
			found = w;
	}
	return found;
}

/* PEFT asks transformers' models alone for their output embedding. A file that names no class may be of one. */
static bool
may_be_transformers(const struct graph *g)
{
	bool named = false;

	for (uint32_t s = 1; s < g->nscope; s++) {
		struct str cls = graph_str(g, g->scopes[s].cls);

		if (memmem(cls.p, cls.n, "transformers.models.", 20))
			return true;
		named |= str_find(cls, '.') > 0;
	}
	return !named;
}

/* get_output_embeddings(), whatever the model calls it: the last linear layer with a row for each word of the vocabulary; 0 = there is none. */
static uint32_t
output_embedding(const struct graph *g)
{
	uint32_t words = may_be_transformers(g) ? vocabulary(g) : 0, head = 0;

	for (uint32_t n = 1; words && n < g->nnode; n++) {
		const struct arg *w = g->nodes[n].op == OP_LINEAR ? node_arg(g, n, "weight") : NULL;

		if (w && w->kind == ARG_VAL && g->vals[w->u.val].rank == 2 && val_dims(g, w->u.val)[0].n == val_dims(g, words)[0].n &&
		    val_dims(g, w->u.val)[1].n == val_dims(g, words)[1].n)
			head = n;
	}
	return head;
}

/* Nodes are moved over one by one; what an adapter adds comes right behind its Linear. */
bool
pass_lora(struct analysis *a)
{
	struct graph *g = a->g;
	struct lora l = {.a = a, .g = g, .rank = a->r->v[RK_LORA_R].i, .dropout = a->r->v[RK_LORA_DROPOUT].f > 0, .dora = a->r->v[RK_LORA_DORA].i};
	uint32_t old = g->nnode, head;
	struct node *nodes;

	if (!l.rank)
		return true;
	l.dtype = a->r->v[RK_LORA_DTYPE].i == 0 ? DT_FP32 : a->plan.param_dtype;
	if (!read_targets(&l))
		return false;
	head = l.all_linear ? output_embedding(g) : 0;
	nodes = NEW(a->c->a, struct node, old);
	memcpy(nodes, g->nodes, old * sizeof *nodes);
	g->nnode = 1;
	for (uint32_t n = 1; n < old; n++) {
		uint32_t at = g->nnode;
		struct base b;

		ROOM(a->c->a, g->nodes, g->nnode, g->node_cap, 1);
		g->nodes[g->nnode++] = nodes[n];
		l.behind = n + 1 < old ? &nodes[n + 1] : NULL;
		for (uint32_t k = 0; k < nodes[n].nout; k++)
			if (node_outs(g, at)[k])
				g->vals[node_outs(g, at)[k]].node = at;
		if (n != head && lora_base(&l, at, &b) && is_target(&l, scope_path(g, g->nodes[at].scope)) && !extend(&l, at, b))
			return false;
	}
	if (!l.count)
		return diag(a->c, DIAG_NO_TARGET, "lora.targets", SFMT(a->r->v[RK_LORA_TARGETS].list[0]), "Linear, convolution or embedding module");
	return true;
}
