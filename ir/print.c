/*
 * The graph as text, for --dump-ir and for tests; frontend/textir.c reads it back. One line a thing:
 *
 *     memcrest-ir 1
 *     sym batch 2..
 *     input %ids : int64[batch, 8]
 *     param %w "embed.weight" : fp32[16, 4] trainable
 *     const %axes : int64[2]{1, -1}
 *     %y : fp32[batch, 8, 4] = embedding(weight=%w, indices=%ids) @"embed":"Embedding" !12 "x = self.embed(ids)"
 *     output %y
 *
 * Arguments carry the schema's names; absent ones are not printed. Braces hold elements that are known. @ is the module stack, ! a stack
 * frame, autocast the file's own, fx what an ONNX exporter says of the node that it took apart.
 */
#include "ir.h"

#include <string.h>

static void
quoted(struct buf *b, struct str s)
{
	buf_str(b, S("\""));
	for (uint32_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c == '"' || c == '\\')
			buf_fmt(b, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			buf_fmt(b, "\\x%02x", c);
		else
			buf_put(b, &s.p[i], 1);
	}
	buf_str(b, S("\""));
}

static bool
is_plain(struct str s)
{
	for (uint32_t i = 0; i < s.n; i++)
		if (!((s.p[i] | 32) >= 'a' && (s.p[i] | 32) <= 'z') && !(s.p[i] >= '0' && s.p[i] <= '9') && s.p[i] != '_' && s.p[i] != '.')
			return false;
	return s.n > 0;
}

static void
value(const struct graph *g, struct buf *b, uint32_t v)
{
	struct str name = graph_str(g, g->vals[v].name);

	if (!v) {
		buf_str(b, S("none"));
		return;
	}
	buf_str(b, S("%"));
	if (is_plain(name))
		buf_str(b, name);
	else
		quoted(b, name);
}

static void
integer(const struct graph *g, struct buf *b, struct sint s)
{
	if (s.expr)
		expr_print(g, s.expr, b);
	else
		buf_fmt(b, "%lld", (long long)s.n);
}

static void
elements(const struct graph *g, struct buf *b, const struct val *x)
{
	if (x->data == DATA_NONE)
		return;
	buf_str(b, S("{"));
	for (uint32_t i = 0; i < x->ndata; i++) {
		buf_str(b, i ? S(", ") : S(""));
		if (x->data == DATA_INTS)
			integer(g, b, g->ints[x->data_at + i]);
		else
			buf_fmt(b, "float(%.17g)", g->floats[x->data_at + i]);
	}
	buf_str(b, S("}"));
}

static void
type(const struct graph *g, struct buf *b, uint32_t v)
{
	const struct val *x = &g->vals[v];

	if (x->flags & VF_LIST && x->kind == VAL_NODE)
		buf_str(b, S(" : list"));
	if ((x->dtype == DT_NONE && x->rank == RANK_UNKNOWN) || x->flags & VF_LIST)
		return;
	buf_fmt(b, " : %s", dtype_info(x->dtype)->name);
	if (x->rank == RANK_UNKNOWN)
		return;
	buf_str(b, S("["));
	for (unsigned i = 0; i < x->rank; i++) {
		buf_str(b, i ? S(", ") : S(""));
		integer(g, b, val_dims(g, v)[i]);
	}
	buf_str(b, S("]"));
	elements(g, b, x);
}

static void
argument(const struct graph *g, struct buf *b, const struct arg *a)
{
	switch (a->kind) {
	case ARG_VAL:
		value(g, b, a->u.val);
		break;
	case ARG_INT:
		integer(g, b, a->u.i);
		break;
	case ARG_FLOAT:
		buf_fmt(b, "float(%.17g)", a->u.f);
		break;
	case ARG_BOOL:
		buf_str(b, a->u.b ? S("true") : S("false"));
		break;
	case ARG_DTYPE:
		buf_str(b, str_of(dtype_info(a->dtype)->name));
		break;
	case ARG_DTYPE_OF:
		buf_str(b, S("dtype("));
		value(g, b, a->u.val);
		buf_str(b, S(")"));
		break;
	case ARG_STR:
		quoted(b, graph_str(g, a->u.str));
		break;
	case ARG_VALS:
	case ARG_INTS:
	case ARG_FLOATS:
		buf_str(b, S("["));
		for (uint32_t i = 0; i < a->count; i++) {
			buf_str(b, i ? S(", ") : S(""));
			if (a->kind == ARG_VALS)
				value(g, b, g->ids[a->first + i]);
			else if (a->kind == ARG_INTS)
				integer(g, b, g->ints[a->first + i]);
			else
				buf_fmt(b, "float(%.17g)", g->floats[a->first + i]);
		}
		buf_str(b, S("]"));
		break;
	default:
		buf_str(b, S("none"));
	}
}

static void
scopes(const struct graph *g, struct buf *b, uint32_t s)
{
	if (g->scopes[s].depth > 1) {
		scopes(g, b, g->scopes[s].parent);
		buf_str(b, S("/"));
	}
	quoted(b, scope_path(g, s));
	if (g->scopes[s].cls) {
		buf_str(b, S(":"));
		quoted(b, graph_str(g, g->scopes[s].cls));
	}
}

