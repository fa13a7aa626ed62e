/*
 * ONNX files: nodes. Operands go to the places of the operator's row, attributes behind them. Files of older opsets are brought to the newest form:
 * attributes that have become operands are given as constants, renamed ones renamed, defaults that changed are written out (onnx.def, CHANGE).
 */
#include "onnx.h"

#include <string.h>

/* ---- attributes --------------------------------------------------------------------------------------------------- */

static const Onnx__Attribute *
find(Onnx__Attribute *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (list[i]->name && strcmp(list[i]->name, name) == 0)
			return list[i];
	return NULL;
}

/* In a function an attribute may stand for one of the call's, which may stand for one of the call around it. */
static const Onnx__Attribute *
resolve(const struct onnx *l, const Onnx__Attribute *a)
{
	const struct call *call = l->call;

	while (a && a->ref_attr_name && *a->ref_attr_name) {
		const char *name = a->ref_attr_name;

		if (!call)
			return NULL;
		a = find(call->node->attribute, call->node->n_attribute, name);
		if (!a)
			a = find(call->f->attribute_proto, call->f->n_attribute_proto, name);
		call = call->outer;
	}
	return a;
}

const Onnx__Attribute *
onnx_attribute(const struct onnx *l, const Onnx__Node *node, const char *name)
{
	return resolve(l, find(node->attribute, node->n_attribute, name));
}

static bool
names_dtype(struct str name)
{
	static const char *const names[] = {"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (str_eq(name, str_of(names[i])))
			return true;
	return false;
}

static struct arg
ints_arg(struct onnx *l, const Onnx__Attribute *a)
{
	struct sint *ints = NEW(l->c->a, struct sint, a->n_ints + 1);

	for (size_t i = 0; i < a->n_ints; i++)
		ints[i] = SINT(a->ints[i]);
	return (struct arg){.kind = ARG_INTS, .first = ints_add(l->g, ints, (uint32_t)a->n_ints), .count = (uint32_t)a->n_ints};
}

static struct arg
floats_arg(struct onnx *l, const Onnx__Attribute *a)
{
	double *f = NEW(l->c->a, double, a->n_floats + 1);

	for (size_t i = 0; i < a->n_floats; i++)
		f[i] = (double)a->floats[i];
	return (struct arg){.kind = ARG_FLOATS, .first = floats_add(l->g, f, (uint32_t)a->n_floats), .count = (uint32_t)a->n_floats};
}

static struct arg
text_arg(struct onnx *l, const ProtobufCBinaryData *s)
{
	return (struct arg){.kind = ARG_STR, .u.str = graph_name(l->g, (struct str){(const char *)s->data, (uint32_t)s->len})};
}

/* Not every writer fills in which kind it is. */
static int32_t
kind_of(const Onnx__Attribute *a)
{
	enum { FLOAT = 1, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS };

	if (a->has_type && a->type)
		return a->type;
	return a->has_f ? FLOAT : a->has_i ? INT : a->has_s ? STRING : a->t ? TENSOR : a->g ? GRAPH : a->n_floats ? FLOATS : a->n_ints ? INTS : a->n_strings ? STRINGS : 0;
}

/* A tensor is given as a constant value. */
static bool
tensor_arg(struct onnx *l, const Onnx__Attribute *a, struct str owner, struct arg *out)
{
	uint32_t v = onnx_new_val(l, VAL_CONST, str_fmt(l->c->a, "%.*s.%s", SFMT(owner), a->name));

	*out = arg_val(v);
	return onnx_tensor(l, v, a->t);
}

static bool
attribute_arg(struct onnx *l, const Onnx__Attribute *a, struct str owner, struct arg *out)
{
	*out = (struct arg){.kind = ARG_NONE};
	switch (kind_of(a)) {
	case 1:
		*out = arg_float((double)a->f);
		break;
	case 2:
		*out = arg_int(a->i);
		if (names_dtype(onnx_str(a->name)))
			*out = a->i && dtype_by_onnx(a->i) ? arg_dtype(dtype_by_onnx(a->i)) : (struct arg){.kind = ARG_NONE};
		break;
	case 3:
		*out = text_arg(l, &a->s);
		break;
	case 4:
		return !a->t || tensor_arg(l, a, owner, out);
	case 6:
		*out = floats_arg(l, a);
		break;
	case 7:
		*out = ints_arg(l, a);
		break;
	case 8:
		if (a->n_strings)
			*out = text_arg(l, &a->strings[0]);
		break;
	default:
		break;             /* graphs are inlined elsewhere; types say nothing about sizes */
	}
	return true;
}

/* ---- the newest form ------------------------------------------------------------------------------------------------ */

enum change { INSERT, RENAME, DEFAULT };

static const struct {
	uint16_t op;
	uint8_t opset, what;
	const char *name, *text;
} changes[] = {
#define CHANGE(id, opset, what, name, text) {OP_##id, opset, what, name, text},
#include "../ir/onnx.def"
#undef CHANGE
};

static const char *
new_name(const struct onnx *l, unsigned op, const char *name)
{
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
		if (changes[i].op == op && changes[i].what == RENAME && l->opset < changes[i].opset && strcmp(changes[i].text, name) == 0)
			return changes[i].name;
	return name;
}

/* The place of operand i, which operands that came later may have moved. */
static unsigned
operand_place(const struct onnx *l, unsigned op, unsigned i)
{
	for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++)
		if (changes[k].op == op && changes[k].what == INSERT && l->opset < changes[k].opset && (int)i >= op_arg_index(op, str_of(changes[k].name)))
			return i + 1;
	return i;
}

