/*
 * PyTorch's native CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp) without a device: which block each request gets, and
 * what the driver has been asked for.
 *
 *   round    a request becomes a multiple of 512 bytes, or of a part of its power of two (roundup_power2_divisions)
 *   pool     small up to 1 MiB, large above; each stream has its own free blocks
 *   find     the smallest free block that is large enough, among equals the lowest address
 *   grow     else the driver gives a segment (allocator.c), or pages of an expandable one (allocator_expand.c)
 *   split    what is left over becomes a free block if it is large enough; else the caller gets all of it, and all of it counts as allocated
 *   free     merges with free neighbours of the same segment; segments stay until the driver has no more to give
 *
 * Blocks are entries of one array, in the segment's order by prev and next; free ones are in a tree by size and address
 * (allocator_tree.c). Nothing is taken from the system but when that array grows.
 */
#ifndef MC_ALLOCATOR_H
#define MC_ALLOCATOR_H

#include "../../ir/ir.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum {
	ALLOC_STREAMS = 4,
	ALLOC_INTERVALS = 16,      /* of roundup_power2_divisions: 1 MiB, 2 MiB .. 32 GiB */
	MIN_BLOCK = 512,
	SMALL_SIZE = 1 << 20,      /* the largest request of the small pool */
	SMALL_BUFFER = 2 << 20,    /* its segment or page */
	LARGE_BUFFER = 20 << 20,   /* segment of a large request below MIN_LARGE; page of the large pool */
	MIN_LARGE = 10 << 20,
	ROUND_LARGE = 2 << 20
};

struct alloc_config {              /* alloc_config_default(), then PYTORCH_ALLOC_CONF */
	uint64_t limit;            /* what cudaMalloc can give in all, 0 = no limit */
	uint64_t allowed;          /* what a memory fraction lets the allocator take, 0 = no fraction is set */
	uint64_t max_split;        /* blocks of this size and more are neither split nor given to smaller requests */
	uint64_t max_rounding;     /* how much larger a block such a request may get */
	uint64_t large_segment;
	double gc_threshold;       /* of allowed; 0 = off */
	uint32_t divisions[ALLOC_INTERVALS];
	bool expandable;
};

enum block_state { BLOCK_GONE, BLOCK_USED, BLOCK_FREE, BLOCK_UNMAPPED };

struct alloc_block {
	uint64_t size, offset;     /* offset: within the segment */
	uint32_t segment;          /* its number; later ones are taken to have higher addresses */
	uint32_t prev, next;       /* neighbours in the segment, 0 = none */
	uint32_t left, right;      /* in a tree; GONE: left = the next entry that can be used again */
	uint32_t priority;         /* tree_priority() of the entry's number */
	uint32_t since;            /* pool's count of searches when it became free */
	uint8_t state, stream;
	bool small;
};

struct alloc_tree {
	uint32_t root;
	bool by_address;           /* else by size, then address */
};

struct alloc_pool {
	struct alloc_tree free, unmapped;
	uint32_t searches;         /* counted while garbage is collected: the age of blocks */
};

struct allocator {
	struct arena *a;
	struct alloc_config conf;
	struct alloc_block *blocks;    uint32_t nblock, block_cap, unused;
	struct alloc_pool pools[ALLOC_STREAMS][2];     /* [1]: small */
	uint32_t nsegment;
	uint64_t allocated, reserved;
	uint32_t flushes, failures;    /* cached segments given back for want of memory; requests that could not be met even so */
};

void alloc_config_default(struct alloc_config *);
struct allocator *allocator_new(struct arena *, const struct alloc_config *);
uint32_t allocator_malloc(struct allocator *, uint64_t bytes, unsigned stream);    /* a block; 0 = nothing was asked for */
uint32_t allocator_try(struct allocator *, uint64_t bytes, unsigned stream);       /* likewise; 0 also if it cannot be had, which is no failure */
void allocator_free(struct allocator *, uint32_t block);                           /* 0 is allowed */
uint64_t allocator_would_reserve(const struct allocator *, uint64_t bytes, unsigned stream);      /* after such a request, which is not made */
uint64_t alloc_round(const struct alloc_config *, uint64_t bytes);

/* allocator_tree.c */
uint32_t tree_priority(uint32_t block);
void tree_insert(struct allocator *, struct alloc_tree *, uint32_t block);
void tree_remove(struct allocator *, struct alloc_tree *, uint32_t block);
uint32_t tree_fit(const struct allocator *, const struct alloc_tree *, uint64_t size);     /* the first of at least this size, 0 = none */
uint32_t tree_first(const struct allocator *, const struct alloc_tree *);
uint32_t tree_last(const struct allocator *, const struct alloc_tree *);
uint32_t tree_next(const struct allocator *, const struct alloc_tree *, uint32_t block);

/* allocator.c, for allocator_expand.c */
struct alloc_pool *pool_of(struct allocator *, const struct alloc_block *);
uint32_t block_new(struct allocator *, uint32_t like, uint64_t offset, uint64_t size, unsigned state);
void block_insert_after(struct allocator *, uint32_t at, uint32_t block);
uint32_t block_merge(struct allocator *, uint32_t block);
void block_set_free(struct allocator *, uint32_t block);
bool driver_take(struct allocator *, uint64_t bytes);

/* allocator_expand.c */
uint32_t expand_fit(struct allocator *, struct alloc_pool *, uint64_t size);
uint32_t expand_grow(struct allocator *, uint64_t size, bool small, unsigned stream);      /* in no tree; 0: the driver has no more */
void expand_release(struct allocator *, uint32_t block);

#endif
