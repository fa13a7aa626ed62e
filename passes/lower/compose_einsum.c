/*
 * Compositions: einsum (at::einsum and sumproduct_pair of Linear.cpp). Every operand is permuted to one order of labels, those of the
 * result first, with dims of size 1 for what it lacks; then two at a time, from the left or along a given path, they become one:
 * summed labels that only one has are summed, the rest is permute, reshape, bmm, view, permute, or a product if nothing is summed.
 */
#include "lower.h"

#include <string.h>

#define MAX_OPERANDS 16
#define DOTS 52                    /* index of the first broadcast dim of "..." */

struct einsum {
	struct call *c;
	struct sim *s;
	uint32_t op[MAX_OPERANDS];
	unsigned nop;
	struct str sub[MAX_OPERANDS], result;
	bool implicit;
	int at[DOTS];              /* place of each label in the common order, -1 = none */
	unsigned count[DOTS];      /* how many operands have it */
	unsigned ndot, nout, ndim; /* broadcast dims; dims of the result; of all */
	int first_dot;             /* place of the first broadcast dim */
	unsigned left[MAX_RANK];   /* per place: operands that still have it with more than one element */
};

static int
label(char c)
{
	return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

/* ---- reading the equation --------------------------------------------------------------------------------- */

static bool
count_labels(struct einsum *e, unsigned i)
{
	unsigned named = 0, rank = geom_at(e->s, e->op[i])->rank;
	bool dots = false;

	for (uint32_t k = 0; k < e->sub[i].n; k++) {
		int l = label(e->sub[i].p[k]);

		if (l >= 0) {
			e->count[l]++;
			named++;
		} else if (e->sub[i].p[k] == '.') {
			dots = true;
		} else if (e->sub[i].p[k] != ' ') {
			return false;
		}
	}
	if (named > rank || (!dots && named != rank))
		return false;
	if (rank - named > e->ndot)
		e->ndot = rank - named;
	return true;
}

static bool
read_equation(struct einsum *e)
{
	const struct value *eq = call_arg(e->c, "equation"), *ts = call_arg(e->c, "tensors");
	struct str text = eq->kind == ARG_STR ? eq->u.s : S(""), lhs = text;
	int64_t arrow = str_find(text, '>');

	if (ts->kind != ARG_VALS || ts->n == 0 || ts->n > MAX_OPERANDS || arrow == 0)
		return false;
	e->implicit = arrow < 0;
	if (!e->implicit) {
		lhs = str_sub(text, 0, (uint32_t)arrow - 1);
		e->result = str_sub(text, (uint32_t)arrow + 1, text.n);
	}
	for (; e->nop < ts->n; e->nop++) {
		if (!ts->u.ts[e->nop] || !str_cut(&lhs, ',', &e->sub[e->nop]))
			return false;
		e->op[e->nop] = ts->u.ts[e->nop];
		if (!count_labels(e, e->nop))
			return false;
	}
	return true;
}

static bool
take_place(struct einsum *e, int l)
{
	if (e->at[l] >= 0 || e->ndim >= MAX_RANK)
		return false;
	e->at[l] = (int)e->ndim++;
	return true;
}

static bool
place_dots(struct einsum *e)
{
	e->first_dot = (int)e->ndim;
	e->ndim += e->ndot;
	return e->ndim <= MAX_RANK;
}

/* The result's labels as given, or, without "->", the broadcast dims and every label that occurs once; then the summed ones. */
static bool
order_labels(struct einsum *e)
{
	memset(e->at, -1, sizeof e->at);
	e->first_dot = -1;
	if (e->implicit && !place_dots(e))
		return false;
	for (int l = 0; e->implicit && l < DOTS; l++)
		if (e->count[l] == 1 && !take_place(e, l))
			return false;
	for (uint32_t k = 0; k < e->result.n; k++) {
		if (e->result.p[k] == '.' && e->first_dot < 0 && !place_dots(e))
			return false;
		if (label(e->result.p[k]) >= 0 && !take_place(e, label(e->result.p[k])))
			return false;
	}
	e->nout = e->ndim;
	if (e->first_dot < 0 && !place_dots(e))
		return false;
	for (int l = 0; l < DOTS; l++)
		if (e->count[l] && e->at[l] < 0 && !take_place(e, l))
			return false;
	return true;
}

/* ---- operands in the common order ---------------------------------------------------------------------------- */

/* A label twice in one operand is its diagonal. */
static bool
arrange(struct einsum *e, unsigned i)
{
	int64_t perm[MAX_RANK];
	unsigned d = 0, named = 0;
	uint32_t t = e->op[i];

	for (unsigned k = 0; k < e->ndim; k++)
		perm[k] = -1;
	for (uint32_t k = 0; k < e->sub[i].n; k++)
		named += label(e->sub[i].p[k]) >= 0;
	for (uint32_t k = 0; k < e->sub[i].n; k++) {
		int l = label(e->sub[i].p[k]), at;

		if (l < 0 && (e->sub[i].p[k] != '.' || (k && e->sub[i].p[k - 1] == '.')))
			continue;
		for (unsigned n = l >= 0 ? 1 : geom_at(e->s, e->op[i])->rank - named, q = 0; q < n; q++) {
			at = l >= 0 ? e->at[l] : e->first_dot + (int)(e->ndot - n + q);
			if (perm[at] >= 0)
				return false;      /* a diagonal: not met in any exported network */
			perm[at] = d++;
		}
	}
	for (unsigned k = 0; k < e->ndim; k++)
		if (perm[k] < 0) {
			t = CALL(e->s, UNSQUEEZE, V_TENSOR(t), V_INT(-1));
			perm[k] = d++;
		}
	e->op[i] = CALL(e->s, PERMUTE, V_TENSOR(t), V_INTS(perm, e->ndim));
	for (unsigned k = 0; k < e->ndim; k++)
		e->left[k] += geom_at(e->s, e->op[i])->dim[k] != 1;
	return true;
}

/* ---- two operands ----------------------------------------------------------------------------------------------- */

struct pair {
	int64_t batch[MAX_RANK], own[MAX_RANK], other[MAX_RANK], sum[MAX_RANK];     /* places: of both, of the left, of the right or nobody, summed */
	unsigned nbatch, nown, nother, nsum;
	int64_t size[4];           /* product of each */
};

static uint32_t
sum_over(struct sim *s, uint32_t t, const int64_t *dims, unsigned n)
{
	return n ? CALL(s, SUM, V_TENSOR(t), V_INTS(dims, n), V_BOOL(true)) : t;
}

static unsigned
join(int64_t *out, unsigned n, const int64_t *more, unsigned nmore)
{
	memcpy(out + n, more, nmore * sizeof *out);
	return n + nmore;
}

static uint32_t
three_dims(struct sim *s, uint32_t t, const int64_t *perm, unsigned n, int64_t a, int64_t b, int64_t d)
{
	int64_t dim[3] = {a, b, d};

	return do_reshape(s, CALL(s, PERMUTE, V_TENSOR(t), V_INTS(perm, n)), 3, dim);
}

static uint32_t
multiply(struct sim *s, uint32_t l, uint32_t r, const struct pair *p)
{
	int64_t perm[MAX_RANK], back[MAX_RANK], dim[MAX_RANK];
	unsigned n;
	uint32_t a, b, t;

	n = join(perm, join(perm, join(perm, join(perm, 0, p->batch, p->nbatch), p->own, p->nown), p->sum, p->nsum), p->other, p->nother);
	a = three_dims(s, l, perm, n, p->size[0], p->size[1], p->size[3]);
	for (unsigned i = 0; i < n; i++) {
		back[perm[i]] = i;
		dim[i] = geom_at(s, i < p->nbatch + p->nown ? l : r)->dim[perm[i]];
		if (i >= p->nbatch + p->nown && i < p->nbatch + p->nown + p->nsum)
			dim[i] = 1;
	}
	join(perm, join(perm, join(perm, join(perm, 0, p->batch, p->nbatch), p->sum, p->nsum), p->other, p->nother), p->own, p->nown);
	b = three_dims(s, r, perm, n, p->size[0], p->size[3], p->size[2]);
	t = CALL(s, BMM, V_TENSOR(a), V_TENSOR(b));
	return CALL(s, PERMUTE, V_TENSOR(do_view(s, t, n, dim)), V_INTS(back, n));
}

static bool
sort_place(struct pair *p, int64_t k, const struct geom *l, const struct geom *r, bool summed)
{
	bool in_l = l->dim[k] != 1, in_r = r->dim[k] != 1;
	unsigned part = summed ? 3 : in_l && in_r ? 0 : in_l ? 1 : 2;
	int64_t *list[] = {p->batch, p->own, p->other, p->sum};
	unsigned *n[] = {&p->nbatch, &p->nown, &p->nother, &p->nsum};

	list[part][(*n[part])++] = k;
	return mul_i64(p->size[part], part == 2 ? r->dim[k] : l->dim[k], &p->size[part]);
}

/* What has become of two operands: what only they still have is summed. */
static uint32_t
contract(struct einsum *e, uint32_t l, uint32_t r)
{
	struct pair p = {.size = {1, 1, 1, 1}};
	int64_t only_l[MAX_RANK], only_r[MAX_RANK];
	unsigned nl = 0, nr = 0;
	bool summed[MAX_RANK] = {false};

	for (unsigned k = e->nout; k < e->ndim; k++) {
		bool in_l = geom_at(e->s, l)->dim[k] != 1, in_r = geom_at(e->s, r)->dim[k] != 1;

		if (in_l && in_r)
			summed[k] = --e->left[k] == 1;
		else if (in_l && e->left[k] == 1)
			only_l[nl++] = k;
		else if (in_r && e->left[k] == 1)
			only_r[nr++] = k;
	}
	l = sum_over(e->s, l, only_l, nl);
	r = sum_over(e->s, r, only_r, nr);
	for (unsigned k = 0; k < e->ndim; k++)
		if (!sort_place(&p, k, geom_at(e->s, l), geom_at(e->s, r), summed[k]))
			return 0;
	return p.nsum ? multiply(e->s, l, r, &p) : CALL(e->s, MUL, V_TENSOR(l), V_TENSOR(r));
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

static uint32_t
take_out(struct einsum *e, unsigned i)
{
	uint32_t t = e->op[i];

	memmove(e->op + i, e->op + i + 1, (e->nop - i - 1) * sizeof *e->op);
	e->nop--;
	return t;
}

/* Along a path the product goes to the end; without one it stands in front. */
static bool
contract_all(struct einsum *e)
{
	int64_t path[2 * MAX_OPERANDS];
	unsigned n = call_ints(e->c, "path", path, 2 * MAX_OPERANDS);

	for (unsigned step = 0; e->nop > 1; step++) {
		bool given = 2 * step + 1 < n;
		int64_t i = given ? path[2 * step] : 0, k = given ? path[2 * step + 1] : 1, swap = i;
		uint32_t l, r, t;

		if (i > k) {
			i = k;
			k = swap;
		}
		if (i < 0 || i == k || k >= e->nop)
			return false;
		r = take_out(e, (unsigned)k);
		l = take_out(e, (unsigned)i);
		t = contract(e, l, r);
		if (!t)
			return false;
		if (!given)
			memmove(e->op + 1, e->op, e->nop * sizeof *e->op);
		e->op[given ? e->nop : 0] = t;
		e->nop++;
	}
	return true;
}

uint32_t
compose_EINSUM(struct call *c)
{
	struct einsum e = {.c = c, .s = c->s};
	uint32_t mark = temps_mark(c->s), t = 0;
	int64_t rest[MAX_RANK];
	bool ok = read_equation(&e) && order_labels(&e);
	unsigned several = e.nop;

	for (unsigned i = 0; ok && i < e.nop; i++)
		ok = arrange(&e, i);
	if (!ok || !contract_all(&e)) {
		call_failed(c, "equation is not modelled");
		return temps_keep(c->s, mark, 0);
	}
	t = e.op[0];
	for (unsigned k = e.nout; k < e.ndim; k++)
		rest[k - e.nout] = k;
	if (e.ndim > e.nout && several > 1)
		t = do_view(c->s, t, e.nout, geom_at(c->s, t)->dim);
	else if (e.ndim > e.nout)
		t = CALL(c->s, SUM, V_TENSOR(t), V_INTS(rest, e.ndim - e.nout));
	return temps_keep(c->s, mark, t);
}
