/*
 * ONNX files: which stored tensors are parameters, which are buffers, which are neither, and what they are called in the model.
 *
 * The dynamo exporter lists all parameters and buffers in a text, the signature; a stored tensor is one of them by its own name, or because it was
 * folded from exactly one of them (a Linear's weight, transposed). onnx_tied.c finds those that are second names.
 *
 * Without a signature names and uses decide: dotted names are the model's own; what the exporter made itself (onnx::MatMul_359, val_26) is a
 * parameter if it stands where an operator has its weights, or is a stack of weights from which an index picks, and is called after the module that reads it.
 */
#include "onnx.h"

#include <string.h>

/* ---- the signature ------------------------------------------------------------------------------------------------ */

/* p_fc_weight: PARAMETER target='fc.weight'
 * b_rope_inv_freq: BUFFER target='rope.inv_freq' persistent=False */
static bool
read_line(struct onnx *l, struct str line)
{
	struct str alias, head, rest = line, target = S("");
	struct spec spec = {0};

	if (!str_cut(&rest, ' ', &alias) || !str_ends(alias, S(":")) || !rest.p)
		return true;
	str_cut(&rest, ' ', &head);
	spec.buffer = str_eq(head, S("BUFFER"));
	if ((!spec.buffer && !str_eq(head, S("PARAMETER"))) || !rest.p)
		return true;
	spec.persistent = !memmem(rest.p, rest.n, "persistent=False", 16);
	if (!str_starts(rest, S("target=")) || !onnx_next_item(&rest, &target) || !target.n)
		return true;
	if (strtab_find(l->targets, target))
		return true;
	spec.full = graph_name(l->g, target);
	spec.alias = str_sub(alias, 0, alias.n - 1);
	spec.val = val_new(l->g, VAL_NONE, target);    /* so that parameters are in the model's order */
	strtab_id(l->targets, target);
	ROOM(l->c->a, l->spec, l->nspec, l->spec_cap, 1);
	l->spec[l->nspec++] = spec;
	return l->nspec < l->c->lim.values || diag(l->c, DIAG_TOO_MANY, "parameters", (unsigned long long)l->c->lim.values);
}

bool
onnx_read_signature(struct onnx *l)
{
	const Onnx__Graph *g = l->m->graph;
	struct str rest = onnx_property(g->metadata_props, g->n_metadata_props, "pkg.torch.export.ExportedProgram.graph_signature"), line;

	l->targets = strtab_new(l->c->a);
	ROOM(l->c->a, l->spec, 0, l->spec_cap, 1);
	l->nspec = 1;
	while (rest.n && str_cut(&rest, '\n', &line)) {
		if (str_starts(line, S("# outputs")))
			break;
		if (!read_line(l, str_trim(line)))
			return false;
	}
	return true;
}

struct spec *
onnx_spec(const struct onnx *l, struct str name)
{
	uint32_t id = strtab_find(l->targets, name);

	return id ? &l->spec[id] : NULL;
}

/* ---- stored tensors -------------------------------------------------------------------------------------------------- */

static void
take_spec(struct onnx *l, uint32_t v, const struct spec *s)
{
	struct val *x = &l->g->vals[v];

	x->full = s->full;
	x->kind = s->buffer || !dtype_is_float(x->dtype) ? VAL_BUFFER : VAL_PARAM;
	x->data = x->kind == VAL_PARAM ? DATA_NONE : x->data;    /* training changes it */
	x->flags = x->kind == VAL_PARAM ? VF_TRAINABLE : s->persistent ? VF_PERSISTENT : 0;
}

