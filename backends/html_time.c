/*
 * The memory of both steps as time goes: a stacked area by factor, phases as bands, the peak marked. Of many events the highest of each
 * stretch is drawn, so that no peak is lost and the page stays small. Time is counted in events: how long anything takes is not known.
 */
#include "html.h"
#include "json_part.h"

#include <stdlib.h>

#define MOST_POINTS 1000

struct point {
	uint32_t event, span;
	struct factors at;
	uint64_t live;
	struct str op, module;
};

struct timeline {
	struct point *p;       uint32_t n;
	uint32_t first, last;      /* events */
	uint64_t top;              /* of the axis */
	uint32_t peak;             /* point */
};

static double
percent_of(const struct timeline *t, uint32_t event)
{
	return t->last > t->first ? (double)(event - t->first) * 100 / (double)(t->last - t->first) : 0;
}

/* ---- points ---------------------------------------------------------------------------------------------------------- */

static void
take(struct timeline *t, const struct walk *w, uint32_t *stretch)
{
	uint32_t n = t->last - t->first + 1, most = n < MOST_POINTS ? n : MOST_POINTS, now = (uint32_t)((uint64_t)(w->event - t->first) * most / n);
	struct point *p = &t->p[t->n ? t->n - 1 : 0];

	if (!t->n || now != *stretch)
		p = &t->p[t->n++];
	else if (p->live >= w->live)
		return;
	*stretch = now;
	*p = (struct point){.event = w->event, .span = w->next_span - 1, .at = w->now, .live = w->live, .op = str_of(w->storage->op ? w->storage->op : "")};
	p->module = storage_module(w->r, w->storage);
	if (!p->module.n && w->storage->node)
		p->module = graph_str(w->r->g, w->r->g->nodes[w->storage->node].name);
}

static uint32_t
first_event(const struct schedule *s)
{
	for (uint32_t i = 0; i < s->nspan; i++)
		if (s->spans[i].step)
			return s->spans[i].first < s->nevent ? s->spans[i].first : 0;
	return 0;
}

static void
find_points(struct page *p, struct timeline *t)
{
	const struct schedule *s = p->r->sched;
	uint32_t stretch = 0;
	struct walk w;

	t->first = first_event(s);
	t->last = s->nevent ? s->nevent - 1 : 0;
	t->p = NEW(p->e->a, struct point, MOST_POINTS + 1);
	walk_start(&w, p->r, p->e->a);
	while (walk_next(&w))
		if (w.event >= t->first)
			take(t, &w, &stretch);
	for (uint32_t i = 0; i < t->n; i++)
		if (t->p[i].live > t->p[t->peak].live)
			t->peak = i;
}

/* Ticks at 1, 2 or 5 times a power of two of a unit; returns the distance. */
static uint64_t
ticks(uint64_t top)
{
	static const unsigned steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500};
	uint64_t unit = 1;

	while (unit < (uint64_t)1 << 50 && top / unit >= 1500)
		unit <<= 10;
	for (unsigned i = 0; i < 9; i++)
		if (top / (steps[i] * unit) < 6)
			return steps[i] * unit;
	return 1000 * unit;
}

/* ---- the drawing ------------------------------------------------------------------------------------------------------- */

static void
area(struct page *p, const struct timeline *t, unsigned upto)
{
	struct buf b = {0};
	uint64_t *low = NEW(p->e->a, uint64_t, t->n + 1), *high = NEW(p->e->a, uint64_t, t->n + 1);

	for (uint32_t i = 0; i < t->n; i++) {
		for (unsigned k = 0; k < upto; k++)
			low[i] += t->p[i].at.of[html_order[k]];
		high[i] = low[i] + t->p[i].at.of[html_order[upto]];
		buf_fmt(&b, "%s%.1f %.1f", i ? "L" : "M", percent_of(t, t->p[i].event) * 10, 300 - (double)high[i] * 300 / (double)t->top);
	}
	for (uint32_t i = t->n; i-- > 0;)
		buf_fmt(&b, "L%.1f %.1f", percent_of(t, t->p[i].event) * 10, 300 - (double)low[i] * 300 / (double)t->top);
	buf_str(&b, S("Z"));
	html_open(p, "path", factor_name(html_order[upto]));
	if (b.failed)
		xml_fail(p->x);
	xml_attr(p->x, "d", (struct str){b.p, (uint32_t)b.n});
	xml_close(p->x);
	free(b.p);
}

static uint32_t
span_end(const struct schedule *s, uint32_t i)
{
	return i + 1 < s->nspan ? s->spans[i + 1].first : s->nevent;
}

