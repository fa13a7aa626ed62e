/*
 * lifetime: hidden states that hooks record. transformers' classifiers of speech ask their model for all hidden states, return none of them, and so keep
 * what goes into the first layer and what each layer makes until they return (backbone_utils.py, filter_output_hidden_states). Hooks run no operator.
 */
#include "lifetime.h"

#include <string.h>

#define MOST_ENCODERS 8u           /* modules of that name that are looked at */

struct speech {
	struct str frame;          /* path of the classifier, empty = the whole model */
	struct str layers;         /* what paths of its layers begin with, in a file without classes */
};

static struct str
class_of(const struct graph *g, uint32_t scope)
{
	return scope_is_transformers(g, scope) ? graph_str(g, scope ? g->scopes[scope].cls : g->root_class) : S("");
}

static bool
is_classifier(struct str cls)
{
	return str_ends(cls, S("ForSequenceClassification")) || str_ends(cls, S("ForAudioFrameClassification")) || str_ends(cls, S("ForXVector"));
}

/* Features of the waveform, or a projection of what a processor made of it. */
static bool
hears(struct str cls)
{
	return str_ends(cls, S("FeatureEncoder")) || str_ends(cls, S("FeatureProjection"));
}

static bool
has_module(const struct graph *g, struct str path)
{
	for (uint32_t s = 1; s < g->nscope; s++)
		if (str_eq(scope_path(g, s), path))
			return true;
	return false;
}

static struct str
parent_path(struct str path)
{
	while (path.n && path.p[path.n - 1] != '.')
		path.n--;
	return str_sub(path, 0, path.n ? path.n - 1 : 0);
}

static struct str
joined(const struct graph *g, struct str path, const char *name)
{
	return str_fmt(g->c->a, "%.*s%s%s", SFMT(path), path.n ? "." : "", name);
}

/* By the names that the library gives to modules: "model.hubert.feature_extractor.conv_layers.0" beside "model.projector" and "model.classifier". */
static bool
speech_by_names(const struct graph *g, struct speech *x)
{
	unsigned tried = 0;

	for (uint32_t s = 1; s < g->nscope && tried < MOST_ENCODERS; s++) {
		struct str path = scope_path(g, s), base = parent_path(path);

		if (!str_ends(path, S("feature_extractor")) || !base.n)
			continue;
		tried++;
		if (!has_module(g, joined(g, path, "conv_layers.0")))
			continue;
		x->frame = parent_path(base);
		x->layers = joined(g, base, "encoder.layers.");
		return has_module(g, joined(g, x->frame, "projector")) && has_module(g, joined(g, x->frame, "classifier"));
	}
	return false;
}

static bool
find_speech(const struct graph *g, struct speech *x)
{
	bool speech = false, classifier = false, classes = g->root_class != 0;

	*x = (struct speech){S(""), S("")};
	for (uint32_t s = 0; s < g->nscope; s++) {
		struct str cls = class_of(g, s);

		classes |= s && g->scopes[s].cls;
		speech |= hears(cls);
		if (!classifier && is_classifier(cls)) {
			classifier = true;
			x->frame = s ? scope_path(g, s) : S("");
		}
	}
	return classes ? speech && classifier : speech_by_names(g, x);
}

static bool
is_layer(const struct graph *g, const struct speech *x, uint32_t scope)
{
	struct str cls = class_of(g, scope), path = scope_path(g, scope);

	if (!x->layers.n)
		return memmem(cls.p, cls.n, "EncoderLayer", 12) != NULL;
	return str_starts(path, x->layers) && !memchr(path.p + x->layers.n, '.', path.n - x->layers.n);
}

/* The last node of the classifier's own frame around the node. */
static uint32_t
frame_end(const struct lifetimes *l, const struct speech *x, uint32_t n)
{
	for (unsigned d = 1; x->frame.n && d <= calls_depth(l->g, n); d++)
		if (str_eq(scope_path(l->g, scope_at(l->g, l->g->nodes[n].scope, d)), x->frame))
			return l->calls.last[l->calls.at[n] + d];
	return l->returns;
}

/* What the call gives to nodes behind it; a value of the same size that it was given, too. */
static void
record(struct lifetimes *l, uint32_t first, uint32_t last, const uint32_t *reader, uint32_t end)
{
	struct graph *g = l->g;
	uint32_t out = 0;

	for (uint32_t n = first; n <= last; n++)
		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			uint32_t v = node_outs(g, n)[k];

			if (!v || reader[v] <= last || !dtype_is_float(g->vals[v].dtype))
				continue;
			lifetime_extend(l, v, end);
			out = v;
		}
	for (uint32_t n = first; out && n <= last; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_NODE && g->vals[it.val].node < first && graph_same_dims(g, it.val, out))
				lifetime_extend(l, it.val, end);
}

void
lifetime_of_recorded(struct lifetimes *l)
{
	struct graph *g = l->g;
	struct speech x;
	const uint32_t *reader;
	bool any = false;

	if (!find_speech(g, &x))
		return;
	reader = uses_last(g, l->a->c->a);
	for (uint32_t n = 1; n < g->nnode; n++) {
		unsigned d = 1;

		while (d <= calls_depth(g, n) && !is_layer(g, &x, scope_at(g, g->nodes[n].scope, d)))
			d++;
		if (d > calls_depth(g, n) || l->calls.first[l->calls.at[n] + d] != n)
			continue;
		record(l, n, l->calls.last[l->calls.at[n] + d], reader, frame_end(l, &x, n));
		any = true;
	}
	if (any)
		assume(l->a, "hidden states of a classifier of speech live until it returns: hooks of transformers record what goes into its layers and comes from them");
}
