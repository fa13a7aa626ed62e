/*
 * Lists, tuples and dicts. They are structures of the inlining as long as their length is known; one whose length only sizes or
 * data decide (the pieces of a split, the sizes of a tensor, what a loop appends) is a value of the graph, handled by nodes "list".
 */
#include "script.h"

#include <string.h>

static struct arg
text_arg(struct script *s, const char *text)
{
	return (struct arg){.kind = ARG_STR, .u.str = graph_name(s->g, str_of(text))};
}

/* A node "list" of up to four operands; its result. */
static uint32_t
list_node(struct script *s, const char *what, const struct thing *x, unsigned n)
{
	uint32_t node = script_node(s, OP_LIST, S(""), op_narg(OP_LIST), 1);

	node_args(s->g, node)[0] = text_arg(s, what);
	for (unsigned i = 0; i < n; i++) {
		struct arg a = script_arg(s, &x[i], S(""));

		node_args(s->g, node)[1 + i] = a;
	}
	return script_result(s, node, 0);
}

static struct thing
open_list(struct script *s, uint32_t val)
{
	struct thing t = thing_items(s, THING_LIST, NULL, 0);

	t.u.items->val = val;
	return t;
}

static bool
is_open(const struct thing *t)
{
	return t->kind == THING_LIST && t->u.items->val;
}

bool
list_unfix(struct script *s, struct items *l)
{
	struct thing t = {.kind = THING_LIST, .u.items = l};

	if (!l->val)
		l->val = list_node(s, "of", &t, 1);
	return true;
}

/* What an element of an open list is: a tensor if the list is one of an operator's results, else a number. */
static struct thing
open_element(struct script *s, uint32_t list, uint32_t val)
{
	const struct val *x = &s->g->vals[list];
	bool tensors = x->flags & VF_LIST;

	return (struct thing){.kind = tensors ? THING_TENSOR : THING_INT, .val = val};
}

/* ---- elements ------------------------------------------------------------------------------------------------------------ */

static bool
known_index(const struct thing *i, uint32_t n, uint32_t *out)
{
	int64_t k = i->kind == THING_BOOL ? i->u.b : i->u.i;

	if ((i->kind != THING_INT && i->kind != THING_BOOL) || i->val)
		return false;
	k = k < 0 ? k + n : k;
	if (k < 0 || k >= n)
		return false;
	*out = (uint32_t)k;
	return true;
}

static const struct thing *
dict_find(const struct items *d, const struct thing *key)
{
	for (uint32_t i = 0; i + 1 < d->n; i += 2) {
		bool known = true;

		if (thing_equal(&d->at[i], key, &known) && known)
			return &d->at[i + 1];
	}
	return NULL;
}

struct thing
script_get(struct script *s, struct thing list, struct thing index)
{
	const struct thing *found;
	struct thing both[2] = {list, index};
	uint32_t i;

	if (list.kind == THING_DICT && !(found = dict_find(list.u.items, &index)))
		return list.u.items->input ? script_input_entry(s, list.u.items, &index) : (struct thing){0};
	if (list.kind == THING_DICT)
		return *found;
	if (is_open(&list))
		return open_element(s, list.u.items->val, list_node(s, "get", both, 2));
	if ((list.kind != THING_LIST && list.kind != THING_TUPLE))
		return (struct thing){0};
	if (known_index(&index, list.u.items->n, &i))
		return list.u.items->at[i];
	if (index.kind == THING_INT && index.val && list.u.items->n && list_unfix(s, list.u.items)) {
		struct thing first = list.u.items->at[0];

		first.val = list_node(s, "get", both, 2);
		return first.kind == THING_TENSOR || thing_is_number(&first) ? first : (struct thing){0};
	}
	return (struct thing){0};
}

/* The elements of an operator's list, given names: pieces, which know how many were expected. */
static void
unpack_open(struct script *s, const struct thing *list, uint32_t n, struct thing *out)
{
	struct thing x[4] = {*list, thing_none(), thing_none(), thing_int(n)};

	for (uint32_t i = 0; i < n; i++) {
		x[1] = thing_int(i);
		out[i] = open_element(s, list->u.items->val, list_node(s, "piece", x, 4));
	}
}

