/*
 * What must hold for every recipe: the peak does not fall when there is more of something (batch, sequence, parameters that train,
 * optimizer state) and does not rise when activations are checkpointed or more ranks share what is sharded. Recipes are drawn at random, the same ones in every run.
 * Checkpointing is compared where all parameters train: with frozen first layers, through which gradients go once the embeddings require
 * grad, real PyTorch's peak rises too (llama_tiny, embeddings and first layer frozen, 48,828,928 bytes to 55,461,376).
 */
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 40 };

struct draw {
	uint64_t state;
};

struct recipe_draw {
	unsigned precision, optimizer, impl, attention, checkpoint, zero_grad, freeze;
	unsigned batch, seq, strategy, ranks;
};

static const struct model {
	const char *file;
	const char *parts[5];      /* patterns; the first n are frozen together */
	bool has_seq, has_blocks;
} models[] = {
	{"llama_tiny.train.pt2", {"model.embed_tokens", "model.layers.0", "model.layers.1.mlp", "model.norm", "lm_head"}, true, true},
	{"toy_vlm.train.pt2", {"patch_embedding", "encoder", "projector", "embed_tokens", "decoder"}, true, false},
};

static const char *const strategies[] = {"none", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};

static unsigned
draw(struct draw *d, unsigned n)
{
	d->state = d->state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(d->state >> 33) % n;
}

static struct recipe_draw
draw_recipe(struct draw *d)
{
	return (struct recipe_draw){draw(d, 4), draw(d, 4), draw(d, 2), draw(d, 3), 0, draw(d, 3), draw(d, 3), 1 + draw(d, 4), 8 * (1 + draw(d, 6)), 0, 1};
}

static void
write_recipe(const struct model *m, const struct recipe_draw *r, char *out, size_t n)
{
	static const char *const precision[] = {"fp32", "bf16", "bf16-mixed", "fp16-mixed"}, *const optimizer[] = {"adamw", "sgd", "sgd-momentum", "adagrad"};
	static const char *const impl[] = {"foreach", "forloop"}, *const attention[] = {"auto", "eager", "math"};
	static const char *const checkpoint[] = {"false", "\"non-reentrant\"", "\"reentrant\""}, *const zero[] = {"after-step", "before-backward", "never-none"};
	int at = snprintf(out, n, "{\"precision\":\"%s\",\"optimizer\":\"%s\",\"optimizer_impl\":\"%s\",\"attention\":\"%s\",\"checkpoint\":%s,\"zero_grad\":\"%s\",\"dims\":{\"batch\":%u",
	    precision[r->precision], optimizer[r->optimizer], impl[r->impl], attention[r->attention], checkpoint[r->checkpoint], zero[r->zero_grad], r->batch);

	if (m->has_seq)
		at += snprintf(out + at, n - (size_t)at, ",\"seq\":%u", r->seq);
	at += snprintf(out + at, n - (size_t)at, "},\"freeze\":[");
	for (unsigned i = 0; i < r->freeze; i++)
		at += snprintf(out + at, n - (size_t)at, "%s\"%s\"", i ? "," : "", m->parts[i]);
	at += snprintf(out + at, n - (size_t)at, "]");
	if (r->strategy)
		at += snprintf(out + at, n - (size_t)at, ",\"parallel\":{\"strategy\":\"%s\",\"dp\":%u,\"reduce_bucket\":100000,\"allgather_bucket\":100000}", strategies[r->strategy], r->ranks);
	snprintf(out + at, n - (size_t)at, "}");
}

static uint64_t
peak_of(mc_model *loaded, const struct model *m, const struct recipe_draw *r)
{
	char json[1024];
	mc_recipe *recipe = mc_recipe_new();
	mc_report *report = NULL;
	uint64_t peak;

	write_recipe(m, r, json, sizeof json);
	if (mc_recipe_json(recipe, json, strlen(json), NULL) != MC_OK || mc_analyze(loaded, recipe, NULL, &report) != MC_OK)
		fail_msg("%s: %s", m->file, json);
	peak = report->r.steps[1].phases[report->r.steps[1].phase].tensors;
	if (report->r.steps[2].phases[report->r.steps[2].phase].tensors > peak)
		peak = report->r.steps[2].phases[report->r.steps[2].phase].tensors;
	mc_report_free(report);
	mc_recipe_free(recipe);
	return peak;
}

static void
at_least(mc_model *loaded, const struct model *m, const struct recipe_draw *more, const struct recipe_draw *less, const char *what)
{
	uint64_t a = peak_of(loaded, m, more), b = peak_of(loaded, m, less);
	char json[1024];

	write_recipe(m, less, json, sizeof json);
	if (a < b)
		fail_msg("%s: %s lowers the peak from %llu to %llu: %s", m->file, what, (unsigned long long)b, (unsigned long long)a, json);
}

/* The same on twice as many ranks; foreach steps are what they have. */
static void
compare_ranks(mc_model *loaded, const struct model *m, const struct recipe_draw *r, unsigned strategy)
{
	struct recipe_draw more = *r, less;

	more.strategy = strategy;
	more.ranks = 2;
	more.optimizer = 0;
	more.impl = 0;
	less = more;
	less.ranks = 4;
	at_least(loaded, m, &more, &less, "fewer ranks");
}

static void
try_model(const struct model *m)
{
	struct draw d = {1};
	char path[256];
	mc_model *loaded;

	snprintf(path, sizeof path, "fixtures/models/%s", m->file);
	assert_int_equal(mc_load_path(path, NULL, &loaded), MC_OK);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct recipe_draw less = draw_recipe(&d), more = less;

		more.batch++;
		at_least(loaded, m, &more, &less, "a larger batch");
		more = less;
		more.seq += 8;
		if (m->has_seq)
			at_least(loaded, m, &more, &less, "a longer sequence");
		more = less;
		less.freeze++;
		at_least(loaded, m, &more, &less, "training more");
		less.freeze--;
		less.optimizer = 1;        /* without state */
		at_least(loaded, m, &more, &less, "optimizer state");
		less = more;
		less.checkpoint = 1;
		more.freeze = less.freeze = 0;
		if (m->has_blocks)
			at_least(loaded, m, &more, &less, "no checkpointing");
		compare_ranks(loaded, m, &more, 1 + i % 5);
	}
	mc_model_free(loaded);
}

static void
peaks_are_monotone(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
		try_model(&models[i]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(peaks_are_monotone)};

	return cmocka_run_group_tests_name("properties", tests, NULL, NULL);
}
