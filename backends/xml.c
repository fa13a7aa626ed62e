/* xml: the whole report, as the schema report.xsd describes it (memcrest --list-schema prints that). The same rows as the JSON's, in its order. */
#include "json_part.h"
#include "xml_part.h"

#include <stdlib.h>

static void
flag(struct xml *x, const char *name, bool is)
{
	xml_attr(x, name, is ? S("true") : S("false"));
}

static void
factors(struct xml *x, const char *name, const struct factors *f)
{
	xml_open(x, name);
	for (unsigned i = 0; i < FAC_COUNT; i++)
		xml_attr_bytes(x, factor_name(i), f->of[i]);
	xml_attr_bytes(x, "act", factors_act(f));
	xml_attr_bytes(x, "total", factors_total(f));
	xml_close(x);
}

/* ---- model and recipe --------------------------------------------------------------------------------------------- */

static void
dim(const struct report *r, struct xml *x, struct sint d)
{
	struct buf b = {0};
	int64_t n;

	xml_open(x, "dim");
	if (dim_number(r, d, &n)) {
		xml_fmt(x, "%lld", (long long)n);
	} else if (d.expr != EXPR_UNKNOWN) {
		expr_print(r->loaded, d.expr, &b);
		if (b.failed)
			xml_fail(x);
		xml_text(x, (struct str){b.p, (uint32_t)b.n});
		free(b.p);
	}
	xml_close(x);
}

static void
values(const struct report *r, struct xml *x, const char *name, const uint32_t *v, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct graph *g = v[i] ? shape_source(r, v[i]) : NULL;

		if (!g)
			continue;
		xml_open(x, name);
		xml_attr(x, "name", graph_str(g, g->vals[v[i]].name));
		if (g->vals[v[i]].dtype)
			xml_attr(x, "dtype", str_of(dtype_info(g->vals[v[i]].dtype)->name));
		for (unsigned k = 0; g->vals[v[i]].rank != RANK_UNKNOWN && k < g->vals[v[i]].rank; k++)
			dim(r, x, val_dims(g, v[i])[k]);
		xml_close(x);
	}
}

static void
model(const struct report *r, struct xml *x)
{
	xml_open(x, "model");
	xml_attr(x, "file", r->file);
	xml_attr(x, "format", r->loaded->format);
	xml_attr(x, "producer", r->loaded->producer);
	xml_attr_bytes(x, "nodes", r->loaded->file_nodes);
	xml_attr_bytes(x, "buffer_bytes", r->buffer_bytes);
	xml_open(x, "parameters");
	xml_attr_bytes(x, "count", r->param_count);
	xml_attr_bytes(x, "trainable", r->param_trainable);
	xml_attr_bytes(x, "bytes", r->param_bytes);
	xml_attr_bytes(x, "trainable_bytes", r->param_trainable_bytes);
	xml_close(x);
	values(r, x, "input", r->loaded->inputs, r->loaded->ninput);
	values(r, x, "output", r->loaded->outputs, r->loaded->noutput);
	xml_close(x);
}

static void
setting(struct xml *x, const char *outer, const char *key, const json_t *v)
{
	struct buf text = {0};

	if (!json_is_string(v))
		json_line(v, &text);
	if (text.failed)
		xml_fail(x);
	xml_open(x, "key");
	xml_attr_fmt(x, "name", "%s%s%s", outer, *outer ? "." : "", key);
	xml_attr(x, "value", json_is_string(v) ? (struct str){json_string_value(v), (uint32_t)json_string_length(v)} : (struct str){text.p ? text.p : "", (uint32_t)text.n});
	xml_close(x);
	free(text.p);
}

static void
recipe(const struct report *r, struct xml *x)
{
	json_t *o = json_recipe(r->r), *v, *inner;
	const char *key, *key2;

	if (!o)
		xml_fail(x);
	xml_open(x, "recipe");
	json_object_foreach(o, key, v) {
		if (!json_is_object(v))
			setting(x, "", key, v);
		json_object_foreach(v, key2, inner)
			setting(x, key, key2, inner);
	}
	xml_close(x);
	json_decref(o);
}

