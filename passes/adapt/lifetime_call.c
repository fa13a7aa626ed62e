/*
 * lifetime, without stack traces: what the calls of modules tell of the names that values have. The rules say in which code they are seen.
 */
#include "lifetime.h"

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
uint32_t
lifetime_frame_end(const struct lifetimes *l, uint32_t n, unsigned d)
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
				lifetime_extend(l, it.val, lifetime_frame_end(l, n, d));
		}
}

static bool
makes_parts(const struct graph *g, uint32_t n)
{
	unsigned op = g->nodes[n].op;

	return g->nodes[n].nout > 1 && (op == OP_SPLIT || op == OP_CHUNK || op == OP_UNBIND || op == OP_TENSOR_SPLIT);
}

#define MOST_WORK 100000000u       /* nodes looked at; a real model has few splits */

/* i, f, g, o = gates.chunk(4): parts are unpacked into names, which have them until the same statement runs again, or the frame returns. */
static void
hold_parts(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint64_t work = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		unsigned d = calls_depth(g, n);
		uint32_t end, m;

		if (!makes_parts(g, n))
			continue;
		end = lifetime_frame_end(l, n, d);
		for (m = n + 1; m < end && work++ < MOST_WORK; m++)
			if (makes_parts(g, m) && g->nodes[m].op == g->nodes[n].op && g->nodes[m].nout == g->nodes[n].nout && calls_depth(g, m) == d && calls_same(&l->calls, n, m, d))
				break;
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			lifetime_extend(l, node_outs(g, n)[k], m < end && work <= MOST_WORK ? m : end);
	}
}

#define LIST_LENGTH 3u             /* two operands of a cat are often let go of in front of the next statement: x = cat(x, skip), x = conv(x) */

static bool
joins_list(const struct graph *g, uint32_t n)
{
	unsigned made = 0;

	for (struct operands x = operands_of(g, n); (g->nodes[n].op == OP_CAT || g->nodes[n].op == OP_STACK) && operand_next(&x);)
		made += g->vals[x.val].kind == VAL_NODE;
	return made >= LIST_LENGTH;
}

/* The end of the statement in which a node reads what another made: of the call, if it reads it in one. */
static uint32_t
statement_end(const struct lifetimes *l, uint32_t maker, uint32_t n)
{
	unsigned d = calls_depth(l->g, maker);
	uint32_t end = calls_depth(l->g, n) > d && calls_same(&l->calls, maker, n, d) ? l->calls.last[l->calls.at[n] + d + 1] : n, frame = lifetime_frame_end(l, maker, d);

	return end < frame ? end : frame;
}

/* outs.append(f(x)) .. self.fuse(torch.cat(outs)): what a cat joins is in a list, or has names of the frame, and outlives the call that takes the whole. */
static void
hold_lists(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint32_t *list = NEW(l->a->c->a, uint32_t, g->nval);         /* by value: the cat that made it, until it has been read */

	for (uint32_t n = 1; n < g->nnode; n++) {
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			uint32_t cat = list[it.val];

			list[it.val] = 0;
			for (struct operands x = operands_of(g, cat); cat && operand_next(&x);)
				lifetime_extend(l, x.val, statement_end(l, cat, n));
		}
		if (joins_list(g, n))
			list[node_outs(g, n)[0]] = n;
	}
}

/* Does a node of the same function follow that is like n and reads nothing that those from `first` on made? */
static bool
follows_alike(const struct lifetimes *l, uint32_t first, uint32_t n)
{
	const struct graph *g = l->g;
	const struct node *x = &g->nodes[n];

	if (n + 1 > l->returns || x[1].op != x->op || x[1].scope != x->scope || !calls_same(&l->calls, n, n + 1, calls_depth(g, n)))
		return false;
	for (struct operands it = operands_of(g, n + 1); operand_next(&it);)
		if (g->vals[it.val].kind == VAL_NODE && g->vals[it.val].node >= first)
			return false;
	return true;
}

/* s = [a + b for a, b in zip(x, y)]: sums of a function one behind the other, which different nodes read, are in a list. */
static void
hold_comprehensions(struct lifetimes *l)
{
	struct graph *g = l->g;
	const uint32_t *reader = uses_last(g, l->a->c->a);
	uint32_t last;

	for (uint32_t n = 1; n < g->nnode; n = last + 1) {
		bool apart = false;

		for (last = n; follows_alike(l, n, last);)
			last++;
		if (last - n + 1 < LIST_LENGTH || g->nodes[n].op != OP_ADD)
			continue;
		for (uint32_t m = n; m <= last; m++)
			apart |= reader[node_outs(g, m)[0]] != reader[node_outs(g, n)[0]];
		for (uint32_t m = n; apart && m <= last; m++)
			lifetime_extend(l, node_outs(g, m)[0], lifetime_frame_end(l, m, calls_depth(g, m)));
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
is_loss(unsigned op)
{
	return op == OP_CROSS_ENTROPY || op == OP_NLL_LOSS_ND || op == OP_MSE_LOSS || op == OP_BCE_LOGITS || op == OP_L1_LOSS || op == OP_SMOOTH_L1_LOSS;
}

/* up = F.interpolate(logits, size), loss = F.cross_entropy(up, labels): what the function itself computed for a loss has a name until it returns. */
static void
hold_for_losses(struct lifetimes *l)
{
	struct graph *g = l->g;

	for (uint32_t n = 1; n <= l->returns; n++)
		for (struct operands it = operands_of(g, n); is_loss(g->nodes[n].op) && operand_next(&it);) {
			uint32_t maker = g->vals[it.val].kind == VAL_NODE ? g->vals[it.val].node : 0;
			unsigned d = calls_depth(g, n);

			if (maker && dtype_is_float(g->vals[it.val].dtype) && calls_depth(g, maker) == d && calls_same(&l->calls, maker, n, d))
				lifetime_extend(l, it.val, lifetime_frame_end(l, n, d));
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
void
lifetime_in_outermost(struct lifetimes *l)
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

void
lifetime_of_unnamed(struct lifetimes *l)
{
	hold_embeddings(l);
	hold_summands(l);
	hold_for_norm(l);
	lifetime_of_picked(l);
	hold_parts(l);
	lifetime_of_turns(l);
	hold_lists(l);
	hold_comprehensions(l);
	hold_for_losses(l);
	return_unread(l);
}
