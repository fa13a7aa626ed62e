/*
 * Running one operator: defaults, autocast, the tape, the forward formulas, results.
 * Also the access to arguments by name that builders and compositions use.
 */
#include "lower.h"

#include <string.h>

/* ---- arguments --------------------------------------------------------------------------------------- */

static int
arg_index(const struct call *c, const char *name)
{
	size_t n = strlen(name);

	for (int i = 0; i < c->code->narg; i++)
		if (c->code->arg[i].n == n && memcmp(c->code->arg[i].p, name, n) == 0)
			return i;
	return -1;
}

const struct value *
call_arg(const struct call *c, const char *name)
{
	static const struct value none = {.kind = ARG_NONE};
	int i = arg_index(c, name);

	return i < 0 ? &none : &c->arg[i];
}

int64_t
call_int(const struct call *c, const char *name, int64_t dflt)
{
	const struct value *v = call_arg(c, name);

	if (v->kind == ARG_INTS && v->n)
		return geom_bounded(v->u.ints[0]);
	if (v->kind == ARG_BOOL)
		return v->b;
	if (v->kind == ARG_FLOAT)
		return v->u.f > -(double)GEOM_MOST && v->u.f < (double)GEOM_MOST ? (int64_t)v->u.f : GEOM_MOST;
	return v->kind == ARG_INT ? geom_bounded(v->u.i) : dflt;
}

bool
call_bool(const struct call *c, const char *name)
{
	const struct value *v = call_arg(c, name);

	return v->kind == ARG_BOOL ? v->b : v->kind == ARG_INT ? v->u.i != 0 : false;
}

unsigned
call_dtype(const struct call *c, const char *name)
{
	const struct value *v = call_arg(c, name);

	return v->kind == ARG_DTYPE ? v->dtype : DT_NONE;
}

unsigned
call_ints(const struct call *c, const char *name, int64_t *out, unsigned cap)
{
	const struct value *v = call_arg(c, name);

	if (v->kind == ARG_INT) {
		out[0] = geom_bounded(v->u.i);
		return 1;
	}
	if (v->kind != ARG_INTS || v->n > cap)
		return 0;
	for (unsigned i = 0; i < v->n; i++)
		out[i] = geom_bounded(v->u.ints[i]);
	return v->n;
}

uint32_t
call_tensor(const struct call *c, const char *name)
{
	const struct value *v = call_arg(c, name);

	return v->kind == ARG_VAL ? v->u.t : 0;
}

/* An operator whose shapes do not work out is reported once a node and counted; its results stay unsized. */
bool
call_failed(struct call *c, const char *why)
{
	struct sim *s = c->s;
	struct str name = graph_str(s->g, s->g->nodes[s->node].name);

	s->failed++;
	return diag(s->c, DIAG_OP_FAILED, SFMT(name), op_info(c->op)->name, why);
}

/* ---- formulas --------------------------------------------------------------------------------------------- */

static const struct geom numbers[] = {
	{.rank = 0, .dtype = DT_INT64, .numel = 1, .contiguous = true, .dense = true},
	{.rank = 0, .dtype = DT_FP32, .numel = 1, .contiguous = true, .dense = true},
	{.rank = 0, .dtype = DT_BOOL, .numel = 1, .contiguous = true, .dense = true},
};

static struct operand
tensor_operand(const struct call *c, uint32_t t)
{
	return t ? (struct operand){geom_at(c->s, t), t, false} : (struct operand){0};
}

/* In backward the shape of a differentiable argument is known even where the tensor was not saved. */
static const struct geom *
meta_of(const struct call *c, unsigned arg)
{
	unsigned e = 0;

	for (unsigned i = 0; c->fn && i < c->code->ndiff; i++) {
		const struct value *v = &c->fn->arg[c->code->diff[i]];

		if (c->code->diff[i] == arg)
			return v->kind != ARG_VALS ? c->fn->meta[e] : c->elem < v->n ? c->fn->meta[e + c->elem] : NULL;
		e += v->kind == ARG_VALS ? v->n : 1;
	}
	return NULL;
}

