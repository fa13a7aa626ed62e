/* snapshot, perfetto and flamegraph: what their viewers demand, and that they tell the story of the JSON report. */
#include "reports.h"

#include "../frontend/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT ((int64_t)1 << 53)

/* ---- the viewer's pickle machine ---------------------------------------------------------------------------------------- */

static uint64_t
little(const unsigned char *p, unsigned n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

/* Bytes of an opcode's argument; fails on one that the viewer does not read. */
static size_t
argument(const unsigned char *p)
{
	if (p[0] == 'X')
		return 4 + little(p + 1, 4);
	if (p[0] == 0x8a) {
		assert_true(p[1] <= 8 && little(p + 2, p[1]) < (uint64_t)EXACT);       /* a number of the script */
		return 1u + p[1];
	}
	if (strchr("Kh\x80", p[0]))
		return 1;
	if (p[0] == 'M')
		return 2;
	if (strchr("Jrj", p[0]))
		return 4;
	if (!strchr("}](uea.\x86\x88\x89", p[0]))
		fail_msg("opcode %02x", p[0]);
	return 0;
}

static void
check_opcodes(const unsigned char *p, size_t n)
{
	size_t stack = 0, marks[64], nmark = 0, largest = 0;

	assert_int_equal(p[0], 0x80);
	assert_int_equal(p[1], 2);
	for (size_t i = 2; i < n; i += 1 + argument(p + i)) {
		if (p[i] == '(') {
			marks[nmark++] = stack;
			assert_true(nmark < 64);
		} else if (p[i] == 'e' || p[i] == 'u') {
			largest = p[i] == 'e' && stack - marks[nmark - 1] > largest ? stack - marks[nmark - 1] : largest;
			stack = marks[--nmark];
		} else if (p[i] == 'a' || p[i] == 0x86) {
			stack--;
		} else if (p[i] != 'r' && p[i] != '.') {
			stack++;
		}
	}
	assert_int_equal(stack, 1);
	assert_true(largest <= 1000);
	assert_int_equal(p[n - 1], '.');
}

/* ---- the snapshot ------------------------------------------------------------------------------------------------------------ */

static int64_t
number(const struct pickle *p, const char *key)
{
	p = pickle_get(p, str_of(key));
	assert_true(p && p->kind == PK_INT);
	return p->u.i;
}

static bool
is(const struct pickle *p, const char *key, const char *value)
{
	return str_eq(pickle_str(pickle_get(p, str_of(key))), str_of(value));
}

/* Blocks fill their segment side by side; live ones carry their frames. */
static int64_t
check_segments(const struct pickle *list)
{
	int64_t total = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		const struct pickle *s = list->u.item[i], *blocks = pickle_get(s, S("blocks"));
		int64_t at = number(s, "address");

		for (uint32_t k = 0; k < blocks->n; k++) {
			assert_int_equal(number(blocks->u.item[k], "address"), at);
			assert_true(is(blocks->u.item[k], "state", "active_allocated") || is(blocks->u.item[k], "state", "inactive"));
			at += number(blocks->u.item[k], "size");
		}
		assert_int_equal(at, number(s, "address") + number(s, "total_size"));
		total += number(s, "total_size");
	}
	return total;
}

/* A name has nothing that the viewer hides; slashes part paths. */
static void
check_frames(const struct pickle *frames)
{
	static const char *const hidden[] = {"_start", "PyObject_", "PyEval_", "ceval.c", "/"};

	for (uint32_t i = 0; i < frames->n; i++) {
		struct str file = pickle_str(pickle_get(frames->u.item[i], S("filename"))), name = pickle_str(pickle_get(frames->u.item[i], S("name")));

		assert_true(file.n > 0);
		for (size_t k = 0; k < sizeof hidden / sizeof hidden[0]; k++) {
			assert_null(memmem(file.p, file.n, hidden[k], strlen(hidden[k])));
			assert_null(memmem(name.p, name.n, hidden[k], strlen(hidden[k])));
		}
	}
}

static bool
in_segments(const struct pickle *segments, int64_t address, int64_t size)
{
	for (uint32_t i = 0; i < segments->n; i++) {
		int64_t from = number(segments->u.item[i], "address");

		if (address >= from && address + size <= from + number(segments->u.item[i], "total_size"))
			return true;
	}
	return false;
}

