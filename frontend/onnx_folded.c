/*
 * ONNX files: constants that an exporter's optimiser computed from a parameter. The dynamo exporter lists what each was computed from: the parameter,
 * numbers, and the names of the FX nodes in between, which begin with their operators' names. Those that keep the number of elements are noted for the
 * pass unfold. Without that list the constant's own name and its place tell: one number for each channel of what the model computed.
 */
#include "onnx.h"

#include <string.h>

#define MOST_OPERATORS 16u          /* between a parameter and what was computed from it */
#define FOLDED_FROM "pkg.onnxscript.optimizer.folded_from"

static struct str
info_property(struct onnx *l, const char *name, const char *key)
{
	const struct binding *b = onnx_binding(l, name);

	return b->info && b->info_frame == l->frame ? onnx_property(b->info->metadata_props, b->info->n_metadata_props, key) : S("");
}

/* Operators on one tensor, or on one tensor and a number, whose result has as many elements; getitem: of a normalisation, which has several results. */
static bool
keeps_elements(struct str op)
{
	static const char *const ops[] = {"add", "sub", "mul", "div", "neg", "exp", "abs", "log", "sqrt", "square", "sigmoid", "tanh", "softplus", "unsqueeze", "squeeze", "view", "reshape", "getitem"};

	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
		if (str_eq(op, str_of(ops[i])))
			return true;
	return false;
}

static bool
is_view_name(struct str op)
{
	return str_eq(op, S("unsqueeze")) || str_eq(op, S("squeeze")) || str_eq(op, S("view")) || str_eq(op, S("reshape"));
}

/* An operator whose result is not its operand in another shape. */
static bool
computes(struct str op)
{
	return keeps_elements(op) && !is_view_name(op);
}

/* The one parameter or buffer that the tensor was computed from; alone = it is nothing else. NULL = none, or several. */
struct spec *
onnx_folded_from(struct onnx *l, const char *name, bool *alone)
{
	struct str list = info_property(l, name, FOLDED_FROM), item;
	struct spec *found = NULL;
	unsigned specs = 0, items = 0;

	while (onnx_next_item(&list, &item)) {
		struct spec *s = onnx_spec(l, item);

		items++;
		if (s && (!found || !s->buffer)) {
			specs += !(found && found->buffer && !s->buffer);
			found = s;
		} else if (s) {
			specs += !s->buffer;
		}
	}
	*alone = items == 1 && !computes(str_stem(onnx_str(name)));
	return specs == 1 ? found : NULL;
}

/* ---- what was done to it -------------------------------------------------------------------------------------------- */

static bool
is_number_name(struct str name)
{
	return str_starts(name, S("val_")) && !str_eq(str_stem(name), name);
}

/*
 * The operators, separated by blanks, its own last; empty = not all are of that kind. The list is in the order of the alphabet. A matrix that has no
 * operator's name is the weight of a linear layer, transposed.
 */
static struct str
operators(struct onnx *l, uint32_t v, const char *name, const struct spec *s)
{
	struct str list = info_property(l, name, FOLDED_FROM), item, ops = S(""), own = str_stem(onnx_str(name));
	unsigned count = 0;

	if (is_number_name(onnx_str(name)) && l->g->vals[v].rank == 2)
		own = S("t");
	else if (!keeps_elements(own))
		return S("");
	while (onnx_next_item(&list, &item)) {
		struct str op = str_stem(item);

		if (str_eq(item, graph_str(l->g, s->full)) || is_number_name(item))
			continue;
		if (!keeps_elements(op) || count++ == MOST_OPERATORS)
			return S("");
		ops = str_fmt(l->c->a, "%.*s%.*s ", SFMT(ops), SFMT(op));
	}
	if (!ops.n && str_eq(own, S("t")))
		return S("");
	return str_fmt(l->c->a, "%.*s%.*s", SFMT(ops), SFMT(own));
}

