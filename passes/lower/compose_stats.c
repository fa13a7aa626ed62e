/* Compositions: quantiles, integrals and differences along a dim, covariances, powers of a vector. */
#include "lower.h"

static uint32_t
out_of_dims(struct call *c)
{
	call_failed(c, "dim out of range");
	return 0;
}

/* from .. from + length along a dim, a view */
static struct value
cut(struct sim *s, uint32_t t, int64_t d, int64_t from, int64_t length)
{
	return V_TENSOR(CALL(s, SLICE, V_TENSOR(t), V_INT(d), V_INT(from), V_INT(from + length), V_INT(1)));
}

/* ---- quantiles ------------------------------------------------------------------------------------------------------- */

/* Sorted along the last dim, in the shape of the results without the quantiles' own dim. */
static uint32_t
sorted_rows(struct call *c, uint32_t self, const struct value *dim)
{
	struct sim *s = c->s;
	struct geom g = *geom_at(s, self);
	int64_t d = dim->kind == ARG_INT && g.rank ? wrap_dim(dim->u.i, g.rank) : -1, view[MAX_RANK + 1];
	bool keep = call_bool(c, "keepdim");
	unsigned n = 0;
	uint32_t t;

	if (d < 0)
		t = CALL(s, SORT, V_TENSOR(CALL(s, FLATTEN, V_TENSOR(self))));
	else if (d == g.rank - 1)
		t = CALL(s, SORT, V_TENSOR(self));
	else
		t = CALL(s, SORT, V_TENSOR(do_transpose(s, CALL(s, UNSQUEEZE, V_TENSOR(self), V_INT(-1)), d, -1)));
	if (!t)
		return 0;
	if (s->nresult > 1)
		temps_drop(s, s->result[1]);
	for (unsigned i = 0; i < g.rank; i++) {
		if (keep && (d < 0 || i == d))
			view[n++] = 1;
		else if (d >= 0 && i != d)
			view[n++] = g.dim[i];
	}
	if (n >= MAX_RANK)
		return out_of_dims(c);
	view[n++] = geom_at(s, t)->dim[geom_at(s, t)->rank - 1];
	return do_view(s, t, n, view);
}

/* Where the quantiles stand: in all of a row, or among what is a number there. */
static uint32_t
ranks_of(struct call *c, uint32_t sorted, uint32_t q, bool ignore_nan)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), nan, t;

	if (ignore_nan) {
		nan = CALL(s, ISNAN, V_TENSOR(sorted));
		t = CALL(s, SUM, V_TENSOR(nan), V_INT(-1), V_BOOL(true));
		t = temps_keep(s, mark, CALL(s, MUL, V_TENSOR(q), V_TENSOR(CALL(s, SUB, V_TENSOR(t), V_INT(1)))));
		temps_drop(s, CALL(s, LT, V_TENSOR(t), V_INT(0)));
		return t;
	}
	t = CALL(s, MUL, V_TENSOR(q), V_INT(1));
	nan = CALL(s, ISNAN, V_TENSOR(sorted));
	sorted = CALL(s, ANY, V_TENSOR(nan), V_INT(-1), V_BOOL(true));
	temps_drop(s, nan);
	return temps_keep(s, mark, CALL(s, MASKED_FILL, V_TENSOR(t), V_TENSOR(sorted), V_INT(0)));
}

static bool
interpolates(struct call *c, bool *midpoint)
{
	const struct value *v = call_arg(c, "interpolation");

	*midpoint = v->kind == ARG_STR && str_eq(v->u.s, S("midpoint"));
	return *midpoint || v->kind != ARG_STR || str_eq(v->u.s, S("linear"));
}

