/*
 * ZeRO stage 3 (DeepSpeed's runtime/zero/stage3.py): each parameter is cut in as many shards as there are ranks. Those that train
 * lie in one flat buffer, frozen ones each in its own; gather.c says when a parameter is whole. Gradients are copied into the one
 * bucket of reduce_bucket elements, which is there all the time; it is reduced when the next does not fit, through an interleaved copy
 * (but a single gradient that the ranks divide evenly), into a buffer of this rank's shards, there all the time too. The step goes by
 * sub-groups: their gradients are concatenated and cast to fp32.
 */
#include "gather.h"

struct zero3 {
	struct zero z;
	struct gather *gather;
	uint32_t flat, ipg, grads; /* held */
	uint32_t *waiting, nwaiting;       /* parameters whose gradient is in the bucket, or counts for it */
	int64_t elements;
	struct sub_group {
		uint32_t first, n; /* of zero.trained */
		int64_t elements;
	} *groups;
	uint32_t ngroup;
};

static int64_t
shard_numel(const struct shard *sh, uint32_t i)
{
	return ceil_div(param_numel(sh, i), sh->ways);
}

/* ---- start ------------------------------------------------------------------------------------------------------ */

static void
make_groups(struct shard *sh, struct zero3 *d)
{
	int64_t limit = sh->s->r->v[RK_PARALLEL_SUB_GROUP].i;
	struct sub_group *g;

	d->groups = NEW(sh->s->c->a, struct sub_group, d->z.ntrained + 1);
	g = d->groups;
	for (uint32_t k = 0; k < d->z.ntrained; k++) {
		g->n++;
		g->elements += shard_numel(sh, d->z.trained[k]);
		if (g->elements >= limit || k + 1 == d->z.ntrained) {
			g++;
			g->first = k + 1;
		}
	}
	d->ngroup = (uint32_t)(g - d->groups);
}

static void
make_shards(struct shard *sh, struct zero3 *d)
{
	struct zero *z = &d->z;
	bool host = sh->s->r->v[RK_OFFLOAD_PARAM].i;

	sh->s->offload = host;
	for (uint32_t i = 0; i < sh->x->nparam; i++) {
		struct shares *one = shares_new(sh);

		if (param_trains(sh, i))
			continue;
		shares_add(sh, one, i);
		flat_new(sh, (struct flat){shard_numel(sh, i), param_dtype(sh, i), FAC_PARAM, "frozen_shard", one, false});
	}
	d->flat = flat_new(sh, (struct flat){z->part, z->dtype, FAC_PARAM, "flat_shards", z->mine, false});
	sh->s->offload = false;
}

static void
make_masters(struct shard *sh, struct zero3 *d)
{
	int64_t *elements = NEW(sh->s->c->a, int64_t, d->ngroup + 1);
	uint32_t cast = d->z.offload ? 0 : flat_new(sh, (struct flat){d->z.part, DT_FP32, FAC_OPT, "master_cast", d->z.mine, true});

	for (uint32_t k = 0; k < d->ngroup; k++)
		elements[k] = d->groups[k].elements;
	zero_masters(sh, &d->z, elements, d->ngroup);
	flat_drop(sh, &cast);
}

static void
start(struct shard *sh)
{
	struct zero3 *d = NEW(sh->s->c->a, struct zero3, 1);
	struct zero *z = &d->z;

	sh->own = d;
	zero_init(sh, z);
	z->all = shares_new(sh);
	z->mine = z->all;
	for (uint32_t k = 0; k < z->ntrained; k++) {
		z->part += shard_numel(sh, z->trained[k]);
		shares_add(sh, z->all, z->trained[k]);
	}
	d->waiting = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	make_groups(sh, d);
	make_shards(sh, d);
	make_masters(sh, d);
	d->ipg = flat_new(sh, (struct flat){z->bucket_limit, z->dtype, FAC_GRAD, "ipg_bucket", z->all, true});
	sh->s->offload = z->offload;
	d->grads = flat_new(sh, (struct flat){z->part, z->accum, FAC_GRAD, "partition_gradients", z->all, false});
	sh->s->offload = false;
	d->gather = gather_new(sh, sh->s->r->v[RK_OFFLOAD_PARAM].i);
}

