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

/* ---- code (script_lex.c, script_parse.c) --------------------------------------------------------------------- */

enum term_kind { TERM_NAME, TERM_INT, TERM_FLOAT, TERM_STR, TERM_ATTR, TERM_INDEX, TERM_SLICE, TERM_CALL, TERM_TUPLE, TERM_LIST, TERM_DICT };

struct term {                      /* an expression */
	uint8_t kind;
	uint32_t line;
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
	struct stmt *body;
	struct code_file *file;
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

/* script_parse.c */
bool script_parse(struct ctx *, struct strtab *, struct code_file *, struct str text, struct str module);    /* module: "__torch__.a.b", names are put behind it */

#endif
