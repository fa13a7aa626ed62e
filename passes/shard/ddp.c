/*
 * DistributedDataParallel (torch/nn/parallel/distributed.py, csrc/distributed/c10d/reducer.cpp).
 *
 * The gradients of the parameters lie a second time in buckets, from the constructor on. In the first step there is one bucket a
 * dtype; before the second step's forward they are made anew in the order in which gradients arrived, the first one closed when it
 * has 1 MiB, the others when they have 25 MiB. With bucket views a .grad is a view of its bucket: what autograd made is copied into
 * it and released. Micro-batches but the last run under no_sync, where .grad is autograd's own tensor even with bucket views.
 */
#include "shard.h"

enum { FIRST_BUCKET = 1 << 20, BUCKET = 25 << 20, BROADCAST = 250 << 20, IN_FLIGHT = 2 };

struct ddp {
	uint32_t *bucket;          /* by parameter: the bucket's tensor */
	uint32_t *held;         uint32_t nheld, held_cap;        /* every bucket once, held */
	uint32_t *arrived;      uint32_t narrived;               /* parameters */
	bool *seen;                /* parameters that arrived */
	bool rebuilt, views;
};

struct bucket {                    /* one that is being filled */
	int64_t numel;
	uint64_t bytes;
	uint32_t *params, nparam;
	struct shares *shares;
};

static void
open_bucket(struct shard *sh, struct bucket *b)
{
	*b = (struct bucket){.shares = shares_new(sh), .params = NEW(sh->s->c->a, uint32_t, sh->x->nparam)};
}

static void
add(struct shard *sh, struct bucket *b, uint32_t i)
{
	if (!b->params)
		open_bucket(sh, b);
	b->numel += param_numel(sh, i);
	b->bytes += dtype_bytes(param_dtype(sh, i), (uint64_t)param_numel(sh, i));
	b->params[b->nparam++] = i;
	shares_add(sh, b->shares, i);
}

static void
close_bucket(struct shard *sh, struct bucket *b, unsigned dtype)
{
	struct ddp *d = sh->own;
	uint32_t t = b->numel ? flat_new(sh, (struct flat){b->numel, dtype, FAC_GRAD, "ddp_bucket", b->shares, false}) : 0;

	if (t) {
		ROOM(sh->s->c->a, d->held, d->nheld, d->held_cap, 1);
		d->held[d->nheld++] = t;
	}
	for (uint32_t i = 0; i < b->nparam; i++)
		d->bucket[b->params[i]] = t;
	*b = (struct bucket){0};
}

/* Buckets over parameters in the given order, each dtype its own. */
static void
make_buckets(struct shard *sh, const uint32_t *order, uint32_t n, bool limited)
{
	struct bucket open[DT_COUNT] = {{0}};
	uint64_t limit[DT_COUNT];

	for (unsigned dt = 0; dt < DT_COUNT; dt++)
		limit[dt] = limited ? FIRST_BUCKET : UINT64_MAX;
	for (uint32_t k = 0; k < n; k++) {
		unsigned dt = param_dtype(sh, order[k]);

		add(sh, &open[dt], order[k]);
		if (open[dt].bytes >= limit[dt]) {
			close_bucket(sh, &open[dt], dt);
			limit[dt] = BUCKET;
		}
	}
	for (unsigned dt = 0; dt < DT_COUNT; dt++)
		if (open[dt].nparam)
			close_bucket(sh, &open[dt], dt);
}

/* Rank 0's parameters go to the others through flat copies, of which two are under way at a time. */
static void
broadcast(struct shard *sh)
{
	struct bucket open[DT_COUNT] = {{0}};
	uint32_t flight[IN_FLIGHT] = {0}, at = 0;

	for (uint32_t i = 0; i <= sh->x->nparam; i++)
		for (unsigned dt = i < sh->x->nparam ? param_dtype(sh, i) : 0; dt < DT_COUNT; dt++) {
			bool rest = i == sh->x->nparam;

			if (!rest)
				add(sh, &open[dt], i);
			if (open[dt].nparam && (rest || open[dt].bytes >= BROADCAST)) {
				flat_drop(sh, &flight[at]);
				flight[at] = flat_new(sh, (struct flat){open[dt].numel, dt, FAC_PARAM, "ddp_broadcast", open[dt].shares, true});
				at = (at + 1) % IN_FLIGHT;
				open[dt] = (struct bucket){0};
			}
			if (!rest)
				break;
		}
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		flat_drop(sh, &flight[(at + i) % IN_FLIGHT]);
}

static void
start(struct shard *sh)
{
	struct ddp *d = NEW(sh->s->c->a, struct ddp, 1);
	uint32_t *order = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1), n = 0;

	sh->own = d;
	d->bucket = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	d->arrived = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	d->seen = NEW(sh->s->c->a, bool, sh->x->nparam + 1);
	d->views = sh->s->r->v[RK_PARALLEL_BUCKET_VIEW].i;
	broadcast(sh);
	for (uint32_t i = 0; i < sh->x->nparam; i++)
		if (param_trains(sh, i))
			order[n++] = i;
	make_buckets(sh, order, n, false);
	assume(sh->x->a, "ddp: all parameters take part in every step (no find_unused_parameters), and micro-batches but the last run under no_sync");
}

static void
forward_begin(struct shard *sh)
{
	struct ddp *d = sh->own;

	if (sh->step < 2 || d->rebuilt)
		return;
	for (uint32_t i = 0; i < d->nheld; i++)
		tensor_drop(sh->s, d->held[i]);
	d->nheld = 0;
	make_buckets(sh, d->arrived, d->narrived, true);
	d->rebuilt = true;
}

static void
gradient(struct shard *sh, struct param *p)
{
	struct ddp *d = sh->own;
	uint32_t i = sh->index[p->val] - 1, grad = tensor_at(sh->s, p->tensor)->grad;

	if (!sh->last)
		return;
	if (sh->step == 1 && !d->seen[i])
		d->arrived[d->narrived++] = i;
	d->seen[i] = true;
	if (d->views && d->bucket[i] && tensor_at(sh->s, grad)->storage != tensor_at(sh->s, d->bucket[i])->storage)
		tensor_move(sh->s, grad, d->bucket[i]);
}

const struct strategy strategy_ddp = {.name = "ddp", .start = start, .forward_begin = forward_begin, .gradient = gradient};
