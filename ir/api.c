/* The public API's common part: options, the door, diagnostics, freeing. */
#include "api.h"

#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <sys/mman.h>
#endif

const char *
mc_version(void)
{
	return MC_VERSION;
}

void
mc_options_init(mc_options *o)
{
	memset(o, 0, sizeof *o);
	o->size = sizeof *o;
}

bool
ctx_open(struct ctx *c, const mc_options *o)
{
	memset(c, 0, sizeof *c);
	c->lim = limits_default();
	if (o && o->size >= sizeof *o) {
		c->lim.memory = o->max_memory ? o->max_memory : c->lim.memory;
		c->lim.file = o->max_file ? o->max_file : c->lim.file;
		c->lim.member = o->max_member ? o->max_member : c->lim.member;
		c->dump_after = o->dump_after;
		c->dump = o->dump;
		c->dump_user = o->dump_user;
		c->program = o->program;
	}
	c->a = arena_new(c->lim.memory);
	return c->a != NULL;
}

void
ctx_close(struct ctx *c)
{
	arena_free(c->a);
	c->a = NULL;
}

/* When memory is short there is none for a message: one is kept ready. */
static void
out_of_memory(struct ctx *c, bool limit)
{
	uint16_t code = limit ? DIAG_LIMIT_MEMORY : DIAG_NO_MEMORY;

	c->last_words = (struct diag){code, SEV_ERROR, 1, str_of(diag_format(code)), c->file};
	c->nerror++;
}

mc_status
ctx_status(struct ctx *c, bool ok)
{
	return ok && !c->nerror ? MC_OK : MC_BAD_INPUT;
}

mc_status
ctx_enter(struct ctx *c, bool (*work)(void *), void *arg)
{
	jmp_buf door;
	mc_status st;

	arena_door(c->a, &door);
	if (setjmp(door)) {
		bool limit = arena_hit_limit(c->a);

		out_of_memory(c, limit);
		st = limit ? MC_LIMIT : MC_NO_MEMORY;
	} else {
		st = ctx_status(c, work(arg));
	}
	arena_door(c->a, NULL);
	return st;
}

static void
export_diag(const struct diag *d, mc_diagnostic *out)
{
	*out = (mc_diagnostic){diag_name(d->code), d->text.p, d->where.n ? d->where.p : "", d->count};
}

size_t
ctx_diagnostics(const struct ctx *c, mc_diagnostic *out, size_t cap)
{
	size_t n = 0;

	for (; n < c->ndiag; n++)
		if (n < cap)
			export_diag(&c->diags[n], &out[n]);
	if (c->last_words.code) {
		if (n < cap)
			export_diag(&c->last_words, &out[n]);
		n++;
	}
	return n;
}

size_t
mc_model_diagnostics(const mc_model *m, mc_diagnostic *out, size_t cap)
{
	return m ? ctx_diagnostics(&m->c, out, cap) : 0;
}

size_t
mc_recipe_diagnostics(const mc_recipe *r, mc_diagnostic *out, size_t cap)
{
	return r ? ctx_diagnostics(&r->c, out, cap) : 0;
}

size_t
mc_report_diagnostics(const mc_report *r, mc_diagnostic *out, size_t cap)
{
	return r ? ctx_diagnostics(&r->c, out, cap) : 0;
}

void
mc_model_free(mc_model *m)
{
	if (!m)
		return;
	ctx_close(&m->c);
	if (m->map && m->map_is_heap)
		free(m->map);
	else if (m->map)
		munmap(m->map, m->map_size);
	free(m);
}

void
mc_recipe_free(mc_recipe *r)
{
	if (!r)
		return;
	ctx_close(&r->c);
	free(r);
}

void
mc_report_free(mc_report *r)
{
	if (!r)
		return;
	ctx_close(&r->c);
	free(r);
}

uint64_t
mc_report_peak(const mc_report *r)
{
	return r->r.steps[r->r.peak_step].tensors;
}

mc_fit
mc_report_fit(const mc_report *r)
{
	return verdict_fit(&r->r.verdict);
}

mc_fit
verdict_fit(const struct verdict *v)
{
	if (!v->asked)
		return MC_NOT_ASKED;
	return !v->sure ? MC_MAY_FIT : v->fits ? MC_FITS : MC_DOES_NOT_FIT;
}

size_t
mc_sweep_diagnostics(const mc_sweep *s, mc_diagnostic *out, size_t cap)
{
	return s ? ctx_diagnostics(&s->c, out, cap) : 0;
}

void
mc_sweep_free(mc_sweep *s)
{
	if (!s)
		return;
	ctx_close(&s->c);
	free(s);
}

int
mc_recipe_has_key(const char *key)
{
	return key_by_name(str_of(key)) != RK_NONE;
}
