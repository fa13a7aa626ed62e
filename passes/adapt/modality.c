/*
 * modality: vision, audio, language, projector or other, for every parameter and node.
 *
 * Evidence first: an input of whole numbers that an embedding looks up is language, unless its name says that it is of pictures or sound; floats that enter a
 * 2-D or 3-D convolution are vision, a 1-D one audio (names decide only where that says nothing). These sources flow through the graph. Where two of them meet,
 * the merged stream is language if language is in it. A parameter is judged by what flows past it, and by where it stands:
 *
 *   inside a repeated block            what flows through the whole block
 *   before or inside a tower           the tower's modality (a tower: the first blocks of one source, and the largest
 *                                      module around them that nothing else flows through)
 *   beside a tower of its source       that modality: nothing of what the tower made flows there (a second tower, of frames)
 *   behind a tower, before a meeting   projector
 *   at a meeting without blocks        other (a contrastive model's logit scale)
 */
#include "../passes.h"

#include <string.h>

enum source { SRC_VISION = 1, SRC_AUDIO = 2, SRC_LANGUAGE = 4, SRC_FLOAT = 8 };

struct tower {
	uint32_t first;            /* first node of its first block, 0 = it has none */
	uint32_t last;             /* last node of its last block */
	uint32_t module;           /* scope, 0 = only the blocks themselves */
	uint32_t list_parent;      /* scope that holds the first block's list */
	int64_t width;             /* last dim of what the blocks pass on */
};

struct modality_pass {
	struct analysis *a;
	struct graph *g;
	uint8_t *mask;             /* per value: sources that flow in it */
	uint8_t *context;          /* per value without sources: those that it joins */
	uint8_t *behind;           /* per value: sources through whose tower it came */
	bool *meets;               /* per value: it later joins another source */
	uint8_t *scope_mask;       /* per scope: sources past the parameters in it */
	bool *block;               /* per scope */
	struct tower tower[16];    /* by source bit */
	uint8_t all;               /* sources that the model has */
	bool mixed_blocks;
};

/* ---- hints ----------------------------------------------------------------------------------------------- */

enum hint { HINT_VISION, HINT_AUDIO, HINT_PROJECTOR };

static bool
has_hint(struct str name, enum hint kind)
{
	static const struct {
		enum hint kind;
		const char *text;
	} table[] = {
#define HINT(kind, text) {HINT_##kind, text},
#include "modality.def"
#undef HINT
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].kind == kind && memmem(name.p, name.n, table[i].text, strlen(table[i].text)))
			return true;
	return false;
}

/* ---- what an operator shows ----------------------------------------------------------------------------------- */

enum evidence { LOOKUP, CONVOLUTION, PROJECTION };

/* The weight behind what only renames, casts or transposes it. */
static uint32_t
stored(const struct graph *g, uint32_t v)
{
	for (unsigned i = 0; i < 4 && g->vals[v].kind == VAL_NODE; i++) {
		uint32_t n = g->vals[v].node;
		unsigned op = g->nodes[n].op;

		if ((op != OP_ONNX_TRANSPOSE && op != OP_ONNX_CAST && op != OP_ONNX_IDENTITY) || node_args(g, n)->kind != ARG_VAL)
			return 0;
		v = node_args(g, n)->u.val;
	}
	return v;
}

/* The weight that the node uses in that way, 0 = it does not. ONNX's operators are of that kind only with one of the model's. */
static uint32_t
weight_of(const struct graph *g, uint32_t n, enum evidence kind)
{
	static const struct {
		uint16_t op;
		uint8_t kind;
		const char *weight;
	} table[] = {
		{OP_EMBEDDING, LOOKUP, "weight"}, {OP_ONNX_GATHER, LOOKUP, "data"},
		{OP_CONV, CONVOLUTION, "weight"}, {OP_CONVOLUTION, CONVOLUTION, "weight"}, {OP_ONNX_CONV, CONVOLUTION, "W"},
		{OP_LINEAR, PROJECTION, "weight"}, {OP_ONNX_MATMUL, PROJECTION, "B"}, {OP_ONNX_GEMM, PROJECTION, "B"},
	};
	const struct arg *a;

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		if (table[i].op != g->nodes[n].op || table[i].kind != kind)
			continue;
		a = node_arg(g, n, table[i].weight);
		if (a->kind != ARG_VAL)
			return 0;
		return !op_is_onnx(table[i].op) || g->vals[stored(g, a->u.val)].kind == VAL_PARAM ? a->u.val : 0;
	}
	return 0;
}

