/*
 * Functions on numbers, text, None, and what is asked of tensors (size, dim, dtype, device). Numbers that are known now are computed
 * now; others become nodes measure and math, which passes/raise/infer.c evaluates when sizes are bound.
 */
#include "script.h"

#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------------------------------- */

static enum thing_kind
result_kind(struct str what, const struct thing *a, const struct thing *b)
{
	static const char *const yes_no[] = {"eq", "ne", "lt", "le", "gt", "ge", "__is__", "__isnot__", "__not__", "logical_not", "logical_and", "logical_or", "bool", "Bool"};
	static const char *const real[] = {"div", "true_divide", "sqrt", "rsqrt", "log", "log2", "exp", "sin", "cos", "tanh", "float", "Float"};
	static const char *const whole[] = {"int", "Int", "ceil", "floor", "round", "trunc"};

	for (size_t i = 0; i < sizeof yes_no / sizeof yes_no[0]; i++)
		if (str_eq(what, str_of(yes_no[i])))
			return THING_BOOL;
	for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
		if (str_eq(what, str_of(real[i])))
			return THING_FLOAT;
	for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
		if (str_eq(what, str_of(whole[i])))
			return THING_INT;
	if (a->kind == THING_BOOL && b->kind == THING_BOOL && str_starts(what, S("__")))
		return THING_BOOL;
	return a->kind == THING_FLOAT || b->kind == THING_FLOAT ? THING_FLOAT : THING_INT;
}

static struct thing
known_result(struct str what, const struct thing *a, const struct thing *b)
{
	struct number r;

	return number_math(what, thing_number(a), thing_number(b), &r) ? thing_of_number(r) : (struct thing){0};
}

struct thing
script_math(struct script *s, const char *what, struct thing a, struct thing b)
{
	bool two = number_operands(str_of(what)) == 2;
	struct arg *args;
	struct thing out;
	uint32_t n;

	if (!thing_is_number(&a) || (two && !thing_is_number(&b)))
		return (struct thing){0};
	if (!a.val && (!two || !b.val))
		return known_result(str_of(what), &a, &b);
	n = script_node(s, OP_MATH, S(""), op_narg(OP_MATH), 1);
	args = node_args(s->g, n);
	args[0] = (struct arg){.kind = ARG_STR, .u.str = graph_name(s->g, str_of(what))};
	args[1] = script_arg(s, &a, S(""));
	if (two)
		node_args(s->g, n)[2] = script_arg(s, &b, S(""));
	out = (struct thing){.kind = (uint8_t)result_kind(str_of(what), &a, two ? &b : &a)};
	out.val = script_result(s, n, 0);
	return out;
}

struct thing
script_measure(struct script *s, const char *what, struct thing of, struct thing index, enum thing_kind kind)
{
	uint32_t n = script_node(s, OP_MEASURE, S(""), op_narg(OP_MEASURE), 1);
	struct thing out = {.kind = (uint8_t)kind};

	node_args(s->g, n)[0] = (struct arg){.kind = ARG_STR, .u.str = graph_name(s->g, str_of(what))};
	node_args(s->g, n)[1] = script_arg(s, &of, S(""));
	node_args(s->g, n)[2] = script_arg(s, &index, S(""));
	out.val = script_result(s, n, 0);
	if (kind == THING_LIST) {
		out = thing_items(s, THING_LIST, NULL, 0);
		out.u.items->val = script_result(s, n, 0);
	}
	return out;
}

/* ---- what is asked of tensors ----------------------------------------------------------------------------------------- */

