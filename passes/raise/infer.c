/*
 * infer: what a file leaves to be computed. With the sizes bound, the graph is walked once in order: numbers of the program become
 * constants, branches and loops become the nodes that run, and values that the file does not declare get the dtype and dims that the
 * operators' own rows give (passes/lower, run forward without tape). A graph without such things is left as it is.
 *
 * What cannot be inferred stays without dims, or gets those of what it is made of (infer_guess.c); either is reported.
 */
#include "infer.h"

#include <string.h>

/* ---- geometry -------------------------------------------------------------------------------------------------------- */

static void
room_for_tensors(struct infer *f)
{
	uint32_t n = f->g->nval, *p;

	if (n <= f->ntensor)
		return;
	n = n * 2;
	p = NEW(f->a->c->a, uint32_t, n);
	if (f->ntensor)
		memcpy(p, f->tensor, f->ntensor * sizeof *p);
	f->tensor = p;
	f->ntensor = n;
}

/* As the value is declared; 0 if that is not whole. */
static uint32_t
declared(struct infer *f, uint32_t v)
{
	const struct val *x = &f->g->vals[v];
	struct geom g = {.rank = x->rank, .dtype = x->dtype};
	uint32_t mark = temps_mark(f->s), t;

	if (!graph_is_sized(f->g, v))
		return 0;
	for (unsigned i = 0; i < x->rank; i++) {
		sint_eval(f->g, val_dims(f->g, v)[i], &g.dim[i]);
		if (g.dim[i] < 0)
			return 0;
	}
	geom_contiguous(&g);
	t = tensor_hold(f->s, tensor_new(f->s, geom_intern(f->s->geoms, g), "declared"));
	temps_release(f->s, mark);
	return t;
}

uint32_t
infer_tensor(struct infer *f, uint32_t v)
{
	room_for_tensors(f);
	if (!f->tensor[v])
		f->tensor[v] = declared(f, v);
	return f->tensor[v];
}

static void
declare(struct infer *f, uint32_t v, const struct geom *g)
{
	struct sint dims[MAX_RANK];

	for (unsigned i = 0; i < g->rank; i++)
		dims[i] = SINT(g->dim[i]);
	f->g->vals[v].dtype = g->dtype;
	val_shape(f->g, v, g->rank, dims);
}

/* A result whose dims are not known has at least a dtype: what it is made of. */
static unsigned
likely_dtype(const struct graph *g, uint32_t n)
{
	unsigned op = g->nodes[n].op;
	const struct arg *given = node_arg(g, n, "dtype");

	if (given && given->kind == ARG_DTYPE)
		return given->dtype;
	if ((op >= OP_EQ && op <= OP_LOGICAL_XOR) || op == OP_LOGICAL_NOT || op == OP_ANY || op == OP_ALL)
		return DT_BOOL;
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (dtype_is_float(g->vals[it.val].dtype))
			return g->vals[it.val].dtype;
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (g->vals[it.val].dtype)
			return g->vals[it.val].dtype;
	return DT_NONE;
}

/* ---- arguments ----------------------------------------------------------------------------------------------------------- */

static struct sint
int_now(const struct infer *f, struct sint s)
{
	const struct expr *e = &f->g->exprs[s.expr];

	if (!s.expr || e->op != EX_VAL)
		return s;
	if (e->a >= f->ncell || f->cell[e->a].kind != CELL_NUMBER)
		return (struct sint){0, EXPR_UNKNOWN};
	return number_size(f->cell[e->a].u.number);
}

static struct cell
list_cell(struct infer *f, const struct arg *a)
{
	struct cell c = {.kind = CELL_LIST, .n = a->count};

	c.u.list = NEW(f->a->c->a, struct cell, a->count + 1u);
	for (uint32_t i = 0; i < a->count; i++) {
		struct sint s;

		if (a->kind == ARG_FLOATS) {
			c.u.list[i] = cell_number(number_float(f->g->floats[a->first + i]));
		} else if (a->kind == ARG_VALS) {
			uint32_t v = f->g->ids[a->first + i];

			c.u.list[i] = v ? f->cell[v] : (struct cell){.kind = CELL_NONE};
		} else {
			s = int_now(f, f->g->ints[a->first + i]);
			c.u.list[i] = s.expr ? cell_unknown(ARG_INT) : cell_number(number_int(s.n));
		}
	}
	return c;
}

