/*
 * Every type that the folders share, then the functions of ir/, grouped by the file that has them.
 *
 * Three structures make the program: the graph (what the file says, later what PyTorch runs), the
 * schedule (every allocation and release of two training steps) and the report (backends/report.h).
 * All of them are arrays in an arena; a reference is a 32-bit index, and index 0 means "none".
 *
 * There is no other state than struct ctx and what hangs on it: no globals but const tables.
 */
#ifndef MC_IR_H
#define MC_IR_H

#include "../memcrest.h"
#include "base.h"

/* ---- dtypes ---------------------------------------------------------------------------------- */

enum dtype {
	DT_NONE,                   /* not known */
#define DTYPE(id, name, bits, cat, onnx, serde, c10, torch, storage) DT_##id,
#include "dtype.def"
#undef DTYPE
	DT_COUNT
};
enum dtype_cat { CAT_NONE, CAT_BOOL, CAT_INT, CAT_FLOAT, CAT_COMPLEX };

struct dtype_info {
	const char *name;          /* as the contract spells it */
	const char *torch;         /* PyTorch's own name */
	const char *storage;       /* prefix of its pickled storage class, "Float" of FloatStorage */
	uint8_t bits, cat;
	uint8_t onnx, serde, c10;  /* numbers in the three formats, 0xff = none */
};

/* ---- limits and the context ------------------------------------------------------------------ */

/* make tiny builds with the second number of each limit, so that every fixture meets some. */
#ifdef MC_TINY
#define LIMIT(usual, tiny) (tiny)
#else
#define LIMIT(usual, tiny) (usual)
#endif

struct limits {                    /* each has a default in limits_default() and a flag */
	uint64_t memory;           /* bytes that the arenas of one model may take */
	uint64_t file;             /* bytes of the model file */
	uint64_t member;           /* bytes of one unpacked archive member */
	uint32_t nodes, values;    /* of a graph */
	uint32_t depth;            /* nesting of modules, graphs, expressions; with messages chosen so that 64 KiB of stack are enough */
	uint32_t messages;         /* nesting of ONNX messages: a subgraph takes three */
	uint32_t frames;           /* lines of a stack trace */
};

enum severity { SEV_NOTE, SEV_WARNING, SEV_ERROR };

enum diag_code {
	DIAG_NONE,
#define DIAG(id, name, severity, format) DIAG_##id,
#include "diag.def"
#undef DIAG
	DIAG_COUNT
};

struct diag {
	uint16_t code;             /* enum diag_code */
	uint8_t severity;
	uint32_t count;            /* how often it was reported with this text */
	struct str text, where;    /* where: file, then member or node; may be empty */
};

struct arena;

struct ctx {
	struct arena *a;           /* what lives as long as the model or the analysis */
	struct limits lim;
	struct diag *diags;
	uint32_t ndiag, diag_cap, nerror;
	struct diag last_words;    /* what is said when there is no memory to say it */
	struct str file, place;    /* what a message is about: the file, and where in it */
	const char *dump_after;    /* --dump-ir: pass name, or NULL */
	void (*dump)(void *user, const char *text, size_t n);
	void *dump_user;
	const char *program;       /* --program, or NULL */
	void (*diagnostic)(void *user, const mc_diagnostic *);
	void *diagnostic_user;
};

/* ---- expressions over symbolic dims ----------------------------------------------------------- */

enum expr_op { EX_NONE, EX_UNKNOWN, EX_CONST, EX_SYM, EX_ADD, EX_MUL, EX_FLOORDIV, EX_CEILDIV, EX_MOD, EX_POW, EX_MAX, EX_MIN, EX_OPAQUE, EX_VAL };

struct expr {                      /* operands are expressions with smaller ids */
	uint8_t op;
	bool known;                /* n is its value: a constant, or all its symbols are bound */
	uint32_t a, b;             /* SYM: a = symbol; OPAQUE: a = interned text; VAL: a = the value of a number that the graph computes */
	int64_t n;
};

