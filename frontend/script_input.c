/*
 * What forward is called with, and what it returns. A traced archive has the inputs of its trace (traced_inputs.pkl): dtypes, and sizes
 * that become symbols INPUT[AXIS] with the traced size as their example. A scripted one has names and types only.
 */
#include "script.h"

#include <string.h>

static bool
new_input(struct script *s, struct str name, const struct pickle_tensor *example, struct thing *out)
{
	struct graph *g = s->g;
	uint32_t v = val_new(g, VAL_INPUT, name);
	struct sint dims[MAX_RANK];

	graph_input(g, v);
	*out = thing_tensor(v);
	if (!example)
		return true;
	g->vals[v].dtype = example->dtype;
	for (unsigned i = 0; i < example->rank; i++) {
		uint32_t sym = sym_add(g, str_fmt(s->c->a, "%.*s[%u]", SFMT(name), i));

		g->syms[sym].example = example->dim[i];
		dims[i] = sint_of_expr(g, expr_sym(g, sym));
	}
	val_shape(g, v, example->rank, dims);
	return true;
}

/* A whole number that forward takes: a symbol of its name, so that --dim can say it. */
static struct thing
number_input(struct script *s, struct str name, const struct pickle *example)
{
	uint32_t sym = sym_add(s->g, name), n = script_node(s, OP_MATH, S(""), op_narg(OP_MATH), 1);

	s->g->syms[sym].example = example && example->kind == PK_INT ? example->u.i : 0;
	node_args(s->g, n)[0] = (struct arg){.kind = ARG_STR, .u.str = graph_name(s->g, S("number"))};
	node_args(s->g, n)[1] = (struct arg){.kind = ARG_INT, .u.i = {0, expr_sym(s->g, sym)}};
	return (struct thing){.kind = THING_INT, .val = script_result(s, n, 0)};
}

static struct str
type_name(const struct script *s, const struct term *type)
{
	if (type && type->kind == TERM_INDEX && type->kid[0]->kind == TERM_NAME)
		return graph_str(s->g, type->kid[0]->name);
	return type && type->kind == TERM_NAME ? graph_str(s->g, type->name) : S("Tensor");
}

/* The types in brackets: List[T], Optional[T] have one, Tuple[..] several. */
static uint32_t
type_count(const struct term *type)
{
	return type->kid[1]->kind == TERM_TUPLE ? type->kid[1]->n : 1;
}

static const struct term *
type_arg(const struct term *type, uint32_t i)
{
	return type->kid[1]->kind == TERM_TUPLE ? type->kid[1]->kid[i] : type->kid[1];
}

static bool input_of_type(struct script *, struct str name, const struct term *type, const struct pickle *example, unsigned depth, struct thing *);

static bool
input_items(struct script *s, struct str name, const struct term *type, const struct pickle *example, unsigned depth, struct thing *out)
{
	bool list = str_eq(type_name(s, type), S("List")), known = example && (example->kind == PK_LIST || example->kind == PK_TUPLE);
	uint32_t n = known ? example->n : list ? 1 : type_count(type);

	if (list && !known)
		graph_note(s->g, "the list %.*s that forward takes is taken to have one element", SFMT(name));
	*out = thing_items(s, list ? THING_LIST : THING_TUPLE, NULL, 0);
	for (uint32_t i = 0; i < n; i++) {
		const struct term *of = list ? type_arg(type, 0) : i < type_count(type) ? type_arg(type, i) : NULL;
		struct thing t;

		if (!input_of_type(s, str_fmt(s->c->a, "%.*s.%u", SFMT(name), (unsigned)i), of, known ? example->u.item[i] : NULL, depth + 1, &t))
			return false;
		items_add(s, out->u.items, t);
	}
	return true;
}

static bool
input_dict(struct script *s, struct str name, const struct term *type, const struct pickle *example, unsigned depth, struct thing *out)
{
	*out = thing_items(s, THING_DICT, NULL, 0);
	if (!example || example->kind != PK_DICT) {
		out->u.items->input = graph_name(s->g, name);
		out->u.items->of = type && type->kind == TERM_INDEX && type_count(type) == 2 ? type_arg(type, 1) : NULL;
		graph_note(s->g, "the dict %.*s that forward takes is taken to have the entries that are read without asking for them", SFMT(name));
		return true;
	}
	for (uint32_t i = 0; i + 1 < example->n; i += 2) {
		struct str key = pickle_str(example->u.item[i]);
		struct thing t;

		if (!input_of_type(s, str_fmt(s->c->a, "%.*s.%.*s", SFMT(name), SFMT(key)), NULL, example->u.item[i + 1], depth + 1, &t))
			return false;
		items_add(s, out->u.items, thing_str(key));
		items_add(s, out->u.items, t);
	}
	return true;
}

