/*
 * Elements of small tensors that follow from known ones: sizes that the model computes before it uses them. Integers may be symbolic; an element
 * that cannot be said is unknown while its neighbours are known.
 */
#include "fold.h"

#include <math.h>
#include <string.h>

/* ---- known tensors ------------------------------------------------------------------------------------------------ */

bool
fold_operand(const struct shaper *s, uint32_t v, struct elems *e)
{
	const struct val *x = &s->g->vals[v];
	uint64_t n = 1;

	if (!v || x->data == DATA_NONE || x->rank == RANK_UNKNOWN)
		return false;
	*e = (struct elems){.kind = x->data, .dtype = x->dtype, .rank = x->rank, .n = x->ndata};
	for (unsigned i = 0; i < x->rank; i++) {
		struct sint d = val_dims(s->g, v)[i];

		if (d.expr || d.n < 0 || !mul_u64(n, (uint64_t)d.n, &n))
			return false;
		e->dim[i] = d.n;
	}
	e->i = s->g->ints + x->data_at;
	e->f = s->g->floats + x->data_at;
	return n == x->ndata;
}

bool
fold_named(const struct shaper *s, const char *name, struct elems *e)
{
	return fold_operand(s, operand(s, name), e);
}

bool
fold_number(struct sint a, int64_t *out)
{
	*out = a.n;
	return !a.expr;
}

void
fold_copy(struct fold *p, uint32_t to, const struct elems *e, uint32_t from)
{
	if (e->kind == DATA_INTS)
		p->i[to] = e->i[from];
	else
		p->f[to] = e->f[from];
}

uint32_t
fold_index(const struct elems *e, const int64_t *at, unsigned rank)
{
	int64_t index = 0;

	for (unsigned i = 0; i < e->rank; i++) {
		int64_t k = i + rank >= e->rank ? at[i + rank - e->rank] : 0;

		index = index * e->dim[i] + (e->dim[i] == 1 ? 0 : k);
	}
	return (uint32_t)index;
}

bool
fold_next(const struct elems *e, int64_t *at)
{
	for (unsigned i = e->rank; i-- > 0;) {
		if (++at[i] < e->dim[i])
			return true;
		at[i] = 0;
	}
	return false;
}

/* ---- one operand -------------------------------------------------------------------------------------------------------- */

static double
negated(double x)
{
	return -x;
}

static double
reciprocal(double x)
{
	return 1 / x;
}

static double
sign(double x)
{
	return (x > 0) - (x < 0);
}

static const struct {
	uint16_t op;
	double (*fn)(double);
} functions[] = {
	{OP_ONNX_ABS, fabs}, {OP_ONNX_CEIL, ceil}, {OP_ONNX_EXP, exp}, {OP_ONNX_FLOOR, floor}, {OP_ONNX_LOG, log}, {OP_ONNX_NEG, negated},
	{OP_ONNX_RECIPROCAL, reciprocal}, {OP_ONNX_ROUND, rint}, {OP_ONNX_SIGN, sign}, {OP_ONNX_SQRT, sqrt}, {OP_ONNX_ERF, erf}, {OP_ONNX_TANH, tanh},
};

static struct sint
unary_int(struct shaper *s, unsigned op, struct sint a)
{
	switch (op) {
	case OP_ONNX_NEG:
		return mul(s, a, SINT(-1));
	case OP_ONNX_ABS:
		return !a.expr && a.n < 0 ? mul(s, a, SINT(-1)) : a;     /* a symbol is a size */
	case OP_ONNX_NOT:
		return a.expr ? UNKNOWN : SINT(!a.n);
	case OP_ONNX_SIGN:
		return a.expr ? UNKNOWN : SINT((a.n > 0) - (a.n < 0));
	default:
		return UNKNOWN;
	}
}

