/* The formats that are XML, and dot: valid, and what they add up to is what the JSON report says. */
#include "reports.h"

#include <libxml/parser.h>
#include <libxml/xmlschemas.h>
#include <libxml/xpath.h>
#include <libxml/xpathInternals.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static xmlDocPtr
read_xml(const char *text, size_t n)
{
	xmlDocPtr doc = xmlReadMemory(text, (int)n, NULL, NULL, XML_PARSE_HUGE);

	assert_non_null(doc);
	return doc;
}

/* As a number: sums are exact below 2^53. */
static long long
query(xmlDocPtr doc, const char *path)
{
	xmlXPathContextPtr c = xmlXPathNewContext(doc);
	xmlXPathObjectPtr o;
	long long n;

	xmlXPathRegisterNs(c, (const xmlChar *)"g", (const xmlChar *)"http://graphml.graphdrawing.org/xmlns");
	xmlXPathRegisterNs(c, (const xmlChar *)"y", (const xmlChar *)"http://www.yworks.com/xml/graphml");
	xmlXPathRegisterNs(c, (const xmlChar *)"x", (const xmlChar *)"http://gexf.net/1.3");
	o = xmlXPathEvalExpression((const xmlChar *)path, c);
	assert_non_null(o);
	n = (long long)xmlXPathCastToNumber(o);
	xmlXPathFreeObject(o);
	xmlXPathFreeContext(c);
	return n;
}

/* ---- xml ------------------------------------------------------------------------------------------------------------ */

static void
validate(xmlDocPtr doc)
{
	xmlSchemaParserCtxtPtr parser = xmlSchemaNewParserCtxt("backends/report.xsd");
	xmlSchemaPtr schema = xmlSchemaParse(parser);
	xmlSchemaValidCtxtPtr valid;

	assert_non_null(schema);
	valid = xmlSchemaNewValidCtxt(schema);
	assert_int_equal(xmlSchemaValidateDoc(valid, doc), 0);
	xmlSchemaFreeValidCtxt(valid);
	xmlSchemaFree(schema);
	xmlSchemaFreeParserCtxt(parser);
}

