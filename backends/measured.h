/* Inside of `compare`: what torch.cuda.memory._snapshot() says of the device that was used most. */
#ifndef MC_MEASURED_H
#define MC_MEASURED_H

#include "backend.h"

#include "../frontend/pickle.h"

struct measured {
	unsigned device;
	const struct pickle *segments, *trace;
	int64_t peak, reserved;    /* largest sums: of requests in multiples of 512 bytes, of segments */
	int64_t at[FAC_COUNT + 1]; /* of the peak, by factor; the last: of no known one */
	int64_t refused;           /* the first request that the allocator could not meet, 0 = none */
	bool traced;               /* false: it has no history, so that all is of one instant */
};

bool measured_read(struct ctx *, const struct pickle *snapshot, struct measured *);
bool measured_is_list(const struct pickle *);
bool measured_is_of(const struct measured *, const struct pickle *segment);      /* on that device? */
int64_t measured_number(const struct pickle *dict, struct str key);       /* 0: none, or none that is exact */

#endif
