/*
 * Compositions: what inference puts in the place of nn.TransformerEncoderLayer and nn.MultiheadAttention. The kernels have no backward: training
 * runs the modules' own operators, which are written here in the order of F.multi_head_attention_forward, batch first.
 */
#include "lower.h"

static uint32_t
linear(struct sim *s, uint32_t x, uint32_t weight, uint32_t bias)
{
	return CALL(s, LINEAR, V_TENSOR(x), V_TENSOR(weight), V_TENSOR(bias));
}

struct heads {
	struct sim *s;
	int64_t batch, length, embed, heads, each;
	uint32_t q, k, v;
};

/* [L, B, E] to [B heads, L, E / heads] */
static uint32_t
by_head(const struct heads *h, uint32_t x, int64_t length)
{
	int64_t view[3] = {length, h->batch * h->heads, h->each};

	return do_transpose(h->s, do_view(h->s, x, 3, view), 0, 1);
}

/* One projection of queries, keys and values that are the same: cut into three and copied once. */
static void
project_same(struct heads *h, uint32_t x, uint32_t weight, uint32_t bias)
{
	struct sim *s = h->s;
	int64_t three[2] = {3, h->embed};
	uint32_t mark = temps_mark(s), t, part[3];

	t = linear(s, do_transpose(s, x, 1, 0), weight, bias);
	t = CALL(s, UNSQUEEZE, V_TENSOR(CALL(s, UNFLATTEN, V_TENSOR(t), V_INT(-1), V_INTS(three, 2))), V_INT(0));
	t = CALL(s, CONTIGUOUS, V_TENSOR(CALL(s, SQUEEZE, V_TENSOR(do_transpose(s, t, 0, -2)), V_INT(-2))));
	t = temps_keep(s, mark, t);
	for (unsigned i = 0; i < 3; i++)
		part[i] = by_head(h, CALL(s, SELECT, V_TENSOR(t), V_INT(0), V_INT(i)), h->length);
	h->q = part[0];
	h->k = part[1];
	h->v = part[2];
}

/* Each by its own rows of the weight. */
static void
project_each(struct heads *h, const uint32_t *x, uint32_t weight, uint32_t bias)
{
	struct sim *s = h->s;
	uint32_t part[3];

	for (unsigned i = 0; i < 3; i++) {
		struct value from = V_INT(i * h->embed), to = V_INT((i + 1) * h->embed);
		uint32_t w = CALL(s, SLICE, V_TENSOR(weight), V_INT(0), from, to, V_INT(1));
		uint32_t b = bias ? CALL(s, SLICE, V_TENSOR(bias), V_INT(0), from, to, V_INT(1)) : 0;

		part[i] = by_head(h, linear(s, do_transpose(s, x[i], 1, 0), w, b), geom_at(s, x[i])->dim[1]);
	}
	h->q = part[0];
	h->k = part[1];
	h->v = part[2];
}

static uint32_t
four_dims(const struct heads *h, uint32_t t)
{
	int64_t view[4] = {h->batch, h->heads, geom_at(h->s, t)->dim[1], h->each};

	return do_view(h->s, t, 4, view);
}

/* A mask of the keys stands in the last dim. */
static uint32_t
mask_for(const struct heads *h, uint32_t mask)
{
	const struct geom *g = mask ? geom_at(h->s, mask) : NULL;
	int64_t view[4] = {h->batch, 1, 1, g && g->rank == 2 ? g->dim[1] : 0};

	if (!g || g->rank != 2 || g->dim[0] != h->batch || g->dim[0] == h->length)
		return mask;
	return do_view(h->s, mask, 4, view);
}

/* [B heads, L, E / heads] to [B, L, E] through the last projection */
static uint32_t
merge_heads(const struct heads *h, uint32_t t, uint32_t weight, uint32_t bias)
{
	struct sim *s = h->s;
	int64_t flat[2] = {geom_times(h->length, h->batch), h->embed}, view[3] = {h->length, h->batch, h->embed};

	t = linear(s, do_reshape(s, t, 2, flat), weight, bias);
	return t ? do_transpose(s, do_view(s, t, 3, view), 1, 0) : 0;
}

static uint32_t
attend(const struct heads *h, uint32_t mask)
{
	static const int64_t order[] = {2, 0, 1, 3};
	struct sim *s = h->s;
	uint32_t t = CALL(s, SDPA, V_TENSOR(four_dims(h, h->q)), V_TENSOR(four_dims(h, h->k)), V_TENSOR(four_dims(h, h->v)), V_TENSOR(mask_for(h, mask)));

	return t ? CALL(s, PERMUTE, V_TENSOR(t), V_INTS(order, 4)) : 0;
}

/* With the weights as a result they are computed one by one. */
static uint32_t
attend_openly(const struct heads *h, uint32_t mask, uint32_t *weights)
{
	struct sim *s = h->s;
	struct value q = V_TENSOR(CALL(s, MUL, V_TENSOR(h->q), V_FLOAT(0.1))), k = V_TENSOR(do_transpose(s, h->k, -2, -1));
	uint32_t t = CALL(s, BMM, q, k);

	if (mask)
		t = CALL(s, ADD, V_TENSOR(t), V_TENSOR(mask));
	*weights = CALL(s, SOFTMAX, V_TENSOR(t), V_INT(-1));
	t = CALL(s, BMM, V_TENSOR(*weights), V_TENSOR(h->v));
	return t ? do_transpose(s, t, 0, 1) : 0;
}

