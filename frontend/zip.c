/*
 * The PyTorch zip container by libzip: members are found by name, with or without the archive's root
 * folder, and read whole up to a limit. Weights are members too; nobody asks for them.
 */
#include "frontend.h"

#include <stdio.h>
#include <string.h>
#include <zip.h>

#define MAX_PACKED LIMIT(64u << 20, 4u << 10)    /* of an archive that is a compressed member of another */

struct zip_archive {
	uint64_t n;                /* bytes of the whole, or of the outermost archive that it lies in */
	zip_t *z;
	struct str root;           /* first path component of the first member, with its slash; may be empty */
};

static void
discard(void *p)
{
	zip_discard(p);
}

static bool
is_zip(const struct source *src)
{
	return src->n >= 22 && memcmp(src->p, "PK", 2) == 0;
}

static void
find_root(struct ctx *c, struct zip_archive *a)
{
	const char *first = zip_get_num_entries(a->z, 0) > 0 ? zip_get_name(a->z, 0, ZIP_FL_ENC_RAW) : NULL;
	const char *slash = first ? strchr(first, '/') : NULL;

	if (slash)
		a->root = str_copy(c->a, (struct str){first, (uint32_t)(slash - first) + 1});
}

static zip_int64_t
locate(const struct zip_archive *a, struct str name)
{
	char path[4096];
	zip_int64_t i;

	if (name.n + a->root.n >= sizeof path)
		return -1;
	memcpy(path, name.p, name.n);
	path[name.n] = 0;
	i = zip_name_locate(a->z, path, ZIP_FL_ENC_RAW);
	if (i >= 0 || !a->root.n)
		return i;
	memcpy(path, a->root.p, a->root.n);
	memcpy(path + a->root.n, name.p, name.n);
	path[a->root.n + name.n] = 0;
	return zip_name_locate(a->z, path, ZIP_FL_ENC_RAW);
}

static const char *
why_not(const zip_error_t *e)
{
	int code = zip_error_code_zip(e);
	bool cut = code == ZIP_ER_NOZIP;

#ifdef ZIP_ER_TRUNCATED_ZIP                   /* since libzip 1.11 */
	cut = cut || code == ZIP_ER_TRUNCATED_ZIP;
#endif
	return cut ? "the directory at its end is missing: the file is cut off" : zip_error_strerror((zip_error_t *)e);
}

static struct zip_archive *
open_zip(struct ctx *c, const struct source *src, bool quiet)
{
	struct zip_archive *a = NEW(c->a, struct zip_archive, 1);
	zip_error_t e;
	zip_source_t *zs;

	zip_error_init(&e);
	zs = zip_source_buffer_create(src->p, src->n, 0, &e);
	a->z = zs ? zip_open_from_source(zs, ZIP_RDONLY, &e) : NULL;
	if (!a->z) {
		if (!quiet)
			diag(c, DIAG_ZIP_BAD, why_not(&e));
		zip_source_free(zs);
		zip_error_fini(&e);
		return NULL;
	}
	zip_error_fini(&e);
	a->n = src->n;
	arena_defer(c->a, discard, a->z);
	find_root(c, a);
	return a;
}

struct zip_archive *
zip_open_source(struct ctx *c, const struct source *src)
{
	if (is_zip(src))
		return open_zip(c, src, false);
	diag(c, DIAG_ZIP_BAD, "the signature is missing");
	return NULL;
}

static bool
is_packed(const struct zip_archive *a, zip_int64_t i)
{
	zip_stat_t st;

	return zip_stat_index(a->z, (zip_uint64_t)i, 0, &st) == 0 && (st.valid & ZIP_STAT_COMP_METHOD) && st.comp_method != ZIP_CM_STORE;
}

/* An archive that is compressed has no directory to go to before all of it is unpacked. */
static struct zip_archive *
open_packed(struct ctx *c, const struct zip_archive *outer, zip_int64_t i, struct str name)
{
	zip_stat_t st;
	struct str text;
	struct source src;

	if (zip_stat_index(outer->z, (zip_uint64_t)i, 0, &st) || !(st.valid & ZIP_STAT_SIZE) || st.size > MAX_PACKED || !zip_read(c, outer, name, &text))
		return NULL;
	src = (struct source){(const unsigned char *)text.p, text.n, name};
	return zip_peek(c, &src);
}

/* It lies in the archive and begins as one: libzip (1.7) loses memory when it finds out later. */
static bool
is_archive(const struct zip_archive *outer, zip_int64_t i)
{
	zip_stat_t st;
	zip_file_t *f;
	char head[4] = {0};

	if (zip_stat_index(outer->z, (zip_uint64_t)i, 0, &st) || !(st.valid & ZIP_STAT_SIZE) || st.size > outer->n)
		return false;
	f = zip_fopen_index(outer->z, (zip_uint64_t)i, 0);
	if (!f)
		return false;
	if (zip_fread(f, head, sizeof head) != sizeof head)
		head[0] = 0;
	zip_fclose(f);
	return memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0;
}

