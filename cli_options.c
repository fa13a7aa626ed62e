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

int
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

int
print_help(const struct command *commands, size_t n)
{
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

int
global_option(const struct command *commands, size_t n, const char *arg)
{
	if (strcmp(arg, "--version") == 0)
		return printf("memcrest %s\n", mc_version()) < 0 ? EXIT_BAD : EXIT_DONE;
	if (strncmp(arg, "--list-", 7) == 0 && list(arg + 7) == EXIT_DONE)
		return EXIT_DONE;
	if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0 || strcmp(arg, "help") == 0)
		return print_help(commands, n);
	return usage_error("unknown command", arg);
}
