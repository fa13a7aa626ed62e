/* Inside of the page (format html): the document is html.c, its drawings are html_time.c, html_icicle.c and html_rules.c. */
#ifndef MC_HTML_H
#define MC_HTML_H

#include "things.h"
#include "xml_part.h"

struct page {
	const struct report *r;
	struct emit *e;
	struct xml *x;
};

void html_open(struct page *, const char *tag, const char *class);       /* class NULL: none */
void html_close(struct page *);
void html_wide(struct page *, const char *class, const char *what);        /* a box that scrolls sideways; what it holds, for screen readers */
void html_line(struct page *, const char *class, double x1, double y1, double x2, double y2);      /* of a drawing */
void html_text(struct page *, const char *tag, const char *class, struct str);
void html_cell(struct page *, uint64_t bytes);                    /* a cell of a table, to be sorted by its number */
void html_strip(struct page *, const char *class, const struct factors *, uint64_t whole);     /* a bar in factors' colours, as wide as its share of whole */
struct str html_round_bytes(struct page *, uint64_t);             /* "50 GiB", of a tick */
const char *factor_words(unsigned);
extern const uint8_t html_order[FAC_COUNT];                       /* of factors in bars and areas */

void html_timeline(struct page *);
void html_icicle(struct page *);
void html_rules(struct page *);

#endif
