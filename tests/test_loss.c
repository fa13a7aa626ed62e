/* Which loss is appended to a graph that has none, and on what evidence; the recipe's word goes first. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#define TOKENS \
	"memcrest-ir 1\ninput %ids : int64[2, 8]\nparam %w \"embed.weight\" : fp32[32, 16] trainable\n%h : fp32[2, 8, 16] = embedding(%w, %ids)\n"
#define ATTENTION(more) \
	"%q : fp32[2, 1, 8, 16] = reshape(%h, [2, 1, 8, 16])\n%o : fp32[2, 1, 8, 16] = scaled_dot_product_attention(%q, %q, %q" more ")\n%a : fp32[2, 8, 16] = reshape(%o, [2, 8, 16])\n"
#define HEAD(of) "%y : fp32[2, 8, 32] = linear(" of ", %w)\noutput %y\n"

static const struct case_of {
	const char *graph, *loss;
} cases[] = {
	{TOKENS HEAD("%h"), "causal-lm"},
	{TOKENS ATTENTION(", is_causal=true") HEAD("%a"), "causal-lm"},
	{TOKENS "input %bias : fp32[2, 1, 8, 8]\n" ATTENTION(", attn_mask=%bias") HEAD("%a"), "causal-lm"},      /* a mask that says who knows what */
	{TOKENS ATTENTION("") HEAD("%a"), "cross-entropy"},
	{TOKENS ATTENTION("") "%b : fp32[2, 1, 8, 16] = scaled_dot_product_attention(%o, %o, %o, is_causal=true)\n%c : fp32[2, 8, 16] = reshape(%b, [2, 8, 16])\n" HEAD("%c"), "causal-lm"},
	{TOKENS "input %decoder_input_ids : int64[2, 8]\n%d : fp32[2, 8, 16] = embedding(%w, %decoder_input_ids)\n%s : fp32[2, 8, 16] = add(%h, %d)\n" HEAD("%s"), "cross-entropy"},
	{"memcrest-ir 1\ninput %x : fp32[4, 8]\nparam %w \"w\" : fp32[16, 8] trainable\n%y : fp32[4, 16] = linear(%x, %w)\noutput %y\n", "cross-entropy"},
	{"memcrest-ir 1\ninput %x : fp32[4, 8]\nparam %w \"w\" : fp32[8, 8] trainable\n%y : fp32[4, 8] = linear(%x, %w)\noutput %y\n", "mse"},
	{"memcrest-ir 1\ninput %x : fp32[4, 8]\nparam %w \"w\" : fp32[1, 8] trainable\n%y : fp32[4, 1] = linear(%x, %w)\noutput %y\n", "mse"},
};

static bool
says(const struct analysed *a, const char *loss)
{
	char text[128];
	int n = snprintf(text, sizeof text, "the graph has no scalar loss: %s appended (loss=auto): ", loss);

	for (uint32_t i = 0; i < a->r->r.nassumption; i++)
		if (!strncmp(a->r->r.assumptions[i].p, text, (size_t)n))
			return true;
	return false;
}

static void
evidence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char recipe[64];
		struct analysed a = test_analyse(cases[i].graph, "{}"), b;

		snprintf(recipe, sizeof recipe, "{\"loss\": \"%s\"}", cases[i].loss);
		b = test_analyse(cases[i].graph, recipe);
		if (!says(&a, cases[i].loss))
			fail_msg("case %zu: not %s", i, cases[i].loss);
		for (unsigned k = 1; k <= 2; k++)
			assert_int_equal(a.r->r.steps[k].phases[PH_BACKWARD].tensors, b.r->r.steps[k].phases[PH_BACKWARD].tensors);
		assert_false(says(&b, cases[i].loss));
		release_analysis(a);
		release_analysis(b);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(evidence)};

	return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
