/* Framework files: what they set, "auto", contradictions, and the YAML that is read. */
#include "test.h"
#include "../frontend/frontend.h"

#include <stdlib.h>
#include <string.h>

static mc_status
give(mc_recipe *r, const char *kind, const char *text)
{
	return mc_recipe_file(r, kind, text, strlen(text), kind);
}

static void
give_file(mc_recipe *r, const char *kind, const char *path)
{
	size_t n;
	char *p = test_read(path, &n);
	mc_diagnostic d;

	if (mc_recipe_file(r, kind, p, n, path) != MC_OK)
		fail_msg("%s", mc_recipe_diagnostics(r, &d, 1) ? d.message : "no reason");
	free(p);
}

static void
expect(const mc_recipe *r, const char *key, const char *value)
{
	struct str text = r->r.v[key_by_name(str_of(key))].text;

	if (!str_eq(text, str_of(value)))
		fail_msg("%s is %.*s, not %s", key, SFMT(text), value);
}

static int64_t
batch(const mc_recipe *r)
{
	for (uint32_t i = 0; i < r->r.ndim; i++)
		if (str_eq(r->r.dims[i].name, S("batch")))
			return r->r.dims[i].value;
	return 0;
}

static bool
notes(const mc_recipe *r, const char *text)
{
	for (uint32_t i = 0; i < r->r.nnote; i++)
		if (memmem(r->r.notes[i].p, r->r.notes[i].n, text, strlen(text)))
			return true;
	return false;
}

/* As TrainingArguments.to_json_string() of transformers 5.24 writes it. */
static void
training_arguments(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	give_file(r, "training-args", "fixtures/framework/training_args.json");
	expect(r, "precision", "bf16-mixed");
	expect(r, "optimizer", "adamw");
	expect(r, "optimizer_impl", "fused");
	expect(r, "checkpoint", "non-reentrant");
	expect(r, "grad_accum", "2");
	assert_int_equal(batch(r), 4);
	assert_true(notes(r, "grad_accum = 2"));
	assert_true(notes(r, "learning_rate"));
	assert_int_equal(give(r, "training-args", "{\"gradient_checkpointing\": true, \"gradient_checkpointing_kwargs\": {\"use_reentrant\": true}}"), MC_OK);
	expect(r, "checkpoint", "reentrant");
	expect(r, "precision", "file");            /* what the file before it set is gone */
	assert_int_equal(batch(r), 0);
	assert_int_equal(give(r, "training-args", "{\"gradient_checkpointing\": false, \"gradient_checkpointing_kwargs\": {\"use_reentrant\": true}}"), MC_OK);
	expect(r, "checkpoint", "false");
	mc_recipe_free(r);
}

/* "auto" takes what the training arguments say, whichever comes first; DeepSpeed then casts the model instead of autocast. */
static void
deepspeed_auto(void **state)
{
	(void)state;
	for (unsigned first = 0; first < 2; first++) {
		mc_recipe *r = mc_recipe_new();

		for (unsigned i = 0; i < 2; i++)
			if (i == first)
				give_file(r, "training-args", "fixtures/framework/training_args.json");
			else
				give_file(r, "deepspeed", "fixtures/framework/ds_config.json");
		expect(r, "precision", "bf16");
		expect(r, "grad_accum", "2");
		expect(r, "parallel.strategy", "zero2");
		assert_int_equal(batch(r), 4);
		assert_true(notes(r, "reduce_bucket_size"));
		mc_recipe_free(r);
	}
}

static void
deepspeed_alone(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	give_file(r, "deepspeed", "fixtures/framework/ds_config.json");
	expect(r, "precision", "file");
	assert_int_equal(batch(r), 0);
	assert_true(notes(r, "bf16.enabled (auto, which --training-args says)"));
	mc_recipe_free(r);
}

