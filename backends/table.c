/* The table of a sweep: for people, as comma-separated values, and as JSON (schema memcrest/sweep). One row a configuration. */
#include "backend.h"
#include "json_part.h"

#include "../ir/api.h"

#include <stdlib.h>
#include <string.h>

/* ---- what both kinds of reader get ---------------------------------------------------------------------------- */

static const char *
fit_word(const struct verdict *v)
{
	static const char *const word[] = {[MC_NOT_ASKED] = "", [MC_FITS] = "fits", [MC_MAY_FIT] = "may fit", [MC_DOES_NOT_FIT] = "no"};

	return word[verdict_fit(v)];
}

static bool
any_verdict(const struct sweep_table *s)
{
	for (uint32_t i = 0; i < s->nrow; i++)
		if (s->rows[i].verdict.asked)
			return true;
	return false;
}

/* What the row's column says; the fitted one: the number found. */
static struct str
cell(const struct sweep_table *s, uint32_t row, uint32_t axis, char buf[32])
{
	struct buf b = {.p = buf, .cap = 31};

	if (!s->axes[axis].fitted)
		return s->axes[axis].text[sweep_value(s, row, axis)];
	if (!s->rows[row].found)
		return s->rows[row].ok ? S("none") : S("-");
	buf_fmt(&b, "%lld", (long long)s->rows[row].found);
	return (struct str){buf, (uint32_t)b.n};
}

#define WIDEST 40

/* ---- text ------------------------------------------------------------------------------------------------------ */

static int
width(const struct sweep_table *s, uint32_t axis)
{
	uint32_t n = s->axes[axis].name.n > 6 ? s->axes[axis].name.n : 6;
	char buf[32];

	for (uint32_t i = 0; i < s->nrow; i++) {
		struct str c = cell(s, i, axis, buf);

		n = c.n > n ? c.n : n;
	}
	return n < WIDEST ? (int)n : WIDEST;
}

static void
text_cell(struct str s, int w, struct buf *b)
{
	buf_fmt(b, "%*.*s  ", w, (int)s.n < w ? (int)s.n : w, s.p);
}

static void
text_row(const struct sweep_table *s, uint32_t i, const int *w, bool verdicts, struct buf *b)
{
	const struct sweep_row *r = &s->rows[i];
	char h[32];

	for (uint32_t a = 0; a < s->naxis; a++)
		text_cell(cell(s, i, a, h), w[a], b);
	if (!r->ok) {
		buf_fmt(b, "  %s\n", r->error);
		return;
	}
	buf_fmt(b, "%s%12s", r->lower_bound ? ">" : " ", human_bytes(r->tensors, h));
	buf_fmt(b, "%13s", human_bytes(r->reserved, h));
	buf_fmt(b, "%13s", human_bytes(r->process_low, h));
	buf_fmt(b, " ..%11s", human_bytes(r->process_high, h));
	buf_fmt(b, "  %u, ", r->step);
	buf_fmt(b, verdicts ? "%-9s  %s\n" : "%s\n", phase_name(r->phase), fit_word(&r->verdict));
}

static bool
write_text(const struct sweep_table *s, struct buf *b)
{
	bool verdicts = any_verdict(s);
	int *w;

	if (s->advice)
		return advice_text(s, b);
	w = calloc(s->naxis + 1u, sizeof *w);

	if (!w)
		return false;
	for (uint32_t a = 0; a < s->naxis; a++) {
		w[a] = width(s, a);
		text_cell(s->axes[a].name, w[a], b);
	}
	buf_fmt(b, "%13s%13s%13s%14s  %s\n", "tensors", "reserved", "process", "", verdicts ? "peak in       verdict" : "peak in");
	for (uint32_t i = 0; i < s->nrow; i++)
		text_row(s, i, w, verdicts, b);
	free(w);
	return !b->failed;
}

/* ---- csv ---------------------------------------------------------------------------------------------------------- */

