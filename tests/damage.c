/*
 * damage CUTS FLIPS FILE..: estimates each file, copies of it that are cut at CUTS lengths, and copies with one bit of FLIPS bytes flipped, each in a
 * process of its own under 2 s and 512 MiB. A file that cannot be used must say so, once; whatever else happens is printed, and the exit code is 1.
 * Positions come from a fixed sequence, so that two runs are the same.
 */
#include "../memcrest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 2
#define MEMORY (512u << 20)

enum { NO_REASON = 10 };

struct tally {
	unsigned runs, used, refused, bad;
	double slowest;
	long largest;              /* KiB */
};

static int
swallow(void *user, const void *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
	return 0;
}

/* A model has both sizes, one of them or none: the first recipe that it takes. */
static mc_status
analyse(const mc_model *m, const mc_options *o, mc_report **rep)
{
	static const char *const recipes[] = {"{\"dims\": {\"batch\": 2, \"seq\": 1024}}", "{\"dims\": {\"batch\": 2}}", "{}"};
	mc_status st = MC_BAD_INPUT;

	for (unsigned i = 0; i < 3 && st == MC_BAD_INPUT; i++) {
		mc_recipe *r = mc_recipe_new();

		mc_report_free(*rep);
		mc_recipe_json(r, recipes[i], strlen(recipes[i]), NULL);
		st = mc_analyze(m, r, o, rep);
		mc_recipe_free(r);
	}
	return st;
}

/* What the child does; its exit code is MC_OK, MC_BAD_INPUT, .. or NO_REASON. */
static int
estimate(const char *p, size_t n)
{
	mc_report *rep = NULL;
	mc_model *m = NULL;
	mc_options o;
	mc_status st;

	mc_options_init(&o);
	o.max_memory = MEMORY / 2;
	st = mc_load_memory(p, n, "damaged", &o, &m);
	if (st != MC_OK)
		return mc_model_diagnostics(m, NULL, 0) ? (int)st : NO_REASON;
	st = analyse(m, &o, &rep);
	if (st == MC_OK || st == MC_INCOMPLETE)
		return mc_write(rep, "json", swallow, NULL) == MC_OK ? (int)st : NO_REASON;
	return mc_report_diagnostics(rep, NULL, 0) ? (int)st : NO_REASON;
}

static void
limit(void)
{
	struct rlimit cpu = {SECONDS + 1, SECONDS + 1}, space = {MEMORY, MEMORY};

	setrlimit(RLIMIT_CPU, &cpu);
#ifndef __SANITIZE_ADDRESS__               /* which has its own ways with memory */
	setrlimit(RLIMIT_DATA, &space);
#else
	(void)space;
#endif
}

static void
complain(struct tally *t, const char *path, const char *how, size_t at, int status)
{
	t->bad++;
	if (WIFSIGNALED(status))
		printf("%s %s at %zu: signal %d\n", path, how, at, WTERMSIG(status));
	else
		printf("%s %s at %zu: %s\n", path, how, at, WEXITSTATUS(status) == NO_REASON ? "refused without a reason" : "too slow");
}

static void
try(struct tally *t, const char *path, const char *how, size_t at, const char *p, size_t n)
{
	struct rusage u;
	int status = 0;
	double took;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		limit();
		_exit(estimate(p, n));
	}
	wait4(child, &status, 0, &u);
	took = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
	t->runs++;
	t->used += WIFEXITED(status) && (WEXITSTATUS(status) == MC_OK || WEXITSTATUS(status) == MC_INCOMPLETE);
	t->refused += WIFEXITED(status) && (WEXITSTATUS(status) == MC_BAD_INPUT || WEXITSTATUS(status) == MC_LIMIT || WEXITSTATUS(status) == MC_NO_MEMORY);
	t->slowest = took > t->slowest ? took : t->slowest;
	t->largest = u.ru_maxrss > t->largest ? u.ru_maxrss : t->largest;
	if (WIFSIGNALED(status) || WEXITSTATUS(status) == NO_REASON || took > SECONDS)
		complain(t, path, how, at, status);
}

static char *
read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	char *p;

	if (!f || fseek(f, 0, SEEK_END)) {
		fprintf(stderr, "damage: cannot read %s\n", path);
		exit(2);
	}
	*n = (size_t)ftell(f);
	rewind(f);
	p = malloc(*n + 1);
	if (!p || fread(p, 1, *n, f) != *n)
		exit(2);
	fclose(f);
	return p;
}

static void
damage(struct tally *t, const char *path, unsigned cuts, unsigned flips)
{
	unsigned long long x = 88172645463325252ull;
	size_t n;
	char *p = read_file(path, &n);

	for (unsigned i = 0; i <= cuts; i++) {             /* the last is whole */
		size_t keep = (size_t)((unsigned long long)n * i / (cuts ? cuts : 1));
		char *copy = malloc(keep + 1);     /* its own block, so that memory checkers see what is read behind it */

		if (!copy)
			exit(2);
		memcpy(copy, p, keep);
		try(t, path, "cut", keep, copy, keep);
		free(copy);
	}
	for (unsigned i = 0; i < flips && n; i++) {
		size_t at;

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		at = (size_t)(x % n);
		p[at] = (char)(p[at] ^ (1 << (x >> 40) % 8));
		try(t, path, "flipped", at, p, n);
		p[at] = (char)(p[at] ^ (1 << (x >> 40) % 8));
	}
	free(p);
}

int
main(int argc, char **argv)
{
	unsigned bad = 0;

	if (argc < 4) {
		fprintf(stderr, "usage: damage CUTS FLIPS FILE..\n");
		return 2;
	}
	for (int i = 3; i < argc; i++) {
		struct tally t = {0};

		damage(&t, argv[i], (unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]));
		printf("%s: %u runs, %u used, %u refused, %u bad; slowest %.2f s, largest %ld MiB\n", argv[i], t.runs, t.used, t.refused, t.bad, t.slowest, t.largest >> 10);
		bad += t.bad;
	}
	return bad > 0;
}
