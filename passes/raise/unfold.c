/*
 * unfold: constants that an exporter computed from a parameter because batch and sequence were fixed. The parameter is back in its place, and so is
 * the operator: what the exporter lists if all of it kept the number of elements ("exp neg unsqueeze"); rows of a table at fixed positions are an
 * embedding, and so are those of one type; one dim among others of size 1 was given them; positions of a picture were resized; the weight of a
 * convolution is what it was computed from; anything else was expanded over the batch.
 */
#include "../passes.h"

#include <string.h>

#define MOST_BIASES 8u             /* an encoder and a decoder have one each */
#define MOST_LAYERS 1000u

struct unfold {
	struct analysis *a;
	struct graph *g;
	uint32_t nold, nval;
	uint32_t *behind;          uint32_t behind_cap;
	uint32_t *user;            /* by value: the first node that reads it */
	uint32_t *place, *param;   /* by name: the place among the parameters that the frontend kept for it; a parameter */
	unsigned count;
	uint32_t bias[MOST_BIASES], bias_full[MOST_BIASES];          /* position biases that were made, and of which parameter */
	unsigned nbias, nshared, ntypes;
};

/* The place that the frontend kept, if no constant has taken it yet. */
static uint32_t
parameter(const struct unfold *u, uint32_t full)
{
	uint32_t v = u->place[full];

	return u->g->vals[v].kind == VAL_NONE ? v : 0;
}

static uint32_t
node_before(struct unfold *u, unsigned op, uint32_t user, uint32_t result)
{
	struct graph *g = u->g;
	uint32_t n = node_beside(g, op, user, 1), at = n - u->nold;

	node_outs(g, n)[0] = result;
	g->vals[result].kind = VAL_NODE;
	g->vals[result].node = n;
	g->vals[result].out = 0;
	g->nodes[n].name = g->vals[result].name;
	ROOM(g->c->a, u->behind, at, u->behind_cap, 1);
	u->behind[at] = user - 1;
	return n;
}

/* The positions at which the table was read. */
static uint32_t
positions(struct unfold *u, uint32_t v)
{
	struct graph *g = u->g;
	uint32_t ids = val_new(g, VAL_BUFFER, str_fmt(g->c->a, "%.*s_positions", SFMT(graph_str(g, g->vals[v].name))));

	g->vals[ids].full = g->vals[ids].name;
	g->vals[ids].dtype = DT_INT64;
	val_shape(g, ids, g->vals[v].rank - 1u, val_dims(g, v));
	return ids;
}

/* The dim that is larger than 1 where all others are 1, the last if all are; rank = there is none such. */
static unsigned
only_dim(const struct graph *g, uint32_t v)
{
	unsigned found = g->vals[v].rank;

	for (unsigned i = 0; i < g->vals[v].rank; i++) {
		if (val_dims(g, v)[i].n == 1)
			continue;
		if (found < g->vals[v].rank)
			return g->vals[v].rank;
		found = i;
	}
	return found < g->vals[v].rank ? found : g->vals[v].rank - 1u;
}

/* What a convolution was given in its place has the same dims; how it was computed is not in the file. */
static bool
is_weight(const struct unfold *u, uint32_t v)
{
	const struct graph *g = u->g;
	const struct node *n = &g->nodes[u->user[v]];

	return n->op == OP_ONNX_CONV && n->narg > 1 && g->args[n->arg + 1].kind == ARG_VAL && g->args[n->arg + 1].u.val == v;
}

