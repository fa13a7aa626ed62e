/*
 * group: rows that repeat, added up for readers. layers.0.mlp .. layers.31.mlp become one row layers.*.mlp: children of one parent
 * and one class whose names are numbers. Storages alive at the peak that agree in such a name, operator, factor and shape
 * become one row too.
 */
#include "../passes.h"

#include <string.h>

struct grouping {
	struct analysis *a;
	struct report *r;
	struct arena *own;         /* of what is gone with the pass */
	struct strtab *words;      /* parts of names, classes, kernels */
	struct strtab *tuples;     /* what is alike, as bytes */
	uint32_t *canon;           /* per module row: its name, an index of name; 0 = the root's */
	struct str *name;
	uint32_t *row;             /* per name: row in modules_alike + 1 */
	uint32_t cap;
};

/* ---- names -------------------------------------------------------------------------------------------------- */

static bool
is_number(struct str s)
{
	int64_t n;

	return s.n && str_int(s, &n);
}

/* The number of a tuple without padding: equal ones have the same. */
#define TUPLE(t, x) strtab_id((t)->tuples, (struct str){(const char *)&(x), (uint32_t)sizeof(x)})

struct sibling {
	uint32_t parent, cls;
};

static uint32_t
sibling_key(struct grouping *t, uint32_t i)
{
	const struct module_row *m = &t->r->modules[i];
	struct sibling x = {m->parent, strtab_id(t->words, m->cls)};

	return TUPLE(t, x);
}

/* Per sibling key, how many modules with a number for a name. */
static uint32_t *
count_numbered(struct grouping *t, uint32_t *key)
{
	uint32_t *count = NEW(t->own, uint32_t, t->r->nmodule + 1);

	t->tuples = strtab_new(t->own);
	for (uint32_t i = 1; i < t->r->nmodule; i++)
		if (is_number(path_last(t->r->modules[i].path)))
			count[key[i] = sibling_key(t, i)]++;
	return count;
}

struct part {
	uint32_t up, word;         /* the name of the module around it, and its own last part */
};

static void
name_modules(struct grouping *t)
{
	uint32_t *key = NEW(t->own, uint32_t, t->r->nmodule);
	const uint32_t *count = count_numbered(t, key);
	struct arena *a = t->a->c->a;

	t->tuples = strtab_new(t->own);
	t->canon = NEW(t->own, uint32_t, t->r->nmodule);
	t->name = NEW(t->own, struct str, t->r->nmodule + 1);
	t->r->module_like = NEW(a, struct str, t->r->nmodule);
	t->name[0] = S("");
	for (uint32_t i = 1; i < t->r->nmodule; i++) {
		struct str part = key[i] && count[key[i]] > 1 ? S("*") : path_last(t->r->modules[i].path);
		struct part x = {t->canon[t->r->modules[i].parent], strtab_id(t->words, part)};
		struct str up = t->name[x.up];
		uint32_t id = TUPLE(t, x);

		if (!t->name[id].p)
			t->name[id] = str_fmt(a, "%.*s%s%.*s", SFMT(up), up.n ? "." : "", SFMT(part));
		t->canon[i] = id;
		t->r->module_like[i] = t->name[id];
	}
}

/* ---- modules --------------------------------------------------------------------------------------------------- */

static struct alike_row *
row_of(struct grouping *t, uint32_t name)
{
	if (!t->row[name]) {
		ROOM(t->a->c->a, t->r->modules_alike, t->r->nmodules_alike, t->cap, 1);
		t->r->modules_alike[t->r->nmodules_alike++] = (struct alike_row){.name = t->name[name]};
		t->row[name] = t->r->nmodules_alike;
	}
	return &t->r->modules_alike[t->row[name] - 1];
}

/* A shell around one child that holds all of it says nothing of its own. */
static void
drop_shells(struct grouping *t)
{
	uint64_t *only = NEW(t->own, uint64_t, t->r->nmodules_alike);
	uint32_t kept = 0;

	for (uint32_t i = 1; i < t->r->nmodule; i++) {
		const struct alike_row *child = &t->r->modules_alike[t->row[t->canon[i]] - 1];
		uint32_t up = t->canon[t->r->modules[i].parent];

		if (up && only[t->row[up] - 1] < child->bytes)
			only[t->row[up] - 1] = child->bytes;
	}
	for (uint32_t i = 0; i < t->r->nmodules_alike; i++)
		if (t->r->modules_alike[i].bytes && t->r->modules_alike[i].bytes != only[i])
			t->r->modules_alike[kept++] = t->r->modules_alike[i];
	t->r->nmodules_alike = kept;
}

