/* Inside of the backends: report -> bytes. They print what the report has and never add. */
#ifndef MC_BACKEND_H
#define MC_BACKEND_H

#include "../ir/report.h"

struct backend {
	const char *name, *help;
	bool inspects;             /* can also print what a file holds, without a training report */
	bool (*write)(const struct report *, struct buf *);
};
const struct backend *backend_at(unsigned i);                    /* NULL behind the last */
const struct backend *backend_by_name(struct str);

struct table_backend {             /* of a sweep's table */
	const char *name, *help;
	bool (*write)(const struct sweep_table *, struct buf *);
};
extern const struct table_backend table_backends[];              /* ends with a NULL name */
bool advice_text(const struct sweep_table *, struct buf *);      /* of `advise` */
bool advice_json(const struct sweep_table *, struct buf *);

extern const struct backend backend_text, backend_json, backend_events;

/* shape.c: dims as people and programs read them */
const struct graph *shape_source(const struct report *, uint32_t val);
bool dim_number(const struct report *, struct sint, int64_t *);
void print_dims(const struct geom *, const char *between, struct buf *);
const char *human_bytes(uint64_t, char out[32]);                 /* "81.30 GiB" */
const char *exact_bytes(uint64_t, char out[32]);                 /* "87,295,000,576" */

#endif
