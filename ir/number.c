/* Arithmetic of programs on the numbers that sizes are computed with, as Python does it: whole numbers stay whole, division is real, // and % floor. */
#include "ir.h"

#include <math.h>

enum math_kind {
	M_ADD, M_SUB, M_RSUB, M_MUL, M_DIV, M_FLOORDIV, M_MOD, M_FMOD, M_POW, M_MIN, M_MAX,
	M_EQ, M_NE, M_LT, M_LE, M_GT, M_GE, M_AND, M_OR, M_XOR,
	M_NEG, M_NOT, M_ABS, M_INT, M_FLOAT, M_BOOL, M_CEIL, M_FLOOR, M_ROUND, M_TRUNC, M_SQRT, M_RSQRT, M_LOG, M_LOG2, M_EXP, M_SIN, M_COS, M_TANH, M_SAME
};

static const struct {
	const char *name;
	uint8_t math;
} table[] = {
	{"add", M_ADD}, {"sub", M_SUB}, {"rsub", M_RSUB}, {"mul", M_MUL}, {"div", M_DIV}, {"true_divide", M_DIV}, {"floordiv", M_FLOORDIV}, {"floor_divide", M_FLOORDIV},
	{"remainder", M_MOD}, {"fmod", M_FMOD}, {"pow", M_POW}, {"min", M_MIN}, {"max", M_MAX}, {"minimum", M_MIN}, {"maximum", M_MAX}, {"eq", M_EQ}, {"ne", M_NE},
	{"lt", M_LT}, {"le", M_LE}, {"gt", M_GT}, {"ge", M_GE}, {"__is__", M_EQ}, {"__isnot__", M_NE}, {"__and__", M_AND}, {"logical_and", M_AND}, {"bitwise_and", M_AND},
	{"__or__", M_OR}, {"logical_or", M_OR}, {"bitwise_or", M_OR}, {"__xor__", M_XOR}, {"bitwise_xor", M_XOR}, {"neg", M_NEG}, {"negative", M_NEG}, {"__not__", M_NOT},
	{"logical_not", M_NOT}, {"bitwise_not", M_NOT}, {"abs", M_ABS}, {"int", M_INT}, {"Int", M_INT}, {"float", M_FLOAT}, {"Float", M_FLOAT}, {"bool", M_BOOL}, {"Bool", M_BOOL},
	{"ceil", M_CEIL}, {"floor", M_FLOOR}, {"round", M_ROUND}, {"trunc", M_TRUNC}, {"sqrt", M_SQRT}, {"rsqrt", M_RSQRT}, {"log", M_LOG}, {"log2", M_LOG2}, {"exp", M_EXP},
	{"sin", M_SIN}, {"cos", M_COS}, {"tanh", M_TANH}, {"number", M_SAME}, {"clone", M_SAME}, {"detach", M_SAME}, {"squeeze", M_SAME},
};

static int
find(struct str what)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (str_eq(what, str_of(table[i].name)))
			return table[i].math;
	return -1;
}

bool
number_has(struct str what)
{
	return find(what) >= 0;
}

unsigned
number_operands(struct str what)
{
	return find(what) >= M_NEG ? 1 : 2;
}

struct number
number_int(int64_t i)
{
	return (struct number){.kind = ARG_INT, .u.i = i};
}

struct number
number_float(double f)
{
	return (struct number){.kind = ARG_FLOAT, .u.f = f};
}

struct number
number_bool(bool b)
{
	return (struct number){.kind = ARG_BOOL, .u.b = b};
}

double
number_real(struct number n)
{
	return n.kind == ARG_FLOAT ? n.u.f : n.kind == ARG_INT ? (double)n.u.i : n.u.b;
}

static bool
to_whole(double f, struct number *out)
{
	if (!(f > -9.2e18 && f < 9.2e18))
		return false;
	*out = number_int((int64_t)f);
	return true;
}

/* Toward zero; unknown if there is no such whole number. */
struct sint
number_size(struct number n)
{
	struct number whole = n;

	if (n.kind == ARG_FLOAT && !to_whole(n.u.f, &whole))
		return (struct sint){0, EXPR_UNKNOWN};
	return SINT(n.kind == ARG_BOOL ? n.u.b : whole.u.i);
}

static int64_t
whole(struct number n)
{
	return n.kind == ARG_INT ? n.u.i : n.u.b;
}

static bool
whole_power(int64_t a, int64_t b, struct number *out)
{
	int64_t r = 1;

	if (b < 0) {
		*out = number_float(pow((double)a, (double)b));
		return true;
	}
	for (; b > 0; b--)
		if (b > 64 || !mul_i64(r, a, &r))
			return false;
	*out = number_int(r);
	return true;
}

