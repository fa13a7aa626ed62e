/*
 * Operators on tensors: a call becomes a node. TorchScript prints neither overloads nor, in recent files, arguments at their default, so
 * positions are all that there is (script_sig.def, else the order of op.def's row).
 */
#include "script.h"

#include <string.h>

/* ---- nodes -------------------------------------------------------------------------------------------------------------- */

uint32_t
script_node(struct script *s, unsigned op, struct str target, uint32_t narg, uint32_t nout)
{
	struct graph *g = s->g;
	uint32_t n = node_new(g, op, narg, nout);
	const char *short_name = op ? op_info(op)->name : "unknown";

	g->nodes[n].target = graph_name(g, target);
	g->nodes[n].name = graph_name(g, str_fmt(s->c->a, "%s_%u", short_name, (unsigned)n));
	g->nodes[n].scope = s->scope;
	g->nodes[n].flags = s->no_grad ? NF_NO_GRAD : 0;
	if (!op_info(op)->prim)
		script_place(s, n);
	return n;
}

uint32_t
script_result(struct script *s, uint32_t n, uint32_t k)
{
	struct graph *g = s->g;
	uint32_t *out = &node_outs(g, n)[k], v;

	if (*out)
		return *out;
	v = val_new(g, VAL_NODE, k ? str_fmt(s->c->a, "%.*s.%u", SFMT(graph_str(g, g->nodes[n].name)), (unsigned)k) : graph_str(g, g->nodes[n].name));
	g->vals[v].node = n;
	g->vals[v].out = k;
	node_outs(g, n)[k] = v;
	return v;
}

static bool
check_limits(struct script *s)
{
	if (s->g->nnode >= s->c->lim.nodes)
		return diag(s->c, DIAG_TOO_MANY, "nodes", (unsigned long long)s->c->lim.nodes);
	if (s->g->nval >= s->c->lim.values)
		return diag(s->c, DIAG_TOO_MANY, "values", (unsigned long long)s->c->lim.values);
	return true;
}

/* ---- things to arguments --------------------------------------------------------------------------------------------------- */

static bool
any_kind(const struct items *l, enum thing_kind kind)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->at[i].kind == kind)
			return true;
	return false;
}

static struct arg
tensors_arg(struct script *s, const struct items *l)
{
	uint32_t *ids = NEW(s->c->a, uint32_t, l->n + 1u);

	for (uint32_t i = 0; i < l->n; i++)
		ids[i] = l->at[i].kind == THING_TENSOR ? l->at[i].val : 0;
	return (struct arg){.kind = ARG_VALS, .first = ids_add(s->g, ids, l->n), .count = l->n};
}

static struct arg
floats_arg(struct script *s, const struct items *l)
{
	double *f = NEW(s->c->a, double, l->n + 1u);

	for (uint32_t i = 0; i < l->n; i++)
		f[i] = l->at[i].val ? 1 : number_real(thing_number(&l->at[i]));
	return (struct arg){.kind = ARG_FLOATS, .first = floats_add(s->g, f, l->n), .count = l->n};
}

static struct sint
int_of(struct script *s, const struct thing *t)
{
	if (t->val)
		return (struct sint){0, expr_val(s->g, t->val)};
	if (!thing_is_number(t))
		return (struct sint){0, EXPR_UNKNOWN};
	return number_size(thing_number(t));
}

static struct arg
ints_arg(struct script *s, const struct items *l)
{
	struct sint *n = NEW(s->c->a, struct sint, l->n + 1u);

	for (uint32_t i = 0; i < l->n; i++)
		n[i] = int_of(s, &l->at[i]);
	return (struct arg){.kind = ARG_INTS, .first = ints_add(s->g, n, l->n), .count = l->n};
}

static struct arg
list_arg(struct script *s, const struct items *l)
{
	if (l->val)
		return arg_val(l->val);
	if (any_kind(l, THING_TENSOR) || any_kind(l, THING_NONE))
		return tensors_arg(s, l);
	if (any_kind(l, THING_FLOAT))
		return floats_arg(s, l);
	return ints_arg(s, l);
}

