/* Options of the command line, most of which are keys of the recipe, and the help that lists them. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---------------------------------------------------------------------------------------------------------- */

static size_t
of_recipe(const void *r, mc_diagnostic *d, size_t cap)
{
	return mc_recipe_diagnostics(r, d, cap);
}

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
	struct text t = {0};
	int code = EXIT_BAD;

	if (read_whole(path, 64u << 20, &t)) {
		const char *text = t.p ? t.p : "";

		code = check_recipe(c, *kind ? mc_recipe_file(c->recipe, kind, text, t.n, path) : mc_recipe_json(c->recipe, text, t.n, path));
	}
	free(t.p);
	return code;
}

/* Digits, with a sign only so that the recipe can refuse what is negative. False also for what no 64 bits hold. */
static bool
read_size(const char **p, int64_t *out)
{
	const char *digits = *p + (**p == '-');
	char *stop;

	if (*digits < '0' || *digits > '9')
		return false;
	errno = 0;
	*out = strtoll(*p, &stop, 10);
	*p = stop;
	return errno == 0;
}

/* batch=8,seq=2048 */
static int
read_dims(struct cli *c, const char *text)
{
	if (*text == '{')
		return check_recipe(c, mc_recipe_set(c->recipe, "dims", text));
	for (const char *at = text; *at;) {
		const char *eq = at + strcspn(at, "=,"), *p = eq + 1;
		size_t n = (size_t)(eq - at);
		char name[256];
		int64_t size;

		if (*eq != '=' || !n || n >= sizeof name || !read_size(&p, &size) || (*p && *p != ',') || (*p && !p[1]))
			return usage_error("--dim takes NAME=N[,NAME=N..], not", text);
		for (const char *k = text; k < at; k += strcspn(k, ",") + 1)
			if (strncmp(k, at, n + 1) == 0)
				return usage_error("--dim gives one size twice:", text);
		memcpy(name, at, n);
		name[n] = 0;
		if (check_recipe(c, mc_recipe_set_dim(c->recipe, name, size)))
			return EXIT_BAD;
		at = *p ? p + 1 : p;
	}
	return *text ? EXIT_DONE : usage_error("--dim takes NAME=N[,NAME=N..]", "");
}

/* What stands between the numbers of a shape, from the one before: x, or a comma and blanks. */
static const char *
skip_separator(const char *p)
{
	if (*p == 'x')
		return p + 1;
	return *p == ',' ? p + 1 + strspn(p + 1, " ") : NULL;
}

/* pixel_values=8x3x336x336, also with : and with commas or brackets: pixel_values:[8, 3, 336, 336] */
static int
read_shape(struct cli *c, const char *text)
{
	static const char usage[] = "--shape takes INPUT=8x3x336x336, not";
	size_t len = strcspn(text, "=:");
	const char *p = text + len;
	bool bracket;
	char name[512];

	if (!*p || !len)
		return usage_error(usage, text);
	bracket = *++p == '[';
	p += bracket;
	for (unsigned axis = 0; *p; axis++) {
		int64_t size;

		if (!read_size(&p, &size) || snprintf(name, sizeof name, "%.*s[%u]", (int)len, text, axis) >= (int)sizeof name)
			return usage_error(usage, text);
		if (check_recipe(c, mc_recipe_set_dim(c->recipe, name, size)))
			return EXIT_BAD;
		if (bracket ? strcmp(p, "]") == 0 : !*p)
			return EXIT_DONE;
		p = skip_separator(p);
		if (!p)
			break;
	}
	return usage_error(usage, text);
}

