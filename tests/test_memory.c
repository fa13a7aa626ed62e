/*
 * What the GPU reports, derived by hand: allocated and reserved of tiny graphs, workspaces by card and version, the process's range, verdicts,
 * PYTORCH_ALLOC_CONF, kernels' scratch space. x fp32[128, 256] is 128 KiB, w fp32[512, 256] 512 KiB, y = x w^T 256 KiB.
 */
#include "test.h"

#include "../passes/measure/replay.h"
#include "../passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\n"
#define LINEAR HEAD "%y : fp32[128, 512] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n"
#define BIASED HEAD "param %b \"fc.bias\" : fp32[512] trainable\n%y : fp32[128, 512] = linear(%x, %w, %b)\n%l : fp32[] = sum(%y)\noutput %l\n"

enum { X = 131072, W = 524288, Y = 262144, U = 512, BASE = X + W, B = 2048 };
#define SPACE ((uint64_t)8519680)          /* a workspace of cuBLAS */

/* ---- allocated and reserved ----------------------------------------------------------------------------------- */

static void
phases(const struct analysed *a, unsigned step, uint64_t forward, uint64_t backward, uint64_t optimizer)
{
	const struct phase_row *p = a->r->r.steps[step].phases;

	assert_int_equal(p[PH_FORWARD].allocated, forward);
	assert_int_equal(p[PH_BACKWARD].allocated, backward);
	assert_int_equal(p[PH_OPTIMIZER].allocated, optimizer);
}

/*
 * w, x, y, the loss, the root gradient and dw are small: together below 2 MiB, one segment. The workspaces, 8.125 MiB each, share one of
 * 20 MiB. Forward of step 1 has only the first; the product of backward brings the second.
 */
static void
linear(void **state)
{
	struct analysed a = test_analyse(LINEAR, "{\"optimizer\": \"sgd\"}");
	const struct memory_row *m = &a.r->r.memory;

	(void)state;
	phases(&a, 1, BASE + Y + U + SPACE, BASE + 2 * U + W + 2 * SPACE, BASE + W + 2 * SPACE);
	phases(&a, 2, BASE + Y + U + 2 * SPACE, BASE + 2 * U + W + 2 * SPACE, BASE + W + 2 * SPACE);
	assert_int_equal(a.r->r.steps[1].phases[PH_FORWARD].reserved, 22 * MIB);
	assert_int_equal(m->allocated, BASE + 2 * U + W + 2 * SPACE);
	assert_int_equal(m->reserved, 22 * MIB);
	assert_int_equal(m->nsegment, 2);
	assert_int_equal(m->process_low, 22 * MIB + m->context_low);
	assert_int_equal(m->process_high, 22 * MIB + m->context_high);
	assert_int_equal(m->scratch, 0);
	assert_int_equal(a.r->r.verdict.asked, false);
	release_analysis(a);
}

/* The blocks at the peak (backward: x, w, loss, root, dw and the workspaces): they fill the segments, and each storage alive has one. */
static void
blocks_at_the_peak(void **state)
{
	struct analysed a = test_analyse(LINEAR, "{\"optimizer\": \"sgd\"}");
	const struct memory_row *m = &a.r->r.memory;
	uint32_t use[3] = {0};
	uint64_t held = 0;

	(void)state;
	for (uint32_t i = 0; i < m->nsegment; i++) {
		const struct segment_row *s = &m->segments[i];
		uint64_t n = 0;

		for (uint32_t k = 0; k < s->nblock; k++) {
			const struct block_row *b = &m->blocks[s->first + k];

			n += b->bytes;
			use[b->use]++;
			if (b->use == USE_STORAGE)
				assert_int_equal(b->bytes, a.r->r.sched->storages[b->storage].nbytes);
		}
		assert_int_equal(n, s->bytes);
		assert_int_equal(s->bytes, s->small ? 2 * MIB : 20 * MIB);
		held += n;
	}
	assert_int_equal(held, m->reserved_at);
	assert_int_equal(use[USE_STORAGE], 5);
	assert_int_equal(use[USE_WORKSPACE], 2);
	assert_int_equal(m->allocated_at, BASE + 2 * U + W + 2 * SPACE);
	release_analysis(a);
}

