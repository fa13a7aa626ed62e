/* Evaluation of small tensors: operators that only move elements, and those that make tensors of sizes. */
#include "fold.h"

#include <math.h>
#include <string.h>

static uint32_t
first_operand(const struct shaper *s)
{
	const uint32_t *ids;

	return operands(s, &ids) ? ids[0] : operand_at(s, 0);
}

/* The same elements in the same order. */
bool
fold_identity(struct fold *p)
{
	struct elems x;

	if (!fold_operand(p->s, first_operand(p->s), &x) || x.n != p->out.n)
		return false;
	p->out.kind = x.kind;
	for (uint32_t i = 0; i < x.n; i++)
		fold_copy(p, i, &x, i);
	return true;
}

/* ---- by places ------------------------------------------------------------------------------------------------------ */

static uint32_t
index_of(const struct elems *e, const int64_t *at)
{
	int64_t index = 0;

	for (unsigned i = 0; i < e->rank; i++) {
		if (at[i] < 0 || at[i] >= e->dim[i])
			return UINT32_MAX;
		index = index * e->dim[i] + at[i];
	}
	return (uint32_t)index;
}

bool
fold_transpose(struct fold *p)
{
	struct elems x;
	int64_t perm[MAX_RANK], at[MAX_RANK] = {0}, from[MAX_RANK] = {0};
	int n = attr_ints(p->s, "perm", perm, MAX_RANK);

	if (!fold_named(p->s, "data", &x) || (n >= 0 && n != x.rank))
		return false;
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t i;

		for (unsigned d = 0; d < x.rank; d++) {
			int64_t axis = n < 0 ? x.rank - 1 - (int64_t)d : perm[d];

			if (!wrap_axis(&axis, x.rank))
				return false;
			from[axis] = at[d];
		}
		i = index_of(&x, from);
		if (i >= x.n)
			return false;
		fold_copy(p, k, &x, i);
	}
	return true;
}

/* Per axis of the data, where the slice begins and its step. */
static bool
slice_places(const struct shaper *s, const struct elems *x, int64_t *start, int64_t *step)
{
	int64_t starts[MAX_RANK], axes[MAX_RANK], steps[MAX_RANK];
	uint32_t n, m = 0, k = 0;

	if (!known_numbers(s, operand(s, "starts"), starts, MAX_RANK, &n) || (operand(s, "axes") && !known_numbers(s, operand(s, "axes"), axes, MAX_RANK, &m)) ||
	    (operand(s, "steps") && !known_numbers(s, operand(s, "steps"), steps, MAX_RANK, &k)) || (m && m != n) || (k && k != n))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		int64_t axis = m ? axes[i] : i, by = k ? steps[i] : 1, at = starts[i], d;

		if (!wrap_axis(&axis, x->rank))
			return false;
		d = x->dim[axis];
		at = at < 0 ? at + d : at;
		at = at < 0 ? 0 : at;
		start[axis] = by < 0 && at >= d ? d - 1 : at > d ? d : at;
		step[axis] = by;
	}
	return true;
}

bool
fold_slice(struct fold *p)
{
	struct elems x;
	int64_t start[MAX_RANK] = {0}, step[MAX_RANK], at[MAX_RANK] = {0}, from[MAX_RANK];

	for (unsigned i = 0; i < MAX_RANK; i++)
		step[i] = 1;
	if (!fold_named(p->s, "data", &x) || x.rank != p->out.rank || !slice_places(p->s, &x, start, step))
		return false;
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t i;

		for (unsigned d = 0; d < x.rank; d++)
			if (!mul_i64(at[d], step[d], &from[d]) || !add_i64(from[d], start[d], &from[d]))
				return false;
		i = index_of(&x, from);
		if (i >= x.n)
			return false;
		fold_copy(p, k, &x, i);
	}
	return true;
}

