/*
 * "m.to(h.dtype)": the conversion gives the dtype that h has when it runs, which under autocast or behind an upcast is not the parameters'.
 * A line of the same function says what h was bound to; a name that no line binds is an argument, about which nothing is known.
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
	return 0;
}
