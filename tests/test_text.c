/* Text: cutting, numbers, patterns as the contract has them, interned names over a shared table. */
#include "test.h"

static void
patterns(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool hit;
	} cases[] = {
		{"model.vision_tower", "model.vision_tower.embeddings.weight", true},
		{"model.vision_tower", "model.vision_tower", true},
		{"model.vision_tower", "model.vision_tower2.weight", false},
		{"model.vision", "model.vision_tower.weight", false},
		{"*", "anything.at.all", true},
		{"*.bias", "a.b.bias", true},
		{"*.bias", "a.b.bias2", false},
		{"layers.[0-1].*", "layers.1.weight", true},
		{"layers.[0-1].*", "layers.2.weight", false},
		{"layers.?.w", "layers.3.w", true},
		{"", "x", false},
		{"a", "", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		if (name_matches(str_of(cases[i].pattern), str_of(cases[i].name)) != cases[i].hit)
			fail_msg("%s against %s", cases[i].pattern, cases[i].name);
}

static void
numbers(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		int64_t n;
	} cases[] = {
		{"0", true, 0}, {"42", true, 42}, {"-7", true, -7}, {"9223372036854775807", true, INT64_MAX}, {"9223372036854775808", false, 0},
		{"-9223372036854775808", true, INT64_MIN}, {"-9223372036854775809", false, 0},
		{"", false, 0}, {"-", false, 0}, {"1x", false, 0}, {" 1", false, 0},
	};
	static const struct {
		const char *text;
		bool ok;
		int64_t n;
	} sizes[] = {
		{"80GiB", true, 80ll << 30}, {"512MiB", true, 512 << 20}, {"1.5GiB", true, 3ll << 29}, {"1000", true, 1000}, {"2GB", true, 2000000000},
		{"GiB", false, 0}, {"-1MiB", false, 0}, {"1e3", false, 0}, {"99999999999GiB", false, 0},
	};
	int64_t n;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(str_int(str_of(cases[i].text), &n), cases[i].ok);
		if (cases[i].ok)
			assert_int_equal(n, cases[i].n);
	}
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		assert_int_equal(parse_bytes(str_of(sizes[i].text), &n), sizes[i].ok);
		if (sizes[i].ok)
			assert_int_equal(n, sizes[i].n);
	}
}

static void
cutting(void **state)
{
	struct str rest = S("a,,b"), head;

	(void)state;
	assert_true(str_cut(&rest, ',', &head) && str_eq(head, S("a")));
	assert_true(str_cut(&rest, ',', &head) && head.n == 0);
	assert_true(str_cut(&rest, ',', &head) && str_eq(head, S("b")));
	assert_false(str_cut(&rest, ',', &head));
	assert_true(str_eq(str_trim(S("  x\n")), S("x")));
	assert_int_equal(str_sub(S("abc"), 2, 99).n, 1);
	assert_int_equal(str_sub(S("abc"), 5, 9).n, 0);
}

static void
names_continue_a_shared_table(void **state)
{
	struct ctx *c = test_ctx();
	struct strtab *base = strtab_new(c->a), *over;
	uint32_t ids[2000];

	(void)state;
	for (uint32_t i = 0; i < 2000; i++)
		ids[i] = strtab_id(base, str_fmt(c->a, "name %u", (unsigned)i));
	over = strtab_over(c->a, base);
	for (uint32_t i = 0; i < 2000; i++)
		assert_int_equal(strtab_id(over, str_fmt(c->a, "name %u", (unsigned)i)), ids[i]);
	ids[0] = strtab_id(over, S("new"));
	assert_int_equal(ids[0], 2001);
	assert_true(str_eq(strtab_str(over, ids[0]), S("new")));
	assert_true(str_eq(strtab_str(over, 2000), S("name 1999")));
	assert_int_equal(strtab_find(base, S("new")), 0);
	assert_int_equal(strtab_count(base), 2001);
	assert_int_equal(strtab_id(over, S("")), 0);
	test_ctx_free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns), cmocka_unit_test(numbers), cmocka_unit_test(cutting), cmocka_unit_test(names_continue_a_shared_table),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
