/* flamegraph: what is alive at the peak as collapsed stacks, for flamegraph.pl, speedscope and inferno: modules, operator, factor, bytes. */
#include "things.h"

/* A semicolon parts frames, a blank the number. */
static void
frame(struct buf *b, struct str s)
{
	for (uint32_t i = 0; i < s.n; i++) {
		unsigned char ch = (unsigned char)s.p[i];

		buf_put(b, ch == ';' || ch <= 32 || ch == 127 ? "_" : s.p + i, 1);
	}
}

static bool
write(const struct report *r, struct emit *e)
{
	for (uint32_t i = 0; i < r->nlive; i++) {
		const struct live_row *l = &r->live[i];
		struct str rest = l->module, part;

		buf_str(e->b, S("(model)"));
		while (rest.n && str_cut(&rest, '.', &part)) {
			buf_str(e->b, S(";"));
			frame(e->b, part);
		}
		buf_str(e->b, S(";"));
		frame(e->b, last_part(l->name));
		buf_fmt(e->b, ";%s %llu\n", l->factor, (unsigned long long)r->sched->storages[l->storage].nbytes);
	}
	return !e->b->failed;
}

const struct backend backend_flamegraph = {"flamegraph", "what is alive at the peak as collapsed stacks", false, write};
