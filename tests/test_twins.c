/*
 * Exports of one model in two formats: the events of the ONNX file of either exporter are those of its .pt2. The models have one small layer each with an embedding in
 * front and a head behind, batch 2 and 8 tokens unless the recipe binds them; the loss is outside. fixtures/truth and fixtures/ops hold the .pt2 form to real PyTorch.
 */
#include "events.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

static const struct twin {
	const char *onnx, *pt2;
	unsigned differ;           /* events missing or too many */
} twins[] = {
	{"lstm.onnx", "lstm", 0},
	{"lstm.legacy.onnx", "lstm", 0},
	{"lstm_two.onnx", "lstm_two", 0},                  /* two layers without biases, last states read */
	{"lstm_two.legacy.onnx", "lstm_two", 0},
	{"gru_two_ways.onnx", "gru_two_ways", 0},          /* two layers, two directions, dropout */
	{"rnn_two_ways.legacy.onnx", "rnn_two_ways", 0},
	{"glu.onnx", "glu", 0},                            /* F.glu along two axes, nn.RMSNorm */
	{"attention.onnx", "attention", 0},                /* nn.MultiheadAttention without weights as a result, and a layer that nothing reads */
	{"attention.legacy.onnx", "attention", 0},
	{"attention_cross.onnx", "attention_cross", 0},    /* keys of another sequence */
	{"attention_cross.legacy.onnx", "attention_cross", 0},
	{"loop.legacy.onnx", "loop", 0},                   /* a list that a loop fills, stacked */
	{"lists.legacy.onnx", "lists", 0},                 /* chunk, split and a loop over a list; chunk is slices whose bounds are computed */
	{"contiguous.onnx", "contiguous", 0},              /* optimize=False: copies are identities, which the record tells apart */
	{"attention_weights.onnx", "attention_weights", 10},       /* the mean over the heads, which nobody reads, is not in the file, and its operand lives less long */
	{"pools.onnx", "pools", 0},                        /* adaptive pooling: cells of unequal size, cells that overlap, cells of one size, one cell */
	{"indices.onnx", "indices", 9},                    /* two lists that index, which are one constant in the file */
	{"cells.onnx", "cells", 0},                        /* nn.LSTMCell, nn.GRUCell with and without biases, nn.RNNCell, in a loop of two steps; first states are zeros that they make */
	{"cells.legacy.onnx", "cells", 8},                 /* the head lets go of its operand earlier */
	{"losses.onnx", "losses", 0},                      /* mse, smooth_l1, huber, BCE with logits, soft margin, KL, a mean square of the model's own */
	{"losses_old.legacy.onnx", "losses_old", 20},      /* mse as mean and sum, BCE with logits; what is let go of when differs */
	{"causal.onnx", "causal", 0},                      /* scaled_dot_product_attention with is_causal, whose triangle the optimiser folds */
	{"heads.onnx", "heads", 40},                       /* queries that are scaled before they are split, copied as keys and values are: in front of attention, not each behind its layer */
	{"moves.onnx", "moves", 0},                        /* roll along two axes, unfold, nn.Unfold, nn.Dropout2d */
	{"reductions.onnx", "reductions", 0},              /* var, std, max, any, one_hot, cosine_similarity, masks that are added up and multiplied */
	{"layers.onnx", "layers", 0},                      /* padding that is larger on one side, nn.InstanceNorm2d without weights, nn.PReLU, nn.Fold, detach */
	{"layers_old.legacy.onnx", "layers_old", 8},       /* with weight_norm */
	{"standardised.onnx", "standardised", 4},            /* a convolution whose weight the optimiser has standardised; under autocast it lives a little longer */
	{"folded.onnx", "folded", 4},                      /* a norm whose weight is 1 + w, decays by exp, a number for each channel: folded into constants; one release is earlier */
	{"scores.onnx", "scores", 28},                      /* scores that are divided and capped, a mask that was folded: the cap's product is the model's own */
	{"tables.onnx", "tables", 64},                     /* parameters folded into constants: views, rows of tables, a bias for each head; positions are not made anew */
	{"bias.onnx", "bias", 28},                         /* T5's attention: position biases under masks that were folded, one all true, one causal; norms called LayerNorm; positions are not made anew */
	{"scatter.onnx", "scatter", 28},                   /* index_add, which is a ScatterND; under autocast the zeros that it adds to are of another dtype */
	{"pads.onnx", "pads", 4},                         /* a padding that two convolutions read, and an even one: folded into the convolutions; one release is earlier */
	{"rels.onnx", "rels", 24},                         /* DeBERTa's positions: a dropout of each layer that the optimiser merged, expanded indices; positions are not made anew */
	{"gated.onnx", "gated", 0},                        /* norm(x * silu(gate)), whose operands are linear layers' and in 16 bits under autocast */
	{"rows.legacy.onnx", "rows", 4},                   /* a convolution that standardises its weights: batch_norm without running statistics; one release differs */
	{"bias_small.onnx", "bias_small", 92},            /* the same biases, folded whole, masks and all: positions and the lowest number are not made anew */
	{"states.onnx", "states", 12},                     /* a cell written out, in a loop of four steps: what a turn hands to the next has a name; the first states are made as they are needed */
	{"states.legacy.onnx", "states", 24},              /* in 16 bits they are made in fp32 and converted */
	{"codes.legacy.onnx", "codes", 8},                 /* a straight-through estimator: x + (q - x).detach(); one release is later */
	{"pooler.onnx", "pooler", 8},                     /* types of tokens that are all zero, folded; a pooler that nothing reads; the zeros are not made anew */
	{"type_as.legacy.onnx", "type_as", 36},            /* type_as, which the file does not show, at the end of norms and behind softmax in fp32; locals of the attention are let go of earlier */
	{"functions.onnx", "functions", 0},                  /* likewise with two modules, of a model that has no others */
	{"functional.onnx", "functional", 0},                /* a function that is called with what a module holds: no region under no_grad */
	{"repeated.onnx", "repeated", 12},                 /* a parameter that is repeated over the batch, folded: it is made in front of its reader */
	{"pictures.onnx", "pictures", 28},                   /* features among tokens, whose conversion is not in the file; a mask that is causal but inside of a picture; a loss called on several lines; positions are not made anew */
	{"regions.onnx", "regions", 34},                     /* a region under no_grad, whose nodes have stack traces of the exporter's own, and which nothing else tells; indices are saved */
	{"types.onnx", "types", 18},                         /* a table of types at zeros and at ones, and one at a buffer of zeros; zeros and ones are not made anew */
	{"equal.onnx", "equal", 0},                        /* a linear layer whose weight and bias are scaled, as StyleGAN's */
};

