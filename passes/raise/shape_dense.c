/* Rules for ONNX operators: matrix products, normalisation, losses, recurrent networks, attention, optimizers. */
#include "shape.h"

/* ---- products ------------------------------------------------------------------------------------------------------ */

static void
swap_last(struct type *t)
{
	struct sint d;

	if (t->rank == RANK_UNKNOWN || t->rank < 2)
		return;
	d = t->dim[t->rank - 1];
	t->dim[t->rank - 1] = t->dim[t->rank - 2];
	t->dim[t->rank - 2] = d;
}

/* numpy's matmul: a vector gets a dim of 1, which the result loses again. */
static struct type
matmul(struct shaper *s, struct type a, struct type b)
{
	struct type t, wide;
	bool row = a.rank == 1, column = b.rank == 1;

	if (a.rank == RANK_UNKNOWN || b.rank == RANK_UNKNOWN || !a.rank || !b.rank)
		return typed(a.dtype, RANK_UNKNOWN, NULL);
	if (row) {
		a.dim[1] = a.dim[0];
		a.dim[0] = SINT(1);
		a.rank = 2;
	}
	if (column) {
		b.dim[1] = SINT(1);
		b.rank = 2;
	}
	t = typed(a.dtype, a.rank - 2u, a.dim);
	wide = typed(b.dtype, b.rank - 2u, b.dim);
	broadcast_into(s, &t, &wide);
	if (!row)
		t.dim[t.rank++] = a.dim[a.rank - 2];
	if (!column)
		t.dim[t.rank++] = b.dim[b.rank - 1];
	return t;
}

void
rule_matmul(struct shaper *s)
{
	struct type a = in(s, "A"), b = in(s, "B");

	if (attr_int(s, "transA"))
		swap_last(&a);
	if (attr_int(s, "transB"))
		swap_last(&b);
	set_type(s, 0, matmul(s, a, b));
}

void
rule_matmul_integer(struct shaper *s)
{
	struct type t = matmul(s, in(s, "A"), in(s, "B"));

	t.dtype = DT_INT32;
	set_type(s, 0, t);
}

void
rule_qlinear_matmul(struct shaper *s)
{
	struct type t = matmul(s, in(s, "a"), in(s, "b"));

	t.dtype = in(s, "y_zero_point").dtype;
	set_type(s, 0, t);
}

void
rule_matmul_nbits(struct shaper *s)
{
	struct type t = in(s, "A");

	if (t.rank != RANK_UNKNOWN && t.rank)
		t.dim[t.rank - 1] = SINT(attr_int(s, "N"));
	set_type(s, 0, t);
}

void
rule_gemm(struct shaper *s)
{
	struct type a = in(s, "A"), b = in(s, "B");
	struct sint d[2];

	if (attr_int(s, "transA"))
		swap_last(&a);
	if (attr_int(s, "transB"))
		swap_last(&b);
	d[0] = a.rank == 2 ? a.dim[0] : UNKNOWN;
	d[1] = b.rank == 2 ? b.dim[1] : UNKNOWN;
	set_result(s, 0, a.dtype, 2, d);
}

void
rule_det(struct shaper *s)
{
	struct type x = in(s, "X");

	x.rank = x.rank == RANK_UNKNOWN || x.rank < 2 ? RANK_UNKNOWN : (uint8_t)(x.rank - 2);
	set_type(s, 0, x);
}

/* ---- Einstein sums ---------------------------------------------------------------------------------------------------- */

struct sum {
	struct sint letter[128];
	bool seen[128];
	uint8_t uses[128];
	struct type rest;          /* what ... stands for */
	bool rest_known;
};

static void
see(struct shaper *s, struct sum *e, unsigned char c, struct sint d)
{
	struct type a = typed(DT_NONE, 1, &e->letter[c]), b = typed(DT_NONE, 1, &d);

	if (c >= 128)
		return;
	if (e->seen[c] && !is_unknown(e->letter[c]))
		broadcast_into(s, &a, &b);
	else
		a = b;
	e->letter[c] = a.dim[0];
	e->seen[c] = true;
	e->uses[c]++;
}

