/* Who holds the peak: modules from the whole model downwards, as wide as their bytes, each with a strip in the colours of its factors. */
#include "html.h"

#include <stdlib.h>

#define DEEPEST 9
#define NARROWEST 250              /* of the model's bytes one in so many is drawn */
#define NAMED 40                   /* and one in so many has room for its name */

struct group {                     /* modules alike */
	struct str name;           /* last part of the path */
	uint32_t parent, count;
	struct factors at, own;    /* own: not in any child */
	bool here;
	uint32_t *kids, nkid, kid_cap;     /* largest first */
};

struct groups {
	struct group *g;       uint32_t n;
};

static void
add(struct factors *to, const struct factors *f)
{
	for (unsigned i = 0; i < FAC_COUNT; i++)
		to->of[i] += f->of[i];
}

static void
take(struct factors *from, const struct factors *f)
{
	for (unsigned i = 0; i < FAC_COUNT; i++)
		from->of[i] -= f->of[i] < from->of[i] ? f->of[i] : from->of[i];
}

static struct groups
group(struct page *p)
{
	const struct report *r = p->r;
	struct strtab *names = strtab_new(p->e->a);
	struct groups all = {NEW(p->e->a, struct group, r->nmodule), 0};

	for (uint32_t i = 0; i < r->nmodule; i++) {
		uint32_t id = i ? strtab_id(names, r->module_like[i]) : 0, up = strtab_find(names, r->module_like[r->modules[i].parent]);
		struct group *g = &all.g[id];

		if (!g->count++) {
			g->name = i ? last_part(r->module_like[i]) : S("whole model");
			g->parent = i && r->modules[i].parent ? up : 0;
			all.n = id + 1;
		}
		add(&g->at, &r->modules[i].at);
		g->here |= r->modules[i].peak_here;
	}
	for (uint32_t i = 0; i < all.n; i++)
		add(&all.g[i].own, &all.g[i].at);
	for (uint32_t i = 1; i < all.n; i++)
		take(&all.g[all.g[i].parent].own, &all.g[i].at);
	return all;
}

/* Each group among its parent's children, by size. */
static void
sort(struct page *p, struct groups *all)
{
	for (uint32_t i = 1; i < all->n; i++) {
		struct group *up = &all->g[all->g[i].parent];
		uint32_t k = up->nkid++;

		ROOM(p->e->a, up->kids, k, up->kid_cap, 1);
		for (; k && factors_total(&all->g[up->kids[k - 1]].at) < factors_total(&all->g[i].at); k--)
			up->kids[k] = up->kids[k - 1];
		up->kids[k] = i;
	}
}

static void
open_cell(struct page *p, const struct group *g, const struct factors *f, uint64_t whole, struct str name, bool named)
{
	uint64_t n = factors_total(f);
	char h[32];

	html_open(p, "div", g->here ? "cell here" : "cell");
	xml_attr_fmt(p->x, "style", "width:%.3f%%", whole ? (double)n * 100 / (double)whole : 100);
	html_open(p, "div", "lab");
	xml_attr_fmt(p->x, "title", "%.*s%s: %s", SFMT(name), g->count > 1 ? " (repeated)" : "", human_bytes(n, h));
	if (named) {
		html_text(p, "b", NULL, g->count > 1 ? str_fmt(p->e->a, "%.*s (%u)", SFMT(name), (unsigned)g->count) : name);
		html_text(p, "span", "soft", str_of(human_bytes(n, h)));
	}
	html_close(p);
	html_strip(p, "strip", f, n);
}

/* What is in no module below: the operators of its own forward. */
static void
own_cell(struct page *p, const struct group *g, uint64_t whole)
{
	struct group self = {.count = 1};
	uint64_t n = factors_total(&g->own);

	if (!g->nkid || n < whole / NARROWEST)
		return;
	open_cell(p, &self, &g->own, factors_total(&g->at), S("its own operators"), n >= whole / NAMED);
	html_close(p);
}

void
html_icicle(struct page *p)
{
	struct groups all = group(p);
	uint64_t whole = factors_total(&all.g[0].at), least = whole / NARROWEST;
	uint32_t at[DEEPEST + 1] = {0}, next[DEEPEST + 1] = {0}, depth = 0;

	sort(p, &all);
	html_text(p, "p", "soft", S("Modules from top to bottom, as wide as what they hold at the peak; repeated ones are added up. Their operators' activations count where they are made."));
	html_wide(p, "icicle", "Drawing of the modules at the peak");
	open_cell(p, &all.g[0], &all.g[0].at, 0, all.g[0].name, true);
	html_open(p, "div", "kids");
	for (;;) {
		struct group *g = &all.g[at[depth]];
		struct group *kid = next[depth] < g->nkid ? &all.g[g->kids[next[depth]]] : NULL;

		if (kid && depth < DEEPEST && factors_total(&kid->at) && factors_total(&kid->at) >= least) {
			open_cell(p, kid, &kid->at, factors_total(&g->at), str_eq(kid->name, S("*")) ? S("each") : kid->name, factors_total(&kid->at) >= whole / NAMED);
			html_open(p, "div", "kids");
			at[depth + 1] = g->kids[next[depth]++];
			next[++depth] = 0;
			continue;
		}
		own_cell(p, g, whole);
		html_close(p);
		html_close(p);
		if (!depth--)
			break;
	}
	html_close(p);
}
