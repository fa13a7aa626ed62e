/* Compositions: operators that take or give lists of tensors, and those that sort or index along a dim. */
#include "lower.h"

#include <string.h>

/* Several results: they take the place of those of the last call. */
uint32_t
call_results(struct call *c, const uint32_t *t, unsigned n)
{
	struct sim *s = c->s;

	c->several = true;
	s->nresult = 0;
	for (unsigned i = 0; i < n; i++) {
		ROOM(s->c->a, s->result, s->nresult, s->result_cap, 1);
		s->result[s->nresult++] = t[i];
	}
	return n ? t[0] : 0;
}

static uint32_t *
copy_list(struct call *c, unsigned *n)
{
	const struct value *v = call_arg(c, "tensors");
	uint32_t *t;

	*n = v->kind == ARG_VALS ? v->n : 0;
	t = NEW(c->s->c->a, uint32_t, *n + 1u);
	for (unsigned i = 0; i < *n; i++)
		t[i] = v->u.ts[i];
	return t;
}

/* ---- joining and spreading ------------------------------------------------------------------------------ */

uint32_t
compose_BROADCAST_TENSORS(struct call *c)
{
	struct sim *s = c->s;
	struct geom all = {0};
	unsigned n;
	uint32_t *t = copy_list(c, &n);

	for (unsigned i = 0; i < n; i++) {
		struct geom sum = {0};
		const struct geom *pair[2] = {&all, t[i] ? geom_at(s, t[i]) : NULL};

		if (!pair[1] || !geom_broadcast(&sum, pair, 2)) {
			call_failed(c, "operands do not broadcast");
			return 0;
		}
		all = sum;
	}
	for (unsigned i = 0; i < n; i++)
		t[i] = CALL(s, EXPAND, V_TENSOR(t[i]), V_INTS(all.dim, all.rank));
	return call_results(c, t, n);
}

/* Each is a view of all dims: its own, and the others without extent in memory. "xy" swaps the first two. */
uint32_t
compose_MESHGRID(struct call *c)
{
	struct sim *s = c->s;
	const struct value *indexing = call_arg(c, "indexing");
	bool swap = indexing->kind == ARG_STR && str_eq(indexing->u.s, S("xy"));
	int64_t dim[MAX_RANK], one[MAX_RANK];
	unsigned n;
	uint32_t *t = copy_list(c, &n);

	swap = swap && n > 1;
	for (unsigned i = 0; i < n; i++) {
		if (n > MAX_RANK || !t[i] || geom_at(s, t[i])->rank > 1) {
			call_failed(c, "operands do not broadcast");
			return 0;
		}
		dim[swap && i < 2 ? 1 - i : i] = geom_at(s, t[i])->numel;
		one[i] = 1;
	}
	for (unsigned i = 0; i < n; i++) {
		unsigned at = swap && i < 2 ? 1 - i : i;

		one[at] = dim[at];
		t[i] = CALL(s, EXPAND, V_TENSOR(do_view(s, t[i], n, one)), V_INTS(dim, n));
		one[at] = 1;
	}
	return call_results(c, t, n);
}

/* All pairs (triples, ..) of their elements, one a row. */
uint32_t
compose_CARTESIAN_PROD(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), grid[MAX_RANK];
	int64_t dim[MAX_RANK], all = 1;
	unsigned n;
	uint32_t *t = copy_list(c, &n);

	for (unsigned i = 0; i < n; i++)
		if (n > MAX_RANK || !t[i] || geom_at(s, t[i])->rank != 1 || !mul_i64(all, dim[i] = geom_at(s, t[i])->dim[0], &all)) {
			call_failed(c, "operands do not broadcast");
			return 0;
		}
	for (unsigned i = 0; n > 1 && i < n; i++) {
		int64_t one[MAX_RANK];

		for (unsigned k = 0; k < n; k++)
			one[k] = k == i ? dim[i] : 1;
		grid[i] = do_reshape(s, CALL(s, EXPAND, V_TENSOR(do_view(s, t[i], n, one)), V_INTS(dim, n)), 1, &all);
	}
	return n == 1 ? t[0] : temps_keep(s, mark, CALL(s, STACK, V_TENSORS(grid, n), V_INT(1)));
}

