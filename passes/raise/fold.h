/* Evaluation of small tensors: what fold.c (arithmetic) and fold_move.c (moving elements) share. */
#ifndef MC_FOLD_H
#define MC_FOLD_H

#include "shape.h"

#define MAX_ELEMENTS LIMIT(1024u, 3u)
#define MAX_REALS LIMIT(64u, 2u)

struct elems {                     /* a tensor whose elements are known */
	uint8_t kind;              /* enum data_kind */
	uint8_t dtype, rank;
	uint32_t n;
	int64_t dim[MAX_RANK];
	const struct sint *i;
	const double *f;
};

struct fold {
	struct shaper *s;
	struct elems out;          /* its type is set; kind and elements are the folder's to set */
	struct sint *i;            /* room for MAX_ELEMENTS */
	double *f;
};

typedef bool folder(struct fold *);        /* false: it does not follow from what is known */

bool fold_operand(const struct shaper *, uint32_t val, struct elems *);
bool fold_named(const struct shaper *, const char *name, struct elems *);
void fold_copy(struct fold *, uint32_t to, const struct elems *, uint32_t from);
uint32_t fold_index(const struct elems *, const int64_t *at, unsigned rank);       /* of an element under broadcasting */
bool fold_next(const struct elems *, int64_t *at);                /* the next place, row-major */
bool fold_number(struct sint, int64_t *out);

/* fold_move.c */
folder fold_identity, fold_transpose, fold_slice, fold_gather, fold_gather_nd, fold_concat, fold_expand, fold_tile, fold_pad, fold_scatter, fold_scatter_nd, fold_non_zero, fold_fill, fold_range,
    fold_shape, fold_size, fold_stack_runs, fold_selected;
bool fold_part(struct fold *, unsigned k);                        /* result k of a Split */

#endif
