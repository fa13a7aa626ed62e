/*
 * The targets. Where a format has checksums or an archive around what is parsed, the target wraps the bytes itself, so that a mutation reaches the
 * parser behind. What loads is analysed and written as text, events and JSON, and in one more format, which bytes of the input pick; some small
 * models are swept and advised on: most of what a hostile file can do happens behind the parser.
 */
#include "fuzz.h"
#include "test.h"
#include "../backends/backend.h"
#include "../frontend/frontend.h"
#include "../frontend/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY (256u << 20)

/* ---- whole runs ----------------------------------------------------------------------------------------------------- */

static int
swallow(void *user, const void *p, size_t n)
{
	*(unsigned char *)user ^= n ? *(const unsigned char *)p : 0;
	return 0;
}

static mc_options
options(void)
{
	mc_options o;

	mc_options_init(&o);
	o.max_memory = MEMORY;
	return o;
}

/* From two bytes inside, for archives begin and end alike and a text's byte is often a blank. */
static unsigned
pick(const char *p, size_t n)
{
	return n ? (unsigned char)p[n / 2] + 7u * (unsigned char)p[n / 3] : 0;
}

static const char *
format_at(unsigned picked)
{
	unsigned n = 0;

	while (backend_at(n))
		n++;
	return backend_at(picked % n)->name;
}

static void
analyse(const mc_model *m, const char *json, unsigned picked)
{
	const char *const formats[] = {"text", "json", "events", format_at(picked)};
	mc_recipe *r = mc_recipe_new();
	mc_options o = options();
	mc_report *rep = NULL;
	unsigned char sum = 0;
	mc_status st;

	assert_non_null(r);
	assert_int_equal(mc_recipe_json(r, json, strlen(json), NULL), MC_OK);
	st = mc_analyze(m, r, &o, &rep);
	for (size_t i = 0; i < 4 && (st == MC_OK || st == MC_INCOMPLETE); i++)
		mc_write(rep, formats[i], swallow, &sum);
	mc_report_free(rep);
	mc_recipe_free(r);
}

static void
load(const char *p, size_t n, const char *json)
{
	mc_options o = options();
	mc_model *m;

	if (mc_load_memory(p, n, "fuzz", &o, &m) == MC_OK)
		analyse(m, json, pick(p, n));
	mc_model_free(m);
}

static const char *const recipes[] = {
	"{\"dims\": {\"batch\": 3}}",
	"{\"dims\": {\"batch\": 2, \"seq\": 8}, \"precision\": \"bf16-mixed\", \"checkpoint\": \"non-reentrant\", \"optimizer\": \"adafactor\"}",
	"{\"precision\": \"bf16\", \"lora\": {\"r\": 4, \"targets\": \"all-linear\"}, \"attention\": \"eager\", \"grad_accum\": 2}",
	"{\"loss\": \"sum\", \"checkpoint\": \"reentrant\", \"optimizer\": \"sgd\", \"attention\": \"flash\", \"padding\": true}",
	"{\"loss\": \"cross-entropy\", \"device\": \"h100-80gb\", \"optimizer\": \"muon\", \"train_only\": [\"*w*\"]}",
};

static void
write_table(mc_status st, mc_sweep *s, unsigned picked)
{
	static const char *const formats[] = {"text", "csv", "json"};
	unsigned char sum = 0;

	if (st == MC_OK || st == MC_INCOMPLETE)
		mc_sweep_write(s, formats[picked % 3], swallow, &sum);
	mc_sweep_free(s);
}

/* Tens of analyses, so that there must be little in each. */
static void
run_tables(const char *p, size_t n, const char *json)
{
	mc_options o = options();
	mc_recipe *r = mc_recipe_new();
	mc_sweep *s = NULL;
	mc_model *m;
	mc_status st;

	o.max_nodes = 32;
	o.max_memory = 4u << 20;
	assert_non_null(r);
	assert_int_equal(mc_recipe_json(r, json, strlen(json), NULL), MC_OK);
	assert_int_equal(mc_recipe_set(r, "budget", "1MiB"), MC_OK);
	if (mc_load_memory(p, n, "fuzz", &o, &m) == MC_OK) {
		st = mc_sweep_new(m, r, &s);
		if (st == MC_OK)
			st = mc_sweep_vary(s, "batch", "1,3");
		if (st == MC_OK)
			st = mc_sweep_run(s, &o, 1, NULL, NULL);
		write_table(st, s, pick(p, n) / 16);
		s = NULL;
		st = mc_advise(m, r, &o, 1, NULL, NULL, &s);
		write_table(st, s, pick(p, n) / 16);
	}
	mc_model_free(m);
	mc_recipe_free(r);
}