bool
script_unpack(struct script *s, struct thing from, uint32_t n, struct thing *out)
{
	if (from.kind == THING_UNKNOWN) {
		memset(out, 0, n * sizeof *out);
		return true;
	}
	if (is_open(&from)) {
		unpack_open(s, &from, n, out);
		return true;
	}
	if (from.kind == THING_TENSOR && s->g->vals[from.val].kind == VAL_NODE && !s->g->nodes[s->g->vals[from.val].node].op) {
		struct thing list = thing_items(s, THING_LIST, NULL, 0);       /* of an operator without a row, nobody knew that it gives several */

		list.u.items->val = from.val;
		s->g->vals[from.val].flags |= VF_LIST;
		unpack_open(s, &list, n, out);
		return true;
	}
	if (from.kind != THING_LIST && from.kind != THING_TUPLE)
		return script_fail(s, "something that is neither list nor tuple is unpacked");
	if (from.u.items->n != n)
		return script_fail(s, "%u values are unpacked into %u names", (unsigned)from.u.items->n, (unsigned)n);
	memcpy(out, from.u.items->at, n * sizeof *out);
	return true;
}

/* ---- literals --------------------------------------------------------------------------------------------------------------- */

/* The list that a literal puts together again: all its pieces in order. 0 = it is another list. */
static uint32_t
repacked(const struct script *s, const struct thing *at, uint32_t n)
{
	const struct graph *g = s->g;
	uint32_t list = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t node = at[i].kind == THING_TENSOR && g->vals[at[i].val].kind == VAL_NODE ? g->vals[at[i].val].node : 0;
		const struct arg *x = node && g->nodes[node].op == OP_LIST ? node_args(g, node) : NULL;

		if (!x || !str_eq(graph_str(g, x[0].u.str), S("piece")) || x[2].u.i.n != i || x[4].u.i.n != n || (list && x[1].u.val != list))
			return 0;
		list = x[1].u.val;
	}
	return list;
}

struct thing
script_list(struct script *s, enum thing_kind kind, const struct thing *at, uint32_t n)
{
	uint32_t list = kind == THING_LIST && n ? repacked(s, at, n) : 0;

	return list ? open_list(s, list) : thing_items(s, kind, at, n);
}

/* ---- functions on lists ------------------------------------------------------------------------------------------------------- */

static bool
slice_known(struct script *s, const struct thing *list, const struct thing *from, const struct thing *to, const struct thing *step, struct thing *out)
{
	int64_t n = list->u.items->n, a = from && from->kind == THING_INT ? from->u.i : 0, b = to && to->kind == THING_INT ? to->u.i : INT64_MAX;
	int64_t by = step && step->kind == THING_INT ? step->u.i : 1;

	if ((from && from->val) || (to && to->val) || (step && step->val) || by < 1)
		return false;
	a = a < 0 ? (a + n < 0 ? 0 : a + n) : a > n ? n : a;
	b = b < 0 ? (b + n < 0 ? 0 : b + n) : b > n ? n : b;
	*out = thing_items(s, (enum thing_kind)list->kind, NULL, 0);
	for (int64_t i = a; i < b; i += by) {
		items_add(s, out->u.items, list->u.items->at[i]);
		if (by > n)
			break;
	}
	return true;
}

static bool
slice(struct script *s, const struct args *a, struct thing *out)
{
	const struct thing *list = &a->at[0], *from = args_get(s, a, 1, "start"), *to = args_get(s, a, 2, "end"), *step = args_get(s, a, 3, "step");
	struct thing x[4] = {*list, from ? *from : thing_none(), to ? *to : thing_none(), step ? *step : thing_int(1)};

	if (list->kind != THING_LIST && list->kind != THING_TUPLE)
		return false;
	if (!list->u.items->val && slice_known(s, list, from, to, step, out))
		return true;
	if (list->kind == THING_LIST && list_unfix(s, list->u.items)) {
		*out = open_list(s, list_node(s, "slice", x, 4));
		s->g->vals[out->u.items->val].flags |= s->g->vals[list->u.items->val].flags & VF_LIST;
		return true;
	}
	*out = (struct thing){0};
	return true;
}

