/* The operator table: every row compiles; names that are not builders are the elementwise kernels listed here, so that a misspelt builder is seen. */
#include "test.h"

#include "../passes/lower/lower.h"

#include <string.h>

static void
every_row_compiles(void **state)
{
	(void)state;
	for (unsigned op = 1; op < OP_COUNT; op++) {
		struct ctx *c = test_ctx();
		const char *why = op_is_onnx(op) ? NULL : op_code_check(c->a, op);

		if (why)
			fail_msg("%s: %s", op_info(op)->name, why);
		test_ctx_free(c);
	}
}

static void
every_kernel_is_known(void **state)
{
	static const char known[] = " neg mul div add sub le ge eq ne lt gt sgn rsqrt sin sinh cos cosh exp pow log isfinite sigmoid cumsum flip floor_div trunc_div abs xlogy erfinv digamma polygamma i0 i0e i1 i1e tril reciprocal xlog1py zeta lgamma exp2 ";

	(void)state;
	for (unsigned op = 1; op < OP_COUNT; op++) {
		struct ctx *c = test_ctx();
		struct sim s = {.c = c, .code = NEW(c->a, struct op_code, OP_COUNT)};
		const struct op_code *code = op_code(&s, op_is_onnx(op) ? OP_NONE : op);

		for (unsigned i = 0; i < code->ninsn; i++)
			if (code->insn[i].kernel && !strstr(known, str_fmt(c->a, " %s ", code->insn[i].kernel).p))
				fail_msg("%s: %s is neither a builder nor a known kernel", op_info(op)->name, code->insn[i].kernel);
		test_ctx_free(c);
	}
}

static void
names_are_found(void **state)
{
	static const struct {
		const char *name;
		unsigned op;
		bool inplace;
	} cases[] = {
		{"add", OP_ADD, false}, {"add.Tensor", OP_ADD, false}, {"add_.Tensor", OP_ADD, true}, {"relu_", OP_RELU, true}, {"max.dim", OP_MAX_DIM, false},
		{"max", OP_MAX_ALL, false}, {"max.other", OP_MAXIMUM, false}, {"conv2d.default", OP_CONV, false}, {"__and__.Tensor", OP_BITWISE_AND, false},
		{"_to_copy.default", OP_TO_COPY, false}, {"nosuch", OP_NONE, false}, {"_", OP_NONE, false}, {"", OP_NONE, false}, {"masked_fill_.Scalar", OP_MASKED_FILL, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		bool inplace;

		assert_int_equal(op_by_name(str_of(cases[i].name), &inplace), cases[i].op);
		assert_int_equal(inplace, cases[i].inplace);
	}
	assert_int_equal(op_arg_index(OP_ADD, S("alpha")), 2);
	assert_int_equal(op_arg_index(OP_ADD, S("alp")), -1);
}

/* The first row of a name hides what stands behind it. */
static void
names_are_unique(void **state)
{
	static const char *const names[] = {
#define ALIAS(name, op) name,
#include "../ir/alias.def"
#undef ALIAS
	};
	struct ctx *c = test_ctx();
	struct strtab *seen = strtab_new(c->a);

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (strtab_find(seen, str_of(names[i])))
			fail_msg("%s stands in alias.def twice", names[i]);
		strtab_id(seen, str_of(names[i]));
	}
	test_ctx_free(c);
}

/* The first result of a node without results is none, not that of the node behind it. */
static void
nodes_without_results(void **state)
{
	struct ctx *c = test_ctx();
	struct graph *g = graph_new(c);
	uint32_t n = node_new(g, OP_UNSQUEEZE, op_narg(OP_UNSQUEEZE), 0), m = node_new(g, OP_RELU, 1, 1);

	(void)state;
	node_outs(g, m)[0] = 7;
	assert_int_equal(node_outs(g, n)[0], 0);
	test_ctx_free(c);
}

