/*
 * tensor: what the ranks of tensor parallelism divide. A linear layer is divided by columns if what it makes reaches, through operators that
 * work on each part alone, only the inputs of other linear layers, which are then divided by rows. All that is connected by such
 * operators is one region, and is divided as a whole or not at all: query, key and value with the heads and the output projection; gate and up with
 * down. The vocabulary is a region that begins at the token embedding's table: its rows, a tied head's columns, and the logits up to cross entropy.
 */
#include "tensor.h"

#include <string.h>

struct region {
	struct divided *d;
	int8_t *axis;              /* by value, as struct divided's, of this region alone */
	int8_t *dead;              /* by value: a dim from which a region has failed, so that no other is tried through it */
	uint8_t *role;
	uint32_t *values;          uint32_t n, done;
	uint32_t *nodes;           uint32_t nnode;
	uint32_t columns, ends;    /* ends: rows, losses */
	uint32_t uneven;           /* a value that cannot be divided evenly */
	bool vocabulary;           /* the divided dim is the vocabulary */
	int64_t size;              /* of the divided dim; -1: not the same everywhere */
};

enum { MOST_RANKS = 1024, MOST_CHOICES = 2 };

/* ---- growing a region ------------------------------------------------------------------------------------------- */

static bool
reach(struct region *r, uint32_t v, int axis)
{
	const struct graph *g = r->d->g;

	v = first_of(g, v);
	if (axis < 0 || r->d->axis[v] != WHOLE)
		return axis >= 0 && r->d->axis[v] == axis;
	if (r->axis[v] != WHOLE)
		return r->axis[v] == axis;
	if (r->dead[v] == axis)
		return false;
	if ((g->vals[v].kind != VAL_NODE && g->vals[v].kind != VAL_PARAM) || v == r->d->a->plan.loss || !dim_of(g, v, axis))
		return false;
	r->axis[v] = (int8_t)axis;
	r->values[r->n++] = v;
	if (!r->uneven && dim_of(g, v, axis) % r->d->ways)
		r->uneven = v;
	r->size = r->size == 0 || r->size == dim_of(g, v, axis) ? dim_of(g, v, axis) : -1;
	return true;
}

static int
axis_at(const struct region *r, uint32_t v)
{
	v = first_of(r->d->g, v);
	return !v ? WHOLE : r->axis[v] != WHOLE ? r->axis[v] : r->d->axis[v];
}

static bool
set_role(struct region *r, uint32_t n, enum role role)
{
	if (r->role[n] == ROLE_NONE) {
		r->role[n] = (uint8_t)role;
		r->nodes[r->nnode++] = n;
		r->columns += role == ROLE_COLUMN || role == ROLE_VOCABULARY;
		r->ends += role == ROLE_ROW || role == ROLE_LOSS || role == ROLE_VOCABULARY;
	}
	return r->role[n] == role && (r->d->role[n] == ROLE_NONE || r->d->role[n] == role);
}

static bool
visit_linear(struct region *r, uint32_t n, const struct linear *l)
{
	const struct graph *g = r->d->g;
	uint32_t out = node_outs(g, n)[0];
	int in = axis_at(r, l->in), made = axis_at(r, out), w = axis_at(r, l->weight);

	if (in == WHOLE && made == WHOLE && w == WHOLE)
		return false;      /* its bias alone */
	if (in != WHOLE || w == l->weight_in)
		return made == WHOLE && set_role(r, n, ROLE_ROW) && reach(r, l->in, g->vals[l->in].rank - 1) && reach(r, l->weight, l->weight_in);
	if (l->bias && (g->vals[l->bias].rank != 1 || !reach(r, l->bias, 0)))
		return false;
	return set_role(r, n, ROLE_COLUMN) && reach(r, out, g->vals[out].rank - 1) && reach(r, l->weight, l->weight_out);
}

