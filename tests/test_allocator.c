/*
 * The caching allocator: cases whose every number is worked out by hand from the rules, event logs of real runs against the replay of the
 * reference (fixtures/truth/allocator.tsv). Invariants: test_requests.c.
 *
 * test_allocator TABLE: another table of that form, for more logs than are kept here.
 */
#include "test.h"

#include "../passes/measure/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- cases by hand -------------------------------------------------------------------------------------------- */

#define M MIB

struct play {
	struct ctx *c;
	struct allocator *a;
	uint32_t block[256];       /* by letter */
	uint64_t peak_allocated, peak_reserved;
};

static uint64_t
amount(const char **p)
{
	uint64_t whole = 0, n;
	char *end;

	for (;;) {
		bool minus = **p == '-';

		if (**p == '+' || minus)
			++*p;
		n = strtoull(*p, &end, 10);
		if (*end == 'M') {
			n *= M;
			end++;
		}
		whole = minus ? whole - n : whole + n;
		*p = end;
		if (*end != '+' && *end != '-')
			return whole;
	}
}

/* "a=6M b=1 -a c=1M+1": requests by name, and releases */
static void
go_on(struct play *p, const char *text)
{
	while (*text) {
		if (*text == ' ') {
			text++;
		} else if (*text == '-') {
			allocator_free(p->a, p->block[(unsigned char)text[1]]);
			text += 2;
		} else {
			unsigned char name = (unsigned char)*text;

			text += 2;
			p->block[name] = allocator_malloc(p->a, amount(&text), 0);
			p->peak_allocated = p->a->allocated > p->peak_allocated ? p->a->allocated : p->peak_allocated;
			p->peak_reserved = p->a->reserved > p->peak_reserved ? p->a->reserved : p->peak_reserved;
		}
	}
}

static struct play
play(const char *text, const struct alloc_config *conf)
{
	struct play p = {.c = test_ctx()};

	p.a = allocator_new(p.c->a, conf);
	go_on(&p, text);
	return p;
}

static struct alloc_config
plain(uint64_t limit, bool expandable)
{
	struct alloc_config c;

	alloc_config_default(&c);
	c.limit = limit;
	c.expandable = expandable;
	return c;
}

static const struct {
	const char *name, *requests;
	uint64_t allocated, reserved;
	bool expandable;
} cases[] = {
	{"one byte is one 512-byte block of a 2 MiB segment; no bytes are nothing", "a=1 z=0", 512, 2 * M, false},
	{"513 bytes are two", "a=513", 1024, 2 * M, false},
	{"exactly 1 MiB is small: two fill a segment", "a=1M b=1M", 2 * M, 2 * M, false},
	{"a third opens another", "a=1M b=1M c=1M", 3 * M, 4 * M, false},
	{"a byte more is large: a 20 MiB segment", "a=1M+1", M + 512, 20 * M, false},
	{"pools do not mix: 14 MiB are free in the large segment, yet 512 B open a small one", "a=6M b=512", 6 * M + 512, 22 * M, false},
	{"10 MiB - 512: a segment of 20 MiB", "a=10M-512", 10 * M - 512, 20 * M, false},
	{"10 MiB: one of 10", "a=10M", 10 * M, 10 * M, false},
	{"10 MiB + 1: one of 12, whose 2 MiB - 512 are split off", "a=10M+1", 10 * M + 512, 12 * M, false},
	{"19 MiB of 20 leave exactly 1 MiB: not split, 20 MiB count", "a=19M", 20 * M, 20 * M, false},
	{"512 B less are split", "a=19M-512", 19 * M - 512, 20 * M, false},
	{"11.2 MiB in a fresh segment of 12 count 12", "a=11744051", 12 * M, 12 * M, false},
	{"19.5 MiB in a used segment of 20 count 20", "a=6M -a b=20447232", 20 * M, 20 * M, false},
	{"small: 512 B remain of 2 MiB and are split off", "a=1M b=1M-512", 2 * M - 512, 2 * M, false},
	{"and can be had", "a=1M b=1M-512 c=5", 2 * M, 2 * M, false},
	{"best fit: 28 MiB go into the freed 30, not the 40 at a lower address, which then serve 40", "a=40M b=30M -a -b c=28M d=40M", 68 * M, 70 * M, false},
	{"with only 40 free, 28 are cut from them (12 remain), and 40 need a segment of their own", "a=40M -a c=28M d=40M", 68 * M, 80 * M, false},
	{"c joins the 2 MiB tail, so 7 MiB fit there; 8 - 7 = 1 MiB is not split off, d counts 8", "a=6M b=6M c=6M -a -c d=7M", 14 * M, 20 * M, false},
	{"6 free, 6 used, 6 free, 2 used: 8 find no room", "a=6M b=6M c=6M d=2M -a -c e=8M", 16 * M, 40 * M, false},
	{"merged on both sides: 20 MiB again", "a=6M b=6M c=6M -a -c -b d=20M", 20 * M, 20 * M, false},
	{"expandable: 6 map 20; 18 take the 14 free and 4 of a new page", "a=6M b=18M", 24 * M, 40 * M, true},
	{"without: 20 + 18", "a=6M b=18M", 24 * M, 38 * M, false},
	{"expandable: any remainder of 512 B is split off", "a=11744051", 11744256, 20 * M, true},
	{"expandable: neighbours merge over pages, 60 mapped serve 60", "a=25M b=25M -a -b c=60M", 60 * M, 60 * M, true},
	{"expandable: the small pool maps pages of 2 MiB", "a=1M b=1M c=512", 2 * M + 512, 4 * M, true},
};

