/*
 * compare: a prediction beside torch.cuda.memory._snapshot() (measured.c), peak against peak: what is in use is the sum of all requests, each in
 * multiples of 512 bytes, for a trace does not say which blocks they got.
 */
#include "diff.h"
#include "measured.h"

/* ---- rows ----------------------------------------------------------------------------------------------------------------------- */

/* The prediction in the measurement's terms: tensors and cuBLAS's workspaces, where they are most. */
struct predicted {
	uint64_t peak;
	struct factors at;
	uint64_t workspaces;
	uint32_t event;
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
			p = (struct predicted){w.live + more, w.now, more, w.event};
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
	compare_modules(d, r, &m, p.event);
	return true;
}
