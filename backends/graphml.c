/*
 * graphml: modules as nested graphs (folders in yEd), operators and parameters in them, with their bytes as ordinary attributes. Labels and
 * colours for yEd are in a block of its own, which other readers pass over. Gephi knows no nested graphs: the format gexf is made for it.
 */
#include "things.h"
#include "xml_part.h"

#define DEEPEST 64                 /* folders in folders; what is deeper lies in the last */

static const struct {
	const char *id, *type, *name;
} keys[] = {
	{"kind", "string", "kind"}, {"label", "string", "label"}, {"op", "string", "op"}, {"module", "string", "module"}, {"class", "string", "class"},
	{"modality", "string", "modality"}, {"trainable", "boolean", "trainable"}, {"peak", "boolean", "peak_here"}, {"param", "long", "param_bytes"},
	{"grad", "long", "grad_bytes"}, {"opt", "long", "opt_bytes"}, {"act", "long", "act_bytes"}, {"total", "long", "total_bytes"}, {"saved", "long", "saved_bytes"},
	{"parameters", "long", "parameters"}, {"x", "double", "x"}, {"y", "double", "y"},
};

static void
head(struct xml *x)
{
	xml_open(x, "graphml");
	xml_attr(x, "xmlns", S("http://graphml.graphdrawing.org/xmlns"));
	xml_attr(x, "xmlns:y", S("http://www.yworks.com/xml/graphml"));
	xml_attr(x, "xmlns:xsi", S("http://www.w3.org/2001/XMLSchema-instance"));
	xml_attr(x, "xsi:schemaLocation", S("http://graphml.graphdrawing.org/xmlns http://www.yworks.com/xml/schema/graphml/1.1/ygraphml.xsd"));
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		xml_open(x, "key");
		xml_attr(x, "id", str_of(keys[i].id));
		xml_attr(x, "for", S("node"));
		xml_attr(x, "attr.name", str_of(keys[i].name));
		xml_attr(x, "attr.type", str_of(keys[i].type));
		xml_close(x);
	}
	xml_open(x, "key");
	xml_attr(x, "id", S("look"));
	xml_attr(x, "for", S("node"));
	xml_attr(x, "yfiles.type", S("nodegraphics"));
	xml_close(x);
	xml_open(x, "key");
	xml_attr(x, "id", S("peak_bytes"));
	xml_attr(x, "for", S("graph"));
	xml_attr(x, "attr.name", S("peak_tensors_bytes"));
	xml_attr(x, "attr.type", S("long"));
	xml_close(x);
}

static void
text(struct xml *x, const char *key, struct str s)
{
	xml_open(x, "data");
	xml_attr(x, "key", str_of(key));
	xml_text(x, s);
	xml_close(x);
}

static void
number(struct xml *x, const char *key, uint64_t n)
{
	xml_open(x, "data");
	xml_attr(x, "key", str_of(key));
	xml_fmt(x, "%llu", (unsigned long long)(n > INT64_MAX ? INT64_MAX : n));
	xml_close(x);
}

static void
factors(struct xml *x, const struct factors *f, uint64_t saved)
{
	number(x, "param", f->of[FAC_PARAM]);
	number(x, "grad", f->of[FAC_GRAD]);
	number(x, "opt", f->of[FAC_OPT]);
	number(x, "act", factors_act(f));
	number(x, "total", factors_total(f));
	number(x, "saved", saved);
}

/* ---- for yEd -------------------------------------------------------------------------------------------------------- */

static void
fill(struct xml *x, const char *colour)
{
	xml_open(x, "y:Fill");
	xml_attr(x, "color", str_of(colour));
	xml_attr(x, "transparent", S("false"));
	xml_close(x);
}

static void
look_of_thing(struct xml *x, const struct thing *t, unsigned at_x, unsigned at_y)
{
	char h[32];

	xml_open(x, "data");
	xml_attr(x, "key", S("look"));
	xml_open(x, "y:ShapeNode");
	xml_open(x, "y:Geometry");
	xml_attr_fmt(x, "x", "%u.0", at_x);
	xml_attr_fmt(x, "y", "%u.0", at_y);
	xml_attr(x, "width", S("220.0"));
	xml_attr(x, "height", S("40.0"));
	xml_close(x);
	fill(x, modality_colour(t->modality));
	xml_open(x, "y:BorderStyle");
	xml_attr(x, "color", t->peak ? S("#d03b3b") : S("#333333"));
	xml_attr(x, "type", S("line"));
	xml_attr(x, "width", t->peak ? S("5.0") : S("1.0"));
	xml_close(x);
	xml_open(x, "y:NodeLabel");
	xml_text(x, t->name);
	if (factors_total(&t->at))
		xml_fmt(x, "\n%s", human_bytes(factors_total(&t->at), h));
	xml_close(x);
	xml_open(x, "y:Shape");
	xml_attr(x, "type", t->kind == THING_OPERATOR ? S("roundrectangle") : S("rectangle"));
	xml_close(x);
	xml_close(x);
	xml_close(x);
}

