/* The text form of a graph: what it prints of a file, read again, prints the same and gives the same answer. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

static const struct file {
	const char *path, *recipe;
	const char *has;           /* what its text must say */
} files[] = {
	{"fixtures/models/autocast.pt2", "{}", " autocast bf16 @\"a\""},
	{"fixtures/models/autocast.pt2", "{\"precision\": \"bf16-mixed\"}", " autocast off @\"b\""},
	{"fixtures/models/toy_vlm.train.pt2", "{\"dims\": {\"batch\": 2, \"seq\": 24}, \"checkpoint\": \"non-reentrant\"}", "sym s72"},
	{"fixtures/models/llama_tiny.train.pt2", "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"precision\": \"bf16\"}", "model.layers.1.mlp.up_proj"},
	{"fixtures/models/llava_tiny.train.pt", "{}", "@\"model\":"},
};

/* To be freed. */
static char *
text_of(const mc_model *m)
{
	struct buf b = {0};

	graph_print(m->g, &b);
	buf_put(&b, "", 1);
	assert_false(b.failed);
	return b.p;
}

static void
round_trip(const struct file *f)
{
	struct analysed a = test_analyse_file(f->path, f->recipe), b;
	char *text = text_of(a.m), *again;

	if (!strstr(text, f->has))
		fail_msg("%s: no \"%s\"", f->path, f->has);
	b = test_analyse(text, f->recipe);
	again = text_of(b.m);
	assert_string_equal(text, again);
	if (mc_report_peak(a.r) != mc_report_peak(b.r))
		fail_msg("%s: %llu, from its text %llu", f->path, (unsigned long long)mc_report_peak(a.r), (unsigned long long)mc_report_peak(b.r));
	release_analysis(a);
	release_analysis(b);
	free(text);
	free(again);
}

static void
round_trips(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		round_trip(&files[i]);
}

static void
nonsense_is_refused(void **unused)
{
	static const char text[] = "memcrest-ir 1\ninput %x : fp32[4]\n%y : fp32[4] = relu(%x) autocast int64\noutput %y\n";
	mc_diagnostic d[1];
	mc_model *m;

	(void)unused;
	assert_int_equal(mc_load_memory(text, sizeof text - 1, "test", NULL, &m), MC_BAD_INPUT);
	assert_int_equal(mc_model_diagnostics(m, d, 1), 1);
	assert_non_null(strstr(d[0].message, "autocast takes a floating-point dtype or off"));
	mc_model_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips), cmocka_unit_test(nonsense_is_refused)};

	return cmocka_run_group_tests_name("print", tests, NULL, NULL);
}