static bool
heads_of(struct call *c, struct heads *h, uint32_t x, int64_t heads, uint32_t weight)
{
	const struct geom *g = x ? geom_at(c->s, x) : NULL;

	if (!g || g->rank != 3 || !weight || heads < 1 || g->dim[2] % heads)
		return call_failed(c, "operands do not fit together");
	*h = (struct heads){.s = c->s, .batch = g->dim[0], .length = g->dim[1], .embed = g->dim[2], .heads = heads, .each = g->dim[2] / heads};
	return true;
}

uint32_t
compose_NATIVE_MHA(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x[3] = {call_tensor(c, "query"), call_tensor(c, "key"), call_tensor(c, "value")}, weight = call_tensor(c, "qkv_weight"), bias = call_tensor(c, "qkv_bias");
	uint32_t weights = 0, out[2];
	int64_t none = 0;
	bool average = call_bool(c, "average_attn_weights"), open = call_bool(c, "need_weights");
	struct heads h;

	if (!heads_of(c, &h, x[0], call_int(c, "num_head", 0), weight) || !x[1] || !x[2])
		return 0;
	if (x[0] == x[1] && x[1] == x[2])
		project_same(&h, x[0], weight, bias);
	else
		project_each(&h, x, weight, bias);
	out[0] = open ? attend_openly(&h, call_tensor(c, "mask"), &weights) : attend(&h, call_tensor(c, "mask"));
	out[0] = out[0] ? merge_heads(&h, out[0], call_tensor(c, "proj_weight"), call_tensor(c, "proj_bias")) : 0;
	out[1] = weights;
	if (weights) {
		int64_t view[4] = {h.batch, h.heads, h.length, geom_at(s, weights)->dim[2]}, head = 1;

		out[1] = do_view(s, weights, 4, view);
		out[1] = average ? CALL(s, MEAN, V_TENSOR(out[1]), V_INTS(&head, 1)) : out[1];
	}
	if (out[0] && !open)
		out[1] = CALL(s, NEW_ZEROS, V_TENSOR(out[0]), V_INTS(&none, 1));
	return call_results(c, out, 2);
}

static uint32_t
norm(struct call *c, uint32_t x, const char *weight, const char *bias)
{
	const struct geom *g = x ? geom_at(c->s, x) : NULL;

	return g && g->rank ? CALL(c->s, LAYER_NORM, V_TENSOR(x), V_INTS(&g->dim[g->rank - 1], 1), V_TENSOR(call_tensor(c, weight)), V_TENSOR(call_tensor(c, bias))) : 0;
}

static uint32_t
self_attention(struct call *c, uint32_t x)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t;
	struct heads h;

	if (!heads_of(c, &h, x, call_int(c, "num_heads", 0), call_tensor(c, "qkv_weight")))
		return 0;
	project_same(&h, x, call_tensor(c, "qkv_weight"), call_tensor(c, "qkv_bias"));
	t = attend(&h, call_tensor(c, "mask"));
	return temps_keep(s, mark, t ? merge_heads(&h, t, call_tensor(c, "proj_weight"), call_tensor(c, "proj_bias")) : 0);
}

static uint32_t
feed_forward(struct call *c, uint32_t x)
{
	struct sim *s = c->s;
	uint32_t mark = temps_mark(s), t = linear(s, x, call_tensor(c, "ffn_weight_1"), call_tensor(c, "ffn_bias_1"));

	t = temps_keep(s, mark, t ? call_bool(c, "use_gelu") ? CALL(s, GELU, V_TENSOR(t)) : CALL(s, RELU, V_TENSOR(t)) : 0);
	return temps_keep(s, mark, t ? linear(s, t, call_tensor(c, "ffn_weight_2"), call_tensor(c, "ffn_bias_2")) : 0);
}

/* x + attention(x), then + feed-forward; each norm in front of its part or behind its sum */
uint32_t
compose_ENCODER_LAYER(struct call *c)
{
	struct sim *s = c->s;
	uint32_t x = call_tensor(c, "src"), mark = temps_mark(s), t;
	bool first = call_bool(c, "norm_first");

	t = self_attention(c, first ? norm(c, x, "norm_weight_1", "norm_bias_1") : x);
	if (!t)
		return temps_keep(s, mark, 0);
	x = temps_keep(s, mark, CALL(s, ADD, V_TENSOR(x), V_TENSOR(t)));
	if (!first)
		x = temps_keep(s, mark, norm(c, x, "norm_weight_1", "norm_bias_1"));
	t = feed_forward(c, first ? norm(c, x, "norm_weight_2", "norm_bias_2") : x);
	if (!t)
		return temps_keep(s, mark, 0);
	x = temps_keep(s, mark, CALL(s, ADD, V_TENSOR(x), V_TENSOR(t)));
	return first ? x : temps_keep(s, mark, norm(c, x, "norm_weight_2", "norm_bias_2"));
}
