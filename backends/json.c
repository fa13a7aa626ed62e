/* json: the whole report (contract.md section 4), written by jansson. Keys have a fixed order; there are no timestamps. */
#include "json_part.h"

#include "../memcrest.h"

#include <stdlib.h>

/* ---- factors ---------------------------------------------------------------------------------------------- */

static json_t *
activations(const struct factors *f)
{
	json_t *o = json_object();

	json_put(&o, "saved", json_bytes(f->of[FAC_SAVED]));
	json_put(&o, "transient", json_bytes(f->of[FAC_TRANSIENT]));
	json_put(&o, "input", json_bytes(f->of[FAC_INPUT]));
	return o;
}

/* ---- model ------------------------------------------------------------------------------------------------- */

/* A dim of the file: its number, if it has one or the recipe bound it; its expression; or null. */
static json_t *
dim(const struct report *r, struct sint d)
{
	struct buf b = {0};
	json_t *j;
	int64_t n;

	if (dim_number(r, d, &n))
		return json_integer(n);
	if (d.expr == EXPR_UNKNOWN)
		return json_null();
	expr_print(r->loaded, d.expr, &b);
	j = b.failed ? NULL : json_text((struct str){b.p, (uint32_t)b.n});
	free(b.p);
	return j;
}

static json_t *
value(const struct report *r, uint32_t v)
{
	const struct graph *g = shape_source(r, v);
	const struct val *x = &g->vals[v];
	json_t *o = json_object(), *shape = json_array();
	uint64_t bytes = 1;
	bool sized = x->rank != RANK_UNKNOWN;

	for (unsigned i = 0; sized && i < x->rank; i++) {
		struct sint d = val_dims(g, v)[i];
		int64_t n;

		json_add(&shape, dim(r, d));
		if (!dim_number(r, d, &n) || !mul_u64(bytes, (uint64_t)n, &bytes))
			bytes = 0;
	}
	json_put(&o, "name", json_text(graph_str(g, x->name)));
	json_put(&o, "dtype", x->dtype ? json_string(dtype_info(x->dtype)->name) : json_null());
	json_put(&o, "shape", sized ? shape : json_null());
	if (!sized)
		json_decref(shape);
	json_put(&o, "bytes", sized && bytes ? json_bytes(dtype_bytes(x->dtype, bytes)) : json_null());
	return o;
}

static json_t *
values(const struct report *r, const uint32_t *v, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		if (v[i])
			json_add(&list, value(r, v[i]));
	return list;
}

static json_t *
model(const struct report *r)
{
	json_t *o = json_object(), *p = json_object();

	json_put(&p, "count", json_bytes(r->param_count));
	json_put(&p, "trainable", json_bytes(r->param_trainable));
	json_put(&p, "bytes", json_bytes(r->param_bytes));
	json_put(&p, "trainable_bytes", json_bytes(r->param_trainable_bytes));
	json_put(&o, "file", json_text(r->file));
	json_put(&o, "format", json_text(r->loaded->format));
	json_put(&o, "producer", json_text(r->loaded->producer));
	json_put(&o, "nodes", json_bytes(r->loaded->file_nodes));
	json_put(&o, "parameters", p);
	json_put(&o, "buffer_bytes", json_bytes(r->buffer_bytes));
	json_put(&o, "inputs", values(r, r->loaded->inputs, r->loaded->ninput));
	json_put(&o, "outputs", values(r, r->loaded->outputs, r->loaded->noutput));
	return o;
}

/* ---- the peak ---------------------------------------------------------------------------------------------------- */

static json_t *
shape_of(const struct geom *g)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < g->rank; i++)
		json_add(&list, json_integer(g->dim[i]));
	return list;
}

static json_t *
live(const struct report *r)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < r->nlive; i++) {
		const struct storage *s = &r->sched->storages[r->live[i].storage];
		json_t *o = json_object();

		json_put(&o, "name", json_text(r->live[i].name));
		json_put(&o, "module", json_text(r->live[i].module));
		json_put(&o, "node", json_text(r->live[i].node));
		json_put(&o, "factor", json_string(r->live[i].factor));
		json_put(&o, "bytes", json_bytes(s->nbytes));
		json_put(&o, "dtype", json_string(dtype_info(s->geom->dtype)->name));
		json_put(&o, "shape", shape_of(s->geom));
		json_add(&list, o);
	}
	return list;
}

static json_t *
process(const struct memory_row *m)
{
	json_t *o = json_range(m->process_low, m->process_high);

	json_put(&o, "context", json_range(m->context_low, m->context_high));
	json_put(&o, "scratch", json_range(0, m->scratch));
	return o;
}

