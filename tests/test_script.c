/* The emitted Python subset: what each form is parsed to, and the line of a mistake. */
#include "test.h"
#include "../frontend/script.h"

#include <stdio.h>
#include <string.h>

static struct code_file *
parse(struct ctx *c, struct strtab *names, const char *text)
{
	struct code_file *f = NEW(c->a, struct code_file, 1);

	return script_parse(c, names, f, str_of(text), S("__torch__.m")) ? f : NULL;
}

static void
classes(void **state)
{
	struct ctx *c = test_ctx();
	struct strtab *names = strtab_new(c->a);
	struct code_file *f = parse(c, names,
	    "op_version_set = 1\nimport a.b\n"
	    "class Net(Module):\n  __parameters__ = [\"weight\", \"bias\", ]\n  __buffers__ = []\n  weight : Tensor\n  class : int\n"
	    "  __annotations__ = []\n  __annotations__[\"0\"] = Tensor\n  eps : Final[float] = 1e-05\n"
	    "  def forward(self: __torch__.m.Net,\n    x: Tensor,\n    n: int=3) -> Tuple[Tensor, int]:\n    return (x, n)\n"
	    "class Color(Enum):\n  RED = 1\nclass I(Interface):\n  def f(self, x: Tensor) -> Tensor:\n    pass\n"
	    "def free(x: Dict[str, List[Tuple[int, float]]]) -> int:\n  return 1\n");

	(void)state;
	assert_non_null(f);
	assert_true(str_eq(strtab_str(names, f->classes->name), S("__torch__.m.Net")));
	assert_int_equal(f->classes->parameters.n, 2);
	assert_int_equal(f->classes->buffers.n, 0);
	assert_int_equal(f->classes->funcs->nparam, 3);
	assert_null(f->classes->funcs->dflt[1]);
	assert_int_equal(f->classes->funcs->dflt[2]->u.i, 3);
	assert_true(str_eq(strtab_str(names, f->classes->next->consts->kid[0]->name), S("RED")));
	assert_int_equal(f->classes->next->consts->kid[1]->u.i, 1);
	assert_true(str_eq(strtab_str(names, f->funcs->name), S("free")));
	test_ctx_free(c);
}

static void
statements(void **state)
{
	static const struct {
		const char *text;
		uint8_t kind, form;
	} table[] = {
		{"a = 1", STMT_ASSIGN, ASSIGN_ONE}, {"a, b = torch.max(x, 1)", STMT_ASSIGN, ASSIGN_RESULTS}, {"a, b, = _5", STMT_ASSIGN, ASSIGN_UNPACK},
		{"a, = _5", STMT_ASSIGN, ASSIGN_UNPACK}, {"a, b = c, d", STMT_ASSIGN, ASSIGN_PARALLEL}, {"a : Tensor = b", STMT_ASSIGN, ASSIGN_ONE}, {"a: int = 1", STMT_ASSIGN, ASSIGN_ONE},
		{"self.prev = torch.f()", STMT_SET, 0}, {"torch.f(x, y=1, )", STMT_EXPR, 0}, {"if a:\n    pass\n  else:\n    b = 1", STMT_IF, 0}, {"while _4:\n    pass", STMT_WHILE, 0},
		{"for i in range(torch.len(x)):\n    a = i", STMT_FOR, 0}, {"with _40 as g:\n    a = 1", STMT_WITH, 0}, {"def g():\n    return x", STMT_DEF, 0}, {"return", STMT_RETURN, 0},
		{"return (a,)", STMT_RETURN, 0}, {"pass", STMT_PASS, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct ctx *c = test_ctx();
		struct code_file *f = parse(c, strtab_new(c->a), str_fmt(c->a, "def f(x):\n  %s\n  pass\n", table[i].text).p);

		assert_non_null(f);
		assert_int_equal(f->funcs->body->kind, table[i].kind);
		if (table[i].kind == STMT_ASSIGN)
			assert_int_equal(f->funcs->body->form, table[i].form);
		assert_int_equal(f->funcs->body->line, 2);
		assert_int_equal(f->funcs->body->next->kind, STMT_PASS);
		test_ctx_free(c);
	}
}

static void
literals(void **state)
{
	static const struct {
		const char *text;
		uint8_t kind;
		double want;
	} table[] = {
		{"12", TERM_INT, 12}, {"-3", TERM_INT, -3}, {"9223372036854775807", TERM_INT, 0x1p63}, {"2.", TERM_FLOAT, 2}, {"0.10000000000000001", TERM_FLOAT, 0.1}, {"-1e+20", TERM_FLOAT, -1e20},
		{"1.0000000000000001e-05", TERM_FLOAT, 1e-5}, {"3.-4.j", TERM_FLOAT, 3}, {"-inf", TERM_FLOAT, -1e308},
	};
	struct ctx *c = test_ctx();
	struct strtab *names = strtab_new(c->a);
	struct code_file *f;

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		const struct term *t;

		f = parse(c, names, str_fmt(c->a, "def f():\n  return %s\n", table[i].text).p);
		assert_non_null(f);
		t = f->funcs->body->value;
		assert_int_equal(t->kind, table[i].kind);
		assert_true((t->kind == TERM_INT ? (double)t->u.i : t->u.f) == table[i].want);
	}
	f = parse(c, names, "def f():\n  return \"a\\\"\\n\\001\\\\\"\n");
	assert_non_null(f);
	assert_true(str_eq(strtab_str(names, f->funcs->body->value->name), S("a\"\n\001\\")));
	test_ctx_free(c);
}

