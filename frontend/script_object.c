/*
 * From the pickles of a TorchScript archive: classes and functions by name, the tree of modules with their parameters and buffers,
 * constants. Parameters become values of the graph in the order of the state dict; one tensor met twice is one parameter with two names.
 */
#include "script.h"

#include <string.h>

/* ---- code by name -------------------------------------------------------------------------------------------------- */

static void *
by_id(struct script *s, void *array, uint32_t *cap, uint32_t id, size_t size)
{
	if (id >= *cap) {
		uint32_t old = *cap;
		void *p;

		*cap = id + 1 > old * 2 ? id + 1 : old * 2;
		p = arena_alloc(s->c->a, *cap, size);
		if (old)
			memcpy(p, array, old * size);
		return p;
	}
	return array;
}
#define BY_ID(array, cap, id) (s->array = by_id(s, s->array, &s->cap, (id), sizeof *s->array), &s->array[id])

static void
register_file(struct script *s, const struct code_file *f, struct str module)
{
	for (struct class_def *d = f->classes; d; d = d->next)
		*BY_ID(class_of, class_cap, d->name) = d;
	for (struct func *m = f->funcs; m; m = m->next) {
		struct str name = str_fmt(s->c->a, "%.*s.%.*s", SFMT(module), SFMT(graph_str(s->g, m->name)));

		*BY_ID(func_of, func_cap, graph_name(s->g, name)) = m;
	}
}

/* "__torch__.a.b" is in code/__torch__/a/b.py. A module that is not there has no code; classes of C++ are such. */
static bool
load_module(struct script *s, struct str module)
{
	uint32_t id = graph_name(s->g, module);
	struct str kept = s->c->place, text;
	struct code_file *f;
	char *path;

	if (*BY_ID(tried, tried_cap, id))
		return true;
	s->tried[id] = true;
	path = NEW(s->c->a, char, (size_t)module.n + 16);
	f = NEW(s->c->a, struct code_file, 1);
	memcpy(path, "code/", 5);
	for (uint32_t i = 0; i < module.n; i++)
		path[5 + i] = module.p[i] == '.' ? '/' : module.p[i];
	memcpy(path + 5 + module.n, ".py", 4);
	f->path = str_of(path);
	if (!zip_has(s->z, f->path))
		return true;
	f->next = s->files;
	s->files = f;
	s->c->place = f->path;
	if (!zip_read(s->c, s->z, f->path, &text) || !script_parse(s->c, s->g->names, f, text, module))
		return false;
	s->c->place = kept;
	register_file(s, f, module);
	return true;
}

struct class_def *
script_class(struct script *s, struct str qualified)
{
	uint32_t id = graph_name(s->g, qualified);

	if (!load_module(s, path_parent(qualified)))
		return NULL;
	return *BY_ID(class_of, class_cap, id);
}

struct func *
script_func(struct script *s, struct str qualified)
{
	uint32_t id = graph_name(s->g, qualified);

	if (!load_module(s, path_parent(qualified)))
		return NULL;
	return *BY_ID(func_of, func_cap, id);
}

struct func *
class_func(const struct class_def *d, uint32_t name)
{
	for (struct func *f = d ? d->funcs : NULL; f; f = f->next)
		if (f->name == name)
			return f;
	return NULL;
}

struct str
script_display(struct script *s, struct str name)
{
	struct str out = S(""), rest = name, atom;

	while (str_cut(&rest, '.', &atom))
		if (!str_eq(atom, S("__torch__")) && !str_starts(atom, S("___torch_mangle_")))
			out = str_fmt(s->c->a, "%.*s%s%.*s", SFMT(out), out.n ? "." : "", SFMT(atom));
	return out;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

static bool
names_have(const struct names *l, uint32_t id)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->id[i] == id)
			return true;
	return false;
}

/* Contiguous strides are not stored, nor those of dims that have one element. */
static bool
is_contiguous(const struct pickle_tensor *t)
{
	int64_t want = 1;

	for (unsigned i = t->rank; i-- > 0;) {
		if (t->dim[i] != 1 && t->stride[i] != want)
			return false;
		if (!mul_i64(want, t->dim[i] ? t->dim[i] : 1, &want))
			return false;
	}
	return true;
}

