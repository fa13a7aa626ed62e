/*
 * torch.export archives (.pt2): a zip with models/model.json (the program), data/weights/NAME_weights_config.json (which names
 * share a storage) and weights that are never read. formats.md section 3 has the schema.
 *
 * The JSON is walked once. Values get ids in the order in which the file defines them; dims become expressions over
 * the file's symbols. Sub-graphs that only switch gradients or autocast are inlined, their nodes flagged.
 */
#include "frontend.h"

#include <string.h>

struct loader {
	struct ctx *c;
	struct graph *g;
	const json_t *tensors;     /* tensor_values of the graph being read */
	const json_t *symints;     /* sym_int_values */
	uint32_t *val_of;          /* by interned name */
	uint32_t val_cap;
	uint32_t *expr_of;         /* by interned text of a size expression */
	uint32_t expr_cap;
	uint32_t *op_of;           /* by interned target: operator + 1, 0 = not looked up; IN_PLACE set for add_ and the like */
	uint32_t op_cap;
	const char *trace;         /* last stack trace read, and its frames */
	uint32_t trace_frame;
	uint16_t trace_n;
	struct strtab *paths;      /* storages of parameters */
	uint32_t *owner;           /* parameter by storage */
	uint32_t owner_cap;
	const json_t *weights;
	uint8_t flags, autocast;   /* of nodes, by the region they are in */
	unsigned depth;
};
#define IN_PLACE 0x10000u

static uint32_t *
slot(struct loader *l, uint32_t **array, uint32_t *cap, uint32_t i)
{
	if (i >= *cap) {
		uint32_t old = *cap, want = i + 1 > old * 2 ? i + 1 : old * 2;
		uint32_t *p = NEW(l->c->a, uint32_t, want);

		if (old)
			memcpy(p, *array, old * sizeof *p);
		*array = p;
		*cap = want;
	}
	return &(*array)[i];
}

static bool
expected(struct loader *l, const char *where, const char *what)
{
	struct str s = str_of(where);

	return diag(l->c, DIAG_JSON_FIELD, SFMT(s), what);
}

/* ---- integers ----------------------------------------------------------------------------------------- */

static struct sint
read_expr(struct loader *l, struct str text)
{
	uint32_t *e = slot(l, &l->expr_of, &l->expr_cap, graph_name(l->g, text));

	if (!*e)
		expr_parse(l->g, text, e);
	return sint_of_expr(l->g, *e);
}

/* {"as_int": n}, {"as_expr": {"expr_str": s}}, or {"as_name": value} */
static struct sint
read_sint(struct loader *l, const json_t *j, unsigned depth)
{
	struct str tag, name;
	const json_t *v = json_only(j, &tag);

	if (json_is_integer(v))
		return SINT(json_integer_value(v));
	if (str_eq(tag, S("as_expr")))
		return read_expr(l, json_get_str(v, "expr_str"));
	name = json_str(v);
	if (v && name.n && depth < 2)
		return read_sint(l, json_object_get(l->symints, name.p), depth + 1);
	return (struct sint){0, EXPR_UNKNOWN};
}

/* ---- values -------------------------------------------------------------------------------------------- */

static bool
read_shape(struct loader *l, uint32_t v, const json_t *meta)
{
	const json_t *sizes = json_object_get(meta, "sizes");
	struct sint dims[MAX_RANK];
	size_t rank = json_array_size(sizes);
	struct str name = graph_str(l->g, l->g->vals[v].name);

	if (rank > MAX_RANK)
		return diag(l->c, DIAG_RANK_TOO_BIG, SFMT(name), (unsigned)rank);
	for (size_t i = 0; i < rank; i++) {
		dims[i] = read_sint(l, json_array_get(sizes, i), 0);
		if (!dims[i].expr && (dims[i].n < 0 || dims[i].n > (int64_t)1 << 48))
			return diag(l->c, DIAG_BAD_SHAPE, SFMT(name), (long long)dims[i].n);
	}
	val_shape(l->g, v, (unsigned)rank, dims);
	return true;
}

