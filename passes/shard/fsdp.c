/*
 * FSDP2 (torch/distributed/fsdp/_fully_shard) and FSDP1 (torch/distributed/fsdp/_runtime_utils.py, _flat_param.py).
 *
 * A unit is a module that is wrapped on its own; the rest is the root's. Before a unit's forward its parameters are gathered: shards cast to
 * the compute dtype, one buffer for the whole unit, copies of it as parameters. That buffer stays until the next unit has been copied out. In
 * backward it goes at once, and the unit that ran before this one is gathered ahead. After a unit's backward its parameters go, then the last
 * unit's reduce-scatter input; gradients are copied into a new one and go; the output, cast to the shards' dtype, is the shards' .grad.
 * One rank needs no gathering: parameters are cast from the shards.
 * FSDP1 has one flat parameter a unit, of which parameters are views: no copies, but their gradients are concatenated.
 */
#include "fsdp.h"

/* ---- units ------------------------------------------------------------------------------------------------------- */

static uint32_t
unit_new(struct shard *sh, struct fsdp *d)
{
	ROOM(sh->s->c->a, d->units, d->nunit, d->unit_cap, 1);
	d->units[d->nunit] = (struct unit){.shares = shares_new(sh)};
	return d->nunit++;
}

static void
find_units(struct shard *sh, struct fsdp *d, uint32_t *of_path)
{
	const struct graph *g = sh->s->g;
	bool *block = blocks_find(g, sh->s->c->a), given = sh->s->r->v[RK_PARALLEL_UNITS].nlist > 0;

	for (uint32_t k = 0; k < d->nroot; k++) {
		uint32_t u = unit_new(sh, d);

		d->units[u].root = k;
	}
	for (uint32_t s = 1; s < g->nscope; s++) {
		uint32_t path = g->scopes[s].path;

		if (given ? !recipe_matches(sh->s->r, RK_PARALLEL_UNITS, scope_path(g, s)) : !block[s] || blocks_outermost(g, block, s) != s)
			continue;
		if (!of_path[path])
			of_path[path] = unit_new(sh, d);
		d->of_scope[s] = of_path[path] + 1;
	}
	if (d->nunit == d->nroot)
		assume(sh->x->a, "fsdp: no module is wrapped on its own; all parameters are the root's");
}

/* The innermost unit around a parameter, by the dots of its name; else its stage's root. */
static uint32_t
unit_of(const struct graph *g, const uint32_t *of_path, uint32_t v, uint32_t root)
{
	struct str name = graph_str(g, g->vals[v].full ? g->vals[v].full : g->vals[v].name);

	while (name.n) {
		uint32_t path;

		name = path_parent(name);
		path = name.n ? strtab_find(g->names, name) : 0;
		if (path && of_path[path])
			return of_path[path];
	}
	return root;
}

/* ---- shards -------------------------------------------------------------------------------------------------------- */

static int64_t
shard_rows(const struct shard *sh, uint32_t i)
{
	const struct geom *g = geom_at(sh->s, sh->x->params[i].tensor);

	return g->rank ? ceil_div(g->dim[0], sh->ways) : 1;
}

/* Elements of a parameter's shard, padded as the first rank's. */
int64_t
fsdp_shard_numel(const struct shard *sh, uint32_t i)
{
	const struct geom *g = geom_at(sh->s, sh->x->params[i].tensor);

	return g->rank && g->dim[0] ? shard_rows(sh, i) * (g->numel / g->dim[0]) : g->numel;
}

struct shares *
fsdp_shares_of(struct shard *sh, uint32_t i)
{
	struct shares *s = shares_new(sh);

	shares_add(sh, s, i);
	return s;
}

static uint32_t
add_trained(struct shard *sh, uint32_t t)
{
	struct step *x = sh->x;

	tensor_at(sh->s, t)->flags |= TF_GRAD | TF_LEAF;
	x->trained[x->ntrained++] = (struct param){.tensor = t};
	return x->ntrained;
}

static uint32_t
shard_tensor(struct shard *sh, const struct fsdp *d, uint32_t i)
{
	struct geom g = *geom_at(sh->s, sh->x->params[i].tensor);
	uint32_t mark = temps_mark(sh->s), t;
	struct storage *st;

	if (g.rank)
		g.dim[0] = shard_rows(sh, i);
	g.dtype = (uint8_t)d->shard_dtype;
	geom_contiguous(&g);
	t = tensor_hold(sh->s, tensor_new(sh->s, geom_intern(sh->s->geoms, g), "shard"));
	temps_release(sh->s, mark);
	st = &sh->s->sched->storages[tensor_at(sh->s, t)->storage];
	st->factor = FAC_PARAM;
	st->shares = fsdp_shares_of(sh, i);
	return t;
}

