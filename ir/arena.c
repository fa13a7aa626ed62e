/*
 * Arena: memory that dies together. Chunks come from calloc, so an allocation is zeroed without being
 * touched; a big one gets a chunk of its own. Running out, or over the limit, jumps to the door that
 * the public function set; in between nobody checks for NULL.
 *
 * An array that has become big grows in pages of its own, which the kernel moves without copying: nothing of
 * an array may be pointed to while it grows.
 *
 * With -DMC_ARENA_MALLOC (the sanitizer builds) every allocation is its own, so that overruns are seen, and
 * arrays grow by no more than is asked for while they are short and give back what they leave.
 */
#include "ir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_FIRST LIMIT(65536u, 64u)
#define CHUNK_MAX (4u << 20)
#define ALIGN 16u

struct chunk {
	struct chunk *next;
#ifdef MC_ARENA_MALLOC
	struct chunk *prev;
	struct arena *owner;
#endif
	size_t size, used;         /* bytes after the header */
};
#define HEADER ((sizeof(struct chunk) + ALIGN - 1) / ALIGN * ALIGN)

#define PAGES_FROM (256u << 10)    /* bytes of an array that gets pages of its own */
struct pages {
	struct pages *next;
	size_t size;               /* of all of it */
};
#define PAGES_HEADER ((sizeof(struct pages) + ALIGN - 1) / ALIGN * ALIGN)

struct deferred {
	struct deferred *next;
	void (*fn)(void *);
	void *p;
};

struct arena {
	struct chunk *chunks;
	struct pages *pages;
	struct deferred *deferred;
	size_t next_size;
	uint64_t limit, used;
	bool hit_limit;
	jmp_buf *door;
	struct arena *whole;       /* that it is a part of */
};

struct arena *
arena_new(uint64_t limit)
{
	struct arena *a = calloc(1, sizeof *a);

	if (a) {
		a->limit = limit;
		a->next_size = CHUNK_FIRST;
	}
	return a;
}

void
arena_door(struct arena *a, jmp_buf *door)
{
	a->door = door;
}

static void
fail(struct arena *a, bool limit)
{
	a->hit_limit = limit;
	if (a->whole)
		a->whole->hit_limit = limit;
	if (a->door)
		longjmp(*a->door, 1);
	abort();                   /* our own mistake: an arena used outside a public function */
}

/* What a part takes counts for the whole as well. */
static void
take(struct arena *a, size_t size)
{
	for (struct arena *x = a; x; x = x->whole)
		if (size > x->limit || x->used > x->limit - size)
			fail(a, true);
	for (struct arena *x = a; x; x = x->whole)
		x->used += size;
}

static void
give(struct arena *a, uint64_t size)
{
	for (; a; a = a->whole)
		a->used -= size;
}

static struct chunk *
chunk_new(struct arena *a, size_t size)
{
	struct chunk *c;

	take(a, size);
	c = calloc(1, HEADER + size);
	if (!c) {
		give(a, size);
		fail(a, false);
	}
	c->size = size;
	return c;
}

void *
arena_alloc(struct arena *a, size_t n, size_t size)
{
	struct chunk *c = a->chunks;
	size_t total;
	void *p;

	if (size && n > (SIZE_MAX - HEADER - CHUNK_MAX) / size)
		fail(a, true);
	total = (n * size + ALIGN - 1) / ALIGN * ALIGN;
#ifdef MC_ARENA_MALLOC
	c = NULL;
	a->next_size = total;
#endif
	if (!c || total > c->size - c->used) {
		bool own = total > a->next_size / 4;
		struct chunk *fresh = chunk_new(a, own ? total : a->next_size);

		if (own && c) {    /* behind the current one, whose rest stays in use */
			fresh->next = c->next;
			c->next = fresh;
		} else {
			fresh->next = c ? c : a->chunks;
			a->chunks = fresh;
		}
		if (!own && a->next_size < CHUNK_MAX)
			a->next_size *= 2;
		c = fresh;
	}
#ifdef MC_ARENA_MALLOC
	c->owner = a;
	if (c->next)
		c->next->prev = c;
#endif
	p = (char *)c + HEADER + c->used;
	c->used += total;
	return p;
}

