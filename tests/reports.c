/* The models whose reports every format is tested with, and the JSON that a format is held against. */
#include "reports.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *path, *recipe;
} models[] = {
	{"fixtures/models/mlp.pt2", "{\"dims\":{\"batch\":8},\"loss\":\"sum\"}"},
	{"fixtures/models/toy_vlm.train.pt2", "{\"dims\":{\"batch\":2,\"seq\":32},\"precision\":\"bf16-mixed\",\"budget\":\"1MiB\"}"},
	{"fixtures/models/llava_tiny.train.pt2", "{\"dims\":{\"batch\":2,\"seq\":128},\"zero_grad\":\"before-backward\",\"budget\":\"80GiB\"}"},
	{"fixtures/models/llama_tiny.train.opset23.onnx", "{}"},
	{"fixtures/models/gpt2.train.pt", "{}"},
	{"fixtures/models/llava_7b.train.bf16.stack.pt2", "{\"dims\":{\"batch\":8,\"seq\":2048},\"freeze\":[\"model.vision_tower\"]}"},
};
#define NMODEL (sizeof models / sizeof models[0])

static struct test_parsed
parse(size_t i)
{
	struct test_parsed p;
	size_t n;
	char *text;

	p.r = test_report(models[i].path, models[i].recipe, &p.m);
	text = test_write(p.r, "json", &n);
	p.json = json_loads(text, 0, NULL);
	assert_non_null(p.json);
	free(text);
	return p;
}

static void
release(struct test_parsed p)
{
	json_decref(p.json);
	mc_report_free(p.r);
	mc_model_free(p.m);
}

json_int_t
test_number(const json_t *o, const char *a, const char *b, const char *c)
{
	o = json_object_get(o, a);
	o = b ? json_object_get(o, b) : o;
	o = c ? json_object_get(o, c) : o;
	assert_true(json_is_integer(o));
	return json_integer_value(o);
}

void
test_each_model(void (*check)(const struct test_parsed *, const char *text, size_t n), const char *format)
{
	for (size_t i = 0; i < NMODEL; i++) {
		struct test_parsed p = parse(i);
		size_t n;
		char *text = test_write(p.r, format, &n);

		check(&p, text, n);
		free(text);
		release(p);
	}
}

char *
test_hostile(const char *format)
{
	static const char text[] =
	    "memcrest-ir 1\n"
	    "input %x : fp32[4, 16]\n"
	    "param %w \"=a,b|<b>%::`x.weight\" : fp32[16, 16] trainable\n"
	    "%y : fp32[4, 16] = linear(%x, %w) as \"n]]>&\" @\"=a,b|<b>%::`x\":\"Linear\"\n"
	    "output %y\n";
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_recipe *recipe = mc_recipe_new();
	char *out;
	size_t n;

	mc_recipe_set(recipe, "loss", "sum");
	if (mc_load_memory(text, strlen(text), "a:b,c%.ir", NULL, &m) != MC_OK) {
		mc_diagnostic d[1];

		mc_model_diagnostics(m, d, 1);
		fail_msg("%s", d[0].message);
	}
	assert_int_equal(mc_analyze(m, recipe, NULL, &r), MC_OK);
	out = test_write(r, format, &n);
	mc_recipe_free(recipe);
	mc_report_free(r);
	mc_model_free(m);
	return out;
}
