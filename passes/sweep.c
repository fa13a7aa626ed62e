/*
 * Sweeps: the door, the grid, and the threads that work on it. Each configuration is an analysis of its own, in an arena of its own; a
 * thread takes the next row that nobody has and writes nothing but that row, so that the table does not depend on who was faster.
 */
#include "sweep.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct crew {
	mc_sweep *s;
	const mc_options *options;
	mc_progress_fn *progress;
	void *user;
	pthread_mutex_t lock;
	uint32_t next, done, fitted;       /* fitted: the axis, UINT32_MAX = none */
	bool stop;
};

/* ---- one configuration -------------------------------------------------------------------------------------------- */

uint32_t
sweep_value(const struct sweep_table *s, uint32_t row, uint32_t axis)
{
	for (uint32_t i = s->naxis; i-- > axis + 1;)
		if (!s->axes[i].fitted)
			row /= s->axes[i].n;
	return s->axes[axis].fitted ? 0 : row % s->axes[axis].n;
}

struct setting {
	const struct configuration *conf;
	mc_recipe *r;
};

static bool
set_axis(struct setting *t, uint32_t i)
{
	const struct sweep_table *s = &t->conf->s->s;
	const struct sweep_axis *x = &s->axes[i];
	uint32_t v = sweep_value(s, t->conf->row, i);
	struct ctx *c = &t->r->c;

	if (x->changes)
		return changes_set(c, &t->r->r, x->text[v]);
	if (!x->key)
		return recipe_set_dim(c, &t->r->r, x->name, x->fitted ? t->conf->fitted : x->number[v]);
	if (x->fitted)
		return recipe_set_text(c, &t->r->r, x->key, str_fmt(c->a, "%lld", (long long)t->conf->fitted));
	return recipe_set_text(c, &t->r->r, x->key, x->text[v]);
}

static bool
set_recipe(void *arg)
{
	struct setting *t = arg;
	const struct sweep_table *s = &t->conf->s->s;

	t->r->r = *recipe_copy(t->r->c.a, s->base);
	for (uint32_t i = 0; i < s->naxis; i++)
		if (!set_axis(t, i))
			return false;
	return true;
}

static void
keep_error(struct sweep_row *row, const struct ctx *c, const char *otherwise)
{
	const char *text = otherwise;

	for (uint32_t i = 0; i < c->ndiag; i++)
		if (c->diags[i].severity == SEV_ERROR) {
			text = c->diags[i].text.p;
			break;
		}
	strncpy(row->error, text, sizeof row->error - 1);
}

static void
keep_numbers(struct sweep_row *row, const struct report *r, bool incomplete)
{
	const struct step_row *st = &r->steps[r->peak_step];

	row->ok = true;
	row->lower_bound = incomplete;
	row->tensors = st->tensors;
	row->allocated = r->memory.allocated;
	row->reserved = r->memory.reserved;
	row->process_low = r->memory.process_low;
	row->process_high = r->memory.process_high;
	row->at = st->phases[st->phase].at;
	row->step = r->peak_step;
	row->phase = st->phase;
	row->verdict = r->verdict;
}

struct warnings {
	struct ctx *to;
	const struct ctx *from;
};

static bool
take_warnings(void *arg)
{
	struct warnings *w = arg;

	for (uint32_t i = 0; i < w->from->ndiag; i++)
		if (w->from->diags[i].severity == SEV_WARNING)
			diag_pass_on(w->to, &w->from->diags[i]);
	return true;
}

/* Warnings are told once for the whole sweep; errors stand in the row. */
static void
pass_warnings_on(const struct configuration *conf, const mc_report *r)
{
	struct warnings w = {&conf->s->c, &r->c};

	if (!r->c.ndiag)
		return;
	pthread_mutex_lock(&conf->crew->lock);
	ctx_enter(&conf->s->c, take_warnings, &w);
	pthread_mutex_unlock(&conf->crew->lock);
}

