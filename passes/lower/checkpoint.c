/*
 * Activation checkpointing of one block (torch/utils/checkpoint.py).
 *
 * Non-reentrant: the block runs with grad, but what it saves becomes a numbered slot of a frame. The frame keeps the
 * block's arguments. The first slot that backward asks for reruns the block with the same autocast; the rerun's saved tensors
 * fill the slots and it stops as soon as the last one is there, even in the middle of an operator (a longjmp, as the
 * library throws an exception).
 *
 * Reentrant: the block runs without grad; one node keeps the arguments. Its backward makes detached leaves of them, runs the whole
 * block with grad, and runs the engine inside the engine.
 */
#include "lower.h"

#include <stdlib.h>

struct checkpoint_frame {
	uint32_t holders;
	uint32_t first, last;      /* nodes */
	uint32_t *val, *arg;    uint32_t narg;             /* the closure: values and their tensors, held */
	uint32_t nslot;
	uint32_t *store;           /* rerun: tensor of every slot, held until it is taken */
	bool *dead;             uint32_t ndead, dead_cap;  /* of the first slots: nobody is left who could ask for it */
	uint32_t filled;
	bool rerunning, done;
	jmp_buf stop;
};

/* ---- arguments of a block ---------------------------------------------------------------------------- */

static bool
made_inside(const struct sim *s, uint32_t v, uint32_t first, uint32_t last)
{
	const struct val *x = &s->g->vals[v];

	return x->kind == VAL_NODE && x->node >= first && x->node <= last;
}

/*
 * position_ids: the library's decoders hand them to every block as a keyword, whether the block reads them or not. They
 * are the integer tensors that the calling module itself made and still holds.
 */
static bool
is_keyword(const struct sim *s, uint32_t v, uint32_t first)
{
	const struct val *x = &s->g->vals[v];
	const struct node *caller = &s->g->nodes[first];

	if (!s->env[v] || x->kind != VAL_NODE || x->node >= first || geom_at(s, s->env[v])->dtype != DT_INT64)
		return false;
	return geom_at(s, s->env[v])->rank > 0 && s->g->scopes[s->g->nodes[x->node].scope].depth < s->g->scopes[caller->scope].depth;
}

static void
find_readers(struct sim *s)
{
	const struct graph *g = s->g;

	s->last_use = NEW(s->own, uint32_t, g->nval);
	for (uint32_t k = 1; k < g->nnode; k++)
		for (struct operands it = operands_of(g, k); operand_next(&it);)
			s->last_use[it.val] = k;
	for (uint32_t i = 0; i < g->noutput; i++)
		s->last_use[g->outputs[i]] = g->nnode;
	s->whole = NEW(s->own, uint32_t, g->nval);
	s->held = NEW(s->own, uint32_t, g->nval);
	for (uint32_t k = 1; k < g->nnode; k++)
		for (uint32_t i = 0; i < g->nodes[k].nout; i++) {
			uint32_t v = node_outs(g, k)[i];

			if (v && (g->vals[v].dtype == DT_INT64 || !g->vals[v].dtype))
				s->whole[s->nwhole++] = v;
		}
}

/* Of the values that may be keywords, those that are there when the block begins: what was let go in front of one is not there in front of the next. */
static void
find_held(struct sim *s, uint32_t first)
{
	uint32_t n = 0;

	if (first <= s->held_at || s->runs)
		s->nheld = s->nseen = 0;       /* another step, or a stage that was handed values */
	s->held_at = first;
	while (s->nseen < s->nwhole && s->g->vals[s->whole[s->nseen]].node < first)
		s->held[s->nheld++] = s->whole[s->nseen++];
	for (uint32_t i = 0; i < s->nheld; i++)
		if (s->env[s->held[i]])
			s->held[n++] = s->held[i];
	s->nheld = n;
}

