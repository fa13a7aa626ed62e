/*
 * upcast: conversions to fp32 that libraries write and an fp32 file of ONNX cannot show, because they change nothing there. What runs in 16 bits runs
 * with them, so they are put back where the structure, or the source line if the file has it, says that they stood:
 *
 *     x * rsqrt(mean(x^2) + eps)            x is converted, the result converted back before the weight; behind it if the weight is 1 + w, or if the line
 *                                           says so; a line that converts inside of the mean converts there alone, and so does a class
 *                                           called LayerNorm or, where no classes are known, the norm beside attention that nobody scales (T5)
 *     norm(x * silu(gate)) in one module    both are converted when the module begins
 *     (x - mean(x)) * rsqrt(..) * w         x and w are converted, the result converted back
 *     sines of positions, masks, biases: what no parameter and no input has a part in         converted where it meets what the model computes
 *     exp(w) of a parameter with elements   w is converted: the decays of state-space models, which stay in fp32, and so do their states (upcast_state.c)
 *     the loss of labels that are moved by one place        the logits are converted
 *
 * Softmax with dtype=float32 is put back where attention has been told from other uses (eager_attention.c).
 */
#include "upcast.h"

#include <string.h>

/* ---- readers ----------------------------------------------------------------------------------------------------------------------- */

static void
find_users(struct upcast *u)
{
	struct graph *g = u->g;
	uint32_t total = 0, *at;

	u->nval = g->nval;
	u->first = NEW(g->c->a, uint32_t, g->nval + 1);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			u->first[it.val]++;
	for (uint32_t v = 0; v <= g->nval; v++) {
		uint32_t count = u->first[v];

		u->first[v] = total;
		total += count;
	}
	u->user = NEW(g->c->a, uint32_t, total + 1);
	at = NEW(g->c->a, uint32_t, g->nval + 1);
	memcpy(at, u->first, (g->nval + 1) * sizeof *at);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			u->user[at[it.val]++] = n;
}

/* The one reader of a value that is not arithmetic of sizes; 0 = none or several. */
uint32_t
upcast_only_user(const struct upcast *u, uint32_t v)
{
	uint32_t found = 0;

	for (uint32_t i = u->first[v]; i < u->first[v + 1]; i++) {
		uint32_t n = u->user[i];

		if (u->g->nodes[n].op == OP_ONNX_SHAPE || n == found)
			continue;
		if (found)
			return 0;
		found = n;
	}
	return found;
}

/* A reader with that operator, whose other operand is y (0 = any). */
uint32_t
upcast_user_with(const struct upcast *u, uint32_t v, unsigned op, uint32_t y)
{
	for (uint32_t i = u->first[v]; i < u->first[v + 1]; i++) {
		uint32_t n = u->user[i], a = operand_of(u->g, n, 0), b = operand_of(u->g, n, 1);

		if (u->g->nodes[n].op == op && (!y || a == y || b == y))
			return n;
	}
	return 0;
}

/* ---- conversions ---------------------------------------------------------------------------------------------------------------------- */

/* x converted behind that node, as part of what `like` belongs to. */
static uint32_t
put_behind(struct upcast *u, unsigned op, uint32_t x, uint32_t behind, uint32_t like)
{
	struct graph *g = u->g;
	uint32_t v = node_applied(g, op, x, like, op == OP_TO ? "to" : "copy"), at = g->vals[v].node - u->nold;

	ROOM(g->c->a, u->behind, at, u->behind_cap, 1);
	u->behind[at] = behind;
	return v;
}

uint32_t
upcast_converted(struct upcast *u, uint32_t x, uint32_t behind, uint32_t like, uint16_t flag)
{
	uint32_t v = put_behind(u, OP_TO, x, behind, like), n = u->g->vals[v].node;

	*node_arg(u->g, n, "dtype") = arg_dtype(DT_FP32);
	u->g->nodes[n].flags |= flag;
	return v;
}

