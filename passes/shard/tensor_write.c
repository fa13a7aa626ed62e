/*
 * The graph of one rank: divided dims become local, collectives stand where a whole value enters a region and where its partial sums leave it.
 * With sequence parallelism the sums leave divided along the sequence, and stay so through operators that work on each token alone; where one
 * mixes tokens they are gathered. A linear layer divided by columns gathers its input itself, and again in backward.
 */
#include "tensor.h"

#include <string.h>

struct copy {                      /* of a value, for nodes of the same module */
	uint32_t val, parent;
};

struct writer {
	struct divided *d;
	struct graph *g;
	int8_t *seq;               /* by value: the dim that is divided along the sequence */
	struct copy *entered, *whole, *part;
	uint32_t nval;             /* that there were before */
	uint32_t host;             /* the node that is being written: who is charged */
	int64_t uneven;            /* tokens that the ranks do not divide */
};

/* ---- new nodes and values -------------------------------------------------------------------------------------------- */

static uint32_t
new_value(struct writer *w, uint32_t like, const char *suffix, int axis)
{
	struct graph *g = w->g;
	struct sint dims[MAX_RANK];
	unsigned rank = g->vals[like].rank;
	uint32_t v = val_new(g, VAL_NODE, str_fmt(w->d->a->c->a, "%.*s_%s_%u", SFMT(graph_str(g, g->vals[like].name)), suffix, (unsigned)g->nval));

	g->vals[v].dtype = g->vals[like].dtype;
	for (unsigned i = 0; i < rank; i++)
		dims[i] = val_dims(g, like)[i];
	if (axis >= 0)
		dims[axis] = SINT(part_of(w->d, like, dim_of(g, like, axis)));
	val_shape(g, v, rank, dims);
	return v;
}

/* A collective along a dim; NO_WAY: it has none. */
static void
add_node(struct writer *w, unsigned op, uint32_t in, uint32_t out, int axis)
{
	struct graph *g = w->g;
	uint32_t n = node_beside(g, op, w->host, 1);

	g->nodes[n].flags |= NF_ADDED;
	g->nodes[n].name = g->vals[out].name;
	node_args(g, n)[0] = arg_val(in);
	if (axis >= 0) {
		node_args(g, n)[1] = arg_int(axis);
		node_args(g, n)[2] = arg_int(w->d->ways);
		node_args(g, n)[3] = arg_int(dim_of(g, in, axis));
	}
	node_outs(g, n)[0] = out;
	g->vals[out].node = n;
	g->vals[out].out = 0;
}

static uint32_t
copied(struct writer *w, struct copy *of, uint32_t v, unsigned op, const char *suffix, int axis)
{
	uint32_t parent = w->g->scopes[w->g->nodes[w->host].scope].parent;

	if (v >= w->nval)
		return v;
	if (!of[v].val || of[v].parent != parent) {
		of[v] = (struct copy){new_value(w, v, suffix, op == OP_TP_SCATTER ? axis : WHOLE), parent};
		add_node(w, op, v, of[v].val, axis);
	}
	return of[v].val;
}

static void
replace_operand(struct writer *w, uint32_t n, uint32_t v, uint32_t by)
{
	for (struct operands it = operands_of(w->g, n); operand_next(&it);)
		if (it.val == v)
			*it.slot = by;
}

static uint32_t
gathered(struct writer *w, uint32_t v)
{
	return copied(w, w->whole, v, OP_TP_GATHER, "whole", w->seq[v]);
}

/* ---- the sequence ------------------------------------------------------------------------------------------------------ */

static bool
takes_parts(const struct writer *w, uint32_t n)
{
	for (struct operands it = operands_of(w->g, n); operand_next(&it);)
		if (it.val < w->nval && w->seq[it.val] != WHOLE)
			return true;
	return false;
}

/* Parts of another size are the operator's only where both are even. */
static bool
fits(const struct writer *w, uint32_t n, int64_t size)
{
	for (struct operands it = operands_of(w->g, n); operand_next(&it);) {
		int64_t from = it.val < w->nval && w->seq[it.val] != WHOLE ? dim_of(w->g, it.val, w->seq[it.val]) : size;

		if (from != size && (from % w->d->ways || size % w->d->ways))
			return false;
	}
	return true;
}

