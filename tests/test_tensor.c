/*
 * Tensor parallelism beside PyTorch's own: torch.distributed.tensor.parallel of 2.13 on its fake process group (ColwiseParallel, RowwiseParallel,
 * SequenceParallel, loss_parallel), live storages rounded to 512 bytes, in the second of two SGD steps. Forward is equal to the byte; backward
 * but for the loss's masks of one row each, 2,560 bytes.
 */
#include "test.h"

#include <stdio.h>
#include <string.h>

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
	const struct CMUnitTest tests[] = {cmocka_unit_test(real_ranks), cmocka_unit_test(libraries)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
