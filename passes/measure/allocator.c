/*
 * The caching allocator: requests, blocks, segments, and what happens when the driver has no more. The rules are in allocator.h.
 *
 *     a = allocator_new(arena, &conf); x = allocator_malloc(a, 6 MiB, 0); a->allocated == 6 MiB, a->reserved == 20 MiB
 */
#include "allocator.h"

/* No card has a PiB: a larger request, which only a damaged file makes, is cut, so that block sizes stay far from overflow. */
#define MAX_REQUEST ((uint64_t)1 << 50)

void
alloc_config_default(struct alloc_config *c)
{
	*c = (struct alloc_config){.max_split = UINT64_MAX, .max_rounding = LARGE_BUFFER, .large_segment = LARGE_BUFFER};
}

struct allocator *
allocator_new(struct arena *arena, const struct alloc_config *conf)
{
	struct allocator *a = NEW(arena, struct allocator, 1);

	a->a = arena;
	a->conf = *conf;
	ROOM(arena, a->blocks, 0, a->block_cap, 256);
	a->nblock = 1;
	for (unsigned i = 0; i < ALLOC_STREAMS; i++)
		a->pools[i][0].unmapped.by_address = a->pools[i][1].unmapped.by_address = true;
	return a;
}

/* ---- sizes -------------------------------------------------------------------------------------------------- */

static uint64_t
up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static unsigned
log2_floor(uint64_t n)
{
	return 63u - (unsigned)__builtin_clzll(n);
}

/* Divisions of the power-of-two interval that n is in; those below 1 MiB share the first, those from 32 GiB the last. */
static uint32_t
divisions(const struct alloc_config *c, uint64_t n)
{
	unsigned log = log2_floor(n), i = log > 20 ? log - 20 : 0;

	return c->divisions[i < ALLOC_INTERVALS ? i : ALLOC_INTERVALS - 1];
}

uint64_t
alloc_round(const struct alloc_config *c, uint64_t bytes)
{
	uint64_t n = bytes > MAX_REQUEST ? MAX_REQUEST : bytes < MIN_BLOCK ? MIN_BLOCK : bytes, part;
	uint32_t d = divisions(c, n);

	if (d <= 1 || n <= (uint64_t)MIN_BLOCK * d)
		return up(n, MIN_BLOCK);
	part = ((uint64_t)1 << log2_floor(n)) / d;
	return up(n, part);
}

static uint64_t
segment_size(const struct alloc_config *c, uint64_t size)
{
	return size <= SMALL_SIZE ? SMALL_BUFFER : size < MIN_LARGE ? c->large_segment : up(size, ROUND_LARGE);
}

/* ---- blocks --------------------------------------------------------------------------------------------------- */

struct alloc_pool *
pool_of(struct allocator *a, const struct alloc_block *b)
{
	return &a->pools[b->stream][b->small];
}

/* A block of the same segment, stream and pool as another, or the first of all (like = 0, to be filled in). */
uint32_t
block_new(struct allocator *a, uint32_t like, uint64_t offset, uint64_t size, unsigned state)
{
	uint32_t b = a->unused;

	if (b) {
		a->unused = a->blocks[b].left;
	} else {
		ROOM(a->a, a->blocks, a->nblock, a->block_cap, 1);
		b = a->nblock++;
	}
	a->blocks[b] = (struct alloc_block){
		.size = size, .offset = offset, .segment = a->blocks[like].segment, .state = (uint8_t)state, .stream = a->blocks[like].stream,
		.small = a->blocks[like].small, .priority = tree_priority(b),
	};
	return b;
}

static void
block_drop(struct allocator *a, uint32_t b)
{
	a->blocks[b] = (struct alloc_block){.left = a->unused};
	a->unused = b;
}

void
block_insert_after(struct allocator *a, uint32_t at, uint32_t b)
{
	uint32_t next = a->blocks[at].next;

	a->blocks[b].prev = at;
	a->blocks[b].next = next;
	a->blocks[at].next = b;
	if (next)
		a->blocks[next].prev = b;
}

/* The higher of two neighbours ends in the lower one. */
static void
join(struct allocator *a, uint32_t low, uint32_t high)
{
	a->blocks[low].size += a->blocks[high].size;
	a->blocks[low].next = a->blocks[high].next;
	if (a->blocks[high].next)
		a->blocks[a->blocks[high].next].prev = low;
	block_drop(a, high);
}

/* b, which is in no tree, with its neighbours in the same state; the result is in no tree either. */
uint32_t
block_merge(struct allocator *a, uint32_t b)
{
	uint32_t prev = a->blocks[b].prev, next = a->blocks[b].next;
	struct alloc_pool *p = pool_of(a, &a->blocks[b]);
	struct alloc_tree *t = a->blocks[b].state == BLOCK_FREE ? &p->free : &p->unmapped;

	if (prev && a->blocks[prev].state == a->blocks[b].state) {
		tree_remove(a, t, prev);
		join(a, prev, b);
		b = prev;
	}
	if (next && a->blocks[next].state == a->blocks[b].state) {
		tree_remove(a, t, next);
		join(a, b, next);
	}
	return b;
}

