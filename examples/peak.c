/* The shortest use: peak MODEL prints how much memory one training step needs, with the defaults of everything. */
#include <memcrest.h>

#include <inttypes.h>
#include <stdio.h>

static void
complain(void *user, const mc_diagnostic *d)
{
	fprintf(user, "%s: %s\n", d->code, d->message);
}

int
main(int argc, char **argv)
{
	mc_model *m = NULL;
	mc_report *r = NULL;
	mc_options o;
	mc_status st;

	mc_options_init(&o);
	o.diagnostic = complain;
	o.diagnostic_user = stderr;
	st = argc == 2 ? mc_load_path(argv[1], &o, &m) : MC_BAD_INPUT;
	if (st == MC_OK)
		st = mc_analyze(m, NULL, &o, &r);
	if (st == MC_OK || st == MC_INCOMPLETE)
		printf("%s%" PRIu64 " bytes\n", st == MC_OK ? "" : "at least ", mc_report_peak(r));
	mc_report_free(r);
	mc_model_free(m);
	return st;
}
