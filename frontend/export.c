/*
 * torch.export archives (.pt2): a zip with models/NAME.json (the program), data/weights/NAME_weights_config.json (which names
 * share a storage) and weights that are never read; older ones have other names. formats.md section 3 has the schema.
 *
 * The JSON is walked once. Values get ids in the order in which the file defines them; dims become expressions over the file's symbols.
 */
#include "export.h"

#include <string.h>

/* ---- inputs and outputs of the program ------------------------------------------------------------------------------ */

/* Where the file keeps the tensor of that name; empty if it does not say. */
static struct str
storage_of(struct loader *l, struct str full)
{
	const struct pickle *p = l->state ? pickle_get(l->state, full) : NULL;

	if (!p || p->kind != PK_TENSOR)
		return json_get_str(json_object_get(json_object_get(l->weights, full.p) ? l->weights : l->constants, full.p), "path_name");
	return str_fmt(l->c->a, "%.*s+%lld", SFMT(p->u.tensor->storage->key), (long long)p->u.tensor->offset);
}

static const json_t *
record_of(const struct loader *l, struct str full)
{
	const json_t *r = json_object_get(l->weights, full.p);

	return json_object_get(r ? r : json_object_get(l->constants, full.p), "tensor_meta");
}

static bool
is_as_long(const json_t *sizes, const json_t *others)
{
	if (json_array_size(sizes) != json_array_size(others))
		return false;
	for (size_t i = 0; i < json_array_size(sizes); i++)
		if (json_get_int(json_array_get(sizes, i), "as_int", -1) != json_get_int(json_array_get(others, i), "as_int", -1))
			return false;
	return true;
}

/* Parts of one storage are separate tensors. */
static bool
is_same(const struct loader *l, struct str full, struct str other)
{
	const json_t *a = record_of(l, full), *b = record_of(l, other);

	return is_as_long(json_object_get(a, "sizes"), json_object_get(b, "sizes")) &&
	    json_get_int(json_object_get(a, "storage_offset"), "as_int", 0) == json_get_int(json_object_get(b, "storage_offset"), "as_int", 0);
}

/* Parameters whose records have one path share a storage; a buffer under two names is there once. */
static void
find_tie(struct loader *l, uint32_t v, struct str full)
{
	struct str path = storage_of(l, full);
	uint32_t *owner;

	if (!path.n || str_eq(path, l->nowhere))
		return;
	owner = export_slot(l, &l->owner, &l->owner_cap, strtab_id(l->paths, path));
	if (!*owner)
		*owner = v;
	else if (l->g->vals[*owner].kind != l->g->vals[v].kind || !is_same(l, full, graph_str(l->g, l->g->vals[*owner].full)))
		return;
	else if (l->g->vals[v].kind == VAL_PARAM)
		l->g->vals[v].tied = *owner;
	else {
		l->g->vals[v].kind = VAL_NONE;
		export_bind(l, l->g->vals[v].name, *owner);
	}
}

static bool
add_input(struct loader *l, enum val_kind kind, struct str name, struct str full, bool persistent)
{
	uint32_t v;

	if (!export_define(l, kind, name, &v))
		return false;
	if (kind == VAL_INPUT) {
		graph_input(l->g, v);
		return true;
	}
	l->g->vals[v].full = graph_name(l->g, full);
	if (kind == VAL_PARAM && !json_is_false(json_object_get(json_object_get(l->tensors, name.p), "requires_grad")))
		l->g->vals[v].flags |= VF_TRAINABLE;
	if (persistent)
		l->g->vals[v].flags |= VF_PERSISTENT;
	if (kind == VAL_PARAM || kind == VAL_BUFFER)
		find_tie(l, v, full);
	return true;
}

static bool
read_input(struct loader *l, const json_t *spec)
{
	struct str tag = S(""), name;
	const json_t *s = json_only(spec, &tag), *arg = json_object_get(s, "arg");
	bool param = str_eq(tag, S("parameter")), buffer = str_eq(tag, S("buffer")), constant = str_eq(tag, S("tensor_constant"));
	enum val_kind kind = param ? VAL_PARAM : buffer ? VAL_BUFFER : constant ? VAL_CONST : VAL_INPUT;

	if (kind == VAL_INPUT)
		arg = export_field(arg, "as_tensor");
	name = json_get_str(arg, "name");
	if (!name.n)
		return true;           /* numbers, None, tokens, script objects: no tensor */
	return add_input(l, kind, name, json_get_str(s, param ? "parameter_name" : buffer ? "buffer_name" : "tensor_constant_name"),
	    buffer && !json_is_false(json_object_get(s, "persistent")));
}