static void
set_type(struct script *s, uint32_t v, const struct pickle_tensor *t)
{
	struct sint dims[MAX_RANK], strides[MAX_RANK];

	for (unsigned i = 0; i < t->rank; i++) {
		dims[i] = SINT(t->dim[i]);
		strides[i] = SINT(t->stride[i]);
	}
	s->g->vals[v].dtype = t->dtype;
	val_shape(s->g, v, t->rank, dims);
	if (t->rank && !is_contiguous(t))
		s->g->vals[v].stride = ints_add(s->g, strides, t->rank);
}

static bool
same_place(const struct script *s, uint32_t v, const struct pickle_tensor *t)
{
	const struct val *x = &s->g->vals[v];

	if (x->rank != t->rank || x->dtype != t->dtype)
		return false;
	for (unsigned i = 0; i < t->rank; i++)
		if (val_dims(s->g, v)[i].n != t->dim[i])
			return false;
	return true;
}

/* The first parameter or buffer on the same bytes, 0 = none; v is the first from now on if there was none. */
static uint32_t
first_owner(struct script *s, uint32_t v, const struct pickle_tensor *t)
{
	struct str place;
	uint32_t id, *owner;

	if (!t->storage->key.n)
		return 0;
	place = str_fmt(s->c->a, "%s%.*s+%lld", s->space, SFMT(t->storage->key), (long long)t->offset);
	id = strtab_id(s->storages, place);
	owner = BY_ID(owner, owner_cap, id);
	if (*owner && same_place(s, *owner, t))
		return *owner;
	if (!*owner)
		*owner = v;
	return 0;
}

static bool
new_tensor(struct script *s, struct pickle *p, struct str path, enum val_kind kind, struct thing *out)
{
	const struct pickle_tensor *t = p->u.tensor;
	uint32_t v, first;

	if (s->g->nval >= s->c->lim.values)
		return diag(s->c, DIAG_TOO_MANY, "values", (unsigned long long)s->c->lim.values);
	v = val_new(s->g, kind, path);
	s->g->vals[v].full = s->g->vals[v].name;
	set_type(s, v, t);
	first = first_owner(s, v, t);
	if (kind == VAL_PARAM) {
		s->g->vals[v].flags = t->requires_grad ? VF_TRAINABLE : 0;
		s->g->vals[v].tied = first && s->g->vals[first].kind == VAL_PARAM ? first : 0;
	} else if (first) {            /* a buffer under two names is there once */
		s->g->vals[v].kind = VAL_NONE;
		v = first;
	} else if (kind == VAL_BUFFER) {
		s->g->vals[v].flags = VF_PERSISTENT;       /* the file does not say */
	}
	*out = thing_tensor(v);
	return true;
}

/* ---- values ---------------------------------------------------------------------------------------------------------------- */

static bool
items_of(struct script *s, struct pickle *p, enum thing_kind kind, struct str path, unsigned depth, struct thing *out)
{
	*out = thing_items(s, kind, NULL, 0);
	p->made = out->u.items;
	for (uint32_t i = 0; i < p->n; i++) {
		struct thing t;

		if (!script_thing(s, p->u.item[i], str_fmt(s->c->a, "%.*s.%u", SFMT(path), (unsigned)i), depth + 1, &t))
			return false;
		items_add(s, out->u.items, t);
	}
	return true;
}

static enum val_kind
kind_of_slot(const struct class_def *d, uint32_t name)
{
	return names_have(&d->parameters, name) ? VAL_PARAM : names_have(&d->buffers, name) ? VAL_BUFFER : VAL_CONST;
}

static bool
fill_slots(struct script *s, struct object *o, const struct pickle *state, unsigned depth)
{
	for (uint32_t i = 0; i + 1 < state->n; i += 2) {
		struct str name = pickle_str(state->u.item[i]);
		struct pickle *p = state->u.item[i + 1];
		uint32_t id = graph_name(s->g, name);
		struct str path = o->path.n ? str_fmt(s->c->a, "%.*s.%.*s", SFMT(o->path), SFMT(name)) : str_copy(s->c->a, name);
		struct thing t;

		if (p->kind == PK_TENSOR && o->is_module) {
			enum val_kind kind = kind_of_slot(o->cls, id);

			if (!new_tensor(s, p, path, kind, &t))
				return false;
			p->made = p->made ? p->made : NEW(s->c->a, uint32_t, 1);
			*(uint32_t *)p->made = t.val;
		} else if (!script_thing(s, p, path, depth + 1, &t)) {
			return false;
		}
		object_set(s, o, id, t);
	}
	return true;
}

