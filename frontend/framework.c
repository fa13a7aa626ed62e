/*
 * Files of training frameworks: DeepSpeed's ds_config.json, PEFT's adapter_config.json, Hugging Face's TrainingArguments, Accelerate's config.yaml.
 * framework.def says what their settings mean for the recipe. A recipe keeps the files that it was given; each further one applies all of them anew,
 * so that "auto" and contradictions do not depend on the order. What the user sets himself counts more than any file.
 */
#include "frontend.h"

#include <string.h>

enum how { COPY, MAP, REFINE, REFUSE, IGNORE, ELSEWHERE };

static const struct from {
	uint8_t file, how;
	const char *path, *key, *values, *match;
} table[] = {
#define FROM(file, path, key, how, values, match) {FILE_##file, how, path, key, values, match},
#include "framework.def"
#undef FROM
};

static const char *const names[FILE_COUNT] = {[FILE_DEEPSPEED] = "deepspeed", [FILE_PEFT] = "peft", [FILE_TRAINING] = "training-args", [FILE_ACCELERATE] = "accelerate"};

struct applying {
	struct ctx *c;
	struct recipe *r;
	unsigned file;
	struct str used, ignored, where;
};

unsigned
framework_by_name(struct str name)
{
	for (unsigned i = FILE_NONE + 1; i < FILE_COUNT; i++)
		if (str_eq(name, str_of(names[i])))
			return i;
	return FILE_NONE;
}

const char *
framework_name(unsigned file)
{
	return names[file];
}

/* "a.b" in a tree */
static const json_t *
at(const json_t *j, const char *path)
{
	struct str rest = str_of(path), head;

	while (j && str_cut(&rest, '.', &head))
		j = json_member(j, head);
	return j;
}

static bool
is_off(const json_t *j)
{
	struct str s = json_str(j);

	if (!j || json_is_null(j) || json_is_false(j) || ((json_is_array(j) || json_is_object(j)) && !j->n))
		return true;
	return (json_is_integer(j) && json_integer_value(j) <= 1) || (json_is_string(j) && (!s.n || str_eq(s, S("none")) || str_eq(s, S("None"))));
}

/* 1, which is off for a number of ranks or pieces, is not for a factor. */
static bool
is_nothing(const json_t *j)
{
	return json_is_integer(j) || json_is_real(j) ? json_number_value(j) == 0 : is_off(j);
}

static bool
is_auto(const json_t *j)
{
	return str_eq(json_str(j), S("auto"));
}

/* ---- one setting ------------------------------------------------------------------------------------------------------------ */

static bool
conflict(struct applying *p, const struct from *row, struct str text, struct str origin, struct str other)
{
	return diag(p->c, DIAG_RECIPE_CONFLICT, str_fmt(p->c->a, "%.*s: %s = %.*s contradicts %.*s: %.*s", SFMT(p->where), row->path, SFMT(text), SFMT(origin), SFMT(other)).p);
}

/* Hugging Face's own comparison of the two files. */
static bool
agrees(struct applying *p, const struct from *row, const json_t *value)
{
	const json_t *theirs = row->file == FILE_DEEPSPEED && *row->match ? at(p->r->files[FILE_TRAINING], row->match) : NULL;
	struct str a = json_text_of(p->c, value), b = theirs ? json_text_of(p->c, theirs) : S("");

	if (!theirs || is_auto(value) || str_eq(a, b) || (is_off(value) && is_off(theirs) && !json_is_integer(value)))
		return true;
	if ((json_is_real(value) || json_is_integer(value)) && json_number_value(value) == json_number_value(theirs))
		return true;
	return conflict(p, row, a, str_fmt(p->c->a, "%s of the training arguments", row->match), b);
}

/* Of theirs=ours|.. what a file may say, for people. */
static struct str
may_say(struct arena *a, const char *values)
{
	struct str rest = str_of(values), entry, out = S("");

	while (str_cut(&rest, '|', &entry)) {
		uint32_t eq = (uint32_t)str_find(entry, '=');

		if (eq && !str_eq(str_sub(entry, 0, eq), S("*")) && !str_eq(str_sub(entry, eq + 1, entry.n), S("!")))
			out = str_fmt(a, "%.*s%s%.*s", SFMT(out), out.n ? ", " : "", SFMT(str_sub(entry, 0, eq)));
	}
	return out;
}

