/* A host program whose locale writes numbers with a comma: what is read and written is the same, to the byte. */
#include "test.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a locale of our own, as no other need be installed ---------------------------------------------------------- */

/* glibc's LC_NUMERIC: a magic number, six offsets, then point, separator and grouping, both again as wide characters, and the character set. */
static void
make_locale(const char *dir)
{
	static const struct {
		uint32_t magic, n, at[6];
		char text[8];
		uint32_t wide[2];
		char charset[6];
	} numeric = {0x20031114, 6, {32, 34, 36, 40, 44, 48}, ",\0.\0\3\3", {',', '.'}, "UTF-8"};
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/comma", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", dir);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(&numeric, 54, 1, f), 1);
	fclose(f);
	setenv("LOCPATH", dir, 1);
}

static void
remove_locale(const char *dir)
{
	char path[256];

	snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", dir);
	unlink(path);
	snprintf(path, sizeof path, "%s/comma", dir);
	rmdir(path);
	rmdir(dir);
	unsetenv("LOCPATH");
}

/* false: this C library keeps its locales otherwise */
static bool
enter_locale(void)
{
	char dir[] = "/tmp/memcrest-locale-XXXXXX", text[8];

	assert_non_null(mkdtemp(dir));
	make_locale(dir);
	if (!setlocale(LC_NUMERIC, "comma")) {
		remove_locale(dir);
		return false;
	}
	remove_locale(dir);
	snprintf(text, sizeof text, "%.1f", 1.5);
	assert_string_equal(text, "1,5");
	assert_true(strtod("2,5", NULL) == 2.5);
	return true;
}

/* ---- everything that is said about one model ------------------------------------------------------------------------- */

static int
collect(void *user, const void *p, size_t n)
{
	buf_put(user, p, n);
	return 0;
}

static void
dumped(void *user, const char *text, size_t n)
{
	buf_put(user, text, n);
}

static void
write_all(const mc_report *r, struct buf *b)
{
	static const char *const formats[] = {"text", "html", "json", "xml", "csv", "md", "dot", "graphml", "perfetto", "events", "sarif"};

	for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
		assert_int_equal(mc_write(r, formats[i], collect, b), MC_OK);
}

static void
write_sweep(const mc_model *m, const mc_recipe *recipe, struct buf *b)
{
	mc_sweep *s;

	assert_int_equal(mc_sweep_new(m, recipe, &s), MC_OK);
	assert_int_equal(mc_sweep_vary(s, "grad_accum", "1,2"), MC_OK);
	mc_sweep_run(s, NULL, 2, NULL, NULL);
	assert_int_equal(mc_sweep_write(s, "text", collect, b), MC_OK);
	mc_sweep_free(s);
}

static char *
everything(const char *path, const char *recipe_json)
{
	struct buf b = {0};
	mc_recipe *recipe = mc_recipe_new();
	mc_report *r = NULL;
	mc_options o;
	mc_model *m;
	mc_status st;

	mc_options_init(&o);
	o.dump_after = "load";
	o.dump = dumped;
	o.dump_user = &b;
	st = mc_load_path(path, &o, &m);
	assert_int_equal(st, MC_OK);
	assert_int_equal(mc_recipe_json(recipe, recipe_json, strlen(recipe_json), NULL), MC_OK);
	st = mc_analyze(m, recipe, &o, &r);
	assert_true(st == MC_OK || st == MC_INCOMPLETE);
	write_all(r, &b);
	write_sweep(m, recipe, &b);
	mc_report_free(r);
	mc_model_free(m);
	mc_recipe_free(recipe);
	buf_put(&b, "", 1);
	assert_false(b.failed);
	return b.p;
}

/* ---- tests --------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *path, *recipe;
} jobs[] = {
	{"fixtures/ir/mixed.ir", "{\"lora\": {\"r\": 4, \"dropout\": 0.25, \"alpha\": 0.5, \"targets\": \"all-linear\"}}"},
	{"fixtures/models/llava_tiny.train.pt2", "{\"dims\": {\"batch\": 2, \"seq\": 700}, \"precision\": \"bf16-mixed\"}"},
	{"fixtures/models/llava_tiny.train.onnx", "{\"dims\": {\"batch\": 2, \"seq\": 700}}"},
	{"fixtures/models/toy_control.scripted.pt", "{}"},
};
#define NJOB (sizeof jobs / sizeof jobs[0])

static void
same(void **state)
{
	char *before[NJOB], *after;

	(void)state;
	for (size_t i = 0; i < NJOB; i++)
		before[i] = everything(jobs[i].path, jobs[i].recipe);
	if (!enter_locale()) {
		for (size_t i = 0; i < NJOB; i++)
			free(before[i]);
		skip();
	}
	for (size_t i = 0; i < NJOB; i++) {
		after = everything(jobs[i].path, jobs[i].recipe);
		assert_string_equal(after, before[i]);
		free(after);
		free(before[i]);
	}
	assert_string_equal(localeconv()->decimal_point, ",");     /* and the host keeps its own */
	setlocale(LC_NUMERIC, "C");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(same)};

	return cmocka_run_group_tests_name("locale", tests, NULL, NULL);
}
