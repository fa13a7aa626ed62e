/* infer: numbers and lists of the program. */
#include "infer.h"

#include <string.h>

struct cell
cell_number(struct number n)
{
	return (struct cell){.kind = n.kind == ARG_NONE ? CELL_UNKNOWN : CELL_NUMBER, .u.number = n};
}

struct cell
cell_unknown(unsigned number_kind)
{
	return (struct cell){.kind = CELL_UNKNOWN, .u.number = {.kind = (uint8_t)number_kind}};
}

static struct cell
cell_int(int64_t n)
{
	return cell_number(number_int(n));
}

static bool
is_int(const struct cell *c, int64_t *n)
{
	if (c->kind != CELL_NUMBER || c->u.number.kind == ARG_FLOAT)
		return false;
	*n = c->u.number.kind == ARG_INT ? c->u.number.u.i : c->u.number.u.b;
	return true;
}

/* ---- what is asked of tensors ---------------------------------------------------------------------------------------- */

static struct cell
sizes_of(struct infer *f, const struct geom *g)
{
	struct cell c = {.kind = CELL_LIST, .n = g->rank, .u.list = NEW(f->a->c->a, struct cell, g->rank + 1u)};

	for (unsigned i = 0; i < g->rank; i++)
		c.u.list[i] = cell_int(g->dim[i]);
	return c;
}

static struct cell
ask_geometry(struct infer *f, struct str what, const struct geom *g, const struct cell *index)
{
	int64_t i;

	if (str_eq(what, S("dim")))
		return cell_int(g->rank);
	if (str_eq(what, S("numel")))
		return cell_int(g->numel);
	if (str_eq(what, S("sizes")))
		return sizes_of(f, g);
	if (str_eq(what, S("size")) && is_int(index, &i) && wrap_dim(i, g->rank) >= 0)
		return cell_int(g->dim[wrap_dim(i, g->rank)]);
	return cell_unknown(ARG_INT);
}

static struct cell
measure(struct infer *f, struct str what, const struct cell *x, const struct cell *index)
{
	unsigned dt = x->kind == CELL_TENSOR ? f->g->vals[x->u.val].dtype : DT_NONE;
	struct number value = {.kind = ARG_NONE};
	uint32_t t;

	if (x->kind == CELL_LIST && str_eq(what, S("len")))
		return cell_int(x->n);
	if (x->kind == CELL_TENSOR && (str_eq(what, S("bool")) || str_eq(what, S("int"))))
		value = infer_value(f, x->u.val);
	if (value.kind == ARG_INT || value.kind == ARG_BOOL)
		return cell_number(value);
	if (str_eq(what, S("bool")) || str_eq(what, S("float")) || str_eq(what, S("int")))
		return x->kind == CELL_NUMBER ? *x : cell_unknown(what.p[0] == 'b' ? ARG_BOOL : what.p[0] == 'f' ? ARG_FLOAT : ARG_INT);
	if (str_eq(what, S("is")))
		return x->kind == CELL_TENSOR && index->kind == CELL_TENSOR ? cell_number(number_bool(x->u.val == index->u.val)) : cell_unknown(ARG_BOOL);
	if (str_eq(what, S("dtype")))
		return dt && dtype_info(dt)->c10 != 0xff ? cell_int(dtype_info(dt)->c10) : cell_unknown(ARG_INT);
	if (str_eq(what, S("is_floating_point")))
		return dt ? cell_number(number_bool(dtype_is_float(dt))) : cell_unknown(ARG_BOOL);
	t = x->kind == CELL_TENSOR ? infer_tensor(f, x->u.val) : 0;
	return t ? ask_geometry(f, what, geom_at(f->s, t), index) : cell_unknown(ARG_INT);
}

static struct cell
math(struct str what, const struct cell *a, const struct cell *b)
{
	static const char *const yes_no[] = {"eq", "ne", "lt", "le", "gt", "ge", "__not__", "bool", "__is__", "__isnot__"};
	struct number r, none = {.kind = ARG_NONE};

	if (a->kind == CELL_NUMBER && number_math(what, a->u.number, b->kind == CELL_NUMBER ? b->u.number : none, &r))
		return cell_number(r);
	for (size_t i = 0; i < sizeof yes_no / sizeof yes_no[0]; i++)
		if (str_eq(what, str_of(yes_no[i])))
			return cell_unknown(ARG_BOOL);
	return cell_unknown(str_eq(what, S("float")) || str_eq(what, S("div")) || a->u.number.kind == ARG_FLOAT ? ARG_FLOAT : ARG_INT);
}

/* ---- lists -------------------------------------------------------------------------------------------------------------------- */

static struct cell
new_list(struct infer *f, uint32_t n)
{
	return (struct cell){.kind = CELL_LIST, .n = n, .u.list = NEW(f->a->c->a, struct cell, n + 1u)};
}

static struct cell
joined(struct infer *f, const struct cell *a, const struct cell *b, uint32_t nb)
{
	struct cell c = new_list(f, a->n + nb);

	if (a->n)
		memcpy(c.u.list, a->u.list, a->n * sizeof *a->u.list);
	if (nb)
		memcpy(c.u.list + a->n, b, nb * sizeof *b);
	return c;
}

