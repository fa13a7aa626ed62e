/* ONNX files: what names mean, types of values, and the elements of small tensors. */
#include "onnx.h"

#include <math.h>
#include <string.h>

#define MAX_INTS LIMIT(4096u, 4u)             /* elements of a tensor that are kept; onnx_wire.c drops longer payloads unseen */
#define MAX_FLOATS LIMIT(64u, 1u)

struct str
onnx_str(const char *s)
{
	return s ? str_of(s) : S("");
}

uint32_t *
onnx_slot(struct onnx *l, uint32_t **array, uint32_t *cap, uint32_t i)
{
	if (i >= *cap) {
		uint32_t old = *cap, want = i + 1 > old * 2 ? i + 64 : old * 2;
		uint32_t *p = NEW(l->c->a, uint32_t, want);

		if (old)
			memcpy(p, *array, old * sizeof *p);
		*array = p;
		*cap = want;
	}
	return &(*array)[i];
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

struct binding *
onnx_binding(struct onnx *l, const char *name)
{
	uint32_t id = strtab_id(l->names, onnx_str(name));

	if (id >= l->bind_cap) {
		uint32_t old = l->bind_cap;
		struct binding *p;

		l->bind_cap = id * 2 + 64;
		p = NEW(l->c->a, struct binding, l->bind_cap);
		if (old)
			memcpy(p, l->bind, old * sizeof *p);
		l->bind = p;
	}
	return &l->bind[id];
}

void
onnx_declare(struct onnx *l, Onnx__ValueInfo **info, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct binding *b = onnx_binding(l, info[i]->name);

		b->info = info[i];
		b->info_frame = l->frame;
	}
}

/* Inner graphs may use a name again; what it meant comes back behind them. */
bool
onnx_bind(struct onnx *l, const char *name, uint32_t v)
{
	struct binding *b = onnx_binding(l, name);

	if (l->depth) {
		ROOM(l->c->a, l->undo, l->nundo, l->undo_cap, 1);
		l->undo[l->nundo++] = (struct rebinding){(uint32_t)(b - l->bind), *b};
	} else if (b->val && b->frame == l->frame) {
		return diag(l->c, DIAG_DUPLICATE_VALUE, SFMT(onnx_str(name)));
	}
	b->val = v;
	b->frame = l->frame;
	return true;
}

void
onnx_undo(struct onnx *l, uint32_t mark)
{
	for (; l->nundo > mark; l->nundo--)
		l->bind[l->undo[l->nundo - 1].id] = l->undo[l->nundo - 1].was;
}

bool
onnx_lookup(struct onnx *l, const char *name, uint32_t *v)
{
	const struct binding *b;

	*v = 0;
	if (!name || !*name)
		return true;
	b = onnx_binding(l, name);
	if (b->omitted == l->frame && l->frame && !(b->val && b->frame == l->frame))
		return true;
	if (!b->val || b->frame != l->frame)
		return diag(l->c, DIAG_UNKNOWN_VALUE, SFMT(onnx_str(name)));
	*v = b->val;
	return true;
}

uint32_t
onnx_new_val(struct onnx *l, enum val_kind kind, struct str name)
{
	uint32_t v, *taken = onnx_slot(l, &l->taken, &l->taken_cap, graph_name(l->g, name));

	if (*taken || !name.n) {
		struct str unique;

		do
			unique = str_fmt(l->c->a, "%.*s@%u", SFMT(name), (unsigned)++*taken);
		while (*onnx_slot(l, &l->taken, &l->taken_cap, graph_name(l->g, unique)));
		name = unique;
		taken = onnx_slot(l, &l->taken, &l->taken_cap, graph_name(l->g, name));
	}
	++*taken;
	v = val_new(l->g, kind, name);
	return v;
}

bool
onnx_define(struct onnx *l, enum val_kind kind, const char *name, uint32_t *out)
{
	const struct binding *b;

	if (l->g->nval >= l->c->lim.values)
		return diag(l->c, DIAG_TOO_MANY, "values", (unsigned long long)l->c->lim.values);
	*out = onnx_new_val(l, kind, onnx_str(name));
	if (!onnx_bind(l, name, *out))
		return false;
	b = onnx_binding(l, name);
	return !b->info || b->info_frame != l->frame || onnx_type(l, *out, b->info->type);
}

/* ---- types -------------------------------------------------------------------------------------------------------- */