static bool
write_csv(const struct sweep_table *s, struct buf *b)
{
	char h[32];

	for (uint32_t a = 0; a < s->naxis; a++) {
		csv_cell(b, s->axes[a].name);
		buf_str(b, S(","));
	}
	buf_str(b, S("tensors,allocated,reserved,process_low,process_high,param,grad,opt,act,step,phase,lower_bound,verdict,margin,error\n"));
	for (uint32_t i = 0; i < s->nrow; i++) {
		const struct sweep_row *r = &s->rows[i];

		for (uint32_t a = 0; a < s->naxis; a++) {
			csv_cell(b, cell(s, i, a, h));
			buf_str(b, S(","));
		}
		if (r->ok) {
			buf_fmt(b, "%llu,%llu,%llu,%llu,%llu,", (unsigned long long)r->tensors, (unsigned long long)r->allocated, (unsigned long long)r->reserved,
			    (unsigned long long)r->process_low, (unsigned long long)r->process_high);
			buf_fmt(b, "%llu,%llu,%llu,%llu,%u,%s,%s,%s,", (unsigned long long)r->at.of[FAC_PARAM], (unsigned long long)r->at.of[FAC_GRAD],
			    (unsigned long long)r->at.of[FAC_OPT], (unsigned long long)factors_act(&r->at), r->step, phase_name(r->phase),
			    r->lower_bound ? "true" : "false", fit_word(&r->verdict));
			if (r->verdict.asked)
				buf_fmt(b, "%lld", (long long)r->verdict.margin);
			buf_str(b, S(","));
		} else {
			buf_str(b, S(",,,,,,,,,,,,,,"));
			csv_cell(b, str_of(r->error));
		}
		buf_str(b, S("\n"));
	}
	return !b->failed;
}

/* ---- json --------------------------------------------------------------------------------------------------------- */

static json_t *
json_value(const struct sweep_table *s, uint32_t row, uint32_t axis)
{
	const struct sweep_axis *x = &s->axes[axis];
	struct str t;

	if (x->fitted)
		return s->rows[row].found ? json_integer(s->rows[row].found) : json_null();
	if (x->number)
		return json_integer(x->number[sweep_value(s, row, axis)]);
	t = x->text[sweep_value(s, row, axis)];
	return json_text(t);
}

static json_t *
json_row(const struct sweep_table *s, uint32_t i)
{
	const struct sweep_row *r = &s->rows[i];
	json_t *o = json_object(), *at = json_object();

	for (uint32_t a = 0; a < s->naxis; a++)
		json_put(&at, s->axes[a].name.p, json_value(s, i, a));
	json_put(&o, "at", at);
	if (!r->ok) {
		json_put(&o, "error", json_string(r->error));
		return o;
	}
	json_put(&o, "tensors", json_bytes(r->tensors));
	json_put(&o, "allocated", json_bytes(r->allocated));
	json_put(&o, "reserved", json_bytes(r->reserved));
	json_put(&o, "process", json_range(r->process_low, r->process_high));
	json_put(&o, "step", json_integer(r->step));
	json_put(&o, "phase", json_string(phase_name(r->phase)));
	json_put(&o, "factors", json_factors(&r->at));
	json_put(&o, "lower_bound", json_boolean(r->lower_bound));
	json_put(&o, "verdict", json_verdict(&r->verdict));
	return o;
}

static bool
write_sweep_json(const struct sweep_table *s, struct buf *b)
{
	json_t *o = json_table("memcrest/sweep", s), *axes = json_array(), *rows = json_array();

	for (uint32_t a = 0; a < s->naxis; a++) {
		json_t *x = json_object();

		json_put(&x, "name", json_text(s->axes[a].name));
		json_put(&x, "fitted", json_boolean(s->axes[a].fitted));
		json_add(&axes, x);
	}
	json_put(&o, "axes", axes);
	for (uint32_t i = 0; i < s->nrow; i++)
		json_add(&rows, json_row(s, i));
	json_put(&o, "rows", rows);
	return json_print(o, b);
}

static bool
write_json(const struct sweep_table *s, struct buf *b)
{
	return s->advice ? advice_json(s, b) : write_sweep_json(s, b);
}

/* ---- the formats ---------------------------------------------------------------------------------------------------- */

const struct table_backend table_backends[] = {
	{"text", "a sweep's or advise's table, for people", write_text},
	{"csv", "a sweep's or advise's table, comma-separated", write_csv},
	{"json", "a sweep's table (schema memcrest/sweep), or advise's (memcrest/advice)", write_json},
	{NULL, NULL, NULL},
};