/* One operand's letters; "..." takes what the letters leave. false: its rank is not known. */
static bool
read_term(struct shaper *s, struct sum *e, struct str term, struct type x)
{
	unsigned letters = 0, at = 0;
	struct type rest = typed(DT_NONE, 0, NULL);

	for (uint32_t i = 0; i < term.n; i++)
		letters += term.p[i] != '.' && term.p[i] != ' ';
	if (x.rank == RANK_UNKNOWN || letters > x.rank)
		return false;
	for (uint32_t i = 0; i < term.n; i++) {
		if (term.p[i] == '.') {
			while (rest.rank < x.rank - letters)
				rest.dim[rest.rank++] = x.dim[at++];
			broadcast_into(s, &e->rest, &rest);
			i += 2;
		} else if (term.p[i] != ' ' && at < x.rank) {
			see(s, e, (unsigned char)term.p[i], x.dim[at++]);
		}
	}
	return true;
}

/* Without "->" the result has the letters that stand once, in order. */
static void
implicit_output(const struct sum *e, char *out, bool dots)
{
	unsigned n = 0;

	for (; dots && n < 3; n++)
		out[n] = '.';
	for (unsigned c = 'A'; c <= 'z'; c++)
		if (e->uses[c] == 1)
			out[n++] = (char)c;
	out[n] = 0;
}

void
rule_einsum(struct shaper *s)
{
	const uint32_t *ids;
	unsigned n = operands(s, &ids), i = 0;
	struct sum e = {.rest = typed(DT_NONE, 0, NULL)};
	struct str left = attr_str(s, "equation"), right = S(""), term;
	struct type t = typed(n ? type_of(s, ids[0]).dtype : DT_NONE, 0, NULL);
	bool ok = true, arrow = false;
	char made[96];

	for (uint32_t k = 0; k + 1 < left.n; k++)
		if (left.p[k] == '-' && left.p[k + 1] == '>') {
			right = str_sub(left, k + 2, left.n);
			left = str_sub(left, 0, k);
			arrow = true;
		}
	while (left.p && str_cut(&left, ',', &term))
		ok = i < n && read_term(s, &e, term, type_of(s, ids[i])) && (i++, ok);
	if (!arrow) {
		implicit_output(&e, made, str_find(attr_str(s, "equation"), '.') >= 0);
		right = str_of(made);
	}
	for (uint32_t k = 0; ok && k < right.n; k++) {
		unsigned char c = (unsigned char)right.p[k];

		if (c == '.') {
			for (unsigned r = 0; r < e.rest.rank && t.rank < MAX_RANK; r++)
				t.dim[t.rank++] = e.rest.dim[r];
			k += 2;
		} else if (c != ' ' && t.rank < MAX_RANK) {
			t.dim[t.rank++] = c < 128 && e.seen[c] ? e.letter[c] : UNKNOWN;
		}
	}
	if (!ok)
		t.rank = RANK_UNKNOWN;
	set_type(s, 0, t);
}

/* ---- normalisation, losses ------------------------------------------------------------------------------------------------- */

static void
set_statistics(struct shaper *s, unsigned k, struct type x, int64_t axis, unsigned dtype)
{
	if (!wrap_axis(&axis, x.rank))
		x.rank = RANK_UNKNOWN;
	for (unsigned i = (unsigned)axis; x.rank != RANK_UNKNOWN && i < x.rank; i++)
		x.dim[i] = SINT(1);
	x.dtype = (uint8_t)dtype;
	set_type(s, k, x);
}

void
rule_layer_norm(struct shaper *s)
{
	struct type x = in(s, "X");
	unsigned dtype = attr_dtype(s, "stash_type");

	set_type(s, 0, x);
	set_statistics(s, 1, x, attr_int(s, "axis"), dtype ? dtype : DT_FP32);
	set_statistics(s, 2, x, attr_int(s, "axis"), dtype ? dtype : DT_FP32);
}

void
rule_skip_layer_norm(struct shaper *s)
{
	struct type x = in(s, "input");

	set_type(s, 0, x);
	set_statistics(s, 1, x, -1, DT_FP32);
	set_statistics(s, 2, x, -1, DT_FP32);
	set_type(s, 3, x);
}

void
rule_embed_layer_norm(struct shaper *s)
{
	struct type ids = in(s, "input_ids"), table = in(s, "word_embedding");
	struct sint d[3] = {ids.dim[0], ids.dim[1], table.rank == 2 ? table.dim[1] : UNKNOWN};

	set_result(s, 0, table.dtype, 3, d);
	set_result(s, 1, DT_INT32, 1, d);
	set_result(s, 2, table.dtype, 3, d);
}

