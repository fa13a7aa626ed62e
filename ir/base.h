/* What every file stands on: slices of text, memory in arenas, growing output. */
#ifndef MC_BASE_H
#define MC_BASE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- text ------------------------------------------------------------------------------------ */

struct str {                       /* a slice; not NUL-terminated unless it came from str_c() */
	const char *p;
	uint32_t n;
};
#define S(lit) ((struct str){(lit), (uint32_t)sizeof(lit) - 1})
#define SFMT(s) (int)(s).n, (s).p  /* for "%.*s" */

/* ---- arena.c ------------------------------------------------------------------------------------- */

/* An arena gives zeroed memory, never NULL: when the limit or the system's memory is reached, it jumps to its door (one setjmp in
 * every public function). Everything dies together in arena_free(), after the deferred calls, latest first. */
struct arena *arena_new(uint64_t limit);
void arena_free(struct arena *);
void arena_door(struct arena *, jmp_buf *door);
void *arena_alloc(struct arena *, size_t n, size_t size);
void arena_defer(struct arena *, void (*fn)(void *), void *p);
struct arena *arena_part(struct arena *whole);   /* for what dies sooner: arena_cancel(whole, part) frees it */
void arena_cancel(struct arena *, void *p);      /* run the deferred call of p now */
bool arena_hit_limit(const struct arena *);
void arena_lack(struct arena *, bool limit);      /* a library below had no memory: through the door, as if the arena had none */
uint64_t arena_used(const struct arena *);
#define NEW(a, type, n) ((type *)arena_alloc((a), (n), sizeof(type)))

/* grow: make room for one more element; ptr, n and cap are the array's own */
void *arena_grow(struct arena *, void *ptr, uint32_t n, uint32_t *cap, size_t size, uint32_t more);
#define ROOM(a, ptr, n, cap, more) \
	((uint64_t)(n) + (more) > (cap) ? (void)((ptr) = arena_grow((a), (ptr), (n), &(cap), sizeof *(ptr), (uint32_t)(more))) : (void)0)

/* ---- str.c --------------------------------------------------------------------------------------- */

struct str str_of(const char *c_string);
struct str str_copy(struct arena *, struct str);                  /* NUL-terminated copy */
bool str_eq(struct str, struct str);
bool str_starts(struct str, struct str prefix);
bool str_ends(struct str, struct str suffix);
struct str str_sub(struct str, uint32_t from, uint32_t to);
int64_t str_find(struct str, char);                               /* -1 = not there */
bool str_cut(struct str *rest, char sep, struct str *head);       /* head = up to sep; false when rest is used up */
struct str str_trim(struct str);
struct str str_stem(struct str name);                              /* "mul_15": "mul"; what has no number is its own */
struct str path_last(struct str path);                             /* "a.b.c": "c" */
struct str path_parent(struct str path);                           /* "a.b"; empty = there is none */
bool str_int(struct str, int64_t *);
uint64_t str_hash(uint64_t seed, struct str);
uint32_t utf8_length(const char *p, uint32_t n);                  /* bytes of the sequence at p, of n that are there; 0 = it is none */
bool str_is_utf8(struct str);
struct str str_fmt(struct arena *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct str str_list(struct arena *, struct str list, const char *item, ...) __attribute__((format(printf, 3, 4)));  /* after a comma; a long list ends in .. */
bool pattern_match(struct str pattern, struct str name);          /* shell glob over the whole name */
bool name_matches(struct str pattern, struct str name);           /* equal, a dotted prefix, or a glob */

struct strtab *strtab_new(struct arena *);                        /* id 0 = the empty string */
struct strtab *strtab_over(struct arena *, const struct strtab *);        /* continues one that must not change any more */
uint32_t strtab_id(struct strtab *, struct str);                  /* interns */
uint32_t strtab_find(const struct strtab *, struct str);          /* 0 = not interned */
struct str strtab_str(const struct strtab *, uint32_t id);
uint32_t strtab_count(const struct strtab *);

struct buf {                       /* growing output; a failed sink makes every later write a no-op */
	char *p;
	size_t n, cap;
	int (*write)(void *user, const void *p, size_t n);        /* non-zero = failed */
	void *user;
	bool failed;
};
void buf_put(struct buf *, const void *, size_t);
void buf_str(struct buf *, struct str);
void buf_fmt(struct buf *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool buf_flush(struct buf *);

#endif
