// BertTf>FusedBiasGelu and its gradient; custom_ops/kernels/gelu/fused_bias_gelu.h has the
// formulas.
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Merges the last dimension of x [..., F] with bias [F].
absl::Status MergeBias(InferenceContext* c, ShapeHandle x_input, ShapeHandle* x) {
  if (!c->WithRankAtLeast(x_input, 1, x).ok()) {
    return InvalidArgument("`x` must have shape [..., F]. Received: x.shape=",
                           c->DebugString(x_input));
  }
  ShapeHandle bias;
  TF_RETURN_IF_ERROR(ReadShape(c, "bias", 1, "have shape [F]", &bias));
  DimensionHandle features;
  if (!c->Merge(c->Dim(*x, -1), c->Dim(bias, 0), &features).ok()) {
    return InvalidArgument(
        "`bias` must have the length of the last dimension of `x`. Received: x.shape=",
        c->DebugString(*x), ", bias.shape=", c->DebugString(bias));
  }
  return c->ReplaceDim(*x, -1, features, x);
}

absl::Status ForwardShape(InferenceContext* c) {
  ShapeHandle x;
  TF_RETURN_IF_ERROR(MergeBias(c, c->input(0), &x));
  c->set_output(0, x);
  return absl::OkStatus();
}

absl::Status GradShape(InferenceContext* c) {
  ShapeHandle x, dx;
  TF_RETURN_IF_ERROR(MergeBias(c, c->input(1), &x));
  if (!c->Merge(c->input(0), x, &dx).ok()) {
    return InvalidArgument("`dy` must have the shape of `x`. Received: dy.shape=",
                           c->DebugString(c->input(0)), ", x.shape=", c->DebugString(x));
  }
  c->set_output(0, dx);
  c->set_output(1, c->Vector(c->Dim(dx, -1)));
  return absl::OkStatus();
}

REGISTER_OP("BertTf>FusedBiasGelu")
    .Attr("T: {float, bfloat16, half}")
    .Attr("approximate: bool = false")
    .Input("x: T")
    .Input("bias: T")
    .Output("y: T")
    .SetShapeFn(ForwardShape);

REGISTER_OP("BertTf>FusedBiasGeluGrad")
    .Attr("T: {float, bfloat16, half}")
    .Attr("approximate: bool = false")
    .Input("dy: T")
    .Input("x: T")
    .Input("bias: T")
    .Output("dx: T")
    .Output("dbias: T")
    .SetShapeFn(GradShape);

BERT_TF_REGISTER_CPU("FusedBiasGelu", CpuOp, BiasGeluArgs, FusedBiasGelu);
BERT_TF_REGISTER_CPU("FusedBiasGeluGrad", CpuOp, BiasGeluGradArgs, FusedBiasGeluGrad);

}  // namespace
}  // namespace bert_tf
