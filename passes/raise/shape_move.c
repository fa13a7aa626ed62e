/* Rules for ONNX operators that move elements: other shapes, joining, cutting. */
#include "shape.h"

/* ---- the same elements in another shape ---------------------------------------------------------------------------- */

void
rule_expand(struct shaper *s)
{
	struct type x = in(s, "input"), shape = in(s, "shape"), to;
	const struct sint *d;
	uint32_t n;

	if (known_ints(s, operand(s, "shape"), &d, &n) && n <= MAX_RANK) {
		to = typed(x.dtype, n, d);
		broadcast_into(s, &x, &to);
		set_type(s, 0, x);
	} else if (x.rank != RANK_UNKNOWN && shape.rank == 1 && !shape.dim[0].expr && shape.dim[0].n <= MAX_RANK) {
		set_unknown_dims(s, 0, x.dtype, (unsigned)shape.dim[0].n > x.rank ? (unsigned)shape.dim[0].n : x.rank);
	} else {
		set_result(s, 0, x.dtype, RANK_UNKNOWN, NULL);
	}
}

void
rule_flatten(struct shaper *s)
{
	struct type x = in(s, "input");
	int64_t axis = attr_int(s, "axis");
	struct sint d[2] = {UNKNOWN, UNKNOWN};

	axis += axis < 0 && x.rank != RANK_UNKNOWN ? x.rank : 0;
	if (x.rank != RANK_UNKNOWN && axis >= 0 && axis <= x.rank) {
		d[0] = product(s, x.dim, (unsigned)axis);
		d[1] = product(s, x.dim + axis, x.rank - (unsigned)axis);
	}
	set_result(s, 0, x.dtype, 2, d);
}

/* What is left for the dim that is -1. Sizes that stand on both sides drop out first, so that unknown ones may. */
static struct sint
remaining(struct shaper *s, const struct type *x, const struct sint *d, unsigned n)
{
	struct sint left[MAX_RANK], by = SINT(1), all = SINT(1);
	unsigned count = 0;

	if (x->rank == RANK_UNKNOWN)
		return UNKNOWN;
	for (unsigned i = 0; i < x->rank; i++)
		left[count++] = x->dim[i];
	for (unsigned i = 0; i < n; i++) {
		unsigned k = 0;

		if (is_number(d[i], -1))
			continue;
		while (k < count && !same_size(left[k], d[i]))
			k++;
		if (k < count && !is_number(d[i], 0))
			left[k] = left[--count];
		else
			by = mul(s, by, d[i]);
	}
	for (unsigned k = 0; k < count; k++)
		all = mul(s, all, left[k]);
	return quotient(s, all, by);
}

void
rule_reshape(struct shaper *s)
{
	struct type x = in(s, "data"), shape = in(s, "shape"), t = typed(x.dtype, RANK_UNKNOWN, NULL);
	const struct sint *d;
	uint32_t n;
	bool copy = !attr_int(s, "allowzero");

	if (!known_ints(s, operand(s, "shape"), &d, &n) || n > MAX_RANK) {
		if (shape.rank == 1 && !shape.dim[0].expr && shape.dim[0].n >= 0 && shape.dim[0].n <= MAX_RANK)
			t.rank = (uint8_t)shape.dim[0].n;
		set_type(s, 0, t);
		return;
	}
	t = typed(x.dtype, n, d);
	for (unsigned i = 0; i < n; i++)
		if (copy && is_number(d[i], 0))
			t.dim[i] = i < x.rank && x.rank != RANK_UNKNOWN ? x.dim[i] : UNKNOWN;
	for (unsigned i = 0; i < n; i++)
		if (is_number(d[i], -1)) {
			t.dim[i] = SINT(-1);
			t.dim[i] = remaining(s, &x, t.dim, n);
			break;
		}
	set_type(s, 0, t);
}

