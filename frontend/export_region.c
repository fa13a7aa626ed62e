/*
 * Higher-order operators of torch.export programs: nodes with graphs as arguments. Those that only switch a mode are inlined; cond,
 * while_loop, map and scan become branches and loops for the pass infer; others stay unknown operators with the results that the file declares.
 */
#include "export.h"

#include <string.h>

/* A graph among a node's arguments, and where its operands begin. */
struct region {
	const json_t *graph;
	size_t operand;
};

struct tensors {
	uint32_t *val;             /* 0 = no tensor */
	size_t n;
};

static const json_t *
input_at(const json_t *node, size_t i)
{
	return json_object_get(json_array_get(json_object_get(node, "inputs"), i), "arg");
}

static uint32_t
find_regions(const json_t *node, struct region *r, uint32_t cap)
{
	uint32_t n = 0;

	for (size_t i = 0; i < json_array_size(json_object_get(node, "inputs")); i++) {
		const json_t *g = json_object_get(export_field(input_at(node, i), "as_graph"), "graph");

		if (g && n < cap)
			r[n++] = (struct region){g, i + 1};
	}
	return n;
}

/* ---- operands and results --------------------------------------------------------------------------------------------- */

/* Arguments first to n - 1, lists opened. */
static bool
read_some(struct loader *l, const json_t *node, size_t first, size_t n, struct tensors *out)
{
	size_t total = 0;

	for (size_t i = first; i < n; i++)
		total += export_field(input_at(node, i), "as_tensors") ? json_array_size(export_field(input_at(node, i), "as_tensors")) : 1;
	*out = (struct tensors){NEW(l->c->a, uint32_t, total + 1), 0};
	for (size_t i = first; i < n; i++) {
		const json_t *list = export_field(input_at(node, i), "as_tensors"), *one = export_field(input_at(node, i), "as_tensor");

		if (!list && one && !export_lookup(l, one, &out->val[out->n]))
			return false;
		out->n += !list;
		for (size_t e = 0; e < json_array_size(list); e++)
			if (!export_lookup(l, json_array_get(list, e), &out->val[out->n++]))
				return false;
	}
	return true;
}

static bool
read_operands(struct loader *l, const json_t *node, size_t first, struct tensors *out)
{
	return read_some(l, node, first, json_array_size(json_object_get(node, "inputs")), out);
}

static void
name_value(struct loader *l, struct str name, uint32_t v)
{
	if (name.n)
		export_bind(l, graph_name(l->g, name), v);
}

/* The names of a node's results, lists opened; "" = no tensor. */
static const json_t *
result_at(const json_t *node, size_t k)
{
	const json_t *outs = json_object_get(node, "outputs");

	for (size_t i = 0; i < json_array_size(outs); i++) {
		const json_t *o = json_array_get(outs, i), *list = export_field(o, "as_tensors");
		size_t many = list ? json_array_size(list) : 1;

		if (k < many)
			return list ? json_array_get(list, k) : export_field(o, "as_tensor");
		k -= many;
	}
	return NULL;
}

/* ---- running a region's nodes -------------------------------------------------------------------------------------------- */

/* The values that the region returns, in order; 0 = no tensor. */
static bool
region_results(struct loader *l, const json_t *graph, struct tensors *out)
{
	const json_t *inner = json_object_get(graph, "outputs");

	*out = (struct tensors){NEW(l->c->a, uint32_t, json_array_size(inner) + 1), json_array_size(inner)};
	for (size_t i = 0; i < out->n; i++) {
		const json_t *t = export_field(json_array_get(inner, i), "as_tensor");

		if (t && !export_lookup(l, t, &out->val[i]))
			return false;
	}
	return true;
}

/* A region's names are its own: what they meant outside they mean again behind it. */
static bool
read_region(struct loader *l, const json_t *graph, const struct tensors *in, struct tensors *out)
{
	const json_t *tensors = l->tensors, *symints = l->symints, *inputs = json_object_get(graph, "inputs");
	uint32_t first = l->region_first, mark = l->nrebound;
	bool ok;

	if (l->depth >= l->c->lim.depth)
		return diag(l->c, DIAG_TOO_MANY, "nested graphs", (unsigned long long)l->c->lim.depth);
	l->depth++;
	l->region_first = l->g->nval - 1;
	for (size_t i = 0; i < json_array_size(inputs) && i < in->n; i++)
		if (in->val[i])
			name_value(l, json_get_str(export_field(json_array_get(inputs, i), "as_tensor"), "name"), in->val[i]);
	l->tensors = json_object_get(graph, "tensor_values");
	l->symints = json_object_get(graph, "sym_int_values");
	ok = export_nodes(l, graph) && region_results(l, graph, out);
	for (; l->nrebound > mark; l->nrebound--)
		l->val_of[l->rebound[l->nrebound - 1].id] = l->rebound[l->nrebound - 1].val;
	l->tensors = tensors;
	l->symints = symints;
	l->region_first = first;
	l->depth--;
	return ok;
}

