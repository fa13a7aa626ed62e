/* The graph as things with bytes: operators, parameters, buffers, inputs. Their bytes at the peak add up to the peak. */
#include "things.h"

#include <string.h>

const char *
thing_kind_name(unsigned k)
{
	static const char *const name[] = {"operator", "parameter", "buffer", "input", "other"};

	return name[k];
}

const char *
modality_colour(unsigned m)
{
	static const char *const colour[MOD_COUNT] = {"#8a8a85", "#1baf7a", "#eda100", "#2a78d6", "#eb6834", "#8a8a85"};

	return colour[m < MOD_COUNT ? m : 0];
}

const char *
factor_colour(unsigned f)
{
	static const char *const colour[FAC_COUNT] = {"#2a78d6", "#e34948", "#4a3aa7", "#1baf7a", "#eda100", "#e87ba4"};

	return colour[f < FAC_COUNT ? f : 0];
}

struct str
last_part(struct str path)
{
	uint32_t cut = path.n;

	while (cut && path.p[cut - 1] != '.')
		cut--;
	return str_sub(path, cut, path.n);
}

/* ---- the list ------------------------------------------------------------------------------------------------------ */

struct making {
	const struct report *r;
	struct things *t;
	struct strtab *paths;      /* id = row */
	struct arena *a;
};

static uint32_t
row_of(const struct making *m, struct str path)
{
	return path.n ? strtab_find(m->paths, path) : 0;
}

static uint32_t
row_of_val(const struct making *m, uint32_t v)
{
	const struct graph *g = m->r->g;
	struct str full = graph_str(g, g->vals[v].full ? g->vals[v].full : g->vals[v].name);
	uint32_t n = last_part(full).n;

	return row_of(m, str_sub(full, 0, full.n > n ? full.n - n - 1 : 0));
}

static uint32_t
untied(const struct graph *g, uint32_t v)
{
	return g->vals[v].tied ? g->vals[v].tied : v;
}

static void
add_val(struct making *m, uint32_t v)
{
	const struct val *x = &m->r->g->vals[v];
	struct thing *t = &m->t->list[m->t->n];

	if (m->t->of_val[v] || (x->kind != VAL_PARAM && x->kind != VAL_BUFFER && x->kind != VAL_INPUT))
		return;
	*t = (struct thing){.kind = x->kind == VAL_PARAM ? THING_PARAMETER : x->kind == VAL_BUFFER ? THING_BUFFER : THING_INPUT, .val = v, .modality = x->modality};
	t->trainable = x->kind == VAL_PARAM && (x->flags & VF_TRAINABLE);
	t->name = graph_str(m->r->g, x->full ? x->full : x->name);
	t->op = str_of(thing_kind_name(t->kind));
	t->module = x->kind == VAL_INPUT ? 0 : row_of_val(m, v);
	m->t->of_val[v] = ++m->t->n;
}

static void
add_edge(struct making *m, uint32_t v, uint32_t to)
{
	const struct graph *g = m->r->g;
	uint32_t from = v && g->vals[v].kind == VAL_NODE ? m->t->of_node[g->vals[v].node] : v ? m->t->of_val[untied(g, v)] : 0;

	if (!from || from == to || (m->t->nedge && m->t->edges[m->t->nedge - 1].from == from - 1 && m->t->edges[m->t->nedge - 1].to == to - 1))
		return;
	ROOM(m->a, m->t->edges, m->t->nedge, m->t->edge_cap, 1);
	m->t->edges[m->t->nedge++] = (struct edge){from - 1, to - 1};
}

/* Every operand of a node, as a parameter to be added first or as an edge. */
static void
operands(struct making *m, uint32_t n, uint32_t to)
{
	const struct graph *g = m->r->g;
	const struct arg *args = node_args(g, n);

	for (unsigned i = 0; i < g->nodes[n].narg; i++) {
		uint32_t count = args[i].kind == ARG_VAL ? 1 : args[i].kind == ARG_VALS ? args[i].count : 0;

		for (uint32_t k = 0; k < count; k++) {
			uint32_t v = args[i].kind == ARG_VAL ? args[i].u.val : g->ids[args[i].first + k];

			if (to)
				add_edge(m, v, to);
			else if (v)
				add_val(m, untied(g, v));
		}
	}
}

