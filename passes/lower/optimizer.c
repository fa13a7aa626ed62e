/* The optimizer's step and zero_grad: optim.def says what each optimizer keeps and what its step needs for a moment. */
#include "step.h"

#include <string.h>

enum made { STEP, CONSTRUCTOR };

static const struct optim {
	const char *name, *state;
	enum made made;
	const char *fused, *foreach, *forloop;
} table[] = {
#define OPTIM(id, name, state, made, fused, foreach, forloop) {name, state, made, fused, foreach, forloop},
#include "optim.def"
#undef OPTIM
};

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
	if (a->r->v[RK_OPTIMIZER_IMPL].i == IMPL_FUSED && !o->fused)
		return diag(a->c, DIAG_BAD_VALUE, "optimizer_impl", SFMT(S("fused")), "foreach, forloop for this optimizer");
	return true;
}

/* A buffer like the parameter, held by the caller. */
static uint32_t
like_param(struct step *x, uint32_t param, const char *op)
{
	struct sim *s = x->s;
	struct call c = {.s = s, .op = OP_ZEROS_LIKE, .code = op_code(s, OP_ZEROS_LIKE), .kernel = op};
	struct operand like = {geom_at(s, param), param, false};
	uint32_t mark = temps_mark(s), t = tensor_hold(s, build_like(&c, &like, 1, DT_NONE));

	s->sched->storages[tensor_at(s, t)->storage].val = s->sched->storages[tensor_at(s, param)->storage].val;
	temps_release(s, mark);
	return t;
}

static void
add_state(struct step *x, struct param *p, uint32_t t)
{
	ROOM(x->s->c->a, p->state, p->nstate, p->state_cap, 1);
	p->state[p->nstate++] = t;
	x->s->sched->storages[tensor_at(x->s, t)->storage].factor = FAC_OPT;
}

static void
make_state(struct step *x, const struct optim *o, struct param *p)
{
	struct str rest = str_of(o->state), name;
	bool fused = x->s->r->v[RK_OPTIMIZER_IMPL].i == IMPL_FUSED;

	p->has_state = true;
	if (fused && o->fused && *o->fused) {
		uint32_t mark = temps_mark(x->s), t = CALL(x->s, ZEROS, V_INTS(NULL, 0), V_DTYPE(DT_FP32));

		add_state(x, p, tensor_hold(x->s, t));
		x->s->sched->storages[tensor_at(x->s, t)->storage].val = p->val;
		temps_release(x->s, mark);
	}
	while (rest.n && str_cut(&rest, ' ', &name))
		add_state(x, p, like_param(x, p->tensor, "zeros_like"));
}

void
optimizer_construct(struct step *x)
{
	const struct optim *o = optim_of(x->s->r);

	for (uint32_t i = 0; o->made == CONSTRUCTOR && i < x->nparam; i++)
		if (needs_grad(x->s, x->params[i].tensor))
			make_state(x, o, &x->params[i]);
}

/* Lists over all parameters: all of one, then all of the next, alive together. */
static void
run_foreach(struct step *x, const struct optim *o)
{
	struct sim *s = x->s;
	uint32_t mark = temps_mark(s);
	struct str rest = str_of(o->foreach), name;

	while (rest.n && str_cut(&rest, ' ', &name)) {
		const char *kernel = str_fmt(s->c->a, "_foreach_%.*s", SFMT(name)).p;

		for (uint32_t i = 0; i < x->nparam; i++)
			if (tensor_at(s, x->params[i].tensor)->grad)
				temps_take(s, like_param(x, x->params[i].tensor, kernel));
	}
	temps_release(s, mark);
}

static void
run_forloop(struct step *x, const struct optim *o)
{
	struct sim *s = x->s;
	uint32_t bound = 0;

	for (uint32_t i = 0; *o->forloop && i < x->nparam; i++) {
		struct str rest = str_of(o->forloop), name;
		uint32_t made[4] = {0}, n = 0;

		if (!tensor_at(s, x->params[i].tensor)->grad)
			continue;
		while (str_cut(&rest, ' ', &name)) {
			if (name.p[0] == '-') {
				tensor_drop(s, made[0]);       /* only the first of a pair is ever let go */
				made[0] = 0;
			} else if (n < 4) {
				made[n++] = like_param(x, x->params[i].tensor, str_copy(s->c->a, name).p);
			}
		}
		tensor_drop(s, bound);
		bound = made[n - 1];
	}
	tensor_drop(s, bound);
}

void
optimizer_step(struct step *x)
{
	const struct optim *o = optim_of(x->s->r);
	int64_t impl = x->s->r->v[RK_OPTIMIZER_IMPL].i;

	x->s->node = 0;
	for (uint32_t i = 0; i < x->nparam; i++)
		if (!x->params[i].has_state && tensor_at(x->s, x->params[i].tensor)->grad)
			make_state(x, o, &x->params[i]);
	if (impl == IMPL_FOREACH)
		run_foreach(x, o);
	else if (impl == IMPL_FORLOOP)
		run_forloop(x, o);
}

/* set_to_none: gradients die in the order of the parameters. */
void
optimizer_zero_grad(struct step *x)
{
	for (uint32_t i = 0; i < x->nparam; i++) {
		struct tensor *p = tensor_at(x->s, x->params[i].tensor);
		uint32_t grad = p->grad;

		p->grad = 0;
		tensor_drop(x->s, grad);
	}
}
