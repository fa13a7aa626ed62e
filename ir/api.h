/* What the public objects are made of; each door (frontend/load.c, passes/analyze.c, backends/write.c) fills its part. */
#ifndef MC_API_H
#define MC_API_H

#include "../memcrest.h"
#include "report.h"

#include <locale.h>

struct mc_model {
	struct ctx c;
	struct graph *g;           /* NULL if loading failed */
	void *map;                 /* the file, if memcrest mapped or read it */
	size_t map_size;
	bool map_is_heap;
};

struct mc_recipe {
	struct ctx c;
	struct recipe r;
};

struct mc_report {
	struct ctx c;
	struct report r;
	bool incomplete;
};

struct mc_sweep {
	struct ctx c;
	struct sweep_table s;
	const mc_model *m;
	struct recipe dflt;
};

/* api.c */
size_t ctx_diagnostics(const struct ctx *, mc_diagnostic *out, size_t cap);
bool ctx_open(struct ctx *, const mc_options *);                 /* false: no memory */
void ctx_close(struct ctx *);
mc_fit verdict_fit(const struct verdict *);
mc_status ctx_status(struct ctx *, bool ok);                      /* after work: what a public function returns */

/*
 * The door of a public function: work(arg) runs with the arena's jump target set; running out of memory or over a limit ends it
 * and becomes a status and a diagnostic. Meanwhile the thread's locale is "C".
 */
mc_status ctx_enter(struct ctx *, bool (*work)(void *), void *arg);

/* This thread's locale becomes "C", until uselocale() gets back what is returned. ctx_enter() does both. */
locale_t plain_locale(void);

#endif
