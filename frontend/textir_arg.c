/* Words, values, types and arguments of the text form (textir.c). */
#include "textir.h"

#include <stdlib.h>
#include <string.h>

/* ---- words ------------------------------------------------------------------------------------------------ */

bool
text_fail(struct reader *r, const char *why)
{
	if (!r->error) {
		r->error = why;
		diag(r->c, DIAG_TEXT_IR, r->line, why);
	}
	return false;
}

void
text_skip(struct reader *r)
{
	while (r->s.n && (r->s.p[0] == ' ' || r->s.p[0] == '\t'))
		r->s = str_sub(r->s, 1, r->s.n);
}

bool
text_accept(struct reader *r, const char *text)
{
	text_skip(r);
	if (!str_starts(r->s, str_of(text)))
		return false;
	r->s = str_sub(r->s, (uint32_t)strlen(text), r->s.n);
	return true;
}

bool
text_expect(struct reader *r, const char *text)
{
	return text_accept(r, text) ? true : text_fail(r, str_fmt(r->c->a, "%s expected before \"%.*s\"", text, (int)(r->s.n < 20 ? r->s.n : 20), r->s.p).p);
}

static bool
is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

struct str
text_word(struct reader *r)
{
	uint32_t n = 0;
	struct str w;

	text_skip(r);
	while (n < r->s.n && is_plain(r->s.p[n]))
		n++;
	w = str_sub(r->s, 0, n);
	r->s = str_sub(r->s, n, r->s.n);
	return w;
}

static int
hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool
text_quoted(struct reader *r, struct str *out)
{
	uint32_t n = 0, i = 0, end = 0;
	char *p;

	if (!text_accept(r, "\""))
		return text_fail(r, "a quoted text is expected");
	while (end < r->s.n && r->s.p[end] != '"')
		end += r->s.p[end] == '\\' ? 2 : 1;
	if (end >= r->s.n)
		return text_fail(r, "a quoted text has no end");
	for (p = NEW(r->c->a, char, end + 1); i < end; i++) {
		char ch = r->s.p[i];

		if (ch == '\\' && i + 3 < end && r->s.p[i + 1] == 'x' && hex(r->s.p[i + 2]) >= 0 && hex(r->s.p[i + 3]) >= 0) {
			ch = (char)(hex(r->s.p[i + 2]) * 16 + hex(r->s.p[i + 3]));
			i += 3;
		} else if (ch == '\\') {
			ch = r->s.p[++i];
		}
		p[n++] = ch;
	}
	r->s = str_sub(r->s, end + 1, r->s.n);
	*out = (struct str){p, n};
	return true;
}

/* ---- values -------------------------------------------------------------------------------------------------- */

static bool
value_name(struct reader *r, struct str *name)
{
	if (!text_expect(r, "%"))
		return false;
	if (r->s.n && r->s.p[0] == '"')
		return text_quoted(r, name);
	*name = text_word(r);
	return name->n ? true : text_fail(r, "a value has no name");
}

static uint32_t *
slot(struct reader *r, struct str name)
{
	uint32_t id = graph_name(r->g, name);

	if (id >= r->cap) {
		uint32_t old = r->cap, *p;

		r->cap = id * 2 + 64;
		p = NEW(r->c->a, uint32_t, r->cap);
		if (old)
			memcpy(p, r->val_of, old * sizeof *p);
		r->val_of = p;
	}
	return &r->val_of[id];
}

bool
text_known_value(struct reader *r, uint32_t *out)
{
	struct str name;

	if (!value_name(r, &name))
		return false;
	*out = *slot(r, name);
	return *out ? true : text_fail(r, str_fmt(r->c->a, "%%%.*s is used but never defined", SFMT(name)).p);
}

bool
text_new_value(struct reader *r, enum val_kind kind, uint32_t *out)
{
	struct str name;

	if (!value_name(r, &name))
		return false;
	if (*slot(r, name))
		return text_fail(r, str_fmt(r->c->a, "%%%.*s is defined twice", SFMT(name)).p);
	*out = val_new(r->g, kind, name);
	*slot(r, name) = *out;
	return true;
}

