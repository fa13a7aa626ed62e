/* The table of frontends and the one door: the format is found by looking at bytes, never by the file's name. */
#include "frontend.h"

#include <string.h>

static const struct frontend *const table[] = {&frontend_export, &frontend_script, &frontend_onnx, &frontend_textir};

const struct frontend *
frontend_at(unsigned i)
{
	return i < sizeof table / sizeof table[0] ? table[i] : NULL;
}

static const char *
describe_start(struct ctx *c, const struct source *src)
{
	struct str s = S("");

	for (uint64_t i = 0; i < src->n && i < 8; i++) {
		unsigned char b = src->p[i];

		s = b >= 0x20 && b < 0x7f ? str_fmt(c->a, "%.*s%c", SFMT(s), b) : str_fmt(c->a, "%.*s\\x%02x", SFMT(s), b);
	}
	return str_fmt(c->a, "\"%.*s\"", SFMT(s)).p;
}

/* The dtype of most floating-point parameters, counted by tensors; a frozen module's are constants. */
void
frontend_file_dtype(struct graph *g)
{
	uint32_t count[DT_COUNT] = {0};

	for (uint32_t v = 1; v < g->nval; v++)
		if ((g->vals[v].kind == VAL_PARAM || g->vals[v].kind == VAL_CONST) && dtype_is_float(g->vals[v].dtype))
			count[g->vals[v].dtype] += g->vals[v].kind == VAL_PARAM ? 1000 : 1;
	for (unsigned i = 1; i < DT_COUNT; i++)
		if (count[i] > (g->file_dtype ? count[g->file_dtype] : 0))
			g->file_dtype = (uint8_t)i;
	if (!g->file_dtype)
		g->file_dtype = DT_FP32;
}

bool
frontend_load(struct ctx *c, const struct source *src, struct graph **out)
{
	const struct frontend *best = NULL;
	const char *sentence;
	int bits = 0;

	if (src->n == 0)
		return diag(c, DIAG_EMPTY_FILE);
	for (unsigned i = 0; frontend_at(i); i++) {
		int bid = frontend_at(i)->probe(c, src);

		if (bid > bits) {
			bits = bid;
			best = frontend_at(i);
		}
	}
	sentence = bits < 64 ? foreign_sentence(c, src) : NULL;
	if (sentence)
		return diag(c, DIAG_NOT_A_GRAPH, str_fmt(c->a, "not a model graph but %s", sentence).p);
	if (!best)
		return diag(c, DIAG_NOT_A_MODEL, describe_start(c, src));
	if (!best->load(c, src, out))
		return false;
	(*out)->format = str_of(best->name);
	return graph_verify(*out, "load");
}
