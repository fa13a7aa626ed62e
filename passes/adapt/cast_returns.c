/*
 * Conversions that did nothing in an fp32 file and that nothing in it explains, or that are missing from it altogether:
 * "embed.to(q_type)", "return output.type_as(x)".
 *
 * In 16 bits they matter. Where an operator that wants one dtype (a matrix product, a convolution, attention) would get two, the wider
 * operand is followed back. A conversion to fp32 of what is fp32 already was one back, and so is every one on the same line. Otherwise
 * a module call cast up and handed its result out: a module of that class converts what it returns, in front of a product with its weight if that ends it. Every call of the class does,
 * or a residual stream would stay wide unseen; where classes are not known, every call that runs the same operators. The older ONNX exporter writes .to(dtype)
 * and leaves type_as out, so that in its files only modules are meant that convert what they are given. A buffer at the end of the way was not made in fp32.
 */
#include "casts.h"
#include "source_line.h"

#include <stdio.h>
#include <string.h>

#define MOST_WORK 100000000u       /* nodes looked at; a real model needs a few rounds */

struct returns {
	struct casts *k;
	struct graph *g;
	uint8_t *dtype;            /* per value: run-time dtype, DT_NONE = no float */
	bool *converts;            /* per interned class name: its modules convert what they return */
	bool shows;                /* an ONNX file that has conversions which do nothing, at the ends of modules too, unless they are type_as */
	uint32_t *shape;           /* per node: its module's operators, interned; 0 = too many */
	uint32_t *last_use;        /* per value: a node outside its call that reads it, 0 = none */
	uint32_t end, nval;        /* nodes and values that were there before */
	uint32_t *behind, added, cap;      /* by node from end on: the one whose place it follows */
};

/* ---- run-time dtypes ------------------------------------------------------------------------------------------ */

static unsigned
class_of(const struct returns *r, uint32_t n)
{
	const struct graph *g = r->g;

	return g->nodes[n].scope && g->scopes[g->nodes[n].scope].cls ? g->scopes[g->nodes[n].scope].cls : n < r->end ? r->shape[n] : 0;
}

#define MOST_SHAPE 32u             /* nodes of a module that is known by its operators */

/* Where modules' classes are not known: two that run the same operators are of one class. */
static void
find_shapes(struct returns *r)
{
	struct graph *g = r->g;
	const struct calls *c = &r->k->calls;

	for (uint32_t n = 1; n < r->end; n++) {
		uint32_t at = c->at[n] + calls_depth(g, n), first = c->first[at], last = c->last[at];
		char text[MOST_SHAPE * 8];
		int len = 0;

		if (!g->nodes[n].scope || last - first >= MOST_SHAPE)
			continue;
		for (uint32_t m = first; n == first && m <= last; m++)
			len += snprintf(text + len, sizeof text - (size_t)len, " %u", (unsigned)g->nodes[m].op);
		r->shape[n] = n == first ? graph_name(g, (struct str){text, (uint32_t)len}) : r->shape[first];
	}
}

static unsigned
given_dtype(const struct returns *r, uint32_t n)
{
	const struct arg *d = node_arg(r->g, n, "dtype");

	if (d && d->kind == ARG_DTYPE)
		return d->dtype;
	return d && d->kind == ARG_DTYPE_OF ? r->dtype[d->u.val] : DT_NONE;
}

static bool
leaves_converted(const struct returns *r, uint32_t v)
{
	uint32_t n = r->g->vals[v].node;

	return r->g->vals[v].kind == VAL_NODE && r->k->up[n] && r->converts[class_of(r, n)];
}

/* As node n reads it. */
static unsigned
read_dtype(const struct returns *r, uint32_t v, uint32_t n)
{
	if (leaves_converted(r, v) && !casts_within_call(r->k, n, r->g->vals[v].node))
		return r->k->a->plan.param_dtype;
	return r->dtype[v];
}

static unsigned
result_dtype(const struct returns *r, uint32_t n)
{
	unsigned dt = given_dtype(r, n), scalar = DT_NONE;

	if (dt)
		return dt;
	for (struct operands it = operands_of(r->g, n); operand_next(&it);) {
		unsigned x = read_dtype(r, it.val, n), *to = r->g->vals[it.val].rank ? &dt : &scalar;

		if (dtype_is_float(x) && (*to == DT_NONE || x == DT_FP32))
			*to = x;
	}
	if (!dt && !scalar && r->g->nodes[n].nout)         /* made of nothing, or of whole numbers: PyTorch's default is fp32 */
		scalar = r->g->vals[node_outs(r->g, n)[0]].dtype;
	return dt ? dt : scalar;
}

