/*
 * The text form of a graph (ir/print.c writes it): the frontend of tests, and of whoever wants to try a graph without a file
 * format. One line a thing; what is absent takes its default.
 *
 *     memcrest-ir 1
 *     sym NAME MIN..[MAX] [~ EXAMPLE]
 *     note "what was taken for granted"
 *     input|param|buffer|const VALUE ["full name"] [: TYPE] [trainable] [persistent] [tied VALUE] [transposed]
 *     VALUE [: TYPE], .. = OP[_]([name=]ARG, ..) [as "node"] [no_grad] [autocast DTYPE|off] [fx "name" "target" "arguments"] [@"path":"class"/..] [!LINE "statement"]..
 *     output VALUE
 *
 * VALUE is %name or %"any name"; TYPE is DTYPE[dim, ..]{element, ..}, elements only where they are known, or "list": all results as one;
 * ARG is a value, an expression, float(x), true, a dtype, "text", none, or a list.
 */
#include "textir.h"

#include <string.h>

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

static bool
scopes(struct reader *r, uint32_t n)
{
	uint32_t scope = 0;
	struct str path, cls;

	do {
		cls = S("");
		if (!text_quoted(r, &path) || (text_accept(r, ":") && !text_quoted(r, &cls)))
			return false;
		if (r->g->scopes[scope].depth >= r->c->lim.depth)
			return text_fail(r, "modules are nested too deep");
		scope = scope_add(r->g, scope, path, cls, 0);
	} while (text_accept(r, "/"));
	r->g->nodes[n].scope = scope;
	r->g->has_scopes = true;
	return true;
}

static bool
frames(struct reader *r, uint32_t n)
{
	struct graph *g = r->g;

	g->nodes[n].frame = g->nframe;
	for (bool helper; (helper = text_accept(r, "?")) || (text_accept(r, "!") && !g->nodes[n].nhelper);) {
		struct str text;
		int64_t line;

		if (!str_int(text_word(r), &line) || !text_quoted(r, &text))
			return text_fail(r, "a line number and a quoted statement are expected after !, a function after ?");
		if (g->nodes[n].nframe + g->nodes[n].nhelper >= r->c->lim.frames)
			return text_fail(r, "a stack has too many lines");
		ROOM(r->c->a, g->frames, g->nframe, g->frame_cap, 1);
		g->frames[g->nframe++] = (struct frame){(uint32_t)line, graph_name(g, text)};
		*(helper ? &g->nodes[n].nhelper : &g->nodes[n].nframe) += 1;
		*(text.n ? &g->has_frames : &g->has_lines) |= !helper;
	}
	return true;
}

/* ~0 2 "x": the first result's name, of the function that two lines of its first user's stack lead to. */
static bool
locals(struct reader *r, uint32_t n)
{
	while (text_accept(r, "~")) {
		struct str name;
		int64_t k, depth;

		if (!str_int(text_word(r), &k) || k < 0 || k >= r->g->nodes[n].nout || (text_skip(r), !str_int(text_word(r), &depth)) || depth < 1 || (text_skip(r), !text_quoted(r, &name)))
			return text_fail(r, "a result, a depth and a quoted name are expected after ~");
		r->g->vals[node_outs(r->g, n)[k]].local = graph_name(r->g, name);
		r->g->vals[node_outs(r->g, n)[k]].local_depth = (uint32_t)(depth < UINT16_MAX ? depth : UINT16_MAX);
	}
	return true;
}

static bool
fx(struct reader *r, uint32_t n)
{
	struct node *x = &r->g->nodes[n];
	struct str name, target, args;

	if (!text_quoted(r, &name) || (text_skip(r), !text_quoted(r, &target)) || (text_skip(r), !text_quoted(r, &args)))
		return false;
	x->fx = graph_name(r->g, name);
	x->fx_target = graph_name(r->g, target);
	x->fx_args = graph_name(r->g, args);
	return true;
}

static bool
autocast(struct reader *r, uint32_t n)
{
	struct str what;
	unsigned dtype;

	text_skip(r);
	what = text_word(r);
	dtype = dtype_by_name(what);
	if (!str_eq(what, S("off")) && !dtype_is_float(dtype))
		return text_fail(r, "autocast takes a floating-point dtype or off");
	r->g->nodes[n].autocast = (uint8_t)(dtype ? dtype : AUTOCAST_OFF);
	return true;
}

