/*
 * The compiler of op.def's formulas. A formula becomes a list of instructions, each of which makes one
 * temporary; operands are compiled from right to left, which is the order in which gcc evaluates them
 * and the order that the logs show (rsqrt: pow(out) before -0.5 * g).
 *
 *     formula  := { "let" name "=" compare "in" } compare
 *     compare  := sum [ ("<" | ">" | "<=" | ">=" | "==" | "!=") sum ]
 *     sum      := product { ("+" | "-") product }
 *     product  := unary { ("*" | "/") unary }
 *     unary    := "-" unary | primary
 *     primary  := number | ["#"] name | name "(" [compare {"," compare}] ")" [":" dtype | ":=" ["#"] name] | "(" compare ")" | "{" compare "}"
 *
 * What follows "let" is a statement, and braces are a function of its own: of the temporaries in it only its value outlives it.
 *
 * Rows are constants, so a mistake in one is found by tests/test_ops.c, not by a user.
 */
#include "lower.h"

#include <string.h>

struct compiler {
	struct arena *a;
	struct op_code *code;
	struct insn insn[MAX_INSN];
	struct str s;              /* what is left of the text */
	struct str out[MAX_OUTS];
	unsigned ntmp;
	struct local {             /* of the formula at hand */
		struct str name;
		struct ref ref;
	} local[MAX_NAMED];
	unsigned nlocal;
	const char *error;
};

/* ---- words --------------------------------------------------------------------------------------- */

static void
skip(struct compiler *p)
{
	while (p->s.n && p->s.p[0] == ' ')
		p->s = str_sub(p->s, 1, p->s.n);
}

static bool
accept(struct compiler *p, const char *text)
{
	skip(p);
	if (!str_starts(p->s, str_of(text)))
		return false;
	p->s = str_sub(p->s, (uint32_t)strlen(text), p->s.n);
	return true;
}

static struct str
word(struct compiler *p)
{
	uint32_t n = 0;
	struct str w;

	skip(p);
	while (n < p->s.n && (p->s.p[n] == '_' || p->s.p[n] == '.' || (p->s.p[n] >= '0' && p->s.p[n] <= '9') || ((p->s.p[n] | 32) >= 'a' && (p->s.p[n] | 32) <= 'z')))
		n++;
	w = str_sub(p->s, 0, n);
	p->s = str_sub(p->s, n, p->s.n);
	return w;
}

static struct ref
fail(struct compiler *p, const char *why)
{
	if (!p->error)
		p->error = why;
	p->s = S("");
	return (struct ref){REF_NONE, 0, false};
}

static bool
is_number(struct str w)
{
	return w.n && w.p[0] >= '0' && w.p[0] <= '9';
}

static struct ref
name_ref(struct compiler *p, struct str w, bool shape_only)
{
	int64_t n;

	if (is_number(w))
		return (struct ref){REF_NUMBER, 0, false};
	for (unsigned i = 0; i < p->nlocal; i++)
		if (str_eq(p->local[i].name, w)) {
			struct ref r = p->local[i].ref;

			r.shape_only |= shape_only;
			return r;
		}
	if (w.n && w.p[0] == 'g' && (w.n == 1 || (w.n == 2 && str_int(str_sub(w, 1, 2), &n))))
		return (struct ref){REF_GRAD, (uint8_t)(w.n == 1 ? 0 : w.p[1] - '0'), shape_only};
	for (uint8_t i = 0; i < p->code->narg; i++)
		if (str_eq(p->code->arg[i], w))
			return (struct ref){REF_ARG, i, shape_only};
	for (uint8_t i = 0; i < p->code->nout; i++)
		if (str_eq(p->out[i], w))
			return (struct ref){REF_OUT, i, shape_only};
	return fail(p, "unknown name");
}

/* ---- instructions --------------------------------------------------------------------------------- */

/* A parsed subexpression: a name, or a call whose operands still have to be compiled. */
struct tree {
	struct ref ref;            /* if build < 0 */
	int build;
	bool scope;                /* child[0] in braces */
	const char *kernel;
	struct tree *child[MAX_REFS];
	unsigned nchild;
	uint8_t dtype;
	struct ref dtype_of;
};

static struct ref emit(struct compiler *, const struct tree *);