struct sint {                      /* an integer that may be symbolic: n if expr == 0, else the expression */
	int64_t n;
	uint32_t expr;
};
#define SINT(v) ((struct sint){(v), 0})
#define EXPR_UNKNOWN 1u            /* the expression "some integer", made with every graph */

struct sym {
	uint32_t name;             /* interned */
	int64_t min, max;          /* range in the file; max < 0 = unbounded */
	int64_t value;             /* bound value, -1 = not bound */
	int64_t example;           /* the size that the exporter ran with, 0 = not known */
	bool open;                 /* nobody bound it: value is the smallest allowed */
	uint32_t input;            /* first graph input that has it alone on an axis, 0 = none */
	uint8_t axis;
};

/* ---- the graph -------------------------------------------------------------------------------- */

enum arg_kind { ARG_NONE, ARG_VAL, ARG_VALS, ARG_INT, ARG_INTS, ARG_FLOAT, ARG_FLOATS, ARG_BOOL, ARG_DTYPE, ARG_DTYPE_OF, ARG_STR };

struct arg {                       /* one operand or attribute of a node */
	uint8_t kind;
	uint8_t dtype;             /* DTYPE */
	uint32_t first, count;     /* VALS: slice of graph.ids (0 = None); INTS: of graph.ints; FLOATS: of graph.floats */
	union {
		uint32_t val;      /* VAL; DTYPE_OF: the dtype that this value has when it is made; not an operand */
		uint32_t str;      /* STR, interned */
		struct sint i;     /* INT */
		double f;          /* FLOAT */
		bool b;            /* BOOL */
	} u;
};

enum val_kind { VAL_NONE, VAL_INPUT, VAL_PARAM, VAL_BUFFER, VAL_CONST, VAL_NODE };
enum val_flag {
	VF_TRAINABLE = 1,          /* PARAM: requires_grad in the file (or the file cannot say); CONST: computed from such a one */
	VF_PERSISTENT = 2,         /* BUFFER: in the state dict */
	VF_LABELS = 4,             /* INPUT that only the loss reads, made by the adapt group */
	VF_ADAPTER = 8,            /* PARAM that a recipe added (LoRA) */
	VF_LIST = 16,              /* NODE: all results of the node, as one list; only until the pass infer */
	VF_TRANSPOSED = 32,        /* PARAM: the value is the parameter with its dims reversed (an exporter folded the transposition) */
	VF_DEFAULT_DTYPE = 64,     /* BUFFER: made in the dtype that parameters are made in */
	VF_STORED = 128            /* CONST: the file stores it and does not say what is a parameter */
};
enum fold_kind {                   /* how an exporter computed a CONST .. */
	FOLD_UNKNOWN,
	FOLD_OPERATORS,            /* .. by the operators `folded`: "exp neg" of `full`, its own last, "t" = the matrix transposed */
	FOLD_BIAS, FOLD_BIAS_CAUSAL,       /* a table of position biases, looked up; with later positions masked */
	FOLD_RESIZED, FOLD_RESIZED_CAT,    /* positions of a picture, resized; behind the row of a class token, which is not */
	FOLD_TYPES,                /* rows of a table of types, all of one */
	FOLD_COMPARED              /* positions, compared by the operator `folded`: "le" */
};
enum data_kind { DATA_NONE, DATA_INTS, DATA_FLOATS };
#define RANK_UNKNOWN 0xff
#define MAX_RANK 10

struct val {                       /* a tensor with one definition */
	uint32_t name;             /* in the graph, interned */
	uint32_t full;             /* PARAM, BUFFER: name in the state dict, interned; CONST: the parameter that it was computed from, if known */
	uint8_t kind, dtype, rank, flags;
	uint32_t dim;              /* first of rank entries in graph.ints */
	uint32_t stride;           /* likewise, 0 = contiguous; only PARAM and BUFFER */
	uint32_t node, out;        /* NODE: who makes it, and as which result */
	uint32_t tied;             /* PARAM: the earlier parameter whose storage it shares, 0 = none */
	uint32_t after;            /* PARAM that a recipe added: the parameter behind which the library lists it, 0 = the last */
	uint32_t folded;           /* CONST: operators, interned */
	uint8_t fold;              /* CONST: enum fold_kind */
	uint8_t modality;          /* enum modality, by the pass of that name */
	uint8_t data;              /* enum data_kind: the elements are known, row-major: a slice of graph.ints or graph.floats */
	bool guessed;              /* NODE: its type is that of what it is made of, because nobody knows better, or follows from such a one */
	uint32_t data_at, ndata;
	uint32_t local;            /* the name that a Python function has for it, interned; 0 = not known */
	uint32_t local_depth;      /* which function: that many lines of its first user's stack, helpers included, are outside of it or its own */
};

