/*
 * What reads a conversion tells what it is for, where the source does not say:
 *
 *     cross_entropy(x.view(..), ..)         logits are converted to fp32
 *     dt + bias                             a parameter is converted to the dtype of what it meets, which the model did not convert up
 *     state = decay * state + u, with       the conversion back is written where the product takes it, and what goes on in fp32 reads its operand: the
 *     y = state.to(x.dtype) @ c             exporter names every later use of what a conversion did nothing to after it
 *     v = x.to(float32).pow(2).mean(),      for the same reason the product seems to read the conversion, and means x
 *     x * rsqrt(v + eps)
 */
#include "casts.h"

#define MOST_VIEWS 8u

void
casts_find_readers(struct casts *k)
{
	const struct graph *g = k->g;
	uint32_t total = 0, *at = NEW(g->c->a, uint32_t, g->nval + 1);

	k->first = NEW(g->c->a, uint32_t, g->nval + 1);
	k->use = NEW(g->c->a, uint8_t, g->nval + 1);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			k->first[it.val]++;
	for (uint32_t v = 0; v <= g->nval; v++) {
		uint32_t count = k->first[v];

		at[v] = k->first[v] = total;
		total += count;
	}
	k->reader = NEW(g->c->a, uint32_t, total + 1);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			k->reader[at[it.val]++] = n;
}

/* ---- losses ----------------------------------------------------------------------------------------------------- */

static bool
is_view(unsigned op)
{
	return op == OP_VIEW || op == OP_RESHAPE || op == OP_SLICE || op == OP_SELECT || op == OP_UNSQUEEZE || op == OP_CONTIGUOUS || op == OP_TRANSPOSE ||
	       op == OP_PERMUTE || op == OP_FLATTEN;
}

/* Do logits, viewed maybe, get from node n to a cross entropy? */
bool
casts_for_loss(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	uint32_t v = g->nodes[n].nout ? node_outs(g, n)[0] : 0;

	for (unsigned depth = 0; v && depth < MOST_VIEWS; depth++) {
		uint32_t next = 0;

		for (uint32_t i = k->first[v]; i < k->first[v + 1]; i++) {
			uint32_t m = k->reader[i];

			if (g->nodes[m].op == OP_CROSS_ENTROPY && node_args(g, m)->u.val == v)
				return true;
			if (is_view(g->nodes[m].op) && g->nodes[m].nout)
				next = node_outs(g, m)[0];
		}
		v = next;
	}
	return false;
}

/* "out[:, :n] = f(h)": the node that made out, of which what node n copies becomes a part; 0 = it does not, or another call made it. */
uint32_t
casts_written_into(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	const struct arg *x = node_args(g, n);

	if (g->nodes[n].op != OP_COPY || !(g->nodes[n].flags & NF_INPLACE))
		return 0;
	for (unsigned depth = 0; x->kind == ARG_VAL && g->vals[x->u.val].kind == VAL_NODE && depth < MOST_VIEWS; depth++) {
		uint32_t m = g->vals[x->u.val].node;

		if (!casts_same_call(k, m, n))
			return 0;
		if (!is_view(g->nodes[m].op))
			return m;
		x = node_args(g, m);
	}
	return 0;
}

/* ---- norms -------------------------------------------------------------------------------------------------------- */

static bool
averages(const struct casts *k, uint32_t v)
{
	for (uint32_t i = k->first[v]; i < k->first[v + 1]; i++)
		if (k->g->nodes[k->reader[i]].op == OP_MEAN)
			return true;
	return false;
}

/* Where no calls are known: is what node n converts squared and averaged next, as a norm begins? */
bool
casts_begins_norm(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	uint32_t y = node_outs(g, n)[0];

	for (uint32_t i = k->first[y]; !g->has_scopes && i < k->first[y + 1]; i++) {
		uint32_t m = k->reader[i];

		if ((g->nodes[m].op == OP_POW || g->nodes[m].op == OP_SQUARE) && g->nodes[m].nout && averages(k, node_outs(g, m)[0]))
			return true;
	}
	return false;
}

/* The source line of the function that node n's conversion stands in, as node m was called from it; NULL = m runs elsewhere, or there are none. */
static const struct frame *
line_beside(const struct casts *k, uint32_t m, uint32_t n)
{
	const struct node *x = &k->g->nodes[n], *y = &k->g->nodes[m];
	unsigned d = x->nframe - 1u;

	return x->nframe && y->nframe > d && casts_within_call(k, m, n) ? &k->g->frames[y->frame + d] : NULL;
}

static bool
on_its_line(const struct casts *k, uint32_t m, uint32_t n)
{
	const struct frame *a = line_beside(k, m, n), *b = line_beside(k, n, n);

	return a && a->line == b->line && a->text == b->text;
}

/* weight * x, to be returned: a parameter that is multiplied with what a node makes, at the end of a function as far as one can see. */
bool
casts_weighs(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];
	struct str line = x->nframe ? graph_str(g, g->frames[x->frame + x->nframe - 1].text) : S("");
	unsigned weights = 0, others = 0;

	if (x->op != OP_MUL || (line.n && !str_starts(line, S("return "))))
		return false;
	for (struct operands it = operands_of(g, n); operand_next(&it);) {
		weights += g->vals[it.val].kind == VAL_PARAM;
		others += g->vals[it.val].kind == VAL_NODE;
	}
	return weights == 1 && others == 1;
}

