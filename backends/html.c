/*
 * html: one page without any file beside it. The answer first, then why: factors by modality, the memory of both steps as time goes,
 * who holds the peak, the module tree, rules of thumb, and what was assumed. It is whole without scripts; the script adds pointing and sorting.
 */
#include "html.h"

static const char style[] =
#include "backends/html.css.inc"
    ;
static const char script[] =
#include "backends/html.js.inc"
    ;

#define LARGEST 25

/* ---- pieces -------------------------------------------------------------------------------------------------------- */

const uint8_t html_order[FAC_COUNT] = {FAC_PARAM, FAC_OPT, FAC_GRAD, FAC_INPUT, FAC_SAVED, FAC_TRANSIENT};

const char *
factor_words(unsigned f)
{
	static const char *const words[FAC_COUNT] = {"parameters", "gradients", "optimizer state", "activations kept for backward", "transient activations", "input batch"};

	return words[f];
}

void
html_open(struct page *p, const char *tag, const char *class)
{
	xml_open(p->x, tag);
	if (class)
		xml_attr(p->x, "class", str_of(class));
}

void
html_close(struct page *p)
{
	xml_close_html(p->x);
}

/* What may be wider than the window scrolls, by keys as well. */
void
html_wide(struct page *p, const char *class, const char *what)
{
	html_open(p, "div", class);
	xml_attr(p->x, "tabindex", S("0"));
	xml_attr(p->x, "role", S("region"));
	xml_attr(p->x, "aria-label", str_of(what));
}

/* "50 GiB": a tick is a whole number of its unit. */
struct str
html_round_bytes(struct page *p, uint64_t n)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	unsigned u = 0;

	for (; n && n % 1024 == 0 && u < 5; u++)
		n /= 1024;
	return n ? str_fmt(p->e->a, "%llu %s", (unsigned long long)n, unit[u]) : S("0");
}

void
html_line(struct page *p, const char *class, double x1, double y1, double x2, double y2)
{
	html_open(p, "line", class);
	xml_attr_fmt(p->x, "x1", "%.1f", x1);
	xml_attr_fmt(p->x, "y1", "%.1f", y1);
	xml_attr_fmt(p->x, "x2", "%.1f", x2);
	xml_attr_fmt(p->x, "y2", "%.1f", y2);
	xml_close(p->x);
}

void
html_text(struct page *p, const char *tag, const char *class, struct str s)
{
	html_open(p, tag, class);
	xml_text(p->x, s);
	html_close(p);
}

void
html_cell(struct page *p, uint64_t n)
{
	char h[32];

	xml_open(p->x, "td");
	xml_attr_bytes(p->x, "data-v", n);
	xml_text(p->x, n ? str_of(human_bytes(n, h)) : S("-"));
	html_close(p);
}

void
html_strip(struct page *p, const char *class, const struct factors *f, uint64_t whole)
{
	char h[32];

	html_open(p, "div", class);
	for (unsigned i = 0; i < FAC_COUNT; i++) {
		uint64_t n = f->of[html_order[i]];

		if (!n)
			continue;
		html_open(p, "i", factor_name(html_order[i]));
		xml_attr_fmt(p->x, "style", "width:%.3f%%", (double)n / (double)(whole ? whole : 1) * 100);
		xml_attr_fmt(p->x, "title", "%s: %s", factor_words(html_order[i]), human_bytes(n, h));
		html_close(p);
	}
	html_close(p);
}

static void
legend(struct page *p)
{
	html_open(p, "ul", "legend");
	for (unsigned i = 0; i < FAC_COUNT; i++) {
		html_open(p, "li", NULL);
		html_open(p, "i", factor_name(html_order[i]));
		html_close(p);
		xml_text(p->x, str_of(factor_words(html_order[i])));
		html_close(p);
	}
	html_close(p);
}

/* ---- the answer ---------------------------------------------------------------------------------------------------------- */