/* A bias for each head and two positions, looked up in a table. */
static enum fold_kind
position_bias(struct onnx *l, uint32_t v, const char *name)
{
	struct str list = info_property(l, name, FOLDED_FROM), item;
	bool table = false, causal = false;

	if (l->g->vals[v].rank != 4 || !dtype_is_float(l->g->vals[v].dtype))
		return FOLD_UNKNOWN;
	while (onnx_next_item(&list, &item)) {
		struct str op = str_stem(item);

		table |= str_eq(op, S("embedding")) || str_eq(op, S("index"));
		causal |= str_eq(op, S("le")) || str_eq(op, S("tril"));
	}
	return !table ? FOLD_UNKNOWN : causal ? FOLD_BIAS_CAUSAL : FOLD_BIAS;
}

/* What makes numbers that are all the same, and buffers of types, which are zeros until somebody gives others. */
static bool
makes_one_type(struct str item)
{
	static const char *const ops[] = {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like"};

	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
		if (str_eq(str_stem(item), str_of(ops[i])))
			return true;
	return str_ends(item, S("token_type_ids"));
}

static bool
moves_types(struct str item)
{
	return str_eq(str_stem(item), S("expand")) || str_eq(str_stem(item), S("slice"));
}

/*
 * Rows of a table of types ("token_type_embeddings") that was read at zeros or at ones alone. Their number does not show; libraries have two. Tables
 * of positions are read at one place as well, where a model has no positions for a part of its input.
 */
static enum fold_kind
table_of_types(struct onnx *l, uint32_t v, const char *name, const struct spec *s)
{
	struct str list = info_property(l, name, FOLDED_FROM), item, full = graph_str(l->g, s->full);
	bool one = false;

	if (!str_eq(str_stem(onnx_str(name)), S("embedding")) || l->g->vals[v].rank < 2 || !full.n || !memmem(full.p, full.n, "type", 4))
		return FOLD_UNKNOWN;
	while (onnx_next_item(&list, &item)) {
		bool same = makes_one_type(item);

		if (!same && !moves_types(item) && !str_eq(item, full) && !is_number_name(item))
			return FOLD_UNKNOWN;
		one |= same;
	}
	return one ? FOLD_TYPES : FOLD_UNKNOWN;
}

static bool
is_upsample(struct str op)
{
	return str_starts(op, S("upsample_")) || str_starts(op, S("_upsample_"));
}

/* Operators beside a resizing that only move what is there. */
static bool
moves_elements(struct str op)
{
	static const char *const ops[] = {"view", "reshape", "permute", "transpose", "unsqueeze", "squeeze", "slice", "cat", "clone", "contiguous"};

	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
		if (str_eq(op, str_of(ops[i])))
			return true;
	return is_upsample(op);
}

/* Positions of a picture, resized to the one that the exporter ran with. */
static enum fold_kind
resized_table(struct onnx *l, uint32_t v, const char *name, const struct spec *s)
{
	struct str list = info_property(l, name, FOLDED_FROM), item, own = str_stem(onnx_str(name));
	const struct val *x = &l->g->vals[v];
	bool resized = is_upsample(own), joined = str_eq(own, S("cat"));

	if (!dtype_is_float(x->dtype) || (x->rank != 3 && x->rank != 4) || !moves_elements(own))
		return FOLD_UNKNOWN;
	while (onnx_next_item(&list, &item)) {
		struct str op = str_stem(item);

		if (str_eq(item, graph_str(l->g, s->full)) || is_number_name(item))
			continue;
		if (!moves_elements(op))
			return FOLD_UNKNOWN;
		resized |= is_upsample(op);
		joined |= str_eq(op, S("cat"));
	}
	if (!resized || (joined && x->rank == 4))
		return FOLD_UNKNOWN;
	return joined ? FOLD_RESIZED_CAT : FOLD_RESIZED;
}

/* It shows the parameter's size if it is rows of a table, was expanded or repeated over the batch, has one dim among others of size 1, or as many elements as the parameter. */
static bool
shows_parameter(const struct onnx *l, uint32_t v)
{
	const struct val *x = &l->g->vals[v];
	struct str name = graph_str(l->g, x->name);
	unsigned large = 0;

	for (unsigned i = 0; x->rank != RANK_UNKNOWN && i < x->rank; i++)
		large += val_dims(l->g, v)[i].n != 1;
	return dtype_is_float(x->dtype) && (str_starts(name, S("embedding")) || str_starts(name, S("expand")) || str_eq(str_stem(name), S("repeat")) || large <= 1 || x->fold != FOLD_UNKNOWN);
}

/* What compares positions in a mask that was computed from nothing but them: "ge" with a number, "le" with each other. */
void
onnx_note_comparison(struct onnx *l, uint32_t v, const char *name)
{
	static const char *const ops[] = {"le", "lt", "tril", "triu", "gt", "ge"};
	struct str list = info_property(l, name, FOLDED_FROM), own = onnx_str(name), rest = S(""), item;

	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
		bool found = str_eq(str_stem(own), str_of(ops[i]));

		for (rest = list; !found && onnx_next_item(&rest, &item);)
			found = str_eq(str_stem(item), str_of(ops[i]));
		if (!found)
			continue;
		l->g->vals[v].fold = FOLD_COMPARED;
		l->g->vals[v].folded = graph_name(l->g, str_of(ops[i]));
		return;
	}
}