static void
make_shards(struct shard *sh, struct fsdp *d)
{
	bool mixed = false;

	sh->x->trained = NEW(sh->s->c->a, struct param, sh->x->nparam + 1);
	sh->x->ntrained = 0;
	sh->x->keeps_stale = d->flat;
	sh->s->offload = d->offload;
	for (uint32_t i = 0; i < sh->x->nparam && !d->flat; i++) {
		uint32_t t = shard_tensor(sh, d, i);

		if (param_trains(sh, i))
			d->trained[i] = add_trained(sh, t);
	}
	for (uint32_t u = 0; u < d->nunit && d->flat; u++) {
		struct unit *x = &d->units[u];
		uint32_t t = flat_new(sh, (struct flat){ceil_div(x->padded, sh->ways), d->shard_dtype, FAC_PARAM, "flat_shard", x->shares, false}), n = 0;

		for (uint32_t k = 0; k < x->n; k++)
			n += param_trains(sh, x->params[k]);
		if (n)
			x->trained = add_trained(sh, t);
		mixed |= n && n < x->n;
	}
	if (mixed)
		assume(sh->x->a, "fsdp1: frozen and trained parameters share flat parameters ; optimizer states are those of a rank all of whose shard is trained");
	sh->s->offload = false;
}

static void
set_dtypes(struct shard *sh, struct fsdp *d)
{
	static const uint8_t dtypes[] = {DT_NONE, DT_FP32, DT_BF16, DT_FP16};
	const struct plan *plan = sh->s->plan;
	int64_t reduce = sh->s->r->v[RK_PARALLEL_REDUCE_DTYPE].i;

	d->dtype = plan->param_dtype;
	d->shard_dtype = plan->shard_dtype ? plan->shard_dtype : plan->param_dtype;
	d->reduce_dtype = reduce ? dtypes[reduce] : d->dtype;
}

static bool
known(struct analysis *a)
{
	struct recipe_value *v = a->r->v;

	assume(a, "fsdp: built on the meta device, so that parameters are never whole but where they are gathered; shards along the first dim");
	if (v[RK_PARALLEL_STRATEGY].i == ST_FSDP1)
		assume(a, "fsdp1: use_orig_params, so that zero_grad leaves flat gradients to the next forward");
	if (v[RK_PARALLEL_STRATEGY].i == ST_FSDP1 && v[RK_GRAD_ACCUM].i > 1)
		assume(a, "fsdp1: accumulation follows PyTorch's source, not a run of it");
	if (v[RK_PARALLEL_PP].i > 1)
		assume(a, "fsdp2 in a pipeline: each stage is wrapped on its own, keeps gathered what a backward has gathered, and reduces after its last micro-batch, as torch.distributed.pipelining does");
	if (v[RK_OFFLOAD_OPTIMIZER].i || v[RK_OFFLOAD_PARAM].i)
		assume(a, "fsdp: offload moves shards, their gradients and the optimizer to the host together; it follows PyTorch's source, not a run of it");
	return true;
}

static void
start(struct shard *sh)
{
	struct fsdp *d = NEW(sh->s->c->a, struct fsdp, 1);
	const struct recipe_value *v = sh->s->r->v;
	uint32_t *of_path = NEW(sh->s->c->a, uint32_t, strtab_count(sh->s->g->names) + 1);

	sh->own = d;
	d->flat = v[RK_PARALLEL_STRATEGY].i == ST_FSDP1;
	d->offload = v[RK_OFFLOAD_OPTIMIZER].i || v[RK_OFFLOAD_PARAM].i;
	set_dtypes(sh, d);
	d->calls = calls_find(sh->s->g, sh->s->c->a);
	d->of_scope = NEW(sh->s->c->a, uint32_t, sh->s->g->nscope + 1);
	d->of_param = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	d->trained = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	d->wide = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	d->reducing = NEW(sh->s->c->a, bool, sh->x->nparam + 1);
	d->cast = NEW(sh->s->c->a, uint32_t, sh->s->g->ninput + 1);
	d->nroot = sh->x->nchunk ? sh->x->nchunk : 1;
	d->root = d->roots = NEW(sh->s->c->a, struct root, d->nroot);
	find_units(sh, d, of_path);
	for (uint32_t i = 0; i < sh->x->nparam; i++) {
		uint32_t p = sh->x->params[i].val, root = sh->x->nchunk ? sh->x->chunk[p] : 0;
		struct unit *u = &d->units[d->of_param[i] = unit_of(sh->s->g, of_path, p, root)];

		u->root = root;
		ROOM(sh->s->c->a, u->params, u->n, u->cap, 1);
		u->params[u->n++] = i;
		u->padded += d->flat ? param_numel(sh, i) : fsdp_shard_numel(sh, i) * sh->ways;
		shares_add(sh, u->shares, i);
	}
	for (uint32_t u = 0; u < d->nunit; u++)
		d->units[u].whole = NEW(sh->s->c->a, uint32_t, d->units[u].n + 1);
	make_shards(sh, d);
}

