/* Memory that dies together: arrays that grow, parts that die sooner, and the limit that holds for all of it. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

struct item {
	uint64_t a, b, c;
};

static void
arrays_keep_what_is_in_them(void **state)
{
	struct arena *a = arena_new(64 * MIB);
	struct item *x = NULL, *y = NULL;
	uint32_t n = 0, xcap = 0, ycap = 0;

	(void)state;
	for (; n < 200000; n++) {
		uint32_t had = xcap;

		ROOM(a, x, n, xcap, 1);
		ROOM(a, y, n, ycap, 1);
		for (uint32_t i = had > n ? had : n; i < xcap; i++)
			assert_true(!x[i].a && !x[i].b && !x[i].c);
		x[n] = (struct item){n, n + 1, n + 2};
		y[n] = (struct item){n + 3, n + 4, n + 5};
	}
	for (uint32_t i = 0; i < n; i++) {
		assert_true(x[i].a == i && x[i].b == i + 1 && x[i].c == i + 2);
		assert_true(y[i].a == i + 3 && y[i].b == i + 4 && y[i].c == i + 5);
	}
	/* what they have left behind on the way is less than half a MiB each */
	assert_true(arena_used(a) >= (xcap + ycap) * sizeof *x);
	assert_true(arena_used(a) < (xcap + ycap) * sizeof *x + MIB);
	arena_free(a);
}

static void
an_array_that_began_elsewhere_is_copied(void **state)
{
	struct arena *a = arena_new(64 * MIB);
	uint32_t n = 100000, cap = n, *x = NEW(a, uint32_t, n), *before = x;

	(void)state;
	for (uint32_t i = 0; i < n; i++)
		x[i] = i;
	ROOM(a, x, n, cap, 1);
	assert_ptr_not_equal(x, before);
	assert_int_equal(cap, 200000);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(x[i], i);
	assert_int_equal(x[n], 0);
	arena_free(a);
}

static void
push_all(struct arena *a, volatile uint32_t *room)
{
	uint64_t *x = NULL;

	for (uint32_t n = 0, cap = 0; n < 10000000; n++) {
		ROOM(a, x, n, cap, 1);
		x[n] = n;
		*room = cap;
	}
}

/* Grows an array until the door opens; how many elements there was room for. */
static uint32_t
fill(struct arena *a, jmp_buf *door)
{
	volatile uint32_t room = 0;

	arena_door(a, door);
	if (!setjmp(*door))
		push_all(a, &room);
	return room;
}

static void
the_limit_holds_for_arrays(void **state)
{
	struct arena *a = arena_new(8 * MIB);
	jmp_buf door;
	uint32_t n = fill(a, &door);

	(void)state;
	assert_true(arena_hit_limit(a));
	assert_true(arena_used(a) <= 8 * MIB);
	assert_int_equal(n * sizeof(uint64_t), 4 * MIB);   /* twice as much and what it has left behind are more than the limit */
	arena_free(a);
}

static void
parts_count_for_the_whole(void **state)
{
	struct arena *whole = arena_new(8 * MIB), *part;
	jmp_buf door;
	uint64_t before;
	char *p;

	(void)state;
	arena_door(whole, &door);
	assert_int_equal(setjmp(door), 0);
	p = NEW(whole, char, 3 * MIB);
	part = arena_part(whole);
	before = arena_used(whole);
	NEW(part, char, 4 * MIB);
	assert_true(arena_used(whole) >= before + 4 * MIB);
	arena_cancel(whole, part);
	assert_true(arena_used(whole) == before);
	part = arena_part(whole);
	fill(part, &door);
	assert_true(arena_hit_limit(part) && arena_hit_limit(whole));
	assert_true(arena_used(whole) <= 8 * MIB);
	arena_cancel(whole, part);
	assert_true(arena_used(whole) < before + MIB / 2);
	p[0] = 1;
	arena_free(whole);
}

/* A slice of an array of the graph is added to that array, at every size of it. */
static void
an_array_may_get_a_part_of_itself(void **state)
{
	struct ctx *c = test_ctx();
	struct graph *g = graph_new(c);
	struct sint two[2] = {SINT(7), SINT(9)};
	uint32_t at = ints_add(g, two, 2);

	(void)state;
	for (unsigned i = 0; i < 50000; i++) {
		at = ints_add(g, g->ints + at, 2);
		assert_true(g->ints[at].n == 7 && g->ints[at + 1].n == 9);
	}
	test_ctx_free(c);
}

static void
names_keep_their_numbers(void **state)
{
	struct ctx *c = test_ctx();
	struct strtab *t = strtab_new(c->a), *over;
	char name[16];

	(void)state;
	for (uint32_t i = 1; i <= 50000; i++)
		assert_int_equal(strtab_id(t, (struct str){name, (uint32_t)snprintf(name, sizeof name, "n%u", i)}), i);
	over = strtab_over(c->a, t);
	for (uint32_t i = 50000; i > 0; i--)
		assert_int_equal(strtab_find(over, (struct str){name, (uint32_t)snprintf(name, sizeof name, "n%u", i)}), i);
	assert_int_equal(strtab_find(over, S("n0")), 0);
	assert_int_equal(strtab_id(over, S("n0")), 50001);
	assert_int_equal(strtab_find(t, S("n0")), 0);
	assert_true(str_eq(strtab_str(over, 77), S("n77")) && str_eq(strtab_str(over, 50001), S("n0")));
	test_ctx_free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arrays_keep_what_is_in_them),
		cmocka_unit_test(an_array_that_began_elsewhere_is_copied),
		cmocka_unit_test(the_limit_holds_for_arrays),
		cmocka_unit_test(parts_count_for_the_whole),
		cmocka_unit_test(an_array_may_get_a_part_of_itself),
		cmocka_unit_test(names_keep_their_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
