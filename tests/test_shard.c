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
 * FSDP1: w is a view of the gathered flat parameter, which the root keeps. The view's gradient is copied into one of the flat parameter.
 */
static void
fsdp1(void **state)
{
	const uint64_t m = W / 2, base = X + m;
	const struct want one = {base + W + Y + U, base + W + 2 * U + W, base + m + 2 * m + m};
	const struct want two = {one.forward + 2 * m, one.backward + 2 * m, one.optimizer};

	(void)state;
	check("{\"parallel\": {\"strategy\": \"fsdp1\", \"dp\": 2}}", &one, &two);
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

/* ---- tensor parallelism ------------------------------------------------------------------------------------------- */

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

static uint64_t
peak_of(const char *strategy, const char *parallel)
{
	char recipe[400];
	struct analysed a;
	uint64_t peak;

	snprintf(recipe, sizeof recipe, "{\"dims\": {\"batch\": 4, \"seq\": 256}, \"optimizer\": \"sgd\", \"parallel\": {\"strategy\": \"%s\", \"dp\": %u, \"reduce_bucket\": 100000, %s}}",
	    strategy, strcmp(strategy, "none") ? 2u : 1u, parallel);
	a = test_analyse_file("fixtures/models/llama_tiny4.train.onnx", recipe);
	peak = a.r->r.steps[2].tensors;
	release_analysis(a);
	return peak;
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
	assert_true(jobs >= 79);
	assert_true(far <= 2);     /* ZeRO-3 with accumulation over a frozen or unused part, in the first step */
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ddp), cmocka_unit_test(ddp_views), cmocka_unit_test(zero2), cmocka_unit_test(zero3), cmocka_unit_test(fsdp1), cmocka_unit_test(fsdp2),
		cmocka_unit_test(offload_optimizer), cmocka_unit_test(offload_activations), cmocka_unit_test(founding_states),
		cmocka_unit_test(tensor_parallel), cmocka_unit_test(sequence_parallel), cmocka_unit_test(uneven_parts), cmocka_unit_test(odd_vocabulary), cmocka_unit_test(sequence_saved), cmocka_unit_test(real_tensor_parallel), cmocka_unit_test(divided_parameters),
		cmocka_unit_test(more_ranks_take_less), cmocka_unit_test(combinations),
		cmocka_unit_test(real_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
