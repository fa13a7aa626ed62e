/*
 * The graph: builders and look-ups. Arrays grow in the arena; ids stay valid for good. Nothing is
 * removed but by graph_compact(), which drops dead nodes and keeps every id of values.
 */
#include "ir.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct graph *
graph_new(struct ctx *c)
{
	struct graph *g = NEW(c->a, struct graph, 1);

	g->c = c;
	g->names = strtab_new(c->a);
	ROOM(c->a, g->exprs, 0, g->expr_cap, 2);
	g->exprs[EXPR_UNKNOWN].op = EX_UNKNOWN;
	g->nexpr = 2;
	ROOM(c->a, g->syms, 0, g->sym_cap, 1);
	ROOM(c->a, g->ints, 0, g->int_cap, 1);
	ROOM(c->a, g->ids, 0, g->id_cap, 1);
	ROOM(c->a, g->args, 0, g->arg_cap, 1);
	ROOM(c->a, g->vals, 0, g->val_cap, 1);
	ROOM(c->a, g->nodes, 0, g->node_cap, 1);
	ROOM(c->a, g->scopes, 0, g->scope_cap, 1);
	ROOM(c->a, g->frames, 0, g->frame_cap, 1);
	g->nsym = g->nint = g->nid = g->narg = g->nval = g->nnode = g->nscope = g->nframe = 1;
	return g;
}

#define COPY_ARRAY(field, n, cap) \
	do { \
		void *p = arena_alloc(c->a, g->n ? g->n : 1, sizeof *g->field); \
		if (g->n) \
			memcpy(p, g->field, g->n * sizeof *g->field); \
		h->field = p; \
		h->cap = g->n ? g->n : 1; \
	} while (0)

/* Names are shared and continued; the rest may be rewritten and is copied. The original must not change any more. */
struct graph *
graph_copy(const struct graph *g, struct ctx *c)
{
	struct graph *h = NEW(c->a, struct graph, 1);

	*h = *g;
	h->c = c;
	h->names = strtab_over(c->a, g->names);
	COPY_ARRAY(exprs, nexpr, expr_cap);
	COPY_ARRAY(syms, nsym, sym_cap);
	COPY_ARRAY(ints, nint, int_cap);
	COPY_ARRAY(floats, nfloat, float_cap);
	COPY_ARRAY(ids, nid, id_cap);
	COPY_ARRAY(args, narg, arg_cap);
	COPY_ARRAY(vals, nval, val_cap);
	COPY_ARRAY(nodes, nnode, node_cap);
	COPY_ARRAY(scopes, nscope, scope_cap);
	COPY_ARRAY(frames, nframe, frame_cap);
	COPY_ARRAY(inputs, ninput, input_cap);
	COPY_ARRAY(outputs, noutput, output_cap);
	COPY_ARRAY(notes, nnote, note_cap);
	COPY_ARRAY(sym_of, nsym_of, sym_of_cap);
	h->expr_hash = h->scope_hash = NULL;     /* made again when something is added */
	h->expr_mask = h->scope_mask = 0;
	return h;
}

uint32_t
graph_name(struct graph *g, struct str s)
{
	return strtab_id(g->names, s);
}

struct str
graph_str(const struct graph *g, uint32_t id)
{
	return strtab_str(g->names, id);
}

/* ---- values ---------------------------------------------------------------------------------------- */

uint32_t
val_new(struct graph *g, enum val_kind kind, struct str name)
{
	ROOM(g->c->a, g->vals, g->nval, g->val_cap, 1);
	g->vals[g->nval] = (struct val){.name = graph_name(g, name), .kind = (uint8_t)kind, .rank = RANK_UNKNOWN};
	return g->nval++;
}

void
val_shape(struct graph *g, uint32_t v, unsigned rank, const struct sint *dims)
{
	g->vals[v].rank = (uint8_t)rank;
	g->vals[v].dim = ints_add(g, dims, rank);
}

