/*
 * ONNX files: what the exporter dropped, as far as the file still shows it. The dynamo exporter's metadata say what a node was before it was optimised:
 * the FX node with its arguments, and the rewriting rule that made it. The older exporter gives away a folded BatchNorm by the name of a
 * convolution's weight.
 */
#include "onnx.h"

#include <stdlib.h>
#include <string.h>

struct found {
	unsigned n;
	struct str first;
};

static void
count(struct found *f, struct str name)
{
	if (f->n++ == 0)
		f->first = name;
}

/* ---- arguments of FX nodes ------------------------------------------------------------------------------------------ */

/* "args = (%x, [1, 2], None, 0.1), kwargs = {scale: 0.125}": the i-th in the parentheses, or the named one in the braces; empty = absent. */
static struct str
fx_arg(struct str text, unsigned i, struct str name)
{
	struct str found = S("");
	unsigned depth = 0, at = 0;
	uint32_t begin = 0;

	for (uint32_t k = 0; k < text.n; k++) {
		char c = text.p[k];

		if (c == '(' || c == '[' || c == '{') {
			if (depth++ == 0)
				begin = k + 1;
		} else if (depth && (c == ')' || c == ']' || c == '}' || (c == ',' && depth == 1))) {
			struct str item = str_trim(str_sub(text, begin, k));

			depth -= c != ',';
			if (depth > (c == ','))
				continue;
			if (c != '}' && at++ == i && !found.n)
				found = item;
			if (str_starts(item, name) && name.n && item.n > name.n && item.p[name.n] == ':')
				found = str_trim(str_sub(item, name.n + 1, item.n));
			begin = k + 1;
			at = c == ')' ? 1000 : at;      /* what follows is named */
		}
	}
	return found;
}

static double
number(struct str s)
{
	char text[32];
	uint32_t n = s.n < sizeof text - 1 ? s.n : sizeof text - 1;

	if (n)
		memcpy(text, s.p, n);
	text[n] = 0;
	return strtod(text, NULL);
}

static bool
is_target(const struct graph *g, uint32_t n, struct str prefix)
{
	return str_starts(graph_str(g, g->nodes[n].fx_target), prefix);
}

/* ---- BatchNorm --------------------------------------------------------------------------------------------------------- */

static bool
find_folded_norms(struct onnx *l)
{
	const Onnx__Graph *g = l->m->graph;
	struct found folded = {0};

	for (size_t i = 0; i < g->n_node; i++) {
		const Onnx__Node *node = g->node[i];
		struct str rule = onnx_property(node->metadata_props, node->n_metadata_props, "pkg.onnxscript.rewriter.rule_name");
		bool conv = node->op_type && strstr(node->op_type, "Conv") != NULL;

		if (rule.n && memmem(rule.p, rule.n, "BatchNorm", 9))
			count(&folded, onnx_str(node->name));
		else if (conv && node->n_input > 2 && strncmp(node->input[1], "onnx::Conv", 10) == 0)
			count(&folded, onnx_str(node->name));
	}
	if (folded.n)
		diag(l->c, DIAG_NORM_FOLDED, folded.n, SFMT(folded.first));
	return folded.n > 0;
}

/* The exporter writes the inference form, whatever the mode; the FX node says what it was. */
static void
find_inference_norms(struct onnx *l)
{
	struct graph *g = l->g;
	struct found wrong = {0};

	for (uint32_t n = 1; n < g->nnode; n++) {
		struct arg *mode = g->nodes[n].op == OP_ONNX_BATCH_NORM ? node_arg(g, n, "training_mode") : NULL;
		struct str args = graph_str(g, g->nodes[n].fx_args);

		if (!mode || (mode->kind == ARG_INT && mode->u.i.n) || !str_eq(fx_arg(args, 5, S("training")), S("True")))
			continue;
		*mode = arg_int(1);
		count(&wrong, graph_str(g, g->nodes[n].name));
	}
	if (wrong.n)
		diag(l->c, DIAG_NORM_INFERENCE, wrong.n, SFMT(wrong.first));
}

