/*
 * lower: the simulated loop, twice.
 *
 *     parameters, buffers and batch are there
 *     forward (in autocast); loss; outputs dropped; [zero_grad before backward]; backward     for every micro-batch
 *     optimizer.step(); zero_grad(set_to_none=True)
 *
 * Step 1 starts without optimizer state (but for those optimizers that make it in their constructor).
 */
#include "../shard/shard.h"
#include "../shard/stage.h"
#include "pipeline.h"

/* ---- before the first step -------------------------------------------------------------------------------- */

struct sim *
sim_new(struct analysis *a, struct schedule *sched)
{
	struct sim *s = NEW(a->c->a, struct sim, 1);

	s->c = a->c;
	s->g = a->g;
	s->r = a->r;
	s->plan = &a->plan;
	s->sched = sched;
	s->geoms = geoms_new(a->c->a);
	s->own = arena_part(a->c->a);
	s->pool = pool_new(s->own);
	s->code = NEW(a->c->a, struct op_code, OP_COUNT);
	s->env = NEW(s->own, uint32_t, a->g->nval);
	s->val_dtype = NEW(s->own, uint8_t, a->g->nval);
	s->unsized = NEW(s->own, bool, a->g->nval);
	s->ints = NEW(s->own, int64_t, a->g->nint);
	ROOM(s->own, s->tensors, 0, s->tensor_cap, 1);
	ROOM(s->own, s->fns, 0, s->fn_cap, 1);
	s->ntensor = s->nfn = 1;
	s->low_dtype = a->plan.low_dtype;
	s->param_dtype = a->plan.param_dtype;
	s->grad_on = true;
	for (uint32_t i = 1; i < a->g->nint; i++)
		s->ints[i] = a->g->ints[i].expr ? -1 : a->g->ints[i].n;
	return s;
}

static uint32_t
make_base(struct step *x, uint32_t v)
{
	struct sim *s = x->s;
	const struct val *val = &s->g->vals[v];
	struct geom g = {.rank = val->rank, .dtype = (uint8_t)analysis_dtype(x->a, v)};
	uint32_t mark = temps_mark(s), t;
	bool away;

	if (val->rank == RANK_UNKNOWN || !val->dtype)
		return 0;
	for (unsigned i = 0; i < val->rank; i++)
		g.dim[i] = s->ints[val->dim + i] < 0 ? 0 : s->ints[val->dim + i];
	geom_contiguous(&g);
	away = val->kind == VAL_PARAM && shard_takes_params(s->r);
	s->host = away || (val->kind == VAL_CONST && val->rank == 0);      /* torch.tensor(2.0) in a forward */
	t = tensor_new(s, geom_intern(s->geoms, g), val->kind == VAL_PARAM ? "param" : val->kind == VAL_INPUT ? "input" : "buffer");
	s->host = false;
	s->sched->storages[tensor_at(s, t)->storage].elsewhere = away;
	tensor_at(s, t)->flags |= TF_LEAF;
	tensor_at(s, t)->param = val->kind == VAL_PARAM ? v : 0;
	s->sched->storages[tensor_at(s, t)->storage].val = v;
	s->sched->storages[tensor_at(s, t)->storage].factor = val->kind == VAL_INPUT ? FAC_INPUT : FAC_PARAM;
	env_set(s, v, t);
	temps_release(s, mark);
	return t;
}

static void
make_param(struct step *x, uint32_t v)
{
	const struct val *p = &x->s->g->vals[v];
	uint32_t t;

	if (x->has && !x->has[v])
		return;
	if (p->tied) {
		env_set(x->s, v, x->s->env[p->tied]);
		return;
	}
	t = make_base(x, v);
	if (!t)
		return;
	if (p->flags & VF_TRAINABLE)
		tensor_at(x->s, t)->flags |= TF_GRAD;
	x->params[x->nparam++] = (struct param){.val = v, .tensor = t};
}

/* In the order in which the library lists them: what a recipe added to a module comes behind the module's own. */
static void
make_params(struct step *x)
{
	const struct graph *g = x->s->g;
	uint32_t *first = NEW(x->s->own, uint32_t, g->nval), *next = NEW(x->s->own, uint32_t, g->nval);

	for (uint32_t v = g->nval; --v > 0;)
		if (g->vals[v].kind == VAL_PARAM && g->vals[v].after) {
			next[v] = first[g->vals[v].after];
			first[g->vals[v].after] = v;
		}
	for (uint32_t v = 1; v < g->nval; v++) {
		if (g->vals[v].kind != VAL_PARAM || g->vals[v].after)
			continue;
		make_param(x, v);
		for (uint32_t w = first[v]; w; w = next[w])
			make_param(x, w);
	}
}

