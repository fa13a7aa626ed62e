/*
 * ONNX files: nodes are to stand in an order in which they can run, and nearly always do. Where some tool left another one, each goes behind
 * those that make its operands; otherwise the order stays. A cycle is left as it is: the look-up of its operands finds it.
 */
#include "onnx.h"

struct sorter {
	struct onnx *l;
	Onnx__Node **nodes, **out;
	size_t nout;
	uint8_t *state;            /* per node: 0 = waits, 1 = its operands are looked at, 2 = placed */
	uint32_t *next;            /* per node: operand to look at */
	uint32_t *stack, nstack;
};

static uint32_t *
maker_of(struct onnx *l, const char *name)
{
	return onnx_slot(l, &l->maker, &l->maker_cap, strtab_id(l->names, onnx_str(name)));
}

/* Who makes what; number 0 clears. */
static void
set_makers(struct onnx *l, Onnx__Node *const *nodes, size_t n, bool set)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < nodes[i]->n_output; k++)
			if (nodes[i]->output[k][0])
				*maker_of(l, nodes[i]->output[k]) = set ? (uint32_t)i + 1 : 0;
}

static bool
is_sorted(struct onnx *l, Onnx__Node *const *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < nodes[i]->n_input; k++)
			if (nodes[i]->input[k][0] && *maker_of(l, nodes[i]->input[k]) > i + 1)
				return false;
	return true;
}

/* The first operand of the node whose maker waits, 0 = none. */
static uint32_t
waiting_maker(struct sorter *s, uint32_t i)
{
	const Onnx__Node *node = s->nodes[i];

	while (s->next[i] < node->n_input) {
		const char *name = node->input[s->next[i]++];
		uint32_t m = *name ? *maker_of(s->l, name) : 0;

		if (m && s->state[m - 1] == 0)
			return m;
	}
	return 0;
}

static void
place(struct sorter *s, uint32_t first)
{
	s->stack[s->nstack++] = first;
	s->state[first] = 1;
	while (s->nstack) {
		uint32_t i = s->stack[s->nstack - 1], m = waiting_maker(s, i);

		if (m) {
			s->stack[s->nstack++] = m - 1;
			s->state[m - 1] = 1;
			continue;
		}
		s->nstack--;
		s->state[i] = 2;
		s->out[s->nout++] = s->nodes[i];
	}
}

void
onnx_sort(struct onnx *l, Onnx__Node **nodes, size_t n)
{
	struct sorter s = {.l = l, .nodes = nodes};

	set_makers(l, nodes, n, true);
	if (!is_sorted(l, nodes, n)) {
		s.out = NEW(l->c->a, Onnx__Node *, n);
		s.state = NEW(l->c->a, uint8_t, n);
		s.next = NEW(l->c->a, uint32_t, n);
		s.stack = NEW(l->c->a, uint32_t, n + 1);
		for (uint32_t i = 0; i < n; i++)
			if (s.state[i] == 0)
				place(&s, i);
		set_makers(l, nodes, n, false);
		for (size_t i = 0; i < n; i++)
			nodes[i] = s.out[i];
		return;
	}
	set_makers(l, nodes, n, false);
}
