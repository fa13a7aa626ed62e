/*
 * quantize: bitsandbytes' layers in the place of Linear modules whose weight is frozen, as transformers puts them there.
 *
 *     nf4          packed weight, n / 2 bytes; absmax, fp32 for each 64 elements; a table of 16 codes, a weight
 *     nf4-double   the same, absmax in 8 bits with an absmax of its own for each 256, and its mean; one table of 256 codes for all
 *     int8         weight, n bytes; SCB, fp32 for each row
 *
 * What stays as it is (get_keys_to_not_convert): tied weights, the output embedding, the last module. Embeddings, norms and biases are in the
 * precision's dtype: after prepare_model_for_kbit_training that is fp32, and training runs under autocast (bf16-mixed). DeepSpeed's engine converts
 * them to the low dtype; its stages 1 and 2 divide only what trains, so that packed weights are whole on every rank.
 */
#include "../passes.h"

enum { NONE, NF4, NF4_DOUBLE, INT8 };      /* the choices of the key */
enum { BLOCK = 64, NESTED_BLOCK = 256, CODES = 16, NESTED_CODES = 256 };

struct quantizer {
	struct analysis *a;
	struct graph *g;
	int64_t how;
	uint8_t dtype;             /* that Linear4bit computes in */
	uint32_t nested_code;      /* one table for all weights */
	uint32_t *uses, *linear_uses;      /* by value; of parameters: how often, and how often as a Linear's weight */
	uint32_t last, count;
	uint64_t elements;
};

/* ---- which weights ---------------------------------------------------------------------------------------------- */

static void
count_uses(struct quantizer *q)
{
	struct graph *g = q->g;

	q->uses = NEW(g->c->a, uint32_t, g->nval);
	q->linear_uses = NEW(g->c->a, uint32_t, g->nval);
	uses_count(g, q->uses);
	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct arg *w = g->nodes[n].op == OP_LINEAR ? node_arg(g, n, "weight") : NULL;

		if (w && w->kind == ARG_VAL)
			q->linear_uses[w->u.val]++;
	}
	for (uint32_t v = 1; v < g->nval; v++) {
		if (g->vals[v].kind != VAL_PARAM)
			continue;
		q->last = v;
		if (g->vals[v].tied)       /* nobody's own */
			q->linear_uses[v] = q->linear_uses[g->vals[v].tied] = 0;
	}
}

static bool
is_quantized(const struct quantizer *q, uint32_t w)
{
	const struct graph *g = q->g;
	const struct val *x = &g->vals[w];
	struct str name = graph_str(g, x->full);

	if (x->kind != VAL_PARAM || x->flags & VF_TRAINABLE || x->rank != 2 || !dtype_is_float(x->dtype) || !graph_is_sized(g, w))
		return false;
	if (!q->linear_uses[w] || q->linear_uses[w] != q->uses[w])
		return false;
	return w != q->last && str_ends(name, S(".weight")) && !str_ends(name, S("lm_head.weight"));
}

/* ---- its storage ---------------------------------------------------------------------------------------------------- */

static uint32_t
add_state(struct quantizer *q, uint32_t w, const char *suffix, unsigned dtype, unsigned rank, uint64_t n)
{
	struct graph *g = q->g;
	struct str full = str_fmt(g->c->a, "%.*s_%s", SFMT(graph_str(g, g->vals[w].full)), suffix);
	struct sint dim = SINT((int64_t)n);
	uint32_t v = val_new(g, VAL_BUFFER, full);

	g->vals[v].full = graph_name(g, full);
	g->vals[v].dtype = (uint8_t)dtype;
	g->vals[v].modality = g->vals[w].modality;
	val_shape(g, v, rank, &dim);
	return v;
}

static uint64_t
blocks_of(uint64_t n, uint64_t block)
{
	return n / block + (n % block != 0);
}

static uint32_t
add_states(struct quantizer *q, uint32_t w, uint64_t n, uint32_t *state)
{
	uint64_t rows = (uint64_t)val_dims(q->g, w)[0].n, blocks = blocks_of(n, BLOCK);

	if (q->how == INT8) {
		state[0] = add_state(q, w, "SCB", DT_FP32, 1, rows);
		return 1;
	}
	state[0] = add_state(q, w, "absmax", q->how == NF4 ? DT_FP32 : DT_UINT8, 1, blocks);
	state[1] = add_state(q, w, "quant_map", DT_FP32, 1, CODES);
	if (q->how == NF4)
		return 2;
	if (!q->nested_code)
		q->nested_code = add_state(q, w, "nested_quant_map", DT_FP32, 1, NESTED_CODES);
	state[2] = add_state(q, w, "nested_absmax", DT_FP32, 1, blocks_of(blocks, NESTED_BLOCK));
	state[3] = add_state(q, w, "nested_offset", DT_FP32, 0, 0);
	state[4] = q->nested_code;
	return 5;
}

