/*
 * What real PyTorch allocates and releases, event by event, in files that fixtures/ops/make.py wrote (torch 2.13):
 *
 *   fixtures/ops/rows.gz    modules of one operator each, in several precisions, frozen in every combination
 *   fixtures/ops/further.gz the same for operators that are rarer in models: Fourier transforms, factors of matrices, distances
 *   fixtures/ops/rare.gz    and for what is left of ATen: special functions, quantiles and integrals, reductions by index, decompositions and pseudo-inverses
 *   fixtures/ops/others.gz  copies of views, random numbers, circular padding, old and inner names of what has rows already (fixtures/ops/cases.py)
 *   fixtures/ops/jobs.gz    whole models and recipes
 *   fixtures/ops/recipes.gz small models under the recipes' rarer keys: PEFT's adapters on convolutions and embeddings, biases that train, DoRA on all three kinds of module, modules_to_save
 *   fixtures/ops/optimizers.gz  two small models, one with parameters of two dtypes, under every optimizer and implementation (fixtures/ops/optimizers.py)
 *
 * Runs of releases are sorted. fixtures/ops/differs.txt lists what is known to differ: file, case, recipe, events missing or too many
 * (64: that many or more). A case that came to be equal has to be struck off that list.
 */
#include "events.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct text {
	char *p;
	size_t n, cap;
};

struct file {
	const char *name;
	gzFile gz;
	struct text line;
	bool held;                 /* line is still to be read */
};

/* ---- reading ----------------------------------------------------------------------------------------------- */

static void
append(struct text *t, const char *p, size_t n)
{
	if (t->cap - t->n <= n) {
		t->cap = 2 * (t->n + n) + 256;
		t->p = realloc(t->p, t->cap);
		assert_non_null(t->p);
	}
	memcpy(t->p + t->n, p, n);
	t->n += n;
	t->p[t->n] = 0;
}

static const char *
next_line(struct file *f)
{
	char part[4096];

	if (f->held) {
		f->held = false;
		return f->line.p;
	}
	f->line.n = 0;
	while (gzgets(f->gz, part, sizeof part)) {
		append(&f->line, part, strlen(part));
		if (f->line.p[f->line.n - 1] == '\n') {
			f->line.p[--f->line.n] = 0;
			return f->line.p;
		}
	}
	return NULL;
}

static void
read_phase(struct events *l, const char *p, unsigned step, unsigned phase)
{
	while (*p) {
		bool is_free = *p++ == '-';
		char *end;

		events_push(l, (struct event){(uint8_t)step, (uint8_t)phase, is_free, strtoull(p, &end, 10), NULL});
		p = *end ? end + 1 : end;
	}
}

/* Six lines; "=" repeats what the first step had there. */
static struct events
read_events(struct file *f)
{
	struct events l = {0};
	char *first[PH_COUNT] = {NULL};

	for (unsigned step = 1; step <= 2; step++)
		for (unsigned p = PH_FORWARD; p < PH_COUNT; p++) {
			const char *line = next_line(f);

			assert_non_null(line);
			if (step == 1)
				first[p] = strdup(line);
			read_phase(&l, step == 2 && strcmp(line, "=") == 0 ? first[p] : line, step, p);
		}
	for (unsigned p = 0; p < PH_COUNT; p++)
		free(first[p]);
	events_sort(&l);
	return l;
}

/* ---- comparing ---------------------------------------------------------------------------------------------- */

struct tally {
	unsigned cases, wrong;
	struct text known;         /* differs.txt */
};

static unsigned
known_difference(const struct tally *t, const char *file, const char *name, const char *recipe)
{
	char key[256];
	const char *at;

	snprintf(key, sizeof key, "\n%s\t%s\t%s\t", file, name, recipe);
	at = t->known.p ? strstr(t->known.p, key) : NULL;
	return at ? (unsigned)strtoul(at + strlen(key), NULL, 10) : 0;
}