static struct operand
arg_operand(const struct call *c, unsigned i)
{
	const struct value *v = &c->arg[i];
	struct operand x = {0};

	switch (v->kind) {
	case ARG_VAL:
		x = tensor_operand(c, v->u.t);
		break;
	case ARG_VALS:
		x = tensor_operand(c, c->elem < v->n ? v->u.ts[c->elem] : 0);
		break;
	case ARG_INT:
		return (struct operand){&numbers[0], 0, true};
	case ARG_FLOAT:
		return (struct operand){&numbers[1], 0, true};
	case ARG_BOOL:
		return (struct operand){&numbers[2], 0, true};
	default:
		break;
	}
	if (!x.g && c->fn)
		x.g = meta_of(c, i);
	return x;
}

static struct operand
ref_operand(const struct call *c, struct ref r, const struct operand *tmp)
{
	switch (r.kind) {
	case REF_ARG:
		return arg_operand(c, r.i);
	case REF_OUT:
		return tensor_operand(c, c->out[r.i]);
	case REF_GRAD:
		return tensor_operand(c, r.i < c->ngrads ? c->grads[r.i] : 0);
	case REF_TMP:
		return tmp[r.i];
	case REF_MADE:
		return tensor_operand(c, c->made[r.i]);
	case REF_NUMBER:
		return (struct operand){&numbers[1], 0, true};
	default:
		return (struct operand){0};
	}
}

static bool
all_numbers(const struct operand *x, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!x[i].number)
			return false;
	return n > 0;
}

/* Does the builder lack an operand that its rule reads? */
static bool
lacks_operand(const struct insn *x, const struct operand *ref)
{
	static const bool pairs[BUILD_COUNT] = {
#define BUILD(name)
#define PAIRS(name) [BUILD_##name] = true,
#include "build.def"
#undef BUILD
	};

	if (!ref[0].g)
		return x->build != BUILD_ew && x->build != BUILD_where && x->build != BUILD_cat && x->build != BUILD_stack;
	for (unsigned i = 1; i < x->nref; i++)
		if (pairs[x->build] && !ref[i].g)
			return true;
	return false;
}

static struct operand
run_insn(struct call *c, const struct insn *x, const struct operand *tmp)
{
	struct operand ref[MAX_REFS];
	unsigned dt = x->dtype;

	for (unsigned i = 0; i < x->nref; i++)
		ref[i] = ref_operand(c, x->ref[i], tmp);
	if (x->dtype_of.kind) {
		struct operand like = ref_operand(c, x->dtype_of, tmp);

		dt = like.g ? like.g->dtype : dt;
	}
	if ((x->build == BUILD_ew || x->build == BUILD_conj) && all_numbers(ref, x->nref))
		return ref[0];
	for (unsigned i = 0; i < x->nref; i++)
		if (x->ref[i].kind == REF_GRAD && !ref[i].g)
			return (struct operand){0};        /* this result got no gradient */
	if (x->nref && lacks_operand(x, ref)) {
		call_failed(c, "an operand is missing");
		return (struct operand){0};
	}
	c->kernel = x->kernel ? x->kernel : c->fn ? c->code->backward_name : op_info(c->op)->name;
	return tensor_operand(c, builders[x->build](c, ref, x->nref, dt));
}

/* Temporaries of the formula die when it ends, latest first; its result becomes a temporary of the caller. */
uint32_t
formula_run(struct call *c, const struct formula *f)
{
	struct operand tmp[MAX_TMP];
	uint32_t mark = temps_mark(c->s), before[MAX_TMP];

	for (unsigned i = f->first; i < (unsigned)f->first + f->n; i++) {
		const struct insn *x = &c->code->insn[i];

		before[x->dst] = temps_mark(c->s);
		if (x->build == BUILD_COUNT) {
			tmp[x->dst] = ref_operand(c, x->ref[0], tmp);
			temps_keep(c->s, before[x->first], tmp[x->dst].t);
			continue;
		}
		tmp[x->dst] = run_insn(c, x, tmp);
		if (!tmp[x->dst].g)
			return temps_keep(c->s, mark, 0);
	}
	if (c->several)            /* pieces of a split: all of them are results */
		return c->s->result[0];
	return temps_keep(c->s, mark, ref_operand(c, f->result, tmp).t);
}

