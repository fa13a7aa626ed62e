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
#include "source_line.h"

#include <string.h>

struct lifetimes {
	struct analysis *a;
	struct graph *g;
	struct calls calls;
	uint32_t *end;             /* per value: the node after which it is let go; 0 = not made by a node */
	uint32_t returns;          /* last node of the model's own frame; an appended loss of the loop's comes behind it */
};

static void
extend(struct lifetimes *l, uint32_t v, uint32_t to)
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
			extend(l, node_outs(g, n)[k], n);
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_NODE)
				extend(l, it.val, calls ? end_of_call(l, g->vals[it.val].node, n) : n);
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
				extend(l, node_outs(g, n)[k], g->nodes[n].flags & NF_LOSS ? g->nnode - 1 : loss);
		for (struct operands it = operands_of(g, n); g->nodes[n].flags & NF_LOSS && operand_next(&it);)
			extend(l, it.val, g->nnode - 1);
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
				extend(l, it.val, l->calls.last[l->calls.at[n] + d - 1]);
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
				extend(l, it.val, frame_end(l, n, d));
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
				extend(l, x.val, l->calls.last[l->calls.at[norm] + d + 1]);
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
				extend(l, it.val, l->returns);
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

/* ---- names -------------------------------------------------------------------------------------------------------- */

struct statement {
	uint32_t first, last;      /* nodes */
	uint32_t line, text;
	uint32_t callee;           /* scope that it calls, 0 = none */
};

struct binding {
	struct str name;
	uint32_t *vals, n;
	uint32_t joined;           /* a list: last node of the statement that joined it */
};

struct frame_state {
	struct binding *names;  uint32_t n, cap;
};

static struct binding *
find_name(struct lifetimes *l, struct frame_state *f, struct str name)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (str_eq(f->names[i].name, name))
			return &f->names[i];
	ROOM(l->a->c->a, f->names, f->n, f->cap, 1);
	f->names[f->n] = (struct binding){.name = name};
	return &f->names[f->n++];
}

static void
rebind(struct lifetimes *l, struct frame_state *f, struct str name, uint32_t *vals, uint32_t n, uint32_t at)
{
	struct binding *b = find_name(l, f, name);

	for (uint32_t i = 0; i < b->n; i++)
		extend(l, b->vals[i], at);
	b->vals = vals;
	b->n = n;
	b->joined = 0;
}

/* Does a module that the statement calls end with a value that nobody reads? It would not have been made but to be returned. */
static bool
returns_unread(const struct lifetimes *l, const struct statement *s, const uint32_t *last_use)
{
	const struct graph *g = l->g;

	return s->callee && g->nodes[s->last].nout && last_use[node_outs(g, s->last)[0]] <= s->last &&
	    scope_at(g, g->nodes[s->last].scope, g->scopes[s->callee].depth) == s->callee;
}

/* What the statement leaves behind: values used after it, else the first result of its last node; fewer than targets: that as well. */
static uint32_t
results_of(struct lifetimes *l, const struct statement *s, const uint32_t *last_use, uint32_t targets, uint32_t **out)
{
	struct graph *g = l->g;
	uint32_t total = 0, n = 0;

	for (uint32_t k = s->first; k <= s->last; k++)
		total += g->nodes[k].nout;
	*out = NEW(l->a->c->a, uint32_t, total + targets + 1);
	for (uint32_t k = s->first; k <= s->last; k++)
		for (uint32_t i = 0; i < g->nodes[k].nout; i++)
			if (last_use[node_outs(g, k)[i]] > s->last)
				(*out)[n++] = node_outs(g, k)[i];
	if ((!n && g->nodes[s->last].nout) || (n < targets && returns_unread(l, s, last_use)))
		(*out)[n++] = node_outs(g, s->last)[0];
	return n;
}

/*
 * "h, normed = self.project(x)" where only h is read later: if the module's function has bound just as many names as there are targets, it
 * returned what they hold. Fills vals up with those, behind the n that are read; out of them if the numbers differ.
 */
static uint32_t
names_of_callee(struct lifetimes *l, const struct statement *s, uint32_t targets, uint32_t *vals, uint32_t n)
{
	struct graph *g = l->g;
	unsigned d = g->scopes[s->callee].depth;
	struct frame_state f = {0};
	uint32_t read = n;

	for (uint32_t k = s->first; s->callee && k <= s->last; k++) {
		struct binding *b;
		struct str name;

		if (g->nodes[k].nframe <= d || !g->nodes[k].nout || scope_at(g, g->nodes[k].scope, d) != s->callee)
			continue;
		name = line_targets(graph_str(g, g->frames[g->nodes[k].frame + d].text));
		if (!name.n || str_find(name, ',') >= 0)
			return read;
		b = find_name(l, &f, name);
		b->vals = NULL;
		b->n = node_outs(g, k)[0];         /* so far the last one; not a list here */
	}
	for (uint32_t i = 0; f.n == targets && i < f.n; i++) {
		bool known = false;

		for (uint32_t k = 0; k < read; k++)
			known |= vals[k] == f.names[i].n;
		if (!known && n < targets)
			vals[n++] = f.names[i].n;
	}
	return n;
}

