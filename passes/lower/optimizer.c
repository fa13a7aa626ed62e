/* The optimizer's step and zero_grad: optim.def says what each optimizer keeps and what its step needs for a moment. */
#include "step.h"

#include <string.h>

enum made { STEP, LOOP, CONSTRUCTOR };
enum { FOREACH = 1, FORLOOP = 2 };

static const struct optim {
	const char *name, *state;
	enum made made;
	const char *fused, *foreach, *forloop;
	unsigned always;
} table[] = {
#define OPTIM(id, name, state, made, fused, foreach, forloop, always) {name, state, made, fused, foreach, forloop, always},
#include "optim.def"
#undef OPTIM
};

#define SMALL 4096                 /* elements below which bitsandbytes keeps fp32 states */
#define BLOCK 256                  /* elements that share one absmax */
#define PAGED 100000               /* elements from which a paged state is in managed memory */

static const struct optim *
optim_of(const struct recipe *r)
{
	struct str name = choice_text(RK_OPTIMIZER, r->v[RK_OPTIMIZER].i);

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(name, str_of(table[i].name)))
			return &table[i];
	return NULL;
}

bool
optimizer_known(struct analysis *a)
{
	const struct optim *o = optim_of(a->r);
	struct str name = choice_text(RK_OPTIMIZER, a->r->v[RK_OPTIMIZER].i);

	if (!o)
		return diag(a->c, DIAG_NOT_MODELLED, "optimizer", SFMT(name));
	if (a->r->v[RK_OPTIMIZER_IMPL].i == IMPL_FUSED && !o->fused && !o->always)
		return diag(a->c, DIAG_BAD_VALUE, "optimizer_impl", SFMT(S("fused")), "foreach, forloop for this optimizer");
	if (str_eq(name, S("muon")))
		assume(a, "muon trains parameters with two dims, AdamW all others");
	else if (str_eq(name, S("lion")) || str_ends(name, S("8bit")))
		assume(a, "the optimizer's memory is by formula, not from a run of its library");
	return true;
}

/* ---- buffers ------------------------------------------------------------------------------------------------ */

/* SHAPE: what a buffer is, by the parameter's geometry. false: this parameter has none of it. */
static bool
like(const struct geom *p, struct geom *g)
{
	(void)g;
	return p != NULL;
}

static bool
rows(const struct geom *p, struct geom *g)
{
	if (p->rank < 2)
		return false;
	g->dim[p->rank - 1] = 1;
	return true;
}

static bool
columns(const struct geom *p, struct geom *g)
{
	if (p->rank < 2)
		return false;
	g->dim[p->rank - 2] = 1;
	return true;
}

static bool
deep(const struct geom *p, struct geom *g)
{
	(void)g;
	return p->rank >= 2;
}

static bool
flat(const struct geom *p, struct geom *g)
{
	return !deep(p, g);
}

static bool
matrix(const struct geom *p, struct geom *g)
{
	(void)g;
	return p->rank == 2;
}

static bool
other(const struct geom *p, struct geom *g)
{
	return !matrix(p, g);
}

static bool
bf16(const struct geom *p, struct geom *g)
{
	g->dtype = DT_BF16;
	return p->rank == 2;
}

/* A copy that .bfloat16() makes only of what is something else. */
static bool
half(const struct geom *p, struct geom *g)
{
	return bf16(p, g) && p->dtype != DT_BF16;
}

static bool
gram(const struct geom *p, struct geom *g)
{
	int64_t n = p->rank == 2 && p->dim[0] < p->dim[1] ? p->dim[0] : p->dim[p->rank == 2];

	g->dim[0] = g->dim[1] = n;
	return bf16(p, g);
}

static bool
one(const struct geom *p, struct geom *g)
{
	(void)p;
	g->rank = 0;
	return true;
}

static bool
one_deep(const struct geom *p, struct geom *g)
{
	return one(p, g) && p->rank >= 2;
}

static bool
one_flat(const struct geom *p, struct geom *g)
{
	return one(p, g) && p->rank < 2;
}

