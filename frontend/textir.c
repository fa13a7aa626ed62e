/*
 * The text form of a graph (ir/print.c writes it): the frontend of tests, and of whoever wants to try a graph without a file
 * format. One line a thing; what is absent takes its default.
 *
 *     memcrest-ir 1
 *     sym NAME MIN..[MAX] [~ EXAMPLE]
 *     note "what was taken for granted"
 *     input|param|buffer|const VALUE ["full name"] [: TYPE] [trainable] [persistent] [tied VALUE] [transposed]
 *     VALUE [: TYPE], .. = OP[_]([name=]ARG, ..) [as "node"] [no_grad] [fx "name" "target" "arguments"] [@"path":"class"/..] [!LINE "statement"]..
 *     output VALUE
 *
 * VALUE is %name or %"any name"; TYPE is DTYPE[dim, ..]{element, ..}, elements only where they are known, or "list": all results as one;
 * ARG is a value, an expression, float(x), true, a dtype, "text", none, or a list.
 */
#include "frontend.h"

#include <stdlib.h>
#include <string.h>

struct reader {
	struct ctx *c;
	struct graph *g;
	struct str s;              /* rest of the line */
	uint32_t line;
	uint32_t *val_of, cap;     /* by interned name */
	struct sint *ints;     uint32_t nint, int_cap;       /* the list being read */
	double *floats;        uint32_t nfloat, float_cap;
	uint32_t *ids;         uint32_t nid, id_cap;
	const char *error;
};

/* ---- words ------------------------------------------------------------------------------------------------ */

static bool
fail(struct reader *r, const char *why)
{
	if (!r->error) {
		r->error = why;
		diag(r->c, DIAG_TEXT_IR, r->line, why);
	}
	return false;
}

static void
skip(struct reader *r)
{
	while (r->s.n && (r->s.p[0] == ' ' || r->s.p[0] == '\t'))
		r->s = str_sub(r->s, 1, r->s.n);
}

static bool
accept(struct reader *r, const char *text)
{
	skip(r);
	if (!str_starts(r->s, str_of(text)))
		return false;
	r->s = str_sub(r->s, (uint32_t)strlen(text), r->s.n);
	return true;
}

static bool
expect(struct reader *r, const char *text)
{
	return accept(r, text) ? true : fail(r, str_fmt(r->c->a, "%s expected before \"%.*s\"", text, (int)(r->s.n < 20 ? r->s.n : 20), r->s.p).p);
}

static bool
is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

static struct str
word(struct reader *r)
{
	uint32_t n = 0;
	struct str w;

	skip(r);
	while (n < r->s.n && is_plain(r->s.p[n]))
		n++;
	w = str_sub(r->s, 0, n);
	r->s = str_sub(r->s, n, r->s.n);
	return w;
}

static int
hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool
quoted(struct reader *r, struct str *out)
{
	uint32_t n = 0, i = 0, end = 0;
	char *p;

	if (!accept(r, "\""))
		return fail(r, "a quoted text is expected");
	while (end < r->s.n && r->s.p[end] != '"')
		end += r->s.p[end] == '\\' ? 2 : 1;
	if (end >= r->s.n)
		return fail(r, "a quoted text has no end");
	for (p = NEW(r->c->a, char, end + 1); i < end; i++) {
		char ch = r->s.p[i];

		if (ch == '\\' && i + 3 < end && r->s.p[i + 1] == 'x' && hex(r->s.p[i + 2]) >= 0 && hex(r->s.p[i + 3]) >= 0) {
			ch = (char)(hex(r->s.p[i + 2]) * 16 + hex(r->s.p[i + 3]));
			i += 3;
		} else if (ch == '\\') {
			ch = r->s.p[++i];
		}
		p[n++] = ch;
	}
	r->s = str_sub(r->s, end + 1, r->s.n);
	*out = (struct str){p, n};
	return true;
}

/* ---- values -------------------------------------------------------------------------------------------------- */

static bool
value_name(struct reader *r, struct str *name)
{
	if (!expect(r, "%"))
		return false;
	if (r->s.n && r->s.p[0] == '"')
		return quoted(r, name);
	*name = word(r);
	return name->n ? true : fail(r, "a value has no name");
}

