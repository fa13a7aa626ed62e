/* batch MODEL BUDGET: the largest batch that fits, by a sweep on all cores, from a model that is already in memory. */
#include <memcrest.h>

#include <stdio.h>
#include <stdlib.h>

static int
print(void *user, const void *text, size_t n)
{
	return fwrite(text, 1, n, user) != n;
}

static char *
read_all(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	char *p = NULL;

	if (f && fseek(f, 0, SEEK_END) == 0 && ftell(f) > 0) {
		*n = (size_t)ftell(f);
		rewind(f);
		p = malloc(*n);
		if (p && fread(p, 1, *n, f) != *n) {
			free(p);
			p = NULL;
		}
	}
	if (f)
		fclose(f);
	return p;
}

int
main(int argc, char **argv)
{
	size_t n = 0;
	char *bytes = argc == 3 ? read_all(argv[1], &n) : NULL;
	mc_recipe *r = mc_recipe_new();
	mc_model *m = NULL;
	mc_sweep *s = NULL;
	int ok = bytes && r && mc_recipe_set(r, "budget", argv[2]) == MC_OK && mc_recipe_set(r, "precision", "bf16") == MC_OK;

	ok = ok && mc_load_memory(bytes, n, argv[1], NULL, &m) == MC_OK;
	ok = ok && mc_sweep_new(m, r, &s) == MC_OK && mc_sweep_vary(s, "batch", "1..1024") == MC_OK && mc_sweep_fit(s, "batch") == MC_OK;
	ok = ok && mc_sweep_run(s, NULL, 0, NULL, NULL) != MC_BAD_INPUT;
	ok = ok && mc_sweep_write(s, "text", print, stdout) == MC_OK;
	if (!ok)
		fprintf(stderr, "usage: batch MODEL BUDGET, such as: batch model.pt2 24GiB\n");
	mc_sweep_free(s);
	mc_model_free(m);
	mc_recipe_free(r);
	free(bytes);
	return !ok;
}
