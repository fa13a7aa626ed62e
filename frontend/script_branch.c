/*
 * Branches and loops. Conditions that are known now choose, loops whose turns are known now are unrolled. Others become regions of the
 * graph, between if, else and endif or loop and endloop, for passes/raise/infer.c to decide when sizes are bound.
 */
#include "script.h"

#include <string.h>

/* ---- which way -------------------------------------------------------------------------------------------------------- */

static bool
raises(struct script *s, const struct stmt *st)
{
	for (; st; st = st->next) {
		const struct term *t = st->kind == STMT_EXPR ? st->value : NULL;

		if (t && t->kind == TERM_CALL && str_eq(term_path(s, t->kid[0]), S("ops.prim.RaiseException")))
			return true;
	}
	return false;
}

static bool
known_truth(const struct thing *t, bool *value)
{
	struct number n = thing_number(t);

	*value = n.kind != ARG_NONE && number_real(n) != 0;
	if (t->kind == THING_NONE)
		return true;
	return n.kind != ARG_NONE;
}

/* ---- frames before and after ---------------------------------------------------------------------------------------------- */

struct snapshot {
	struct thing *thing;
	uint32_t n;
};

static struct snapshot
take(struct script *s)
{
	struct snapshot x = {NEW(s->c->a, struct thing, s->frame->n + 1u), s->frame->n};

	if (x.n)
		memcpy(x.thing, s->frame->thing, x.n * sizeof *x.thing);
	return x;
}

static void
restore(struct script *s, const struct snapshot *x)
{
	s->frame->n = x->n;
	if (x->n)
		memcpy(s->frame->thing, x->thing, x->n * sizeof *x->thing);
}

static bool
same_thing(const struct thing *a, const struct thing *b)
{
	bool known = true;

	if (a->kind != b->kind || a->val != b->val)
		return false;
	return a->kind == THING_UNKNOWN || a->kind == THING_EITHER ? a->u.either == b->u.either : thing_equal(a, b, &known) && known;
}

/* ---- merging ---------------------------------------------------------------------------------------------------------------- */

struct slot {
	struct thing a, b;
	uint32_t val;
};

struct merge {
	struct script *s;
	struct thing cond;
	struct slot *slots;     uint32_t n, cap;
	unsigned depth;
};

/* Two names for one tensor in both branches are two names for one tensor behind them. */
static uint32_t
new_slot(struct merge *m, struct thing a, struct thing b)
{
	for (uint32_t i = m->n; a.kind == THING_TENSOR && i > 0 && i + 64 > m->n; i--) {
		const struct slot *x = &m->slots[i - 1];

		if (x->a.kind == THING_TENSOR && x->b.kind == THING_TENSOR && x->a.val == a.val && x->b.val == b.val)
			return x->val;
	}
	ROOM(m->s->c->a, m->slots, m->n, m->cap, 1);
	m->slots[m->n] = (struct slot){a, b, val_new(m->s->g, VAL_NODE, S(""))};
	return m->slots[m->n++].val;
}

static struct thing merged(struct merge *, const struct thing *, const struct thing *);

static struct thing
merge_items(struct merge *m, const struct thing *a, const struct thing *b)
{
	struct thing out = thing_items(m->s, (enum thing_kind)a->kind, NULL, 0);

	for (uint32_t i = 0; i < a->u.items->n; i++)
		items_add(m->s, out.u.items, merged(m, &a->u.items->at[i], &b->u.items->at[i]));
	return out;
}

static struct thing
merge_lists(struct merge *m, const struct thing *a, const struct thing *b)
{
	struct thing out = thing_items(m->s, THING_LIST, NULL, 0);

	out.u.items->val = new_slot(m, *a, *b);
	if ((a->u.items->val && m->s->g->vals[a->u.items->val].flags & VF_LIST) || (b->u.items->val && m->s->g->vals[b->u.items->val].flags & VF_LIST))
		m->s->g->vals[out.u.items->val].flags |= VF_LIST;
	return out;
}

static struct thing
either(struct merge *m, const struct thing *a, const struct thing *b)
{
	struct thing t = {.kind = THING_EITHER};

	t.u.either = NEW(m->s->c->a, struct either, 1);
	*t.u.either = (struct either){m->cond, *a, *b};
	return t;
}

