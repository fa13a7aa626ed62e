/*
 * One rank of a distributed job. A strategy is a table of what it does at the turning points of the simulated loop (shard.def lists
 * them, one file each); it allocates and releases storages of its own there, and may take over the storages of parameters and
 * gradients. All else, the operators, autograd and the optimizer's arithmetic, is lower's and knows nothing of it.
 */
#ifndef MC_SHARD_H
#define MC_SHARD_H

#include "../lower/step.h"

struct shard {
	struct step *x;
	struct sim *s;
	const struct strategy *how;
	void *own;                 /* the strategy's own state */
	int64_t ways;              /* data-parallel ranks */
	uint32_t *index;           /* by value: which of step.params + 1, 0 = none */
	unsigned step;
	uint32_t micro;
	uint32_t chunk;            /* which of a pipeline rank's stages runs */
	bool last;                 /* the micro-batch before the optimizer's step */
	bool backward;             /* the engine runs, or the forward of a checkpoint inside it */
};

struct strategy {
	const char *name;
	bool away;                 /* parameters are never whole on this rank but where the strategy gathers them */
	bool one_optimizer;        /* for all stages of a pipeline's rank: the last of all backwards is the last one */
	bool (*known)(struct analysis *);                          /* NULL = everything; else reports what is not modelled */
	void (*start)(struct shard *);                             /* parameters, buffers and batch are there, the optimizer is not */
	void (*forward_begin)(struct shard *);
	void (*at)(struct shard *, uint32_t node);                 /* before a node runs, forward or backward */
	void (*forward_end)(struct shard *);
	void (*backward_begin)(struct shard *);
	void (*gradient)(struct shard *, struct param *);          /* its .grad is there, or has been added to */
	void (*backward_end)(struct shard *);
	void (*stage)(struct shard *);                             /* another stage of the pipeline's rank runs */
	void (*stage_gather)(struct shard *);                      /* .. and is made ready ahead, by the interleaved schedule */
	void (*stage_release)(struct shard *);
	void (*stage_end)(struct shard *);                         /* the last of a stage's backwards is over */
	void (*step)(struct shard *);                              /* instead of the optimizer's */
};

/* shard.c: called by lower; a NULL shard is a job of one process */
bool shard_known(struct analysis *);
bool shard_takes_params(const struct recipe *);                   /* their own storages have no bytes */
struct shard *shard_new(struct step *);
void shard_forward_begin(struct shard *, unsigned step, uint32_t micro);
void shard_forward_at(struct shard *, uint32_t node);
void shard_forward_end(struct shard *);
void shard_backward_begin(struct shard *, bool last, bool last_of_all);      /* of a stage, of the rank */
void shard_backward_at(struct shard *, uint32_t node);
void shard_gradient(struct shard *, uint32_t var);
void shard_backward_end(struct shard *);
void shard_stage(struct shard *, uint32_t chunk);
void shard_stage_gather(struct shard *, uint32_t chunk);
void shard_stage_release(struct shard *, uint32_t chunk);
void shard_stage_end(struct shard *);
bool shard_step(struct shard *);                                  /* false: the optimizer steps as in one process */

/* shard.c: for strategies */
int64_t ceil_div(int64_t a, int64_t b);
int64_t param_numel(const struct shard *, uint32_t i);            /* of step.params[i] */
bool param_trains(const struct shard *, uint32_t i);
unsigned param_dtype(const struct shard *, uint32_t i);
struct shares *shares_new(struct shard *);
void shares_add(struct shard *, struct shares *, uint32_t i);     /* step.params[i] */
void shares_add_part(struct shard *, struct shares *, uint32_t i, int64_t elements);

struct flat {                      /* a buffer that a strategy makes */
	int64_t numel;
	unsigned dtype, factor;
	const char *op;            /* its name in reports */
	const struct shares *shares;
	bool passing;              /* a communication buffer */
};
uint32_t flat_new(struct shard *, struct flat);                   /* held; 0 elements: 0 */
void flat_drop(struct shard *, uint32_t *t);
void grad_drop(struct shard *, uint32_t var);                     /* var.grad = None */

#define STRATEGY(id, name, help) extern const struct strategy strategy_##name;
#include "shard.def"
#undef STRATEGY

#endif