/* ---- arrays ------------------------------------------------------------------------------------------------ */

static struct pages **
find_pages(struct arena *a, const void *ptr)
{
	struct pages **p = &a->pages;

	while (*p && (const char *)*p + PAGES_HEADER != (const char *)ptr)
		p = &(*p)->next;
	return p;
}

/* The pages of the array at ptr, or new ones, made as large as that. */
static void *
pages_grow(struct arena *a, void *ptr, size_t used, size_t size)
{
	struct pages **at = find_pages(a, ptr), *old = *at, *p;
	size_t had = old ? old->size : 0;

	take(a, size - had);
	p = old ? mremap(old, had, size, MREMAP_MAYMOVE) : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		give(a, size - had);
		fail(a, false);
	}
	if (!old && used)
		memcpy((char *)p + PAGES_HEADER, ptr, used);
	p->size = size;
	*at = p;
	return (char *)p + PAGES_HEADER;
}

#ifdef MC_ARENA_MALLOC
#define ONE_BY_ONE 256u            /* elements up to which an array grows by what is asked for */

static void
leave(struct arena *a, void *ptr)
{
	struct chunk *c = ptr ? (struct chunk *)((char *)ptr - HEADER) : NULL;

	if (!c || c->owner != a)
		return;            /* of the array that this one was copied from */
	*(c->prev ? &c->prev->next : &a->chunks) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	give(a, c->size);
	free(c);
}
#else
#define ONE_BY_ONE 0u

static void
leave(struct arena *a, void *ptr)
{
	(void)a, (void)ptr;
}
#endif

static uint64_t
next_size(uint32_t n, uint32_t cap, uint32_t more)
{
	uint64_t want = cap ? (uint64_t)cap * 2 : 16, least = (uint64_t)n + more;

	return want < least || least <= ONE_BY_ONE ? least : want;
}

void *
arena_grow(struct arena *a, void *ptr, uint32_t n, uint32_t *cap, size_t size, uint32_t more)
{
	uint64_t want = next_size(n, *cap, more);
	void *p;

	if (want > UINT32_MAX / 2 || want > (SIZE_MAX - PAGES_HEADER) / size)
		fail(a, true);
	if (want * size >= PAGES_FROM && !ONE_BY_ONE) {
		p = pages_grow(a, ptr, n * size, PAGES_HEADER + (size_t)want * size);
	} else {
		p = arena_alloc(a, (size_t)want, size);
		if (n)
			memcpy(p, ptr, n * size);
		leave(a, ptr);
	}
	*cap = (uint32_t)want;
	return p;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

void
arena_defer(struct arena *a, void (*fn)(void *), void *p)
{
	struct deferred *d = arena_alloc(a, 1, sizeof *d);

	d->fn = fn;
	d->p = p;
	d->next = a->deferred;
	a->deferred = d;
}

void
arena_cancel(struct arena *a, void *p)
{
	for (struct deferred *d = a->deferred; d; d = d->next)
		if (d->p == p && d->fn) {
			d->fn(p);
			d->fn = NULL;
			return;
		}
}

void
arena_free(struct arena *a)
{
	struct chunk *next;

	if (!a)
		return;
	for (struct deferred *d = a->deferred; d; d = d->next)
		if (d->fn)
			d->fn(d->p);
	for (struct chunk *c = a->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	while (a->pages) {
		struct pages *p = a->pages;

		a->pages = p->next;
		munmap(p, p->size);
	}
	give(a->whole, a->used);
	free(a);
}

void
arena_lack(struct arena *a, bool limit)
{
	fail(a, limit);
}

static void
free_part(void *part)
{
	arena_free(part);
}

struct arena *
arena_part(struct arena *whole)
{
	struct deferred *d = arena_alloc(whole, 1, sizeof *d);
	struct arena *a = arena_new(whole->limit);

	if (!a)
		fail(whole, false);
	a->door = whole->door;
	a->whole = whole;
	*d = (struct deferred){whole->deferred, free_part, a};
	whole->deferred = d;
	return a;
}

bool
arena_hit_limit(const struct arena *a)
{
	return a->hit_limit;
}

uint64_t
arena_used(const struct arena *a)
{
	return a->used;
}
