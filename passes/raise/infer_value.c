/*
 * infer: numbers that tensors without dims hold, as far as the program computes them from constants. A loop of torch.export counts its turns in such a
 * tensor; what data decides stays unknown.
 */
#include "infer.h"

#include <string.h>

static const struct {
	uint16_t op;
	const char *math;          /* of ir/number.c */
} arithmetic[] = {
	{OP_ADD, "add"}, {OP_SUB, "sub"}, {OP_MUL, "mul"}, {OP_LT, "lt"}, {OP_LE, "le"}, {OP_GT, "gt"}, {OP_GE, "ge"}, {OP_EQ, "eq"}, {OP_NE, "ne"},
};

static struct number
unknown(void)
{
	return (struct number){.kind = ARG_NONE};
}

struct number
infer_value(const struct infer *f, uint32_t val)
{
	return val && val < f->nvalue ? f->value[val] : unknown();
}

static struct number
operand_number(const struct infer *f, const struct arg *a)
{
	switch (a ? a->kind : ARG_NONE) {
	case ARG_VAL:
		return infer_value(f, a->u.val);
	case ARG_INT:
		return a->u.i.expr ? unknown() : number_int(a->u.i.n);
	case ARG_FLOAT:
		return number_float(a->u.f);
	case ARG_BOOL:
		return number_bool(a->u.b);
	default:
		return unknown();
	}
}

static struct number
computed(const struct infer *f, uint32_t n)
{
	struct graph *g = f->g;
	const struct arg *alpha = node_arg(g, n, "alpha");
	unsigned op = g->nodes[n].op;
	struct number r;

	if (op == OP_FULL || op == OP_SCALAR_TENSOR)
		return operand_number(f, node_arg(g, n, op == OP_FULL ? "fill_value" : "s"));
	if (op == OP_ZEROS || op == OP_ONES)
		return number_int(op == OP_ONES);
	if (alpha && alpha->kind != ARG_NONE && !(alpha->kind == ARG_INT && !alpha->u.i.expr && alpha->u.i.n == 1))
		return unknown();
	for (size_t i = 0; i < sizeof arithmetic / sizeof arithmetic[0]; i++) {
		struct number a, b;

		if (arithmetic[i].op != op)
			continue;
		a = operand_number(f, node_args(g, n));
		b = operand_number(f, node_args(g, n) + 1);
		return a.kind != ARG_NONE && b.kind != ARG_NONE && number_math(str_of(arithmetic[i].math), a, b, &r) ? r : unknown();
	}
	return unknown();
}

static void
room_for_values(struct infer *f)
{
	uint32_t cap = f->g->nval * 2;
	struct number *p = NEW(f->a->c->a, struct number, cap);

	if (f->nvalue)
		memcpy(p, f->value, f->nvalue * sizeof *p);
	for (uint32_t i = f->nvalue; i < cap; i++)
		p[i] = unknown();
	f->value = p;
	f->nvalue = cap;
}

/* A node of the new graph has its first result. One that writes into a tensor may have changed any that is known. */
void
infer_compute(struct infer *f, uint32_t n, uint32_t val)
{
	struct number r;

	if (f->g->nodes[n].flags & NF_INPLACE)
		f->nvalue = 0;
	if (f->g->nodes[n].flags & NF_INPLACE || !val || f->g->vals[val].rank != 0)
		return;
	r = computed(f, n);
	if (r.kind == ARG_NONE)
		return;
	if (val >= f->nvalue)
		room_for_values(f);
	f->value[val] = r;
}