static const char *const recipes[] = {
	"{\"loss\": \"cross-entropy\", \"precision\": \"fp32\", \"optimizer\": \"sgd\"}",
	"{\"loss\": \"cross-entropy\", \"precision\": \"bf16\", \"optimizer\": \"adamw\"}",
	"{\"loss\": \"cross-entropy\", \"precision\": \"bf16-mixed\", \"optimizer\": \"adamw\", \"eval_modules\": [\"*\"]}",
};

static struct analysed
analyse(const char *file, const char *ending, const char *recipe)
{
	char path[256];

	snprintf(path, sizeof path, "fixtures/twins/%s%s", file, ending);
	return test_analyse_file(path, recipe);
}

static void
onnx_is_as_its_twin(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++)
		for (size_t k = 0; k < sizeof recipes / sizeof recipes[0]; k++) {
			struct analysed a = analyse(twins[i].onnx, "", recipes[k]), b = analyse(twins[i].pt2, ".pt2", recipes[k]);
			struct events x = events_of(a.r->r.sched), y = events_of(b.r->r.sched);
			unsigned n = events_differ(&x, &y);

			if (n > twins[i].differ)
				fail_msg("%s %s: %u events differ of %zu", twins[i].onnx, recipes[k], n, y.n);
			free(x.e);
			free(y.e);
			release_analysis(a);
			release_analysis(b);
		}
}

/* What stands there from the beginning is no event: a pooler that nothing reads, of which the ONNX file has only the name. */
static void
unread_poolers_count(void **state)
{
	struct analysed a = analyse("pooler", ".onnx", "{}"), b = analyse("pooler", ".pt2", "{}");

	(void)state;
	assert_int_equal(mc_report_peak(a.r), mc_report_peak(b.r));
	release_analysis(a);
	release_analysis(b);
}

/* A norm that nothing reads is as wide as those beside it; a linear layer, 24 to 40, has a name only, so that the answer is a lower bound. */
static void
unread_layers_bound_below(void **state)
{
	struct analysed a = analyse("unread", ".onnx", "{}"), b = analyse("unread", ".pt2", "{}");

	(void)state;
	assert_int_equal(mc_report_peak(a.r) + 4096 + 512, mc_report_peak(b.r));
	assert_true(a.r->incomplete);
	assert_false(b.r->incomplete);
	release_analysis(a);
	release_analysis(b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(onnx_is_as_its_twin), cmocka_unit_test(unread_poolers_count), cmocka_unit_test(unread_layers_bound_below)};

	return cmocka_run_group_tests_name("twins", tests, NULL, NULL);
}
