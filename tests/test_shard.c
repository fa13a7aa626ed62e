/*
 * One rank of many: tiny graphs with every byte derived by hand, and real ranks of DDP, DeepSpeed and FSDP2 (fixtures/truth/dist.tsv), whose
 * parameters, gradients and optimizer bytes at the peak of every phase must be ours to a thousandth of the peak, in two jobs to half a percent. Their activations
 * are those of CPU kernels and are not compared.
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* x fp32[128, 256], w fp32[512, 256], y = x w^T fp32[128, 512]; loss = sum(y) */
#define LINEAR "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\n" \
	"%y : fp32[128, 512] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n"

enum { X = 131072, W = 524288, Y = 262144, U = 512, BASE = X + W };

struct want {
	uint64_t forward, backward, optimizer;
};

static void
check(const char *recipe, const struct want *step1, const struct want *step2)
{
	struct analysed a = test_analyse(LINEAR, recipe);
	const struct want *want[] = {step1, step2};

	for (unsigned i = 0; i < 2; i++) {
		const struct step_row *st = &a.r->r.steps[i + 1];

		assert_int_equal(st->phases[PH_FORWARD].tensors, want[i]->forward);
		assert_int_equal(st->phases[PH_BACKWARD].tensors, want[i]->backward);
		assert_int_equal(st->phases[PH_OPTIMIZER].tensors, want[i]->optimizer);
	}
	release_analysis(a);
}

/* The bucket is as large as w and there all the time; the gradient is copied into it and stays. */
static void
ddp(void **state)
{
	const struct want w = {BASE + W + Y + U, BASE + W + U + U + W, BASE + W + W};

	(void)state;
	check("{\"optimizer\": \"sgd\", \"parallel\": {\"strategy\": \"ddp\", \"dp\": 2}}", &w, &w);
}

/* The gradient becomes a view of the bucket. */
static void
ddp_views(void **state)
{
	const struct want w = {BASE + W + Y + U, BASE + W + U + U + W, BASE + W};

	(void)state;
	check("{\"optimizer\": \"sgd\", \"parallel\": {\"strategy\": \"ddp\", \"dp\": 2, \"bucket_view\": true}}", &w, &w);
}

/*
 * ZeRO-2, two ranks: w is the flat buffer, half of it an fp32 master (M). Buckets of 1,024 elements are smaller than w, whose gradient is
 * reduced where autograd put it, each rank's slice on its own, being larger than a bucket; then it moves to the buffer of what touches
 * this part, which is all of it. The step: that buffer (W = 2 M) and the norm's fp64 copy of the part, 2 M; then the concatenated part, which is fp32
 * already, M; the buffer goes; AdamW's states, 2 M, and roots, M. So 4 M in step 1; in step 2, where the states are there, 6 M for the norm.
 */
static void
zero2(void **state)
{
	const uint64_t m = W / 2, b = 4096, base = BASE + m;
	const struct want one = {base + Y + U, base + b + W + W, base + m + 2 * m + m};
	const struct want two = {one.forward + 2 * m, one.backward + 2 * m, base + 6 * m};

	(void)state;
	check("{\"parallel\": {\"strategy\": \"zero2\", \"dp\": 2, \"reduce_bucket\": 1024}}", &one, &two);
}

/*
 * ZeRO-3, two ranks: the shard, the master and the gradients of this rank are M each. w is gathered for its operator, in forward and in backward,
 * and its gradient is reduced where it is. In step 2 w is known to come again and stays from forward to backward.
 */
static void
zero3(void **state)
{
	const uint64_t m = W / 2, b = 4096, base = X + 3 * m + b;
	const struct want one = {base + W + Y, base + W + 2 * U + W, base + m + 2 * m + m};
	const struct want two = {base + 2 * m + W + Y + U, one.backward + 2 * m, one.optimizer};

	(void)state;
	check("{\"parallel\": {\"strategy\": \"zero3\", \"dp\": 2, \"reduce_bucket\": 1024}}", &one, &two);
}

/*
 * FSDP2, two ranks, all in the root: the shard is M. w is gathered into a buffer and copied out of it; the buffer stays until the root's forward
 * is over, w until its backward is. Then its gradient is copied into the reduce-scatter's input and goes; the output, M, is the shard's .grad.
 */
