/*
 * lora: PEFT's adapters beside the matching Linear modules.
 *
 *     result = base(x); x = x.to(A.dtype); result = result + B(A(dropout(x))) * scaling; result = result.to(base's dtype)
 *
 * The base is frozen as a whole. Matching is PEFT's: a list of names (equal, or ending in "." + name), one regular expression over
 * the whole module name, or "all-linear" (every Linear but the head).
 */
#include "../passes.h"

#include <regex.h>
#include <string.h>

struct lora {
	struct analysis *a;
	struct graph *g;           /* being rebuilt */
	int64_t rank;
	uint8_t dtype;
	bool dropout;
	regex_t *re;               /* NULL = a list of names */
	bool all_linear;
	uint32_t count;
	/* of the module being extended */
	uint32_t scope, frame;
	uint16_t nframe;
	uint8_t modality;
};

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
		if (v->list[0].n > 512 || regcomp(l->re, posix_regex(a, v->list[0]).p, REG_EXTENDED | REG_NOSUB))
			return diag(l->a->c, DIAG_BAD_VALUE, "lora.targets", SFMT(v->list[0]), "module names, or a regular expression");
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

/* Frames of the module's caller, then one of PEFT's own, then maybe one more. */
static void
set_frames(struct lora *l, uint32_t n, uint32_t line, const char *text, bool inner)
{
	struct graph *g = l->g;
	uint16_t keep = l->nframe ? (uint16_t)(l->nframe - 1) : 0;

	if (!g->has_frames)
		return;
	ROOM(l->a->c->a, g->frames, g->nframe, g->frame_cap, (uint32_t)keep + 2);
	memcpy(g->frames + g->nframe, g->frames + l->frame, keep * sizeof *g->frames);
	g->nodes[n].frame = g->nframe;
	g->frames[g->nframe + keep] = (struct frame){line, graph_name(g, str_of(text))};
	g->frames[g->nframe + keep + 1] = (struct frame){1, graph_name(g, S("return F.linear(input, self.weight, self.bias)"))};
	g->nodes[n].nframe = (uint16_t)(keep + 1 + inner);
	g->nframe += (uint32_t)keep + 1 + inner;
}

static uint32_t
inner_scope(struct lora *l, const char *name, const char *cls)
{
	struct str path = str_fmt(l->a->c->a, "%.*s.%s", SFMT(scope_path(l->g, l->scope)), name);

	return scope_add(l->g, l->scope, path, str_of(cls), 0);
}

static uint32_t
add_node(struct lora *l, unsigned op, const struct arg *args, unsigned narg, uint32_t out, uint32_t scope, uint32_t line, const char *text)
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

static uint32_t
add_value(struct lora *l, uint32_t like, const char *suffix)
{
	struct graph *g = l->g;
	uint32_t v = val_new(g, VAL_NODE, str_fmt(l->a->c->a, "%.*s_%s", SFMT(graph_str(g, g->vals[like].name)), suffix));

	g->vals[v].dtype = g->vals[like].dtype;
	g->vals[v].rank = g->vals[like].rank;
	g->vals[v].dim = g->vals[like].dim;
	return v;
}

static uint32_t
add_adapter(struct lora *l, const char *name, int64_t rows, int64_t columns)
{
	struct graph *g = l->g;
	struct sint dims[2] = {SINT(rows), SINT(columns)};
	struct str full = str_fmt(l->a->c->a, "%.*s.%s.default.weight", SFMT(scope_path(g, l->scope)), name);
	uint32_t v = val_new(g, VAL_PARAM, full);

	g->vals[v].full = graph_name(g, full);
	g->vals[v].dtype = l->dtype;
	g->vals[v].flags = VF_TRAINABLE | VF_ADAPTER;
	g->vals[v].modality = l->modality;
	val_shape(g, v, 2, dims);
	return v;
}

#define UP "result = result + lora_B(lora_A(dropout(x))) * scaling"

