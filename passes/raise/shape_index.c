/* Rules for ONNX operators that look elements up, or count them. */
#include "shape.h"

void
rule_gather(struct shaper *s)
{
	struct type x = in(s, "data"), i = in(s, "indices"), t = typed(x.dtype, RANK_UNKNOWN, NULL);
	int64_t axis = attr_int(s, "axis");

	if (!wrap_axis(&axis, x.rank) || i.rank == RANK_UNKNOWN || x.rank + i.rank - 1 > MAX_RANK) {
		set_type(s, 0, t);
		return;
	}
	t.rank = 0;
	for (unsigned k = 0; k < (unsigned)axis; k++)
		t.dim[t.rank++] = x.dim[k];
	for (unsigned k = 0; k < i.rank; k++)
		t.dim[t.rank++] = i.dim[k];
	for (unsigned k = (unsigned)axis + 1; k < x.rank; k++)
		t.dim[t.rank++] = x.dim[k];
	set_type(s, 0, t);
}

void
rule_gather_elements(struct shaper *s)
{
	struct type t = in(s, "indices");

	t.dtype = in(s, "data").dtype;
	set_type(s, 0, t);
}

/* indices[..., k] point at slices of data without its first k dims behind the batch. */
void
rule_gather_nd(struct shaper *s)
{
	struct type x = in(s, "data"), i = in(s, "indices"), t = typed(x.dtype, RANK_UNKNOWN, NULL);
	int64_t batch = attr_int(s, "batch_dims"), used;

	if (x.rank == RANK_UNKNOWN || i.rank == RANK_UNKNOWN || !i.rank || i.dim[i.rank - 1].expr || batch < 0 || batch > MAX_RANK) {
		set_type(s, 0, t);
		return;
	}
	used = batch + i.dim[i.rank - 1].n;
	if (used > x.rank || i.rank - 1 + x.rank - used > MAX_RANK) {
		set_type(s, 0, t);
		return;
	}
	t.rank = 0;
	for (unsigned k = 0; k + 1 < i.rank; k++)
		t.dim[t.rank++] = i.dim[k];
	for (unsigned k = (unsigned)used; k < x.rank; k++)
		t.dim[t.rank++] = x.dim[k];
	set_type(s, 0, t);
}

void
rule_one_hot(struct shaper *s)
{
	struct type i = in(s, "indices"), t = typed(in(s, "values").dtype, RANK_UNKNOWN, NULL);
	int64_t axis = attr_int(s, "axis");
	const struct sint *depth;
	const double *f;
	uint32_t n;

	if (i.rank == RANK_UNKNOWN || i.rank >= MAX_RANK || !wrap_axis(&axis, i.rank + 1u)) {
		set_type(s, 0, t);
		return;
	}
	t.rank = (uint8_t)(i.rank + 1);
	for (unsigned k = 0, from = 0; k < t.rank; k++)
		t.dim[k] = k == (unsigned)axis ? UNKNOWN : i.dim[from++];
	if (known_ints(s, operand(s, "depth"), &depth, &n) && n == 1)
		t.dim[axis] = *depth;
	else if (known_floats(s, operand(s, "depth"), &f, &n) && n == 1 && *f >= 0 && *f < 1e15)
		t.dim[axis] = SINT((int64_t)*f);
	set_type(s, 0, t);
}

void
rule_topk(struct shaper *s)
{
	struct type x = in(s, "X");
	int64_t axis = attr_int(s, "axis");
	const struct sint *k;
	uint32_t n;

	if (wrap_axis(&axis, x.rank))
		x.dim[axis] = known_ints(s, operand(s, "K"), &k, &n) && n == 1 ? *k : UNKNOWN;
	set_type(s, 0, x);
	x.dtype = DT_INT64;
	set_type(s, 1, x);
}

/* ---- sizes that depend on the data ---------------------------------------------------------------------------------- */

static struct sint
elements(struct shaper *s, const struct type *x)
{
	return x->rank == RANK_UNKNOWN ? UNKNOWN : product(s, x->dim, x->rank);
}

/* How many elements are not zero; false: they are not known. */
static bool
count_set(const struct shaper *s, uint32_t v, int64_t *count)
{
	const struct sint *i;
	const double *f;
	uint32_t n;

	*count = 0;
	if (known_ints(s, v, &i, &n)) {
		for (uint32_t k = 0; k < n; k++) {
			if (i[k].expr)
				return false;
			*count += i[k].n != 0;
		}
		return true;
	}
	if (!known_floats(s, v, &f, &n))
		return false;
	for (uint32_t k = 0; k < n; k++)
		*count += f[k] != 0;
	return true;
}

void
rule_non_zero(struct shaper *s)
{
	struct type x = in(s, "X");
	struct sint d[2] = {x.rank == RANK_UNKNOWN ? UNKNOWN : SINT(x.rank), UNKNOWN};
	int64_t count;

	d[1] = count_set(s, operand(s, "X"), &count) ? SINT(count) : at_most(s, elements(s, &x));
	set_result(s, 0, DT_INT64, 2, d);
}

void
rule_compress(struct shaper *s)
{
	struct type x = in(s, "input"), c = in(s, "condition");
	bool flat = arg_of(s, "axis")->kind != ARG_INT;
	int64_t axis = attr_int(s, "axis"), count;
	struct sint n;

	n = count_set(s, operand(s, "condition"), &count) ? SINT(count) : at_most(s, elements(s, &c));
	if (flat)
		set_result(s, 0, x.dtype, 1, &n);
	else if (wrap_axis(&axis, x.rank))
		x.dim[axis] = n;
	if (!flat)
		set_type(s, 0, x);
}

void
rule_unique(struct shaper *s)
{
	struct type x = in(s, "X");
	bool flat = arg_of(s, "axis")->kind != ARG_INT;
	int64_t axis = attr_int(s, "axis");
	struct sint all = elements(s, &x), n;

	if (!flat && wrap_axis(&axis, x.rank))
		all = x.dim[axis];
	n = is_number(all, 0) || is_number(all, 1) ? all : at_most(s, all);
	if (flat) {
		set_result(s, 0, x.dtype, 1, &n);
	} else {
		if (x.rank != RANK_UNKNOWN && axis >= 0 && axis < x.rank)
			x.dim[axis] = n;
		set_type(s, 0, x);
	}
	set_result(s, 1, DT_INT64, 1, &n);
	set_result(s, 2, DT_INT64, 1, &all);
	set_result(s, 3, DT_INT64, 1, &n);
}

void
rule_nms(struct shaper *s)
{
	struct type boxes = in(s, "boxes"), scores = in(s, "scores");
	struct sint d[2] = {UNKNOWN, SINT(3)};
	int64_t most = 0;

	if (boxes.rank == 3 && scores.rank == 3) {
		struct sint of_class = known_int(s, operand(s, "max_output_boxes_per_class"), &most) && most > 0 ? sint_op2(s->g, EX_MIN, SINT(most), boxes.dim[1]) : boxes.dim[1];

		d[0] = at_most(s, mul(s, of_class, mul(s, scores.dim[0], scores.dim[1])));
	}
	set_result(s, 0, DT_INT64, 2, d);
}
