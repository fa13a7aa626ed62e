/*
 * The parameters of ZeRO-3 (DeepSpeed's partitioned_param_coordinator.py, partition_parameters.py).
 *
 * A module's hook before its forward or backward gathers what it needs, then, when one micro-batch has been recorded, what the next
 * modules need, up to prefetch_bucket elements a hook and max_live in all. One call that gathers one parameter makes a buffer which is
 * the parameter. One that gathers several makes a buffer for all of them, which lives until the last of them has been waited for, and
 * a copy for each when the first is. The hook behind a module releases its parameters but those that small size keeps, and those that
 * come again before max_reuse elements of later modules. In the recorded micro-batch everything is released at once.
 * Modules are those of the graph's scopes; a parameter that a node reads outside its module is a module of its own.
 */
#include "gather.h"

#include <string.h>

enum where { AWAY, IN_FLIGHT, HERE };

struct piece {                     /* a parameter */
	uint8_t where;
	bool persists;
	uint32_t active;           /* modules that run and have it */
	uint32_t data;             /* held */
	uint32_t call;             /* in flight: the call that gathers it + 1 */
	int64_t fetched;           /* for which step of the trace it was taken from the queue last */
	uint32_t stamp;
};

struct collective {
	uint32_t flat;             /* held */
	uint32_t *params, n, waiting;
	bool copied;
};

struct module {
	uint32_t *params, n, cap;
	uint32_t visited;          /* path, interned */
};

struct entry {                     /* a module that is running */
	uint32_t module;
	uint32_t first;            /* node that the call begins with; 0 = a parameter outside its module */
	bool keep;                 /* nothing tells when its backward is over */
};

struct gather {
	struct shard *sh;
	struct sim *s;
	struct calls calls;
	struct piece *pieces;      /* by parameter */
	struct module *modules; uint32_t nmodule, module_cap;    /* from 1 */
	uint32_t *of_path;         /* by interned name of the path */
	uint32_t *lone;            /* by parameter: its own module, 0 = not made */
	uint32_t *owner;           /* by parameter: the module that has it */
	struct entry *stack;    uint32_t nstack, stack_cap;
	struct collective *made;  uint32_t ncall, call_cap;
	uint32_t *order;        uint32_t norder, order_cap;      /* modules, as recorded */
	struct use {
		uint32_t param, step;
	} *uses;                uint32_t nuse, use_cap, queue;   /* of the parameters, in order; what is not taken yet */
	bool recording, complete, host;
	uint32_t step, stamp;
	int64_t available, prefetch, max_live, max_reuse, threshold;
	uint32_t *list;            /* room for one list of parameters */
};

/* ---- modules ------------------------------------------------------------------------------------------------- */

static uint32_t
module_new(struct gather *t)
{
	ROOM(t->s->c->a, t->modules, t->nmodule, t->module_cap, 2);
	t->nmodule += t->nmodule == 0;
	t->modules[t->nmodule] = (struct module){0};
	return t->nmodule++;
}

static void
module_add(struct gather *t, uint32_t m, uint32_t param)
{
	struct module *x = &t->modules[m];

	ROOM(t->s->c->a, x->params, x->n, x->cap, 1);
	x->params[x->n++] = param;
}

static uint32_t
owner_path(const struct graph *g, uint32_t v)
{
	struct str full = graph_str(g, g->vals[v].full ? g->vals[v].full : g->vals[v].name);

	return strtab_find(g->names, path_parent(full));
}

/* Modules that the graph calls get their parameters; a tied one is in both of its modules. */
static void
find_modules(struct gather *t)
{
	const struct graph *g = t->s->g;

	t->of_path = NEW(t->s->c->a, uint32_t, strtab_count(g->names) + 1);
	for (uint32_t s = 1; s < g->nscope; s++)
		if (!t->of_path[g->scopes[s].path])
			t->of_path[g->scopes[s].path] = module_new(t);
	for (uint32_t v = 1; v < g->nval; v++) {
		uint32_t i = t->sh->index[g->vals[v].tied ? g->vals[v].tied : v], m;

		if (g->vals[v].kind != VAL_PARAM || !i)
			continue;
		m = t->of_path[owner_path(g, v)];
		if (m)
			module_add(t, m, i - 1);
		if (m && !g->vals[v].tied)
			t->owner[i - 1] = m;
	}
}