static bool
is_plain(const struct graph *g, uint32_t n, const char *name)
{
	const struct arg *a = node_arg(g, n, name);

	return !a || a->kind == ARG_NONE || (a->kind == ARG_FLOAT && a->u.f == 0);
}

/* Logits of the vocabulary, divided by classes. */
static bool
visit_loss(struct region *r, uint32_t n)
{
	const struct graph *g = r->d->g;
	const struct arg *x = node_args(g, n), *target = node_arg(g, n, "target");

	if (x->kind != ARG_VAL || target->kind != ARG_VAL || dtype_is_float(g->vals[target->u.val].dtype) || !is_plain(g, n, "weight") || !is_plain(g, n, "label_smoothing"))
		return false;
	if (g->vals[x->u.val].rank != 2 || axis_at(r, x->u.val) != 1 || !r->d->classes || dim_of(g, x->u.val, 1) != r->d->classes)
		return false;
	r->vocabulary = true;
	return set_role(r, n, ROLE_LOSS);
}

static bool
visit_embedding(struct region *r, uint32_t n)
{
	const struct arg *w = node_arg(r->d->g, n, "weight");

	if (w->kind != ARG_VAL || axis_at(r, w->u.val) != 0 || dim_of(r->d->g, w->u.val, 0) != r->d->classes)
		return false;
	r->vocabulary = true;
	return set_role(r, n, ROLE_VOCABULARY);
}

/* The dim of the results that what is known of the node asks for. */
static int
axis_of_results(const struct region *r, uint32_t n)
{
	const struct graph *g = r->d->g;

	for (uint32_t k = 0; k < g->nodes[n].nout; k++)
		if (axis_at(r, node_outs(g, n)[k]) != WHOLE)
			return axis_at(r, node_outs(g, n)[k]);
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (axis_at(r, it.val) != WHOLE)
			return axis_forward(r->d, n, it.val, axis_at(r, it.val));
	return NO_WAY;
}

static bool
visit(struct region *r, uint32_t n)
{
	const struct graph *g = r->d->g;
	struct linear l;
	int axis;

	if (linear_of(g, n, &l))
		return visit_linear(r, n, &l);
	if (g->nodes[n].op == OP_CROSS_ENTROPY)
		return visit_loss(r, n);
	if (g->nodes[n].op == OP_EMBEDDING)
		return visit_embedding(r, n);
	axis = axis_of_results(r, n);
	if (axis < 0)
		return false;
	for (struct operands it = operands_of(g, n); operand_next(&it);) {
		int known = axis_at(r, it.val), back = known == WHOLE ? axis_back(r->d, n, it.val, axis) : known;

		if (back == NO_WAY || (known != WHOLE && axis_forward(r->d, n, it.val, known) != axis) || (back >= 0 && !reach(r, it.val, back)))
			return false;
	}
	for (uint32_t k = 0; k < g->nodes[n].nout; k++)
		if (!reach(r, node_outs(g, n)[k], axis))
			return false;
	return true;
}

static bool
grow(struct region *r)
{
	const struct divided *d = r->d;

	while (r->done < r->n) {
		uint32_t v = r->values[r->done++];

		if (d->g->vals[v].kind == VAL_NODE && !visit(r, d->g->vals[v].node))
			return false;
		for (uint32_t i = d->user_at[v]; i < d->user_at[v + 1]; i++)
			if (!visit(r, d->user[i]))
				return false;
	}
	return r->columns && r->ends;
}

/* ---- regions ------------------------------------------------------------------------------------------------------ */

static void
forget(struct region *r, bool keep)
{
	for (uint32_t i = 0; i < r->n; i++) {
		if (keep) {
			r->d->axis[r->values[i]] = r->axis[r->values[i]];
			r->d->vocabulary[r->values[i]] = r->vocabulary;
		} else if (r->d->skip + 1 == MOST_CHOICES && r->d->g->vals[r->values[i]].kind == VAL_NODE)
			r->dead[r->values[i]] = r->axis[r->values[i]];
		r->axis[r->values[i]] = WHOLE;
	}
	for (uint32_t i = 0; i < r->nnode; i++) {
		if (keep)
			r->d->role[r->nodes[i]] = r->role[r->nodes[i]];
		r->role[r->nodes[i]] = ROLE_NONE;
	}
	r->d->uneven += keep && r->uneven && !r->vocabulary;
	r->n = r->done = r->nnode = r->columns = r->ends = r->uneven = 0;
	r->size = 0;
	r->vocabulary = false;
}

