/*
 * lifetime: after which node the forward lets go of each value. What nobody saves lives as long as a Python frame holds it.
 *
 *   names  The file has stack traces: one frame a module call, with the statement's text. A value bound to a name lives
 *          until the name is bound again in that frame, or the frame returns.
 *   call   The file has module stacks only: an argument of a module call lives until the call returns.
 *   last   Neither: until the last use.
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

/* The end of the call that took the value as an argument, seen from where it was made; the use itself if they share all calls. */
static uint32_t
end_of_call(const struct lifetimes *l, uint32_t maker, uint32_t user)
{
	unsigned p = calls_depth(l->g, maker), q = calls_depth(l->g, user), d = 0;

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

/*
 * Without names: the library's decoders call an embedding's result inputs_embeds, and what goes through their blocks hidden_states. So what an
 * embedding gives to the first block directly is still there when the last one runs.
 */
static void
hold_embeddings(struct lifetimes *l)
{
	const struct graph *g = l->g;
	bool *block = blocks_find(g, l->a->c->a);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			uint32_t maker = g->vals[it.val].kind == VAL_NODE ? g->vals[it.val].node : 0;
			unsigned d = maker ? calls_depth(g, maker) : 0;

			if (d && g->nodes[maker].op == OP_EMBEDDING && calls_depth(g, n) >= d && block[scope_at(g, g->nodes[n].scope, d)] &&
			    calls_same(&l->calls, maker, n, d - 1))
				lifetime_extend(l, it.val, l->calls.last[l->calls.at[n] + d - 1]);
		}
}

/* The last node of the call at depth d around node n; the model's own frame ends before what the loop appends. */
static uint32_t
frame_end(const struct lifetimes *l, uint32_t n, unsigned d)
{
	return d ? l->calls.last[l->calls.at[n] + d] : l->returns;
}

/* embeddings = inputs_embeds + position_embeddings: without names, what embeddings of a frame gave to its sums are locals of it. */
static void
hold_summands(struct lifetimes *l)
{
	const struct graph *g = l->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); g->nodes[n].op == OP_ADD && operand_next(&it);) {
			uint32_t maker = g->vals[it.val].kind == VAL_NODE ? g->vals[it.val].node : 0;
			unsigned d = calls_depth(g, n);

			if (maker && g->nodes[maker].op == OP_EMBEDDING && calls_depth(g, maker) > d && calls_same(&l->calls, maker, n, d))
				lifetime_extend(l, it.val, frame_end(l, n, d));
		}
}

/*
 * x = self.norm(x + y): without names, what modules gave to a sum that only the norm behind it takes is let go when that returns. What the frame
 * computed itself may have been bound anew by the sum.
 */
static void
hold_for_norm(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint32_t *uses = NEW(l->a->c->a, uint32_t, g->nval);

	uses_count(g, uses);
	for (uint32_t n = 1; n + 1 < g->nnode; n++) {
		unsigned d = calls_depth(g, n);
		uint32_t norm = n + 1;

		if (g->nodes[n].op != OP_ADD || uses[node_outs(g, n)[0]] != 1 || g->nodes[norm].op != OP_LAYER_NORM || calls_depth(g, norm) != d + 1 ||
		    !calls_same(&l->calls, n, norm, d) || node_args(g, norm)->u.val != node_outs(g, n)[0])
			continue;
		for (struct operands x = operands_of(g, n); operand_next(&x);)
			if (g->vals[x.val].kind == VAL_NODE && (calls_depth(g, g->vals[x.val].node) != d || !calls_same(&l->calls, n, g->vals[x.val].node, d)))
				lifetime_extend(l, x.val, l->calls.last[l->calls.at[norm] + d + 1]);
	}
}

static bool
is_composite(const struct lifetimes *l, uint32_t first, uint32_t last, unsigned d)
{
	for (uint32_t n = first; n <= last; n++)
		if (calls_depth(l->g, n) > d)
			return true;
	return false;
}

/* The depth of the model's own frame: a module that does all its work by calling one other is a wrapper around the model. */
static unsigned
outermost_depth(const struct lifetimes *l)
{
	unsigned d = 0;
	uint32_t last = l->returns;

	while (last && l->g->nodes[last].flags & NF_LOSS)
		last--;
	while (last && calls_depth(l->g, 1) > d && l->calls.last[l->calls.at[1] + d + 1] >= last)
		d++;
	return d;
}