enum node_flag { NF_NO_GRAD = 1, NF_INPLACE = 2, NF_DEAD = 4, NF_ADDED = 8, NF_LEAF = 16,      /* what it makes requires grad, whatever went into it */
	NF_LOSS = 32, NF_MASK = 64,
	NF_UPCAST = 128,           /* a conversion that the model makes in 16 bits and an fp32 file cannot show: to fp32 .. */
	NF_DOWNCAST = 256,         /* .. or back to the dtype of the parameters */
	NF_RERUN = 512             /* runs without a tape, and again in backward, with the nodes beside it that are marked too */
};

#define AUTOCAST_OFF 0xffu

struct node {
	uint32_t name;             /* in the file, interned; may be empty */
	uint32_t target;           /* the operator as the file spells it, interned */
	uint16_t op;               /* enum op_id; OP_NONE = unknown */
	uint16_t flags;
	uint8_t modality;
	uint8_t autocast;          /* of the file's own: 0 = none says, else the dtype that it casts to, or AUTOCAST_OFF */
	uint32_t narg, nout;
	uint32_t arg;              /* first of narg entries in graph.args, in schema order */
	uint32_t out;              /* first of nout entries in graph.ids: the values made */
	uint32_t scope;            /* innermost module call around it */
	uint32_t frame;            /* first of nframe entries in graph.frames, outermost first */
	uint16_t nframe;
	uint16_t nhelper;          /* further entries behind those: functions that the innermost forward called; text = the function's name */
	uint32_t fx, fx_target, fx_args;     /* ONNX: the exporter's FX node that it is part of, its operator and arguments; interned, 0 = not recorded */
};

struct scope {                     /* one entry of a module stack; id 0 = the root module */
	uint32_t parent, path, cls;  /* path and class interned */
	uint32_t call;             /* which call of this module, where the file says (fqn@1) */
	uint16_t depth;            /* root 0 */
};

struct frame {                     /* one line of a stack trace */
	uint32_t line, text;       /* text interned */
};

struct strtab;

struct graph {
	struct ctx *c;
	struct strtab *names;
	struct expr *exprs;     uint32_t nexpr, expr_cap;
	struct sym *syms;       uint32_t nsym, sym_cap;
	struct sint *ints;      uint32_t nint, int_cap;
	double *floats;         uint32_t nfloat, float_cap;
	uint32_t *ids;          uint32_t nid, id_cap;
	struct arg *args;       uint32_t narg, arg_cap;
	struct val *vals;       uint32_t nval, val_cap;
	struct node *nodes;     uint32_t nnode, node_cap;     /* in execution order */
	struct scope *scopes;   uint32_t nscope, scope_cap;
	struct frame *frames;   uint32_t nframe, frame_cap;
	uint32_t *inputs;       uint32_t ninput, input_cap;   /* values that the caller passes */
	uint32_t *outputs;      uint32_t noutput, output_cap; /* values returned, in order; 0 = None */
	uint32_t *expr_hash, expr_mask, *scope_hash, scope_mask;
	uint32_t *sym_of, nsym_of, sym_of_cap;                /* by interned name: the symbol, 0 = none */
	struct str format, producer;
	uint32_t file_nodes;       /* nodes that the file has, control nodes included */
	uint8_t file_dtype;        /* dtype of most floating-point parameters */
	bool decomposed;           /* operators may be taken apart: not the program as it was captured */
	bool has_frames;           /* stack traces are there */
	bool has_lines;            /* line numbers are there, without the text */
	bool has_scopes;
	uint32_t root_class;       /* interned */
	struct str *notes;      uint32_t nnote, note_cap;     /* what the frontend took for granted; reports list it among the assumptions */
};