static bool
fold_unary(struct fold *p)
{
	unsigned op = p->s->g->nodes[p->s->n].op, k = 0;
	struct elems x;

	if (!fold_operand(p->s, operand_at(p->s, 0), &x))
		return false;
	p->out.kind = x.kind;
	while (k < sizeof functions / sizeof functions[0] && functions[k].op != op)
		k++;
	if (x.kind == DATA_FLOATS && k == sizeof functions / sizeof functions[0])
		return false;
	for (uint32_t i = 0; i < x.n; i++)
		if (x.kind == DATA_INTS)
			p->i[i] = unary_int(p->s, op, x.i[i]);
		else
			p->f[i] = functions[k].fn(x.f[i]);
	return true;
}

/* To whole numbers with the fraction cut off; what does not fit the width wraps. */
static struct sint
cast_int(struct sint a, unsigned dtype)
{
	unsigned bits = dtype_info(dtype)->bits;

	if (dtype == DT_BOOL)
		return a.expr ? UNKNOWN : SINT(a.n != 0);
	if (a.expr || bits >= 64 || dtype_info(dtype)->cat != CAT_INT)
		return a;
	return a.n >= -((int64_t)1 << (bits - 1)) && a.n < (int64_t)1 << bits ? a : UNKNOWN;
}

static bool
fold_cast(struct fold *p)
{
	struct elems x;
	unsigned cat = dtype_info(p->out.dtype)->cat;

	if (!fold_operand(p->s, operand_at(p->s, 0), &x) || (cat != CAT_INT && cat != CAT_BOOL && cat != CAT_FLOAT))
		return false;
	p->out.kind = cat == CAT_FLOAT ? DATA_FLOATS : DATA_INTS;
	for (uint32_t i = 0; i < x.n; i++) {
		if (cat == CAT_FLOAT && x.kind == DATA_INTS && x.i[i].expr)
			return false;
		if (cat == CAT_FLOAT)
			p->f[i] = x.kind == DATA_FLOATS ? x.f[i] : (double)x.i[i].n;
		else if (x.kind == DATA_INTS)
			p->i[i] = cast_int(x.i[i], p->out.dtype);
		else if (cat == CAT_BOOL)
			p->i[i] = SINT(x.f[i] != 0);
		else
			p->i[i] = fabs(x.f[i]) < 9e18 ? cast_int(SINT((int64_t)x.f[i]), p->out.dtype) : UNKNOWN;
	}
	return true;
}

/* ---- two operands ----------------------------------------------------------------------------------------------------------- */

static struct sint
truth(bool b)
{
	return SINT(b);
}

/* -1, 0, 1 as a is less than, equal to or more than b; false: it depends on the symbols. */
static bool
order(struct shaper *s, struct sint a, struct sint b, int *out)
{
	struct sint d;

	if (same_size(a, b)) {
		*out = 0;
		return true;
	}
	if (!a.expr && !b.expr) {
		*out = a.n < b.n ? -1 : 1;
		return true;
	}
	d = sub(s, a, b);
	if (d.expr) {
		/* a size is at least 1: never below a negative number, never equal to it */
		if (!b.expr && b.n < 0 && !is_unknown(a) && s->g->exprs[a.expr].op == EX_SYM)
			return *out = 1, true;
		if (!a.expr && a.n < 0 && !is_unknown(b) && s->g->exprs[b.expr].op == EX_SYM)
			return *out = -1, true;
		return false;
	}
	*out = (d.n > 0) - (d.n < 0);
	return true;
}

static struct sint
compare_ints(struct shaper *s, unsigned op, struct sint a, struct sint b)
{
	int c;

	if (!order(s, a, b, &c))
		return UNKNOWN;
	switch (op) {
	case OP_ONNX_EQUAL:
		return truth(c == 0);
	case OP_ONNX_LESS:
		return truth(c < 0);
	case OP_ONNX_LESS_OR_EQUAL:
		return truth(c <= 0);
	case OP_ONNX_GREATER:
		return truth(c > 0);
	default:
		return truth(c >= 0);
	}
}

static struct sint
divide(struct shaper *s, struct sint a, struct sint b)
{
	if (a.expr || b.expr)
		return quotient(s, a, b);
	if (b.n == 0 || (b.n == -1 && a.n == INT64_MIN))
		return UNKNOWN;
	return SINT(a.n / b.n);
}