/* Its statement was one of its own, of which the file shows nothing: text stands for it, one line before or behind that of the node beside it. */
void
upcast_set_statement(struct upcast *u, uint32_t v, int line, struct str text)
{
	struct graph *g = u->g;
	struct node *x = &g->nodes[g->vals[v].node];
	uint32_t at = g->nframe;

	if (!x->nframe)
		return;
	ROOM(g->c->a, g->frames, g->nframe, g->frame_cap, x->nframe);
	for (unsigned i = 0; i < x->nframe; i++)
		g->frames[g->nframe++] = g->frames[x->frame + i];
	g->frames[g->nframe - 1].line += (uint32_t)line;
	g->frames[g->nframe - 1].text = graph_name(g, text);
	x->frame = at;
}

void
upcast_read_instead(struct graph *g, uint32_t n, uint32_t old, uint32_t v)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (it.val == old)
			*it.slot = v;
}

/* All readers of a node's result, old ones only, read its conversion, which stands behind another node. */
uint32_t
upcast_result(struct upcast *u, uint32_t n, uint32_t behind, uint32_t like, uint16_t flag)
{
	uint32_t x = node_outs(u->g, n)[0], v = upcast_converted(u, x, behind, like, flag);

	for (uint32_t i = u->first[x]; i < u->first[x + 1]; i++)
		upcast_read_instead(u->g, u->user[i], x, v);
	for (uint32_t i = 0; i < u->g->noutput; i++)
		if (u->g->outputs[i] == x)
			u->g->outputs[i] = v;
	return v;
}

/* ---- tables --------------------------------------------------------------------------------------------------------------------------------- */

static bool
is_table_leaf(const struct val *x)
{
	return x->kind == VAL_CONST || (x->kind == VAL_BUFFER && !(x->flags & VF_PERSISTENT));
}

/* Drawn at random, and what PyTorch converts inside of the operator that reads it. */
static bool
is_no_table(const struct graph *g, uint32_t n)
{
	uint32_t test = g->nodes[n].op == OP_ONNX_CAST ? maker_of(g, operand_of(g, n, 0)) : n;

	if (test != n && str_starts(graph_str(g, g->nodes[n].fx_target), S("prims.convert_element_type")))
		return true;
	if (test && test != n && g->nodes[test].op == OP_ONNX_LESS)
		test = maker_of(g, operand_of(g, test, 0));
	return test && (g->nodes[test].op == OP_ONNX_RANDOM_UNIFORM_LIKE || g->nodes[test].op == OP_ONNX_RANDOM_NORMAL_LIKE);
}

/* Computed of whole numbers, constants and tables alone: no parameter and no input of the model has a part in it. */
static void
find_tables(struct upcast *u)
{
	struct graph *g = u->g;

	u->table = NEW(g->c->a, bool, g->nval);
	for (uint32_t v = 1; v < g->nval; v++)
		u->table[v] = is_table_leaf(&g->vals[v]) && dtype_is_float(g->vals[v].dtype);
	for (uint32_t n = 1; n < u->nold; n++) {
		bool pure = !is_no_table(g, n);

		for (struct operands it = operands_of(g, n); operand_next(&it);)
			pure &= !dtype_is_float(g->vals[it.val].dtype) || u->table[it.val];
		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			u->table[node_outs(g, n)[k]] = pure && dtype_is_float(g->vals[node_outs(g, n)[k]].dtype);
	}
}

static bool
is_view(unsigned op)
{
	return op == OP_ONNX_UNSQUEEZE || op == OP_ONNX_SQUEEZE || op == OP_ONNX_EXPAND || op == OP_ONNX_RESHAPE || op == OP_ONNX_SLICE || op == OP_ONNX_TRANSPOSE;
}

/* What a table was before it was viewed, if nothing else reads it; 0 = that has been converted. */
static uint32_t
unviewed(const struct upcast *u, uint32_t v)
{
	uint32_t n = maker_of(u->g, v), x;

	while (n && n < u->nold && is_view(u->g->nodes[n].op)) {
		x = operand_of(u->g, n, 0);
		if (x >= u->nval)
			return 0;
		for (uint32_t i = u->first[x]; i < u->first[x + 1]; i++)
			if (!is_view(u->g->nodes[u->user[i]].op) && u->g->nodes[u->user[i]].op != OP_ONNX_SHAPE)
				return v;
		if (!maker_of(u->g, x))
			return v;
		v = x;
		n = maker_of(u->g, v);
	}
	return v;
}