static void
old_defaults(struct onnx *l, uint32_t n)
{
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		struct arg *a = changes[i].op == l->g->nodes[n].op && changes[i].what == DEFAULT && l->opset < changes[i].opset ? node_arg(l->g, n, changes[i].name) : NULL;
		int64_t value;

		if (a && a->kind == ARG_NONE && str_int(str_of(changes[i].text), &value))
			*a = arg_int(value);
	}
}

/* Before opset 14 a BatchNormalization trains if it gives the statistics out. */
static void
old_batch_norm(struct onnx *l, uint32_t n)
{
	struct arg *a = l->g->nodes[n].op == OP_ONNX_BATCH_NORM && l->opset < 14 ? node_arg(l->g, n, "training_mode") : NULL;

	if (a && l->g->nodes[n].nout > 1)
		*a = arg_int(1);
}

/* An attribute that is an operand now: a constant of one dim, or a number. */
static struct arg
constant_operand(struct onnx *l, const Onnx__Attribute *a, struct str owner)
{
	uint32_t v = onnx_new_val(l, VAL_CONST, str_fmt(l->c->a, "%.*s.%s", SFMT(owner), a->name));
	struct val *x = &l->g->vals[v];
	bool ints = kind_of(a) == 2 || kind_of(a) == 7, list = kind_of(a) == 6 || kind_of(a) == 7;
	struct sint dim = SINT((int64_t)(ints ? a->n_ints : a->n_floats)), one = SINT(a->i);
	double f = (double)a->f;
	struct arg all;

	x->dtype = ints ? DT_INT64 : DT_FP32;
	val_shape(l->g, v, list, &dim);
	if (!list && ints)
		val_ints(l->g, v, &one, 1);
	else if (!list)
		val_floats(l->g, v, &f, 1);
	else {
		all = ints ? ints_arg(l, a) : floats_arg(l, a);
		l->g->vals[v].data = ints ? DATA_INTS : DATA_FLOATS;
		l->g->vals[v].data_at = all.first;
		l->g->vals[v].ndata = all.count;
	}
	return arg_val(v);
}

