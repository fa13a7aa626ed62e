/* Types of ONNX operators: each case is a small graph as text; what is expected was worked out from the operator's specification. */
#include "test.h"

#include "../passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *graph;         /* without the first line; the value asked for is %y */
	const char *symbolic;      /* its type and elements after shape, as the text form has it */
	const char *bound;         /* after sizes, with b = 2 and s = 7; NULL = the same */
} cases[] = {
	/* broadcasting */
	{"input %a : fp32[b, 1, 4]\ninput %c : fp32[s, 1]\n%y = onnx.Add(A=%a, B=%c)", "fp32[b, s, 4]", "fp32[2, 7, 4]"},
	{"input %a : fp16[b]\ninput %c : fp16[s]\n%y = onnx.Mul(A=%a, B=%c)", "fp16[Max(b, s)]", "fp16[7]"},
	{"input %a : int64[3]\ninput %c : int64[3]\n%y = onnx.Less(A=%a, B=%c)", "bool[3]", NULL},
	/* a symbol that no input has, as exporters give outputs, says nothing */
	{"input %a : fp16[b]\ninput %c : fp16[s]\n%y : fp16[o] = onnx.Mul(A=%a, B=%c)", "fp16[Max(b, s)]", "fp16[7]"},
	/* sizes computed from sizes */
	{"input %a : fp32[b, s, 768]\nconst %i : int64[]{1}\n%h = onnx.Shape(data=%a)\n%y = onnx.Gather(data=%h, indices=%i)", "int64[]{s}", "int64[]{7}"},
	{"input %a : fp32[b, s, 768]\n%h = onnx.Shape(data=%a, start=-2)\n%y = onnx.ReduceProd(data=%h, keepdims=0)", "int64[]{(s*768)}", "int64[]{5376}"},
	{"input %a : fp32[b, s]\nconst %one : int64[1]{1}\n%h = onnx.Shape(data=%a)\n%y = onnx.Add(A=%h, B=%one)", "int64[2]{(b + 1), (s + 1)}", "int64[2]{3, 8}"},
	{"input %a : fp32[b, s]\nconst %m : int64[]{-1}\nconst %k : int64[]{512}\n%h = onnx.Shape(data=%a, start=1)\n%e = onnx.Equal(A=%h, B=%m)\n%y = onnx.Where(condition=%e, X=%k, Y=%h)",
	    "int64[1]{s}", "int64[1]{7}"},
	{"const %a : fp32[]{float(7.5)}\nconst %k : fp32[]{float(2)}\n%d = onnx.Mul(A=%a, B=%k)\n%f = onnx.Floor(X=%d)\n%y = onnx.Cast(input=%f, to=int64)", "int64[]{15}", NULL},
	/* reshaping: 0 copies, -1 is what is left */
	{"input %a : fp32[b, s, 768]\nconst %t : int64[4]{0, 0, 12, -1}\n%y = onnx.Reshape(data=%a, shape=%t)", "fp32[b, s, 12, 64]", "fp32[2, 7, 12, 64]"},
	{"input %a : fp32[b, s, 768]\nconst %t : int64[2]{-1, 768}\n%y = onnx.Reshape(data=%a, shape=%t)", "fp32[(b*s), 768]", "fp32[14, 768]"},
	{"input %a : fp32[b, s, 64]\n%h = onnx.Shape(data=%a)\nconst %m : int64[1]{-1}\nconst %i : int64[]{1}\n%g = onnx.Gather(data=%h, indices=%i)\nconst %z : int64[1]{0}\n"
	    "%u = onnx.Unsqueeze(data=%g, axes=%z)\n%t = onnx.Concat(inputs=[%m, %u], axis=0)\n%y = onnx.Reshape(data=%a, shape=%t)", "fp32[(b*64), s]", "fp32[128, 7]"},
	{"input %a : fp32[b, 1, s, 1]\nconst %x : int64[2]{-1, 1}\n%y = onnx.Squeeze(data=%a, axes=%x)", "fp32[b, s]", "fp32[2, 7]"},
	{"input %a : fp32[s]\nconst %x : int64[2]{0, 2}\n%y = onnx.Unsqueeze(data=%a, axes=%x)", "fp32[1, s, 1]", "fp32[1, 7, 1]"},
	{"input %a : fp32[1, 4]\nconst %t : int64[3]{3, 2, 1}\n%y = onnx.Expand(input=%a, shape=%t)", "fp32[3, 2, 4]", NULL},
	{"input %a : fp32[b, 3, s]\n%y = onnx.Flatten(input=%a, axis=1)", "fp32[b, (s*3)]", "fp32[2, 21]"},
	/* cutting and joining */
	{"input %a : int64[b, s]\nconst %f : int64[1]{1}\nconst %t : int64[1]{9223372036854775807}\nconst %x : int64[1]{1}\n%y = onnx.Slice(data=%a, starts=%f, ends=%t, axes=%x)",
	    "int64[b, (s + -1)]", "int64[2, 6]"},
	{"input %a : fp32[b, 10]\nconst %f : int64[1]{-1}\nconst %t : int64[1]{-9223372036854775808}\nconst %x : int64[1]{1}\nconst %p : int64[1]{-3}\n"
	    "%y = onnx.Slice(data=%a, starts=%f, ends=%t, axes=%x, steps=%p)", "fp32[b, 4]", "fp32[2, 4]"},       /* 9, 6, 3, 0 */
	{"input %a : fp32[b, 1, s]\ninput %c : fp32[b, 2, s]\n%y = onnx.Concat(inputs=[%a, %c], axis=-2)", "fp32[b, 3, s]", "fp32[2, 3, 7]"},
	{"input %a : fp32[b, 7]\n%z, %y = onnx.Split(input=%a, axis=1, num_outputs=2)", "fp32[b, 3]", "fp32[2, 3]"},     /* 4 and what is left */
	{"input %a : int64[b, s]\nconst %p : int64[4]{0, 0, 0, 1}\n%y = onnx.Pad(data=%a, pads=%p)", "int64[b, (s + 1)]", "int64[2, 8]"},
	{"input %a : fp32[4, 5]\ninput %c : int64[b, s]\n%y = onnx.Gather(data=%a, indices=%c)", "fp32[b, s, 5]", "fp32[2, 7, 5]"},
	{"input %a : fp32[b, s, 9]\ninput %c : int64[5, 2]\n%y = onnx.GatherND(data=%a, indices=%c)", "fp32[5, 9]", NULL},
	/* what depends on the data: unknown, then at most all of it */
	{"input %a : bool[b, s]\n%y = onnx.NonZero(X=%a)", "int64[2, ?]", "int64[2, 14]"},
	{"const %a : bool[2, 2]{1, 0, 1, 1}\n%y = onnx.NonZero(X=%a)", "int64[2, 3]{0, 1, 1, 0, 0, 1}", NULL},
	/* products */
	{"input %a : fp32[b, s, 64]\nparam %w : fp32[64, 16]\n%y = onnx.MatMul(A=%a, B=%w)", "fp32[b, s, 16]", "fp32[2, 7, 16]"},
	{"input %a : fp32[64]\ninput %c : fp32[b, 64, 3]\n%y = onnx.MatMul(A=%a, B=%c)", "fp32[b, 3]", "fp32[2, 3]"},
	{"input %a : bf16[b, 64]\nparam %w : bf16[16, 64]\n%y = onnx.Gemm(A=%a, B=%w, transB=1)", "bf16[b, 16]", "bf16[2, 16]"},
	{"input %a : fp32[b, s, 8]\ninput %c : fp32[b, 5, 8]\n%y = onnx.Einsum(Inputs=[%a, %c], equation=\"bid,bjd->bij\")", "fp32[b, s, 5]", "fp32[2, 7, 5]"},
	/* windows: (224 + 2*3 - 7) // 2 + 1; SAME rounds up; a window must begin inside */
	{"input %a : fp32[b, 3, 224, 224]\nparam %w : fp32[64, 3, 7, 7]\n%y = onnx.Conv(X=%a, W=%w, pads=[3, 3, 3, 3], strides=[2, 2])", "fp32[b, 64, 112, 112]", "fp32[2, 64, 112, 112]"},
	{"input %a : fp32[1, 3, 7, 7]\n%y = onnx.MaxPool(X=%a, kernel_shape=[3, 3], strides=[2, 2], auto_pad=\"SAME_UPPER\")", "fp32[1, 3, 4, 4]", NULL},
	{"input %a : fp32[1, 1, 2, 2]\n%y = onnx.MaxPool(X=%a, kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1)", "fp32[1, 1, 1, 1]", NULL},
	{"input %a : fp32[1, 4, 5, 5]\nparam %w : fp32[4, 2, 3, 3]\n%y = onnx.ConvTranspose(X=%a, W=%w, strides=[2, 2], group=2, output_padding=[1, 1])", "fp32[1, 4, 12, 12]", NULL},
	{"input %a : fp32[1, 3, 5, 5]\nconst %k : fp32[4]{float(1), float(1), float(1.5), float(2)}\n%y = onnx.Resize(X=%a, scales=%k)", "fp32[1, 3, 7, 10]", NULL},
	/* attention with fewer heads for keys, and a cache */
	{"input %q : fp16[b, s, 512]\ninput %k : fp16[b, s, 128]\ninput %p : fp16[b, 2, 9, 64]\n%y, %c = onnx.Attention(Q=%q, K=%k, V=%k, past_key=%p, past_value=%p, q_num_heads=8, kv_num_heads=2)",
	    "fp16[b, s, 512]", "fp16[2, 7, 512]"},
	{"input %q : fp16[b, s, 512]\ninput %k : fp16[b, s, 128]\ninput %p : fp16[b, 2, 9, 64]\n%z, %y = onnx.Attention(Q=%q, K=%k, V=%k, past_key=%p, past_value=%p, q_num_heads=8, kv_num_heads=2)",
	    "fp16[b, 2, (s + 9), 64]", "fp16[2, 2, 16, 64]"},
	/* an If is decided by sizes once they are bound */
	{"input %a : fp32[b, s]\nconst %k : int64[1]{5}\n%h = onnx.Shape(data=%a, start=1)\n%c = onnx.Greater(A=%h, B=%k)\n%t = onnx.Transpose(data=%a)\n%r = onnx.Relu(X=%a)\n"
	    "%y = onnx.Select(condition=%c, then=%t, otherwise=%r, nodes=[1, 1])", "fp32[?, ?]", "fp32[7, 2]"},
	/* what is declared counts where the rule knows less */
	{"input %a : fp32[b, s]\n%y : int64[2, n] = onnx.NonZero(X=%a)", "int64[2, n]", "int64[2, 14]"},
	/* elementwise, and dtypes that a rule sets */
	{"input %a : fp16[b, s]\n%y = onnx.IsNaN(X=%a)", "bool[b, s]", "bool[2, 7]"},
	{"input %a : fp32[b]\n%y = onnx.Bernoulli(input=%a, dtype=bool)", "bool[b]", "bool[2]"},
	{"input %a : fp32[b]\ninput %k : fp16[]\n%y = onnx.CastLike(input=%a, target_type=%k)", "fp16[b]", "fp16[2]"},
	{"input %a : fp32[b]\ninput %k : fp32[]\n%y = onnx.QuantizeLinear(x=%a, y_scale=%k)", "uint8[b]", "uint8[2]"},
	{"input %a : fp32[b]\ninput %k : fp32[]\ninput %z : int8[]\n%y = onnx.QuantizeLinear(x=%a, y_scale=%k, y_zero_point=%z)", "int8[b]", "int8[2]"},
	{"input %a : int8[b]\ninput %k : fp16[]\n%y = onnx.DequantizeLinear(x=%a, x_scale=%k)", "fp16[b]", "fp16[2]"},
	{"input %a : fp32[b]\n%q, %k, %y = onnx.DynamicQuantizeLinear(x=%a)", "uint8[]", NULL},
	{"input %a : fp32[b]\n%q, %y, %z = onnx.DynamicQuantizeLinear(x=%a)", "fp32[]", NULL},
	{"input %a : fp32[b, s]\n%z, %y = onnx.Dropout(data=%a)", "bool[b, s]", "bool[2, 7]"},
	{"input %a : fp32[b, 9]\n%y = onnx.Multinomial(input=%a, sample_size=4, dtype=int64)", "int64[b, 4]", "int64[2, 4]"},
	{"%y = onnx.RandomNormal(shape=[2, 3], dtype=fp16)", "fp16[2, 3]", NULL},
	/* tensors made from sizes */
	{"input %a : fp32[b, s]\n%y = onnx.Size(data=%a)", "int64[]{(b*s)}", "int64[]{14}"},
	{"input %t : int64[3]\n%y = onnx.ConstantOfShape(input=%t)", "fp32[?, ?, ?]", NULL},
	{"const %f : fp32[]{float(0)}\nconst %t : fp32[]{float(1)}\nconst %d : fp32[]{float(0.3)}\n%r = onnx.Range(start=%f, limit=%t, delta=%d)\n%y = onnx.Relu(X=%r)", "fp32[4]", NULL},
	{"input %a : fp32[b, s]\nconst %f : int64[]{0}\nconst %d : int64[]{1}\nconst %i : int64[]{1}\n%h = onnx.Shape(data=%a)\n%t = onnx.Gather(data=%h, indices=%i)\n"
	    "%r = onnx.Range(start=%f, limit=%t, delta=%d)\n%y = onnx.Relu(X=%r)", "int64[s]", "int64[7]"},
	{"input %a : fp32[b, s]\ninput %t : fp32[?]\nconst %z : int64[]{2}\n%r = onnx.Range(start=%z, limit=%z, delta=%z)\n%y = onnx.Relu(X=%r)", "int64[0]", NULL},
	/* reductions; axes that only the data know leave the rank */
	{"input %a : fp32[b, s, 4]\nconst %x : int64[1]{-2}\n%y = onnx.ReduceSum(data=%a, axes=%x)", "fp32[b, 1, 4]", "fp32[2, 1, 4]"},
	{"input %a : fp32[b, s, 4]\ninput %x : int64[1]\n%y = onnx.ReduceSum(data=%a, axes=%x)", "fp32[?, ?, ?]", NULL},
	{"input %a : fp32[b, s, 4]\ninput %x : int64[2]\n%y = onnx.ReduceSum(data=%a, axes=%x, keepdims=0)", "fp32[?]", NULL},
	{"input %a : fp32[b, s]\n%y = onnx.ReduceSum(data=%a, noop_with_empty_axes=1)", "fp32[b, s]", "fp32[2, 7]"},
	{"input %a : fp32[b, s, 4]\n%y = onnx.ArgMax(data=%a, axis=1, keepdims=0)", "int64[b, 4]", "int64[2, 4]"},
	/* looking up */
	{"input %a : fp16[b, 9]\ninput %i : int64[b, s]\n%y = onnx.GatherElements(data=%a, indices=%i, axis=1)", "fp16[b, s]", "fp16[2, 7]"},
	{"input %a : fp32[b, 5, 9]\ninput %i : int64[b, 1]\n%y = onnx.GatherND(data=%a, indices=%i, batch_dims=1)", "fp32[b, 9]", "fp32[2, 9]"},
	{"input %i : int64[b, s]\nconst %d : int64[]{10}\ninput %v : fp16[2]\n%y = onnx.OneHot(indices=%i, depth=%d, values=%v)", "fp16[b, s, 10]", "fp16[2, 7, 10]"},
	{"input %i : int64[b, s]\nconst %d : fp32[]{float(4)}\ninput %v : fp16[2]\n%y = onnx.OneHot(indices=%i, depth=%d, values=%v, axis=0)", "fp16[4, b, s]", "fp16[4, 2, 7]"},
	{"input %a : fp32[b, 50]\nconst %k : int64[1]{5}\n%z, %y = onnx.TopK(X=%a, K=%k)", "int64[b, 5]", "int64[2, 5]"},
	/* counts that the data know: at most all of it */
	{"const %a : fp32[3]{float(0), float(2), float(3)}\n%h = onnx.NonZero(X=%a)\n%y = onnx.Relu(X=%h)", "int64[1, 2]", NULL},
	{"input %a : fp32[b, 3]\nconst %c : bool[3]{1, 0, 1}\n%y = onnx.Compress(input=%a, condition=%c, axis=1)", "fp32[b, 2]", "fp32[2, 2]"},
	{"input %a : fp32[b, 3]\ninput %c : bool[b]\n%y = onnx.Compress(input=%a, condition=%c)", "fp32[?]", "fp32[2]"},
	{"input %a : int64[b, s]\n%y = onnx.Unique(X=%a)", "int64[?]", "int64[14]"},
	{"input %a : int64[b, s]\n%y = onnx.Unique(X=%a, axis=0)", "int64[?, s]", "int64[2, 7]"},
	{"input %a : int64[b, s]\n%z, %i, %y = onnx.Unique(X=%a)", "int64[(b*s)]", "int64[14]"},
	{"input %p : fp32[1, 100, 4]\ninput %q : fp32[1, 2, 100]\nconst %k : int64[1]{10}\n%y = onnx.NonMaxSuppression(boxes=%p, scores=%q, max_output_boxes_per_class=%k)", "int64[?, 3]", "int64[20, 3]"},
	/* more products */
	{"input %a : fp32[64]\ninput %c : fp32[64]\n%y = onnx.MatMul(A=%a, B=%c)", "fp32[]", NULL},
	{"input %a : uint8[b, 8]\ninput %c : uint8[8, 3]\n%y = onnx.MatMulInteger(A=%a, B=%c)", "int32[b, 3]", "int32[2, 3]"},
	{"input %a : uint8[b, 8]\ninput %c : uint8[8, 3]\ninput %k : fp32[]\ninput %z : uint8[]\ninput %o : int8[]\n"
	    "%y = onnx.QLinearMatMul(a=%a, a_scale=%k, a_zero_point=%z, b=%c, b_scale=%k, b_zero_point=%z, y_scale=%k, y_zero_point=%o)", "int8[b, 3]", "int8[2, 3]"},
	{"input %a : fp16[b, s, 64]\ninput %w : uint8[32, 2, 16]\ninput %k : fp16[64]\n%y = com.microsoft.MatMulNBits(A=%a, B=%w, scales=%k, K=64, N=32)", "fp16[b, s, 32]", "fp16[2, 7, 32]"},
	{"input %a : fp32[8, b]\ninput %c : fp32[8, 3]\n%y = onnx.Gemm(A=%a, B=%c, transA=1)", "fp32[b, 3]", "fp32[2, 3]"},
	{"input %a : fp32[b, 3, 3]\n%y = onnx.Det(X=%a)", "fp32[b]", "fp32[2]"},
	{"input %a : fp32[b, 8]\ninput %c : fp32[8, s]\n%y = onnx.Einsum(Inputs=[%a, %c], equation=\"ij, jk\")", "fp32[b, s]", "fp32[2, 7]"},
	{"input %a : fp32[b, 3, 4]\ninput %c : fp32[b, 4, s]\n%y = onnx.Einsum(Inputs=[%a, %c], equation=\"...ij,...jk->...ik\")", "fp32[b, 3, s]", "fp32[2, 3, 7]"},
	{"input %a : fp32[b, s, 8]\ninput %c : fp32[8]\n%y = onnx.Einsum(Inputs=[%a, %c], equation=\"...i,i\")", "fp32[b, s]", "fp32[2, 7]"},
	/* norms and their statistics, losses */
	{"input %a : fp16[b, s, 8]\nparam %w : fp16[8]\n%z, %y = onnx.LayerNormalization(X=%a, Scale=%w)", "fp32[b, s, 1]", "fp32[2, 7, 1]"},
	{"input %a : fp16[b, s, 8]\nparam %w : fp16[8]\n%z, %m, %v, %y = com.microsoft.SkipLayerNormalization(input=%a, skip=%a, gamma=%w)", "fp16[b, s, 8]", "fp16[2, 7, 8]"},
	{"input %a : fp16[b, s, 8]\nparam %w : fp16[8]\n%z, %y = com.microsoft.SkipLayerNormalization(input=%a, skip=%a, gamma=%w)", "fp32[b, s, 1]", "fp32[2, 7, 1]"},
	{"input %i : int32[b, s]\nparam %w : fp16[100, 16]\nparam %g : fp16[16]\n%y = com.microsoft.EmbedLayerNormalization(input_ids=%i, word_embedding=%w, position_embedding=%w, gamma=%g, beta=%g)",
	    "fp16[b, s, 16]", "fp16[2, 7, 16]"},
	{"input %a : fp16[b, 3, s]\nparam %w : fp32[3]\n%z, %y = onnx.BatchNormalization(X=%a, scale=%w, B=%w, input_mean=%w, input_var=%w, training_mode=1)", "fp32[3]", NULL},
	{"input %a : fp32[b, 5, s]\ninput %t : int64[b, s]\n%y = onnx.NegativeLogLikelihoodLoss(input=%a, target=%t, reduction=\"none\")", "fp32[b, s]", "fp32[2, 7]"},
	{"input %a : fp32[b, 5]\ninput %t : int64[b]\n%y = onnx.NegativeLogLikelihoodLoss(input=%a, target=%t)", "fp32[]", NULL},
	{"input %a : fp32[b, 5]\ninput %t : int64[b]\n%z, %y = onnx.SoftmaxCrossEntropyLoss(scores=%a, labels=%t)", "fp32[b, 5]", "fp32[2, 5]"},
	/* recurrent networks: [sequence, directions, batch, hidden], or the batch first */
	{"input %a : fp32[s, b, 8]\nparam %w : fp32[2, 64, 8]\nparam %r : fp32[2, 64, 16]\n%y = onnx.LSTM(X=%a, W=%w, R=%r, direction=\"bidirectional\")", "fp32[s, 2, b, 16]", "fp32[7, 2, 2, 16]"},
	{"input %a : fp32[s, b, 8]\nparam %w : fp32[2, 64, 8]\nparam %r : fp32[2, 64, 16]\n%z, %y = onnx.LSTM(X=%a, W=%w, R=%r, direction=\"bidirectional\")", "fp32[2, b, 16]", "fp32[2, 2, 16]"},
	{"input %a : fp32[b, s, 8]\ninput %w : fp32[?, ?, ?]\n%y = onnx.GRU(X=%a, W=%w, R=%w, layout=1, hidden_size=16)", "fp32[b, s, 1, 16]", "fp32[2, 7, 1, 16]"},
	{"input %a : fp32[b, s, 8]\ninput %w : fp32[?, ?, ?]\n%z, %y = onnx.GRU(X=%a, W=%w, R=%w, layout=1, hidden_size=16)", "fp32[b, 1, 16]", "fp32[2, 1, 16]"},
	/* attention of onnxruntime */
	{"input %q : fp16[b, 8, s, 64]\n%z, %k, %v, %y = onnx.Attention(Q=%q, K=%q, V=%q)", "fp16[b, 8, s, s]", "fp16[2, 8, 7, 7]"},
	{"input %q : fp16[b, s, 64]\ninput %v : fp16[b, s, 32]\n%y = onnx.LinearAttention(query=%q, key=%q, value=%v, q_num_heads=4, kv_num_heads=2)", "fp16[b, s, 64]", "fp16[2, 7, 64]"},
	{"input %q : fp16[b, s, 64]\ninput %v : fp16[b, s, 32]\n%z, %y = onnx.LinearAttention(query=%q, key=%q, value=%v, q_num_heads=4, kv_num_heads=2)", "fp16[b, 2, 32, 16]", "fp16[2, 2, 32, 16]"},
	{"input %a : fp16[b, s, 64]\nparam %w : fp16[64, 192]\n%y = com.microsoft.Attention(input=%a, weights=%w, num_heads=4)", "fp16[b, s, 64]", "fp16[2, 7, 64]"},
	{"input %a : fp16[b, s, 64]\nparam %w : fp16[64, 192]\n%z, %y = com.microsoft.Attention(input=%a, weights=%w, num_heads=4)", "fp16[2, b, 4, s, 16]", "fp16[2, 2, 4, 7, 16]"},
	{"input %a : fp16[b, s, 64]\nparam %w : fp16[64, 160]\n%y = com.microsoft.Attention(input=%a, weights=%w, num_heads=4, qkv_hidden_sizes=[64, 64, 32])", "fp16[b, s, 32]", "fp16[2, 7, 32]"},
	{"input %q : fp16[b, s, 64]\ninput %k : fp16[b, 5, 64]\ninput %v : fp16[b, 5, 32]\n%y = com.microsoft.MultiHeadAttention(query=%q, key=%k, value=%v, num_heads=4)", "fp16[b, s, 32]", "fp16[2, 7, 32]"},
	{"input %q : fp16[b, s, 64]\ninput %k : fp16[b, 5, 64]\n%z, %y = com.microsoft.MultiHeadAttention(query=%q, key=%k, value=%k, num_heads=4)", "fp16[b, 4, 5, 16]", "fp16[2, 4, 5, 16]"},
	{"input %q : fp16[b, s, 4, 3, 16]\n%y = com.microsoft.MultiHeadAttention(query=%q, num_heads=4)", "fp16[b, s, 64]", "fp16[2, 7, 64]"},
	{"input %q : fp16[b, s, 64]\ninput %k : fp16[b, s, 32]\ninput %p : fp16[b, 2, 9, 16]\ninput %n : int32[b]\n"
	    "%z, %y = com.microsoft.GroupQueryAttention(query=%q, key=%k, value=%k, past_key=%p, past_value=%p, seqlens_k=%n, total_sequence_length=%n, num_heads=4, kv_num_heads=2)",
	    "fp16[b, 2, (s + 9), 16]", "fp16[2, 2, 16, 16]"},
	{"input %q : fp16[b, s, 128]\ninput %n : int32[b]\n%y = com.microsoft.GroupQueryAttention(query=%q, seqlens_k=%n, total_sequence_length=%n, num_heads=4, kv_num_heads=2)", "fp16[b, s, 64]", "fp16[2, 7, 64]"},
	/* numbers that are evaluated; fractions are made whole at the end, so that every element shows: -1.5 and 3, doubled */
	{"const %a : fp32[2]{float(1.5), float(-3)}\nconst %k : fp32[]{float(2)}\n%n = onnx.Neg(X=%a)\n%m = onnx.Mul(A=%n, B=%k)\n%y = onnx.Cast(input=%m, to=int64)", "int64[2]{-3, 6}", NULL},
	{"const %a : fp32[2]{float(0.5), float(4)}\nconst %k : fp32[]{float(4)}\n%n = onnx.Reciprocal(X=%a)\n%m = onnx.Mul(A=%n, B=%k)\n%y = onnx.Cast(input=%m, to=int64)", "int64[2]{8, 1}", NULL},
	{"const %a : fp32[3]{float(-0.5), float(0), float(9)}\n%n = onnx.Sign(input=%a)\n%y = onnx.Cast(input=%n, to=int64)", "int64[3]{-1, 0, 1}", NULL},
	{"const %a : int64[3]{-5, 0, 7}\n%y = onnx.Sign(input=%a)", "int64[3]{-1, 0, 1}", NULL},
	{"const %a : fp32[3]{float(-0.5), float(0), float(9)}\n%y = onnx.Cast(input=%a, to=bool)", "bool[3]{1, 0, 1}", NULL},
	{"const %a : int64[3]{300, -129, -128}\n%y = onnx.Cast(input=%a, to=int8)", "int8[3]{?, ?, -128}", NULL},        /* what does not fit depends on the machine */
	{"const %a : int64[2]{2, 3}\nconst %k : int64[]{3}\n%y = onnx.Pow(X=%a, Y=%k)", "int64[2]{8, 27}", NULL},
	{"const %a : fp32[2]{float(1.5), float(-2)}\nconst %k : fp32[]{float(2)}\n%p = onnx.Pow(X=%a, Y=%k)\n%m = onnx.Add(A=%p, B=%p)\n%y = onnx.Cast(input=%m, to=int64)", "int64[2]{4, 8}", NULL},
	{"const %a : fp32[2]{float(7.5), float(-7.5)}\nconst %k : fp32[]{float(2)}\n%p = onnx.Mod(A=%a, B=%k, fmod=1)\n%m = onnx.Mul(A=%p, B=%k)\n%y = onnx.Cast(input=%m, to=int64)", "int64[2]{3, -3}", NULL},
	{"const %a : fp32[3]{float(1), float(5), float(3)}\nconst %k : fp32[]{float(3)}\n%p = onnx.Min(data_0=[%a, %k])\n%q = onnx.Sub(A=%p, B=%k)\n%y = onnx.Cast(input=%q, to=int64)", "int64[3]{-2, 0, 0}", NULL},
	{"const %a : fp32[3]{float(1), float(5), float(3)}\nconst %k : fp32[]{float(3)}\n%p = onnx.Max(data_0=[%a, %k])\n%y = onnx.Cast(input=%p, to=int64)", "int64[3]{3, 5, 3}", NULL},
	{"const %a : int64[3]{1, 5, 3}\nconst %k : int64[]{3}\n%y = onnx.Max(data_0=[%a, %k])", "int64[3]{3, 5, 3}", NULL},
	{"const %a : int64[3]{1, 5, 3}\n%y = onnx.Max(data_0=[%a])", "int64[3]{1, 5, 3}", NULL},
	{"const %a : fp32[3]{float(1), float(2), float(3)}\nconst %k : fp32[]{float(2)}\n%y = onnx.Less(A=%a, B=%k)", "bool[3]{1, 0, 0}", NULL},
	{"const %a : fp32[3]{float(1), float(2), float(3)}\nconst %k : fp32[]{float(2)}\n%y = onnx.LessOrEqual(A=%a, B=%k)", "bool[3]{1, 1, 0}", NULL},
	{"const %a : fp32[3]{float(1), float(2), float(3)}\nconst %k : fp32[]{float(2)}\n%y = onnx.Equal(A=%a, B=%k)", "bool[3]{0, 1, 0}", NULL},
	{"const %a : fp32[3]{float(1), float(2), float(3)}\nconst %k : fp32[]{float(2)}\n%y = onnx.Greater(A=%a, B=%k)", "bool[3]{0, 0, 1}", NULL},
	{"const %a : fp32[3]{float(1), float(2), float(3)}\nconst %k : fp32[]{float(2)}\n%y = onnx.GreaterOrEqual(A=%a, B=%k)", "bool[3]{0, 1, 1}", NULL},
	/* a size is not negative: s is more than -3, and -3 less than s, whatever s is; how it stands to 3 its value says */
	{"input %a : fp32[s]\nconst %k : int64[1]{-3}\n%h = onnx.Shape(data=%a)\n%y = onnx.Greater(A=%h, B=%k)", "bool[1]{1}", NULL},
	{"input %a : fp32[s]\nconst %k : int64[1]{-3}\n%h = onnx.Shape(data=%a)\n%y = onnx.Less(A=%k, B=%h)", "bool[1]{1}", NULL},
	{"input %a : fp32[s]\nconst %k : int64[1]{3}\n%h = onnx.Shape(data=%a)\n%y = onnx.Less(A=%h, B=%k)", "bool[1]", "bool[1]{0}"},
	{"input %a : fp32[s]\nconst %k : int64[1]{1}\n%h = onnx.Shape(data=%a)\n%i = onnx.Add(A=%h, B=%k)\n%y = onnx.Less(A=%h, B=%i)", "bool[1]{1}", NULL},      /* s < s + 1 */
	{"const %a : int64[2]{7, 0}\nconst %k : int64[2]{2, 0}\n%y = onnx.Div(A=%a, B=%k)", "int64[2]{3, ?}", NULL},
	/* a condition that data decides chooses where both sides are the same */
	{"input %a : fp32[s, 5]\nconst %k : int64[1]{3}\nconst %p : int64[2]{4, 5}\nconst %q : int64[2]{4, 6}\n%h = onnx.Shape(data=%a)\n%c = onnx.Greater(A=%h, B=%k)\n%y = onnx.Where(condition=%c, X=%p, Y=%q)", "int64[2]{4, 5}", NULL},
	{"input %a : fp32[s, 5]\nconst %k : int64[1]{3}\nconst %p : int64[2]{7, 5}\nconst %q : int64[2]{4, 6}\n%h = onnx.Shape(data=%a)\n%c = onnx.Greater(A=%h, B=%k)\n%y = onnx.Where(condition=%c, X=%p, Y=%q)", "int64[2]{?, 5}", "int64[2]{7, 5}"},
	{"const %a : int64[3]{-5, 3, 99}\nconst %l : int64[]{0}\nconst %h : int64[]{10}\n%y = onnx.Clip(input=%a, min=%l, max=%h)", "int64[3]{0, 3, 10}", NULL},
	{"const %a : int64[3]{-5, 3, 99}\nconst %h : int64[]{10}\n%y = onnx.Clip(input=%a, max=%h)", "int64[3]{-5, 3, 10}", NULL},
	{"const %a : int64[2, 3]{1, 2, 3, 4, 5, 6}\nconst %x : int64[1]{-1}\n%y = onnx.ReduceSum(data=%a, axes=%x, keepdims=0)", "int64[2]{6, 15}", NULL},
	{"const %a : int64[2, 3]{1, 2, 3, 4, 5, 6}\nconst %x : int64[1]{0}\n%y = onnx.ReduceMax(data=%a, axes=%x, keepdims=0)", "int64[3]{4, 5, 6}", NULL},
	{"const %a : int64[2, 3]{1, 2, 3, 4, 5, 6}\nconst %x : int64[1]{1}\n%y = onnx.ReduceMin(data=%a, axes=%x, keepdims=0)", "int64[2]{1, 4}", NULL},
	{"const %a : fp32[3]{float(1.5), float(2), float(4)}\n%m = onnx.ReduceSum(data=%a, keepdims=0)\n%n = onnx.Add(A=%m, B=%m)\n%y = onnx.Cast(input=%n, to=int64)", "int64[]{15}", NULL},
	{"const %a : int64[4]{1, 2, 3, 4}\nconst %x : int64[]{0}\n%y = onnx.CumSum(x=%a, axis=%x)", "int64[4]{1, 3, 6, 10}", NULL},
	{"const %a : int64[4]{1, 2, 3, 4}\nconst %x : int64[]{0}\n%y = onnx.CumSum(x=%a, axis=%x, exclusive=1)", "int64[4]{0, 1, 3, 6}", NULL},
	{"const %a : int64[4]{1, 2, 3, 4}\nconst %x : int64[]{0}\n%y = onnx.CumSum(x=%a, axis=%x, reverse=1)", "int64[4]{10, 9, 7, 4}", NULL},
	{"const %a : int64[4]{1, 2, 3, 4}\nconst %x : int64[]{0}\n%y = onnx.CumProd(x=%a, axis=%x, exclusive=1)", "int64[4]{1, 1, 2, 6}", NULL},
	/* elements that move */
	{"const %a : int64[2, 3]{1, 2, 3, 4, 5, 6}\n%y = onnx.Transpose(data=%a, perm=[1, 0])", "int64[3, 2]{1, 4, 2, 5, 3, 6}", NULL},
	{"const %a : int64[5]{1, 2, 3, 4, 5}\nconst %n : int64[2]{2, 3}\n%z, %y = onnx.Split(input=%a, split=%n)", "int64[3]{3, 4, 5}", NULL},
	{"const %a : int64[2, 3]{1, 2, 3, 4, 5, 6}\nconst %n : int64[2]{1, 2}\n%z, %y = onnx.Split(input=%a, split=%n, axis=1)", "int64[2, 2]{2, 3, 5, 6}", NULL},
	{"const %a : int64[2]{1, 2}\nconst %n : int64[1]{3}\n%y = onnx.Tile(input=%a, repeats=%n)", "int64[6]{1, 2, 1, 2, 1, 2}", NULL},
	{"const %a : int64[2, 1]{1, 2}\nconst %n : int64[2]{1, 2}\n%y = onnx.Tile(input=%a, repeats=%n)", "int64[2, 2]{1, 1, 2, 2}", NULL},
	{"const %a : int64[2]{1, 2}\nconst %n : int64[2]{1, 2}\nconst %v : int64[]{9}\n%y = onnx.Pad(data=%a, pads=%n, constant_value=%v)", "int64[5]{9, 1, 2, 9, 9}", NULL},
	{"const %a : int64[3]{1, 2, 3}\nconst %n : int64[2]{-1, 1}\n%y = onnx.Pad(data=%a, pads=%n)", "int64[3]{2, 3, 0}", NULL},       /* negative: cut off */
	{"const %a : int64[3]{1, 2, 3}\nconst %n : int64[2]{1, 1}\n%y = onnx.Pad(data=%a, pads=%n, mode=\"edge\")", "int64[5]", NULL},
	{"const %a : int64[4]{1, 2, 3, 4}\nconst %i : int64[2]{-1, 1}\nconst %u : int64[2]{8, 9}\n%y = onnx.ScatterElements(data=%a, indices=%i, updates=%u)", "int64[4]{1, 9, 3, 8}", NULL},
	{"const %a : int64[2, 2]{1, 2, 3, 4}\nconst %i : int64[2, 1]{1, 0}\nconst %u : int64[2, 1]{8, 9}\n%y = onnx.ScatterElements(data=%a, indices=%i, updates=%u, axis=1)", "int64[2, 2]{1, 8, 9, 4}", NULL},
	{"const %a : int64[4]{1, 2, 3, 4}\nconst %i : int64[1]{4}\nconst %u : int64[1]{8}\n%y = onnx.ScatterElements(data=%a, indices=%i, updates=%u)", "int64[4]", NULL},     /* out of range */
	{"const %a : int64[4]{1, 2, 3, 4}\nconst %i : int64[1]{1}\nconst %u : int64[1]{8}\n%y = onnx.ScatterElements(data=%a, indices=%i, updates=%u, reduction=\"add\")", "int64[4]", NULL},
	{"const %a : int64[3, 2]{1, 2, 3, 4, 5, 6}\nconst %i : int64[1, 1]{-1}\nconst %u : int64[1, 2]{8, 9}\n%y = onnx.ScatterND(data=%a, indices=%i, updates=%u)", "int64[3, 2]{1, 2, 3, 4, 8, 9}", NULL},
	{"const %a : int64[2, 2]{1, 2, 3, 4}\nconst %i : int64[2, 2]{0, 1, 1, 0}\nconst %u : int64[2]{8, 9}\n%y = onnx.ScatterND(data=%a, indices=%i, updates=%u)", "int64[2, 2]{1, 8, 9, 4}", NULL},
	{"const %a : int64[2, 2]{1, 2, 3, 4}\nconst %i : int64[1, 1]{2}\nconst %u : int64[1, 2]{8, 9}\n%y = onnx.ScatterND(data=%a, indices=%i, updates=%u)", "int64[2, 2]", NULL},      /* out of range */
	{"const %a : int64[2, 2]{1, 2, 3, 4}\nconst %i : int64[2, 2]{0, 1, 1, -2}\n%y = onnx.GatherND(data=%a, indices=%i)", "int64[2]{2, 3}", NULL},
	{"const %a : int64[2, 2]{1, 2, 3, 4}\nconst %i : int64[1]{2}\n%y = onnx.Gather(data=%a, indices=%i)", "int64[1, 2]", NULL},  /* out of range */
	{"const %a : int64[1, 2]{1, 2}\n%y = onnx.StackRuns(x=%a)", "int64[?, 1, 2]", NULL},
	{"const %c : bool[]{1}\nconst %p : int64[2]{1, 2}\nconst %q : int64[2]{3, 4}\n%t = onnx.Identity(input=%p)\n%e = onnx.Identity(input=%q)\n%y = onnx.Select(condition=%c, then=%t, otherwise=%e, nodes=[1, 1])",
	    "int64[2]{1, 2}", NULL},
	/* texts */
	{"input %a : string[b, s]\n%y = onnx.StringNormalizer(X=%a)", "string[b, s]", "string[2, 7]"},
	{"input %a : string[s]\n%y = onnx.StringNormalizer(X=%a, stopwords=\"the\")", "string[?]", "string[7]"},
	{"input %a : string[b]\n%y, %z = onnx.StringSplit(X=%a)", "string[b, ?]", "string[2, ?]"},
	{"input %a : string[b]\n%z, %y = onnx.StringSplit(X=%a)", "int64[b]", "int64[2]"},
	{"input %a : string[b]\n%y = ai.onnx.ml.LabelEncoder(X=%a, values_int64s=[1, 2])", "int64[b]", "int64[2]"},
	{"input %a : int64[b]\n%y = ai.onnx.ml.LabelEncoder(X=%a, values_strings=\"no\")", "string[b]", "string[2]"},
	{"input %a : int64[b]\ninput %v : fp64[2]\n%y = ai.onnx.ml.LabelEncoder(X=%a, values_tensor=%v)", "fp64[b]", "fp64[2]"},
	/* optimizers and regressors */
	{"input %t : int64[]\nparam %w : fp32[4, 4]\n%y = ai.onnx.preview.training.Adam(R=%w, T=%t, inputs=[%w, %w, %w, %w])", "fp32[4, 4]", NULL},
	{"input %a : fp64[b, 9]\n%y = ai.onnx.ml.LinearRegressor(X=%a, targets=3)", "fp32[b, 3]", "fp32[2, 3]"},
	{"input %a : fp64[b, 9]\n%y = ai.onnx.ml.TreeEnsemble(X=%a, n_targets=2)", "fp64[b, 2]", "fp64[2, 2]"},
	/* more windows: (9 - 5) + 1 with a dilated kernel */
	{"input %a : uint8[b, 3, 8, 8]\ninput %w : uint8[4, 3, 3, 3]\n%y = onnx.ConvInteger(x=%a, w=%w)", "int32[b, 4, 6, 6]", "int32[2, 4, 6, 6]"},
	{"input %a : uint8[b, 3, 8, 8]\ninput %w : uint8[4, 3, 3, 3]\ninput %k : fp32[]\ninput %z : uint8[]\ninput %o : int8[]\n"
	    "%y = onnx.QLinearConv(x=%a, x_scale=%k, x_zero_point=%z, w=%w, w_scale=%k, w_zero_point=%z, y_scale=%k, y_zero_point=%o)", "int8[b, 4, 6, 6]", "int8[2, 4, 6, 6]"},
	{"input %a : fp32[b, 3, 9, 9]\nparam %w : fp32[4, 3, 3, 3]\n%y = onnx.Conv(X=%a, W=%w, auto_pad=\"VALID\", dilations=[2, 2])", "fp32[b, 4, 5, 5]", "fp32[2, 4, 5, 5]"},
	{"input %a : fp32[1, 4, 5, 5]\nparam %w : fp32[4, 3, 3, 3]\n%y = onnx.ConvTranspose(X=%a, W=%w, strides=[2, 2], auto_pad=\"SAME_UPPER\")", "fp32[1, 3, 10, 10]", NULL},
	{"input %a : fp32[1, 4, 5, 5]\nparam %w : fp32[4, 3, 3, 3]\n%y = onnx.ConvTranspose(X=%a, W=%w, strides=[2, 2], output_shape=[11, 12])", "fp32[1, 3, 11, 12]", NULL},
	{"input %a : fp32[b, 8, s]\nparam %w : fp32[8, 1, 4]\n%z, %y = onnx.CausalConvWithState(input=%a, weight=%w)", "fp32[b, 8, 3]", "fp32[2, 8, 3]"},
	{"input %a : fp32[b, 3, 8, 8]\n%z, %y = onnx.MaxPool(X=%a, kernel_shape=[2, 2], strides=[2, 2])", "int64[b, 3, 4, 4]", "int64[2, 3, 4, 4]"},
	{"input %a : fp32[b, 3, 8, 8]\n%y = onnx.GlobalAveragePool(X=%a)", "fp32[b, 3, 1, 1]", "fp32[2, 3, 1, 1]"},
	{"input %a : fp32[1, 1, 2, 2]\ninput %i : int64[1, 1, 2, 2]\n%y = onnx.MaxUnpool(X=%a, I=%i, kernel_shape=[2, 2], strides=[2, 2])", "fp32[1, 1, 4, 4]", NULL},
	{"input %a : fp32[1, 1, 2, 2]\ninput %i : int64[1, 1, 2, 2]\nconst %t : int64[4]{1, 1, 5, 5}\n%y = onnx.MaxUnpool(X=%a, I=%i, output_shape=%t, kernel_shape=[2, 2])", "fp32[1, 1, 5, 5]", NULL},
	{"input %a : fp32[1, 3, 8, 8]\ninput %r : fp32[s, 5]\n%y = onnx.MaxRoiPool(X=%a, rois=%r, pooled_shape=[2, 3])", "fp32[s, 3, 2, 3]", "fp32[7, 3, 2, 3]"},
	{"input %a : fp32[1, 3, 8, 8]\ninput %r : fp32[s, 4]\ninput %i : int64[s]\n%y = onnx.RoiAlign(X=%a, rois=%r, batch_indices=%i, output_height=2, output_width=3)", "fp32[s, 3, 2, 3]", "fp32[7, 3, 2, 3]"},
	/* resampling: one factor of a half, then of one, for both axes */
	{"input %a : fp32[b, 3, s, 4]\nconst %k : fp32[4]{float(1), float(1), float(2), float(2)}\n%y = onnx.Resize(X=%a, scales=%k)", "fp32[b, 3, (s*2), 8]", "fp32[2, 3, 14, 8]"},
	{"input %a : fp32[1, 3, 10, 20]\nconst %k : int64[2]{5, 20}\n%y = onnx.Resize(X=%a, sizes=%k, axes=[2, 3], keep_aspect_ratio_policy=\"not_larger\")", "fp32[1, 3, 5, 10]", NULL},
	{"input %a : fp32[1, 3, 10, 20]\nconst %k : int64[2]{5, 20}\n%y = onnx.Resize(X=%a, sizes=%k, axes=[2, 3], keep_aspect_ratio_policy=\"not_smaller\")", "fp32[1, 3, 10, 20]", NULL},
	{"input %a : fp32[b, 3, 8, 8]\ninput %g : fp32[b, 5, s, 2]\n%y = onnx.GridSample(X=%a, grid=%g)", "fp32[b, 3, 5, s]", "fp32[2, 3, 5, 7]"},
	{"input %a : fp32[b, 2, 3]\nconst %t : int64[4]{2, 3, 5, 6}\n%y = onnx.AffineGrid(theta=%a, size=%t)", "fp32[2, 5, 6, 2]", NULL},
	{"input %a : fp32[b, 12, 16]\nconst %t : int64[2]{8, 9}\nconst %k : int64[2]{2, 2}\n%y = onnx.Col2Im(input=%a, image_shape=%t, block_shape=%k)", "fp32[b, 3, 8, 9]", "fp32[2, 3, 8, 9]"},
	{"input %a : uint8[s]\n%y = onnx.ImageDecoder(encoded_stream=%a, pixel_format=\"Grayscale\")", "uint8[?, ?, 1]", NULL},
	/* moving blocks */
	{"input %a : fp32[b, 12, 4, s]\n%y = onnx.DepthToSpace(input=%a, blocksize=2)", "fp32[b, 3, 8, (s*2)]", "fp32[2, 3, 8, 14]"},
	{"input %a : fp32[b, 3, 8, 6]\n%y = onnx.SpaceToDepth(input=%a, blocksize=2)", "fp32[b, 12, 4, 3]", "fp32[2, 12, 4, 3]"},
	{"input %a : fp32[b, s]\nconst %k : int64[2]{1, 2}\n%y = onnx.Tile(input=%a, repeats=%k)", "fp32[b, (s*2)]", "fp32[2, 14]"},
	{"input %a : fp32[b, s, 3]\nconst %k : int64[2]{5, 6}\n%y = onnx.CenterCropPad(input_data=%a, shape=%k, axes=[0, 1])", "fp32[5, 6, 3]", NULL},
	/* signals: half a spectrum of n has n / 2 + 1, of frames there are (128 - 16) / 8 + 1 */
	{"input %a : fp32[b, s]\n%h = onnx.Shape(data=%a, start=1)\n%y = onnx.HammingWindow(size=%h, output_datatype=fp16)", "fp16[s]", "fp16[7]"},
	{"const %k : int64[]{8}\nconst %n : int64[]{16}\n%y = onnx.MelWeightMatrix(num_mel_bins=%k, dft_length=%n, sample_rate=%n, lower_edge_hertz=%n, upper_edge_hertz=%n)", "fp32[9, 8]", NULL},
	{"input %a : fp32[b, 16, 1]\n%y = onnx.DFT(input=%a)", "fp32[b, 16, 2]", "fp32[2, 16, 2]"},
	{"input %a : fp32[b, 16, 1]\nconst %n : int64[]{10}\n%y = onnx.DFT(input=%a, dft_length=%n, onesided=1)", "fp32[b, 6, 2]", "fp32[2, 6, 2]"},
	{"input %a : fp32[b, 9, 2]\n%y = onnx.DFT(input=%a, onesided=1, inverse=1)", "fp32[b, 16, 1]", "fp32[2, 16, 1]"},
	{"input %a : fp32[b, 9, 2]\ninput %x : int64[]\n%y = onnx.DFT(input=%a, axis=%x)", "fp32[?, ?, ?]", NULL},
	{"input %a : fp32[b, 128, 1]\nconst %k : int64[]{8}\ninput %w : fp32[16]\n%y = onnx.STFT(signal=%a, frame_step=%k, window=%w)", "fp32[b, 15, 9, 2]", "fp32[2, 15, 9, 2]"},
	{"input %a : fp32[b, 128, 1]\nconst %k : int64[]{8}\nconst %n : int64[]{32}\n%y = onnx.STFT(signal=%a, frame_step=%k, frame_length=%n, onesided=0)", "fp32[b, 13, 32, 2]", "fp32[2, 13, 32, 2]"},
	/* features */
	{"input %a : int64[b, 9]\n%y = onnx.TfIdfVectorizer(X=%a, ngram_indexes=[0, 3, 1])", "fp32[b, 4]", "fp32[2, 4]"},
	{"input %a : int64[b]\n%y = ai.onnx.ml.LabelEncoder(X=%a, keys_int64s=[1, 2], values_floats=[float(1), float(2)])", "fp32[b]", "fp32[2]"},
	{"input %a : fp32[b]\n%y = ai.onnx.ml.LabelEncoder(X=%a, values_int64s=[1, 2])", "int64[b]", "int64[2]"},
	{"input %a : fp32[b, 9]\ninput %i : int64[4]\n%y = ai.onnx.ml.ArrayFeatureExtractor(X=%a, Y=%i)", "fp32[b, 4]", "fp32[2, 4]"},
	{"input %a : fp32[9]\ninput %i : int64[1, 4]\n%y = ai.onnx.ml.ArrayFeatureExtractor(X=%a, Y=%i)", "fp32[1, 4]", NULL},
};