static void
describe(const char *file, const char *name, const char *recipe, unsigned n, const struct events *got, const struct events *want)
{
	static const struct event none;
	size_t i = 0;
	const struct event *g, *w;

	while (i < got->n && i < want->n && events_same(&got->e[i], &want->e[i]))
		i++;
	g = i < got->n ? &got->e[i] : &none;
	w = i < want->n ? &want->e[i] : &none;
	print_message("%s\t%s\t%s\t%u\t# step %u %s: %c%llu %s; torch step %u %s: %c%llu\n", file, name, recipe, n, g->step, phase_name(g->phase),
	    g->is_free ? '-' : '+', (unsigned long long)g->bytes, g->op ? g->op : "", w->step, phase_name(w->phase), w->is_free ? '-' : '+',
	    (unsigned long long)w->bytes);
}

static void
compare(struct tally *t, struct file *f, const char *name, const char *graph, char *recipe)
{
	char *json = strchr(recipe, ' ');
	struct events want, got;
	struct analysed a;
	unsigned n, known;

	assert_non_null(json);
	*json++ = 0;
	want = read_events(f);
	a = test_analyse(graph, json);
	got = events_of(a.r->r.sched);
	n = events_differ(&got, &want);
	known = known_difference(t, f->name, name, recipe);
	t->cases++;
	if (n > known || (known && !n)) {
		describe(f->name, name, recipe, n, &got, &want);
		t->wrong++;
	}
	release_analysis(a);
	free(got.e);
	free(want.e);
}

static void
read_graph(struct file *f, struct text *graph)
{
	const char *line;

	graph->n = 0;
	while ((line = next_line(f))) {
		if (line[0] == '@') {
			f->held = true;
			return;
		}
		append(graph, line, strlen(line));
		append(graph, "\n", 1);
	}
}

static void
run_file(struct tally *t, const char *name)
{
	struct file f = {.name = name};
	struct text graph = {0};
	char path[64], *which = NULL;
	const char *line;

	snprintf(path, sizeof path, "fixtures/ops/%s.gz", name);
	f.gz = gzopen(path, "rb");
	assert_non_null(f.gz);
	while ((line = next_line(&f))) {
		if (strncmp(line, "@case ", 6) == 0) {
			free(which);
			which = strdup(line + 6);
			read_graph(&f, &graph);
		} else if (strncmp(line, "@recipe ", 8) == 0) {
			char *recipe = strdup(line + 8);

			compare(t, &f, which, graph.p, recipe);
			free(recipe);
		} else {
			fail_msg("%s: %s", path, line);
		}
	}
	gzclose(f.gz);
	free(f.line.p);
	free(graph.p);
	free(which);
}

static void
run(const char *name, unsigned cases)
{
	struct tally t = {0};
	size_t n;
	char *known = test_read("fixtures/ops/differs.txt", &n);

	append(&t.known, "\n", 1);
	append(&t.known, known, n);
	free(known);
	run_file(&t, name);
	free(t.known.p);
	if (t.wrong)
		fail_msg("%u of %u cases are not as fixtures/ops/differs.txt says", t.wrong, t.cases);
	assert_int_equal(t.cases, cases);
}

static void
operators_equal_torch(void **state)
{
	(void)state;
	run("rows", 4111);
}

static void
further_operators_equal_torch(void **state)
{
	(void)state;
	run("further", 234);
}

static void
rare_operators_equal_torch(void **state)
{
	(void)state;
	run("rare", 521);
}

static void
other_operators_equal_torch(void **state)
{
	(void)state;
	run("others", 202);
}

static void
jobs_equal_torch(void **state)
{
	(void)state;
	run("jobs", 102);
}

static void
recipes_equal_torch(void **state)
{
	(void)state;
	run("recipes", 58);
}

static void
optimizers_equal_torch(void **state)
{
	(void)state;
	run("optimizers", 40);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(operators_equal_torch), cmocka_unit_test(further_operators_equal_torch), cmocka_unit_test(rare_operators_equal_torch), cmocka_unit_test(other_operators_equal_torch), cmocka_unit_test(jobs_equal_torch), cmocka_unit_test(recipes_equal_torch), cmocka_unit_test(optimizers_equal_torch)};

	return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
