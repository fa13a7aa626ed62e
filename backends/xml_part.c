/*
 * XML over libxml2's writer. What is written goes through to the report's own output; nothing is kept.
 *
 * The writer does not say everything that fails: a text that it has no memory to escape is left out, an element that it cannot note down is never
 * closed. Therefore text is escaped before it gets it, and at the end as many elements must close as were opened.
 */
#include "xml_part.h"

#include <libxml/xmlwriter.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct xml {
	xmlTextWriterPtr w;
	struct emit *e;
	struct buf clean;          /* text made fit for XML, NUL-terminated */
	unsigned depth;            /* elements that are open */
	bool failed, complained;   /* a call; the library on its way */
	xmlStructuredErrorFunc structured;         /* the caller's */
	xmlGenericErrorFunc generic;
	void *structured_user, *generic_user;
};

/* libxml2 would print. Its two handlers are the thread's, so that it has ours only while a document is written. */
#if LIBXML_VERSION < 21200
static void
complaint(void *user, xmlErrorPtr e)
#else
static void
complaint(void *user, const xmlError *e)
#endif
{
	struct xml *x = user;

	(void)e;
	x->complained = true;
}

static void
remark(void *user, const char *fmt, ...)
{
	(void)fmt;
	((struct xml *)user)->complained = true;
}

static void
take_handlers(struct xml *x)
{
	x->structured = xmlStructuredError;
	x->structured_user = xmlStructuredErrorContext;
	x->generic = xmlGenericError;
	x->generic_user = xmlGenericErrorContext;
	xmlSetStructuredErrorFunc(x, complaint);
	xmlSetGenericErrorFunc(x, remark);
}

static void
release(void *p)
{
	struct xml *x = p;

	if (x->w)
		xmlFreeTextWriter(x->w);
	if (x->complained)
		xmlResetLastError();
	xmlSetStructuredErrorFunc(x->structured_user, x->structured);
	xmlSetGenericErrorFunc(x->generic_user, x->generic);
	x->w = NULL;
	free(x->clean.p);
	x->clean.p = NULL;
}

/* A sink that fails is noticed at the end; the writer need not know. */
static int
sink(void *user, const char *p, int n)
{
	buf_put(((struct xml *)user)->e->b, p, (size_t)n);
	return n;
}

struct xml *
xml_start(struct emit *e, bool declared)
{
	struct xml *x = NEW(e->a, struct xml, 1);
	xmlOutputBufferPtr out;

	x->e = e;
	arena_defer(e->a, release, x);
	take_handlers(x);
	out = xmlOutputBufferCreateIO(sink, NULL, x, NULL);
	x->w = out ? xmlNewTextWriter(out) : NULL;
	if (out && !x->w)
		xmlOutputBufferClose(out);
	x->failed = !x->w || xmlTextWriterSetIndent(x->w, declared) < 0;
	if (!x->failed && declared)
		x->failed = xmlTextWriterStartDocument(x->w, NULL, "UTF-8", NULL) < 0;
	return x;
}

bool
xml_end(struct xml *x)
{
	bool ok;

	while (x->depth && !x->failed && !x->complained)
		xml_close_html(x);
	ok = !x->failed && xmlTextWriterEndDocument(x->w) >= 0 && xmlTextWriterFlush(x->w) >= 0;
	ok = ok && !x->complained && !x->e->b->failed && !x->clean.failed;
	arena_cancel(x->e->a, x);
	return ok;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

/* Bytes of the character at p, 0 = there is none that XML allows. */
static uint32_t
character(const char *p, uint32_t n)
{
	uint32_t len = utf8_length(p, n);

	if (len == 3 && (memcmp(p, "\xef\xbf\xbe", 3) == 0 || memcmp(p, "\xef\xbf\xbf", 3) == 0))
		return 0;
	return len == 1 && (unsigned char)*p < 32 && *p != '\t' && *p != '\n' && *p != '\r' ? 0 : len;
}

static const xmlChar *
clean(struct xml *x, struct str s)
{
	x->clean.n = 0;
	for (uint32_t i = 0; i < s.n;) {
		uint32_t len = character(s.p + i, s.n - i);

		buf_put(&x->clean, len ? s.p + i : "\xef\xbf\xbd", len ? len : 3);
		i += len ? len : 1;
	}
	buf_put(&x->clean, "", 1);
	return (const xmlChar *)(x->clean.failed ? "" : x->clean.p);
}

void
xml_text(struct xml *x, struct str s)
{
	xmlChar *escaped = x->failed ? NULL : xmlEncodeSpecialChars(NULL, clean(x, s));

	x->failed = !escaped || xmlTextWriterWriteRaw(x->w, escaped) < 0;
	xmlFree(escaped);
}

void
xml_raw(struct xml *x, struct str s)
{
	x->failed = x->failed || xmlTextWriterWriteRawLen(x->w, (const xmlChar *)s.p, (int)s.n) < 0;
}

void
xml_fmt(struct xml *x, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	xml_text(x, str_of(text));
}

/* ---- elements ------------------------------------------------------------------------------------------------------ */

void
xml_fail(struct xml *x)
{
	x->failed = true;
}

void
xml_open(struct xml *x, const char *name)
{
	x->failed = x->failed || xmlTextWriterStartElement(x->w, (const xmlChar *)name) < 0;
	x->depth++;
}

void
xml_close(struct xml *x)
{
	x->failed = x->failed || xmlTextWriterEndElement(x->w) < 0;
	x->depth--;
}

void
xml_close_html(struct xml *x)
{
	x->failed = x->failed || xmlTextWriterFullEndElement(x->w) < 0;
	x->depth--;
}

void
xml_element(struct xml *x, const char *name, struct str text)
{
	xml_open(x, name);
	xml_text(x, text);
	xml_close_html(x);
}

void
xml_attr(struct xml *x, const char *name, struct str s)
{
	x->failed = x->failed || xmlTextWriterWriteAttribute(x->w, (const xmlChar *)name, clean(x, s)) < 0;
}

void
xml_attr_fmt(struct xml *x, const char *name, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	xml_attr(x, name, str_of(text));
}

void
xml_attr_bytes(struct xml *x, const char *name, uint64_t n)
{
	xml_attr_fmt(x, name, "%llu", (unsigned long long)n);
}
