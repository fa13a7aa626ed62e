/*
 * ONNX files: constants that the dynamo exporter's optimiser computed from a parameter. It lists what each was computed from: the parameter, numbers, and
 * the names of the FX nodes in between, which begin with their operators' names. Those that keep the number of elements are noted for the pass unfold.
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

/* The one parameter or buffer that the tensor was computed from; alone = from nothing else. NULL = none, or several. */
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
	*alone = items == 1;
	return specs == 1 ? found : NULL;
}

/* ---- what was done to it -------------------------------------------------------------------------------------------- */

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

/* A bias for each head and two positions, looked up in a table: "relative", with "causal" behind it if later positions are masked in it. */
static uint32_t
relative_bias(struct onnx *l, uint32_t v, const char *name)
{
	struct str list = info_property(l, name, FOLDED_FROM), item;
	bool table = false, causal = false;

	if (l->g->vals[v].rank != 4 || !dtype_is_float(l->g->vals[v].dtype))
		return 0;
	while (onnx_next_item(&list, &item)) {
		struct str op = str_stem(item);

		table |= str_eq(op, S("embedding"));
		causal |= str_eq(op, S("le")) || str_eq(op, S("tril"));
	}
	return table ? graph_name(l->g, causal ? S("relative causal") : S("relative")) : 0;
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

/* Positions of a picture, resized to the one that the exporter ran with: "resized", with "cat" behind it if some, of a class token, were not. */
static uint32_t
resized_table(struct onnx *l, uint32_t v, const char *name, const struct spec *s)
{
	struct str list = info_property(l, name, FOLDED_FROM), item, own = str_stem(onnx_str(name));
	const struct val *x = &l->g->vals[v];
	bool resized = is_upsample(own), joined = str_eq(own, S("cat"));

	if (!dtype_is_float(x->dtype) || (x->rank != 3 && x->rank != 4) || !moves_elements(own))
		return 0;
	while (onnx_next_item(&list, &item)) {
		struct str op = str_stem(item);

		if (str_eq(item, graph_str(l->g, s->full)) || is_number_name(item))
			continue;
		if (!moves_elements(op))
			return 0;
		resized |= is_upsample(op);
		joined |= str_eq(op, S("cat"));
	}
	return resized && !(joined && x->rank == 4) ? graph_name(l->g, joined ? S("resized cat") : S("resized")) : 0;
}

/* It shows the parameter's size if it is rows of a table, was expanded, has one dim among others of size 1, or as many elements as the parameter. */
static bool
shows_parameter(const struct onnx *l, uint32_t v)
{
	const struct val *x = &l->g->vals[v];
	struct str name = graph_str(l->g, x->name);
	unsigned large = 0;

	for (unsigned i = 0; x->rank != RANK_UNKNOWN && i < x->rank; i++)
		large += val_dims(l->g, v)[i].n != 1;
	return dtype_is_float(x->dtype) && (str_starts(name, S("embedding")) || str_starts(name, S("expand")) || large <= 1 || x->folded);
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
		l->g->vals[v].folded = graph_name(l->g, str_of(ops[i]));
		return;
	}
}

/* A stored tensor that was computed from a parameter, among other things. */
void
onnx_note_folded(struct onnx *l, uint32_t v, const char *name, struct spec *s)
{
	struct str ops = operators(l, v, name, s);

	l->g->vals[v].full = s->full;
	l->g->vals[v].folded = ops.n ? graph_name(l->g, ops) : relative_bias(l, v, name);
	if (!l->g->vals[v].folded)
		l->g->vals[v].folded = resized_table(l, v, name, s);
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
