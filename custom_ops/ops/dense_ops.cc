// The ops with prepacked kernels: BertTf>FusedDense, BertTf>Bfloat16Dense, BertTf>QuantizedDense,
// the feed-forward networks of the last two, and BertTf>PackDense. fused_dense.h, bfloat16_dense.h
// and quantized_dense.h in custom_ops/kernels/dense have the formulas and the layouts of a
// prepacked kernel.
//
// In the dense ops, the inputs bias, residual, gamma and beta are lists of no or one tensor. gamma
// and beta have the same number of tensors (num_layer_norm).
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "custom_ops/kernels/base/sizes.h"
#include "custom_ops/kernels/dense/bfloat16_dense.h"
#include "custom_ops/kernels/dense/fused_dense.h"
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Checks that a kernel [depth, units] can be prepacked. `size` is the size of the prepacked kernel.
absl::Status CheckPackedSize(int64_t size, int64_t depth, int64_t units) {
  if (size != kTooLarge) return absl::OkStatus();
  return InvalidArgument("A prepacked kernel must have at most ", kLargestSize,
                         " elements. Received: K=", depth, ", units=", units);
}

// Checks that a prepacked kernel [depth, units], of which `depth` may be unknown, has the size that
// `packed_size` returns: a number of elements, or kTooLarge.
absl::Status CheckPacked(InferenceContext* c, const char* name,
                         int64_t (*packed_size)(int64_t depth, int64_t units),
                         DimensionHandle depth, int64_t units) {
  ShapeHandle packed;
  TF_RETURN_IF_ERROR(ReadShape(c, name, 1, "be a vector", &packed));
  if (!c->ValueKnown(depth)) return absl::OkStatus();
  const int64_t size = packed_size(c->Value(depth), units);
  TF_RETURN_IF_ERROR(CheckPackedSize(size, c->Value(depth), units));
  if (!c->ValueKnown(c->Dim(packed, 0)) || c->Value(c->Dim(packed, 0)) == size) {
    return absl::OkStatus();
  }
  return InvalidArgument("`", name, "` must have shape [", size, "] for a kernel of shape [",
                         c->Value(depth), ", ", units, "]. Received: ", name,
                         ".shape=", c->DebugString(packed));
}

// Checks the shape of a static scale: a scale and a zero point, or empty.
absl::Status CheckStaticScale(InferenceContext* c, const char* number, const char* name) {
  int num_static;
  TF_RETURN_IF_ERROR(ReadOptional(c, number, &num_static));
  if (num_static == 0) return absl::OkStatus();
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(ReadShape(c, name, 1, "be a vector", &shape));
  const auto size = c->Dim(shape, 0);
  if (!c->ValueKnown(size) || c->Value(size) == 0 || c->Value(size) == 2) return absl::OkStatus();
  return InvalidArgument("`", name, "` must have shape [2], a scale and a zero point, or [0]. ",
                         "Received: ", name, ".shape=", c->DebugString(shape));
}

// Checks the attributes, and the shapes of the inputs that both ops have in common: x [M, K],
// packed, bias?, residual?, gamma? and beta?. Sets the shape of the result. `packed_size` is the
// size of a prepacked kernel, or kTooLarge.
absl::Status DenseShape(InferenceContext* c, int64_t (*packed_size)(int64_t depth, int64_t units),
                        int64_t most_depth = std::numeric_limits<int64_t>::max()) {
  int64_t num_columns;
  int num_bias, num_residual, num_layer_norm;
  bool is_gated;
  std::string activation;
  TF_RETURN_IF_ERROR(c->GetAttr("units", &num_columns));
  TF_RETURN_IF_ERROR(c->GetAttr("activation", &activation));
  TF_RETURN_IF_ERROR(c->GetAttr("is_gated", &is_gated));
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_bias", &num_bias));
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_residual", &num_residual));
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_layer_norm", &num_layer_norm));
  TF_RETURN_IF_ERROR(CheckEpsilon(c));
  if (activation != "none" && num_residual + num_layer_norm > 0) {
    return InvalidArgument(
        "`activation` must be 'none' with a residual or LayerNorm. Received: activation=",
        activation, ", num_residual=", num_residual, ", num_layer_norm=", num_layer_norm);
  }
  if (is_gated && (num_residual + num_layer_norm > 0 || num_columns % (2 * kDensePanel) != 0)) {
    return InvalidArgument("With `is_gated`, `units` must be a multiple of ", 2 * kDensePanel,
                           ", without a residual or LayerNorm. Received: units=", num_columns,
                           ", num_residual=", num_residual, ", num_layer_norm=", num_layer_norm);
  }
  ShapeHandle x;
  TF_RETURN_IF_ERROR(ReadShape(c, "x", 2, "have shape [M, K]", &x));
  TF_RETURN_IF_ERROR(CheckDepth(c, "x", c->Dim(x, 1), most_depth));
  TF_RETURN_IF_ERROR(CheckPacked(c, "packed", packed_size, c->Dim(x, 1), num_columns));
  const auto units = c->MakeDim(num_columns);
  DimensionHandle size;
  if (!c->Multiply(c->Dim(x, 0), units, &size).ok()) {
    return InvalidArgument("The result must have fewer than 2^63 elements. Received: x.shape=",
                           c->DebugString(x), ", units=", num_columns);
  }
  auto y = c->Matrix(c->Dim(x, 0), is_gated ? c->MakeDim(num_columns / 2) : units);
  auto vector = c->Vector(units);
  for (const char* name : {"bias", "gamma", "beta"}) {
    TF_RETURN_IF_ERROR(MergeShape(c, name, &vector));
  }
  TF_RETURN_IF_ERROR(MergeShape(c, "residual", &y));
  c->set_output(0, y);
  return absl::OkStatus();
}

