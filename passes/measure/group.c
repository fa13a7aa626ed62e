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
	struct strtab *names, *keys;
	uint32_t *canon;           /* per module row: its name, an id in names */
	uint32_t *row;             /* per id in names: row in modules_alike + 1 */
	uint32_t cap;
};

/* ---- names -------------------------------------------------------------------------------------------------- */

static bool
is_number(struct str s)
{
	int64_t n;

	return s.n && str_int(s, &n);
}

static uint32_t
sibling_key(struct grouping *t, uint32_t i)
{
	const struct module_row *m = &t->r->modules[i];

	return strtab_id(t->keys, str_fmt(t->a->c->a, "%u %.*s", (unsigned)m->parent, SFMT(m->cls)));
}

/* Per sibling key, how many modules with a number for a name. */
static uint32_t *
count_numbered(struct grouping *t)
{
	uint32_t *count = NEW(t->a->c->a, uint32_t, t->r->nmodule + 1);

	for (uint32_t i = 1; i < t->r->nmodule; i++)
		if (is_number(path_last(t->r->modules[i].path)))
			count[sibling_key(t, i)]++;
	return count;
}

static void
name_modules(struct grouping *t)
{
	const uint32_t *count = count_numbered(t);

	t->canon = NEW(t->a->c->a, uint32_t, t->r->nmodule);
	t->r->module_like = NEW(t->a->c->a, struct str, t->r->nmodule);
	for (uint32_t i = 1; i < t->r->nmodule; i++) {
		struct str part = path_last(t->r->modules[i].path), up = strtab_str(t->names, t->canon[t->r->modules[i].parent]);
		bool many = is_number(part) && count[sibling_key(t, i)] > 1;

		t->canon[i] = strtab_id(t->names, str_fmt(t->a->c->a, "%.*s%s%.*s", SFMT(up), up.n ? "." : "", SFMT(many ? S("*") : part)));
		t->r->module_like[i] = strtab_str(t->names, t->canon[i]);
	}
}

/* ---- modules --------------------------------------------------------------------------------------------------- */

static struct alike_row *
row_of(struct grouping *t, uint32_t name)
{
	if (!t->row[name]) {
		ROOM(t->a->c->a, t->r->modules_alike, t->r->nmodules_alike, t->cap, 1);
		t->r->modules_alike[t->r->nmodules_alike++] = (struct alike_row){.name = strtab_str(t->names, name)};
		t->row[name] = t->r->nmodules_alike;
	}
	return &t->r->modules_alike[t->row[name] - 1];
}

/* A shell around one child that holds all of it says nothing of its own. */
static void
drop_shells(struct grouping *t)
{
	uint64_t *only = NEW(t->a->c->a, uint64_t, t->r->nmodules_alike);
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
	t->row = NEW(t->a->c->a, uint32_t, t->r->nmodule + 1);
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

static struct str
storage_name(const struct grouping *t, const struct live_row *row, struct str module)
{
	const struct storage *s = &t->a->sched->storages[row->storage];
	const struct node *n = &t->a->g->nodes[s->node];
	struct arena *a = t->a->c->a;
	const char *dot = module.n ? "." : "";

	if (s->val && t->a->g->vals[s->val].kind != VAL_INPUT)
		return str_fmt(a, "%.*s%s%.*s", SFMT(module), dot, SFMT(path_last(row->name)));
	if (!s->node || s->val)
		return row->name;
	return str_fmt(a, "%.*s%s%s", SFMT(module), module.n ? ": " : "", n->op ? op_info(n->op)->name : s->op);
}

/* Geometries are interned: the same address is the same shape, strides and dtype. */
static uint32_t
alike_key(struct grouping *t, const struct live_row *row, struct str name)
{
	const struct storage *s = &t->a->sched->storages[row->storage];

	return strtab_id(t->keys, str_fmt(t->a->c->a, "%.*s\t%s\t%p\t%llu", SFMT(name), row->factor, (const void *)s->geom, (unsigned long long)s->nbytes));
}

static void
group_storages(struct grouping *t)
{
	struct report *r = t->r;
	uint32_t *at = NEW(t->a->c->a, uint32_t, r->nlive + 1);

	t->keys = strtab_new(t->a->c->a);
	r->live_alike = NEW(t->a->c->a, struct alike_row, r->nlive + 1);
	for (uint32_t i = 0; i < r->nlive; i++) {
		struct str name = storage_name(t, &r->live[i], strtab_str(t->names, t->canon[r->live[i].module_row]));
		uint32_t key = alike_key(t, &r->live[i], name);
		struct alike_row *g;

		if (!at[key]) {
			r->live_alike[r->nlive_alike++] = (struct alike_row){.name = name, .factor = r->live[i].factor, .storage = r->live[i].storage};
			at[key] = r->nlive_alike;
		}
		g = &r->live_alike[at[key] - 1];
		g->count++;
		g->bytes += t->a->sched->storages[r->live[i].storage].nbytes;
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
	while (i < half || k < n) {
		bool left = k == n || (i < half && rows[i].bytes >= rows[k].bytes);

		tmp[m++] = rows[left ? i++ : k++];
	}
	memcpy(rows, tmp, n * sizeof *rows);
}

bool
pass_group(struct analysis *a)
{
	struct grouping t = {.a = a, .r = a->report, .names = strtab_new(a->c->a), .keys = strtab_new(a->c->a)};

	name_modules(&t);
	group_modules(&t);
	group_storages(&t);
	sort_rows(t.r->modules_alike, t.r->nmodules_alike, NEW(a->c->a, struct alike_row, t.r->nmodules_alike + 1));
	sort_rows(t.r->live_alike, t.r->nlive_alike, NEW(a->c->a, struct alike_row, t.r->nlive_alike + 1));
	return true;
}