/* ---- casts and autocast --------------------------------------------------------------------------------------- */

uint32_t
cast(struct sim *s, uint32_t t, unsigned dtype)
{
	return !t || geom_at(s, t)->dtype == dtype ? t : CALL(s, TO_COPY, V_TENSOR(t), V_DTYPE(dtype));
}

/* autocast_mode.cpp, cached_cast: an fp32 leaf that requires grad and is no view is cast once in a context. */
static uint32_t
cached_cast(struct sim *s, uint32_t t, unsigned dtype)
{
	const struct tensor *x = tensor_at(s, t);
	bool cacheable = (x->flags & TF_LEAF) && (x->flags & TF_GRAD) && !(x->flags & TF_VIEW) && x->geom->dtype == DT_FP32 && dtype == s->autocast;
	uint32_t copy;

	if (!cacheable)
		return cast(s, t, dtype);
	for (uint32_t i = 0; i < s->ncache; i += 2)
		if (s->cache[i] == t)
			return s->cache[i + 1];
	copy = cast(s, t, dtype);
	ROOM(s->c->a, s->cache, s->ncache, s->cache_cap, 2);
	s->cache[s->ncache++] = t;
	s->cache[s->ncache++] = tensor_hold(s, copy);
	return copy;
}

void
autocast_clear(struct sim *s)
{
	for (uint32_t i = 0; i < s->ncache; i += 2)
		tensor_drop(s, s->cache[i + 1]);
	s->ncache = 0;
}

static uint32_t
autocast_tensor(struct sim *s, uint32_t t, unsigned class, unsigned widest)
{
	unsigned dt = t ? geom_at(s, t)->dtype : DT_NONE;

	if (!dtype_is_float(dt) || dt == DT_FP64)
		return t;
	if (class == CAST_LOW)
		return dt == s->autocast ? t : cached_cast(s, t, s->autocast);
	return cast(s, t, class == CAST_FP32 ? DT_FP32 : widest);
}

static unsigned
widest_dtype(const struct call *c)
{
	unsigned dt = c->s->autocast;

	for (unsigned i = 0; i < c->code->narg; i++)
		if (c->arg[i].kind == ARG_VAL && geom_at(c->s, c->arg[i].u.t)->dtype == DT_FP32)
			dt = DT_FP32;
	return dt;
}

/* C++ evaluates the casts of one call from the last argument to the first. */
void
autocast_call(struct call *c)
{
	unsigned class = op_info(c->op)->cast, widest = widest_dtype(c);
	struct sim *s = c->s;

	for (unsigned i = c->code->narg; i-- > 0;) {
		struct value *v = &c->arg[i];

		if (v->kind == ARG_VAL)
			v->u.t = autocast_tensor(s, v->u.t, class, widest);
		if (v->kind == ARG_VALS && v->n) {
			uint32_t *ts = NEW(s->c->a, uint32_t, v->n);

			for (uint32_t k = 0; k < v->n; k++)
				ts[k] = autocast_tensor(s, v->u.ts[k], class, widest);
			v->u.ts = ts;
		}
	}
}

/* ---- operators ---------------------------------------------------------------------------------------------------- */

typedef uint32_t composition(struct call *);

static composition *const compositions[OP_COUNT] = {
#define OP(id, name, schema, cast, forward, backward)
#define COMPOSE(id, name, schema, cast) [OP_##id] = compose_##id,
#define PRIM(id, name, schema)
#include "../../ir/op.def"
#undef OP
#undef COMPOSE
#undef PRIM
};

static void
push_result(struct sim *s, uint32_t t)
{
	ROOM(s->c->a, s->result, s->nresult, s->result_cap, 1);
	s->result[s->nresult++] = t;
}

/* None is for the rules to judge: weights may be missing. A list of numbers, a dtype or a text in an operand's place is none. */
static bool
has_operands(const struct call *c)
{
	for (unsigned i = 0; i < c->code->narg; i++) {
		unsigned kind = c->arg[i].kind;

		if (c->code->required >> i & 1 && (kind == ARG_INTS || kind == ARG_FLOATS || kind == ARG_DTYPE || kind == ARG_STR))
			return false;
	}
	return true;
}

