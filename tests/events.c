#include "events.h"

#include "test.h"

#include <stdlib.h>

void
events_push(struct events *l, struct event e)
{
	if (e.step == 0 || e.bytes == 0)
		return;
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 1024;
		l->e = realloc(l->e, l->cap * sizeof *l->e);
		assert_non_null(l->e);
	}
	l->e[l->n++] = e;
}

static int
by_bytes(const void *a, const void *b)
{
	uint64_t x = ((const struct event *)a)->bytes, y = ((const struct event *)b)->bytes;

	return x < y ? -1 : x > y;
}

void
events_sort(struct events *l)
{
	for (size_t i = 0, k; i < l->n; i = k + 1) {
		for (k = i; k < l->n && l->e[k].is_free && l->e[k].step == l->e[i].step && l->e[k].phase == l->e[i].phase; k++)
			;
		if (k > i) {
			qsort(l->e + i, k - i, sizeof *l->e, by_bytes);
			k--;
		}
	}
}

struct events
events_of(const struct schedule *s)
{
	struct events l = {0};

	for (uint32_t i = 0; i < s->nspan; i++)
		for (uint32_t e = s->spans[i].first; e < (i + 1 < s->nspan ? s->spans[i + 1].first : s->nevent); e++) {
			const struct storage *x = &s->storages[EVENT_STORAGE(s->events[e])];

			events_push(&l, (struct event){s->spans[i].step, s->spans[i].phase, EVENT_IS_FREE(s->events[e]), x->nbytes, x->op});
		}
	events_sort(&l);
	return l;
}

bool
events_same(const struct event *a, const struct event *b)
{
	return a->step == b->step && a->phase == b->phase && a->is_free == b->is_free && a->bytes == b->bytes;
}

/* Myers 1986, O(ND). */
unsigned
events_differ(const struct events *a, const struct events *b)
{
	size_t reach[2 * EVENTS_MOST + 3] = {0};        /* farthest index in a on diagonal k, at reach[EVENTS_MOST + 1 + k] */

	for (int d = 0; d < EVENTS_MOST; d++)
		for (int k = -d; k <= d; k += 2) {
			size_t *r = reach + EVENTS_MOST + 1 + k, i, j;

			i = k == -d || (k != d && r[-1] < r[1]) ? r[1] : r[-1] + 1;
			j = (size_t)((ptrdiff_t)i - k);
			while (i < a->n && j < b->n && events_same(&a->e[i], &b->e[j])) {
				i++;
				j++;
			}
			*r = i;
			if (i >= a->n && j >= b->n)
				return (unsigned)d;
		}
	return EVENTS_MOST;
}