/* A stored tensor that was computed from a parameter, among other things. */
void
onnx_note_folded(struct onnx *l, uint32_t v, const char *name, struct spec *s)
{
	struct str ops = operators(l, v, name, s);
	enum fold_kind kind = ops.n ? FOLD_OPERATORS : position_bias(l, v, name);

	l->g->vals[v].full = s->full;
	if (!kind)
		kind = resized_table(l, v, name, s);
	l->g->vals[v].fold = (uint8_t)(kind ? kind : table_of_types(l, v, name, s));
	l->g->vals[v].folded = ops.n ? graph_name(l->g, ops) : 0;
	if (!shows_parameter(l, v))
		return;
	l->g->vals[v].flags = VF_TRAINABLE;
	s->folded = true;
}

/* A convolution's weight that an optimiser computed from a parameter, standardised say, has its dims. */
void
onnx_find_computed_weights(struct onnx *l)
{
	struct graph *g = l->g;

	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct arg *a = node_args(g, n);
		struct val *x = g->nodes[n].op == OP_ONNX_CONV && g->nodes[n].narg > 1 && a[1].kind == ARG_VAL ? &g->vals[a[1].u.val] : NULL;
		struct spec *s = x && x->kind == VAL_CONST && x->full ? onnx_spec(l, graph_str(g, x->full)) : NULL;

		if (!s || s->buffer || g->vals[s->val].kind != VAL_NONE || x->rank == RANK_UNKNOWN || x->rank < 3)
			continue;
		x->flags = VF_TRAINABLE;
		s->folded = true;
	}
}

/* ---- without a list ---------------------------------------------------------------------------------------------------------- */

/* What an exporter called a constant: after its last operator, or by a number alone (empty). */
static bool
made_by(struct str name, struct str *op)
{
	struct str stem = str_stem(name);

	*op = S("");
	if (memmem(name.p, name.n, "::", 2) || is_number_name(name))
		return true;
	*op = stem;
	return keeps_elements(stem) && !str_eq(stem, S("getitem"));
}

/* One dim, of several elements, among others of size 1; *last = it is the last one. */
static bool
is_per_channel(const struct graph *g, uint32_t v, bool *last)
{
	const struct val *x = &g->vals[v];
	unsigned large = 0;

	*last = false;
	for (unsigned i = 0; x->rank != RANK_UNKNOWN && i < x->rank; i++)
		if (val_dims(g, v)[i].expr || val_dims(g, v)[i].n != 1) {
			large++;
			*last = i + 1u == x->rank;
		}
	return large == 1;
}

