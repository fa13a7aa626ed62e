/*
 * ONNX files on the wire: a slim copy of the message tree, for the decoder.
 *
 * The decoder (protobuf-c) recurses without a limit, copies every payload and knows no budget, so nothing reaches it unseen: here the
 * tree is walked over the mapped file with every length checked against its parent's end, depth and counts limited, and what the decoder
 * would need added up. Of tensors only short payloads are kept (sizes and axes are such), of metadata only keys that are read. Weights are
 * skipped by arithmetic on offsets: their pages are never touched.
 *
 * A message's length is written as five bytes, filled in when its end is known; decoders accept padded lengths.
 */
#include "onnx.h"

#include <stdlib.h>
#include <string.h>

#define INTS_KEPT LIMIT(4096u, 4u)            /* elements of an integer tensor */
#define FLOATS_KEPT LIMIT(64u, 1u)
#define TEXT_KEPT LIMIT(1u << 16, 64u)       /* bytes of a string attribute */
#define OPERANDS LIMIT(16384u, 6u)            /* of one node, and likewise its results and attributes */

enum message {
	M_MODEL, M_GRAPH, M_NODE, M_ATTRIBUTE, M_TENSOR, M_SPARSE, M_VALUE, M_TYPE, M_TENSOR_TYPE, M_ELEMENT, M_SHAPE, M_DIM, M_FUNCTION, M_OPSET, M_PROPERTY, M_COUNT
};
enum form { F_DROP, F_NUMBER, F_FIXED32, F_NUMBERS, F_TEXT, F_MESSAGE };

#define MAX_FIELD 26
struct form_of {
	uint8_t form, child;
};

#define NUMBER {F_NUMBER, 0}
#define NUMBERS {F_NUMBERS, 0}
#define TEXT {F_TEXT, 0}
#define MSG(m) {F_MESSAGE, M_##m}

static const struct form_of forms[M_COUNT][MAX_FIELD] = {
	[M_MODEL] = {[1] = NUMBER, [2] = TEXT, [3] = TEXT, [7] = MSG(GRAPH), [8] = MSG(OPSET), [14] = MSG(PROPERTY), [25] = MSG(FUNCTION)},
	[M_GRAPH] = {[1] = MSG(NODE), [2] = TEXT, [5] = MSG(TENSOR), [11] = MSG(VALUE), [12] = MSG(VALUE), [13] = MSG(VALUE), [15] = MSG(SPARSE), [16] = MSG(PROPERTY)},
	[M_NODE] = {[1] = TEXT, [2] = TEXT, [3] = TEXT, [4] = TEXT, [5] = MSG(ATTRIBUTE), [7] = TEXT, [8] = TEXT, [9] = MSG(PROPERTY)},
	[M_ATTRIBUTE] = {[1] = TEXT, [2] = {F_FIXED32, 0}, [3] = NUMBER, [4] = TEXT, [5] = MSG(TENSOR), [6] = MSG(GRAPH), [7] = NUMBERS, [8] = NUMBERS, [9] = TEXT,
	    [14] = MSG(TYPE), [20] = NUMBER, [21] = TEXT, [22] = MSG(SPARSE)},
	[M_TENSOR] = {[1] = NUMBERS, [2] = NUMBER, [4] = NUMBERS, [5] = NUMBERS, [7] = NUMBERS, [8] = TEXT, [9] = TEXT, [10] = NUMBERS, [11] = NUMBERS, [14] = NUMBER},
	[M_SPARSE] = {[1] = MSG(TENSOR), [3] = NUMBERS},
	[M_VALUE] = {[1] = TEXT, [2] = MSG(TYPE), [4] = MSG(PROPERTY)},
	[M_TYPE] = {[1] = MSG(TENSOR_TYPE), [4] = MSG(ELEMENT), [8] = MSG(TENSOR_TYPE), [9] = MSG(ELEMENT)},
	[M_TENSOR_TYPE] = {[1] = NUMBER, [2] = MSG(SHAPE)},
	[M_ELEMENT] = {[1] = MSG(TYPE)},
	[M_SHAPE] = {[1] = MSG(DIM)},
	[M_DIM] = {[1] = NUMBER, [2] = TEXT},
	[M_FUNCTION] = {[1] = TEXT, [4] = TEXT, [5] = TEXT, [6] = TEXT, [7] = MSG(NODE), [9] = MSG(OPSET), [10] = TEXT, [11] = MSG(ATTRIBUTE), [12] = MSG(VALUE), [13] = TEXT},
	[M_OPSET] = {[1] = TEXT, [2] = NUMBER},
	[M_PROPERTY] = {[1] = TEXT, [2] = TEXT},
};