/* What a name stands for when one of two branches has run. */
static struct thing
merged(struct merge *m, const struct thing *a, const struct thing *b)
{
	bool lists = a->kind == b->kind && (a->kind == THING_LIST || a->kind == THING_TUPLE);

	if (same_thing(a, b) || b->kind == THING_UNKNOWN || m->depth > 16)
		return *a;
	if (a->kind == THING_UNKNOWN)
		return *b;
	m->depth++;
	if (lists && !a->u.items->val && !b->u.items->val && a->u.items->n == b->u.items->n) {
		struct thing t = merge_items(m, a, b);

		m->depth--;
		return t;
	}
	m->depth--;
	if (lists && a->kind == THING_LIST)
		return merge_lists(m, a, b);
	if (a->kind == THING_TENSOR && b->kind == THING_TENSOR)
		return thing_tensor(new_slot(m, *a, *b));
	if (thing_is_number(a) && thing_is_number(b))
		return (struct thing){.kind = a->kind == b->kind ? a->kind : THING_FLOAT, .val = new_slot(m, *a, *b)};
	if (a->kind == THING_NONE || b->kind == THING_NONE || (thing_is_text(a) && thing_is_text(b)))
		return either(m, a, b);
	return (struct thing){0};
}

/* Values made beforehand become results of the node that closes a region. */
static void
adopt(struct script *s, uint32_t n, uint32_t k, uint32_t v)
{
	s->g->vals[v].name = graph_name(s->g, str_fmt(s->c->a, "%.*s.%u", SFMT(graph_str(s->g, s->g->nodes[n].name)), (unsigned)k));
	s->g->vals[v].node = n;
	s->g->vals[v].out = k;
	node_outs(s->g, n)[k] = v;
}

static void
end_if(struct merge *m)
{
	struct script *s = m->s;
	uint32_t n = script_node(s, OP_ENDIF, S(""), m->n * 2, m->n);

	for (uint32_t k = 0; k < m->n; k++) {
		struct arg a = script_arg(s, &m->slots[k].a, S("")), b = script_arg(s, &m->slots[k].b, S(""));

		node_args(s->g, n)[2 * k] = a;
		node_args(s->g, n)[2 * k + 1] = b;
		adopt(s, n, k, m->slots[k].val);
	}
}

/* ---- if ------------------------------------------------------------------------------------------------------------------------- */

struct branch {
	uint32_t *name, n;         /* what its frame had at its end */
	struct thing *thing;
};

static bool
run_branch(struct script *s, const struct stmt *body, const struct snapshot *before, struct branch *out)
{
	if (!script_block(s, body))
		return false;
	if (s->frame->returned)
		return script_fail(s, "a function returns where only sizes or data say whether the code runs");
	out->n = s->frame->n;
	out->name = NEW(s->c->a, uint32_t, out->n + 1u);
	out->thing = NEW(s->c->a, struct thing, out->n + 1u);
	if (out->n) {
		memcpy(out->name, s->frame->name, out->n * sizeof *out->name);
		memcpy(out->thing, s->frame->thing, out->n * sizeof *out->thing);
	}
	restore(s, before);
	return true;
}

/* Names that were there before stand at the same index in both; new ones matter if both have them. */
static void
merge_frames(struct merge *m, const struct branch *a, const struct branch *b, uint32_t before)
{
	for (uint32_t i = 0; i < before; i++)
		m->s->frame->thing[i] = merged(m, &a->thing[i], &b->thing[i]);
	for (uint32_t i = before; i < a->n; i++)
		for (uint32_t k = before; k < b->n; k++)
			if (a->name[i] == b->name[k])
				local_set(m->s, a->name[i], merged(m, &a->thing[i], &b->thing[k]));
}

static bool
open_if(struct script *s, const struct stmt *st, struct thing cond)
{
	struct snapshot before = take(s);
	struct merge m = {.s = s, .cond = cond};
	struct branch a, b;
	uint32_t n = script_node(s, OP_IF, S(""), 1, 0);

	node_args(s->g, n)[0] = script_arg(s, &cond, S(""));
	s->region++;
	if (!run_branch(s, st->body, &before, &a))
		return false;
	script_node(s, OP_ELSE, S(""), 0, 0);
	if (!run_branch(s, st->orelse, &before, &b))
		return false;
	s->region--;
	merge_frames(&m, &a, &b, before.n);
	end_if(&m);
	return true;
}

bool
script_if(struct script *s, const struct stmt *st)
{
	struct thing cond;
	bool value;

	if (!script_eval(s, st->value, 1, &cond))
		return false;
	if (known_truth(&cond, &value))
		return script_block(s, value ? st->body : st->orelse);
	if (raises(s, st->body) != raises(s, st->orelse))         /* a check: training runs where it holds */
		return script_block(s, raises(s, st->body) ? st->orelse : st->body);
	return open_if(s, st, cond);
}

/* ---- loops -------------------------------------------------------------------------------------------------------------------- */

