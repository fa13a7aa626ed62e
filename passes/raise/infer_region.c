/*
 * infer: branches and loops. A condition that is known chooses. One that data decides takes the larger side, by the elements that its
 * operators make; a loop whose turns data decides is run once. The report says so.
 */
#include "infer.h"

#include <string.h>

#define MAX_TURNS LIMIT(100000, 3)

/* The node that closes the region, or at its own level the "else" (if wanted); the walk goes on behind it. */
static bool
skip_to(struct infer *f, bool stop_at_else)
{
	unsigned depth = 0;

	for (uint32_t n = f->pc + 1; n < f->nold; n++) {
		unsigned op = f->old[n].op;

		if (depth == 0 && (op == OP_ENDIF || op == OP_ENDLOOP || (stop_at_else && op == OP_ELSE))) {
			f->pc = n;
			return true;
		}
		depth += op == OP_IF || op == OP_LOOP;
		depth -= op == OP_ENDIF || op == OP_ENDLOOP;
	}
	return diag(f->a->c, DIAG_INTERNAL, "infer", SFMT(S("a region has no end")));
}

static struct open_region *
open_region(struct infer *f, bool is_loop)
{
	ROOM(f->a->c->a, f->open, f->nopen, f->open_cap, 1);
	f->open[f->nopen] = (struct open_region){.node = f->pc, .is_loop = is_loop, .first = f->g->nnode};
	return &f->open[f->nopen++];
}

static struct open_region *
innermost(struct infer *f, bool is_loop)
{
	struct open_region *r = f->nopen ? &f->open[f->nopen - 1] : NULL;

	if (r && r->is_loop == is_loop)
		return r;
	diag(f->a->c, DIAG_INTERNAL, "infer", SFMT(S("a region ends that did not begin")));
	return NULL;
}

static bool
known(const struct cell *c, bool *value)
{
	*value = c->kind == CELL_NUMBER && number_real(c->u.number) != 0;
	return c->kind == CELL_NUMBER || c->kind == CELL_NONE;
}

static const struct arg *
args_of(const struct infer *f, const struct node *x)
{
	return f->g->args + x->arg;
}

static void
set_result(struct infer *f, const struct node *x, uint32_t k, struct cell c)
{
	uint32_t v = k < x->nout ? f->g->ids[x->out + k] : 0;

	if (v)
		f->cell[v] = c;
}

/* ---- if ------------------------------------------------------------------------------------------------------------------ */

static void
finish_if(struct infer *f, const struct node *end, bool second)
{
	for (uint32_t k = 0; k < end->nout && 2 * k + 1 < end->narg; k++)
		set_result(f, end, k, infer_arg(f, args_of(f, end) + 2 * k + second));
}

static bool
begin_if(struct infer *f, const struct node *x)
{
	struct cell cond = x->narg && args_of(f, x)->kind != ARG_NONE ? infer_arg(f, args_of(f, x)) : (struct cell){.kind = CELL_UNKNOWN};
	struct open_region *r = open_region(f, false);
	bool value;

	if (!known(&cond, &value)) {
		r->by_data = true;
		return true;
	}
	r->second = !value;
	if (value)
		return true;
	if (!skip_to(f, true))
		return false;
	if (f->old[f->pc].op == OP_ELSE)
		return true;
	finish_if(f, &f->old[f->pc], true);        /* there is no second branch */
	f->nopen--;
	return true;
}

static bool
middle_of_if(struct infer *f)
{
	struct open_region *r = innermost(f, false);

	if (!r)
		return false;
	if (r->by_data) {
		r->middle = f->g->nnode;
		return true;
	}
	if (!skip_to(f, false))
		return false;
	finish_if(f, &f->old[f->pc], false);
	f->nopen--;
	return true;
}

static uint64_t
elements_made(struct infer *f, uint32_t from, uint32_t to)
{
	const struct graph *g = f->g;
	uint64_t total = 0;

	for (uint32_t n = from; n < to; n++)
		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			uint32_t v = node_outs(g, n)[k], t = v ? infer_tensor(f, v) : 0;

			total += t ? (uint64_t)geom_at(f->s, t)->numel : 0;
		}
	return total;
}

/* Nodes [from, to) go; what is behind them moves up. */
static void
drop_nodes(struct graph *g, uint32_t from, uint32_t to)
{
	uint32_t n = from;

	for (uint32_t i = to; i < g->nnode; i++, n++) {
		g->nodes[n] = g->nodes[i];
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			if (node_outs(g, n)[k])
				g->vals[node_outs(g, n)[k]].node = n;
	}
	g->nnode = n;
}

