/*
 * The loop of one rank of a pipeline. Its stages (one, or several with the interleaved schedule) receive what earlier ones made, run their part
 * of the graph, and keep what they send and its history until the gradient comes back. Which micro-batch runs when is the schedule's:
 *
 *     gpipe        all forwards, then all backwards
 *     1f1b         as many forwards as there are stages behind this one, then one forward, one backward
 *     interleaved  the same over several stages a rank, in groups of as many micro-batches as there are ranks (Megatron-LM's order)
 */
#include "../shard/shard.h"
#include "../shard/stage.h"
#include "pipeline.h"

enum { ONE_F_ONE_B, INTERLEAVED, GPIPE, READY = 3 };

struct flight {                    /* a micro-batch between forward and backward of a stage */
	uint32_t *in, *out, loss;  /* held */
};

struct turn {
	uint32_t chunk, micro;     /* which of the rank's stages */
	bool backward;
};

struct pipeline {
	struct step *x;
	struct stage *stages;      /* of all ranks; this rank's: rank, rank + ranks, .. */
	bool *needs;               /* by value */
	uint32_t rank, ranks, chunks, micros;
	struct flight *flights;    /* by chunk and micro-batch */
	struct turn *turns;        uint32_t nturn;       /* of a step */
	bool *ready;               /* by chunk: gathered ahead */
};

/* ---- forward and backward of one stage -------------------------------------------------------------------------------- */

static struct stage *
stage_of(const struct pipeline *p, uint32_t chunk)
{
	return &p->stages[chunk * p->ranks + p->rank];
}

static struct flight *
flight_of(const struct pipeline *p, uint32_t chunk, uint32_t micro)
{
	return &p->flights[chunk * p->micros + micro];
}

static void
receive(struct pipeline *p, const struct stage *st, struct flight *f)
{
	struct sim *s = p->x->s;

	for (uint32_t i = 0; i < st->nin; i++) {
		uint32_t mark = temps_mark(s), v = st->in[i], t;

		s->node = s->g->vals[v].node;
		t = declared_tensor(s, v);
		if (t)
			tensor_at(s, t)->flags |= (uint8_t)(TF_LEAF | (p->needs[v] ? TF_GRAD : 0));
		f->in[i] = tensor_hold(s, t);
		env_set(s, v, t);
		temps_release(s, mark);
	}
}

static void
run_stage_forward(struct pipeline *p, unsigned step, uint32_t chunk, uint32_t micro)
{
	struct sim *s = p->x->s;
	struct stage *st = stage_of(p, chunk);
	struct flight *f = flight_of(p, chunk, micro);

	shard_stage(s->shard, chunk);
	shard_forward_begin(s->shard, step, micro);
	receive(p, st, f);
	s->runs = st->runs;
	f->loss = run_forward(p->x, step, st->out, st->nout, f->out);
	s->runs = NULL;
	if (!st->last) {
		tensor_drop(s, f->loss);
		f->loss = 0;
	}
}

/* The gradients of what was sent come in, are used, and go. */
static void
backward_from_sent(struct pipeline *p, const struct stage *st, struct flight *f)
{
	struct sim *s = p->x->s;
	uint32_t mark = temps_mark(s), n = 0, *root = NEW(s->c->a, uint32_t, 2 * st->nout + 1), *grad = root + st->nout;

	for (uint32_t i = 0; i < st->nout; i++)
		if (f->out[i] && needs_grad(s, f->out[i])) {
			s->node = s->g->vals[st->out[i]].node;
			root[n] = f->out[i];
			grad[n++] = tensor_new(s, geom_at(s, f->out[i]), "received_gradient");
		}
	if (n) {
		run_backward(s, root, grad, n);
		p->x->differentiates = true;
	}
	temps_release(s, mark);
}

