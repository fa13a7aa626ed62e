/* What holds of the caching allocator's blocks after every request, whatever was asked for: requests and releases drawn at random. */
#include "test.h"

#include "../passes/measure/replay.h"

/* Blocks of each segment in order: no gap, no overlap, no two free neighbours; the sums are those that the allocator keeps. */
static void
check_blocks(const struct allocator *a)
{
	uint64_t used = 0, held = 0;
	uint32_t nfree = 0, intree = 0;

	for (uint32_t i = 1; i < a->nblock; i++) {
		const struct alloc_block *b = &a->blocks[i];

		if (b->state == BLOCK_GONE)
			continue;
		assert_true(b->size > 0 && b->size % MIN_BLOCK == 0);
		used += b->state == BLOCK_USED ? b->size : 0;
		held += b->state != BLOCK_UNMAPPED ? b->size : 0;
		nfree += b->state == BLOCK_FREE;
		if (b->next) {
			const struct alloc_block *n = &a->blocks[b->next];

			assert_int_equal(n->prev, i);
			assert_int_equal(n->segment, b->segment);
			assert_int_equal(n->offset, b->offset + b->size);
			assert_false(b->state == n->state && b->state != BLOCK_USED);
		}
		if (!b->prev)
			assert_int_equal(b->offset, 0);
	}
	for (unsigned s = 0; s < ALLOC_STREAMS; s++)
		for (unsigned small = 0; small < 2; small++) {
			const struct alloc_tree *t = &a->pools[s][small].free;
			uint64_t size = 0;

			for (uint32_t b = tree_first(a, t); b; b = tree_next(a, t, b)) {
				assert_int_equal(a->blocks[b].state, BLOCK_FREE);
				assert_true(a->blocks[b].size >= size);
				size = a->blocks[b].size;
				intree++;
			}
		}
	assert_int_equal(used, a->allocated);
	assert_int_equal(held, a->reserved);
	assert_int_equal(nfree, intree);
}

static uint64_t
next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static uint64_t
random_size(uint64_t *x)
{
	unsigned bits = (unsigned)(next_random(x) % 27);

	return next_random(x) % ((uint64_t)2 << bits) + 1;
}

static void
under_random_requests(const struct alloc_config *conf, uint64_t seed)
{
	struct ctx *c = test_ctx();
	struct allocator *a = allocator_new(c->a, conf);
	uint32_t held[200] = {0};

	for (unsigned i = 0; i < 4000; i++) {
		unsigned k = (unsigned)(next_random(&seed) % 200), stream = (unsigned)(next_random(&seed) % 2);

		if (held[k]) {
			allocator_free(a, held[k]);
			held[k] = 0;
		} else {
			uint64_t n = random_size(&seed);

			held[k] = allocator_malloc(a, n, stream);
			assert_true(a->blocks[held[k]].size >= n);
			assert_true(!conf->limit || a->failures || a->reserved <= conf->limit);
		}
		if (i % 16 == 0)
			check_blocks(a);
	}
	for (unsigned k = 0; k < 200; k++)
		allocator_free(a, held[k]);
	check_blocks(a);
	assert_int_equal(a->allocated, 0);
	test_ctx_free(c);
}

static void
invariants(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct alloc_config conf;

		alloc_config_default(&conf);
		conf.limit = seed % 2 ? 0 : 1500 * MIB;
		conf.expandable = seed % 4 >= 2;
		if (seed > 4)
			conf.max_split = 24 * MIB;
		if (seed > 6)
			for (unsigned i = 0; i < ALLOC_INTERVALS; i++)
				conf.divisions[i] = 8;
		if (seed == 5) {
			conf.allowed = 1000 * MIB;
			conf.gc_threshold = 0.6;
		}
		under_random_requests(&conf, seed * 0x9e3779b97f4a7c15u);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(invariants)};

	return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