struct gather *
gather_new(struct shard *sh, bool host)
{
	struct gather *t = NEW(sh->s->c->a, struct gather, 1);
	const struct recipe_value *v = sh->s->r->v;

	t->sh = sh;
	t->s = sh->s;
	t->host = host;
	t->calls = calls_find(sh->s->g, sh->s->c->a);
	t->pieces = NEW(sh->s->c->a, struct piece, sh->x->nparam + 1);
	t->owner = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	t->lone = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	t->list = NEW(sh->s->c->a, uint32_t, sh->x->nparam + 1);
	t->prefetch = v[RK_PARALLEL_PREFETCH_BUCKET].i;
	t->max_live = v[RK_PARALLEL_MAX_LIVE].i;
	t->max_reuse = v[RK_PARALLEL_MAX_REUSE].i;
	t->threshold = v[RK_PARALLEL_PERSISTENCE].i;
	for (uint32_t i = 0; i < sh->x->nparam; i++)
		t->pieces[i].persists = param_numel(sh, i) <= t->threshold;
	module_new(t);
	find_modules(t);
	return t;
}

/* ---- gathering ---------------------------------------------------------------------------------------------------- */

static int64_t
padded(const struct gather *t, uint32_t i)
{
	return ceil_div(param_numel(t->sh, i), t->sh->ways) * t->sh->ways;
}

static uint32_t
whole(struct gather *t, uint32_t i, int64_t numel, const char *op)
{
	struct shares *sh = shares_new(t->sh);

	shares_add(t->sh, sh, i);
	return flat_new(t->sh, (struct flat){numel, param_dtype(t->sh, i), FAC_PARAM, op, sh, true});
}

/* A shard on the host goes to the device first. */
static void
upload(struct gather *t, uint32_t i)
{
	uint32_t x = t->host ? whole(t, i, padded(t, i) / t->sh->ways, "shard_upload") : 0;

	flat_drop(t->sh, &x);
}

static void
gather_one(struct gather *t, uint32_t i)
{
	t->pieces[i].where = HERE;
	if (t->sh->ways == 1 && !t->host)
		return;            /* the shard is the parameter */
	t->pieces[i].data = whole(t, i, padded(t, i), "all_gather");
	upload(t, i);
}

static void
gather_several(struct gather *t, const uint32_t *params, uint32_t n)
{
	struct shares *shares = shares_new(t->sh);
	struct collective *c;
	int64_t numel = 0;

	ROOM(t->s->c->a, t->made, t->ncall, t->call_cap, 1);
	c = &t->made[t->ncall++];
	*c = (struct collective){.params = NEW(t->s->c->a, uint32_t, n), .n = n, .waiting = n};
	for (uint32_t k = 0; k < n; k++) {
		c->params[k] = params[k];
		t->pieces[params[k]].where = IN_FLIGHT;
		t->pieces[params[k]].call = t->ncall;
		numel += padded(t, params[k]);
		shares_add(t->sh, shares, params[k]);
	}
	c->flat = flat_new(t->sh, (struct flat){numel, param_dtype(t->sh, params[0]), FAC_PARAM, "all_gather", shares, true});
	for (uint32_t k = 0; k < n; k++)
		upload(t, params[k]);
}

static void
gather(struct gather *t, const uint32_t *params, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++)
		t->available += param_numel(t->sh, params[k]);
	if (n == 1 || (t->sh->ways == 1 && !t->host))
		for (uint32_t k = 0; k < n; k++)
			gather_one(t, params[k]);
	else if (n)
		gather_several(t, params, n);
}

/* The first that is waited for makes the copies of all; the buffer goes with the last. */
static void
wait_for(struct gather *t, uint32_t i)
{
	struct collective *c;

	if (!t->pieces[i].call)
		return;
	c = &t->made[t->pieces[i].call - 1];
	for (uint32_t k = 0; k < c->n && !c->copied; k++) {
		t->pieces[c->params[k]].data = whole(t, c->params[k], param_numel(t->sh, c->params[k]), "gathered_parameter");
		t->pieces[c->params[k]].where = HERE;
	}
	c->copied = true;
	t->pieces[i].call = 0;
	if (--c->waiting == 0)
		flat_drop(t->sh, &c->flat);
}