/* ---- modes: the region's graph takes the node's place ----------------------------------------------------------------------- */

static bool
switches_gradients_off(const json_t *node, struct str target)
{
	if (!str_ends(target, S("wrap_with_set_grad_enabled")))
		return false;
	for (size_t i = 0; i < json_array_size(json_object_get(node, "inputs")); i++) {
		const json_t *on = export_field(input_at(node, i), "as_bool");

		if (on)
			return !json_is_true(on);
	}
	return false;
}

/* wrap_with_autocast(device, dtype, enabled, cache, ..). The device was the exporter's; training runs on its own. */
static uint8_t
region_autocast(struct loader *l, const json_t *node, struct str target)
{
	const json_t *on = export_field(input_at(node, 2), "as_bool"), *type = export_field(input_at(node, 1), "as_scalar_type");

	if (!str_ends(target, S("wrap_with_autocast")) || !on)
		return l->autocast;
	if (!json_is_true(on))
		return AUTOCAST_OFF;
	return (uint8_t)dtype_by_serde(json_is_integer(type) ? json_integer_value(type) : -1);
}

static bool
inline_region(struct loader *l, const json_t *node, struct str target, const struct region *r)
{
	struct tensors in, out;
	uint16_t kept = l->flags;
	uint8_t autocast = l->autocast;
	bool ok;

	if (!read_operands(l, node, r->operand, &in))
		return false;
	if (switches_gradients_off(node, target))
		l->flags |= NF_NO_GRAD;
	l->autocast = region_autocast(l, node, target);
	ok = read_region(l, r->graph, &in, &out);
	l->flags = kept;
	l->autocast = autocast;
	for (size_t k = 0; ok && k < out.n; k++)
		if (out.val[k] && result_at(node, k))
			name_value(l, json_get_str(result_at(node, k), "name"), out.val[k]);
	return ok;
}

/* ---- branches and loops ---------------------------------------------------------------------------------------------------------- */

static uint32_t
new_node(struct loader *l, const json_t *node, unsigned op, uint32_t narg, uint32_t nout)
{
	uint32_t n = node_new(l->g, op, narg, nout);

	l->g->nodes[n].name = graph_name(l->g, json_get_str(node, "name"));
	l->g->nodes[n].target = graph_name(l->g, json_get_str(node, "target"));
	l->g->nodes[n].scope = export_scope(l, json_get_str(json_object_get(node, "metadata"), "nn_module_stack"));
	return n;
}

static uint32_t
new_result(struct loader *l, uint32_t n, uint32_t k, const char *name)
{
	uint32_t v = val_new(l->g, VAL_NODE, str_fmt(l->c->a, "%s_%u_%u", name, (unsigned)n, (unsigned)k));

	l->g->vals[v].node = n;
	l->g->vals[v].out = k;
	node_outs(l->g, n)[k] = v;
	return v;
}

/* A truth value read out of a tensor. */
static struct arg
truth_of(struct loader *l, const json_t *node, uint32_t tensor)
{
	uint32_t n = new_node(l, node, OP_MEASURE, op_narg(OP_MEASURE), 1);

	node_args(l->g, n)[0] = (struct arg){.kind = ARG_STR, .u.str = graph_name(l->g, S("bool"))};
	node_args(l->g, n)[1] = arg_val(tensor);
	return arg_val(new_result(l, n, 0, "truth"));
}

/* Node n's result k is the operator's result number at. */
static bool
take_result(struct loader *l, const json_t *node, uint32_t n, uint32_t k, uint32_t at)
{
	const json_t *t = result_at(node, at);
	uint32_t v;

	if (!t || !json_get_str(t, "name").n) {
		new_result(l, n, k, "unused");
		return true;
	}
	if (!export_define(l, VAL_NODE, json_get_str(t, "name"), &v))
		return false;
	l->g->vals[v].node = n;
	l->g->vals[v].out = k;
	node_outs(l->g, n)[k] = v;
	return true;
}

/* The closing node's results are the operator's. */
static bool
take_results(struct loader *l, const json_t *node, uint32_t n)
{
	for (uint32_t k = 0; k < l->g->nodes[n].nout; k++)
		if (!take_result(l, node, n, k, k))
			return false;
	return true;
}

