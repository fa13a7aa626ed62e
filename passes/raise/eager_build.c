/* Writing ATen nodes where ONNX ones stood. A result is written as a call: eager.def has the spelling. */
#include "eager.h"

#include <stdlib.h>

/* ---- nodes and operands ------------------------------------------------------------------------------------------------------ */

static uint32_t
new_value(struct raiser *r, uint32_t n, uint32_t k)
{
	uint32_t v = val_new(r->g, VAL_NODE, str_fmt(r->s.a->c->a, "%s_%u_%u", op_info(r->g->nodes[n].op)->name, (unsigned)n, (unsigned)k));

	r->g->vals[v].node = n;
	r->g->vals[v].out = k;
	ROOM(r->s.a->c->a, r->needed, v, r->needed_cap, 1);
	r->needed[v] = false;
	return v;
}

uint32_t
eager_node(struct raiser *r, unsigned op, unsigned nout)
{
	uint32_t n = node_beside(r->g, op, r->s.n, nout), at = n - r->nold;

	for (unsigned k = 0; k < nout; k++) {
		uint32_t v = new_value(r, n, k);

		node_outs(r->g, n)[k] = v;
	}
	ROOM(r->s.a->c->a, r->behind, at, r->behind_cap, 1);
	r->behind[at] = r->s.n;
	return n;
}

void
eager_arg(struct raiser *r, uint32_t n, const char *name, struct arg a)
{
	struct arg *slot = node_arg(r->g, n, name);

	if (slot)
		*slot = a;
}

uint32_t
eager_reads(struct raiser *r, uint32_t v)
{
	uint32_t n;
	int64_t perm[MAX_RANK];
	unsigned rank = r->g->vals[v].rank;

	if (r->g->vals[v].flags & VF_TRANSPOSED && rank <= MAX_RANK) {
		n = eager_node(r, OP_PERMUTE, 1);
		node_args(r->g, n)[0] = arg_val(v);
		for (unsigned i = 0; i < rank; i++)
			perm[i] = (int64_t)(rank - 1 - i);
		eager_ints(r, n, "dims", perm, rank);
		v = eager_out(r, n);
		val_shape(r->g, v, rank, val_dims(r->g, node_args(r->g, n)[0].u.val));
		r->g->vals[v].dtype = r->g->vals[node_args(r->g, n)[0].u.val].dtype;
	}
	r->needed[v] = true;
	return v;
}

void
eager_tensor(struct raiser *r, uint32_t n, const char *name, uint32_t v)
{
	if (v)
		eager_arg(r, n, name, arg_val(eager_reads(r, v)));
}

void
eager_tensors(struct raiser *r, uint32_t n, const char *name, const uint32_t *val, uint32_t count)
{
	uint32_t *ids = NEW(r->s.a->c->a, uint32_t, count + 1);

	for (uint32_t i = 0; i < count; i++)
		ids[i] = val[i] ? eager_reads(r, val[i]) : 0;
	eager_arg(r, n, name, (struct arg){.kind = ARG_VALS, .first = ids_add(r->g, ids, count), .count = count});
}

void
eager_ints(struct raiser *r, uint32_t n, const char *name, const int64_t *x, uint32_t count)
{
	eager_arg(r, n, name, arg_ints(r->g, x, count));
}

uint32_t
eager_out(const struct raiser *r, uint32_t n)
{
	return node_outs(r->g, n)[0];
}

void
eager_results(struct raiser *r, uint32_t n)
{
	struct node *old = &r->g->nodes[r->s.n], *x = &r->g->nodes[n];

	for (unsigned k = 0; k < x->nout && k < old->nout; k++) {
		uint32_t v = node_outs(r->g, r->s.n)[k];

		if (!v)
			continue;
		node_outs(r->g, n)[k] = v;
		r->g->vals[v].node = n;
		r->g->vals[v].out = k;
	}
}

void
eager_same(struct raiser *r, uint32_t v)
{
	r->with[node_outs(r->g, r->s.n)[0]] = eager_reads(r, v);
}