static void
by_hand(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct alloc_config conf = plain(0, cases[i].expandable);
		struct play p = play(cases[i].requests, &conf);

		if (p.a->allocated != cases[i].allocated || p.a->reserved != cases[i].reserved)
			fail_msg("%s: %llu of %llu", cases[i].name, (unsigned long long)p.a->allocated, (unsigned long long)p.a->reserved);
		test_ctx_free(p.c);
	}
}

/* Of blocks of equal size the one at the lowest address is taken: the first segment. */
static void
ties(void **state)
{
	struct alloc_config conf = plain(0, false);
	struct play p = play("a=12M b=12M -b -a c=12M", &conf);

	(void)state;
	assert_int_equal(p.a->blocks[p.block['c']].segment, 1);
	test_ctx_free(p.c);
}

static void
peaks_stay(void **state)
{
	struct alloc_config conf = plain(0, false);
	struct play p = play("a=30M b=5M -a -b", &conf);

	(void)state;
	assert_int_equal(p.a->allocated, 0);
	assert_int_equal(p.a->reserved, 50 * M);
	assert_int_equal(p.peak_allocated, 35 * M);
	assert_int_equal(p.peak_reserved, 50 * M);
	test_ctx_free(p.c);
}

/* 30 cached + 40 > 50: the cached segment goes back. A segment that is partly used does not. What cannot be had is counted. */
static void
limits(void **state)
{
	struct alloc_config conf = plain(50 * M, false);
	struct play p = play("a=30M -a b=40M", &conf);

	(void)state;
	assert_int_equal(p.a->reserved, 40 * M);
	assert_int_equal(p.peak_reserved, 40 * M);
	assert_int_equal(p.a->flushes, 1);
	assert_int_equal(p.a->failures, 0);
	test_ctx_free(p.c);
	p = play("a=6M b=24M -b c=30M", &conf);
	assert_int_equal(p.a->reserved, 50 * M);
	assert_int_equal(p.peak_reserved, 50 * M);
	assert_int_equal(p.a->flushes, 1);
	test_ctx_free(p.c);
	p = play("a=6M b=24M c=15M", &conf);
	assert_int_equal(p.a->failures, 1);
	assert_int_equal(p.a->reserved, 60 * M);           /* 20 + 24 + 16: the replay goes on */
	test_ctx_free(p.c);
}

/*
 * Best fit counts what a block can grow to. Holes of 5 (between a and c) and the tail: 4 MiB go into the 5, also when the tail has only 4.
 * At the limit: [0, 30) free, [30, 36) used, [36, 40) free, 40 mapped; 35 from 36 would map 40 more (80 > 60), so the page [0, 20) goes
 * back and 40 are mapped behind: 60. Afterwards 12 MiB do not fit in [20, 30), so [0, 20) is mapped again.
 */
static void
expandable(void **state)
{
	struct alloc_config conf = plain(0, true);
	struct play p = play("a=3M h=5M c=4M -h d=4M", &conf);

	(void)state;
	assert_int_equal(p.a->blocks[p.block['d']].offset, 3 * M);
	assert_int_equal(p.a->reserved, 20 * M);
	test_ctx_free(p.c);
	p = play("a=3M h=5M c=8M -h d=4M", &conf);
	assert_int_equal(p.a->blocks[p.block['d']].offset, 3 * M);
	assert_int_equal(p.a->reserved, 20 * M);
	test_ctx_free(p.c);
	conf.limit = 60 * M;
	p = play("a=30M b=6M -a c=35M", &conf);
	assert_int_equal(p.a->blocks[p.block['c']].offset, 36 * M);
	assert_int_equal(p.a->reserved, 60 * M);
	assert_int_equal(p.peak_reserved, 60 * M);
	assert_int_equal(p.a->flushes, 1);
	p.a->conf.limit = 0;
	go_on(&p, "d=12M");
	assert_int_equal(p.a->blocks[p.block['d']].offset, 0);
	assert_int_equal(p.a->reserved, 80 * M);
	test_ctx_free(p.c);
}

