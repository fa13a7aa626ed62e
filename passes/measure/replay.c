/*
 * replay: the schedule's events through the caching allocator, in order. Gives what torch.cuda.max_memory_allocated() and
 * max_memory_reserved() would say for every phase, and the segments and blocks at the peak.
 *
 * Two more requests than the schedule has: each thread that calls cuBLAS (the caller's in forward, the engine's in backward) takes a
 * workspace right after the result of its first matrix product is there, and keeps it.
 */
#include "replay.h"

#include <string.h>

/* ---- events ------------------------------------------------------------------------------------------------- */

/* Kernels that cuBLAS runs; dot products and convolutions are not among them. "mm" also stands for "mm_backward". */
bool
is_matrix_product(const char *op)
{
	static const char *const names[] = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "_scaled_mm", "_int_mm"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		size_t n = strlen(names[i]);

		if (strncmp(op, names[i], n) == 0 && (!op[n] || strcmp(op + n, "_backward") == 0))
			return true;
	}
	return false;
}

void
replay_start(struct replay *r, struct arena *arena, const struct replay_conf *conf)
{
	*r = (struct replay){.conf = *conf, .a = allocator_new(arena, &conf->alloc)};
}

/* A phase begins with what the one before left; a later micro-batch's goes on with the peaks of the earlier ones. */
void
replay_span(struct replay *r, unsigned step, unsigned phase)
{
	struct replay_peak *p = &r->at[step][phase];

	r->step = step;
	r->phase = phase;
	if (!p->ran)
		*p = (struct replay_peak){r->a->allocated, r->a->reserved, r->a->allocated, r->a->reserved, true};
}

static void
note(struct replay *r)
{
	struct replay_peak *p = &r->at[r->step][r->phase];

	if (r->a->allocated > p->allocated)
		p->allocated = r->a->allocated;
	if (r->a->reserved > p->reserved)
		p->reserved = r->a->reserved;
	p->allocated_end = r->a->allocated;
	p->reserved_end = r->a->reserved;
}

static uint32_t
take(struct replay *r, uint64_t bytes)
{
	uint32_t failures = r->a->failures, b = allocator_malloc(r->a, bytes, 0);

	if (r->a->failures > failures && !r->short_of) {
		r->short_of = bytes;
		r->short_reserved = r->a->reserved;
	}
	note(r);
	return b;
}

static void
take_for_a_moment(struct replay *r, uint64_t bytes)
{
	allocator_free(r->a, take(r, bytes));
	note(r);
}

static void
multiply(struct replay *r, const char *op)
{
	unsigned thread = r->phase == PH_FORWARD ? THREAD_FORWARD : THREAD_BACKWARD;

	if (!r->multiplied[thread] && is_matrix_product(op)) {
		r->multiplied[thread] = true;
		r->workspace[thread] = take(r, r->conf.workspace);
	}
	if (r->conf.lt_workspace && strcmp(op, "addmm") == 0)
		take_for_a_moment(r, r->conf.lt_workspace);
}

uint32_t
replay_alloc(struct replay *r, const char *op, uint64_t bytes, uint64_t scratch)
{
	uint32_t b = take(r, bytes);

	if (r->conf.workspace && r->step && (r->phase == PH_FORWARD || r->phase == PH_BACKWARD))
		multiply(r, op);
	if (r->conf.scratch && scratch)
		take_for_a_moment(r, scratch);
	return b;
}

void
replay_free(struct replay *r, uint32_t block)
{
	allocator_free(r->a, block);
	note(r);
}
