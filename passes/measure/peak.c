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
factor_in_step(const struct report *r, const struct schedule *s, uint32_t storage, unsigned step, uint32_t event)
{
	const struct storage *x = &s->storages[storage];

	if (x->became > event)
		return FAC_TRANSIENT;

	if (x->factor == FAC_GRAD && r->r->v[RK_ZERO_GRAD].i == ZG_BEFORE_BACKWARD && s->spans[x->phase].step < step)
		return FAC_TRANSIENT;
	return x->factor;
}

struct sweep {
	const struct report *r;
	const struct schedule *s;
	struct factors now;
	uint64_t live, step_work, on_host, managed;
	struct factors host;
	unsigned step;
	bool *alive;               /* per storage */
	uint32_t *becoming, nbecoming, becoming_cap;      /* storages that will be gradients */
};

/* What stayed from the step before may change its factor. */
static void
begin_step(struct sweep *w, unsigned step, uint32_t event)
{
	w->now = (struct factors){{0}};
	w->step = step;
	for (uint32_t i = 1; i < w->s->nstorage; i++)
		if (w->alive[i])
			w->now.of[factor_in_step(w->r, w->s, i, step, event)] += w->s->storages[i].nbytes;
}

/* What autograd made has become a gradient by event number e. */
static void
become(struct sweep *w, uint32_t e)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < w->nbecoming; k++) {
		const struct storage *x = &w->s->storages[w->becoming[k]];

		if (x->became > e) {
			w->becoming[n++] = w->becoming[k];
		} else if (w->alive[w->becoming[k]]) {
			w->now.of[FAC_TRANSIENT] -= x->nbytes;
			w->now.of[FAC_GRAD] += x->nbytes;
		}
	}
	w->nbecoming = n;
}

static void
apply_host(struct sweep *w, const struct storage *x, bool free, struct report *r)
{
	unsigned factor = x->factor == FAC_TRANSIENT ? FAC_SAVED : x->factor;

	w->host.of[factor] = free ? w->host.of[factor] - x->host : w->host.of[factor] + x->host;
	w->on_host = free ? w->on_host - x->host : w->on_host + x->host;
	if (x->managed)
		w->managed = free ? w->managed - x->host : w->managed + x->host;
	if (w->on_host > factors_total(&r->host)) {
		r->host = w->host;
		r->host_managed = w->managed;
	}
}

static void
apply(struct sweep *w, uint32_t e)
{
	uint32_t event = w->s->events[e], i = EVENT_STORAGE(event);
	uint64_t n = w->s->storages[i].nbytes, *now;

	if (w->nbecoming)
		become(w, e);
	now = &w->now.of[factor_in_step(w->r, w->s, i, w->step, e)];
	w->alive[i] = !EVENT_IS_FREE(event);
	if (w->alive[i] && w->s->storages[i].became > e) {
		ROOM(w->s->c->a, w->becoming, w->nbecoming, w->becoming_cap, 1);
		w->becoming[w->nbecoming++] = i;
	}
	w->live = w->alive[i] ? w->live + n : w->live - n;
	*now = w->alive[i] ? *now + n : *now - n;
	if (w->s->storages[i].factor == FAC_TRANSIENT && w->s->spans[w->s->storages[i].phase].phase == PH_OPTIMIZER)
		w->step_work = w->alive[i] ? w->step_work + n : w->step_work - n;
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
		p->step_work = w->step_work;
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
			begin_step(&w, sp->step, sp->first);
		if (sp->step)
			note(&w, r, sp, sp->first ? sp->first - 1 : 0);
		for (uint32_t e = sp->first; e < end; e++) {
			apply(&w, e);
			if (w.s->storages[EVENT_STORAGE(w.s->events[e])].host)
				apply_host(&w, &w.s->storages[EVENT_STORAGE(w.s->events[e])], EVENT_IS_FREE(w.s->events[e]), r);
			if (sp->step && !EVENT_IS_FREE(w.s->events[e]))
				note(&w, r, sp, e);
		}
	}
	for (unsigned step = 1; step <= 2; step++)
		r->steps[step].forward_end = w.s->forward_end[step];
	r->peak_step = r->steps[2].tensors > r->steps[1].tensors ? 2 : 1;
	return true;
}
