/*
 * The ONNX model again with the analysis in its metadata. It is a splice: the file's bytes are copied in pieces as they are, weights from the
 * mapping; entries are added to metadata_props of the model and of the top graph's named nodes, and the lengths around them written anew. What an
 * earlier run added is replaced. Nodes have metadata from IR version 10 on, so that an older version number becomes 10; nothing else changes.
 */
#include "../ir/api.h"
#include "json_part.h"
#include "notes.h"

#include <stdlib.h>

#define IR_VERSION 10
#define PIECE ((size_t)1 << 20)
#define PREFIX "memcrest."

enum { MODEL_IR_VERSION = 1, MODEL_GRAPH = 7, MODEL_METADATA = 14, GRAPH_NODE = 1, NODE_NAME = 3, NODE_METADATA = 9, ENTRY_KEY = 1, ENTRY_VALUE = 2 };

struct field {
	uint32_t number, wire;
	const unsigned char *start, *p, *end;      /* with its key; the value */
	uint64_t n;                /* of a number */
};

struct splice {
	const struct report *r;
	const struct notes *notes;
	struct buf *out;
	struct arena *a;
	const unsigned char **at;  /* per note: the first node of that name, which has it */
	uint64_t ir_version;       /* the file's */
	uint64_t noted;            /* bytes that nodes of the top graph have */
	struct buf added;          /* what the node at hand gains */
};

/* ---- the wire ------------------------------------------------------------------------------------------------------ */

static bool
varint(const unsigned char **p, const unsigned char *end, uint64_t *out)
{
	uint64_t n = 0;

	for (unsigned shift = 0; shift < 64 && *p < end; shift += 7) {
		unsigned char b = *(*p)++;

		n |= (uint64_t)(b & 127) << shift;
		if (b < 128) {
			*out = n;
			return true;
		}
	}
	return false;
}

/* False at the end, and for what is no field; the frontend has seen the file and refused those. */
static bool
next_field(const unsigned char **p, const unsigned char *end, struct field *f)
{
	uint64_t key, n = 0;

	f->start = *p;
	if (*p >= end || !varint(p, end, &key) || key >> 32)
		return false;
	f->number = (uint32_t)(key >> 3);
	f->wire = (uint32_t)key & 7;
	f->p = *p;
	if (f->wire == 0) {
		if (!varint(p, end, &f->n))
			return false;
	} else if (f->wire == 2) {
		if (!varint(p, end, &n))
			return false;
		f->p = *p;
	} else {
		n = f->wire == 1 ? 8 : f->wire == 5 ? 4 : UINT64_MAX;
	}
	if (n > (uint64_t)(end - *p))
		return false;
	*p += n;
	f->end = *p;
	return true;
}

static void
put_varint(struct buf *b, uint64_t n)
{
	for (; n >= 128; n >>= 7) {
		unsigned char c = (unsigned char)(n | 128);

		buf_put(b, &c, 1);
	}
	buf_put(b, &(unsigned char){(unsigned char)n}, 1);
}

static unsigned
varint_size(uint64_t n)
{
	unsigned size = 1;

	for (; n >= 128; n >>= 7)
		size++;
	return size;
}

static void
put_head(struct buf *b, uint32_t number, uint64_t length)
{
	put_varint(b, (uint64_t)number << 3 | 2);
	put_varint(b, length);
}

static void
copy(struct splice *s, const struct field *f)
{
	for (const unsigned char *p = f->start; p < f->end;) {
		size_t n = (size_t)(f->end - p) < PIECE ? (size_t)(f->end - p) : PIECE;

		buf_put(s->out, p, n);
		p += n;
	}
}

/* ---- entries --------------------------------------------------------------------------------------------------------- */

static void
entry(struct buf *b, uint32_t number, const char *key, struct str value)
{
	struct str k = str_of(key);

	put_head(b, number, 2u + varint_size(k.n) + k.n + varint_size(value.n) + value.n);
	put_head(b, ENTRY_KEY, k.n);
	buf_str(b, k);
	put_head(b, ENTRY_VALUE, value.n);
	buf_str(b, value);
}

