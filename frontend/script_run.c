/*
 * Running a script's functions by inlining: frames with names, calls with the modules they stand in, statements in order. A call of
 * another module's forward is one entry of the graph's module stacks.
 */
#include "script.h"

#include <string.h>

#define MAX_STEPS LIMIT(2000000ull, 300ull)       /* statements run in all; loops and calls may multiply */
#define MAX_NODES LIMIT(300000u, 100u)

/* ---- frames --------------------------------------------------------------------------------------------------------- */

struct thing *
local_find(struct script *s, uint32_t name)
{
	for (struct locals *f = s->frame; f; f = f->up)
		for (uint32_t i = f->n; i-- > 0;)
			if (f->name[i] == name)
				return &f->thing[i];
	return NULL;
}

void
local_set(struct script *s, uint32_t name, struct thing t)
{
	struct locals *f = s->frame;

	for (uint32_t i = f->n; i-- > 0;)
		if (f->name[i] == name) {
			f->thing[i] = t;
			return;
		}
	ROOM(s->c->a, f->name, f->n, f->cap, 1);
	ROOM(s->c->a, f->thing, f->n, f->thing_cap, 1);
	f->name[f->n] = name;
	f->thing[f->n++] = t;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------ */

static bool
param_index(const struct func *f, uint32_t name, uint32_t *i)
{
	for (*i = 0; *i < f->nparam; ++*i)
		if (f->param[*i] == name)
			return true;
	return false;
}

/* Arguments by position and by name, then defaults. */
static bool
bind_arguments(struct script *s, struct closure fn, const struct thing *args, const uint32_t *keyword, uint32_t n, struct thing *bound)
{
	const struct func *f = fn.fn;
	uint32_t pos = fn.self ? 1 : 0, at;
	bool *given = NEW(s->c->a, bool, f->nparam + 1u);

	if (fn.self && f->nparam) {
		bound[0] = (struct thing){.kind = THING_OBJECT, .u.object = fn.self};
		given[0] = true;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (keyword && keyword[i] ? !param_index(f, keyword[i], &at) : (at = pos++) >= f->nparam)
			return script_fail(s, "%.*s is called with more arguments than it has", SFMT(graph_str(s->g, f->name)));
		bound[at] = args[i];
		given[at] = true;
	}
	for (uint32_t i = 0; i < f->nparam; i++) {
		if (given[i])
			continue;
		if (!f->dflt[i])
			return script_fail(s, "%.*s is called without its argument %.*s", SFMT(graph_str(s->g, f->name)), SFMT(graph_str(s->g, f->param[i])));
		if (!script_eval(s, f->dflt[i], 1, &bound[i]))
			return false;
	}
	return true;
}

static bool
is_forward(struct script *s, const struct func *f)
{
	struct str name = graph_str(s->g, f->name), digits = str_starts(name, S("forward")) ? str_sub(name, 7, name.n) : S("x");
	int64_t n;

	return !digits.n || str_int(digits, &n);   /* tracing numbers later calls: forward1 */
}

/* A module's own methods run in its scope; only a call of a module that is not running yet opens one. */
static bool
enter_scope(struct script *s, struct closure fn)
{
	struct object *o = fn.self;

	if (!o || !o->is_module || o == s->module || !is_forward(s, fn.fn))
		return true;
	if (s->g->scopes[s->scope].depth >= s->c->lim.depth)
		return script_fail(s, "modules are nested too deep");
	if (o->path.n) {
		s->scope = scope_add(s->g, s->scope, o->path, script_display(s, graph_str(s->g, o->cls->name)), o->ncall++);
		s->g->has_scopes = true;
	}
	s->module = o;
	return true;
}

static bool
run_function(struct script *s, struct closure fn, const struct thing *bound, struct thing *out)
{
	struct locals f = {.fn = fn.fn, .up = fn.up, .forward = fn.self && fn.self == s->module && is_forward(s, fn.fn)}, *caller = s->frame;
	bool ok;

	s->frame = &f;
	for (uint32_t i = 0; i < fn.fn->nparam; i++)
		local_set(s, fn.fn->param[i], bound[i]);
	ok = script_block(s, fn.fn->body);
	s->frame = caller;
	*out = f.returned ? f.result : thing_none();
	return ok;
}

static bool
run_hooks(struct script *s, struct object *o, const struct names *hooks, bool before, struct thing *input, struct thing *output)
{
	for (uint32_t i = 0; i < hooks->n; i++) {
		struct func *f = class_func(o->cls, hooks->id[i]);
		struct thing args[2] = {*input, before ? thing_none() : *output}, r;

		if (!f)
			continue;
		if (!script_call(s, (struct closure){f, o, NULL}, args, NULL, before ? 1 : 2, &r))
			return false;
		if (r.kind != THING_NONE)
			*(before ? input : output) = r;
	}
	return true;
}

/* Hooks run around forward, on the arguments as one tuple and on the result. */
static bool
run_with_hooks(struct script *s, struct closure fn, struct thing *bound, struct thing *out)
{
	const struct class_def *d = fn.self ? fn.self->cls : NULL;
	bool hooked = d && is_forward(s, fn.fn) && (d->pre_hooks.n || d->hooks.n) && fn.fn->nparam;
	struct thing input;

	if (!hooked)
		return run_function(s, fn, bound, out);
	input = thing_items(s, THING_TUPLE, bound + 1, fn.fn->nparam - 1);
	if (!run_hooks(s, fn.self, &d->pre_hooks, true, &input, NULL))
		return false;
	if (input.kind != THING_TUPLE && fn.fn->nparam == 2)
		bound[1] = input;
	for (uint32_t i = 0; input.kind == THING_TUPLE && i < input.u.items->n && i + 1 < fn.fn->nparam; i++)
		bound[i + 1] = input.u.items->at[i];
	return run_function(s, fn, bound, out) && run_hooks(s, fn.self, &d->hooks, false, &input, out);
}

bool
script_call(struct script *s, struct closure fn, const struct thing *args, const uint32_t *keyword, uint32_t n, struct thing *out)
{
	struct thing *bound = NEW(s->c->a, struct thing, fn.fn->nparam + 1u);
	struct object *module = s->module;
	uint32_t scope = s->scope, line = s->line;
	bool ok;

	if (s->depth >= s->c->lim.depth)
		return script_fail(s, "calls are nested too deep");
	if (!bind_arguments(s, fn, args, keyword, n, bound) || !enter_scope(s, fn))
		return false;
	s->depth++;
	ok = run_with_hooks(s, fn, bound, out);
	s->depth--;
	if (ok) {                  /* a mistake is reported where it is */
		s->module = module;
		s->scope = scope;
		s->line = line;
	}
	return ok;
}

/* ---- statements ------------------------------------------------------------------------------------------------------------ */

static void
bind(struct script *s, const struct stmt *st, uint32_t i, struct thing t)
{
	local_set(s, st->names[i], t);
	script_local(s, st, i, &t);
}

static bool
assign_several(struct script *s, const struct stmt *st, const struct thing *t)
{
	struct thing *parts = NEW(s->c->a, struct thing, st->nname + 1u);

	if (!script_unpack(s, *t, st->nname, parts))
		return false;
	for (uint32_t i = 0; i < st->nname; i++)
		bind(s, st, i, parts[i]);
	return true;
}

bool
script_assign(struct script *s, const struct stmt *st)
{
	struct thing t;

	if (!script_eval(s, st->value, st->form == ASSIGN_RESULTS ? st->nname : 1, &t))
		return false;
	if (st->form != ASSIGN_ONE)
		return assign_several(s, st, &t);
	bind(s, st, 0, t);
	return true;
}

static bool
set_attribute(struct script *s, const struct stmt *st)
{
	struct thing o, t;

	if (!script_eval(s, st->target->kid[0], 1, &o) || !script_eval(s, st->value, 1, &t))
		return false;
	if (o.kind == THING_OBJECT)
		object_set(s, o.u.object, st->target->name, t);
	return true;
}

/* "with": what __enter__ and __exit__ do; gradients may be off inside. */
static bool
run_with(struct script *s, const struct stmt *st)
{
	static const char *const method[] = {"__enter__", "__exit__"};
	struct thing o, result, none[3] = {{.kind = THING_NONE}, {.kind = THING_NONE}, {.kind = THING_NONE}};

	if (!script_eval(s, st->value, 1, &o))
		return false;
	for (unsigned i = 0; i < 2; i++) {
		struct func *f = o.kind == THING_OBJECT ? class_func(o.u.object->cls, graph_name(s->g, str_of(method[i]))) : NULL;

		if (f && !script_call(s, (struct closure){f, o.u.object, NULL}, none, NULL, i ? 3 : 0, &result))
			return false;
		if (i == 0 && st->nname)
			local_set(s, st->names[0], f ? result : o);
		if (i == 0 && !script_block(s, st->body))
			return false;
	}
	return true;
}

static bool
define(struct script *s, const struct stmt *st)
{
	struct thing t = {.kind = THING_FUNC};

	st->def->file = s->frame->fn->file;
	t.u.fn = NEW(s->c->a, struct closure, 1);
	*t.u.fn = (struct closure){st->def, NULL, s->frame};
	local_set(s, st->def->name, t);
	return true;
}

static bool
run_return(struct script *s, const struct stmt *st)
{
	s->frame->result = thing_none();
	if (st->value && !script_eval(s, st->value, 1, &s->frame->result))
		return false;
	s->frame->returned = true;
	return true;
}

static bool
run_stmt(struct script *s, const struct stmt *st)
{
	struct thing t;

	switch (st->kind) {
	case STMT_EXPR:
		return script_eval(s, st->value, 1, &t);
	case STMT_ASSIGN:
		return script_assign(s, st);
	case STMT_SET:
		return set_attribute(s, st);
	case STMT_IF:
		return script_if(s, st);
	case STMT_FOR:
	case STMT_WHILE:
		return script_loop(s, st);
	case STMT_WITH:
		return run_with(s, st);
	case STMT_DEF:
		return define(s, st);
	case STMT_RETURN:
		return run_return(s, st);
	default:
		return true;
	}
}

/* At the default limit no more than about 40 KiB of stack; exported models reach half of it. */
bool
script_may_nest(const struct script *s, uint32_t more)
{
	return s->nest + more <= s->c->lim.depth + s->c->lim.depth / 4;
}

bool
script_block(struct script *s, const struct stmt *st)
{
	if (!script_may_nest(s, 2))
		return script_fail(s, "calls are nested too deep");
	s->nest += 2;
	for (; st && !s->frame->returned; st = st->next) {
		s->line = st->line;
		if (++s->steps > MAX_STEPS)
			return script_fail(s, "the code runs more than %llu statements", MAX_STEPS);
		if (s->g->nnode > MAX_NODES)
			return script_fail(s, "the code makes more than %u nodes", MAX_NODES);
		if (s->elements > 4u * MAX_ELEMENTS)
			return script_fail(s, "the code makes lists of more than %u elements", 4u * MAX_ELEMENTS);
		if (!run_stmt(s, st))
			return false;
	}
	s->nest -= 2;
	return true;
}
