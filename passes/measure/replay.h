/* The schedule through the caching allocator: peaks of every phase, and the blocks at one instant. */
#ifndef MC_REPLAY_H
#define MC_REPLAY_H

#include "../../ir/report.h"
#include "allocator.h"

struct replay_conf {
	struct alloc_config alloc;
	uint64_t workspace;        /* cuBLAS: one for each thread that multiplies matrices, kept; 0 = none */
	uint64_t lt_workspace;     /* cuBLASLt: around each product with a bias; 0 = none */
	bool scratch;              /* what kernels may take while they run is taken */
};

struct replay_peak {
	uint64_t allocated, reserved;
	uint64_t allocated_end, reserved_end;
	bool ran;
};

enum replay_thread { THREAD_FORWARD, THREAD_BACKWARD, THREAD_COUNT };

struct replay {
	struct replay_conf conf;
	struct allocator *a;
	struct replay_peak at[3][PH_COUNT];    /* by step and phase */
	unsigned step, phase;
	uint64_t with_scratch;     /* the most that a kernel's scratch space, taken alone, would make reserved; unless conf.scratch */
	bool scratch_missed;       /* some of it was not cached: taking all of it may have other consequences */
	bool multiplied[THREAD_COUNT];
	uint32_t workspace[THREAD_COUNT];      /* blocks */
	uint64_t short_of;         /* bytes of the first request that could not be met, 0 = none */
	uint32_t short_event;      /* of the schedule */
	struct memory_row *places; /* if not NULL, where everything lies is written down here */
};

void replay_start(struct replay *, struct arena *, const struct replay_conf *);
void replay_span(struct replay *, unsigned step, unsigned phase);
uint32_t replay_alloc(struct replay *, const struct storage *);   /* a block, 0 = no bytes */
void replay_free(struct replay *, uint32_t block);
bool is_matrix_product(const char *op);

struct analysis;
bool alloc_config_of(struct analysis *, struct alloc_config *);   /* allocator_config.c; false: a value is not allowed, reported */
bool replay_configure(struct analysis *, struct replay_conf *);   /* without a limit and without scratch; false: likewise */
void replay_schedule(struct replay *, const struct schedule *, uint32_t event, void (*seen)(void *user, const struct replay *, const uint32_t *block),
    void *user);

/* blockmap.c: segments and blocks at an instant, for the report; user is the analysis */
void record_place(struct replay *, struct place_row *, uint32_t block, uint32_t event);
void record_segments(struct replay *, struct arena *);     /* at the end */
void record_blocks(void *user, const struct replay *, const uint32_t *block);

#endif
