/* JSON by jansson: reading with errors that say where, and typed access. */
#include "frontend.h"

static void
release(void *p)
{
	json_decref(p);
}

json_t *
json_read(struct ctx *c, struct str text)
{
	json_error_t e;
	json_t *j = json_loadb(text.p, text.n, JSON_DECODE_ANY, &e);

	if (!j) {
		diag(c, DIAG_JSON_BAD, e.line, e.column, e.text);
		return NULL;
	}
	arena_defer(c->a, release, j);
	return j;
}

struct str
json_str(const json_t *j)
{
	if (!json_is_string(j) || json_string_length(j) > UINT32_MAX / 2)
		return S("");
	return (struct str){json_string_value(j), (uint32_t)json_string_length(j)};
}

struct str
json_get_str(const json_t *object, const char *key)
{
	return json_str(json_object_get(object, key));
}

int64_t
json_get_int(const json_t *object, const char *key, int64_t dflt)
{
	const json_t *j = json_object_get(object, key);

	return json_is_integer(j) ? json_integer_value(j) : dflt;
}

const json_t *
json_only(const json_t *object, struct str *tag)
{
	void *it = json_object_iter((json_t *)(uintptr_t)object);

	for (; it; it = json_object_iter_next((json_t *)(uintptr_t)object, it))
		if (!json_is_null(json_object_iter_value(it))) {
			*tag = str_of(json_object_iter_key(it));
			return json_object_iter_value(it);
		}
	return NULL;
}
