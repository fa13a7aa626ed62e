/*
 * bitsandbytes' layers, derived by hand from its source (the truth tool has no such kernels). All in bytes:
 * x fp32[128, 256] is X, the first Linear's weight fp32[256, 256] is V, its result y is X; fc's weight [512, 256] is 65536 packed in 4 bits,
 * 131072 in 8, and D in fp32; its bias is 2048, its result z fp32[128, 512] is Z. The head is the last module: it stays fp32[8, 64], 2048.
 */
#include "test.h"

#include <stdio.h>

#define HEAD "memcrest-ir 1\ninput %x : fp32[128, 256]\n"
#define LAST "param %h \"head.weight\" : fp32[8, 64]\n"
#define MODEL HEAD "param %v \"first.weight\" : fp32[256, 256] trainable\nparam %w \"fc.weight\" : fp32[512, 256]\nparam %b \"fc.bias\" : fp32[512]\n" LAST \
	"%y : fp32[128, 256] = linear(%x, %v)\n%z : fp32[128, 512] = linear(%y, %w, %b)\n%l : fp32[] = sum(%z)\noutput %l\n"
#define LLAMA "fixtures/models/llama_tiny.train.pt2"

enum { X = 131072, V = 262144, D = 524288, Z = 262144, B = 2048, H = 2048, U = 512 };
enum { NF4 = 65536 + 4 * 2048 + U, DOUBLE = 65536 + 2048 + U + U + U + 1024, INT8 = 131072 + 4 * 512 };

struct want {
	uint64_t forward, backward, optimizer, forward_end;
};

static void
check_steps(const struct analysed *a, const struct want *want)
{
	for (unsigned i = 1; i <= 2; i++) {
		const struct step_row *st = &a->r->r.steps[i];

		assert_int_equal(st->phases[PH_FORWARD].tensors, want->forward);
		assert_int_equal(st->phases[PH_BACKWARD].tensors, want->backward);
		assert_int_equal(st->phases[PH_OPTIMIZER].tensors, want->optimizer);
		assert_int_equal(st->forward_end, want->forward_end);
	}
}

static void
check(const char *graph, const char *recipe, const struct want *want)
{
	struct analysed a = test_analyse(graph, recipe);

	check_steps(&a, want);
	release_analysis(a);
}

/*
 * Packed weight, an fp32 absmax for each 64 elements (2048 of them), a table of codes.
 *   forward: y; the dequantised weight; z beside both. Then both go: nothing of them is saved.
 *   backward: root and loss; the dequantised weight again, y's gradient; then that one alone, and dV.
 */
static void
four_bits(void **state)
{
	const uint64_t base = X + V + B + H + NF4;
	const struct want w = {base + X + D + Z, base + U + U + D + X, base + V, base + U};

	(void)state;
	check(MODEL, "{\"optimizer\": \"sgd\", \"quantize\": \"nf4\"}", &w);
}

/*
 * absmax in 8 bits, 8 absmax of its own, an offset, a table of 256 codes. Each dequantisation makes the fp32 absmax first, 8192 bytes,
 * which goes before the product: no peak sees it, but the schedule has it twice a step.
 */
static void
double_quantised(void **state)
{
	const uint64_t base = X + V + B + H + DOUBLE;
	const struct want w = {base + X + D + Z, base + U + U + D + X, base + V, base + U};
	struct analysed a = test_analyse(MODEL, "{\"optimizer\": \"sgd\", \"quantize\": \"nf4-double\"}");
	unsigned scales = 0;

	(void)state;
	check_steps(&a, &w);
	for (uint32_t i = 0; i < a.r->r.sched->nstorage; i++)
		scales += a.r->r.sched->storages[i].nbytes == 4 * 2048;
	assert_int_equal(scales, 4);
	release_analysis(a);
}

/* Under autocast fc computes in bf16: its input is that already; its bias is cast; a cast of V is cached until forward ends, x's is saved. */
static void
four_bits_autocast(void **state)
{
	const uint64_t base = X + V + B + H + NF4;
	const struct want w = {base + V / 2 + X / 2 + X / 2 + B / 2 + D / 2 + Z / 2, base + U + U + X / 2 + Z / 2 + D / 2 + X / 2, base + V, base + X / 2 + U};

	(void)state;
	check(MODEL, "{\"optimizer\": \"sgd\", \"quantize\": \"nf4\", \"precision\": \"bf16-mixed\"}", &w);
}

/*
 * LLM.int8: rows' scales (512), y in 8 bits (X / 4), the product in int32 (Z) and scaled to fp16 (Z / 2), z. ctx keeps y, in fp32, until
 * the graph goes: it is still there when dV is made, at the end of backward.
 */
static void
eight_bits(void **state)
{
	const uint64_t base = X + V + B + H + INT8;
	const struct want w = {base + X + U + X / 4 + Z + Z / 2 + Z, base + X + U + U + D + X, base + V, base + X + U};

	(void)state;
	check(MODEL, "{\"optimizer\": \"sgd\", \"quantize\": \"int8\"}", &w);
}

