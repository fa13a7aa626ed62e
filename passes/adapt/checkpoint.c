/*
 * checkpoint: which module calls are rerun in backward, and which embeddings' outputs become leaves.
 *
 * By default every repeated block (passes/blocks.c), outermost ones only. In transformers' models lists without attention that read what attention made are necks
 * and heads, which it does not checkpoint. It turns enable_input_require_grads on with checkpointing if the model's main input is token ids: the input embedding of
 * every submodel (token embedding, patch convolution) then has a leaf as its output.
 */
#include "../passes.h"

/* ---- blocks ------------------------------------------------------------------------------------------------ */

struct stacks {
	struct graph *g;
	struct calls calls;
	bool *block;               /* per scope */
	uint32_t *list;            /* per scope: the list that it is a member of, 0 = none */
	bool *attends;             /* per list: a member has attention in it */
	bool *behind;              /* per value: made from what such a list made */
};

static bool
within_transformers(const struct graph *g, uint32_t scope)
{
	while (scope && !scope_is_transformers(g, scope))
		scope = g->scopes[scope].parent;
	return scope != 0;
}

/* Which modules are blocks, and which of their lists attend. */
static void
find_lists(struct stacks *t, struct arena *a)
{
	struct strtab *names = strtab_new(a);
	struct graph *g = t->g;

	t->block = blocks_find(g, a);
	t->list = NEW(a, uint32_t, g->nscope);
	for (uint32_t s = 1; s < g->nscope; s++) {
		struct str prefix = blocks_list(scope_path(g, s));

		t->list[s] = prefix.n ? strtab_id(names, prefix) : 0;
	}
	t->attends = NEW(a, bool, strtab_count(names) + 1);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (uint32_t s = g->nodes[n].scope; (g->nodes[n].op == OP_SDPA || g->nodes[n].op == OP_SOFTMAX) && s; s = g->scopes[s].parent)
			t->attends[t->list[s]] |= t->block[s];
}

static void
find_behind(struct stacks *t, struct arena *a)
{
	struct graph *g = t->g;

	t->behind = NEW(a, bool, g->nval);
	for (uint32_t n = 1; n < g->nnode; n++) {
		bool behind = false;

		for (uint32_t s = g->nodes[n].scope; s; s = g->scopes[s].parent)
			behind |= t->block[s] && t->attends[t->list[s]];
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			behind |= t->behind[it.val];
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			t->behind[node_outs(g, n)[k]] = behind;
	}
}

/* A call of a neck's or a head's module. */
static bool
is_head(const struct stacks *t, uint32_t first, uint32_t last, uint32_t scope)
{
	if (!within_transformers(t->g, scope) || t->attends[t->list[scope]])
		return false;
	for (uint32_t n = first; n <= last; n++)
		for (struct operands it = operands_of(t->g, n); operand_next(&it);)
			if (t->behind[it.val])
				return true;
	return false;
}

static struct stacks
find_stacks(struct analysis *a)
{
	struct stacks t = {.g = a->g, .calls = calls_find(a->g, a->c->a)};

	find_lists(&t, a->c->a);
	find_behind(&t, a->c->a);
	return t;
}

static void
find_blocks(struct analysis *a, struct stacks *t)
{
	struct graph *g = a->g;
	bool asked = a->r->v[RK_CHECKPOINT_MODULES].nlist != 0;
	uint32_t cap = 0, heads = 0;

	for (uint32_t s = 1; asked && s < g->nscope; s++)
		t->block[s] = recipe_matches(a->r, RK_CHECKPOINT_MODULES, scope_path(g, s));
	for (uint32_t n = 1; n < g->nnode; n++)
		for (unsigned d = 1; d <= calls_depth(g, n); d++) {
			uint32_t at = t->calls.at[n] + d, scope = scope_at(g, g->nodes[n].scope, d);

			if (t->calls.first[at] != n || !t->block[scope])
				continue;
			if (!asked && is_head(t, n, t->calls.last[at], scope)) {
				heads++;
				continue;
			}
			ROOM(a->c->a, a->plan.blocks, a->plan.nblock, cap, 1);
			a->plan.blocks[a->plan.nblock++] = (struct block){.first = n, .last = t->calls.last[at], .reentrant = a->r->v[RK_CHECKPOINT].i == CKPT_REENTRANT};
			n = t->calls.last[at];
			break;
		}
	if (heads)
		assume(a, "repeated modules without attention that read what attention made are necks and heads, which transformers does not checkpoint (%u calls)", heads);
}

