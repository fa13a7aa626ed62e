/*
 * The recipe: how the model will be trained. recipe.def lists the keys; here they are set from text
 * (a flag's), checked, and asked. frontend/recipe.c reads them from JSON.
 */
#include "ir.h"

#include <string.h>

#define DEVICE_NAMES device_names
static const char device_names[] = "none"
#define DEVICE(name, sm, total, low, high, source) "|" name
#define WORKSPACE(first, last, sm_first, sm_last, cublas, lt, source)
#include "device.def"
#undef DEVICE
#undef WORKSPACE
    ;

static const struct key_info table[RK_COUNT] = {
	[RK_NONE] = {"", RT_TEXT, NULL, "", ""},
#define KEY(id, name, type, choices, dflt, help) [RK_##id] = {name, type, choices, dflt, help},
#include "recipe.def"
#undef KEY
};

const struct key_info *
key_info(unsigned key)
{
	return &table[key < RK_COUNT ? key : RK_NONE];
}

/* "lora.r", "lora-r" and "lora_r" all name lora.r: people type all three. */
unsigned
key_by_name(struct str s)
{
	for (unsigned k = 1; k < RK_COUNT; k++) {
		const char *name = table[k].name;
		uint32_t i;

		for (i = 0; i < s.n && name[i]; i++)
			if (s.p[i] != name[i] && !((s.p[i] == '-' || s.p[i] == '_') && (name[i] == '.' || name[i] == '_')))
				break;
		if (i == s.n && !name[i])
			return k;
	}
	return RK_NONE;
}

struct str
choice_text(unsigned key, int64_t index)
{
	struct str rest = str_of(table[key].choices), head = S("");

	while (index-- >= 0)
		if (!str_cut(&rest, '|', &head))
			return S("");
	return head;
}

static bool
choice_index(unsigned key, struct str text, int64_t *out)
{
	struct str rest = str_of(table[key].choices), head;

	for (int64_t i = 0; str_cut(&rest, '|', &head); i++)
		if (str_eq(head, text)) {
			*out = i;
			return true;
		}
	return false;
}