static bool
ask_tensor(struct script *s, struct str name, const struct args *a, struct thing *out)
{
	static const struct {
		const char *name, *what;
		uint8_t kind;
	} table[] = {
		{"dim", "dim", THING_INT}, {"ndimension", "dim", THING_INT}, {"numel", "numel", THING_INT}, {"dtype", "dtype", THING_INT},
		{"is_floating_point", "is_floating_point", THING_BOOL}, {"item", "float", THING_FLOAT}, {"Int", "int", THING_INT}, {"Float", "float", THING_FLOAT},
		{"Bool", "bool", THING_BOOL}, {"is_nonzero", "bool", THING_BOOL}, {"IntImplicit", "int", THING_INT}, {"FloatImplicit", "float", THING_FLOAT},
		{"ScalarImplicit", "float", THING_FLOAT},
	};
	const struct thing *x = &a->at[0], *d = args_get(s, a, 1, "dim");

	if (str_eq(name, S("size")) || str_eq(name, S("shape"))) {
		*out = script_measure(s, d ? "size" : "sizes", *x, d ? *d : thing_none(), d ? THING_INT : THING_LIST);
		return true;
	}
	if (str_eq(name, S("len"))) {
		*out = script_measure(s, "size", *x, thing_int(0), THING_INT);
		return true;
	}
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(name, str_of(table[i].name))) {
			*out = script_measure(s, table[i].what, *x, thing_none(), (enum thing_kind)table[i].kind);
			return true;
		}
	return false;
}

/* Training runs on a GPU, on dense tensors; what the file's device was says nothing. */
static bool
about_device(struct str name, struct thing *out)
{
	static const struct {
		const char *name;
		struct thing thing;
	} table[] = {
		{"is_cuda", {.kind = THING_BOOL, .u.b = true}}, {"is_cpu", {.kind = THING_BOOL}}, {"is_mps", {.kind = THING_BOOL}}, {"is_xpu", {.kind = THING_BOOL}}, {"is_xla", {.kind = THING_BOOL}},
		{"is_meta", {.kind = THING_BOOL}}, {"is_mkldnn", {.kind = THING_BOOL}}, {"is_quantized", {.kind = THING_BOOL}}, {"is_sparse", {.kind = THING_BOOL}}, {"is_complex", {.kind = THING_BOOL}},
		{"is_nested", {.kind = THING_BOOL}}, {"is_vulkan", {.kind = THING_BOOL}}, {"layout", {.kind = THING_INT}}, {"device", {.kind = THING_STR, .u.s = {"cuda", 4}}}, {"type", {.kind = THING_STR, .u.s = {"cuda", 4}}},
		{"get_device", {.kind = THING_INT}}, {"index", {.kind = THING_INT}}, {"is_scripting", {.kind = THING_BOOL, .u.b = true}}, {"is_tracing", {.kind = THING_BOOL}},
		{"is_autocast_enabled", {.kind = THING_BOOL}}, {"is_autocast_cpu_enabled", {.kind = THING_BOOL}}, {"is_inference", {.kind = THING_BOOL}},
		{"_is_tracing", {.kind = THING_BOOL}}, {"is_contiguous", {.kind = THING_BOOL}},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(name, str_of(table[i].name))) {
			*out = table[i].thing;
			return true;
		}
	return false;
}

/* ---- comparisons of things that are no numbers ---------------------------------------------------------------------------- */

/* "x is None" where a condition decides what x is */
static struct thing
either_is_none(struct script *s, const struct either *e)
{
	bool a = e->then.kind == THING_NONE, b = e->otherwise.kind == THING_NONE;

	if (a == b)
		return thing_bool(a);
	return a ? e->cond : script_math(s, "__not__", e->cond, thing_none());
}

/* One tensor, if branches that sizes decide made it so. */
static bool
is_decided_later(const struct script *s, struct str name, const struct thing *x, const struct thing *y)
{
	const struct val *a = &s->g->vals[x->val], *b = &s->g->vals[y->val];

	if (name.p[0] != '_' || x->kind != THING_TENSOR || y->kind != THING_TENSOR || x->val == y->val)
		return false;
	return (a->kind == VAL_NODE && s->g->nodes[a->node].op == OP_ENDIF) || (b->kind == VAL_NODE && s->g->nodes[b->node].op == OP_ENDIF);
}

