/* Look-ups in dtype.def. */
#include "ir.h"

static const struct dtype_info table[DT_COUNT] = {
	[DT_NONE] = {"?", "?", "?", 0, CAT_NONE, 0xff, 0xff, 0xff},
#define DTYPE(id, name, bits, cat, onnx, serde, c10, torch, storage) [DT_##id] = {name, torch, storage, bits, cat, onnx, serde, c10},
#include "dtype.def"
#undef DTYPE
};

const struct dtype_info *
dtype_info(unsigned dt)
{
	return &table[dt < DT_COUNT ? dt : DT_NONE];
}

unsigned
dtype_by_name(struct str s)
{
	if (str_starts(s, S("torch.")))
		s = str_sub(s, 6, s.n);
	for (unsigned i = 1; i < DT_COUNT; i++)
		if (str_eq(s, str_of(table[i].name)) || str_eq(s, str_of(table[i].torch)))
			return i;
	return DT_NONE;
}

unsigned
dtype_by_serde(int64_t n)
{
	for (unsigned i = 1; i < DT_COUNT; i++)
		if (table[i].serde == n && n != 0xff)
			return i;
	return DT_NONE;
}

unsigned
dtype_by_c10(int64_t n)
{
	for (unsigned i = 1; i < DT_COUNT; i++)
		if (table[i].c10 == n && n != 0xff)
			return i;
	return DT_NONE;
}

unsigned
dtype_by_onnx(int64_t n)
{
	for (unsigned i = 1; i < DT_COUNT; i++)
		if (table[i].onnx == n && n != 0xff)
			return i;
	return DT_NONE;
}

unsigned
dtype_by_storage(struct str prefix)
{
	for (unsigned i = 1; i < DT_COUNT; i++)
		if (str_eq(prefix, str_of(table[i].storage)))
			return i;
	return DT_NONE;
}

bool
dtype_is_float(unsigned dt)
{
	return dtype_info(dt)->cat == CAT_FLOAT;
}

/* Sub-byte types are packed, the last byte rounded up. */
uint64_t
dtype_bytes(unsigned dt, uint64_t n)
{
	unsigned bits = dtype_info(dt)->bits;
	uint64_t total;

	if (bits >= 8)
		return mul_u64(n, bits / 8, &total) ? total : UINT64_MAX / 2;
	return n / 8 * bits + (n % 8 * bits + 7) / 8;
}
