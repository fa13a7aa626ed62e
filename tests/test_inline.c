/*
 * What the code of a script becomes: archives made here, and the operators of the graph that is left when sizes are bound, in order. x is
 * fp32[4, 6] and net.w fp32[8, 6] everywhere.
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NET "class Net(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = []\n  w : Tensor\n  training : bool\n"
#define FORWARD "  def forward(self: __torch__.m.Net,\n    x: Tensor) -> Tensor:\n"
#define STATE "w=Float 8x6; training=True"

static mc_status
run(const char *code, const char *state, mc_model **m, mc_report **rep)
{
	struct test_buf z = test_script(code, state);
	mc_recipe *r = mc_recipe_new();
	mc_status st;

	mc_recipe_set_dim(r, "x[0]", 4);
	mc_recipe_set_dim(r, "x[1]", 6);
	*rep = NULL;
	st = mc_load_memory(z.p, z.n, "test", NULL, m);
	if (st == MC_OK)
		st = mc_inspect(*m, r, NULL, rep);
	mc_recipe_free(r);
	free(z.p);
	return st;
}

/* "linear[4,8] relu_[4,8]": operators and the dims of their first results */
static void
describe(const struct graph *g, char *out, size_t size)
{
	size_t n = 0;

	out[0] = 0;
	for (uint32_t i = 1; i < g->nnode; i++) {
		uint32_t v = g->nodes[i].nout ? node_outs(g, i)[0] : 0;

		n += (size_t)snprintf(out + n, size - n, "%s%s%s[", i > 1 ? " " : "", op_info(g->nodes[i].op)->name, g->nodes[i].flags & NF_INPLACE ? "_" : "");
		for (unsigned k = 0; v && g->vals[v].rank != RANK_UNKNOWN && k < g->vals[v].rank; k++)
			n += (size_t)snprintf(out + n, size - n, "%s%lld", k ? "," : "", (long long)val_dims(g, v)[k].n);
		n += (size_t)snprintf(out + n, size - n, "]%s", g->nodes[i].flags & NF_NO_GRAD ? "!" : "");
		assert_true(n < size);
	}
}

