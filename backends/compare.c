/*
 * compare: a prediction beside torch.cuda.memory._snapshot(). The trace is replayed from what must have been there before it began, so that
 * the peak is right where the history was cut. Categories are PyTorch's own words; where nobody recorded them all is unknown.
 */
#include "diff.h"

#include "../frontend/pickle.h"

struct category {
	const char *name;
	unsigned factor;
};

static const struct category categories[] = {
	{"parameter", FAC_PARAM}, {"gradient", FAC_GRAD}, {"optimizer_state", FAC_OPT}, {"activation", FAC_SAVED}, {"autograd_detail", FAC_SAVED},
	{"temporary", FAC_TRANSIENT}, {"input", FAC_INPUT},
};
#define NCATEGORY (sizeof categories / sizeof categories[0])

struct measured {
	int64_t peak, reserved, now, reserved_now;
	int64_t by[FAC_COUNT + 1], at[FAC_COUNT + 1];      /* the last: unknown; at the peak */
};

static int64_t
number(const struct pickle *p, struct str key)
{
	p = pickle_get(p, key);
	return p && p->kind == PK_INT && p->u.i >= 0 && p->u.i < (int64_t)1 << 53 ? p->u.i : 0;
}

/* Of a damaged file sums may be anything; they go round. */
static void
add(int64_t *to, int64_t n)
{
	*to = (int64_t)((uint64_t)*to + (uint64_t)n);
}

static bool
is_list(const struct pickle *p)
{
	return p && (p->kind == PK_LIST || p->kind == PK_TUPLE);
}

/* ---- the trace ---------------------------------------------------------------------------------------------------------- */

static unsigned
category_of(const struct pickle *e)
{
	struct str s = pickle_str(pickle_get(e, S("category")));

	for (size_t i = 0; i < NCATEGORY; i++)
		if (str_eq(s, str_of(categories[i].name)))
			return categories[i].factor;
	return FAC_COUNT;
}

/* What an event adds to the allocated and to the reserved bytes. */
static void
weigh(const struct pickle *e, int64_t *allocated, int64_t *reserved)
{
	struct str action = pickle_str(pickle_get(e, S("action")));
	int64_t n = number(e, S("size"));

	*allocated = str_eq(action, S("alloc")) ? n : str_eq(action, S("free_completed")) ? -n : 0;
	*reserved = str_eq(action, S("segment_alloc")) || str_eq(action, S("segment_map")) ? n :
	    str_eq(action, S("segment_free")) || str_eq(action, S("segment_unmap")) ? -n : 0;
}

static void
replay(struct measured *m, const struct pickle *trace)
{
	int64_t a, r;

	for (uint32_t i = 0; i < trace->n; i++) {
		weigh(trace->u.item[i], &a, &r);
		add(&m->now, a);
		add(&m->reserved_now, r);
		add(&m->by[category_of(trace->u.item[i])], a);
		if (m->reserved_now > m->reserved)
			m->reserved = m->reserved_now;
		if (m->now > m->peak) {
			m->peak = m->now;
			for (unsigned k = 0; k <= FAC_COUNT; k++)
				m->at[k] = m->by[k];
		}
	}
}

/* At the end of the trace the segments hold what they hold; before it, that less what the trace added. */
static void
begin(struct measured *m, const struct pickle *segments, const struct pickle *trace)
{
	int64_t a, r;

	for (uint32_t i = 0; i < segments->n; i++) {
		add(&m->now, number(segments->u.item[i], S("allocated_size")));
		add(&m->reserved_now, number(segments->u.item[i], S("total_size")));
	}
	for (uint32_t i = 0; i < trace->n; i++) {
		weigh(trace->u.item[i], &a, &r);
		add(&m->now, -a);
		add(&m->reserved_now, -r);
	}
	m->now = m->now > 0 ? m->now : 0;
	m->reserved_now = m->reserved_now > 0 ? m->reserved_now : 0;
	m->by[FAC_COUNT] = m->at[FAC_COUNT] = m->peak = m->now;
	m->reserved = m->reserved_now;
}

/* ---- modules ---------------------------------------------------------------------------------------------------------------- */

struct owners {
	struct ctx *c;
	struct strtab *names;      /* id = row of the report's modules */
	int64_t *bytes;            /* of blocks that are alive at the end */
	bool any;
};