static struct sint
logic(unsigned op, struct sint a, struct sint b)
{
	if (a.expr || b.expr)
		return UNKNOWN;
	return truth(op == OP_ONNX_AND ? a.n && b.n : op == OP_ONNX_OR ? a.n || b.n : !a.n != !b.n);
}

static struct sint
binary_int(struct shaper *s, unsigned op, struct sint a, struct sint b)
{
	switch (op) {
	case OP_ONNX_ADD:
	case OP_ONNX_SUM:
		return add(s, a, b);
	case OP_ONNX_SUB:
		return sub(s, a, b);
	case OP_ONNX_MUL:
		return mul(s, a, b);
	case OP_ONNX_DIV:
		return divide(s, a, b);
	case OP_ONNX_MOD:
		return attr_int(s, "fmod") && (a.n < 0 || b.n < 0) ? UNKNOWN : sint_op2(s->g, EX_MOD, a, b);
	case OP_ONNX_POW:
		return sint_op2(s->g, EX_POW, a, b);
	case OP_ONNX_MIN:
		return sint_op2(s->g, EX_MIN, a, b);
	case OP_ONNX_MAX:
		return sint_op2(s->g, EX_MAX, a, b);
	case OP_ONNX_AND:
	case OP_ONNX_OR:
	case OP_ONNX_XOR:
		return logic(op, a, b);
	case OP_ONNX_EQUAL:
	case OP_ONNX_LESS:
	case OP_ONNX_LESS_OR_EQUAL:
	case OP_ONNX_GREATER:
	case OP_ONNX_GREATER_OR_EQUAL:
		return compare_ints(s, op, a, b);
	default:
		return UNKNOWN;
	}
}

static double
binary_float(unsigned op, double a, double b)
{
	switch (op) {
	case OP_ONNX_ADD:
	case OP_ONNX_SUM:
		return a + b;
	case OP_ONNX_SUB:
		return a - b;
	case OP_ONNX_MUL:
		return a * b;
	case OP_ONNX_DIV:
		return a / b;
	case OP_ONNX_MOD:
		return fmod(a, b);
	case OP_ONNX_POW:
		return pow(a, b);
	case OP_ONNX_MIN:
		return a < b ? a : b;
	default:
		return a > b ? a : b;
	}
}

static bool
compare_floats(unsigned op, double a, double b)
{
	switch (op) {
	case OP_ONNX_EQUAL:
		return a == b;
	case OP_ONNX_LESS:
		return a < b;
	case OP_ONNX_LESS_OR_EQUAL:
		return a <= b;
	case OP_ONNX_GREATER:
		return a > b;
	default:
		return a >= b;
	}
}

/* The result so far, op the next operand. */
static bool
combine(struct fold *p, const struct elems *a, const struct elems *b)
{
	unsigned op = p->s->g->nodes[p->s->n].op;
	int64_t at[MAX_RANK] = {0};
	bool bools = p->out.dtype == DT_BOOL;

	if (a->kind != b->kind)
		return false;
	p->out.kind = a->kind == DATA_FLOATS && !bools ? DATA_FLOATS : DATA_INTS;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t i = fold_index(a, at, p->out.rank), j = fold_index(b, at, p->out.rank);

		if (i >= a->n || j >= b->n)
			return false;
		if (a->kind == DATA_INTS)
			p->i[k] = binary_int(p->s, op, a->i[i], b->i[j]);
		else if (bools)
			p->i[k] = truth(compare_floats(op, a->f[i], b->f[j]));
		else
			p->f[k] = binary_float(op, a->f[i], b->f[j]);
	}
	return true;
}

