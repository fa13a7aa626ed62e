/*
 * casts: what a dtype conversion in the file means when the model runs in another precision.
 *
 *   .to(device) that the exporter recorded with a dtype, and a buffer's .to(device, dtype)     nothing
 *   to fp32, in a 16-bit file                                                                  "up": written in the model, stays
 *   to the file's own dtype                                                                    "back": what was cast up before, else the parameters' dtype
 *   softmax and reductions with dtype=fp32                                                     "up" as well
 *   zeros, ones, random numbers in the file's dtype                                            the parameters' dtype;
 *       in an fp32 file, on a line that says .dtype, the dtype of the tensor that they meet first
 *   to fp32, in an fp32 file, on a source line that says float32 and no .dtype, or the reverse "up", or "back"
 *       "m.to(h.dtype)", where a line of the same function binds h, or reads it as an argument   h's dtype (cast_names.c)
 *   to fp32, in an fp32 file, otherwise: "back" if its operand comes, inside the same module call, from an earlier "up"
 *       of that call, or is a floating-point input; from fp64, in which tables are made for their numbers' sake, the parameters' dtype; otherwise "up"
 *
 * A no-op conversion returns its operand, and the exporter names every later use after it, even outside the module: h.to(float32)
 * in a norm renames the residual stream. A use outside the call of such a conversion means the operand, and so does type_as(h); where no calls are known,
 * what is squared and averaged next is converted up, and a sum means the operand. But what the call itself made, converted and never read again is its
 * result: "return out.to(x.dtype)", which is "back".
 */
#include "casts.h"
#include "source_line.h"

#include <string.h>

static unsigned
innermost(const struct casts *k, uint32_t n)
{
	return k->calls.at[n] + calls_depth(k->g, n);
}

bool
casts_same_call(const struct casts *k, uint32_t a, uint32_t b)
{
	unsigned x = innermost(k, a), y = innermost(k, b);

	return k->calls.first[x] == k->calls.first[y] && k->calls.last[x] == k->calls.last[y];
}

bool
casts_within_call(const struct casts *k, uint32_t a, uint32_t b)
{
	unsigned x = innermost(k, a), y = innermost(k, b);

	return k->calls.first[x] >= k->calls.first[y] && k->calls.last[x] <= k->calls.last[y];
}

static bool
is_of_param(const struct casts *k, uint32_t up)
{
	return k->g->vals[node_args(k->g, up)->u.val].kind == VAL_PARAM;
}

/* The last conversion up that an operand derives from, and the first, which is of what a module was given rather than of what gates or scales it. */
static uint32_t
derived_from(const struct casts *k, uint32_t n, uint32_t *given)
{
	uint32_t src = 0;

	*given = 0;
	for (struct operands it = operands_of(k->g, n); operand_next(&it);) {
		uint32_t p = k->g->vals[it.val].kind == VAL_NODE ? k->g->vals[it.val].node : 0;

		if (!p || !k->up[p] || !casts_same_call(k, p, n) || dtype_info(k->g->vals[it.val].dtype)->cat == CAT_INT)
			continue;
		src = k->up[p];
		if (!*given || is_of_param(k, *given))
			*given = k->given[p];
	}
	return src;
}

static void
make_identity(struct graph *g, uint32_t n)
{
	g->nodes[n].op = OP_IDENTITY;
	g->nodes[n].narg = 1;
}

void
casts_back(struct casts *k, uint32_t n, uint32_t up)
{
	struct arg *dtype = node_arg(k->g, n, "dtype");
	uint32_t before = up ? node_args(k->g, up)->u.val : 0;

	while (before && k->g->vals[before].kind == VAL_NODE && k->up[k->g->vals[before].node] == k->g->vals[before].node)
		before = node_args(k->g, k->g->vals[before].node)->u.val;
	if (before && dtype_is_float(k->g->vals[before].dtype))
		*dtype = (struct arg){.kind = ARG_DTYPE_OF, .u.val = before};
	else
		*dtype = arg_dtype(k->a->plan.param_dtype);
}

/* What a call fills with what it cast up is no less made of it. */
static void
derive_written(struct casts *k, uint32_t n)
{
	uint32_t into = k->up[n] ? casts_written_into(k, n) : 0;

	if (into && !k->up[into]) {
		k->up[into] = k->up[n];
		k->given[into] = k->given[n];
	}
}