/* The length picks the recipe, so that a model file is an input as it is. */
static void
run_estimate(const char *p, size_t n)
{
	const char *json = recipes[n % (sizeof recipes / sizeof recipes[0])];

	load(p, n, json);
	if (n < 4096 && pick(p, n) % 16 == 0)
		run_tables(p, n, json);
}

static void
run_onnx(const char *p, size_t n)
{
	load(p, n, recipes[0]);
}

static void
run_text(const char *p, size_t n)
{
	struct test_buf b = {malloc(n + 14), n + 14, 0};

	assert_non_null(b.p);
	memcpy(b.p, "memcrest-ir 1\n", 14);
	memcpy(b.p + 14, p, n);
	run_estimate(b.p, b.n);
	free(b.p);
}

/* ---- behind an archive's checksums -------------------------------------------------------------------------------------- */

static void
run_members(const struct test_member *m, size_t n, const char *json)
{
	struct test_buf z = test_zip(m, n);

	load(z.p, z.n, json);
	free(z.p);
}

static void
run_program(const char *p, size_t n)
{
	struct test_member m[] = {{"a/models/model.json", p, n}, {"a/archive_version", "0", 1}};

	run_members(m, 2, recipes[n % 2]);
}

static void
run_modules(const char *p, size_t n)
{
	static const char code[] =
	    "class Net(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = [\"b\", ]\n  w : Tensor\n  sub : __torch__.m.Net\n  def forward(self: __torch__.m.Net,\n    x: Tensor) -> Tensor:\n"
	    "    s = self.sub\n    return torch.linear(x, self.w, s.b)\n";
	struct test_member m[] = {{"a/code/__torch__/m.py", code, sizeof code - 1}, {"a/constants.pkl", "\x80\x02).", 4}, {"a/data.pkl", p, n}};

	run_members(m, 3, recipes[0]);
}

static void
run_script(const char *p, size_t n)
{
	char *text = malloc(n + 1);
	struct test_buf z;

	assert_non_null(text);
	memcpy(text, p, n);
	text[n] = 0;
	z = test_script(text, "w=Float 8x8; b=Float 8; n=3; s='text'; t=None; on=True; sub=__torch__.m.Net{w=Half 2x2; on=False}");
	load(z.p, z.n, recipes[n % 2]);
	free(z.p);
	free(text);
}

/* ---- parts ------------------------------------------------------------------------------------------------------------------ */

struct part {
	struct ctx c;
	struct source src;
	bool (*parse)(struct part *);
};

static bool
enter(void *arg)
{
	struct part *p = arg;

	return p->parse(p);
}

static void
run_part(const char *p, size_t n, bool (*parse)(struct part *))
{
	struct part part = {.src = {(const unsigned char *)p, n, S("fuzz")}, .parse = parse};
	mc_options o = options();

	assert_true(ctx_open(&part.c, &o));
	ctx_enter(&part.c, enter, &part);
	ctx_close(&part.c);
}

static bool
parse_zip(struct part *p)
{
	struct zip_archive *z = zip_open_source(&p->c, &p->src);
	struct str text;

	for (uint32_t i = 0; z && i < zip_count(z); i++) {
		zip_read(&p->c, z, zip_member(z, i), &text);
		zip_open_member(&p->c, z, zip_member(z, i));
	}
	return z != NULL;
}

static bool
parse_pickle(struct part *p)
{
	return pickle_read(&p->c, (struct str){(const char *)p->src.p, (uint32_t)p->src.n}) != NULL;
}

static bool
parse_recipe(struct part *p)
{
	struct recipe r;

	recipe_init(&r);
	return recipe_read_json(&p->c, &r, (struct str){(const char *)p->src.p, (uint32_t)p->src.n});
}

