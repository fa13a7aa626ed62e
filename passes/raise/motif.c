#include "motif.h"

#include <math.h>
#include <stdlib.h>

enum kind { ANY, MAYBE, SCALAR, INTS, MAYBE_INTS, STORED, MATRIX, NUMBER, ABSENT, NODE };

struct motif {
	uint8_t kind, var;
	bool shared;
	uint16_t op;
	double number;
	struct str name;                   /* of a variable */
	const char *attr;                  /* an attribute that must have that value */
	struct str value;
	struct motif *operand, *attribute, *next;
	struct motif *vars;              /* the root's: all variables, by number, through their list */
};

struct reader {
	struct arena *a;
	struct str s;
	struct str names[MAX_VARS];
	uint8_t kinds[MAX_VARS];
	unsigned nvar, depth;
};

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static void
skip(struct reader *r)
{
	r->s = str_trim(r->s);
}

static bool
accept(struct reader *r, char c)
{
	skip(r);
	if (!r->s.n || r->s.p[0] != c)
		return false;
	r->s = str_sub(r->s, 1, r->s.n);
	return true;
}

static struct str
word(struct reader *r)
{
	uint32_t n = 0;
	struct str w;

	skip(r);
	while (n < r->s.n && (r->s.p[n] == '_' || r->s.p[n] == '.' || r->s.p[n] == '-' || (r->s.p[n] >= '0' && r->s.p[n] <= '9') ||
	    (r->s.p[n] >= 'a' && r->s.p[n] <= 'z') || (r->s.p[n] >= 'A' && r->s.p[n] <= 'Z')))
		n++;
	w = str_sub(r->s, 0, n);
	r->s = str_sub(r->s, n, r->s.n);
	return w;
}

static bool
variable(struct reader *r, struct motif *p, struct str name)
{
	unsigned v = 0;

	while (v < r->nvar && !str_eq(r->names[v], name))
		v++;
	if (v == MAX_VARS)
		return false;
	if (v == r->nvar) {
		r->names[v] = name;
		r->kinds[v] = p->kind;
		r->nvar++;
	}
	p->var = (uint8_t)v;
	p->name = name;
	return name.n > 0;
}

static unsigned
operator_named(struct reader *r, struct str name)
{
	bool inplace;
	unsigned op = op_by_name(str_fmt(r->a, "onnx.%.*s", SFMT(name)), &inplace);

	return op ? op : op_by_name(name, &inplace);
}

static bool read_operands(struct reader *, struct motif *);

static struct motif *
term(struct reader *r)
{
	struct motif *p = NEW(r->a, struct motif, 1);
	struct str w;

	p->shared = accept(r, '&');
	p->kind = accept(r, '$') ? SCALAR : accept(r, '#') ? INTS : accept(r, '@') ? STORED : accept(r, '^') ? MATRIX : ANY;
	w = word(r);
	if (!w.n)
		return NULL;
	if (p->kind == ANY && accept(r, '(')) {
		p->kind = NODE;
		p->op = (uint16_t)operator_named(r, w);
		return p->op && read_operands(r, p) ? p : NULL;
	}
	if (p->kind == ANY && ((w.p[0] >= '0' && w.p[0] <= '9') || w.p[0] == '-')) {
		p->kind = NUMBER;
		p->number = strtod(w.p, NULL);
		return p;
	}
	if (p->kind == ANY && str_eq(w, S("none"))) {
		p->kind = ABSENT;
		return p;
	}
	if (accept(r, '?'))
		p->kind = p->kind == INTS ? MAYBE_INTS : MAYBE;
	return variable(r, p, w) ? p : NULL;
}

/* "name=value", or a term */
static struct motif *
attribute_or_term(struct reader *r, bool *attribute)
{
	struct str kept = r->s, name = word(r);
	struct motif *p;

	*attribute = name.n && accept(r, '=');
	if (!*attribute) {
		r->s = kept;
		return term(r);
	}
	p = NEW(r->a, struct motif, 1);
	p->attr = str_fmt(r->a, "%.*s", SFMT(name)).p;
	p->value = word(r);
	return p->value.n ? p : NULL;
}

static bool
read_operands(struct reader *r, struct motif *p)
{
	struct motif **operand = &p->operand, **attribute = &p->attribute, *x;
	bool is_attribute;

	if (++r->depth > 16)
		return false;
	while (!accept(r, ')')) {
		x = attribute_or_term(r, &is_attribute);
		if (!x)
			return false;
		if (is_attribute) {
			*attribute = x;
			attribute = &x->next;
		} else {
			*operand = x;
			operand = &x->next;
		}
		accept(r, ',');
	}
	r->depth--;
	return true;
}

struct motif *
motif_parse(struct arena *a, const char *text)
{
	struct reader r = {.a = a, .s = str_of(text)};
	struct motif *p = term(&r), **tail;

	skip(&r);
	if (!p || p->kind != NODE || r.s.n)
		return NULL;
	tail = &p->vars;
	for (unsigned v = 0; v < r.nvar; v++, tail = &(*tail)->next) {
		*tail = NEW(a, struct motif, 1);
		**tail = (struct motif){.kind = r.kinds[v], .name = r.names[v]};
	}
	return p;
}

