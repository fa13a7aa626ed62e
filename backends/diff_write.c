/* Two columns and their difference, as text, Markdown, a page, or JSON (schema memcrest/diff). */
#include "diff.h"

#include "json_part.h"
#include "xml_part.h"

#include <stdlib.h>
#include <string.h>

static const char *const titles[DIFF_SECTIONS] = {"memory", "factors, at the peak", "highest point of", "modality, at the peak", "module", "recipe"};

static const char style[] =
#include "backends/html.css.inc"
    ;

/* "+1.50 GiB" */
static const char *
signed_bytes(int64_t a, int64_t b, char out[40])
{
	uint64_t n = a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
	struct buf o = {.p = out, .cap = 40};
	char h[32];

	buf_fmt(&o, "%s%s", a == b ? "" : b > a ? "+" : "-", a == b ? "-" : human_bytes(n, h));
	buf_put(&o, "", 1);
	return out;
}

static const char *
percent_text(int64_t a, int64_t b, char out[32])
{
	struct buf o = {.p = out, .cap = 32};

	if (a > 0 && a != b && (double)b / (double)a < 1000)
		buf_fmt(&o, "%+.1f %%", ((double)b - (double)a) / (double)a * 100);
	buf_put(&o, "", 1);
	return out;
}

static const char *
bytes_or_dash(int64_t n, char out[32])
{
	return n > 0 ? human_bytes((uint64_t)n, out) : "-";
}

static bool
has(const struct mc_diff *d, unsigned section)
{
	for (uint32_t i = 0; i < d->nrow; i++)
		if (d->rows[i].section == section)
			return true;
	return false;
}

/* ---- text --------------------------------------------------------------------------------------------------------- */

#define NAME 46

static void
text_name(struct buf *b, struct str s)
{
	if (s.n > NAME)
		buf_fmt(b, "  ..%.*s", NAME - 2, s.p + s.n - (NAME - 2));
	else
		buf_fmt(b, "  %-*.*s", NAME, SFMT(s));
}

static void
text_row(const struct diff_row *r, struct buf *b)
{
	char h[40], k[32];

	text_name(b, r->name);
	if (r->section == DIFF_RECIPE) {
		buf_fmt(b, "  %.*s -> %.*s\n", SFMT(r->text_a), SFMT(r->text_b));
		return;
	}
	buf_fmt(b, "%13s", bytes_or_dash(r->a, k));
	buf_fmt(b, "%13s", bytes_or_dash(r->b, k));
	buf_fmt(b, "%14s", signed_bytes(r->a, r->b, h));
	buf_fmt(b, *percent_text(r->a, r->b, k) ? "%10s\n" : "%s\n", k);
}

static struct str
short_title(struct str s, const char *letter)
{
	return s.n > 12 ? str_of(letter) : s;
}

static bool
write_text(const struct mc_diff *d, struct emit *e)
{
	buf_fmt(e->b, "a          %.*s\nb          %.*s\n", SFMT(d->title_a), SFMT(d->title_b));
	for (unsigned s = 0; s < DIFF_SECTIONS; s++) {
		if (!has(d, s))
			continue;
		if (s == DIFF_RECIPE)
			buf_fmt(e->b, "\n%s\n", titles[s]);
		else
			buf_fmt(e->b, "\n%-48s%13.*s%13.*s%14s\n", titles[s], SFMT(short_title(d->title_a, "a")), SFMT(short_title(d->title_b, "b")), "difference");
		for (uint32_t i = 0; i < d->nrow; i++)
			if (d->rows[i].section == s)
				text_row(&d->rows[i], e->b);
	}
	return !e->b->failed;
}

/* ---- md ------------------------------------------------------------------------------------------------------------- */