static void
adapters(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	give_file(r, "peft", "fixtures/framework/adapter_config.json");
	expect(r, "lora.r", "8");
	assert_true(r->r.v[RK_LORA_ALPHA].f == 32);
	assert_true(r->r.v[RK_LORA_DROPOUT].f > 0.0499 && r->r.v[RK_LORA_DROPOUT].f < 0.0501);
	assert_int_equal(r->r.v[RK_LORA_TARGETS].nlist, 2);
	assert_true(notes(r, "use_rslora"));
	assert_int_equal(give(r, "peft", "{\"peft_type\": \"LORA\", \"r\": 4, \"bias\": \"lora_only\", \"use_dora\": true, \"modules_to_save\": [\"lm_head\"]}"), MC_OK);
	expect(r, "lora.bias", "lora_only");
	assert_true(r->r.v[RK_LORA_DORA].i);
	assert_int_equal(r->r.v[RK_LORA_SAVE].nlist, 1);
	mc_recipe_free(r);
}

static void
accelerate(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	give_file(r, "accelerate", "fixtures/framework/accelerate.yaml");
	expect(r, "precision", "bf16-mixed");
	expect(r, "parallel.strategy", "none");
	give_file(r, "accelerate", "fixtures/framework/accelerate_fsdp.yaml");
	expect(r, "parallel.strategy", "fsdp2");
	expect(r, "parallel.dp", "8");
	expect(r, "checkpoint", "non-reentrant");
	assert_int_equal(give(r, "accelerate", "{\"mixed_precision\": \"fp16\"}"), MC_OK);
	expect(r, "precision", "fp16-mixed");
	mc_recipe_free(r);
}

/* What the user sets counts, before a file and behind it. */
static void
user_counts_more(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	mc_recipe_set(r, "precision", "fp32");
	mc_recipe_set_dim(r, "batch", 7);
	give_file(r, "training-args", "fixtures/framework/training_args.json");
	mc_recipe_set(r, "optimizer", "sgd");
	give_file(r, "peft", "fixtures/framework/adapter_config.json");
	expect(r, "precision", "fp32");
	expect(r, "optimizer", "sgd");
	assert_int_equal(batch(r), 7);
	assert_true(notes(r, "bf16 (the recipe's precision counts)"));
	mc_recipe_free(r);
}

/* Totals that may be right, settings as old files spell them, and what is off. */
static void
what_may_stand(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	assert_int_equal(give(r, "deepspeed", "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2}"), MC_OK);
	assert_int_equal(give(r, "deepspeed", "{\"train_batch_size\": \"auto\", \"amp\": {\"enabled\": false}, \"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}"), MC_OK);
	expect(r, "offload.optimizer", "true");
	assert_int_equal(give(r, "deepspeed", "{\"zero_optimization\": {\"stage\": 3, \"cpu_offload\": false, \"cpu_offload_params\": true}}"), MC_OK);
	expect(r, "offload.param", "true");
	expect(r, "offload.optimizer", "false");
	assert_int_equal(give(r, "accelerate", "dynamo_config: {}\nparallelism_config:\n  parallelism_config_tp_size: 1\n"), MC_OK);
	assert_int_equal(give(r, "accelerate", "dynamo_config:\n  dynamo_backend: 'no'\n"), MC_OK);
	mc_recipe_free(r);
}

/* DeepSpeed's sum, which the ranks belong to: 64 in micro-batches of 4 are 16 turns on one rank, 4 on each of four; a size that somebody else gives counts. */
static void
derived_accumulation(void **state)
{
	static const char ds[] = "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, \"zero_optimization\": {\"stage\": 2}}";
	static const struct {
		const char *file, *key, *value, *dp;
		int64_t turns, batch;      /* 0: refused */
	} table[] = {
		{ds, "optimizer", "sgd", "1", 16, 0}, {ds, "optimizer", "sgd", "4", 4, 0}, {ds, "grad_accum", "2", "4", 2, 0}, {ds, "optimizer", "sgd", "4", 2, 8}, {ds, "optimizer", "sgd", "3", 0, 0},
		{"{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2}", "optimizer", "sgd", "1", 2, 0},
		{"{\"train_batch_size\": 64}", "optimizer", "sgd", "1", 1, 4}, {"{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 4}", "optimizer", "sgd", "1", 1, 0},
	};
	mc_model *m;

	(void)state;
	assert_int_equal(mc_load_path("fixtures/models/mlp.pt2", NULL, &m), MC_OK);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		mc_recipe *r = mc_recipe_new();
		mc_report *rep = NULL;

		assert_int_equal(give(r, "deepspeed", table[i].file), MC_OK);
		assert_int_equal(mc_recipe_set(r, table[i].key, table[i].value), MC_OK);
		assert_int_equal(mc_recipe_set(r, "parallel.dp", table[i].dp), MC_OK);
		if (table[i].batch)
			assert_int_equal(mc_recipe_set_dim(r, "batch", table[i].batch), MC_OK);
		assert_int_equal(mc_analyze(m, r, NULL, &rep), table[i].turns ? MC_OK : MC_BAD_INPUT);
		if (table[i].turns)
			assert_int_equal(rep->r.r->v[RK_GRAD_ACCUM].i, table[i].turns);
		mc_report_free(rep);
		mc_recipe_free(r);
	}
	mc_model_free(m);
}

