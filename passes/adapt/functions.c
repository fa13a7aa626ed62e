/*
 * functions: a custom autograd.Function. The exporter opens it up, so the file has the operators of its forward, but in training they
 * run without a tape, and backward is the Function's own, which no file shows. Its call is seen in the stack traces ("F.apply(x)"
 * with a further frame inside). Taken for what such functions are written for: it keeps its inputs and computes the rest again. That is
 * also what torch's map does with each of its turns, which the frontend has marked.
 */
#include "../passes.h"

#include <string.h>

/* Depth of the frame that applies a Function to this node, or -1. */
static int
applied_at(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];

	for (unsigned d = 0; d + 1 < x->nframe; d++) {
		struct str text = graph_str(g, g->frames[x->frame + d].text);

		if (text.n && memmem(text.p, text.n, ".apply(", 7))
			return (int)d;
	}
	return -1;
}

static bool
same_application(const struct graph *g, uint32_t a, uint32_t b, unsigned depth)
{
	const struct node *x = &g->nodes[a], *y = &g->nodes[b];

	if (y->nframe <= depth + 1 || x->scope != y->scope)
		return false;
	for (unsigned d = 0; d <= depth; d++)
		if (g->frames[x->frame + d].line != g->frames[y->frame + d].line || g->frames[x->frame + d].text != g->frames[y->frame + d].text)
			return false;
	return true;
}

static void
add_block(struct analysis *a, struct block **list, uint32_t *n, uint32_t *cap, struct block b)
{
	ROOM(a->c->a, *list, *n, *cap, 1);
	(*list)[(*n)++] = b;
}

/* In order of nodes; what lies in a checkpointed block is rerun with it. */
bool
pass_functions(struct analysis *a)
{
	struct graph *g = a->g;
	struct plan *p = &a->plan;
	struct block *list = NULL;
	uint32_t n = 0, cap = 0, next = 0, found = 0, turns = 0;

	for (uint32_t i = 1; i < g->nnode; i++) {
		uint32_t end = i;
		int depth = applied_at(g, i);

		if (next < p->nblock && p->blocks[next].first == i) {
			end = p->blocks[next].last;
			add_block(a, &list, &n, &cap, p->blocks[next++]);
		} else if (depth >= 0) {
			while (end + 1 < g->nnode && same_application(g, i, end + 1, (unsigned)depth))
				end++;
			add_block(a, &list, &n, &cap, (struct block){.first = i, .last = end, .reentrant = true, .function = true});
			found++;
		} else if (g->nodes[i].flags & NF_RERUN) {
			while (end + 1 < g->nnode && g->nodes[end + 1].flags & NF_RERUN && g->nodes[end + 1].name != g->nodes[i].name)
				end++;         /* the next turn begins with a node of the same name */
			add_block(a, &list, &n, &cap, (struct block){.first = i, .last = end, .reentrant = true, .function = true});
			turns++;
		}
		i = end;
	}
	if (found)
		assume(a, "%u calls of a custom autograd.Function keep their inputs and compute again in backward; their own backward is not in the file", (unsigned)found);
	a->lower_bound |= turns > 0;
	if (turns)
		assume(a, "%u turns of torch's map keep their inputs and compute again in backward, where the gradients of what they share are stacked: a lower bound", (unsigned)turns);
	p->blocks = list;
	p->nblock = n;
	return true;
}