/* Without axes all dims of size 1 go; then every dim must be known. */
void
rule_squeeze(struct shaper *s)
{
	struct type x = in(s, "data"), axes = in(s, "axes"), t = typed(x.dtype, 0, NULL);
	int64_t a[MAX_RANK];
	uint32_t n = 0, bits = 0;
	bool known = x.rank != RANK_UNKNOWN;

	if (known && operand(s, "axes"))
		known = known_numbers(s, operand(s, "axes"), a, MAX_RANK, &n);
	for (uint32_t i = 0; known && i < n; i++)
		known = wrap_axis(&a[i], x.rank) && (bits |= 1u << a[i], true);
	for (unsigned i = 0; known && !operand(s, "axes") && i < x.rank; i++) {
		known = !is_unknown(x.dim[i]);
		bits |= is_number(x.dim[i], 1) ? 1u << i : 0;
	}
	for (unsigned i = 0; known && i < x.rank; i++)
		if (!(bits >> i & 1))
			t.dim[t.rank++] = x.dim[i];
	if (!known) {
		t.rank = RANK_UNKNOWN;
		if (x.rank != RANK_UNKNOWN && axes.rank == 1 && !axes.dim[0].expr && axes.dim[0].n >= 0 && axes.dim[0].n <= x.rank)
			t.rank = (uint8_t)(x.rank - axes.dim[0].n);
	}
	set_type(s, 0, t);
}

