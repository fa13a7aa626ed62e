/* model-explorer: node data for Google's Model Explorer, which colours nodes by bytes at the peak and adds them up over layers. Keys are nodes' names. */
#include "json_part.h"
#include "notes.h"

#define EXACT (((uint64_t)1 << 53) - 1)    /* the viewer takes numbers for doubles */

static void
stop(json_t **list, double at, const char *colour)
{
	json_t *o = json_object();

	json_put(&o, "stop", json_real(at));
	json_put(&o, "bgColor", json_string(colour));
	json_add(list, o);
}

static bool
write(const struct report *r, struct emit *e)
{
	const struct notes *all = notes_make(r, e->a);
	json_t *o = json_object(), *results = json_object(), *gradient = json_array();

	for (uint32_t i = 0; i < all->n; i++) {
		uint64_t n = factors_total(&all->list[i].at);
		json_t *x = json_object();

		json_put(&x, "value", json_bytes(n > EXACT ? EXACT : n));
		json_put_named(&results, all->list[i].name, x);
	}
	stop(&gradient, 0, "#f4f4f1");
	stop(&gradient, 0.25, "#9ec5f4");
	stop(&gradient, 1, "#e34948");
	json_put(&o, "name", json_string("memcrest: bytes at the peak"));
	json_put(&o, "results", results);
	json_put(&o, "gradient", gradient);
	return json_print(o, e->b);
}

const struct backend backend_model_explorer = {"model-explorer", "node data for Google's Model Explorer: colours by bytes", false, write};
