/*
 * Tiny graphs whose every byte is derived here by hand. Sizes are multiples of 512, so that nothing is rounded but scalars:
 * x fp32[128, 256] is 131072 B, w fp32[512, 256] is 524288 B, y = x w^T fp32[128, 512] is 262144 B; a scalar is 512 B.
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\n"

enum { X = 131072, W = 524288, Y = 262144, U = 512, BASE = X + W };

struct want {
	uint64_t forward, backward, optimizer, forward_end;
};

static void
check(const char *graph, const char *recipe, const struct want *step1, const struct want *step2)
{
	struct analysed a = test_analyse(graph, recipe);
	const struct want *want[] = {step1, step2};

	for (unsigned i = 0; i < 2; i++) {
		const struct step_row *st = &a.r->r.steps[i + 1];

		assert_int_equal(st->phases[PH_FORWARD].tensors, want[i]->forward);
		assert_int_equal(st->phases[PH_BACKWARD].tensors, want[i]->backward);
		assert_int_equal(st->phases[PH_OPTIMIZER].tensors, want[i]->optimizer);
		assert_int_equal(st->forward_end, want[i]->forward_end);
	}
	release_analysis(a);
}

/*
 * y = x w^T; loss = sum(y).  Forward: y, then the loss; sum saves nothing, so y goes.  Backward: the root gradient; its expansion is a
 * view; dw in w's layout, which .grad takes over. The input needs no gradient.  SGD needs nothing.
 */
static void
linear_sgd(void **state)
{
	const struct want w = {BASE + Y + U, BASE + U + U + W, BASE + W, BASE + U};

	(void)state;
	check(HEAD "%y : fp32[128, 512] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n", "{\"optimizer\": \"sgd\"}", &w, &w);
}

/* The same with AdamW, foreach: two states of w's size from step 1 on, and one list of square roots while step() runs. */
static void
linear_adamw(void **state)
{
	const struct want a = {BASE + Y + U, BASE + U + U + W, BASE + W + 2 * W + W, BASE + U};
	const struct want b = {a.forward + 2 * W, a.backward + 2 * W, a.optimizer, a.forward_end + 2 * W};

	(void)state;
	check(HEAD "%y : fp32[128, 512] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n", "{}", &a, &b);
}

/*
 * relu saves its result r, which sum does not; y goes when r is made.  Backward: sum's expansion is a view, relu's gradient is one r;
 * when it is there r's slot is released; dw is made while relu's gradient is still alive.
 *   highest: root, r, relu's gradient = U + 2 Y; or root, relu's gradient, dw = U + Y + W.  W = 2 Y, so the second.
 */
static void
relu_saves_its_result(void **state)
{
	const struct want w = {BASE + 2 * Y, BASE + U + U + Y + W, BASE + W, BASE + Y + U};

	(void)state;
	check(HEAD "%y : fp32[128, 512] = linear(%x, %w)\n%r : fp32[128, 512] = relu(%y)\n%l : fp32[] = sum(%r)\noutput %l\n", "{\"optimizer\": \"sgd\"}", &w, &w);
}

/*
 * Frozen w, trainable scale s of y's size: mul saves y (for ds) but not s (y needs no gradient).
 *   forward: w, x, s; y; m = y * s; loss when m is still there; then m goes.  backward: root, and ds = g * y.
 */
static void
frozen_weight(void **state)
{
	const uint64_t base = BASE + Y;
	const struct want w = {base + 2 * Y + U, base + Y + U + U + Y, base + Y, base + Y + U};

	(void)state;
	check("memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\nparam %s \"scale\" : fp32[128, 512] trainable\n"
	    "%y : fp32[128, 512] = linear(%x, %w)\n%m : fp32[128, 512] = mul(%y, %s)\n%l : fp32[] = sum(%m)\noutput %l\n",
	    "{\"optimizer\": \"sgd\", \"freeze\": [\"fc\"]}", &w, &w);
}