/* At least one dim, or two: dims of size 1 in front; the third one behind. */
static uint32_t
at_least(struct sim *s, uint32_t t, unsigned rank)
{
	int64_t dim[3] = {1, 1, 1};

	if (!t || geom_at(s, t)->rank >= rank)
		return t;
	if (!geom_at(s, t)->rank)
		return do_reshape(s, t, rank, dim);
	if (geom_at(s, t)->rank == 1)
		t = CALL(s, UNSQUEEZE, V_TENSOR(t), V_INT(0));
	return rank > 2 ? CALL(s, UNSQUEEZE, V_TENSOR(t), V_INT(2)) : t;
}

uint32_t
compose_ATLEAST_1D(struct call *c)
{
	return at_least(c->s, call_tensor(c, "self"), 1);
}

uint32_t
compose_ATLEAST_2D(struct call *c)
{
	return at_least(c->s, call_tensor(c, "self"), 2);
}

uint32_t
compose_ATLEAST_3D(struct call *c)
{
	return at_least(c->s, call_tensor(c, "self"), 3);
}

static uint32_t
stack_along(struct call *c, unsigned rank, int64_t dim)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s);
	unsigned n;
	uint32_t *t = copy_list(c, &n);

	for (unsigned i = 0; i < n; i++)
		t[i] = t[i] ? at_least(s, t[i], rank) : 0;
	if (n && t[0] && geom_at(s, t[0])->rank == 1)
		dim = 0;
	return temps_keep(s, mark, CALL(s, CAT, V_TENSORS(t, n), V_INT(dim)));
}

uint32_t
compose_HSTACK(struct call *c)
{
	return stack_along(c, 1, 1);
}

uint32_t
compose_VSTACK(struct call *c)
{
	return stack_along(c, 2, 0);
}

uint32_t
compose_DSTACK(struct call *c)
{
	return stack_along(c, 3, 2);
}

uint32_t
compose_TILE(struct call *c)
{
	uint32_t self = call_tensor(c, "self");
	unsigned rank = self ? geom_at(c->s, self)->rank : 0, n;
	int64_t dim[MAX_RANK], times[MAX_RANK];

	n = call_ints(c, "dims", dim, MAX_RANK);
	for (unsigned i = 0; i < rank && n < rank; i++)
		times[i] = i < rank - n ? 1 : dim[i - (rank - n)];
	return CALL(c->s, REPEAT, V_TENSOR(self), V_INTS(n < rank ? times : dim, n < rank ? rank : n));
}

/* A number of pieces, the first ones larger, or the places where to cut. */
static uint32_t
split_along(struct call *c, int64_t dim)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), *t;
	const struct value *cuts = call_arg(c, "sections");
	int64_t d = self ? wrap_dim(dim, geom_at(s, self)->rank) : -1, size, from = 0;
	uint32_t n = cuts->kind == ARG_INTS ? cuts->n + 1 : cuts->kind == ARG_INT && cuts->u.i > 0 && cuts->u.i < 1 << 20 ? (uint32_t)cuts->u.i : 0;

	if (d < 0 || !n || !geom_at(s, self)->rank) {
		call_failed(c, "sizes do not fit the tensor");
		return 0;
	}
	size = geom_at(s, self)->dim[d];
	t = NEW(s->c->a, uint32_t, n);
	for (uint32_t i = 0; i < n; i++) {
		int64_t to = cuts->kind == ARG_INTS ? (i < cuts->n ? cuts->u.ints[i] : size) : from + size / n + (i < size % n);

		t[i] = CALL(s, SLICE, V_TENSOR(self), V_INT(d), V_INT(from), V_INT(to), V_INT(1));
		from = to;
	}
	return call_results(c, t, n);
}

uint32_t
compose_TENSOR_SPLIT(struct call *c)
{
	return split_along(c, call_int(c, "dim", 0));
}

uint32_t
compose_HSPLIT(struct call *c)
{
	uint32_t self = call_tensor(c, "self");

	return split_along(c, self && geom_at(c->s, self)->rank > 1);
}

uint32_t
compose_DSPLIT(struct call *c)
{
	return split_along(c, 2);
}

/* ---- sorting and indexing ----------------------------------------------------------------------------------- */

uint32_t
compose_MSORT(struct call *c)
{
	return CALL(c->s, SORT, V_TENSOR(call_tensor(c, "self")), V_INT(0));
}

/* sort, of which only the places are kept */
uint32_t
compose_ARGSORT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), self = call_tensor(c, "self"), t;

	t = CALL(s, SORT, V_TENSOR(self), *call_arg(c, "dim"));
	return temps_keep(s, mark, t && s->nresult > 1 ? s->result[1] : 0);
}

