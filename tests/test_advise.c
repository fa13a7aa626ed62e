/*
 * advise: every change that it prints gives, when the recipe is changed that way and analysed alone, the peak that was printed; and sharding over
 * more ranks does not take more.
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "fixtures/models/llava_tiny.train.pt2"

/* "--dim batch=4 --checkpoint non-reentrant", as the command line reads it */
static void
apply(mc_recipe *r, const char *change)
{
	char text[400], *save = NULL;

	assert_true(strlen(change) < sizeof text);
	strcpy(text, change);
	for (char *flag = strtok_r(text, " ", &save); flag; flag = strtok_r(NULL, " ", &save)) {
		char *value = strtok_r(NULL, " ", &save), *eq;

		assert_non_null(value);
		if (strcmp(flag, "--dim") == 0) {
			eq = strchr(value, '=');
			*eq = 0;
			assert_int_equal(mc_recipe_set_dim(r, value, atoll(eq + 1)), MC_OK);
		} else {
			assert_int_equal(mc_recipe_set(r, flag + 2, value), MC_OK);
		}
	}
}

/* One flag's value as JSON: numbers and booleans as they are, patterns as a list. */
static void
as_json(char *out, size_t cap, const char *key, const char *value)
{
	const char *dot = strchr(key, '.'), *left = dot ? dot + 1 : key;
	bool plain = value[strspn(value, "0123456789.")] == 0 || strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
	char text[300];
	size_t n = 0;

	if (strcmp(key, "freeze") == 0) {
		n = (size_t)snprintf(text, sizeof text, "[\"");
		for (const char *p = value; *p; p++)
			n += (size_t)snprintf(text + n, sizeof text - n, *p == ',' ? "\", \"" : "%c", *p);
		snprintf(text + n, sizeof text - n, "\"]");
	} else
		snprintf(text, sizeof text, plain ? "%s" : "\"%s\"", value);
	if (dot)
		snprintf(out, cap, "{\"%.*s\": {\"%s\": %s}}", (int)(dot - key), key, left, text);
	else
		snprintf(out, cap, "{\"%s\": %s}", left, text);
}

/* The same change as recipe files, one for each flag. */
static void
apply_files(mc_recipe *r, const char *change)
{
	char text[400], json[600], dims[300], *save = NULL;

	assert_true(strlen(change) < sizeof text);
	strcpy(text, change);
	for (char *flag = strtok_r(text, " ", &save); flag; flag = strtok_r(NULL, " ", &save)) {
		char *value = strtok_r(NULL, " ", &save), *eq = strchr(value, '=');

		if (strcmp(flag, "--dim") == 0) {
			snprintf(dims, sizeof dims, "dims.%.*s", (int)(eq - value), value);
			as_json(json, sizeof json, dims, eq + 1);
		} else
			as_json(json, sizeof json, flag + 2, value);
		assert_int_equal(mc_recipe_json(r, json, strlen(json), "change"), MC_OK);
	}
}

static mc_recipe *
base_recipe(void)
{
	static const char text[] = "{\"dims\": {\"batch\": 8, \"seq\": 64}, \"freeze\": [\"model.vision_tower\"], \"budget\": 60000000}";
	mc_recipe *r = mc_recipe_new();

	assert_int_equal(mc_recipe_json(r, text, strlen(text), "recipe"), MC_OK);
	return r;
}

static void
changes_are_reproducible(void **state)
{
	mc_model *m;
	mc_recipe *r = base_recipe();
	mc_sweep *s;

	(void)state;
	assert_int_equal(mc_load_path(MODEL, NULL, &m), MC_OK);
	assert_int_equal(mc_advise(m, r, NULL, 2, NULL, NULL, &s), MC_OK);
	assert_true(s->s.nrow >= 5);
	assert_int_equal(mc_sweep_best(s), MC_FITS);
	for (uint32_t k = 0; k < 2 * s->s.nrow; k++) {
		mc_recipe *changed = base_recipe();
		uint32_t i = k / 2;
		mc_report *rep;

		(k % 2 ? apply_files : apply)(changed, s->s.advice[i].change.p);
		assert_int_equal(mc_analyze(m, changed, NULL, &rep), MC_OK);
		assert_int_equal(mc_report_peak(rep), s->s.rows[i].tensors);
		assert_int_equal(rep->r.memory.reserved, s->s.rows[i].reserved);
		assert_true(s->s.rows[i].reserved < s->s.now.reserved);
		mc_report_free(rep);
		mc_recipe_free(changed);
	}
	mc_sweep_free(s);
	mc_recipe_free(r);
	mc_model_free(m);
}

