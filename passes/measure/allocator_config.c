/* PYTORCH_ALLOC_CONF as the recipe has it, checked as PyTorch checks it (c10/core/AllocatorConfig.cpp). */
#include "replay.h"

#include "../passes.h"

#include <string.h>

static bool
refuse(struct analysis *a, unsigned key, const char *allowed)
{
	return diag(a->c, DIAG_BAD_VALUE, key_info(key)->name, SFMT(a->r->v[key].text), allowed);
}

/* ---- roundup_power2_divisions ---------------------------------------------------------------------------------- */

static bool
is_power2(int64_t n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

static bool
divisor(struct str s, uint32_t *out)
{
	int64_t n;

	if (!str_int(str_trim(s), &n) || (n && !is_power2(n)) || n > 1 << 20)
		return false;
	*out = (uint32_t)n;
	return true;
}

/* "256" = the interval from 256 MiB to 512 */
static bool
interval(struct str s, unsigned *out)
{
	int64_t n;

	if (!str_int(str_trim(s), &n) || !is_power2(n))
		return false;
	for (*out = 0; n > 1 && *out < ALLOC_INTERVALS - 1; n /= 2)
		++*out;
	return true;
}

static void
fill(uint32_t *d, unsigned from, unsigned to, uint32_t value)
{
	for (unsigned i = from; i < to; i++)
		d[i] = value;
}

/* [256:1,512:2,>:8]: the first size stands for all smaller ones too, ">" for all above the last; what is in between and not named is off. */
static bool
read_divisions(struct str list, uint32_t *d)
{
	struct str item, size;
	unsigned at = 0;
	bool first = true;

	while (list.n && str_cut(&list, ',', &item)) {
		uint32_t value;

		if (!str_cut(&item, ':', &size) || !divisor(item, &value))
			return false;
		if (str_eq(str_trim(size), S(">"))) {
			fill(d, first ? 0 : at + 1, ALLOC_INTERVALS, value);
			continue;
		}
		if (!interval(size, &at))
			return false;
		fill(d, first ? 0 : at, at + 1, value);
		first = false;
	}
	return true;
}

static bool
set_divisions(struct analysis *a, struct alloc_config *c)
{
	struct str s = str_trim(a->r->v[RK_ALLOC_DIVISIONS].text);
	uint32_t all;
	bool ok;

	if (s.n > 1 && s.p[0] == '[' && s.p[s.n - 1] == ']') {
		ok = read_divisions(str_sub(s, 1, s.n - 1), c->divisions);
	} else {
		ok = divisor(s, &all);
		if (ok)
			fill(c->divisions, 0, ALLOC_INTERVALS, all);
	}
	return ok || refuse(a, RK_ALLOC_DIVISIONS, "0 or a power of two, or a list by size in MiB such as [256:1,512:2,>:8]");
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Garbage is only collected, and more than a fraction only refused, where a fraction below 1 is set and the device's size is known. */
static bool
set_fraction(struct analysis *a, struct alloc_config *c)
{
	double fraction = a->r->v[RK_ALLOC_FRACTION].f, threshold = a->r->v[RK_ALLOC_GC].f;

	if (fraction <= 0 || fraction > 1)
		return refuse(a, RK_ALLOC_FRACTION, "more than 0, at most 1");
	if (threshold < 0 || threshold >= 1)
		return refuse(a, RK_ALLOC_GC, "0 to below 1");
	c->gc_threshold = threshold;
	if (fraction < 1 && a->machine.total)
		c->allowed = (uint64_t)(fraction * (double)a->machine.total);
	else if (fraction < 1 || threshold > 0)
		assume(a, "%s does nothing: PyTorch needs a memory fraction below 1 for it, and here the device or the capacity",
		    key_info(fraction < 1 ? RK_ALLOC_FRACTION : RK_ALLOC_GC)->name);
	return true;
}

bool
alloc_config_of(struct analysis *a, struct alloc_config *c)
{
	int64_t segment = a->r->v[RK_ALLOC_SEGMENT].i, split = a->r->v[RK_ALLOC_MAX_SPLIT].i, rounding = a->r->v[RK_ALLOC_MAX_ROUNDING].i;

	alloc_config_default(c);
	if (segment <= MIN_LARGE / (int64_t)MIB)
		return refuse(a, RK_ALLOC_SEGMENT, "from 11");
	if (split && split < segment)
		return refuse(a, RK_ALLOC_MAX_SPLIT, "0 = no limit, else from the large segment's size, 20");
	if (rounding < LARGE_BUFFER / (int64_t)MIB)
		return refuse(a, RK_ALLOC_MAX_ROUNDING, "from 20");
	c->large_segment = (uint64_t)segment * MIB;
	c->max_rounding = (uint64_t)rounding * MIB;
	if (split)
		c->max_split = (uint64_t)split * MIB;
	c->expandable = a->r->v[RK_ALLOC_EXPANDABLE].i != 0;
	return set_divisions(a, c) && set_fraction(a, c);
}