static void
group_modules(struct grouping *t)
{
	t->row = NEW(t->own, uint32_t, t->r->nmodule + 1);
	for (uint32_t i = 1; i < t->r->nmodule; i++) {
		const struct module_row *m = &t->r->modules[i];
		struct alike_row *g = row_of(t, t->canon[i]);

		g->count++;
		g->modality = m->modality;
		g->bytes += factors_total(&m->at);
		for (unsigned f = 0; f < FAC_COUNT; f++)
			g->at.of[f] += m->at.of[f];
	}
	drop_shells(t);
}

/* ---- storages ----------------------------------------------------------------------------------------------------- */

enum naming { BY_PARAM, BY_ITSELF, BY_OPERATOR };

static enum naming
naming_of(const struct grouping *t, const struct storage *s)
{
	if (s->val && t->a->g->vals[s->val].kind != VAL_INPUT)
		return BY_PARAM;
	return !s->node || s->val ? BY_ITSELF : BY_OPERATOR;
}

/* What it is called within its module. */
static struct str
own_name(const struct grouping *t, const struct live_row *row, enum naming naming)
{
	const struct storage *s = &t->a->sched->storages[row->storage];
	const struct node *n = &t->a->g->nodes[s->node];

	if (naming == BY_OPERATOR)
		return str_of(n->op ? op_info(n->op)->name : s->op);
	return naming == BY_PARAM ? path_last(row->name) : row->name;
}

static struct str
storage_name(const struct grouping *t, struct str own, struct str module, enum naming naming)
{
	if (naming == BY_ITSELF)
		return own;
	return str_fmt(t->a->c->a, "%.*s%s%.*s", SFMT(module), !module.n ? "" : naming == BY_PARAM ? "." : ": ", SFMT(own));
}

struct alike {
	uint32_t module, own;
	const char *factor;        /* one string for each factor */
	const struct geom *geom;   /* interned: the same address is the same shape, strides and dtype */
	uint64_t nbytes, naming;
};

static void
group_storages(struct grouping *t)
{
	struct report *r = t->r;
	uint32_t *at = NEW(t->own, uint32_t, r->nlive + 1), cap = 0;

	t->tuples = strtab_new(t->own);
	ROOM(t->a->c->a, r->live_alike, 0, cap, 1);
	for (uint32_t i = 0; i < r->nlive; i++) {
		const struct live_row *row = &r->live[i];
		const struct storage *s = &t->a->sched->storages[row->storage];
		enum naming naming = naming_of(t, s);
		struct str own = own_name(t, row, naming);
		struct alike x = {naming == BY_ITSELF ? 0 : t->canon[row->module_row], strtab_id(t->words, own), row->factor, s->geom, s->nbytes, naming};
		uint32_t key = TUPLE(t, x);
		struct alike_row *g;

		if (!at[key]) {
			ROOM(t->a->c->a, r->live_alike, r->nlive_alike, cap, 1);
			r->live_alike[r->nlive_alike++] = (struct alike_row){.name = storage_name(t, own, t->name[x.module], naming), .factor = row->factor, .storage = row->storage};
			at[key] = r->nlive_alike;
		}
		g = &r->live_alike[at[key] - 1];
		g->count++;
		g->bytes += s->nbytes;
	}
}

/* ---- order ----------------------------------------------------------------------------------------------------------- */

static void
sort_rows(struct alike_row *rows, uint32_t n, struct alike_row *tmp)
{
	uint32_t half = n / 2, i = 0, k = half, m = 0;

	if (n < 2)
		return;
	sort_rows(rows, half, tmp);
	sort_rows(rows + half, n - half, tmp);
	if (rows[half - 1].bytes >= rows[half].bytes)
		return;
	while (i < half || k < n) {
		bool left = k == n || (i < half && rows[i].bytes >= rows[k].bytes);

		tmp[m++] = rows[left ? i++ : k++];
	}
	memcpy(rows, tmp, n * sizeof *rows);
}

bool
pass_group(struct analysis *a)
{
	struct grouping t = {.a = a, .r = a->report, .own = arena_part(a->c->a)};

	t.words = strtab_new(t.own);
	name_modules(&t);
	group_modules(&t);
	group_storages(&t);
	sort_rows(t.r->modules_alike, t.r->nmodules_alike, NEW(t.own, struct alike_row, t.r->nmodules_alike + 1));
	sort_rows(t.r->live_alike, t.r->nlive_alike, NEW(t.own, struct alike_row, t.r->nlive_alike + 1));
	arena_cancel(a->c->a, t.own);
	return true;
}