/* K is a list of one where k was a number. */
static void
as_list(struct onnx *l, uint32_t v)
{
	struct sint one = SINT(1);

	if (l->g->vals[v].rank == 0)
		val_shape(l->g, v, 1, &one);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------ */

bool
onnx_new_node(struct onnx *l, unsigned op, uint32_t narg, uint32_t nout, uint32_t *n)
{
	if (l->g->nnode >= l->c->lim.nodes)
		return diag(l->c, DIAG_TOO_MANY, "nodes after inlining", (unsigned long long)l->c->lim.nodes);
	*n = node_new(l->g, op, narg, nout);
	return true;
}

uint32_t
onnx_constant(struct onnx *l, const char *name, const int64_t *n, uint32_t count, bool scalar)
{
	uint32_t v = onnx_new_val(l, VAL_CONST, onnx_str(name));
	struct sint *ints = NEW(l->c->a, struct sint, count + 1u), dim = SINT(count);

	for (uint32_t i = 0; i < count; i++)
		ints[i] = SINT(n[i]);
	l->g->vals[v].dtype = DT_INT64;
	val_shape(l->g, v, !scalar, &dim);
	val_ints(l->g, v, ints, count);
	return v;
}

static struct str
target_of(struct onnx *l, const Onnx__Node *node)
{
	struct str domain = onnx_str(node->domain), op = onnx_str(node->op_type);

	if (!domain.n || str_eq(domain, S("ai.onnx")))
		return op;
	return str_fmt(l->c->a, "%.*s::%.*s", SFMT(domain), SFMT(op));
}

static unsigned
find_op(struct onnx *l, const Onnx__Node *node, uint32_t target)
{
	uint32_t *known = onnx_slot(l, &l->op_of, &l->op_cap, target);
	struct str domain = onnx_str(node->domain);
	bool inplace;

	if (!*known) {
		struct str name = str_fmt(l->c->a, "%.*s.%s", SFMT(!domain.n || str_eq(domain, S("ai.onnx")) ? S("onnx") : domain), node->op_type);
		unsigned op = op_by_name(name, &inplace);

		*known = (op_is_onnx(op) ? op : OP_NONE) + 1u;
	}
	return *known - 1;
}

/* false: more operands than the row has. */
static bool
operands_fit(const struct onnx *l, unsigned op, size_t count, const struct arg_name *names, uint32_t nname)
{
	uint32_t places = 0;

	while (places < nname && !names[places].attribute) {
		if (names[places].rest)
			return true;
		places++;
	}
	return count == 0 || operand_place(l, op, (unsigned)count - 1) < places;
}

static bool
set_operands(struct onnx *l, uint32_t n, const Onnx__Node *node, const struct arg_name *names, uint32_t nname)
{
	unsigned op = l->g->nodes[n].op;

	for (size_t i = 0; i < node->n_input; i++) {
		unsigned at = op ? operand_place(l, op, (unsigned)i) : (unsigned)i;
		uint32_t v;

		if (op && at < nname && names[at].rest) {
			uint32_t count = (uint32_t)(node->n_input - i), *ids = NEW(l->c->a, uint32_t, count);

			for (uint32_t k = 0; k < count; k++)
				if (!onnx_lookup(l, node->input[i + k], &ids[k]))
					return false;
			node_args(l->g, n)[at] = (struct arg){.kind = ARG_VALS, .first = ids_add(l->g, ids, count), .count = count};
			return true;
		}
		if (!onnx_lookup(l, node->input[i], &v))
			return false;
		node_args(l->g, n)[at] = arg_val(v);
	}
	return true;
}

static bool
set_attribute(struct onnx *l, uint32_t n, const Onnx__Attribute *given, struct str owner)
{
	const Onnx__Attribute *a = resolve(l, given);
	unsigned op = l->g->nodes[n].op;
	struct arg_name names[MAX_SCHEMA];
	struct arg value;
	int at;

	if (!a || !given->name)
		return true;
	at = op_arg_index(op, str_of(new_name(l, op, given->name)));
	if (at < 0)
		return true;           /* nothing that a newer opset knows */
	op_args(op, names, MAX_SCHEMA);
	if (!attribute_arg(l, a, owner, &value))
		return false;
	if (names[at].attribute) {
		node_args(l->g, n)[at] = value;
	} else if (node_args(l->g, n)[at].kind == ARG_NONE && value.kind != ARG_NONE && value.kind != ARG_STR) {
		node_args(l->g, n)[at] = value.kind == ARG_VAL ? value : constant_operand(l, a, owner);
		if (op == OP_ONNX_TOPK)
			as_list(l, node_args(l->g, n)[at].u.val);
	}
	return true;
}

static bool
set_results(struct onnx *l, uint32_t n, const Onnx__Node *node)
{
	for (size_t k = 0; k < node->n_output; k++) {
		uint32_t v;

		if (!node->output[k][0])
			continue;
		if (!onnx_define(l, VAL_NODE, node->output[k], &v))
			return false;
		node_outs(l->g, n)[k] = v;
		l->g->vals[v].node = n;
		l->g->vals[v].out = (uint32_t)k;
	}
	return true;
}

static void
set_place(struct onnx *l, uint32_t n, const Onnx__Node *node)
{
	struct node *x = &l->g->nodes[n];
	struct place p;

	onnx_place(l, node, &p);
	x->scope = p.scope;
	x->frame = p.frame;
	x->nframe = p.nframe;
	x->fx = p.fx;
	x->fx_target = p.fx_target;
	x->fx_args = p.fx_args;
}

static bool
read_operator(struct onnx *l, const Onnx__Node *node)
{
	uint32_t target = graph_name(l->g, target_of(l, node)), n = 0, nname;
	unsigned op = find_op(l, node, target);
	struct arg_name names[MAX_SCHEMA];
	struct str owner = node->n_output ? onnx_str(node->output[0]) : onnx_str(node->name);

	nname = op_args(op, names, MAX_SCHEMA);
	if (op && !operands_fit(l, op, node->n_input, names, nname))
		op = OP_NONE;          /* none of the operator's forms */
	if (!onnx_new_node(l, op, op ? nname : (uint32_t)node->n_input, (uint32_t)node->n_output, &n))
		return false;
	l->g->nodes[n].target = target;
	l->g->nodes[n].name = graph_name(l->g, node->name && *node->name ? str_of(node->name) : owner);
	set_place(l, n, node);
	if (!set_operands(l, n, node, names, nname))
		return false;
	for (size_t i = 0; op && i < node->n_attribute; i++)
		if (!set_attribute(l, n, node->attribute[i], owner))
			return false;
	old_defaults(l, n);
	old_batch_norm(l, n);
	return set_results(l, n, node);
}

/* ---- constants ---------------------------------------------------------------------------------------------------------- */

static void
number_list(struct onnx *l, uint32_t v, const Onnx__Attribute *a)
{
	struct arg list = a->n_ints ? ints_arg(l, a) : floats_arg(l, a);
	struct sint dim = SINT((int64_t)list.count);

	l->g->vals[v].dtype = a->n_ints ? DT_INT64 : DT_FP32;
	val_shape(l->g, v, 1, &dim);
	l->g->vals[v].data = a->n_ints ? DATA_INTS : DATA_FLOATS;
	l->g->vals[v].data_at = list.first;
	l->g->vals[v].ndata = list.count;
}

static bool
read_constant(struct onnx *l, const Onnx__Node *node)
{
	const Onnx__Attribute *t = onnx_attribute(l, node, "value"), *i = onnx_attribute(l, node, "value_int"), *f = onnx_attribute(l, node, "value_float");
	const Onnx__Attribute *list = onnx_attribute(l, node, "value_ints"), *s = onnx_attribute(l, node, "value_string");
	struct sint n;
	double x;
	uint32_t v;

	if (node->n_output != 1 || !onnx_define(l, VAL_CONST, node->output[0], &v))
		return node->n_output == 1 ? false : diag(l->c, DIAG_NOT_A_GRAPH, "a Constant has not exactly one result");
	if (t && t->t)
		return onnx_tensor(l, v, t->t);
	if (!list)
		list = onnx_attribute(l, node, "value_floats");
	l->g->vals[v].dtype = i ? DT_INT64 : f ? DT_FP32 : s ? DT_STRING : l->g->vals[v].dtype;
	if (i || f || s)
		val_shape(l->g, v, 0, NULL);
	if (i)
		n = SINT(i->i), val_ints(l->g, v, &n, 1);
	else if (f)
		x = (double)f->f, val_floats(l->g, v, &x, 1);
	else if (list)
		number_list(l, v, list);
	return true;
}

/* The exporter writes parameters that have equal values once; the others are copies by the name of the parameter. */
static bool
is_alias(const struct onnx *l, const Onnx__Node *node)
{
	return !l->depth && node->n_input == 1 && node->n_output == 1 && onnx_is_stored(l, node->input[0]) && !strchr(node->output[0], '/') && strchr(node->output[0], '.') &&
	    !strstr(node->output[0], "::");
}

static bool
read_alias(struct onnx *l, const Onnx__Node *node)
{
	uint32_t from, v;
	struct val kept;

	if (!onnx_lookup(l, node->input[0], &from) || !onnx_define(l, VAL_CONST, node->output[0], &v))
		return false;
	kept = l->g->vals[v];
	l->g->vals[v] = l->g->vals[from];
	l->g->vals[v].name = kept.name;
	l->g->vals[v].kind = VAL_CONST;
	l->g->vals[v].full = l->g->vals[v].tied = l->g->vals[v].flags = 0;
	val_shape(l->g, v, l->g->vals[from].rank, val_dims(l->g, from));
	*onnx_slot(l, &l->stored, &l->stored_cap, v) = 1;
	return true;
}

static bool
read_node(struct onnx *l, const Onnx__Node *node)
{
	const Onnx__Function *f;
	struct str op = onnx_str(node->op_type), domain = onnx_str(node->domain);
	bool standard = !domain.n || str_eq(domain, S("ai.onnx"));

	l->g->file_nodes += l->depth == 0;
	if (!op.n)
		return diag(l->c, DIAG_NOT_A_GRAPH, "a node has no operator");
	f = onnx_function(l, node);
	if (f)
		return onnx_inline_function(l, node, f);
	if (standard && str_eq(op, S("Constant")))
		return read_constant(l, node);
	if (standard && str_eq(op, S("If")))
		return onnx_inline_if(l, node);
	if (standard && str_eq(op, S("Loop")))
		return onnx_inline_loop(l, node);
	if (standard && str_eq(op, S("Scan")) && l->opset >= 9)
		return onnx_inline_scan(l, node);
	if (standard && str_eq(op, S("Identity")) && is_alias(l, node))
		return read_alias(l, node);
	return read_operator(l, node);
}

bool
onnx_nodes(struct onnx *l, Onnx__Node **nodes, size_t n)
{
	onnx_sort(l, nodes, n);
	for (size_t i = 0; i < n; i++)
		if (!read_node(l, nodes[i]))
			return false;
	return true;
}
