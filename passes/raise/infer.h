/* What infer.c (operators), infer_prim.c (numbers and lists), infer_value.c (numbers in tensors) and infer_region.c (branches and loops) share. */
#ifndef MC_INFER_H
#define MC_INFER_H

#include "../lower/lower.h"

enum cell_kind {
	CELL_UNMADE,               /* its code has not run */
	CELL_UNKNOWN,              /* data or something that is not understood decides; number.kind says what it is, if that is known */
	CELL_NONE, CELL_TENSOR, CELL_NUMBER, CELL_TEXT, CELL_LIST
};

struct cell {                      /* what a value of the old graph is at the moment */
	uint8_t kind;
	uint32_t n;                /* LIST */
	uint32_t cap;              /* LIST that appending made: so many elements have room, and the one in front of them says in n how many are taken; else 0 */
	union {
		uint32_t val;      /* TENSOR: value of the new graph */
		uint32_t str;      /* TEXT */
		struct number number;
		struct cell *list;
	} u;
};

struct open_region {
	uint32_t node;             /* of the old graph: the if or the loop */
	bool is_loop, by_data;     /* by_data: neither sizes nor constants decide */
	bool second;               /* IF: which branch is taken, if one is */
	uint32_t first, middle;    /* IF by_data: nodes of the new graph where each branch begins */
	int64_t turn, count;       /* LOOP */
};

struct infer {
	struct analysis *a;
	struct graph *g;
	struct sim *s;
	struct node *old;       uint32_t nold;   /* the graph as it was */
	struct cell *cell;      uint32_t ncell;  /* by value of the old graph */
	uint32_t *tensor;       uint32_t ntensor;        /* by value of the new graph: its geometry, held; 0 = not known (or not asked for yet) */
	bool *made;                /* by value of the old graph: it has been a result once */
	uint32_t *pieces;          /* by value of the old graph, a list: how many elements the file takes out of it */
	uint32_t *uses;            /* by value of the old graph */
	struct number *value;   uint32_t nvalue; /* by value of the new graph: the number that a tensor without dims holds; of kind ARG_NONE where not known */
	struct open_region *open;  uint32_t nopen, open_cap;
	uint32_t nguess, first_guess;      /* results without a row that have a size for want of better; the first */
	uint32_t pc;               /* node of the old graph that runs */
};

/* infer.c */
uint32_t infer_tensor(struct infer *, uint32_t new_val);         /* the simulator's tensor of a value, 0 = not sized */
struct cell infer_arg(struct infer *, const struct arg *);

/* infer_guess.c */
uint32_t infer_guess(struct infer *, uint32_t new_node);          /* what a first result without a row may look like, 0 = nothing says */
bool infer_doubtful(struct infer *, uint32_t new_node, uint32_t tensor);  /* does the size of a result follow from guesses alone? */

/* infer_value.c */
struct number infer_value(const struct infer *, uint32_t new_val);
void infer_compute(struct infer *, uint32_t new_node, uint32_t new_val);

/* infer_prim.c */
struct cell cell_number(struct number);
struct cell cell_unknown(unsigned number_kind);
bool infer_prim(struct infer *, const struct node *);

/* infer_region.c: each moves pc where the walk goes on */
bool infer_region(struct infer *, const struct node *);

#endif
