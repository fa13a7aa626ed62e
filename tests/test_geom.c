/* Strides and dtypes, against what PyTorch 2.13 gives (each row was printed by torch on CPU tensors). */
#include "test.h"

#include <string.h>

static struct geom
make(unsigned rank, const int64_t *dim, const int64_t *stride, unsigned dtype)
{
	struct geom g = {.rank = (uint8_t)rank, .dtype = (uint8_t)dtype};

	memcpy(g.dim, dim, rank * sizeof *dim);
	memcpy(g.stride, stride, rank * sizeof *stride);
	return g;
}

/* torch: x.view(shape) works, or raises */
static void
views(void **state)
{
	static const struct {
		unsigned rank;
		int64_t dim[4], stride[4];
		unsigned to;
		int64_t shape[4];
		bool ok;
		int64_t want[4];
	} cases[] = {
		{2, {4, 6}, {6, 1}, 3, {2, 2, 6}, true, {12, 6, 1}},
		{2, {4, 6}, {1, 4}, 1, {24}, false, {0}},                        /* transposed */
		{3, {2, 3, 4}, {12, 4, 1}, 2, {6, 4}, true, {4, 1}},
		{3, {2, 3, 4}, {12, 1, 3}, 2, {6, 4}, false, {0}},
		{3, {2, 3, 4}, {12, 1, 3}, 4, {2, 3, 2, 2}, true, {12, 1, 6, 3}},  /* only the last dim is split */
		{3, {1, 3, 4}, {999, 4, 1}, 1, {12}, true, {1}},                  /* the stride of a dim of size 1 says nothing */
		{2, {4, 3}, {5, 1}, 2, {2, 6}, false, {0}},                       /* a slice: rows do not follow each other */
		{2, {4, 3}, {5, 1}, 3, {2, 2, 3}, true, {10, 5, 1}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ctx *c = test_ctx();
		const struct geom *g = geom_intern(geoms_new(c->a), make(cases[i].rank, cases[i].dim, cases[i].stride, DT_FP32));
		int64_t stride[MAX_RANK];

		assert_int_equal(geom_view(g, cases[i].to, cases[i].shape, stride), cases[i].ok);
		if (cases[i].ok)
			assert_memory_equal(stride, cases[i].want, cases[i].to * sizeof *stride);
		test_ctx_free(c);
	}
}

/* torch: (a + b).stride() */
static void
elementwise_strides(void **state)
{
	static const struct {
		int64_t dim[3], a[3], b[3], want[3];
	} cases[] = {
		{{2, 3, 4}, {12, 4, 1}, {12, 4, 1}, {12, 4, 1}},
		{{2, 3, 4}, {1, 2, 6}, {1, 2, 6}, {1, 2, 6}},        /* both permuted alike: kept */
		{{2, 3, 4}, {1, 2, 6}, {12, 4, 1}, {1, 2, 6}},       /* the first operand decides */
		{{2, 3, 4}, {12, 4, 1}, {1, 2, 6}, {12, 4, 1}},
		{{2, 3, 4}, {0, 4, 1}, {1, 2, 6}, {1, 8, 2}},        /* stride 0 has no opinion: dim 0 is the second operand's to place */
		{{2, 3, 4}, {12, 1, 3}, {12, 1, 3}, {12, 1, 3}},
	};
	struct ctx *c = test_ctx();
	struct geoms *t = geoms_new(c->a);

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct geom *g[2] = {geom_intern(t, make(3, cases[i].dim, cases[i].a, DT_FP32)), geom_intern(t, make(3, cases[i].dim, cases[i].b, DT_FP32))};
		struct geom out = *g[0];

		geom_elementwise(&out, g, 2);
		if (memcmp(out.stride, cases[i].want, sizeof cases[i].want))
			fail_msg("row %zu: %lld %lld %lld", i, (long long)out.stride[0], (long long)out.stride[1], (long long)out.stride[2]);
	}
	test_ctx_free(c);
}

static void
properties(void **state)
{
	struct ctx *c = test_ctx();
	struct geoms *t = geoms_new(c->a);
	const int64_t nchw[] = {2, 3, 4, 5}, last[] = {60, 1, 15, 3}, first[] = {60, 20, 5, 1}, gap[] = {120, 20, 5, 1};
	const struct geom *a = geom_intern(t, make(4, nchw, last, DT_FP32)), *b = geom_intern(t, make(4, nchw, first, DT_FP32)), *d = geom_intern(t, make(4, nchw, gap, DT_FP32));

	(void)state;
	assert_true(geom_channels_last(a) && !geom_channels_last(b));
	assert_true(a->dense && !a->contiguous && b->dense && b->contiguous && !d->dense);
	assert_ptr_equal(a, geom_intern(t, make(4, nchw, last, DT_FP32)));
	assert_int_equal(geom_nbytes(a), 480);
	assert_true(geom_same_layout(b, b) && !geom_same_layout(a, b));
	test_ctx_free(c);
}

/* torch.result_type */
static void
promotion(void **state)
{
	static const struct {
		unsigned a, b, want;
	} pairs[] = {
		{DT_FP32, DT_BF16, DT_FP32}, {DT_FP16, DT_BF16, DT_FP32}, {DT_INT64, DT_FP16, DT_FP16}, {DT_BOOL, DT_INT8, DT_INT8}, {DT_UINT8, DT_INT8, DT_INT16},
		{DT_UINT8, DT_INT64, DT_INT64}, {DT_INT32, DT_INT64, DT_INT64}, {DT_FP64, DT_FP32, DT_FP64}, {DT_C64, DT_FP64, DT_C128},
	};
	struct geom dim = {.rank = 1, .dtype = DT_INT64}, zero = {.rank = 0, .dtype = DT_FP64}, half = {.rank = 2, .dtype = DT_BF16};
	struct promotion p = {0}, q = {0}, r = {0};

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		assert_int_equal(dtype_promote(pairs[i].a, pairs[i].b), pairs[i].want);
		assert_int_equal(dtype_promote(pairs[i].b, pairs[i].a), pairs[i].want);
	}
	promote_tensor(&p, &half);
	promote_tensor(&p, &zero);
	assert_int_equal(promote_result(&p), DT_BF16);            /* a 0-dim tensor does not widen one with dims */
	promote_tensor(&q, &dim);
	promote_number(&q, DT_FP32);
	assert_int_equal(promote_result(&q), DT_FP32);            /* int64 tensor * 0.5 */
	promote_tensor(&r, &half);
	promote_number(&r, DT_INT64);
	assert_int_equal(promote_result(&r), DT_BF16);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(views), cmocka_unit_test(elementwise_strides), cmocka_unit_test(properties), cmocka_unit_test(promotion),
	};

	return cmocka_run_group_tests_name("geom", tests, NULL, NULL);
}
