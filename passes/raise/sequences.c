/*
 * Sequences of ONNX, which are Python's lists of tensors: what is in each is followed from node to node, loops are unrolled by now. What takes an element is that
 * element; what splits into a sequence is a split; what joins one is a concatenation or a stack. A sequence itself is no tensor and goes away.
 */
#include "shape.h"

#define MAX_SEQUENCE LIMIT(1024u, 2u)

struct sequence {                  /* by value */
	bool known;
	bool cut;                  /* elements have an axis of size 1 that who takes one does not see */
	int64_t axis;
	uint32_t n, *elem;
};

struct sequences {
	struct sequence *of;
	uint32_t n, cap;
};

static struct sequence *
sequence_at(struct shaper *s, uint32_t v)
{
	struct arena *a = s->a->c->a;
	struct sequences *all = s->a->sequences ? s->a->sequences : (s->a->sequences = NEW(a, struct sequences, 1));

	ROOM(a, all->of, all->n, all->cap, v < all->n ? 0 : v + 1 - all->n);
	for (; all->n <= v; all->n++)
		all->of[all->n] = (struct sequence){0};
	return &all->of[v];
}

static uint32_t
result(const struct shaper *s)
{
	return s->g->nodes[s->n].nout ? node_outs(s->g, s->n)[0] : 0;
}

/* The node's result is no tensor. */
static void
is_sequence(struct shaper *s, uint32_t v, struct sequence q)
{
	q.known = true;
	*sequence_at(s, v) = q;
	s->g->vals[v].kind = VAL_CONST;
	s->g->nodes[s->n].nout = 0;
}

static uint32_t
stored_ints(struct shaper *s, const struct sint *x, uint32_t n)
{
	struct graph *g = s->g;
	uint32_t v = val_new(g, VAL_CONST, str_fmt(g->c->a, "sizes_%u", (unsigned)g->nval));
	struct sint count = SINT(n);

	g->vals[v].dtype = DT_INT64;
	val_ints(g, v, x, n);
	val_shape(g, v, 1, &count);
	return v;
}

/* ---- lists ------------------------------------------------------------------------------------------------------------------------------ */

static void
construct(struct shaper *s)
{
	const uint32_t *ids;
	struct sequence q = {.n = operands(s, &ids)};

	q.elem = NEW(s->a->c->a, uint32_t, q.n + 1);
	for (uint32_t i = 0; i < q.n; i++)
		q.elem[i] = ids[i];
	is_sequence(s, result(s), q);
}

/* Which element is meant; false: it is not known, or there is none such. */
static bool
find_place(struct shaper *s, uint32_t n, int64_t dflt, uint32_t *at)
{
	int64_t i = dflt;

	if (operand(s, "position") && !known_int(s, operand(s, "position"), &i))
		return false;
	i += i < 0 ? (int64_t)n : 0;
	*at = (uint32_t)i;
	return i >= 0 && i <= (int64_t)n;
}

static void
insert_or_erase(struct shaper *s, bool insert)
{
	struct sequence old = *sequence_at(s, operand(s, "input_sequence")), q = {.n = old.n + 1};
	uint32_t at, to = 0;

	if (!old.known || old.cut || old.n >= MAX_SEQUENCE || !find_place(s, old.n, insert ? (int64_t)old.n : -1, &at) || (!insert && at >= old.n))
		return;
	q.elem = NEW(s->a->c->a, uint32_t, old.n + 2);
	for (uint32_t i = 0; i <= old.n; i++) {
		if (insert && i == at)
			q.elem[to++] = operand(s, "tensor");
		if (i < old.n && (insert || i != at))
			q.elem[to++] = old.elem[i];
	}
	q.n = to;
	is_sequence(s, result(s), q);
}

/* ---- tensors into lists ---------------------------------------------------------------------------------------------------------------- */

/* How large the parts are; 0 = that is not known. */
static uint32_t
part_sizes(struct shaper *s, struct sint dim, const struct sint **out)
{
	uint32_t split = operand(s, "split"), n;
	int64_t each = 1, left = dim.n;
	struct sint *x;

	if (split && s->g->vals[split].rank == 1)
		return known_ints(s, split, out, &n) && n <= MAX_SEQUENCE ? n : 0;
	if ((split && !known_int(s, split, &each)) || each < 1 || dim.expr || left < 1 || (left - 1) / each >= MAX_SEQUENCE)
		return 0;
	n = (uint32_t)((left - 1) / each + 1);
	x = NEW(s->a->c->a, struct sint, n);
	for (uint32_t i = 0; i < n; i++, left -= each)
		x[i] = SINT(left < each ? left : each);
	*out = x;
	return n;
}

