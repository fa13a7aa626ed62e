/* Look-ups in op.def and alias.def: names, overloads, schemas. */
#include "ir.h"

static const struct op table[OP_COUNT] = {
	[OP_NONE] = {"?", "", NULL, NULL, CAST_NONE, false},
#define OP(id, name, schema, cast, forward, backward) [OP_##id] = {name, schema, forward, backward, cast, false},
#define COMPOSE(id, name, schema, cast) [OP_##id] = {name, schema, NULL, NULL, cast, false},
#define PRIM(id, name, schema) [OP_##id] = {name, schema, NULL, NULL, CAST_NONE, true},
#include "op.def"
#undef OP
#undef COMPOSE
#undef PRIM
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

	*inplace = false;
	if (!op)
		op = find(base);
	if (op || base.n < 2 || base.p[base.n - 1] != '_' || base.p[base.n - 2] == '_')
		return op;
	*inplace = true;
	base.n--;
	if (overload.n && base.n + overload.n < sizeof buf) {
		struct buf b = {.p = buf, .cap = sizeof buf};

		buf_str(&b, base);
		buf_str(&b, overload);
		op = find((struct str){buf, (uint32_t)b.n});
	}
	return op ? op : find(base);
}

uint32_t
op_args(unsigned op, struct arg_name *names, uint32_t cap)
{
	struct str rest = str_of(op_info(op)->schema), item;
	uint32_t n = 0;

	while (n < cap && rest.n && str_cut(&rest, ',', &item)) {
		struct str arg = str_trim(item), spellings;
		int64_t eq = str_find(arg, '=');

		spellings = eq < 0 ? arg : str_sub(arg, 0, (uint32_t)eq);
		str_cut(&spellings, '|', &names[n].name);
		names[n].dflt = eq < 0 ? S("") : str_sub(arg, (uint32_t)eq + 1, arg.n);
		n++;
	}
	return n;
}

uint32_t
op_narg(unsigned op)
{
	struct arg_name names[32];

	return op_args(op, names, 32);
}

int
op_arg_index(unsigned op, struct str name)
{
	struct str rest = str_of(op_info(op)->schema), item, names, one;

	for (int i = 0; rest.n && str_cut(&rest, ',', &item); i++) {
		struct str arg = str_trim(item);

		str_cut(&arg, '=', &names);
		while (names.n && str_cut(&names, '|', &one))
			if (str_eq(one, name))
				return i;
	}
	return -1;
}

/* The ends of regions take as many values as the region hands on. */
bool
op_is_variadic(unsigned op)
{
	return op == OP_ENDIF || op == OP_LOOP || op == OP_ENDLOOP;
}