void
block_set_free(struct allocator *a, uint32_t b)
{
	struct alloc_pool *p = pool_of(a, &a->blocks[b]);

	a->blocks[b].state = BLOCK_FREE;
	a->blocks[b].since = p->searches;
	tree_insert(a, &p->free, b);
}

/* ---- the driver ------------------------------------------------------------------------------------------------- */

bool
driver_take(struct allocator *a, uint64_t bytes)
{
	if (a->conf.limit && (bytes > a->conf.limit || a->reserved > a->conf.limit - bytes))
		return false;
	a->reserved += bytes;
	return true;
}

static uint32_t
grow(struct allocator *a, uint64_t size, bool small, unsigned stream)
{
	uint64_t bytes = segment_size(&a->conf, size);
	uint32_t b;

	if (a->conf.allowed && a->reserved + bytes > a->conf.allowed)
		return 0;
	if (a->conf.expandable)
		return expand_grow(a, size, small, stream);
	if (!driver_take(a, bytes))
		return 0;
	b = block_new(a, 0, 0, bytes, BLOCK_FREE);
	a->blocks[b].segment = ++a->nsegment;
	a->blocks[b].stream = (uint8_t)stream;
	a->blocks[b].small = small;
	return b;
}

static bool
is_whole(const struct allocator *a, uint32_t b)
{
	return !a->blocks[b].prev && !a->blocks[b].next;
}

/* A free block that is a segment goes back to the driver. */
static void
release(struct allocator *a, uint32_t b)
{
	tree_remove(a, &pool_of(a, &a->blocks[b])->free, b);
	a->reserved -= a->blocks[b].size;
	block_drop(a, b);
}

/* Unmapping changes the tree: the blocks of an expandable segment are listed first, by their since, which nobody needs any more. */
static void
release_pool(struct allocator *a, struct alloc_pool *p)
{
	uint32_t list = 0;

	for (uint32_t b = tree_first(a, &p->free), next; b; b = next) {
		next = tree_next(a, &p->free, b);
		if (a->conf.expandable) {
			a->blocks[b].since = list;
			list = b;
		} else if (is_whole(a, b)) {
			release(a, b);
		}
	}
	while (list) {
		uint32_t b = list;

		list = a->blocks[b].since;
		expand_release(a, b);
	}
}

/* release_cached_blocks: whatever is wholly free goes back. */
static void
flush(struct allocator *a)
{
	a->flushes++;
	for (unsigned small = 0; small < 2; small++)
		for (unsigned stream = 0; stream < ALLOC_STREAMS; stream++)
			release_pool(a, &a->pools[stream][small]);
}

/* release_available_cached_blocks, with max_split_size: one block that is large enough, or the largest ones until they are. */
static bool
release_oversize(struct allocator *a, struct alloc_pool *p, uint64_t size)
{
	uint64_t want = size < a->conf.max_split ? a->conf.max_split : size, got = 0;
	uint32_t b;

	if (a->conf.max_split == UINT64_MAX || a->conf.expandable)
		return false;
	b = tree_fit(a, &p->free, want);
	if (b) {
		release(a, b);
		return true;
	}
	while (got < want && (b = tree_last(a, &p->free)) != 0 && a->blocks[b].size >= a->conf.max_split) {
		got += a->blocks[b].size;
		release(a, b);
	}
	return got >= want;
}

/* ---- garbage collection ------------------------------------------------------------------------------------------- */

struct garbage {
	uint64_t age, freed;
	uint32_t count;
};

static bool
is_garbage(const struct allocator *a, uint32_t b)
{
	return is_whole(a, b) && !a->conf.expandable;
}

static void
count_garbage(struct allocator *a, struct garbage *g)
{
	for (unsigned s = 0; s < ALLOC_STREAMS; s++) {
		struct alloc_pool *p = &a->pools[s][0];

		for (uint32_t b = tree_first(a, &p->free); b; b = tree_next(a, &p->free, b))
			if (is_garbage(a, b)) {
				g->age += p->searches - a->blocks[b].since;
				g->count++;
			}
	}
}

/* Every large segment that is free and at least as old as the threshold goes; false: there was none. */
static bool
free_garbage(struct allocator *a, struct garbage *g, double threshold)
{
	uint32_t before = g->count;

	for (unsigned s = 0; s < ALLOC_STREAMS; s++) {
		struct alloc_pool *p = &a->pools[s][0];

		for (uint32_t b = tree_first(a, &p->free), next; b; b = next) {
			uint32_t age = p->searches - a->blocks[b].since;

			next = tree_next(a, &p->free, b);
			if (!is_garbage(a, b) || (double)age < threshold)
				continue;
			g->age -= age;
			g->freed += a->blocks[b].size;
			g->count--;
			release(a, b);
		}
	}
	return g->count < before;
}

