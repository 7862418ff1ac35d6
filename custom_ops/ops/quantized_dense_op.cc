// BertTf>QuantizedDense. custom_ops/kernels/dense/quantized_dense.h has the formulas and the layout
// of a prepacked kernel, and dense_op_util.h describes the optional inputs.
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/ops/dense_op_util.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status QuantizedDenseShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(DenseShape(c, PackedQuantizedDenseSize, kQuantizedDenseDepth));
  ShapeHandle columns = c->Vector(c->Dim(c->output(0), 1));
  TF_RETURN_IF_ERROR(MergeShape(c, "scale", &columns));
  TF_RETURN_IF_ERROR(MergeShape(c, "column_sums", &columns));
  ShapeHandle depth = c->Vector(c->Dim(c->input(0), 1));
  TF_RETURN_IF_ERROR(MergeShape(c, "smoothing", &depth));
  return CheckStaticScale(c, "num_static", "static_scale");
}

REGISTER_OP("BertTf>QuantizedDense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new'} = 'none'")
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

BERT_TF_REGISTER_CPU("QuantizedDense", DenseOp, QuantizedDenseArgs, QuantizedDense);

}  // namespace
}  // namespace bert_tf
