/*
 * The tape: grad_fn nodes, what they save, and who keeps them alive.
 *
 * A node is made if grad mode is on and a differentiable argument requires grad. Arguments are saved before
 * the kernel runs and results after it; with a checkpoint frame open, a slot gets a number instead of a tensor.
 */
#include "lower.h"

#include <string.h>

struct grad_fn *
fn_at(const struct sim *s, uint32_t fn)
{
	return &s->fns[fn];
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

uint32_t
fn_new(struct sim *s, unsigned kind, unsigned nedge, unsigned nout)
{
	uint32_t fn = s->free_fn;
	struct grad_fn *x;

	if (fn) {
		s->free_fn = s->fns[fn].var;
	} else {
		ROOM(s->own, s->fns, s->nfn, s->fn_cap, 1);
		fn = s->nfn++;
	}
	x = &s->fns[fn];
	*x = (struct grad_fn){.kind = (uint8_t)kind, .nedge = nedge, .nout = nout, .node = s->node};
	x->seq = kind == FN_ACCUMULATE ? UINT64_MAX : ++s->seq;
	x->edge = pool_get(s->pool, nedge, sizeof *x->edge);
	x->meta = pool_get(s->pool, nedge, sizeof *x->meta);
	return fn;
}

void
fn_hold(struct sim *s, uint32_t fn)
{
	s->fns[fn].holders++;
}

static void
free_args(struct sim *s, struct grad_fn *x, unsigned narg)
{
	for (unsigned i = 0; x->arg && i < narg; i++)
		if (x->arg[i].kind == ARG_INTS || x->arg[i].kind == ARG_FLOATS)
			pool_put(s->pool, (void *)(uintptr_t)x->arg[i].u.ints, x->arg[i].n, sizeof(int64_t));
	pool_put(s->pool, x->arg, narg, sizeof *x->arg);
}

void
fn_release_saved(struct sim *s, uint32_t fn)
{
	for (unsigned i = 0; i < s->fns[fn].nsaved; i++) {
		struct saved v = s->fns[fn].saved[i];

		s->fns[fn].saved[i].tensor = 0;
		s->fns[fn].saved[i].frame = NULL;
		tensor_drop(s, v.tensor);
		if (v.frame) {
			checkpoint_forget(s, v.frame, v.slot);
			checkpoint_drop(s, v.frame);
		}
	}
}

/* A node's death releases its edges, which may end a long chain: the chain is followed by a list, not by recursion. */
static void
doom(struct sim *s, uint32_t fn, uint32_t *doomed)
{
	if (!fn || --s->fns[fn].holders)
		return;
	s->fns[fn].run = *doomed;          /* free while nothing runs it */
	*doomed = fn;
}

static void
fn_free(struct sim *s, uint32_t fn, uint32_t *doomed)
{
	struct grad_fn x = s->fns[fn];

	fn_release_saved(s, fn);
	for (unsigned i = 0; i < x.nedge; i++)
		doom(s, x.edge[i].fn, doomed);
	doom(s, x.inner, doomed);
	if (x.kind == FN_ACCUMULATE) {
		s->tensors[x.var].accumulate = 0;
		tensor_drop(s, x.var);
	}
	tensor_drop(s, x.ctx);
	if (x.kind == FN_CHECKPOINT)
		checkpoint_closure_drop(s, x.closure);
	free_args(s, &x, s->code[x.op].narg);
	pool_put(s->pool, x.saved, x.nsaved, sizeof *x.saved);
	pool_put(s->pool, x.edge, x.nedge, sizeof *x.edge);
	pool_put(s->pool, x.meta, x.nedge, sizeof *x.meta);
	s->fns[fn] = (struct grad_fn){.var = s->free_fn};
	s->free_fn = fn;
}

void
fn_drop(struct sim *s, uint32_t fn)
{
	uint32_t doomed = 0;

	if (!fn || --s->fns[fn].holders)
		return;
	s->fns[fn].run = 0;
	for (doomed = fn; doomed;) {
		uint32_t x = doomed;

		doomed = s->fns[x].run;
		fn_free(s, x, &doomed);
	}
}

/* A leaf has one AccumulateGrad at a time; it exists while an edge leads to it. */
static uint32_t
accumulate_of(struct sim *s, uint32_t t)
{
	uint32_t fn = s->tensors[t].accumulate;

	if (!fn) {
		fn = fn_new(s, FN_ACCUMULATE, 0, 1);
		s->fns[fn].var = tensor_hold(s, t);
		s->tensors[t].accumulate = fn;
	}
	return fn;
}

struct edge
fn_edge_to(struct sim *s, uint32_t t)
{
	if (!needs_grad(s, t))
		return (struct edge){0};
	view_renew(s, t);
	if (s->tensors[t].fn)
		return (struct edge){s->tensors[t].fn, s->tensors[t].out};
	return (struct edge){accumulate_of(s, t), 0};
}

void
fn_edge(struct sim *s, uint32_t fn, unsigned i, uint32_t t)
{
	struct edge e = fn_edge_to(s, t);

	s->fns[fn].meta[i] = t ? s->tensors[t].geom : NULL;
	s->fns[fn].edge[i] = e;
	if (e.fn)
		fn_hold(s, e.fn);
}

void
fn_attach(struct sim *s, uint32_t fn, unsigned out, uint32_t t)
{
	struct tensor *x = &s->tensors[t];
	uint32_t old = x->fn;

	if (!t || dtype_info(x->geom->dtype)->cat < CAT_FLOAT)
		return;
	fn_hold(s, fn);
	x->fn = fn;
	x->out = out;
	x->flags = (uint8_t)((x->flags | TF_GRAD) & ~TF_LEAF);
	fn_drop(s, old);
}

/* ---- recording ---------------------------------------------------------------------------------------- */

static bool
wants_gradient(const struct call *c)
{
	for (unsigned i = 0; i < c->code->ndiff; i++) {
		const struct value *v = &c->arg[c->code->diff[i]];

		if (v->kind == ARG_VAL && needs_grad(c->s, v->u.t))
			return true;
		for (uint32_t k = 0; v->kind == ARG_VALS && k < v->n; k++)
			if (needs_grad(c->s, v->u.ts[k]))
				return true;
	}
	return false;
}

static bool
is_kept(const struct call *c, const struct keep *k)
{
	return k->only_if < 0 || (c->arg[k->only_if].kind == ARG_VAL && needs_grad(c->s, c->arg[k->only_if].u.t));
}

struct slot {
	struct ref what;
	uint32_t elem;
	uint32_t tensor;
};

#define FEW_SLOTS 64

/* The tensors that go into slots of one kind (arguments, or results), in release order: in `few`, or in the arena if a list of operands has more. */
static unsigned
collect(const struct call *c, unsigned kind, struct slot *few, struct slot **slots)
{
	struct slot *out;
	uint32_t n = c->code->nkeep;

	for (unsigned i = 0; kind == REF_ARG && i < c->code->nkeep; i++)
		n += c->arg[c->code->keep[i].what.i].kind == ARG_VALS ? c->arg[c->code->keep[i].what.i].n : 0;
	*slots = out = n > FEW_SLOTS ? NEW(c->s->own, struct slot, n) : few;
	n = 0;

	for (unsigned i = 0; i < c->code->nkeep; i++) {
		const struct keep *k = &c->code->keep[i];
		const struct value *v = &c->arg[k->what.i];

		if (k->what.kind != kind || !is_kept(c, k))
			continue;
		if (kind == REF_OUT && c->out[k->what.i])
			out[n++] = (struct slot){k->what, 0, c->out[k->what.i]};
		else if (kind == REF_ARG && v->kind == ARG_VAL && v->u.t)
			out[n++] = (struct slot){k->what, 0, v->u.t};
		for (uint32_t e = 0; kind == REF_ARG && v->kind == ARG_VALS && e < v->n; e++)
			if (v->u.ts[e])
				out[n++] = (struct slot){k->what, e, v->u.ts[e]};
	}
	return n;
}

static void
copy_args(struct sim *s, struct grad_fn *x, const struct value *arg, unsigned narg)
{
	x->arg = pool_get(s->pool, narg, sizeof *x->arg);
	for (unsigned i = 0; i < narg; i++) {
		struct value v = arg[i];

		if (v.kind == ARG_VAL)
			v.u.t = 0;
		else if (v.kind == ARG_VALS)
			v.u.ts = NULL;
		else if ((v.kind == ARG_INTS || v.kind == ARG_FLOATS) && v.n) {
			int64_t *p = pool_get(s->pool, v.n, sizeof *p);

			memcpy(p, v.u.ints, v.n * sizeof *p);
			v.u.ints = p;
		}
		x->arg[i] = v;
	}
}

static void
make_edges(struct sim *s, uint32_t fn, const struct call *c)
{
	unsigned e = 0;

	for (unsigned i = 0; i < c->code->ndiff; i++) {
		const struct value *v = &c->arg[c->code->diff[i]];

		if (v->kind != ARG_VALS)
			fn_edge(s, fn, e++, v->kind == ARG_VAL ? v->u.t : 0);
		for (uint32_t k = 0; v->kind == ARG_VALS && k < v->n; k++)
			fn_edge(s, fn, e++, v->u.ts[k]);
	}
}

static unsigned
count_edges(const struct call *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->code->ndiff; i++)
		n += c->arg[c->code->diff[i]].kind == ARG_VALS ? c->arg[c->code->diff[i]].n : 1;
	return n;
}

