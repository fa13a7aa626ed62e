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

	if (m->short_of)
		assume(a, "when cudaMalloc can give no more, the replay goes on as if it could: allocated and reserved are what would be needed");
	else if (m->flushes)
		assume(a, "it only fits because cached segments are given back %u times in two steps, each time stopping the device", (unsigned)m->flushes);
	if (!m->short_of && !high_fits)
		assume(a, "kernels' scratch space%s may not fit", a->machine.context_counts ? " or the context" : "");
}

/*
 * Scratch space from a cached block leaves everything as it was when it is given back; only if some of it was not cached, or the context leaves
 * less, does the allocator go another way.
 */
static bool
is_as_replayed(const struct analysis *a, const struct replay_conf *c)
{
	return !a->scratch_missed && a->machine.limit_low == a->machine.limit_high && c->alloc.max_split == UINT64_MAX && !c->alloc.allowed;
}

/* Reserved with all scratch space and the largest context; false: it does not fit. */
static bool
replay_high(struct analysis *a, struct replay_conf *conf, uint64_t *reserved)
{
	struct replay x;

	if (is_as_replayed(a, conf))
		return !a->report->memory.short_of;
	conf->alloc.limit = a->machine.limit_high;
	conf->scratch = true;
	replay_start(&x, a->c->a, conf);
	replay_schedule(&x, a->sched, 0, NULL, NULL);
	if (reserved_peak(&x) > *reserved)
		*reserved = reserved_peak(&x);
	return !x.short_of;
}

bool
pass_verdict(struct analysis *a)
{
	struct memory_row *m = &a->report->memory;
	uint64_t reserved = m->reserved + m->scratch;
	struct replay_conf conf;
	bool fits;

	if (!replay_configure(a, &conf))
		return false;
	fits = replay_high(a, &conf, &reserved);
	if (fits && a->machine.limit_high && reserved > a->machine.limit_high)
		reserved = a->machine.limit_high;
	m->scratch = reserved > m->reserved ? reserved - m->reserved : 0;
	m->context_low = a->machine.context_low;
	m->context_high = a->machine.context_high;
	m->process_low = m->reserved + m->context_low;
	m->process_high = reserved + m->context_high;
	if (m->process_high < m->process_low)      /* a larger context leaves less to reserve */
		m->process_high = m->process_low;
	if (a->machine.budget)
		judge(&a->machine, m, fits, &a->report->verdict);
	tell(a, fits);
	return true;
}
