/*
 * What the exporter's metadata adds must not decide the answer: copies of ONNX files without metadata and without names of nodes are raised to the
 * same operators by structure alone. Lifetimes of values that nobody saved, and parameters that only metadata lists, may differ: 0.2 %.
 */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a file without metadata: fields of the format's messages, by number -------------------------------------------------------------- */

enum message { MODEL, GRAPH, NODE, VALUE, ATTRIBUTE, OTHER };

static enum message
inside(enum message m, unsigned field)
{
	if (m == MODEL)
		return field == 7 ? GRAPH : OTHER;
	if (m == GRAPH)
		return field == 1 ? NODE : field == 11 || field == 12 || field == 13 ? VALUE : OTHER;
	if (m == NODE)
		return field == 5 ? ATTRIBUTE : OTHER;
	return m == ATTRIBUTE && (field == 6 || field == 11) ? GRAPH : OTHER;
}

static bool
is_dropped(enum message m, unsigned field)
{
	switch (m) {
	case MODEL:
		return field == 14;
	case GRAPH:
		return field == 16;
	case NODE:
		return field == 3 || field == 6 || field == 9;          /* name, doc_string, metadata_props */
	case VALUE:
		return field == 4;
	default:
		return false;
	}
}

static uint64_t
varint(const char **p)
{
	uint64_t n = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		unsigned char c = (unsigned char)*(*p)++;

		n |= (uint64_t)(c & 127) << shift;
		if (c < 128)
			return n;
	}
	fail_msg("not a fixture");
	return 0;
}

static char *
put_varint(char *to, uint64_t n)
{
	for (; n > 127; n >>= 7)
		*to++ = (char)(n | 128);
	*to++ = (char)n;
	return to;
}

static char *
strip(enum message m, const char *p, const char *end, char *to)
{
	while (p < end) {
		const char *field = p;
		uint64_t key = varint(&p), n;
		unsigned number = (unsigned)(key >> 3);
		enum message sub = inside(m, number);

		if ((key & 7) == 0)
			varint(&p);
		else if ((key & 7) != 2)
			p += (key & 7) == 1 ? 8 : 4;
		else {
			n = varint(&p);
			p += n;
			if (sub != OTHER) {
				char *body = malloc(n + 1), *last = strip(sub, p - n, p, body);

				to = put_varint(put_varint(to, key), (uint64_t)(last - body));
				memcpy(to, body, (size_t)(last - body));
				to += last - body;
				free(body);
				continue;
			}
		}
		if (!is_dropped(m, number)) {
			memcpy(to, field, (size_t)(p - field));
			to += p - field;
		}
	}
	return to;
}

/* ---- both files ------------------------------------------------------------------------------------------------------------------------- */

static uint64_t
peak_of(const char *bytes, size_t n, const char *name, const char *recipe)
{
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_recipe *job = mc_recipe_new();
	uint64_t peak;

	assert_int_equal(mc_load_memory(bytes, n, name, NULL, &m), MC_OK);
	assert_int_equal(mc_recipe_json(job, recipe, strlen(recipe), "recipe"), MC_OK);
	mc_analyze(m, job, NULL, &r);
	assert_non_null(r);
	assert_int_equal(mc_report_number(r, "tensors", &peak), MC_OK);
	mc_report_free(r);
	mc_recipe_free(job);
	mc_model_free(m);
	return peak;
}

static void
same_without_metadata(void **unused)
{
	static const char *const files[] = {
		"toy_vlm.train.onnx", "llava_tiny.train.onnx", "llama_tiny4.train.onnx", "llama_tiny.train.opset23.onnx", "llava_7b.train.bf16.stack.onnx",
		"../twins/lstm.legacy.onnx", "../twins/lstm_two.onnx", "../twins/gru_two_ways.onnx",
		"../twins/pools.onnx", "../twins/cells.onnx", "../twins/losses.onnx", "../twins/causal.onnx",
	};
	static const char *const recipes[] = {
		"{\"precision\": \"fp32\"}", "{\"precision\": \"bf16\"}", "{\"precision\": \"bf16-mixed\"}", "{\"precision\": \"bf16\", \"optimizer\": \"sgd\"}",
	};

	(void)unused;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		char path[256], *whole, *bare;
		size_t n, left;

		snprintf(path, sizeof path, "fixtures/models/%s", files[i]);
		whole = test_read(path, &n);
		bare = malloc(n);
		left = (size_t)(strip(MODEL, whole, whole + n, bare) - bare);
		assert_true(left < n);
		for (size_t k = 0; k < sizeof recipes / sizeof recipes[0]; k++) {
			uint64_t a = peak_of(whole, n, files[i], recipes[k]), b = peak_of(bare, left, files[i], recipes[k]);

			/* 0.2 %; of the small graphs, in which one scalar more is more than that, four of the allocator's blocks */
			if (fabs((double)b - (double)a) > fmax(0.002 * (double)a, 2048))
				fail_msg("%s %s: %llu bytes, without metadata %llu", files[i], recipes[k], (unsigned long long)a, (unsigned long long)b);
		}
		free(whole);
		free(bare);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(same_without_metadata)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
