/* What a source line of a stack trace says. */
#ifndef MC_SOURCE_LINE_H
#define MC_SOURCE_LINE_H

#include "../passes.h"

bool line_target_char(char);       /* may stand on the left side of an assignment */
bool line_name_char(char);
struct str line_targets(struct str line);          /* the left side of "name[, name..] [: type] = ...", or empty */
struct str line_appends_to(struct str line);       /* name in "name.append(...)", or empty */
struct str line_dtype_of(struct str line);         /* name in "x.to(name.dtype)" and "zeros(n, dtype=name.dtype)", or empty; so if there are several */
bool line_reads(struct str line, struct str name);                /* the name stands in it, and not only for its .dtype, .shape, .device or .size() */

#endif
