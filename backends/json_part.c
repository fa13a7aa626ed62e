/* Pieces of JSON that reports and sweeps share. */
#include "json_part.h"

#include "../ir/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct str
printable(struct str s)
{
	return str_is_utf8(s) ? (struct str){s.n ? s.p : "", s.n} : S("(not UTF-8)");
}

static void
lost(json_t **o)
{
	json_decref(*o);
	*o = NULL;
}

void
json_put_named(json_t **o, struct str key, json_t *v)
{
	key = printable(key);
	if (json_object_setn_new_nocheck(*o, key.p, key.n, v))
		lost(o);
}

void
json_put(json_t **o, const char *key, json_t *v)
{
	json_put_named(o, str_of(key), v);
}

void
json_add(json_t **list, json_t *v)
{
	if (json_array_append_new(*list, v))
		lost(list);
}

json_t *
json_text(struct str s)
{
	s = printable(s);
	return json_stringn_nocheck(s.p, s.n);
}

json_t *
json_fmt(const char *fmt, ...)
{
	char *text = NULL;
	json_t *out;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return NULL;
	out = json_text((struct str){text, (uint32_t)n});
	free(text);
	return out;
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
		json_add(&list, json_text(s[i]));
	return list;
}

json_t *
json_factors(const struct factors *f)
{
	json_t *o = json_object();

	json_put(&o, "param", json_bytes(f->of[FAC_PARAM]));
	json_put(&o, "grad", json_bytes(f->of[FAC_GRAD]));
	json_put(&o, "opt", json_bytes(f->of[FAC_OPT]));
	json_put(&o, "act", json_bytes(factors_act(f)));
	return o;
}

json_t *
json_range(uint64_t low, uint64_t high)
{
	json_t *o = json_object();

	json_put(&o, "low", json_bytes(low));
	json_put(&o, "high", json_bytes(high));
	return o;
}

json_t *
json_verdict(const struct verdict *v)
{
	json_t *o;

	if (!v->asked)
		return json_null();
	o = json_object();
	json_put(&o, "fits", json_boolean(v->fits));
	json_put(&o, "budget", json_bytes(v->budget));
	json_put(&o, "margin", json_integer(v->margin));
	json_put(&o, "sure", json_boolean(v->sure));
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

/* "a.b" is b in the object a. */
static void
put_key(json_t **o, struct str name, json_t *v)
{
	struct str outer = S(""), inner = name;
	json_t *at;

	str_cut(&inner, '.', &outer);
	if (!inner.p) {
		json_put_named(o, name, v);
		return;
	}
	if (!json_object_getn(*o, outer.p, outer.n))
		json_put_named(o, outer, json_object());
	at = json_object_getn(*o, outer.p, outer.n);
	if (json_object_setn_new_nocheck(at, inner.p, inner.n, v))
		lost(o);
}

json_t *
json_recipe(const struct recipe *r)
{
	json_t *o = json_object(), *dims = json_object();

	for (unsigned k = 1; k < RK_COUNT; k++)
		put_key(&o, str_of(key_info(k)->name), recipe_value(r, k));
	for (uint32_t i = 0; i < r->ndim; i++)
		json_put_named(&dims, r->dims[i].name, json_integer(r->dims[i].value));
	json_put(&o, "dims", dims);
	return o;
}

/* ---- printing ------------------------------------------------------------------------------------------------ */

static int
sink(const char *p, size_t n, void *user)
{
	buf_put(user, p, n);
	return ((struct buf *)user)->failed ? -1 : 0;
}

json_t *
json_table(const char *schema, const struct sweep_table *s)
{
	json_t *o = json_object(), *tool = json_object();

	json_put(&o, "schema", json_string(schema));
	json_put(&o, "schema_version", json_integer(1));
	json_put(&tool, "name", json_string("memcrest"));
	json_put(&tool, "version", json_string(MC_VERSION));
	json_put(&o, "tool", tool);
	json_put(&o, "file", json_text(s->file));
	json_put(&o, "recipe", json_recipe(s->base));
	return o;
}

bool
json_print(json_t *o, struct buf *b)
{
	bool ok = o && json_dump_callback(o, sink, b, JSON_INDENT(1)) == 0;

	json_decref(o);
	buf_str(b, S("\n"));
	return ok && !b->failed;
}

void
json_line(const json_t *o, struct buf *b)
{
	if (!o || json_dump_callback(o, sink, b, JSON_COMPACT | JSON_ENCODE_ANY))
		b->failed = true;
}

/* ---- documents with a long list ---------------------------------------------------------------------------------- */

/* All but the last two bytes, which wait. */
static int
hold_back(const char *p, size_t n, void *user)
{
	struct json_stream *s = user;

	for (size_t i = 0; i < n; i++) {
		if (s->nheld == 2) {
			buf_put(s->b, s->held, 1);
			s->held[0] = s->held[1];
			s->nheld = 1;
		}
		s->held[s->nheld++] = p[i];
	}
	return s->b->failed ? -1 : 0;
}

void
json_stream_open(struct json_stream *s, json_t *head, struct buf *b)
{
	*s = (struct json_stream){.b = b};
	if (!head || json_dump_callback(head, hold_back, s, JSON_COMPACT))
		b->failed = true;
	json_decref(head);
}

void
json_stream_item(struct json_stream *s, json_t *item)
{
	buf_str(s->b, s->more ? S(",\n") : S("\n"));
	s->more = true;
	json_line(item, s->b);
	json_decref(item);
}

bool
json_stream_close(struct json_stream *s)
{
	buf_str(s->b, S("\n"));
	buf_put(s->b, s->held, s->nheld);
	buf_str(s->b, S("\n"));
	return !s->b->failed;
}
