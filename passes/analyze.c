/* The door of the passes: a model and a recipe to a report. */
#include "../frontend/frontend.h"
#include "../ir/api.h"
#include "passes.h"
#include "sweep.h"

#include <stdlib.h>

struct work {
	const mc_model *m;
	const struct recipe *r;
	mc_report *out;
	enum when when;
	bool brief;
};

/* Operators that have no row, or that nothing has turned into one that can be lowered. */
static bool
is_unknown(const struct analysis *a, uint32_t n)
{
	unsigned op = a->g->nodes[n].op;

	return op == OP_NONE || (a->sched && op_is_onnx(op));
}

static void
count_nodes(struct analysis *a, struct report *r)
{
	uint32_t cap = 0;

	r->modelled_nodes = a->g->file_nodes;
	for (uint32_t n = 1; n < a->g->nnode; n++) {
		struct str name = graph_str(a->g, a->g->nodes[n].target);
		uint32_t i = 0;

		if (!is_unknown(a, n))
			continue;
		while (i < r->nunknown && !str_eq(r->unknown[i].name, name))
			i++;
		if (i == r->nunknown) {
			ROOM(a->c->a, r->unknown, r->nunknown, cap, 1);
			r->unknown[r->nunknown++] = (struct op_count){name, 0};
		}
		r->unknown[i].count++;
		r->modelled_nodes -= r->modelled_nodes > 0;
	}
}

/* "s72 (input_ids[0]: --dim batch=N or --dim s72=N)" */
static struct str
unbound_symbol(struct analysis *a, struct str name)
{
	struct graph *g = a->g;
	uint32_t s = sym_find(g, name);
	const struct sym *x = &g->syms[s];
	struct str out = str_fmt(a->c->a, "%.*s (", SFMT(name)), input = graph_str(g, g->vals[x->input].name);
	const char *common = !x->input ? "" : x->axis == 0 ? "--dim batch=N or " : x->axis == 1 && dtype_info(g->vals[x->input].dtype)->cat == CAT_INT ? "--dim seq=N or " : "";

	if (!s)
		return str_fmt(a->c->a, "%.*sthe file has no shape of it: --shape %.*s=AxBx..)", SFMT(out), SFMT(name));
	if (x->input && !str_ends(name, S("]")))
		out = str_fmt(a->c->a, "%.*s%.*s[%u]: ", SFMT(out), SFMT(input), x->axis);
	if (str_eq(name, S("batch")) || str_eq(name, S("seq")))
		common = "";
	return str_fmt(a->c->a, "%.*s%s--dim %.*s=N)", SFMT(out), common, SFMT(name));
}

static struct str
unbound_list(struct analysis *a)
{
	struct str s = S("");

	for (uint32_t i = 0; i < a->nunbound && i < 100; i++)
		s = str_list(a->c->a, s, "%.*s", SFMT(unbound_symbol(a, a->unbound[i])));
	return s;
}

/* What keeps the answer from being whole. */
static void
report_gaps(struct analysis *a, const struct report *r)
{
	struct str s = S(""), dims;

	for (uint32_t i = 0; i < r->nunknown && i < 10; i++)
		s = str_list(a->c->a, s, "%.*s (%u)", SFMT(r->unknown[i].name), r->unknown[i].count);
	if (r->nunknown)
		diag(a->c, DIAG_UNKNOWN_OPS, SFMT(s));
	dims = unbound_list(a);
	if (dims.n)
		diag(a->c, DIAG_UNBOUND_DIMS, SFMT(dims));
}

