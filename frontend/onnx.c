/*
 * ONNX models: a protobuf message with a graph, its stored tensors, model-local functions and what the exporter says about them. formats.md
 * section 4 has the format. Stored values are never read, wherever they are, but for short lists of integers and single numbers, from which
 * shapes follow.
 */
#include "onnx.h"

#include <stdlib.h>
#include <string.h>

/* ---- the decoder's memory: given back at once, and never more than allowed ----------------------------------------- */

struct chunk {
	struct chunk *next;
	size_t size, used;
};

struct decoder_memory {
	struct chunk *chunks;
	uint64_t left;
	bool lacks, limited;       /* something could not be had, because of the limit */
};

#define CHUNK LIMIT(1u << 20, 256u)
#define ALIGNED(n) (((n) + 15) / 16 * 16)

static void *
decoder_alloc(void *user, size_t n)
{
	struct decoder_memory *m = user;
	struct chunk *c = m->chunks;
	void *p;

	m->limited |= n > m->left;
	m->lacks |= m->limited;
	if (m->lacks)
		return NULL;
	n = ALIGNED(n);
	if (!c || n > c->size - c->used) {
		size_t size = n > CHUNK / 4 ? n : CHUNK;

		c = calloc(1, ALIGNED(sizeof *c) + size);
		if (!c) {
			m->lacks = true;
			return NULL;
		}
		c->size = size;
		c->next = m->chunks;
		m->chunks = c;
	}
	p = (char *)c + ALIGNED(sizeof *c) + c->used;
	c->used += n;
	m->left -= n < m->left ? n : m->left;
	return p;
}

static void
decoder_free(void *user, void *p)
{
	(void)user;
	(void)p;                   /* all at once, at the end */
}