static uint32_t
values_at(struct call *c, uint32_t sorted, uint32_t ranks)
{
	struct sim *s = c->s;
	uint32_t below = CALL(s, TO_COPY, V_TENSOR(ranks), V_DTYPE(DT_INT64)), t = CALL(s, GATHER, V_TENSOR(sorted), V_INT(-1), V_TENSOR(below)), weight, above;
	bool midpoint;

	if (!interpolates(c, &midpoint))
		return t;
	weight = midpoint ? CALL(s, FULL_LIKE, V_TENSOR(ranks), V_FLOAT(0.5)) : CALL(s, SUB, V_TENSOR(ranks), V_TENSOR(below));
	above = CALL(s, GATHER, V_TENSOR(sorted), V_INT(-1), V_TENSOR(CALL(s, TO_COPY, V_TENSOR(ranks), V_DTYPE(DT_INT64))));
	op_call_inplace(s, OP_LERP, (const struct value[]){V_TENSOR(t), V_TENSOR(above), V_TENSOR(weight)}, 3);
	return t;
}

static uint32_t
quantile(struct call *c, bool ignore_nan)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), q = call_tensor(c, "q"), mark = temps_mark(s), sorted, t;
	bool several = q && geom_at(s, q)->rank;

	if (!self)
		return out_of_dims(c);
	if (!q)
		q = CALL(s, SCALAR_TENSOR, V_FLOAT(0.5), V_DTYPE(geom_at(s, self)->dtype));
	sorted = sorted_rows(c, self, call_arg(c, "dim"));
	if (!sorted)
		return temps_keep(s, mark, 0);
	t = values_at(c, sorted, ranks_of(c, sorted, q, ignore_nan));
	if (several)
		t = do_transpose(s, CALL(s, UNSQUEEZE, V_TENSOR(t), V_INT(0)), 0, -1);
	return temps_keep(s, mark, CALL(s, SQUEEZE, V_TENSOR(t), V_INT(-1)));
}

uint32_t
compose_QUANTILE(struct call *c)
{
	return quantile(c, false);
}

uint32_t
compose_NANQUANTILE(struct call *c)
{
	return quantile(c, true);
}

/* ---- integrals ---------------------------------------------------------------------------------------------------------- */

struct integral {
	struct sim *s;
	uint32_t y, dx;            /* dx: 0 = a number */
	int64_t d, size;
};

/* x's own differences; a vector beside more dims stands along the dim. */
static bool
start_integral(struct call *c, struct integral *i)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "x");
	int64_t view[MAX_RANK], at;
	unsigned rank;

	*i = (struct integral){.s = s, .y = call_tensor(c, "y")};
	rank = i->y ? geom_at(s, i->y)->rank : 0;
	i->d = rank ? wrap_dim(call_int(c, "dim", -1), rank) : -1;
	if (i->d < 0)
		return false;
	i->size = geom_at(s, i->y)->dim[i->d];
	if (!x)
		return i->size > 0;
	if (geom_at(s, x)->rank == 1 && rank > 1) {
		for (unsigned k = 0; k < rank; k++)
			view[k] = k == i->d ? geom_at(s, x)->dim[0] : 1;
		x = do_view(s, x, rank, view);
	}
	at = x ? geom_at(s, x)->rank - (rank - i->d) : -1;
	if (at < 0 || geom_at(s, x)->dim[at] != i->size || !i->size)
		return false;
	i->dx = CALL(s, SUB, cut(s, x, at, 1, i->size - 1), cut(s, x, at, 0, i->size - 1));
	return i->dx != 0;
}

static uint32_t
both_sides(const struct integral *i)
{
	struct value right = cut(i->s, i->y, i->d, 1, i->size - 1), left = cut(i->s, i->y, i->d, 0, i->size - 1);

	return CALL(i->s, ADD, left, right);
}

