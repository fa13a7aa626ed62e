/*
 * replay: the schedule's events through the caching allocator, in order. Gives what torch.cuda.max_memory_allocated() and
 * max_memory_reserved() would say for every phase, and the segments and blocks at the peak.
 *
 * Two more requests than the schedule has: each thread that calls cuBLAS (the caller's in forward, the engine's in backward) takes a
 * workspace right after the result of its first matrix product is there, and keeps it.
 */
#include "replay.h"

#include "../passes.h"

#include <stdlib.h>
#include <string.h>

/* ---- events ------------------------------------------------------------------------------------------------- */

/* Kernels that cuBLAS runs; dot products and convolutions are not among them. "mm" also stands for "mm_backward". */
bool
is_matrix_product(const char *op)
{
	static const char *const names[] = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "_scaled_mm", "_int_mm"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		size_t n = strlen(names[i]);

		if (strncmp(op, names[i], n) == 0 && (!op[n] || strcmp(op + n, "_backward") == 0))
			return true;
	}
	return false;
}

void
replay_start(struct replay *r, struct arena *arena, const struct replay_conf *conf)
{
	*r = (struct replay){.conf = *conf, .a = allocator_new(arena, &conf->alloc)};
}

/* A phase begins with what the one before left; a later micro-batch's goes on with the peaks of the earlier ones. */
void
replay_span(struct replay *r, unsigned step, unsigned phase)
{
	struct replay_peak *p = &r->at[step][phase];

	r->step = step;
	r->phase = phase;
	if (!p->ran)
		*p = (struct replay_peak){r->a->allocated, r->a->reserved, r->a->allocated, r->a->reserved, true};
}

static void
note(struct replay *r)
{
	struct replay_peak *p = &r->at[r->step][r->phase];

	if (r->a->allocated > p->allocated)
		p->allocated = r->a->allocated;
	if (r->a->reserved > p->reserved)
		p->reserved = r->a->reserved;
	p->allocated_end = r->a->allocated;
	p->reserved_end = r->a->reserved;
}

static uint32_t
take(struct replay *r, uint64_t bytes)
{
	uint32_t failures = r->a->failures, b = allocator_malloc(r->a, bytes, 0);

	if (r->a->failures > failures && !r->short_of)
		r->short_of = bytes;
	note(r);
	return b;
}

static void
take_for_a_moment(struct replay *r, uint64_t bytes)
{
	allocator_free(r->a, take(r, bytes));
	note(r);
}

static void
multiply(struct replay *r, const char *op)
{
	unsigned thread = r->phase == PH_FORWARD ? THREAD_FORWARD : THREAD_BACKWARD;

	if (!r->multiplied[thread] && is_matrix_product(op)) {
		r->multiplied[thread] = true;
		r->workspace[thread] = take(r, r->conf.workspace);
	}
	if (r->conf.lt_workspace && strcmp(op, "addmm") == 0)
		take_for_a_moment(r, r->conf.lt_workspace);
}

static void
scratch(struct replay *r, const struct storage *s)
{
	uint64_t n;

	if (r->conf.scratch && s->scratch_optional) {
		uint32_t b = allocator_try(r->a, s->scratch, 0);

		note(r);
		allocator_free(r->a, b);
	} else if (r->conf.scratch) {
		take_for_a_moment(r, s->scratch);
	} else {
		n = allocator_would_reserve(r->a, s->scratch, 0);
		r->with_scratch = n > r->with_scratch ? n : r->with_scratch;
		r->scratch_missed |= n > r->a->reserved;
	}
}

uint32_t
replay_alloc(struct replay *r, const struct storage *s)
{
	uint32_t b = take(r, s->requested);

	if (r->conf.workspace && r->step && (r->phase == PH_FORWARD || r->phase == PH_BACKWARD))
		multiply(r, s->op);
	if (s->scratch)
		scratch(r, s);
	return b;
}

void
replay_free(struct replay *r, uint32_t block)
{
	allocator_free(r->a, block);
	note(r);
}

/* ---- the schedule --------------------------------------------------------------------------------------------- */

static void
run_event(struct replay *r, const struct schedule *s, uint32_t event, uint32_t *block)
{
	uint32_t i = EVENT_STORAGE(s->events[event]);
	const struct storage *st = &s->storages[i];
	bool short_before = r->short_of != 0;

	if (EVENT_IS_FREE(s->events[event])) {
		replay_free(r, block[i]);
		block[i] = 0;
		return;
	}
	block[i] = replay_alloc(r, st);
	if (r->places) {
		record_place(r, &r->places->places[i], block[i], event);
		for (unsigned t = 0; t < THREAD_COUNT; t++)
			if (r->workspace[t] && !r->places->workspaces[t].bytes)
				record_place(r, &r->places->workspaces[t], r->workspace[t], event);
	}
	if (r->short_of && !short_before)
		r->short_event = event;
}

/* seen is called with the blocks of all storages when the event has happened; NULL = never. */
void
replay_schedule(struct replay *r, const struct schedule *s, uint32_t event, void (*seen)(void *user, const struct replay *, const uint32_t *block),
    void *user)
{
	uint32_t *block = NEW(r->a->a, uint32_t, s->nstorage);

	for (uint32_t i = 0; i < s->nspan; i++) {
		uint32_t end = i + 1 < s->nspan ? s->spans[i + 1].first : s->nevent;

		replay_span(r, s->spans[i].step, s->spans[i].phase);
		for (uint32_t e = s->spans[i].first; e < end; e++) {
			run_event(r, s, e, block);
			if (seen && e == event)
				seen(user, r, block);
		}
	}
}

bool
replay_configure(struct analysis *a, struct replay_conf *c)
{
	*c = (struct replay_conf){.workspace = a->machine.workspace, .lt_workspace = a->machine.lt_workspace};
	return alloc_config_of(a, &c->alloc);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static void
fill_steps(struct report *r, const struct replay *x)
{
	for (unsigned step = 1; step <= 2; step++)
		for (unsigned p = 0; p < PH_COUNT; p++) {
			struct step_row *st = &r->steps[step];
			const struct replay_peak *at = &x->at[step][p];

			st->phases[p].allocated = at->allocated;
			st->phases[p].reserved = at->reserved;
			if (at->allocated > st->allocated)
				st->allocated = at->allocated;
			if (at->reserved > st->reserved)
				st->reserved = at->reserved;
		}
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

bool
pass_replay(struct analysis *a)
{
	struct memory_row *m = &a->report->memory;
	struct replay_conf conf;
	struct arena *own;         /* of what is gone with the pass */
	struct replay x;

	if (!replay_configure(a, &conf))
		return false;
	conf.alloc.limit = m->limit = a->machine.limit_low;
	own = arena_part(a->c->a);
	replay_start(&x, own, &conf);
	if (!a->brief) {
		m->places = NEW(a->c->a, struct place_row, a->sched->nstorage + 1u);
		x.places = m;
	}
	replay_schedule(&x, a->sched, a->report->steps[a->report->peak_step].event, record_blocks, a);
	if (x.places)
		record_segments(&x, a->c->a);
	fill_steps(a->report, &x);
	m->allocated = larger(a->report->steps[1].allocated, a->report->steps[2].allocated);
	m->reserved = larger(a->report->steps[1].reserved, a->report->steps[2].reserved);
	m->scratch = x.with_scratch > m->reserved ? x.with_scratch - m->reserved : 0;
	a->scratch_missed = x.scratch_missed;
	m->flushes = x.a->flushes;
	m->short_of = x.short_of;
	m->short_event = x.short_event;
	arena_cancel(a->c->a, own);
	return true;
}
