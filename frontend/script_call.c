/* Calls: of methods, of script functions and classes, and of what the language itself has (annotate, isinstance, int, ...). */
#include "script.h"

#include <string.h>

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

static bool
eval_args(struct script *s, const struct term *call, uint32_t skip, struct args *a)
{
	uint32_t n = call->n - 1 - skip;

	a->at = NEW(s->c->a, struct thing, n + 1u);
	a->keyword = NEW(s->c->a, uint32_t, n + 1u);
	a->n = n;
	a->npos = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct term *t = call->kid[1 + skip + i];

		if (!script_eval(s, t, 1, &a->at[i]))
			return false;
		a->keyword[i] = t->keyword;
		a->npos += !t->keyword;
	}
	return true;
}

const struct thing *
args_get(const struct script *s, const struct args *a, uint32_t pos, const char *keyword)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		if (a->keyword[i] ? str_eq(graph_str(s->g, a->keyword[i]), str_of(keyword)) : k == pos)
			return &a->at[i];
		k += !a->keyword[i];
	}
	return NULL;
}

/* ---- types ------------------------------------------------------------------------------------------------------------------- */

static bool
is_type(const struct script *s, const struct thing *x, const struct term *type)
{
	static const struct {
		const char *name;
		uint8_t kind;
	} table[] = {
		{"Tensor", THING_TENSOR}, {"int", THING_INT}, {"float", THING_FLOAT}, {"bool", THING_BOOL}, {"str", THING_STR}, {"NoneType", THING_NONE}, {"List", THING_LIST},
		{"Tuple", THING_TUPLE}, {"Dict", THING_DICT}, {"list", THING_LIST}, {"tuple", THING_TUPLE}, {"dict", THING_DICT},
	};
	struct str name;

	if (type->kind == TERM_TUPLE) {
		for (uint32_t i = 0; i < type->n; i++)
			if (is_type(s, x, type->kid[i]))
				return true;
		return false;
	}
	if (type->kind == TERM_INDEX && type->kid[0]->kind == TERM_NAME)
		type = type->kid[0];
	if (type->kind == TERM_ATTR)
		return x->kind == THING_OBJECT && type->name && str_ends(graph_str(s->g, x->u.object->cls->name), graph_str(s->g, type->name));
	name = graph_str(s->g, type->name);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(name, str_of(table[i].name)))
			return x->kind == table[i].kind;
	return false;
}

static bool
call_isinstance(struct script *s, const struct term *t, struct thing *out)
{
	struct thing x;

	if (t->n != 3 || !script_eval(s, t->kid[1], 1, &x))
		return t->n == 3 ? false : script_fail(s, "isinstance takes two arguments");
	*out = x.kind == THING_UNKNOWN ? (struct thing){0} : thing_bool(is_type(s, &x, t->kid[2]));
	if (x.kind == THING_EITHER && is_type(s, &x.u.either->then, t->kid[2]) != is_type(s, &x.u.either->otherwise, t->kid[2]))
		*out = is_type(s, &x.u.either->then, t->kid[2]) ? x.u.either->cond : script_math(s, "__not__", x.u.either->cond, thing_none());
	return true;
}

/* A refinement of "None or not" says which it is. */
static struct thing
refined(const struct thing *x)
{
	if (x->kind != THING_EITHER)
		return *x;
	return x->u.either->then.kind == THING_NONE ? x->u.either->otherwise : x->u.either->then;
}

/* annotate(T, e), unchecked_cast(T, e): e; a tensor annotated as a number is read. */
static bool
call_cast(struct script *s, const struct term *t, bool unchecked, struct thing *out)
{
	struct str type;

	if (t->n != 3)
		return script_fail(s, "a cast takes a type and a value");
	if (!script_eval(s, t->kid[2], 1, out))
		return false;
	type = t->kid[1]->kind == TERM_NAME ? graph_str(s->g, t->kid[1]->name) : S("");
	if (unchecked)
		*out = refined(out);
	if (out->kind == THING_TENSOR && (str_eq(type, S("number")) || str_eq(type, S("int"))))
		*out = script_measure(s, "int", *out, thing_none(), THING_INT);
	else if (out->kind == THING_TENSOR && str_eq(type, S("float")))
		*out = script_measure(s, "float", *out, thing_none(), THING_FLOAT);
	return true;
}