/* What an argument of the old graph stands for now. */
struct cell
infer_arg(struct infer *f, const struct arg *a)
{
	struct sint s;

	switch (a->kind) {
	case ARG_VAL:
		return f->cell[a->u.val];
	case ARG_INT:
		s = int_now(f, a->u.i);
		return s.expr ? cell_unknown(ARG_INT) : cell_number(number_int(s.n));
	case ARG_FLOAT:
		return cell_number(number_float(a->u.f));
	case ARG_BOOL:
		return cell_number(number_bool(a->u.b));
	case ARG_STR:
		return (struct cell){.kind = CELL_TEXT, .u.str = a->u.str};
	case ARG_VALS:
	case ARG_INTS:
	case ARG_FLOATS:
		return list_cell(f, a);
	default:
		return (struct cell){.kind = CELL_NONE};
	}
}

static struct arg
number_arg(struct number n, bool is_dtype)
{
	if (n.kind == ARG_INT && is_dtype)
		return arg_dtype(dtype_by_c10(n.u.i));
	return n.kind == ARG_INT ? arg_int(n.u.i) : n.kind == ARG_FLOAT ? arg_float(n.u.f) : arg_bool(n.u.b);
}

/* A number that data decides: whole ones may be sizes, which are then unknown; of the others only the kind matters. */
static struct arg
unknown_arg(unsigned kind)
{
	if (kind == ARG_FLOAT)
		return arg_float(0.5);
	if (kind == ARG_BOOL)
		return arg_bool(true);
	return kind == ARG_INT ? (struct arg){.kind = ARG_INT, .u.i = {0, EXPR_UNKNOWN}} : (struct arg){.kind = ARG_NONE};
}

static struct arg
tensors_arg(struct infer *f, const struct cell *c)
{
	uint32_t *ids = NEW(f->a->c->a, uint32_t, c->n + 1u);

	for (uint32_t i = 0; i < c->n; i++)
		ids[i] = c->u.list[i].kind == CELL_TENSOR ? c->u.list[i].u.val : 0;
	return (struct arg){.kind = ARG_VALS, .first = ids_add(f->g, ids, c->n), .count = c->n};
}

static struct arg
numbers_arg(struct infer *f, const struct cell *c)
{
	struct sint *n = NEW(f->a->c->a, struct sint, c->n + 1u);

	for (uint32_t i = 0; i < c->n; i++) {
		const struct cell *x = &c->u.list[i];

		n[i] = x->kind == CELL_NUMBER ? number_size(x->u.number) : (struct sint){0, EXPR_UNKNOWN};
	}
	return (struct arg){.kind = ARG_INTS, .first = ints_add(f->g, n, c->n), .count = c->n};
}

static struct arg
arg_of_cell(struct infer *f, const struct cell *c, bool is_dtype)
{
	bool tensors = false;

	switch (c->kind) {
	case CELL_TENSOR:
		return arg_val(c->u.val);
	case CELL_NUMBER:
		return number_arg(c->u.number, is_dtype);
	case CELL_UNKNOWN:
		return unknown_arg(c->u.number.kind);
	case CELL_TEXT:
		return (struct arg){.kind = ARG_STR, .u.str = c->u.str};
	case CELL_LIST:
		for (uint32_t i = 0; i < c->n; i++)
			tensors |= c->u.list[i].kind == CELL_TENSOR;
		return tensors ? tensors_arg(f, c) : numbers_arg(f, c);
	default:
		return (struct arg){.kind = ARG_NONE};
	}
}

