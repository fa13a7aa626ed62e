/*
 * The pass infer on small graphs: dims that operators' rows give, numbers of the program, branches and loops. Every expected shape is
 * derived by hand beside it. x is fp32[4, 6] unless a case says otherwise; n in a shape is the number of dims.
 */
#include "test.h"

#include <stdio.h>
#include <string.h>

#define HEAD "memcrest-ir 1\nsym b 1..\ninput %x : fp32[b, 6]\nparam %w \"w\" : fp32[8, 6] trainable\n"
#define SIZE "%b = measure(what=\"size\", self=%x, index=0)\n"

static struct analysed
inspect(const char *text, int64_t b)
{
	struct analysed a;
	mc_recipe *r = mc_recipe_new();

	assert_int_equal(mc_load_memory(text, strlen(text), "test", NULL, &a.m), MC_OK);
	mc_recipe_set_dim(r, "b", b);
	assert_int_equal(mc_inspect(a.m, r, NULL, &a.r), MC_OK);
	mc_recipe_free(r);
	return a;
}

static void
check_dims(const struct graph *g, uint32_t v, unsigned dtype, unsigned n, const int64_t *dim)
{
	assert_int_equal(g->vals[v].dtype, dtype);
	assert_int_equal(g->vals[v].rank, n);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(val_dims(g, v)[i].expr, 0);
		assert_int_equal(val_dims(g, v)[i].n, dim[i]);
	}
}

static void
no_prims(const struct graph *g)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		assert_false(op_info(g->nodes[n].op)->prim);
}

