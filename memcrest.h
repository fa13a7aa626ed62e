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
 * the object that it was asked of. The library never prints, exits, or keeps global state. Different objects may be used in different
 * threads; one model may be analysed by several threads at once.
 */
#ifndef MEMCREST_H
#define MEMCREST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MC_VERSION "0.1.0"

#if defined(__GNUC__)
#define MC_API __attribute__((visibility("default")))
#else
#define MC_API
#endif

typedef struct mc_model mc_model;
typedef struct mc_recipe mc_recipe;
typedef struct mc_report mc_report;

typedef enum {
	MC_OK = 0,
	MC_BAD_INPUT = 2,          /* a file, recipe or argument cannot be used; a diagnostic says why */
	MC_INCOMPLETE = 3,         /* the answer is a lower bound: unknown operators or unbound sizes matter */
	MC_NO_MEMORY = 4,
	MC_LIMIT = 5               /* a limit of mc_options was reached */
} mc_status;

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
} mc_options;

typedef struct {
	const char *code;          /* "E012": E error, W warning, N note */
	const char *message;
	const char *where;         /* file, then member or node; may be empty */
	unsigned count;            /* how often */
} mc_diagnostic;

/* Returns non-zero to stop; then mc_write() fails. */
typedef int mc_write_fn(void *user, const void *data, size_t n);

MC_API const char *mc_version(void);
MC_API void mc_options_init(mc_options *);

/* Loads a model graph. On failure *out is still set (unless memory was short) so that its diagnostics can be read; free it. */
MC_API mc_status mc_load_path(const char *path, const mc_options *, mc_model **out);
MC_API mc_status mc_load_memory(const void *data, size_t n, const char *name, const mc_options *, mc_model **out);     /* data must outlive the model */
MC_API void mc_model_free(mc_model *);
MC_API size_t mc_model_diagnostics(const mc_model *, mc_diagnostic *out, size_t cap);        /* how many there are */

/* Recipes: every key at its default, then set one by one or from JSON; later wins. The first error stays and makes mc_analyze() fail. */
MC_API mc_recipe *mc_recipe_new(void);                               /* NULL: no memory */
MC_API void mc_recipe_free(mc_recipe *);
MC_API mc_status mc_recipe_set(mc_recipe *, const char *key, const char *value);
MC_API mc_status mc_recipe_set_dim(mc_recipe *, const char *name, int64_t value);
MC_API mc_status mc_recipe_json(mc_recipe *, const char *text, size_t n, const char *name);
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

/* Writes a report in a format of mc_list("formats"), or "events". Unknown format: MC_BAD_INPUT, nothing written. */
MC_API mc_status mc_write(const mc_report *, const char *format, mc_write_fn *, void *user);

MC_API int mc_has_format(const char *format);

/* The program's own tables as text, one row a line: "ops", "passes", "formats", "keys". */
MC_API mc_status mc_list(const char *what, mc_write_fn *, void *user);

#ifdef __cplusplus
}
#endif

#endif
