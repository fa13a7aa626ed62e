/*
 * ZeRO stages 1 and 2 (DeepSpeed's runtime/zero/stage_1_and_2.py, bf16_optimizer.py).
 *
 * Parameters that train are views of one flat buffer; each rank has an fp32 master of its part of it, and the optimizer's states.
 * Gradients are copied into a bucket of reduce_bucket elements, two buckets by turns with overlap_comm. When the next one does not
 * fit, the bucket is reduced, through a copy of it if it holds slices of several ranks, and the gradients of parameters that touch
 * this rank's part go to a buffer that has room for all of these, whole. Stage 2 does so in every hook; stage 1 with overlap_comm in
 * the hooks of the last micro-batch, else when its backward is over. The step concatenates the part's gradients and casts them.
 *
 * grad_accum_dtype other than the model's: stage 2 adds each gradient to a buffer of exactly this rank's part; stage 1 is
 * BF16_Optimizer, which keeps the gradients of all parameters in that dtype.
 */
#include "zero.h"

enum { ALL_REDUCE = 500000000 };   /* elements of one all-reduce of BF16_Optimizer */

struct zero12 {
	struct zero z;
	bool partition, compact, whole;    /* stage 2; it accumulates in another dtype; BF16_Optimizer */
	uint32_t flat, wide, scratch;      /* parameters; whole: every gradient; offload: one gradient; held */
	uint32_t ipg[2];           /* buckets, held */
	unsigned turn;
	uint32_t *waiting, nwaiting;       /* parameters in the bucket */
	int64_t elements;          /* in it */
	uint32_t fresh, kept;      /* this part's gradients: of this micro-batch, and added up; held */
	bool *arrived;             /* by parameter: a gradient has come to it */
	uint32_t *zeros;           /* by parameter: stands for one that never comes, held */
};

/* ---- start ------------------------------------------------------------------------------------------------------ */

static int64_t
largest(const struct shard *sh, const struct zero *z)
{
	int64_t n = 0;

	for (uint32_t k = 0; k < z->ntrained; k++)
		if (param_numel(sh, z->trained[k]) > n)
			n = param_numel(sh, z->trained[k]);
	return n;
}

static void
make_master(struct shard *sh, struct zero12 *d)
{
	uint32_t clone = flat_new(sh, (struct flat){d->z.part, d->z.dtype, FAC_OPT, "clone", d->z.mine, true}), dummy;

	zero_masters(sh, &d->z, &d->z.part, 1);
	flat_drop(sh, &clone);
	sh->s->offload = d->z.offload;
	dummy = flat_new(sh, (struct flat){d->z.part, DT_FP32, FAC_OPT, "zeros", d->z.mine, true});
	flat_drop(sh, &dummy);
	sh->s->offload = false;
}

static void
start(struct shard *sh)
{
	struct zero12 *d = NEW(sh->s->c->a, struct zero12, 1);
	struct zero *z = &d->z;

	sh->own = d;
	zero_init(sh, z);
	zero_offsets(sh, z, 2 * sh->ways);
	d->partition = sh->s->r->v[RK_PARALLEL_STRATEGY].i == ST_ZERO2;
	d->compact = d->partition && z->accum != z->dtype;
	d->whole = !d->partition && z->accum != z->dtype && !z->offload;
	d->waiting = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	d->arrived = NEW(sh->s->c->a, bool, sh->x->nparam + 1);
	d->zeros = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	d->flat = flat_new(sh, (struct flat){z->total, z->dtype, FAC_PARAM, "flat_parameters", z->all, false});
	for (uint32_t k = 0; k < z->ntrained; k++)
		tensor_move(sh->s, sh->x->params[z->trained[k]].tensor, d->flat);
	make_master(sh, d);
	if (d->whole)
		d->wide = flat_new(sh, (struct flat){z->total, z->accum, FAC_GRAD, "fp32_gradients", z->all, false});
	if (z->offload)
		d->scratch = flat_new(sh, (struct flat){largest(sh, z), z->dtype, FAC_GRAD, "offload_gradient", z->all, false});
}

/* ---- reduction -------------------------------------------------------------------------------------------------- */

struct slices {                    /* of a bucket, by the rank that they belong to; neighbours of one rank are one */
	int64_t rank, numel, limit;
	uint32_t n;
};

