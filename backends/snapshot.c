/*
 * snapshot: a pickle that pytorch.org/memory_viz and torch.cuda._memory_viz open: every allocation and release of the two steps at the address
 * that the replayed allocator gives it, and the segments as they are at the end. Frames are modules, innermost first: no file of a model's
 * source is named, and nothing is in them that the viewer hides.
 *
 * The viewer reads few opcodes, takes every number for a double, spreads the items of one APPENDS over the stack, and wants a category
 * "unknown" somewhere; colours follow the order in which categories appear, so that each appears once in the beginning.
 */
#include "things.h"

#include <string.h>

#define MOST_ITEMS 1000            /* of one APPENDS */
#define BASE ((uint64_t)1 << 32)   /* address of the first segment */
#define MOST ((uint64_t)1 << 53)
#define SEGMENT_ALIGN ((uint64_t)2 << 20)

struct pickling {
	const struct report *r;
	struct emit *e;
	struct buf *b;
	struct strtab *texts;      /* id = memo */
	uint32_t *memo_of_text, ntext, text_cap;   /* + 1 */
	uint32_t *memo_of_frames;  /* per storage, + 1 */
	uint32_t *memo_of_module;  /* per row of modules, + 1 */
	struct strtab *paths;
	uint32_t memo;             /* how many there are */
	uint64_t *base;            /* address of each segment */
	uint64_t *size;
	uint32_t items;            /* of the APPENDS that is open */
};

/* ---- opcodes ------------------------------------------------------------------------------------------------------ */

static void
op(struct pickling *p, char code)
{
	buf_put(p->b, &code, 1);
}

static void
little(struct pickling *p, uint64_t n, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++, n >>= 8)
		op(p, (char)(n & 0xff));
}

static void
integer(struct pickling *p, uint64_t n)
{
	if (n < 1 << 8) {
		op(p, 'K');
		little(p, n, 1);
	} else if (n < 1 << 16) {
		op(p, 'M');
		little(p, n, 2);
	} else if (n < (uint64_t)1 << 31) {
		op(p, 'J');
		little(p, n, 4);
	} else {
		op(p, '\x8a');
		op(p, 8);
		little(p, n, 8);
	}
}

static uint32_t
put_memo(struct pickling *p)
{
	op(p, 'r');
	little(p, p->memo, 4);
	return ++p->memo;
}

static void
get_memo(struct pickling *p, uint32_t memo)
{
	op(p, memo <= 256 ? 'h' : 'j');
	little(p, memo - 1, memo <= 256 ? 1 : 4);
}

static void
text(struct pickling *p, struct str s)
{
	uint32_t id = strtab_id(p->texts, s);

	if (id >= p->ntext) {
		ROOM(p->e->a, p->memo_of_text, p->ntext, p->text_cap, id + 1 - p->ntext);
		p->ntext = id + 1;
	}
	if (p->memo_of_text[id]) {
		get_memo(p, p->memo_of_text[id]);
		return;
	}
	op(p, 'X');
	little(p, s.n, 4);
	buf_str(p->b, s);
	p->memo_of_text[id] = put_memo(p);
}

static void
word(struct pickling *p, const char *s)
{
	text(p, str_of(s));
}

static void
key_number(struct pickling *p, const char *key, uint64_t n)
{
	word(p, key);
	integer(p, n);
}

static void
key_word(struct pickling *p, const char *key, const char *value)
{
	word(p, key);
	word(p, value);
}

static void
open_dict(struct pickling *p)
{
	op(p, '}');
	op(p, '(');
}

static void
close_dict(struct pickling *p)
{
	op(p, 'u');
}

/* Items of a long list come in batches. */
static void
open_list(struct pickling *p)
{
	op(p, ']');
	op(p, '(');
	p->items = 0;
}

static void
next_item(struct pickling *p)
{
	if (++p->items < MOST_ITEMS)
		return;
	op(p, 'e');
	op(p, '(');
	p->items = 0;
}

static void
close_list(struct pickling *p)
{
	op(p, 'e');
}

/* ---- frames ---------------------------------------------------------------------------------------------------------- */