static void
contradictions(void **state)
{
	static const struct {
		const char *kind[2], *text[2], *code;
	} table[] = {
		{{"training-args", "deepspeed"}, {"{\"bf16\": true}", "{\"bf16\": {\"enabled\": false}}"}, "E110"},
		{{"training-args", "deepspeed"}, {"{\"gradient_accumulation_steps\": 2}", "{\"gradient_accumulation_steps\": 4}"}, "E110"},
		{{"deepspeed", "training-args"}, {"{\"train_micro_batch_size_per_gpu\": 3}", "{\"per_device_train_batch_size\": 4}"}, "E110"},
		{{"training-args", "accelerate"}, {"{\"bf16\": true}", "mixed_precision: fp16\n"}, "E110"},
		{{"deepspeed", NULL}, {"{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}"}, "E110"},
		{{"deepspeed", NULL}, {"{\"train_batch_size\": 60, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2}"}, "E110"},
		{{"deepspeed", NULL}, {"{\"zero_optimization\": {\"stage\": 2, \"stage\": 3}}"}, "E110"}, {{"training-args", NULL}, {"{\"bf16\": true, \"bf16\": false}"}, "E110"},
		{{"peft", NULL}, {"{\"peft_type\": \"IA3\"}"}, "E102"}, {{"peft", NULL}, {"{\"peft_type\": \"LORA\", \"use_qalora\": true}"}, "E107"}, {{"peft", NULL}, {"{\"bias\": \"some\"}"}, "E102"},
		{{"training-args", NULL}, {"{\"optim\": \"lomo\"}"}, "E102"}, {{"training-args", NULL}, {"{\"gradient_accumulation_steps\": -1}"}, "E102"},
		{{"training-args", NULL}, {"[1]"}, "E015"}, {{"accelerate", NULL}, {"just words\n"}, "E015"}, {{"training-args", NULL}, {"{"}, "E014"}, {{"accelerate", NULL}, {"mixed_precision: fp8\n"}, "E107"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		mc_recipe *r = mc_recipe_new();
		mc_diagnostic d = {"", "", "", 0};
		mc_status st = give(r, table[i].kind[0], table[i].text[0]);

		if (table[i].kind[1]) {
			assert_int_equal(st, MC_OK);
			st = give(r, table[i].kind[1], table[i].text[1]);
		}
		assert_int_equal(st, MC_BAD_INPUT);
		mc_recipe_diagnostics(r, &d, 1);
		if (strcmp(d.code, table[i].code) != 0)
			fail_msg("row %zu: %s %s", i, d.code, d.message);
		mc_recipe_free(r);
	}
}

/* Messages that name what is allowed, in words and not as the table has it; and a kind of file that there is none of. */
static void
allowed_values(void **state)
{
	static const struct {
		const char *kind, *text, *message;
	} table[] = {
		{"deepspeed", "{\"zero_optimization\": {\"stage\": 4}}", "zero_optimization.stage: 4 is not allowed; allowed: 1, 2, 3"},
		{"peft", "{\"peft_type\": \"IA3\"}", "peft_type: IA3 is not allowed; allowed: LORA"},
		{"accelerate", "mixed_precision: int8\n", "mixed_precision: int8 is not allowed; allowed: no, false, bf16, fp16, NO, BF16, FP16"},
		{"accelerated", "", "kind of file: accelerated is not allowed; allowed: training-args, accelerate, peft, deepspeed"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		mc_recipe *r = mc_recipe_new();
		mc_diagnostic d = {"", "", "", 0};

		assert_int_equal(give(r, table[i].kind, table[i].text), MC_BAD_INPUT);
		assert_int_equal(mc_recipe_diagnostics(r, &d, 1), 1);
		assert_string_equal(d.code, "E102");
		assert_string_equal(d.message, table[i].message);
		assert_int_equal(mc_recipe_set(r, "optimizer", "sgd"), MC_OK);
		mc_recipe_free(r);
	}
}

static void
refuses(struct str text, const char *why)
{
	struct ctx *c = test_ctx();
	char name[41] = "";

	memcpy(name, text.p, text.n < 40 ? text.n : 40);
	if (yaml_read(c, text))
		fail_msg("%s is read", name);
	assert_int_equal(c->ndiag, 1);
	if (!strstr(c->diags[0].text.p, why))
		fail_msg("%s: %s", name, c->diags[0].text.p);
	test_ctx_free(c);
}

/* E033 */
static void
yaml(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"a: &x 1\n", "line 1: anchors"}, {"a:\n  b: &x {c: 1}\n", "line 2: anchors"}, {"a: [&x [1]]\n", "anchors"}, {"a: *x\n", "anchors"}, {"? *x\n: 1\n", "a plain word"},
		{"a: {b: 1}\n<<: {c: 1}\n", "line 2: merge keys"}, {"a:\n  <<: [{c: 1}]\n", "line 2: merge keys"}, {"a: !!str 1\n", "tags"}, {"a: !x [1]\n", "tags"}, {"!x {a: 1}\n", "tags"}, {"a: 1\n---\nb: 2\n", "line 2: another document"}, {"a: 1\nb: 2\na: 3\n", "line 3: a name stands twice"},
		{"? [a]\n: 1\n", "a plain word"}, {"&x a: 1\n", "a plain word"}, {"a: \"\\0\"\n", "a NUL"}, {"a: 1\n   b: 2\n", "line 2"}, {"  a: 1\nb: 2\n", "line 2"}, {"a: [1\n", "line 2"},
		{"a: 1\nb: \xff\n", "line 2"}, {"a: \"\\q\"\n", "line 1"}, {"%YAML 9.0\n---\na: 1\n", "line 1"}, {"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "too deep"},
	};
	struct ctx *c = test_ctx();
	const json_t *j = yaml_read(c, S("# head\na: 1\n\nb: 'x # y'  # tail\nc:\n- 2\n- two\nd:\n  e: yes\n  f:\n    g: null\nh:\ni: {}\nk: [1, '1', 1e-4]\nl: |\n  block\nm: 'NO'\n"));

	(void)state;
	assert_int_equal(j->n, 9);
	assert_int_equal(json_get_int(j, "a", 0), 1);
	assert_string_equal(json_get_str(j, "b").p, "x # y");
	assert_int_equal(json_array_size(json_object_get(j, "c")), 2);
	assert_string_equal(json_str(json_array_get(json_object_get(j, "c"), 1)).p, "two");
	assert_true(json_is_true(json_object_get(json_object_get(j, "d"), "e")));
	assert_true(json_is_null(json_object_get(json_object_get(json_object_get(j, "d"), "f"), "g")));
	assert_true(json_is_null(json_object_get(j, "h")));
	assert_true(json_is_object(json_object_get(j, "i")));
	assert_true(json_is_integer(json_array_get(json_object_get(j, "k"), 0)));
	assert_string_equal(json_str(json_array_get(json_object_get(j, "k"), 1)).p, "1");
	assert_string_equal(json_str(json_array_get(json_object_get(j, "k"), 2)).p, "1e-4");
	assert_string_equal(json_get_str(j, "l").p, "block\n");
	assert_string_equal(json_get_str(j, "m").p, "NO");
	assert_int_equal(yaml_read(c, S("# nothing\n"))->n, 0);
	assert_int_equal(json_get_int(yaml_read(c, S("'<<': 3\n")), "<<", 0), 3);
	assert_int_equal(json_array_size(yaml_read(c, S("[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]"))), 1);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		refuses(str_of(bad[i].text), bad[i].why);
	test_ctx_free(c);
}

/* One entry more than a list may have, one byte more than a file. */
static void
large_yaml(void **state)
{
	static char text[(1u << 20) + 1];
	struct ctx *c = test_ctx();
	uint32_t n = 0;

	(void)state;
	for (unsigned i = 0; i < 1024; i++, n += 2)
		memcpy(text + n, "-\n", 2);
	assert_int_equal(yaml_read(c, (struct str){text, n})->n, 1024);
	memcpy(text + n, "-\n", 2);
	refuses((struct str){text, n + 2}, "line 1025: too many");
	memset(text, ' ', sizeof text);
	assert_int_equal(yaml_read(c, (struct str){text, sizeof text - 1})->n, 0);
	refuses((struct str){text, sizeof text}, "more than 1 MiB");
	test_ctx_free(c);
}

/* What the tools themselves write: whole numbers as 2e8, FSDP's options as a list, precisions in capitals. */
static void
as_written(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	assert_int_equal(give(r, "deepspeed", "{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 2e8, \"sub_group_size\": 1e9}, \"gradient_clipping\": 0.5}"), MC_OK);
	expect(r, "parallel.reduce_bucket", "200000000");
	expect(r, "parallel.sub_group", "1000000000");
	expect(r, "parallel.gradient_clipping", "0.5");
	mc_recipe_free(r);

	r = mc_recipe_new();
	assert_int_equal(give(r, "training-args", "{\"fsdp\": [\"full_shard\", \"auto_wrap\"], \"fsdp_config\": {\"version\": 2}}"), MC_OK);
	expect(r, "parallel.strategy", "fsdp2");
	assert_int_equal(give(r, "training-args", "{\"fsdp\": [\"shard_grad_op\"], \"fsdp_config\": {}}"), MC_OK);
	expect(r, "parallel.strategy", "fsdp1");
	expect(r, "parallel.reshard", "false");
	assert_int_equal(give(r, "training-args", "{\"fsdp\": [], \"fsdp_config\": {\"reshard_after_forward\": false}}"), MC_OK);
	expect(r, "parallel.strategy", "none");
	expect(r, "parallel.reshard", "default");  /* without FSDP it says nothing */
	mc_recipe_free(r);

	r = mc_recipe_new();
	assert_int_equal(give(r, "accelerate", "mixed_precision: BF16\nnum_processes: 1\n"), MC_OK);
	expect(r, "precision", "bf16-mixed");
	mc_recipe_free(r);
}

/* A file that names DeepSpeed's says so until that is given. */
static void
other_files(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	assert_int_equal(give(r, "accelerate", "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: z3.json\n"), MC_OK);
	assert_true(notes(r, "deepspeed_config.deepspeed_config_file (another file, which --deepspeed gives)"));
	assert_int_equal(give(r, "training-args", "{\"deepspeed\": \"z3.json\"}"), MC_OK);
	assert_true(notes(r, "; it also has deepspeed (another file, which --deepspeed gives)"));
	assert_int_equal(give(r, "deepspeed", "{\"zero_optimization\": {\"stage\": 3}}"), MC_OK);
	assert_false(notes(r, "another file"));
	expect(r, "parallel.strategy", "zero3");
	mc_recipe_free(r);
}

/* Trainer takes DeepSpeed's settings as an object, too; a file given by itself counts more, before and behind it. */
static void
file_in_a_file(void **state)
{
	static const char args[] = "{\"per_device_train_batch_size\": 4, \"bf16\": true, \"deepspeed\": {\"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 1e6}}}";

	(void)state;
	for (unsigned own = 0; own < 3; own++) {
		mc_recipe *r = mc_recipe_new();

		if (own == 1)
			assert_int_equal(give(r, "deepspeed", "{\"zero_optimization\": {\"stage\": 2}}"), MC_OK);
		assert_int_equal(give(r, "training-args", args), MC_OK);
		if (own == 2)
			assert_int_equal(give(r, "deepspeed", "{\"zero_optimization\": {\"stage\": 2}}"), MC_OK);
		assert_false(notes(r, "another file"));
		expect(r, "parallel.strategy", own ? "zero2" : "zero3");
		expect(r, "precision", own ? "bf16-mixed" : "bf16");
		assert_int_equal(notes(r, "training-args, deepspeed set"), !own);
		assert_int_equal(give(r, "training-args", "{\"bf16\": true}"), MC_OK);
		expect(r, "parallel.strategy", own ? "zero2" : "none");
		expect(r, "precision", "bf16-mixed");
		mc_recipe_free(r);
	}
}

/* What changes no peak says why. */
static void
ignored_with_a_reason(void **state)
{
	mc_recipe *r = mc_recipe_new();

	(void)state;
	assert_int_equal(give(r, "training-args", "{\"auto_find_batch_size\": true, \"neftune_noise_alpha\": 1, \"label_smoothing_factor\": 0.0}"), MC_OK);
	assert_true(notes(r, "auto_find_batch_size (what is predicted is the batch that is tried first)"));
	assert_true(notes(r, "neftune_noise_alpha (its noise"));
	assert_false(notes(r, "label_smoothing"));
	assert_int_equal(give(r, "training-args", "{\"auto_find_batch_size\": false, \"neftune_noise_alpha\": null, \"label_smoothing_factor\": 0}"), MC_OK);
	assert_true(notes(r, "it also has nothing"));
	mc_recipe_free(r);
}

/* What changes memory and is not modelled is refused, not listed among what is ignored. */
static void
not_modelled(void **state)
{
	static const struct {
		const char *kind, *text;
	} files[] = {
		{"peft", "{\"peft_type\": \"LORA\", \"layer_replication\": [[0, 2], [1, 2]]}"}, {"deepspeed", "{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 4}}"},
		{"deepspeed", "{\"torch_autocast\": {\"enabled\": true}}"}, {"deepspeed", "{\"tensor_parallel\": {\"autotp_size\": 2}}"}, {"training-args", "{\"fsdp\": [\"hybrid_shard\"]}"},
		{"training-args", "{\"label_smoothing_factor\": 0.1}"}, {"training-args", "{\"deepspeed\": {\"amp\": {\"enabled\": true}}}"},
		{"training-args", "{\"deepspeed\": {\"fp16\": {}, \"fp16\": {}}}"},
		{"accelerate", "mixed_precision: FP8\n"}, {"deepspeed", "{\"amp\": {\"enabled\": true}}"}, {"accelerate", "dynamo_config:\n  dynamo_backend: INDUCTOR\n"},
		{"accelerate", "parallelism_config:\n  parallelism_config_tp_size: 2\n"},
	};
	mc_diagnostic d;

	(void)state;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		mc_recipe *r = mc_recipe_new();

		if (give(r, files[i].kind, files[i].text) != MC_BAD_INPUT)
			fail_msg("%s is not refused", files[i].text);
		assert_int_equal(mc_recipe_diagnostics(r, &d, 1), 1);
		mc_recipe_free(r);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(training_arguments), cmocka_unit_test(deepspeed_auto), cmocka_unit_test(deepspeed_alone), cmocka_unit_test(adapters), cmocka_unit_test(accelerate),
		cmocka_unit_test(user_counts_more), cmocka_unit_test(what_may_stand), cmocka_unit_test(derived_accumulation), cmocka_unit_test(contradictions), cmocka_unit_test(allowed_values), cmocka_unit_test(yaml), cmocka_unit_test(large_yaml), cmocka_unit_test(as_written), cmocka_unit_test(other_files), cmocka_unit_test(file_in_a_file), cmocka_unit_test(ignored_with_a_reason), cmocka_unit_test(not_modelled),
	};

	return cmocka_run_group_tests_name("framework", tests, NULL, NULL);
}
