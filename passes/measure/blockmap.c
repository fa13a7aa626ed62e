/* The segments and blocks of the caching allocator at one instant: what lies where, and what is free between it. */
#include "replay.h"

#include "../passes.h"

#include <stdlib.h>

struct head {                      /* first block of a segment */
	uint32_t segment, block;
};

static int
by_segment(const void *a, const void *b)
{
	uint32_t x = ((const struct head *)a)->segment, y = ((const struct head *)b)->segment;

	return x < y ? -1 : x > y;
}

static struct head *
find_heads(const struct allocator *a, struct arena *arena, uint32_t *count)
{
	struct head *h = NEW(arena, struct head, a->nblock);

	*count = 0;
	for (uint32_t b = 1; b < a->nblock; b++)
		if (a->blocks[b].state != BLOCK_GONE && !a->blocks[b].prev)
			h[(*count)++] = (struct head){a->blocks[b].segment, b};
	qsort(h, *count, sizeof *h, by_segment);
	return h;
}

/* Who has each block: a storage + 1, or UINT32_MAX for a workspace; 0 = nobody. */
static uint32_t *
find_owners(struct analysis *x, const struct replay *r, const uint32_t *block)
{
	uint32_t *owner = NEW(r->a->a, uint32_t, r->a->nblock);

	for (uint32_t i = 0; i < x->sched->nstorage; i++)
		if (block[i])
			owner[block[i]] = i + 1;
	for (unsigned t = 0; t < THREAD_COUNT; t++)
		if (r->workspace[t])
			owner[r->workspace[t]] = UINT32_MAX;
	return owner;
}

static void
record_segment(struct memory_row *m, const struct allocator *a, uint32_t block, const uint32_t *owner)
{
	struct segment_row *s = &m->segments[m->nsegment++];

	*s = (struct segment_row){.first = m->nblock, .stream = a->blocks[block].stream, .small = a->blocks[block].small, .expandable = a->conf.expandable};
	for (; block; block = a->blocks[block].next) {
		const struct alloc_block *b = &a->blocks[block];
		struct block_row *row = &m->blocks[m->nblock];

		if (b->state == BLOCK_UNMAPPED)
			continue;
		*row = (struct block_row){b->size, 0, USE_FREE};
		if (owner[block]) {
			row->use = owner[block] == UINT32_MAX ? USE_WORKSPACE : USE_STORAGE;
			row->storage = row->use == USE_STORAGE ? owner[block] - 1 : 0;
		}
		if (row->use == USE_FREE && b->size > m->largest_free)
			m->largest_free = b->size;
		s->bytes += b->size;
		m->nblock++;
	}
	s->nblock = m->nblock - s->first;
}

void
record_blocks(void *user, const struct replay *r, const uint32_t *block)
{
	struct analysis *x = user;
	struct memory_row *m = &x->report->memory;
	uint32_t n, *owner = find_owners(x, r, block);
	struct head *h = find_heads(r->a, r->a->a, &n);

	m->segments = NEW(x->c->a, struct segment_row, n + 1);
	m->blocks = NEW(x->c->a, struct block_row, r->a->nblock);
	for (uint32_t i = 0; i < n; i++)
		record_segment(m, r->a, h[i].block, owner);
	m->allocated_at = r->a->allocated;
	m->reserved_at = r->a->reserved;
}

/* ---- places ------------------------------------------------------------------------------------------------------- */

void
record_place(struct replay *r, struct place_row *p, uint32_t block, uint32_t event)
{
	const struct alloc_block *b = &r->a->blocks[block];

	if (block)
		*p = (struct place_row){b->offset, b->size, b->segment, event};
}

void
record_segments(struct replay *r, struct arena *a)
{
	struct memory_row *m = r->places;

	m->nsegment_ever = r->a->nsegment + 1;
	m->segment_bytes = NEW(a, uint64_t, m->nsegment_ever);
	for (uint32_t b = 1; b < r->a->nblock; b++)
		if ((r->a->blocks[b].state == BLOCK_USED || r->a->blocks[b].state == BLOCK_FREE) && r->a->blocks[b].segment < m->nsegment_ever)
			m->segment_bytes[r->a->blocks[b].segment] += r->a->blocks[b].size;
}
