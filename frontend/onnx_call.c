/*
 * ONNX files: graphs within graphs, which are inlined. A function's names are its own; a branch or loop body sees those around it. What an
 * inner graph returns takes the name of the outer node's result.
 *
 *   function   the body, once a call
 *   If         the branch of a constant condition; else both, and a Select of their results
 *   Loop       the body as often as a small constant trip count says, else once (noted); what it collects is stacked
 *   Scan       the body once, on one slice of each scanned operand
 */
#include "onnx.h"

#include <string.h>

#define MAX_RUNS LIMIT(64, 2)                   /* of a loop's body */
#define MAX_INLINED LIMIT(200000u, 20u)        /* nodes that inlining may add */

/* ---- functions: finding them ------------------------------------------------------------------------------------ */

static struct str
key_of(struct onnx *l, const char *domain, const char *name, const char *overload)
{
	return str_fmt(l->c->a, "%s\1%s\1%s", domain && strcmp(domain, "ai.onnx") != 0 ? domain : "", name ? name : "", overload ? overload : "");
}

bool
onnx_index_functions(struct onnx *l)
{
	l->functions = strtab_new(l->c->a);
	for (size_t i = 0; i < l->m->n_functions; i++) {
		const Onnx__Function *f = l->m->functions[i];

		if (strtab_id(l->functions, key_of(l, f->domain, f->name, f->overload)) != i + 1)
			return diag(l->c, DIAG_DUPLICATE_VALUE, SFMT(str_fmt(l->c->a, "function %s", f->name ? f->name : "")));
	}
	return true;
}

const Onnx__Function *
onnx_function(struct onnx *l, const Onnx__Node *node)
{
	uint32_t id = l->m->n_functions ? strtab_find(l->functions, key_of(l, node->domain, node->op_type, node->overload)) : 0;

	return id ? l->m->functions[id - 1] : NULL;
}

static struct str
label(const Onnx__Node *node)
{
	return node->name && *node->name ? str_of(node->name) : node->n_output ? str_of(node->output[0]) : S("");
}

/* ---- entering and leaving ------------------------------------------------------------------------------------------ */

static bool
enter(struct onnx *l, const char *what)
{
	if (l->depth >= l->c->lim.depth)
		return diag(l->c, DIAG_TOO_MANY, what, (unsigned long long)l->c->lim.depth);
	if (l->g->nnode > l->g->file_nodes + MAX_INLINED)
		return diag(l->c, DIAG_TOO_MANY, "nodes after inlining", (unsigned long long)(l->g->file_nodes + MAX_INLINED));
	l->depth++;
	return true;
}

/* A node that gives an existing value another name. */
static bool
pass_on(struct onnx *l, uint32_t from, const char *name, const Onnx__Node *node)
{
	uint32_t n, v;
	struct place p;

	if (!onnx_new_node(l, OP_ONNX_IDENTITY, 1, 1, &n) || !onnx_define(l, VAL_NODE, name, &v))
		return false;
	onnx_place(l, node, &p);
	l->g->nodes[n].target = graph_name(l->g, S("Identity"));
	l->g->nodes[n].name = graph_name(l->g, str_of(name));
	l->g->nodes[n].scope = p.scope;
	node_args(l->g, n)[0] = arg_val(from);
	node_outs(l->g, n)[0] = v;
	l->g->vals[v].node = n;
	return true;
}

/* What is said of the outer result holds for the inner one. */
static bool
declared_type(struct onnx *l, const char *name, uint32_t v)
{
	const struct binding *b = onnx_binding(l, name);

	if (!b->info || b->info_frame != l->frame || l->g->vals[v].rank != RANK_UNKNOWN)
		return true;
	return onnx_type(l, v, b->info->type);
}

/* An inner result made since `first` becomes the outer one; others, such as constants and values from outside, are passed on. */
static bool
name_result(struct onnx *l, uint32_t inner, uint32_t first, const char *name, const Onnx__Node *node)
{
	struct val *x = &l->g->vals[inner];
	uint32_t *taken;

	if (!*name)
		return true;
	if (!inner)
		return diag(l->c, DIAG_NOT_A_GRAPH, "an inner graph does not give all its results");
	taken = onnx_slot(l, &l->taken, &l->taken_cap, graph_name(l->g, str_of(name)));
	if (x->kind != VAL_NODE || inner < first || *taken)
		return pass_on(l, inner, name, node);
	++*taken;
	x->name = graph_name(l->g, str_of(name));
	return onnx_bind(l, name, inner) && declared_type(l, name, inner);
}

