/*
 * What published measurements have in common (the identities I1 to I20 of the collection of field points), as far as they concern one device:
 * bytes a parameter by kind of training, and what does and does not change the peak. Those of several ranks and of modules_to_save
 * belong to the parts that model them.
 */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA "fixtures/models/llama_tiny.train.pt2"
#define LLAVA "fixtures/models/llava_tiny.train.pt2"
#define LLAVA_7B "fixtures/models/llava_7b.train.bf16.stack.pt2"

struct numbers {
	uint64_t peak, trainable, params;
	struct factors steady;     /* at the highest point of step 2's optimizer phase */
	struct step_row steps[3];
};

static struct numbers
of(const char *model, const char *recipe)
{
	struct analysed a = test_analyse_file(model, recipe);
	struct numbers n = {mc_report_peak(a.r), a.r->r.param_trainable, a.r->r.param_count, a.r->r.steps[2].phases[PH_OPTIMIZER].at, {{0}}};

	memcpy(n.steps, a.r->r.steps, sizeof n.steps);
	release_analysis(a);
	return n;
}

static void
within(const char *what, double got, double want, double share)
{
	if (fabs(got - want) > share * fabs(want))
		fail_msg("%s: %.4f, expected %.4f within %.2f %%", what, got, want, 100 * share);
}

static double
state(const struct numbers *n)
{
	return (double)(n->steady.of[FAC_PARAM] + n->steady.of[FAC_GRAD] + n->steady.of[FAC_OPT]);
}

#define LORA(rank, dtype) "{\"precision\": \"bf16\", \"dims\": {\"batch\": 2, \"seq\": 64}, \"lora\": {\"r\": " #rank ", \"targets\": \".*language_model.*[qv]_proj\", \"dtype\": \"" dtype "\"}}"

/* Adapters on the language model alone: those of CLIP's last layer are never reached and get neither gradient nor state. */
/* I1, I2: an fp32 adapter costs 16 bytes a parameter: 4 weight, 4 gradient, 8 Adam. The base, at 2 bytes, does not change. */
static void
adapter_bytes(void **unused)
{
	struct numbers a = of(LLAVA_7B, LORA(32, "fp32")), b = of(LLAVA_7B, LORA(64, "fp32"));

	(void)unused;
	assert_int_equal(b.trainable, 2 * a.trainable);
	within("bytes an adapter parameter", (state(&b) - state(&a)) / (double)(b.trainable - a.trainable), 16, 0.001);
	within("base and adapters", state(&a), 2 * (double)(a.params - a.trainable) + 16 * (double)a.trainable, 0.001);
}

/* I13: in bf16 the adapters' Adam states are 4 bytes a parameter. */
static void
adapter_states_in_bf16(void **unused)
{
	struct numbers n = of(LLAVA_7B, LORA(64, "bf16"));

	(void)unused;
	within("states", (double)n.steady.of[FAC_OPT] / (double)n.trainable, 4, 0.001);
}

/* I3: pure bf16 with AdamW is 8 bytes a parameter after the step. */
static void
pure_bf16(void **unused)
{
	struct numbers n = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 64}}");

	(void)unused;
	within("bytes a parameter", state(&n) / (double)n.trainable, 8, 0.01);     /* CLIP's last layer trains but is not reached: no gradient, no state */
}

/* I4: fp32 AdamW with foreach peaks at 20 bytes a parameter when activations are tiny. I5: 16 without its list of square roots. */
static void
foreach_peak(void **unused)
{
	struct numbers foreach = of(LLAVA_7B, "{\"precision\": \"fp32\", \"dims\": {\"batch\": 2, \"seq\": 64}}");
	struct numbers loop = of(LLAVA_7B, "{\"precision\": \"fp32\", \"dims\": {\"batch\": 2, \"seq\": 64}, \"optimizer_impl\": \"forloop\"}");

	(void)unused;
	within("foreach", (double)foreach.peak / (double)foreach.trainable, 20, 0.01);
	within("for-loop", (double)loop.steps[2].phases[PH_OPTIMIZER].tensors / (double)loop.trainable, 16, 0.02);
}

#define STATES(dtype, optimizer) "{\"dims\": {\"batch\": 2, \"seq\": 64}, \"precision\": \"" dtype "\", \"optimizer\": \"" optimizer "\"}"

/* I6: two states of a byte and a block's two absmax for 256 parameters, in place of 2 x 4 or, in a bf16 model, 2 x 2 bytes. */
static void
states_in_8_bits(void **unused)
{
	static const struct {
		const char *plain, *short_states;
		double saved;
	} rows[] = {
		{STATES("fp32", "adamw"), STATES("fp32", "adamw-8bit"), 8 - 2 - 8 / 256.},
		{STATES("bf16", "adamw"), STATES("bf16", "adamw-8bit"), 4 - 2 - 8 / 256.},
	};

	(void)unused;
	for (unsigned i = 0; i < 2; i++) {
		struct numbers a = of(LLAVA_7B, rows[i].plain), b = of(LLAVA_7B, rows[i].short_states);

		within("bytes saved", (double)(a.steady.of[FAC_OPT] - b.steady.of[FAC_OPT]) / (double)a.trainable, rows[i].saved, 0.01);
	}
}

/* I7: a row and a column for each matrix in place of Adam's 8 bytes a parameter. */
static void
factored_states(void **unused)
{
	struct numbers a = of(LLAVA_7B, STATES("fp32", "adamw")), b = of(LLAVA_7B, STATES("fp32", "adafactor"));

	(void)unused;
	within("bytes saved", (double)(a.steady.of[FAC_OPT] - b.steady.of[FAC_OPT]) / (double)a.trainable, 8, 0.01);
}

