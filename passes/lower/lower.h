/*
 * Inside of the lower group: a simulator of eager PyTorch that has tensors without data.
 *
 *     graph node ──call.c──► forward formulas ──build.c──► tensors ──tensor.c──► schedule events
 *                    └─tape.c─► grad_fn (edges, saved tensors) ──engine.c──► backward formulas ──► more events
 *
 * Who owns what. A storage lives while a tensor is on it. A tensor lives while somebody holds it; the holders are
 *   - values of the running forward (sim.env), and of a checkpoint's closure
 *   - temporaries of the running operator or formula (sim.temps)
 *   - saved slots of a grad_fn, input buffers of the engine
 *   - a parameter's .grad, optimizer state, the caller's batch, loss and kept outputs.
 * A grad_fn lives while a tensor it made, an edge of a later grad_fn, or the engine holds it. Each of these takes a count with
 * tensor_hold()/fn_hold() and gives it back with tensor_drop()/fn_drop(); the last one to go writes the release event.
 */
#ifndef MC_LOWER_H
#define MC_LOWER_H

#include "../passes.h"

/* ---- tensors (tensor.c) --------------------------------------------------------------------------- */

enum tensor_flag {
	TF_VIEW = 1,               /* made by a view operator: the engine never adds into it */
	TF_GRAD = 2,               /* requires grad */
	TF_LEAF = 4                /* parameter, input, or detached: gradients end in its .grad */
};

struct tensor {
	const struct geom *geom;
	uint32_t storage;
	uint32_t holders;
	uint32_t fn;               /* grad_fn, 0 = none */
	uint32_t accumulate;       /* its AccumulateGrad; not held: it dies with the last edge to it */
	uint32_t grad;             /* .grad, held */
	uint32_t base;             /* of a view made in forward: the tensor it looks into, held; 0 = none */
	uint32_t view;             /* of such a view: the node of the operator that made it, held */
	uint32_t param;            /* of a parameter: its value */
	uint32_t version;          /* in-place operators so far; of a view: when its history was made */
	uint32_t out;              /* as which result of fn */
	uint8_t flags;
};

/* ---- values of arguments while an operator runs ------------------------------------------------------ */

struct value {
	uint8_t kind;              /* enum arg_kind */
	uint8_t dtype;             /* DTYPE */
	bool b;                    /* BOOL */
	uint32_t n;                /* VALS, INTS, FLOATS: how many */
	union {
		uint32_t t;        /* VAL: tensor */
		const uint32_t *ts;        /* VALS; 0 = None */
		int64_t i;
		const int64_t *ints;
		double f;
		const double *floats;
		struct str s;
	} u;
};
#define V_NONE ((struct value){.kind = ARG_NONE})
static inline struct value        /* a function, because its operand is often a call */
V_TENSOR(uint32_t t)
{
	return (struct value){.kind = t ? ARG_VAL : ARG_NONE, .u.t = t};
}
#define V_TENSORS(p, count) ((struct value){.kind = ARG_VALS, .n = (count), .u.ts = (p)})
#define V_INT(x) ((struct value){.kind = ARG_INT, .u.i = (x)})
#define V_INTS(p, count) ((struct value){.kind = ARG_INTS, .n = (count), .u.ints = (p)})
#define V_FLOAT(x) ((struct value){.kind = ARG_FLOAT, .u.f = (x)})
#define V_BOOL(x) ((struct value){.kind = ARG_BOOL, .b = (x)})
#define V_DTYPE(x) ((struct value){.kind = ARG_DTYPE, .dtype = (uint8_t)(x)})

/* ---- operator rows, compiled (code.c) ---------------------------------------------------------------- */

#define MAX_ARGS 20
#define MAX_OUTS 6
#define MAX_REFS 4
#define MAX_KEEPS 12
#define MAX_INSN 96
#define MAX_TMP 64
#define MAX_NAMED 8