/* ---- peak and steps -------------------------------------------------------------------------------------------------- */

static void
live(const struct report *r, struct xml *x)
{
	for (uint32_t i = 0; i < r->nlive; i++) {
		const struct storage *s = &r->sched->storages[r->live[i].storage];
		char dims[256];
		struct buf b = {.p = dims, .cap = sizeof dims};

		print_dims(s->geom, "x", &b);
		xml_open(x, "live");
		xml_attr(x, "name", r->live[i].name);
		xml_attr(x, "module", r->live[i].module);
		xml_attr(x, "node", r->live[i].node);
		xml_attr(x, "factor", str_of(r->live[i].factor));
		xml_attr_bytes(x, "bytes", s->nbytes);
		xml_attr(x, "dtype", str_of(dtype_info(s->geom->dtype)->name));
		xml_attr(x, "shape", (struct str){dims, (uint32_t)b.n});
		xml_close(x);
	}
}

static void
peak(const struct report *r, struct xml *x)
{
	const struct step_row *st = &r->steps[r->peak_step];

	xml_open(x, "peak");
	xml_attr_bytes(x, "step", r->peak_step);
	xml_attr(x, "phase", str_of(phase_name(st->phase)));
	xml_attr_bytes(x, "event", st->event);
	xml_attr(x, "node", graph_str(r->g, r->g->nodes[r->peak_node].name));
	xml_attr(x, "op", r->peak_op);
	xml_attr(x, "module", scope_path(r->g, r->g->nodes[r->peak_node].scope));
	xml_attr(x, "modality", str_of(modality_name(r->peak_modality)));
	xml_attr_bytes(x, "tensors", st->tensors);
	xml_attr_bytes(x, "allocated", r->memory.allocated);
	xml_attr_bytes(x, "reserved", r->memory.reserved);
	xml_attr_bytes(x, "process_low", r->memory.process_low);
	xml_attr_bytes(x, "process_high", r->memory.process_high);
	factors(x, "factors", peak_factors(r));
	live(r, x);
	xml_close(x);
}

static void
step(const struct report *r, struct xml *x, unsigned i)
{
	const struct step_row *st = &r->steps[i];

	xml_open(x, "step");
	xml_attr_bytes(x, "step", i);
	xml_attr_bytes(x, "tensors", st->tensors);
	xml_attr(x, "phase", str_of(phase_name(st->phase)));
	xml_attr_bytes(x, "forward_end", st->forward_end);
	xml_attr_bytes(x, "allocated", st->allocated);
	xml_attr_bytes(x, "reserved", st->reserved);
	for (unsigned p = PH_FORWARD; p < PH_COUNT; p++) {
		xml_open(x, "phase");
		xml_attr(x, "name", str_of(phase_name(p)));
		xml_attr_bytes(x, "tensors", st->phases[p].tensors);
		xml_attr_bytes(x, "allocated", st->phases[p].allocated);
		xml_attr_bytes(x, "reserved", st->phases[p].reserved);
		factors(x, "factors", &st->phases[p].at);
		xml_close(x);
	}
	xml_close(x);
}

/* ---- who has it ---------------------------------------------------------------------------------------------------------- */

static void
modalities(const struct report *r, struct xml *x)
{
	for (unsigned i = 1; i < MOD_COUNT; i++) {
		const struct modality_row *m = &r->modalities[i];

		if (!m->parameters && !factors_total(&m->at) && !m->nmodule)
			continue;
		xml_open(x, "modality");
		xml_attr(x, "name", str_of(modality_name(i)));
		xml_attr_bytes(x, "parameters", m->parameters);
		xml_attr_bytes(x, "trainable", m->trainable);
		for (uint32_t k = 0; k < m->nmodule; k++) {
			xml_open(x, "of");
			xml_attr(x, "module", m->modules[k]);
			xml_close(x);
		}
		if (r->sched) {
			factors(x, "factors", &m->at);
			factors(x, "plain_sum", &m->plain);
		}
		xml_close(x);
	}
}