static void
copy_slices(struct shard *sh, struct zero12 *d, struct slices *s)
{
	uint32_t t = s->n > 1 ? flat_new(sh, (struct flat){s->numel, d->z.dtype, FAC_TRANSIENT, "bucket_copy", d->z.all, true}) : 0;

	flat_drop(sh, &t);
	*s = (struct slices){.rank = -1, .limit = s->limit};
}

/* A rank's slice goes out with the others, once they are more than a bucket. */
static void
add_slice(struct shard *sh, struct zero12 *d, struct slices *s, int64_t rank, int64_t numel)
{
	if (s->rank != rank && s->numel > s->limit)
		copy_slices(sh, d, s);
	s->n += s->rank != rank;
	s->rank = rank;
	s->numel += numel;
}

static void
all_reduce(struct shard *sh, struct zero12 *d)
{
	struct slices s = {.rank = -1, .limit = d->z.bucket_limit};

	for (uint32_t k = 0; k < d->nwaiting; k++) {
		int64_t at = d->z.offset[d->waiting[k]], end = at + param_numel(sh, d->waiting[k]);

		while (at < end) {
			int64_t rank = at / d->z.part, next = (rank + 1) * d->z.part < end ? (rank + 1) * d->z.part : end;

			add_slice(sh, d, &s, rank, next - at);
			at = next;
		}
	}
	copy_slices(sh, d, &s);
}

/* Room for every parameter that touches this rank's part, in whole. */
static uint32_t
part_buffer(struct shard *sh, const struct zero12 *d)
{
	int64_t n = 0, mine;

	if (d->compact)
		return zero_flat_grad(sh, &d->z, d->z.part, d->z.accum, "partition_gradients");
	for (uint32_t k = 0; k < d->z.ntrained; k++)
		if (zero_owns(sh, &d->z, d->z.trained[k], &mine))
			n += param_numel(sh, d->z.trained[k]);
	return zero_flat_grad(sh, &d->z, n, d->z.dtype, "partition_gradients");
}

static void
keep_own(struct shard *sh, struct zero12 *d, uint32_t i, int64_t mine)
{
	uint32_t var = sh->x->params[i].tensor, wide;

	if (d->z.offload) {
		grad_drop(sh, var);
		return;
	}
	if (d->compact) {
		if (!d->kept)
			d->kept = part_buffer(sh, d);
		wide = zero_flat_grad(sh, &d->z, mine, d->z.accum, "gradient_cast");
		flat_drop(sh, &wide);
		return;
	}
	if (!d->fresh)
		d->fresh = part_buffer(sh, d);
	tensor_move(sh->s, tensor_at(sh->s, var)->grad, d->fresh);
}

static void
flush(struct shard *sh, struct zero12 *d)
{
	int64_t mine;

	if (!d->nwaiting)
		return;
	all_reduce(sh, d);
	for (uint32_t k = 0; k < d->nwaiting; k++) {
		uint32_t i = d->waiting[k];

		if (zero_owns(sh, &d->z, i, &mine))
			keep_own(sh, d, i, mine);
		else if (d->partition)
			grad_drop(sh, sh->x->params[i].tensor);
	}
	d->nwaiting = 0;
	d->elements = 0;
	d->turn ^= d->z.overlap;
}

/* A gradient larger than a bucket stays where it is. */
static void
reduce(struct shard *sh, struct zero12 *d, uint32_t i)
{
	int64_t n = param_numel(sh, i);

	if (d->elements + n > d->z.bucket_limit)
		flush(sh, d);
	if (n <= d->z.bucket_limit)
		tensor_move(sh->s, tensor_at(sh->s, sh->x->params[i].tensor)->grad, d->ipg[d->turn]);
	d->waiting[d->nwaiting++] = i;
	d->elements += n;
}

static void
gradient(struct shard *sh, struct param *p)
{
	struct zero12 *d = sh->own;
	uint32_t i = sh->index[p->val] - 1;

	d->arrived[i] = true;
	if (d->whole)
		return;
	for (unsigned k = 0; k < (d->z.overlap ? 2u : 1u); k++)
		if (!d->ipg[k])
			d->ipg[k] = flat_new(sh, (struct flat){d->z.bucket_limit, d->z.dtype, FAC_GRAD, "ipg_bucket", d->z.all, true});
	if (d->partition || (d->z.overlap && sh->last))
		reduce(sh, d, i);
}

/* ---- the end of backward ------------------------------------------------------------------------------------------- */

