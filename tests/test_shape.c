/* Types of ONNX operators: each case is a small graph as text; what is expected was worked out from the operator's specification. */
#include "test.h"

#include "../passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *graph;         /* without the first line; the value asked for is %y */
	const char *symbolic;      /* its type and elements after shape, as the text form has it */
	const char *bound;         /* after sizes, with b = 2 and s = 7; NULL = the same */
} cases[] = {
	/* broadcasting */
	{"input %a : fp32[b, 1, 4]\ninput %c : fp32[s, 1]\n%y = onnx.Add(A=%a, B=%c)", "fp32[b, s, 4]", "fp32[2, 7, 4]"},
	{"input %a : fp16[b]\ninput %c : fp16[s]\n%y = onnx.Mul(A=%a, B=%c)", "fp16[Max(b, s)]", "fp16[7]"},
	{"input %a : int64[3]\ninput %c : int64[3]\n%y = onnx.Less(A=%a, B=%c)", "bool[3]", NULL},
	/* a symbol that no input has, as exporters give outputs, says nothing */
	{"input %a : fp16[b]\ninput %c : fp16[s]\n%y : fp16[o] = onnx.Mul(A=%a, B=%c)", "fp16[Max(b, s)]", "fp16[7]"},
	/* sizes computed from sizes */
	{"input %a : fp32[b, s, 768]\nconst %i : int64[]{1}\n%h = onnx.Shape(data=%a)\n%y = onnx.Gather(data=%h, indices=%i)", "int64[]{s}", "int64[]{7}"},
	{"input %a : fp32[b, s, 768]\n%h = onnx.Shape(data=%a, start=-2)\n%y = onnx.ReduceProd(data=%h, keepdims=0)", "int64[]{(s*768)}", "int64[]{5376}"},
	{"input %a : fp32[b, s]\nconst %one : int64[1]{1}\n%h = onnx.Shape(data=%a)\n%y = onnx.Add(A=%h, B=%one)", "int64[2]{(b + 1), (s + 1)}", "int64[2]{3, 8}"},
	{"input %a : fp32[b, s]\nconst %m : int64[]{-1}\nconst %k : int64[]{512}\n%h = onnx.Shape(data=%a, start=1)\n%e = onnx.Equal(A=%h, B=%m)\n%y = onnx.Where(condition=%e, X=%k, Y=%h)",
	    "int64[1]{s}", "int64[1]{7}"},
	{"const %a : fp32[]{float(7.5)}\nconst %k : fp32[]{float(2)}\n%d = onnx.Mul(A=%a, B=%k)\n%f = onnx.Floor(X=%d)\n%y = onnx.Cast(input=%f, to=int64)", "int64[]{15}", NULL},
	/* reshaping: 0 copies, -1 is what is left */
	{"input %a : fp32[b, s, 768]\nconst %t : int64[4]{0, 0, 12, -1}\n%y = onnx.Reshape(data=%a, shape=%t)", "fp32[b, s, 12, 64]", "fp32[2, 7, 12, 64]"},
	{"input %a : fp32[b, s, 768]\nconst %t : int64[2]{-1, 768}\n%y = onnx.Reshape(data=%a, shape=%t)", "fp32[(b*s), 768]", "fp32[14, 768]"},
	{"input %a : fp32[b, s, 64]\n%h = onnx.Shape(data=%a)\nconst %m : int64[1]{-1}\nconst %i : int64[]{1}\n%g = onnx.Gather(data=%h, indices=%i)\nconst %z : int64[1]{0}\n"
	    "%u = onnx.Unsqueeze(data=%g, axes=%z)\n%t = onnx.Concat(inputs=[%m, %u], axis=0)\n%y = onnx.Reshape(data=%a, shape=%t)", "fp32[(b*64), s]", "fp32[128, 7]"},
	{"input %a : fp32[b, 1, s, 1]\nconst %x : int64[2]{-1, 1}\n%y = onnx.Squeeze(data=%a, axes=%x)", "fp32[b, s]", "fp32[2, 7]"},
	{"input %a : fp32[s]\nconst %x : int64[2]{0, 2}\n%y = onnx.Unsqueeze(data=%a, axes=%x)", "fp32[1, s, 1]", "fp32[1, 7, 1]"},
	{"input %a : fp32[1, 4]\nconst %t : int64[3]{3, 2, 1}\n%y = onnx.Expand(input=%a, shape=%t)", "fp32[3, 2, 4]", NULL},
	{"input %a : fp32[b, 3, s]\n%y = onnx.Flatten(input=%a, axis=1)", "fp32[b, (s*3)]", "fp32[2, 21]"},
	/* cutting and joining */
	{"input %a : int64[b, s]\nconst %f : int64[1]{1}\nconst %t : int64[1]{9223372036854775807}\nconst %x : int64[1]{1}\n%y = onnx.Slice(data=%a, starts=%f, ends=%t, axes=%x)",
	    "int64[b, (s + -1)]", "int64[2, 6]"},
	{"input %a : fp32[b, 10]\nconst %f : int64[1]{-1}\nconst %t : int64[1]{-9223372036854775808}\nconst %x : int64[1]{1}\nconst %p : int64[1]{-3}\n"
	    "%y = onnx.Slice(data=%a, starts=%f, ends=%t, axes=%x, steps=%p)", "fp32[b, 4]", "fp32[2, 4]"},       /* 9, 6, 3, 0 */
	{"input %a : fp32[b, 1, s]\ninput %c : fp32[b, 2, s]\n%y = onnx.Concat(inputs=[%a, %c], axis=-2)", "fp32[b, 3, s]", "fp32[2, 3, 7]"},
	{"input %a : fp32[b, 7]\n%z, %y = onnx.Split(input=%a, axis=1, num_outputs=2)", "fp32[b, 3]", "fp32[2, 3]"},     /* 4 and what is left */
	{"input %a : int64[b, s]\nconst %p : int64[4]{0, 0, 0, 1}\n%y = onnx.Pad(data=%a, pads=%p)", "int64[b, (s + 1)]", "int64[2, 8]"},
	{"input %a : fp32[4, 5]\ninput %c : int64[b, s]\n%y = onnx.Gather(data=%a, indices=%c)", "fp32[b, s, 5]", "fp32[2, 7, 5]"},
	{"input %a : fp32[b, s, 9]\ninput %c : int64[5, 2]\n%y = onnx.GatherND(data=%a, indices=%c)", "fp32[5, 9]", NULL},
	/* what depends on the data: unknown, then at most all of it */
	{"input %a : bool[b, s]\n%y = onnx.NonZero(X=%a)", "int64[2, ?]", "int64[2, 14]"},
	{"const %a : bool[2, 2]{1, 0, 1, 1}\n%y = onnx.NonZero(X=%a)", "int64[2, 3]{0, 1, 1, 0, 0, 1}", NULL},
	/* products */
	{"input %a : fp32[b, s, 64]\nparam %w : fp32[64, 16]\n%y = onnx.MatMul(A=%a, B=%w)", "fp32[b, s, 16]", "fp32[2, 7, 16]"},
	{"input %a : fp32[64]\ninput %c : fp32[b, 64, 3]\n%y = onnx.MatMul(A=%a, B=%c)", "fp32[b, 3]", "fp32[2, 3]"},
	{"input %a : bf16[b, 64]\nparam %w : bf16[16, 64]\n%y = onnx.Gemm(A=%a, B=%w, transB=1)", "bf16[b, 16]", "bf16[2, 16]"},
	{"input %a : fp32[b, s, 8]\ninput %c : fp32[b, 5, 8]\n%y = onnx.Einsum(Inputs=[%a, %c], equation=\"bid,bjd->bij\")", "fp32[b, s, 5]", "fp32[2, 7, 5]"},
	/* windows: (224 + 2*3 - 7) // 2 + 1; SAME rounds up; a window must begin inside */
	{"input %a : fp32[b, 3, 224, 224]\nparam %w : fp32[64, 3, 7, 7]\n%y = onnx.Conv(X=%a, W=%w, pads=[3, 3, 3, 3], strides=[2, 2])", "fp32[b, 64, 112, 112]", "fp32[2, 64, 112, 112]"},
	{"input %a : fp32[1, 3, 7, 7]\n%y = onnx.MaxPool(X=%a, kernel_shape=[3, 3], strides=[2, 2], auto_pad=\"SAME_UPPER\")", "fp32[1, 3, 4, 4]", NULL},
	{"input %a : fp32[1, 1, 2, 2]\n%y = onnx.MaxPool(X=%a, kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)", "fp32[1, 1, 1, 1]", NULL},
	{"input %a : fp32[1, 4, 5, 5]\nparam %w : fp32[4, 2, 3, 3]\n%y = onnx.ConvTranspose(X=%a, W=%w, strides=[2, 2], group=2, output_padding=[1, 1])", "fp32[1, 4, 12, 12]", NULL},
	{"input %a : fp32[1, 3, 5, 5]\nconst %k : fp32[4]{float(1), float(1), float(1.5), float(2)}\n%y = onnx.Resize(X=%a, scales=%k)", "fp32[1, 3, 7, 10]", NULL},
	/* attention with fewer heads for keys, and a cache */
	{"input %q : fp16[b, s, 512]\ninput %k : fp16[b, s, 128]\ninput %p : fp16[b, 2, 9, 64]\n%y, %c = onnx.Attention(Q=%q, K=%k, V=%k, past_key=%p, past_value=%p, q_num_heads=8, kv_num_heads=2)",
	    "fp16[b, s, 512]", "fp16[2, 7, 512]"},
	{"input %q : fp16[b, s, 512]\ninput %k : fp16[b, s, 128]\ninput %p : fp16[b, 2, 9, 64]\n%z, %y = onnx.Attention(Q=%q, K=%k, V=%k, past_key=%p, past_value=%p, q_num_heads=8, kv_num_heads=2)",
	    "fp16[b, 2, (s + 9), 64]", "fp16[2, 2, 16, 64]"},
	/* an If is decided by sizes once they are bound */
	{"input %a : fp32[b, s]\nconst %k : int64[1]{5}\n%h = onnx.Shape(data=%a, start=1)\n%c = onnx.Greater(A=%h, B=%k)\n%t = onnx.Transpose(data=%a)\n%r = onnx.Relu(X=%a)\n"
	    "%y = onnx.Select(condition=%c, then=%t, otherwise=%r, nodes=[1, 1])", "fp32[?, ?]", "fp32[7, 2]"},
	/* what is declared counts where the rule knows less */
	{"input %a : fp32[b, s]\n%y : int64[2, n] = onnx.NonZero(X=%a)", "int64[2, n]", "int64[2, 14]"},
};


