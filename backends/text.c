/*
 * text: for people. The first three lines answer how much, where and what dominates; then factors, modalities, the largest
 * modules, what is alive at the peak, and what was assumed. Bytes are in binary units and the exact number stands beside the peak.
 */
#include "backend.h"

#include <string.h>

#define ROWS 12

static void
bytes_cell(struct buf *b, uint64_t n, int width)
{
	char h[32];

	if (n)
		buf_fmt(b, "%*s", width, human_bytes(n, h));
	else
		buf_fmt(b, "%*s", width, "-");
}

/* The last part of a long path is the telling one. */
static void
path_cell(struct buf *b, struct str s, int width)
{
	if (!s.n)
		s = S("(whole model)");
	if (s.n > (uint32_t)width)
		buf_fmt(b, "..%.*s", width - 2, s.p + s.n - (uint32_t)width + 2);
	else
		buf_fmt(b, "%-*.*s", width, SFMT(s));
}

/* A column for names, narrower on a narrow terminal. */
#define FULL 100

static int
narrow(const struct emit *e, int full)
{
	int less = e->view.width && e->view.width < FULL ? full - (FULL - (int)e->view.width) : full;

	return less < 16 ? 16 : less;
}

/* Escape sequences, on terminals that may have them: "1" bold, "31" red, "32" green. */
static const char *
paint(const struct emit *e, const char *code)
{
	return !e->view.colour ? "" : strcmp(code, "1") == 0 ? "\033[1m" : strcmp(code, "31") == 0 ? "\033[31m" : strcmp(code, "32") == 0 ? "\033[32m" : "\033[0m";
}

/* ---- the answer -------------------------------------------------------------------------------------------- */

static void
answer(const struct report *r, struct emit *e)
{
	const struct step_row *st = &r->steps[r->peak_step];
	struct buf *b = e->b;
	uint64_t most;
	const char *what = dominant(peak_factors(r), &most);
	char h[32], k[32], x[32];

	buf_fmt(b, "peak       %s%s%s%s of tensors (%s bytes); the plain sum of the factors is %s\n", r->lower_bound ? "at least " : "", paint(e, "1"),
	    human_bytes(st->tensors, h), paint(e, ""), exact_bytes(st->tensors, x), human_bytes(factors_total(&r->plain), k));
	buf_fmt(b, "where      step %u, %s: %.*s", r->peak_step, phase_name(st->phase), SFMT(peak_place(r, e->a)));
	if (r->peak_modality)
		buf_fmt(b, " (%s)", modality_name(r->peak_modality));
	buf_fmt(b, "\ndominated  by %s: %s, %u %%\n", what, human_bytes(most, h), percent(most, st->tensors));
}

/* What the GPU will say, and the verdict if one was asked for. */
static void
memory(const struct report *r, struct buf *b)
{
	const struct memory_row *m = &r->memory;
	char h[32], k[32], e[32];

	buf_fmt(b, "reserved   %s by PyTorch's allocator (%s bytes), of which at most %s allocated\n", human_bytes(m->reserved, h), exact_bytes(m->reserved, e),
	    human_bytes(m->allocated, k));
	buf_fmt(b, "process    %s to %s", human_bytes(m->process_low, h), human_bytes(m->process_high, k));
	buf_fmt(b, ": with the CUDA context, %s to", human_bytes(m->context_low, h));
	buf_fmt(b, " %s", human_bytes(m->context_high, h));
	if (m->scratch)
		buf_fmt(b, ", and up to %s of kernels' scratch space", human_bytes(m->scratch, h));
	buf_fmt(b, "\n");
}

/* What is offloaded, where it takes the most. */
static void
host(const struct report *r, struct buf *b)
{
	static const struct {
		unsigned factor;
		const char *name;
	} part[] = {{FAC_PARAM, "parameters"}, {FAC_GRAD, "gradients"}, {FAC_OPT, "optimizer"}, {FAC_SAVED, "activations"}};
	char h[32];
	bool any = false;

	if (!factors_total(&r->host))
		return;
	buf_fmt(b, "host       %s of the host's memory:", human_bytes(factors_total(&r->host), h));
	for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
		if (r->host.of[part[i].factor]) {
			buf_fmt(b, "%s %s %s", any ? "," : "", part[i].name, human_bytes(r->host.of[part[i].factor], h));
			any = true;
		}
	buf_fmt(b, "\n");
	for (uint32_t i = 0; i < r->nmoved; i++)
		buf_fmt(b, "  %s%s of %s: %s\n", r->moved[i].managed ? "at most " : "", human_bytes(r->moved[i].bytes, h), r->moved[i].what, r->moved[i].when);
}