/*
 * bf16 autocast over fp32: casts of w (cached until the context ends) and of x, each half its size; y in bf16. sum runs in
 * fp32 and reads bf16.  addmm's backward keeps x's cast (for dw).  At the end of forward the cache goes: x's cast and the loss stay.
 *   forward: W/2 + X/2 + Y/2 + loss.
 *   backward: the root (fp32), its expansion is a view in fp32; the engine casts it to y's dtype (Y/2); dw in bf16 (W/2) while
 *   x's cast and the cast gradient are alive; then those two go and dw is cast to fp32: W/2 + W.
 */
static void
autocast(void **state)
{
	const struct want w = {BASE + W / 2 + X / 2 + Y / 2 + U, BASE + U + U + W / 2 + W, BASE + W, BASE + X / 2 + U};

	(void)state;
	check(HEAD "%y : fp32[128, 512] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n", "{\"optimizer\": \"sgd\", \"precision\": \"bf16-mixed\"}", &w, &w);
}

/*
 * reshape_as: y^T is no view of [256, 256], so a copy is made; its operand o is an input of the same size and is not kept.
 * y goes when the copy is there, the copy when the loss is.  Backward: the root and its expansion are views all the way to dw.
 */
static void
reshape_as_copies(void **state)
{
	const uint64_t base = BASE + Y;
	const struct want w = {base + 2 * Y, base + U + U + W, base + W, base + U};

	(void)state;
	check(HEAD "input %o : fp32[256, 256]\n%y : fp32[128, 512] = linear(%x, %w)\n%t : fp32[512, 128] = transpose(%y, 0, 1)\n%r : fp32[256, 256] = reshape_as(%t, %o)\n"
	    "%l : fp32[] = sum(%r)\noutput %l\n", "{\"optimizer\": \"sgd\"}", &w, &w);
}

/*
 * w used twice, by the same operator on the same input: both gradients meet in AccumulateGrad's buffer. The first is a view (the
 * transposed product), so the sum is a third buffer; the sum is taken over as .grad.
 *   forward: y1, y2, z = y1 + y2 together: 3 Y; the loss comes when y1 and y2 are gone.
 *   backward: root (a view of it flows to both): dw2; dw1 beside it; their sum while both are alive: 3 W.
 */
static void
two_uses(void **state)
{
	const struct want w = {BASE + 3 * Y, BASE + U + U + 3 * W, BASE + W, BASE + U};

	(void)state;
	check(HEAD "%a : fp32[128, 512] = linear(%x, %w)\n%b : fp32[128, 512] = linear(%x, %w)\n%z : fp32[128, 512] = add(%a, %b)\n%l : fp32[] = sum(%z)\noutput %l\n",
	    "{\"optimizer\": \"sgd\"}", &w, &w);
}

/* Two micro-batches: the second gradient is added in place into the first, which lives through the second forward. */
static void
accumulation(void **state)
{
	const struct want w = {BASE + W + Y + U, BASE + U + U + 2 * W, BASE + W, BASE + W + U};

	(void)state;
	check(HEAD "%y : fp32[128, 512] = linear(%x, %w)\n%l : fp32[] = sum(%y)\noutput %l\n", "{\"optimizer\": \"sgd\", \"grad_accum\": 2}", &w, &w);
}

/*
 * Two blocks of gelu(x w^T w2^T ..) under non-reentrant checkpointing keep only their inputs. One block: h = x a^T (X), o = gelu(h) (X),
 * both fp32[128, 256]; a fp32[256, 256] is 262144 = A.  Without checkpointing forward would end with o0 .. and h0, h1 saved.
 *   forward: block 0: h0, o0 (h0 goes when o0 is there); block 1 likewise; the loss. Peak: o0 + h1 + o1 = 3 X (o0 is block 1's input).
 *   forward_end: o0 and the loss (x belongs to the batch).
 *   backward, block 1: gelu's slot (h1) is asked for: the rerun makes h1 and, because gelu saves its input before it runs, stops
 *   there. gelu's gradient; h1 goes; da1 (A) and then dx (X) while gelu's gradient is alive: o0 + X + A + X; o0 goes after it.
 *   block 0: h0 again beside the incoming gradient and da1: A + X + X + gelu's X; then gelu's gradient, da1, da0.
 *   highest: A (da1) + X (incoming) + X (h0) + X (gelu's) = A + 3 X;  or A + X (gelu's) + A.  A = 2 X: the same, 5 X.
 *   block 1's own highest: o0 + X + A + X = 5 X as well.
 */
