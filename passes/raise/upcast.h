/* The pass upcast: what upcast.c and upcast_norm.c share. */
#ifndef MC_UPCAST_H
#define MC_UPCAST_H

#include "motif.h"

struct upcast {
	struct shaper s;
	struct graph *g;
	uint32_t nold;
	uint32_t *behind;          uint32_t behind_cap;    /* by new node: the node that it follows */
	uint32_t *first, *user;    /* by value: users[first[v]] .. users[first[v + 1]]: nodes that read it */
	uint32_t nval;
	struct motif *root[2];     /* one over the root of a mean of squares */
	bool *table;               /* by value */
	bool unscaled;             /* the file has attention whose scores nobody scales */
	bool *state;               /* by value: states that decay have a part in it; NULL = there are none */
	struct calls calls;        /* when they are needed */
	unsigned norms, tables, losses, decays, states;
	unsigned open_losses;      /* over tokens, of which the file does not say whether they convert */
};

uint32_t upcast_only_user(const struct upcast *, uint32_t val);            /* the one reader that is not arithmetic of sizes; 0 = none or several */
uint32_t upcast_user_with(const struct upcast *, uint32_t val, unsigned op, uint32_t other);       /* a reader of that operator; other 0 = any */
uint32_t upcast_converted(struct upcast *, uint32_t val, uint32_t behind, uint32_t like, uint16_t flag);   /* behind a node, as part of what `like` belongs to */
void upcast_set_statement(struct upcast *, uint32_t val, int line, struct str text);
void upcast_read_instead(struct graph *, uint32_t node, uint32_t old, uint32_t val);
uint32_t upcast_result(struct upcast *, uint32_t node, uint32_t behind, uint32_t like, uint16_t flag);     /* all its readers read the conversion */

/* upcast_norm.c */
void upcast_norm(struct upcast *, uint32_t root);
bool upcast_is_unscaled(const struct graph *, uint32_t softmax);

/* upcast_state.c */
void upcast_find_states(struct upcast *);
void upcast_states(struct upcast *);

#endif
