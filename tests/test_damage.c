/* Damaged files: every copy that is cut off is refused in one line, and no flipped byte does harm. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

static size_t
count_errors(const mc_model *m)
{
	mc_diagnostic d[16];
	size_t n = mc_model_diagnostics(m, d, 16), errors = 0;

	for (size_t i = 0; i < n && i < 16; i++)
		errors += d[i].code[0] == 'E';
	return errors;
}

static void
cut(const char *path, size_t step)
{
	size_t n;
	char *p = test_read(path, &n);

	for (size_t keep = 0; keep < n; keep += step) {
		char *copy = malloc(keep + 1);     /* its own block, so that reading behind it is seen */
		mc_model *m;

		assert_non_null(copy);
		memcpy(copy, p, keep);
		assert_int_equal(mc_load_memory(copy, keep, "cut", NULL, &m), MC_BAD_INPUT);
		assert_int_equal(count_errors(m), 1);
		mc_model_free(m);
		free(copy);
	}
	free(p);
}

static void
cut_files_are_refused(void **state)
{
	(void)state;
	cut("fixtures/models/mlp.pt2", 97);
	cut("fixtures/models/llama_tiny.train.pt2", 20011);
	cut("fixtures/models/llava_tiny.train.pt2", 50021);
	cut("fixtures/models/toy_vlm.train.pt2", 100003);
	cut("fixtures/models/toy_control.scripted.pt", 101);
	cut("fixtures/models/llava_tiny.train.pt", 5003);
	cut("fixtures/models/gpt2.train.pt", 20011);
	cut("fixtures/models/llava_7b.train.bf16.stack.pt2", 300007);
	cut("fixtures/models/toy_control.scripted.legacy.onnx", 97);
	cut("fixtures/models/torch1_fn.onnx", 397);
	cut("fixtures/models/llama_tiny.train.opset23.onnx", 2503);
	cut("fixtures/models/llava_tiny.train.onnx", 20011);
}

static void
analyse_anyway(const char *p, size_t n)
{
	static const char recipe[] = "{\"dims\": {\"batch\": 3, \"x[0]\": 3, \"x[1]\": 8}, \"precision\": \"bf16-mixed\", \"checkpoint\": \"non-reentrant\"}";
	mc_recipe *r = mc_recipe_new();
	mc_model *m;
	mc_report *rep;

	mc_recipe_json(r, recipe, sizeof recipe - 1, NULL);
	if (mc_load_memory(p, n, "flipped", NULL, &m) == MC_OK) {
		mc_analyze(m, r, NULL, &rep);
		mc_report_free(rep);
	} else {
		assert_true(count_errors(m) >= 1);
	}
	mc_model_free(m);
	mc_recipe_free(r);
}

/* Checksums would stop a flip in the archive, so the text form stands for what a file can say. */
static void
flipped_bytes_do_no_harm(void **state)
{
	size_t n;
	char *p = test_read("fixtures/models/mlp.pt2", &n);

	(void)state;
	for (size_t i = 0; i < n; i += 11) {
		p[i] = (char)(p[i] ^ (1 << i % 8));
		analyse_anyway(p, n);
		p[i] = (char)(p[i] ^ (1 << i % 8));
	}
	free(p);
	for (unsigned k = 0; k < 3; k++) {
		static const char *const paths[] = {"fixtures/models/toy_control.scripted.legacy.onnx", "fixtures/models/torch1_misc_tr.onnx", "fixtures/models/torch1_fn.onnx"};

		p = test_read(paths[k], &n);
		for (size_t i = 0; i < n; i += 13) {
			p[i] = (char)(p[i] ^ (1 << i % 8));
			analyse_anyway(p, n);
			p[i] = (char)(p[i] ^ (1 << i % 8));
		}
		free(p);
	}
	p = test_read("fixtures/ir/mixed.ir", &n);
	for (size_t i = 0; i < n; i++) {
		char kept = p[i];

		for (unsigned k = 0; k < 3; k++) {
			p[i] = "0%\xff"[k];
			analyse_anyway(p, n);
		}
		p[i] = kept;
	}
	free(p);
}

/* A program that has most of what the emitted language has. */
static const char code[] =
    "class Net(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = []\n  w : Tensor\n  def forward(self: __torch__.m.Net,\n    x: Tensor,\n    y: Optional[Tensor]=None) -> Tensor:\n"
    "    w = self.w\n    a, b, = torch.size(x)\n    if torch.__isnot__(y, None):\n      z = torch.linear(x, w)\n    else:\n      z = torch.relu(x)\n"
    "    l = annotate(List[Tensor], [])\n    for i in range(torch.len(torch.size(x))):\n      if torch.gt(torch.mul(a, i), 2):\n        u = torch.add(z, 1.5e-3)\n      else:\n        u = z\n"
    "      _0 = torch.append(l, u)\n    c = bool(torch.gt(torch.sum(z), 0))\n    while c:\n      d = False\n      c = d\n    m, n = torch.max(torch.stack(l), 1)\n"
    "    p = {\"k\": (m, -3)}\n    q = torch.view((p[\"k\"])[0], [-1, torch.add(a, 0)])\n    return __torch__.m.f(q, k=[1, 2], )\n"
    "def f(q: Tensor,\n    k: List[int]) -> Tensor:\n  return torch.mean(torch.transpose(q, 0, k[0]))\n";

static void
run_code(const char *text, const char *state)
{
	struct test_buf z = test_script(text, state);

	analyse_anyway(z.p, z.n);
	free(z.p);
}

static void
flipped_code_does_no_harm(void **state)
{
	static const char with[] = "0(,.x\n\xff";
	char text[sizeof code];

	(void)state;
	for (size_t i = 0; i < sizeof code - 1; i++)
		for (size_t k = 0; k < sizeof with - 1; k += 1 + i % 2) {
			memcpy(text, code, sizeof code);
			text[i] = with[k];
			run_code(text, "w=Float 8x8");
		}
}

/* Bytes of data.pkl, behind a checksum that fits. */
static void
flipped_modules_do_no_harm(void **state)
{
	struct test_buf z = test_script(code, "w=Float 8x8; n=3; s='text'; t=None; sub=__torch__.m.Net{w=Half 2x2; b=True}");
	static const unsigned char with[] = {'(', 'u', 't', 'R', '.', 'h', 0, 0xff};
	const char *pkl = memmem(z.p, z.n, "\x80\x02" "c__torch__", 11);
	size_t n = (size_t)((const char *)memmem(z.p, z.n, "PK\1\2", 4) - pkl);

	(void)state;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof with; k++) {
			char *copy = malloc(n);
			struct test_member m[3] = {{"a/code/__torch__/m.py", code, sizeof code - 1}, {"a/constants.pkl", "\x80\x02).", 4}, {"a/data.pkl", copy, n}};
			struct test_buf flipped;

			assert_non_null(copy);
			memcpy(copy, pkl, n);
			copy[i] = (char)with[k];
			flipped = test_zip(m, 3);
			analyse_anyway(flipped.p, flipped.n);
			free(flipped.p);
			free(copy);
		}
	free(z.p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_files_are_refused), cmocka_unit_test(flipped_bytes_do_no_harm), cmocka_unit_test(flipped_code_does_no_harm), cmocka_unit_test(flipped_modules_do_no_harm),
	};

	return cmocka_run_group_tests_name("damage", tests, NULL, NULL);
}
