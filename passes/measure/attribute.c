/*
 * attribute: who holds the bytes at the peak. Every live storage goes to a factor, to a module and all modules around it, and to
 * a modality: parameters, gradients and optimizer state to the module that owns the parameter, everything else to the one whose
 * operator made it. Also the founding paper's plain sum, and what the model holds at all.
 */
#include "../passes.h"

#include <stdlib.h>
#include <string.h>

struct attribution {
	struct analysis *a;
	struct report *r;
	const struct graph *g;
	struct strtab *paths;      /* id = module row + 1 */
	uint32_t cap;
	struct arena *own;         /* of what is gone with the pass */
	uint32_t *of_val, *of_scope;       /* rows of modules that were looked up, + 1 */
};

/* ---- modules -------------------------------------------------------------------------------------------- */

/* The row of a module path, with rows for every dotted prefix. */
static uint32_t
module_of(struct attribution *t, struct str path)
{
	uint32_t id = path.n ? strtab_find(t->paths, path) : 0, row, parent = 0, cut = path.n;

	if (id || !path.n)
		return id;         /* ids are handed out in step with rows, so that they are equal */
	while (cut && path.p[cut - 1] != '.')
		cut--;
	if (cut > 1)
		parent = module_of(t, str_sub(path, 0, cut - 1));
	id = strtab_id(t->paths, path);
	ROOM(t->a->c->a, t->r->modules, t->r->nmodule, t->cap, 1);
	row = t->r->nmodule++;
	t->r->modules[row] = (struct module_row){.path = strtab_str(t->paths, id), .parent = parent};
	return row;
}

static uint32_t
module_of_param(struct attribution *t, uint32_t v)
{
	if (!t->of_val[v])
		t->of_val[v] = 1 + module_of(t, path_parent(graph_str(t->g, t->g->vals[v].full ? t->g->vals[v].full : t->g->vals[v].name)));
	return t->of_val[v] - 1;
}

static uint32_t
module_of_node(struct attribution *t, uint32_t n)
{
	uint32_t scope = t->g->nodes[n].scope;

	if (n && !t->of_scope[scope])
		t->of_scope[scope] = 1 + module_of(t, scope_path(t->g, scope));
	return n ? t->of_scope[scope] - 1 : 0;
}

static uint32_t
module_of_storage(struct attribution *t, const struct storage *s)
{
	return s->val && t->g->vals[s->val].kind != VAL_INPUT ? module_of_param(t, s->val) : module_of_node(t, s->node);
}

static void
make_modules(struct attribution *t)
{
	t->paths = strtab_new(t->a->c->a);
	ROOM(t->a->c->a, t->r->modules, 0, t->cap, 1);
	t->r->modules[0] = (struct module_row){.path = S(""), .cls = graph_str(t->g, t->g->root_class)};
	t->r->nmodule = 1;
	for (uint32_t s = 1; s < t->g->nscope; s++) {
		uint32_t row = module_of(t, scope_path(t->g, s));

		t->r->modules[row].cls = graph_str(t->g, t->g->scopes[s].cls);
	}
	for (uint32_t v = 1; v < t->g->nval; v++)
		if (t->g->vals[v].kind == VAL_PARAM)
			module_of_param(t, v);
}

#define FOR_MODULE_AND_PARENTS(t, row, i) \
	for (uint32_t i = (row), done_ = 0; !done_; done_ = i == 0, i = (t)->r->modules[i].parent)

/* ---- parameters ------------------------------------------------------------------------------------------- */

static uint64_t
elements(const struct graph *g, uint32_t v)
{
	uint64_t n = 1;

	for (unsigned i = 0; g->vals[v].rank != RANK_UNKNOWN && i < g->vals[v].rank; i++)
		if (!mul_u64(n, (uint64_t)(val_dims(g, v)[i].expr ? 0 : val_dims(g, v)[i].n), &n))
			return UINT64_MAX / 2;
	return n;
}

static void
count_params(struct attribution *t)
{
	struct report *r = t->r;

	for (uint32_t v = 1; v < t->g->nval; v++) {
		const struct val *x = &t->g->vals[v];
		uint64_t n, bytes;
		bool trains = x->flags & VF_TRAINABLE;

		if (x->kind == VAL_BUFFER)
			r->buffer_bytes += dtype_bytes(analysis_dtype(t->a, v), elements(t->g, v));
		if (x->kind != VAL_PARAM || x->tied)
			continue;
		n = elements(t->g, v);
		bytes = dtype_bytes(analysis_dtype(t->a, v), n);
		r->param_count += n;
		r->param_bytes += bytes;
		r->param_trainable += trains ? n : 0;
		r->param_trainable_bytes += trains ? bytes : 0;
		r->modalities[x->modality].parameters += n;
		r->modalities[x->modality].trainable += trains ? n : 0;
		FOR_MODULE_AND_PARENTS(t, module_of_param(t, v), i) {
			r->modules[i].parameters += n;
			r->modules[i].trainable += trains ? n : 0;
		}
	}
}

