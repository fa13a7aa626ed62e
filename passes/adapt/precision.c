/* precision: which dtypes run. A pure precision replaces the file's main floating dtype; a mixed one means fp32 parameters under autocast. */
#include "../passes.h"

/*
 * A strategy's own mixed precision stands in for autocast: DeepSpeed's model is in the low dtype, beside fp32 masters; FSDP's shards are in fp32 and
 * gathered in the low dtype.
 */
static void
use_strategy(struct analysis *a)
{
	int64_t how = a->r->v[RK_PARALLEL_STRATEGY].i;
	bool fsdp = how == ST_FSDP1 || how == ST_FSDP2;

	if (!a->plan.low_dtype || how == ST_NONE || how == ST_DDP)
		return;
	a->plan.shard_dtype = fsdp ? a->plan.param_dtype : DT_NONE;
	a->plan.param_dtype = a->plan.low_dtype;
	a->plan.low_dtype = DT_NONE;
	assume(a, fsdp ? "fsdp: mixed precision is FSDP's own policy, not autocast" : "zero: mixed precision is DeepSpeed's own: the model in the low dtype, fp32 masters");
}

/*
 * A table from which nothing but index_select takes rows (an embedding, in ONNX) is one of positions, made in the default dtype as parameters are (M2M100, XGLM, speech models):
 * what is computed in fp32 on purpose goes through arithmetic of its own.
 */
static void
find_position_tables(struct analysis *a)
{
	struct graph *g = a->g;
	bool *other = NEW(a->c->a, bool, g->nval), *rows = NEW(a->c->a, bool, g->nval);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if ((g->nodes[n].op == OP_INDEX_SELECT || g->nodes[n].op == OP_EMBEDDING) && node_args(g, n)->u.val == it.val)
				rows[it.val] = true;
			else
				other[it.val] = true;
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind == VAL_BUFFER && rows[v] && !other[v])
			g->vals[v].flags |= VF_DEFAULT_DTYPE;
}

bool
pass_precision(struct analysis *a)
{
	static const uint8_t param[] = {DT_NONE, DT_FP32, DT_BF16, DT_FP16, DT_FP32, DT_FP32}, low[] = {DT_NONE, DT_NONE, DT_NONE, DT_NONE, DT_BF16, DT_FP16};
	static const uint8_t input[] = {DT_NONE, DT_FP32, DT_BF16, DT_FP16};
	int64_t p = a->r->v[RK_PRECISION].i, in = a->r->v[RK_INPUT_DTYPE].i;

	a->plan.param_dtype = p == PREC_FILE ? a->g->file_dtype : param[p];
	a->plan.low_dtype = low[p];
	use_strategy(a);
	find_position_tables(a);
	a->plan.input_dtype = in ? input[in] : a->plan.shard_dtype ? a->plan.shard_dtype : a->plan.param_dtype;
	return true;
}

/* A float buffer that is not in the state dict is made by the model's code in a dtype of its own; all else follows the parameters. */
unsigned
analysis_dtype(const struct analysis *a, uint32_t v)
{
	const struct val *x = &a->g->vals[v];

	if (!dtype_is_float(x->dtype) || x->flags & VF_ADAPTER || x->kind == VAL_CONST)
		return x->dtype;
	if (x->kind == VAL_INPUT)
		return x->flags & VF_LABELS ? x->dtype : a->plan.input_dtype;
	if (x->kind == VAL_BUFFER && !(x->flags & (VF_PERSISTENT | VF_DEFAULT_DTYPE)))
		return x->dtype;
	if (x->kind == VAL_BUFFER && a->plan.shard_dtype && x->dtype == a->g->file_dtype)
		return a->plan.shard_dtype;
	return x->dtype == a->g->file_dtype ? a->plan.param_dtype : x->dtype;
}