/* The innermost frame that is called after a module of the report: snapshots of our own, and of hooks that name modules. */
static void
add_block(struct owners *o, const struct pickle *block)
{
	const struct pickle *frames = pickle_get(block, S("frames"));

	if (!is_list(frames) || !str_eq(pickle_str(pickle_get(block, S("state"))), S("active_allocated")))
		return;
	for (uint32_t i = 0; i < frames->n; i++) {
		struct str file = pickle_str(pickle_get(frames->u.item[i], S("filename")));
		uint32_t row = file.n ? strtab_find(o->names, file) : 0;

		if (row) {
			add(&o->bytes[row], number(block, S("size")));
			o->any = true;
			return;
		}
	}
}

static void
find_owners(struct owners *o, const struct report *r, const struct pickle *segments)
{
	for (uint32_t i = 1; i < r->nmodule; i++)
		strtab_id(o->names, r->modules[i].path);
	for (uint32_t i = 0; i < segments->n; i++) {
		const struct pickle *blocks = pickle_get(segments->u.item[i], S("blocks"));

		for (uint32_t k = 0; is_list(blocks) && k < blocks->n; k++)
			add_block(o, blocks->u.item[k]);
	}
}

/* Likewise of the prediction: what is alive behind the second step. */
static int64_t *
predicted_owners(struct owners *o, const struct report *r)
{
	const struct schedule *s = r->sched;
	bool *alive = NEW(o->c->a, bool, s->nstorage + 1u);
	int64_t *bytes = NEW(o->c->a, int64_t, r->nmodule + 1u);

	for (uint32_t e = 0; e < s->nevent; e++)
		alive[EVENT_STORAGE(s->events[e])] = !EVENT_IS_FREE(s->events[e]);
	for (uint32_t i = 0; i < s->nstorage; i++) {
		struct str module = alive[i] ? storage_module(r, &s->storages[i]) : S("");

		if (module.n)
			bytes[strtab_find(o->names, module)] += (int64_t)r->memory.places[i].bytes;
	}
	return bytes;
}

static void
module_rows(struct mc_diff *d, const struct report *r, const struct pickle *segments)
{
	struct owners o = {&d->c, strtab_new(d->c.a), NEW(d->c.a, int64_t, r->nmodule + 1u), false};
	const int64_t *ours;

	find_owners(&o, r, segments);
	if (!o.any)
		return;
	ours = predicted_owners(&o, r);
	for (uint32_t i = 1; i < r->nmodule; i++)
		if (o.bytes[i] || ours[i])
			diff_bytes(d, DIFF_MODULES, r->modules[i].path, o.bytes[i], ours[i]);
}

/* ---- rows ----------------------------------------------------------------------------------------------------------------------- */

static void
factor_rows(struct mc_diff *d, const struct report *r, const struct measured *m)
{
	static const char *const names[] = {"parameters", "gradients", "optimizer state", "activations, saved", "activations, transient", "input"};
	const struct factors *f = peak_factors(r);

	for (unsigned i = 0; i < FAC_COUNT; i++)
		if (m->at[FAC_COUNT] != m->peak)
			diff_bytes(d, DIFF_FACTORS, str_of(names[i]), m->at[i], (int64_t)f->of[i]);
	diff_bytes(d, DIFF_FACTORS, S("of no category"), m->at[FAC_COUNT],
	    (int64_t)r->memory.allocated - (m->at[FAC_COUNT] == m->peak ? 0 : (int64_t)r->steps[r->peak_step].tensors));
}

bool
compare_read(struct mc_diff *d, const struct report *r, struct str bytes)
{
	struct pickle *p = pickle_read(&d->c, bytes);
	const struct pickle *segments, *traces;
	struct measured m = {.peak = 0};

	if (!p)
		return false;
	segments = pickle_get(p, S("segments"));
	traces = pickle_get(p, S("device_traces"));
	if (!is_list(segments) || !is_list(traces) || !traces->n || !is_list(traces->u.item[0]))
		return diag(&d->c, DIAG_PICKLE, 0u, "this is no memory snapshot: segments and device_traces are needed");
	begin(&m, segments, traces->u.item[0]);
	replay(&m, traces->u.item[0]);
	diff_bytes(d, DIFF_MEMORY, S("peak allocated"), m.peak, (int64_t)r->memory.allocated);
	diff_bytes(d, DIFF_MEMORY, S("peak reserved"), m.reserved, (int64_t)r->memory.reserved);
	factor_rows(d, r, &m);
	module_rows(d, r, segments);
	return true;
}