static const struct {
	const char *code, *state, *want;
} cases[] = {
	{NET FORWARD "    w = self.w\n    return torch.linear(x, w)\n", STATE, "linear[4,8]"},
	/* a function of the module's file, with a default and a keyword */
	{NET FORWARD "    _0 = __torch__.m.f\n    return _0(x, n=1, )\ndef f(x: Tensor,\n    k: int=3,\n    n: int=2) -> Tensor:\n  return torch.unsqueeze(torch.transpose(x, 0, n), k)\n", STATE,
	    "transpose[6,4] unsqueeze[]"},
	/* training decides */
	{NET FORWARD "    training = self.training\n    if training:\n      y = torch.relu(x)\n    else:\n      y = torch.tanh(x)\n    return y\n", STATE, "relu[4,6]"},
	{NET FORWARD "    training = self.training\n    if training:\n      y = torch.relu(x)\n    else:\n      y = torch.tanh(x)\n    return y\n", "w=Float 8x6; training=False", "tanh[4,6]"},
	/* submodules by attribute and by getattr, a method that is not forward */
	{NET FORWARD "    s = self.s\n    _0 = getattr(self, \"1\")\n    return (_0).forward((s)._f((s).forward(x, ), ), )\n"
	    "class Sub(Module):\n  __parameters__ = []\n  __buffers__ = []\n  def forward(self: __torch__.m.Sub,\n    x: Tensor) -> Tensor:\n    return torch.relu(x)\n"
	    "  def _f(self: __torch__.m.Sub,\n    x: Tensor) -> Tensor:\n    return torch.neg(x)\n", STATE "; s=__torch__.m.Sub{}; 1=__torch__.m.Sub{}", "relu[4,6] neg[4,6] relu[4,6]"},
	/* an optional: "is None" is known from the attribute */
	{NET FORWARD "    b = self.b\n    if torch.__isnot__(b, None):\n      c = unchecked_cast(Tensor, b)\n      y = torch.add(x, c)\n    else:\n      y = x\n    return torch.relu(y)\n", STATE "; b=None", "relu[4,6]"},
	/* None on one side of a branch that only sizes decide: the same condition says later which it is */
	{NET FORWARD "    _0 = torch.eq(torch.dim(x), 2)\n    if _0:\n      b = torch.neg(x)\n    else:\n      b = None\n    if torch.__isnot__(b, None):\n      c = unchecked_cast(Tensor, b)\n      y = torch.add(x, c)\n"
	    "    else:\n      y = x\n    return y\n", STATE, "neg[4,6] add[4,6]"},
	/* a reason why not: its length is asked; sizes decide which it is, and in one case there is none */
	{NET FORWARD "    if torch.ne(torch.dim(x), 2):\n      why = torch.format(\"{} dims\", torch.dim(x))\n    else:\n      why = \"training\"\n    if torch.__not__(torch.gt(torch.len(why), 0)):\n      y = torch.relu(x)\n"
	    "    else:\n      y = torch.neg(x)\n    return y\n", STATE, "neg[4,6]"},
	{NET FORWARD "    if torch.ne(torch.dim(x), 2):\n      why = \"dims\"\n    else:\n      why = \"\"\n    if torch.__not__(torch.gt(torch.len(why), 0)):\n      y = torch.relu(x)\n"
	    "    else:\n      y = torch.neg(x)\n    return y\n", STATE, "relu[4,6]"},
	/* whether two names are one tensor is known when sizes have decided */
	{NET FORWARD "    if torch.eq(torch.dim(x), 2):\n      a, b = x, x\n    else:\n      a, b = torch.unsqueeze(x, 0), torch.unsqueeze(x, 0)\n    if torch.__is__(a, b):\n      y = torch.relu(a)\n    else:\n"
	    "      y = torch.add(a, b)\n    return y\n", STATE, "relu[4,6]"},
	{NET FORWARD "    l = annotate(List[bool], [])\n    _0 = torch.append(l, False)\n    _1 = torch.append(l, ops.prim.requires_grad(x))\n    _2 = torch.append(l, True)\n    if torch.any(l):\n      y = torch.relu(x)\n    else:\n"
	    "      y = torch.neg(x)\n    return y\n", STATE, "relu[4,6]"},
	/* sizes: unpacked, sliced, joined */
	{NET FORWARD "    b, c, = torch.size(x)\n    return torch.view(x, [b, torch.floordiv(c, 2), 2])\n", STATE, "view[4,3,2]"},
	{NET FORWARD "    _0 = torch.slice(torch.size(x), None, -1)\n    return torch.view(x, torch.add(_0, [2, 3]))\n", STATE, "view[4,2,3]"},
	{NET FORWARD "    return torch.reshape(x, [-1, int(torch.mul(ops.prim.NumToTensor(torch.size(x, 0)), 2))])\n", STATE, "reshape[3,8]"},
	/* loops: known turns, turns that a size gives, a list that grows */
	{NET FORWARD "    y = x\n    for i in range(2):\n      y0 = torch.add(y, i)\n      y = y0\n    return y\n", STATE, "add[4,6] add[4,6]"},
	{NET FORWARD "    y = x\n    for i in range(torch.size(x, 1)):\n      y = torch.relu(y)\n    return torch.neg(y)\n", STATE, "relu[4,6] relu[4,6] relu[4,6] relu[4,6] relu[4,6] relu[4,6] neg[4,6]"},
	{NET FORWARD "    _0 = torch.unbind(x)\n    z = annotate(List[Tensor], [])\n    for i in range(torch.len(_0)):\n      _1 = torch.append(z, torch.relu(_0[i]))\n    return torch.stack(z)\n", STATE,
	    "unbind[6] relu[6] relu[6] relu[6] relu[6] stack[4,6]"},
	{NET FORWARD "    i = 0\n    y = x\n    _4 = True\n    while _4:\n      y0 = torch.relu(y)\n      i0 = torch.add(i, 1)\n      _5 = torch.lt(i0, 3)\n      _4, y, i = _5, y0, i0\n    return y\n", STATE, "relu[4,6] relu[4,6] relu[4,6]"},
	/* all pieces put together again are as many as there are; one by its number */
	{NET FORWARD "    a, b, c, d, = torch.unbind(x)\n    return torch.cat([a, b, c, d])\n", STATE, "unbind[6] cat[24]"},
	{NET FORWARD "    a, b, = torch.chunk(x, 2, 1)\n    return torch.mul(a, b)\n", STATE, "chunk[4,3] mul[4,3]"},
	/* dicts, tuples, classes, enums, named tuples */
	{NET FORWARD "    d = {\"a\": x, \"b\": torch.neg(x)}\n    t = (d[\"a\"], d[\"b\"])\n    if torch.__contains__(d, \"b\"):\n      y = torch.sub((t)[1], (t)[0])\n    else:\n      y = x\n    return y\n", STATE, "neg[4,6] sub[4,6]"},
	{NET FORWARD "    o = __torch__.m.Acc.__new__(__torch__.m.Acc)\n    _0 = (o).__init__(x, 2, )\n    return (o).get()\n"
	    "class Acc:\n  t : Tensor\n  n : int\n  def __init__(self: __torch__.m.Acc,\n    t: Tensor,\n    n: int) -> NoneType:\n    self.t = torch.mul(t, n)\n    return None\n"
	    "  def get(self: __torch__.m.Acc) -> Tensor:\n    t = self.t\n    return torch.relu(t)\n", STATE, "mul[4,6] relu[4,6]"},
	{NET FORWARD "    if torch.eq(__torch__.m.Color.RED, __torch__.m.Color.GREEN):\n      y = x\n    else:\n      y = torch.relu(x)\n    p = __torch__.m.Pair(y, 1)\n    return (p)[0]\n"
	    "class Color(Enum):\n  RED = 1\n  GREEN = 2\nclass Pair(NamedTuple):\n  a : Tensor\n  b : int\n", STATE, "relu[4,6]"},
	/* lists and dicts that are changed: [relu, neg, tanh] is turned around, its last taken off, its first cut out */
	{NET FORWARD "    l = [x, torch.neg(x)]\n    _0 = torch._set_item(l, 0, torch.relu(x))\n    _1 = torch.extend(l, [torch.tanh(x)])\n    _2 = torch.reverse(l)\n    y = torch.pop(l)\n"
	    "    return torch.add(y, torch.cat(torch.slice(l, -5, 1)))\n", STATE, "neg[4,6] relu[4,6] tanh[4,6] cat[4,6] add[4,6]"},
	{NET FORWARD "    l = [x]\n    _0 = torch.clear(l)\n    if torch.eq(torch.len(l), 0):\n      y = torch.relu(x)\n    else:\n      y = torch.neg(x)\n    return y\n", STATE, "relu[4,6]"},
	{NET FORWARD "    d = {\"a\": x}\n    _0 = torch._set_item(d, \"b\", torch.neg(x))\n    _1 = torch._set_item(d, \"a\", torch.relu(x))\n    y = torch.get(d, \"c\", x)\n    k = torch.keys(d)\n    v = torch.values(d)\n"
	    "    i = torch.items(d)\n    if torch.eq(k[1], \"b\"):\n      z = torch.add(v[0], (i[1])[1])\n    else:\n      z = y\n    return torch.mul(z, torch.get(d, \"b\"))\n", STATE,
	    "neg[4,6] relu[4,6] add[4,6] mul[4,6]"},
	/* what forward takes: a list is taken to have one tensor, a number is a size of its own, a bool is false, the rest is None */
	{NET "  def forward(self: __torch__.m.Net,\n    x: Tensor,\n    l: List[Tensor],\n    t: Tuple[int, bool, float],\n    s: str) -> Tensor:\n    n, on, f, = t\n    if on:\n      y = torch.neg(x)\n    else:\n"
	    "      y = torch.relu(x)\n    if torch.__is__(s, None):\n      z = torch.tanh(y)\n    else:\n      z = y\n    if torch.gt(torch.len(l), 1):\n      w = torch.neg(z)\n    else:\n      w = torch.mul(z, f)\n    return w\n", STATE,
	    "relu[4,6] tanh[4,6] mul[4,6]"},
	/* results: two of an operator; in place; overloads by the kinds of arguments */
	{NET FORWARD "    m, i = torch.max(x, 1)\n    y = torch.add_(m, 1.)\n    return torch.max(y, m)\n", STATE, "max_dim[4] add_[4] maximum[4]"},
	{NET FORWARD "    y = torch.to(x, 5)\n    z = torch.to(y, torch.device(\"cpu\"), 6)\n    return torch.to(z, y)\n", STATE, "to[4,6] to[4,6] to[4,6]"},
	{NET FORWARD "    y = torch.mean(x, [1], True)\n    return torch.div(torch.sum(y), 3, rounding_mode=\"floor\")\n", STATE, "mean[4,1] sum[] div_rounded[]"},
	/* a nested function sees the names around it; no_grad; a check that raises */
	{NET FORWARD "    def __forked_function():\n      return torch.relu(x)\n    f = fork(__forked_function)\n    return torch.wait(f)\n", STATE, "relu[4,6]"},
	{NET FORWARD "    _0 = __torch__.m.no_grad.__new__(__torch__.m.no_grad)\n    _1 = (_0).__init__()\n    with _0:\n      y = torch.relu(x)\n    return torch.neg(y)\n"
	    "class no_grad:\n  prev : bool\n  def __init__(self: __torch__.m.no_grad) -> NoneType:\n    self.prev = False\n    return None\n"
	    "  def __enter__(self: __torch__.m.no_grad) -> NoneType:\n    self.prev = torch.is_grad_enabled()\n    torch.set_grad_enabled(False)\n    return None\n"
	    "  def __exit__(self: __torch__.m.no_grad,\n    a: Any,\n    b: Any,\n    c: Any) -> NoneType:\n    prev = self.prev\n    torch.set_grad_enabled(prev)\n    return None\n", STATE, "relu[4,6]! neg[4,6]"},
	{NET FORWARD "    if torch.ne(torch.dim(x), 2):\n      ops.prim.RaiseException(\"no\", \"builtins.ValueError\")\n    else:\n      pass\n    return torch.relu(x)\n", STATE, "relu[4,6]"},
	/* quantised: the weight is what was packed */
	{NET FORWARD "    w = self.w\n    q = torch.quantize_per_tensor(x, 0.5, 3, 13)\n    p = ops.quantized.linear_prepack(w, None)\n    return torch.dequantize(ops.quantized.linear(q, p, 1., 0))\n", STATE,
	    "quantize_per_tensor[4,6] quantized_linear[4,8] dequantize[4,8]"},
	/* an LSTM of hidden size 2: gates are 4 * 2 rows of the weight */
	{NET FORWARD "    w = self.w\n    h = torch.zeros([1, 4, 2])\n    y = torch.unsqueeze(x, 0)\n    a, b, c = torch.lstm(y, [h, h], [w, w], False, 1, 0., True, False, False)\n    return a\n", STATE,
	    "zeros[1,4,2] unsqueeze[1,4,6] lstm[1,4,2]"},
	/* hooks run around forward */
	{"class Net(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = []\n  __forward_pre_hooks__ = [\"pre\", ]\n  __forward_hooks__ = [\"post\", ]\n" FORWARD "    return torch.relu(x)\n"
	    "  def pre(self: __torch__.m.Net,\n    input: Tuple[Tensor]) -> Tuple[Tensor]:\n    return (torch.neg((input)[0]),)\n  def post(self: __torch__.m.Net,\n    input: Tuple[Tensor],\n    output: Tensor) -> Tensor:\n"
	    "    return torch.tanh(output)\n", STATE, "neg[4,6] relu[4,6] tanh[4,6]"},
};

