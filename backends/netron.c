/* netron: an attachment for Netron, to be dropped on the open model: bytes of every node and of the model in its sidebar. Nodes are found by name. */
#include "json_part.h"
#include "notes.h"

#define EXACT (((uint64_t)1 << 53) - 1)    /* Netron takes numbers for doubles */

static void
item(json_t **list, const char *kind, struct str target, const char *name, json_t *value)
{
	json_t *o = json_object();

	json_put(&o, "kind", json_string(kind));
	json_put(&o, "target", json_text(target));
	json_put(&o, "name", json_string(name));
	json_put(&o, "value", value);
	json_add(list, o);
}

static void
bytes(json_t **list, const char *kind, struct str target, const char *name, uint64_t n)
{
	item(list, kind, target, name, json_bytes(n > EXACT ? EXACT : n));
}

static void
factors(json_t **list, const char *kind, struct str target, const struct factors *f)
{
	static const char *const name[FAC_COUNT] = {"memcrest.param_bytes", "memcrest.grad_bytes", "memcrest.opt_bytes", "memcrest.saved_activation_bytes",
	    "memcrest.transient_activation_bytes", "memcrest.input_bytes"};

	for (unsigned i = 0; i < FAC_COUNT; i++)
		if (f->of[i])
			bytes(list, kind, target, name[i], f->of[i]);
}

static void
node(json_t **metadata, json_t **metrics, const struct note *n)
{
	bytes(metrics, "node", n->name, "memcrest.bytes_at_peak", factors_total(&n->at));
	bytes(metrics, "node", n->name, "memcrest.bytes_saved_for_backward", n->saved);
	factors(metrics, "node", n->name, &n->at);
	if (n->modality)
		item(metadata, "node", n->name, "memcrest.modality", json_string(modality_name(n->modality)));
	item(metadata, "node", n->name, "memcrest.module", json_text(n->module));
	if (n->trainable)
		item(metadata, "node", n->name, "memcrest.trainable", json_string("true"));
	if (n->peak)
		item(metadata, "node", n->name, "memcrest.peak", json_string("the peak comes at this operator"));
}

static bool
write(const struct report *r, struct emit *e)
{
	const struct notes *all = notes_make(r, e->a);
	const struct step_row *st = &r->steps[r->peak_step];
	struct str place = peak_place(r, e->a);
	json_t *o = json_object(), *metadata = json_array(), *metrics = json_array();

	json_put(&o, "signature", json_string("netron:attachment"));
	bytes(&metrics, "model", S(""), "memcrest.peak_bytes", st->tensors);
	bytes(&metrics, "model", S(""), "memcrest.peak_reserved_bytes", r->memory.reserved);
	factors(&metrics, "model", S(""), peak_factors(r));
	bytes(&metrics, "model", S(""), "memcrest.bytes_elsewhere", factors_total(&all->elsewhere));
	item(&metadata, "model", S(""), "memcrest.peak_at", json_fmt("step %u, %s: %.*s", r->peak_step, phase_name(st->phase), SFMT(place)));
	for (uint32_t i = 0; i < all->n; i++)
		node(&metadata, &metrics, &all->list[i]);
	json_put(&o, "metadata", metadata);
	json_put(&o, "metrics", metrics);
	return json_print(o, e->b);
}

const struct backend backend_netron = {"netron", "an attachment for Netron: bytes in its sidebar", false, write};