/* Four divisions: 1200 KiB lie between 1024 and 2048, in steps of 256: 1280. Below 512 B times the divisions the plain rule holds. */
static void
power2_divisions(void **state)
{
	struct alloc_config conf = plain(0, false);

	(void)state;
	for (unsigned i = 0; i < ALLOC_INTERVALS; i++)
		conf.divisions[i] = 4;
	assert_int_equal(alloc_round(&conf, 1200 * KIB), 1280 * KIB);
	assert_int_equal(alloc_round(&conf, 1280 * KIB), 1280 * KIB);
	assert_int_equal(alloc_round(&conf, 1024 * KIB), 1024 * KIB);
	assert_int_equal(alloc_round(&conf, 2048), 2048);
	assert_int_equal(alloc_round(&conf, 2049), 2560);          /* between 2048 and 4096 in steps of 512 */
	assert_int_equal(alloc_round(&conf, 9000), 10240);         /* between 8192 and 16384 in steps of 2048 */
	conf.divisions[0] = 1;                                     /* below 2 MiB: off */
	assert_int_equal(alloc_round(&conf, 9000), 9216);
	assert_int_equal(alloc_round(&conf, 70 * GIB), 80 * GIB);  /* the last interval has no end: 64 to 128 in steps of 16 */
}

/*
 * max_split_size 20 MiB. 25 MiB take a segment of 26 whole. When it is free, 6 MiB may not be cut from it: another 20. 24 MiB may have it
 * (26 < 24 + 20), and it counts 26. 22 may not have 50 (50 >= 22 + 20).
 */
static void
max_split(void **state)
{
	struct alloc_config conf = plain(0, false);
	struct play p;

	(void)state;
	conf.max_split = 20 * M;
	p = play("a=25M", &conf);
	assert_int_equal(p.a->allocated, 26 * M);
	go_on(&p, "-a b=6M");
	assert_int_equal(p.a->reserved, 46 * M);
	go_on(&p, "c=24M");
	assert_int_equal(p.a->allocated, 32 * M);
	assert_int_equal(p.a->reserved, 46 * M);
	test_ctx_free(p.c);
	p = play("a=50M -a b=22M", &conf);
	assert_int_equal(p.a->reserved, 72 * M);
	test_ctx_free(p.c);
}

/*
 * At the limit with max_split_size oversize blocks go first, and only as many as are needed. 62 MiB: no block reaches 62, so the largest
 * go until 62 are back: 40 and 30; 24 and 62 remain. 22 MiB: 46 and 50 are free, but 20 or more too large; the smallest that would do, 46,
 * goes: 20, 50 and 22 remain.
 */
static void
release_oversize_first(void **state)
{
	struct alloc_config conf = plain(100 * M, false);
	struct play p;

	(void)state;
	conf.max_split = 20 * M;
	p = play("a=24M b=30M c=40M -b -c d=62M", &conf);
	assert_int_equal(p.a->reserved, 86 * M);
	assert_int_equal(p.a->flushes, 0);
	test_ctx_free(p.c);
	conf.limit = 120 * M;
	p = play("a=20M b=50M c=46M -b -c d=22M", &conf);
	assert_int_equal(p.a->reserved, 92 * M);
	assert_int_equal(p.a->flushes, 0);
	test_ctx_free(p.c);
}

/*
 * Garbage is collected before the driver is asked: 100 MiB allowed, threshold 0.5. 20 + 24 + 26 = 70 reserved; 12 MiB are cut from the
 * 20. 30 MiB fit nowhere, and 70 > 50, so 20 must come back: of the two segments that are free, 24 was freed before the last search but
 * one and 26 after it; the average age is between them, so the 24 goes, which is enough: 46 + 30 = 76.
 */