/* The dim of the results, if the operator works on each token alone and every operand can be had so. */
static int
seq_axis(const struct writer *w, uint32_t n)
{
	struct linear l;
	bool linear = linear_of(w->g, n, &l);
	int axis = NO_WAY;

	if (linear && w->seq[l.in] < w->g->vals[l.in].rank - 1)
		axis = w->seq[l.in];
	for (struct operands it = operands_of(w->g, n); operand_next(&it) && axis < 0 && !linear;)
		if (it.val < w->nval && w->seq[it.val] != WHOLE)
			axis = axis_forward(w->d, n, it.val, w->seq[it.val]);
	for (struct operands it = operands_of(w->g, n); operand_next(&it) && axis >= 0 && !linear;)
		if (axis_back(w->d, n, it.val, axis) == NO_WAY)
			return NO_WAY;
	for (uint32_t k = 0; k < w->g->nodes[n].nout && axis >= 0; k++)
		if (!dim_of(w->g, node_outs(w->g, n)[k], axis) || !fits(w, n, dim_of(w->g, node_outs(w->g, n)[k], axis)))
			return NO_WAY;
	return axis;
}

static void
bring_operands(struct writer *w, uint32_t n, int axis)
{
	uint32_t list[64], count = 0;
	struct linear l;

	for (struct operands it = operands_of(w->g, n); operand_next(&it) && count < 64;)
		list[count++] = it.val;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t v = list[i], from = v;
		int want = axis < 0 ? WHOLE : linear_of(w->g, n, &l) ? (v == l.in ? axis : WHOLE) : axis_back(w->d, n, v, axis);

		if (v >= w->nval || w->seq[v] == want)
			continue;
		if (w->seq[v] != WHOLE)
			from = gathered(w, v);
		replace_operand(w, n, v, want == WHOLE ? from : copied(w, w->part, v, OP_TP_SCATTER, "part", want));
	}
}

/* A node outside of all regions. */
static void
write_tokens(struct writer *w, uint32_t n)
{
	int axis;

	if (!takes_parts(w, n))
		return;
	axis = seq_axis(w, n);
	bring_operands(w, n, axis);
	for (uint32_t k = 0; k < w->g->nodes[n].nout && axis >= 0; k++)
		w->seq[node_outs(w->g, n)[k]] = (int8_t)axis;
}

/* ---- regions ------------------------------------------------------------------------------------------------------------- */

/* Its input is divided along the sequence: it gathers it itself. */
static void
gathering(struct writer *w, uint32_t n, const struct linear *l)
{
	struct graph *g = w->g;
	unsigned op = g->nodes[n].op == OP_LINEAR ? OP_TP_LINEAR : OP_TP_ADDMM, narg = op_narg(op);
	const struct arg old[3] = {node_args(g, n)[0], g->nodes[n].narg > 1 ? node_args(g, n)[1] : (struct arg){0}, g->nodes[n].narg > 2 ? node_args(g, n)[2] : (struct arg){0}};

	ROOM(w->d->a->c->a, g->args, g->narg, g->arg_cap, narg);
	memset(g->args + g->narg, 0, narg * sizeof *g->args);
	g->nodes[n].arg = g->narg;
	g->narg += narg;
	if (g->nodes[n].op == OP_MM)
		memcpy(node_args(g, n) + 1, old, 2 * sizeof *old);
	else
		memcpy(node_args(g, n), old, sizeof old);
	node_args(g, n)[3] = arg_int(w->seq[l->in]);
	node_args(g, n)[4] = arg_int(w->d->ways);
	node_args(g, n)[5] = arg_int(dim_of(g, l->in, w->seq[l->in]));
	g->nodes[n].narg = narg;
	g->nodes[n].op = (uint16_t)op;
}

static void
write_column(struct writer *w, uint32_t n, const struct linear *l)
{
	if (w->seq[l->in] != WHOLE && w->d->pytorch)
		replace_operand(w, n, l->in, gathered(w, l->in));
	else if (w->seq[l->in] != WHOLE)
		gathering(w, n, l);
	else
		replace_operand(w, n, l->in, copied(w, w->entered, l->in, OP_TP_ENTER, "entered", NO_WAY));
}

