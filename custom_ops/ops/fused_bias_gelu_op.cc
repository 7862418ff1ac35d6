// BertTf>FusedBiasGelu and its gradient; custom_ops/kernels/gelu/fused_bias_gelu.h has the
// formulas.
#include "custom_ops/ops/fused_bias_gelu_op.h"

#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/ops/op_util.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Merges the last dimension of x [..., F] with bias [F], the input after it.
absl::Status MergeBias(InferenceContext* c, int x_index, ShapeHandle* x) {
  const ShapeHandle bias_input = c->input(x_index + 1);
  if (!c->WithRankAtLeast(c->input(x_index), 1, x).ok()) {
    return InvalidArgument("`x` must have shape [..., F]. Received: x.shape=",
                           c->DebugString(c->input(x_index)));
  }
  ShapeHandle bias;
  if (!c->WithRank(bias_input, 1, &bias).ok()) {
    return InvalidArgument("`bias` must have shape [F]. Received: bias.shape=",
                           c->DebugString(bias_input));
  }
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
  TF_RETURN_IF_ERROR(MergeBias(c, 0, &x));
  c->set_output(0, x);
  return absl::OkStatus();
}

absl::Status GradShape(InferenceContext* c) {
  ShapeHandle x, dx;
  TF_RETURN_IF_ERROR(MergeBias(c, 1, &x));
  if (!c->Merge(c->input(0), x, &dx).ok()) {
    return InvalidArgument("`dy` must have the shape of `x`. Received: dy.shape=",
                           c->DebugString(c->input(0)), ", x.shape=", c->DebugString(x));
  }
  c->set_output(0, dx);
  c->set_output(1, c->Vector(c->Dim(dx, -1)));
  return absl::OkStatus();
}

template <typename Type>
struct Cpu {
  using T = KernelType<Type>;

  static absl::Status Run(OpKernelContext* context, const BiasGeluArgs<T>& args) {
    FusedBiasGelu(TensorFlowParallel(context), args);
    return absl::OkStatus();
  }

  static absl::Status Run(OpKernelContext* context, const BiasGeluGradArgs<T>& args) {
    FusedBiasGeluGrad(TensorFlowParallel(context), args);
    return absl::OkStatus();
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return BiasGeluGradScratchSize(rows, columns);
  }
};

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

BERT_TF_REGISTER("FusedBiasGelu", tensorflow::DEVICE_CPU, 0, FusedBiasGeluOp, Cpu);
BERT_TF_REGISTER("FusedBiasGeluGrad", tensorflow::DEVICE_CPU, 0, FusedBiasGeluGradOp, Cpu);

}  // namespace
}  // namespace bert_tf