static bool
fits(struct script *s, uint64_t n)
{
	return n <= MAX_ELEMENTS ? true : script_fail(s, "a list has more than %u elements", MAX_ELEMENTS);
}

static bool
join(struct script *s, const struct thing *a, const struct thing *b, struct thing *out)
{
	struct thing both[2] = {*a, *b};

	if (is_open(a) || is_open(b)) {
		*out = open_list(s, list_node(s, "join", both, 2));
		s->g->vals[out->u.items->val].flags |= ((is_open(a) ? s->g->vals[a->u.items->val].flags : 0) | (is_open(b) ? s->g->vals[b->u.items->val].flags : 0)) & VF_LIST;
		return true;
	}
	if (!fits(s, (uint64_t)a->u.items->n + b->u.items->n))
		return false;
	*out = thing_items(s, (enum thing_kind)a->kind, a->u.items->at, a->u.items->n);
	for (uint32_t i = 0, n = b->u.items->n; i < n; i++)
		items_add(s, out->u.items, b->u.items->at[i]);
	return true;
}

/* [0] * 3 */
static bool
repeat(struct script *s, const struct thing *list, const struct thing *times, struct thing *out)
{
	if (times->val || is_open(list)) {
		*out = (struct thing){0};
		return true;
	}
	*out = thing_items(s, THING_LIST, NULL, 0);
	for (int64_t i = 0; i < times->u.i; i++) {
		if (!fits(s, (uint64_t)out->u.items->n + list->u.items->n))
			return false;
		for (uint32_t k = 0; k < list->u.items->n; k++)
			items_add(s, out->u.items, list->u.items->at[k]);
		if (!list->u.items->n)
			break;
	}
	return true;
}

/* ---- changes ---------------------------------------------------------------------------------------------------------------------- */

/* A list of outside may not be changed where it is not decided whether the code runs, unless the graph has it. */
static bool
may_change(struct script *s, struct items *l)
{
	if (l->region >= s->region || l->val)
		return true;
	return script_fail(s, "a list is changed where only sizes or data say whether the code runs");
}

static bool
append(struct script *s, struct items *l, const struct thing *x)
{
	struct thing both[2] = {{.kind = THING_LIST, .u.items = l}, *x};
	uint32_t old = l->val;

	if (!may_change(s, l))
		return false;
	if (!old) {
		items_add(s, l, *x);
		return true;
	}
	l->val = list_node(s, "append", both, 2);
	s->g->vals[l->val].flags |= (s->g->vals[old].flags | (x->kind == THING_TENSOR ? VF_LIST : 0)) & VF_LIST;
	return true;
}

static bool
set_item(struct script *s, const struct args *a)
{
	struct items *l = a->at[0].u.items;
	struct thing *found;
	uint32_t i;

	if (!may_change(s, l))
		return false;
	if (a->at[0].kind == THING_DICT) {
		found = (struct thing *)(uintptr_t)dict_find(l, &a->at[1]);
		if (found) {
			*found = a->at[2];
			return true;
		}
		items_add(s, l, a->at[1]);
		items_add(s, l, a->at[2]);
	} else if (l->val) {
		l->val = list_node(s, "set", a->at, 3);
	} else if (known_index(&a->at[1], l->n, &i)) {
		l->at[i] = a->at[2];
	}
	return true;
}

static bool
change(struct script *s, struct str name, const struct args *a, struct thing *out, bool *found)
{
	struct items *l = a->at[0].u.items;

	*found = true;
	*out = (struct thing){0};
	if (str_eq(name, S("append")) && a->n == 2)
		return append(s, l, &a->at[1]);
	if (str_eq(name, S("_set_item")) && a->n == 3)
		return set_item(s, a);
	if (str_eq(name, S("extend")) && a->n == 2 && a->at[1].kind == THING_LIST && !is_open(&a->at[1])) {
		for (uint32_t i = 0, n = a->at[1].u.items->n; i < n; i++)
			if (!append(s, l, &a->at[1].u.items->at[i]))
				return false;
		return true;
	}
	if (str_eq(name, S("pop")) && a->n == 1 && l->n && !l->val) {
		*out = l->at[--l->n];
		return may_change(s, l);
	}
	if (str_eq(name, S("clear")) && !l->val) {
		l->n = 0;
		return may_change(s, l);
	}
	if (str_eq(name, S("reverse")) && !l->val) {
		for (uint32_t i = 0; i < l->n / 2; i++) {
			struct thing t = l->at[i];

			l->at[i] = l->at[l->n - 1 - i];
			l->at[l->n - 1 - i] = t;
		}
		return may_change(s, l);
	}
	if (str_eq(name, S("insert")) || str_eq(name, S("remove")) || str_eq(name, S("pop")) || str_eq(name, S("extend")) || str_eq(name, S("sort")))
		return script_fail(s, "%.*s on a list is not understood", SFMT(name));
	*found = false;
	return true;
}

