/*
 * FSDP: a unit's gradients become shards. They are copied into the input of a reduce-scatter, or put aside where a micro-batch does not
 * reduce; the output is what the shards have as .grad. FSDP1 concatenates the views' gradients first.
 */
#include "fsdp.h"

static uint32_t
grad_of(const struct shard *sh, uint32_t i)
{
	return tensor_at(sh->s, sh->x->params[i].tensor)->grad;
}

/* Without a reduction gradients wait in its dtype. */
void
fsdp_put_aside(struct shard *sh, struct fsdp *d, const struct unit *u)
{
	for (uint32_t k = 0; k < u->n; k++) {
		uint32_t i = u->params[k];

		if (grad_of(sh, i) && !d->wide[i] && d->reduce_dtype != d->dtype)
			d->wide[i] = flat_new(sh, (struct flat){param_numel(sh, i), d->reduce_dtype, FAC_GRAD, "unsharded_gradient", fsdp_shares_of(sh, i), false});
		if (d->wide[i])
			grad_drop(sh, sh->x->params[i].tensor);
	}
}

/* What waits takes the new gradient in; elements of the reduce-scatter, of all ranks. */
int64_t
fsdp_collect(struct shard *sh, struct fsdp *d, const struct unit *u)
{
	int64_t n = 0;

	for (uint32_t k = 0; k < u->n; k++) {
		uint32_t i = u->params[k];

		if (d->wide[i])
			grad_drop(sh, sh->x->params[i].tensor);
		d->reducing[i] = d->wide[i] || grad_of(sh, i);
		n += d->reducing[i] ? fsdp_shard_numel(sh, i) * sh->ways : 0;
	}
	return d->flat && n ? ceil_div(u->padded, sh->ways) * sh->ways : n;
}

static void
set_grad(struct shard *sh, uint32_t trained, uint32_t out)
{
	uint32_t p = trained ? sh->x->trained[trained - 1].tensor : 0, mark = temps_mark(sh->s);

	if (p && !tensor_at(sh->s, p)->grad) {
		uint32_t view = tensor_hold(sh->s, tensor_alias(sh->s, out, geom_at(sh->s, p), TF_VIEW));

		tensor_at(sh->s, p)->grad = view;
	}
	temps_release(sh->s, mark);
}

/* The output is the shards' .grad; where there is one it is added to that, and goes. */
static void
give_out(struct shard *sh, struct fsdp *d, const struct unit *u, uint32_t out)
{
	for (uint32_t k = 0; k < u->n && !d->flat; k++)
		if (d->reducing[u->params[k]])
			set_grad(sh, d->trained[u->params[k]], out);
	if (d->flat)
		set_grad(sh, u->trained, out);
}

static void
drop_unsharded(struct shard *sh, struct fsdp *d, const struct unit *u)
{
	for (uint32_t k = 0; k < u->n; k++) {
		grad_drop(sh, sh->x->params[u->params[k]].tensor);
		flat_drop(sh, &d->wide[u->params[k]]);
	}
}

static uint32_t
reduced(struct shard *sh, const struct fsdp *d, const struct unit *u, int64_t n)
{
	uint32_t out = flat_new(sh, (struct flat){n, d->reduce_dtype, FAC_GRAD, "reduce_scatter", u->shares, false}), cast;

	if (d->reduce_dtype == d->shard_dtype && !d->offload)
		return out;
	sh->s->offload = d->offload;
	cast = flat_new(sh, (struct flat){n, d->shard_dtype, FAC_GRAD, "sharded_gradient", u->shares, false});
	sh->s->offload = false;
	flat_drop(sh, &out);
	return cast;
}

/* FSDP1: the views' gradients become one in autograd, while the parameters are still whole. */
uint32_t
fsdp_flatten(struct shard *sh, struct fsdp *d, const struct unit *u, int64_t n)
{
	uint32_t flat = fsdp_buffer(sh, u, n, d->dtype, FAC_GRAD, "flat_gradient");

	drop_unsharded(sh, d, u);
	return flat;
}

/* It goes when the shard's gradient is there, and so does its cast. */
static void
reduce_flat(struct shard *sh, struct fsdp *d, const struct unit *u, int64_t n, uint32_t flat)
{
	uint32_t cast = 0, out;

	if (d->reduce_dtype != d->dtype)
		cast = fsdp_buffer(sh, u, n, d->reduce_dtype, FAC_GRAD, "reduce_scatter_input");
	out = reduced(sh, d, u, n / sh->ways);
	give_out(sh, d, u, out);
	flat_drop(sh, &flat);
	flat_drop(sh, &cast);
	flat_drop(sh, &out);
}

void
fsdp_reduce(struct shard *sh, struct fsdp *d, const struct unit *u, int64_t n, uint32_t flat)
{
	uint32_t out;

	if (d->flat) {
		reduce_flat(sh, d, u, n, flat);
		return;
	}
	d->root->input = fsdp_buffer(sh, u, n, d->reduce_dtype, FAC_GRAD, "reduce_scatter_input");
	drop_unsharded(sh, d, u);
	out = reduced(sh, d, u, n / sh->ways);
	give_out(sh, d, u, out);
	flat_drop(sh, &out);
}
