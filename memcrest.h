/*
 * memcrest: the peak GPU memory of training an exported model graph, predicted before anything runs.
 *
 *     mc_model *m; mc_recipe *r = mc_recipe_new(); mc_report *rep;
 *     mc_load_path("model.pt2", NULL, &m);
 *     mc_recipe_set(r, "precision", "bf16");
 *     mc_analyze(m, r, NULL, &rep);
 *     mc_write(rep, "json", write_to_stdout, NULL);
 *     mc_report_free(rep); mc_recipe_free(r); mc_model_free(m);
 *
 * Sizes are bytes. Objects belong to the caller, who frees them with the function of their name; text that a function returns belongs to
 * the object that it was asked of. A report reads from its model, and a model from the bytes that it was loaded from, also when it is written:
 * free the report first. NULL in the place of an object, of text that is needed, of a callback that writes or of out is a mistake that is
 * answered with MC_BAD_INPUT, 0 or NULL. The library never prints, exits, or keeps global state. Different objects may be used in different
 * threads; one model may be analysed by several threads at once. Numbers have a decimal point whatever the process's locale is; a callback
 * may run while its thread's locale is "C".
 */
#ifndef MEMCREST_H
#define MEMCREST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MC_VERSION "0.1.0"
#define MC_ABI 0                       /* of the shared library's name; the same number means that old programs still run */

#if defined(__GNUC__)
#define MC_API __attribute__((visibility("default")))
#else
#define MC_API
#endif

typedef struct mc_model mc_model;
typedef struct mc_recipe mc_recipe;
typedef struct mc_report mc_report;
typedef struct mc_sweep mc_sweep;
typedef struct mc_diff mc_diff;

typedef enum {
	MC_OK = 0,
	MC_BAD_INPUT = 2,          /* a file, recipe or argument cannot be used; a diagnostic says why */
	MC_INCOMPLETE = 3,         /* the answer is a lower bound: unknown operators or unbound sizes matter */
	MC_NO_MEMORY = 4,
	MC_LIMIT = 5               /* a limit of mc_options was reached */
} mc_status;

/* Does it fit? Asked for by the recipe's budget or device. */
typedef enum {
	MC_NOT_ASKED,
	MC_FITS,
	MC_MAY_FIT,                /* it depends on what is only known as a range: the context, kernels' scratch space */
	MC_DOES_NOT_FIT
} mc_fit;

typedef struct {
	const char *code;          /* "E012": E error, W warning, N note */
	const char *message;
	const char *where;         /* file, then member or node; may be empty */
	unsigned count;            /* how often */
} mc_diagnostic;

/* Limits; zero fields mean the default. Set size with mc_options_init(). */
typedef struct {
	size_t size;
	uint64_t max_memory;       /* bytes that one model or one analysis may take */
	uint64_t max_file;         /* bytes of the model file */
	uint64_t max_member;       /* bytes of one unpacked archive member */
	const char *dump_after;    /* pass after which dump is called with the graph's text form, NULL = never */
	void (*dump)(void *user, const char *text, size_t n);
	void *dump_user;
	const char *program;       /* name of the program to read in an archive that holds several, NULL = "model", or the first */
	uint64_t max_nodes, max_values;    /* of a graph */
	uint64_t max_depth;        /* nesting of anything; the default needs less than 64 KiB of stack */
	void (*diagnostic)(void *user, const mc_diagnostic *);     /* called when one is made, with what is its own only during the call; a sweep calls from several threads */
	void *diagnostic_user;
} mc_options;

/* Returns non-zero to stop; then mc_write() fails. */
typedef int mc_write_fn(void *user, const void *data, size_t n);

/* Called by one thread at a time, not always the same. Returns non-zero to stop. */
typedef int mc_progress_fn(void *user, size_t done, size_t total);

MC_API const char *mc_version(void);
MC_API unsigned mc_abi(void);                                        /* MC_ABI of the library that runs */
MC_API void mc_options_init(mc_options *);

/* Loads a model graph. On failure *out is still set (unless memory was short) so that its diagnostics can be read; free it. */
MC_API mc_status mc_load_path(const char *path, const mc_options *, mc_model **out);
MC_API mc_status mc_load_memory(const void *data, size_t n, const char *name, const mc_options *, mc_model **out);     /* data must outlive the model */
MC_API void mc_model_free(mc_model *);
MC_API size_t mc_model_diagnostics(const mc_model *, mc_diagnostic *out, size_t cap);        /* how many there are */

/* Recipes: every key at its default, then set one by one or from JSON; later wins. A call that fails says why and leaves the recipe as it was. */
MC_API mc_recipe *mc_recipe_new(void);                               /* NULL: no memory */
MC_API mc_recipe *mc_recipe_copy(const mc_recipe *);                 /* NULL: no memory */
MC_API void mc_recipe_free(mc_recipe *);
MC_API mc_status mc_recipe_set(mc_recipe *, const char *key, const char *value);
MC_API mc_status mc_recipe_set_dim(mc_recipe *, const char *name, int64_t value);
MC_API mc_status mc_recipe_json(mc_recipe *, const char *text, size_t n, const char *name);
/* A framework's file: kind "deepspeed", "peft", "training-args" (JSON) or "accelerate" (YAML or JSON). What the user sets himself counts more, in any order. */
MC_API mc_status mc_recipe_file(mc_recipe *, const char *kind, const char *text, size_t n, const char *name);
MC_API int mc_recipe_has_file(const char *kind);
MC_API size_t mc_recipe_diagnostics(const mc_recipe *, mc_diagnostic *out, size_t cap);
MC_API int mc_recipe_has_key(const char *key);

