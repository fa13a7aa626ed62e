/* gexf: the graph for Gephi (GEXF 1.3), flat, with sizes by bytes at the peak, colours by modality and positions in execution order. */
#include "things.h"
#include "xml_part.h"

static const struct {
	const char *title, *type;
} columns[] = {
	{"kind", "string"}, {"op", "string"}, {"module", "string"}, {"modality", "string"}, {"trainable", "boolean"}, {"peak_here", "boolean"},
	{"param_bytes", "long"}, {"grad_bytes", "long"}, {"opt_bytes", "long"}, {"act_bytes", "long"}, {"total_bytes", "long"}, {"saved_bytes", "long"},
};

static void
head(const struct report *r, struct xml *x)
{
	xml_open(x, "gexf");
	xml_attr(x, "xmlns", S("http://gexf.net/1.3"));
	xml_attr(x, "xmlns:viz", S("http://gexf.net/1.3/viz"));
	xml_attr(x, "version", S("1.3"));
	xml_open(x, "meta");
	xml_element(x, "creator", S("memcrest " MC_VERSION));
	xml_open(x, "description");
	if (r->sched)
		xml_fmt(x, "peak_tensors_bytes=%llu", (unsigned long long)r->steps[r->peak_step].tensors);
	xml_close(x);
	xml_close(x);
	xml_open(x, "graph");
	xml_attr(x, "mode", S("static"));
	xml_attr(x, "defaultedgetype", S("directed"));
	xml_open(x, "attributes");
	xml_attr(x, "class", S("node"));
	for (unsigned i = 0; i < sizeof columns / sizeof columns[0]; i++) {
		xml_open(x, "attribute");
		xml_attr_fmt(x, "id", "%u", i);
		xml_attr(x, "title", str_of(columns[i].title));
		xml_attr(x, "type", str_of(columns[i].type));
		xml_close(x);
	}
	xml_close(x);
}

static void
text(struct xml *x, unsigned column, struct str s)
{
	xml_open(x, "attvalue");
	xml_attr_fmt(x, "for", "%u", column);
	xml_attr(x, "value", s);
	xml_close(x);
}

static void
number(struct xml *x, unsigned column, uint64_t n)
{
	xml_open(x, "attvalue");
	xml_attr_fmt(x, "for", "%u", column);
	xml_attr_bytes(x, "value", n > INT64_MAX ? INT64_MAX : n);
	xml_close(x);
}

static void
values(const struct report *r, struct xml *x, const struct thing *t)
{
	xml_open(x, "attvalues");
	text(x, 0, str_of(thing_kind_name(t->kind)));
	text(x, 1, t->op);
	text(x, 2, r->modules[t->module].path);
	text(x, 3, str_of(modality_name(t->modality)));
	text(x, 4, t->trainable ? S("true") : S("false"));
	text(x, 5, t->peak ? S("true") : S("false"));
	number(x, 6, t->at.of[FAC_PARAM]);
	number(x, 7, t->at.of[FAC_GRAD]);
	number(x, 8, t->at.of[FAC_OPT]);
	number(x, 9, factors_act(&t->at));
	number(x, 10, factors_total(&t->at));
	number(x, 11, t->saved);
	xml_close(x);
}

/* The area grows with the bytes: 4 for nothing, 40 for the largest. */
static unsigned
size_of(uint64_t bytes, uint64_t largest)
{
	unsigned size = 4;

	while (size < 40 && (double)(size - 4) * (size - 4) * (double)largest < 36.0 * 36.0 * (double)bytes)
		size++;
	return size;
}

static unsigned
hex(const char *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 2; i++)
		n = n * 16 + (unsigned)(p[i] <= '9' ? p[i] - '0' : p[i] - 'a' + 10);
	return n;
}

static void
look(struct xml *x, const struct things *all, uint32_t i, uint64_t largest)
{
	const char *colour = modality_colour(all->list[i].modality);
	unsigned at_x, at_y;

	thing_place(all, i, &at_x, &at_y);
	xml_open(x, "viz:color");
	xml_attr_fmt(x, "r", "%u", all->list[i].peak ? 208 : hex(colour + 1));
	xml_attr_fmt(x, "g", "%u", all->list[i].peak ? 59 : hex(colour + 3));
	xml_attr_fmt(x, "b", "%u", all->list[i].peak ? 59 : hex(colour + 5));
	xml_close(x);
	xml_open(x, "viz:position");
	xml_attr_fmt(x, "x", "%u.0", at_x);
	xml_attr_fmt(x, "y", "-%u.0", at_y);
	xml_attr(x, "z", S("0.0"));
	xml_close(x);
	xml_open(x, "viz:size");
	xml_attr_fmt(x, "value", "%u.0", size_of(factors_total(&all->list[i].at), largest));
	xml_close(x);
}

static bool
write(const struct report *r, struct emit *e)
{
	struct things *all = things_make(r, e->a);
	struct xml *x = xml_start(e, true);
	uint64_t largest = 1;

	for (uint32_t i = 0; i < all->n; i++)
		largest = factors_total(&all->list[i].at) > largest ? factors_total(&all->list[i].at) : largest;
	head(r, x);
	xml_open(x, "nodes");
	for (uint32_t i = 0; i < all->n; i++) {
		xml_open(x, "node");
		xml_attr_fmt(x, "id", "t%u", (unsigned)i);
		xml_attr(x, "label", all->list[i].name);
		values(r, x, &all->list[i]);
		look(x, all, i, largest);
		xml_close(x);
	}
	xml_close(x);
	xml_open(x, "edges");
	for (uint32_t i = 0; i < all->nedge; i++) {
		xml_open(x, "edge");
		xml_attr_fmt(x, "id", "e%u", (unsigned)i);
		xml_attr_fmt(x, "source", "t%u", (unsigned)all->edges[i].from);
		xml_attr_fmt(x, "target", "t%u", (unsigned)all->edges[i].to);
		xml_close(x);
	}
	xml_close(x);
	return xml_end(x);
}

const struct backend backend_gexf = {"gexf", "the graph with bytes for Gephi: sizes, colours and positions", true, write};
