/* trainable: what the file says about requires_grad, narrowed by the recipe. LoRA freezes all that is there (adapt/lora.c adds what trains). */
#include "../passes.h"

static void
warn_unmatched(struct analysis *a, unsigned key)
{
	const struct recipe_value *v = &a->r->v[key];

	for (uint32_t i = 0; i < v->nlist; i++) {
		bool hit = false;

		for (uint32_t p = 1; p < a->g->nval && !hit; p++)
			hit = a->g->vals[p].kind == VAL_PARAM && name_matches(v->list[i], graph_str(a->g, a->g->vals[p].full));
		if (!hit)
			diag(a->c, DIAG_NO_MATCH, key_info(key)->name, SFMT(v->list[i]), "parameter");
	}
}

static bool
trains(const struct analysis *a, const struct val *p)
{
	struct str name = graph_str(a->g, p->full);

	if (a->r->v[RK_LORA_R].i > 0 && a->r->v[RK_LORA_BIAS].i == BIAS_ALL && dtype_is_float(p->dtype))
		return str_eq(name, S("bias")) || str_ends(name, S(".bias"));
	if (!(p->flags & VF_TRAINABLE) || !dtype_is_float(p->dtype) || a->r->v[RK_LORA_R].i > 0)
		return false;
	if (a->r->v[RK_TRAIN_ONLY].nlist && !recipe_matches(a->r, RK_TRAIN_ONLY, name))
		return false;
	return !recipe_matches(a->r, RK_FREEZE, name);
}

/* A tied parameter is one tensor: frozen under its first name, it is frozen. */
bool
pass_trainable(struct analysis *a)
{
	struct graph *g = a->g;

	for (uint32_t p = 1; p < g->nval; p++) {
		struct val *x = &g->vals[p];

		if (x->kind != VAL_PARAM)
			continue;
		x->flags = (uint8_t)(trains(a, x) ? x->flags | VF_TRAINABLE : x->flags & ~VF_TRAINABLE);
		if (x->tied && !(g->vals[x->tied].flags & VF_TRAINABLE))
			x->flags &= (uint8_t)~VF_TRAINABLE;
	}
	warn_unmatched(a, RK_FREEZE);
	warn_unmatched(a, RK_TRAIN_ONLY);
	return true;
}