/* The values that one turn hands to the next, found in the things of carried names. */
struct carry {
	struct script *s;
	uint32_t *name, nname, name_cap;
	struct items **list;    uint32_t nlist, list_cap;        /* open lists that the body changes */
	struct thing *leaf;     uint32_t nleaf, leaf_cap;
	uint32_t node, next;       /* node whose results replace the leaves, and which one is next */
	unsigned depth;
};

static void
add_leaf(struct carry *k, struct thing t)
{
	ROOM(k->s->c->a, k->leaf, k->nleaf, k->leaf_cap, 1);
	k->leaf[k->nleaf++] = t;
}

static bool
is_leaf(const struct thing *t)
{
	return t->kind == THING_TENSOR || thing_is_number(t) || (t->kind == THING_LIST && t->u.items->val);
}

static void
collect_leaves(struct carry *k, const struct thing *t)
{
	if (is_leaf(t)) {
		add_leaf(k, *t);
	} else if ((t->kind == THING_LIST || t->kind == THING_TUPLE) && k->depth < 16) {
		k->depth++;
		for (uint32_t i = 0; i < t->u.items->n; i++)
			collect_leaves(k, &t->u.items->at[i]);
		k->depth--;
	}
}

/* The same thing with its leaves replaced by results of the node. */
static struct thing
replaced(struct carry *k, const struct thing *t)
{
	struct thing out = *t;

	if (is_leaf(t)) {
		out.val = script_result(k->s, k->node, k->next++);
		if (t->kind == THING_LIST) {
			uint32_t v = out.val;

			out = thing_items(k->s, THING_LIST, NULL, 0);
			out.u.items->val = v;
			k->s->g->vals[v].flags |= k->s->g->vals[t->u.items->val].flags & VF_LIST;
		}
	} else if ((t->kind == THING_LIST || t->kind == THING_TUPLE) && k->depth < 16) {
		k->depth++;
		out = thing_items(k->s, (enum thing_kind)t->kind, NULL, 0);
		for (uint32_t i = 0; i < t->u.items->n; i++)
			items_add(k->s, out.u.items, replaced(k, &t->u.items->at[i]));
		k->depth--;
	}
	return out;
}

/* What the end of the body hands on for each leaf that its beginning took: "now" has the structure of "then", or the leaf is lost. */
static void
collect_next(struct carry *k, const struct thing *then, const struct thing *now)
{
	bool lists = then->kind == THING_LIST || then->kind == THING_TUPLE;

	if (is_leaf(then)) {
		add_leaf(k, is_leaf(now) ? *now : (struct thing){0});
	} else if (lists && k->depth < 16) {
		bool same = now->kind == then->kind && !now->u.items->val && now->u.items->n == then->u.items->n;
		struct thing lost = {0};

		k->depth++;
		for (uint32_t i = 0; i < then->u.items->n; i++)
			collect_next(k, &then->u.items->at[i], same ? &now->u.items->at[i] : &lost);
		k->depth--;
	}
}

static void
carry_name(struct carry *k, uint32_t name)
{
	const struct locals *f = k->s->frame;
	bool there = false;

	for (uint32_t i = 0; i < k->nname; i++)
		if (k->name[i] == name)
			return;
	for (uint32_t i = 0; i < f->n; i++)
		there |= f->name[i] == name;
	if (!there)
		return;
	ROOM(k->s->c->a, k->name, k->nname, k->name_cap, 1);
	k->name[k->nname++] = name;
}

/* A list that the body changes goes into the graph before the loop. */
static bool
carry_list(struct carry *k, const struct term *call)
{
	static const char *const changes[] = {"torch.append", "torch._set_item", "torch.extend", "torch.insert", "torch.pop", "torch.clear", "torch.reverse"};
	struct str path = call->kind == TERM_CALL && call->n > 1 && call->kid[1]->kind == TERM_NAME ? term_path(k->s, call->kid[0]) : S("");
	const struct thing *t;

	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		if (!str_eq(path, str_of(changes[i])))
			continue;
		t = local_find(k->s, call->kid[1]->name);
		if (!t || t->kind != THING_LIST || t->u.items->n > 500)
			return true;
		for (uint32_t j = 0; j < k->nlist; j++)
			if (k->list[j] == t->u.items)
				return true;
		ROOM(k->s->c->a, k->list, k->nlist, k->list_cap, 1);
		k->list[k->nlist++] = t->u.items;
		return list_unfix(k->s, t->u.items);
	}
	return true;
}

static bool
scan_body(struct carry *k, const struct stmt *st)
{
	for (; st; st = st->next) {
		for (uint32_t i = 0; i < st->nname; i++)
			carry_name(k, st->names[i]);
		if (st->value && !carry_list(k, st->value))
			return false;
		if (!scan_body(k, st->body) || !scan_body(k, st->orelse))
			return false;
	}
	return true;
}