/* Text that the viewer neither hides nor cuts. */
static struct str
shown(struct pickling *p, struct str s)
{
	static const char *const hidden[] = {"unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "_start", "PyEval_", "PyObject_", "PyFunction_",
	    "pythonrun.c", "ceval.h", "ceval.c"};
	struct str out = str_copy(p->e->a, s);
	char *q = (char *)(uintptr_t)out.p;

	for (uint32_t i = 0; i < out.n; i++)
		if (q[i] == '/')
			q[i] = '.';
		else if ((unsigned char)q[i] < 32 || (unsigned char)q[i] > 126)
			q[i] = '?';
	for (size_t k = 0; k < sizeof hidden / sizeof hidden[0]; k++)
		for (char *at = q; out.n && (at = strstr(at, hidden[k])) != NULL; at++)
			for (size_t i = 0; hidden[k][i]; i++)
				at[i] = at[i] == '_' || at[i] == '.' || at[i] == ':' ? '-' : at[i];
	return out;
}

static void
frame(struct pickling *p, struct str file, uint32_t line, struct str name)
{
	open_dict(p);
	word(p, "filename");
	text(p, shown(p, file));
	key_number(p, "line", line);
	word(p, "name");
	text(p, shown(p, name));
	close_dict(p);
}

/* The modules around, each one dict for all. */
static void
outer_frames(struct pickling *p, uint32_t row)
{
	for (;; row = p->r->modules[row].parent) {
		const struct module_row *m = &p->r->modules[row];

		if (p->memo_of_module[row]) {
			get_memo(p, p->memo_of_module[row]);
		} else {
			frame(p, m->path.n ? m->path : S("(model)"), 0, m->cls.n ? last_part(m->cls) : S("module"));
			p->memo_of_module[row] = put_memo(p);
		}
		if (!row)
			return;
	}
}

static uint32_t
row_of(struct pickling *p, const struct storage *s)
{
	struct str path = storage_module(p->r, s);

	return path.n ? strtab_find(p->paths, path) : 0;
}

static void
frames(struct pickling *p, uint32_t storage)
{
	const struct storage *s = &p->r->sched->storages[storage];
	struct str module = storage_module(p->r, s);

	if (p->memo_of_frames[storage]) {
		get_memo(p, p->memo_of_frames[storage]);
		return;
	}
	op(p, ']');
	op(p, '(');
	frame(p, module.n ? module : S("(model)"), s->node, str_fmt(p->e->a, "%s %.*s", s->op ? s->op : "", SFMT(storage_name(p->r, s))));
	outer_frames(p, row_of(p, s));
	op(p, 'e');
	p->memo_of_frames[storage] = put_memo(p);
}

/* ---- events -------------------------------------------------------------------------------------------------------------- */

static const char *
category(unsigned factor)
{
	static const char *const name[FAC_COUNT] = {"parameter", "gradient", "optimizer_state", "activation", "temporary", "input"};

	return name[factor];
}

static void
event(struct pickling *p, const char *action, uint64_t address, uint64_t size, uint32_t time, const char *what, uint32_t storage)
{
	open_dict(p);
	key_word(p, "action", action);
	key_number(p, "addr", address);
	key_number(p, "size", size);
	key_number(p, "stream", 0);
	key_number(p, "time_us", time);
	word(p, "frames");
	if (storage)
		frames(p, storage);
	else
		op(p, ']');
	if (what)
		key_word(p, "category", what);
	close_dict(p);
	next_item(p);
}

static void
release(struct pickling *p, uint64_t address, uint64_t size, uint32_t time, const char *what, uint32_t storage)
{
	event(p, "free_requested", address, size, time, what, storage);
	event(p, "free_completed", address, size, time, what, storage);
}

static void
segments_begin(struct pickling *p)
{
	for (uint32_t i = 0; i < p->r->memory.nsegment_ever; i++)
		if (p->size[i])
			event(p, "segment_alloc", p->base[i], p->size[i], 0, NULL, 0);
}

