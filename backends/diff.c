/*
 * diff: two JSON reports row by row: memory, factors, phases, modalities, modules, recipe. Rows of modules are those that grew or shrank most;
 * one whose change is that of a single child is left out.
 */
#include "diff.h"

#include "../frontend/frontend.h"

#include <stdlib.h>
#include <string.h>

#define MODULES 20

struct inputs {
	struct mc_diff *d;
	struct str text[2];
	const json_t *o[2];
	const struct report *r;
};

void
diff_bytes(struct mc_diff *d, unsigned section, struct str name, int64_t a, int64_t b)
{
	ROOM(d->c.a, d->rows, d->nrow, d->cap, 1);
	d->rows[d->nrow++] = (struct diff_row){.section = (uint8_t)section, .name = str_copy(d->c.a, name), .a = a, .b = b};
	d->differs |= a != b;
}

mc_status
diff_begin(mc_diff **out)
{
	if (!out)
		return MC_BAD_INPUT;
	*out = calloc(1, sizeof **out);
	if (!*out || !ctx_open(&(*out)->c, NULL)) {
		free(*out);
		*out = NULL;
		return MC_NO_MEMORY;
	}
	return MC_OK;
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

static bool
read_report(struct inputs *in, unsigned i)
{
	struct ctx *c = &in->d->c;

	c->file = str_copy(c->a, i ? in->d->title_b : in->d->title_a);        /* the caller's text need not stay */
	*(i ? &in->d->title_b : &in->d->title_a) = c->file;
	in->o[i] = json_read(c, in->text[i]);
	if (!in->o[i])
		return false;
	if (!str_eq(json_get_str(in->o[i], "schema"), S("memcrest/report")))
		return diag(c, DIAG_JSON_FIELD, SFMT(S("schema")), "memcrest/report");
	return true;
}

static int64_t
number(const json_t *o, const char *a, const char *b)
{
	o = json_object_get(o, a);
	return json_integer_value(b ? json_object_get(o, b) : o);
}

static int64_t
total(const json_t *factors)
{
	uint64_t n = (uint64_t)json_integer_value(json_object_get(factors, "param")) + (uint64_t)json_integer_value(json_object_get(factors, "grad"));

	n += (uint64_t)json_integer_value(json_object_get(factors, "opt")) + (uint64_t)json_integer_value(json_object_get(factors, "act"));
	return (int64_t)n;
}

/* ---- rows ------------------------------------------------------------------------------------------------------------- */

static void
memory_rows(struct inputs *in)
{
	static const char *const keys[][2] = {{"tensors", "peak of tensors"}, {"allocated", "allocated"}, {"reserved", "reserved"}};
	const json_t *a = json_object_get(in->o[0], "peak"), *b = json_object_get(in->o[1], "peak");

	for (unsigned i = 0; i < 3; i++)
		diff_bytes(in->d, DIFF_MEMORY, str_of(keys[i][1]), number(a, keys[i][0], NULL), number(b, keys[i][0], NULL));
	diff_bytes(in->d, DIFF_MEMORY, S("process, low"), number(a, "process", "low"), number(b, "process", "low"));
	diff_bytes(in->d, DIFF_MEMORY, S("process, high"), number(a, "process", "high"), number(b, "process", "high"));
}

static void
factor_rows(struct inputs *in)
{
	static const char *const keys[][3] = {{"factors", "param", "parameters"}, {"factors", "grad", "gradients"}, {"factors", "opt", "optimizer state"},
	    {"act", "saved", "activations, saved"}, {"act", "transient", "activations, transient"}, {"act", "input", "input"}};
	const json_t *a = json_object_get(in->o[0], "peak"), *b = json_object_get(in->o[1], "peak");

	for (unsigned i = 0; i < 6; i++)
		diff_bytes(in->d, DIFF_FACTORS, str_of(keys[i][2]), number(a, keys[i][0], keys[i][1]), number(b, keys[i][0], keys[i][1]));
}

static void
phase_rows(struct inputs *in)
{
	static const char *const phases[] = {"forward", "backward", "optimizer"};

	for (unsigned i = 0; i < 2; i++)
		for (unsigned p = 0; p < 3; p++) {
			const json_t *a = json_array_get(json_object_get(in->o[0], "steps"), i), *b = json_array_get(json_object_get(in->o[1], "steps"), i);

			diff_bytes(in->d, DIFF_PHASES, str_fmt(in->d->c.a, "step %u, %s", i + 1, phases[p]), number(a, "phases", phases[p]), number(b, "phases", phases[p]));
		}
}

/* Items of a list of both, matched by a key: those of the first in its order, then what only the second has. */
struct pair {
	struct str name;
	int64_t a, b;
};

static struct pair *
match(struct inputs *in, const char *list, const char *key, uint32_t *n)
{
	struct strtab *names = strtab_new(in->d->c.a);
	const json_t *l[2] = {json_object_get(in->o[0], list), json_object_get(in->o[1], list)};
	struct pair *p = NEW(in->d->c.a, struct pair, json_array_size(l[0]) + json_array_size(l[1]) + 1);

	for (unsigned side = 0; side < 2; side++)
		for (size_t i = 0; i < json_array_size(l[side]); i++) {
			const json_t *x = json_array_get(l[side], i);
			uint32_t id = strtab_id(names, json_get_str(x, key));

			p[id].name = json_get_str(x, key);
			*(side ? &p[id].b : &p[id].a) = total(json_object_get(x, "factors"));
		}
	*n = strtab_count(names);
	return p;
}

static uint64_t
change(const struct pair *p)
{
	return p->a > p->b ? (uint64_t)p->a - (uint64_t)p->b : (uint64_t)p->b - (uint64_t)p->a;
}

static int
by_change(const void *x, const void *y)
{
	const struct pair *a = x, *b = y;
	uint64_t m = change(a), n = change(b);

	return m != n ? (m > n ? -1 : 1) : a->name.n != b->name.n ? (a->name.n < b->name.n ? -1 : 1) : memcmp(a->name.p, b->name.p, a->name.n);
}

/* A row says nothing of its own if the next, a child, changed as much. */
static bool
is_shell(const struct pair *p, uint32_t i, uint32_t n)
{
	const struct pair *next = &p[i + 1];

	return i + 1 < n && change(next) == change(&p[i]) && next->name.n > p[i].name.n && str_starts(next->name, p[i].name);
}

static void
module_rows(struct inputs *in)
{
	uint32_t n, shown = 0;
	struct pair *p = match(in, "modules", "path", &n);

	if (n < 2)
		return;
	p++;       /* without the model itself, whose path is empty */
	n--;
	qsort(p, n, sizeof *p, by_change);
	for (uint32_t i = 0; i < n && shown < MODULES && change(&p[i]); i++)
		if (!is_shell(p, i, n)) {
			diff_bytes(in->d, DIFF_MODULES, p[i].name, p[i].a, p[i].b);
			shown++;
		}
}

static void
modality_rows(struct inputs *in)
{
	uint32_t n;
	struct pair *p = match(in, "modalities", "name", &n);

	for (uint32_t i = 1; i < n; i++)
		if (p[i].a || p[i].b)
			diff_bytes(in->d, DIFF_MODALITIES, p[i].name, p[i].a, p[i].b);
}

/* A list is its items, one after the other. */
static struct str
value_text(struct inputs *in, const json_t *v)
{
	struct str out = S("");

	if (!v)
		return S("-");
	if (!json_is_array(v))
		return json_text_of(&in->d->c, v);
	for (size_t i = 0; i < json_array_size(v); i++)
		out = str_fmt(in->d->c.a, "%.*s%s%.*s", SFMT(out), i ? ", " : "", SFMT(json_text_of(&in->d->c, json_array_get(v, i))));
	return out.n ? out : S("none");
}

/* A key that only one of them has is shown, but reports of two versions are not different for it. */
static void
recipe_row(struct inputs *in, const char *outer, const char *key, const json_t *a, const json_t *b)
{
	struct mc_diff *d = in->d;
	struct str text_a = value_text(in, a), text_b = value_text(in, b);

	if (a && b && a->kind == b->kind && str_eq(text_a, text_b))
		return;
	d->differs |= a && b;
	ROOM(d->c.a, d->rows, d->nrow, d->cap, 1);
	d->rows[d->nrow++] = (struct diff_row){.section = DIFF_RECIPE, .text_a = text_a, .text_b = text_b,
	    .name = str_fmt(d->c.a, "%s%s%s", outer, *outer ? "." : "", key)};
}

static void
recipe_rows(struct inputs *in)
{
	const json_t *a = json_object_get(in->o[0], "recipe"), *b = json_object_get(in->o[1], "recipe");
	json_t *x, *y;
	const char *key, *key2;

	json_object_foreach(b, key, x) {
		if (!json_is_object(x))
			recipe_row(in, "", key, json_object_get(a, key), x);
		json_object_foreach(x, key2, y)
			recipe_row(in, key, key2, json_object_get(json_object_get(a, key), key2), y);
	}
}

static bool
diff_work(void *arg)
{
	struct inputs *in = arg;

	if (!read_report(in, 0) || !read_report(in, 1))
		return false;
	memory_rows(in);
	factor_rows(in);
	phase_rows(in);
	modality_rows(in);
	module_rows(in);
	recipe_rows(in);
	return true;
}

/* ---- doors ----------------------------------------------------------------------------------------------------------------- */

mc_status
mc_diff_reports(const char *a, size_t na, const char *name_a, const char *b, size_t nb, const char *name_b, mc_diff **out)
{
	struct inputs in = {.text = {{a, (uint32_t)na}, {b, (uint32_t)nb}}};
	mc_status st = diff_begin(out);

	if (st != MC_OK || na > UINT32_MAX || nb > UINT32_MAX)
		return st ? st : MC_LIMIT;
	in.d = *out;
	in.d->title_a = str_of(name_a);
	in.d->title_b = str_of(name_b);
	return ctx_enter(&in.d->c, diff_work, &in);
}

static bool
compare_work(void *arg)
{
	struct inputs *in = arg;

	in->d->c.file = str_copy(in->d->c.a, in->d->c.file);
	return compare_read(in->d, in->r, in->text[0]);
}

mc_status
mc_diff_measured(const mc_report *r, const void *pickle, size_t n, const char *name, mc_diff **out)
{
	struct inputs in = {.r = r ? &r->r : NULL, .text = {{pickle, (uint32_t)n}}};
	mc_status st = diff_begin(out);

	if (st != MC_OK || n > UINT32_MAX || !r || !r->r.sched)
		return st ? st : n > UINT32_MAX ? MC_LIMIT : MC_BAD_INPUT;
	in.d = *out;
	in.d->c.file = str_of(name);
	in.d->title_a = S("measured");
	in.d->title_b = S("predicted");
	return ctx_enter(&in.d->c, compare_work, &in);
}

int
mc_diff_same(const mc_diff *d)
{
	return d && d->nrow && !d->c.nerror && !d->differs;
}

/* Of the peaks, the first rows. */
double
mc_diff_error(const mc_diff *d)
{
	const struct diff_row *r = d && d->nrow ? &d->rows[0] : NULL;

	return r && r->a ? ((double)r->b - (double)r->a) / (double)r->a : 0;
}

size_t
mc_diff_diagnostics(const mc_diff *d, mc_diagnostic *out, size_t cap)
{
	return d ? ctx_diagnostics(&d->c, out, cap) : 0;
}

void
mc_diff_free(mc_diff *d)
{
	if (!d)
		return;
	ctx_close(&d->c);
	free(d);
}
