/*
 * Recipes as JSON: {"precision": "bf16", "freeze": ["vision"], "dims": {"batch": 8}, "lora": {"r": 8, "targets": "all-linear"}}.
 * Objects are flattened to the dotted keys of recipe.def; every unknown key or value is an error that names it.
 */
#include "frontend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 2e8 is a whole number to whoever wrote it. */
static struct str
real_text(struct ctx *c, double f)
{
	struct str s = str_fmt(c->a, "%.15g", f);

	if (fabs(f) < 9e15 && f == floor(f))
		return str_fmt(c->a, "%lld", (long long)f);
	return strtod(s.p, NULL) == f && str_find(s, 'e') < 0 ? s : str_fmt(c->a, "%.17f", f);
}

struct str
json_text_of(struct ctx *c, const json_t *j)
{
	if (json_is_string(j))
		return json_str(j);
	if (json_is_integer(j))
		return str_fmt(c->a, "%lld", (long long)json_integer_value(j));
	if (json_is_real(j))
		return real_text(c, json_real_value(j));
	if (json_is_boolean(j))
		return json_is_true(j) ? S("true") : S("false");
	return json_is_null(j) ? S("null") : json_is_array(j) ? S("a list") : S("an object");
}

/* A list may be given as one string; lora.targets tells the two apart. */
bool
recipe_set_list(struct ctx *c, struct recipe *r, unsigned key, const json_t *j)
{
	struct recipe_value v = {.set = true, .i = json_is_string(j)};
	size_t n = json_is_array(j) ? json_array_size(j) : 1;

	v.list = NEW(c->a, struct str, n + 1);
	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_is_array(j) ? json_array_get(j, i) : j;
		struct str text = json_text_of(c, item);

		if (!json_is_string(item))
			return diag(c, DIAG_BAD_VALUE, key_info(key)->name, SFMT(text), "a list of strings");
		v.list[v.nlist++] = str_copy(c->a, text);
	}
	r->v[key] = v;
	return true;
}

static bool
set_value(struct ctx *c, struct recipe *r, unsigned key, const json_t *j)
{
	struct str text = json_text_of(c, j);

	if (key_info(key)->type == RT_LIST)
		return recipe_set_list(c, r, key, j);
	if (json_is_null(j)) {     /* null = the default */
		struct recipe dflt;

		recipe_init(&dflt);
		r->v[key] = dflt.v[key];
		return true;
	}
	return recipe_set_text(c, r, key, text);
}

/* As it stands in the file: 2.0, not 2. */
static struct str
number_text(struct ctx *c, const json_t *j)
{
	double f = json_real_value(j);

	if (!json_is_real(j))
		return json_text_of(c, j);
	return str_fmt(c->a, f > -1e15 && f < 1e15 && f == (double)(int64_t)f ? "%.1f" : "%g", f);
}

/* Of two members with one name the later would count, and nobody would know. */
bool
names_are_unique(struct ctx *c, const json_t *object)
{
	return !object->repeats || diag(c, DIAG_RECIPE_CONFLICT, str_fmt(c->a, "%.*s is given twice", SFMT(object->u.member[object->n].key)).p);
}

static bool
set_dims(struct ctx *c, struct recipe *r, const json_t *dims)
{
	const char *name;
	json_t *value;

	if (!json_is_object(dims))
		return diag(c, DIAG_BAD_VALUE, "dims", SFMT(number_text(c, dims)), "an object of names and whole numbers");
	if (!names_are_unique(c, dims))
		return false;
	json_object_foreach((json_t *)(uintptr_t)dims, name, value) {
		if (!json_is_integer(value)) {
			struct str text = str_fmt(c->a, "%s = %.*s", name, SFMT(number_text(c, value)));

			return diag(c, DIAG_BAD_VALUE, "dims", SFMT(text), "a whole number from 1 to 281474976710656");
		}
		if (!recipe_set_dim(c, r, str_of(name), json_integer_value(value)))
			return false;
	}
	return true;
}

static bool
is_prefix(struct str name)
{
	for (unsigned k = 1; k < RK_COUNT; k++) {
		struct str key = str_of(key_info(k)->name);

		if (str_starts(key, name) && key.n > name.n && key.p[name.n] == '.')
			return true;
	}
	return false;
}

static bool
unknown_key(struct ctx *c, struct str name)
{
	struct str known = recipe_key_list(c);

	return diag(c, DIAG_UNKNOWN_KEY, SFMT(name), SFMT(known));
}

static bool
set_object(struct ctx *c, struct recipe *r, struct str prefix, const json_t *object)
{
	const char *name;
	json_t *value;

	if (!names_are_unique(c, object))
		return false;
	json_object_foreach((json_t *)(uintptr_t)object, name, value) {
		struct str full = str_fmt(c->a, "%.*s.%s", SFMT(prefix), name);
		unsigned key = key_by_name(full);

		if (!key)
			return unknown_key(c, full);
		if (!set_value(c, r, key, value))
			return false;
	}
	return true;
}

static bool
set_named(struct ctx *c, struct recipe *r, struct str name, const json_t *value)
{
	unsigned key = key_by_name(name);

	if (str_eq(name, S("dims")))
		return set_dims(c, r, value);
	if (key)
		return set_value(c, r, key, value);
	if (!is_prefix(name))
		return unknown_key(c, name);
	if (json_is_null(value) || json_is_false(value))
		return true;
	if (!json_is_object(value))
		return diag(c, DIAG_BAD_VALUE, str_copy(c->a, name).p, SFMT(json_text_of(c, value)), "an object");
	return set_object(c, r, name, value);
}

bool
recipe_read_json(struct ctx *c, struct recipe *r, struct str text)
{
	json_t *doc = json_read(c, text), *value;
	const char *name;

	if (!doc)
		return false;
	if (!json_is_object(doc))
		return diag(c, DIAG_JSON_FIELD, SFMT(S("recipe")), "an object");
	if (!names_are_unique(c, doc))
		return false;
	json_object_foreach(doc, name, value)
		if (!set_named(c, r, str_of(name), value))
			return false;
	return true;
}

/* --freeze a --freeze b: flags of a list add up. */
static bool
set_flag(struct ctx *c, struct recipe *r, unsigned key, struct str text)
{
	struct recipe_value old = r->v[key], *v = &r->v[key];
	struct str *both;

	if (!recipe_set_text(c, r, key, text))
		return false;
	if (old.by_flag && v->nlist) {
		both = NEW(c->a, struct str, old.nlist + v->nlist);
		memcpy(both, old.list, old.nlist * sizeof *both);
		memcpy(both + old.nlist, v->list, v->nlist * sizeof *both);
		v->list = both;
		v->nlist += old.nlist;
	}
	v->by_flag = key_info(key)->type == RT_LIST;
	return true;
}

/* A flag's value: JSON where it is an object or a list ("--lora '{...}'"), else text; "--dim batch=8,seq=2048". */
bool
recipe_set_json(struct ctx *c, struct recipe *r, struct str name, struct str text)
{
	unsigned key = key_by_name(name);
	json_t *doc;

	if ((!str_starts(text, S("{")) && !str_starts(text, S("["))) || (key && key_info(key)->type == RT_TEXT)) {
		if (!key)
			return unknown_key(c, name);
		return set_flag(c, r, key, text);
	}
	doc = json_read(c, text);
	return doc && set_named(c, r, name, doc);
}