/* A result is saved without its history: a node that held its own result would never die. */
static uint32_t
detached(struct sim *s, uint32_t t)
{
	return tensor_alias(s, t, geom_at(s, t), 0);
}

enum { LEAST_OFFLOADED = 1024 };   /* bytes */

/* With offload.activations (torch.autograd.graph.save_on_cpu, parameters excepted) what is saved is a copy in the host's memory. */
static uint32_t
saved_tensor(struct sim *s, uint32_t t, bool result)
{
	const struct storage *x = &s->sched->storages[s->tensors[t].storage];
	uint32_t mark = temps_mark(s), copy;

	if (!s->r->v[RK_OFFLOAD_ACTIVATIONS].i || x->factor == FAC_PARAM || x->elsewhere || x->nbytes < LEAST_OFFLOADED || s->frame)
		return tensor_hold(s, result ? detached(s, t) : t);
	s->offload = true;
	copy = tensor_hold(s, tensor_new(s, geom_at(s, t), "offload"));
	s->offload = false;
	temps_release(s, mark);
	return copy;
}

static void
add_saved(struct sim *s, uint32_t fn, const struct slot *slot, unsigned n)
{
	struct grad_fn *x = &s->fns[fn];
	struct saved *all = pool_get(s->pool, (size_t)x->nsaved + n, sizeof *all);

	if (x->nsaved)
		memcpy(all, x->saved, x->nsaved * sizeof *all);
	pool_put(s->pool, x->saved, x->nsaved, sizeof *all);
	for (unsigned i = 0; i < n; i++) {
		struct saved *v = &all[x->nsaved + i];

		*v = (struct saved){.what = slot[i].what, .elem = slot[i].elem};
		if (s->frame && !checkpoint_rerunning(s)) {
			v->frame = s->frame;
			checkpoint_hold(s->frame);
			v->slot = checkpoint_slot(s);
		} else {
			v->tensor = saved_tensor(s, slot[i].tensor, slot[i].what.kind == REF_OUT);
		}
	}
	x->saved = all;
	x->nsaved += n;
}