static bool
end_if(struct infer *f, const struct node *x)
{
	struct open_region *r = innermost(f, false);
	uint64_t a, b;
	bool second;

	if (!r)
		return false;
	f->nopen--;
	if (!r->by_data) {
		finish_if(f, x, r->second);
		return true;
	}
	if (!r->middle)
		r->middle = f->g->nnode;
	a = elements_made(f, r->first, r->middle);
	b = elements_made(f, r->middle, f->g->nnode);
	second = b > a;
	finish_if(f, x, second);
	drop_nodes(f->g, second ? r->first : r->middle, second ? r->middle : f->g->nnode);
	assume(f->a, "a branch that data decides is taken on its larger side (%.*s)", SFMT(graph_str(f->g, f->old[r->node].name)));
	return true;
}

/* ---- loops ------------------------------------------------------------------------------------------------------------------ */

static bool
by_data(struct infer *f, uint32_t loop)
{
	assume(f->a, "a loop whose number of turns data decides is counted once (%.*s)", SFMT(graph_str(f->g, f->old[loop].name)));
	return true;
}

static void
begin_turn(struct infer *f, const struct open_region *r, const struct cell *carried, uint32_t n)
{
	const struct node *x = &f->old[r->node];

	set_result(f, x, 0, cell_number(number_int(r->turn)));
	for (uint32_t k = 0; k < n; k++)
		set_result(f, x, k + 1, carried[k]);
}

static struct cell *
cells_from(struct infer *f, const struct node *x, uint32_t first)
{
	uint32_t n = x->narg > first ? x->narg - first : 0;
	struct cell *c = NEW(f->a->c->a, struct cell, n + 1u);

	for (uint32_t k = 0; k < n; k++)
		c[k] = infer_arg(f, args_of(f, x) + first + k);
	return c;
}

static bool
begin_loop(struct infer *f, const struct node *x)
{
	struct cell count = infer_arg(f, args_of(f, x)), cond = infer_arg(f, args_of(f, x) + 1), *start = cells_from(f, x, 2);
	bool go = true, data;
	struct sint turns = SINT(INT64_MAX);
	struct open_region *r;
	uint32_t loop = f->pc;

	if (args_of(f, x)->kind != ARG_NONE)
		turns = count.kind == CELL_NUMBER ? number_size(count.u.number) : (struct sint){0, EXPR_UNKNOWN};
	data = turns.expr != 0;
	if (data)
		turns.n = 1;
	if (args_of(f, x)[1].kind != ARG_NONE && !known(&cond, &go))
		data = go = true;
	if (turns.n < 1 || !go) {
		if (!skip_to(f, false))
			return false;
		for (uint32_t k = 0; k + 2 < x->narg; k++)
			set_result(f, &f->old[f->pc], k, start[k]);
		return true;
	}
	r = open_region(f, true);
	r->by_data = data;
	r->count = turns.n;
	begin_turn(f, r, start, x->narg > 2 ? x->narg - 2u : 0);
	return data ? by_data(f, loop) : true;
}

static void
note_turns(struct infer *f, const struct open_region *r, const struct node *end)
{
	struct str target = graph_str(f->g, end->target);

	if (r->by_data || (!str_ends(target, S(".scan")) && !str_ends(target, S(".while_loop"))))
		return;
	f->a->lower_bound = true;
	assume(f->a, "%.*s: its %lld turns are counted as if they were written out: a lower bound, without the places and copies with which torch's own keeps their results", SFMT(target), (long long)r->turn);
}

static bool
end_loop(struct infer *f, const struct node *x)
{
	struct open_region *r = innermost(f, true);
	struct cell cond = x->narg ? infer_arg(f, args_of(f, x)) : (struct cell){.kind = CELL_NONE}, *next = cells_from(f, x, 1);
	uint32_t n = x->narg > 1 ? x->narg - 1u : 0;
	bool go = true, sure = !x->narg || args_of(f, x)->kind == ARG_NONE || known(&cond, &go);

	if (!r)
		return false;
	if (!sure && !r->by_data)
		by_data(f, r->node);
	r->turn++;
	if (sure && go && !r->by_data && r->turn < r->count) {
		if (r->turn >= MAX_TURNS)
			return diag(f->a->c, DIAG_TOO_MANY, "turns of a loop", (unsigned long long)MAX_TURNS);
		begin_turn(f, r, next, n);
		f->pc = r->node;
		return true;
	}
	f->nopen--;
	note_turns(f, r, x);
	for (uint32_t k = 0; k < n; k++)
		set_result(f, x, k, next[k]);
	return true;
}

bool
infer_region(struct infer *f, const struct node *x)
{
	switch (x->op) {
	case OP_IF:
		return begin_if(f, x);
	case OP_ELSE:
		return middle_of_if(f);
	case OP_ENDIF:
		return end_if(f, x);
	case OP_LOOP:
		return begin_loop(f, x);
	default:
		return end_loop(f, x);
	}
}
