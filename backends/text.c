/* text: for people. The first three lines answer: how much, where, what dominates. */
#include "backend.h"

static bool
write(const struct report *r, struct buf *b)
{
	char h[32];
	if (r->sched)
		buf_fmt(b, "peak %s\n", human_bytes(r->steps[r->peak_step].tensors, h));
	return true;
}

const struct backend backend_text = {"text", "for people", true, write};