static struct arg
new_arg(struct infer *f, const struct arg *a, bool is_dtype)
{
	struct cell c;

	if (a->kind == ARG_FLOATS || a->kind == ARG_DTYPE || a->kind == ARG_STR || a->kind == ARG_NONE || a->kind == ARG_FLOAT || a->kind == ARG_BOOL)
		return *a;
	if (a->kind == ARG_INT && !(a->u.i.expr && f->g->exprs[a->u.i.expr].op == EX_VAL))
		return *a;
	c = infer_arg(f, a);
	return a->kind == ARG_VALS ? tensors_arg(f, &c) : a->kind == ARG_INTS ? numbers_arg(f, &c) : arg_of_cell(f, &c, is_dtype);
}

/* ---- operators ------------------------------------------------------------------------------------------------------------- */

static uint32_t
copy_node(struct infer *f, const struct node *x)
{
	struct graph *g = f->g;
	uint32_t n = node_new(g, x->op, x->narg, x->nout), arg = g->nodes[n].arg, out = g->nodes[n].out;
	int dtype_at = op_arg_index(x->op, S("dtype"));

	g->nodes[n] = *x;
	g->nodes[n].arg = arg;
	g->nodes[n].out = out;
	for (uint32_t i = 0; i < x->narg; i++) {
		struct arg a = new_arg(f, &g->args[x->arg + i], (int)i == dtype_at);

		g->args[arg + i] = a;
	}
	return n;
}

static struct value
ints_value(struct infer *f, const struct arg *a)
{
	int64_t *n = NEW(f->a->c->a, int64_t, a->count + 1u);

	for (uint32_t i = 0; i < a->count; i++)
		sint_eval(f->g, f->g->ints[a->first + i], &n[i]);
	return V_INTS(n, a->count);
}

static struct value
tensors_value(struct infer *f, const struct arg *a, bool *known)
{
	uint32_t *t = NEW(f->a->c->a, uint32_t, a->count + 1u);

	for (uint32_t i = 0; i < a->count; i++) {
		uint32_t v = f->g->ids[a->first + i];

		t[i] = v ? infer_tensor(f, v) : 0;
		*known &= !v || t[i];
	}
	return V_TENSORS(t, a->count);
}

static struct value
value_of(struct infer *f, const struct arg *a, bool *known)
{
	uint32_t t;
	int64_t i;

	switch (a->kind) {
	case ARG_VAL:
		t = infer_tensor(f, a->u.val);
		*known &= t != 0;
		return V_TENSOR(t);
	case ARG_VALS:
		return tensors_value(f, a, known);
	case ARG_INT:
		return V_INT(sint_eval(f->g, a->u.i, &i) ? i : 0);
	case ARG_INTS:
		return ints_value(f, a);
	case ARG_FLOAT:
		return V_FLOAT(a->u.f);
	case ARG_FLOATS:
		return (struct value){.kind = ARG_FLOATS, .n = a->count, .u.floats = f->g->floats + a->first};
	case ARG_BOOL:
		return V_BOOL(a->u.b);
	case ARG_DTYPE:
		return V_DTYPE(a->dtype);
	case ARG_STR:
		return (struct value){.kind = ARG_STR, .u.s = graph_str(f->g, a->u.str)};
	default:
		return V_NONE;
	}
}

/* The operator's row, forward: its results are in sim.result until the next call. What goes wrong is reported when it is lowered. */
static bool
run_row(struct infer *f, uint32_t n)
{
	const struct node *x = &f->g->nodes[n];
	struct value arg[MAX_ARGS];
	unsigned narg = x->narg < MAX_ARGS ? x->narg : MAX_ARGS;
	uint32_t failed = f->s->failed, ndiag = f->a->c->ndiag;
	bool known = x->op != OP_NONE && x->op != OP_NO_OP && !size_is_unknown(f->g, n);

	for (unsigned i = 0; known && i < narg; i++)
		arg[i] = value_of(f, node_args(f->g, n) + i, &known);
	if (!known)
		return false;
	f->s->node = n;
	if (x->flags & NF_INPLACE)
		op_call_inplace(f->s, x->op, arg, narg);
	else
		op_call(f->s, x->op, arg, narg);
	f->a->c->ndiag = ndiag;
	return f->s->failed == failed && f->s->nresult;
}

