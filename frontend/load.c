/* The door of the frontends: files and memory to models, text to recipes. */
#include "../ir/api.h"
#include "frontend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct work {
	mc_model *m;
	const char *path;
	struct source src;
};

/* ---- getting at the bytes --------------------------------------------------------------------------------- */

static bool
too_big(struct ctx *c, uint64_t n)
{
	return n > c->lim.file && !diag(c, DIAG_FILE_TOO_BIG, (unsigned long long)n, (unsigned long long)c->lim.file);
}

/* A pipe or standard input: read whole. */
static bool
read_stream(mc_model *m, int fd)
{
	uint64_t most = m->c.lim.memory < m->c.lim.file ? m->c.lim.memory : m->c.lim.file;
	size_t cap = 0;
	char *p = NULL;

	m->map_is_heap = true;
	for (;;) {
		ssize_t got;

		if (m->map_size == cap) {
			cap = cap ? cap * 2 : 1 << 20;
			cap = cap > most ? most + 1 : cap;         /* one more than may be there shows that it is */
			p = m->map_size > most ? NULL : realloc(m->map, cap);
			if (!p)
				return diag(&m->c, DIAG_FILE_TOO_BIG, (unsigned long long)cap, (unsigned long long)most);
			m->map = p;
		}
		got = read(fd, (char *)m->map + m->map_size, cap - m->map_size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return diag(&m->c, DIAG_READ_FAILED, strerror(errno));
		if (got == 0)
			return true;
		m->map_size += (size_t)got;
	}
}

static bool
map_file(mc_model *m, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return diag(&m->c, DIAG_READ_FAILED, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return diag(&m->c, DIAG_IS_DIRECTORY);
	if (!S_ISREG(st.st_mode))
		return read_stream(m, fd);
	if (st.st_size == 0)
		return diag(&m->c, DIAG_EMPTY_FILE);
	if (too_big(&m->c, (uint64_t)st.st_size))
		return false;
	m->map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (m->map == MAP_FAILED) {
		m->map = NULL;
		return diag(&m->c, DIAG_READ_FAILED, strerror(errno));
	}
	m->map_size = (size_t)st.st_size;
	return true;
}

static bool
open_path(struct work *w)
{
	bool is_stdin = strcmp(w->path, "-") == 0, ok;
	int fd = is_stdin ? STDIN_FILENO : open(w->path, O_RDONLY | O_CLOEXEC);

	w->m->c.file = is_stdin ? S("standard input") : str_copy(w->m->c.a, str_of(w->path));
	if (fd < 0)
		return diag(&w->m->c, DIAG_NO_FILE, strerror(errno));
	ok = map_file(w->m, fd);
	if (!is_stdin)
		close(fd);
	w->src = (struct source){w->m->map, w->m->map_size, w->m->c.file};
	return ok;
}

/* ---- models ---------------------------------------------------------------------------------------------------- */

static bool
load_path(void *arg)
{
	struct work *w = arg;

	return open_path(w) && frontend_load(&w->m->c, &w->src, &w->m->g);
}

static bool
load_memory(void *arg)
{
	struct work *w = arg;

	w->m->c.file = w->src.name = str_copy(w->m->c.a, w->src.name);
	return frontend_load(&w->m->c, &w->src, &w->m->g);
}

static mc_status
load(struct work *w, bool (*how)(void *), const mc_options *o, mc_model **out)
{
	mc_status st;

	if (!out)
		return MC_BAD_INPUT;
	*out = w->m = calloc(1, sizeof *w->m);
	if (!w->m)
		return MC_NO_MEMORY;
	if (!ctx_open(&w->m->c, o)) {
		free(w->m);
		*out = NULL;
		return MC_NO_MEMORY;
	}
	st = ctx_enter(&w->m->c, how, w);
	if (st != MC_OK)
		w->m->g = NULL;
	return st;
}

mc_status
mc_load_path(const char *path, const mc_options *o, mc_model **out)
{
	struct work w = {.path = path ? path : ""};

	return load(&w, load_path, o, out);
}

mc_status
mc_load_memory(const void *data, size_t n, const char *name, const mc_options *o, mc_model **out)
{
	struct work w = {.src = {data, data ? n : 0, str_of(name ? name : "memory")}};

	return load(&w, load_memory, o, out);
}

/* ---- recipes ----------------------------------------------------------------------------------------------------- */

struct recipe_work {
	mc_recipe *r;
	struct str key, value;
	int64_t n;
	unsigned file;             /* of a framework */
	const char *kind;          /* a name that none has */
	struct recipe before;
};

mc_recipe *
mc_recipe_new(void)
{
	mc_recipe *r = calloc(1, sizeof *r);

	if (!r || !ctx_open(&r->c, NULL)) {
		free(r);
		return NULL;
	}
	recipe_init(&r->r);
	return r;
}

struct copy_work {
	mc_recipe *to;
	const mc_recipe *from;
};

static bool
copy_recipe(void *arg)
{
	struct copy_work *w = arg;

	w->to->r = *recipe_copy(w->to->c.a, &w->from->r);
	return true;
}

mc_recipe *
mc_recipe_copy(const mc_recipe *from)
{
	struct copy_work w = {from ? mc_recipe_new() : NULL, from};

	if (w.to && ctx_enter(&w.to->c, copy_recipe, &w) != MC_OK) {
		mc_recipe_free(w.to);
		return NULL;
	}
	return w.to;
}

/* What sets several keys may fail behind the first. */
static void
keep_dims(struct recipe_work *w)
{
	struct recipe *old = &w->before;
	struct dim_binding *dims = NEW(w->r->c.a, struct dim_binding, old->ndim + 1u);

	if (old->ndim)
		memcpy(dims, old->dims, old->ndim * sizeof *dims);
	old->dims = dims;
	old->dim_cap = old->ndim + 1u;
}

/* A call that fails leaves the recipe as it was, so that the next one may go well. */
static mc_status
change(struct recipe_work *w, bool (*set)(void *))
{
	mc_status st;

	if (!w->r)
		return MC_BAD_INPUT;
	w->before = w->r->r;
	w->r->c.nerror = 0;
	st = ctx_enter(&w->r->c, set, w);
	if (st != MC_OK)
		w->r->r = w->before;
	return st;
}

static bool
set_text(void *arg)
{
	struct recipe_work *w = arg;

	if (str_starts(w->value, S("{")))
		keep_dims(w);
	return recipe_set_json(&w->r->c, &w->r->r, w->key, w->value);
}

static bool
set_dim(void *arg)
{
	struct recipe_work *w = arg;

	return recipe_set_dim(&w->r->c, &w->r->r, w->key, w->n);
}

static bool
read_json(void *arg)
{
	struct recipe_work *w = arg;
	bool ok;

	keep_dims(w);
	w->r->c.file = str_copy(w->r->c.a, w->key);
	ok = w->file ? framework_read(&w->r->c, &w->r->r, w->file, w->value, w->r->c.file) : recipe_read_json(&w->r->c, &w->r->r, w->value);
	w->r->c.file = S("");
	return ok;
}

mc_status
mc_recipe_set(mc_recipe *r, const char *key, const char *value)
{
	struct recipe_work w = {.r = r, .key = str_of(key), .value = str_of(value)};

	return change(&w, set_text);
}

mc_status
mc_recipe_set_dim(mc_recipe *r, const char *name, int64_t value)
{
	struct recipe_work w = {.r = r, .key = str_of(name), .n = value};

	return change(&w, set_dim);
}

static struct str
slice(const char *text, size_t n)
{
	return (struct str){text, (uint32_t)(n < UINT32_MAX / 2 ? n : UINT32_MAX / 2)};
}

mc_status
mc_recipe_json(mc_recipe *r, const char *text, size_t n, const char *name)
{
	struct recipe_work w = {.r = r, .key = str_of(name ? name : "recipe"), .value = slice(text, n)};

	return change(&w, read_json);
}

static bool
refuse_kind(void *arg)
{
	struct recipe_work *w = arg;
	struct str all = S("");

	for (unsigned i = FILE_NONE + 1; i < FILE_COUNT; i++)
		all = str_list(w->r->c.a, all, "%s", framework_name(i));
	return diag(&w->r->c, DIAG_BAD_VALUE, "kind of file", SFMT(str_of(w->kind)), str_copy(w->r->c.a, all).p);
}

int
mc_recipe_has_file(const char *kind)
{
	return framework_by_name(str_of(kind)) != FILE_NONE;
}

mc_status
mc_recipe_file(mc_recipe *r, const char *kind, const char *text, size_t n, const char *name)
{
	struct recipe_work w = {.r = r, .key = str_of(name ? name : kind), .value = slice(text, n), .file = framework_by_name(str_of(kind))};

	w.kind = kind ? kind : "";
	return change(&w, w.file ? read_json : refuse_kind);
}
