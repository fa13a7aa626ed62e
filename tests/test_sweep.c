/* Sweeps: the columns' values, the grid against single analyses, threads, the search for what fits against trying every number. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char graph[] =
    "memcrest-ir 1\nsym batch 1..\ninput %x : fp32[batch, 256]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\n"
    "%y : fp32[batch, 512] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n";

static mc_model *
load(const char *path)
{
	mc_model *m;

	assert_int_equal(mc_load_path(path, NULL, &m), MC_OK);
	return m;
}

/* ---- columns -------------------------------------------------------------------------------------------------- */

static void
numbers_are(const char *values, const char *want)
{
	mc_model *m = load("fixtures/models/mlp.pt2");
	mc_sweep *s;
	char got[256] = "";
	size_t n = 0;

	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	if (mc_sweep_vary(s, "batch", values) != MC_OK) {
		mc_diagnostic d[2];

		assert_int_equal(mc_sweep_diagnostics(s, d, 2), 1);
		assert_string_equal(d[0].code, "E108");
		assert_string_equal(want, "refused");
	} else {
		for (uint32_t i = 0; i < s->s.axes[0].n; i++)
			n += (size_t)snprintf(got + n, sizeof got - n, "%lld ", (long long)s->s.axes[0].number[i]);
		assert_string_equal(got, want);
	}
	mc_sweep_free(s);
	mc_model_free(m);
}

static void
values(void **state)
{
	(void)state;
	numbers_are("1,2,4..64", "1 2 4 8 16 32 64 ");
	numbers_are("4..64", "4 8 16 32 64 ");
	numbers_are("1,2,3..6", "1 2 3 4 5 6 ");
	numbers_are("10,20,30..65", "10 20 30 40 50 60 ");
	numbers_are("2,4..16", "2 4 8 16 ");                       /* two numbers make no progression yet */
	numbers_are("3..20", "3 6 12 20 ");                        /* the end is always among them */
	numbers_are("512..1500+512", "512 1024 ");
	numbers_are("5", "5 ");
	numbers_are("7..7", "7 ");
	numbers_are("8..4", "refused");
	numbers_are("1..", "refused");
	numbers_are("a", "refused");
	numbers_are("-3", "refused");
	numbers_are("1..9+0", "refused");
	numbers_are("", "refused");
	numbers_are("1..1000000+1", "refused");
	numbers_are("1..99999999999999999999", "refused");
}

/* ---- the grid -------------------------------------------------------------------------------------------------- */

static void
same_as_alone(const mc_model *m, const struct sweep_row *row, const char *json)
{
	mc_recipe *r = mc_recipe_new();
	mc_report *rep;

	assert_int_equal(mc_recipe_json(r, json, strlen(json), NULL), MC_OK);
	assert_int_equal(mc_analyze(m, r, NULL, &rep), MC_OK);
	assert_true(row->ok);
	assert_int_equal(row->tensors, mc_report_peak(rep));
	assert_int_equal(row->allocated, rep->r.memory.allocated);
	assert_int_equal(row->reserved, rep->r.memory.reserved);
	assert_int_equal(row->process_high, rep->r.memory.process_high);
	mc_report_free(rep);
	mc_recipe_free(r);
}

static void
grid(void **state)
{
	mc_model *m = load("fixtures/models/llama_tiny.train.pt2");
	mc_sweep *s;

	(void)state;
	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "batch", "2,3"), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "optimizer", "sgd,adamw"), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "seq", "16,32,64"), MC_OK);
	assert_int_equal(mc_sweep_run(s, NULL, 3, NULL, NULL), MC_OK);
	assert_int_equal(s->s.nrow, 12);
	assert_int_equal(sweep_value(&s->s, 7, 0), 1);
	assert_int_equal(sweep_value(&s->s, 7, 1), 0);
	assert_int_equal(sweep_value(&s->s, 7, 2), 1);
	same_as_alone(m, &s->s.rows[0], "{\"dims\": {\"batch\": 2, \"seq\": 16}, \"optimizer\": \"sgd\"}");
	same_as_alone(m, &s->s.rows[7], "{\"dims\": {\"batch\": 3, \"seq\": 32}, \"optimizer\": \"sgd\"}");
	same_as_alone(m, &s->s.rows[11], "{\"dims\": {\"batch\": 3, \"seq\": 64}, \"optimizer\": \"adamw\"}");
	mc_sweep_free(s);
	mc_model_free(m);
}

struct text {
	char p[65536];
	size_t n;
};

static int
collect(void *user, const void *p, size_t n)
{
	struct text *t = user;

	if (t->n + n >= sizeof t->p)
		return 1;
	memcpy(t->p + t->n, p, n);
	t->n += n;
	return 0;
}

static void
run(const mc_model *m, unsigned threads, const char *format, struct text *out)
{
	mc_sweep *s;

	out->n = 0;
	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "batch", "1..16"), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "seq", "16..128"), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "freeze", ",model.layers.0+model.embed_tokens"), MC_OK);
	assert_int_equal(mc_sweep_run(s, NULL, threads, NULL, NULL), MC_OK);
	assert_int_equal(mc_sweep_write(s, format, collect, out), MC_OK);
	mc_sweep_free(s);
}

