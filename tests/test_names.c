/*
 * How long values live by the names that source lines give them, or without lines by the calls of modules; dtypes that lines ask for by name. Nothing here needs a gradient but w, so that a value goes when its
 * names let go of it. Expected: the forward of step 1, "a" = the first value is made, "-a" = it is released.
 */
#include "test.h"

#include <stdio.h>
#include <string.h>

#define HEAD "memcrest-ir 1\ninput %x : fp32[128]\nparam %w \"w\" : fp32[128] trainable\n"
#define T " : fp32[128] = "
#define BARE_TAIL "%z : fp32[128] = mul(%w, %w)\n%l : fp32[] = sum(%z)\noutput %l\n"
#define TAIL "%z : fp32[128] = mul(%w, %w) !90 \"z = self.w * self.w\"\n%l : fp32[] = sum(%z) !91 \"return z.sum()\"\noutput %l\n"

static const char *
lives(const char *nodes, char *out)
{
	char graph[4096];
	struct analysed a;
	const struct schedule *s;
	uint32_t first = 0, born = 0;
	char *p = out;

	strcpy(graph, HEAD);
	strcat(strcat(graph, nodes), strstr(nodes, "output") ? "" : strchr(nodes, '!') ? TAIL : BARE_TAIL);
	a = test_analyse(graph, "{\"optimizer\": \"sgd\", \"loss\": \"in-graph\"}");
	s = a.r->r.sched;
	*p = 0;
	for (uint32_t i = 0; i < s->nspan; i++)
		for (uint32_t e = s->spans[i].first; s->spans[i].step == 1 && s->spans[i].phase == PH_FORWARD && e < s->spans[i + 1].first; e++) {
			uint32_t id = EVENT_STORAGE(s->events[e]);

			first = first ? first : id;
			born = id > born ? id : born;
			p += sprintf(p, "%s%c ", EVENT_IS_FREE(s->events[e]) ? "-" : "", (char)('a' + (id - first)));
			assert_true(born - first < 20);
		}
	release_analysis(a);
	return out;
}

