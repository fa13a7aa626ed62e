/* What the parts of the lifetime pass share: lifetime.c by use, lifetime_name.c by source lines, lifetime_call.c what calls tell where there are none;
 * lists, experts, turns of loops and recorded hidden states have a file each. */
#ifndef MC_LIFETIME_H
#define MC_LIFETIME_H

#include "../passes.h"

struct lifetimes {
	struct analysis *a;
	struct graph *g;
	struct calls calls;
	uint32_t *end;             /* per value: the node after which it is let go; 0 = not made by a node */
	uint32_t returns;          /* last node of the model's own frame; an appended loss of the loop's comes behind it */
};

void lifetime_extend(struct lifetimes *, uint32_t val, uint32_t to);      /* the value lives on until node to is done */

/* lifetime_name.c */
uint32_t lifetime_callee(const struct graph *, uint32_t node, unsigned depth);      /* the scope that the frame at that depth calls, 0 = none */
bool lifetime_begins_turn(const struct lifetimes *, uint32_t node, unsigned depth, uint32_t callee, uint32_t lead);     /* of a loop over modules; callee: of the turn before; lead: nodes in front of that */
void lifetime_by_name(struct lifetimes *);
uint32_t lifetime_next_pick(const struct graph *, uint32_t n, uint32_t last);      /* last = n picks nothing, or nothing is picked after it */

/* lifetime_line.c: for files that have line numbers and names of locals, as traces have */
void lifetime_by_line(struct lifetimes *);

/* lifetime_call.c: for files without stack traces */
void lifetime_of_unnamed(struct lifetimes *);
void lifetime_in_outermost(struct lifetimes *);
uint32_t lifetime_frame_end(const struct lifetimes *, uint32_t node, unsigned depth);      /* the last node of the call at that depth */

/* lifetime_experts.c */
void lifetime_of_picked(struct lifetimes *);

/* lifetime_record.c: hidden states that hooks keep */
void lifetime_of_recorded(struct lifetimes *);

/* lifetime_turn.c: for files without stack traces: what the turns of a loop hand on */
void lifetime_of_turns(struct lifetimes *);

/* lifetime_list.c: what loops over modules collect */
void lifetime_of_lists(struct lifetimes *);

#endif
