/* ZeRO: keys, the flat order of parameters, fp32 masters and the optimizer's step on one rank's part. */
#include "zero.h"

bool
zero_known(struct analysis *a)
{
	struct recipe_value *v = a->r->v;

	if (v[RK_OFFLOAD_PARAM].i && v[RK_PARALLEL_STRATEGY].i != ST_ZERO3)
		return diag(a->c, DIAG_BAD_VALUE, "offload.param", SFMT(v[RK_OFFLOAD_PARAM].text), "true only with zero3, fsdp1 or fsdp2");
	if (v[RK_PARALLEL_REDUCE_BUCKET].i < 1)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.reduce_bucket", SFMT(v[RK_PARALLEL_REDUCE_BUCKET].text), "a whole number from 1");
	assume(a, "zero: this is rank 0, which owns the first parameters; contiguous gradients; one parameter group");
	if (v[RK_OFFLOAD_OPTIMIZER].i)
		assume(a, "zero: masters and optimizer states are on the host; gradients go there in backward, parameters come back in step; by DeepSpeed's source, not a run of it");
	if (v[RK_OFFLOAD_PARAM].i)
		assume(a, "zero3: shards are on the host and come to the device when they are gathered; by DeepSpeed's source, not a run of it");
	return true;
}

void
zero_init(struct shard *sh, struct zero *z)
{
	static const uint8_t dtypes[] = {DT_NONE, DT_FP32, DT_BF16, DT_FP16};
	const struct recipe_value *v = sh->s->r->v;
	int64_t overlap = v[RK_PARALLEL_OVERLAP_COMM].i;

	z->offset = NEW(sh->s->c->a, int64_t, sh->x->nparam + 1);
	z->trained = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	for (uint32_t i = 0; i < sh->x->nparam; i++)
		if (param_trains(sh, i))
			z->trained[z->ntrained++] = i;
	z->dtype = z->ntrained ? param_dtype(sh, z->trained[0]) : DT_FP32;
	z->accum = v[RK_PARALLEL_GRAD_ACCUM_DTYPE].i ? dtypes[v[RK_PARALLEL_GRAD_ACCUM_DTYPE].i] : z->dtype;
	z->bucket_limit = v[RK_PARALLEL_REDUCE_BUCKET].i;
	z->overlap = overlap == 2 || (overlap == 0 && v[RK_PARALLEL_STRATEGY].i == ST_ZERO3);
	z->offload = v[RK_OFFLOAD_OPTIMIZER].i;
	for (uint32_t k = 1; k < z->ntrained; k++)
		if (param_dtype(sh, z->trained[k]) != z->dtype)
			assume(sh->x->a, "zero: all trained parameters lie in one flat buffer of the first one's dtype");
}

/* Parameters one after the other, the end padded to a multiple; this rank has the first part. */
void
zero_offsets(struct shard *sh, struct zero *z, int64_t align)
{
	int64_t at = 0, mine;

	z->all = shares_new(sh);
	z->mine = shares_new(sh);
	for (uint32_t k = 0; k < z->ntrained; k++) {
		z->offset[z->trained[k]] = at;
		at += param_numel(sh, z->trained[k]);
		shares_add(sh, z->all, z->trained[k]);
	}
	z->total = ceil_div(at, align) * align;
	z->part = z->total / sh->ways;
	for (uint32_t k = 0; k < z->ntrained; k++)
		if (zero_owns(sh, z, z->trained[k], &mine))
			shares_add_part(sh, z->mine, z->trained[k], mine);
}

/* How much of a parameter lies in this rank's part. */
bool
zero_owns(const struct shard *sh, const struct zero *z, uint32_t i, int64_t *elements)
{
	int64_t end = z->offset[i] + param_numel(sh, i);

	*elements = (end < z->part ? end : z->part) - z->offset[i];
	return *elements > 0;
}

/* What the optimizer sees as parameters: this rank's part in fp32, in one piece or several. */
void
zero_masters(struct shard *sh, struct zero *z, const int64_t *elements, uint32_t n)
{
	struct step *x = sh->x;

	x->trained = NEW(sh->s->c->a, struct param, n + 1);
	x->ntrained = 0;
	sh->s->offload = z->offload;
	for (uint32_t k = 0; k < n; k++) {
		uint32_t t = flat_new(sh, (struct flat){elements[k], DT_FP32, FAC_OPT, "fp32_master", z->mine, false});

		if (!t)
			continue;
		tensor_at(sh->s, t)->flags |= TF_GRAD | TF_LEAF;
		x->trained[x->ntrained++].tensor = t;
	}
	sh->s->offload = false;
}

uint32_t
zero_flat_grad(struct shard *sh, const struct zero *z, int64_t numel, unsigned dtype, const char *op)
{
	return flat_new(sh, (struct flat){numel, dtype, FAC_GRAD, op, z->mine, false});
}

/* The norm is taken in fp64, of one gradient after the other. */
void
zero_norm(struct shard *sh, const struct zero *z)
{
	for (uint32_t k = 0; k < z->ntrained; k++) {
		int64_t mine;
		uint32_t t;

		if (!zero_owns(sh, z, z->trained[k], &mine))
			continue;
		t = flat_new(sh, (struct flat){mine, DT_FP64, FAC_GRAD, "grad_norm", z->mine, true});
		flat_drop(sh, &t);
	}
}

void
zero_update(struct shard *sh, struct zero *z, uint32_t k, uint32_t grad)
{
	uint32_t master = k < sh->x->ntrained ? sh->x->trained[k].tensor : 0;

	if (!master) {
		tensor_drop(sh->s, grad);
		return;
	}
	sh->s->offload = z->offload;
	if (!grad)                 /* on the host */
		grad = zero_flat_grad(sh, z, geom_at(sh->s, master)->numel, DT_FP32, "fp32_gradients");
	tensor_at(sh->s, master)->grad = grad;
	optimizer_step(sh->x);
	sh->s->offload = false;
	grad_drop(sh, master);
}