static const struct {
	const char *text;
	uint8_t dtype, n;
	int64_t dim[4];
	unsigned nodes;            /* that are left */
} shapes[] = {
	/* y = x w^T: the weight's rows replace the last dim */
	{HEAD "%y = linear(%x, %w)\noutput %y\n", DT_FP32, 2, {4, 8}, 1},
	/* view(x, [b, 2, 3]) with b read from x; the number leaves no node */
	{HEAD SIZE "%y = view(%x, [int(%b), 2, 3])\noutput %y\n", DT_FP32, 3, {4, 2, 3}, 1},
	/* 4 * 6 // 3 = 8 */
	{HEAD SIZE "%n = math(what=\"mul\", a=%b, b=6)\n%m = math(what=\"floordiv\", a=%n, b=3)\n%y = view(%x, [int(%m), -1])\noutput %y\n", DT_FP32, 2, {8, 3}, 1},
	/* arange(b): a number as an argument of its own; whole numbers are int64 */
	{HEAD SIZE "%y = arange(end=%b)\noutput %y\n", DT_INT64, 1, {4}, 1},
	/* c10 number 5 is fp16; the dtype of x is read and given back */
	{HEAD "%y = to(%x, dtype=fp16)\noutput %y\n", DT_FP16, 2, {4, 6}, 1},
	{HEAD "%d = measure(what=\"dtype\", self=%x)\n%h = to(%x, dtype=fp16)\n%y = to(%h, dtype=%d)\noutput %y\n", DT_FP32, 2, {4, 6}, 2},
	/* sizes[:-1] + [2, 3] */
	{HEAD "%s = measure(what=\"sizes\", self=%x)\n%t = list(what=\"slice\", a=%s, b=none, c=-1, d=1)\n%u = list(what=\"join\", a=%t, b=[2, 3])\n%y = view(%x, %u)\noutput %y\n", DT_FP32, 3, {4, 2, 3}, 1},
	/* x has 2 dims, so the first branch runs and the second leaves nothing */
	{HEAD "%r = measure(what=\"dim\", self=%x)\n%c = math(what=\"eq\", a=%r, b=2)\nif(%c)\n%p = linear(%x, %w)\nelse()\n%q = relu(%x)\n%y = endif(%p, %q)\noutput %y\n", DT_FP32, 2, {4, 8}, 1},
	{HEAD "%r = measure(what=\"dim\", self=%x)\n%c = math(what=\"eq\", a=%r, b=3)\nif(%c)\n%p = linear(%x, %w)\nelse()\n%q = relu(%x)\n%y = endif(%p, %q)\noutput %y\n", DT_FP32, 2, {4, 6}, 1},
	/* an inner if inside of the branch that is not taken is skipped with it */
	{HEAD "if(false)\nif(true)\n%p = relu(%x)\nelse()\n%q = relu(%x)\n%z = endif(%p, %q)\nelse()\n%r = linear(%x, %w)\n%y = endif(%z, %r)\noutput %y\n", DT_FP32, 2, {4, 8}, 1},
	/* data decides: linear makes 32 elements, relu 24 */
	{HEAD "%c = measure(what=\"bool\", self=%x)\nif(%c)\n%p = relu(%x)\nelse()\n%q = linear(%x, %w)\n%y = endif(%p, %q)\noutput %y\n", DT_FP32, 2, {4, 8}, 1},
	/* b turns of relu */
	{HEAD SIZE "%i, %t = loop(%b, none, %x)\n%u = relu(%t)\n%y = endloop(true, %u)\noutput %y\n", DT_FP32, 2, {4, 6}, 4},
	/* no turn at all: y is x, and nothing is left */
	{HEAD "%i, %t = loop(0, none, %x)\n%u = relu(%t)\n%v = endloop(true, %u)\n%y = linear(%v, %w)\noutput %y\n", DT_FP32, 2, {4, 8}, 1},
	/* while n < 10: n += 4, from 0: three turns, then linear */
	{HEAD "%c = math(what=\"lt\", a=0, b=10)\n%i, %k, %t = loop(none, %c, 0, %x)\n%u = relu(%t)\n%l = math(what=\"add\", a=%k, b=4)\n%d = math(what=\"lt\", a=%l, b=10)\n%m, %y = endloop(%d, %l, %u)\noutput %y\n",
	    DT_FP32, 2, {4, 6}, 3},
	/* data decides how often: once */
	{HEAD "%c = measure(what=\"int\", self=%x)\n%i, %t = loop(%c, none, %x)\n%u = relu(%t)\n%y = endloop(true, %u)\noutput %y\n", DT_FP32, 2, {4, 6}, 1},
	/* a list that grows in the loop: b pieces of [6] are stacked to [b, 6]; b selects and the stack are left */
	{HEAD SIZE "%e = list(what=\"of\", a=[])\n%i, %l = loop(%b, none, %e)\n%p = select(%x, 0, %i)\n%m = list(what=\"append\", a=%l, b=%p)\n%z = endloop(true, %m)\n%y = stack(%z)\noutput %y\n", DT_FP32, 2, {4, 6}, 5},
	/* unbind gives as many as there are: cat of all of them is [b * 6] */
	{HEAD "%l : list = unbind(%x)\n%y = cat(%l)\noutput %y\n", DT_FP32, 1, {24}, 2},
	/* a piece by its number: [6] */
	{HEAD "%l : list = unbind(%x)\n%p = list(what=\"piece\", a=%l, b=1, c=none, d=4)\n%y = relu(%p)\noutput %y\n", DT_FP32, 1, {6}, 2},
	/* an unknown number that no size depends on: a zero point, a factor */
	{HEAD "%n = measure(what=\"int\", self=%x)\n%y = quantize_per_tensor(%x, float(0.5), %n, quint8)\noutput %y\n", DT_QUINT8, 2, {4, 6}, 1},
	{HEAD "%n = measure(what=\"int\", self=%x)\n%y = mul(%x, %n)\noutput %y\n", DT_FP32, 2, {4, 6}, 1},
	/* numbers of the program: all elements, 24; a list with a new first element, [4, 3] + [2]; x is floating-point */
	{HEAD "%n = measure(what=\"numel\", self=%x)\n%y = view(%x, [int(%n)])\noutput %y\n", DT_FP32, 1, {24}, 1},
	{HEAD "%l = list(what=\"of\", a=[2, 3])\n%m = list(what=\"set\", a=%l, b=-2, c=4)\n%n = list(what=\"join\", a=%m, b=[2])\n%y = view(%x, %n)\noutput %y\n", DT_FP32, 3, {4, 3, 2}, 1},
	{HEAD "%c = measure(what=\"is_floating_point\", self=%x)\nif(%c)\n%p = linear(%x, %w)\nelse()\n%q = relu(%x)\n%y = endif(%p, %q)\noutput %y\n", DT_FP32, 2, {4, 8}, 1},
	/* what a number of the data is compared with is a truth value, which data decide: the larger side, 32 elements */
	{HEAD "%n = measure(what=\"int\", self=%x)\n%c = math(what=\"gt\", a=%n, b=3)\nif(%c)\n%p = relu(%x)\nelse()\n%q = linear(%x, %w)\n%y = endif(%p, %q)\noutput %y\n", DT_FP32, 2, {4, 8}, 1},
	/* statistics of 4 variables, 6 observations each */
	{HEAD "%y = cov(%x)\noutput %y\n", DT_FP32, 2, {4, 4}, 1},
	{HEAD "%y = corrcoef(%x)\noutput %y\n", DT_FP32, 2, {4, 4}, 1},
	{HEAD "%v = select(%x, 0, 0)\n%y = cov(%v)\noutput %y\n", DT_FP32, 0, {0}, 2},
	/* powers 0 to 2 of 6 elements, of as many as there are, and of each row */
	{HEAD "%v = select(%x, 0, 0)\n%y = vander(%v, 3)\noutput %y\n", DT_FP32, 2, {6, 3}, 2},
	{HEAD "%v = select(%x, 0, 0)\n%y = vander(%v, increasing=true)\noutput %y\n", DT_FP32, 2, {6, 6}, 2},
	{HEAD "%y = linalg_vander(%x, N=5)\noutput %y\n", DT_FP32, 3, {4, 6, 5}, 1},
	/* a row of 6 and a column of 4 */
	{HEAD "%v = select(%x, 0, 0)\n%u = select(%x, 1, 0)\n%l : list = meshgrid([%v, %u])\n%p = list(what=\"get\", a=%l, b=1)\n%y = relu(%p)\noutput %y\n", DT_FP32, 2, {6, 4}, 4},
	{HEAD "%v = select(%x, 0, 0)\n%u = select(%x, 1, 0)\n%l : list = meshgrid([%v, %u], indexing=\"xy\")\n%p = list(what=\"get\", a=%l, b=1)\n%y = relu(%p)\noutput %y\n", DT_FP32, 2, {4, 6}, 4},
	{HEAD "%v = select(%x, 0, 0)\n%y = vstack([%v, %v])\noutput %y\n", DT_FP32, 2, {2, 6}, 2},
	{HEAD "%s = sum(%x)\n%y = atleast_1d(%s)\noutput %y\n", DT_FP32, 1, {1}, 2},
	{HEAD "%s = sum(%x)\n%y = atleast_2d(%s)\noutput %y\n", DT_FP32, 2, {1, 1}, 2},
	{HEAD "%v = view(%x, [4, 2, 3])\n%l : list = dsplit(%v, 3)\n%p = list(what=\"get\", a=%l, b=0)\n%y = relu(%p)\noutput %y\n", DT_FP32, 3, {4, 2, 1}, 3},
	{HEAD "%y = multinomial(%x, 2)\noutput %y\n", DT_INT64, 2, {4, 2}, 1},
	/* all elements, at most */
	{HEAD "%m = gt(%x, 0)\n%y = masked_select(%x, %m)\noutput %y\n", DT_FP32, 1, {24}, 2},
	/* the lower triangle of 4 rows of 3: 1 + 2 + 3 + 3; two diagonals further down 0 + 0 + 1 + 2; of a million rows 3 each, less 3 */
	{HEAD "%y = tril_indices(4, 3)\noutput %y\n", DT_INT64, 2, {2, 9}, 1},
	{HEAD "%y = tril_indices(4, 3, -2)\noutput %y\n", DT_INT64, 2, {2, 3}, 1},
	{HEAD "%y = tril_indices(4, 3, 9223372036854775807)\noutput %y\n", DT_INT64, 2, {2, 12}, 1},
	{HEAD "%y = tril_indices(3000000, 3)\noutput %y\n", DT_INT64, 2, {2, 8999997}, 1},
	{HEAD "%l : list = split(%x, [4, 2], 1)\n%p = list(what=\"get\", a=%l, b=-1)\n%y = relu(%p)\noutput %y\n", DT_FP32, 2, {4, 2}, 2},
	/* 3 frequencies and 2 frames of 4 at a step of 1: 4 + 1 * 1 places, of which center takes 2 at both ends */
	{HEAD "%z = complex(%x, %x)\n%v = view(%z, [4, 3, 2])\n%y = istft(%v, 4, 1)\noutput %y\n", DT_FP32, 2, {4, 1}, 3},
	/* what has no row keeps the shape of what it is given, and so does what follows; a linear layer knows its own last dim */
	{HEAD "%u = \"my.op\"(%x)\n%v = relu(%u)\n%y = linear(%v, %w)\noutput %y\n", DT_FP32, 2, {4, 8}, 3},
	/* of operands the one with real numbers */
	{HEAD "%i = arange(end=5)\n%u = \"my.op\"(%i, %x)\n%y = relu(%u)\noutput %y\n", DT_FP32, 2, {4, 6}, 3},
	/* a guess of [4, 6] that does not go with [3, 8]: what is known counts */
	{HEAD "%u = \"my.op\"(%x)\n%o = ones([3, 8])\n%y = add(%u, %o)\noutput %y\n", DT_FP32, 2, {3, 8}, 3},
	/* n elements, which data decides, meet [4, 6] */
	{HEAD "%n = measure(what=\"int\", self=%x)\n%a = arange(end=%n)\n%y = add(%x, %a)\noutput %y\n", DT_FP32, 2, {4, 6}, 2},
};

