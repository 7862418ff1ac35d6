// BertTf>FusedResidualLayerNorm and its gradient;
// custom_ops/kernels/layer_norm/fused_residual_layer_norm.h has the formulas.
//
// residual and bias are lists of no or one tensor. The gradient op returns dresidual only if it is
// different from dx, which is the case with residual and dropout (num_dresidual = 1).
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

struct Attributes {
  int num_residual;
  int num_bias;
  float dropout_rate;

  absl::Status Read(InferenceContext* c) {
    TF_RETURN_IF_ERROR(ReadOptional(c, "num_residual", &num_residual));
    TF_RETURN_IF_ERROR(ReadOptional(c, "num_bias", &num_bias));
    return ReadDropoutRate(c, &dropout_rate);
  }
};

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
  Attributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  TF_RETURN_IF_ERROR(CheckEpsilon(c));
  ShapeMerger merger(c);
  int i = 0;
  TF_RETURN_IF_ERROR(merger.SetX(c->input(i++)));
  if (attributes.num_residual == 1) TF_RETURN_IF_ERROR(merger.MergeSame("residual", c->input(i++)));
  if (attributes.num_bias == 1) TF_RETURN_IF_ERROR(merger.MergeFeatures("bias", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("gamma", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("beta", c->input(i++)));
  TF_RETURN_IF_ERROR(CheckSeed(c, i++));
  c->set_output(0, merger.x());
  c->set_output(1, merger.rows());
  c->set_output(2, merger.rows());
  return absl::OkStatus();
}

// Inputs: dy, x, residual?, bias?, gamma, mean, rstd, seed.
absl::Status GradShape(InferenceContext* c) {
  Attributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  int num_dresidual;
  TF_RETURN_IF_ERROR(c->GetAttr("num_dresidual", &num_dresidual));
  const int expected = attributes.dropout_rate > 0.0f ? attributes.num_residual : 0;
  if (num_dresidual != expected) {
    return InvalidArgument(
        "`num_dresidual` must be ", expected,
        ": 1 only with residual and dropout. Received: num_dresidual=", num_dresidual);
  }
  ShapeMerger merger(c);
  int i = 1;
  TF_RETURN_IF_ERROR(merger.SetX(c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeSame("dy", c->input(0)));
  if (attributes.num_residual == 1) TF_RETURN_IF_ERROR(merger.MergeSame("residual", c->input(i++)));
  if (attributes.num_bias == 1) TF_RETURN_IF_ERROR(merger.MergeFeatures("bias", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("gamma", c->input(i++)));
  for (const char* name : {"mean", "rstd"}) {
    ShapeHandle rows = merger.rows();
    TF_RETURN_IF_ERROR(MergeShape(c, i++, name, &rows));
  }
  TF_RETURN_IF_ERROR(CheckSeed(c, i++));
  int o = 0;
  c->set_output(o++, merger.x());
  if (num_dresidual == 1) c->set_output(o++, merger.x());
  if (attributes.num_bias == 1) c->set_output(o++, merger.features());
  c->set_output(o++, merger.features());
  c->set_output(o++, merger.features());
  return absl::OkStatus();
}

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

BERT_TF_REGISTER_CPU("FusedResidualLayerNorm", CpuOp, ResidualLayerNormArgs,
                     FusedResidualLayerNorm);
BERT_TF_REGISTER_CPU("FusedResidualLayerNormGrad", CpuOp, ResidualLayerNormGradArgs,
                     FusedResidualLayerNormGrad);

}  // namespace
}  // namespace bert_tf