static bool
read_meta(struct loader *l, uint32_t v, const json_t *meta)
{
	int64_t dt = json_get_int(meta, "dtype", 0);
	struct str name = graph_str(l->g, l->g->vals[v].name);

	if (!meta)
		return true;           /* a value without a record stays untyped */
	l->g->vals[v].dtype = (uint8_t)dtype_by_serde(dt);
	if (!l->g->vals[v].dtype)
		return diag(l->c, DIAG_BAD_DTYPE, SFMT(name), (long long)dt);
	return read_shape(l, v, meta);
}

static bool
define(struct loader *l, enum val_kind kind, struct str name, uint32_t *out)
{
	uint32_t v;

	if (l->g->nval >= l->c->lim.values)
		return diag(l->c, DIAG_TOO_MANY, "values", (unsigned long long)l->g->nval + 1, (unsigned long long)l->c->lim.values);
	v = val_new(l->g, kind, name);
	*out = v;
	*slot(l, &l->val_of, &l->val_cap, l->g->vals[v].name) = v;
	return read_meta(l, v, json_object_get(l->tensors, name.p));
}

static bool
lookup(struct loader *l, const json_t *tensor, uint32_t *out)
{
	struct str name = json_get_str(tensor, "name");
	uint32_t id = strtab_find(l->g->names, name);

	*out = id && id < l->val_cap ? l->val_of[id] : 0;
	return *out ? true : diag(l->c, DIAG_UNKNOWN_VALUE, SFMT(name));
}

/* ---- arguments ------------------------------------------------------------------------------------------- */

static bool
read_tensors(struct loader *l, const json_t *list, struct arg *out)
{
	size_t n = json_array_size(list);
	uint32_t *ids = NEW(l->c->a, uint32_t, n + 1);

	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(list, i), *t = json_object_get(item, "as_tensor");

		if (json_object_get(item, "as_none"))
			continue;
		if (!lookup(l, t ? t : item, &ids[i]))
			return false;
	}
	*out = (struct arg){.kind = ARG_VALS, .first = ids_add(l->g, ids, (uint32_t)n), .count = (uint32_t)n};
	return true;
}

static void
read_ints(struct loader *l, const json_t *list, struct arg *out)
{
	size_t n = json_array_size(list);
	struct sint *ints = NEW(l->c->a, struct sint, n + 1);

	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(list, i);

		if (json_is_object(item))
			ints[i] = read_sint(l, item, 0);
		else
			ints[i] = SINT(json_is_integer(item) ? json_integer_value(item) : json_is_true(item));
	}
	*out = (struct arg){.kind = ARG_INTS, .first = ints_add(l->g, ints, (uint32_t)n), .count = (uint32_t)n};
}

static double
real(const json_t *j)
{
	struct str s = json_str(j);

	if (s.n)
		return s.p[0] == '-' ? -1e308 : 1e308;     /* "Infinity" */
	return json_number_value(j);
}

static void
read_floats(struct loader *l, const json_t *list, struct arg *out)
{
	size_t n = json_array_size(list);
	double *f = NEW(l->c->a, double, n + 1);

	for (size_t i = 0; i < n; i++)
		f[i] = real(json_array_get(list, i));
	*out = (struct arg){.kind = ARG_FLOATS, .first = floats_add(l->g, f, (uint32_t)n), .count = (uint32_t)n};
}

enum tag { TAG_NONE, TAG_TENSOR, TAG_TENSORS, TAG_INT, TAG_SYM_INT, TAG_INTS, TAG_FLOAT, TAG_FLOATS, TAG_BOOL, TAG_STR, TAG_DTYPE, TAG_FORMAT, TAG_DEVICE, TAG_LAYOUT };