/* output, states = self.lstm(x): all results are bound, whether they are used or not. */
static uint32_t
results_of_last(struct lifetimes *l, const struct statement *s, uint32_t **out)
{
	uint32_t n = l->g->nodes[s->last].nout;

	*out = NEW(l->a->c->a, uint32_t, n + 1);
	for (uint32_t i = 0; i < n; i++)
		(*out)[i] = node_outs(l->g, s->last)[i];
	return n;
}

static bool
is_joining(unsigned op)
{
	return op == OP_CAT || op == OP_STACK || op == OP_HSTACK || op == OP_VSTACK;
}

/* The name in "cat(name, ..)", "stack(name)" or "cat(name[::-1])", or empty. */
static struct str
joined_name(struct str text)
{
	static const char *const calls[] = {"cat(", "stack("};
	const char *at = NULL;
	uint32_t n = 0;

	for (size_t i = 0; !at && i < sizeof calls / sizeof calls[0]; i++)
		if ((at = text.n ? memmem(text.p, text.n, calls[i], strlen(calls[i])) : NULL))
			at += strlen(calls[i]);
	if (!at)
		return S("");
	text = str_sub(text, (uint32_t)(at - text.p), text.n);
	while (n < text.n && line_name_char(text.p[n]))
		n++;
	return n && n < text.n && strchr(",)[", text.p[n]) ? str_sub(text, 0, n) : S("");
}

/* A list that has a name holds what is in it: torch.cat(features). One that is joined again later, in a loop, was begun anew at once. */
static void
bind_list(struct lifetimes *l, struct frame_state *f, const struct statement *s)
{
	struct graph *g = l->g;
	struct str name = joined_name(graph_str(g, s->text));

	for (uint32_t n = s->first; name.n && n <= s->last; n++) {
		const struct arg *x = node_args(g, n);
		uint32_t *vals, before = find_name(l, f, name)->joined;

		if (!is_joining(g->nodes[n].op) || x->kind != ARG_VALS)
			continue;
		vals = NEW(l->a->c->a, uint32_t, x->count + 1u);
		memcpy(vals, g->ids + x->first, x->count * sizeof *vals);
		rebind(l, f, name, vals, x->count, before ? before : s->first);
		find_name(l, f, name)->joined = s->last;
		return;
	}
}

/* Does the sum on the right side begin with (or end in) a bare name? "x = residual + self.mlp(x)" */
static struct str
summand(struct str text, bool first)
{
	int64_t eq = str_find(text, '=');
	struct str rhs = str_trim(str_sub(text, (uint32_t)(eq + 1), text.n)), name;
	uint32_t n = 0;

	while (n < rhs.n && line_name_char(rhs.p[first ? n : rhs.n - 1 - n]))
		n++;
	name = first ? str_sub(rhs, 0, n) : str_sub(rhs, rhs.n - n, rhs.n);
	rhs = first ? str_trim(str_sub(rhs, n, rhs.n)) : str_trim(str_sub(rhs, 0, rhs.n - n));
	return n && (first ? str_starts(rhs, S("+ ")) : str_ends(rhs, S(" +"))) ? name : S("");
}

/*
 * "residual = x" runs no operator, so no line of the trace shows it. The sum that reads the name later tells what it was: it has held that
 * value since it was made, or something would have taken x's name, and does so until it is bound again.
 */
static void
bind_summands(struct lifetimes *l, struct frame_state *f, const struct statement *s)
{
	struct graph *g = l->g;
	const struct arg *x = node_args(g, s->last);

	if (g->nodes[s->last].op != OP_ADD || x[0].kind != ARG_VAL || x[1].kind != ARG_VAL)
		return;
	for (unsigned i = 0; i < 2; i++) {
		struct str name = summand(graph_str(g, s->text), i == 0);
		const struct val *v = &g->vals[x[i].u.val];
		uint32_t made = v->kind == VAL_NODE ? v->node : 0, *held;
		const struct binding *b;

		if (!name.n || !made || made >= s->first)
			continue;
		b = find_name(l, f, name);
		if (b->n == 1 && b->vals[0] == x[i].u.val)
			continue;
		held = NEW(l->a->c->a, uint32_t, 1);
		*held = x[i].u.val;
		rebind(l, f, name, held, 1, made);
	}
}

static void
run_statement(struct lifetimes *l, struct frame_state *f, const struct statement *s, const uint32_t *last_use)
{
	struct str rest = line_targets(graph_str(l->g, s->text)), count = rest, name;
	uint32_t *vals, n, targets = 0, q = 0;

	bind_list(l, f, s);
	if (!rest.n)
		return;
	bind_summands(l, f, s);
	while (str_cut(&count, ',', &name))
		targets++;
	n = results_of(l, s, last_use, targets, &vals);
	if (n < targets && l->g->nodes[s->last].nout >= targets)
		n = results_of_last(l, s, &vals);
	else if (n < targets)
		n = names_of_callee(l, s, targets, vals, n);
	for (; str_cut(&rest, ',', &name); q++) {
		uint32_t from = targets == 1 ? 0 : q < n ? q : n, to = q + 1 < targets ? (from < n ? from + 1 : n) : n;

		rebind(l, f, str_trim(name), vals + from, to - from, s->last);
	}
}