/* A stored tensor takes the place that the signature gave it; others get a new one. */
static bool
define_stored(struct onnx *l, const char *name, const Onnx__Tensor *t)
{
	bool alone = true;
	struct spec *s = l->depth ? NULL : onnx_spec(l, onnx_str(name));
	uint32_t v;

	if (!s && !l->depth)
		s = onnx_folded_from(l, name, &alone);
	if (s && alone && l->g->vals[s->val].kind == VAL_NONE) {
		v = s->val;
		l->g->vals[v].kind = VAL_CONST;
		l->g->vals[v].name = graph_name(l->g, onnx_str(name));
		++*onnx_slot(l, &l->taken, &l->taken_cap, l->g->vals[v].name);
		if (!onnx_bind(l, name, v) || !onnx_tensor(l, v, t))
			return false;
		take_spec(l, v, s);
		return true;
	}
	if (!onnx_define(l, VAL_CONST, name, &v) || !onnx_tensor(l, v, t))
		return false;
	*onnx_slot(l, &l->stored, &l->stored_cap, v) = l->depth ? STORED_INSIDE : STORED;
	if (s && s->buffer && !dtype_is_float(l->g->vals[v].dtype))
		l->g->vals[v].full = s->full;          /* positions: some of the buffer's */
	if (s && !s->buffer)
		onnx_note_folded(l, v, name, s);
	if (!s && l->g->vals[v].dtype == DT_BOOL)
		onnx_note_comparison(l, v, name);
	return true;
}

static bool
sparse(struct onnx *l, const Onnx__SparseTensor *s)
{
	Onnx__Tensor t = ONNX__TENSOR__INIT;

	if (!s->values)
		return true;
	t.name = s->values->name;
	t.data_type = s->values->data_type;
	t.dims = s->dims;
	t.n_dims = s->n_dims;
	return define_stored(l, t.name, &t);
}

bool
onnx_initializers(struct onnx *l, const Onnx__Graph *g)
{
	for (size_t i = 0; i < g->n_initializer; i++)
		if (!define_stored(l, g->initializer[i]->name, g->initializer[i]))
			return false;
	for (size_t i = 0; i < g->n_sparse_initializer; i++)
		if (!sparse(l, g->sparse_initializer[i]))
			return false;
	return true;
}

bool
onnx_is_stored(const struct onnx *l, const char *name)
{
	uint32_t id = strtab_find(l->names, onnx_str(name)), v = id && id < l->bind_cap && l->bind[id].frame == l->frame ? l->bind[id].val : 0;

	return v && (l->g->vals[v].kind == VAL_CONST || l->g->vals[v].kind == VAL_PARAM || l->g->vals[v].kind == VAL_BUFFER);
}

/* ---- uses --------------------------------------------------------------------------------------------------------------- */

struct use {
	uint32_t node;             /* 0 = none */
	uint8_t weight;            /* number among the operator's weights + 1, 0 = it is read as something else */
	bool product;              /* second factor of a matrix product */
	bool factor;               /* either factor of one, among other readers maybe */
	bool statistics;           /* of a BatchNormalization */
};

/* "W B": the place of an operand's name in it + 1. */
static uint8_t
weight_number(unsigned op, struct str operand)
{
	struct str rest = str_of(op_info(op)->weights), name;
	uint8_t i = 0;

	while (rest.n && str_cut(&rest, ' ', &name)) {
		i++;
		if (str_eq(name, operand))
			return i;
	}
	return 0;
}

static void
note_use(struct onnx *l, struct use *u, uint32_t n, const struct arg_name *operand, unsigned at)
{
	unsigned op = l->g->nodes[n].op;
	struct use now = {.node = n, .weight = weight_number(op, operand->name)};

	now.product = op == OP_ONNX_MATMUL && at == 1;
	now.statistics = op == OP_ONNX_BATCH_NORM && at >= 3;
	now.factor = op == OP_ONNX_MATMUL || u->factor;
	if (!u->node || (now.weight && !u->weight))
		*u = now;
	u->factor = now.factor;
}

/* Rows of a stored tensor that an index picks: the tensor, or 0. */
static uint32_t
picked_from(const struct graph *g, uint32_t n, uint32_t *index)
{
	const struct arg *a = node_args(g, n);

	if (g->nodes[n].op != OP_ONNX_GATHER_ND || a[0].kind != ARG_VAL || a[1].kind != ARG_VAL)
		return 0;
	*index = a[1].u.val;
	return a[0].u.val;
}