bool
eager_size(const struct raiser *r, uint32_t v, int64_t *dim, unsigned *rank)
{
	*rank = r->g->vals[v].rank;
	if (!v || *rank > MAX_RANK)
		return false;
	for (unsigned i = 0; i < *rank; i++) {
		struct sint d = val_dims(r->g, v)[i];

		dim[i] = d.expr ? r->g->exprs[d.expr].n : d.n;
		if (d.expr && !r->g->exprs[d.expr].known)
			return false;
	}
	return true;
}

/* ---- the exporter's record ------------------------------------------------------------------------------------------------------ */

struct str
eager_recorded(const struct raiser *r, const char *op, int place)
{
	return record_of(r->g, r->s.n, op, place);
}

uint32_t
eager_contiguous(struct raiser *r, uint32_t v)
{
	uint32_t n = eager_node(r, OP_CONTIGUOUS, 1);

	eager_tensor(r, n, "self", v);
	return eager_out(r, n);
}

/* x.contiguous() is a copy that changes nothing: exporters drop it, but name it in their record. */
uint32_t
eager_copied(struct raiser *r, const char *op, int place, uint32_t v)
{
	if (!str_starts(eager_recorded(r, op, place), S("%clone")) || str_starts(graph_str(r->g, r->g->vals[v].name), S("clone")))
		return v;
	return eager_contiguous(r, v);
}

/* ---- calls as text ---------------------------------------------------------------------------------------------------------------- */

struct writer {
	struct raiser *r;
	const struct motif *motif;
	struct str s;
	unsigned depth;
};

static bool
accept(struct writer *w, char c)
{
	w->s = str_trim(w->s);
	if (!w->s.n || w->s.p[0] != c)
		return false;
	w->s = str_sub(w->s, 1, w->s.n);
	return true;
}

static struct str
word(struct writer *w)
{
	uint32_t n = 0;
	struct str x;

	w->s = str_trim(w->s);
	while (n < w->s.n && w->s.p[n] != '(' && w->s.p[n] != ')' && w->s.p[n] != ',' && w->s.p[n] != '=' && w->s.p[n] != ' ')
		n++;
	x = str_sub(w->s, 0, n);
	w->s = str_sub(w->s, n, w->s.n);
	return x;
}

/* A variable of the motif: a tensor, numbers, or absent. */
static bool
variable(struct writer *w, struct str name, struct arg *out)
{
	struct graph *g = w->r->g;
	int i = motif_var(w->motif, name);
	uint32_t v = i < 0 ? 0 : w->r->m.var[i];
	const struct val *x = &g->vals[v];
	double number;

	*out = (struct arg){.kind = ARG_NONE};
	if (i < 0 || !v)
		return i >= 0;
	switch (motif_is(w->motif, (unsigned)i)) {
	case MOTIF_NUMBER:
		scalar_of(g, v, &number);
		*out = x->data == DATA_FLOATS ? arg_float(number) : arg_int(g->ints[x->data_at].n);
		return true;
	case MOTIF_INTS:
		*out = (struct arg){.kind = ARG_INTS, .first = ints_add(g, g->ints + x->data_at, x->ndata), .count = x->ndata};
		return true;
	case MOTIF_MATRIX:
		w->r->needed[v] = true;
		*out = arg_val(v);
		return true;
	case MOTIF_TENSOR:
		*out = arg_val(eager_reads(w->r, v));
		return true;
	}
	return false;
}

/* "%axis": an attribute of the raised node, or its default. "%size", "%type": the dims and the dtype of its result. */
static bool
attribute(struct writer *w, struct str name, struct arg *out)
{
	struct raiser *r = w->r;
	const char *text = str_fmt(r->s.a->c->a, "%.*s", SFMT(name)).p;
	int64_t dim[MAX_RANK], n;
	unsigned rank;

	if (str_eq(name, S("size"))) {
		if (!eager_size(r, node_outs(r->g, r->s.n)[0], dim, &rank))
			return false;
		*out = arg_ints(r->g, dim, rank);
		return true;
	}
	if (str_eq(name, S("type"))) {
		*out = arg_dtype(r->g->vals[node_outs(r->g, r->s.n)[0]].dtype);
		return true;
	}
	*out = *arg_of(&r->s, text);
	if (out->kind != ARG_NONE)
		return true;
	n = attr_int(&r->s, text);
	*out = attr_float(&r->s, text) == (double)n ? arg_int(n) : arg_float(attr_float(&r->s, text));
	return true;
}