static void
checkpointed_blocks(void **state)
{
	const uint64_t x = X, a = 2 * X, base = x + 2 * a;
	const struct want w = {base + 3 * x, base + U + U + 5 * x, base + 2 * a, base + x + U};

	(void)state;
	check("memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %a0 \"layers.0.fc.weight\" : fp32[256, 256] trainable\n"
	    "param %a1 \"layers.1.fc.weight\" : fp32[256, 256] trainable\n"
	    "%h0 : fp32[128, 256] = linear(%x, %a0) @\"layers.0\":\"Block\"/\"layers.0.fc\":\"Linear\"\n%o0 : fp32[128, 256] = gelu(%h0) @\"layers.0\":\"Block\"\n"
	    "%h1 : fp32[128, 256] = linear(%o0, %a1) @\"layers.1\":\"Block\"/\"layers.1.fc\":\"Linear\"\n%o1 : fp32[128, 256] = gelu(%h1) @\"layers.1\":\"Block\"\n"
	    "%l : fp32[] = sum(%o1)\noutput %l\n",
	    "{\"optimizer\": \"sgd\", \"checkpoint\": \"non-reentrant\"}", &w, &w);
}

/*
 * Liger's fused loss: x fp32[128, 64] p^T = h, 32,768 bytes; w fp32[1024, 64], 262,144. 1,024 classes are 16 times 64 features, so a piece has 128 / 16 = 8
 * rows, whose logits are 32,768 bytes, too. Forward makes both gradients: beside h and the loss there are h's gradient, w's, the losses, the logits and w's gradient of the piece. The first
 * two stay for backward, h goes. Backward hands them over, and makes p's gradient, 16,384 bytes.
 */
static void
fused_loss(void **state)
{
	static const char graph[] = "memcrest-ir 1\ninput %x : fp32[128, 64]\ninput %t : int64[128]\nparam %p \"fc.weight\" : fp32[64, 64] trainable\nparam %w \"head.weight\" : fp32[1024, 64] trainable\n"
	    "%h : fp32[128, 64] = linear(%x, %p)\n%y : fp32[128, 1024] = linear(%h, %w)\n%l : fp32[] = cross_entropy_loss(%y, %t)\noutput %l\noutput %y\n";
	const uint64_t base = 32768 + 1024 + 16384 + 262144, h = 32768, w = 262144, u = 512;
	struct analysed a = test_analyse(graph, "{\"optimizer\": \"sgd\", \"fused_loss\": true}");
	const struct step_row *st = &a.r->r.steps[2];

	(void)state;
	assert_int_equal(st->phases[PH_FORWARD].tensors, base + h + u + h + w + u + h + w);
	assert_int_equal(st->forward_end, base + u + h + w);
	assert_int_equal(st->phases[PH_BACKWARD].tensors, base + 2 * u + h + w + 16384);
	assert_int_equal(st->phases[PH_OPTIMIZER].tensors, base + w + 16384);
	release_analysis(a);
}

/*
 * 70,000 operands of one node, which is more than 16 bits count: z = y 70,000 times, 1,120,000 bytes, in blocks of 512 1,120,256. Forward: w, y (which relu keeps), z and the
 * loss. Backward: the root; z's and the pieces' gradients are views of it; they are added up one by one, two of them at a time: the sum so far and the next.
 */
