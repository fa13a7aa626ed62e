/* torch.export programs: integers and expressions, records of values, arguments of nodes. */
#include "export.h"

#include <string.h>

uint32_t *
export_slot(struct loader *l, uint32_t **array, uint32_t *cap, uint32_t i)
{
	if (i >= *cap) {
		uint32_t old = *cap, want = i + 1 > old * 2 ? i + 1 : old * 2;
		uint32_t *p = NEW(l->c->a, uint32_t, want);

		if (old)
			memcpy(p, *array, old * sizeof *p);
		*array = p;
		*cap = want;
	}
	return &(*array)[i];
}

const json_t *
export_field(const json_t *o, const char *name)
{
	const json_t *j = json_object_get(o, name);

	return json_is_null(j) ? NULL : j;
}

bool
export_expected(struct loader *l, const char *where, const char *what)
{
	struct str s = str_of(where);

	return diag(l->c, DIAG_JSON_FIELD, SFMT(s), what);
}

/* ---- integers ----------------------------------------------------------------------------------------- */

static struct sint
read_expr(struct loader *l, struct str text)
{
	uint32_t *e = export_slot(l, &l->expr_of, &l->expr_cap, graph_name(l->g, text));

	if (!*e)
		expr_parse(l->g, text, e);
	return sint_of_expr(l->g, *e);
}

/* {"as_int": n}, {"as_expr": {"expr_str": s}}, or {"as_name": value} */
static struct sint
read_sint(struct loader *l, const json_t *j, unsigned depth)
{
	struct str tag, name;
	const json_t *v = json_only(j, &tag);

	if (json_is_integer(v))
		return SINT(json_integer_value(v));
	if (str_eq(tag, S("as_expr")))
		return read_expr(l, json_get_str(v, "expr_str"));
	name = json_str(v);
	if (v && name.n && depth < 2)
		return read_sint(l, json_object_get(l->symints, name.p), depth + 1);
	return (struct sint){0, EXPR_UNKNOWN};
}

/* ---- values -------------------------------------------------------------------------------------------- */

static bool
read_shape(struct loader *l, uint32_t v, const json_t *meta)
{
	const json_t *sizes = json_object_get(meta, "sizes");
	struct sint dims[MAX_RANK];
	size_t rank = json_array_size(sizes);
	struct str name = graph_str(l->g, l->g->vals[v].name);

	if (rank > MAX_RANK)
		return diag(l->c, DIAG_RANK_TOO_BIG, SFMT(name), (unsigned)rank);
	for (size_t i = 0; i < rank; i++) {
		dims[i] = read_sint(l, json_array_get(sizes, i), 0);
		if (!dims[i].expr && (dims[i].n < 0 || dims[i].n > (int64_t)1 << 48))
			return diag(l->c, DIAG_BAD_SHAPE, SFMT(name), (long long)dims[i].n);
	}
	val_shape(l->g, v, (unsigned)rank, dims);
	return true;
}

static bool
read_meta(struct loader *l, uint32_t v, const json_t *meta)
{
	const json_t *inner = json_object_get(meta, "meta");        /* in torch 2.1, whose requires_grad says nothing */
	struct str name = graph_str(l->g, l->g->vals[v].name);
	int64_t dt;

	if (!meta)
		return true;           /* a value without a record stays untyped */
	meta = inner ? inner : meta;
	dt = json_get_int(meta, "dtype", 0);
	l->g->vals[v].dtype = (uint8_t)dtype_by_serde(dt);
	if (!l->g->vals[v].dtype)
		return diag(l->c, DIAG_BAD_DTYPE, SFMT(name), (long long)dt);
	return read_shape(l, v, meta);
}

void
export_bind(struct loader *l, uint32_t name_id, uint32_t v)
{
	uint32_t *at = export_slot(l, &l->val_of, &l->val_cap, name_id);

	if (l->depth) {
		ROOM(l->c->a, l->rebound, l->nrebound, l->rebound_cap, 1);
		l->rebound[l->nrebound++] = (struct rebound){name_id, *at};
	}
	*at = v;
}

bool
export_define(struct loader *l, enum val_kind kind, struct str name, uint32_t *out)
{
	uint32_t v = val_new(l->g, kind, name), id = l->g->vals[v].name;

	if (v >= l->c->lim.values)
		return diag(l->c, DIAG_TOO_MANY, "values", (unsigned long long)l->c->lim.values);
	if (*export_slot(l, &l->val_of, &l->val_cap, id) > l->region_first)
		return diag(l->c, DIAG_DUPLICATE_VALUE, SFMT(name));
	export_bind(l, id, v);
	*out = v;
	return read_meta(l, v, json_object_get(l->tensors, name.p));
}

bool
export_lookup(struct loader *l, const json_t *tensor, uint32_t *out)
{
	struct str name = json_get_str(tensor, "name");
	uint32_t id = strtab_find(l->g->names, name);

	*out = id && id < l->val_cap ? l->val_of[id] : 0;
	return *out ? true : diag(l->c, DIAG_UNKNOWN_VALUE, SFMT(name));
}

/* ---- arguments ------------------------------------------------------------------------------------------- */