/* ---- operators --------------------------------------------------------------------------------- */

enum op_id {
	OP_NONE,
#define OP(id, name, schema, cast, forward, backward) OP_##id,
#define COMPOSE(id, name, schema, cast) OP_##id,
#define PRIM(id, name, schema) OP_##id,
#include "op.def"
#undef OP
#undef COMPOSE
#undef PRIM
#define ONNX(id, name, schema, weights, rule) OP_##id,
#include "onnx.def"
#undef ONNX
	OP_COUNT
};
enum shape_rule {                  /* how the types of an ONNX operator's results follow from its operands (passes/raise/shape*.c) */
	RULE_none,                 /* not of that dialect */
#define RULE(name) RULE_##name,
#include "rule.def"
#undef RULE
	RULE_COUNT
};
enum cast_class { CAST_NONE, CAST_LOW, CAST_FP32, CAST_FP32_OUT, CAST_PROMOTE };

struct op {
	const char *name;          /* aten's, without overload */
	const char *schema;        /* arguments in order, "name" or "name=default"; ONNX: operands, then "; " and attributes; "name..." takes the rest */
	const char *forward;       /* allocations, see passes/lower/code.c; NULL: composed of others */
	const char *backward;      /* gradient formulas; NULL: no gradient */
	uint8_t cast;              /* enum cast_class */
	bool prim;                 /* no operator on tensors: a number, list or branch of the program, gone after the pass infer */
	uint8_t rule;              /* enum shape_rule; not none: a row of onnx.def, which nothing lowers */
	const char *weights;       /* ONNX: operands that are parameters if the file stores them, separated by blanks */
};

#define MAX_SCHEMA 32
struct arg_name {                  /* one argument of a schema */
	struct str name, spellings, dflt;     /* a|b: the first names it; default as text, empty = required */
	bool attribute, rest;      /* ONNX: behind the semicolon; takes all operands that are left */
};

/* ---- recipe ------------------------------------------------------------------------------------ */

enum recipe_key {
	RK_NONE,
#define KEY(id, name, type, choices, dflt, help) RK_##id,
#include "recipe.def"
#undef KEY
	RK_COUNT
};
enum recipe_type { RT_CHOICE, RT_BOOL, RT_INT, RT_FLOAT, RT_BYTES, RT_TEXT, RT_LIST };

struct recipe_value {
	bool set;                  /* given by the user */
	int64_t i;                 /* CHOICE: index; BOOL; INT; BYTES */
	double f;
	struct str text;           /* TEXT; CHOICE: as spelled */
	struct str *list;          /* LIST */
	uint32_t nlist;
	bool by_flag;              /* lists: set on the command line, where further flags add */
	struct str origin;         /* the framework file that set it; empty = the user did */
};

struct dim_binding {               /* "batch", or "input_ids[0]" */
	struct str name;
	int64_t value;
	bool by_file;              /* a framework file set it */
};

enum framework_file { FILE_NONE, FILE_TRAINING, FILE_ACCELERATE, FILE_PEFT, FILE_DEEPSPEED, FILE_COUNT };   /* in the order in which they are applied */

struct recipe {
	struct recipe_value v[RK_COUNT];
	struct dim_binding *dims;
	uint32_t ndim, dim_cap;
	const struct json *files[FILE_COUNT];      /* that were given, and their names */
	struct str file_names[FILE_COUNT];
	struct str notes[FILE_COUNT];      /* what each set and what it ignored */
	uint32_t nnote;
};

