/* Things by the node that a viewer shows them at. Notes and what is elsewhere add up to the peak. */
#include "notes.h"

static void
add(struct factors *to, const struct factors *f)
{
	for (unsigned i = 0; i < FAC_COUNT; i++)
		to->of[i] += f->of[i];
}

static struct note *
note_for(struct notes *all, const struct report *r, const struct thing *t)
{
	struct str name = graph_str(r->g, r->g->nodes[t->node].name);
	uint32_t id = name.n ? strtab_id(all->names, name) : 0;

	if (!id)
		return NULL;
	if (id > all->n) {
		all->n = id;
		all->list[id - 1] = (struct note){.name = name, .module = r->modules[t->module].path, .modality = t->modality};
	}
	return &all->list[id - 1];
}

struct notes *
notes_make(const struct report *r, struct arena *a)
{
	struct things *things = things_make(r, a);
	struct notes *all = NEW(a, struct notes, 1);
	struct note waiting = {.saved = 0};         /* parameters, before the operator that reads them */

	all->names = strtab_new(a);
	all->list = NEW(a, struct note, things->n + 1u);
	for (uint32_t i = 0; i < things->n; i++) {
		const struct thing *t = &things->list[i];
		struct note *n = t->kind == THING_OPERATOR ? note_for(all, r, t) : NULL;

		if (t->kind == THING_PARAMETER || t->kind == THING_BUFFER) {
			add(&waiting.at, &t->at);
			waiting.trainable |= t->trainable;
			continue;
		}
		if (!n) {
			add(&all->elsewhere, &t->at);
			continue;
		}
		add(&n->at, &t->at);
		add(&n->at, &waiting.at);
		n->saved += t->saved;
		n->peak |= t->peak;
		n->trainable |= waiting.trainable;
		waiting = (struct note){.saved = 0};
	}
	add(&all->elsewhere, &waiting.at);
	return all;
}

const struct note *
note_of(const struct notes *all, struct str node)
{
	uint32_t id = node.n ? strtab_find(all->names, node) : 0;

	return id ? &all->list[id - 1] : NULL;
}
