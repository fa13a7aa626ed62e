/*
 * The backward engine (torch/csrc/autograd/engine.cpp, input_buffer.cpp, accumulate_grad.h).
 *
 * Ready nodes run in decreasing order of creation, AccumulateGrad at once, ties in order of becoming ready. One node:
 *   its formula makes the gradients; each is reduced and cast to what the forward argument was, while the incoming
 *   gradients and saved slots are still alive; then those die; then the gradients go to the buffers of the next nodes.
 * A buffer stores the first gradient that arrives. A later one is added into it if the engine holds the last reference to that
 * tensor and to its storage and it is no view; otherwise their sum is a new tensor and both die.
 */
#include "../shard/shard.h"

#include <string.h>

struct task {                      /* one run of the engine; reentrant checkpoints nest them */
	struct sim *s;
	uint32_t run;
	struct ready {
		uint64_t seq, tick;        /* of the node; when it became ready */
		uint32_t fn;
	} *heap;                uint32_t nheap, heap_cap;
	uint32_t *seen;         uint32_t nseen, seen_cap;
	struct kept {
		uint32_t fn, run, deps;
		uint32_t *buffer;
	} *kept;                uint32_t nkept, kept_cap;
};

/* ---- ready queue -------------------------------------------------------------------------------------- */

static bool
before(struct ready a, struct ready b)
{
	return a.seq != b.seq ? a.seq > b.seq : a.tick < b.tick;
}

