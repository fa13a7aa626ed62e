/* What the unit tests share: cmocka, contexts, and analyses of graphs given as text. */
#ifndef MC_TEST_H
#define MC_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../ir/api.h"

struct ctx *test_ctx(void);        /* running out of memory fails the test */
void test_ctx_free(struct ctx *);

struct analysed {
	mc_model *m;
	mc_report *r;
};
struct analysed test_analyse(const char *text_ir, const char *recipe_json);        /* fails the test with the first diagnostic */
struct analysed test_analyse_file(const char *path, const char *recipe_json);
void release_analysis(struct analysed);

/* A report in a format, to be freed; NUL-terminated. Fails the test unless two writings are the same. */
char *test_write(const mc_report *, const char *format, size_t *n);
mc_report *test_report(const char *path, const char *recipe_json, mc_model **m);   /* of a file; a lower bound will do */

char *test_read(const char *path, size_t *n);      /* whole file, NUL-terminated; fails the test */

/* archive.c */
struct test_buf {                  /* to be freed with free(p) */
	char *p;
	size_t n, cap;
};
struct test_member {
	const char *name, *p;
	size_t n;
};
struct test_buf test_zip(const struct test_member *, size_t n);
struct test_buf test_script(const char *code, const char *state);         /* code of __torch__.m with the root class Net, and Net's state: see archive.c */

#endif