/* Experts: of matrices that were stacked each token multiplies those that an index picks; what the same index picks besides are their biases. */
static void
find_experts(struct onnx *l, struct use *uses)
{
	struct graph *g = l->g;
	bool *experts = NEW(l->c->a, bool, g->nval);
	uint32_t index = 0, x;

	for (uint32_t n = 1; n < g->nnode; n++)
		if ((x = picked_from(g, n, &index)) && g->vals[x].rank == 3 && uses[node_outs(g, n)[0]].factor)
			experts[index] = true;
	for (uint32_t n = 1; n < g->nnode; n++)
		if ((x = picked_from(g, n, &index)) && experts[index])
			uses[x] = (struct use){.node = n, .weight = 1};
}

/* How each stored tensor is used; what only renames or casts it passes its own use on. */
static struct use *
find_uses(struct onnx *l)
{
	struct graph *g = l->g;
	struct use *uses = NEW(l->c->a, struct use, g->nval);

	for (uint32_t n = g->nnode; n-- > 1;) {
		struct arg_name names[MAX_SCHEMA];
		uint32_t count = op_is_onnx(g->nodes[n].op) ? op_args(g->nodes[n].op, names, MAX_SCHEMA) : 0;

		for (uint32_t i = 0; i < count && i < g->nodes[n].narg; i++) {
			const struct arg *a = node_args(g, n) + i;

			if (a->kind == ARG_VAL)
				note_use(l, &uses[a->u.val], n, &names[i], i);
			for (uint32_t k = 0; a->kind == ARG_VALS && k < a->count; k++)
				note_use(l, &uses[g->ids[a->first + k]], n, &names[i], i);
		}
		if ((g->nodes[n].op == OP_ONNX_IDENTITY || g->nodes[n].op == OP_ONNX_CAST) && node_outs(g, n)[0] && node_args(g, n)->kind == ARG_VAL)
			uses[node_args(g, n)->u.val] = uses[node_outs(g, n)[0]];
	}
	find_experts(l, uses);
	return uses;
}

/* ---- without a signature ----------------------------------------------------------------------------------------------------- */

/* Names of tensors that modules keep but do not train. */
static bool
is_buffer_name(struct str name)
{
	static const char *const ends[] = {
		"running_mean", "running_var", "num_batches_tracked", "inv_freq", "embed_scale", "final_logits_bias", "position_ids", "token_type_ids", "cos_cached", "sin_cached", "cos_cache", "sin_cache",
		"relative_position_index", "masked_bias", "attn_mask",
	};

	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
		if (str_ends(name, str_of(ends[i])))
			return true;
	return false;
}

static bool
is_number(struct str s)
{
	for (uint32_t i = 0; i < s.n; i++)
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
	return true;
}

/* Names that an exporter made up: "onnx::MatMul_359", "/model/Constant_output_0", "val_26", "312". */
static bool
is_made_up(struct str name)
{
	return memmem(name.p, name.n, "::", 2) || str_find(name, '/') >= 0 || is_number(name) || (str_starts(name, S("val_")) && is_number(str_sub(name, 4, name.n)));
}

/* What the dynamo exporter computed is called after the operator: "add_12", "scalar_tensor_default_1". */
static bool
is_operator_name(struct str name)
{
	static const char *const others[] = {"getitem", "tmp", "clone", "alias", "empty_like", "ones_like", "zeros_like", "convert_element_type", "scalar_tensor"};
	struct str stem = str_stem(name);
	bool inplace;

	if (str_ends(stem, S("_default")))
		stem = str_sub(stem, 0, stem.n - 8);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (str_eq(stem, str_of(others[i])))
			return true;
	return name.p[0] == '_' || str_ends(stem, S("_cast")) || memmem(name.p, name.n, "lifted", 6) || op_by_name(stem, &inplace) != OP_NONE;
}

/* A stored tensor with the model's own name for it: among the dynamo exporter's, only tables and vectors have one without a dot. */
static bool
is_models_own(const struct onnx *l, uint32_t v)
{
	const struct val *x = &l->g->vals[v];
	struct str name = graph_str(l->g, x->name);

	if (!name.n || is_made_up(name))
		return false;
	if (str_find(name, '.') > 0 || !l->fx_names)
		return true;
	return v < l->stored_cap && l->stored[v] == STORED && dtype_is_float(x->dtype) && x->rank != RANK_UNKNOWN && x->rank > 0 && !is_operator_name(name);
}

