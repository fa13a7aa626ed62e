/* recompose: an operator's arguments, found among its pieces. */
#include "recompose.h"

#include <string.h>

/* ---- arguments that are no tensors ------------------------------------------------------------------------------------------ */

static bool
list_has(struct str list, struct str name)
{
	struct str word;

	while (str_cut(&list, ' ', &word)) {
		word = str_ends(word, S("]")) ? str_sub(word, 1, word.n - 1) : word;
		if (str_eq(word, name) || (str_ends(word, S("...")) && str_eq(str_sub(word, 0, word.n - 3), name)))
			return true;
	}
	return false;
}

/* What a piece has under that name. */
static bool
copy_argument(const struct pieces *p, struct str name, struct arg *out)
{
	for (uint32_t i = 0; i < p->nnode; i++) {
		int at = op_arg_index(p->g->nodes[p->node[i]].op, name);
		const struct arg *a = at >= 0 && (uint32_t)at < p->g->nodes[p->node[i]].narg ? node_args(p->g, p->node[i]) + at : NULL;

		if (!a || a->kind == ARG_NONE || a->kind == ARG_VAL || a->kind == ARG_VALS)
			continue;
		*out = *a;
		return true;
	}
	return false;
}

/* "shifts=1, num_groups=group" */
static bool
from_settings(const struct pieces *p, const char *settings, struct str name, struct arg *out)
{
	struct str rest = str_of(settings), entry, key;
	int64_t number;

	while (str_cut(&rest, ',', &entry)) {
		entry = str_trim(entry);
		if (!str_cut(&entry, '=', &key) || !str_eq(key, name))
			continue;
		if (str_eq(entry, S("false")))
			*out = arg_bool(false);
		else if (str_int(entry, &number))
			*out = arg_int(number);
		else
			return copy_argument(p, entry, out);
		return true;
	}
	return false;
}

static struct arg
sizes_of(const struct pieces *p, uint32_t v, unsigned from)
{
	const struct val *x = &p->g->vals[v];
	uint32_t rank = x->rank == RANK_UNKNOWN || x->rank < from ? from : x->rank;
	struct sint dims[MAX_RANK];

	memcpy(dims, val_dims(p->g, v) + (rank > from ? from : 0), (rank - from) * sizeof *dims);
	return (struct arg){.kind = ARG_INTS, .first = ints_add(p->g, dims, rank - from), .count = rank - from};
}

/* softmax(x, dtype=torch.float32) of what is fp32 anyway; a conversion right behind it takes that back. */
static bool
says_fp32(const struct pieces *p)
{
	const struct node *x = &p->g->nodes[p->made];
	uint32_t next = p->node[p->nnode - 1] + 1;
	struct str line = x->nframe ? graph_str(p->g, p->g->frames[x->frame + x->nframe - 1].text) : S("");

	if (next < p->made && p->g->nodes[next].op == OP_TO && node_args(p->g, next)->kind == ARG_VAL && node_args(p->g, next)->u.val == p->result[0])
		return true;
	return memmem(line.p, line.n, "dtype=torch.float32", 19) != NULL;
}

/* What the shapes and dtypes say. */
static bool
from_types(const struct pieces *p, struct str name, struct arg *out)
{
	const struct val *x = &p->g->vals[p->operand[0]], *y = &p->g->vals[p->result[0]];

	if (str_eq(name, S("keepdim")))
		*out = arg_bool(x->rank == y->rank);
	else if (str_eq(name, S("reduction")))
		*out = arg_int(y->rank == 0);
	else if (str_eq(name, S("dtype")) && p->noperand == 1 && dtype_is_float(y->dtype) && (x->dtype != y->dtype || (y->dtype == DT_FP32 && says_fp32(p))))
		*out = arg_dtype(y->dtype);
	else if (str_eq(name, S("output_size")) && y->rank != RANK_UNKNOWN && y->rank > 2)
		*out = sizes_of(p, p->result[0], 2);
	else
		return false;
	return true;
}

/* All that are no tensors. */
static bool
set_attributes(const struct pieces *p, const struct recompose_row *row)
{
	struct arg_name names[MAX_SCHEMA];
	uint32_t n = op_args(p->op, names, MAX_SCHEMA);

	for (uint32_t i = 0; i < n; i++) {
		struct arg *a = node_args(p->g, p->made) + i, found;

		if (a->kind != ARG_NONE || list_has(str_of(row->operands), names[i].name))
			continue;
		if (from_types(p, names[i].name, &found) || copy_argument(p, names[i].name, &found) || from_settings(p, row->settings, names[i].name, &found))
			*a = found;
		else if (!names[i].dflt.n)
			return false;
	}
	return true;
}