static void
release(struct gather *t, uint32_t i)
{
	struct piece *p = &t->pieces[i];

	if (p->where == AWAY || p->active)
		return;
	wait_for(t, i);
	p->where = AWAY;
	flat_drop(t->sh, &p->data);
	t->available -= param_numel(t->sh, i);
}

/* ---- the queue ------------------------------------------------------------------------------------------------------ */

/* What the running module needs is taken off the queue, so that it is not fetched ahead. */
static void
take_from_queue(struct gather *t, const struct module *m)
{
	uint32_t missing = 0;

	t->stamp++;
	for (uint32_t k = 0; k < m->n; k++)
		if (t->pieces[m->params[k]].fetched < (int64_t)t->step && t->pieces[m->params[k]].stamp != t->stamp) {
			t->pieces[m->params[k]].stamp = t->stamp;
			missing++;
		}
	while (missing && t->queue < t->nuse) {
		struct use u = t->uses[t->queue++];

		t->pieces[u.param].fetched = u.step;
		if (t->pieces[u.param].stamp == t->stamp) {
			t->pieces[u.param].stamp = 0;
			missing--;
		}
	}
}

static void
fetch_ahead(struct gather *t)
{
	int64_t room = t->max_live - t->available < t->prefetch ? t->max_live - t->available : t->prefetch, numel = 0;
	uint32_t n = 0;

	t->stamp++;
	while (t->queue < t->nuse && numel < room) {
		struct use u = t->uses[t->queue++];
		struct piece *p = &t->pieces[u.param];

		p->fetched = p->fetched > (int64_t)u.step ? p->fetched : (int64_t)u.step;
		if (p->where != AWAY || p->stamp == t->stamp)
			continue;
		p->stamp = t->stamp;
		t->list[n++] = u.param;
		numel += param_numel(t->sh, u.param);
	}
	gather(t, t->list, n);
}

/* ---- the hooks --------------------------------------------------------------------------------------------------------- */

static void
fetch(struct gather *t, uint32_t module)
{
	const struct module *m = &t->modules[module];
	uint32_t n = 0;

	if (t->recording) {
		ROOM(t->s->c->a, t->order, t->norder, t->order_cap, 1);
		t->order[t->norder++] = module;
	}
	t->stamp++;
	for (uint32_t k = 0; k < m->n; k++)
		if (t->pieces[m->params[k]].where == AWAY && t->pieces[m->params[k]].stamp != t->stamp) {
			t->pieces[m->params[k]].stamp = t->stamp;
			t->list[n++] = m->params[k];
		}
	gather(t, t->list, n);
	for (uint32_t k = 0; k < m->n; k++) {
		t->pieces[m->params[k]].active++;
		wait_for(t, m->params[k]);
	}
	if (t->complete) {
		take_from_queue(t, m);
		if (t->prefetch)
			fetch_ahead(t);
	}
	t->step++;
}

/* Marks the parameters of a module that must stay. */
static void
find_kept(struct gather *t, const struct module *m)
{
	int64_t traversed = 0;

	t->stamp++;
	for (uint32_t k = 0; k < m->n; k++) {
		struct piece *p = &t->pieces[m->params[k]];

		if (p->persists || p->fetched > (int64_t)t->step)
			p->stamp = t->stamp;
	}
	for (uint32_t o = t->step; o < t->norder && traversed < t->max_reuse; o++) {
		const struct module *later = &t->modules[t->order[o]];

		for (uint32_t k = 0; k < later->n; k++) {
			t->pieces[later->params[k]].stamp = t->stamp;
			traversed += param_numel(t->sh, later->params[k]);
		}
	}
}

static void
leave(struct gather *t, const struct entry *e)
{
	const struct module *m = &t->modules[e->module];

	if (m->n && t->complete)
		find_kept(t, m);
	for (uint32_t k = 0; k < m->n; k++) {
		t->pieces[m->params[k]].active--;
		if (!e->keep && !(t->complete && t->pieces[m->params[k]].stamp == t->stamp))
			release(t, m->params[k]);
	}
}

