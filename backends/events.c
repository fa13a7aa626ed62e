/* events: every allocation and release, one line each; replaying it gives the steps' peaks exactly. */
#include "backend.h"

static void
line(const struct report *r, struct buf *b, uint32_t i, const struct span *sp, uint64_t live)
{
	uint32_t event = r->sched->events[i];
	const struct storage *s = &r->sched->storages[EVENT_STORAGE(event)];
	struct str node = s->node ? graph_str(r->g, r->g->nodes[s->node].name) : s->val ? graph_str(r->g, r->g->vals[s->val].name) : S("");
	struct str module = storage_module(r, s);

	buf_fmt(b, "%u\t%u\t%s\t%s\t%llu\t%llu\t%s\t%s\t%.*s\t%.*s\t%s\t", (unsigned)i, sp->step, phase_name(sp->phase), EVENT_IS_FREE(event) ? "free" : "alloc",
	    (unsigned long long)s->nbytes, (unsigned long long)live, factor_name(s->factor), s->op, SFMT(node), SFMT(module), dtype_info(s->geom->dtype)->name);
	print_dims(s->geom, "x", b);
	buf_fmt(b, "\t%u\n", (unsigned)EVENT_STORAGE(event));
}

static bool
write(const struct report *r, struct emit *e)
{
	struct walk w;

	buf_str(e->b, S("seq\tstep\tphase\taction\tbytes\tlive\tfactor\top\tnode\tmodule\tdtype\tshape\tstorage\n"));
	walk_start(&w, r, e->a);
	while (walk_next(&w))
		line(r, e->b, w.event, w.span, w.live);
	return !e->b->failed;
}

const struct backend backend_events = {"events", "every allocation and release, as tab-separated lines", false, write};
