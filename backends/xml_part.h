/* XML as reports need it, over libxml2's writer. Text may be any bytes: what XML does not allow becomes U+FFFD. */
#ifndef MC_XML_PART_H
#define MC_XML_PART_H

#include "backend.h"

struct xml;

struct xml *xml_start(struct emit *, bool declared);             /* declared: <?xml ..?>, and a line an element */
bool xml_end(struct xml *);                                      /* closes all; false: something failed on the way */
void xml_fail(struct xml *);                                     /* something to be written cannot be made: xml_end() says so */
void xml_open(struct xml *, const char *name);
void xml_close(struct xml *);                                    /* <a/> if it is empty */
void xml_close_html(struct xml *);                               /* <a></a> even then */
void xml_attr(struct xml *, const char *name, struct str);
void xml_attr_fmt(struct xml *, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void xml_attr_bytes(struct xml *, const char *name, uint64_t);
void xml_text(struct xml *, struct str);
void xml_fmt(struct xml *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void xml_raw(struct xml *, struct str);                          /* as it is: style sheets, scripts */
void xml_element(struct xml *, const char *name, struct str text);

#endif