static bool
one_matrix(const struct geom *p, struct geom *g)
{
	return one(p, g) && bf16(p, g);
}

/* The mean of a row factor. */
static bool
corner(const struct geom *p, struct geom *g)
{
	return rows(p, g) && columns(p, g);
}

static bool
bytes(const struct geom *p, struct geom *g)
{
	g->dtype = DT_UINT8;
	return p->numel >= SMALL;
}

static bool
paged(const struct geom *p, struct geom *g)
{
	return bytes(p, g);
}

static bool
small(const struct geom *p, struct geom *g)
{
	g->dtype = DT_FP32;
	return p->numel < SMALL;
}

static bool
blocks(const struct geom *p, struct geom *g)
{
	g->rank = 1;
	g->dim[0] = p->numel / BLOCK + (p->numel % BLOCK != 0);
	g->dtype = DT_FP32;
	return p->numel >= SMALL;
}

typedef bool shape(const struct geom *param, struct geom *out);

static shape *
shape_of(struct str name)
{
	static const struct {
		const char *name;
		shape *fn;
	} shapes[] = {
		{"rows", rows}, {"columns", columns}, {"deep", deep}, {"flat", flat}, {"matrix", matrix}, {"other", other}, {"bf16", bf16}, {"half", half},
		{"gram", gram}, {"one", one}, {"one_deep", one_deep}, {"one_flat", one_flat},
		{"one_matrix", one_matrix}, {"corner", corner}, {"bytes", bytes}, {"paged", paged}, {"small", small}, {"blocks", blocks},
	};

	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		if (str_eq(name, str_of(shapes[i].name)))
			return shapes[i].fn;
	return like;
}

/* What an optimizer makes for a parameter belongs to whom the parameter does. */
static void
like_owner(struct sim *s, uint32_t t, uint32_t param)
{
	struct storage *x = &s->sched->storages[tensor_at(s, t)->storage], *p = &s->sched->storages[tensor_at(s, param)->storage];

	x->val = p->val;
	x->shares = p->shares;
}

/* "name" or "name:shape"; held by the caller, 0 = this parameter has none. */
static uint32_t
buffer(struct step *x, uint32_t param, struct str piece, const char *op)
{
	struct sim *s = x->s;
	const struct geom *p = geom_at(s, param);
	struct geom g = *p;
	struct str name;
	uint32_t mark = temps_mark(s), t;
	bool offload, managed;

	str_cut(&piece, ':', &name);
	if (!shape_of(piece)(p, &g))
		return 0;
	if (!p->dense || g.rank != p->rank || memcmp(g.dim, p->dim, p->rank * sizeof *g.dim))
		geom_contiguous(&g);
	offload = s->offload;
	managed = !offload && shape_of(piece) == paged && p->numel >= PAGED;
	s->offload |= managed;
	t = tensor_hold(s, tensor_new(s, geom_intern(s->geoms, g), op));
	s->offload = offload;
	s->sched->storages[tensor_at(s, t)->storage].managed = managed;
	like_owner(s, t, param);
	temps_release(s, mark);
	return t;
}

/* ---- state ------------------------------------------------------------------------------------------------------ */

static void
add_state(struct step *x, struct param *p, uint32_t t)
{
	if (!t)
		return;
	ROOM(x->s->own, p->state, p->nstate, p->state_cap, 1);
	p->state[p->nstate++] = t;
	x->s->sched->storages[tensor_at(x->s, t)->storage].factor = FAC_OPT;
}

/* The two tables that give 8-bit numbers their meaning, once for all parameters. */
static void
make_tables(struct step *x, struct param *p)
{
	const int64_t n = 256;

	for (unsigned i = 0; i < 2 && !x->has_tables; i++) {
		uint32_t mark = temps_mark(x->s), t = CALL(x->s, ZEROS, V_INTS(&n, 1), V_DTYPE(DT_FP32));

		add_state(x, p, tensor_hold(x->s, t));
		x->s->sched->storages[tensor_at(x->s, t)->storage].val = p->val;
		temps_release(x->s, mark);
	}
	x->has_tables = true;
}

