/*
 * torture FILE..: every allocation of a run fails in turn: once that one alone, once it and all behind it. The run must end with a status and
 * give everything back; one that says it went well must have the numbers of the run in which nothing failed. The first file is run with some
 * recipes more, whose passes the others do not reach. Then the same for writing the report of the first and of the last file in every format, what
 * is written of two reports, and inspect, sweep and advise. A line that a library prints is a failure, too.
 *
 * malloc and its kin are this program's own, in front of the C library's, so that the libraries underneath are tortured, too. What memcrest itself asked
 * for may never be left; of two libraries one or two blocks may.
 */
#include "../memcrest.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static struct {
	bool counts;
	unsigned long n, fail_at;          /* the allocation that fails, from 1; 0 = none */
	bool forever;
	long live, own;                    /* blocks; those that memcrest itself asked for, not a library */
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

/* The last bytes of a block, behind what was asked for, say whose it is. */
#define TAG 0x6d656d6372657374u
#define TAGGED(n) ((n) > SIZE_MAX - sizeof(uint64_t) ? SIZE_MAX : (n) + sizeof(uint64_t))

static uint64_t *
tag_of(void *p)
{
	return (uint64_t *)((char *)p + malloc_usable_size(p) / sizeof(uint64_t) * sizeof(uint64_t) - sizeof(uint64_t));
}

static bool
is_own(void *p)
{
	return p && *tag_of(p) == ((TAG ^ (uintptr_t)p) | 1);
}

static void *
tagged(void *p, bool own)
{
	if (p)
		*tag_of(p) = own ? (TAG ^ (uintptr_t)p) | 1 : 0;
	return p;
}

/* The program's own code, with the library linked into it. */
static bool
is_ours(const void *caller)
{
	extern const char __executable_start, etext;

	return (const char *)caller >= &__executable_start && (const char *)caller < &etext;
}

static void *
counted(void *p, const void *caller)
{
	mem.live += p && mem.counts;
	mem.own += p && mem.counts && is_ours(caller);
	return tagged(p, is_ours(caller));
}

void *
malloc(size_t n)
{
	return fails() ? NULL : counted(__libc_malloc(TAGGED(n)), __builtin_return_address(0));
}

void *
calloc(size_t n, size_t size)
{
	size_t all;

	if (__builtin_mul_overflow(n, size, &all))
		return NULL;
	return fails() ? NULL : counted(__libc_calloc(1, TAGGED(all)), __builtin_return_address(0));
}

void *
realloc(void *p, size_t n)
{
	bool own = is_own(p);
	void *q;

	if (fails())
		return NULL;
	if (!p)
		return counted(__libc_malloc(TAGGED(n)), __builtin_return_address(0));
	q = __libc_realloc(p, TAGGED(n));
	return q ? tagged(q, own) : NULL;
}