static void
check_xml(const struct test_parsed *p, const char *text, size_t n)
{
	xmlDocPtr doc = read_xml(text, n);
	const json_t *steps = json_object_get(p->json, "steps");

	validate(doc);
	assert_int_equal(query(doc, "/report/peak/@tensors"), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(query(doc, "/report/peak/@reserved"), test_number(p->json, "peak", "reserved", NULL));
	assert_int_equal(query(doc, "/report/peak/factors/@act"), test_number(p->json, "peak", "factors", "act"));
	assert_int_equal(query(doc, "sum(/report/peak/live/@bytes)"), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(query(doc, "sum(/report/modality/factors/@total)"), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(query(doc, "count(/report/module)"), json_array_size(json_object_get(p->json, "modules")));
	assert_int_equal(query(doc, "/report/step[2]/phase[@name='optimizer']/@tensors"), test_number(json_array_get(steps, 1), "phases", "optimizer", NULL));
	assert_int_equal(query(doc, "/report/plain_sum/@opt"), test_number(p->json, "plain_sum", "opt", NULL));
	assert_int_equal(query(doc, "count(/report/verdict)"), json_is_object(json_object_get(p->json, "verdict")));
	xmlFreeDoc(doc);
}

static void
xml(void **state)
{
	(void)state;
	test_each_model(check_xml, "xml");
}

/* ---- graphml --------------------------------------------------------------------------------------------------------- */

static void
check_graphml(const struct test_parsed *p, const char *text, size_t n)
{
	xmlDocPtr doc = read_xml(text, n);

	assert_int_equal(query(doc, "sum(//g:node[g:data[@key='kind']!='module']/g:data[@key='total'])"), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(query(doc, "sum(//g:node[g:data[@key='kind']!='module']/g:data[@key='opt'])"), test_number(p->json, "peak", "factors", "opt"));
	assert_int_equal(query(doc, "/g:graphml/g:graph/g:data[@key='peak_bytes']"), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(query(doc, "count(//g:node[g:data[@key='kind']='module'])") + 1, json_array_size(json_object_get(p->json, "modules")));
	assert_int_equal(query(doc, "count(//g:node[@yfiles.foldertype='group' and not(g:graph)])"), 0);
	assert_int_equal(query(doc, "count(//g:key[@attr.type='int'])"), 0);             /* 2^31 bytes are not much */
	assert_true(query(doc, "count(//g:key[@yfiles.type='nodegraphics'])") == 1);
	assert_int_equal(query(doc, "count(//g:node[not(g:data[@key='look'])])"), 0);    /* without, yEd draws nameless boxes */
	assert_int_equal(query(doc, "count(//g:node[string-length(normalize-space(g:data[@key='look']//y:NodeLabel)) = 0])"), 0);
	assert_int_equal(query(doc, "count(//g:key[contains(@attr.name,' ')])"), 0);
	xmlFreeDoc(doc);
}

static void
graphml(void **state)
{
	(void)state;
	test_each_model(check_graphml, "graphml");
}

/* ---- gexf --------------------------------------------------------------------------------------------------------------- */

static void
check_gexf(const struct test_parsed *p, const char *text, size_t n)
{
	xmlDocPtr doc = read_xml(text, n);

	assert_int_equal(query(doc, "sum(//x:attvalue[@for='10']/@value)"), test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(query(doc, "sum(//x:attvalue[@for='6']/@value)"), test_number(p->json, "peak", "factors", "param"));
	assert_int_equal(query(doc, "count(//x:node[not(*[local-name()='color'] and *[local-name()='size'] and *[local-name()='position'])])"), 0);
	assert_int_equal(query(doc, "count(//x:node//x:nodes)"), 0);     /* Gephi knows no nested ones */
	xmlFreeDoc(doc);
}

static void
gexf(void **state)
{
	(void)state;
	test_each_model(check_gexf, "gexf");
}

/* ---- dot ------------------------------------------------------------------------------------------------------------------ */

static long long
sum_dot(const char *text)
{
	long long sum = 0;

	for (const char *p = text; (p = strstr(p, "\", bytes=\"")) != NULL; p++)
		sum += atoll(p + strlen("\", bytes=\""));
	return sum;
}

static int
collect(void *user, const void *p, size_t n)
{
	buf_put(user, p, n);
	return 0;
}

/* Whatever is folded, nothing is lost or counted twice, and clusters are closed. */
static void
check_dot(const struct test_parsed *p, const char *text, size_t n)
{
	(void)n;
	(void)text;
	for (unsigned depth = 0; depth < 12; depth++) {
		struct buf b = {0};
		mc_view view;
		long open = 0;

		mc_view_init(&view);
		view.depth = depth;
		assert_int_equal(mc_write_view(p->r, "dot", &view, collect, &b), MC_OK);
		buf_put(&b, "", 1);
		assert_int_equal(sum_dot(b.p), test_number(p->json, "peak", "tensors", NULL));
		for (const char *c = b.p; *c; c++)
			open += *c == '{' ? 1 : *c == '}' ? -1 : 0;
		assert_int_equal(open, 0);
		free(b.p);
	}
}

static void
dot(void **state)
{
	(void)state;
	test_each_model(check_dot, "dot");
}

/* ---- hostile names ------------------------------------------------------------------------------------------------------------ */

static void
escapes(void **state)
{
	static const char *const formats[] = {"xml", "graphml", "gexf"};
	char *text;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		xmlDocPtr doc;

		text = test_hostile(formats[i]);
		doc = read_xml(text, strlen(text));
		assert_true(query(doc, "count(//@*[contains(.,'=a,b|<b>%::`x')]|//*[contains(text(),'=a,b|<b>%::`x')])") > 0);
		xmlFreeDoc(doc);
		free(text);
	}
	text = test_hostile("dot");
	assert_non_null(strstr(text, "label=\"=a,b|<b>%::`x\\n"));
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(xml), cmocka_unit_test(graphml), cmocka_unit_test(gexf), cmocka_unit_test(dot), cmocka_unit_test(escapes),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	xmlCleanupParser();
	return failed;
}
