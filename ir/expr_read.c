/*
 * Reading expressions. Two spellings are read (formats.md 3.5). sympy's srepr, from torch 2.7 on:
 *     Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(1))
 * and infix, before: 2*s0 + 1, (s0//2), Mod(s0, 8). What is not understood stays as opaque text: equal
 * text then still means equal dims.
 */
#include "ir.h"

#include <string.h>

#define PARSE_DEPTH 64

struct reader {
	struct graph *g;
	struct str s;              /* what is left */
	unsigned depth;
	bool known_only;           /* a name that is no symbol yet is an error */
};

static bool parse_sum(struct reader *, uint32_t *);

static void
skip_space(struct reader *r)
{
	while (r->s.n && r->s.p[0] == ' ')
		r->s = str_sub(r->s, 1, r->s.n);
}

static bool
accept(struct reader *r, const char *text)
{
	skip_space(r);
	if (!str_starts(r->s, str_of(text)))
		return false;
	r->s = str_sub(r->s, (uint32_t)strlen(text), r->s.n);
	return true;
}

static bool
is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* A name that would not be read back as one word is quoted. */
void
sym_print(const struct graph *g, uint32_t sym, struct buf *b)
{
	struct str name = graph_str(g, g->syms[sym].name);
	bool plain = name.n > 0 && !(name.p[0] >= '0' && name.p[0] <= '9');

	for (uint32_t i = 0; i < name.n; i++)
		plain &= is_word(name.p[i]);
	buf_str(b, plain ? S("") : S("\""));
	buf_str(b, name);
	buf_str(b, plain ? S("") : S("\""));
}

static struct str
word(struct reader *r)
{
	uint32_t n = 0;
	struct str w;

	skip_space(r);
	while (n < r->s.n && is_word(r->s.p[n]))
		n++;
	w = str_sub(r->s, 0, n);
	r->s = str_sub(r->s, n, r->s.n);
	return w;
}

static bool
symbol(struct reader *r, struct str name, uint32_t *out)
{
	if (r->known_only && !sym_find(r->g, name))
		return false;
	*out = expr_sym(r->g, sym_add(r->g, name));
	return true;
}

/* "any name", as printed */
static bool
parse_quoted(struct reader *r, uint32_t *out)
{
	int64_t end = str_find(r->s, '"');
	struct str name = end < 0 ? S("") : str_sub(r->s, 0, (uint32_t)end);

	if (!name.n)
		return false;
	r->s = str_sub(r->s, name.n + 1, r->s.n);
	return symbol(r, name, out);
}

/* 'name' and then keyword arguments, which say nothing that the ranges do not */
static bool
parse_symbol(struct reader *r, uint32_t *out)
{
	int64_t end;

	if (!accept(r, "'") || (end = str_find(r->s, '\'')) <= 0 || !symbol(r, str_sub(r->s, 0, (uint32_t)end), out))
		return false;
	end = str_find(r->s, ')');
	if (end < 0)
		return false;
	r->s = str_sub(r->s, (uint32_t)end + 1, r->s.n);
	return true;
}

static bool
parse_integer(struct reader *r, uint32_t *out)
{
	bool minus = accept(r, "-");
	int64_t n;

	if (!str_int(word(r), &n))
		return false;
	*out = expr_const(r->g, minus ? -n : n);
	return true;
}

static enum expr_op
function_op(struct str name)
{
	static const struct {
		const char *name;
		enum expr_op op;
	} table[] = {
		{"Add", EX_ADD}, {"Mul", EX_MUL}, {"Pow", EX_POW}, {"Max", EX_MAX}, {"Min", EX_MIN}, {"FloorDiv", EX_FLOORDIV},
		{"CleanDiv", EX_FLOORDIV}, {"IntTrueDiv", EX_FLOORDIV}, {"CeilDiv", EX_CEILDIV}, {"Mod", EX_MOD}, {"PythonMod", EX_MOD},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(name, str_of(table[i].name)))
			return table[i].op;
	return EX_NONE;
}