enum ref_kind { REF_NONE, REF_ARG, REF_OUT, REF_GRAD, REF_TMP, REF_NUMBER, REF_MADE };

struct ref {
	uint8_t kind, i;
	bool shape_only;           /* #x */
};

struct insn {                      /* temporary number dst = build(ref...) */
	uint8_t build;             /* row of build.def; BUILD_COUNT: of the temporaries from first on only ref[0] stays */
	uint8_t first;
	uint8_t dst, nref;
	uint8_t dtype;             /* given, or DT_NONE */
	struct ref dtype_of;       /* dtype of this one instead */
	struct ref ref[MAX_REFS];
	const char *kernel;        /* name for reports; NULL = the operator's own */
};

struct formula {
	uint8_t first, n;          /* instructions */
	struct ref result;
};

struct gradient {
	struct formula f;
	uint8_t arg;
	bool always;               /* computed even if nobody needs it: one kernel makes all of them */
};

struct keep {                      /* a saved slot, in the order in which slots are released */
	struct ref what;
	int8_t only_if;            /* saved only if this argument needs a gradient; -1 = always */
};

struct op_code {
	bool ready;
	uint8_t nout, narg, ngrad, nkeep, ndiff, ninsn;
	uint8_t diff[MAX_ARGS];    /* differentiable arguments, in schema order */
	uint32_t required;         /* bits: arguments without a default that formulas have as operands */
	struct insn *insn;
	struct formula out[MAX_OUTS];
	struct gradient grad[MAX_ARGS];
	struct keep keep[MAX_KEEPS];
	struct value dflt[MAX_ARGS];
	struct str arg[MAX_ARGS];
	const char *backward_name; /* name of its kernels in backward */
};

/* ---- the tape (tape.c) --------------------------------------------------------------------------------- */

struct checkpoint_frame;

struct edge {                      /* where a gradient goes: fn 0 = nowhere */
	uint32_t fn;
	uint32_t out;
};

struct saved {
	struct ref what;
	uint32_t elem;             /* of a list argument */
	uint32_t tensor;           /* 0 if a checkpoint frame has it */
	struct checkpoint_frame *frame;
	uint32_t slot;             /* number within the frame */
};

enum fn_kind { FN_ROW, FN_ACCUMULATE, FN_CHECKPOINT, FN_COPY_SLICES };

struct grad_fn {
	uint8_t kind;
	uint16_t op;
	uint32_t nedge, nout, nsaved;
	uint32_t holders;
	uint64_t seq;              /* creation order; AccumulateGrad: the highest there is */
	uint32_t node;             /* of the graph */
	uint32_t var;              /* ACCUMULATE: the tensor, held */
	struct edge *edge;         /* in argument order, lists opened */
	const struct geom **meta;  /* what the forward argument was, an entry an edge */
	struct saved *saved;
	struct value *arg;         /* MAX_ARGS or fewer; tensors in it are not held and must not be read */
	void *closure;             /* CHECKPOINT */
	uint32_t ctx;              /* a tensor that a Python Function keeps beside the saved ones, held: it goes with the node */
	uint32_t inner;            /* COPY_SLICES: the in-place operator's node; of a view's: that of the view it was made from; held */
	/* while the engine runs */
	uint32_t run, deps;
	uint32_t *buffer;          /* gradients that arrived, one a result, held */
};

/* ---- the simulator ------------------------------------------------------------------------------------- */

struct pool;
struct shard;