/* part: of which of its optimizers; what "|" divides. */
static void
make_state(struct step *x, const struct optim *o, struct param *p, unsigned part)
{
	struct str rest = str_of(o->state), piece;
	bool fused = x->s->r->v[RK_OPTIMIZER_IMPL].i == IMPL_FUSED;
	unsigned at = 0;

	if (p->has_state & 1u << part)
		return;
	p->has_state |= (uint8_t)(1u << part);
	if (str_ends(str_of(o->name), S("8bit")))
		make_tables(x, p);
	if (fused && o->fused && *o->fused) {
		uint32_t mark = temps_mark(x->s), t = CALL(x->s, ZEROS, V_INTS(NULL, 0), V_DTYPE(DT_FP32));

		add_state(x, p, tensor_hold(x->s, t));
		x->s->sched->storages[tensor_at(x->s, t)->storage].val = p->val;
		temps_release(x->s, mark);
	}
	while (rest.n && str_cut(&rest, ' ', &piece)) {
		if (str_eq(piece, S("|")))
			at++;
		else if (at == part)
			add_state(x, p, buffer(x, p->tensor, piece, "zeros_like"));
	}
}

/* Of all parameters that have a gradient, or of those of one dtype. */
static void
make_states(struct step *x, const struct optim *o, unsigned part, unsigned dtype)
{
	for (uint32_t i = 0; i < x->ntrained; i++) {
		uint32_t t = x->trained[i].tensor;

		if (tensor_at(x->s, t)->grad && (!dtype || geom_at(x->s, t)->dtype == dtype))
			make_state(x, o, &x->trained[i], part);
	}
}

void
optimizer_construct(struct step *x)
{
	const struct optim *o = optim_of(x->s->r);

	for (uint32_t i = 0; o->made == CONSTRUCTOR && i < x->ntrained; i++)
		if (needs_grad(x->s, x->trained[i].tensor))
			make_state(x, o, &x->trained[i], 0);
}

/* ---- the step: a small interpreter of optim.def's programs ----------------------------------------------------------------- */

#define MAX_LOCALS 16

struct names {                     /* Python's names, each bound to a list; in a loop over parameters to a list of one */
	struct local {
		struct str name;
		uint32_t *t, n;    /* held */
	} at[MAX_LOCALS];
	uint32_t n;
	bool foreach;
	uint32_t first, last;      /* the parameters that the program runs for .. */
	unsigned dtype;            /* .. if they are of that one */
};

static unsigned
dtype_of(const struct step *x, uint32_t i)
{
	return tensor_at(x->s, x->trained[i].tensor)->grad ? geom_at(x->s, x->trained[i].tensor)->dtype : DT_NONE;
}

static struct local *
local(struct names *l, struct str name)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (str_eq(l->at[i].name, name))
			return &l->at[i];
	if (l->n == MAX_LOCALS)
		return &l->at[0];      /* no row has as many */
	l->at[l->n] = (struct local){.name = name};
	return &l->at[l->n++];
}

static void
bind_local(struct sim *s, struct local *v, uint32_t *t, uint32_t n)
{
	for (uint32_t i = 0; i < v->n; i++)
		tensor_drop(s, v->t[i]);
	v->t = t;
	v->n = n;
}

static void
alias_local(struct sim *s, struct names *l, struct str to, struct str from)
{
	struct local *a = local(l, to), *b = local(l, from);

	if (!b->n)
		return;
	for (uint32_t i = 0; i < b->n; i++)
		tensor_hold(s, b->t[i]);
	bind_local(s, a, b->t, b->n);
}

