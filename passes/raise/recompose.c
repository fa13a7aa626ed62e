/*
 * recompose: programs that went through run_decompositions hold core ATen; what trains is the model as it was written. Pieces that say which
 * operator they come from (node.fx, in files of torch 2.3 and later) are that operator again; in files that do not say it, the shapes
 * that a linear layer and a matrix product are taken apart into are recognised. recompose.def lists the operators.
 */
#include "recompose.h"

#include <string.h>

static const struct recompose_row rows[] = {
#define RECOMPOSE(op, operands, how, settings) {OP_##op, operands, settings, recompose_##how},
#include "recompose.def"
#undef RECOMPOSE
};

static const struct recompose_row *
row_of(unsigned op)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (rows[i].op == op)
			return &rows[i];
	return NULL;
}

/* ---- sets of pieces ---------------------------------------------------------------------------------------------------- */

void
recompose_add_piece(struct recompose *e, uint32_t set, uint32_t n)
{
	e->of[n] = set;
	if (e->last[set])
		e->next[e->last[set]] = n;
	else
		e->first[set] = n;
	e->last[set] = n;
}

/* "aten.linear.default" -> the operator */
static unsigned
op_of_target(const struct graph *g, uint32_t target, bool *inplace)
{
	struct str name = graph_str(g, target);

	if (str_starts(name, S("aten.")))
		name = str_sub(name, 5, name.n);
	if (str_eq(name, S("__setitem__")))        /* x[i] = y */
		name = S("copy_");
	return name.n ? op_by_name(name, inplace) : OP_NONE;
}

/* Neighbours with one origin; checks between them have none. */
static void
collect_by_origin(struct recompose *e)
{
	struct graph *g = e->g;
	uint32_t set = 0, fx = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct node *x = &g->nodes[n];

		if (!x->fx)
			continue;
		if (x->fx != fx) {
			fx = x->fx;
			set = ++e->nset;
			e->op[set] = (uint16_t)op_of_target(g, x->fx_target, &e->inplace[set]);
		}
		recompose_add_piece(e, set, n);
	}
}

/* Modules whose operator a trace on the CPU takes apart, in archives that say no origin. */
static unsigned
op_of_module(const struct graph *g, uint32_t scope)
{
	struct str cls = graph_str(g, g->scopes[scope].cls);

	if (!memmem(cls.p, cls.n, "torch.nn.modules.rnn.", 21))
		return OP_NONE;
	return str_ends(cls, S(".GRUCell")) ? OP_GRU_CELL : str_ends(cls, S(".LSTMCell")) ? OP_LSTM_CELL : OP_NONE;
}

static void
collect_by_module(struct recompose *e)
{
	struct graph *g = e->g;
	uint32_t set = 0, scope = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		unsigned op = g->nodes[n].scope ? op_of_module(g, g->nodes[n].scope) : OP_NONE;

		if (op && g->nodes[n].scope != scope)
			e->op[set = ++e->nset] = (uint16_t)op;
		scope = op ? g->nodes[n].scope : 0;
		if (op)
			recompose_add_piece(e, set, n);
	}
}

bool
recompose_is_piece(const struct pieces *p, uint32_t v)
{
	const struct val *x = &p->g->vals[v];

	return x->kind == VAL_NODE && p->of[x->node] == p->set;
}

static bool
note_value(uint32_t *list, uint32_t *n, uint32_t v)
{
	for (uint32_t i = 0; i < *n; i++)
		if (list[i] == v)
			return true;
	if (*n == RECOMPOSE_MAX)
		return false;
	list[(*n)++] = v;
	return true;
}

static bool
find_operands(struct pieces *p)
{
	for (uint32_t i = 0; i < p->nnode; i++)
		for (struct operands it = operands_of(p->g, p->node[i]); operand_next(&it);)
			if (!recompose_is_piece(p, it.val) && !note_value(p->operand, &p->noperand, it.val))
				return false;
	return true;
}

/* Values that are read more often than by the pieces. */
bool
recompose_find_results(struct recompose *e, struct pieces *p)
{
	struct graph *g = p->g;
	bool ok = true;

	for (uint32_t i = 0; i < p->nnode; i++)
		for (struct operands it = operands_of(g, p->node[i]); operand_next(&it);)
			e->uses[it.val]--;
	for (uint32_t i = 0; i < p->nnode; i++)
		for (uint32_t k = 0; k < g->nodes[p->node[i]].nout; k++)
			if (e->uses[node_outs(g, p->node[i])[k]])
				ok = ok && note_value(p->result, &p->nresult, node_outs(g, p->node[i])[k]);
	for (uint32_t i = 0; i < p->nnode; i++)
		for (struct operands it = operands_of(g, p->node[i]); operand_next(&it);)
			e->uses[it.val]++;
	return ok;
}

/* ---- putting together ----------------------------------------------------------------------------------------------------- */

void
recompose_set(const struct pieces *p, const char *name, struct arg value)
{
	struct arg *a = node_arg(p->g, p->made, name);

	if (a)
		*a = value;
}