/* ---- in order ------------------------------------------------------------------------------------------------------------------ */

static bool
set_operands(const struct pieces *p, struct str list)
{
	struct str word;
	uint32_t i = 0;

	while (str_cut(&list, ' ', &word)) {
		bool optional = str_starts(word, S("[")), rest = str_ends(word, S("..."));
		struct str name = optional ? str_sub(word, 1, word.n - 1) : rest ? str_sub(word, 0, word.n - 3) : word;
		int at = op_arg_index(p->op, name);

		if (at < 0 || (i == p->noperand && !optional))
			return false;
		if (rest) {
			node_args(p->g, p->made)[at] = (struct arg){.kind = ARG_VALS, .first = ids_add(p->g, p->operand + i, p->noperand - i), .count = p->noperand - i};
			return true;
		}
		if (i < p->noperand)
			node_args(p->g, p->made)[at] = arg_val(p->operand[i++]);
	}
	return i == p->noperand;
}

bool
recompose_in_order(const struct pieces *p, const struct recompose_row *row)
{
	return p->nresult == 1 && set_operands(p, str_of(row->operands)) && set_attributes(p, row);
}

/* The operand that has the result's dims is the operator's input; its weight may be read first. */
bool
recompose_like_result(const struct pieces *p, const struct recompose_row *row)
{
	struct pieces q = *p;
	uint32_t i = 0;

	while (i < p->noperand && (p->nresult != 1 || !graph_same_dims(p->g, p->operand[i], p->result[0])))
		i++;
	if (i < p->noperand) {
		q.operand[i] = p->operand[0];
		q.operand[0] = p->operand[i];
	}
	return recompose_in_order(&q, row);
}

/* ---- products --------------------------------------------------------------------------------------------------------------------- */

static uint32_t
operand(const struct graph *g, uint32_t n, const char *name)
{
	const struct arg *a = node_arg(g, n, name);

	return a && a->kind == ARG_VAL ? a->u.val : 0;
}

/* The k-th product among the pieces, 0 = there is none. */
static uint32_t
product(const struct pieces *p, unsigned k)
{
	for (uint32_t i = 0; i < p->nnode; i++) {
		unsigned op = p->g->nodes[p->node[i]].op;

		if ((op == OP_MM || op == OP_BMM || op == OP_ADDMM || op == OP_MATMUL) && k-- == 0)
			return p->node[i];
	}
	return 0;
}

/* Its factors as they came into the pieces: views, copies and factors that are numbers lie between. */
static uint32_t
factor(const struct pieces *p, uint32_t n, unsigned side)
{
	static const char *const names[2][3] = {{"self", "self", "mat1"}, {"mat2", "other", "mat2"}};
	unsigned op = p->g->nodes[n].op;
	uint32_t v = operand(p->g, n, names[side][op == OP_ADDMM ? 2 : op == OP_MATMUL]);

	while (v && recompose_is_piece(p, v)) {
		n = p->g->vals[v].node;
		op = p->g->nodes[n].op;
		if (op != OP_VIEW && op != OP_UNSAFE_VIEW && op != OP_RESHAPE && op != OP_EXPAND && op != OP_CLONE && op != OP_PERMUTE && op != OP_TRANSPOSE &&
		    op != OP_T && op != OP_UNSQUEEZE && op != OP_SQUEEZE && op != OP_ALIAS && op != OP_TO_COPY && op != OP_MUL && op != OP_DIV && op != OP_CONTIGUOUS)
			return 0;
		if ((op == OP_MUL || op == OP_DIV) && operand(p->g, n, "other"))
			return 0;
		v = node_args(p->g, n)->kind == ARG_VAL ? node_args(p->g, n)->u.val : 0;
	}
	return v;
}

/* The operand that is none of these; 0 = none, or several. */
static uint32_t
other_operand(const struct pieces *p, const uint32_t *known, unsigned n)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < p->noperand; i++) {
		bool is_known = false;

		for (unsigned k = 0; k < n; k++)
			is_known |= known[k] == p->operand[i];
		if (!is_known && found)
			return 0;
		if (!is_known)
			found = p->operand[i];
	}
	return found;
}

static int64_t
dim_from_end(const struct graph *g, uint32_t v, unsigned k)
{
	const struct val *x = &g->vals[v];

	return x->rank == RANK_UNKNOWN || x->rank < k ? -1 : val_dims(g, v)[x->rank - k].n;
}

