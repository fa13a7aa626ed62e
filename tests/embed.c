/*
 * embed FILE..: the library as a small host uses it, over memcrest.h alone: each file is loaded, analysed and written in a thread whose stack has
 * 64 KiB; then four such threads share one model. All must have the same numbers.
 */
#include "../memcrest.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK 65536
#define THREADS 4

struct job {
	const char *path;
	const mc_model *shared;    /* or NULL: load it */
	mc_status status;
	uint64_t peak;
	size_t bytes;
};

static int
count(void *user, const void *p, size_t n)
{
	(void)p;
	*(size_t *)user += n;
	return 0;
}

static void *
work(void *arg)
{
	struct job *j = arg;
	mc_report *rep = NULL;
	mc_model *m = NULL;

	j->status = j->shared ? MC_OK : mc_load_path(j->path, NULL, &m);
	if (j->status == MC_OK)
		j->status = mc_analyze(j->shared ? j->shared : m, NULL, NULL, &rep);
	if (j->status == MC_OK || j->status == MC_INCOMPLETE) {
		j->peak = mc_report_peak(rep);
		if (mc_write(rep, "text", count, &j->bytes) != MC_OK || mc_write(rep, "json", count, &j->bytes) != MC_OK || mc_write(rep, "events", count, &j->bytes) != MC_OK)
			j->status = MC_NO_MEMORY;
	}
	mc_report_free(rep);
	mc_model_free(m);
	return NULL;
}

static int
start(pthread_t *t, struct job *j)
{
	pthread_attr_t a;
	int bad;

	if (pthread_attr_init(&a) || pthread_attr_setstacksize(&a, STACK))
		return 1;
	bad = pthread_create(t, &a, work, j);
	pthread_attr_destroy(&a);
	return bad;
}

static int
check(const char *path)
{
	struct job alone = {.path = path}, j[THREADS];
	pthread_t t[THREADS];
	mc_model *m = NULL;
	int bad = 0;

	if (start(t, &alone) || pthread_join(t[0], NULL))
		return 1;
	if (alone.status != MC_OK && alone.status != MC_INCOMPLETE) {
		printf("ok - %s in 64 KiB of stack: refused\n", path);
		return 0;
	}
	if (mc_load_path(path, NULL, &m) != MC_OK)
		return 1;
	for (unsigned i = 0; i < THREADS; i++) {
		j[i] = (struct job){.path = path, .shared = m};
		bad |= start(&t[i], &j[i]);
	}
	for (unsigned i = 0; i < THREADS && !bad; i++) {
		pthread_join(t[i], NULL);
		bad |= j[i].status != alone.status || j[i].peak != alone.peak || j[i].bytes != alone.bytes;
	}
	mc_model_free(m);
	printf("%s - %s in 64 KiB of stack, then by four threads: %llu bytes\n", bad ? "not ok" : "ok", path, (unsigned long long)alone.peak);
	return bad;
}

int
main(int argc, char **argv)
{
	int bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 1; i < argc; i++)
		bad |= check(argv[i]);
	return bad;
}
