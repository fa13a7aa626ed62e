/* Diagnostics: the one place where a message is formatted and stored. The library never prints. */
#include "ir.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	uint8_t severity;
	const char *format;
} table[DIAG_COUNT] = {
	[DIAG_NONE] = {"", SEV_NOTE, ""},
#define DIAG(id, name, severity, format) [DIAG_##id] = {name, severity, format},
#include "diag.def"
#undef DIAG
};

const char *
diag_name(unsigned code)
{
	return code < DIAG_COUNT ? table[code].name : "";
}

const char *
diag_format(unsigned code)
{
	return code < DIAG_COUNT ? table[code].format : "";
}

unsigned
diag_severity(unsigned code)
{
	return code < DIAG_COUNT ? table[code].severity : SEV_NOTE;
}

struct limits
limits_default(void)
{
	return (struct limits){
		.memory = LIMIT(4ull << 30, 4ull << 20), .file = LIMIT(1ull << 40, 1ull << 20), .member = LIMIT(512ull << 20, 64ull << 10),
		.nodes = LIMIT(4000000, 300), .values = LIMIT(16000000, 900), .depth = LIMIT(64, 12), .messages = LIMIT(32, 8), .frames = LIMIT(128, 2),
	};
}

/* Control characters in names from a file must not reach a terminal. */
static void
clean(char *p)
{
	for (; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
}

mc_diagnostic
diag_public(const struct diag *d)
{
	return (mc_diagnostic){diag_name(d->code), d->text.p, d->where.n ? d->where.p : "", d->count};
}

void
diag_tell(const struct ctx *c, const struct diag *d)
{
	mc_diagnostic out = diag_public(d);

	if (c->diagnostic)
		c->diagnostic(c->diagnostic_user, &out);
}

/* Once; a repetition counts. */
void
diag_pass_on(struct ctx *c, const struct diag *d)
{
	for (uint32_t i = 0; i < c->ndiag; i++)
		if (c->diags[i].code == d->code && str_eq(c->diags[i].text, d->text) && str_eq(c->diags[i].where, d->where)) {
			c->diags[i].count++;
			return;
		}
	if (c->ndiag >= 1000)      /* a hostile file must not make the report itself a problem */
		return;
	ROOM(c->a, c->diags, c->ndiag, c->diag_cap, 1);
	c->diags[c->ndiag++] = (struct diag){d->code, d->severity, 1, str_copy(c->a, d->text), str_copy(c->a, d->where)};
	diag_tell(c, &c->diags[c->ndiag - 1]);
}

bool
diag(struct ctx *c, enum diag_code code, ...)
{
	struct str where = c->place.n ? str_fmt(c->a, "%.*s: %.*s", SFMT(c->file), SFMT(c->place)) : c->file;
	struct diag d = {.code = (uint16_t)code, .severity = table[code].severity, .where = where};
	char text[2048];
	va_list ap;

	va_start(ap, code);
	vsnprintf(text, sizeof text, table[code].format, ap);
	va_end(ap);
	clean(text);
	if (d.severity == SEV_ERROR)
		c->nerror++;
	d.text = str_of(text);
	diag_pass_on(c, &d);
	return false;
}
