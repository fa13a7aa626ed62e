/* What ZeRO's stages share (DeepSpeed's runtime/zero): keys, fp32 masters, the optimizer's step on them. */
#ifndef MC_ZERO_H
#define MC_ZERO_H

#include "shard.h"

struct zero {
	int64_t total, part;       /* elements that train, padded; of one rank */
	int64_t *offset;           /* by parameter, in the flat buffer */
	uint32_t *trained, ntrained;       /* parameters that train */
	unsigned dtype, accum;     /* of the model; in which gradients are kept */
	int64_t bucket_limit;      /* elements */
	bool overlap, offload;     /* two buckets; the optimizer is on the host */
	struct shares *all, *mine; /* of the flat buffer, of this rank's part */
};

bool zero_known(struct analysis *);
void zero_init(struct shard *, struct zero *);
void zero_offsets(struct shard *, struct zero *, int64_t align);
void zero_masters(struct shard *, struct zero *, const int64_t *elements, uint32_t n);     /* what the optimizer steps on: step.trained */
bool zero_owns(const struct shard *, const struct zero *, uint32_t i, int64_t *elements);
void zero_norm(struct shard *, const struct zero *);
void zero_update(struct shard *, struct zero *, uint32_t k, uint32_t grad);       /* of the k-th master; takes over grad */
uint32_t zero_flat_grad(struct shard *, const struct zero *, int64_t numel, unsigned dtype, const char *op);

#endif
