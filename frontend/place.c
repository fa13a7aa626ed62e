/* Where a node stands, in the spellings that several formats share: second calls of a module, and Python's stack traces. */
#include "frontend.h"

#include <string.h>

/* A second call of a module is "path@1". */
struct str
place_split_call(struct str path, uint32_t *call)
{
	int64_t at = str_find(path, '@'), n = 0;

	*call = 0;
	if (at < 0 || !str_int(str_sub(path, (uint32_t)at + 1, path.n), &n))
		return path;
	*call = (uint32_t)n;
	return str_sub(path, 0, (uint32_t)at);
}

/*
 * Lines `File "f", line 12, in forward`, each followed by its source text, outermost first. What an exporter ran of a region of its own graph, under no_grad
 * say, stands in no file: `File "<eval_with_key>.3", line 7, in forward`.
 */
static bool
next_frame(struct str *rest, struct str *line_no, struct str *func, struct str *text)
{
	struct str line;

	while (str_cut(rest, '\n', &line)) {
		struct str s = str_trim(line);
		const char *at = s.n > 12 && str_starts(s, S("File \"")) ? memmem(s.p, s.n, "\", line ", 8) : NULL;
		int64_t comma;

		if (!at)
			continue;
		*line_no = str_sub(s, (uint32_t)(at - s.p) + 8, s.n);
		comma = str_find(*line_no, ',');
		if (comma < 0 || !str_cut(rest, '\n', text) || str_starts(s, S("File \"<eval_with_key>")))
			continue;
		*func = str_sub(*line_no, (uint32_t)comma + 1, line_no->n);
		*line_no = str_sub(*line_no, 0, (uint32_t)comma);
		*text = str_trim(*text);
		return true;
	}
	return false;
}

static bool
has_forward(struct str trace)
{
	struct str line, func, text;

	while (next_frame(&trace, &line, &func, &text))
		if (str_eq(str_trim(func), S("in forward")))
			return true;
	return false;
}

/* One entry a module call. Up to torch 2.7 functions around and inside of forward are listed as well: _call_impl, <listcomp>. */
void
place_frames(struct graph *g, struct str trace, uint32_t *first, uint16_t *count)
{
	struct str rest = trace, line, func, text;
	bool only = has_forward(trace);
	int64_t number;

	*first = g->nframe;
	*count = 0;
	while (trace.n && *count < g->c->lim.frames && next_frame(&rest, &line, &func, &text)) {
		if (only && !str_eq(str_trim(func), S("in forward")))
			continue;
		ROOM(g->c->a, g->frames, g->nframe, g->frame_cap, 1);
		g->frames[g->nframe++] = (struct frame){str_int(line, &number) ? (uint32_t)number : 0, graph_name(g, text)};
		++*count;
	}
	g->has_frames |= *count > 0;
}