static void
code_becomes_operators(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char got[1024];
		mc_model *m;
		mc_report *r;
		mc_diagnostic d[4];

		if (run(cases[i].code, cases[i].state, &m, &r) != MC_OK)
			fail_msg("case %zu: %s", i, mc_model_diagnostics(m, d, 4) || (r && mc_report_diagnostics(r, d, 4)) ? d[0].message : "?");
		describe(r->r.g, got, sizeof got);
		if (strcmp(got, cases[i].want))
			fail_msg("case %zu: %s instead of %s", i, got, cases[i].want);
		mc_report_free(r);
		mc_model_free(m);
	}
}

/* Names in the state dict, ties, requires_grad, and which module a node stands in. */
static void
modules_are_kept(void **state)
{
	static const char code[] = NET FORWARD "    a = self.a\n    b = self.b\n    return (b).forward((b).forward((a).forward(x, ), ), )\n"
	    "class Lin(Module):\n  __parameters__ = [\"weight\", ]\n  __buffers__ = [\"scale\", ]\n  weight : Tensor\n  scale : Tensor\n  def forward(self: __torch__.m.Lin,\n    x: Tensor) -> Tensor:\n"
	    "    weight = self.weight\n    return torch.linear(x, weight)\n";
	const struct graph *g;
	mc_model *m;
	mc_report *r;

	(void)state;
	assert_int_equal(run(code, STATE "; a=__torch__.m.Lin{weight=Half 6x6; scale=Float 6}; b=__torch__.m.Lin{weight=Half 6x6; scale=Float 6}", &m, &r), MC_OK);
	g = m->g;
	assert_string_equal(graph_str(g, g->vals[1].full).p, "w");
	assert_int_equal(g->vals[1].kind, VAL_PARAM);
	assert_int_equal(g->vals[1].flags & VF_TRAINABLE, VF_TRAINABLE);
	assert_true(str_eq(graph_str(g, g->vals[2].full), S("a.weight")));
	assert_int_equal(g->vals[2].dtype, DT_FP16);
	assert_int_equal(g->vals[3].kind, VAL_BUFFER);
	assert_true(str_eq(graph_str(g, g->vals[3].full), S("a.scale")));
	assert_int_equal(g->nnode, 4);
	assert_true(str_eq(scope_path(g, g->nodes[1].scope), S("a")));
	assert_true(str_eq(scope_path(g, g->nodes[2].scope), S("b")));
	assert_true(str_eq(scope_path(g, g->nodes[3].scope), S("b")));
	assert_int_not_equal(g->nodes[2].scope, g->nodes[3].scope);        /* two calls */
	assert_true(str_eq(graph_str(g, g->scopes[g->nodes[1].scope].cls), S("m.Lin")));
	assert_int_equal(g->file_dtype, DT_FP16);
	mc_report_free(r);
	mc_model_free(m);
}

