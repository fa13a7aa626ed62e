/*
 * ONNX files: where a node stands in the model. The dynamo exporter says it in metadata: module paths and classes as Python lists, the FX node
 * that the node is part of, Python's stack. The older exporter names nodes after modules: /model/layers.1/self_attn/q_proj/MatMul.
 */
#include "onnx.h"

#include <string.h>

struct str
onnx_property(Onnx__Property *const *props, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (props[i]->key && strcmp(props[i]->key, key) == 0)
			return onnx_str(props[i]->value);
	return S("");
}

static struct str
property(const Onnx__Node *node, const char *key)
{
	return onnx_property(node->metadata_props, node->n_metadata_props, key);
}

/* ---- Python lists ------------------------------------------------------------------------------------------------------ */

/* ['a', "it's", ..]: a backslash in an item stays, nothing that is read here has one. */
bool
onnx_next_item(struct str *list, struct str *item)
{
	uint32_t i = 0, end;
	const char *close;

	while (i < list->n && list->p[i] != '\'' && list->p[i] != '"')
		i++;
	if (i >= list->n)
		return false;
	for (end = i + 1;; end++) {
		close = end < list->n ? memchr(list->p + end, list->p[i], list->n - end) : NULL;
		if (!close)
			return false;
		end = (uint32_t)(close - list->p);
		if (list->p[end - 1] != '\\')
			break;
	}
	*item = str_sub(*list, i + 1, end);
	*list = str_sub(*list, end + 1, list->n);
	return true;
}

/* ---- module stacks of the dynamo exporter ----------------------------------------------------------------------------------- */

static bool
is_no_module(struct str path)
{
	return str_starts(path, S("_empty_nn_module_stack"));
}

/* One entry; the root's path is empty. */
static uint32_t
enter(struct onnx *l, uint32_t scope, struct str path, struct str cls)
{
	uint32_t call;

	path = place_split_call(path, &call);
	if (!path.n) {
		l->g->root_class = graph_name(l->g, cls);
		return scope;
	}
	if (l->g->scopes[scope].depth >= l->c->lim.depth)
		return scope;
	l->g->has_scopes = true;
	return scope_add(l->g, scope, path, cls, call);
}

/* All but the last entry, as text. */
static struct str
modules_of(struct str list)
{
	uint32_t n = list.n;

	while (n && list.p[n - 1] != ',')
		n--;
	return str_sub(list, 0, n);
}

/* Two parallel lists; the last entries are the FX node and its operator. Neighbours mostly stand in one module. */
static uint32_t
from_lists(struct onnx *l, struct str names, struct str classes)
{
	struct str path, cls, next, modules = modules_of(names), of_classes = modules_of(classes);
	uint32_t scope = 0;
	bool more = onnx_next_item(&names, &path);

	if (l->modules.p && str_eq(modules, l->modules) && str_eq(of_classes, l->classes))
		return l->scope;

	while (more) {
		more = onnx_next_item(&names, &next);
		if (!onnx_next_item(&classes, &cls))
			cls = S("");
		if (!more || is_no_module(path))
			break;
		scope = enter(l, scope, path, cls);
		path = next;
	}
	l->modules = modules;
	l->classes = of_classes;
	l->scope = scope;
	return scope;
}

/* "path: class/path: class/fx node: operator" */
static uint32_t
from_namespace(struct onnx *l, struct str text)
{
	struct str rest = text, entry;
	uint32_t scope = 0;

	while (str_cut(&rest, '/', &entry)) {
		int64_t colon = str_find(entry, ':');

		if (!rest.n || colon < 0 || is_no_module(entry))
			break;
		scope = enter(l, scope, str_sub(entry, 0, (uint32_t)colon), str_trim(str_sub(entry, (uint32_t)colon + 1, entry.n)));
	}
	return scope;
}

/* ---- module paths in node names ------------------------------------------------------------------------------------------------ */

struct walk {                      /* over the components of a node's name, the last one excluded */
	struct str rest, base, last, path;
};

static bool
next_component(struct onnx *l, struct walk *w)
{
	int64_t slash = str_find(w->rest, '/');
	struct str c;

	if (slash < 0)
		return false;
	c = str_sub(w->rest, 0, (uint32_t)slash);
	w->rest = str_sub(w->rest, (uint32_t)slash + 1, w->rest.n);
	/* children of a called list repeat its name: features/features.0 */
	if (!(w->last.n && str_starts(c, w->last) && c.n > w->last.n && c.p[w->last.n] == '.'))
		w->base = w->path.n ? str_fmt(l->c->a, "%.*s.", SFMT(w->path)) : S("");
	w->last = c;
	w->path = str_fmt(l->c->a, "%.*s%.*s", SFMT(w->base), SFMT(c));
	return true;
}

