/*
 * A snapshot of PyTorch's allocator. The trace is replayed from what must have been there before it began, so that the peak is right where
 * the history was cut. It has requests as they were made, not the blocks that they got, so that each is rounded up to 512 bytes, which is what
 * the schedule has, too.
 *
 * Only the profiler records categories. Where there are none, the stack says who asked: the optimizer's file, the engine of autograd, the forward
 * of a module; and the block's end says for what: what forward makes is saved if it is there when backward begins, what backward makes is a
 * gradient if it is there when the optimizer steps or if zero_grad() gives it back, what the optimizer makes is its state if it is there in the next forward.
 * What is never given back is there, whatever comes next: a trace may end with forward, with backward or with its only step. What was there before
 * the trace began has no stack; compare.c knows it by its size.
 */
#include "measured.h"

#include <string.h>

#define NEVER UINT32_MAX
#define MOST_FRAMES 256            /* of a stack, from the innermost */

bool
measured_is_list(const struct pickle *p)
{
	return p && (p->kind == PK_LIST || p->kind == PK_TUPLE);
}

int64_t
measured_number(const struct pickle *p, struct str key)
{
	p = pickle_get(p, key);
	return p && p->kind == PK_INT && p->u.i >= 0 && p->u.i < (int64_t)1 << 53 ? p->u.i : 0;
}

bool
measured_is_of(const struct measured *m, const struct pickle *segment)
{
	return measured_number(segment, S("device")) == m->device;
}

/* Of a damaged file sums may be anything; they go round. */
static void
add(int64_t *to, int64_t n)
{
	*to = (int64_t)((uint64_t)*to + (uint64_t)n);
}

static int64_t
rounded(int64_t n)
{
	return (n + 511) / 512 * 512;
}

/* ---- events ------------------------------------------------------------------------------------------------------------- */

static bool
is(const struct pickle *e, struct str action)
{
	return str_eq(pickle_str(pickle_get(e, S("action"))), action);
}

/* What an event adds to the bytes in use and to the reserved ones. */
static void
weigh(const struct pickle *e, int64_t *used, int64_t *reserved)
{
	int64_t n = measured_number(e, S("size"));

	*used = is(e, S("alloc")) ? rounded(n) : is(e, S("free_completed")) ? -rounded(n) : 0;
	*reserved = is(e, S("segment_alloc")) || is(e, S("segment_map")) ? n : is(e, S("segment_free")) || is(e, S("segment_unmap")) ? -n : 0;
}

/* What is in use of a block: the request. */
static int64_t
used_of_block(const struct pickle *b)
{
	bool active = str_starts(pickle_str(pickle_get(b, S("state"))), S("active"));

	return active ? rounded(measured_number(b, pickle_get(b, S("requested_size")) ? S("requested_size") : S("size"))) : 0;
}

/* .. of a segment: its blocks' requests where it lists them. */
static int64_t
used_of(const struct pickle *segment)
{
	const struct pickle *blocks = pickle_get(segment, S("blocks"));
	int64_t sum = 0;

	if (!measured_is_list(blocks))
		return measured_number(segment, S("allocated_size"));
	for (uint32_t i = 0; i < blocks->n; i++)
		add(&sum, used_of_block(blocks->u.item[i]));
	return sum;
}

/* ---- who asked, and for what ------------------------------------------------------------------------------------------------- */

enum origin { FROM_NOWHERE, FROM_LIBRARY, FROM_STATE, FROM_OPTIMIZER, FROM_BACKWARD, FROM_PARAMETER, FROM_FORWARD, NORIGIN };

/* The first that any frame of a stack satisfies. file: a part of it; name: what it begins with; NULL: any */
static const struct {
	enum origin origin;
	const char *file, *name;
} rules[] = {
	{FROM_LIBRARY, NULL, "at::cuda::getCurrentCUDABlasHandle"}, {FROM_STATE, "torch/optim/", "_init_group"}, {FROM_OPTIMIZER, "torch/optim/", NULL}, {FROM_BACKWARD, NULL, "torch::autograd::Engine"},
	{FROM_BACKWARD, "torch/autograd/", NULL}, {FROM_BACKWARD, "torch/_tensor.py", "backward"}, {FROM_PARAMETER, "torch/nn/modules/module.py", "_apply"},
	{FROM_PARAMETER, "torch/nn/", "__init__"}, {FROM_FORWARD, NULL, "forward"},
};
#define NRULE (sizeof rules / sizeof rules[0])

