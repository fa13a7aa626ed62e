/*
 * infer: what a result may look like that no row gives a size. Without one everything behind it would have none either, and most operators
 * keep the shape of what they are given: an operator that has no row is taken to do so, and an elementwise one whose operands do not go together
 * makes what the known ones say. Neither is silent: guessed values are counted apart, and the answer stays a lower bound.
 */
#include "infer.h"

#include <string.h>

/* Does the row make one result, of the operands' common shape? */
static const struct insn *
elementwise(struct infer *f, uint32_t n)
{
	static const uint8_t kinds[] = {BUILD_ew, BUILD_truediv, BUILD_where, BUILD_broadcast, BUILD_clamp, BUILD_like, BUILD_unary};
	unsigned op = f->g->nodes[n].op;
	const struct op_code *code = op && !op_is_onnx(op) ? op_code(f->s, op) : NULL;

	if (!code || code->nout != 1 || code->out[0].n != 1)
		return NULL;
	for (size_t i = 0; i < sizeof kinds; i++)
		if (code->insn[code->out[0].first].build == kinds[i])
			return &code->insn[code->out[0].first];
	return NULL;
}

/* The largest operand that has a size; one that is no guess, if there is such a one. */
static uint32_t
largest(struct infer *f, uint32_t n)
{
	uint32_t best = 0;
	bool guessed = true;

	for (struct operands it = operands_of(f->g, n); operand_next(&it);) {
		uint32_t t = infer_tensor(f, it.val);
		bool g = f->g->vals[it.val].guessed;

		if (!t || (best && g && !guessed))
			continue;
		if (!best || (guessed && !g) || geom_at(f->s, t)->numel > geom_at(f->s, best)->numel) {
			best = t;
			guessed = g;
		}
	}
	return best;
}

/* Of an operator's operands the one that its result is most likely to look like: the first of real numbers, else the first. */
uint32_t
value_looked_like(const struct graph *g, uint32_t n)
{
	uint32_t first = 0;

	for (struct operands it = operands_of(g, n); operand_next(&it);) {
		if (dtype_is_float(g->vals[it.val].dtype))
			return it.val;
		first = first ? first : it.val;
	}
	return first;
}

static uint32_t
with_dtype(struct infer *f, uint32_t t, unsigned dtype)
{
	struct geom g = *geom_at(f->s, t);

	if (!dtype || dtype == g.dtype)
		return t;
	g.dtype = (uint8_t)dtype;
	return tensor_new(f->s, geom_intern(f->s->geoms, g), "guessed");
}

uint32_t
infer_guess(struct infer *f, uint32_t n)
{
	const struct insn *x = elementwise(f, n);
	uint32_t t;

	if (x) {
		t = largest(f, n);
		return t ? with_dtype(f, t, x->dtype) : 0;
	}
	if (f->g->nodes[n].op)
		return 0;
	t = value_looked_like(f->g, n);
	return t ? infer_tensor(f, t) : 0;
}

static bool
same_dims(const struct geom *a, const struct geom *b)
{
	return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0;
}

bool
infer_doubtful(struct infer *f, uint32_t n, uint32_t t)
{
	bool guessed = false, agrees = false;

	for (struct operands it = operands_of(f->g, n); operand_next(&it);) {
		uint32_t x = f->g->vals[it.val].guessed ? 0 : infer_tensor(f, it.val);

		guessed |= f->g->vals[it.val].guessed;
		agrees |= x && same_dims(geom_at(f->s, x), geom_at(f->s, t));
	}
	return guessed && !(agrees && elementwise(f, n));
}
