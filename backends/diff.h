/* Two columns of numbers side by side: two reports, or a prediction and a measurement. */
#ifndef MC_DIFF_H
#define MC_DIFF_H

#include "backend.h"

#include "../ir/api.h"

enum diff_section { DIFF_MEMORY, DIFF_FACTORS, DIFF_PHASES, DIFF_MODALITIES, DIFF_MODULES, DIFF_RECIPE, DIFF_SECTIONS };

struct diff_row {
	uint8_t section;
	struct str name;
	int64_t a, b;              /* bytes */
	struct str text_a, text_b; /* DIFF_RECIPE */
};

struct mc_diff {
	struct ctx c;
	struct str title_a, title_b;       /* the columns */
	struct diff_row *rows;  uint32_t nrow, cap;
	bool differs;
};

void diff_bytes(struct mc_diff *, unsigned section, struct str name, int64_t a, int64_t b);
mc_status diff_begin(mc_diff **out);
/* compare.c */
bool compare_read(struct mc_diff *, const struct report *, struct str pickle);

#endif
