/*
 * Where code comes from: a member code/....py.debug_pkl says for ranges of the code's bytes what Python they stand for (formats.md 2.9). In
 * scripted code that is the text of a function and the part of it that a node was made from; in a trace the Python stack at the operator,
 * with files, functions and line numbers but without text. A trace's own variables have the names that Python's locals had.
 *
 * These members are optional, and what is not understood in them counts as not there.
 */
#include "script.h"

#include <string.h>

#define MAX_LINES 100000000ull     /* of functions' texts, looked at while places are read */
#define MAX_STACK 4096u            /* lines of one recorded stack */

struct code_place {
	uint32_t at;               /* from this byte of the code on */
	uint32_t frame;            /* trace: in graph.frames, as a node has them */
	uint16_t nframe, nhelper;
	struct frame line;         /* scripted: the statement; line 0 = not known */
};

struct source_map {
	struct code_place *places; uint32_t n, cap;
	bool traced;
};

/* ---- stacks of traces ------------------------------------------------------------------------------------------------ */

enum line_kind { LINE_BAD, LINE_PLAIN, LINE_CALL, LINE_TRACE };

struct trace_line {                /* "/x/model.py(12): forward" */
	uint32_t line, func;
	uint8_t kind;
};

/* The lines with which torch.nn.Module calls forward, and those of the tracer itself. */
static uint8_t
kind_of(struct str file, struct str func)
{
	if (str_ends(file, S("torch/jit/_trace.py")) || str_ends(file, S("torch/jit/__init__.py")))
		return LINE_TRACE;
	if (str_ends(file, S("torch/nn/modules/module.py")))
		return str_eq(func, S("_call_impl")) || str_eq(func, S("_slow_forward")) || str_eq(func, S("_wrapped_call_impl")) || str_eq(func, S("__call__")) ? LINE_CALL : LINE_PLAIN;
	return LINE_PLAIN;
}

static void
read_line(struct script *s, struct str text, struct trace_line *out)
{
	int64_t close = -1, open = -1, number;

	for (uint32_t i = text.n; i-- > 1 && close < 0;)
		if (text.p[i] == ':' && text.p[i - 1] == ')')
			close = i - 1;
	for (int64_t i = close; i-- > 0 && open < 0;)
		if (text.p[i] == '(')
			open = i;
	*out = (struct trace_line){0};
	if (open < 0 || !str_int(str_sub(text, (uint32_t)open + 1, (uint32_t)close), &number) || number < 0 || number > INT32_MAX)
		return;
	text.n -= text.p[text.n - 1] == '\n';
	out->line = (uint32_t)number;
	out->kind = kind_of(str_sub(text, 0, (uint32_t)open), str_trim(str_sub(text, (uint32_t)close + 2, text.n)));
	out->func = graph_name(s->g, str_trim(str_sub(text, (uint32_t)close + 2, text.n)));
}

/* The strings of a list of numbers in the table, outermost first; 0 = it is none. Each string is read once. */
static uint32_t
stack_lines(struct script *s, const struct pickle *list, const struct pickle *table, struct arena *a, struct trace_line **out)
{
	uint32_t n = 0;

	*out = NULL;
	if (list->kind != PK_LIST || !list->n || list->n > MAX_STACK)
		return 0;
	*out = NEW(a, struct trace_line, list->n);
	for (uint32_t i = list->n; i-- > 0;) {
		int64_t at = list->u.item[i]->kind == PK_INT ? list->u.item[i]->u.i : -1;
		struct pickle *text = at >= 0 && at < table->n ? table->u.item[at] : NULL;
		struct trace_line *line;

		if (!text || text->kind != PK_STR || ++s->source_lines > MAX_LINES)
			return 0;
		if (!text->u.s.n)
			continue;
		if (!text->made) {
			text->made = NEW(a, struct trace_line, 1);
			read_line(s, text->u.s, text->made);
		}
		line = text->made;
		if (line->kind == LINE_BAD)
			return 0;
		n = line->kind == LINE_TRACE ? 0 : n;
		if (line->kind != LINE_TRACE)
			(*out)[n++] = *line;
	}
	return n;
}

static void
add_frame(struct script *s, const struct trace_line *l, uint32_t text)
{
	ROOM(s->c->a, s->g->frames, s->g->nframe, s->g->frame_cap, 1);
	s->g->frames[s->g->nframe++] = (struct frame){l->line, text};
}

