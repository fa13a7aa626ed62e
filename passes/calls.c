/*
 * Module calls. A call is a maximal run of nodes that stand in one module, found by the entries of their module stacks
 * (not by the dots of paths: a ModuleList is no call). Every node has a chain of calls around it, the whole graph first.
 */
#include "passes.h"

unsigned
calls_depth(const struct graph *g, uint32_t n)
{
	return g->scopes[g->nodes[n].scope].depth;
}

static void
mark_run(struct calls *k, const struct graph *g, uint32_t from, uint32_t to, unsigned d)
{
	for (uint32_t n = from; n <= to; n++)
		if (calls_depth(g, n) >= d) {
			k->first[k->at[n] + d] = from;
			k->last[k->at[n] + d] = to;
		}
}

struct calls
calls_find(const struct graph *g, struct arena *a)
{
	struct calls k = {.at = NEW(a, uint32_t, g->nnode + 1)};
	uint32_t total = 0;
	unsigned deepest = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		unsigned d = calls_depth(g, n);

		k.at[n] = total;
		total += d + 1;
		deepest = d > deepest ? d : deepest;
	}
	k.first = NEW(a, uint32_t, total + 1);
	k.last = NEW(a, uint32_t, total + 1);
	if (g->nnode > 1)
		mark_run(&k, g, 1, g->nnode - 1, 0);
	for (unsigned d = 1; d <= deepest; d++)
		for (uint32_t n = 1, end; n < g->nnode; n = end + 1) {
			uint32_t scope;

			end = n;
			if (calls_depth(g, n) < d)
				continue;
			scope = scope_at(g, g->nodes[n].scope, d);
			while (end + 1 < g->nnode && calls_depth(g, end + 1) >= d && scope_at(g, g->nodes[end + 1].scope, d) == scope)
				end++;
			mark_run(&k, g, n, end, d);
		}
	return k;
}

bool
calls_same(const struct calls *k, uint32_t a, uint32_t b, unsigned d)
{
	return k->first[k->at[a] + d] == k->first[k->at[b] + d] && k->last[k->at[a] + d] == k->last[k->at[b] + d];
}

void
uses_count(const struct graph *g, uint32_t *count)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (!(g->nodes[n].flags & NF_DEAD))
			for (struct operands it = operands_of(g, n); operand_next(&it);)
				count[it.val]++;
	for (uint32_t i = 0; i < g->noutput; i++)
		count[g->outputs[i]]++;
}

uint32_t *
uses_last(const struct graph *g, struct arena *a)
{
	uint32_t *last = NEW(a, uint32_t, g->nval);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			last[it.val] = n;
	return last;
}
