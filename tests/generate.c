/*
 * generate KIND N: a model graph of about N nodes as text IR, to see how time and memory grow, and what odd graphs do.
 *
 *     chain     a residual network: linear, relu, add
 *     wide      N operators on one input, summed up
 *     inputs    N inputs, added one by one
 *     aliases   N views of one tensor, each of the one before
 *     params    N parameters of a few elements
 *     modules   every operator in a module of its own, nested in a hundred parents
 *     fork      one value that N operators keep for backward
 *     overflow  dims whose product exceeds 64 bits
 *     symbols   N symbolic sizes, each an input's
 *     operands  N operands of one node
 *     line      N operators on one source line, two thirds of them around a call of a module
 *     conversion  one conversion to fp32 that N operators of another line read
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void
chain(unsigned n)
{
	printf("input %%x : fp32[64, 128]\nparam %%w \"w\" : fp32[128, 128] trainable\nparam %%b \"b\" : fp32[128] trainable\n");
	printf("%%v0 : fp32[64, 128] = linear(%%x, %%w, %%b)\n");
	for (unsigned i = 0; i < n / 3; i++) {
		printf("%%l%u : fp32[64, 128] = linear(%%v%u, %%w, %%b)\n", i, i);
		printf("%%r%u : fp32[64, 128] = relu(%%l%u)\n", i, i);
		printf("%%v%u : fp32[64, 128] = add(%%r%u, %%v%u)\n", i + 1, i, i);
	}
	printf("%%s : fp32[] = sum(%%v%u)\noutput %%s\n", n / 3);
}

static void
wide(unsigned n)
{
	printf("input %%x : fp32[64]\nparam %%w \"w\" : fp32[64] trainable\n%%y : fp32[64] = mul(%%x, %%w)\n%%t0 : fp32[64] = relu(%%y)\n");
	for (unsigned i = 0; i < n / 2; i++)
		printf("%%r%u : fp32[64] = sigmoid(%%y)\n", i);
	for (unsigned i = 0; i < n / 2; i++)
		printf("%%t%u : fp32[64] = add(%%t%u, %%r%u)\n", i + 1, i, i);
	printf("%%s : fp32[] = sum(%%t%u)\noutput %%s\n", n / 2);
}

static void
inputs(unsigned n)
{
	printf("param %%w \"w\" : fp32[64] trainable\n");
	for (unsigned i = 0; i < n; i++)
		printf("input %%x%u : fp32[64]\n", i);
	printf("%%t0 : fp32[64] = relu(%%w)\n");
	for (unsigned i = 0; i < n; i++)
		printf("%%t%u : fp32[64] = mul(%%t%u, %%x%u)\n", i + 1, i, i);
	printf("%%s : fp32[] = sum(%%t%u)\noutput %%s\n", n);
}

static void
aliases(unsigned n)
{
	printf("param %%w \"w\" : fp32[8, 16] trainable\n%%v0 : fp32[8, 16] = relu(%%w)\n");
	for (unsigned i = 0; i < n; i++)
		printf("%%v%u : fp32[%s] = transpose(%%v%u, 0, 1)\n", i + 1, i % 2 ? "8, 16" : "16, 8", i);
	printf("%%s : fp32[] = sum(%%v%u)\noutput %%s\n", n);
}

static void
params(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		printf("param %%w%u \"layer.%u.weight\" : fp32[4, 4] trainable\n", i, i);
	printf("%%t0 : fp32[4, 4] = relu(%%w0)\n");
	for (unsigned i = 1; i < n; i++)
		printf("%%t%u : fp32[4, 4] = mm(%%t%u, %%w%u)\n", i, i - 1, i);
	printf("%%s : fp32[] = sum(%%t%u)\noutput %%s\n", n ? n - 1 : 0);
}

static void
modules(unsigned n)
{
	printf("param %%w \"w\" : fp32[64] trainable\n%%t0 : fp32[64] = relu(%%w)\n");
	for (unsigned i = 0; i < n; i++) {
		printf("%%t%u : fp32[64] = sigmoid(%%t%u) @", i + 1, i);
		for (unsigned k = 0; k < 100 && k < i; k++)
			printf("\"m%u\":\"M\"/", k);
		printf("\"leaf%u\":\"M\"\n", i);
	}
	printf("%%s : fp32[] = sum(%%t%u)\noutput %%s\n", n);
}

static void
forked(unsigned n)
{
	printf("input %%x : fp32[64]\nparam %%w \"w\" : fp32[64] trainable\n%%y : fp32[64] = mul(%%x, %%w)\n");
	for (unsigned i = 0; i < n; i++)
		printf("%%r%u : fp32[64] = mul(%%y, %%y)\noutput %%r%u\n", i, i);
	printf("%%s : fp32[] = sum(%%r0)\noutput %%s\n");
}

static void
overflow(unsigned n)
{
	printf("param %%w \"w\" : fp32[281474976710656, 281474976710656] trainable\n%%t0 : fp32[] = sum(%%w)\n");
	printf("%%u0 : fp32[281474976710656] = sum(%%w, [0])\n");
	for (unsigned i = 0; i < n; i++)
		printf("%%u%u : fp32[281474976710656, 281474976710656] = add(%%w, %%u%u)\n", i + 1, i);
	printf("%%s : fp32[] = sum(%%u%u)\noutput %%s\n", n);
}

static void
symbols(unsigned n)
{
	printf("param %%w \"w\" : fp32[1] trainable\n%%t0 : fp32[1] = relu(%%w)\n");
	for (unsigned i = 0; i < n; i++)
		printf("sym s%u 2..1024\ninput %%x%u : fp32[s%u]\n%%m%u : fp32[s%u] = mul(%%x%u, %%w)\n%%d%u : fp32[1] = sum(%%m%u, [0], true)\n%%t%u : fp32[1] = add(%%t%u, %%d%u)\n", i, i, i, i, i, i, i, i,
		    i + 1, i, i);
	printf("%%s : fp32[] = sum(%%t%u)\noutput %%s\n", n);
}

static void
operands(unsigned n)
{
	printf("param %%w \"w\" : fp32[4] trainable\n%%y : fp32[4] = relu(%%w)\n%%z : fp32[%llu] = cat([%%y", n * 4ull);
	for (unsigned i = 1; i < n; i++)
		printf(", %%y");
	printf("])\n%%s : fp32[] = sum(%%z)\noutput %%s\n");
}

static void
on_line(unsigned n)
{
	printf("param %%w \"w\" : fp32[4] trainable\n%%t0 : fp32[4] = relu(%%w)\n");
	for (unsigned i = 0; i < n; i++) {
		bool first = i == n / 3, called = first || i > 2 * (n / 3);

		printf("%%t%u : fp32[4] = relu(%%t%u)", i + 1, i);
		if (called)
			printf(" @\"%s\":\"M\" !1 \"x = f(x)\" !2 \"y\"\n", first ? "m" : "k");
		else
			printf(" !1 \"x = f(x)\"\n");
	}
	printf("%%s : fp32[] = sum(%%t%u)\noutput %%s\n", n);
}

static void
converted(unsigned n)
{
	printf("param %%w \"w\" : fp32[4] trainable\n%%x : fp32[4] = relu(%%w) !1 \"x = f(w)\"\n%%y : fp32[4] = to(%%x, fp32) !2 \"y = x.to(float32).pow(2)\"\n");
	printf("%%t0 : fp32[4] = pow(%%y, 2) !2 \"y = x.to(float32).pow(2)\"\n");
	for (unsigned i = 0; i < n; i++)
		printf("%%t%u : fp32[4] = mul(%%y, %%t%u) !3 \"y = x * y\"\n", i + 1, i);
	printf("%%s : fp32[] = sum(%%t%u)\noutput %%s\n", n);
}

/* generate --run COMMAND..: runs it and prints processor time in milliseconds and memory in KiB. */
static int
measure(char **command)
{
	struct rusage u;
	int status;
	pid_t child = fork();

	if (child == 0) {
		execvp(*command, command);
		_exit(127);
	}
	if (child < 0 || wait4(child, &status, 0, &u) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
		return 1;
	printf("%.1f %ld\n", (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3, u.ru_maxrss);
	return 0;
}

int
main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*make)(unsigned n);
	} kinds[] = {
		{"chain", chain}, {"wide", wide}, {"inputs", inputs}, {"aliases", aliases}, {"params", params}, {"modules", modules}, {"fork", forked},
		{"overflow", overflow}, {"symbols", symbols}, {"operands", operands}, {"line", on_line}, {"conversion", converted},
	};

	if (argc > 2 && strcmp(argv[1], "--run") == 0)
		return measure(argv + 2);
	for (size_t i = 0; argc == 3 && i < sizeof kinds / sizeof kinds[0]; i++)
		if (strcmp(argv[1], kinds[i].name) == 0) {
			printf("memcrest-ir 1\n");
			kinds[i].make((unsigned)strtoul(argv[2], NULL, 10));
			return fflush(stdout) != 0;
		}
	fprintf(stderr, "usage: generate chain|wide|inputs|aliases|params|modules|fork|overflow|symbols|operands|line|conversion N\n");
	return 2;
}