static void
many_operands(void **state)
{
	const struct want w = {2 * U + 1120256 + U, 3 * U + U + U + U, 2 * U, 3 * U};
	struct buf text = {0};

	(void)state;
	buf_str(&text, S("memcrest-ir 1\nparam %w \"w\" : fp32[4] trainable\n%y : fp32[4] = relu(%w)\n%z : fp32[280000] = cat([%y"));
	for (unsigned i = 1; i < 70000; i++)
		buf_str(&text, S(", %y"));
	buf_str(&text, S("])\n%l : fp32[] = sum(%z)\noutput %l\n"));
	buf_put(&text, "", 1);
	assert_false(text.failed);
	check(text.p, "{\"optimizer\": \"sgd\"}", &w, &w);
	free(text.p);
}

/*
 * Four calls of f at the same distance, whose arguments are made by the same operators. The sum that stands where the next argument would is another value, not the
 * argument bound anew, so that a goes when c is made of it, and c when f returns. Nothing in f is saved, whose weight does not train.
 *   forward: k1 lives until the sum; with it c, what linear gives and its tanh: 4 X; at the product with p there are less.
 */
static void
stages_are_no_turns(void **state)
{
	char graph[4096];
	int n = snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[128, 256]\nparam %%w \"f.w\" : fp32[256, 256]\nparam %%p \"p\" : fp32[128, 256] trainable\n");
	const uint64_t base = X + W / 2 + X;
	struct analysed a;

	(void)state;
	for (int i = 1; i <= 4; i++) {
		if (i == 1)
			n += snprintf(graph + n, sizeof graph - (size_t)n, "%%c1 : fp32[128, 256] = neg(%%x)\n");
		else
			n += snprintf(graph + n, sizeof graph - (size_t)n, "%%m%d : fp32[128, 256] = mul(%%k%d, 0.5)\n%%a%d : fp32[128, 256] = add(%%x, %%m%d)\n"
			    "%%s%d : fp32[128, 256] = neg(%%x)\n%%c%d : fp32[128, 256] = add(%%a%d, %%s%d)\n", i, i - 1, i, i, i, i, i, i);
		n += snprintf(graph + n, sizeof graph - (size_t)n, "%%l%d : fp32[128, 256] = linear(%%c%d, %%w) @\"f\":\"F\"\n%%k%d : fp32[128, 256] = tanh(%%l%d) @\"f\":\"F\"\n", i, i, i, i);
	}
	snprintf(graph + n, sizeof graph - (size_t)n, "%%m5 : fp32[128, 256] = mul(%%k4, 0.5)\n%%a5 : fp32[128, 256] = add(%%k1, %%m5)\n"
	    "%%z : fp32[128, 256] = mul(%%a5, %%p)\n%%l : fp32[] = sum(%%z)\noutput %%l\n");
	a = test_analyse(graph, "{\"optimizer\": \"sgd\"}");
	assert_int_equal(a.r->r.steps[2].phases[PH_FORWARD].tensors, base + 4 * X);
	release_analysis(a);
}

/*
 * A custom autograd.Function, which the stack traces show: it keeps h and w and nothing that it computes. x, s and w are 3 X. forward: h, a, y. At its end h and the loss.
 * backward: the loss, the root, h; a and y once more, a goes when y is there; y stays until the call is through: exp's gradient, then h's and w's. Outside of a Function exp
 * would have kept y.
 */
static void
custom_function(void **state)
{
	const struct want w = {6 * X, 8 * X + 2 * U, 5 * X, 4 * X + U};
	static const char graph[] = "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %s \"s\" : fp32[128, 256] trainable\nparam %w \"w\" : fp32[128, 256] trainable\n"
	    "%h : fp32[128, 256] = mul(%x, %s) !9 \"h = x * self.s\"\n"
	    "%a : fp32[128, 256] = mul(%h, %w) !10 \"y = Scaled.apply(h, self.w)\" !3 \"a = h * w\"\n"
	    "%y : fp32[128, 256] = exp(%a) !10 \"y = Scaled.apply(h, self.w)\" !4 \"return a.exp()\"\n"
	    "%l : fp32[] = sum(%y) !11 \"return y.sum()\"\noutput %l\n";
	struct analysed a = test_analyse(graph, "{\"optimizer\": \"sgd\"}");
	unsigned hits = 0;

	(void)state;
	for (uint32_t i = 0; i < a.r->r.nassumption; i++)
		hits += strstr(a.r->r.assumptions[i].p, "1 calls of a custom autograd.Function") != NULL;
	assert_int_equal(hits, 1);
	release_analysis(a);
	check(graph, "{\"optimizer\": \"sgd\"}", &w, &w);
}