static bool
is_conversion(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];
	const struct arg *dtype = x->op == OP_TO || x->op == OP_TO_COPY ? node_arg(g, n, "dtype") : NULL;

	return dtype && dtype->kind == ARG_DTYPE && node_args(g, n)->kind == ARG_VAL;
}

/* softmax(scores, dtype=float32) and the like */
static bool
computes_in_fp32(const struct graph *g, uint32_t n)
{
	const struct arg *x = node_args(g, n), *dtype = node_arg(g, n, "dtype");

	return dtype && dtype->kind == ARG_DTYPE && dtype->dtype == DT_FP32 && x->kind == ARG_VAL && dtype_is_float(g->vals[x->u.val].dtype);
}

/* ---- what the source line says ------------------------------------------------------------------------------- */

enum said { SAID_NOTHING, SAID_UP, SAID_BACK };

static const struct {
	const char *text;
	enum said said;
} spellings[] = {
	{"float32", SAID_UP}, {".float()", SAID_UP}, {".dtype", SAID_BACK}, {"_dtype)", SAID_BACK}, {"_dtype,", SAID_BACK}, {"type_as(", SAID_BACK},
	{"(dtype)", SAID_BACK}, {"(dtype,", SAID_BACK}, {"=dtype)", SAID_BACK}, {"=dtype,", SAID_BACK},
};

/* The i-th conversion that a line spells out; *total = how many there are. */
static enum said
spelled(struct str line, unsigned i, unsigned *total)
{
	enum said found = SAID_NOTHING;

	*total = 0;
	for (; line.n; line = str_sub(line, 1, line.n))
		for (size_t k = 0; k < sizeof spellings / sizeof spellings[0]; k++)
			if (str_starts(line, str_of(spellings[k].text)) && (*total)++ == i)
				found = spellings[k].said;
	return found;
}

/* Does node a run on b's line, or in what is called there? */
static bool
runs_on_line(const struct graph *g, uint32_t a, uint32_t b)
{
	const struct node *x = &g->nodes[a], *y = &g->nodes[b];
	uint32_t d = y->nframe - 1u;

	return y->nframe && x->nframe >= y->nframe && g->frames[x->frame + d].line == g->frames[y->frame + d].line && g->frames[x->frame + d].text == g->frames[y->frame + d].text;
}

static bool
same_line(const struct graph *g, uint32_t a, uint32_t b)
{
	return g->nodes[a].nframe == g->nodes[b].nframe && g->nodes[a].scope == g->nodes[b].scope && runs_on_line(g, a, b);
}

/* x.float(), x.to(torch.float32); x.to(y.dtype), x.to(input_dtype), x.type_as(y). A line with several is told apart by their order. */
static enum said
source_says(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];
	struct str line = x->nframe ? graph_str(g, g->frames[x->frame + x->nframe - 1].text) : S("");
	unsigned before = 0, behind = 0, total;
	enum said first = spelled(line, 0, &total), last = spelled(line, total - 1, &total);

	if (total < 2 || first == last)
		return first;
	for (uint32_t m = n; m-- > 1 && runs_on_line(g, m, n);)
		before += same_line(g, m, n) && (is_conversion(g, m) || computes_in_fp32(g, m));
	for (uint32_t m = n + 1; m < g->nnode && runs_on_line(g, m, n); m++)
		behind += same_line(g, m, n) && (is_conversion(g, m) || computes_in_fp32(g, m));
	return before + behind + 1 == total ? spelled(line, before, &total) : SAID_NOTHING;
}

/*
 * A table of fp32: positions that a program counts in fp32, or what an exporter computed of them, and what is made of one with numbers and buffers
 * alone. To convert it to fp32 would do nothing in any file.
 */
static enum table
is_table(const struct casts *k, uint32_t v)
{
	const struct val *x = &k->g->vals[v];

	if (x->kind == VAL_NODE)
		return (enum table)k->table[x->node];
	if (x->kind == VAL_CONST)
		return dtype_is_float(x->dtype) && x->rank && !x->full ? TABLE : TABLE_BESIDE;
	return x->kind == VAL_BUFFER ? TABLE_BESIDE : NO_TABLE;
}