/* ---- dicts --------------------------------------------------------------------------------------------------------------------------- */

static bool
dict_call(struct script *s, struct str name, const struct args *a, struct thing *out, bool *found)
{
	const struct items *d = a->at[0].u.items;
	bool items = str_eq(name, S("items")), keys = str_eq(name, S("keys"));
	const struct thing *x;

	*found = true;
	if (d->input && (items || keys || str_eq(name, S("values"))))
		return script_fail(s, "forward goes through the dict %.*s that it takes, and the file does not say what is in it", SFMT(graph_str(s->g, d->input)));
	if (items || keys || str_eq(name, S("values"))) {
		*out = thing_items(s, THING_LIST, NULL, 0);
		for (uint32_t i = 0; i + 1 < d->n; i += 2)
			items_add(s, out->u.items, items ? thing_items(s, THING_TUPLE, d->at + i, 2) : d->at[i + !keys]);
		return true;
	}
	if (str_eq(name, S("get")) && a->n >= 2) {
		x = dict_find(d, &a->at[1]);
		*out = x ? *x : a->n > 2 ? a->at[2] : thing_none();
		return true;
	}
	*found = false;
	return true;
}

static bool
contains(const struct args *a, struct thing *out)
{
	const struct items *l = a->at[0].u.items;
	bool known = true, hit = false;

	for (uint32_t i = 0; i < l->n && !hit; i += a->at[0].kind == THING_DICT ? 2 : 1)
		hit = thing_equal(&l->at[i], &a->at[1], &known);
	*out = l->val || (!known && !hit) ? (struct thing){0} : thing_bool(hit);
	return true;
}

bool
script_list_call(struct script *s, struct str name, const struct args *a, struct thing *out, bool *found)
{
	const struct thing *x = a->n ? &a->at[0] : NULL;
	bool list = x && (x->kind == THING_LIST || x->kind == THING_TUPLE), dict = x && x->kind == THING_DICT;

	*found = true;
	if (dict && str_eq(name, S("len")) && x->u.items->input)
		return script_fail(s, "forward counts the dict %.*s that it takes, and the file does not say what is in it", SFMT(graph_str(s->g, x->u.items->input)));
	if (x && str_eq(name, S("len")) && (list || dict)) {
		*out = x->u.items->val ? script_measure(s, "len", *x, thing_none(), THING_INT) : thing_int(dict ? x->u.items->n / 2 : x->u.items->n);
		return true;
	}
	if ((list || dict) && a->n == 2 && str_eq(name, S("__contains__")))
		return contains(a, out);
	if (list && str_eq(name, S("slice")))
		return slice(s, a, out);
	if (list && a->n == 2 && str_eq(name, S("add")) && (a->at[1].kind == THING_LIST || a->at[1].kind == THING_TUPLE))
		return join(s, x, &a->at[1], out);
	if (list && a->n == 2 && str_eq(name, S("mul")) && a->at[1].kind == THING_INT)
		return repeat(s, x, &a->at[1], out);
	if (list && a->n == 2 && str_eq(name, S("__getitem__")))
		return *out = script_get(s, *x, a->at[1]), true;
	if (list && (str_eq(name, S("list")) || str_eq(name, S("copy"))))
		return *out = is_open(x) ? open_list(s, x->u.items->val) : thing_items(s, THING_LIST, x->u.items->at, x->u.items->n), true;
	if (dict && dict_call(s, name, a, out, found) && *found)
		return true;
	*found = false;
	if (list || dict)
		return change(s, name, a, out, found);
	return true;
}
