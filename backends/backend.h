/* Inside of the backends: report -> bytes. They print what the report has and never add. */
#ifndef MC_BACKEND_H
#define MC_BACKEND_H

#include "../ir/report.h"
#include "../memcrest.h"

struct emit {                      /* one report being written */
	struct buf *b;
	struct arena *a;           /* dies when it is written */
	mc_view view;
	bool too_large;            /* set by a format that cannot say numbers of that size */
};

struct backend {
	const char *name, *help;
	bool inspects;             /* can also print what a file holds, without a training report */
	bool (*write)(const struct report *, struct emit *);
};
#define FORMAT(id) extern const struct backend backend_##id;
#include "format.def"
#undef FORMAT
const struct backend *backend_at(unsigned i);                    /* NULL behind the last */
const struct backend *backend_by_name(struct str);

struct table_backend {             /* of a sweep's table */
	const char *name, *help;
	bool (*write)(const struct sweep_table *, struct buf *);
};
extern const struct table_backend table_backends[];              /* ends with a NULL name */
bool advice_text(const struct sweep_table *, struct buf *);      /* of `advise` */
bool advice_json(const struct sweep_table *, struct buf *);

/* shape.c: dims as people and programs read them */
const struct graph *shape_source(const struct report *, uint32_t val);
bool dim_number(const struct report *, struct sint, int64_t *);
void print_dims(const struct geom *, const char *between, struct buf *);
const char *human_bytes(uint64_t, char out[32]);                 /* "81.30 GiB" */
const char *exact_bytes(uint64_t, char out[32]);                 /* "87,295,000,576" */
unsigned percent(uint64_t part, uint64_t whole);
const char *dominant(const struct factors *, uint64_t *bytes);
struct str peak_place(const struct report *, struct arena *);
void csv_cell(struct buf *, struct str);
void md_text(struct buf *, struct str);
static inline const struct factors *
peak_factors(const struct report *r)
{
	return &r->steps[r->peak_step].phases[r->steps[r->peak_step].phase].at;
}

/*
 * walk.c: the schedule event by event, with what is alive after each.
 *
 *     walk_start(&w, r, a);
 *     while (walk_next(&w)) .. w.storage, w.frees, w.live, w.now ..
 */
struct walk {
	const struct report *r;
	const struct span *span;   /* of the event */
	const struct storage *storage;
	struct factors now;
	uint64_t live;
	uint32_t event;
	bool frees;
	uint32_t next, next_span;
	unsigned step;
	struct arena *a;
	uint32_t *becoming, nbecoming, becoming_cap;      /* storages that will be gradients */
	bool *alive;               /* per storage */
};
void walk_start(struct walk *, const struct report *, struct arena *);
bool walk_next(struct walk *);                                   /* false: there are no more */
struct str storage_module(const struct report *, const struct storage *);
struct str storage_name(const struct report *, const struct storage *);  /* of the parameter, buffer or input; else of the node, else the kernel */

#endif
