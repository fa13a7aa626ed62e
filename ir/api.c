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

unsigned
mc_abi(void)
{
	return MC_ABI;
}

void
mc_options_init(mc_options *o)
{
	memset(o, 0, sizeof *o);
	o->size = sizeof *o;
}

static void
set_count(uint32_t *limit, uint64_t given)
{
	if (given)
		*limit = given < UINT32_MAX / 4 ? (uint32_t)given : UINT32_MAX / 4;
}

bool
ctx_open(struct ctx *c, const mc_options *o)
{
	mc_options v = {0};

	if (o)
		memcpy(&v, o, o->size < sizeof v ? o->size : sizeof v);    /* a program that was built with an older header has less */
	memset(c, 0, sizeof *c);
	c->lim = limits_default();
	c->lim.memory = v.max_memory ? v.max_memory : c->lim.memory;
	c->lim.file = v.max_file ? v.max_file : c->lim.file;
	c->lim.member = v.max_member ? v.max_member : c->lim.member;
	set_count(&c->lim.nodes, v.max_nodes);
	set_count(&c->lim.values, v.max_values);
	if (v.max_depth) {
		set_count(&c->lim.depth, v.max_depth < 10000 ? v.max_depth : 10000);
		c->lim.messages = (c->lim.depth + 1) / 2;
	}
	c->dump_after = v.dump_after;
	c->dump = v.dump;
	c->dump_user = v.dump_user;
	c->program = v.program;
	c->diagnostic = v.diagnostic;
	c->diagnostic_user = v.diagnostic_user;
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
	diag_tell(c, &c->last_words);
}

mc_status
ctx_status(struct ctx *c, bool ok)
{
	return ok && !c->nerror ? MC_OK : MC_BAD_INPUT;
}

/* Numbers are read and written with a decimal point, whatever the locale of the program around us; the C locale is ready in the C library and takes no memory. */
locale_t
plain_locale(void)
{
	return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

mc_status
ctx_enter(struct ctx *c, bool (*work)(void *), void *arg)
{
	locale_t before = plain_locale();
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
	uselocale(before);
	return st;
}

size_t
ctx_diagnostics(const struct ctx *c, mc_diagnostic *out, size_t cap)
{
	size_t n = 0;

	for (; n < c->ndiag; n++)
		if (n < cap)
			out[n] = diag_public(&c->diags[n]);
	if (c->last_words.code) {
		if (n < cap)
			out[n] = diag_public(&c->last_words);
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
	return r ? r->r.steps[r->r.peak_step].tensors : 0;
}

static mc_status
number(const struct report *r, const char *name, uint64_t *out)
{
	const struct step_row *st = &r->steps[r->peak_step];
	const struct factors *at = &st->phases[st->phase].at;
	const struct {
		const char *name;
		uint64_t value;
	} table[] = {
		{"tensors", st->tensors}, {"allocated", r->memory.allocated}, {"reserved", r->memory.reserved}, {"process.low", r->memory.process_low}, {"process.high", r->memory.process_high},
		{"param", at->of[FAC_PARAM]}, {"grad", at->of[FAC_GRAD]}, {"opt", at->of[FAC_OPT]}, {"act", factors_act(at)}, {"saved", at->of[FAC_SAVED]},
		{"transient", at->of[FAC_TRANSIENT]}, {"input", at->of[FAC_INPUT]}, {"step", r->peak_step}, {"parameters.count", r->param_count},
		{"parameters.trainable", r->param_trainable}, {"plain_sum", factors_total(&r->plain)},
	};

	for (size_t i = 0; r->sched && i < sizeof table / sizeof table[0]; i++)
		if (strcmp(table[i].name, name) == 0) {
			*out = table[i].value;
			return MC_OK;
		}
	return MC_BAD_INPUT;
}

mc_status
mc_report_number(const mc_report *r, const char *name, uint64_t *out)
{
	return r && name && out ? number(&r->r, name, out) : MC_BAD_INPUT;
}

mc_fit
mc_report_fit(const mc_report *r)
{
	return r ? verdict_fit(&r->r.verdict) : MC_NOT_ASKED;
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
