/* torch.export programs: nodes, and where they stand in the model. */
#include "export.h"

#include <string.h>

#define IN_PLACE 0x10000u          /* in op_of: add_ and the like */
#define MAX_AGAIN LIMIT(200000u, 20u)          /* nodes that are read a second time; where conditions nest they double */

/* ---- metadata ------------------------------------------------------------------------------------------------ */

/* "key,path,class;key,path,class": commas inside brackets belong to the path. */
static struct str
next_field(struct str *rest)
{
	int depth = 0;
	uint32_t i = 0;
	struct str field;

	for (; i < rest->n; i++) {
		char ch = rest->p[i];

		if (ch == '(' || ch == '[')
			depth++;
		else if (ch == ')' || ch == ']')
			depth--;
		else if (ch == ',' && depth <= 0)
			break;
	}
	field = str_sub(*rest, 0, i);
	*rest = str_sub(*rest, i + 1, rest->n);
	return field;
}

/* Until torch 2.2 "key:(path,class)". */
static struct str
next_place(struct str entry)
{
	struct str key = next_field(&entry);
	const char *open = memmem(key.p, key.n, ":(", 2);

	return open && str_ends(key, S(")")) ? str_sub(key, (uint32_t)(open - key.p) + 2, key.n - 1) : entry;
}

/* "L['self'].blocks[0].norm", of exports that went through Dynamo: blocks.0.norm */
static struct str
plain_path(struct loader *l, struct str path)
{
	char *p;
	uint32_t n = 0;

	if (!str_starts(path, S("L[")))
		return path;
	path = str_sub(path, (uint32_t)(str_find(path, ']') + 1), path.n);
	p = NEW(l->c->a, char, path.n + 1u);
	for (uint32_t i = 0; i < path.n; i++) {
		char c = path.p[i] == '[' ? '.' : path.p[i];

		if (c != ']' && c != '\'' && !(c == '.' && !n))
			p[n++] = c;
	}
	return (struct str){p, n};
}

uint32_t
export_scope(struct loader *l, struct str stack)
{
	struct str rest = stack, entry;
	uint32_t scope = 0, call;

	while (rest.n && str_cut(&rest, ';', &entry)) {
		struct str path, cls;

		entry = next_place(entry);
		path = place_split_call(plain_path(l, next_field(&entry)), &call);
		cls = next_field(&entry);
		if (str_starts(path, S("_empty_nn_module_stack")) || l->g->scopes[scope].depth >= l->c->lim.depth)
			return 0;
		if (!path.n) {
			l->g->root_class = graph_name(l->g, cls);
			continue;
		}
		scope = scope_add(l->g, scope, path, cls, call);
	}
	l->g->has_scopes |= scope != 0;
	return scope;
}

void
export_trace(struct loader *l, uint32_t n, struct str trace)
{
	if (!l->trace || strcmp(l->trace, trace.p) != 0)
		place_frames(l->g, trace, &l->trace_frame, &l->trace_n);
	l->trace = trace.p;
	l->g->nodes[n].frame = l->trace_frame;
	l->g->nodes[n].nframe = l->trace_n;
}

/* Behind the last "key": " in the text, which is a list of lists of records, the oldest one innermost. */
static struct str
last_record(struct str text, struct str key)
{
	for (uint32_t i = text.n; i-- > 0;) {
		struct str at = str_sub(text, i, text.n), name;

		if (!str_starts(at, key))
			continue;
		at = str_sub(at, key.n, at.n);
		return str_cut(&at, '"', &name) ? name : S("");
	}
	return S("");
}

/* Which operator of the program as it was captured the node is a piece of: from_node says it, before torch 2.6 torch_fn, "linear_1;function.linear". */
static void
read_origin(struct loader *l, uint32_t n, const json_t *meta)
{
	struct str from = json_get_str(meta, "from_node"), fn = json_get_str(meta, "torch_fn"), name = S("");
	struct node *x = &l->g->nodes[n];

	if (from.n) {
		x->fx = graph_name(l->g, last_record(from, S("\"name\": \"")));
		x->fx_target = graph_name(l->g, last_record(from, S("\"target\": \"")));
	} else if (fn.n && str_cut(&fn, ';', &name)) {
		x->fx = graph_name(l->g, name);
		x->fx_target = graph_name(l->g, str_sub(fn, (uint32_t)(str_find(fn, '.') + 1), fn.n));
	}
}

/* ---- nodes -------------------------------------------------------------------------------------------------------- */

static bool
set_args(struct loader *l, uint32_t n, const json_t *inputs, unsigned op)
{
	for (size_t i = 0; i < json_array_size(inputs); i++) {
		const json_t *in = json_array_get(inputs, i);
		struct str name = json_get_str(in, "name");    /* none: an argument of a Python function, by place */
		struct arg a;
		int at = op && name.n ? op_arg_index(op, name) : (int)i;

		if (op && at < 0)
			continue;      /* generators, pin_memory and the like */
		if (!export_arg(l, json_object_get(in, "arg"), &a))
			return false;
		if ((uint32_t)at < l->g->nodes[n].narg)
			node_args(l->g, n)[at] = a;
	}
	return true;
}