/* "weight" and "bias" where an operator has no more than these. */
static struct str
role(struct onnx *l, unsigned op, unsigned weight)
{
	struct str rest = str_of(op_info(op)->weights), name = S("");
	unsigned count = 0;

	for (struct str r = rest; r.n && str_cut(&r, ' ', &name);)
		count++;
	for (unsigned i = 0; i < weight; i++)
		str_cut(&rest, ' ', &name);
	if (count <= 2)
		return weight == 2 ? S("bias") : S("weight");
	return str_fmt(l->c->a, "weight_%.*s", SFMT(name));
}

/* Called after the module that reads it. */
static uint32_t
made_name(struct onnx *l, uint32_t v, const struct use *u)
{
	struct str module = scope_path(l->g, l->g->nodes[u->node].scope), name = graph_str(l->g, l->g->vals[v].name);
	struct str full = str_fmt(l->c->a, "%.*s.%.*s", SFMT(module), SFMT(role(l, l->g->nodes[u->node].op, u->weight)));

	if (!module.n)
		return l->g->vals[v].name;
	if (strtab_find(l->targets, full))
		full = str_fmt(l->c->a, "%.*s.%.*s", SFMT(module), SFMT(name));
	return graph_name(l->g, full);
}

static bool
from_pytorch(const struct onnx *l)
{
	return str_starts(l->g->producer, S("pytorch"));
}

static bool
is_norm(unsigned op)
{
	return op == OP_ONNX_BATCH_NORM || op == OP_ONNX_LAYER_NORM || op == OP_ONNX_INSTANCE_NORM || op == OP_ONNX_GROUP_NORM;
}

/*
 * Ones and zeros where a norm wants weights and the module has none, or is a function, or has them elsewhere (GroupNorm, taken apart). Exporters rename
 * weights that they transpose: a norm's keep their names.
 */
static bool
is_filler(const struct onnx *l, uint32_t v, const struct use *u)
{
	const struct val *x = &l->g->vals[v];

	if (!is_norm(l->g->nodes[u->node].op))
		return false;
	if (from_pytorch(l) && !is_models_own(l, v))
		return true;
	for (uint32_t i = 1; i < x->ndata; i++)
		if (x->data != DATA_FLOATS || l->g->floats[x->data_at + i] != l->g->floats[x->data_at])
			return false;
	return x->data == DATA_FLOATS && x->ndata > 0;
}

static void
judge(struct onnx *l, uint32_t v, const struct use *u, bool stored)
{
	struct val *x = &l->g->vals[v];
	struct str name = graph_str(l->g, x->name);
	bool own = stored && is_models_own(l, v), weight = u->weight && x->rank != RANK_UNKNOWN && x->rank > 0 && !is_filler(l, v, u);

	if (!own && (!weight || (!stored && from_pytorch(l))))
		return;                /* PyTorch's exporters store parameters; Constant nodes have what code computed */
	if (!dtype_is_float(x->dtype) || u->statistics || is_buffer_name(name)) {
		x->kind = own ? VAL_BUFFER : VAL_CONST;
		x->flags = own ? VF_PERSISTENT : 0;
		x->full = own ? x->name : 0;
		return;
	}
	if (own && !u->node && x->rank == 0)
		return;
	x->full = own ? x->name : made_name(l, v, u);
	x->kind = VAL_PARAM;
	x->data = DATA_NONE;       /* training changes it */
	x->flags = VF_TRAINABLE;
	strtab_id(l->targets, graph_str(l->g, x->full));
	if (!own && u->product && x->rank == 2)
		x->flags |= VF_TRANSPOSED;
}

/* Files without parameters inside have them as inputs: of fixed size, with names of parameters, read where weights are. */
static bool
input_is_param(const struct onnx *l, uint32_t v, const struct use *u)
{
	const struct val *x = &l->g->vals[v];
	struct str name = graph_str(l->g, x->name);
	bool fixed = x->rank != RANK_UNKNOWN && x->rank > 0;

	for (unsigned i = 0; fixed && i < x->rank; i++)
		fixed = !val_dims(l->g, v)[i].expr;
	return fixed && dtype_is_float(x->dtype) && (u->weight || u->statistics) && (str_find(name, '.') > 0 || memmem(name.p, name.n, "::", 2));
}