static void
modules(const struct report *r, struct xml *x)
{
	for (uint32_t i = 0; i < r->nmodule; i++) {
		const struct module_row *m = &r->modules[i];

		xml_open(x, "module");
		xml_attr(x, "path", m->path);
		xml_attr(x, "class", m->cls);
		xml_attr(x, "modality", str_of(modality_name(m->modality)));
		xml_attr_bytes(x, "parameters", m->parameters);
		xml_attr_bytes(x, "trainable", m->trainable);
		if (r->sched) {
			xml_attr_bytes(x, "saved", m->saved);
			flag(x, "peak_here", m->peak_here);
			factors(x, "factors", &m->at);
		}
		xml_close(x);
	}
}

/* ---- how far it can be trusted ---------------------------------------------------------------------------------------------- */

static void
coverage(const struct report *r, struct xml *x)
{
	xml_open(x, "coverage");
	xml_attr_bytes(x, "nodes", r->loaded->file_nodes);
	xml_attr_bytes(x, "modelled_nodes", r->modelled_nodes);
	xml_attr_bytes(x, "sized_values", r->sized);
	xml_attr_bytes(x, "values", r->values);
	flag(x, "lower_bound", r->lower_bound);
	for (uint32_t i = 0; i < r->nunknown; i++) {
		xml_open(x, "unknown_op");
		xml_attr(x, "op", r->unknown[i].name);
		xml_attr_bytes(x, "count", r->unknown[i].count);
		xml_close(x);
	}
	for (uint32_t i = 0; i < r->nunbound; i++)
		xml_element(x, "unbound_dim", r->unbound[i]);
	xml_close(x);
}

static void
diagnostics(struct xml *x, const struct diag *d, uint32_t n)
{
	static const char *const severity[] = {[SEV_NOTE] = "note", [SEV_WARNING] = "warning", [SEV_ERROR] = "error"};

	for (uint32_t i = 0; i < n; i++) {
		xml_open(x, "diagnostic");
		xml_attr(x, "code", str_of(diag_name(d[i].code)));
		xml_attr(x, "severity", str_of(severity[d[i].severity]));
		xml_attr(x, "where", d[i].where);
		xml_text(x, d[i].text);
		xml_close(x);
	}
}

static void
verdict(const struct verdict *v, struct xml *x)
{
	if (!v->asked)
		return;
	xml_open(x, "verdict");
	flag(x, "fits", v->fits);
	flag(x, "sure", v->sure);
	xml_attr_bytes(x, "budget", v->budget);
	xml_attr_fmt(x, "margin", "%lld", (long long)v->margin);
	xml_close(x);
}

static void
training(const struct report *r, struct xml *x)
{
	recipe(r, x);
	peak(r, x);
	step(r, x, 1);
	step(r, x, 2);
}

static void
moved(const struct report *r, struct xml *x)
{
	for (uint32_t i = 0; i < r->nmoved; i++) {
		xml_open(x, "moved");
		xml_attr(x, "what", str_of(r->moved[i].what));
		xml_attr_bytes(x, "bytes", r->moved[i].bytes);
		xml_attr(x, "managed", r->moved[i].managed ? S("true") : S("false"));
		xml_attr(x, "when", str_of(r->moved[i].when));
		xml_close(x);
	}
}

static bool
write(const struct report *r, struct emit *e)
{
	struct xml *x = xml_start(e, true);

	xml_open(x, r->sched ? "report" : "inspect");
	xml_attr(x, "schema_version", S("1"));
	xml_open(x, "tool");
	xml_attr(x, "name", S("memcrest"));
	xml_attr(x, "version", S(MC_VERSION));
	xml_close(x);
	model(r, x);
	if (r->sched)
		training(r, x);
	modalities(r, x);
	modules(r, x);
	if (r->sched)
		factors(x, "plain_sum", &r->plain);
	coverage(r, x);
	moved(r, x);
	for (uint32_t i = 0; i < r->nassumption; i++)
		xml_element(x, "assumption", r->assumptions[i]);
	diagnostics(x, r->load_diags, r->nload_diag);
	diagnostics(x, r->diags, r->ndiag);
	verdict(&r->verdict, x);
	xml_close(x);
	return xml_end(x);
}

const struct backend backend_xml = {"xml", "the whole report as XML (--list-schema prints its schema)", true, write};