void
rule_batch_norm(struct shaper *s)
{
	set_type(s, 0, in(s, "X"));
	for (unsigned k = 1; k < nout(s); k++)
		set_type(s, k, in(s, "input_mean"));
}

void
rule_loss(struct shaper *s)
{
	struct type scores = type_of(s, operand_at(s, 0)), t = type_of(s, operand_at(s, 1));

	if (!str_eq(attr_str(s, "reduction"), S("none")))
		t = typed(DT_NONE, 0, NULL);
	t.dtype = scores.dtype;
	set_type(s, 0, t);
	set_type(s, 1, scores);
}

/* ---- recurrent networks ------------------------------------------------------------------------------------------------------- */

void
rule_rnn(struct shaper *s)
{
	struct type x = in(s, "X"), r = in(s, "R");
	struct sint directions = SINT(str_eq(attr_str(s, "direction"), S("bidirectional")) ? 2 : 1), hidden = r.rank == 3 ? r.dim[2] : UNKNOWN;
	bool batch_first = attr_int(s, "layout") != 0;
	struct sint seq = x.dim[batch_first], batch = x.dim[!batch_first];

	if (is_unknown(hidden) && attr_int(s, "hidden_size") > 0)
		hidden = SINT(attr_int(s, "hidden_size"));
	if (batch_first) {
		set_result(s, 0, x.dtype, 4, (struct sint[]){batch, seq, directions, hidden});
		set_result(s, 1, x.dtype, 3, (struct sint[]){batch, directions, hidden});
		set_result(s, 2, x.dtype, 3, (struct sint[]){batch, directions, hidden});
	} else {
		set_result(s, 0, x.dtype, 4, (struct sint[]){seq, directions, batch, hidden});
		set_result(s, 1, x.dtype, 3, (struct sint[]){directions, batch, hidden});
		set_result(s, 2, x.dtype, 3, (struct sint[]){directions, batch, hidden});
	}
}

/* ---- attention --------------------------------------------------------------------------------------------------------------------- */

/* [batch, sequence, heads * size] as [batch, heads, sequence, size] */
static struct type
by_heads(struct shaper *s, struct type x, int64_t heads)
{
	struct type t = x;

	if (x.rank != 3)
		return x;
	t.rank = 4;
	t.dim[1] = heads > 0 ? SINT(heads) : UNKNOWN;
	t.dim[2] = x.dim[1];
	t.dim[3] = heads > 0 ? quotient(s, x.dim[2], SINT(heads)) : UNKNOWN;
	return t;
}

static struct sint
total_length(struct shaper *s, struct type key, const char *past)
{
	return operand(s, past) ? add(s, in(s, past).dim[2], key.dim[2]) : key.dim[2];
}

void
rule_attention(struct shaper *s)
{
	int64_t q_heads = attr_int(s, "q_num_heads"), kv_heads = attr_int(s, "kv_num_heads");
	struct type x = in(s, "Q"), q = by_heads(s, x, q_heads), k = by_heads(s, in(s, "K"), kv_heads), v = by_heads(s, in(s, "V"), kv_heads);
	struct sint total = total_length(s, k, "past_key");

	if (x.rank == 3)
		set_result(s, 0, x.dtype, 3, (struct sint[]){x.dim[0], x.dim[1], mul(s, q.dim[1], v.dim[3])});
	else
		set_result(s, 0, x.dtype, x.rank == 4 ? 4 : RANK_UNKNOWN, (struct sint[]){q.dim[0], q.dim[1], q.dim[2], v.dim[3]});
	set_result(s, 1, k.dtype, 4, (struct sint[]){k.dim[0], k.dim[1], total, k.dim[3]});
	set_result(s, 2, v.dtype, 4, (struct sint[]){v.dim[0], v.dim[1], total, v.dim[3]});
	set_result(s, 3, x.dtype, 4, (struct sint[]){q.dim[0], q.dim[1], q.dim[2], total});
}

void
rule_linear_attention(struct shaper *s)
{
	struct type q = in(s, "query"), k = in(s, "key"), v = in(s, "value"), past = in(s, "past_state");
	struct sint q_heads = SINT(attr_int(s, "q_num_heads")), kv_heads = SINT(attr_int(s, "kv_num_heads")), size = quotient(s, v.dim[2], kv_heads);

	set_result(s, 0, q.dtype, 3, (struct sint[]){q.dim[0], q.dim[1], mul(s, q_heads, size)});
	set_result(s, 1, past.dtype ? past.dtype : q.dtype, 4, (struct sint[]){q.dim[0], kv_heads, quotient(s, k.dim[2], kv_heads), size});
}

