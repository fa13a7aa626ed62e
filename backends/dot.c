/*
 * dot: the graph for Graphviz, modules as clusters. Modules at --depth (default 3) are one node each, with the bytes of all that is in them;
 * what lies above is drawn operator by operator. A large --depth draws every operator.
 */
#include "things.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 3

struct drawing {
	const struct report *r;
	const struct things *all;
	const struct module_tree *tree;
	struct emit *e;
	unsigned depth;
	struct factors *inside;    /* per folded module: of the things in it; a tied parameter lies with its reader, not where its name says */
};

static void
quoted(struct buf *b, struct str s)
{
	for (uint32_t i = 0; i < s.n; i++) {
		if (s.p[i] == '"' || s.p[i] == '\\')
			buf_str(b, S("\\"));
		buf_put(b, (unsigned char)s.p[i] < 32 ? " " : s.p + i, 1);
	}
}

/* The folded module that a thing is in; 0: it is drawn itself. */
static uint32_t
folded(const struct drawing *d, uint32_t thing)
{
	uint32_t row = d->all->list[thing].module;

	if (d->tree->depth[row] < d->depth)
		return 0;
	while (d->tree->depth[row] > d->depth)
		row = d->r->modules[row].parent;
	return row;
}

static uint64_t
drawn_as(const struct drawing *d, uint32_t thing)
{
	uint32_t row = folded(d, thing);

	return row ? (uint64_t)1 << 32 | row : thing;
}

static void
add_up(struct drawing *d)
{
	d->inside = NEW(d->e->a, struct factors, d->r->nmodule + 1u);
	for (uint32_t i = 0; i < d->all->n; i++)
		for (unsigned k = 0; k < FAC_COUNT; k++)
			d->inside[folded(d, i)].of[k] += d->all->list[i].at.of[k];
}

static void
id(struct buf *b, uint64_t drawn)
{
	buf_fmt(b, "%c%u", drawn >> 32 ? 'm' : 't', (unsigned)drawn);
}

/* ---- nodes ----------------------------------------------------------------------------------------------------------- */

static void
node(struct buf *b, uint64_t drawn, struct str name, const struct factors *at, unsigned modality, bool peak)
{
	char h[32];

	buf_str(b, S("  "));
	id(b, drawn);
	buf_str(b, S(" [label=\""));
	quoted(b, name);
	if (factors_total(at))
		buf_fmt(b, "\\n%s", human_bytes(factors_total(at), h));
	buf_fmt(b, "\", bytes=\"%llu\", fillcolor=\"%s59\"%s];\n", (unsigned long long)factors_total(at), modality_colour(modality), peak ? ", color=\"#d03b3b\", penwidth=4" : "");
}

static void
cluster(struct drawing *d, uint32_t row)
{
	const struct module_row *m = &d->r->modules[row];
	char h[32];

	buf_fmt(d->e->b, "  subgraph cluster_m%u {\n  label=\"", (unsigned)row);
	quoted(d->e->b, m->path);
	buf_fmt(d->e->b, "\\n%s\"; color=\"%s\";\n", human_bytes(factors_total(&m->at), h), modality_colour(m->modality));
}

static void
nodes(struct drawing *d)
{
	uint32_t row = 0, next;
	unsigned up;

	do {
		const struct module_row *m = &d->r->modules[row];

		if (row && d->tree->depth[row] < d->depth)
			cluster(d, row);
		else if (d->tree->depth[row] == d->depth && row)
			node(d->e->b, (uint64_t)1 << 32 | row, m->path, &d->inside[row], m->modality, m->peak_here);
		for (uint32_t i = d->tree->depth[row] < d->depth || !row ? d->tree->thing[row] : 0; i; i = d->tree->next_thing[i - 1]) {
			const struct thing *t = &d->all->list[i - 1];

			node(d->e->b, i - 1, t->name, &t->at, t->modality, t->peak);
		}
		next = tree_walk(d->r, d->tree, row, &up);
		for (; up && row; up--, row = d->r->modules[row].parent)
			if (d->tree->depth[row] < d->depth)
				buf_str(d->e->b, S("  }\n"));
		row = next;
	} while (row);
}

/* ---- edges ------------------------------------------------------------------------------------------------------------- */

struct drawn_edge {
	uint64_t from, to;
};

static int
by_ends(const void *a, const void *b)
{
	const struct drawn_edge *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return x->to < y->to ? -1 : x->to > y->to;
}

static void
edges(struct drawing *d)
{
	struct drawn_edge *list = NEW(d->e->a, struct drawn_edge, d->all->nedge + 1u);

	for (uint32_t i = 0; i < d->all->nedge; i++)
		list[i] = (struct drawn_edge){drawn_as(d, d->all->edges[i].from), drawn_as(d, d->all->edges[i].to)};
	qsort(list, d->all->nedge, sizeof *list, by_ends);
	for (uint32_t i = 0; i < d->all->nedge; i++) {
		if (list[i].from == list[i].to || (i && by_ends(&list[i - 1], &list[i]) == 0))
			continue;
		buf_str(d->e->b, S("  "));
		id(d->e->b, list[i].from);
		buf_str(d->e->b, S(" -> "));
		id(d->e->b, list[i].to);
		buf_str(d->e->b, S(";\n"));
	}
}

static bool
write(const struct report *r, struct emit *e)
{
	struct things *all = things_make(r, e->a);
	struct drawing d = {r, all, tree_of(r, all, e->a), e, e->view.depth ? e->view.depth : DEPTH, NULL};
	char h[32];

	buf_str(e->b, S("digraph model {\n  graph [fontname=\"sans-serif\", rankdir=TB, style=\"rounded\", label=\""));
	quoted(e->b, r->file);
	if (r->sched)
		buf_fmt(e->b, "\\npeak %s\", peak_bytes=\"%llu", human_bytes(r->steps[r->peak_step].tensors, h), (unsigned long long)r->steps[r->peak_step].tensors);
	buf_str(e->b, S("\"];\n  node [fontname=\"sans-serif\", shape=box, style=\"filled,rounded\"];\n"));
	add_up(&d);
	nodes(&d);
	edges(&d);
	buf_str(e->b, S("}\n"));
	return !e->b->failed;
}

const struct backend backend_dot = {"dot", "the graph with bytes for Graphviz, modules as clusters (--depth N)", true, write};