/* The replay goes on as if the driver had had it, so that the numbers above are what would be needed. */
static void
shortage(const struct report *r, struct buf *b)
{
	const struct memory_row *m = &r->memory;
	const struct schedule *s = r->sched;
	uint32_t i = 0;
	char h[32];

	if (!m->short_of)
		return;
	while (i + 1 < s->nspan && s->spans[i + 1].first <= m->short_event)
		i++;
	buf_fmt(b, "short      out of memory in step %u, %s: %s asks for %s\n", s->spans[i].step, phase_name(s->spans[i].phase),
	    s->storages[EVENT_STORAGE(s->events[m->short_event])].op, human_bytes(m->short_of, h));
}

static void
verdict(const struct report *r, struct emit *e)
{
	struct buf *b = e->b;
	const struct verdict *v = &r->verdict;
	uint64_t margin = v->margin < 0 ? -(uint64_t)v->margin : (uint64_t)v->margin;
	char h[32], k[32];

	if (!v->asked)
		return;
	buf_fmt(b, "verdict    %s%s%s %s: %s %s\n", paint(e, v->sure && v->fits ? "32" : "31"), !v->sure ? "may or may not fit in" : v->fits ? "fits in" : "does not fit in", paint(e, ""), human_bytes(v->budget, h),
	    human_bytes(margin, k), v->margin < 0 ? "too much" : "to spare");
}

/* ---- tables -------------------------------------------------------------------------------------------------- */

/* Names and five columns fit a terminal of 80. */
#define FACTOR_TABLE 89

static int
cell_width(const struct emit *e)
{
	return e->view.width && e->view.width < FACTOR_TABLE ? 12 : 13;
}

static void
factor_line(const struct emit *e, const char *name, const struct factors *f)
{
	struct buf *b = e->b;
	int w = cell_width(e);

	buf_fmt(b, "%*s%-*s", w == 13 ? 2 : 1, "", w == 13 ? 22 : 19, name);
	bytes_cell(b, factors_total(f), w);
	bytes_cell(b, f->of[FAC_PARAM], w);
	bytes_cell(b, f->of[FAC_GRAD], w);
	bytes_cell(b, f->of[FAC_OPT], w);
	bytes_cell(b, factors_act(f), w);
	buf_str(b, S("\n"));
}

static void
factor_head(const struct emit *e, const char *title)
{
	int w = cell_width(e), first = (w == 13 ? 24 : 20) + w - (int)strlen(title);

	buf_fmt(e->b, "\n%s%*s%*s%*s%*s%*s\n", title, first, "total", w, "parameters", w, "gradients", w, "optimizer", w, "activations");
}

static void
factors(const struct report *r, const struct emit *e)
{
	char name[64];

	factor_head(e, "highest point of");
	for (unsigned i = 1; i <= 2; i++)
		for (unsigned p = PH_FORWARD; p < PH_COUNT; p++) {
			struct buf n = {.p = name, .cap = sizeof name};

			buf_fmt(&n, "step %u, %s%s", i, phase_name(p), i == r->peak_step && p == r->steps[i].phase ? " *" : "");
			buf_put(&n, "", 1);
			factor_line(e, name, &r->steps[i].phases[p].at);
		}
	factor_line(e, "plain sum", &r->plain);
}

static void
activations(const struct report *r, struct buf *b)
{
	const struct step_row *st = &r->steps[r->peak_step];
	const struct factors *f = &st->phases[st->phase].at;
	char s[32], t[32], i[32];

	buf_fmt(b, "  * activations there: saved %s, transient %s, input %s\n", human_bytes(f->of[FAC_SAVED], s), human_bytes(f->of[FAC_TRANSIENT], t),
	    human_bytes(f->of[FAC_INPUT], i));
}

static void
modalities(const struct report *r, const struct emit *e)
{
	factor_head(e, "modality, at the peak");
	for (unsigned i = 1; i < MOD_COUNT; i++)
		if (factors_total(&r->modalities[i].at))
			factor_line(e, modality_name(i), &r->modalities[i].at);
}

static void
count_cell(struct buf *b, uint32_t n)
{
	if (n > 1)
		buf_fmt(b, "%7u", (unsigned)n);
	else
		buf_fmt(b, "%7s", "");
}

static void
modules(const struct report *r, struct emit *e)
{
	struct buf *b = e->b;
	int w = narrow(e, 42);

	buf_fmt(b, "\n%-*s%7s%12s%13s%12s%10s\n", w + 2, w < 26 ? "largest modules" : "largest modules, at the peak", "count", "total", "activations", "parameters", "modality");
	for (uint32_t i = 0; i < r->nmodules_alike && i < ROWS; i++) {
		const struct alike_row *m = &r->modules_alike[i];

		buf_fmt(b, "  ");
		path_cell(b, m->name, w);
		count_cell(b, m->count);
		bytes_cell(b, m->bytes, 12);
		bytes_cell(b, factors_act(&m->at), 13);
		bytes_cell(b, m->at.of[FAC_PARAM], 12);
		buf_fmt(b, "%10s\n", modality_name(m->modality));
	}
}

