#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf door;

struct ctx *
test_ctx(void)
{
	struct ctx *c = calloc(1, sizeof *c);

	assert_non_null(c);
	assert_true(ctx_open(c, NULL));
	if (setjmp(door))
		fail_msg("the arena ran out");
	arena_door(c->a, &door);
	return c;
}

void
test_ctx_free(struct ctx *c)
{
	ctx_close(c);
	free(c);
}

/* A file that names a layer without its size, as the one thing that makes its answer a lower bound. */
static bool
only_lacks_layers(const struct report *r)
{
	bool lacks = false;

	for (uint32_t i = 0; i < r->nload_diag; i++)
		lacks |= r->load_diags[i].code == DIAG_LAYERS_MISSING;
	return lacks && r->sized == r->values && !r->nunbound && !r->ndiag;
}

static struct analysed
analyse(mc_model *m, mc_status st, const char *json)
{
	struct analysed a = {.m = m};
	mc_recipe *r = mc_recipe_new();
	mc_diagnostic d[8];

	if (st != MC_OK)
		fail_msg("%s", mc_model_diagnostics(m, d, 8) ? d[0].message : "loading failed");
	if (mc_recipe_json(r, json, strlen(json), NULL) != MC_OK)
		fail_msg("%s", mc_recipe_diagnostics(r, d, 8) ? d[0].message : "the recipe failed");
	st = mc_analyze(a.m, r, NULL, &a.r);
	if (st != MC_OK && (st != MC_INCOMPLETE || !only_lacks_layers(&a.r->r)))
		fail_msg("%s", a.r && mc_report_diagnostics(a.r, d, 8) ? d[0].message : "the analysis failed");
	mc_recipe_free(r);
	return a;
}

struct analysed
test_analyse(const char *text, const char *json)
{
	mc_model *m;
	mc_status st = mc_load_memory(text, strlen(text), "test", NULL, &m);

	return analyse(m, st, json);
}

struct analysed
test_analyse_file(const char *path, const char *json)
{
	mc_model *m;
	mc_status st = mc_load_path(path, NULL, &m);

	return analyse(m, st, json);
}

void
release_analysis(struct analysed a)
{
	mc_report_free(a.r);
	mc_model_free(a.m);
}

mc_report *
test_report(const char *path, const char *json, mc_model **m)
{
	mc_recipe *recipe = mc_recipe_new();
	mc_report *r = NULL;
	mc_status st = mc_load_path(path, NULL, m);

	if (st != MC_OK)
		fail_msg("%s: loading failed", path);
	assert_int_equal(mc_recipe_json(recipe, json, strlen(json), NULL), MC_OK);
	st = mc_analyze(*m, recipe, NULL, &r);
	assert_true(st == MC_OK || st == MC_INCOMPLETE);
	mc_recipe_free(recipe);
	return r;
}

static int
collect(void *user, const void *p, size_t n)
{
	buf_put(user, p, n);
	return 0;
}

static struct buf
write_once(const mc_report *r, const char *format)
{
	struct buf b = {0};

	if (mc_write(r, format, collect, &b) != MC_OK)
		fail_msg("%s was not written", format);
	buf_put(&b, "", 1);
	assert_false(b.failed);
	return b;
}

char *
test_write(const mc_report *r, const char *format, size_t *n)
{
	struct buf b = write_once(r, format), again = write_once(r, format);

	assert_int_equal(b.n, again.n);
	assert_memory_equal(b.p, again.p, b.n);
	free(again.p);
	*n = b.n - 1;
	return b.p;
}

char *
test_read(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	char *p;
	long size;

	if (!f)
		fail_msg("cannot open %s", path);
	fseek(f, 0, SEEK_END);
	size = ftell(f);
	rewind(f);
	p = malloc((size_t)size + 1);
	assert_non_null(p);
	*n = fread(p, 1, (size_t)size, f);
	p[*n] = 0;
	fclose(f);
	return p;
}