/* Indices may be negative: they are wrapped first. */
uint32_t
compose_TAKE_ALONG_DIM(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), self = call_tensor(c, "self"), i = call_tensor(c, "indices"), self_flat = self;
	int64_t numel;

	if (!self || !i)
		return 0;
	if (call_arg(c, "dim")->kind == ARG_NONE) {
		numel = geom_at(s, self)->numel;
		self_flat = do_reshape(s, self, 1, &numel);
		numel = geom_at(s, i)->numel;
		i = do_reshape(s, i, 1, &numel);
	}
	i = CALL(s, REMAINDER, V_TENSOR(i), V_INT(1));
	return temps_keep(s, mark, CALL(s, GATHER, V_TENSOR(self_flat), V_INT(call_int(c, "dim", 0)), V_TENSOR(i)));
}

/* ---- to a size, and of several lengths --------------------------------------------------------------------------------- */

/* The reverse of expand: sums over leading dims and those that become 1. */
uint32_t
compose_SUM_TO_SIZE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t self = call_tensor(c, "self"), mark = temps_mark(s), t = self;
	int64_t size[MAX_RANK], dim[MAX_RANK];
	unsigned n = call_ints(c, "size", size, MAX_RANK), rank = self ? geom_at(s, self)->rank : 0, over = 0;

	if (!self || n > rank) {
		call_failed(c, "sizes do not fit the tensor");
		return 0;
	}
	for (unsigned i = 0; i < rank; i++)
		if (i < rank - n || (size[i - (rank - n)] == 1 && geom_at(s, self)->dim[i] != 1))
			dim[over++] = i;
	if (over)
		t = CALL(s, SUM, V_TENSOR(self), V_INTS(dim, over), V_BOOL(true));
	return temps_keep(s, mark, n < rank ? do_view(s, t, n, size) : t);
}

uint32_t
compose_FLATTEN_DENSE(struct call *c)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s);
	int64_t flat = -1;
	unsigned n;
	uint32_t *t = copy_list(c, &n);

	for (unsigned i = 0; i < n; i++)
		t[i] = CALL(s, VIEW, V_TENSOR(CALL(s, CONTIGUOUS, V_TENSOR(t[i]))), V_INTS(&flat, 1));
	return temps_keep(s, mark, CALL(s, CAT, V_TENSORS(t, n), V_INT(0)));
}

/* One tensor of the longest one's length; each sequence is written into its place. */
uint32_t
compose_PAD_SEQUENCE(struct call *c)
{
	const struct value *v = call_arg(c, "sequences");
	struct sim *s = c->s;
	uint32_t out, mark = temps_mark(s);
	bool first = call_bool(c, "batch_first");
	struct geom g = {0};
	int64_t longest = 0;

	if (v->kind != ARG_VALS || !v->n || !v->u.ts[0] || !geom_at(s, v->u.ts[0])->rank || geom_at(s, v->u.ts[0])->rank == MAX_RANK) {
		call_failed(c, "operands do not fit together");
		return 0;
	}
	for (uint32_t i = 0; i < v->n; i++)
		if (v->u.ts[i] && geom_at(s, v->u.ts[i])->rank && geom_at(s, v->u.ts[i])->dim[0] > longest)
			longest = geom_at(s, v->u.ts[i])->dim[0];
	g = *geom_at(s, v->u.ts[0]);
	for (unsigned i = g.rank++; i > 0; i--)
		g.dim[i] = g.dim[i - 1];
	g.dim[first ? 0 : 1] = v->n;
	g.dim[first ? 1 : 0] = longest;
	out = CALL(s, NEW_FULL, V_TENSOR(v->u.ts[0]), V_INTS(g.dim, g.rank), V_FLOAT(0.5));
	for (uint32_t i = 0; out && i < v->n; i++) {
		uint32_t before = temps_mark(s), place = CALL(s, SELECT, V_TENSOR(out), V_INT(first ? 0 : 1), V_INT(i));
		const struct geom *seq = v->u.ts[i] ? geom_at(s, v->u.ts[i]) : NULL;

		if (!seq || !seq->rank)
			continue;
		place = CALL(s, SLICE, V_TENSOR(place), V_INT(0), V_INT(0), V_INT(seq->dim[0]), V_INT(1));
		op_call_inplace(s, OP_COPY, (const struct value[]){V_TENSOR(place), V_TENSOR(v->u.ts[i])}, 2);
		temps_release(s, before);
	}
	return temps_keep(s, mark, out);
}
