/* What casts.c, cast_names.c, cast_readers.c and cast_returns.c share. */
#ifndef MC_CASTS_H
#define MC_CASTS_H

#include "../passes.h"

#define CASTS_MOST_LOOKED 100000000u           /* characters of source lines */

enum table { NO_TABLE, TABLE_BESIDE, TABLE };          /* BESIDE: numbers and buffers, whose dtype a table takes over */

struct casts {
	struct analysis *a;
	struct graph *g;
	struct calls calls;
	uint32_t *up;              /* per node: the "up" conversion that it derives from within its call, 0 = none */
	uint32_t *given;           /* per node: likewise, of what its module was given */
	bool *written;             /* per node: the source line says what the conversion is */
	uint8_t *table;            /* per node: enum table */
	uint32_t *wanted;          /* per value: what it is added or copied into, 0 = nothing */
	uint32_t *renamed;         /* per value: the operand of the no-op "up" that made it, 0 = none */
	uint32_t *first, *reader;  /* per value: its readers are reader[first[v]] .. reader[first[v + 1]] */
	uint8_t *use;              /* per value that a conversion made: how it is read, bits of cast_readers.c; 0 = not looked at */
	uint64_t looked;           /* characters of source lines in which names were looked for */
	bool *read_inside;         /* per value that a conversion makes: something inside of its call reads it */
};

bool casts_same_call(const struct casts *, uint32_t node_a, uint32_t node_b);
bool casts_within_call(const struct casts *, uint32_t node_a, uint32_t node_b);  /* is a's innermost call b's, or inside of it? */
void casts_back(struct casts *, uint32_t node, uint32_t up);      /* the conversion gives the dtype that was there before up */
uint32_t casts_named(struct casts *, uint32_t node);        /* the value whose dtype its source line asks for; 0 = not known */
bool casts_wants_one_dtype(unsigned op);                          /* a matrix product, a convolution, attention .. */
void casts_write_returns(struct casts *);

/* cast_readers.c */
void casts_find_readers(struct casts *);
bool casts_begins_norm(const struct casts *, uint32_t node);
bool casts_for_loss(const struct casts *, uint32_t node);
bool casts_meets_low(const struct casts *, uint32_t node);
bool casts_reads_past(const struct casts *, uint32_t node, uint32_t conversion);       /* what was converted is meant */
bool casts_weighs(const struct graph *, uint32_t node);           /* weight * x, to be returned */
uint32_t casts_written_into(const struct casts *, uint32_t node);
void casts_restore_wide(struct casts *);                          /* what goes on in fp32 does not read a conversion back */

#endif