static void
write_embedding(struct writer *w, uint32_t n)
{
	struct graph *g = w->g;
	uint32_t old = g->nodes[n].arg, narg = op_narg(OP_TP_EMBEDDING), count = g->nodes[n].narg < narg ? g->nodes[n].narg : narg;

	ROOM(w->d->a->c->a, g->args, g->narg, g->arg_cap, narg);
	memset(g->args + g->narg, 0, narg * sizeof *g->args);
	memcpy(g->args + g->narg, g->args + old, count * sizeof *g->args);
	g->nodes[n].arg = g->narg;
	g->narg += narg;
	g->nodes[n].narg = narg;
	g->nodes[n].op = OP_TP_EMBEDDING;
	node_args(g, n)[narg - 1] = arg_int(w->d->pytorch ? w->d->classes : 0);
}

/* What the node makes is a part of a sum: its value comes from a collective behind it. */
static void
write_sum(struct writer *w, uint32_t n)
{
	struct graph *g = w->g;
	uint32_t out = node_outs(g, n)[0], partial = new_value(w, out, "partial", WHOLE);
	int axis = g->vals[out].rank - 2;
	bool scatter = w->d->a->r->v[RK_PARALLEL_SEQUENCE].i && axis >= 0;

	if (scatter && dim_of(g, out, axis) % w->d->ways)
		w->uneven = dim_of(g, out, axis);
	node_outs(g, n)[0] = partial;
	g->vals[partial].node = n;
	add_node(w, scatter ? OP_TP_REDUCE_SCATTER : OP_TP_REDUCE, partial, out, scatter ? axis : NO_WAY);
	g->nodes[g->nnode - 1].flags |= g->nodes[n].flags & NF_LEAF;
	g->nodes[n].flags &= (uint16_t)~NF_LEAF;
	if (scatter)
		w->seq[out] = (int8_t)axis;
}

static bool
in_region(const struct writer *w, uint32_t n)
{
	for (uint32_t k = 0; k < w->g->nodes[n].nout; k++)
		if (node_outs(w->g, n)[k] && w->d->axis[node_outs(w->g, n)[k]] != WHOLE)
			return true;
	return false;
}

/* ---- sizes in arguments ---------------------------------------------------------------------------------------------------- */

static void
divide_entry(struct writer *w, struct arg *a, int64_t at, uint32_t v)
{
	struct sint dims[MAX_RANK];
	struct graph *g = w->g;
	int64_t n;

	if (!a || a->kind != ARG_INTS || at < 0 || at >= a->count || a->count > MAX_RANK || !sint_eval(g, g->ints[a->first + at], &n) || n < 0)
		return;
	memcpy(dims, g->ints + a->first, a->count * sizeof *dims);
	dims[at] = SINT(part_of(w->d, v, n));
	a->first = ints_add(g, dims, a->count);
}

static void
divide_number(struct writer *w, struct arg *a, uint32_t v)
{
	int64_t n;

	if (a && a->kind == ARG_INT && sint_eval(w->g, a->u.i, &n))
		a->u.i = SINT(part_of(w->d, v, n));
	for (uint32_t i = 0; a && a->kind == ARG_INTS && i < a->count; i++)
		divide_entry(w, a, i, v);
}

static int64_t
number(const struct graph *g, uint32_t n, const char *name, int64_t rank)
{
	const struct arg *a = node_arg(g, n, name);
	int64_t i = 0;

	if (a && a->kind == ARG_INT && !sint_eval(g, a->u.i, &i))
		return -1;
	return i < 0 ? i + rank : i;
}

static void
divide_args(struct writer *w, uint32_t n, int axis)
{
	struct graph *g = w->g;
	uint32_t v = node_outs(g, n)[0];
	int64_t rank = g->vals[v].rank;

	switch (g->nodes[n].op) {
	case OP_VIEW: case OP_UNSAFE_VIEW: case OP_EXPAND:
		divide_entry(w, node_arg(g, n, "size"), axis, v);
		break;
	case OP_RESHAPE:
		divide_entry(w, node_arg(g, n, "shape"), axis, v);
		break;
	case OP_UNFLATTEN:
		divide_entry(w, node_arg(g, n, "sizes"), axis - number(g, n, "dim", rank - (int64_t)node_arg(g, n, "sizes")->count + 1), v);
		break;
	case OP_SPLIT:
		if (number(g, n, "dim", rank) == axis)
			divide_number(w, node_args(g, n) + 1, v);
		break;
	case OP_REPEAT_INTERLEAVE:
		if (number(g, n, "dim", rank) == axis)
			divide_number(w, node_arg(g, n, "output_size"), v);
		break;
	default:
		break;
	}
}