static void
judge_inputs(struct onnx *l, const struct use *uses)
{
	struct graph *g = l->g;
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->ninput; i++)
		if (input_is_param(l, g->inputs[i], &uses[g->inputs[i]]))
			judge(l, g->inputs[i], &uses[g->inputs[i]], true);
		else
			g->inputs[n++] = g->inputs[i];
	g->ninput = n;
}

/* ---- with a signature ----------------------------------------------------------------------------------------------------------- */

/* Folded weights of Linears stand transposed. */
static void
mark_transposed(struct onnx *l, const struct use *uses)
{
	for (uint32_t i = 1; i < l->nspec; i++) {
		struct val *x = &l->g->vals[l->spec[i].val];

		if (x->kind == VAL_PARAM && x->full != x->name && x->rank == 2 && uses[l->spec[i].val].product)
			x->flags |= VF_TRANSPOSED;
	}
}

/* ---- what is read by no node ------------------------------------------------------------------------------------------------------ */

/* PyTorch's BatchNorm counts its batches in a buffer that ONNX has no use for: with running statistics there is one. */
static void
add_counter(struct onnx *l, uint32_t mean)
{
	struct graph *g = l->g;
	struct str stored = graph_str(g, g->vals[mean].full), end = S("running_mean"), name;
	struct spec *s;
	uint32_t v;

	if (g->vals[mean].kind != VAL_BUFFER || !str_ends(stored, end))
		return;
	name = str_fmt(l->c->a, "%.*snum_batches_tracked", SFMT(str_sub(stored, 0, stored.n - end.n)));
	s = onnx_spec(l, name);
	if (s ? g->vals[s->val].kind != VAL_NONE : l->nspec > 1 || strtab_find(l->targets, name))
		return;
	v = s ? s->val : val_new(g, VAL_BUFFER, name);
	g->vals[v].kind = VAL_BUFFER;
	g->vals[v].full = graph_name(g, name);
	g->vals[v].dtype = DT_INT64;
	g->vals[v].flags = VF_PERSISTENT;
	val_shape(g, v, 0, NULL);
	strtab_id(l->targets, name);
}

static void
add_counters(struct onnx *l)
{
	struct graph *g = l->g;

	for (uint32_t n = 1; from_pytorch(l) && n < g->nnode; n++)
		if (g->nodes[n].op == OP_ONNX_BATCH_NORM && g->nodes[n].narg > 3 && node_args(g, n)[3].kind == ARG_VAL)
			add_counter(l, node_args(g, n)[3].u.val);
}

/* Gates of recurrent layers are packed into constants, several parameters to one; the pass recurrent takes them out again. */
static void
find_packed(struct onnx *l)
{
	for (uint32_t n = 1; n < l->g->nnode; n++) {
		unsigned op = l->g->nodes[n].op;

		if (op != OP_ONNX_LSTM && op != OP_ONNX_GRU && op != OP_ONNX_RNN)
			continue;
		for (uint32_t i = 1; i < l->nspec; i++)
			l->spec[i].folded |= onnx_fx_reads(l->g, n, &l->spec[i]);
	}
}

void
onnx_find_params(struct onnx *l)
{
	struct graph *g = l->g;
	struct use *uses = find_uses(l);
	bool signature = l->nspec > 1, stores = false;

	if (signature) {
		mark_transposed(l, uses);
		onnx_find_ties(l);
		find_packed(l);
		onnx_find_computed_weights(l);
		onnx_find_alike(l);
	}
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind == VAL_CONST && !signature) {
			bool stored = v < l->stored_cap && l->stored[v];

			judge(l, v, &uses[v], stored);
			stores |= g->vals[v].kind == VAL_PARAM;
			g->vals[v].flags |= stored && g->vals[v].kind == VAL_CONST && !(l->fx_names && !is_models_own(l, v)) ? VF_STORED : 0;
		}
	if (!signature && !(stores && from_pytorch(l)))
		judge_inputs(l, uses);
	if (!signature && from_pytorch(l)) {
		onnx_guess_decays(l);
		onnx_guess_folded(l);
	}
	add_counters(l);
}
