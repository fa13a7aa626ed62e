/* Sizes come from files: every product and sum of them is checked here. */
#include "ir.h"

bool
mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

bool
mul_i64(int64_t a, int64_t b, int64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

bool
add_i64(int64_t a, int64_t b, int64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

/* The allocator's smallest block is 512 bytes (memory-model.md 5.1); every storage is counted in whole ones. */
uint64_t
round512(uint64_t n)
{
	return n > UINT64_MAX - 511 ? UINT64_MAX / 512 * 512 : (n + 511) / 512 * 512;
}