/* A loop appends at each turn: what a list has behind its end is the next one's, unless it is taken. */
static struct cell
appended(struct infer *f, const struct cell *l, const struct cell *x)
{
	struct cell c = {.kind = CELL_LIST, .n = l->n + 1, .cap = l->cap, .u.list = l->u.list};

	if (l->n >= l->cap || c.u.list[-1].n != l->n) {
		c.cap = l->n < UINT32_MAX / 2 ? l->n * 2 + 1 : UINT32_MAX;
		c.u.list = NEW(f->a->c->a, struct cell, (size_t)c.cap + 1) + 1;
		if (l->n)
			memcpy(c.u.list, l->u.list, l->n * sizeof *l->u.list);
	}
	c.u.list[l->n] = *x;
	c.u.list[-1].n = c.n;
	return c;
}

static struct cell
slice(struct infer *f, const struct cell *l, const struct cell *from, const struct cell *to, const struct cell *step)
{
	int64_t n = l->n, a = 0, b = INT64_MAX, by = 1;
	struct cell c = new_list(f, l->n);

	if ((from->kind != CELL_NONE && !is_int(from, &a)) || (to->kind != CELL_NONE && !is_int(to, &b)) || !is_int(step, &by) || by < 1)
		return cell_unknown(ARG_NONE);
	a = a < 0 ? (a < -n ? 0 : a + n) : a > n ? n : a;
	b = b < 0 ? (b < -n ? 0 : b + n) : b > n ? n : b;
	c.n = 0;
	for (int64_t i = a; i < b; i = by > n ? n : i + by)
		c.u.list[c.n++] = l->u.list[i];
	return c;
}

static struct cell
element(const struct cell *l, const struct cell *index)
{
	int64_t i;

	if (!is_int(index, &i))
		return cell_unknown(ARG_INT);
	i = i < 0 ? i + l->n : i;
	return i < 0 || i >= l->n ? cell_unknown(ARG_INT) : l->u.list[i];
}

static struct cell
with_element(struct infer *f, const struct cell *l, const struct cell *index, const struct cell *x)
{
	struct cell c = joined(f, l, NULL, 0);
	int64_t i;

	if (is_int(index, &i) && (i < 0 ? i + l->n : i) < l->n && i >= -(int64_t)l->n)
		c.u.list[i < 0 ? i + l->n : i] = *x;
	return c;
}

/* One of the n that a trace took out: if there are more or fewer now, the trace has fixed that size. */
static bool
piece(struct infer *f, const struct node *x, const struct cell *l, const struct cell *index, const struct cell *count)
{
	uint32_t out = f->g->ids[x->out];
	int64_t n;

	if (f->uses[out] && is_int(count, &n) && n != l->n && l->n && l->u.list[0].kind == CELL_TENSOR)
		return diag(f->a->c, DIAG_PIECES, SFMT(graph_str(f->g, f->g->vals[l->u.list[0].u.val].name)), (long long)n, (unsigned)l->n);
	f->cell[out] = element(l, index);
	return true;
}

static bool
list(struct infer *f, const struct node *x, struct str what, const struct cell *c)
{
	struct cell *out = &f->cell[f->g->ids[x->out]];
	bool a = c[0].kind == CELL_LIST;

	if (a && str_eq(what, S("piece")))
		return piece(f, x, &c[0], &c[1], &c[3]);
	if (!a)
		*out = cell_unknown(ARG_NONE);
	else if (str_eq(what, S("of")))
		*out = c[0];
	else if (str_eq(what, S("get")))
		*out = element(&c[0], &c[1]);
	else if (str_eq(what, S("set")))
		*out = with_element(f, &c[0], &c[1], &c[2]);
	else if (str_eq(what, S("append")))
		*out = appended(f, &c[0], &c[1]);
	else if (str_eq(what, S("slice")))
		*out = slice(f, &c[0], &c[1], &c[2], &c[3]);
	else if (str_eq(what, S("join")) && c[1].kind == CELL_LIST)
		*out = joined(f, &c[0], c[1].u.list, c[1].n);
	else
		*out = cell_unknown(ARG_NONE);
	return true;
}

/* a, b = torch.chunk(..): the piece has the name. */
static bool
keep_local(struct infer *f, uint32_t old)
{
	const struct val *named = &f->g->vals[old];
	struct val *piece = f->cell[old].kind == CELL_TENSOR ? &f->g->vals[f->cell[old].u.val] : NULL;

	if (piece && named->local && !piece->local) {
		piece->local = named->local;
		piece->local_depth = named->local_depth;
	}
	return true;
}

bool
infer_prim(struct infer *f, const struct node *x)
{
	const struct arg *a = f->g->args + x->arg;
	struct str what = a->kind == ARG_STR ? graph_str(f->g, a->u.str) : S("");
	struct cell c[4];

	for (unsigned i = 0; i < 4; i++)
		c[i] = i + 1 < x->narg ? infer_arg(f, a + i + 1) : (struct cell){.kind = CELL_NONE};
	if (!x->nout)
		return true;
	if (x->op == OP_LIST)
		return list(f, x, what, c) && keep_local(f, f->g->ids[x->out]);
	f->cell[f->g->ids[x->out]] = x->op == OP_MATH ? math(what, &c[0], &c[1]) : measure(f, what, &c[0], &c[1]);
	return true;
}
