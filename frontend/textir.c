#include "frontend.h"
static int probe(struct ctx *c, const struct source *s) { (void)c; (void)s; return 0; }
static bool load(struct ctx *c, const struct source *s, struct graph **g) { (void)c; (void)s; (void)g; return false; }
const struct frontend frontend_textir = {"text-ir", "memcrest's own text form of a graph", probe, load};
