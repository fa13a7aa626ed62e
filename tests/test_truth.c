/*
 * The truth tool's runs of real PyTorch (fixtures/truth, torch 2.13) against exports of the same models: peaks of every phase
 * and the end of forward to the byte; the events of both steps to the share that is stated, each run of releases sorted.
 */
#include "events.h"
#include "test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const struct job {
	const char *file, *prefix; /* prefix: of module names, where the exporter wrapped the model */
	const char *truth;
	unsigned differ;           /* events missing or too many: the order of 512-byte counters */
	bool has_log;
	bool peak_only;            /* what the trace does not return does not live as long as in the truth: phases below the peak are lower */
} jobs[] = {
	{"toy_vlm.train.onnx", "", "toy_vlm--fp32", 0, true, false},
	{"toy_vlm.train.onnx", "", "toy_vlm--bf16-sgd-momentum", 0, true, false},
	{"toy_vlm.train.onnx", "", "toy_vlm--vision-frozen-mixed", 0, true, false},
	{"toy_vlm.train.pt2", "", "toy_vlm--fp32", 0, true, false},
	{"toy_vlm.train.pt2", "", "toy_vlm--bf16-sgd-momentum", 0, true, false},
	{"toy_vlm.train.pt2", "", "toy_vlm--vision-frozen-mixed", 0, true, false},
	{"llama_tiny.train.pt2", "", "llama_tiny--fp32", 0, true, false},
	{"llama_tiny.train.pt2", "", "llama_tiny--bf16-b4", 0, true, false},
	{"llama_tiny.train.pt2", "", "llama_tiny--eager-fp32", 0, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--stage2-fp32", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--stage1-fp32-sgd", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--stage2-mixed", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--full-bf16", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--full-fp16-mixed", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--eager-fp32", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--ckpt-mixed", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--ckpt-reentrant", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--lora8", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--s32-stage2", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--s32-full-mixed", 20, true, false},
	{"llava_tiny.train.pt2", "", "llava_tiny--s32-full-adamw", 20, true, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage1-bf16", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage2-bf16", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage2-mixed", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage2-ckpt-mixed-fused", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage1-ckpt-fused", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--lora128-all-ckpt", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--lora16-fused", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--head-only", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--accum4", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--eager-bf16", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--fp32-forloop", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--full-bf16-sgd", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--b1-s64-stage1-mixed", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage2-ckpt", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage2-bf16-fp32-picture", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--stage2-bf16-b1", 0, false, false},
	{"llava_7b.train.bf16.stack.pt2", "", "llava_7b--b1-s64-fp32", 0, false, false},
	{"autocast.pt2", "", "autocast--fp32", 0, true, false},       /* regions of the model's own, one that casts and one that does not */
	{"autocast.pt2", "", "autocast--bf16-mixed", 0, true, false},
	{"attention_mask.pt2", "", "attention_mask--bf16", 4, true, false},   /* PyTorch's own module keeps a causal mask; the last releases of forward stand one allocation later */
	{"joined.pt2", "", "joined--bf16-mixed", 0, true, false},           /* a parameter joined in a function without lines; an object that keeps what its reader converts */
	{"joined.pt2", "", "joined--bf16-math", 0, true, false},            /* a contiguous() that the exporter's kernel for attention made unnecessary */
	{"../twins/pictures.pt2", "", "pictures--bf16-mixed", 4, true, false},        /* a mask that is causal but inside of a picture; two releases are earlier */
	/* after run_decompositions(), and run_decompositions({}) */
	{"llama_tiny.core.pt2", "", "llama_tiny--fp32", 0, true, false},
	{"llama_tiny.core.pt2", "", "llama_tiny--bf16-b4", 0, true, false},
	{"llama_tiny.core.pt2", "", "llama_tiny--eager-fp32", 0, true, false},
	{"toy_vlm.core.pt2", "", "toy_vlm--fp32", 0, true, false},
	{"toy_vlm.core.pt2", "", "toy_vlm--bf16-sgd-momentum", 0, true, false},
	{"toy_vlm.core.pt2", "", "toy_vlm--vision-frozen-mixed", 0, true, false},
	{"toy_vlm.stripped.pt2", "", "toy_vlm--bf16-sgd-momentum", 0, false, false},       /* nodes do not say their origin */
	{"toy_vlm.stripped.pt2", "", "toy_vlm--vision-frozen-mixed", 0, false, true},
	{"inplace_views.functional.pt2", "", "inplace_views--fp32", 0, true, false},
	{"inplace_views.functional.pt2", "", "inplace_views--bf16", 0, true, false},
	{"llava_tiny.train.pt", "model.", "llava_tiny--s32-full-adamw", 0, false, true},
	{"llava_tiny.train.pt", "model.", "llava_tiny--s32-full-mixed", 0, false, true},
	{"llava_tiny.train.pt", "model.", "llava_tiny--s32-stage2", 0, false, true},
	{"gpt2.train.pt", "model.", "gpt2--s256-fp32", 0, false, false},
	{"gpt2.train.pt", "model.", "gpt2--s256-bf16", 0, false, false},
	{"traced_locals.pt", "model.", "traced_locals--head", 0, true, false},       /* the peak is in forward, with what its locals hold */
	{"traced_locals.pt", "model.", "traced_locals--mixed-sgd", 0, true, false},
};

static void
add_prefix(json_t *patterns, const char *prefix)
{
	for (size_t i = 0; i < json_array_size(patterns); i++)
		json_array_set_new(patterns, i, json_sprintf("%s%s", prefix, json_string_value(json_array_get(patterns, i))));
}

/* The truth's recipe, with batch and seq as dims unless the file's are fixed. */
static char *
recipe_of(json_t *truth, const char *prefix, bool fixed)
{
	json_t *r = json_deep_copy(json_object_get(truth, "recipe")), *dims = json_object();
	const char *const size[] = {"batch", "seq"};
	char *text;

	add_prefix(json_object_get(r, "freeze"), prefix);
	add_prefix(json_object_get(r, "train_only"), prefix);

	for (unsigned i = 0; i < 2; i++)
		if (json_object_get(r, size[i])) {
			json_object_set(dims, size[i], json_object_get(r, size[i]));
			json_object_del(r, size[i]);
		}
	if (fixed)
		json_decref(dims);
	else
		json_object_set_new(r, "dims", dims);
	text = json_dumps(r, 0);
	json_decref(r);
	return text;
}

static uint64_t
number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void
compare_step(const struct job *job, const struct step_row *got, const json_t *want, unsigned step)
{
	const json_t *phases = json_object_get(want, "phases"), *f = json_object_get(want, "factors");
	const struct factors *at = &got->phases[got->phase].at;

	for (unsigned p = PH_FORWARD; p < PH_COUNT; p++)
		if (got->phases[p].tensors != number(phases, phase_name(p)) && (p == got->phase || !job->peak_only))
			fail_msg("%s step %u %s: %llu, truth %llu", job->truth, step, phase_name(p), (unsigned long long)got->phases[p].tensors,
			    (unsigned long long)number(phases, phase_name(p)));
	assert_int_equal(got->forward_end, number(want, "forward_end_bytes"));
	assert_string_equal(phase_name(got->phase), json_string_value(json_object_get(want, "phase")));
	assert_int_equal(at->of[FAC_PARAM], number(f, "param") + number(f, "buffer"));
	assert_int_equal(at->of[FAC_GRAD], number(f, "grad"));
	assert_int_equal(at->of[FAC_OPT], number(f, "opt"));
	assert_int_equal(factors_act(at), number(f, "input") + number(f, "saved") + number(f, "temp"));
}

/* ---- events ------------------------------------------------------------------------------------------------ */

static unsigned
phase_of(const char *name)
{
	for (unsigned p = 0; p < PH_COUNT; p++)
		if (strcmp(name, phase_name(p)) == 0)
			return p;
	return 0;
}

static struct events
read_log(const char *path)
{
	gzFile f = gzopen(path, "rb");
	struct events l = {0};
	char line[1024], phase[32], action[32];
	unsigned step;
	unsigned long long bytes;

	assert_non_null(f);
	while (gzgets(f, line, sizeof line))
		if (sscanf(line, "%u %31s %31s %llu", &step, phase, action, &bytes) == 4)
			events_push(&l, (struct event){(uint8_t)step, (uint8_t)phase_of(phase), action[0] == 'f', bytes, NULL});
	gzclose(f);
	events_sort(&l);
	return l;
}

static void
compare_events(const struct job *job, const struct schedule *s)
{
	char path[256];
	struct events want, got = events_of(s);
	unsigned n;

	snprintf(path, sizeof path, "fixtures/truth/%s.tsv.gz", job->truth);
	want = read_log(path);
	n = events_differ(&got, &want);
	if (n > job->differ)
		fail_msg("%s: %u events differ of %zu", job->truth, n, want.n);
	free(want.e);
	free(got.e);
}

struct replayed {
	json_t *truth;
	struct analysed a;
	char *recipe;
};

/* The job of a truth's own recipe, analysed. */
static struct replayed
replay(const char *name, const char *file, const char *prefix, bool fixed)
{
	struct replayed x;
	char path[256];

	snprintf(path, sizeof path, "fixtures/truth/%s.json", name);
	x.truth = json_load_file(path, 0, NULL);
	assert_non_null(x.truth);
	x.recipe = recipe_of(x.truth, prefix, fixed);
	snprintf(path, sizeof path, "fixtures/models/%s", file);
	x.a = test_analyse_file(path, x.recipe);
	return x;
}

static void
replayed_free(struct replayed *x)
{
	release_analysis(x->a);
	free(x->recipe);
	json_decref(x->truth);
}

static void
jobs_equal_the_truth(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
		struct replayed x = replay(jobs[i].truth, jobs[i].file, jobs[i].prefix, false);

		for (unsigned k = 0; k < 2; k++)
			compare_step(&jobs[i], &x.a.r->r.steps[k + 1], json_array_get(json_object_get(x.truth, "steps"), k), k + 1);
		if (jobs[i].has_log)
			compare_events(&jobs[i], x.a.r->r.sched);
		replayed_free(&x);
	}
}

