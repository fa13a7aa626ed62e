/* Measurements of real cards that others have published (fixtures/field/points.tsv) against the predictions for the same jobs. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point {
	char id[64], model[64], measure[16], recipe[600];
	double measured, percent;
};

static bool
read_point(char *line, struct point *p)
{
	char *field[6], *rest = line;

	for (unsigned i = 0; i < 6; i++) {
		field[i] = rest;
		rest = strchr(rest, '\t');
		if (!rest)
			return false;
		*rest++ = 0;
	}
	snprintf(p->id, sizeof p->id, "%s", field[0]);
	snprintf(p->model, sizeof p->model, "%s", field[1]);
	snprintf(p->measure, sizeof p->measure, "%s", field[2]);
	p->measured = strtod(field[3], NULL);
	p->percent = strtod(field[4], NULL);
	snprintf(p->recipe, sizeof p->recipe, "%s", field[5]);
	return true;
}

static void
close_to(const struct point *p, uint64_t got)
{
	double off = 100 * ((double)got / p->measured - 1);

	if (fabs(off) > p->percent)
		fail_msg("%s: %s %.2f %% off, at most %.1f %% expected", p->id, p->measure, off, p->percent);
}

/* What kernels may take besides must reach up to what was measured. */
static void
compare(const struct point *p, const struct memory_row *m)
{
	if (strcmp(p->measure, "allocated") == 0) {
		close_to(p, m->allocated);
	} else if (strcmp(p->measure, "smi") == 0) {
		assert_true((double)m->process_low <= p->measured && p->measured <= (double)m->process_high);
	} else {
		close_to(p, m->reserved);
		if (strcmp(p->measure, "nvml") == 0 && p->measured > (double)(m->reserved + m->scratch))
			fail_msg("%s: above the range", p->id);
	}
}

static void
points(void **state)
{
	FILE *f = fopen("fixtures/field/points.tsv", "r");
	char line[2048], path[160];
	unsigned n = 0;
	struct point p;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		struct analysed a;

		if (line[0] == '#' || !read_point(line, &p))
			continue;
		snprintf(path, sizeof path, "fixtures/field/%s.pt2", p.model);
		a = test_analyse_file(path, p.recipe);
		compare(&p, &a.r->r.memory);
		release_analysis(a);
		n++;
	}
	fclose(f);
	assert_int_equal(n, 16);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(points)};

	return cmocka_run_group_tests_name("field", tests, NULL, NULL);
}
