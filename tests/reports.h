/* What the tests of formats share. */
#ifndef MC_TEST_REPORTS_H
#define MC_TEST_REPORTS_H

#include "test.h"

#include <jansson.h>

struct test_parsed {               /* a report, and its JSON */
	mc_model *m;
	mc_report *r;
	json_t *json;
};
void test_each_model(void (*check)(const struct test_parsed *, const char *text, size_t n), const char *format);
json_int_t test_number(const json_t *, const char *a, const char *b, const char *c);       /* o[a][b][c]; b and c may be NULL */
char *test_hostile(const char *format);            /* a report of names that are hostile to formats; to be freed */

#endif