static void
entry_bytes(struct splice *s, struct buf *b, uint32_t number, const char *key, uint64_t n)
{
	entry(b, number, key, str_fmt(s->a, "%llu", (unsigned long long)n));
}

static void
entry_factors(struct buf *b, uint32_t number, const struct factors *f)
{
	json_t *o = json_object();
	struct buf text = {0};

	for (unsigned i = 0; i < FAC_COUNT; i++)
		json_put(&o, factor_name(i), json_bytes(f->of[i]));
	json_line(o, &text);
	json_decref(o);
	entry(b, number, PREFIX "factors", (struct str){text.p ? text.p : "", (uint32_t)text.n});
	b->failed |= text.failed;
	free(text.p);
}

static bool
is_ours(const struct field *f)
{
	const unsigned char *p = f->p;
	struct field k;

	while (f->wire == 2 && next_field(&p, f->end, &k))
		if (k.number == ENTRY_KEY && k.wire == 2)
			return str_starts((struct str){(const char *)k.p, (uint32_t)(k.end - k.p)}, S(PREFIX));
	return false;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------ */

static struct str
node_name(const struct field *node)
{
	const unsigned char *p = node->p;
	struct field f;
	struct str name = S("");

	while (next_field(&p, node->end, &f))
		if (f.number == NODE_NAME && f.wire == 2)
			name = (struct str){(const char *)f.p, (uint32_t)(f.end - f.p)};
	return name;
}

/* What a node gains, in s->added; nothing if nothing is known of it. */
static void
node_entries(struct splice *s, const struct field *node)
{
	const struct note *n = note_of(s->notes, node_name(node));
	struct buf *b = &s->added;

	b->n = 0;
	if (!n)
		return;
	if (!s->at[n - s->notes->list]) {
		s->at[n - s->notes->list] = node->start;
		s->noted += factors_total(&n->at);
	}
	if (s->at[n - s->notes->list] != node->start)
		return;
	entry_bytes(s, b, NODE_METADATA, PREFIX "bytes_at_peak", factors_total(&n->at));
	entry_bytes(s, b, NODE_METADATA, PREFIX "bytes_saved_for_backward", n->saved);
	if (factors_total(&n->at))
		entry_factors(b, NODE_METADATA, &n->at);
	if (n->modality)
		entry(b, NODE_METADATA, PREFIX "modality", str_of(modality_name(n->modality)));
	if (n->trainable)
		entry(b, NODE_METADATA, PREFIX "trainable", S("true"));
	if (n->peak)
		entry(b, NODE_METADATA, PREFIX "peak", S("true"));
	s->out->failed |= b->failed;
}

/* Bytes of what is kept of a message: all but our own entries of an earlier run. */
static uint64_t
kept(const struct field *message, uint32_t metadata)
{
	const unsigned char *p = message->p;
	uint64_t n = 0;
	struct field f;

	while (next_field(&p, message->end, &f))
		if (f.number != metadata || !is_ours(&f))
			n += (uint64_t)(f.end - f.start);
	return n;
}

static void
put_node(struct splice *s, const struct field *node)
{
	const unsigned char *p = node->p;
	struct field f;

	node_entries(s, node);
	put_head(s->out, GRAPH_NODE, kept(node, NODE_METADATA) + s->added.n);
	while (next_field(&p, node->end, &f))
		if (f.number != NODE_METADATA || !is_ours(&f))
			copy(s, &f);
	buf_put(s->out, s->added.p, s->added.n);
}

static uint64_t
node_size(struct splice *s, const struct field *node)
{
	uint64_t n;

	node_entries(s, node);
	n = kept(node, NODE_METADATA) + s->added.n;
	return 1 + varint_size(n) + n;
}

static void
put_graph(struct splice *s, const struct field *graph)
{
	const unsigned char *p = graph->p;
	uint64_t n = 0;
	struct field f;

	while (next_field(&p, graph->end, &f))
		n += f.number == GRAPH_NODE && f.wire == 2 ? node_size(s, &f) : (uint64_t)(f.end - f.start);
	put_head(s->out, MODEL_GRAPH, n);
	p = graph->p;
	while (next_field(&p, graph->end, &f))
		if (f.number == GRAPH_NODE && f.wire == 2)
			put_node(s, &f);
		else
			copy(s, &f);
}

/* ---- the model ---------------------------------------------------------------------------------------------------------- */

static void
model_entries(struct splice *s)
{
	const struct report *r = s->r;
	const struct step_row *st = &r->steps[r->peak_step];

	entry(s->out, MODEL_METADATA, PREFIX "version", S(MC_VERSION));
	entry_bytes(s, s->out, MODEL_METADATA, PREFIX "peak_bytes", st->tensors);
	entry_bytes(s, s->out, MODEL_METADATA, PREFIX "peak_allocated_bytes", r->memory.allocated);
	entry_bytes(s, s->out, MODEL_METADATA, PREFIX "peak_reserved_bytes", r->memory.reserved);
	entry(s->out, MODEL_METADATA, PREFIX "peak_at", str_fmt(s->a, "step %u, %s: %.*s", r->peak_step, phase_name(st->phase), SFMT(peak_place(r, s->a))));
	entry_factors(s->out, MODEL_METADATA, peak_factors(r));
	entry_bytes(s, s->out, MODEL_METADATA, PREFIX "bytes_elsewhere", st->tensors - s->noted);
	if (s->ir_version < IR_VERSION)
		entry_bytes(s, s->out, MODEL_METADATA, PREFIX "ir_version_was", s->ir_version);
	if (r->lower_bound)
		entry(s->out, MODEL_METADATA, PREFIX "lower_bound", S("true"));
}

static void
put_model(struct splice *s, const unsigned char *p, const unsigned char *end)
{
	struct field f;

	while (next_field(&p, end, &f)) {
		if (f.number == MODEL_IR_VERSION && f.wire == 0 && f.n < IR_VERSION) {
			put_varint(s->out, MODEL_IR_VERSION << 3);
			put_varint(s->out, IR_VERSION);
			s->ir_version = f.n;
		} else if (f.number == MODEL_GRAPH && f.wire == 2) {
			put_graph(s, &f);
		} else if (f.number != MODEL_METADATA || !is_ours(&f)) {
			copy(s, &f);
		}
	}
	model_entries(s);
}

struct job {
	const mc_model *m;
	const struct report *r;
	struct buf *out;
	struct arena *a;
};

static void
release(void *p)
{
	free(((struct splice *)p)->added.p);
}

static bool
work(void *arg)
{
	struct job *j = arg;
	struct splice *s = NEW(j->a, struct splice, 1);

	*s = (struct splice){.r = j->r, .notes = notes_make(j->r, j->a), .out = j->out, .a = j->a, .ir_version = IR_VERSION};
	arena_defer(j->a, release, s);
	s->at = NEW(j->a, const unsigned char *, s->notes->n + 1u);
	put_model(s, j->m->map, (const unsigned char *)j->m->map + j->m->map_size);
	return !j->out->failed;
}

struct sink {
	mc_write_fn *fn;
	void *user;
	bool refused;              /* by fn */
};

static int
forward(void *user, const void *p, size_t n)
{
	struct sink *s = user;

	s->refused = s->refused || s->fn(s->user, p, n) != 0;
	return s->refused;
}

int
mc_can_annotate(const mc_model *m)
{
	return m && m->map && m->g && str_eq(m->g->format, S("onnx"));
}

mc_status
mc_annotate(const mc_model *m, const mc_report *r, mc_write_fn *fn, void *user)
{
	struct sink sink = {fn, user, false};
	struct buf out = {.write = forward, .user = &sink};
	struct ctx c;
	struct job j = {m, r ? &r->r : NULL, &out, NULL};
	mc_status st;

	if (!mc_can_annotate(m) || !r || !fn || !r->r.sched)
		return MC_BAD_INPUT;
	if (!ctx_open(&c, NULL))
		return MC_NO_MEMORY;
	j.a = c.a;
	st = ctx_enter(&c, work, &j);
	if ((!buf_flush(&out) || st == MC_BAD_INPUT) && st != MC_LIMIT)
		st = sink.refused ? MC_BAD_INPUT : MC_NO_MEMORY;
	free(out.p);
	ctx_close(&c);
	return st;
}
