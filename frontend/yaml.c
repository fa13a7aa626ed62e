/*
 * YAML as a JSON tree: libyaml reads the text, this builds the tree from its events. Plain scalars are words and whole numbers as PyYAML takes them,
 * but for "no", which is a setting's own word; everything else, fractions too, stays text, which the recipe reads. A configuration file is small and
 * refers to nothing: anchors, aliases, merge keys, tags and further documents are refused, and so is what would be large.
 */
#include "frontend.h"

#include <string.h>
#include <yaml.h>

#define DEEPEST 16u
#define LARGEST (1u << 20)                 /* bytes of text */
#define WIDEST LIMIT(1024u, 4u)                       /* entries of one map or list */

struct yaml {
	struct ctx *c;
	struct str text;
	yaml_parser_t parser;
	yaml_event_t event;        /* the one that is looked at */
	struct json_member *stack; uint32_t n, cap;        /* entries of the maps and lists that are open; those of a list have no key */
};

static void
close_yaml(void *p)
{
	struct yaml *y = p;

	yaml_event_delete(&y->event);
	yaml_parser_delete(&y->parser);
}

static bool
fail(struct yaml *y, const char *why)
{
	return diag(y->c, DIAG_YAML, (unsigned)y->event.start_mark.line + 1, why);
}

/* What libyaml says; the bytes that it cannot decode have an offset, but no line. */
static bool
fail_parser(struct yaml *y)
{
	const yaml_parser_t *p = &y->parser;
	unsigned line = (unsigned)p->problem_mark.line + 1;

	if (p->error == YAML_MEMORY_ERROR)
		return diag(y->c, DIAG_NO_MEMORY);
	if (p->error == YAML_READER_ERROR) {
		line = 1;
		for (size_t i = 0; i < p->problem_offset && i < y->text.n; i++)
			line += y->text.p[i] == '\n';
	}
	return diag(y->c, DIAG_YAML, line, p->problem ? p->problem : "it cannot be read");
}

static bool
advance(struct yaml *y)
{
	yaml_event_delete(&y->event);
	return yaml_parser_parse(&y->parser, &y->event) || fail_parser(y);
}

/* ---- values --------------------------------------------------------------------------------------------------------- */

static bool
read_text(struct yaml *y, struct str *out)
{
	struct str s = {(const char *)y->event.data.scalar.value, (uint32_t)y->event.data.scalar.length};

	if (memchr(s.p, 0, s.n))
		return fail(y, "a NUL in a text");
	*out = str_copy(y->c->a, s);
	return true;
}

static bool
read_scalar(struct yaml *y, json_t *out)
{
	static const struct {
		const char *text;
		uint8_t kind;
	} words[] = {
		{"", JS_NULL}, {"~", JS_NULL}, {"null", JS_NULL}, {"Null", JS_NULL}, {"NULL", JS_NULL},
		{"true", JS_TRUE}, {"True", JS_TRUE}, {"TRUE", JS_TRUE}, {"yes", JS_TRUE}, {"Yes", JS_TRUE}, {"YES", JS_TRUE}, {"on", JS_TRUE}, {"On", JS_TRUE}, {"ON", JS_TRUE},
		{"false", JS_FALSE}, {"False", JS_FALSE}, {"FALSE", JS_FALSE}, {"off", JS_FALSE}, {"Off", JS_FALSE}, {"OFF", JS_FALSE},
	};
	bool plain = y->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	struct str s;
	int64_t n;

	if (!read_text(y, &s))
		return false;
	*out = (json_t){.kind = JS_STRING, .n = s.n, .u.s = s.p};
	if (plain && str_int(s, &n))
		*out = (json_t){.kind = JS_INT, .u.i = n};
	for (size_t i = 0; plain && i < sizeof words / sizeof words[0]; i++)
		if (str_eq(s, str_of(words[i].text)))
			*out = (json_t){.kind = words[i].kind};
	return true;
}

static bool read_value(struct yaml *y, unsigned depth, json_t *out);