static bool
multiplies(const struct pieces *p, uint32_t a, uint32_t b)
{
	bool vector = p->g->vals[b].rank == 1;

	return dim_from_end(p->g, a, 1) == dim_from_end(p->g, b, vector ? 1 : 2) && (vector || dim_from_end(p->g, p->result[0], 1) == dim_from_end(p->g, b, 1));
}

/* A product of two and three dims runs the other way around, transposed. */
bool
recompose_matmul(const struct pieces *p, const struct recompose_row *row)
{
	uint32_t n = product(p, 0), a = n ? factor(p, n, 0) : 0, b = n ? factor(p, n, 1) : 0;

	(void)row;
	if (p->nresult != 1 || !a || !b || p->noperand > 2)
		return false;
	if (!multiplies(p, a, b)) {
		uint32_t swap = a;

		a = b;
		b = swap;
	}
	if (!multiplies(p, a, b))
		return false;
	recompose_set(p, "self", arg_val(a));
	recompose_set(p, "other", arg_val(b));
	return true;
}

bool
recompose_linear(const struct pieces *p, const struct recompose_row *row)
{
	uint32_t n = product(p, 0), x = n ? factor(p, n, 0) : 0, w = n ? factor(p, n, 1) : 0, known[] = {x, w}, bias = other_operand(p, known, 2);

	(void)row;
	if (p->nresult != 1 || !x || !w || p->noperand != 2u + (bias != 0) - (x == w))
		return false;
	recompose_set(p, "input", arg_val(x));
	recompose_set(p, "weight", arg_val(w));
	if (bias)
		recompose_set(p, "bias", arg_val(bias));
	return true;
}

/* ---- attention ---------------------------------------------------------------------------------------------------------------------- */

static bool
has_op(const struct pieces *p, unsigned op, uint32_t *n)
{
	for (uint32_t i = 0; i < p->nnode; i++)
		if (p->g->nodes[p->node[i]].op == op) {
			*n = p->node[i];
			return true;
		}
	return false;
}

/* Two products; a mask that comes from outside, or one made here, which only a causal one is. */
bool
recompose_attention(const struct pieces *p, const struct recompose_row *row)
{
	uint32_t first = product(p, 0), second = product(p, 1), n, mask, known[3];

	(void)row;
	if (p->nresult != 1 || !second)
		return false;
	known[0] = factor(p, first, 0);
	known[1] = factor(p, first, 1);
	known[2] = factor(p, second, 1);
	if (!known[0] || !known[1] || !known[2])
		return false;
	mask = other_operand(p, known, 3);
	recompose_set(p, "query", arg_val(known[0]));
	recompose_set(p, "key", arg_val(known[1]));
	recompose_set(p, "value", arg_val(known[2]));
	if (mask)
		recompose_set(p, "attn_mask", arg_val(mask));
	else if (has_op(p, OP_ARANGE, &n) || has_op(p, OP_TRIL, &n))
		recompose_set(p, "is_causal", arg_bool(true));
	if (p->g->vals[known[0]].rank == 4 && val_dims(p->g, known[0])[1].n != val_dims(p->g, known[1])[1].n)
		recompose_set(p, "enable_gqa", arg_bool(true));
	if (has_op(p, OP_NATIVE_DROPOUT, &n))
		recompose_set(p, "dropout_p", *node_arg(p->g, n, "p"));
	return true;
}

/* ---- weight_norm ----------------------------------------------------------------------------------------------------------------------- */

/* The direction has the result's dims; the magnitude has one dim that is not 1. */
bool
recompose_weight_norm(const struct pieces *p, const struct recompose_row *row)
{
	uint32_t v, g;
	int64_t dim = 0;

	(void)row;
	if (p->nresult != 1 || p->noperand != 2)
		return false;
	v = p->operand[!graph_same_dims(p->g, p->operand[0], p->result[0])];
	g = p->operand[v == p->operand[0]];
	if (!graph_same_dims(p->g, v, p->result[0]) || p->g->vals[g].rank != p->g->vals[v].rank)
		return false;
	while (dim + 1 < p->g->vals[g].rank && val_dims(p->g, g)[dim].n == 1)
		dim++;
	recompose_set(p, "v", arg_val(v));
	recompose_set(p, "magnitude", arg_val(g));
	recompose_set(p, "dim", arg_int(dim));
	return true;
}

/* ---- split, chunk, unbind: all parts of a tensor along one dim ---------------------------------------------------------------------------- */

