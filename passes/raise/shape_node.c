/* What a rule for an ONNX operator reads and writes: operands, attributes, sizes and results of its node. */
#include "shape.h"

#include <stdlib.h>
#include <string.h>

/* ---- operands ------------------------------------------------------------------------------------------------- */

const struct arg *
arg_of(const struct shaper *s, const char *name)
{
	static const struct arg none = {.kind = ARG_NONE};
	const struct arg *a = node_arg(s->g, s->n, name);

	return a ? a : &none;
}

uint32_t
operand(const struct shaper *s, const char *name)
{
	const struct arg *a = arg_of(s, name);

	return a->kind == ARG_VAL ? a->u.val : 0;
}

uint32_t
operand_at(const struct shaper *s, unsigned i)
{
	const struct arg *a = i < s->g->nodes[s->n].narg ? node_args(s->g, s->n) + i : NULL;

	return a && a->kind == ARG_VAL ? a->u.val : 0;
}

unsigned
operands(const struct shaper *s, const uint32_t **ids)
{
	for (unsigned i = 0; i < s->g->nodes[s->n].narg; i++) {
		const struct arg *a = node_args(s->g, s->n) + i;

		if (a->kind == ARG_VALS) {
			*ids = s->g->ids + a->first;
			return a->count;
		}
	}
	*ids = NULL;
	return 0;
}

struct type
typed(unsigned dtype, unsigned rank, const struct sint *dims)
{
	struct type t = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank};

	for (unsigned i = 0; i < MAX_RANK; i++)
		t.dim[i] = dims && i < rank && rank <= MAX_RANK ? dims[i] : UNKNOWN;
	return t;
}

struct type
type_of(const struct shaper *s, uint32_t v)
{
	const struct val *x = &s->g->vals[v];

	return v ? typed(x->dtype, x->rank, x->rank <= MAX_RANK ? val_dims(s->g, v) : NULL) : typed(DT_NONE, RANK_UNKNOWN, NULL);
}

struct type
in(const struct shaper *s, const char *name)
{
	return type_of(s, operand(s, name));
}