static void
shapes_are_inferred(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		struct analysed a = inspect(shapes[i].text, 4);
		const struct graph *g = a.r->r.g;

		assert_int_equal(g->noutput, 1);
		check_dims(g, g->outputs[0], shapes[i].dtype, shapes[i].n, shapes[i].dim);
		no_prims(g);
		assert_int_equal(g->nnode - 1, shapes[i].nodes);
		release_analysis(a);
	}
}

/* What data decides is unknown, and nothing that it decides gets a size. */
static void
unknown_stays_unknown(void **state)
{
	struct analysed a = inspect(HEAD "%n = measure(what=\"int\", self=%x)\n%y = arange(end=%n)\n%z = relu(%y)\noutput %z\n", 4);
	const struct graph *g = a.r->r.g;

	(void)state;
	no_prims(g);
	assert_int_equal(g->vals[g->outputs[0]].rank, RANK_UNKNOWN);
	release_analysis(a);
}

/* Dims that nobody knows, of y and z, are not dims of size 0, whether what y looks into was a guess or not; what is computed from a guess is one. */
static void
unknown_dims_are_unsized(void **state)
{
	static const struct {
		const char *maker, *next;
		unsigned unsure, said;
	} cases[] = {{"onnx.Relu(X=%a)", "onnx.Reshape(data=%u, shape=%k)", 2, 1}, {"\"my.op\"(%a)", "onnx.Reshape(data=%u, shape=%k)", 3, 1}, {"\"my.op\"(%a)", "onnx.Relu(X=%u)", 3, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char text[512];
		mc_model *m = NULL;
		mc_report *rep = NULL;
		unsigned said = 0;

		snprintf(text, sizeof text, "memcrest-ir 1\ninput %%x : fp32[4, 6]\ninput %%k : int64[2]\nparam %%w \"w\" : fp32[6] trainable\n%%a : fp32[4, 6] = onnx.Mul(A=%%x, B=%%w)\n"
		    "%%u = %s\n%%y = %s\n%%z = onnx.Relu(X=%%y)\n%%l : fp32[] = onnx.ReduceSum(data=%%a, keepdims=0)\noutput %%l\noutput %%z\n", cases[i].maker, cases[i].next);
		assert_int_equal(mc_load_memory(text, strlen(text), "test", NULL, &m), MC_OK);
		assert_int_equal(mc_analyze(m, NULL, NULL, &rep), MC_INCOMPLETE);
		assert_int_equal(rep->r.values - rep->r.sized, cases[i].unsure);
		for (uint32_t k = 0; k < rep->r.ndiag; k++)
			said += rep->r.diags[k].code == DIAG_UNSIZED;
		assert_int_equal(said, cases[i].said);
		mc_report_free(rep);
		mc_model_free(m);
	}
}

/* What reads a value of unknown dims may declare its own: the gradient goes through to w all the same, 512 bytes that sgd finds. */
static void
unknown_dims_have_a_history(void **state)
{
	static const char *const between[] = {"%y = onnx.Reshape(data=%a, shape=%k)\n%z : fp32[4, 6] = \"my.op\"(%y)\n", "%z : fp32[4, 6] = \"my.op\"(%a)\n"};
	uint64_t end[2];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		char text[512];
		mc_model *m = NULL;
		mc_report *rep = NULL;

		snprintf(text, sizeof text, "memcrest-ir 1\ninput %%x : fp32[4, 6]\ninput %%k : int64[2]\nparam %%w \"w\" : fp32[6] trainable\n%%a : fp32[4, 6] = onnx.Mul(A=%%x, B=%%w)\n"
		    "%s%%l : fp32[] = onnx.ReduceSum(data=%%z, keepdims=0)\noutput %%l\n", between[i]);
		assert_int_equal(mc_load_memory(text, strlen(text), "test", NULL, &m), MC_OK);
		assert_int_equal(mc_analyze(m, NULL, NULL, &rep), MC_INCOMPLETE);
		end[i] = rep->r.steps[2].phases[PH_OPTIMIZER].tensors;
		mc_report_free(rep);
		mc_model_free(m);
	}
	assert_int_equal(end[0], end[1]);
	assert_true(end[0] >= 4 * 512);
}

