/*
 * compare, module by module: who holds the peak. A measured request has a stack. Where one of its frames is called after a module of the report
 * (our own snapshots, hooks that name modules) that is the owner. Else its lines are looked up among those that torch.export recorded with every
 * operator: lines say which call of the source it was, but not which of the repeated blocks, so that these are one row; and only what forward
 * makes has them.
 */
#include "diff.h"
#include "measured.h"

#define MOST_FRAMES 48             /* of a stack, from the innermost */

struct owners {
	struct mc_diff *d;
	const struct report *r;
	struct strtab *paths;      /* of modules */
	struct strtab *chains;     /* hashes of lines, outermost first, .. */
	struct str *owner;         /* .. and whose they are */
	struct strtab *names;      /* of the rows */
	int64_t *a, *b;            /* measured, predicted */
	uint32_t rows;
	bool by_path;
};

/* "layers.3.mlp" and "layers.4.mlp" are both "layers.*.mlp" */
static struct str
alike(struct owners *o, struct str path)
{
	struct str out = S(""), part;

	while (str_cut(&path, '.', &part)) {
		int64_t n;

		out = str_fmt(o->d->c.a, "%.*s%s%.*s", SFMT(out), out.n ? "." : "", SFMT(str_int(part, &n) ? S("*") : part));
	}
	return out;
}

static void
count(struct owners *o, struct str name, bool measured, int64_t bytes)
{
	uint32_t id = strtab_id(o->names, name);
	int64_t *to;

	if (id >= o->rows)
		return;
	to = measured ? &o->a[id] : &o->b[id];
	*to = (int64_t)((uint64_t)*to + (uint64_t)bytes);         /* of a damaged file it goes round */
}

/* ---- lines --------------------------------------------------------------------------------------------------------------- */

static uint64_t
mix(uint64_t h, uint64_t line)
{
	return (h ^ line) * 0x9e3779b97f4a7c15u ^ (h >> 29);
}

static struct str
as_key(const uint64_t *h)
{
	return (struct str){(const char *)h, sizeof *h};
}

static uint64_t
chain_of(const struct graph *g, const struct node *n)
{
	uint64_t h = 0;

	for (uint32_t i = 0; i < n->nframe; i++)
		h = mix(h, g->frames[n->frame + i].line);
	return mix(h, n->nframe);
}

static void
find_chains(struct owners *o)
{
	const struct graph *g = o->r->g;

	o->owner = NEW(o->d->c.a, struct str, g->nnode + 1u);
	for (uint32_t i = 1; i < g->nnode; i++) {
		struct str path = scope_path(g, g->nodes[i].scope);
		uint64_t h = chain_of(g, &g->nodes[i]);
		uint32_t id;

		if (!g->nodes[i].nframe || !path.n)
			continue;
		id = strtab_id(o->chains, as_key(&h));
		if (!o->owner[id].n)
			o->owner[id] = alike(o, path);
	}
}

/* Lines of the model's own source, outermost last: without C++ and what calls modules. */
static uint32_t
lines_of(const struct pickle *frames, int64_t lines[MOST_FRAMES])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < frames->n && i < 4 * MOST_FRAMES && n < MOST_FRAMES; i++) {
		struct str file = pickle_str(pickle_get(frames->u.item[i], S("filename")));

		if (str_ends(file, S(".py")) && !str_ends(file, S("torch/nn/modules/module.py")))
			lines[n++] = measured_number(frames->u.item[i], S("line"));
	}
	return n;
}

/* The longest part of the stack that is an operator's. */
static struct str
owner_by_lines(struct owners *o, const struct pickle *frames)
{
	int64_t lines[MOST_FRAMES];
	uint32_t n = lines_of(frames, lines), longest = 0, best = 0;

	for (uint32_t outer = n; outer > longest; outer--) {
		uint64_t h = 0;

		for (uint32_t i = outer; i-- > 0;) {
			uint64_t key;
			uint32_t id;

			h = mix(h, (uint64_t)lines[i]);
			key = mix(h, outer - i);
			id = outer - i > longest ? strtab_find(o->chains, as_key(&key)) : 0;
			longest = id ? outer - i : longest;
			best = id ? id : best;
		}
	}
	return best ? o->owner[best] : S("");
}

/* ---- paths --------------------------------------------------------------------------------------------------------------- */

static struct str
owner_by_path(const struct owners *o, const struct pickle *frames)
{
	for (uint32_t i = 0; i < frames->n && i < 4 * MOST_FRAMES; i++) {
		struct str file = pickle_str(pickle_get(frames->u.item[i], S("filename")));

		if (file.n && strtab_find(o->paths, file))
			return file;
	}
	return S("");
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

static bool
measured_rows(struct owners *o, const struct measured *m)
{
	bool any = false;

	for (uint32_t i = 0; i < m->trace->n; i++) {
		const struct pickle *frames = measured_lives(m, i) ? pickle_get(m->trace->u.item[i], S("frames")) : NULL;
		struct str owner;

		if (!measured_is_list(frames))
			continue;
		owner = o->by_path ? owner_by_path(o, frames) : owner_by_lines(o, frames);
		if (owner.n)
			count(o, owner, true, (measured_number(m->trace->u.item[i], S("size")) + 511) / 512 * 512);
		any |= owner.n > 0;
	}
	return any;
}

static struct str
owner_of_storage(struct owners *o, const struct storage *s)
{
	const struct graph *g = o->r->g;
	uint64_t h;
	uint32_t id;

	if (o->by_path)
		return storage_module(o->r, s);
	if (!s->node || o->r->sched->spans[s->phase].phase != PH_FORWARD)
		return S("");
	h = chain_of(g, &g->nodes[s->node]);
	id = strtab_find(o->chains, as_key(&h));
	return id ? o->owner[id] : S("");
}

static void
predicted_rows(struct owners *o, uint32_t event)
{
	const struct schedule *s = o->r->sched;
	bool *alive = NEW(o->d->c.a, bool, s->nstorage + 1u);

	for (uint32_t e = 0; e <= event && e < s->nevent; e++)
		alive[EVENT_STORAGE(s->events[e])] = !EVENT_IS_FREE(s->events[e]);
	for (uint32_t i = 0; i < s->nstorage; i++) {
		struct str owner = alive[i] ? owner_of_storage(o, &s->storages[i]) : S("");

		if (owner.n)
			count(o, owner, false, (int64_t)s->storages[i].nbytes);
	}
}

void
compare_modules(struct mc_diff *d, const struct report *r, const struct measured *m, uint32_t event)
{
	struct owners o = {.d = d, .r = r, .by_path = true, .rows = r->nmodule + 1u};

	o.paths = strtab_new(d->c.a);
	o.chains = strtab_new(d->c.a);
	o.names = strtab_new(d->c.a);
	o.a = NEW(d->c.a, int64_t, o.rows);
	o.b = NEW(d->c.a, int64_t, o.rows);
	for (uint32_t i = 1; i < r->nmodule; i++)
		strtab_id(o.paths, r->modules[i].path);
	if (!measured_rows(&o, m)) {
		o.by_path = false;
		find_chains(&o);
		if (!measured_rows(&o, m))
			return;
	}
	predicted_rows(&o, event);
	for (uint32_t i = 1; i < strtab_count(o.names) && i < o.rows; i++)
		if (o.a[i] || o.b[i])
			diff_bytes(d, DIFF_MODULES, strtab_str(o.names, i), o.a[i], o.b[i]);
}