static bool
fold_binary(struct fold *p)
{
	const uint32_t *ids;
	unsigned n = operands(p->s, &ids);
	struct elems a, b;

	if (!n)
		return fold_operand(p->s, operand_at(p->s, 0), &a) && fold_operand(p->s, operand_at(p->s, 1), &b) && combine(p, &a, &b);
	if (n > 2 || !fold_operand(p->s, ids[0], &a) || !fold_operand(p->s, ids[n - 1], &b))
		return false;
	return n == 1 ? fold_identity(p) : combine(p, &a, &b);
}

static bool
fold_where(struct fold *p)
{
	struct elems c, x, y;
	int64_t at[MAX_RANK] = {0};

	if (!fold_named(p->s, "condition", &c) || !fold_named(p->s, "X", &x) || !fold_named(p->s, "Y", &y) || c.kind != DATA_INTS || x.kind != y.kind)
		return false;
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t q = fold_index(&c, at, p->out.rank), i = fold_index(&x, at, p->out.rank), j = fold_index(&y, at, p->out.rank);

		if (q >= c.n || i >= x.n || j >= y.n)
			return false;
		if (!c.i[q].expr)
			fold_copy(p, k, c.i[q].n ? &x : &y, c.i[q].n ? i : j);
		else if (x.kind == DATA_INTS)
			p->i[k] = same_size(x.i[i], y.i[j]) ? x.i[i] : UNKNOWN;
		else
			return false;
	}
	return true;
}

static bool
fold_clip(struct fold *p)
{
	struct elems x, low, high;
	bool lo = operand(p->s, "min") != 0, hi = operand(p->s, "max") != 0;

	if (!fold_named(p->s, "input", &x) || x.kind != DATA_INTS || (lo && (!fold_named(p->s, "min", &low) || low.kind != DATA_INTS || low.n != 1)) ||
	    (hi && (!fold_named(p->s, "max", &high) || high.kind != DATA_INTS || high.n != 1)))
		return false;
	p->out.kind = DATA_INTS;
	for (uint32_t i = 0; i < x.n; i++) {
		p->i[i] = lo ? sint_op2(p->s->g, EX_MAX, x.i[i], low.i[0]) : x.i[i];
		p->i[i] = hi ? sint_op2(p->s->g, EX_MIN, p->i[i], high.i[0]) : p->i[i];
	}
	return true;
}

/* ---- reductions --------------------------------------------------------------------------------------------------------------- */

static unsigned
reduction(unsigned op)
{
	switch (op) {
	case OP_ONNX_REDUCE_SUM:
		return OP_ONNX_ADD;
	case OP_ONNX_REDUCE_PROD:
		return OP_ONNX_MUL;
	case OP_ONNX_REDUCE_MAX:
		return OP_ONNX_MAX;
	default:
		return OP_ONNX_MIN;
	}
}

static bool
reduced_axes(const struct shaper *s, unsigned rank, bool *reduced)
{
	int64_t axes[MAX_RANK];
	uint32_t n = 0;

	if (operand(s, "axes") && !known_numbers(s, operand(s, "axes"), axes, MAX_RANK, &n))
		return false;
	for (unsigned i = 0; i < rank; i++)
		reduced[i] = n == 0;
	for (uint32_t i = 0; i < n; i++) {
		if (!wrap_axis(&axes[i], rank))
			return false;
		reduced[axes[i]] = true;
	}
	return n > 0 || !attr_int(s, "noop_with_empty_axes");
}

static bool
fold_reduce(struct fold *p)
{
	unsigned op = reduction(p->s->g->nodes[p->s->n].op);
	struct elems x;
	bool reduced[MAX_RANK], begun[MAX_ELEMENTS] = {false};
	int64_t at[MAX_RANK] = {0};

	if (!fold_named(p->s, "data", &x) || x.n == 0 || !reduced_axes(p->s, x.rank, reduced))
		return false;
	p->out.kind = x.kind;
	for (uint32_t i = 0; i < x.n; i++, fold_next(&x, at)) {
		uint32_t to = 0;

		for (unsigned d = 0; d < x.rank; d++)
			to = reduced[d] ? to : to * (uint32_t)x.dim[d] + (uint32_t)at[d];
		if (to >= p->out.n)
			return false;
		if (!begun[to])
			fold_copy(p, to, &x, i);
		else if (x.kind == DATA_INTS)
			p->i[to] = binary_int(p->s, op, p->i[to], x.i[i]);
		else
			p->f[to] = binary_float(op, p->f[to], x.f[i]);
		begun[to] = true;
	}
	return true;
}