/* Predicts. MC_INCOMPLETE still gives a report. recipe NULL = the defaults. */
MC_API mc_status mc_analyze(const mc_model *, const mc_recipe *, const mc_options *, mc_report **out);
/* What the file holds, without training it. */
MC_API mc_status mc_inspect(const mc_model *, const mc_recipe *, const mc_options *, mc_report **out);
MC_API void mc_report_free(mc_report *);
MC_API size_t mc_report_diagnostics(const mc_report *, mc_diagnostic *out, size_t cap);

/* The largest bytes that tensors hold at once, over both steps. */
MC_API uint64_t mc_report_peak(const mc_report *);
MC_API mc_fit mc_report_fit(const mc_report *);
/* One number by its name in the JSON report: "tensors", "allocated", "reserved", "process.low", "process.high", "param", "grad", "opt", "act", "saved", "transient", "input", "step",
 * "parameters.count", "parameters.trainable", "plain_sum". MC_BAD_INPUT: no such name, or the report has no schedule. */
MC_API mc_status mc_report_number(const mc_report *, const char *name, uint64_t *out);

/*
 * Many analyses of one model, which, like the recipe, must outlive the sweep. Each mc_sweep_vary() adds a column: a recipe key or a dim,
 * and its values, separated by commas; numbers also as 4..64 (4, 8, 16, 32, 64; after 1,2,3 or 10,20,30 in equal steps) and 4..64+4.
 * With mc_sweep_fit() the largest number of one column is searched that fits the recipe's budget or device: between the column's
 * smallest and largest value, or from 1 up if the column was not added; NULL = the first column of numbers, or "batch".
 */
MC_API mc_status mc_sweep_new(const mc_model *, const mc_recipe *, mc_sweep **out);          /* recipe NULL = the defaults */
MC_API mc_status mc_sweep_vary(mc_sweep *, const char *name, const char *values);
MC_API mc_status mc_sweep_fit(mc_sweep *, const char *name);
/* threads 0 = one a processor. MC_INCOMPLETE: a row is a lower bound; MC_BAD_INPUT: no row could be analysed, or progress said stop. */
MC_API mc_status mc_sweep_run(mc_sweep *, const mc_options *, unsigned threads, mc_progress_fn *, void *user);
MC_API mc_fit mc_sweep_best(const mc_sweep *);                       /* of the row that fits best */
MC_API mc_status mc_sweep_write(const mc_sweep *, const char *format, mc_write_fn *, void *user);   /* "text", "csv", "json" */
MC_API int mc_sweep_has_format(const char *format);
MC_API size_t mc_sweep_diagnostics(const mc_sweep *, mc_diagnostic *out, size_t cap);
MC_API void mc_sweep_free(mc_sweep *);

/*
 * What to change so that a job fits the recipe's budget or device: a sweep over changes, best first, each analysed and spelled as the command
 * line's flags; it is run, read, written and freed as a sweep.
 */
MC_API mc_status mc_advise(const mc_model *, const mc_recipe *, const mc_options *, unsigned threads, mc_progress_fn *, void *user, mc_sweep **out);

/* How a report is shown; zero fields mean the default. Set size with mc_view_init(). */
typedef struct {
	size_t size;
	unsigned depth;            /* dot: levels of modules that are drawn, the rest folded into them */
	unsigned width;            /* text: columns of the terminal */
	int colour;                /* text: may use colours */
	const mc_report *beside[4];        /* html: the same job at other precisions, to be drawn beside it; ends with NULL */
} mc_view;
MC_API void mc_view_init(mc_view *);

/* Writes a report in a format of mc_list("formats"), or "events". Unknown format: MC_BAD_INPUT, nothing written. MC_LIMIT: its numbers are too large for it. */
MC_API mc_status mc_write(const mc_report *, const char *format, mc_write_fn *, void *user);

MC_API mc_status mc_write_view(const mc_report *, const char *format, const mc_view *, mc_write_fn *, void *user);   /* view NULL = the defaults */

/* The model's file again with the report in its metadata: an ONNX file that was loaded by its path. MC_BAD_INPUT: it is none, or writing failed. */
MC_API int mc_can_annotate(const mc_model *);
MC_API mc_status mc_annotate(const mc_model *, const mc_report *, mc_write_fn *, void *user);

/* What grew between two reports in JSON, or between a measurement (pickle of torch.cuda.memory._snapshot()) and a prediction. Free *out even on failure. */
MC_API mc_status mc_diff_reports(const char *a, size_t na, const char *name_a, const char *b, size_t nb, const char *name_b, mc_diff **out);
MC_API mc_status mc_diff_measured(const mc_report *, const void *pickle, size_t n, const char *name, mc_diff **out);
MC_API int mc_diff_same(const mc_diff *);                             /* 1: all numbers, and what both recipes have; a key that one report lacks does not count */
MC_API double mc_diff_error(const mc_diff *);                        /* of the peak: 0.02 = the second is 2 % above the first */
MC_API mc_status mc_diff_write(const mc_diff *, const char *format, mc_write_fn *, void *user);     /* "text", "md", "html", "json" */
MC_API int mc_diff_has_format(const char *format);
MC_API size_t mc_diff_diagnostics(const mc_diff *, mc_diagnostic *out, size_t cap);
MC_API void mc_diff_free(mc_diff *);

MC_API int mc_has_format(const char *format);

/* The program's own tables as text, one row a line: "ops", "passes", "formats", "keys", "devices", "diagnostics", "schema". */
MC_API mc_status mc_list(const char *what, mc_write_fn *, void *user);

#ifdef __cplusplus
}
#endif

#endif
