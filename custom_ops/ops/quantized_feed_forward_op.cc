// BertTf>QuantizedFeedForward: LayerNorm(x + activation(x W1 + b1) W2 + b2), both kernels in 8-bit
// integers; custom_ops/kernels/dense/quantized_dense.h has the formulas.
#include <cstdint>

#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/ops/dense_op_util.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status QuantizedFeedForwardShape(InferenceContext* c) {
  int64_t inner_units;
  TF_RETURN_IF_ERROR(c->GetAttr("inner_units", &inner_units));
  TF_RETURN_IF_ERROR(CheckEpsilon(c));
  ShapeHandle x;
  TF_RETURN_IF_ERROR(ReadShape(c, "x", 2, "have shape [M, K]", &x));
  const DimensionHandle hidden = c->Dim(x, 1), inner = c->MakeDim(inner_units);
  TF_RETURN_IF_ERROR(CheckDepth(c, "x", hidden, kQuantizedDenseDepth));
  TF_RETURN_IF_ERROR(CheckDepth(c, "the inner layer", inner, kQuantizedDenseDepth));
  TF_RETURN_IF_ERROR(CheckPacked(c, "packed_1", PackedQuantizedDenseSize, hidden, inner_units));
  if (c->ValueKnown(hidden)) {
    TF_RETURN_IF_ERROR(
        CheckPacked(c, "packed_2", PackedQuantizedDenseSize, inner, c->Value(hidden)));
  }
  TF_RETURN_IF_ERROR(CheckVectors(
      c, hidden, {"smoothing_1", "scale_2", "column_sums_2", "bias_2", "gamma", "beta"}));
  TF_RETURN_IF_ERROR(CheckVectors(c, inner, {"scale_1", "column_sums_1", "bias_1", "smoothing_2"}));
  TF_RETURN_IF_ERROR(CheckStaticScale(c, "num_static_1", "static_scale_1"));
  TF_RETURN_IF_ERROR(CheckStaticScale(c, "num_static_2", "static_scale_2"));
  c->set_output(0, x);
  return absl::OkStatus();
}

REGISTER_OP("BertTf>QuantizedFeedForward")
    .Attr("T: {float, bfloat16, half}")
    .Attr("inner_units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new'} = 'none'")
    .Attr("epsilon: float = 1e-12")
    .Input("x: T")
    .Input("packed_1: int8")
    .Input("scale_1: float")
    .Input("column_sums_1: int32")
    .Input("smoothing_1: float")
    .Input("bias_1: T")
    .Input("packed_2: int8")
    .Input("scale_2: float")
    .Input("column_sums_2: int32")
    .Input("smoothing_2: float")
    .Input("bias_2: T")
    .Input("gamma: T")
    .Input("beta: T")
    .Attr("num_static_1: int >= 0 = 0")  // graphs of older versions do not have them
    .Attr("num_static_2: int >= 0 = 0")
    .Input("static_scale_1: num_static_1 * float")
    .Input("static_scale_2: num_static_2 * float")
    .Output("y: T")
    .SetShapeFn(QuantizedFeedForwardShape);

template <typename Args, auto kKernel>
using FeedForwardOp = PackedKernelsOp<Args, kKernel, 1, 6>;

BERT_TF_REGISTER_CPU("QuantizedFeedForward", FeedForwardOp, QuantizedFeedForwardArgs,
                     QuantizedFeedForward);

}  // namespace
}  // namespace bert_tf
