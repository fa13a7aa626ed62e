/* Recipes: every default is a value of its key; JSON, flags and dotted names set the same thing; errors name what is allowed. */
#include "test.h"

#include <stdio.h>
#include <string.h>

static void
defaults_are_values(void **state)
{
	mc_recipe *r = mc_recipe_new();
	struct recipe dflt;

	(void)state;
	recipe_init(&dflt);
	for (unsigned k = 1; k < RK_COUNT; k++) {
		const struct key_info *x = key_info(k);

		if (!*x->dflt)
			continue;
		if (mc_recipe_set(r, x->name, x->dflt) != MC_OK)
			fail_msg("%s = %s", x->name, x->dflt);
		assert_int_equal(r->r.v[k].i, dflt.v[k].i);
	}
	mc_recipe_free(r);
}

static void
every_choice_is_set_and_printed(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	for (unsigned k = 1; k < RK_COUNT; k++)
		for (int64_t i = 0; key_info(k)->type == RT_CHOICE && choice_text(k, i).n; i++) {
			char text[64];
			struct str s = choice_text(k, i);

			memcpy(text, s.p, s.n);
			text[s.n] = 0;
			assert_int_equal(mc_recipe_set(r, key_info(k)->name, text), MC_OK);
			assert_int_equal(r->r.v[k].i, i);
		}
	mc_recipe_free(r);
}

static void
numbers_have_ends(void **state)
{
	static const char *const bad[][2] = {{"grad_accum", "0"}, {"grad_accum", "-1"}, {"grad_accum", "2147483648"}, {"lora.r", "-1"}, {"lora.dropout", "--1"}, {"lora.dropout", "0.-5"},
	    {"lora.dropout", "-"}, {"lora.dropout", "nan"}, {"lora.dropout", "5"}, {"lora.dropout", "-0.1"}, {"parallel.gradient_clipping", "-3"}};
	mc_recipe *r;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		r = mc_recipe_new();
		assert_int_equal(mc_recipe_set(r, bad[i][0], bad[i][1]), MC_BAD_INPUT);
		mc_recipe_free(r);
	}
	r = mc_recipe_new();
	assert_int_equal(mc_recipe_set(r, "allocator.garbage_collection_threshold", "-0.5"), MC_OK);
	assert_true(r->r.v[RK_ALLOC_GC].f < -0.49);
	assert_int_equal(mc_recipe_set(r, "allocator.garbage_collection_threshold", "-3.25"), MC_OK);
	assert_true(r->r.v[RK_ALLOC_GC].f < -3.24);
	for (int i = 1; i < 5000; i++) {
		char name[16];

		snprintf(name, sizeof name, "d%d", i);
		assert_int_equal(mc_recipe_set_dim(r, name, i), MC_OK);
	}
	assert_int_equal(r->r.ndim, 4999);
	assert_int_equal(r->r.dims[4998].value, 4999);
	mc_recipe_free(r);
}

static void
json_and_flags_agree(void **state)
{
	static const char json[] = "{\"precision\": \"bf16\", \"freeze\": [\"a\", \"b.c\"], \"lora\": {\"r\": 8, \"dropout\": 0.05, \"targets\": [\"q\"]}, \"padding\": true, "
	    "\"checkpoint\": false, \"input_require_grads\": true, \"grad_accum\": 4, \"dims\": {\"batch\": 8, \"ids[1]\": 64}}";
	mc_recipe *a = mc_recipe_new(), *b = mc_recipe_new();

	(void)state;
	assert_int_equal(mc_recipe_json(a, json, strlen(json), NULL), MC_OK);
	assert_int_equal(mc_recipe_set(b, "precision", "bf16"), MC_OK);
	assert_int_equal(mc_recipe_set(b, "freeze", "a,b.c"), MC_OK);
	assert_int_equal(mc_recipe_set(b, "lora", "{\"r\": 8, \"targets\": [\"q\"]}"), MC_OK);
	assert_int_equal(mc_recipe_set(b, "lora-dropout", "0.05"), MC_OK);
	assert_int_equal(mc_recipe_set(b, "padding", "true"), MC_OK);
	assert_int_equal(mc_recipe_set(b, "input-require-grads", "true"), MC_OK);
	assert_int_equal(mc_recipe_set(b, "grad_accum", "4"), MC_OK);
	assert_int_equal(mc_recipe_set_dim(b, "batch", 8), MC_OK);
	assert_int_equal(mc_recipe_set_dim(b, "ids[1]", 64), MC_OK);
	for (unsigned k = 1; k < RK_COUNT; k++) {
		assert_int_equal(a->r.v[k].nlist, b->r.v[k].nlist);
		for (uint32_t i = 0; i < a->r.v[k].nlist; i++)
			assert_true(str_eq(a->r.v[k].list[i], b->r.v[k].list[i]));
		if (key_info(k)->type != RT_LIST)
			assert_int_equal(a->r.v[k].i, b->r.v[k].i);
		assert_true(a->r.v[k].f - b->r.v[k].f < 1e-12 && b->r.v[k].f - a->r.v[k].f < 1e-12);
	}
	assert_int_equal(a->r.ndim, 2);
	assert_int_equal(a->r.dims[1].value, b->r.dims[1].value);
	mc_recipe_free(a);
	mc_recipe_free(b);
}

