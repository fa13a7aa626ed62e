/*
 * Motifs: patterns over operators, as the rows of eager.def spell them:
 *
 *     Op(operand, .. name=value ..)   a node of that operator; operands by place, those behind the last are not looked at; name=value: that attribute
 *                                     has that value (numbers; an axis of -1 means the last whatever the file writes)
 *     &Op(..)          the same, and others may use its result as well; else everything inside of a pattern serves this pattern alone
 *     x                any value; where it stands twice, the same one
 *     x?               any value, or absent
 *     $x               a number that is known: a constant, or computed from sizes
 *     #x               known whole numbers, such as a shape or axes;  #x? or absent
 *     @x               a tensor with one dim that the file stores, such as a bias
 *     ^x               a matrix that the file stores, transposed: by the exporter, or by a node in front of it
 *     2.5              that number
 *     none             absent
 *
 * Operators whose operands commute match in either order.
 */
#ifndef MC_MOTIF_H
#define MC_MOTIF_H

#include "shape.h"

#define MAX_VARS 12
#define MAX_MATCHED 24

struct motif;
enum motif_kind { MOTIF_TENSOR, MOTIF_NUMBER, MOTIF_INTS, MOTIF_MATRIX };          /* of a variable */

struct match {
	uint32_t var[MAX_VARS];            /* a value; of ^x the parameter; 0 = absent */
	uint32_t node[MAX_MATCHED];        /* those inside, the root first */
	bool shared[MAX_MATCHED];          /* others may use its result */
	unsigned nnode;
};

struct motif *motif_parse(struct arena *, const char *text);           /* NULL = it is not well-formed */
unsigned motif_op(const struct motif *);
int motif_var(const struct motif *, struct str name);                  /* -1 = none of that name */
enum motif_kind motif_is(const struct motif *, unsigned var);
bool motif_match(const struct motif *, const struct shaper *, uint32_t node, struct match *);

/* what the graph knows of a value */
bool scalar_of(const struct graph *, uint32_t val, double *out);           /* the one element of a value that is no parameter */
uint32_t maker_of(const struct graph *, uint32_t val);                     /* the node whose first result it is, 0 = none */
struct str record_of(const struct graph *, uint32_t node, const char *op, int place);      /* an argument as an ONNX exporter's record has it, if the operator begins so; or empty */
bool takes_mean_squares(const struct graph *);                           /* an ONNX file has means of squares of what no mean was taken from */
bool shows_casts(const struct graph *);                                  /* an ONNX file has conversions that change nothing, as older exporters write them */
uint32_t operand_of(const struct graph *, uint32_t node, unsigned i);      /* by place; lists opened; 0 = absent */
bool has_perm(const struct graph *, uint32_t node, const int64_t *perm, unsigned rank);      /* is the node a Transpose by perm? */
uint32_t stored_transposed(const struct graph *, uint32_t val);            /* the parameter, 0 = it is none */
bool rms_norm_was_decomposed(const struct graph *, uint32_t sum);           /* by an exporter, not written out by the model; sum: of mean square and eps */

#endif
