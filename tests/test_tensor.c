/*
 * Tensor parallelism beside PyTorch's own: torch.distributed.tensor.parallel of 2.13 on its fake process group (ColwiseParallel, RowwiseParallel,
 * SequenceParallel, loss_parallel), live storages rounded to 512 bytes, in the second of two SGD steps. Forward is equal to the byte; backward
 * but for the loss's masks of one row each, 2,560 bytes.
 */
#include "test.h"

#include <stdio.h>
#include <string.h>

struct want {
	uint64_t forward, backward, optimizer;
};

enum { X = 131072, W = 524288, U = 512 };

/* ---- by hand ------------------------------------------------------------------------------------------------------- */

/* h = relu(x v^T) fp32[128, 512], y = h w^T fp32[128, 256]; v fp32[512, 256] and w fp32[256, 512] are W each; loss = sum(y) */
#define MLP "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %v \"fc1.weight\" : fp32[512, 256] trainable\nparam %w \"fc2.weight\" : fp32[256, 512] trainable\n" \
	"%h : fp32[128, 512] = linear(%x, %v)\n%r : fp32[128, 512] = relu(%h)\n%y : fp32[128, 256] = linear(%r, %w)\n%l : fp32[] = sum(%y)\noutput %l\n"

static void
check_graph(const char *graph, const char *recipe, const struct want *want)
{
	struct analysed a = test_analyse(graph, recipe);

	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(a.r->r.steps[i].phases[PH_FORWARD].tensors, want->forward);
		assert_int_equal(a.r->r.steps[i].phases[PH_BACKWARD].tensors, want->backward);
		assert_int_equal(a.r->r.steps[i].phases[PH_OPTIMIZER].tensors, want->optimizer);
	}
	release_analysis(a);
}

/*
 * Two ranks: v has half its rows, w half its columns, A = W / 2 each; h and its relu r are fp32[128, 256], X. Forward: h, r, then h goes; the partial sum
 * of y, X; the all-reduce makes another: r and both sums, 3 X.
 *   backward: root, and a view of it; dw, A, and dr, X, beside r; then dh: r, dr, dh and dw are 3 X + A. dv when r and dr are gone: dh, dw, dv, X + 2 A.
 *   A = 2 X, so both are 5 X. The entered x needs no gradient.
 */
static void
tensor_parallel(void **state)
{
	const uint64_t half = W / 2, base = X + 2 * half;
	const struct want w = {base + 3 * X, base + 2 * U + 5 * X, base + 2 * half};

	(void)state;
	check_graph(MLP, "{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 2}}", &w);
}

/* The reduced y has half the rows, X / 2. Backward gathers its gradient, X, which goes when dw and dr are made: r, it, dw and dr are 3 X + A, too. */
static void
sequence_parallel(void **state)
{
	const uint64_t half = W / 2, base = X + 2 * half;
	const struct want w = {base + 2 * X + X / 2, base + 2 * U + 5 * X, base + 2 * half};

	(void)state;
	check_graph(MLP, "{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 2, \"sequence_parallel\": true}}", &w);
}

/*
 * Three ranks: the first has 171 of the 512 inner features, and 43 of 128 tokens. A = 171 rows or columns of 256; h and its relu r are fp32[128, 171], R = A / 2.
 * Backward as above: at both of its tops 3 R + A = R + 2 A.
 * With the sequence divided the partial sum, X, is padded to 129 rows, G, for the collective, which makes fp32[43, 256], S. Backward gathers G, of which
 * the gradient is the front: r, it, dw and dr are 2 R + G + A.
 */
static void
uneven_parts(void **state)
{
	const uint64_t A = 171 * 256 * 4, R = A / 2, G = 129 * 256 * 4, S = 43 * 256 * 4, base = X + 2 * A;
	const struct want w = {base + R + 2 * X, base + 2 * U + 3 * R + A, base + 2 * A}, s = {base + R + X + G + S, base + 2 * U + 2 * R + G + A, base + 2 * A};

	(void)state;
	check_graph(MLP, "{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 3}}", &w);
	check_graph(MLP, "{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 3, \"sequence_parallel\": true}}", &s);
}

