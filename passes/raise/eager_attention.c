/*
 * scaled_dot_product_attention, which exporters write out before opset 23: softmax(q * s @ k^T * s + mask) @ v, with s the root of the scale on both
 * sides, a mask of zeros and -inf made from a bool one, and a guard against rows that are masked altogether. Attention that a model writes
 * out itself scales the scores, once, and has no guard: it stays what it is.
 */
#include "eager.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ATTENTION "aten.scaled_dot_product_attention"

struct sdpa {
	uint32_t q, k, v, mask;
	uint32_t kt;               /* k as the product reads it, without its scale */
	double scale_q, scale_k, dropout;
	bool scaled, guarded, turned, causal;      /* scaled: both sides; turned: k was transposed by way of three dims */
};

static bool
is_op(const struct graph *g, uint32_t n, unsigned op)
{
	return n && g->nodes[n].op == op;
}

static bool
is_recorded(const struct graph *g, uint32_t n)
{
	return str_starts(graph_str(g, g->nodes[n].fx_target), S(ATTENTION));
}

/* ---- from the end to the scores ------------------------------------------------------------------------------------------------------ */

/* What the product with the values reads, without dropout and guard: softmax's result. */
static uint32_t
probabilities(struct raiser *r, struct sdpa *t, uint32_t v)
{
	struct graph *g = r->g;
	uint32_t n = maker_of(g, v), test;
	double zero;

	if (is_op(g, n, OP_ONNX_DROPOUT)) {
		scalar_of(g, operand_of(g, n, 1), &t->dropout);
		v = operand_of(g, n, 0);
		n = maker_of(g, v);
	}
	if (is_op(g, n, OP_ONNX_WHERE)) {
		test = maker_of(g, operand_of(g, n, 0));
		if (!is_op(g, test, OP_ONNX_IS_NAN) || !scalar_of(g, operand_of(g, n, 1), &zero) || zero != 0)
			return 0;
		t->guarded = true;
		v = operand_of(g, n, 2);
		if (operand_of(g, test, 0) != v)
			return 0;
	}
	return v;
}

/* ---- the mask --------------------------------------------------------------------------------------------------------------------------- */

/* Made of the lower triangle of ones: no tensor, but is_causal. */
static bool
is_triangle(const struct graph *g, uint32_t v)
{
	double one;

	for (unsigned depth = 0; depth < 8; depth++) {
		uint32_t n = maker_of(g, v);

		if (!n)
			return false;
		switch (g->nodes[n].op) {
		case OP_ONNX_TRILU:
			v = operand_of(g, n, 0);
			n = maker_of(g, v);
			return scalar_of(g, v, &one) || is_op(g, n, OP_ONNX_CONSTANT_OF_SHAPE) || (is_op(g, n, OP_ONNX_EXPAND) && scalar_of(g, operand_of(g, n, 0), &one));
		case OP_ONNX_WHERE:
		case OP_ONNX_EQUAL:
		case OP_ONNX_NOT:
		case OP_ONNX_CAST:
		case OP_ONNX_CAST_LIKE:
			v = operand_of(g, n, 0);
			break;
		default:
			return false;
		}
	}
	return false;
}

/* "val_31": of the exporter's own making */
static bool
is_made_up(struct str name)
{
	int64_t n;

	return str_starts(name, S("val_")) && str_int(str_sub(name, 4, name.n), &n);
}

/* An optimiser folded the triangle into a constant: the record has no mask then; without a record, no operator of the model has made it. */
static bool
is_folded_triangle(const struct raiser *r, uint32_t v)
{
	const struct graph *g = r->g;
	int64_t dim[MAX_RANK];
	unsigned rank;

	if (g->vals[v].kind != VAL_CONST || !eager_size(r, v, dim, &rank) || rank != 2 || dim[0] != dim[1])
		return false;
	if (g->nodes[r->s.n].fx_target)
		return str_eq(eager_recorded(r, ATTENTION, 3), S("None")) && str_eq(eager_recorded(r, ATTENTION, 5), S("True"));
	if (!is_made_up(graph_str(g, g->vals[v].name)))
		return false;
	assume(r->s.a, "square masks of attention that the exporter made are is_causal=True (the file keeps no record of the call)");
	return true;
}

