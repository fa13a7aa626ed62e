/* ONNX files: parameters under the model's names, constants, module paths, and the graph as text and back. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mc_model *
load(const char *path)
{
	mc_model *m;

	if (mc_load_path(path, NULL, &m) != MC_OK)
		fail_msg("%s does not load", path);
	return m;
}

static uint32_t
find_val(const struct graph *g, const char *full)
{
	for (uint32_t v = 1; v < g->nval; v++)
		if (g->vals[v].kind != VAL_NONE && g->vals[v].full && str_eq(graph_str(g, g->vals[v].full), str_of(full)))
			return v;
	fail_msg("%s is missing", full);
	return 0;
}

static uint32_t
find_node(const struct graph *g, const char *name)
{
	for (uint32_t n = 1; n < g->nnode; n++)
		if (str_eq(graph_str(g, g->nodes[n].name), str_of(name)))
			return n;
	fail_msg("node %s is missing", name);
	return 0;
}

/* Elements of parameters, tied ones once: what the .pt2 of the same model says, less what the file has no size for. */
static void
parameters_are_counted(void **state)
{
	static const struct {
		const char *path;
		unsigned tensors;
		uint64_t elements;
	} cases[] = {
		{"fixtures/models/llava_tiny.train.onnx", 104, 3867648 - 17 * 128},  /* a folded position embedding */
		{"fixtures/models/llama_tiny.train.opset23.onnx", 21, 7899648},
		{"fixtures/models/toy_vlm.eval.legacy.onnx", 58, 476352},
		{"fixtures/models/toy_cond.onnx", 4, 2112},
		{"fixtures/models/toy_control.scripted.legacy.onnx", 4, 2112},
		{"fixtures/models/torch1_lm14.onnx", 12, 11 * 16 + 3 * 16 + 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32 + 16 * 11},  /* head not tied here */
		{"fixtures/models/torch1_fn.onnx", 12, 11 * 16 + 3 * 16 + 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32 + 16 * 11},
		{"fixtures/models/torch1_misc_tr.onnx", 10, 8 * 8 * 3 + 8 + 8 * 8 + 8 + 6 * 8},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		mc_model *m = load(cases[i].path);
		const struct graph *g = m->g;
		uint64_t elements = 0;
		unsigned tensors = 0;

		for (uint32_t v = 1; v < g->nval; v++) {
			uint64_t n = 1;

			if (g->vals[v].kind != VAL_PARAM || g->vals[v].tied)
				continue;
			for (unsigned d = 0; d < g->vals[v].rank; d++)
				n *= (uint64_t)val_dims(g, v)[d].n;
			elements += n;
			tensors++;
		}
		if (tensors != cases[i].tensors || elements != cases[i].elements)
			fail_msg("%s: %u parameters of %llu elements", cases[i].path, tensors, (unsigned long long)elements);
		mc_model_free(m);
	}
}

static void
names_are_recovered(void **state)
{
	static const struct {
		const char *path, *full;
		uint8_t kind;
		bool transposed;
		int64_t rows, columns;
	} cases[] = {
		{"fixtures/models/llava_tiny.train.onnx", "model.language_model.layers.0.mlp.gate_proj.weight", VAL_PARAM, true, 256, 688},
		{"fixtures/models/llava_tiny.train.onnx", "model.language_model.embed_tokens.weight", VAL_PARAM, false, 1024, 256},
		{"fixtures/models/llava_tiny.train.onnx", "model.vision_tower.embeddings.position_embedding.weight", VAL_CONST, false, 1, 17},
		{"fixtures/models/toy_vlm.eval.legacy.onnx", "model.encoder.0.qkv.weight", VAL_PARAM, true, 64, 192},
		{"fixtures/models/toy_vlm.eval.legacy.onnx", "model.projector.0.weight", VAL_PARAM, true, 64, 96},
		{"fixtures/models/toy_control.scripted.legacy.onnx", "fc.weight", VAL_PARAM, true, 32, 32},
		{"fixtures/models/toy_cond.onnx", "gate.weight", VAL_PARAM, true, 32, 32},
		{"fixtures/models/torch1_noparam.onnx", "model.embed_tokens.weight", VAL_PARAM, false, 11, 16},
		{"fixtures/models/torch1_noparam.onnx", "model.layers.0.self_attn.q_proj.weight", VAL_PARAM, true, 16, 16},
		{"fixtures/models/torch1_lm14.onnx", "model.layers.0.mlp.down_proj.weight", VAL_PARAM, true, 32, 16},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		mc_model *m = load(cases[i].path);
		uint32_t v = find_val(m->g, cases[i].full);
		const struct val *x = &m->g->vals[v];

		if (x->kind != cases[i].kind || !!(x->flags & VF_TRANSPOSED) != cases[i].transposed || val_dims(m->g, v)[0].n != cases[i].rows || val_dims(m->g, v)[1].n != cases[i].columns)
			fail_msg("%s: %s is not as expected", cases[i].path, cases[i].full);
		mc_model_free(m);
	}
}