/* the indices of choices that the code asks for; recipe.def lists them in this order */
enum precision { PREC_FILE, PREC_FP32, PREC_BF16, PREC_FP16, PREC_BF16_MIXED, PREC_FP16_MIXED };
enum attention { ATT_AUTO, ATT_FLASH, ATT_EFFICIENT, ATT_CUDNN, ATT_MATH, ATT_EAGER, ATT_KEEP };
enum checkpoint { CKPT_NONE, CKPT_NON_REENTRANT, CKPT_REENTRANT };
enum tristate { TRI_AUTO, TRI_FALSE, TRI_TRUE };
enum lora_bias { BIAS_NONE, BIAS_ALL, BIAS_LORA_ONLY };
enum loss_kind { LOSS_AUTO, LOSS_IN_GRAPH, LOSS_CAUSAL_LM, LOSS_CROSS_ENTROPY, LOSS_MSE, LOSS_SUM };
enum parallel { ST_NONE, ST_DDP, ST_ZERO1, ST_ZERO2, ST_ZERO3, ST_FSDP1, ST_FSDP2 };
enum zero_grad { ZG_AFTER_STEP, ZG_BEFORE_BACKWARD, ZG_NEVER_NONE };
enum optimizer_impl { IMPL_FOREACH, IMPL_FUSED, IMPL_FORLOOP };

enum modality { MOD_NONE, MOD_VISION, MOD_AUDIO, MOD_LANGUAGE, MOD_PROJECTOR, MOD_OTHER, MOD_COUNT };

/* ---- devices ------------------------------------------------------------------------------------- */

struct device {                    /* a row of device.def */
	const char *name, *source;
	uint64_t total;            /* bytes */
	uint64_t context_low, context_high;
	uint8_t sm;                /* compute capability, 90 = 9.0 */
};

/* ---- the schedule -------------------------------------------------------------------------------- */

enum factor { FAC_PARAM, FAC_GRAD, FAC_OPT, FAC_SAVED, FAC_TRANSIENT, FAC_INPUT, FAC_COUNT };
enum phase { PH_START, PH_FORWARD, PH_BACKWARD, PH_OPTIMIZER, PH_COUNT };

struct geom {                      /* shape, strides and dtype; interned by geom_intern(), so equal means same pointer */
	int64_t dim[MAX_RANK], stride[MAX_RANK];   /* elements */
	int64_t numel;
	uint8_t rank, dtype;
	bool contiguous, dense;
};

struct share {                     /* one value's part of a storage that several have together */
	uint32_t val;
	uint64_t weight;
};
struct shares {
	struct share *of;       uint32_t n, cap;
	uint64_t total;            /* weights */
};

struct storage {
	uint64_t nbytes;           /* rounded up to 512; 0 stays 0 */
	uint64_t requested;        /* as asked for */
	uint64_t scratch;          /* at most this much more the kernel that makes it takes while it runs (passes/lower/scratch.c) */
	bool scratch_optional;     /* where there is no room for it, another kernel runs */
	const char *op;            /* the kernel that asked for it */
	const struct geom *geom;   /* of the tensor it was made for */
	uint32_t tensors;          /* live tensors on it, while the schedule is made */
	uint32_t node;             /* node of the graph, 0 = none */
	uint32_t val;              /* value: the parameter, buffer or input; of a gradient or state: its parameter */
	uint32_t phase;            /* index of the span it was born in */
	uint8_t factor;            /* enum factor */
	uint8_t modality;
	bool elsewhere;            /* of a parameter whose bytes are in other storages: flat, sharded, gathered */
	bool passing;              /* a communication buffer: in no plain sum */
	uint32_t became;           /* of a gradient that a strategy takes away again: number of the event before which it was transient */
	uint64_t host;             /* bytes that it takes in the host's memory instead */
	bool managed;              /* .. or in managed memory, which the driver pages between both */
	const struct shares *shares;       /* parameters that have it together, NULL = val alone */
};

struct span {                      /* one phase of one micro-batch of one step */
	uint8_t step, phase;
	uint32_t micro;
	uint32_t first;            /* index of its first event */
};

struct schedule {                  /* event = storage index * 2, + 1 if it is a release */
	struct ctx *c;
	struct storage *storages;  uint32_t nstorage, storage_cap;
	uint32_t *events;          uint32_t nevent, event_cap;
	struct span *spans;        uint32_t nspan, span_cap;
	uint64_t forward_end[3];   /* live bytes, by step */
};
#define EVENT_STORAGE(e) ((e) >> 1)
#define EVENT_IS_FREE(e) ((e) & 1u)