/* "layers.3" after "layers.2" on one line is the next turn of a loop. */
static bool
next_turn(const struct graph *g, uint32_t a, uint32_t b)
{
	struct str x = scope_path(g, a), y = scope_path(g, b);

	if (!a || !b || str_eq(x, y))
		return false;
	while (x.n && x.p[x.n - 1] >= '0' && x.p[x.n - 1] <= '9')
		x.n--;
	while (y.n && y.p[y.n - 1] >= '0' && y.p[y.n - 1] <= '9')
		y.n--;
	return str_eq(x, y);
}

/* "return helper(self, ..)" */
static bool
is_delegation(struct str text)
{
	int64_t open = str_find(text, '(');

	if (!str_starts(text, S("return ")) || open < 0 || !str_ends(text, S(")")))
		return false;
	for (int64_t i = 7; i < open; i++)
		if (!line_target_char(text.p[i]) || text.p[i] == ' ')
			return false;
	return true;
}

/* The next node that picks from another parameter by the same index: weights = self.up[ids] .. weights = self.down[ids] */
static uint32_t
next_pick(const struct graph *g, uint32_t n, uint32_t last)
{
	const struct arg *x = node_args(g, n);

	if (g->nodes[n].op != OP_INDEX || g->vals[x->u.val].kind != VAL_PARAM)
		return last;
	for (uint32_t m = n + 1; m < last; m++) {
		const struct arg *y = node_args(g, m);

		if (g->nodes[m].op == OP_INDEX && g->vals[y->u.val].kind == VAL_PARAM && y[1].count == x[1].count &&
		    memcmp(g->ids + x[1].first, g->ids + y[1].first, x[1].count * sizeof *g->ids) == 0)
			return m;
	}
	return last;
}

/* A frame that is nothing but a call of a helper: the function that matters is the helper, whose own frame traces leave out. Its locals
 * are not known; all that it makes is taken for one, but for weights that are picked one after the other. */
static void
hold_for_helper(struct lifetimes *l, uint32_t first, uint32_t last, unsigned d)
{
	struct graph *g = l->g;

	for (uint32_t n = first; n <= last; n++)
		for (uint32_t k = 0; k < g->nodes[n].nout && g->nodes[n].nframe == d + 1; k++)
			extend(l, node_outs(g, n)[k], next_pick(g, n, last));
}

static uint32_t
callee_at(const struct graph *g, uint32_t n, unsigned d)
{
	return calls_depth(g, n) > d ? scope_at(g, g->nodes[n].scope, d + 1) : 0;
}

/* One frame: the nodes of one module call, cut into statements by their line at that depth. */
static void
run_frame(struct lifetimes *l, uint32_t first, uint32_t last, unsigned d, const uint32_t *last_use)
{
	struct graph *g = l->g;
	struct frame_state f = {0};
	struct statement cur = {0};

	for (uint32_t n = first; n <= last; n++) {
		const struct frame *line;
		uint32_t callee;

		if (d >= g->nodes[n].nframe)
			continue;
		line = &g->frames[g->nodes[n].frame + d];
		callee = callee_at(g, n, d);
		if (!cur.first || cur.line != line->line || next_turn(g, cur.callee, callee)) {
			if (cur.first)
				run_statement(l, &f, &cur, last_use);
			cur = (struct statement){n, n, line->line, line->text, callee};
		}
		cur.last = n;
		cur.callee = callee ? callee : cur.callee;
	}
	if (cur.first)
		run_statement(l, &f, &cur, last_use);
	if (cur.first == first && is_delegation(graph_str(g, cur.text)))
		hold_for_helper(l, first, last, d);
	for (uint32_t i = 0; i < f.n; i++)
		for (uint32_t k = 0; k < f.names[i].n; k++)
			extend(l, f.names[i].vals[k], d ? last : l->returns);
}

static void
by_name(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint32_t *last_use = NEW(l->a->c->a, uint32_t, g->nval);

	memcpy(last_use, l->end, g->nval * sizeof *last_use);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (unsigned d = 0; d <= calls_depth(g, n); d++)
			if (l->calls.first[l->calls.at[n] + d] == n)
				run_frame(l, n, l->calls.last[l->calls.at[n] + d], d, last_use);
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
		by_name(&l);       /* what adapters add has its frames in any file */
		hold_for_loss(&l);
	}
	if (calls && !names)
		hold_unnamed(&l);
	if (!names)
		hold_in_outermost(&l);
	for (uint32_t i = 0; i < a->g->noutput; i++)
		extend(&l, a->g->outputs[i], a->g->nnode);
	fill_plan(&l);
	assume(a, "values that nobody saved live %s", names ? "until their name is bound again or their function returns (stack traces)" :
	    calls ? "until the module call that took them returns (module stacks; the file has no stack traces)" : "until their last use (the file has neither stack traces nor module stacks)");
	return true;
}