static void
look_of_module(struct xml *x, const struct module_row *m)
{
	char h[32];

	xml_open(x, "data");
	xml_attr(x, "key", S("look"));
	xml_open(x, "y:ProxyAutoBoundsNode");
	xml_open(x, "y:Realizers");
	xml_attr(x, "active", S("0"));
	xml_open(x, "y:GroupNode");
	xml_open(x, "y:NodeLabel");
	xml_attr(x, "modelName", S("internal"));
	xml_attr(x, "modelPosition", S("t"));
	xml_text(x, last_part(m->path));
	if (factors_total(&m->at))
		xml_fmt(x, " (%s)", human_bytes(factors_total(&m->at), h));
	xml_close(x);
	for (unsigned i = 0; i < 3; i++)
		xml_close(x);
	xml_close(x);
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

static void
thing(const struct report *r, struct xml *x, const struct things *all, uint32_t i)
{
	const struct thing *t = &all->list[i];
	unsigned at_x, at_y;

	thing_place(all, i, &at_x, &at_y);
	xml_open(x, "node");
	xml_attr_fmt(x, "id", "t%u", (unsigned)i);
	text(x, "kind", str_of(thing_kind_name(t->kind)));
	text(x, "label", t->name);
	text(x, "op", t->op);
	text(x, "module", r->modules[t->module].path);
	text(x, "modality", str_of(modality_name(t->modality)));
	text(x, "trainable", t->trainable ? S("true") : S("false"));
	text(x, "peak", t->peak ? S("true") : S("false"));
	factors(x, &t->at, t->saved);
	number(x, "x", at_x);
	number(x, "y", at_y);
	look_of_thing(x, t, at_x, at_y);
	xml_close(x);
}

static void
open_module(struct xml *x, const struct module_row *m, uint32_t i)
{
	xml_open(x, "node");
	xml_attr_fmt(x, "id", "m%u", (unsigned)i);
	xml_attr(x, "yfiles.foldertype", S("group"));
	text(x, "kind", S("module"));
	text(x, "label", last_part(m->path));
	text(x, "module", m->path);
	text(x, "class", m->cls);
	text(x, "modality", str_of(modality_name(m->modality)));
	text(x, "peak", m->peak_here ? S("true") : S("false"));
	factors(x, &m->at, m->saved);
	number(x, "parameters", m->parameters);
	look_of_module(x, m);
	xml_open(x, "graph");
	xml_attr_fmt(x, "id", "m%u:", (unsigned)i);
	xml_attr(x, "edgedefault", S("directed"));
}

static void
nodes(const struct report *r, struct xml *x, const struct things *all, const struct module_tree *tree)
{
	uint32_t row = 0;
	unsigned up;

	do {
		if (row && tree->depth[row] <= DEEPEST)
			open_module(x, &r->modules[row], row);
		for (uint32_t i = tree->thing[row]; i; i = tree->next_thing[i - 1])
			thing(r, x, all, i - 1);
		for (uint32_t next = tree_walk(r, tree, row, &up);; row = r->modules[row].parent, up--) {
			if (!up || !row) {
				row = next;
				break;
			}
			if (tree->depth[row] > DEEPEST)
				continue;
			xml_close(x);
			xml_close(x);
		}
	} while (row);
}

static bool
write(const struct report *r, struct emit *e)
{
	struct things *all = things_make(r, e->a);
	struct module_tree *tree = tree_of(r, all, e->a);
	struct xml *x = xml_start(e, true);

	head(x);
	xml_open(x, "graph");
	xml_attr(x, "id", S("model"));
	xml_attr(x, "edgedefault", S("directed"));
	if (r->sched)
		number(x, "peak_bytes", r->steps[r->peak_step].tensors);
	nodes(r, x, all, tree);
	for (uint32_t i = 0; i < all->nedge; i++) {
		xml_open(x, "edge");
		xml_attr_fmt(x, "id", "e%u", (unsigned)i);
		xml_attr_fmt(x, "source", "t%u", (unsigned)all->edges[i].from);
		xml_attr_fmt(x, "target", "t%u", (unsigned)all->edges[i].to);
		xml_close(x);
	}
	return xml_end(x);
}

const struct backend backend_graphml = {"graphml", "the graph with bytes, modules nested: for yEd, networkx, Cytoscape", true, write};