/* A class with its own way to save itself gets what it saved. */
static bool
set_state(struct script *s, struct object *o, struct pickle *state, unsigned depth)
{
	struct func *f = class_func(o->cls, graph_name(s->g, S("__setstate__")));
	struct thing args[2] = {{.kind = THING_OBJECT, .u.object = o}}, result;

	if (!f)
		return true;
	if (!script_thing(s, state, o->path, depth + 1, &args[1]))
		return false;
	return script_call(s, (struct closure){f, o, NULL}, args + 1, NULL, 1, &result);
}

static bool
new_object(struct script *s, struct pickle *p, struct str path, unsigned depth, struct thing *out)
{
	struct object *o = NEW(s->c->a, struct object, 1);
	struct str name = p->of->kind == PK_GLOBAL ? p->of->u.s : S("");

	*out = (struct thing){.kind = THING_OBJECT, .u.object = o};
	o->path = path;
	o->cls = script_class(s, name);
	if (!o->cls) {
		if (s->c->nerror)
			return false;
		if (str_starts(name, S("__torch__.torch.classes.")))     /* of C++: what it saved stands for it */
			return p->state ? script_thing(s, p->state, path, depth + 1, out) : (*out = thing_none(), true);
		return diag(s->c, DIAG_NOT_A_GRAPH, str_fmt(s->c->a, "the code of class %.*s is not in the archive", SFMT(name)).p);
	}
	p->made = o;
	o->is_module = str_eq(graph_str(s->g, o->cls->base), S("Module"));
	if (p->state && p->state->kind == PK_DICT)
		return fill_slots(s, o, p->state, depth);
	return !p->state || set_state(s, o, p->state, depth);
}

/* Enum members are their class called with a value. */
static bool
enum_member(struct script *s, struct pickle *p, struct thing *out)
{
	struct class_def *d = p->of->kind == PK_GLOBAL ? script_class(s, p->of->u.s) : NULL;
	struct thing value;

	*out = (struct thing){0};
	if (!d || !d->consts || p->args->kind != PK_TUPLE || p->args->n != 1)
		return !s->c->nerror;
	if (!script_thing(s, p->args->u.item[0], S(""), 0, &value))
		return false;
	for (uint32_t i = 0; i + 1 < d->consts->n; i += 2) {
		struct thing t;
		bool known = true;

		if (script_eval(s, d->consts->kid[i + 1], 1, &t) && thing_equal(&t, &value, &known))
			*out = thing_str(str_fmt(s->c->a, "%.*s.%.*s", SFMT(graph_str(s->g, d->name)), SFMT(graph_str(s->g, d->consts->kid[i]->name))));
	}
	return true;
}

static bool
shared(struct pickle *p, struct thing *out)
{
	if (p->kind == PK_TENSOR)
		*out = thing_tensor(*(uint32_t *)p->made);
	else if (p->kind == PK_OBJECT)
		*out = (struct thing){.kind = THING_OBJECT, .u.object = p->made};
	else
		*out = (struct thing){.kind = p->kind == PK_TUPLE ? THING_TUPLE : p->kind == PK_DICT ? THING_DICT : THING_LIST, .u.items = p->made};
	return true;
}

bool
script_thing(struct script *s, struct pickle *p, struct str path, unsigned depth, struct thing *out)
{
	if (depth > s->c->lim.depth)
		return diag(s->c, DIAG_TOO_MANY, "nested modules and values", (unsigned long long)s->c->lim.depth);
	if (p->made)
		return shared(p, out);
	switch (p->kind) {
	case PK_NONE:
		return *out = thing_none(), true;
	case PK_BOOL:
		return *out = thing_bool(p->u.b), true;
	case PK_INT:
		return *out = thing_int(p->u.i), true;
	case PK_FLOAT:
		return *out = thing_float(p->u.f), true;
	case PK_STR:
		return *out = thing_str(p->u.s), true;
	case PK_TUPLE:
		return items_of(s, p, THING_TUPLE, path, depth, out);
	case PK_LIST:
		return items_of(s, p, THING_LIST, path, depth, out);
	case PK_DICT:
		return items_of(s, p, THING_DICT, path, depth, out);
	case PK_OBJECT:
		return new_object(s, p, path, depth, out);
	case PK_CALL:
		return p->of ? enum_member(s, p, out) : (*out = (struct thing){0}, true);
	case PK_TENSOR:
		if (!new_tensor(s, p, path, VAL_CONST, out))
			return false;
		p->made = NEW(s->c->a, uint32_t, 1);
		*(uint32_t *)p->made = out->val;
		return true;
	default:
		return *out = (struct thing){0}, true;
	}
}