/* theirs=ours|..; false: not allowed, reported. *out is empty: nothing is set */
static bool
translate(struct applying *p, const struct from *row, struct str text, struct str *out)
{
	struct str rest = str_of(row->values), entry;

	while (str_cut(&rest, '|', &entry)) {
		int64_t eq = str_find(entry, '=');
		struct str theirs = str_sub(entry, 0, (uint32_t)eq);

		if (!str_eq(theirs, text) && !str_eq(theirs, S("*")))
			continue;
		*out = str_sub(entry, (uint32_t)eq + 1, entry.n);
		if (str_eq(*out, S("!")))
			return diag(p->c, DIAG_NOT_MODELLED, row->path, SFMT(text));
		return true;
	}
	return diag(p->c, DIAG_BAD_VALUE, row->path, SFMT(text), may_say(p->c->a, row->values).p);
}

static bool
set_batch(struct applying *p, const struct from *row, struct str text)
{
	int64_t n;

	if (!str_int(text, &n))
		return diag(p->c, DIAG_BAD_VALUE, row->path, SFMT(text), "a whole number");
	for (uint32_t i = 0; i < p->r->ndim; i++)
		if (str_eq(p->r->dims[i].name, S("batch"))) {
			if (p->r->dims[i].by_file && p->r->dims[i].value != n)
				return conflict(p, row, text, S("another file"), str_fmt(p->c->a, "%lld", (long long)p->r->dims[i].value));
			p->used = str_list(p->c->a, p->used, "%s (the recipe's dims.batch counts)", row->path);
			return true;
		}
	if (!recipe_set_dim(p->c, p->r, S("batch"), n))
		return false;
	p->r->dims[p->r->ndim - 1].by_file = true;
	p->used = str_list(p->c->a, p->used, "dims.batch = %.*s", SFMT(text));
	return true;
}

/* A file for DeepSpeed says how it casts the model; autocast of the training arguments then does not run. */
static bool
gives_way(const struct from *row, const struct recipe_value *v)
{
	return row->file == FILE_DEEPSPEED && strcmp(row->key, "precision") == 0 && str_ends(v->text, S("-mixed"));
}

static bool
set_key(struct applying *p, const struct from *row, const json_t *value, struct str text)
{
	unsigned key = key_by_name(str_of(row->key));
	struct recipe_value *v = &p->r->v[key], old = *v;
	bool list = key && key_info(key)->type == RT_LIST;

	if (!key) {
		p->ignored = str_list(p->c->a, p->ignored, "%s", row->path);
		return true;
	}
	if (old.set && !old.origin.n) {
		p->used = str_list(p->c->a, p->used, "%s (the recipe's %s counts)", row->path, row->key);
		return true;
	}
	if (list ? !recipe_set_list(p->c, p->r, key, value) : !recipe_set_text(p->c, p->r, key, text))
		return false;
	if (old.set && !list && !str_eq(old.text, v->text) && row->how != REFINE && !gives_way(row, &old))
		return conflict(p, row, text, old.origin, old.text);
	v->origin = str_fmt(p->c->a, "%.*s", SFMT(p->where));
	p->used = str_list(p->c->a, p->used, "%s = %.*s", row->key, SFMT(text));
	return true;
}

/* The words of a list one after the other: ["full_shard", "auto_wrap"]. */
static struct str
words(struct applying *p, const json_t *value)
{
	struct str text = S("");

	if (!json_is_array(value))
		return json_text_of(p->c, value);
	for (size_t i = 0; i < json_array_size(value); i++)
		text = str_fmt(p->c->a, "%.*s%s%.*s", SFMT(text), i ? " " : "", SFMT(json_text_of(p->c, json_array_get(value, i))));
	return text;
}

/* Files are read in any order: what another one says may follow. */
static bool
note_elsewhere(struct applying *p, const struct from *row, const json_t *value)
{
	if (!is_off(value) && !p->r->files[framework_by_name(str_of(row->key))])
		p->ignored = str_list(p->c->a, p->ignored, "%s (another file, which --%s gives)", row->path, row->key);
	return true;
}