/* ---- gathering --------------------------------------------------------------------------------------------------------- */

uint32_t
fsdp_buffer(struct shard *sh, const struct unit *u, int64_t numel, unsigned dtype, unsigned factor, const char *op)
{
	return flat_new(sh, (struct flat){numel, dtype, factor, op, u->shares, true});
}

static void
all_gather(struct shard *sh, struct fsdp *d, struct unit *u)
{
	int64_t n = ceil_div(u->padded, sh->ways);
	uint32_t upload, in;

	if (u->nwhole || u->gathered || (sh->ways == 1 && !d->flat))
		return;
	upload = d->offload ? fsdp_buffer(sh, u, n, d->shard_dtype, FAC_PARAM, "shard_upload") : 0;
	in = d->dtype != d->shard_dtype ? fsdp_buffer(sh, u, n, d->dtype, FAC_PARAM, "shard_cast") : 0;
	u->gathered = fsdp_buffer(sh, u, n * sh->ways, d->dtype, FAC_PARAM, "all_gather");
	flat_drop(sh, &in);
	flat_drop(sh, &upload);
}

static uint32_t
whole_parameter(struct shard *sh, const struct fsdp *d, uint32_t i)
{
	return flat_new(sh, (struct flat){fsdp_shard_numel(sh, i) * sh->ways, d->dtype, FAC_PARAM, "gathered_parameter", fsdp_shares_of(sh, i), true});
}

/* One rank: from the shards, cast one after the other; a cast lives until the next one is made. */
static void
copy_from_shards(struct shard *sh, const struct fsdp *d, struct unit *u)
{
	uint32_t cast = 0;

	for (uint32_t k = 0; k < u->n; k++) {
		bool casts = d->dtype != d->shard_dtype || d->offload;
		uint32_t next = casts ? flat_new(sh, (struct flat){param_numel(sh, u->params[k]), d->dtype, FAC_PARAM, "shard_cast", u->shares, true}) : 0;

		flat_drop(sh, &cast);
		cast = next;
		u->whole[u->nwhole++] = whole_parameter(sh, d, u->params[k]);
	}
	flat_drop(sh, &cast);
}

static void
copy_out(struct shard *sh, struct fsdp *d, struct unit *u, bool keeps)
{
	uint32_t before = d->root->kept;

	if (u->nwhole || !u->n)
		return;
	if (d->flat) {
		u->whole[u->nwhole++] = u->gathered;
		u->gathered = 0;
		return;
	}
	if (sh->ways == 1) {
		copy_from_shards(sh, d, u);
		return;
	}
	for (uint32_t k = 0; k < u->n; k++)
		u->whole[u->nwhole++] = whole_parameter(sh, d, u->params[k]);
	if (!keeps) {
		flat_drop(sh, &u->gathered);
		return;
	}
	d->root->kept = u->gathered;
	u->gathered = 0;
	tensor_drop(sh->s, before);
}

static void
reshard(struct shard *sh, struct fsdp *d, struct unit *u)
{
	(void)d;
	for (uint32_t k = 0; k < u->nwhole; k++)
		tensor_drop(sh->s, u->whole[k]);
	u->nwhole = 0;
}

/* ---- hooks --------------------------------------------------------------------------------------------------------------------- */

static bool
reshards(const struct shard *sh, const struct fsdp *d, const struct unit *u)
{
	int64_t given = sh->s->r->v[RK_PARALLEL_RESHARD].i;

	return given ? given == 2 : u >= d->units + d->nroot;
}

