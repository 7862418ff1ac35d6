// BertTf>FusedDense and BertTf>PackDense. custom_ops/kernels/dense/fused_dense.h has the formulas
// and the layout of a prepacked kernel, and dense_op_util.h describes the optional inputs.
#include "custom_ops/kernels/dense/fused_dense.h"
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

constexpr int kFirstOptionalInput = 2;  // after x and packed
constexpr Packing kPacking{PackedDenseSize};

// Inputs: x, packed, bias?, residual?, gamma?, beta?.
absl::Status FusedDenseShape(InferenceContext* c) {
  DenseAttributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  return DenseShape(c, attributes, kPacking, kFirstOptionalInput);
}

absl::Status PackShape(InferenceContext* c) {
  bool transposed;
  TF_RETURN_IF_ERROR(c->GetAttr("transposed", &transposed));
  ShapeHandle kernel;
  if (!c->WithRank(c->input(0), 2, &kernel).ok()) {
    return InvalidArgument("`kernel` must be a matrix. Received: kernel.shape=",
                           c->DebugString(c->input(0)));
  }
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

template <typename T>
class FusedDenseOp : public OpKernel {
 public:
  explicit FusedDenseOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    FusedDenseArgs<T> args;
    OP_REQUIRES_OK(context, ReadDense(context, attributes_, kPacking, kFirstOptionalInput, &args));
    huge_pages_.Prefer(context->input(1));
    FusedDense(TensorFlowParallel(context), args);
  }

 private:
  DenseAttributes attributes_;
  HugePagesOnce huge_pages_;
};

template <typename T>
class PackDenseOp : public OpKernel {
 public:
  explicit PackDenseOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("transposed", &transposed_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& kernel = context->input(0);
    OP_REQUIRES(context, kernel.dims() == 2,
                InvalidArgument("`kernel` must be a matrix. Received: kernel.shape=",
                                kernel.shape().DebugString()));
    const int64_t depth = kernel.dim_size(transposed_ ? 1 : 0);
    const int64_t units = kernel.dim_size(transposed_ ? 0 : 1);
    const int64_t size = PackedDenseSize(depth, units);
    OP_REQUIRES_OK(context, CheckPackedSize(size, depth, units));
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({size}), &packed));
    PackDense(TensorFlowParallel(context),
              PackDenseArgs<T>{static_cast<const T*>(kernel.data()), transposed_, depth, units,
                               static_cast<T*>(packed->data())});
  }

 private:
  bool transposed_;
};

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

BERT_TF_REGISTER("FusedDense", tensorflow::DEVICE_CPU, 0, FusedDenseOp, KernelType);
BERT_TF_REGISTER("PackDense", tensorflow::DEVICE_CPU, 0, PackDenseOp, KernelType);

}  // namespace
}  // namespace bert_tf
