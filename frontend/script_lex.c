/* Words of the Python subset in code/....py: identifiers, numbers, strings, indentation. Comments run to the end of their line. */
#include "script.h"

#include <stdlib.h>
#include <string.h>

bool
lex_fail(struct lexer *l, const char *why)
{
	diag(l->c, DIAG_SCRIPT, l->line, why);
	return false;
}

static char
peek(const struct lexer *l)
{
	return l->at < l->s.n ? l->s.p[l->at] : 0;
}

void
lex_space(struct lexer *l)
{
	for (;; l->at++) {
		char ch = peek(l);

		if (ch == '#')
			while (l->at + 1 < l->s.n && l->s.p[l->at + 1] != '\n')
				l->at++;
		else if (ch == '\n' && l->brackets && l->at < l->s.n)
			l->line++;
		else if (ch != ' ' && ch != '\t' && ch != '\r')
			return;
	}
}

static bool
is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80;
}

bool
lex_is(struct lexer *l, const char *text)
{
	size_t n = strlen(text);

	lex_space(l);
	return n <= l->s.n - l->at && memcmp(l->s.p + l->at, text, n) == 0;
}

bool
lex_accept(struct lexer *l, const char *text)
{
	if (!lex_is(l, text))
		return false;
	l->at += (uint32_t)strlen(text);
	if (strchr("([{", text[0]))
		l->brackets++;
	else if (strchr(")]}", text[0]) && l->brackets)
		l->brackets--;
	return true;
}

bool
lex_expect(struct lexer *l, const char *text)
{
	uint32_t n = l->s.n - l->at < 12 ? l->s.n - l->at : 12;

	if (lex_accept(l, text))
		return true;
	return lex_fail(l, str_fmt(l->c->a, "%s expected before \"%.*s\"", text, (int)n, l->s.p + l->at).p);
}

struct str
lex_word(struct lexer *l)
{
	uint32_t from;

	lex_space(l);
	from = l->at;
	while (l->at < l->s.n && is_word(l->s.p[l->at]))
		l->at++;
	return str_sub(l->s, from, l->at);
}

bool
lex_accept_word(struct lexer *l, const char *word)
{
	size_t n = strlen(word);

	if (!lex_is(l, word) || (l->at + n < l->s.n && is_word(l->s.p[l->at + n])))
		return false;
	l->at += (uint32_t)n;
	return true;
}

/* ---- strings ------------------------------------------------------------------------------------------------ */

static bool
is_octal(char c)
{
	return c >= '0' && c <= '7';
}

static char
escape(struct lexer *l)
{
	static const char from[] = "ntrabfv0", to[] = "\n\t\r\a\b\f\v";
	char ch = peek(l);
	const char *at = ch ? strchr(from, ch) : NULL;

	if (is_octal(ch) && l->at + 2 < l->s.n && is_octal(l->s.p[l->at + 1]) && is_octal(l->s.p[l->at + 2])) {
		ch = (char)((ch - '0') * 64 + (l->s.p[l->at + 1] - '0') * 8 + l->s.p[l->at + 2] - '0');
		l->at += 2;
		return ch;
	}
	return at && ch != '0' ? to[at - from] : ch;
}

/* Bytes up to the closing quote; 0 = there is none on this line. */
static uint32_t
string_length(const struct lexer *l, char quote)
{
	for (uint32_t i = l->at; i < l->s.n && l->s.p[i] != '\n'; i++) {
		if (l->s.p[i] == quote)
			return i - l->at + 1;
		i += l->s.p[i] == '\\';
	}
	return 0;
}

bool
lex_string(struct lexer *l, uint32_t *id)
{
	char *p, quote = peek(l);
	uint32_t n = 0, len, end;

	l->at++;
	len = string_length(l, quote);
	if (!len)
		return lex_fail(l, "a string has no end");
	p = NEW(l->c->a, char, len);
	end = l->at + len - 1;
	for (; l->at < end; l->at++) {
		char ch = l->s.p[l->at];

		if (ch == '\\') {
			l->at++;
			ch = escape(l);
		}
		p[n++] = ch;
	}
	l->at = end + 1;
	*id = strtab_id(l->names, (struct str){p, n});
	return true;
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static uint32_t
digits(struct lexer *l)
{
	uint32_t from = l->at;

	while (peek(l) >= '0' && peek(l) <= '9')
		l->at++;
	return l->at - from;
}

static void
exponent(struct lexer *l)
{
	uint32_t from = l->at;

	if ((peek(l) | 32) != 'e')
		return;
	l->at++;
	if (peek(l) == '+' || peek(l) == '-')
		l->at++;
	if (!digits(l))
		l->at = from;
}

/* "3.-4.j": of a complex number the real part is kept; no size depends on it. */
static void
imaginary(struct lexer *l, struct term *t)
{
	uint32_t from = l->at;

	if (peek(l) == 'j') {
		l->at++;
		t->kind = TERM_FLOAT;
		return;
	}
	if (peek(l) != '+' && peek(l) != '-')
		return;
	l->at++;
	digits(l);
	if (peek(l) == '.')
		l->at++;
	digits(l);
	exponent(l);
	if (peek(l) == 'j')
		l->at++;
	else
		l->at = from;
}

bool
lex_number(struct lexer *l, struct term *t)
{
	uint32_t from;
	bool minus = lex_accept(l, "-"), real = false;
	char text[64];

	lex_space(l);
	from = l->at;
	digits(l);
	if (peek(l) == '.') {
		real = true;
		l->at++;
		digits(l);
	}
	if ((peek(l) | 32) == 'e') {
		real = true;
		exponent(l);
	}
	if (l->at == from || l->at - from >= sizeof text)
		return lex_fail(l, "a number is malformed");
	memcpy(text, l->s.p + from, l->at - from);
	text[l->at - from] = 0;
	t->kind = real ? TERM_FLOAT : TERM_INT;
	if (real)
		t->u.f = minus ? -strtod(text, NULL) : strtod(text, NULL);
	else if (!str_int(str_sub(l->s, from, l->at), &t->u.i))
		return lex_fail(l, "a whole number has more than 63 bits");
	else if (minus)
		t->u.i = -t->u.i;
	imaginary(l, t);
	return true;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

bool
lex_line_end(struct lexer *l)
{
	lex_space(l);
	if (l->at == l->s.n)
		return true;
	if (l->s.p[l->at] != '\n')
		return lex_expect(l, "the end of the line");
	l->at++;
	l->line++;
	return true;
}

/* Between two statements only; the line's own spaces are skipped, and asking again gives the same answer. */
uint32_t
lex_indent(struct lexer *l)
{
	uint32_t n = 0;

	for (lex_space(l); l->at < l->s.n && l->s.p[l->at] == '\n'; lex_space(l)) {
		l->at++;
		l->line++;
	}
	if (l->at == l->s.n)
		return UINT32_MAX;
	while (n < l->at && l->s.p[l->at - n - 1] != '\n')
		n++;
	return n;
}

/* Nested expressions and blocks may not be deeper than anything else. */
bool
lex_enter(struct lexer *l)
{
	if (++l->depth <= l->c->lim.depth)
		return true;
	return lex_fail(l, "expressions or blocks are nested too deeply");
}

uint32_t
lex_intern(struct lexer *l, struct str s)
{
	return strtab_id(l->names, s);
}
