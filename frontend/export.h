/*
 * What the parts of the torch.export frontend share: export.c reads the archive and the program's signature, export_node.c its
 * nodes, export_arg.c their arguments and the records of values. formats.md section 3 has the schema.
 */
#ifndef MC_EXPORT_H
#define MC_EXPORT_H

#include "frontend.h"
#include "pickle.h"

struct rebound {                   /* a name's value before an inner region used the name */
	uint32_t id, val;
};

struct loader {
	struct ctx *c;
	struct graph *g;
	const json_t *tensors;     /* tensor_values of the graph being read */
	const json_t *symints;     /* sym_int_values */
	uint32_t *val_of;          /* by interned name */
	uint32_t val_cap;
	uint32_t *expr_of;         /* by interned text of a size expression */
	uint32_t expr_cap;
	uint32_t *op_of;           /* by interned target: operator + 1, 0 = not looked up; IN_PLACE set for add_ and the like */
	uint32_t op_cap;
	const char *trace;         /* last stack trace read, and its frames */
	uint32_t trace_frame;
	uint16_t trace_n;
	struct strtab *paths;      /* storages of parameters */
	uint32_t *owner;           /* parameter by storage */
	uint32_t owner_cap;
	const json_t *constants;   /* records of tensors that are no part of the state, by name */
	const json_t *weights;     /* .. of those that are, or */
	struct str nowhere;        /* the path that says nothing of what shares a storage */
	const struct pickle *state;        /* the state dict, in older archives */
	uint16_t flags;            /* of nodes, by the region they are in */
	uint8_t autocast;          /* likewise */
	unsigned depth;            /* of regions */
	bool again;                /* a region that was read before is read once more */
	uint32_t nagain;           /* nodes read so */
	uint32_t region_first;     /* values above it were made in the region being read */
	struct rebound *rebound;   /* names that inner regions took, to give back */
	uint32_t nrebound, rebound_cap;
};

/* export_arg.c */
uint32_t *export_slot(struct loader *, uint32_t **array, uint32_t *cap, uint32_t i);        /* grows with zeros */
bool export_expected(struct loader *, const char *where, const char *what);
bool export_define(struct loader *, enum val_kind, struct str name, uint32_t *val);        /* a new value, with its record */
void export_bind(struct loader *, uint32_t name_id, uint32_t val);        /* what the name means from here to the region's end */
bool export_lookup(struct loader *, const json_t *tensor, uint32_t *val);
const json_t *export_field(const json_t *, const char *name);      /* NULL: not there, or null, as torch until 2.2 spells absent fields */
bool export_arg(struct loader *, const json_t *, struct arg *);

/* export_node.c */
bool export_nodes(struct loader *, const json_t *graph);
uint32_t export_scope(struct loader *, struct str nn_module_stack);
void export_trace(struct loader *, uint32_t node, struct str stack_trace);

/* export_region.c: operators with graphs as arguments */
bool export_region(struct loader *, const json_t *node, struct str target, bool *ok);

#endif
