/* Integer expressions over symbolic dims, hash-consed: equal expressions have equal ids. expr_read.c reads them. */
#include "ir.h"

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

/* ---- asking ----------------------------------------------------------------------------------- */

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
