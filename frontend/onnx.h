/*
 * What the parts of the ONNX frontend share: onnx_wire.c makes the slim copy, onnx.c reads the model, onnx_value.c its values and small
 * constants, onnx_node.c its nodes, onnx_scope.c where a node stands, onnx_call.c functions and branches, onnx_param.c which stored tensors are
 * parameters and what they are called, onnx_folded.c which constants were computed from one, onnx_decay.c those that decay the states of state-space
 * models, onnx_tied.c which of them are one, onnx_alike.c how large those are that nothing reads, onnx_lossy.c what the exporter dropped. formats.md
 * section 4 has the format.
 */
#ifndef MC_ONNX_H
#define MC_ONNX_H

#include "frontend.h"

#include "onnx.pb-c.h"

struct binding {                   /* what a name of the file means */
	uint32_t val, frame;       /* the frame in which it was defined; it means nothing in others */
	const Onnx__ValueInfo *info;       /* declared type */
	uint32_t info_frame;
	uint32_t omitted;          /* the frame in which it is an operand that the call left out */
};

struct rebinding {                 /* what it meant before an inner graph used it */
	uint32_t id;
	struct binding was;
};

struct place {                     /* where a node stands */
	uint32_t scope, frame;
	uint16_t nframe;
	uint32_t fx, fx_target, fx_args;
};

struct call {                      /* a model-local function that is being inlined */
	const Onnx__Function *f;
	const Onnx__Node *node;
	const struct call *outer;
	struct place place;        /* of the node that calls */
};

struct spec {                      /* a line of the exporter's signature */
	uint32_t full;             /* state-dict name, interned in the graph */
	struct str alias;          /* in FX nodes: "p_fc_weight" */
	uint32_t val;
	bool buffer, persistent;
	bool folded;               /* the file has a constant that was computed from it */
};

enum { STORED = 1, STORED_INSIDE };

struct onnx {
	struct ctx *c;
	struct graph *g;
	const Onnx__Model *m;
	struct strtab *names;      /* of the file's values */
	struct binding *bind;          uint32_t bind_cap;        /* by name */
	struct rebinding *undo;        uint32_t nundo, undo_cap;
	uint32_t *taken;               uint32_t taken_cap;       /* by interned name of a value of the graph: it exists */
	uint32_t *op_of;               uint32_t op_cap;          /* by interned target: operator + 1 */
	uint32_t *expr_of;             uint32_t expr_cap;        /* by interned text of a dim */
	uint32_t *maker;               uint32_t maker_cap;       /* while a graph is sorted, by name: node + 1 */
	uint32_t *stored;              uint32_t stored_cap;      /* by value: it is an initializer, not one of the signature's, of the graph or of a branch */
	struct strtab *functions;  /* id = number of the function + 1 */
	struct strtab *targets;    /* parameters that the signature names: id = number of the spec */
	struct spec *spec;             uint32_t nspec, spec_cap;
	struct strtab *paths;      /* module paths as node names give them */
	struct str *better_path;       uint32_t npath, path_cap; /* by id: the path that a parameter's name gives, empty = none */
	const struct call *call;   /* innermost */
	uint32_t frame, last_frame;    /* of names: functions have their own */
	unsigned depth;            /* of inlined graphs */
	int64_t opset;             /* of the default domain, where we are */
	struct str modules, classes;   /* last module stack read, and its scope */
	uint32_t scope;
	const char *trace;         /* last stack trace read, and its frames */
	uint32_t trace_frame;
	uint16_t trace_n;
	bool fx_names;             /* values are called as the dynamo exporter calls them */
	bool module_names;         /* nodes are called after modules */
};

/* onnx_wire.c */
bool onnx_slim(struct ctx *, const struct source *, struct buf *out);
int onnx_probe_wire(const struct source *);