static bool
read_tensors(struct loader *l, const json_t *list, struct arg *out)
{
	size_t n = json_array_size(list);
	uint32_t *ids = NEW(l->c->a, uint32_t, n + 1);

	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(list, i), *t = export_field(item, "as_tensor");

		if (export_field(item, "as_none"))
			continue;
		if (!export_lookup(l, t ? t : item, &ids[i]))
			return false;
	}
	*out = (struct arg){.kind = ARG_VALS, .first = ids_add(l->g, ids, (uint32_t)n), .count = (uint32_t)n};
	return true;
}

static void
read_ints(struct loader *l, const json_t *list, struct arg *out)
{
	size_t n = json_array_size(list);
	struct sint *ints = NEW(l->c->a, struct sint, n + 1);

	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(list, i);

		if (json_is_object(item))
			ints[i] = read_sint(l, item, 0);
		else
			ints[i] = SINT(json_is_integer(item) ? json_integer_value(item) : json_is_true(item));
	}
	*out = (struct arg){.kind = ARG_INTS, .first = ints_add(l->g, ints, (uint32_t)n), .count = (uint32_t)n};
}

static double
real(const json_t *j)
{
	struct str s = json_str(j);

	if (s.n)
		return s.p[0] == '-' ? -1e308 : 1e308;     /* "Infinity" */
	return json_number_value(j);
}

static void
read_floats(struct loader *l, const json_t *list, struct arg *out)
{
	size_t n = json_array_size(list);
	double *f = NEW(l->c->a, double, n + 1);

	for (size_t i = 0; i < n; i++)
		f[i] = real(json_array_get(list, i));
	*out = (struct arg){.kind = ARG_FLOATS, .first = floats_add(l->g, f, (uint32_t)n), .count = (uint32_t)n};
}

enum tag { TAG_NONE, TAG_TENSOR, TAG_TENSORS, TAG_INT, TAG_SYM_INT, TAG_INTS, TAG_FLOAT, TAG_FLOATS, TAG_BOOL, TAG_STR, TAG_DTYPE, TAG_FORMAT, TAG_DEVICE, TAG_LAYOUT };

static enum tag
tag_of(struct str s)
{
	static const struct {
		const char *name;
		enum tag tag;
	} table[] = {
		{"as_tensor", TAG_TENSOR}, {"as_int", TAG_INT}, {"as_none", TAG_NONE}, {"as_ints", TAG_INTS}, {"as_sym_ints", TAG_INTS},
		{"as_float", TAG_FLOAT}, {"as_bool", TAG_BOOL}, {"as_sym_int", TAG_SYM_INT}, {"as_scalar_type", TAG_DTYPE}, {"as_tensors", TAG_TENSORS},
		{"as_optional_tensors", TAG_TENSORS}, {"as_string", TAG_STR}, {"as_floats", TAG_FLOATS}, {"as_bools", TAG_INTS}, {"as_memory_format", TAG_FORMAT},
		{"as_device", TAG_DEVICE}, {"as_layout", TAG_LAYOUT},
	};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(s, str_of(table[i].name)))
			return table[i].tag;
	return TAG_NONE;           /* symbolic bools and floats: nothing in memory depends on them */
}

/* serde numbers memory formats from 1, with preserve last (formats.md 5.2) */
static struct arg
memory_format(int64_t serde)
{
	static const int64_t c10[] = {1, 0, 2, 3, 1};

	return arg_int(serde >= 1 && serde <= 4 ? c10[serde] : 1);
}

bool
export_arg(struct loader *l, const json_t *j, struct arg *out)
{
	struct str tag = S("");
	const json_t *v = json_only(j, &tag);

	*out = (struct arg){.kind = ARG_NONE};
	if (str_eq(tag, S("as_optional_tensor")))
		v = json_only(v, &tag);
	switch (tag_of(tag)) {
	case TAG_TENSOR:
		*out = (struct arg){.kind = ARG_VAL};
		return export_lookup(l, v, &out->u.val);
	case TAG_TENSORS:
		return read_tensors(l, v, out);
	case TAG_INT:
		*out = arg_int(json_integer_value(v));
		break;
	case TAG_SYM_INT:
		*out = (struct arg){.kind = ARG_INT, .u.i = read_sint(l, v, 0)};
		break;
	case TAG_INTS:
		read_ints(l, v, out);
		break;
	case TAG_FLOAT:
		*out = arg_float(real(v));
		break;
	case TAG_FLOATS:
		read_floats(l, v, out);
		break;
	case TAG_BOOL:
		*out = arg_bool(json_is_true(v));
		break;
	case TAG_STR:
		*out = (struct arg){.kind = ARG_STR, .u.str = graph_name(l->g, json_str(v))};
		break;
	case TAG_DTYPE:
		*out = arg_dtype(dtype_by_serde(json_integer_value(v)));
		break;
	case TAG_DEVICE:
		*out = (struct arg){.kind = ARG_STR, .u.str = graph_name(l->g, json_get_str(v, "type"))};
		break;
	case TAG_LAYOUT:
		*out = arg_int(json_integer_value(v));
		break;
	case TAG_FORMAT:
		*out = memory_format(json_integer_value(v));
		break;
	case TAG_NONE:
		break;
	}
	return true;
}