static const uint16_t unpacked_size[M_COUNT] = {
	sizeof(Onnx__Model), sizeof(Onnx__Graph), sizeof(Onnx__Node), sizeof(Onnx__Attribute), sizeof(Onnx__Tensor), sizeof(Onnx__SparseTensor), sizeof(Onnx__ValueInfo),
	sizeof(Onnx__Type), sizeof(Onnx__TensorType), sizeof(Onnx__ElementType), sizeof(Onnx__Shape), sizeof(Onnx__Dim), sizeof(Onnx__Function), sizeof(Onnx__Opset), sizeof(Onnx__Property),
};

struct walk {
	struct ctx *c;
	const unsigned char *base;
	struct buf *out;
	uint64_t cost;             /* bytes that the decoder will need */
	uint64_t nodes;
};

struct field {
	uint32_t number, wire;
	const unsigned char *start, *p, *end;      /* with its key; the value */
	uint64_t n;                /* VARINT: the value */
};

/* ---- reading ------------------------------------------------------------------------------------------------ */

static bool
bad(struct walk *w, const unsigned char *at, const char *what)
{
	return diag(w->c, DIAG_ONNX_WIRE, (unsigned long long)(at - w->base), what);
}

static bool
varint(const unsigned char **p, const unsigned char *end, uint64_t *out)
{
	uint64_t n = 0;

	for (unsigned shift = 0; shift < 70 && *p < end; shift += 7) {
		unsigned char b = *(*p)++;

		n |= shift < 64 ? (uint64_t)(b & 127) << shift : 0;
		if (b < 128) {
			*out = n;
			return true;
		}
	}
	return false;
}