/* Hopper's workspaces are 32 MiB, each a segment of its own; Blackwell's only from 2.12 on; a measured one is what was measured. */
static void
workspaces(void **state)
{
	static const struct {
		const char *recipe;
		uint64_t space, reserved;
	} cases[] = {
		{"{\"optimizer\": \"sgd\", \"device\": \"a100-80gb\"}", 8519680, 22 * MIB},
		{"{\"optimizer\": \"sgd\", \"device\": \"h100-80gb\"}", 32 * MIB, 66 * MIB},
		{"{\"optimizer\": \"sgd\", \"device\": \"b200\", \"torch\": \"2.11\"}", 8519680, 22 * MIB},
		{"{\"optimizer\": \"sgd\", \"device\": \"b200\", \"torch\": \"2.12\"}", 32 * MIB, 66 * MIB},
		{"{\"optimizer\": \"sgd\", \"calibrate\": {\"workspace\": 1048576}}", MIB, 4 * MIB},        /* small: 1151.5 KiB are left in the first */
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct analysed a = test_analyse(LINEAR, cases[i].recipe);

		assert_int_equal(a.r->r.memory.allocated, BASE + 2 * U + W + 2 * cases[i].space);
		assert_int_equal(a.r->r.memory.reserved, cases[i].reserved);
		release_analysis(a);
	}
}

/* Until 2.8 cublasLt took 1 MiB around each product with a bias: it is there when y is and the loss is not. */
static void
lt_workspace(void **state)
{
	struct analysed old = test_analyse(BIASED, "{\"optimizer\": \"sgd\", \"device\": \"a100-80gb\", \"torch\": \"2.6\"}");
	struct analysed new = test_analyse(BIASED, "{\"optimizer\": \"sgd\", \"device\": \"a100-80gb\", \"torch\": \"2.13\"}");

	(void)state;
	assert_int_equal(new.r->r.steps[1].phases[PH_FORWARD].allocated, BASE + B + Y + U + SPACE);
	assert_int_equal(old.r->r.steps[1].phases[PH_FORWARD].allocated, BASE + B + Y + SPACE + MIB);
	release_analysis(old);
	release_analysis(new);
}