static void
verdict(struct page *p)
{
	const struct verdict *v = &p->r->verdict;
	uint64_t margin = v->margin < 0 ? -(uint64_t)v->margin : (uint64_t)v->margin;
	char h[32], k[32];

	if (!v->asked)
		return;
	html_open(p, "p", NULL);
	html_open(p, "span", v->sure && v->fits ? "verdict yes" : "verdict no");
	xml_fmt(p->x, "%s %s: %s %s", !v->sure ? "may or may not fit in" : v->fits ? "fits in" : "does not fit in", human_bytes(v->budget, h), human_bytes(margin, k),
	    v->margin < 0 ? "too much" : "to spare");
	html_close(p);
	html_close(p);
}

static void
cause(struct page *p)
{
	const struct report *r = p->r;
	const struct step_row *st = &r->steps[r->peak_step];
	const struct alike_row *top = r->nlive_alike ? &r->live_alike[0] : NULL;
	uint64_t most;
	const char *what = dominant(peak_factors(r), &most);
	char h[32];

	html_open(p, "p", "why");
	xml_fmt(p->x, "The peak comes in ");
	html_open(p, "b", NULL);
	xml_fmt(p->x, "step %u, %s", r->peak_step, phase_name(st->phase));
	html_close(p);
	xml_fmt(p->x, ", at ");
	html_text(p, "b", NULL, peak_place(r, p->e->a));
	if (r->peak_modality)
		xml_fmt(p->x, " (%s)", modality_name(r->peak_modality));
	xml_fmt(p->x, ". %u %% of it are ", percent(most, st->tensors));
	html_text(p, "b", NULL, str_of(what));
	if (top) {
		xml_fmt(p->x, "; the largest share of one kind is ");
		html_text(p, "b", NULL, top->name);
		xml_fmt(p->x, top->count > 1 ? ": %s in %u storages (%s)" : ": %s in %u storage (%s)", human_bytes(top->bytes, h), (unsigned)top->count, top->factor);
	}
	xml_fmt(p->x, ".");
	html_close(p);
}

static void
tile(struct page *p, const char *number, const char *words)
{
	html_open(p, "div", "tile");
	html_text(p, "b", NULL, str_of(number));
	html_text(p, "span", NULL, str_of(words));
	html_close(p);
}

static void
tiles(struct page *p)
{
	const struct memory_row *m = &p->r->memory;
	char h[32], low[32], high[32];
	struct str process = str_fmt(p->e->a, "%s to %s", human_bytes(m->process_low, low), human_bytes(m->process_high, high));

	html_open(p, "div", "tiles");
	tile(p, human_bytes(m->allocated, h), "allocated: torch.cuda.max_memory_allocated()");
	tile(p, human_bytes(m->reserved, h), "reserved: torch.cuda.max_memory_reserved()");
	tile(p, process.p, "process: what nvidia-smi shows, with the CUDA context");
	tile(p, human_bytes(factors_total(&p->r->plain), h), "plain sum of the factors, which never live all at once");
	html_close(p);
}

static void
answer(struct page *p)
{
	const struct step_row *st = &p->r->steps[p->r->peak_step];
	char h[32], x[32];

	html_open(p, "p", "big");
	xml_fmt(p->x, "%s%s ", p->r->lower_bound ? "at least " : "", human_bytes(st->tensors, h));
	html_open(p, "small", NULL);
	xml_fmt(p->x, "peak of tensors (%s bytes)", exact_bytes(st->tensors, x));
	html_close(p);
	html_close(p);
	verdict(p);
	cause(p);
	html_strip(p, "bar", peak_factors(p->r), st->tensors);
	legend(p);
	tiles(p);
}

/* ---- tables --------------------------------------------------------------------------------------------------------------- */

/* left: bits of the columns with words */
static void
heads(struct page *p, const char *const *names, unsigned left)
{
	html_open(p, "thead", NULL);
	html_open(p, "tr", NULL);
	for (unsigned i = 0; names[i]; i++) {
		html_open(p, "th", left >> i & 1 ? "t" : NULL);
		xml_attr(p->x, "scope", S("col"));
		xml_text(p->x, str_of(names[i]));
		html_close(p);
	}
	html_close(p);
	html_close(p);
}

static void
row_head(struct page *p, struct str s)
{
	html_open(p, "th", "t");
	xml_attr(p->x, "scope", S("row"));
	xml_text(p->x, s);
	html_close(p);
}