static void
find_dtypes(struct returns *r)
{
	struct graph *g = r->g;

	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind != VAL_NODE && dtype_is_float(g->vals[v].dtype))
			r->dtype[v] = (uint8_t)analysis_dtype(r->k->a, v);
	for (uint32_t n = 1; n < g->nnode; n++)
		for (uint32_t i = 0; i < g->nodes[n].nout; i++) {
			uint32_t v = node_outs(g, n)[i];

			if (v && dtype_is_float(g->vals[v].dtype))
				r->dtype[v] = (uint8_t)result_dtype(r, n);
		}
}

/* ---- who converts ------------------------------------------------------------------------------------------------ */

bool
casts_wants_one_dtype(unsigned op)
{
	static const uint16_t ops[] = {OP_LINEAR, OP_MATMUL, OP_MM, OP_BMM, OP_ADDMM, OP_BADDBMM, OP_CONV, OP_CONV_TRANSPOSE, OP_CONVOLUTION, OP_SDPA, OP_EINSUM,
		OP_LAYER_NORM, OP_GROUP_NORM, OP_INDEX_ADD, OP_INDEX_COPY, OP_INDEX_PUT, OP_SCATTER, OP_SCATTER_ADD, OP_SCATTER_REDUCE, OP_MASKED_SCATTER};

	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
		if (ops[i] == op)
			return true;
	return false;
}

static bool
disagrees(const struct returns *r, uint32_t n)
{
	bool wide = false, low = false;

	for (struct operands it = operands_of(r->g, n); operand_next(&it);) {
		unsigned x = read_dtype(r, it.val, n);

		wide |= x == DT_FP32;
		low |= x == r->k->a->plan.param_dtype;
	}
	return wide && low;
}

/* A conversion to fp32 of what is fp32 when it runs. */
static bool
says_nothing(const struct returns *r, uint32_t n)
{
	const struct arg *x = node_args(r->g, n);

	return r->g->nodes[n].op == OP_TO && r->k->up[n] == n && !r->k->written[n] && x->kind == ARG_VAL && read_dtype(r, x->u.val, n) == DT_FP32;
}

static bool
same_line(const struct graph *g, uint32_t a, uint32_t b)
{
	const struct node *x = &g->nodes[a], *y = &g->nodes[b];

	if (a == b || !x->nframe || !y->nframe)
		return a == b;
	return g->frames[x->frame + x->nframe - 1].line == g->frames[y->frame + y->nframe - 1].line &&
	    g->frames[x->frame + x->nframe - 1].text == g->frames[y->frame + y->nframe - 1].text;
}

static bool
turn_back(struct returns *r, uint32_t n)
{
	for (uint32_t m = 1; m < r->g->nnode; m++)
		if (same_line(r->g, n, m) && says_nothing(r, m)) {
			casts_back(r->k, m, 0);
			r->k->up[m] = 0;
		}
	return true;
}

static bool
turn_class(struct returns *r, unsigned cls)
{
	if (!cls || r->converts[cls])
		return false;
	return r->converts[cls] = true;
}

/* Operators that neither compute in fp32 for the sake of it nor end what does. */
static bool
passes_on(unsigned op)
{
	return op == OP_ADD || op == OP_CAT || op == OP_DROPOUT || op == OP_VIEW || op == OP_RESHAPE || op == OP_TRANSPOSE || op == OP_PERMUTE || op == OP_UNSQUEEZE || op == OP_SQUEEZE || op == OP_SLICE ||
	    op == OP_SELECT || op == OP_EXPAND || op == OP_CONTIGUOUS || op == OP_CONSTANT_PAD || op == OP_PAD || op == OP_T;
}

/* Regions and positions that become part of a mask or bias are converted to the dtype of what that is for. */
static bool
from_integers(const struct graph *g, uint32_t n)
{
	const struct arg *x = node_args(g, n);

	return x->kind == ARG_VAL && !dtype_is_float(g->vals[x->u.val].dtype);
}

/* A conversion right in front of the operator, or of a sum in front of it, was to the dtype of the other operand. */
static bool
turn_one(struct returns *r, uint32_t n)
{
	casts_back(r->k, n, 0);
	r->k->up[n] = 0;
	return true;
}