static bool
read_cond(struct loader *l, const json_t *node, const struct region *r)
{
	const json_t *pred = export_field(input_at(node, 0), "as_tensor"), *known = export_field(input_at(node, 0), "as_bool");
	struct arg cond = known ? arg_bool(json_is_true(known)) : (struct arg){.kind = ARG_NONE};
	struct tensors in, a, b;
	uint32_t n, v;

	if (!read_operands(l, node, r[1].operand, &in) || (pred && !export_lookup(l, pred, &v)))
		return false;
	if (pred)
		cond = truth_of(l, node, v);
	n = new_node(l, node, OP_IF, 1, 0);
	node_args(l->g, n)[0] = cond;
	if (!read_region(l, r[0].graph, &in, &a))
		return false;
	new_node(l, node, OP_ELSE, 0, 0);
	if (!read_region(l, r[1].graph, &in, &b))
		return false;
	n = new_node(l, node, OP_ENDIF, (uint32_t)a.n * 2, (uint32_t)a.n);
	for (uint32_t k = 0; k < a.n; k++) {
		node_args(l->g, n)[2 * k] = arg_val(a.val[k]);
		node_args(l->g, n)[2 * k + 1] = arg_val(k < b.n ? b.val[k] : 0);
	}
	return take_results(l, node, n);
}

static bool
loop_condition(struct loader *l, const json_t *node, const json_t *graph, const struct tensors *in, struct arg *out)
{
	struct tensors t;

	if (!read_region(l, graph, in, &t))
		return false;
	*out = t.n && t.val[0] ? truth_of(l, node, t.val[0]) : (struct arg){.kind = ARG_NONE};
	return true;
}

/* The same behind a turn. */
static bool
condition_again(struct loader *l, const json_t *node, const json_t *graph, const struct tensors *in, struct arg *out)
{
	bool again = l->again, ok;

	l->again = true;
	ok = loop_condition(l, node, graph, in, out);
	l->again = again;
	return ok;
}

/* while_loop(condition, body, carried, others): the body gets both and returns the carried ones. */
static bool
read_while(struct loader *l, const json_t *node, const struct region *r)
{
	uint32_t k, n, carried = (uint32_t)json_array_size(json_object_get(r[1].graph, "outputs"));
	struct tensors in, next;
	struct arg cond;

	if (!read_operands(l, node, r[1].operand, &in))
		return false;
	carried = carried < in.n ? carried : (uint32_t)in.n;
	if (!loop_condition(l, node, r[0].graph, &in, &cond))
		return false;
	n = new_node(l, node, OP_LOOP, 2 + carried, 1 + carried);
	node_args(l->g, n)[1] = cond;
	new_result(l, n, 0, "turn");
	for (k = 0; k < carried; k++) {
		node_args(l->g, n)[2 + k] = arg_val(in.val[k]);
		in.val[k] = new_result(l, n, 1 + k, "carried");
	}
	if (!read_region(l, r[1].graph, &in, &next))
		return false;
	memcpy(in.val, next.val, carried * sizeof *in.val);
	if (!condition_again(l, node, r[0].graph, &in, &cond))
		return false;
	n = new_node(l, node, OP_ENDLOOP, 1 + carried, carried);
	node_args(l->g, n)[0] = cond;
	for (k = 0; k < carried; k++)
		node_args(l->g, n)[1 + k] = arg_val(next.val[k]);
	return take_results(l, node, n);
}

/* ---- a turn for each element ------------------------------------------------------------------------------------------------ */

struct turns {
	struct loader *l;
	const json_t *node;
	struct sint count;
	struct tensors carried, each, shared;
	uint32_t nlist;            /* results that are stacked */
	uint32_t loop;
	bool rerun;                /* map: every turn keeps its inputs and runs again in backward */
};

static uint32_t
node_of(struct turns *t, unsigned op, uint32_t nout)
{
	uint32_t n = new_node(t->l, t->node, op, op_narg(op), nout);

	export_trace(t->l, n, json_get_str(json_object_get(t->node, "metadata"), "stack_trace"));
	return n;
}

static void
set_arg(struct turns *t, uint32_t n, const char *name, struct arg a)
{
	int at = op_arg_index(t->l->g->nodes[n].op, str_of(name));

	if (at >= 0)
		node_args(t->l->g, n)[at] = a;
}

static uint32_t
list_node(struct turns *t, const char *what, struct arg a, struct arg b)
{
	uint32_t n = node_of(t, OP_LIST, 1);

	set_arg(t, n, "what", (struct arg){.kind = ARG_STR, .u.str = graph_name(t->l->g, str_of(what))});
	set_arg(t, n, "a", a);
	set_arg(t, n, "b", b);
	return new_result(t->l, n, 0, what);
}