/* Zeros where a bool mask is true, -inf elsewhere: attention was given the bool one. */
static void
read_mask(struct raiser *r, struct sdpa *t, uint32_t v)
{
	struct graph *g = r->g;
	uint32_t n = maker_of(g, v);
	double kept, masked;

	if (n && g->nodes[n].flags & NF_DOWNCAST) {
		v = operand_of(g, n, 0);
		n = maker_of(g, v);
	}
	t->mask = v;
	if (is_triangle(g, v) || is_folded_triangle(r, v)) {
		t->causal = true;
		t->mask = 0;
	} else if (is_op(g, n, OP_ONNX_WHERE) && (!g->nodes[n].fx_target || is_recorded(g, n)) && scalar_of(g, operand_of(g, n, 1), &kept) && kept == 0 &&
	    scalar_of(g, operand_of(g, n, 2), &masked) && masked < -1e4) {
		t->mask = operand_of(g, n, 0);
	}
}

/* ---- queries and keys ------------------------------------------------------------------------------------------------------------------- */

/* v without the number that it is multiplied by; 0 = it is multiplied by none. */
static uint32_t
unscaled(const struct graph *g, uint32_t v, double *scale)
{
	uint32_t n = maker_of(g, v);

	if (!is_op(g, n, OP_ONNX_MUL))
		return 0;
	if (scalar_of(g, operand_of(g, n, 1), scale))
		return operand_of(g, n, 0);
	return scalar_of(g, operand_of(g, n, 0), scale) ? operand_of(g, n, 1) : 0;
}

static bool
same_dims(const int64_t *a, const int64_t *b, unsigned rank, const unsigned *perm)
{
	for (unsigned i = 0; i < rank; i++)
		if (a[i] != b[perm[i]])
			return false;
	return true;
}

/* An optimiser joined the reshaping to heads with the one around the transposition. */
static uint32_t
per_head(struct raiser *r, uint32_t k, const int64_t *turned)
{
	const int64_t dim[] = {turned[0], turned[1], turned[3], turned[2]};
	uint32_t n = eager_node(r, OP_RESHAPE, 1);

	eager_tensor(r, n, "self", k);
	eager_ints(r, n, "shape", dim, 4);
	return eager_out(r, n);
}

/* k^T of [batch, heads, seq, size] keys: transposed at once, or reshaped to three dims around the transposition. */
static bool
read_keys(struct raiser *r, struct sdpa *t)
{
	static const int64_t last[] = {0, 1, 3, 2}, heads_last[] = {0, 2, 3, 1}, three[] = {0, 2, 1};
	static const unsigned swapped[] = {0, 1, 3, 2};
	struct graph *g = r->g;
	uint32_t n = maker_of(g, t->kt), turn, k;
	int64_t from[MAX_RANK], to[MAX_RANK];
	unsigned rank, krank;

	if (has_perm(g, n, last, 4)) {
		t->k = operand_of(g, n, 0);
		return true;
	}
	if (has_perm(g, n, heads_last, 4)) {
		uint32_t x = eager_node(r, OP_TRANSPOSE, 1);

		eager_tensor(r, x, "self", operand_of(g, n, 0));
		eager_arg(r, x, "dim0", arg_int(1));
		eager_arg(r, x, "dim1", arg_int(2));
		t->k = eager_out(r, x);
		return true;
	}
	if (!is_op(g, n, OP_ONNX_RESHAPE))
		return false;
	turn = maker_of(g, operand_of(g, n, 0));
	if (!has_perm(g, turn, three, 3))
		return false;
	k = operand_of(g, turn, 0);
	if (is_op(g, maker_of(g, k), OP_ONNX_RESHAPE))
		k = operand_of(g, maker_of(g, k), 0);
	if (!eager_size(r, t->kt, to, &rank) || !eager_size(r, k, from, &krank) || rank != 4)
		return false;
	t->turned = true;
	t->k = krank == 4 && same_dims(to, from, 4, swapped) ? k : per_head(r, k, to);
	return true;
}

static bool
read_scores(struct raiser *r, struct sdpa *t, uint32_t scores)
{
	struct graph *g = r->g;
	uint32_t n = maker_of(g, scores);

	if (is_op(g, n, OP_ONNX_ADD)) {
		bool first = is_op(g, maker_of(g, operand_of(g, n, 0)), OP_ONNX_MATMUL);

		read_mask(r, t, operand_of(g, n, first ? 1 : 0));
		n = maker_of(g, operand_of(g, n, first ? 0 : 1));
	}
	if (!is_op(g, n, OP_ONNX_MATMUL))
		return false;
	t->q = unscaled(g, operand_of(g, n, 0), &t->scale_q);
	t->kt = unscaled(g, operand_of(g, n, 1), &t->scale_k);
	t->scaled = t->q && t->kt && fabs(t->scale_q - t->scale_k) < 1e-3 * fabs(t->scale_q);
	if (!t->scaled) {
		t->q = operand_of(g, n, 0);
		t->kt = operand_of(g, n, 1);
	}
	return read_keys(r, t);
}

