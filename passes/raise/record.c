/*
 * record: operators that the exporter's record of its program names twice and the file has once, because both did the same. Every node of such a file
 * carries the operator of the program that it is part of, with the names of its operands; where the file has no operand of that name but one of the
 * same operator, the operator runs again, in the module that reads it: PyTorch runs both. detach is named in records alone. Of files without records
 * one such pair is known by what it computes: the mean that a norm takes away; and one detach, of x + (y - x), which would be y.
 */
#include "motif.h"

#include <string.h>

struct record {
	struct analysis *a;
	struct graph *g;
	uint32_t nold;
	uint32_t *behind;          uint32_t behind_cap;
	struct strtab *names;      /* of values: those of the file, and those that were made */
	uint32_t *val;             /* by number of a name: the value that was made for it, 0 = the file has it */
	uint32_t val_cap;
	unsigned count, detached, centred, straight;
};

/* ---- names ------------------------------------------------------------------------------------------------------------------------ */

/* The next "%name" of a record. */
static bool
next_name(struct str *rest, struct str *name)
{
	int64_t at = str_find(*rest, '%');
	uint32_t n = 0;

	if (at < 0)
		return false;
	*rest = str_sub(*rest, (uint32_t)at + 1, rest->n);
	while (n < rest->n && (rest->p[n] == '_' || (rest->p[n] >= '0' && rest->p[n] <= '9') || (rest->p[n] >= 'a' && rest->p[n] <= 'z') || (rest->p[n] >= 'A' && rest->p[n] <= 'Z')))
		n++;
	*name = str_sub(*rest, 0, n);
	*rest = str_sub(*rest, n, rest->n);
	return true;
}

static bool
names_value(struct str args, struct str name)
{
	struct str one;

	while (next_name(&args, &one))
		if (str_eq(one, name))
			return true;
	return false;
}

/* ---- making what is lacking ------------------------------------------------------------------------------------------------------- */

static uint32_t
new_node(struct record *r, unsigned op, uint32_t narg, uint32_t reader, struct str name)
{
	struct graph *g = r->g;
	uint32_t n = node_new(g, op, narg, 1), at = n - r->nold, v = val_new(g, VAL_NODE, name);

	g->vals[v].node = n;
	node_outs(g, n)[0] = v;
	node_place(g, n, reader);
	g->nodes[n].name = g->vals[v].name;
	ROOM(g->c->a, r->behind, at, r->behind_cap, 1);
	r->behind[at] = reader - 1;
	return n;
}

static uint32_t
typed_like(struct graph *g, uint32_t n, uint32_t x)
{
	uint32_t v = node_outs(g, n)[0];

	g->vals[v].dtype = g->vals[x].dtype;
	if (g->vals[x].rank != RANK_UNKNOWN)
		val_shape(g, v, g->vals[x].rank, val_dims(g, x));
	g->vals[v].data = g->vals[x].data;
	g->vals[v].data_at = g->vals[x].data_at;
	g->vals[v].ndata = g->vals[x].ndata;
	return v;
}

/* The same operator once more. */
static uint32_t
twin(struct record *r, uint32_t x, uint32_t reader, struct str name)
{
	struct graph *g = r->g;
	uint32_t old = g->vals[x].node, n = new_node(r, g->nodes[old].op, g->nodes[old].narg, reader, name);

	for (uint32_t i = 0; i < g->nodes[n].narg; i++) {
		struct arg a = node_args(g, old)[i];

		if (a.kind == ARG_VALS) {
			uint32_t *ids = NEW(g->c->a, uint32_t, a.count + 1);

			memcpy(ids, g->ids + a.first, a.count * sizeof *ids);
			a.first = ids_add(g, ids, a.count);
		}
		node_args(g, n)[i] = a;
	}
	g->nodes[n].fx = g->nodes[old].fx;
	g->nodes[n].fx_target = g->nodes[old].fx_target;
	return typed_like(g, n, x);
}

static bool
is_view(unsigned op)
{
	return op == OP_ONNX_UNSQUEEZE || op == OP_ONNX_SQUEEZE || op == OP_ONNX_RESHAPE || op == OP_ONNX_TRANSPOSE;
}

/* What the call of a dropout gives stays in the module around it: another module that reads a view of it has drawn its own. 0 = it is no such view. */
static uint32_t
drawn_again(struct record *r, uint32_t view, uint32_t reader)
{
	struct graph *g = r->g;
	uint32_t n = g->vals[view].node, x = is_view(g->nodes[n].op) ? operand_of(g, n, 0) : 0, maker = x ? maker_of(g, x) : 0, scope;

	if (!maker || g->nodes[maker].op != OP_ONNX_DROPOUT || g->nodes[maker].nout != 1 || !g->nodes[maker].scope)
		return 0;
	scope = g->scopes[g->nodes[maker].scope].parent;
	for (uint32_t s = g->nodes[reader].scope; s; s = g->scopes[s].parent)
		if (s == scope)
			return 0;
	return twin(r, x, reader, str_fmt(g->c->a, "%.*s_%u", SFMT(graph_str(g, g->vals[x].name)), (unsigned)reader));
}