/* A value that a guess made is one of those that have no sure size, as long as nothing known agrees with it. */
static void
guesses_are_counted(void **state)
{
	static const char text[] = HEAD "%u = \"my.op\"(%x)\n%v = relu(%u)\n%z = add(%v, %x)\n%y = linear(%z, %w)\n%l = sum(%y)\noutput %l\n";
	mc_recipe *recipe = mc_recipe_new();
	mc_model *m = NULL;
	mc_report *rep = NULL;
	unsigned said = 0;

	(void)state;
	mc_recipe_set_dim(recipe, "b", 4);
	assert_int_equal(mc_load_memory(text, sizeof text - 1, "test", NULL, &m), MC_OK);
	assert_int_equal(mc_analyze(m, recipe, NULL, &rep), MC_INCOMPLETE);
	assert_int_equal(rep->r.values - rep->r.sized, 2);         /* u and v; x agrees with z */
	for (uint32_t i = 0; i < rep->r.ndiag; i++)
		said += rep->r.diags[i].code == DIAG_GUESSED;
	assert_int_equal(said, 1);
	mc_report_free(rep);
	mc_recipe_free(recipe);
	mc_model_free(m);
}

/* What the file declares is taken as it is, even where it is not what the row would give. */
static void
declared_values_stay(void **state)
{
	struct analysed a = inspect(HEAD "%y : fp32[4, 9] = linear(%x, %w)\n%z = relu(%y)\noutput %z\n", 4);
	const int64_t want[] = {4, 9};

	(void)state;
	check_dims(a.r->r.g, a.r->r.g->outputs[0], DT_FP32, 2, want);
	release_analysis(a);
}

