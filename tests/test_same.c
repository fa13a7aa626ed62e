/*
 * One model, several files, one answer: exports of the same model by torch.export, torch.jit.trace and the ONNX exporter under the same
 * recipe give the same peak, factors and modalities within 0.2 %, the same phase and the same parameters; after run_decompositions() to the byte.
 * soft.* and net.* are one model each, written by torch 2.1, 2.3, 2.5, 2.7 and 2.13; Dynamo's stack traces, of the older ones, leave frames out, which
 * moves what adapters hold.
 * decomposed.pt2 has recurrent layers of all kinds, weight_norm, and writes in place: into values, into views of them, by index and by mask.
 */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOWER "\"freeze\": [\"*model.vision_tower.*\"]"
#define ADAPTERS "\"lora\": {\"r\": 8, \"targets\": \"all-linear\"}"

static const struct pair {
	const char *dims, *a, *b;
	double share;              /* of the peak, by which they may differ */
	const char *only;          /* precision of the recipes; NULL = all */
} pairs[] = {
	{"", "decomposed.pt2", "decomposed.core.pt2", 0, NULL},
	{"", "soft.torch213.pt2", "soft.torch21.pt2", 0, "fp32"},        /* schema 1; a constant is a buffer there, which follows the precision */
	{"\"batch\": 4", "net.torch213.pt2", "net.torch23.pt2", 0, NULL},        /* schema 5, without requires_grad */
	{"\"batch\": 4", "net.torch213.pt2", "net.torch25.pt2", 0, NULL},        /* schema 7, and Python's -Infinity */
	{"\"batch\": 4", "net.torch213.pt2", "net.torch27.pt2", 0, NULL},        /* the last of that layout */
	{"\"batch\": 2, \"seq\": 24", "toy_vlm.train.pt2", "toy_vlm.core.pt2", 0, NULL},
	{"\"batch\": 2, \"seq\": 64", "llama_tiny.train.pt2", "llama_tiny.core.pt2", 0, NULL},
	{"\"batch\": 2, \"seq\": 32", "llava_tiny.train.pt2", "llava_tiny.train.pt", 0.002, NULL},
	{"\"batch\": 2, \"seq\": 32", "llava_tiny.train.pt2", "llava_tiny.train.onnx", 0.002, NULL},
	{"\"batch\": 2, \"seq\": 24", "toy_vlm.train.pt2", "toy_vlm.train.onnx", 0.002, NULL},
	{"\"batch\": 2, \"seq\": 64", "llama_tiny.train.pt2", "llama_tiny.train.opset23.onnx", 0.002, NULL},
};

static const char *const recipes[] = {
	"\"precision\": \"fp32\"",
	"\"precision\": \"bf16\"",
	"\"precision\": \"bf16-mixed\"",
	"\"precision\": \"fp16-mixed\", \"optimizer\": \"sgd\"",
	"\"precision\": \"fp32\", \"keep_outputs\": true",
	"\"precision\": \"bf16-mixed\", \"keep_outputs\": true",
	"\"precision\": \"bf16\", " ADAPTERS,
	"\"precision\": \"bf16-mixed\", " ADAPTERS,
	"\"precision\": \"fp32\", " TOWER,
	"\"precision\": \"bf16-mixed\", " TOWER,
	"\"precision\": \"fp32\", \"checkpoint\": \"non-reentrant\"",
	"\"precision\": \"bf16-mixed\", \"checkpoint\": \"reentrant\", \"keep_outputs\": true",
	"\"precision\": \"fp32\", \"grad_accum\": 2",
	"\"precision\": \"fp32\", \"attention\": \"eager\"",
};

static void
within(const struct pair *p, const char *recipe, const char *what, uint64_t a, uint64_t b, uint64_t peak)
{
	if (fabs((double)a - (double)b) > p->share * (double)peak)
		fail_msg("%s, %s: %s %llu, elsewhere %llu", p->b, recipe, what, (unsigned long long)b, (unsigned long long)a);
}

static uint64_t
total(const struct factors *f)
{
	return f->of[FAC_PARAM] + f->of[FAC_GRAD] + f->of[FAC_OPT] + factors_act(f);
}

