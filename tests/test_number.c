/* Numbers of programs: Python's rules for whole numbers and reals, and what has no result. */
#include "test.h"

#include <math.h>

#define I(n) {.kind = ARG_INT, .u.i = (n)}
#define F(x) {.kind = ARG_FLOAT, .u.f = (x)}
#define B(x) {.kind = ARG_BOOL, .u.b = (x)}
#define NONE {.kind = ARG_NONE}

static void
results(void **state)
{
	static const struct {
		const char *what;
		struct number a, b, want;
	} table[] = {
		{"add", I(2), I(3), I(5)}, {"add", I(2), F(0.5), F(2.5)}, {"add", B(true), I(1), I(2)}, {"sub", I(2), I(3), I(-1)}, {"rsub", I(2), I(3), I(1)}, {"mul", I(-4), I(3), I(-12)},
		{"div", I(1), I(2), F(0.5)}, {"floordiv", I(-7), I(2), I(-4)}, {"floor_divide", I(7), I(2), I(3)}, {"floordiv", F(7), I(2), F(3)}, {"remainder", I(-7), I(3), I(2)},
		{"fmod", I(-7), I(3), I(-1)}, {"floordiv", I(5), I(-1), I(-5)}, {"pow", I(2), I(10), I(1024)}, {"pow", I(2), I(-1), F(0.5)}, {"pow", I(4), F(0.5), F(2)}, {"min", I(2), I(3), I(2)},
		{"max", I(2), F(3), F(3)}, {"eq", I(2), F(2), B(true)}, {"ne", I(2), I(2), B(false)}, {"lt", I(2), I(3), B(true)}, {"ge", I(2), I(3), B(false)}, {"__and__", B(true), B(false), B(false)},
		{"__or__", I(4), I(1), I(5)}, {"__not__", B(false), NONE, B(true)}, {"neg", I(3), NONE, I(-3)}, {"abs", F(-2), NONE, F(2)}, {"int", F(-2.7), NONE, I(-2)}, {"float", I(2), NONE, F(2)},
		{"bool", I(2), NONE, B(true)}, {"ceil", F(2.1), NONE, I(3)}, {"floor", F(-2.1), NONE, I(-3)}, {"round", F(2.5), NONE, I(2)}, {"sqrt", I(64), NONE, F(8)}, {"number", I(7), NONE, I(7)},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct number r;

		assert_true(number_math(str_of(table[i].what), table[i].a, table[i].b, &r));
		assert_int_equal(r.kind, table[i].want.kind);
		assert_true(number_real(r) == number_real(table[i].want));
	}
}

/* 2^63 and what is beyond it is no size; what is cast to one would be anything. */
static void
sizes_of_numbers(void **state)
{
	static const struct {
		struct number n;
		int64_t want;
		bool known;
	} table[] = {
		{I(7), 7, true}, {I(INT64_MIN), INT64_MIN, true}, {B(true), 1, true}, {F(2.9), 2, true}, {F(-2.9), -2, true}, {F(9223372036854775808.0), 0, false}, {F(1e300), 0, false}, {F(-1e300), 0, false},
		{F(NAN), 0, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct sint n = number_size(table[i].n);

		assert_int_equal(n.expr == 0, table[i].known);
		assert_true(n.n == table[i].want);
	}
}

static void
no_result(void **state)
{
	static const struct {
		const char *what;
		struct number a, b;
	} table[] = {
		{"add", I(INT64_MAX), I(1)}, {"mul", I(INT64_MAX), I(2)}, {"floordiv", I(1), I(0)}, {"remainder", I(1), I(0)}, {"floordiv", I(INT64_MIN), I(-1)}, {"div", F(1), F(0)}, {"pow", I(2), I(64)},
		{"int", F(1e30), NONE}, {"int", F(NAN), NONE}, {"neg", I(INT64_MIN), NONE}, {"log", I(0), NONE}, {"add", NONE, I(1)}, {"add", I(1), NONE}, {"nosuch", I(1), I(1)}, {"__and__", F(1), I(1)},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct number r;

		assert_false(number_math(str_of(table[i].what), table[i].a, table[i].b, &r));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(results), cmocka_unit_test(no_result), cmocka_unit_test(sizes_of_numbers)};

	return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