static enum table
makes_table(const struct casts *k, uint32_t n)
{
	const struct arg *dtype = node_arg(k->g, n, "dtype");
	unsigned op = k->g->nodes[n].op;
	enum table found = op == OP_EMPTY || op == OP_RAND ? TABLE_BESIDE : NO_TABLE;

	if ((op == OP_ARANGE || op == OP_LINSPACE) && (dtype->kind == ARG_NONE || (dtype->kind == ARG_DTYPE && dtype->dtype == DT_FP32)))
		return k->g->vals[node_outs(k->g, n)[0]].dtype == DT_FP32 ? TABLE : NO_TABLE;
	for (struct operands it = operands_of(k->g, n); operand_next(&it);) {
		enum table of = is_table(k, it.val);

		if (!dtype_is_float(k->g->vals[it.val].dtype))
			continue;
		if (of == NO_TABLE)
			return NO_TABLE;
		found = of > found ? of : found;
	}
	return found;
}

#define MOST_VIEWS 8u

/* Does v convert a parameter, viewed maybe? */
static bool
converts_param(const struct graph *g, uint32_t v)
{
	if (g->vals[v].kind != VAL_NODE || !is_conversion(g, g->vals[v].node))
		return false;
	for (unsigned depth = 0; g->vals[v].kind == VAL_NODE && depth < MOST_VIEWS; depth++) {
		const struct node *x = &g->nodes[g->vals[v].node];
		const struct arg *of = node_args(g, g->vals[v].node);

		if (depth && x->op != OP_UNSQUEEZE && x->op != OP_EXPAND && x->op != OP_VIEW && x->op != OP_RESHAPE && x->op != OP_REPEAT)
			return false;
		if (of->kind != ARG_VAL)
			return false;
		v = of->u.val;
	}
	return g->vals[v].kind == VAL_PARAM;
}

/* An operand of m with dims, other than v, that is a float. */
static uint32_t
other_float(const struct graph *g, uint32_t m, uint32_t v)
{
	for (struct operands it = operands_of(g, m); operand_next(&it);)
		if (it.val != v && dtype_is_float(g->vals[it.val].dtype) && g->vals[it.val].rank)
			return it.val;
	return 0;
}

/* "cat((x, self.newline[:, None].expand(n, 1).to(x.device, x.dtype)))" */
static void
find_joined(const struct graph *g, uint32_t n, uint32_t *wanted)
{
	for (struct operands it = operands_of(g, n); operand_next(&it);)
		if (converts_param(g, it.val))
			wanted[it.val] = other_float(g, n, it.val);
}

/* Operators whose two arguments have one dtype, under autocast as well: "self.sum.index_add_(0, i, m.to(h.dtype))", "grouped_mm(x.to(w.dtype), w)" */
static const struct {
	unsigned op;
	const char *what, *like;
} of_one_dtype[] = {
	{OP_INDEX_ADD, "source", "self"}, {OP_INDEX_COPY, "source", "self"}, {OP_SCATTER, "src", "self"}, {OP_SCATTER_REDUCE, "src", "self"}, {OP_GROUPED_MM, "self", "mat2"},
};

/* By value: what operators that take one dtype only use it with. */
static uint32_t *
find_wanted(const struct graph *g)
{
	uint32_t *wanted = NEW(g->c->a, uint32_t, g->nval);

	for (uint32_t n = 1; n < g->nnode; n++) {
		if (g->nodes[n].op == OP_CAT)
			find_joined(g, n, wanted);
		for (size_t i = 0; i < sizeof of_one_dtype / sizeof of_one_dtype[0]; i++) {
			bool it = g->nodes[n].op == of_one_dtype[i].op;
			const struct arg *what = it ? node_arg(g, n, of_one_dtype[i].what) : NULL, *like = it ? node_arg(g, n, of_one_dtype[i].like) : NULL;

			if (what && what->kind == ARG_VAL && like && like->kind == ARG_VAL)
				wanted[what->u.val] = like->u.val;
		}
	}
	return wanted;
}

