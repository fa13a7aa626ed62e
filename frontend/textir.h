/* What the files of the text form share: textir.c reads lines, textir_arg.c what stands in them. false: it is not there, and reported if it had to be. */
#ifndef MC_TEXTIR_H
#define MC_TEXTIR_H

#include "frontend.h"

struct reader {
	struct ctx *c;
	struct graph *g;
	struct str s;              /* rest of the line */
	uint32_t line;
	uint32_t *val_of, cap;     /* by interned name */
	struct sint *ints;     uint32_t nint, int_cap;       /* the list being read */
	double *floats;        uint32_t nfloat, float_cap;
	uint32_t *ids;         uint32_t nid, id_cap;
	const char *error;
};

bool text_fail(struct reader *r, const char *why);
void text_skip(struct reader *r);
bool text_accept(struct reader *r, const char *text);
bool text_expect(struct reader *r, const char *text);
struct str text_word(struct reader *r);
bool text_quoted(struct reader *r, struct str *out);
bool text_known_value(struct reader *r, uint32_t *out);
bool text_new_value(struct reader *r, enum val_kind kind, uint32_t *out);
bool text_type(struct reader *r, uint32_t v);
bool text_arguments(struct reader *r, uint32_t n);

#endif