/* sum((left + right) dx) / 2, or (sum(y) - (first + last) / 2) dx */
uint32_t
compose_TRAPEZOID(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t, ends;
	struct integral i;

	if (!start_integral(c, &i))
		return out_of_dims(c);
	if (i.dx) {
		t = CALL(s, SUM, V_TENSOR(CALL(s, MUL, V_TENSOR(both_sides(&i)), V_TENSOR(i.dx))), V_INT(i.d));
		return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(t), V_FLOAT(2)));
	}
	t = CALL(s, SELECT, V_TENSOR(i.y), V_INT(i.d), V_INT(-1));
	ends = CALL(s, SELECT, V_TENSOR(i.y), V_INT(i.d), V_INT(0));
	ends = CALL(s, MUL, V_TENSOR(CALL(s, ADD, V_TENSOR(ends), V_TENSOR(t))), V_FLOAT(0.5));
	t = CALL(s, SUB, V_TENSOR(CALL(s, SUM, V_TENSOR(i.y), V_INT(i.d))), V_TENSOR(ends));
	return temps_keep(s, mark, CALL(s, MUL, V_TENSOR(t), V_FLOAT(1)));
}

uint32_t
compose_CUMULATIVE_TRAPEZOID(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t;
	struct integral i;

	if (!start_integral(c, &i))
		return out_of_dims(c);
	t = both_sides(&i);
	if (!i.dx)
		return temps_keep(s, mark, CALL(s, CUMSUM, V_TENSOR(CALL(s, MUL, V_TENSOR(t), V_FLOAT(0.5))), V_INT(i.d)));
	t = CALL(s, CUMSUM, V_TENSOR(CALL(s, MUL, V_TENSOR(t), V_TENSOR(i.dx))), V_INT(i.d));
	return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(t), V_FLOAT(2)));
}

/* ---- differences ----------------------------------------------------------------------------------------------------------- */

struct slope {
	struct sim *s;
	uint32_t self, dx;         /* dx: differences of coordinates, 0 = a number */
	int64_t d, size;
};

static struct value
step_at(const struct slope *p, int64_t at)
{
	return p->dx ? cut(p->s, p->dx, 0, at, 1) : V_FLOAT(0.5);
}

static uint32_t
scaled_at(const struct slope *p, int64_t at)
{
	return CALL(p->s, MUL, cut(p->s, p->self, p->d, at, 1), V_FLOAT(0.5));
}

/* At an end: (second - first) / dx, or of second order from three places. */
static uint32_t
slope_at_end(const struct slope *p, bool last, bool second_order)
{
	struct sim *s = p->s;
	uint32_t mark = temps_mark(s), t, a, b, third;
	int64_t first = last ? p->size - (second_order ? 3 : 2) : 0;
	struct value dx = step_at(p, last ? p->size - 2 : 0);

	if (!second_order) {
		struct value left, right = cut(s, p->self, p->d, first, 1);

		left = cut(s, p->self, p->d, first + 1, 1);
		return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(CALL(s, SUB, left, right)), dx));
	}
	third = scaled_at(p, first + 2);
	b = scaled_at(p, first + 1);
	a = scaled_at(p, first);
	if (last)
		t = CALL(s, ADD, V_TENSOR(CALL(s, SUB, V_TENSOR(a), V_TENSOR(b))), V_TENSOR(third));
	else
		t = CALL(s, SUB, V_TENSOR(CALL(s, ADD, V_TENSOR(a), V_TENSOR(b))), V_TENSOR(third));
	return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(t), dx));
}

/* One weight of an uneven grid, seen along the dim: its terms in the order in which they are computed. */
static uint32_t
grid_weight(const struct slope *p, unsigned which)
{
	struct sim *s = p->s;
	uint32_t mark = temps_mark(s), over, product, t;
	struct value left = cut(s, p->dx, 0, 0, p->size - 2), right = cut(s, p->dx, 0, 1, p->size - 2);
	int64_t view[MAX_RANK];
	unsigned rank = geom_at(s, p->self)->rank;

	over = which == 1 ? left.u.t : CALL(s, ADD, left, right);
	product = CALL(s, MUL, right, V_TENSOR(over));
	t = which == 0 ? CALL(s, NEG, right) : which == 1 ? CALL(s, SUB, right, left) : left.u.t;
	t = temps_keep(s, mark, CALL(s, DIV, V_TENSOR(t), V_TENSOR(product)));
	for (unsigned i = 0; i < rank; i++)
		view[i] = i == p->d ? p->size - 2 : 1;
	return do_view(s, t, rank, view);
}

