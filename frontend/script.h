/*
 * What the parts of the TorchScript frontend share (formats.md section 2 has the format).
 *
 *   code/....py ──script_lex.c, script_parse.c──► classes and functions ─┐
 *   data.pkl, constants.pkl ──pickle.c──► values ──script_object.c───────┴─► forward, run by script_run.c ──► graph
 *
 * "Running" is inlining: names stand for values of the graph, for numbers, lists and modules that are known now, or for numbers that
 * only sizes decide, which become nodes that passes/raise/infer.c evaluates.
 */
#ifndef MC_SCRIPT_H
#define MC_SCRIPT_H

#include "frontend.h"
#include "pickle.h"

/* ---- code (script_lex.c, script_term.c, script_parse.c) --------------------------------------------------------------------- */

enum term_kind { TERM_NAME, TERM_INT, TERM_FLOAT, TERM_STR, TERM_ATTR, TERM_INDEX, TERM_SLICE, TERM_CALL, TERM_TUPLE, TERM_LIST, TERM_DICT };

struct term {                      /* an expression */
	uint8_t kind;
	uint32_t line;
	uint32_t at;               /* CALL: where it begins in the file */
	uint32_t name;             /* NAME, ATTR; STR: the text; interned */
	uint32_t keyword;          /* as an argument of a call: its name, 0 = by position */
	uint32_t n;                /* kids */
	struct term **kid;         /* ATTR: object; INDEX: object, index; SLICE: object, from, to (NULL = open); CALL: function, arguments; DICT: key, value, .. */
	union {
		int64_t i;
		double f;
	} u;
};

enum stmt_kind { STMT_PASS, STMT_EXPR, STMT_ASSIGN, STMT_SET, STMT_IF, STMT_WHILE, STMT_FOR, STMT_WITH, STMT_DEF, STMT_RETURN };
enum assign_form {
	ASSIGN_ONE,                /* a = e */
	ASSIGN_RESULTS,            /* a, b = e: an operator with two results */
	ASSIGN_UNPACK,             /* a, b, = e: the elements of a list or tuple */
	ASSIGN_PARALLEL            /* a, b = e, f */
};

struct stmt {
	uint8_t kind, form;
	uint32_t line;
	uint32_t nname, *names;    /* ASSIGN; FOR, WITH: one or none */
	uint32_t *python;          /* ASSIGN: the names without what makes them unique, 0 = there was none; set when a trace's function first runs */
	struct term *value;        /* right side (PARALLEL: a TUPLE), condition, count, result; NULL = none */
	struct term *target;       /* SET: the attribute */
	struct stmt *body, *orelse;
	struct func *def;
	struct stmt *next;
};

struct func {
	uint32_t name, line;
	uint32_t nparam, *param;
	struct term **dflt;        /* NULL = required */
	struct term **type;        /* NULL = not said: a tensor */
	struct stmt *body;
	struct code_file *file;
	bool named;                /* python of its statements is set */
	struct func *next;
};

struct names {
	uint32_t n, cap, *id;
};

struct class_def {
	uint32_t name;             /* qualified: "__torch__.m.Net" */
	uint32_t base;
	struct names parameters, buffers, pre_hooks, hooks, fields;
	struct term *consts;       /* of an enum: a DICT of name and value */
	struct func *funcs;
	struct class_def *next;
};

struct code_file {
	struct str path;           /* in the archive */
	struct source_map *map;    /* where its code comes from */
	bool tried;                /* to read that */
	struct class_def *classes;
	struct func *funcs;
	struct code_file *next;
};

struct lexer {
	struct ctx *c;
	struct strtab *names;
	struct str s;              /* the file */
	uint32_t at, line;
	unsigned brackets;         /* open ones: a newline inside of them is a space */
	unsigned depth;            /* of nested expressions and blocks */
};

/* script_lex.c */
bool lex_fail(struct lexer *, const char *why);
void lex_space(struct lexer *);
bool lex_is(struct lexer *, const char *text);                   /* is it next? */
bool lex_accept(struct lexer *, const char *text);
bool lex_expect(struct lexer *, const char *text);
struct str lex_word(struct lexer *);                             /* an identifier; empty if there is none */
bool lex_accept_word(struct lexer *, const char *word);
bool lex_string(struct lexer *, uint32_t *id);
bool lex_number(struct lexer *, struct term *);
bool lex_line_end(struct lexer *);
uint32_t lex_indent(struct lexer *);                             /* of the next line that is not empty; UINT32_MAX at the end */

