/* Expressions of code/....py (formats.md 2.5). There are no operators in the emitted code; everything is a call. */
#include "script.h"

struct term *
term_new(struct lexer *l, enum term_kind kind)
{
	struct term *t = NEW(l->c->a, struct term, 1);

	t->kind = (uint8_t)kind;
	t->line = l->line;
	return t;
}

/* ---- lists of expressions -------------------------------------------------------------------------------------- */

void
kids_add(struct lexer *l, struct kids *k, struct term *t)
{
	ROOM(l->c->a, k->p, k->n, k->cap, 1);
	k->p[k->n++] = t;
}

void
kids_set(struct term *t, const struct kids *k)
{
	t->kid = k->p;
	t->n = k->n;
}

/* Up to the closing bracket, with a comma between two and maybe one behind the last. comma: was there one before / behind? */
static bool
parse_list(struct lexer *l, const char *close, struct kids *k, bool *comma)
{
	while (!lex_accept(l, close)) {
		struct term *t;

		if (k->n && !*comma)
			return lex_expect(l, close);
		if (!term_parse(l, &t))
			return false;
		kids_add(l, k, t);
		*comma = lex_accept(l, ",");
	}
	return true;
}

static bool
parse_dict(struct lexer *l, struct term **out)
{
	struct kids k = {0};
	bool comma = true;

	*out = term_new(l, TERM_DICT);
	while (!lex_accept(l, "}")) {
		struct term *key, *value;

		if (!comma)
			return lex_expect(l, "}");
		if (!term_parse(l, &key) || !lex_expect(l, ":") || !term_parse(l, &value))
			return false;
		kids_add(l, &k, key);
		kids_add(l, &k, value);
		comma = lex_accept(l, ",");
	}
	kids_set(*out, &k);
	return true;
}

/* "(e)" is e itself, "(e,)" and "()" are tuples. */
static bool
parse_parentheses(struct lexer *l, struct term **out)
{
	struct term *t = term_new(l, TERM_TUPLE);
	struct kids k = {0};
	bool comma = false;

	if (!parse_list(l, ")", &k, &comma))
		return false;
	kids_set(t, &k);
	*out = k.n == 1 && !comma ? k.p[0] : t;
	return true;
}

/* ---- expressions --------------------------------------------------------------------------------------------------- */

static bool
parse_atom(struct lexer *l, struct term **out)
{
	struct kids k = {0};
	struct str w;
	bool comma = false;

	if (lex_accept(l, "("))
		return parse_parentheses(l, out);
	if (lex_accept(l, "{"))
		return parse_dict(l, out);
	if (lex_accept(l, "[")) {
		*out = term_new(l, TERM_LIST);
		if (!parse_list(l, "]", &k, &comma))
			return false;
		kids_set(*out, &k);
		return true;
	}
	*out = term_new(l, TERM_NAME);
	if (lex_is(l, "\"") || lex_is(l, "'")) {
		(*out)->kind = TERM_STR;
		return lex_string(l, &(*out)->name);
	}
	if (lex_is(l, "-inf")) {
		lex_accept(l, "-inf");
		(*out)->kind = TERM_FLOAT;
		(*out)->u.f = -1e308;
		return true;
	}
	if (lex_is(l, "-") || (l->at < l->s.n && ((l->s.p[l->at] >= '0' && l->s.p[l->at] <= '9') || l->s.p[l->at] == '.')))
		return lex_number(l, *out);
	w = lex_word(l);
	if (!w.n)
		return lex_expect(l, "an expression");
	(*out)->name = lex_intern(l, w);
	return true;
}

static bool
parse_arguments(struct lexer *l, struct kids *k)
{
	bool comma = true;

	while (!lex_accept(l, ")")) {
		struct term *t;
		uint32_t keyword = 0;

		if (!comma)
			return lex_expect(l, ")");
		if (!term_parse(l, &t))
			return false;
		if (t->kind == TERM_NAME && lex_is(l, "=") && !lex_is(l, "==")) {
			lex_accept(l, "=");
			keyword = t->name;
			if (!term_parse(l, &t))
				return false;
		}
		if (keyword) {     /* a shared term must not carry it */
			struct term *own = term_new(l, TERM_NAME);

			*own = *t;
			own->keyword = keyword;
			t = own;
		}
		kids_add(l, k, t);
		comma = lex_accept(l, ",");
	}
	return true;
}

/* "[i]", "[a:b]", and in types "[K, V]" */
static bool
parse_subscript(struct lexer *l, struct term *base, struct term **out)
{
	struct term *from = NULL, *to = NULL, *all;
	struct kids k = {0};
	bool comma = true;

	*out = term_new(l, TERM_INDEX);
	kids_add(l, &k, base);
	if (!lex_is(l, ":") && !term_parse(l, &from))
		return false;
	if (lex_accept(l, ":")) {
		(*out)->kind = TERM_SLICE;
		if (!lex_is(l, "]") && !term_parse(l, &to))
			return false;
		kids_add(l, &k, from);
		kids_add(l, &k, to);
		kids_set(*out, &k);
		return lex_expect(l, "]");
	}
	if (lex_accept(l, ",")) {
		struct kids types = {0};

		all = term_new(l, TERM_TUPLE);
		kids_add(l, &types, from);
		if (!parse_list(l, "]", &types, &comma))
			return false;
		kids_set(all, &types);
		from = all;
	} else if (!lex_expect(l, "]")) {
		return false;
	}
	kids_add(l, &k, from);
	kids_set(*out, &k);
	return true;
}

static bool
parse_suffix(struct lexer *l, struct term **t)
{
	struct term *u;
	struct kids k = {0};

	if (lex_accept(l, "[")) {
		if (!parse_subscript(l, *t, &u))
			return false;
	} else if (lex_accept(l, "(")) {
		u = term_new(l, TERM_CALL);
		kids_add(l, &k, *t);
		if (!parse_arguments(l, &k))
			return false;
		kids_set(u, &k);
	} else {
		u = term_new(l, TERM_ATTR);
		lex_accept(l, ".");
		u->name = lex_intern(l, lex_word(l));
		if (!u->name)
			return lex_expect(l, "the name of an attribute");
		kids_add(l, &k, *t);
		kids_set(u, &k);
	}
	*t = u;
	return true;
}

bool
term_parse(struct lexer *l, struct term **out)
{
	unsigned links = 0;
	uint32_t at;

	lex_space(l);
	at = l->at;
	if (!lex_enter(l) || !parse_atom(l, out))
		return false;
	while (lex_is(l, ".") || lex_is(l, "[") || lex_is(l, "(")) {
		if (++links > l->c->lim.depth)     /* evaluating a chain recurses */
			return lex_fail(l, "expressions or blocks are nested too deeply");
		if (!parse_suffix(l, out))
			return false;
		(*out)->at = at;
	}
	l->depth--;
	return true;
}