static uint32_t
unbound(struct turns *t, uint32_t val)
{
	uint32_t n = node_of(t, OP_UNBIND, 1), v;

	set_arg(t, n, "self", arg_val(val));
	set_arg(t, n, "dim", arg_int(0));
	v = new_result(t->l, n, 0, "unbind");
	t->l->g->vals[v].flags |= VF_LIST;
	return v;
}

/* Gradients of what the turns share come as one for each, stacked and then added up: as those of an expanded tensor. */
static uint32_t
shared_out(struct turns *t, uint32_t val)
{
	struct graph *g = t->l->g;
	struct sint size[MAX_RANK + 1] = {t->count};
	uint8_t rank = g->vals[val].rank;
	uint32_t n;
	struct arg a = {.kind = ARG_INTS};

	if (rank >= MAX_RANK || !dtype_is_float(g->vals[val].dtype))
		return 0;
	for (unsigned i = 0; i < rank; i++)
		size[i + 1] = (struct sint){-1, 0};
	a.first = ints_add(g, size, rank + 1u);
	a.count = rank + 1u;
	n = node_of(t, OP_EXPAND, 1);
	set_arg(t, n, "self", arg_val(val));
	set_arg(t, n, "size", a);
	return unbound(t, new_result(t->l, n, 0, "expand"));
}

/* A turn's own: an element of a list of pieces. */
static void
turn_pieces(struct turns *t, const uint32_t *list, const struct tensors *whole, uint32_t turn, uint32_t *out)
{
	for (size_t i = 0; i < whole->n; i++)
		out[i] = list[i] ? list_node(t, "get", arg_val(list[i]), arg_val(turn)) : whole->val[i];
}

static void
turn_slices(struct turns *t, uint32_t turn, uint32_t *out)
{
	for (size_t i = 0; i < t->each.n; i++) {
		uint32_t n = node_of(t, OP_SELECT, 1);

		set_arg(t, n, "self", arg_val(t->each.val[i]));
		set_arg(t, n, "dim", arg_int(0));
		set_arg(t, n, "index", arg_val(turn));
		out[i] = new_result(t->l, n, 0, "slice");
	}
}

/* The loop's opening node: carried tensors, then the lists that it fills. */
static uint32_t
open_turns(struct turns *t, uint32_t *carried, uint32_t *list)
{
	struct loader *l = t->l;
	uint32_t n = (uint32_t)t->carried.n, k, turn;

	for (k = 0; k < t->nlist; k++)
		list[k] = list_node(t, "of", (struct arg){.kind = ARG_VALS}, (struct arg){.kind = ARG_NONE});
	t->loop = new_node(l, t->node, OP_LOOP, 2 + n + t->nlist, 1 + n + t->nlist);
	node_args(l->g, t->loop)[0] = (struct arg){.kind = ARG_INT, .u.i = t->count};
	turn = new_result(l, t->loop, 0, "turn");
	for (k = 0; k < n; k++) {
		node_args(l->g, t->loop)[2 + k] = arg_val(t->carried.val[k]);
		carried[k] = new_result(l, t->loop, 1 + k, "carried");
	}
	for (k = 0; k < t->nlist; k++) {
		node_args(l->g, t->loop)[2 + n + k] = arg_val(list[k]);
		list[k] = new_result(l, t->loop, 1 + n + k, "stacked");
	}
	return turn;
}

static bool
close_turns(struct turns *t, const struct tensors *next, const uint32_t *list)
{
	struct loader *l = t->l;
	uint32_t n = (uint32_t)t->carried.n, k, end, stack, all;

	end = new_node(l, t->node, OP_ENDLOOP, 1 + n + t->nlist, n + t->nlist);
	for (k = 0; k < n; k++) {
		node_args(l->g, end)[1 + k] = arg_val(k < next->n ? next->val[k] : 0);
		if (!take_result(l, t->node, end, k, k))
			return false;
	}
	for (k = 0; k < t->nlist; k++) {
		node_args(l->g, end)[1 + n + k] = arg_val(list[k]);
		all = new_result(l, end, n + k, "stacked");
		stack = node_of(t, OP_STACK, 1);
		set_arg(t, stack, "tensors", arg_val(all));
		set_arg(t, stack, "dim", arg_int(0));
		if (!take_result(l, t->node, stack, 0, n + k))
			return false;
	}
	return true;
}