static void
divide_dim(struct writer *w, uint32_t v, int axis)
{
	struct sint dims[MAX_RANK];

	memcpy(dims, val_dims(w->g, v), w->g->vals[v].rank * sizeof *dims);
	dims[axis] = SINT(part_of(w->d, v, dim_of(w->g, v, axis)));
	val_shape(w->g, v, w->g->vals[v].rank, dims);
}

static void
divide_all(struct writer *w)
{
	struct graph *g = w->g;

	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t v = g->nodes[n].nout ? node_outs(g, n)[0] : 0;

		if (v && v < w->nval && (w->d->axis[v] != WHOLE || w->seq[v] != WHOLE))
			divide_args(w, n, w->d->axis[v] != WHOLE ? w->d->axis[v] : w->seq[v]);
	}
	for (uint32_t v = 1; v < w->nval; v++) {
		int axis = w->d->axis[first_of(g, v)] != WHOLE ? w->d->axis[first_of(g, v)] : w->seq[v];

		if (axis != WHOLE)
			divide_dim(w, v, axis);
	}
}

/* ---- the whole graph --------------------------------------------------------------------------------------------------------- */

static void
write_node(struct writer *w, const struct node *old, uint32_t role)
{
	struct graph *g = w->g;
	struct node *kept = NEW(w->d->a->c->a, struct node, 1);
	uint32_t n = 0;            /* the node is put at the end when what stands before it is there */
	struct linear l;

	*kept = *old;
	g->nodes[0] = *kept;       /* for what is asked about it until then */
	w->host = 0;
	if (role == ROLE_COLUMN && linear_of(g, n, &l))
		write_column(w, n, &l);
	else if (role == ROLE_VOCABULARY)
		write_embedding(w, n);
	else if (role == ROLE_LOSS)
		g->nodes[0].op = OP_TP_CROSS_ENTROPY;
	else if (role == ROLE_NONE && !in_region(w, n))
		write_tokens(w, n);
	if (role != ROLE_COLUMN && (role != ROLE_NONE || in_region(w, n)))
		bring_operands(w, n, WHOLE);
	ROOM(w->d->a->c->a, g->nodes, g->nnode, g->node_cap, 1);
	n = g->nnode++;
	g->nodes[n] = g->nodes[0];
	memset(g->nodes, 0, sizeof *g->nodes);
	for (uint32_t k = 0; k < g->nodes[n].nout; k++)
		if (node_outs(g, n)[k])
			g->vals[node_outs(g, n)[k]].node = n;
	w->host = n;
	if (role == ROLE_ROW || role == ROLE_VOCABULARY)
		write_sum(w, n);
}

void
tensor_write(struct divided *d)
{
	struct graph *g = d->g;
	struct arena *a = d->a->c->a;
	struct writer w = {.d = d, .g = g, .nval = g->nval, .seq = NEW(a, int8_t, g->nval), .entered = NEW(a, struct copy, g->nval),
		.whole = NEW(a, struct copy, g->nval), .part = NEW(a, struct copy, g->nval)};
	uint32_t old = g->nnode;
	struct node *nodes = NEW(a, struct node, old);
	uint32_t *first = NEW(a, uint32_t, old), *last = NEW(a, uint32_t, old);

	memset(w.seq, WHOLE, g->nval);
	memcpy(nodes, g->nodes, old * sizeof *nodes);
	d->last = true;
	g->nnode = 1;
	for (uint32_t n = 1; n < old; n++) {
		first[n] = g->nnode;
		write_node(&w, &nodes[n], d->role[n]);
		last[n] = g->nnode - 1;
	}
	for (uint32_t b = 0; b < d->a->plan.nblock; b++) {
		d->a->plan.blocks[b].first = first[d->a->plan.blocks[b].first];
		d->a->plan.blocks[b].last = last[d->a->plan.blocks[b].last];
	}
	divide_all(&w);
	if (w.uneven)
		assume(d->a, "sequence parallel: %lld tokens are cut as DTensor does, padded for collectives, and this is the first rank, which has the most; Megatron-LM and torchtitan refuse such a length", (long long)w.uneven);
}