/* Is it there already when the conversion runs? */
static uint32_t
wanted_of(const struct casts *k, uint32_t n)
{
	uint32_t v = k->wanted[node_outs(k->g, n)[0]];

	return v && dtype_is_float(k->g->vals[v].dtype) && (k->g->vals[v].kind != VAL_NODE || k->g->vals[v].node < n) ? v : 0;
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

/* Conversions that something inside of their call reads. */
static bool *
find_read_inside(const struct casts *k)
{
	const struct graph *g = k->g;
	bool *inside = NEW(g->c->a, bool, g->nval);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (g->vals[it.val].kind == VAL_NODE && is_conversion(g, g->vals[it.val].node) && casts_within_call(k, n, g->vals[it.val].node))
				inside[it.val] = true;
	return inside;
}

/* "return out.to(x.dtype)": what a call made, and converts for others alone. */
static bool
is_returned(const struct casts *k, uint32_t n, uint32_t x, uint32_t y)
{
	return calls_depth(k->g, n) && !k->read_inside[y] && k->g->vals[x].kind == VAL_NODE && casts_within_call(k, k->g->vals[x].node, n);
}

static void
convert(struct casts *k, uint32_t n, uint32_t src)
{
	struct graph *g = k->g;
	const struct arg *dtype = node_arg(g, n, "dtype"), *device = node_arg(g, n, "device"), *layout = node_arg(g, n, "layout");
	uint32_t x = node_args(g, n)->u.val, y = node_outs(g, n)[0];
	enum said said = g->file_dtype == DT_FP32 && !(g->nodes[n].flags & (NF_UPCAST | NF_DOWNCAST)) ? source_says(g, n) : SAID_NOTHING;
	bool low = g->file_dtype != DT_FP32, same = g->vals[x].dtype == g->vals[y].dtype, up = false;
	bool on_device = device && device->kind != ARG_NONE && !(layout && layout->kind != ARG_NONE);

	if (layout && layout->kind != ARG_NONE && same)
		make_identity(g, n);
	else if (!dtype_is_float(dtype->dtype) || ((dtype->dtype == DT_FP16 || dtype->dtype == DT_BF16) && dtype->dtype != g->file_dtype))
		;                      /* to a whole number, or to 16 bits in a file of another dtype: as written */
	else if (on_device && (g->vals[x].kind == VAL_BUFFER || g->vals[x].kind == VAL_CONST))
		make_identity(g, n);
	else if (g->nodes[n].flags & NF_DOWNCAST)
		casts_back(k, n, g->nodes[src].flags & NF_UPCAST ? src : 0);
	else if ((said == SAID_UP && !on_device) || g->nodes[n].flags & NF_UPCAST)
		up = k->written[n] = true;
	else if (!low && said != SAID_UP && wanted_of(k, n))
		*node_arg(g, n, "dtype") = (struct arg){.kind = ARG_DTYPE_OF, .u.val = wanted_of(k, n)};
	else if (said == SAID_BACK && casts_named(k, n))
		*node_arg(g, n, "dtype") = (struct arg){.kind = ARG_DTYPE_OF, .u.val = casts_named(k, n)};
	else if (said == SAID_BACK)
		casts_back(k, n, src);
	else if (!low && ((!on_device && is_table(k, x) == TABLE) || (g->vals[x].dtype == DT_FP64 && dtype->dtype == DT_FP32)))
		casts_back(k, n, 0);
	else if (!low && same && (casts_for_loss(k, n) || casts_begins_norm(k, n)))
		up = true;
	else if (!low && same && is_returned(k, n, x, y))
		casts_back(k, n, src);
	else if (!low && same && casts_meets_low(k, n))
		casts_back(k, n, 0);
	else if ((low && dtype->dtype == g->file_dtype) || on_device || (g->vals[x].kind == VAL_INPUT && dtype_is_float(g->vals[x].dtype)) || (!low && src))
		casts_back(k, n, src);
	else
		up = true;
	if (up)
		k->up[n] = n;
	if (up && same)
		k->renamed[y] = x;
}

#define MEETS_WITHIN 32u           /* nodes */

static bool
reads(const struct graph *g, uint32_t m, uint32_t v)
{
	for (struct operands it = operands_of(g, m); operand_next(&it);)
		if (it.val == v)
			return true;
	return false;
}

/* "torch.rand(shape, dtype=x.dtype)": x is what the new tensor meets first, or what that was made from before node n ran; 0 = not found. */
static uint32_t
meant_for(const struct graph *g, uint32_t n)
{
	uint32_t v = node_outs(g, n)[0], with = 0;

	for (uint32_t m = n + 1; !with && m < g->nnode && m - n < MEETS_WITHIN; m++)
		if (reads(g, m, v)) {
			with = other_float(g, m, v);
			v = g->nodes[m].nout ? node_outs(g, m)[0] : v;
		}
	while (with && g->vals[with].kind == VAL_NODE && g->vals[with].node > n)
		with = other_float(g, g->vals[with].node, v);
	return with;
}

/* "bias = torch.zeros(", with all that says its dtype on further lines, that an attention reads: its scores' */
static bool
is_attention_bias(const struct casts *k, uint32_t n)
{
	const struct graph *g = k->g;
	uint32_t v = node_outs(g, n)[0];

	for (unsigned depth = 0; depth < MOST_VIEWS && k->first[v] < k->first[v + 1]; depth++) {
		uint32_t m = k->reader[k->first[v]];
		const struct arg *mask = g->nodes[m].op == OP_SDPA ? node_arg(g, m, "attn_mask") : NULL;

		if (mask)
			return mask->kind == ARG_VAL && mask->u.val == v;
		if (g->nodes[m].op != OP_IDENTITY && g->nodes[m].op != OP_CONTIGUOUS && g->nodes[m].op != OP_ALIAS && g->nodes[m].op != OP_EXPAND)
			return false;
		v = node_outs(g, m)[0];
	}
	return false;
}

/* zeros, ones, random numbers with a dtype: that of what they are for, unless the source says fp32. Positions stay as they are. */
static void
convert_new(struct casts *k, uint32_t n)
{
	unsigned op = k->g->nodes[n].op;
	struct arg *dtype = node_arg(k->g, n, "dtype");
	bool table = op == OP_LINSPACE || op == OP_ARANGE || op == OP_EYE;
	uint32_t named;
	enum said said;

	if (!table && op != OP_ZEROS && op != OP_ONES && op != OP_FULL && op != OP_EMPTY && op != OP_SCALAR_TENSOR && op != OP_RAND && op != OP_ZEROS_LIKE && op != OP_FULL_LIKE)
		return;
	if (dtype->kind != ARG_DTYPE || dtype->dtype != k->g->file_dtype)
		return;
	said = source_says(k->g, n);
	if (table && said != SAID_BACK)
		return;
	if (op == OP_RAND && str_eq(k->g->format, S("onnx")) && !k->g->nodes[n].nframe)
		said = SAID_BACK;          /* nothing says otherwise: random numbers are drawn for the tensor that they meet */
	named = said == SAID_BACK && k->g->file_dtype == DT_FP32 ? casts_named(k, n) : 0;
	if ((said == SAID_BACK || (said == SAID_NOTHING && (op == OP_ZEROS || op == OP_FULL) && is_attention_bias(k, n))) && k->g->file_dtype == DT_FP32 && !named)
		named = meant_for(k->g, n);
	if (named)
		*dtype = (struct arg){.kind = ARG_DTYPE_OF, .u.val = named};
	else if (said != SAID_UP)
		*dtype = arg_dtype(k->a->plan.param_dtype);
}

/* where(mask, 0, -inf) of numbers alone: a mask is made in the dtype of the scores that it is for, which an exporter's constants do not say. */
static void
convert_mask(struct casts *k, uint32_t n)
{
	struct graph *g = k->g;
	const struct arg *x = node_args(g, n);

	if (g->nodes[n].op != OP_MASKED_FILL || x->kind != ARG_VAL || g->file_dtype != DT_FP32)
		return;
	if (g->vals[x->u.val].kind == VAL_CONST && g->vals[x->u.val].rank == 0 && g->vals[x->u.val].dtype == DT_FP32)
		g->vals[x->u.val].dtype = (uint8_t)k->a->plan.param_dtype;
}

/* Operators of which tables of angles are made, in fp32, and conversions, which say what dtype is meant. */
static bool
wants_fp32(unsigned op)
{
	return op == OP_COS || op == OP_SIN || op == OP_EXP || op == OP_LOG || op == OP_POW || op == OP_TO || op == OP_MATMUL || op == OP_EMBEDDING || op == OP_INDEX;
}

/*
 * What an ONNX exporter computed because it could, zeros for a state, ones for a count, a parameter repeated, the program makes in the dtype of what it meets;
 * rows and columns of a parameter have the parameters'.
 */
static void
convert_constants(struct casts *k)
{
	struct graph *g = k->g;
	bool *wide = NEW(g->c->a, bool, g->nval);
	unsigned count = 0;

	if (k->a->plan.param_dtype == DT_FP32 || g->file_dtype != DT_FP32 || !str_eq(g->format, S("onnx")))
		return;
	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			wide[it.val] |= wants_fp32(g->nodes[n].op);
	for (uint32_t v = 1; v < g->nval; v++) {
		if (g->vals[v].kind != VAL_CONST || !g->vals[v].rank || g->vals[v].dtype != DT_FP32 || (wide[v] && !g->vals[v].full))
			continue;
		g->vals[v].dtype = (uint8_t)k->a->plan.param_dtype;
		count++;
	}
	if (count)
		assume(k->a, "constants that the exporter computed are in the parameters' dtype, but for those of which sines and cosines are made (%u)", count);
}

/* Does node n mean what a conversion was given? */
static bool
means_operand(const struct casts *k, uint32_t n, uint32_t y)
{
	const struct graph *g = k->g;

	if (g->nodes[n].op == OP_TYPE_AS || !casts_within_call(k, n, g->vals[y].node) || casts_reads_past(k, n, g->vals[y].node))
		return true;
	return !g->has_scopes && g->nodes[n].op == OP_ADD && g->vals[k->renamed[y]].kind != VAL_PARAM;
}

/* "features = outputs["image"].pooler_output.to(x.dtype)": what is converted is an object's. */
static bool
converts_attribute(const struct graph *g, uint32_t n)
{
	const struct node *x = &g->nodes[n];
	struct str line = x->nframe ? graph_str(g, g->frames[x->frame + x->nframe - 1].text) : S(""), bound = line_targets(line);
	const char *to = line.n ? memmem(line.p, line.n, ".to(", 4) : NULL;
	uint32_t at = to ? (uint32_t)(to - line.p) : 0, end = at;

	while (at && line_name_char(line.p[at - 1]))
		at--;
	return bound.n && str_find(bound, '.') < 0 && at && at < end && line.p[at - 1] == '.';
}

/* A program that returns the object returns what was converted, which the exporter names after a conversion that did nothing. */
static uint32_t
returned(const struct graph *g, uint32_t v)
{
	uint32_t n = g->vals[v].kind == VAL_NODE ? g->vals[v].node : 0;

	if (!n || (g->nodes[n].op != OP_TO && g->nodes[n].op != OP_TO_COPY) || node_args(g, n)->kind != ARG_VAL || !converts_attribute(g, n))
		return v;
	return g->vals[node_args(g, n)->u.val].dtype == g->vals[v].dtype ? node_args(g, n)->u.val : v;
}

static void
restore_names(struct casts *k)
{
	struct graph *g = k->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			while (k->renamed[*it.slot] && means_operand(k, n, *it.slot))
				*it.slot = k->renamed[*it.slot];
	for (uint32_t i = 0; i < g->noutput; i++)
		g->outputs[i] = returned(g, k->renamed[g->outputs[i]] ? k->renamed[g->outputs[i]] : g->outputs[i]);
}

bool
pass_casts(struct analysis *a)
{
	struct graph *g = a->g;
	struct casts k = {.a = a, .g = g, .calls = calls_find(g, a->c->a)};

	if (a->r->v[RK_ATTENTION].i == ATT_KEEP && a->r->v[RK_PRECISION].i == PREC_FILE)
		return true;
	k.up = NEW(a->c->a, uint32_t, g->nnode);
	k.given = NEW(a->c->a, uint32_t, g->nnode);
	k.written = NEW(a->c->a, bool, g->nnode);
	k.table = NEW(a->c->a, uint8_t, g->nnode);
	k.renamed = NEW(a->c->a, uint32_t, g->nval);
	k.wanted = find_wanted(g);
	convert_constants(&k);
	k.read_inside = find_read_inside(&k);
	casts_find_readers(&k);
	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t given, src = derived_from(&k, n, &given);

		if (is_conversion(g, n))
			convert(&k, n, given);
		else
			k.up[n] = computes_in_fp32(g, n) ? n : src;
		k.given[n] = k.up[n] == n ? n : k.up[n] ? given : 0;
		derive_written(&k, n);
		convert_new(&k, n);
		k.table[n] = (uint8_t)makes_table(&k, n);
		convert_mask(&k, n);
	}
	casts_restore_wide(&k);
	restore_names(&k);
	casts_write_returns(&k);
	if (k.looked > CASTS_MOST_LOOKED)
		assume(a, "x.to(name.dtype) is taken to give the parameters' dtype where finding the name would have meant reading more than %u characters", CASTS_MOST_LOOKED);
	return true;
}
