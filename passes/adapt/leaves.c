/*
 * leaves: a value that a library makes require grad although nothing that trains went into it, so that backward runs through all that follows and
 * leaves a gradient there. transformers' speech models (Wav2Vec2, Hubert, WavLM, SEW, ..) do so in training with the waveform, "hidden_states.requires_grad = True"
 * in their *FeatureEncoder, unless freeze_feature_encoder() was called, which freezes its parameters, too. No format has a trace of the assignment.
 */
#include "../passes.h"

#define MOST_ENCODERS 8u           /* whose parameters are looked at; further ones are taken to train */

/* Files without classes have the names that the library gives its modules. */
static bool
is_feature_encoder(const struct graph *g, uint32_t scope, uint32_t reader)
{
	struct str cls = graph_str(g, g->scopes[scope].cls), path = scope_path(g, scope), first = scope_path(g, g->nodes[reader].scope);

	if (cls.n)
		return scope_is_transformers(g, scope) && str_ends(cls, S("FeatureEncoder"));
	return (str_eq(path, S("feature_extractor")) || str_ends(path, S(".feature_extractor"))) && str_starts(first, path) &&
	       str_starts(str_sub(first, path.n, first.n), S(".conv_layers.0."));
}

/* Of what is in the module, by the file. */
static bool
any_trains(const struct graph *g, struct str path)
{
	for (uint32_t v = 1; v < g->nval; v++) {
		struct str name = graph_str(g, g->vals[v].full);

		if (g->vals[v].kind == VAL_PARAM && (g->vals[v].flags & VF_TRAINABLE) && name.n > path.n && name.p[path.n] == '.' && str_starts(name, path))
			return true;
	}
	return false;
}

/* input_values[:, None] */
static bool
adds_channel(const struct graph *g, uint32_t n)
{
	const struct arg *x = node_args(g, n);

	if (g->nodes[n].op != OP_UNSQUEEZE || !g->nodes[n].scope || x->kind != ARG_VAL)
		return false;
	return g->vals[x->u.val].kind == VAL_INPUT && dtype_is_float(g->vals[x->u.val].dtype);
}

bool
pass_leaves(struct analysis *a)
{
	struct graph *g = a->g;
	uint32_t *waveform = NEW(a->c->a, uint32_t, g->nval);        /* by value: the node that gave it a channel */
	bool *asked = NEW(a->c->a, bool, g->nscope), any = false;
	unsigned encoders = 0;

	for (uint32_t n = 1; n < g->nnode; n++) {
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			uint32_t maker = waveform[it.val], scope = g->nodes[maker].scope;

			if (!maker || asked[scope] || !is_feature_encoder(g, scope, n))
				continue;
			asked[scope] = true;
			if (encoders++ >= MOST_ENCODERS || any_trains(g, scope_path(g, scope))) {
				g->nodes[maker].flags |= NF_LEAF;
				any = true;
			}
		}
		if (adds_channel(g, n))
			waveform[node_outs(g, n)[0]] = n;
	}
	if (any)
		assume(a, "the waveform requires grad, as transformers' feature encoders of speech make it in training");
	return true;
}