/* data[.., indices, ..]: the axis is replaced by the indices' dims. */
bool
fold_gather(struct fold *p)
{
	struct elems x, idx;
	int64_t axis = attr_int(p->s, "axis"), at[MAX_RANK] = {0}, from[MAX_RANK];

	if (!fold_named(p->s, "data", &x) || !fold_named(p->s, "indices", &idx) || idx.kind != DATA_INTS || !wrap_axis(&axis, x.rank) || p->out.rank != x.rank + idx.rank - 1)
		return false;
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t i = index_of(&idx, at + axis);
		int64_t pick;

		if (i >= idx.n || !fold_number(idx.i[i], &pick))
			return false;
		for (unsigned d = 0; d < x.rank; d++)
			from[d] = d < axis ? at[d] : d == axis ? (pick < 0 ? pick + x.dim[d] : pick) : at[d + idx.rank - 1];
		i = index_of(&x, from);
		if (i >= x.n)
			return false;
		fold_copy(p, k, &x, i);
	}
	return true;
}

/* Without batch dims: the last dim of the indices is a place in the data. */
bool
fold_gather_nd(struct fold *p)
{
	struct elems x, idx;
	uint32_t size = 1, n;

	if (!fold_named(p->s, "data", &x) || !fold_named(p->s, "indices", &idx) || idx.kind != DATA_INTS || !idx.rank || attr_int(p->s, "batch_dims") || idx.dim[idx.rank - 1] > x.rank)
		return false;
	n = (uint32_t)idx.dim[idx.rank - 1];
	for (unsigned d = n; d < x.rank; d++)
		size *= (uint32_t)x.dim[d];
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++) {
		int64_t at = 0, i;

		for (uint32_t d = 0; d < n; d++) {
			if (k / size * n + d >= idx.n || !fold_number(idx.i[k / size * n + d], &i))
				return false;
			i += i < 0 ? x.dim[d] : 0;
			if (i < 0 || i >= x.dim[d])
				return false;
			at = at * x.dim[d] + i;
		}
		if (at * size + k % size >= x.n)
			return false;
		fold_copy(p, k, &x, (uint32_t)(at * size + k % size));
	}
	return true;
}

bool
fold_concat(struct fold *p)
{
	const uint32_t *ids;
	unsigned n = operands(p->s, &ids);
	int64_t axis = attr_int(p->s, "axis"), offset = 0;

	p->out.kind = DATA_NONE;
	if (!wrap_axis(&axis, p->out.rank))
		return false;
	for (unsigned q = 0; q < n; q++) {
		struct elems x;
		int64_t at[MAX_RANK] = {0};

		if (!fold_operand(p->s, ids[q], &x) || x.rank != p->out.rank || (p->out.kind && x.kind != p->out.kind))
			return false;
		p->out.kind = x.kind;
		for (uint32_t i = 0; i < x.n; i++, fold_next(&x, at)) {
			uint32_t k;

			at[axis] += offset;
			k = index_of(&p->out, at);
			at[axis] -= offset;
			if (k >= p->out.n)
				return false;
			fold_copy(p, k, &x, i);
		}
		offset += x.dim[axis];
	}
	return p->out.kind != DATA_NONE;
}

bool
fold_part(struct fold *p, unsigned part)
{
	struct elems x;
	int64_t axis = attr_int(p->s, "axis"), offset = 0, at[MAX_RANK] = {0};

	if (!fold_named(p->s, "input", &x) || x.rank != p->out.rank || !wrap_axis(&axis, x.rank))
		return false;
	for (unsigned k = 0; k < part; k++) {
		struct type t = type_of(p->s, node_outs(p->s->g, p->s->n)[k]);

		if (t.rank != x.rank || t.dim[axis].expr)
			return false;
		offset += t.dim[axis].n;
	}
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t i;

		at[axis] += offset;
		i = index_of(&x, at);
		at[axis] -= offset;
		if (i >= x.n)
			return false;
		fold_copy(p, k, &x, i);
	}
	return true;
}

bool
fold_expand(struct fold *p)
{
	struct elems x;
	int64_t at[MAX_RANK] = {0};

	if (!fold_named(p->s, "input", &x))
		return false;
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t i = fold_index(&x, at, p->out.rank);

		if (i >= x.n)
			return false;
		fold_copy(p, k, &x, i);
	}
	return true;
}

