/*
 * The columns of a sweep: --vary batch=1,2,4..64 or --vary optimizer=adamw,sgd. A range goes on as the two values before it do, if they and
 * its first are in equal steps (1,2,3..8), and doubles otherwise; 10..50+10 gives the step.
 */
#include "sweep.h"

#include <string.h>

#define MOST_VALUES 100000u

struct numbers {
	struct ctx *c;
	int64_t *v;  uint32_t n, cap;
};

static bool
add(struct numbers *l, int64_t n)
{
	if (n < 0 || l->n == MOST_VALUES)
		return false;
	ROOM(l->c->a, l->v, l->n, l->cap, 1);
	l->v[l->n++] = n;
	return true;
}

/* The step of an equal progression that leads to from; 0 = there is none, double. */
static int64_t
step_to(const struct numbers *l, int64_t from)
{
	int64_t d;

	if (l->n < 2)
		return 0;
	d = from - l->v[l->n - 1];
	return d > 0 && l->v[l->n - 1] - l->v[l->n - 2] == d ? d : 0;
}

static bool
add_range(struct numbers *l, struct str from, struct str to)
{
	int64_t first, last, step, plus = str_find(to, '+');
	struct str by = plus < 0 ? S("") : str_sub(to, (uint32_t)plus + 1, to.n);

	if (plus >= 0)
		to = str_sub(to, 0, (uint32_t)plus);
	if (!str_int(str_trim(from), &first) || !str_int(str_trim(to), &last) || first < 1 || last < first || last > INT64_MAX / 4)
		return false;
	step = step_to(l, first);
	if (by.n && (!str_int(str_trim(by), &step) || step < 1))
		return false;
	for (int64_t n = first; n < last; n = step ? n + step : n * 2)
		if (!add(l, n))
			return false;
	return step && (last - first) % step ? true : add(l, last);
}

static bool
add_item(struct numbers *l, struct str item)
{
	int64_t n;

	for (uint32_t i = 0; i + 1 < item.n; i++)
		if (item.p[i] == '.' && item.p[i + 1] == '.')
			return add_range(l, str_sub(item, 0, i), str_sub(item, i + 2, item.n));
	return str_int(str_trim(item), &n) && add(l, n);
}

static bool
read_numbers(struct mc_sweep *s, struct sweep_axis *x, struct str values)
{
	struct numbers l = {.c = &s->c};
	struct str rest = values, item;

	while (rest.n && str_cut(&rest, ',', &item))
		if (!add_item(&l, item))
			return diag(&s->c, DIAG_BAD_VARY, SFMT(x->name), SFMT(item), "whole numbers and ranges such as 1,2,4..64 or 512..4096+512");
	x->n = l.n;
	x->number = l.v;
	x->text = NEW(s->c.a, struct str, l.n + 1);
	for (uint32_t i = 0; i < l.n; i++)
		x->text[i] = str_fmt(s->c.a, "%lld", (long long)l.v[i]);
	return true;
}

/* Values of a list may hold several patterns: a+b. */
static struct str
list_value(struct mc_sweep *s, struct str item)
{
	char *p = NEW(s->c.a, char, item.n + 1);

	for (uint32_t i = 0; i < item.n; i++)
		p[i] = item.p[i] == '+' ? ',' : item.p[i];
	return (struct str){p, item.n};
}

static bool
read_texts(struct mc_sweep *s, struct sweep_axis *x, struct str values)
{
	struct recipe trial;
	struct str rest = values, item;
	uint32_t n = 1;

	for (uint32_t i = 0; i < values.n; i++)
		n += values.p[i] == ',';
	if (n > MOST_VALUES)
		return diag(&s->c, DIAG_BAD_VARY, SFMT(x->name), SFMT(S("so many values")), "at most 100000");
	x->text = NEW(s->c.a, struct str, n);
	do {
		if (!str_cut(&rest, ',', &item))
			item = S("");
		item = str_trim(item);
		if (key_info(x->key)->type == RT_LIST)
			item = list_value(s, item);
		recipe_init(&trial);
		if (!recipe_set_text(&s->c, &trial, x->key, item))
			return false;
		x->text[x->n++] = str_copy(s->c.a, item);
	} while (x->n < n);
	return true;
}

bool
sweep_add_axis(struct mc_sweep *s, struct str name, struct str values)
{
	struct sweep_axis x = {.name = str_copy(s->c.a, str_trim(name)), .key = key_by_name(str_trim(name))};
	bool numbers = !x.key || key_info(x.key)->type == RT_INT;

	for (uint32_t i = 0; i < s->s.naxis; i++)
		if (str_eq(s->s.axes[i].name, x.name))
			return diag(&s->c, DIAG_BAD_VARY, SFMT(x.name), SFMT(S("a second column of that name")), "one is");
	if (!x.name.n || (numbers && !values.n))
		return diag(&s->c, DIAG_BAD_VARY, SFMT(x.name), SFMT(S("nothing")), "NAME=VALUE,VALUE.. is, such as batch=1,2,4..64");
	if (!(numbers ? read_numbers(s, &x, values) : read_texts(s, &x, values)))
		return false;
	ROOM(s->c.a, s->s.axes, s->s.naxis, s->s.axis_cap, 1);
	s->s.axes[s->s.naxis++] = x;
	return true;
}