struct arg
script_arg(struct script *s, const struct thing *t, struct str param)
{
	switch (t->kind) {
	case THING_TENSOR:
		return arg_val(t->val);
	case THING_INT:
	case THING_FLOAT:
	case THING_BOOL:
		if (t->val)
			return arg_val(t->val);
		if (t->kind == THING_INT && str_eq(param, S("dtype")))
			return arg_dtype(dtype_by_c10(t->u.i));
		return t->kind == THING_INT ? arg_int(t->u.i) : t->kind == THING_FLOAT ? arg_float(t->u.f) : arg_bool(t->u.b);
	case THING_STR:
		return (struct arg){.kind = ARG_STR, .u.str = graph_name(s->g, t->u.s)};
	case THING_LIST:
	case THING_TUPLE:
		return list_arg(s, t->u.items);
	case THING_EITHER:
		return script_arg(s, t->u.either->then.kind == THING_NONE ? &t->u.either->otherwise : &t->u.either->then, param);
	default:
		return (struct arg){.kind = ARG_NONE};
	}
}

/* ---- overloads ---------------------------------------------------------------------------------------------------------------- */

struct sig {
	const char *name, *kinds, *op, *params;
};

static const struct sig sigs[] = {
#define SIG(name, kinds, op, params) {name, kinds, op, params},
#include "script_sig.def"
#undef SIG
};

static bool
kind_fits(char want, const struct thing *t)
{
	switch (want) {
	case 'T':
		return t->kind == THING_TENSOR || t->kind == THING_EITHER || t->kind == THING_UNKNOWN;
	case 'n':
		return thing_is_number(t);
	case 'i':
		return t->kind == THING_INT;
	case 'b':
		return t->kind == THING_BOOL;
	case 'L':
		return t->kind == THING_LIST || t->kind == THING_TUPLE;
	case 's':
		return t->kind == THING_STR;
	default:
		return true;
	}
}

static bool
sig_fits(const struct script *s, const struct sig *g, const struct args *a)
{
	uint32_t i = 0;

	for (const char *k = g->kinds; *k; k++) {
		const struct thing *t;

		if (*k == '*')
			return true;
		if (*k == '@')
			return i == a->npos && args_get(s, a, 99, k + 1);
		t = args_get(s, a, i++, "");
		if (!t || !kind_fits(*k, t))
			return false;
	}
	return i == a->npos;
}