static bool
meets_elements(unsigned op)
{
	return op == OP_ONNX_ADD || op == OP_ONNX_SUB || op == OP_ONNX_MUL || op == OP_ONNX_DIV || op == OP_ONNX_WHERE || op == OP_ONNX_MAX || op == OP_ONNX_MIN ||
	       op == OP_ONNX_CONCAT || op == OP_ONNX_MATMUL;
}

static bool
scales(const struct graph *g, uint32_t n)
{
	double number;

	if (g->nodes[n].op == OP_MUL)
		return node_arg(g, n, "other")->kind == ARG_FLOAT;
	return g->nodes[n].op == OP_ONNX_MUL && (scalar_of(g, operand_of(g, n, 0), &number) || scalar_of(g, operand_of(g, n, 1), &number));
}

/* Of sines and cosines of the same angles, maybe scaled, the one that the other is made with; 0 = none. Both are returned together. */
static uint32_t
other_of_pair(const struct upcast *u, uint32_t n)
{
	const struct graph *g = u->g;
	bool scaled = scales(g, n);
	uint32_t wave = scaled ? maker_of(g, operand_of(g, n, 0)) : n, other;

	if (!wave || (g->nodes[wave].op != OP_ONNX_COS && g->nodes[wave].op != OP_ONNX_SIN))
		return 0;
	other = upcast_user_with(u, operand_of(g, wave, 0), g->nodes[wave].op == OP_ONNX_COS ? OP_ONNX_SIN : OP_ONNX_COS, 0);
	return other && scaled ? upcast_only_user(u, node_outs(g, other)[0]) : other;
}

/* In front of the first call of which not all of the value's readers are a part; *scope = around it. */
static uint32_t
place_for_all(struct upcast *u, uint32_t v, uint32_t n, uint32_t *scope)
{
	struct graph *g = u->g;
	unsigned d = calls_depth(g, n);

	if (!u->calls.at)
		u->calls = calls_find(g, g->c->a);
	for (uint32_t i = u->first[v]; i < u->first[v + 1]; i++)
		while (d && (calls_depth(g, u->user[i]) < d || !calls_same(&u->calls, n, u->user[i], d)))
			d--;
	*scope = scope_at(g, g->nodes[n].scope, d);
	return calls_depth(g, n) > d ? u->calls.first[u->calls.at[n] + d + 1] : n;
}

/* The program made and converted it in one place, and all readers that compute share the result. */
static void
convert_stored(struct upcast *u, uint32_t n, uint32_t v)
{
	uint32_t scope, at = place_for_all(u, v, n, &scope), low = upcast_converted(u, v, at - 1, n, NF_DOWNCAST);

	u->g->nodes[u->g->vals[low].node].scope = scope;
	for (uint32_t i = u->first[v]; i < u->first[v + 1]; i++)
		if (u->user[i] >= n && meets_elements(u->g->nodes[u->user[i]].op))
			upcast_read_instead(u->g, u->user[i], v, low);
}

static void
convert_table(struct upcast *u, uint32_t n, uint32_t v)
{
	uint32_t x = unviewed(u, v), made = maker_of(u->g, x), twin;

	if (!x)
		return;
	u->tables++;
	if (!made && u->g->vals[x].kind != VAL_NODE) {
		convert_stored(u, n, v);
		return;
	}
	if (!made) {               /* a later result of its node */
		upcast_read_instead(u->g, n, v, upcast_converted(u, v, n - 1, n, NF_DOWNCAST));
		return;
	}
	twin = other_of_pair(u, made);
	upcast_set_statement(u, upcast_result(u, made, twin > made ? twin : made, made, NF_DOWNCAST), 2, S("return both"));
}

