/*
 * Types of ONNX operators: what the rules (shape_*.c, one function a row of rule.def) share with the pass (shape.c), and the evaluation of
 * what can be computed from the file alone (fold*.c).
 */
#ifndef MC_SHAPE_H
#define MC_SHAPE_H

#include "../passes.h"

struct type {                      /* of a value; rank RANK_UNKNOWN, dims {0, EXPR_UNKNOWN}, dtype DT_NONE where not known */
	uint8_t dtype, rank;
	struct sint dim[MAX_RANK];
};

struct shaper {
	struct analysis *a;
	struct graph *g;
	uint32_t n;                /* the node */
	bool bound;                /* sizes are numbers: what depends on the data gets the largest size it can have */
	const bool *bindable;      /* per symbol: it is the size of an input */
	uint32_t nbounded;         /* results that got one */
	uint32_t first_bounded;    /* name of the operator, interned */
	struct type *out;          uint32_t out_cap;
	uint32_t contradictions;   /* of declared types */
	struct str first_contradiction;
	uint32_t nguess, first_guess;      /* results of operators that have no row and no declared type */
};

#define UNKNOWN ((struct sint){0, EXPR_UNKNOWN})

/* shape_node.c: operands and attributes by the names of the operator's row */
const struct arg *arg_of(const struct shaper *, const char *name);         /* of kind NONE if it is absent */
uint32_t operand(const struct shaper *, const char *name);                 /* a value; 0 = absent */
uint32_t operand_at(const struct shaper *, unsigned i);
unsigned operands(const struct shaper *, const uint32_t **ids);            /* of an argument that takes all the rest; 0 = none such */
struct type type_of(const struct shaper *, uint32_t val);
struct type in(const struct shaper *, const char *name);
int64_t attr_int(const struct shaper *, const char *name);                 /* its default if it is absent */
double attr_float(const struct shaper *, const char *name);
struct str attr_str(const struct shaper *, const char *name);
unsigned attr_dtype(const struct shaper *, const char *name);              /* DT_NONE = absent */
int attr_ints(const struct shaper *, const char *name, int64_t *out, unsigned cap);        /* how many; -1 = absent */
bool known_ints(const struct shaper *, uint32_t val, const struct sint **, uint32_t *n);   /* its elements, maybe symbolic */
bool known_numbers(const struct shaper *, uint32_t val, int64_t *out, uint32_t cap, uint32_t *n);
bool known_floats(const struct shaper *, uint32_t val, const double **, uint32_t *n);
bool known_int(const struct shaper *, uint32_t val, int64_t *out);         /* one number */
unsigned nout(const struct shaper *);

/* integers */
bool is_unknown(struct sint);
bool is_number(struct sint, int64_t n);
bool same_size(struct sint, struct sint);
struct sint add(struct shaper *, struct sint, struct sint);
struct sint sub(struct shaper *, struct sint, struct sint);
struct sint mul(struct shaper *, struct sint, struct sint);
struct sint quotient(struct shaper *, struct sint, struct sint);           /* rounded down */
struct sint product(struct shaper *, const struct sint *, unsigned n);
bool wrap_axis(int64_t *axis, unsigned rank);                              /* negative ones count from the end; false: out of range */

/* results */
struct type typed(unsigned dtype, unsigned rank, const struct sint *dims);
void set_type(struct shaper *, unsigned k, struct type);
void set_result(struct shaper *, unsigned k, unsigned dtype, unsigned rank, const struct sint *dims);
void set_unknown_dims(struct shaper *, unsigned k, unsigned dtype, unsigned rank);
bool broadcast_into(struct shaper *, struct type *to, const struct type *);        /* dims only; false: its rank is not known */
struct sint at_most(struct shaper *, struct sint largest);                 /* a size that depends on the data */

/* select.c: results of an If */
uint32_t selected(const struct shaper *);                                  /* the value that a Select takes; 0 = not decided */
void resolve_selects(struct shaper *);

/* sequences.c: a node that makes, changes or reads a sequence becomes one on tensors */
void resolve_sequence(struct shaper *);

/* fold.c, fold_move.c: elements of results that follow from known elements */
void fold_node(struct shaper *);

#define RULE(name) void rule_##name(struct shaper *);
#include "../../ir/rule.def"
#undef RULE

#endif
