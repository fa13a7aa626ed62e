/* peak: one sweep over the schedule. Where live bytes are highest in every phase, and which factors they are made of there. */
#include "../passes.h"

uint64_t
factors_total(const struct factors *f)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < FAC_COUNT; i++)
		n += f->of[i];
	return n;
}

uint64_t
factors_act(const struct factors *f)
{
	return f->of[FAC_SAVED] + f->of[FAC_TRANSIENT] + f->of[FAC_INPUT];
}

/*
 * Gradients that the next step throws away before its own backward (zero_grad before-backward) are not that step's
 * gradients any more: the truth tool counts them with what is transient, and so do we.
 */
unsigned
factor_in_step(const struct report *r, const struct schedule *s, uint32_t storage, unsigned step)
{
	const struct storage *x = &s->storages[storage];

	if (x->factor == FAC_GRAD && r->r->v[RK_ZERO_GRAD].i == ZG_BEFORE_BACKWARD && s->spans[x->phase].step < step)
		return FAC_TRANSIENT;
	return x->factor;
}

struct sweep {
	const struct report *r;
	const struct schedule *s;
	struct factors now;
	uint64_t live;
	unsigned step;
	bool *alive;               /* per storage */
};

/* What stayed from the step before may change its factor. */
static void
begin_step(struct sweep *w, unsigned step)
{
	w->now = (struct factors){{0}};
	w->step = step;
	for (uint32_t i = 1; i < w->s->nstorage; i++)
		if (w->alive[i])
			w->now.of[factor_in_step(w->r, w->s, i, step)] += w->s->storages[i].nbytes;
}

static void
apply(struct sweep *w, uint32_t event)
{
	uint32_t i = EVENT_STORAGE(event);
	uint64_t n = w->s->storages[i].nbytes, *now = &w->now.of[factor_in_step(w->r, w->s, i, w->step)];

	w->alive[i] = !EVENT_IS_FREE(event);
	w->live = w->alive[i] ? w->live + n : w->live - n;
	*now = w->alive[i] ? *now + n : *now - n;
}

/* A phase begins with what the one before left alive. */
static void
note(struct sweep *w, struct report *r, const struct span *sp, uint32_t event)
{
	struct step_row *st = &r->steps[sp->step];
	struct phase_row *p = &st->phases[sp->phase];

	if (!p->ran || w->live > p->tensors) {
		p->tensors = w->live;
		p->at = w->now;
		p->ran = true;
	}
	if (w->live > st->tensors) {
		st->tensors = w->live;
		st->phase = sp->phase;
		st->event = event;
	}
}

bool
pass_peak(struct analysis *a)
{
	struct report *r = a->report;
	struct sweep w = {.r = r, .s = a->sched};

	w.alive = NEW(a->c->a, bool, w.s->nstorage);
	for (uint32_t i = 0; i < w.s->nspan; i++) {
		const struct span *sp = &w.s->spans[i];
		uint32_t end = i + 1 < w.s->nspan ? sp[1].first : w.s->nevent;

		if (sp->step != w.step)
			begin_step(&w, sp->step);
		if (sp->step)
			note(&w, r, sp, sp->first ? sp->first - 1 : 0);
		for (uint32_t e = sp->first; e < end; e++) {
			apply(&w, w.s->events[e]);
			if (sp->step && !EVENT_IS_FREE(w.s->events[e]))
				note(&w, r, sp, e);
		}
	}
	for (unsigned step = 1; step <= 2; step++)
		r->steps[step].forward_end = w.s->forward_end[step];
	r->peak_step = r->steps[2].tensors > r->steps[1].tensors ? 2 : 1;
	return true;
}
