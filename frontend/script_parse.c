/*
 * The parser of code/....py (formats.md 2.5): classes with their slots, functions, statements; script_term.c has the expressions. Types are
 * parsed as expressions and dropped where nothing depends on them.
 */
#include "script.h"

#include <string.h>

/* ---- statements ------------------------------------------------------------------------------------------------------ */

static bool parse_block(struct lexer *, uint32_t outer, struct stmt **);
static bool parse_func(struct lexer *, uint32_t indent, struct func **);

static struct stmt *
new_stmt(struct lexer *l, enum stmt_kind kind)
{
	struct stmt *s = NEW(l->c->a, struct stmt, 1);

	s->kind = (uint8_t)kind;
	s->line = l->line;
	return s;
}

static void
one_name(struct lexer *l, struct stmt *s, uint32_t id)
{
	s->names = NEW(l->c->a, uint32_t, 1);
	s->names[0] = id;
	s->nname = 1;
}

/* The right side behind several targets. */
static bool
parse_values(struct lexer *l, struct stmt *s, bool comma)
{
	struct kids k = {0};
	struct term *t;

	do {
		if (!term_parse(l, &t))
			return false;
		kids_add(l, &k, t);
	} while (lex_accept(l, ","));
	s->value = t;
	s->form = s->nname > 1 ? ASSIGN_RESULTS : ASSIGN_ONE;
	if (comma && k.n == 1)
		s->form = ASSIGN_UNPACK;
	if (k.n > 1) {
		if (k.n != s->nname)
			return lex_fail(l, "an assignment has not as many values as targets");
		s->form = ASSIGN_PARALLEL;
		s->value = term_new(l, TERM_TUPLE);
		kids_set(s->value, &k);
	}
	return true;
}

static bool
parse_targets(struct lexer *l, struct term *first, struct stmt *s)
{
	uint32_t cap = 0;
	bool comma = false;

	s->kind = STMT_ASSIGN;
	for (struct term *t = first;;) {
		if (t->kind != TERM_NAME)
			return lex_fail(l, "something that is no name is assigned to");
		ROOM(l->c->a, s->names, s->nname, cap, 1);
		s->names[s->nname++] = t->name;
		comma = lex_accept(l, ",");
		if (!comma || lex_is(l, "="))
			break;
		if (!term_parse(l, &t))
			return false;
	}
	s->python = NEW(l->c->a, uint32_t, s->nname);
	return lex_expect(l, "=") && parse_values(l, s, comma);
}

/* "name : T = e" */
static bool
parse_annotated(struct lexer *l, struct term *name, struct stmt *s)
{
	struct term *type;

	if (name->kind != TERM_NAME || !term_parse(l, &type) || !lex_expect(l, "="))
		return false;
	s->kind = STMT_ASSIGN;
	one_name(l, s, name->name);
	s->python = NEW(l->c->a, uint32_t, 1);
	return term_parse(l, &s->value);
}

static bool
parse_simple(struct lexer *l, struct stmt **out)
{
	struct stmt *s = *out = new_stmt(l, STMT_EXPR);
	struct term *t;
	bool ok = true;

	if (!term_parse(l, &t))
		return false;
	if (lex_accept(l, ":")) {
		ok = parse_annotated(l, t, s);
	} else if (t->kind == TERM_ATTR && lex_is(l, "=")) {
		s->kind = STMT_SET;
		s->target = t;
		ok = lex_accept(l, "=") && term_parse(l, &s->value);
	} else if (lex_is(l, ",") || lex_is(l, "=")) {
		ok = parse_targets(l, t, s);
	} else {
		s->value = t;
	}
	return ok && lex_line_end(l);
}

static bool
parse_if(struct lexer *l, uint32_t indent, struct stmt *s)
{
	s->kind = STMT_IF;
	if (!term_parse(l, &s->value) || !lex_expect(l, ":") || !parse_block(l, indent, &s->body))
		return false;
	if (lex_indent(l) != indent || !lex_accept_word(l, "else"))
		return true;
	return lex_expect(l, ":") && parse_block(l, indent, &s->orelse);
}

