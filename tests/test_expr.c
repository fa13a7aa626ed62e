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

/* Different ways to the same size are one expression. */
static void
sums_and_products_have_one_spelling(void **state)
{
	static const struct {
		const char *a, *b;
	} same[] = {
		{"2*(s + 1) - s - 2", "s"}, {"s*t*64", "64*t*s"}, {"(s*t*64)//(t*64)", "s"}, {"(s + t)*(s - t)", "s*s - t*t"}, {"(2*s + 1)//2", "s"}, {"(4*s + 6*t)//2", "2*s + 3*t"},
		{"Min(s, s + 1)", "s"}, {"Max(s, s + 1)", "s + 1"}, {"Min(1, s + 1)", "1"}, {"s - s", "0"}, {"(s + 1)//(s + 1)", "1"}, {"0*s", "0"}, {"Max(s, t) - Max(s, t) + 1", "1"},
	};
	static const struct {
		const char *a, *b;
	} different[] = {{"Min(s, t)", "s"}, {"(s + 1)//2", "s"}, {"s//t", "s"}, {"Min(s, 2)", "2"}, {"s*s", "s"}};

	(void)state;
	for (size_t i = 0; i < sizeof same / sizeof same[0] + sizeof different / sizeof different[0]; i++) {
		bool equal = i < sizeof same / sizeof same[0];
		size_t k = equal ? i : i - sizeof same / sizeof same[0];
		struct ctx *c = test_ctx();
		struct graph *g = graph_new(c);
		uint32_t a, b;

		expr_parse(g, str_of(equal ? same[k].a : different[k].a), &a);
		expr_parse(g, str_of(equal ? same[k].b : different[k].b), &b);
		if ((a == b) != equal)
			fail_msg("%s and %s", equal ? same[k].a : different[k].a, equal ? same[k].b : different[k].b);
		test_ctx_free(c);
	}
}

static void
odd_names_are_quoted(void **state)
{
	struct ctx *c = test_ctx();
	struct graph *g = graph_new(c);
	struct buf b = {0};
	uint32_t e, f;

	(void)state;
	e = expr_op2(g, EX_ADD, expr_sym(g, sym_add(g, S("Add/out 0"))), expr_const(g, 1));
	expr_print(g, e, &b);
	assert_int_equal(b.n, strlen("(\"Add/out 0\" + 1)"));
	assert_memory_equal(b.p, "(\"Add/out 0\" + 1)", b.n);
	assert_true(expr_parse(g, (struct str){b.p, (uint32_t)b.n}, &f));
	assert_int_equal(e, f);
	assert_true(expr_parse_known(g, S("\"Add/out 0\" + 1"), &f));
	assert_false(expr_parse_known(g, S("nobody + 1"), &f));
	assert_int_equal(sym_find(g, S("nobody")), 0);
	free(b.p);
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
		cmocka_unit_test(parses_prints_evaluates), cmocka_unit_test(equal_expressions_are_one), cmocka_unit_test(sums_and_products_have_one_spelling), cmocka_unit_test(odd_names_are_quoted), cmocka_unit_test(overflow_is_unknown),
		cmocka_unit_test(sharing_does_not_explode),
	};

	return cmocka_run_group_tests_name("expr", tests, NULL, NULL);
}
