/* Inside of the pass recompose: the pieces of one operator, and what is found among them. */
#ifndef MC_RECOMPOSE_H
#define MC_RECOMPOSE_H

#include "../passes.h"

#define RECOMPOSE_MAX 64

struct pieces {                    /* the nodes that one operator was taken apart into */
	struct analysis *a;
	struct graph *g;
	const uint32_t *of;        /* per node: the set it belongs to */
	uint32_t set;
	const uint32_t *node;      /* in order */
	uint32_t nnode;
	unsigned op;
	bool inplace;              /* add_ and the like */
	uint32_t operand[RECOMPOSE_MAX], noperand;    /* values from outside, in the order in which they are first read */
	uint32_t result[RECOMPOSE_MAX], nresult;      /* values that are read outside, in the order in which they are made */
	uint32_t made;             /* the operator's node, its arguments to be set */
};

struct recompose {                     /* the pass */
	struct analysis *a;
	struct graph *g;
	uint32_t *of;              /* per node: its set, 0 = none */
	uint32_t *first, *next;    /* nodes of a set, in order */
	uint32_t *last;
	uint16_t *op;              /* per set */
	bool *inplace;
	uint32_t *now;             /* per value: what it is called from here on */
	uint32_t *view_of;         /* per value: the first reshaped view of it */
	uint32_t nset;
	uint32_t *uses;            /* per value */
};

struct recompose_row {
	uint16_t op;
	const char *operands, *settings;
	bool (*find)(const struct pieces *, const struct recompose_row *);        /* false: the pieces stay */
};

/* recompose_find.c */
bool recompose_in_order(const struct pieces *, const struct recompose_row *);
#define RECOMPOSE(op, operands, how, settings) bool recompose_##how(const struct pieces *, const struct recompose_row *);
#include "recompose.def"
#undef RECOMPOSE

/* recompose.c */
void recompose_add_piece(struct recompose *, uint32_t set, uint32_t node);
bool recompose_find_results(struct recompose *, struct pieces *);
bool recompose_is_piece(const struct pieces *, uint32_t val);          /* made by one of the pieces */
void recompose_set(const struct pieces *, const char *name, struct arg);

/* recompose_shape.c */
void recompose_collect_by_shape(struct recompose *);

/* recompose_write.c, recompose_cast.c */
void recompose_restore_writes(struct recompose *, uint32_t set, uint32_t *nodes);
void recompose_rename(struct recompose *);
void recompose_restore_conversions(struct recompose *);

#endif
