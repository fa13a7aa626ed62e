/* What masks.c and packed.c share: a value followed back to what it is made of. */
#ifndef MC_MASKS_H
#define MC_MASKS_H

#include "../passes.h"

struct finding {
	bool orders;               /* positions are compared with positions */
	bool matches, counts;      /* numbers are compared for equality; running sums are among them: packed sequences told apart */
	bool bounds;               /* numbers are compared with a constant that may tell some apart: region masks do */
	bool compares, chooses;    /* a comparison; a choice between two numbers by it */
	bool foreign;              /* something that no mask is made of */
	bool from_input;
	int64_t chunk;             /* positions are divided by it and rounded down; 0 = they are not */
	int64_t window;            /* smallest constant that positions are shifted by before a comparison; 0 = none */
};

struct masks {
	struct analysis *a;
	struct graph *g;
	uint8_t *kind;             /* per value: enum mask_kind + 1, 0 = not looked at */
	struct finding *found;     /* per node, once it is simplified */
	uint32_t *stack;
	bool dropped, folded;
};

struct finding masks_slice_back(const struct masks *, uint32_t val);
void masks_unpack(struct masks *);        /* packed.c */

#endif
