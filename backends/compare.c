/*
 * compare: a prediction beside torch.cuda.memory._snapshot() (measured.c), peak against peak: what is in use is the sum of all requests, each in
 * multiples of 512 bytes, for a trace does not say which blocks they got.
 */
#include "diff.h"
#include "measured.h"

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

	if (!measured_is_list(frames) || !str_eq(pickle_str(pickle_get(block, S("state"))), S("active_allocated")))
		return;
	for (uint32_t i = 0; i < frames->n; i++) {
		struct str file = pickle_str(pickle_get(frames->u.item[i], S("filename")));
		uint32_t row = file.n ? strtab_find(o->names, file) : 0;

		if (row) {
			o->bytes[row] = (int64_t)((uint64_t)o->bytes[row] + (uint64_t)measured_number(block, S("size")));        /* of a damaged file it goes round */
			o->any = true;
			return;
		}
	}
}

static void
find_owners(struct owners *o, const struct report *r, const struct measured *m)
{
	const struct pickle *segments = m->segments;

	for (uint32_t i = 1; i < r->nmodule; i++)
		strtab_id(o->names, r->modules[i].path);
	for (uint32_t i = 0; i < segments->n; i++) {
		const struct pickle *blocks = pickle_get(segments->u.item[i], S("blocks"));

		for (uint32_t k = 0; measured_is_of(m, segments->u.item[i]) && measured_is_list(blocks) && k < blocks->n; k++)
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
module_rows(struct mc_diff *d, const struct report *r, const struct measured *m)
{
	struct owners o = {&d->c, strtab_new(d->c.a), NEW(d->c.a, int64_t, r->nmodule + 1u), false};
	const int64_t *ours;

	find_owners(&o, r, m);
	if (!o.any)
		return;
	ours = predicted_owners(&o, r);
	for (uint32_t i = 1; i < r->nmodule; i++)
		if (o.bytes[i] || ours[i])
			diff_bytes(d, DIFF_MODULES, r->modules[i].path, o.bytes[i], ours[i]);
}

/* ---- rows ----------------------------------------------------------------------------------------------------------------------- */

/* The prediction in the measurement's terms: tensors and cuBLAS's workspaces, where they are most. */
struct predicted {
	uint64_t peak;
	struct factors at;
	uint64_t workspaces;
};

static struct predicted
predict(const struct report *r, struct arena *a)
{
	struct predicted p = {.peak = 0};
	struct walk w;

	walk_start(&w, r, a);
	while (walk_next(&w)) {
		uint64_t more = 0;

		for (unsigned t = 0; t < 2; t++)
			more += r->memory.workspaces[t].bytes && r->memory.workspaces[t].event <= w.event ? r->memory.workspaces[t].bytes : 0;
		if (w.live + more > p.peak)
			p = (struct predicted){w.live + more, w.now, more};
	}
	return p;
}

static void
factor_rows(struct mc_diff *d, const struct predicted *p, const struct measured *m)
{
	static const char *const names[] = {"parameters", "gradients", "optimizer state", "activations, saved", "activations, transient", "input"};
	bool known = m->at[FAC_COUNT] != m->peak;

	for (unsigned i = 0; known && i < FAC_COUNT; i++)
		diff_bytes(d, DIFF_FACTORS, str_of(names[i]), m->at[i], (int64_t)p->at.of[i]);
	diff_bytes(d, DIFF_FACTORS, known ? S("workspaces, and what is not known") : S("all"), m->at[FAC_COUNT], (int64_t)(known ? p->workspaces : p->peak));
}

bool
compare_read(struct mc_diff *d, const struct report *r, struct str bytes)
{
	const struct pickle *snapshot = pickle_read(&d->c, bytes);
	struct measured m = {.device = 0};
	struct predicted p;

	if (!snapshot || !measured_read(&d->c, snapshot, &m))
		return false;
	if (!m.traced)
		diag(&d->c, DIAG_NO_HISTORY);
	if (m.refused)
		diag(&d->c, DIAG_WAS_REFUSED, (unsigned long long)m.refused);
	if (m.device)
		d->title_a = str_fmt(d->c.a, "measured, device %u", m.device);
	p = predict(r, d->c.a);
	diff_bytes(d, DIFF_MEMORY, S("peak in use"), m.peak, (int64_t)p.peak);
	diff_bytes(d, DIFF_MEMORY, S("peak reserved"), m.reserved, (int64_t)r->memory.reserved);
	factor_rows(d, &p, &m);
	module_rows(d, r, &m);
	return true;
}