/* The states of a weight that several calls use are made once: the list is the first call's. */
static struct arg
pack(struct quantizer *q, uint32_t w)
{
	struct graph *g = q->g;
	uint32_t state[5];
	uint64_t n;
	struct arg list = {.kind = ARG_VALS};

	if (!mul_u64((uint64_t)val_dims(g, w)[0].n, (uint64_t)val_dims(g, w)[1].n, &n))
		n = UINT64_MAX / 2;
	list.count = add_states(q, w, n, state);
	list.first = ids_add(g, state, list.count);
	g->vals[w].dtype = q->how == INT8 ? DT_INT8 : DT_UINT4;
	q->count++;
	q->elements += n;
	return list;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------------- */

static void
replace(struct quantizer *q, uint32_t n, struct arg state)
{
	struct graph *g = q->g;
	struct arg x = *node_arg(g, n, "input"), w = *node_arg(g, n, "weight"), *bias = node_arg(g, n, "bias"), none = {.kind = ARG_NONE};
	struct arg old_bias = bias ? *bias : none;
	unsigned op = q->how == INT8 ? OP_LINEAR_8BIT : OP_LINEAR_4BIT, narg = op_narg(op);
	struct arg *args;

	ROOM(g->c->a, g->args, g->narg, g->arg_cap, narg);
	args = g->args + g->narg;
	args[0] = x;
	args[1] = w;
	args[2] = state;
	args[3] = old_bias;
	if (op == OP_LINEAR_4BIT) {
		args[4] = arg_bool(q->how == NF4_DOUBLE);
		args[5] = arg_dtype(q->dtype);
	}
	g->nodes[n].op = (uint16_t)op;
	g->nodes[n].arg = g->narg;
	g->nodes[n].narg = narg;
	g->narg += narg;
}

static void
say(struct quantizer *q)
{
	struct analysis *a = q->a;
	static const char *const what[] = {"", "4 bits and an fp32 absmax for each 64", "4 bits and an 8-bit absmax for each 64", "8 bits and an fp32 scale a row"};

	assume(a, "quantize: %u frozen Linear weight%s (%llu elements) in %s; what bitsandbytes allocates is by formula, after its source, not compared with a run",
	    q->count, q->count == 1 ? "" : "s", (unsigned long long)q->elements, what[q->how]);
	if (q->how == INT8)
		assume(a, "quantize: no activation is beyond the threshold of outliers, which the data decides");
	if (!a->plan.low_dtype && a->plan.param_dtype != DT_FP32 && a->r->v[RK_PARALLEL_STRATEGY].i <= ST_DDP)
		assume(a, "quantize: norms, embeddings and the head are in %s; after prepare_model_for_kbit_training they are in fp32: --precision bf16-mixed",
		    dtype_info(a->plan.param_dtype)->name);
}

bool
pass_quantize(struct analysis *a)
{
	struct quantizer q = {.a = a, .g = a->g, .how = a->r->v[RK_QUANTIZE].i};
	int64_t how = a->r->v[RK_PARALLEL_STRATEGY].i;
	struct arg *state;
	uint32_t nval = a->g->nval;

	if (q.how == NONE)
		return true;
	if (how == ST_ZERO3 || how == ST_FSDP1 || how == ST_FSDP2)
		return diag(a->c, DIAG_NOT_MODELLED, "parallel.strategy", SFMT(str_fmt(a->c->a, "%.*s together with quantize", SFMT(a->r->v[RK_PARALLEL_STRATEGY].text))));
	if (a->r->v[RK_PARALLEL_TP].i > 1)
		return diag(a->c, DIAG_NOT_MODELLED, "parallel.tp", SFMT(str_fmt(a->c->a, "%.*s together with quantize", SFMT(a->r->v[RK_PARALLEL_TP].text))));
	q.dtype = a->plan.low_dtype ? a->plan.low_dtype : a->plan.param_dtype;
	count_uses(&q);
	state = NEW(a->c->a, struct arg, nval);
	for (uint32_t n = 1; n < a->g->nnode; n++) {
		const struct arg *w = a->g->nodes[n].op == OP_LINEAR ? node_arg(a->g, n, "weight") : NULL;

		if (!w || w->kind != ARG_VAL || (!state[w->u.val].count && !is_quantized(&q, w->u.val)))
			continue;
		if (!state[w->u.val].count)
			state[w->u.val] = pack(&q, w->u.val);
		replace(&q, n, state[w->u.val]);
	}
	if (q.count)
		say(&q);
	else
		diag(a->c, DIAG_NO_MATCH, "quantize", SFMT(S("*")), "frozen Linear weight");
	return true;
}
