/* The schedule: every allocation and release in order, and the names of its phases, factors and modalities. */
#include "ir.h"

struct schedule *
schedule_new(struct ctx *c)
{
	struct schedule *s = NEW(c->a, struct schedule, 1);

	s->c = c;
	ROOM(c->a, s->storages, 0, s->storage_cap, 1024);
	s->nstorage = 1;
	ROOM(c->a, s->events, 0, s->event_cap, 4096);
	return s;
}

static void
event(struct schedule *s, uint32_t e)
{
	ROOM(s->c->a, s->events, s->nevent, s->event_cap, 1);
	s->events[s->nevent++] = e;
}

uint32_t
schedule_alloc(struct schedule *s, uint64_t nbytes)
{
	ROOM(s->c->a, s->storages, s->nstorage, s->storage_cap, 1);
	s->storages[s->nstorage] = (struct storage){.nbytes = round512(nbytes), .requested = nbytes, .phase = s->nspan - 1, .factor = FAC_TRANSIENT};
	event(s, s->nstorage * 2);
	return s->nstorage++;
}

void
schedule_free(struct schedule *s, uint32_t storage)
{
	event(s, storage * 2 + 1);
}

void
schedule_span(struct schedule *s, unsigned step, unsigned phase, uint32_t micro)
{
	ROOM(s->c->a, s->spans, s->nspan, s->span_cap, 1);
	s->spans[s->nspan++] = (struct span){(uint8_t)step, (uint8_t)phase, micro, s->nevent};
}

const char *
phase_name(unsigned p)
{
	static const char *const name[PH_COUNT] = {"start", "forward", "backward", "optimizer"};

	return p < PH_COUNT ? name[p] : "";
}

const char *
factor_name(unsigned f)
{
	static const char *const name[FAC_COUNT] = {"param", "grad", "opt", "saved", "transient", "input"};

	return f < FAC_COUNT ? name[f] : "";
}

const char *
modality_name(unsigned m)
{
	static const char *const name[MOD_COUNT] = {"", "vision", "audio", "language", "projector", "other"};

	return m < MOD_COUNT ? name[m] : "";
}
