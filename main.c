/*
 * The command line, over memcrest.h alone.
 *
 * Reports go to standard output (or -o FILE, which appears whole or not at all), everything else to standard error. Exit codes:
 * 0 done, 1 the answer is no, 2 wrong usage or unusable input, 3 the answer is only a lower bound.
 */
#include "cli.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- messages ---------------------------------------------------------------------------------------------- */

int
usage_error(const char *what, const char *arg)
{
	fprintf(stderr, "memcrest: %s%s%s; memcrest --help shows what there is\n", what, *arg ? " " : "", arg);
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
of_recipe(const void *r, mc_diagnostic *d, size_t cap)
{
	return mc_recipe_diagnostics(r, d, cap);
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

/* Width and colours are those of the terminal that the report goes to; NO_COLOR is obeyed. */
static void
look_at_terminal(struct cli *c)
{
	const char *columns = getenv("COLUMNS"), *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
	struct winsize w;

	if (c->output || !isatty(STDOUT_FILENO))
		return;
	c->view.colour = !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
	if (columns && atoi(columns) > 0)
		c->view.width = (unsigned)atoi(columns);
	else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
		c->view.width = w.ws_col;
}

/* ---- output --------------------------------------------------------------------------------------------------- */

static int
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
	f = fopen(part, "wb");
	ok = f && write_to(c, r, f);
	ok = f && fclose(f) == 0 && ok && (special || rename(part, c->output) == 0);
	if (f && !ok && !special)
		remove(part);
	free(part);
	return ok;
}

int
write_output(const struct cli *c, struct result r)
{
	if (c->output ? write_named(c, r) : write_to(c, r, stdout))
		return EXIT_DONE;
	fprintf(stderr, "memcrest: writing %s failed: %s\n", c->output ? c->output : "the report", strerror(errno));
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
		return usage_error("a --budget or a --device is needed by", c->fit ? "--fit" : c->command->name);
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

	say_time(c, NULL);
	st = mc_load_path(c->model, &c->options, &m);
	say_time(c, "reading");
	print_diagnostics(c, of_model, m);
	if (st == MC_OK)
		st = make(m, c->recipe, &c->options, &r);
	say_time(c, "analysing");
	print_diagnostics(c, of_report, r);
	if (st == MC_OK || st == MC_INCOMPLETE)
		code = judge(c, st, mc_report_fit(r));
	if (code != EXIT_BAD && make == mc_analyze && strcmp(c->format, "html") == 0)
		analyse_beside(c, m);
	if (code != EXIT_BAD && write_output(c, (struct result){r, write_report}))
		code = EXIT_BAD;
	say_time(c, "writing");
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

static int
show_progress(void *user, size_t done, size_t total)
{
	(void)user;
	fprintf(stderr, "\r%zu of %zu", done, total);
	if (done == total)
		fprintf(stderr, "\r\033[K");
	return fflush(stderr) != 0;
}

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
	bool shows = isatty(STDERR_FILENO) && !c->quiet;

	for (unsigned i = 0; i < c->nvary; i++)
		if (!add_column(s, c->vary[i]))
			return MC_BAD_INPUT;
	if (c->fit && mc_sweep_fit(s, c->fitted) != MC_OK)
		return MC_BAD_INPUT;
	return mc_sweep_run(s, &c->options, c->threads, shows ? show_progress : NULL, NULL);
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
	bool shows = isatty(STDERR_FILENO) && !c->quiet;

	return mc_advise(m, c->recipe, &c->options, c->threads, shows ? show_progress : NULL, NULL, s);
}

static int
run_table(struct cli *c, mc_status (*make)(struct cli *, const mc_model *, mc_sweep **))
{
	mc_model *m = NULL;
	mc_sweep *s = NULL;
	mc_status st = mc_load_path(c->model, &c->options, &m);
	int code = EXIT_BAD;

	print_diagnostics(c, of_model, m);
	if (st == MC_OK)
		st = make(c, m, &s);
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

static const struct command commands[] = {
	{"estimate", "MODEL", "predict the peak memory of one training job", run_estimate, mc_has_format, NO_VERDICT, 0},
	{"check", "MODEL", "the same against a --budget or a --device: exit code 0 fits, 1 does not", run_estimate, mc_has_format, MUST_JUDGE, 0},
	{"sweep", "MODEL", "a table over --vary NAME=VALUES..; with --fit the largest that fits", run_sweep, mc_sweep_has_format, MAY_JUDGE, 0},
	{"advise", "MODEL", "what to change so that it fits a --budget or a --device, best first", run_advise, mc_sweep_has_format, MUST_JUDGE, 0},
	{"inspect", "MODEL", "say what the file holds, without training it", run_inspect, mc_has_format, NO_VERDICT, 0},
	{"annotate", "MODEL", "the ONNX model again with the analysis in its metadata, to -o OUT.onnx", run_annotate, mc_has_format, NO_VERDICT, 0},
	{"diff", "A B", "what grew between two reports (JSON), two models, or a model and two recipes", run_diff, mc_diff_has_format, NO_VERDICT, 2},
	{"compare", "MODEL", "the prediction beside a --measured snapshot of PyTorch's allocator", run_compare, mc_diff_has_format, NO_VERDICT, 0},
	{"events", "MODEL", "list every allocation and release of the two simulated steps", run_events, mc_has_format, NO_VERDICT, 0},
};

/* ---- options ---------------------------------------------------------------------------------------------------------- */

/* The value of "--name=value" or "--name value"; NULL = there is none. */
static const char *
take_value(int argc, char **argv, int *i, char *eq)
{
	if (eq)
		return eq + 1;
	return *i + 1 < argc ? argv[++*i] : NULL;
}

static int
check_recipe(const struct cli *c, mc_status st)
{
	if (st == MC_OK)
		return EXIT_DONE;
	print_diagnostics(c, of_recipe, c->recipe);
	return EXIT_BAD;
}

int
read_recipe(struct cli *c, const char *kind, const char *path)
{
	FILE *f = fopen(path, "rb");
	char *text = NULL;
	size_t n = 0, got;
	int code;

	if (!f) {
		fprintf(stderr, "%s: error E001: cannot open the recipe: %s\n", path, strerror(errno));
		return EXIT_BAD;
	}
	do {
		char *p = realloc(text, n + 65536);

		if (!p)
			break;
		text = p;
		got = fread(text + n, 1, 65536, f);
		n += got;
	} while (got == 65536 && n < 64u << 20);
	fclose(f);
	code = text ? check_recipe(c, *kind ? mc_recipe_file(c->recipe, kind, text, n, path) : mc_recipe_json(c->recipe, text, n, path)) : EXIT_BAD;
	free(text);
	return code;
}

/* batch=8,seq=2048 */
static int
read_dims(struct cli *c, const char *text)
{
	while (*text) {
		const char *eq = strchr(text, '='), *end = text + strcspn(text, ",");
		char name[256], *stop;
		long long n;

		if (!eq || eq > end || eq == text || (size_t)(eq - text) >= sizeof name)
			return usage_error("--dim takes NAME=N[,NAME=N..], not", text);
		memcpy(name, text, (size_t)(eq - text));
		name[eq - text] = 0;
		errno = 0;
		n = strtoll(eq + 1, &stop, 10);
		if (stop != end || stop == eq + 1 || errno)
			return usage_error("--dim takes NAME=N[,NAME=N..], not", text);
		if (check_recipe(c, mc_recipe_set_dim(c->recipe, name, n)))
			return EXIT_BAD;
		text = *end ? end + 1 : end;
	}
	return EXIT_DONE;
}

/* pixel_values=8x3x336x336, also with : and with commas or brackets between the numbers */
static int
read_shape(struct cli *c, const char *text)
{
	size_t len = strcspn(text, "=:");
	const char *p = text + len;
	char name[512];

	if (!*p)
		return usage_error("--shape takes INPUT=8x3x336x336, not", text);
	for (unsigned axis = 0; *p; axis++) {
		char *stop;
		long long n;

		p += strspn(p, "=:[x, ");
		errno = 0;
		n = strtoll(p, &stop, 10);
		if (stop == p || errno || snprintf(name, sizeof name, "%.*s[%u]", (int)len, text, axis) >= (int)sizeof name)
			return usage_error("--shape takes INPUT=8x3x336x336, not", text);
		if (check_recipe(c, mc_recipe_set_dim(c->recipe, name, n)))
			return EXIT_BAD;
		p = stop + strspn(stop, "] ");
	}
	return EXIT_DONE;
}

static int
read_limit(const char *text, uint64_t *out)
{
	char *stop;
	unsigned long long n = strtoull(text, &stop, 10);
	static const char *const unit[] = {"", "KiB", "MiB", "GiB", "TiB"};

	for (unsigned i = 0; stop != text && i < 5; i++)
		if (strcmp(stop, unit[i]) == 0) {
			*out = n << (10 * i);
			return EXIT_DONE;
		}
	return usage_error("a limit is a number of bytes such as 512MiB, not", text);
}

static int
set_limit(struct cli *c, const char *what, const char *value)
{
	const struct {
		const char *name;
		uint64_t *limit;
	} table[] = {
		{"memory", &c->options.max_memory}, {"file", &c->options.max_file}, {"member", &c->options.max_member},
		{"nodes", &c->options.max_nodes}, {"values", &c->options.max_values}, {"depth", &c->options.max_depth},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (strcmp(table[i].name, what) == 0)
			return read_limit(value, table[i].limit);
	return usage_error("limits are memory, file, member, nodes, values, depth, not", what);
}

/* context=510MiB */
static int
read_calibration(struct cli *c, const char *text)
{
	size_t n = strcspn(text, "=");
	char key[128];

	if (!text[n] || snprintf(key, sizeof key, "calibrate.%.*s", (int)n, text) >= (int)sizeof key)
		return usage_error("--calibrate takes context=510MiB or workspace=32MiB, not", text);
	return check_recipe(c, mc_recipe_set(c->recipe, key, text + n + 1));
}

/* "5%", "0.05" */
static int
read_tolerance(struct cli *c, const char *text)
{
	char *stop;
	double n = strtod(text, &stop);

	if (*stop == '%') {
		n /= 100;
		stop++;
	}
	if (stop == text || *stop || !(n >= 0 && n <= 100))
		return usage_error("--tolerance takes a share such as 5% or 0.05, not", text);
	c->tolerance = n;
	return EXIT_DONE;
}

static int
read_vary(struct cli *c, const char *text)
{
	if (c->nvary == MOST_COLUMNS)
		return usage_error("too many columns, at", text);
	c->vary[c->nvary++] = text;
	return EXIT_DONE;
}

static int
read_count(const char *option, const char *text, unsigned most, unsigned *out)
{
	char *stop;
	unsigned long n = strtoul(text, &stop, 10);

	if (stop == text || *stop || *text == '-' || n > most) {
		fprintf(stderr, "memcrest: --%s takes a number to %u, not %s\n", option, most, text);
		return EXIT_BAD;
	}
	*out = (unsigned)n;
	return EXIT_DONE;
}

static int
set_option(struct cli *c, const char *name, const char *value)
{
	if (strcmp(name, "recipe") == 0)
		return read_recipe(c, "", value);
	if (mc_recipe_has_file(name))
		return read_recipe(c, name, value);
	if (strcmp(name, "format") == 0 && !c->command->has_format(value))
		return usage_error("unknown format, memcrest --list-formats lists them:", value);
	if (strcmp(name, "format") == 0)
		c->format = value;
	else if (strcmp(name, "output") == 0)
		c->output = value;
	else if (strcmp(name, "dim") == 0 || strcmp(name, "dims") == 0)
		return read_dims(c, value);
	else if (strcmp(name, "shape") == 0)
		return read_shape(c, value);
	else if (strcmp(name, "dump-ir") == 0)
		c->options.dump_after = value;
	else if (strcmp(name, "calibrate") == 0)
		return read_calibration(c, value);
	else if (strcmp(name, "measured") == 0)
		c->measured = value;
	else if (strcmp(name, "tolerance") == 0)
		return read_tolerance(c, value);
	else if (strcmp(name, "vary") == 0)
		return read_vary(c, value);
	else if (strcmp(name, "threads") == 0)
		return read_count(name, value, 256, &c->threads);
	else if (strcmp(name, "depth") == 0)
		return read_count(name, value, 1000, &c->view.depth);
	else if (strcmp(name, "program") == 0)
		c->options.program = value;
	else if (strncmp(name, "limit-", 6) == 0)
		return set_limit(c, name + 6, value);
	else
		return check_recipe(c, mc_recipe_set(c->recipe, name, value));
	return EXIT_DONE;
}

static int
read_option(struct cli *c, int argc, char **argv, int *i)
{
	static const char *const shorts[][2] = {{"-r", "recipe"}, {"-f", "format"}, {"-o", "output"}};
	char *arg = argv[*i], *eq = strchr(arg, '='), name[128];
	const char *value;
	size_t len = eq ? (size_t)(eq - arg) : strlen(arg);

	if (strcmp(arg, "-v") == 0 || strcmp(arg, "--verbose") == 0) {
		c->verbose = true;
		return EXIT_DONE;
	}
	if (strcmp(arg, "--allow-incomplete") == 0 || strcmp(arg, "-q") == 0 || strcmp(arg, "--quiet") == 0) {
		*(arg[2] == 'a' ? &c->allow_incomplete : &c->quiet) = true;
		return EXIT_DONE;
	}
	if (strncmp(arg, "--fit", 5) == 0 && (!arg[5] || eq == arg + 5)) {
		c->fit = true;
		c->fitted = eq && eq[1] ? eq + 1 : NULL;
		return EXIT_DONE;
	}
	snprintf(name, sizeof name, "%.*s", (int)(len > 2 ? len - 2 : 0), arg + (len > 2 ? 2 : 0));
	for (size_t k = 0; k < 3; k++)
		if (strcmp(arg, shorts[k][0]) == 0)
			snprintf(name, sizeof name, "%s", shorts[k][1]);
	value = take_value(argc, argv, i, arg[1] == '-' ? eq : NULL);
	if (!value)
		return usage_error("a value is missing after", arg);
	return set_option(c, name, value);
}

/* ---- help ------------------------------------------------------------------------------------------------------------------ */

static int
list(const char *what)
{
	return mc_list(what, write_file, stdout) == MC_OK ? EXIT_DONE : EXIT_BAD;
}

static int
help(void)
{
	printf("memcrest %s: peak GPU memory of training an exported model graph, before anything runs\n\n", mc_version());
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		printf("  memcrest %-9s %-6s  %s\n", commands[i].name, commands[i].arguments, commands[i].help);
	printf("\nMODEL is a file, or - for standard input. Options:\n"
	    "  -r, --recipe FILE      how it is trained, as JSON; may repeat, later wins\n"
	    "  --deepspeed, --peft, --training-args, --accelerate FILE      that framework's own file; what it sets and ignores is listed\n"
	    "  --KEY VALUE            one key of the recipe (list below), e.g. --precision bf16 --freeze model.vision_tower\n"
	    "  --dim NAME=N[,..]      a size: a symbol of the file, batch, seq, or INPUT[AXIS]\n"
	    "  --shape INPUT=8x3x336x336\n"
	    "  --program NAME         which program of a .pt2 archive that holds several\n"
	    "  -f, --format NAME      text (default), json, ... (memcrest --list-formats)\n"
	    "  --depth N              dot: modules of that depth are one node each\n"
	    "  -o, --output FILE      instead of standard output\n"
	    "  --allow-incomplete     exit 0 even if the answer is only a lower bound, or may or may not fit\n"
	    "  --budget 80GiB         check, sweep, advise: what PyTorch's allocator may take; with --device or --calibrate context, the whole process\n"
	    "  --device NAME          the card, whose memory is the budget (--list-devices)\n"
	    "  --calibrate context=510MiB   what a process of yours takes besides the allocator, measured; also workspace=N\n"
	    "  --measured FILE        compare: a pickle of torch.cuda.memory._snapshot(); --tolerance 5%% is how far the peak may be off\n"
	    "  --vary NAME=A,B,C..D   sweep: a column of a key or size; 4..64 doubles, 4..64+4 and 1,2,3..9 go in equal steps; may repeat\n"
	    "  --fit[=NAME]           sweep: instead of all values of that column, the largest that fits\n"
	    "  --threads N            sweep, advise: default one a processor\n"
	    "  -q, --quiet            no warnings\n"
	    "  -v, --verbose          say on standard error how long each part takes\n"
	    "  --dump-ir PASS         the graph after a pass, on standard error (load, or one of --list-passes)\n"
	    "  --limit-memory N, --limit-file N, --limit-member N, --limit-nodes N, --limit-values N, --limit-depth N\n"
	    "  --help, --version, --list-ops, --list-passes, --list-formats, --list-devices, --list-diagnostics\n\n"
	    "Exit codes: 0 done, 1 the answer is no, 2 wrong usage or input, 3 only a lower bound.\n\nRecipe keys: name, values, default, meaning\n");
	return list("keys");
}

static int
global_option(const char *arg)
{
	if (strcmp(arg, "--version") == 0)
		return printf("memcrest %s\n", mc_version()) < 0 ? EXIT_BAD : EXIT_DONE;
	if (strncmp(arg, "--list-", 7) == 0 && list(arg + 7) == EXIT_DONE)
		return EXIT_DONE;
	if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0 || strcmp(arg, "help") == 0)
		return help();
	return usage_error("unknown command", arg);
}

static int
run(struct cli *c, const struct command *cmd, int argc, char **argv)
{
	c->command = cmd;
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return help();
		if (argv[i][0] == '-' && argv[i][1]) {
			int code = read_option(c, argc, argv, &i);

			if (code)
				return code;
		} else if (c->model && c->nother < cmd->most_others) {
			c->others[c->nother++] = argv[i];
		} else if (c->model) {
			return usage_error("one model at a time, not also", argv[i]);
		} else {
			c->model = argv[i];
		}
	}
	if (!c->model)
		return usage_error("which model? A file name is missing after", cmd->name);
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
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			code = run(&c, &commands[i], argc, argv);
	if (code < 0)
		code = global_option(argv[1]);
	mc_recipe_free(c.recipe);
	return code;
}
