/* The pass recurrent: what finding the layers of a module (recurrent.c) and finding their parameters (recurrent_params.c) share. */
#ifndef MC_RECURRENT_H
#define MC_RECURRENT_H

#include "motif.h"

#define MAX_LAYERS 64u

struct layer {                     /* one node of the file */
	uint32_t node, out;        /* out: its results as [sequence, batch, directions * hidden]; 0 = nobody reads them */
	double dropout;            /* of its results, before the next layer reads them */
};

struct stack {                     /* the layers of one module */
	struct layer layer[MAX_LAYERS];
	unsigned n, directions;
	int64_t batch, hidden;
	uint32_t input, out;       /* as the module has them */
	bool batch_first, train, biases;
};

struct recurrent {
	struct shaper s;
	struct graph *g;
	uint32_t nold, nval;               /* nodes and values from here on are new */
	uint32_t *behind;                  uint32_t behind_cap;
	uint32_t *user, *nuser;            /* by value: the last node that reads it, and how many do; arithmetic of sizes left out */
	uint32_t *with;                    /* by value: what stands for it, 0 = itself */
	bool *done;                        /* by node: it is part of a stack */
	unsigned stacks, unpacked;
};

bool recurrent_size(const struct graph *, uint32_t val, unsigned rank, int64_t *dim);      /* false: of another rank, or not all are numbers */
bool recurrent_params(struct recurrent *, struct stack *, struct arg *);   /* the module's, in its order; false: they are computed, or not as large as they should be */

#endif
