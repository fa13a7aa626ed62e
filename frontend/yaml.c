/*
 * The part of YAML that configuration files are written in, as a JSON tree: maps and lists by indentation, scalars plain or in quotes, comments.
 * Anchors, tags, flow maps, block texts and several documents are refused. Lists may stand as deep as the key above them.
 */
#include "frontend.h"

#include <string.h>

#define DEEPEST 16u

struct yaml {
	struct ctx *c;
	struct str rest, line;     /* the line that is looked at, without comment and trailing blanks */
	uint32_t number, indent;
	bool end;
};

static bool
fail(struct yaml *y, const char *why)
{
	return diag(y->c, DIAG_YAML, y->number, why);
}

/* "# .." at the start or behind a blank, outside quotes */
static struct str
without_comment(struct str s)
{
	char quote = 0;

	for (uint32_t i = 0; i < s.n; i++) {
		if (quote)
			quote = s.p[i] == quote ? 0 : quote;
		else if (s.p[i] == '"' || s.p[i] == '\'')
			quote = s.p[i];
		else if (s.p[i] == '#' && (i == 0 || s.p[i - 1] == ' '))
			return str_sub(s, 0, i);
	}
	return s;
}

/* The next line that says something. */
static void
advance(struct yaml *y)
{
	struct str head;

	do {
		y->number++;
		if (!str_cut(&y->rest, '\n', &head)) {
			y->end = true;
			y->line = S("");
			return;
		}
		y->line = without_comment(head);
		for (y->indent = 0; y->indent < y->line.n && y->line.p[y->indent] == ' ';)
			y->indent++;
		y->line = str_trim(y->line);
	} while (!y->line.n || str_eq(y->line, S("---")));
}

static json_t
scalar(struct yaml *y, struct str s)
{
	static const struct {
		const char *text;
		uint8_t kind;
	} words[] = {
		{"null", JS_NULL}, {"~", JS_NULL}, {"", JS_NULL}, {"true", JS_TRUE}, {"True", JS_TRUE}, {"yes", JS_TRUE}, {"false", JS_FALSE}, {"False", JS_FALSE},
	};
	bool quoted = s.n >= 2 && (s.p[0] == '"' || s.p[0] == '\'') && s.p[s.n - 1] == s.p[0];
	json_t j = {.kind = JS_STRING};
	struct str text;

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (str_eq(s, str_of(words[i].text)))
			return (json_t){.kind = words[i].kind};
	if (str_int(s, &j.u.i))
		return (json_t){.kind = JS_INT, .u.i = j.u.i};
	text = str_copy(y->c->a, quoted ? str_sub(s, 1, s.n - 1) : s);
	j.n = text.n;
	j.u.s = text.p;
	return j;
}

static bool read_block(struct yaml *y, uint32_t indent, unsigned depth, json_t *out);

static bool
is_item(const struct yaml *y)
{
	return str_eq(y->line, S("-")) || str_starts(y->line, S("- "));
}

static bool
refuses(struct str s)
{
	return s.n && memchr("&*!|>{[%@`", s.p[0], 10) && !str_eq(s, S("{}")) && !str_eq(s, S("[]"));
}

static bool
read_list(struct yaml *y, uint32_t indent, json_t *out)
{
	uint32_t cap = 0;

	*out = (json_t){.kind = JS_ARRAY};
	while (!y->end && y->indent == indent && is_item(y)) {
		struct str s = str_trim(str_sub(y->line, 1, y->line.n));

		if (refuses(s) || !s.n || str_starts(s, S("- ")))
			return fail(y, "items of a list are plain words and numbers");
		ROOM(y->c->a, out->u.item, out->n, cap, 1);
		out->u.item[out->n++] = scalar(y, s);
		advance(y);
	}
	return true;
}

/* "key:" or "key: value" */
static bool
read_entry(struct yaml *y, uint32_t indent, unsigned depth, struct json_member *m)
{
	int64_t colon = str_find(y->line, ':');
	struct str value;

	if (colon <= 0 || ((uint32_t)colon + 1 < y->line.n && y->line.p[colon + 1] != ' '))
		return fail(y, "\"name: value\" is expected");
	m->key = str_copy(y->c->a, str_trim(str_sub(y->line, 0, (uint32_t)colon)));
	value = str_trim(str_sub(y->line, (uint32_t)colon + 1, y->line.n));
	if (refuses(value))
		return fail(y, "values are plain, in quotes, or blocks; anchors, tags, flow style and block texts are not read");
	advance(y);
	if (str_eq(value, S("{}")) || str_eq(value, S("[]"))) {
		m->value = (json_t){.kind = value.p[0] == '{' ? JS_OBJECT : JS_ARRAY};
		return true;
	}
	m->value = scalar(y, value);
	if (value.n || y->end || y->indent < indent || (y->indent == indent && !is_item(y)))
		return true;
	return read_block(y, y->indent, depth + 1, &m->value);
}

static bool
read_block(struct yaml *y, uint32_t indent, unsigned depth, json_t *out)
{
	uint32_t cap = 0;

	if (depth > DEEPEST)
		return fail(y, "nested too deeply");
	if (is_item(y))
		return read_list(y, indent, out);
	*out = (json_t){.kind = JS_OBJECT};
	while (!y->end && y->indent == indent) {
		ROOM(y->c->a, out->u.member, out->n, cap, 1);
		if (!read_entry(y, indent, depth, &out->u.member[out->n++]))
			return false;
	}
	return y->end || y->indent < indent || fail(y, "this line is indented further than the one above");
}

json_t *
yaml_read(struct ctx *c, struct str text)
{
	struct yaml y = {.c = c, .rest = text};
	json_t *out = NEW(c->a, json_t, 1);

	advance(&y);
	if (y.end) {
		out->kind = JS_OBJECT;
		return out;
	}
	if (!read_block(&y, y.indent, 0, out))
		return NULL;
	if (!y.end) {
		fail(&y, "this line is indented less than the first");
		return NULL;
	}
	return out;
}