/* ---- dtype.c, op.c --------------------------------------------------------------------------------- */

const struct dtype_info *dtype_info(unsigned);
unsigned dtype_by_name(struct str);                               /* contract's or PyTorch's name; DT_NONE = unknown */
unsigned dtype_by_serde(int64_t);
unsigned dtype_by_c10(int64_t);
unsigned dtype_by_onnx(int64_t);
unsigned dtype_by_storage(struct str prefix);                     /* "Float" of FloatStorage */
bool dtype_is_float(unsigned);
uint64_t dtype_bytes(unsigned dtype, uint64_t elements);

const struct op *op_info(unsigned op);
unsigned op_by_name(struct str name, bool *inplace);              /* "add", "add.Tensor", "add_.Tensor"; OP_NONE = unknown */
uint32_t op_args(unsigned op, struct arg_name *names, uint32_t cap);
uint32_t op_narg(unsigned op);
bool op_is_variadic(unsigned op);
int op_arg_index(unsigned op, struct str name);                   /* -1 = no such argument */
bool op_is_onnx(unsigned op);

/* ---- size.c: arithmetic that cannot overflow in silence --------------------------------------------- */

bool mul_u64(uint64_t a, uint64_t b, uint64_t *out);
bool mul_i64(int64_t a, int64_t b, int64_t *out);
bool add_i64(int64_t a, int64_t b, int64_t *out);
uint64_t round512(uint64_t);

/* ---- number.c: numbers that a program computes ----------------------------------------------------------- */

struct number {
	uint8_t kind;              /* ARG_INT, ARG_FLOAT, ARG_BOOL; ARG_NONE = not known */
	union {
		int64_t i;
		double f;
		bool b;
	} u;
};
struct number number_int(int64_t);
struct number number_float(double);
struct number number_bool(bool);
double number_real(struct number);
struct sint number_size(struct number);                    /* toward zero; unknown if it is none of 64 bits */
bool number_has(struct str what);                                 /* is there a function of that name? */
unsigned number_operands(struct str what);
bool number_math(struct str what, struct number a, struct number b, struct number *out);         /* false: not defined for these */

/* ---- diag.c ------------------------------------------------------------------------------------------ */

struct limits limits_default(void);
bool diag(struct ctx *, enum diag_code, ...);                     /* formats, stores; returns false, so that errors read `return diag(...)` */
mc_diagnostic diag_public(const struct diag *);
void diag_tell(const struct ctx *, const struct diag *);          /* the caller's function, if there is one */
void diag_pass_on(struct ctx *, const struct diag *);            /* what another context was told, once */
const char *diag_format(unsigned code);
unsigned diag_severity(unsigned code);
const char *diag_name(unsigned code);                             /* "E012" */

/* ---- expr.c, expr_read.c ------------------------------------------------------------------------------------------ */

uint32_t expr_const(struct graph *, int64_t);
uint32_t expr_sym(struct graph *, uint32_t sym);
uint32_t expr_op2(struct graph *, enum expr_op, uint32_t a, uint32_t b);   /* folds constants */
uint32_t expr_opaque(struct graph *, struct str text);
uint32_t expr_val(struct graph *, uint32_t val);
void expr_bind(struct graph *);                                            /* after symbols got values: evaluate every expression */
bool expr_eval(const struct graph *, uint32_t expr, int64_t *out);         /* false: an unbound symbol, or overflow */
bool expr_parse(struct graph *, struct str text, uint32_t *out);           /* sympy srepr or infix; see expr_read.c */
bool expr_parse_known(struct graph *, struct str text, uint32_t *out);     /* the same, of symbols that there are; false: *out is untouched */
bool expr_is_open(const struct graph *, uint32_t expr);                    /* a symbol in it is open */
void expr_print(const struct graph *, uint32_t expr, struct buf *);
void sym_print(const struct graph *, uint32_t sym, struct buf *);
bool sint_eval(const struct graph *, struct sint, int64_t *out);
uint32_t expr_intern(struct graph *, enum expr_op, uint32_t a, uint32_t b);        /* as it is written */
struct sint sint_of_expr(const struct graph *, uint32_t expr);
struct sint sint_op2(struct graph *, enum expr_op, struct sint a, struct sint b);
uint32_t sint_expr(struct graph *, struct sint);
uint32_t sym_find(const struct graph *, struct str name);                  /* 0 = none */
uint32_t sym_add(struct graph *, struct str name);

