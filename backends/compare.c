/*
 * compare: a prediction beside torch.cuda.memory._snapshot() (measured.c), peak against peak: what is in use is the sum of all requests, each in
 * multiples of 512 bytes, for a trace does not say which blocks they got.
 */
#include "diff.h"
#include "measured.h"

#include <stdlib.h>

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

/* ---- what was there before the recording began --------------------------------------------------------------------------------- */

struct sized {
	uint64_t bytes;
	uint8_t factor;
};

static int
by_bytes(const void *x, const void *y)
{
	static const uint8_t order[FAC_COUNT] = {[FAC_PARAM] = 0, [FAC_OPT] = 1, [FAC_INPUT] = 2};
	const struct sized *a = x, *b = y;

	return a->bytes != b->bytes ? (a->bytes < b->bytes ? -1 : 1) : order[a->factor] - order[b->factor];
}

/* What the prediction has from before the step, by size. */
static uint32_t
lasting(const struct report *r, struct arena *a, uint32_t event, struct sized **out)
{
	const struct schedule *s = r->sched;
	struct walk w;
	uint32_t n = 0;

	*out = NEW(a, struct sized, s->nstorage + 1u);
	walk_start(&w, r, a);
	while (walk_next(&w) && w.event < event)
		;
	for (uint32_t i = 1; i < s->nstorage; i++) {
		unsigned f = w.alive[i] ? factor_in_step(r, s, i, w.step, event) : FAC_COUNT;

		if ((f == FAC_PARAM || f == FAC_OPT || f == FAC_INPUT) && s->storages[i].nbytes)
			(*out)[n++] = (struct sized){s->storages[i].nbytes, (uint8_t)f};
	}
	qsort(*out, n, sizeof **out, by_bytes);
	return n;
}

/* A block without a stack is taken for what has its size in the prediction, as long as that much of the factor is missing. */
static void
tell_by_size(struct mc_diff *d, const struct report *r, const struct predicted *p, struct measured *m)
{
	struct sized *want, *have = NEW(d->c.a, struct sized, m->nheld + 1u);
	uint32_t nwant = lasting(r, d->c.a, p->event, &want), nhave = 0;
	int64_t told = 0;

	for (uint32_t i = 0; i < m->nheld; i++)
		if (measured_holds(m, &m->held[i]))
			have[nhave++].bytes = (uint64_t)m->held[i].bytes;
	qsort(have, nhave, sizeof *have, by_bytes);
	for (uint32_t i = 0, k = 0; i < nwant && k < nhave;) {
		int64_t n = (int64_t)want[i].bytes, *at = &m->at[want[i].factor];

		if (have[k].bytes != want[i].bytes) {
			*(have[k].bytes < want[i].bytes ? &k : &i) += 1;
			continue;
		}
		if (*at <= (int64_t)p->at.of[want[i].factor] - n && m->at[FAC_COUNT] >= n) {
			*at += n;
			m->at[FAC_COUNT] -= n;
			told += n;
			k++;
		}
		i++;
	}
	if (told)
		diag(&d->c, DIAG_BY_SIZE, (unsigned long long)told);
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
	tell_by_size(d, r, &p, &m);
	diff_bytes(d, DIFF_MEMORY, S("peak in use"), m.peak, (int64_t)p.peak);
	diff_bytes(d, DIFF_MEMORY, S("peak reserved"), m.reserved, (int64_t)r->memory.reserved);
	factor_rows(d, &p, &m);
	compare_modules(d, r, &m, p.event);
	return true;
}