/* 1,001 rows: half of them is 501 at most; padded to a multiple of 128 on both ranks, 512 each. */
static void
odd_vocabulary(void **state)
{
	static const char graph[] = "memcrest-ir 1\ninput %i : int64[4, 32]\nparam %e \"embed.weight\" : fp32[1001, 64] trainable\n"
	    "param %h \"head.weight\" : fp32[1001, 64] trainable\n%x : fp32[4, 32, 64] = embedding(%e, %i)\n%y : fp32[4, 32, 1001] = linear(%x, %h)\n"
	    "%f : fp32[128, 1001] = view(%y, [128, 1001])\n%t : int64[128] = view(%i, [128])\n%l : fp32[] = cross_entropy_loss(%f, %t)\noutput %l\n";
	static const struct {
		const char *parallel;
		uint64_t rows;
	} ways[] = {{"{\"tp\": 1}", 1001}, {"{\"tp\": 2}", 501}, {"{\"tp\": 3}", 334}, {"{\"tp\": 2, \"vocab_multiple\": 128}", 512}, {"{\"tp\": 3, \"vocab_multiple\": 64}", 384}};
	char recipe[200];

	(void)state;
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		struct analysed a;

		snprintf(recipe, sizeof recipe, "{\"optimizer\": \"sgd\", \"parallel\": %s}", ways[i].parallel);
		a = test_analyse(graph, recipe);
		assert_int_equal(a.r->r.param_trainable, 2 * ways[i].rows * 64);
		assert_int_equal(a.r->r.sized, a.r->r.values);
		release_analysis(a);
	}
}

/*
 * The same between two layers that stay divided: the batch's x meets y, then gelu, and a second pair. A vector s of 256 elements scales: x s enters.
 *   z = y + x s, fp32[64, 256] of the rank; gelu(z) = e, both X / 2 and saved; the next pair gathers e, X, for h2 and, in backward, for dv2.
 *   forward ends with: x s is not saved, x is the batch's; r, z, e, r2, loss = X + X / 2 + X / 2 + X + U.
 */
static void
sequence_saved(void **state)
{
	static const char graph[] = "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %s \"s\" : fp32[256] trainable\n"
	    "param %v \"a.weight\" : fp32[512, 256] trainable\nparam %w \"b.weight\" : fp32[256, 512] trainable\n"
	    "param %v2 \"c.weight\" : fp32[512, 256] trainable\nparam %w2 \"d.weight\" : fp32[256, 512] trainable\n"
	    "%h : fp32[128, 512] = linear(%x, %v)\n%r : fp32[128, 512] = relu(%h)\n%y : fp32[128, 256] = linear(%r, %w)\n"
	    "%xs : fp32[128, 256] = mul(%x, %s)\n%z : fp32[128, 256] = add(%y, %xs)\n%e : fp32[128, 256] = gelu(%z)\n"
	    "%h2 : fp32[128, 512] = linear(%e, %v2)\n%r2 : fp32[128, 512] = relu(%h2)\n%y2 : fp32[128, 256] = linear(%r2, %w2)\n%l : fp32[] = sum(%y2)\noutput %l\n";
	struct analysed a = test_analyse(graph, "{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 2, \"sequence_parallel\": true}}");

	(void)state;
	assert_int_equal(a.r->r.steps[2].forward_end, X + 1024 + 4 * (W / 2) + X + X / 2 + X / 2 + X + U);
	release_analysis(a);
}

/*
 * PyTorch's own tensor parallelism (torch.distributed.tensor.parallel, 2.13, ColwiseParallel and RowwiseParallel on its fake process group) ran this
 * model; live storages, rounded to 512 bytes, at the peak of forward and backward and at the end of forward, to the byte.
 */