struct sim {
	struct ctx *c;
	const struct graph *g;
	const struct recipe *r;
	struct schedule *sched;
	struct geoms *geoms;
	struct arena *own;         /* of what is gone with the simulator: tensors, the tape */
	struct pool *pool;
	struct tensor *tensors;    uint32_t ntensor, tensor_cap, free_tensor;
	struct grad_fn *fns;       uint32_t nfn, fn_cap, free_fn;
	struct op_code *code;      /* one an operator, compiled when first used */
	uint32_t *temps;           uint32_t ntemp, temp_cap;
	uint32_t *result;          uint32_t nresult, result_cap;  /* of the last operator call; borrowed from temps */
	uint32_t *env;             /* tensor of every value of the graph, 0 = none */
	uint32_t *cache;           uint32_t ncache, cache_cap;    /* autocast: pairs (leaf, copy), copies held */
	uint8_t *val_dtype;        /* run-time dtype of every value, kept after its release */
	bool *unsized;             /* by value: its dims, or those of what it was computed from, nobody knows */
	uint64_t live, seq, peak;
	uint32_t node;             /* node of the graph that is running: who is charged for what is allocated */
	uint32_t run, tick;        /* of the engine */
	bool grad_on;
	struct shard *shard;       /* what the other ranks do to this one, NULL = there are none */
	bool offload;              /* what is made now lives in the host's memory on purpose, and is counted there */
	bool host;                 /* what is made now lives on the CPU: 0-dim numbers that Python wrapped, and what is computed from them alone */
	uint8_t autocast;          /* dtype, DT_NONE = off */
	uint8_t low_dtype;         /* the recipe's autocast dtype, DT_NONE = none */
	uint8_t param_dtype;       /* run-time dtype of parameters of the file's main dtype */
	struct checkpoint_frame *frame;        /* saved tensors go there, NULL = onto the tape */
	uint32_t *last_use;        /* by value: the last node that reads it, past the end if the graph returns it; since the first checkpointed block */
	uint32_t *whole, nwhole;   /* likewise: results of nodes that may be int64, in the order of their nodes */
	uint32_t *held, nheld;     /* those of the first nseen that were there when the block at held_at began */
	uint32_t nseen, held_at;
	const bool *runs;          /* by node: a stage of a pipeline runs these only, NULL = all */
	const struct plan *plan;   /* what the adapt group decided about this graph */
	int64_t *ints;             /* graph.ints, bound */
	uint32_t failed;           /* operators that could not be run as their row says */
};

/* pool.c: small pieces that come and go, by size class */
struct pool *pool_new(struct arena *);
void *pool_get(struct pool *, size_t n, size_t size);             /* zeroed */
void pool_put(struct pool *, void *, size_t n, size_t size);

/* tensor.c */
uint32_t tensor_new(struct sim *, const struct geom *, const char *op);           /* a storage of its own; one holder: sim.temps */
uint32_t tensor_alias(struct sim *, uint32_t t, const struct geom *, unsigned flags);     /* same storage, in sim.temps */
bool tensor_on_host(const struct sim *, uint32_t t);
struct tensor *tensor_at(const struct sim *, uint32_t t);
const struct geom *geom_at(const struct sim *, uint32_t t);
uint32_t tensor_hold(struct sim *, uint32_t t);
void tensor_drop(struct sim *, uint32_t t);
uint32_t temps_mark(const struct sim *);
void temps_release(struct sim *, uint32_t mark);                  /* in reverse order of creation */
uint32_t temps_keep(struct sim *, uint32_t mark, uint32_t t);     /* release all but t, which stays a temporary of the caller */
void temps_drop(struct sim *, uint32_t t);                        /* one of them, now */
void temps_take(struct sim *, uint32_t t);                        /* a held tensor becomes a temporary */
void tensor_move(struct sim *, uint32_t t, uint32_t onto);       /* t.data = a view of onto's storage */
uint32_t tensor_storage_tensors(const struct sim *, uint32_t t);

/* code.c */
const struct op_code *op_code(struct sim *, unsigned op);
const char *op_code_check(struct arena *, unsigned op);           /* for tests: NULL, or what is wrong with the row */

/* build.c */
struct operand {
	const struct geom *g;
	uint32_t t;                /* 0: only the shape is known */
	bool number;               /* a Python number; g is its 0-dim geometry */
};

