// BertTf>FusedDense and BertTf>PackDense. custom_ops/kernels/dense/fused_dense.h has the formulas
// and the layout of a prepacked kernel, and dense_op_util.h describes the optional inputs.
#include "custom_ops/kernels/dense/fused_dense.h"
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

absl::Status FusedDenseShape(InferenceContext* c) { return DenseShape(c, PackedDenseSize); }

absl::Status PackShape(InferenceContext* c) {
  bool transposed;
  TF_RETURN_IF_ERROR(c->GetAttr("transposed", &transposed));
  ShapeHandle kernel;
  TF_RETURN_IF_ERROR(ReadShape(c, "kernel", 2, "be a matrix", &kernel));
  const DimensionHandle depth = c->Dim(kernel, transposed ? 1 : 0);
  const DimensionHandle units = c->Dim(kernel, transposed ? 0 : 1);
  int64_t size = InferenceContext::kUnknownDim;
  if (c->ValueKnown(depth) && c->ValueKnown(units)) {
    size = PackedDenseSize(c->Value(depth), c->Value(units));
    TF_RETURN_IF_ERROR(CheckPackedSize(size, c->Value(depth), c->Value(units)));
  }
  c->set_output(0, c->Vector(size));
  return absl::OkStatus();
}

REGISTER_OP("BertTf>FusedDense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new'} = 'none'")
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

REGISTER_OP("BertTf>PackDense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("transposed: bool = false")
    .Input("kernel: T")
    .Output("packed: T")
    .SetShapeFn(PackShape);

BERT_TF_REGISTER_CPU("FusedDense", DenseOp, FusedDenseArgs, FusedDense);
BERT_TF_REGISTER_CPU("PackDense", CpuOp, PackDenseArgs, PackDense);

}  // namespace
}  // namespace bert_tf