static void
add_node(struct making *m, uint32_t n)
{
	const struct graph *g = m->r->g;
	const struct node *x = &g->nodes[n];
	struct thing *t;

	operands(m, n, 0);
	t = &m->t->list[m->t->n];
	*t = (struct thing){.kind = THING_OPERATOR, .node = n, .modality = x->modality, .module = row_of(m, scope_path(g, x->scope)), .peak = n == m->r->peak_node};
	t->op = x->op ? str_of(op_info(x->op)->name) : graph_str(g, x->target);
	t->name = x->name ? graph_str(g, x->name) : t->op;
	m->t->of_node[n] = ++m->t->n;
	operands(m, n, m->t->n);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------- */

static struct thing *
owner(const struct making *m, const struct storage *s)
{
	uint32_t i = s->val ? m->t->of_val[untied(m->r->g, s->val)] : 0;

	if (!i)
		i = m->t->of_node[s->node];
	return &m->t->list[i ? i - 1 : m->t->n - 1];
}

static void
add_bytes(struct making *m)
{
	const struct schedule *s = m->r->sched;

	for (uint32_t i = 0; i < m->r->nlive; i++) {
		uint32_t k = m->r->live[i].storage;

		owner(m, &s->storages[k])->at.of[factor_in_step(m->r, s, k, m->r->peak_step, m->r->steps[m->r->peak_step].event)] += s->storages[k].nbytes;
	}
	for (uint32_t i = 1; i < s->nstorage; i++)
		if (s->storages[i].factor == FAC_SAVED && s->spans[s->storages[i].phase].step == m->r->peak_step)
			owner(m, &s->storages[i])->saved += s->storages[i].nbytes;
}

struct things *
things_make(const struct report *r, struct arena *a)
{
	struct making m = {.r = r, .t = NEW(a, struct things, 1), .paths = strtab_new(a), .a = a};

	m.t->list = NEW(a, struct thing, (size_t)r->g->nnode + r->g->nval + 1);
	m.t->of_node = NEW(a, uint32_t, r->g->nnode + 1u);
	m.t->of_val = NEW(a, uint32_t, r->g->nval + 1u);
	for (uint32_t i = 1; i < r->nmodule; i++)
		strtab_id(m.paths, r->modules[i].path);
	for (uint32_t n = 1; n < r->g->nnode; n++)
		if (!(r->g->nodes[n].flags & NF_DEAD))
			add_node(&m, n);
	for (uint32_t v = 1; v < r->g->nval; v++)
		if (!r->g->vals[v].tied)
			add_val(&m, v);
	m.t->list[m.t->n++] = (struct thing){.kind = THING_REST, .name = S("(training loop)"), .op = S("other")};
	if (r->sched)
		add_bytes(&m);
	if (!factors_total(&m.t->list[m.t->n - 1].at) && !m.t->list[m.t->n - 1].saved)
		m.t->n--;
	return m.t;
}

/* ---- the tree --------------------------------------------------------------------------------------------------------- */

struct module_tree *
tree_of(const struct report *r, const struct things *things, struct arena *a)
{
	struct module_tree *t = NEW(a, struct module_tree, 1);

	t->child = NEW(a, uint32_t, r->nmodule);
	t->sibling = NEW(a, uint32_t, r->nmodule);
	t->depth = NEW(a, uint16_t, r->nmodule);
	for (uint32_t i = 1; i < r->nmodule; i++)
		t->depth[i] = (uint16_t)(t->depth[r->modules[i].parent] + (t->depth[r->modules[i].parent] < UINT16_MAX));
	for (uint32_t i = r->nmodule; i-- > 1;) {
		uint32_t up = r->modules[i].parent;

		t->sibling[i] = t->child[up];
		t->child[up] = i;
	}
	if (!things)
		return t;
	t->thing = NEW(a, uint32_t, r->nmodule);
	t->next_thing = NEW(a, uint32_t, things->n);
	for (uint32_t i = things->n; i-- > 0;) {
		t->next_thing[i] = t->thing[things->list[i].module];
		t->thing[things->list[i].module] = i + 1;
	}
	return t;
}

uint32_t
tree_walk(const struct report *r, const struct module_tree *t, uint32_t row, unsigned *up)
{
	*up = 0;
	if (t->child[row])
		return t->child[row];
	for (;; row = r->modules[row].parent) {
		++*up;
		if (!row || t->sibling[row])
			return row ? t->sibling[row] : 0;
	}
}

void
thing_place(const struct things *t, uint32_t i, unsigned *x, unsigned *y)
{
	unsigned rows = 8;

	while (rows * rows < t->n * 6)
		rows++;
	*x = i / rows * 240;
	*y = i % rows * 50;
}
