/* The command line, over memcrest.h alone. */
#include "memcrest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int to_stdout(void *u, const void *p, size_t n) { (void)u; return fwrite(p, 1, n, stdout) != n; }
static void diags(size_t n, mc_diagnostic *d) { for (size_t i = 0; i < n; i++) fprintf(stderr, "%s%s%s %s\n", d[i].where, *d[i].where ? ": " : "", d[i].code, d[i].message); }
static void dumpfn(void *u, const char *t, size_t n) { (void)u; fwrite(t, 1, n, stderr); }
int main(int argc, char **argv)
{
	const char *cmd = argv[1], *file = argv[2], *format = "text";
	mc_recipe *r = mc_recipe_new(); mc_options o; mc_options_init(&o); mc_diagnostic d[100]; mc_model *m; mc_report *rep; mc_status st; int incomplete = 0;
	for (int i = 3; i < argc; i++) {
		if (!strcmp(argv[i], "-r")) { static char buf[1<<20]; FILE *f = fopen(argv[++i], "r"); size_t n = fread(buf, 1, sizeof buf, f); fclose(f); if (mc_recipe_json(r, buf, n, argv[i])) { diags(mc_recipe_diagnostics(r, d, 100), d); return 2; } }
		else if (!strcmp(argv[i], "-f")) format = argv[++i];
		else if (!strncmp(argv[i], "--dump-ir=", 10)) { o.dump_after = argv[i] + 10; o.dump = dumpfn; }
		else if (!strcmp(argv[i], "--allow-incomplete")) incomplete = 1;
	}
	if (!strcmp(cmd, "events")) format = "events";
	st = mc_load_path(file, &o, &m);
	if (st) { diags(mc_model_diagnostics(m, d, 100), d); return 2; }
	st = strcmp(cmd, "inspect") ? mc_analyze(m, r, &o, &rep) : mc_inspect(m, r, &o, &rep);
	diags(mc_report_diagnostics(rep, d, 100), d);
	if (st && st != MC_INCOMPLETE) return 2;
	mc_write(rep, format, to_stdout, NULL);
	mc_report_free(rep); mc_model_free(m); mc_recipe_free(r);
	return st && !incomplete ? 3 : 0;
}