static bool
name_results(struct onnx *l, const Onnx__Node *node, const uint32_t *inner, size_t n, uint32_t first)
{
	for (size_t i = 0; i < node->n_output; i++)
		if (node->output[i][0] && (i >= n || !name_result(l, inner[i], first, node->output[i], node)))
			return i >= n ? diag(l->c, DIAG_NOT_A_GRAPH, "an inner graph does not give all its results") : false;
	return true;
}

/* ---- functions --------------------------------------------------------------------------------------------------------- */

static bool
is_running(const struct onnx *l, const Onnx__Function *f)
{
	for (const struct call *c = l->call; c; c = c->outer)
		if (c->f == f)
			return true;
	return false;
}

static int64_t
default_opset(Onnx__Opset *const *list, size_t n, int64_t dflt)
{
	for (size_t i = 0; i < n; i++)
		if (!list[i]->domain || !*list[i]->domain || strcmp(list[i]->domain, "ai.onnx") == 0)
			return list[i]->version;
	return dflt;
}

static bool
run_body(struct onnx *l, const Onnx__Function *f, const uint32_t *in, size_t nin, uint32_t *out)
{
	onnx_declare(l, f->value_info, f->n_value_info);
	for (size_t i = 0; i < f->n_input; i++)
		if (i < nin && in[i] && !onnx_bind(l, f->input[i], in[i]))
			return false;
	if (!onnx_nodes(l, f->node, f->n_node))
		return false;
	for (size_t i = 0; i < f->n_output; i++)
		if (!onnx_lookup(l, f->output[i], &out[i]))
			return false;
	return true;
}

/* Operands that a call leaves out are omitted in the body too. */
static void
bind_omitted(struct onnx *l, const Onnx__Function *f, const uint32_t *in, size_t nin)
{
	for (size_t i = 0; i < f->n_input; i++)
		if (i >= nin || !in[i])
			onnx_binding(l, f->input[i])->omitted = l->frame;
}

bool
onnx_inline_function(struct onnx *l, const Onnx__Node *node, const Onnx__Function *f)
{
	struct call call = {.f = f, .node = node, .outer = l->call};
	uint32_t *in = NEW(l->c->a, uint32_t, node->n_input + 1), *out = NEW(l->c->a, uint32_t, f->n_output + 1);
	uint32_t mark = l->nundo, frame = l->frame, first = l->g->nval;
	int64_t opset = l->opset;
	bool ok;

	if (is_running(l, f))
		return diag(l->c, DIAG_NOT_A_GRAPH, str_fmt(l->c->a, "function %s calls itself", f->name ? f->name : "").p);
	if (node->n_input > f->n_input)
		return diag(l->c, DIAG_NOT_A_GRAPH, str_fmt(l->c->a, "function %s is called with too many operands", f->name ? f->name : "").p);
	for (size_t i = 0; i < node->n_input; i++)
		if (!onnx_lookup(l, node->input[i], &in[i]))
			return false;
	onnx_place(l, node, &call.place);
	call.place.scope = onnx_call_scope(l, node, f, call.place.scope);
	if (!enter(l, "nested functions"))
		return false;
	l->call = &call;
	l->frame = ++l->last_frame;
	l->opset = default_opset(f->opset_import, f->n_opset_import, l->opset);
	bind_omitted(l, f, in, node->n_input);
	ok = run_body(l, f, in, node->n_input, out);
	onnx_undo(l, mark);
	l->call = call.outer;
	l->frame = frame;
	l->opset = opset;
	l->depth--;
	return ok && name_results(l, node, out, f->n_output, first);
}

/* ---- branches and bodies --------------------------------------------------------------------------------------------------- */

/* The graph's nodes with its inputs bound; what it gives goes to out. */
static bool
run_graph(struct onnx *l, const Onnx__Graph *g, const uint32_t *in, size_t nin, uint32_t *out)
{
	uint32_t mark = l->nundo;
	bool ok = enter(l, "nested graphs");

	if (!ok)
		return false;
	onnx_declare(l, g->value_info, g->n_value_info);
	onnx_declare(l, g->output, g->n_output);
	ok = onnx_initializers(l, g);
	for (size_t i = 0; ok && i < g->n_input; i++)
		if (i < nin && in[i])
			ok = onnx_bind(l, g->input[i]->name, in[i]);
	ok = ok && onnx_nodes(l, g->node, g->n_node);
	for (size_t i = 0; ok && i < g->n_output; i++)
		ok = onnx_lookup(l, g->output[i]->name, &out[i]);
	onnx_undo(l, mark);
	l->depth--;
	return ok;
}