static bool
is_elementwise(unsigned op)
{
	return op == OP_ONNX_MUL || op == OP_ONNX_ADD || op == OP_ONNX_SUB || op == OP_ONNX_DIV;
}

/* Values that parameters have a part in, and those that a softmax is taken of. */
static void
find_computed(const struct graph *g, bool *computed, bool *score)
{
	for (uint32_t n = 1; n < g->nnode; n++) {
		bool any = false;

		for (struct operands it = operands_of(g, n); operand_next(&it);)
			any |= computed[it.val] || g->vals[it.val].kind == VAL_PARAM;
		for (unsigned i = 0; any && i < g->nodes[n].nout; i++)
			computed[node_outs(g, n)[i]] = dtype_is_float(g->vals[node_outs(g, n)[i]].dtype);
	}
	for (uint32_t n = g->nnode; n-- > 1;)
		if (g->nodes[n].op == OP_ONNX_SOFTMAX || (is_elementwise(g->nodes[n].op) && g->nodes[n].nout && score[node_outs(g, n)[0]]))
			for (struct operands it = operands_of(g, n); operand_next(&it);)
				score[it.val] = true;
}

static bool
is_stored_const(const struct onnx *l, uint32_t v)
{
	return l->g->vals[v].kind == VAL_CONST && !l->g->vals[v].full && v < l->stored_cap && l->stored[v];
}

/* The constant was computed from a parameter that the file does not have: unknown = a view, or rows of a table. */
static void
take_from(struct onnx *l, uint32_t v, enum fold_kind kind, struct str ops)
{
	struct graph *g = l->g;
	uint32_t p = val_new(g, VAL_NONE, str_fmt(l->c->a, "%.*s_weight", SFMT(graph_str(g, g->vals[v].name))));

	g->vals[v].full = g->vals[p].name;
	g->vals[v].flags = VF_TRAINABLE;
	g->vals[v].fold = (uint8_t)kind;
	g->vals[v].folded = ops.n ? graph_name(g, ops) : 0;
}

static void
take_view(struct onnx *l, uint32_t v)
{
	take_from(l, v, FOLD_UNKNOWN, S(""));
}

static bool
is_named(struct str stem, const char *const *names)
{
	for (; *names; names++)
		if (str_eq(stem, str_of(*names)))
			return true;
	return false;
}

/* Positions' rows in front of the batch, resized to the size of the picture. */
static enum fold_kind
position_table(struct onnx *l, uint32_t v)
{
	static const char *const last[] = {"permute", "transpose", "view", "reshape", NULL};
	const struct sint *d = val_dims(l->g, v);
	struct str stem = str_stem(graph_str(l->g, l->g->vals[v].name));

	if (l->g->vals[v].rank != 3 || d[0].expr || d[0].n != 1 || d[1].n < 2 || d[2].n < 2)
		return FOLD_UNKNOWN;
	return str_eq(stem, S("cat")) ? FOLD_RESIZED_CAT : is_named(stem, last) ? FOLD_RESIZED : FOLD_UNKNOWN;
}

/* A bias for each head and two positions; masks are the same for all heads. */
static bool
is_bias_of_heads(const struct graph *g, uint32_t v, struct str stem)
{
	static const char *const last[] = {"expand", "permute", "unsqueeze", "clone", NULL};
	const struct sint *d = val_dims(g, v);

	return g->vals[v].rank == 4 && d[1].n > 1 && d[2].n > 1 && d[3].n > 1 && is_named(stem, last);
}

static void
take_whole(struct onnx *l, uint32_t v)
{
	struct val *x = &l->g->vals[v];

	x->kind = VAL_PARAM;
	x->full = x->name;
	x->data = DATA_NONE;
	x->flags = VF_TRAINABLE;
	graph_note(l->g, "vectors without a name of the model's that what it computes is added to or multiplied with are parameters (the file does not list them)");
}

/*
 * What meets computed values element by element: rows of a table; a bias for each head; the parameter itself under another name; one number for each
 * channel. A row that scores are added to is a mask.
 */