static bool
set(struct applying *p, const struct from *row, const json_t *value)
{
	struct str text = row->how == MAP ? words(p, value) : json_text_of(p->c, value);

	if (row->how == ELSEWHERE)
		return note_elsewhere(p, row, value);
	if (row->how == IGNORE) {
		if (!is_nothing(value))
			p->ignored = str_list(p->c->a, p->ignored, "%s (%s)", row->path, row->values);
		return true;
	}
	if (!agrees(p, row, value))
		return false;
	if (is_auto(value)) {
		const json_t *theirs = *row->match ? at(p->r->files[FILE_TRAINING], row->match) : NULL;

		if (!theirs) {
			p->ignored = str_list(p->c->a, p->ignored, "%s (auto, which %s says)", row->path, *row->match ? "--training-args" : "the model's config");
			return true;
		}
		text = json_text_of(p->c, theirs);
	} else if (json_is_null(value)) {
		return true;
	}
	if ((row->how == MAP || row->how == REFINE) && !translate(p, row, text, &text))
		return false;
	if (row->how == REFUSE)
		return is_off(value) || is_nothing(value) || diag(p->c, DIAG_NOT_MODELLED, row->path, SFMT(text));
	if (!text.n || !*row->key)
		return true;
	return strcmp(row->key, "batch") == 0 ? set_batch(p, row, text) : set_key(p, row, value, text);
}

/* ---- a file ------------------------------------------------------------------------------------------------------------------- */

static bool
has_row(unsigned file, struct str path)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].file == file && str_eq(path, str_of(table[i].path)))
			return true;
	return false;
}

/* Names that no row has, an object's one by one if a row has any of them. */
static void
list_ignored(struct applying *p, const json_t *j, struct str prefix, unsigned depth)
{
	for (uint32_t i = 0; json_is_object(j) && i < j->n; i++) {
		const struct json_member *m = &j->u.member[i];
		struct str path = str_fmt(p->c->a, "%.*s%s%.*s", SFMT(prefix), prefix.n ? "." : "", SFMT(m->key));

		if (has_row(p->file, path) || json_is_null(&m->value))
			continue;
		if (json_is_object(&m->value) && m->value.n && depth < 4)
			list_ignored(p, &m->value, path, depth + 1);
		else
			p->ignored = str_list(p->c->a, p->ignored, "%.*s", SFMT(path));
	}
}

/* DeepSpeed's own check, of as much as the file says: the cards are as many as are left. */
static bool
check_total(struct applying *p)
{
	const json_t *j = p->r->files[p->file];
	int64_t total = json_get_int(j, "train_batch_size", 0), one = json_get_int(j, "train_micro_batch_size_per_gpu", 1), turns = json_get_int(j, "gradient_accumulation_steps", 1);

	if (p->file != FILE_DEEPSPEED || total <= 0 || (one > 0 && turns > 0 && total % one == 0 && total / one % turns == 0))
		return true;
	return diag(p->c, DIAG_RECIPE_CONFLICT, str_fmt(p->c->a, "%.*s: train_batch_size = %lld is no multiple of train_micro_batch_size_per_gpu = %lld times gradient_accumulation_steps = %lld", SFMT(p->where),
	    (long long)total, (long long)one, (long long)turns).p);
}

/* DeepSpeed makes up how many micro-batches there are when it knows how many ranks: when nobody changes the recipe any more. */
bool
framework_accumulation(struct ctx *c, struct recipe *r, struct str *how)
{
	const json_t *j = r->files[FILE_DEEPSPEED], *turns = json_object_get(j, "gradient_accumulation_steps"), *micro = json_object_get(j, "train_micro_batch_size_per_gpu");
	int64_t total = json_get_int(j, "train_batch_size", 0), ranks = r->v[RK_PARALLEL_DP].i, one = 0;

	for (uint32_t i = 0; i < r->ndim; i++)
		if (str_eq(r->dims[i].name, S("batch")))
			one = r->dims[i].value;
	if (total <= 0 || one <= 0 || r->v[RK_GRAD_ACCUM].set || (turns && !json_is_null(turns)) || !micro || json_is_null(micro))
		return true;
	if (total % one || total / one % ranks)
		return diag(c, DIAG_RECIPE_CONFLICT, str_fmt(c->a, "%.*s: train_batch_size = %lld is no multiple of a micro-batch of %lld on each of %lld ranks (parallel.dp)",
		    SFMT(r->file_names[FILE_DEEPSPEED]), (long long)total, (long long)one, (long long)ranks).p);
	*how = str_fmt(c->a, "%lld", (long long)(total / one / ranks));
	if (!recipe_set_text(c, r, RK_GRAD_ACCUM, *how))
		return false;
	*how = str_fmt(c->a, "%.*s: grad_accum = %.*s, which is train_batch_size = %lld over micro-batches of %lld on each of %lld ranks (parallel.dp)", SFMT(r->file_names[FILE_DEEPSPEED]), SFMT(*how),
	    (long long)total, (long long)one, (long long)ranks);
	return true;
}

