/* The pickle machine, for its two files: pickle.c runs it, pickle_tensor.c knows what PyTorch writes. */
#ifndef MC_PICKLE_MACHINE_H
#define MC_PICKLE_MACHINE_H

#include "pickle.h"

struct machine {
	struct ctx *c;
	const unsigned char *p;
	uint32_t n, at;            /* length, and what is read of it */
	uint32_t op_at;            /* where the running opcode stands, for messages */
	struct pickle **stack;  uint32_t depth, stack_cap;
	uint32_t *marks;        uint32_t nmark, mark_cap;
	struct pickle **memo;   uint32_t nmemo, memo_cap;
	struct pickle *none, *yes, *no;
	struct pickle *result;
};

/* pickle.c */
bool machine_fail(struct machine *m, const char *why);
bool machine_push(struct machine *m, struct pickle *v);
struct pickle *machine_pop(struct machine *m);
struct pickle *machine_new(struct machine *m, enum pickle_kind kind);

/* pickle_tensor.c */
bool machine_persistent(struct machine *m);
struct pickle *machine_known_call(struct machine *m, const struct pickle *fn, const struct pickle *args, bool inner);

#endif
