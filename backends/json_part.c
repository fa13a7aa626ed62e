/* Pieces of JSON that reports and sweeps share. */
#include "json_part.h"

#include "../ir/api.h"

static void
put(json_t *o, const char *key, json_t *v)
{
	json_object_set_new(o, key, v);
}

json_t *
json_text(struct str s)
{
	json_t *j = json_stringn(s.n ? s.p : "", s.n);

	return j ? j : json_string("(not UTF-8)");
}

json_t *
json_bytes(uint64_t n)
{
	return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

json_t *
json_texts(const struct str *s, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_text(s[i]));
	return list;
}

json_t *
json_factors(const struct factors *f)
{
	json_t *o = json_object();

	put(o, "param", json_bytes(f->of[FAC_PARAM]));
	put(o, "grad", json_bytes(f->of[FAC_GRAD]));
	put(o, "opt", json_bytes(f->of[FAC_OPT]));
	put(o, "act", json_bytes(factors_act(f)));
	return o;
}

json_t *
json_range(uint64_t low, uint64_t high)
{
	json_t *o = json_object();

	put(o, "low", json_bytes(low));
	put(o, "high", json_bytes(high));
	return o;
}

json_t *
json_verdict(const struct verdict *v)
{
	json_t *o;

	if (!v->asked)
		return json_null();
	o = json_object();
	put(o, "fits", json_boolean(v->fits));
	put(o, "budget", json_bytes(v->budget));
	put(o, "margin", json_integer(v->margin));
	put(o, "sure", json_boolean(v->sure));
	return o;
}

/* ---- recipe -------------------------------------------------------------------------------------------------- */

static json_t *
recipe_value(const struct recipe *r, unsigned key)
{
	const struct recipe_value *v = &r->v[key];
	struct str s;

	switch (key_info(key)->type) {
	case RT_CHOICE:
		s = choice_text(key, v->i);
		if (str_eq(s, S("false")) || str_eq(s, S("true")))
			return json_boolean(s.p[0] == 't');
		return json_text(s);
	case RT_BOOL:
		return json_boolean(v->i);
	case RT_INT:
	case RT_BYTES:
		return json_integer(v->i);
	case RT_FLOAT:
		return json_real(v->f);
	case RT_LIST:
		return v->i && v->nlist == 1 ? json_text(v->list[0]) : json_texts(v->list, v->nlist);
	default:
		return json_text(v->text);
	}
}

json_t *
json_recipe(const struct recipe *r)
{
	json_t *o = json_object(), *dims = json_object();

	for (unsigned k = 1; k < RK_COUNT; k++) {
		struct str rest = str_of(key_info(k)->name), head = S("");
		json_t *at = o;
		char outer[64];

		str_cut(&rest, '.', &head);
		if (rest.p && head.n < sizeof outer) {
			struct buf b = {.p = outer, .cap = sizeof outer};

			buf_str(&b, head);
			buf_put(&b, "", 1);
			if (!json_object_get(o, outer))
				put(o, outer, json_object());
			at = json_object_get(o, outer);
			put(at, rest.p, recipe_value(r, k));
			continue;
		}
		put(at, key_info(k)->name, recipe_value(r, k));
	}
	for (uint32_t i = 0; i < r->ndim; i++)
		put(dims, r->dims[i].name.p, json_integer(r->dims[i].value));
	put(o, "dims", dims);
	return o;
}

/* ---- printing ------------------------------------------------------------------------------------------------ */

static int
sink(const char *p, size_t n, void *user)
{
	buf_put(user, p, n);
	return ((struct buf *)user)->failed ? -1 : 0;
}

bool
json_print(const json_t *o, struct buf *b)
{
	bool ok = o && json_dump_callback(o, sink, b, JSON_INDENT(1)) == 0;

	buf_str(b, S("\n"));
	return ok && !b->failed;
}