static bool
parse_for(struct lexer *l, uint32_t indent, struct stmt *s)
{
	s->kind = STMT_FOR;
	one_name(l, s, lex_intern(l, lex_word(l)));
	if (!lex_accept_word(l, "in") || !lex_accept_word(l, "range"))
		return lex_expect(l, "in range");
	return term_parse(l, &s->value) && lex_expect(l, ":") && parse_block(l, indent, &s->body);
}

static bool
parse_while(struct lexer *l, uint32_t indent, struct stmt *s)
{
	s->kind = STMT_WHILE;
	return term_parse(l, &s->value) && lex_expect(l, ":") && parse_block(l, indent, &s->body);
}

static bool
parse_with(struct lexer *l, uint32_t indent, struct stmt *s)
{
	s->kind = STMT_WITH;
	if (!term_parse(l, &s->value))
		return false;
	if (lex_accept_word(l, "as"))
		one_name(l, s, lex_intern(l, lex_word(l)));
	return lex_expect(l, ":") && parse_block(l, indent, &s->body);
}

static bool
parse_stmt(struct lexer *l, uint32_t indent, struct stmt **out)
{
	struct stmt *s = *out = new_stmt(l, STMT_PASS);

	if (lex_accept_word(l, "if"))
		return parse_if(l, indent, s);
	if (lex_accept_word(l, "for"))
		return parse_for(l, indent, s);
	if (lex_accept_word(l, "while"))
		return parse_while(l, indent, s);
	if (lex_accept_word(l, "with"))
		return parse_with(l, indent, s);
	if (lex_accept_word(l, "pass"))
		return lex_line_end(l);
	if (lex_accept_word(l, "def")) {
		s->kind = STMT_DEF;
		return parse_func(l, indent, &s->def);
	}
	if (lex_accept_word(l, "return")) {
		s->kind = STMT_RETURN;
		lex_space(l);
		return (l->at == l->s.n || l->s.p[l->at] == '\n' || term_parse(l, &s->value)) && lex_line_end(l);
	}
	return parse_simple(l, out);
}

/* The lines behind a colon that are further in than the line with the colon. */
static bool
parse_block(struct lexer *l, uint32_t outer, struct stmt **out)
{
	struct stmt **end = out;
	uint32_t indent;

	if (!lex_enter(l) || !lex_line_end(l))
		return false;
	indent = lex_indent(l);
	if (indent == UINT32_MAX || indent <= outer)
		return lex_fail(l, "a block is empty");
	do {
		if (!parse_stmt(l, indent, end))
			return false;
		end = &(*end)->next;
	} while (lex_indent(l) == indent);
	l->depth--;
	return true;
}

/* ---- functions -------------------------------------------------------------------------------------------------------- */

static bool
parse_param(struct lexer *l, struct func *f, uint32_t cap[3])
{
	struct term *type = NULL, *dflt = NULL;
	struct str name = lex_word(l);

	if (!name.n)
		return lex_expect(l, "the name of a parameter");
	if (lex_accept(l, ":") && !term_parse(l, &type))
		return false;
	if (lex_accept(l, "=") && !term_parse(l, &dflt))
		return false;
	ROOM(l->c->a, f->param, f->nparam, cap[0], 1);
	ROOM(l->c->a, f->dflt, f->nparam, cap[1], 1);
	ROOM(l->c->a, f->type, f->nparam, cap[2], 1);
	f->param[f->nparam] = lex_intern(l, name);
	f->type[f->nparam] = type;
	f->dflt[f->nparam++] = dflt;
	return true;
}

static bool
parse_func(struct lexer *l, uint32_t indent, struct func **out)
{
	struct func *f = *out = NEW(l->c->a, struct func, 1);
	uint32_t cap[3] = {0};
	struct term *type;

	f->line = l->line;
	f->name = lex_intern(l, lex_word(l));
	if (!f->name || !lex_expect(l, "("))
		return f->name ? false : lex_expect(l, "the name of a function");
	while (!lex_accept(l, ")")) {
		if (f->nparam && !lex_expect(l, ","))
			return false;
		if (lex_accept(l, ")"))
			break;
		if (!parse_param(l, f, cap))
			return false;
	}
	if (lex_accept(l, "->") && !term_parse(l, &type))
		return false;
	return lex_expect(l, ":") && parse_block(l, indent, &f->body);
}

/* ---- classes ------------------------------------------------------------------------------------------------------------ */