/* Queries, keys and values come from one weight; the values may be of another width. */
void
rule_ms_attention(struct shaper *s)
{
	struct type x = in(s, "input"), w = in(s, "weights"), past = in(s, "past");
	int64_t sizes[3], heads = attr_int(s, "num_heads");
	struct sint width = w.rank == 2 ? quotient(s, w.dim[1], SINT(3)) : UNKNOWN, total = past.rank == 5 ? add(s, past.dim[3], x.dim[1]) : x.dim[1];

	if (attr_ints(s, "qkv_hidden_sizes", sizes, 3) == 3)
		width = SINT(sizes[2]);
	set_result(s, 0, x.dtype, 3, (struct sint[]){x.dim[0], x.dim[1], width});
	set_result(s, 1, x.dtype, 5, (struct sint[]){SINT(2), x.dim[0], SINT(heads), total, heads > 0 ? quotient(s, width, SINT(heads)) : UNKNOWN});
}

void
rule_ms_multi_head(struct shaper *s)
{
	int64_t heads = attr_int(s, "num_heads");
	struct type q = in(s, "query"), key = in(s, "key"), value = in(s, "value"), k = by_heads(s, key, heads), v = by_heads(s, value, heads);

	if (q.rank == 5)           /* packed: [batch, sequence, heads, 3, size] */
		set_result(s, 0, q.dtype, 3, (struct sint[]){q.dim[0], q.dim[1], mul(s, q.dim[2], q.dim[4])});
	else if (q.rank == 3)
		set_result(s, 0, q.dtype, 3, (struct sint[]){q.dim[0], q.dim[1], v.rank == 4 ? mul(s, SINT(heads), v.dim[3]) : q.dim[2]});
	set_result(s, 1, q.dtype, 4, (struct sint[]){k.dim[0], k.dim[1], total_length(s, k, "past_key"), k.dim[3]});
	set_result(s, 2, q.dtype, 4, (struct sint[]){v.dim[0], v.dim[1], total_length(s, v, "past_value"), v.dim[3]});
}

/* Without keys the query holds all three, one after the other. */
void
rule_ms_group_query(struct shaper *s)
{
	int64_t heads = attr_int(s, "num_heads"), kv_heads = attr_int(s, "kv_num_heads");
	struct type q = in(s, "query"), past = in(s, "past_key");
	struct sint size = UNKNOWN, d[4], total = UNKNOWN;

	if (heads > 0)
		size = operand(s, "key") ? quotient(s, q.dim[2], SINT(heads)) : quotient(s, q.dim[2], add(s, SINT(heads), mul(s, SINT(kv_heads), SINT(2))));
	if (past.rank == 4)
		total = add(s, past.dim[2], q.dim[1]);
	d[0] = q.dim[0];
	d[1] = SINT(kv_heads);
	d[2] = total;
	d[3] = size;
	set_result(s, 0, q.dtype, 3, (struct sint[]){q.dim[0], q.dim[1], mul(s, size, SINT(heads))});
	set_result(s, 1, q.dtype, 4, d);
	set_result(s, 2, q.dtype, 4, d);
}

/* ---- optimizers, classical models ------------------------------------------------------------------------------------------------ */

/* Parameters, gradients and states of n tensors, in groups; the results are the new parameters and states. */
void
rule_optimizer(struct shaper *s)
{
	const uint32_t *ids;
	unsigned count = operands(s, &ids), n = count / (s->g->nodes[s->n].op == OP_ONNX_ADAM ? 4 : 3);

	for (unsigned k = 0; n && k < nout(s); k++)
		set_type(s, k, type_of(s, ids[k % n]));
}

void
rule_regressor(struct shaper *s)
{
	struct type x = in(s, "X");
	int64_t targets = attr_int(s, "n_targets") > 0 ? attr_int(s, "n_targets") : attr_int(s, "targets");

	set_result(s, 0, s->g->nodes[s->n].op == OP_ONNX_ML_TREE_ENSEMBLE ? x.dtype : DT_FP32, 2, (struct sint[]){x.rank == 1 ? SINT(1) : x.dim[0], targets > 0 ? SINT(targets) : UNKNOWN});
}
