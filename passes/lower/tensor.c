/*
 * Tensors and their storages, and the stack of temporaries.
 *
 * A new tensor starts as a temporary: sim.temps holds it. An operator or formula marks the stack when
 * it begins and releases down to the mark when it ends, in reverse order, as C++ destroys locals.
 */
#include "lower.h"

struct tensor *
tensor_at(const struct sim *s, uint32_t t)
{
	return &s->tensors[t];
}

/* What could not be made (a call that failed) has the shape of a number, so that a composition can go on. */
const struct geom *
geom_at(const struct sim *s, uint32_t t)
{
	static const struct geom nothing = {.numel = 1, .dtype = DT_FP32, .dense = true, .contiguous = true};

	return t ? s->tensors[t].geom : &nothing;
}

static uint32_t
take_slot(struct sim *s)
{
	uint32_t t = s->free_tensor;

	if (t) {
		s->free_tensor = s->tensors[t].fn;
		return t;
	}
	ROOM(s->own, s->tensors, s->ntensor, s->tensor_cap, 1);
	return s->ntensor++;
}

void
temps_take(struct sim *s, uint32_t t)
{
	ROOM(s->own, s->temps, s->ntemp, s->temp_cap, 1);
	s->temps[s->ntemp++] = t;
}

static uint32_t
make(struct sim *s, const struct geom *g, uint32_t storage, unsigned flags)
{
	uint32_t t = take_slot(s);

	s->tensors[t] = (struct tensor){.geom = g, .storage = storage, .holders = 1, .flags = (uint8_t)flags};
	s->sched->storages[storage].tensors++;
	temps_take(s, t);
	return t;
}

uint32_t
tensor_new(struct sim *s, const struct geom *g, const char *op)
{
	uint32_t st = schedule_alloc(s->sched, s->host || s->offload ? 0 : geom_nbytes(g));
	struct storage *x = &s->sched->storages[st];

	x->op = op;
	x->geom = g;
	x->node = s->node;
	x->host = s->offload && !s->host ? geom_nbytes(g) : 0;
	s->live += x->nbytes;
	if (s->live > s->peak)
		s->peak = s->live;
	return make(s, g, st, 0);
}

bool
tensor_on_host(const struct sim *s, uint32_t t)
{
	const struct storage *x = &s->sched->storages[s->tensors[t].storage];

	return x->nbytes == 0 && !x->elsewhere && s->tensors[t].geom->numel > 0;
}

uint32_t
tensor_alias(struct sim *s, uint32_t t, const struct geom *g, unsigned flags)
{
	return make(s, g, s->tensors[t].storage, flags);
}

uint32_t
tensor_storage_tensors(const struct sim *s, uint32_t t)
{
	return s->sched->storages[s->tensors[t].storage].tensors;
}

uint32_t
tensor_hold(struct sim *s, uint32_t t)
{
	if (t)
		s->tensors[t].holders++;
	return t;
}

static void
storage_leave(struct sim *s, uint32_t storage)
{
	struct storage *x = &s->sched->storages[storage];

	if (--x->tensors)
		return;
	s->live -= x->nbytes;
	schedule_free(s->sched, storage);
}

void
tensor_move(struct sim *s, uint32_t t, uint32_t onto)
{
	uint32_t old = s->tensors[t].storage;

	s->tensors[t].storage = s->tensors[onto].storage;
	s->sched->storages[s->tensors[t].storage].tensors++;
	storage_leave(s, old);
}

/* The tensor goes first, then what only it held: its grad_fn and its .grad. */
void
tensor_drop(struct sim *s, uint32_t t)
{
	struct tensor *x = &s->tensors[t];
	uint32_t fn, grad, base, view;

	if (!t || --x->holders)
		return;
	fn = x->fn;
	grad = x->grad;
	base = x->base;
	view = x->view;
	storage_leave(s, x->storage);
	*x = (struct tensor){.fn = s->free_tensor};
	s->free_tensor = t;
	tensor_drop(s, base);
	tensor_drop(s, grad);
	fn_drop(s, view);
	fn_drop(s, fn);
}

/* ---- temporaries ------------------------------------------------------------------------------------ */

uint32_t
temps_mark(const struct sim *s)
{
	return s->ntemp;
}

void
temps_release(struct sim *s, uint32_t mark)
{
	while (s->ntemp > mark)
		tensor_drop(s, s->temps[--s->ntemp]);
}

uint32_t
temps_keep(struct sim *s, uint32_t mark, uint32_t t)
{
	tensor_hold(s, t);
	temps_release(s, mark);
	if (t)
		temps_take(s, t);
	return t;
}

void
temps_drop(struct sim *s, uint32_t t)
{
	for (uint32_t i = s->ntemp; t && i-- > 0;)
		if (s->temps[i] == t) {
			s->temps[i] = 0;
			tensor_drop(s, t);
			return;
		}
}