/* ---- sources ------------------------------------------------------------------------------------------------ */

static bool
is_float(const struct graph *g, uint32_t v)
{
	return dtype_is_float(g->vals[v].dtype);
}

/* What the inputs of whole numbers are of that node n reads or was made from. */
static uint8_t
from_whole_input(const struct modality_pass *m, const uint8_t *ids, uint32_t n)
{
	uint8_t found = 0;

	for (struct operands it = operands_of(m->g, n); operand_next(&it);)
		if (!is_float(m->g, it.val))
			found |= ids[it.val];
	return found & SRC_LANGUAGE ? SRC_LANGUAGE : found;
}

static uint8_t
whole_source(struct str name)
{
	return has_hint(name, HINT_VISION) ? SRC_VISION : has_hint(name, HINT_AUDIO) ? SRC_AUDIO : SRC_LANGUAGE;
}

/* For every value the first convolution that anything made of it reaches; 0 = none. */
static const uint32_t *
first_convolutions(const struct modality_pass *m)
{
	const struct graph *g = m->g;
	uint32_t *first = NEW(m->a->c->a, uint32_t, g->nval);

	for (uint32_t n = g->nnode; n-- > 1;) {
		uint32_t behind = weight_of(g, n, CONVOLUTION) ? n : 0;

		for (uint32_t k = 0; k < g->nodes[n].nout && behind != n; k++) {
			uint32_t f = first[node_outs(g, n)[k]];

			behind = f && (!behind || f < behind) ? f : behind;
		}
		for (struct operands it = operands_of(g, n); behind && operand_next(&it);)
			if (!first[it.val] || behind < first[it.val])
				first[it.val] = behind;
	}
	return first;
}

/* What a floating-point input is: by the first convolution that reads it, then by its name. */
static uint8_t
float_source(const struct modality_pass *m, uint32_t input, uint32_t convolution)
{
	const struct graph *g = m->g;
	struct str name = graph_str(g, g->vals[input].name);
	unsigned rank = convolution ? g->vals[weight_of(g, convolution, CONVOLUTION)].rank : 0;

	if (has_hint(name, HINT_VISION))
		return SRC_VISION;
	if (has_hint(name, HINT_AUDIO) || rank == 3)
		return SRC_AUDIO;
	return rank ? SRC_VISION : SRC_FLOAT;
}

static void
find_sources(struct modality_pass *m)
{
	struct graph *g = m->g;
	const uint32_t *first = first_convolutions(m);

	for (uint32_t i = 0; i < g->ninput; i++) {
		uint32_t v = g->inputs[i];

		if (is_float(g, v) && !(g->vals[v].flags & VF_LABELS))
			m->mask[v] = float_source(m, v, first[v]);
	}
}

/* ---- flow ----------------------------------------------------------------------------------------------------- */

static void
flow_forward(struct modality_pass *m)
{
	struct graph *g = m->g;
	uint8_t *ids = NEW(m->a->c->a, uint8_t, g->nval);

	for (uint32_t i = 0; i < g->ninput; i++)
		ids[g->inputs[i]] = whole_source(graph_str(g, g->vals[g->inputs[i]].name));
	for (uint32_t n = 1; n < g->nnode; n++) {
		uint8_t whole = from_whole_input(m, ids, n);
		uint8_t mask = weight_of(g, n, LOOKUP) ? whole : 0;

		for (struct operands it = operands_of(g, n); operand_next(&it);)
			mask |= m->mask[it.val];
		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			uint32_t v = node_outs(g, n)[k];

			ids[v] = is_float(g, v) ? 0 : whole;
			m->mask[v] = is_float(g, v) ? mask : 0;
		}
		m->all |= mask;
	}
}