struct call {
	struct sim *s;
	uint16_t op;
	bool inplace;
	bool several;              /* a composition that leaves its results in sim.result */
	const struct op_code *code;
	struct value arg[MAX_ARGS];
	uint32_t out[MAX_OUTS];    /* forward: results; backward: those that were saved */
	const uint32_t *grads;     /* backward: incoming, one a result, 0 = undefined */
	uint32_t ngrads;
	const uint32_t *made;      /* backward: what has been made for each argument so far */
	uint32_t stash;            /* backward: what one argument's builder made for another's, held; 0 = nothing */
	uint32_t elem;             /* backward of a list argument: which element */
	const struct grad_fn *fn;
	const char *kernel;
};
typedef uint32_t builder(struct call *, const struct operand *, unsigned n, unsigned dtype);     /* a temporary, or 0 */
enum {
#define BUILD(name) BUILD_##name,
#include "build.def"
#undef BUILD
	BUILD_COUNT
};
#define BUILD(name) builder build_##name;
#include "build.def"
#undef BUILD
extern builder *const builders[BUILD_COUNT];
int builder_by_name(struct str);                                  /* -1 = none */
uint32_t fresh(struct call *, struct geom);                       /* a new tensor of the running kernel; strides are set */
uint32_t fresh_contiguous(struct call *, unsigned rank, const int64_t *dim, unsigned dtype);
unsigned grad_dtype(const struct call *);                         /* of the first incoming gradient */
unsigned complex_of(unsigned dtype);                              /* of a real one */
unsigned real_of(unsigned dtype);                                 /* of a complex one's two parts */
uint32_t real_part(struct sim *, uint32_t t);

/* call.c: run an operator; arguments in schema order, trailing ones may be left out. Results are temporaries; the first is returned */
uint32_t op_call(struct sim *, unsigned op, const struct value *arg, unsigned n);
uint32_t op_call_inplace(struct sim *, unsigned op, const struct value *arg, unsigned n);
#define CALL(s, op, ...) op_call((s), OP_##op, (const struct value[]){__VA_ARGS__}, (unsigned)(sizeof((const struct value[]){__VA_ARGS__}) / sizeof(struct value)))
const struct value *call_arg(const struct call *, const char *name);
int64_t call_int(const struct call *, const char *name, int64_t dflt);
bool call_bool(const struct call *, const char *name);
unsigned call_dtype(const struct call *, const char *name);
unsigned call_ints(const struct call *, const char *name, int64_t *out, unsigned cap);     /* an INT counts as a list of one */
uint32_t call_tensor(const struct call *, const char *name);
uint32_t formula_run(struct call *, const struct formula *);      /* a temporary, or 0 */
uint32_t cast(struct sim *, uint32_t t, unsigned dtype);          /* recorded; t itself if it has that dtype */
void autocast_call(struct call *);
void autocast_clear(struct sim *);
bool call_failed(struct call *, const char *why);                 /* reports once a node, counts; returns false */

uint32_t call_results(struct call *, const uint32_t *t, unsigned n);      /* of a composition that has several; the first */

/* scratch.c: what the kernel may take while it runs, noted with the storage of its result t */
void scratch_note(const struct call *, uint32_t t, uint32_t first_storage);

/* compose_*.c: rows of op.def that are made of other operators */
#define OP(id, name, schema, cast, forward, backward)
#define COMPOSE(id, name, schema, cast) uint32_t compose_##id(struct call *);
#define PRIM(id, name, schema)
#include "../../ir/op.def"
#undef OP
#undef COMPOSE
#undef PRIM

