/* The formats that are lines and JSON: each is parsed back, and its totals are those of the JSON report. */
#include "reports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
check_csv(const struct test_parsed *p, const char *text, size_t n)
{
	const json_t *modules = json_object_get(p->json, "modules"), *m;
	const char *line = strchr(text, '\n') + 1;
	size_t i;

	(void)n;
	assert_int_equal(strncmp(text, "path,class,modality,parameters,trainable,param,grad,opt,saved,transient,input,act,total,", 86), 0);
	json_array_foreach(modules, i, m) {
		size_t len = strlen(json_string_value(json_object_get(m, "path")));

		assert_int_equal(strncmp(line, json_string_value(json_object_get(m, "path")), len), 0);
		assert_int_equal(atoll(column(line, 3)), test_number(m, "parameters", NULL, NULL));
		assert_int_equal(atoll(column(line, 5)), test_number(m, "factors", "param", NULL));
		assert_int_equal(atoll(column(line, 6)), test_number(m, "factors", "grad", NULL));
		assert_int_equal(atoll(column(line, 7)), test_number(m, "factors", "opt", NULL));
		assert_int_equal(atoll(column(line, 8)) + atoll(column(line, 9)) + atoll(column(line, 10)), test_number(m, "factors", "act", NULL));
		if (i == 0)
			assert_int_equal(atoll(column(line, 12)), test_number(p->json, "peak", "tensors", NULL));
		line = strchr(line, '\n') + 1;
	}
	assert_int_equal(*line, 0);
}

static void
csv(void **state)
{
	(void)state;
	test_each_model(check_csv, "csv");
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
check_md(const struct test_parsed *p, const char *text, size_t n)
{
	assert_int_equal(exact(text), test_number(p->json, "peak", "tensors", NULL));
	assert_true(n < 64 << 10);         /* a comment's limit, below a job summary's mebibyte */
	assert_non_null(strstr(text, "| highest point of |"));
}

static void
md(void **state)
{
	(void)state;
	test_each_model(check_md, "md");
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
	assert_int_equal(test_number(physical, "region", "startLine", NULL), 1);
	assert_true(uri[0] && uri[0] != '/' && !strchr(uri, ' '));
	assert_non_null(json_object_get(json_object_get(x, "message"), "text"));
	assert_int_equal(strlen(json_string_value(json_object_get(json_object_get(x, "partialFingerprints"), "memcrest/v1"))), 16);
	assert_non_null(json_object_get(json_array_get(json_object_get(where, "logicalLocations"), 0), "fullyQualifiedName"));
}

static void
check_sarif(const struct test_parsed *p, const char *text, size_t n)
{
	json_t *o = json_loadb(text, n, 0, NULL);
	const json_t *run = json_array_get(json_object_get(o, "runs"), 0), *x, *results = json_object_get(run, "results");
	const json_t *rules = json_object_get(json_object_get(json_object_get(run, "tool"), "driver"), "rules"), *verdict = json_object_get(p->json, "verdict");
	bool over = false;
	size_t i;

	assert_string_equal(json_string_value(json_object_get(o, "version")), "2.1.0");
	assert_int_equal(test_number(json_array_get(results, 0), "properties", "tensors", NULL), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(test_number(json_array_get(results, 0), "properties", "factors", "opt"), test_number(p->json, "peak", "factors", "opt"));
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
	test_each_model(check_sarif, "sarif");
}

/* ---- github ---------------------------------------------------------------------------------------------------------------- */

static void
check_github(const struct test_parsed *p, const char *text, size_t n)
{
	unsigned warnings = 0, notices = 0, errors = 0;
	const char *line = text;

	(void)n;
	assert_int_equal(exact(text), test_number(p->json, "peak", "tensors", NULL));
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
	test_each_model(check_github, "github");
}

/* ---- text on narrow terminals -------------------------------------------------------------------------------------------------- */

static int
append(void *user, const void *bytes, size_t n)
{
	struct {
		char *p;
		size_t n;
	} *all = user;

	all->p = realloc(all->p, all->n + n + 1);
	memcpy(all->p + all->n, bytes, n);
	all->n += n;
	all->p[all->n] = 0;
	return 0;
}

/* From the first table to the assumptions no line is longer than the terminal; every column of bytes ends where its head does. */
static void
check_narrow(const struct test_parsed *p, const char *unused, size_t n)
{
	struct {
		char *p;
		size_t n;
	} all = {NULL, 0};
	size_t head = 0;
	mc_view view;
	char *line, *next;

	(void)unused, (void)n;
	mc_view_init(&view);
	view.width = 80;
	assert_int_equal(mc_write_view(p->r, "text", &view, append, &all), MC_OK);
	line = strstr(all.p, "highest point of");
	assert_non_null(line);
	for (; strncmp(line, "assumed", 7) != 0; line = next) {
		next = strchr(line, '\n');
		assert_non_null(next);
		*next++ = 0;
		assert_true(strlen(line) <= 80 || strstr(line, "[")); /* a shape is as long as it is */
		if (strstr(line, "optimizer activations"))
			head = strlen(line);
		else if (strncmp(line, " step", 5) == 0 || strncmp(line, " plain", 6) == 0)
			assert_int_equal(strlen(line), head);
	}
	free(all.p);
}

static void
narrow(void **state)
{
	(void)state;
	test_each_model(check_narrow, "text");
}

/* ---- names that are hostile to a format --------------------------------------------------------------------------------------- */

static void
escapes(void **state)
{
	char *text;

	(void)state;
	text = test_hostile("csv");
	assert_non_null(strstr(text, "\n\"'=a,b|<b>%::`x\",Linear,"));
	free(text);
	text = test_hostile("md");
	assert_non_null(strstr(text, "| =a,b\\|&lt;b&gt;%::\\`x |"));
	free(text);
	text = test_hostile("github");
	assert_non_null(strstr(text, "file=a%3Ab%2Cc%25.ir,line=1,title="));
	assert_non_null(strstr(text, "title==a%2Cb|<b>%25%3A%3A`x::"));
	free(text);
	text = test_hostile("sarif");
	assert_non_null(strstr(text, "\"uri\": \"a%3Ab%2Cc%25.ir\""));
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(csv), cmocka_unit_test(md), cmocka_unit_test(sarif), cmocka_unit_test(github), cmocka_unit_test(narrow), cmocka_unit_test(escapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
