/* events: every allocation and release, one line each; replaying it gives the steps' peaks exactly. */
#include "backend.h"

static struct str
module_of(const struct report *r, const struct storage *s)
{
	if (s->val && r->g->vals[s->val].full) {
		struct str full = graph_str(r->g, r->g->vals[s->val].full);

		while (full.n && full.p[full.n - 1] != '.')
			full.n--;
		return full.n ? str_sub(full, 0, full.n - 1) : full;
	}
	return s->node ? scope_path(r->g, r->g->nodes[s->node].scope) : S("");
}

static void
line(const struct report *r, struct buf *b, uint32_t i, const struct span *sp, uint64_t live)
{
	uint32_t event = r->sched->events[i];
	const struct storage *s = &r->sched->storages[EVENT_STORAGE(event)];
	struct str node = s->node ? graph_str(r->g, r->g->nodes[s->node].name) : s->val ? graph_str(r->g, r->g->vals[s->val].name) : S("");
	struct str module = module_of(r, s);

	buf_fmt(b, "%u\t%u\t%s\t%s\t%llu\t%llu\t%s\t%s\t%.*s\t%.*s\t%s\t", (unsigned)i, sp->step, phase_name(sp->phase), EVENT_IS_FREE(event) ? "free" : "alloc",
	    (unsigned long long)s->nbytes, (unsigned long long)live, factor_name(s->factor), s->op, SFMT(node), SFMT(module), dtype_info(s->geom->dtype)->name);
	print_dims(s->geom, "x", b);
	buf_fmt(b, "\t%u\n", (unsigned)EVENT_STORAGE(event));
}

static bool
write(const struct report *r, struct buf *b)
{
	const struct schedule *s = r->sched;
	uint64_t live = 0;

	buf_str(b, S("seq\tstep\tphase\taction\tbytes\tlive\tfactor\top\tnode\tmodule\tdtype\tshape\tstorage\n"));
	for (uint32_t i = 0; i < s->nspan; i++)
		for (uint32_t e = s->spans[i].first; e < (i + 1 < s->nspan ? s->spans[i + 1].first : s->nevent); e++) {
			uint64_t n = s->storages[EVENT_STORAGE(s->events[e])].nbytes;

			live = EVENT_IS_FREE(s->events[e]) ? live - n : live + n;
			line(r, b, e, &s->spans[i], live);
		}
	return !b->failed;
}

const struct backend backend_events = {"events", "every allocation and release, as tab-separated lines", false, write};
