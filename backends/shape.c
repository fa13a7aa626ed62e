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
