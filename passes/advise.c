/*
 * advise: what to change so that the job fits. advise.def lists the changes; each is tried alone, then on top of the best that keeps the training
 * and the cards as they are, until something fits. Every number is from an analysis of the changed recipe, by the threads of the sweep.
 */
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

enum { FREE = COST_FREE, SLOWER = COST_SLOWER, OTHER = COST_OTHER, ROUNDS = 3, SHOWN = 100 };

static const struct {
	const char *change;
	uint8_t cost;
	const char *help;
} table[] = {
#define ADVICE(change, cost, help) {change, cost, help},
#include "advise.def"
#undef ADVICE
};

#define NTABLE (sizeof table / sizeof table[0])

struct advisor {
	mc_sweep *s;               /* the answer */
	const mc_model *m;
	const mc_recipe *recipe;
	const struct recipe *base;
	struct str freeze;         /* what "@freeze" stands for, empty = nothing to freeze */
	struct advice *tried;   uint32_t ntried, tried_cap;
	struct sweep_row *rows; uint32_t nrow, row_cap;          /* of what was tried */
	uint32_t round;            /* first of this round */
	struct str prefix;         /* what this round's changes come on top of */
	uint8_t prefix_cost, prefix_parts;
	struct str prefix_help;
};

/* ---- changes as flags --------------------------------------------------------------------------------------------- */

/* "batch=4" */
static bool
set_dims(struct ctx *c, struct recipe *r, struct str text)
{
	struct str item;
	int64_t n;

	while (str_cut(&text, ',', &item)) {
		int64_t eq = str_find(item, '=');

		if (eq <= 0 || !str_int(str_sub(item, (uint32_t)eq + 1, item.n), &n) || !recipe_set_dim(c, r, str_sub(item, 0, (uint32_t)eq), n))
			return false;
	}
	return true;
}

static bool
set_flag(struct ctx *c, struct recipe *r, struct str flag, struct str value)
{
	struct str name = str_sub(flag, 2, flag.n);
	unsigned key = key_by_name(name);

	if (str_eq(name, S("dim")))
		return set_dims(c, r, value);
	if (!key)
		return diag(c, DIAG_UNKNOWN_KEY, SFMT(name), SFMT(recipe_key_list(c)));
	return recipe_set_text(c, r, key, value);
}

bool
changes_set(struct ctx *c, struct recipe *r, struct str changes)
{
	struct str flag, value;

	while (changes.n && str_cut(&changes, ' ', &flag))
		if (!str_cut(&changes, ' ', &value) || !set_flag(c, r, flag, value))
			return false;
	return true;
}

/* Do two changes set one key? */
static bool
overlap(struct str a, struct str b)
{
	struct str flag, other, value, rest;

	while (a.n && str_cut(&a, ' ', &flag) && str_cut(&a, ' ', &value))
		for (rest = b; rest.n && str_cut(&rest, ' ', &other) && str_cut(&rest, ' ', &value);)
			if (str_eq(flag, other))
				return true;
	return false;
}

/* Does the job have all that the change sets? */
static bool
is_there(const struct recipe *r, struct str change)
{
	struct str flag, value;

	while (change.n && str_cut(&change, ' ', &flag) && str_cut(&change, ' ', &value)) {
		unsigned key = key_by_name(str_sub(flag, 2, flag.n));

		if (!key || key_info(key)->type == RT_LIST || !str_eq(r->v[key].text, value))
			return false;
	}
	return true;
}

/* ---- what a row of the table means for this job -------------------------------------------------------------------------- */

static int64_t
batch_of(const struct recipe *r)
{
	for (uint32_t i = 0; i < r->ndim; i++)
		if (str_eq(r->dims[i].name, S("batch")))
			return r->dims[i].value;
	return 0;
}

static struct str
micro_batch(struct advisor *x, struct str by)
{
	int64_t n, batch = batch_of(x->base);

	if (!str_int(str_trim(by), &n) || n < 1 || batch % n || batch < n)
		return S("");
	return str_fmt(x->s->c.a, "--dim batch=%lld --grad_accum %lld", (long long)(batch / n), (long long)(x->base->v[RK_GRAD_ACCUM].i * n));
}

/* text with every "@dp" as a number */
static struct str
with_ranks(struct advisor *x, struct str text)
{
	int64_t at, dp = x->base->v[RK_PARALLEL_DP].i > 8 ? x->base->v[RK_PARALLEL_DP].i : 8;

	while ((at = str_find(text, '@')) >= 0)
		text = str_fmt(x->s->c.a, "%.*s%lld%.*s", SFMT(str_sub(text, 0, (uint32_t)at)), (long long)dp, SFMT(str_sub(text, (uint32_t)at + 3, text.n)));
	return text;
}

static struct str
resolve(struct advisor *x, struct str change)
{
	if (str_starts(change, S("@micro-batch ")))
		return micro_batch(x, str_sub(change, S("@micro-batch ").n, change.n));
	if (str_eq(change, S("@freeze")))
		return x->freeze;
	return with_ranks(x, change);
}