static bool
input_of_type(struct script *s, struct str name, const struct term *type, const struct pickle *example, unsigned depth, struct thing *out)
{
	struct str is = type_name(s, type);
	bool items = type && type->kind == TERM_INDEX;

	if (depth > 8)
		return script_fail(s, "the input %.*s is nested too deep", SFMT(name));
	if (example && example->kind == PK_TENSOR)
		return new_input(s, name, example->u.tensor, out);
	if (items && (str_eq(is, S("List")) || str_eq(is, S("Tuple"))))
		return input_items(s, name, type, example, depth, out);
	if (str_eq(is, S("Dict")))
		return input_dict(s, name, type, example, depth, out);
	*out = thing_none();
	if (str_eq(is, S("Tensor")))
		return new_input(s, name, NULL, out);
	if (str_eq(is, S("int")))
		*out = number_input(s, name, example);
	else if (str_eq(is, S("float")))
		*out = thing_float(0.5);
	else if (str_eq(is, S("bool")))
		*out = thing_bool(example && example->kind == PK_BOOL ? example->u.b : false);
	else
		graph_note(s->g, "forward's argument %.*s is taken to be None", SFMT(name));
	return true;
}

/* Nobody but the code says what is in a scripted module's dict: batch["image"] is an input batch.image. */
struct thing
script_input_entry(struct script *s, struct items *dict, const struct thing *key)
{
	struct str name = graph_str(s->g, dict->input);
	struct thing t = {0};

	if (key->val || (key->kind != THING_STR && key->kind != THING_INT)) {
		script_fail(s, "the dict %.*s that forward takes is read by a key that is not known", SFMT(name));
		return t;
	}
	name = key->kind == THING_STR ? str_fmt(s->c->a, "%.*s.%.*s", SFMT(name), SFMT(key->u.s)) : str_fmt(s->c->a, "%.*s.%lld", SFMT(name), (long long)key->u.i);
	if (!input_of_type(s, name, dict->of, NULL, 1, &t))
		return t;
	items_add(s, dict, *key);
	items_add(s, dict, t);
	return t;
}

/* The inputs that forward was traced with, in order; NULL = the archive has none. */
static bool
traced_inputs(struct script *s, struct pickle **out)
{
	struct str text;
	struct pickle *all;

	*out = NULL;
	if (!zip_has(s->z, S("traced_inputs.pkl")))
		return true;
	s->c->place = S("traced_inputs.pkl");
	if (!zip_read(s->c, s->z, S("traced_inputs.pkl"), &text) || !(all = pickle_read(s->c, text)))
		return false;
	s->c->place = S("");
	*out = pickle_get(all, S("forward"));
	if (*out && (*out)->kind != PK_LIST && (*out)->kind != PK_TUPLE)
		*out = NULL;
	s->is_traced = *out != NULL;
	return true;
}

bool
script_inputs(struct script *s, const struct func *f, struct thing *args)
{
	struct pickle *traced;

	if (!traced_inputs(s, &traced))
		return false;
	s->line = f->line;
	for (uint32_t i = 1; i < f->nparam; i++) {
		struct str name = graph_str(s->g, f->param[i]);
		const struct pickle *example = traced && i - 1 < traced->n ? traced->u.item[i - 1] : NULL;

		if (f->dflt[i] && !example) {
			if (!script_eval(s, f->dflt[i], 1, &args[i - 1]))
				return false;
			continue;
		}
		if (!input_of_type(s, name, f->type[i], example, 0, &args[i - 1]))
			return false;
	}
	return true;
}

/* ---- results ---------------------------------------------------------------------------------------------------------------- */

static bool
output(struct script *s, const struct thing *t, unsigned depth)
{
	bool dict = t->kind == THING_DICT;

	if (t->kind == THING_TENSOR || (t->kind == THING_LIST && t->u.items->val))
		graph_output(s->g, t->kind == THING_LIST ? t->u.items->val : t->val);
	else if ((t->kind == THING_LIST || t->kind == THING_TUPLE || dict) && depth < 16)
		for (uint32_t i = dict; i < t->u.items->n; i += dict ? 2 : 1)
			output(s, &t->u.items->at[i], depth + 1);
	return true;
}

bool
script_outputs(struct script *s, const struct thing *t)
{
	return output(s, t, 0);
}
