/* The doors between lower and the strategies, and what several strategies share. */
#include "shard.h"

#include "../lower/pipeline.h"

static const struct strategy *const strategies[] = {
	[ST_NONE] = NULL,
#define STRATEGY(id, name, help) [id] = &strategy_##name,
#include "shard.def"
#undef STRATEGY
};

static const struct strategy *
strategy_of(const struct recipe *r)
{
	int64_t i = r->v[RK_PARALLEL_STRATEGY].i;

	return i < (int64_t)(sizeof strategies / sizeof strategies[0]) ? strategies[i] : NULL;
}

/* ---- what is not modelled ----------------------------------------------------------------------------------- */

static bool
refuse(struct analysis *a, unsigned key)
{
	return diag(a->c, DIAG_NOT_MODELLED, key_info(key)->name, SFMT(a->r->v[key].text));
}

enum { MOST_RANKS = 65536 };
#define MOST_ELEMENTS ((uint64_t)1 << 44)  /* of all parameters: times the ranks they can be counted in 64 bits */

static uint64_t
elements(const struct graph *g, uint32_t v)
{
	uint64_t n = 1;

	for (unsigned i = 0; g->vals[v].rank != RANK_UNKNOWN && i < g->vals[v].rank; i++)
		if (!mul_u64(n, (uint64_t)(val_dims(g, v)[i].expr ? 0 : val_dims(g, v)[i].n), &n))
			return MOST_ELEMENTS + 1;
	return n;
}

static bool
can_be_counted(struct analysis *a)
{
	uint64_t n = 0;

	for (uint32_t v = 1; v < a->g->nval && n <= MOST_ELEMENTS; v++) {
		uint64_t more = a->g->vals[v].kind == VAL_PARAM ? elements(a->g, v) : 0;

		n += more < MOST_ELEMENTS ? more : MOST_ELEMENTS + 1;
	}
	if (n > MOST_ELEMENTS)
		return diag(a->c, DIAG_TOO_MANY, "elements of sharded parameters", (unsigned long long)MOST_ELEMENTS);
	return true;
}

bool
shard_known(struct analysis *a)
{
	static const unsigned at_least_one[] = {RK_PARALLEL_DP, RK_PARALLEL_TP, RK_PARALLEL_PP};
	const struct strategy *how = strategy_of(a->r);

	for (size_t i = 0; i < sizeof at_least_one / sizeof at_least_one[0]; i++)
		if (a->r->v[at_least_one[i]].i < 1)
			return diag(a->c, DIAG_BAD_VALUE, key_info(at_least_one[i])->name, SFMT(a->r->v[at_least_one[i]].text), "a whole number from 1");
	if (a->r->v[RK_PARALLEL_DP].i > MOST_RANKS)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.dp", SFMT(a->r->v[RK_PARALLEL_DP].text), "1 to 65536");
	if (how && !can_be_counted(a))
		return false;
	if (!how && a->r->v[RK_PARALLEL_STRATEGY].i != ST_NONE)
		return refuse(a, RK_PARALLEL_STRATEGY);
	if (!how && a->r->v[RK_PARALLEL_DP].i > 1)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.dp", SFMT(a->r->v[RK_PARALLEL_DP].text), "1 without a parallel.strategy");
	for (unsigned key = RK_OFFLOAD_OPTIMIZER; key <= RK_OFFLOAD_PARAM; key++)
		if (a->r->v[key].i && (!how || how == &strategy_ddp))
			return diag(a->c, DIAG_BAD_VALUE, key_info(key)->name, SFMT(a->r->v[key].text), "true only with a parallel.strategy that offloads: zero1, zero2, zero3, fsdp1, fsdp2");
	if (a->r->v[RK_OFFLOAD_ACTIVATIONS].i)
		assume(a, "offload.activations: saved tensors from 1,024 bytes, but parameters, are copied to the host in forward and back when backward needs them");
	return pipeline_known(a) && (!how || !how->known || how->known(a));
}

bool
shard_takes_params(const struct recipe *r)
{
	return strategy_of(r) && strategy_of(r)->away;
}

/* ---- called by lower ------------------------------------------------------------------------------------------- */

struct shard *
shard_new(struct step *x)
{
	struct shard *sh = NEW(x->s->c->a, struct shard, 1);

	sh->how = strategy_of(x->s->r);
	if (!sh->how)
		return NULL;
	sh->x = x;
	sh->s = x->s;
	sh->ways = x->s->r->v[RK_PARALLEL_DP].i;
	sh->index = NEW(x->s->c->a, uint32_t, x->s->g->nval);
	for (uint32_t i = 0; i < x->nparam; i++)
		sh->index[x->params[i].val] = i + 1;
	sh->how->start(sh);
	return sh;
}

void
shard_forward_begin(struct shard *sh, unsigned step, uint32_t micro)
{
	if (!sh)
		return;
	sh->step = step;
	sh->micro = micro;
	sh->s->node = 0;
	if (sh->how->forward_begin)
		sh->how->forward_begin(sh);
}

