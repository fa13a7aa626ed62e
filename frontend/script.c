/*
 * TorchScript archives (torch.jit.save): a zip with data.pkl (the modules), constants.pkl, code/ and weights that are never read.
 * forward of the root module is inlined into one graph; formats.md section 2 has the format.
 */
#include "script.h"

#include <string.h>

static bool
read_modules(struct script *s, struct object **root)
{
	struct str text;
	struct pickle *p;
	struct thing t;

	s->c->place = S("data.pkl");
	s->space = "data/";
	if (!zip_read(s->c, s->z, S("data.pkl"), &text) || !(p = pickle_read(s->c, text)))
		return false;
	s->c->place = S("");
	if (p->kind != PK_OBJECT || p->of->kind != PK_GLOBAL)
		return diag(s->c, DIAG_NOT_A_GRAPH, "data.pkl holds no module");
	if (!script_thing(s, p, S(""), 0, &t))
		return false;
	if (t.kind != THING_OBJECT || !t.u.object->is_module)
		return diag(s->c, DIAG_NOT_A_GRAPH, "data.pkl holds no module");
	*root = t.u.object;
	s->g->root_class = graph_name(s->g, script_display(s, graph_str(s->g, t.u.object->cls->name)));
	return true;
}

static bool
run_forward(struct script *s, struct object *root)
{
	struct func *f = class_func(root->cls, graph_name(s->g, S("forward")));
	struct thing *args, result;

	if (!f || !f->nparam)
		return diag(s->c, DIAG_NOT_A_GRAPH, "the root module has no forward");
	args = NEW(s->c->a, struct thing, f->nparam);
	if (!script_inputs(s, f, args))
		return false;
	s->module = NULL;
	return script_call(s, (struct closure){f, root, NULL}, args, NULL, f->nparam - 1, &result) && script_outputs(s, &result);
}

/* A frozen module has no parameters left: its weights are constants that cannot train. */
static void
note_frozen(struct script *s)
{
	bool weights = false;

	for (uint32_t v = 1; v < s->g->nval; v++) {
		if (s->g->vals[v].kind == VAL_PARAM)
			return;
		weights |= s->g->vals[v].kind == VAL_CONST && dtype_is_float(s->g->vals[v].dtype) && str_starts(graph_str(s->g, s->g->vals[v].name), S("CONSTANTS."));
	}
	if (weights)
		graph_note(s->g, "the module was frozen: its weights are constants without names, and none of them trains");
}

static int
probe(struct ctx *c, const struct source *src)
{
	struct zip_archive *z = zip_peek(c, src);
	int bits = 0;

	if (!z)
		return 0;
	if (zip_has(z, S("data.pkl")) && zip_has(z, S("constants.pkl")))
		bits = 64;
	zip_close_archive(c, z);
	return bits;
}

static bool
load(struct ctx *c, const struct source *src, struct graph **out)
{
	struct script s = {.c = c, .z = zip_open_source(c, src)};
	struct object *root = NULL;

	if (!s.z)
		return false;
	s.g = *out = graph_new(c);
	s.storages = strtab_new(c->a);
	s.g->producer = S("TorchScript");
	if (!read_modules(&s, &root) || !script_constants(&s) || !run_forward(&s, root))
		return false;
	note_frozen(&s);
	frontend_file_dtype(s.g);
	c->place = S("");
	zip_close_archive(c, s.z);
	return true;
}

const struct frontend frontend_script = {"torchscript", "TorchScript archive (torch.jit.save, .pt)", probe, load};
