/*
 * What the files of the command line share: main.c runs the commands on one model, cli_pair.c those on two files; cli_options.c reads options and
 * helps; cli_terminal.c is for people at a terminal.
 */
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
	bool allow_incomplete, quiet, verbose, no_pager;
	long pager;                /* its process, 0 = none */
	bool about_model;          /* an option was given that two reports have no use for */
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
	const char *lacks;         /* what is to be said if there is no file name */
};

struct text {                      /* a file, or a report that was written to memory */
	char *p;
	size_t n;
};

/* A report or a sweep, and the function that writes it. */
struct result {
	const void *what;
	mc_status (*write)(const void *, const char *format, const mc_view *, mc_write_fn *, void *user);
};

/* main.c; an int is an exit code */
int usage_error(const char *what, const char *arg);       /* "what arg"; EXIT_BAD */
mc_status load(struct cli *, const char *path, mc_model **);      /* and say how long it takes, and what is wrong */
mc_status analyse(struct cli *, mc_status (*make)(const mc_model *, const mc_recipe *, const mc_options *, mc_report **), const mc_model *, const mc_recipe *, mc_report **);
int append_text(void *text, const void *, size_t);
bool read_whole(const char *path, uint64_t most, struct text *);  /* false: said */
void print_diagnostics(const struct cli *, size_t (*get)(const void *, mc_diagnostic *, size_t), const void *from);
size_t of_model(const void *, mc_diagnostic *, size_t);
size_t of_report(const void *, mc_diagnostic *, size_t);
int write_file(void *file, const void *, size_t);
int write_output(struct cli *, struct result);
int judge(const struct cli *, mc_status, mc_fit);
int report(struct cli *, mc_status (*make)(const mc_model *, const mc_recipe *, const mc_options *, mc_report **));

/* cli_options.c */
int read_recipe(struct cli *, const char *kind, const char *path);        /* kind "" = our own JSON */
int read_option(struct cli *, int argc, char **argv, int *i);     /* the one at argv[*i]; *i moves to its value */
int print_help(struct cli *, const struct command *, size_t n);
int global_option(struct cli *, const struct command *, size_t n, const char *arg);       /* instead of a command */

/* cli_terminal.c */
void look_at_terminal(struct cli *);
struct progress *progress_start(const struct cli *, const char *what);    /* NULL: nobody sees it */
int progress_count(void *progress, size_t done, size_t total);
void progress_end(struct progress *);
void pager_open(struct cli *);
void pager_close(struct cli *);

/* cli_pair.c */
int run_annotate(struct cli *);
int run_diff(struct cli *);
int run_compare(struct cli *);

#endif
