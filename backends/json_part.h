/*
 * Pieces of JSON that reports and sweeps share; each returns a new reference, or NULL when memory is short. What something cannot be put into is
 * released and becomes NULL, and so in turn does what that is put into: a document that lacks an entry is none. Therefore a part is complete before
 * it is put into the whole.
 */
#ifndef MC_JSON_PART_H
#define MC_JSON_PART_H

#include "backend.h"

#include <jansson.h>

void json_put(json_t **object, const char *key, json_t *);
void json_put_named(json_t **object, struct str key, json_t *);
void json_add(json_t **list, json_t *);
json_t *json_text(struct str);
json_t *json_fmt(const char *fmt, ...) __attribute__((format(printf, 1, 2)));      /* not in an arena, whose end of memory would jump over the parts that are loose */
json_t *json_texts(const struct str *, uint32_t n);
json_t *json_bytes(uint64_t);
json_t *json_range(uint64_t low, uint64_t high);
json_t *json_factors(const struct factors *);
json_t *json_verdict(const struct verdict *);      /* null if none was asked for */
json_t *json_recipe(const struct recipe *);        /* every key, resolved */
json_t *json_table(const char *schema, const struct sweep_table *);        /* how a sweep's or advise's document begins */
bool json_print(json_t *, struct buf *);           /* and release it; false: it is NULL or cannot be printed */
void json_line(const json_t *, struct buf *);      /* without a blank or a line end; NULL or what cannot be printed fails the buffer. json_dumps() would not always say so */

/*
 * A document with a list that is too long to be held: its head is printed up to the end of that list, which must be empty and come last;
 * then its items one by one; then the rest.
 */
struct json_stream {
	struct buf *b;
	char held[2];              /* the brackets that close list and document */
	unsigned nheld;
	bool more;                 /* not the first item */
};
void json_stream_open(struct json_stream *, json_t *head, struct buf *);   /* these release what they print */
void json_stream_item(struct json_stream *, json_t *);
bool json_stream_close(struct json_stream *);

#endif