static void
real_tensor_parallel(void **state)
{
	static const char graph[] = "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %a \"a.weight\" : fp32[512, 256] trainable\n"
	    "param %b \"b.weight\" : fp32[256, 512] trainable\nparam %c \"c.weight\" : fp32[512, 256] trainable\nparam %d \"d.weight\" : fp32[256, 512] trainable\n"
	    "param %nw \"n.weight\" : fp32[256] trainable\nparam %nb \"n.bias\" : fp32[256] trainable\n"
	    "%h : fp32[128, 512] = linear(%x, %a)\n%r : fp32[128, 512] = relu(%h)\n%y : fp32[128, 256] = linear(%r, %b)\n"
	    "%z : fp32[128, 256] = layer_norm(input=%y, normalized_shape=[256], weight=%nw, bias=%nb)\n"
	    "%h2 : fp32[128, 512] = linear(%z, %c)\n%r2 : fp32[128, 512] = relu(%h2)\n%y2 : fp32[128, 256] = linear(%r2, %d)\n%l : fp32[] = sum(%y2)\noutput %l\n";
	static const struct {
		const char *recipe;
		uint64_t forward, backward, forward_end;
	} runs[] = {
		{"{\"optimizer\": \"sgd\"}", 3279872, 4592640, 3018240},
		{"{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 2}}", 1969152, 2364416, 1707520},
		{"{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 4}}", 1313792, 1445888, 1052160},
	};

	(void)state;
	for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
		struct analysed a = test_analyse(graph, runs[i].recipe);

		assert_int_equal(a.r->r.steps[2].phases[PH_FORWARD].tensors, runs[i].forward);
		assert_int_equal(a.r->r.steps[2].phases[PH_BACKWARD].tensors, runs[i].backward);
		assert_int_equal(a.r->r.steps[2].forward_end, runs[i].forward_end);
		release_analysis(a);
	}
}

/*
 * llama_tiny: hidden 512, 8 heads on 4, 1,376 inside, 2,048 tokens, two layers. All matrices are divided, five norms of 512 are whole; AdamW has two
 * states for each, and gradients are as large as parameters.
 */
static void
divided_parameters(void **state)
{
	const uint64_t layer = 2 * 512 * 512 + 2 * 256 * 512 + 3 * 1376 * 512, all = 2 * 2048 * 512 + 2 * layer;
	struct analysed a;
	char recipe[200];

	(void)state;
	for (uint64_t ways = 1; ways <= 4; ways *= 2) {
		const uint64_t n = all / ways + 5 * 512;

		snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"parallel\": {\"tp\": %u, \"sequence_parallel\": %s}}", (unsigned)ways,
		    ways == 4 ? "true" : "false");
		a = test_analyse_file("fixtures/models/llama_tiny.train.pt2", recipe);
		assert_int_equal(a.r->r.param_trainable, n);
		assert_int_equal(a.r->r.steps[2].phases[PH_OPTIMIZER].at.of[FAC_GRAD], 4 * n);
		assert_int_equal(a.r->r.steps[2].phases[PH_OPTIMIZER].at.of[FAC_OPT], 8 * n);
		release_analysis(a);
	}
}