/* An expression ends at a comma or bracket of its own level. */
static bool
expression(struct reader *r, struct sint *out)
{
	int depth = 0;
	bool in_name = false;
	uint32_t n = 0, e;

	text_skip(r);
	for (; n < r->s.n; n++) {
		char c = r->s.p[n];

		in_name ^= c == '"';
		if (in_name)
			continue;
		if (depth == 0 && (c == ',' || c == ')' || c == ']' || c == '}'))
			break;
		depth += c == '(' || c == '[';
		depth -= c == ')' || c == ']';
	}
	if (!n)
		return text_fail(r, "a size is expected");
	if (text_accept(r, "int(")) {   /* a number that the graph computes */
		if (!text_known_value(r, &e) || !text_expect(r, ")"))
			return false;
		*out = (struct sint){0, expr_val(r->g, e)};
		return true;
	}
	if (!str_eq(str_trim(str_sub(r->s, 0, n)), S("?")))
		expr_parse(r->g, str_trim(str_sub(r->s, 0, n)), &e);
	else
		e = EXPR_UNKNOWN;
	*out = sint_of_expr(r->g, e);
	r->s = str_sub(r->s, n, r->s.n);
	return true;
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static bool
real(struct reader *r, double *out)
{
	char text[64], *end;
	uint32_t n = 0;

	while (n < r->s.n && n < sizeof text - 1 && r->s.p[n] != ')')
		n++;
	memcpy(text, r->s.p, n);
	text[n] = 0;
	*out = strtod(text, &end);
	if (end == text)
		return text_fail(r, "a number is expected");
	r->s = str_sub(r->s, n, r->s.n);
	return text_expect(r, ")");
}

/* The elements of a list up to the closing bracket, into the reader's own arrays. */
static bool
items(struct reader *r, const char *end, uint8_t *kind)
{
	r->nint = r->nfloat = r->nid = 0;
	*kind = ARG_INTS;
	while (!text_accept(r, end)) {
		bool ok;

		ROOM(r->c->a, r->ints, r->nint, r->int_cap, 1);
		ROOM(r->c->a, r->floats, r->nfloat, r->float_cap, 1);
		ROOM(r->c->a, r->ids, r->nid, r->id_cap, 1);
		text_skip(r);
		r->ids[r->nid] = 0;
		r->ints[r->nint] = SINT(0);
		r->floats[r->nfloat] = 0;
		if (text_accept(r, "float("))
			*kind = ARG_FLOATS, ok = real(r, &r->floats[r->nfloat]);
		else if (text_accept(r, "none"))
			*kind = ARG_VALS, ok = true;
		else if (r->s.n && r->s.p[0] == '%')
			*kind = ARG_VALS, ok = text_known_value(r, &r->ids[r->nid]);
		else
			ok = expression(r, &r->ints[r->nint]);
		if (!ok)
			return false;
		r->nint++;
		r->nfloat++;
		r->nid++;
		text_accept(r, ",");
	}
	return true;
}

static bool
list(struct reader *r, struct arg *out)
{
	uint8_t kind;

	if (!items(r, "]", &kind))
		return false;
	*out = (struct arg){.kind = kind, .count = r->nid};
	out->first = kind == ARG_VALS ? ids_add(r->g, r->ids, r->nid) : kind == ARG_FLOATS ? floats_add(r->g, r->floats, r->nid) : ints_add(r->g, r->ints, r->nid);
	return true;
}

/* What is known of a tensor's elements. No elements of an unnamed kind are integers. */
static bool
elements(struct reader *r, uint32_t v)
{
	uint8_t kind;

	if (!text_accept(r, "{"))
		return true;
	if (!items(r, "}", &kind))
		return false;
	if (kind == ARG_VALS)
		return text_fail(r, "elements are numbers");
	if (kind == ARG_FLOATS)
		val_floats(r->g, v, r->floats, r->nid);
	else
		val_ints(r->g, v, r->ints, r->nid);
	return true;
}

bool
text_type(struct reader *r, uint32_t v)
{
	struct sint dims[MAX_RANK];
	unsigned rank = 0;
	struct str w;

	if (!text_accept(r, ":"))
		return true;
	if (text_accept(r, "list")) {
		r->g->vals[v].flags |= VF_LIST;
		return true;
	}
	if (!text_accept(r, "?")) {
		w = text_word(r);
		r->g->vals[v].dtype = (uint8_t)dtype_by_name(w);
		if (!r->g->vals[v].dtype)
			return text_fail(r, str_fmt(r->c->a, "%.*s is no dtype", SFMT(w)).p);
	}
	if (!text_accept(r, "["))
		return true;
	while (!text_accept(r, "]")) {
		if (rank == MAX_RANK)
			return text_fail(r, "too many dims");
		if (!expression(r, &dims[rank++]))
			return false;
		text_accept(r, ",");
	}
	val_shape(r->g, v, rank, dims);
	return elements(r, v);
}

static bool
argument(struct reader *r, struct arg *out)
{
	struct str text, rest;
	unsigned dt;

	text_skip(r);
	*out = (struct arg){.kind = ARG_NONE};
	if (r->s.n && r->s.p[0] == '%') {
		out->kind = ARG_VAL;
		return text_known_value(r, &out->u.val);
	}
	if (r->s.n && r->s.p[0] == '"') {
		out->kind = ARG_STR;
		return text_quoted(r, &text) && (out->u.str = graph_name(r->g, text), true);
	}
	if (text_accept(r, "["))
		return list(r, out);
	if (text_accept(r, "float(")) {
		out->kind = ARG_FLOAT;
		return real(r, &out->u.f);
	}
	if (text_accept(r, "dtype(")) {
		out->kind = ARG_DTYPE_OF;
		return text_known_value(r, &out->u.val) && text_expect(r, ")");
	}
	rest = r->s;
	text = text_word(r);
	dt = dtype_by_name(text);
	if (str_eq(text, S("none")))
		return true;
	if (str_eq(text, S("true")) || str_eq(text, S("false")))
		return *out = arg_bool(text.p[0] == 't'), true;
	if (dt)
		return *out = arg_dtype(dt), true;
	r->s = rest;
	out->kind = ARG_INT;
	return expression(r, &out->u.i);
}

/* "name=" before an argument; the schema gives its place */
static int
argument_place(struct reader *r, unsigned op, unsigned next)
{
	struct str rest = r->s, name = text_word(r);
	int at;

	if (!name.n || !text_accept(r, "=")) {
		r->s = rest;
		return (int)next;
	}
	at = op_arg_index(op, name);
	if (at < 0)
		text_fail(r, str_fmt(r->c->a, "%s has no argument %.*s", op_info(op)->name, SFMT(name)).p);
	return at;
}

bool
text_arguments(struct reader *r, uint32_t n)
{
	unsigned op = r->g->nodes[n].op, next = 0;

	while (!text_accept(r, ")")) {
		struct arg a;
		int at = argument_place(r, op, next);

		if (at < 0 || !argument(r, &a))
			return false;
		if ((unsigned)at >= r->g->nodes[n].narg)
			return text_fail(r, "too many arguments");
		node_args(r->g, n)[at] = a;
		next = (unsigned)at + 1;
		text_accept(r, ",");
	}
	if (!op || op_is_variadic(op))
		r->g->nodes[n].narg = (uint16_t)(next > op_narg(op) ? next : op_narg(op));
	return true;
}
