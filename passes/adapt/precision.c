/* precision: which dtypes run. A pure precision replaces the file's main floating dtype; a mixed one means fp32 parameters under autocast. */
#include "../passes.h"

bool
pass_precision(struct analysis *a)
{
	static const uint8_t param[] = {DT_NONE, DT_FP32, DT_BF16, DT_FP16, DT_FP32, DT_FP32}, low[] = {DT_NONE, DT_NONE, DT_NONE, DT_NONE, DT_BF16, DT_FP16};
	static const uint8_t input[] = {DT_NONE, DT_FP32, DT_BF16, DT_FP16};
	int64_t p = a->r->v[RK_PRECISION].i, in = a->r->v[RK_INPUT_DTYPE].i;

	a->plan.param_dtype = p == PREC_FILE ? a->g->file_dtype : param[p];
	a->plan.low_dtype = low[p];
	a->plan.input_dtype = in ? input[in] : a->plan.param_dtype;
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
	if (x->kind == VAL_BUFFER && !(x->flags & VF_PERSISTENT))
		return x->dtype;
	return x->dtype == a->g->file_dtype ? a->plan.param_dtype : x->dtype;
}