/* The temporaries that an expression made die, except its value. */
static struct ref
emit_scope(struct compiler *p, const struct tree *t)
{
	unsigned first = p->ntmp;
	struct ref r = emit(p, t);

	if (p->ntmp <= first + 1)
		return r;
	if (p->code->ninsn >= MAX_INSN || p->ntmp >= MAX_TMP)
		return fail(p, "formula too long");
	p->insn[p->code->ninsn++] = (struct insn){.build = BUILD_COUNT, .dst = (uint8_t)p->ntmp, .nref = 1, .ref = {r}, .first = (uint8_t)first};
	return (struct ref){REF_TMP, (uint8_t)p->ntmp++, false};
}

static struct ref
emit(struct compiler *p, const struct tree *t)
{
	struct op_code *code = p->code;
	struct insn *x;
	struct ref ref[MAX_REFS];

	if (t->scope)
		return emit_scope(p, t->child[0]);
	if (t->build < 0)
		return t->ref;
	for (unsigned i = t->nchild; i-- > 0;)
		ref[i] = emit(p, t->child[i]);
	if (code->ninsn >= MAX_INSN || p->ntmp >= MAX_TMP)
		return fail(p, "formula too long");
	x = &p->insn[code->ninsn++];
	*x = (struct insn){.build = (uint8_t)t->build, .dst = (uint8_t)p->ntmp, .nref = (uint8_t)t->nchild, .dtype = t->dtype,
		.dtype_of = t->dtype_of, .kernel = t->kernel};
	memcpy(x->ref, ref, t->nchild * sizeof *ref);
	return (struct ref){REF_TMP, (uint8_t)p->ntmp++, false};
}

static struct tree *parse(struct compiler *);

static struct tree *
leaf(struct compiler *p, struct ref r)
{
	struct tree *t = NEW(p->a, struct tree, 1);

	t->ref = r;
	t->build = -1;
	return t;
}

static struct tree *
kernel(struct compiler *p, const char *name, struct tree *a, struct tree *b)
{
	struct tree *t = NEW(p->a, struct tree, 1);

	t->build = BUILD_ew;
	t->kernel = name;
	t->child[0] = a;
	t->child[1] = b;
	t->nchild = b ? 2 : 1;
	return t;
}

static void
parse_dtype(struct compiler *p, struct tree *t)
{
	bool shape;

	if (!accept(p, ":"))
		return;
	if (accept(p, "=")) {
		shape = accept(p, "#");
		t->dtype_of = name_ref(p, word(p), shape);
		return;
	}
	t->dtype = (uint8_t)dtype_by_name(word(p));
	if (!t->dtype)
		fail(p, "unknown dtype");
}

static struct tree *
parse_call(struct compiler *p, struct str name)
{
	struct tree *t = NEW(p->a, struct tree, 1);

	t->build = builder_by_name(name);
	if (t->build < 0) {
		t->build = BUILD_ew;
		t->kernel = str_copy(p->a, name).p;
	}
	while (!accept(p, ")")) {
		if (t->nchild == MAX_REFS || p->error) {
			fail(p, "too many operands");
			return t;
		}
		t->child[t->nchild++] = parse(p);
		accept(p, ",");
	}
	parse_dtype(p, t);
	return t;
}

static struct tree *
parse_primary(struct compiler *p)
{
	bool shape = accept(p, "#"), made;
	struct tree *t;
	struct str w;

	if (!shape && accept(p, "(")) {
		t = parse(p);
		if (!accept(p, ")"))
			fail(p, "missing )");
		return t;
	}
	if (!shape && accept(p, "{")) {
		t = leaf(p, (struct ref){0});
		t->scope = true;
		t->child[0] = parse(p);
		if (!accept(p, "}"))
			fail(p, "missing }");
		return t;
	}
	made = !shape && accept(p, "@");
	w = word(p);
	if (!w.n)
		return leaf(p, fail(p, "name expected"));
	if (made) {
		struct ref r = name_ref(p, w, false);

		return leaf(p, (struct ref){REF_MADE, r.i, false});
	}
	if (!shape && accept(p, "("))
		return parse_call(p, w);
	return leaf(p, name_ref(p, w, shape));
}

static struct tree *
parse_unary(struct compiler *p)
{
	struct tree *t;

	if (!accept(p, "-"))
		return parse_primary(p);
	t = parse_unary(p);
	return t->build < 0 && t->ref.kind == REF_NUMBER ? t : kernel(p, "neg", t, NULL);
}

static struct tree *
parse_product(struct compiler *p)
{
	struct tree *t = parse_unary(p);

	for (;;) {
		if (accept(p, "*"))
			t = kernel(p, "mul", t, parse_unary(p));
		else if (accept(p, "/"))
			t = kernel(p, "div", t, parse_unary(p));
		else
			return t;
	}
}

