/*
 * torture FILE..: every allocation of a run fails in turn: once that one alone, once it and all behind it. The run must end with a status and
 * give everything back; one that says it went well must have the numbers of the run in which nothing failed.
 *
 * malloc and its kin are this program's own, in front of the C library's, so that the libraries underneath are tortured, too.
 */
#include "../memcrest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static struct {
	bool counts;
	unsigned long n, fail_at;          /* the allocation that fails, from 1; 0 = none */
	bool forever;
	long live;
} mem;

static bool
fails(void)
{
	if (!mem.counts)
		return false;
	mem.n++;
	if (!mem.fail_at || (mem.forever ? mem.n < mem.fail_at : mem.n != mem.fail_at))
		return false;
	errno = ENOMEM;
	return true;
}

static void *
counted(void *p)
{
	mem.live += p && mem.counts;
	return p;
}

void *
malloc(size_t n)
{
	return fails() ? NULL : counted(__libc_malloc(n));
}

void *
calloc(size_t n, size_t size)
{
	return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *
realloc(void *p, size_t n)
{
	if (fails())
		return NULL;
	return p ? __libc_realloc(p, n) : counted(__libc_malloc(n));
}

void
free(void *p)
{
	mem.live -= p && mem.counts;
	__libc_free(p);
}

/* ---- a run -------------------------------------------------------------------------------------------------------------- */

struct sum {
	size_t bytes;
	unsigned long long hash;
};

static int
digest(void *user, const void *data, size_t n)
{
	const unsigned char *p = data;
	struct sum *s = user;

	s->bytes += n;
	for (size_t i = 0; i < n; i++)
		s->hash = (s->hash ^ p[i]) * 1099511628211ull;
	return 0;
}

struct outcome {
	mc_status status;
	bool silent;               /* it failed and does not say why */
	struct sum text, events, json;
};

static struct outcome
finish(const mc_model *m, const mc_recipe *r, struct outcome o)
{
	mc_report *rep = NULL;

	o.status = mc_analyze(m, r, NULL, &rep);
	if (o.status == MC_OK || o.status == MC_INCOMPLETE) {
		if (mc_write(rep, "text", digest, &o.text) != MC_OK || mc_write(rep, "events", digest, &o.events) != MC_OK ||
		    mc_write(rep, "json", digest, &o.json) != MC_OK)
			o.status = MC_NO_MEMORY;
	} else {
		o.silent = rep && !mc_report_diagnostics(rep, NULL, 0);
	}
	mc_report_free(rep);
	return o;
}

static mc_status
read_settings(mc_recipe *r)
{
	static const char yaml[] = "mixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n  other: [1, {a: \"\\x41\"}]\nlist:\n- - ~\n- |\n  text\n";

	return mc_recipe_file(r, "accelerate", yaml, sizeof yaml - 1, "config.yaml");
}

static struct outcome
run(const char *path)
{
	struct outcome o = {.status = MC_NO_MEMORY};
	mc_recipe *r = mc_recipe_new();
	mc_model *m = NULL;

	if (r)
		o.status = read_settings(r) == MC_OK ? MC_OK : MC_NO_MEMORY;
	if (o.status == MC_OK) {
		o.status = mc_load_path(path, NULL, &m);
		o.silent = o.status != MC_OK && m && !mc_model_diagnostics(m, NULL, 0);
	}
	if (o.status == MC_OK)
		o = finish(m, r, o);
	mc_model_free(m);
	mc_recipe_free(r);
	return o;
}

static struct outcome
tortured(const char *path, unsigned long fail_at, bool forever)
{
	struct outcome o;

	mem.n = 0;
	mem.live = 0;
	mem.fail_at = fail_at;
	mem.forever = forever;
	mem.counts = true;
	o = run(path);
	mem.counts = false;
	return o;
}

static bool
is_fine(struct outcome o, struct outcome want)
{
	if (o.silent || mem.live > 1)      /* libzip loses one of its own when it cannot put a reader over another */
		return false;
	if (o.status != MC_OK && o.status != MC_INCOMPLETE)
		return true;
	return o.status == want.status && memcmp(&o.text, &want.text, sizeof o.text) == 0 && memcmp(&o.events, &want.events, sizeof o.events) == 0 &&
	    memcmp(&o.json, &want.json, sizeof o.json) == 0;
}

int
main(int argc, char **argv)
{
	unsigned long bad = 0;

	setvbuf(stdout, NULL, _IONBF, 0);

	for (int i = 1; i < argc; i++) {
		struct outcome want = tortured(argv[i], 0, false);
		unsigned long total = mem.n, before = bad;

		want = tortured(argv[i], 0, false);        /* libraries keep some from their first use */
		for (unsigned long k = 1; k <= total; k++)
			for (int forever = 0; forever < 2; forever++) {
				struct outcome o = tortured(argv[i], k, forever);

				if (is_fine(o, want) || ++bad > before + 10)
					continue;
				printf("%s: allocation %lu%s fails: status %d%s, %ld left\n", argv[i], k, forever ? " and all behind" : "", (int)o.status, o.silent ? " and no reason" : "", mem.live);
			}
		printf("%s: %lu allocations, status %d, %zu bytes of report; %lu bad\n", argv[i], total, (int)want.status, want.text.bytes, bad - before);
	}
	return bad > 0;
}
