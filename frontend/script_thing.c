/* Things: what names stand for while a script's forward is inlined. */
#include "script.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool
script_fail(struct script *s, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (s->frame && s->frame->fn->file)
		s->c->place = s->frame->fn->file->path;
	diag(s->c, DIAG_SCRIPT, s->line, text);
	return false;
}

struct thing
thing_none(void)
{
	return (struct thing){.kind = THING_NONE};
}

struct thing
thing_int(int64_t i)
{
	return (struct thing){.kind = THING_INT, .u.i = i};
}

struct thing
thing_float(double f)
{
	return (struct thing){.kind = THING_FLOAT, .u.f = f};
}

struct thing
thing_bool(bool b)
{
	return (struct thing){.kind = THING_BOOL, .u.b = b};
}

struct thing
thing_str(struct str text)
{
	return (struct thing){.kind = THING_STR, .u.s = text};
}

struct thing
thing_tensor(uint32_t val)
{
	return (struct thing){.kind = val ? THING_TENSOR : THING_UNKNOWN, .val = val};
}

struct thing
thing_items(struct script *s, enum thing_kind kind, const struct thing *at, uint32_t n)
{
	struct thing t = {.kind = (uint8_t)kind};

	t.u.items = NEW(s->c->a, struct items, 1);
	t.u.items->region = s->region;
	s->elements += n + 1u;
	if (n) {
		ROOM(s->c->a, t.u.items->at, 0, t.u.items->cap, n);
		memcpy(t.u.items->at, at, n * sizeof *at);
		t.u.items->n = n;
	}
	return t;
}

void
items_add(struct script *s, struct items *l, struct thing t)
{
	ROOM(s->c->a, l->at, l->n, l->cap, 1);
	l->at[l->n++] = t;
	s->elements++;
}

/* ---- numbers ------------------------------------------------------------------------------------------------- */

bool
thing_is_number(const struct thing *t)
{
	return t->kind == THING_INT || t->kind == THING_FLOAT || t->kind == THING_BOOL;
}

bool
thing_is_known(const struct thing *t)
{
	return t->kind == THING_NONE || t->kind == THING_STR || (thing_is_number(t) && !t->val);
}

struct number
thing_number(const struct thing *t)
{
	if (!thing_is_number(t) || t->val)
		return (struct number){.kind = ARG_NONE};
	return t->kind == THING_INT ? number_int(t->u.i) : t->kind == THING_FLOAT ? number_float(t->u.f) : number_bool(t->u.b);
}

struct thing
thing_of_number(struct number n)
{
	return n.kind == ARG_INT ? thing_int(n.u.i) : n.kind == ARG_FLOAT ? thing_float(n.u.f) : n.kind == ARG_BOOL ? thing_bool(n.u.b) : (struct thing){0};
}

/* ---- equality --------------------------------------------------------------------------------------------------- */

static bool
same_items(const struct items *a, const struct items *b, bool *known)
{
	if (a == b)
		return true;
	if (a->val || b->val) {
		*known = false;
		return false;
	}
	if (a->n != b->n)
		return false;
	for (uint32_t i = 0; i < a->n; i++) {
		const struct thing *x = &a->at[i], *y = &b->at[i];

		if (x->kind >= THING_LIST || y->kind >= THING_LIST) {      /* one level; nested lists are not compared */
			*known = false;
			return false;
		}
		if (!thing_equal(x, y, known))
			return false;
	}
	return true;
}

/* As "==" of Python; known is set to false where only sizes or data can say. */
bool
thing_equal(const struct thing *a, const struct thing *b, bool *known)
{
	if (a->kind == THING_UNKNOWN || b->kind == THING_UNKNOWN || a->kind == THING_EITHER || b->kind == THING_EITHER)
		return *known = false;
	if (thing_is_number(a) && thing_is_number(b)) {
		if (a->val || b->val) {
			*known = a->val == b->val;
			return *known;
		}
		return number_real(thing_number(a)) == number_real(thing_number(b));
	}
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case THING_NONE:
		return true;
	case THING_STR:
		if (a->val || b->val)
			*known = false;
		return !a->val && !b->val && str_eq(a->u.s, b->u.s);
	case THING_TENSOR:
		return a->val == b->val;
	case THING_LIST:
	case THING_TUPLE:
		return same_items(a->u.items, b->u.items, known);
	default:
		return a->u.object == b->u.object;
	}
}

/* ---- objects ------------------------------------------------------------------------------------------------------ */

struct thing *
object_slot(struct object *o, uint32_t name)
{
	for (uint32_t i = 0; i < o->nslot; i++)
		if (o->slot_name[i] == name)
			return &o->slot[i];
	return NULL;
}

void
object_set(struct script *s, struct object *o, uint32_t name, struct thing t)
{
	struct thing *old = object_slot(o, name);

	if (old) {
		*old = t;
		return;
	}
	ROOM(s->c->a, o->slot_name, o->nslot, o->name_cap, 1);
	ROOM(s->c->a, o->slot, o->nslot, o->thing_cap, 1);
	o->slot_name[o->nslot] = name;
	o->slot[o->nslot++] = t;
}