static void
fsdp2(void **state)
{
	const uint64_t m = W / 2, base = X + m;
	const struct want one = {base + 2 * W + Y + U, base + W + 2 * U + W, base + m + 2 * m + m};
	const struct want two = {one.forward + 2 * m, one.backward + 2 * m, one.optimizer};

	(void)state;
	check("{\"parallel\": {\"strategy\": \"fsdp2\", \"dp\": 2}}", &one, &two);
}

/*
 * FSDP1: w is a view of the gathered flat parameter, which the root keeps. The view's gradient is copied into one of the flat parameter, while that is whole: three W, when the loss has gone.
 */
static void
fsdp1(void **state)
{
	const uint64_t m = W / 2, base = X + m;
	const struct want one = {base + W + Y + U, base + 3 * W, base + m + 2 * m + m};
	const struct want two = {one.forward + 2 * m, one.backward + 2 * m, one.optimizer};

	(void)state;
	check("{\"parallel\": {\"strategy\": \"fsdp1\", \"dp\": 2}}", &one, &two);
}

/* A real rank (torch 2.13, use_orig_params): the second forward begins with the flat gradients of the first step, 27,403,264 bytes, and all states. */
static void
fsdp1_keeps_flat_gradients(void **state)
{
	struct analysed a = test_analyse_file("fixtures/models/llama_tiny4.train.onnx",
	    "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"precision\": \"bf16-mixed\", \"parallel\": {\"strategy\": \"fsdp1\", \"dp\": 2}}");
	const struct phase_row *forward = &a.r->r.steps[2].phases[PH_FORWARD];

	(void)state;
	assert_int_equal(forward->at.of[FAC_GRAD], 27403264);
	assert_int_equal(forward->at.of[FAC_OPT], 54806528);
	assert_in_range(forward->tensors, 109616128 - 1024, 109616128);    /* less a buffer that the file lacks */
	release_analysis(a);
}

/*
 * Two more real ranks (torch 2.13, reduce_dtype=float32; ShardingStrategy.FULL_SHARD and SHARD_GRAD_OP): bytes at the highest point of every phase. In
 * backward that is when the flat gradient, its fp32 copy and the reduced shard are alive. The CPU's kernels make other small activations.
 */
static void
fsdp1_as_run(void **state)
{
	static const struct {
		const char *key;
		struct want step[2];
	} runs[] = {
		{"", {{49499648, 77317120, 137019392}, {109616128, 132123648, 137019392}}},
		{", \"reshard\": false", {{69398528, 83028992, 137019392}, {124205056, 137835520, 137019392}}},
	};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		char recipe[256];
		struct analysed a;

		snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"precision\": \"bf16-mixed\", \"parallel\": {\"strategy\": \"fsdp1\", \"dp\": 2, \"reduce_dtype\": \"fp32\"%s}}",
		    runs[i].key);
		a = test_analyse_file("fixtures/models/llama_tiny4.train.onnx", recipe);

		for (unsigned k = 0; k < 2; k++) {
			const struct phase_row *ph = a.r->r.steps[k + 1].phases;
			const struct want *w = &runs[i].step[k];

			assert_in_range(ph[PH_FORWARD].tensors, w->forward - w->forward / 10000, w->forward + w->forward / 10000);
			assert_in_range(ph[PH_BACKWARD].tensors, w->backward - w->backward / 10000, w->backward + w->backward / 10000);
			assert_in_range(ph[PH_OPTIMIZER].tensors, w->optimizer - w->optimizer / 10000, w->optimizer + w->optimizer / 10000);
		}
		release_analysis(a);
	}
}

/*
 * ZeRO-2 with the optimizer on the host: a scratch buffer as large as w is there all the time; masters, states and their gradients take 4 M
 * of the host's memory, and the step nothing of the device's.
 */
static void
offload_optimizer(void **state)
{
	const uint64_t m = W / 2, b = 4096, base = BASE + W;
	const struct want w = {base + Y + U, base + 2 * U + W + b, base};
	const char *recipe = "{\"parallel\": {\"strategy\": \"zero2\", \"dp\": 2, \"reduce_bucket\": 1024}, \"offload\": {\"optimizer\": true}}";
	struct analysed a = test_analyse(LINEAR, recipe);

	(void)state;
	check(recipe, &w, &w);
	assert_int_equal(a.r->r.host.of[FAC_OPT], 3 * m);
	assert_int_equal(a.r->r.host.of[FAC_GRAD], m);
	release_analysis(a);
}