unsigned
nout(const struct shaper *s)
{
	return s->g->nodes[s->n].nout;
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */

/* The default of an attribute, as text of the operator's row. */
static struct str
dflt(const struct shaper *s, const char *name)
{
	struct arg_name names[MAX_SCHEMA];
	int i = op_arg_index(s->g->nodes[s->n].op, str_of(name));

	if (i < 0 || op_args(s->g->nodes[s->n].op, names, MAX_SCHEMA) <= (uint32_t)i)
		return S("");
	return names[i].dflt;
}

int64_t
attr_int(const struct shaper *s, const char *name)
{
	const struct arg *a = arg_of(s, name);
	int64_t n = 0;

	if (a->kind == ARG_INT)
		return a->u.i.n;
	str_int(dflt(s, name), &n);
	return n;
}

double
attr_float(const struct shaper *s, const char *name)
{
	const struct arg *a = arg_of(s, name);
	struct str d = dflt(s, name);

	if (a->kind == ARG_FLOAT)
		return a->u.f;
	return a->kind == ARG_INT ? (double)a->u.i.n : d.n ? strtod(d.p, NULL) : 0;
}

struct str
attr_str(const struct shaper *s, const char *name)
{
	const struct arg *a = arg_of(s, name);
	struct str d = dflt(s, name);

	if (a->kind == ARG_STR)
		return graph_str(s->g, a->u.str);
	return d.n >= 2 && d.p[0] == '\'' ? str_sub(d, 1, d.n - 1) : S("");
}

unsigned
attr_dtype(const struct shaper *s, const char *name)
{
	const struct arg *a = arg_of(s, name);

	return a->kind == ARG_DTYPE ? a->dtype : dtype_by_name(dflt(s, name));
}

int
attr_ints(const struct shaper *s, const char *name, int64_t *out, unsigned cap)
{
	const struct arg *a = arg_of(s, name);

	if (a->kind != ARG_INTS || a->count > cap)
		return -1;
	for (uint32_t i = 0; i < a->count; i++)
		out[i] = s->g->ints[a->first + i].n;
	return (int)a->count;
}

/* ---- known elements ------------------------------------------------------------------------------------------------- */

bool
known_ints(const struct shaper *s, uint32_t v, const struct sint **out, uint32_t *n)
{
	const struct val *x = &s->g->vals[v];

	if (!v || x->data != DATA_INTS)
		return false;
	*out = s->g->ints + x->data_at;
	*n = x->ndata;
	return true;
}

bool
known_numbers(const struct shaper *s, uint32_t v, int64_t *out, uint32_t cap, uint32_t *n)
{
	const struct sint *i;

	if (!known_ints(s, v, &i, n) || *n > cap)
		return false;
	for (uint32_t k = 0; k < *n; k++) {
		if (i[k].expr)
			return false;
		out[k] = i[k].n;
	}
	return true;
}

bool
known_floats(const struct shaper *s, uint32_t v, const double **out, uint32_t *n)
{
	const struct val *x = &s->g->vals[v];

	if (!v || x->data != DATA_FLOATS)
		return false;
	*out = s->g->floats + x->data_at;
	*n = x->ndata;
	return true;
}

bool
known_int(const struct shaper *s, uint32_t v, int64_t *out)
{
	uint32_t n;

	return known_numbers(s, v, out, 1, &n) && n == 1;
}

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

bool
is_unknown(struct sint n)
{
	return n.expr == EXPR_UNKNOWN;
}

bool
is_number(struct sint a, int64_t n)
{
	return !a.expr && a.n == n;
}

bool
same_size(struct sint a, struct sint b)
{
	return !is_unknown(a) && a.expr == b.expr && a.n == b.n;
}

struct sint
add(struct shaper *s, struct sint a, struct sint b)
{
	return sint_op2(s->g, EX_ADD, a, b);
}

struct sint
sub(struct shaper *s, struct sint a, struct sint b)
{
	return add(s, a, mul(s, b, SINT(-1)));
}

struct sint
mul(struct shaper *s, struct sint a, struct sint b)
{
	if (is_number(a, 0) || is_number(b, 0))
		return SINT(0);
	return sint_op2(s->g, EX_MUL, a, b);
}

struct sint
quotient(struct shaper *s, struct sint a, struct sint b)
{
	return is_number(b, 0) ? UNKNOWN : sint_op2(s->g, EX_FLOORDIV, a, b);
}

struct sint
product(struct shaper *s, const struct sint *d, unsigned n)
{
	struct sint p = SINT(1);

	for (unsigned i = 0; i < n; i++)
		p = mul(s, p, d[i]);
	return p;
}

bool
wrap_axis(int64_t *axis, unsigned rank)
{
	if (rank == RANK_UNKNOWN || *axis < -(int64_t)rank || *axis >= (int64_t)rank)
		return false;
	*axis += *axis < 0 ? rank : 0;
	return true;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

void
set_type(struct shaper *s, unsigned k, struct type t)
{
	if (k < nout(s))
		s->out[k] = t;
}

void
set_result(struct shaper *s, unsigned k, unsigned dtype, unsigned rank, const struct sint *dims)
{
	set_type(s, k, typed(dtype, rank > MAX_RANK ? RANK_UNKNOWN : rank, dims));
}

void
set_unknown_dims(struct shaper *s, unsigned k, unsigned dtype, unsigned rank)
{
	set_result(s, k, dtype, rank, NULL);
}

/* Sizes that go together are equal, or one of them is 1. */
static struct sint
broadcast(struct shaper *s, struct sint a, struct sint b)
{
	if (is_number(a, 1) || same_size(a, b))
		return b;
	if (is_number(b, 1))
		return a;
	if (!a.expr || !b.expr)
		return !a.expr && !b.expr ? UNKNOWN : a.expr ? b : a;
	return is_unknown(a) || is_unknown(b) ? UNKNOWN : sint_op2(s->g, EX_MAX, a, b);
}

bool
broadcast_into(struct shaper *s, struct type *to, const struct type *from)
{
	struct type wide = *to;
	unsigned shift;

	if (to->rank == RANK_UNKNOWN || from->rank == RANK_UNKNOWN) {
		to->rank = RANK_UNKNOWN;
		return false;
	}
	wide.rank = to->rank > from->rank ? to->rank : from->rank;
	for (unsigned i = 0; i < wide.rank; i++) {
		shift = wide.rank - to->rank;
		wide.dim[i] = i < shift ? SINT(1) : to->dim[i - shift];
		shift = wide.rank - from->rank;
		wide.dim[i] = broadcast(s, wide.dim[i], i < shift ? SINT(1) : from->dim[i - shift]);
	}
	*to = wide;
	return true;
}

struct sint
at_most(struct shaper *s, struct sint largest)
{
	if (!s->bound)
		return UNKNOWN;
	if (s->nbounded++ == 0)
		s->first_bounded = s->g->nodes[s->n].name;
	return largest;
}
