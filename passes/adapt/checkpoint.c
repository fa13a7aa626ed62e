/*
 * checkpoint: which module calls are rerun in backward, and which embeddings' outputs become leaves.
 *
 * By default every repeated block (passes/blocks.c), outermost ones only. transformers turns enable_input_require_grads on with checkpointing if the model's main input is token
 * ids: the input embedding of every submodel (token embedding, patch convolution) then has a leaf as its output.
 */
#include "../passes.h"

/* ---- blocks ------------------------------------------------------------------------------------------------ */

static void
find_blocks(struct analysis *a)
{
	struct graph *g = a->g;
	struct calls k = calls_find(g, a->c->a);
	bool *block = blocks_find(g, a->c->a);
	uint32_t cap = 0;

	for (uint32_t s = 1; a->r->v[RK_CHECKPOINT_MODULES].nlist && s < g->nscope; s++)
		block[s] = recipe_matches(a->r, RK_CHECKPOINT_MODULES, scope_path(g, s));
	for (uint32_t n = 1; n < g->nnode; n++)
		for (unsigned d = 1; d <= calls_depth(g, n); d++) {
			uint32_t at = k.at[n] + d;

			if (k.first[at] != n || !block[scope_at(g, g->nodes[n].scope, d)])
				continue;
			ROOM(a->c->a, a->plan.blocks, a->plan.nblock, cap, 1);
			a->plan.blocks[a->plan.nblock++] = (struct block){n, k.last[at], a->r->v[RK_CHECKPOINT].i == CKPT_REENTRANT};
			n = k.last[at];
			break;
		}
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
	mark_embeddings(a);
	if (!a->r->v[RK_CHECKPOINT].i)
		return true;
	find_blocks(a);
	if (!a->plan.nblock)
		warn_no_block(a);
	else
		assume(a, "%u module calls are checkpointed, the first is %.*s", a->plan.nblock,
		    SFMT(scope_path(a->g, a->g->nodes[a->plan.blocks[0].first].scope)));
	return true;
}