static const struct sig *
find_sig(const struct script *s, struct str name, const struct args *a)
{
	for (size_t i = 0; i < sizeof sigs / sizeof sigs[0]; i++)
		if (str_eq(name, str_of(sigs[i].name)) && sig_fits(s, &sigs[i], a))
			return &sigs[i];
	return NULL;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------------ */

static void
set_args(struct script *s, uint32_t n, const struct sig *g, const struct args *a)
{
	unsigned op = s->g->nodes[n].op;
	struct arg_name names[32];
	uint32_t count = op_args(op, names, 32), pos = 0;
	struct str rest = str_of(g ? g->params : NULL), param;

	for (uint32_t i = 0; i < a->n; i++) {
		int at;
		struct arg x;

		if (a->keyword[i])
			param = graph_str(s->g, a->keyword[i]);
		else if (g)
			param = str_cut(&rest, ' ', &param) ? param : S("-");
		else
			param = pos < count ? names[pos].name : S("-");
		pos += !a->keyword[i];
		at = op_arg_index(op, param);
		if (at < 0 || a->at[i].kind == THING_UNKNOWN || a->at[i].kind == THING_NONE)
			continue;      /* generators, cudnn switches and the like */
		x = script_arg(s, &a->at[i], param);
		node_args(s->g, n)[at] = x;
	}
}

static void
set_unknown_args(struct script *s, uint32_t n, const struct args *a)
{
	for (uint32_t i = 0; i < a->n; i++) {
		struct arg x = script_arg(s, &a->at[i], S(""));

		node_args(s->g, n)[i] = x;
	}
}

static bool
gives_list(unsigned op, struct str name, const struct args *a)
{
	static const char *const names[] = {"meshgrid", "broadcast_tensors", "hsplit", "vsplit", "dsplit", "tensor_split", "align_tensors", "gradient",
		"nonzero_numpy", "unflatten_dense_tensors"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (str_eq(name, str_of(names[i])))
			return true;
	return op == OP_SPLIT || op == OP_SPLIT_COPY || op == OP_UNBIND_COPY || op == OP_CHUNK || op == OP_UNBIND || (op == OP_WHERE && a->n == 1);
}

static struct thing
list_result(struct script *s, uint32_t n)
{
	struct thing t = thing_items(s, THING_LIST, NULL, 0);

	t.u.items->val = script_result(s, n, 0);
	s->g->vals[t.u.items->val].flags |= VF_LIST;
	return t;
}

static struct thing
results_of(struct script *s, uint32_t n, uint32_t results)
{
	struct thing t;

	if (results == 1)
		return thing_tensor(script_result(s, n, 0));
	t = thing_items(s, THING_TUPLE, NULL, 0);
	for (uint32_t k = 0; k < results; k++)
		items_add(s, t.u.items, thing_tensor(script_result(s, n, k)));
	return t;
}

/* torch.tensor(data): numbers that become a tensor, of a default dtype unless it is given. */
static bool
make_tensor(struct script *s, const struct args *a, struct thing *out)
{
	const struct thing *data = a->n ? &a->at[0] : NULL, *dt = args_get(s, a, 1, "dtype");
	uint32_t n;
	struct thing first = data ? *data : (struct thing){0}, sizes = thing_items(s, THING_LIST, NULL, 0);
	struct arg size, dtype;

	while ((first.kind == THING_LIST || first.kind == THING_TUPLE) && sizes.u.items->n < MAX_RANK) {
		const struct items *l = first.u.items;

		items_add(s, sizes.u.items, l->val ? script_measure(s, "len", first, thing_none(), THING_INT) : thing_int(l->n));
		first = l->n ? l->at[0] : thing_float(0);
	}
	n = script_node(s, OP_FULL, S("torch.tensor"), op_narg(OP_FULL), 1);
	size = script_arg(s, &sizes, S(""));
	dtype = dt && dt->kind == THING_INT ? script_arg(s, dt, S("dtype")) : arg_dtype(first.kind == THING_INT ? DT_INT64 : first.kind == THING_BOOL ? DT_BOOL : DT_FP32);
	node_args(s->g, n)[0] = size;
	node_args(s->g, n)[1] = arg_float(0.5);
	node_args(s->g, n)[2] = dtype;
	s->g->file_nodes++;
	*out = thing_tensor(script_result(s, n, 0));
	return true;
}

/* Text that is put together for a message, and the like: no tensors. */
static bool
nothing_known(const struct args *a)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (a->at[i].kind != THING_UNKNOWN && a->at[i].kind != THING_STR)
			return false;
	return a->n > 0;
}

/* Quantised layers get their weight packed: the tuple of what was packed stands for it. */
static struct args
unpacked(struct script *s, const struct args *a)
{
	const struct items *packed = a->n > 1 && a->at[1].kind == THING_TUPLE ? a->at[1].u.items : NULL;
	struct args out = {.n = 1};

	if (!packed)
		return *a;
	out.n = out.npos = packed->n + 1;
	out.at = NEW(s->c->a, struct thing, out.n);
	out.keyword = NEW(s->c->a, uint32_t, out.n);
	out.at[0] = a->at[0];
	if (packed->n)
		memcpy(out.at + 1, packed->at, packed->n * sizeof *packed->at);
	return out;
}

bool
script_quantized(struct script *s, struct str name, const struct args *a, uint32_t results, struct thing *out)
{
	struct str full = str_fmt(s->c->a, "quantized::%.*s", SFMT(name));
	struct args open;

	if (str_ends(name, S("_prepack"))) {
		*out = thing_items(s, THING_TUPLE, a->at, a->n);
		return true;
	}
	if (str_ends(name, S("_unpack")) && a->n) {
		*out = a->at[0];
		return true;
	}
	open = unpacked(s, a);
	return script_operator(s, full, full, &open, results, out);
}

bool
script_operator(struct script *s, struct str target, struct str name, const struct args *a, uint32_t results, struct thing *out)
{
	const struct sig *g = find_sig(s, name, a);
	bool inplace = false;
	unsigned op = op_by_name(g ? str_of(g->op) : name, &inplace);
	uint32_t n;

	if (!check_limits(s))
		return false;
	if (nothing_known(a)) {
		*out = (struct thing){0};
		return true;
	}
	if (str_eq(name, S("tensor")) || str_eq(name, S("as_tensor")))
		return make_tensor(s, a, out);
	if (op_info(op)->prim || results > 256)
		op = OP_NONE;
	results = results > 256 ? 256 : results;
	n = script_node(s, op, target, op ? op_narg(op) : a->n, results);
	if (inplace)
		s->g->nodes[n].flags |= NF_INPLACE;
	if (op)
		set_args(s, n, g, a);
	else
		set_unknown_args(s, n, a);
	s->g->file_nodes++;
	*out = gives_list(op, name, a) && results == 1 ? list_result(s, n) : results_of(s, n, results);
	return true;
}
