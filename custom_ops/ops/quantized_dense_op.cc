// BertTf>QuantizedDense. custom_ops/kernels/dense/quantized_dense.h has the formulas and the layout
// of a prepacked kernel, and dense_op_util.h describes the optional inputs.
#include <string>

#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/ops/dense_op_util.h"
#include "custom_ops/ops/op_util.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr int kFirstOptionalInput = 5;  // after x, packed, scale, column_sums and smoothing

absl::Status WrongSmoothing(const std::string& depth, const std::string& received) {
  return InvalidArgument("`smoothing` must have shape [", depth,
                         "], one number per column of `x`. Received: smoothing.shape=", received);
}

constexpr Packing kPacking{PackedQuantizedDenseSize, kQuantizedDenseDepth};

// Inputs: x, packed, scale, column_sums, smoothing, bias?, residual?, gamma?, beta?.
absl::Status QuantizedDenseShape(InferenceContext* c) {
  DenseAttributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  TF_RETURN_IF_ERROR(DenseShape(c, attributes, kPacking, kFirstOptionalInput));
  const char* const names[] = {"scale", "column_sums"};
  for (int i = 0; i < 2; ++i) {
    ShapeHandle merged;
    if (!c->Merge(c->input(2 + i), c->Vector(attributes.units), &merged).ok()) {
      return InvalidArgument("`", names[i], "` must have shape [", attributes.units,
                             "]. Received: ", names[i], ".shape=", c->DebugString(c->input(2 + i)));
    }
  }
  const DimensionHandle depth = c->Dim(c->input(0), 1);
  ShapeHandle smoothing;
  if (!c->Merge(c->input(4), c->Vector(depth), &smoothing).ok()) {
    return WrongSmoothing(c->DebugString(depth), c->DebugString(c->input(4)));
  }
  return absl::OkStatus();
}

template <typename T>
class QuantizedDenseOp : public OpKernel {
 public:
  explicit QuantizedDenseOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    QuantizedDenseArgs<T> args;
    OP_REQUIRES_OK(context, ReadDense(context, attributes_, kPacking, kFirstOptionalInput, &args));
    const Tensor& scale = context->input(2);
    const Tensor& column_sums = context->input(3);
    const Tensor& smoothing = context->input(4);
    const TensorShape vector({attributes_.units});
    OP_REQUIRES(context, scale.shape() == vector && column_sums.shape() == vector,
                InvalidArgument("`scale` and `column_sums` must have shape ", vector.DebugString(),
                                ". Received: scale.shape=", scale.shape().DebugString(),
                                ", column_sums.shape=", column_sums.shape().DebugString()));
    OP_REQUIRES(context, smoothing.shape() == TensorShape({args.depth}),
                WrongSmoothing(std::to_string(args.depth), smoothing.shape().DebugString()));
    args.column_scale = Data<float>(scale);
    args.column_sums = Data<int32_t>(column_sums);
    args.smoothing = Data<float>(smoothing);
    huge_pages_.Prefer(context->input(1));
    QuantizedDense(TensorFlowParallel(context), args);
  }

 private:
  DenseAttributes attributes_;
  HugePagesOnce huge_pages_;
};

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
    .Output("y: T")
    .SetShapeFn(QuantizedDenseShape);

BERT_TF_REGISTER("QuantizedDense", tensorflow::DEVICE_CPU, 0, QuantizedDenseOp, KernelType);

}  // namespace
}  // namespace bert_tf