static void
enter(struct gather *t, uint32_t module, uint32_t first, bool keep)
{
	ROOM(t->s->c->a, t->stack, t->nstack, t->stack_cap, 1);
	t->stack[t->nstack++] = (struct entry){module, first, keep};
	fetch(t, module);
}

static void
unwind(struct gather *t, uint32_t to)
{
	while (t->nstack > to)
		leave(t, &t->stack[--t->nstack]);
}

/* A module that reads nothing but whole numbers: no gradient of an input tells that its backward is over. */
static bool
reads_numbers(const struct gather *t, uint32_t first)
{
	const struct graph *g = t->s->g;

	for (struct operands it = operands_of(g, first); operand_next(&it);)
		if (g->vals[it.val].kind != VAL_PARAM && dtype_is_float(g->vals[it.val].dtype))
			return false;
	return true;
}

static void
enter_strangers(struct gather *t, uint32_t n)
{
	for (struct operands it = operands_of(t->s->g, n); operand_next(&it);) {
		const struct val *v = &t->s->g->vals[it.val];
		uint32_t i = v->kind == VAL_PARAM ? t->sh->index[v->tied ? v->tied : it.val] : 0;

		if (!i || t->pieces[i - 1].active)
			continue;
		if (!t->lone[i - 1]) {
			t->lone[i - 1] = module_new(t);
			module_add(t, t->lone[i - 1], i - 1);
		}
		enter(t, t->lone[i - 1], 0, false);
	}
}

/* A node is about to run: modules that it is not in are left, those that it is in entered, outermost first. */
void
gather_at(struct gather *t, uint32_t n)
{
	const struct graph *g = t->s->g;
	unsigned depth = n ? calls_depth(g, n) : 0, same = 0;

	if (!n)
		return;
	while (same < t->nstack && same < depth && t->stack[same].first == t->calls.first[t->calls.at[n] + same + 1] &&
	    t->stack[same].module == t->of_path[g->scopes[scope_at(g, g->nodes[n].scope, same + 1)].path])
		same++;
	unwind(t, same);
	for (unsigned d = same + 1; d <= depth; d++) {
		uint32_t first = t->calls.first[t->calls.at[n] + d];

		enter(t, t->of_path[g->scopes[scope_at(g, g->nodes[n].scope, d)].path], first, t->sh->backward && reads_numbers(t, first));
	}
	enter_strangers(t, n);
}

void
gather_leave(struct gather *t)
{
	unwind(t, 0);
}

void
gather_release(struct gather *t, bool all)
{
	unwind(t, 0);
	for (uint32_t i = 0; i < t->sh->x->nparam; i++)
		if (all || !t->pieces[i].persists)
			release(t, i);
}

void
gather_persist(struct gather *t)
{
	for (uint32_t i = 0; i < t->sh->x->nparam; i++)
		if (t->pieces[i].persists)
			gather_one(t, i);
}

/* ---- the trace ------------------------------------------------------------------------------------------------------------ */

static void
finish_trace(struct gather *t)
{
	for (uint32_t o = 0; o < t->norder; o++)
		for (uint32_t k = 0; k < t->modules[t->order[o]].n; k++) {
			ROOM(t->s->c->a, t->uses, t->nuse, t->use_cap, 1);
			t->uses[t->nuse++] = (struct use){t->modules[t->order[o]].params[k], o};
		}
	t->recording = false;
	t->complete = true;
}

/* The first micro-batch is recorded; from the second on it is followed. What is still on its way is given up. */
void
gather_restart(struct gather *t)
{
	for (uint32_t i = 0; i < t->sh->x->nparam; i++) {
		if (t->pieces[i].call) {
			wait_for(t, i);
			release(t, i);
		}
		t->pieces[i].fetched = -1;
	}
	t->ncall = 0;
	if (t->recording)
		finish_trace(t);
	else if (!t->complete)
		t->recording = true;
	t->queue = t->step = 0;
	t->available = 0;
}
