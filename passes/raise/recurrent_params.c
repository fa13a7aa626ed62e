/*
 * The parameters of recurrent layers. A weight of the file has all of a layer's directions one after the other, and the biases of the input's product before
 * those of the state's; its pieces are slices of parameters where the exporter's nodes are there, and one constant where it folded them.
 */
#include "recurrent.h"

#include <string.h>

#define MAX_PIECES 64u
#define MAX_SLOTS 4u
#define MAX_DEPTH 8u

struct piece {
	uint32_t val;
	int64_t count;             /* elements of it */
};

struct pieces {
	struct piece of[MAX_PIECES];
	unsigned n;
};

enum which { W_IH, W_HH, B_IH, B_HH, NWHICH };

/* ---- pieces ----------------------------------------------------------------------------------------------------------------------------- */

static bool
count_of(const struct graph *g, uint32_t v, int64_t *count)
{
	int64_t dim[MAX_RANK];
	unsigned rank = g->vals[v].rank;

	*count = 1;
	if (!recurrent_size(g, v, rank, dim))
		return false;
	for (unsigned i = 0; i < rank; i++)
		if (!mul_i64(*count, dim[i], count))
			return false;
	return true;
}

static bool
add_piece(const struct graph *g, struct pieces *p, uint32_t v, uint32_t size)
{
	if (p->n == MAX_PIECES || !count_of(g, size, &p->of[p->n].count))
		return false;
	p->of[p->n++].val = v;
	return true;
}

static bool
is_stored(const struct graph *g, uint32_t v)
{
	return v && (g->vals[v].kind == VAL_PARAM || g->vals[v].kind == VAL_CONST || g->vals[v].kind == VAL_BUFFER);
}

static bool
collect(struct recurrent *r, struct pieces *p, uint32_t v, unsigned depth)
{
	struct graph *g = r->g;
	uint32_t n = maker_of(g, v), x;

	if (is_stored(g, v))
		return add_piece(g, p, v, v);
	if (!n || depth == MAX_DEPTH)
		return false;
	x = operand_of(g, n, 0);
	switch (g->nodes[n].op) {
	case OP_ONNX_UNSQUEEZE:
	case OP_ONNX_SQUEEZE:
	case OP_ONNX_RESHAPE:
	case OP_ONNX_IDENTITY:
		return collect(r, p, x, depth + 1);
	case OP_ONNX_SLICE:
		return is_stored(g, x) && add_piece(g, p, x, v);
	case OP_ONNX_CONCAT:
		r->s.n = n;
		if (attr_int(&r->s, "axis") != 0)
			return false;
		for (unsigned i = 0; (x = operand_of(g, n, i)) != 0; i++)
			if (!collect(r, p, x, depth + 1))
				return false;
		return true;
	default:
		return false;
	}
}

/* Which parameter has each of the slots; 0 = a constant has several, or what is left of one. */
static bool
assign(struct recurrent *r, const struct pieces *p, unsigned slots, int64_t size, uint32_t *out)
{
	int64_t at = 0, whole;

	if (size <= 0)
		return false;
	for (unsigned i = 0; i < p->n; i++) {
		uint32_t v = p->of[i].val;
		int64_t slot = at / size;
		bool alone = r->g->vals[v].kind == VAL_PARAM && count_of(r->g, v, &whole) && whole == size;

		if (slot >= slots || (alone && at % size && out[slot] != v) || (!alone && (at % size || p->of[i].count % size)))
			return false;
		if (alone)
			out[slot] = v;
		if (!add_i64(at, p->of[i].count, &at))
			return false;
	}
	return at == size * slots;
}

/* ---- names -------------------------------------------------------------------------------------------------------------------------------- */

/* "%p_rnn_weight_ih_l0" of a record is the parameter "rnn.weight_ih_l0". */
static bool
is_recorded_as(struct str name, struct str alias)
{
	if (name.n + 2 != alias.n || !str_starts(alias, S("p_")))
		return false;
	for (uint32_t i = 0; i < name.n; i++)
		if (alias.p[i + 2] != name.p[i] && alias.p[i + 2] != '_')
			return false;
	return true;
}