static void
factor_row(struct page *p, struct str name, const struct factors *f, bool here)
{
	html_open(p, "tr", here ? "peak" : NULL);
	row_head(p, name);
	html_cell(p, factors_total(f));
	for (unsigned i = 0; i < FAC_COUNT; i++)
		html_cell(p, f->of[i]);
	html_close(p);
}

static const char *const factor_heads[] = {"highest point of", "total", "parameters", "gradients", "optimizer", "saved", "transient", "input", NULL};

static void
step_row(struct page *p, unsigned step, unsigned phase)
{
	const struct step_row *st = &p->r->steps[step];
	bool here = step == p->r->peak_step && phase == st->phase;

	factor_row(p, str_fmt(p->e->a, "step %u, %s%s", step, phase_name(phase), here ? " (the peak)" : ""), &st->phases[phase].at, here);
}

static void
modalities(struct page *p)
{
	const struct report *r = p->r;
	uint64_t largest = 0;
	char h[32];

	html_text(p, "h2", NULL, S("Which modality holds the peak"));
	for (unsigned i = 1; i < MOD_COUNT; i++)
		largest = factors_total(&r->modalities[i].at) > largest ? factors_total(&r->modalities[i].at) : largest;
	html_open(p, "div", "bars");
	for (unsigned i = 1; i < MOD_COUNT; i++) {
		uint64_t n = factors_total(&r->modalities[i].at);

		if (!n)
			continue;
		html_text(p, "span", NULL, str_of(modality_name(i)));
		html_text(p, "span", "n", str_of(human_bytes(n, h)));
		html_strip(p, "bar", &r->modalities[i].at, largest);
	}
	html_close(p);
	html_wide(p, "scroll", "Table of phases and modalities");
	html_open(p, "table", NULL);
	html_text(p, "caption", NULL, S("The highest point of each phase, and the peak by modality"));
	heads(p, factor_heads, 1);
	html_open(p, "tbody", NULL);
	for (unsigned i = 1; i <= 2; i++)
		for (unsigned k = PH_FORWARD; k < PH_COUNT; k++)
			step_row(p, i, k);
	for (unsigned i = 1; i < MOD_COUNT; i++)
		if (factors_total(&r->modalities[i].at))
			factor_row(p, str_fmt(p->e->a, "peak: %s", modality_name(i)), &r->modalities[i].at, false);
	factor_row(p, S("plain sum"), &r->plain, false);
	html_close(p);
	html_close(p);
	html_close(p);
}

static void
live(struct page *p)
{
	static const char *const names[] = {"storages", "bytes", "count", "factor", "shape", NULL};
	const struct report *r = p->r;

	html_wide(p, "scroll", "Table of the largest storages");
	html_open(p, "table", "wrap");
	html_text(p, "caption", NULL, S("The largest storages alive at the peak, like ones added up"));
	heads(p, names, 0x19);
	html_open(p, "tbody", NULL);
	for (uint32_t i = 0; i < r->nlive_alike && i < LARGEST; i++) {
		const struct alike_row *l = &r->live_alike[i];
		const struct geom *g = r->sched->storages[l->storage].geom;
		char dims[256];
		struct buf b = {.p = dims, .cap = sizeof dims};

		print_dims(g, " x ", &b);
		html_open(p, "tr", NULL);
		row_head(p, l->name);
		html_cell(p, l->bytes);
		html_text(p, "td", NULL, str_fmt(p->e->a, "%u", (unsigned)l->count));
		html_text(p, "td", "t", str_of(l->factor));
		html_text(p, "td", "t", str_fmt(p->e->a, "%s [%.*s]", dtype_info(g->dtype)->name, (int)b.n, dims));
		html_close(p);
	}
	html_close(p);
	html_close(p);
	html_close(p);
}

/* ---- the module tree --------------------------------------------------------------------------------------------------------- */

static void
count_cell(struct page *p, uint64_t n)
{
	char x[32];

	xml_open(p->x, "td");
	xml_attr_bytes(p->x, "data-v", n);
	xml_text(p->x, n ? str_of(exact_bytes(n, x)) : S("-"));
	html_close(p);
}

