/*
 * lifetime by names: one frame a module call, with the statement's text. A value bound to a name lives until the name is bound again in that frame, or
 * the frame returns.
 */
#include "lifetime.h"
#include "source_line.h"

#include <stdio.h>
#include <string.h>

struct statement {
	uint32_t first, last;      /* nodes */
	uint32_t line, text;
	uint32_t callee;           /* scope that it calls, 0 = none */
	uint32_t lead;             /* nodes before it calls one */
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
		lifetime_extend(l, b->vals[i], at);
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

/* "outs.append(self.head(x))": what the statement leaves behind is in the list, beside what is there already, unless it was joined and is begun anew. */
static void
append(struct lifetimes *l, struct frame_state *f, const struct statement *s, const uint32_t *last_use)
{
	struct str name = line_appends_to(graph_str(l->g, s->text));
	uint32_t *vals, *all, n, old;
	struct binding *b;
	bool grows = false;

	if (!name.n)
		return;
	n = results_of(l, s, last_use, 1, &vals);
	b = find_name(l, f, name);
	for (uint32_t i = 0; i < b->n; i++)
		grows |= !b->joined || last_use[b->vals[i]] > s->last;
	old = grows ? b->n : 0;
	all = NEW(l->a->c->a, uint32_t, old + n + 1);
	if (old)
		memcpy(all, b->vals, old * sizeof *all);
	if (n)
		memcpy(all + old, vals, n * sizeof *all);
	rebind(l, f, name, all, old + n, grows ? 0 : b->joined);
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
	append(l, f, s, last_use);
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

/* The next component of a path, digits: may it be the number of a turn? */
static bool
is_number(struct str part)
{
	for (uint32_t i = 0; i < part.n; i++)
		if (part.p[i] < '0' || part.p[i] > '9')
			return false;
	return part.n > 0;
}

/* "layers.3" after "layers.2" on one line is the next turn of a loop, as is "up.1.0" after "up.0.0". */
static bool
is_next_turn(const struct graph *g, uint32_t a, uint32_t b)
{
	struct str x = scope_path(g, a), y = scope_path(g, b), p, q;
	bool differ = false;

	while (a && b && x.n && y.n) {
		str_cut(&x, '.', &p);
		str_cut(&y, '.', &q);
		if (str_eq(p, q))
			continue;
		if (!is_number(p) || !is_number(q))
			return false;
		differ = true;
	}
	return differ && !x.n && !y.n;
}

static struct str
last_part(struct str path)
{
	uint32_t from = path.n;

	while (from && path.p[from - 1] != '.')
		from--;
	return str_sub(path, from, path.n);
}

/* "h = block[1](block[0](h))" calls block.0 and block.1 in one turn. */
static bool
picks_both(struct str text, struct str a, struct str b)
{
	struct str part[2] = {last_part(a), last_part(b)};
	char buf[16];

	for (unsigned i = 0; i < 2; i++) {
		int n = snprintf(buf, sizeof buf, "[%.*s](", SFMT(str_sub(part[i], 0, part[i].n < 9 ? part[i].n : 9)));

		if (!text.n || !memmem(text.p, text.n, buf, (size_t)n))
			return false;
	}
	return !str_eq(part[0], part[1]);
}

#define MOST_LEAD 64u              /* nodes in front of a call; of more they are not told from what follows the call before */

/* Does the next turn of a loop over modules begin with node n, as many operators before it calls one as in the turn before? */
bool
lifetime_begins_turn(const struct lifetimes *l, uint32_t n, unsigned d, uint32_t callee, uint32_t lead)
{
	const struct graph *g = l->g;
	uint32_t next = lifetime_callee(g, n, d), m = n + (lead > MOST_LEAD ? 0 : lead);
	struct str text = graph_str(g, g->frames[g->nodes[n].frame + d].text);

	if (!next && (m >= g->nnode || g->nodes[m].nframe <= d || !calls_same(&l->calls, n, m, d) || !(next = lifetime_callee(g, m, d))))
		return false;
	for (uint32_t i = n; i < m && !lifetime_callee(g, n, d); i++)
		if (lifetime_callee(g, i, d) || g->nodes[i].nframe <= d || g->frames[g->nodes[i].frame + d].line != g->frames[g->nodes[m].frame + d].line)
			return false;
	return is_next_turn(g, callee, next) && !picks_both(text, scope_path(g, callee), scope_path(g, next));
}

/* "return helper(self, ..)", but not "return cross_entropy(self.fc(x), y)", whose arguments are other calls' results */
static bool
is_delegation(struct str text, bool calls)
{
	int64_t open = str_find(text, '(');

	if (!str_starts(text, S("return ")) || open < 0 || !str_ends(text, S(")")))
		return false;
	for (int64_t i = 7; i < open; i++)
		if (!line_target_char(text.p[i]) || text.p[i] == ' ')
			return false;
	return !calls || str_find(str_sub(text, (uint32_t)open + 1, text.n), '(') < 0;
}

/* The next node that picks from another parameter of as many dims by the same index: weights = self.up[ids] .. weights = self.down[ids] */
uint32_t
lifetime_next_pick(const struct graph *g, uint32_t n, uint32_t last)
{
	const struct arg *x = node_args(g, n);

	if (g->nodes[n].op != OP_INDEX || g->vals[x->u.val].kind != VAL_PARAM)
		return last;
	for (uint32_t m = n + 1; m < last; m++) {
		const struct arg *y = node_args(g, m);

		if (g->nodes[m].op == OP_INDEX && g->vals[y->u.val].kind == VAL_PARAM && g->vals[y->u.val].rank == g->vals[x->u.val].rank && y[1].count == x[1].count &&
		    memcmp(g->ids + x[1].first, g->ids + y[1].first, x[1].count * sizeof *g->ids) == 0)
			return m;
	}
	return last;
}

/* "x = x[order]": rows in another order have the name that they had. */
static bool
is_reordered(const struct graph *g, uint32_t v, uint32_t n)
{
	return g->nodes[n].op == OP_INDEX && g->nodes[n].nout && node_args(g, n)->u.val == v && dtype_is_float(g->vals[v].dtype) && g->vals[v].rank > 1 &&
	    graph_same_dims(g, v, node_outs(g, n)[0]);
}

/* "order[i] = torch.arange(n)": what is only written somewhere has no name. */
static bool
is_written(const struct graph *g, uint32_t v, uint32_t n)
{
	const struct arg *x = g->nodes[n].op == OP_INDEX_PUT ? node_arg(g, n, "values") : NULL;

	return x && x->kind == ARG_VAL && x->u.val == v;
}

/*
 * A frame that is nothing but a call of a helper: the function that matters is the helper, whose own frame traces leave out. Its locals
 * are not known; all that it makes is taken for one, but for weights that are picked one after the other, rows before they are in another order, and what is only written somewhere.
 */
static void
hold_for_helper(struct lifetimes *l, uint32_t first, uint32_t last, unsigned d, const uint32_t *last_use)
{
	struct graph *g = l->g;

	for (uint32_t n = first; n <= last; n++)
		for (uint32_t k = 0; k < g->nodes[n].nout && g->nodes[n].nframe == d + 1; k++) {
			uint32_t v = node_outs(g, n)[k], reader = last_use[v];

			if (!is_reordered(g, v, reader) && !is_written(g, v, reader))
				lifetime_extend(l, v, lifetime_next_pick(g, n, last));
		}
}

uint32_t
lifetime_callee(const struct graph *g, uint32_t n, unsigned d)
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
		callee = lifetime_callee(g, n, d);
		if (!cur.first || cur.line != line->line || lifetime_begins_turn(l, n, d, cur.callee, cur.lead)) {
			if (cur.first)
				run_statement(l, &f, &cur, last_use);
			cur = (struct statement){n, n, line->line, line->text, 0, 0};
		}
		cur.last = n;
		cur.lead = callee && !cur.callee ? n - cur.first : cur.lead;
		cur.callee = callee ? callee : cur.callee;
	}
	if (cur.first)
		run_statement(l, &f, &cur, last_use);
	if (cur.first == first && is_delegation(graph_str(g, cur.text), cur.callee != 0))
		hold_for_helper(l, first, last, d, last_use);
	for (uint32_t i = 0; i < f.n; i++)
		for (uint32_t k = 0; k < f.names[i].n; k++)
			lifetime_extend(l, f.names[i].vals[k], d ? last : l->returns);
}

void
lifetime_by_name(struct lifetimes *l)
{
	struct graph *g = l->g;
	uint32_t *last_use = NEW(l->a->c->a, uint32_t, g->nval);

	memcpy(last_use, l->end, g->nval * sizeof *last_use);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (unsigned d = 0; d <= calls_depth(g, n); d++)
			if (l->calls.first[l->calls.at[n] + d] == n)
				run_frame(l, n, l->calls.last[l->calls.at[n] + d], d, last_use);
}
