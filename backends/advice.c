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
numbers(json_t **o, const struct sweep_row *r)
{
	json_put(o, "tensors", json_bytes(r->tensors));
	json_put(o, "allocated", json_bytes(r->allocated));
	json_put(o, "reserved", json_bytes(r->reserved));
	json_put(o, "process", json_range(r->process_low, r->process_high));
	json_put(o, "step", json_integer(r->step));
	json_put(o, "phase", json_string(phase_name(r->phase)));
	json_put(o, "factors", json_factors(&r->at));
	json_put(o, "lower_bound", json_boolean(r->lower_bound));
	json_put(o, "verdict", json_verdict(&r->verdict));
}

/* The change as a recipe that can be read back. */
static json_t *
recipe(struct str change)
{
	json_t *o = json_object();
	struct str flag, value, name;

	while (change.n && str_cut(&change, ' ', &flag) && str_cut(&change, ' ', &value)) {
		unsigned key = key_by_name(str_sub(flag, 2, flag.n));
		struct str rest = value, item;
		json_t *part;
		int64_t n = 0;

		if (!key) {
			part = json_object();
			str_cut(&rest, '=', &name);
			str_int(rest, &n);
			json_put_named(&part, name, json_integer(n));
		} else if (key_info(key)->type == RT_LIST && key != RK_LORA_TARGETS) {
			part = json_array();
			while (rest.n && str_cut(&rest, ',', &item))
				json_add(&part, json_text(item));
		} else {
			part = json_text(value);
		}
		json_put(&o, key ? key_info(key)->name : "dims", part);
	}
	return o;
}

bool
advice_json(const struct sweep_table *s, struct buf *b)
{
	json_t *o = json_table("memcrest/advice", s), *now = json_object(), *rows = json_array();

	numbers(&now, &s->now);
	json_put(&o, "now", now);
	for (uint32_t i = 0; i < s->nrow; i++) {
		json_t *x = json_object();

		json_put(&x, "change", json_text(s->advice[i].change));
		json_put(&x, "recipe", recipe(s->advice[i].change));
		json_put(&x, "costs", json_string(costs[s->advice[i].cost]));
		json_put(&x, "help", json_text(s->advice[i].help));
		numbers(&x, &s->rows[i]);
		json_add(&rows, x);
	}
	json_put(&o, "changes", rows);
	return json_print(o, b);
}