static int
by_id(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Values from outside that the block reads, and keywords, in order of their ids. There may be many blocks: only what a block reads is looked at. */
static uint32_t
block_args(struct sim *s, uint32_t first, uint32_t last, uint32_t **out)
{
	uint32_t *v = NULL, n = 0, cap = 0, unique = 0;

	for (uint32_t k = first; k <= last; k++)
		for (struct operands it = operands_of(s->g, k); operand_next(&it);)
			if (s->g->vals[it.val].kind == VAL_NODE && !made_inside(s, it.val, first, last) && s->env[it.val]) {
				ROOM(s->c->a, v, n, cap, 1);
				v[n++] = it.val;
			}
	find_held(s, first);
	for (uint32_t i = 0; i < s->nheld; i++)
		if (is_keyword(s, s->held[i], first)) {
			ROOM(s->c->a, v, n, cap, 1);
			v[n++] = s->held[i];
		}
	if (n)
		qsort(v, n, sizeof *v, by_id);
	for (uint32_t i = 0; i < n; i++)
		if (!unique || v[unique - 1] != v[i])
			v[unique++] = v[i];
	*out = v;
	return unique;
}

static void
clear_block(struct sim *s, uint32_t first, uint32_t last)
{
	for (uint32_t k = first; k <= last; k++)
		for (uint32_t i = 0; i < s->g->nodes[k].nout; i++)
			env_set(s, node_outs(s->g, k)[i], 0);
}

/* ---- non-reentrant ------------------------------------------------------------------------------------- */

bool
checkpoint_rerunning(const struct sim *s)
{
	return s->frame->rerunning;
}

uint32_t
checkpoint_slot(struct sim *s)
{
	return s->frame->nslot++;
}

/* A saved slot goes with its node. If the block has not run again yet, what it would have held is not stored then. */
void
checkpoint_forget(struct sim *s, struct checkpoint_frame *f, uint32_t slot)
{
	if (f->done)
		return;
	while (f->ndead <= slot) {
		ROOM(s->own, f->dead, f->ndead, f->dead_cap, 1);
		f->dead[f->ndead++] = false;
	}
	f->dead[slot] = true;
}

void
checkpoint_hold(struct checkpoint_frame *f)
{
	f->holders++;
}

void
checkpoint_drop(struct sim *s, struct checkpoint_frame *f)
{
	if (--f->holders)
		return;
	for (uint32_t i = 0; i < f->narg; i++)
		tensor_drop(s, f->arg[i]);
	for (uint32_t i = 0; f->store && i < f->nslot; i++)
		tensor_drop(s, f->store[i]);
	if (f->store)
		pool_put(s->pool, f->store, f->nslot, sizeof *f->store);
	pool_put(s->pool, f, 1, sizeof *f);
}

/* The stored tensor is detached: same storage, no history. */
void
checkpoint_store(struct sim *s, uint32_t t)
{
	struct checkpoint_frame *f = s->frame;
	unsigned flags = tensor_at(s, t)->flags;

	if (f->filled == f->nslot)
		return;            /* the rerun took another path; what it saves now, nobody will ask for */
	if (f->filled >= f->ndead || !f->dead[f->filled])
		f->store[f->filled] = tensor_hold(s, tensor_alias(s, t, geom_at(s, t), flags));
	f->filled++;
	if (f->filled == f->nslot)
		longjmp(f->stop, 1);
}

static void
rerun(struct sim *s, struct checkpoint_frame *f)
{
	struct {
		struct checkpoint_frame *frame;
		uint32_t mark, node;
		uint8_t autocast;
		bool grad_on;
	} kept = {s->frame, temps_mark(s), s->node, s->autocast, s->grad_on};

	f->rerunning = true;
	f->done = true;
	f->store = pool_get(s->pool, f->nslot, sizeof *f->store);
	for (uint32_t i = 0; i < f->narg; i++)
		env_set(s, f->val[i], f->arg[i]);
	s->frame = f;
	s->grad_on = true;
	s->autocast = s->low_dtype;
	if (setjmp(f->stop) == 0)
		run_nodes(s, f->first, f->last, false);
	temps_release(s, kept.mark);
	clear_block(s, f->first, f->last);
	for (uint32_t i = 0; i < f->narg; i++)
		env_set(s, f->val[i], 0);
	autocast_clear(s);
	f->rerunning = false;
	s->frame = kept.frame;
	s->grad_on = kept.grad_on;
	s->autocast = kept.autocast;
	s->node = kept.node;
}

uint32_t
checkpoint_unpack(struct sim *s, struct checkpoint_frame *f, uint32_t slot)
{
	uint32_t t;

	if (!f->done)
		rerun(s, f);
	t = f->store[slot];
	f->store[slot] = 0;
	return t;
}

static void
block_non_reentrant(struct sim *s, uint32_t first, uint32_t last)
{
	struct checkpoint_frame *f = pool_get(s->pool, 1, sizeof *f);

	f->holders = 1;
	f->first = first;
	f->last = last;
	f->narg = block_args(s, first, last, &f->val);
	f->arg = NEW(s->c->a, uint32_t, f->narg + 1);
	for (uint32_t i = 0; i < f->narg; i++)
		f->arg[i] = tensor_hold(s, s->env[f->val[i]]);
	s->frame = f;
	run_nodes(s, first, last, false);
	s->frame = NULL;
	checkpoint_drop(s, f);
}

/* ---- reentrant ------------------------------------------------------------------------------------------- */

struct closure {
	uint32_t first, last;
	uint32_t *val, *held;   uint32_t narg;             /* held: those that need no gradient; the others are saved slots */
	uint32_t *out;          uint32_t nout;             /* values that leave the block */
};

void
checkpoint_closure_drop(struct sim *s, void *closure)
{
	struct closure *c = closure;

	for (uint32_t i = 0; i < c->narg; i++)
		tensor_drop(s, c->held[i]);
}

static void
find_outputs(struct sim *s, struct closure *c)
{
	uint32_t cap = 0;

	for (uint32_t k = c->first; k <= c->last; k++)
		for (uint32_t i = 0; i < s->g->nodes[k].nout; i++) {
			uint32_t v = node_outs(s->g, k)[i];

			if (v && s->env[v] && s->last_use[v] > c->last) {
				ROOM(s->c->a, c->out, c->nout, cap, 1);
				c->out[c->nout++] = v;
			}
		}
}

static void
record_block(struct sim *s, struct closure *c, const uint32_t *args)
{
	uint32_t fn = fn_new(s, FN_CHECKPOINT, c->narg, c->nout);
	struct grad_fn *x;
	unsigned n = 0;

	fn_hold(s, fn);
	for (uint32_t i = 0; i < c->narg; i++) {
		fn_edge(s, fn, i, args[i]);
		n += needs_grad(s, args[i]);
	}
	x = &s->fns[fn];
	x->closure = c;
	x->nsaved = n;
	x->saved = pool_get(s->pool, n, sizeof *x->saved);
	n = 0;
	for (uint32_t i = 0; i < c->narg; i++) {
		if (needs_grad(s, args[i])) {
			x->saved[n].elem = i;
			x->saved[n++].tensor = tensor_hold(s, args[i]);
		} else {
			c->held[i] = tensor_hold(s, args[i]);
		}
	}
	for (uint32_t i = 0; i < c->nout; i++)
		fn_attach(s, fn, i, s->env[c->out[i]]);
	fn_drop(s, fn);
}

/* A checkpoint without an argument that needs a gradient gives none to its parameters; a Function has these as arguments. */
static bool
trains_parameters(const struct sim *s, const struct block *b)
{
	for (uint32_t k = b->first; b->function && k <= b->last; k++)
		for (struct operands it = operands_of(s->g, k); operand_next(&it);)
			if (s->g->vals[it.val].kind == VAL_PARAM && s->env[it.val] && needs_grad(s, s->env[it.val]))
				return true;
	return false;
}

static void
block_reentrant(struct sim *s, const struct block *b)
{
	struct closure *c = NEW(s->c->a, struct closure, 1);
	uint32_t *args, mark = temps_mark(s);
	bool any = trains_parameters(s, b);

	c->first = b->first;
	c->last = b->last;
	c->narg = block_args(s, b->first, b->last, &c->val);
	c->held = NEW(s->c->a, uint32_t, c->narg + 1);
	args = NEW(s->c->a, uint32_t, c->narg + 1);
	for (uint32_t i = 0; i < c->narg; i++) {
		args[i] = s->env[c->val[i]];
		temps_take(s, tensor_hold(s, args[i]));
		any |= needs_grad(s, args[i]);
	}
	s->grad_on = false;
	run_nodes(s, b->first, b->last, false);
	s->grad_on = true;
	find_outputs(s, c);
	if (any)
		record_block(s, c, args);
	temps_release(s, mark);
}

static uint32_t
argument_of(const struct sim *s, const struct grad_fn *x, uint32_t i)
{
	const struct closure *c = x->closure;

	(void)s;
	for (unsigned k = 0; k < x->nsaved; k++)
		if (x->saved[k].elem == i)
			return x->saved[k].tensor;
	return c->held[i];
}

static void
run_detached(struct sim *s, uint32_t fn, uint32_t *leaf)
{
	const struct closure *c = s->fns[fn].closure;

	for (uint32_t i = 0; i < c->narg; i++) {
		uint32_t x = argument_of(s, &s->fns[fn], i);
		unsigned flags = tensor_at(s, x)->flags & (TF_VIEW | TF_GRAD);

		leaf[i] = tensor_alias(s, x, geom_at(s, x), flags | TF_LEAF);
		env_set(s, c->val[i], leaf[i]);
	}
	s->grad_on = true;
	s->autocast = s->low_dtype;
	run_nodes(s, c->first, c->last, false);
	autocast_clear(s);
	s->autocast = DT_NONE;
}

void
checkpoint_backward(struct sim *s, uint32_t fn, const uint32_t *grads, uint32_t *out)
{
	const struct closure *c = s->fns[fn].closure;
	uint32_t mark = temps_mark(s), *leaf = NEW(s->c->a, uint32_t, c->narg + 1), node = s->node;
	uint32_t *root = NEW(s->c->a, uint32_t, c->nout + 1), *with = NEW(s->c->a, uint32_t, c->nout + 1);
	unsigned n = 0;

	run_detached(s, fn, leaf);
	for (uint32_t i = 0; i < c->nout; i++) {
		temps_take(s, tensor_hold(s, s->env[c->out[i]]));
		if (grads[i] && needs_grad(s, s->env[c->out[i]])) {
			root[n] = s->env[c->out[i]];
			with[n++] = grads[i];
		}
	}
	clear_block(s, c->first, c->last);
	for (uint32_t i = 0; i < c->narg; i++)
		env_set(s, c->val[i], 0);
	run_backward(s, root, with, n);
	s->grad_on = false;
	for (uint32_t i = 0; i < c->narg; i++)
		out[i] = tensor_hold(s, tensor_at(s, leaf[i])->grad);
	temps_release(s, mark);
	s->node = node;
}

void
checkpoint_block(struct sim *s, const struct block *b)
{
	if (!s->last_use)
		find_readers(s);
	if (b->reentrant)
		block_reentrant(s, b);
	else
		block_non_reentrant(s, b->first, b->last);
}
