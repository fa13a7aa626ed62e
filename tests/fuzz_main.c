/* libFuzzer's two functions. The target is named by the environment: FUZZ=onnx build/fuzz/tests/fuzz DIRECTORY.. (make fuzz) */
#include "fuzz.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static const struct fuzz_target *chosen;

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *name = getenv("FUZZ");

	(void)argc;
	(void)argv;
	for (unsigned i = 0; fuzz_at(i); i++)
		if (name && strcmp(name, fuzz_at(i)->name) == 0)
			chosen = fuzz_at(i);
	if (!chosen) {
		for (unsigned i = 0; fuzz_at(i); i++)
			fprintf(stderr, "FUZZ=%s\n", fuzz_at(i)->name);
		exit(2);
	}
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	chosen->run((const char *)p, n);
	return 0;
}
