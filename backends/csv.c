/* csv: the module tree, one line a module, children after their parents and counted in them; the first line, whose path is empty, is the model. */
#include "backend.h"

static void
numbers(const struct report *r, const struct module_row *m, struct buf *b)
{
	for (unsigned i = 0; r->sched && i < FAC_COUNT; i++)
		buf_fmt(b, ",%llu", (unsigned long long)m->at.of[i]);
	if (r->sched)
		buf_fmt(b, ",%llu,%llu,%llu,%s", (unsigned long long)factors_act(&m->at), (unsigned long long)factors_total(&m->at), (unsigned long long)m->saved,
		    m->peak_here ? "true" : "false");
}

static bool
write(const struct report *r, struct emit *e)
{
	struct buf *b = e->b;

	buf_str(b, S("path,class,modality,parameters,trainable"));
	buf_str(b, r->sched ? S(",param,grad,opt,saved,transient,input,act,total,saved_in_forward,peak_here\n") : S("\n"));
	for (uint32_t i = 0; i < r->nmodule; i++) {
		const struct module_row *m = &r->modules[i];

		csv_cell(b, m->path);
		buf_str(b, S(","));
		csv_cell(b, m->cls);
		buf_fmt(b, ",%s,%llu,%llu", modality_name(m->modality), (unsigned long long)m->parameters, (unsigned long long)m->trainable);
		numbers(r, m, b);
		buf_str(b, S("\n"));
	}
	return !b->failed;
}

const struct backend backend_csv = {"csv", "the module tree at the peak, comma-separated", true, write};