/* linear saves x and w; x is copied to the host, w is a parameter. Backward copies x back before it makes w's gradient. */
static void
offload_activations(void **state)
{
	const struct want w = {BASE + Y + U, BASE + 2 * U + X + W, BASE + W};
	const char *recipe = "{\"optimizer\": \"sgd\", \"offload\": {\"activations\": true}}";
	struct analysed a = test_analyse(LINEAR, recipe);

	(void)state;
	check(recipe, &w, &w);
	assert_int_equal(factors_total(&a.r->r.host), X);
	release_analysis(a);
}

/* The 8-bit states of w, one byte an element each, are in managed memory: w has more than 100,000 elements. */
static void
paged_states(void **state)
{
	struct analysed a = test_analyse(LINEAR, "{\"optimizer\": \"paged-adamw-8bit\"}");
	const struct report *r = &a.r->r;

	(void)state;
	assert_int_equal(r->host_managed, 2 * W / 4);
	assert_int_equal(r->host.of[FAC_OPT], 2 * W / 4);
	assert_int_equal(r->nmoved, 1);
	assert_true(r->moved[0].managed);
	assert_int_equal(r->moved[0].bytes, 2 * W / 4);
	release_analysis(a);
}

/* What is on the host is said in whole, and of each thing when it moves. */
static void
moves(void **state)
{
	static const char *const recipes[] = {
		"{\"optimizer\": \"sgd\", \"offload\": {\"activations\": true}}",
		"{\"parallel\": {\"strategy\": \"zero1\", \"dp\": 2, \"reduce_bucket\": 1024}, \"offload\": {\"optimizer\": true}}",
		"{\"parallel\": {\"strategy\": \"zero2\", \"dp\": 2, \"reduce_bucket\": 1024}, \"offload\": {\"optimizer\": true, \"activations\": true}}",
		"{\"parallel\": {\"strategy\": \"zero3\", \"dp\": 2, \"reduce_bucket\": 1024}, \"offload\": {\"optimizer\": true, \"param\": true}}",
		"{\"parallel\": {\"strategy\": \"fsdp1\", \"dp\": 2}, \"offload\": {\"param\": true}}",
		"{\"parallel\": {\"strategy\": \"fsdp2\", \"dp\": 2}, \"offload\": {\"optimizer\": true}}",
		"{\"optimizer\": \"paged-adamw-8bit\", \"offload\": {\"activations\": true}}",
	};
	static const char *const formats[] = {"text", "json", "html", "xml", "md"};

	(void)state;
	for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
		struct analysed a = test_analyse(LINEAR, recipes[i]);
		const struct report *r = &a.r->r;
		uint64_t n = 0;

		for (uint32_t k = 0; k < r->nmoved; k++)
			n += r->moved[k].bytes;
		assert_true(n > 0);
		assert_int_equal(n, factors_total(&r->host));
		for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
			size_t size;
			char *text = test_write(a.r, formats[f], &size);

			assert_non_null(strstr(text, r->moved[0].what));
			free(text);
		}
		release_analysis(a);
	}
}

/* ---- combinations ------------------------------------------------------------------------------------------------- */

static uint64_t
peak_at(const char *strategy, unsigned seq, const char *parallel)
{
	char recipe[400];
	struct analysed a;
	uint64_t peak;

	snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 4, \"seq\": %u}, \"optimizer\": \"sgd\", \"parallel\": {\"strategy\": \"%s\", \"dp\": %u, \"reduce_bucket\": 100000, %s}}",
	    seq, strategy, strcmp(strategy, "none") ? 2u : 1u, parallel);
	a = test_analyse_file("fixtures/models/llama_tiny4.train.onnx", recipe);
	peak = a.r->r.steps[2].tensors;
	release_analysis(a);
	return peak;
}

static uint64_t
peak_of(const char *strategy, const char *parallel)
{
	return peak_at(strategy, 256, parallel);
}