/* It could not run: one result, which is none. */
static void
no_result(struct call *c, const char *why)
{
	call_failed(c, why);
	c->s->nresult = 0;
	push_result(c->s, 0);
}

static void
run_row(struct call *c)
{
	struct sim *s = c->s;
	uint32_t fn, first = s->sched->nstorage;

	if (!has_operands(c)) {
		no_result(c, "an operand is missing");
		return;
	}
	fn = tape_begin(c);
	s->nresult = 0;
	for (unsigned i = 0; i < c->code->nout; i++) {
		if (c->inplace && i == 0)
			c->out[0] = c->arg[0].u.t;
		else
			c->out[i] = formula_run(c, &c->code->out[i]);
	}
	if (!c->several) {
		s->nresult = 0;
		for (unsigned i = 0; i < c->code->nout; i++)
			push_result(s, c->out[i]);
	}
	scratch_note(c, c->code->nout ? c->out[0] : 0, first);
	tape_end(c, fn);
}

static uint32_t
run_call(struct call *c)
{
	struct sim *s = c->s;
	unsigned class = op_info(c->op)->cast, kept = s->autocast;

	if (kept && !c->inplace && (class == CAST_LOW || class == CAST_FP32 || class == CAST_PROMOTE)) {
		autocast_call(c);
		s->autocast = DT_NONE;     /* below the autocast key nothing is cast again */
	}
	if (compositions[c->op]) {
		uint32_t t;

		t = compositions[c->op](c);
		if (!c->several) {
			s->nresult = 0;
			push_result(s, t);
		}
	} else if (c->code->nout) {
		run_row(c);
	} else {
		no_result(c, "operator is not modelled");
	}
	s->autocast = (uint8_t)kept;
	return s->nresult ? s->result[0] : 0;
}

/* fp32_set_opt_dtype: sums and softmax of 16-bit inputs get dtype=float32; the kernels read 16 bits and need no copy. */
static void
set_fp32_result(struct call *c)
{
	unsigned dt = c->arg[0].kind == ARG_VAL ? geom_at(c->s, c->arg[0].u.t)->dtype : DT_NONE;
	int i = arg_index(c, "dtype");

	if (i >= 0 && c->arg[i].kind == ARG_NONE && (dt == DT_FP16 || dt == DT_BF16))
		c->arg[i] = V_DTYPE(DT_FP32);
}

/* Numbers that live on the CPU stay there, unless .to(device) moves them. */
static bool
stays_on_host(const struct call *c)
{
	bool host = false;

	for (unsigned i = 0; i < c->code->narg; i++) {
		const struct value *v = &c->arg[i];

		if (v->kind == ARG_VAL && !tensor_on_host(c->s, v->u.t))
			return false;
		for (uint32_t k = 0; v->kind == ARG_VALS && k < v->n; k++)
			if (v->u.ts[k] && !tensor_on_host(c->s, v->u.ts[k]))
				return false;
		host |= v->kind == ARG_VAL;
	}
	return host && !((c->op == OP_TO || c->op == OP_TO_COPY) && call_arg(c, "device")->kind == ARG_STR);
}

static uint32_t
start_call(struct sim *s, unsigned op, const struct value *arg, unsigned n, bool inplace)
{
	struct call c = {.s = s, .op = (uint16_t)op, .inplace = inplace, .code = op_code(s, op)};
	bool host = s->host;
	uint32_t t;

	for (unsigned i = 0; i < c.code->narg; i++)
		c.arg[i] = i < n && arg[i].kind != ARG_NONE ? arg[i] : c.code->dflt[i];
	if (s->autocast && op_info(op)->cast == CAST_FP32_OUT)
		set_fp32_result(&c);
	s->host = stays_on_host(&c);
	t = run_call(&c);
	s->host = host;
	return t;
}

uint32_t
op_call(struct sim *s, unsigned op, const struct value *arg, unsigned n)
{
	return start_call(s, op, arg, n, false);
}

uint32_t
op_call_inplace(struct sim *s, unsigned op, const struct value *arg, unsigned n)
{
	return start_call(s, op, arg, n, true);
}