static bool
tail(struct reader *r, uint32_t n)
{
	struct str name;

	if (text_accept(r, "as ")) {
		if (!text_quoted(r, &name))
			return false;
		r->g->nodes[n].name = graph_name(r->g, name);
	}
	if (text_accept(r, "no_grad"))
		r->g->nodes[n].flags |= NF_NO_GRAD;
	if (text_accept(r, "autocast ") && !autocast(r, n))
		return false;
	if (text_accept(r, "fx ") && !fx(r, n))
		return false;
	if (text_accept(r, "@") && !scopes(r, n))
		return false;
	return frames(r, n) && locals(r, n);
}

static bool
operator(struct reader *r, unsigned *op, bool *inplace, struct str *target)
{
	*op = OP_NONE;
	*inplace = false;
	text_skip(r);
	if (r->s.n && r->s.p[0] == '"')
		return text_quoted(r, target);
	*target = text_word(r);
	*op = op_by_name(*target, inplace);
	return *op ? true : text_fail(r, str_fmt(r->c->a, "%.*s is no operator; memcrest --list-ops lists them (unknown ones are quoted)", SFMT(*target)).p);
}

static bool
node(struct reader *r)
{
	uint32_t outs[256], nout = 0, n;
	struct str target;
	unsigned op;
	bool inplace;

	text_skip(r);
	while (r->s.n && (nout || r->s.p[0] == '%') && !text_accept(r, "=")) {          /* without results a line begins with the operator */
		if (nout == 256)
			return text_fail(r, "too many results");
		if (!text_new_value(r, VAL_NODE, &outs[nout]) || !text_type(r, outs[nout]))
			return false;
		nout++;
		text_accept(r, ",");
	}
	if (!operator(r, &op, &inplace, &target) || !text_expect(r, "("))
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
	return text_arguments(r, n) && tail(r, n);
}

/* ---- other lines ------------------------------------------------------------------------------------------------------ */

static bool
symbol(struct reader *r)
{
	struct str name, range;
	int64_t dots, n;
	uint32_t s;

	text_skip(r);
	name = text_word(r);
	if (!name.n && !text_quoted(r, &name))
		return false;
	s = sym_add(r->g, name);
	text_skip(r);
	range = r->s;
	dots = str_find(range, '.');
	if (dots < 0 || !str_int(str_sub(range, 0, (uint32_t)dots), &r->g->syms[s].min))
		return text_fail(r, "a symbol's range is MIN..[MAX]");
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

	if (!text_new_value(r, kind, &v))
		return false;
	text_skip(r);
	if (r->s.n && r->s.p[0] == '"') {
		if (!text_quoted(r, &full))
			return false;
		r->g->vals[v].full = graph_name(r->g, full);
	}
	if (!text_type(r, v))
		return false;
	if (text_accept(r, "trainable"))
		r->g->vals[v].flags |= VF_TRAINABLE;
	if (text_accept(r, "persistent"))
		r->g->vals[v].flags |= VF_PERSISTENT;
	if (text_accept(r, "tied") && !text_known_value(r, &r->g->vals[v].tied))
		return false;
	if (text_accept(r, "transposed"))
		r->g->vals[v].flags |= VF_TRANSPOSED;
	if (kind == VAL_INPUT)
		graph_input(r->g, v);
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

	text_skip(r);
	if (!r->s.n || r->s.p[0] == '#' || text_accept(r, "memcrest-ir"))
		return true;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (text_accept(r, kinds[i].word))
			return definition(r, kinds[i].kind) && (text_skip(r), !r->s.n || text_fail(r, "unexpected text at the end"));
	if (text_accept(r, "sym "))
		return symbol(r);
	if (text_accept(r, "note "))
		return text_quoted(r, &text) && (graph_note(r->g, "%.*s", SFMT(text)), true);
	if (text_accept(r, "output ")) {
		if (!text_accept(r, "none") && !text_known_value(r, &v))
			return false;
		graph_output(r->g, v);
		return true;
	}
	return node(r) && (text_skip(r), !r->s.n || text_fail(r, "unexpected text at the end"));
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
			return diag(c, DIAG_TOO_MANY, "nodes", (unsigned long long)c->lim.nodes);
		if (!line(&r))
			return false;
	}
	frontend_file_dtype(r.g);
	return true;
}

const struct frontend frontend_textir = {"text-ir", "memcrest's own text form of a graph (--dump-ir)", probe, load};