/* 22 MiB are 20 + 2; expandable pages are as large, so that nothing changes here. Every row of the table has a workspace in every version. */
static void
tables(void **state)
{
	struct analysed a = test_analyse(LINEAR, "{\"optimizer\": \"sgd\", \"allocator\": {\"expandable_segments\": true}}");
	const struct device *d;
	uint64_t cublas, lt;

	(void)state;
	assert_int_equal(a.r->r.memory.reserved, 22 * MIB);
	assert_true(a.r->r.memory.segments[0].expandable);
	release_analysis(a);
	for (int64_t i = 1; (d = device_at(i)) != NULL; i++) {
		assert_true(d->context_low < d->context_high && d->context_high < d->total && *d->source);
		for (unsigned minor = 0; minor < 15; minor++)
			assert_true(device_workspace(d->sm, minor, &cublas, &lt) && cublas >= SPACE);
	}
	assert_null(device_at(0));
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

/* 22 MiB reserved. A T4 has 14,909 MiB; its context is 112 to 640 MiB. */
static void
verdicts(void **state)
{
	static const struct {
		const char *recipe;
		mc_fit fit;
		int64_t margin;
		uint64_t budget;
	} cases[] = {
		{"{\"optimizer\": \"sgd\"}", MC_NOT_ASKED, 0, 0},
		{"{\"optimizer\": \"sgd\", \"budget\": \"22MiB\"}", MC_FITS, 0, 22 * MIB},
		{"{\"optimizer\": \"sgd\", \"budget\": \"1GiB\"}", MC_FITS, 1002 * (int64_t)MIB, GIB},
		{"{\"optimizer\": \"sgd\", \"budget\": 23068671}", MC_DOES_NOT_FIT, -1, 22 * MIB - 1},
		{"{\"optimizer\": \"sgd\", \"device\": \"t4\"}", MC_FITS, (14909 - 640 - 22) * (int64_t)MIB, 14909 * MIB},
		{"{\"optimizer\": \"sgd\", \"device\": \"t4\", \"budget\": \"300MiB\"}", MC_MAY_FIT, (300 - 640 - 22) * (int64_t)MIB, 300 * MIB},
		{"{\"optimizer\": \"sgd\", \"device\": \"t4\", \"budget\": \"133MiB\"}", MC_DOES_NOT_FIT, (133 - 112 - 22) * (int64_t)MIB, 133 * MIB},
		{"{\"optimizer\": \"sgd\", \"device\": \"t4\", \"budget\": \"90MiB\"}", MC_DOES_NOT_FIT, (90 - 112 - 22) * (int64_t)MIB, 90 * MIB},
		{"{\"optimizer\": \"sgd\", \"device\": \"t4\", \"budget\": \"1TiB\"}", MC_FITS, (14909 - 640 - 22) * (int64_t)MIB, 14909 * MIB},
		{"{\"optimizer\": \"sgd\", \"budget\": \"122MiB\", \"calibrate\": {\"context\": \"100MiB\"}}", MC_FITS, 0, 122 * MIB},
		{"{\"optimizer\": \"sgd\", \"budget\": \"121MiB\", \"calibrate\": {\"context\": \"100MiB\"}}", MC_DOES_NOT_FIT, -(int64_t)MIB, 121 * MIB},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct analysed a = test_analyse(LINEAR, cases[i].recipe);

		if (mc_report_fit(a.r) != cases[i].fit || a.r->r.verdict.margin != cases[i].margin)
			fail_msg("%s: %d, margin %lld", cases[i].recipe, mc_report_fit(a.r), (long long)a.r->r.verdict.margin);
		assert_int_equal(a.r->r.verdict.budget, cases[i].budget);
		release_analysis(a);
	}
}

/* Just below what would be reserved, cached segments are given back, and reserved stays below the capacity; half of it is not enough. */
static void
flush_at_the_capacity(void **state)
{
	const char *model = "fixtures/models/llama_tiny.train.pt2";
	struct analysed free = test_analyse_file(model, "{\"dims\": {\"batch\": 8, \"seq\": 256}}"), tight;
	const struct memory_row *m = &free.r->r.memory;
	uint64_t capacity = m->reserved - 2 * MIB;
	char recipe[128];

	(void)state;
	assert_true(m->flushes == 0 && m->reserved > m->allocated);
	snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 8, \"seq\": 256}, \"capacity\": %llu}", (unsigned long long)capacity);
	tight = test_analyse_file(model, recipe);
	assert_true(tight.r->r.memory.flushes > 0);
	assert_true(tight.r->r.memory.reserved <= capacity);
	assert_int_equal(tight.r->r.memory.short_of, 0);
	release_analysis(tight);
	snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 8, \"seq\": 256}, \"capacity\": %llu}", (unsigned long long)m->allocated / 2);
	tight = test_analyse_file(model, recipe);
	assert_true(tight.r->r.memory.short_of > 0);
	release_analysis(tight);
	release_analysis(free);
}

/* ---- PYTORCH_ALLOC_CONF ---------------------------------------------------------------------------------------------- */

static bool
configure(struct ctx *c, const char *key, const char *value, uint64_t total, struct alloc_config *out)
{
	struct recipe r;
	struct analysis a = {.c = c, .r = &r, .machine = {.total = total}};

	recipe_init(&r);
	assert_true(recipe_set_text(c, &r, key_by_name(str_of(key)), str_of(value)));
	return alloc_config_of(&a, out);
}