/* int(x), float(x), bool(x) */
static bool
call_convert(struct script *s, struct str name, const struct args *a, struct thing *out)
{
	struct thing x = a->n ? a->at[0] : (struct thing){0};
	enum thing_kind kind = str_eq(name, S("int")) ? THING_INT : str_eq(name, S("float")) ? THING_FLOAT : THING_BOOL;

	*out = (struct thing){0};
	if (x.kind == THING_TENSOR)
		*out = script_measure(s, str_copy(s->c->a, name).p, x, thing_none(), kind);
	else if (thing_is_number(&x))
		*out = x.kind == kind ? x : script_math(s, str_copy(s->c->a, name).p, x, thing_none());
	return true;
}

/* ---- names of the language ------------------------------------------------------------------------------------------------------ */

static bool
call_fork(struct script *s, const struct args *a, struct thing *out)
{
	*out = (struct thing){0};
	if (!a->n || a->at[0].kind != THING_FUNC)
		return true;
	return script_call(s, *a->at[0].u.fn, a->at + 1, a->keyword + 1, a->n - 1, out);
}

static bool
call_getattr(struct script *s, const struct args *a, struct thing *out)
{
	if (a->n != 2 || a->at[1].kind != THING_STR)
		return script_fail(s, "getattr takes an object and a name");
	return script_attribute(s, &a->at[0], a->at[1].u.s, out);
}