static void
compare(const struct pair *p, const char *recipe)
{
	char text[512], path[128];
	struct analysed a, b;
	uint64_t peak;

	snprintf(text, sizeof text, "{%s, \"dims\": {%s}}", recipe, p->dims);
	snprintf(path, sizeof path, "fixtures/models/%s", p->a);
	a = test_analyse_file(path, text);
	snprintf(path, sizeof path, "fixtures/models/%s", p->b);
	b = test_analyse_file(path, text);
	peak = mc_report_peak(a.r);
	within(p, recipe, "peak", peak, mc_report_peak(b.r), peak);
	for (unsigned s = 1; s <= 2; s++)
		if (a.r->r.steps[s].phase != b.r->r.steps[s].phase)
			fail_msg("%s, %s: step %u peaks in %s", p->b, recipe, s, phase_name(b.r->r.steps[s].phase));
	assert_int_equal(a.r->r.param_count, b.r->r.param_count);
	for (unsigned m = MOD_NONE + 1; m < MOD_COUNT; m++)
		within(p, recipe, modality_name(m), total(&a.r->r.modalities[m].at), total(&b.r->r.modalities[m].at), peak);
	release_analysis(a);
	release_analysis(b);
}

static void
one_answer(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
		for (size_t k = 0; k < sizeof recipes / sizeof recipes[0]; k++)
			if ((!pairs[i].only || strstr(recipes[k], pairs[i].only)) && (!strstr(recipes[k], "vision_tower") || strstr(pairs[i].a, "llava")))
				compare(&pairs[i], recipes[k]);
}

/* Z = 128 x 512 fp32. What a module gives to the outermost frame of a file without stack traces, beside two relus of the same size. */
static uint64_t
forward_of(const char *scope, const char *cls)
{
	char text[1024];
	struct analysed a;
	uint64_t peak;

	snprintf(text, sizeof text, "memcrest-ir 1\ninput %%x : fp32[128, 512]\nparam %%w \"%s.0.weight\" : fp32[512, 512] trainable\n"
	    "param %%v \"head.weight\" : fp32[1, 512] trainable\n%%h : fp32[128, 512] = linear(%%x, %%w) @\"%s\":\"%s\"/\"%s.0\":\"Linear\"\n"
	    "%%b : fp32[128, 512] = gelu(%%h) @\"%s\":\"%s\"/\"%s.1\":\"GELU\"\n%%c : fp32[128, 512] = relu(%%b)\n%%d : fp32[128, 512] = relu(%%c)\n"
	    "%%e : fp32[128, 1] = linear(%%d, %%v) @\"head\":\"Linear\"\n%%l : fp32[] = sum(%%e)\noutput %%l\n", scope, scope, cls, scope, scope, cls, scope);
	a = test_analyse(text, "{\"optimizer\": \"sgd\", \"train_only\": [\"head\"]}");
	peak = a.r->r.steps[1].phases[PH_FORWARD].tensors;
	release_analysis(a);
	return peak;
}

/* outputs = self.encoder(x) outlives the relus: b, c, d. x = self.stem(x) and x = block(x) do not: c, d. */
static void
who_holds_a_result(void **unused)
{
	const uint64_t z = 128 * 512 * 4;
	uint64_t named = forward_of("encoder", "Encoder");

	(void)unused;
	assert_int_equal(named - forward_of("stem", "torch.nn.modules.container.Sequential"), z);
	assert_int_equal(named - forward_of("blocks.0", "Block"), z);
}

/* nn.Upsample(scale_factor=2) in a script. */
static void
whole_scale_factors(void **unused)
{
	static const char *const factors[] = {"[float(2), float(2)]", "[2, 2]"};
	uint64_t peak[2];

	(void)unused;
	for (unsigned i = 0; i < 2; i++) {
		char text[512];
		struct analysed a;

		snprintf(text, sizeof text, "memcrest-ir 1\ninput %%x : fp32[2, 3, 16, 16]\nparam %%w \"w\" : fp32[3, 1, 1] trainable\n%%y = mul(%%x, %%w)\n"
		    "%%u = upsample_linear(%%y, scale_factors=%s)\n%%l = sum(%%u)\noutput %%l\n", factors[i]);
		a = test_analyse(text, "{}");
		peak[i] = mc_report_peak(a.r);
		release_analysis(a);
	}
	assert_int_equal(peak[0], peak[1]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(one_answer), cmocka_unit_test(who_holds_a_result), cmocka_unit_test(whole_scale_factors)};

	return cmocka_run_group_tests_name("same", tests, NULL, NULL);
}