static bool
compare_things(struct script *s, struct str name, const struct args *a, struct thing *out)
{
	bool no = str_eq(name, S("ne")) || str_eq(name, S("__isnot__")), same, known = true;
	const struct thing *x = &a->at[0], *y = &a->at[1];

	if (!no && !str_eq(name, S("eq")) && !str_eq(name, S("__is__")))
		return false;
	if (x->kind == THING_TENSOR && y->kind == THING_TENSOR && name.p[0] != '_')
		return false;              /* an operator on tensors */
	if ((x->kind == THING_TENSOR && thing_is_number(y)) || (y->kind == THING_TENSOR && thing_is_number(x)))
		return false;
	if (x->kind == THING_EITHER && y->kind == THING_NONE)
		*out = either_is_none(s, x->u.either);
	else if (is_decided_later(s, name, x, y))
		*out = script_measure(s, "is", *x, *y, THING_BOOL);
	else if (thing_is_number(x) && thing_is_number(y) && (x->val || y->val))
		*out = script_math(s, "eq", *x, *y);
	else
		*out = (same = thing_equal(x, y, &known), known ? thing_bool(same) : (struct thing){0});
	if (no && thing_is_number(out))
		*out = script_math(s, "__not__", *out, thing_none());
	return true;
}

/* ---- switches and exceptions -------------------------------------------------------------------------------------------------- */

static bool
raise(struct script *s, const struct args *a)
{
	struct str why = a->n && a->at[0].kind == THING_STR ? a->at[0].u.s : S("");

	if (s->region)                 /* only where a size or data says so */
		return true;
	return script_fail(s, "the code raises an exception: %.*s", (int)(why.n < 200 ? why.n : 200), why.p);
}

static bool
special(struct script *s, struct str name, const struct args *a, struct thing *out, bool *found)
{
	*found = true;
	*out = (struct thing){0};
	if (str_eq(name, S("RaiseException")))
		return raise(s, a);
	if (str_eq(name, S("is_grad_enabled"))) {
		*out = thing_bool(!s->no_grad);
		return true;
	}
	if (str_eq(name, S("set_grad_enabled"))) {
		if (a->n && a->at[0].kind == THING_BOOL && !a->at[0].val)
			s->no_grad = !a->at[0].u.b;
		return true;
	}
	if (str_eq(name, S("NumToTensor")) || str_eq(name, S("wait")) || str_eq(name, S("data")) || str_eq(name, S("unchecked_unwrap_optional")) || str_eq(name, S("awaitable_wait"))) {
		*out = a->n ? a->at[0] : *out;
		return true;
	}
	if (str_eq(name, S("device")) && a->n && a->at[0].kind == THING_STR) {
		*out = a->at[0];
		return true;
	}
	if (str_eq(name, S("warn")) || str_eq(name, S("manual_seed")) || script_text(s, name, a, out))
		return true;
	*found = false;
	return true;
}

/* Is everything that the arguments say in numbers? Then it is arithmetic, whatever tracing made of it. */
static bool
all_numbers(const struct args *a)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (!thing_is_number(&a->at[i]) && a->at[i].kind != THING_NONE && a->at[i].kind != THING_STR)
			return false;
	return a->n && thing_is_number(&a->at[0]);
}

/* to(number, dtype) */
static struct thing
to_dtype(struct script *s, const struct args *a)
{
	const struct thing *dt = args_get(s, a, 1, "dtype");
	unsigned dtype;

	if (dt && dt->kind == THING_STR)
		dt = args_get(s, a, 2, "dtype");
	if (!dt || dt->kind != THING_INT || dt->val)
		return a->at[0];
	dtype = dtype_by_c10(dt->u.i);
	return script_math(s, dtype_is_float(dtype) ? "float" : dtype == DT_BOOL ? "bool" : "int", a->at[0], thing_none());
}

