/* Pickles: what each family of opcodes gives, PyTorch's tensors, and bytes that are no pickle. */
#include "test.h"
#include "../frontend/pickle.h"

#include <string.h>

static struct pickle *
read(struct ctx *c, const char *p, size_t n)
{
	return pickle_read(c, (struct str){p, (uint32_t)n});
}
#define READ(c, text) read(c, text, sizeof(text) - 1)

static void
numbers(void **state)
{
	static const struct {
		const char *p;
		size_t n;
		int64_t want;
	} table[] = {
#define ROW(text, want) {text, sizeof(text) - 1, want}
		ROW("\x80\x02K\x07.", 7), ROW("\x80\x02M\x01\x02.", 513), ROW("\x80\x02J\xff\xff\xff\xff.", -1), ROW("\x80\x02\x8a\x00.", 0),
		ROW("\x80\x02\x8a\x01\xfe.", -2), ROW("\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", INT64_MAX), ROW("\x80\x04\x95\0\0\0\0\0\0\0\0K\x05.", 5),
		ROW("K\x01K\x02\x30.", 1), ROW("K\x01(K\x02K\x03\x31.", 1),
#undef ROW
	};
	struct ctx *c = test_ctx();

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct pickle *v = read(c, table[i].p, table[i].n);

		assert_non_null(v);
		assert_int_equal(v->kind, PK_INT);
		assert_int_equal(v->u.i, table[i].want);
	}
	assert_true(READ(c, "G\x3f\xe0\0\0\0\0\0\0.")->u.f == 0.5);
	assert_int_equal(READ(c, "\x8a\x09\0\0\0\0\0\0\0\0\x01.")->kind, PK_FLOAT);
	test_ctx_free(c);
}

static void
collections(void **state)
{
	struct ctx *c = test_ctx();
	struct pickle *v = READ(c, "\x80\x02}q\0(X\1\0\0\0aq\1]q\2(K\1K\2eX\1\0\0\0bh\1u."), *list;

	(void)state;
	assert_int_equal(v->kind, PK_DICT);
	list = pickle_get(v, S("a"));
	assert_int_equal(list->kind, PK_LIST);
	assert_int_equal(list->n, 2);
	assert_int_equal(list->u.item[1]->u.i, 2);
	assert_true(str_eq(pickle_str(pickle_get(v, S("b"))), S("a")));
	assert_null(pickle_get(v, S("c")));
	v = READ(c, "(K\1K\2K\3t.");
	assert_int_equal(v->kind, PK_TUPLE);
	assert_int_equal(v->n, 3);
	test_ctx_free(c);
}

/* A class's name stays a name; its state is what BUILD gave; one value met twice is one value. */
static void
objects(void **state)
{
	struct ctx *c = test_ctx();
	struct pickle *v = READ(c, "\x80\x02" "c__torch__.m\nNet\n)\x81}(X\1\0\0\0aNX\1\0\0\0b\x88ub.");

	(void)state;
	assert_int_equal(v->kind, PK_OBJECT);
	assert_true(pickle_is(v->of, "__torch__.m.Net"));
	assert_int_equal(pickle_get(v->state, S("a"))->kind, PK_NONE);
	assert_true(pickle_get(v->state, S("b"))->u.b);
	v = READ(c, "]q\0h\0\x86.");
	assert_ptr_equal(v->u.item[0], v->u.item[1]);
	v = READ(c, "cos\nsystem\nX\2\0\0\0ls\x85R.");      /* nothing is ever called */
	assert_int_equal(v->kind, PK_CALL);
	assert_true(pickle_is(v->of, "os.system"));
	test_ctx_free(c);
}

static void
tensors(void **state)
{
	struct ctx *c = test_ctx();
	struct pickle *v = READ(c, "\x80\x02" "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nHalfStorage\nX\2\0\0\0" "17X\3\0\0\0cpuK\x0ctQK\2(K\2K\5t(K\1K\2t\x88"
	    "ccollections\nOrderedDict\n)RtR.");
	const struct pickle_tensor *t;

	(void)state;
	assert_int_equal(v->kind, PK_TENSOR);
	t = v->u.tensor;
	assert_int_equal(t->dtype, DT_FP16);
	assert_int_equal(t->rank, 2);
	assert_int_equal(t->dim[1], 5);
	assert_int_equal(t->stride[1], 2);
	assert_int_equal(t->offset, 2);
	assert_int_equal(t->storage->count, 12);
	assert_true(t->requires_grad);
	assert_true(str_eq(t->storage->key, S("17")));
	test_ctx_free(c);
}

static void
damaged(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} table[] = {
#define ROW(text) {text, sizeof(text) - 1}
		ROW(""), ROW("\x80\x02"), ROW("."), ROW("X\xff\xff\xff\xff" "a."), ROW("K"), ROW("h\0."), ROW("Nr\xff\xff\xff\xff."), ROW("t."), ROW("(t"), ROW("(\x85."),
		ROW("NNe."), ROW("N(Ne."), ROW("}(Nu."), ROW("(Nd."), ROW("NN."), ROW("cabc"), ROW("NN\x93."), ROW("\xff."), ROW("(q\0t."), ROW("R."), ROW("NQ"), ROW("Nb."),
		ROW("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), ROW("((."),
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct ctx *c = test_ctx();

		assert_null(read(c, table[i].p, table[i].n));
		assert_int_equal(c->nerror, 1);
		assert_string_equal(diag_name(c->diags[0].code), "E030");
		test_ctx_free(c);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers), cmocka_unit_test(collections), cmocka_unit_test(objects), cmocka_unit_test(tensors), cmocka_unit_test(damaged),
	};

	return cmocka_run_group_tests_name("pickle", tests, NULL, NULL);
}