/* What is saved follows from the formulas; these are the cases that gen_variable_type.py's rule distinguishes. */
static void
saved_sets(void **state)
{
	struct ctx *c = test_ctx();
	struct sim s = {.c = c, .code = NEW(c->a, struct op_code, OP_COUNT)};
	const struct op_code *mul = op_code(&s, OP_MUL), *div = op_code(&s, OP_DIV), *add = op_code(&s, OP_ADD), *relu = op_code(&s, OP_RELU);

	(void)state;
	assert_int_equal(mul->nkeep, 2);           /* other for self, self for other */
	assert_int_equal(mul->keep[0].what.i, 1);
	assert_int_equal(mul->keep[0].only_if, 0);
	assert_int_equal(mul->keep[1].what.i, 0);
	assert_int_equal(mul->keep[1].only_if, 1);
	assert_int_equal(div->keep[0].only_if, -1);        /* the divisor stands in both formulas: always */
	assert_int_equal(div->keep[1].only_if, 1);
	assert_int_equal(add->nkeep, 0);
	assert_int_equal(relu->nkeep, 1);
	assert_int_equal(relu->keep[0].what.kind, REF_OUT);
	test_ctx_free(c);
}

/*
 * ctc_loss of [30, 8, 20] fp32 and targets of at most 10: 19,456 bytes of log probabilities and as many of their gradient; alpha and beta are [8, 30, 21], 20,480
 * bytes each. Beside them the batch (19,456 + 1,024 + 512), a parameter, the losses, their mean and the gradients of both: 512 bytes each.
 */
static void
ctc_loss_keeps_alpha(void **state)
{
	static const char text[] =
	    "memcrest-ir 1\nparam %w \"w\" : fp32[1] trainable\ninput %x : fp32[30, 8, 20]\ninput %t : int64[8, 10]\ninput %n : int64[8]\n"
	    "%y : fp32[30, 8, 20] = mul(self=%x, other=%w)\n%l : fp32[] = ctc_loss(log_probs=%y, targets=%t, input_lengths=%n, target_lengths=%n)\noutput %l\n";
	struct analysed a = test_analyse(text, "{\"optimizer\": \"sgd\"}");

	(void)state;
	assert_int_equal(mc_report_peak(a.r), 2 * 19456 + 2 * 20480 + 19456 + 1024 + 512 + 5 * 512);
	assert_false(a.r->incomplete);
	release_analysis(a);
}

/* 100 operands of 1 MiB, which an operator without a row keeps all, and as much for their gradients: beside them its result, of 1 MiB, and a KiB or two. */
static void
unknown_keeps_all(void **state)
{
	struct ctx *c = test_ctx();
	struct str text = S("memcrest-ir 1\nparam %w \"w\" : fp32[256] trainable\ninput %x : fp32[1024, 256]\n"), list = S("");
	mc_model *m = NULL;
	mc_report *r = NULL;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		text = str_fmt(c->a, "%.*s%%a%u : fp32[1024, 256] = mul(%%x, %%w)\n", SFMT(text), i);
		list = str_fmt(c->a, "%.*s%s%%a%u", SFMT(list), i ? ", " : "", i);
	}
	text = str_fmt(c->a, "%.*s%%u : fp32[1024, 256] = \"my.op\"(%.*s)\n%%l : fp32[] = sum(%%u)\noutput %%l\n", SFMT(text), SFMT(list));
	assert_int_equal(mc_load_memory(text.p, text.n, "test", NULL, &m), MC_OK);
	assert_int_equal(mc_analyze(m, NULL, NULL, &r), MC_INCOMPLETE);
	assert_in_range(mc_report_peak(r), 201 << 20, (201 << 20) + 16384);
	mc_report_free(r);
	mc_model_free(m);
	test_ctx_free(c);
}

/* ---- arguments that are not what an operator expects ------------------------------------------------------------------- */

enum odd { ODD_MISSING, ODD_FIRST, ODD_TENSORS, ODD_SCALARS, ODD_LISTS, ODD_SIZES, ODD_HUGE, ODD_NEGATIVE, ODD_TEXT, ODD_ALL, ODD_COUNT };

/* What the argument number i is given; NULL = nothing. */
static const char *
odd_argument(enum odd odd, unsigned i, bool required)
{
	static const char *const given[ODD_COUNT] = {NULL, NULL, "%x", "%s", "[%x, none, %s]", "[2, 4611686018427387904]", "4611686018427387904", "-1", "\"ij\"", "%e"};

	if (odd == ODD_MISSING)
		return NULL;
	if (i == 0)
		return odd == ODD_SCALARS ? "%s" : odd == ODD_LISTS ? "[%x, %x]" : odd == ODD_ALL ? "%e" : "%x";
	return required || odd >= ODD_SIZES ? given[odd] : NULL;
}

