/* The page: it stands alone, its numbers are the JSON report's, and no name of a model can break out of its markup. */
#include "reports.h"

#include <libxml/HTMLparser.h>
#include <libxml/parser.h>
#include <libxml/xpath.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (2u << 20)

static htmlDocPtr
read_page(const char *text, size_t n)
{
	htmlDocPtr doc = htmlReadMemory(text, (int)n, NULL, "UTF-8", HTML_PARSE_NOERROR | HTML_PARSE_NOWARNING);

	assert_non_null(doc);
	return doc;
}

static long long
query(htmlDocPtr doc, const char *path)
{
	xmlXPathContextPtr c = xmlXPathNewContext(doc);
	xmlXPathObjectPtr o = xmlXPathEvalExpression((const xmlChar *)path, c);
	long long n;

	assert_non_null(o);
	n = (long long)xmlXPathCastToNumber(o);
	xmlXPathFreeObject(o);
	xmlXPathFreeContext(c);
	return n;
}

static json_t *
points(htmlDocPtr doc)
{
	xmlXPathContextPtr c = xmlXPathNewContext(doc);
	xmlXPathObjectPtr o = xmlXPathEvalExpression((const xmlChar *)"string(//script[@id='points'])", c);
	json_t *j = json_loads((const char *)o->stringval, 0, NULL);

	assert_non_null(j);
	xmlXPathFreeObject(o);
	xmlXPathFreeContext(c);
	return j;
}

/* Nothing is fetched: no address, no reference. */
static void
check_alone(htmlDocPtr doc, const char *text)
{
	assert_int_equal(query(doc, "count(//@src|//@href|//link|//img|//iframe|//object|//base)"), 0);
	assert_null(strstr(text, "http://"));
	assert_null(strstr(text, "https://"));
	assert_null(strstr(text, "url("));
	assert_null(strstr(text, "@import"));
	assert_int_equal(query(doc, "count(//@*[starts-with(name(), 'on')])"), 0);
}

/* At every point the factors add up; the highest is the peak. */
static void
check_points(htmlDocPtr doc, const json_t *report)
{
	json_t *o = points(doc), *live = json_object_get(o, "live");
	json_int_t most = 0;
	size_t i;
	const json_t *x;

	json_array_foreach(live, i, x) {
		json_int_t sum = 0;

		for (size_t k = 0; k < 6; k++)
			sum += json_integer_value(json_array_get(json_array_get(json_object_get(o, "at"), k), i));
		assert_int_equal(sum, json_integer_value(x));
		most = sum > most ? sum : most;
	}
	assert_int_equal(most, test_number(report, "peak", "tensors", NULL));
	assert_int_equal(json_integer_value(json_array_get(live, (size_t)test_number(o, "peak", NULL, NULL))), most);
	assert_true(json_array_size(live) <= 1000);
	json_decref(o);
}

static void
check_page(const struct test_parsed *p, const char *text, size_t n)
{
	htmlDocPtr doc = read_page(text, n);

	assert_true(n < MOST);
	check_alone(doc, text);
	check_points(doc, p->json);
	assert_int_equal(query(doc, "count(//table[@id='modules']/tbody/tr)"), json_array_size(json_object_get(p->json, "modules")));
	assert_int_equal(query(doc, "//table[@id='modules']/tbody/tr[1]/td[1]/@data-v"), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(query(doc, "//table[@id='modules']/tbody/tr[1]/td[4]/@data-v"), test_number(p->json, "peak", "factors", "opt"));
	assert_int_equal(query(doc, "count(//div[@id='timeline']//path)"), 6);
	assert_int_equal(query(doc, "count(//table[not(caption)])"), 0);
	assert_int_equal(query(doc, "count(//th[not(@scope)])"), 0);
	assert_int_equal(query(doc, "count(//th[not(normalize-space())])"), 0);
	assert_int_equal(query(doc, "count(//div[@class='scroll' or @class='icicle'][not(@tabindex and @role and @aria-label)])"), 0);
	assert_int_equal(query(doc, "count(//html[@lang])"), 1);
	assert_int_equal(query(doc, "count(//h2)"), 6);
	xmlFreeDoc(doc);
}

static void
page(void **state)
{
	(void)state;
	test_each_model(check_page, "html");
}

static void
escapes(void **state)
{
	char *text = test_hostile("html");
	htmlDocPtr doc = read_page(text, strlen(text));

	(void)state;
	assert_int_equal(query(doc, "count(//body//b[.='x' or .='>%::`x'])"), 0);
	assert_true(query(doc, "count(//span[@title='=a,b|<b>%::`x'])") == 1);
	assert_int_equal(query(doc, "count(//script)"), 2);
	xmlFreeDoc(doc);
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(page), cmocka_unit_test(escapes)};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	xmlCleanupParser();
	return failed;
}
