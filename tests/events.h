/* Lists of allocations and releases, to be compared. */
#ifndef MC_TEST_EVENTS_H
#define MC_TEST_EVENTS_H

#include "../ir/api.h"

struct event {
	uint8_t step, phase, is_free;
	uint64_t bytes;
	const char *op;            /* who made it; may be NULL */
};

struct events {                    /* of both steps, without those of no bytes; e is to be freed */
	struct event *e;
	size_t n, cap;
};

enum { EVENTS_MOST = 64 };

void events_push(struct events *, struct event);
void events_sort(struct events *);         /* each run of releases: their order changes no peak */
struct events events_of(const struct schedule *);
bool events_same(const struct event *, const struct event *);
unsigned events_differ(const struct events *, const struct events *);      /* insertions and deletions that turn one into the other, at most EVENTS_MOST */

#endif