/* One file as every kind that there is, one after the other. */
static bool
parse_framework(struct part *p)
{
	struct recipe r;

	recipe_init(&r);
	for (unsigned i = FILE_NONE + 1; i < FILE_COUNT; i++)
		framework_read(&p->c, &r, i, (struct str){(const char *)p->src.p, (uint32_t)p->src.n}, S("fuzz"));
	return true;
}

static void
run_zip(const char *p, size_t n)
{
	run_part(p, n, parse_zip);
}

static void
run_pickle(const char *p, size_t n)
{
	run_part(p, n, parse_pickle);
}

static void
run_framework(const char *p, size_t n)
{
	run_part(p, n, parse_framework);
}

static void
run_recipe(const char *p, size_t n)
{
	run_part(p, n, parse_recipe);
}

/* ---- what else the commands read -------------------------------------------------------------------------------------------- */

/* annotate copies a file that was loaded by its path: one that lies in memory. */
static void
run_annotate(const char *p, size_t n)
{
	char path[32];
	mc_options o = options();
	mc_report *rep = NULL;
	mc_recipe *r = mc_recipe_new();
	mc_model *m;
	unsigned char sum = 0;
	int fd = memfd_create("fuzz.onnx", 0);

	assert_non_null(r);
	assert_int_equal(mc_recipe_json(r, recipes[0], strlen(recipes[0]), NULL), MC_OK);
	assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (mc_load_path(path, &o, &m) == MC_OK && mc_can_annotate(m) && mc_analyze(m, r, &o, &rep) <= MC_INCOMPLETE)
		mc_annotate(m, rep, swallow, &sum);
	mc_report_free(rep);
	mc_recipe_free(r);
	mc_model_free(m);
	close(fd);
}

static void
write_diff(mc_status st, mc_diff *d, unsigned picked)
{
	static const char *const formats[] = {"md", "text", "html", "json"};
	unsigned char sum = 0;

	if (st == MC_OK)
		mc_diff_write(d, formats[picked % 4], swallow, &sum);
	mc_diff_free(d);
}

static void
run_reports(const char *p, size_t n)
{
	static const char other[] = "{\"schema\": \"memcrest/report\", \"peak\": {\"tensors\": 512}, \"recipe\": {\"loss\": \"sum\", \"lora\": {\"r\": 0}}}";
	mc_diff *d = NULL;
	mc_status st = mc_diff_reports(p, n, "a", p, n, "b", &d);

	write_diff(st, d, pick(p, n));
	d = NULL;
	st = mc_diff_reports(p, n, "a", other, sizeof other - 1, "b", &d);
	write_diff(st, d, pick(p, n));
}

static void
run_measured(const char *p, size_t n)
{
	static const char text[] = "memcrest-ir 1\nparam %w \"w\" : fp32[4, 4] trainable\ninput %x : fp32[4, 4]\n%y : fp32[4, 4] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n";
	mc_options o = options();
	mc_report *rep = NULL;
	mc_recipe *r = mc_recipe_new();
	mc_model *m;
	mc_diff *d = NULL;
	mc_status st;

	assert_non_null(r);
	assert_int_equal(mc_load_memory(text, sizeof text - 1, "fuzz", &o, &m), MC_OK);
	assert_true(mc_analyze(m, r, &o, &rep) <= MC_INCOMPLETE);
	st = mc_diff_measured(rep, p, n, "snapshot", &d);
	write_diff(st, d, pick(p, n));
	mc_report_free(rep);
	mc_recipe_free(r);
	mc_model_free(m);
}

static const struct fuzz_target table[] = {
	{"zip", run_zip}, {"pickle", run_pickle}, {"modules", run_modules}, {"script", run_script}, {"program", run_program},
	{"onnx", run_onnx}, {"text", run_text}, {"recipe", run_recipe}, {"framework", run_framework}, {"estimate", run_estimate},
	{"annotate", run_annotate}, {"reports", run_reports}, {"measured", run_measured},
};

const struct fuzz_target *
fuzz_at(unsigned i)
{
	return i < sizeof table / sizeof table[0] ? &table[i] : NULL;
}