static bool
refuse_uneven(struct analysis *a, uint32_t v, int axis)
{
	struct str name = graph_str(a->g, a->g->vals[v].full ? a->g->vals[v].full : a->g->vals[v].name);
	struct str allowed = str_fmt(a->c->a, "what divides %lld, dim %d of %.*s", (long long)dim_of(a->g, v, axis), axis, SFMT(name));

	return diag(a->c, DIAG_BAD_VALUE, "parallel.tp", SFMT(a->r->v[RK_PARALLEL_TP].text), allowed.p);
}

/* Divides what is connected with the value; false: it should be, but not by this number: parts of a head are none of the heads' parts. */
static bool
try_region(struct region *r, uint32_t v, int axis)
{
	for (r->d->skip = 0; r->d->skip < MOST_CHOICES; r->d->skip++) {
		bool found = reach(r, v, axis) && grow(r);

		if (found && r->uneven && r->size < 0)
			return refuse_uneven(r->d->a, r->uneven, r->axis[r->uneven]);
		forget(r, found);
		if (found)
			break;
	}
	return true;
}

static void
list_users(struct divided *d)
{
	const struct graph *g = d->g;
	uint32_t *at = d->user_at = NEW(d->a->c->a, uint32_t, g->nval + 2);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			at[first_of(g, it.val) + 2]++;
	for (uint32_t v = 0; v < g->nval; v++)
		at[v + 2] += at[v + 1];
	d->user = NEW(d->a->c->a, uint32_t, at[g->nval + 1] + 1);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			d->user[at[first_of(g, it.val) + 1]++] = n;
}

/* The table that the batch's own numbers look up; of several the one with most rows. */
static uint32_t
find_vocabulary(struct divided *d)
{
	const struct graph *g = d->g;
	uint32_t found = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct arg *w = g->nodes[n].op == OP_EMBEDDING ? node_arg(g, n, "weight") : NULL, *i = w ? node_arg(g, n, "indices") : NULL;
		uint32_t v = i && i->kind == ARG_VAL ? i->u.val : 0;

		while (v && g->vals[v].kind == VAL_NODE && (g->nodes[g->vals[v].node].op == OP_VIEW || g->nodes[g->vals[v].node].op == OP_RESHAPE || g->nodes[g->vals[v].node].op == OP_TO))
			v = node_args(g, g->vals[v].node)->kind == ARG_VAL ? node_args(g, g->vals[v].node)->u.val : 0;
		if (!v || g->vals[v].kind != VAL_INPUT || w->kind != ARG_VAL || g->vals[w->u.val].kind != VAL_PARAM)
			continue;
		if (dim_of(g, w->u.val, 0) > d->classes) {
			found = first_of(g, w->u.val);
			d->classes = dim_of(g, found, 0);
		}
	}
	return found;
}

/* As torch.chunk cuts it, the first ranks have more; a padded vocabulary is cut evenly. */
int64_t
part_of(const struct divided *d, uint32_t v, int64_t n)
{
	int64_t multiple = d->multiple && d->vocabulary[first_of(d->g, v)] ? d->multiple : 1, ways, part;

	if (!mul_i64(d->ways, multiple, &ways) || !mul_i64(n / ways + (n % ways != 0), multiple, &part))
		return n;
	return part;
}