bool lex_enter(struct lexer *);                                  /* an expression or block; who leaves it takes 1 from depth */
uint32_t lex_intern(struct lexer *, struct str);

/* script_term.c */
struct kids {                      /* expressions of a list, while it is read */
	struct term **p;
	uint32_t n, cap;
};
struct term *term_new(struct lexer *, enum term_kind);
bool term_parse(struct lexer *, struct term **);
void kids_add(struct lexer *, struct kids *, struct term *);
void kids_set(struct term *, const struct kids *);

/* script_parse.c */
bool script_parse(struct ctx *, struct strtab *, struct code_file *, struct str text, struct str module);    /* module: "__torch__.a.b", names are put behind it */

/* ---- things: what names stand for while forward is run (script_thing.c) ------------------------------------------ */

enum thing_kind {
	THING_UNKNOWN,             /* nothing in memory depends on it, or it is not understood */
	THING_NONE, THING_INT, THING_FLOAT, THING_BOOL, THING_STR, THING_TENSOR, THING_LIST, THING_TUPLE, THING_DICT,
	THING_OBJECT,              /* a module, or an instance of a script class */
	THING_CLASS, THING_FUNC,
	THING_EITHER               /* None or not, this text or that, as a condition will say */
};

struct thing {
	uint8_t kind;
	uint32_t val;              /* TENSOR; INT, FLOAT, BOOL that only sizes or data decide: the graph's value; 0 = known now; STR: 1 = only how long it is at least */
	union {
		int64_t i;
		double f;
		bool b;
		struct str s;
		struct items *items;       /* LIST, TUPLE, DICT */
		struct object *object;
		struct class_def *cls;
		struct closure *fn;
		struct either *either;
	} u;
};

struct items {                     /* shared by all names of one list */
	struct thing *at;       uint32_t n, cap;         /* a DICT has key and value in turn */
	uint32_t val;              /* a list whose length is not known now: the graph's value */
	uint32_t region;           /* how many open branches there were when it was made */
	uint32_t input;            /* a DICT that forward takes, whose entries are made when they are read: its name, interned; 0 = none */
	const struct term *of;     /* type of those */
};

struct object {
	struct class_def *cls;
	struct str path;           /* of a module, from the root */
	uint32_t *slot_name;    uint32_t nslot, name_cap, thing_cap;
	struct thing *slot;
	bool is_module;
	uint32_t ncall;            /* of its forward, so far */
};

struct closure {
	struct func *fn;
	struct object *self;       /* of a method */
	struct locals *up;          /* of a nested function: where its free names are */
};

struct either {
	struct thing cond, then, otherwise;
};

struct locals {
	struct func *fn;
	uint32_t *name;         uint32_t n, cap, thing_cap;
	struct thing *thing;
	struct locals *up;          /* of the function around a nested one */
	struct thing result;
	bool returned;
	bool forward;              /* of the innermost module */
};

#define MAX_ELEMENTS LIMIT(1000000u, 8u)      /* of one list; of all, four times that */

struct script {
	struct ctx *c;
	struct graph *g;
	struct zip_archive *z;
	struct code_file *files;
	struct class_def **class_of;    uint32_t class_cap;      /* by interned qualified name */
	struct func **func_of;          uint32_t func_cap;
	bool *tried;                    uint32_t tried_cap;      /* modules whose file was looked for */
	struct thing *consts;           uint32_t nconst;
	struct thing *const_values;     /* per constant: the LIST of its few whole numbers, if it is such a tensor */
	struct strtab *storages;
	const char *space;         /* folder of the storages of the pickle being read */
	uint32_t *owner;                uint32_t owner_cap;      /* first parameter or buffer by storage */
	struct locals *frame;
	struct object *module;     /* innermost one whose forward runs */
	uint32_t scope;
	bool no_grad, is_traced, is_frozen;
	uint32_t line;             /* of the running statement */
	const struct code_place *at;      /* the call that runs, NULL = not known */
	struct frame *lines;    uint32_t line_cap;       /* by depth of modules: the statement that each forward runs */
	uint64_t source_lines;     /* looked at so far */
	uint32_t depth;            /* of calls */
	uint32_t nest;             /* of expressions and, twice, blocks, over all calls: what they take of the stack */
	uint32_t region;           /* branches around that are not decided yet */
	uint64_t steps, elements;  /* statements run, elements of lists made */
};

