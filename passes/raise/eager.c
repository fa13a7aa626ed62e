/*
 * eager: ONNX operators become the ATen operators that PyTorch ran, by the rows of eager.def: what an exporter took apart is put together, the rest is
 * translated one by one. Last nodes first, so that the largest motif that ends at a node is found before its parts; a node that nothing raised
 * reads goes away, and with it the arithmetic of sizes, whose results are numbers by now.
 */
#include "eager.h"

#include <string.h>

struct row {
	const char *text, *result;         /* result or code */
	const char *record;                /* the exporter's record of the node begins so */
	eager_code *code;
	const struct motif *motif;
	uint16_t next;                     /* row of the same operator + 1 */
};

static const struct row table[] = {
#define RAISE(motif, result) {motif, result, NULL, NULL, NULL, 0},
#define RECORD(record, motif, result) {motif, result, record, NULL, NULL, 0},
#define CODE(motif, function) {motif, NULL, NULL, eager_##function, NULL, 0},
#include "eager.def"
#undef RAISE
#undef RECORD
#undef CODE
};
#define NROW (sizeof table / sizeof table[0])

static bool
read_rows(struct raiser *r)
{
	struct arena *a = r->s.a->c->a;
	uint16_t *last = NEW(a, uint16_t, OP_COUNT);

	r->rows = NEW(a, struct row, NROW);
	r->first = NEW(a, uint16_t, OP_COUNT);
	for (uint16_t i = 0; i < NROW; i++) {
		unsigned op;

		r->rows[i] = table[i];
		r->rows[i].motif = motif_parse(a, table[i].text);
		if (!r->rows[i].motif)
			return diag(r->s.a->c, DIAG_INTERNAL, str_fmt(a, "eager.def: %s", table[i].text).p);
		op = motif_op(r->rows[i].motif);
		if (last[op])
			r->rows[last[op] - 1].next = (uint16_t)(i + 1);
		else
			r->first[op] = (uint16_t)(i + 1);
		last[op] = (uint16_t)(i + 1);
	}
	return true;
}

/* ---- what is used ------------------------------------------------------------------------------------------------------------ */

/* Operands that are read as numbers when the sizes are known: nothing needs to make them. */
static bool
is_plumbing(const struct graph *g, uint32_t n, uint32_t v, unsigned place)
{
	double number;
	unsigned op = g->nodes[n].op;

	if (op == OP_ONNX_SHAPE || op == OP_ONNX_SIZE || scalar_of(g, v, &number))
		return true;
	return place > 0 && g->vals[v].data == DATA_INTS &&
	       (op == OP_ONNX_RESHAPE || op == OP_ONNX_EXPAND || op == OP_ONNX_SLICE || op == OP_ONNX_TILE || op == OP_ONNX_PAD || op == OP_ONNX_UNSQUEEZE || op == OP_ONNX_SQUEEZE ||
	           op == OP_ONNX_RESIZE || op == OP_ONNX_SPLIT);
}

static void
count_uses(struct raiser *r)
{
	struct graph *g = r->g;
	bool *live = NEW(r->s.a->c->a, bool, g->nval);

	for (uint32_t i = 0; i < g->noutput; i++) {
		live[g->outputs[i]] = true;
		r->uses[g->outputs[i]]++;
		r->needed[g->outputs[i]] = true;
	}
	for (uint32_t n = g->nnode; n-- > 1;) {
		bool used = false;

		for (uint32_t k = 0; k < g->nodes[n].nout; k++)
			used |= live[node_outs(g, n)[k]];
		if (!used)
			continue;
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			if (!is_plumbing(g, n, it.val, it.arg)) {
				live[it.val] = true;
				r->uses[it.val]++;
			}
	}
}

/* ---- matching ------------------------------------------------------------------------------------------------------------------ */

/* Nobody else uses what is inside. */
static bool
is_private(struct raiser *r)
{
	const struct match *m = &r->m;

	for (unsigned i = 1; i < m->nnode; i++) {
		uint32_t v = node_outs(r->g, m->node[i])[0], inside = 0;

		if (m->shared[i])
			continue;
		for (unsigned k = 0; k < m->nnode; k++)
			for (struct operands it = operands_of(r->g, m->node[k]); operand_next(&it);)
				inside += it.val == v;
		if (r->uses[v] > inside)
			return false;
	}
	return true;
}

/* Every result that something reads has another in its place, as a mask of dropout or indices of a pool have not. */
static bool
is_replaced(const struct raiser *r, uint32_t n)
{
	for (uint32_t k = 0; k < r->g->nodes[n].nout; k++) {
		uint32_t v = node_outs(r->g, n)[k];

		if (r->needed[v] && !r->with[v] && r->g->vals[v].node == n)
			return false;
	}
	return true;
}

static void
keep_node(struct raiser *r, uint32_t n)
{
	for (uint32_t k = 0; k < r->g->nodes[n].nout; k++) {
		uint32_t v = node_outs(r->g, n)[k];

		r->with[v] = 0;
		if (v) {
			r->g->vals[v].node = n;
			r->g->vals[v].out = k;
		}
	}
}