bool
fold_tile(struct fold *p)
{
	struct elems x;
	int64_t at[MAX_RANK] = {0}, from[MAX_RANK];

	if (!fold_named(p->s, "input", &x) || x.rank != p->out.rank || (!x.n && p->out.n))
		return false;
	p->out.kind = x.kind;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		for (unsigned d = 0; d < x.rank; d++)
			from[d] = at[d] % x.dim[d];
		fold_copy(p, k, &x, index_of(&x, from));
	}
	return true;
}

/* With a constant, of whole numbers, around all axes. */
bool
fold_pad(struct fold *p)
{
	struct elems x, fill;
	int64_t pads[2 * MAX_RANK], at[MAX_RANK] = {0}, from[MAX_RANK];
	uint32_t n;
	bool filled = operand(p->s, "constant_value") != 0;

	if (!fold_named(p->s, "data", &x) || x.kind != DATA_INTS || operand(p->s, "axes") || !str_eq(attr_str(p->s, "mode"), S("constant")) || x.rank != p->out.rank ||
	    !known_numbers(p->s, operand(p->s, "pads"), pads, 2 * MAX_RANK, &n) || n != 2u * x.rank || (filled && (!fold_named(p->s, "constant_value", &fill) || fill.kind != DATA_INTS || fill.n != 1)))
		return false;
	p->out.kind = DATA_INTS;
	for (uint32_t k = 0; k < p->out.n; k++, fold_next(&p->out, at)) {
		uint32_t i;

		for (unsigned d = 0; d < x.rank; d++)
			if (!add_i64(at[d], pads[d] == INT64_MIN ? 0 : -pads[d], &from[d]))
				return false;
		i = index_of(&x, from);
		p->i[k] = i < x.n ? x.i[i] : filled ? fill.i[0] : SINT(0);
	}
	return true;
}

/* ---- writing into a copy --------------------------------------------------------------------------------------------------- */

static bool
writes_over(const struct shaper *s)
{
	struct str how = attr_str(s, "reduction");

	return !how.n || str_eq(how, S("none"));
}

bool
fold_scatter(struct fold *p)
{
	struct elems x, idx, up;
	int64_t axis = attr_int(p->s, "axis"), at[MAX_RANK] = {0};

	if (!fold_named(p->s, "data", &x) || !fold_named(p->s, "indices", &idx) || !fold_named(p->s, "updates", &up) || idx.kind != DATA_INTS || up.kind != x.kind || up.n != idx.n ||
	    idx.rank != x.rank || x.n != p->out.n || !wrap_axis(&axis, x.rank) || !writes_over(p->s))
		return false;
	p->out.kind = x.kind;
	for (uint32_t i = 0; i < x.n; i++)
		fold_copy(p, i, &x, i);
	for (uint32_t i = 0; i < idx.n; i++, fold_next(&idx, at)) {
		int64_t to[MAX_RANK], pick;
		uint32_t k;

		if (!fold_number(idx.i[i], &pick))
			return false;
		memcpy(to, at, sizeof to);
		to[axis] = pick < 0 ? pick + x.dim[axis] : pick;
		k = index_of(&x, to);
		if (k >= x.n)
			return false;
		fold_copy(p, k, &up, i);
	}
	return true;
}

bool
fold_scatter_nd(struct fold *p)
{
	struct elems x, idx, up;
	uint32_t size = 1, n;

	if (!fold_named(p->s, "data", &x) || !fold_named(p->s, "indices", &idx) || !fold_named(p->s, "updates", &up) || idx.kind != DATA_INTS || up.kind != x.kind || !idx.rank ||
	    idx.dim[idx.rank - 1] > x.rank || x.n != p->out.n || !writes_over(p->s))
		return false;
	n = (uint32_t)idx.dim[idx.rank - 1];
	for (unsigned d = n; d < x.rank; d++)
		size *= (uint32_t)x.dim[d];
	p->out.kind = x.kind;
	for (uint32_t i = 0; i < x.n; i++)
		fold_copy(p, i, &x, i);
	for (uint32_t i = 0; i < up.n; i++) {
		int64_t at = 0, pick;

		for (uint32_t d = 0; d < n; d++) {
			if (i / size * n + d >= idx.n || !fold_number(idx.i[i / size * n + d], &pick))
				return false;
			pick += pick < 0 ? x.dim[d] : 0;
			if (pick < 0 || pick >= x.dim[d])
				return false;
			at = at * x.dim[d] + pick;
		}
		if (at * size + i % size >= x.n)
			return false;
		fold_copy(p, (uint32_t)(at * size + i % size), &up, i);
	}
	return true;
}