static void
make_start(struct step *x)
{
	const struct graph *g = x->s->g;

	schedule_span(x->s->sched, 0, PH_START, 0);
	x->params = NEW(x->s->own, struct param, g->nval);
	make_params(x);
	for (uint32_t v = 1; v < g->nval; v++)
		if ((g->vals[v].kind == VAL_BUFFER || g->vals[v].kind == VAL_CONST) && (!x->has || x->has[v]))
			make_base(x, v);
	for (uint32_t i = 0; i < g->ninput; i++)
		if (!x->has || x->has[g->inputs[i]])
			make_base(x, g->inputs[i]);
	x->trained = x->params;
	x->ntrained = x->nparam;
	x->s->shard = shard_new(x);
	optimizer_construct(x);
}

/* ---- forward --------------------------------------------------------------------------------------------------- */

static void
drop_env(struct sim *s)
{
	for (uint32_t v = 1; v < s->g->nval; v++)
		if (s->g->vals[v].kind == VAL_NODE && s->env[v])
			env_set(s, v, 0);
}

/* The caller binds the new outputs before the old ones go. */
static void
keep_outputs(struct step *x, uint32_t loss)
{
	struct sim *s = x->s;
	uint32_t *old = x->kept, n = x->nkept;

	x->kept = NULL;
	x->nkept = x->kept_cap = 0;
	if (s->r->v[RK_KEEP_OUTPUTS].i) {
		ROOM(s->c->a, x->kept, 0, x->kept_cap, s->g->noutput + 1);
		x->kept[x->nkept++] = tensor_hold(s, loss);
		for (uint32_t i = 0; i < s->g->noutput; i++)
			if (s->g->outputs[i])
				x->kept[x->nkept++] = tensor_hold(s, s->env[s->g->outputs[i]]);
	}
	for (uint32_t i = 0; i < n; i++)
		tensor_drop(s, old[i]);
}

/* What is alive at the end of a forward and was made in it is saved; the rest of it is transient. */
static void
mark_saved(struct sim *s, uint32_t first_storage)
{
	for (uint32_t i = first_storage; i < s->sched->nstorage; i++)
		if (s->sched->storages[i].tensors && s->sched->storages[i].factor == FAC_TRANSIENT)
			s->sched->storages[i].factor = FAC_SAVED;
}

uint32_t
run_forward(struct step *x, unsigned step, const uint32_t *val, uint32_t n, uint32_t *out)
{
	struct sim *s = x->s;
	uint32_t loss, first = s->sched->nstorage;

	s->autocast = s->low_dtype;
	run_nodes(s, 1, s->g->nnode - 1, true);
	shard_forward_end(s->shard);
	loss = x->a->plan.loss ? tensor_hold(s, s->env[x->a->plan.loss]) : 0;
	for (uint32_t i = 0; i < n; i++)
		out[i] = tensor_hold(s, s->env[val[i]]);
	keep_outputs(x, loss);
	drop_env(s);
	autocast_clear(s);
	s->autocast = DT_NONE;
	s->sched->forward_end[step] = s->live;
	mark_saved(s, first);
	return loss;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

void
run_backward_phase(struct step *x, uint32_t loss)
{
	struct sim *s = x->s;
	uint32_t mark = temps_mark(s), root;
	struct call c = {.s = s, .op = OP_ZEROS_LIKE, .code = op_code(s, OP_ZEROS_LIKE), .kernel = "ones_like"};
	struct operand like;

	if (!loss)
		return;
	if (needs_grad(s, loss)) {
		s->node = s->g->vals[x->a->plan.loss].node;
		like = (struct operand){geom_at(s, loss), loss, false};
		root = build_like(&c, &like, 1, DT_NONE);
		run_backward(s, &loss, &root, 1);
		x->differentiates = true;
	}
	temps_release(s, mark);
	tensor_drop(s, loss);
}

static void
run_micro_batches(struct step *x, unsigned step)
{
	struct sim *s = x->s;

	for (uint32_t micro = 0; micro < (uint32_t)s->r->v[RK_GRAD_ACCUM].i; micro++) {
		bool last = micro + 1 == (uint32_t)s->r->v[RK_GRAD_ACCUM].i;
		uint32_t loss;

		schedule_span(s->sched, step, PH_FORWARD, micro);
		shard_forward_begin(s->shard, step, micro);
		loss = run_forward(x, step, NULL, 0, NULL);
		if (s->r->v[RK_ZERO_GRAD].i == ZG_BEFORE_BACKWARD && micro == 0)
			optimizer_zero_grad(x);
		schedule_span(s->sched, step, PH_BACKWARD, micro);
		shard_backward_begin(s->shard, last, last);
		run_backward_phase(x, loss);
		shard_backward_end(s->shard);
	}
}

static void
run_step(struct step *x, unsigned step, struct pipeline *p)
{
	struct sim *s = x->s;
	int64_t zero_grad = s->r->v[RK_ZERO_GRAD].i;

	if (p && zero_grad == ZG_BEFORE_BACKWARD)
		optimizer_zero_grad(x);
	if (p)
		pipeline_step(p, step);
	else
		run_micro_batches(x, step);
	schedule_span(s->sched, step, PH_OPTIMIZER, 0);
	if (!shard_step(s->shard))
		optimizer_step(x);
	if (zero_grad == ZG_AFTER_STEP)
		optimizer_zero_grad(x);
}

static void
count_value(struct analysis *a, const uint8_t *dtype, uint32_t v)
{
	if (v && dtype[v] && a->g->vals[v].guessed)
		a->guessed++;
	else if (v && dtype[v])
		a->sized++;
	else if (v && a->unsized++ == 0)
		a->first_unsized = v;
}

/* Every value that is there when the graph runs, on whatever rank; what the checks and reads that were taken out made is not. */
static void
count_coverage(struct analysis *a, const uint8_t *dtype)
{
	const struct graph *g = a->g;

	a->sized = a->guessed = a->unsized = a->first_unsized = 0;    /* what the sizes pass said of the file's own operators */
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind != VAL_NODE && g->vals[v].kind != VAL_NONE)
			count_value(a, dtype, v);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			count_value(a, dtype, node_outs(g, n)[k]);
}