static const Onnx__Graph *
graph_attribute(struct onnx *l, const Onnx__Node *node, const char *name)
{
	const Onnx__Attribute *a = onnx_attribute(l, node, name);

	if (a && a->g)
		return a->g;
	diag(l->c, DIAG_NOT_A_GRAPH, str_fmt(l->c->a, "a node has no %s", name).p);
	return NULL;
}

/* How many tensors a list has that is given as a whole. */
static bool
length(const struct graph *g, uint32_t n, int64_t *out)
{
	uint32_t list = g->nodes[n].op == OP_ONNX_SEQUENCE_LENGTH && node_args(g, n)->kind == ARG_VAL ? node_args(g, n)->u.val : 0;
	uint32_t made = list && g->vals[list].kind == VAL_NODE ? g->vals[list].node : 0;

	if (!made || g->nodes[made].op != OP_ONNX_SEQUENCE_CONSTRUCT || node_args(g, made)->kind != ARG_VALS)
		return false;
	*out = node_args(g, made)->count;
	return true;
}

/* A number that the file fixes. */
static bool
constant(const struct onnx *l, uint32_t v, int64_t *out)
{
	const struct val *x = &l->g->vals[v];

	if (v && x->kind == VAL_NODE && x->node && length(l->g, x->node, out))
		return true;

	if (!v || x->data != DATA_INTS || x->ndata != 1)
		return false;
	*out = l->g->ints[x->data_at].n;
	return !l->g->ints[x->data_at].expr;
}

/* Names of the nodes and values that inlining makes. */
static struct str
made_name(struct onnx *l, const Onnx__Node *node)
{
	return str_fmt(l->c->a, "%.*s.runs", SFMT(label(node)));
}

/* The nodes of one branch; results go to out. */
static bool
run_branch(struct onnx *l, const Onnx__Graph *g, const Onnx__Node *node, uint32_t *out, int64_t *nodes)
{
	uint32_t before = l->g->nnode;

	if (g->n_output < node->n_output)
		return diag(l->c, DIAG_NOT_A_GRAPH, "a branch of an If does not give all its results");
	if (!run_graph(l, g, NULL, 0, out))
		return false;
	*nodes = l->g->nnode - before;
	return true;
}

/* Which branch runs may follow from sizes: the shape pass decides. */
static bool
select_results(struct onnx *l, const Onnx__Node *node, uint32_t cond, const uint32_t *yes, const uint32_t *no, const int64_t *nodes)
{
	struct place p;

	onnx_place(l, node, &p);
	for (size_t k = 0; k < node->n_output; k++) {
		uint32_t n, v;

		if (!node->output[k][0])
			continue;
		if (!onnx_new_node(l, OP_ONNX_SELECT, op_narg(OP_ONNX_SELECT), 1, &n) || !onnx_define(l, VAL_NODE, node->output[k], &v))
			return false;
		node_args(l->g, n)[0] = arg_val(cond);
		node_args(l->g, n)[1] = arg_val(yes[k]);
		node_args(l->g, n)[2] = arg_val(no[k]);
		node_args(l->g, n)[3] = arg_ints(l->g, nodes, 2);
		l->g->nodes[n].target = graph_name(l->g, S("If"));
		l->g->nodes[n].name = graph_name(l->g, label(node));
		l->g->nodes[n].scope = p.scope;
		node_outs(l->g, n)[0] = v;
		l->g->vals[v].node = n;
	}
	return true;
}

bool
onnx_inline_if(struct onnx *l, const Onnx__Node *node)
{
	const Onnx__Graph *yes = graph_attribute(l, node, "then_branch"), *no = yes ? graph_attribute(l, node, "else_branch") : NULL, *taken;
	uint32_t cond, first = l->g->nval, *out, *other;
	int64_t known, nodes[2] = {0, 0};

	if (!no || !onnx_lookup(l, node->n_input ? node->input[0] : "", &cond))
		return false;
	if (constant(l, cond, &known)) {
		taken = known ? yes : no;
		out = NEW(l->c->a, uint32_t, taken->n_output + 1);
		return run_branch(l, taken, node, out, nodes) && name_results(l, node, out, taken->n_output, first);
	}
	out = NEW(l->c->a, uint32_t, yes->n_output + 1);
	other = NEW(l->c->a, uint32_t, no->n_output + 1);
	return run_branch(l, yes, node, out, &nodes[0]) && run_branch(l, no, node, other, &nodes[1]) && select_results(l, node, cond, out, other, nodes);
}