static bool
contains(struct str s, const char *part)
{
	return memmem(s.p ? s.p : "", s.n, part, strlen(part)) != NULL;
}

static enum origin
origin_of(const struct pickle *e)
{
	const struct pickle *frames = pickle_get(e, S("frames"));
	size_t best = NRULE;

	for (uint32_t i = 0; measured_is_list(frames) && i < frames->n && i < MOST_FRAMES; i++) {
		struct str file = pickle_str(pickle_get(frames->u.item[i], S("filename"))), name = pickle_str(pickle_get(frames->u.item[i], S("name")));

		for (size_t k = 0; k < best; k++)
			if ((!rules[k].file || contains(file, rules[k].file)) && (!rules[k].name || str_starts(name, str_of(rules[k].name))))
				best = k;
	}
	return best < NRULE ? rules[best].origin : FROM_NOWHERE;
}

static unsigned
category_of(const struct pickle *e)
{
	static const struct {
		const char *name;
		unsigned factor;
	} categories[] = {
		{"parameter", FAC_PARAM}, {"gradient", FAC_GRAD}, {"optimizer_state", FAC_OPT}, {"activation", FAC_SAVED}, {"autograd_detail", FAC_SAVED},
		{"temporary", FAC_TRANSIENT}, {"input", FAC_INPUT},
	};
	struct str s = pickle_str(pickle_get(e, S("category")));

	for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++)
		if (str_eq(s, str_of(categories[i].name)))
			return categories[i].factor;
	return FAC_COUNT;
}

struct history {
	const struct pickle *trace;
	uint32_t *partner;         /* of a request its release, of a release its request; NEVER = none */
	uint8_t *origin, *factor;  /* of a request */
	bool categories;           /* are recorded */
	uint32_t *slot, mask;      /* by address: the last request, + 1 */
};

static uint32_t *
slot_of(struct history *h, int64_t address)
{
	uint32_t k = (uint32_t)(((uint64_t)address >> 9) * 0x9e3779b97f4a7c15u >> 32) & h->mask;

	while (h->slot[k] && measured_number(h->trace->u.item[h->slot[k] - 1], S("addr")) != address)
		k = (k + 1) & h->mask;
	return &h->slot[k];
}

static void
find_partners(struct ctx *c, struct history *h)
{
	uint32_t n = h->trace->n, size = 16;

	while (size / 2 < n)
		size *= 2;
	h->slot = NEW(c->a, uint32_t, size);
	h->mask = size - 1;
	for (uint32_t i = 0; i < n; i++) {
		const struct pickle *e = h->trace->u.item[i];
		bool takes = is(e, S("alloc"));
		uint32_t *at;

		h->partner[i] = NEVER;
		if (!takes && !is(e, S("free_completed")))
			continue;
		at = slot_of(h, measured_number(e, S("addr")));
		if (takes) {
			*at = i + 1;
		} else if (*at && h->partner[*at - 1] == NEVER) {
			h->partner[i] = *at - 1;
			h->partner[*at - 1] = i;
		}
	}
}

/* Requests of autograd's threads have no Python frames; where forwards have theirs, an empty stack is one of those. */
static void
find_origins(struct history *h)
{
	bool stacks = false;

	for (uint32_t i = 0; i < h->trace->n; i++) {
		const struct pickle *e = h->trace->u.item[i];

		if (!is(e, S("alloc")))
			continue;
		h->origin[i] = (uint8_t)origin_of(e);
		h->categories |= pickle_get(e, S("category")) != NULL;
		stacks |= h->origin[i] == FROM_FORWARD;
	}
	for (uint32_t i = 0; stacks && i < h->trace->n; i++) {
		const struct pickle *frames = pickle_get(h->trace->u.item[i], S("frames"));

		if (is(h->trace->u.item[i], S("alloc")) && measured_is_list(frames) && !frames->n)
			h->origin[i] = FROM_BACKWARD;
	}
}

