/*
 * Ordered sets of blocks: binary search trees kept shallow by a random priority that follows from the block's number (treaps), so that
 * two runs are alike. left and right are the blocks' own; the priority of a parent is never lower than its children's.
 */
#include "allocator.h"

uint32_t
tree_priority(uint32_t block)
{
	uint32_t x = block * 0x9e3779b1u;

	x = (x ^ (x >> 15)) * 0x85ebca6bu;
	return x ^ (x >> 13);
}

static bool
before(const struct alloc_tree *t, const struct alloc_block *x, const struct alloc_block *y)
{
	if (!t->by_address && x->size != y->size)
		return x->size < y->size;
	return x->segment != y->segment ? x->segment < y->segment : x->offset < y->offset;
}

/* The new block takes the place of the first one with a lower priority, whose tree is cut in two at the new block's key. */
void
tree_insert(struct allocator *a, struct alloc_tree *t, uint32_t block)
{
	struct alloc_block *const all = a->blocks, *x = &all[block];
	uint32_t *link = &t->root, *low = &x->left, *high = &x->right, rest;

	while (*link && all[*link].priority >= x->priority)
		link = before(t, x, &all[*link]) ? &all[*link].left : &all[*link].right;
	rest = *link;
	*link = block;
	while (rest)
		if (before(t, &all[rest], x)) {
			*low = rest;
			low = &all[rest].right;
			rest = *low;
		} else {
			*high = rest;
			high = &all[rest].left;
			rest = *high;
		}
	*low = *high = 0;
}

/* Both children's trees are joined in its place. */
void
tree_remove(struct allocator *a, struct alloc_tree *t, uint32_t block)
{
	struct alloc_block *const all = a->blocks, *x = &all[block];
	uint32_t *link = &t->root, low = x->left, high = x->right;

	while (*link != block)
		link = before(t, x, &all[*link]) ? &all[*link].left : &all[*link].right;
	while (low && high)
		if (all[low].priority >= all[high].priority) {
			*link = low;
			link = &all[low].right;
			low = *link;
		} else {
			*link = high;
			link = &all[high].left;
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
		if (before(t, &a->blocks[block], &a->blocks[b])) {
			best = b;
			b = a->blocks[b].left;
		} else {
			b = a->blocks[b].right;
		}
	return best;
}