static void
keep(void *user, const char *text, size_t n)
{
	buf_put(user, text, n);
}

/* The type of %y in the dump: from " : " to the next comma behind its bracket or the equals sign. */
static char *
type_in(const char *dump)
{
	const char *p = strstr(dump, "%y : "), *end;

	if (!p)
		fail_msg("%%y has no type");
	p += 5;
	end = strstr(p, " = ");
	for (const char *next = strstr(p, ", %"); next && end && next < end; next = NULL)
		end = next;
	assert_non_null(end);
	return strndup(p, (size_t)(end - p));
}

static char *
type_after(const char *graph, const char *pass)
{
	char *text = NULL, *type;
	struct buf b = {0};
	mc_options o;
	mc_recipe *r = mc_recipe_new();
	mc_model *m;
	mc_report *rep;

	assert_true(asprintf(&text, "memcrest-ir 1\n%s\noutput %%y\n", graph) > 0);
	mc_options_init(&o);
	o.dump_after = pass;
	o.dump = keep;
	o.dump_user = &b;
	assert_int_equal(mc_load_memory(text, strlen(text), "case", NULL, &m), MC_OK);
	if (strstr(graph, "[b") || strstr(graph, "b,"))
		mc_recipe_set_dim(r, "b", 2);
	if (strstr(graph, "s]") || strstr(graph, "s,"))
		mc_recipe_set_dim(r, "s", 7);
	if (mc_inspect(m, r, &o, &rep) != MC_OK)
		fail_msg("%s", graph);
	buf_put(&b, "", 1);
	type = type_in(b.p);
	free(b.p);
	free(text);
	mc_report_free(rep);
	mc_recipe_free(r);
	mc_model_free(m);
	return type;
}

