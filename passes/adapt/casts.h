/* What casts.c and cast_returns.c share. */
#ifndef MC_CASTS_H
#define MC_CASTS_H

#include "../passes.h"

enum table { NO_TABLE, TABLE_BESIDE, TABLE };          /* BESIDE: numbers and buffers, whose dtype a table takes over */

struct casts {
	struct analysis *a;
	struct graph *g;
	struct calls calls;
	uint32_t *up;              /* per node: the "up" conversion that it derives from within its call, 0 = none */
	bool *written;             /* per node: the source line says what the conversion is */
	uint8_t *table;            /* per node: enum table */
	uint32_t *wanted;          /* per value: what it is added or copied into, 0 = nothing */
	uint32_t *renamed;         /* per value: the operand of the no-op "up" that made it, 0 = none */
};

bool casts_same_call(const struct casts *, uint32_t node_a, uint32_t node_b);
bool casts_within_call(const struct casts *, uint32_t node_a, uint32_t node_b);  /* is a's innermost call b's, or inside of it? */
void casts_back(struct casts *, uint32_t node, uint32_t up);      /* the conversion gives the dtype that was there before up */
uint32_t casts_named(const struct casts *, uint32_t node);        /* the value whose dtype its source line asks for; 0 = not known */
void casts_write_returns(struct casts *);

#endif