static void
analyse(const struct configuration *conf, mc_recipe *r, struct sweep_row *row)
{
	mc_report *rep = NULL;
	mc_status st = analyze_brief(conf->s->m, r, conf->options, &rep);

	if (st == MC_OK || st == MC_INCOMPLETE)
		keep_numbers(row, &rep->r, st == MC_INCOMPLETE);
	else if (rep)
		keep_error(row, &rep->c, diag_format(st == MC_LIMIT ? DIAG_LIMIT_MEMORY : DIAG_NO_MEMORY));
	else
		keep_error(row, &r->c, diag_format(DIAG_NO_MEMORY));
	if (rep)
		pass_warnings_on(conf, rep);
	mc_report_free(rep);
}

void
sweep_analyse(const struct configuration *conf, struct sweep_row *row)
{
	struct setting t = {conf, mc_recipe_new()};

	*row = (struct sweep_row){0};
	if (!t.r) {
		strncpy(row->error, diag_format(DIAG_NO_MEMORY), sizeof row->error - 1);
		return;
	}
	if (ctx_enter(&t.r->c, set_recipe, &t) == MC_OK)
		analyse(conf, t.r, row);
	else
		keep_error(row, &t.r->c, diag_format(DIAG_NO_MEMORY));
	mc_recipe_free(t.r);
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

/* The next row, or UINT32_MAX when there is none. */
static uint32_t
take(struct crew *w)
{
	uint32_t row = UINT32_MAX;

	pthread_mutex_lock(&w->lock);
	if (!w->stop && w->next < w->s->s.nrow)
		row = w->next++;
	pthread_mutex_unlock(&w->lock);
	return row;
}

static void
finish(struct crew *w)
{
	pthread_mutex_lock(&w->lock);
	w->done++;
	if (w->progress && !w->stop && w->progress(w->user, w->done, w->s->s.nrow))
		w->stop = true;
	pthread_mutex_unlock(&w->lock);
}

static void *
work(void *arg)
{
	struct crew *w = arg;
	uint32_t row;

	while ((row = take(w)) != UINT32_MAX) {
		struct configuration conf = {.s = w->s, .options = w->options, .crew = w, .row = row};

		if (w->fitted != UINT32_MAX)
			sweep_search(&conf, w->fitted, &w->s->s.rows[row]);
		else
			sweep_analyse(&conf, &w->s->s.rows[row]);
		finish(w);
	}
	return NULL;
}

/* The caller works too; a thread that cannot be had is done without. */
static void
run_crew(struct crew *w, unsigned threads)
{
	pthread_t id[256];
	unsigned n = 0;

	threads = threads > 256 ? 256 : threads;
	while (n + 1 < threads && n + 1 < w->s->s.nrow && pthread_create(&id[n], NULL, work, w) == 0)
		n++;
	work(w);
	while (n)
		pthread_join(id[--n], NULL);
}

/* ---- the door ------------------------------------------------------------------------------------------------------- */

mc_status
mc_sweep_new(const mc_model *m, const mc_recipe *r, mc_sweep **out)
{
	mc_sweep *s = out ? *out = calloc(1, sizeof *s) : NULL;

	if (!out)
		return MC_BAD_INPUT;
	if (!s || !ctx_open(&s->c, NULL)) {
		free(s);
		*out = NULL;
		return MC_NO_MEMORY;
	}
	recipe_init(&s->dflt);
	s->m = m;
	s->s.base = r ? &r->r : &s->dflt;
	return m && m->g ? MC_OK : MC_BAD_INPUT;
}

struct column {
	mc_sweep *s;
	struct str name, values;
};

static bool
vary(void *arg)
{
	struct column *x = arg;

	return sweep_add_axis(x->s, x->name, x->values);
}

mc_status
mc_sweep_vary(mc_sweep *s, const char *name, const char *values)
{
	struct column x = {s, str_of(name), str_of(values)};

	return s ? ctx_enter(&s->c, vary, &x) : MC_BAD_INPUT;
}

static uint32_t
find_axis(const struct sweep_table *s, struct str name)
{
	uint32_t i = 0;

	while (i < s->naxis && !(name.n ? str_eq(s->axes[i].name, name) : s->axes[i].number != NULL))
		i++;
	return i;
}

/* The column that is searched; one that nobody added gets no values: it is searched from 1 up. */
static bool
fit(void *arg)
{
	struct column *x = arg;
	struct sweep_table *s = &x->s->s;
	uint32_t i = find_axis(s, x->name);

	if (i == s->naxis) {
		struct str name = x->name.n ? x->name : S("batch");
		struct sweep_axis axis = {.name = str_copy(x->s->c.a, name), .key = key_by_name(name)};

		if (axis.key && key_info(axis.key)->type != RT_INT)
			return diag(&x->s->c, DIAG_BAD_VARY, SFMT(name), SFMT(S("searching it")), "only numbers can be searched");
		ROOM(x->s->c.a, s->axes, s->naxis, s->axis_cap, 1);
		s->axes[s->naxis++] = axis;
	}
	if (s->axes[i].n && !s->axes[i].number)
		return diag(&x->s->c, DIAG_BAD_VARY, SFMT(x->name), SFMT(S("searching it")), "only numbers can be searched");
	s->axes[i].fitted = s->fits = true;
	return true;
}

mc_status
mc_sweep_fit(mc_sweep *s, const char *name)
{
	struct column x = {s, str_of(name ? name : ""), S("")};

	return s ? ctx_enter(&s->c, fit, &x) : MC_BAD_INPUT;
}

static bool
make_rows(void *arg)
{
	mc_sweep *s = arg;
	uint64_t n = 1;

	s->s.file = s->m->c.file;
	for (uint32_t i = 0; i < s->s.naxis; i++)
		if (!s->s.axes[i].fitted && (!mul_u64(n, s->s.axes[i].n, &n) || n > SWEEP_ROWS))
			return diag(&s->c, DIAG_TOO_MANY, "configurations", (unsigned long long)SWEEP_ROWS);
	s->s.rows = NEW(s->c.a, struct sweep_row, n);
	s->s.nrow = (uint32_t)n;
	return true;
}

static bool
report_failure(void *arg)
{
	mc_sweep *s = arg;

	return diag(&s->c, DIAG_SWEEP_FAILED, (unsigned)s->s.nrow, s->s.rows[0].error);
}

static mc_status
conclude(mc_sweep *s)
{
	bool any = false, lower = false;

	for (uint32_t i = 0; i < s->s.nrow; i++) {
		any |= s->s.rows[i].ok;
		lower |= s->s.rows[i].lower_bound;
	}
	if (!any)
		return ctx_enter(&s->c, report_failure, s);
	return lower ? MC_INCOMPLETE : MC_OK;
}

mc_status
mc_sweep_run(mc_sweep *s, const mc_options *o, unsigned threads, mc_progress_fn *progress, void *user)
{
	mc_options options;
	struct crew w = {.s = s, .options = &options, .progress = progress, .user = user, .fitted = UINT32_MAX, .lock = PTHREAD_MUTEX_INITIALIZER};
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	mc_status st = s && s->m && s->m->g ? ctx_enter(&s->c, make_rows, s) : MC_BAD_INPUT;

	if (st != MC_OK)
		return st;
	mc_options_init(&options);
	if (o)
		memcpy(&options, o, o->size < sizeof options ? o->size : sizeof options);      /* of an older header */
	options.size = sizeof options;
	options.dump_after = NULL;         /* from many threads it would be of use to nobody */
	for (uint32_t i = 0; i < s->s.naxis; i++)
		if (s->s.axes[i].fitted)
			w.fitted = i;
	run_crew(&w, threads ? threads : processors > 0 ? (unsigned)processors : 1);
	return w.stop ? MC_BAD_INPUT : conclude(s);
}

mc_fit
mc_sweep_best(const mc_sweep *s)
{
	mc_fit best = s && s->s.advice ? verdict_fit(&s->s.now.verdict) : MC_NOT_ASKED;

	for (uint32_t i = 0; s && i < s->s.nrow; i++) {
		mc_fit f = s->s.rows[i].ok ? verdict_fit(&s->s.rows[i].verdict) : MC_NOT_ASKED;

		if (f != MC_NOT_ASKED && (best == MC_NOT_ASKED || f < best))
			best = f;
	}
	return best;
}
