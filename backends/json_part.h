/* Pieces of JSON that reports and sweeps share; each returns a new reference. */
#ifndef MC_JSON_PART_H
#define MC_JSON_PART_H

#include "backend.h"

#include <jansson.h>

json_t *json_text(struct str);
json_t *json_texts(const struct str *, uint32_t n);
json_t *json_bytes(uint64_t);
json_t *json_range(uint64_t low, uint64_t high);
json_t *json_factors(const struct factors *);
json_t *json_verdict(const struct verdict *);      /* null if none was asked for */
json_t *json_recipe(const struct recipe *);        /* every key, resolved */
bool json_print(const json_t *, struct buf *);

#endif