/* Sizes in MiB and what PyTorch's own test of the option expects for them. */
static void
divisions(void **state)
{
	static const uint32_t first[] = {8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1}, second[] = {8, 8, 8, 8, 8, 8, 8, 8, 16, 1, 0, 8, 2, 2, 2, 2};
	static const char *const bad[] = {"3", "x", "[", "[]x", "[3:1]", "[1:3]", "[:]", "[256]", "-1"};
	struct ctx *c = test_ctx();
	struct alloc_config conf;

	(void)state;
	assert_true(configure(c, "allocator.roundup_power2_divisions", "[64:8,128:2,256:4,512:2,1024:4,>:1]", 0, &conf));
	assert_memory_equal(conf.divisions, first, sizeof first);
	assert_true(configure(c, "allocator.roundup_power2_divisions", "[128:8,256:16,512:1,2048:8,>:2]", 0, &conf));
	assert_memory_equal(conf.divisions, second, sizeof second);
	assert_true(configure(c, "allocator.roundup_power2_divisions", "4", 0, &conf));
	assert_true(conf.divisions[0] == 4 && conf.divisions[15] == 4);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(configure(c, "allocator.roundup_power2_divisions", bad[i], 0, &conf));
	test_ctx_free(c);
}

static void
limits(void **state)
{
	struct ctx *c = test_ctx();
	struct alloc_config conf;

	(void)state;
	assert_true(configure(c, "allocator.max_split_size_mb", "64", 0, &conf));
	assert_int_equal(conf.max_split, 64 * MIB);
	assert_false(configure(c, "allocator.max_split_size_mb", "19", 0, &conf));
	assert_false(configure(c, "allocator.large_segment_size_mb", "10", 0, &conf));
	assert_true(configure(c, "allocator.large_segment_size_mb", "15", 0, &conf));
	assert_false(configure(c, "allocator.max_non_split_rounding_mb", "19", 0, &conf));
	assert_false(configure(c, "allocator.garbage_collection_threshold", "1", 0, &conf));
	assert_false(configure(c, "allocator.per_process_memory_fraction", "0", 0, &conf));
	assert_true(configure(c, "allocator.per_process_memory_fraction", "0.5", 10 * GIB, &conf));
	assert_int_equal(conf.allowed, 5 * GIB);
	assert_true(configure(c, "allocator.per_process_memory_fraction", "0.5", 0, &conf));     /* of what? then it does nothing */
	assert_int_equal(conf.allowed, 0);
	test_ctx_free(c);
}

/* A weight of 1025 x 1024 bytes rounds to 1.25 MiB with four divisions; the request counts, not the 512 bytes that tensors are counted in. */
static void
requested_bytes(void **state)
{
	const char *graph = "memcrest-ir 1\nparam %w \"w\" : fp32[262145] trainable\n%l : fp32[] = sum(%w)\noutput %l\n";
	struct analysed a = test_analyse(graph, "{\"optimizer\": \"sgd\"}");
	struct analysed b = test_analyse(graph, "{\"optimizer\": \"sgd\", \"allocator\": {\"roundup_power2_divisions\": \"4\"}}");

	(void)state;
	assert_int_equal(a.r->r.sched->storages[1].requested, 1048580);
	assert_int_equal(a.r->r.sched->storages[1].nbytes, MIB + 512);
	assert_int_equal(a.r->r.steps[1].phases[PH_FORWARD].allocated, MIB + 512 + U);
	assert_int_equal(b.r->r.steps[1].phases[PH_FORWARD].allocated, MIB * 5 / 4 + U);
	release_analysis(a);
	release_analysis(b);
}

/* ---- scratch space ------------------------------------------------------------------------------------------------------ */

