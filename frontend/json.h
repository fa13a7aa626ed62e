/*
 * JSON as a tree in the arena, read only. Objects keep the order of the text; of two members with one name the later counts.
 * The functions have the names of the library jansson's, which writes the reports, and take NULL for "not there".
 */
#ifndef MC_JSON_H
#define MC_JSON_H

#include "../ir/ir.h"

enum json_kind { JS_NULL, JS_FALSE, JS_TRUE, JS_INT, JS_REAL, JS_STRING, JS_ARRAY, JS_OBJECT };

typedef struct json json_t;
struct json {
	uint8_t kind;
	bool repeats;              /* OBJECT: a name came again; member[n].key is such a one */
	uint32_t n;                /* STRING: bytes; ARRAY, OBJECT: entries */
	union {
		int64_t i;
		double f;
		const char *s;     /* NUL-terminated, no NUL within */
		json_t *item;
		struct json_member *member;
	} u;
	uint32_t *slot, mask;      /* OBJECT with many members: hash table of indices + 1 */
};

struct json_member {
	struct str key;            /* NUL-terminated */
	json_t value;
};

json_t *json_read(struct ctx *, struct str text);                /* NULL: reported */
json_t *json_read_python(struct ctx *, struct str text);         /* with Infinity and NaN, which Python's json writes */
json_t *json_member(const json_t *object, struct str key);
struct str json_str(const json_t *);                             /* empty if it is no string */
const json_t *json_only(const json_t *object, struct str *tag);  /* the single non-null entry of a tagged union, NULL = none */
struct str json_get_str(const json_t *object, const char *key);
int64_t json_get_int(const json_t *object, const char *key, int64_t dflt);

static inline json_t *
json_object_get(const json_t *object, const char *key)
{
	return json_member(object, str_of(key));
}

static inline bool
json_is(const json_t *j, unsigned kind)
{
	return j && j->kind == kind;
}

#define json_is_null(j) json_is((j), JS_NULL)
#define json_is_true(j) json_is((j), JS_TRUE)
#define json_is_false(j) json_is((j), JS_FALSE)
#define json_is_boolean(j) (json_is((j), JS_TRUE) || json_is((j), JS_FALSE))
#define json_is_integer(j) json_is((j), JS_INT)
#define json_is_real(j) json_is((j), JS_REAL)
#define json_is_string(j) json_is((j), JS_STRING)
#define json_is_array(j) json_is((j), JS_ARRAY)
#define json_is_object(j) json_is((j), JS_OBJECT)

static inline size_t
json_array_size(const json_t *j)
{
	return json_is_array(j) ? j->n : 0;
}

static inline json_t *
json_array_get(const json_t *j, size_t i)
{
	return i < json_array_size(j) ? &j->u.item[i] : NULL;
}

static inline int64_t
json_integer_value(const json_t *j)
{
	return json_is_integer(j) ? j->u.i : 0;
}

static inline double
json_real_value(const json_t *j)
{
	return json_is_real(j) ? j->u.f : 0;
}

static inline double
json_number_value(const json_t *j)
{
	return json_is_integer(j) ? (double)j->u.i : json_real_value(j);
}

static inline bool
json_pair(const json_t *object, uint32_t i, const char **key, json_t **value)
{
	if (!json_is_object(object) || i >= object->n)
		return false;
	*key = object->u.member[i].key.p;
	*value = &object->u.member[i].value;
	return true;
}

#define json_object_foreach(object, key, value) for (uint32_t key##_at = 0; json_pair((object), key##_at, &(key), &(value)); key##_at++)

#endif
