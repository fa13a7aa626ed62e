/* Every parser, and the whole program, as a function of bytes: test_fuzz.c replays corpora, fuzz_main.c hands them to libFuzzer. */
#ifndef MC_FUZZ_H
#define MC_FUZZ_H

#include <stddef.h>

struct fuzz_target {
	const char *name;          /* of its corpus: fixtures/fuzz/NAME/ */
	void (*run)(const char *p, size_t n);
};

const struct fuzz_target *fuzz_at(unsigned i);     /* NULL behind the last */

#endif