static void
names(void **state)
{
	static const struct {
		const char *nodes, *want;
	} cases[] = {
		/* the name h moves on at once */
		{"%a" T "relu(%x) !1 \"h = f(x)\"\n%b" T "relu(%a) !2 \"h = f(h)\"\n%c" T "relu(%b) !3 \"h = f(h)\"\n", "a b -a c -b d e -c -d "},
		/* residual = h after line 1 runs no operator; the sum reads the name, which holds a to the end of the function */
		{"%a" T "relu(%x) !1 \"h = f(x)\"\n%b" T "relu(%a) !3 \"h = f(h)\"\n%c" T "add(%a, %b) !4 \"h = residual + h\"\n%d" T "relu(%c) !5 \"h = f(h)\"\n", "a b c -b d -c e f -a -d -e "},
		/* a later sum tells that the name had been taken: a goes when c, the next residual, is there */
		{"%a" T "relu(%x) !1 \"h = f(x)\"\n%b" T "relu(%a) !3 \"h = f(h)\"\n%c" T "add(%a, %b) !4 \"h = residual + h\"\n%d" T "relu(%c) !6 \"h = f(h)\"\n"
		    "%e" T "add(%d, %c) !7 \"h = self.drop(h) + residual\"\n%f" T "relu(%e) !8 \"h = f(h)\"\n", "a b c -a -b d e -d f -e g h -c -f -g "},
		/* a line that only passes an argument binds no name */
		{"%a" T "relu(%x) !2 \"h=f(x),\"\n%b" T "relu(%a) !1 \"y = self.g(\"\n%c" T "relu(%b) !3 \"y = f(y)\"\n", "a b -a c -b d e -c -d "},
		{"%a" T "relu(%x) !2 \"h=f(x, y), mask=mask\"\n%b" T "relu(%a) !1 \"y = self.g(\"\n%c" T "relu(%b) !3 \"y = f(y)\"\n", "a b -a c -b d e -c -d "},
		{"%a" T "relu(%x) !2 \"f(x), mask, causal=causal\"\n%b" T "relu(%a) !1 \"y = self.g(\"\n%c" T "relu(%b) !3 \"y = f(y)\"\n", "a b -a c -b d e -c -d "},
		/* a module returns what nobody reads: the caller has a name for it until the next turn */
		{"%a" T "relu(%x) @\"m.0\":\"M\" !1 \"h, s = m(h)\" !11 \"h = f(h)\"\n%b" T "tanh(%a) @\"m.0\":\"M\" !1 \"h, s = m(h)\" !12 \"s = g(h)\"\n"
		    "%c" T "relu(%a) @\"m.1\":\"M\" !1 \"h, s = m(h)\" !11 \"h = f(h)\"\n%d" T "tanh(%c) @\"m.1\":\"M\" !1 \"h, s = m(h)\" !12 \"s = g(h)\"\n%e" T "relu(%c) !2 \"y = f(h)\"\n", "a b c d -a -b e f g -c -d -e -f "},
		/* the module's function binds as many names as the caller takes: the second is what nobody reads later */
		{"%a" T "relu(%x) @\"m\":\"M\" !1 \"h, s = m(h)\" !11 \"s = f(h)\"\n%b" T "tanh(%a) @\"m\":\"M\" !1 \"h, s = m(h)\" !12 \"h = g(s)\"\n"
		    "%c" T "relu(%b) !2 \"h = f(h)\"\n%d" T "relu(%c) !3 \"h = f(h)\"\n", "a b c -b d -c e f -a -d -e "},
		{"%a" T "relu(%x) @\"m\":\"M\" !1 \"h, s = m(h)\" !11 \"s = f(h)\"\n%b" T "tanh(%a) @\"m\":\"M\" !1 \"h, s = m(h)\" !12 \"t = g(s)\"\n"
		    "%c" T "relu(%b) @\"m\":\"M\" !1 \"h, s = m(h)\" !13 \"h = g(t)\"\n%d" T "relu(%c) !2 \"h = f(h)\"\n", "a b c -a -b d -c e f -d -e "},
		/* no lines: what a module with modules gives to the outermost function has a name there; if a loop called it, the next turn takes the name */
		{"%a" T "relu(%x) @\"m\":\"M\"/\"m.f\":\"F\"\n%b" T "relu(%a)\n%c" T "relu(%b)\n", "a b c -b -c d e -a -d "},
		{"%a" T "relu(%x) @\"m.0\":\"M\"/\"m.0.f\":\"F\"\n%b" T "relu(%a)\n%c" T "relu(%b)\n", "a b -a c -b -c d e -d "},
		/* a loss broadcasts its operands: later uses are called after that, but q is bound anew and a goes */
		{"%a" T "relu(%x) !1 \"q = f(x)\"\n%g : fp32[128], %h" T "broadcast_tensors([%a, %x]) !2 \"l = F.mse_loss(q, x)\"\n%b" T "mul(%g, %h) !2 \"l = F.mse_loss(q, x)\"\n"
		    "%c" T "add(%g, %h) !3 \"q = q + x\"\n%d" T "relu(%c) !4 \"q = f(q)\"\n", "a b c -a d -c e f -b -d -e "},
		/* what is appended stays in the list; joined and not read again, the list is begun anew */
		{"%a" T "relu(%x) !1 \"outs.append(f(x))\"\n%b" T "relu(%a) !2 \"h = f(outs[0])\"\n%c" T "relu(%b) !3 \"h = f(h)\"\n", "a b c -b d e -a -c -d "},
		{"%a" T "relu(%x) !1 \"outs.append(f(x))\"\n%b" T "cat([%a]) !2 \"h = torch.cat(outs)\"\n%c" T "relu(%b) !1 \"outs.append(f(h))\"\n%d" T "relu(%c) !3 \"h = f(outs[0])\"\n", "a b -a c d -b e f -c -d -e "},
		/* what turns of a loop made and is read in that order behind it is in a list; in the other order it may have been popped; one turn is none */
		{"%a" T "relu(%x) @\"m.0\":\"M\"\n%b" T "relu(%a) @\"m.1\":\"M\"\n%c" T "relu(%a)\n%d" T "relu(%b)\n%e" T "add(%c, %d)\n", "a b c d e -c -d -e f g -a -b -f "},
		{"%a" T "relu(%x) @\"m.0\":\"M\"\n%b" T "relu(%a) @\"m.1\":\"M\"\n%c" T "relu(%b)\n%d" T "relu(%a)\n%e" T "add(%c, %d)\n", "a b c -b d -a e -c -d -e f g -f "},
		{"%a" T "relu(%x) @\"m.0\":\"M\"\n%b" T "relu(%a) @\"m.1\":\"M\"\n%c" T "relu(%b)\n%e" T "relu(%c)\n", "a b -a c -b d -c -d e f -e "},
		/* zeros that one call made and another uses, through a view: each had its own, and nothing holds the one that was kept when it has been used */
		{"%a : fp32[2, 64] = zeros([2, 64]) @\"m\":\"M\"/\"m.0\":\"L\"\n%b : fp32[64, 2] = transpose(%a, 0, 1) @\"m\":\"M\"/\"m.0\":\"L\"\n%c : fp32[64, 2] = relu(%b) @\"m\":\"M\"/\"m.0\":\"L\"\n"
		    "%d : fp32[64, 2] = add(%c, %b) @\"m\":\"M\"/\"m.1\":\"L\"\n%e : fp32[64, 2] = relu(%d) @\"m\":\"M\"/\"m.1\":\"L\"\n%z" T "mul(%w, %w) @\"m\":\"M\"/\"m.h\":\"H\"\n"
		    "%l : fp32[] = sum(%z) @\"m\":\"M\"\noutput %l\n", "a b c -a -b d -c -d e f -e "},
		/* numbers of lines alone: h = h + m(h) in a loop, and each turn, which ends in the sum, lets go of the h before */
		{"%a" T "relu(%x) !1 \"\"\n%b" T "relu(%a) @\"m.0\":\"M\" !2 \"\" !11 \"\"\n%c" T "add(%a, %b) !2 \"\"\n%d" T "relu(%c) @\"m.1\":\"M\" !2 \"\" !11 \"\"\n"
		    "%e" T "add(%c, %d) !2 \"\"\n%z" T "mul(%w, %w) !3 \"\"\n%l : fp32[] = sum(%z) !3 \"\"\noutput %l\n", "a b c -a -b d e -c -d -e f g -f "},
		/* no lines: what a function computed for a loss has a name there */
		{"%a" T "relu(%x) @\"m\":\"M\"\n%b" T "relu(%a)\n%k : fp32[] = mse_loss(%b, %x)\n%c" T "relu(%x)\n", "a b -a c -c d -d e f -b -e "},
		/* no lines, the model in a wrapper: what nobody reads is in the model's output, unless the last turn of a loop made it */
		{"%a" T "relu(%x) @\"m\":\"M\"/\"m.f\":\"F\"\n%b" T "relu(%x) @\"m\":\"M\"/\"m.blocks.0\":\"B\"\n%z" T "mul(%w, %w) @\"m\":\"M\"/\"m.h\":\"H\"\n"
		    "%l : fp32[] = sum(%z) @\"m\":\"M\"\noutput %l\n", "a b -b c d -c -a "},
	};
	char got[512];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_string_equal(lives(cases[i].nodes, got), cases[i].want);
}