static void
push(struct task *t, uint32_t fn)
{
	struct ready x = {t->s->fns[fn].seq, t->s->tick++, fn};
	uint32_t i = t->nheap++;

	ROOM(t->s->own, t->heap, i, t->heap_cap, 1);
	for (; i > 0 && before(x, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
		t->heap[i] = t->heap[(i - 1) / 2];
	t->heap[i] = x;
}

static uint32_t
pop(struct task *t)
{
	struct ready last = t->heap[--t->nheap];
	uint32_t fn = t->heap[0].fn, i = 0;

	for (uint32_t k = 1; k < t->nheap; k = 2 * i + 1) {
		if (k + 1 < t->nheap && before(t->heap[k + 1], t->heap[k]))
			k++;
		if (!before(t->heap[k], last))
			break;
		t->heap[i] = t->heap[k];
		i = k;
	}
	t->heap[i] = last;
	return fn;
}

/* ---- dependencies --------------------------------------------------------------------------------------- */

/* A node that an outer run has already met gets fresh counters; the outer ones come back when this run ends. */
static bool
enter(struct task *t, uint32_t fn)
{
	struct grad_fn *x = &t->s->fns[fn];

	if (x->run == t->run)
		return false;
	if (x->run) {
		ROOM(t->s->own, t->kept, t->nkept, t->kept_cap, 1);
		t->kept[t->nkept++] = (struct kept){fn, x->run, x->deps, x->buffer};
	}
	x->run = t->run;
	x->deps = 0;
	x->buffer = NULL;
	ROOM(t->s->own, t->seen, t->nseen, t->seen_cap, 1);
	t->seen[t->nseen++] = fn;
	return true;
}

static void
count_dependencies(struct task *t)
{
	for (uint32_t i = 0; i < t->nseen; i++) {
		uint32_t fn = t->seen[i];

		for (unsigned e = 0; e < t->s->fns[fn].nedge; e++) {
			uint32_t next = t->s->fns[fn].edge[e].fn;

			if (!next)
				continue;
			enter(t, next);
			t->s->fns[next].deps++;
		}
	}
}

static void
leave(struct task *t)
{
	for (uint32_t i = 0; i < t->nseen; i++) {
		t->s->fns[t->seen[i]].run = 0;
		t->s->fns[t->seen[i]].buffer = NULL;
	}
	for (uint32_t i = t->nkept; i-- > 0;) {
		struct grad_fn *x = &t->s->fns[t->kept[i].fn];

		x->run = t->kept[i].run;
		x->deps = t->kept[i].deps;
		x->buffer = t->kept[i].buffer;
	}
}

/* ---- one node ----------------------------------------------------------------------------------------------- */

static uint32_t
unpack(struct sim *s, struct saved *v)
{
	if (!v->frame && v->tensor && s->sched->storages[s->tensors[v->tensor].storage].host)
		return tensor_new(s, geom_at(s, v->tensor), "offload");
	if (!v->frame)
		return v->tensor;
	temps_take(s, checkpoint_unpack(s, v->frame, v->slot));
	return s->temps[s->ntemp - 1];
}

/* The call as it was, with the saved tensors in their places; those of a checkpoint are temporaries of the formula. */
static void
restore_call(struct sim *s, uint32_t fn, struct call *c)
{
	const struct op_code *code = op_code(s, s->fns[fn].op);
	uint32_t *lists = NULL, at = 0, total = 0;

	*c = (struct call){.s = s, .op = s->fns[fn].op, .code = code};
	memcpy(c->arg, s->fns[fn].arg, code->narg * sizeof *c->arg);
	for (unsigned i = 0; i < code->narg; i++)
		total += c->arg[i].kind == ARG_VALS ? c->arg[i].n : 0;
	if (total)
		lists = NEW(s->c->a, uint32_t, total);
	for (unsigned i = 0; i < code->narg; i++)
		if (c->arg[i].kind == ARG_VALS) {
			c->arg[i].u.ts = lists + at;
			at += c->arg[i].n;
		}
	for (unsigned i = 0; i < s->fns[fn].nsaved; i++) {
		struct saved v = s->fns[fn].saved[i];
		uint32_t t = unpack(s, &v);

		if (v.what.kind == REF_OUT)
			c->out[v.what.i] = t;
		else if (c->arg[v.what.i].kind == ARG_VALS)
			lists[c->arg[v.what.i].u.ts - lists + v.elem] = t;
		else
			c->arg[v.what.i].u.t = t;
	}
	c->fn = &s->fns[fn];
}

static unsigned
edge_of(const struct call *c, unsigned arg)
{
	unsigned e = 0;

	for (unsigned i = 0; i < c->code->ndiff && c->code->diff[i] != arg; i++)
		e += c->arg[c->code->diff[i]].kind == ARG_VALS ? c->arg[c->code->diff[i]].n : 1;
	return e;
}

static bool
any_defined(const uint32_t *grads, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (grads[i])
			return true;
	return false;
}

/* The gradients of a row's arguments, held, in edge order. */
void
row_backward(struct sim *s, uint32_t fn, const uint32_t *grads, uint32_t *out)
{
	uint32_t mark = temps_mark(s), made[MAX_ARGS] = {0};
	struct call c;

	restore_call(s, fn, &c);
	c.grads = grads;
	c.made = made;
	c.ngrads = s->fns[fn].nout;
	c.fn = &s->fns[fn];
	if (!any_defined(grads, c.ngrads))
		goto done;
	for (unsigned i = 0; i < c.code->ngrad; i++) {
		const struct gradient *g = &c.code->grad[i];
		unsigned first = edge_of(&c, g->arg), n = c.arg[g->arg].kind == ARG_VALS ? c.arg[g->arg].n : 1;

		for (c.elem = 0; c.elem < n; c.elem++) {
			bool needed = s->fns[fn].edge[first + c.elem].fn != 0;
			uint32_t storage = s->sched->nstorage;
			uint32_t t = needed || (g->always && c.arg[g->arg].kind != ARG_NONE) ? formula_run(&c, &g->f) : 0;

			scratch_note(&c, t, storage);

			made[g->arg] = t;
			out[first + c.elem] = needed ? tensor_hold(s, t) : 0;
		}
	}
done:
	tensor_drop(s, c.stash);
	temps_release(s, mark);
}

/* validate_outputs: the shape first (at::sum_to), then the dtype. */
static void
validate(struct sim *s, uint32_t fn, uint32_t *out)
{
	for (unsigned i = 0; i < s->fns[fn].nedge; i++) {
		const struct geom *want = s->fns[fn].meta[i];
		uint32_t mark = temps_mark(s), t = out[i];
		struct call c = {.s = s, .op = OP_EXPAND, .code = op_code(s, OP_EXPAND), .fn = &s->fns[fn], .kernel = "sum"};

		if (!t || !want)
			continue;
		if (geom_at(s, t)->rank != want->rank || memcmp(geom_at(s, t)->dim, want->dim, want->rank * sizeof *want->dim)) {
			struct operand x[2] = {{geom_at(s, t), t, false}, {want, 0, false}};

			t = build_sum_to(&c, x, 2, DT_NONE);
		}
		if (t && dtype_info(want->dtype)->cat != CAT_COMPLEX)
			t = real_part(s, t);
		if (t && geom_at(s, t)->dtype != want->dtype) {
			struct operand x = {geom_at(s, t), t, false};

			c.kernel = "_to_copy";
			t = build_like(&c, &x, 1, want->dtype);
		}
		tensor_hold(s, t);
		tensor_drop(s, out[i]);
		out[i] = t;
		temps_release(s, mark);
	}
}

/* ---- where gradients go ---------------------------------------------------------------------------------------- */

static bool
adds_in_place(const struct sim *s, uint32_t t)
{
	return !(s->tensors[t].flags & TF_VIEW) && s->tensors[t].holders == 1 && tensor_storage_tensors(s, t) == 1;
}

/* Takes over the caller's hold of g. */
static void
arrive(struct sim *s, uint32_t *slot, uint32_t g)
{
	if (!*slot) {
		*slot = g;
		return;
	}
	if (!adds_in_place(s, *slot)) {
		uint32_t mark = temps_mark(s);
		struct call c = {.s = s, .op = OP_ADD, .code = op_code(s, OP_ADD), .kernel = "add"};
		struct operand x[2] = {{geom_at(s, *slot), *slot, false}, {geom_at(s, g), g, false}};
		uint32_t sum = tensor_hold(s, build_ew(&c, x, 2, DT_NONE));

		temps_release(s, mark);
		tensor_drop(s, *slot);
		*slot = sum;
	}
	tensor_drop(s, g);
}

static void
mark_gradient(struct sim *s, uint32_t var, uint32_t grad)
{
	struct storage *g = &s->sched->storages[s->tensors[grad].storage];

	if (!s->tensors[var].param || g->factor == FAC_PARAM || g->shares)
		return;
	if (s->shard && g->factor != FAC_GRAD)
		g->became = s->sched->nevent;
	g->factor = FAC_GRAD;
	g->val = s->tensors[var].param;
}

/* accumulate_grad.h: take the tensor over if it has the parameter's layout and nobody else has it, else copy; later add in place. */
static void
accumulate(struct sim *s, uint32_t var, uint32_t g)
{
	const struct geom *p = geom_at(s, var), *x = geom_at(s, g);

	if (s->tensors[var].grad) {
		tensor_drop(s, g);
		return;
	}
	if (x->dense && geom_same_layout(x, p) && s->tensors[g].holders == 1) {
		s->tensors[var].grad = g;
	} else {
		uint32_t mark = temps_mark(s);
		struct call c = {.s = s, .op = OP_CLONE, .code = op_code(s, OP_CLONE), .kernel = "clone"};
		struct operand like = {p, var, false};

		s->tensors[var].grad = tensor_hold(s, build_like(&c, &like, 1, x->dtype));
		temps_release(s, mark);
		tensor_drop(s, g);
	}
}

static void
finish_leaf(struct sim *s, uint32_t var)
{
	mark_gradient(s, var, s->tensors[var].grad);
	if (s->shard && s->tensors[var].param)
		shard_gradient(s->shard, var);
}

static void
route(struct task *t, uint32_t fn, uint32_t *out)
{
	struct sim *s = t->s;

	for (unsigned i = 0; i < s->fns[fn].nedge; i++) {
		struct edge e = s->fns[fn].edge[i];
		struct grad_fn *next = &s->fns[e.fn];

		if (!e.fn) {
			tensor_drop(s, out[i]);
			continue;
		}
		if (!next->buffer)
			next->buffer = pool_get(s->pool, next->nout, sizeof *next->buffer);
		if (out[i])
			arrive(s, &next->buffer[e.out], out[i]);
		if (--s->fns[e.fn].deps == 0)
			push(t, e.fn);
	}
}

static void
run_fn(struct task *t, uint32_t fn)
{
	struct sim *s = t->s;
	unsigned nedge = s->fns[fn].nedge, nout = s->fns[fn].nout;
	uint32_t *grads = s->fns[fn].buffer, *out;

	s->fns[fn].buffer = NULL;
	if (s->fns[fn].kind == FN_ACCUMULATE) {
		if (grads[0]) {
			accumulate(s, s->fns[fn].var, grads[0]);
			finish_leaf(s, s->fns[fn].var);
		}
		pool_put(s->pool, grads, nout, sizeof *grads);
		return;
	}
	s->node = s->fns[fn].node;
	if (s->shard)
		shard_backward_at(s->shard, s->node);
	out = pool_get(s->pool, nedge, sizeof *out);
	if (s->fns[fn].kind == FN_CHECKPOINT)
		checkpoint_backward(s, fn, grads, out);
	else if (s->fns[fn].kind == FN_COPY_SLICES)
		copy_slices_backward(s, fn, grads, out);
	else
		row_backward(s, fn, grads, out);
	validate(s, fn, out);
	for (unsigned i = 0; i < nout; i++)
		tensor_drop(s, grads[i]);
	pool_put(s->pool, grads, nout, sizeof *grads);
	fn_release_saved(s, fn);
	if (s->fns[fn].kind == FN_COPY_SLICES) {
		uint32_t inner = s->fns[fn].inner;

		s->fns[fn].inner = 0;
		fn_drop(s, inner);
	}
	route(t, fn, out);
	pool_put(s->pool, out, nedge, sizeof *out);
}

void
run_backward(struct sim *s, const uint32_t *root, const uint32_t *grad, unsigned n)
{
	struct task t = {.s = s, .run = ++s->run};
	uint32_t node = s->node;
	bool kept = s->grad_on;

	s->grad_on = false;
	for (unsigned i = 0; i < n; i++)
		if (s->tensors[root[i]].fn) {
			enter(&t, s->tensors[root[i]].fn);
			s->fns[s->tensors[root[i]].fn].deps++;
		}
	count_dependencies(&t);
	for (unsigned i = 0; i < n; i++) {
		uint32_t fn = s->tensors[root[i]].fn;
		struct grad_fn *x = &s->fns[fn];

		if (!fn)
			continue;
		if (!x->buffer)
			x->buffer = pool_get(s->pool, x->nout, sizeof *x->buffer);
		arrive(s, &x->buffer[s->tensors[root[i]].out], tensor_hold(s, grad[i]));
		if (--s->fns[fn].deps == 0)
			push(&t, fn);
	}
	while (t.nheap)
		run_fn(&t, pop(&t));
	leave(&t);
	s->grad_on = kept;
	s->node = node;
}
