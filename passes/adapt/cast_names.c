/*
 * "m.to(h.dtype)": the conversion gives the dtype that h has when it runs, which under autocast or behind an upcast is not the parameters'.
 * A line of the same function says what h was bound to. A name that no line binds is an argument: what the function's lines with that name
 * read of what was there before it was called, if that is one value.
 */
#include "casts.h"
#include "source_line.h"

#define FAR_ENOUGH 4096u           /* nodes looked back, or on from where the function begins */
#define LONGEST_NAME 255u

/* So many characters of source lines are looked at for all conversions; a real model needs a few millions. */
static bool
may_look_at(struct casts *k, const struct frame *line)
{
	k->looked += line ? (uint64_t)graph_str(k->g, line->text).n + 1 : 1;
	return k->looked <= CASTS_MOST_LOOKED;
}

/* The line of the function that node n's innermost frame belongs to, as node m sees it; NULL = m runs elsewhere. */
static const struct frame *
line_of(const struct casts *k, uint32_t m, uint32_t n)
{
	const struct node *x = &k->g->nodes[n], *y = &k->g->nodes[m];
	unsigned d = x->nframe - 1u;

	if (y->nframe <= d || calls_depth(k->g, n) != d || calls_depth(k->g, m) < d || !calls_same(&k->calls, m, n, d))
		return NULL;
	return &k->g->frames[y->frame + d];
}

#define SEVERAL UINT32_MAX

/* found, or what node m reads that was there before node first's call; of a conversion that does nothing: what it was given. */
static uint32_t
passed_in(const struct casts *k, uint32_t m, uint32_t first, uint32_t found)
{
	for (struct operands it = operands_of(k->g, m); operand_next(&it);) {
		uint32_t v = it.val;
		const struct val *x;

		while (k->renamed[v])
			v = k->renamed[v];
		x = &k->g->vals[v];
		if (!dtype_is_float(x->dtype) || !x->rank || (x->kind != VAL_INPUT && (x->kind != VAL_NODE || x->node >= first)))
			continue;
		found = found && found != v ? SEVERAL : v;
	}
	return found;
}

/* The argument of that name, 0 = not known: what a line with it reads, if that is one value; no two lines must tell different ones. */
static uint32_t
argument_of(struct casts *k, uint32_t n, const struct frame *here, struct str name)
{
	const struct graph *g = k->g;
	unsigned at = k->calls.at[n] + calls_depth(g, n);
	uint32_t first = k->calls.first[at], last = k->calls.last[at], found = 0;

	for (uint32_t m = first; m <= last && m - first < FAR_ENOUGH;) {
		const struct frame *line = line_of(k, m, n);
		uint32_t number = line ? line->line : 0, v = 0;
		bool told = may_look_at(k, line) && line && number != here->line && line_reads(graph_str(g, line->text), name);

		do {
			v = told ? passed_in(k, m, first, v) : 0;
			line = ++m <= last && m - first < FAR_ENOUGH ? line_of(k, m, n) : NULL;
		} while (line && line->line == number);
		if (!v || v == SEVERAL)
			continue;
		if (found && found != v)
			return 0;
		found = v;
	}
	return found;
}

uint32_t
casts_named(struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	const struct frame *here = g->nodes[n].nframe ? line_of(k, n, n) : NULL, *line;
	struct str name = here ? line_dtype_of(graph_str(g, here->text)) : S("");

	if (!name.n || name.n > LONGEST_NAME)
		return 0;
	for (uint32_t m = n; m-- > 1 && n - m < FAR_ENOUGH;) {
		uint32_t v = node_outs(g, m)[0];

		line = line_of(k, m, n);
		if (!may_look_at(k, line) || !line || line->line == here->line || !str_eq(line_targets(graph_str(g, line->text)), name))
			continue;
		return v && dtype_is_float(g->vals[v].dtype) && g->vals[v].rank ? v : 0;
	}
	return argument_of(k, n, here, name);
}