unsigned
motif_op(const struct motif *p)
{
	return p->op;
}

int
motif_var(const struct motif *p, struct str name)
{
	int i = 0;

	for (const struct motif *v = p->vars; v; v = v->next, i++)
		if (str_eq(v->name, name))
			return i;
	return -1;
}

enum motif_kind
motif_is(const struct motif *p, unsigned var)
{
	const struct motif *v = p->vars;

	while (v && var--)
		v = v->next;
	if (!v)
		return MOTIF_TENSOR;
	return v->kind == SCALAR ? MOTIF_NUMBER : v->kind == INTS || v->kind == MAYBE_INTS ? MOTIF_INTS : v->kind == MATRIX ? MOTIF_MATRIX : MOTIF_TENSOR;
}

/* ---- what the graph knows --------------------------------------------------------------------------------------------------- */

bool
scalar_of(const struct graph *g, uint32_t v, double *out)
{
	const struct val *x = &g->vals[v];

	if (!v || x->data == DATA_NONE || x->ndata != 1 || x->kind == VAL_PARAM || x->kind == VAL_BUFFER || x->rank > 1)
		return false;
	if (x->data == DATA_FLOATS)
		*out = g->floats[x->data_at];
	else
		*out = (double)g->ints[x->data_at].n;
	return x->data == DATA_FLOATS || !g->ints[x->data_at].expr;
}

uint32_t
maker_of(const struct graph *g, uint32_t v)
{
	return v && g->vals[v].kind == VAL_NODE && g->vals[v].out == 0 ? g->vals[v].node : 0;
}

uint32_t
operand_of(const struct graph *g, uint32_t n, unsigned i)
{
	const struct arg *a = node_args(g, n);

	if (g->nodes[n].narg && a->kind == ARG_VALS)
		return i < a->count ? g->ids[a->first + i] : 0;
	return i < g->nodes[n].narg && a[i].kind == ARG_VAL ? a[i].u.val : 0;
}

bool
has_perm(const struct graph *g, uint32_t n, const int64_t *want, unsigned rank)
{
	const struct arg *perm = n && g->nodes[n].op == OP_ONNX_TRANSPOSE ? node_arg(g, n, "perm") : NULL;

	if (!perm || perm->kind != ARG_INTS || perm->count != rank)
		return false;
	for (unsigned i = 0; i < rank; i++)
		if (g->ints[perm->first + i].n != want[i])
			return false;
	return true;
}

static bool
swaps_last_two(const struct graph *g, uint32_t n)
{
	const struct arg *perm = node_arg(g, n, "perm");
	uint32_t rank = perm && perm->kind == ARG_INTS ? perm->count : 0;

	if (rank < 2)
		return g->vals[operand_of(g, n, 0)].rank == 2;
	for (uint32_t i = 0; i + 2 < rank; i++)
		if (g->ints[perm->first + i].n != i)
			return false;
	return g->ints[perm->first + rank - 2].n == rank - 1;
}

uint32_t
stored_transposed(const struct graph *g, uint32_t v)
{
	uint32_t n = maker_of(g, v);

	if (g->vals[v].flags & VF_TRANSPOSED && g->vals[v].rank == 2)
		return v;
	if (!n || g->nodes[n].op != OP_ONNX_TRANSPOSE || !swaps_last_two(g, n))
		return 0;
	v = operand_of(g, n, 0);
	return g->vals[v].kind == VAL_PARAM && g->vals[v].rank == 2 && !(g->vals[v].flags & VF_TRANSPOSED) ? v : 0;
}

static bool
known_ints_of(const struct graph *g, uint32_t v)
{
	const struct val *x = &g->vals[v];

	if (x->data != DATA_INTS)
		return false;
	for (uint32_t i = 0; i < x->ndata; i++)
		if (g->ints[x->data_at + i].expr)
			return false;
	return true;
}

/* F.rms_norm, which an exporter decomposed: the sum with eps is of a kind that no line of Python makes, or it stands in PyTorch's own module. */
bool
rms_norm_was_decomposed(const struct graph *g, uint32_t sum)
{
	uint32_t scope = g->nodes[sum].scope;

	return str_starts(graph_str(g, g->nodes[sum].fx_target), S("aten.add.Scalar")) ||
	       (scope && str_ends(graph_str(g, g->scopes[scope].cls), S("torch.nn.modules.normalization.RMSNorm")));
}

/* ---- matching ---------------------------------------------------------------------------------------------------------------- */

static bool
bind(struct match *m, const struct motif *p, uint32_t v)
{
	if (m->var[p->var] && m->var[p->var] != v)
		return false;
	m->var[p->var] = v;
	return true;
}