/* The loop holds what the model returned until the loss is there: y goes after the clone that flattening made and all of the loss. */
static void
logits_outlive_the_loss(void **state)
{
	struct analysed a = test_analyse("memcrest-ir 1\ninput %x : fp32[2, 128, 4]\nparam %w \"w\" : fp32[2, 128, 4] trainable\n%y : fp32[2, 128, 4] = mul(%x, %w) !1 \"y = x * self.w\"\n"
	    "%t : fp32[2, 4, 128] = transpose(%y, 1, 2) !2 \"return y.transpose(1, 2)\"\noutput %t\n", "{\"optimizer\": \"sgd\", \"loss\": \"cross-entropy\"}");
	const struct schedule *s = a.r->r.sched;
	uint32_t made = 0, gone = 0;

	(void)state;
	for (uint32_t e = 0; e < s->nevent && !gone; e++) {
		const char *op = s->storages[EVENT_STORAGE(s->events[e])].op;

		if (op && strcmp(op, "nll_loss_forward") == 0 && !EVENT_IS_FREE(s->events[e]))
			made = e;
		if (op && strcmp(op, "mul") == 0 && EVENT_IS_FREE(s->events[e]))
			gone = e;
	}
	assert_true(made && gone > made);
	release_analysis(a);
}

/*
 * No lines, under autocast: a module casts what it was given, a product, up, writes it into zeros, and what it returns is converted, to the dtype of what it was given:
 * bf16, 128 x 512 of 2 bytes.
 */
