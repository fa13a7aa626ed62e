/* Annotated copies and viewers' sidecars: nothing is lost, nothing else changes, and a copy can be annotated again. */
#include "reports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- copies --------------------------------------------------------------------------------------------------------- */

static int
collect(void *user, const void *p, size_t n)
{
	buf_put(user, p, n);
	return 0;
}

static struct buf
annotated(const char *path)
{
	mc_model *m;
	mc_report *r = test_report(path, "{\"loss\":\"sum\"}", &m);
	struct buf b = {0};

	assert_int_equal(mc_annotate(m, r, collect, &b), MC_OK);
	mc_report_free(r);
	mc_model_free(m);
	return b;
}

static void
write_file(const char *path, const struct buf *b)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(b->p, 1, b->n, f), b->n);
	fclose(f);
}

static uint64_t
varint(const unsigned char *p, size_t *at)
{
	uint64_t n = 0;
	unsigned shift = 0;

	do
		n |= (uint64_t)(p[*at] & 127) << shift;
	while (shift += 7, p[(*at)++] & 128);
	return n;
}

/*
 * The file without our entries, as a reader of the wire sees it: fields of the model, of the graph and of its nodes one after the other, each
 * with its number, lengths of messages that were rebuilt left out, and no IR version.
 */
static void
flatten(const unsigned char *p, size_t n, unsigned depth, struct buf *out)
{
	for (size_t i = 0; i < n;) {
		uint64_t key = varint(p, &i), len;
		size_t from = i;

		if ((key & 7) == 0) {
			varint(p, &i);
			if (depth || key >> 3 != 1)
				buf_put(out, p + from, i - from);
			continue;
		}
		len = (key & 7) == 2 ? varint(p, &i) : (key & 7) == 1 ? 8 : 4;
		buf_fmt(out, "%u.", (unsigned)(key >> 3));
		if ((depth == 0 && key >> 3 == 7) || (depth == 1 && key >> 3 == 1))
			flatten(p + i, len, depth + 1, out);
		else if (!((depth == 0 && key >> 3 == 14) || (depth == 2 && key >> 3 == 9)) || !memmem(p + i, len < 16 ? len : 16, "memcrest.", 9))
			buf_put(out, p + i, len);
		else
			out->n -= depth == 0 ? 3 : 2;      /* the number that was just written */
		i += len;
	}
}

static void
check_copy(const char *path, const char *copy)
{
	struct buf b = annotated(path), again, x = {0}, y = {0};
	size_t n;
	char *before = test_read(path, &n);

	write_file(copy, &b);
	again = annotated(copy);
	if (!memmem(b.p, b.n, "memcrest.ir_version_was", 23)) {
		assert_int_equal(again.n, b.n);
		assert_memory_equal(again.p, b.p, b.n);
	}
	flatten((unsigned char *)before, n, 0, &x);
	flatten((unsigned char *)b.p, b.n, 0, &y);
	assert_true(b.n > n);
	assert_int_equal(x.n, y.n);
	assert_memory_equal(x.p, y.p, x.n);
	free(x.p);
	free(y.p);
	free(b.p);
	free(again.p);
	free(before);
	unlink(copy);
}

static void
copies(void **state)
{
	char copy[64];

	(void)state;
	snprintf(copy, sizeof copy, "/tmp/memcrest_annotate_%ld.onnx", (long)getpid());
	check_copy("fixtures/models/torch1_fn.onnx", copy);
	check_copy("fixtures/models/torch1_lm14.onnx", copy);
	check_copy("fixtures/models/toy_cond.onnx", copy);
	check_copy("fixtures/models/llama_tiny.train.opset23.onnx", copy);
}

static void
only_onnx(void **state)
{
	mc_model *m;
	mc_report *r = test_report("fixtures/models/mlp.pt2", "{\"loss\":\"sum\",\"dims\":{\"batch\":2}}", &m);
	struct buf b = {0};

	(void)state;
	assert_int_equal(mc_annotate(m, r, collect, &b), MC_BAD_INPUT);
	assert_int_equal(b.n, 0);
	mc_report_free(r);
	mc_model_free(m);
}

/* ---- sidecars ------------------------------------------------------------------------------------------------------------ */

static void
check_netron(const struct test_parsed *p, const char *text, size_t n)
{
	json_t *o = json_loadb(text, n, 0, NULL);
	const json_t *x;
	json_int_t sum = 0, peak = -1;
	size_t i;

	assert_string_equal(json_string_value(json_object_get(o, "signature")), "netron:attachment");
	json_array_foreach(json_object_get(o, "metrics"), i, x) {
		const char *name = json_string_value(json_object_get(x, "name")), *kind = json_string_value(json_object_get(x, "kind"));

		assert_true(strcmp(name, "input_names") != 0);     /* Netron takes that for something else */
		assert_true(strcmp(kind, "node") != 0 || json_string_length(json_object_get(x, "target")) > 0);
		if (strcmp(name, "memcrest.bytes_at_peak") == 0 || strcmp(name, "memcrest.bytes_elsewhere") == 0)
			sum += test_number(x, "value", NULL, NULL);
		if (strcmp(name, "memcrest.peak_bytes") == 0)
			peak = test_number(x, "value", NULL, NULL);
	}
	assert_int_equal(peak, test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(sum, peak);
	json_decref(o);
}

static void
netron(void **state)
{
	(void)state;
	test_each_model(check_netron, "netron");
}

static void
check_model_explorer(const struct test_parsed *p, const char *text, size_t n)
{
	json_t *o = json_loadb(text, n, 0, NULL), *netron_json, *results = json_object_get(o, "results");
	size_t m, i;
	char *other = test_write(p->r, "netron", &m);
	const json_t *x;

	netron_json = json_loadb(other, m, 0, NULL);
	json_array_foreach(json_object_get(netron_json, "metrics"), i, x)
		if (strcmp(json_string_value(json_object_get(x, "name")), "memcrest.bytes_at_peak") == 0)
			assert_int_equal(test_number(results, json_string_value(json_object_get(x, "target")), "value", NULL), test_number(x, "value", NULL, NULL));
	assert_int_equal(json_array_size(json_object_get(o, "gradient")), 3);
	json_decref(netron_json);
	json_decref(o);
	free(other);
}

static void
model_explorer(void **state)
{
	(void)state;
	test_each_model(check_model_explorer, "model-explorer");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(only_onnx), cmocka_unit_test(netron), cmocka_unit_test(model_explorer)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