static bool
write_md(const struct mc_diff *d, struct emit *e)
{
	struct buf *b = e->b;
	char h[40], k[32];

	buf_str(b, S("### Peak GPU memory: "));
	md_text(b, d->title_a);
	buf_str(b, S(" to "));
	md_text(b, d->title_b);
	buf_str(b, S("\n"));
	for (unsigned s = 0; s < DIFF_SECTIONS; s++) {
		if (!has(d, s))
			continue;
		buf_fmt(b, s == DIFF_RECIPE ? "\n| %s | a | b |\n|---|---|---|\n" : "\n| %s | a | b | difference | |\n|---|--:|--:|--:|--:|\n", titles[s]);
		for (uint32_t i = 0; i < d->nrow; i++) {
			const struct diff_row *r = &d->rows[i];

			if (r->section != s)
				continue;
			buf_str(b, S("| "));
			md_text(b, r->name);
			buf_str(b, S(" | "));
			md_text(b, s == DIFF_RECIPE ? r->text_a : str_of(bytes_or_dash(r->a, k)));
			buf_str(b, S(" | "));
			md_text(b, s == DIFF_RECIPE ? r->text_b : str_of(bytes_or_dash(r->b, k)));
			if (s != DIFF_RECIPE)
				buf_fmt(b, " | %s | %s", signed_bytes(r->a, r->b, h), percent_text(r->a, r->b, k));
			buf_str(b, S(" |\n"));
		}
	}
	return !b->failed;
}

/* ---- html ------------------------------------------------------------------------------------------------------------ */

static void
cell(struct xml *x, const char *tag, const char *class, struct str s)
{
	xml_open(x, tag);
	if (class)
		xml_attr(x, "class", str_of(class));
	xml_text(x, s);
	xml_close_html(x);
}

static void
html_row(struct xml *x, const struct diff_row *r)
{
	bool recipe = r->section == DIFF_RECIPE;
	char h[40], k[32];

	xml_open(x, "tr");
	xml_open(x, "th");
	xml_attr(x, "class", S("t"));
	xml_attr(x, "scope", S("row"));
	xml_text(x, r->name);
	xml_close_html(x);
	cell(x, "td", recipe ? "t" : NULL, recipe ? r->text_a : str_of(bytes_or_dash(r->a, k)));
	cell(x, "td", recipe ? "t" : NULL, recipe ? r->text_b : str_of(bytes_or_dash(r->b, k)));
	if (!recipe) {
		cell(x, "td", NULL, str_of(signed_bytes(r->a, r->b, h)));
		cell(x, "td", NULL, str_of(percent_text(r->a, r->b, k)));
	}
	xml_close_html(x);
}

static void
html_section(const struct mc_diff *d, struct xml *x, unsigned s)
{
	static const char *const heads[] = {"a", "b", "difference", ""};

	xml_element(x, "h2", str_of(titles[s]));
	xml_open(x, "div");
	xml_attr(x, "class", S("scroll"));
	xml_open(x, "table");
	cell(x, "caption", "only", str_of(titles[s]));
	xml_open(x, "thead");
	xml_open(x, "tr");
	cell(x, "th", "t", str_of(titles[s]));
	for (unsigned i = 0; i < (s == DIFF_RECIPE ? 2 : 4); i++)
		cell(x, "th", s == DIFF_RECIPE ? "t" : NULL, str_of(heads[i]));
	xml_close_html(x);
	xml_close_html(x);
	xml_open(x, "tbody");
	for (uint32_t i = 0; i < d->nrow; i++)
		if (d->rows[i].section == s)
			html_row(x, &d->rows[i]);
	for (unsigned i = 0; i < 3; i++)
		xml_close_html(x);
}