static void
statistics_are_buffers(void **state)
{
	mc_model *m = load("fixtures/models/torch1_misc_tr.onnx");
	uint32_t v = find_val(m->g, "bn.running_mean");

	(void)state;
	assert_int_equal(m->g->vals[v].kind, VAL_BUFFER);
	assert_int_equal(m->g->vals[v].flags, VF_PERSISTENT);
	v = find_val(m->g, "bn.num_batches_tracked");      /* the file has no use for it */
	assert_int_equal(m->g->vals[v].kind, VAL_BUFFER);
	assert_int_equal(m->g->vals[v].dtype, DT_INT64);
	assert_int_equal(m->g->vals[v].rank, 0);
	mc_model_free(m);
}

static void
nodes_stand_in_modules(void **state)
{
	static const struct {
		const char *path, *node, *module, *cls, *fx;
	} cases[] = {
		{"fixtures/models/llava_tiny.train.onnx", "node_embedding", "model.language_model.embed_tokens", "torch.nn.modules.sparse.Embedding", "embedding"},
		{"fixtures/models/toy_vlm.eval.legacy.onnx", "/model/encoder.0/fc1/MatMul", "model.encoder.0.fc1", "", ""},
		{"fixtures/models/torch1_fn.onnx", "RMS.1", "model.norm", "mko.RMS", ""},
		{"fixtures/models/toy_control.scripted.legacy.onnx", "/gate/MatMul", "gate", "", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		mc_model *m = load(cases[i].path);
		const struct graph *g = m->g;
		uint32_t n = strcmp(cases[i].node, "RMS.1") ? find_node(g, cases[i].node) : find_node(g, "Mul_13");

		if (!str_eq(scope_path(g, g->nodes[n].scope), str_of(cases[i].module)) || !str_eq(graph_str(g, g->scopes[g->nodes[n].scope].cls), str_of(cases[i].cls)))
			fail_msg("%s: %s stands in %.*s", cases[i].path, cases[i].node, SFMT(scope_path(g, g->nodes[n].scope)));
		assert_true(str_eq(graph_str(g, g->nodes[n].fx), str_of(cases[i].fx)));
		mc_model_free(m);
	}
}

static void
older_forms_become_the_newest(void **state)
{
	mc_model *m = load("fixtures/models/torch1_lm14.onnx");
	const struct graph *g = m->g;
	uint32_t n = find_node(g, "/model/layers.0/input_layernorm/ReduceMean");
	const struct arg *axes = node_arg(g, n, "axes");

	(void)state;
	assert_int_equal(g->nodes[n].op, OP_ONNX_REDUCE_MEAN);
	assert_int_equal(axes->kind, ARG_VAL);     /* an attribute in opset 14 */
	assert_int_equal(g->vals[axes->u.val].kind, VAL_CONST);
	assert_int_equal(g->vals[axes->u.val].data, DATA_INTS);
	assert_int_equal(g->vals[axes->u.val].ndata, 1);
	assert_int_equal(g->ints[g->vals[axes->u.val].data_at].n, -1);
	mc_model_free(m);
}

static void
keep_text(void *user, const char *text, size_t n)
{
	struct buf *b = user;

	buf_put(b, text, n);
}

/* The graph of a file as text, from memory or from a path. */
static struct buf
text_of(const char *path, const struct buf *text)
{
	struct buf b = {0};
	mc_options o;
	mc_model *m;
	mc_report *r;
	mc_status st;

	mc_options_init(&o);
	o.dump_after = "load";
	o.dump = keep_text;
	o.dump_user = &b;
	st = text ? mc_load_memory(text->p, text->n, "text", NULL, &m) : mc_load_path(path, NULL, &m);
	if (st != MC_OK)
		fail_msg("%s does not load", path);
	assert_int_equal(mc_inspect(m, NULL, &o, &r), MC_OK);
	mc_report_free(r);
	mc_model_free(m);
	return b;
}

static void
text_and_back(void **state)
{
	static const char *const paths[] = {
		"fixtures/models/llava_tiny.train.onnx", "fixtures/models/llama_tiny.train.opset23.onnx", "fixtures/models/toy_vlm.eval.legacy.onnx", "fixtures/models/toy_cond.onnx",
		"fixtures/models/toy_control.scripted.legacy.onnx", "fixtures/models/torch1_fn.onnx", "fixtures/models/torch1_misc_tr.onnx", "fixtures/models/torch1_noparam.onnx",
	};

	(void)state;
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		struct buf a = text_of(paths[i], NULL), b = text_of(paths[i], &a);

		if (a.n != b.n || memcmp(a.p, b.p, a.n))
			fail_msg("%s changes on its way through text", paths[i]);
		free(a.p);
		free(b.p);
	}
}

