/* What kernels may take from the allocator while they run: rules for the rows of scratch.def. None of it is in tensors or allocated. */
#include "lower.h"

enum side { FORWARD, BACKWARD, SIDES };
enum need { NEEDED, OPTIONAL };

typedef uint64_t rule(const struct call *, uint32_t made);

/* A size of which nobody can have more is as good as any. */
#define MUCH ((uint64_t)1 << 50)

static uint64_t
product(uint64_t a, uint64_t b)
{
	uint64_t n;

	return mul_u64(a, b, &n) && n < MUCH ? n : MUCH;
}

static uint64_t
up(int64_t n, uint64_t to)
{
	return n < 0 || (uint64_t)n > MUCH ? MUCH : ((uint64_t)n + to - 1) / to * to;
}

static uint64_t
bytes_of(const struct call *c, uint32_t t)
{
	uint64_t n = t ? geom_nbytes(geom_at(c->s, t)) : 0;

	return n < MUCH ? n : MUCH;
}

static uint32_t
result_of(const struct call *c)
{
	return !c->fn ? c->out[0] : c->ngrads ? c->grads[0] : 0;
}

static int64_t
first_int(const struct call *c, const char *name, int64_t dflt)
{
	int64_t n[MAX_RANK];

	return call_ints(c, name, n, MAX_RANK) ? n[0] : dflt;
}

/*
 * Input, weight and result, or its gradient, each in another layout; or transformed for Winograd's algorithm, 6 x 6 values for 4 x 4 of the
 * images and for 3 x 3 of the weight. Depthwise convolutions in fp32 are PyTorch's own and need neither.
 */
static uint64_t
scratch_convolution(const struct call *c, uint32_t made)
{
	uint32_t x = call_tensor(c, "input"), w = call_tensor(c, "weight");
	int64_t groups = call_int(c, "groups", 1);
	const struct geom *g;
	uint64_t images;

	if (!x || !w || geom_at(c->s, made)->rank < 2)         /* a bias's gradient is a plain sum */
		return 0;
	g = geom_at(c->s, w);
	if (groups > 1 && g->rank == 4 && geom_at(c->s, x)->dim[1] == groups && geom_at(c->s, x)->dtype == DT_FP32)
		return 0;
	images = bytes_of(c, x) + bytes_of(c, result_of(c));
	if (g->rank == 4 && g->dim[2] == 3 && g->dim[3] == 3 && first_int(c, "stride", 1) == 1)
		return images / 4 * 9 + 4 * bytes_of(c, w);
	return images + bytes_of(c, w);
}

/* Input and result; in backward also the gradients of both. */
static uint64_t
scratch_batch_norm(const struct call *c, uint32_t made)
{
	if (geom_at(c->s, made)->rank < 3)
		return 0;
	return (c->fn ? 3 : 2) * bytes_of(c, made);
}

static uint64_t
scratch_flash(const struct call *c, uint32_t made)
{
	uint32_t q = call_tensor(c, "query"), k = call_tensor(c, "key");
	const struct geom *g;
	uint64_t heads, rows, n;

	(void)made;
	if (!q || !k || geom_at(c->s, q)->rank != 4)
		return 0;
	g = geom_at(c->s, q);
	heads = product((uint64_t)g->dim[0], (uint64_t)g->dim[1]);
	rows = product(heads, up(g->dim[2], 128));
	n = product(rows, 4 * (up(g->dim[3], 32) + 1));
	if (geom_at(c->s, k)->dim[1] < g->dim[1])
		n += product(product(heads, (uint64_t)geom_at(c->s, k)->dim[2]), 2 * dtype_bytes(g->dtype, (uint64_t)g->dim[3]));
	return n;
}

static uint64_t
scratch_efficient(const struct call *c, uint32_t made)
{
	uint32_t q = call_tensor(c, "query"), k = call_tensor(c, "key");
	const struct geom *g;
	uint64_t heads, wide, n;

	(void)made;
	if (!q || !k || geom_at(c->s, q)->rank != 4 || geom_at(c->s, k)->rank != 4)
		return 0;
	g = geom_at(c->s, q);
	heads = product((uint64_t)g->dim[0], (uint64_t)g->dim[1]);
	wide = up(g->dim[3], 64);
	n = product(product(heads, up(g->dim[2], 128)), 4 * (wide + 1));
	if (g->dim[3] > 128)
		n += 2 * product(product(heads, up(geom_at(c->s, k)->dim[2], 128)), 4 * wide);
	return n;
}

/* Six arrays of as many int64 as there are indices, and a partial sum for each ten of them and each row that is met. */
static uint64_t
scratch_embedding(const struct call *c, uint32_t made)
{
	const struct geom *w = geom_at(c->s, made);        /* the weight's gradient: rows by width */
	uint32_t i = call_tensor(c, "indices");
	uint64_t n, rows, wide;

	if (!i || w->rank != 2 || geom_at(c->s, i)->numel <= 3072)
		return 0;
	n = (uint64_t)geom_at(c->s, i)->numel;
	rows = (uint64_t)w->dim[0];
	wide = (uint64_t)w->dim[1];
	return product(n, 48) + product(product(n / 10 + (rows < n ? rows : n), wide), 4);
}

/* Nothing where the elementwise loss is the result. */
static uint64_t
scratch_loss(const struct call *c, uint32_t made)
{
	uint32_t x = call_tensor(c, "self");
	uint64_t n = x && geom_at(c->s, made)->rank == 0 ? bytes_of(c, x) : 0;

	return c->op == OP_BCE_LOGITS ? 2 * n : n;
}

static uint64_t
scratch_masked_scatter(const struct call *c, uint32_t made)
{
	return product((uint64_t)geom_at(c->s, made)->numel, 8);
}

static const struct {
	rule *f;
	bool optional;
} rules[OP_COUNT][SIDES] = {
#define SCRATCH(op, side, rule, need, source) [OP_##op][side] = {scratch_##rule, (need) == OPTIONAL},
#include "scratch.def"
#undef SCRATCH
};

/* t: what the call's kernel has made, or 0; it is charged to its storage if that is new. */
void
scratch_note(const struct call *c, uint32_t t, uint32_t first_storage)
{
	enum side side = c->fn ? BACKWARD : FORWARD;
	uint32_t i = t ? tensor_at(c->s, t)->storage : 0;

	if (!rules[c->op][side].f || i < first_storage)
		return;
	c->s->sched->storages[i].scratch = rules[c->op][side].f(c, t);
	c->s->sched->storages[i].scratch_optional = rules[c->op][side].optional;
}