/* ---- the peak ----------------------------------------------------------------------------------------------- */

static bool *
live_at(struct attribution *t, uint32_t event)
{
	const struct schedule *s = t->a->sched;
	bool *live = NEW(t->own, bool, s->nstorage);

	for (uint32_t e = 0; e <= event && e < s->nevent; e++)
		live[EVENT_STORAGE(s->events[e])] = !EVENT_IS_FREE(s->events[e]);
	return live;
}

static uint8_t
modality_of(const struct attribution *t, const struct storage *s)
{
	if (s->val || s->shares)
		return t->g->vals[s->shares ? s->shares->of[0].val : s->val].modality;
	return t->g->nodes[s->node].modality;
}

static struct live_row
describe(struct attribution *t, uint32_t storage)
{
	const struct storage *s = &t->a->sched->storages[storage];
	struct live_row row = {.storage = storage, .factor = factor_name(factor_in_step(t->r, t->a->sched, storage, t->r->peak_step, t->r->steps[t->r->peak_step].event))};

	row.module_row = module_of_storage(t, s);
	row.module = t->r->modules[row.module_row].path;
	row.node = s->node ? graph_str(t->g, t->g->nodes[s->node].name) : S("");
	if (s->val)
		row.name = graph_str(t->g, t->g->vals[s->val].full ? t->g->vals[s->val].full : t->g->vals[s->val].name);
	else
		row.name = row.node.n ? row.node : str_of(s->op);
	return row;
}

struct size {
	uint64_t nbytes;
	uint32_t storage;
};

/* The largest first, of equal ones the oldest. */
static void
sort_sizes(struct size *x, uint32_t n, struct size *tmp)
{
	uint32_t half = n / 2, i = 0, k = half, m = 0;

	if (n < 2)
		return;
	sort_sizes(x, half, tmp);
	sort_sizes(x + half, n - half, tmp);
	if (x[half - 1].nbytes >= x[half].nbytes)
		return;
	while (i < half || k < n)
		tmp[m++] = k == n || (i < half && x[i].nbytes >= x[k].nbytes) ? x[i++] : x[k++];
	memcpy(x, tmp, n * sizeof *x);
}

/* Bytes that several parameters have together are split by their shares; what is left of the division is the last one's. */
static uint64_t
share_bytes(const struct storage *s, uint32_t i, uint64_t given)
{
	const struct shares *of = s->shares;

	if (i + 1 == of->n)
		return s->nbytes - given;
	return (uint64_t)((long double)s->nbytes * (long double)of->of[i].weight / (long double)of->total);
}

static void
add_shares(struct attribution *t, const struct storage *s, unsigned factor)
{
	uint64_t given = 0;

	for (uint32_t i = 0; i < s->shares->n; i++) {
		uint64_t n = share_bytes(s, i, given);
		uint32_t v = s->shares->of[i].val;

		given += n;
		t->r->modalities[t->g->vals[v].modality].at.of[factor] += n;
		FOR_MODULE_AND_PARENTS(t, module_of_param(t, v), k)
			t->r->modules[k].at.of[factor] += n;
	}
}

static void
add_live(struct attribution *t, uint32_t storage)
{
	const struct storage *s = &t->a->sched->storages[storage];
	unsigned factor = factor_in_step(t->r, t->a->sched, storage, t->r->peak_step, t->r->steps[t->r->peak_step].event);

	if (s->shares) {
		add_shares(t, s, factor);
		return;
	}
	t->r->modalities[modality_of(t, s)].at.of[factor] += s->nbytes;
	FOR_MODULE_AND_PARENTS(t, module_of_storage(t, s), i)
		t->r->modules[i].at.of[factor] += s->nbytes;
}

static void
attribute_peak(struct attribution *t)
{
	struct report *r = t->r;
	const struct schedule *s = t->a->sched;
	uint32_t event = r->steps[r->peak_step].event;
	bool *live = live_at(t, event);
	const struct storage *last = &s->storages[EVENT_STORAGE(s->events[event])];
	struct size *x = NEW(t->own, struct size, s->nstorage);

	for (uint32_t i = 1; i < s->nstorage; i++)
		if (live[i] && s->storages[i].nbytes) {
			add_live(t, i);
			x[r->nlive++] = (struct size){s->storages[i].nbytes, i};
		}
	sort_sizes(x, r->nlive, NEW(t->own, struct size, r->nlive));
	r->live = NEW(t->a->c->a, struct live_row, r->nlive + 1);
	for (uint32_t i = 0; i < r->nlive; i++)
		r->live[i] = describe(t, x[i].storage);
	r->peak_node = last->node;
	r->peak_op = str_of(last->op ? last->op : "");
	r->peak_modality = modality_of(t, last);
	FOR_MODULE_AND_PARENTS(t, module_of_storage(t, last), i)
		r->modules[i].peak_here = true;
}

