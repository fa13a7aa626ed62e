/* The pass eager: what its driver (eager.c), the builder of results (eager_build.c) and the rows that need code (eager_*.c) share. */
#ifndef MC_EAGER_H
#define MC_EAGER_H

#include "motif.h"

struct raiser {
	struct shaper s;                   /* s.n: the node that is raised; operands and attributes of it as in shape.h */
	struct graph *g;
	struct row *rows;
	uint16_t *first;                   /* by operator: its first row + 1; 0 = none */
	uint32_t nold;                     /* nodes from here on are new */
	uint32_t *behind;                  uint32_t behind_cap;    /* by new node: the node whose place it takes */
	uint32_t *uses;                    /* by value: by what the outputs need; those that were there before */
	bool *needed;                      uint32_t needed_cap;    /* by value: something that was raised reads it */
	uint32_t *with;                    /* by value: what stands for it; 0 = itself */
	uint32_t angles, cosines, sines;   /* rotary tables that were made, and of what; 0 = none yet */
	uint32_t pad;                      /* the last padding that was made in front of a convolution or pooling; 0 = none yet */
	bool shows_casts;                  /* the file has conversions that change nothing in it */
	bool mean_squares;                 /* its norms take no mean, as those of most language models */
	struct match m;
};

typedef bool eager_code(struct raiser *);          /* false: not of that kind after all */

/* eager_build.c */
uint32_t eager_node(struct raiser *, unsigned op, unsigned nout);          /* at the raised node's place; results are new values */
void eager_arg(struct raiser *, uint32_t node, const char *name, struct arg);
void eager_tensor(struct raiser *, uint32_t node, const char *name, uint32_t val);         /* 0 = none */
void eager_tensors(struct raiser *, uint32_t node, const char *name, const uint32_t *val, uint32_t n);
void eager_ints(struct raiser *, uint32_t node, const char *name, const int64_t *, uint32_t n);
uint32_t eager_out(const struct raiser *, uint32_t node);                  /* its first result */
void eager_results(struct raiser *, uint32_t node);                        /* its results are those of the raised node */
void eager_same(struct raiser *, uint32_t val);                            /* the raised node's result is that value */
uint32_t eager_reads(struct raiser *, uint32_t val);                       /* the value as an operand: a stored transposed one gets its transposition */
bool eager_write(struct raiser *, const struct motif *, const char *result);       /* of a row: "op(x, name=2, ..)" */
struct str eager_recorded(const struct raiser *, const char *op, int place);         /* an argument of the exporter's record of that operator, as text; empty = not recorded */
uint32_t eager_contiguous(struct raiser *, uint32_t val);
uint32_t eager_copied(struct raiser *, const char *op, int place, uint32_t val);      /* the argument in that place of the record: copied, if the record says so and the file does not */
bool eager_size(const struct raiser *, uint32_t val, int64_t *dim, unsigned *rank);        /* false: not all are numbers */

#define CODE(motif, function) bool eager_##function(struct raiser *);
#define RAISE(motif, result)
#define RECORD(record, motif, result)
#include "eager.def"
#undef CODE
#undef RAISE
#undef RECORD

#endif