/* Names of symbols are printed between quotes where they are no words. */
static struct str
clean(struct ctx *c, struct str name)
{
	struct str s = str_copy(c->a, name);
	char *p = (char *)(uintptr_t)s.p;

	for (uint32_t i = 0; i < s.n; i++)
		if ((unsigned char)p[i] < 0x20 || p[i] == '"' || p[i] == '\\' || p[i] == 0x7f)
			p[i] = '_';
	return s;
}

static bool
is_word(struct str s)
{
	for (uint32_t i = 0; i < s.n; i++)
		if (!((s.p[i] | 32) >= 'a' && (s.p[i] | 32) <= 'z') && !(s.p[i] >= '0' && s.p[i] <= '9') && s.p[i] != '_')
			return false;
	return s.n > 0 && !(s.p[0] >= '0' && s.p[0] <= '9');
}

/* A word is a symbol. Anything else is an expression if it speaks of symbols that there are ("seq + 1"), else a name with odd characters. */
static uint32_t
dim_param(struct onnx *l, struct str text)
{
	uint32_t *e = onnx_slot(l, &l->expr_of, &l->expr_cap, graph_name(l->g, text));

	if (!*e && !is_word(text) && expr_parse_known(l->g, text, e))
		return *e;
	if (!*e)
		*e = expr_sym(l->g, sym_add(l->g, clean(l->c, text)));
	return *e;
}

static bool
read_dims(struct onnx *l, uint32_t v, const Onnx__Shape *shape)
{
	struct str name = graph_str(l->g, l->g->vals[v].name);
	struct sint dims[MAX_RANK];

	if (shape->n_dim > MAX_RANK)
		return diag(l->c, DIAG_RANK_TOO_BIG, SFMT(name), (unsigned)shape->n_dim);
	for (size_t i = 0; i < shape->n_dim; i++) {
		const Onnx__Dim *d = shape->dim[i];

		dims[i] = (struct sint){0, EXPR_UNKNOWN};
		if (d->dim_param && *d->dim_param)
			dims[i] = sint_of_expr(l->g, dim_param(l, str_of(d->dim_param)));
		else if (d->has_dim_value && d->dim_value > (int64_t)1 << 48)
			return diag(l->c, DIAG_BAD_SHAPE, SFMT(name), (long long)d->dim_value);
		else if (d->has_dim_value && d->dim_value >= 0)
			dims[i] = SINT(d->dim_value);
	}
	val_shape(l->g, v, (unsigned)shape->n_dim, dims);
	return true;
}

static bool
read_dtype(struct onnx *l, uint32_t v, int32_t number)
{
	struct str name = graph_str(l->g, l->g->vals[v].name);

	if (number == 0)
		return true;           /* not said */
	l->g->vals[v].dtype = (uint8_t)dtype_by_onnx(number);
	return l->g->vals[v].dtype ? true : diag(l->c, DIAG_BAD_DTYPE, SFMT(name), (long long)number);
}

/* Sequences have no type of their own here; an optional value has that of its element. */
bool
onnx_type(struct onnx *l, uint32_t v, const Onnx__Type *t)
{
	const Onnx__TensorType *tensor;

	if (t && t->optional_type)
		t = t->optional_type->elem_type;
	tensor = !t ? NULL : t->tensor_type ? t->tensor_type : t->sparse_tensor_type;
	if (!tensor)
		return true;
	return read_dtype(l, v, tensor->elem_type) && (!tensor->shape || read_dims(l, v, tensor->shape));
}

/* ---- elements ------------------------------------------------------------------------------------------------------- */

static uint64_t
little_endian(const uint8_t *p, unsigned bytes)
{
	uint64_t n = 0;

	for (unsigned i = bytes; i-- > 0;)
		n = n << 8 | p[i];
	return n;
}

static double
half(uint16_t h)
{
	int exponent = h >> 10 & 31;
	double m = (h & 1023) / 1024.0, sign = h & 0x8000 ? -1 : 1;

	if (exponent == 31)
		return m != 0 ? NAN : sign * INFINITY;
	return sign * (exponent ? ldexp(1 + m, exponent - 15) : ldexp(m, -14));
}

