/* The commands on two files: annotate (a model and its copy), diff (two reports, models or recipes) and compare (a model and a measurement). */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- annotated copies ---------------------------------------------------------------------------------------------- */

struct pair {
	const mc_model *m;
	const mc_report *r;
};

/* The model is analysed for a command that needs its report. */
static int
with_report(struct cli *c, int (*use)(struct cli *, const mc_model *, const mc_report *, mc_status))
{
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_status st = load(c, c->model, &m);
	int code = EXIT_BAD;

	if (st == MC_OK)
		st = analyse(c, mc_analyze, m, c->recipe, &r);
	if (st == MC_OK || st == MC_INCOMPLETE)
		code = use(c, m, r, st);
	mc_report_free(r);
	mc_model_free(m);
	return code;
}

static mc_status
write_annotated(const void *what, const char *format, const mc_view *view, mc_write_fn *fn, void *user)
{
	const struct pair *p = what;

	(void)format;
	(void)view;
	return mc_annotate(p->m, p->r, fn, user);
}

static int
annotate(struct cli *c, const mc_model *m, const mc_report *r, mc_status st)
{
	struct pair p = {m, r};

	if (!mc_can_annotate(m))
		return usage_error("only ONNX models can carry annotations; -f netron and -f model-explorer write a file to lie beside", c->model);
	if (write_output(c, (struct result){&p, write_annotated}))
		return EXIT_BAD;
	return judge(c, st, MC_NOT_ASKED);
}

/* The output is a binary file, so that it must have a name. */
int
run_annotate(struct cli *c)
{
	if (strcmp(c->format, "text") != 0)
		return report(c, mc_analyze);
	if (!c->output)
		return usage_error("annotate needs -o OUT.onnx", "");
	return with_report(c, annotate);
}

/* ---- differences ------------------------------------------------------------------------------------------------------ */

static bool
is_report(const char *path)
{
	FILE *f = fopen(path, "rb");
	int first = f ? getc(f) : EOF;

	if (f)
		fclose(f);
	return first == '{';
}

static bool
analyse_to_text(struct cli *c, const char *path, const mc_recipe *recipe, struct text *t)
{
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_status st = load(c, path, &m);
	bool ok;

	if (st == MC_OK)
		st = analyse(c, mc_analyze, m, recipe, &r);
	ok = (st == MC_OK || st == MC_INCOMPLETE) && mc_write(r, "json", append_text, t) == MC_OK;
	mc_report_free(r);
	mc_model_free(m);
	return ok;
}

/* A side of a diff: a report, a model, or the model under a recipe. */
static bool
read_side(struct cli *c, const char *path, struct text *t)
{
	mc_recipe *mine = c->recipe;
	bool ok;

	if (c->nother < 2)
		return is_report(path) ? read_whole(path, 64u << 20, t) : analyse_to_text(c, path, c->recipe, t);
	c->recipe = mc_recipe_copy(mine);
	ok = c->recipe && read_recipe(c, "", path) == EXIT_DONE && analyse_to_text(c, c->model, c->recipe, t);
	mc_recipe_free(c->recipe);
	c->recipe = mine;
	return ok;
}

static mc_status
write_diff(const void *d, const char *format, const mc_view *view, mc_write_fn *fn, void *user)
{
	(void)view;
	return mc_diff_write(d, format, fn, user);
}

static size_t
of_diff(const void *d, mc_diagnostic *out, size_t cap)
{
	return mc_diff_diagnostics(d, out, cap);
}

int
run_diff(struct cli *c)
{
	const char *name[2] = {c->nother == 2 ? c->others[0] : c->model, c->nother == 2 ? c->others[1] : c->others[0]};
	struct text t[2] = {{0}};
	mc_diff *d = NULL;
	int code = EXIT_BAD;

	if (!c->nother)
		return usage_error("diff takes two reports, two models, or a model and two recipes; there is only", c->model);
	if (c->nother == 1 && c->about_model && is_report(name[0]) && is_report(name[1]))
		return usage_error("two reports are compared as they are, and options about a model do not change them", "");
	if (read_side(c, name[0], &t[0]) && read_side(c, name[1], &t[1])) {
		mc_status st = mc_diff_reports(t[0].p ? t[0].p : "", t[0].n, name[0], t[1].p ? t[1].p : "", t[1].n, name[1], &d);

		print_diagnostics(c, of_diff, d);
		if (st == MC_OK)
			code = write_output(c, (struct result){d, write_diff}) ? EXIT_BAD : mc_diff_same(d) ? EXIT_DONE : EXIT_NO;
	}
	mc_diff_free(d);
	free(t[0].p);
	free(t[1].p);
	return code;
}

static int
compare(struct cli *c, const mc_model *m, const mc_report *r, mc_status analysed)
{
	struct text t = {0};
	mc_diff *d = NULL;
	int code = EXIT_BAD;

	(void)m;
	(void)analysed;
	if (read_whole(c->measured, 1u << 30, &t)) {
		mc_status st = mc_diff_measured(r, t.p ? t.p : "", t.n, c->measured, &d);
		double error = st == MC_OK ? mc_diff_error(d) : 0;

		print_diagnostics(c, of_diff, d);
		if (st == MC_OK)
			code = write_output(c, (struct result){d, write_diff}) ? EXIT_BAD : (error < 0 ? -error : error) <= c->tolerance ? EXIT_DONE : EXIT_NO;
	}
	mc_diff_free(d);
	free(t.p);
	return code;
}

int
run_compare(struct cli *c)
{
	if (!c->measured)
		return usage_error("compare needs --measured SNAPSHOT.pickle", "");
	return with_report(c, compare);
}
