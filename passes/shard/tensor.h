/*
 * Tensor parallelism, as a change of the graph. tensor.c finds what is divided, axes.c follows a divided dim through an
 * operator, tensor_write.c divides the dims, puts the collectives in, and with sequence parallelism divides what lies between.
 */
#ifndef MC_TENSOR_H
#define MC_TENSOR_H

#include "../passes.h"

enum { WHOLE = -1, NO_WAY = -2 };  /* not divided: it has no such dim, or one of size 1; the operator mixes the parts */

enum role { ROLE_NONE, ROLE_COLUMN, ROLE_ROW, ROLE_VOCABULARY, ROLE_LOSS };

struct divided {
	struct analysis *a;
	struct graph *g;
	int64_t ways;
	bool pytorch;              /* torch.distributed.tensor.parallel's way, not Megatron-LM's */
	unsigned skip;             /* where one dim becomes several: how many of them are passed over */
	bool last;                 /* .. or the last one is taken */
	int8_t *axis;              /* by value: the dim that is divided, WHOLE = none */
	uint8_t *role;             /* by node */
	uint32_t *user, *user_at;  /* by value, tied parameters as one: nodes that read it */
	int64_t classes;           /* rows of the vocabulary's embedding, 0 = none */
	int64_t multiple;          /* to which they are padded for each rank, 0 = not */
	uint32_t table;            /* that embedding's, 0 = it is whole on every rank */
	bool *vocabulary;          /* by value: its divided dim is the vocabulary's */
	uint32_t uneven;           /* regions, but the vocabulary's, whose dims the ranks do not divide */
};

/* axes.c: the dim of a node's results if its operand v has that one divided, and of an operand if its results have */
int axis_forward(const struct divided *, uint32_t node, uint32_t v, int axis);
int axis_back(const struct divided *, uint32_t node, uint32_t v, int axis);
int64_t dim_of(const struct graph *, uint32_t v, int axis);       /* 0 = not known */
uint32_t first_of(const struct graph *, uint32_t v);              /* of tied parameters */

struct linear {                    /* a matrix product with a parameter */
	uint32_t in, weight, bias;
	int weight_out, weight_in; /* dims of the weight */
};
bool linear_of(const struct graph *, uint32_t node, struct linear *);

int64_t part_of(const struct divided *, uint32_t v, int64_t n);   /* what the first rank has of a divided dim: no rank has more */

/* tensor_write.c */
void tensor_write(struct divided *);

#endif