/* "name:shape" or "~name:shape"; a list that no parameter has a place in is not made. */
static void
make_buffers(struct step *x, struct names *l, struct str piece)
{
	struct sim *s = x->s;
	bool gone = piece.p[0] == '~';
	struct str whole = gone ? str_sub(piece, 1, piece.n) : piece, rest = whole, name;
	uint32_t *t = gone ? NULL : NEW(s->own, uint32_t, l->last - l->first + 1u), n = 0;
	const char *kernel;

	str_cut(&rest, ':', &name);
	kernel = l->foreach ? str_fmt(s->c->a, "_foreach_%.*s", SFMT(name)).p : str_copy(s->c->a, name).p;
	for (uint32_t i = l->first; i <= l->last; i++) {
		uint32_t b = dtype_of(x, i) == l->dtype ? buffer(x, x->trained[i].tensor, whole, kernel) : 0;

		if (b && gone)
			tensor_drop(s, b);
		else if (b)
			t[n++] = b;
	}
	if (n)
		bind_local(s, local(l, name), t, n);
}

static void
run_program(struct step *x, struct names *l, const char *text)
{
	struct str rest = str_of(text), piece;

	while (rest.n && str_cut(&rest, ' ', &piece)) {
		int64_t equals = str_find(piece, '=');

		if (!piece.n)
			continue;
		if (piece.p[0] == '-')
			bind_local(x->s, local(l, str_sub(piece, 1, piece.n)), NULL, 0);
		else if (equals > 0)
			alias_local(x->s, l, str_sub(piece, 0, (uint32_t)equals), str_sub(piece, (uint32_t)equals + 1, piece.n));
		else
			make_buffers(x, l, piece);
	}
}

static void
leave(struct sim *s, struct names *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		bind_local(s, &l->at[i], NULL, 0);
}

/* Groups come in the order of a C++ hash table, which puts what is new in front: the last dtype that the parameters brought is the first. */
static void
run_groups(struct step *x, const struct optim *o)
{
	bool seen[DT_COUNT] = {[DT_NONE] = true};
	struct names l = {.foreach = true, .last = x->ntrained - 1};
	uint8_t order[DT_COUNT];
	unsigned n = 0;

	for (uint32_t i = 0; i < x->ntrained; i++) {
		unsigned dt = dtype_of(x, i);

		if (!seen[dt])
			order[n++] = (uint8_t)dt;
		seen[dt] = true;
	}
	while (n-- > 0) {
		l.dtype = order[n];
		make_states(x, o, o->always == (FOREACH | FORLOOP), l.dtype);
		run_program(x, &l, o->foreach);
	}
	leave(x->s, &l);
}

static void
run_forloop(struct step *x, const struct optim *o)
{
	struct names l = {.n = 0};

	for (uint32_t i = 0; i < x->ntrained; i++) {
		l.first = l.last = i;
		l.dtype = dtype_of(x, i);
		if (l.dtype && o->made == LOOP)
			make_state(x, o, &x->trained[i], 0);
		if (l.dtype)
			run_program(x, &l, o->forloop);
	}
	leave(x->s, &l);
}

void
optimizer_step(struct step *x)
{
	const struct optim *o = optim_of(x->s->r);
	int64_t impl = x->s->r->v[RK_OPTIMIZER_IMPL].i;
	bool works = !x->s->offload;   /* on the host in place */

	x->s->node = 0;
	if (o->made != LOOP || !works || (!o->always && impl == IMPL_FUSED))
		make_states(x, o, 0, DT_NONE);
	if (works && (o->always ? o->always & FORLOOP : impl == IMPL_FORLOOP))
		run_forloop(x, o);
	if (o->always == (FOREACH | FORLOOP))
		make_states(x, o, 1, DT_NONE);
	if (works && (o->always ? o->always & FOREACH : impl == IMPL_FOREACH))
		run_groups(x, o);
}

/* set_to_none: gradients die in the order of the parameters. */
static void
drop_grads(struct sim *s, const struct param *params, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct tensor *p = tensor_at(s, params[i].tensor);
		uint32_t grad = p->grad;

		p->grad = 0;
		tensor_drop(s, grad);
	}
}

void
optimizer_zero_grad(struct step *x)
{
	drop_grads(x->s, x->params, x->nparam);
	for (uint32_t i = 0; i < x->ntrained && x->keeps_stale; i++)
		x->trained[i].stale = true;
	if (x->trained != x->params && !x->keeps_stale)
		drop_grads(x->s, x->trained, x->ntrained);
}
