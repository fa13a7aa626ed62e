/*
 * Arena: memory that dies together. Chunks come from calloc, so an allocation is zeroed without being
 * touched; a big one gets a chunk of its own. Running out, or over the limit, jumps to the door that
 * the public function set; in between nobody checks for NULL.
 *
 * With -DMC_ARENA_MALLOC (the sanitizer builds) every allocation is its own, so that overruns are seen.
 */
#include "ir.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_FIRST LIMIT(65536u, 64u)
#define CHUNK_MAX (4u << 20)
#define ALIGN 16u

struct chunk {
	struct chunk *next;
	size_t size, used;         /* bytes after the header */
};
#define HEADER ((sizeof(struct chunk) + ALIGN - 1) / ALIGN * ALIGN)

struct deferred {
	struct deferred *next;
	void (*fn)(void *);
	void *p;
};

struct arena {
	struct chunk *chunks;
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

static struct chunk *
chunk_new(struct arena *a, size_t size)
{
	struct chunk *c;

	if (size > a->limit || a->used > a->limit - size)
		fail(a, true);
	c = calloc(1, HEADER + size);
	if (!c)
		fail(a, false);
	c->size = size;
	a->used += size;
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
	p = (char *)c + HEADER + c->used;
	c->used += total;
	return p;
}

void *
arena_grow(struct arena *a, void *ptr, uint32_t n, uint32_t *cap, size_t size, uint32_t more)
{
	uint64_t want = *cap ? (uint64_t)*cap * 2 : 16;
	void *p;

	if (want < (uint64_t)n + more)
		want = (uint64_t)n + more;
	if (want > UINT32_MAX / 2)
		fail(a, true);
	p = arena_alloc(a, (size_t)want, size);
	if (n)
		memcpy(p, ptr, n * size);
	*cap = (uint32_t)want;
	return p;
}

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
	struct arena *a = arena_new(whole->limit - whole->used);

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