/* ---- reading the records ------------------------------------------------------------------------------------------------------------ */

/* The name of the record that the file has no value for and that another result of the operand's operator would have. */
static struct str
missing(struct record *r, struct str args, struct str operand)
{
	struct str one;

	while (next_name(&args, &one)) {
		uint32_t id = strtab_find(r->names, one);

		if ((!id || (id < r->val_cap && r->val[id])) && str_eq(str_stem(one), str_stem(operand)))
			return one;
	}
	return S("");
}

/* What stands for an operand of a node; 0 = it is as recorded. */
static uint32_t
recorded(struct record *r, uint32_t n, uint32_t operand)
{
	struct graph *g = r->g;
	const struct val *x = &g->vals[operand];
	struct str args = graph_str(g, g->nodes[n].fx_args), name = graph_str(g, x->name), wanted;
	uint32_t id, v;

	if (x->kind != VAL_NODE || g->nodes[x->node].nout != 1 || !op_is_onnx(g->nodes[x->node].op) || g->nodes[x->node].fx == g->nodes[n].fx || !g->nodes[x->node].fx || names_value(args, name))
		return 0;
	wanted = missing(r, args, name);
	if (!wanted.n)
		return 0;
	id = strtab_id(r->names, wanted);
	ROOM(g->c->a, r->val, r->val_cap, r->val_cap, id < r->val_cap ? 0 : id + 1 - r->val_cap);
	v = r->val[id];
	if (!v) {
		uint32_t drawn = drawn_again(r, operand, n);

		v = twin(r, operand, n, wanted);
		if (drawn)
			node_args(g, g->vals[v].node)[0] = arg_val(drawn);
		r->val[id] = v;
		r->count++;
	}
	return v;
}

static void
read_node(struct record *r, uint32_t n)
{
	struct graph *g = r->g;

	for (uint32_t i = 0; i < g->nodes[n].narg; i++) {
		struct arg x = node_args(g, n)[i];
		uint32_t v;

		if (x.kind == ARG_VAL && (v = recorded(r, n, x.u.val)) != 0)
			node_args(g, n)[i] = arg_val(v);
		for (uint32_t k = 0; x.kind == ARG_VALS && k < x.count; k++)
			if ((v = recorded(r, n, g->ids[x.first + k])) != 0)
				g->ids[x.first + k] = v;
	}
}

/* ---- what the file leaves out ------------------------------------------------------------------------------------------------------- */

/* The value that a record names is not in the file, though detach() made one. */
static bool
is_detached(struct record *r, struct str name)
{
	return (str_eq(name, S("detach")) || str_eq(str_stem(name), S("detach"))) && !strtab_find(r->names, name);
}

/* As many operands as the record has names, which stand in the same order: those that it knows have the names it gives them. */
static bool
is_aligned(struct record *r, uint32_t n)
{
	struct str args = graph_str(r->g, r->g->nodes[n].fx_args), name;
	bool any = false;

	for (struct operands it = operands_of(r->g, n); operand_next(&it);) {
		double number;

		if (scalar_of(r->g, it.val, &number) || !next_name(&args, &name))
			return false;
		if (is_detached(r, name))
			any = true;
		else if (r->g->vals[it.val].kind == VAL_NODE && !str_eq(name, graph_str(r->g, r->g->vals[it.val].name)))
			return false;
	}
	return any && !next_name(&args, &name);
}

static uint32_t *
slot_of(const struct graph *g, uint32_t n, unsigned place)
{
	struct operands it = operands_of(g, n);

	for (unsigned i = 0; i <= place; i++)
		operand_next(&it);
	return it.slot;
}

/* detach() computes nothing: exporters drop it, and gradients would flow. */
static void
detach_operands(struct record *r, uint32_t n)
{
	struct graph *g = r->g;
	struct str args = graph_str(g, g->nodes[n].fx_args), name;

	if (!g->nodes[n].fx_args || !is_aligned(r, n))
		return;
	for (unsigned place = 0; next_name(&args, &name); place++) {
		uint32_t v = *slot_of(g, n, place), made;

		if (!is_detached(r, name))
			continue;
		made = new_node(r, OP_DETACH, op_narg(OP_DETACH), n, str_fmt(r->a->c->a, "%.*s_%u", SFMT(name), (unsigned)n));
		*node_arg(g, made, "self") = arg_val(v);
		*slot_of(g, n, place) = typed_like(g, made, v);
		r->detached++;
	}
}