static void
live(const struct report *r, struct emit *e)
{
	struct buf *b = e->b;
	int w = narrow(e, 51);
	uint32_t shown = 0;

	buf_fmt(b, "\n%-*s%7s%12s  %-10s%s\n", w + 2, w < 32 ? "largest storages" : "largest storages alive at the peak", "count", "total", "factor", "shape");
	for (uint32_t i = 0; i < r->nlive_alike && i < ROWS; i++) {
		const struct alike_row *l = &r->live_alike[i];
		const struct geom *x = r->sched->storages[l->storage].geom;

		buf_fmt(b, "  ");
		path_cell(b, l->name, w);
		count_cell(b, l->count);
		bytes_cell(b, l->bytes, 12);
		buf_fmt(b, "  %-10s%s[", l->factor, dtype_info(x->dtype)->name);
		print_dims(x, "x", b);
		buf_str(b, S("]\n"));
		shown += l->count;
	}
	if (r->nlive > shown)
		buf_fmt(b, "  and %u more\n", (unsigned)(r->nlive - shown));
}

static void
assumptions(const struct report *r, struct buf *b)
{
	buf_fmt(b, "\nassumed\n");
	for (uint32_t i = 0; i < r->nassumption; i++)
		buf_fmt(b, "  - %.*s\n", SFMT(r->assumptions[i]));
	buf_fmt(b, "  - tensors are without the allocator's slack and library workspaces, which allocated and reserved have\n");
}

/* ---- what the file holds ---------------------------------------------------------------------------------------- */

static void
shape(const struct report *r, uint32_t v, struct buf *b)
{
	const struct graph *g = shape_source(r, v);
	const struct val *x = &g->vals[v];
	int64_t n;

	buf_fmt(b, "%s[", x->dtype ? dtype_info(x->dtype)->name : "?");
	for (unsigned i = 0; x->rank != RANK_UNKNOWN && i < x->rank; i++) {
		struct sint d = val_dims(g, v)[i];

		buf_str(b, i ? S(", ") : S(""));
		if (dim_number(r, d, &n))
			buf_fmt(b, "%lld", (long long)n);
		else
			expr_print(g, d.expr, b);
	}
	buf_str(b, x->rank == RANK_UNKNOWN ? S("?]") : S("]"));
}

static void
ends(const struct report *r, const char *title, const uint32_t *v, uint32_t n, struct buf *b)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!v[i])
			continue;
		buf_fmt(b, "%-11s%.*s : ", title, SFMT(graph_str(r->loaded, r->loaded->vals[v[i]].name)));
		shape(r, v[i], b);
		buf_str(b, S("\n"));
		title = "";
	}
}

static void
contents(const struct report *r, struct buf *b)
{
	char h[32], k[32];

	buf_fmt(b, "model      %.*s: %.*s by %.*s, %u nodes, %u of them modelled\n", SFMT(r->file), SFMT(r->loaded->format), SFMT(r->loaded->producer),
	    (unsigned)r->loaded->file_nodes, (unsigned)r->modelled_nodes);
	buf_fmt(b, "holds      %llu parameters (%llu trainable), %s; buffers %s\n", (unsigned long long)r->param_count, (unsigned long long)r->param_trainable,
	    human_bytes(r->param_bytes, h), human_bytes(r->buffer_bytes, k));
	ends(r, "inputs", r->loaded->inputs, r->loaded->ninput, b);
	ends(r, "outputs", r->loaded->outputs, r->loaded->noutput, b);
	buf_fmt(b, "\n%-24s%16s%16s  %s\n", "modality", "parameters", "trainable", "modules");
	for (unsigned i = 1; i < MOD_COUNT; i++) {
		const struct modality_row *m = &r->modalities[i];

		if (!m->parameters)
			continue;
		buf_fmt(b, "  %-22s%16llu%16llu ", modality_name(i), (unsigned long long)m->parameters, (unsigned long long)m->trainable);
		for (uint32_t k2 = 0; k2 < m->nmodule && k2 < 4; k2++)
			buf_fmt(b, " %.*s", SFMT(m->modules[k2].n ? m->modules[k2] : S("(whole model)")));
		buf_str(b, m->nmodule > 4 ? S(" ..\n") : S("\n"));
	}
}

static bool
write(const struct report *r, struct emit *e)
{
	struct buf *b = e->b;

	if (!r->sched) {
		contents(r, b);
		return !b->failed;
	}
	verdict(r, e);
	answer(r, e);
	memory(r, b);
	host(r, b);
	shortage(r, b);
	factors(r, e);
	activations(r, b);
	modalities(r, e);
	modules(r, e);
	live(r, e);
	assumptions(r, b);
	return !b->failed;
}

const struct backend backend_text = {"text", "for people", true, write};
