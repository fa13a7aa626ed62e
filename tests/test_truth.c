/*
 * The truth tool's runs of real PyTorch (fixtures/truth, torch 2.13) against exports of the same models: peaks of every phase
 * and the end of forward to the byte; the events of both steps to the share that is stated, each run of releases sorted.
 */
#include "test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const struct job {
	const char *file, *prefix; /* prefix: of module names, where the exporter wrapped the model */
	const char *truth;
	unsigned differ;           /* events missing or too many: the exporter's stand-in for unbind, the order of 512-byte counters */
	bool has_log;
	bool peak_only;            /* what the trace does not return does not live as long as in the truth: phases below the peak are lower */
} jobs[] = {
	{"toy_vlm.train.onnx", "", "toy_vlm--fp32", 32, true, false},
	{"toy_vlm.train.onnx", "", "toy_vlm--bf16-sgd-momentum", 32, true, false},
	{"toy_vlm.train.onnx", "", "toy_vlm--vision-frozen-mixed", 32, true, false},
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
};

static void
add_prefix(json_t *patterns, const char *prefix)
{
	for (size_t i = 0; i < json_array_size(patterns); i++)
		json_array_set_new(patterns, i, json_sprintf("%s%s", prefix, json_string_value(json_array_get(patterns, i))));
}

/* The truth's recipe, with batch and seq as dims. */
static char *
recipe_of(json_t *truth, const char *prefix)
{
	json_t *r = json_deep_copy(json_object_get(truth, "recipe")), *dims = json_object();
	const char *const size[] = {"batch", "seq"};
	char *text;

	add_prefix(json_object_get(r, "freeze"), prefix);

	for (unsigned i = 0; i < 2; i++)
		if (json_object_get(r, size[i])) {
			json_object_set(dims, size[i], json_object_get(r, size[i]));
			json_object_del(r, size[i]);
		}
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

struct event {
	uint8_t step, phase, is_free;
	uint64_t bytes;
};

struct events {
	struct event *e;
	size_t n, cap;
};

static void
push(struct events *l, struct event e)
{
	if (e.step == 0 || e.bytes == 0)
		return;
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 1024;
		l->e = realloc(l->e, l->cap * sizeof *l->e);
		assert_non_null(l->e);
	}
	l->e[l->n++] = e;
}

static int
by_bytes(const void *a, const void *b)
{
	uint64_t x = ((const struct event *)a)->bytes, y = ((const struct event *)b)->bytes;

	return x < y ? -1 : x > y;
}

static void
sort_releases(struct events *l)
{
	for (size_t i = 0, k; i < l->n; i = k + 1) {
		for (k = i; k < l->n && l->e[k].is_free && l->e[k].step == l->e[i].step && l->e[k].phase == l->e[i].phase; k++)
			;
		if (k > i) {
			qsort(l->e + i, k - i, sizeof *l->e, by_bytes);
			k--;
		}
	}
}

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
			push(&l, (struct event){(uint8_t)step, (uint8_t)phase_of(phase), action[0] == 'f', bytes});
	gzclose(f);
	sort_releases(&l);
	return l;
}

static struct events
own_events(const struct schedule *s)
{
	struct events l = {0};

	for (uint32_t i = 0; i < s->nspan; i++)
		for (uint32_t e = s->spans[i].first; e < (i + 1 < s->nspan ? s->spans[i + 1].first : s->nevent); e++)
			push(&l, (struct event){s->spans[i].step, s->spans[i].phase, EVENT_IS_FREE(s->events[e]), s->storages[EVENT_STORAGE(s->events[e])].nbytes});
	sort_releases(&l);
	return l;
}

static bool
same(const struct event *a, const struct event *b)
{
	return a->step == b->step && a->phase == b->phase && a->is_free == b->is_free && a->bytes == b->bytes;
}

enum { MOST = 64 };

/* Insertions and deletions that turn one list into the other (Myers 1986, O(ND)); MOST = that many or more. */
static unsigned
differences(const struct events *a, const struct events *b)
{
	size_t reach[2 * MOST + 3] = {0};       /* farthest index in a on diagonal k, at reach[MOST + 1 + k] */

	for (int d = 0; d < MOST; d++)
		for (int k = -d; k <= d; k += 2) {
			size_t *r = reach + MOST + 1 + k, i, j;

			i = k == -d || (k != d && r[-1] < r[1]) ? r[1] : r[-1] + 1;
			j = (size_t)((ptrdiff_t)i - k);
			while (i < a->n && j < b->n && same(&a->e[i], &b->e[j])) {
				i++;
				j++;
			}
			*r = i;
			if (i >= a->n && j >= b->n)
				return (unsigned)d;
		}
	return MOST;
}

static void
compare_events(const struct job *job, const struct schedule *s)
{
	char path[256];
	struct events want, got = own_events(s);
	unsigned n;

	snprintf(path, sizeof path, "fixtures/truth/%s.tsv.gz", job->truth);
	want = read_log(path);
	n = differences(&got, &want);
	if (n > job->differ)
		fail_msg("%s: %u events differ of %zu", job->truth, n, want.n);
	free(want.e);
	free(got.e);
}

static void
jobs_equal_the_truth(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
		char path[256];
		json_t *truth;
		struct analysed a;
		char *recipe;

		snprintf(path, sizeof path, "fixtures/truth/%s.json", jobs[i].truth);
		truth = json_load_file(path, 0, NULL);
		assert_non_null(truth);
		recipe = recipe_of(truth, jobs[i].prefix);
		snprintf(path, sizeof path, "fixtures/models/%s", jobs[i].file);
		a = test_analyse_file(path, recipe);
		for (unsigned k = 0; k < 2; k++)
			compare_step(&jobs[i], &a.r->r.steps[k + 1], json_array_get(json_object_get(truth, "steps"), k), k + 1);
		if (jobs[i].has_log)
			compare_events(&jobs[i], a.r->r.sched);
		release_analysis(a);
		free(recipe);
		json_decref(truth);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_equal_the_truth)};

	return cmocka_run_group_tests_name("truth", tests, NULL, NULL);
}
