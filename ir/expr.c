/*
 * Integer expressions over symbolic dims, hash-consed: equal expressions have equal ids.
 *
 * Two spellings are read (formats.md 3.5). sympy's srepr, from torch 2.7 on:
 *     Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(1))
 * and infix, before: 2*s0 + 1, (s0//2), Mod(s0, 8). What is not understood stays as opaque text: equal
 * text then still means equal dims.
 */
#include "ir.h"

#include <string.h>

#define PARSE_DEPTH 64

/* ---- construction ------------------------------------------------------------------------------ */

static uint32_t
hash_expr(const struct expr *e)
{
	uint64_t n = e->op == EX_CONST ? (uint64_t)e->n : 0;
	uint64_t h = (uint64_t)e->op * 0x9e3779b97f4a7c15u ^ ((uint64_t)e->a << 32 | e->b) * 0xff51afd7ed558ccdu ^ n * 0xc4ceb9fe1a85ec53u;

	return (uint32_t)(h ^ h >> 32);
}

static void
rehash(struct graph *g)
{
	uint32_t mask = g->expr_mask ? g->expr_mask * 2 + 1 : 255;

	while (mask < g->nexpr * 4)
		mask = mask * 2 + 1;
	g->expr_hash = NEW(g->c->a, uint32_t, mask + 1);
	g->expr_mask = mask;
	for (uint32_t i = 1; i < g->nexpr; i++) {
		uint32_t k = hash_expr(&g->exprs[i]) & mask;

		while (g->expr_hash[k])
			k = (k + 1) & mask;
		g->expr_hash[k] = i;
	}
}

static int64_t
floor_div(int64_t a, int64_t b)
{
	int64_t q = a / b;

	return q - (a % b != 0 && (a < 0) != (b < 0));
}

static bool
power(int64_t a, int64_t b, int64_t *out)
{
	int64_t r = 1;

	if (b < 0 || b > 64)
		return false;
	while (b-- > 0)
		if (!mul_i64(r, a, &r))
			return false;
	*out = r;
	return true;
}

static bool
apply(enum expr_op op, int64_t a, int64_t b, int64_t *out)
{
	switch (op) {
	case EX_ADD:
		return add_i64(a, b, out);
	case EX_MUL:
		return mul_i64(a, b, out);
	case EX_MAX:
		*out = a > b ? a : b;
		return true;
	case EX_MIN:
		*out = a < b ? a : b;
		return true;
	case EX_POW:
		return power(a, b, out);
	default:
		break;
	}
	if (b == 0 || (b == -1 && a == INT64_MIN))
		return false;
	if (op == EX_FLOORDIV)
		*out = floor_div(a, b);
	else if (op == EX_CEILDIV)
		*out = floor_div(a, b) + (a % b != 0);
	else
		*out = a - floor_div(a, b) * b;
	return true;
}

static void
evaluate(const struct graph *g, struct expr *e)
{
	const struct expr *a = &g->exprs[e->a], *b = &g->exprs[e->b];

	if (e->op == EX_CONST)
		e->known = true;
	else if (e->op == EX_SYM)
		e->known = (e->n = g->syms[e->a].value) >= 0;
	else if (e->op >= EX_ADD && e->op < EX_OPAQUE)
		e->known = a->known && b->known && apply(e->op, a->n, b->n, &e->n);
}

/* Operands come before what uses them, so that one pass is enough and nothing recurses. */
void
expr_bind(struct graph *g)
{
	for (uint32_t i = 2; i < g->nexpr; i++)
		evaluate(g, &g->exprs[i]);
}