/* Where releases have stacks, zero_grad() gives gradients back; the request to free comes right before the release. */
static bool
is_zeroed(const struct history *h, uint32_t release)
{
	for (uint32_t i = release; release != NEVER && i + 1 >= release && i < h->trace->n; i--) {
		const struct pickle *frames = pickle_get(h->trace->u.item[i], S("frames"));

		for (uint32_t k = 0; measured_is_list(frames) && k < frames->n && k < MOST_FRAMES; k++)
			if (str_eq(pickle_str(pickle_get(frames->u.item[k], S("name"))), S("zero_grad")))
				return true;
	}
	return false;
}

/* next: the first request of each origin behind this one; again: the first of forward behind the next backward; NEVER is behind all */
static unsigned
factor_of(enum origin from, uint32_t end, const uint32_t next[NORIGIN], uint32_t again)
{
	switch (from) {
	case FROM_STATE:
		return FAC_OPT;
	case FROM_PARAMETER:
		return FAC_PARAM;
	case FROM_FORWARD:
		if (end == NEVER && again != NEVER)
			return FAC_COUNT;  /* outlives its step: a workspace */
		return end >= next[FROM_BACKWARD] ? FAC_SAVED : FAC_TRANSIENT;
	case FROM_BACKWARD:
		return end >= next[FROM_OPTIMIZER] ? FAC_GRAD : FAC_TRANSIENT;
	case FROM_OPTIMIZER:
		return end >= next[FROM_FORWARD] ? FAC_OPT : FAC_TRANSIENT;
	default:
		return FAC_COUNT;
	}
}

/* From the last event to the first, so that the next one of each origin is known. */
static void
find_factors(struct history *h)
{
	uint32_t next[NORIGIN], again = NEVER;

	for (unsigned k = 0; k < NORIGIN; k++)
		next[k] = NEVER;
	for (uint32_t i = h->trace->n; i-- > 0;) {
		const struct pickle *e = h->trace->u.item[i];

		if (!is(e, S("alloc")))
			continue;
		h->factor[i] = (uint8_t)(h->categories ? category_of(e) : factor_of(h->origin[i], h->partner[i], next, again));
		if (h->origin[i] == FROM_BACKWARD)
			again = next[FROM_FORWARD];
		if (!h->categories && h->origin[i] == FROM_BACKWARD && is_zeroed(h, h->partner[i]))
			h->factor[i] = FAC_GRAD;
		next[h->origin[i]] = i;
		if (h->origin[i] == FROM_STATE)
			next[FROM_OPTIMIZER] = i;
	}
}

/* ---- what was there before ----------------------------------------------------------------------------------------------------- */

static void
hold(struct ctx *c, struct measured *m, uint32_t *cap, int64_t bytes, uint32_t end)
{
	if (bytes <= 0)
		return;
	ROOM(c->a, m->held, m->nheld, *cap, 1);
	m->held[m->nheld++] = (struct held){bytes, end};
}

/* Blocks that the trace gives back or leaves, but does not ask for. */
static void
find_held(struct ctx *c, struct measured *m, struct history *h)
{
	uint32_t cap = 0;

	for (uint32_t i = 0; i < m->trace->n; i++)
		if (is(m->trace->u.item[i], S("free_completed")) && h->partner[i] == NEVER)
			hold(c, m, &cap, rounded(measured_number(m->trace->u.item[i], S("size"))), i);
	for (uint32_t i = 0; i < m->segments->n; i++) {
		const struct pickle *segment = m->segments->u.item[i], *blocks = pickle_get(segment, S("blocks"));
		int64_t address = measured_number(segment, S("address"));

		for (uint32_t k = 0; measured_is_of(m, segment) && measured_is_list(blocks) && k < blocks->n; k++) {
			const struct pickle *b = blocks->u.item[k];
			int64_t at = pickle_get(b, S("address")) ? measured_number(b, S("address")) : address;
			uint32_t last = *slot_of(h, at);

			if (!last || h->partner[last - 1] != NEVER)
				hold(c, m, &cap, used_of_block(b), NEVER);
			address = (int64_t)((uint64_t)at + (uint64_t)measured_number(b, S("size")));
		}
	}
}