/*
 * What ctx keeps, non-reentrant checkpointing cannot drop: y stays although its block keeps nothing else. gelu's result g would be saved by
 * nobody.  With nf4 forward ends with the block's input x, of the batch, and the loss.
 */
static void
eight_bits_checkpointed(void **state)
{
	static const char graph[] = HEAD "param %v \"layers.0.first.weight\" : fp32[256, 256] trainable\nparam %w \"layers.0.fc.weight\" : fp32[512, 256]\n" LAST
	    "%y : fp32[128, 256] = linear(%x, %v) @\"layers.0\":\"Block\"/\"layers.0.first\":\"Linear\"\n"
	    "%z : fp32[128, 512] = linear(%y, %w) @\"layers.0\":\"Block\"/\"layers.0.fc\":\"Linear\"\n%l : fp32[] = sum(%z)\noutput %l\n";
	struct analysed a = test_analyse(graph, "{\"quantize\": \"int8\", \"checkpoint\": \"non-reentrant\", \"checkpoint_modules\": [\"layers.0\"]}");
	struct analysed b = test_analyse(graph, "{\"quantize\": \"nf4\", \"checkpoint\": \"non-reentrant\", \"checkpoint_modules\": [\"layers.0\"]}");

	(void)state;
	assert_int_equal(a.r->r.steps[1].forward_end, X + V + H + INT8 + X + U);
	assert_int_equal(b.r->r.steps[1].forward_end, X + V + H + NF4 + U);
	release_analysis(a);
	release_analysis(b);
}

/*
 * LoRA of rank 8 over 4 bits, without a bias: A fp32[8, 256] 8192, B fp32[512, 8] 16384; t = A x, 4096, is saved for dB.
 *   forward: the base's result is cloned; t, B t, scaled, the sum beside scaled and clone: t + 3 Z.
 *   backward: the sum's gradient is a view; of the scaling Z; dB, dt beside it and t.
 */
static void
adapters(void **state)
{
	enum { A = 8192, BB = 16384, T = 4096 };
	const uint64_t base = X + H + NF4 + A + BB;
	const struct want w = {base + T + 3 * Z, base + U + U + T + Z + BB + T, base + A + BB, base + T + U};

	(void)state;
	check(HEAD "param %w \"fc.weight\" : fp32[512, 256]\n" LAST "%z : fp32[128, 512] = linear(%x, %w) @\"fc\":\"Linear\"\n%l : fp32[] = sum(%z)\noutput %l\n",
	    "{\"optimizer\": \"sgd\", \"quantize\": \"nf4\", \"lora\": {\"r\": 8, \"targets\": [\"fc\"]}}", &w);
}

/* transformers' Conv1D flattens its rows. An optimiser may have joined that with the view in front, of heads say: the adapter reads three dims all the same. */
static void
conv1d_behind_a_view(void **state)
{
	static const char start[] = "memcrest-ir 1\ninput %i : fp32[4, 32, 2, 64]\nparam %w \"proj.weight\" : fp32[128, 256] trainable\nparam %b \"proj.bias\" : fp32[256] trainable\n",
	    *const rows[] = {"%v : fp32[4, 32, 128] = view(%i, [4, 32, 128])\n%r : fp32[128, 128] = view(%v, [128, 128]) @\"proj\":\"Conv1D\"\n",
	    "%r : fp32[128, 128] = view(%i, [128, 128]) @\"proj\":\"Conv1D\"\n"},
	    end[] = "%p : fp32[128, 256] = addmm(%b, %r, %w) @\"proj\":\"Conv1D\"\n%y : fp32[4, 32, 256] = view(%p, [4, 32, 256]) @\"proj\":\"Conv1D\"\n"
	    "%l : fp32[] = sum(%y)\noutput %l\n";
	uint64_t peak[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		char graph[2048];
		struct analysed a;

		snprintf(graph, sizeof graph, "%s%s%s", start, rows[i], end);
		a = test_analyse(graph, "{\"loss\": \"in-graph\", \"lora\": {\"r\": 8, \"targets\": [\"proj\"]}}");
		assert_false(a.r->incomplete);
		peak[i] = a.r->r.steps[1].tensors;
		release_analysis(a);
	}
	assert_int_equal(peak[0], peak[1]);
}

/*
 * "all-linear" leaves out the output embedding, whatever it is called: the last layer with a row for each word. A classifier that has as many rows as
 * there are types of tokens is none. Rank 4: fc [128, 128] gets 2 x 4 x 128, the classifier [2, 128] 4 x 128 and 2 x 4.
 */
