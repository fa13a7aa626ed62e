/* Look-ups in device.def: cards by the recipe's choice, and the workspaces of a PyTorch version on a card. */
#include "ir.h"

static const struct device table[] = {
#define DEVICE(name, sm, total, low, high, source) {name, source, (uint64_t)(total) << 20, (uint64_t)(low) << 20, (uint64_t)(high) << 20, sm},
#define WORKSPACE(first, last, sm_first, sm_last, cublas, lt, source)
#include "device.def"
#undef DEVICE
#undef WORKSPACE
};

static const struct {
	uint8_t first, last, sm_first, sm_last;
	uint64_t cublas, lt;
} workspace[] = {
#define DEVICE(name, sm, total, low, high, source)
#define WORKSPACE(first, last, sm_first, sm_last, cublas, lt, source) {first, last, sm_first, sm_last, cublas, lt},
#include "device.def"
#undef DEVICE
#undef WORKSPACE
};

/* i counts from 1, as the recipe's choice does: 0 is "none". */
const struct device *
device_at(int64_t i)
{
	return i >= 1 && (uint64_t)i <= sizeof table / sizeof table[0] ? &table[i - 1] : NULL;
}

bool
device_workspace(unsigned sm, unsigned minor, uint64_t *cublas, uint64_t *lt)
{
	for (size_t i = 0; i < sizeof workspace / sizeof workspace[0]; i++)
		if (minor >= workspace[i].first && minor <= workspace[i].last && sm >= workspace[i].sm_first && sm <= workspace[i].sm_last) {
			*cublas = workspace[i].cublas;
			*lt = workspace[i].lt;
			return true;
		}
	return false;
}