/* One entry for each call of a module: its forward, or what stands there instead; then what the innermost one calls. */
static void
read_stack(struct script *s, const struct trace_line *l, uint32_t n, struct code_place *p)
{
	uint32_t forward = graph_name(s->g, S("forward")), from = 0, first = 0, end = 0;

	p->frame = s->g->nframe;
	for (; from < n && p->nframe < s->c->lim.frames; from = end) {
		while (from < n && l[from].kind == LINE_CALL)
			from++;
		for (end = from; end < n && l[end].kind != LINE_CALL;)
			end++;
		if (from == end)
			break;
		for (first = from; first < end && l[first].func != forward;)
			first++;
		first = first < end ? first : from;
		add_frame(s, &l[first], 0);
		p->nframe++;
	}
	for (from = first + 1; p->nframe && from < end && p->nframe + p->nhelper < s->c->lim.frames; from++) {
		add_frame(s, &l[from], l[from].func);
		p->nhelper++;
	}
}

/* ---- functions' texts --------------------------------------------------------------------------------------------------- */

/* Line number and text at byte `from` of the text that the table's strings make. */
static void
read_text(struct script *s, const struct pickle *list, const struct pickle *table, int64_t first, int64_t from, struct code_place *p)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < list->n && from >= 0; i++) {
		int64_t k = list->u.item[i]->kind == PK_INT ? list->u.item[i]->u.i : -1;
		struct str text = k >= 0 && k < table->n ? pickle_str(table->u.item[k]) : S("");

		if (++s->source_lines > MAX_LINES)
			return;
		if (at + text.n > (uint64_t)from) {
			p->line = (struct frame){(uint32_t)(first + i), graph_name(s->g, str_trim(text))};
			return;
		}
		at += text.n;
	}
}

/* ---- the member --------------------------------------------------------------------------------------------------------- */

static const struct pickle *
item(const struct pickle *p, uint32_t i)
{
	return p && (p->kind == PK_TUPLE || p->kind == PK_LIST) && i < p->n ? p->u.item[i] : NULL;
}

static int64_t
number(const struct pickle *p)
{
	return p && p->kind == PK_INT && p->u.i >= 0 && p->u.i < INT32_MAX ? p->u.i : -1;
}

/* (offset, ((strings, file, first line), from, to), tag) */
static void
read_place(struct script *s, const struct pickle *record, const struct pickle *table, struct arena *a, struct source_map *map)
{
	const struct pickle *range = item(record, 1), *source = item(range, 0), *list = item(source, 0);
	struct code_place p = {0}, *known;
	struct trace_line *lines;
	int64_t at = number(item(record, 0));
	uint32_t n;

	if (at < 0 || (map->n && map->places[map->n - 1].at >= at) || !list || list->kind != PK_LIST)
		return;
	known = list->made;
	n = known ? 0 : stack_lines(s, list, table, a, &lines);
	if (known)
		p = *known;
	else if (n)
		read_stack(s, lines, n, &p);
	else if (number(item(source, 2)) >= 0)
		read_text(s, list, table, number(item(source, 2)), number(item(range, 1)), &p);
	if (n) {
		known = NEW(a, struct code_place, 1);
		*known = p;
		((struct pickle *)list)->made = known;
		map->traced = true;
	}
	p.at = (uint32_t)at;
	ROOM(s->c->a, map->places, map->n, map->cap, 1);
	map->places[map->n++] = p;
}

static bool
read_map(struct script *s, struct ctx *c, struct str path, struct source_map *map)
{
	const struct pickle *all, *table, *records;
	struct str text;

	if (!zip_read(c, s->z, path, &text) || !(all = pickle_read(c, text)))
		return false;
	table = item(all, 1);
	records = item(all, 2);
	if (!str_eq(pickle_str(item(all, 0)), S("FORMAT_WITH_STRING_TABLE")) || !item(table, 0) || !records || records->kind != PK_TUPLE)
		return true;
	for (uint32_t i = 0; i < records->n; i++)
		read_place(s, records->u.item[i], table, c->a, map);
	return true;
}

/* What the member is read into is several times as large as itself, and goes at once; but not with what was to be reported. */
static bool
load_map(struct script *s, struct code_file *f)
{
	struct ctx c = *s->c;
	struct str path = str_fmt(s->c->a, "%.*s.debug_pkl", SFMT(f->path));

	f->tried = true;
	if (!zip_has(s->z, path))
		return true;
	f->map = NEW(s->c->a, struct source_map, 1);
	c.a = arena_part(s->c->a);
	c.place = path;
	if (!read_map(s, &c, path, f->map)) {
		c.a = s->c->a;
		*s->c = c;
		return false;
	}
	arena_cancel(s->c->a, c.a);
	return true;
}

static const struct code_place *
find_place(const struct source_map *map, uint32_t at)
{
	uint32_t from = 0, to = map->n;

	while (from < to) {
		uint32_t mid = from + (to - from) / 2;

		if (map->places[mid].at <= at)
			from = mid + 1;
		else
			to = mid;
	}
	return from ? &map->places[from - 1] : NULL;
}

/* ---- while forward runs --------------------------------------------------------------------------------------------------- */