/* ---- input embeddings ---------------------------------------------------------------------------------------- */

static bool
feeds(const struct graph *g, const bool *fed, uint32_t n)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (fed[it.val])
			return true;
	return false;
}

static bool
takes_token_ids(const struct graph *g, const bool *fed)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].op == OP_EMBEDDING && feeds(g, fed, n))
			return true;
	return false;
}

/* Inputs, and what only converts or reshapes them. A decoder's own ids are not the main input. */
static bool *
find_fed(struct analysis *a, bool *main_ids)
{
	struct graph *g = a->g;
	bool *fed = NEW(a->c->a, bool, g->nval), *ids = NEW(a->c->a, bool, g->nval);

	for (uint32_t i = 0; i < g->ninput; i++) {
		uint32_t v = g->inputs[i];

		fed[v] = true;
		ids[v] = dtype_info(g->vals[v].dtype)->cat == CAT_INT && !str_starts(graph_str(g, g->vals[v].name), S("decoder_"));
	}
	for (uint32_t n = 1; n < g->nnode; n++) {
		unsigned op = g->nodes[n].op;

		if (op != OP_TO && op != OP_VIEW && op != OP_RESHAPE && op != OP_IDENTITY)
			continue;
		fed[node_outs(g, n)[0]] = feeds(g, fed, n);
		ids[node_outs(g, n)[0]] = feeds(g, ids, n);
	}
	*main_ids = takes_token_ids(g, ids);
	return fed;
}

static void
mark_embeddings(struct analysis *a)
{
	struct graph *g = a->g;
	bool main_ids, *fed = find_fed(a, &main_ids);
	int64_t asked = a->r->v[RK_INPUT_REQUIRE_GRADS].i;

	if (asked == TRI_FALSE || (asked == TRI_AUTO && !(a->r->v[RK_CHECKPOINT].i && main_ids)))
		return;
	for (uint32_t n = 1; n < g->nnode; n++)
		if ((g->nodes[n].op == OP_EMBEDDING || g->nodes[n].op == OP_CONV) && feeds(g, fed, n))
			g->nodes[n].flags |= NF_LEAF;
	assume(a, "the input embeddings' outputs require grad (enable_input_require_grads)");
}

static void
warn_no_block(struct analysis *a)
{
	const struct recipe_value *asked = &a->r->v[RK_CHECKPOINT_MODULES];

	for (uint32_t i = 0; i < asked->nlist; i++)
		diag(a->c, DIAG_NO_MATCH, "checkpoint_modules", SFMT(asked->list[i]), "module");
	if (!asked->nlist)
		diag(a->c, DIAG_NO_MATCH, "checkpoint", SFMT(S("*")), "repeated block");
}

bool
pass_checkpoint(struct analysis *a)
{
	struct stacks t;

	mark_embeddings(a);
	if (!a->r->v[RK_CHECKPOINT].i)
		return true;
	t = find_stacks(a);
	find_blocks(a, &t);
	if (!a->plan.nblock)
		warn_no_block(a);
	else
		assume(a, "%u module calls are checkpointed, the first is %.*s", a->plan.nblock,
		    SFMT(scope_path(a->g, blocks_outermost(a->g, t.block, a->g->nodes[a->plan.blocks[0].first].scope))));
	return true;
}