static bool
run_turn(struct turns *t, const json_t *graph, const struct tensors *in, struct tensors *out)
{
	uint16_t kept = t->l->flags;
	bool ok;

	if (t->rerun)
		t->l->flags |= NF_RERUN;
	ok = read_region(t->l, graph, in, out);
	t->l->flags = kept;
	return ok;
}

/* map(body, xs, shared); scan(body, carried, xs, shared), whose body returns the carried ones first */
static bool
read_turns(struct turns *t, const json_t *graph)
{
	struct arena *a = t->l->c->a;
	struct tensors in = {NEW(a, uint32_t, t->carried.n + t->each.n + t->shared.n + 1), t->carried.n + t->each.n + t->shared.n}, out;
	uint32_t *pieces = NEW(a, uint32_t, t->each.n + 1), *parts = NEW(a, uint32_t, t->shared.n + 1), *list = NEW(a, uint32_t, t->nlist + 1u), turn, *at = in.val;

	for (size_t i = 0; t->rerun && i < t->each.n; i++)
		pieces[i] = unbound(t, t->each.val[i]);
	for (size_t i = 0; t->rerun && i < t->shared.n; i++)
		parts[i] = t->shared.val[i] ? shared_out(t, t->shared.val[i]) : 0;
	turn = open_turns(t, at, list);
	at += t->carried.n;
	if (t->rerun)
		turn_pieces(t, pieces, &t->each, turn, at);
	else
		turn_slices(t, turn, at);
	at += t->each.n;
	turn_pieces(t, parts, &t->shared, turn, at);
	if (!run_turn(t, graph, &in, &out))
		return false;
	for (uint32_t k = 0; k < t->nlist; k++)
		list[k] = list_node(t, "append", arg_val(list[k]), arg_val(out.val[t->carried.n + k]));
	return close_turns(t, &out, list);
}

/* false: what it runs over is not known. */
static bool
start_turns(struct turns *t, const json_t *graph, bool *ok)
{
	size_t outputs = json_array_size(json_object_get(graph, "outputs")), first = t->rerun ? 1 : 2;
	const struct val *x;

	*ok = true;
	if (!t->rerun && !read_some(t->l, t->node, 1, 2, &t->carried))
		*ok = false;
	if (!*ok || !read_some(t->l, t->node, first, first + 1, &t->each) || !read_operands(t->l, t->node, first + 1, &t->shared))
		*ok = false;
	x = *ok && t->each.n && t->each.val[0] ? &t->l->g->vals[t->each.val[0]] : NULL;
	if (!x || x->rank == RANK_UNKNOWN || !x->rank || outputs < t->carried.n)
		return !*ok;
	for (size_t i = 0; i < t->each.n; i++)
		if (!t->each.val[i])
			return false;
	t->count = val_dims(t->l->g, t->each.val[0])[0];
	t->nlist = (uint32_t)(outputs - t->carried.n);
	return true;
}

/* Their graphs run per element or are parts of a kernel: no mode of the nodes around them. */
static bool
is_own_operator(struct str target)
{
	static const char *const names[] = {"map_impl", "map", "scan", "associative_scan", "flex_attention", "flex_attention_backward"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (str_ends(target, str_of(names[i])))
			return true;
	return false;
}

/* Apart, not on the stack, and counted twice: regions nest, and 64 KiB are enough for as deep as they may. */
static bool __attribute__((noinline))
read_elements(struct loader *l, const json_t *node, struct str target, const json_t *graph, bool *ok)
{
	struct turns *t = NEW(l->c->a, struct turns, 1);

	*t = (struct turns){.l = l, .node = node, .rerun = str_ends(target, S(".map_impl"))};
	if (!start_turns(t, graph, ok))
		return false;
	l->depth++;
	*ok = *ok && read_turns(t, graph);
	l->depth--;
	return true;
}

/* false: the node is no such operator, or an unknown one; else *ok says whether it could be read. */
bool
export_region(struct loader *l, const json_t *node, struct str target, bool *ok)
{
	struct region r[2];
	uint32_t n = str_starts(target, S("torch.ops.higher_order.")) ? find_regions(node, r, 2) : 0;

	if (n == 2 && str_ends(target, S(".cond")))
		*ok = read_cond(l, node, r);
	else if (n == 2 && str_ends(target, S(".while_loop")))
		*ok = read_while(l, node, r);
	else if (n == 1 && !is_own_operator(target))
		*ok = inline_region(l, node, target, &r[0]);
	else if (n == 1 && (str_ends(target, S(".map_impl")) || str_ends(target, S(".scan"))))
		return read_elements(l, node, target, r[0].graph, ok);
	else
		return false;
	return true;
}
