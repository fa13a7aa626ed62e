/*
 * Views and in-place operators (torch/csrc/autograd/variable.cpp, functions/tensor.cpp).
 *
 * A view made in forward knows the tensor it looks into and the operators that lead there. An in-place operator on a view gives that
 * tensor a CopySlices node as its history; every view of it, that one included, makes its own history again when it is next asked
 * for. Views are replayed operator by operator, as PyTorch does for tensors that cannot be restrided.
 */
#include "lower.h"

#include <string.h>

static uint32_t
root_of(const struct sim *s, uint32_t t)
{
	return s->tensors[t].base ? s->tensors[t].base : t;
}

/* Before an operator reads it: a view of a tensor that requires grad does as well. */
bool
needs_grad(const struct sim *s, uint32_t t)
{
	return t && (s->tensors[t].flags & TF_GRAD || s->tensors[root_of(s, t)].flags & TF_GRAD);
}

void
view_changed(struct sim *s, uint32_t t)
{
	s->tensors[root_of(s, t)].version++;
}

/* The result of a view operator: its node, or one like it without edges, says how it was made. */
void
view_record(struct call *c, uint32_t fn)
{
	struct sim *s = c->s;
	uint32_t t = s->nresult == 1 ? s->result[0] : 0, of = c->arg[0].kind == ARG_VAL ? c->arg[0].u.t : 0;
	struct tensor *x = &s->tensors[t];

	if (!t || !x->base || !of || of == t || x->view || dtype_info(x->geom->dtype)->cat < CAT_FLOAT || root_of(s, of) != x->base)
		return;
	if (!fn)
		fn = fn_of_call(c);
	fn_hold(s, fn);
	s->tensors[t].view = fn;
	s->tensors[t].version = s->tensors[root_of(s, t)].version;
	s->fns[fn].inner = s->tensors[of].view;
	if (s->fns[fn].inner)
		fn_hold(s, s->fns[fn].inner);
}

/* ---- making history again -------------------------------------------------------------------------------- */

static uint32_t
replay(struct sim *s, uint32_t of, struct edge from)
{
	uint32_t fn = fn_like(s, of);

	fn_hold(s, from.fn);
	s->fns[fn].edge[0] = from;
	return fn;
}

void
view_renew(struct sim *s, uint32_t t)
{
	uint32_t root = root_of(s, t), chain[64], n = 0;
	struct edge e;

	if (root == t || !s->tensors[t].view || s->tensors[t].version == s->tensors[root].version)
		return;
	for (uint32_t v = s->tensors[t].view; v && n < 64; v = s->fns[v].inner)
		chain[n++] = v;
	e = fn_edge_to(s, root);
	while (e.fn && n > 0)
		e = (struct edge){replay(s, chain[--n], e), 0};
	if (e.fn)
		fn_attach(s, e.fn, 0, t);
	s->tensors[t].version = s->tensors[root].version;
}

/* ---- in place on a view ------------------------------------------------------------------------------------ */

/* fn, the operator's own node, keeps its edge to the view; CopySlices takes the others and has the base's history as its first. */
void
view_overwritten(struct sim *s, uint32_t t, uint32_t fn)
{
	uint32_t root = root_of(s, t), cs = fn_new(s, FN_COPY_SLICES, s->fns[fn].nedge ? s->fns[fn].nedge : 1, 1);

	fn_edge(s, cs, 0, root);
	for (unsigned i = 1; i < s->fns[fn].nedge; i++) {
		s->fns[cs].meta[i] = s->fns[fn].meta[i];
		s->fns[cs].edge[i] = s->fns[fn].edge[i];
		if (s->fns[cs].edge[i].fn)
			fn_hold(s, s->fns[cs].edge[i].fn);
	}
	fn_hold(s, fn);
	s->fns[cs].inner = fn;
	fn_attach(s, cs, 0, root);
	view_renew(s, t);
}

/* CopySlices::apply: a copy of the base's gradient, a clone of the slice for the operator's node, whose answer goes into the copy. */
void
copy_slices_backward(struct sim *s, uint32_t fn, const uint32_t *grads, uint32_t *out)
{
	struct call c = {.s = s, .op = OP_CLONE, .code = op_code(s, OP_CLONE), .kernel = "new_empty_strided"};
	struct operand base = {0}, slice = {0};
	uint32_t mark = temps_mark(s), whole, part, inner = s->fns[fn].inner;

	if (s->fns[fn].nedge && s->fns[inner].nedge) {
		base.g = s->fns[fn].meta[0];
		slice.g = s->fns[inner].meta[0];
	}
	if (!grads[0] || !base.g || !slice.g)     /* the view or the operator on it could not be made */
		return;
	whole = tensor_hold(s, build_like(&c, &base, 1, geom_at(s, grads[0])->dtype));
	c.kernel = "clone";
	part = build_full(&c, &slice, 1, geom_at(s, grads[0])->dtype);      /* memory_format=contiguous */
	row_backward(s, inner, &part, out);
	temps_release(s, mark);
	tensor_drop(s, out[0]);
	out[0] = whole;
	if (!s->fns[fn].edge[0].fn) {
		tensor_drop(s, whole);
		out[0] = 0;
	}
}