static bool
write_html(const struct mc_diff *d, struct emit *e)
{
	struct xml *x;

	buf_str(e->b, S("<!DOCTYPE html>\n"));
	x = xml_start(e, false);
	xml_open(x, "html");
	xml_attr(x, "lang", S("en"));
	xml_open(x, "head");
	xml_open(x, "meta");
	xml_attr(x, "charset", S("utf-8"));
	xml_close(x);
	xml_open(x, "meta");
	xml_attr(x, "name", S("viewport"));
	xml_attr(x, "content", S("width=device-width, initial-scale=1"));
	xml_close(x);
	xml_element(x, "title", S("memcrest: difference"));
	xml_open(x, "style");
	xml_raw(x, (struct str){style, sizeof style - 1});
	xml_close_html(x);
	xml_close_html(x);
	xml_open(x, "body");
	xml_open(x, "main");
	xml_element(x, "h1", str_fmt(e->a, "a: %.*s", SFMT(d->title_a)));
	xml_element(x, "h1", str_fmt(e->a, "b: %.*s", SFMT(d->title_b)));
	for (unsigned s = 0; s < DIFF_SECTIONS; s++)
		if (has(d, s))
			html_section(d, x, s);
	return xml_end(x);
}

/* ---- json ---------------------------------------------------------------------------------------------------------------- */

static bool
write_json(const struct mc_diff *d, struct emit *e)
{
	static const char *const keys[] = {"memory", "factors", "phases", "modalities", "modules", "recipe"};
	json_t *o = json_object(), *list[DIFF_SECTIONS];

	json_put(&o, "schema", json_string("memcrest/diff"));
	json_put(&o, "schema_version", json_integer(1));
	json_put(&o, "a", json_text(d->title_a));
	json_put(&o, "b", json_text(d->title_b));
	json_put(&o, "same", json_boolean(!d->differs));
	for (unsigned s = 0; s < DIFF_SECTIONS; s++)
		list[s] = json_array();
	for (uint32_t i = 0; i < d->nrow; i++) {
		const struct diff_row *r = &d->rows[i];
		json_t *x = json_object();

		json_put(&x, "name", json_text(r->name));
		json_put(&x, "a", r->section == DIFF_RECIPE ? json_text(r->text_a) : json_integer(r->a));
		json_put(&x, "b", r->section == DIFF_RECIPE ? json_text(r->text_b) : json_integer(r->b));
		json_add(&list[r->section], x);
	}
	for (unsigned s = 0; s < DIFF_SECTIONS; s++)
		json_put(&o, keys[s], list[s]);
	return json_print(o, e->b);
}

/* ---- the door -------------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	bool (*write)(const struct mc_diff *, struct emit *);
} formats[] = {{"text", write_text}, {"md", write_md}, {"html", write_html}, {"json", write_json}};
#define NFORMAT (sizeof formats / sizeof formats[0])

struct job {
	const struct mc_diff *d;
	struct emit e;
	unsigned format;
	mc_write_fn *fn;
	void *user;
	bool refused;              /* by fn */
};

static int
forward(void *user, const void *p, size_t n)
{
	struct job *j = user;

	j->refused = j->refused || j->fn(j->user, p, n) != 0;
	return j->refused;
}

static bool
work(void *arg)
{
	struct job *j = arg;

	return formats[j->format].write(j->d, &j->e);
}

int
mc_diff_has_format(const char *format)
{
	for (unsigned i = 0; i < NFORMAT; i++)
		if (str_eq(str_of(format), str_of(formats[i].name)))
			return 1;
	return 0;
}

mc_status
mc_diff_write(const mc_diff *d, const char *format, mc_write_fn *fn, void *user)
{
	struct job j = {.d = d, .fn = fn, .user = user};
	struct buf b = {.write = forward, .user = &j};
	struct ctx c;
	mc_status st;

	while (j.format < NFORMAT && !str_eq(str_of(format), str_of(formats[j.format].name)))
		j.format++;
	if (j.format == NFORMAT || !d || d->c.nerror || !fn)
		return MC_BAD_INPUT;
	if (!ctx_open(&c, NULL))
		return MC_NO_MEMORY;
	j.e = (struct emit){.b = &b, .a = c.a};
	st = ctx_enter(&c, work, &j);
	if ((!buf_flush(&b) || st == MC_BAD_INPUT) && st != MC_LIMIT)
		st = j.refused ? MC_BAD_INPUT : MC_NO_MEMORY;
	free(b.p);
	ctx_close(&c);
	return st;
}
