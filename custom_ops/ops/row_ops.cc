// The ops on the rows of a matrix: BertTf>FusedBiasGelu, BertTf>FusedGate,
// BertTf>FusedResidualLayerNorm, and their gradients. gelu/fused_bias_gelu.h, dense/fused_gate.h
// and layer_norm/fused_residual_layer_norm.h in custom_ops/kernels have the formulas.
//
// residual and bias of LayerNorm are lists of no or one tensor. Its gradient op returns dresidual
// only if it is different from dx, which is the case with residual and dropout (num_dresidual = 1).
// other_dy is also such a list; it is added to dy.
#include <vector>

#include "custom_ops/kernels/dense/fused_gate.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
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

absl::Status BiasGeluShape(InferenceContext* c) {
  ShapeHandle x;
  TF_RETURN_IF_ERROR(MergeBias(c, c->input(0), &x));
  c->set_output(0, x);
  return absl::OkStatus();
}

absl::Status BiasGeluGradShape(InferenceContext* c) {
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
    .SetShapeFn(BiasGeluShape);

REGISTER_OP("BertTf>FusedBiasGeluGrad")
    .Attr("T: {float, bfloat16, half}")
    .Attr("approximate: bool = false")
    .Input("dy: T")
    .Input("x: T")
    .Input("bias: T")
    .Output("dx: T")
    .Output("dbias: T")
    .SetShapeFn(BiasGeluGradShape);

// Sets y [..., U] for x [..., 2 U], or dx, if there is dy.
absl::Status GateShape(InferenceContext* c) {
  const ShapeHandle x = c->input(c->num_inputs() - 1);
  ShapeHandle y;
  DimensionHandle columns;
  if (!c->WithRankAtLeast(x, 1, &y).ok() ||
      !c->Divide(c->Dim(y, -1), 2, /*evenly_divisible=*/true, &columns).ok()) {
    return InvalidArgument("`x` must have an even number of columns. Received: x.shape=",
                           c->DebugString(x));
  }
  TF_RETURN_IF_ERROR(c->ReplaceDim(y, -1, columns, &y));
  if (c->num_inputs() == 2) {
    TF_RETURN_IF_ERROR(MergeShape(c, "dy", &y));
    TF_RETURN_IF_ERROR(c->Multiply(c->Dim(y, -1), 2, &columns));
    TF_RETURN_IF_ERROR(c->ReplaceDim(y, -1, columns, &y));
  }
  c->set_output(0, y);
  return absl::OkStatus();
}

REGISTER_OP("BertTf>FusedGate")
    .Attr("T: {float, bfloat16, half}")
    .Attr("activation: {'gelu', 'gelu_new', 'silu'}")
    .Input("x: T")
    .Output("y: T")
    .SetShapeFn(GateShape);

REGISTER_OP("BertTf>FusedGateGrad")
    .Attr("T: {float, bfloat16, half}")
    .Attr("activation: {'gelu', 'gelu_new', 'silu'}")
    .Input("dy: T")
    .Input("x: T")
    .Output("dx: T")
    .SetShapeFn(GateShape);

// The attributes and the shapes that both ops have in common.
struct LayerNormShapes {
  InferenceContext* c;
  int num_residual;
  int num_bias;
  float dropout_rate;
  ShapeHandle x;  // [..., H], merged with the shapes of the other inputs

  absl::Status Read(InferenceContext* context) {
    c = context;
    TF_RETURN_IF_ERROR(ReadOptional(c, "num_residual", &num_residual));
    TF_RETURN_IF_ERROR(ReadOptional(c, "num_bias", &num_bias));
    TF_RETURN_IF_ERROR(ReadDropoutRate(c, &dropout_rate));
    std::vector<ShapeHandle> input;
    TF_RETURN_IF_ERROR(c->input("x", &input));
    if (!c->WithRankAtLeast(input[0], 1, &x).ok()) {
      return InvalidArgument("`x` must have shape [..., H]. Received: x.shape=",
                             c->DebugString(input[0]));
    }
    TF_RETURN_IF_ERROR(MergeSame("residual"));
    TF_RETURN_IF_ERROR(MergeFeatures("bias"));
    TF_RETURN_IF_ERROR(MergeFeatures("gamma"));
    return CheckSeed(c);
  }

  absl::Status MergeSame(const char* name) {
    std::vector<ShapeHandle> input;
    TF_RETURN_IF_ERROR(c->input(name, &input));
    const ShapeHandle expected = x;
    if (input.empty() || c->Merge(expected, input[0], &x).ok()) return absl::OkStatus();
    return InvalidArgument(
        "`", name, "` must have the shape of `x`. Received: x.shape=", c->DebugString(expected),
        ", ", name, ".shape=", c->DebugString(input[0]));
  }

  absl::Status MergeFeatures(const char* name) {
    std::vector<ShapeHandle> input;
    TF_RETURN_IF_ERROR(c->input(name, &input));
    ShapeHandle merged = features();
    if (input.empty()) return absl::OkStatus();
    if (c->Merge(merged, input[0], &merged).ok()) {
      return c->ReplaceDim(x, -1, c->Dim(merged, 0), &x);
    }
    return InvalidArgument("`", name,
                           "` must have shape [H], the last dimension of `x`. Received: x.shape=",
                           c->DebugString(x), ", ", name, ".shape=", c->DebugString(input[0]));
  }

  ShapeHandle features() const { return c->Vector(c->Dim(x, -1)); }

  // [rows]: the product of all dimensions except the last one.
  ShapeHandle rows() const {
    if (!c->RankKnown(x)) return c->Vector(InferenceContext::kUnknownDim);
    DimensionHandle rows = c->MakeDim(1);
    for (int i = 0; i + 1 < c->Rank(x); ++i) {
      if (!c->Multiply(rows, c->Dim(x, i), &rows).ok()) {
        return c->Vector(InferenceContext::kUnknownDim);
      }
    }
    return c->Vector(rows);
  }
};

absl::Status LayerNormShape(InferenceContext* c) {
  LayerNormShapes shapes;
  TF_RETURN_IF_ERROR(shapes.Read(c));
  TF_RETURN_IF_ERROR(shapes.MergeFeatures("beta"));
  TF_RETURN_IF_ERROR(CheckEpsilon(c));
  c->set_output(0, shapes.x);
  c->set_output(1, shapes.rows());
  c->set_output(2, shapes.rows());
  return absl::OkStatus();
}

absl::Status LayerNormGradShape(InferenceContext* c) {
  LayerNormShapes shapes;
  TF_RETURN_IF_ERROR(shapes.Read(c));
  TF_RETURN_IF_ERROR(shapes.MergeSame("dy"));
  TF_RETURN_IF_ERROR(shapes.MergeSame("other_dy"));
  for (const char* name : {"mean", "rstd"}) {
    ShapeHandle rows = shapes.rows();
    TF_RETURN_IF_ERROR(MergeShape(c, name, &rows));
  }
  int num_dresidual, num_other_dy;
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_other_dy", &num_other_dy));
  TF_RETURN_IF_ERROR(c->GetAttr("num_dresidual", &num_dresidual));
  const int expected = shapes.dropout_rate > 0.0f ? shapes.num_residual : 0;
  if (num_dresidual != expected) {
    return InvalidArgument(
        "`num_dresidual` must be ", expected,
        ": 1 only with residual and dropout. Received: num_dresidual=", num_dresidual);
  }
  int output = 0;
  c->set_output(output++, shapes.x);
  if (num_dresidual == 1) c->set_output(output++, shapes.x);
  if (shapes.num_bias == 1) c->set_output(output++, shapes.features());
  c->set_output(output++, shapes.features());
  c->set_output(output++, shapes.features());
  return absl::OkStatus();
}

REGISTER_OP("BertTf>FusedResidualLayerNorm")
    .Attr("T: {float, bfloat16, half}")
    .Attr("num_residual: int >= 0")
    .Attr("num_bias: int >= 0")
    .Attr("epsilon: float")
    .Attr("dropout_rate: float = 0.0")
    .Attr("is_rms: bool = false")
    .Input("x: T")
    .Input("residual: num_residual * T")
    .Input("bias: num_bias * T")
    .Input("gamma: T")
    .Input("beta: T")
    .Input("seed: int64")
    .Output("y: T")
    .Output("mean: float")
    .Output("rstd: float")
    .SetShapeFn(LayerNormShape);

REGISTER_OP("BertTf>FusedResidualLayerNormGrad")
    .Attr("T: {float, bfloat16, half}")
    .Attr("num_residual: int >= 0")
    .Attr("num_bias: int >= 0")
    .Attr("num_dresidual: int >= 0")
    .Attr("num_other_dy: int >= 0 = 0")
    .Attr("dropout_rate: float = 0.0")
    .Attr("is_rms: bool = false")
    .Input("dy: T")
    .Input("x: T")
    .Input("residual: num_residual * T")
    .Input("bias: num_bias * T")
    .Input("gamma: T")
    .Input("mean: float")
    .Input("rstd: float")
    .Input("seed: int64")
    .Input("other_dy: num_other_dy * T")
    .Output("dx: T")
    .Output("dresidual: num_dresidual * T")
    .Output("dbias: num_bias * T")
    .Output("dgamma: T")
    .Output("dbeta: T")
    .SetShapeFn(LayerNormGradShape);

BERT_TF_REGISTER_CPU("FusedBiasGelu", BiasGeluArgs, FusedBiasGelu);
BERT_TF_REGISTER_CPU("FusedBiasGeluGrad", BiasGeluGradArgs, FusedBiasGeluGrad);
BERT_TF_REGISTER_CPU("FusedGate", GateArgs, FusedGate);
BERT_TF_REGISTER_CPU("FusedGateGrad", GateArgs, FusedGate);
BERT_TF_REGISTER_CPU("FusedResidualLayerNorm", ResidualLayerNormArgs, FusedResidualLayerNorm);
BERT_TF_REGISTER_CPU("FusedResidualLayerNormGrad", ResidualLayerNormGradArgs,
                     FusedResidualLayerNormGrad);

}  // namespace
}  // namespace bert_tf