/* From the end: what a value without a source of its own joins, and whether a value meets another source. */
static void
flow_back(struct modality_pass *m)
{
	struct graph *g = m->g;

	for (uint32_t n = g->nnode; n-- > 1;) {
		uint8_t mask = 0;
		bool meets = false;

		for (uint32_t k = 0; k < g->nodes[n].nout; k++) {
			uint32_t v = node_outs(g, n)[k];

			mask |= m->mask[v] ? m->mask[v] : m->context[v];
			meets |= m->meets[v];
		}
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			if (!m->mask[it.val])
				m->context[it.val] |= mask;
			m->meets[it.val] |= meets || (m->mask[it.val] && (mask & ~m->mask[it.val]));
		}
	}
}

static uint8_t
mask_of(const struct modality_pass *m, uint32_t v)
{
	return m->mask[v] ? m->mask[v] : m->context[v];
}

static uint8_t
node_mask(const struct modality_pass *m, uint32_t n)
{
	uint8_t mask = 0;

	for (uint32_t k = 0; k < m->g->nodes[n].nout; k++)
		mask |= mask_of(m, node_outs(m->g, n)[k]);
	return mask;
}

static bool
reads_param(const struct graph *g, uint32_t n)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (g->vals[it.val].kind == VAL_PARAM)
			return true;
	return false;
}

static void
mark_scopes(struct modality_pass *m)
{
	struct graph *g = m->g;

	for (uint32_t n = 1; n < g->nnode; n++) {
		uint8_t mask = reads_param(g, n) ? node_mask(m, n) : 0;

		for (uint32_t s = g->nodes[n].scope; s; s = g->scopes[s].parent)
			m->scope_mask[s] |= mask;
	}
}

/* ---- towers ------------------------------------------------------------------------------------------------------- */

static bool
is_single(uint8_t mask)
{
	return mask && !(mask & (mask - 1));
}

static int64_t
last_dim(const struct graph *g, uint32_t v)
{
	const struct val *x = &g->vals[v];

	return x->rank == RANK_UNKNOWN || !x->rank ? 0 : val_dims(g, v)[x->rank - 1].n;
}

static uint32_t
widest_pure_module(const struct modality_pass *m, uint32_t scope, uint8_t mask)
{
	uint32_t found = 0;

	for (uint32_t s = m->g->scopes[scope].parent; s && m->scope_mask[s] == mask; s = m->g->scopes[s].parent)
		found = s;
	return found;
}

static bool
inside(const struct graph *g, uint32_t scope, uint32_t module)
{
	while (scope && scope != module)
		scope = g->scopes[scope].parent;
	return module && scope == module;
}

static bool
in_tower(const struct modality_pass *m, const struct tower *t, uint32_t block)
{
	if (!t->first)
		return false;
	return t->module ? inside(m->g, block, t->module) : m->g->scopes[block].parent == t->list_parent;
}

static void
find_towers(struct modality_pass *m)
{
	struct graph *g = m->g;

	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t b = blocks_outermost(g, m->block, g->nodes[n].scope);
		uint8_t mask = b ? m->scope_mask[b] : 0;
		struct tower *t = &m->tower[mask & 15];

		m->mixed_blocks |= mask && !is_single(mask);
		if (!is_single(mask))
			continue;
		if (!t->first) {
			t->first = n;
			t->module = widest_pure_module(m, b, mask);
			t->list_parent = g->scopes[b].parent;
		}
		if (in_tower(m, t, b)) {
			t->last = n;
			t->width = last_dim(g, node_outs(g, n)[0]);
		}
	}
}

static bool
in_any_tower(const struct modality_pass *m, uint32_t n, uint8_t source)
{
	const struct tower *t = &m->tower[source];
	uint32_t scope = m->g->nodes[n].scope, block = blocks_outermost(m->g, m->block, scope);

	return t->first && n >= t->first && (block ? in_tower(m, t, block) : inside(m->g, scope, t->module));
}

