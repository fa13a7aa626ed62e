/* What a source line of a stack trace says. */
#include "source_line.h"

#include <string.h>

bool
line_target_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("_ \t,.[]\"'()*", c);
}

bool
line_name_char(char c)
{
	return line_target_char(c) && !strchr(" \t,.[]\"'()*", c);
}

/* "f(x), mask=mask": another name with a value, outside of brackets. */
static bool
names_another(struct str text)
{
	int depth = 0;

	for (uint32_t i = 0; i < text.n; i++) {
		depth += text.p[i] == '(' || text.p[i] == '[';
		depth -= text.p[i] == ')' || text.p[i] == ']';
		if (depth || text.p[i] != ',')
			continue;
		while (i + 1 < text.n && (text.p[i + 1] == ' ' || line_name_char(text.p[i + 1])))
			i++;
		if (i + 1 < text.n && text.p[i + 1] == '=' && line_name_char(text.p[i]))
			return true;
	}
	return false;
}

/*
 * "x=self.norm(x)," on a line of its own is an argument of the call that began above; so is "self.norm(x), mask, causal=causal", and the first of
 * "x=self.norm(x), mask=mask".
 */
static bool
is_keyword(struct str text, int64_t eq)
{
	bool tight = text.p[eq - 1] != ' ' && eq + 1 < text.n && text.p[eq + 1] != ' ';
	struct str lhs = str_sub(text, 0, (uint32_t)eq);

	for (uint32_t i = 1; tight && i < lhs.n; i++)
		if (lhs.p[i] == '(' && line_name_char(lhs.p[i - 1]))
			return true;
	return tight && (str_ends(text, S(",")) || names_another(str_sub(text, (uint32_t)eq + 1, text.n)));
}

struct str
line_targets(struct str text)
{
	static const char *const not_binding[] = {"return", "if ", "for ", "assert", "while ", "elif ", "yield"};
	int64_t eq = str_find(text, '='), colon;
	struct str lhs;
	int depth = 0;

	for (size_t i = 0; i < sizeof not_binding / sizeof not_binding[0]; i++)
		if (str_starts(text, str_of(not_binding[i])))
			return S("");
	if (eq <= 0 || (eq + 1 < text.n && text.p[eq + 1] == '=') || is_keyword(text, eq))
		return S("");
	lhs = str_sub(text, 0, (uint32_t)eq);
	colon = str_find(lhs, ':');
	if (colon >= 0)
		lhs = str_sub(lhs, 0, (uint32_t)colon);
	for (uint32_t i = 0; i < lhs.n; i++) {
		if (!line_target_char(lhs.p[i]))
			return S("");
		depth += lhs.p[i] == '(' || lhs.p[i] == '[';
		depth -= lhs.p[i] == ')' || lhs.p[i] == ']';
	}
	return depth ? S("") : str_trim(lhs);
}

static int64_t
find_text(struct str s, const char *text)
{
	const char *at = s.n ? memmem(s.p, s.n, text, strlen(text)) : NULL;

	return at ? at - s.p : -1;
}

struct str
line_appends_to(struct str text)
{
	uint32_t n = 0;

	while (n < text.n && line_name_char(text.p[n]))
		n++;
	return n && str_starts(str_sub(text, n, text.n), S(".append(")) ? str_sub(text, 0, n) : S("");
}

struct str
line_dtype_of(struct str text)
{
	int64_t at = find_text(text, ".dtype"), from;
	struct str rest, name;

	if (at <= 0)
		return S("");
	rest = str_sub(text, (uint32_t)at + 1, text.n);
	for (from = at; from > 0 && line_name_char(text.p[from - 1]);)
		from--;
	name = str_sub(text, (uint32_t)from, (uint32_t)at);
	if (!name.n || !from || !strchr("(= ,", text.p[from - 1]) || find_text(rest, ".dtype") >= 0)
		return S("");
	return name;
}

bool
line_reads(struct str text, struct str name)
{
	static const char *const asked[] = {".dtype", ".shape", ".device", ".size("};

	for (uint32_t i = 0; name.n && i + name.n <= text.n; i++) {
		struct str rest = str_sub(text, i, text.n);
		bool whole = str_starts(rest, name) && (!i || (!line_name_char(text.p[i - 1]) && text.p[i - 1] != '.')) && (rest.n == name.n || !line_name_char(rest.p[name.n]));
		bool read = whole;

		for (size_t k = 0; whole && k < sizeof asked / sizeof asked[0]; k++)
			read &= !str_starts(str_sub(rest, name.n, rest.n), str_of(asked[k]));
		if (read && (rest.n == name.n || rest.p[name.n] != '='))
			return true;
	}
	return false;
}