static char *
odd_graph(struct arena *a, unsigned op, enum odd odd)
{
	struct arg_name names[MAX_SCHEMA];
	unsigned n = op_args(op, names, MAX_SCHEMA), given = 0;
	struct str text = S("memcrest-ir 1\nparam %w \"w\" : fp32[4, 4] trainable\nparam %e \"e\" : fp32[0, 281474976710656, 281474976710656] trainable\n%x : fp32[4, 4] = relu(%w)\n%s : fp32[] = sum(%x)\n");

	text = str_fmt(a, "%.*s%%y = %s(", SFMT(text), op_info(op)->name);
	for (unsigned i = 0; i < n; i++) {
		const char *value = odd_argument(odd, i, !names[i].dflt.n);

		if (value)
			text = str_fmt(a, "%.*s%s%.*s=%s", SFMT(text), given++ ? ", " : "", SFMT(names[i].name), value);
	}
	return (char *)str_fmt(a, "%.*s)\n%%l = sum(%%y)\noutput %%l\n", SFMT(text)).p;
}

static mc_status
analyse_odd(const char *text)
{
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_options o;
	mc_status st;

	mc_options_init(&o);
	o.max_memory = 256 << 20;
	st = mc_load_memory(text, strlen(text), "odd", &o, &m);
	if (st == MC_OK)
		st = mc_analyze(m, NULL, &o, &r);
	mc_report_free(r);
	mc_model_free(m);
	return st;
}

/* A call without its operands is reported as one that cannot be sized; whatever else the arguments are, nothing is read that is not there (the sanitizers see that). */
static void
odd_arguments(void **state)
{
	(void)state;
	for (unsigned op = 1; op < OP_COUNT; op++) {
		struct ctx *c = test_ctx();
		struct arg_name names[MAX_SCHEMA];
		bool operand = op_args(op, names, MAX_SCHEMA) && !names[0].dflt.n && (str_eq(names[0].name, S("self")) || str_eq(names[0].name, S("input")) || str_eq(names[0].name, S("tensors")));

		for (unsigned odd = 0; !op_is_onnx(op) && !op_info(op)->prim && odd < ODD_COUNT; odd++) {
			char *text = odd_graph(c->a, op, (enum odd)odd);
			mc_status st = analyse_odd(text);

			if (odd == ODD_MISSING && operand ? st != MC_INCOMPLETE : st != MC_OK && st != MC_INCOMPLETE && st != MC_BAD_INPUT && st != MC_LIMIT)
				fail_msg("%s ends with %d", text, (int)st);
		}
		test_ctx_free(c);
	}
}

/*
 * Attention over [2, 4, 128, 64] bf16: query, key, value and result are 131,072 bytes each, the log-sum-exp [2, 4, 128] fp32 is 4,096. cuDNN and flash attention keep the
 * same, and two numbers each.
 */
static void
cudnn_keeps_what_flash_keeps(void **state)
{
	static const char text[] = "memcrest-ir 1\nparam %w \"w\" : bf16[1] trainable\ninput %x : bf16[2, 4, 128, 64]\n%q : bf16[2, 4, 128, 64] = mul(self=%x, other=%w)\n"
	    "%y : bf16[2, 4, 128, 64] = scaled_dot_product_attention(query=%q, key=%x, value=%x)\n%l : bf16[] = sum(%y)\noutput %l\n";
	static const struct {
		const char *json;
		uint64_t end;          /* of forward: w, x, q, y, log-sum-exp, two numbers, the sum */
	} table[] = {
		{"{\"optimizer\": \"sgd\", \"attention\": \"flash\"}", 3 * 131072 + 4096 + 4 * 512}, {"{\"optimizer\": \"sgd\", \"attention\": \"cudnn\"}", 3 * 131072 + 4096 + 4 * 512},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct analysed a = test_analyse(text, table[i].json);

		assert_int_equal(a.r->r.steps[1].forward_end, table[i].end);
		release_analysis(a);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_compiles), cmocka_unit_test(every_kernel_is_known), cmocka_unit_test(names_are_found), cmocka_unit_test(names_are_unique), cmocka_unit_test(nodes_without_results),
		cmocka_unit_test(saved_sets), cmocka_unit_test(ctc_loss_keeps_alpha), cmocka_unit_test(unknown_keeps_all), cmocka_unit_test(odd_arguments), cmocka_unit_test(cudnn_keeps_what_flash_keeps),
	};

	return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
