/* The report: rows and totals that the measure group computes once and the backends print. Sizes in bytes. */
#ifndef MC_REPORT_H
#define MC_REPORT_H

#include "ir.h"

struct factors {
	uint64_t of[FAC_COUNT];    /* by enum factor; activations are SAVED + TRANSIENT + INPUT */
};

struct phase_row {
	uint64_t tensors;          /* peak; of the largest micro-batch */
	uint64_t allocated, reserved;      /* peaks of the allocator, workspaces and slack included */
	struct factors at;         /* at that instant */
	uint64_t step_work;        /* of at's transient: made by the optimizer's step */
	bool ran;
};

struct step_row {
	uint64_t tensors, forward_end;
	uint64_t allocated, reserved;
	uint8_t phase;             /* the earliest that reaches tensors */
	uint32_t event;            /* where */
	struct phase_row phases[PH_COUNT];
};

struct live_row {
	uint32_t storage;
	struct str name, module, node;
	const char *factor;
	uint32_t module_row;
};

struct alike_row {                 /* modules or live storages that repeat (measure/group.c) */
	struct str name;
	uint32_t count;
	uint64_t bytes;            /* of all of them */
	struct factors at;         /* modules */
	uint8_t modality;          /* modules */
	const char *factor;        /* storages */
	uint32_t storage;          /* storages: the first of them */
};

struct module_row {
	struct str path, cls;
	uint32_t parent;           /* row, the root's own for the root */
	uint8_t modality;
	uint64_t parameters, trainable;    /* elements, with children */
	struct factors at;         /* at the peak, with children */
	uint64_t saved;            /* made in the forward of the peak's step and alive at its end, with children */
	bool peak_here;
};

struct modality_row {
	uint8_t modality;
	struct str *modules;    uint32_t nmodule, module_cap;    /* topmost ones that are of one modality */
	uint64_t parameters, trainable;
	struct factors at;         /* at the peak */
	struct factors plain;      /* plain sum */
};

enum block_use { USE_FREE, USE_STORAGE, USE_WORKSPACE };

struct block_row {                 /* a block of the caching allocator at the peak */
	uint64_t bytes;
	uint32_t storage;          /* USE_STORAGE */
	uint8_t use;
};

struct segment_row {
	uint64_t bytes;            /* from the driver */
	uint32_t first, nblock;    /* in memory_row.blocks, by address */
	uint8_t stream;
	bool small, expandable;
};

struct place_row {                 /* where the allocator put a storage */
	uint64_t offset, bytes;    /* of the block, within the segment */
	uint32_t segment;          /* its number, from 0 in the order in which the driver gave them */
	uint32_t event;
};

struct memory_row {                /* what PyTorch's allocator and the driver would say */
	uint64_t allocated, reserved;      /* each the largest of both steps */
	uint64_t allocated_at, reserved_at, largest_free;  /* at the peak of the tensors; the last: of one block */
	struct segment_row *segments;  uint32_t nsegment;        /* there */
	struct block_row *blocks;      uint32_t nblock;
	struct place_row *places;  /* per storage, 0 bytes = no block; segments that were given back are in it too */
	struct place_row workspaces[2];    /* of cuBLAS, 0 bytes = none */
	uint64_t *segment_bytes;       uint32_t nsegment_ever;   /* at the end, by number; 0 = given back */
	uint32_t flushes;          /* how often cached segments were given back for want of memory */
	uint64_t limit;            /* what cudaMalloc could give, 0 = no limit */
	uint64_t short_of;         /* the first request that could not be met, 0 = none */
	uint32_t short_event;
	uint64_t context_low, context_high;
	uint64_t scratch;          /* how much more the allocator would hold if every kernel took the most it may */
	uint64_t process_low, process_high;
};

struct verdict {
	bool asked, fits;
	bool sure;                 /* false: it depends on what is only known as a range */
	uint64_t budget;
	int64_t margin;
};

struct op_count {
	struct str name;
	uint32_t count;
};

struct moved {                     /* between the device and the host's memory */
	const char *what, *when;
	uint64_t bytes;            /* on the host, where all of it takes the most */
	bool managed;              /* in managed memory: at most */
};

struct report {
	const struct graph *g;     /* as lowered, sizes bound */
	const struct graph *loaded;        /* as the file says */
	const struct recipe *r;
	const struct schedule *sched;      /* NULL for inspect */
	struct str file;
	uint64_t param_count, param_trainable, param_bytes, param_trainable_bytes, buffer_bytes;
	struct step_row steps[3];  /* 1 and 2 are used */
	uint8_t peak_step;
	uint32_t peak_node;
	struct str peak_op;
	uint8_t peak_modality;
	struct live_row *live;      uint32_t nlive;
	struct module_row *modules; uint32_t nmodule;
	struct str *module_like;   /* per row of modules: its path, numbers of repeated ones as * */
	struct alike_row *modules_alike;    uint32_t nmodules_alike;     /* largest first, as live_alike */
	struct alike_row *live_alike;       uint32_t nlive_alike;
	struct modality_row modalities[MOD_COUNT];
	struct factors plain;      /* the founding paper's equation: every factor summed over layers, no time axis */
	struct factors host;       /* where what is offloaded takes the most of the host's memory */
	uint64_t host_managed;     /* of that, in managed memory */
	struct moved *moved;        uint32_t nmoved;
	struct memory_row memory;
	struct verdict verdict;
	struct op_count *unknown;   uint32_t nunknown;
	uint32_t modelled_nodes, sized, values;
	struct str *unbound;        uint32_t nunbound;
	struct str *assumptions;    uint32_t nassumption;
	const struct diag *diags;   uint32_t ndiag;
	const struct diag *load_diags;      uint32_t nload_diag;
	bool lower_bound;
};

/* ---- sweeps ---- */

struct sweep_axis {
	struct str name;
	unsigned key;              /* RK_NONE: a dim */
	struct str *text;    uint32_t n;
	int64_t *number;           /* of the values, NULL = not numbers */
	bool fitted;               /* searched: the largest that fits */
	bool changes;              /* its values are flags: "--checkpoint non-reentrant --dim batch=4" */
};

struct sweep_row {
	bool ok, lower_bound;
	uint64_t tensors, allocated, reserved, process_low, process_high;
	struct factors at;         /* at the peak */
	uint8_t step, phase;
	struct verdict verdict;
	int64_t found;             /* value of the fitted axis, 0 = none fits */
	char error[240];
};

enum advice_cost { COST_FREE, COST_SLOWER, COST_OTHER };

struct advice {                    /* what a row of `advise` changes */
	struct str change, help;
	uint8_t cost, parts;       /* parts: how many rows of advise.def it is made of */
};

struct sweep_table {
	struct sweep_axis *axes;  uint32_t naxis, axis_cap;
	struct sweep_row *rows;   uint32_t nrow;          /* the first axis changes slowest; a fitted axis has no rows of its own */
	struct str file;
	const struct recipe *base;
	bool fits;                 /* an axis is fitted */
	struct advice *advice;     /* of every row, best first; NULL = this is a sweep */
	struct sweep_row now;      /* advice: the job as it is */
};
uint32_t sweep_value(const struct sweep_table *, uint32_t row, uint32_t axis);  /* which of the axis' values the row has */

uint64_t factors_total(const struct factors *);
uint64_t factors_act(const struct factors *);
unsigned factor_in_step(const struct report *, const struct schedule *, uint32_t storage, unsigned step, uint32_t event);

#endif
