/* The JSON reader: what RFC 8259 allows, what it forbids, and where a mistake is said to be. */
#include "test.h"
#include "../frontend/json.h"

#include <string.h>

static const json_t *
read(struct ctx *c, const char *text)
{
	return json_read(c, str_of(text));
}

static void
values(void **state)
{
	struct ctx *c = test_ctx();

	(void)state;
	assert_true(json_is_null(read(c, " null ")));
	assert_true(json_is_true(read(c, "true")));
	assert_true(json_is_false(read(c, "false\n")));
	assert_int_equal(json_integer_value(read(c, "-9223372036854775808")), INT64_MIN);
	assert_int_equal(json_integer_value(read(c, "0")), 0);
	assert_true(json_real_value(read(c, "-0.5e1")) == -5.0);
	assert_true(json_real_value(read(c, "1E2")) == 100.0);
	assert_string_equal(json_str(read(c, "\"a\\n\\u00e9\\ud83d\\ude00\\/\"")).p, "a\n\xc3\xa9\xf0\x9f\x98\x80/");
	assert_int_equal(json_array_size(read(c, "[]")), 0);
	assert_int_equal(json_integer_value(json_array_get(read(c, "[1, [2, 3], 4]"), 2)), 4);
	assert_null(json_array_get(read(c, "[1]"), 1));
	assert_null(json_object_get(read(c, "{}"), "a"));
	assert_int_equal(c->nerror, 0);
	test_ctx_free(c);
}

/* Few members are looked through, many are hashed; a name that comes again keeps its place and takes the later value. */
static void
members(void **state)
{
	struct ctx *c = test_ctx();
	const json_t *few = read(c, "{\"a\": 1, \"b\": {\"c\": 2}, \"a\": 3}"), *j;
	struct str text = S("{\"twice\": -1"), tag;
	const char *key, *keys[2] = {NULL};
	unsigned n = 0;
	json_t *value;

	(void)state;
	assert_int_equal(json_get_int(few, "a", 0), 3);
	assert_int_equal(json_get_int(json_object_get(few, "b"), "c", 0), 2);
	json_object_foreach(few, key, value)
		keys[n++ % 2] = key;
	assert_int_equal(n, 2);
	assert_string_equal(keys[0], "a");
	for (unsigned i = 0; i < 1000; i++)
		text = str_fmt(c->a, "%.*s, \"k%u\": %u", SFMT(text), i, i);
	j = json_read(c, str_fmt(c->a, "%.*s, \"twice\": 7}", SFMT(text)));
	assert_int_equal(j->n, 1001);
	assert_string_equal(j->u.member[0].key.p, "twice");
	assert_int_equal(json_get_int(j, "twice", 0), 7);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(json_get_int(j, str_fmt(c->a, "k%u", i).p, -1), i);
	assert_int_equal(json_get_int(j, "k1000", -1), -1);
	assert_int_equal(json_integer_value(json_only(read(c, "{\"x\": null, \"y\": 5}"), &tag)), 5);
	assert_string_equal(tag.p, "y");
	test_ctx_free(c);
}

/* torch.export until 2.7 writes a program with Python's json, which has names for what is no number. */
static void
python(void **state)
{
	struct ctx *c = test_ctx();
	const json_t *j = json_read_python(c, S("{\"a\": -Infinity, \"b\": [Infinity, NaN], \"c\": -1}"));

	(void)state;
	assert_non_null(j);
	assert_true(json_number_value(json_object_get(j, "a")) < -1e300);
	assert_true(json_number_value(json_array_get(json_object_get(j, "b"), 0)) > 1e300);
	assert_int_equal(json_array_size(json_object_get(j, "b")), 2);
	assert_int_equal(json_get_int(j, "c", 0), -1);
	assert_null(json_read_python(c, S("[-Infinit]")));
	assert_null(read(c, "[Infinity]"));
	test_ctx_free(c);
}

static void
mistakes(void **state)
{
	static const struct {
		const char *text, *where;
	} table[] = {
		{"", "line 1 column 1: the text ends where"}, {"[1,\n 2", "line 2 column 3: the text ends too early"}, {"[1 2]", "column 4: a comma or ]"}, {"{\"a\" 1}", "column 6: a colon"},
		{"{a: 1}", "the name of a member"}, {"{\"a\": 1,}", "the name of a member"}, {"[1,]", "a value is missing"}, {"01", "a value is missing"}, {"-", "a value is missing"}, {"1.", "something follows"},
		{"1e", "exponent"}, {"1e999", "too large"}, {"9223372036854775808", "beyond 64 bits"}, {"\"a", "ends within a string"}, {"\"\n\"", "control character"}, {"\"\\x\"", "no such escape"},
		{"\"\\u12g4\"", "four hexadecimal"}, {"\"\\u0000\"", "\\u0000"}, {"\"\\ud800\"", "surrogate"}, {"\"\\udc00\"", "surrogate"}, {"\"\xff\"", "not UTF-8"}, {"\"\xc0\x80\"", "not UTF-8"},
		{"\"\xe2\x82\"", "not UTF-8"}, {"nul", "a value is missing"}, {"{} []", "something follows"}, {"NaN", "a value is missing"}, {"\"\\n\\n\" x", "line 1 column 8: something follows"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct ctx *c = test_ctx();

		assert_null(read(c, table[i].text));
		assert_int_equal(c->ndiag, 1);
		if (!strstr(c->diags[0].text.p, table[i].where))
			fail_msg("%s: %s", table[i].text, c->diags[0].text.p);
		test_ctx_free(c);
	}
}

static void
deep(void **state)
{
	struct ctx *c = test_ctx();
	static char text[100001];

	(void)state;
	memset(text, '[', 100000);
	assert_null(read(c, text));
	assert_non_null(strstr(c->diags[0].text.p, "nested too deeply"));
	memset(text, '[', 2000);
	memset(text + 2000, ']', 2000);
	text[4000] = 0;
	assert_non_null(read(c, text));
	test_ctx_free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(members), cmocka_unit_test(python), cmocka_unit_test(mistakes), cmocka_unit_test(deep)};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
