/*
 * Gradients of scatter_reduce and index_reduce: what was reduced into a place is shared by all that went there. One C++ function makes
 * both; the builder of the first gradient runs it, and what it made for the source waits in the call until that argument's formula takes it.
 */
#include "lower.h"

struct sharing {
	struct call *c;
	const struct geom *self, *source, *at;     /* at: what is read back for each of the source's elements */
	unsigned dtype;
};

static uint32_t
make(const struct sharing *p, const struct geom *like, unsigned dtype)
{
	return fresh_contiguous(p->c, like->rank, like->dim, dtype);
}

static void
drop(const struct sharing *p, uint32_t a, uint32_t b, uint32_t c)
{
	temps_drop(p->c->s, a);
	if (b)
		temps_drop(p->c->s, b);
	if (c)
		temps_drop(p->c->s, c);
}

/* (x == y).to(dtype) */
static uint32_t
where_equal(const struct sharing *p, const struct geom *like)
{
	uint32_t mask = make(p, like, DT_BOOL), t = make(p, like, p->dtype);

	drop(p, mask, 0, 0);
	return t;
}

/* x.masked_fill(y == 0, 1) */
static uint32_t
without_zeros(const struct sharing *p, const struct geom *like)
{
	return where_equal(p, like);
}

static uint32_t
share_of_mean(const struct sharing *p, uint32_t *source)
{
	uint32_t ones = make(p, p->self, p->dtype), more = make(p, p->source, p->dtype), t;

	make(p, p->self, p->dtype);        /* how many there are */
	drop(p, ones, more, 0);
	drop(p, make(p, p->self, DT_BOOL), 0, 0);
	t = make(p, p->self, p->dtype);
	make(p, p->at, p->dtype);
	more = make(p, p->at, p->dtype);
	*source = make(p, p->at, p->dtype);
	drop(p, more, 0, 0);
	return t;
}

/* Of the largest or smallest: all that are equal to the result; scatter_reduce finds them twice. */
static uint32_t
share_of_extreme(const struct sharing *p, uint32_t *source)
{
	bool twice = p->c->op == OP_SCATTER_REDUCE;
	uint32_t t, read, mask;

	make(p, p->at, p->dtype);          /* the result where each element went */
	where_equal(p, p->self);
	where_equal(p, p->source);
	make(p, p->self, p->dtype);        /* their number; the gradient by it */
	make(p, p->self, p->dtype);
	mask = twice ? make(p, p->self, DT_BOOL) : 0;
	t = make(p, p->self, p->dtype);
	if (twice)
		temps_drop(p->c->s, mask);
	read = make(p, p->at, p->dtype);
	mask = twice ? make(p, p->source, DT_BOOL) : 0;
	*source = make(p, p->source, p->dtype);
	drop(p, read, mask, 0);
	return t;
}

/* Where a factor is zero, only the product of the others counts, and that only if it is the only one. */
static uint32_t
share_of_product(const struct sharing *p, uint32_t *source)
{
	uint32_t t, product, zeros, sums, single, others, whole, both, alone;

	without_zeros(p, p->self);
	make(p, p->self, p->dtype);
	product = make(p, p->self, p->dtype);
	t = make(p, p->self, p->dtype);
	drop(p, product, 0, 0);
	make(p, p->source, DT_BOOL);
	zeros = make(p, p->self, p->dtype);
	single = make(p, p->source, p->dtype);
	sums = make(p, p->self, p->dtype);
	make(p, p->at, p->dtype);          /* how many zeros */
	drop(p, sums, single, zeros);
	single = make(p, p->source, DT_BOOL);
	make(p, p->source, DT_BOOL);
	drop(p, single, 0, 0);
	make(p, p->source, p->dtype);
	make(p, p->self, p->dtype);
	others = make(p, p->source, p->dtype);
	whole = make(p, p->self, p->dtype);
	sums = make(p, p->at, p->dtype);
	both = make(p, p->source, p->dtype);
	product = make(p, p->self, p->dtype);
	alone = make(p, p->at, p->dtype);
	*source = make(p, p->source, p->dtype);
	drop(p, alone, product, both);
	drop(p, sums, whole, others);
	return t;
}

uint32_t
build_shares(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	const struct value *reduce = call_arg(c, "reduce"), *include = call_arg(c, "include_self");
	struct str how = reduce->kind == ARG_STR ? reduce->u.s : S("");
	struct sharing p = {.c = c};
	uint32_t source = 0, t, filled, mark = temps_mark(c->s);

	(void)dt;
	if (n < 4 || !x[1].g || !x[2].g || !x[3].g) {
		call_failed(c, "an operand is missing");
		return 0;
	}
	p = (struct sharing){c, x[1].g, x[2].g, x[3].g, x[0].g->dtype};
	if (str_eq(how, S("sum"))) {
		t = x[0].t;
		source = make(&p, p.at, p.dtype);
	} else if (str_eq(how, S("mean"))) {
		t = share_of_mean(&p, &source);
	} else {
		t = str_eq(how, S("prod")) ? share_of_product(&p, &source) : share_of_extreme(&p, &source);
	}
	c->stash = tensor_hold(c->s, source);
	if (include->kind == ARG_BOOL && !include->b) {        /* what stood there before has no share */
		if (t != x[0].t)
			temps_keep(c->s, mark, t);
		filled = make(&p, p.self, p.dtype);
		if (t != x[0].t)
			drop(&p, t, 0, 0);
		t = filled;
	}
	return t;
}

/* What the builder of another gradient made for this one. */
uint32_t
build_stashed(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	uint32_t t = c->stash;

	(void)x;
	(void)n;
	(void)dt;
	c->stash = 0;
	temps_take(c->s, t);
	return t;
}
