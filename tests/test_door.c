/* The public functions' door: memory that runs out, limits, our own mistakes and refusing sinks become a status and a diagnostic. */
#include "test.h"

#include <string.h>

static void
expect_last(const struct ctx *c, unsigned code)
{
	const struct diag *d = c->last_words.code ? &c->last_words : &c->diags[c->ndiag - 1];

	assert_string_equal(diag_name(d->code), diag_name(code));
	assert_true(d->text.n > 0);
}

static bool
ask_for_much(void *arg)
{
	struct ctx *c = arg;

	return NEW(c->a, char, (size_t)1 << 50) != NULL;
}

/* E008 */
static void
memory_runs_out(void **state)
{
	mc_options o;
	struct ctx c;

	(void)state;
	mc_options_init(&o);
	o.max_memory = UINT64_MAX;
	assert_true(ctx_open(&c, &o));
	assert_int_equal(ctx_enter(&c, ask_for_much, &c), MC_NO_MEMORY);
	expect_last(&c, DIAG_NO_MEMORY);
	ctx_close(&c);
}

/* E007 */
static void
limit_is_kept(void **state)
{
	struct ctx c;

	(void)state;
	assert_true(ctx_open(&c, NULL));
	assert_int_equal(ctx_enter(&c, ask_for_much, &c), MC_LIMIT);
	expect_last(&c, DIAG_LIMIT_MEMORY);
	ctx_close(&c);
}

/* E901: a node that uses what is made behind it */
static void
broken_graph_is_seen(void **state)
{
	struct ctx *c = test_ctx();
	struct graph *g = graph_new(c);
	uint32_t n, v;

	(void)state;
	n = node_new(g, OP_RELU, 1, 1);
	v = val_new(g, VAL_NODE, S("y"));
	g->vals[v].node = n;
	node_outs(g, n)[0] = v;
	*node_args(g, n) = arg_val(v);
	assert_false(graph_verify(g, "test"));
	expect_last(c, DIAG_INTERNAL);
	test_ctx_free(c);
}

static int
refuse(void *user, const void *p, size_t n)
{
	(void)p;
	(void)n;
	++*(int *)user;
	return 1;
}

static void
refusing_sink(void **state)
{
	struct analysed a = test_analyse("memcrest-ir 1\nparam %w \"w\" : fp32[4] trainable\n%l : fp32[] = sum(%w)\noutput %l\n", "{}");
	static const char *const formats[] = {"text", "json", "events"};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		int calls = 0;

		assert_int_equal(mc_write(a.r, formats[i], refuse, &calls), MC_BAD_INPUT);
		assert_int_equal(calls, 1);
	}
	assert_int_equal(mc_write(a.r, "nosuch", refuse, NULL), MC_BAD_INPUT);
	release_analysis(a);
}

static void
nothing_is_freed_safely(void **state)
{
	mc_report *r;

	(void)state;
	mc_model_free(NULL);
	mc_recipe_free(NULL);
	mc_report_free(NULL);
	assert_int_equal(mc_model_diagnostics(NULL, NULL, 0), 0);
	assert_int_equal(mc_analyze(NULL, NULL, NULL, &r), MC_BAD_INPUT);
	assert_null(r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_runs_out), cmocka_unit_test(limit_is_kept), cmocka_unit_test(broken_graph_is_seen), cmocka_unit_test(refusing_sink),
		cmocka_unit_test(nothing_is_freed_safely),
	};

	return cmocka_run_group_tests_name("door", tests, NULL, NULL);
}