static void
flow_from_towers(struct modality_pass *m)
{
	struct graph *g = m->g;

	m->behind = NEW(m->a->c->a, uint8_t, g->nval);
	for (uint32_t n = 1; n < g->nnode; n++) {
		uint8_t behind = 0;

		for (uint8_t source = 1; source <= SRC_FLOAT; source = (uint8_t)(source << 1))
			behind |= in_any_tower(m, n, source) ? source : 0;
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			behind |= m->behind[it.val];
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			m->behind[node_outs(g, n)[k]] = behind;
	}
	for (uint32_t n = g->nnode; n-- > 1;) {        /* what has no source goes with what it joins */
		uint8_t behind = 0;

		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			behind |= m->behind[node_outs(g, n)[k]];
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			m->behind[it.val] |= m->mask[it.val] ? 0 : behind;
	}
}

/* ---- judging --------------------------------------------------------------------------------------------------------- */

static uint8_t
of_source(uint8_t mask)
{
	return mask & SRC_LANGUAGE ? MOD_LANGUAGE : mask == SRC_VISION ? MOD_VISION : mask == SRC_AUDIO ? MOD_AUDIO : MOD_OTHER;
}

/* A layer of the module's own, not of a head or a stage in it. */
static bool
is_own_layer(const struct graph *g, uint32_t scope, uint32_t module)
{
	return scope == module || g->scopes[scope].parent == module;
}

/* Behind the tower's blocks but still in its module: a connector is a layer that changes the width, or says so by its name. */
static bool
connects(const struct modality_pass *m, const struct tower *t, uint32_t n)
{
	uint32_t out = node_outs(m->g, n)[0];
	struct str path = scope_path(m->g, m->g->nodes[n].scope);

	if (n <= t->last || !m->meets[out])
		return false;
	return has_hint(path, HINT_PROJECTOR) || (is_own_layer(m->g, m->g->nodes[n].scope, t->module) && weight_of(m->g, n, PROJECTION) && last_dim(m->g, out) != t->width);
}

/* "visual.deepstack_mergers.0": a repeated block that says so by its name, below the tower's own. */
static bool
is_connecting_block(const struct modality_pass *m, const struct tower *t, uint32_t n, uint32_t block)
{
	struct str path = scope_path(m->g, block), module = scope_path(m->g, t->module);

	return t->module && str_starts(path, module) && has_hint(str_sub(path, module.n, path.n), HINT_PROJECTOR) && m->meets[node_outs(m->g, n)[0]];
}

static uint8_t
judge_pure(const struct modality_pass *m, uint32_t n, uint8_t mask, uint32_t block)
{
	const struct tower *t = &m->tower[mask & 15];
	uint32_t scope = m->g->nodes[n].scope;

	if (!t->first)
		return m->meets[node_outs(m->g, n)[0]] && has_hint(scope_path(m->g, scope), HINT_PROJECTOR) ? MOD_PROJECTOR : of_source(mask);
	if (block ? in_tower(m, t, block) : inside(m->g, scope, t->module))
		return (block ? is_connecting_block(m, t, n, block) : connects(m, t, n)) ? MOD_PROJECTOR : of_source(mask);
	if (n < t->first || !(m->behind[node_outs(m->g, n)[0]] & mask))
		return of_source(mask);
	return m->meets[node_outs(m->g, n)[0]] ? MOD_PROJECTOR : of_source(mask);
}

static uint8_t
judge(const struct modality_pass *m, uint32_t n)
{
	uint32_t block = blocks_outermost(m->g, m->block, m->g->nodes[n].scope);
	uint8_t mask = block ? m->scope_mask[block] : node_mask(m, n);

	if (!mask)
		return is_single(m->all) ? of_source(m->all) : MOD_OTHER;
	if (is_single(m->all))
		return of_source(m->all);
	if (is_single(mask))
		return judge_pure(m, n, mask, block);
	if (block && has_hint(scope_path(m->g, block), HINT_PROJECTOR) && m->meets[node_outs(m->g, n)[0]])
		return MOD_PROJECTOR;
	if (!block && !m->mixed_blocks)
		return MOD_OTHER;
	return of_source(mask);
}