/* The node becomes a Split of that many parts. */
static void
split(struct shaper *s)
{
	struct graph *g = s->g;
	struct type x = in(s, "input");
	int64_t axis = attr_int(s, "axis");
	uint32_t n = s->n, sequence = result(s), input = operand(s, "input"), made;
	struct sequence q = {.cut = !operand(s, "split") && !attr_int(s, "keepdims")};
	const struct sint *sizes;

	if (x.rank == RANK_UNKNOWN || !wrap_axis(&axis, x.rank) || (q.n = part_sizes(s, x.dim[axis], &sizes)) == 0)
		return;
	q.axis = axis;
	q.elem = NEW(s->a->c->a, uint32_t, q.n);
	is_sequence(s, sequence, q);
	made = node_new(g, OP_ONNX_SPLIT, op_narg(OP_ONNX_SPLIT), q.n);
	*node_arg(g, made, "input") = arg_val(input);
	*node_arg(g, made, "split") = arg_val(stored_ints(s, sizes, q.n));
	*node_arg(g, made, "axis") = arg_int(axis);
	for (uint32_t k = 0; k < q.n; k++) {
		q.elem[k] = val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_%u", SFMT(graph_str(g, g->vals[sequence].name)), (unsigned)k));
		g->vals[q.elem[k]].node = n;
		g->vals[q.elem[k]].out = k;
		node_outs(g, made)[k] = q.elem[k];
	}
	g->nodes[n].op = OP_ONNX_SPLIT;
	g->nodes[n].arg = g->nodes[made].arg;
	g->nodes[n].narg = g->nodes[made].narg;
	g->nodes[n].out = g->nodes[made].out;
	g->nodes[n].nout = g->nodes[made].nout;
	g->nnode--;
}

/* ---- lists into tensors ---------------------------------------------------------------------------------------------------------------- */

static void
take(struct shaper *s)
{
	struct graph *g = s->g;
	const struct sequence *q = sequence_at(s, operand(s, "input_sequence"));
	struct sint axis = SINT(q->axis);
	uint32_t at;

	if (!q->known || !find_place(s, q->n, 0, &at) || at >= q->n)
		return;
	node_args(g, s->n)[0] = arg_val(q->elem[at]);
	g->nodes[s->n].op = q->cut ? OP_ONNX_SQUEEZE : OP_ONNX_IDENTITY;
	g->nodes[s->n].narg = q->cut ? 2 : 1;
	if (q->cut)
		node_args(g, s->n)[1] = arg_val(stored_ints(s, &axis, 1));
}

static void
stack(struct shaper *s, const struct sequence *q, int64_t axis)
{
	struct type x = type_of(s, q->elem[0]);
	struct sint dim[MAX_RANK];

	if (x.rank >= MAX_RANK || !wrap_axis(&axis, x.rank + 1u))
		return;
	for (unsigned i = 0; i <= x.rank; i++)
		dim[i] = i == (unsigned)axis ? SINT(q->n) : x.dim[i - (i > (unsigned)axis)];
	s->g->nodes[s->n].op = OP_STACK;
	s->g->nodes[s->n].narg = 2;
	s->g->vals[result(s)].dtype = x.dtype;
	val_shape(s->g, result(s), x.rank + 1u, dim);
}

static void
concatenate(struct shaper *s)
{
	struct graph *g = s->g;
	const struct sequence *q = sequence_at(s, operand(s, "input_sequence"));
	int64_t axis = attr_int(s, "axis");
	bool new_axis = attr_int(s, "new_axis") != 0;

	if (!q->known || !q->n || q->cut != (new_axis && q->cut && q->axis == axis))
		return;
	if (new_axis && !q->cut) {
		stack(s, q, axis);
		if (g->nodes[s->n].op != OP_STACK)
			return;
	} else {
		g->nodes[s->n].op = OP_ONNX_CONCAT;
		g->nodes[s->n].narg = 2;
	}
	node_args(g, s->n)[0] = (struct arg){.kind = ARG_VALS, .first = ids_add(g, q->elem, q->n), .count = q->n};
	node_args(g, s->n)[1] = arg_int(axis);
}

static void
count(struct shaper *s)
{
	const struct sequence *q = sequence_at(s, operand(s, "input_sequence"));
	struct sint n = SINT(q->n);

	if (q->known)
		val_ints(s->g, result(s), &n, 1);
}

void
resolve_sequence(struct shaper *s)
{
	if (!result(s))
		return;
	switch (s->g->nodes[s->n].op) {
	case OP_ONNX_SEQUENCE_EMPTY:
	case OP_ONNX_SEQUENCE_CONSTRUCT:
		construct(s);
		return;
	case OP_ONNX_SEQUENCE_INSERT:
	case OP_ONNX_SEQUENCE_ERASE:
		insert_or_erase(s, s->g->nodes[s->n].op == OP_ONNX_SEQUENCE_INSERT);
		return;
	case OP_ONNX_SPLIT_TO_SEQUENCE:
		split(s);
		return;
	case OP_ONNX_SEQUENCE_AT:
		take(s);
		return;
	case OP_ONNX_SEQUENCE_LENGTH:
		count(s);
		return;
	case OP_ONNX_CONCAT_FROM_SEQUENCE:
		concatenate(s);
		return;
	default:
		return;
	}
}