static bool
begin(const Onnx__Node *node, struct walk *w)
{
	struct str name = onnx_str(node->name);

	*w = (struct walk){.rest = str_sub(name, 1, name.n)};
	return name.n > 1 && name.p[0] == '/';
}

/* "name_2" is the third call of "name"; 0 = not numbered. */
static uint32_t
call_number(struct str name, struct str *bare)
{
	uint32_t n = name.n;
	int64_t number;

	*bare = name;
	while (n && name.p[n - 1] >= '0' && name.p[n - 1] <= '9')
		n--;
	if (n < 2 || n == name.n || name.p[n - 1] != '_' || !str_int(str_sub(name, n, name.n), &number) || number > 1 << 20)
		return 0;
	*bare = str_sub(name, 0, n - 1);
	return (uint32_t)number;
}

/* Prefixes that were never called are missing in names of nodes, but not in those of the parameters that they read. */
static void
learn(struct onnx *l, const Onnx__Node *node)
{
	struct walk w;
	struct str bare;

	if (!begin(node, &w))
		return;
	l->module_names = true;
	while (next_component(l, &w))
		;
	if (!w.path.n)
		return;
	call_number(path_last(w.path), &bare);
	for (size_t i = 0; i < node->n_input; i++) {
		struct str module = path_parent(onnx_str(node->input[i]));
		uint32_t id;

		if (!module.n || !onnx_is_stored(l, node->input[i]) || strstr(node->input[i], "::"))
			continue;
		if (!str_eq(path_last(module), path_last(w.path)) && !str_eq(path_last(module), bare))
			continue;
		id = strtab_id(l->paths, w.path);
		while (l->npath <= id) {
			ROOM(l->c->a, l->better_path, l->npath, l->path_cap, 1);
			l->better_path[l->npath++] = S("");
		}
		if (!l->better_path[id].n)
			l->better_path[id] = module;
	}
}

void
onnx_learn_paths(struct onnx *l)
{
	l->paths = strtab_new(l->c->a);
	for (size_t i = 0; i < l->m->graph->n_node; i++)
		learn(l, l->m->graph->node[i]);
}

static uint32_t
from_name(struct onnx *l, const Onnx__Node *node)
{
	struct walk w;
	uint32_t scope = 0;

	if (!begin(node, &w))
		return scope;
	while (next_component(l, &w)) {
		uint32_t id = strtab_find(l->paths, w.path), call = 0;
		struct str better = id < l->npath ? l->better_path[id] : S(""), bare;

		if (better.n && !str_eq(path_last(better), path_last(w.path)))
			call = call_number(path_last(w.path), &bare);
		if (l->g->scopes[scope].depth < l->c->lim.depth)
			scope = scope_add(l->g, scope, better.n ? better : w.path, S(""), call);
		l->g->has_scopes = true;
	}
	return scope;
}

/* ---- functions that stand for modules ---------------------------------------------------------------------------------------------- */

/* What the names of the parameters that it is given have in common is the module's path. */
static struct str
common_module(struct onnx *l, const Onnx__Node *node)
{
	struct str path = S("");
	unsigned count = 0;

	for (size_t i = 0; i < node->n_input; i++) {
		struct binding *b = onnx_binding(l, node->input[i]);
		struct str name = b->val && b->frame == l->frame ? graph_str(l->g, l->g->vals[b->val].name) : S(""), module = path_parent(name);

		if (!module.n || l->g->vals[b->val].kind == VAL_NODE || l->g->vals[b->val].kind == VAL_INPUT || memmem(name.p, name.n, "::", 2))
			continue;
		if (count++ == 0)
			path = module;
		while (path.n && !str_eq(path, module) && !(str_starts(module, path) && module.p[path.n] == '.'))
			path = path_parent(path);
	}
	return path;
}

/* "Linear.1" is a variant of the class Linear. */
static struct str
class_name(const Onnx__Function *f)
{
	struct str name = onnx_str(f->name);
	int64_t dot = str_find(name, '.');

	return dot > 0 ? str_sub(name, 0, (uint32_t)dot) : name;
}