bool
parse_bytes(struct str s, int64_t *out)
{
	static const struct {
		const char *suffix;
		int64_t factor;
	} units[] = {
		{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TiB", (int64_t)1 << 40},
		{"GB", 1000000000}, {"MB", 1000000}, {"KB", 1000}, {"B", 1}, {"", 1},
	};

	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (str_ends(s, str_of(units[i].suffix))) {
			struct str n = str_trim(str_sub(s, 0, s.n - (uint32_t)strlen(units[i].suffix)));
			int64_t whole, dot = str_find(n, '.'), frac = 0, scale = 1;

			if (dot >= 0) {
				struct str f = str_sub(n, (uint32_t)dot + 1, n.n);

				if (f.n > 6 || !str_int(f, &frac) || frac < 0)
					return false;
				for (uint32_t k = 0; k < f.n; k++)
					scale *= 10;
				n = str_sub(n, 0, (uint32_t)dot);
			}
			if (!str_int(n, &whole) || whole < 0 || !mul_i64(whole, units[i].factor, &whole))
				return false;
			return add_i64(whole, units[i].factor * frac / scale, out);
		}
	return false;
}

static bool
parse_float(struct str s, double *out)
{
	bool minus = str_starts(s, S("-"));
	int64_t dot, whole = 0, frac = 0;
	double scale = 1;

	if (minus)
		s = str_sub(s, 1, s.n);
	dot = str_find(s, '.');
	if (dot < 0) {
		if (!str_int(s, &whole) || whole < 0)
			return false;
	} else {
		for (uint32_t i = (uint32_t)dot + 1; i < s.n; i++)
			scale *= 10;
		if ((dot > 0 && !str_int(str_sub(s, 0, (uint32_t)dot), &whole)) || s.n - dot > 18 ||
		    (s.n > dot + 1 && !str_int(str_sub(s, (uint32_t)dot + 1, s.n), &frac)) || whole < 0 || frac < 0)
			return false;
	}
	*out = (double)whole + (double)frac / scale;
	if (minus)
		*out = -*out;
	return true;
}

static void
set_list(struct ctx *c, struct recipe_value *v, struct str text)
{
	struct str rest = text, head;
	uint32_t n = 1;

	for (uint32_t i = 0; i < text.n; i++)
		n += text.p[i] == ',';
	v->list = NEW(c->a, struct str, n);
	v->nlist = 0;
	while (text.n && str_cut(&rest, ',', &head))
		v->list[v->nlist++] = str_copy(c->a, str_trim(head));
}

#define DIM_MAX ((int64_t)1 << 48)

/* A step has at least one micro-batch. */
static int64_t
least(unsigned key)
{
	return key == RK_GRAD_ACCUM;
}

/* Of keys with fractions; the others take any number. */
static const struct range {
	unsigned key;
	double least, most;
	const char *text;
} ranges[] = {
	{RK_LORA_DROPOUT, 0, 1, "a number from 0 to 1"},
	{RK_PARALLEL_GRADIENT_CLIPPING, 0, 1e300, "a number from 0 up"},
};

static const struct range *
range_of(unsigned key)
{
	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
		if (ranges[i].key == key)
			return &ranges[i];
	return NULL;
}

static bool
in_range(unsigned key, double f)
{
	const struct range *r = range_of(key);

	return !r || (f >= r->least && f <= r->most);
}

static const char *
allowed(unsigned key)
{
	switch (table[key].type) {
	case RT_CHOICE:
		return table[key].choices;
	case RT_BOOL:
		return "true, false";
	case RT_INT:
		return least(key) ? "a whole number from 1 to 2147483647" : "a whole number from 0 to 2147483647";
	case RT_FLOAT:
		return range_of(key) ? range_of(key)->text : "a number";
	case RT_BYTES:
		return "bytes, such as 80GiB";
	default:
		return "text";
	}
}

static bool
parse_bool(struct str s, int64_t *out)
{
	*out = str_eq(s, S("true")) || str_eq(s, S("yes")) || str_eq(s, S("1"));
	return *out || str_eq(s, S("false")) || str_eq(s, S("no")) || str_eq(s, S("0"));
}

bool
recipe_set_text(struct ctx *c, struct recipe *r, unsigned key, struct str text)
{
	struct recipe_value v = {.set = true, .text = str_copy(c->a, text)};
	bool ok = true;

	switch (table[key].type) {
	case RT_CHOICE:
		ok = choice_index(key, text, &v.i);
		break;
	case RT_BOOL:
		ok = parse_bool(text, &v.i);
		break;
	case RT_INT:
		ok = str_int(text, &v.i) && v.i >= least(key) && v.i <= INT32_MAX;
		break;
	case RT_FLOAT:
		ok = parse_float(text, &v.f) && in_range(key, v.f);
		break;
	case RT_BYTES:
		ok = parse_bytes(text, &v.i);
		break;
	case RT_LIST:
		set_list(c, &v, text);
		break;
	default:
		break;
	}
	if (!ok)
		return diag(c, DIAG_BAD_VALUE, table[key].name, SFMT(text), allowed(key));
	r->v[key] = v;
	return true;
}

bool
recipe_set_dim(struct ctx *c, struct recipe *r, struct str name, int64_t value)
{
	if (value < 1 || value > DIM_MAX) {
		struct str text = str_fmt(c->a, "%.*s = %lld", SFMT(name), (long long)value);

		return diag(c, DIAG_BAD_VALUE, "dims", SFMT(text), "a whole number from 1 to 281474976710656");
	}
	for (uint32_t i = 0; i < r->ndim; i++)
		if (str_eq(r->dims[i].name, name)) {
			r->dims[i].value = value;
			r->dims[i].by_file = false;
			return true;
		}
	ROOM(c->a, r->dims, r->ndim, r->dim_cap, 1);
	r->dims[r->ndim++] = (struct dim_binding){str_copy(c->a, name), value, false};
	return true;
}

/* Every key at its default. Defaults are right by construction (a test sets each from its own text). */
void
recipe_init(struct recipe *r)
{
	*r = (struct recipe){0};
	for (unsigned k = 1; k < RK_COUNT; k++) {
		struct recipe_value *v = &r->v[k];
		struct str dflt = str_of(table[k].dflt);

		v->text = dflt;
		if (table[k].type == RT_CHOICE)
			choice_index(k, dflt, &v->i);
		else if (table[k].type == RT_BOOL)
			parse_bool(dflt, &v->i);
		else if (table[k].type == RT_INT)
			str_int(dflt, &v->i);
		else if (table[k].type == RT_FLOAT)
			parse_float(dflt, &v->f);
	}
}

bool
recipe_matches(const struct recipe *r, unsigned key, struct str name)
{
	for (uint32_t i = 0; i < r->v[key].nlist; i++)
		if (name_matches(r->v[key].list[i], name))
			return true;
	return false;
}

struct str
recipe_key_list(struct ctx *c)
{
	struct str s = S("dims");

	for (unsigned k = 1; k < RK_COUNT; k++)
		s = str_fmt(c->a, "%.*s, %s", SFMT(s), table[k].name);
	return s;
}

/* A copy that owns its texts and lists. */
struct recipe *
recipe_copy(struct arena *a, const struct recipe *r)
{
	struct recipe *c = NEW(a, struct recipe, 1);

	*c = *r;
	for (unsigned k = 1; k < RK_COUNT; k++) {
		struct recipe_value *v = &c->v[k];

		v->text = str_copy(a, v->text);
		v->list = NEW(a, struct str, v->nlist + 1);
		for (uint32_t i = 0; i < v->nlist; i++)
			v->list[i] = str_copy(a, r->v[k].list[i]);
	}
	c->dim_cap = c->ndim + 1;
	c->dims = NEW(a, struct dim_binding, c->dim_cap);
	for (uint32_t i = 0; i < c->ndim; i++)
		c->dims[i] = (struct dim_binding){str_copy(a, r->dims[i].name), r->dims[i].value, false};
	for (uint32_t i = 0; i < c->nnote; i++)
		c->notes[i] = str_copy(a, r->notes[i]);
	return c;
}