static uint32_t
slope_uneven(const struct slope *p)
{
	struct sim *s = p->s;
	uint32_t mark = temps_mark(s), weight[3], term[3], t;

	for (unsigned i = 0; i < 3; i++)
		weight[i] = grid_weight(p, i);
	for (unsigned i = 3; i-- > 0;)
		term[i] = CALL(s, MUL, cut(s, p->self, p->d, i, p->size - 2), V_TENSOR(weight[i]));
	t = CALL(s, ADD, V_TENSOR(term[0]), V_TENSOR(term[1]));
	return temps_keep(s, mark, CALL(s, ADD, V_TENSOR(t), V_TENSOR(term[2])));
}

static uint32_t
slope_inside(const struct slope *p)
{
	struct sim *s = p->s;
	uint32_t mark = temps_mark(s);
	struct value right = cut(s, p->self, p->d, 0, p->size - 2), left = cut(s, p->self, p->d, 2, p->size - 2);

	return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(CALL(s, SUB, left, right)), V_FLOAT(0.5)));
}

static uint32_t
slope_along(const struct slope *p, bool second_order)
{
	struct sim *s = p->s;
	uint32_t mark = temps_mark(s), part[3], inside;

	inside = p->dx ? slope_uneven(p) : slope_inside(p);
	part[0] = slope_at_end(p, false, second_order);
	part[2] = slope_at_end(p, true, second_order);
	part[1] = p->dx ? inside : CALL(s, DIV, V_TENSOR(inside), V_FLOAT(2));
	return temps_keep(s, mark, CALL(s, CAT, V_TENSORS(part, 3), V_INT(p->d)));
}

uint32_t
compose_GRADIENT(struct call *c)
{
	struct sim *s = c->s;
	const struct value *spacing = call_arg(c, "spacing");
	uint32_t self = call_tensor(c, "self"), out[MAX_RANK] = {0};
	int64_t dims[MAX_RANK];
	unsigned n = call_ints(c, "dim", dims, MAX_RANK);
	bool second = call_int(c, "edge_order", 1) == 2;

	for (; self && !n && n < geom_at(s, self)->rank; n++)
		for (unsigned i = 0; i < geom_at(s, self)->rank; i++)
			dims[i] = i;
	if (self && call_arg(c, "dim")->kind == ARG_NONE)
		n = geom_at(s, self)->rank;
	for (unsigned i = 0; i < n; i++) {
		struct slope p = {.s = s, .self = self, .d = wrap_dim(dims[i], geom_at(s, self)->rank)};
		uint32_t grid = spacing->kind == ARG_VALS && i < spacing->n ? spacing->u.ts[i] : 0, mark = temps_mark(s);

		p.size = p.d < 0 ? 0 : geom_at(s, self)->dim[p.d];
		if (p.size < (second ? 3 : 2) || (grid && (geom_at(s, grid)->rank != 1 || geom_at(s, grid)->dim[0] != p.size)))
			return out_of_dims(c);
		if (grid)
			p.dx = CALL(s, SUB, cut(s, grid, 0, 1, p.size - 1), cut(s, grid, 0, 0, p.size - 1));
		out[i] = temps_keep(s, mark, slope_along(&p, second));
	}
	return call_results(c, out, n);
}

/* ---- covariances -------------------------------------------------------------------------------------------------------------- */

/* (x - mean)(x - mean)' by the number of observations; rows of weights count in the sums. */
static uint32_t
covariance(struct call *c, uint32_t self, uint32_t weights)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t, mean, centred;
	int64_t row[2] = {1, -1};

	if (geom_at(s, self)->rank < 2)
		self = CALL(s, VIEW, V_TENSOR(self), V_INTS(row, 2));
	t = weights ? CALL(s, MUL, V_TENSOR(self), V_TENSOR(weights)) : self;
	mean = CALL(s, DIV, V_TENSOR(CALL(s, SUM, V_TENSOR(t), V_INT(1))), V_FLOAT(2));
	centred = CALL(s, SUB, V_TENSOR(self), V_TENSOR(CALL(s, UNSQUEEZE, V_TENSOR(mean), V_INT(1))));
	t = weights ? CALL(s, MUL, V_TENSOR(centred), V_TENSOR(weights)) : centred;
	t = CALL(s, MM, V_TENSOR(centred), V_TENSOR(CALL(s, T, V_TENSOR(t))));
	return temps_keep(s, mark, CALL(s, SQUEEZE, V_TENSOR(CALL(s, DIV, V_TENSOR(t), V_FLOAT(2)))));
}

