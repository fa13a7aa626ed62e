/*
 * verdict: what the process takes, as a range, and whether it fits.
 *
 * low   the allocator as it is replayed, and the smallest context
 * high  the allocator if every kernel took the most scratch space that it may (passes/lower/scratch.c), or a single one of them did,
 *       whichever is more, and the largest context
 *
 * A budget alone is held against what the allocator takes, since nobody has said how large the context is; with a card or a measured
 * context it must hold the whole process, and between low and high the answer is not known.
 */
#include "replay.h"

#include "../passes.h"

static uint64_t
reserved_peak(const struct replay *r)
{
	uint64_t n = 0;

	for (unsigned step = 1; step <= 2; step++)
		for (unsigned p = 0; p < PH_COUNT; p++)
			if (r->at[step][p].reserved > n)
				n = r->at[step][p].reserved;
	return n;
}

static int64_t
difference(uint64_t a, uint64_t b)
{
	uint64_t n = a > b ? a - b : b - a;

	n = n > INT64_MAX ? INT64_MAX : n;
	return a > b ? (int64_t)n : -(int64_t)n;
}

static void
judge(const struct machine *m, const struct memory_row *mem, bool high_fits, struct verdict *v)
{
	bool low_fits = !mem->short_of;

	v->asked = true;
	v->budget = m->budget;
	v->fits = m->context_counts ? high_fits : low_fits;
	v->sure = !m->context_counts || high_fits == low_fits;
	if (!m->context_counts)
		v->margin = difference(m->budget, mem->reserved);
	else
		v->margin = difference(m->budget, low_fits ? mem->process_high : mem->process_low);
}

/* What a request that fails, or a fit that costs time, should be known for. */
static void
tell(struct analysis *a, bool high_fits)
{
	const struct memory_row *m = &a->report->memory;
	const struct storage *s = &a->sched->storages[EVENT_STORAGE(a->sched->events[m->short_event])];

	if (m->short_of)
		assume(a, "out of memory: %s asks for %llu bytes when cudaMalloc can give no more; what follows is as if it could", s->op,
		    (unsigned long long)m->short_of);
	else if (m->flushes)
		assume(a, "it only fits because cached segments are given back %u times in two steps, each time stopping the device", (unsigned)m->flushes);
	if (!m->short_of && !high_fits)
		assume(a, "kernels' scratch space%s may not fit", a->machine.context_counts ? " or the context" : "");
}

bool
pass_verdict(struct analysis *a)
{
	struct memory_row *m = &a->report->memory;
	struct replay_conf conf;
	struct replay x;
	uint64_t reserved;

	if (!replay_configure(a, &conf))
		return false;
	conf.alloc.limit = a->machine.limit_high;
	conf.scratch = true;
	replay_start(&x, a->c->a, &conf);
	replay_schedule(&x, a->sched, 0, NULL, NULL);
	reserved = reserved_peak(&x);
	if (reserved < m->reserved + m->scratch)
		reserved = m->reserved + m->scratch;
	m->scratch = reserved - m->reserved;
	m->context_low = a->machine.context_low;
	m->context_high = a->machine.context_high;
	m->process_low = m->reserved + m->context_low;
	m->process_high = reserved + m->context_high;
	if (m->process_high < m->process_low)      /* the same limit binds both */
		m->process_high = m->process_low;
	if (a->machine.budget)
		judge(&a->machine, m, !x.short_of, &a->report->verdict);
	tell(a, !x.short_of);
	return true;
}