/* A conversion back to what turns out to be wide as well was to the dtype of something else. */
static bool
restores_wide(const struct returns *r, uint32_t n)
{
	const struct arg *d = r->g->nodes[n].op == OP_TO ? node_arg(r->g, n, "dtype") : NULL;

	return d && d->kind == ARG_DTYPE_OF && r->dtype[d->u.val] == DT_FP32 && !(r->g->nodes[n].flags & (NF_ADDED | NF_DOWNCAST));
}

/*
 * A buffer that no conversion stands behind, in a file that has them all: with parameters in 16 bits the program would not run, so it was made in
 * their dtype, as torch.tril(torch.ones(n, n)) is where that is the default.
 */
static bool
follows_parameters(struct returns *r, uint32_t n)
{
	for (struct operands it = operands_of(r->g, n); operand_next(&it);) {
		struct val *x = &r->g->vals[it.val];

		if (x->kind != VAL_BUFFER || r->dtype[it.val] != DT_FP32 || x->flags & VF_DEFAULT_DTYPE || str_eq(r->g->format, S("onnx")))
			continue;
		if (r->g->decomposed)
			return false;
		x->flags |= VF_DEFAULT_DTYPE;
		return true;
	}
	return false;
}

/* What its module converted to fp32 first was given to it: norms do so. */
static bool
widens_given(const struct returns *r, uint32_t wide)
{
	uint32_t x = node_args(r->g, r->k->given[wide])->u.val;

	return r->g->vals[x].kind == VAL_NODE && !casts_within_call(r->k, r->g->vals[x].node, wide);
}

/* Back from a wide operand to who made it wide. */
static bool
blame(struct returns *r, uint32_t n)
{
	bool direct = true;

	for (unsigned steps = 0; steps < 64; steps++) {
		uint32_t wide = 0;

		for (struct operands it = operands_of(r->g, n); operand_next(&it);)
			if (read_dtype(r, it.val, n) == DT_FP32 && r->g->vals[it.val].kind == VAL_NODE)
				wide = r->g->vals[it.val].node;
		if (!wide)
			return follows_parameters(r, n);
		if (restores_wide(r, wide))
			return turn_one(r, wide);
		if (r->k->up[wide] && says_nothing(r, r->k->up[wide]))
			return turn_back(r, r->k->up[wide]);
		if (r->k->up[wide] && (!r->shows || widens_given(r, wide)) && !casts_within_call(r->k, n, wide))
			return turn_class(r, class_of(r, wide));
		if ((direct || from_integers(r->g, wide)) && r->g->nodes[wide].op == OP_TO && r->k->up[wide] == wide && !r->k->written[wide])
			return turn_one(r, wide);
		direct &= passes_on(r->g->nodes[wide].op);
		n = wide;
	}
	return false;
}

/* Conversions of fp32 to fp32, as older exporters write them. */
static bool
shows_conversions(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].op == OP_TO && node_args(g, n)->kind == ARG_VAL && g->vals[node_args(g, n)->u.val].dtype == DT_FP32 &&
		    g->vals[node_outs(g, n)[0]].dtype == DT_FP32 && !(g->nodes[n].flags & (NF_UPCAST | NF_DOWNCAST | NF_ADDED)))
			return true;
	return false;
}

/* One more line or class, or false if there is none. */
static bool
learn(struct returns *r)
{
	find_dtypes(r);
	for (uint32_t n = 1; n < r->g->nnode; n++)
		if (casts_wants_one_dtype(r->g->nodes[n].op) && disagrees(r, n) && blame(r, n))
			return true;
	return false;
}

/* ---- writing them --------------------------------------------------------------------------------------------------- */

/* Node n is of the function that node `like` is of, so many lines further on. */
static void
set_frames(struct graph *g, uint32_t n, uint32_t like, int further, struct str text)
{
	uint32_t keep = g->nodes[like].nframe;

	if (!keep)
		return;
	ROOM(g->c->a, g->frames, g->nframe, g->frame_cap, keep);
	memcpy(g->frames + g->nframe, g->frames + g->nodes[like].frame, keep * sizeof *g->frames);
	g->nodes[n].frame = g->nframe;
	g->nodes[n].nframe = (uint16_t)keep;
	g->nframe += keep;
	g->frames[g->nframe - 1].line += (uint32_t)further;
	g->frames[g->nframe - 1].text = graph_name(g, text);
}