/* The operands that the exporter's record names, from behind: 0 = the last. */
static struct str
recorded(struct str args, unsigned back)
{
	uint32_t end = args.n;

	for (uint32_t at = args.n; at-- > 0;) {
		char c = args.p[at];

		if (c == '%' && back-- == 0)
			return str_sub(args, at + 1, end);
		if (!(c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
			end = at;
	}
	return S("");
}

static struct str
full_name(struct recurrent *r, const struct stack *t, unsigned layer, unsigned direction, enum which which)
{
	static const char *const names[NWHICH] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
	struct str module = scope_path(r->g, r->g->nodes[t->layer[0].node].scope);

	return str_fmt(r->g->c->a, "%.*s%s%s_l%u%s", SFMT(module), module.n ? "." : "", names[which], layer, direction ? "_reverse" : "");
}

/* The place that the file's list of parameters has for it; 0 = none. */
static uint32_t
listed(const struct recurrent *r, struct str alias, struct str full)
{
	const struct graph *g = r->g;

	for (uint32_t v = 1; v < r->nval; v++) {
		struct str name = graph_str(g, g->vals[v].kind == VAL_PARAM ? g->vals[v].full : g->vals[v].name);

		if ((g->vals[v].kind == VAL_NONE || g->vals[v].kind == VAL_PARAM) && (str_eq(name, full) || (alias.n && is_recorded_as(name, alias))))
			return v;
	}
	return 0;
}

/* ---- parameters --------------------------------------------------------------------------------------------------------------------------- */

static uint32_t
parameter(struct recurrent *r, const struct stack *t, struct str alias, struct str full)
{
	struct graph *g = r->g;
	uint32_t v = listed(r, alias, full);

	if (v && g->vals[v].kind == VAL_PARAM)
		return v;
	if (!v)
		v = val_new(g, VAL_NONE, full);
	g->vals[v].kind = VAL_PARAM;
	g->vals[v].full = g->vals[v].name;
	g->vals[v].dtype = g->vals[t->input].dtype;
	g->vals[v].flags = VF_TRAINABLE;
	r->unpacked++;
	return v;
}

/* The slots of one of a layer's operands: parameters, 0 where it has to be made. */
static bool
read_operand(struct recurrent *r, uint32_t n, const char *name, unsigned slots, uint32_t *out, int64_t *size)
{
	struct pieces p = {.n = 0};
	int64_t count;
	uint32_t v;

	r->s.n = n;
	v = operand(&r->s, name);
	if (!v || !count_of(r->g, v, &count) || count % slots || !collect(r, &p, v, 0))
		return false;
	*size = count / slots;
	return assign(r, &p, slots, *size, out);
}

/* In the module's order: for each direction the weights of input and state, then the biases. */
static bool
read_layer(struct recurrent *r, const struct stack *t, unsigned layer, uint32_t *out, int64_t (*dim)[2])
{
	uint32_t n = t->layer[layer].node, found[NWHICH][2] = {{0}}, b[MAX_SLOTS] = {0};
	int64_t size[NWHICH] = {0};
	unsigned per = t->biases ? 4 : 2;

	if (!read_operand(r, n, "W", t->directions, found[W_IH], &size[W_IH]) || !read_operand(r, n, "R", t->directions, found[W_HH], &size[W_HH]))
		return false;
	if (t->biases && !read_operand(r, n, "B", 2 * t->directions, b, &size[B_IH]))
		return false;
	size[B_HH] = size[B_IH];
	for (unsigned d = 0; d < t->directions; d++) {
		found[B_IH][d] = b[2 * d];
		found[B_HH][d] = b[2 * d + 1];
		for (unsigned k = 0; k < per; k++) {
			int64_t rows = size[W_HH] / t->hidden;

			out[d * per + k] = found[k][d];
			dim[d * per + k][0] = rows;
			dim[d * per + k][1] = k < B_IH ? size[k] / rows : 0;
		}
	}
	return true;
}

/* What is stored as one tensor is several parameters, or one under another name. */
static void
forget_packed(struct recurrent *r, uint32_t n, const char *name, const uint32_t *found, unsigned total)
{
	struct graph *g = r->g;
	struct pieces p = {.n = 0};

	r->s.n = n;
	if (!operand(&r->s, name) || !collect(r, &p, operand(&r->s, name), 0))
		return;
	for (unsigned i = 0; i < p.n; i++) {
		struct val *x = &g->vals[p.of[i].val];
		bool kept = false;

		for (unsigned k = 0; k < total; k++)
			kept |= found[k] == p.of[i].val;
		if (kept)
			continue;
		x->kind = VAL_CONST;
		x->flags = 0;
		x->full = 0;
	}
}

static void
declare(struct graph *g, uint32_t v, const int64_t *dim)
{
	val_shape(g, v, dim[1] ? 2 : 1, (const struct sint[]){SINT(dim[0]), SINT(dim[1])});
}

bool
recurrent_params(struct recurrent *r, struct stack *t, struct arg *out)
{
	struct graph *g = r->g;
	unsigned per = t->biases ? 4 : 2, each = per * t->directions, total = each * t->n;
	uint32_t *found = NEW(g->c->a, uint32_t, total);
	int64_t (*dim)[2] = (int64_t (*)[2])NEW(g->c->a, int64_t, 2 * (size_t)total);
	struct str args = graph_str(g, g->nodes[t->layer[0].node].fx_args);

	if (t->hidden <= 0)
		return false;
	for (unsigned i = 0; i < t->n; i++)
		if (!read_layer(r, t, i, found + i * each, dim + i * each))
			return false;
	for (unsigned i = 0; i < total; i++) {
		struct str full = full_name(r, t, i / each, i % each / per, (enum which)(i % per));

		if (!found[i])
			found[i] = parameter(r, t, recorded(args, total - 1 - i), full);
		declare(g, found[i], dim[i]);
	}
	for (unsigned i = 0; i < t->n; i++) {
		forget_packed(r, t->layer[i].node, "W", found, total);
		forget_packed(r, t->layer[i].node, "R", found, total);
		forget_packed(r, t->layer[i].node, "B", found, total);
	}
	*out = (struct arg){.kind = ARG_VALS, .first = ids_add(g, found, total), .count = total};
	return true;
}