/* ---- constants ------------------------------------------------------------------------------------------------------------------- */

/* Tracing turns Python's numbers into tensors without dims on the CPU; these few bytes are read, as sizes are computed with them. */
static bool
number_constant(struct script *s, const struct pickle_tensor *t, struct thing *out)
{
	struct str name = str_fmt(s->c->a, "constants/%.*s", SFMT(t->storage->key)), bytes;
	unsigned dt = t->dtype;
	uint64_t size;

	*out = (struct thing){.kind = dt == DT_FP64 ? THING_FLOAT : dt == DT_BOOL ? THING_BOOL : THING_INT};
	if (!zip_size(s->z, name, &size) || size != dtype_bytes(dt, 1)) {
		out->kind = THING_UNKNOWN;
		return true;
	}
	if (!zip_read(s->c, s->z, name, &bytes))
		return false;
	memcpy(&out->u, bytes.p, bytes.n);
	if (dt == DT_BOOL)
		*out = thing_bool(bytes.p[0] != 0);
	return true;
}

#define MOST_SIZES 8u

/* "torch.tensor((height, width))": the sizes in it, of which a trace may take the least */
static bool
list_constant(struct script *s, const struct pickle_tensor *t, struct thing *out)
{
	struct str name = str_fmt(s->c->a, "constants/%.*s", SFMT(t->storage->key)), bytes;
	struct thing item[MOST_SIZES];
	uint64_t size;

	if (t->rank != 1 || t->dtype != DT_INT64 || t->offset || t->dim[0] < 1 || t->dim[0] > (int64_t)MOST_SIZES || (t->dim[0] > 1 && t->stride[0] != 1))
		return true;
	if (!zip_size(s->z, name, &size) || size != 8 * (uint64_t)t->dim[0])
		return true;
	if (!zip_read(s->c, s->z, name, &bytes))
		return false;
	for (uint32_t i = 0; i < (uint32_t)t->dim[0]; i++) {
		item[i] = thing_int(0);
		memcpy(&item[i].u.i, bytes.p + 8 * (size_t)i, 8);
	}
	*out = thing_items(s, THING_LIST, item, (uint32_t)t->dim[0]);
	return true;
}

bool
script_constants(struct script *s)
{
	struct str text;
	struct pickle *p;

	s->c->place = S("constants.pkl");
	if (!zip_read(s->c, s->z, S("constants.pkl"), &text) || !(p = pickle_read(s->c, text)))
		return false;
	s->c->place = S("");
	s->space = "constants/";   /* numbers its storages anew */
	if (p->kind != PK_TUPLE)
		return diag(s->c, DIAG_NOT_A_GRAPH, "constants.pkl is no tuple");
	s->consts = NEW(s->c->a, struct thing, p->n + 1);
	s->const_values = NEW(s->c->a, struct thing, p->n + 1);
	for (; s->nconst < p->n; s->nconst++) {
		struct pickle *x = p->u.item[s->nconst];
		struct thing *out = &s->consts[s->nconst];
		bool number = x->kind == PK_TENSOR && x->u.tensor->rank == 0 && (x->u.tensor->dtype == DT_FP64 || x->u.tensor->dtype == DT_INT64 || x->u.tensor->dtype == DT_BOOL);

		if (!(number ? number_constant(s, x->u.tensor, out) : script_thing(s, x, str_fmt(s->c->a, "CONSTANTS.c%u", (unsigned)s->nconst), 0, out)))
			return false;
		if (!number && x->kind == PK_TENSOR && !list_constant(s, x->u.tensor, &s->const_values[s->nconst]))
			return false;
	}
	return true;
}