static bool
find_regions(struct divided *d)
{
	struct graph *g = d->g;
	struct arena *a = d->a->c->a;
	struct region r = {.d = d, .axis = NEW(a, int8_t, g->nval), .dead = NEW(a, int8_t, g->nval), .role = NEW(a, uint8_t, g->nnode),
		.values = NEW(a, uint32_t, g->nval), .nodes = NEW(a, uint32_t, g->nnode)};
	uint32_t table = find_vocabulary(d);
	struct linear l;

	memset(r.axis, WHOLE, g->nval);
	memset(r.dead, WHOLE, g->nval);
	if (table && !try_region(&r, table, 0))
		return false;
	d->table = table && d->axis[table] != WHOLE ? table : 0;
	for (uint32_t n = 1; n < g->nnode; n++) {
		if (d->role[n] != ROLE_NONE || !linear_of(g, n, &l) || d->axis[first_of(g, l.weight)] != WHOLE)
			continue;
		if (!try_region(&r, l.weight, l.weight_out))
			return false;
	}
	return true;
}

static void
tell(const struct divided *d)
{
	uint32_t count[ROLE_LOSS + 1] = {0}, whole = 0;
	struct linear l;

	for (uint32_t n = 1; n < d->g->nnode; n++) {
		count[d->role[n]]++;
		whole += d->role[n] == ROLE_NONE && linear_of(d->g, n, &l);
	}
	assume(d->a, "tensor parallel: %u linear layers divided by columns, %u by rows, %u embeddings by vocabulary; %u linear layers are whole on every rank",
	    count[ROLE_COLUMN], count[ROLE_ROW], count[ROLE_VOCABULARY], whole);
	if (d->table)
		assume(d->a, "tensor parallel: of the vocabulary's %lld rows each rank has %lld%s", (long long)d->classes, (long long)part_of(d, d->table, d->classes),
		    d->multiple ? ", padded as Megatron-LM does" : d->classes % d->ways ? " at most" : "");
	if (d->uneven)
		assume(d->a, "tensor parallel: sizes that the ranks do not divide are cut as DTensor does, and this is the first rank, which has the most; "
		    "Megatron-LM, and PyTorch's parallel styles with local outputs, refuse such a size");
	assume(d->a, "tensor parallel: collectives make a new tensor, as PyTorch's functional ones do%s",
	    !d->a->r->v[RK_PARALLEL_SEQUENCE].i ? "" : d->pytorch ? "; what is gathered of the sequence is kept for backward" :
	    "; the sequence is gathered again for backward, as Megatron-LM's sources do");
	if (d->pytorch && d->table)
		assume(d->a, "tensor parallel: the token embedding's gradient is whole on every rank, as DTensor makes it");
}

bool
pass_tensor(struct analysis *a)
{
	struct recipe_value *v = &a->r->v[RK_PARALLEL_TP];
	struct divided d = {.a = a, .g = a->g, .ways = v->i, .pytorch = a->r->v[RK_PARALLEL_TP_LIBRARY].i, .axis = NEW(a->c->a, int8_t, a->g->nval), .role = NEW(a->c->a, uint8_t, a->g->nnode),
		.vocabulary = NEW(a->c->a, bool, a->g->nval), .multiple = a->r->v[RK_PARALLEL_VOCAB_MULTIPLE].i};
	bool any = false;

	if (v->i < 1 || v->i > MOST_RANKS)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.tp", SFMT(v->text), "a whole number from 1 to 1024");
	if (v->i == 1 && a->r->v[RK_PARALLEL_SEQUENCE].i)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.sequence_parallel", SFMT(a->r->v[RK_PARALLEL_SEQUENCE].text), "true only with parallel.tp from 2");
	if (v->i == 1)
		return true;
	memset(d.axis, WHOLE, a->g->nval);
	list_users(&d);
	if (!find_regions(&d))
		return false;
	for (uint32_t n = 1; n < a->g->nnode; n++)
		any |= d.role[n] != ROLE_NONE;
	if (!any)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.tp", SFMT(v->text), "1: no linear layers of this model can be divided");
	tell(&d);
	tensor_write(&d);
	return true;
}