static bool
next_field(struct walk *w, const unsigned char **p, const unsigned char *end, struct field *f)
{
	uint64_t key, n;

	f->start = *p;
	if (!varint(p, end, &key) || key >> 32)
		return bad(w, f->start, "a field has no valid key");
	f->number = (uint32_t)(key >> 3);
	f->wire = (uint32_t)key & 7;
	f->p = *p;
	switch (f->wire) {
	case 0:
		if (!varint(p, end, &f->n))
			return bad(w, f->p, "a number does not end");
		break;
	case 1:
	case 5:
		n = f->wire == 1 ? 8 : 4;
		if ((uint64_t)(end - *p) < n)
			return bad(w, f->p, "a number does not end");
		*p += n;
		break;
	case 2:
		if (!varint(p, end, &n) || n > (uint64_t)(end - *p))
			return bad(w, f->start, "a field is longer than what it stands in");
		f->p = *p;
		*p += n;
		break;
	default:
		return bad(w, f->start, "a field has a wire type that is not in use");
	}
	f->end = *p;
	return true;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

static void
copy(struct walk *w, const struct field *f)
{
	buf_put(w->out, f->start, (size_t)(f->end - f->start));
}

static size_t
open_message(struct walk *w, uint32_t number)
{
	unsigned char key[2] = {(unsigned char)(number << 3 | 2), 0}, length[5] = {0};
	size_t n = 1;

	if (number >= 16) {
		key[0] |= 128;
		key[1] = (unsigned char)(number >> 4);
		n = 2;
	}
	buf_put(w->out, key, n);
	buf_put(w->out, length, 5);
	return w->out->n;
}

static void
close_message(struct walk *w, size_t begin)
{
	size_t n = w->out->n - begin;

	for (unsigned i = 0; i < 5 && !w->out->failed; i++)
		w->out->p[begin - 5 + i] = (char)((n >> 7 * i & 127) | (i < 4 ? 128 : 0));
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

static bool
is_payload(uint32_t number)
{
	return number == 4 || number == 5 || number == 7 || number == 9 || number == 10 || number == 11;
}

/* How many bytes of payload are worth keeping: the type may stand behind it. */
static bool
kept_bytes(struct walk *w, const unsigned char *p, const unsigned char *end, uint64_t *out)
{
	struct field f;
	unsigned dtype = DT_NONE;

	while (p < end) {
		if (!next_field(w, &p, end, &f))
			return false;
		if (f.number == 2 && f.wire == 0)
			dtype = dtype_by_onnx(f.n > 255 ? -1 : (int64_t)f.n);
	}
	*out = dtype_is_float(dtype) ? FLOATS_KEPT * 8 : dtype_info(dtype)->cat == CAT_INT || dtype_info(dtype)->cat == CAT_BOOL ? INTS_KEPT * 10 : 0;
	return true;
}

/* ---- the walk ------------------------------------------------------------------------------------------------------ */

static bool walk_message(struct walk *, unsigned message, const unsigned char *p, const unsigned char *end, unsigned depth);

static bool
walk_child(struct walk *w, unsigned child, const struct field *f, unsigned depth)
{
	size_t begin = open_message(w, f->number);

	if (!walk_message(w, child, f->p, f->end, depth + 1))
		return false;
	close_message(w, begin);
	return true;
}

/* Only what the frontend reads: scopes, FX nodes, the exporter's signature, what a value was folded from. */
static bool
is_wanted(struct walk *w, const struct field *property)
{
	static const char *const keys[] = {
		"namespace", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.fx_node", "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace",
		"pkg.onnxscript.class_hierarchy", "pkg.onnxscript.name_scopes", "pkg.onnxscript.rewriter.rule_name", "pkg.onnxscript.optimizer.folded_from",
		"pkg.torch.export.ExportedProgram.graph_signature", "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.torch.export.graph_signature.InputSpec.persistent",
	};
	const unsigned char *p = property->p;
	struct field f;

	while (p < property->end && next_field(w, &p, property->end, &f)) {
		struct str key = {(const char *)f.p, (uint32_t)(f.end - f.p < 256 ? f.end - f.p : 256)};

		for (size_t i = 0; f.number == 1 && f.wire == 2 && i < sizeof keys / sizeof keys[0]; i++)
			if (str_eq(key, str_of(keys[i])))
				return true;
	}
	return false;
}

static bool
fits(unsigned form, uint32_t wire)
{
	switch (form) {
	case F_NUMBER:
		return wire == 0;
	case F_FIXED32:
		return wire == 5;
	case F_NUMBERS:
		return wire != 3 && wire != 4;
	default:
		return wire == 2;
	}
}

/* What the decoder will take for it. */
static bool
charge(struct walk *w, unsigned form, const struct field *f)
{
	uint64_t n = (uint64_t)(f->end - f->p);

	w->cost += form == F_NUMBERS ? n * 8 + 8 : form == F_TEXT ? n + 32 : 0;
	if (w->out->failed)
		arena_lack(w->c->a, false);
	if (w->cost > w->c->lim.memory || w->out->n > w->c->lim.memory || w->out->n > INT32_MAX - 64)
		return diag(w->c, DIAG_LIMIT_MEMORY);
	return true;
}

static bool
walk_field(struct walk *w, unsigned message, const struct field *f, uint64_t payload, unsigned depth)
{
	struct form_of form = f->number < MAX_FIELD ? forms[message][f->number] : (struct form_of){F_DROP, 0};
	uint64_t n = (uint64_t)(f->end - f->p);

	if (form.form == F_DROP)
		return true;
	if (!fits(form.form, f->wire))
		return bad(w, f->start, "a field has another wire type than the format says");
	if (message == M_TENSOR && is_payload(f->number) && f->wire == 2 && n > payload)
		return true;
	if (message == M_ATTRIBUTE && form.form == F_TEXT && n > TEXT_KEPT)
		return true;
	if (form.form == F_TEXT && n >= INT32_MAX)
		return bad(w, f->start, "a text is too long");
	if (form.form == F_MESSAGE) {
		if (form.child == M_PROPERTY && !is_wanted(w, f))
			return w->c->nerror == 0;
		return walk_child(w, form.child, f, depth);
	}
	copy(w, f);
	return charge(w, form.form, f);
}

static bool
count(struct walk *w, const char *what, uint64_t n, uint64_t most)
{
	return n <= most || diag(w->c, DIAG_TOO_MANY, what, (unsigned long long)most);
}

static bool
walk_message(struct walk *w, unsigned message, const unsigned char *p, const unsigned char *end, unsigned depth)
{
	uint64_t payload = 0, fields[MAX_FIELD] = {0};
	struct field f;

	if (depth > w->c->lim.messages)
		return diag(w->c, DIAG_TOO_MANY, "nested messages", (unsigned long long)w->c->lim.messages);
	if (!count(w, "nodes", w->nodes += message == M_NODE, w->c->lim.nodes))
		return false;
	w->cost += unpacked_size[message] + 16u;
	if (message == M_TENSOR && !kept_bytes(w, p, end, &payload))
		return false;
	while (p < end) {
		if (!next_field(w, &p, end, &f))
			return false;
		if (message == M_NODE && f.number < MAX_FIELD && !count(w, "operands, results or attributes of a node", ++fields[f.number], OPERANDS))
			return false;
		if (!walk_field(w, message, &f, payload, depth))
			return false;
	}
	return true;
}

bool
onnx_slim(struct ctx *c, const struct source *src, struct buf *out)
{
	struct walk w = {.c = c, .base = src->p, .out = out};

	return walk_message(&w, M_MODEL, src->p, src->p + src->n, 0);
}

/* The first fields must be a model's; a version number, or a graph, must be among them. */
int
onnx_probe_wire(const struct source *src)
{
	const unsigned char *p = src->p, *end = src->p + src->n;
	bool version = false, graph = false;

	while (p < end) {
		uint64_t key, n;

		if (!varint(&p, end, &key) || key >> 3 >= MAX_FIELD || key >> 3 == 0 || !varint(&p, end, &n))
			break;
		version |= key == (1 << 3) && n >= 1 && n < 256;
		if ((key & 7) == 0 && (key >> 3 == 1 || key >> 3 == 5))
			continue;
		graph |= key == (7 << 3 | 2);
		if ((key & 7) != 2 || n > (uint64_t)(end - p))
			break;
		p += n;
	}
	if (p < end && !version)
		return 0;
	return version ? 20 : graph ? 12 : 0;
}