/* script_thing.c */
bool script_fail(struct script *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));   /* with file and line; returns false */
struct thing thing_none(void);
struct thing thing_int(int64_t);
struct thing thing_float(double);
struct thing thing_bool(bool);
struct thing thing_str(struct str);
struct thing thing_tensor(uint32_t val);
struct thing thing_items(struct script *, enum thing_kind, const struct thing *, uint32_t n);
void items_add(struct script *, struct items *, struct thing);
bool thing_is_number(const struct thing *);                      /* INT, FLOAT or BOOL, known or not */
bool thing_is_known(const struct thing *);                       /* a number, text or None that is known now */
struct number thing_number(const struct thing *);
struct thing thing_of_number(struct number);
bool thing_equal(const struct thing *, const struct thing *, bool *known);
struct thing *object_slot(struct object *, uint32_t name);       /* NULL = none */
void object_set(struct script *, struct object *, uint32_t name, struct thing);

/* script_object.c: from the pickles */
struct class_def *script_class(struct script *, struct str qualified);   /* NULL = not in the archive, or an error was reported */
struct func *script_func(struct script *, struct str qualified);
struct func *class_func(const struct class_def *, uint32_t name);
bool script_thing(struct script *, struct pickle *, struct str path, unsigned depth, struct thing *);
bool script_constants(struct script *);
struct str script_display(struct script *, struct str qualified);        /* without "__torch__." and "___torch_mangle_N." */

/* script_input.c: what forward is called with; an entry of args for each parameter behind self */
bool script_inputs(struct script *, const struct func *, struct thing *args);
struct thing script_input_entry(struct script *, struct items *dict, const struct thing *key);   /* one that is not there yet */
bool script_outputs(struct script *, const struct thing *);

/* script_run.c */
bool script_call(struct script *, struct closure, const struct thing *args, const uint32_t *keyword, uint32_t n, struct thing *out);
bool script_block(struct script *, const struct stmt *);
bool script_may_nest(const struct script *, uint32_t more);
struct thing *local_find(struct script *, uint32_t name);
void local_set(struct script *, uint32_t name, struct thing);
bool script_assign(struct script *, const struct stmt *);

/* script_eval.c */
bool script_eval(struct script *, const struct term *, uint32_t results, struct thing *);       /* results: targets that an operator's results go to */
struct str term_path(struct script *, const struct term *);     /* "torch.add"; empty if it begins with a local name or is none */
bool script_attribute(struct script *, const struct thing *, struct str name, struct thing *);

/* script_call.c */
bool script_call_term(struct script *, const struct term *, uint32_t results, struct thing *);

/* script_builtin.c: functions on numbers, lists and text; false in *found: none of that name for such arguments */
struct args {
	struct thing *at;
	uint32_t *keyword;         /* 0 = by position */
	uint32_t n, npos;
};
const struct thing *args_get(const struct script *, const struct args *, uint32_t pos, const char *keyword);    /* NULL = not given */
bool script_builtin(struct script *, struct str name, const struct args *, struct thing *, bool *found);
struct thing script_math(struct script *, const char *what, struct thing a, struct thing b);
struct thing script_measure(struct script *, const char *what, struct thing of, struct thing index, enum thing_kind);
struct thing script_get(struct script *, struct thing list, struct thing index);

/* script_text.c */
bool thing_is_text(const struct thing *);
bool script_text(struct script *, struct str name, const struct args *, struct thing *out);        /* false: no such function */

/* script_list.c */
bool script_unpack(struct script *, struct thing from, uint32_t n, struct thing *);
struct thing script_list(struct script *, enum thing_kind, const struct thing *, uint32_t n);   /* a literal */
bool script_list_call(struct script *, struct str name, const struct args *, struct thing *, bool *found);
bool list_unfix(struct script *, struct items *);               /* its elements go into the graph */

/* script_aten.c */
bool script_operator(struct script *, struct str target, struct str name, const struct args *, uint32_t results, struct thing *);
bool script_quantized(struct script *, struct str name, const struct args *, uint32_t results, struct thing *);
uint32_t script_node(struct script *, unsigned op, struct str target, uint32_t narg, uint32_t nout);
uint32_t script_result(struct script *, uint32_t node, uint32_t k);
struct arg script_arg(struct script *, const struct thing *, struct str param);

/* script_source.c: where the code comes from, by the .debug_pkl members */
bool script_enter_call(struct script *, const struct term *call);        /* it is about to run; its arguments are there */
void script_place(struct script *, uint32_t node);               /* the node belongs to that call */
void script_first_use(struct script *, const struct args *);     /* by that call */
void script_local(struct script *, const struct stmt *, uint32_t i, const struct thing *);       /* its i-th name is bound */

/* script_branch.c */
bool script_if(struct script *, const struct stmt *);
bool script_loop(struct script *, const struct stmt *);

#endif