// Checks that these inputs are vectors of this size.
absl::Status CheckVectors(InferenceContext* c, DimensionHandle size,
                          std::initializer_list<const char*> names) {
  for (const char* name : names) {
    ShapeHandle vector = c->Vector(size);
    TF_RETURN_IF_ERROR(MergeShape(c, name, &vector));
  }
  return absl::OkStatus();
}

absl::Status FusedDenseShape(InferenceContext* c) { return DenseShape(c, PackedDenseSize); }

absl::Status Bfloat16DenseShape(InferenceContext* c) {
  return DenseShape(c, PackedBfloat16DenseSize);
}

absl::Status PackShape(InferenceContext* c) {
  bool transposed;
  tensorflow::DataType dtype;
  TF_RETURN_IF_ERROR(c->GetAttr("transposed", &transposed));
  TF_RETURN_IF_ERROR(c->GetAttr("T", &dtype));
  ShapeHandle kernel;
  TF_RETURN_IF_ERROR(ReadShape(c, "kernel", 2, "be a matrix", &kernel));
  const DimensionHandle depth = c->Dim(kernel, transposed ? 1 : 0);
  const DimensionHandle units = c->Dim(kernel, transposed ? 0 : 1);
  int64_t size = InferenceContext::kUnknownDim;
  if (c->ValueKnown(depth) && c->ValueKnown(units)) {
    const bool is_bfloat16 = dtype == tensorflow::DT_BFLOAT16;
    size =
        (is_bfloat16 ? PackedBfloat16DenseSize : PackedDenseSize)(c->Value(depth), c->Value(units));
    TF_RETURN_IF_ERROR(CheckPackedSize(size, c->Value(depth), c->Value(units)));
  }
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

REGISTER_OP("BertTf>FusedDense")
    .Attr("T: {float, half}")
    .Attr("units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new', 'silu'} = 'none'")
    .Attr("is_gated: bool = false")  // graphs of older versions do not have it
    .Attr("epsilon: float = 1e-12")
    .Attr("num_bias: int >= 0")
    .Attr("num_residual: int >= 0")
    .Attr("num_layer_norm: int >= 0")
    .Input("x: T")
    .Input("packed: T")
    .Input("bias: num_bias * T")
    .Input("residual: num_residual * T")
    .Input("gamma: num_layer_norm * T")
    .Input("beta: num_layer_norm * T")
    .Output("y: T")
    .SetShapeFn(FusedDenseShape);

REGISTER_OP("BertTf>Bfloat16Dense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new', 'silu'} = 'none'")
    .Attr("is_gated: bool = false")  // graphs of older versions do not have it
    .Attr("epsilon: float = 1e-12")
    .Attr("num_bias: int >= 0")
    .Attr("num_residual: int >= 0")
    .Attr("num_layer_norm: int >= 0")
    .Input("x: T")
    .Input("packed: bfloat16")
    .Input("bias: num_bias * T")
    .Input("residual: num_residual * T")
    .Input("gamma: num_layer_norm * T")
    .Input("beta: num_layer_norm * T")
    .Output("y: T")
    .SetShapeFn(Bfloat16DenseShape);

REGISTER_OP("BertTf>PackDense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("transposed: bool = false")
    .Input("kernel: T")
    .Output("packed: T")
    .SetShapeFn(PackShape);

absl::Status QuantizedDenseShape(InferenceContext* c) {
  int64_t units;
  TF_RETURN_IF_ERROR(DenseShape(c, PackedQuantizedDenseSize, kQuantizedDenseDepth));
  TF_RETURN_IF_ERROR(c->GetAttr("units", &units));
  TF_RETURN_IF_ERROR(CheckVectors(c, c->MakeDim(units), {"scale", "column_sums"}));
  TF_RETURN_IF_ERROR(CheckVectors(c, c->Dim(c->input(0), 1), {"smoothing"}));
  return CheckStaticScale(c, "num_static", "static_scale");
}

REGISTER_OP("BertTf>QuantizedDense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new', 'silu'} = 'none'")
    .Attr("is_gated: bool = false")  // graphs of older versions do not have it
    .Attr("epsilon: float = 1e-12")
    .Attr("num_bias: int >= 0")
    .Attr("num_residual: int >= 0")
    .Attr("num_layer_norm: int >= 0")
    .Input("x: T")
    .Input("packed: int8")
    .Input("scale: float")
    .Input("column_sums: int32")
    .Input("smoothing: float")
    .Input("bias: num_bias * T")
    .Input("residual: num_residual * T")
    .Input("gamma: num_layer_norm * T")
    .Input("beta: num_layer_norm * T")
    .Attr("num_static: int >= 0 = 0")  // graphs of older versions do not have it
    .Input("static_scale: num_static * float")
    .Output("y: T")
    .SetShapeFn(QuantizedDenseShape);

// Checks what the feed-forward ops have in common, with layers of at most `most_depth` inputs, and
// sets the shape of the result, and the sizes of the hidden states and of the inner layer.
absl::Status FeedForwardShape(InferenceContext* c,
                              int64_t (*packed_size)(int64_t depth, int64_t units),
                              DimensionHandle* hidden, DimensionHandle* inner,
                              int64_t most_depth = std::numeric_limits<int64_t>::max()) {
  int64_t inner_units;
  TF_RETURN_IF_ERROR(c->GetAttr("inner_units", &inner_units));
  TF_RETURN_IF_ERROR(CheckEpsilon(c));
  ShapeHandle x;
  TF_RETURN_IF_ERROR(ReadShape(c, "x", 2, "have shape [M, K]", &x));
  *hidden = c->Dim(x, 1);
  *inner = c->MakeDim(inner_units);
  TF_RETURN_IF_ERROR(CheckDepth(c, "x", *hidden, most_depth));
  TF_RETURN_IF_ERROR(CheckDepth(c, "the inner layer", *inner, most_depth));
  TF_RETURN_IF_ERROR(CheckPacked(c, "packed_1", packed_size, *hidden, inner_units));
  if (c->ValueKnown(*hidden)) {
    TF_RETURN_IF_ERROR(CheckPacked(c, "packed_2", packed_size, *inner, c->Value(*hidden)));
  }
  TF_RETURN_IF_ERROR(CheckVectors(c, *hidden, {"bias_2", "gamma", "beta"}));
  TF_RETURN_IF_ERROR(CheckVectors(c, *inner, {"bias_1"}));
  c->set_output(0, x);
  return absl::OkStatus();
}

absl::Status Bfloat16FeedForwardShape(InferenceContext* c) {
  DimensionHandle hidden, inner;
  return FeedForwardShape(c, PackedBfloat16DenseSize, &hidden, &inner);
}

REGISTER_OP("BertTf>Bfloat16FeedForward")
    .Attr("T: {float, bfloat16, half}")
    .Attr("inner_units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new', 'silu'} = 'none'")
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

absl::Status QuantizedFeedForwardShape(InferenceContext* c) {
  DimensionHandle hidden, inner;
  TF_RETURN_IF_ERROR(
      FeedForwardShape(c, PackedQuantizedDenseSize, &hidden, &inner, kQuantizedDenseDepth));
  TF_RETURN_IF_ERROR(CheckVectors(c, hidden, {"smoothing_1", "scale_2", "column_sums_2"}));
  TF_RETURN_IF_ERROR(CheckVectors(c, inner, {"scale_1", "column_sums_1", "smoothing_2"}));
  TF_RETURN_IF_ERROR(CheckStaticScale(c, "num_static_1", "static_scale_1"));
  return CheckStaticScale(c, "num_static_2", "static_scale_2");
}

REGISTER_OP("BertTf>QuantizedFeedForward")
    .Attr("T: {float, bfloat16, half}")
    .Attr("inner_units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new', 'silu'} = 'none'")
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

BERT_TF_REGISTER_CPU_TYPE("FusedDense", FusedDenseArgs, FusedDense, float);
BERT_TF_REGISTER_CPU_TYPE("FusedDense", FusedDenseArgs, FusedDense, Eigen::half);
BERT_TF_REGISTER_CPU("Bfloat16Dense", Bfloat16DenseArgs, Bfloat16Dense);
BERT_TF_REGISTER_CPU("PackDense", PackDenseArgs, PackDense);
BERT_TF_REGISTER_CPU("QuantizedDense", QuantizedDenseArgs, QuantizedDense);
BERT_TF_REGISTER_CPU("Bfloat16FeedForward", Bfloat16FeedForwardArgs, Bfloat16FeedForward);
BERT_TF_REGISTER_CPU("QuantizedFeedForward", QuantizedFeedForwardArgs, QuantizedFeedForward);

}  // namespace
}  // namespace bert_tf