/* The dim of the slices or selections, -1 = there are other pieces too. */
static int64_t
parted_dim(const struct pieces *p)
{
	int64_t dim = -1;

	for (uint32_t i = 0; i < p->nnode; i++) {
		unsigned op = p->g->nodes[p->node[i]].op;
		const struct arg *a = node_arg(p->g, p->node[i], "dim");

		if (op != OP_SLICE && op != OP_SELECT && op != OP_SQUEEZE && op != OP_SPLIT)
			return -1;
		if ((op == OP_SLICE || op == OP_SELECT || op == OP_SPLIT) && a)
			dim = a->kind == ARG_INT ? a->u.i.n : 0;
	}
	return dim < 0 && p->g->vals[p->operand[0]].rank != RANK_UNKNOWN ? dim + p->g->vals[p->operand[0]].rank : dim;
}

bool
recompose_parts(const struct pieces *p, const struct recompose_row *row)
{
	int64_t dim = p->noperand == 1 ? parted_dim(p) : -1, sizes[RECOMPOSE_MAX], total = 0;
	const struct val *x = &p->g->vals[p->operand[0]];

	(void)row;
	if (dim < 0 || x->rank == RANK_UNKNOWN || dim >= x->rank)
		return false;
	for (uint32_t k = 0; k < p->nresult; k++) {
		const struct val *y = &p->g->vals[p->result[k]];

		if (p->op != OP_UNBIND && y->rank != x->rank)
			return false;
		sizes[k] = p->op == OP_UNBIND ? 1 : val_dims(p->g, p->result[k])[dim].n;
		total += sizes[k];
	}
	if (total != val_dims(p->g, p->operand[0])[dim].n)
		return false;          /* parts that nobody reads are not there: the pieces say it better */
	if (p->op != OP_UNBIND)
		p->g->nodes[p->made].op = OP_SPLIT;
	recompose_set(p, "self", arg_val(p->operand[0]));
	recompose_set(p, "dim", arg_int(dim));
	if (p->op != OP_UNBIND)
		node_args(p->g, p->made)[1] = arg_ints(p->g, sizes, p->nresult);
	return true;
}

/* ---- where(condition, x, number): the number became a tensor ----------------------------------------------------------------------------- */

bool
recompose_where(const struct pieces *p, const struct recompose_row *row)
{
	static const char *const names[] = {"condition", "self", "other"};
	uint32_t n, t;

	(void)row;
	if (p->nresult != 1 || !has_op(p, OP_WHERE, &n))
		return false;
	for (unsigned i = 0; i < 3; i++) {
		struct arg a = *node_arg(p->g, n, names[i]);

		if (a.kind == ARG_VAL && recompose_is_piece(p, a.u.val)) {
			t = p->g->vals[a.u.val].node;
			if (p->g->nodes[t].op != OP_SCALAR_TENSOR && p->g->nodes[t].op != OP_FULL)
				return false;
			a = *node_arg(p->g, t, p->g->nodes[t].op == OP_FULL ? "fill_value" : "s");
		}
		recompose_set(p, names[i], a);
	}
	return true;
}

/* ---- made from nothing --------------------------------------------------------------------------------------------------------------------- */

/* A whole call, and no dtype in it. */
static bool
names_no_dtype(const struct pieces *p)
{
	const struct node *x = &p->g->nodes[p->made];
	struct str line = x->nframe ? graph_str(p->g, p->g->frames[x->frame + x->nframe - 1].text) : S("");
	int depth = 0;

	for (uint32_t i = 0; i < line.n; i++)
		depth += (line.p[i] == '(') - (line.p[i] == ')');
	return line.n && !depth && !memmem(line.p, line.n, "dtype", 5);
}

/* zeros(4), linspace(0, 1, 16): the pieces always say a dtype, the program only where it does not want the default. */
bool
recompose_created(const struct pieces *p, const struct recompose_row *row)
{
	const struct val *x = &p->g->vals[p->result[0]];

	(void)row;
	if (p->nresult != 1 || p->noperand || !graph_is_sized(p->g, p->result[0]) || (p->op == OP_LINSPACE && x->rank != 1))
		return false;
	if (p->op == OP_LINSPACE) {
		recompose_set(p, "start", arg_int(0));
		recompose_set(p, "end", arg_int(1));
		recompose_set(p, "steps", (struct arg){.kind = ARG_INT, .u.i = val_dims(p->g, p->result[0])[0]});
	} else {
		recompose_set(p, "size", sizes_of(p, p->result[0], 0));
	}
	if (!names_no_dtype(p))
		recompose_set(p, "dtype", arg_dtype(x->dtype));
	return true;
}

/* ---- conversions ------------------------------------------------------------------------------------------------------------------------- */

