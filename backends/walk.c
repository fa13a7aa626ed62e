/* What the formats that tell a story share: the schedule event by event, and who an allocation belongs to. */
#include "backend.h"

void
walk_start(struct walk *w, const struct report *r, struct arena *a)
{
	*w = (struct walk){.r = r, .a = a, .alive = NEW(a, bool, r->sched->nstorage + 1u)};
}

/* What autograd made has become a gradient by the event. */
static void
become(struct walk *w, uint32_t event)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < w->nbecoming; k++) {
		const struct storage *x = &w->r->sched->storages[w->becoming[k]];

		if (x->became > event) {
			w->becoming[n++] = w->becoming[k];
		} else if (w->alive[w->becoming[k]]) {
			w->now.of[FAC_TRANSIENT] -= x->nbytes;
			w->now.of[FAC_GRAD] += x->nbytes;
		}
	}
	w->nbecoming = n;
}

/* What stayed from the step before may change its factor. */
static void
begin_step(struct walk *w, unsigned step)
{
	const struct schedule *s = w->r->sched;

	w->now = (struct factors){{0}};
	w->step = step;
	for (uint32_t i = 1; i < s->nstorage; i++)
		if (w->alive[i])
			w->now.of[factor_in_step(w->r, s, i, step, w->next)] += s->storages[i].nbytes;
}

bool
walk_next(struct walk *w)
{
	const struct schedule *s = w->r->sched;
	uint32_t i;
	uint64_t n, *now;

	if (w->next >= s->nevent)
		return false;
	while (w->next_span < s->nspan && s->spans[w->next_span].first <= w->next)
		w->span = &s->spans[w->next_span++];
	if (w->span->step != w->step)
		begin_step(w, w->span->step);
	w->event = w->next++;
	i = EVENT_STORAGE(s->events[w->event]);
	w->storage = &s->storages[i];
	w->frees = EVENT_IS_FREE(s->events[w->event]);
	n = w->storage->nbytes;
	become(w, w->event);
	now = &w->now.of[factor_in_step(w->r, s, i, w->step, w->event)];
	w->alive[i] = !w->frees;
	if (!w->frees && w->storage->became > w->event) {
		ROOM(w->a, w->becoming, w->nbecoming, w->becoming_cap, 1);
		w->becoming[w->nbecoming++] = i;
	}
	w->live = w->frees ? w->live - n : w->live + n;
	*now = w->frees ? *now - n : *now + n;
	return true;
}

struct str
storage_module(const struct report *r, const struct storage *s)
{
	if (s->val && r->g->vals[s->val].full) {
		struct str full = graph_str(r->g, r->g->vals[s->val].full);

		while (full.n && full.p[full.n - 1] != '.')
			full.n--;
		return full.n ? str_sub(full, 0, full.n - 1) : full;
	}
	return s->node ? scope_path(r->g, r->g->nodes[s->node].scope) : S("");
}

struct str
storage_name(const struct report *r, const struct storage *s)
{
	struct str node = s->node ? graph_str(r->g, r->g->nodes[s->node].name) : S("");

	if (s->val)
		return graph_str(r->g, r->g->vals[s->val].full ? r->g->vals[s->val].full : r->g->vals[s->val].name);
	return node.n ? node : str_of(s->op ? s->op : "");
}