static bool
whole_math(unsigned math, int64_t a, int64_t b, struct number *out)
{
	int64_t r = 0, q;

	if (math == M_DIV && b) {
		*out = number_float((double)a / (double)b);
		return true;
	}
	if (math == M_POW)
		return whole_power(a, b, out);
	if (math == M_ADD ? !add_i64(a, b, &r) : math == M_MUL && !mul_i64(a, b, &r))
		return false;
	if (math == M_SUB || math == M_RSUB) {
		if (!mul_i64(math == M_SUB ? b : a, -1, &q) || !add_i64(math == M_SUB ? a : b, q, &r))
			return false;
	} else if (math == M_MIN || math == M_MAX) {
		r = (math == M_MIN) == (a < b) ? a : b;
	} else if (math == M_FLOORDIV || math == M_MOD || math == M_FMOD) {
		if (b == 0 || b == -1) {
			if (b == 0 || !mul_i64(a, -1, &q))
				return false;
			r = math == M_FLOORDIV ? q : 0;
		} else {
			q = a / b - (math != M_FMOD && a % b != 0 && (a < 0) != (b < 0));
			r = math == M_FLOORDIV ? q : a - q * b;
		}
	} else if (math != M_ADD && math != M_MUL) {
		return false;
	}
	*out = number_int(r);
	return true;
}

static bool
real_math(unsigned math, double a, double b, struct number *out)
{
	switch (math) {
	case M_ADD:
		*out = number_float(a + b);
		return true;
	case M_SUB:
		*out = number_float(a - b);
		return true;
	case M_RSUB:
		*out = number_float(b - a);
		return true;
	case M_MUL:
		*out = number_float(a * b);
		return true;
	case M_DIV:
		*out = number_float(a / b);
		return b != 0;
	case M_FLOORDIV:
		*out = number_float(floor(a / b));
		return b != 0;
	case M_MOD:
		*out = number_float(a - b * floor(a / b));
		return b != 0;
	case M_FMOD:
		*out = number_float(fmod(a, b));
		return b != 0;
	case M_POW:
		*out = number_float(pow(a, b));
		return true;
	case M_MIN:
		*out = number_float(a < b ? a : b);
		return true;
	case M_MAX:
		*out = number_float(a > b ? a : b);
		return true;
	default:
		return false;
	}
}

static bool
compare(unsigned math, double a, double b, struct number *out)
{
	*out = number_bool(math == M_EQ ? a == b : math == M_NE ? a != b : math == M_LT ? a < b : math == M_LE ? a <= b : math == M_GT ? a > b : a >= b);
	return true;
}

static bool
logic(unsigned math, struct number a, struct number b, struct number *out)
{
	bool both = a.kind == ARG_BOOL && b.kind == ARG_BOOL;
	int64_t x = whole(a), y = whole(b), r = math == M_AND ? x & y : math == M_OR ? x | y : x ^ y;

	if (a.kind == ARG_FLOAT || b.kind == ARG_FLOAT)
		return false;
	*out = both ? number_bool(r != 0) : number_int(r);
	return true;
}

/* ---- one operand ----------------------------------------------------------------------------------------------- */

static bool
rounded(unsigned math, struct number a, struct number *out)
{
	double f = number_real(a);

	if (a.kind != ARG_FLOAT) {
		*out = number_int(whole(a));
		return true;
	}
	return to_whole(math == M_CEIL ? ceil(f) : math == M_FLOOR ? floor(f) : math == M_ROUND ? nearbyint(f) : trunc(f), out);
}

static bool
function(unsigned math, double f, struct number *out)
{
	bool positive = f > 0;

	*out = number_float(math == M_SQRT ? sqrt(f) : math == M_RSQRT ? 1 / sqrt(f) : math == M_LOG ? log(f) : math == M_LOG2 ? log2(f) : math == M_EXP ? exp(f) :
	    math == M_SIN ? sin(f) : math == M_COS ? cos(f) : tanh(f));
	return (math != M_RSQRT && math != M_LOG && math != M_LOG2) || positive;
}

static bool
unary(unsigned math, struct number a, struct number *out)
{
	switch (math) {
	case M_SAME:
		*out = a;
		return true;
	case M_NOT:
		*out = number_bool(number_real(a) == 0);
		return true;
	case M_BOOL:
		*out = number_bool(number_real(a) != 0);
		return true;
	case M_FLOAT:
		*out = number_float(number_real(a));
		return true;
	case M_NEG:
		return a.kind == ARG_FLOAT ? real_math(M_SUB, 0, a.u.f, out) : whole_math(M_SUB, 0, whole(a), out);
	case M_ABS:
		return a.kind == ARG_FLOAT ? (*out = number_float(fabs(a.u.f)), true) : whole(a) < 0 ? whole_math(M_SUB, 0, whole(a), out) : (*out = number_int(whole(a)), true);
	case M_INT:
		return rounded(M_TRUNC, a, out);
	case M_CEIL:
	case M_FLOOR:
	case M_ROUND:
	case M_TRUNC:
		return rounded(math, a, out);
	default:
		return function(math, number_real(a), out);
	}
}

bool
number_math(struct str what, struct number a, struct number b, struct number *out)
{
	int math = find(what);

	if (math < 0 || a.kind == ARG_NONE || (math < M_NEG && b.kind == ARG_NONE))
		return false;
	if (math >= M_NEG)
		return unary((unsigned)math, a, out);
	if (math >= M_EQ && math <= M_GE)
		return compare((unsigned)math, number_real(a), number_real(b), out);
	if (math >= M_AND)
		return logic((unsigned)math, a, b, out);
	if (a.kind != ARG_FLOAT && b.kind != ARG_FLOAT)
		return whole_math((unsigned)math, whole(a), whole(b), out);
	return real_math((unsigned)math, number_real(a), number_real(b), out);
}
