// BertTf>FusedDense, BertTf>Bfloat16Dense and BertTf>PackDense. fused_dense.h and bfloat16_dense.h
// in custom_ops/kernels/dense have the formulas and the layouts of a prepacked kernel, and
// dense_op_util.h describes the optional inputs.
#include "custom_ops/kernels/dense/bfloat16_dense.h"
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

REGISTER_OP("BertTf>Bfloat16Dense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new'} = 'none'")
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

BERT_TF_REGISTER_CPU_TYPE("FusedDense", DenseOp, FusedDenseArgs, FusedDense, float);
BERT_TF_REGISTER_CPU_TYPE("FusedDense", DenseOp, FusedDenseArgs, FusedDense, Eigen::half);
BERT_TF_REGISTER_CPU("Bfloat16Dense", DenseOp, Bfloat16DenseArgs, Bfloat16Dense);
BERT_TF_REGISTER_CPU("PackDense", CpuOp, PackDenseArgs, PackDense);

}  // namespace
}  // namespace bert_tf
