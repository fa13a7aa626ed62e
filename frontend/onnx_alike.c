/*
 * ONNX files: parameters that the signature names and nothing reads, so that the file does not store them. One that differs from others in nothing but a
 * number, "layers.23.norm.weight" from "layers.22.norm.weight" and all the rest, is as large as these if they are all of one size. A norm is as wide as
 * the others of its module, if these are of one width. A library's pooler, which most heads do not read, is a square layer behind the last norm.
 */
#include "onnx.h"

#include <string.h>

#define MOST_NUMBERS 8u            /* in a name, and its length: what is longer is not a model's */
#define LONGEST_NAME 512u
#define NORM_WITHIN 64u            /* parameters in front of a pooler */
#define MOST_NORMS 64u             /* each is looked for among all parameters */

struct alike {
	uint32_t val;              /* one of them; 0 = none has a size */
	bool differ;
};

struct lists {
	struct onnx *l;
	struct strtab *names;      /* "layers.*.norm.weight" */
	struct alike *of;          uint32_t n, cap;
};

/* The next number between dots, from place *at on: the name with a star instead; empty = there is none. */
static struct str
starred(struct lists *t, struct str name, uint32_t *at)
{
	for (uint32_t i = *at; name.n <= LONGEST_NAME && i < name.n; i++) {
		uint32_t n = i;

		while (n < name.n && name.p[n] >= '0' && name.p[n] <= '9')
			n++;
		if (n > i && i && name.p[i - 1] == '.' && n < name.n && name.p[n] == '.') {
			*at = n;
			return str_fmt(t->l->c->a, "%.*s*%.*s", SFMT(str_sub(name, 0, i)), SFMT(str_sub(name, n, name.n)));
		}
		i = n > i ? n - 1 : i;
	}
	return S("");
}

static bool
same_size(const struct graph *g, uint32_t a, uint32_t b)
{
	const struct val *x = &g->vals[a], *y = &g->vals[b];
	bool turned = (x->flags & VF_TRANSPOSED) != (y->flags & VF_TRANSPOSED);

	if (x->rank != y->rank || x->dtype != y->dtype)
		return false;
	for (unsigned i = 0; i < x->rank; i++)
		if (val_dims(g, a)[i].n != val_dims(g, b)[turned ? x->rank - 1u - i : i].n)
			return false;
	return true;
}

static bool
has_size(const struct graph *g, uint32_t v)
{
	bool fixed = g->vals[v].kind == VAL_PARAM && g->vals[v].rank != RANK_UNKNOWN;

	for (unsigned i = 0; fixed && i < g->vals[v].rank; i++)
		fixed = !val_dims(g, v)[i].expr;
	return fixed;
}

static void
note(struct lists *t, uint32_t v, struct str name)
{
	uint32_t at = 0, numbers = 0;

	for (struct str key = starred(t, name, &at); key.n && numbers++ < MOST_NUMBERS; key = starred(t, name, &at)) {
		uint32_t id = strtab_id(t->names, key), more = id < t->n ? 0 : id + 1 - t->n;
		struct alike *x;

		ROOM(t->l->c->a, t->of, t->n, t->cap, more);
		t->n += more;
		x = &t->of[id];
		if (x->val && !same_size(t->l->g, x->val, v))
			x->differ = true;
		x->val = x->val ? x->val : v;
	}
}

static uint32_t
one_alike(struct lists *t, struct str name)
{
	uint32_t at = 0, numbers = 0;

	for (struct str key = starred(t, name, &at); key.n && numbers++ < MOST_NUMBERS; key = starred(t, name, &at)) {
		uint32_t id = strtab_find(t->names, key);

		if (id && id < t->n && t->of[id].val && !t->of[id].differ)
			return t->of[id].val;
	}
	return 0;
}

static void
size_of(struct graph *g, const struct spec *s, unsigned dtype, unsigned rank, const struct sint *dim)
{
	struct val *x = &g->vals[s->val];

	x->kind = VAL_PARAM;
	x->full = s->full;
	x->dtype = (uint8_t)dtype;
	x->flags = VF_TRAINABLE;
	val_shape(g, s->val, rank, dim);
}

static void
size_as(struct graph *g, const struct spec *s, uint32_t like)
{
	const struct val *y = &g->vals[like];
	struct sint dim[MAX_RANK];

	for (unsigned i = 0; i < y->rank; i++)
		dim[i] = val_dims(g, like)[y->flags & VF_TRANSPOSED ? y->rank - 1u - i : i];
	size_of(g, s, y->dtype, y->rank, dim);
}

static bool
is_unread(const struct onnx *l, const struct spec *s)
{
	return !s->buffer && !s->folded && l->g->vals[s->val].kind == VAL_NONE;
}

/* ---- norms ---------------------------------------------------------------------------------------------------------------- */

/* "encoder.layers.1.output.LayerNorm" of "encoder.layers.1.output.LayerNorm.weight" */
static struct str
module_of(struct str name)
{
	uint32_t n = name.n;

	while (n && name.p[n - 1] != '.')
		n--;
	return str_sub(name, 0, n ? n - 1 : 0);
}