/* Everything that is known to help is there, alone or on top of something. */
static void
kinds_of_changes(void **state)
{
	static const char *const kinds[] = {"--checkpoint non-reentrant", "--dim batch=8 --grad_accum 2", "--freeze model.vision_tower,", "--fused_loss true", "--parallel.strategy zero2",
	    "--parallel.strategy zero3", "--parallel.tp 2", "--offload.activations true", "--optimizer adamw-8bit", "--lora.r 16 --lora.targets all-linear",
	    "--lora.r 16 --lora.targets all-linear --quantize nf4"};
	mc_model *m;
	mc_recipe *r = base_recipe();
	mc_sweep *s;

	(void)state;
	assert_int_equal(mc_recipe_set_dim(r, "batch", 16), MC_OK);
	assert_int_equal(mc_recipe_set_dim(r, "seq", 256), MC_OK);
	assert_int_equal(mc_recipe_set(r, "parallel.reduce_bucket", "100000"), MC_OK);
	assert_int_equal(mc_load_path(MODEL, NULL, &m), MC_OK);
	assert_int_equal(mc_advise(m, r, NULL, 1, NULL, NULL, &s), MC_OK);
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
		bool found = false;

		for (uint32_t i = 0; i < s->s.nrow; i++)
			found |= strstr(s->s.advice[i].change.p, kinds[k]) != NULL;
		if (!found)
			fail_msg("no row for %s", kinds[k]);
	}
	mc_sweep_free(s);
	mc_recipe_free(r);
	mc_model_free(m);
}

/* What can be typed after what is printed: the rows that fit come first. */
static void
what_fits_is_first(void **state)
{
	mc_model *m;
	mc_recipe *r = base_recipe();
	mc_sweep *s;
	bool fits = true;

	(void)state;
	assert_int_equal(mc_load_path(MODEL, NULL, &m), MC_OK);
	assert_int_equal(mc_advise(m, r, NULL, 1, NULL, NULL, &s), MC_OK);
	for (uint32_t i = 0; i < s->s.nrow; i++) {
		bool now = verdict_fit(&s->s.rows[i].verdict) == MC_FITS;

		assert_true(fits || !now);
		fits = now;
	}
	mc_sweep_free(s);
	mc_recipe_free(r);
	mc_model_free(m);
}

/* ---- more ranks ----------------------------------------------------------------------------------------------------------- */

/* What several parameters have together is given to all of them, and to nobody twice. */
static void
assert_all_attributed(const struct report *r)
{
	uint64_t n = 0, plain = 0;

	for (unsigned m = 0; m < MOD_COUNT; m++) {
		n += m ? factors_total(&r->modalities[m].at) : 0;
		plain += m ? factors_total(&r->modalities[m].plain) : 0;
	}
	assert_int_equal(n, r->steps[r->peak_step].tensors);
	assert_int_equal(factors_total(&r->modules[0].at), n);
	assert_int_equal(plain, factors_total(&r->plain));
}

static uint64_t
peak_of(const char *strategy, unsigned ways, const char *more)
{
	char recipe[500];
	struct analysed a;
	uint64_t n;

	snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"parallel\": {\"strategy\": \"%s\", \"dp\": %u, \"reduce_bucket\": 500000}%s}", strategy, ways, more);
	a = test_analyse_file(MODEL, recipe);
	n = mc_report_peak(a.r);
	assert_all_attributed(&a.r->r);
	release_analysis(a);
	return n;
}

/*
 * From two ranks on: one rank needs no gathering, so that the first step from one to two may cost (distributed.md). Padding may add a row of a
 * parameter: less than 64 KiB here.
 */