static bool
attribute_is(const struct shaper *s, uint32_t n, const struct motif *p)
{
	struct shaper at = {.a = s->a, .g = s->g, .n = n};
	uint32_t x = operand_of(s->g, n, 0);
	int64_t want;
	double have;

	if (!str_int(p->value, &want))
		return str_eq(attr_str(&at, p->attr), p->value);
	have = attr_float(&at, p->attr);
	if (want < 0 && have >= 0 && x && s->g->vals[x].rank != RANK_UNKNOWN)
		have -= s->g->vals[x].rank;
	return fabs(have - (double)want) < 1e-9;
}

static bool match_value(const struct motif *, const struct shaper *, uint32_t v, struct match *);

static bool
commutes(unsigned op)
{
	return op == OP_ONNX_ADD || op == OP_ONNX_MUL || op == OP_ONNX_AND || op == OP_ONNX_OR || op == OP_ONNX_MAX || op == OP_ONNX_MIN || op == OP_ONNX_EQUAL;
}

static bool
match_operands(const struct motif *p, const struct shaper *s, uint32_t n, unsigned swap, struct match *m)
{
	unsigned i = 0;

	for (const struct motif *x = p->operand; x; x = x->next, i++)
		if (!match_value(x, s, operand_of(s->g, n, i ^ swap), m))
			return false;
	return true;
}

static bool
match_node(const struct motif *p, const struct shaper *s, uint32_t n, struct match *m)
{
	const struct node *node = s->g->nodes + n;
	struct match kept;

	if (!n || node->op != p->op || node->flags & NF_DEAD || m->nnode == MAX_MATCHED)
		return false;
	for (const struct motif *x = p->attribute; x; x = x->next)
		if (!attribute_is(s, n, x))
			return false;
	m->shared[m->nnode] = p->shared;
	m->node[m->nnode++] = n;
	kept = *m;
	if (match_operands(p, s, n, 0, m))
		return true;
	*m = kept;
	return commutes(p->op) && p->operand && p->operand->next && match_operands(p, s, n, 1, m);
}

static bool
match_value(const struct motif *p, const struct shaper *s, uint32_t v, struct match *m)
{
	const struct graph *g = s->g;
	double number;

	switch ((enum kind)p->kind) {
	case ANY:
		return v && bind(m, p, v);
	case MAYBE:
		return bind(m, p, v);
	case SCALAR:
		return scalar_of(g, v, &number) && bind(m, p, v);
	case INTS:
		return v && known_ints_of(g, v) && bind(m, p, v);
	case MAYBE_INTS:
		return (!v || known_ints_of(g, v)) && bind(m, p, v);
	case STORED:
		return v && (g->vals[v].kind == VAL_PARAM || g->vals[v].kind == VAL_BUFFER || g->vals[v].kind == VAL_CONST) && g->vals[v].rank == 1 && bind(m, p, v);
	case MATRIX:
		v = v ? stored_transposed(g, v) : 0;
		return v && bind(m, p, v);
	case NUMBER:
		return scalar_of(g, v, &number) && fabs(number - p->number) <= 1e-3 * fabs(p->number) + 1e-12;
	case ABSENT:
		return !v;
	case NODE:
		return match_node(p, s, maker_of(g, v), m);
	}
	return false;
}

bool
motif_match(const struct motif *p, const struct shaper *s, uint32_t n, struct match *m)
{
	*m = (struct match){0};
	return match_node(p, s, n, m);
}

bool
shows_casts(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (g->nodes[n].op == OP_ONNX_CAST && g->vals[operand_of(g, n, 0)].dtype == DT_FP32 && g->vals[node_outs(g, n)[0]].dtype == DT_FP32)
			return true;
	return false;
}

bool
takes_mean_squares(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++) {
		uint32_t square = g->nodes[n].op == OP_ONNX_REDUCE_MEAN ? maker_of(g, operand_of(g, n, 0)) : 0, x = square ? maker_of(g, operand_of(g, square, 0)) : 0;

		if (square && g->nodes[square].op == OP_ONNX_POW && !(x && g->nodes[x].op == OP_ONNX_SUB))
			return true;
	}
	return false;
}

/* ---- the exporter's record ------------------------------------------------------------------------------------------------------ */

struct str
record_of(const struct graph *g, uint32_t n, const char *op, int place)
{
	struct str args = graph_str(g, g->nodes[n].fx_args);
	int depth = 0;
	uint32_t start = 8;

	if (!str_starts(graph_str(g, g->nodes[n].fx_target), str_of(op)) || !str_starts(args, S("args = (")))
		return S("");
	for (uint32_t i = start; i < args.n && depth >= 0; i++) {
		char c = args.p[i];

		depth += c == '[' || c == '(';
		depth -= c == ']' || c == ')';
		if (depth > 0 || (c != ',' && depth == 0))
			continue;
		if (place-- == 0)
			return str_trim(str_sub(args, start, i));
		start = i + 1;
	}
	return S("");
}