static void
add_adapters(struct lora *l, uint32_t x, uint32_t base, uint32_t result, uint32_t weight)
{
	const struct sint *w = val_dims(l->g, weight);
	int64_t out = w[0].n, in = w[1].n;
	uint32_t a = add_adapter(l, "lora_A", l->rank, in), b = add_adapter(l, "lora_B", out, l->rank), t = add_value(l, x, "lora_x"), u;
	struct arg args[3];

	args[0] = arg_val(x);
	args[1] = arg_dtype(l->dtype);
	add_node(l, OP_TO, args, 2, t, l->scope, 3, "x = self._cast_input_dtype(x, lora_A.weight.dtype)");
	if (l->dropout) {
		u = add_value(l, x, "lora_dropout");
		args[0] = arg_val(t);
		args[1] = arg_float(0.1);
		args[2] = arg_bool(true);
		add_node(l, OP_DROPOUT, args, 3, u, inner_scope(l, "lora_dropout", "torch.nn.modules.dropout.Dropout"), 2, UP);
		t = u;
	}
	u = add_value(l, result, "lora_A");
	l->g->vals[u].rank = RANK_UNKNOWN;
	args[0] = arg_val(t);
	args[1] = arg_val(a);
	add_node(l, OP_LINEAR, args, 2, u, inner_scope(l, "lora_A", "torch.nn.modules.linear.Linear"), 2, UP);
	t = add_value(l, result, "lora_B");
	args[0] = arg_val(u);
	args[1] = arg_val(b);
	add_node(l, OP_LINEAR, args, 2, t, inner_scope(l, "lora_B", "torch.nn.modules.linear.Linear"), 2, UP);
	u = add_value(l, result, "lora_scaled");
	args[0] = arg_val(t);
	args[1] = arg_float(2);
	add_node(l, OP_MUL, args, 2, u, l->scope, 2, UP);
	t = add_value(l, result, "lora_sum");
	args[0] = arg_val(base);
	args[1] = arg_val(u);
	add_node(l, OP_ADD, args, 2, t, l->scope, 2, UP);
	args[0] = arg_val(t);
	args[1] = (struct arg){.kind = ARG_DTYPE_OF, .u.val = base};
	add_node(l, OP_TO, args, 2, result, l->scope, 4, "result = result.to(torch_result_dtype)");
}

/* The Linear keeps its node, inside base_layer, under a new result; the old result is the adapted sum. */
static void
extend(struct lora *l, uint32_t n)
{
	struct graph *g = l->g;
	uint32_t result = node_outs(g, n)[0], base = add_value(l, result, "base");
	const struct arg *x = node_arg(g, n, "input"), *w = node_arg(g, n, "weight");
	uint32_t in = x->u.val, weight = w->u.val;

	l->scope = g->nodes[n].scope;
	l->frame = g->nodes[n].frame;
	l->nframe = g->nodes[n].nframe;
	l->modality = g->nodes[n].modality;
	node_outs(g, n)[0] = base;
	g->vals[base].node = n;
	g->nodes[n].scope = inner_scope(l, "base_layer", "torch.nn.modules.linear.Linear");
	set_frames(l, n, 1, "result = self.base_layer(x)", true);
	add_adapters(l, in, base, result, weight);
	l->count++;
}

static bool
is_linear(const struct graph *g, uint32_t n)
{
	const struct arg *w = g->nodes[n].op == OP_LINEAR ? node_arg(g, n, "weight") : NULL;

	return w && w->kind == ARG_VAL && g->vals[w->u.val].kind == VAL_PARAM && node_args(g, n)->kind == ARG_VAL && g->nodes[n].scope;
}

/* Nodes are moved over one by one; what an adapter adds comes right behind its Linear. */
bool
pass_lora(struct analysis *a)
{
	struct graph *g = a->g;
	struct lora l = {.a = a, .g = g, .rank = a->r->v[RK_LORA_R].i, .dropout = a->r->v[RK_LORA_DROPOUT].f > 0};
	uint32_t old = g->nnode;
	struct node *nodes;

	if (!l.rank)
		return true;
	l.dtype = a->r->v[RK_LORA_DTYPE].i == 0 ? DT_FP32 : a->plan.param_dtype;
	if (!read_targets(&l))
		return false;
	nodes = NEW(a->c->a, struct node, old);
	memcpy(nodes, g->nodes, old * sizeof *nodes);
	g->nnode = 1;
	for (uint32_t n = 1; n < old; n++) {
		uint32_t at = g->nnode;

		ROOM(a->c->a, g->nodes, g->nnode, g->node_cap, 1);
		g->nodes[g->nnode++] = nodes[n];
		for (uint32_t k = 0; k < nodes[n].nout; k++)
			if (node_outs(g, at)[k])
				g->vals[node_outs(g, at)[k]].node = at;
		if (is_linear(g, at) && is_target(&l, scope_path(g, g->nodes[at].scope)))
			extend(&l, at);
	}
	if (!l.count)
		diag(a->c, DIAG_NO_MATCH, "lora.targets", SFMT(a->r->v[RK_LORA_TARGETS].list[0]), "Linear module");
	return true;
}