/* Saved by module: what was made in the peak step's forward and was alive at its end. */
static void
attribute_saved(struct attribution *t)
{
	const struct schedule *s = t->a->sched;

	for (uint32_t i = 1; i < s->nstorage; i++)
		if (s->storages[i].factor == FAC_SAVED && s->spans[s->storages[i].phase].step == t->r->peak_step)
			FOR_MODULE_AND_PARENTS(t, module_of_storage(t, &s->storages[i]), k)
				t->r->modules[k].saved += s->storages[i].nbytes;
}

/* ---- the plain sum --------------------------------------------------------------------------------------------- */

static void
add_plain(struct attribution *t, const struct storage *x)
{
	uint64_t given = 0;

	if (!x->shares)
		t->r->modalities[modality_of(t, x)].plain.of[x->factor] += x->nbytes;
	for (uint32_t i = 0; x->shares && i < x->shares->n; i++) {
		uint64_t n = share_bytes(x, i, given);

		given += n;
		t->r->modalities[t->g->vals[x->shares->of[i].val].modality].plain.of[x->factor] += n;
	}
}

/* Parameters + gradients + optimizer state + all that forward keeps, each at its own largest, whatever the time. */
static void
sum_plainly(struct attribution *t)
{
	const struct schedule *s = t->a->sched;
	uint32_t last_micro = 0;

	for (uint32_t i = 0; i < s->nspan; i++)
		if (s->spans[i].step == 2 && s->spans[i].phase == PH_FORWARD)
			last_micro = s->spans[i].micro;
	for (uint32_t i = 1; i < s->nstorage; i++) {
		const struct storage *x = &s->storages[i];
		const struct span *sp = &s->spans[x->phase];
		bool once = x->factor == FAC_PARAM || x->factor == FAC_INPUT || x->factor == FAC_OPT;

		if (!once && !(x->factor == FAC_SAVED && sp->step == 2 && sp->micro == last_micro) && !(x->factor == FAC_GRAD && sp->step == 2))
			continue;
		if (x->passing)
			continue;
		t->r->plain.of[x->factor] += x->nbytes;
		add_plain(t, x);
	}
}

/* ---- modules of a modality ---------------------------------------------------------------------------------------- */

static void
add_module_name(struct attribution *t, unsigned modality, struct str path)
{
	struct modality_row *m = &t->r->modalities[modality];

	ROOM(t->a->c->a, m->modules, m->nmodule, m->module_cap, 1);
	m->modules[m->nmodule++] = path;
}

/* A module is of a modality if all its parameters are; the topmost such ones name the modality. */
static void
name_modalities(struct attribution *t)
{
	struct report *r = t->r;
	uint8_t *seen = NEW(t->own, uint8_t, r->nmodule);      /* bit per modality */

	for (uint32_t v = 1; v < t->g->nval; v++)
		if (t->g->vals[v].kind == VAL_PARAM)
			FOR_MODULE_AND_PARENTS(t, module_of_param(t, v), i)
				seen[i] |= (uint8_t)(1u << t->g->vals[v].modality);
	for (uint32_t i = 0; i < r->nmodule; i++) {
		if (!seen[i])      /* without parameters: of its parent's */
			r->modules[i].modality = r->modules[r->modules[i].parent].modality;
		for (unsigned m = 1; m < MOD_COUNT; m++) {
			if (seen[i] != 1u << m)
				continue;
			r->modules[i].modality = (uint8_t)m;
			if (i == 0 || seen[r->modules[i].parent] != seen[i])
				add_module_name(t, m, r->modules[i].path);
		}
	}
}

bool
pass_attribute(struct analysis *a)
{
	struct attribution t = {.a = a, .r = a->report, .g = a->g, .own = arena_part(a->c->a)};

	t.of_val = NEW(t.own, uint32_t, a->g->nval);
	t.of_scope = NEW(t.own, uint32_t, a->g->nscope);
	make_modules(&t);
	count_params(&t);
	name_modalities(&t);
	if (a->sched) {
		attribute_peak(&t);
		attribute_saved(&t);
		sum_plainly(&t);
	}
	arena_cancel(a->c->a, t.own);
	return true;
}
