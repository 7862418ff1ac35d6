// BertTf>FusedResidualLayerNorm and its gradient;
// custom_ops/kernels/layer_norm/fused_residual_layer_norm.h has the formulas.
#include "custom_ops/ops/fused_residual_layer_norm_op.h"

#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/ops/op_attributes.h"
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

// Checks and merges the shapes of x [..., H] and of the other inputs in the shape functions.
class ShapeMerger {
 public:
  explicit ShapeMerger(InferenceContext* c) : c_(c) {}

  absl::Status SetX(ShapeHandle x) {
    if (!c_->WithRankAtLeast(x, 1, &x_).ok()) {
      return InvalidArgument("`x` must have shape [..., H]. Received: x.shape=",
                             c_->DebugString(x));
    }
    return absl::OkStatus();
  }

  absl::Status MergeSame(const char* name, ShapeHandle shape) {
    ShapeHandle merged;
    if (!c_->Merge(x_, shape, &merged).ok()) {
      return InvalidArgument("`", name, "` must have the shape of `x`. Received: x.shape=",
                             c_->DebugString(x_), ", ", name, ".shape=", c_->DebugString(shape));
    }
    x_ = merged;
    return absl::OkStatus();
  }

  absl::Status MergeFeatures(const char* name, ShapeHandle shape) {
    ShapeHandle vector;
    DimensionHandle features;
    if (!c_->WithRank(shape, 1, &vector).ok() ||
        !c_->Merge(c_->Dim(x_, -1), c_->Dim(vector, 0), &features).ok()) {
      return InvalidArgument("`", name,
                             "` must have shape [H], the last dimension of `x`. Received: x.shape=",
                             c_->DebugString(x_), ", ", name, ".shape=", c_->DebugString(shape));
    }
    return c_->ReplaceDim(x_, -1, features, &x_);
  }

  absl::Status CheckSeed(ShapeHandle shape) {
    ShapeHandle scalar;
    if (!c_->WithRank(shape, 0, &scalar).ok()) {
      return InvalidArgument("`seed` must be a scalar. Received: seed.shape=",
                             c_->DebugString(shape));
    }
    return absl::OkStatus();
  }

  ShapeHandle x() const { return x_; }
  ShapeHandle features() const { return c_->Vector(c_->Dim(x_, -1)); }

  // [rows]: the product of all dimensions except the last one.
  ShapeHandle rows() const {
    if (!c_->RankKnown(x_)) return c_->Vector(InferenceContext::kUnknownDim);
    DimensionHandle rows = c_->MakeDim(1);
    for (int i = 0; i + 1 < c_->Rank(x_); ++i) {
      if (!c_->Multiply(rows, c_->Dim(x_, i), &rows).ok()) {
        return c_->Vector(InferenceContext::kUnknownDim);
      }
    }
    return c_->Vector(rows);
  }

 private:
  InferenceContext* c_;
  ShapeHandle x_;
};

// Inputs: x, residual?, bias?, gamma, beta, seed.
absl::Status ForwardShape(InferenceContext* c) {
  ResidualLayerNormAttributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  const auto [num_residual, num_bias, dropout_rate] = attributes;
  float epsilon;
  TF_RETURN_IF_ERROR(ReadEpsilon(c, &epsilon));
  ShapeMerger merger(c);
  int i = 0;
  TF_RETURN_IF_ERROR(merger.SetX(c->input(i++)));
  if (num_residual == 1) TF_RETURN_IF_ERROR(merger.MergeSame("residual", c->input(i++)));
  if (num_bias == 1) TF_RETURN_IF_ERROR(merger.MergeFeatures("bias", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("gamma", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("beta", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.CheckSeed(c->input(i++)));
  c->set_output(0, merger.x());
  c->set_output(1, merger.rows());
  c->set_output(2, merger.rows());
  return absl::OkStatus();
}

// Inputs: dy, x, residual?, bias?, gamma, mean, rstd, seed.
absl::Status GradShape(InferenceContext* c) {
  ResidualLayerNormAttributes attributes;
  int num_dresidual;
  TF_RETURN_IF_ERROR(attributes.ReadGrad(c, &num_dresidual));
  const auto [num_residual, num_bias, dropout_rate] = attributes;
  ShapeMerger merger(c);
  int i = 1;
  TF_RETURN_IF_ERROR(merger.SetX(c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeSame("dy", c->input(0)));
  if (num_residual == 1) TF_RETURN_IF_ERROR(merger.MergeSame("residual", c->input(i++)));
  if (num_bias == 1) TF_RETURN_IF_ERROR(merger.MergeFeatures("bias", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("gamma", c->input(i++)));
  for (const char* name : {"mean", "rstd"}) {
    const ShapeHandle shape = c->input(i++);
    ShapeHandle merged;
    if (!c->Merge(shape, merger.rows(), &merged).ok()) {
      return InvalidArgument(
          "`", name, "` must have one element for each row of `x`. Received: x.shape=",
          c->DebugString(merger.x()), ", ", name, ".shape=", c->DebugString(shape));
    }
  }
  TF_RETURN_IF_ERROR(merger.CheckSeed(c->input(i++)));
  int o = 0;
  c->set_output(o++, merger.x());
  if (num_dresidual == 1) c->set_output(o++, merger.x());
  if (num_bias == 1) c->set_output(o++, merger.features());
  c->set_output(o++, merger.features());
  c->set_output(o++, merger.features());
  return absl::OkStatus();
}

template <typename Type>
struct Cpu {
  using T = KernelType<Type>;

  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormArgs<T>& args) {
    FusedResidualLayerNorm(TensorFlowParallel(context), args);
    return absl::OkStatus();
  }

  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormGradArgs<T>& args) {
    FusedResidualLayerNormGrad(TensorFlowParallel(context), args);
    return absl::OkStatus();
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return ResidualLayerNormGradScratchSize(rows, columns);
  }
};

REGISTER_OP("BertTf>FusedResidualLayerNorm")
    .Attr("T: {float, bfloat16, half}")
    .Attr("num_residual: int >= 0")
    .Attr("num_bias: int >= 0")
    .Attr("epsilon: float")
    .Attr("dropout_rate: float = 0.0")
    .Input("x: T")
    .Input("residual: num_residual * T")
    .Input("bias: num_bias * T")
    .Input("gamma: T")
    .Input("beta: T")
    .Input("seed: int64")
    .Output("y: T")
    .Output("mean: float")
    .Output("rstd: float")
    .SetShapeFn(ForwardShape);

REGISTER_OP("BertTf>FusedResidualLayerNormGrad")
    .Attr("T: {float, bfloat16, half}")
    .Attr("num_residual: int >= 0")
    .Attr("num_bias: int >= 0")
    .Attr("num_dresidual: int >= 0")
    .Attr("dropout_rate: float = 0.0")
    .Input("dy: T")
    .Input("x: T")
    .Input("residual: num_residual * T")
    .Input("bias: num_bias * T")
    .Input("gamma: T")
    .Input("mean: float")
    .Input("rstd: float")
    .Input("seed: int64")
    .Output("dx: T")
    .Output("dresidual: num_dresidual * T")
    .Output("dbias: num_bias * T")
    .Output("dgamma: T")
    .Output("dbeta: T")
    .SetShapeFn(GradShape);

BERT_TF_REGISTER("FusedResidualLayerNorm", tensorflow::DEVICE_CPU, 0, FusedResidualLayerNormOp,
                 Cpu);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", tensorflow::DEVICE_CPU, 0,
                 FusedResidualLayerNormGradOp, Cpu);

}  // namespace
}  // namespace bert_tf
