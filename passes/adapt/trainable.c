/* trainable: what the file says about requires_grad, narrowed by the recipe. LoRA freezes all that is there (adapt/lora.c adds what trains). */
#include "../passes.h"

static bool
matches_any(const struct analysis *a, struct str pattern)
{
	for (uint32_t p = 1; p < a->g->nval; p++)
		if (a->g->vals[p].kind == VAL_PARAM && name_matches(pattern, graph_str(a->g, a->g->vals[p].full)))
			return true;
	return false;
}

/* Patterns that all match nothing leave nothing to train: that is no job. */
static bool
check_patterns(struct analysis *a, unsigned key, bool must)
{
	const struct recipe_value *v = &a->r->v[key];
	bool any = !v->nlist;

	for (uint32_t i = 0; i < v->nlist; i++)
		any |= matches_any(a, v->list[i]);
	if (!any && must)
		return diag(a->c, DIAG_NO_TARGET, key_info(key)->name, SFMT(v->list[0]), "parameter");
	for (uint32_t i = 0; i < v->nlist; i++)
		if (!matches_any(a, v->list[i]))
			diag(a->c, DIAG_NO_MATCH, key_info(key)->name, SFMT(v->list[i]), "parameter");
	return true;
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
	return check_patterns(a, RK_FREEZE, false) && check_patterns(a, RK_TRAIN_ONLY, true);
}