/* ---- dropout ------------------------------------------------------------------------------------------------------------ */

/* Attention with a dropout that no node of it has become. */
static void
find_lost_dropout(struct onnx *l)
{
	struct graph *g = l->g;
	bool *has = NEW(l->c->a, bool, strtab_count(g->names) + 1), *seen = NEW(l->c->a, bool, strtab_count(g->names) + 1);
	struct found lost = {0};

	for (uint32_t n = 1; n < g->nnode; n++)
		has[g->nodes[n].fx] |= g->nodes[n].op == OP_ONNX_DROPOUT;
	for (uint32_t n = 1; n < g->nnode; n++) {
		const struct node *x = &g->nodes[n];

		if (!is_target(g, n, S("aten.scaled_dot_product_attention")) || seen[x->fx] || has[x->fx])
			continue;
		seen[x->fx] = true;
		if (number(fx_arg(graph_str(g, x->fx_args), 4, S("dropout_p"))) > 0)
			count(&lost, graph_str(g, x->fx));
	}
	if (lost.n)
		diag(l->c, DIAG_DROPOUT_LOST, lost.n, SFMT(lost.first));
}

/* Dropouts of an export in eval mode that became something else, such as a copy. */
static void
find_idle_dropout(struct onnx *l)
{
	unsigned n = 0;

	for (uint32_t i = 1; i < l->g->nnode; i++)
		if (is_target(l->g, i, S("aten.dropout.")) && l->g->nodes[i].op != OP_ONNX_DROPOUT && !str_eq(fx_arg(graph_str(l->g, l->g->nodes[i].fx_args), 2, S("train")), S("True")))
			n++;
	if (n)
		diag(l->c, DIAG_EVAL_EXPORT, n);
}

/* ---- parameters ------------------------------------------------------------------------------------------------------------ */

static bool
is_missing(const struct onnx *l, uint32_t i)
{
	return i < l->nspec && !l->spec[i].buffer && !l->spec[i].folded && l->g->vals[l->spec[i].val].kind == VAL_NONE;
}

/* "x.weight" and behind it "x.bias": what has two names has one of them only. */
static bool
is_layer(const struct onnx *l, uint32_t i)
{
	struct str weight = graph_str(l->g, l->spec[i].full), bias;

	if (!is_missing(l, i) || !is_missing(l, i + 1) || !str_ends(weight, S(".weight")))
		return false;
	bias = graph_str(l->g, l->spec[i + 1].full);
	return str_ends(bias, S(".bias")) && str_eq(str_sub(weight, 0, weight.n - 7), str_sub(bias, 0, bias.n - 5));
}

/* Folded norms are layers, too, and spoken of already. */
static void
find_missing_params(struct onnx *l, bool folded)
{
	struct str names = S("");
	struct found layers = {0};
	unsigned n = 0;

	for (uint32_t i = 1; i < l->nspec; i++) {
		struct str name = graph_str(l->g, l->spec[i].full);

		if (!is_missing(l, i))
			continue;
		if (!folded && is_layer(l, i)) {
			count(&layers, str_sub(name, 0, name.n - 7));
			i++;
		} else if (n++ < 4) {
			names = str_fmt(l->c->a, "%.*s%s%.*s", SFMT(names), n > 1 ? ", " : "", SFMT(name));
		}
	}
	if (n > 4)
		names = str_fmt(l->c->a, "%.*s, ..", SFMT(names));
	if (layers.n)
		diag(l->c, DIAG_LAYERS_MISSING, layers.n, SFMT(layers.first));
	if (n)
		diag(l->c, DIAG_PARAMS_MISSING, n, SFMT(names));
}

void
onnx_report_losses(struct onnx *l)
{
	bool folded = find_folded_norms(l);

	find_inference_norms(l);
	find_lost_dropout(l);
	find_idle_dropout(l);
	find_missing_params(l, folded);
}
