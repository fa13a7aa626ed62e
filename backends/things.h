/* What the formats that draw the graph share: its operators, parameters, buffers and inputs as things with bytes, and how they are joined. */
#ifndef MC_THINGS_H
#define MC_THINGS_H

#include "backend.h"

enum thing_kind { THING_OPERATOR, THING_PARAMETER, THING_BUFFER, THING_INPUT, THING_REST };

struct thing {
	uint8_t kind, modality;
	bool trainable, peak;
	uint32_t node, val;        /* whichever it is; both 0: what belongs to no one, THING_REST */
	uint32_t module;           /* row of report.modules */
	struct str name, op;
	struct factors at;         /* at the peak */
	uint64_t saved;            /* made in the forward of the peak's step, kept for backward */
};

struct edge {
	uint32_t from, to;         /* things */
};

struct things {
	struct thing *list;   uint32_t n;         /* execution order; a parameter before the operator that first reads it */
	struct edge *edges;   uint32_t nedge, edge_cap;
	uint32_t *of_node, *of_val;        /* thing + 1, 0 = none */
};
struct things *things_make(const struct report *, struct arena *);
const char *thing_kind_name(unsigned);

/* Modules as a tree: rows of report.modules, and of things in them. */
struct module_tree {
	uint32_t *child, *sibling; /* row, 0 = none */
	uint16_t *depth;           /* the model's is 0 */
	uint32_t *thing, *next_thing;      /* per row its first, then per thing; + 1, 0 = none */
};
struct module_tree *tree_of(const struct report *, const struct things *, struct arena *);     /* things NULL: without */
uint32_t tree_walk(const struct report *, const struct module_tree *, uint32_t row, unsigned *up);      /* in preorder, after closing so many; 0 = all have been */

struct str last_part(struct str path);                           /* of a dotted one */
const char *modality_colour(unsigned);                           /* "#2a78d6" */
const char *factor_colour(unsigned);
void thing_place(const struct things *, uint32_t i, unsigned *x, unsigned *y);       /* a grid in execution order, top to bottom */

#endif