static void
dtype_of_what_was_filled(void **state)
{
	static const char *const parts[] = {
		"%t : fp32[64, 512] = slice(%u, 0, 0, 64) @\"m\":\"M\"\n%s : fp32[64, 512] = slice(%z, 0, 0, 64) @\"m\":\"M\"\n%c : fp32[64, 512] = copy_(%s, %t) @\"m\":\"M\"\n",
		"%t : fp32[512] = select(%u, 0, 0) @\"m\":\"M\"\n%s : fp32[512] = select(%z, 0, 0) @\"m\":\"M\"\n%c : fp32[512] = copy_(%s, %t) @\"m\":\"M\"\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		char graph[2048];
		struct analysed a;
		unsigned low = 0;

		snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[128, 256]\nparam %%w \"w\" : fp32[512, 256] trainable\n%%h : fp32[128, 512] = linear(%%x, %%w)\n"
		    "%%u : fp32[128, 512] = to(%%h, fp32) @\"m\":\"M\"\n%%z : fp32[128, 512] = zeros([128, 512], fp32) @\"m\":\"M\"\n%s%%r : fp32[128, 512] = relu(%%z) @\"m\":\"M\"\n"
		    "%%b : fp32[128, 512] = to(%%r, fp32) @\"m\":\"M\"\n%%y : fp32[128, 512] = mul(%%b, %%h)\n%%l : fp32[] = sum(%%y)\noutput %%l\n", parts[i]);
		a = test_analyse(graph, "{\"optimizer\": \"sgd\", \"loss\": \"in-graph\", \"precision\": \"bf16-mixed\"}");
		for (uint32_t k = 1; k < a.r->r.sched->nstorage; k++) {
			const struct storage *t = &a.r->r.sched->storages[k];

			low += t->op && strcmp(t->op, "_to_copy") == 0 && t->nbytes == 128 * 512 * 2 && t->geom && t->geom->dim[0] == 128;
		}
		assert_int_equal(low, 4);          /* a step has that one, and in backward the gradient of what was cast up */
		release_analysis(a);
	}
}

/* The bytes of the first conversion to 128 x 512 under autocast. */
static uint64_t
converted(const char *graph)
{
	struct analysed a = test_analyse(graph, "{\"optimizer\": \"sgd\", \"loss\": \"in-graph\", \"precision\": \"bf16-mixed\"}");
	uint64_t found = 0;

	for (uint32_t k = 1; k < a.r->r.sched->nstorage && !found; k++) {
		const struct storage *t = &a.r->r.sched->storages[k];

		if (t->op && strcmp(t->op, "_to_copy") == 0 && t->geom && t->geom->dim[0] == 128 && t->geom->dim[1] == 512)
			found = t->nbytes;
	}
	release_analysis(a);
	return found;
}

/* No lines: what was cast up has no part in the dtype of ranks among it, so their .float() is what it says, 128 x 512 of 4 bytes, not back to bf16. */
static void
dtype_of_ranks(void **state)
{
	(void)state;
	assert_int_equal(converted("memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"w\" : fp32[512, 256] trainable\n%h : fp32[128, 512] = linear(%x, %w)\n"
	    "%s : fp32[64, 512] = slice(%h, 0, 0, 64)\n%u : fp32[64, 512] = to(%s, fp32)\n%i : int64[64, 512] = argsort(%u, 1)\n%j : int64[128, 512] = cat([%i, %i])\n"
	    "%f : fp32[128, 512] = to(%j, fp32)\n%y : fp32[128, 512] = mul(%f, %h)\n"
	    "%l : fp32[] = sum(%y)\noutput %l\n"), 128 * 512 * 4);
}