/* Along the only axis of a list. */
static bool
fold_running(struct fold *p)
{
	bool reverse = attr_int(p->s, "reverse") != 0, exclusive = attr_int(p->s, "exclusive") != 0;
	unsigned op = p->s->g->nodes[p->s->n].op == OP_ONNX_CUM_SUM ? OP_ONNX_ADD : OP_ONNX_MUL;
	struct sint sum = SINT(op == OP_ONNX_MUL);
	struct elems x;

	if (!fold_named(p->s, "x", &x) || x.kind != DATA_INTS || x.rank != 1)
		return false;
	p->out.kind = DATA_INTS;
	for (uint32_t i = 0; i < x.n; i++) {
		uint32_t k = reverse ? x.n - 1 - i : i;
		struct sint next = binary_int(p->s, op, sum, x.i[k]);

		p->i[k] = exclusive ? sum : next;
		sum = next;
	}
	return true;
}

/* ---- the node ------------------------------------------------------------------------------------------------------------------- */

static const struct {
	uint16_t op;
	folder *fn;
} folders[] = {
	{OP_ONNX_ABS, fold_unary}, {OP_ONNX_CEIL, fold_unary}, {OP_ONNX_EXP, fold_unary}, {OP_ONNX_FLOOR, fold_unary}, {OP_ONNX_LOG, fold_unary}, {OP_ONNX_NEG, fold_unary},
	{OP_ONNX_NOT, fold_unary}, {OP_ONNX_RECIPROCAL, fold_unary}, {OP_ONNX_ROUND, fold_unary}, {OP_ONNX_SIGN, fold_unary}, {OP_ONNX_SQRT, fold_unary}, {OP_ONNX_ERF, fold_unary},
	{OP_ONNX_TANH, fold_unary}, {OP_ONNX_CAST, fold_cast}, {OP_ONNX_CAST_LIKE, fold_cast},
	{OP_ONNX_ADD, fold_binary}, {OP_ONNX_SUB, fold_binary}, {OP_ONNX_MUL, fold_binary}, {OP_ONNX_DIV, fold_binary}, {OP_ONNX_MOD, fold_binary}, {OP_ONNX_POW, fold_binary},
	{OP_ONNX_MIN, fold_binary}, {OP_ONNX_MAX, fold_binary}, {OP_ONNX_SUM, fold_binary}, {OP_ONNX_AND, fold_binary}, {OP_ONNX_OR, fold_binary}, {OP_ONNX_XOR, fold_binary},
	{OP_ONNX_EQUAL, fold_binary}, {OP_ONNX_LESS, fold_binary}, {OP_ONNX_LESS_OR_EQUAL, fold_binary}, {OP_ONNX_GREATER, fold_binary}, {OP_ONNX_GREATER_OR_EQUAL, fold_binary},
	{OP_ONNX_WHERE, fold_where}, {OP_ONNX_CLIP, fold_clip},
	{OP_ONNX_REDUCE_SUM, fold_reduce}, {OP_ONNX_REDUCE_PROD, fold_reduce}, {OP_ONNX_REDUCE_MAX, fold_reduce}, {OP_ONNX_REDUCE_MIN, fold_reduce},
	{OP_ONNX_CUM_SUM, fold_running}, {OP_ONNX_CUM_PROD, fold_running},
	{OP_ONNX_IDENTITY, fold_identity}, {OP_ONNX_RESHAPE, fold_identity}, {OP_ONNX_FLATTEN, fold_identity}, {OP_ONNX_SQUEEZE, fold_identity}, {OP_ONNX_UNSQUEEZE, fold_identity},
	{OP_ONNX_OPTIONAL_GET_ELEMENT, fold_identity}, {OP_ONNX_DROPOUT, fold_identity},
	{OP_ONNX_TRANSPOSE, fold_transpose}, {OP_ONNX_SLICE, fold_slice}, {OP_ONNX_GATHER, fold_gather}, {OP_ONNX_GATHER_ND, fold_gather_nd}, {OP_ONNX_CONCAT, fold_concat},
	{OP_ONNX_EXPAND, fold_expand}, {OP_ONNX_TILE, fold_tile}, {OP_ONNX_PAD, fold_pad}, {OP_ONNX_SCATTER_ELEMENTS, fold_scatter}, {OP_ONNX_SCATTER, fold_scatter},
	{OP_ONNX_SCATTER_ND, fold_scatter_nd}, {OP_ONNX_NON_ZERO, fold_non_zero}, {OP_ONNX_CONSTANT_OF_SHAPE, fold_fill}, {OP_ONNX_RANGE, fold_range}, {OP_ONNX_SHAPE, fold_shape},
	{OP_ONNX_SIZE, fold_size}, {OP_ONNX_STACK_RUNS, fold_stack_runs}, {OP_ONNX_SELECT, fold_selected},
};

