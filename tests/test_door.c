/* The public functions' door: memory that runs out, limits, our own mistakes and refusing sinks become a status and a diagnostic. */
#include "test.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MLP "fixtures/models/mlp.pt2"

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

static int
gather(void *user, const void *data, size_t n)
{
	struct test_buf *b = user;
	char *p = realloc(b->p, b->n + n);

	if (!p)
		return 1;
	memcpy(p + b->n, data, n);
	b->p = p;
	b->n += n;
	return 0;
}

/* Whoever goes on after a call that gave nothing gets a status, not a crash. */
static void
nothing_is_answered(void **state)
{
	uint64_t n;

	(void)state;
	assert_null(mc_recipe_copy(NULL));
	assert_int_equal(mc_recipe_set(NULL, "precision", "bf16"), MC_BAD_INPUT);
	assert_int_equal(mc_recipe_set_dim(NULL, "batch", 1), MC_BAD_INPUT);
	assert_int_equal(mc_recipe_json(NULL, "{}", 2, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_recipe_file(NULL, "peft", "{}", 2, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_report_peak(NULL), 0);
	assert_int_equal(mc_report_fit(NULL), MC_NOT_ASKED);
	assert_int_equal(mc_report_number(NULL, "tensors", &n), MC_BAD_INPUT);
	assert_int_equal(mc_sweep_vary(NULL, "batch", "1"), MC_BAD_INPUT);
	assert_int_equal(mc_sweep_fit(NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_sweep_run(NULL, NULL, 1, NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_sweep_best(NULL), MC_NOT_ASKED);
	assert_int_equal(mc_sweep_has_format(NULL) + mc_diff_has_format(NULL) + mc_has_format(NULL), 0);
	assert_int_equal(mc_diff_write(NULL, "text", refuse, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_diff_same(NULL), 0);
	assert_true(mc_diff_error(NULL) == 0);
	assert_int_equal(mc_list(NULL, refuse, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_list("formats", NULL, NULL), MC_BAD_INPUT);
}

static void
nowhere_to_put_it(void **state)
{
	mc_report *r;
	mc_model *m;
	mc_diff *d;

	(void)state;
	assert_int_equal(mc_load_path("none", NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_load_path(NULL, NULL, &m), MC_BAD_INPUT);
	assert_int_equal(mc_model_diagnostics(m, NULL, 0), 1);
	assert_int_equal(mc_sweep_new(m, NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_advise(m, NULL, NULL, 1, NULL, NULL, NULL), MC_BAD_INPUT);
	mc_model_free(m);
	assert_int_equal(mc_load_path(MLP, NULL, &m), MC_OK);
	assert_int_equal(mc_analyze(m, NULL, NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_analyze(m, NULL, NULL, &r), MC_INCOMPLETE);
	assert_int_equal(mc_write(r, "text", NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_write(r, NULL, refuse, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_report_number(r, NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_diff_measured(r, "junk", 4, "junk", NULL), MC_BAD_INPUT);
	mc_report_free(r);
	mc_model_free(m);
	assert_int_equal(mc_diff_measured(NULL, "junk", 4, "junk", &d), MC_BAD_INPUT);
	assert_int_equal(mc_diff_same(d), 0);
	mc_diff_free(d);
}

/* What could not be compared is not the same, and nothing is written of it. The names of what is compared need not stay. */
static void
failed_differences(void **state)
{
	static const char json[] = "{\"schema\": \"memcrest/report\", \"peak\": {\"tensors\": 512}}";
	char name[] = "first", *text = strdup(json);
	struct test_buf out = {NULL, 0, 0};
	mc_diff *d;

	(void)state;
	assert_int_equal(mc_diff_reports("x", 1, "a", "y", 1, "b", &d), MC_BAD_INPUT);
	assert_int_equal(mc_diff_same(d), 0);
	assert_int_equal(mc_diff_write(d, "text", gather, &out), MC_BAD_INPUT);
	mc_diff_free(d);
	assert_int_equal(mc_diff_reports(text, strlen(text), name, text, strlen(text), name, &d), MC_OK);
	memset(name, '?', sizeof name - 1);
	memset(text, '?', strlen(text));
	free(text);
	assert_int_equal(mc_diff_same(d), 1);
	assert_int_equal(mc_diff_write(d, "text", gather, &out), MC_OK);
	assert_non_null(memmem(out.p, out.n, "first", 5));
	assert_null(memmem(out.p, out.n, "?", 1));
	free(out.p);
	mc_diff_free(d);
}

/* Recipes count, but for a key that only one of the reports has, as those of another version. */
static void
differing_recipes(void **state)
{
	static const char form[] = "{\"schema\": \"memcrest/report\", \"peak\": {\"tensors\": 512}, \"recipe\": {%s}}";
	static const struct {
		const char *a, *b;
		int same;
	} table[] = {
		{"\"loss\": \"sum\"", "\"loss\": \"sum\"", 1}, {"\"loss\": \"sum\"", "\"loss\": \"mse\"", 0}, {"\"loss\": \"sum\"", "\"loss\": \"sum\", \"new\": 1", 1},
		{"\"lora\": {\"r\": 1, \"old\": 2}", "\"lora\": {\"r\": 1}", 1}, {"\"lora\": {\"r\": 1}", "\"lora\": {\"r\": 2}", 0}, {"\"freeze\": []", "\"freeze\": [\"a\"]", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char a[200], b[200];
		mc_diff *d;

		snprintf(a, sizeof a, form, table[i].a);
		snprintf(b, sizeof b, form, table[i].b);
		assert_int_equal(mc_diff_reports(a, strlen(a), "a", b, strlen(b), "b", &d), MC_OK);
		assert_int_equal(mc_diff_same(d), table[i].same);
		mc_diff_free(d);
	}
}

/* A program that was built with an older header knows the first fields only; what it set counts in sweeps, too. */
static void
older_structs(void **state)
{
	mc_options o;
	mc_model *m;
	mc_sweep *s;
	mc_view v;
	mc_report *r;
	struct test_buf some = {NULL, 0, 0}, all = {NULL, 0, 0};

	(void)state;
	mc_options_init(&o);
	o.size = offsetof(mc_options, max_file);
	o.max_memory = 4096;
	assert_int_equal(mc_load_path(MLP, NULL, &m), MC_OK);
	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "batch", "1,2"), MC_OK);
	assert_int_equal(mc_sweep_run(s, &o, 1, NULL, NULL), MC_BAD_INPUT);
	mc_sweep_free(s);
	mc_view_init(&v);
	v.size = offsetof(mc_view, width);
	v.depth = 1;
	assert_int_equal(mc_analyze(m, NULL, NULL, &r), MC_INCOMPLETE);
	assert_int_equal(mc_write_view(r, "dot", &v, gather, &some), MC_OK);
	v.size = sizeof v;
	assert_int_equal(mc_write_view(r, "dot", &v, gather, &all), MC_OK);
	assert_true(some.n == all.n && memcmp(some.p, all.p, some.n) == 0);
	some.n = 0;
	assert_int_equal(mc_write_view(r, "dot", NULL, gather, &some), MC_OK);
	assert_true(some.n != all.n);          /* so that a depth which is not heard would be seen */
	free(some.p);
	free(all.p);
	mc_report_free(r);
	mc_model_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_runs_out), cmocka_unit_test(limit_is_kept), cmocka_unit_test(broken_graph_is_seen), cmocka_unit_test(refusing_sink),
		cmocka_unit_test(nothing_is_freed_safely), cmocka_unit_test(nothing_is_answered), cmocka_unit_test(nowhere_to_put_it), cmocka_unit_test(failed_differences), cmocka_unit_test(differing_recipes),
		cmocka_unit_test(older_structs),
	};

	return cmocka_run_group_tests_name("door", tests, NULL, NULL);
}
