/*
 * host: what is moved between the device and the host's memory, when, and how much of it lies on the host where all of it takes the most. Managed
 * memory (bitsandbytes' paged states) counts there in whole: how much of it the driver leaves on the device nobody can say.
 */
#include "../passes.h"

enum { ZERO = 1 << ST_ZERO1 | 1 << ST_ZERO2 | 1 << ST_ZERO3, ZERO_3 = 1 << ST_ZERO3, FSDP = 1 << ST_FSDP1 | 1 << ST_FSDP2, ANY = -1 };

static const struct {
	unsigned key, other;       /* of which one is set, 0 = none */
	int strategies;
	unsigned factor;
	struct moved words;
} table[] = {
#define MOVED(key, other, strategies, factor, thing, way) {key, other, strategies, factor, {.what = thing, .when = way}},
#include "host.def"
#undef MOVED
};

static void
add(struct analysis *a, struct moved m, uint64_t bytes)
{
	struct report *r = a->report;

	if (!bytes)
		return;
	m.bytes = bytes;
	r->moved[r->nmoved++] = m;
}

bool
pass_host(struct analysis *a)
{
	static const struct moved pages = {.what = "paged optimizer states", .when = "to the device in the optimizer's step, and back when the device needs the room", .managed = true};
	const struct recipe_value *v = a->r->v;
	struct report *r = a->report;

	r->moved = NEW(a->c->a, struct moved, sizeof table / sizeof table[0] + 1);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		bool asked = v[table[i].key].i || (table[i].other && v[table[i].other].i);

		if (asked && table[i].strategies & 1 << v[RK_PARALLEL_STRATEGY].i)
			add(a, table[i].words, r->host.of[table[i].factor] - (table[i].factor == FAC_OPT ? r->host_managed : 0));
	}
	add(a, pages, r->host_managed);
	return true;
}