static void
notes_say_what_data_decided(void **state)
{
	struct analysed a = inspect(HEAD "%c = measure(what=\"int\", self=%x)\n%i, %t = loop(%c, none, %x)\n%u = relu(%t)\n%y = endloop(true, %u)\n"
	    "%d = measure(what=\"bool\", self=%y)\nif(%d)\n%p = relu(%y)\nelse()\n%z = endif(%p, %y)\noutput %z\n", 4);
	unsigned hits = 0;

	(void)state;
	for (uint32_t i = 0; i < a.r->r.nassumption; i++)
		hits += strstr(a.r->r.assumptions[i].p, "data decides") != NULL;
	assert_int_equal(hits, 2);
	release_analysis(a);
}

/* A trace that took 3 pieces out of 4 rows cannot be followed. */
static void
pieces_must_fit(void **state)
{
	static const char text[] = HEAD "%l : list = unbind(%x)\n%p = list(what=\"piece\", a=%l, b=1, c=none, d=3)\n%y = relu(%p)\noutput %y\n";
	mc_recipe *r = mc_recipe_new();
	mc_model *m;
	mc_report *rep;
	mc_diagnostic d[2];

	(void)state;
	assert_int_equal(mc_load_memory(text, sizeof text - 1, "test", NULL, &m), MC_OK);
	mc_recipe_set_dim(r, "b", 4);
	assert_int_equal(mc_inspect(m, r, NULL, &rep), MC_BAD_INPUT);
	assert_int_equal(mc_report_diagnostics(rep, d, 2), 1);
	assert_string_equal(d[0].code, "E112");
	mc_report_free(rep);
	mc_model_free(m);
	mc_recipe_free(r);
}