/* A name, and the step to its value. Maps are narrow, so that each name is looked for among those before it. */
static bool
read_key(struct yaml *y, uint32_t first, struct str *key)
{
	if (y->event.type != YAML_SCALAR_EVENT || y->event.data.scalar.tag || y->event.data.scalar.anchor)
		return fail(y, "the name of a setting must be a plain word");
	if (!read_text(y, key))
		return false;
	if (y->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE && str_eq(*key, S("<<")))
		return fail(y, "merge keys (<<) are not read");
	for (uint32_t i = first; i < y->n; i++)
		if (str_eq(y->stack[i].key, *key))
			return fail(y, "a name stands twice in one map");
	return advance(y);
}

static bool
read_entries(struct yaml *y, bool map, unsigned depth, json_t *out)
{
	uint32_t first = y->n;

	for (;;) {
		struct json_member m = {.key = {0}};

		if (!advance(y))
			return false;
		if (y->event.type == YAML_MAPPING_END_EVENT || y->event.type == YAML_SEQUENCE_END_EVENT)
			break;
		if (y->n - first >= WIDEST)
			return fail(y, "too many entries");
		if ((map && !read_key(y, first, &m.key)) || !read_value(y, depth, &m.value))
			return false;
		ROOM(y->c->a, y->stack, y->n, y->cap, 1);
		y->stack[y->n++] = m;
	}
	*out = (json_t){.kind = map ? JS_OBJECT : JS_ARRAY, .n = y->n - first};
	if (map)
		out->u.member = NEW(y->c->a, struct json_member, out->n + 1);
	else
		out->u.item = NEW(y->c->a, json_t, out->n + 1);
	for (uint32_t i = 0; i < out->n; i++)
		if (map)
			out->u.member[i] = y->stack[first + i];
		else
			out->u.item[i] = y->stack[first + i].value;
	y->n = first;
	return true;
}

static bool
read_value(struct yaml *y, unsigned depth, json_t *out)
{
	const yaml_event_t *e = &y->event;
	bool map = e->type == YAML_MAPPING_START_EVENT, list = e->type == YAML_SEQUENCE_START_EVENT;

	if (e->type == YAML_ALIAS_EVENT || (map ? e->data.mapping_start.anchor : list ? e->data.sequence_start.anchor : e->data.scalar.anchor))
		return fail(y, "anchors and aliases are not read");
	if (map ? e->data.mapping_start.tag : list ? e->data.sequence_start.tag : e->data.scalar.tag)
		return fail(y, "tags are not read");
	if (!map && !list)
		return read_scalar(y, out);
	return depth < DEEPEST ? read_entries(y, map, depth + 1, out) : fail(y, "nested too deeply");
}

/* ---- the document ------------------------------------------------------------------------------------------------------ */

static bool
read_stream(struct yaml *y, json_t *out)
{
	if (y->text.n > LARGEST)
		return fail(y, "more than 1 MiB");
	if (!yaml_parser_initialize(&y->parser))
		return diag(y->c, DIAG_NO_MEMORY);
	yaml_parser_set_input_string(&y->parser, (const unsigned char *)y->text.p, y->text.n);
	if (!advance(y) || !advance(y))
		return false;
	if (y->event.type == YAML_STREAM_END_EVENT)
		return true;
	if (!advance(y) || !read_value(y, 0, out) || !advance(y) || !advance(y))
		return false;
	return y->event.type == YAML_STREAM_END_EVENT || fail(y, "another document follows");
}

json_t *
yaml_read(struct ctx *c, struct str text)
{
	struct yaml *y = NEW(c->a, struct yaml, 1);
	json_t *out = NEW(c->a, json_t, 1);
	bool ok;

	y->c = c;
	y->text = text;
	out->kind = JS_OBJECT;     /* nothing is no setting */
	arena_defer(c->a, close_yaml, y);
	ok = read_stream(y, out);
	arena_cancel(c->a, y);
	return ok ? out : NULL;
}