static bool
is_changed_list(const struct carry *k, const struct thing *t)
{
	for (uint32_t i = 0; i < k->nlist && t->kind == THING_LIST; i++)
		if (k->list[i] == t->u.items)
			return true;
	return false;
}

static void
begin_loop(struct carry *k, const struct thing *count, const struct thing *cond, struct thing *start)
{
	struct script *s = k->s;
	struct arg a;

	for (uint32_t i = 0; i < k->nlist; i++)
		add_leaf(k, (struct thing){.kind = THING_LIST, .u.items = k->list[i]});
	for (uint32_t i = 0; i < k->nname; i++)
		if (!is_changed_list(k, local_find(s, k->name[i])))
			collect_leaves(k, local_find(s, k->name[i]));
	k->node = script_node(s, OP_LOOP, S(""), 2 + k->nleaf, 1 + k->nleaf);
	node_args(s->g, k->node)[0] = count ? script_arg(s, count, S("")) : (struct arg){.kind = ARG_NONE};
	node_args(s->g, k->node)[1] = cond ? script_arg(s, cond, S("")) : (struct arg){.kind = ARG_NONE};
	for (uint32_t i = 0; i < k->nleaf; i++) {
		a = script_arg(s, &k->leaf[i], S(""));
		node_args(s->g, k->node)[2 + i] = a;
	}
	k->next = 1;
	for (uint32_t i = 0; i < k->nlist; i++)
		k->list[i]->val = script_result(s, k->node, k->next++);
	for (uint32_t i = 0; i < k->nname; i++) {
		const struct thing *t = local_find(s, k->name[i]);

		start[i] = is_changed_list(k, t) ? *t : replaced(k, t);
		local_set(s, k->name[i], start[i]);
	}
}

static void
end_loop(struct carry *k, const struct thing *cond, const struct thing *start)
{
	struct script *s = k->s;
	struct arg a;

	k->nleaf = 0;
	for (uint32_t i = 0; i < k->nlist; i++)
		add_leaf(k, (struct thing){.kind = THING_LIST, .u.items = k->list[i]});
	for (uint32_t i = 0; i < k->nname; i++)
		if (!is_changed_list(k, &start[i]))
			collect_next(k, &start[i], local_find(s, k->name[i]));
	k->node = script_node(s, OP_ENDLOOP, S(""), 1 + k->nleaf, k->nleaf);
	node_args(s->g, k->node)[0] = cond ? script_arg(s, cond, S("")) : arg_bool(true);
	for (uint32_t i = 0; i < k->nleaf; i++) {
		a = script_arg(s, &k->leaf[i], S(""));
		node_args(s->g, k->node)[1 + i] = a;
	}
	k->next = 0;
	for (uint32_t i = 0; i < k->nlist; i++)
		k->list[i]->val = script_result(s, k->node, k->next++);
	for (uint32_t i = 0; i < k->nname; i++)
		local_set(s, k->name[i], is_changed_list(k, &start[i]) ? start[i] : replaced(k, &start[i]));
}

static bool
open_loop(struct script *s, const struct stmt *st, const struct thing *count)
{
	struct carry k = {.s = s};
	bool while_loop = st->kind == STMT_WHILE;
	struct thing cond = {0}, index = {.kind = THING_INT}, *start;

	if (!scan_body(&k, st->body) || (while_loop && !script_eval(s, st->value, 1, &cond)))
		return false;
	start = NEW(s->c->a, struct thing, k.nname + 1u);
	begin_loop(&k, count, while_loop ? &cond : NULL, start);
	index.val = script_result(s, k.node, 0);
	if (!while_loop)
		local_set(s, st->names[0], index);
	s->region++;
	if (!script_block(s, st->body))
		return false;
	if (s->frame->returned)
		return script_fail(s, "a function returns where only sizes or data say whether the code runs");
	s->region--;
	if (while_loop && !script_eval(s, st->value, 1, &cond))
		return false;
	end_loop(&k, while_loop ? &cond : NULL, start);
	return true;
}

bool
script_loop(struct script *s, const struct stmt *st)
{
	struct thing t;
	bool more;

	if (!script_eval(s, st->value, 1, &t))
		return false;
	if (st->kind == STMT_FOR) {
		if (t.kind != THING_INT || t.val)
			return open_loop(s, st, &t);
		for (int64_t i = 0; i < t.u.i && !s->frame->returned; i++) {
			local_set(s, st->names[0], thing_int(i));
			if (!script_block(s, st->body))
				return false;
		}
		return true;
	}
	while (known_truth(&t, &more)) {
		if (!more || s->frame->returned)
			return true;
		if (!script_block(s, st->body) || !script_eval(s, st->value, 1, &t))
			return false;
	}
	return open_loop(s, st, NULL);
}