/* A Function that is given parameters alone: their gradients, which sgd with momentum has buffers for, are there all the same. */
static void
custom_function_of_parameters(void **state)
{
	static const char *const calls[] = {" !10 \"y = Scaled.apply(self.s, self.w)\" !3 \"return s * w\"", ""};
	uint64_t end[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		char graph[1024];
		struct analysed a;

		snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[128, 256]\nparam %%s \"s\" : fp32[128, 256] trainable\nparam %%w \"w\" : fp32[128, 256] trainable\n"
		    "%%y : fp32[128, 256] = mul(%%s, %%w)%s\n%%z : fp32[128, 256] = add(%%x, %%y) !11 \"z = x + y\"\n%%l : fp32[] = sum(%%z) !12 \"return z.sum()\"\noutput %%l\n", calls[i]);
		a = test_analyse(graph, "{\"optimizer\": \"sgd-momentum\", \"optimizer_impl\": \"foreach\"}");
		end[i] = a.r->r.steps[2].phases[PH_OPTIMIZER].tensors;
		release_analysis(a);
	}
	assert_int_equal(end[0], end[1]);
	assert_true(end[0] >= 7 * X);
}

/*
 * Three sums one behind the other, of which two nodes read: a list. They live until the function returns, with e, which p's gradient needs, z and the loss. With two
 * sums, which may be parts of one expression, s1, s2 and c are the most at a time, and e, z and the loss at the end are fewer. Three that one node reads may be
 * its arguments: they and e are the most.
 */
static void
sums_in_a_row(void **state)
{
	static const char head[] = "memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %p \"p\" : fp32[128, 256] trainable\n%t : fp32[128, 256] = neg(%x) @\"f\":\"F\"\n"
	    "%s1 : fp32[128, 256] = add(%x, %t)\n%s2 : fp32[128, 256] = add(%x, %t)\n";
	static const char *const rest[] = {
		"%s3 : fp32[128, 256] = add(%x, %t)\n%c : fp32[128, 256] = mul(%s1, %s2)\n%e : fp32[128, 256] = mul(%c, %s3)\n",
		"%c : fp32[128, 256] = mul(%s1, %s2)\n%e : fp32[128, 256] = mul(%c, %x)\n",
		"%s3 : fp32[128, 256] = add(%x, %t)\n%e : fp32[128, 256] = addcmul(%s1, %s2, %s3)\n",
	};
	const uint64_t want[] = {2 * X + 5 * X + U, 2 * X + 3 * X, 2 * X + 4 * X};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		char graph[2048];
		struct analysed a;

		snprintf(graph, sizeof graph, "%s%s%%z : fp32[128, 256] = mul(%%e, %%p)\n%%l : fp32[] = sum(%%z)\noutput %%l\n", head, rest[i]);
		a = test_analyse(graph, "{\"optimizer\": \"sgd\"}");
		assert_int_equal(a.r->r.steps[2].phases[PH_FORWARD].tensors, want[i]);
		release_analysis(a);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fused_loss),
		cmocka_unit_test(linear_sgd), cmocka_unit_test(linear_adamw), cmocka_unit_test(relu_saves_its_result), cmocka_unit_test(frozen_weight),
		cmocka_unit_test(autocast), cmocka_unit_test(reshape_as_copies), cmocka_unit_test(two_uses), cmocka_unit_test(accumulation), cmocka_unit_test(checkpointed_blocks), cmocka_unit_test(many_operands),
		cmocka_unit_test(stages_are_no_turns), cmocka_unit_test(custom_function), cmocka_unit_test(custom_function_of_parameters), cmocka_unit_test(sums_in_a_row),
	};

	return cmocka_run_group_tests_name("hand", tests, NULL, NULL);
}