struct sint *
val_dims(const struct graph *g, uint32_t v)
{
	return g->ints + g->vals[v].dim;
}

void
val_ints(struct graph *g, uint32_t v, const struct sint *n, uint32_t count)
{
	uint32_t at = ints_add(g, n, count);

	g->vals[v].data = DATA_INTS;
	g->vals[v].data_at = at;
	g->vals[v].ndata = count;
}

void
val_floats(struct graph *g, uint32_t v, const double *f, uint32_t count)
{
	uint32_t at = floats_add(g, f, count);

	g->vals[v].data = DATA_FLOATS;
	g->vals[v].data_at = at;
	g->vals[v].ndata = count;
}

bool
graph_same_dims(const struct graph *g, uint32_t a, uint32_t b)
{
	const struct val *x = &g->vals[a], *y = &g->vals[b];

	if (x->rank != y->rank || x->rank == RANK_UNKNOWN)
		return false;
	for (unsigned i = 0; i < x->rank; i++)
		if (val_dims(g, a)[i].n != val_dims(g, b)[i].n || val_dims(g, a)[i].expr != val_dims(g, b)[i].expr)
			return false;
	return true;
}

bool
graph_is_sized(const struct graph *g, uint32_t v)
{
	int64_t n;

	if (g->vals[v].rank == RANK_UNKNOWN || g->vals[v].dtype == DT_NONE)
		return false;
	for (unsigned i = 0; i < g->vals[v].rank; i++)
		if (!sint_eval(g, val_dims(g, v)[i], &n))
			return false;
	return true;
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

uint32_t
node_new(struct graph *g, unsigned op, uint32_t narg, uint32_t nout)
{
	uint32_t ids = nout ? nout : 1;        /* a file's node may make nothing; its first result is then 0, not the next node's */

	ROOM(g->c->a, g->nodes, g->nnode, g->node_cap, 1);
	ROOM(g->c->a, g->args, g->narg, g->arg_cap, narg);
	ROOM(g->c->a, g->ids, g->nid, g->id_cap, ids);
	g->nodes[g->nnode] = (struct node){
		.op = (uint16_t)op, .narg = narg, .nout = nout, .arg = g->narg, .out = g->nid,
	};
	memset(g->args + g->narg, 0, narg * sizeof *g->args);
	memset(g->ids + g->nid, 0, ids * sizeof *g->ids);
	g->narg += narg;
	g->nid += ids;
	return g->nnode++;
}

void
node_place(struct graph *g, uint32_t n, uint32_t like)
{
	struct node *x = &g->nodes[n];
	const struct node *old = &g->nodes[like];

	x->name = old->name;
	x->target = graph_name(g, str_of(op_info(x->op)->name));
	x->flags = old->flags & NF_NO_GRAD;
	x->modality = old->modality;
	x->autocast = old->autocast;
	x->scope = old->scope;
	x->frame = old->frame;
	x->nframe = old->nframe;
}

uint32_t
node_beside(struct graph *g, unsigned op, uint32_t like, uint32_t nout)
{
	uint32_t n = node_new(g, op, op_narg(op), nout);

	node_place(g, n, like);
	return n;
}

uint32_t
node_applied(struct graph *g, unsigned op, uint32_t x, uint32_t like, const char *suffix)
{
	uint32_t n = node_beside(g, op, like, 1), y = val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_%s_%u", SFMT(graph_str(g, g->vals[x].name)), suffix, (unsigned)n));

	g->vals[y].node = n;
	g->vals[y].dtype = g->vals[x].dtype;
	if (g->vals[x].rank != RANK_UNKNOWN)
		val_shape(g, y, g->vals[x].rank, val_dims(g, x));
	node_outs(g, n)[0] = y;
	node_args(g, n)[0] = arg_val(x);
	g->nodes[n].name = g->vals[y].name;
	return y;
}

struct arg *
node_args(const struct graph *g, uint32_t n)
{
	return g->args + g->nodes[n].arg;
}

struct arg *
node_arg(const struct graph *g, uint32_t n, const char *name)
{
	int i = op_arg_index(g->nodes[n].op, str_of(name));

	return i >= 0 && (uint32_t)i < g->nodes[n].narg ? node_args(g, n) + i : NULL;
}

uint32_t *
node_outs(const struct graph *g, uint32_t n)
{
	return g->ids + g->nodes[n].out;
}

/* What is added may be a part of the array itself, which moves when it grows. */
#define ADD(array, count, cap, src, n) \
	do { \
		uintptr_t at = (uintptr_t)(src) - (uintptr_t)g->array; \
		bool own = (uintptr_t)(src) >= (uintptr_t)g->array && at < g->count * sizeof *g->array; \
		ROOM(g->c->a, g->array, g->count, g->cap, n); \
		if (n) \
			memcpy(g->array + g->count, own ? g->array + at / sizeof *g->array : src, (n) * sizeof *g->array); \
		g->count += (n); \
		return g->count - (n); \
	} while (0)

uint32_t
ids_add(struct graph *g, const uint32_t *ids, uint32_t n)
{
	ADD(ids, nid, id_cap, ids, n);
}

uint32_t
ints_add(struct graph *g, const struct sint *ints, uint32_t n)
{
	ADD(ints, nint, int_cap, ints, n);
}

uint32_t
floats_add(struct graph *g, const double *floats, uint32_t n)
{
	ADD(floats, nfloat, float_cap, floats, n);
}

struct arg
arg_val(uint32_t v)
{
	return (struct arg){.kind = v ? ARG_VAL : ARG_NONE, .u.val = v};
}

struct arg
arg_int(int64_t n)
{
	return (struct arg){.kind = ARG_INT, .u.i = SINT(n)};
}

struct arg
arg_bool(bool b)
{
	return (struct arg){.kind = ARG_BOOL, .u.b = b};
}

struct arg
arg_float(double f)
{
	return (struct arg){.kind = ARG_FLOAT, .u.f = f};
}

struct arg
arg_dtype(unsigned dt)
{
	return (struct arg){.kind = ARG_DTYPE, .dtype = (uint8_t)dt};
}

struct arg
arg_ints(struct graph *g, const int64_t *n, uint32_t count)
{
	struct arg a = {.kind = ARG_INTS, .count = count};

	for (uint32_t i = 0; i < count; i++) {
		struct sint s = SINT(n[i]);
		uint32_t at = ints_add(g, &s, 1);

		if (i == 0)
			a.first = at;
	}
	return a;
}

bool
arg_is_tensor(const struct arg *a)
{
	return a->kind == ARG_VAL || a->kind == ARG_VALS;
}

struct operands
operands_of(const struct graph *g, uint32_t n)
{
	return (struct operands){.g = g, .node = n};
}

bool
operand_next(struct operands *it)
{
	const struct graph *g = it->g;
	const struct node *n = &g->nodes[it->node];

	while (it->arg < n->narg) {
		struct arg *a = g->args + n->arg + it->arg;
		uint32_t count = a->kind == ARG_VALS ? a->count : a->kind == ARG_VAL;

		if (it->elem >= count) {
			it->arg++;
			it->elem = 0;
			continue;
		}
		it->slot = a->kind == ARG_VALS ? &g->ids[a->first + it->elem] : &a->u.val;
		it->elem++;
		it->val = *it->slot;
		if (it->val)
			return true;
	}
	return false;
}

/* ---- scopes, inputs, outputs --------------------------------------------------------------------------- */

static uint32_t *
scope_slot(const struct graph *g, const struct scope *s)
{
	uint32_t i = (s->parent * 0x9e3779b1u ^ s->path * 0x85ebca6bu ^ s->cls ^ s->call << 8) & g->scope_mask;

	for (; g->scope_hash[i]; i = (i + 1) & g->scope_mask) {
		const struct scope *o = &g->scopes[g->scope_hash[i]];

		if (o->parent == s->parent && o->path == s->path && o->cls == s->cls && o->call == s->call)
			break;
	}
	return &g->scope_hash[i];
}

static void
scope_rehash(struct graph *g)
{
	do
		g->scope_mask = g->scope_mask ? g->scope_mask * 2 + 1 : 255;
	while (g->scope_mask < g->nscope * 4);
	g->scope_hash = NEW(g->c->a, uint32_t, g->scope_mask + 1);
	for (uint32_t i = 1; i < g->nscope; i++)
		*scope_slot(g, &g->scopes[i]) = i;
}

uint32_t
scope_add(struct graph *g, uint32_t parent, struct str path, struct str cls, uint32_t call)
{
	struct scope s = {parent, graph_name(g, path), graph_name(g, cls), call, (uint16_t)(g->scopes[parent].depth + 1)};
	uint32_t *slot;

	if (g->nscope * 2 >= g->scope_mask)
		scope_rehash(g);
	slot = scope_slot(g, &s);
	if (*slot)
		return *slot;
	ROOM(g->c->a, g->scopes, g->nscope, g->scope_cap, 1);
	g->scopes[g->nscope] = s;
	*slot = g->nscope;
	return g->nscope++;
}

uint32_t
scope_at(const struct graph *g, uint32_t scope, unsigned depth)
{
	while (g->scopes[scope].depth > depth)
		scope = g->scopes[scope].parent;
	return scope;
}

struct str
scope_path(const struct graph *g, uint32_t scope)
{
	return graph_str(g, g->scopes[scope].path);
}

void
graph_note(struct graph *g, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	for (uint32_t i = 0; i < g->nnote; i++)
		if (str_eq(g->notes[i], str_of(text)))
			return;
	ROOM(g->c->a, g->notes, g->nnote, g->note_cap, 1);
	g->notes[g->nnote++] = str_copy(g->c->a, str_of(text));
}

void
graph_input(struct graph *g, uint32_t v)
{
	ROOM(g->c->a, g->inputs, g->ninput, g->input_cap, 1);
	g->inputs[g->ninput++] = v;
}

void
graph_output(struct graph *g, uint32_t v)
{
	ROOM(g->c->a, g->outputs, g->noutput, g->output_cap, 1);
	g->outputs[g->noutput++] = v;
}

/* Counting sort by place; behind[] is in any order, nodes behind one place keep theirs. */
void
graph_splice(struct graph *g, uint32_t first, const uint32_t *behind)
{
	uint32_t *start = NEW(g->c->a, uint32_t, first + 1), n = 1;
	struct node *old = NEW(g->c->a, struct node, g->nnode);
	uint32_t *order = NEW(g->c->a, uint32_t, g->nnode);

	memcpy(old, g->nodes, g->nnode * sizeof *old);
	for (uint32_t i = first; i < g->nnode; i++)
		start[behind[i - first]]++;
	for (uint32_t i = 0, at = 1; i < first; i++) {
		uint32_t added = start[i];

		if (i)
			order[at++] = i;
		start[i] = at;
		at += added;
	}
	for (uint32_t i = first; i < g->nnode; i++)
		order[start[behind[i - first]]++] = i;
	for (; n < g->nnode; n++) {
		g->nodes[n] = old[order[n]];
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			if (node_outs(g, n)[k])
				g->vals[node_outs(g, n)[k]].node = n;
	}
}

void
graph_compact(struct graph *g)
{
	uint32_t n = 1;

	for (uint32_t i = 1; i < g->nnode; i++) {
		if (g->nodes[i].flags & NF_DEAD)
			continue;
		g->nodes[n] = g->nodes[i];
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			if (node_outs(g, n)[k])
				g->vals[node_outs(g, n)[k]].node = n;
		n++;
	}
	g->nnode = n;
}