/* Replays the trace; the largest that the known categories hold at once. */
static int64_t
check_trace(const struct pickle *trace, const struct pickle *segments)
{
	static const char *const order[] = {"parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "unknown"};
	int64_t live = 0, most = 0;
	unsigned seen = 0;

	for (uint32_t i = 0; i < trace->n; i++) {
		const struct pickle *e = trace->u.item[i];
		int64_t size = number(e, "size") * !is(e, "category", "unknown");

		if (seen < 7 && is(e, "category", order[seen]))
			seen++;
		check_frames(pickle_get(e, S("frames")));
		assert_true(number(e, "addr") < EXACT);
		if (is(e, "action", "alloc"))
			live += size;
		if (i % 16 == 0 && is(e, "action", "alloc"))
			assert_true(in_segments(segments, number(e, "addr"), number(e, "size")));
		if (is(e, "action", "free_requested")) {
			assert_true(i + 1 < trace->n && is(trace->u.item[i + 1], "action", "free_completed"));
			assert_int_equal(number(trace->u.item[i + 1], "addr"), number(e, "addr"));
			live -= size;
		}
		most = live > most ? live : most;
	}
	assert_int_equal(seen, 7);
	return most;
}

static struct pickle *
read_snapshot(struct ctx *c, const char *text, size_t n)
{
	struct pickle *p = pickle_read(c, (struct str){text, (uint32_t)n});

	assert_non_null(p);
	return p;
}

static void
check_snapshot(const struct test_parsed *p, const char *text, size_t n)
{
	struct ctx *c = test_ctx();
	struct pickle *s = read_snapshot(c, text, n);
	const struct pickle *segments = pickle_get(s, S("segments")), *traces = pickle_get(s, S("device_traces"));

	check_opcodes((const unsigned char *)text, n);
	assert_int_equal(check_segments(segments), test_number(p->json, "peak", "reserved", NULL));
	assert_int_equal(traces->n, 1);
	assert_int_equal(check_trace(traces->u.item[0], segments), test_number(p->json, "peak", "tensors", NULL));
	test_ctx_free(c);
}

static void
snapshot(void **state)
{
	(void)state;
	test_each_model(check_snapshot, "snapshot");
}

/* ---- perfetto -------------------------------------------------------------------------------------------------------------- */

static void
check_perfetto(const struct test_parsed *p, const char *text, size_t n)
{
	json_t *o = json_loadb(text, n, 0, NULL), *events = json_object_get(o, "traceEvents");
	const json_t *e;
	json_int_t most = 0, end[3] = {0};
	unsigned marks = 0;
	size_t i;

	assert_non_null(o);
	json_array_foreach(events, i, e) {
		const char *kind = json_string_value(json_object_get(e, "ph"));

		if (*kind == 'C') {
			json_int_t total = test_number(e, "args", "total", NULL), sum = 0;
			static const char *const names[] = {"param", "grad", "opt", "saved", "transient", "input"};

			for (size_t k = 0; k < 6; k++)
				sum += test_number(e, "args", names[k], NULL);
			assert_int_equal(sum, total);
			most = total > most ? total : most;
		} else if (*kind == 'X') {         /* slices of a track must not overlap */
			json_int_t track = test_number(e, "tid", NULL, NULL), from = test_number(e, "ts", NULL, NULL);

			assert_true(from >= end[track]);
			end[track] = from + test_number(e, "dur", NULL, NULL);
		} else if (*kind == 'i') {
			assert_int_equal(test_number(e, "ts", NULL, NULL), test_number(p->json, "peak", "event", NULL) * 1000);
			marks++;
		}
	}
	assert_int_equal(most, test_number(p->json, "peak", "tensors", NULL));
	assert_int_equal(marks, 1);
	json_decref(o);
}

static void
perfetto(void **state)
{
	(void)state;
	test_each_model(check_perfetto, "perfetto");
}

/* ---- flamegraph --------------------------------------------------------------------------------------------------------------- */

static void
check_flamegraph(const struct test_parsed *p, const char *text, size_t n)
{
	long long sum = 0;

	(void)n;
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		const char *end = strchr(line, '\n'), *blank = memchr(line, ' ', (size_t)(end - line));

		assert_non_null(blank);
		assert_null(memchr(blank + 1, ' ', (size_t)(end - blank - 1)));
		sum += atoll(blank);
	}
	assert_int_equal(sum, test_number(p->json, "peak", "tensors", NULL));
}