static bool
arithmetic(struct script *s, struct str name, const struct args *a, struct thing *out)
{
	const struct thing *mode = args_get(s, a, 99, "rounding_mode"), *alpha = args_get(s, a, 2, "alpha");
	struct thing b = a->n > 1 && !a->keyword[1] ? a->at[1] : thing_none();

	if (str_eq(name, S("to")) || str_eq(name, S("_cast_Float"))) {
		*out = to_dtype(s, a);
		return true;
	}
	if (!number_has(name) || str_eq(name, S("squeeze")))
		return false;
	if (number_operands(name) == 2 && !thing_is_number(&b))
		return false;
	if (alpha && thing_is_number(alpha) && (str_eq(name, S("add")) || str_eq(name, S("sub"))))
		b = script_math(s, "mul", b, *alpha);
	if (mode && mode->kind == THING_STR)
		*out = script_math(s, "floordiv", a->at[0], b);
	else
		*out = script_math(s, str_copy(s->c->a, name).p, a->at[0], b);
	return true;
}

#define MOST_COPIES 4u

/* The whole numbers of a constant tensor, copies of it included; NULL = it is none, or a long one. */
static const struct thing *
constant_values(const struct script *s, uint32_t v)
{
	const struct graph *g = s->g;
	struct str name;
	int64_t i;

	for (unsigned depth = 0; depth < MOST_COPIES && g->vals[v].kind == VAL_NODE; depth++) {
		const struct arg *x = node_args(g, g->vals[v].node);
		unsigned op = g->nodes[g->vals[v].node].op;

		if ((op != OP_TO && op != OP_DETACH) || x->kind != ARG_VAL)
			return NULL;
		v = x->u.val;
	}
	name = graph_str(g, g->vals[v].name);
	if (g->vals[v].kind != VAL_CONST || !str_starts(name, S("CONSTANTS.c")) || !str_int(str_sub(name, 11, name.n), &i) || i < 0 || i >= s->nconst)
		return NULL;
	return s->const_values[i].kind == THING_LIST ? &s->const_values[i] : NULL;
}

/* "torch.min(torch.tensor((height, width)))" */
static bool
least_or_most(struct script *s, struct str name, const struct args *a, struct thing *out)
{
	const struct thing *list;

	if ((!str_eq(name, S("min")) && !str_eq(name, S("max"))) || a->n != 1 || a->at[0].kind != THING_TENSOR || !(list = constant_values(s, a->at[0].val)))
		return false;
	*out = list->u.items->at[0];
	for (uint32_t i = 1; i < list->u.items->n; i++)
		*out = script_math(s, str_copy(s->c->a, name).p, *out, list->u.items->at[i]);
	return true;
}

/* Arithmetic on what is not understood is not understood; it is no operator on tensors. */
static bool
is_lost(struct str name, const struct args *a)
{
	bool lost = false;

	if (!number_has(name))
		return false;
	for (uint32_t i = 0; i < a->n; i++) {
		if (a->at[i].kind == THING_TENSOR || a->at[i].kind == THING_LIST)
			return false;
		lost |= a->at[i].kind == THING_UNKNOWN;
	}
	return lost;
}

/* "n += 1" of a size that the trace has as a tensor: add_, whose result every later use names. */
static struct str
of_number(struct str name)
{
	struct str plain = name.n > 1 && name.p[name.n - 1] == '_' && name.p[name.n - 2] != '_' ? str_sub(name, 0, name.n - 1) : name;

	return number_has(plain) ? plain : name;
}

bool
script_builtin(struct script *s, struct str name, const struct args *a, struct thing *out, bool *found)
{
	if (!special(s, name, a, out, found) || *found)
		return !s->c->nerror;
	*found = true;
	if (a->n == 2 && compare_things(s, name, a, out))
		return true;
	if ((all_numbers(a) && arithmetic(s, of_number(name), a, out)) || least_or_most(s, name, a, out))
		return true;
	if (is_lost(name, a)) {
		*out = (struct thing){0};
		return true;
	}
	if (a->n && a->at[0].kind == THING_TENSOR && ask_tensor(s, name, a, out))
		return true;
	if (!(a->n > 1 && str_eq(name, S("index"))) && about_device(name, out))
		return true;
	return script_list_call(s, name, a, out, found);
}