/* The exporter says a layout and a device that the program did not ask for. */
bool
recompose_convert(const struct pieces *p, const struct recompose_row *row)
{
	struct str target = graph_str(p->g, p->g->nodes[p->made].fx_target);
	struct arg a;

	(void)row;
	if (p->nresult != 1 || p->noperand != 1 || !copy_argument(p, S("dtype"), &a))
		return false;
	recompose_set(p, "self", arg_val(p->operand[0]));
	recompose_set(p, "dtype", a);
	if ((str_ends(target, S(".device")) || str_ends(target, S(".dtype_layout"))) && copy_argument(p, S("device"), &a))
		recompose_set(p, "device", a);
	return true;
}

/* ---- contiguous ---------------------------------------------------------------------------------------------------------------------------- */

bool
recompose_contiguous(const struct pieces *p, const struct recompose_row *row)
{
	const struct val *x = &p->g->vals[p->operand[0]], *y = &p->g->vals[p->result[0]];

	if (x->rank == RANK_UNKNOWN || x->rank != y->rank || memcmp(val_dims(p->g, p->operand[0]), val_dims(p->g, p->result[0]), x->rank * sizeof(struct sint)) != 0)
		return false;          /* a view that was made anew is among the pieces */
	return recompose_in_order(p, row);
}

/* ---- reshape, flatten ---------------------------------------------------------------------------------------------------------------- */

/* Whether it copies is the strides' business, which differ from those of the machine that exported. */
bool
recompose_reshape(const struct pieces *p, const struct recompose_row *row)
{
	(void)row;
	if (p->nresult != 1 || p->noperand != 1 || !graph_is_sized(p->g, p->result[0]))
		return false;
	p->g->nodes[p->made].op = OP_RESHAPE;
	p->g->nodes[p->made].narg = (uint16_t)op_narg(OP_RESHAPE);
	recompose_set(p, "self", arg_val(p->operand[0]));
	recompose_set(p, "shape", sizes_of(p, p->result[0], 0));
	return true;
}

/* ---- recurrent cells ----------------------------------------------------------------------------------------------------------------- */

static bool
is_weight(const struct pieces *p, uint32_t v, const char *name)
{
	return p->g->vals[v].kind == VAL_PARAM && str_ends(graph_str(p->g, p->g->vals[v].full), str_of(name));
}

static uint32_t
find_weight(const struct pieces *p, const char *name)
{
	for (uint32_t i = 0; i < p->noperand; i++)
		if (is_weight(p, p->operand[i], name))
			return p->operand[i];
	return 0;
}

/* What is multiplied with that weight. */
static uint32_t
partner(const struct pieces *p, uint32_t weight)
{
	uint32_t n;

	for (uint32_t i = 0; i < p->nnode; i++)
		if (p->g->nodes[p->node[i]].op == OP_LINEAR && operand(p->g, p->node[i], "weight") == weight)
			return operand(p->g, p->node[i], "input");
	for (unsigned k = 0; (n = product(p, k)); k++)
		if (factor(p, n, 1) == weight)
			return factor(p, n, 0);
	return 0;
}

/* On the CPU a cell is traced as its operators, hidden state last. */
bool
recompose_cell(const struct pieces *p, const struct recompose_row *row)
{
	uint32_t w_ih = find_weight(p, "weight_ih"), w_hh = find_weight(p, "weight_hh"), b_ih = find_weight(p, "bias_ih"), b_hh = find_weight(p, "bias_hh");
	uint32_t x = w_ih ? partner(p, w_ih) : 0, h = w_hh ? partner(p, w_hh) : 0, known[] = {w_ih, w_hh, b_ih, b_hh, x, h}, state[2], *out = node_outs(p->g, p->made);
	bool lstm = p->op == OP_LSTM_CELL;

	(void)row;
	state[0] = h;
	state[1] = lstm ? other_operand(p, known, 6) : 0;
	if (!x || !h || (lstm && !state[1]) || p->nresult > 1u + lstm || p->g->vals[out[p->nresult - 1]].node != p->node[p->nnode - 1])
		return false;
	if (p->nresult == 2) {
		out[1] = out[0];
		out[0] = p->result[1];
	}
	recompose_set(p, "input", arg_val(x));
	recompose_set(p, "hx", lstm ? (struct arg){.kind = ARG_VALS, .first = ids_add(p->g, state, 2), .count = 2} : arg_val(h));
	recompose_set(p, "w_ih", arg_val(w_ih));
	recompose_set(p, "w_hh", arg_val(w_hh));
	if (b_ih && b_hh) {
		recompose_set(p, "b_ih", arg_val(b_ih));
		recompose_set(p, "b_hh", arg_val(b_hh));
	}
	return true;
}