/* ---- the operator ------------------------------------------------------------------------------------------------------------------------- */

/* The dropout that the exporter's optimiser lost. */
static double
dropout(const struct raiser *r, double found)
{
	struct str text = eager_recorded(r, ATTENTION, 4);

	return text.n ? strtod(text.p, NULL) : found;
}

/*
 * Without a record: who scales queries before they are split into heads (Whisper, Qwen2-Audio, Voxtral) copies heads, all but OPT, which writes the same
 * nodes. What is too much there would be too little for all others.
 */
static bool
copies_heads(const struct raiser *r, const struct sdpa *t)
{
	static const int64_t heads[] = {0, 2, 1, 3};
	const struct graph *g = r->g;
	uint32_t turn = maker_of(g, t->q), split = has_perm(g, turn, heads, 4) ? maker_of(g, operand_of(g, turn, 0)) : 0;
	double scale = 1;

	if (g->nodes[r->s.n].fx_target || !is_op(g, split, OP_ONNX_RESHAPE) || !unscaled(g, operand_of(g, split, 0), &scale) || scale >= 1)
		return false;
	assume(r->s.a, "heads of queries that are scaled before they are split are copied, with those of keys and values (the file keeps no record of the call)");
	return true;
}

static void
write_attention(struct raiser *r, const struct sdpa *t)
{
	int64_t dim[MAX_RANK];
	unsigned rank;
	uint32_t q = eager_copied(r, ATTENTION, 0, t->q), k = eager_copied(r, ATTENTION, 1, t->k), v = eager_copied(r, ATTENTION, 2, t->v);
	uint32_t mask = t->mask ? eager_copied(r, ATTENTION, 3, t->mask) : 0, n;
	double scale = t->scaled ? t->scale_q * t->scale_k : 1;

	if (copies_heads(r, t)) {
		q = eager_contiguous(r, q);
		k = eager_contiguous(r, k);
		v = eager_contiguous(r, v);
	}
	n = eager_node(r, OP_SDPA, 1);
	eager_tensor(r, n, "query", q);
	eager_tensor(r, n, "key", k);
	eager_tensor(r, n, "value", v);
	eager_tensor(r, n, "attn_mask", mask);
	eager_arg(r, n, "dropout_p", arg_float(dropout(r, t->dropout)));
	eager_arg(r, n, "is_causal", arg_bool(t->causal));
	if (!eager_size(r, t->q, dim, &rank) || !rank || fabs(scale * sqrt((double)dim[rank - 1]) - 1) > 1e-3)
		eager_arg(r, n, "scale", arg_float(scale));
	eager_results(r, n);
}

bool
eager_attention(struct raiser *r)
{
	struct sdpa t = {.scale_q = 1, .scale_k = 1, .v = r->m.var[1]};
	struct graph *g = r->g;
	uint32_t p = r->m.var[0], softmax;

	if (!maker_of(g, p) || r->uses[p] != 1)
		return false;
	p = probabilities(r, &t, p);
	softmax = maker_of(g, p);
	if (!is_op(g, softmax, OP_ONNX_SOFTMAX) || r->uses[p] != (t.guarded ? 2 : 1) || !read_scores(r, &t, operand_of(g, softmax, 0)))
		return false;
	if (!t.scaled && !t.guarded && !t.turned && !is_recorded(g, r->s.n))
		return false;
	write_attention(r, &t);
	return true;
}

/* ---- softmax ------------------------------------------------------------------------------------------------------------------------------------ */

/* Read by the product with the values, or by a conversion and dropout in front of it. */
static bool
weighs_values(const struct raiser *r, uint32_t v)
{
	for (uint32_t n = r->s.n + 1; n < r->nold && n < r->s.n + 8; n++) {
		unsigned op = r->g->nodes[n].op;

		if (operand_of(r->g, n, 0) != v)
			continue;
		if (op == OP_ONNX_MATMUL || (op == OP_ONNX_EINSUM && r->shows_casts))
			return true;
		if (op == OP_ONNX_DROPOUT || op == OP_ONNX_CAST)
			v = node_outs(r->g, n)[0];
	}
	return false;
}

static bool
reads_cast(const struct raiser *r, uint32_t v)
{
	for (uint32_t n = r->s.n + 1; n < r->nold; n++)
		if (r->g->nodes[n].op == OP_ONNX_CAST && operand_of(r->g, n, 0) == v)
			return true;
	return false;
}

static bool
is_scaled(const struct graph *g, uint32_t n)
{
	double c;

	return n && g->nodes[n].op == OP_ONNX_MUL && (scalar_of(g, operand_of(g, n, 0), &c) || scalar_of(g, operand_of(g, n, 1), &c));
}

