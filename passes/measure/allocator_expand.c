/*
 * Expandable segments: one range of addresses for each stream and pool, mapped in pages from its lowest unmapped address. A free block
 * in front of unmapped space grows into it. When memory is short, whole pages inside free blocks are unmapped.
 */
#include "allocator.h"

#define RANGE ((uint64_t)1 << 56)      /* of addresses; no run reaches the end */

static uint64_t
page_size(const struct allocator *a, bool small)
{
	return small ? SMALL_BUFFER : a->conf.large_segment;
}

/* ---- finding --------------------------------------------------------------------------------------------------- */

/* What a free block can grow to. */
static uint64_t
room(const struct allocator *a, uint32_t b)
{
	uint32_t next = a->blocks[b].next;

	return a->blocks[b].size + (next && a->blocks[next].state == BLOCK_UNMAPPED ? a->blocks[next].size : 0);
}

/* Best fit counts a block at the end with what it can grow to: the search goes on while the next one can hold less. */
uint32_t
expand_fit(struct allocator *a, struct alloc_pool *p, uint64_t size)
{
	uint32_t b = tree_fit(a, &p->free, size), next;

	while (b && (next = tree_next(a, &p->free, b)) != 0 && room(a, next) < room(a, b))
		b = next;
	return b;
}

static bool
is_available(const struct allocator *a, uint32_t b)
{
	return b && a->blocks[b].state != BLOCK_USED;
}

/* Are the free and unmapped blocks in a row from b enough? */
static bool
reaches(const struct allocator *a, uint32_t b, uint64_t size)
{
	uint64_t n = 0;

	for (; n < size && is_available(a, b); b = a->blocks[b].next)
		n += a->blocks[b].size;
	return n >= size;
}

static uint32_t
new_range(struct allocator *a, bool small, unsigned stream)
{
	uint32_t b = block_new(a, 0, 0, RANGE, BLOCK_UNMAPPED);

	a->blocks[b].segment = ++a->nsegment;
	a->blocks[b].stream = (uint8_t)stream;
	a->blocks[b].small = small;
	tree_insert(a, &a->pools[stream][small].unmapped, b);
	return b;
}

/* The lowest place with enough room: an unmapped block, or the free one in front of it. */
static uint32_t
find_place(struct allocator *a, uint64_t size, bool small, unsigned stream)
{
	struct alloc_tree *t = &a->pools[stream][small].unmapped;

	for (uint32_t u = tree_first(a, t); u; u = tree_next(a, t, u)) {
		uint32_t b = is_available(a, a->blocks[u].prev) ? a->blocks[u].prev : u;

		if (reaches(a, b, size))
			return b;
	}
	return new_range(a, small, stream);
}

/* ---- mapping ------------------------------------------------------------------------------------------------------ */

/* Maps pages at the start of an unmapped block; the result is free, merged, and in its tree. 0: the driver has no more. */
static uint32_t
map(struct allocator *a, uint32_t u, uint64_t size)
{
	struct alloc_pool *p = pool_of(a, &a->blocks[u]);
	uint64_t page = page_size(a, a->blocks[u].small), n = (size + page - 1) / page * page;

	if (!driver_take(a, n))
		return 0;
	tree_remove(a, &p->unmapped, u);
	if (n < a->blocks[u].size) {
		uint32_t rest = block_new(a, u, a->blocks[u].offset + n, a->blocks[u].size - n, BLOCK_UNMAPPED);

		a->blocks[u].size = n;
		block_insert_after(a, u, rest);
		tree_insert(a, &p->unmapped, rest);
	}
	a->blocks[u].state = BLOCK_FREE;
	u = block_merge(a, u);
	block_set_free(a, u);
	return u;
}

static uint64_t
least(uint64_t x, uint64_t y)
{
	return x < y ? x : y;
}

uint32_t
expand_grow(struct allocator *a, uint64_t size, bool small, unsigned stream)
{
	uint32_t b = find_place(a, size, small, stream);

	if (a->blocks[b].state == BLOCK_UNMAPPED)
		b = map(a, b, least(a->blocks[b].size, size));
	while (b && a->blocks[b].size < size) {
		uint32_t next = a->blocks[b].next;

		b = map(a, next, least(size - a->blocks[b].size, a->blocks[next].size));
	}
	if (b)
		tree_remove(a, &a->pools[stream][small].free, b);
	return b;
}

/* Gives back the whole pages inside a free block; what is left of it at either end stays free. */
void
expand_release(struct allocator *a, uint32_t b)
{
	struct alloc_pool *p = pool_of(a, &a->blocks[b]);
	uint64_t page = page_size(a, a->blocks[b].small), start = a->blocks[b].offset, end = start + a->blocks[b].size;
	uint64_t first = (start + page - 1) / page * page, last = end / page * page;

	if (first >= last)
		return;
	tree_remove(a, &p->free, b);
	if (last < end) {
		uint32_t tail = block_new(a, b, last, end - last, BLOCK_FREE);

		block_insert_after(a, b, tail);
		block_set_free(a, tail);
	}
	if (first > start) {
		uint32_t rest = block_new(a, b, first, last - first, BLOCK_UNMAPPED);

		a->blocks[b].size = first - start;
		block_insert_after(a, b, rest);
		block_set_free(a, b);
		b = rest;
	} else {
		a->blocks[b].size = last - first;
	}
	a->blocks[b].state = BLOCK_UNMAPPED;
	a->reserved -= last - first;
	b = block_merge(a, b);
	tree_insert(a, &p->unmapped, b);
}