/* Does what node n makes go into a product with a weight only, and that nowhere to a conversion of the same call? */
static bool
is_weighed_only(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	uint32_t z = node_outs(g, n)[0], product = k->first[z] + 1 == k->first[z + 1] ? k->reader[k->first[z]] : 0, y = product ? node_outs(g, product)[0] : 0;

	if (!product || !casts_weighs(g, product))
		return false;
	for (uint32_t i = k->first[y]; i < k->first[y + 1]; i++)
		if (g->nodes[k->reader[i]].op == OP_TO && casts_same_call(k, k->reader[i], product))
			return false;
	return true;
}

enum { USE_LOOKED_AT = 1, USE_ON_ITS_LINE = 2, USE_SQUARED = 4 };

static unsigned
use_of(const struct casts *k, uint32_t conversion)
{
	const struct graph *g = k->g;
	uint32_t y = node_outs(g, conversion)[0];

	for (uint32_t i = k->first[y]; !(k->use[y] & USE_LOOKED_AT) && i < k->first[y + 1]; i++) {
		uint32_t m = k->reader[i];
		bool squares = (g->nodes[m].op == OP_POW || g->nodes[m].op == OP_SQUARE) && g->nodes[m].nout && averages(k, node_outs(g, m)[0]);

		k->use[y] |= (uint8_t)((on_its_line(k, m, conversion) ? USE_ON_ITS_LINE : 0) | (squares ? USE_SQUARED : 0));
	}
	return k->use[y] |= USE_LOOKED_AT;
}

/*
 * "variance = x.to(float32).pow(2).mean()" binds no name to x in fp32: a later line means x, although the exporter names what the conversion gave. Without
 * lines, a norm that converts nothing back squares alone what it converted: T5LayerNorm converts to the weight's dtype, if that is a narrow one.
 */
bool
casts_reads_past(const struct casts *k, uint32_t n, uint32_t conversion)
{
	if (k->g->nodes[conversion].op != OP_TO || !k->g->nodes[n].nout)
		return false;
	if (line_beside(k, n, conversion))
		return use_of(k, conversion) & USE_ON_ITS_LINE && !on_its_line(k, n, conversion);
	return k->g->nodes[n].op == OP_MUL && use_of(k, conversion) & USE_SQUARED && is_weighed_only(k, n);
}

/* ---- elementwise operators ------------------------------------------------------------------------------------------ */

static bool
is_elementwise(unsigned op)
{
	return op == OP_ADD || op == OP_SUB || op == OP_MUL || op == OP_DIV;
}

/* The other floating-point tensor that an elementwise operator reads beside v, if a node makes it; 0 = none, or it is no such operator. */
static uint32_t
partner(const struct graph *g, uint32_t n, uint32_t v)
{
	uint32_t found = 0;

	for (struct operands it = operands_of(g, n); is_elementwise(g->nodes[n].op) && operand_next(&it);)
		if (it.val != v && g->vals[it.val].kind == VAL_NODE && dtype_is_float(g->vals[it.val].dtype) && g->vals[it.val].rank)
			found = it.val;
	return found;
}

/* A parameter, or a buffer that is sent to another device, whose every reader adds or multiplies it with what is known by now not to have been converted up. */
bool
casts_meets_low(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	uint32_t y = node_outs(g, n)[0];
	unsigned kind = g->vals[node_args(g, n)->u.val].kind;

	if (kind != VAL_PARAM && kind != VAL_BUFFER)
		return false;
	for (uint32_t i = k->first[y]; i < k->first[y + 1]; i++) {
		uint32_t other = partner(g, k->reader[i], y);

		if (!other || g->vals[other].node >= n || k->up[g->vals[other].node])
			return false;
	}
	return k->first[y] < k->first[y + 1];
}

/* A conversion that did nothing in the file, back from fp32 that the same call made. */
static bool
is_back(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	const struct arg *x = node_args(g, n);

	return g->nodes[n].op == OP_TO && !k->up[n] && !(g->nodes[n].flags & (NF_UPCAST | NF_DOWNCAST | NF_ADDED)) && x->kind == ARG_VAL && g->vals[x->u.val].kind == VAL_NODE &&
	    g->vals[x->u.val].dtype == g->vals[node_outs(g, n)[0]].dtype && k->up[g->vals[x->u.val].node] && casts_same_call(k, n, g->vals[x->u.val].node);
}

static bool
is_operand_of_product(const struct casts *k, uint32_t y)
{
	for (uint32_t i = k->first[y]; i < k->first[y + 1]; i++)
		if (casts_wants_one_dtype(k->g->nodes[k->reader[i]].op))
			return true;
	return false;
}

void
casts_restore_wide(struct casts *k)
{
	struct graph *g = k->g;

	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t x, y = g->nodes[n].nout ? node_outs(g, n)[0] : 0;

		if (!y || !is_back(k, n) || !is_operand_of_product(k, y))
			continue;
		x = node_args(g, n)->u.val;
		for (uint32_t i = k->first[y]; i < k->first[y + 1]; i++) {
			uint32_t m = k->reader[i], other = partner(g, m, y);

			if (!other || !k->up[g->vals[other].node] || !casts_same_call(k, m, n))
				continue;
			for (struct operands it = operands_of(g, m); operand_next(&it);)
				if (it.val == y)
					*it.slot = x;
		}
	}
}
