/* The passes: graph + recipe -> plan -> schedule -> numbers. pass.def lists them in order; pass.c runs them. */
#ifndef MC_PASSES_H
#define MC_PASSES_H

#include "../ir/report.h"

struct block {                     /* nodes of one module call */
	uint32_t first, last;
	bool reentrant;            /* run without a tape and differentiated anew, else by saved-tensor hooks */
	bool function;             /* reentrant, and parameters that it reads are among its arguments */
};

struct plan {                      /* made by the adapt group, read-only in lower */
	uint32_t *release;         /* values whose holder in the forward ends, by node: release[release_at[n]] .. release[release_at[n + 1]] */
	uint32_t *release_at;
	struct block *blocks;      uint32_t nblock;       /* what backward runs again: checkpointed calls, custom Functions; in order, not overlapping */
	uint8_t sm;                /* compute capability of the card, 0 = not known */
	uint8_t param_dtype;       /* run-time dtype of parameters of the file's main dtype */
	uint8_t shard_dtype;       /* in which a strategy keeps parameters that are computed with in param_dtype, DT_NONE = the same */
	uint8_t low_dtype;         /* autocast, DT_NONE = none */
	uint8_t input_dtype;       /* of floating-point inputs */
	uint32_t loss;             /* value that backward starts from, 0 = none */
	uint32_t logits;           /* value that the loss reads, 0 = not known */
	bool reads_both_ways;      /* there is attention, and none of it is causal or has a mask */
	bool loss_in_model;        /* an appended loss runs before the model's forward returns, as the libraries' do */
};

struct machine {                   /* what the job runs on; by adapt/device.c */
	const struct device *device;       /* NULL = none named */
	uint64_t budget;           /* what the verdict is about, 0 = nothing asked */
	uint64_t total;            /* of the device or the capacity, 0 = not known */
	uint64_t context_low, context_high;
	bool context_counts;       /* it is known for this card or measured: the budget must hold it too */
	uint64_t limit_low, limit_high;    /* what cudaMalloc can give if the context is as low or high as that, 0 = no limit */
	uint64_t workspace, lt_workspace;
};

struct analysis {
	struct ctx *c;
	struct recipe *r;
	struct graph *g;           /* the model's own copy */
	struct plan plan;
	struct machine machine;
	struct schedule *sched;
	struct str *assumptions;   uint32_t nassumption, assumption_cap;
	struct str *unbound;       uint32_t nunbound, unbound_cap;       /* symbols that nobody bound */
	struct sequences *sequences;       /* of ONNX files: which tensors are in which list (raise/sequences.c) */
	uint32_t sized, guessed, unsized, first_unsized;   /* values that the lowering could, more or less could, and could not size */
	bool lower_bound;
	bool scratch_missed;       /* kernels' scratch space was not always cached when the schedule was replayed */
	bool brief;                /* a row of a sweep: nobody reads who holds the bytes */
	struct report *report;
};

enum when { ALWAYS, TRAIN };

struct pass {
	const char *name, *group;
	enum when when;
	const char *help;
	bool (*run)(struct analysis *);
};
const struct pass *pass_at(unsigned i);                          /* NULL behind the last */
bool passes_run(struct analysis *, enum when);                   /* ALWAYS: only those; TRAIN: all */
unsigned analysis_dtype(const struct analysis *, uint32_t val);  /* run-time dtype of a parameter, buffer or input */
void assume(struct analysis *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define PASS(name, group, when, help) bool pass_##name(struct analysis *);
#include "pass.def"
#undef PASS

uint32_t value_looked_like(const struct graph *, uint32_t node);  /* raise/infer_guess.c: the operand that a result without a row may look like, 0 = none */

/* calls.c: module calls, from the scopes of consecutive nodes */
struct calls {
	uint32_t *at;              /* per node: index of its chain in first[], depth + 1 entries, root first */
	uint32_t *first, *last;    /* nodes of each entry */
};
struct calls calls_find(const struct graph *, struct arena *);
unsigned calls_depth(const struct graph *, uint32_t node);       /* entries of a node's chain - 1 */
bool calls_same(const struct calls *, uint32_t node_a, uint32_t node_b, unsigned depth);

void uses_count(const struct graph *, uint32_t *count);          /* per value, outputs included; adds to count */
uint32_t *uses_last(const struct graph *, struct arena *);       /* per value: the last node that reads it, 0 = none */

/* blocks.c: repeated blocks */
bool *blocks_find(const struct graph *, struct arena *);         /* per scope */
struct str blocks_list(struct str path);                         /* "encoder.layer." of "encoder.layer.12", or empty */
bool scope_is_transformers(const struct graph *, uint32_t scope);        /* the module's class is one of that library's models' */
uint32_t blocks_outermost(const struct graph *, const bool *block, uint32_t scope);

#endif
