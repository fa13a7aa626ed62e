/* What lifetime.c and lifetime_names.c share. */
#ifndef MC_LIFETIME_H
#define MC_LIFETIME_H

#include "../passes.h"

struct lifetimes {
	struct analysis *a;
	struct graph *g;
	struct calls calls;
	uint32_t *end;             /* per value: the node after which it is let go; 0 = not made by a node */
	uint32_t returns;          /* last node of the model's own frame; an appended loss of the loop's comes behind it */
};

void lifetime_extend(struct lifetimes *, uint32_t val, uint32_t node);   /* the value lives until that node at least */
void lifetime_by_name(struct lifetimes *);

#endif