static void
keep(void *user, const char *text, size_t n)
{
	buf_put(user, text, n);
}

/* The type of %y in the dump: from " : " to the next comma behind its bracket or the equals sign. */
static char *
type_in(const char *dump)
{
	const char *p = strstr(dump, "%y : "), *end;

	if (!p)
		fail_msg("%%y has no type");
	p += 5;
	end = strstr(p, " = ");
	for (const char *next = strstr(p, ", %"); next && end && next < end; next = NULL)
		end = next;
	assert_non_null(end);
	return strndup(p, (size_t)(end - p));
}

static char *
type_after(const char *graph, const char *pass)
{
	char *text = NULL, *type;
	struct buf b = {0};
	mc_options o;
	mc_recipe *r = mc_recipe_new();
	mc_model *m;
	mc_report *rep;

	assert_true(asprintf(&text, "memcrest-ir 1\n%s\noutput %%y\n", graph) > 0);
	mc_options_init(&o);
	o.dump_after = pass;
	o.dump = keep;
	o.dump_user = &b;
	assert_int_equal(mc_load_memory(text, strlen(text), "case", NULL, &m), MC_OK);
	if (strstr(graph, "[b") || strstr(graph, "b,") || strstr(graph, " b]"))
		mc_recipe_set_dim(r, "b", 2);
	if (strstr(graph, "s]") || strstr(graph, "s,"))
		mc_recipe_set_dim(r, "s", 7);
	if (mc_inspect(m, r, &o, &rep) != MC_OK)
		fail_msg("%s", graph);
	buf_put(&b, "", 1);
	type = type_in(b.p);
	free(b.p);
	free(text);
	mc_report_free(rep);
	mc_recipe_free(r);
	mc_model_free(m);
	return type;
}