static void
take_operand(struct onnx *l, uint32_t v, bool score)
{
	struct graph *g = l->g;
	struct str op, name = graph_str(g, g->vals[v].name), stem = str_stem(name);
	enum fold_kind positions = score ? FOLD_UNKNOWN : position_table(l, v);
	bool last;

	if (!dtype_is_float(g->vals[v].dtype) || g->vals[v].rank == RANK_UNKNOWN)
		return;
	if (str_eq(stem, S("embedding")) && g->vals[v].rank > 1)
		take_view(l, v);
	else if (score && is_bias_of_heads(g, v, stem))
		take_from(l, v, FOLD_BIAS, S(""));
	else if (!score && str_eq(stem, S("expand")) && g->vals[v].rank == 3)
		take_view(l, v);
	else if (positions != FOLD_UNKNOWN)
		take_from(l, v, positions, S(""));
	else if (!score && str_eq(stem, S("alias")))
		take_whole(l, v);
	else if (g->vals[v].rank == 0 && (str_eq(stem, S("exp")) || str_eq(stem, S("sigmoid")) || str_eq(stem, S("softplus"))))
		take_from(l, v, FOLD_OPERATORS, stem);
	else if (!is_per_channel(g, v, &last) || !made_by(name, &op) || (score && last && g->vals[v].rank > 1))
		return;
	else if (g->vals[v].rank == 1 && !op.n)
		take_whole(l, v);
	else if (!op.n || is_view_name(op))
		take_view(l, v);
	else
		take_from(l, v, FOLD_OPERATORS, op);
}

/* A row beside computed ones, expanded over the batch: the token of a class, or of a mask. */
static void
take_token(struct onnx *l, uint32_t n, const bool *computed)
{
	struct graph *g = l->g;
	bool any = false;

	for (struct operands it = operands_of(g, n); operand_next(&it);)
		any |= computed[it.val];
	for (struct operands it = operands_of(g, n); any && operand_next(&it);)
		if (is_stored_const(l, it.val) && dtype_is_float(g->vals[it.val].dtype) && g->vals[it.val].rank == 3 && str_eq(str_stem(graph_str(g, g->vals[it.val].name)), S("expand")))
			take_view(l, it.val);
}

static bool
is_reshaped(struct str op)
{
	return str_eq(op, S("view")) || str_eq(op, S("reshape")) || str_eq(op, S("view_as")) || str_eq(op, S("reshape_as"));
}

/* The weight of a convolution that is a view of something else: standardised weights, the one kind that libraries compute. */
static void
take_weight(struct onnx *l, uint32_t v)
{
	l->g->vals[v].kind = VAL_CONST;
	take_from(l, v, FOLD_OPERATORS, S("getitem view"));
}

/* Of a file without a signature, once its parameters are known. */
void
onnx_guess_folded(struct onnx *l)
{
	struct graph *g = l->g;
	uint32_t nval = g->nval;
	bool *computed = NEW(l->c->a, bool, nval), *score = NEW(l->c->a, bool, nval);

	find_computed(g, computed, score);
	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t x = g->nodes[n].narg > 1 && node_args(g, n)[0].kind == ARG_VAL ? node_args(g, n)[0].u.val : 0;
		uint32_t y = x && node_args(g, n)[1].kind == ARG_VAL ? node_args(g, n)[1].u.val : 0;

		if (y && g->nodes[n].op == OP_ONNX_CONV && g->vals[y].kind == VAL_PARAM && is_reshaped(str_stem(graph_str(g, g->vals[y].name))))
			take_weight(l, y);
		if (g->nodes[n].op == OP_ONNX_CONCAT)
			take_token(l, n, computed);
		if (!y || !is_elementwise(g->nodes[n].op))
			continue;
		if (is_stored_const(l, y) && computed[x])
			take_operand(l, y, score[y]);
		else if (is_stored_const(l, x) && computed[y])
			take_operand(l, x, score[x]);
	}
}