static void
run_stage_backward(struct pipeline *p, uint32_t chunk, uint32_t micro, bool last)
{
	struct sim *s = p->x->s;
	struct stage *st = stage_of(p, chunk);
	struct flight *f = flight_of(p, chunk, micro);

	shard_stage(s->shard, chunk);
	shard_backward_begin(s->shard, micro + 1 == p->micros, last);
	if (st->last)
		run_backward_phase(p->x, f->loss);
	else
		backward_from_sent(p, st, f);
	f->loss = 0;
	for (uint32_t i = 0; i < st->nout; i++) {
		tensor_drop(s, f->out[i]);
		f->out[i] = 0;
	}
	for (uint32_t i = 0; i < st->nin; i++) {       /* and with it its gradient, which has been sent */
		tensor_drop(s, f->in[i]);
		f->in[i] = 0;
	}
	shard_backward_end(s->shard);
	if (micro + 1 == p->micros)
		shard_stage_end(s->shard);
}

/* ---- schedules --------------------------------------------------------------------------------------------------------------- */

/* The k-th forward or backward of a rank. */
static struct turn
turn(const struct pipeline *p, uint32_t k, bool backward)
{
	uint32_t group = p->ranks * p->chunks;
	struct turn t = {k % group / p->ranks, k / group * p->ranks + k % p->ranks, backward};

	if (p->chunks == 1)
		return (struct turn){0, k, backward};
	if (backward)
		t.chunk = p->chunks - 1 - t.chunk;
	return t;
}

static uint32_t
warm_up(const struct pipeline *p, int64_t schedule)
{
	uint32_t total = p->micros * p->chunks, behind = p->ranks - 1 - p->rank, n = behind;

	if (schedule == GPIPE || (p->chunks > 1 && p->micros == p->ranks))
		return total;
	if (p->chunks > 1)
		n = 2 * behind + (p->chunks - 1) * p->ranks;
	return n < total ? n : total;
}

/* Never more in flight than the warm-up and one. */
static uint32_t
list_turns(const struct pipeline *p, struct turn *list)
{
	uint32_t total = p->micros * p->chunks, warm = warm_up(p, p->x->s->r->v[RK_PARALLEL_SCHEDULE].i), n = 0;

	for (uint32_t f = 0, b = 0; b < total;) {
		if (f < total && f - b <= warm)
			list[n++] = turn(p, f++, false);
		if (f == total || f - b > warm)
			list[n++] = turn(p, b++, true);
	}
	return n;
}

/* Of the stages that turn up next, from turn k on, those that are made ready at a time; how many. */
static uint32_t
next_stages(const struct pipeline *p, uint32_t k, uint32_t *chunk)
{
	uint32_t n = 0;

	for (; k < p->nturn && n < READY && n < p->chunks; k++) {
		bool seen = false;

		for (uint32_t i = 0; i < n; i++)
			seen |= chunk[i] == p->turns[k].chunk;
		if (!seen)
			chunk[n++] = p->turns[k].chunk;
	}
	return n;
}

/* PyTorch's interleaved schedule gathers whole stages ahead, and lets go of those that come later (pipelining/schedules.py). */
static void
make_ready(struct pipeline *p, uint32_t k)
{
	struct shard *sh = p->x->s->shard;
	uint32_t next[READY], n = next_stages(p, k, next);

	for (uint32_t c = 0; c < p->chunks; c++) {
		bool soon = false;

		for (uint32_t i = 0; i < n; i++)
			soon |= next[i] == c;
		if (p->ready[c] && !soon)
			shard_stage_release(sh, c);
		p->ready[c] &= soon;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!p->ready[next[i]])
			shard_stage_gather(sh, next[i]);
		p->ready[next[i]] = true;
	}
}

void
pipeline_step(struct pipeline *p, unsigned step)
{
	for (uint32_t k = 0; k < p->nturn; k++) {
		const struct turn *t = &p->turns[k];

		schedule_span(p->x->s->sched, step, t->backward ? PH_BACKWARD : PH_FORWARD, t->micro);
		if (p->chunks > 1)
			make_ready(p, k);
		if (t->backward)
			run_stage_backward(p, t->chunk, t->micro, k + 1 == p->nturn);
		else
			run_stage_forward(p, step, t->chunk, t->micro);
	}
	if (p->chunks > 1)
		make_ready(p, p->nturn);
}