static enum tag
tag_of(struct str s)
{
	static const struct {
		const char *name;
		enum tag tag;
	} table[] = {
		{"as_tensor", TAG_TENSOR}, {"as_int", TAG_INT}, {"as_none", TAG_NONE}, {"as_ints", TAG_INTS}, {"as_sym_ints", TAG_INTS},
		{"as_float", TAG_FLOAT}, {"as_bool", TAG_BOOL}, {"as_sym_int", TAG_SYM_INT}, {"as_scalar_type", TAG_DTYPE}, {"as_tensors", TAG_TENSORS},
		{"as_optional_tensors", TAG_TENSORS}, {"as_string", TAG_STR}, {"as_floats", TAG_FLOATS}, {"as_bools", TAG_INTS}, {"as_memory_format", TAG_FORMAT},
		{"as_device", TAG_DEVICE}, {"as_layout", TAG_LAYOUT},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(s, str_of(table[i].name)))
			return table[i].tag;
	return TAG_NONE;           /* symbolic bools and floats: nothing in memory depends on them */
}

/* serde numbers memory formats from 1, with preserve last (formats.md 5.2) */
static struct arg
memory_format(int64_t serde)
{
	static const int64_t c10[] = {1, 0, 2, 3, 1};

	return arg_int(serde >= 1 && serde <= 4 ? c10[serde] : 1);
}

static bool
read_arg(struct loader *l, const json_t *j, struct arg *out)
{
	struct str tag = S("");
	const json_t *v = json_only(j, &tag);

	*out = (struct arg){.kind = ARG_NONE};
	if (str_eq(tag, S("as_optional_tensor")))
		v = json_only(v, &tag);
	switch (tag_of(tag)) {
	case TAG_TENSOR:
		*out = (struct arg){.kind = ARG_VAL};
		return lookup(l, v, &out->u.val);
	case TAG_TENSORS:
		return read_tensors(l, v, out);
	case TAG_INT:
		*out = arg_int(json_integer_value(v));
		break;
	case TAG_SYM_INT:
		*out = (struct arg){.kind = ARG_INT, .u.i = read_sint(l, v, 0)};
		break;
	case TAG_INTS:
		read_ints(l, v, out);
		break;
	case TAG_FLOAT:
		*out = arg_float(real(v));
		break;
	case TAG_FLOATS:
		read_floats(l, v, out);
		break;
	case TAG_BOOL:
		*out = arg_bool(json_is_true(v));
		break;
	case TAG_STR:
		*out = (struct arg){.kind = ARG_STR, .u.str = graph_name(l->g, json_str(v))};
		break;
	case TAG_DTYPE:
		*out = arg_dtype(dtype_by_serde(json_integer_value(v)));
		break;
	case TAG_DEVICE:
		*out = (struct arg){.kind = ARG_STR, .u.str = graph_name(l->g, json_get_str(v, "type"))};
		break;
	case TAG_LAYOUT:
		*out = arg_int(json_integer_value(v));
		break;
	case TAG_FORMAT:
		*out = memory_format(json_integer_value(v));
		break;
	case TAG_NONE:
		break;
	}
	return true;
}

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

/* A second call of a module is "path@1". */
static struct str
split_call(struct str path, uint32_t *call)
{
	int64_t at = str_find(path, '@'), n = 0;

	*call = 0;
	if (at < 0 || !str_int(str_sub(path, (uint32_t)at + 1, path.n), &n))
		return path;
	*call = (uint32_t)n;
	return str_sub(path, 0, (uint32_t)at);
}