/* More ranks never take more; one rank is a job without ranks. */
static void
more_ranks_take_less(void **state)
{
	static const struct {
		const char *path, *recipe;
	} jobs[] = {
		{"fixtures/models/llama_tiny.train.pt2", "\"dims\": {\"batch\": 2, \"seq\": 64}"},
		{"fixtures/models/llama_tiny.train.pt2", "\"dims\": {\"batch\": 2, \"seq\": 256}, \"precision\": \"bf16-mixed\", \"checkpoint\": \"non-reentrant\""},
		{"fixtures/models/llama_tiny.train.pt2", "\"dims\": {\"batch\": 2, \"seq\": 256}, \"lora\": {\"r\": 8, \"targets\": \"all-linear\"}"},
		{"fixtures/models/llama_tiny.train.pt2", "\"dims\": {\"batch\": 2, \"seq\": 256}, \"attention\": \"eager\""},
		{"fixtures/models/llama_tiny4.train.onnx", "\"dims\": {\"batch\": 2, \"seq\": 64}"},
		{"fixtures/models/llava_tiny.train.pt2", "\"dims\": {\"batch\": 2, \"seq\": 64}"},
		{"fixtures/models/toy_vlm.train.pt2", "\"dims\": {\"batch\": 4, \"seq\": 32}"},
		{"fixtures/models/llava_7b.train.bf16.stack.pt2", "\"dims\": {\"batch\": 1, \"seq\": 2048}, \"freeze\": [\"model.vision_tower\"]"},
	};
	char recipe[400];

	(void)state;
	for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
		for (unsigned sequence = 0; sequence <= 1; sequence++) {
			uint64_t least = UINT64_MAX;

			for (unsigned ways = 1; ways <= 4; ways *= 2) {
				struct analysed a;
				uint64_t peak;

				snprintf(recipe, sizeof recipe, "{%s, \"optimizer\": \"sgd\", \"parallel\": {\"tp\": %u, \"sequence_parallel\": %s}}", jobs[i].recipe, ways,
				    sequence && ways > 1 ? "true" : "false");
				a = test_analyse_file(jobs[i].path, recipe);
				peak = a.r->r.steps[2].tensors;
				if (peak >= least)
					fail_msg("%s: %llu bytes on %u ranks, %llu on half as many", jobs[i].path, (unsigned long long)peak, ways, (unsigned long long)least);
				least = peak;
				release_analysis(a);
			}
		}
}

/* ---- beside PyTorch's own -------------------------------------------------------------------------------------------- */

enum { BATCH = 2, SEQ = 64, TOKENS = BATCH * SEQ, HIDDEN = 64, INNER = 512, ROWS = 2560 };

struct run {
	const char *dtype;
	unsigned vocab, ways;
	bool block, sequence;      /* the block between embedding and head; divided along the sequence, too */
	uint64_t forward, backward, grad;
};

/* x = embedding(i); x = n2(x + down(relu(up(n(x))))); loss = cross_entropy(head(x), i) */
static void
write_graph(char *out, size_t cap, const struct run *r)
{
	char embed[400], block[1200] = "", head[600];

	snprintf(embed, sizeof embed, "memcrest-ir 1\ninput %%i : int64[%d, %d]\nparam %%e \"embed.weight\" : %s[%u, %d] trainable\n", BATCH, SEQ, r->dtype, r->vocab, HIDDEN);
	if (r->block)
		snprintf(block, sizeof block, "param %%nw \"n.weight\" : fp32[64] trainable\nparam %%nb \"n.bias\" : fp32[64] trainable\n"
		    "param %%uw \"up.weight\" : fp32[512, 64] trainable\nparam %%ub \"up.bias\" : fp32[512] trainable\n"
		    "param %%dw \"down.weight\" : fp32[64, 512] trainable\nparam %%db \"down.bias\" : fp32[64] trainable\n"
		    "param %%mw \"n2.weight\" : fp32[64] trainable\nparam %%mb \"n2.bias\" : fp32[64] trainable\n");
	snprintf(head, sizeof head, "param %%h \"head.weight\" : %s[%u, %d] trainable\n%%x : %s[%d, %d, %d] = embedding(%%e, %%i)\n", r->dtype, r->vocab, HIDDEN, r->dtype, BATCH, SEQ, HIDDEN);
	snprintf(out, cap, "%s%s%s%s%%y : %s[%d, %d, %u] = linear(%s, %%h)\n%%f : %s[%d, %u] = view(%%y, [%d, %u])\n%%t : int64[%d] = view(%%i, [%d])\n"
	    "%%l : %s[] = cross_entropy_loss(%%f, %%t)\noutput %%l\n", embed, block, head, !r->block ? "" :
	    "%a : fp32[2, 64, 64] = layer_norm(input=%x, normalized_shape=[64], weight=%nw, bias=%nb)\n%b : fp32[2, 64, 512] = linear(%a, %uw, %ub)\n"
	    "%c : fp32[2, 64, 512] = relu(%b)\n%k : fp32[2, 64, 64] = linear(%c, %dw, %db)\n%z : fp32[2, 64, 64] = add(%x, %k)\n"
	    "%m : fp32[2, 64, 64] = layer_norm(input=%z, normalized_shape=[64], weight=%mw, bias=%mb)\n", r->dtype, BATCH, SEQ, r->vocab, r->block ? "%m" : "%x",
	    r->dtype, TOKENS, r->vocab, TOKENS, r->vocab, TOKENS, TOKENS, r->dtype);
}