/* ---- poly.c: sums of products have one spelling; 0 = too long, or not of that kind --------------------------- */

uint32_t poly_sum(struct graph *, uint32_t a, uint32_t b);
uint32_t poly_product(struct graph *, uint32_t a, uint32_t b);
uint32_t poly_quotient(struct graph *, uint32_t a, uint32_t b);            /* rounded down */
bool poly_at_least(struct graph *, uint32_t a, uint32_t b);                /* a >= b whatever the symbols are */

/* ---- graph.c ------------------------------------------------------------------------------------------- */

struct graph *graph_new(struct ctx *);
struct graph *graph_copy(const struct graph *, struct ctx *);     /* shares names; everything else its own */
uint32_t graph_name(struct graph *, struct str);
struct str graph_str(const struct graph *, uint32_t id);
uint32_t val_new(struct graph *, enum val_kind, struct str name);
void val_shape(struct graph *, uint32_t val, unsigned rank, const struct sint *dims);
struct sint *val_dims(const struct graph *, uint32_t val);
uint32_t node_new(struct graph *, unsigned op, uint32_t narg, uint32_t nout);     /* outputs are values 0 until set */
void node_place(struct graph *, uint32_t n, uint32_t like);                       /* n stands where like does: its name, modes, modality, scope, statement */
uint32_t node_beside(struct graph *, unsigned op, uint32_t like, uint32_t nout);  /* a new one, with its row's arguments, that stands there */
uint32_t node_applied(struct graph *, unsigned op, uint32_t x, uint32_t like, const char *suffix);       /* likewise, on x; its result has x's type */
struct arg *node_args(const struct graph *, uint32_t node);
struct arg *node_arg(const struct graph *, uint32_t node, const char *name);      /* NULL = the operator has none of that name */
uint32_t *node_outs(const struct graph *, uint32_t node);
uint32_t ids_add(struct graph *, const uint32_t *ids, uint32_t n);                /* index of the first */
uint32_t ints_add(struct graph *, const struct sint *, uint32_t n);
uint32_t floats_add(struct graph *, const double *, uint32_t n);
struct arg arg_val(uint32_t val);
struct arg arg_int(int64_t);
struct arg arg_bool(bool);
struct arg arg_float(double);
struct arg arg_dtype(unsigned);
struct arg arg_ints(struct graph *, const int64_t *, uint32_t n);
uint32_t scope_add(struct graph *, uint32_t parent, struct str path, struct str cls, uint32_t call);
uint32_t scope_at(const struct graph *, uint32_t scope, unsigned depth);          /* the ancestor at that depth */
struct str scope_path(const struct graph *, uint32_t scope);
void graph_note(struct graph *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));     /* once for each text */
void graph_input(struct graph *, uint32_t val);
void graph_output(struct graph *, uint32_t val);
void graph_splice(struct graph *, uint32_t first, const uint32_t *behind);       /* nodes from first on move behind those nodes; 0 = to the front */
void val_ints(struct graph *, uint32_t val, const struct sint *, uint32_t n);      /* what its elements are */
void val_floats(struct graph *, uint32_t val, const double *, uint32_t n);
void graph_compact(struct graph *);                               /* drop dead nodes, keep the order */
bool graph_is_sized(const struct graph *, uint32_t val);
bool graph_same_dims(const struct graph *, uint32_t a, uint32_t b);       /* known, and equal */
bool arg_is_tensor(const struct arg *);

