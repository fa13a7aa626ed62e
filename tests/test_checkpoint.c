/* Which modules are checkpointed by default, and when a waveform becomes a leaf. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T "\"transformers.models.m.L\""       /* a class of that library */
#define RECIPE "{\"optimizer\": \"sgd\", \"checkpoint\": \"non-reentrant\"}"

/* The number in "N module calls are checkpointed", 0 = none; spared: are some said to be necks or heads? */
static unsigned
checkpointed(const char *graph, bool *spared)
{
	struct analysed a = test_analyse(graph, RECIPE);
	unsigned n = 0;

	*spared = false;
	for (uint32_t i = 0; i < a.r->r.nassumption; i++) {
		if (strstr(a.r->r.assumptions[i].p, "module calls are checkpointed"))
			n = (unsigned)strtoul(a.r->r.assumptions[i].p, NULL, 10);
		*spared |= strstr(a.r->r.assumptions[i].p, "necks and heads") != NULL;
	}
	release_analysis(a);
	return n;
}

/* Two layers that attend, two of a neck that read what they made: transformers checkpoints the layers, others whatever is repeated. */
static void
necks_are_not_blocks(void **state)
{
	static const struct {
		const char *cls, *op;
		unsigned want;
	} cases[] = {{T, "softmax(%x1, 1)", 2}, {"\"N\"", "softmax(%x1, 1)", 4}, {T, "gelu(%x1)", 4}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char graph[2048];
		bool spared;

		snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[128, 256]\nparam %%w \"w\" : fp32[128, 256] trainable\n%%x1 : fp32[128, 256] = mul(%%x, %%w)\n"
		    "%%a : fp32[128, 256] = %s @\"layers.0\":%s/\"layers.0.f\":\"F\"\n%%b : fp32[128, 256] = gelu(%%a) @\"layers.1\":%s/\"layers.1.f\":\"F\"\n"
		    "%%c : fp32[128, 256] = gelu(%%a) @\"neck.0\":%s/\"neck.0.f\":\"F\"\n%%d : fp32[128, 256] = gelu(%%b) @\"neck.1\":%s/\"neck.1.f\":\"F\"\n"
		    "%%e : fp32[128, 256] = add(%%c, %%d)\n%%l : fp32[] = sum(%%e)\noutput %%l\n", cases[i].op, cases[i].cls, cases[i].cls, cases[i].cls, cases[i].cls);
		assert_int_equal(checkpointed(graph, &spared), cases[i].want);
		assert_int_equal(spared, cases[i].want == 2);
	}
}

/* The first layer of three has a class of its own. */
static void
odd_ones_are_blocks(void **state)
{
	static const struct {
		const char *first, *rest;
		unsigned want;
	} cases[] = {{"\"transformers.models.m.K\"", T, 3}, {"\"K\"", "\"L\"", 2}, {"\"K\"", T, 2}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char graph[2048];
		bool spared;

		snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[128, 256]\nparam %%w \"w\" : fp32[128, 256] trainable\n%%y : fp32[128, 256] = mul(%%x, %%w)\n"
		    "%%a : fp32[128, 256] = gelu(%%y) @\"layers.0\":%s/\"layers.0.f\":\"F\"\n%%b : fp32[128, 256] = gelu(%%a) @\"layers.1\":%s/\"layers.1.f\":\"F\"\n"
		    "%%c : fp32[128, 256] = gelu(%%b) @\"layers.2\":%s/\"layers.2.f\":\"F\"\n%%l : fp32[] = sum(%%c)\noutput %%l\n", cases[i].first, cases[i].rest, cases[i].rest);
		assert_int_equal(checkpointed(graph, &spared), cases[i].want);
		assert_false(spared);
	}
}

/* freeze_feature_encoder() freezes what is in the encoder, and the waveform is no leaf then; others with such a name do nothing to it. */
static void
waveforms(void **state)
{
	static const struct {
		const char *cls, *trains;
		bool leaf;
	} cases[] = {{"transformers.models.m.MFeatureEncoder", " trainable", true}, {"transformers.models.m.MFeatureEncoder", "", false}, {"my.FeatureEncoder", " trainable", false}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char graph[1024];
		struct analysed a;
		bool said = false;

		snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[4, 1024]\nparam %%w \"e.w\" : fp32[1024]%s\nparam %%v \"v\" : fp32[1024] trainable\n"
		    "%%u : fp32[4, 1, 1024] = unsqueeze(%%x, 1) @\"e\":\"%s\"\n%%a : fp32[4, 1, 1024] = mul(%%u, %%w) @\"e\":\"%s\"\n%%b : fp32[4, 1, 1024] = mul(%%a, %%v)\n"
		    "%%l : fp32[] = sum(%%b)\noutput %%l\n", cases[i].trains, cases[i].cls, cases[i].cls);
		a = test_analyse(graph, "{\"optimizer\": \"sgd\"}");
		for (uint32_t k = 0; k < a.r->r.nassumption; k++)
			said |= strstr(a.r->r.assumptions[k].p, "waveform") != NULL;
		assert_int_equal(said, cases[i].leaf);
		release_analysis(a);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(necks_are_not_blocks), cmocka_unit_test(odd_ones_are_blocks), cmocka_unit_test(waveforms)};

	return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
