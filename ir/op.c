/* Look-ups in op.def and alias.def: names, overloads, schemas. */
#include "ir.h"

static const struct op table[OP_COUNT] = {
	[OP_NONE] = {.name = "?", .schema = ""},
#define OP(id, name, schema, cast, forward, backward) [OP_##id] = {name, schema, forward, backward, cast, false, RULE_none, NULL},
#define COMPOSE(id, name, schema, cast) [OP_##id] = {name, schema, NULL, NULL, cast, false, RULE_none, NULL},
#define PRIM(id, name, schema) [OP_##id] = {name, schema, NULL, NULL, CAST_NONE, true, RULE_none, NULL},
#include "op.def"
#undef OP
#undef COMPOSE
#undef PRIM
#define ONNX(id, name, schema, weights, rule) [OP_##id] = {name, schema, NULL, NULL, CAST_NONE, false, RULE_##rule, weights},
#include "onnx.def"
#undef ONNX
};

static const struct {
	const char *name;
	uint16_t op;
} alias[] = {
#define ALIAS(name, op) {name, OP_##op},
#include "alias.def"
#undef ALIAS
};

const struct op *
op_info(unsigned op)
{
	return &table[op < OP_COUNT ? op : OP_NONE];
}

static unsigned
find(struct str name)
{
	for (size_t i = 0; i < sizeof alias / sizeof alias[0]; i++)
		if (str_eq(name, str_of(alias[i].name)))
			return alias[i].op;
	for (unsigned i = 1; i < OP_COUNT; i++)
		if (str_eq(name, str_of(table[i].name)))
			return i;
	return OP_NONE;
}

/* "max.dim" is looked for whole, then as "max"; "add_.Tensor" then as "add.Tensor" and "add", in place. */
unsigned
op_by_name(struct str name, bool *inplace)
{
	int64_t dot = str_find(name, '.');
	struct str base = dot < 0 ? name : str_sub(name, 0, (uint32_t)dot), overload = str_sub(name, base.n, name.n);
	unsigned op = find(name);
	char buf[128];

	*inplace = base.n >= 2 && base.p[base.n - 1] == '_' && base.p[base.n - 2] != '_';
	if (!op)
		op = find(base);
	if (op || !*inplace)
		return op;
	base.n--;
	if (overload.n && base.n + overload.n < sizeof buf) {
		struct buf b = {.p = buf, .cap = sizeof buf};

		buf_str(&b, base);
		buf_str(&b, overload);
		op = find((struct str){buf, (uint32_t)b.n});
	}
	return op ? op : find(base);
}

/* The next argument of a schema; a semicolon in front of it begins the attributes. */
static bool
next_arg(struct str *rest, struct arg_name *a, bool *attributes)
{
	struct str arg = str_trim(*rest), others;
	uint32_t n = 0;
	int64_t eq;

	if (arg.n && arg.p[0] == ';') {
		*attributes = true;
		arg = str_trim(str_sub(arg, 1, arg.n));
	}
	while (n < arg.n && arg.p[n] != ',' && arg.p[n] != ';')
		n++;
	*rest = str_sub(arg, n + (n < arg.n && arg.p[n] == ','), arg.n);
	arg = str_trim(str_sub(arg, 0, n));
	eq = str_find(arg, '=');
	a->spellings = eq < 0 ? arg : str_sub(arg, 0, (uint32_t)eq);
	a->dflt = eq < 0 ? S("") : str_sub(arg, (uint32_t)eq + 1, arg.n);
	a->attribute = *attributes;
	a->rest = str_ends(a->spellings, S("..."));
	a->spellings.n -= a->rest ? 3 : 0;
	others = a->spellings;
	str_cut(&others, '|', &a->name);
	return arg.n > 0;
}

uint32_t
op_args(unsigned op, struct arg_name *names, uint32_t cap)
{
	struct str rest = str_of(op_info(op)->schema);
	bool attributes = false;
	uint32_t n = 0;

	while (n < cap && next_arg(&rest, &names[n], &attributes))
		n++;
	return n;
}

uint32_t
op_narg(unsigned op)
{
	struct arg_name names[MAX_SCHEMA];

	return op_args(op, names, MAX_SCHEMA);
}

int
op_arg_index(unsigned op, struct str name)
{
	struct str rest = str_of(op_info(op)->schema);
	struct str spellings, one;
	struct arg_name a;
	bool attributes = false;

	for (int i = 0; next_arg(&rest, &a, &attributes); i++)
		for (spellings = a.spellings; spellings.n && str_cut(&spellings, '|', &one);)
			if (str_eq(one, name))
				return i;
	return -1;
}

bool
op_is_onnx(unsigned op)
{
	return op_info(op)->rule != RULE_none;
}

/* The ends of regions take as many values as the region hands on. */
bool
op_is_variadic(unsigned op)
{
	return op == OP_ENDIF || op == OP_LOOP || op == OP_ENDLOOP;
}