/* A value of the new graph for a result: the old one the first time, a new one in later turns of a loop. */
static uint32_t
new_result(struct infer *f, uint32_t old, uint32_t n, uint32_t k)
{
	struct graph *g = f->g;
	uint32_t v = old;

	if (!old || f->made[old]) {
		struct str name = old ? graph_str(g, g->vals[old].name) : graph_str(g, g->nodes[n].name);

		v = val_new(g, VAL_NODE, str_fmt(f->a->c->a, "%.*s'%u", SFMT(name), (unsigned)g->nval));
		if (old) {
			g->vals[v].dtype = g->vals[old].dtype;
			g->vals[v].rank = g->vals[old].rank;
			g->vals[v].dim = g->vals[old].dim;
		}
	} else {
		f->made[old] = true;
	}
	g->vals[v].node = n;
	g->vals[v].out = k;
	node_outs(g, n)[k] = v;
	return v;
}

static void
size_result(struct infer *f, uint32_t v, uint32_t t, bool guessed)
{
	struct val *x = &f->g->vals[v];

	room_for_tensors(f);
	if (x->rank != RANK_UNKNOWN && x->dtype)
		return;                /* as the file says */
	if (t) {
		declare(f, v, geom_at(f->s, t));
		f->tensor[v] = tensor_hold(f->s, t);
		x->guessed = guessed && x->rank;
	} else if (!x->dtype) {
		x->dtype = (uint8_t)likely_dtype(f->g, x->node);
	}
}

/* All results as one list: as many as there are, or as many as the file takes out. */
static void
list_results(struct infer *f, uint32_t n, uint32_t old, bool sized)
{
	uint32_t count = sized ? f->s->nresult : f->pieces[old] ? f->pieces[old] : 1;
	struct cell c = {.kind = CELL_LIST, .n = count, .u.list = NEW(f->a->c->a, struct cell, count + 1u)};
	uint32_t *t = NEW(f->a->c->a, uint32_t, count + 1u);
	bool doubtful;

	if (sized)
		memcpy(t, f->s->result, count * sizeof *t);
	f->g->nodes[n].nout = count;
	f->g->nodes[n].out = ids_add(f->g, NEW(f->a->c->a, uint32_t, count + 1u), count ? count : 1);
	doubtful = sized && count && infer_doubtful(f, n, t[0]);       /* pieces are not elementwise: of all or of none */
	for (uint32_t k = 0; k < count; k++) {
		uint32_t v = new_result(f, 0, n, k);

		size_result(f, v, t[k], doubtful);
		c.u.list[k] = (struct cell){.kind = CELL_TENSOR, .u.val = v};
	}
	f->cell[old] = c;
}

static bool
run_operator(struct infer *f, const struct node *x)
{
	uint32_t n = copy_node(f, x), mark = temps_mark(f->s), kept[MAX_OUTS] = {0};
	const uint32_t *old = f->g->ids + x->out;
	bool sized = run_row(f, n);

	if (x->nout && f->g->vals[*old].flags & VF_LIST) {
		list_results(f, n, *old, sized);
		temps_release(f->s, mark);
		return true;
	}
	for (uint32_t k = 0; sized && k < MAX_OUTS && k < f->s->nresult; k++)
		kept[k] = f->s->result[k];
	if (!sized && x->nout)
		kept[0] = infer_guess(f, n);
	for (uint32_t k = 0; k < x->nout; k++) {
		uint32_t o = f->g->ids[x->out + k], v = o ? new_result(f, o, n, k) : 0, t = k < MAX_OUTS ? kept[k] : 0;

		if (v) {
			size_result(f, v, t, t && (!sized || infer_doubtful(f, n, t)));
			if (f->g->vals[v].guessed && !sized && f->nguess++ == 0)
				f->first_guess = v;
			f->cell[o] = (struct cell){.kind = CELL_TENSOR, .u.val = v};
		}
	}
	infer_compute(f, n, x->nout && f->g->ids[x->out] ? node_outs(f->g, n)[0] : 0);
	temps_release(f->s, mark);
	return true;
}