/* ---- files that lack something ---------------------------------------------------------------------------------- */

/* ONNX: positions, checks and what was deleted as useless are not there; the highest points hardly know. */
static const struct near {
	const char *file, *truth;
	double share;              /* of the peak that may differ */
	bool fixed;                /* the file has no dims to bind */
} near[] = {
	{"marian_tiny.train.onnx", "marian_tiny--fp32", 0.0001, false},            /* tied under a name that is not stored; tables of sines */
	{"marian_tiny.train.onnx", "marian_tiny--bf16-keep", 0.0001, false},
	{"t5_tiny.train.onnx", "t5_tiny--encoder-frozen", 0.0001, false},          /* the tied embedding is not the encoder's to freeze */
	{"t5_tiny.train.onnx", "t5_tiny--lora", 0.0025, false},                    /* a position bias for attention, with a mask that is all true */
	{"roberta_tiny.train.onnx", "roberta_tiny--lora", 0.0005, false},          /* forward peak: summands of embeddings, x = self.norm(x + y) */
	{"densenet_tiny.legacy.onnx", "densenet_tiny--bf16", 0.0001, true}, /* a chain of composite modules; num_batches_tracked */
	{"codegen_tiny.legacy.onnx", "codegen_tiny--mixed", 0.0008, true},  /* a Constant node that Gather reads is no parameter */
	{"olmoe_tiny.legacy.onnx", "olmoe_tiny--mixed-sgd", 0.0001, true},  /* experts' weights that are picked keep their names, and so do the tokens */
	{"moe_tiny.train.onnx", "moe_tiny--mixed", 0.0002, true},
	{"experts_tiny.train.pt2", "experts_tiny--bf16", 0, false},                /* the product of experts that stands in for the card's; rows to the dtype of weights */
	{"experts_tiny.train.pt2", "experts_tiny--bf16-ckpt", 0, false},           /* gradients of turned weights; rows in another order */
	{"mamba_tiny.train.pt2", "mamba_tiny--bf16", 0, true},              /* the state goes on in fp32 beside state.to(x.dtype) @ c, on a line that the file does not have */
	{"mamba2_tiny.train.pt2", "mamba2_tiny--bf16", 0, true},            /* a line that converts the input and the result of a call; dt + bias.to(dt.dtype) */
	{"mamba2_tiny.train.pt2", "mamba2_tiny--mixed", 0, true},           /* the dtype of what a module was given, not of its gate */
	{"mamba_tiny.train.onnx", "mamba_tiny--bf16", 0.002, true},         /* no conversion is in an ONNX file: states, step by step */
	{"mamba2_tiny.train.onnx", "mamba2_tiny--bf16", 0.006, true},       /* states of chunks; that the residual stream is in fp32 the file cannot show */
	{"mamba2_tiny.train.onnx", "mamba2_tiny--mixed", 0, true},
	{"seq2seq_tiny.legacy.onnx", "seq2seq_tiny--bf16-sgdm", 0.001, true},       /* zeros for a state, which the exporter folded */
	{"dit_tiny.onnx", "dit_tiny--bf16-sgdm", 0.001, true},             /* .to(x.dtype) left no trace in front of a Linear */
	{"blip_tiny.legacy.onnx", "blip_tiny--bf16", 0.0005, true},         /* .to(target_dtype) of parameters, softmax without a dtype */
	{"pspnet_tiny.noopt.onnx", "pspnet_tiny--bf16", 0.0005, true},     /* GroupNorm as the exporter writes it before it optimises */
	{"window_tiny.train.onnx", "window_tiny--long-bf16", 0.0001, false},       /* what is left of a mask is expanded over the batch */
	{"positions_tiny.train.onnx", "positions_tiny--fp32", 0.0001, false},      /* positions that are resized to the picture, contiguous() of a turned one */
	{"windows_tiny.train.onnx", "windows_tiny--fp32", 0.0001, false},          /* an unfold whose transposition was joined with the next one */
	{"columns_tiny.train.onnx", "columns_tiny--fp32", 0, true},         /* nn.Unfold's result in the shape of what it is multiplied with */
	{"teacher_tiny.train.onnx", "teacher_tiny--fp32", 0, true},         /* half of it runs under no_grad, which the exporter wrote into the function around it */
	{"grown_tiny.train.pt", "grown_tiny--bf16", 0, true},               /* padding="valid"; n += 1 of a size; a cache that begins as an empty tensor of k's dtype */
	{"grown_tiny.train.pt2", "grown_tiny--bf16", 0, true},
	{"unread_tiny.train.onnx", "unread_tiny--fp32", 0.0001, false},            /* the last layer of a list is in the signature only */
	{"gemma_tiny.stack.onnx", "gemma_tiny--bf16", 0.0005, false},          /* functions whose lines no frame has: softmax, the loss, the inside of a norm */
	{"gemma_tiny.stack.onnx", "gemma_tiny--mixed", 0.0005, false},
	{"speech_tiny.train.pt2", "speech_tiny--lora", 0, true},           /* the waveform requires grad, so that frozen convolutions keep what backward needs */
	{"speech_tiny.train.pt2", "speech_tiny--eval", 0, false},          /* .. but not in eval mode */
	{"speech_tiny.train.pt2", "speech_tiny--ckpt", 0, true},           /* the first block, of a class of its own, is checkpointed, too */
	{"speech_tiny.train.pt2", "speech_tiny--mixed", 0, true},          /* hidden states that hooks keep */
	{"speech_tiny.legacy.onnx", "speech_tiny--lora", 0.0001, true},    /* the same without classes, by names */
	{"speech_tiny.legacy.onnx", "speech_tiny--mixed", 0.001, true},
	{"t5_norms.train.pt2", "t5_norms--bf16", 0.0005, false},               /* x.to(float32).pow(2) binds no name; converted in front of the weight */
	{"t5_norms.train.pt2", "t5_norms--lora", 0, false},
	{"t5_norms.train.pt", "t5_norms--bf16", 0, true},                  /* the same without lines */
	{"t5_norms.train.pt", "t5_norms--lora", 0, true},
	{"t5_norms.train.legacy.onnx", "t5_norms--lora", 0.004, true},     /* contiguous() of the bias left no trace */
	{"sizes.train.pt", "sizes--fp32", 0, true},                        /* torch.min of constants, a number as another's type, a window over more than the picture */
	{"stairs.train.pt2", "stairs--fp32", 0, true},                     /* x = block[1](block[0](cat((x, kept.pop())))): up.1.0 after up.0.0 is the next turn */
	{"stairs.train.pt2", "stairs--mixed", 0, true},
	{"stairs.train.pt", "stairs--fp32", 0, true},
	{"stairs.train.pt", "stairs--mixed", 0, true},
	{"falcon_tiny.train.pt2", "falcon_tiny--lora", 0.002, true},       /* adapters beside a Linear that is written out */
	{"falcon_tiny.onnx", "falcon_tiny--lora", 0.004, true},            /* .. whose sum with the bias is an operator of its own under autocast */
	{"weight_norm.onnx", "weight_norm--fp32", 0, true},                /* v * (g / |v|) */
	{"shared_bias.onnx", "shared_bias--mixed", 0.002, true},           /* a copy that only the record of its readers names */
	{"logits_bias.legacy.onnx", "logits_bias--bf16", 0.002, true},     /* a buffer that is sent to the device of what it is added to */
	{"stablelm_tiny.legacy.onnx", "stablelm_tiny--lora", 0.002, true},  /* folded tables of sines converted to the dtype of q */
};

static void
compare_peak(const struct near *job, const struct step_row *got, const json_t *want)
{
	double truth = (double)number(want, "peak_bytes"), mine = (double)got->phases[got->phase].tensors;

	if (mine > truth * (1 + job->share) || mine < truth * (1 - job->share))
		fail_msg("%s: %.0f, truth %.0f", job->truth, mine, truth);
	assert_string_equal(phase_name(got->phase), json_string_value(json_object_get(want, "phase")));
}

static void
jobs_are_near_the_truth(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
		struct replayed x = replay(near[i].truth, near[i].file, near[i].fixed ? "model." : "", near[i].fixed);

		for (unsigned k = 0; k < 2; k++)
			compare_peak(&near[i], &x.a.r->r.steps[k + 1], json_array_get(json_object_get(x.truth, "steps"), k));
		replayed_free(&x);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_equal_the_truth), cmocka_unit_test(jobs_are_near_the_truth)};

	return cmocka_run_group_tests_name("truth", tests, NULL, NULL);
}
