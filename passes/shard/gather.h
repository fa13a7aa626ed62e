/* gather.c: which parameters are whole on this rank, and when (ZeRO-3). */
#ifndef MC_GATHER_H
#define MC_GATHER_H

#include "zero.h"

struct gather;

struct gather *gather_new(struct shard *, bool host);             /* host: the shards come from the host's memory */
void gather_restart(struct gather *);                             /* a forward begins */
void gather_at(struct gather *, uint32_t node);
void gather_leave(struct gather *);                               /* the forward is over */
void gather_release(struct gather *, bool all);                   /* the backward is over; all: small parameters too */
void gather_persist(struct gather *);                             /* small parameters, after the step */

#endif