/* ---- the peak ------------------------------------------------------------------------------------------------------------------ */

/* At the end of the trace the segments hold what they hold; before it, that less what the trace added. */
static void
begin(const struct measured *m, int64_t *used, int64_t *reserved)
{
	int64_t a, r;

	*used = *reserved = 0;
	for (uint32_t i = 0; i < m->segments->n; i++)
		if (measured_is_of(m, m->segments->u.item[i])) {
			add(used, used_of(m->segments->u.item[i]));
			add(reserved, measured_number(m->segments->u.item[i], S("total_size")));
		}
	for (uint32_t i = 0; i < m->trace->n; i++) {
		weigh(m->trace->u.item[i], &a, &r);
		add(used, -a);
		add(reserved, -r);
	}
	*used = *used > 0 ? *used : 0;
	*reserved = *reserved > 0 ? *reserved : 0;
}

static void
replay(struct measured *m, const struct history *h)
{
	int64_t used, reserved, a, r, by[FAC_COUNT + 1] = {0};

	begin(m, &used, &reserved);
	m->peak = by[FAC_COUNT] = m->at[FAC_COUNT] = used;
	m->reserved = reserved;
	m->peak_event = NEVER;
	for (uint32_t i = 0; i < m->trace->n; i++) {
		const struct pickle *e = m->trace->u.item[i];
		uint32_t request = !h ? NEVER : is(e, S("alloc")) ? i : h->partner[i];

		weigh(e, &a, &r);
		add(&used, a);
		add(&reserved, r);
		add(&by[request == NEVER ? FAC_COUNT : h->factor[request]], a);
		if (!m->refused && is(e, S("oom")))
			m->refused = measured_number(e, S("size"));
		m->reserved = reserved > m->reserved ? reserved : m->reserved;
		if (used > m->peak) {
			m->peak = used;
			m->peak_event = i;
			memcpy(m->at, by, sizeof by);
		}
	}
}

bool
measured_lives(const struct measured *m, uint32_t event)
{
	return m->peak_event != NEVER && event <= m->peak_event && is(m->trace->u.item[event], S("alloc")) && m->partner[event] > m->peak_event;
}

bool
measured_holds(const struct measured *m, const struct held *held)
{
	return m->peak_event == NEVER || held->end > m->peak_event;
}

/* The trace of a device that the list has none of is empty: PyTorch writes them all. */
bool
measured_read(struct ctx *c, const struct pickle *snapshot, struct measured *out)
{
	const struct pickle *segments = pickle_get(snapshot, S("segments")), *traces = pickle_get(snapshot, S("device_traces"));
	struct history h = {.partner = NULL};
	bool any = false;

	if (!measured_is_list(segments) || !measured_is_list(traces))
		return diag(c, DIAG_PICKLE, 0u, "this is no memory snapshot: segments and device_traces are needed");
	for (uint32_t d = 0; d < traces->n && d < 64; d++) {
		struct measured m = {.device = d, .segments = segments, .trace = traces->u.item[d]};

		if (!measured_is_list(m.trace))
			continue;
		replay(&m, NULL);
		if (!any || m.peak > out->peak)
			*out = m;
		any = true;
	}
	if (!any)
		return diag(c, DIAG_PICKLE, 0u, "this is no memory snapshot: device_traces has no trace");
	out->traced = out->trace->n > 0;
	h.trace = out->trace;
	h.partner = NEW(c->a, uint32_t, h.trace->n + 1u);
	h.origin = NEW(c->a, uint8_t, h.trace->n + 1u);
	h.factor = NEW(c->a, uint8_t, h.trace->n + 1u);
	find_partners(c, &h);
	find_origins(&h);
	find_factors(&h);
	out->partner = h.partner;
	find_held(c, out, &h);
	replay(out, &h);
	return true;
}