static size_t
count_results(const json_t *outputs)
{
	size_t n = 0;

	for (size_t i = 0; i < json_array_size(outputs); i++) {
		const json_t *o = json_array_get(outputs, i);

		n += export_field(o, "as_tensors") ? json_array_size(export_field(o, "as_tensors")) : export_field(o, "as_tensor") != NULL;
	}
	return n;
}

static bool
add_result(struct loader *l, uint32_t n, uint32_t k, const json_t *tensor)
{
	uint32_t v;

	if (!export_define(l, VAL_NODE, json_get_str(tensor, "name"), &v))
		return false;
	l->g->vals[v].node = n;
	l->g->vals[v].out = k;
	node_outs(l->g, n)[k] = v;
	return true;
}

static bool
set_results(struct loader *l, uint32_t n, const json_t *outputs)
{
	uint32_t k = 0;

	for (size_t i = 0; i < json_array_size(outputs); i++) {
		const json_t *o = json_array_get(outputs, i), *list = export_field(o, "as_tensors"), *one = export_field(o, "as_tensor");

		if (one && !add_result(l, n, k++, one))
			return false;
		for (size_t e = 0; e < json_array_size(list); e++)
			if (!add_result(l, n, k++, json_array_get(list, e)))
				return false;
	}
	return true;
}

static unsigned
find_op(struct loader *l, struct str target, bool *inplace)
{
	uint32_t *known = export_slot(l, &l->op_of, &l->op_cap, graph_name(l->g, target));
	struct str name = target;

	if (!*known) {
		if (str_starts(name, S("torch.ops.aten.")))
			name = str_sub(name, 15, name.n);
		else if (str_starts(name, S("torch._functorch.predispatch.")))
			name = str_sub(name, 29, name.n);
		*known = op_by_name(name, inplace) + 1u;
		if (*inplace)
			*known |= IN_PLACE;
	}
	*inplace = *known & IN_PLACE;
	return (*known & ~IN_PLACE) - 1;
}

/* Arithmetic on sizes has no tensors in it; its results are known as expressions already. */
static bool
is_scalar_code(const json_t *node, struct str target)
{
	const json_t *out = json_object_get(node, "outputs");

	if (str_starts(target, S("torch.ops.")))
		return false;
	return count_results(out) == 0;
}

static bool
read_node(struct loader *l, const json_t *node)
{
	struct str target = json_get_str(node, "target");
	const json_t *in = json_object_get(node, "inputs"), *out = json_object_get(node, "outputs"), *meta = json_object_get(node, "metadata");
	bool inplace = false, ok;
	unsigned op;
	uint32_t n;

	if (!l->again)
		l->g->file_nodes++;
	else if (++l->nagain > MAX_AGAIN)
		return diag(l->c, DIAG_TOO_MANY, "nodes of conditions that are read again", (unsigned long long)MAX_AGAIN);
	if (!target.n || !json_is_array(in) || !json_is_array(out))
		return export_expected(l, "graph node", "target, inputs and outputs");
	if (is_scalar_code(node, target))
		return true;
	if (export_region(l, node, target, &ok))
		return ok;
	op = find_op(l, target, &inplace);
	if (l->g->nnode >= l->c->lim.nodes)
		return diag(l->c, DIAG_TOO_MANY, "nodes", (unsigned long long)l->c->lim.nodes);
	n = node_new(l->g, op, op ? op_narg(op) : (uint32_t)json_array_size(in), (uint32_t)count_results(out));
	l->g->nodes[n].target = graph_name(l->g, target);
	l->g->nodes[n].name = graph_name(l->g, json_get_str(node, "name"));
	l->g->nodes[n].flags = (uint16_t)(l->flags | (inplace ? NF_INPLACE : 0));
	l->g->nodes[n].autocast = l->autocast;
	l->g->nodes[n].scope = export_scope(l, json_get_str(meta, "nn_module_stack"));
	export_trace(l, n, json_get_str(meta, "stack_trace"));
	if (l->g->decomposed)
		read_origin(l, n, meta);
	return set_args(l, n, in, op) && set_results(l, n, out);
}

bool
export_nodes(struct loader *l, const json_t *graph)
{
	const json_t *nodes = json_object_get(graph, "nodes");

	if (!json_is_array(nodes) || !json_is_object(l->tensors))
		return export_expected(l, "graph", "nodes and tensor_values");
	for (size_t i = 0; i < json_array_size(nodes); i++)
		if (!read_node(l, json_array_get(nodes, i)))
			return false;
	return true;
}