static void
post_forward(struct shard *sh, struct fsdp *d, struct unit *u)
{
	if (reshards(sh, d, u))
		reshard(sh, d, u);
	ROOM(sh->s->c->a, d->root->order, d->root->norder, d->root->order_cap, 1);
	ROOM(sh->s->c->a, u->uses, u->nuse, u->use_cap, 1);
	u->uses[u->nuse++] = d->root->norder;
	d->root->order[d->root->norder++] = (uint32_t)(u - d->units);
}

static void
pre_backward(struct shard *sh, struct fsdp *d, struct unit *u)
{
	all_gather(sh, d, u);
	copy_out(sh, d, u, false);
	if (u->nuse && u->uses[--u->nuse])
		all_gather(sh, d, &d->units[d->root->order[u->uses[u->nuse] - 1]]);
}

static void
reduce(struct shard *sh, struct fsdp *d, struct unit *u)
{
	int64_t n = fsdp_collect(sh, d, u);
	uint32_t flat = d->flat && n ? fsdp_flatten(sh, d, u, n) : 0;

	reshard(sh, d, u);
	flat_drop(sh, &d->root->input);
	if (n)
		fsdp_reduce(sh, d, u, n, flat);
}

/* In a pipeline nothing is reduced or released before the stage's last backward is over. */
static void
post_backward(struct shard *sh, struct fsdp *d, struct unit *u)
{
	if (!sh->x->nchunk && (sh->last || !sh->s->r->v[RK_PARALLEL_NO_SYNC].i)) {
		reduce(sh, d, u);
		return;
	}
	if (!sh->x->nchunk)
		reshard(sh, d, u);
	fsdp_put_aside(sh, d, u);
}

/*
 * FSDP1 with use_orig_params: zero_grad knows the views alone; the flat gradients go when the root's next forward begins (_root_pre_forward,
 * _reset_flat_param_grad_info_if_needed).
 */
static void
drop_stale(struct shard *sh)
{
	for (uint32_t i = 0; i < sh->x->ntrained; i++) {
		struct param *p = &sh->x->trained[i];

		if (p->stale)
			grad_drop(sh, p->tensor);
		p->stale = false;
	}
}

static void
enter(struct shard *sh, struct fsdp *d, uint32_t unit, uint32_t first)
{
	ROOM(sh->s->c->a, d->stack, d->nstack, d->stack_cap, 1);
	d->stack[d->nstack++] = (struct running){unit, first};
	if (sh->backward) {
		pre_backward(sh, d, &d->units[unit]);
		return;
	}
	drop_stale(sh);
	all_gather(sh, d, &d->units[unit]);
	copy_out(sh, d, &d->units[unit], true);
}

static void
leave(struct shard *sh, struct fsdp *d)
{
	struct unit *u = &d->units[d->stack[--d->nstack].unit];

	if (sh->backward)
		post_backward(sh, d, u);
	else
		post_forward(sh, d, u);
}

/* A unit is over in forward when a node is outside of it, in backward when a node is before it. */
static bool
is_over(const struct shard *sh, const struct fsdp *d, const struct running *r, uint32_t n)
{
	const struct graph *g = sh->s->g;

	if (sh->backward)
		return n < r->first;
	for (unsigned k = 1; k <= calls_depth(g, n); k++)
		if (d->of_scope[scope_at(g, g->nodes[n].scope, k)] == r->unit + 1 && d->calls.first[d->calls.at[n] + k] == r->first)
			return false;
	return true;
}

static bool
is_running(const struct fsdp *d, uint32_t unit)
{
	for (uint32_t i = 0; i < d->nstack; i++)
		if (d->stack[i].unit == unit)
			return true;
	return false;
}

static void
at(struct shard *sh, uint32_t n)
{
	struct fsdp *d = sh->own;
	const struct graph *g = sh->s->g;

	if (!n)
		return;
	if (!d->nstack)
		enter(sh, d, sh->chunk, 0);
	while (d->nstack > 1 && is_over(sh, d, &d->stack[d->nstack - 1], n))
		leave(sh, d);
	for (unsigned k = 1; k <= calls_depth(g, n); k++) {
		uint32_t unit = d->of_scope[scope_at(g, g->nodes[n].scope, k)];

		if (unit && !is_running(d, unit - 1))
			enter(sh, d, unit - 1, d->calls.first[d->calls.at[n] + k]);
	}
}

/* ---- turning points -------------------------------------------------------------------------------------------------------------- */

