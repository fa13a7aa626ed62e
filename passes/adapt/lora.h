/* What the files of the pass lora share: lora_base.c finds modules, lora.c adds plain adapters, dora.c DoRA's. */
#ifndef MC_LORA_H
#define MC_LORA_H

#include "../passes.h"

#include <regex.h>

struct lora {
	struct analysis *a;
	struct graph *g;           /* being rebuilt */
	const struct node *behind;         /* the node after the one that was moved last, NULL = none */
	int64_t rank;
	uint8_t dtype;
	bool dropout, dora;
	regex_t *re;               /* NULL = a list of names */
	bool all_linear;
	uint32_t count;
	/* of the module being extended */
	uint32_t scope, frame;
	uint16_t nframe;
	uint8_t modality;
	uint32_t after;            /* its last parameter */
	const char *outer[4];      /* the statements that call what is being added, one for every scope inside PEFT's layer */
};

/* How one module is called: everything of its node that the adapters need. */
struct base {
	unsigned op;
	uint32_t x, weight, bias, result, out;     /* input; parameters; the old result, now the adapted sum; the base's own */
	struct arg stride, padding, dilation, groups, padding_idx;
	bool turned;               /* the weight is [in, out] */
	bool flat;                 /* x has its rows in one dim, the result has not */
	uint32_t node[3];          /* that the call consists of */
	unsigned nnode;
};

/* lora_base.c */
bool lora_base(const struct lora *, uint32_t n, struct base *);        /* is n the last node of a module that may be adapted? */
bool lora_is_quantized(unsigned op);

uint32_t lora_scope(struct lora *, const char *name, const char *cls);
uint32_t lora_node(struct lora *, unsigned op, const struct arg *, unsigned narg, uint32_t out, uint32_t scope, uint32_t line, const char *text);
uint32_t lora_value(struct lora *, uint32_t like, const char *suffix);
uint32_t lora_unranked(struct lora *, const struct base *, const char *suffix);
uint32_t lora_parameter(struct lora *, const char *name, unsigned rank, const struct sint *dims);
void lora_result(struct lora *, const struct base *, uint32_t sum);
uint32_t lora_convolve(struct lora *, const struct base *, uint32_t x, uint32_t down, uint32_t up, uint32_t line, const char *text);     /* lora_B(lora_A(x)) */
void lora_variant(struct lora *);        /* what is added from here on is in the forward of DoRA's variant of the layer */
void lora_dora(struct lora *, const struct base *, uint32_t x, uint32_t down, uint32_t up);     /* x and both adapters' weights */
void lora_dora_convolution(struct lora *, const struct base *, uint32_t x, uint32_t down, uint32_t up);
void lora_dora_embedding(struct lora *, const struct base *, uint32_t down, uint32_t up);

#endif