/* every tensor operand of a node, lists opened: for (struct operands it = operands_of(g, n); operand_next(&it);) use it.val */
struct operands {
	const struct graph *g;
	uint32_t node, arg, elem, val;
	uint32_t *slot;            /* where the operand stands, so that a pass may replace it */
};
struct operands operands_of(const struct graph *, uint32_t node);
bool operand_next(struct operands *);

/* ---- verify.c, print.c --------------------------------------------------------------------------------- */

bool graph_verify(struct graph *, const char *after);             /* structure; reports what is wrong as an internal error */
void graph_print(const struct graph *, struct buf *);

/* ---- geom.c: shapes and strides as ATen computes them ---------------------------------------------------- */

struct geoms;                      /* table of interned geometries */
struct geoms *geoms_new(struct arena *);
const struct geom *geom_intern(struct geoms *, struct geom);      /* fills numel, contiguous, dense */
void geom_contiguous(struct geom *);                              /* row-major strides for dim[] */
#define GEOM_MOST (INT64_MAX / 64)     /* sums of a few do not overflow, and no memory has as many elements */
int64_t geom_bounded(int64_t);
int64_t geom_times(int64_t, int64_t);  /* of dims and strides, bounded */
bool geom_view(const struct geom *, unsigned rank, const int64_t *dim, int64_t *stride);
bool geom_broadcast(struct geom *out, const struct geom *const *, unsigned n);     /* rank and dims; false: they do not fit */
void geom_elementwise(struct geom *out, const struct geom *const *, unsigned n);  /* strides of an elementwise result, dims given */
void geom_like(struct geom *out, const struct geom *);            /* empty_like: dense operands keep their strides */
bool geom_channels_last(const struct geom *);
void geom_set_channels_last(struct geom *);                       /* strides for dim[], rank 4 or 5 */
bool geom_same_layout(const struct geom *, const struct geom *);  /* equal strides, dims of size 1 ignored */
uint64_t geom_nbytes(const struct geom *);

struct promotion {                 /* result dtype of an operation, as ATen's result_type collects it */
	unsigned dim, zero, wrapped;       /* of tensors with dims, of 0-dim tensors, of Python numbers */
};
void promote_tensor(struct promotion *, const struct geom *);
void promote_number(struct promotion *, unsigned dtype);
unsigned promote_result(const struct promotion *);
unsigned dtype_promote(unsigned a, unsigned b);

/* ---- schedule.c ---------------------------------------------------------------------------------------- */

struct schedule *schedule_new(struct ctx *);
uint32_t schedule_alloc(struct schedule *, uint64_t nbytes);      /* a new storage, and its event */
void schedule_free(struct schedule *, uint32_t storage);
void schedule_span(struct schedule *, unsigned step, unsigned phase, uint32_t micro);
const char *phase_name(unsigned);
const char *factor_name(unsigned);
const char *modality_name(unsigned);

/* ---- device.c ------------------------------------------------------------------------------------------- */

const struct device *device_at(int64_t);                          /* the recipe's choice; NULL: 0, or behind the last */
bool device_workspace(unsigned sm, unsigned minor, uint64_t *cublas, uint64_t *lt);        /* of PyTorch 2.minor */

/* ---- recipe.c ------------------------------------------------------------------------------------------- */

struct key_info {
	const char *name;          /* dotted: "lora.r" */
	uint8_t type;
	const char *choices;       /* CHOICE: separated by '|' */
	const char *dflt, *help;
};
const struct key_info *key_info(unsigned key);
unsigned key_by_name(struct str);
void recipe_init(struct recipe *);
struct recipe *recipe_copy(struct arena *, const struct recipe *);
bool recipe_set_text(struct ctx *, struct recipe *, unsigned key, struct str text);        /* as a flag gives it */
bool recipe_set_dim(struct ctx *, struct recipe *, struct str name, int64_t value);
struct str choice_text(unsigned key, int64_t index);
bool recipe_matches(const struct recipe *, unsigned key, struct str name);                 /* any pattern of a LIST */
struct str recipe_key_list(struct ctx *);                         /* for messages */
bool parse_bytes(struct str, int64_t *);                          /* "80GiB", "512MiB", "1000" */

#endif
