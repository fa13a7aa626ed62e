/*
 * The JSON reader. It works on a copy of the text, in which strings are decoded where they stand; it does not recurse, and all that it makes is in
 * the arena, so that running out of memory leaves by the door. As RFC 8259 says, with UTF-8 checked and \u0000 refused; whole numbers have 64 bits.
 * What Python's own writer makes may also hold Infinity, -Infinity and NaN.
 */
#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_FACTOR 32u                   /* a nested graph is some objects deep */
#define HASH_FROM 12u                      /* members from which a table pays */

struct open {
	uint32_t first;            /* its first entry on the stack; the one below is its own */
	bool object;
};

struct reader {
	struct ctx *c;
	struct str text;           /* as it was */
	char *begin, *p, *end;     /* the copy */
	bool python;               /* numbers that are none are allowed */
	struct str key;            /* of the value that is due */
	struct json_member *stack; uint32_t n, cap;
	struct open *open;         uint32_t nopen, open_cap;
};

static bool
fail(struct reader *r, const char *why)
{
	int line = 1, column = 1;

	for (const char *p = r->text.p; p < r->text.p + (r->p - r->begin); p++) {
		column = *p == '\n' ? 1 : column + 1;
		line += *p == '\n';
	}
	return diag(r->c, DIAG_JSON_BAD, line, column, why);
}