/* In torch 2.1: maps from the names of inputs to those of parameters and buffers. */
static bool
read_mapped_inputs(struct loader *l, const json_t *graph, const json_t *sig)
{
	const json_t *inputs = json_object_get(graph, "inputs");

	for (size_t i = 0; i < json_array_size(inputs); i++) {
		struct str name = json_get_str(export_field(json_array_get(inputs, i), "as_tensor"), "name");
		struct str param = json_get_str(json_object_get(sig, "inputs_to_parameters"), name.n ? name.p : "");
		struct str buffer = json_get_str(json_object_get(sig, "inputs_to_buffers"), name.n ? name.p : "");

		if (name.n && !add_input(l, param.n ? VAL_PARAM : buffer.n ? VAL_BUFFER : VAL_INPUT, name, param.n ? param : buffer, buffer.n > 0))
			return false;
	}
	return true;
}

static bool
read_inputs(struct loader *l, const json_t *graph, const json_t *sig)
{
	const json_t *specs = json_object_get(sig, "input_specs");

	if (!specs)
		return read_mapped_inputs(l, graph, sig);
	for (size_t i = 0; i < json_array_size(specs); i++)
		if (!read_input(l, json_array_get(specs, i)))
			return false;
	return true;
}

/* In torch 2.1 the new values of buffers come before what the caller gets. */
static bool
is_new_buffer(const json_t *sig, const json_t *tensor)
{
	struct str name = json_get_str(tensor, "name");

	return name.n && json_object_get(json_object_get(sig, "buffers_to_mutate"), name.p);
}

static bool
read_outputs(struct loader *l, const json_t *graph, const json_t *sig)
{
	const json_t *outs = json_object_get(graph, "outputs"), *specs = json_object_get(sig, "output_specs");

	for (size_t i = 0; i < json_array_size(outs); i++) {
		const json_t *t = export_field(json_array_get(outs, i), "as_tensor");
		struct str tag = S("");
		uint32_t v = 0;

		json_only(json_array_get(specs, i), &tag);
		if (!t || is_new_buffer(sig, t) || !(str_eq(tag, S("user_output")) || str_eq(tag, S("loss_output")) || !tag.n))
			continue;      /* None, numbers, and the new values of buffers */
		if (!export_lookup(l, t, &v))
			return false;
		graph_output(l->g, v);
	}
	return true;
}

static void
read_ranges(struct loader *l, const json_t *ranges)
{
	const char *name;
	json_t *range;

	json_object_foreach((json_t *)(uintptr_t)ranges, name, range) {
		uint32_t s = sym_add(l->g, str_of(name));

		l->g->syms[s].min = json_get_int(range, "min_val", 0);
		l->g->syms[s].max = json_get_int(range, "max_val", -1);
	}
}

/* ---- the archive ---------------------------------------------------------------------------------------------------------- */

/* Since torch 2.5 a program says that it is as captured; what went through run_decompositions, and everything older, is not. */
static bool
is_decomposed(const json_t *doc)
{
	const json_t *verifiers = json_object_get(doc, "verifiers");

	for (size_t i = 0; i < json_array_size(verifiers); i++)
		if (str_eq(json_str(json_array_get(verifiers, i)), S("TRAINING")))
			return false;
	return true;
}

/* Until schema 6 (torch 2.4) the exporter lost requires_grad, and no parameter had it. */
static void
restore_requires_grad(struct loader *l)
{
	struct graph *g = l->g;

	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind == VAL_PARAM && g->vals[v].flags & VF_TRAINABLE)
			return;
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind == VAL_PARAM)
			g->vals[v].flags |= VF_TRAINABLE;
	graph_note(g, "the file's schema does not say which parameters require grad: all are taken to (freeze, train_only)");
}