/* As deep as rows go. */
static bool
said_once(struct ctx *c, const json_t *j, unsigned depth)
{
	bool ok = !json_is_object(j) || names_are_unique(c, j);

	for (uint32_t i = 0; ok && json_is_object(j) && depth < 4 && i < j->n; i++)
		ok = said_once(c, &j->u.member[i].value, depth + 1);
	return ok;
}

static void
note(struct applying *p)
{
	struct recipe *r = p->r;
	struct str text = str_fmt(p->c->a, "%.*s set %.*s; it also has %.*s, which no recipe key stands for", SFMT(p->where), SFMT(p->used.n ? p->used : S("nothing")),
	    SFMT(p->ignored.n ? p->ignored : S("nothing")));

	r->notes[r->nnote++] = text;
}

static bool
apply(struct ctx *c, struct recipe *r, unsigned file)
{
	struct applying p = {.c = c, .r = r, .file = file, .where = r->file_names[file]};

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		const json_t *value = table[i].file == file ? at(r->files[file], table[i].path) : NULL;

		if (!value || (file != FILE_DEEPSPEED && *table[i].match && is_off(at(r->files[file], table[i].match)) && !json_is_true(at(r->files[file], table[i].match))))
			continue;
		if (!set(&p, &table[i], value))
			return false;
	}
	if (!check_total(&p))
		return false;
	list_ignored(&p, r->files[file], S(""), 0);
	note(&p);
	return true;
}

/* What files have set goes back to its default. */
static void
forget(struct recipe *r)
{
	struct recipe dflt;
	uint32_t n = 0;

	recipe_init(&dflt);
	for (unsigned k = 1; k < RK_COUNT; k++)
		if (r->v[k].origin.n)
			r->v[k] = dflt.v[k];
	for (uint32_t i = 0; i < r->ndim; i++)
		if (!r->dims[i].by_file)
			r->dims[n++] = r->dims[i];
	r->ndim = n;
	r->nnote = 0;
}

/* Training arguments that were given DeepSpeed's settings as an object hold its whole file, which counts unless one is given by itself. */
static bool
read_inner(struct ctx *c, struct recipe *r, unsigned file, const json_t *before)
{
	const json_t *j = at(r->files[FILE_TRAINING], "deepspeed");

	if (r->files[FILE_DEEPSPEED] == before)
		r->files[FILE_DEEPSPEED] = NULL;
	if (file != FILE_TRAINING || r->files[FILE_DEEPSPEED] || !json_is_object(j) || !j->n)
		return true;
	r->files[FILE_DEEPSPEED] = j;
	r->file_names[FILE_DEEPSPEED] = str_fmt(c->a, "%.*s, deepspeed", SFMT(r->file_names[FILE_TRAINING]));
	return said_once(c, j, 0);
}

bool
framework_read(struct ctx *c, struct recipe *r, unsigned file, struct str text, struct str name)
{
	struct str start = str_trim(text);
	const json_t *before;
	json_t *j = file == FILE_ACCELERATE && !str_starts(start, S("{")) ? yaml_read(c, text) : json_read(c, text);

	if (!j)
		return false;
	if (!json_is_object(j))
		return diag(c, DIAG_JSON_FIELD, SFMT(name), "an object");
	if (!said_once(c, j, 0))
		return false;
	before = file == FILE_TRAINING ? at(r->files[file], "deepspeed") : NULL;
	r->files[file] = j;
	r->file_names[file] = str_copy(c->a, name);
	if (!read_inner(c, r, file, before))
		return false;
	forget(r);
	for (unsigned i = FILE_NONE + 1; i < FILE_COUNT; i++)
		if (r->files[i] && !apply(c, r, i))
			return false;
	return true;
}