/* I11: a causal language model's loss head holds the logits in fp32 and their gradient: twice 4 bytes a token and word. */
static void
logits(void **unused)
{
	struct analysed a = test_analyse_file(LLAVA_7B, "{\"dims\": {\"batch\": 8, \"seq\": 2048}, \"freeze\": [\"model.vision_tower\"]}");
	const uint64_t one = (uint64_t)4 * 8 * 2048 * 32064;
	unsigned n = 0;

	(void)unused;
	for (uint32_t i = 0; i < a.r->r.nlive; i++) {
		const struct storage *s = &a.r->r.sched->storages[a.r->r.live[i].storage];

		n += s->nbytes == one && s->geom->dtype == DT_FP32;
	}
	assert_true(n >= 2);
	release_analysis(a);
}

/* I14: with flash attention and checkpointing memory depends on tokens, not on how they are cut into sequences. */
static void
tokens_count(void **unused)
{
	struct numbers a = of(LLAMA, "{\"precision\": \"bf16\", \"checkpoint\": \"non-reentrant\", \"dims\": {\"batch\": 16, \"seq\": 64}}");
	struct numbers b = of(LLAMA, "{\"precision\": \"bf16\", \"checkpoint\": \"non-reentrant\", \"dims\": {\"batch\": 2, \"seq\": 512}}");

	(void)unused;
	within("16 x 64 against 2 x 512", (double)a.peak, (double)b.peak, 0.02);
}

static double
eager_costs(const char *checkpoint)
{
	char recipe[256];
	struct numbers eager, flash;

	snprintf(recipe, sizeof recipe, "{\"attention\": \"eager\", \"optimizer\": \"sgd\", \"dims\": {\"batch\": 2, \"seq\": 1024}, \"freeze\": [\"model.vision_tower\"], \"checkpoint\": %s}", checkpoint);
	eager = of(LLAVA_7B, recipe);
	snprintf(recipe, sizeof recipe, "{\"optimizer\": \"sgd\", \"dims\": {\"batch\": 2, \"seq\": 1024}, \"freeze\": [\"model.vision_tower\"], \"checkpoint\": %s}", checkpoint);
	flash = of(LLAVA_7B, recipe);
	return ((double)eager.peak - (double)flash.peak) / (double)flash.peak;
}

/* I15: checkpointing hides the attention matrix: one layer's instead of all 32. */
static void
checkpointing_hides_attention(void **unused)
{
	double with = eager_costs("\"non-reentrant\""), without = eager_costs("false");

	(void)unused;
	assert_true(without > 0.3);
	assert_true(with < 0.05);
}

/* I16: gradient accumulation is free on one device when gradients are few. */
static void
accumulation_is_free(void **unused)
{
	struct numbers one = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 1024}, \"lora\": {\"r\": 8, \"targets\": \"all-linear\"}}");
	struct numbers eight = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 1024}, \"lora\": {\"r\": 8, \"targets\": \"all-linear\"}, \"grad_accum\": 8}");

	(void)unused;
	within("eight micro-batches", (double)eight.peak, (double)one.peak, 0.01);
}

/* I17: optimizer states appear in step(): what step 2's backward holds more than step 1's is them. */
static void
states_come_late(void **unused)
{
	struct numbers n = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 1024}, \"lora\": {\"r\": 64, \"targets\": \"all-linear\"}}");

	(void)unused;
	assert_int_equal(n.steps[1].phases[PH_BACKWARD].at.of[FAC_OPT], 0);
	assert_int_equal(n.steps[2].phases[PH_BACKWARD].tensors - n.steps[1].phases[PH_BACKWARD].tensors, n.steps[2].phases[PH_BACKWARD].at.of[FAC_OPT]);
}

/* I18: the rank of adapters hardly matters. */
static void
rank_hardly_matters(void **unused)
{
	struct numbers a = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 1024}, \"lora\": {\"r\": 2, \"targets\": \".*language_model.*[qv]_proj\"}}");
	struct numbers b = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 1024}, \"lora\": {\"r\": 64, \"targets\": \".*language_model.*[qv]_proj\"}}");

	(void)unused;
	within("rank 2 against 64", (double)b.peak, (double)a.peak, 0.03);
	assert_true(b.peak > a.peak);
}

/* I20: adapters do not remove activations: on the MLP they keep more than on q and v, at equal size (3 x 15,104 x 17 against 2 x 8,192 x 47 a layer). */
static void
targets_matter(void **unused)
{
	struct numbers qv = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 1024}, \"lora\": {\"r\": 47, \"targets\": \".*language_model.*[qv]_proj\"}}");
	struct numbers mlp = of(LLAVA_7B, "{\"dims\": {\"batch\": 2, \"seq\": 1024}, \"lora\": {\"r\": 17, \"targets\": \".*language_model.*(gate|up|down)_proj\"}}");

	(void)unused;
	within("adapters", (double)mlp.trainable, (double)qv.trainable, 0.001);
	assert_true(mlp.peak > qv.peak + qv.peak / 20);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adapter_bytes), cmocka_unit_test(adapter_states_in_bf16), cmocka_unit_test(pure_bf16), cmocka_unit_test(foreach_peak),
		cmocka_unit_test(states_in_8_bits), cmocka_unit_test(factored_states), cmocka_unit_test(logits), cmocka_unit_test(tokens_count), cmocka_unit_test(checkpointing_hides_attention), cmocka_unit_test(accumulation_is_free),
		cmocka_unit_test(states_come_late), cmocka_unit_test(rank_hardly_matters), cmocka_unit_test(targets_matter),
	};

	return cmocka_run_group_tests_name("identities", tests, NULL, NULL);
}
