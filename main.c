/*
 * The command line, over memcrest.h alone.
 *
 * Reports go to standard output (or -o FILE, which appears whole or not at all; -o - is standard output), everything else to standard error. Exit codes:
 * 0 done, 1 the answer is no, 2 wrong usage or unusable input, 3 the answer is only a lower bound.
 */
#include "cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- messages ---------------------------------------------------------------------------------------------- */

int
usage_error(const char *what, const char *arg)
{
	fprintf(stderr, "memcrest: error E100: %s%s%s; memcrest --help shows what there is\n", what, *arg ? " " : "", arg);
	return EXIT_BAD;
}

static const char *
severity(const char *code)
{
	return code[0] == 'E' ? "error" : code[0] == 'W' ? "warning" : "note";
}

void
print_diagnostics(const struct cli *c, size_t (*get)(const void *, mc_diagnostic *, size_t), const void *from)
{
	mc_diagnostic d[64];
	size_t n = get(from, d, 64);

	for (size_t i = 0; i < n && i < 64; i++) {
		if (c->quiet && d[i].code[0] != 'E')
			continue;
		fprintf(stderr, "%s%s%s %s: %s\n", d[i].where, *d[i].where ? ": " : "memcrest: ", severity(d[i].code), d[i].code, d[i].message);
	}
}

size_t
of_model(const void *m, mc_diagnostic *d, size_t cap)
{
	return mc_model_diagnostics(m, d, cap);
}

static size_t
of_sweep(const void *s, mc_diagnostic *d, size_t cap)
{
	return mc_sweep_diagnostics(s, d, cap);
}

size_t
of_report(const void *r, mc_diagnostic *d, size_t cap)
{
	return mc_report_diagnostics(r, d, cap);
}