static void
check(const struct run *r)
{
	char graph[4000], recipe[300];
	struct analysed a;
	const struct phase_row *phases;

	write_graph(graph, sizeof graph, r);
	snprintf(recipe, sizeof recipe, "{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": %u, \"sequence_parallel\": %s, \"tp_library\": \"pytorch\"}}", r->ways, r->sequence ? "true" : "false");
	a = test_analyse(graph, recipe);
	phases = a.r->r.steps[2].phases;
	assert_int_equal(phases[PH_FORWARD].tensors, r->forward);
	assert_in_range(phases[PH_BACKWARD].tensors, r->backward - ROWS, r->backward);
	assert_int_equal(phases[PH_OPTIMIZER].at.of[FAC_GRAD], r->grad);
	release_analysis(a);
}

/* Grad: the head's rows of this rank, and all of the embedding's. The odd vocabulary leaves this rank 334 of 1,001 rows, and 251. */
static void
real_ranks(void **state)
{
	static const struct run runs[] = {
		{"fp32", 1000, 2, false, false, 1059328, 1318400, 384000},
		{"fp32", 1001, 3, false, false, 719360, 893440, 342016},
		{"bf16", 1000, 2, false, false, 1170944, 662016, 192000},
		{"fp32", 1000, 2, true, false, 1425408, 1684480, 518656},
		{"fp32", 1000, 2, true, true, 1392640, 1651712, 518656},
		{"fp32", 1001, 4, true, true, 735232, 866816, 389632},
	};

	(void)state;
	for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
		check(&runs[i]);
}

/* Megatron-LM's way: a gathered sequence is not kept, and the embedding's gradient is as large as the rank's rows. */
static void
libraries(void **state)
{
	static const struct run r = {"fp32", 1000, 2, true, true, 0, 0, 0};
	const uint64_t whole = TOKENS * HIDDEN * 4;
	char graph[4000], recipe[300];
	uint64_t end[2], grad[2];

	(void)state;
	write_graph(graph, sizeof graph, &r);
	for (unsigned k = 0; k < 2; k++) {
		struct analysed a;

		snprintf(recipe, sizeof recipe, "{\"optimizer\": \"sgd\", \"parallel\": {\"tp\": 2, \"sequence_parallel\": true, \"tp_library\": \"%s\"}}", k ? "pytorch" : "megatron");
		a = test_analyse(graph, recipe);
		end[k] = a.r->r.steps[2].forward_end;
		grad[k] = a.r->r.steps[2].phases[PH_OPTIMIZER].at.of[FAC_GRAD];
		release_analysis(a);
	}
	assert_int_equal(end[1] - end[0], 2 * (whole - whole / 2));
	assert_int_equal(grad[1] - grad[0], 500 * HIDDEN * 4);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensor_parallel), cmocka_unit_test(sequence_parallel), cmocka_unit_test(uneven_parts), cmocka_unit_test(odd_vocabulary),
		cmocka_unit_test(sequence_saved), cmocka_unit_test(real_tensor_parallel), cmocka_unit_test(divided_parameters), cmocka_unit_test(more_ranks_take_less),
		cmocka_unit_test(real_ranks), cmocka_unit_test(libraries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