static void
module_row(struct page *p, const struct module_tree *t, uint32_t i, uint32_t parent)
{
	const struct module_row *m = &p->r->modules[i];

	html_open(p, "tr", m->peak_here ? "here" : NULL);
	xml_attr_fmt(p->x, "data-d", "%u", t->depth[i]);
	xml_attr_fmt(p->x, "data-p", "%u", (unsigned)parent);
	html_open(p, "th", "t");
	xml_attr(p->x, "scope", S("row"));
	xml_attr_fmt(p->x, "style", "--d:%u", t->depth[i]);
	html_open(p, "span", NULL);
	xml_attr(p->x, "title", m->path.n ? m->path : S("(whole model)"));
	xml_text(p->x, m->path.n ? last_part(m->path) : S("(whole model)"));
	html_close(p);
	html_close(p);
	if (p->r->sched) {
		html_cell(p, factors_total(&m->at));
		html_cell(p, m->at.of[FAC_PARAM]);
		html_cell(p, m->at.of[FAC_GRAD]);
		html_cell(p, m->at.of[FAC_OPT]);
		html_cell(p, factors_act(&m->at));
		html_cell(p, m->saved);
	}
	html_text(p, "td", "t", last_part(m->cls));
	html_text(p, "td", "t", str_of(modality_name(m->modality)));
	count_cell(p, m->parameters);
	count_cell(p, m->trainable);
	html_close(p);
}

static void
modules(struct page *p)
{
	static const char *const trained[] = {"module", "at the peak", "parameters", "gradients", "optimizer", "activations", "saved by forward", "class", "modality", "number of parameters", "that train", NULL};
	static const char *const held[] = {"module", "class", "modality", "number of parameters", "that train", NULL};
	const struct report *r = p->r;
	struct module_tree *t = tree_of(r, NULL, p->e->a);
	uint32_t *at = NEW(p->e->a, uint32_t, r->nmodule), n = 0, row = 0;
	unsigned up;

	html_text(p, "h2", NULL, S("Modules"));
	html_text(p, "p", "soft", r->sched ? S("Bytes at the peak, children included. The peak's operator is in the modules in red.") : S("Children are included."));
	html_wide(p, "scroll", "Table of modules");
	html_open(p, "table", NULL);
	xml_attr(p->x, "id", S("modules"));
	html_open(p, "caption", "only");
	xml_text(p->x, S("The module tree"));
	html_close(p);
	heads(p, r->sched ? trained : held, r->sched ? 0x181 : 7);
	html_open(p, "tbody", NULL);
	do {
		at[row] = n++;
		module_row(p, t, row, row ? at[r->modules[row].parent] : 0);
		row = tree_walk(r, t, row, &up);
	} while (row);
	html_close(p);
	html_close(p);
	html_close(p);
}

/* ---- how it was made ------------------------------------------------------------------------------------------------------------ */

static void
list(struct page *p)
{
	const struct report *r = p->r;

	html_open(p, "ul", NULL);
	for (uint32_t i = 0; i < r->nassumption; i++)
		html_text(p, "li", NULL, r->assumptions[i]);
	for (uint32_t i = 0; i < r->nload_diag; i++)
		html_text(p, "li", NULL, str_fmt(p->e->a, "%s: %.*s", diag_name(r->load_diags[i].code), SFMT(r->load_diags[i].text)));
	for (uint32_t i = 0; i < r->ndiag; i++)
		html_text(p, "li", NULL, str_fmt(p->e->a, "%s: %.*s", diag_name(r->diags[i].code), SFMT(r->diags[i].text)));
	html_close(p);
}

static void
fact(struct page *p, const char *name, struct str value)
{
	html_text(p, "dt", NULL, str_of(name));
	html_text(p, "dd", NULL, value);
}

static struct str
recipe_text(struct page *p, unsigned k)
{
	const struct recipe_value *v = &p->r->r->v[k];
	struct str s = S("");

	if (key_info(k)->type == RT_LIST)
		for (uint32_t i = 0; i < v->nlist; i++)
			s = str_fmt(p->e->a, "%.*s%s%.*s", SFMT(s), i ? ", " : "", SFMT(v->list[i]));
	else if (key_info(k)->type == RT_CHOICE)
		s = choice_text(k, v->i);
	else
		s = v->text.n ? v->text : str_fmt(p->e->a, "%lld", (long long)v->i);
	return s;
}

