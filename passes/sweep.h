/* Inside of the sweep: its columns (sweep_values.c), one configuration (sweep.c), the search (sweep_fit.c). */
#ifndef MC_SWEEP_H
#define MC_SWEEP_H

#include "../ir/api.h"

#define SWEEP_ROWS 1000000u

bool sweep_add_axis(struct mc_sweep *, struct str name, struct str values);        /* sweep_values.c */

bool changes_set(struct ctx *, struct recipe *, struct str changes);      /* advise.c */

struct configuration {             /* one analysis: a row, and what the fitted axis is set to */
	struct mc_sweep *s;
	const mc_options *options;
	struct crew *crew;
	uint32_t row;
	int64_t fitted;
};
mc_status analyze_brief(const mc_model *, const mc_recipe *, const mc_options *, mc_report **);    /* analyze.c: numbers only */
void sweep_analyse(const struct configuration *, struct sweep_row *);     /* sweep.c */
void sweep_search(struct configuration *, uint32_t axis, struct sweep_row *);      /* sweep_fit.c */

#endif
