/* json: the whole report (contract.md section 4), written by jansson. Keys have a fixed order; there are no timestamps. */
#include "backend.h"

#include "../memcrest.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *
text(struct str s)
{
	json_t *j = json_stringn(s.n ? s.p : "", s.n);

	return j ? j : json_string("(not UTF-8)");
}

static json_t *
number(uint64_t n)
{
	return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static void
put(json_t *o, const char *key, json_t *v)
{
	json_object_set_new(o, key, v);
}

static void
add(json_t *list, json_t *v)
{
	json_array_append_new(list, v);
}

static json_t *
texts(const struct str *s, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		add(list, text(s[i]));
	return list;
}

/* ---- factors ---------------------------------------------------------------------------------------------- */

static json_t *
factors(const struct factors *f)
{
	json_t *o = json_object();

	put(o, "param", number(f->of[FAC_PARAM]));
	put(o, "grad", number(f->of[FAC_GRAD]));
	put(o, "opt", number(f->of[FAC_OPT]));
	put(o, "act", number(factors_act(f)));
	return o;
}

static json_t *
activations(const struct factors *f)
{
	json_t *o = json_object();

	put(o, "saved", number(f->of[FAC_SAVED]));
	put(o, "transient", number(f->of[FAC_TRANSIENT]));
	put(o, "input", number(f->of[FAC_INPUT]));
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
	j = text((struct str){b.p, (uint32_t)b.n});
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

		add(shape, dim(r, d));
		if (!dim_number(r, d, &n) || !mul_u64(bytes, (uint64_t)n, &bytes))
			bytes = 0;
	}
	put(o, "name", text(graph_str(g, x->name)));
	put(o, "dtype", x->dtype ? json_string(dtype_info(x->dtype)->name) : json_null());
	put(o, "shape", sized ? shape : json_null());
	if (!sized)
		json_decref(shape);
	put(o, "bytes", sized && bytes ? number(dtype_bytes(x->dtype, bytes)) : json_null());
	return o;
}

static json_t *
values(const struct report *r, const uint32_t *v, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		if (v[i])
			add(list, value(r, v[i]));
	return list;
}

static json_t *
model(const struct report *r)
{
	json_t *o = json_object(), *p = json_object();

	put(p, "count", number(r->param_count));
	put(p, "trainable", number(r->param_trainable));
	put(p, "bytes", number(r->param_bytes));
	put(p, "trainable_bytes", number(r->param_trainable_bytes));
	put(o, "file", text(r->file));
	put(o, "format", text(r->loaded->format));
	put(o, "producer", text(r->loaded->producer));
	put(o, "nodes", number(r->loaded->file_nodes));
	put(o, "parameters", p);
	put(o, "buffer_bytes", number(r->buffer_bytes));
	put(o, "inputs", values(r, r->loaded->inputs, r->loaded->ninput));
	put(o, "outputs", values(r, r->loaded->outputs, r->loaded->noutput));
	return o;
}

/* ---- recipe -------------------------------------------------------------------------------------------------- */

static json_t *
recipe_value(const struct recipe *r, unsigned key)
{
	const struct recipe_value *v = &r->v[key];
	struct str s;

	switch (key_info(key)->type) {
	case RT_CHOICE:
		s = choice_text(key, v->i);
		if (str_eq(s, S("false")) || str_eq(s, S("true")))
			return json_boolean(s.p[0] == 't');
		return text(s);
	case RT_BOOL:
		return json_boolean(v->i);
	case RT_INT:
	case RT_BYTES:
		return json_integer(v->i);
	case RT_FLOAT:
		return json_real(v->f);
	case RT_LIST:
		return v->i && v->nlist == 1 ? text(v->list[0]) : texts(v->list, v->nlist);
	default:
		return text(v->text);
	}
}

static json_t *
recipe(const struct recipe *r)
{
	json_t *o = json_object(), *dims = json_object();

	for (unsigned k = 1; k < RK_COUNT; k++) {
		struct str rest = str_of(key_info(k)->name), head = S("");
		json_t *at = o;
		char outer[64];

		str_cut(&rest, '.', &head);
		if (rest.p && head.n < sizeof outer) {
			struct buf b = {.p = outer, .cap = sizeof outer};

			buf_str(&b, head);
			buf_put(&b, "", 1);
			if (!json_object_get(o, outer))
				put(o, outer, json_object());
			at = json_object_get(o, outer);
			put(at, rest.p, recipe_value(r, k));
			continue;
		}
		put(at, key_info(k)->name, recipe_value(r, k));
	}
	for (uint32_t i = 0; i < r->ndim; i++)
		put(dims, r->dims[i].name.p, json_integer(r->dims[i].value));
	put(o, "dims", dims);
	return o;
}

/* ---- the peak ---------------------------------------------------------------------------------------------------- */

static json_t *
shape_of(const struct geom *g)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < g->rank; i++)
		add(list, json_integer(g->dim[i]));
	return list;
}

static json_t *
live(const struct report *r)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < r->nlive; i++) {
		const struct storage *s = &r->sched->storages[r->live[i].storage];
		json_t *o = json_object();

		put(o, "name", text(r->live[i].name));
		put(o, "module", text(r->live[i].module));
		put(o, "node", text(r->live[i].node));
		put(o, "factor", json_string(r->live[i].factor));
		put(o, "bytes", number(s->nbytes));
		put(o, "dtype", json_string(dtype_info(s->geom->dtype)->name));
		put(o, "shape", shape_of(s->geom));
		add(list, o);
	}
	return list;
}

