/* What the files of the command line share: main.c runs the commands on one model, cli_pair.c those on two files; cli_options.c reads options and helps. */
#ifndef MC_CLI_H
#define MC_CLI_H

#include "memcrest.h"

#include <stdbool.h>

enum { EXIT_DONE = 0, EXIT_NO = 1, EXIT_BAD = 2, EXIT_BOUND = 3 };

#define MOST_COLUMNS 16

struct cli {
	const char *model, *others[2], *format, *output, *measured;
	unsigned nother;
	mc_recipe *recipe;
	mc_options options;
	mc_view view;
	bool allow_incomplete, quiet, verbose;
	double tolerance;          /* compare */
	double clock;              /* of say_time() */
	/* sweep */
	const char *vary[MOST_COLUMNS], *fitted;
	unsigned nvary, threads;
	bool fit;
	const struct command *command;
};

struct command {
	const char *name, *arguments, *help;
	int (*run)(struct cli *);
	int (*has_format)(const char *);
	enum { NO_VERDICT, MAY_JUDGE, MUST_JUDGE } verdict;
	unsigned most_others;      /* file names behind the model's */
};

/* A report or a sweep, and the function that writes it. */
struct result {
	const void *what;
	mc_status (*write)(const void *, const char *format, const mc_view *, mc_write_fn *, void *user);
};

/* main.c; an int is an exit code */
int usage_error(const char *what, const char *arg);
void print_diagnostics(const struct cli *, size_t (*get)(const void *, mc_diagnostic *, size_t), const void *from);
size_t of_model(const void *, mc_diagnostic *, size_t);
size_t of_report(const void *, mc_diagnostic *, size_t);
int write_file(void *file, const void *, size_t);
int write_output(const struct cli *, struct result);
int judge(const struct cli *, mc_status, mc_fit);
int report(struct cli *, mc_status (*make)(const mc_model *, const mc_recipe *, const mc_options *, mc_report **));

/* cli_options.c */
int read_recipe(struct cli *, const char *kind, const char *path);        /* kind "" = our own JSON */
int read_option(struct cli *, int argc, char **argv, int *i);     /* the one at argv[*i]; *i moves to its value */
int print_help(const struct command *, size_t n);
int global_option(const struct command *, size_t n, const char *arg);     /* instead of a command */

/* cli_pair.c */
int run_annotate(struct cli *);
int run_diff(struct cli *);
int run_compare(struct cli *);

#endif