static void
add_name(struct lexer *l, struct names *n, uint32_t id)
{
	ROOM(l->c->a, n->id, n->n, n->cap, 1);
	n->id[n->n++] = id;
}

static struct names *
name_list(struct lexer *l, struct class_def *d, uint32_t name)
{
	struct str s = strtab_str(l->names, name);

	if (str_eq(s, S("__parameters__")))
		return &d->parameters;
	if (str_eq(s, S("__buffers__")))
		return &d->buffers;
	if (str_eq(s, S("__forward_pre_hooks__")))
		return &d->pre_hooks;
	return str_eq(s, S("__forward_hooks__")) ? &d->hooks : NULL;
}

/* "__parameters__ = [..]", "RED = 1", "name : Type", "name : Final[int] = 3", "__annotations__["0"] = Type" */
static bool
parse_member(struct lexer *l, struct class_def *d, struct kids *consts)
{
	struct term *t, *value = NULL;
	struct names *list;

	if (!term_parse(l, &t))
		return false;
	if (lex_accept(l, ":")) {
		if (!term_parse(l, &value))
			return false;
		add_name(l, &d->fields, t->name);
	}
	if (lex_accept(l, "=") && !term_parse(l, &value))
		return false;
	list = t->kind == TERM_NAME ? name_list(l, d, t->name) : NULL;
	for (uint32_t i = 0; list && value && i < value->n; i++)
		if (value->kid[i]->kind == TERM_STR)
			add_name(l, list, value->kid[i]->name);
	if (!list && t->kind == TERM_NAME && value) {
		t->kind = TERM_STR;
		kids_add(l, consts, t);
		kids_add(l, consts, value);
	}
	return lex_line_end(l);
}

static bool
parse_members(struct lexer *l, uint32_t indent, struct class_def *d)
{
	struct func **end = &d->funcs;
	struct kids consts = {0};

	do {
		if (lex_accept_word(l, "pass")) {
			if (!lex_line_end(l))
				return false;
		} else if (lex_accept_word(l, "def")) {
			if (!parse_func(l, indent, end))
				return false;
			end = &(*end)->next;
		} else if (!parse_member(l, d, &consts)) {
			return false;
		}
	} while (lex_indent(l) == indent);
	d->consts = term_new(l, TERM_DICT);
	kids_set(d->consts, &consts);
	return true;
}

static bool
parse_class(struct lexer *l, struct str module, struct class_def **out)
{
	struct class_def *d = *out = NEW(l->c->a, struct class_def, 1);
	struct str name = lex_word(l);
	uint32_t indent;

	d->name = lex_intern(l, str_fmt(l->c->a, "%.*s.%.*s", SFMT(module), SFMT(name)));
	if (lex_accept(l, "(")) {
		d->base = lex_intern(l, lex_word(l));
		if (!lex_expect(l, ")"))
			return false;
	}
	if (!lex_expect(l, ":") || !lex_line_end(l))
		return false;
	indent = lex_indent(l);
	return indent == UINT32_MAX || indent == 0 || parse_members(l, indent, d);
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

/* Until format 2: "op_version_set = 1", "import a.b". */
static void
skip_line(struct lexer *l)
{
	while (l->at < l->s.n && l->s.p[l->at] != '\n')
		l->at++;
}

bool
script_parse(struct ctx *c, struct strtab *names, struct code_file *f, struct str text, struct str module)
{
	struct lexer l = {.c = c, .names = names, .s = text, .line = 1};
	struct class_def **classes = &f->classes;
	struct func **funcs = &f->funcs;

	while (lex_indent(&l) != UINT32_MAX) {
		if (lex_accept_word(&l, "class")) {
			if (!parse_class(&l, module, classes))
				return false;
			classes = &(*classes)->next;
		} else if (lex_accept_word(&l, "def")) {
			if (!parse_func(&l, 0, funcs))
				return false;
			funcs = &(*funcs)->next;
		} else if (lex_accept_word(&l, "import") || lex_accept_word(&l, "op_version_set")) {
			skip_line(&l);
		} else {
			return lex_expect(&l, "class or def");
		}
	}
	for (struct class_def *d = f->classes; d; d = d->next)
		for (struct func *m = d->funcs; m; m = m->next)
			m->file = f;
	for (struct func *m = f->funcs; m; m = m->next)
		m->file = f;
	return true;
}
