/*
 * The search for the largest number that fits: doubling until it does not, then halving the gap. Memory does not shrink when a batch or a
 * sequence grows, but for the allocator's cuttings; what is reported has been analysed, and so has something larger that does not fit.
 */
#include "sweep.h"

#define HIGHEST ((int64_t)1 << 30)

struct search {
	struct configuration *conf;
	struct sweep_row row;      /* of the last analysis */
	struct sweep_row *best, first;
	int64_t low, high;         /* low fits, or 0; high does not */
};

/* A value that the file does not allow cannot fit either. */
static bool
fits(struct search *x, int64_t n)
{
	x->conf->fitted = n;
	sweep_analyse(x->conf, &x->row);
	if (!x->first.ok && x->row.ok)
		x->first = x->row;
	if (!x->row.ok || verdict_fit(&x->row.verdict) != MC_FITS)
		return false;
	*x->best = x->row;
	x->best->found = n;
	return true;
}

/* The range of the axis' own values, or all there is. */
static void
range(const struct sweep_axis *a, int64_t *from, int64_t *to)
{
	*from = a->n ? a->number[0] : 1;
	*to = a->n ? a->number[0] : HIGHEST;
	for (uint32_t i = 1; i < a->n; i++) {
		if (a->number[i] < *from)
			*from = a->number[i];
		if (a->number[i] > *to)
			*to = a->number[i];
	}
}

/* Exporters write dims that start at 2: the first value that the file allows. */
static bool
begin(struct search *x, int64_t from, int64_t to)
{
	int64_t n = from;

	while (!fits(x, n)) {
		if (x->row.ok || n > to / 2)
			return false;
		n *= 2;
	}
	x->low = n;
	return true;
}

void
sweep_search(struct configuration *conf, uint32_t axis, struct sweep_row *row)
{
	struct search x = {.conf = conf, .best = row};
	int64_t from, to;

	*row = (struct sweep_row){0};
	range(&conf->s->s.axes[axis], &from, &to);
	if (!begin(&x, from, to)) {
		*row = x.first.ok ? x.first : x.row;           /* why not: the numbers of the smallest, or what is wrong with all */
		row->found = 0;
		return;
	}
	for (x.high = x.low; x.high < to && x.high == x.low;) {
		x.high = x.low <= to / 2 ? x.low * 2 : to;
		if (fits(&x, x.high))
			x.low = x.high;
	}
	while (x.high - x.low > 1) {
		int64_t middle = x.low + (x.high - x.low) / 2;

		if (fits(&x, middle))
			x.low = middle;
		else
			x.high = middle;
	}
}
