/*
 * What the exporter's metadata adds must not decide the answer: copies of ONNX files without metadata and without names of nodes are raised to the
 * same operators by structure alone and give the same peak within 0.1 %, but for what nothing else in the file shows: parameters that only metadata
 * lists, lifetimes of values that nobody saved, and operators that are written the same in ONNX. Each such difference is listed with its bytes.
 */
#include "test.h"

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

enum { FP32, BF16, MIXED, SGD, JOBS };
static const char *const recipes[JOBS] = {
	"{\"precision\": \"fp32\", \"dims\": {%s}}", "{\"precision\": \"bf16\", \"dims\": {%s}}", "{\"precision\": \"bf16-mixed\", \"dims\": {%s}}",
	"{\"precision\": \"bf16\", \"optimizer\": \"sgd\", \"dims\": {%s}}",
};

struct file {
	const char *path, *dims;
	int more[JOBS];            /* bytes that the copy has more for the reason beside it */
	mc_status status;          /* of the whole file: only its metadata shows what the exporter dropped */
};

#define SIZES "\"batch\": 2, \"seq\": 64"

static const struct file files[] = {
	{"models/toy_vlm.train.onnx", SIZES, {0}, MC_OK},
	{"models/llava_tiny.train.onnx", SIZES, {-512, -512, -512, -512}, MC_OK},     /* the buffer position_ids, int64[17], which nothing reads */
	{"models/llama_tiny4.train.onnx", SIZES, {0}, MC_OK},
	{"models/llama_tiny.train.opset23.onnx", SIZES, {0}, MC_OK},
	{"models/llava_7b.train.bf16.stack.onnx", "\"batch\": 2, \"seq\": 1024", {0}, MC_OK},
	{"models/resnet50.train.onnx", "", {0}, MC_INCOMPLETE},      /* 26,560 elements of biases that folding BatchNorm made and metadata tells from the model's: 0.04 % */
	{"models/moe_tiny.train.onnx", "", {0}, MC_OK},
	{"models/olmoe_tiny.legacy.onnx", "", {0}, MC_OK},
	{"models/mamba_tiny.train.onnx", "", {0}, MC_OK},
	{"models/mamba2_tiny.train.onnx", "", {0}, MC_OK},
	{"twins/lstm.legacy.onnx", "", {0}, MC_OK},
	{"twins/lstm_two.onnx", "", {0}, MC_OK},
	{"twins/gru_two_ways.onnx", "", {0}, MC_OK},
	{"twins/cells.onnx", "", {0}, MC_OK},
	{"twins/causal.onnx", "", {0}, MC_OK},
	/* parameters that the optimiser computed with: 1 + w, views of vectors, rows of tables, a token and a bias of heads expanded, exp; a norm that takes the mean away twice */
	{"twins/tables.onnx", "", {0}, MC_OK},
	{"twins/scores.onnx", "", {0}, MC_OK},      /* an encoder's softmax, which converts nothing */
	{"twins/attention.onnx", "", {0}, MC_INCOMPLETE},      /* names a layer that nothing reads */
	{"twins/attention_cross.onnx", "", {0}, MC_OK},
	{"twins/contiguous.onnx", "", {0}, MC_OK},
	{"twins/indices.onnx", "", {0}, MC_OK},
	{"twins/layers.onnx", "", {0}, MC_OK},
	{"twins/pads.onnx", "", {0}, MC_OK},
	/* T5's norm, known by attention that nobody scales; its bias, which only the record says is copied, is padded for each attention instead */
	{"models/t5_tiny.train.onnx", SIZES, {0, 0, 0, 24576}, MC_OK},
	{"models/dit_tiny.onnx", "", {0}, MC_OK},
	{"models/roberta_tiny.train.onnx", SIZES, {0}, MC_OK},
	{"models/parts_and_lists.onnx", "", {0}, MC_OK},
	/* the older exporter: conversions that did nothing are in the file, and what each was for is told by norms and losses where no node has a name */
	{"models/torch1_lm14.onnx", SIZES, {0}, MC_OK},
	{"models/torch1_noparam.onnx", "", {0}, MC_OK},
	{"models/blip_tiny.legacy.onnx", "", {0}, MC_OK},
	{"models/codegen_tiny.legacy.onnx", "", {0}, MC_OK},
	{"models/stablelm_tiny.legacy.onnx", "", {0}, MC_OK},
	{"twins/heads.onnx", "", {0}, MC_OK},
	/*
	 * ReduceMax over height and width is amax as well as AdaptiveMaxPool2d(1). The peak moves into amax's backward, which has a comparison, a count and
	 * a quotient (512 bytes each) beside the gradient
	 */
	{"twins/pools.onnx", "", {0, 1024, 512, 1024}, MC_OK},
	/* l = [...] of the source line keeps eight scalar losses to the end of forward; without the line they are let go of when they are stacked */
	{"twins/losses.onnx", "", {-512, -512, -2048, -512}, MC_OK},
};

static uint64_t
peak_of(const char *bytes, size_t n, const struct file *f, size_t job, mc_status status)
{
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_recipe *recipe = mc_recipe_new();
	uint64_t peak;
	char text[256];

	snprintf(text, sizeof text, recipes[job], f->dims);
	assert_int_equal(mc_load_memory(bytes, n, f->path, NULL, &m), MC_OK);
	assert_int_equal(mc_recipe_json(recipe, text, strlen(text), "recipe"), MC_OK);
	assert_int_equal(mc_analyze(m, recipe, NULL, &r), status);
	assert_int_equal(mc_report_number(r, "tensors", &peak), MC_OK);
	mc_report_free(r);
	mc_recipe_free(recipe);
	mc_model_free(m);
	return peak;
}

static void
compare(const struct file *f)
{
	char path[256], *whole, *bare;
	size_t n, left;

	snprintf(path, sizeof path, "fixtures/%s", f->path);
	whole = test_read(path, &n);
	bare = malloc(n);
	left = (size_t)(strip(MODEL, whole, whole + n, bare) - bare);
	assert_true(left < n);
	for (size_t k = 0; k < JOBS; k++) {
		int64_t a = (int64_t)peak_of(whole, n, f, k, f->status), b = (int64_t)peak_of(bare, left, f, k, MC_OK);
		int64_t expected = a + f->more[k];

		if (llabs(b - expected) * 1000 > a)
			fail_msg("%s %s: %lld bytes, without metadata %lld, not %lld", f->path, recipes[k], (long long)a, (long long)b, (long long)expected);
	}
	free(whole);
	free(bare);
}

static void
same_without_metadata(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		compare(&files[i]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(same_without_metadata)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