static void
bands(struct page *p, const struct timeline *t)
{
	const struct schedule *s = p->r->sched;

	for (uint32_t i = 0; i < s->nspan; i++) {
		double from = s->spans[i].step ? percent_of(t, s->spans[i].first) : 0, to = percent_of(t, span_end(s, i));

		if (!s->spans[i].step || s->spans[i].phase != PH_BACKWARD || to <= from)
			continue;
		html_open(p, "rect", "band");
		xml_attr_fmt(p->x, "x", "%.1f", from * 10);
		xml_attr(p->x, "y", S("0"));
		xml_attr_fmt(p->x, "width", "%.1f", (to - from) * 10);
		xml_attr(p->x, "height", S("300"));
		xml_close(p->x);
	}
}

static void
label(struct page *p, const char *class, const char *style, struct str text)
{
	html_open(p, "span", class);
	xml_attr(p->x, "style", str_of(style));
	xml_text(p->x, text);
	html_close(p);
}

/* Under the axis, in full where there is room; data-s is what a phone shows. */
static void
phase_label(struct page *p, const struct span *s, double from, double width)
{
	static const char *const brief[] = {[PH_FORWARD] = "fwd", [PH_BACKWARD] = "bwd", [PH_OPTIMIZER] = "opt"};
	const char *name = width > 7 ? phase_name(s->phase) : brief[s->phase];

	html_open(p, "span", "x");
	xml_attr_fmt(p->x, "style", "left:%.2f%%;width:%.2f%%", from, width);
	xml_attr(p->x, "data-s", str_of(brief[s->phase]));
	if (width > 15)
		xml_fmt(p->x, "step %u %s", s->step, name);
	else
		xml_fmt(p->x, "%u %s", s->step, name);
	html_close(p);
}

static void
labels(struct page *p, const struct timeline *t, uint64_t tick)
{
	const struct schedule *s = p->r->sched;
	double at = percent_of(t, t->p[t->peak].event);
	char h[32];

	for (uint64_t y = 0; y <= t->top; y += tick)
		label(p, "y", str_fmt(p->e->a, "bottom:%.2f%%", (double)y * 100 / (double)t->top).p, html_round_bytes(p, y));
	for (uint32_t i = 0; i < s->nspan; i++) {
		double from = s->spans[i].step ? percent_of(t, s->spans[i].first) : 0, to = percent_of(t, span_end(s, i));

		if (s->spans[i].step && to - from > 3)
			phase_label(p, &s->spans[i], from, to - from);
	}
	label(p, at < 12 ? "mark left" : at > 88 ? "mark right" : "mark", str_fmt(p->e->a, "left:%.2f%%", at).p,
	    str_fmt(p->e->a, "peak %s", human_bytes(t->p[t->peak].live, h)));
	label(p, "dot", str_fmt(p->e->a, "left:%.2f%%;bottom:%.2f%%", at, (double)t->p[t->peak].live * 100 / (double)t->top).p, S(""));
}

static void
drawing(struct page *p, const struct timeline *t, uint64_t tick)
{
	double at = percent_of(t, t->p[t->peak].event) * 10;

	xml_open(p->x, "svg");
	xml_attr(p->x, "viewBox", S("0 0 1000 300"));
	xml_attr(p->x, "preserveAspectRatio", S("none"));
	xml_attr(p->x, "aria-hidden", S("true"));
	bands(p, t);
	for (uint64_t y = tick; y <= t->top; y += tick)
		html_line(p, "rule", 0, 300 - (double)y * 300 / (double)t->top, 1000, 300 - (double)y * 300 / (double)t->top);
	for (unsigned i = 0; i < FAC_COUNT; i++)
		area(p, t, i);
	html_line(p, "peakline", at, 0, at, 300);
	html_close(p);
}

/* ---- what the cursor shows -------------------------------------------------------------------------------------------------- */

/* All that the points name; made before any JSON, which the arena's end of memory would jump over. */
static struct strtab *
intern(struct page *p, const struct timeline *t)
{
	struct strtab *names = strtab_new(p->e->a);

	for (uint32_t i = 0; i < t->n; i++) {
		strtab_id(names, t->p[i].op);
		strtab_id(names, t->p[i].module);
	}
	return names;
}

static json_t *
names_of(const struct strtab *names)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < strtab_count(names); i++)
		json_add(&list, json_text(strtab_str(names, i)));
	return list;
}

