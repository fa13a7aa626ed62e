/* The door of the backends: the table of formats, mc_write, and the program's own tables. */
#include "../ir/api.h"
#include "backend.h"

#include "../frontend/frontend.h"
#include "../passes/passes.h"

#include <stdlib.h>
#include <string.h>

static const struct backend *const table[] = {
#define FORMAT(id) &backend_##id,
#include "format.def"
#undef FORMAT
};

const struct backend *
backend_at(unsigned i)
{
	return i < sizeof table / sizeof table[0] ? table[i] : NULL;
}

const struct backend *
backend_by_name(struct str name)
{
	for (unsigned i = 0; backend_at(i); i++)
		if (str_eq(name, str_of(backend_at(i)->name)))
			return backend_at(i);
	return NULL;
}

struct out {
	struct buf b;
	mc_write_fn *fn;
	void *user;
	bool refused;              /* by fn */
};

static int
forward(void *user, const void *p, size_t n)
{
	struct out *o = user;

	o->refused = o->refused || o->fn(o->user, p, n) != 0;
	return o->refused;
}

static mc_status
finish(struct out *o, bool ok)
{
	ok = buf_flush(&o->b) && ok;
	free(o->b.p);
	return ok ? MC_OK : o->refused ? MC_BAD_INPUT : MC_NO_MEMORY;
}

struct job {                       /* a report to be written */
	const struct backend *backend;
	const struct report *r;
	struct emit *e;
};

static bool
write_report(void *arg)
{
	struct job *j = arg;

	return j->backend->write(j->r, j->e);
}

void
mc_view_init(mc_view *v)
{
	memset(v, 0, sizeof *v);
	v->size = sizeof *v;
}

mc_status
mc_write_view(const mc_report *r, const char *format, const mc_view *view, mc_write_fn *fn, void *user)
{
	const struct backend *b = backend_by_name(str_of(format));
	struct out o = {.fn = fn, .user = user};
	struct emit e = {.b = &o.b};
	struct job j = {b, r ? &r->r : NULL, &e};
	struct ctx c;
	mc_status st, wrote;

	if (!b || !r || !fn || (!r->r.sched && !b->inspects))
		return MC_BAD_INPUT;
	if (!ctx_open(&c, NULL))
		return MC_NO_MEMORY;
	mc_view_init(&e.view);
	if (view)
		memcpy(&e.view, view, view->size < sizeof e.view ? view->size : sizeof e.view);        /* of an older header */
	e.a = c.a;
	o.b.write = forward;
	o.b.user = &o;
	st = ctx_enter(&c, write_report, &j);
	ctx_close(&c);
	wrote = finish(&o, st == MC_OK);
	return e.too_large || st == MC_LIMIT ? MC_LIMIT : wrote;
}

mc_status
mc_write(const mc_report *r, const char *format, mc_write_fn *fn, void *user)
{
	return mc_write_view(r, format, NULL, fn, user);
}

int
mc_has_format(const char *format)
{
	return backend_by_name(str_of(format)) != NULL;
}

static const struct table_backend *
table_backend_by_name(const char *name)
{
	for (const struct table_backend *b = table_backends; b->name; b++)
		if (str_eq(str_of(b->name), str_of(name)))
			return b;
	return NULL;
}

mc_status
mc_sweep_write(const mc_sweep *s, const char *format, mc_write_fn *fn, void *user)
{
	const struct table_backend *b = table_backend_by_name(format);
	struct out o = {.fn = fn, .user = user};
	locale_t before;
	mc_status st;

	if (!b || !s || !fn || !s->s.rows)
		return MC_BAD_INPUT;
	o.b.write = forward;
	o.b.user = &o;
	before = plain_locale();
	st = finish(&o, b->write(&s->s, &o.b));
	uselocale(before);
	return st;
}

int
mc_sweep_has_format(const char *format)
{
	return table_backend_by_name(format) != NULL;
}

/* ---- tables -------------------------------------------------------------------------------------------------- */

static void
list_ops(struct buf *b)
{
	for (unsigned i = 1; i < OP_COUNT; i++) {
		const struct op *op = op_info(i);

		buf_fmt(b, "%s(%s)\t%s\t%s\n", op->name, op->schema, op->forward ? op->forward : op->prim ? "evaluated before anything runs" : "composed", op->backward ? op->backward : op->forward || op->prim ? "no gradient" : "of its parts");
	}
}

static void
list_passes(struct buf *b)
{
	for (unsigned i = 0; pass_at(i); i++)
		buf_fmt(b, "%-8s %-11s %s\n", pass_at(i)->group, pass_at(i)->name, pass_at(i)->help);
}

static void
list_formats(struct buf *b)
{
	for (unsigned i = 0; frontend_at(i); i++)
		buf_fmt(b, "in   %-15s %s\n", frontend_at(i)->name, frontend_at(i)->help);
	for (unsigned i = 0; backend_at(i); i++)
		buf_fmt(b, "out  %-15s %s\n", backend_at(i)->name, backend_at(i)->help);
	for (const struct table_backend *t = table_backends; t->name; t++)
		buf_fmt(b, "out  %-15s %s\n", t->name, t->help);
}

static void
list_diagnostics(struct buf *b)
{
	static const char *const severity[] = {[SEV_ERROR] = "error", [SEV_WARNING] = "warning", [SEV_NOTE] = "note"};

	for (unsigned i = 1; i < DIAG_COUNT; i++)
		buf_fmt(b, "%s\t%s\t%s\n", diag_name(i), severity[diag_severity(i)], diag_format(i));
}

static void
list_devices(struct buf *b)
{
	const struct device *d;

	buf_str(b, S("name           SM      memory   context            source\n"));
	for (int64_t i = 1; (d = device_at(i)) != NULL; i++)
		buf_fmt(b, "%-12s %2u.%u %7llu MiB   %4llu to %4llu MiB   %s\n", d->name, d->sm / 10u, d->sm % 10u, (unsigned long long)(d->total >> 20),
		    (unsigned long long)(d->context_low >> 20), (unsigned long long)(d->context_high >> 20), d->source);
}

static void
list_keys(struct buf *b)
{
	for (unsigned k = 1; k < RK_COUNT; k++) {
		const struct key_info *x = key_info(k);

		buf_fmt(b, "%s\t%s\t%s\t%s\n", x->name, x->choices ? x->choices : "", x->dflt, x->help);
	}
}

/* Of the format xml. */
static void
list_schema(struct buf *b)
{
	static const char schema[] =
#include "backends/report.xsd.inc"
	    ;

	buf_str(b, ((struct str){schema, sizeof schema - 1}));
}

mc_status
mc_list(const char *what, mc_write_fn *fn, void *user)
{
	static const struct {
		const char *name;
		void (*list)(struct buf *);
	} lists[] = {{"ops", list_ops}, {"passes", list_passes}, {"formats", list_formats}, {"keys", list_keys}, {"devices", list_devices},
	    {"diagnostics", list_diagnostics}, {"schema", list_schema}};
	struct out o = {.fn = fn, .user = user};

	o.b.write = forward;
	o.b.user = &o;
	for (size_t i = 0; fn && i < sizeof lists / sizeof lists[0]; i++)
		if (str_eq(str_of(what), str_of(lists[i].name))) {
			lists[i].list(&o.b);
			return finish(&o, true);
		}
	return MC_BAD_INPUT;
}