static void
garbage(void **state)
{
	struct alloc_config conf = plain(0, false);
	struct play p;

	(void)state;
	conf.allowed = 100 * M;
	conf.gc_threshold = 0.5;
	p = play("a=20M b=24M c=26M -a -b d=12M -c e=30M", &conf);
	assert_int_equal(p.a->reserved, 76 * M);
	assert_int_equal(p.a->flushes, 0);
	test_ctx_free(p.c);
	conf.gc_threshold = 0;
	p = play("a=20M b=24M c=26M -a -b d=12M -c e=30M", &conf);
	assert_int_equal(p.a->reserved, 100 * M);
	go_on(&p, "f=30M");                                /* above what is allowed: everything free goes back */
	assert_int_equal(p.a->flushes, 1);
	assert_int_equal(p.a->reserved, 80 * M);           /* 20 (d in it), 30, 30 */
	test_ctx_free(p.c);
}

/* Larger segments for requests below 10 MiB, and larger pages. */
static void
large_segments(void **state)
{
	struct alloc_config conf = plain(0, false);
	struct play p;

	(void)state;
	conf.large_segment = 64 * M;
	p = play("a=5M b=50M", &conf);
	assert_int_equal(p.a->reserved, 64 * M);           /* 50 of the 59 that are left */
	test_ctx_free(p.c);
	conf.expandable = true;
	p = play("a=5M b=60M", &conf);
	assert_int_equal(p.a->reserved, 128 * M);
	test_ctx_free(p.c);
}

/* What one stream has free is not for another. */
static void
streams(void **state)
{
	struct alloc_config conf = plain(0, false);
	struct play p = play("a=30M -a", &conf);
	uint32_t b = allocator_malloc(p.a, 30 * M, 1);

	(void)state;
	assert_int_equal(p.a->reserved, 60 * M);
	allocator_free(p.a, b);
	b = allocator_malloc(p.a, 30 * M, 1);
	assert_int_equal(p.a->reserved, 60 * M);
	assert_int_equal(p.a->blocks[b].stream, 1);
	test_ctx_free(p.c);
}

static uint32_t
ask(struct replay *r, const char *op, uint64_t bytes)
{
	return replay_alloc(r, &(struct storage){.op = op, .requested = bytes});
}

/* ---- a log by hand ----------------------------------------------------------------------------------------------- */

/*
 * 6 MiB from before; a product of 4 MiB in forward and its workspace (8.125 MiB: all three in one 20 MiB segment, 1.875 left, more than
 * 1 MiB, so split off); in backward 3 MiB + 8.125 need another 20. h (3 MiB) gets the hole of y (4 MiB) whole, since only 1 MiB would
 * remain. Step 2: no third workspace: 6 + 3 + 4 + 4 MiB and two workspaces.
 */
static void
workspaces(void **state)
{
	const uint64_t w = 8519680;
	struct replay_conf conf = {.workspace = w};
	struct ctx *c = test_ctx();
	struct replay r;
	uint32_t y, g;

	(void)state;
	alloc_config_default(&conf.alloc);
	replay_start(&r, c->a, &conf);
	replay_span(&r, 0, PH_START);
	ask(&r, "param", 6 * M);
	replay_span(&r, 1, PH_FORWARD);
	y = ask(&r, "addmm", 4 * M);
	ask(&r, "sum", 512);
	replay_span(&r, 1, PH_BACKWARD);
	g = ask(&r, "mm", 3 * M);
	replay_free(&r, y);
	ask(&r, "mm", 3 * M);
	replay_span(&r, 2, PH_FORWARD);
	ask(&r, "addmm", 4 * M);
	replay_free(&r, g);
	assert_int_equal(r.at[1][PH_FORWARD].allocated, 10 * M + w + 512);
	assert_int_equal(r.at[1][PH_FORWARD].reserved, 22 * M);
	assert_int_equal(r.at[1][PH_BACKWARD].allocated, 13 * M + 2 * w + 512);
	assert_int_equal(r.at[1][PH_BACKWARD].reserved, 42 * M);
	assert_int_equal(r.at[2][PH_FORWARD].allocated, 17 * M + 2 * w + 512);
	assert_int_equal(r.at[2][PH_FORWARD].allocated_end, 14 * M + 2 * w + 512);
	test_ctx_free(c);
	assert_true(is_matrix_product("bmm") && is_matrix_product("bmm_backward") && is_matrix_product("_int_mm"));
	assert_false(is_matrix_product("convolution") || is_matrix_product("mul") || is_matrix_product("mmx") || is_matrix_product("dot"));
}

/* ---- logs of real runs -------------------------------------------------------------------------------------------- */

struct log {
	struct replay r;
	uint32_t *block;           /* by storage number in the log */
	size_t cap;
	bool failed;
};

/* aten.addmm.default -> addmm, aten.mm.dtype -> mm */
static void
kernel_name(const char *op, char *out, size_t size)
{
	const char *dot = strchr(op, '.');

	op = strncmp(op, "aten.", 5) == 0 && dot ? dot + 1 : op;
	snprintf(out, size, "%.*s", (int)strcspn(op, "."), op);
}