static json_t *
phases_of(struct page *p)
{
	const struct schedule *s = p->r->sched;
	json_t *list = json_array();

	for (uint32_t i = 0; i < s->nspan; i++)
		if (s->spans[i].micro)
			json_add(&list, json_fmt("step %u, %s, micro-batch %u", s->spans[i].step, phase_name(s->spans[i].phase), (unsigned)s->spans[i].micro + 1));
		else
			json_add(&list, json_fmt("step %u, %s", s->spans[i].step, phase_name(s->spans[i].phase)));
	return list;
}

/* Numbers are those of a page's script, exact below 2^53. */
static json_t *
points(struct page *p, const struct timeline *t)
{
	const struct strtab *names = intern(p, t);
	json_t *o = json_object(), *x = json_array(), *live = json_array(), *at = json_array(), *phase = json_array(), *op = json_array(), *module = json_array();
	json_t *factors = json_array(), *words = json_array();

	for (unsigned k = 0; k < FAC_COUNT; k++) {
		json_t *list = json_array();

		for (uint32_t i = 0; i < t->n; i++)
			json_add(&list, json_integer((json_int_t)t->p[i].at.of[html_order[k]]));
		json_add(&at, list);
		json_add(&factors, json_string(factor_name(html_order[k])));
		json_add(&words, json_string(factor_words(html_order[k])));
	}
	for (uint32_t i = 0; i < t->n; i++) {
		json_add(&x, json_integer((json_int_t)(percent_of(t, t->p[i].event) * 10)));
		json_add(&live, json_integer((json_int_t)t->p[i].live));
		json_add(&phase, json_integer(t->p[i].span));
		json_add(&op, json_integer(strtab_find(names, t->p[i].op)));
		json_add(&module, json_integer(strtab_find(names, t->p[i].module)));
	}
	json_put(&o, "peak", json_integer(t->peak));
	json_put(&o, "names", names_of(names));
	json_put(&o, "phases", phases_of(p));
	json_put(&o, "factors", factors);
	json_put(&o, "words", words);
	json_put(&o, "x", x);
	json_put(&o, "live", live);
	json_put(&o, "at", at);
	json_put(&o, "phase", phase);
	json_put(&o, "op", op);
	json_put(&o, "module", module);
	return o;
}

/* In a script element nothing is escaped, so that no < may be in it; in JSON it is only in strings. */
static int
without_tags(const char *s, size_t n, void *user)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] == '<')
			buf_str(user, S("\\u003c"));
		else
			buf_put(user, s + i, 1);
	return 0;
}

static void
data(struct page *p, const struct timeline *t)
{
	json_t *o = points(p, t);
	struct buf b = {0};

	if (!o || json_dump_callback(o, without_tags, &b, JSON_COMPACT) || b.failed)
		xml_fail(p->x);
	json_decref(o);
	xml_open(p->x, "script");
	xml_attr(p->x, "type", S("application/json"));
	xml_attr(p->x, "id", S("points"));
	xml_raw(p->x, (struct str){b.p, (uint32_t)b.n});
	html_close(p);
	free(b.p);
}

void
html_timeline(struct page *p)
{
	struct timeline t = {0};
	uint64_t tick, most;
	const char *what = dominant(peak_factors(p->r), &most);
	char h[32], x[32];

	find_points(p, &t);
	if (!t.n || !t.p[t.peak].live)
		return;
	tick = ticks(t.p[t.peak].live);
	t.top = t.p[t.peak].live + t.p[t.peak].live / 20 + 1;
	html_text(p, "h2", NULL, S("Memory of two steps as time goes"));
	html_open(p, "figure", NULL);
	html_open(p, "div", "plot");
	xml_attr(p->x, "id", S("timeline"));
	xml_attr(p->x, "tabindex", S("0"));
	xml_attr(p->x, "role", S("application"));
	xml_attr_fmt(p->x, "aria-label", "Timeline of memory by factor over two training steps. The peak is %s in step %u, %s, mostly %s. Arrow keys move along it, Enter goes to the peak.",
	    human_bytes(t.p[t.peak].live, h), p->r->peak_step, phase_name(p->r->steps[p->r->peak_step].phase), what);
	drawing(p, &t, tick);
	labels(p, &t, tick);
	html_close(p);
	html_open(p, "div", "only");
	xml_attr(p->x, "id", S("said"));
	xml_attr(p->x, "aria-live", S("polite"));
	html_close(p);
	html_open(p, "figcaption", NULL);
	xml_fmt(p->x, "%s allocations and releases, from left to right; how long each takes is not known. Each point is the highest of %u. Backward is shaded.",
	    exact_bytes((uint64_t)t.last - t.first + 1, x), (unsigned)((t.last - t.first) / MOST_POINTS + 1));
	html_close(p);
	html_close(p);
	data(p, &t);
}
