/* Rules for ONNX operators on signals and text. */
#include "shape.h"

/* ---- signals -------------------------------------------------------------------------------------------------------- */

/* Half of a spectrum, and its middle. */
static struct sint
one_side(struct shaper *s, struct sint n)
{
	return add(s, quotient(s, n, SINT(2)), SINT(1));
}

static struct sint
size_operand(struct shaper *s, const char *name)
{
	const struct sint *d;
	uint32_t n;

	return known_ints(s, operand(s, name), &d, &n) && n == 1 ? *d : UNKNOWN;
}

void
rule_window(struct shaper *s)
{
	struct sint n = size_operand(s, "size");

	set_result(s, 0, attr_dtype(s, "output_datatype"), 1, &n);
}

void
rule_mel_weight_matrix(struct shaper *s)
{
	struct sint d[2] = {one_side(s, size_operand(s, "dft_length")), size_operand(s, "num_mel_bins")};

	set_result(s, 0, attr_dtype(s, "output_datatype"), 2, d);
}

/* The last dim holds real and imaginary parts: 1 or 2 of them. */
void
rule_dft(struct shaper *s)
{
	struct type x = in(s, "input");
	bool one_sided = attr_int(s, "onesided") != 0, inverse = attr_int(s, "inverse") != 0;
	int64_t axis = -2;

	if (x.rank == RANK_UNKNOWN || x.rank < 2 || (operand(s, "axis") && !known_int(s, operand(s, "axis"), &axis)) || !wrap_axis(&axis, x.rank)) {
		x = typed(x.dtype, x.rank, NULL);
		set_type(s, 0, x);
		return;
	}
	if (operand(s, "dft_length"))
		x.dim[axis] = size_operand(s, "dft_length");
	else if (one_sided && inverse)
		x.dim[axis] = mul(s, add(s, x.dim[axis], SINT(-1)), SINT(2));
	if (one_sided && !inverse)
		x.dim[axis] = one_side(s, x.dim[axis]);
	x.dim[x.rank - 1] = SINT(one_sided && inverse ? 1 : 2);
	set_type(s, 0, x);
}

void
rule_stft(struct shaper *s)
{
	struct type x = in(s, "signal"), w = in(s, "window");
	struct sint length = operand(s, "frame_length") ? size_operand(s, "frame_length") : w.rank == 1 ? w.dim[0] : UNKNOWN, step = size_operand(s, "frame_step");
	struct sint d[4] = {x.dim[0], add(s, quotient(s, sub(s, x.dim[1], length), step), SINT(1)), attr_int(s, "onesided") ? one_side(s, length) : length, SINT(2)};

	set_result(s, 0, x.dtype, 4, d);
}

/* ---- text ------------------------------------------------------------------------------------------------------------- */

void
rule_tfidf(struct shaper *s)
{
	struct type x = in(s, "X");
	const struct arg *a = arg_of(s, "ngram_indexes");
	int64_t most = -1;

	for (uint32_t i = 0; a->kind == ARG_INTS && i < a->count; i++)
		most = s->g->ints[a->first + i].n > most ? s->g->ints[a->first + i].n : most;
	x.dtype = DT_FP32;
	if (x.rank == 1 || x.rank == 2)
		x.dim[x.rank - 1] = SINT(most + 1);
	set_type(s, 0, x);
}

/* Stop words may be removed, but never all: one empty text stays. */
void
rule_string_normalizer(struct shaper *s)
{
	struct type x = in(s, "X");

	if (arg_of(s, "stopwords")->kind != ARG_NONE && x.rank != RANK_UNKNOWN && x.rank)
		x.dim[x.rank - 1] = at_most(s, x.dim[x.rank - 1]);
	set_type(s, 0, x);
}

void
rule_string_split(struct shaper *s)
{
	struct type x = in(s, "X"), t = x;

	if (x.rank != RANK_UNKNOWN && x.rank < MAX_RANK)
		t.dim[t.rank++] = UNKNOWN;
	set_type(s, 0, t);
	x.dtype = DT_INT64;
	set_type(s, 1, x);
}

void
rule_label_encoder(struct shaper *s)
{
	struct type x = in(s, "X");
	uint32_t values = operand(s, "values_tensor");

	if (values)
		x.dtype = type_of(s, values).dtype;
	else if (arg_of(s, "values_floats")->kind == ARG_FLOATS)
		x.dtype = DT_FP32;
	else if (arg_of(s, "values_int64s")->kind == ARG_INTS)
		x.dtype = DT_INT64;
	else if (arg_of(s, "values_strings")->kind == ARG_STR)
		x.dtype = DT_STRING;
	set_type(s, 0, x);
}

void
rule_array_feature(struct shaper *s)
{
	struct type x = in(s, "X"), y = in(s, "Y");
	struct sint n = y.rank == RANK_UNKNOWN ? UNKNOWN : product(s, y.dim, y.rank);

	if (x.rank == 1)
		x = typed(x.dtype, 2, (struct sint[]){SINT(1), n});
	else if (x.rank != RANK_UNKNOWN && x.rank)
		x.dim[x.rank - 1] = n;
	set_type(s, 0, x);
}