static void
drop_grads(struct shard *sh, const struct zero12 *d)
{
	for (uint32_t k = 0; k < d->z.ntrained; k++)
		grad_drop(sh, sh->x->params[d->z.trained[k]].tensor);
}

/* Each gradient is cast and added to what is kept; before the step all of that is cast back, to be reduced in the model's dtype. */
static void
all_reduce_whole(struct shard *sh, struct zero12 *d)
{
	int64_t n = d->z.total < ALL_REDUCE ? d->z.total : ALL_REDUCE;
	uint32_t t;

	for (uint32_t k = 0; k < d->z.ntrained; k++) {
		t = flat_new(sh, (struct flat){param_numel(sh, d->z.trained[k]), d->z.accum, FAC_TRANSIENT, "gradient_cast", d->z.all, true});
		flat_drop(sh, &t);
	}
	t = sh->last ? flat_new(sh, (struct flat){n, d->z.dtype, FAC_TRANSIENT, "bucket_copy", d->z.all, true}) : 0;
	flat_drop(sh, &t);
}

/* Parameters that no gradient comes to get zeros, in whole, where they touch this rank's part; of a later micro-batch they are added, and go. */
static void
fill_missing(struct shard *sh, struct zero12 *d)
{
	int64_t mine;

	for (uint32_t k = 0; k < d->z.ntrained && !d->z.offload && !d->compact; k++) {
		uint32_t i = d->z.trained[k], t;

		if (d->arrived[i] || !zero_owns(sh, &d->z, i, &mine))
			continue;
		t = zero_flat_grad(sh, &d->z, param_numel(sh, i), d->z.dtype, "missing_gradient");
		if (d->zeros[i])
			flat_drop(sh, &t);
		else
			d->zeros[i] = t;
	}
}

static void
drop_missing(struct shard *sh, struct zero12 *d)
{
	for (uint32_t k = 0; k < d->z.ntrained; k++)
		flat_drop(sh, &d->zeros[d->z.trained[k]]);
}

static void
backward_end(struct shard *sh)
{
	struct zero12 *d = sh->own;

	if (d->whole) {
		all_reduce_whole(sh, d);
		return;
	}
	if (!d->partition && !sh->last)
		return;
	for (uint32_t k = 0; k < d->z.ntrained && !d->partition && !d->z.overlap; k++)
		if (tensor_at(sh->s, sh->x->params[d->z.trained[k]].tensor)->grad)
			reduce(sh, d, d->z.trained[k]);
	flush(sh, d);
	fill_missing(sh, d);
	drop_grads(sh, d);
	if (!d->kept) {
		d->kept = d->fresh;
		d->fresh = 0;
	}
	flat_drop(sh, &d->fresh);  /* added to what is kept */
	flat_drop(sh, &d->ipg[0]);
	flat_drop(sh, &d->ipg[1]);
	d->turn = 0;
}

/* ---- the step --------------------------------------------------------------------------------------------------------- */

/* The part's gradients in fp32, held. */
static uint32_t
step_gradients(struct shard *sh, struct zero12 *d)
{
	uint32_t flat, wide;

	if (d->compact) {
		wide = d->kept;
		d->kept = 0;
		return wide;
	}
	flat = flat_new(sh, (struct flat){d->z.part, d->z.dtype, FAC_TRANSIENT, "flatten", d->z.mine, true});
	if (d->z.dtype == DT_FP32) {
		flat_drop(sh, &d->kept);
		drop_missing(sh, d);
		return flat;
	}
	wide = zero_flat_grad(sh, &d->z, d->z.part, DT_FP32, "fp32_gradients");
	flat_drop(sh, &flat);
	flat_drop(sh, &d->kept);
	drop_missing(sh, d);
	return wide;
}

static void
step(struct shard *sh)
{
	struct zero12 *d = sh->own;

	if (d->z.offload) {
		zero_update(sh, &d->z, 0, 0);
		return;
	}
	if (d->whole) {
		zero_update(sh, &d->z, 0, tensor_hold(sh->s, d->wide));
		drop_grads(sh, d);
		return;
	}
	if (!d->kept)
		return;
	zero_norm(sh, &d->z);
	zero_update(sh, &d->z, 0, step_gradients(sh, d));
}

const struct strategy strategy_zero12 = {
	.name = "zero12", .one_optimizer = true, .known = zero_known, .start = start, .gradient = gradient, .backward_end = backward_end, .step = step,
};