/* Seconds since the last call, with --verbose. */
static void
say_time(struct cli *c, const char *what)
{
	struct timespec t;
	double now;

	if (!c->verbose)
		return;
	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
	if (what)
		fprintf(stderr, "memcrest: %s took %.3f s\n", what, now - c->clock);
	c->clock = now;
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

int
append_text(void *user, const void *p, size_t n)
{
	struct text *t = user;
	char *q = realloc(t->p, t->n + n + 1);

	if (!q)
		return 1;
	memcpy(q + t->n, p, n);
	t->p = q;
	t->n += n;
	return 0;
}

bool
read_whole(const char *path, uint64_t most, struct text *t)
{
	FILE *f = fopen(path, "rb");
	char piece[65536];
	size_t n = 0;

	while (f && t->n <= most && (n = fread(piece, 1, sizeof piece, f)) > 0)
		if (append_text(t, piece, n) != 0)
			break;
	if (f && n == 0 && !ferror(f)) {
		fclose(f);
		return true;
	}
	fprintf(stderr, "%s: error E001: cannot open the file: %s\n", path, f && !ferror(f) ? "it is too large" : strerror(errno));
	if (f)
		fclose(f);
	return false;
}

mc_status
load(struct cli *c, const char *path, mc_model **m)
{
	struct progress *p = progress_start(c, "reading the model");
	mc_status st;

	say_time(c, NULL);
	st = mc_load_path(path, &c->options, m);
	progress_end(p);
	say_time(c, "reading");
	print_diagnostics(c, of_model, *m);
	return st;
}

mc_status
analyse(struct cli *c, mc_status (*make)(const mc_model *, const mc_recipe *, const mc_options *, mc_report **), const mc_model *m, const mc_recipe *recipe, mc_report **r)
{
	struct progress *p = progress_start(c, "simulating two steps");
	mc_status st;

	say_time(c, NULL);
	st = make(m, recipe, &c->options, r);
	progress_end(p);
	say_time(c, "analysing");
	print_diagnostics(c, of_report, *r);
	return st;
}

/* ---- output --------------------------------------------------------------------------------------------------- */

int
write_file(void *user, const void *p, size_t n)
{
	return fwrite(p, 1, n, user) != n;
}

static void
dump(void *user, const char *text, size_t n)
{
	(void)user;
	fwrite(text, 1, n, stderr);
}

/* Only a plain file is replaced by renaming; /dev/null and pipes are written to. */
static bool
is_special(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

static mc_status
write_report(const void *r, const char *format, const mc_view *view, mc_write_fn *fn, void *user)
{
	return mc_write_view(r, format, view, fn, user);
}

static mc_status
write_sweep(const void *s, const char *format, const mc_view *view, mc_write_fn *fn, void *user)
{
	(void)view;
	return mc_sweep_write(s, format, fn, user);
}

static bool
write_to(const struct cli *c, struct result r, FILE *f)
{
	mc_status st = r.write(r.what, c->format, &c->view, write_file, f);

	if (st == MC_LIMIT || st == MC_NO_MEMORY)
		errno = st == MC_LIMIT ? EOVERFLOW : ENOMEM;
	return st == MC_OK && fflush(f) == 0;
}

/* A file takes its name when it is complete. */
static bool
write_named(const struct cli *c, struct result r)
{
	bool special = is_special(c->output), ok;
	size_t n = strlen(c->output) + sizeof ".part";
	char *part = malloc(n);
	FILE *f;

	if (!part)
		return false;
	snprintf(part, n, "%s%s", c->output, special ? "" : ".part");
	if (!special)
		unlink(part);                      /* what a run before left, or a link that somebody else put there */
	f = fopen(part, special ? "wb" : "wbx");
	ok = f && write_to(c, r, f);
	ok = f && fclose(f) == 0 && ok && (special || rename(part, c->output) == 0);
	if (f && !ok && !special)
		remove(part);
	free(part);
	return ok;
}

int
write_output(struct cli *c, struct result r)
{
	bool named = c->output && strcmp(c->output, "-") != 0, ok;

	if (!c->output && (strcmp(c->format, "text") == 0 || strcmp(c->format, "events") == 0))
		pager_open(c);
	say_time(c, NULL);
	ok = named ? write_named(c, r) : write_to(c, r, stdout);
	say_time(c, "writing");
	if (ok || (c->pager && errno == EPIPE))
		return EXIT_DONE;
	fprintf(stderr, "memcrest: writing %s failed: %s\n", named ? c->output : "the report", strerror(errno));
	return EXIT_BAD;
}

/* ---- commands ----------------------------------------------------------------------------------------------------- */

/*
 * A lower bound that is too much is still an answer; one that fits is none. The same holds for what may or may not fit, unless the low end is
 * what the user wants to go by.
 */
int
judge(const struct cli *c, mc_status st, mc_fit fit)
{
	if (c->command->verdict == NO_VERDICT)
		fit = MC_FITS;
	if ((c->command->verdict == MUST_JUDGE || c->fit) && fit == MC_NOT_ASKED)
		return usage_error("a --budget above 0, or a --device, is needed by", c->fit ? "--fit" : c->command->name);
	if (fit == MC_DOES_NOT_FIT)
		return EXIT_NO;
	if ((st == MC_INCOMPLETE || fit == MC_MAY_FIT) && !c->allow_incomplete)
		return EXIT_BOUND;
	return EXIT_DONE;
}

/* The page shows the same job in fp32 and in 16 bits beside the answer. */
static void
analyse_beside(struct cli *c, const mc_model *m)
{
	static const char *const precision[] = {"fp32", "bf16"};

	for (size_t i = 0, n = 0; i < 2; i++) {
		mc_recipe *recipe = mc_recipe_copy(c->recipe);
		mc_report *r = NULL;
		mc_status st = recipe ? mc_recipe_set(recipe, "precision", precision[i]) : MC_NO_MEMORY;

		if (st == MC_OK)
			st = mc_analyze(m, recipe, &c->options, &r);
		if (st == MC_OK || st == MC_INCOMPLETE)
			c->view.beside[n++] = r;
		else
			mc_report_free(r);
		mc_recipe_free(recipe);
	}
}

static void
free_beside(struct cli *c)
{
	for (size_t i = 0; i < 4; i++)
		mc_report_free((mc_report *)(uintptr_t)c->view.beside[i]);
}

int
report(struct cli *c, mc_status (*make)(const mc_model *, const mc_recipe *, const mc_options *, mc_report **))
{
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_status st;
	int code = EXIT_BAD;

	st = load(c, c->model, &m);
	if (st == MC_OK)
		st = analyse(c, make, m, c->recipe, &r);
	if (st == MC_OK || st == MC_INCOMPLETE)
		code = judge(c, st, mc_report_fit(r));
	if (code != EXIT_BAD && make == mc_analyze && strcmp(c->format, "html") == 0)
		analyse_beside(c, m);
	if (code != EXIT_BAD && write_output(c, (struct result){r, write_report}))
		code = EXIT_BAD;
	free_beside(c);
	mc_report_free(r);
	mc_model_free(m);
	return code;
}

static int
run_estimate(struct cli *c)
{
	return report(c, mc_analyze);
}

static int
run_inspect(struct cli *c)
{
	return report(c, mc_inspect);
}

static int
run_events(struct cli *c)
{
	c->format = "events";
	return report(c, mc_analyze);
}

/* ---- sweeps -------------------------------------------------------------------------------------------------------- */

/* NAME=VALUES */
static bool
add_column(mc_sweep *s, const char *text)
{
	size_t n = strcspn(text, "=");
	char name[256];

	snprintf(name, sizeof name, "%.*s", (int)n, text);
	return mc_sweep_vary(s, name, text[n] ? text + n + 1 : "") == MC_OK;
}

static mc_status
sweep(struct cli *c, mc_sweep *s)
{
	struct progress *p;
	mc_status st;

	for (unsigned i = 0; i < c->nvary; i++)
		if (!add_column(s, c->vary[i]))
			return MC_BAD_INPUT;
	if (c->fit && mc_sweep_fit(s, c->fitted) != MC_OK)
		return MC_BAD_INPUT;
	p = progress_start(c, "configurations");
	st = mc_sweep_run(s, &c->options, c->threads, progress_count, p);
	progress_end(p);
	return st;
}

/* What `advise` and `sweep` do between reading the model and judging the table. */
static mc_status
make_sweep(struct cli *c, const mc_model *m, mc_sweep **s)
{
	mc_status st = mc_sweep_new(m, c->recipe, s);

	return st == MC_OK ? sweep(c, *s) : st;
}

static mc_status
make_advice(struct cli *c, const mc_model *m, mc_sweep **s)
{
	struct progress *p = progress_start(c, "changes");
	mc_status st = mc_advise(m, c->recipe, &c->options, c->threads, progress_count, p, s);

	progress_end(p);
	return st;
}

static int
run_table(struct cli *c, mc_status (*make)(struct cli *, const mc_model *, mc_sweep **))
{
	mc_model *m = NULL;
	mc_sweep *s = NULL;
	mc_status st = load(c, c->model, &m);
	int code = EXIT_BAD;

	say_time(c, NULL);
	if (st == MC_OK)
		st = make(c, m, &s);
	say_time(c, "analysing");
	print_diagnostics(c, of_sweep, s);
	if (st == MC_OK || st == MC_INCOMPLETE)
		code = judge(c, st, mc_sweep_best(s));
	if (code != EXIT_BAD && write_output(c, (struct result){s, write_sweep}))
		code = EXIT_BAD;
	mc_sweep_free(s);
	mc_model_free(m);
	return code;
}

static int
run_sweep(struct cli *c)
{
	return run_table(c, make_sweep);
}

static int
run_advise(struct cli *c)
{
	return run_table(c, make_advice);
}

static int
is_events(const char *format)
{
	return strcmp(format, "events") == 0;
}

static const struct command commands[] = {
	{"estimate", "MODEL", "predict the peak memory of one training job", run_estimate, mc_has_format, NO_VERDICT, 0, NULL},
	{"check", "MODEL", "the same against a --budget or a --device: exit code 0 fits, 1 does not", run_estimate, mc_has_format, MUST_JUDGE, 0, NULL},
	{"sweep", "MODEL", "a table over --vary NAME=VALUES..; with --fit the largest that fits", run_sweep, mc_sweep_has_format, MAY_JUDGE, 0, NULL},
	{"advise", "MODEL", "what to change so that it fits a --budget or a --device, best first", run_advise, mc_sweep_has_format, MUST_JUDGE, 0, NULL},
	{"inspect", "MODEL", "say what the file holds, without training it", run_inspect, mc_has_format, NO_VERDICT, 0, NULL},
	{"annotate", "MODEL", "the ONNX model again with the analysis in its metadata, to -o OUT.onnx", run_annotate, mc_has_format, NO_VERDICT, 0, NULL},
	{"diff", "A B", "what grew between two reports (JSON), two models, or a model and two recipes: exit code 0 if nothing differs", run_diff, mc_diff_has_format, NO_VERDICT, 2, "diff takes two reports, two models, or a model and two recipes; there is none"},
	{"compare", "MODEL", "the prediction beside a --measured snapshot of PyTorch's allocator", run_compare, mc_diff_has_format, NO_VERDICT, 0, "compare takes a model and --measured SNAPSHOT.pickle; there is no model"},
	{"events", "MODEL", "list every allocation and release of the two simulated steps", run_events, is_events, NO_VERDICT, 0, NULL},
};
#define NCOMMAND (sizeof commands / sizeof commands[0])

/* ---- the command line ------------------------------------------------------------------------------------------------ */

static int
run(struct cli *c, const struct command *cmd, int argc, char **argv)
{
	c->command = cmd;
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return print_help(c, commands, NCOMMAND);
		if (argv[i][0] == '-' && argv[i][1]) {
			int code = read_option(c, argc, argv, &i);

			if (code)
				return code;
		} else if (c->model && c->nother < cmd->most_others) {
			c->others[c->nother++] = argv[i];
		} else if (c->model) {
			return usage_error(cmd->most_others ? "three files at most, not also" : "one model at a time, not also", argv[i]);
		} else {
			c->model = argv[i];
		}
	}
	if (!c->model)
		return usage_error(cmd->lacks ? cmd->lacks : "which model? A file name is missing after", cmd->lacks ? "" : cmd->name);
	look_at_terminal(c);
	return cmd->run(c);
}

int
main(int argc, char **argv)
{
	struct cli c = {.format = "text", .tolerance = 0.05};
	int code = -1;

	if (argc < 2)
		return usage_error("a command is missing", "");
	mc_options_init(&c.options);
	mc_view_init(&c.view);
	c.options.dump = dump;
	c.recipe = mc_recipe_new();
	if (!c.recipe)
		return usage_error("out of memory", "");
	for (size_t i = 0; i < NCOMMAND; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			code = run(&c, &commands[i], argc, argv);
	if (code < 0)
		code = global_option(&c, commands, NCOMMAND, argv[1]);
	pager_close(&c);
	mc_recipe_free(c.recipe);
	return code;
}