/* "mask.to(h.dtype)" under autocast: h is a product, so bf16, 128 x 512 of 2 bytes; an argument g that no line reads is not known, so fp32 like the parameters. */
static void
dtype_of_a_name(void **state)
{
	static const struct {
		const char *line;
		uint64_t bytes;
	} cases[] = {
		{"m = mask.to(h.dtype)", 128 * 512 * 2},
		{"m = torch.relu(mask.to(dtype=h.dtype))", 128 * 512 * 2},
		{"m = mask.to(g.dtype)", 128 * 512 * 4},
		{"m = mask.to(self.h.dtype)", 128 * 512 * 4},
		{"m = mask.to(torch.float32)", 128 * 512 * 4},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char graph[2048];

		strcpy(graph, "memcrest-ir 1\ninput %x : fp32[128, 256]\ninput %mask : int64[128, 512]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\n"
		    "%h : fp32[128, 512] = linear(%x, %w) !1 \"h = F.linear(x, self.fc.weight)\"\n%m : fp32[128, 512] = to(%mask, fp32) !2 \"");
		strcat(strcat(graph, cases[i].line), "\"\n%y : fp32[128, 512] = mul(%h, %m) !3 \"y = h * m\"\n%l : fp32[] = sum(%y) !4 \"return y.sum()\"\noutput %l\n");
		assert_int_equal(converted(graph), cases[i].bytes);
	}
}

/* The same of a module's argument g: a line that reads it tells what it is, a product, if only one value was there before the call. */
static void
dtype_of_an_argument(void **state)
{
	static const struct {
		const char *node, *inner, *line, *back;
		uint64_t bytes;
	} cases[] = {
		{"relu(%h)", "", "a = F.relu(g)", "a * m", 128 * 512 * 2},
		{"relu(%h)", "", "a = g.relu().to(b.dtype)", "a * m", 128 * 512 * 2},
		{"relu(%h)", "/\"m.f\":\"F\"", "a = self.f(g)", "a * m", 128 * 512 * 2},
		{"relu(%h)", "", "a = F.relu(gg, self.g, g=1)", "a * m", 128 * 512 * 4},
		{"relu(%h)", "", "a = F.relu(b, g.size(0))", "a * m", 128 * 512 * 4},
		{"mul(%h, %z)", "", "a = g * b", "a * m", 128 * 512 * 4},          /* that line does not tell which, and no other does */
		{"mul(%h, %z)", "", "a = g * b", "g * m", 128 * 512 * 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char graph[2048];

		strcpy(graph, "memcrest-ir 1\ninput %x : fp32[128, 256]\ninput %z : fp32[128, 512]\ninput %mask : int64[128, 512]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\n"
		    "%h : fp32[128, 512] = linear(%x, %w) !1 \"h = F.linear(x, self.fc.weight)\"\n%a : fp32[128, 512] = ");
		strcat(strcat(strcat(graph, cases[i].node), " @\"m\":\"M\""), cases[i].inner);
		strcat(strcat(strcat(graph, " !2 \"y = self.m(h, z, mask)\" !11 \""), cases[i].line), *cases[i].inner ? "\" !21 \"return F.relu(x)" : "");
		strcat(graph, "\"\n%m : fp32[128, 512] = to(%mask, fp32) @\"m\":\"M\" !2 \"y = self.m(h, z, mask)\" !12 \"m = mask.to(g.dtype)\"\n");
		strcat(strcat(graph, *cases[i].back == 'g' ? "%y : fp32[128, 512] = mul(%h, %m)" : "%y : fp32[128, 512] = mul(%a, %m)"), " @\"m\":\"M\" !2 \"y = self.m(h, z, mask)\" !13 \"return ");
		strcat(strcat(graph, cases[i].back), "\"\n%l : fp32[] = sum(%y) !3 \"return y.sum()\"\noutput %l\n");
		assert_int_equal(converted(graph), cases[i].bytes);
	}
}

/*
 * linspace is fp32 whatever the parameters are. Its conversion, which did nothing in an fp32 file, must have been to x's dtype: the product and the sum into h want one, and
 * to convert a table of it to fp32 does nothing in any file. A name that has a dtype is hardly bound to fp32. A buffer that a product takes unconverted was
 * made in the parameters' dtype.
 */
static void
dtype_that_is_wanted(void **state)
{
	static const char *const graphs[] = {
		"memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"fc.weight\" : fp32[512, 256] trainable\n%p : fp32[256] = linspace(0, 1, 256)\n%q : fp32[256] = to(%p, fp32)\n"
		"%e : fp32[128, 256] = add(%x, %q)\n%y : fp32[128, 512] = linear(%e, %w)\n%l : fp32[] = sum(%y)\noutput %l\n",
		"memcrest-ir 1\ninput %x : fp32[128, 256]\ninput %i : int64[128]\nparam %w \"w\" : fp32[256] trainable\n%h : fp32[128, 256] = mul(%x, %w)\n%p : fp32[256] = linspace(0, 1, 256)\n"
		"%e : fp32[128, 256] = mul(%x, %p)\n%q : fp32[128, 256] = to(%e, fp32)\n%y : fp32[128, 256] = index_add(%h, 0, %i, %q)\n%l : fp32[] = sum(%y)\noutput %l\n",
		"memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"w\" : fp32[256] trainable\nbuffer %b \"b\" : fp32[1]\n%p : fp32[256] = linspace(0, 1, 256, fp32)\n%o : fp32[256] = mul(%p, %b)\n"
		"%c : fp32[256] = cos(%o)\n%q : fp32[256] = to(%c, fp32)\n%e : fp32[128, 256] = add(%x, %q)\n%y : fp32[128, 256] = mul(%e, %w)\n%l : fp32[] = sum(%y)\noutput %l\n",
		"memcrest-ir 1\ninput %x : fp32[128, 256]\ninput %i : int64[256]\nparam %w \"w\" : fp32[256] trainable\n%q : fp32[256] = to(%i, fp32) !2 \"m = ids.to(dtype)\"\n"
		"%e : fp32[128, 256] = add(%x, %q)\n%y : fp32[128, 256] = mul(%e, %w)\n%l : fp32[] = sum(%y)\noutput %l\n",
		"memcrest-ir 1\ninput %x : fp32[128, 256]\nparam %w \"w\" : fp32[512, 256] trainable\nbuffer %b \"b\" : fp32[256, 256]\n%s : fp32[128, 256] = slice(%b, 0, 0, 128)\n"
		"%e : fp32[128, 256] = mul(%x, %s)\n%y : fp32[128, 512] = linear(%e, %w)\n%l : fp32[] = sum(%y)\noutput %l\n",
	};
	static const char *const ops[] = {"add", "index_add", "add", "add", "mul"};

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct analysed a = test_analyse(graphs[i], "{\"optimizer\": \"sgd\", \"loss\": \"in-graph\", \"precision\": \"bf16\"}");
		unsigned found = 0;

		for (uint32_t k = 1; k < a.r->r.sched->nstorage; k++)
			if (a.r->r.sched->storages[k].op && strcmp(a.r->r.sched->storages[k].op, ops[i]) == 0) {
				assert_int_equal(a.r->r.sched->storages[k].nbytes, 128 * 256 * 2);
				found++;
			}
		assert_true(found);
		release_analysis(a);
	}
}