static bool
parse_call(struct reader *r, struct str name, uint32_t *out)
{
	enum expr_op op = function_op(name);
	uint32_t next;

	if (str_eq(name, S("Symbol")))
		return parse_symbol(r, out);
	if (str_eq(name, S("Integer")))
		return parse_integer(r, out) && accept(r, ")");
	if (!parse_sum(r, out))
		return false;
	if (!op && (str_eq(name, S("ToFloat")) || str_eq(name, S("TruncToInt")) || str_eq(name, S("Identity"))))
		return accept(r, ")");
	if (!op)
		return false;
	while (accept(r, ",")) {
		if (!parse_sum(r, &next))
			return false;
		*out = expr_op2(r->g, op, *out, next);
	}
	return accept(r, ")");
}

/* With its sign, because the smallest number has no positive counterpart. */
static bool
negative_number(struct reader *r, int64_t *n)
{
	uint32_t end = 1;

	skip_space(r);
	while (end < r->s.n && is_word(r->s.p[end]))
		end++;
	if (!str_starts(r->s, S("-")) || !str_int(str_sub(r->s, 0, end), n))
		return false;
	r->s = str_sub(r->s, end, r->s.n);
	return true;
}

static bool
parse_atom(struct reader *r, uint32_t *out)
{
	bool ok;
	struct str w;
	int64_t n;

	if (++r->depth > PARSE_DEPTH)
		return false;
	if (negative_number(r, &n)) {
		*out = expr_const(r->g, n);
		ok = true;
	} else if (accept(r, "-")) {
		ok = parse_atom(r, out);
		if (ok)
			*out = expr_op2(r->g, EX_MUL, *out, expr_const(r->g, -1));
	} else if (accept(r, "(")) {
		ok = parse_sum(r, out) && accept(r, ")");
	} else if (accept(r, "\"")) {
		ok = parse_quoted(r, out);
	} else {
		w = word(r);
		if (!w.n)
			return false;
		ok = true;
		if (accept(r, "("))
			ok = parse_call(r, w, out);
		else if (str_int(w, &n))
			*out = expr_const(r->g, n);
		else
			ok = symbol(r, w, out);
	}
	r->depth--;
	return ok;
}

static bool
parse_product(struct reader *r, uint32_t *out)
{
	uint32_t b;
	enum expr_op op;

	if (!parse_atom(r, out))
		return false;
	for (;;) {
		if (accept(r, "//"))
			op = EX_FLOORDIV;
		else if (accept(r, "**"))
			op = EX_POW;
		else if (accept(r, "*"))
			op = EX_MUL;
		else if (accept(r, "%"))
			op = EX_MOD;
		else
			return true;
		if (!parse_atom(r, &b))
			return false;
		*out = expr_op2(r->g, op, *out, b);
	}
}

static bool
parse_sum(struct reader *r, uint32_t *out)
{
	uint32_t b;

	if (!parse_product(r, out))
		return false;
	for (;;) {
		bool minus;

		if (accept(r, "+"))
			minus = false;
		else if (accept(r, "-"))
			minus = true;
		else
			return true;
		if (!parse_product(r, &b))
			return false;
		if (minus)
			b = expr_op2(r->g, EX_MUL, b, expr_const(r->g, -1));
		*out = expr_op2(r->g, EX_ADD, *out, b);
	}
}

bool
expr_parse(struct graph *g, struct str text, uint32_t *out)
{
	struct reader r = {.g = g, .s = text};

	if (parse_sum(&r, out)) {
		skip_space(&r);
		if (!r.s.n)
			return true;
	}
	*out = expr_opaque(g, text);
	return false;
}

bool
expr_parse_known(struct graph *g, struct str text, uint32_t *out)
{
	struct reader r = {.g = g, .s = text, .known_only = true};
	uint32_t e;

	if (!parse_sum(&r, &e))
		return false;
	skip_space(&r);
	if (r.s.n)
		return false;
	*out = e;
	return true;
}