static uint32_t
intern(struct graph *g, struct expr e)
{
	uint32_t k;

	if (g->nexpr * 2 >= g->expr_mask)
		rehash(g);
	for (k = hash_expr(&e) & g->expr_mask; g->expr_hash[k]; k = (k + 1) & g->expr_mask) {
		const struct expr *o = &g->exprs[g->expr_hash[k]];

		if (o->op == e.op && o->a == e.a && o->b == e.b && (e.op != EX_CONST || o->n == e.n))
			return g->expr_hash[k];
	}
	evaluate(g, &e);
	ROOM(g->c->a, g->exprs, g->nexpr, g->expr_cap, 1);
	g->exprs[g->nexpr] = e;
	g->expr_hash[k] = g->nexpr;
	return g->nexpr++;
}

uint32_t
expr_const(struct graph *g, int64_t n)
{
	return intern(g, (struct expr){.op = EX_CONST, .n = n});
}

uint32_t
expr_sym(struct graph *g, uint32_t sym)
{
	return intern(g, (struct expr){.op = EX_SYM, .a = sym});
}

uint32_t
expr_opaque(struct graph *g, struct str text)
{
	return intern(g, (struct expr){.op = EX_OPAQUE, .a = graph_name(g, text)});
}

uint32_t
expr_val(struct graph *g, uint32_t v)
{
	return intern(g, (struct expr){.op = EX_VAL, .a = v});
}

uint32_t
expr_intern(struct graph *g, enum expr_op op, uint32_t a, uint32_t b)
{
	return intern(g, (struct expr){.op = (uint8_t)op, .a = a, .b = b});
}

/* One spelling where it can be had: 0 = none. */
static uint32_t
simplify(struct graph *g, enum expr_op op, uint32_t a, uint32_t b)
{
	switch (op) {
	case EX_ADD:
		return poly_sum(g, a, b);
	case EX_MUL:
		return poly_product(g, a, b);
	case EX_FLOORDIV:
		return poly_quotient(g, a, b);
	case EX_MIN:
	case EX_MAX:
		if (poly_at_least(g, a, b))
			return op == EX_MIN ? b : a;
		return !poly_at_least(g, b, a) ? 0 : op == EX_MIN ? a : b;
	default:
		return 0;
	}
}

uint32_t
expr_op2(struct graph *g, enum expr_op op, uint32_t a, uint32_t b)
{
	int64_t n;
	uint32_t e;

	if (a == EXPR_UNKNOWN || b == EXPR_UNKNOWN)
		return EXPR_UNKNOWN;
	if (g->exprs[a].op == EX_CONST && g->exprs[b].op == EX_CONST && apply(op, g->exprs[a].n, g->exprs[b].n, &n))
		return expr_const(g, n);
	e = simplify(g, op, a, b);
	if (e)
		return e;
	if ((op == EX_ADD || op == EX_MUL) && (g->exprs[a].op == EX_CONST || (g->exprs[b].op != EX_CONST && a > b))) {
		uint32_t t = a;    /* one spelling of each sum and product; numbers come last */

		a = b;
		b = t;
	}
	if (g->exprs[b].op == EX_CONST && ((op == EX_ADD && g->exprs[b].n == 0) || (op != EX_ADD && op <= EX_CEILDIV && g->exprs[b].n == 1)))
		return a;
	return expr_intern(g, op, a, b);
}

bool
expr_eval(const struct graph *g, uint32_t id, int64_t *out)
{
	const struct expr *e = &g->exprs[id < g->nexpr ? id : 0];

	*out = e->n;
	return e->known;
}

bool
sint_eval(const struct graph *g, struct sint s, int64_t *out)
{
	if (s.expr)
		return expr_eval(g, s.expr, out);
	*out = s.n;
	return true;
}

/* What does not fit into 64 bits is not known. */
struct sint
sint_op2(struct graph *g, enum expr_op op, struct sint a, struct sint b)
{
	int64_t n;

	if (!a.expr && !b.expr)
		return apply(op, a.n, b.n, &n) ? SINT(n) : (struct sint){0, EXPR_UNKNOWN};
	if (a.expr == EXPR_UNKNOWN || b.expr == EXPR_UNKNOWN)
		return (struct sint){0, EXPR_UNKNOWN};
	return sint_of_expr(g, expr_op2(g, op, sint_expr(g, a), sint_expr(g, b)));
}

