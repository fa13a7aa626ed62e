/* What `advise` found: for people, and as JSON (schema memcrest/advice). The changes, best first, each with the peak that it gives. */
#include "backend.h"
#include "json_part.h"

#include "../ir/api.h"

static const char *const costs[] = {[COST_FREE] = "nothing", [COST_SLOWER] = "time or cards", [COST_OTHER] = "another training"};

static const char *
word(const struct verdict *v)
{
	static const char *const words[] = {[MC_NOT_ASKED] = "", [MC_FITS] = "fits", [MC_MAY_FIT] = "may fit", [MC_DOES_NOT_FIT] = "no"};

	return words[verdict_fit(v)];
}

static void
text_row(const struct sweep_row *r, struct buf *b)
{
	char h[32];

	buf_fmt(b, "%s%12s", r->lower_bound ? ">" : " ", human_bytes(r->tensors, h));
	buf_fmt(b, "%13s", human_bytes(r->reserved, h));
	buf_fmt(b, "%13s", human_bytes(r->process_low, h));
	buf_fmt(b, " ..%11s  %-8s  ", human_bytes(r->process_high, h), word(&r->verdict));
}

bool
advice_text(const struct sweep_table *s, struct buf *b)
{
	char h[32];

	buf_fmt(b, "%13s%13s%13s%14s  %-8s  change, and what it costs; asked is %s\n", "tensors", "reserved", "process", "", "verdict", human_bytes(s->now.verdict.budget, h));
	text_row(&s->now, b);
	buf_fmt(b, "the job as it is\n");
	for (uint32_t i = 0; i < s->nrow; i++) {
		text_row(&s->rows[i], b);
		buf_fmt(b, "%.*s  (%s: %.*s)\n", SFMT(s->advice[i].change), costs[s->advice[i].cost], SFMT(s->advice[i].help));
	}
	if (!s->nrow)
		buf_fmt(b, "No change that is known lowers the peak.\n");
	return !b->failed;
}

/* ---- json ------------------------------------------------------------------------------------------------------------- */

static void
put(json_t *o, const char *key, json_t *v)
{
	json_object_set_new(o, key, v);
}

static void
numbers(json_t *o, const struct sweep_row *r)
{
	put(o, "tensors", json_bytes(r->tensors));
	put(o, "allocated", json_bytes(r->allocated));
	put(o, "reserved", json_bytes(r->reserved));
	put(o, "process", json_range(r->process_low, r->process_high));
	put(o, "step", json_integer(r->step));
	put(o, "phase", json_string(phase_name(r->phase)));
	put(o, "factors", json_factors(&r->at));
	put(o, "lower_bound", json_boolean(r->lower_bound));
	put(o, "verdict", json_verdict(&r->verdict));
}

/* The change as a recipe that can be read back. */
static json_t *
recipe(struct str change)
{
	json_t *o = json_object();
	struct str flag, value, name;

	while (change.n && str_cut(&change, ' ', &flag) && str_cut(&change, ' ', &value)) {
		json_t *dims = json_object(), *list = json_array();
		unsigned key = key_by_name(str_sub(flag, 2, flag.n));
		struct str rest = value, item;
		int64_t n = 0;

		if (!key) {
			str_cut(&rest, '=', &name);
			str_int(rest, &n);
			json_object_setn_new(dims, name.p, name.n, json_integer(n));
			put(o, "dims", json_incref(dims));
		} else if (key_info(key)->type == RT_LIST) {
			while (rest.n && str_cut(&rest, ',', &item))
				json_array_append_new(list, json_text(item));
			put(o, key_info(key)->name, key == RK_LORA_TARGETS ? json_text(value) : json_incref(list));
		} else {
			put(o, key_info(key)->name, json_text(value));
		}
		json_decref(dims);
		json_decref(list);
	}
	return o;
}

bool
advice_json(const struct sweep_table *s, struct buf *b)
{
	json_t *o = json_object(), *tool = json_object(), *now = json_object(), *rows = json_array();
	bool ok;

	put(o, "schema", json_string("memcrest/advice"));
	put(o, "schema_version", json_integer(1));
	put(tool, "name", json_string("memcrest"));
	put(tool, "version", json_string(MC_VERSION));
	put(o, "tool", tool);
	put(o, "file", json_text(s->file));
	put(o, "recipe", json_recipe(s->base));
	numbers(now, &s->now);
	put(o, "now", now);
	for (uint32_t i = 0; i < s->nrow; i++) {
		json_t *x = json_object();

		put(x, "change", json_text(s->advice[i].change));
		put(x, "recipe", recipe(s->advice[i].change));
		put(x, "costs", json_string(costs[s->advice[i].cost]));
		put(x, "help", json_text(s->advice[i].help));
		numbers(x, &s->rows[i]);
		json_array_append_new(rows, x);
	}
	put(o, "changes", rows);
	ok = json_print(o, b);
	json_decref(o);
	return ok;
}
