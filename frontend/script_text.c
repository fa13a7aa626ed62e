/*
 * Text, and lists of truth values: code asks for the length of a reason why not, and whether any of a list holds. Text that is put
 * together counts without what is put in; its content is not known.
 */
#include "script.h"

#include <string.h>

/* "{} of {}" -> at least one character */
static struct thing
put_together(const struct args *a)
{
	struct str all = a->n && a->at[0].kind == THING_STR ? a->at[0].u.s : S("?");
	struct thing t = {.kind = THING_STR, .val = 1, .u.s = all};

	for (uint32_t i = 0; i + 1 < all.n; i++)
		t.u.s.n -= all.p[i] == '{' && all.p[i + 1] == '}' ? 2 : 0;
	if (!t.u.s.n)
		t.u.s = S("?");
	return t;
}

/* Of text that a condition decides: what the one has more than the other, times the condition. */
static struct thing
length(struct script *s, const struct thing *t, unsigned depth)
{
	struct thing a, b, more;

	if (t->kind == THING_STR)
		return thing_int(t->u.s.n);
	if (t->kind != THING_EITHER || depth > 32)
		return (struct thing){0};
	a = length(s, &t->u.either->then, depth + 1);
	b = length(s, &t->u.either->otherwise, depth + 1);
	if (a.kind == THING_INT && b.kind == THING_INT && !a.val && !b.val && a.u.i == b.u.i)
		return a;
	more = script_math(s, "mul", script_math(s, "sub", a, b), script_math(s, "int", t->u.either->cond, thing_none()));
	return script_math(s, "add", b, more);
}

bool
thing_is_text(const struct thing *t)
{
	for (unsigned depth = 0; t->kind == THING_EITHER && depth < 32; depth++)
		t = &t->u.either->then;
	return t->kind == THING_STR;
}

/* any, all: of numbers that are known; one that decides is enough. */
static bool
any_or_all(struct str name, const struct items *l, struct thing *out)
{
	bool any = str_eq(name, S("any")), known = !l->val;

	for (uint32_t i = 0; i < l->n; i++) {
		struct number n = l->at[i].kind == THING_BOOL || l->at[i].kind == THING_INT ? thing_number(&l->at[i]) : (struct number){0};

		if (n.kind != ARG_NONE && (number_real(n) != 0) == any) {
			*out = thing_bool(any);
			return true;
		}
		known &= n.kind != ARG_NONE;
	}
	*out = known ? thing_bool(!any) : (struct thing){0};
	return true;
}

bool
script_text(struct script *s, struct str name, const struct args *a, struct thing *out)
{
	const struct thing *x = a->n ? &a->at[0] : NULL;

	*out = (struct thing){0};
	if (str_eq(name, S("format")) || str_eq(name, S("percentFormat")) || str_eq(name, S("str"))) {
		*out = put_together(a);
		return true;
	}
	if (!x)
		return false;
	if (a->n == 1 && x->kind == THING_LIST && (str_eq(name, S("any")) || str_eq(name, S("all"))))
		return any_or_all(name, x->u.items, out);
	if (!thing_is_text(x))
		return false;
	if (str_eq(name, S("len")))
		*out = length(s, x, 0);
	else if (str_eq(name, S("add")))
		*out = put_together(a);
	else
		return str_eq(name, S("slice"));
	return true;
}