/* A table that meets what the model computes: that is in 16 bits and stays so. */
static void
convert_tables(struct upcast *u, uint32_t n)
{
	struct graph *g = u->g;
	bool computed = false;
	double number;

	if (!meets_elements(g->nodes[n].op) || !dtype_is_float(g->vals[node_outs(g, n)[0]].dtype))
		return;
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		computed |= dtype_is_float(g->vals[it.val].dtype) && (it.val >= u->nval || !u->table[it.val]) && !(maker_of(g, it.val) && g->nodes[maker_of(g, it.val)].flags & NF_DOWNCAST);
	for (struct operands it = operands_of(g, n); computed && operand_next(&it);)
		if (it.val < u->nval && u->table[it.val] && !scalar_of(g, it.val, &number) && g->vals[it.val].rank && g->vals[it.val].rank != RANK_UNKNOWN && g->vals[it.val].dtype == DT_FP32)
			convert_table(u, n, it.val);
}

/* ---- decays ------------------------------------------------------------------------------------------------------------------------------------ */

static void
convert_decay(struct upcast *u, uint32_t n)
{
	struct graph *g = u->g;
	uint32_t w = operand_of(g, n, 0);
	const struct val *x = &g->vals[w];
	bool many = false;

	for (unsigned i = 0; x->rank != RANK_UNKNOWN && i < x->rank; i++)
		many |= val_dims(g, w)[i].expr || val_dims(g, w)[i].n > 1;
	if (x->kind != VAL_PARAM || x->dtype != DT_FP32 || !many)
		return;
	upcast_read_instead(g, n, w, upcast_converted(u, w, n - 1, n, NF_UPCAST));
	u->decays++;
}

/* ---- losses ------------------------------------------------------------------------------------------------------------------------------------ */

/* Through views. */
static uint32_t
viewed(const struct graph *g, uint32_t v, unsigned op)
{
	uint32_t n = maker_of(g, v);

	for (unsigned depth = 0; n && depth < 8; depth++, n = maker_of(g, v)) {
		unsigned x = g->nodes[n].op;

		if (x == op)
			return n;
		if (x != OP_ONNX_RESHAPE && x != OP_ONNX_SLICE && x != OP_ONNX_IDENTITY && x != OP_ONNX_FLATTEN && x != OP_ONNX_CAST && x != OP_CONTIGUOUS)
			return 0;
		v = operand_of(g, n, 0);
	}
	return 0;
}

/* Rows of tokens have labels, not whole sequences, and not pixels. */
static bool
labels_tokens(const struct graph *g, uint32_t v)
{
	for (unsigned depth = 0; depth < 8; depth++) {
		uint32_t n = maker_of(g, v);

		if (g->vals[v].rank == 2)
			return true;
		if (!n || (g->nodes[n].op != OP_ONNX_RESHAPE && g->nodes[n].op != OP_ONNX_FLATTEN && g->nodes[n].op != OP_ONNX_IDENTITY))
			return false;
		v = operand_of(g, n, 0);
	}
	return false;
}

/*
 * transformers' losses over tokens do so whether they move labels or not: "loss = self.loss_function(logits, labels, self.vocab_size)" (loss_utils.py).
 * Where the call goes on on further lines, which no stack trace has, what is labelled tells.
 */
static bool
is_over_vocabulary(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];

	for (unsigned d = 0; d < x->nframe; d++) {
		struct str line = graph_str(g, g->frames[x->frame + d].text);

		if (memmem(line.p, line.n, "self.loss_function(", 19) && (memmem(line.p, line.n, "vocab_size", 10) || (str_ends(line, S("(")) && labels_tokens(g, operand_of(g, n, 1)))))
			return true;
	}
	return false;
}

/* Does view run on the line of the loss, as far as lines are known? "shifted = logits[:, :-1]" stands before it, and is not converted. */
static bool
on_line_of(const struct graph *g, uint32_t view, uint32_t loss)
{
	const struct node *x = &g->nodes[view], *y = &g->nodes[loss];

	return !x->nframe || !y->nframe || g->frames[x->frame + x->nframe - 1].text == g->frames[y->frame + y->nframe - 1].text;
}