/* The root casts floating-point inputs to the compute dtype. */
static void
cast_inputs(struct shard *sh, struct fsdp *d)
{
	struct sim *s = sh->s;

	for (uint32_t k = 0; k < s->g->ninput; k++) {
		uint32_t v = s->g->inputs[k], t = v ? s->env[v] : 0, mark = temps_mark(s);

		if (!t || !s->plan->shard_dtype || !dtype_is_float(geom_at(s, t)->dtype) || geom_at(s, t)->dtype == d->dtype)
			continue;
		d->cast[k] = tensor_hold(s, t);
		env_set(s, v, CALL(s, TO_COPY, V_TENSOR(t), V_DTYPE(d->dtype)));
		s->sched->storages[tensor_at(s, s->env[v])->storage].val = v;
		temps_release(s, mark);
	}
}

/* The order of forwards is known until the last backward that uses it is over. */
static void
forget_order(struct fsdp *d)
{
	d->root->norder = 0;
	for (uint32_t u = 0; u < d->nunit; u++)
		if (&d->roots[d->units[u].root] == d->root)
			d->units[u].nuse = 0;
}

static void
forward_begin(struct shard *sh)
{
	struct fsdp *d = sh->own;

	if (!sh->x->nchunk)
		forget_order(d);
	cast_inputs(sh, d);
	enter(sh, d, sh->chunk, 0);
}

static void
forward_end(struct shard *sh)
{
	struct fsdp *d = sh->own;

	while (d->nstack)
		leave(sh, d);
	flat_drop(sh, &d->root->kept);
	for (uint32_t k = 0; k < sh->s->g->ninput; k++)
		if (d->cast[k]) {
			env_set(sh->s, sh->s->g->inputs[k], d->cast[k]);
			flat_drop(sh, &d->cast[k]);
		}
}

/* The root is last; what was gathered ahead and not used goes. */
static void
backward_end(struct shard *sh)
{
	struct fsdp *d = sh->own;

	while (d->nstack)
		leave(sh, d);
	for (uint32_t u = 0; u < d->nunit && !sh->x->nchunk; u++) {
		flat_drop(sh, &d->units[u].gathered);
		reshard(sh, d, &d->units[u]);
	}
	if (!sh->x->nchunk)
		flat_drop(sh, &d->root->input);
}

/* ---- stages of a pipeline --------------------------------------------------------------------------------------------------------- */

typedef void unit_fn(struct shard *, struct fsdp *, struct unit *);

/* The root first, then the units in the model's order. */
static void
each_in_stage(struct shard *sh, unit_fn *does)
{
	struct fsdp *d = sh->own;

	for (uint32_t u = 0; u < d->nunit; u++)
		if (d->units[u].n && d->units[u].root == sh->chunk)
			does(sh, d, &d->units[u]);
}

static void
copy_out_ahead(struct shard *sh, struct fsdp *d, struct unit *u)
{
	if (u->gathered)
		copy_out(sh, d, u, false);
}

static void
drop_gathered(struct shard *sh, struct fsdp *d, struct unit *u)
{
	(void)d;
	flat_drop(sh, &u->gathered);
}

/* What the schedule has gathered ahead is copied out before it is used. */
static void
stage(struct shard *sh)
{
	struct fsdp *d = sh->own;

	d->root = &d->roots[sh->chunk];
	if (d->root->ahead)
		each_in_stage(sh, copy_out_ahead);
	d->root->ahead = false;
}

static void
stage_gather(struct shard *sh)
{
	struct fsdp *d = sh->own;

	each_in_stage(sh, all_gather);
	d->roots[sh->chunk].ahead = true;
}

static void
stage_release(struct shard *sh)
{
	each_in_stage(sh, reshard);
}

static void
stage_end(struct shard *sh)
{
	struct fsdp *d = sh->own;

	each_in_stage(sh, reduce);
	each_in_stage(sh, drop_gathered);
	flat_drop(sh, &d->root->input);
	forget_order(d);
}

static void
step(struct shard *sh)
{
	struct fsdp *d = sh->own;

	sh->s->offload = d->offload;
	optimizer_step(sh->x);
	sh->s->offload = false;
}

const struct strategy strategy_fsdp = {
	.name = "fsdp", .away = true, .known = known, .start = start, .forward_begin = forward_begin, .at = at, .forward_end = forward_end,
	.backward_end = backward_end, .stage = stage, .stage_gather = stage_gather, .stage_release = stage_release, .stage_end = stage_end, .step = step,
};