static bool
read_program(struct loader *l, const json_t *doc)
{
	const json_t *module = json_object_get(doc, "graph_module"), *graph = json_object_get(module, "graph"), *sig = json_object_get(module, "signature");
	const json_t *specs = json_object_get(sig, "input_specs");
	const json_t *schema = json_object_get(doc, "schema_version");
	int64_t major = json_is_integer(schema) ? json_integer_value(schema) : json_get_int(schema, "major", 8);
	struct str version = json_get_str(doc, "torch_version");

	if (!json_is_object(graph) || !(json_is_array(specs) || json_is_object(json_object_get(sig, "inputs_to_parameters"))))
		return export_expected(l, "graph_module", "graph and signature");
	if (major < 1 || major > 8)
		diag(l->c, DIAG_BAD_SCHEMA, (long long)major);
	l->g->decomposed = is_decomposed(doc);
	l->tensors = json_object_get(graph, "tensor_values");
	l->symints = json_object_get(graph, "sym_int_values");
	l->g->producer = version.n ? str_fmt(l->c->a, "torch.export %.*s", SFMT(version)) : S("torch.export");
	read_ranges(l, json_object_get(doc, "range_constraints"));
	if (!read_inputs(l, graph, sig) || !export_nodes(l, graph) || !read_outputs(l, graph, sig))
		return false;
	if (major < 7)
		restore_requires_grad(l);
	frontend_file_dtype(l->g);
	return true;
}

/* ---- finding the program ---------------------------------------------------------------------------------------------------- */

/* "m/models/NAME.json" -> NAME */
static bool
program_name(struct str member, struct str *name)
{
	const char *at = memmem(member.p, member.n, "models/", 7);
	uint32_t from;

	if (!at || !str_ends(member, S(".json")))
		return false;
	from = (uint32_t)(at - member.p);
	if (from && member.p[from - 1] != '/')
		return false;
	*name = str_sub(member, from + 7, member.n - 5);
	return name->n && str_find(*name, '/') < 0;
}

static bool
is_wanted(const struct ctx *c, struct str name)
{
	return str_eq(name, str_of(c->program ? c->program : "model"));
}

/* models/NAME.json of the name that is wanted, else the first; until torch 2.7 serialized_exported_program.json. How many there are. */
static uint32_t
find_program(struct ctx *c, const struct zip_archive *z, struct str *member, struct str *name, struct str *all)
{
	uint32_t found = 0;

	*all = S("");
	for (uint32_t i = 0; i < zip_count(z); i++) {
		struct str m = zip_member(z, i), n = S("");

		if (str_ends(m, S("serialized_exported_program.json")))
			n = S("model");
		else if (!program_name(m, &n))
			continue;
		*all = str_list(c->a, *all, "%.*s", SFMT(n));
		if (found++ && !is_wanted(c, n))
			continue;
		*member = m;
		*name = n;
	}
	return found;
}

/* ---- which names share a storage ---------------------------------------------------------------------------------------------- */

static bool
has_bytes(const struct zip_archive *z, struct arena *a, struct str path)
{
	struct str member;
	uint64_t n;

	return zip_find_suffix(z, str_fmt(a, "/weights/%.*s", SFMT(path)), &member) && zip_size(z, member, &n) && n > 0;
}

/* Tensors of the meta device and fake ones have no address, so that torch.export files all of them under one path, without bytes. */
static void
find_nowhere(struct loader *l, const struct zip_archive *z)
{
	struct strtab *paths = strtab_new(l->c->a);
	uint32_t n = json_is_object(l->weights) ? l->weights->n : 0;
	const json_t **first = NEW(l->c->a, const json_t *, n + 1);

	for (uint32_t i = 0; i < n; i++) {
		const json_t *record = &l->weights->u.member[i].value, *sizes = json_object_get(json_object_get(record, "tensor_meta"), "sizes");
		struct str path = json_get_str(record, "path_name");
		uint32_t id = strtab_id(paths, path);

		if (!first[id])
			first[id] = sizes;
		if (!path.n || is_as_long(first[id], sizes) || has_bytes(z, l->c->a, path))
			continue;
		l->nowhere = path;
		l->constants = NULL;
		graph_note(l->g, "exported from tensors without data, so that the file does not say which parameters share a storage: they are taken for separate ones");
		return;
	}
}

