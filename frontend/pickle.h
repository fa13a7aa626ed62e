/*
 * Python's pickles as data: protocols 2 to 5, read into a tree of tagged values in the arena. Nothing is called, imported or
 * executed; a class or function is its name. What PyTorch writes for storages and tensors is recognised (formats.md 2.2, 2.3);
 * every other call stays a call with its arguments. Values that the pickle shares are shared, so the tree is a graph, and a hostile
 * one may have cycles: whoever walks it bounds the depth.
 */
#ifndef MC_PICKLE_H
#define MC_PICKLE_H

#include "../ir/ir.h"

enum pickle_kind {
	PK_NONE, PK_BOOL, PK_INT, PK_FLOAT, PK_STR, PK_BYTES,
	PK_TUPLE, PK_LIST, PK_SET, PK_DICT,
	PK_GLOBAL,                 /* a class or function: "module.name" */
	PK_OBJECT,                 /* an instance: class, arguments of __new__, state */
	PK_CALL,                   /* a function and its arguments, not called; state if there is one */
	PK_STORAGE,
	PK_TENSOR
};

struct pickle_storage {            /* bytes that lie elsewhere */
	struct str key, device;
	int64_t count;             /* elements of dtype */
	uint8_t dtype;             /* DT_NONE = untyped bytes */
};

struct pickle_tensor {
	const struct pickle_storage *storage;
	int64_t offset;
	int64_t dim[MAX_RANK], stride[MAX_RANK];
	uint8_t rank, dtype;
	bool requires_grad, is_parameter;
};

struct pickle {
	uint8_t kind;
	uint32_t n, cap;           /* TUPLE, LIST, SET, DICT: entries of item; a DICT has key and value in turn */
	union {
		bool b;
		int64_t i;
		double f;
		struct str s;      /* STR, BYTES, GLOBAL */
		struct pickle **item;
		struct pickle_storage *storage;
		struct pickle_tensor *tensor;
	} u;
	struct pickle *of, *args, *state;  /* OBJECT, CALL: the GLOBAL, its arguments (TUPLE), what BUILD gave */
	uint32_t mark;             /* the reader's own; 0 at first */
	void *made;                /* likewise: what it made of this value */
};

struct pickle *pickle_read(struct ctx *, struct str bytes);       /* NULL: reported */
struct pickle *pickle_get(const struct pickle *dict, struct str key);     /* NULL = not there, or no dict */
struct str pickle_str(const struct pickle *);                     /* empty if it is no text */
bool pickle_is(const struct pickle *global, const char *name);    /* a GLOBAL of that name? */

#endif