/* Places of the elements that are not zero, one column each. */
bool
fold_non_zero(struct fold *p)
{
	struct elems x;
	int64_t at[MAX_RANK] = {0};
	uint32_t column = 0, columns;

	if (!fold_named(p->s, "X", &x) || x.kind != DATA_INTS || p->out.rank != 2 || p->out.dim[0] != x.rank)
		return false;
	columns = (uint32_t)p->out.dim[1];
	p->out.kind = DATA_INTS;
	for (uint32_t i = 0; i < x.n; i++, fold_next(&x, at)) {
		if (x.i[i].expr)
			return false;
		for (unsigned d = 0; x.i[i].n && d < x.rank; d++)
			if (column < columns)
				p->i[d * columns + column] = SINT(at[d]);
		column += x.i[i].n != 0;
	}
	return column == columns;
}

/* ---- made from sizes ---------------------------------------------------------------------------------------------------------- */

bool
fold_fill(struct fold *p)
{
	struct elems value;
	bool given = operand(p->s, "value") != 0;

	if (given && (!fold_named(p->s, "value", &value) || value.n != 1))
		return false;
	p->out.kind = given ? value.kind : DATA_FLOATS;
	for (uint32_t i = 0; i < p->out.n; i++)
		if (given)
			fold_copy(p, i, &value, 0);
		else
			p->f[i] = 0;
	return true;
}

bool
fold_range(struct fold *p)
{
	struct elems start, delta;

	if (!fold_named(p->s, "start", &start) || !fold_named(p->s, "delta", &delta) || start.kind != delta.kind || start.n != 1 || delta.n != 1)
		return false;
	p->out.kind = start.kind;
	for (uint32_t i = 0; i < p->out.n; i++)
		if (start.kind == DATA_INTS)
			p->i[i] = add(p->s, start.i[0], mul(p->s, delta.i[0], SINT(i)));
		else
			p->f[i] = start.f[0] + delta.f[0] * i;
	return true;
}

bool
fold_shape(struct fold *p)
{
	struct type x = in(p->s, "data");
	int64_t start = attr_int(p->s, "start");

	if (x.rank == RANK_UNKNOWN)
		return false;
	start += start < 0 ? x.rank : 0;
	start = start < 0 ? 0 : start;
	p->out.kind = DATA_INTS;
	for (uint32_t i = 0; i < p->out.n; i++)
		p->i[i] = start + i < x.rank ? x.dim[start + i] : UNKNOWN;
	return true;
}

bool
fold_size(struct fold *p)
{
	struct type x = in(p->s, "data");

	if (x.rank == RANK_UNKNOWN)
		return false;
	p->out.kind = DATA_INTS;
	p->i[0] = product(p->s, x.dim, x.rank);
	return true;
}

/* A collected value is known for each run only if it is the same in all of them, which one run cannot show; a single run can. */
bool
fold_stack_runs(struct fold *p)
{
	struct elems x;

	if (!fold_named(p->s, "x", &x) || x.n != p->out.n)
		return false;
	return fold_identity(p);
}

bool
fold_selected(struct fold *p)
{
	struct elems x;
	uint32_t v = selected(p->s);

	if (!v || !fold_operand(p->s, v, &x) || x.n != p->out.n)
		return false;
	p->out.kind = x.kind;
	for (uint32_t i = 0; i < x.n; i++)
		fold_copy(p, i, &x, i);
	return true;
}