static void
mistakes_have_a_line(void **state)
{
	static const struct {
		const char *body, *want;
	} table[] = {
		{"    return torch.relu(y)\n", "line 8: y is not defined"},
		{"    a, b = (x,), x, x\n    return x\n", "line 8: an assignment has not as many values as targets"},
		{"    a, b, = (x,)\n    return x\n", "line 8: 1 values are unpacked into 2 names"},
		{"    a, b, = 3\n    return x\n", "line 8: something that is neither list nor tuple is unpacked"},
		{"    q = self.q\n    return x\n", "line 8: m.Net has no attribute q"},
		{"    q = getattr(self, \"q\")\n    return x\n", "line 8: m.Net has no attribute q"},
		{"    return (self).forward(x, )\n", "line 8: calls are nested too deep"},
		{"    return (self).forward(x, x, )\n", "line 8: forward is called with more arguments than it has"},
		{"    return (self).forward()\n", "line 8: forward is called without its argument x"},
		{"    l = [x]\n    _0 = torch.insert(l, 0, x)\n    return x\n", "line 9: insert on a list is not understood"},
		{"    return CONSTANTS.c0\n", "line 8: CONSTANTS has no c0"},
		{"    return __torch__.m.nothing(x, )\n", "line 8: __torch__.m.nothing is not in the archive"},
		{"    return nothing(x)\n", "line 8: nothing is not defined"},
		{"    ops.prim.RaiseException(\"why not\")\n    return x\n", "line 8: the code raises an exception: why not"},
		{"    z = [x]\n    if torch.gt(torch.size(x, 0), 1):\n      _0 = torch.append(z, x)\n    else:\n      pass\n    return x\n", "line 10: a list is changed where only sizes or data say whether the code runs"},
		{"    if torch.gt(torch.size(x, 0), 1):\n      return x\n    else:\n      pass\n    return x\n", "line 9: a function returns where only sizes or data say whether the code runs"},
		{"    y = x\n    for i in range(9000000000):\n      pass\n    return y\n", "line 10: the code runs more than 2000000 statements"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		char code[1024];
		mc_model *m;
		mc_report *r;
		mc_diagnostic d[4];

		snprintf(code, sizeof code, "%s%s%s", NET, FORWARD, table[i].body);
		assert_int_equal(run(code, STATE, &m, &r), MC_BAD_INPUT);
		assert_int_equal(mc_model_diagnostics(m, d, 4), 1);
		assert_string_equal(d[0].message, table[i].want);
		assert_string_equal(d[0].where, "test: code/__torch__/m.py");
		mc_model_free(m);
	}
}

/* Calls, branches and loops that multiply end at a limit, in bounded time and memory. */
static void
bombs_end(void **state)
{
	static const char *const body[] = {
		"    y = x\n    for i in range(1000000):\n      for j in range(1000000):\n        y = torch.relu(y)\n    return y\n",
		("    return torch.add(__torch__.m.f0(x, ), 1)\ndef f0(x: Tensor) -> Tensor:\n  return torch.add(__torch__.m.f1(x, ), __torch__.m.f1(x, ))\ndef f1(x: Tensor) -> Tensor:\n"
		 "  return torch.add(__torch__.m.f0(x, ), __torch__.m.f0(x, ))\n"),
		"    z = [1]\n    for i in range(100):\n      z = torch.add(z, z)\n    return x\n",
		"    z = torch.mul([1], 9000000000)\n    return x\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof body / sizeof body[0]; i++) {
		char code[1024];
		mc_model *m;
		mc_report *r;
		mc_diagnostic d[4];

		snprintf(code, sizeof code, "%s%s%s", NET, FORWARD, body[i]);
		assert_int_not_equal(run(code, STATE, &m, &r), MC_OK);
		assert_int_equal(mc_model_diagnostics(m, d, 4), 1);
		assert_string_equal(d[0].code, "E031");
		mc_model_free(m);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_becomes_operators), cmocka_unit_test(modules_are_kept), cmocka_unit_test(mistakes_have_a_line), cmocka_unit_test(bombs_end),
	};

	return cmocka_run_group_tests_name("inline", tests, NULL, NULL);
}
