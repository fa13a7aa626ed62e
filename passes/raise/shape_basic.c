/* Rules for ONNX operators: elementwise ones, dtypes, reductions, tensors made from sizes. */
#include "shape.h"

#include <math.h>

/* ---- elementwise ------------------------------------------------------------------------------------------------ */

static uint32_t
first_operand(const struct shaper *s)
{
	const uint32_t *ids;

	return operands(s, &ids) ? ids[0] : operand_at(s, 0);
}

void
rule_same(struct shaper *s)
{
	set_type(s, 0, type_of(s, first_operand(s)));
}

void
rule_same_bool(struct shaper *s)
{
	struct type t = type_of(s, first_operand(s));

	t.dtype = DT_BOOL;
	set_type(s, 0, t);
}

void
rule_same_fp32(struct shaper *s)
{
	struct type t = type_of(s, first_operand(s));

	t.dtype = DT_FP32;
	set_type(s, 0, t);
}

/* All operands of the node. */
static struct type
broadcast_all(struct shaper *s)
{
	struct type t = typed(DT_NONE, 0, NULL), u;

	t.dtype = type_of(s, first_operand(s)).dtype;
	for (struct operands it = operands_of(s->g, s->n); operand_next(&it);) {
		u = type_of(s, it.val);
		broadcast_into(s, &t, &u);
	}
	return t;
}

void
rule_broadcast(struct shaper *s)
{
	set_type(s, 0, broadcast_all(s));
}

void
rule_compare(struct shaper *s)
{
	struct type t = broadcast_all(s);

	t.dtype = DT_BOOL;
	set_type(s, 0, t);
}

void
rule_where(struct shaper *s)
{
	struct type t = broadcast_all(s);

	t.dtype = in(s, "X").dtype ? in(s, "X").dtype : in(s, "Y").dtype;
	set_type(s, 0, t);
}

/* ---- dtypes --------------------------------------------------------------------------------------------------------- */

static void
same_as(struct shaper *s, unsigned dtype)
{
	struct type t = type_of(s, operand_at(s, 0));

	t.dtype = (uint8_t)dtype;
	set_type(s, 0, t);
}

void
rule_cast(struct shaper *s)
{
	same_as(s, attr_dtype(s, "to"));
}

void
rule_cast_like(struct shaper *s)
{
	same_as(s, in(s, "target_type").dtype);
}

void
rule_quantize(struct shaper *s)
{
	unsigned zero = in(s, "y_zero_point").dtype, wanted = attr_dtype(s, "output_dtype");

	same_as(s, zero ? zero : wanted ? wanted : DT_UINT8);
}

void
rule_dequantize(struct shaper *s)
{
	unsigned wanted = attr_dtype(s, "output_dtype");

	same_as(s, wanted ? wanted : in(s, "x_scale").dtype);
}

void
rule_dynamic_quantize(struct shaper *s)
{
	same_as(s, DT_UINT8);
	set_result(s, 1, DT_FP32, 0, NULL);
	set_result(s, 2, DT_UINT8, 0, NULL);
}

/* ---- sizes, and tensors made from them ------------------------------------------------------------------------------- */

void
rule_shape(struct shaper *s)
{
	struct type x = in(s, "data");
	int64_t start = attr_int(s, "start"), end = arg_of(s, "end")->kind == ARG_INT ? attr_int(s, "end") : INT64_MAX, rank = x.rank;
	struct sint n = UNKNOWN;

	if (x.rank != RANK_UNKNOWN) {
		start += start < 0 ? rank : 0;
		end += end < 0 ? rank : 0;
		start = start < 0 ? 0 : start > rank ? rank : start;
		end = end < 0 ? 0 : end > rank ? rank : end;
		n = SINT(end > start ? end - start : 0);
	}
	set_result(s, 0, DT_INT64, 1, &n);
}

void
rule_size(struct shaper *s)
{
	set_result(s, 0, DT_INT64, 0, NULL);
}

/* The dims that a one-dimensional operand holds; false: not even how many. */
static bool
dims_from(struct shaper *s, uint32_t v, struct type *t)
{
	struct type x = type_of(s, v);
	const struct sint *d;
	uint32_t n;

	if (known_ints(s, v, &d, &n) && n <= MAX_RANK) {
		*t = typed(t->dtype, n, d);
		return true;
	}
	if (x.rank != 1 || x.dim[0].expr || x.dim[0].n < 0 || x.dim[0].n > MAX_RANK)
		return false;
	*t = typed(t->dtype, (unsigned)x.dim[0].n, NULL);
	return true;
}

void
rule_constant_of_shape(struct shaper *s)
{
	struct type t = typed(in(s, "value").dtype, RANK_UNKNOWN, NULL);

	t.dtype = t.dtype ? t.dtype : DT_FP32;
	dims_from(s, operand(s, "input"), &t);
	set_type(s, 0, t);
}

