/*
 * Text: slices, interned names, patterns, and a growing output buffer.
 * A slice is a pointer and a length into somebody else's memory; str_copy() makes one that the arena owns.
 */
#include "ir.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct str
str_of(const char *c)
{
	return (struct str){c, c ? (uint32_t)strlen(c) : 0};
}

struct str
str_copy(struct arena *a, struct str s)
{
	char *p = NEW(a, char, (size_t)s.n + 1);

	if (s.n)
		memcpy(p, s.p, s.n);
	return (struct str){p, s.n};
}

bool
str_eq(struct str a, struct str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool
str_starts(struct str s, struct str prefix)
{
	return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

bool
str_ends(struct str s, struct str suffix)
{
	return s.n >= suffix.n && (suffix.n == 0 || memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n) == 0);
}

struct str
str_sub(struct str s, uint32_t from, uint32_t to)
{
	if (to > s.n)
		to = s.n;
	if (from > to)
		from = to;
	return (struct str){s.p + from, to - from};
}

int64_t
str_find(struct str s, char c)
{
	const char *p = s.n ? memchr(s.p, c, s.n) : NULL;

	return p ? p - s.p : -1;
}

bool
str_cut(struct str *rest, char sep, struct str *head)
{
	int64_t i;

	if (!rest->p)
		return false;
	i = str_find(*rest, sep);
	if (i < 0) {
		*head = *rest;
		rest->p = NULL;
		rest->n = 0;
		return true;
	}
	*head = str_sub(*rest, 0, (uint32_t)i);
	*rest = str_sub(*rest, (uint32_t)i + 1, rest->n);
	return true;
}

struct str
str_trim(struct str s)
{
	while (s.n && (s.p[0] == ' ' || s.p[0] == '\t' || s.p[0] == '\n'))
		s = str_sub(s, 1, s.n);
	while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t' || s.p[s.n - 1] == '\n'))
		s.n--;
	return s;
}

struct str
str_stem(struct str name)
{
	uint32_t n = name.n;

	while (n && name.p[n - 1] >= '0' && name.p[n - 1] <= '9')
		n--;
	return n && n < name.n && name.p[n - 1] == '_' ? str_sub(name, 0, n - 1) : name;
}

static uint32_t
path_cut(struct str path)
{
	uint32_t n = path.n;

	while (n && path.p[n - 1] != '.')
		n--;
	return n;
}

struct str
path_last(struct str path)
{
	return str_sub(path, path_cut(path), path.n);
}

struct str
path_parent(struct str path)
{
	uint32_t n = path_cut(path);

	return str_sub(path, 0, n ? n - 1 : 0);
}

bool
str_int(struct str s, int64_t *out)
{
	bool minus = s.n && s.p[0] == '-';
	int64_t v = 0;

	if (minus)
		s = str_sub(s, 1, s.n);
	if (!s.n)
		return false;
	for (uint32_t i = 0; i < s.n; i++) {
		int64_t digit = s.p[i] - '0';

		if (digit < 0 || digit > 9 || !mul_i64(v, 10, &v) || !add_i64(v, minus ? -digit : digit, &v))
			return false;
	}
	*out = v;
	return true;
}

struct str
str_fmt(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	p = NEW(a, char, (size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return (struct str){p, (uint32_t)n};
}

/* Who reads a list of names in a message stops early, and putting together a long one piece by piece would take forever. */
#define LIST_MAX 1800u

struct str
str_list(struct arena *a, struct str list, const char *fmt, ...)
{
	char item[512];
	va_list ap;

	if (list.n > LIST_MAX)
		return list;
	va_start(ap, fmt);
	vsnprintf(item, sizeof item, fmt, ap);
	va_end(ap);
	return str_fmt(a, "%.*s%s%s%s", SFMT(list), list.n ? ", " : "", item, list.n + strlen(item) > LIST_MAX ? ", .." : "");
}

/* ---- patterns ---------------------------------------------------------------------------------- */

#define PATTERN_MAX 1024u                  /* longer names or patterns match only literally */

static bool
to_c(struct str s, char out[PATTERN_MAX])
{
	if (s.n >= PATTERN_MAX || (s.n && memchr(s.p, 0, s.n)))
		return false;
	if (s.n)
		memcpy(out, s.p, s.n);
	out[s.n] = 0;
	return true;
}

/* Stars that follow each other mean no more than one; many of them make some fnmatch() exponential. */
static uint32_t
stars(struct str s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s.n; i++)
		n += s.p[i] == '*' && (i == 0 || s.p[i - 1] != '*');
	return n;
}

bool
pattern_match(struct str pattern, struct str name)
{
	char p[PATTERN_MAX], s[PATTERN_MAX];

	if (stars(pattern) > 16 || !to_c(pattern, p) || !to_c(name, s))
		return str_eq(pattern, name);
	return fnmatch(p, s, 0) == 0;
}

bool
name_matches(struct str pattern, struct str name)
{
	if (str_starts(name, pattern) && (name.n == pattern.n || name.p[pattern.n] == '.'))
		return true;
	return pattern_match(pattern, name);
}

/* ---- interned names ------------------------------------------------------------------------------ */

struct strtab {
	struct arena *a;
	const struct strtab *base;         /* read-only table that this one continues; its ids come first */
	uint32_t first;                    /* ids below are the base's */
	struct str *text;       uint32_t n, cap;
	struct slot {                      /* open addressing: id 0 = free */
		uint32_t id, hash;
	} *slot;
	uint32_t mask;
	uint64_t seed;
};

uint64_t
str_hash(uint64_t seed, struct str s)
{
	uint64_t h = seed ^ s.n, word;
	uint32_t i = 0;

	for (; i + 8 <= s.n; i += 8) {
		memcpy(&word, s.p + i, 8);
		h = (h ^ word) * 0x9e3779b97f4a7c15u;
		h ^= h >> 32;
	}
	word = 0;
	if (i < s.n)
		memcpy(&word, s.p + i, s.n - i);
	h = (h ^ word) * 0x9e3779b97f4a7c15u;
	h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;   /* tables take the low bits, which must depend on all */
	return h ^ h >> 32;
}

struct strtab *
strtab_new(struct arena *a)
{
	struct strtab *t = NEW(a, struct strtab, 1);

	t->a = a;
	t->seed = 0xcbf29ce484222325u ^ (uint64_t)(uintptr_t)t;    /* differs between runs: no crafted collisions */
	t->mask = 1023;
	t->slot = NEW(a, struct slot, t->mask + 1);
	t->cap = 512;
	t->text = NEW(a, struct str, t->cap);
	t->text[0] = S("");
	t->n = 1;
	return t;
}

struct strtab *
strtab_over(struct arena *a, const struct strtab *base)
{
	struct strtab *t = strtab_new(a);

	t->base = base;
	t->first = base->first + base->n - 1;
	return t;
}

static struct slot *
find_slot(const struct strtab *t, struct str s, uint32_t hash)
{
	uint32_t i = hash & t->mask;

	while (t->slot[i].id && !(t->slot[i].hash == hash && str_eq(t->text[t->slot[i].id], s)))
		i = (i + 1) & t->mask;
	return &t->slot[i];
}

static void
grow_slots(struct strtab *t)
{
	struct slot *old = t->slot;
	uint32_t n = t->mask + 1, k;

	t->mask = n * 2 - 1;
	t->slot = NEW(t->a, struct slot, t->mask + 1);
	for (uint32_t i = 0; i < n; i++)
		if (old[i].id) {
			for (k = old[i].hash & t->mask; t->slot[k].id; k = (k + 1) & t->mask)
				;
			t->slot[k] = old[i];
		}
}

uint32_t
strtab_id(struct strtab *t, struct str s)
{
	uint32_t h = (uint32_t)str_hash(t->seed, s);
	struct slot *slot = find_slot(t, s, h);
	uint32_t old = slot->id ? t->first + slot->id : strtab_find(t->base, s);

	if (!s.n)
		return 0;
	if (old)
		return old;
	if (t->n > t->mask / 2) {
		grow_slots(t);
		slot = find_slot(t, s, h);
	}
	ROOM(t->a, t->text, t->n, t->cap, 1);
	t->text[t->n] = str_copy(t->a, s);
	*slot = (struct slot){t->n, h};
	return t->first + t->n++;
}

uint32_t
strtab_find(const struct strtab *t, struct str s)
{
	for (; t && s.n; t = t->base) {
		uint32_t i = find_slot(t, s, (uint32_t)str_hash(t->seed, s))->id;

		if (i)
			return t->first + i;
	}
	return 0;
}

struct str
strtab_str(const struct strtab *t, uint32_t id)
{
	while (t->base && id <= t->first)
		t = t->base;
	return id - t->first < t->n ? t->text[id - t->first] : S("");
}

uint32_t
strtab_count(const struct strtab *t)
{
	return t->first + t->n;
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------ */

uint32_t
utf8_length(const char *p, uint32_t n)
{
	const unsigned char *u = (const unsigned char *)p;
	unsigned char first = n ? u[0] : 0xff, second = n > 1 ? u[1] : 0;
	uint32_t len = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : (first & 0xf0) == 0xe0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;

	if (len > n)
		return 0;
	for (uint32_t i = 1; i < len; i++)
		if ((u[i] & 0xc0) != 0x80)
			return 0;
	if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) || (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90))
		return 0;              /* too long a form, half of a pair, above the last */
	return len;
}

bool
str_is_utf8(struct str s)
{
	uint32_t len = 1;

	for (uint32_t i = 0; i < s.n && len; i += len)
		len = utf8_length(s.p + i, s.n - i);
	return len > 0;
}

/* ---- output ---------------------------------------------------------------------------------------- */

#define BUF_FLUSH LIMIT(65536u, 16u)

bool
buf_flush(struct buf *b)
{
	if (!b->failed && b->n && b->write && b->write(b->user, b->p, b->n))
		b->failed = true;
	if (b->write)
		b->n = 0;
	return !b->failed;
}

void
buf_put(struct buf *b, const void *p, size_t n)
{
	if (b->write && b->n >= BUF_FLUSH)
		buf_flush(b);
	if (b->failed)
		return;
	if (n > b->cap - b->n) {
		size_t cap = (b->cap + n) * 2 + 256;
		char *q = cap > n ? realloc(b->p, cap) : NULL;

		if (!q) {
			b->failed = true;
			return;
		}
		b->p = q;
		b->cap = cap;
	}
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
}

void
buf_str(struct buf *b, struct str s)
{
	buf_put(b, s.p, s.n);
}

void
buf_fmt(struct buf *b, const char *fmt, ...)
{
	char small[512];
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof small, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n < sizeof small) {
		buf_put(b, small, n < 0 ? 0 : (size_t)n);
		return;
	}
	p = malloc((size_t)n + 1);
	if (!p) {
		b->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	buf_put(b, p, (size_t)n);
	free(p);
}
