/*
 * Sums of products of symbols: one spelling of each, so that equal sizes are equal expressions whatever way they were computed:
 *
 *     2*(s + 1) - s - 2    is    s
 *     (s*t*64) // (t*64)   is    s
 *
 * What is no sum or product (a maximum, a rounded division) is a factor like a symbol. Sums that grow too long stay as they were written.
 */
#include "ir.h"

#include <string.h>

#define MAX_TERMS 8
#define MAX_FACTORS 8
#define MAX_NESTING 24

struct term {
	int64_t c;
	uint8_t n;
	uint32_t f[MAX_FACTORS];   /* expressions, ascending; a power stands several times */
};

struct poly {
	uint8_t n;
	struct term t[MAX_TERMS];  /* ascending by degree, then by factors; no two with the same factors */
};

static int
compare_factors(const struct term *a, const struct term *b)
{
	if (a->n != b->n)
		return a->n < b->n ? 1 : -1;       /* longer products first, the number last */
	for (unsigned i = 0; i < a->n; i++)
		if (a->f[i] != b->f[i])
			return a->f[i] < b->f[i] ? -1 : 1;
	return 0;
}

static bool
add_term(struct poly *p, const struct term *t)
{
	unsigned i = 0;

	while (i < p->n && compare_factors(&p->t[i], t) < 0)
		i++;
	if (i < p->n && compare_factors(&p->t[i], t) == 0) {
		if (!add_i64(p->t[i].c, t->c, &p->t[i].c))
			return false;
		if (p->t[i].c == 0) {
			p->n--;
			memmove(&p->t[i], &p->t[i + 1], (p->n - i) * sizeof *p->t);
		}
		return true;
	}
	if (t->c == 0)
		return true;
	if (p->n == MAX_TERMS)
		return false;
	memmove(&p->t[i + 1], &p->t[i], (p->n - i) * sizeof *p->t);
	p->t[i] = *t;
	p->n++;
	return true;
}

static bool
multiply_terms(const struct term *a, const struct term *b, struct term *out)
{
	unsigned i = 0, k = 0;

	if (a->n + b->n > MAX_FACTORS || !mul_i64(a->c, b->c, &out->c))
		return false;
	out->n = 0;
	while (i < a->n || k < b->n)
		out->f[out->n++] = k == b->n || (i < a->n && a->f[i] <= b->f[k]) ? a->f[i++] : b->f[k++];
	return true;
}

static bool
multiply(const struct poly *a, const struct poly *b, struct poly *out)
{
	struct term t;

	out->n = 0;
	for (unsigned i = 0; i < a->n; i++)
		for (unsigned k = 0; k < b->n; k++)
			if (!multiply_terms(&a->t[i], &b->t[k], &t) || !add_term(out, &t))
				return false;
	return true;
}

static bool
to_poly(const struct graph *g, uint32_t id, struct poly *out, unsigned depth)
{
	const struct expr *e = &g->exprs[id];
	struct poly a, b;

	out->n = 0;
	if (e->op == EX_CONST)
		return add_term(out, &(struct term){.c = e->n});
	if ((e->op != EX_ADD && e->op != EX_MUL) || depth > MAX_NESTING)
		return add_term(out, &(struct term){.c = 1, .n = 1, .f = {id}});
	if (!to_poly(g, e->a, &a, depth + 1) || !to_poly(g, e->b, &b, depth + 1))
		return false;
	if (e->op == EX_MUL)
		return multiply(&a, &b, out);
	*out = a;
	for (unsigned i = 0; i < b.n; i++)
		if (!add_term(out, &b.t[i]))
			return false;
	return true;
}

static uint32_t
from_term(struct graph *g, const struct term *t)
{
	uint32_t e = t->n ? t->f[0] : expr_const(g, t->c);

	for (unsigned i = 1; i < t->n; i++)
		e = expr_intern(g, EX_MUL, e, t->f[i]);
	return t->n && t->c != 1 ? expr_intern(g, EX_MUL, e, expr_const(g, t->c)) : e;
}

static uint32_t
from_poly(struct graph *g, const struct poly *p)
{
	uint32_t e = p->n ? from_term(g, &p->t[0]) : expr_const(g, 0);

	for (unsigned i = 1; i < p->n; i++)
		e = expr_intern(g, EX_ADD, e, from_term(g, &p->t[i]));
	return e;
}

uint32_t
poly_sum(struct graph *g, uint32_t a, uint32_t b)
{
	struct poly p, q;

	if (!to_poly(g, a, &p, 0) || !to_poly(g, b, &q, 0))
		return 0;
	for (unsigned i = 0; i < q.n; i++)
		if (!add_term(&p, &q.t[i]))
			return 0;
	return from_poly(g, &p);
}

uint32_t
poly_product(struct graph *g, uint32_t a, uint32_t b)
{
	struct poly p, q, r;

	return to_poly(g, a, &p, 0) && to_poly(g, b, &q, 0) && multiply(&p, &q, &r) ? from_poly(g, &r) : 0;
}

/* t / by without remainder. */
static bool
divide_term(const struct term *t, const struct term *by, struct term *out)
{
	unsigned k = 0;

	if (by->c == 0 || t->c % by->c)
		return false;
	out->c = t->c / by->c;
	out->n = 0;
	for (unsigned i = 0; i < t->n; i++)
		if (k < by->n && t->f[i] == by->f[k])
			k++;
		else
			out->f[out->n++] = t->f[i];
	return k == by->n;
}

/* a // b where every term can be divided, or all but the number at the end, which is rounded down. */
uint32_t
poly_quotient(struct graph *g, uint32_t a, uint32_t b)
{
	struct poly p, q, r = {0};
	struct term t;

	if (!to_poly(g, a, &p, 0) || !to_poly(g, b, &q, 0) || q.n != 1 || q.t[0].c <= 0)
		return a == b ? expr_const(g, 1) : 0;
	for (unsigned i = 0; i < p.n; i++) {
		if (!divide_term(&p.t[i], &q.t[0], &t)) {
			if (p.t[i].n || q.t[0].n)
				return 0;
			t = (struct term){.c = p.t[i].c / q.t[0].c - (p.t[i].c % q.t[0].c < 0)};
		}
		if (!add_term(&r, &t))
			return 0;
	}
	return from_poly(g, &r);
}

static bool
difference(const struct graph *g, uint32_t a, uint32_t b, struct poly *out)
{
	struct poly q;

	if (!to_poly(g, a, out, 0) || !to_poly(g, b, &q, 0))
		return false;
	for (unsigned i = 0; i < q.n; i++) {
		if (q.t[i].c == INT64_MIN)
			return false;
		q.t[i].c = -q.t[i].c;
		if (!add_term(out, &q.t[i]))
			return false;
	}
	return true;
}

/* a >= b whatever the symbols are: sizes are not negative. false: it depends on them, or cannot be seen. */
bool
poly_at_least(struct graph *g, uint32_t a, uint32_t b)
{
	struct poly p;

	if (!difference(g, a, b, &p))
		return false;
	for (unsigned i = 0; i < p.n; i++) {
		if (p.t[i].c < 0)
			return false;
		for (unsigned k = 0; k < p.t[i].n; k++)
			if (g->exprs[p.t[i].f[k]].op != EX_SYM || g->syms[g->exprs[p.t[i].f[k]].a].min < 0)
				return false;
	}
	return true;
}