/* shapes that several compositions share */
uint32_t do_view(struct sim *, uint32_t t, unsigned rank, const int64_t *dim);
uint32_t do_reshape(struct sim *, uint32_t t, unsigned rank, const int64_t *dim);
uint32_t do_transpose(struct sim *, uint32_t t, int64_t a, int64_t b);
uint32_t do_matmul(struct sim *, uint32_t a, uint32_t b);
uint32_t do_linear(struct sim *, uint32_t x, uint32_t w, uint32_t bias);
uint32_t view_of(struct call *, const struct operand *, struct geom);      /* a tensor of that geometry on the operand's storage */
uint32_t out_of_range(struct call *);                            /* of a dim: the call fails */
int64_t wrap_dim(int64_t dim, unsigned rank);

/* tape.c */
uint32_t fn_new(struct sim *, unsigned kind, unsigned nedge, unsigned nout);
void fn_hold(struct sim *, uint32_t fn);
void fn_drop(struct sim *, uint32_t fn);
struct grad_fn *fn_at(const struct sim *, uint32_t fn);
void fn_edge(struct sim *, uint32_t fn, unsigned i, uint32_t t);
uint32_t tape_begin(struct call *);                               /* a grad_fn with edges and saved arguments; 0: nothing needs a gradient */
void tape_end(struct call *, uint32_t fn);                        /* saved results; results get their grad_fn */
void fn_attach(struct sim *, uint32_t fn, unsigned out, uint32_t t);
void fn_release_saved(struct sim *, uint32_t fn);
struct edge fn_edge_to(struct sim *, uint32_t t);                 /* where t's gradient goes; not held */
uint32_t fn_of_call(const struct call *);                         /* a node that only says what was called */
uint32_t fn_like(struct sim *, uint32_t fn);                      /* the same call again, without edges */

/* views.c */
bool needs_grad(const struct sim *, uint32_t t);
void view_record(struct call *, uint32_t fn);                     /* after the call: how its result looks into its operand */
void view_changed(struct sim *, uint32_t t);                      /* an in-place operator has run */
void view_renew(struct sim *, uint32_t t);                        /* makes a view's history again if its base has a new one */
void view_overwritten(struct sim *, uint32_t t, uint32_t fn);     /* fn, of an in-place operator on view t, becomes its base's history */
void copy_slices_backward(struct sim *, uint32_t fn, const uint32_t *grads, uint32_t *out);

/* engine.c */
void row_backward(struct sim *, uint32_t fn, const uint32_t *grads, uint32_t *out);        /* gradients by edge, held */
void run_backward(struct sim *, const uint32_t *root, const uint32_t *grad, unsigned n);  /* tensors and their gradients, the caller's */

/* checkpoint.c */
bool checkpoint_rerunning(const struct sim *);
uint32_t checkpoint_slot(struct sim *);                           /* first run: a number for the next saved tensor */
void checkpoint_store(struct sim *, uint32_t t);                  /* rerun: the next saved tensor; leaves the rerun when it was the last */
uint32_t checkpoint_unpack(struct sim *, struct checkpoint_frame *, uint32_t slot);      /* held by the caller */
void checkpoint_forget(struct sim *, struct checkpoint_frame *, uint32_t slot);   /* its node has gone */
void checkpoint_hold(struct checkpoint_frame *);
void checkpoint_drop(struct sim *, struct checkpoint_frame *);
void checkpoint_block(struct sim *, const struct block *);
void checkpoint_backward(struct sim *, uint32_t fn, const uint32_t *grads, uint32_t *out);        /* out: held by the caller */
void checkpoint_closure_drop(struct sim *, void *closure);

/* step.c */
struct sim *sim_new(struct analysis *, struct schedule *);

/* forward.c */
void run_nodes(struct sim *, uint32_t first, uint32_t last, bool blocks);        /* blocks: checkpoint those of the plan */
void env_set(struct sim *, uint32_t val, uint32_t t);             /* takes a hold of its own */
uint32_t declared_tensor(struct sim *, uint32_t val);                    /* a tensor as the file declares the value; 0 if it does not say */
bool size_is_unknown(const struct graph *, uint32_t node);

#endif