static uint64_t
scratch_of(const struct analysed *a, const char *op)
{
	uint64_t n = 0;

	for (uint32_t i = 1; i < a->r->r.sched->nstorage; i++)
		if (strcmp(a->r->r.sched->storages[i].op, op) == 0 && a->r->r.sched->storages[i].scratch > n)
			n = a->r->r.sched->storages[i].scratch;
	return n;
}

static void
convolution(const char *weight, const char *pad, const char *groups, uint64_t want)
{
	char graph[600];
	struct analysed a;

	snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[8, 64, 32, 32]\nparam %%w \"w\" : fp32[%s] trainable\n"
	    "%%y : fp32[8, 64, 32, 32] = convolution(%%x, %%w, none, [1, 1], [%s, %s], [1, 1], false, [0, 0], %s)\n%%l : fp32[] = sum(%%y)\noutput %%l\n",
	    weight, pad, pad, groups);
	a = test_analyse(graph, "{\"optimizer\": \"sgd\"}");
	assert_int_equal(scratch_of(&a, "convolution"), want);
	assert_int_equal(scratch_of(&a, "convolution_backward"), want);
	release_analysis(a);
}

/*
 * x and y are 2 MiB each. 1 x 1: copies of x, y and w (16 KiB). 3 x 3: Winograd, 36/16 of the images and 36/9 of the weight (144 KiB).
 * Depthwise in fp32: PyTorch's own kernel. Flash attention backward: 2 x 8 heads of 128 rows, 64 + 1 values in fp32.
 */
static void
scratch(void **state)
{
	struct analysed a;

	(void)state;
	convolution("64, 64, 1, 1", "0", "1", 4 * MIB + 16384);
	convolution("64, 64, 3, 3", "1", "1", 9 * MIB + 4 * 147456);
	convolution("64, 1, 3, 3", "1", "64", 0);
	a = test_analyse("memcrest-ir 1\ninput %x : bf16[2, 8, 128, 64]\nparam %w \"w\" : bf16[2, 8, 128, 64] trainable\n"
	    "%q : bf16[2, 8, 128, 64] = mul(%x, %w)\n%o : bf16[2, 8, 128, 64] = scaled_dot_product_attention(%q, %q, %q)\n"
	    "%l : bf16[] = sum(%o)\noutput %l\n", "{\"optimizer\": \"sgd\"}");
	assert_int_equal(scratch_of(&a, "_scaled_dot_product_flash_attention_backward"), 2 * 8 * 128 * 4 * 65);
	release_analysis(a);
}

/* One convolution of 8 MiB images: 2 + 4 copies of x and y are more than is cached when it runs, so that the process may take more. */
static void
scratch_widens_the_process(void **state)
{
	struct analysed a = test_analyse("memcrest-ir 1\ninput %x : fp32[32, 64, 32, 32]\nparam %w \"w\" : fp32[64, 64, 3, 3] trainable\n"
	    "%y : fp32[32, 64, 32, 32] = convolution(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)\n%l : fp32[] = sum(%y)\noutput %l\n",
	    "{\"optimizer\": \"sgd\"}");
	const struct memory_row *m = &a.r->r.memory;

	(void)state;
	/* tensors: x and y in a segment of 20 MiB (8 + 8), the rest small; scratch 36 MiB + 576 KiB: a segment of 38 */
	assert_int_equal(m->reserved, 22 * MIB);
	assert_int_equal(m->scratch, 38 * MIB);
	assert_int_equal(m->process_high, 60 * MIB + m->context_high);
	release_analysis(a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linear), cmocka_unit_test(blocks_at_the_peak), cmocka_unit_test(workspaces), cmocka_unit_test(lt_workspace),
		cmocka_unit_test(tables), cmocka_unit_test(verdicts), cmocka_unit_test(flush_at_the_capacity), cmocka_unit_test(divisions),
		cmocka_unit_test(limits), cmocka_unit_test(requested_bytes), cmocka_unit_test(scratch), cmocka_unit_test(scratch_widens_the_process),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