/*
 * Every strategy with tensor and sequence parallelism and with a pipeline: each division of the ranks' work lowers the peak of what it divides. ZeRO-2 and 3
 * are refused by DeepSpeed's pipelines, FSDP1 is unknown to PyTorch's (fixtures/cli/pp_*.cmd have the sentences).
 */
static void
combinations(void **state)
{
	static const char *const strategies[] = {"none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};
	static const char *const others[] = {"\"tp\": 2", "\"tp\": 2, \"sequence_parallel\": true"};
	char recipe[300];

	(void)state;
	for (unsigned k = 0; k < 7; k++) {
		bool pipelines = k < 3 || k == 6;
		uint64_t alone = peak_of(strategies[k], "\"pp\": 1"), both;

		for (unsigned i = 0; i < 2; i++) {
			both = peak_of(strategies[k], others[i]);
			assert_true(both < alone);
			snprintf(recipe, sizeof recipe, "%s, \"pp\": 2", others[i]);
			if (pipelines)
				assert_true(peak_of(strategies[k], recipe) < both);
		}
		if (pipelines)
			assert_true(peak_of(strategies[k], "\"pp\": 2") < alone);
		if (pipelines)
			assert_true(peak_of(strategies[k], "\"pp\": 2, \"schedule\": \"gpipe\", \"microbatches\": 4") > peak_of(strategies[k], "\"pp\": 2, \"microbatches\": 4"));
	}
}

/* One rank of each kind, said or not, is a job without ranks. */
static void
one_rank(void **state)
{
	static const char *const said[] = {"\"tp\": 1", "\"pp\": 1", "\"dp\": 1", "\"tp\": 1, \"sequence_parallel\": false, \"vocab_multiple\": 128, \"tp_library\": \"pytorch\"",
	    "\"tp\": 1, \"pp\": 1, \"dp\": 1, \"strategy\": \"none\", \"schedule\": \"gpipe\", \"microbatches\": 4, \"chunks\": 3"};
	static const char *const jobs[] = {"\"optimizer\": \"adamw\"", "\"precision\": \"bf16-mixed\", \"checkpoint\": \"non-reentrant\", \"grad_accum\": 2"};
	char recipe[400];

	(void)state;
	for (size_t j = 0; j < 2; j++)
		for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
			struct analysed a, b;

			snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 2, \"seq\": 64}, %s}", jobs[j]);
			a = test_analyse_file("fixtures/models/llava_tiny.train.pt2", recipe);
			snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 2, \"seq\": 64}, %s, \"parallel\": {%s}}", jobs[j], said[i]);
			b = test_analyse_file("fixtures/models/llava_tiny.train.pt2", recipe);
			assert_int_equal(a.r->r.sched->nevent, b.r->r.sched->nevent);
			assert_memory_equal(a.r->r.sched->events, b.r->r.sched->events, a.r->r.sched->nevent * sizeof *a.r->r.sched->events);
			for (unsigned step = 1; step <= 2; step++)
				assert_memory_equal(&a.r->r.steps[step].phases[PH_BACKWARD].at, &b.r->r.steps[step].phases[PH_BACKWARD].at, sizeof(struct factors));
			assert_int_equal(a.r->r.memory.reserved, b.r->r.memory.reserved);
			release_analysis(a);
			release_analysis(b);
		}
}

/* More stages, and more data-parallel ranks in each, never take more. */
static void
more_stages_take_less(void **state)
{
	static const char *const strategies[] = {"none", "ddp", "zero1", "fsdp2"};
	static const char *const schedules[] = {"1f1b", "gpipe"};

	(void)state;
	for (size_t k = 0; k < 4; k++)
		for (size_t i = 0; i < 2; i++) {
			uint64_t least = UINT64_MAX;

			for (unsigned stages = 1; stages <= 4; stages *= 2) {
				char parallel[100];
				uint64_t peak;

				snprintf(parallel, sizeof parallel, "\"pp\": %u, \"schedule\": \"%s\", \"microbatches\": 4, \"tp\": 2", stages, schedules[i]);
				peak = peak_at(strategies[k], 16, parallel);
				if (peak >= least)
					fail_msg("%s, %s: %llu bytes in %u stages, %llu in half as many", strategies[k], schedules[i], (unsigned long long)peak, stages, (unsigned long long)least);
				least = peak;
			}
		}
}