/* A member that is an archive itself. If it is stored, libzip reads it where it lies. */
struct zip_archive *
zip_open_member(struct ctx *c, const struct zip_archive *outer, struct str name)
{
	struct zip_archive *a = NEW(c->a, struct zip_archive, 1);
	zip_int64_t i = locate(outer, name);
	zip_error_t e;
	zip_source_t *zs;

	if (i >= 0 && is_packed(outer, i))
		return open_packed(c, outer, i, name);
	zs = i < 0 || !is_archive(outer, i) ? NULL : zip_source_zip(outer->z, outer->z, (zip_uint64_t)i, 0, 0, -1);
	if (!zs)
		return NULL;
	zip_error_init(&e);
	a->z = zip_open_from_source(zs, ZIP_RDONLY, &e);
	zip_error_fini(&e);
	if (!a->z) {
		zip_source_free(zs);
		return NULL;
	}
	a->n = outer->n;
	arena_defer(c->a, discard, a->z);
	find_root(c, a);
	return a;
}

struct zip_archive *
zip_peek(struct ctx *c, const struct source *src)
{
	return is_zip(src) ? open_zip(c, src, true) : NULL;
}

void
zip_close_archive(struct ctx *c, struct zip_archive *a)
{
	arena_cancel(c->a, a->z);
}

bool
zip_has(const struct zip_archive *a, struct str name)
{
	return locate(a, name) >= 0;
}

bool
zip_size(const struct zip_archive *a, struct str name, uint64_t *size)
{
	zip_int64_t i = locate(a, name);
	zip_stat_t st;

	if (i < 0 || zip_stat_index(a->z, (zip_uint64_t)i, 0, &st) || !(st.valid & ZIP_STAT_SIZE))
		return false;
	*size = st.size;
	return true;
}

uint32_t
zip_count(const struct zip_archive *a)
{
	zip_int64_t n = zip_get_num_entries(a->z, 0);

	return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

struct str
zip_member(const struct zip_archive *a, uint32_t i)
{
	const char *s = zip_get_name(a->z, i, ZIP_FL_ENC_RAW);

	return s ? str_of(s) : S("");
}

bool
zip_find_suffix(const struct zip_archive *a, struct str suffix, struct str *name)
{
	zip_int64_t n = zip_get_num_entries(a->z, 0);

	for (zip_int64_t i = 0; i < n; i++) {
		const char *s = zip_get_name(a->z, (zip_uint64_t)i, ZIP_FL_ENC_RAW);

		if (s && str_ends(str_of(s), suffix)) {
			*name = str_of(s);
			return true;
		}
	}
	return false;
}

bool
zip_find_part(const struct zip_archive *a, struct str part, struct str *name)
{
	zip_int64_t n = zip_get_num_entries(a->z, 0);

	for (zip_int64_t i = 0; i < n; i++) {
		const char *s = zip_get_name(a->z, (zip_uint64_t)i, ZIP_FL_ENC_RAW);

		if (s && memmem(s, strlen(s), part.p, part.n)) {
			*name = str_of(s);
			return true;
		}
	}
	return false;
}

/* What is wrong goes to why; nothing here may leave by the arena's door, for the member is open. */
static bool
read_all(zip_file_t *f, char *p, uint64_t size, char *why, size_t cap)
{
	uint64_t got = 0;
	zip_int64_t n = 1;
	char more;

	while (got < size && n > 0) {
		n = zip_fread(f, p + got, size - got);
		got += n > 0 ? (uint64_t)n : 0;
	}
	if (got == size)
		n = zip_fread(f, &more, 1);        /* the checksum is compared when the end is met */
	if (n >= 0 && got == size && n == 0)
		return true;
	snprintf(why, cap, "%s", n < 0 ? zip_file_strerror(f) : "not as long as its directory entry says");
	return false;
}

bool
zip_read(struct ctx *c, const struct zip_archive *a, struct str name, struct str *out)
{
	struct str own = str_copy(c->a, name);
	zip_int64_t i = locate(a, name);
	zip_stat_t st;
	zip_file_t *f;
	char *p, why[160];
	bool ok;

	if (i < 0)
		return diag(c, DIAG_ZIP_MEMBER, SFMT(own), "not there");
	if (zip_stat_index(a->z, (zip_uint64_t)i, 0, &st) || !(st.valid & ZIP_STAT_SIZE))
		return diag(c, DIAG_ZIP_MEMBER, SFMT(name), zip_strerror(a->z));
	if (st.size > c->lim.member || st.size > INT32_MAX)
		return diag(c, DIAG_MEMBER_TOO_BIG, SFMT(name), (unsigned long long)st.size, (unsigned long long)c->lim.member);
	p = NEW(c->a, char, st.size + 1);          /* before the member is open: an allocation may leave by the door */
	f = zip_fopen_index(a->z, (zip_uint64_t)i, 0);
	if (!f)
		return diag(c, DIAG_ZIP_MEMBER, SFMT(name), zip_strerror(a->z));
	ok = read_all(f, p, st.size, why, sizeof why);
	zip_fclose(f);
	*out = (struct str){p, (uint32_t)st.size};
	return ok || diag(c, DIAG_ZIP_MEMBER, SFMT(name), why);
}
