// BertTf>Bfloat16FeedForward: LayerNorm(x + activation(x W1 + b1) W2 + b2), both kernels in
// bfloat16; custom_ops/kernels/dense/bfloat16_dense.h has the formulas.
#include <cstdint>

#include "custom_ops/kernels/dense/bfloat16_dense.h"
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

absl::Status Bfloat16FeedForwardShape(InferenceContext* c) {
  int64_t inner_units;
  TF_RETURN_IF_ERROR(c->GetAttr("inner_units", &inner_units));
  TF_RETURN_IF_ERROR(CheckEpsilon(c));
  ShapeHandle x;
  TF_RETURN_IF_ERROR(ReadShape(c, "x", 2, "have shape [M, K]", &x));
  const DimensionHandle hidden = c->Dim(x, 1), inner = c->MakeDim(inner_units);
  TF_RETURN_IF_ERROR(CheckPacked(c, "packed_1", PackedBfloat16DenseSize, hidden, inner_units));
  if (c->ValueKnown(hidden)) {
    TF_RETURN_IF_ERROR(
        CheckPacked(c, "packed_2", PackedBfloat16DenseSize, inner, c->Value(hidden)));
  }
  TF_RETURN_IF_ERROR(CheckVectors(c, hidden, {"bias_2", "gamma", "beta"}));
  TF_RETURN_IF_ERROR(CheckVectors(c, inner, {"bias_1"}));
  c->set_output(0, x);
  return absl::OkStatus();
}

REGISTER_OP("BertTf>Bfloat16FeedForward")
    .Attr("T: {float, bfloat16, half}")
    .Attr("inner_units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new'} = 'none'")
    .Attr("epsilon: float = 1e-12")
    .Input("x: T")
    .Input("packed_1: bfloat16")
    .Input("bias_1: T")
    .Input("packed_2: bfloat16")
    .Input("bias_2: T")
    .Input("gamma: T")
    .Input("beta: T")
    .Output("y: T")
    .SetShapeFn(Bfloat16FeedForwardShape);

template <typename Args, auto kKernel>
using FeedForwardOp = PackedKernelsOp<Args, kKernel, 1, 3>;

BERT_TF_REGISTER_CPU("Bfloat16FeedForward", FeedForwardOp, Bfloat16FeedForwardArgs,
                     Bfloat16FeedForward);

}  // namespace
}  // namespace bert_tf