void
free(void *p)
{
	mem.live -= p && mem.counts;
	mem.own -= mem.counts && is_own(p);
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

static const char *const recipes[] = {
	"{}",
	"{\"parallel\": {\"strategy\": \"zero3\", \"dp\": 2}, \"offload\": {\"optimizer\": true, \"param\": true, \"activations\": true}, \"precision\": \"bf16\", \"dims\": {\"batch\": 2}}",
	"{\"lora\": {\"r\": 2, \"targets\": \"all-linear\", \"dropout\": 0.1}, \"precision\": \"bf16-mixed\", \"checkpoint\": \"non-reentrant\", \"checkpoint_modules\": [\"layers.0\"], \"dims\": {\"batch\": 2}}",
};
#define NRECIPE (sizeof recipes / sizeof recipes[0])

static mc_status
read_settings(mc_recipe *r, size_t recipe)
{
	static const char yaml[] = "mixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n  other: [1, {a: \"\\x41\"}]\nlist:\n- - ~\n- |\n  text\n";

	if (recipe)
		return mc_recipe_json(r, recipes[recipe], strlen(recipes[recipe]), "recipe.json");
	return mc_recipe_file(r, "accelerate", yaml, sizeof yaml - 1, "config.yaml");
}

static struct outcome
run(const char *path, size_t recipe)
{
	struct outcome o = {.status = MC_NO_MEMORY};
	mc_recipe *r = mc_recipe_new();
	mc_model *m = NULL;

	if (r)
		o.status = read_settings(r, recipe) == MC_OK ? MC_OK : MC_NO_MEMORY;
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
tortured(const char *path, size_t recipe, unsigned long fail_at, bool forever)
{
	struct outcome o;

	mem.n = 0;
	mem.live = mem.own = 0;
	mem.fail_at = fail_at;
	mem.forever = forever;
	mem.counts = true;
	o = run(path, recipe);
	mem.counts = false;
	return o;
}

static bool
is_fine(struct outcome o, struct outcome want)
{
	if (o.silent || mem.own > 0 || mem.live > 1)       /* libzip loses one of its own when it cannot put a reader over another */
		return false;
	if (o.status != MC_OK && o.status != MC_INCOMPLETE)
		return true;
	return o.status == want.status && memcmp(&o.text, &want.text, sizeof o.text) == 0 && memcmp(&o.events, &want.events, sizeof o.events) == 0 &&
	    memcmp(&o.json, &want.json, sizeof o.json) == 0;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

struct ready {                     /* what there is to write */
	mc_model *m;
	mc_report *r;
	mc_recipe *recipe;
	mc_sweep *sweep;
	mc_diff *diff;
	struct text {
		char *p;
		size_t n;
	} json, pickle;
};

static int
append(void *user, const void *data, size_t n)
{
	struct text *t = user;
	char *p = realloc(t->p, t->n + n);

	if (!p)
		return 1;
	memcpy(p + t->n, data, n);
	t->p = p;
	t->n += n;
	return 0;
}

static mc_status
write_as(const struct ready *a, const char *format, struct sum *s)
{
	return mc_write(a->r, format, digest, s);
}

static mc_status
write_table(const struct ready *a, const char *format, struct sum *s)
{
	return mc_sweep_write(a->sweep, format, digest, s);
}

static mc_status
write_diff(const struct ready *a, const char *format, struct sum *s)
{
	return mc_diff_write(a->diff, format, digest, s);
}

static mc_status
write_copy(const struct ready *a, const char *format, struct sum *s)
{
	(void)format;
	return mc_annotate(a->m, a->r, digest, s);
}

static mc_status
make_diff(const struct ready *a, const char *format, struct sum *s)
{
	mc_diff *d = NULL;
	mc_status st = strcmp(format, "measured") == 0 ? mc_diff_measured(a->r, a->pickle.p, a->pickle.n, "pickle", &d) :
	    mc_diff_reports(a->json.p, a->json.n, "a", a->json.p, a->json.n, "b", &d);

	if (st == MC_OK)
		st = mc_diff_write(d, "json", digest, s);
	mc_diff_free(d);
	return st;
}

static mc_status
inspect(const struct ready *a, const char *format, struct sum *s)
{
	mc_report *r = NULL;
	mc_status st = mc_inspect(a->m, NULL, NULL, &r);

	if (st == MC_OK)
		st = mc_write(r, format, digest, s);
	mc_report_free(r);
	return st;
}

static int
finds_lack(void *user, const void *data, size_t n)
{
	*(bool *)user |= memmem(data, n, "memory", 6) != NULL;
	return 0;
}

/* A row that lacked memory says so in the row. */
static mc_status
table_status(const mc_sweep *w, mc_status st, const char *format, struct sum *s)
{
	bool lacks = false;

	if (st != MC_OK && st != MC_INCOMPLETE)
		return st == MC_BAD_INPUT && !mc_sweep_diagnostics(w, NULL, 0) ? MC_BAD_INPUT : MC_NO_MEMORY;
	if (mc_sweep_write(w, "csv", finds_lack, &lacks) != MC_OK || lacks)
		return MC_NO_MEMORY;
	return mc_sweep_write(w, format, digest, s);
}

static mc_status
sweep(const struct ready *a, const char *format, struct sum *s)
{
	mc_sweep *w = NULL;
	mc_status st = mc_sweep_new(a->m, NULL, &w);

	if (st == MC_OK)
		st = mc_sweep_vary(w, "grad_accum", "1,2");
	if (st == MC_OK)
		st = mc_sweep_run(w, NULL, 1, NULL, NULL);
	st = w ? table_status(w, st, format, s) : MC_NO_MEMORY;
	mc_sweep_free(w);
	return st;
}

static mc_status
advise(const struct ready *a, const char *format, struct sum *s)
{
	mc_sweep *w = NULL;
	mc_status st = mc_advise(a->m, a->recipe, NULL, 1, NULL, NULL, &w);

	st = w ? table_status(w, st, format, s) : MC_NO_MEMORY;
	mc_sweep_free(w);
	return st;
}

/* Bytes that were printed since the last call; standard error goes to a file. */
static off_t
printed(void)
{
	static off_t before;
	off_t now = lseek(STDERR_FILENO, 0, SEEK_CUR), n = now - before;

	before = now;
	return n;
}

#define STEP_FROM 1500             /* of more allocations every some are tried */

static unsigned long
torture_writer(const struct ready *a, const char *what, const char *format, mc_status (*write)(const struct ready *, const char *, struct sum *))
{
	struct sum want = {0}, got;
	unsigned long bad = 0, total, step;
	mc_status st = write(a, format, &want), st_k;

	mem.n = mem.fail_at = 0;
	mem.counts = true;
	got = (struct sum){0};
	write(a, format, &got);
	mem.counts = false;
	total = mem.n;
	step = 1 + total / STEP_FROM;
	for (unsigned long k = 1; k <= total; k += k < STEP_FROM / 2 || total - k < STEP_FROM / 4 ? 1 : step)
		for (int forever = 0; forever < 2; forever++) {
			bool fine;

			got = (struct sum){0};
			mem.n = 0;
			mem.live = mem.own = 0;
			mem.fail_at = k;
			mem.forever = forever;
			mem.counts = true;
			st_k = write(a, format, &got);
			mem.counts = false;
			fine = mem.own <= 0 && mem.live <= 2 && (st_k == MC_NO_MEMORY || (st_k == st && memcmp(&got, &want, sizeof got) == 0));        /* libxml2 loses an element that it cannot note down */
			if (fine & !printed() || ++bad > 10)
				continue;
			printf("%s %s: allocation %lu%s fails: status %d, %ld left, %ld of them ours, %zu bytes of %zu\n", what, format, k, forever ? " and all behind" : "", (int)st_k, mem.live, mem.own, got.bytes, want.bytes);
		}
	printf("%s %s: %lu allocations, status %d, %zu bytes; %lu bad\n", what, format, total, (int)st, want.bytes, bad);
	return bad + (st != MC_OK);
}

static unsigned long
torture_writers(const char *path)
{
	static const char *const diffs[] = {"text", "md", "html", "json"}, *const tables[] = {"text", "csv", "json"};
	struct ready a = {.recipe = mc_recipe_new()};
	struct text formats = {NULL, 0};
	unsigned long bad = 0;
	char *line, *save = NULL;

	if (mc_recipe_set(a.recipe, "budget", "1MiB") != MC_OK || mc_load_path(path, NULL, &a.m) != MC_OK || mc_analyze(a.m, NULL, NULL, &a.r) > MC_INCOMPLETE || mc_write(a.r, "json", append, &a.json) != MC_OK ||
	    mc_write(a.r, "snapshot", append, &a.pickle) != MC_OK || mc_diff_reports(a.json.p, a.json.n, "a", a.json.p, a.json.n, "b", &a.diff) != MC_OK ||
	    mc_sweep_new(a.m, NULL, &a.sweep) != MC_OK || mc_sweep_vary(a.sweep, "optimizer", "sgd,adamw") != MC_OK ||
	    mc_sweep_run(a.sweep, NULL, 1, NULL, NULL) > MC_INCOMPLETE || mc_list("formats", append, &formats) != MC_OK || append(&formats, "", 1)) {
		printf("%s: cannot be written\n", path);
		return 1;
	}
	printed();
	for (line = strtok_r(formats.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char name[32];

		if (sscanf(line, "out %31s", name) == 1 && mc_has_format(name))
			bad += torture_writer(&a, "report", name, write_as);
	}
	for (size_t i = 0; i < sizeof diffs / sizeof diffs[0]; i++)
		bad += torture_writer(&a, "difference", diffs[i], write_diff);
	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
		bad += torture_writer(&a, "table", tables[i], write_table);
	bad += torture_writer(&a, "reading", "reports", make_diff) + torture_writer(&a, "reading", "measured", make_diff);
	bad += torture_writer(&a, "inspect", "json", inspect) + torture_writer(&a, "sweep", "text", sweep) + torture_writer(&a, "advise", "text", advise);
	if (mc_can_annotate(a.m))
		bad += torture_writer(&a, "copy", "onnx", write_copy);
	mc_sweep_free(a.sweep);
	mc_diff_free(a.diff);
	mc_report_free(a.r);
	mc_model_free(a.m);
	mc_recipe_free(a.recipe);
	free(formats.p);
	free(a.json.p);
	free(a.pickle.p);
	return bad;
}

/* That a block which is left would be seen, and whose it is. */
static bool
sees_what_is_left(void)
{
	char *(*volatile copy)(const char *) = strdup;     /* the compiler knows that strdup calls nothing of ours, which is wrong here */
	char *ours, *theirs = NULL;
	bool sees;

	mem.n = mem.fail_at = 0;
	mem.live = mem.own = 0;
	mem.counts = true;
	ours = realloc(malloc(1), 100);
	sees = ours && mem.live == 1 && mem.own == 1 && (theirs = copy("theirs")) && mem.live == 2 && mem.own == 1;
	free(ours);
	free(theirs);
	mem.counts = false;
	return sees && mem.live == 0 && mem.own == 0;
}

static unsigned long
torture_run(const char *path, size_t recipe)
{
	struct outcome want = tortured(path, recipe, 0, false);
	unsigned long total = mem.n, bad = 0;

	want = tortured(path, recipe, 0, false);   /* libraries keep some from their first use */
	for (unsigned long k = 1; k <= total; k++)
		for (int forever = 0; forever < 2; forever++) {
			struct outcome o = tortured(path, recipe, k, forever);

			if (is_fine(o, want) || ++bad > 10)
				continue;
			printf("%s, recipe %zu: allocation %lu%s fails: status %d%s, %ld left, %ld of them ours\n", path, recipe, k, forever ? " and all behind" : "", (int)o.status, o.silent ? " and no reason" : "", mem.live, mem.own);
		}
	printf("%s, recipe %zu: %lu allocations, status %d, %zu bytes of report; %lu bad\n", path, recipe, total, (int)want.status, want.text.bytes, bad);
	return bad + (recipe && want.status != MC_OK);
}

int
main(int argc, char **argv)
{
	unsigned long bad = 0;
	FILE *said = tmpfile();

	setvbuf(stdout, NULL, _IONBF, 0);
	if (!sees_what_is_left()) {
		printf("torture: blocks are not counted\n");
		return 1;
	}
	if (!said || dup2(fileno(said), STDERR_FILENO) < 0)
		return 1;
	for (int i = 1; i < argc; i++)
		for (size_t recipe = 0; recipe < (i > 1 ? 1 : NRECIPE); recipe++)
			bad += torture_run(argv[i], recipe);
	if (argc > 1)
		bad += torture_writers(argv[1]) + torture_writers(argv[argc - 1]);
	return bad > 0;
}