/* ---- loops ---------------------------------------------------------------------------------------------------------------------- */

static bool
one_node(struct onnx *l, unsigned op, const char *target, const struct arg *args, uint32_t narg, struct str name, uint32_t *v)
{
	uint32_t n;

	if (!onnx_new_node(l, op, op_narg(op), 1, &n))
		return false;
	*v = onnx_new_val(l, VAL_NODE, name);
	l->g->nodes[n].target = graph_name(l->g, str_of(target));
	l->g->nodes[n].name = l->g->vals[*v].name;
	l->g->nodes[n].scope = l->call ? l->call->place.scope : 0;
	memcpy(node_args(l->g, n), args, narg * sizeof *args);
	node_outs(l->g, n)[0] = *v;
	l->g->vals[*v].node = n;
	return true;
}

/* What a body gave to be collected: of one run, `count` times; of several runs, theirs. */
static bool
collect(struct onnx *l, const uint32_t *of_run, uint32_t runs, uint32_t count, int64_t axis, struct str name, uint32_t *out)
{
	uint32_t *parts = NEW(l->c->a, uint32_t, runs + 1), zero = 0;
	struct arg args[3];

	if (runs == 1) {
		args[0] = arg_val(of_run[0]);
		args[1] = arg_val(count);
		args[2] = arg_int(axis);
		return one_node(l, OP_ONNX_STACK_RUNS, "StackRuns", args, 3, name, out);
	}
	zero = onnx_constant(l, "axes", &axis, 1, false);
	for (uint32_t i = 0; i < runs; i++) {
		args[0] = arg_val(of_run[i]);
		args[1] = arg_val(zero);
		if (!one_node(l, OP_ONNX_UNSQUEEZE, "Unsqueeze", args, 2, name, &parts[i]))
			return false;
	}
	args[0] = (struct arg){.kind = ARG_VALS, .first = ids_add(l->g, parts, runs), .count = runs};
	args[1] = arg_int(axis);
	return one_node(l, OP_ONNX_CONCAT, "Concat", args, 2, name, out);
}

struct loop {
	const Onnx__Graph *body;
	size_t ncarried, nscan;
	uint32_t runs, count;      /* bodies to inline; value that says how often it runs, 0 = not known */
	bool known;
	uint32_t *in, *out;        /* of the body */
	uint32_t *scan;            /* nscan times runs */
};

static bool
run_loop(struct onnx *l, const Onnx__Node *node, struct loop *p)
{
	for (uint32_t run = 0; run < p->runs; run++) {
		int64_t i = run, yes = 1;

		p->in[0] = onnx_constant(l, p->body->input[0]->name, &i, 1, true);
		if (!p->known)
			l->g->vals[p->in[0]].data = DATA_NONE;
		p->in[1] = onnx_constant(l, p->body->input[1]->name, &yes, 1, true);
		l->g->vals[p->in[1]].dtype = DT_BOOL;
		if (!run_graph(l, p->body, p->in, 2 + p->ncarried, p->out))
			return false;
		memcpy(p->in + 2, p->out + 1, p->ncarried * sizeof *p->in);
		for (size_t k = 0; k < p->nscan; k++)
			p->scan[k * p->runs + run] = p->out[1 + p->ncarried + k];
	}
	memcpy(p->out, p->in + 2, p->ncarried * sizeof *p->out);
	for (size_t k = 0; k < p->nscan; k++)
		if (!collect(l, p->scan + k * p->runs, p->runs, p->count, 0, made_name(l, node), &p->out[p->ncarried + k]))
			return false;
	return true;
}

/* How often it runs is known if the trip count is a constant and the condition never says no. */
static bool
plan_loop(struct onnx *l, const Onnx__Node *node, struct loop *p)
{
	uint32_t trips = 0, cond = 0;
	int64_t n = -1, yes = 1;

	if (!onnx_lookup(l, node->n_input > 0 ? node->input[0] : "", &trips) || !onnx_lookup(l, node->n_input > 1 ? node->input[1] : "", &cond))
		return false;
	p->count = trips;
	p->known = constant(l, trips, &n) && n >= 0 && n <= MAX_RUNS && (!cond || (constant(l, cond, &yes) && yes));
	p->runs = p->known ? (uint32_t)n : 1;
	if (cond && constant(l, cond, &yes) && !yes)
		p->runs = 0;
	if (!p->known && p->runs)
		graph_note(l->g, "Loop %.*s: how often it runs depends on the data; its body is counted once", SFMT(label(node)));
	return true;
}