static void
output_embedding_is_no_target(void **state)
{
	static const char start[] = "memcrest-ir 1\ninput %i : int64[4, 32]\ninput %j : int64[4, 32]\nparam %e \"words.weight\" : fp32[1000, 128] trainable\n"
	    "param %t \"types.weight\" : fp32[2, 128] trainable\nparam %w \"fc.weight\" : fp32[128, 128] trainable\n",
	    middle[] = "%a : fp32[4, 32, 128] = embedding(%e, %i)\n%b : fp32[4, 32, 128] = embedding(%t, %j)\n%h : fp32[4, 32, 128] = add(%a, %b)\n"
	    "%y : fp32[4, 32, 128] = linear(%h, %w) @\"fc\":\"Linear\"\n";
	static const struct {
		const char *param, *head;
		uint64_t adapters;
	} cases[] = {
		{"param %u \"projection.weight\" : fp32[1000, 128] trainable\n", "%z : fp32[4, 32, 1000] = linear(%y, %u) @\"projection\":\"Linear\"\n", 1024},
		{"param %u \"classifier.weight\" : fp32[2, 128] trainable\n", "%z : fp32[4, 32, 2] = linear(%y, %u) @\"classifier\":\"Linear\"\n", 1024 + 520},
	};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		char graph[2048];
		struct analysed a;

		snprintf(graph, sizeof graph, "%s%s%s%s%%l : fp32[] = sum(%%z)\noutput %%l\n", start, cases[i].param, middle, cases[i].head);
		a = test_analyse(graph, "{\"loss\": \"in-graph\", \"lora\": {\"r\": 4, \"targets\": \"all-linear\"}}");
		assert_int_equal(a.r->r.param_count, 1002 * 128 + 128 * 128 + (i ? 2u : 1000u) * 128 + cases[i].adapters);
		release_analysis(a);
	}
}

/* Of a decoder: every Linear but the head; the embedding and the norms stay. Parameters are counted as the model has them. */
static void
which_layers(void **state)
{
	static const char *const recipes[] = {
		"{\"dims\": {\"batch\": 2, \"seq\": 64}, \"lora\": {\"r\": 8, \"targets\": \"all-linear\"}}",
		"{\"dims\": {\"batch\": 2, \"seq\": 64}, \"lora\": {\"r\": 8, \"targets\": \"all-linear\"}, \"quantize\": \"nf4\"}",
	};
	struct analysed a = test_analyse_file(LLAMA, recipes[0]), b = test_analyse_file(LLAMA, recipes[1]);
	/* two layers: q, o 512 x 512; k, v 256 x 512; gate, up, down 1376 x 512 */
	const uint64_t n = 2 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 1376 * 512);

	(void)state;
	assert_int_equal(a.r->r.param_count, b.r->r.param_count);
	assert_int_equal(a.r->r.param_bytes - b.r->r.param_bytes, 4 * n - n / 2);
	assert_int_equal(b.r->r.buffer_bytes - a.r->r.buffer_bytes, 4 * n / 64 + 14 * 16 * 4);
	release_analysis(a);
	release_analysis(b);
}

/* ZeRO-2 divides states and gradients of the adapters; what is packed stays whole, as every rank of DDP has it. */
static void
zero_divides_what_trains(void **state)
{
	static const char recipe[] = "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"precision\": \"bf16\", \"lora\": {\"r\": 8, \"targets\": \"all-linear\", \"dtype\": \"bf16\"}, "
	    "\"quantize\": \"nf4\", \"parallel\": {\"strategy\": \"%s\", \"dp\": 2, \"reduce_bucket\": 1000000}}";
	char one[400], two[400];
	struct analysed a, b;
	uint64_t adapters;

	(void)state;
	snprintf(one, sizeof one, recipe, "ddp");
	snprintf(two, sizeof two, recipe, "zero2");
	a = test_analyse_file(LLAMA, one);
	b = test_analyse_file(LLAMA, two);
	adapters = a.r->r.param_trainable_bytes;
	assert_int_equal(a.r->r.steps[2].phases[PH_FORWARD].at.of[FAC_PARAM], b.r->r.steps[2].phases[PH_FORWARD].at.of[FAC_PARAM]);
	assert_int_equal(a.r->r.steps[2].phases[PH_FORWARD].at.of[FAC_OPT], 2 * adapters);
	assert_int_equal(b.r->r.steps[2].phases[PH_FORWARD].at.of[FAC_OPT], 3 * 2 * adapters / 2);      /* master and states, in fp32, of one half */
	release_analysis(a);
	release_analysis(b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_bits), cmocka_unit_test(double_quantised), cmocka_unit_test(four_bits_autocast), cmocka_unit_test(eight_bits),
		cmocka_unit_test(eight_bits_checkpointed), cmocka_unit_test(adapters), cmocka_unit_test(conv1d_behind_a_view), cmocka_unit_test(output_embedding_is_no_target), cmocka_unit_test(which_layers), cmocka_unit_test(zero_divides_what_trains),
	};

	return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