static bool
passes_scores(unsigned op)
{
	return op == OP_ONNX_ADD || op == OP_ONNX_WHERE || op == OP_ONNX_RESHAPE;
}

/* Scores that were multiplied by a number, as the function that libraries share does; older encoders divide, or scale the queries. Through masks. */
static bool
is_multiplied(const struct graph *g, uint32_t scores)
{
	uint32_t n = maker_of(g, scores);

	for (unsigned depth = 0; n && depth < 4 && passes_scores(g->nodes[n].op); depth++) {
		uint32_t other = g->nodes[n].op == OP_ONNX_ADD ? maker_of(g, operand_of(g, n, 1)) : 0;

		if (is_scaled(g, other))
			return true;
		n = maker_of(g, operand_of(g, n, g->nodes[n].op == OP_ONNX_WHERE ? 1 : 0));
	}
	return is_scaled(g, n);
}

/*
 * softmax(scores, dtype=float32).to(q.dtype), as libraries of language models write it, is nothing but softmax in an fp32 file. The source line
 * decides, or the exporter's record; older exporters write the dtype as a Cast behind it, which is the conversion back unless one follows. Where the file
 * has none of these, attention that is written out is taken to do so, if its heads have an axis of their own (who multiplies all heads of the batch at once
 * does not convert) and its scores were multiplied by a number, or its norms are a language model's.
 */
static bool
runs_in_fp32(const struct raiser *r)
{
	const struct node *x = &r->g->nodes[r->s.n];
	struct str line = x->nframe ? graph_str(r->g, r->g->frames[x->frame + x->nframe - 1].text) : S("");
	struct str args = graph_str(r->g, x->fx_args);
	uint32_t scores = operand_of(r->g, r->s.n, 0);

	if (r->g->file_dtype != DT_FP32 || r->g->vals[scores].dtype != DT_FP32)
		return false;
	if (line.n && memmem(line.p, line.n, "softmax", 7))
		return memmem(line.p, line.n, "float32", 7) != NULL;       /* else it calls a function that does, whose lines are not in the file */
	if (str_starts(graph_str(r->g, x->fx_target), S("aten.softmax")))
		return memmem(args.p, args.n, "float32", 7) != NULL;
	if (r->g->vals[scores].rank < 4 || r->g->vals[scores].rank == RANK_UNKNOWN || !weighs_values(r, node_outs(r->g, r->s.n)[0]))
		return false;
	if (r->shows_casts)
		return reads_cast(r, node_outs(r->g, r->s.n)[0]);
	if (!r->mean_squares && !is_multiplied(r->g, scores))
		return false;
	assume(r->s.a, "softmax of attention that is written out runs in fp32 and is converted back, as libraries write it where they multiply scores or norms take no mean (the file does not say)");
	return true;
}

bool
eager_softmax(struct raiser *r)
{
	uint32_t n = eager_node(r, OP_SOFTMAX, 1), back;

	eager_tensor(r, n, "self", operand_of(r->g, r->s.n, 0));
	eager_arg(r, n, "dim", arg_int(attr_int(&r->s, "axis")));
	if (!runs_in_fp32(r)) {
		eager_results(r, n);
		return true;
	}
	eager_arg(r, n, "dtype", arg_dtype(DT_FP32));
	if (r->shows_casts) {              /* the conversion back is in the file */
		eager_results(r, n);
		return true;
	}
	back = eager_node(r, OP_TO, 1);
	eager_arg(r, back, "self", arg_val(eager_reads(r, eager_out(r, n))));
	eager_arg(r, back, "dtype", arg_dtype(DT_FP32));
	eager_results(r, back);
	return true;
}

/* ---- opset 23 --------------------------------------------------------------------------------------------------------------------------------- */

bool
eager_attention_operator(struct raiser *r)
{
	struct sdpa t = {.q = operand(&r->s, "Q"), .k = operand(&r->s, "K"), .v = operand(&r->s, "V"), .mask = operand(&r->s, "attn_mask"), .scaled = true};
	double scale = attr_float(&r->s, "scale");
	int64_t dim[MAX_RANK];
	unsigned rank;

	if (!eager_size(r, t.q, dim, &rank) || rank != 4 || dim[3] < 1)
		return false;
	t.scale_q = sqrt(scale > 0 ? scale : 1 / sqrt((double)dim[3]));
	t.scale_k = t.scale_q;
	t.causal = attr_int(&r->s, "is_causal") != 0;
	write_attention(r, &t);
	return true;
}