static void
note_recurrent(struct analysis *a)
{
	for (uint32_t n = 1; n < a->g->nnode; n++)
		if (a->g->nodes[n].op == OP_LSTM || a->g->nodes[n].op == OP_GRU)
			assume(a, "what cuDNN keeps for the backward of recurrent layers is taken to be their gates, cell states and inner results");
}

/* ---- ranks ------------------------------------------------------------------------------------------------------------- */

struct job {                       /* what all ranks of a pipeline have in common; a job without one has one rank */
	struct analysis *a;
	struct stage *stages;
	bool *needs, differentiates;
	uint32_t ranks;
	uint64_t most;
	uint32_t worst;
	uint8_t *dtype;            /* by value, of whatever rank ran it */
};

/* The rank that takes most is the one that is reported. */
static void
run_rank(struct job *job, uint32_t rank)
{
	struct step x = {.a = job->a};
	struct schedule *sched = schedule_new(job->a->c);
	struct pipeline *p = NULL;

	x.s = sim_new(job->a, sched);
	if (job->stages)
		p = pipeline_new(&x, job->stages, job->needs, rank);
	make_start(&x);
	x.s->peak = 0;
	for (unsigned step = 1; step <= 2; step++)
		run_step(&x, step, p);
	for (uint32_t v = 1; v < job->a->g->nval; v++)
		job->dtype[v] = x.s->val_dtype[v] && !x.s->unsized[v] ? x.s->val_dtype[v] : job->dtype[v];
	job->a->lower_bound |= x.s->failed > 0;
	job->differentiates |= x.differentiates;
	if (x.s->peak > job->most || !job->a->sched) {
		job->most = x.s->peak;
		job->worst = rank;
		job->a->sched = sched;
	}
	arena_cancel(job->a->c->a, x.s->own);
}

static bool
find_ranks(struct job *job)
{
	struct analysis *a = job->a;
	const struct recipe_value *pp = &a->r->v[RK_PARALLEL_PP];

	job->ranks = (uint32_t)pp->i;
	if (job->ranks == 1)
		return true;
	job->stages = stages_find(a, job->ranks * pipeline_chunks(a->r), &job->needs);
	return job->stages || diag(a->c, DIAG_BAD_VALUE, "parallel.pp", SFMT(pp->text), "not more stages than the model has repeated blocks");
}

bool
pass_lower(struct analysis *a)
{
	struct job job = {.a = a, .dtype = NEW(a->c->a, uint8_t, a->g->nval)};

	if (!optimizer_known(a) || !shard_known(a) || !find_ranks(&job))
		return false;
	for (uint32_t rank = 0; rank < job.ranks; rank++)
		run_rank(&job, rank);
	if (job.stages)
		assume(a, "pipeline: stages have equal numbers of blocks; this is rank %u of %u, which takes the most", job.worst, job.ranks);
	count_coverage(a, job.dtype);
	note_recurrent(a);
	if (a->unsized) {
		struct str first = graph_str(a->g, a->g->vals[a->first_unsized].name);

		diag(a->c, DIAG_UNSIZED, (unsigned)a->unsized, SFMT(first));
	}
	if (!job.differentiates)
		diag(a->c, DIAG_NO_GRADIENT);
	return true;
}