static double
single(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static double
real(uint64_t bits, unsigned dtype)
{
	double d;

	switch (dtype) {
	case DT_FP16:
		return half((uint16_t)bits);
	case DT_BF16:
		return single((uint32_t)bits << 16);
	case DT_FP32:
		return single((uint32_t)bits);
	default:
		memcpy(&d, &bits, sizeof d);
		return d;
	}
}

/* The stored bits of element i, wherever the writer put them. */
static uint64_t
element_bits(const Onnx__Tensor *t, unsigned dtype, size_t i)
{
	unsigned bytes = dtype_info(dtype)->bits / 8;
	uint64_t bits = 0;

	if (t->has_raw_data)
		return little_endian(t->raw_data.data + i * bytes, bytes);
	if (t->n_float_data)
		memcpy(&bits, &t->float_data[i], 4);
	else if (t->n_double_data)
		memcpy(&bits, &t->double_data[i], 8);
	else if (t->n_int32_data)
		bits = (uint64_t)(int64_t)t->int32_data[i];
	else if (t->n_int64_data)
		bits = (uint64_t)t->int64_data[i];
	else if (t->n_uint64_data)
		bits = t->uint64_data[i];
	return bits;
}

/* Two's complement of the dtype's width. */
static int64_t
integer(uint64_t bits, unsigned dtype)
{
	unsigned width = dtype_info(dtype)->bits;
	bool is_signed = dtype == DT_INT8 || dtype == DT_INT16 || dtype == DT_INT32 || dtype == DT_INT64;

	if (width >= 64)
		return (int64_t)bits;
	bits &= (1ull << width) - 1;
	return is_signed && bits >> (width - 1) ? (int64_t)bits - (int64_t)(1ull << width) : (int64_t)bits;
}

static size_t
stored_elements(const Onnx__Tensor *t, unsigned dtype)
{
	unsigned bytes = dtype_info(dtype)->bits / 8;

	if (t->has_raw_data && bytes)
		return t->raw_data.len % bytes ? 0 : t->raw_data.len / bytes;
	return t->n_float_data ? t->n_float_data : t->n_double_data ? t->n_double_data : t->n_int32_data ? t->n_int32_data : t->n_int64_data ? t->n_int64_data : t->n_uint64_data;
}

static bool
has_payload(const Onnx__Tensor *t)
{
	return t->has_raw_data || t->n_float_data || t->n_double_data || t->n_int32_data || t->n_int64_data || t->n_uint64_data;
}

static void
read_elements(struct onnx *l, uint32_t v, const Onnx__Tensor *t, uint64_t n)
{
	unsigned dtype = l->g->vals[v].dtype, cat = dtype_info(dtype)->cat;
	struct sint *ints;
	double *floats;

	if (dtype_info(dtype)->bits % 8 || dtype_info(dtype)->bits > 64 || dtype == DT_NONE)
		return;
	if (n != stored_elements(t, dtype)) {
		struct str name = graph_str(l->g, l->g->vals[v].name);

		diag(l->c, DIAG_PAYLOAD, SFMT(name), (unsigned long long)n);
	} else if ((cat == CAT_INT || cat == CAT_BOOL) && n <= MAX_INTS) {
		ints = NEW(l->c->a, struct sint, n);
		for (size_t i = 0; i < n; i++)
			ints[i] = SINT(integer(element_bits(t, dtype, i), dtype));
		val_ints(l->g, v, ints, (uint32_t)n);
	} else if ((dtype == DT_FP16 || dtype == DT_BF16 || dtype == DT_FP32 || dtype == DT_FP64) && n <= MAX_FLOATS) {
		floats = NEW(l->c->a, double, n);
		for (size_t i = 0; i < n; i++)
			floats[i] = real(element_bits(t, dtype, i), dtype);
		val_floats(l->g, v, floats, (uint32_t)n);
	}
}

bool
onnx_tensor(struct onnx *l, uint32_t v, const Onnx__Tensor *t)
{
	struct str name = graph_str(l->g, l->g->vals[v].name);
	struct sint dims[MAX_RANK];
	uint64_t n = 1;

	if (t->n_dims > MAX_RANK)
		return diag(l->c, DIAG_RANK_TOO_BIG, SFMT(name), (unsigned)t->n_dims);
	for (size_t i = 0; i < t->n_dims; i++) {
		dims[i] = SINT(t->dims[i]);
		if (t->dims[i] < 0 || t->dims[i] > (int64_t)1 << 48)
			return diag(l->c, DIAG_BAD_SHAPE, SFMT(name), (long long)t->dims[i]);
		if (!mul_u64(n, (uint64_t)t->dims[i], &n))
			n = UINT64_MAX;
	}
	if (!read_dtype(l, v, t->data_type))
		return false;
	val_shape(l->g, v, (unsigned)t->n_dims, dims);
	if (has_payload(t) || n == 0)
		read_elements(l, v, t, n);
	return true;
}