static void
at(struct shard *sh, uint32_t n)
{
	uint32_t node = sh->s->node;

	if (!sh->how->at)
		return;
	sh->s->node = n;
	sh->how->at(sh, n);
	sh->s->node = node;
}

void
shard_forward_at(struct shard *sh, uint32_t n)
{
	at(sh, n);
}

void
shard_forward_end(struct shard *sh)
{
	if (sh && sh->how->forward_end)
		sh->how->forward_end(sh);
}

void
shard_backward_begin(struct shard *sh, bool last, bool last_of_all)
{
	if (!sh)
		return;
	sh->last = sh->how->one_optimizer ? last_of_all : last;
	sh->s->node = 0;
	sh->backward = true;
	if (sh->how->backward_begin)
		sh->how->backward_begin(sh);
}

void
shard_backward_at(struct shard *sh, uint32_t n)
{
	at(sh, n);
}

void
shard_gradient(struct shard *sh, uint32_t var)
{
	uint32_t i = sh->index[tensor_at(sh->s, var)->param];

	if (i && sh->how->gradient)
		sh->how->gradient(sh, &sh->x->params[i - 1]);
}

void
shard_backward_end(struct shard *sh)
{
	if (!sh)
		return;
	sh->s->node = 0;
	if (sh->how->backward_end)
		sh->how->backward_end(sh);
	for (uint32_t i = 0; i < sh->x->nparam; i++) {
		uint32_t grad = tensor_at(sh->s, sh->x->params[i].tensor)->grad;

		if (grad)          /* it stays: a gradient from its birth */
			sh->s->sched->storages[tensor_at(sh->s, grad)->storage].became = 0;
	}
	sh->backward = false;
}

static void
stage_hook(struct shard *sh, uint32_t chunk, void (*hook)(struct shard *))
{
	sh->chunk = chunk;
	sh->s->node = 0;
	if (hook)
		hook(sh);
}

void
shard_stage(struct shard *sh, uint32_t chunk)
{
	if (sh)
		stage_hook(sh, chunk, sh->how->stage);
}

void
shard_stage_gather(struct shard *sh, uint32_t chunk)
{
	if (sh)
		stage_hook(sh, chunk, sh->how->stage_gather);
}

void
shard_stage_release(struct shard *sh, uint32_t chunk)
{
	if (sh)
		stage_hook(sh, chunk, sh->how->stage_release);
}

void
shard_stage_end(struct shard *sh)
{
	if (sh)
		stage_hook(sh, sh->chunk, sh->how->stage_end);
}

bool
shard_step(struct shard *sh)
{
	if (!sh || !sh->how->step)
		return false;
	sh->s->node = 0;
	sh->how->step(sh);
	return true;
}

/* ---- for strategies ------------------------------------------------------------------------------------------------ */

int64_t
ceil_div(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

int64_t
param_numel(const struct shard *sh, uint32_t i)
{
	return geom_at(sh->s, sh->x->params[i].tensor)->numel;
}

bool
param_trains(const struct shard *sh, uint32_t i)
{
	return needs_grad(sh->s, sh->x->params[i].tensor);
}

unsigned
param_dtype(const struct shard *sh, uint32_t i)
{
	return geom_at(sh->s, sh->x->params[i].tensor)->dtype;
}

struct shares *
shares_new(struct shard *sh)
{
	return NEW(sh->s->c->a, struct shares, 1);
}

void
shares_add_part(struct shard *sh, struct shares *s, uint32_t i, int64_t elements)
{
	if (elements <= 0)
		return;
	ROOM(sh->s->c->a, s->of, s->n, s->cap, 1);
	s->of[s->n++] = (struct share){sh->x->params[i].val, (uint64_t)elements};
	s->total += (uint64_t)elements;
}

void
shares_add(struct shard *sh, struct shares *s, uint32_t i)
{
	shares_add_part(sh, s, i, param_numel(sh, i));
}

uint32_t
flat_new(struct shard *sh, struct flat f)
{
	struct sim *s = sh->s;
	struct geom g = {.rank = 1, .dtype = (uint8_t)f.dtype, .dim = {f.numel}};
	uint32_t mark = temps_mark(s), t;
	struct storage *st;

	if (f.numel <= 0)
		return 0;
	geom_contiguous(&g);
	t = tensor_hold(s, tensor_new(s, geom_intern(s->geoms, g), f.op));
	temps_release(s, mark);
	st = &s->sched->storages[tensor_at(s, t)->storage];
	st->factor = (uint8_t)f.factor;
	st->shares = f.shares && f.shares->n ? f.shares : NULL;
	st->passing = f.passing;
	if (st->shares)
		st->node = 0;      /* whoever runs when it is made, it is not his */
	return t;
}

void
flat_drop(struct shard *sh, uint32_t *t)
{
	uint32_t old = *t;

	*t = 0;
	tensor_drop(sh->s, old);
}

void
grad_drop(struct shard *sh, uint32_t var)
{
	flat_drop(sh, &tensor_at(sh->s, var)->grad);
}
