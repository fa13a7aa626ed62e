/*
 * bitsandbytes' Linear4bit and Linear8bitLt. Their autograd.Functions compute with a dequantised copy of the weight, in forward and again in
 * backward, and keep on ctx what they need: out of the tape's sight, so that checkpointing and offload do not see it.
 */
#include "lower.h"

enum { BLOCK = 64 };               /* weights that share one absmax */

/* ---- builders --------------------------------------------------------------------------------------------------- */

static bool
read_shape(struct call *c, int64_t *shape)
{
	if (call_ints(c, "shape", shape, 2) == 2 && shape[0] >= 0 && shape[1] >= 0)
		return true;
	return call_failed(c, "the weight's shape is missing");
}

/* The weight as a matrix of the operand's dtype. */
uint32_t
build_dequantized(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t shape[2];

	(void)n;
	return read_shape(c, shape) ? fresh_contiguous(c, 2, shape, dt ? dt : x[0].g->dtype) : 0;
}

/* absmax in fp32, of a weight whose absmax is itself quantised. */
uint32_t
build_block_scales(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	int64_t shape[2], blocks;

	(void)x, (void)n, (void)dt;
	if (!read_shape(c, shape) || !mul_i64(shape[0], shape[1], &blocks))
		return 0;
	blocks = blocks / BLOCK + (blocks % BLOCK != 0);
	return fresh_contiguous(c, 1, &blocks, DT_FP32);
}

uint32_t
build_projected(struct call *c, const struct operand *x, unsigned n, unsigned dt)
{
	struct geom out = *x[0].g;
	int64_t shape[2];

	(void)n;
	if (!read_shape(c, shape))
		return 0;
	if (!out.rank || out.dim[out.rank - 1] != shape[1]) {
		call_failed(c, "shapes do not fit");
		return 0;
	}
	out.dim[out.rank - 1] = shape[0];
	return fresh_contiguous(c, out.rank, out.dim, dt ? dt : out.dtype);
}

/* ---- 4 bits --------------------------------------------------------------------------------------------------------- */

static bool
has_operands(struct call *c, uint32_t x, uint32_t w)
{
	if (x && w && geom_at(c->s, x)->rank && geom_at(c->s, w)->rank == 2)
		return true;
	return call_failed(c, "an operand is missing");
}

/* Linear4bit.forward: the input and the bias in the compute dtype, the product, the result in the input's dtype. */
uint32_t
compose_LINEAR_4BIT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), w = call_tensor(c, "weight"), bias = call_tensor(c, "bias"), mark = temps_mark(s), t;
	unsigned dtype = call_dtype(c, "dtype"), before;

	if (!has_operands(c, x, w))
		return 0;
	before = geom_at(s, x)->dtype;
	x = cast(s, x, dtype ? dtype : before);
	bias = cast(s, bias, dtype ? dtype : before);
	if (call_bool(c, "nested"))
		t = CALL(s, MATMUL_4BIT_NESTED, V_TENSOR(x), V_TENSOR(bias), V_INTS(geom_at(s, w)->dim, 2));
	else
		t = CALL(s, MATMUL_4BIT, V_TENSOR(x), V_TENSOR(bias), V_INTS(geom_at(s, w)->dim, 2));
	return temps_keep(s, mark, cast(s, t, before));
}

/* ---- 8 bits ------------------------------------------------------------------------------------------------------------ */

/* int8_vectorwise_quant: a scale a row, the row in 8 bits, and where it is beyond the threshold. Then the product in int32, scaled to fp16. */
static void
quantise_and_multiply(struct call *c, uint32_t x, int64_t rows, int64_t columns)
{
	struct sim *s = c->s;
	struct geom g = *geom_at(s, x);
	int64_t dim[2] = {rows, columns};
	uint32_t half = cast(s, x, DT_FP16), magnitude, beyond;

	c->kernel = "int8_vectorwise_quant";
	fresh_contiguous(c, 1, &rows, DT_FP32);
	fresh_contiguous(c, g.rank, g.dim, DT_INT8);
	magnitude = fresh_contiguous(c, g.rank, g.dim, DT_FP16);
	beyond = fresh_contiguous(c, g.rank, g.dim, DT_BOOL);
	temps_drop(s, magnitude);
	temps_drop(s, beyond);
	if (half != x)
		temps_drop(s, half);
	c->kernel = "int8_scaled_mm";
	fresh_contiguous(c, 2, dim, DT_INT32);
	if (g.dtype != DT_FP16)
		fresh_contiguous(c, 2, dim, DT_FP16);
}

/* ctx.tensors = (None, subA, A): the input, as a matrix, in its own dtype. It goes with the node, not with the node's saved tensors. */
static void
keep_on_ctx(struct sim *s, uint32_t t, uint32_t input)
{
	uint32_t fn = tensor_at(s, t)->fn;

	if (fn && s->grad_on && fn_at(s, fn)->op == OP_MATMUL_8BIT)
		fn_at(s, fn)->ctx = tensor_hold(s, input);
}

uint32_t
compose_LINEAR_8BIT(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "input"), w = call_tensor(c, "weight"), mark = temps_mark(s), a = x, t;
	const struct geom *gx, *gw;
	int64_t rows[2];
	bool kept = s->grad_on;

	if (!has_operands(c, x, w))
		return 0;
	gx = geom_at(s, x);
	gw = geom_at(s, w);
	rows[1] = gx->dim[gx->rank - 1];
	rows[0] = rows[1] ? gx->numel / rows[1] : 0;
	s->grad_on = false;
	if (gx->rank == 3)
		a = do_reshape(s, x, 2, rows);
	quantise_and_multiply(c, a, rows[0], gw->dim[0]);
	s->grad_on = kept;
	t = CALL(s, MATMUL_8BIT, V_TENSOR(x), *call_arg(c, "bias"), V_INTS(gw->dim, 2));
	if (t)
		keep_on_ctx(s, t, a);
	return temps_keep(s, mark, t);
}