static uint32_t
read_scope(struct loader *l, struct str stack)
{
	struct str rest = stack, entry;
	uint32_t scope = 0, call;

	while (rest.n && str_cut(&rest, ';', &entry)) {
		struct str path, cls;

		next_field(&entry);
		path = split_call(next_field(&entry), &call);
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

/* Lines `File "f", line 12, in forward`, each followed by its source text, outermost first. */
static bool
next_frame(struct str *rest, struct str *line_no, struct str *text)
{
	struct str line;

	while (str_cut(rest, '\n', &line)) {
		struct str s = str_trim(line);
		const char *at = s.n > 12 && str_starts(s, S("File \"")) ? memmem(s.p, s.n, "\", line ", 8) : NULL;
		int64_t comma;

		if (!at)
			continue;
		*line_no = str_sub(s, (uint32_t)(at - s.p) + 8, s.n);
		comma = str_find(*line_no, ',');
		if (comma < 0 || !str_cut(rest, '\n', text))
			continue;
		*line_no = str_sub(*line_no, 0, (uint32_t)comma);
		*text = str_trim(*text);
		return true;
	}
	return false;
}

static void
read_trace(struct loader *l, uint32_t n, struct str trace)
{
	struct graph *g = l->g;
	struct str rest = trace, line, text;
	int64_t number;

	if (l->trace && strcmp(l->trace, trace.p) == 0) {
		g->nodes[n].frame = l->trace_frame;
		g->nodes[n].nframe = l->trace_n;
		return;
	}
	g->nodes[n].frame = g->nframe;
	while (trace.n && g->nodes[n].nframe < l->c->lim.depth && next_frame(&rest, &line, &text)) {
		ROOM(l->c->a, g->frames, g->nframe, g->frame_cap, 1);
		g->frames[g->nframe++] = (struct frame){str_int(line, &number) ? (uint32_t)number : 0, graph_name(g, text)};
		g->nodes[n].nframe++;
	}
	g->has_frames |= g->nodes[n].nframe > 0;
	l->trace = trace.p;
	l->trace_frame = g->nodes[n].frame;
	l->trace_n = g->nodes[n].nframe;
}

/* ---- nodes -------------------------------------------------------------------------------------------------------- */

static bool read_graph_body(struct loader *, const json_t *graph);

/* Higher-order operators that only switch a mode: their graph is inlined, its inputs are the operands, its outputs the node's. */
struct region {
	const json_t *graph;
	size_t operand;            /* first operand among the node's inputs */
};

static bool
mode_region(struct loader *l, const json_t *node, struct str target, struct region *r)
{
	const json_t *in = json_object_get(node, "inputs");
	bool grad = str_ends(target, S("wrap_with_set_grad_enabled")), cast = str_ends(target, S("wrap_with_autocast"));

	if (!grad && !cast)
		return false;
	for (size_t i = 0; i < json_array_size(in); i++) {
		const json_t *arg = json_object_get(json_array_get(in, i), "arg"), *g = json_object_get(arg, "as_graph");

		if (grad && json_object_get(arg, "as_bool") && !json_is_true(json_object_get(arg, "as_bool")))
			l->flags |= NF_NO_GRAD;
		if (g) {
			r->graph = json_object_get(g, "graph");
			r->operand = i + 1;
			return r->graph != NULL;
		}
	}
	return false;
}

static bool
bind_inputs(struct loader *l, const json_t *node, const struct region *r, uint32_t *vals, size_t n)
{
	const json_t *in = json_object_get(node, "inputs");

	for (size_t i = 0; i < n; i++) {
		const json_t *t = json_object_get(json_object_get(json_array_get(in, r->operand + i), "arg"), "as_tensor");

		vals[i] = 0;
		if (t && !lookup(l, t, &vals[i]))
			return false;
	}
	return true;
}

static void
name_value(struct loader *l, struct str name, uint32_t v)
{
	if (name.n)
		*slot(l, &l->val_of, &l->val_cap, graph_name(l->g, name)) = v;
}

static bool
bind_outputs(struct loader *l, const json_t *node, const struct region *r, const json_t *tensors)
{
	const json_t *outer = json_object_get(node, "outputs"), *inner = json_object_get(r->graph, "outputs");
	size_t k = 0;

	(void)tensors;
	for (size_t i = 0; i < json_array_size(outer); i++) {
		const json_t *o = json_array_get(outer, i), *list = json_object_get(o, "as_tensors");
		size_t n = list ? json_array_size(list) : 1;

		for (size_t e = 0; e < n; e++, k++) {
			const json_t *t = json_object_get(json_array_get(inner, k), "as_tensor");
			uint32_t v;

			if (!t)
				continue;
			if (!lookup(l, t, &v))
				return false;
			name_value(l, json_get_str(list ? json_array_get(list, e) : json_object_get(o, "as_tensor"), "name"), v);
		}
	}
	return true;
}

static bool
inline_region(struct loader *l, const json_t *node, const struct region *r)
{
	const json_t *in = json_object_get(r->graph, "inputs"), *tensors = l->tensors, *symints = l->symints;
	size_t n = json_array_size(in);
	uint32_t *vals = NEW(l->c->a, uint32_t, n + 1);
	bool ok;

	if (++l->depth > l->c->lim.depth)
		return diag(l->c, DIAG_TOO_MANY, "nested graphs", (unsigned long long)l->depth, (unsigned long long)l->c->lim.depth);
	if (!bind_inputs(l, node, r, vals, n))
		return false;
	for (size_t i = 0; i < n; i++)
		if (vals[i])
			name_value(l, json_get_str(json_object_get(json_array_get(in, i), "as_tensor"), "name"), vals[i]);
	l->tensors = json_object_get(r->graph, "tensor_values");
	l->symints = json_object_get(r->graph, "sym_int_values");
	ok = read_graph_body(l, r->graph) && bind_outputs(l, node, r, tensors);
	l->tensors = tensors;
	l->symints = symints;
	l->depth--;
	return ok;
}

static bool
set_args(struct loader *l, uint32_t n, const json_t *inputs, unsigned op)
{
	for (size_t i = 0; i < json_array_size(inputs); i++) {
		const json_t *in = json_array_get(inputs, i);
		struct arg a;
		int at = op ? op_arg_index(op, json_get_str(in, "name")) : (int)i;

		if (op && at < 0)
			continue;      /* generators, pin_memory and the like */
		if (!read_arg(l, json_object_get(in, "arg"), &a))
			return false;
		if (at < l->g->nodes[n].narg)
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

		n += json_object_get(o, "as_tensors") ? json_array_size(json_object_get(o, "as_tensors")) : json_object_get(o, "as_tensor") != NULL;
	}
	return n;
}

static bool
add_result(struct loader *l, uint32_t n, uint32_t k, const json_t *tensor)
{
	uint32_t v;

	if (!define(l, VAL_NODE, json_get_str(tensor, "name"), &v))
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
		const json_t *o = json_array_get(outputs, i), *list = json_object_get(o, "as_tensors"), *one = json_object_get(o, "as_tensor");

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
	uint32_t *known = slot(l, &l->op_of, &l->op_cap, graph_name(l->g, target));
	struct str name = target;

	if (!*known) {
		if (str_starts(name, S("torch.ops.aten.")))
			name = str_sub(name, 15, name.n);
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
	struct region r = {0};
	uint8_t kept = l->flags;
	bool inplace = false, ok;
	unsigned op;
	uint32_t n;

	l->g->file_nodes++;
	if (!target.n || !json_is_array(in) || !json_is_array(out))
		return expected(l, "graph node", "target, inputs and outputs");
	if (is_scalar_code(node, target))
		return true;
	if (mode_region(l, node, target, &r)) {
		ok = inline_region(l, node, &r);
		l->flags = kept;
		return ok;
	}
	op = find_op(l, target, &inplace);
	if (l->g->nnode >= l->c->lim.nodes)
		return diag(l->c, DIAG_TOO_MANY, "nodes", (unsigned long long)l->g->nnode, (unsigned long long)l->c->lim.nodes);
	n = node_new(l->g, op, op ? op_narg(op) : (uint32_t)json_array_size(in), (uint32_t)count_results(out));
	l->g->nodes[n].target = graph_name(l->g, target);
	l->g->nodes[n].name = graph_name(l->g, json_get_str(node, "name"));
	l->g->nodes[n].flags = (uint8_t)(l->flags | (inplace ? NF_INPLACE : 0));
	l->g->nodes[n].scope = read_scope(l, json_get_str(meta, "nn_module_stack"));
	read_trace(l, n, json_get_str(meta, "stack_trace"));
	return set_args(l, n, in, op) && set_results(l, n, out);
}

static bool
read_graph_body(struct loader *l, const json_t *graph)
{
	const json_t *nodes = json_object_get(graph, "nodes");

	if (!json_is_array(nodes) || !json_is_object(l->tensors))
		return expected(l, "graph", "nodes and tensor_values");
	for (size_t i = 0; i < json_array_size(nodes); i++)
		if (!read_node(l, json_array_get(nodes, i)))
			return false;
	return true;
}

/* ---- inputs and outputs of the program ------------------------------------------------------------------------------ */

/* Parameters whose records have one path share a storage. */
static void
find_tie(struct loader *l, uint32_t v, struct str full)
{
	struct str path = json_get_str(json_object_get(l->weights, full.p), "path_name");
	uint32_t *owner;

	if (!path.n)
		return;
	owner = slot(l, &l->owner, &l->owner_cap, strtab_id(l->paths, path));
	if (*owner)
		l->g->vals[v].tied = *owner;
	else
		*owner = v;
}

static bool
read_input(struct loader *l, const json_t *spec)
{
	struct str tag = S(""), name, full;
	const json_t *s = json_only(spec, &tag), *arg = json_object_get(s, "arg");
	bool param = str_eq(tag, S("parameter")), buffer = str_eq(tag, S("buffer")), constant = str_eq(tag, S("tensor_constant"));
	enum val_kind kind = param ? VAL_PARAM : buffer ? VAL_BUFFER : constant ? VAL_CONST : VAL_INPUT;
	uint32_t v;

	if (kind == VAL_INPUT)
		arg = json_object_get(arg, "as_tensor");
	name = json_get_str(arg, "name");
	if (!name.n)
		return true;           /* numbers, None, tokens, script objects: no tensor */
	if (!define(l, kind, name, &v))
		return false;
	if (kind == VAL_INPUT) {
		graph_input(l->g, v);
		return true;
	}
	full = json_get_str(s, param ? "parameter_name" : buffer ? "buffer_name" : "tensor_constant_name");
	l->g->vals[v].full = graph_name(l->g, full);
	if (param && !json_is_false(json_object_get(json_object_get(l->tensors, name.p), "requires_grad")))
		l->g->vals[v].flags |= VF_TRAINABLE;
	if (buffer && !json_is_false(json_object_get(s, "persistent")))
		l->g->vals[v].flags |= VF_PERSISTENT;
	if (param)
		find_tie(l, v, full);
	return true;
}

static bool
read_outputs(struct loader *l, const json_t *graph, const json_t *sig)
{
	const json_t *outs = json_object_get(graph, "outputs"), *specs = json_object_get(sig, "output_specs");

	for (size_t i = 0; i < json_array_size(outs); i++) {
		const json_t *t = json_object_get(json_array_get(outs, i), "as_tensor");
		struct str tag = S("");
		uint32_t v = 0;

		json_only(json_array_get(specs, i), &tag);
		if (!t || !(str_eq(tag, S("user_output")) || str_eq(tag, S("loss_output")) || !tag.n))
			continue;      /* None, numbers, and the new values of buffers */
		if (!lookup(l, t, &v))
			return false;
		graph_output(l->g, v);
	}
	return true;
}

static void
read_ranges(struct loader *l, const json_t *ranges)
{
	const char *name;
	json_t *range;

	json_object_foreach((json_t *)(uintptr_t)ranges, name, range) {
		uint32_t s = sym_add(l->g, str_of(name));

		l->g->syms[s].min = json_get_int(range, "min_val", 0);
		l->g->syms[s].max = json_get_int(range, "max_val", -1);
	}
}

/* The dtype of most floating-point parameters, counted by tensors. */
static void
find_file_dtype(struct graph *g)
{
	uint32_t count[DT_COUNT] = {0};

	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind == VAL_PARAM && dtype_is_float(g->vals[v].dtype))
			count[g->vals[v].dtype]++;
	for (unsigned i = 1; i < DT_COUNT; i++)
		if (count[i] > (g->file_dtype ? count[g->file_dtype] : 0))
			g->file_dtype = (uint8_t)i;
	if (!g->file_dtype)
		g->file_dtype = DT_FP32;
}

/* ---- the archive ---------------------------------------------------------------------------------------------------------- */

static bool
read_program(struct loader *l, const json_t *doc)
{
	const json_t *module = json_object_get(doc, "graph_module"), *graph = json_object_get(module, "graph"), *sig = json_object_get(module, "signature");
	const json_t *specs = json_object_get(sig, "input_specs");
	int64_t major = json_get_int(json_object_get(doc, "schema_version"), "major", 8);
	struct str version = json_get_str(doc, "torch_version");

	if (!json_is_object(graph) || !json_is_array(specs))
		return expected(l, "graph_module", "graph and signature");
	if (major != 8)
		diag(l->c, DIAG_BAD_SCHEMA, (long long)major);
	l->tensors = json_object_get(graph, "tensor_values");
	l->symints = json_object_get(graph, "sym_int_values");
	l->g->producer = version.n ? str_fmt(l->c->a, "torch.export %.*s", SFMT(version)) : S("torch.export");
	read_ranges(l, json_object_get(doc, "range_constraints"));
	for (size_t i = 0; i < json_array_size(specs); i++)
		if (!read_input(l, json_array_get(specs, i)))
			return false;
	if (!read_graph_body(l, graph) || !read_outputs(l, graph, sig))
		return false;
	find_file_dtype(l->g);
	return true;
}

static bool
read_weights(struct loader *l, const struct zip_archive *z)
{
	struct str name, text;
	json_t *doc;

	l->paths = strtab_new(l->c->a);
	if (!zip_find_suffix(z, S("weights_config.json"), &name))
		return true;           /* older layouts: tied names are not recorded */
	if (!zip_read(l->c, z, name, &text))
		return false;
	doc = json_read(l->c, text);
	l->weights = json_object_get(doc, "config");
	return doc != NULL;
}

static int
probe(struct ctx *c, const struct source *src)
{
	(void)c;
	return src->n >= 4 && memcmp(src->p, "PK\3\4", 4) == 0 ? 32 : 0;
}

static bool
load(struct ctx *c, const struct source *src, struct graph **out)
{
	struct loader l = {.c = c};
	struct zip_archive *z = zip_open_source(c, src);
	struct str name, text;
	json_t *doc;

	if (!z)
		return false;
	if (!zip_find_suffix(z, S("models/model.json"), &name))
		return diag(c, DIAG_NOT_A_GRAPH, "this zip archive holds no torch.export program (models/model.json is missing)");
	l.g = *out = graph_new(c);
	if (!read_weights(&l, z) || !zip_read(c, z, name, &text))
		return false;
	c->place = str_copy(c->a, name);
	doc = json_read(c, text);
	if (!doc || !read_program(&l, doc))
		return false;
	c->place = S("");
	arena_cancel(c->a, doc);
	zip_close_archive(c, z);
	return true;
}

const struct frontend frontend_export = {"pt2", "torch.export archive (.pt2)", probe, load};
