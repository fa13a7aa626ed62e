/*
 * lifetime: after which node the forward lets go of each value. What nobody saves lives as long as a Python frame holds it.
 *
 *   names  The file has stack traces: one frame a module call, with the statement's text. A value bound to a name lives
 *          until the name is bound again in that frame, or the frame returns.
 *   line   The file has line numbers, as a trace has, and names of values that were used under them: lifetime_line.c.
 *   call   The file has module stacks only: an argument of a module call lives until the call returns.
 *   last   Neither: until the last use, but for what experts pick.
 *
 * Each includes the one below it. Measured on 82 jobs in lowering.md section 5.
 */
#include "lifetime.h"

#include <string.h>

void
lifetime_extend(struct lifetimes *l, uint32_t v, uint32_t to)
{
	if (l->g->vals[v].kind == VAL_NODE && l->end[v] < to)
		l->end[v] = to;
}

/* ---- last and call ------------------------------------------------------------------------------------------- */

#define MOST_VIEWS 4u

/* Zeros, say, or a view of them. */
static bool
is_of_nothing(const struct graph *g, uint32_t n)
{
	for (unsigned i = 0; i < MOST_VIEWS; i++) {
		struct operands it = operands_of(g, n);

		if (!operand_next(&it))
			return true;
		n = g->vals[it.val].kind == VAL_NODE ? g->vals[it.val].node : 0;
		if (!n || operand_next(&it))
			return false;
	}
	return false;
}

/* Made of nothing in one call and used behind it: each call made its own, of which an exporter's optimiser kept one. */
static bool
is_kept_once(const struct lifetimes *l, uint32_t maker, uint32_t user)
{
	unsigned d = calls_depth(l->g, maker);

	return d && l->calls.last[l->calls.at[maker] + d] < user && is_of_nothing(l->g, maker);
}

/* The end of the call that took the value as an argument, seen from where it was made; the use itself if they share all calls. */
static uint32_t
end_of_call(const struct lifetimes *l, uint32_t maker, uint32_t user)
{
	unsigned p = calls_depth(l->g, maker), q = calls_depth(l->g, user), d = 0;

	if (is_kept_once(l, maker, user))
		return user;
	while (d <= p && d <= q && calls_same(&l->calls, maker, user, d))
		d++;
	return d <= q ? l->calls.last[l->calls.at[user] + d] : user;
}

static void
by_use(struct lifetimes *l, bool calls)
{
	struct graph *g = l->g;

	for (uint32_t n = 1; n < g->nnode; n++) {
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			lifetime_extend(l, node_outs(g, n)[k], n);
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_NODE)
				lifetime_extend(l, it.val, calls ? end_of_call(l, g->vals[it.val].node, n) : n);
	}
}

/* The library's loss function keeps its padded labels until it returns; an appended loss keeps all its values. */
static void
hold_for_loss(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint32_t loss = 0;

	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].op == OP_CROSS_ENTROPY)
			loss = n;
	for (uint32_t n = 1; n < g->nnode; n++) {
		bool labels = g->nodes[n].op == OP_PAD && !dtype_is_float(g->vals[node_outs(g, n)[0]].dtype);

		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			if (g->nodes[n].flags & NF_LOSS || (labels && loss))
				lifetime_extend(l, node_outs(g, n)[k], g->nodes[n].flags & NF_LOSS ? g->nnode - 1 : loss);
		for (struct operands it = operands_of(g, n); g->nodes[n].flags & NF_LOSS && operand_next(&it);)
			lifetime_extend(l, it.val, g->nnode - 1);
	}
}

/* ---- the plan ------------------------------------------------------------------------------------------------------ */

/* Values by the node that ends them, in order of their making; the caller's outputs outlive the last node. */
static void
fill_plan(struct lifetimes *l)
{
	struct graph *g = l->g;
	struct plan *p = &l->a->plan;
	uint32_t *at;

	p->release_at = NEW(l->a->c->a, uint32_t, g->nnode + 2);
	p->release = NEW(l->a->c->a, uint32_t, g->nval + 1);
	for (uint32_t v = 1; v < g->nval; v++)
		if (l->end[v] && l->end[v] < g->nnode)
			p->release_at[l->end[v] + 1]++;
	for (uint32_t n = 1; n <= g->nnode; n++)
		p->release_at[n] += p->release_at[n - 1];
	at = NEW(l->a->c->a, uint32_t, g->nnode + 2);
	memcpy(at, p->release_at, (g->nnode + 1) * sizeof *at);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			uint32_t v = node_outs(g, n)[k];

			if (v && l->end[v] < g->nnode)
				p->release[at[l->end[v]]++] = v;
		}
}

bool
pass_lifetime(struct analysis *a)
{
	struct lifetimes l = {.a = a, .g = a->g, .calls = calls_find(a->g, a->c->a), .end = NEW(a->c->a, uint32_t, a->g->nval)};
	bool names = a->g->has_frames, calls = names || a->g->has_scopes;

	l.returns = a->g->nnode - 1;
	while (!a->plan.loss_in_model && l.returns > 1 && a->g->nodes[l.returns].flags & NF_LOSS)
		l.returns--;
	by_use(&l, calls);
	if (calls) {
		lifetime_by_name(&l);      /* what adapters add has its frames in any file */
		lifetime_of_lists(&l);
		lifetime_of_recorded(&l);
		hold_for_loss(&l);
	}
	if (calls && !names)
		lifetime_of_unnamed(&l);
	else if (!calls)
		lifetime_of_picked(&l);
	if (!names)
		lifetime_in_outermost(&l);
	if (a->g->has_lines)
		lifetime_by_line(&l);
	for (uint32_t i = 0; i < a->g->noutput; i++)
		lifetime_extend(&l, a->g->outputs[i], a->g->nnode);
	fill_plan(&l);
	assume(a, "values that nobody saved live %s", !names && a->g->has_lines ? "until their name is bound again or their function returns, as far as line numbers and names of locals tell" : names ? "until their name is bound again or their function returns (stack traces)" :
	    calls ? "until the module call that took them returns (module stacks; the file has no stack traces)" : "until their last use (the file has neither stack traces nor module stacks)");
	return true;
}