/* ceil((limit - start) / delta), not below 0 */
static struct sint
steps(struct shaper *s)
{
	const struct sint *i[3];
	const double *f[3];
	const char *const names[] = {"start", "limit", "delta"};
	uint32_t n, ints = 0, floats = 0;
	double count;

	for (unsigned k = 0; k < 3; k++) {
		ints += known_ints(s, operand(s, names[k]), &i[k], &n) && n == 1;
		floats += known_floats(s, operand(s, names[k]), &f[k], &n) && n == 1;
	}
	if (floats == 3 && *f[2] != 0) {
		count = ceil((*f[1] - *f[0]) / *f[2]);
		return !(count <= 1e15) ? UNKNOWN : count > 0 ? SINT((int64_t)count) : SINT(0);
	}
	if (ints != 3 || is_number(*i[2], 0))
		return UNKNOWN;
	if (is_number(*i[2], 1) && (i[0]->expr || i[1]->expr))
		return sub(s, *i[1], *i[0]);
	if (i[0]->expr || i[1]->expr || i[2]->expr)
		return UNKNOWN;
	count = ceil(((double)i[1]->n - (double)i[0]->n) / (double)i[2]->n);
	return !(count <= 1e15) ? UNKNOWN : count > 0 ? SINT((int64_t)count) : SINT(0);
}

void
rule_range(struct shaper *s)
{
	struct sint n = steps(s);

	set_result(s, 0, in(s, "start").dtype ? in(s, "start").dtype : in(s, "limit").dtype, 1, &n);
}

void
rule_random(struct shaper *s)
{
	int64_t shape[MAX_RANK];
	struct type t = typed(attr_dtype(s, "dtype"), RANK_UNKNOWN, NULL);
	int n = attr_ints(s, "shape", shape, MAX_RANK);

	if (n >= 0)
		t.rank = (uint8_t)n;
	for (int i = 0; i < n; i++)
		t.dim[i] = SINT(shape[i]);
	set_type(s, 0, t);
}

void
rule_random_like(struct shaper *s)
{
	struct type t = in(s, "input");
	unsigned dtype = attr_dtype(s, "dtype");

	t.dtype = dtype ? (uint8_t)dtype : t.dtype;
	set_type(s, 0, t);
}

void
rule_multinomial(struct shaper *s)
{
	struct sint dims[2] = {in(s, "input").dim[0], SINT(attr_int(s, "sample_size"))};

	set_result(s, 0, attr_dtype(s, "dtype"), 2, dims);
}

/* ---- reductions ------------------------------------------------------------------------------------------------------------ */

/* The axes that an operand lists, as bits; false: not known. No operand, or an empty one, means none here. */
static bool
axes_of(struct shaper *s, uint32_t v, unsigned rank, uint32_t *bits)
{
	int64_t axes[MAX_RANK];
	uint32_t n = 0;

	*bits = 0;
	if (v && !known_numbers(s, v, axes, MAX_RANK, &n))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (!wrap_axis(&axes[i], rank))
			return false;
		*bits |= 1u << axes[i];
	}
	return true;
}

static struct type
without(struct type x, uint32_t bits, bool keep)
{
	struct type t = typed(x.dtype, 0, NULL);

	for (unsigned i = 0; i < x.rank; i++)
		if (!(bits >> i & 1))
			t.dim[t.rank++] = x.dim[i];
		else if (keep)
			t.dim[t.rank++] = SINT(1);
	return t;
}

void
rule_reduce(struct shaper *s)
{
	struct type x = in(s, "data"), axes = in(s, "axes");
	bool keep = attr_int(s, "keepdims") != 0;
	uint32_t bits;

	if (x.rank == RANK_UNKNOWN)
		set_type(s, 0, x);
	else if (axes_of(s, operand(s, "axes"), x.rank, &bits))
		set_type(s, 0, without(x, bits ? bits : attr_int(s, "noop_with_empty_axes") ? 0 : ~0u, keep));
	else if (keep)
		set_unknown_dims(s, 0, x.dtype, x.rank);
	else if (axes.rank == 1 && !axes.dim[0].expr && axes.dim[0].n > 0 && axes.dim[0].n <= x.rank)
		set_unknown_dims(s, 0, x.dtype, x.rank - (unsigned)axes.dim[0].n);
	else
		set_result(s, 0, x.dtype, RANK_UNKNOWN, NULL);
}

void
rule_arg_reduce(struct shaper *s)
{
	struct type x = in(s, "data");
	int64_t axis = attr_int(s, "axis");

	if (wrap_axis(&axis, x.rank))
		x = without(x, 1u << axis, attr_int(s, "keepdims") != 0);
	else
		x.rank = RANK_UNKNOWN;
	x.dtype = DT_INT64;
	set_type(s, 0, x);
}

void
rule_dropout(struct shaper *s)
{
	struct type t = in(s, "data");

	set_type(s, 0, t);
	t.dtype = DT_BOOL;
	set_type(s, 1, t);
}

/* ---- branches ------------------------------------------------------------------------------------------------------------------ */

/* What both have in common, as long as nothing says which it is. */
static struct type
common(struct type a, struct type b)
{
	struct type t = a;

	if (a.dtype != b.dtype)
		t.dtype = DT_NONE;
	if (a.rank != b.rank)
		t.rank = RANK_UNKNOWN;
	for (unsigned i = 0; t.rank != RANK_UNKNOWN && i < t.rank; i++)
		if (!same_size(a.dim[i], b.dim[i]))
			t.dim[i] = UNKNOWN;
	return t;
}

void
rule_select(struct shaper *s)
{
	uint32_t v = selected(s);

	set_type(s, 0, v ? type_of(s, v) : common(in(s, "then"), in(s, "otherwise")));
}

/* ---- optional values, sequences ------------------------------------------------------------------------------------------------ */

void
rule_optional(struct shaper *s)
{
	set_type(s, 0, in(s, "input"));
}

void
rule_has_element(struct shaper *s)
{
	set_result(s, 0, DT_BOOL, 0, NULL);
}

void
rule_sequence_length(struct shaper *s)
{
	set_result(s, 0, DT_INT64, 0, NULL);
}