static void
later_wins(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	assert_int_equal(mc_recipe_json(r, "{\"optimizer\": \"sgd\", \"dims\": {\"batch\": 1}}", 42, NULL), MC_OK);
	assert_int_equal(mc_recipe_json(r, "{\"optimizer\": \"adam\", \"dims\": {\"batch\": 2}}", 43, NULL), MC_OK);
	assert_int_equal(r->r.v[RK_OPTIMIZER].i, 1);
	assert_int_equal(r->r.ndim, 1);
	assert_int_equal(r->r.dims[0].value, 2);
	mc_recipe_free(r);
}

static void
errors_name_key_and_values(void **state)
{
	static const struct {
		const char *json, *says;
	} cases[] = {
		{"{\"precission\": \"bf16\"}", "precission"},
		{"{\"precision\": \"bf17\"}", "bf16-mixed"},
		{"{\"precision\": 3}", "3 is not allowed"},
		{"{\"freeze\": [1]}", "list of strings"},
		{"{\"lora\": {\"rank\": 8}}", "lora.rank"},
		{"{\"lora\": 8}", "an object"},
		{"{\"dims\": {\"batch\": 0}}", "batch = 0"},
		{"{\"dims\": {\"batch\": \"x\"}}", "a whole number from 1"},
		{"{\"optimizer\": \"sgd\", \"optimizer\": \"adamw\"}", "optimizer is given twice"},
		{"{\"lora\": {\"r\": 8, \"r\": 4}}", "r is given twice"},
		{"{\"dims\": {\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1,\"k\":1,\"l\":1,\"k\":2}}", "k is given twice"},
		{"{\"dims\": {\"batch\": 2.0}}", "batch = 2.0 is not allowed"},
		{"{\"grad_accum\": -1}", "-1 is not allowed"},
		{"{\"padding\": \"maybe\"}", "true, false"},
		{"[1]", "an object"},
		{"{", "line 1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		mc_recipe *r = mc_recipe_new();
		mc_diagnostic d[4];

		assert_int_equal(mc_recipe_json(r, cases[i].json, strlen(cases[i].json), "r.json"), MC_BAD_INPUT);
		assert_int_equal(mc_recipe_diagnostics(r, d, 4), 1);
		if (!strstr(d[0].message, cases[i].says))
			fail_msg("%s: %s", cases[i].json, d[0].message);
		mc_recipe_free(r);
	}
}

/* What is refused changes nothing, and the next call may go well. */
static void
going_on(void **state)
{
	static const char half[] = "{\"dims\":{\"batch\":4,\"seq\":16},\"optimizer\":\"sgd\",\"grad_accum\":0}";
	mc_recipe *r = mc_recipe_new();
	mc_report *rep = NULL;
	mc_model *m = NULL;

	(void)state;
	assert_int_equal(mc_load_path("fixtures/models/mlp.pt2", NULL, &m), MC_OK);
	assert_int_equal(mc_recipe_set_dim(r, "batch", 8), MC_OK);
	assert_int_equal(mc_recipe_json(r, half, strlen(half), NULL), MC_BAD_INPUT);
	assert_int_equal(r->r.ndim, 1);
	assert_int_equal(r->r.dims[0].value, 8);
	assert_false(r->r.v[RK_OPTIMIZER].set);
	assert_int_equal(mc_recipe_set(r, "precision", "fp31"), MC_BAD_INPUT);
	assert_int_equal(mc_recipe_set_dim(r, "seq", 0), MC_BAD_INPUT);
	assert_int_equal(mc_recipe_set(r, "precision", "bf16"), MC_OK);
	assert_int_equal(mc_recipe_diagnostics(r, NULL, 0), 3);
	assert_int_equal(mc_analyze(m, r, NULL, &rep), MC_OK);
	mc_report_free(rep);
	mc_recipe_free(r);
	mc_model_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(going_on), cmocka_unit_test(defaults_are_values), cmocka_unit_test(every_choice_is_set_and_printed), cmocka_unit_test(numbers_have_ends), cmocka_unit_test(json_and_flags_agree),
		cmocka_unit_test(later_wins), cmocka_unit_test(errors_name_key_and_values),
	};

	return cmocka_run_group_tests_name("recipe", tests, NULL, NULL);
}
