/* Inside of the frontends: bytes -> graph. A frontend translates: names, operators, declared shapes, parameters, module paths. It computes nothing. */
#ifndef MC_FRONTEND_H
#define MC_FRONTEND_H

#include "json.h"

struct source {                    /* a file in memory; the mapping belongs to whoever opened it */
	const unsigned char *p;
	uint64_t n;
	struct str name;           /* for messages and reports */
};

struct frontend {
	const char *name;          /* format, as reports spell it */
	const char *help;
	int (*probe)(struct ctx *, const struct source *);       /* how many bits it has verified; 0 = not mine */
	bool (*load)(struct ctx *, const struct source *, struct graph **);
};

/* place.c */
struct str place_split_call(struct str path, uint32_t *call);    /* "path@1" is the second call of path */
void place_frames(struct graph *, struct str trace, uint32_t *first, uint16_t *count);    /* of a Python stack trace */

/* frontend.c */
void frontend_file_dtype(struct graph *);                        /* the dtype of most floating-point parameters */
bool frontend_load(struct ctx *, const struct source *, struct graph **);
const struct frontend *frontend_at(unsigned i);                  /* NULL behind the last */

/* zip.c: members by name; names may be given without the archive's root folder */
struct zip_archive;
struct zip_archive *zip_open_source(struct ctx *, const struct source *);        /* NULL: not a zip archive, reported */
struct zip_archive *zip_open_member(struct ctx *, const struct zip_archive *, struct str name);  /* an archive within; NULL: none, or packed */
uint32_t zip_count(const struct zip_archive *);
struct str zip_member(const struct zip_archive *, uint32_t i);   /* its name */
struct zip_archive *zip_peek(struct ctx *, const struct source *);       /* the same, but nothing is reported */
bool zip_has(const struct zip_archive *, struct str name);
bool zip_size(const struct zip_archive *, struct str name, uint64_t *size);      /* unpacked bytes; false: not there */
bool zip_find_suffix(const struct zip_archive *, struct str suffix, struct str *name);   /* the first member that ends so */
bool zip_find_part(const struct zip_archive *, struct str part, struct str *name);         /* the first that has part in its name */
bool zip_read(struct ctx *, const struct zip_archive *, struct str name, struct str *out);       /* NUL-terminated, in the arena */
void zip_close_archive(struct ctx *, struct zip_archive *);

/* the frontends */
extern const struct frontend frontend_export, frontend_onnx, frontend_script, frontend_textir;

/* foreign.c: files that are no model graphs */
const char *foreign_sentence(struct ctx *, const struct source *);       /* what it is and what to export instead; NULL = not recognised */

/* recipe.c: a recipe from JSON text */
bool recipe_read_json(struct ctx *, struct recipe *, struct str text);
bool recipe_set_list(struct ctx *, struct recipe *, unsigned key, const json_t *);        /* a list of strings, or one string */
struct str json_text_of(struct ctx *, const json_t *);          /* a scalar as text; others by their kind */
bool recipe_set_json(struct ctx *, struct recipe *, struct str name, struct str text);   /* a flag's value: plain text, or JSON for objects and lists */

/* yaml.c */
json_t *yaml_read(struct ctx *, struct str text);                /* NULL: reported */

/* framework.c: files of training frameworks become keys of the recipe */
unsigned framework_by_name(struct str name);                     /* enum framework_file */
const char *framework_name(unsigned file);
bool names_are_unique(struct ctx *, const json_t *object);       /* false: reported */
bool framework_read(struct ctx *, struct recipe *, unsigned file, struct str text, struct str name);
bool framework_accumulation(struct ctx *, struct recipe *, struct str *how);     /* grad_accum that follows from the batch and the ranks; how stays if it does not */

#endif