struct sint
sint_of_expr(const struct graph *g, uint32_t e)
{
	return g->exprs[e].op == EX_CONST ? SINT(g->exprs[e].n) : (struct sint){0, e};
}

uint32_t
sint_expr(struct graph *g, struct sint s)
{
	return s.expr ? s.expr : expr_const(g, s.n);
}

uint32_t
sym_find(const struct graph *g, struct str name)
{
	uint32_t id = strtab_find(g->names, name);

	return id < g->nsym_of ? g->sym_of[id] : 0;
}

static void
index_symbol(struct graph *g, uint32_t name, uint32_t s)
{
	if (name >= g->nsym_of) {
		uint32_t more = name + 1 - g->nsym_of;

		ROOM(g->c->a, g->sym_of, g->nsym_of, g->sym_of_cap, more);
		g->nsym_of += more;
	}
	g->sym_of[name] = s;
}

uint32_t
sym_add(struct graph *g, struct str name)
{
	uint32_t i = sym_find(g, name);

	if (i)
		return i;
	ROOM(g->c->a, g->syms, g->nsym, g->sym_cap, 1);
	g->syms[g->nsym] = (struct sym){.name = graph_name(g, name), .min = 0, .max = -1, .value = -1};
	index_symbol(g, g->syms[g->nsym].name, g->nsym);
	return g->nsym++;
}

/* ---- reading ------------------------------------------------------------------------------------ */

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

static bool
open_at(const struct graph *g, uint32_t id, unsigned depth)
{
	const struct expr *e = &g->exprs[id < g->nexpr ? id : 0];

	if (e->op == EX_SYM)
		return g->syms[e->a].value < 0 || g->syms[e->a].open;
	if (e->op < EX_ADD || e->op >= EX_OPAQUE || depth > 16)
		return e->op != EX_CONST;
	return open_at(g, e->a, depth + 1) || open_at(g, e->b, depth + 1);
}

bool
expr_is_open(const struct graph *g, uint32_t id)
{
	return open_at(g, id, 0);
}

/* ---- printing ------------------------------------------------------------------------------------ */

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

static void
print_at(const struct graph *g, uint32_t id, struct buf *b, unsigned depth)
{
	static const char *const infix[] = {[EX_ADD] = " + ", [EX_MUL] = "*", [EX_FLOORDIV] = "//", [EX_MOD] = "%", [EX_POW] = "**"};
	static const char *const call[] = {[EX_CEILDIV] = "CeilDiv", [EX_MAX] = "Max", [EX_MIN] = "Min"};
	const struct expr *e = &g->exprs[id < g->nexpr ? id : 0];
	bool is_call = e->op == EX_CEILDIV || e->op == EX_MAX || e->op == EX_MIN;

	if (e->op == EX_CONST) {
		buf_fmt(b, "%lld", (long long)e->n);
	} else if (e->op == EX_SYM) {
		sym_print(g, e->a, b);
	} else if (e->op == EX_OPAQUE) {
		buf_str(b, graph_str(g, e->a));
	} else if (e->op == EX_VAL) {
		buf_fmt(b, "int(%%%.*s)", SFMT(graph_str(g, g->vals[e->a].name)));
	} else if (e->op < EX_ADD || depth > 16) {
		buf_str(b, S("?"));
	} else {
		buf_fmt(b, "%s(", is_call ? call[e->op] : "");
		print_at(g, e->a, b, depth + 1);
		buf_str(b, is_call ? S(", ") : str_of(infix[e->op]));
		print_at(g, e->b, b, depth + 1);
		buf_str(b, S(")"));
	}
}

void
expr_print(const struct graph *g, uint32_t id, struct buf *b)
{
	print_at(g, id, b, 0);
}
