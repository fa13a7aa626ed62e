/*
 * Repeated blocks: numbered children of a list ("layers.3") whose siblings have the same class and that call modules of their
 * own. Transformers, stages of convolutional networks and the like are made of them; the outermost ones count. In transformers' lists every member is one
 * if two are (Wav2Vec2's first convolution has a norm and a class of its own, Mllama's layers attend in two ways).
 */
#include "passes.h"

struct str
blocks_list(struct str path)
{
	uint32_t n = path.n;

	while (n && path.p[n - 1] >= '0' && path.p[n - 1] <= '9')
		n--;
	return n < path.n && (n == 0 || path.p[n - 1] == '.') ? str_sub(path, 0, n) : S("");
}

struct list {
	uint32_t parent, cls, prefix, path;        /* path: of one member; 0 = several */
};

static bool
same_list(const struct list *a, uint32_t parent, uint32_t cls, uint32_t prefix)
{
	return a->parent == parent && a->cls == cls && a->prefix == prefix;
}

bool
scope_is_transformers(const struct graph *g, uint32_t scope)
{
	return str_starts(graph_str(g, scope ? g->scopes[scope].cls : g->root_class), S("transformers.models."));
}

/* of: the list of each scope + 1, 0 = none. */
static void
mark_blocks(const struct graph *g, struct arena *a, const struct list *lists, uint32_t n, const uint32_t *of, bool *block)
{
	uint32_t most = 0;
	bool *repeats;

	for (uint32_t i = 0; i < n; i++)
		most = lists[i].prefix > most ? lists[i].prefix : most;
	repeats = NEW(a, bool, most + 1u);
	for (uint32_t i = 0; i < n; i++)
		repeats[lists[i].prefix] |= lists[i].path == 0;
	for (uint32_t s = 1; s < g->nscope; s++)
		block[s] = of[s] && (lists[of[s] - 1].path == 0 || (scope_is_transformers(g, s) && repeats[lists[of[s] - 1].prefix]));
}

/* Per scope: is it a member of a list with at least two members, and has it children? */
bool *
blocks_find(const struct graph *g, struct arena *a)
{
	bool *block = NEW(a, bool, g->nscope), *parent = NEW(a, bool, g->nscope);
	struct strtab *names = strtab_new(a);
	struct list *lists = NULL;
	uint32_t *of = NEW(a, uint32_t, g->nscope), n = 0, cap = 0;

	for (uint32_t s = 1; s < g->nscope; s++)
		parent[g->scopes[s].parent] = true;
	for (uint32_t s = 1; s < g->nscope; s++) {
		struct str prefix = blocks_list(scope_path(g, s));
		uint32_t id = prefix.n ? strtab_id(names, prefix) : 0, k = n;

		if (!id || !parent[s])
			continue;
		while (k > 0 && !same_list(&lists[k - 1], g->scopes[s].parent, g->scopes[s].cls, id))
			k--;
		if (k == 0) {
			ROOM(a, lists, n, cap, 1);
			lists[n] = (struct list){g->scopes[s].parent, g->scopes[s].cls, id, g->scopes[s].path};
			k = ++n;
		} else if (lists[k - 1].path != g->scopes[s].path) {
			lists[k - 1].path = 0;
		}
		of[s] = k;
	}
	mark_blocks(g, a, lists, n, of, block);
	return block;
}

/* The outermost block around a scope, 0 = none. */
uint32_t
blocks_outermost(const struct graph *g, const bool *block, uint32_t scope)
{
	uint32_t found = 0;

	for (; scope; scope = g->scopes[scope].parent)
		if (block[scope])
			found = scope;
	return found;
}