/* Functions of the language that nothing in memory depends on. */
static bool
is_idle(struct str name)
{
	static const char *const names[] = {"str", "print", "sorted", "ord", "chr", "hex", "oct", "bin", "hash", "divmod", "round", "list", "dict", "tuple", "set", "device"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (str_eq(name, str_of(names[i])))
			return true;
	return false;
}

static bool
call_name(struct script *s, const struct term *t, struct str name, struct thing *out)
{
	struct args a;

	if (str_eq(name, S("isinstance")))
		return call_isinstance(s, t, out);
	if (str_eq(name, S("annotate")) || str_eq(name, S("unchecked_cast")))
		return call_cast(s, t, name.p[0] == 'u', out);
	*out = (struct thing){0};
	if (str_eq(name, S("uninitialized")))
		return true;
	if (!eval_args(s, t, 0, &a))
		return false;
	if (str_eq(name, S("getattr")))
		return call_getattr(s, &a, out);
	if (str_eq(name, S("fork")) || str_eq(name, S("awaitable")))
		return call_fork(s, &a, out);
	if (str_eq(name, S("int")) || str_eq(name, S("float")) || str_eq(name, S("bool")))
		return call_convert(s, name, &a, out);
	return is_idle(name) || script_fail(s, "%.*s is not defined", SFMT(name));
}

/* ---- classes and functions of the archive ------------------------------------------------------------------------------------------- */

static bool
call_class(struct script *s, struct class_def *d, const struct args *a, struct thing *out)
{
	struct func *init = class_func(d, graph_name(s->g, S("__init__")));
	struct object *o;
	struct thing none;

	if (str_eq(graph_str(s->g, d->base), S("NamedTuple"))) {
		*out = thing_items(s, THING_TUPLE, a->at, a->n);
		return true;
	}
	o = NEW(s->c->a, struct object, 1);
	o->cls = d;
	*out = (struct thing){.kind = THING_OBJECT, .u.object = o};
	return !init || !a->n || script_call(s, (struct closure){init, o, NULL}, a->at, a->keyword, a->n, &none);
}

static bool
call_global(struct script *s, const struct term *t, struct str path, struct thing *out)
{
	bool fresh = str_ends(path, S(".__new__"));
	struct thing fn;
	struct args a;

	if (fresh)
		path = str_sub(path, 0, path.n - 8);
	if (fresh ? !script_eval(s, t->kid[0]->kid[0], 1, &fn) : !script_eval(s, t->kid[0], 1, &fn))
		return false;
	if (!eval_args(s, t, fresh ? t->n - 1 : 0, &a) || !script_enter_call(s, t))
		return false;
	if (fn.kind == THING_CLASS)
		return call_class(s, fn.u.cls, &a, out);
	if (fn.kind == THING_FUNC)
		return script_call(s, *fn.u.fn, a.at, a.keyword, a.n, out);
	return script_fail(s, "%.*s cannot be called", SFMT(path));
}

/* ---- methods --------------------------------------------------------------------------------------------------------------------------- */

/* A packed weight of a quantised module is the tuple that it saved. */
static bool
call_on_value(struct script *s, const struct thing *o, struct str method, struct thing *out)
{
	*out = str_eq(method, S("unpack")) && o->kind == THING_TUPLE ? *o : (struct thing){0};
	(void)s;
	return true;
}

static bool
call_method(struct script *s, const struct term *t, struct thing *out)
{
	const struct term *head = t->kid[0];
	struct thing o, fn;
	struct args a;

	if (!script_eval(s, head->kid[0], 1, &o))
		return false;
	if (o.kind == THING_EITHER)
		o = refined(&o);
	if (!eval_args(s, t, 0, &a) || !script_enter_call(s, t))
		return false;
	if (o.kind != THING_OBJECT)
		return call_on_value(s, &o, graph_str(s->g, head->name), out);
	if (!script_attribute(s, &o, graph_str(s->g, head->name), &fn))
		return false;
	if (fn.kind != THING_FUNC)
		return script_fail(s, "%.*s cannot be called", SFMT(graph_str(s->g, head->name)));
	return script_call(s, *fn.u.fn, a.at, a.keyword, a.n, out);
}

static bool
call_value(struct script *s, const struct term *t, struct thing *out)
{
	struct thing fn;
	struct args a;

	if (!script_eval(s, t->kid[0], 1, &fn) || !eval_args(s, t, 0, &a) || !script_enter_call(s, t))
		return false;
	if (fn.kind == THING_CLASS)
		return call_class(s, fn.u.cls, &a, out);
	if (fn.kind != THING_FUNC)
		return script_fail(s, "something that is no function is called");
	return script_call(s, *fn.u.fn, a.at, a.keyword, a.n, out);
}

/* ---- torch.NAME and ops.NAMESPACE.NAME ---------------------------------------------------------------------------------------------------- */

static bool
call_operator(struct script *s, const struct term *t, struct str path, uint32_t results, struct thing *out)
{
	bool torch = str_starts(path, S("torch.")), found = false;
	struct str name = str_sub(path, torch ? 6 : 4, path.n), space = S("aten");
	struct args a;
	int64_t dot;

	if (!eval_args(s, t, 0, &a) || !script_enter_call(s, t))
		return false;
	script_first_use(s, &a);
	dot = torch ? -1 : str_find(name, '.');
	if (dot > 0) {
		space = str_sub(name, 0, (uint32_t)dot);
		name = str_sub(name, (uint32_t)dot + 1, name.n);
	}
	if (str_eq(space, S("aten")) || str_eq(space, S("prim"))) {
		if (!script_builtin(s, name, &a, out, &found))
			return false;
		if (found)
			return true;
	}
	if (str_eq(space, S("prim"))) {
		*out = (struct thing){0};
		return true;
	}
	if (str_eq(space, S("quantized")))
		return script_quantized(s, name, &a, results, out);
	if (!torch && !str_eq(space, S("aten")))
		name = path = str_fmt(s->c->a, "%.*s::%.*s", SFMT(space), SFMT(name));
	return script_operator(s, path, name, &a, results, out);
}

bool
script_call_term(struct script *s, const struct term *t, uint32_t results, struct thing *out)
{
	const struct term *head = t->kid[0];
	struct str path = term_path(s, head);

	if (head->kind == TERM_NAME)
		return path.n ? call_name(s, t, path, out) : call_value(s, t, out);
	if (str_starts(path, S("torch.")) || str_starts(path, S("ops.")))
		return call_operator(s, t, path, results, out);
	if (str_starts(path, S("__torch__.")))
		return call_global(s, t, path, out);
	return head->kind == TERM_ATTR ? call_method(s, t, out) : call_value(s, t, out);
}
