/* Rules of thumb beside the answer, and memory against parameters with this model on it. */
#include "html.h"

#include "../ir/api.h"

#include <math.h>

static const struct {
	unsigned bytes;
	const char *what;
} rules[] = {
	{16, "16 bytes a parameter: Adam in mixed precision, or in fp32"},
	{18, "18 bytes a parameter: the same with fp32 gradients"},
	{20, "20 bytes a parameter: ZeRO's count with gradients in both precisions"},
	{40, "40 bytes a parameter: with a guess at activations"},
};
#define NRULE (sizeof rules / sizeof rules[0])

static void
row(struct page *p, struct str what, uint64_t n, uint64_t peak, bool ours)
{
	char h[32];

	html_open(p, "tr", ours ? "here" : NULL);
	html_open(p, "th", "t");
	xml_attr(p->x, "scope", S("row"));
	xml_text(p->x, what);
	html_close(p);
	html_text(p, "td", NULL, str_of(human_bytes(n, h)));
	html_text(p, "td", NULL, ours ? S("") : str_fmt(p->e->a, "%.2f x", (double)n / (double)(peak ? peak : 1)));
	html_close(p);
}

static void
table(struct page *p)
{
	const struct report *r = p->r;
	uint64_t peak = r->steps[r->peak_step].tensors, n;

	html_wide(p, "scroll", "Table of rules of thumb");
	html_open(p, "table", "wrap");
	html_text(p, "caption", NULL, S("Rules of thumb know neither the batch nor what is frozen"));
	html_open(p, "tbody", NULL);
	row(p, S("this prediction"), peak, peak, true);
	for (unsigned i = 0; i < NRULE; i++)
		row(p, str_of(rules[i].what), mul_u64(r->param_count, rules[i].bytes, &n) ? n : UINT64_MAX, peak, false);
	row(p, S("plain sum of this job's factors"), factors_total(&r->plain), peak, false);
	html_close(p);
	html_close(p);
	html_close(p);
}

/* ---- the plot ------------------------------------------------------------------------------------------------------- */

#define W 520.0
#define H 320.0
#define LEFT 70.0
#define BOTTOM 280.0
#define TOP 16.0

struct scale {                     /* both axes logarithmic, three decades each around the model */
	double p0, p1, b0, b1;
};

static double
at_x(const struct scale *s, double params)
{
	return LEFT + (log10(params) - s->p0) / (s->p1 - s->p0) * (W - LEFT - 10);
}

static double
at_y(const struct scale *s, double bytes)
{
	return BOTTOM - (log10(bytes) - s->b0) / (s->b1 - s->b0) * (BOTTOM - TOP);
}

static void
text(struct page *p, double x, double y, const char *anchor, const char *class, struct str s)
{
	html_open(p, "text", class);
	xml_attr_fmt(p->x, "x", "%.1f", x);
	xml_attr_fmt(p->x, "y", "%.1f", y);
	xml_attr(p->x, "text-anchor", str_of(anchor));
	xml_text(p->x, s);
	html_close(p);
}

static void
guides(struct page *p, const struct scale *s)
{
	for (unsigned i = 0; i < NRULE; i++) {
		double x1 = s->p0, x2 = s->p1, per = log10(rules[i].bytes);

		x1 = x1 + per < s->b0 ? s->b0 - per : x1;
		x2 = x2 + per > s->b1 ? s->b1 - per : x2;
		if (x2 <= x1)
			continue;
		html_line(p, "guide", at_x(s, pow(10, x1)), at_y(s, pow(10, x1 + per)), at_x(s, pow(10, x2)), at_y(s, pow(10, x2 + per)));
	}
}

static struct str
short_count(struct page *p, double n)
{
	static const char *const unit[] = {"", "K", "M", "G", "T"};
	unsigned u = 0;

	for (; n >= 1000 && u < 4; u++)
		n /= 1000;
	return str_fmt(p->e->a, "%.3g%s", n, unit[u]);
}

static void
axes(struct page *p, const struct scale *s)
{
	html_line(p, "axis", LEFT, BOTTOM, W - 10, BOTTOM);
	html_line(p, "axis", LEFT, TOP, LEFT, BOTTOM);
	for (int d = (int)s->p0; d <= (int)s->p1; d++)
		text(p, at_x(s, pow(10, d)), BOTTOM + 17, d < (int)s->p1 ? "middle" : "end", NULL, short_count(p, pow(10, d)));
	for (unsigned e = 10; e < 60; e += 2)
		if (e * log10(2) >= s->b0 && e * log10(2) <= s->b1)
			text(p, LEFT - 6, at_y(s, pow(2, e)) + 4, "end", NULL, html_round_bytes(p, (uint64_t)1 << e));
	text(p, (LEFT + W) / 2, H - 6, "middle", NULL, S("parameters; the lines are 16, 18, 20 and 40 bytes each"));
}

static void
dot(struct page *p, const struct scale *s, const struct report *r, struct str name, bool ours)
{
	double x = at_x(s, (double)(r->param_count ? r->param_count : 1)), y = at_y(s, (double)r->steps[r->peak_step].tensors + 1);
	char h[32];

	html_open(p, "circle", ours ? "model" : "other");
	xml_attr_fmt(p->x, "cx", "%.1f", x);
	xml_attr_fmt(p->x, "cy", "%.1f", y);
	xml_attr(p->x, "r", ours ? S("7") : S("6"));
	xml_close(p->x);
	text(p, x + (ours ? -12 : 12), y + 4, ours ? "end" : "start", "name", str_fmt(p->e->a, "%.*s: %s", SFMT(name), human_bytes(r->steps[r->peak_step].tensors, h)));
}

static void
plot(struct page *p)
{
	const struct report *r = p->r;
	double params = log10((double)(r->param_count ? r->param_count : 1)), bytes = log10((double)r->steps[r->peak_step].tensors + 1);
	struct scale s = {floor(params) - 1, floor(params) + 2, floor(bytes) - 1, floor(bytes) + 2};
	struct str name = S("this job");

	html_open(p, "figure", NULL);
	html_open(p, "svg", "scatter");
	xml_attr_fmt(p->x, "viewBox", "0 0 %.0f %.0f", W, H);
	xml_attr(p->x, "role", S("img"));
	xml_attr(p->x, "aria-label", S("Memory against parameters, both logarithmic, with this model among rules of thumb"));
	guides(p, &s);
	axes(p, &s);
	for (unsigned i = 0; i < 3 && p->e->view.beside[i]; i++) {
		const struct report *o = &p->e->view.beside[i]->r;
		struct str precision = choice_text(RK_PRECISION, o->r->v[RK_PRECISION].i);

		if (o->steps[o->peak_step].tensors == r->steps[r->peak_step].tensors)
			name = str_fmt(p->e->a, "this job, in %.*s", SFMT(precision));
		else
			dot(p, &s, o, str_fmt(p->e->a, "in %.*s", SFMT(precision)), false);
	}
	dot(p, &s, r, name, true);
	html_close(p);
	html_close(p);
}

void
html_rules(struct page *p)
{
	html_text(p, "h2", NULL, S("Beside rules of thumb"));
	html_open(p, "div", "two");
	table(p);
	plot(p);
	html_close(p);
}