/* What is added into zeros like h, a product under autocast, has h's dtype, bf16, whatever an fp32 trace says: the conversion makes no tensor of fp32. */
static void
dtype_of_what_takes_it(void **state)
{
	static const char graph[] = "memcrest-ir 1\ninput %x : fp32[128, 256]\ninput %i : int64[128]\nparam %w \"w\" : fp32[512, 256] trainable\n"
	    "%h : fp32[128, 512] = linear(%x, %w)\n%z : fp32[128, 512] = zeros_like(%h)\n%m : fp32[128, 512] = relu(%h)\n%q : fp32[128, 512] = to(%m, fp32)\n"
	    "%y : fp32[128, 512] = index_add(%z, 0, %i, %q)\n%l : fp32[] = sum(%y)\noutput %l\n";
	struct analysed a = test_analyse(graph, "{\"optimizer\": \"sgd\", \"loss\": \"in-graph\", \"precision\": \"bf16-mixed\"}");

	(void)state;
	for (uint32_t k = 1; k < a.r->r.sched->nstorage; k++) {
		const struct storage *t = &a.r->r.sched->storages[k];

		assert_false(t->op && strcmp(t->op, "_to_copy") == 0 && t->geom && t->geom->dim[0] == 128 && t->geom->dim[1] == 512 && t->nbytes == 128 * 512 * 4);
	}
	release_analysis(a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(logits_outlive_the_loss), cmocka_unit_test(dtype_of_a_name), cmocka_unit_test(dtype_of_an_argument), cmocka_unit_test(dtype_of_what_was_filled), cmocka_unit_test(dtype_of_ranks), cmocka_unit_test(dtype_that_is_wanted),
	    cmocka_unit_test(dtype_of_what_takes_it)};

	return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
