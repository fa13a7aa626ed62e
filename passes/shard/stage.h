/* stage.c: which part of the graph a pipeline's stage runs. */
#ifndef MC_STAGE_H
#define MC_STAGE_H

#include "../passes.h"

struct stage {
	bool *runs;                /* by node */
	bool *has;                 /* by value: parameters, buffers and inputs that live here */
	uint32_t *in, nin;         /* values of earlier stages that it reads */
	uint32_t *out, nout;       /* its values that later stages read */
	bool first, last;
};

/* n stages, in order; NULL: the model has not so many blocks. needs: by value, a gradient flows to it */
struct stage *stages_find(struct analysis *, uint32_t n, bool **needs);

#endif
