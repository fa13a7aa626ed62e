/* Inside of FSDP: units and their state (fsdp.c), the reduction of their gradients (fsdp_reduce.c). */
#ifndef MC_FSDP_H
#define MC_FSDP_H

#include "shard.h"

struct unit {
	uint32_t *params, n, cap;
	int64_t padded;            /* elements, of all ranks' shards */
	uint32_t *whole, nwhole;   /* gathered parameters, held */
	uint32_t gathered;         /* the buffer, not yet copied out, held */
	uint32_t *uses, nuse, use_cap;     /* its places in the order of forwards that no backward has come to */
	uint32_t root;             /* the pipeline's stage of this rank that it is in, counted here */
	struct shares *shares;
	uint32_t trained;          /* FSDP1: of step.trained + 1 */
};

struct running {
	uint32_t unit, first;      /* first node of its call */
};

struct root {                      /* what the units of one wrapped model share; a rank of a pipeline has one for each of its stages */
	uint32_t *order;        uint32_t norder, order_cap;      /* units as their forwards ended */
	uint32_t kept;             /* the last unit's buffer, held */
	uint32_t input;            /* the last reduce-scatter's, held */
	bool ahead;                /* the schedule has gathered units that have not been copied out */
};

struct fsdp {
	bool flat, offload;        /* FSDP1 */
	unsigned shard_dtype, dtype, reduce_dtype;
	struct calls calls;
	struct unit *units;     uint32_t nunit, unit_cap;        /* the roots' own first */
	struct root *roots, *root; uint32_t nroot;               /* root: of the stage that runs */
	uint32_t *of_scope;        /* unit + 1 that a scope is the module of */
	uint32_t *of_param, *trained, *wide;       /* by parameter: unit; step.trained + 1; unsharded gradient that waits, held */
	struct running *stack;  uint32_t nstack, stack_cap;
	bool *reducing;            /* by parameter: it has a gradient in the reduction that runs */
	uint32_t *cast;            /* inputs in the compute dtype replace these, held */
};

/* fsdp.c */
int64_t fsdp_shard_numel(const struct shard *, uint32_t i);       /* elements of a parameter's shard, padded as the first rank's */
struct shares *fsdp_shares_of(struct shard *, uint32_t i);
uint32_t fsdp_buffer(struct shard *, const struct unit *, int64_t numel, unsigned dtype, unsigned factor, const char *op);

/* fsdp_reduce.c */
void fsdp_put_aside(struct shard *, struct fsdp *, const struct unit *);         /* no reduction in this micro-batch */
int64_t fsdp_collect(struct shard *, struct fsdp *, const struct unit *);        /* elements to reduce, of all ranks */
uint32_t fsdp_flatten(struct shard *, struct fsdp *, const struct unit *, int64_t n);     /* FSDP1's gradient of the flat parameter */
void fsdp_reduce(struct shard *, struct fsdp *, const struct unit *, int64_t n, uint32_t flat);

#endif
