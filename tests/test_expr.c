/* Expressions: both spellings of the file formats, one identity for equal ones, evaluation with bound symbols. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *text;
	const char *printed;
	int64_t with_s0_7;         /* value with s0 = 7; -1 = cannot be evaluated */
} cases[] = {
	{"Integer(3)", "3", 3},
	{"Symbol('s0', positive=True, integer=True)", "s0", 7},
	{"Add(Symbol('s0'), Integer(16))", "(s0 + 16)", 23},
	{"Mul(Integer(512), Symbol('s0', integer=True))", "(s0*512)", 3584},
	{"FloorDiv(Symbol('s0'), Integer(2))", "(s0//2)", 3},
	{"CeilDiv(Symbol('s0'), Integer(2))", "CeilDiv(s0, 2)", 4},
	{"Mod(Symbol('s0'), Integer(4))", "(s0%4)", 3},
	{"Max(Integer(9), Symbol('s0'))", "Max(9, s0)", 9},
	{"Pow(Symbol('s0'), Integer(2))", "(s0**2)", 49},
	{"Add(Integer(1), Integer(2), Integer(3))", "6", 6},
	{"Mul(Integer(-1), Symbol('s0'))", "(s0*-1)", -7},
	{"2*s0 + 1", "((s0*2) + 1)", 15},
	{"(s0//2)", "(s0//2)", 3},
	{"s0 - 3", "(s0 + -3)", 4},
	{"-s0 + 8", "((s0*-1) + 8)", 1},
	{"FloorDiv(Integer(-7), Integer(2))", "-4", -4},
	{"s0*1", "s0", 7},
	{"Weird(s0", "Weird(s0", -1},
	{"FloorDiv(Symbol('s0'), Integer(0))", "(s0//0)", -1},
};

static void
parses_prints_evaluates(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ctx *c = test_ctx();
		struct graph *g = graph_new(c);
		struct buf b = {0};
		uint32_t e;
		int64_t n;
		bool known;

		expr_parse(g, str_of(cases[i].text), &e);
		expr_print(g, e, &b);
		buf_put(&b, "", 1);
		assert_string_equal(b.p, cases[i].printed);
		free(b.p);
		if (sym_find(g, S("s0"))) {
			g->syms[sym_find(g, S("s0"))].value = 7;
			expr_bind(g);
		}
		known = expr_eval(g, e, &n);
		assert_int_equal(known, cases[i].with_s0_7 != -1);
		if (known)
			assert_int_equal(n, cases[i].with_s0_7);
		test_ctx_free(c);
	}
}

static void
equal_expressions_are_one(void **state)
{
	struct ctx *c = test_ctx();
	struct graph *g = graph_new(c);
	uint32_t a, b, d;

	(void)state;
	expr_parse(g, S("Add(Integer(16), Symbol('s0', integer=True))"), &a);
	expr_parse(g, S("s0 + 16"), &b);
	expr_parse(g, S("s0 + 17"), &d);
	assert_int_equal(a, b);
	assert_int_not_equal(a, d);
	test_ctx_free(c);
}

static void
overflow_is_unknown(void **state)
{
	struct ctx *c = test_ctx();
	struct graph *g = graph_new(c);
	uint32_t e;
	int64_t n;

	(void)state;
	expr_parse(g, S("9223372036854775807*s0"), &e);
	g->syms[sym_find(g, S("s0"))].value = 2;
	expr_bind(g);
	assert_false(expr_eval(g, e, &n));
	test_ctx_free(c);
}

/* x = x + x, a hundred times: a shared graph whose written-out form has 2^100 terms. */
static void
sharing_does_not_explode(void **state)
{
	struct ctx *c = test_ctx();
	struct graph *g = graph_new(c);
	struct buf b = {0};
	uint32_t e = expr_sym(g, sym_add(g, S("s0")));

	(void)state;
	for (int i = 0; i < 100; i++)
		e = expr_op2(g, EX_ADD, e, expr_op2(g, EX_MUL, e, expr_const(g, 3)));
	expr_bind(g);
	expr_print(g, e, &b);
	assert_true(b.n < 1 << 20);
	free(b.p);
	test_ctx_free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_prints_evaluates), cmocka_unit_test(equal_expressions_are_one), cmocka_unit_test(overflow_is_unknown),
		cmocka_unit_test(sharing_does_not_explode),
	};

	return cmocka_run_group_tests_name("expr", tests, NULL, NULL);
}