static void
more_ranks_take_no_more(void **state)
{
	static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};
	static const char *const more[] = {"", ", \"precision\": \"bf16-mixed\"", ", \"freeze\": [\"model.vision_tower\"], \"checkpoint\": \"non-reentrant\"", ", \"grad_accum\": 2"};

	(void)state;
	for (unsigned i = 0; i < sizeof strategies / sizeof *strategies; i++)
		for (unsigned k = 0; k < sizeof more / sizeof *more; k++) {
			uint64_t before = peak_of(strategies[i], 2, more[k]);

			for (unsigned ways = 3; ways <= 17; ways += ways < 4 ? 1 : 13) {
				uint64_t now = peak_of(strategies[i], ways, more[k]);

				if (now > before + 65536)
					fail_msg("%s%s: %u ranks take %llu, fewer %llu", strategies[i], more[k], ways, (unsigned long long)now, (unsigned long long)before);
				before = now;
			}
		}
}

/* A stage that shards more is not above one that shards less, on what it shards: optimizer and gradients at the step. */
static void
later_stages_shard_more(void **state)
{
	static const char *const strategies[] = {"zero1", "zero2", "zero3"};
	uint64_t before = UINT64_MAX;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		char recipe[300];
		struct analysed a;
		const struct factors *f;

		snprintf(recipe, sizeof recipe, "{\"precision\": \"bf16\", \"dims\": {\"batch\": 2, \"seq\": 64}, \"parallel\": {\"strategy\": \"%s\", \"dp\": 4, \"reduce_bucket\": 1000}}",
		    strategies[i]);
		a = test_analyse_file(MODEL, recipe);
		f = &a.r->r.steps[2].phases[PH_FORWARD].at;
		assert_true(f->of[FAC_OPT] + f->of[FAC_GRAD] + (i < 2 ? f->of[FAC_PARAM] : 0) <= before);
		before = f->of[FAC_OPT] + f->of[FAC_GRAD] + f->of[FAC_PARAM];
		release_analysis(a);
	}
}

/* ---- pipelines ------------------------------------------------------------------------------------------------------------ */

static struct factors
saved_at(const char *parallel, uint64_t *peak)
{
	char recipe[500];
	struct analysed a;
	struct factors f;

	snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"optimizer\": \"sgd\", \"parallel\": {%s}}", parallel);
	a = test_analyse_file("fixtures/models/llama_tiny4.train.onnx", recipe);
	f = a.r->r.steps[2].phases[PH_FORWARD].at;
	*peak = mc_report_peak(a.r);
	assert_false(a.r->r.lower_bound);
	release_analysis(a);
	return f;
}

/*
 * Four blocks of 2,900,992 parameters, an embedding and a head of 1,048,576 each and a norm of 512, fp32: of two stages the first has 6,850,560 and the last
 * 6,851,072 parameters. 1f1b keeps two micro-batches however many there are, gpipe all of them.
 */
static void
pipelines(void **state)
{
	const uint64_t first = 6850560 * 4, last = 6851072 * 4, buffer = 512;   /* of the rotary table */
	uint64_t one, two, eight, all, stages;
	struct factors f;

	(void)state;
	saved_at("\"pp\": 1", &one);
	f = saved_at("\"pp\": 2, \"microbatches\": 2", &two);
	assert_true(f.of[FAC_PARAM] == first + buffer || f.of[FAC_PARAM] == last + buffer);
	saved_at("\"pp\": 2, \"microbatches\": 8", &eight);
	saved_at("\"pp\": 2, \"microbatches\": 8, \"schedule\": \"gpipe\"", &all);
	saved_at("\"pp\": 4, \"microbatches\": 8", &stages);
	assert_true(two < one && two <= eight && eight < all && stages < eight);
	saved_at("\"pp\": 2, \"microbatches\": 8, \"schedule\": \"interleaved\"", &two);
	assert_true(two < all);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_are_reproducible), cmocka_unit_test(kinds_of_changes), cmocka_unit_test(what_fits_is_first), cmocka_unit_test(more_ranks_take_no_more),
		cmocka_unit_test(later_stages_shard_more), cmocka_unit_test(pipelines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
