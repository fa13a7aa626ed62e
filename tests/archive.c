/* Small TorchScript archives in memory: a stored zip, and a data.pkl with one module. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void
put(struct test_buf *b, const void *p, size_t n)
{
	if (b->n + n > b->cap) {
		b->cap = (b->n + n) * 2;
		b->p = realloc(b->p, b->cap);
		assert_non_null(b->p);
	}
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
}

#define PUT(b, literal) put(b, literal, sizeof(literal) - 1)

static void
put_uint(struct test_buf *b, unsigned bytes, uint64_t v)
{
	for (unsigned i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)(v >> (8 * i));

		put(b, &c, 1);
	}
}

/* ---- zip ---------------------------------------------------------------------------------------------------------- */

/* What the local and the central header have in common. */
static void
put_header(struct test_buf *b, const struct test_member *m)
{
	put_uint(b, 4, 20);                /* version and flags */
	put_uint(b, 2, 0);                 /* stored */
	put_uint(b, 4, 0);
	put_uint(b, 4, crc32(0, (const unsigned char *)m->p, (unsigned)m->n));
	put_uint(b, 4, m->n);
	put_uint(b, 4, m->n);
	put_uint(b, 2, strlen(m->name));
	put_uint(b, 2, 0);
}

struct test_buf
test_zip(const struct test_member *m, size_t n)
{
	struct test_buf b = {0}, directory = {0};
	size_t start;

	for (size_t i = 0; i < n; i++) {
		size_t at = b.n;

		PUT(&b, "PK\3\4");
		put_header(&b, &m[i]);
		put(&b, m[i].name, strlen(m[i].name));
		put(&b, m[i].p, m[i].n);
		PUT(&directory, "PK\1\2\24\0");
		put_header(&directory, &m[i]);
		put_uint(&directory, 2, 0);        /* comment */
		put_uint(&directory, 4, 0);        /* disk, internal attributes */
		put_uint(&directory, 4, 0);
		put_uint(&directory, 4, at);
		put(&directory, m[i].name, strlen(m[i].name));
	}
	start = b.n;
	put(&b, directory.p, directory.n);
	PUT(&b, "PK\5\6\0\0\0\0");
	put_uint(&b, 2, n);
	put_uint(&b, 2, n);
	put_uint(&b, 4, directory.n);
	put_uint(&b, 4, start);
	put_uint(&b, 2, 0);
	free(directory.p);
	return b;
}

/* ---- pickle ----------------------------------------------------------------------------------------------------------- */

static void
put_text(struct test_buf *b, const char *s, size_t n)
{
	PUT(b, "X");
	put_uint(b, 4, n);
	put(b, s, n);
}

static void
put_ints(struct test_buf *b, const long *v, unsigned n)
{
	PUT(b, "(");
	for (unsigned i = 0; i < n; i++) {
		PUT(b, "J");
		put_uint(b, 4, (uint64_t)v[i]);
	}
	PUT(b, "t");
}

/* "4x8" of a storage of its own, which requires grad */
static void
put_tensor(struct test_buf *b, const char *storage, const char *dims, size_t key)
{
	long dim[8], stride[8], total = 1;
	unsigned n = 0;
	char name[24];

	while (*dims >= '0' && *dims <= '9') {
		char *end;

		dim[n++] = strtol(dims, &end, 10);
		dims = *end == 'x' ? end + 1 : end;
	}
	for (unsigned i = n; i-- > 0; total *= dim[i])
		stride[i] = total;
	PUT(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
	put_text(b, "storage", 7);
	PUT(b, "ctorch\n");
	put(b, storage, strlen(storage));
	PUT(b, "Storage\n");
	put_text(b, name, (size_t)snprintf(name, sizeof name, "%zu", key));
	put_text(b, "cpu", 3);
	PUT(b, "J");
	put_uint(b, 4, (uint64_t)total);
	PUT(b, "tQK\0");
	put_ints(b, dim, n);
	put_ints(b, stride, n);
	PUT(b, "\x88");
	PUT(b, "ccollections\nOrderedDict\n)RtR");
}

/*
 * The state of a module from text: "w=Float 4x8; n=3; on=True; none=None; sub=__torch__.m.Sub{...}".
 * Numbers, booleans, None, text in single quotes, tensors by storage and dims, modules by class and their own state in braces.
 */
static const char *
put_state(struct test_buf *b, const char *s, size_t *key)
{
	PUT(b, "}(");
	while (*s && *s != '}') {
		const char *eq = strchr(s, '='), *end;

		put_text(b, s, (size_t)(eq - s));
		s = eq + 1;
		end = s + strcspn(s, ";{}");
		if (strncmp(s, "__torch__", 9) == 0) {
			const char *dot = end;

			while (*dot != '.')
				dot--;
			PUT(b, "c");
			put(b, s, (size_t)(dot - s));
			PUT(b, "\n");
			put(b, dot + 1, (size_t)(end - dot - 1));
			PUT(b, "\n)\x81");
			end = put_state(b, end + 1, key) + 1;
			PUT(b, "b");
		} else if (*s == '\'') {
			put_text(b, s + 1, (size_t)(end - s - 2));
		} else if (*s >= '0' && *s <= '9') {
			PUT(b, "J");
			put_uint(b, 4, strtoul(s, NULL, 10));
		} else if (strncmp(s, "None", 4) == 0 || strncmp(s, "True", 4) == 0 || strncmp(s, "False", 5) == 0) {
			put(b, *s == 'N' ? "N" : *s == 'T' ? "\x88" : "\x89", 1);
		} else {
			char storage[32];

			snprintf(storage, sizeof storage, "%.*s", (int)strcspn(s, " "), s);
			put_tensor(b, storage, s + strcspn(s, " ") + 1, (*key)++);
		}
		s = end + strspn(end, "; ");
	}
	PUT(b, "u");
	return s;
}

struct test_buf
test_script(const char *code, const char *state)
{
	struct test_buf pkl = {0}, z;
	struct test_member m[4] = {{"a/code/__torch__/m.py", code, strlen(code)}, {"a/constants.pkl", "\x80\x02).", 4}, {"a/version", "3\n", 2}};
	size_t key = 0;

	PUT(&pkl, "\x80\x02" "c__torch__.m\nNet\n)\x81");
	put_state(&pkl, state, &key);
	PUT(&pkl, "b.");
	m[3] = (struct test_member){"a/data.pkl", pkl.p, pkl.n};
	z = test_zip(m, 4);
	free(pkl.p);
	return z;
}
