/* Inside of `compare`: what torch.cuda.memory._snapshot() says of the device that was used most. */
#ifndef MC_MEASURED_H
#define MC_MEASURED_H

#include "backend.h"

#include "../frontend/pickle.h"

/* A block that the trace does not see made. */
struct held {
	int64_t bytes;             /* as requested, rounded up to 512 */
	uint32_t end;              /* its release; UINT32_MAX = none */
};

struct measured {
	unsigned device;
	const struct pickle *segments, *trace;
	int64_t peak, reserved;    /* largest sums: of requests in multiples of 512 bytes, of segments */
	int64_t at[FAC_COUNT + 1]; /* of the peak, by factor; the last: of no known one */
	int64_t refused;           /* the first request that the allocator could not meet, 0 = none */
	bool traced;               /* false: it has no history, so that all is of one instant */
	uint32_t *partner;         /* per event: of a request its release, of a release its request; UINT32_MAX = none */
	uint32_t peak_event;       /* UINT32_MAX: the peak was before the trace */
	struct held *held;  uint32_t nheld;
};

bool measured_read(struct ctx *, const struct pickle *snapshot, struct measured *);
bool measured_is_list(const struct pickle *);
bool measured_is_of(const struct measured *, const struct pickle *segment);      /* on that device? */
bool measured_lives(const struct measured *, uint32_t event);             /* is it a request that is held at the peak? */
bool measured_holds(const struct measured *, const struct held *);         /* at the peak? */
int64_t measured_number(const struct pickle *dict, struct str key);       /* 0: none, or none that is exact */

/* compare_modules.c: rows of modules; event: of the prediction's peak */
struct mc_diff;
void compare_modules(struct mc_diff *, const struct report *, const struct measured *, uint32_t event);

#endif
