/*
 * The forward pass: the graph's nodes in order, each as one operator call; then what the frame no longer
 * holds is released (plan.release). sim.env has the tensor of every value that somebody still holds by name.
 */
#include "../shard/shard.h"

#include <string.h>

void
env_set(struct sim *s, uint32_t v, uint32_t t)
{
	uint32_t old = s->env[v];

	if (!v)
		return;
	s->env[v] = tensor_hold(s, t);
	tensor_drop(s, old);
	if (t)
		s->val_dtype[v] = geom_at(s, t)->dtype;
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

static struct value
list_value(struct sim *s, const struct arg *a)
{
	uint32_t *ts = pool_get(s->pool, a->count, sizeof *ts);

	for (uint32_t i = 0; i < a->count; i++)
		ts[i] = s->env[s->g->ids[a->first + i]];
	return V_TENSORS(ts, a->count);
}

static struct value
arg_value(struct sim *s, const struct arg *a)
{
	switch (a->kind) {
	case ARG_VAL:
		return V_TENSOR(s->env[a->u.val]);
	case ARG_VALS:
		return list_value(s, a);
	case ARG_INT:
		return V_INT(a->u.i.n);
	case ARG_INTS:
		return V_INTS(s->ints + a->first, a->count);
	case ARG_FLOAT:
		return V_FLOAT(a->u.f);
	case ARG_FLOATS:
		return (struct value){.kind = ARG_FLOATS, .n = a->count, .u.floats = s->g->floats + a->first};
	case ARG_BOOL:
		return V_BOOL(a->u.b);
	case ARG_DTYPE:
		return V_DTYPE(a->dtype);
	case ARG_DTYPE_OF:
		return V_DTYPE(s->val_dtype[a->u.val]);
	case ARG_STR:
		return (struct value){.kind = ARG_STR, .u.s = graph_str(s->g, a->u.str)};
	default:
		return V_NONE;
	}
}

static void
free_lists(struct sim *s, const struct value *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (v[i].kind == ARG_VALS)
			pool_put(s->pool, (void *)(uintptr_t)v[i].u.ts, v[i].n, sizeof(uint32_t));
}

/* ---- what cannot be run as a row says ----------------------------------------------------------------------- */

static bool
dims_are_known(const struct sim *s, uint32_t v)
{
	const struct val *x = &s->g->vals[v];

	for (unsigned i = 0; x->rank != RANK_UNKNOWN && i < x->rank; i++)
		if (s->ints[x->dim + i] < 0)
			return false;
	return x->rank != RANK_UNKNOWN;
}

/* A tensor as the file declares the value; 0 if it does not say. With dims that nobody knows it has no bytes and no size that counts, but a history. */
uint32_t
declared_tensor(struct sim *s, uint32_t v)
{
	const struct val *x = &s->g->vals[v];
	struct geom g = {.rank = x->rank, .dtype = x->dtype};

	if (x->rank == RANK_UNKNOWN || x->dtype == DT_NONE)
		return 0;
	if (x->dtype == s->g->file_dtype && s->param_dtype)
		g.dtype = s->param_dtype;
	for (unsigned i = 0; i < x->rank; i++)
		g.dim[i] = s->ints[x->dim + i] < 0 ? 0 : s->ints[x->dim + i];
	s->unsized[v] |= !dims_are_known(s, v);
	geom_contiguous(&g);
	return tensor_new(s, geom_intern(s->geoms, g), "unknown");
}

/* An unknown operator: its results as declared; it is assumed to save all its operands and to need as much for their gradients. */
static void
run_unknown(struct sim *s, uint32_t n)
{
	struct call c = {.s = s, .op = OP_UNKNOWN, .code = op_code(s, OP_UNKNOWN)};
	uint32_t *ts = NULL, count = 0, cap = 0, fn;

	for (struct operands it = operands_of(s->g, n); operand_next(&it);)
		if (s->env[it.val]) {
			ROOM(s->c->a, ts, count, cap, 1);
			ts[count++] = s->env[it.val];
		}
	c.arg[0] = V_TENSORS(ts, count);
	fn = tape_begin(&c);
	s->nresult = 0;
	for (uint32_t k = 0; k < s->g->nodes[n].nout; k++) {
		uint32_t t = declared_tensor(s, node_outs(s->g, n)[k]);

		ROOM(s->c->a, s->result, s->nresult, s->result_cap, 1);
		s->result[s->nresult++] = t;
	}
	tape_end(&c, fn);
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

/* Embeddings under transformers' enable_input_require_grads, say: the result becomes a leaf whose gradient is kept. */
static void
require_grad(struct sim *s, uint32_t t)
{
	if (s->grad_on && t && !needs_grad(s, t) && dtype_is_float(geom_at(s, t)->dtype))
		tensor_at(s, t)->flags |= TF_LEAF | TF_GRAD;
}

static bool
reads_unsized(const struct sim *s, uint32_t n)
{
	for (struct operands it = operands_of(s->g, n); operand_next(&it);)
		if (s->unsized[it.val])
			return true;
	return false;
}

static void
bind_results(struct sim *s, uint32_t n)
{
	uint32_t *outs = node_outs(s->g, n), nout = s->g->nodes[n].nout;
	bool unsized = reads_unsized(s, n);

	for (uint32_t k = 0; k < nout; k++) {
		uint32_t t = k < s->nresult ? s->result[k] : 0;

		if (!t && s->g->nodes[n].op != OP_NO_OP)
			t = declared_tensor(s, outs[k]);
		s->unsized[outs[k]] |= unsized && !dims_are_known(s, outs[k]);
		if (s->g->nodes[n].flags & NF_LEAF)
			require_grad(s, t);
		env_set(s, outs[k], t);
	}
}

/* An operand that nobody could size: its user cannot be run as its row says either. */
static bool
operand_is_missing(const struct sim *s, uint32_t n)
{
	for (struct operands it = operands_of(s->g, n); operand_next(&it);)
		if (!s->env[it.val])
			return true;
	return false;
}

/* Whole numbers that no size of a result depends on. */
static bool
is_only_a_value(struct str name)
{
	static const char *const names[] = {
		"other", "alpha", "beta", "value", "fill_value", "zero_point", "scale", "exponent", "min", "max", "diagonal", "ignore_index", "padding_idx", "min_val", "max_val",
		"threshold", "low", "high", "s", "mean", "std", "lambd", "index",
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (str_eq(name, str_of(names[i])))
			return true;
	return false;
}

static bool
is_unknown(const struct graph *g, const struct arg *a)
{
	int64_t n;

	if (a->kind == ARG_INT)
		return !sint_eval(g, a->u.i, &n);
	for (uint32_t i = 0; a->kind == ARG_INTS && i < a->count; i++)
		if (!sint_eval(g, g->ints[a->first + i], &n))
			return true;
	return false;
}

/* Does a number that nobody knows decide the sizes of the results? */
bool
size_is_unknown(const struct graph *g, uint32_t n)
{
	struct arg_name names[MAX_ARGS];
	uint32_t count = 0;

	for (uint32_t i = 0; i < g->nodes[n].narg; i++) {
		if (!is_unknown(g, node_args(g, n) + i))
			continue;
		if (!count)
			count = op_args(g->nodes[n].op, names, MAX_ARGS);
		if (i >= count || !is_only_a_value(names[i].name))
			return true;
	}
	return false;
}

/* false: the operator's shapes do not work out. */
static bool
run_known(struct sim *s, uint32_t n)
{
	const struct node *x = &s->g->nodes[n];
	struct value arg[MAX_ARGS];
	unsigned narg = x->narg < MAX_ARGS ? x->narg : MAX_ARGS;
	uint32_t failed = s->failed;

	for (unsigned i = 0; i < narg; i++)
		arg[i] = arg_value(s, node_args(s->g, n) + i);
	if (x->flags & NF_INPLACE)
		op_call_inplace(s, x->op, arg, narg);
	else
		op_call(s, x->op, arg, narg);
	free_lists(s, arg, narg);
	return s->failed == failed;
}

static void
run_node(struct sim *s, uint32_t n)
{
	const struct node *x = &s->g->nodes[n];
	uint32_t mark = temps_mark(s);
	uint8_t autocast = s->autocast;
	bool kept = s->grad_on;

	s->node = n;
	if (x->flags & NF_NO_GRAD)
		s->grad_on = false;
	if (x->autocast)
		s->autocast = x->autocast == AUTOCAST_OFF ? DT_NONE : x->autocast;
	if (!x->op || op_is_onnx(x->op) || operand_is_missing(s, n) || size_is_unknown(s->g, n) || !run_known(s, n))
		run_unknown(s, n);
	bind_results(s, n);
	temps_release(s, mark);
	s->grad_on = kept;
	s->autocast = autocast;
	if (x->autocast && !autocast && (n + 1 == s->g->nnode || s->g->nodes[n + 1].autocast != x->autocast))
		autocast_clear(s);     /* the file's own region ends, and no other is around it */
}

static void
release_after(struct sim *s, uint32_t n)
{
	for (uint32_t i = s->plan->release_at[n]; i < s->plan->release_at[n + 1]; i++)
		env_set(s, s->plan->release[i], 0);
}

void
run_nodes(struct sim *s, uint32_t first, uint32_t last, bool blocks)
{
	const struct block *b = s->plan->blocks, *end = b + s->plan->nblock;

	for (uint32_t n = first; n <= last; n++) {
		if (s->runs && !s->runs[n])
			continue;
		while (blocks && b < end && b->first < n)
			b++;
		if (blocks && b < end && b->first == n) {
			checkpoint_block(s, b);
			n = b->last;
			continue;
		}
		if (s->shard)
			shard_forward_at(s->shard, n);
		run_node(s, n);
		release_after(s, n);
	}
}