static void
put_in_place(struct unfold *u, uint32_t v, uint32_t p)
{
	struct graph *g = u->g;

	val_shape(g, p, g->vals[v].rank, val_dims(g, v));
	for (uint32_t n = u->user[v]; n < u->nold; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (it.val == v)
				*it.slot = p;
}

/* ---- operators that keep the number of elements ------------------------------------------------------------------------- */

static bool
is_view(struct str op)
{
	return str_eq(op, S("unsqueeze")) || str_eq(op, S("squeeze")) || str_eq(op, S("view")) || str_eq(op, S("reshape"));
}

/* The dims without those of size 1 if some were put in. */
static unsigned
parameter_dims(const struct unfold *u, uint32_t v, struct str ops, struct sint *dim)
{
	const struct graph *g = u->g;
	bool squeezed = memmem(ops.p, ops.n, "unsqueeze", 9) != NULL;
	unsigned rank = 0;

	for (unsigned i = 0; i < g->vals[v].rank; i++)
		if (!squeezed || val_dims(g, v)[i].expr || val_dims(g, v)[i].n != 1)
			dim[rank++] = val_dims(g, v)[i];
	if (!rank && squeezed)
		dim[rank++] = SINT(1);
	return rank;
}

static uint32_t
reshaped(struct unfold *u, uint32_t x, const struct sint *dim, unsigned rank, uint32_t user, uint32_t result)
{
	struct graph *g = u->g;
	uint32_t y = result ? result : val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_view", SFMT(graph_str(g, g->vals[x].name)))), n;

	val_shape(g, y, rank, dim);
	g->vals[y].dtype = g->vals[x].dtype;
	n = node_before(u, OP_RESHAPE, user, y);
	*node_arg(g, n, "self") = arg_val(x);
	*node_arg(g, n, "shape") = (struct arg){.kind = ARG_INTS, .first = ints_add(g, dim, rank), .count = rank};
	return y;
}

/* batch_norm(w.reshape(1, C, -1), training=True), as convolutions that standardise their weights write it: one of its results was taken. */
static uint32_t
standardised(struct unfold *u, uint32_t x, uint32_t user)
{
	struct graph *g = u->g;
	struct sint flat[3] = {SINT(1), SINT(1), SINT(1)};
	uint32_t n, y;

	for (unsigned i = 0; i < g->vals[x].rank; i++) {
		const struct sint *d = val_dims(g, x) + i;

		if (d->expr || !mul_i64(flat[i ? 2 : 1].n, d->n, &flat[i ? 2 : 1].n))
			return x;
	}
	x = reshaped(u, x, flat, 3, user, 0);
	y = val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_norm", SFMT(graph_str(g, g->vals[x].name))));
	val_shape(g, y, 3, flat);
	g->vals[y].dtype = g->vals[x].dtype;
	n = node_before(u, OP_BATCH_NORM, user, y);
	*node_arg(g, n, "input") = arg_val(x);
	*node_arg(g, n, "training") = arg_bool(true);
	return y;
}

/* x with the operator done to it; of sums and products with a number the number does not matter. */
static uint32_t
applied(struct unfold *u, struct str name, uint32_t x, uint32_t user, uint32_t result)
{
	struct graph *g = u->g;
	bool inplace;
	unsigned op = op_by_name(name, &inplace);
	uint32_t y, n;
	struct arg *other;

	if (str_eq(name, S("getitem")))
		return standardised(u, x, user);
	if (is_view(name) || op == OP_NONE)
		return x;
	y = result ? result : val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_%.*s", SFMT(graph_str(g, g->vals[x].name)), SFMT(name)));
	val_shape(g, y, g->vals[x].rank, val_dims(g, x));
	g->vals[y].dtype = g->vals[x].dtype;
	n = node_before(u, op, user, y);
	*node_arg(g, n, "self") = arg_val(x);
	other = node_arg(g, n, "other");
	if (other)
		*other = arg_float(1);
	return y;
}

/* A linear layer's weight as its product reads it. */
static void
transposed(struct unfold *u, uint32_t x, uint32_t v)
{
	struct graph *g = u->g;
	const struct sint perm[] = {SINT(1), SINT(0)};
	uint32_t n = node_before(u, OP_ONNX_TRANSPOSE, u->user[v], v);

	node_args(g, n)[0] = arg_val(x);
	*node_arg(g, n, "perm") = (struct arg){.kind = ARG_INTS, .first = ints_add(g, perm, 2), .count = 2};
}

static void
unfold_operators(struct unfold *u, uint32_t v, uint32_t p)
{
	struct graph *g = u->g;
	struct str ops = graph_str(g, g->vals[v].folded), op;
	struct sint dim[MAX_RANK], all[MAX_RANK];
	unsigned rank = parameter_dims(u, v, ops, dim);
	bool views = memmem(ops.p, ops.n, "squeeze", 7) || memmem(ops.p, ops.n, "view", 4) || memmem(ops.p, ops.n, "reshape", 7) || memmem(ops.p, ops.n, "getitem", 7);
	bool linear = str_ends(ops, S(" t"));
	uint32_t x = p;

	if (linear) {
		dim[0] = val_dims(g, v)[1];
		dim[1] = val_dims(g, v)[0];
		rank = 2;
		ops = str_sub(ops, 0, ops.n - 2);
	}
	memcpy(all, val_dims(g, v), g->vals[v].rank * sizeof *all);
	val_shape(g, p, rank, dim);
	while (x != v && ops.n && str_cut(&ops, ' ', &op))
		x = applied(u, op, x, u->user[v], ops.n || views || linear ? 0 : v);
	if (linear)
		transposed(u, x, v);
	else if (x != v)
		reshaped(u, x, all, g->vals[v].rank, u->user[v], v);
}

/* ---- positions of a picture ---------------------------------------------------------------------------------------------- */

/* An operator on x whose result has these dims: v, or a new value. */
static uint32_t
resizing(struct unfold *u, unsigned op, uint32_t x, uint32_t user, const struct sint *dim, unsigned rank, uint32_t v, uint32_t *node)
{
	struct graph *g = u->g;
	uint32_t y = v ? v : val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_%s", SFMT(graph_str(g, g->vals[x].name)), op_info(op)->name));

	val_shape(g, y, rank, dim);
	g->vals[y].dtype = g->vals[x].dtype;
	*node = node_before(u, op, user, y);
	node_args(g, *node)[0] = arg_val(x);
	return y;
}

static uint32_t
upsampled(struct unfold *u, uint32_t x, uint32_t user, const struct sint *dim, uint32_t v)
{
	uint32_t n, y = resizing(u, OP_UPSAMPLE_LINEAR, x, user, dim, 4, v, &n);

	*node_arg(u->g, n, "output_size") = (struct arg){.kind = ARG_INTS, .first = ints_add(u->g, dim + 2, 2), .count = 2};
	return y;
}

static uint32_t
turned(struct unfold *u, uint32_t x, uint32_t user, const struct sint *dim, uint32_t v)
{
	uint32_t n, y = resizing(u, OP_TRANSPOSE, x, user, dim, 3, v, &n);

	*node_arg(u->g, n, "dim0") = arg_int(1);
	*node_arg(u->g, n, "dim1") = arg_int(2);
	return y;
}

static uint32_t
some_rows(struct unfold *u, uint32_t x, uint32_t user, int64_t from, int64_t to)
{
	struct graph *g = u->g;
	struct sint dim[3] = {SINT(1), SINT(to - from), val_dims(g, x)[2]};
	uint32_t n, y = resizing(u, OP_SLICE, x, user, dim, 3, 0, &n);

	*node_arg(g, n, "dim") = arg_int(1);
	*node_arg(g, n, "start") = arg_int(from);
	*node_arg(g, n, "end") = arg_int(to);
	return y;
}

/* [1, rows, size] is a picture of size channels, of any height and width with so many points. */
static uint32_t
rows_upsampled(struct unfold *u, uint32_t x, uint32_t user, uint32_t v)
{
	struct graph *g = u->g;
	struct sint rows = val_dims(g, x)[1], size = val_dims(g, x)[2], flat[3] = {SINT(1), size, rows}, wide[4] = {SINT(1), size, rows, SINT(1)};
	struct sint back[3] = {SINT(1), rows, size};

	x = reshaped(u, turned(u, x, user, flat, 0), wide, 4, user, 0);
	x = reshaped(u, upsampled(u, x, user, wide, 0), flat, 3, user, 0);
	return turned(u, x, user, back, v);
}

/* The program resizes its table to the picture in every forward, all of it or all but the first row; to the same size, as far as the file says. */
static void
unfold_resized(struct unfold *u, uint32_t v, uint32_t p)
{
	struct graph *g = u->g;
	struct sint dim[4];
	uint32_t user = u->user[v], n, parts[2];

	memcpy(dim, val_dims(g, v), g->vals[v].rank * sizeof *dim);
	val_shape(g, p, g->vals[v].rank, dim);
	if (g->vals[v].rank == 4) {
		upsampled(u, p, user, dim, v);
	} else if (g->vals[v].fold == FOLD_RESIZED) {
		rows_upsampled(u, p, user, v);
	} else {
		parts[0] = some_rows(u, p, user, 0, 1);
		parts[1] = rows_upsampled(u, some_rows(u, p, user, 1, dim[1].n), user, 0);
		n = node_before(u, OP_CAT, user, v);
		node_args(g, n)[0] = (struct arg){.kind = ARG_VALS, .first = ids_add(g, parts, 2), .count = 2};
		*node_arg(g, n, "dim") = arg_int(1);
	}
}

/* ---- position biases ----------------------------------------------------------------------------------------------------- */

static bool
is_bias(const struct unfold *u, uint32_t v)
{
	return u->g->vals[v].fold == FOLD_BIAS || u->g->vals[v].fold == FOLD_BIAS_CAUSAL;
}

static uint32_t
value_of(struct unfold *u, uint32_t like, const char *ending, unsigned dtype, unsigned rank, const struct sint *dim)
{
	struct graph *g = u->g;
	uint32_t v = val_new(g, VAL_CONST, str_fmt(g->c->a, "%.*s_%s", SFMT(graph_str(g, g->vals[like].name)), ending));

	g->vals[v].dtype = (uint8_t)dtype;
	val_shape(g, v, rank, dim);
	return v;
}

/* table(positions), the heads in front; where(order, bias, -inf) if it is causal. All rows of the batch have one. */
static void
unfold_bias(struct unfold *u, uint32_t v, uint32_t p)
{
	static const int64_t turned[] = {2, 0, 1};
	struct graph *g = u->g;
	struct sint d[4], axes[3];
	bool causal = g->vals[v].fold == FOLD_BIAS_CAUSAL;
	uint32_t user = u->user[v], ids, rows, heads, all, n;

	memcpy(d, val_dims(g, v), sizeof d);
	for (unsigned i = 0; i < 3; i++)
		axes[i] = SINT(turned[i]);
	val_shape(g, p, 2, (const struct sint[]){d[3], d[1]});
	ids = value_of(u, v, "positions", DT_INT64, 2, d + 2);
	rows = value_of(u, v, "rows", g->vals[v].dtype, 3, (const struct sint[]){d[2], d[3], d[1]});
	heads = value_of(u, v, "heads", g->vals[v].dtype, 3, d + 1);
	d[0] = SINT(1);
	val_shape(g, v, 4, d);
	all = causal ? value_of(u, v, "all", g->vals[v].dtype, 4, d) : v;
	n = node_before(u, OP_FULL, user, ids);
	*node_arg(g, n, "size") = (struct arg){.kind = ARG_INTS, .first = ints_add(g, d + 2, 2), .count = 2};
	*node_arg(g, n, "fill_value") = arg_int(0);
	*node_arg(g, n, "dtype") = arg_dtype(DT_INT64);
	n = node_before(u, OP_EMBEDDING, user, rows);
	*node_arg(g, n, "weight") = arg_val(p);
	*node_arg(g, n, "indices") = arg_val(ids);
	n = node_before(u, OP_PERMUTE, user, heads);
	*node_arg(g, n, "self") = arg_val(rows);
	*node_arg(g, n, "dims") = (struct arg){.kind = ARG_INTS, .first = ints_add(g, axes, 3), .count = 3};
	n = node_before(u, OP_UNSQUEEZE, user, all);
	*node_arg(g, n, "self") = arg_val(heads);
	*node_arg(g, n, "dim") = arg_int(0);
	if (!causal)
		return;
	d[1] = SINT(1);
	n = node_before(u, OP_WHERE, user, v);
	node_args(g, n)[0] = arg_val(value_of(u, v, "order", DT_BOOL, 4, d));
	node_args(g, n)[1] = arg_val(all);
	node_args(g, n)[2] = arg_float(-1);
}

/* The same bias again, of which the exporter made another constant for each layer. */
static void
share_bias(struct unfold *u, uint32_t v)
{
	struct graph *g = u->g;

	for (unsigned i = 0; i < u->nbias && u->nshared < MOST_LAYERS; i++) {
		uint32_t w = u->bias[i];

		if (u->bias_full[i] != g->vals[v].full || g->vals[w].rank != g->vals[v].rank || u->user[w] > u->user[v])
			continue;
		for (uint32_t n = u->user[v]; n < u->nold; n++)
			for (struct operands it = operands_of(g, n); operand_next(&it);)
				if (it.val == v)
					*it.slot = w;
		g->vals[v].kind = VAL_NONE;
		u->nshared++;
		return;
	}
}

/* ---- the others ------------------------------------------------------------------------------------------------------------- */

static void
forget(struct unfold *u, uint32_t v)
{
	struct val *x = &u->g->vals[v];

	x->flags = 0;
	x->data = DATA_NONE;
	x->full = x->folded = 0;
	x->fold = FOLD_UNKNOWN;
	u->count++;
}

static uint32_t
node_on(struct unfold *u, unsigned op, const char *name, uint32_t x, uint32_t v)
{
	uint32_t n = node_before(u, op, u->user[v], v);

	*node_arg(u->g, n, name) = arg_val(x);
	return n;
}

/* [.., size]: of what all of the batch has the same, tokens or queries of which there are several; what stands beside others is one token for all places. */
static unsigned
rank_of_expanded(const struct unfold *u, uint32_t v)
{
	const struct graph *g = u->g;
	unsigned rank = g->vals[v].rank;

	return rank > 2 && val_dims(g, v)[rank - 2].n > 1 && g->nodes[u->user[v]].op != OP_ONNX_CONCAT ? 2 : 1;
}

/* start.repeat(batch, 1, ..): the parameter has one row. */
static void
unfold_repeated(struct unfold *u, uint32_t v, uint32_t p)
{
	struct graph *g = u->g;
	unsigned rank = g->vals[v].rank;
	struct sint dim[MAX_RANK], times[MAX_RANK];
	uint32_t n;

	memcpy(dim, val_dims(g, v), rank * sizeof *dim);
	for (unsigned i = 0; i < rank; i++)
		times[i] = i ? SINT(1) : dim[0];
	dim[0] = SINT(1);
	val_shape(g, p, rank, dim);
	n = node_on(u, OP_REPEAT, "self", p, v);
	*node_arg(g, n, "repeats") = (struct arg){.kind = ARG_INTS, .first = ints_add(g, times, rank), .count = rank};
}

/* Nothing says how: a view of one dim, rows of a table, or expanded over the batch. */
static void
unfold_by_shape(struct unfold *u, uint32_t v, uint32_t p)
{
	struct graph *g = u->g;
	unsigned rank = g->vals[v].rank, alone = only_dim(g, v), rows;
	struct sint dim[MAX_RANK];
	struct arg size;
	uint32_t n, ids;

	memcpy(dim, val_dims(g, v), rank * sizeof *dim);
	size = (struct arg){.kind = ARG_INTS, .first = ints_add(g, dim, rank), .count = rank};
	if (str_eq(str_stem(graph_str(g, g->vals[v].name)), S("repeat")) && alone == rank) {
		unfold_repeated(u, v, p);
	} else if (alone < rank) {
		val_shape(g, p, 1, dim + alone);
		n = node_on(u, OP_RESHAPE, "self", p, v);
		*node_arg(g, n, "shape") = size;
	} else if (rank > 1 && !str_starts(graph_str(g, g->vals[v].name), S("expand"))) {
		val_shape(g, p, 2, dim + rank - 2);
		ids = positions(u, v);
		n = node_on(u, OP_EMBEDDING, "weight", p, v);
		*node_arg(g, n, "indices") = arg_val(ids);
	} else {
		rows = rank_of_expanded(u, v);
		val_shape(g, p, rows, dim + rank - rows);
		n = node_on(u, OP_EXPAND, "self", p, v);
		*node_arg(g, n, "size") = size;
	}
}

/* Rows that are all of one type: how many types there are, the constant does not show. */
static void
unfold_types(struct unfold *u, uint32_t v, uint32_t p)
{
	struct graph *g = u->g;
	struct sint dim[2] = {SINT(2), val_dims(g, v)[g->vals[v].rank - 1]};
	uint32_t ids = positions(u, v), n;

	val_shape(g, p, 2, dim);
	n = node_on(u, OP_EMBEDDING, "weight", p, v);
	*node_arg(g, n, "indices") = arg_val(ids);
	u->ntypes++;
}

/* A table that another constant was made of as well: types of words, then of pictures. */
static void
share_types(struct unfold *u, uint32_t v)
{
	struct graph *g = u->g;
	uint32_t full = g->vals[v].full, p = u->param[full] ? u->param[full] : u->place[full], ids, n;

	if (g->vals[p].kind != VAL_PARAM || g->vals[p].rank != 2)
		return;
	ids = positions(u, v);
	n = node_on(u, OP_EMBEDDING, "weight", p, v);
	*node_arg(g, n, "indices") = arg_val(ids);
	forget(u, v);
	u->count--;
}

static void
unfold(struct unfold *u, uint32_t v, uint32_t p)
{
	struct graph *g = u->g;
	bool weight = is_weight(u, v);

	g->vals[p].kind = VAL_PARAM;
	g->vals[p].full = g->vals[v].full;
	g->vals[p].dtype = g->vals[v].dtype;
	g->vals[p].flags = VF_TRAINABLE;
	if (is_bias(u, v) && u->nbias < MOST_BIASES) {
		u->bias_full[u->nbias] = g->vals[v].full;
		u->bias[u->nbias++] = v;
		unfold_bias(u, v, p);
	} else if (g->vals[v].fold == FOLD_RESIZED || g->vals[v].fold == FOLD_RESIZED_CAT) {
		unfold_resized(u, v, p);
	} else if (g->vals[v].fold == FOLD_OPERATORS) {
		unfold_operators(u, v, p);
	} else if (g->vals[v].fold == FOLD_TYPES) {
		unfold_types(u, v, p);
	} else if (weight) {
		put_in_place(u, v, p);
		g->vals[v].kind = VAL_NONE;
	} else {
		unfold_by_shape(u, v, p);
	}
	forget(u, v);
}

static void
index_names(struct unfold *u)
{
	uint32_t names = strtab_count(u->g->names) + 1u;

	u->place = NEW(u->a->c->a, uint32_t, names);
	u->param = NEW(u->a->c->a, uint32_t, names);
	for (uint32_t v = u->nval; v-- > 1;) {
		if (u->g->vals[v].kind == VAL_NONE)
			u->place[u->g->vals[v].name] = v;
		else if (u->g->vals[v].kind == VAL_PARAM)
			u->param[u->g->vals[v].full] = v;
	}
}

static void
find_users(struct unfold *u)
{
	u->user = NEW(u->a->c->a, uint32_t, u->nval);
	for (uint32_t n = u->nold; n-- > 1;)
		for (struct operands it = operands_of(u->g, n); operand_next(&it);)
			u->user[it.val] = n;
}

bool
pass_unfold(struct analysis *a)
{
	struct unfold u = {.a = a, .g = a->g, .nold = a->g->nnode, .nval = a->g->nval};

	for (uint32_t v = 1; v < u.nval; v++) {
		const struct val *x = &a->g->vals[v];
		uint32_t p;

		if (x->kind != VAL_CONST || !(x->flags & VF_TRAINABLE) || (!x->rank && x->fold == FOLD_UNKNOWN) || x->rank > MAX_RANK)
			continue;
		if (!u.user) {
			find_users(&u);
			index_names(&u);
		}
		p = u.user[v] ? parameter(&u, x->full) : 0;
		if (p)
			unfold(&u, v, p);
		else if (u.user[v] && is_bias(&u, v))
			share_bias(&u, v);
		else if (u.user[v] && x->fold == FOLD_TYPES)
			share_types(&u, v);
	}
	if (!u.count)
		return true;
	if (u.nbias)
		assume(a, "tables of position biases that the exporter folded have as many rows as there are positions: how many they have is not in the file (%u)", u.nbias);
	if (u.ntypes)
		assume(a, "tables of types of which the exporter folded one row have two, as libraries' have (%u)", u.ntypes);
	assume(a, "parameters that the exporter folded into constants are as large as what it kept of them (%u)", u.count);
	graph_splice(a->g, u.nold, u.behind);
	return true;
}