/* The modules of the modality with the most trained parameters, if others train, too. */
static void
find_freeze(struct advisor *x, const struct report *r)
{
	const struct recipe_value *given = &x->base->v[RK_FREEZE];
	unsigned best = 0;
	struct str list = S("");

	for (unsigned m = 1; m < MOD_COUNT; m++)
		if (r->modalities[m].trainable > r->modalities[best].trainable)
			best = m;
	if (!best || r->modalities[best].trainable == r->param_trainable || x->base->v[RK_TRAIN_ONLY].nlist)
		return;
	for (uint32_t i = 0; i < given->nlist; i++)
		list = str_fmt(x->s->c.a, "%.*s%s%.*s", SFMT(list), list.n ? "," : "", SFMT(given->list[i]));
	for (uint32_t i = 0; i < r->modalities[best].nmodule; i++)
		list = str_fmt(x->s->c.a, "%.*s%s%.*s", SFMT(list), list.n ? "," : "", SFMT(r->modalities[best].modules[i]));
	if (list.n && str_find(list, ' ') < 0)
		x->freeze = str_fmt(x->s->c.a, "--freeze %.*s", SFMT(list));
}

/* ---- rounds ------------------------------------------------------------------------------------------------------------------ */

static void
add_try(struct advisor *x, struct advice a)
{
	ROOM(x->s->c.a, x->tried, x->ntried, x->tried_cap, 1);
	x->tried[x->ntried++] = a;
}

static bool
list_round(void *arg)
{
	struct advisor *x = arg;

	x->round = x->ntried;
	for (size_t i = 0; i < NTABLE; i++) {
		struct str change = resolve(x, str_of(table[i].change)), help = with_ranks(x, str_of(table[i].help));
		uint8_t cost = table[i].cost > x->prefix_cost ? table[i].cost : x->prefix_cost;

		if (!change.n || is_there(x->base, change) || overlap(change, x->prefix))
			continue;
		if (x->prefix.n) {
			change = str_fmt(x->s->c.a, "%.*s %.*s", SFMT(x->prefix), SFMT(change));
			help = str_fmt(x->s->c.a, "%.*s; %.*s", SFMT(x->prefix_help), SFMT(help));
		}
		add_try(x, (struct advice){change, help, cost, (uint8_t)(x->prefix_parts + 1)});
	}
	return true;
}

static bool
keep_rows(void *arg)
{
	struct advisor *x = arg;

	ROOM(x->s->c.a, x->rows, x->nrow, x->row_cap, x->ntried);
	x->nrow = x->ntried;
	return true;
}

/* One sweep over the changes of this round. */
static mc_status
run_round(struct advisor *x, const mc_options *o, unsigned threads, mc_progress_fn *progress, void *user)
{
	mc_sweep *w;
	mc_status st = mc_sweep_new(x->m, x->recipe, &w);
	uint32_t n = x->ntried - x->round;
	struct str *text = calloc(n + 1u, sizeof *text);
	struct sweep_axis axis = {.name = S("change"), .text = text, .n = n, .changes = true};

	if (st != MC_OK || !text || !n) {
		free(text);
		mc_sweep_free(w);
		return text ? st : MC_NO_MEMORY;
	}
	for (uint32_t i = 0; i < n; i++)
		text[i] = x->tried[x->round + i].change;
	w->s.axes = &axis;
	w->s.naxis = 1;
	st = mc_sweep_run(w, o, threads, progress, user);
	if (w->s.nrow == n)                    /* a round of which nothing can be run is a round without advice */
		st = ctx_enter(&x->s->c, keep_rows, x);
	if (w->s.nrow == n && st == MC_OK)
		memcpy(x->rows + x->round, w->s.rows, n * sizeof *x->rows);
	mc_sweep_free(w);
	free(text);
	return st;
}

static bool
uses_cards(struct str change)
{
	struct str flag, value;

	while (change.n && str_cut(&change, ' ', &flag) && str_cut(&change, ' ', &value))
		if ((str_eq(flag, S("--parallel.dp")) || str_eq(flag, S("--parallel.tp"))) && !str_eq(value, S("1")))
			return true;
	return false;
}

/* What the next round builds on. false: nothing more to build on. */
static bool
choose_prefix(struct advisor *x)
{
	uint64_t least = x->s->s.now.reserved;
	bool found = false;

	for (uint32_t i = x->round; i < x->nrow; i++) {
		const struct advice *a = &x->tried[i];

		if (!x->rows[i].ok || x->rows[i].reserved >= least || a->cost == COST_OTHER || uses_cards(a->change))
			continue;
		least = x->rows[i].reserved;
		x->prefix = a->change;
		x->prefix_cost = a->cost;
		x->prefix_parts = a->parts;
		x->prefix_help = a->help;
		found = true;
	}
	return found;
}

