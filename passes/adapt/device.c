/*
 * device: what the job runs on. How much cudaMalloc can give follows from the card, a capacity or a budget, and from what the process
 * takes besides: its context, a range unless it was measured.
 */
#include "../passes.h"

/* Without a card the context can be that of any: it widens the process's range, but no budget is held against it. */
static void
any_context(struct machine *m)
{
	const struct device *d;

	m->context_low = UINT64_MAX;
	for (int64_t i = 1; (d = device_at(i)) != NULL; i++) {
		if (d->context_low < m->context_low)
			m->context_low = d->context_low;
		if (d->context_high > m->context_high)
			m->context_high = d->context_high;
	}
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static uint64_t
bytes(const struct analysis *a, unsigned key)
{
	return (uint64_t)a->r->v[key].i;
}

/* What is left of the budget for the allocator; 1 stands for nothing, since 0 means no limit. */
static uint64_t
limit(const struct analysis *a, uint64_t context)
{
	const struct machine *m = &a->machine;
	uint64_t budget = m->budget;

	if (budget && m->context_counts)
		budget = budget > context ? budget - context : 1;
	return least(bytes(a, RK_CAPACITY), budget);
}

static void
set_context(struct analysis *a)
{
	struct machine *m = &a->machine;

	m->context_counts = m->device || bytes(a, RK_CALIBRATE_CONTEXT);
	if (bytes(a, RK_CALIBRATE_CONTEXT)) {
		m->context_low = m->context_high = bytes(a, RK_CALIBRATE_CONTEXT);
	} else if (m->device) {
		m->context_low = m->device->context_low;
		m->context_high = m->device->context_high;
	} else {
		any_context(m);
	}
}

/* Without a card: the workspace of Ampere and Ada. */
static void
set_workspaces(struct analysis *a)
{
	struct machine *m = &a->machine;

	m->workspace = 8519680;
	if (m->device)
		device_workspace(m->device->sm, (unsigned)a->r->v[RK_TORCH].i, &m->workspace, &m->lt_workspace);
	if (bytes(a, RK_CALIBRATE_WORKSPACE))
		m->workspace = bytes(a, RK_CALIBRATE_WORKSPACE);
}

bool
pass_device(struct analysis *a)
{
	struct machine *m = &a->machine;

	m->device = device_at(a->r->v[RK_DEVICE].i);
	m->total = m->device ? m->device->total : bytes(a, RK_CAPACITY);
	m->budget = least(bytes(a, RK_BUDGET), m->device ? m->device->total : 0);
	set_context(a);
	set_workspaces(a);
	m->limit_low = limit(a, m->context_low);
	m->limit_high = limit(a, m->context_high);
	a->plan.sm = m->device ? m->device->sm : 0;
	if (a->plan.sm >= 90 && a->plan.sm < 120 && a->r->v[RK_TORCH].i >= 11)
		assume(a, "on this card PyTorch 2.11 and later run attention on cuDNN, which keeps what flash attention keeps");
	if (m->device)
		assume(a, "%s: a card of %llu MiB, of which the process takes %llu to %llu MiB outside PyTorch's allocator (%s)", m->device->name,
		    (unsigned long long)(m->device->total >> 20), (unsigned long long)(m->context_low >> 20), (unsigned long long)(m->context_high >> 20),
		    bytes(a, RK_CALIBRATE_CONTEXT) ? "measured" : m->device->source);
	return true;
}