static int
read_limit(struct cli *c, const char *name, const char *text)
{
	const struct {
		const char *name;
		uint64_t *limit;
	} table[] = {
		{"limit-memory", &c->options.max_memory}, {"limit-file", &c->options.max_file}, {"limit-member", &c->options.max_member},
		{"limit-nodes", &c->options.max_nodes}, {"limit-values", &c->options.max_values}, {"limit-depth", &c->options.max_depth},
	};
	static const char *const unit[] = {"", "KiB", "MiB", "GiB", "TiB"};
	const char *p = text;
	int64_t n = 0;
	size_t i = 0, u = 0;

	while (i < sizeof table / sizeof table[0] && strcmp(table[i].name, name) != 0)
		i++;
	if (i == sizeof table / sizeof table[0])
		return usage_error("limits are memory, file, member, nodes, values, depth, not", name);
	if (!read_size(&p, &n) || n <= 0)
		return usage_error("a limit is a number above 0, such as 512MiB, not", text);
	while (u < 5 && strcmp(p, unit[u]) != 0)
		u++;
	if (u == 5 || n > INT64_MAX >> (10 * u))
		return usage_error("a limit is a number above 0, such as 512MiB, not", text);
	*table[i].limit = (uint64_t)n << (10 * u);
	return EXIT_DONE;
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

/* ---- the table ------------------------------------------------------------------------------------------------------------- */

static int
read_own_recipe(struct cli *c, const char *path)
{
	return read_recipe(c, "", path);
}

static int
read_format(struct cli *c, const char *text)
{
	if (!c->command->has_format(text))
		return usage_error("not a format of this command (memcrest --list-formats):", text);
	c->format = text;
	return EXIT_DONE;
}

static int
read_output(struct cli *c, const char *text)
{
	c->output = text;
	return EXIT_DONE;
}

static int
read_measured(struct cli *c, const char *text)
{
	c->measured = text;
	return EXIT_DONE;
}

static int
read_program(struct cli *c, const char *text)
{
	c->options.program = text;
	return EXIT_DONE;
}

static int
read_dump(struct cli *c, const char *text)
{
	c->options.dump_after = text;
	return EXIT_DONE;
}

static int
read_threads(struct cli *c, const char *text)
{
	return read_count("threads", text, 256, &c->threads);
}

static int
read_depth(struct cli *c, const char *text)
{
	return read_count("depth", text, 1000, &c->view.depth);
}

static int
allow_incomplete(struct cli *c, const char *text)
{
	(void)text;
	c->allow_incomplete = true;
	return EXIT_DONE;
}

static int
be_quiet(struct cli *c, const char *text)
{
	(void)text;
	c->quiet = true;
	return EXIT_DONE;
}

static int
be_verbose(struct cli *c, const char *text)
{
	(void)text;
	c->verbose = true;
	return EXIT_DONE;
}

static int
without_pager(struct cli *c, const char *text)
{
	(void)text;
	c->no_pager = true;
	return EXIT_DONE;
}

static int
as_json(struct cli *c, const char *text)
{
	(void)text;
	return read_format(c, "json");
}

static int
read_fit(struct cli *c, const char *text)
{
	c->fit = true;
	c->fitted = text && *text ? text : NULL;
	return EXIT_DONE;
}

enum value { VALUE, NO_VALUE, MAY_HAVE_VALUE };    /* the last only behind "=" */

static const struct option {
	const char *name;
	char letter;
	enum value value;
	const char *commands;      /* that have it; NULL: all */
	bool about_model;          /* of no use to two reports */
	int (*read)(struct cli *, const char *value);
} options[] = {
	{"recipe", 'r', VALUE, NULL, true, read_own_recipe},
	{"format", 'f', VALUE, NULL, false, read_format},
	{"json", 0, NO_VALUE, "estimate, check, sweep, advise, inspect, diff, compare", false, as_json},
	{"output", 'o', VALUE, NULL, false, read_output},
	{"dim", 0, VALUE, NULL, true, read_dims},
	{"dims", 0, VALUE, NULL, true, read_dims},
	{"shape", 0, VALUE, NULL, true, read_shape},
	{"program", 0, VALUE, NULL, true, read_program},
	{"calibrate", 0, VALUE, NULL, true, read_calibration},
	{"dump-ir", 0, VALUE, NULL, true, read_dump},
	{"depth", 0, VALUE, "estimate, check, inspect", false, read_depth},
	{"measured", 0, VALUE, "compare", false, read_measured},
	{"tolerance", 0, VALUE, "compare", false, read_tolerance},
	{"vary", 0, VALUE, "sweep", false, read_vary},
	{"fit", 0, MAY_HAVE_VALUE, "sweep", false, read_fit},
	{"threads", 0, VALUE, "sweep, advise", false, read_threads},
	{"allow-incomplete", 0, NO_VALUE, NULL, false, allow_incomplete},
	{"no-pager", 0, NO_VALUE, NULL, false, without_pager},
	{"quiet", 'q', NO_VALUE, NULL, false, be_quiet},
	{"verbose", 'v', NO_VALUE, NULL, false, be_verbose},
};
#define NOPTION (sizeof options / sizeof options[0])

/* Is arg the option -x, or --name, also with _ for - and with a value behind =? */
static bool
is_option(const char *arg, const struct option *o)
{
	size_t i = 0;

	if (arg[1] != '-')
		return o->letter && arg[1] == o->letter && !arg[2];
	for (arg += 2; o->name[i] && (arg[i] == o->name[i] || (arg[i] == '_' && o->name[i] == '-')); i++)
		;
	return !o->name[i] && (!arg[i] || arg[i] == '=');
}

static bool
belongs(const struct option *o, const struct command *c)
{
	return !o->commands || strstr(o->commands, c->name);
}

static int
set_option(struct cli *c, const struct option *o, const char *value)
{
	char what[256];

	if (!belongs(o, c->command)) {
		snprintf(what, sizeof what, "--%s belongs to %s, not to", o->name, o->commands);
		return usage_error(what, c->command->name);
	}
	if (o->about_model)
		c->about_model = true;
	return o->read(c, value);
}

/* --KEY, --FRAMEWORK and --limit-WHAT */
static int
set_named(struct cli *c, const char *name, const char *value)
{
	if (strncmp(name, "limit-", 6) == 0)
		return read_limit(c, name, value);
	c->about_model = true;
	if (mc_recipe_has_file(name))
		return read_recipe(c, name, value);
	return check_recipe(c, mc_recipe_set(c->recipe, name, value));
}

int
read_option(struct cli *c, int argc, char **argv, int *i)
{
	char *arg = argv[*i], *eq = arg[1] == '-' ? strchr(arg, '=') : NULL, name[128];
	const struct option *o = options;
	const char *value;

	while (o < options + NOPTION && !is_option(arg, o))
		o++;
	if (o < options + NOPTION && o->value != VALUE)
		return eq && o->value == NO_VALUE ? usage_error("no value belongs behind", arg) : set_option(c, o, eq ? eq + 1 : NULL);
	if (o == options + NOPTION && arg[1] != '-')
		return usage_error("unknown option", arg);
	value = take_value(argc, argv, i, eq);
	if (o < options + NOPTION && value)
		return set_option(c, o, value);
	snprintf(name, sizeof name, "%.*s", (int)(eq ? (size_t)(eq - arg - 2) : strlen(arg + 2)), arg + 2);
	if (!value)
		return usage_error("a value is missing after", arg);
	return set_named(c, name, value);
}

/* ---- help ------------------------------------------------------------------------------------------------------------------ */

/* What was printed last must have got through. */
static int
printed(struct cli *c, mc_status st)
{
	if (st == MC_OK && fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_DONE;
	if (c->pager && errno == EPIPE)
		return EXIT_DONE;
	fprintf(stderr, "memcrest: writing to standard output failed: %s\n", strerror(errno));
	return EXIT_BAD;
}

static bool
is_list(const char *what)
{
	static const char *const lists[] = {"ops", "passes", "formats", "devices", "diagnostics", "keys", "schema"};

	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		if (strcmp(what, lists[i]) == 0)
			return true;
	return false;
}

int
print_help(struct cli *c, const struct command *commands, size_t n)
{
	pager_open(c);
	printf("memcrest %s: peak GPU memory of training an exported model graph, before anything runs\n\n", mc_version());
	for (size_t i = 0; i < n; i++)
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
	    "  -o, --output FILE      instead of standard output, which - is\n"
	    "  --allow-incomplete     exit 0 even if the answer is only a lower bound, or may or may not fit\n"
	    "  --budget 80GiB         check, sweep, advise: what PyTorch's allocator may take; with --device or --calibrate context, the whole process\n"
	    "  --device NAME          the card, whose memory is the budget (--list-devices)\n"
	    "  --calibrate context=510MiB   what a process of yours takes besides the allocator, measured; also workspace=N\n"
	    "  --measured FILE        compare: a pickle of torch.cuda.memory._snapshot()\n"
	    "  --tolerance 5%%         compare: how far the peak may be off\n"
	    "  --vary NAME=A,B,C..D   sweep: a column of a key or size; 4..64 doubles, 4..64+4 and 1,2,3..9 go in equal steps; may repeat\n"
	    "  --fit[=NAME]           sweep: instead of all values of that column, the largest that fits\n"
	    "  --threads N            sweep, advise: default one a processor\n"
	    "  --json                 the same as -f json\n"
	    "  --no-pager             do not show what is longer than the terminal with MEMCREST_PAGER, PAGER or less\n"
	    "  -q, --quiet            no warnings, no progress\n"
	    "  -v, --verbose          say on standard error how long each part takes\n"
	    "  --dump-ir PASS         the graph after a pass, on standard error (load, or one of --list-passes)\n"
	    "  --limit-memory N, --limit-file N, --limit-member N, --limit-nodes N, --limit-values N, --limit-depth N\n"
	    "  --help, --version, --list-ops, --list-passes, --list-formats, --list-devices, --list-diagnostics\n\n"
	    "Exit codes: 0 done, 1 the answer is no, 2 wrong usage or input, 3 only a lower bound.\n\nRecipe keys: name, values, default, meaning\n");
	return printed(c, mc_list("keys", write_file, stdout));
}

int
global_option(struct cli *c, const struct command *commands, size_t n, const char *arg)
{
	if (strcmp(arg, "--version") == 0)
		return printed(c, printf("memcrest %s\n", mc_version()) < 0 ? MC_BAD_INPUT : MC_OK);
	if (strncmp(arg, "--list-", 7) == 0 && is_list(arg + 7)) {
		pager_open(c);
		return printed(c, mc_list(arg + 7, write_file, stdout));
	}
	if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0 || strcmp(arg, "help") == 0)
		return print_help(c, commands, n);
	return usage_error("unknown command", arg);
}