bool
onnx_inline_loop(struct onnx *l, const Onnx__Node *node)
{
	struct loop p = {.body = graph_attribute(l, node, "body")};
	uint32_t first = l->g->nval;

	if (!p.body || !plan_loop(l, node, &p))
		return false;
	p.ncarried = node->n_input > 2 ? node->n_input - 2 : 0;
	if (p.body->n_input != 2 + p.ncarried || p.body->n_output < 1 + p.ncarried)
		return diag(l->c, DIAG_NOT_A_GRAPH, "a Loop and its body have different numbers of values");
	p.nscan = p.body->n_output - 1 - p.ncarried;
	p.in = NEW(l->c->a, uint32_t, p.body->n_input + 1);
	p.out = NEW(l->c->a, uint32_t, p.body->n_output + 1);
	if (!p.runs && p.nscan)
		p.runs = 1;        /* for the types of what is collected */
	p.scan = NEW(l->c->a, uint32_t, p.nscan * p.runs + 1);
	for (size_t i = 0; i < p.ncarried; i++)
		if (!onnx_lookup(l, node->input[2 + i], &p.in[2 + i]))
			return false;
	return run_loop(l, node, &p) && name_results(l, node, p.out, p.ncarried + p.nscan, first);
}

/* ---- scans ------------------------------------------------------------------------------------------------------------------------- */

static int64_t
axis_of(const Onnx__Attribute *axes, size_t i)
{
	return axes && i < axes->n_ints ? axes->ints[i] : 0;
}

/* One slice of a scanned operand, and how many there are. */
static bool
slice_of(struct onnx *l, uint32_t x, int64_t axis, struct str name, uint32_t *slice, uint32_t *count)
{
	int64_t zero = 0;
	struct arg args[3] = {arg_val(x), arg_val(onnx_constant(l, "index", &zero, 1, true)), arg_int(axis)};

	if (!one_node(l, OP_ONNX_GATHER, "Gather", args, 3, name, slice))
		return false;
	args[1] = axis == -1 ? (struct arg){.kind = ARG_NONE} : arg_int(axis + 1);       /* Shape has end before start */
	return *count ? true : one_node(l, OP_ONNX_SHAPE, "Shape", args, 3, name, count);
}

bool
onnx_inline_scan(struct onnx *l, const Onnx__Node *node)
{
	const Onnx__Graph *body = graph_attribute(l, node, "body");
	const Onnx__Attribute *number = onnx_attribute(l, node, "num_scan_inputs"), *in_axes = onnx_attribute(l, node, "scan_input_axes"), *out_axes = onnx_attribute(l, node, "scan_output_axes");
	uint32_t first = l->g->nval, count = 0, *in, *out;
	size_t nscan = number && number->i > 0 ? (size_t)number->i : 0, nstate;

	if (!body)
		return false;
	if (!nscan || nscan > node->n_input || body->n_input != node->n_input || body->n_output < node->n_input - nscan)
		return diag(l->c, DIAG_NOT_A_GRAPH, "a Scan and its body have different numbers of values");
	nstate = node->n_input - nscan;
	in = NEW(l->c->a, uint32_t, body->n_input + 1);
	out = NEW(l->c->a, uint32_t, body->n_output + 1);
	for (size_t i = 0; i < node->n_input; i++) {
		if (!onnx_lookup(l, node->input[i], &in[i]))
			return false;
		if (i >= nstate && !slice_of(l, in[i], axis_of(in_axes, i - nstate), made_name(l, node), &in[i], &count))
			return false;
	}
	graph_note(l->g, "Scan %.*s: its body is counted once", SFMT(label(node)));
	if (!run_graph(l, body, in, node->n_input, out))
		return false;
	for (size_t i = nstate; i < body->n_output; i++)
		if (!collect(l, &out[i], 1, count, axis_of(out_axes, i - nstate), made_name(l, node), &out[i]))
			return false;
	return name_results(l, node, out, body->n_output, first);
}