/* ---- the rank ------------------------------------------------------------------------------------------------------------------ */

uint32_t
pipeline_chunks(const struct recipe *r)
{
	return r->v[RK_PARALLEL_SCHEDULE].i == INTERLEAVED ? (uint32_t)r->v[RK_PARALLEL_CHUNKS].i : 1;
}

bool
pipeline_known(struct analysis *a)
{
	const struct recipe_value *v = a->r->v;
	int64_t how = v[RK_PARALLEL_STRATEGY].i, micros = v[RK_PARALLEL_MICROBATCHES].i;

	if (v[RK_PARALLEL_PP].i == 1)
		return true;
	if (how == ST_ZERO2 || how == ST_ZERO3)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.pp", SFMT(v[RK_PARALLEL_PP].text),
		    "1 with zero2 and zero3: DeepSpeed's PipelineEngine asserts that \"ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism\"");
	if (how == ST_FSDP1)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.pp", SFMT(v[RK_PARALLEL_PP].text),
		    "1 with fsdp1: torch.distributed.pipelining runs stages of DistributedDataParallel and of fully_shard (fsdp2)");
	if (v[RK_PARALLEL_PP].i > 1024 || micros > 65536 || v[RK_PARALLEL_CHUNKS].i < 1 || v[RK_PARALLEL_CHUNKS].i > 1024)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.pp", SFMT(v[RK_PARALLEL_PP].text), "1 to 1024, with 1 to 1024 parallel.chunks and at most 65536 parallel.microbatches");
	if (v[RK_GRAD_ACCUM].i != 1)
		return diag(a->c, DIAG_BAD_VALUE, "grad_accum", SFMT(v[RK_GRAD_ACCUM].text), "1 with parallel.pp; parallel.microbatches says how many");
	if (pipeline_chunks(a->r) > 1 && micros % v[RK_PARALLEL_PP].i)
		return diag(a->c, DIAG_BAD_VALUE, "parallel.microbatches", SFMT(v[RK_PARALLEL_MICROBATCHES].text), "a multiple of parallel.pp with the interleaved schedule");
	return true;
}

struct pipeline *
pipeline_new(struct step *x, struct stage *stages, bool *needs, uint32_t rank)
{
	struct arena *a = x->s->c->a;
	struct pipeline *p = NEW(a, struct pipeline, 1);
	const struct recipe_value *v = x->s->r->v;

	*p = (struct pipeline){.x = x, .stages = stages, .needs = needs, .rank = rank, .ranks = (uint32_t)v[RK_PARALLEL_PP].i, .chunks = pipeline_chunks(x->s->r)};
	p->micros = v[RK_PARALLEL_MICROBATCHES].i ? (uint32_t)v[RK_PARALLEL_MICROBATCHES].i : p->ranks;
	p->flights = NEW(a, struct flight, p->chunks * p->micros);
	p->turns = NEW(a, struct turn, 2 * p->chunks * p->micros);
	p->nturn = list_turns(p, p->turns);
	p->ready = NEW(a, bool, p->chunks);
	x->has = NEW(a, bool, x->s->g->nval);
	x->chunk = NEW(a, uint32_t, x->s->g->nval);
	x->nchunk = p->chunks;
	for (uint32_t c = 0; c < p->chunks; c++) {
		struct stage *st = stage_of(p, c);

		for (uint32_t k = 1; k < x->s->g->nval; k++) {
			x->chunk[k] = x->has[k] ? x->chunk[k] : c;
			x->has[k] |= st->has[k];
		}
		for (uint32_t m = 0; m < p->micros; m++)
			*flight_of(p, c, m) = (struct flight){NEW(a, uint32_t, st->nin + 1), NEW(a, uint32_t, st->nout + 1), 0};
	}
	return p;
}