static void
skip(struct reader *r)
{
	while (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')
		r->p++;
}

/* ---- strings ------------------------------------------------------------------------------------------------------- */

static char *
put_utf8(char *out, uint32_t u)
{
	if (u < 0x80) {
		*out++ = (char)u;
	} else if (u < 0x800) {
		*out++ = (char)(0xc0 | u >> 6);
		*out++ = (char)(0x80 | (u & 63));
	} else if (u < 0x10000) {
		*out++ = (char)(0xe0 | u >> 12);
		*out++ = (char)(0x80 | (u >> 6 & 63));
		*out++ = (char)(0x80 | (u & 63));
	} else {
		*out++ = (char)(0xf0 | u >> 18);
		*out++ = (char)(0x80 | (u >> 12 & 63));
		*out++ = (char)(0x80 | (u >> 6 & 63));
		*out++ = (char)(0x80 | (u & 63));
	}
	return out;
}

/* The four digits behind a "\u" at p. */
static bool
read_hex(const char *p, uint32_t *out)
{
	*out = 0;
	if (p[0] != '\\' || p[1] != 'u')
		return false;
	for (unsigned i = 2; i < 6; i++) {
		unsigned char d = (unsigned char)p[i], v = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : 16;

		if (v > 15)
			return false;
		*out = *out << 4 | v;
	}
	return true;
}

static bool
read_unicode(struct reader *r, char **out)
{
	uint32_t u, low;

	if (!read_hex(r->p, &u))
		return fail(r, "\\u needs four hexadecimal digits");
	if (!u)
		return fail(r, "\\u0000 is not allowed");
	if (u >= 0xdc00 && u < 0xe000)
		return fail(r, "half of a surrogate pair");
	r->p += 6;
	if (u >= 0xd800 && u < 0xdc00) {
		if (!read_hex(r->p, &low) || low < 0xdc00 || low > 0xdfff)
			return fail(r, "half of a surrogate pair");
		r->p += 6;
		u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
	}
	*out = put_utf8(*out, u);
	return true;
}

static bool
read_escape(struct reader *r, char **out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;

	if (r->p[1] == 'u')
		return read_unicode(r, out);
	at = r->p[1] ? strchr(from, r->p[1]) : NULL;
	if (!at)
		return fail(r, "no such escape");
	*(*out)++ = to[at - from];
	r->p += 2;
	return true;
}

/* Behind the opening quote; what it decodes to is never longer. */
static bool
read_string(struct reader *r, struct str *s)
{
	char *begin = r->p, *out = begin;

	while (*r->p != '"') {
		uint32_t n;

		if (*r->p == '\\') {
			if (!read_escape(r, &out))
				return false;
			continue;
		}
		if ((unsigned char)*r->p < 0x20)
			return fail(r, r->p == r->end ? "the text ends within a string" : "a control character in a string");
		n = utf8_length(r->p, (uint32_t)(r->end - r->p));
		if (!n)
			return fail(r, "not UTF-8");
		while (n--)
			*out++ = *r->p++;
	}
	r->p++;
	*out = 0;
	*s = (struct str){begin, (uint32_t)(out - begin)};
	return true;
}

/* ---- numbers and words ------------------------------------------------------------------------------------------------ */

static void
digits(struct reader *r)
{
	while (*r->p >= '0' && *r->p <= '9')
		r->p++;
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Where they end; NULL = there is none. Nothing asks how large infinity is, so that it is a large number. */
static char *
read_no_number(const struct reader *r, json_t *j)
{
	static const struct {
		const char *text;
		double f;
	} words[] = {{"Infinity", 1e308}, {"-Infinity", -1e308}, {"NaN", 0}};

	for (size_t i = 0; r->python && i < sizeof words / sizeof words[0]; i++)
		if (strncmp(r->p, words[i].text, strlen(words[i].text)) == 0) {
			*j = (json_t){.kind = JS_REAL, .u.f = words[i].f};
			return r->p + strlen(words[i].text);
		}
	return NULL;
}

static bool
read_number(struct reader *r, json_t *j)
{
	char *begin = r->p;
	bool real = false;

	r->p += *r->p == '-';
	if (!is_digit(*r->p) || (*r->p == '0' && is_digit(r->p[1])))
		return fail(r, "a value is missing");
	digits(r);
	if (*r->p == '.' && is_digit(r->p[1])) {
		real = true;
		r->p++;
		digits(r);
	}
	if (*r->p == 'e' || *r->p == 'E') {
		char *exponent = r->p + 1 + (r->p[1] == '+' || r->p[1] == '-');

		if (!is_digit(*exponent))
			return fail(r, "an exponent without digits");
		real = true;
		r->p = exponent;
		digits(r);
	}
	*j = (json_t){.kind = real ? JS_REAL : JS_INT};
	if (!real)
		return str_int((struct str){begin, (uint32_t)(r->p - begin)}, &j->u.i) || fail(r, "a whole number beyond 64 bits");
	j->u.f = strtod(begin, NULL);
	return isfinite(j->u.f) || fail(r, "a number that is too large");
}

static bool
read_word(struct reader *r, json_t *j)
{
	static const char *const words[] = {[JS_NULL] = "null", [JS_FALSE] = "false", [JS_TRUE] = "true"};

	for (uint8_t k = JS_NULL; k <= JS_TRUE; k++)
		if (strncmp(r->p, words[k], strlen(words[k])) == 0) {
			*j = (json_t){.kind = k};
			r->p += strlen(words[k]);
			return true;
		}
	return fail(r, r->p == r->end ? "the text ends where a value is due" : "a value is missing");
}

/* ---- arrays and objects ------------------------------------------------------------------------------------------------ */

static void
push(struct reader *r, json_t j)
{
	ROOM(r->c->a, r->stack, r->n, r->cap, 1);
	r->stack[r->n++] = (struct json_member){r->key, j};
	r->key = S("");
}

static bool
read_key(struct reader *r)
{
	skip(r);
	if (*r->p != '"')
		return fail(r, r->p == r->end ? "the text ends within an object" : "the name of a member is missing");
	r->p++;
	if (!read_string(r, &r->key))
		return false;
	skip(r);
	if (*r->p != ':')
		return fail(r, "a colon is missing");
	r->p++;
	return true;
}

/* n members are left; recipes want to know that there were more. */
static void
note_repeated(json_t *j, uint32_t n, struct str again)
{
	j->repeats = n < j->n;
	if (j->repeats)
		j->u.member[n].key = again;
	j->n = n;
}

/* Members with a name that comes again are dropped, then the table is made. */
static void
index_members(struct reader *r, json_t *j)
{
	struct json_member *m = j->u.member;
	struct str again = S("");
	uint32_t size = 16, n = 0;

	while (size < j->n * 2)
		size *= 2;
	j->slot = NEW(r->c->a, uint32_t, size);
	j->mask = size - 1;
	for (uint32_t i = 0; i < j->n; i++) {
		uint32_t k = (uint32_t)str_hash((uintptr_t)j->slot, m[i].key) & j->mask;

		while (j->slot[k] && !str_eq(m[j->slot[k] - 1].key, m[i].key))
			k = (k + 1) & j->mask;
		if (j->slot[k]) {
			m[j->slot[k] - 1].value = m[i].value;
			again = m[i].key;
			continue;
		}
		m[n] = m[i];
		j->slot[k] = ++n;
	}
	note_repeated(j, n, again);
}

static void
drop_repeated(json_t *j)
{
	struct json_member *m = j->u.member;
	struct str again = S("");
	uint32_t n = 0, k;

	for (uint32_t i = 0; i < j->n; i++) {
		for (k = 0; k < n && !str_eq(m[k].key, m[i].key);)
			k++;
		if (k < n)
			again = m[i].key;
		m[k].value = m[i].value;
		m[k].key = m[i].key;
		n += k == n;
	}
	note_repeated(j, n, again);
}

/* What lies on the stack since it was opened becomes its entries. */
static void
finish(struct reader *r)
{
	struct open o = r->open[--r->nopen];
	json_t *j = &r->stack[o.first - 1].value;
	uint32_t n = r->n - o.first;

	*j = (json_t){.kind = o.object ? JS_OBJECT : JS_ARRAY, .n = n};
	if (o.object) {
		j->u.member = NEW(r->c->a, struct json_member, n + 1);
		memcpy(j->u.member, r->stack + o.first, n * sizeof *j->u.member);
		if (n >= HASH_FROM)
			index_members(r, j);
		else
			drop_repeated(j);
	} else {
		j->u.item = NEW(r->c->a, json_t, n + 1);
		for (uint32_t i = 0; i < n; i++)
			j->u.item[i] = r->stack[o.first + i].value;
	}
	r->n = o.first;
}

/* done: a value is complete; else the next one is due */
static bool
read_open(struct reader *r, bool *done)
{
	bool object = *r->p++ == '{';

	if (r->nopen >= r->c->lim.depth * DEPTH_FACTOR)
		return fail(r, "nested too deeply");
	push(r, (json_t){0});
	ROOM(r->c->a, r->open, r->nopen, r->open_cap, 1);
	r->open[r->nopen++] = (struct open){r->n, object};
	skip(r);
	*done = *r->p == (object ? '}' : ']');
	if (*done) {
		r->p++;
		finish(r);
		return true;
	}
	return !object || read_key(r);
}

static bool
read_value(struct reader *r, bool *done)
{
	struct str s;
	json_t j;
	char *end;

	skip(r);
	*done = true;
	if (*r->p == '{' || *r->p == '[')
		return read_open(r, done);
	if (*r->p == '"') {
		struct str key = r->key;

		r->p++;
		if (!read_string(r, &s))
			return false;
		r->key = key;
		j = (json_t){.kind = JS_STRING, .n = s.n, .u.s = s.p};
	} else if ((end = read_no_number(r, &j))) {
		r->p = end;
	} else if (!(*r->p == '-' || is_digit(*r->p) ? read_number(r, &j) : read_word(r, &j))) {
		return false;
	}
	push(r, j);
	return true;
}

/* Behind a value: closes what ends here; true with nopen > 0: another value is due. */
static bool
read_behind(struct reader *r)
{
	while (r->nopen) {
		bool object = r->open[r->nopen - 1].object;

		skip(r);
		if (*r->p == ',') {
			r->p++;
			return !object || read_key(r);
		}
		if (*r->p != (object ? '}' : ']'))
			return fail(r, r->p == r->end ? "the text ends too early" : object ? "a comma or } is missing" : "a comma or ] is missing");
		r->p++;
		finish(r);
	}
	return true;
}

static json_t *
read_text(struct ctx *c, struct str text, bool python)
{
	struct reader r = {.c = c, .text = text, .python = python};
	bool done;

	r.begin = r.p = NEW(c->a, char, (size_t)text.n + 8);
	if (text.n)
		memcpy(r.p, text.p, text.n);
	r.end = r.p + text.n;
	if (str_starts(text, S("\xef\xbb\xbf")))
		r.p += 3;          /* some editors' mark that this is UTF-8 */
	do {
		if (!read_value(&r, &done) || (done && !read_behind(&r)))
			return NULL;
	} while (r.nopen);
	skip(&r);
	if (r.p != r.end) {
		fail(&r, "something follows the value");
		return NULL;
	}
	return &r.stack[0].value;
}

json_t *
json_read(struct ctx *c, struct str text)
{
	return read_text(c, text, false);
}

json_t *
json_read_python(struct ctx *c, struct str text)
{
	return read_text(c, text, true);
}

/* ---- access ---------------------------------------------------------------------------------------------------------------- */

json_t *
json_member(const json_t *j, struct str key)
{
	if (!json_is_object(j))
		return NULL;
	if (!j->slot) {
		for (uint32_t i = 0; i < j->n; i++)
			if (str_eq(j->u.member[i].key, key))
				return &j->u.member[i].value;
		return NULL;
	}
	for (uint32_t k = (uint32_t)str_hash((uintptr_t)j->slot, key) & j->mask; j->slot[k]; k = (k + 1) & j->mask)
		if (str_eq(j->u.member[j->slot[k] - 1].key, key))
			return &j->u.member[j->slot[k] - 1].value;
	return NULL;
}

struct str
json_str(const json_t *j)
{
	return json_is_string(j) ? (struct str){j->u.s, j->n} : S("");
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

	return json_is_integer(j) ? j->u.i : dflt;
}

const json_t *
json_only(const json_t *object, struct str *tag)
{
	for (uint32_t i = 0; json_is_object(object) && i < object->n; i++)
		if (!json_is_null(&object->u.member[i].value)) {
			*tag = object->u.member[i].key;
			return &object->u.member[i].value;
		}
	return NULL;
}