static void
node(const struct graph *g, struct buf *b, uint32_t n)
{
	const struct node *x = &g->nodes[n];
	struct arg_name names[MAX_SCHEMA];
	uint32_t nname = op_args(x->op, names, MAX_SCHEMA);
	bool first = true;

	for (uint32_t k = 0; k < x->nout; k++) {
		buf_str(b, k ? S(", ") : S(""));
		value(g, b, node_outs(g, n)[k]);
		if (node_outs(g, n)[k])
			type(g, b, node_outs(g, n)[k]);
	}
	buf_str(b, x->nout ? S(" = ") : S(""));
	if (x->op)
		buf_str(b, str_of(op_info(x->op)->name));
	else
		quoted(b, graph_str(g, x->target));
	buf_str(b, x->flags & NF_INPLACE ? S("_(") : S("("));
	for (uint32_t k = 0; k < x->narg; k++) {
		if (node_args(g, n)[k].kind == ARG_NONE && x->op && !op_is_variadic(x->op))
			continue;
		buf_str(b, first ? S("") : S(", "));
		first = false;
		if (k < nname) {
			buf_str(b, names[k].name);
			buf_str(b, S("="));
		}
		argument(g, b, node_args(g, n) + k);
	}
	buf_str(b, S(")"));
	if (x->name && !(x->nout && node_outs(g, n)[0] && x->name == g->vals[node_outs(g, n)[0]].name)) {
		buf_str(b, S(" as "));
		quoted(b, graph_str(g, x->name));
	}
	if (x->flags & NF_NO_GRAD)
		buf_str(b, S(" no_grad"));
	if (x->autocast)
		buf_fmt(b, " autocast %s", x->autocast == AUTOCAST_OFF ? "off" : dtype_info(x->autocast)->name);
	if (x->fx) {
		buf_str(b, S(" fx "));
		quoted(b, graph_str(g, x->fx));
		buf_str(b, S(" "));
		quoted(b, graph_str(g, x->fx_target));
		buf_str(b, S(" "));
		quoted(b, graph_str(g, x->fx_args));
	}
	if (x->scope) {
		buf_str(b, S(" @"));
		scopes(g, b, x->scope);
	}
	for (uint32_t k = 0; k < x->nframe; k++) {
		buf_fmt(b, " !%u ", (unsigned)g->frames[x->frame + k].line);
		quoted(b, graph_str(g, g->frames[x->frame + k].text));
	}
	for (uint32_t k = 0; k < x->nhelper; k++) {
		buf_fmt(b, " ?%u ", (unsigned)g->frames[x->frame + x->nframe + k].line);
		quoted(b, graph_str(g, g->frames[x->frame + x->nframe + k].text));
	}
	for (uint32_t k = 0; k < x->nout; k++) {
		const struct val *v = &g->vals[node_outs(g, n)[k]];

		if (v->local && v->local_depth) {
			buf_fmt(b, " ~%u %u ", (unsigned)k, (unsigned)v->local_depth);
			quoted(b, graph_str(g, v->local));
		}
	}
	buf_str(b, S("\n"));
}

static void
definition(const struct graph *g, struct buf *b, uint32_t v)
{
	static const char *const kind[] = {[VAL_INPUT] = "input ", [VAL_PARAM] = "param ", [VAL_BUFFER] = "buffer ", [VAL_CONST] = "const "};
	const struct val *x = &g->vals[v];

	buf_str(b, str_of(kind[x->kind]));
	value(g, b, v);
	if (x->full) {
		buf_str(b, S(" "));
		quoted(b, graph_str(g, x->full));
	}
	type(g, b, v);
	if (x->kind == VAL_PARAM && x->flags & VF_TRAINABLE)
		buf_str(b, S(" trainable"));
	if (x->flags & VF_PERSISTENT)
		buf_str(b, S(" persistent"));
	if (x->tied) {
		buf_str(b, S(" tied "));
		value(g, b, x->tied);
	}
	if (x->flags & VF_TRANSPOSED)
		buf_str(b, S(" transposed"));
	buf_str(b, S("\n"));
}

void
graph_print(const struct graph *g, struct buf *b)
{
	buf_str(b, S("memcrest-ir 1\n"));
	for (uint32_t i = 1; i < g->nsym; i++) {
		buf_str(b, S("sym "));
		sym_print(g, i, b);
		buf_fmt(b, " %lld..", (long long)g->syms[i].min);
		if (g->syms[i].max >= 0)
			buf_fmt(b, "%lld", (long long)g->syms[i].max);
		if (g->syms[i].example)
			buf_fmt(b, " ~ %lld", (long long)g->syms[i].example);
		if (g->syms[i].value >= 0)
			buf_fmt(b, " = %lld", (long long)g->syms[i].value);
		buf_str(b, S("\n"));
	}
	for (uint32_t i = 0; i < g->nnote; i++) {
		buf_str(b, S("note "));
		quoted(b, g->notes[i]);
		buf_str(b, S("\n"));
	}
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind != VAL_NODE && g->vals[v].kind != VAL_NONE)
			definition(g, b, v);
	for (uint32_t n = 1; n < g->nnode; n++)
		if (!(g->nodes[n].flags & NF_DEAD))
			node(g, b, n);
	for (uint32_t i = 0; i < g->noutput; i++) {
		buf_str(b, S("output "));
		value(g, b, g->outputs[i]);
		buf_str(b, S("\n"));
	}
}