/* The node is all that the exporter made of the operator that it recorded, or the product of a linear layer: its operands are the operator's. */
static bool
is_whole(const struct graph *g, uint32_t n)
{
	uint32_t fx = g->nodes[n].fx;

	if (!g->nodes[n].fx_args || g->nodes[n - 1].fx == fx)
		return false;
	if (g->nodes[n].op == OP_ONNX_MATMUL && str_starts(graph_str(g, g->nodes[n].fx_target), S("aten.linear")))
		return true;
	return n + 1 == g->nnode || g->nodes[n + 1].fx != fx;
}

/* ---- without records ------------------------------------------------------------------------------------------------------------------ */

static bool
reads(const struct graph *g, uint32_t n, unsigned op, uint32_t v)
{
	return g->nodes[n].op == op && (operand_of(g, n, 0) == v || operand_of(g, n, 1) == v);
}

/* x - mean(x), squared: the node of the difference; 0 = it is none. */
static uint32_t
centred(const struct graph *g, uint32_t square)
{
	uint32_t sub = g->nodes[square].op == OP_ONNX_POW ? maker_of(g, operand_of(g, square, 0)) : 0, mean = sub ? maker_of(g, operand_of(g, sub, 1)) : 0;

	if (!mean || g->nodes[sub].op != OP_ONNX_SUB || g->nodes[mean].op != OP_ONNX_REDUCE_MEAN || operand_of(g, mean, 0) != operand_of(g, sub, 0))
		return 0;
	return g->nodes[sub].fx_target ? 0 : sub;
}

/*
 * Who writes a layer norm out, with rsqrt, takes the mean from x twice, for the variance and for the result, and the optimiser once. Quotients are what
 * exporters make of nn.LayerNorm.
 */
static void
centre_twice(struct record *r, uint32_t square)
{
	struct graph *g = r->g;
	uint32_t sub = centred(g, square), x = sub ? node_outs(g, sub)[0] : 0;

	for (uint32_t n = square + 1; sub && n < r->nold && n < square + 8; n++) {
		if (!reads(g, n, OP_ONNX_MUL, x))
			continue;
		for (uint32_t i = 0; i < g->nodes[n].narg; i++)
			if (node_args(g, n)[i].kind == ARG_VAL && node_args(g, n)[i].u.val == x)
				node_args(g, n)[i] = arg_val(twin(r, x, n, str_fmt(g->c->a, "%.*s_again", SFMT(graph_str(g, g->vals[x].name)))));
		r->centred++;
		return;
	}
}

/*
 * x + (y - x).detach() and y - x.detach() + x, a straight-through estimator: y forward, and in backward the gradient is x's. Nobody adds and takes away the same
 * for another reason.
 */
static void
straight_through(struct record *r, uint32_t n)
{
	struct graph *g = r->g;

	if (g->nodes[n].op != OP_ONNX_ADD || g->nodes[n].fx_target)
		return;
	for (unsigned i = 0; i < 2; i++) {
		uint32_t x = operand_of(g, n, i), y = operand_of(g, n, 1 - i), sub = maker_of(g, y), made;

		if (!sub || g->nodes[sub].op != OP_ONNX_SUB || operand_of(g, sub, 1) != x || operand_of(g, sub, 0) == x)
			continue;
		made = new_node(r, OP_DETACH, op_narg(OP_DETACH), n, str_fmt(g->c->a, "%.*s_detached_%u", SFMT(graph_str(g, g->vals[y].name)), (unsigned)n));
		*node_arg(g, made, "self") = arg_val(y);
		*slot_of(g, n, 1 - i) = typed_like(g, made, y);
		r->straight++;
		return;
	}
}

bool
pass_record(struct analysis *a)
{
	struct graph *g = a->g;
	struct record r = {.a = a, .g = g, .nold = g->nnode};

	if (!str_eq(g->format, S("onnx")))
		return true;
	r.names = strtab_new(a->c->a);
	for (uint32_t v = 1; v < g->nval; v++)
		strtab_id(r.names, graph_str(g, g->vals[v].name));
	r.val_cap = g->nval + 1;
	r.val = NEW(a->c->a, uint32_t, r.val_cap);
	for (uint32_t n = 1; n < r.nold; n++)
		detach_operands(&r, n);
	for (uint32_t n = 1; n < r.nold; n++)
		if (is_whole(g, n))
			read_node(&r, n);
	for (uint32_t n = 1; n < r.nold; n++)
		centre_twice(&r, n);
	for (uint32_t n = 1; n < r.nold; n++)
		straight_through(&r, n);
	if (!r.count && !r.detached && !r.centred && !r.straight)
		return true;
	if (r.centred)
		assume(a, "layer norms that are written out take the mean away twice, as libraries write them (%u)", r.centred);
	if (r.straight)
		assume(a, "x + (y - x) is a straight-through estimator, whose difference is detached (%u)", r.straight);
	if (r.detached)
		assume(a, "detach, which the exporter left out, is taken from its record of the operators (%u)", r.detached);
	if (r.count)
		assume(a, "operators that the exporter recorded twice and its optimiser kept once run twice (%u)", r.count);
	graph_splice(g, r.nold, r.behind);
	return true;
}
