/* The committed corpora through their targets, each input in a block of its own, so that reading behind it is seen. */
#include "fuzz.h"
#include "test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
replay_file(const struct fuzz_target *t, const char *path)
{
	size_t n;
	char *p = test_read(path, &n), *copy = malloc(n ? n : 1);
	double start = seconds();

	assert_non_null(copy);
	memcpy(copy, p, n);
	t->run(copy, n);
	if (seconds() - start > 10)            /* with sanitizers; 2 s without */
		fail_msg("%s takes %.1f s", path, seconds() - start);
	free(copy);
	free(p);
}

static void
replay(const struct fuzz_target *t)
{
	char path[512];
	unsigned inputs = 0;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof path, "fixtures/fuzz/%s", t->name);
	d = opendir(path);
	if (!d)
		fail_msg("no corpus %s", path);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "fixtures/fuzz/%s/%s", t->name, e->d_name);
		replay_file(t, path);
		inputs++;
	}
	closedir(d);
	assert_true(inputs > 0);
}

static void
corpora_do_no_harm(void **state)
{
	(void)state;
	for (unsigned i = 0; fuzz_at(i); i++)
		replay(fuzz_at(i));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(corpora_do_no_harm)};

	return cmocka_run_group_tests_name("fuzz", tests, NULL, NULL);
}