/* v converted, where the node `like` stands. */
static uint32_t
converted(struct graph *g, uint32_t v, uint32_t like, const char *suffix)
{
	uint32_t n = node_beside(g, OP_TO, like, 1), y = val_new(g, VAL_NODE, str_fmt(g->c->a, "%.*s_%s", SFMT(graph_str(g, g->vals[v].name)), suffix));

	node_args(g, n)[0] = arg_val(v);
	node_outs(g, n)[0] = y;
	g->nodes[n].name = g->vals[y].name;
	g->nodes[n].flags |= NF_ADDED;
	g->vals[y].node = n;
	g->vals[y].dtype = g->vals[v].dtype;
	g->vals[y].rank = g->vals[v].rank;
	g->vals[y].dim = g->vals[v].dim;
	return y;
}

static uint32_t
narrowed(struct returns *r, uint32_t n, uint32_t v)
{
	uint32_t y = converted(r->g, v, n, "narrow");

	*node_arg(r->g, r->g->vals[y].node, "dtype") = arg_dtype(r->k->a->plan.param_dtype);
	return y;
}

static void
read_instead(struct graph *g, uint32_t n, uint32_t v, uint32_t with)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (it.val == v)
			*it.slot = with;
}

static uint32_t
add_conversion(struct returns *r, uint32_t v)
{
	uint32_t made = r->g->vals[v].node, up = r->k->up[made], y = converted(r->g, v, made, "back"), n = r->g->vals[y].node;

	set_frames(r->g, n, made, 1, S("return output.to(input.dtype)"));
	casts_back(r->k, n, up);
	return y;
}

static bool
is_read_outside(const struct returns *r, uint32_t v)
{
	return r->last_use[v] != 0;
}

static void
find_outside_uses(struct returns *r)
{
	for (uint32_t n = 1; n < r->end; n++)
		for (struct operands it = operands_of(r->g, n); operand_next(&it);)
			if (it.val < r->nval && leaves_converted(r, it.val) && !casts_within_call(r->k, n, r->g->vals[it.val].node))
				r->last_use[it.val] = n;
}

/* Outside of the call the converted value stands for the wide one. */
static void
replace_uses(struct returns *r, const uint32_t *back)
{
	for (uint32_t n = 1; n < r->end; n++)
		for (struct operands it = operands_of(r->g, n); operand_next(&it);)
			if (it.val < r->nval && back[it.val] && !casts_within_call(r->k, n, r->g->vals[it.val].node))
				*it.slot = back[it.val];
	for (uint32_t i = 0; i < r->g->noutput; i++)
		if (back[r->g->outputs[i]])
			r->g->outputs[i] = back[r->g->outputs[i]];
}

static void
place_behind(struct returns *r, uint32_t n)
{
	ROOM(r->g->c->a, r->behind, r->added, r->cap, 1);
	r->behind[r->added++] = n;
}

/*
 * "if self.weight.dtype in (float16, bfloat16): x = x.to(self.weight.dtype)", "return self.weight * x": what is returned is converted in front of the product.
 * Behind it there would be a line, or a node, that says so.
 */
static bool
convert_in_front(struct returns *r, uint32_t v)
{
	struct graph *g = r->g;
	uint32_t product = g->vals[v].node, x = 0, y, n;
	const struct node *made;
	struct str name;

	if (!casts_weighs(g, product))
		return false;
	for (struct operands it = operands_of(g, product); operand_next(&it);)
		x = g->vals[it.val].kind == VAL_NODE ? it.val : x;
	if (r->dtype[x] != DT_FP32 || !casts_same_call(r->k, g->vals[x].node, product))
		return false;
	y = narrowed(r, product, x);
	n = g->vals[y].node;
	made = &g->nodes[g->vals[x].node];
	name = made->nframe ? line_targets(graph_str(g, g->frames[made->frame + made->nframe - 1].text)) : S("");
	set_frames(g, n, product, -1, str_fmt(g->c->a, "%.*s = %.*s.to(self.weight.dtype)", SFMT(name), SFMT(name)));
	read_instead(g, product, x, y);
	place_behind(r, product - 1);
	return true;
}

static void
write_conversions(struct returns *r)
{
	struct graph *g = r->g;
	uint32_t *back = NEW(g->c->a, uint32_t, r->nval), before = r->added;

	find_outside_uses(r);
	for (uint32_t v = 1; v < r->nval; v++)
		if (is_read_outside(r, v) && r->dtype[v] == DT_FP32 && !convert_in_front(r, v)) {
			back[v] = add_conversion(r, v);
			place_behind(r, g->vals[v].node);
		}
	if (r->added == before)
		return;
	replace_uses(r, back);
	assume(r->k->a, "%u modules convert what they return to their input's dtype; an fp32 file cannot show it", (unsigned)(r->added - before));
}