/* Nothing in the motif has a record of its own: it is what the exporter made of the one operator. What others use, too, may come from another. */
static bool
is_one_record(const struct raiser *r)
{
	for (unsigned i = 1; i < r->m.nnode; i++) {
		uint32_t fx = r->g->nodes[r->m.node[i]].fx;

		if (!r->m.shared[i] && fx && fx != r->g->nodes[r->s.n].fx)
			return false;
	}
	return true;
}

static bool
raise_node(struct raiser *r)
{
	for (unsigned i = r->first[r->g->nodes[r->s.n].op]; i; i = r->rows[i - 1].next) {
		const struct row *row = &r->rows[i - 1];
		uint32_t kept = r->g->nnode;

		if (row->record && !str_starts(graph_str(r->g, r->g->nodes[r->s.n].fx_target), str_of(row->record)))
			continue;
		if (!motif_match(row->motif, &r->s, r->s.n, &r->m) || !is_private(r) || (row->record && !is_one_record(r)))
			continue;
		if ((row->code ? row->code(r) : eager_write(r, row->motif, row->result)) && is_replaced(r, r->s.n))
			return true;
		keep_node(r, r->s.n);
		for (uint32_t n = kept; n < r->g->nnode; n++)
			r->g->nodes[n].flags |= NF_DEAD;
	}
	return false;
}

static bool
is_needed(const struct raiser *r, uint32_t n)
{
	for (uint32_t k = 0; k < r->g->nodes[n].nout; k++) {
		uint32_t v = node_outs(r->g, n)[k];

		if (r->needed[v] && r->g->vals[v].node == n)           /* else what was raised already makes it */
			return true;
	}
	return false;
}

static void
raise_all(struct raiser *r)
{
	struct graph *g = r->g;

	for (r->s.n = r->nold; r->s.n-- > 1;) {
		if (is_needed(r, r->s.n) && (!op_is_onnx(g->nodes[r->s.n].op) || !raise_node(r))) {
			for (struct operands it = operands_of(g, r->s.n); operand_next(&it);)
				r->needed[it.val] = true;
			continue;
		}
		g->nodes[r->s.n].flags |= NF_DEAD;
	}
}

/* ---- afterwards ------------------------------------------------------------------------------------------------------------------ */

static void
replace_values(struct raiser *r, uint32_t nval)
{
	struct graph *g = r->g;

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			while (*it.slot < nval && r->with[*it.slot])
				*it.slot = r->with[*it.slot];
	for (uint32_t i = 0; i < g->noutput; i++)
		while (g->outputs[i] < nval && r->with[g->outputs[i]])
			g->outputs[i] = r->with[g->outputs[i]];
}

/* Parameters get the dims that the model declares; who wants them otherwise transposes them. */
static void
turn_parameters(struct graph *g)
{
	for (uint32_t v = 1; v < g->nval; v++) {
		struct val *x = &g->vals[v];
		struct sint *d = val_dims(g, v);

		if (!(x->flags & VF_TRANSPOSED) || x->rank > MAX_RANK)
			continue;
		x->flags &= (uint8_t)~VF_TRANSPOSED;
		for (unsigned i = 0; i < x->rank / 2; i++) {
			struct sint kept = d[i];

			d[i] = d[x->rank - 1 - i];
			d[x->rank - 1 - i] = kept;
		}
	}
}

/* Sizes, axes and numbers are arguments now; PyTorch holds no tensor for them. */
static void
drop_constants(struct graph *g)
{
	bool *used = NEW(g->c->a, bool, g->nval);

	for (uint32_t n = 1; n < g->nnode; n++)
		for (struct operands it = operands_of(g, n); operand_next(&it);)
			used[it.val] = true;
	for (uint32_t i = 0; i < g->noutput; i++)
		used[g->outputs[i]] = true;
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind == VAL_CONST && !used[v])
			g->vals[v].kind = VAL_NONE;
}

bool
pass_eager(struct analysis *a)
{
	struct graph *g = a->g;
	struct raiser r = {.s = {.a = a, .g = g, .bound = true}, .g = g, .nold = g->nnode, .shows_casts = shows_casts(g), .mean_squares = takes_mean_squares(g)};
	uint32_t nval = g->nval;
	bool any = false;

	for (uint32_t n = 1; n < g->nnode; n++)
		any |= op_is_onnx(g->nodes[n].op);
	if (!any)
		return true;
	r.uses = NEW(a->c->a, uint32_t, nval);
	r.with = NEW(a->c->a, uint32_t, nval);
	ROOM(a->c->a, r.needed, 0, r.needed_cap, nval);
	memset(r.needed, 0, nval * sizeof *r.needed);
	if (!read_rows(&r))
		return false;
	count_uses(&r);
	raise_all(&r);
	replace_values(&r, nval);
	turn_parameters(g);
	graph_splice(g, r.nold, r.behind);
	graph_compact(g);
	drop_constants(g);
	return true;
}