/* A node at the end of the graph's array, where its row's arguments fit; only its contents are used. */
static uint32_t
make_node(struct pieces *p)
{
	struct graph *g = p->g;
	uint32_t n = node_new(g, p->op, op_narg(p->op), p->nresult), like = p->node[p->nnode - 1];
	struct node *x = &g->nodes[n];

	for (uint32_t k = 0; k < p->nresult; k++)
		node_outs(g, n)[k] = p->result[k];
	node_place(g, n, like);
	x->name = g->nodes[like].fx ? g->nodes[like].fx : g->nodes[like].name;
	x->target = g->nodes[like].fx_target ? g->nodes[like].fx_target : g->nodes[like].target;
	x->flags |= p->inplace ? NF_INPLACE : 0;
	x->fx = g->nodes[like].fx;
	x->fx_target = g->nodes[like].fx_target;
	return n;
}

/* The operator takes the place of its last piece. */
static void
replace(struct recompose *e, const struct pieces *p)
{
	struct graph *g = p->g;
	uint32_t at = p->node[p->nnode - 1];

	for (uint32_t i = 0; i < p->nnode; i++) {
		for (struct operands it = operands_of(g, p->node[i]); operand_next(&it);)
			e->uses[it.val]--;
		g->nodes[p->node[i]].flags |= NF_DEAD;
	}
	g->nodes[at] = g->nodes[p->made];
	for (uint32_t k = 0; k < g->nodes[at].nout; k++) {
		g->vals[node_outs(g, at)[k]].node = at;
		g->vals[node_outs(g, at)[k]].out = k;
	}
	for (struct operands it = operands_of(g, at); operand_next(&it);)
		e->uses[it.val]++;
}

/* ---- a set -------------------------------------------------------------------------------------------------------------------- */

static void
put_together(struct recompose *e, uint32_t set, uint32_t *nodes)
{
	const struct recompose_row *row = row_of(e->op[set]);
	struct pieces p = {.a = e->a, .g = e->g, .of = e->of, .set = set, .node = nodes, .op = e->op[set], .inplace = e->inplace[set]};

	for (uint32_t n = e->first[set]; n && row; n = e->next[n])
		if (!(e->g->nodes[n].flags & NF_DEAD))
			nodes[p.nnode++] = n;
	if (!p.nnode || (p.nnode == 1 && e->g->nodes[nodes[0]].op == p.op) || !find_operands(&p) || !recompose_find_results(e, &p) || !p.nresult ||
	    (!p.noperand && row->find != recompose_created))
		return;
	p.made = make_node(&p);
	if (row->find(&p, row))
		replace(e, &p);
	e->g->nnode = p.made;
}

/* ---- what decomposing adds and drops ------------------------------------------------------------------------------------- */

/* New running statistics, which take the place of buffers. */
static void
drop_statistics(struct recompose *e)
{
	for (uint32_t n = 1; n < e->g->nnode; n++) {
		struct node *x = &e->g->nodes[n];

		while (x->op == OP_BATCH_NORM && x->nout > 1 && !e->uses[node_outs(e->g, n)[x->nout - 1]])
			x->nout--;
	}
}

/* ---- the pass -------------------------------------------------------------------------------------------------------------- */

static bool
is_torch_program(const struct graph *g)
{
	return str_eq(g->format, S("pt2"));
}

static bool
says_origin(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].fx)
			return true;
	return false;
}

bool
pass_recompose(struct analysis *a)
{
	struct graph *g = a->g;
	uint32_t n = g->nnode, *nodes;
	struct recompose e = {.a = a, .g = g};

	if (!is_torch_program(g) && !str_eq(g->format, S("torchscript")))
		return true;
	recompose_restore_conversions(&e);
	e.of = NEW(a->c->a, uint32_t, n + 1);
	e.next = NEW(a->c->a, uint32_t, n + 1);
	e.first = NEW(a->c->a, uint32_t, n + 1);
	e.last = NEW(a->c->a, uint32_t, n + 1);
	e.op = NEW(a->c->a, uint16_t, n + 1);
	e.inplace = NEW(a->c->a, bool, n + 1);
	nodes = NEW(a->c->a, uint32_t, n + 1);
	e.uses = NEW(a->c->a, uint32_t, g->nval);
	e.now = NEW(a->c->a, uint32_t, g->nval);
	e.view_of = NEW(a->c->a, uint32_t, g->nval);
	uses_count(g, e.uses);
	drop_statistics(&e);
	if (is_torch_program(g) && says_origin(g))
		collect_by_origin(&e);
	else if (g->decomposed)
		recompose_collect_by_shape(&e);
	else
		collect_by_module(&e);
	for (uint32_t set = 1; set <= e.nset; set++)
		recompose_restore_writes(&e, set, nodes);
	recompose_rename(&e);
	memset(e.uses, 0, g->nval * sizeof *e.uses);
	uses_count(g, e.uses);
	for (uint32_t set = 1; set <= e.nset; set++)
		put_together(&e, set, nodes);
	graph_compact(g);
	return true;
}