uint32_t
compose_COV(struct call *c)
{
	uint32_t self = call_tensor(c, "self"), w = call_tensor(c, "fweights");

	return self ? covariance(c, self, w ? w : call_tensor(c, "aweights")) : out_of_dims(c);
}

uint32_t
compose_CORRCOEF(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t = self ? covariance(c, self, 0) : 0, deviation;
	int64_t column[2] = {-1, 1}, row[2] = {1, -1};

	if (!t)
		return out_of_dims(c);
	if (!geom_at(s, t)->rank)
		return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(t), V_TENSOR(t)));
	deviation = CALL(s, SQRT, V_TENSOR(CALL(s, DIAGONAL, V_TENSOR(t))));
	t = CALL(s, DIV, V_TENSOR(t), V_TENSOR(CALL(s, VIEW, V_TENSOR(deviation), V_INTS(column, 2))));
	return temps_keep(s, mark, CALL(s, DIV, V_TENSOR(t), V_TENSOR(CALL(s, VIEW, V_TENSOR(deviation), V_INTS(row, 2)))));
}

/* ---- powers of a vector ---------------------------------------------------------------------------------------------------------- */

/* [.., n]: ones, then the running product of what is expanded. */
static uint32_t
powers(struct call *c, uint32_t x)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), part[2];
	struct geom g = x ? *geom_at(s, x) : (struct geom){0};
	int64_t n = call_int(c, "N", g.rank ? g.dim[g.rank - 1] : 0);

	if (!g.rank || g.rank == MAX_RANK || n < 2)
		return out_of_dims(c);
	g.dim[g.rank++] = n - 1;
	part[1] = CALL(s, EXPAND, V_TENSOR(CALL(s, UNSQUEEZE, V_TENSOR(x), V_INT(-1))), V_INTS(g.dim, g.rank));
	part[1] = CALL(s, CUMPROD, V_TENSOR(part[1]), V_INT(-1));
	g.dim[g.rank - 1] = 1;
	part[0] = CALL(s, NEW_ZEROS, V_TENSOR(part[1]), V_INTS(g.dim, g.rank));
	return temps_keep(s, mark, CALL(s, CAT, V_TENSORS(part, 2), V_INT(-1)));
}

uint32_t
compose_LINALG_VANDER(struct call *c)
{
	return powers(c, call_tensor(c, "x"));
}

uint32_t
compose_VANDER(struct call *c)
{
	uint32_t mark = temps_mark(c->s), t = powers(c, call_tensor(c, "x"));
	int64_t last = 1;

	return call_bool(c, "increasing") || !t ? t : temps_keep(c->s, mark, CALL(c->s, FLIP, V_TENSOR(t), V_INTS(&last, 1)));
}

/* ---- ranges --------------------------------------------------------------------------------------------------------------------- */

/* Unlike arange with its end. */
uint32_t
compose_RANGE(struct call *c)
{
	int64_t from = call_int(c, "start", 0), to = call_int(c, "end", 0), step = call_int(c, "step", 1);

	return CALL(c->s, LINSPACE, V_INT(from), V_INT(to), V_INT(step ? (to - from) / step + 1 : 0), *call_arg(c, "dtype"));
}

uint32_t
compose_RFFTFREQ(struct call *c)
{
	return CALL(c->s, LINSPACE, V_INT(0), V_INT(1), V_INT(call_int(c, "n", 0) / 2 + 1), *call_arg(c, "dtype"));
}
