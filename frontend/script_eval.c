/* Expressions: literals, names, attributes of modules and classes, elements. Calls are in script_call.c. */
#include "script.h"

#include <string.h>

/* ---- names with dots -------------------------------------------------------------------------------------------------- */

static bool
literal_name(struct str name, struct thing *out)
{
	static const struct {
		const char *name;
		struct thing thing;
	} table[] = {
		{"True", {.kind = THING_BOOL, .u.b = true}}, {"False", {.kind = THING_BOOL}}, {"None", {.kind = THING_NONE}},
		{"inf", {.kind = THING_FLOAT, .u.f = 1e308}}, {"nan", {.kind = THING_FLOAT, .u.f = 0.1}}, {"infj", {.kind = THING_FLOAT, .u.f = 1e308}}, {"nanj", {.kind = THING_FLOAT, .u.f = 0.1}},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(name, str_of(table[i].name))) {
			*out = table[i].thing;
			return true;
		}
	return false;
}

static bool
eval_name(struct script *s, const struct term *t, struct thing *out)
{
	const struct thing *local = s->frame ? local_find(s, t->name) : NULL;

	if (local) {
		*out = *local;
		return true;
	}
	if (literal_name(graph_str(s->g, t->name), out))
		return true;
	return script_fail(s, "%.*s is not defined", SFMT(graph_str(s->g, t->name)));
}

/* "CONSTANTS.c3" */
static bool
constant(struct script *s, struct str name, struct thing *out)
{
	int64_t i;

	if (!name.n || name.p[0] != 'c' || !str_int(str_sub(name, 1, name.n), &i) || i < 0 || i >= s->nconst)
		return script_fail(s, "CONSTANTS has no %.*s", SFMT(name));
	*out = s->consts[i];
	return true;
}

struct str
term_path(struct script *s, const struct term *t)
{
	struct str head;

	if (t->kind == TERM_NAME)
		return s->frame && local_find(s, t->name) ? S("") : graph_str(s->g, t->name);
	if (t->kind != TERM_ATTR)
		return S("");
	head = term_path(s, t->kid[0]);
	return head.n ? str_fmt(s->c->a, "%.*s.%.*s", SFMT(head), SFMT(graph_str(s->g, t->name))) : head;
}

/* A class, a function, or a member of an enum. */
static bool
global_name(struct script *s, struct str path, struct thing *out)
{
	struct class_def *d = script_class(s, path);
	struct func *f = d ? NULL : script_func(s, path);
	struct str module = path_parent(path);

	*out = (struct thing){.kind = d ? THING_CLASS : THING_FUNC, .u.cls = d};
	if (f) {
		out->u.fn = NEW(s->c->a, struct closure, 1);
		out->u.fn->fn = f;
	}
	if (d || f)
		return true;
	d = module.n ? script_class(s, module) : NULL;
	if (d && str_eq(graph_str(s->g, d->base), S("Enum"))) {
		*out = thing_str(str_copy(s->c->a, path));
		return true;
	}
	return s->c->nerror ? false : script_fail(s, "%.*s is not in the archive", SFMT(path));
}

/* ---- attributes and elements ------------------------------------------------------------------------------------------------ */

static bool
attribute(struct script *s, const struct thing *o, uint32_t name, struct thing *out)
{
	const struct thing *slot;
	struct func *f;

	*out = (struct thing){0};
	if (o->kind != THING_OBJECT)
		return true;               /* of something that is not understood */
	slot = object_slot(o->u.object, name);
	if (slot) {
		*out = *slot;
		return true;
	}
	f = class_func(o->u.object->cls, name);
	if (!f)
		return script_fail(s, "%.*s has no attribute %.*s", SFMT(script_display(s, graph_str(s->g, o->u.object->cls->name))), SFMT(graph_str(s->g, name)));
	*out = (struct thing){.kind = THING_FUNC};
	out->u.fn = NEW(s->c->a, struct closure, 1);
	*out->u.fn = (struct closure){f, o->u.object, NULL};
	return true;
}

static bool
eval_attribute(struct script *s, const struct term *t, struct thing *out)
{
	struct str path = term_path(s, t), name = graph_str(s->g, t->name);
	struct thing o;

	if (str_starts(path, S("CONSTANTS.")))
		return constant(s, name, out);
	if (str_starts(path, S("__torch__.")))
		return global_name(s, path, out);
	if (str_starts(path, S("torch.")) || str_starts(path, S("ops."))) {
		*out = (struct thing){0};
		return true;
	}
	return script_eval(s, t->kid[0], 1, &o) && attribute(s, &o, t->name, out);
}

bool
script_attribute(struct script *s, const struct thing *o, struct str name, struct thing *out)
{
	return attribute(s, o, graph_name(s->g, name), out);
}

static bool
eval_index(struct script *s, const struct term *t, struct thing *out)
{
	struct thing list, i;

	if (!script_eval(s, t->kid[0], 1, &list) || !script_eval(s, t->kid[1], 1, &i))
		return false;
	*out = script_get(s, list, i);
	return true;
}

static bool
eval_slice(struct script *s, const struct term *t, struct thing *out)
{
	struct thing part[3] = {{0}, thing_none(), thing_none()};
	struct args a = {part, (uint32_t[3]){0}, 3, 3};
	bool found;

	for (unsigned i = 0; i < 3; i++)
		if (t->kid[i] && !script_eval(s, t->kid[i], 1, &part[i]))
			return false;
	return script_list_call(s, S("slice"), &a, out, &found);
}

static bool
eval_items(struct script *s, const struct term *t, struct thing *out)
{
	struct thing *at = NEW(s->c->a, struct thing, t->n + 1u);

	for (uint32_t i = 0; i < t->n; i++)
		if (!script_eval(s, t->kid[i], 1, &at[i]))
			return false;
	*out = script_list(s, t->kind == TERM_LIST ? THING_LIST : t->kind == TERM_DICT ? THING_DICT : THING_TUPLE, at, t->n);
	return true;
}

static bool
eval(struct script *s, const struct term *t, uint32_t results, struct thing *out)
{
	switch (t->kind) {
	case TERM_INT:
		return *out = thing_int(t->u.i), true;
	case TERM_FLOAT:
		return *out = thing_float(t->u.f), true;
	case TERM_STR:
		return *out = thing_str(graph_str(s->g, t->name)), true;
	case TERM_NAME:
		return eval_name(s, t, out);
	case TERM_ATTR:
		return eval_attribute(s, t, out);
	case TERM_INDEX:
		return eval_index(s, t, out);
	case TERM_SLICE:
		return eval_slice(s, t, out);
	case TERM_CALL:
		return script_call_term(s, t, results, out);
	default:
		return eval_items(s, t, out);
	}
}

bool
script_eval(struct script *s, const struct term *t, uint32_t results, struct thing *out)
{
	bool ok;

	if (!script_may_nest(s, 1))
		return script_fail(s, "calls are nested too deep");
	s->nest++;
	ok = eval(s, t, results, out);
	s->nest--;
	return ok;
}
