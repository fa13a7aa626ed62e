/* The pass manager: rows of pass.def in order; a dump after the one that was asked for; a check after each in debug builds. */
#include "passes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pass table[] = {
#define PASS(name, group, when, help) {#name, group, when, help, pass_##name},
#include "pass.def"
#undef PASS
};

const struct pass *
pass_at(unsigned i)
{
	return i < sizeof table / sizeof table[0] ? &table[i] : NULL;
}

static void
dump(struct analysis *a)
{
	struct buf b = {0};

	graph_print(a->g, &b);
	if (a->c->dump && !b.failed)
		a->c->dump(a->c->dump_user, b.p, b.n);
	free(b.p);
}

static bool
run(struct analysis *a, const struct pass *p)
{
	if (!p->run(a) || a->c->nerror)
		return false;
	if (a->c->dump_after && strcmp(a->c->dump_after, p->name) == 0)
		dump(a);
#ifndef NDEBUG
	return graph_verify(a->g, p->name);
#else
	return true;
#endif
}

/* The name to dump after must be one, or a typing mistake would go by in silence. */
static bool
check_dump_name(struct analysis *a)
{
	const char *name = a->c->dump_after;
	struct str known = S("load");

	if (!name || strcmp(name, "load") == 0)
		return true;
	for (unsigned i = 0; pass_at(i); i++) {
		if (strcmp(name, pass_at(i)->name) == 0)
			return true;
		known = str_fmt(a->c->a, "%.*s, %s", SFMT(known), pass_at(i)->name);
	}
	return diag(a->c, DIAG_BAD_VALUE, "dump-ir", SFMT(str_of(name)), known.p);
}

static bool
is_for_readers(const struct pass *p)
{
	return p->run == pass_attribute || p->run == pass_group;
}

bool
passes_run(struct analysis *a, enum when when)
{
	if (!check_dump_name(a))
		return false;
	if (a->c->dump_after && strcmp(a->c->dump_after, "load") == 0)
		dump(a);
	for (unsigned i = 0; pass_at(i); i++)
		if (pass_at(i)->when <= when && !(a->brief && is_for_readers(pass_at(i))) && !run(a, pass_at(i)))
			return false;
	return true;
}

void
assume(struct analysis *a, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	for (uint32_t i = 0; i < a->nassumption; i++)
		if (str_eq(a->assumptions[i], str_of(text)))
			return;
	ROOM(a->c->a, a->assumptions, a->nassumption, a->assumption_cap, 1);
	a->assumptions[a->nassumption++] = str_copy(a->c->a, str_of(text));
}
