/* What is said of each node of the file: for annotated copies and viewers' sidecars. */
#ifndef MC_NOTES_H
#define MC_NOTES_H

#include "things.h"

struct note {
	struct str name;           /* of the node in the file */
	struct str module;
	struct factors at;         /* at the peak: its results, and the parameters that it is the first to read, with their gradients and state */
	uint64_t saved;
	uint8_t modality;
	bool peak, trainable;
};

struct notes {
	struct note *list;     uint32_t n;
	struct strtab *names;      /* id = index + 1 */
	struct factors elsewhere;  /* in no named node */
};
struct notes *notes_make(const struct report *, struct arena *);
const struct note *note_of(const struct notes *, struct str node);       /* NULL = none */

#endif
