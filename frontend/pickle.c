/*
 * The pickle machine: a stack of values, the positions of marks in it, and a memo. Every length is compared with what is left of the
 * input before it is used, so the memory taken is bounded by the input's size; no function here recurses.
 */
#include "pickle_machine.h"

#include <string.h>

bool
machine_fail(struct machine *m, const char *why)
{
	diag(m->c, DIAG_PICKLE, (unsigned)m->op_at, why);
	return false;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static bool
take(struct machine *m, uint64_t n, const unsigned char **out)
{
	if (n > m->n - m->at)
		return machine_fail(m, "it ends in the middle of a value");
	*out = m->p + m->at;
	m->at += (uint32_t)n;
	return true;
}

static bool
take_uint(struct machine *m, unsigned bytes, uint64_t *out)
{
	const unsigned char *p;

	if (!take(m, bytes, &p))
		return false;
	*out = 0;
	for (unsigned i = 0; i < bytes; i++)
		*out |= (uint64_t)p[i] << (8 * i);
	return true;
}

static bool
take_line(struct machine *m, struct str *out)
{
	const unsigned char *end = memchr(m->p + m->at, '\n', m->n - m->at);

	if (!end)
		return machine_fail(m, "a name has no end");
	*out = (struct str){(const char *)m->p + m->at, (uint32_t)(end - m->p) - m->at};
	m->at += out->n + 1;
	return true;
}

/* ---- the stack ------------------------------------------------------------------------------------------------ */

bool
machine_push(struct machine *m, struct pickle *v)
{
	ROOM(m->c->a, m->stack, m->depth, m->stack_cap, 1);
	m->stack[m->depth++] = v;
	return true;
}

struct pickle *
machine_new(struct machine *m, enum pickle_kind kind)
{
	struct pickle *v = NEW(m->c->a, struct pickle, 1);

	v->kind = (uint8_t)kind;
	return v;
}

static uint32_t
floor_of(const struct machine *m)
{
	return m->nmark ? m->marks[m->nmark - 1] : 0;
}

struct pickle *
machine_pop(struct machine *m)
{
	if (m->depth <= floor_of(m)) {
		machine_fail(m, "an operand is missing");
		return NULL;
	}
	return m->stack[--m->depth];
}

static struct pickle *
top(struct machine *m)
{
	if (m->depth <= floor_of(m)) {
		machine_fail(m, "an operand is missing");
		return NULL;
	}
	return m->stack[m->depth - 1];
}

/* The values behind the last mark; they stay on the stack's memory until something is pushed. */
static bool
pop_mark(struct machine *m, struct pickle ***items, uint32_t *n)
{
	if (!m->nmark)
		return machine_fail(m, "a mark is missing");
	m->nmark--;
	*items = m->stack + m->marks[m->nmark];
	*n = m->depth - m->marks[m->nmark];
	m->depth = m->marks[m->nmark];
	return true;
}

static void
extend(struct machine *m, struct pickle *v, struct pickle *const *items, uint32_t n)
{
	ROOM(m->c->a, v->u.item, v->n, v->cap, n);
	if (n)
		memcpy(v->u.item + v->n, items, n * sizeof(struct pickle *));
	v->n += n;
}

static struct pickle *
collection(struct machine *m, enum pickle_kind kind, struct pickle *const *items, uint32_t n)
{
	struct pickle *v = machine_new(m, kind);

	extend(m, v, items, n);
	return v;
}

static bool
push_int(struct machine *m, int64_t n)
{
	struct pickle *v = machine_new(m, PK_INT);

	v->u.i = n;
	return machine_push(m, v);
}

static bool
push_text(struct machine *m, enum pickle_kind kind, unsigned length_bytes)
{
	struct pickle *v = machine_new(m, kind);
	const unsigned char *p;
	uint64_t n;

	if (!take_uint(m, length_bytes, &n) || !take(m, n, &p))
		return false;
	v->u.s = (struct str){(const char *)p, (uint32_t)n};
	return machine_push(m, v);
}

/* Two's complement, little-endian; a number that 64 bits do not hold becomes a float, as no size or index is that large. */
static bool
push_long(struct machine *m, unsigned length_bytes)
{
	const unsigned char *p;
	struct pickle *v;
	uint64_t n, bits = 0;
	double f = 0;

	if (!take_uint(m, length_bytes, &n) || !take(m, n, &p))
		return false;
	if (n > 8) {
		for (uint64_t i = n; i-- > 0;)
			f = f * 256 + p[i];
		v = machine_new(m, PK_FLOAT);
		v->u.f = f;
		return machine_push(m, v);
	}
	for (unsigned i = 0; i < n; i++)
		bits |= (uint64_t)p[i] << (8 * i);
	if (n && n < 8 && p[n - 1] & 0x80)
		bits |= UINT64_MAX << (8 * n);
	return push_int(m, (int64_t)bits);
}

static bool
push_float(struct machine *m)
{
	const unsigned char *p;
	struct pickle *v = machine_new(m, PK_FLOAT);
	uint64_t bits = 0;

	if (!take(m, 8, &p))
		return false;
	for (unsigned i = 0; i < 8; i++)
		bits = bits << 8 | p[i];
	memcpy(&v->u.f, &bits, sizeof bits);
	return machine_push(m, v);
}

static bool
push_global(struct machine *m, struct str module, struct str name)
{
	struct pickle *v = machine_new(m, PK_GLOBAL);

	v->u.s = str_fmt(m->c->a, "%.*s.%.*s", SFMT(module), SFMT(name));
	return machine_push(m, v);
}

static bool
global_line(struct machine *m)
{
	struct str module, name;

	return take_line(m, &module) && take_line(m, &name) && push_global(m, module, name);
}

static bool
global_stack(struct machine *m)
{
	const struct pickle *name = machine_pop(m), *module = name ? machine_pop(m) : NULL;

	if (!module)
		return false;
	if (name->kind != PK_STR || module->kind != PK_STR)
		return machine_fail(m, "the name of a class is no text");
	return push_global(m, module->u.s, name->u.s);
}

/* ---- the memo --------------------------------------------------------------------------------------------------- */

static bool
memo_put(struct machine *m, uint64_t i)
{
	struct pickle *v = top(m);

	if (!v)
		return false;
	if (i >= m->n)             /* writers number their entries from 0, and each takes bytes */
		return machine_fail(m, "a memo entry's number is too large");
	if (i >= m->nmemo) {
		uint32_t more = (uint32_t)i + 1 - m->nmemo;

		ROOM(m->c->a, m->memo, m->nmemo, m->memo_cap, more);
		memset(m->memo + m->nmemo, 0, more * sizeof *m->memo);
		m->nmemo += more;
	}
	m->memo[i] = v;
	return true;
}

static bool
memo_get(struct machine *m, unsigned bytes)
{
	uint64_t i;

	if (!take_uint(m, bytes, &i))
		return false;
	if (i >= m->nmemo || !m->memo[i])
		return machine_fail(m, "a memo entry is used before it is made");
	return machine_push(m, m->memo[i]);
}

static bool
memo_put_arg(struct machine *m, unsigned bytes)
{
	uint64_t i;

	return take_uint(m, bytes, &i) && memo_put(m, i);
}

/* ---- calls and objects ----------------------------------------------------------------------------------------------- */

static bool
make_call(struct machine *m, enum pickle_kind kind)
{
	struct pickle *args = machine_pop(m), *fn = args ? machine_pop(m) : NULL, *v;

	if (!fn)
		return false;
	if (args->kind != PK_TUPLE) {      /* an enum is its class and a bare value */
		struct pickle *one = collection(m, PK_TUPLE, &args, 1);

		args = one;
	}
	v = kind == PK_CALL && fn->kind == PK_GLOBAL ? machine_known_call(m, fn, args, false) : NULL;
	if (!v) {
		v = machine_new(m, kind);
		v->of = fn;
		v->args = args;
	}
	return machine_push(m, v);
}

static bool
build(struct machine *m)
{
	struct pickle *state = machine_pop(m), *v = state ? top(m) : NULL;

	if (!v)
		return false;
	if (v->kind == PK_OBJECT || v->kind == PK_CALL)
		v->state = state;
	return true;               /* attributes of dicts and tensors say nothing that is read here */
}

/* ---- filling collections ------------------------------------------------------------------------------------------------ */

static bool
fill(struct machine *m, struct pickle *const *items, uint32_t n, enum pickle_kind kind)
{
	struct pickle *v = top(m);

	if (!v)
		return false;
	if (v->kind == kind && (kind != PK_DICT || n % 2 == 0)) {
		extend(m, v, items, n);
		return true;
	}
	return v->kind == PK_OBJECT || v->kind == PK_CALL ? true : machine_fail(m, "something that is no collection is filled");
}

static bool
fill_marked(struct machine *m, enum pickle_kind kind)
{
	struct pickle **items;
	uint32_t n;

	return pop_mark(m, &items, &n) && fill(m, items, n, kind);
}

static bool
fill_some(struct machine *m, uint32_t n, enum pickle_kind kind)
{
	if (m->depth < n || m->depth - n < floor_of(m))
		return machine_fail(m, "an operand is missing");
	m->depth -= n;
	return fill(m, m->stack + m->depth, n, kind);
}

static bool
collect_marked(struct machine *m, enum pickle_kind kind)
{
	struct pickle **items;
	uint32_t n;

	if (!pop_mark(m, &items, &n))
		return false;
	if (kind == PK_DICT && n % 2)
		return machine_fail(m, "a dict has a key without a value");
	return machine_push(m, collection(m, kind, items, n));
}

static bool
collect_some(struct machine *m, uint32_t n)
{
	if (m->depth < n || m->depth - n < floor_of(m))
		return machine_fail(m, "an operand is missing");
	m->depth -= n;
	return machine_push(m, collection(m, PK_TUPLE, m->stack + m->depth, n));
}

/* ---- opcodes -------------------------------------------------------------------------------------------------------------- */

static bool
set_mark(struct machine *m)
{
	ROOM(m->c->a, m->marks, m->nmark, m->mark_cap, 1);
	m->marks[m->nmark++] = m->depth;
	return true;
}

static bool
skip(struct machine *m, unsigned n)
{
	const unsigned char *p;

	return take(m, n, &p);
}

static bool
pop_to_mark(struct machine *m)
{
	struct pickle **items;
	uint32_t n;

	return pop_mark(m, &items, &n);
}

static bool
new_with_keywords(struct machine *m)
{
	return machine_pop(m) && make_call(m, PK_OBJECT);
}

static bool
small_int(struct machine *m, unsigned bytes)
{
	uint64_t n;

	return take_uint(m, bytes, &n) && push_int(m, bytes == 4 ? (int32_t)(uint32_t)n : (int64_t)n);
}

static bool
stop(struct machine *m)
{
	m->result = machine_pop(m);
	if (m->result && (m->nmark || m->depth))
		return machine_fail(m, "values are left over at its end");
	return m->result != NULL;
}

static bool
run_value(struct machine *m, unsigned op)
{
	switch (op) {
	case 'N':
		return machine_push(m, m->none);
	case 0x88:
		return machine_push(m, m->yes);
	case 0x89:
		return machine_push(m, m->no);
	case 'K':
		return small_int(m, 1);
	case 'M':
		return small_int(m, 2);
	case 'J':
		return small_int(m, 4);
	case 0x8a:
		return push_long(m, 1);
	case 0x8b:
		return push_long(m, 4);
	case 'G':
		return push_float(m);
	case 'X':
		return push_text(m, PK_STR, 4);
	case 0x8c:
		return push_text(m, PK_STR, 1);
	case 0x8d:
		return push_text(m, PK_STR, 8);
	case 'C':
	case 'U':
		return push_text(m, PK_BYTES, 1);
	case 'B':
	case 'T':
		return push_text(m, PK_BYTES, 4);
	case 0x8e:
	case 0x96:
		return push_text(m, PK_BYTES, 8);
	case 'c':
		return global_line(m);
	case 0x93:
		return global_stack(m);
	default:
		return machine_fail(m, str_fmt(m->c->a, "opcode 0x%02x is none that PyTorch or protocols 2 to 5 write", op).p);
	}
}

static bool
run_collection(struct machine *m, unsigned op)
{
	switch (op) {
	case ')':
		return collect_some(m, 0);
	case 0x85:
	case 0x86:
	case 0x87:
		return collect_some(m, op - 0x84);
	case 't':
		return collect_marked(m, PK_TUPLE);
	case ']':
		return machine_push(m, machine_new(m, PK_LIST));
	case 'l':
		return collect_marked(m, PK_LIST);
	case '}':
		return machine_push(m, machine_new(m, PK_DICT));
	case 'd':
		return collect_marked(m, PK_DICT);
	case 0x8f:
		return machine_push(m, machine_new(m, PK_SET));
	case 0x91:
		return collect_marked(m, PK_SET);
	case 'a':
		return fill_some(m, 1, PK_LIST);
	case 'e':
		return fill_marked(m, PK_LIST);
	case 's':
		return fill_some(m, 2, PK_DICT);
	case 'u':
		return fill_marked(m, PK_DICT);
	case 0x90:
		return fill_marked(m, PK_SET);
	default:
		return run_value(m, op);
	}
}

static bool
run(struct machine *m, unsigned op)
{
	switch (op) {
	case 0x80:
		return skip(m, 1);
	case 0x95:
		return skip(m, 8);
	case '(':
		return set_mark(m);
	case '0':
		return machine_pop(m) != NULL;
	case '1':
		return pop_to_mark(m);
	case '2':
		return top(m) && machine_push(m, top(m));
	case 'q':
		return memo_put_arg(m, 1);
	case 'r':
		return memo_put_arg(m, 4);
	case 0x94:
		return memo_put(m, m->nmemo);
	case 'h':
		return memo_get(m, 1);
	case 'j':
		return memo_get(m, 4);
	case 'Q':
		return machine_persistent(m);
	case 0x81:
		return make_call(m, PK_OBJECT);
	case 0x92:
		return new_with_keywords(m);
	case 'R':
		return make_call(m, PK_CALL);
	case 'b':
		return build(m);
	case '.':
		return stop(m);
	default:
		return run_collection(m, op);
	}
}

struct pickle *
pickle_read(struct ctx *c, struct str bytes)
{
	struct machine m = {.c = c, .p = (const unsigned char *)bytes.p, .n = bytes.n};

	m.none = machine_new(&m, PK_NONE);
	m.yes = machine_new(&m, PK_BOOL);
	m.yes->u.b = true;
	m.no = machine_new(&m, PK_BOOL);
	while (!m.result) {
		m.op_at = m.at;
		if (m.at == m.n) {
			machine_fail(&m, "it has no end");
			return NULL;
		}
		if (!run(&m, m.p[m.at++]))
			return NULL;
	}
	return m.result;
}

bool
pickle_is(const struct pickle *v, const char *name)
{
	return v && v->kind == PK_GLOBAL && str_eq(v->u.s, str_of(name));
}

struct str
pickle_str(const struct pickle *v)
{
	return v && v->kind == PK_STR ? v->u.s : S("");
}

struct pickle *
pickle_get(const struct pickle *dict, struct str key)
{
	for (uint32_t i = 0; dict && dict->kind == PK_DICT && i + 1 < dict->n; i += 2)
		if (str_eq(pickle_str(dict->u.item[i]), key))
			return dict->u.item[i + 1];
	return NULL;
}