static uint32_t *
slot(struct reader *r, struct str name)
{
	uint32_t id = graph_name(r->g, name);

	if (id >= r->cap) {
		uint32_t old = r->cap, *p;

		r->cap = id * 2 + 64;
		p = NEW(r->c->a, uint32_t, r->cap);
		if (old)
			memcpy(p, r->val_of, old * sizeof *p);
		r->val_of = p;
	}
	return &r->val_of[id];
}

static bool
known_value(struct reader *r, uint32_t *out)
{
	struct str name;

	if (!value_name(r, &name))
		return false;
	*out = *slot(r, name);
	return *out ? true : fail(r, str_fmt(r->c->a, "%%%.*s is used but never defined", SFMT(name)).p);
}

static bool
new_value(struct reader *r, enum val_kind kind, uint32_t *out)
{
	struct str name;

	if (!value_name(r, &name))
		return false;
	if (*slot(r, name))
		return fail(r, str_fmt(r->c->a, "%%%.*s is defined twice", SFMT(name)).p);
	*out = val_new(r->g, kind, name);
	*slot(r, name) = *out;
	return true;
}

/* An expression ends at a comma or bracket of its own level. */
static bool
expression(struct reader *r, struct sint *out)
{
	int depth = 0;
	bool in_name = false;
	uint32_t n = 0, e;

	skip(r);
	for (; n < r->s.n; n++) {
		char c = r->s.p[n];

		in_name ^= c == '"';
		if (in_name)
			continue;
		if (depth == 0 && (c == ',' || c == ')' || c == ']' || c == '}'))
			break;
		depth += c == '(' || c == '[';
		depth -= c == ')' || c == ']';
	}
	if (!n)
		return fail(r, "a size is expected");
	if (accept(r, "int(")) {   /* a number that the graph computes */
		if (!known_value(r, &e) || !expect(r, ")"))
			return false;
		*out = (struct sint){0, expr_val(r->g, e)};
		return true;
	}
	if (!str_eq(str_trim(str_sub(r->s, 0, n)), S("?")))
		expr_parse(r->g, str_trim(str_sub(r->s, 0, n)), &e);
	else
		e = EXPR_UNKNOWN;
	*out = sint_of_expr(r->g, e);
	r->s = str_sub(r->s, n, r->s.n);
	return true;
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static bool
real(struct reader *r, double *out)
{
	char text[64], *end;
	uint32_t n = 0;

	while (n < r->s.n && n < sizeof text - 1 && r->s.p[n] != ')')
		n++;
	memcpy(text, r->s.p, n);
	text[n] = 0;
	*out = strtod(text, &end);
	if (end == text)
		return fail(r, "a number is expected");
	r->s = str_sub(r->s, n, r->s.n);
	return expect(r, ")");
}

/* The elements of a list up to the closing bracket, into the reader's own arrays. */
static bool
items(struct reader *r, const char *end, uint8_t *kind)
{
	r->nint = r->nfloat = r->nid = 0;
	*kind = ARG_INTS;
	while (!accept(r, end)) {
		bool ok;

		ROOM(r->c->a, r->ints, r->nint, r->int_cap, 1);
		ROOM(r->c->a, r->floats, r->nfloat, r->float_cap, 1);
		ROOM(r->c->a, r->ids, r->nid, r->id_cap, 1);
		skip(r);
		r->ids[r->nid] = 0;
		r->ints[r->nint] = SINT(0);
		r->floats[r->nfloat] = 0;
		if (accept(r, "float("))
			*kind = ARG_FLOATS, ok = real(r, &r->floats[r->nfloat]);
		else if (accept(r, "none"))
			*kind = ARG_VALS, ok = true;
		else if (r->s.n && r->s.p[0] == '%')
			*kind = ARG_VALS, ok = known_value(r, &r->ids[r->nid]);
		else
			ok = expression(r, &r->ints[r->nint]);
		if (!ok)
			return false;
		r->nint++;
		r->nfloat++;
		r->nid++;
		accept(r, ",");
	}
	return true;
}

static bool
list(struct reader *r, struct arg *out)
{
	uint8_t kind;

	if (!items(r, "]", &kind))
		return false;
	*out = (struct arg){.kind = kind, .count = r->nid};
	out->first = kind == ARG_VALS ? ids_add(r->g, r->ids, r->nid) : kind == ARG_FLOATS ? floats_add(r->g, r->floats, r->nid) : ints_add(r->g, r->ints, r->nid);
	return true;
}

/* What is known of a tensor's elements. No elements of an unnamed kind are integers. */
static bool
elements(struct reader *r, uint32_t v)
{
	uint8_t kind;

	if (!accept(r, "{"))
		return true;
	if (!items(r, "}", &kind))
		return false;
	if (kind == ARG_VALS)
		return fail(r, "elements are numbers");
	if (kind == ARG_FLOATS)
		val_floats(r->g, v, r->floats, r->nid);
	else
		val_ints(r->g, v, r->ints, r->nid);
	return true;
}

static bool
type(struct reader *r, uint32_t v)
{
	struct sint dims[MAX_RANK];
	unsigned rank = 0;
	struct str w;

	if (!accept(r, ":"))
		return true;
	if (accept(r, "list")) {
		r->g->vals[v].flags |= VF_LIST;
		return true;
	}
	if (!accept(r, "?")) {
		w = word(r);
		r->g->vals[v].dtype = (uint8_t)dtype_by_name(w);
		if (!r->g->vals[v].dtype)
			return fail(r, str_fmt(r->c->a, "%.*s is no dtype", SFMT(w)).p);
	}
	if (!accept(r, "["))
		return true;
	while (!accept(r, "]")) {
		if (rank == MAX_RANK)
			return fail(r, "too many dims");
		if (!expression(r, &dims[rank++]))
			return false;
		accept(r, ",");
	}
	val_shape(r->g, v, rank, dims);
	return elements(r, v);
}

static bool
argument(struct reader *r, struct arg *out)
{
	struct str text, rest;
	unsigned dt;

	skip(r);
	*out = (struct arg){.kind = ARG_NONE};
	if (r->s.n && r->s.p[0] == '%') {
		out->kind = ARG_VAL;
		return known_value(r, &out->u.val);
	}
	if (r->s.n && r->s.p[0] == '"') {
		out->kind = ARG_STR;
		return quoted(r, &text) && (out->u.str = graph_name(r->g, text), true);
	}
	if (accept(r, "["))
		return list(r, out);
	if (accept(r, "float(")) {
		out->kind = ARG_FLOAT;
		return real(r, &out->u.f);
	}
	if (accept(r, "dtype(")) {
		out->kind = ARG_DTYPE_OF;
		return known_value(r, &out->u.val) && expect(r, ")");
	}
	rest = r->s;
	text = word(r);
	dt = dtype_by_name(text);
	if (str_eq(text, S("none")))
		return true;
	if (str_eq(text, S("true")) || str_eq(text, S("false")))
		return *out = arg_bool(text.p[0] == 't'), true;
	if (dt)
		return *out = arg_dtype(dt), true;
	r->s = rest;
	out->kind = ARG_INT;
	return expression(r, &out->u.i);
}

/* "name=" before an argument; the schema gives its place */
static int
argument_place(struct reader *r, unsigned op, unsigned next)
{
	struct str rest = r->s, name = word(r);
	int at;

	if (!name.n || !accept(r, "=")) {
		r->s = rest;
		return (int)next;
	}
	at = op_arg_index(op, name);
	if (at < 0)
		fail(r, str_fmt(r->c->a, "%s has no argument %.*s", op_info(op)->name, SFMT(name)).p);
	return at;
}

static bool
arguments(struct reader *r, uint32_t n)
{
	unsigned op = r->g->nodes[n].op, next = 0;

	while (!accept(r, ")")) {
		struct arg a;
		int at = argument_place(r, op, next);

		if (at < 0 || !argument(r, &a))
			return false;
		if ((unsigned)at >= r->g->nodes[n].narg)
			return fail(r, "too many arguments");
		node_args(r->g, n)[at] = a;
		next = (unsigned)at + 1;
		accept(r, ",");
	}
	if (!op || op_is_variadic(op))
		r->g->nodes[n].narg = (uint16_t)(next > op_narg(op) ? next : op_narg(op));
	return true;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

static bool
scopes(struct reader *r, uint32_t n)
{
	uint32_t scope = 0;
	struct str path, cls;

	do {
		cls = S("");
		if (!quoted(r, &path) || (accept(r, ":") && !quoted(r, &cls)))
			return false;
		if (r->g->scopes[scope].depth >= r->c->lim.depth)
			return fail(r, "modules are nested too deep");
		scope = scope_add(r->g, scope, path, cls, 0);
	} while (accept(r, "/"));
	r->g->nodes[n].scope = scope;
	r->g->has_scopes = true;
	return true;
}

static bool
frames(struct reader *r, uint32_t n)
{
	struct graph *g = r->g;

	g->nodes[n].frame = g->nframe;
	while (accept(r, "!")) {
		struct str text;
		int64_t line;

		if (!str_int(word(r), &line) || !quoted(r, &text))
			return fail(r, "a line number and a quoted statement are expected after !");
		ROOM(r->c->a, g->frames, g->nframe, g->frame_cap, 1);
		g->frames[g->nframe++] = (struct frame){(uint32_t)line, graph_name(g, text)};
		g->nodes[n].nframe++;
		g->has_frames = true;
	}
	return true;
}

static bool
fx(struct reader *r, uint32_t n)
{
	struct node *x = &r->g->nodes[n];
	struct str name, target, args;

	if (!quoted(r, &name) || (skip(r), !quoted(r, &target)) || (skip(r), !quoted(r, &args)))
		return false;
	x->fx = graph_name(r->g, name);
	x->fx_target = graph_name(r->g, target);
	x->fx_args = graph_name(r->g, args);
	return true;
}

static bool
tail(struct reader *r, uint32_t n)
{
	struct str name;

	if (accept(r, "as ")) {
		if (!quoted(r, &name))
			return false;
		r->g->nodes[n].name = graph_name(r->g, name);
	}
	if (accept(r, "no_grad"))
		r->g->nodes[n].flags |= NF_NO_GRAD;
	if (accept(r, "fx ") && !fx(r, n))
		return false;
	if (accept(r, "@") && !scopes(r, n))
		return false;
	return frames(r, n);
}

static bool
operator(struct reader *r, unsigned *op, bool *inplace, struct str *target)
{
	*op = OP_NONE;
	*inplace = false;
	skip(r);
	if (r->s.n && r->s.p[0] == '"')
		return quoted(r, target);
	*target = word(r);
	*op = op_by_name(*target, inplace);
	return *op ? true : fail(r, str_fmt(r->c->a, "%.*s is no operator; memcrest --list-ops lists them (unknown ones are quoted)", SFMT(*target)).p);
}

static bool
node(struct reader *r)
{
	uint32_t outs[256], nout = 0, n;
	struct str target;
	unsigned op;
	bool inplace;

	skip(r);
	while (r->s.n && (nout || r->s.p[0] == '%') && !accept(r, "=")) {          /* without results a line begins with the operator */
		if (nout == 256)
			return fail(r, "too many results");
		if (!new_value(r, VAL_NODE, &outs[nout]) || !type(r, outs[nout]))
			return false;
		nout++;
		accept(r, ",");
	}
	if (!operator(r, &op, &inplace, &target) || !expect(r, "("))
		return false;
	n = node_new(r->g, op, op && !op_is_variadic(op) ? op_narg(op) : 256, nout);
	r->g->nodes[n].target = graph_name(r->g, target);
	r->g->nodes[n].flags = inplace ? NF_INPLACE : 0;
	r->g->nodes[n].name = nout ? r->g->vals[outs[0]].name : 0;
	r->g->file_nodes++;
	for (uint32_t k = 0; k < nout; k++) {
		node_outs(r->g, n)[k] = outs[k];
		r->g->vals[outs[k]].node = n;
		r->g->vals[outs[k]].out = k;
	}
	return arguments(r, n) && tail(r, n);
}

/* ---- other lines ------------------------------------------------------------------------------------------------------ */

static bool
symbol(struct reader *r)
{
	struct str name, range;
	int64_t dots, n;
	uint32_t s;

	skip(r);
	name = word(r);
	if (!name.n && !quoted(r, &name))
		return false;
	s = sym_add(r->g, name);
	skip(r);
	range = r->s;
	dots = str_find(range, '.');
	if (dots < 0 || !str_int(str_sub(range, 0, (uint32_t)dots), &r->g->syms[s].min))
		return fail(r, "a symbol's range is MIN..[MAX]");
	range = str_sub(range, (uint32_t)dots + 2, range.n);
	if (str_cut(&range, ' ', &r->s) && str_int(r->s, &n))
		r->g->syms[s].max = n;
	if (range.n && str_starts(range, S("~ ")) && str_int(str_sub(range, 2, range.n), &n))
		r->g->syms[s].example = n;
	r->s = S("");
	return true;
}

static bool
definition(struct reader *r, enum val_kind kind)
{
	struct str full;
	uint32_t v;

	if (!new_value(r, kind, &v))
		return false;
	skip(r);
	if (r->s.n && r->s.p[0] == '"') {
		if (!quoted(r, &full))
			return false;
		r->g->vals[v].full = graph_name(r->g, full);
	}
	if (!type(r, v))
		return false;
	if (accept(r, "trainable"))
		r->g->vals[v].flags |= VF_TRAINABLE;
	if (accept(r, "persistent"))
		r->g->vals[v].flags |= VF_PERSISTENT;
	if (accept(r, "tied") && !known_value(r, &r->g->vals[v].tied))
		return false;
	if (accept(r, "transposed"))
		r->g->vals[v].flags |= VF_TRANSPOSED;
	if (kind == VAL_INPUT)
		graph_input(r->g, v);
	if (kind == VAL_PARAM && !r->g->file_dtype && dtype_is_float(r->g->vals[v].dtype))
		r->g->file_dtype = r->g->vals[v].dtype;
	return true;
}

static bool
line(struct reader *r)
{
	static const struct {
		const char *word;
		enum val_kind kind;
	} kinds[] = {{"input ", VAL_INPUT}, {"param ", VAL_PARAM}, {"buffer ", VAL_BUFFER}, {"const ", VAL_CONST}};
	struct str text;
	uint32_t v = 0;

	skip(r);
	if (!r->s.n || r->s.p[0] == '#' || accept(r, "memcrest-ir"))
		return true;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (accept(r, kinds[i].word))
			return definition(r, kinds[i].kind) && (skip(r), !r->s.n || fail(r, "unexpected text at the end"));
	if (accept(r, "sym "))
		return symbol(r);
	if (accept(r, "note "))
		return quoted(r, &text) && (graph_note(r->g, "%.*s", SFMT(text)), true);
	if (accept(r, "output ")) {
		if (!accept(r, "none") && !known_value(r, &v))
			return false;
		graph_output(r->g, v);
		return true;
	}
	return node(r) && (skip(r), !r->s.n || fail(r, "unexpected text at the end"));
}

static int
probe(struct ctx *c, const struct source *src)
{
	(void)c;
	return src->n > 12 && memcmp(src->p, "memcrest-ir ", 12) == 0 ? 96 : 0;
}

static bool
load(struct ctx *c, const struct source *src, struct graph **out)
{
	struct reader r = {.c = c};
	struct str rest = {(const char *)src->p, (uint32_t)src->n};

	if (src->n > c->lim.member || src->n > INT32_MAX)
		return diag(c, DIAG_FILE_TOO_BIG, (unsigned long long)src->n, (unsigned long long)c->lim.member);
	r.g = *out = graph_new(c);
	r.g->producer = S("memcrest");
	while (str_cut(&rest, '\n', &r.s)) {
		r.line++;
		if (r.g->nnode >= c->lim.nodes)
			return diag(c, DIAG_TOO_MANY, "nodes", (unsigned long long)r.g->nnode, (unsigned long long)c->lim.nodes);
		if (!line(&r))
			return false;
	}
	if (!r.g->file_dtype)
		r.g->file_dtype = DT_FP32;
	return true;
}

const struct frontend frontend_textir = {"text-ir", "memcrest's own text form of a graph (--dump-ir)", probe, load};