static void
mistakes(void **state)
{
	static const struct {
		const char *text;
		unsigned line;
	} table[] = {
		{"x = 1\n", 1}, {"class A:\n  a b\n", 2}, {"def f(:\n", 1}, {"def f():\n", 2}, {"def f():\n  return (\n", 3}, {"def f():\n  a, 1 = b\n", 2}, {"def f():\n  a = \"b\n", 2},
		{"def f():\n  a = 99999999999999999999\n", 2}, {"def f():\n  for i in list(x):\n    pass\n", 2}, {"def f():\n  a, b = 1, 2, 3\n", 2}, {"def f():\n  if a:\n  pass\n", 3}, {"def f():\n  a = b.\n", 2},
		{"\n\ndef f():\n  a = {1: 2 3: 4}\n", 4},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct ctx *c = test_ctx();

		assert_null(parse(c, strtab_new(c->a), table[i].text));
		assert_int_equal(c->nerror, 1);
		assert_string_equal(diag_name(c->diags[0].code), "E031");
		assert_true(str_starts(c->diags[0].text, str_fmt(c->a, "line %u:", table[i].line)));
		test_ctx_free(c);
	}
}

/* Brackets, blocks and chains deeper than the limit are refused, not followed. */
static void
depth(void **state)
{
	static const char *const open[] = {"(", "[", "f(", "{1: ", "x["};
	struct ctx *c = test_ctx();

	(void)state;
	for (size_t i = 0; i < sizeof open / sizeof open[0]; i++) {
		struct str s = S("def f():\n  return ");

		for (unsigned k = 0; k < 300; k++)
			s = str_fmt(c->a, "%.*s%s", SFMT(s), open[i]);
		assert_null(parse(c, strtab_new(c->a), s.p));
	}
	test_ctx_free(c);
}

/* Modules traced in eval mode without gradients, as inference takes their own kernels: the peaks are those of real PyTorch training the modules in eval mode. */
static void
kernels_of_inference(void **state)
{
	static const struct {
		const char *file, *precision;
		uint64_t peak;
	} table[] = {
		{"encoder", "fp32", 413184}, {"encoder", "bf16-mixed", 379904}, {"encoder_norm_first", "fp32", 425472}, {"encoder_norm_first", "bf16-mixed", 379904},
		{"heads", "fp32", 127488}, {"heads", "bf16-mixed", 98304}, {"heads_weights", "fp32", 129536}, {"heads_weights", "bf16-mixed", 111104},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char path[64], recipe[96];
		struct analysed a;

		snprintf(path, sizeof path, "fixtures/script/%s.eval.pt", table[i].file);
		snprintf(recipe, sizeof recipe, "{\"optimizer\": \"adamw\", \"precision\": \"%s\"}", table[i].precision);
		a = test_analyse_file(path, recipe);
		assert_int_equal(mc_report_peak(a.r), table[i].peak);
		assert_false(a.r->incomplete);
		release_analysis(a);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(classes), cmocka_unit_test(statements), cmocka_unit_test(literals), cmocka_unit_test(mistakes), cmocka_unit_test(depth), cmocka_unit_test(kernels_of_inference),
	};

	return cmocka_run_group_tests_name("script", tests, NULL, NULL);
}