void
rule_unsqueeze(struct shaper *s)
{
	struct type x = in(s, "data"), t = typed(x.dtype, RANK_UNKNOWN, NULL), axes = in(s, "axes");
	int64_t a[MAX_RANK];
	uint32_t n, bits = 0;
	unsigned from = 0;

	if (x.rank == RANK_UNKNOWN || !known_numbers(s, operand(s, "axes"), a, MAX_RANK, &n) || x.rank + n > MAX_RANK) {
		if (x.rank != RANK_UNKNOWN && axes.rank == 1 && !axes.dim[0].expr && axes.dim[0].n >= 0 && axes.dim[0].n + x.rank <= MAX_RANK)
			t.rank = (uint8_t)(x.rank + axes.dim[0].n);
		set_type(s, 0, t);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		if (wrap_axis(&a[i], x.rank + n))
			bits |= 1u << a[i];
	t.rank = (uint8_t)(x.rank + n);
	for (unsigned i = 0; i < t.rank; i++)
		t.dim[i] = bits >> i & 1 ? SINT(1) : from < x.rank ? x.dim[from++] : UNKNOWN;
	set_type(s, 0, t);
}

void
rule_transpose(struct shaper *s)
{
	struct type x = in(s, "data"), t = x;
	int64_t perm[MAX_RANK];
	int n = attr_ints(s, "perm", perm, MAX_RANK);

	for (unsigned i = 0; x.rank != RANK_UNKNOWN && i < x.rank; i++) {
		int64_t from = n < 0 ? x.rank - 1 - (int64_t)i : i < (unsigned)n ? perm[i] : -1;

		t.dim[i] = from >= 0 && from < x.rank ? x.dim[from] : UNKNOWN;
	}
	if (x.rank == RANK_UNKNOWN && n >= 0)
		t.rank = (uint8_t)n;
	set_type(s, 0, t);
}

void
rule_depth_to_space(struct shaper *s)
{
	struct type x = in(s, "input");
	struct sint b = SINT(attr_int(s, "blocksize"));

	if (x.rank == 4) {
		x.dim[1] = quotient(s, x.dim[1], mul(s, b, b));
		x.dim[2] = mul(s, x.dim[2], b);
		x.dim[3] = mul(s, x.dim[3], b);
	}
	set_type(s, 0, x);
}

void
rule_space_to_depth(struct shaper *s)
{
	struct type x = in(s, "input");
	struct sint b = SINT(attr_int(s, "blocksize"));

	if (x.rank == 4) {
		x.dim[1] = mul(s, x.dim[1], mul(s, b, b));
		x.dim[2] = quotient(s, x.dim[2], b);
		x.dim[3] = quotient(s, x.dim[3], b);
	}
	set_type(s, 0, x);
}

/* ---- joining ------------------------------------------------------------------------------------------------------------ */

void
rule_concat(struct shaper *s)
{
	const uint32_t *ids;
	unsigned n = operands(s, &ids);
	struct type t = n ? type_of(s, ids[0]) : typed(DT_NONE, RANK_UNKNOWN, NULL);

	for (unsigned i = 1; i < n; i++) {
		struct type u = type_of(s, ids[i]);
		int64_t axis = attr_int(s, "axis");

		if (t.rank == RANK_UNKNOWN && u.rank != RANK_UNKNOWN)
			t.rank = u.rank;       /* dims stay unknown, the sum as well */
		wrap_axis(&axis, t.rank);
		for (unsigned k = 0; t.rank != RANK_UNKNOWN && k < t.rank; k++) {
			struct sint d = u.rank == t.rank ? u.dim[k] : UNKNOWN;

			if (k == axis)
				t.dim[k] = add(s, t.dim[k], d);
			else if (t.dim[k].expr && !is_unknown(d) && (is_unknown(t.dim[k]) || !d.expr))
				t.dim[k] = d;
		}
	}
	set_type(s, 0, t);
}

void
rule_stack_runs(struct shaper *s)
{
	struct type x = in(s, "x"), t = x;
	int64_t axis = attr_int(s, "axis");
	const struct sint *count;
	uint32_t n;

	if (x.rank == RANK_UNKNOWN || x.rank >= MAX_RANK || !wrap_axis(&axis, x.rank + 1u)) {
		t.rank = RANK_UNKNOWN;
		set_type(s, 0, t);
		return;
	}
	t.rank = (uint8_t)(x.rank + 1);
	for (unsigned i = 0, k = 0; i < t.rank; i++)
		t.dim[i] = i == (unsigned)axis ? UNKNOWN : x.dim[k++];
	if (known_ints(s, operand(s, "count"), &count, &n) && n == 1)
		t.dim[axis] = *count;
	set_type(s, 0, t);
}

void
rule_tile(struct shaper *s)
{
	struct type x = in(s, "input");
	const struct sint *d;
	uint32_t n;
	bool known = known_ints(s, operand(s, "repeats"), &d, &n) && n == x.rank;

	for (unsigned i = 0; x.rank != RANK_UNKNOWN && i < x.rank; i++)
		x.dim[i] = known ? mul(s, x.dim[i], d[i]) : UNKNOWN;
	set_type(s, 0, x);
}

/* ---- cutting ------------------------------------------------------------------------------------------------------------- */

static void
split_equally(struct shaper *s, struct type x, int64_t axis, int64_t parts)
{
	struct sint whole = x.dim[axis], size = quotient(s, add(s, whole, SINT(parts - 1)), SINT(parts)), left = whole;

	if (whole.expr && !is_unknown(quotient(s, whole, SINT(parts))))
		size = quotient(s, whole, SINT(parts));
	for (unsigned k = 0; k < nout(s); k++) {
		x.dim[axis] = size;
		if (!whole.expr && !size.expr) {
			x.dim[axis] = left.n < size.n ? left : size;
			left.n -= x.dim[axis].n;
		}
		set_type(s, k, x);
	}
}

void
rule_split(struct shaper *s)
{
	struct type x = in(s, "input");
	int64_t axis = attr_int(s, "axis"), parts = attr_int(s, "num_outputs");
	const struct sint *d;
	uint32_t n;

	if (!wrap_axis(&axis, x.rank)) {
		for (unsigned k = 0; k < nout(s); k++)
			set_type(s, k, x);
		return;
	}
	if (!operand(s, "split")) {
		split_equally(s, x, axis, parts > 0 ? parts : nout(s));
		return;
	}
	if (!known_ints(s, operand(s, "split"), &d, &n))
		n = 0;
	for (unsigned k = 0; k < nout(s); k++) {
		x.dim[axis] = k < n ? d[k] : UNKNOWN;
		set_type(s, k, x);
	}
}

/* A position among d elements, as Python counts: negative from the end, cut to what is there. */
static struct sint
position(struct shaper *s, struct sint at, struct sint d)
{
	if (at.expr)
		return sint_op2(s->g, EX_MIN, at, d);
	if (at.n < 0 && at.n > INT32_MIN)
		return d.expr ? add(s, d, at) : SINT(d.n + at.n < 0 ? 0 : d.n + at.n);
	if (at.n < 0)
		return SINT(0);
	if (at.n >= INT32_MAX)
		return d;
	if (at.n == 0 || (at.n == 1 && d.expr))
		return at;             /* a symbol is at least 1 */
	return sint_op2(s->g, EX_MIN, at, d);
}

static struct sint
slice_backwards(struct sint d, int64_t start, int64_t end, int64_t step)
{
	int64_t first, last;

	if (d.expr)
		return start == -1 && end <= INT32_MIN && step == -1 ? d : UNKNOWN;
	first = start < 0 ? start + d.n : start;
	last = end < 0 ? (end <= INT32_MIN ? -1 : end + d.n) : end;
	first = first < -1 ? -1 : first >= d.n ? d.n - 1 : first;
	last = last < -1 ? -1 : last >= d.n ? d.n - 1 : last;
	return SINT(first > last ? (first - last - 1) / -(step + (step == INT64_MIN)) + 1 : 0);
}

static struct sint
slice_dim(struct shaper *s, struct sint d, struct sint start, struct sint end, struct sint step)
{
	struct sint size;

	if (is_unknown(d) || is_unknown(start) || is_unknown(end) || step.expr || step.n == 0 || step.n == INT64_MIN)
		return UNKNOWN;
	if (step.n < 0)
		return start.expr || end.expr ? UNKNOWN : slice_backwards(d, start.n, end.n, step.n);
	size = sub(s, position(s, end, d), position(s, start, d));
	if (!size.expr && size.n < 0)
		return SINT(0);
	return step.n == 1 ? size : quotient(s, add(s, size, SINT(step.n - 1)), step);
}

void
rule_slice(struct shaper *s)
{
	struct type x = in(s, "data"), t = x;
	const struct sint *start, *end, *step = NULL;
	int64_t axes[MAX_RANK];
	uint32_t n, m, k = 0, nstep = 0;
	bool known = known_ints(s, operand(s, "starts"), &start, &n) && known_ints(s, operand(s, "ends"), &end, &m) && n == m && n <= MAX_RANK;

	if (known && operand(s, "axes"))
		known = known_numbers(s, operand(s, "axes"), axes, MAX_RANK, &k) && k == n;
	if (operand(s, "steps") && !known_ints(s, operand(s, "steps"), &step, &nstep))
		nstep = 0;
	for (unsigned i = 0; x.rank != RANK_UNKNOWN && !known && i < x.rank; i++)
		t.dim[i] = UNKNOWN;
	/* where only the places are unknown, the axes that are not cut stay */
	if (!known && operand(s, "axes") && known_numbers(s, operand(s, "axes"), axes, MAX_RANK, &k) && x.rank != RANK_UNKNOWN) {
		t = x;
		for (uint32_t i = 0; i < k; i++)
			if (wrap_axis(&axes[i], x.rank))
				t.dim[axes[i]] = UNKNOWN;
	}
	for (uint32_t i = 0; known && i < n && x.rank != RANK_UNKNOWN; i++) {
		int64_t axis = operand(s, "axes") ? axes[i] : i;

		if (wrap_axis(&axis, x.rank))
			t.dim[axis] = slice_dim(s, t.dim[axis], start[i], end[i], !operand(s, "steps") ? SINT(1) : i < nstep ? step[i] : UNKNOWN);
	}
	set_type(s, 0, t);
}

void
rule_pad(struct shaper *s)
{
	struct type x = in(s, "data"), t = x;
	const struct sint *pad;
	int64_t axes[MAX_RANK];
	uint32_t n, k = x.rank;
	bool known = x.rank != RANK_UNKNOWN && known_ints(s, operand(s, "pads"), &pad, &n);

	if (known && operand(s, "axes"))
		known = known_numbers(s, operand(s, "axes"), axes, MAX_RANK, &k);
	known = known && n == 2 * k;
	for (unsigned i = 0; x.rank != RANK_UNKNOWN && !known && i < x.rank; i++)
		t.dim[i] = UNKNOWN;
	for (uint32_t i = 0; known && i < k; i++) {
		int64_t axis = operand(s, "axes") ? axes[i] : i;

		if (wrap_axis(&axis, x.rank))
			t.dim[axis] = add(s, t.dim[axis], add(s, pad[i], pad[k + i]));
	}
	set_type(s, 0, t);
}

void
rule_center_crop_pad(struct shaper *s)
{
	struct type x = in(s, "input_data");
	int64_t axes[MAX_RANK];
	int n = attr_ints(s, "axes", axes, MAX_RANK);
	const struct sint *d;
	uint32_t count;
	bool known = known_ints(s, operand(s, "shape"), &d, &count);

	if (n < 0)
		for (n = 0; x.rank != RANK_UNKNOWN && n < x.rank; n++)
			axes[n] = n;
	for (int i = 0; i < n; i++)
		if (wrap_axis(&axes[i], x.rank))
			x.dim[axes[i]] = known && (uint32_t)i < count ? d[i] : UNKNOWN;
	set_type(s, 0, x);
}