bool
script_enter_call(struct script *s, const struct term *call)
{
	struct code_file *f = s->frame ? s->frame->fn->file : NULL;
	uint32_t depth = s->g->scopes[s->scope].depth, had = s->line_cap;

	s->at = NULL;
	if (!f)
		return true;
	if (!f->tried && !load_map(s, f))
		return false;
	s->at = f->map ? find_place(f->map, call->at) : NULL;
	if (!s->at || f->map->traced || !s->frame->forward || !s->at->line.line)
		return true;
	if (depth + 2 > had)
		ROOM(s->c->a, s->lines, had, s->line_cap, depth + 2 - had);
	s->lines[depth] = s->at->line;
	s->lines[depth + 1].line = 0;
	return true;
}

/* The statements of the forwards around the node, if all are known. */
static void
place_scripted(struct script *s, uint32_t n)
{
	uint32_t depth = s->g->scopes[s->scope].depth;

	for (uint32_t d = 0; d <= depth; d++)
		if (d >= s->line_cap || !s->lines[d].line)
			return;
	ROOM(s->c->a, s->g->frames, s->g->nframe, s->g->frame_cap, depth + 1);
	memcpy(s->g->frames + s->g->nframe, s->lines, (depth + 1) * sizeof *s->lines);
	s->g->nodes[n].frame = s->g->nframe;
	s->g->nodes[n].nframe = (uint16_t)(depth + 1);
	s->g->nframe += depth + 1;
	s->g->has_frames = true;
}

/* A stack that has fewer entries than the node has modules is not understood. One with more calls modules that are none of the model's, a loss for one. */
static bool
is_placed(const struct script *s)
{
	return s->at && s->at->nframe > s->g->scopes[s->scope].depth;
}

void
script_place(struct script *s, uint32_t n)
{
	struct node *x = &s->g->nodes[n];

	if (!s->at || !s->frame || !s->frame->fn->file->map)
		return;
	if (!s->frame->fn->file->map->traced) {
		place_scripted(s, n);
	} else if (is_placed(s)) {
		x->frame = s->at->frame;
		x->nframe = (uint16_t)(s->g->scopes[s->scope].depth + 1);
		x->nhelper = (uint16_t)(s->at->nframe + s->at->nhelper - x->nframe);
		s->g->has_lines = true;
	}
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

static void
used_first(struct script *s, const struct thing *t)
{
	if (t->kind == THING_TENSOR && !s->g->vals[t->val].local_depth)
		s->g->vals[t->val].local_depth = s->at->nframe + (uint32_t)s->at->nhelper;
}

/* The tracer looks a value's name up among the locals of the function that uses it first. */
void
script_first_use(struct script *s, const struct args *a)
{
	if (!s->at || !s->at->nframe || !is_placed(s))
		return;
	for (uint32_t i = 0; i < a->n; i++) {
		used_first(s, &a->at[i]);
		for (uint32_t k = 0; (a->at[i].kind == THING_LIST || a->at[i].kind == THING_TUPLE) && k < a->at[i].u.items->n; k++)
			used_first(s, &a->at[i].u.items->at[k]);
	}
}

/* "x10" is x1's second or x's twelfth: the shortest part of it that is a name of the function as well. */
static uint32_t
python_name(struct script *s, const struct strtab *names, struct str name)
{
	uint32_t n = name.n;

	if (name.n > 1 && name.p[0] == '_' && name.p[1] >= '0' && name.p[1] <= '9')
		return 0;
	while (n > 1 && name.p[n - 1] >= '0' && name.p[n - 1] <= '9')
		n--;
	while (n < name.n && !strtab_find(names, str_sub(name, 0, n)))
		n++;
	return graph_name(s->g, str_sub(name, 0, n));
}

static void
find_names(struct script *s, struct func *f)
{
	struct strtab *names = strtab_new(s->c->a);

	f->named = true;
	for (uint32_t i = 0; i < f->nparam; i++)
		strtab_id(names, graph_str(s->g, f->param[i]));
	for (const struct stmt *st = f->body; st; st = st->next)
		for (uint32_t i = 0; st->python && i < st->nname; i++)
			strtab_id(names, graph_str(s->g, st->names[i]));
	for (const struct stmt *st = f->body; st; st = st->next)
		for (uint32_t i = 0; st->python && i < st->nname; i++)
			st->python[i] = python_name(s, names, graph_str(s->g, st->names[i]));
}

void
script_local(struct script *s, const struct stmt *st, uint32_t i, const struct thing *t)
{
	struct func *f = s->frame->fn;

	if (t->kind != THING_TENSOR || s->g->vals[t->val].kind != VAL_NODE || !f->file || !f->file->map || !f->file->map->traced)
		return;
	if (!f->named)
		find_names(s, f);
	if (!s->g->vals[t->val].local)
		s->g->vals[t->val].local = st->python[i];
}