/* garbage_collect_cached_blocks: above the threshold, the older half of the free segments, until enough is given back. */
static void
collect_garbage(struct allocator *a)
{
	uint64_t threshold = (uint64_t)(a->conf.gc_threshold * (double)a->conf.allowed), target;
	struct garbage g = {0};

	if (a->reserved <= threshold)
		return;
	target = a->reserved - threshold;
	count_garbage(a, &g);
	while (g.freed < target && g.count && free_garbage(a, &g, (double)g.age / g.count))
		;
}

/* ---- requests --------------------------------------------------------------------------------------------------------- */

static bool
collects_garbage(const struct allocator *a)
{
	return a->conf.allowed && a->conf.gc_threshold > 0;
}

/* Best fit. With max_split_size a large block is not for a small request, and a large request does not get one that is much larger. */
static uint32_t
find(struct allocator *a, struct alloc_pool *p, uint64_t size)
{
	uint32_t b;

	if (collects_garbage(a))
		p->searches++;
	b = a->conf.expandable ? expand_fit(a, p, size) : tree_fit(a, &p->free, size);
	if (!b)
		return 0;
	if (size < a->conf.max_split ? a->blocks[b].size >= a->conf.max_split : a->blocks[b].size - size >= a->conf.max_rounding)
		return 0;
	tree_remove(a, &p->free, b);
	return b;
}

/* A block from the driver, after giving back what is cached if need be; 0: it has no more. */
static uint32_t
obtain(struct allocator *a, uint64_t size, bool small, unsigned stream)
{
	uint32_t b;

	if (collects_garbage(a))
		collect_garbage(a);
	b = grow(a, size, small, stream);
	if (!b && release_oversize(a, &a->pools[stream][small], size))
		b = grow(a, size, small, stream);
	if (b)
		return b;
	flush(a);
	return grow(a, size, small, stream);
}

/* What cannot be had is counted and given all the same, so that the replay goes on. */
static uint32_t
grow_without_limit(struct allocator *a, uint64_t size, bool small, unsigned stream)
{
	struct alloc_config kept = a->conf;
	uint32_t b;

	a->failures++;
	a->conf.limit = a->conf.allowed = 0;
	b = grow(a, size, small, stream);
	a->conf = kept;
	return b;
}

static bool
should_split(const struct allocator *a, const struct alloc_block *b, uint64_t size)
{
	uint64_t rest = b->size - size;

	if (b->small || a->conf.expandable)
		return rest >= MIN_BLOCK;
	return size < a->conf.max_split && rest > SMALL_SIZE;
}

static uint32_t
request(struct allocator *a, uint64_t bytes, unsigned stream, bool must)
{
	uint64_t size;
	uint32_t b;
	bool small;

	if (!bytes)
		return 0;
	size = alloc_round(&a->conf, bytes);
	small = size <= SMALL_SIZE;
	b = find(a, &a->pools[stream][small], size);
	if (!b)
		b = obtain(a, size, small, stream);
	if (!b && must)
		b = grow_without_limit(a, size, small, stream);
	if (!b)
		return 0;
	if (should_split(a, &a->blocks[b], size)) {
		uint32_t rest = block_new(a, b, a->blocks[b].offset + size, a->blocks[b].size - size, BLOCK_FREE);

		a->blocks[b].size = size;
		block_insert_after(a, b, rest);
		block_set_free(a, rest);
	}
	a->blocks[b].state = BLOCK_USED;
	a->allocated += a->blocks[b].size;
	return b;
}

uint32_t
allocator_malloc(struct allocator *a, uint64_t bytes, unsigned stream)
{
	return request(a, bytes, stream, true);
}

uint32_t
allocator_try(struct allocator *a, uint64_t bytes, unsigned stream)
{
	return request(a, bytes, stream, false);
}

uint64_t
allocator_would_reserve(const struct allocator *a, uint64_t bytes, unsigned stream)
{
	uint64_t size = alloc_round(&a->conf, bytes), more;

	if (tree_fit(a, &a->pools[stream][size <= SMALL_SIZE].free, size))
		return a->reserved;
	more = a->reserved + segment_size(&a->conf, size);
	return a->conf.limit && more > a->conf.limit ? a->conf.limit : more;
}

void
allocator_free(struct allocator *a, uint32_t b)
{
	if (!b)
		return;
	a->allocated -= a->blocks[b].size;
	a->blocks[b].state = BLOCK_FREE;
	block_set_free(a, block_merge(a, b));
}