/* "logits[:, :-1].contiguous()" before the loss: the copy is not in the file, but the record of what read it names it. */
static uint32_t
copied(struct upcast *u, uint32_t reader, uint32_t view, uint32_t logits)
{
	if (!view || u->g->nodes[view].op != OP_ONNX_SLICE || !str_starts(graph_str(u->g, u->g->nodes[reader].fx_args), S("args = (%clone")))
		return logits;
	return put_behind(u, OP_CONTIGUOUS, logits, view, view);
}

static void
convert_logits(struct upcast *u, uint32_t n)
{
	struct graph *g = u->g;
	uint32_t logits = operand_of(g, n, 0), reader = n, view = maker_of(g, logits), moved = viewed(g, operand_of(g, n, 1), OP_ONNX_PAD), behind;

	if (g->vals[logits].dtype != DT_FP32)
		return;
	if (!moved && !is_over_vocabulary(g, n)) {
		u->open_losses += !g->nodes[n].nframe && labels_tokens(g, operand_of(g, n, 1));
		return;
	}
	while (view && on_line_of(g, view, n) && (g->nodes[view].op == OP_ONNX_RESHAPE || g->nodes[view].op == OP_ONNX_SLICE || g->nodes[view].op == OP_CONTIGUOUS)) {
		reader = view;
		logits = operand_of(g, view, 0);
		view = maker_of(g, logits);
	}
	behind = moved > view && moved < reader ? moved - 1 : reader - 1;
	upcast_read_instead(g, reader, logits, upcast_converted(u, copied(u, reader, view, logits), behind, reader, NF_UPCAST));
	u->losses++;
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------------------------------- */

static void
say(const struct upcast *u)
{
	struct analysis *a = u->s.a;

	if (u->norms)
		assume(a, "norms by the root of the mean square run in fp32, as libraries write them (%u)", u->norms);
	if (u->tables)
		assume(a, "masks, biases, sines and cosines of positions are converted to the parameters' dtype where they meet what the model computes (%u)", u->tables);
	if (u->decays)
		assume(a, "exponentials of parameters run in fp32, as libraries write decays (%u)", u->decays);
	if (u->states)
		assume(a, "states that decay run in fp32 with what goes into them, as libraries write them (%u conversions)", u->states);
	if (u->losses)
		assume(a, "logits are converted to fp32 in front of a loss on labels that are moved by one place, and in front of a library's loss over a vocabulary (%u)", u->losses);
	if (u->open_losses)
		assume(a, "a loss over tokens computes in its logits' dtype: whether a library converts them to fp32 first, this file without stack traces cannot show (%u)", u->open_losses);
}

bool
pass_upcast(struct analysis *a)
{
	struct graph *g = a->g;
	struct upcast u = {.s = {.a = a, .g = g, .bound = true}, .g = g, .nold = g->nnode};

	if (!str_eq(g->format, S("onnx")) || shows_casts(g) || g->file_dtype != DT_FP32 || a->r->v[RK_PRECISION].i == PREC_FILE || a->r->v[RK_PRECISION].i == PREC_FP32)
		return true;
	u.root[0] = motif_parse(a->c->a, "Reciprocal(Sqrt(Add(ReduceMean(Pow(x, 2)), $e)))");
	u.root[1] = motif_parse(a->c->a, "Div(1, Sqrt(Add(ReduceMean(Pow(x, 2)), $e)))");
	find_users(&u);
	find_tables(&u);
	upcast_find_states(&u);
	for (uint32_t n = 1; n < u.nold; n++)
		u.unscaled |= g->nodes[n].op == OP_ONNX_SOFTMAX && upcast_is_unscaled(g, n);
	for (uint32_t n = 1; n < u.nold; n++)
		convert_tables(&u, n);
	for (uint32_t n = 1; n < u.nold; n++)
		switch (g->nodes[n].op) {
		case OP_ONNX_RECIPROCAL:
		case OP_ONNX_DIV:
			upcast_norm(&u, n);
			break;
		case OP_ONNX_EXP:
		case OP_EXP:
			convert_decay(&u, n);
			break;
		case OP_ONNX_CROSS_ENTROPY:
			convert_logits(&u, n);
			break;
		default:
			break;
		}
	if (u.decays)
		upcast_states(&u);
	say(&u);
	graph_splice(g, u.nold, u.behind);
	return true;
}