static void
facts(struct page *p)
{
	const struct report *r = p->r;
	char h[32], all[32], trained[32];

	html_open(p, "dl", NULL);
	fact(p, "model", str_fmt(p->e->a, "%.*s by %.*s, %u nodes", SFMT(r->loaded->format), SFMT(r->loaded->producer), (unsigned)r->loaded->file_nodes));
	fact(p, "parameters", str_fmt(p->e->a, "%s, of which %s trainable; %s", exact_bytes(r->param_count, all), exact_bytes(r->param_trainable, trained),
	    human_bytes(r->param_bytes, h)));
	fact(p, "coverage", str_fmt(p->e->a, "%u of %u nodes modelled, %u of %u values sized%s", (unsigned)r->modelled_nodes, (unsigned)r->loaded->file_nodes, (unsigned)r->sized,
	    (unsigned)r->values, r->lower_bound ? "; the answer is a lower bound" : ""));
	for (unsigned k = 1; r->sched && k < RK_COUNT; k++)
		if (r->r->v[k].set)
			fact(p, key_info(k)->name, recipe_text(p, k));
	for (uint32_t i = 0; i < r->r->ndim; i++)
		fact(p, r->r->dims[i].name.p, str_fmt(p->e->a, "%lld", (long long)r->r->dims[i].value));
	html_close(p);
}

/* ---- the document ------------------------------------------------------------------------------------------------------------------ */

static void
meta(struct page *p, const char *key, const char *name, struct str content)
{
	xml_open(p->x, "meta");
	xml_attr(p->x, key, str_of(name));
	if (content.n)
		xml_attr(p->x, "content", content);
	xml_close(p->x);
}

static void
head(struct page *p)
{
	xml_open(p->x, "head");
	meta(p, "charset", "utf-8", S(""));
	meta(p, "name", "viewport", S("width=device-width, initial-scale=1"));
	meta(p, "http-equiv", "Content-Security-Policy", S("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"));
	html_text(p, "title", NULL, str_fmt(p->e->a, "memcrest: %.*s", SFMT(p->r->file)));
	xml_open(p->x, "style");
	xml_raw(p->x, (struct str){style, sizeof style - 1});
	html_close(p);
	html_close(p);
}

static void
moved(struct page *p)
{
	const struct report *r = p->r;
	char h[32];

	if (!r->nmoved)
		return;
	html_text(p, "h2", NULL, S("In the host's memory"));
	html_open(p, "dl", NULL);
	for (uint32_t i = 0; i < r->nmoved; i++)
		fact(p, r->moved[i].what, str_fmt(p->e->a, "%s%s; %s", r->moved[i].managed ? "at most " : "", human_bytes(r->moved[i].bytes, h), r->moved[i].when));
	html_close(p);
}

static void
training(struct page *p)
{
	modalities(p);
	moved(p);
	html_timeline(p);
	html_text(p, "h2", NULL, S("Who holds the peak"));
	html_icicle(p);
	live(p);
}

static bool
write(const struct report *r, struct emit *e)
{
	struct page p = {.r = r, .e = e};

	buf_str(e->b, S("<!DOCTYPE html>\n"));
	p.x = xml_start(e, false);
	xml_open(p.x, "html");
	xml_attr(p.x, "lang", S("en"));
	head(&p);
	xml_open(p.x, "body");
	xml_open(p.x, "header");
	html_text(&p, "h1", NULL, str_fmt(e->a, "Training memory of %.*s", SFMT(r->file)));
	html_close(&p);
	xml_open(p.x, "main");
	if (r->sched) {
		answer(&p);
		training(&p);
	}
	modules(&p);
	if (r->sched)
		html_rules(&p);
	html_text(&p, "h2", NULL, S("Assumptions and coverage"));
	facts(&p);
	list(&p);
	html_close(&p);
	html_text(&p, "footer", NULL, S("memcrest " MC_VERSION ". Sizes are in binary units: 1 GiB = 1,073,741,824 bytes."));
	xml_open(p.x, "script");
	xml_raw(p.x, (struct str){script, sizeof script - 1});
	html_close(&p);
	return xml_end(p.x);
}

const struct backend backend_html = {"html", "one self-contained page with charts and the module tree", true, write};
