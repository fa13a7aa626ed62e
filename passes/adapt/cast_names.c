/*
 * "m.to(h.dtype)": the conversion gives the dtype that h has when it runs, which under autocast or behind an upcast is not the parameters'.
 * A line of the same function says what h was bound to. A name that no line binds is an argument: what the function's lines with that name
 * read of what was there before it was called, if that is one value.
 */
#include "casts.h"
#include "source_line.h"

#define FAR_ENOUGH 4096u           /* nodes looked back */

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

/* What node m reads that node first's call did not make; one value, else 0. Of a conversion that does nothing: what it was given. */
static uint32_t
passed_in(const struct casts *k, uint32_t m, uint32_t first)
{
	uint32_t found = 0;

	for (struct operands it = operands_of(k->g, m); operand_next(&it);) {
		uint32_t v = it.val;
		const struct val *x;

		while (k->renamed[v])
			v = k->renamed[v];
		x = &k->g->vals[v];
		if (!dtype_is_float(x->dtype) || !x->rank || (x->kind != VAL_INPUT && (x->kind != VAL_NODE || x->node >= first)))
			continue;
		if (found && found != v)
			return 0;
		found = v;
	}
	return found;
}

/* The argument of that name, 0 = not known: two lines must not read different values. */
static uint32_t
argument_of(const struct casts *k, uint32_t n, const struct frame *here, struct str name)
{
	const struct graph *g = k->g;
	unsigned d = calls_depth(g, n);
	uint32_t first = k->calls.first[k->calls.at[n] + d], last = k->calls.last[k->calls.at[n] + d], found = 0;

	for (uint32_t m = first; m <= last && m - first < FAR_ENOUGH; m++) {
		const struct frame *line = calls_depth(g, m) == d ? line_of(k, m, n) : NULL;
		uint32_t v;

		if (!line || line->line == here->line || !line_reads(graph_str(g, line->text), name))
			continue;
		v = passed_in(k, m, first);
		if (v && found && found != v)
			return 0;
		found = v ? v : found;
	}
	return found;
}

uint32_t
casts_named(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	const struct frame *here = g->nodes[n].nframe ? line_of(k, n, n) : NULL, *line;
	struct str name = here ? line_dtype_of(graph_str(g, here->text)) : S("");

	for (uint32_t m = n; name.n && m-- > 1 && n - m < FAR_ENOUGH;) {
		uint32_t v = g->nodes[m].nout ? node_outs(g, m)[0] : 0;

		line = line_of(k, m, n);
		if (!line || line->line == here->line || !str_eq(line_targets(graph_str(g, line->text)), name))
			continue;
		return v && dtype_is_float(g->vals[v].dtype) && g->vals[v].rank ? v : 0;
	}
	return name.n ? argument_of(k, n, here, name) : 0;
}