static bool
any_fits(const struct advisor *x)
{
	for (uint32_t i = 0; i < x->nrow; i++)
		if (x->rows[i].ok && verdict_fit(&x->rows[i].verdict) == MC_FITS)
			return true;
	return false;
}

/* ---- the ranking --------------------------------------------------------------------------------------------------------------- */

static bool
is_better(const struct advisor *x, uint32_t a, uint32_t b)
{
	const struct sweep_row *p = &x->rows[a], *q = &x->rows[b];
	mc_fit f = verdict_fit(&p->verdict), g = verdict_fit(&q->verdict);

	if (f != g)
		return f < g;
	if (f == MC_FITS && x->tried[a].cost != x->tried[b].cost)
		return x->tried[a].cost < x->tried[b].cost;
	if (f == MC_FITS && x->tried[a].parts != x->tried[b].parts)
		return x->tried[a].parts < x->tried[b].parts;
	return p->reserved < q->reserved;
}

/* What helps, best first. */
static bool
rank(void *arg)
{
	struct advisor *x = arg;
	struct sweep_table *t = &x->s->s;
	uint32_t *order = NEW(x->s->c.a, uint32_t, x->nrow + 1), n = 0;
	struct str *text = NEW(x->s->c.a, struct str, SHOWN);

	for (uint32_t i = 0; i < x->nrow; i++) {
		uint32_t k = n;

		if (!x->rows[i].ok || x->rows[i].reserved >= t->now.reserved)
			continue;
		for (n++; k > 0 && is_better(x, i, order[k - 1]); k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	t->nrow = n < SHOWN ? n : SHOWN;
	t->rows = NEW(x->s->c.a, struct sweep_row, t->nrow + 1);
	t->advice = NEW(x->s->c.a, struct advice, t->nrow + 1);
	for (uint32_t i = 0; i < t->nrow; i++) {
		t->rows[i] = x->rows[order[i]];
		t->advice[i] = x->tried[order[i]];
		text[i] = t->advice[i].change;
	}
	t->axes = NEW(x->s->c.a, struct sweep_axis, 1);
	t->axes[0] = (struct sweep_axis){.name = S("change"), .text = text, .n = t->nrow, .changes = true};
	t->naxis = 1;
	return true;
}

/* ---- the door --------------------------------------------------------------------------------------------------------------------- */

struct told {
	struct advisor *x;
	const mc_report *r;
};

/* What the job is now, and what its diagnostics say. */
static bool
take_base(void *arg)
{
	struct told *t = arg;
	const struct report *r = &t->r->r;
	struct sweep_row *now = &t->x->s->s.now;

	t->x->s->s.file = t->x->m->c.file;
	for (uint32_t i = 0; i < t->r->c.ndiag; i++)
		diag_pass_on(&t->x->s->c, &t->r->c.diags[i]);
	if (t->r->c.last_words.code)
		diag_pass_on(&t->x->s->c, &t->r->c.last_words);
	if (!r->sched)
		return false;
	*now = (struct sweep_row){.ok = true, .lower_bound = t->r->incomplete, .tensors = r->steps[r->peak_step].tensors, .allocated = r->memory.allocated,
	    .reserved = r->memory.reserved, .process_low = r->memory.process_low, .process_high = r->memory.process_high, .verdict = r->verdict,
	    .step = r->peak_step, .phase = r->steps[r->peak_step].phase};
	now->at = r->steps[r->peak_step].phases[now->phase].at;
	if (!t->x->s->c.nerror)
		find_freeze(t->x, r);
	return !t->x->s->c.nerror;
}

static mc_status
begin(struct advisor *x, const mc_options *o)
{
	mc_report *r = NULL;
	mc_status st = mc_analyze(x->m, x->recipe, o, &r), taken;

	taken = r ? ctx_enter(&x->s->c, take_base, &(struct told){x, r}) : MC_NO_MEMORY;
	mc_report_free(r);
	return st == MC_OK || st == MC_INCOMPLETE ? taken : st;
}

mc_status
mc_advise(const mc_model *m, const mc_recipe *r, const mc_options *o, unsigned threads, mc_progress_fn *progress, void *user, mc_sweep **out)
{
	struct advisor x = {.m = m, .recipe = r};
	mc_status st = mc_sweep_new(m, r, out);

	if (!out)
		return st;
	x.s = *out;
	if (st == MC_OK) {
		x.base = x.s->s.base;
		st = begin(&x, o);
	}
	for (unsigned round = 0; st == MC_OK && round < ROUNDS; round++) {
		if (round > 1 && any_fits(&x))
			break;
		if (round && !choose_prefix(&x))
			break;
		st = ctx_enter(&x.s->c, list_round, &x);
		if (st == MC_OK)
			st = run_round(&x, o, threads, progress, user);
	}
	if (st == MC_OK)
		st = ctx_enter(&x.s->c, rank, &x);
	return st == MC_OK && x.s->s.now.lower_bound ? MC_INCOMPLETE : st;
}