/* ---- what is left ------------------------------------------------------------------------------------------------------ */

/* Of two activations either may be the one that was converted: in a product it is taken to be the wide one, as of probabilities and states. */
static bool
is_narrowed(const struct returns *r, uint32_t n)
{
	unsigned op = r->g->nodes[n].op;

	if (op == OP_MATMUL || op == OP_BMM || op == OP_MM)
		return true;
	for (struct operands it = operands_of(r->g, n); operand_next(&it);)
		if (r->g->vals[it.val].kind == VAL_PARAM && r->dtype[it.val] == r->k->a->plan.param_dtype)
			return true;
	return false;
}

/* Operands of two dtypes that nobody is to blame for do not run: what the operator reads was converted on its way. */
static void
narrow_rest(struct returns *r)
{
	struct graph *g = r->g;

	for (uint32_t n = 1; n < r->end; n++) {
		bool narrow = casts_wants_one_dtype(g->nodes[n].op) && is_narrowed(r, n) && disagrees(r, n);

		for (struct operands it = operands_of(g, n); narrow && operand_next(&it);)
			if (it.val < r->nval && g->vals[it.val].kind == VAL_NODE && read_dtype(r, it.val, n) == DT_FP32) {
				read_instead(g, n, it.val, narrowed(r, n, it.val));
				place_behind(r, n - 1);
				it = operands_of(g, n);        /* the new node may have moved them */
			}
		for (uint32_t i = 0; i < g->nodes[n].nout; i++) {
			uint32_t v = node_outs(g, n)[i];

			if (v && dtype_is_float(g->vals[v].dtype))
				r->dtype[v] = (uint8_t)(narrow ? r->k->a->plan.param_dtype : result_dtype(r, n));
		}
	}
	if (r->added)
		assume(r->k->a, "operators that take one dtype read fp32 values converted to their weights': the file does not say where (%u)", r->added);
}

/* ---- autocast ------------------------------------------------------------------------------------------------------------ */

/*
 * "x.masked_scatter(mask, y.to(x.dtype))": the operator raises where the dtypes differ, and under autocast embeddings are fp32 while features are not.
 * An exporter that leaves out conversions which do nothing has left this one out.
 */
static void
match_scattered(struct returns *r)
{
	struct graph *g = r->g;

	for (uint32_t n = 1; n < r->end; n++) {
		const struct arg *into = node_args(g, n), *what = g->nodes[n].op == OP_MASKED_SCATTER ? node_arg(g, n, "source") : NULL;
		uint32_t x = into->u.val, v, y;

		if (!what || into->kind != ARG_VAL || what->kind != ARG_VAL || !dtype_is_float(g->vals[x].dtype) || g->vals[what->u.val].kind != VAL_NODE)
			continue;
		v = what->u.val;
		if (g->nodes[g->vals[v].node].op == OP_TO || g->vals[v].dtype != g->vals[x].dtype)
			continue;
		y = converted(g, v, n, "as");
		*node_arg(g, g->vals[y].node, "dtype") = (struct arg){.kind = ARG_DTYPE_OF, .u.val = x};
		read_instead(g, n, v, y);
		place_behind(r, n - 1);
	}
}

void
casts_write_returns(struct casts *k)
{
	struct graph *g = k->g;
	struct returns r = {.k = k, .g = g, .end = g->nnode, .nval = g->nval};
	uint64_t work = 0;

	if (g->file_dtype == DT_FP32 && k->a->plan.param_dtype == DT_FP32 && k->a->plan.low_dtype != DT_NONE) {
		match_scattered(&r);
		if (r.added)
			graph_splice(g, r.end, r.behind);
	}
	if (g->file_dtype != DT_FP32 || k->a->plan.param_dtype == DT_FP32)
		return;
	r.dtype = NEW(g->c->a, uint8_t, g->nval);
	r.shape = NEW(g->c->a, uint32_t, g->nnode);
	find_shapes(&r);
	r.converts = NEW(g->c->a, bool, strtab_count(g->names) + 1);
	r.last_use = NEW(g->c->a, uint32_t, g->nval);
	r.shows = str_eq(g->format, S("onnx")) && shows_conversions(g);
	while (work < MOST_WORK && learn(&r))
		work += g->nnode;
	narrow_rest(&r);
	write_conversions(&r);
	if (r.added)
		graph_splice(g, r.end, r.behind);
}
