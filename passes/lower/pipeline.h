/* pipeline.c: the loop of one rank of a pipeline. */
#ifndef MC_PIPELINE_H
#define MC_PIPELINE_H

#include "step.h"

struct pipeline;
struct stage;

bool pipeline_known(struct analysis *);
uint32_t pipeline_chunks(const struct recipe *);                  /* stages a rank */
struct pipeline *pipeline_new(struct step *, struct stage *, bool *needs, uint32_t rank);    /* also says what lives on the rank */
void pipeline_step(struct pipeline *, unsigned step);             /* all micro-batches of a step */

#endif
