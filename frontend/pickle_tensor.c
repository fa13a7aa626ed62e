/* Storages, tensors and parameters in pickles, as PyTorch writes them (formats.md 2.2, 2.3): calls that are known become values. */
#include "pickle_machine.h"

static int64_t
integer(const struct pickle *v)
{
	return v->kind == PK_INT ? v->u.i : v->kind == PK_BOOL ? v->u.b : -1;
}

/* "torch.FloatStorage" */
static unsigned
storage_dtype(const struct pickle *global)
{
	struct str s = global->u.s;
	int64_t dot;

	while ((dot = str_find(s, '.')) >= 0)
		s = str_sub(s, (uint32_t)dot + 1, s.n);
	return str_ends(s, S("Storage")) ? dtype_by_storage(str_sub(s, 0, s.n - 7)) : DT_NONE;
}

/* ("storage", class, key, device, elements); any other persistent id is an unknown call. */
bool
machine_persistent(struct machine *m)
{
	struct pickle *id = machine_pop(m), *v;
	struct pickle **x;

	if (!id)
		return false;
	x = id->u.item;
	if (id->kind != PK_TUPLE || id->n < 5 || !str_eq(pickle_str(x[0]), S("storage")) || x[1]->kind != PK_GLOBAL) {
		v = machine_new(m, PK_CALL);
		v->args = id;
		return machine_push(m, v);
	}
	v = machine_new(m, PK_STORAGE);
	v->u.storage = NEW(m->c->a, struct pickle_storage, 1);
	*v->u.storage = (struct pickle_storage){
		.key = pickle_str(x[2]), .device = pickle_str(x[3]), .count = integer(x[4]), .dtype = (uint8_t)storage_dtype(x[1]),
	};
	return machine_push(m, v);
}

static bool
read_sizes(const struct pickle *v, int64_t *out, uint8_t *rank)
{
	if ((v->kind != PK_TUPLE && v->kind != PK_LIST) || v->n > MAX_RANK)
		return false;
	*rank = (uint8_t)v->n;
	for (uint32_t i = 0; i < v->n; i++) {
		out[i] = integer(v->u.item[i]);
		if (out[i] < 0 || out[i] > (int64_t)1 << 48)
			return false;
	}
	return true;
}

/* (storage, offset, sizes, strides, ..): where requires_grad and a dtype stand differs. */
static struct pickle *
tensor(struct machine *m, const struct pickle *args, uint32_t grad_at, uint32_t dtype_at)
{
	struct pickle **x = args->u.item, *v;
	struct pickle_tensor *t = NEW(m->c->a, struct pickle_tensor, 1);
	uint8_t rank = 0;

	if (args->n < 4 || x[0]->kind != PK_STORAGE || !read_sizes(x[2], t->dim, &t->rank) || !read_sizes(x[3], t->stride, &rank) || rank != t->rank)
		return NULL;
	t->storage = x[0]->u.storage;
	t->offset = integer(x[1]);
	t->dtype = t->storage->dtype;
	t->requires_grad = grad_at < args->n && x[grad_at]->kind == PK_BOOL && x[grad_at]->u.b;
	if (dtype_at && dtype_at < args->n && x[dtype_at]->kind == PK_GLOBAL && str_starts(x[dtype_at]->u.s, S("torch.")))
		t->dtype = (uint8_t)dtype_by_name(str_sub(x[dtype_at]->u.s, 6, x[dtype_at]->u.s.n));
	v = machine_new(m, PK_TENSOR);
	v->u.tensor = t;
	return v;
}

static struct pickle *
parameter(struct machine *m, const struct pickle *args)
{
	struct pickle *v;

	if (args->n < 2 || args->u.item[0]->kind != PK_TENSOR)
		return NULL;
	v = machine_new(m, PK_TENSOR);
	v->u.tensor = NEW(m->c->a, struct pickle_tensor, 1);
	*v->u.tensor = *args->u.item[0]->u.tensor;
	v->u.tensor->is_parameter = true;
	v->u.tensor->requires_grad = args->u.item[1]->kind == PK_BOOL && args->u.item[1]->u.b;
	return v;
}

/* A subclass or a tensor with attributes: (function, type, arguments, state) stands for what the function gives. */
static struct pickle *
from_type(struct machine *m, const struct pickle *args)
{
	if (args->n < 3 || args->u.item[0]->kind != PK_GLOBAL || args->u.item[2]->kind != PK_TUPLE)
		return NULL;
	return machine_known_call(m, args->u.item[0], args->u.item[2], true);
}

/* What the calls that PyTorch writes give; NULL = none of them, or not with such arguments. */
struct pickle *
machine_known_call(struct machine *m, const struct pickle *fn, const struct pickle *args, bool inner)
{
	static const struct {
		const char *name;
		uint32_t grad_at, dtype_at;
	} rebuild[] = {
		{"torch._utils._rebuild_tensor", 99, 0}, {"torch._utils._rebuild_tensor_v2", 4, 0}, {"torch._utils._rebuild_qtensor", 5, 0},
		{"torch._utils._rebuild_tensor_v3", 4, 6},
	};
	struct str name = fn->u.s;

	for (size_t i = 0; i < sizeof rebuild / sizeof rebuild[0]; i++)
		if (pickle_is(fn, rebuild[i].name))
			return tensor(m, args, rebuild[i].grad_at, rebuild[i].dtype_at);
	if (pickle_is(fn, "torch._utils._rebuild_parameter") || pickle_is(fn, "torch._utils._rebuild_parameter_with_state"))
		return parameter(m, args);
	if (pickle_is(fn, "torch._tensor._rebuild_from_type_v2") && !inner)
		return from_type(m, args);
	if (pickle_is(fn, "collections.OrderedDict"))
		return machine_new(m, PK_DICT);
	if (args->n && (str_starts(name, S("torch.jit._pickle.build_")) || pickle_is(fn, "torch.jit._pickle.restore_type_tag")))
		return args->u.item[0];
	if (args->n && pickle_is(fn, "torch.device"))
		return args->u.item[0];
	return NULL;
}