/* From torch 2.9 on: NAME_weights_config.json, by some builds NAME_model_param_config.json; buffers that are no part of the state are among the constants. */
static bool
read_config(struct loader *l, const struct zip_archive *z, struct str name)
{
	static const char *const suffix[] = {"_weights_config.json", "_model_param_config.json", "_constants_config.json"};
	struct str member, text;

	for (size_t i = 0; i < sizeof suffix / sizeof suffix[0]; i++) {
		const json_t **to = i < 2 ? &l->weights : &l->constants;
		json_t *doc;

		if (*to || !zip_find_suffix(z, str_fmt(l->c->a, "/%.*s%s", SFMT(name), suffix[i]), &member))
			continue;
		if (!zip_read(l->c, z, member, &text))
			return false;
		doc = json_read_python(l->c, text);
		if (!doc)
			return false;
		*to = json_object_get(doc, "config");
	}
	return true;
}

/* Before: the state dict as torch.save writes it, an archive within the archive; a storage's key is the path. */
static bool
read_state_dict(struct loader *l, const struct zip_archive *z, struct str name)
{
	struct str member, text;
	struct zip_archive *inner;

	if (!zip_find_suffix(z, S("serialized_state_dict.pt"), &member) && !zip_find_suffix(z, S("serialized_state_dict.json"), &member) &&
	    !zip_find_suffix(z, str_fmt(l->c->a, "data/weights/%.*s.pt", SFMT(name)), &member))
		return true;
	inner = zip_open_member(l->c, z, member);
	if (!inner || !zip_has(inner, S("data.pkl"))) {
		graph_note(l->g, "%.*s cannot be read: parameters that share their storage are taken for separate ones", SFMT(member));
		return l->c->nerror == 0;
	}
	l->c->place = str_fmt(l->c->a, "%.*s: data.pkl", SFMT(member));
	if (!zip_read(l->c, inner, S("data.pkl"), &text))
		return false;
	l->state = pickle_read(l->c, text);
	l->c->place = S("");
	zip_close_archive(l->c, inner);
	return l->state != NULL;
}

static bool
read_weights(struct loader *l, const struct zip_archive *z, struct str name)
{
	l->paths = strtab_new(l->c->a);
	if (!read_config(l, z, name))
		return false;
	if (!l->weights)
		return read_state_dict(l, z, name);
	find_nowhere(l, z);
	return true;
}

/* ---- the archive ---------------------------------------------------------------------------------------------------------------- */

static int
probe(struct ctx *c, const struct source *src)
{
	struct str member, name, all;
	struct zip_archive *z = zip_peek(c, src);
	int bits = 0;

	if (!z)
		return src->n >= 4 && memcmp(src->p, "PK\3\4", 4) == 0 ? 64 : 0;    /* a damaged archive: loading it says how */
	if (find_program(c, z, &member, &name, &all))
		bits = 64;
	zip_close_archive(c, z);
	return bits;
}

static bool
load(struct ctx *c, const struct source *src, struct graph **out)
{
	struct loader l = {.c = c};
	struct zip_archive *z = zip_open_source(c, src);
	struct str member = S(""), name = S(""), all = S(""), text;
	uint32_t found;
	json_t *doc;

	if (!z)
		return false;
	found = find_program(c, z, &member, &name, &all);
	if (!found || (c->program && !is_wanted(c, name)))
		return diag(c, DIAG_NO_PROGRAM, c->program ? c->program : "model", SFMT(all));
	l.g = *out = graph_new(c);
	if (found > 1)
		graph_note(l.g, "the archive holds the programs %.*s; %.*s is read (--program)", SFMT(all), SFMT(name));
	if (!read_weights(&l, z, name) || !zip_read(c, z, member, &text))
		return false;
	c->place = str_copy(c->a, member);
	doc = json_read_python(c, text);
	if (!doc || !read_program(&l, doc))
		return false;
	c->place = S("");
	arena_cancel(c->a, doc);
	zip_close_archive(c, z);
	return true;
}

const struct frontend frontend_export = {"pt2", "torch.export archive (.pt2)", probe, load};