/* ---- the walk ------------------------------------------------------------------------------------------------------------------ */

static bool
is_region(unsigned op)
{
	return op == OP_IF || op == OP_ELSE || op == OP_ENDIF || op == OP_LOOP || op == OP_ENDLOOP;
}

#define MAX_UNROLLED LIMIT(200000u, 20u)       /* nodes that loops may add */

static bool
walk(struct infer *f)
{
	uint32_t most = f->nold + MAX_UNROLLED;

	for (f->pc = 1; f->pc < f->nold; f->pc++) {
		const struct node *x = &f->old[f->pc];
		bool ok;

		if (f->g->nnode >= most)
			return diag(f->a->c, DIAG_TOO_MANY, "nodes of unrolled loops", (unsigned long long)most);
		if (is_region(x->op))
			ok = infer_region(f, x);
		else if (op_info(x->op)->prim)
			ok = infer_prim(f, x);
		else
			ok = run_operator(f, x);
		if (!ok)
			return false;
	}
	return true;
}

static void
set_outputs(struct infer *f)
{
	struct graph *g = f->g;
	uint32_t n = g->noutput, *old = NEW(f->a->c->a, uint32_t, n + 1u);

	if (n)
		memcpy(old, g->outputs, n * sizeof *old);
	g->noutput = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct cell *c = &f->cell[old[i]];

		if (c->kind == CELL_TENSOR)
			graph_output(g, c->u.val);
		for (uint32_t k = 0; c->kind == CELL_LIST && k < c->n; k++)
			if (c->u.list[k].kind == CELL_TENSOR)
				graph_output(g, c->u.list[k].u.val);
	}
}

static bool
is_needed(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++) {
		if (op_info(g->nodes[n].op)->prim)
			return true;
		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			const struct val *v = &g->vals[node_outs(g, n)[k]];

			if (node_outs(g, n)[k] && (v->rank == RANK_UNKNOWN || !v->dtype) && g->nodes[n].op != OP_NO_OP)
				return true;
		}
	}
	return false;
}

/* How many elements of a list have names; a list of results that cannot be sized has at least those. */
static void
count_pieces(struct infer *f)
{
	for (uint32_t n = 1; n < f->nold; n++) {
		const struct arg *x = f->g->args + f->old[n].arg;

		if (f->old[n].op == OP_LIST && x[0].kind == ARG_STR && x[1].kind == ARG_VAL && x[4].kind == ARG_INT && str_eq(graph_str(f->g, x[0].u.str), S("piece")))
			f->pieces[x[1].u.val] = x[4].u.i.n > 0 && x[4].u.i.n < 4096 ? (uint32_t)x[4].u.i.n : 0;
	}
}

bool
pass_infer(struct analysis *a)
{
	struct graph *g = a->g;
	struct infer f = {.a = a, .g = g, .nold = g->nnode, .ncell = g->nval};

	if (!is_needed(g))
		return true;
	f.s = sim_new(a, schedule_new(a->c));
	f.s->grad_on = false;
	f.s->low_dtype = f.s->param_dtype = DT_NONE;
	f.old = NEW(a->c->a, struct node, g->nnode);
	memcpy(f.old, g->nodes, g->nnode * sizeof *f.old);
	f.cell = NEW(a->c->a, struct cell, g->nval);
	f.made = NEW(a->c->a, bool, g->nval);
	f.pieces = NEW(a->c->a, uint32_t, g->nval);
	f.uses = NEW(a->c->a, uint32_t, g->nval);
	uses_count(g, f.uses);
	count_pieces(&f);
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind != VAL_NODE)
			f.cell[v] = (struct cell){.kind = CELL_TENSOR, .u.val = v};
	schedule_span(f.s->sched, 0, PH_START, 0);
	g->nnode = 1;
	if (!walk(&f))
		return false;
	set_outputs(&f);
	if (f.nguess) {
		struct str first = graph_str(g, g->vals[f.first_guess].name);

		diag(a->c, DIAG_GUESSED, (unsigned)f.nguess, SFMT(first));
	}
	return true;
}
