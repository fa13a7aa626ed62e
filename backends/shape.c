/* Numbers and text as people and spreadsheets read them. */
#include "backend.h"

#include <stdio.h>

void
print_dims(const struct geom *g, const char *between, struct buf *b)
{
	for (unsigned i = 0; i < g->rank; i++)
		buf_fmt(b, "%s%lld", i ? between : "", (long long)g->dim[i]);
}

const char *
human_bytes(uint64_t n, char out[32])
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double v = (double)n;
	unsigned u = 0;

	while (v >= 1024 && u < 5) {
		v /= 1024;
		u++;
	}
	snprintf(out, 32, u ? "%.2f %s" : "%.0f %s", v, unit[u]);
	return out;
}

const char *
exact_bytes(uint64_t n, char out[32])
{
	char *p = out + 31;

	*p = 0;
	for (unsigned digit = 0; n || digit == 0; digit++) {
		if (digit && digit % 3 == 0)
			*--p = ',';
		*--p = (char)('0' + n % 10);
		n /= 10;
	}
	return p;
}

/* The graph that says the value's shape: the file's, or where the file does not say it and all sizes are bound, the one that was inferred. */
const struct graph *
shape_source(const struct report *r, uint32_t v)
{
	bool inferred = r->loaded->vals[v].rank == RANK_UNKNOWN && !r->nunbound && v < r->g->nval && r->g->vals[v].rank != RANK_UNKNOWN;

	return inferred ? r->g : r->loaded;
}

/* A dim's number, if it has one or it was bound. */
bool
dim_number(const struct report *r, struct sint d, int64_t *n)
{
	if (d.expr)
		return !expr_is_open(r->g, d.expr) && expr_eval(r->g, d.expr, n);
	*n = d.n;
	return true;
}

unsigned
percent(uint64_t part, uint64_t whole)
{
	return whole ? (unsigned)((double)part / (double)whole * 100 + 0.5) : 0;
}

/* What most of it is. */
const char *
dominant(const struct factors *f, uint64_t *bytes)
{
	static const char *const name[] = {"parameters", "gradients", "optimizer state", "activations"};
	uint64_t n[] = {f->of[FAC_PARAM], f->of[FAC_GRAD], f->of[FAC_OPT], factors_act(f)};
	unsigned best = 0;

	for (unsigned i = 1; i < 4; i++)
		if (n[i] > n[best])
			best = i;
	*bytes = n[best];
	return name[best];
}

/* The operator at the peak, and whose it is. */
struct str
peak_place(const struct report *r, struct arena *a)
{
	struct str module = scope_path(r->g, r->g->nodes[r->peak_node].scope), node = graph_str(r->g, r->g->nodes[r->peak_node].name);

	if (!module.n && !node.n)
		return r->peak_op;
	return str_fmt(a, "%.*s of %.*s%s%.*s", SFMT(r->peak_op), SFMT(module), module.n && node.n ? ", node " : "", SFMT(node));
}

/* A cell that a spreadsheet would take for a formula is text. */
void
csv_cell(struct buf *b, struct str s)
{
	bool quote = false, formula = s.n && (s.p[0] == '=' || s.p[0] == '+' || s.p[0] == '-' || s.p[0] == '@');

	for (uint32_t i = 0; i < s.n; i++)
		quote |= s.p[i] == ',' || s.p[i] == '"' || s.p[i] == '\n' || s.p[i] == '\r';
	buf_str(b, quote ? S("\"") : S(""));
	buf_str(b, formula && s.n > 1 ? S("'") : S(""));
	for (uint32_t i = 0; i < s.n; i++)
		buf_put(b, s.p[i] == '"' ? "\"\"" : s.p + i, s.p[i] == '"' ? 2 : 1);
	buf_str(b, quote ? S("\"") : S(""));
}

#define LONGEST 400

/* Text of a file in Markdown: no markup, no line end, not without limit. */
void
md_text(struct buf *b, struct str s)
{
	for (uint32_t i = 0; i < s.n && i < LONGEST; i++) {
		unsigned char ch = (unsigned char)s.p[i];

		if (ch == '|' || ch == '*' || ch == '_' || ch == '`' || ch == '[' || ch == ']' || ch == '\\' || ch == '#' || ch == '~' || ch == '@')
			buf_fmt(b, "\\%c", ch);
		else if (ch == '<' || ch == '>' || ch == '&')
			buf_str(b, ch == '<' ? S("&lt;") : ch == '>' ? S("&gt;") : S("&amp;"));
		else
			buf_put(b, ch < 32 ? " " : s.p + i, 1);
	}
	if (s.n > LONGEST)
		buf_str(b, S(" .."));
}