/* The allocator at the instant of peak.tensors: what of its segments is in use, and in how large a piece the rest could be had. */
static json_t *
allocator(const struct memory_row *m)
{
	json_t *o = json_object();

	json_put(&o, "allocated", json_bytes(m->allocated_at));
	json_put(&o, "reserved", json_bytes(m->reserved_at));
	json_put(&o, "free", json_bytes(m->reserved_at - m->allocated_at));
	json_put(&o, "largest_free", json_bytes(m->largest_free));
	json_put(&o, "segments", json_bytes(m->nsegment));
	json_put(&o, "flushes", json_bytes(m->flushes));
	json_put(&o, "out_of_memory", json_boolean(m->short_of != 0));
	return o;
}

static json_t *
moved(const struct report *r)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < r->nmoved; i++) {
		json_t *o = json_object();

		json_put(&o, "what", json_string(r->moved[i].what));
		json_put(&o, "bytes", json_bytes(r->moved[i].bytes));
		json_put(&o, "managed", json_boolean(r->moved[i].managed));
		json_put(&o, "when", json_string(r->moved[i].when));
		json_add(&list, o);
	}
	return list;
}

static json_t *
peak(const struct report *r)
{
	const struct step_row *st = &r->steps[r->peak_step];
	const struct phase_row *p = &st->phases[st->phase];
	json_t *o = json_object();

	json_put(&o, "step", json_integer(r->peak_step));
	json_put(&o, "phase", json_string(phase_name(st->phase)));
	json_put(&o, "event", json_integer(st->event));
	json_put(&o, "node", json_text(graph_str(r->g, r->g->nodes[r->peak_node].name)));
	json_put(&o, "op", json_text(r->peak_op));
	json_put(&o, "module", json_text(scope_path(r->g, r->g->nodes[r->peak_node].scope)));
	json_put(&o, "modality", json_string(modality_name(r->peak_modality)));
	json_put(&o, "tensors", json_bytes(st->tensors));
	json_put(&o, "allocated", json_bytes(r->memory.allocated));
	json_put(&o, "reserved", json_bytes(r->memory.reserved));
	json_put(&o, "process", process(&r->memory));
	json_put(&o, "factors", json_factors(&p->at));
	json_put(&o, "act", activations(&p->at));
	json_put(&o, "live", live(r));
	json_put(&o, "allocator", allocator(&r->memory));
	json_put(&o, "host", json_factors(&r->host));
	json_put(&o, "moved", moved(r));
	return o;
}

/* Of a phase, what the optimizer's step needs for a moment counts as the optimizer's. */
static json_t *
phase_factors(const struct phase_row *p)
{
	struct factors f = p->at;

	f.of[FAC_TRANSIENT] -= p->step_work;
	f.of[FAC_OPT] += p->step_work;
	return json_factors(&f);
}

static json_t *
step(const struct report *r, unsigned i)
{
	const struct step_row *st = &r->steps[i];
	json_t *o = json_object(), *phases = json_object(), *at = json_object(), *allocated = json_object(), *reserved = json_object();

	json_put(&o, "step", json_integer(i));
	json_put(&o, "tensors", json_bytes(st->tensors));
	json_put(&o, "phase", json_string(phase_name(st->phase)));
	json_put(&o, "factors", json_factors(&st->phases[st->phase].at));
	json_put(&o, "act", activations(&st->phases[st->phase].at));
	json_put(&o, "forward_end", json_bytes(st->forward_end));
	for (unsigned p = PH_FORWARD; p < PH_COUNT; p++) {
		json_put(&phases, phase_name(p), json_bytes(st->phases[p].tensors));
		json_put(&at, phase_name(p), phase_factors(&st->phases[p]));
		json_put(&allocated, phase_name(p), json_bytes(st->phases[p].allocated));
		json_put(&reserved, phase_name(p), json_bytes(st->phases[p].reserved));
	}
	json_put(&o, "phases", phases);
	json_put(&o, "phase_factors", at);
	json_put(&o, "allocated", json_bytes(st->allocated));
	json_put(&o, "reserved", json_bytes(st->reserved));
	json_put(&o, "phase_allocated", allocated);
	json_put(&o, "phase_reserved", reserved);
	return o;
}

/* ---- modules and modalities -------------------------------------------------------------------------------------- */

