/* The training loop around the simulator: what lives before step 1, and the two steps. */
#ifndef MC_STEP_H
#define MC_STEP_H

#include "lower.h"

struct param {
	uint32_t val, tensor;      /* tensor is held */
	uint32_t *state;        uint32_t nstate, state_cap;      /* optimizer's buffers, held */
	uint8_t has_state;         /* of which of its optimizers, a bit each */
	bool stale;                /* zero_grad took the gradient from the parameters, but its storage is still there */
};

struct step {
	struct analysis *a;
	struct sim *s;
	struct param *params;   uint32_t nparam;
	struct param *trained;  uint32_t ntrained;         /* what the optimizer steps on: the parameters, or what a strategy made of them */
	bool *has;                 /* by value: what lives on this rank of a pipeline, NULL = all */
	uint32_t *chunk, nchunk;   /* of a pipeline's rank: by value, which of its stages has it; how many they are, 0 = no pipeline */
	bool keeps_stale;          /* zero_grad leaves the storages of trained gradients to the strategy (FSDP1) */
	bool differentiates;       /* backward has run */
	bool has_tables;           /* the 8-bit optimizers' two tables are there */
	uint32_t *kept;         uint32_t nkept, kept_cap;        /* loss and outputs that the caller still has, held */
};

/* step.c, for pipeline.c too: out, held, are values that outlive the forward. The loss, held; 0 = the graph has none */
uint32_t run_forward(struct step *, unsigned step, const uint32_t *val, uint32_t n, uint32_t *out);
void run_backward_phase(struct step *, uint32_t loss);

bool optimizer_known(struct analysis *);
void optimizer_construct(struct step *);
void optimizer_step(struct step *);
void optimizer_zero_grad(struct step *);

#endif