static bool
dims(struct writer *w, struct str name, struct arg *out)
{
	int i = motif_var(w->motif, name);
	int64_t dim[MAX_RANK];
	unsigned rank;

	if (i < 0 || !eager_size(w->r, w->r->m.var[i], dim, &rank))
		return false;
	*out = arg_ints(w->r->g, dim, rank);
	return true;
}

static bool call(struct writer *, struct str name, uint32_t *node);

static bool
term(struct writer *w, struct arg *out)
{
	struct str x = word(w);
	int64_t n;
	uint32_t node;

	if (str_eq(x, S("dims")))
		return accept(w, '(') && dims(w, word(w), out) && accept(w, ')');
	if (w->s.n && w->s.p[0] == '(') {
		if (!call(w, x, &node))
			return false;
		*out = arg_val(eager_out(w->r, node));
		w->r->needed[out->u.val] = true;
		return true;
	}
	if (x.n && x.p[0] == '%')
		return attribute(w, str_sub(x, 1, x.n), out);
	if (str_eq(x, S("none"))) {
		*out = (struct arg){.kind = ARG_NONE};
		return true;
	}
	if (str_eq(x, S("true")) || str_eq(x, S("false"))) {
		*out = arg_bool(x.p[0] == 't');
		return true;
	}
	if (x.n && x.p[0] == '\'') {
		*out = (struct arg){.kind = ARG_STR, .u.str = graph_name(w->r->g, str_sub(x, 1, x.n - 1))};
		return true;
	}
	if (x.n && ((x.p[0] >= '0' && x.p[0] <= '9') || x.p[0] == '-')) {
		*out = str_int(x, &n) ? arg_int(n) : arg_float(strtod(x.p, NULL));
		return true;
	}
	return variable(w, x, out);
}

/* Flags are integers in ONNX. */
static struct arg
as_declared(struct arg a, struct str dflt)
{
	if (a.kind == ARG_INT && (str_eq(dflt, S("True")) || str_eq(dflt, S("False"))))
		return arg_bool(a.u.i.n != 0);
	return a;
}

static bool
call(struct writer *w, struct str name, uint32_t *node)
{
	struct arg_name names[MAX_SCHEMA];
	struct arg args[MAX_SCHEMA] = {0};
	bool inplace;
	unsigned op = op_by_name(name, &inplace), at = 0;
	uint32_t narg = op ? op_args(op, names, MAX_SCHEMA) : 0;

	if (!op || ++w->depth > 8 || !accept(w, '('))
		return false;
	while (!accept(w, ')')) {
		struct str kept = w->s, key = word(w);
		int i = accept(w, '=') ? op_arg_index(op, key) : (w->s = kept, (int)at);

		if (i < 0 || (uint32_t)i >= narg || !term(w, &args[i]))
			return false;
		args[i] = as_declared(args[i], names[i].dflt);
		at = (unsigned)i + 1;
		accept(w, ',');
	}
	w->depth--;
	*node = eager_node(w->r, op, w->s.n && w->s.p[0] == '*' ? w->r->g->nodes[w->r->s.n].nout : 1);
	for (uint32_t i = 0; i < narg; i++)
		node_args(w->r->g, *node)[i] = args[i];
	return true;
}

bool
eager_write(struct raiser *r, const struct motif *m, const char *result)
{
	struct writer w = {.r = r, .motif = m, .s = str_of(result)};
	struct str name = word(&w);
	uint32_t node;
	int var;

	if (!w.s.n) {
		var = motif_var(m, name);
		if (var < 0)
			return false;
		eager_same(r, r->m.var[var]);
		return true;
	}
	if (!call(&w, name, &node))
		return false;
	eager_results(r, node);
	return true;
}