static void
flamegraph(void **state)
{
	(void)state;
	test_each_model(check_flamegraph, "flamegraph");
}

/* ---- names and numbers that viewers cannot take ---------------------------------------------------------------------------------- */

static int
collect(void *user, const void *p, size_t n)
{
	buf_put(user, p, n);
	return 0;
}

static void
hidden_names(void **state)
{
	static const char text[] =
	    "memcrest-ir 1\ninput %x : fp32[4, 16]\nparam %w \"core/Register/boxing.PyObject_iceval.conv_start.weight\" : fp32[16, 16] trainable\n"
	    "%y : fp32[4, 16] = linear(%x, %w) as \"a;b c_start\" @\"core/Register/boxing.PyObject_iceval.conv_start\":\"Linear\"\noutput %y\n";
	struct analysed a = test_analyse(text, "{\"loss\":\"sum\"}");
	struct ctx *c = test_ctx();
	size_t n;
	char *out = test_write(a.r, "snapshot", &n);
	const struct pickle *traces = pickle_get(read_snapshot(c, out, n), S("device_traces"));

	(void)state;
	for (uint32_t i = 0; i < traces->u.item[0]->n; i++)
		check_frames(pickle_get(traces->u.item[0]->u.item[i], S("frames")));
	free(out);
	out = test_write(a.r, "flamegraph", &n);
	assert_non_null(strstr(out, "(model);core/Register/boxing;PyObject_iceval;conv_start;"));
	assert_null(strstr(out, "a;b"));
	free(out);
	test_ctx_free(c);
	release_analysis(a);
}

/* Every whole number in what a viewer's script reads. */
static void
check_exact(const json_t *x)
{
	const char *key;
	json_t *y;
	size_t i;

	if (json_is_integer(x))
		assert_true(json_integer_value(x) < EXACT);
	json_array_foreach(x, i, y)
		check_exact(y);
	json_object_foreach((json_t *)(uintptr_t)x, key, y)
		check_exact(y);
}

static void
written_exactly(const mc_report *r, const char *format)
{
	size_t n;
	char *out = test_write(r, format, &n);
	json_t *o = json_loads(out, 0, NULL);

	assert_non_null(o);
	assert_non_null(strstr(out, "9007199254740991"));
	check_exact(o);
	json_decref(o);
	free(out);
}

/* 2^53 bytes and more are no numbers of a script: refused, or cut to the largest. */
static void
large(void **state)
{
	static const char text[] =
	    "memcrest-ir 1\ninput %x : fp32[4, 16]\nparam %w : fp32[281474976710656, 16] trainable\n%y : fp32[4, 281474976710656] = linear(%x, %w)\noutput %y\n";
	struct analysed a = test_analyse(text, "{\"loss\":\"sum\",\"optimizer\":\"sgd\"}");
	struct buf b = {0};
	size_t n;
	char *out;
	json_t *o;

	(void)state;
	assert_true(mc_report_peak(a.r) > (uint64_t)EXACT);
	assert_int_equal(mc_write(a.r, "snapshot", collect, &b), MC_LIMIT);
	free(b.p);
	out = test_write(a.r, "perfetto", &n);
	o = json_loads(out, 0, NULL);
	for (size_t i = 0; i < json_array_size(json_object_get(o, "traceEvents")); i++) {
		const json_t *args = json_object_get(json_array_get(json_object_get(o, "traceEvents"), i), "args"), *total = json_object_get(args, "total");

		assert_true(json_integer_value(total) < EXACT);
	}
	json_decref(o);
	free(out);
	written_exactly(a.r, "netron");
	written_exactly(a.r, "model-explorer");
	release_analysis(a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(snapshot), cmocka_unit_test(perfetto), cmocka_unit_test(flamegraph), cmocka_unit_test(hidden_names), cmocka_unit_test(large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