/* x = self.stem(x), for block in self.blocks: x = block(x): what a Sequential gives, and an entry of a list, is bound to the name of what it took. */
static bool
is_stage(const struct graph *g, uint32_t scope)
{
	struct str path = scope_path(g, scope);
	uint32_t n = path.n;

	while (n && path.p[n - 1] >= '0' && path.p[n - 1] <= '9')
		n--;
	return (n && n < path.n && path.p[n - 1] == '.') || str_ends(graph_str(g, g->scopes[scope].cls), S("Sequential"));
}

/* Per node: the entry of its call at depth d if that module calls others, 0 = it stands in no such call. */
static uint32_t *
composite_calls(const struct lifetimes *l, unsigned d)
{
	const struct graph *g = l->g;
	uint32_t *call = NEW(l->a->c->a, uint32_t, g->nnode);

	for (uint32_t n = 1; n < g->nnode; n++)
		if (calls_depth(g, n) >= d) {
			uint32_t at = l->calls.at[n] + d, first = l->calls.first[at];

			call[n] = n != first ? call[first] : is_composite(l, n, l->calls.last[at], d) ? at : 0;
		}
	return call;
}

/* Per node in front of the last composite call: what it makes gets there. */
static bool *
goes_on(const struct lifetimes *l, const uint32_t *call)
{
	const struct graph *g = l->g;
	bool *on = NEW(l->a->c->a, bool, g->nnode);

	for (uint32_t n = g->nnode; n-- > 1;)
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			uint32_t maker = g->vals[it.val].kind == VAL_NODE ? g->vals[it.val].node : 0;

			on[maker] |= maker && (call[n] ? call[maker] != call[n] : on[n]);
		}
	return on;
}

/*
 * Without names: what a composite module gives to the outermost frame is a local there (outputs = self.model(...)). In a chain of them
 * (x = self.layer1(x), x = self.layer2(x)) the name is bound again.
 */
static void
hold_in_outermost(struct lifetimes *l)
{
	struct graph *g = l->g;
	unsigned d = outermost_depth(l) + 1;
	uint32_t *call = composite_calls(l, d);
	bool *on = goes_on(l, call);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			uint32_t maker = g->vals[it.val].kind == VAL_NODE ? g->vals[it.val].node : 0;

			if (maker && call[maker] && call[n] != call[maker] && !call[n] && !on[n] && !is_stage(g, scope_at(g, g->nodes[maker].scope, d)))
				lifetime_extend(l, it.val, l->returns);
		}
}

/*
 * Without names: a wrapper that the exporter was given returns a part of what the model returns. What the model made and nothing reads is
 * in the model's own output, and with it live the values that its gradient would need. But not what the last turn of a loop made.
 */
static void
return_unread(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint32_t *used = NEW(l->a->c->a, uint32_t, g->nval), before = g->noutput;
	unsigned d = outermost_depth(l);

	uses_count(g, used);
	for (uint32_t n = 1; d && n <= l->returns; n++)
		if (calls_depth(g, n) > d && g->nodes[n].nout && !used[node_outs(g, n)[0]] && !(g->nodes[n].flags & NF_INPLACE) &&
		    !is_stage(g, scope_at(g, g->nodes[n].scope, d + 1)))
			graph_output(g, node_outs(g, n)[0]);
	if (g->noutput > before)
		assume(l->a, "what the model makes and nothing reads (values: %u) is in its output, of which the exporter's wrapper returns a part",
		    (unsigned)(g->noutput - before));
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

static void
hold_unnamed(struct lifetimes *l)
{
	hold_embeddings(l);
	hold_summands(l);
	hold_for_norm(l);
	return_unread(l);
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
		lifetime_by_name(&l);       /* what adapters add has its frames in any file */
		hold_for_loss(&l);
	}
	if (calls && !names)
		hold_unnamed(&l);
	if (!names)
		hold_in_outermost(&l);
	for (uint32_t i = 0; i < a->g->noutput; i++)
		lifetime_extend(&l, a->g->outputs[i], a->g->nnode);
	fill_plan(&l);
	assume(a, "values that nobody saved live %s", names ? "until their name is bound again or their function returns (stack traces)" :
	    calls ? "until the module call that took them returns (module stacks; the file has no stack traces)" : "until their last use (the file has neither stack traces nor module stacks)");
	return true;
}
