/* md: a summary for pull requests and job pages, which take a mebibyte at most: the answer, factors, phases, the largest modules. */
#include "backend.h"

#define ROWS 20
#define MOST_LINES 50

static void
cell(struct buf *b, uint64_t n)
{
	char h[32];

	buf_fmt(b, " %s |", n ? human_bytes(n, h) : "-");
}

static void
factor_cells(struct buf *b, const struct factors *f)
{
	cell(b, factors_total(f));
	cell(b, f->of[FAC_PARAM]);
	cell(b, f->of[FAC_GRAD]);
	cell(b, f->of[FAC_OPT]);
	cell(b, factors_act(f));
	buf_str(b, S("\n"));
}

static void
head(struct buf *b, const char *title)
{
	buf_fmt(b, "\n| %s | total | parameters | gradients | optimizer | activations |\n|---|--:|--:|--:|--:|--:|\n", title);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static void
verdict(const struct report *r, struct buf *b)
{
	const struct verdict *v = &r->verdict;
	uint64_t margin = v->margin < 0 ? -(uint64_t)v->margin : (uint64_t)v->margin;
	char h[32], k[32];

	if (v->asked)
		buf_fmt(b, "**%s %s**: %s %s\n\n", !v->sure ? "May or may not fit in" : v->fits ? "Fits in" : "Does not fit in", human_bytes(v->budget, h),
		    human_bytes(margin, k), v->margin < 0 ? "too much" : "to spare");
}

static void
answer(const struct report *r, struct emit *emit)
{
	struct buf *b = emit->b;
	const struct step_row *st = &r->steps[r->peak_step];
	const struct memory_row *m = &r->memory;
	uint64_t most;
	const char *what = dominant(peak_factors(r), &most);
	char h[32], k[32], e[32];

	buf_fmt(b, "| | |\n|---|---|\n| peak | %s**%s** of tensors (%s bytes) |\n", r->lower_bound ? "at least " : "", human_bytes(st->tensors, h),
	    exact_bytes(st->tensors, e));
	buf_fmt(b, "| where | step %u, %s: ", r->peak_step, phase_name(st->phase));
	md_text(b, peak_place(r, emit->a));
	buf_fmt(b, " |\n| dominated by | %s: %s, %u %% |\n", what, human_bytes(most, h), percent(most, st->tensors));
	buf_fmt(b, "| allocated | %s |\n", human_bytes(m->allocated, h));
	buf_fmt(b, "| reserved | %s |\n| process | %s", human_bytes(m->reserved, h), human_bytes(m->process_low, k));
	buf_fmt(b, " to %s |\n| plain sum of the factors |", human_bytes(m->process_high, h));
	cell(b, factors_total(&r->plain));
	buf_str(b, S("\n"));
}

/* ---- tables -------------------------------------------------------------------------------------------------------- */

static void
phases(const struct report *r, struct buf *b)
{
	head(b, "highest point of");
	for (unsigned i = 1; i <= 2; i++)
		for (unsigned p = PH_FORWARD; p < PH_COUNT; p++) {
			const char *mark = i == r->peak_step && p == r->steps[i].phase ? "**" : "";

			buf_fmt(b, "| %sstep %u, %s%s |", mark, i, phase_name(p), mark);
			factor_cells(b, &r->steps[i].phases[p].at);
		}
}

static void
modalities(const struct report *r, struct buf *b)
{
	head(b, "modality, at the peak");
	for (unsigned i = 1; i < MOD_COUNT; i++)
		if (factors_total(&r->modalities[i].at)) {
			buf_fmt(b, "| %s |", modality_name(i));
			factor_cells(b, &r->modalities[i].at);
		}
}

static void
modules(const struct report *r, struct buf *b)
{
	head(b, "largest modules, at the peak");
	for (uint32_t i = 0; i < r->nmodules_alike && i < ROWS; i++) {
		buf_str(b, S("| "));
		md_text(b, r->modules_alike[i].name);
		if (r->modules_alike[i].count > 1)
			buf_fmt(b, " (%u)", (unsigned)r->modules_alike[i].count);
		buf_str(b, S(" |"));
		factor_cells(b, &r->modules_alike[i].at);
	}
}

static void
moved(const struct report *r, struct buf *b)
{
	char h[32];

	if (r->nmoved)
		buf_str(b, S("\nIn the host's memory:\n\n"));
	for (uint32_t i = 0; i < r->nmoved; i++)
		buf_fmt(b, "- %s%s of %s: %s\n", r->moved[i].managed ? "at most " : "", human_bytes(r->moved[i].bytes, h), r->moved[i].what, r->moved[i].when);
}

static void
assumptions(const struct report *r, struct buf *b)
{
	buf_str(b, S("\n<details><summary>Assumptions and coverage</summary>\n\n"));
	for (uint32_t i = 0; i < r->nassumption && i < MOST_LINES; i++) {
		buf_str(b, S("- "));
		md_text(b, r->assumptions[i]);
		buf_str(b, S("\n"));
	}
	for (uint32_t i = 0; i < r->ndiag && i < MOST_LINES; i++) {
		buf_fmt(b, "- %s: ", diag_name(r->diags[i].code));
		md_text(b, r->diags[i].text);
		buf_str(b, S("\n"));
	}
	buf_fmt(b, "- %u of %u nodes modelled, %u of %u values sized\n\n</details>\n", (unsigned)r->modelled_nodes, (unsigned)r->loaded->file_nodes, (unsigned)r->sized,
	    (unsigned)r->values);
}

static void
contents(const struct report *r, struct buf *b)
{
	char h[32];

	buf_fmt(b, "%llu parameters (%llu trainable), %s\n\n| modality | parameters | trainable |\n|---|--:|--:|\n", (unsigned long long)r->param_count,
	    (unsigned long long)r->param_trainable, human_bytes(r->param_bytes, h));
	for (unsigned i = 1; i < MOD_COUNT; i++)
		if (r->modalities[i].parameters)
			buf_fmt(b, "| %s | %llu | %llu |\n", modality_name(i), (unsigned long long)r->modalities[i].parameters,
			    (unsigned long long)r->modalities[i].trainable);
}

static bool
write(const struct report *r, struct emit *e)
{
	struct buf *b = e->b;

	buf_str(b, r->sched ? S("### Peak GPU memory of training ") : S("### "));
	md_text(b, r->file);
	buf_str(b, S("\n\n"));
	if (!r->sched) {
		contents(r, b);
		return !b->failed;
	}
	verdict(r, b);
	answer(r, e);
	phases(r, b);
	modalities(r, b);
	modules(r, b);
	moved(r, b);
	assumptions(r, b);
	return !b->failed;
}

const struct backend backend_md = {"md", "a Markdown summary, for pull requests and job pages", true, write};