static json_t *
peak(const struct report *r)
{
	const struct step_row *st = &r->steps[r->peak_step];
	const struct phase_row *p = &st->phases[st->phase];
	json_t *o = json_object(), *process = json_object();

	put(o, "step", json_integer(r->peak_step));
	put(o, "phase", json_string(phase_name(st->phase)));
	put(o, "event", json_integer(st->event));
	put(o, "node", text(graph_str(r->g, r->g->nodes[r->peak_node].name)));
	put(o, "op", text(r->peak_op));
	put(o, "module", text(scope_path(r->g, r->g->nodes[r->peak_node].scope)));
	put(o, "modality", json_string(modality_name(r->peak_modality)));
	put(o, "tensors", number(st->tensors));
	put(o, "allocated", json_null());
	put(o, "reserved", json_null());
	put(process, "low", json_null());
	put(process, "high", json_null());
	put(o, "process", process);
	put(o, "factors", factors(&p->at));
	put(o, "act", activations(&p->at));
	put(o, "live", live(r));
	return o;
}

static json_t *
step(const struct report *r, unsigned i)
{
	const struct step_row *st = &r->steps[i];
	json_t *o = json_object(), *phases = json_object(), *at = json_object();

	put(o, "step", json_integer(i));
	put(o, "tensors", number(st->tensors));
	put(o, "phase", json_string(phase_name(st->phase)));
	put(o, "factors", factors(&st->phases[st->phase].at));
	put(o, "act", activations(&st->phases[st->phase].at));
	put(o, "forward_end", number(st->forward_end));
	for (unsigned p = PH_FORWARD; p < PH_COUNT; p++) {
		put(phases, phase_name(p), number(st->phases[p].tensors));
		put(at, phase_name(p), factors(&st->phases[p].at));
	}
	put(o, "phases", phases);
	put(o, "phase_factors", at);
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

		put(o, "path", text(m->path));
		put(o, "class", text(m->cls));
		put(o, "modality", json_string(modality_name(m->modality)));
		put(o, "parameters", number(m->parameters));
		put(o, "trainable", number(m->trainable));
		if (r->sched) {
			put(o, "factors", factors(&m->at));
			put(o, "saved", number(m->saved));
			put(o, "peak_here", json_boolean(m->peak_here));
		}
		add(list, o);
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
		put(o, "name", json_string(modality_name(i)));
		put(o, "modules", texts(m->modules, m->nmodule));
		put(o, "parameters", number(m->parameters));
		put(o, "trainable", number(m->trainable));
		if (r->sched) {
			put(o, "factors", factors(&m->at));
			put(o, "plain_sum", factors(&m->plain));
		}
		add(list, o);
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

		put(x, "op", text(r->unknown[i].name));
		put(x, "count", json_integer(r->unknown[i].count));
		add(unknown, x);
	}
	put(o, "nodes", number(r->loaded->file_nodes));
	put(o, "modelled_nodes", number(r->modelled_nodes));
	put(o, "sized_values", number(r->sized));
	put(o, "values", number(r->values));
	put(o, "unknown_ops", unknown);
	put(o, "unbound_dims", texts(r->unbound, r->nunbound));
	put(o, "lower_bound", json_boolean(r->lower_bound));
	return o;
}

static void
add_diags(json_t *list, const struct diag *d, uint32_t n)
{
	static const char *const severity[] = {"note", "warning", "error"};

	for (uint32_t i = 0; i < n; i++) {
		json_t *o = json_object();

		put(o, "code", json_string(diag_name(d[i].code)));
		put(o, "severity", json_string(severity[d[i].severity]));
		put(o, "message", text(d[i].text));
		put(o, "where", text(d[i].where));
		add(list, o);
	}
}

static json_t *
diagnostics(const struct report *r)
{
	json_t *list = json_array();

	add_diags(list, r->load_diags, r->nload_diag);
	add_diags(list, r->diags, r->ndiag);
	return list;
}

static json_t *
document(const struct report *r)
{
	json_t *o = json_object(), *tool = json_object(), *steps = json_array();

	put(tool, "name", json_string("memcrest"));
	put(tool, "version", json_string(MC_VERSION));
	put(o, "schema", json_string(r->sched ? "memcrest/report" : "memcrest/inspect"));
	put(o, "schema_version", json_integer(1));
	put(o, "tool", tool);
	put(o, "model", model(r));
	if (r->sched) {
		put(o, "recipe", recipe(r->r));
		put(o, "peak", peak(r));
		add(steps, step(r, 1));
		add(steps, step(r, 2));
		put(o, "steps", steps);
	} else {
		json_decref(steps);
	}
	put(o, "modalities", modalities(r));
	put(o, "modules", modules(r));
	if (r->sched)
		put(o, "plain_sum", factors(&r->plain));
	put(o, "coverage", coverage(r));
	if (r->sched)
		put(o, "assumptions", texts(r->assumptions, r->nassumption));
	put(o, "diagnostics", diagnostics(r));
	if (r->sched)
		put(o, "verdict", json_null());
	return o;
}

static int
sink(const char *p, size_t n, void *user)
{
	buf_put(user, p, n);
	return ((struct buf *)user)->failed ? -1 : 0;
}

static bool
write(const struct report *r, struct buf *b)
{
	json_t *o = document(r);
	bool ok = o && json_dump_callback(o, sink, b, JSON_INDENT(1)) == 0;

	json_decref(o);
	buf_str(b, S("\n"));
	return ok && !b->failed;
}

const struct backend backend_json = {"json", "the whole report (schema memcrest/report)", true, write};
