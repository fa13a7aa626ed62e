/* The formats that are lines and JSON: each is parsed back, and its totals are those of the JSON report. */
#include "test.h"

#include <jansson.h>
#include <stdio.h>
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

struct parsed {
	mc_model *m;
	mc_report *r;
	json_t *json;
};

static struct parsed
parse(size_t i)
{
	struct parsed p;
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
release(struct parsed p)
{
	json_decref(p.json);
	mc_report_free(p.r);
	mc_model_free(p.m);
}

static json_int_t
number(const json_t *o, const char *a, const char *b, const char *c)
{
	o = json_object_get(o, a);
	o = b ? json_object_get(o, b) : o;
	o = c ? json_object_get(o, c) : o;
	assert_true(json_is_integer(o));
	return json_integer_value(o);
}

static void
each_model(void (*check)(const struct parsed *, const char *text, size_t n), const char *format)
{
	for (size_t i = 0; i < NMODEL; i++) {
		struct parsed p = parse(i);
		size_t n;
		char *text = test_write(p.r, format, &n);

		check(&p, text, n);
		free(text);
		release(p);
	}
}

/* ---- csv ------------------------------------------------------------------------------------------------------------- */

static const char *
column(const char *line, unsigned i)
{
	while (i--) {
		line = strchr(line, ',');
		assert_non_null(line);
		line++;
	}
	return line;
}

static void
check_csv(const struct parsed *p, const char *text, size_t n)
{
	const json_t *modules = json_object_get(p->json, "modules"), *m;
	const char *line = strchr(text, '\n') + 1;
	size_t i;

	(void)n;
	assert_int_equal(strncmp(text, "path,class,modality,parameters,trainable,param,grad,opt,saved,transient,input,act,total,", 86), 0);
	json_array_foreach(modules, i, m) {
		size_t len = strlen(json_string_value(json_object_get(m, "path")));

		assert_int_equal(strncmp(line, json_string_value(json_object_get(m, "path")), len), 0);
		assert_int_equal(atoll(column(line, 3)), number(m, "parameters", NULL, NULL));
		assert_int_equal(atoll(column(line, 5)), number(m, "factors", "param", NULL));
		assert_int_equal(atoll(column(line, 6)), number(m, "factors", "grad", NULL));
		assert_int_equal(atoll(column(line, 7)), number(m, "factors", "opt", NULL));
		assert_int_equal(atoll(column(line, 8)) + atoll(column(line, 9)) + atoll(column(line, 10)), number(m, "factors", "act", NULL));
		if (i == 0)
			assert_int_equal(atoll(column(line, 12)), number(p->json, "peak", "tensors", NULL));
		line = strchr(line, '\n') + 1;
	}
	assert_int_equal(*line, 0);
}

static void
csv(void **state)
{
	(void)state;
	each_model(check_csv, "csv");
}

/* ---- md ----------------------------------------------------------------------------------------------------------------- */

/* "145,881,037,824 bytes" */
static long long
exact(const char *text)
{
	const char *end = strstr(text, " bytes"), *p = end;
	long long n = 0;

	assert_non_null(end);
	while (p > text && (p[-1] == ',' || (p[-1] >= '0' && p[-1] <= '9')))
		p--;
	for (; p < end; p++)
		n = *p == ',' ? n : n * 10 + *p - '0';
	return n;
}

static void
check_md(const struct parsed *p, const char *text, size_t n)
{
	assert_int_equal(exact(text), number(p->json, "peak", "tensors", NULL));
	assert_true(n < 64 << 10);         /* a comment's limit, below a job summary's mebibyte */
	assert_non_null(strstr(text, "| highest point of |"));
}

static void
md(void **state)
{
	(void)state;
	each_model(check_md, "md");
}

/* ---- sarif ---------------------------------------------------------------------------------------------------------------- */

static bool
has_rule(const json_t *rules, const char *id)
{
	const json_t *x;
	size_t i;

	json_array_foreach(rules, i, x)
		if (strcmp(json_string_value(json_object_get(x, "id")), id) == 0)
			return true;
	return false;
}

static void
check_result(const json_t *rules, const json_t *x)
{
	const json_t *where = json_array_get(json_object_get(x, "locations"), 0), *physical = json_object_get(where, "physicalLocation");
	const char *uri = json_string_value(json_object_get(json_object_get(physical, "artifactLocation"), "uri"));

	assert_true(has_rule(rules, json_string_value(json_object_get(x, "ruleId"))));
	assert_int_equal(number(physical, "region", "startLine", NULL), 1);
	assert_true(uri[0] && uri[0] != '/' && !strchr(uri, ' '));
	assert_non_null(json_object_get(json_object_get(x, "message"), "text"));
	assert_int_equal(strlen(json_string_value(json_object_get(json_object_get(x, "partialFingerprints"), "memcrest/v1"))), 16);
	assert_non_null(json_object_get(json_array_get(json_object_get(where, "logicalLocations"), 0), "fullyQualifiedName"));
}

static void
check_sarif(const struct parsed *p, const char *text, size_t n)
{
	json_t *o = json_loadb(text, n, 0, NULL);
	const json_t *run = json_array_get(json_object_get(o, "runs"), 0), *x, *results = json_object_get(run, "results");
	const json_t *rules = json_object_get(json_object_get(json_object_get(run, "tool"), "driver"), "rules"), *verdict = json_object_get(p->json, "verdict");
	bool over = false;
	size_t i;

	assert_string_equal(json_string_value(json_object_get(o, "version")), "2.1.0");
	assert_int_equal(number(json_array_get(results, 0), "properties", "tensors", NULL), number(p->json, "peak", "tensors", NULL));
	assert_int_equal(number(json_array_get(results, 0), "properties", "factors", "opt"), number(p->json, "peak", "factors", "opt"));
	json_array_foreach(results, i, x) {
		check_result(rules, x);
		over |= strcmp(json_string_value(json_object_get(x, "ruleId")), "MEM002") == 0;
	}
	assert_int_equal(over, json_is_object(verdict) && json_is_false(json_object_get(verdict, "fits")));
	assert_true(json_array_size(results) < 25000);
	json_decref(o);
}

static void
sarif(void **state)
{
	(void)state;
	each_model(check_sarif, "sarif");
}

/* ---- github ---------------------------------------------------------------------------------------------------------------- */

static void
check_github(const struct parsed *p, const char *text, size_t n)
{
	unsigned warnings = 0, notices = 0, errors = 0;
	const char *line = text;

	(void)n;
	assert_int_equal(exact(text), number(p->json, "peak", "tensors", NULL));
	for (; *line; line = strchr(line, '\n') + 1) {
		errors += strncmp(line, "::error file=", 13) == 0;
		warnings += strncmp(line, "::warning file=", 15) == 0;
		notices += strncmp(line, "::notice file=", 14) == 0;
		assert_non_null(strstr(line, ",line=1,title="));
	}
	assert_true(warnings <= 10 && notices <= 10 && errors <= 10 && warnings + notices + errors > 0);
}

static void
github(void **state)
{
	(void)state;
	each_model(check_github, "github");
}

/* ---- names that are hostile to a format --------------------------------------------------------------------------------------- */

static char *
hostile(const char *format)
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

static void
escapes(void **state)
{
	char *text;

	(void)state;
	text = hostile("csv");
	assert_non_null(strstr(text, "\n\"'=a,b|<b>%::`x\",Linear,"));
	free(text);
	text = hostile("md");
	assert_non_null(strstr(text, "| =a,b\\|&lt;b&gt;%::\\`x |"));
	free(text);
	text = hostile("github");
	assert_non_null(strstr(text, "file=a%3Ab%2Cc%25.ir,line=1,title="));
	assert_non_null(strstr(text, "title==a%2Cb|<b>%25%3A%3A`x::"));
	free(text);
	text = hostile("sarif");
	assert_non_null(strstr(text, "\"uri\": \"a%3Ab%2Cc%25.ir\""));
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(csv), cmocka_unit_test(md), cmocka_unit_test(sarif), cmocka_unit_test(github), cmocka_unit_test(escapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