static json_t *
modules(const struct report *r)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < r->nmodule; i++) {
		const struct module_row *m = &r->modules[i];
		json_t *o = json_object();

		json_put(&o, "path", json_text(m->path));
		json_put(&o, "class", json_text(m->cls));
		json_put(&o, "modality", json_string(modality_name(m->modality)));
		json_put(&o, "parameters", json_bytes(m->parameters));
		json_put(&o, "trainable", json_bytes(m->trainable));
		if (r->sched) {
			json_put(&o, "factors", json_factors(&m->at));
			json_put(&o, "saved", json_bytes(m->saved));
			json_put(&o, "peak_here", json_boolean(m->peak_here));
		}
		json_add(&list, o);
	}
	return list;
}

static json_t *
modalities(const struct report *r)
{
	json_t *list = json_array();

	for (unsigned i = 1; i < MOD_COUNT; i++) {
		const struct modality_row *m = &r->modalities[i];
		json_t *o;

		if (!m->parameters && !factors_total(&m->at) && !m->nmodule)
			continue;
		o = json_object();
		json_put(&o, "name", json_string(modality_name(i)));
		json_put(&o, "modules", json_texts(m->modules, m->nmodule));
		json_put(&o, "parameters", json_bytes(m->parameters));
		json_put(&o, "trainable", json_bytes(m->trainable));
		if (r->sched) {
			json_put(&o, "factors", json_factors(&m->at));
			json_put(&o, "plain_sum", json_factors(&m->plain));
		}
		json_add(&list, o);
	}
	return list;
}

/* ---- coverage and diagnostics ---------------------------------------------------------------------------------------- */

static json_t *
coverage(const struct report *r)
{
	json_t *o = json_object(), *unknown = json_array();

	for (uint32_t i = 0; i < r->nunknown; i++) {
		json_t *x = json_object();

		json_put(&x, "op", json_text(r->unknown[i].name));
		json_put(&x, "count", json_integer(r->unknown[i].count));
		json_add(&unknown, x);
	}
	json_put(&o, "nodes", json_bytes(r->loaded->file_nodes));
	json_put(&o, "modelled_nodes", json_bytes(r->modelled_nodes));
	json_put(&o, "sized_values", json_bytes(r->sized));
	json_put(&o, "values", json_bytes(r->values));
	json_put(&o, "unknown_ops", unknown);
	json_put(&o, "unbound_dims", json_texts(r->unbound, r->nunbound));
	json_put(&o, "lower_bound", json_boolean(r->lower_bound));
	return o;
}

static void
add_diags(json_t **list, const struct diag *d, uint32_t n)
{
	static const char *const severity[] = {"note", "warning", "error"};

	for (uint32_t i = 0; i < n; i++) {
		json_t *o = json_object();

		json_put(&o, "code", json_string(diag_name(d[i].code)));
		json_put(&o, "severity", json_string(severity[d[i].severity]));
		json_put(&o, "message", json_text(d[i].text));
		json_put(&o, "where", json_text(d[i].where));
		json_add(list, o);
	}
}

static json_t *
diagnostics(const struct report *r)
{
	json_t *list = json_array();

	add_diags(&list, r->load_diags, r->nload_diag);
	add_diags(&list, r->diags, r->ndiag);
	return list;
}

static json_t *
document(const struct report *r)
{
	json_t *o = json_object(), *tool = json_object(), *steps = json_array();

	json_put(&tool, "name", json_string("memcrest"));
	json_put(&tool, "version", json_string(MC_VERSION));
	json_put(&o, "schema", json_string(r->sched ? "memcrest/report" : "memcrest/inspect"));
	json_put(&o, "schema_version", json_integer(1));
	json_put(&o, "tool", tool);
	json_put(&o, "model", model(r));
	if (r->sched) {
		json_put(&o, "recipe", json_recipe(r->r));
		json_put(&o, "peak", peak(r));
		json_add(&steps, step(r, 1));
		json_add(&steps, step(r, 2));
		json_put(&o, "steps", steps);
	} else {
		json_decref(steps);
	}
	json_put(&o, "modalities", modalities(r));
	json_put(&o, "modules", modules(r));
	if (r->sched)
		json_put(&o, "plain_sum", json_factors(&r->plain));
	json_put(&o, "coverage", coverage(r));
	if (r->sched)
		json_put(&o, "assumptions", json_texts(r->assumptions, r->nassumption));
	json_put(&o, "diagnostics", diagnostics(r));
	if (r->sched)
		json_put(&o, "verdict", json_verdict(&r->verdict));
	return o;
}

static bool
write(const struct report *r, struct emit *e)
{
	return json_print(document(r), e->b);
}

const struct backend backend_json = {"json", "the whole report (schema memcrest/report)", true, write};
