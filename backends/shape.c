/* Numbers as people read them. */
#include "backend.h"

#include <stdio.h>

void
print_dims(const struct geom *g, const char *between, struct buf *b)
{
	for (unsigned i = 0; i < g->rank; i++)
		buf_fmt(b, "%s%lld", i ? between : "", (long long)g->dim[i]);
}

const char *
human_bytes(uint64_t n, char out[32])
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double v = (double)n;
	unsigned u = 0;

	while (v >= 1024 && u < 5) {
		v /= 1024;
		u++;
	}
	snprintf(out, 32, u ? "%.2f %s" : "%.0f %s", v, unit[u]);
	return out;
}

const char *
exact_bytes(uint64_t n, char out[32])
{
	char *p = out + 31;

	*p = 0;
	for (unsigned digit = 0; n || digit == 0; digit++) {
		if (digit && digit % 3 == 0)
			*--p = ',';
		*--p = (char)('0' + n % 10);
		n /= 10;
	}
	return p;
}

/* The graph that says the value's shape: the file's, or where the file does not say it and all sizes are bound, the one that was inferred. */
const struct graph *
shape_source(const struct report *r, uint32_t v)
{
	bool inferred = r->loaded->vals[v].rank == RANK_UNKNOWN && !r->nunbound && v < r->g->nval && r->g->vals[v].rank != RANK_UNKNOWN;

	return inferred ? r->g : r->loaded;
}

/* A dim's number, if it has one or it was bound. */
bool
dim_number(const struct report *r, struct sint d, int64_t *n)
{
	if (d.expr)
		return !expr_is_open(r->g, d.expr) && expr_eval(r->g, d.expr, n);
	*n = d.n;
	return true;
}
