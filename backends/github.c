/*
 * github: workflow commands, which GitHub shows at the run and the pull request. It keeps ten annotations of a kind in a step, so there is
 * one that sums up, warnings up to that number, and the largest modules as notices.
 */
#include "backend.h"

#define MOST 9                     /* of a kind; the summary may be a tenth */
#define MODULES 5

/* In text % and line ends are written as escapes, in properties also : and , */
static void
escape(struct buf *b, struct str s, bool property)
{
	for (uint32_t i = 0; i < s.n; i++) {
		unsigned char ch = (unsigned char)s.p[i];

		if (ch == '%' || ch < 32 || (property && (ch == ':' || ch == ',')))
			buf_fmt(b, "%%%02X", ch);
		else
			buf_put(b, s.p + i, 1);
	}
}

static void
command(const struct report *r, struct buf *b, const char *kind, struct str title)
{
	buf_fmt(b, "::%s file=", kind);
	escape(b, r->file, true);
	buf_str(b, S(",line=1,title="));
	escape(b, title, true);
	buf_str(b, S("::"));
}

static void
summary(const struct report *r, struct emit *e)
{
	const struct step_row *st = &r->steps[r->peak_step];
	const struct verdict *v = &r->verdict;
	uint64_t most;
	const char *what = dominant(peak_factors(r), &most), *kind = !v->asked || (v->sure && v->fits) ? "notice" : v->sure ? "error" : "warning";
	char h[32], k[32], x[32];
	struct str title, text;

	title = str_fmt(e->a, "peak %s of tensors, %s reserved", human_bytes(st->tensors, h), human_bytes(r->memory.reserved, k));
	if (v->asked)
		title = str_fmt(e->a, "%.*s: %s %s", SFMT(title), !v->sure ? "may not fit in" : v->fits ? "fits in" : "does not fit in", human_bytes(v->budget, h));
	text = str_fmt(e->a, "%s%s bytes in step %u, %s: %.*s; dominated by %s: %s, %u %%", r->lower_bound ? "at least " : "", exact_bytes(st->tensors, x),
	    r->peak_step, phase_name(st->phase), SFMT(peak_place(r, e->a)), what, human_bytes(most, h),
	    percent(most, st->tensors));
	command(r, e->b, kind, title);
	escape(e->b, text, false);
	buf_str(e->b, S("\n"));
}

static void
modules(const struct report *r, struct emit *e)
{
	char h[32], k[32];

	for (uint32_t i = 0; i < r->nmodules_alike && i < MODULES; i++) {
		const struct alike_row *m = &r->modules_alike[i];

		command(r, e->b, "notice", str_fmt(e->a, "%.*s", SFMT(m->name)));
		buf_fmt(e->b, "%s at the peak, %s of them activations", human_bytes(m->bytes, h), human_bytes(factors_act(&m->at), k));
		buf_str(e->b, S("\n"));
	}
}

static void
diagnostics(const struct report *r, struct buf *b, const struct diag *d, uint32_t n, unsigned *shown)
{
	for (uint32_t i = 0; i < n; i++)
		if (d[i].severity != SEV_NOTE && (*shown)++ < MOST) {
			command(r, b, d[i].severity == SEV_ERROR ? "error" : "warning", str_of(diag_name(d[i].code)));
			escape(b, d[i].text, false);
			buf_str(b, S("\n"));
		}
}

static bool
write(const struct report *r, struct emit *e)
{
	unsigned shown = 0;

	summary(r, e);
	diagnostics(r, e->b, r->load_diags, r->nload_diag, &shown);
	diagnostics(r, e->b, r->diags, r->ndiag, &shown);
	modules(r, e);
	return !e->b->failed;
}

const struct backend backend_github = {"github", "workflow commands: annotations of a GitHub run", false, write};