/* ---- gradients ----------------------------------------------------------------------------------------------------- */

static void
reduce_scatter(struct shard *sh, struct zero3 *d)
{
	uint32_t copy = 0, cast = 0;
	int64_t n = 0;

	for (uint32_t k = 0; k < d->nwaiting; k++)
		n += shard_numel(sh, d->waiting[k]);
	if (d->nwaiting > 1 || n * sh->ways != param_numel(sh, d->waiting[0]))
		copy = flat_new(sh, (struct flat){n * sh->ways, d->z.dtype, FAC_GRAD, "reduce_scatter", d->z.all, true});
	if (d->z.accum != d->z.dtype)
		cast = flat_new(sh, (struct flat){n, d->z.accum, FAC_GRAD, "gradient_cast", d->z.all, true});
	flat_drop(sh, &copy);
	for (uint32_t k = 0; k < d->nwaiting; k++)
		grad_drop(sh, sh->x->params[d->waiting[k]].tensor);
	flat_drop(sh, &cast);
	d->nwaiting = 0;
	d->elements = 0;
}

static void
gradient(struct shard *sh, struct param *p)
{
	struct zero3 *d = sh->own;
	uint32_t i = sh->index[p->val] - 1;
	int64_t n = param_numel(sh, i);

	if (d->nwaiting && d->elements + n > d->z.bucket_limit)
		reduce_scatter(sh, d);
	if (d->elements + n <= d->z.bucket_limit)
		tensor_move(sh->s, tensor_at(sh->s, p->tensor)->grad, d->ipg);
	d->waiting[d->nwaiting++] = i;
	d->elements += n;
}

/* ---- turning points -------------------------------------------------------------------------------------------------- */

static void
forward_begin(struct shard *sh)
{
	struct zero3 *d = sh->own;

	gather_restart(d->gather);
}

static void
at(struct shard *sh, uint32_t node)
{
	struct zero3 *d = sh->own;

	gather_at(d->gather, node);
}

static void
forward_end(struct shard *sh)
{
	struct zero3 *d = sh->own;

	gather_leave(d->gather);
}

static void
backward_end(struct shard *sh)
{
	struct zero3 *d = sh->own;

	gather_release(d->gather, false);
	if (d->nwaiting)
		reduce_scatter(sh, d);
}

static void
norm(struct shard *sh, struct zero3 *d)
{
	for (uint32_t k = 0; k < d->z.ntrained; k++) {
		uint32_t t = flat_new(sh, (struct flat){shard_numel(sh, d->z.trained[k]), DT_FP64, FAC_GRAD, "grad_norm", d->z.all, true});

		flat_drop(sh, &t);
	}
}

static void
step(struct shard *sh)
{
	struct zero3 *d = sh->own;

	gather_release(d->gather, true);
	if (!d->z.offload)
		norm(sh, d);
	for (uint32_t k = 0; k < d->ngroup; k++) {
		uint32_t flat = 0, wide = 0;

		if (!d->z.offload)
			flat = flat_new(sh, (struct flat){d->groups[k].elements, d->z.accum, FAC_GRAD, "flatten", d->z.all, true});
		if (flat && d->z.accum != DT_FP32) {
			wide = zero_flat_grad(sh, &d->z, d->groups[k].elements, DT_FP32, "fp32_gradients");
			flat_drop(sh, &flat);
		}
		zero_update(sh, &d->z, k, wide ? wide : flat);
	}
	gather_persist(d->gather);
}

const struct strategy strategy_zero3 = {
	.name = "zero3", .one_optimizer = true, .away = true, .known = zero_known, .start = start, .forward_begin = forward_begin, .at = at, .forward_end = forward_end,
	.gradient = gradient, .backward_end = backward_end, .step = step,
};