/* LLaVA-1.5-7B, vision tower frozen: 6,759,919,616 parameters train; two bytes each in the flat buffer, twelve by the number of ranks on each. */
static void
founding_states(void **state)
{
	const uint64_t n = 6759919616, frozen = 303507456ull * 2;
	struct analysed a;
	char recipe[300];

	(void)state;
	for (uint64_t ways = 1; ways <= 8; ways *= 2) {
		snprintf(recipe, sizeof recipe, "{\"freeze\": [\"model.vision_tower\"], \"dims\": {\"batch\": 8, \"seq\": 2048}, "
		    "\"parallel\": {\"strategy\": \"zero2\", \"dp\": %u}}", (unsigned)ways);
		a = test_analyse_file("fixtures/models/llava_7b.train.bf16.stack.pt2", recipe);
		assert_int_equal(a.r->r.steps[2].phases[PH_FORWARD].at.of[FAC_OPT], 12 * n / ways);
		assert_in_range(a.r->r.steps[2].phases[PH_FORWARD].at.of[FAC_PARAM], 2 * n + frozen, 2 * n + frozen + 512 * 1024);
		assert_int_equal(a.r->r.param_trainable, n);
		release_analysis(a);
	}
}

/* ---- real ranks -------------------------------------------------------------------------------------------------- */

/* Within half a percent of the peak; says whether within a thousandth, too. */
static bool
compare(const char *job, const struct step_row *st, unsigned phase, const uint64_t want[4])
{
	const struct phase_row *p = &st->phases[phase];
	bool close = true;
	const uint64_t got[3] = {p->at.of[FAC_PARAM], p->at.of[FAC_GRAD], p->at.of[FAC_OPT] + p->step_work};

	for (unsigned k = 0; k < 3; k++) {
		uint64_t off = got[k] > want[k + 1] ? got[k] - want[k + 1] : want[k + 1] - got[k];

		close &= off * 1000 <= want[0];
		if (off * 200 > want[0])
			fail_msg("%s, %s: factor %u is %llu, of the real rank %llu", job, phase_name(phase), k, (unsigned long long)got[k], (unsigned long long)want[k + 1]);
	}
	return close;
}

static bool
real_rank(char *line)
{
	char *save = NULL, *model = strtok_r(line, "\t", &save), *job = strtok_r(NULL, "\t", &save), *recipe = strtok_r(NULL, "\t", &save);
	char path[200];
	struct analysed a;
	bool close = true;

	assert_non_null(recipe);
	snprintf(path, sizeof path, "fixtures/models/%s", model);
	a = test_analyse_file(path, recipe);
	for (unsigned i = 0; i < 6; i++) {
		unsigned long long n[4];
		char *text = strtok_r(NULL, "\t", &save);

		assert_non_null(text);
		assert_int_equal(sscanf(text, "%llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3]), 4);
		close &= compare(job, &a.r->r.steps[1 + i / 3], PH_FORWARD + i % 3, (const uint64_t[]){n[0], n[1], n[2], n[3]});
	}
	release_analysis(a);
	return close;
}

static void
real_ranks(void **state)
{
	size_t n;
	char *text = test_read("fixtures/truth/dist.tsv", &n), *save = NULL;
	unsigned jobs = 0, far = 0;

	(void)state;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (line[0] != '#') {
			far += !real_rank(line);
			jobs++;
		}
	assert_true(jobs >= 88);
	assert_true(far <= 2);     /* ZeRO-3 with accumulation over a frozen or unused part, in the first step */
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ddp), cmocka_unit_test(ddp_views), cmocka_unit_test(zero2), cmocka_unit_test(zero3), cmocka_unit_test(fsdp1), cmocka_unit_test(fsdp1_keeps_flat_gradients), cmocka_unit_test(fsdp1_as_run), cmocka_unit_test(fsdp2),
		cmocka_unit_test(offload_optimizer), cmocka_unit_test(offload_activations), cmocka_unit_test(paged_states), cmocka_unit_test(moves), cmocka_unit_test(founding_states),
		cmocka_unit_test(combinations), cmocka_unit_test(one_rank), cmocka_unit_test(more_stages_take_less),
		cmocka_unit_test(real_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