static bool
is_norm(struct str name)
{
	struct str module = module_of(name);
	uint32_t own = module_of(module).n;

	for (uint32_t i = own; name.n <= LONGEST_NAME && i + 4 <= module.n; i++)
		if ((module.p[i] == 'n' || module.p[i] == 'N') && memcmp(module.p + i + 1, "orm", 3) == 0)
			return true;
	return false;
}

static bool
is_vector_of_norm(const struct onnx *l, const struct spec *s, struct str module)
{
	struct str name = graph_str(l->g, s->full);

	return !s->buffer && str_starts(name, module) && has_size(l->g, s->val) && l->g->vals[s->val].rank == 1 && is_norm(name);
}

/* The vector of a norm beside or inside of the module that has this one, if all are of one width; 0 = none, or they differ. */
static uint32_t
norm_beside(const struct onnx *l, uint32_t at)
{
	struct str name = graph_str(l->g, l->spec[at].full), module = module_of(module_of(name));
	uint32_t found = 0;

	if (!module.n)
		return 0;
	module = str_sub(name, 0, module.n + 1);       /* with its dot: "tower." begins no name of "tower2" */
	for (uint32_t i = 1; i < l->nspec; i++) {
		if (!is_vector_of_norm(l, &l->spec[i], module))
			continue;
		if (found && !same_size(l->g, found, l->spec[i].val))
			return 0;
		found = l->spec[i].val;
	}
	return found;
}

static void
find_norms(struct onnx *l)
{
	unsigned n = 0, searched = 0;

	for (uint32_t i = 1; i < l->nspec && searched < MOST_NORMS; i++) {
		uint32_t like;

		if (!is_unread(l, &l->spec[i]) || !is_norm(graph_str(l->g, l->spec[i].full)))
			continue;
		searched++;
		like = norm_beside(l, i);
		if (!like)
			continue;
		size_as(l->g, &l->spec[i], like);
		n++;
	}
	if (n)
		graph_note(l->g, "parameters of norms that nothing reads, of which the file has only names, are as wide as the norms beside them (%u)", n);
}

/* ---- poolers -------------------------------------------------------------------------------------------------------------- */

/* The vector of a norm that the module lists last in front of its pooler; 0 = none. */
static uint32_t
norm_before(const struct onnx *l, uint32_t at, struct str module)
{
	for (uint32_t i = at; i-- > 1 && at - i <= NORM_WITHIN;)
		if (is_vector_of_norm(l, &l->spec[i], module))
			return l->spec[i].val;
	return 0;
}

/* "bert." of "bert.pooler.dense.weight", or of "bert.pooler.weight"; whether it is one. */
static bool
is_pooler(struct str name, struct str *owner)
{
	struct str module = module_of(name);

	if (str_ends(module, S(".dense")))
		module = module_of(module);
	*owner = str_ends(module, S("pooler")) ? str_sub(module, 0, module.n - 6) : S("");
	return str_ends(module, S("pooler")) && (str_ends(name, S(".weight")) || str_ends(name, S(".bias")));
}

static void
find_poolers(struct onnx *l)
{
	unsigned n = 0;

	for (uint32_t i = 1; i < l->nspec; i++) {
		struct str name = graph_str(l->g, l->spec[i].full), owner;
		bool weight = str_ends(name, S(".weight"));
		uint32_t norm;
		struct sint dim[2];

		if (!is_unread(l, &l->spec[i]) || !is_pooler(name, &owner))
			continue;
		norm = norm_before(l, i, owner);
		if (!norm)
			continue;
		dim[0] = dim[1] = val_dims(l->g, norm)[0];
		size_of(l->g, &l->spec[i], l->g->vals[norm].dtype, weight ? 2 : 1, dim);
		n++;
	}
	if (n)
		graph_note(l->g, "poolers that nothing reads, of which the file has only names, are square layers as wide as the norm in front of them (parameters: %u)", n);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------ */

void
onnx_find_alike(struct onnx *l)
{
	struct lists t = {.l = l, .names = strtab_new(l->c->a)};
	unsigned n = 0;

	for (uint32_t i = 1; i < l->nspec; i++)
		if (!l->spec[i].buffer && has_size(l->g, l->spec[i].val))
			note(&t, l->spec[i].val, graph_str(l->g, l->spec[i].full));
	for (uint32_t i = 1; i < l->nspec; i++) {
		struct spec *s = &l->spec[i];
		uint32_t like = is_unread(l, s) ? one_alike(&t, graph_str(l->g, s->full)) : 0;

		if (!like || l->g->vals[like].rank > MAX_RANK)
			continue;
		size_as(l->g, s, like);
		n++;
	}
	if (n)
		graph_note(l->g, "parameters that nothing reads, of which the file has only names, are as large as those that differ from them in a number (%u)", n);
	find_poolers(l);
	find_norms(l);
}