static void
types_follow(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *symbolic = type_after(cases[i].graph, "shape"), *bound = type_after(cases[i].graph, "sizes");

		if (strcmp(symbolic, cases[i].symbolic))
			fail_msg("%s\nis %s and should be %s", cases[i].graph, symbolic, cases[i].symbolic);
		if (strcmp(bound, cases[i].bound ? cases[i].bound : cases[i].symbolic))
			fail_msg("%s\nwith sizes is %s and should be %s", cases[i].graph, bound, cases[i].bound ? cases[i].bound : cases[i].symbolic);
		free(symbolic);
		free(bound);
	}
}

/* Every row has a rule, and its weights are operands of its schema. */
static void
rows_are_whole(void **state)
{
	(void)state;
	for (unsigned op = 1; op < OP_COUNT; op++) {
		struct arg_name names[MAX_SCHEMA];
		uint32_t n = op_args(op, names, MAX_SCHEMA);
		struct str rest = str_of(op_is_onnx(op) ? op_info(op)->weights : ""), weight;

		if (!op_is_onnx(op))
			continue;
		assert_true(n < MAX_SCHEMA);
		while (rest.n && str_cut(&rest, ' ', &weight)) {
			int i = op_arg_index(op, weight);

			if (i < 0 || names[i].attribute)
				fail_msg("%s has no operand %.*s", op_info(op)->name, SFMT(weight));
		}
		for (uint32_t i = 1; i < n; i++)
			assert_true(!names[i - 1].attribute || names[i].attribute);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(types_follow), cmocka_unit_test(rows_are_whole)};

	return cmocka_run_group_tests_name("shape", tests, NULL, NULL);
}