static folder *
folder_of(unsigned op)
{
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		if (folders[i].op == op)
			return folders[i].fn;
	return NULL;
}

/* The result's type as numbers; false: not known, or too many elements. */
static bool
begin(struct fold *p, uint32_t v)
{
	const struct val *x = &p->s->g->vals[v];
	uint64_t n = 1;

	if (!v || x->rank == RANK_UNKNOWN || x->dtype == DT_NONE)
		return false;
	p->out = (struct elems){.dtype = x->dtype, .rank = x->rank};
	for (unsigned i = 0; i < x->rank; i++) {
		struct sint d = val_dims(p->s->g, v)[i];

		if (d.expr || d.n < 0 || d.n > MAX_ELEMENTS || (n *= (uint64_t)d.n) > MAX_ELEMENTS)
			return false;
		p->out.dim[i] = d.n;
	}
	p->out.n = (uint32_t)n;
	return !dtype_is_float(x->dtype) || n <= MAX_REALS;
}

/* In place where it had as many before: the pass runs twice. */
static void
keep(struct fold *p, uint32_t v)
{
	struct val *x = &p->s->g->vals[v];
	bool again = x->data == p->out.kind && x->ndata == p->out.n;

	if (p->out.kind == DATA_INTS && again)
		memcpy(p->s->g->ints + x->data_at, p->i, p->out.n * sizeof *p->i);
	else if (p->out.kind == DATA_INTS)
		val_ints(p->s->g, v, p->i, p->out.n);
	else if (again)
		memcpy(p->s->g->floats + x->data_at, p->f, p->out.n * sizeof *p->f);
	else
		val_floats(p->s->g, v, p->f, p->out.n);
}

/* A list of which nothing is known says no more than its dims do. */
static bool
says_something(const struct fold *p)
{
	for (uint32_t i = 0; p->out.kind == DATA_INTS && i < p->out.n; i++)
		if (!is_unknown(p->i[i]))
			return true;
	return p->out.kind == DATA_FLOATS || p->out.n == 0;
}

void
fold_node(struct shaper *s)
{
	unsigned op = s->g->nodes[s->n].op;
	folder *fn = folder_of(op);
	struct sint ints[MAX_ELEMENTS];
	double floats[MAX_ELEMENTS];
	struct fold p = {.s = s, .i = ints, .f = floats};

	if (fn && nout(s) && begin(&p, node_outs(s->g, s->n)[0]) && fn(&p) && says_something(&p))
		keep(&p, node_outs(s->g, s->n)[0]);
	for (unsigned k = 0; op == OP_ONNX_SPLIT && k < nout(s); k++)
		if (begin(&p, node_outs(s->g, s->n)[k]) && fold_part(&p, k) && says_something(&p))
			keep(&p, node_outs(s->g, s->n)[k]);
}