static void
decoder_close(void *user)
{
	struct decoder_memory *m = user;
	struct chunk *next;

	for (struct chunk *c = m->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	m->chunks = NULL;
}

static void
close_buf(void *p)
{
	free(((struct buf *)p)->p);
	((struct buf *)p)->p = NULL;
}

static Onnx__Model *
decode(struct ctx *c, const struct source *src, struct decoder_memory *mem)
{
	ProtobufCAllocator allocator = {decoder_alloc, decoder_free, mem};
	struct buf *slim = NEW(c->a, struct buf, 1);
	Onnx__Model *m = NULL;

	arena_defer(c->a, close_buf, slim);
	arena_defer(c->a, decoder_close, mem);
	mem->left = c->lim.memory;
	if (onnx_slim(c, src, slim)) {
		m = onnx__model__unpack(&allocator, slim->n, (const uint8_t *)slim->p);
		if (mem->lacks)
			arena_lack(c->a, mem->limited);
		if (!m)
			diag(c, DIAG_ONNX_WIRE, 0ull, "the message cannot be decoded");
	}
	arena_cancel(c->a, slim);
	return m;
}

/* ---- inputs and outputs ------------------------------------------------------------------------------------------------ */

/* Symbols first: other dims may be expressions over them. */
static void
declare_symbols(struct onnx *l)
{
	for (size_t i = 0; i < l->m->graph->n_input; i++) {
		const Onnx__Type *t = l->m->graph->input[i]->type;
		const Onnx__Shape *s = t && t->tensor_type ? t->tensor_type->shape : NULL;

		for (size_t k = 0; s && k < s->n_dim; k++) {
			struct str name = onnx_str(s->dim[k]->dim_param);
			bool word = name.n > 0 && !(name.p[0] >= '0' && name.p[0] <= '9');

			for (uint32_t p = 0; p < name.n; p++)
				word &= (name.p[p] | 32) >= 'a' ? (name.p[p] | 32) <= 'z' || name.p[p] == '_' : name.p[p] >= '0' && name.p[p] <= '9';
			if (word)
				sym_add(l->g, name);
		}
	}
}

static bool
read_inputs(struct onnx *l)
{
	const Onnx__Graph *g = l->m->graph;

	for (size_t i = 0; i < g->n_input; i++) {
		uint32_t v;

		if (onnx_is_stored(l, g->input[i]->name))
			continue;      /* its default value: older files list all of them */
		onnx_declare(l, &g->input[i], 1);
		if (!onnx_define(l, VAL_INPUT, g->input[i]->name, &v))
			return false;
		graph_input(l->g, v);
	}
	return true;
}

static bool
read_outputs(struct onnx *l)
{
	const Onnx__Graph *g = l->m->graph;

	for (size_t i = 0; i < g->n_output; i++) {
		uint32_t v;

		if (!onnx_lookup(l, g->output[i]->name, &v))
			return false;
		if (v)
			graph_output(l->g, v);
	}
	return true;
}

/* ---- the model ---------------------------------------------------------------------------------------------------------------- */

static bool
read_versions(struct onnx *l)
{
	const Onnx__Model *m = l->m;

	for (size_t i = 0; i < m->n_opset_import; i++)
		if (!m->opset_import[i]->domain || !*m->opset_import[i]->domain || strcmp(m->opset_import[i]->domain, "ai.onnx") == 0)
			l->opset = m->opset_import[i]->version;
	if (!l->opset)
		l->opset = 1;          /* as the format says of files without one */
	if (m->ir_version < 3 || m->ir_version > 14 || l->opset < 7 || l->opset > 28)
		diag(l->c, DIAG_ONNX_VERSION, (long long)m->ir_version, (long long)l->opset);
	l->g->producer = str_fmt(l->c->a, "%s%s%s, opset %lld", m->producer_name && *m->producer_name ? m->producer_name : "unknown producer",
	    m->producer_version && *m->producer_version ? " " : "", m->producer_version ? m->producer_version : "", (long long)l->opset);
	return true;
}

static bool
is_fx_name(const char *name)
{
	return name && strncmp(name, "val_", 4) == 0 && name[4] >= '0' && name[4] <= '9';
}

static void
find_naming(struct onnx *l)
{
	const Onnx__Graph *g = l->m->graph;

	for (size_t i = 0; i < g->n_initializer; i++)
		l->fx_names |= is_fx_name(g->initializer[i]->name);
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_output; k++)
			l->fx_names |= is_fx_name(g->node[i]->output[k]);
}

static bool
read_model(struct onnx *l)
{
	const Onnx__Graph *g = l->m->graph;

	if (!g)
		return diag(l->c, DIAG_NOT_A_GRAPH, "the ONNX file holds no graph");
	read_versions(l);
	find_naming(l);
	declare_symbols(l);
	if (!onnx_index_functions(l) || !onnx_read_signature(l))
		return false;
	onnx_declare(l, g->value_info, g->n_value_info);
	onnx_declare(l, g->output, g->n_output);
	if (!onnx_initializers(l, g) || !read_inputs(l))
		return false;
	onnx_learn_paths(l);
	if (!onnx_nodes(l, g->node, g->n_node) || !read_outputs(l))
		return false;
	onnx_fill_places(l);
	onnx_find_params(l);
	onnx_report_losses(l);
	frontend_file_dtype(l->g);
	return true;
}

static int
probe(struct ctx *c, const struct source *src)
{
	(void)c;
	return onnx_probe_wire(src);
}

static bool
load(struct ctx *c, const struct source *src, struct graph **out)
{
	struct decoder_memory *mem = NEW(c->a, struct decoder_memory, 1);
	struct onnx l = {.c = c};
	bool ok;

	l.m = decode(c, src, mem);
	if (!l.m)
		return false;
	l.g = *out = graph_new(c);
	l.names = strtab_new(c->a);
	ok = read_model(&l);
	arena_cancel(c->a, mem);
	return ok;
}

const struct frontend frontend_onnx = {"onnx", "ONNX model (.onnx)", probe, load};
