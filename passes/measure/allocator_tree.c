/*
 * Ordered sets of blocks: binary search trees kept shallow by a random priority that follows from the block's number (treaps), so that
 * two runs are alike. left and right are the blocks' own; the priority of a parent is never lower than its children's.
 */
#include "allocator.h"

static uint32_t
priority(uint32_t block)
{
	uint32_t x = block * 0x9e3779b1u;

	x = (x ^ (x >> 15)) * 0x85ebca6bu;
	return x ^ (x >> 13);
}

static bool
before(const struct allocator *a, const struct alloc_tree *t, uint32_t i, uint32_t k)
{
	const struct alloc_block *x = &a->blocks[i], *y = &a->blocks[k];

	if (!t->by_address && x->size != y->size)
		return x->size < y->size;
	return x->segment != y->segment ? x->segment < y->segment : x->offset < y->offset;
}

/* The new block takes the place of the first one with a lower priority, whose tree is cut in two at the new block's key. */
void
tree_insert(struct allocator *a, struct alloc_tree *t, uint32_t block)
{
	uint32_t *link = &t->root, p = priority(block), *low, *high, rest;

	while (*link && priority(*link) >= p)
		link = before(a, t, block, *link) ? &a->blocks[*link].left : &a->blocks[*link].right;
	rest = *link;
	*link = block;
	low = &a->blocks[block].left;
	high = &a->blocks[block].right;
	while (rest)
		if (before(a, t, rest, block)) {
			*low = rest;
			low = &a->blocks[rest].right;
			rest = *low;
		} else {
			*high = rest;
			high = &a->blocks[rest].left;
			rest = *high;
		}
	*low = *high = 0;
}

/* Both children's trees are joined in its place. */
void
tree_remove(struct allocator *a, struct alloc_tree *t, uint32_t block)
{
	uint32_t *link = &t->root, low = a->blocks[block].left, high = a->blocks[block].right;

	while (*link != block)
		link = before(a, t, block, *link) ? &a->blocks[*link].left : &a->blocks[*link].right;
	while (low && high)
		if (priority(low) >= priority(high)) {
			*link = low;
			link = &a->blocks[low].right;
			low = *link;
		} else {
			*link = high;
			link = &a->blocks[high].left;
			high = *link;
		}
	*link = low ? low : high;
}

uint32_t
tree_fit(const struct allocator *a, const struct alloc_tree *t, uint64_t size)
{
	uint32_t best = 0;

	for (uint32_t b = t->root; b;)
		if (a->blocks[b].size >= size) {
			best = b;
			b = a->blocks[b].left;
		} else {
			b = a->blocks[b].right;
		}
	return best;
}

uint32_t
tree_first(const struct allocator *a, const struct alloc_tree *t)
{
	uint32_t b = t->root;

	while (b && a->blocks[b].left)
		b = a->blocks[b].left;
	return b;
}

uint32_t
tree_last(const struct allocator *a, const struct alloc_tree *t)
{
	uint32_t b = t->root;

	while (b && a->blocks[b].right)
		b = a->blocks[b].right;
	return b;
}

uint32_t
tree_next(const struct allocator *a, const struct alloc_tree *t, uint32_t block)
{
	uint32_t best = 0;

	for (uint32_t b = t->root; b;)
		if (before(a, t, block, b)) {
			best = b;
			b = a->blocks[b].left;
		} else {
			b = a->blocks[b].right;
		}
	return best;
}
