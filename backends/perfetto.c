/*
 * perfetto: a trace for ui.perfetto.dev and chrome://tracing: counters of every factor and of the total, phases and operators as slices, the peak
 * marked. Time means nothing: an event of the schedule is a millisecond.
 */
#include "json_part.h"

#define TICK 1000                  /* microseconds */
#define EXACT (((int64_t)1 << 53) - 1)     /* readers take numbers for doubles */

enum track { TRACK_PHASES = 1, TRACK_OPERATORS };

struct tracing {
	const struct report *r;
	struct emit *e;
	struct json_stream out;
};

static json_t *
exact(uint64_t n)
{
	return json_integer(n > (uint64_t)EXACT ? EXACT : (json_int_t)n);
}

static json_t *
entry(const char *kind, struct str name, unsigned track, uint64_t at)
{
	json_t *o = json_object();

	json_put(&o, "ph", json_string(kind));
	json_put(&o, "name", json_text(name));
	json_put(&o, "pid", json_integer(0));
	if (track)
		json_put(&o, "tid", json_integer(track));
	json_put(&o, "ts", exact(at * TICK));
	return o;
}

static void
name_track(struct tracing *t, const char *what, unsigned track, struct str name)
{
	json_t *o = entry("M", str_of(what), track, 0), *args = json_object();

	json_put(&args, "name", json_text(name));
	json_put(&o, "args", args);
	json_stream_item(&t->out, o);
}

static json_t *
operator_args(const struct report *r, const struct storage *s)
{
	json_t *args = json_object();

	json_put(&args, "module", json_text(storage_module(r, s)));
	json_put(&args, "node", json_text(storage_name(r, s)));
	return args;
}

static void
slice(struct tracing *t, struct str name, unsigned track, uint64_t from, uint64_t to, const struct storage *of)
{
	json_t *o = entry("X", name, track, from);

	json_put(&o, "dur", exact((to - from) * TICK));
	if (of)
		json_put(&o, "args", operator_args(t->r, of));
	json_stream_item(&t->out, o);
}

/* ---- tracks --------------------------------------------------------------------------------------------------------- */

static void
phases(struct tracing *t)
{
	const struct schedule *s = t->r->sched;

	for (uint32_t i = 0; i < s->nspan; i++) {
		uint32_t end = i + 1 < s->nspan ? s->spans[i + 1].first : s->nevent;

		if (end > s->spans[i].first)
			slice(t, s->spans[i].step ? str_fmt(t->e->a, "step %u, %s", s->spans[i].step, phase_name(s->spans[i].phase)) : S("start"), TRACK_PHASES, s->spans[i].first,
			    end, NULL);
	}
}

/* Allocations in a row of one kernel for one node, with the releases between them, are one slice. */
static void
operators(struct tracing *t)
{
	const struct schedule *s = t->r->sched;
	const struct storage *now = NULL;
	uint32_t from = 0, span = 0, span_now = 0;

	for (uint32_t e = 0; e <= s->nevent; e++) {
		const struct storage *x = e < s->nevent ? &s->storages[EVENT_STORAGE(s->events[e])] : NULL;

		while (span + 1 < s->nspan && s->spans[span + 1].first <= e)
			span++;
		if (x && ((EVENT_IS_FREE(s->events[e]) && span == span_now) || (now && x->node == now->node && x->op == now->op && span == span_now)))
			continue;
		if (now)
			slice(t, str_of(now->op ? now->op : ""), TRACK_OPERATORS, from, e, now);
		now = x && !EVENT_IS_FREE(s->events[e]) ? x : NULL;
		from = e;
		span_now = span;
	}
}

static void
counters(struct tracing *t)
{
	struct walk w;

	walk_start(&w, t->r, t->e->a);
	while (walk_next(&w)) {
		json_t *o = entry("C", S("memory"), 0, w.event), *args = json_object();

		json_put(&args, "total", exact(w.live));
		for (unsigned i = 0; i < FAC_COUNT; i++)
			json_put(&args, factor_name(i), exact(w.now.of[i]));
		json_put(&o, "args", args);
		json_stream_item(&t->out, o);
	}
}

static void
peak(struct tracing *t)
{
	const struct step_row *st = &t->r->steps[t->r->peak_step];
	char h[32];
	json_t *o = entry("i", str_fmt(t->e->a, "peak %s: %.*s", human_bytes(st->tensors, h), SFMT(peak_place(t->r, t->e->a))), TRACK_OPERATORS, st->event);

	json_put(&o, "s", json_string("g"));
	json_stream_item(&t->out, o);
}

static json_t *
envelope(void)
{
	json_t *o = json_object(), *metadata = json_object();

	json_put(&metadata, "tool", json_string("memcrest " MC_VERSION));
	json_put(&metadata, "time", json_string("one millisecond is one allocation or release"));
	json_put(&o, "displayTimeUnit", json_string("ms"));
	json_put(&o, "metadata", metadata);
	json_put(&o, "traceEvents", json_array());
	return o;
}

static bool
write(const struct report *r, struct emit *e)
{
	struct tracing t = {.r = r, .e = e};

	json_stream_open(&t.out, envelope(), e->b);
	name_track(&t, "process_name", 0, str_fmt(e->a, "GPU 0, predicted: %.*s", SFMT(r->file)));
	name_track(&t, "thread_name", TRACK_PHASES, S("phases"));
	name_track(&t, "thread_name", TRACK_OPERATORS, S("operators"));
	phases(&t);
	operators(&t);
	counters(&t);
	peak(&t);
	return json_stream_close(&t.out);
}

const struct backend backend_perfetto = {"perfetto", "a trace with counters and phases for ui.perfetto.dev", false, write};