/* Every category once, in the order of their colours. */
static void
palette(struct pickling *p)
{
	static const char *const order[] = {"parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "unknown"};
	uint32_t i = 0;

	while (i < p->r->memory.nsegment_ever && !p->size[i])
		i++;
	for (unsigned k = 0; k < 7 && i < p->r->memory.nsegment_ever; k++) {
		event(p, "alloc", p->base[i], 512, 0, order[k], 0);
		release(p, p->base[i], 512, 0, order[k], 0);
	}
}

static uint64_t
address_of(const struct pickling *p, const struct place_row *at)
{
	return p->base[at->segment] + at->offset;
}

static void
events(struct pickling *p)
{
	const struct memory_row *m = &p->r->memory;
	const struct schedule *s = p->r->sched;

	open_list(p);
	segments_begin(p);
	palette(p);
	for (uint32_t e = 0; e < s->nevent; e++) {
		uint32_t i = EVENT_STORAGE(s->events[e]);
		const struct place_row *at = &m->places[i];
		const char *what = category(s->storages[i].factor);

		if (!at->bytes)
			continue;
		if (EVENT_IS_FREE(s->events[e]))
			release(p, address_of(p, at), s->storages[i].nbytes, e, what, i);
		else
			event(p, "alloc", address_of(p, at), s->storages[i].nbytes, e, what, i);
		for (unsigned t = 0; t < 2; t++)
			if (m->workspaces[t].bytes && m->workspaces[t].event == e)
				event(p, "alloc", address_of(p, &m->workspaces[t]), m->workspaces[t].bytes, e, "unknown", 0);
	}
	close_list(p);
}

/* ---- segments --------------------------------------------------------------------------------------------------------------- */

#define NO_STORAGE UINT32_MAX      /* a workspace */

struct used {
	struct place_row at;
	uint32_t storage;
};

struct used_list {
	struct used *u;
	uint32_t n;
};

static int
by_address(const struct used *a, const struct used *b)
{
	if (a->at.segment != b->at.segment)
		return a->at.segment < b->at.segment ? -1 : 1;
	return a->at.offset < b->at.offset ? -1 : a->at.offset > b->at.offset;
}

static void
sort(struct used *u, uint32_t n, struct used *tmp)
{
	uint32_t half = n / 2, i = 0, k = half, m = 0;

	if (n < 2)
		return;
	sort(u, half, tmp);
	sort(u + half, n - half, tmp);
	while (i < half || k < n)
		if (k == n || (i < half && by_address(&u[i], &u[k]) <= 0))
			tmp[m++] = u[i++];
		else
			tmp[m++] = u[k++];
	memcpy(u, tmp, n * sizeof *u);
}

static struct used_list
find_used(struct pickling *p)
{
	const struct memory_row *m = &p->r->memory;
	const struct schedule *s = p->r->sched;
	bool *alive = NEW(p->e->a, bool, s->nstorage + 1u);
	struct used_list l = {NEW(p->e->a, struct used, s->nstorage + 2u), 0};

	for (uint32_t e = 0; e < s->nevent; e++)
		alive[EVENT_STORAGE(s->events[e])] = !EVENT_IS_FREE(s->events[e]);
	for (uint32_t i = 0; i < s->nstorage; i++)
		if (alive[i] && m->places[i].bytes)
			l.u[l.n++] = (struct used){m->places[i], i};
	for (unsigned t = 0; t < 2; t++)
		if (m->workspaces[t].bytes)
			l.u[l.n++] = (struct used){m->workspaces[t], NO_STORAGE};
	sort(l.u, l.n, NEW(p->e->a, struct used, l.n + 1u));
	return l;
}

static void
block(struct pickling *p, uint64_t address, uint64_t size, uint64_t requested, const char *state, uint32_t storage)
{
	open_dict(p);
	key_number(p, "address", address);
	key_number(p, "size", size);
	key_number(p, "requested_size", requested);
	key_word(p, "state", state);
	word(p, "frames");
	if (storage && storage != NO_STORAGE)
		frames(p, storage);
	else
		op(p, ']');
	close_dict(p);
	next_item(p);
}

/* Blocks lie side by side and fill the segment. Returns the first that is in a later one. */
static uint32_t
blocks(struct pickling *p, uint32_t segment, const struct used_list *l, uint32_t i)
{
	uint64_t at = 0;

	open_list(p);
	for (; i < l->n && l->u[i].at.segment == segment; i++) {
		const struct used *u = &l->u[i];

		if (u->at.offset > at)
			block(p, p->base[segment] + at, u->at.offset - at, 0, "inactive", 0);
		block(p, p->base[segment] + u->at.offset, u->at.bytes, u->storage == NO_STORAGE ? u->at.bytes : p->r->sched->storages[u->storage].requested, "active_allocated",
		    u->storage);
		at = u->at.offset + u->at.bytes;
	}
	if (at < p->size[segment])
		block(p, p->base[segment] + at, p->size[segment] - at, 0, "inactive", 0);
	close_list(p);
	return i;
}

static uint32_t
segment(struct pickling *p, uint32_t i, const struct used_list *l, uint32_t first)
{
	uint64_t active = 0, requested = 0;
	uint32_t k = first;

	for (; k < l->n && l->u[k].at.segment == i; k++) {
		active += l->u[k].at.bytes;
		requested += l->u[k].storage == NO_STORAGE ? l->u[k].at.bytes : p->r->sched->storages[l->u[k].storage].requested;
	}
	open_dict(p);
	key_number(p, "device", 0);
	key_number(p, "address", p->base[i]);
	key_number(p, "total_size", p->size[i]);
	key_number(p, "allocated_size", active);
	key_number(p, "active_size", active);
	key_number(p, "requested_size", requested);
	key_number(p, "stream", 0);
	key_word(p, "segment_type", p->size[i] <= SEGMENT_ALIGN ? "small" : "large");
	word(p, "segment_pool_id");
	integer(p, 0);
	integer(p, 0);
	op(p, '\x86');
	word(p, "is_expandable");
	op(p, p->r->r->v[RK_ALLOC_EXPANDABLE].i ? '\x88' : '\x89');
	word(p, "frames");
	op(p, ']');
	word(p, "blocks");
	k = blocks(p, i, l, first);
	close_dict(p);
	return k;
}

static void
segments(struct pickling *p)
{
	struct used_list l = find_used(p);
	uint32_t k = 0;

	op(p, ']');
	for (uint32_t i = 0; i < p->r->memory.nsegment_ever; i++)
		if (p->size[i]) {
			k = segment(p, i, &l, k);
			op(p, 'a');
		}
}

/* ---- the file ------------------------------------------------------------------------------------------------------------------ */

/* What was given back before the end is as large as what lay in it. False: addresses would not be exact as doubles. */
static bool
place_segments(struct pickling *p)
{
	const struct memory_row *m = &p->r->memory;
	uint64_t at = BASE;

	p->base = NEW(p->e->a, uint64_t, m->nsegment_ever + 1u);
	p->size = NEW(p->e->a, uint64_t, m->nsegment_ever + 1u);
	for (uint32_t i = 0; i < p->r->sched->nstorage; i++) {
		const struct place_row *x = &m->places[i];

		if (p->r->sched->storages[i].nbytes >= MOST)
			return false;
		if (x->bytes && p->size[x->segment] < x->offset + x->bytes)
			p->size[x->segment] = x->offset + x->bytes;
	}
	for (uint32_t i = 0; i < m->nsegment_ever; i++) {
		p->size[i] = m->segment_bytes[i] > p->size[i] ? m->segment_bytes[i] : p->size[i];
		p->base[i] = at;
		if (p->size[i] > MOST - at)
			return false;
		at += (p->size[i] + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
	}
	return at < MOST;
}

static bool
write(const struct report *r, struct emit *e)
{
	struct pickling p = {.r = r, .e = e, .b = e->b, .texts = strtab_new(e->a), .paths = strtab_new(e->a)};

	p.memo_of_frames = NEW(e->a, uint32_t, r->sched->nstorage + 1u);
	p.memo_of_module = NEW(e->a, uint32_t, r->nmodule);
	for (uint32_t i = 1; i < r->nmodule; i++)
		strtab_id(p.paths, r->modules[i].path);
	if (!place_segments(&p)) {
		e->too_large = true;
		return false;
	}
	op(&p, '\x80');
	op(&p, 2);
	open_dict(&p);
	word(&p, "segments");
	segments(&p);
	word(&p, "device_traces");
	op(&p, ']');
	events(&p);
	op(&p, 'a');
	word(&p, "allocator_settings");
	open_dict(&p);
	key_word(&p, "predicted_by", "memcrest " MC_VERSION);
	close_dict(&p);
	close_dict(&p);
	op(&p, '.');
	return !e->b->failed;
}

const struct backend backend_snapshot = {"snapshot", "a memory snapshot for pytorch.org/memory_viz (pickle)", false, write};