static void
types_follow(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *symbolic = type_after(cases[i].graph, "shape"), *bound = type_after(cases[i].graph, "sizes");

		if (strcmp(symbolic, cases[i].symbolic))
			fail_msg("%s\nis %s and should be %s", cases[i].graph, symbolic, cases[i].symbolic);
		if (strcmp(bound, cases[i].bound ? cases[i].bound : cases[i].symbolic))
			fail_msg("%s\nwith sizes is %s and should be %s", cases[i].graph, bound, cases[i].bound ? cases[i].bound : cases[i].symbolic);
		free(symbolic);
		free(bound);
	}
}

/* Every row has a rule, and its weights are operands of its schema. */
static void
rows_are_whole(void **state)
{
	(void)state;
	for (unsigned op = 1; op < OP_COUNT; op++) {
		struct arg_name names[MAX_SCHEMA];
		uint32_t n = op_args(op, names, MAX_SCHEMA);
		struct str rest = str_of(op_is_onnx(op) ? op_info(op)->weights : ""), weight;

		if (!op_is_onnx(op))
			continue;
		assert_true(n < MAX_SCHEMA);
		while (rest.n && str_cut(&rest, ' ', &weight)) {
			int i = op_arg_index(op, weight);

			if (i < 0 || names[i].attribute)
				fail_msg("%s has no operand %.*s", op_info(op)->name, SFMT(weight));
		}
		for (uint32_t i = 1; i < n; i++)
			assert_true(!names[i - 1].attribute || names[i].attribute);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(types_follow), cmocka_unit_test(rows_are_whole)};

	return cmocka_run_group_tests_name("shape", tests, NULL, NULL);
}