/* A parameter is judged at its first use; tied ones at the first use of any. One that nobody uses goes with its module. */
static void
judge_params(struct modality_pass *m)
{
	struct graph *g = m->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);) {
			struct val *p = &g->vals[it.val];
			struct val *owner = p->kind == VAL_PARAM && p->tied ? &g->vals[p->tied] : p;

			if ((p->kind == VAL_PARAM || p->kind == VAL_BUFFER) && !owner->modality)
				owner->modality = judge(m, n);
			p->modality = owner->modality;
		}
}

static struct str
module_of(const struct graph *g, uint32_t v)
{
	struct str s = graph_str(g, g->vals[v].full);

	while (s.n && s.p[s.n - 1] != '.')
		s.n--;
	return s.n ? str_sub(s, 0, s.n - 1) : s;
}

/* The neighbour whose name shares the longest prefix of modules. */
static uint8_t
like_neighbour(const struct graph *g, uint32_t v)
{
	for (struct str path = module_of(g, v); path.n;) {
		for (uint32_t p = 1; p < g->nval; p++)
			if ((g->vals[p].kind == VAL_PARAM) && g->vals[p].modality && name_matches(path, graph_str(g, g->vals[p].full)))
				return g->vals[p].modality;
		while (path.n && path.p[path.n - 1] != '.')
			path.n--;
		path = path.n ? str_sub(path, 0, path.n - 1) : path;
	}
	return MOD_NONE;
}

static void
judge_unused(struct modality_pass *m)
{
	struct graph *g = m->g;

	for (uint32_t v = 1; v < g->nval; v++) {
		struct val *x = &g->vals[v];

		if (x->modality || (x->kind != VAL_PARAM && x->kind != VAL_BUFFER && x->kind != VAL_CONST))
			continue;
		x->modality = like_neighbour(g, v);
		if (!x->modality)
			x->modality = is_single(m->all) ? of_source(m->all) : MOD_OTHER;
	}
}

/* A node goes with the parameters of its innermost module that has some of one modality; else with what flows through it. */
static void
judge_nodes(struct modality_pass *m)
{
	struct graph *g = m->g;
	uint8_t *of = NEW(m->a->c->a, uint8_t, g->nscope);         /* a bit per modality */

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			for (uint32_t s = g->nodes[n].scope; s && g->vals[it.val].kind == VAL_PARAM; s = g->scopes[s].parent)
				of[s] |= (uint8_t)(1u << g->vals[it.val].modality);
	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t s = g->nodes[n].scope;

		while (s && !of[s])
			s = g->scopes[s].parent;
		g->nodes[n].modality = judge(m, n);
		if (s && is_single(of[s]))
			for (uint8_t k = 1; k < MOD_COUNT; k++)
				if (of[s] == 1u << k)
					g->nodes[n].modality = k;
	}
}

/* The batch goes with the first module that reads it; labels and the loss with what computes the logits. */
static void
judge_inputs(struct modality_pass *m)
{
	struct graph *g = m->g;

	for (uint32_t n = g->nnode; n-- > 1;)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_INPUT)
				g->vals[it.val].modality = g->nodes[n].modality;
	for (uint32_t i = 0; i < g->ninput; i++)
		if (!g->vals[g->inputs[i]].modality)
			g->vals[g->inputs[i]].modality = MOD_OTHER;
}

bool
pass_modality(struct analysis *a)
{
	struct graph *g = a->g;
	struct modality_pass m = {.a = a, .g = g};

	m.mask = NEW(a->c->a, uint8_t, g->nval);
	m.context = NEW(a->c->a, uint8_t, g->nval);
	m.meets = NEW(a->c->a, bool, g->nval);
	m.scope_mask = NEW(a->c->a, uint8_t, g->nscope);
	m.block = blocks_find(g, a->c->a);
	find_sources(&m);
	flow_forward(&m);
	flow_back(&m);
	mark_scopes(&m);
	find_towers(&m);
	flow_from_towers(&m);
	judge_params(&m);
	judge_unused(&m);
	judge_nodes(&m);
	judge_inputs(&m);
	return true;
}