static unsigned
phase_of(const char *name)
{
	for (unsigned p = 0; p < PH_COUNT; p++)
		if (strcmp(name, phase_name(p)) == 0)
			return p;
	return 0;
}

static void
log_line(struct log *l, const char *line)
{
	char phase[32], action[16], op[128], kernel[128];
	unsigned long long bytes, key;
	unsigned step;

	if (sscanf(line, "%u\t%31s\t%15s\t%llu\t%*u\t%127s\t%*s\t%*s\t%llu", &step, phase, action, &bytes, op, &key) != 6)
		if (sscanf(line, "%u\t%31s\t%15s\t%llu\t%*u\t%127s\t%*s\t\t%llu", &step, phase, action, &bytes, op, &key) != 6)       /* a scalar has no dims */
			fail_msg("%s", line);
	while (key >= l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 4096;

		l->block = realloc(l->block, cap * sizeof *l->block);
		assert_non_null(l->block);
		memset(l->block + l->cap, 0, (cap - l->cap) * sizeof *l->block);
		l->cap = cap;
	}
	kernel_name(op, kernel, sizeof kernel);
	replay_span(&l->r, step, phase_of(phase));
	if (action[0] == 'a') {
		l->block[key] = ask(&l->r, kernel, bytes);
	} else {
		replay_free(&l->r, l->block[key]);
		l->block[key] = 0;
	}
}

static void
replay_log(struct log *l, struct arena *a, const char *path, const struct replay_conf *conf)
{
	gzFile f = gzopen(path, "rb");
	char line[1024];

	if (!f)
		fail_msg("cannot open %s", path);
	replay_start(&l->r, a, conf);
	gzgets(f, line, sizeof line);
	while (gzgets(f, line, sizeof line))
		log_line(l, line);
	gzclose(f);
}

static void
compare_row(struct log *l, const char *what, unsigned step, const char *phase, const unsigned long long *want)
{
	const struct replay_peak *p = &l->r.at[step][phase_of(phase)];
	const uint64_t got[] = {p->allocated, p->reserved, p->allocated_end, p->reserved_end};

	for (unsigned i = 0; i < 4; i++)
		if (got[i] != want[i])
			fail_msg("%s step %u %s, column %u: %llu, reference %llu", what, step, phase, i, (unsigned long long)got[i], want[i]);
}

static const char *table = "fixtures/truth/allocator.tsv";

/* log, workspace, limit, expandable, step, phase, allocated, reserved, allocated_end, reserved_end; rows of one run in a row */
static void
logs_equal_the_reference(void **state)
{
	FILE *f = fopen(table, "r");
	char line[1024], path[512], phase[32], last[1024] = "", run[700];
	struct ctx *c = NULL;
	struct log l = {0};
	unsigned rows = 0, runs = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		unsigned long long workspace, limit, want[4];
		unsigned expand, step;

		if (sscanf(line, "%511s %llu %llu %u %u %31s %llu %llu %llu %llu", path, &workspace, &limit, &expand, &step, phase, &want[0], &want[1], &want[2],
		    &want[3]) != 10)
			continue;
		snprintf(run, sizeof run, "%s workspace %llu limit %llu expandable %u", path, workspace, limit, expand);
		if (strcmp(run, last) != 0) {
			struct replay_conf conf = {.alloc = plain(limit, expand != 0), .workspace = workspace};

			snprintf(last, sizeof last, "%s", run);
			if (c)
				test_ctx_free(c);
			free(l.block);
			l = (struct log){0};
			c = test_ctx();
			replay_log(&l, c->a, path, &conf);
			runs++;
		}
		compare_row(&l, run, step, phase, want);
		rows++;
	}
	fclose(f);
	free(l.block);
	if (c)
		test_ctx_free(c);
	print_message("%u runs, %u phases equal the reference\n", runs, rows);
	assert_true(rows > 100);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_hand), cmocka_unit_test(ties), cmocka_unit_test(peaks_stay), cmocka_unit_test(limits), cmocka_unit_test(expandable),
		cmocka_unit_test(power2_divisions), cmocka_unit_test(max_split), cmocka_unit_test(release_oversize_first), cmocka_unit_test(garbage),
		cmocka_unit_test(large_segments), cmocka_unit_test(streams), cmocka_unit_test(workspaces), cmocka_unit_test(logs_equal_the_reference),
	};

	table = argc > 1 ? argv[1] : table;
	return cmocka_run_group_tests_name("allocator", tests, NULL, NULL);
}