uint32_t
fn_of_call(const struct call *c)
{
	uint32_t fn = fn_new(c->s, FN_ROW, count_edges(c), 1);

	c->s->fns[fn].op = c->op;
	make_edges(c->s, fn, c);
	copy_args(c->s, &c->s->fns[fn], c->arg, c->code->narg);
	return fn;
}

uint32_t
fn_like(struct sim *s, uint32_t of)
{
	uint32_t fn = fn_new(s, FN_ROW, s->fns[of].nedge, 1);
	struct grad_fn *x = &s->fns[fn];

	x->op = s->fns[of].op;
	memcpy(x->meta, s->fns[of].meta, x->nedge * sizeof *x->meta);
	copy_args(s, x, s->fns[of].arg, s->code[x->op].narg);
	return fn;
}

/* In place, an argument that backward needs is cloned first: the kernel is about to overwrite it. */
static void
clone_overwritten(struct call *c, struct slot *slot, unsigned n)
{
	for (unsigned i = 0; c->inplace && i < n; i++)
		if (slot[i].what.kind == REF_ARG && slot[i].what.i == 0) {
			bool kept = c->s->grad_on;

			c->s->grad_on = false;
			slot[i].tensor = CALL(c->s, CLONE, V_TENSOR(slot[i].tensor));
			c->s->grad_on = kept;
		}
}

uint32_t
tape_begin(struct call *c)
{
	struct sim *s = c->s;
	struct slot few[FEW_SLOTS], *slot;
	unsigned n;
	uint32_t fn;

	if (!s->grad_on || !wants_gradient(c))
		return 0;
	n = collect(c, REF_ARG, few, &slot);
	clone_overwritten(c, slot, n);
	if (s->frame && checkpoint_rerunning(s))
		for (unsigned i = 0; i < n; i++)
			checkpoint_store(s, slot[i].tensor);
	fn = fn_of_call(c);
	fn_hold(s, fn);                    /* until tape_end */
	add_saved(s, fn, slot, n);
	return fn;
}

/* An in-place operator's node becomes the history of what its operand looks into. */
static void
attach_results(struct call *c, uint32_t fn)
{
	struct sim *s = c->s;

	s->fns[fn].nout = s->nresult;
	for (uint32_t i = 0; i < s->nresult; i++)
		if (c->inplace && i == 0 && s->tensors[s->result[0]].base)
			view_overwritten(s, s->result[0], fn);
		else
			fn_attach(s, fn, i, s->result[i]);
}

void
tape_end(struct call *c, uint32_t fn)
{
	struct sim *s = c->s;
	struct slot few[FEW_SLOTS], *slot;
	unsigned n;

	if (c->inplace)
		view_changed(s, c->out[0]);
	if (s->grad_on && c->code->ngrad)
		view_record(c, fn);
	if (!fn)
		return;
	n = collect(c, REF_OUT, few, &slot);
	add_saved(s, fn, slot, n);
	attach_results(c, fn);
	fn_drop(s, fn);
	if (s->frame && checkpoint_rerunning(s))
		for (unsigned i = 0; i < n; i++)
			checkpoint_store(s, slot[i].tensor);
}