/* onnx_value.c */
struct str onnx_str(const char *);                               /* empty for NULL */
uint32_t *onnx_slot(struct onnx *, uint32_t **array, uint32_t *cap, uint32_t i);         /* grows with zeros */
struct binding *onnx_binding(struct onnx *, const char *name);
void onnx_declare(struct onnx *, Onnx__ValueInfo **, size_t n);  /* types of values that are defined later */
bool onnx_bind(struct onnx *, const char *name, uint32_t val);
bool onnx_define(struct onnx *, enum val_kind, const char *name, uint32_t *val);         /* a new value with its declared type */
bool onnx_lookup(struct onnx *, const char *name, uint32_t *val);          /* "" is 0 */
void onnx_undo(struct onnx *, uint32_t mark);
bool onnx_type(struct onnx *, uint32_t val, const Onnx__Type *);
bool onnx_tensor(struct onnx *, uint32_t val, const Onnx__Tensor *);       /* type and, if they are few, elements */
uint32_t onnx_new_val(struct onnx *, enum val_kind, struct str name);      /* made unique */

/* onnx_node.c */
bool onnx_nodes(struct onnx *, Onnx__Node **, size_t n);
bool onnx_new_node(struct onnx *, unsigned op, uint32_t narg, uint32_t nout, uint32_t *node);
uint32_t onnx_constant(struct onnx *, const char *name, const int64_t *, uint32_t n, bool scalar);
const Onnx__Attribute *onnx_attribute(const struct onnx *, const Onnx__Node *, const char *name);  /* NULL = absent */

/* onnx_order.c */
void onnx_sort(struct onnx *, Onnx__Node **, size_t n);          /* into an order in which they can run */

/* onnx_scope.c */
void onnx_fill_places(struct onnx *);                              /* of nodes without a record, when all are read */
void onnx_place(struct onnx *, const Onnx__Node *, struct place *);
struct str onnx_property(Onnx__Property *const *, size_t n, const char *key);
bool onnx_next_item(struct str *list, struct str *item);         /* of a Python list of strings */
void onnx_learn_paths(struct onnx *);
uint32_t onnx_call_scope(struct onnx *, const Onnx__Node *, const Onnx__Function *, uint32_t parent);

/* onnx_call.c */
const Onnx__Function *onnx_function(struct onnx *, const Onnx__Node *);
bool onnx_index_functions(struct onnx *);
bool onnx_inline_function(struct onnx *, const Onnx__Node *, const Onnx__Function *);
bool onnx_inline_if(struct onnx *, const Onnx__Node *);
bool onnx_inline_loop(struct onnx *, const Onnx__Node *);
bool onnx_inline_scan(struct onnx *, const Onnx__Node *);

/* onnx_param.c */
bool onnx_read_signature(struct onnx *);
bool onnx_initializers(struct onnx *, const Onnx__Graph *);
bool onnx_is_stored(const struct onnx *, const char *name);
void onnx_find_params(struct onnx *);
struct spec *onnx_spec(const struct onnx *, struct str name);    /* NULL = the signature does not have it */

/* onnx_folded.c */
struct spec *onnx_folded_from(struct onnx *, const char *name, bool *alone);     /* the parameter or buffer; alone = nothing else; NULL = none, or several */
void onnx_note_folded(struct onnx *, uint32_t val, const char *name, struct spec *);
void onnx_note_comparison(struct onnx *, uint32_t val, const char *name);
void onnx_find_computed_weights(struct onnx *);
void onnx_guess_folded(struct onnx *);

/* onnx_decay.c */
void onnx_guess_decays(struct onnx *);

/* onnx_tied.c */
void onnx_find_ties(struct onnx *);
bool onnx_fx_reads(const struct graph *, uint32_t node, const struct spec *);     /* does the FX node that this one is part of read the parameter? */

/* onnx_alike.c */
void onnx_find_alike(struct onnx *);

/* onnx_lossy.c */
void onnx_report_losses(struct onnx *);

#endif