/* The call's own name or the parameters say which module it is; else it is one of its caller's, called after its class. */
uint32_t
onnx_call_scope(struct onnx *l, const Onnx__Node *node, const Onnx__Function *f, uint32_t parent)
{
	struct str path = common_module(l, node), outer = scope_path(l->g, parent);
	struct str cls = str_fmt(l->c->a, "%s.%.*s", f->domain ? f->domain : "", SFMT(class_name(f)));
	bool named = parent && (str_eq(path, outer) || (!path.n && node->name && node->name[0] == '/'));

	if (l->g->scopes[parent].depth >= l->c->lim.depth || str_starts(cls, S("pkg.")))
		return parent;
	if (!named && !path.n)
		path = outer.n ? str_fmt(l->c->a, "%.*s.%.*s", SFMT(outer), SFMT(class_name(f))) : class_name(f);
	l->g->has_scopes = true;
	return named ? scope_add(l->g, l->g->scopes[parent].parent, outer, cls, 0) : scope_add(l->g, parent, path, cls, 0);
}

/* ---- FX nodes --------------------------------------------------------------------------------------------------------------------- */

/* %add_1 : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, 1), kwargs = {}) */
static void
read_fx(struct onnx *l, struct str text, struct place *p)
{
	const char *target = text.n ? memmem(text.p, text.n, "[target=", 8) : NULL;
	struct str name = text, rest, op;
	int64_t end;

	if (!target || text.p[0] != '%')
		return;
	for (end = 1; end < text.n && text.p[end] != ' ' && text.p[end] != ':'; end++)
		;
	name = str_sub(text, 1, (uint32_t)end);
	rest = str_sub(text, (uint32_t)(target - text.p) + 8, text.n);
	end = str_find(rest, ']');
	if (end < 0)
		return;
	op = str_sub(rest, 0, (uint32_t)end);
	rest = str_sub(rest, (uint32_t)end + 1, rest.n);
	if (str_starts(op, S("torch.ops.")))
		op = str_sub(op, 10, op.n);
	if (str_starts(rest, S("(")) && str_ends(rest, S(")")))
		rest = str_sub(rest, 1, rest.n - 1);
	p->fx = graph_name(l->g, name);
	p->fx_target = graph_name(l->g, op);
	p->fx_args = graph_name(l->g, rest);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------------------- */

static void
read_stack(struct onnx *l, struct str trace, struct place *p)
{
	if (!trace.n)
		return;
	if (!l->trace || strcmp(l->trace, trace.p) != 0)
		place_frames(l->g, trace, &l->trace_frame, &l->trace_n);
	l->trace = trace.p;
	p->frame = l->trace_frame;
	p->nframe = l->trace_n;
}

/* Nodes of a function without metadata of their own stand where its call stands. */
void
onnx_place(struct onnx *l, const Onnx__Node *node, struct place *p)
{
	struct str names = property(node, "pkg.torch.onnx.name_scopes"), classes = property(node, "pkg.torch.onnx.class_hierarchy"), text = property(node, "namespace");

	*p = l->call ? l->call->place : (struct place){0};
	if (!names.n) {
		names = property(node, "pkg.onnxscript.name_scopes");
		classes = property(node, "pkg.onnxscript.class_hierarchy");
	}
	if (names.n)
		p->scope = from_lists(l, names, classes);
	else if (text.n)
		p->scope = from_namespace(l, text);
	else if (l->module_names && !l->call)
		p->scope = from_name(l, node);
	read_fx(l, property(node, "pkg.torch.onnx.fx_node"), p);
	read_stack(l, property(node, "pkg.torch.onnx.stack_trace"), p);
}

static uint32_t
common_scope(const struct graph *g, uint32_t a, uint32_t b)
{
	unsigned depth = g->scopes[a].depth < g->scopes[b].depth ? g->scopes[a].depth : g->scopes[b].depth;

	a = scope_at(g, a, depth);
	b = scope_at(g, b, depth);
	while (a != b) {
		a = g->scopes[a].parent;
		b = g->scopes[b].parent;
	}
	return a;
}

static bool
is_recorded(const struct node *x)
{
	return x->fx || x->scope || x->nframe;
}

/* Nodes that the exporter's optimiser made without a record (Split) stand in the module that those before and behind them have in common. */
void
onnx_fill_places(struct onnx *l)
{
	struct graph *g = l->g;
	uint32_t before = 0, behind;
	bool fx = false;

	for (uint32_t n = 1; n < g->nnode; n++)
		fx |= g->nodes[n].fx != 0;
	for (uint32_t n = 1; fx && n < g->nnode; n++) {
		if (is_recorded(&g->nodes[n])) {
			before = n;
			continue;
		}
		for (behind = n + 1; behind < g->nnode && !is_recorded(&g->nodes[behind]); behind++)
			;
		for (; before && behind < g->nnode && n < behind; n++)
			g->nodes[n].scope = common_scope(g, g->nodes[before].scope, g->nodes[behind].scope);
		n = behind - 1;
	}
}
