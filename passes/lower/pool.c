/* Small pieces that come and go (edges, saved slots, argument copies), kept in free lists by size class inside the arena. */
#include "lower.h"

#include <string.h>

#define CLASSES 40                         /* 16 bytes, 32, 48 ... then powers of two */
#define LINEAR 32

struct piece {
	struct piece *next;
};

struct pool {
	struct arena *a;
	struct piece *free[CLASSES];
};

struct pool *
pool_new(struct arena *a)
{
	struct pool *p = NEW(a, struct pool, 1);

	p->a = a;
	return p;
}

static unsigned
class_of(size_t total, size_t *size)
{
	unsigned k = (unsigned)((total + 15) / 16);

	if (k <= LINEAR) {
		*size = (size_t)k * 16;
		return k ? k - 1 : 0;
	}
	*size = LINEAR * 16 * 2;
	for (k = LINEAR; *size < total && k < CLASSES - 1; k++)
		*size *= 2;
	return k;
}

void *
pool_get(struct pool *p, size_t n, size_t size)
{
	size_t total = n * size, block;
	unsigned k;
	struct piece *x;

	if (!total)
		return NULL;
	k = class_of(total, &block);
	if (block < total)
		return arena_alloc(p->a, n, size);
	x = p->free[k];
	if (!x)
		return arena_alloc(p->a, 1, block);
	p->free[k] = x->next;
	memset(x, 0, total);
	return x;
}

void
pool_put(struct pool *p, void *ptr, size_t n, size_t size)
{
	size_t block;
	unsigned k;
	struct piece *x = ptr;

	if (!ptr || !n)
		return;
	k = class_of(n * size, &block);
	if (block < n * size)
		return;
	x->next = p->free[k];
	p->free[k] = x;
}