/* Regions that do not match, and loops without end, are refused. */
static void
broken_programs(void **state)
{
	static const char *const text[] = {
		HEAD "else()\noutput %x\n", HEAD "if(false)\noutput %x\n", HEAD "%y = endif(%x, %x)\noutput %y\n", HEAD "%y = endloop(true, %x)\noutput %y\n",
		HEAD "%i = loop(none, true)\nendloop(true)\noutput %x\n", HEAD "if(true)\n%y = endloop(true, %x)\noutput %y\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
		mc_model *m;
		mc_report *rep;

		assert_int_equal(mc_load_memory(text[i], strlen(text[i]), "test", NULL, &m), MC_OK);
		assert_int_equal(mc_inspect(m, NULL, NULL, &rep), MC_BAD_INPUT);
		mc_report_free(rep);
		mc_model_free(m);
	}
}

/*
 * torch's map, scan and while_loop over 6 pieces x of [64, 256] fp32 with a linear layer of 256 to 256. Weight, bias and batch are 262,144 + 1,024 + 393,216 bytes, a piece
 * is 65,536. The map's forward holds 6 results and their stack, 786,432 bytes over these, which is what real PyTorch allocates on the CPU (torch 2.13,
 * every allocation counted); its backward 6 gradients of the weight and their stack, at least (torch's own takes a third more over these).
 * scan: the first state, 6 states that tanh keeps, 6 results and their stack. while_loop: 4 turns, which a tensor counts from 0; tanh's results, the last turn's sum
 * in front of it, and the loss.
 */
static void
turns_are_written_out(void **state)
{
	static const struct {
		const char *file;
		uint64_t forward, backward;
	} table[] = {
		{"fixtures/ops/map.pt2", 656384 + 786432, 656384 + 12 * 262144}, {"fixtures/ops/scan.pt2", 656384 + 65536 + 3 * 393216, 656384},
		{"fixtures/ops/while.pt2", 656384 + 5 * 65536 + 512, 656384},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		static const char json[] = "{\"optimizer\": \"sgd\"}";
		mc_model *m = NULL;
		mc_report *r = NULL;
		mc_recipe *recipe = mc_recipe_new();

		assert_int_equal(mc_load_path(table[i].file, NULL, &m), MC_OK);
		assert_int_equal(mc_recipe_json(recipe, json, strlen(json), NULL), MC_OK);
		assert_int_equal(mc_analyze(m, recipe, NULL, &r), MC_INCOMPLETE);      /* torch's own keeps more */
		assert_int_equal(r->r.steps[1].phases[PH_FORWARD].tensors, table[i].forward);
		assert_true(r->r.steps[1].phases[PH_BACKWARD].tensors >= table[i].backward);
		mc_report_free(r);
		mc_recipe_free(recipe);
		mc_model_free(m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes_are_inferred), cmocka_unit_test(unknown_stays_unknown), cmocka_unit_test(guesses_are_counted), cmocka_unit_test(unknown_dims_are_unsized), cmocka_unit_test(unknown_dims_have_a_history),
		cmocka_unit_test(declared_values_stay), cmocka_unit_test(notes_say_what_data_decided),
		cmocka_unit_test(pieces_must_fit), cmocka_unit_test(broken_programs), cmocka_unit_test(turns_are_written_out),
	};

	return cmocka_run_group_tests_name("infer", tests, NULL, NULL);
}