static void
finish(struct analysis *a, struct report *r)
{
	r->g = a->g;
	r->sched = a->sched;
	r->unbound = a->unbound;
	r->nunbound = a->nunbound;
	r->assumptions = a->assumptions;
	r->nassumption = a->nassumption;
	r->sized = a->sized;
	r->values = a->sized + a->guessed + a->unsized;
	r->lower_bound = a->lower_bound || r->nunknown || a->guessed || a->unsized;
	for (uint32_t i = 0; i < r->nload_diag; i++)
		r->lower_bound |= r->load_diags[i].code == DIAG_NORM_FOLDED || r->load_diags[i].code == DIAG_LAYERS_MISSING;       /* bytes are known to be missing */
	if (r->lower_bound && r->verdict.fits && !a->brief)
		r->verdict.sure = false;
	r->diags = a->c->diags;
	r->ndiag = a->c->ndiag;
}

/* What the recipe can say and no pass does yet must not pass in silence. */
static bool
check_recipe(struct analysis *a)
{
	if (!a->r->v[RK_LORA_R].i && (a->r->v[RK_LORA_BIAS].i || a->r->v[RK_LORA_DORA].i || a->r->v[RK_LORA_SAVE].nlist))
		return diag(a->c, DIAG_RECIPE_CONFLICT, "lora.bias, lora.use_dora and lora.modules_to_save need lora.r");
	if (a->r->v[RK_ATTENTION].i == ATT_CUDNN)
		assume(a, "attention on cuDNN, for 16-bit heads, keeps what flash attention keeps, and its mask");
	return true;
}

static bool
analyze(void *arg)
{
	struct work *w = arg;
	struct analysis *a = NEW(w->out->c.a, struct analysis, 1);
	struct report *r = &w->out->r;
	struct str how = S("");

	a->c = &w->out->c;
	a->c->file = w->m->c.file;
	a->r = recipe_copy(a->c->a, w->r);
	a->g = graph_copy(w->m->g, a->c);
	a->report = r;
	a->brief = w->brief;
	r->r = a->r;
	r->file = w->m->c.file;
	r->loaded = w->m->g;
	r->load_diags = w->m->c.diags;
	r->nload_diag = w->m->c.ndiag;
	for (uint32_t i = 0; i < a->g->nnote; i++)
		assume(a, "%.*s", SFMT(a->g->notes[i]));
	for (uint32_t i = 0; i < a->r->nnote; i++)
		assume(a, "%.*s", SFMT(a->r->notes[i]));
	if (!framework_accumulation(a->c, a->r, &how))
		return false;
	if (how.n)
		assume(a, "%.*s", SFMT(how));
	if (w->when == TRAIN && !check_recipe(a))
		return false;
	if (!passes_run(a, w->when))
		return false;
	count_nodes(a, r);
	if (w->when == TRAIN)
		report_gaps(a, r);
	finish(a, r);
	w->out->incomplete = r->lower_bound;
	return true;
}

static mc_status
run(const mc_model *m, const mc_recipe *recipe, const mc_options *o, mc_report **out, enum when when, bool brief)
{
	struct recipe dflt;
	struct work w = {.m = m, .r = recipe ? &recipe->r : &dflt, .when = when, .brief = brief};
	mc_status st;

	if (!out)
		return MC_BAD_INPUT;
	*out = NULL;
	if (!m || !m->g)
		return MC_BAD_INPUT;
	recipe_init(&dflt);
	*out = w.out = calloc(1, sizeof *w.out);
	if (!w.out)
		return MC_NO_MEMORY;
	if (!ctx_open(&w.out->c, o)) {
		free(w.out);
		*out = NULL;
		return MC_NO_MEMORY;
	}
	st = ctx_enter(&w.out->c, analyze, &w);
	return st == MC_OK && w.out->incomplete && when == TRAIN ? MC_INCOMPLETE : st;
}

mc_status
mc_analyze(const mc_model *m, const mc_recipe *r, const mc_options *o, mc_report **out)
{
	return run(m, r, o, out, TRAIN, false);
}

mc_status
analyze_brief(const mc_model *m, const mc_recipe *r, const mc_options *o, mc_report **out)
{
	return run(m, r, o, out, TRAIN, true);
}

mc_status
mc_inspect(const mc_model *m, const mc_recipe *r, const mc_options *o, mc_report **out)
{
	return run(m, r, o, out, ALWAYS, false);
}