static struct tree *
parse_sum(struct compiler *p)
{
	struct tree *t = parse_product(p);

	for (;;) {
		if (accept(p, "+"))
			t = kernel(p, "add", t, parse_product(p));
		else if (accept(p, "-"))
			t = kernel(p, "sub", t, parse_product(p));
		else
			return t;
	}
}

static struct tree *
parse(struct compiler *p)
{
	static const char *const compare[][2] = {{"<=", "le"}, {">=", "ge"}, {"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {">", "gt"}};
	struct tree *t = parse_sum(p);

	for (size_t i = 0; i < sizeof compare / sizeof compare[0]; i++)
		if (accept(p, compare[i][0])) {
			t = kernel(p, compare[i][1], t, parse_sum(p));
			t->dtype = DT_BOOL;
			break;
		}
	return t;
}

static struct formula
parse_formula(struct compiler *p)
{
	struct formula f = {.first = p->code->ninsn};

	p->ntmp = 0;
	p->nlocal = 0;
	while (accept(p, "let ")) {
		struct local *l = &p->local[p->nlocal];

		l->name = word(p);
		if (p->nlocal == MAX_NAMED || !accept(p, "="))
			break;
		l->ref = emit_scope(p, parse(p));
		p->nlocal++;
		if (!accept(p, "in "))
			fail(p, "in expected");
	}
	f.result = emit(p, parse(p));
	f.n = (uint8_t)(p->code->ninsn - f.first);
	return f;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

static void
parse_default(struct value *v, struct str s)
{
	int64_t n;
	unsigned dt = dtype_by_name(s);

	if (!s.n || str_eq(s, S("None")))
		*v = V_NONE;
	else if (str_eq(s, S("True")) || str_eq(s, S("False")))
		*v = V_BOOL(s.p[0] == 'T');
	else if (str_eq(s, S("[]")))
		*v = V_INTS(NULL, 0);
	else if (s.p[0] == '\'')
		*v = (struct value){.kind = ARG_STR, .u.s = str_sub(s, 1, s.n - 1)};
	else if (str_int(s, &n))
		*v = V_INT(n);
	else if (dt)
		*v = V_DTYPE(dt);
	else
		*v = V_FLOAT(0.1);         /* a rate or epsilon: no size depends on its value, only on its not being 0 or 1 */
	if (str_eq(s, S("0.0")))
		v->u.f = 0;
	else if (str_eq(s, S("1.0")))
		v->u.f = 1;
}

static void
parse_schema(struct op_code *code, unsigned op)
{
	struct arg_name names[MAX_ARGS];

	code->narg = (uint8_t)op_args(op, names, MAX_ARGS);
	for (unsigned i = 0; i < code->narg; i++) {
		code->arg[i] = names[i].name;
		parse_default(&code->dflt[i], names[i].dflt);
		code->required |= (uint32_t)!names[i].dflt.n << i;
	}
}

static void
parse_forward(struct compiler *p, const char *text)
{
	p->s = str_of(text);
	while (p->s.n && !p->error) {
		struct str name = word(p);

		if (!accept(p, "=")) {
			fail(p, "= expected");
			return;
		}
		p->out[p->code->nout] = name;
		p->code->out[p->code->nout] = parse_formula(p);
		p->code->nout++;
		accept(p, ",");
	}
}

/* Who is mentioned in the formulas of one group ("a, b: fa, fb | x"), as bits. */
struct group {
	uint32_t args, outs;
	unsigned size;
	uint8_t arg;               /* of the first gradient */
};

static void
mention(struct group *m, struct ref r)
{
	if (r.shape_only)
		return;
	if (r.kind == REF_ARG)
		m->args |= 1u << r.i;
	else if (r.kind == REF_OUT)
		m->outs |= 1u << r.i;
}

static void
mention_formula(struct compiler *p, struct group *m, const struct formula *f)
{
	mention(m, f->result);
	for (unsigned i = f->first; i < (unsigned)f->first + f->n; i++)
		for (unsigned k = 0; k < p->insn[i].nref; k++)
			mention(m, p->insn[i].ref[k]);
}

static struct group
parse_group(struct compiler *p)
{
	struct op_code *code = p->code;
	unsigned first = code->ngrad;
	struct group m = {0};

	do {
		struct ref r = name_ref(p, word(p), false);

		if (r.kind != REF_ARG || code->ngrad == MAX_ARGS) {
			fail(p, "gradient of something that is no argument");
			return m;
		}
		code->grad[code->ngrad++].arg = r.i;
		m.size++;
	} while (accept(p, ","));
	if (!accept(p, ":"))
		fail(p, ": expected");
	m.arg = code->grad[first].arg;
	for (unsigned i = first; i < code->ngrad; i++) {
		code->grad[i].always = accept(p, "!");
		code->grad[i].f = parse_formula(p);
		mention_formula(p, &m, &code->grad[i].f);
		accept(p, ",");
	}
	if (accept(p, "|"))
		for (skip(p); p->s.n && p->s.p[0] != ';'; skip(p))
			mention(&m, name_ref(p, word(p), false));
	accept(p, ";");
	return m;
}

static void
keep(struct op_code *code, unsigned kind, unsigned i, int only_if)
{
	if (code->nkeep < MAX_KEEPS)
		code->keep[code->nkeep++] = (struct keep){{(uint8_t)kind, (uint8_t)i, false}, (int8_t)only_if};
}

/* gen_variable_type.py, guard_for: an input is skipped only if exactly one formula, for one argument, mentions it. */
static void
parse_gradients(struct compiler *p)
{
	struct op_code *code = p->code;
	struct group m[MAX_ARGS];
	unsigned n = 0;

	while (p->s.n && !p->error && n < MAX_ARGS)
		m[n++] = parse_group(p);
	for (unsigned i = 0; i < code->narg; i++) {
		unsigned count = 0, where = 0;

		for (unsigned k = 0; k < n; k++)
			if (m[k].args >> i & 1) {
				count++;
				where = k;
			}
		if (count)
			keep(code, REF_ARG, i, count == 1 && m[where].size == 1 && code->ngrad > 1 ? m[where].arg : -1);
	}
	for (unsigned i = 0; i < code->nout; i++)
		for (unsigned k = 0; k < n; k++)
			if (m[k].outs >> i & 1) {
				keep(code, REF_OUT, i, -1);
				break;
			}
}

/* Slots are released in alphabetical order of the inputs' names, then results in the order of the row. */
static bool
keep_after(const struct op_code *code, const struct keep *a, const struct keep *b)
{
	struct str x = code->arg[a->what.i], y = code->arg[b->what.i];
	uint32_t n = x.n < y.n ? x.n : y.n;
	int c;

	if (a->what.kind != REF_ARG || b->what.kind != REF_ARG)
		return false;      /* results stand behind, in the row's order */
	c = memcmp(x.p, y.p, n);
	return c ? c > 0 : x.n > y.n;
}

static void
sort_keeps(struct op_code *code)
{
	for (unsigned i = 1; i < code->nkeep; i++)
		for (unsigned k = i; k > 0 && keep_after(code, &code->keep[k - 1], &code->keep[k]); k--) {
			struct keep t = code->keep[k];

			code->keep[k] = code->keep[k - 1];
			code->keep[k - 1] = t;
		}
}

/* Of the arguments without a default, those that are no operands (dims, sizes) may be whatever the rules make of them. */
static void
find_required(struct op_code *code)
{
	uint32_t read = 0;

	for (unsigned i = 0; i < code->ninsn; i++)
		for (unsigned k = 0; k < code->insn[i].nref; k++)
			if (code->insn[i].ref[k].kind == REF_ARG)
				read |= 1u << code->insn[i].ref[k].i;
	code->required &= read;
}

static void
find_differentiable(struct op_code *code)
{
	for (unsigned i = 0; i < code->narg; i++)
		for (unsigned k = 0; k < code->ngrad; k++)
			if (code->grad[k].arg == i)
				code->diff[code->ndiff++] = (uint8_t)i;
}

static const char *
compile(struct arena *a, struct op_code *code, unsigned op)
{
	const struct op *row = op_info(op);
	struct compiler *p = NEW(a, struct compiler, 1);

	p->a = a;
	p->code = code;
	parse_schema(code, op);
	if (row->forward)
		parse_forward(p, row->forward);
	p->s = str_of(row->backward ? row->backward : "");
	parse_gradients(p);
	sort_keeps(code);
	find_differentiable(code);
	code->backward_name = str_fmt(a, "%s_backward", row->name).p;
	code->insn = NEW(a, struct insn, code->ninsn + 1u);
	memcpy(code->insn, p->insn, code->ninsn * sizeof *code->insn);
	find_required(code);
	code->ready = true;
	return p->error;
}

const struct op_code *
op_code(struct sim *s, unsigned op)
{
	if (!s->code[op].ready)
		compile(s->c->a, &s->code[op], op);
	return &s->code[op];
}

const char *
op_code_check(struct arena *a, unsigned op)
{
	return compile(a, NEW(a, struct op_code, 1), op);
}