/* The file's batch begins at 2, so that some rows say why there are no numbers; and the table does not depend on the number of threads. */
static void
threads_do_not_matter(void **state)
{
	static struct text one, four;
	static const char *const formats[] = {"text", "csv", "json"};
	mc_model *m = load("fixtures/models/llama_tiny.train.pt2");

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		run(m, 1, formats[i], &one);
		run(m, 4, formats[i], &four);
		assert_int_equal(one.n, four.n);
		assert_memory_equal(one.p, four.p, one.n);
	}
	mc_model_free(m);
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static bool
fits(const mc_model *m, int64_t batch, const char *budget)
{
	mc_recipe *r = mc_recipe_new();
	mc_report *rep;
	bool ok;

	assert_int_equal(mc_recipe_set(r, "budget", budget), MC_OK);
	assert_int_equal(mc_recipe_set_dim(r, "batch", batch), MC_OK);
	assert_int_equal(mc_analyze(m, r, NULL, &rep), MC_OK);
	ok = mc_report_fit(rep) == MC_FITS;
	mc_report_free(rep);
	mc_recipe_free(r);
	return ok;
}

static int64_t
search(const mc_model *m, const char *values, const char *budget)
{
	mc_recipe *r = mc_recipe_new();
	mc_sweep *s;
	int64_t found;

	assert_int_equal(mc_recipe_set(r, "budget", budget), MC_OK);
	assert_int_equal(mc_sweep_new(m, r, &s), MC_OK);
	if (values)
		assert_int_equal(mc_sweep_vary(s, "batch", values), MC_OK);
	assert_int_equal(mc_sweep_fit(s, NULL), MC_OK);
	assert_int_equal(mc_sweep_run(s, NULL, 1, NULL, NULL), MC_OK);
	assert_int_equal(s->s.nrow, 1);
	found = s->s.rows[0].found;
	assert_int_equal(mc_sweep_best(s), found ? MC_FITS : MC_DOES_NOT_FIT);
	mc_sweep_free(s);
	mc_recipe_free(r);
	return found;
}

static void
largest_that_fits(void **state)
{
	static const char *const budgets[] = {"30MiB", "50MiB", "111MiB", "300MiB"};
	mc_model *m;

	(void)state;
	assert_int_equal(mc_load_memory(graph, strlen(graph), "test", NULL, &m), MC_OK);
	for (size_t i = 0; i < 4; i++) {
		int64_t found = search(m, NULL, budgets[i]);

		assert_true(found > 0);
		assert_true(fits(m, found, budgets[i]));
		assert_false(fits(m, found + 1, budgets[i]));
	}
	assert_int_equal(search(m, "1..64", "300MiB"), 64);        /* never above the column's largest */
	assert_int_equal(search(m, "1..64", "10MiB"), 0);          /* the first workspace alone is 20 MiB */
	mc_model_free(m);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------------- */

static int
stop_at_two(void *user, size_t done, size_t total)
{
	assert_true(done <= total);
	*(size_t *)user = done;
	return done == 2;
}

static void
failures(void **state)
{
	mc_model *m = load("fixtures/models/llama_tiny.train.pt2");
	mc_diagnostic d[4];
	size_t done = 0;
	mc_sweep *s;

	(void)state;
	assert_int_equal(mc_sweep_new(NULL, NULL, &s), MC_BAD_INPUT);
	mc_sweep_free(s);
	mc_sweep_free(NULL);
	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "optimizer", "sgd,nosuch"), MC_BAD_INPUT);
	mc_sweep_free(s);
	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "nosuch", "1,2"), MC_OK);        /* a dim, until the model is asked */
	assert_int_equal(mc_sweep_run(s, NULL, 1, NULL, NULL), MC_BAD_INPUT);
	assert_int_equal(mc_sweep_diagnostics(s, d, 4), 1);
	assert_string_equal(d[0].code, "E109");
	mc_sweep_free(s);
	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "batch", "2..9+1"), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "seq", "16"), MC_OK);
	assert_int_equal(mc_sweep_run(s, NULL, 1, stop_at_two, &done), MC_BAD_INPUT);
	assert_int_equal(done, 2);
	mc_sweep_free(s);
	assert_int_equal(mc_sweep_new(m, NULL, &s), MC_OK);
	for (int i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof name, "d%d", i);
		assert_int_equal(mc_sweep_vary(s, name, "1..1000+1"), MC_OK);
	}
	assert_int_equal(mc_sweep_run(s, NULL, 1, NULL, NULL), MC_BAD_INPUT);      /* 10^9 configurations */
	mc_sweep_free(s);
	mc_model_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values), cmocka_unit_test(grid), cmocka_unit_test(threads_do_not_matter), cmocka_unit_test(largest_that_fits),
		cmocka_unit_test(failures),
	};

	return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