/* relu(x)^2, which the older exporter writes as a product: torch.square, which autocast runs in fp32. Any other x * x is what it says. */
static void
relu_squared(void **state)
{
	static const char *const lines[] = {
		"%h : fp32[128, 512] = onnx.Relu(X=%y)\n%z : fp32[128, 512] = onnx.Mul(A=%h, B=%h)\n",
		"%h : fp32[128, 512] = onnx.Tanh(input=%y)\n%z : fp32[128, 512] = onnx.Mul(A=%h, B=%h)\n",
	};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		char graph[1024];
		struct analysed a;
		bool found = false;

		snprintf(graph, sizeof graph, "memcrest-ir 1\ninput %%x : fp32[128, 256]\nparam %%w \"fc.weight\" : fp32[256, 512] trainable transposed\n"
		    "%%y : fp32[128, 512] = onnx.MatMul(A=%%x, B=%%w)\n%soutput %%z\n", lines[i]);
		a = test_analyse(graph, "{\"optimizer\": \"sgd\", \"loss\": \"sum\", \"precision\": \"bf16-mixed\"}");
		for (uint32_t k = 1; k < a.r->r.sched->nstorage; k++)
			found |= a.r->r.sched->storages[k].op && strcmp(a.r->r.sched->storages[k].op, "square") == 0 && a.r->r.sched->storages[k].nbytes == 128 * 512 * 4;
		assert_int_equal(found, i == 0);
		release_analysis(a);
	}
}

/* Whether an activation ran in place, only formats with such operators tell. */
static void
in_place_or_not(void **state)
{
	static const struct {
		const char *file, *recipe;
		bool said;
	} table[] = {
		{"fixtures/models/densenet_tiny.legacy.onnx", "{}", true},
		{"fixtures/models/inplace_views.functional.pt2", "{}", false},
		{"fixtures/models/llava_tiny.train.onnx", "{\"dims\": {\"batch\": 2, \"seq\": 64}}", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct analysed a = test_analyse_file(table[i].file, table[i].recipe);
		bool said = false;

		for (uint32_t k = 0; k < a.r->r.nassumption; k++)
			said |= strstr(a.r->r.assumptions[k].p, "in place") != NULL;
		assert_int_equal(said, table[i].said);
		release_analysis(a);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_are_counted), cmocka_unit_test(names_are_recovered), cmocka_unit_test(statistics_are_buffers),
		cmocka_unit_test(nodes_stand_in_modules), cmocka_unit_test(older_forms_become_the_newest), cmocka_unit_test(text_and_back), cmocka_unit_test(relu_squared),
		cmocka_unit_test(in_place_or_not),
	};

	return cmocka_run_group_tests_name("onnx", tests, NULL, NULL);
}
