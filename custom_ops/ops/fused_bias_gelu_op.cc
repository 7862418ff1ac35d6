// BertTf>FusedBiasGelu and its gradient; custom_ops/kernels/fused_bias_gelu.h has the formulas.
#include "custom_ops/kernels/fused_bias_gelu.h"
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

// Merges bias [F] with the last dimension of x [..., F].
absl::Status MergeBias(InferenceContext* c, int x_index, int bias_index, ShapeHandle* x,
                       ShapeHandle* bias) {
  if (!c->WithRankAtLeast(c->input(x_index), 1, x).ok()) {
    return InvalidArgument("Expected x to have shape [..., F]. Received: x of shape ",
                           c->DebugString(c->input(x_index)));
  }
  if (!c->WithRank(c->input(bias_index), 1, bias).ok()) {
    return InvalidArgument("Expected bias to have shape [F]. Received: bias of shape ",
                           c->DebugString(c->input(bias_index)));
  }
  DimensionHandle features;
  if (!c->Merge(c->Dim(*x, -1), c->Dim(*bias, 0), &features).ok()) {
    return InvalidArgument(
        "Expected bias to have the length of x's last dimension. Received: x of shape ",
        c->DebugString(*x), ", bias of shape ", c->DebugString(*bias));
  }
  TF_RETURN_IF_ERROR(c->ReplaceDim(*x, -1, features, x));
  *bias = c->Vector(features);
  return absl::OkStatus();
}

absl::Status ForwardShape(InferenceContext* c) {
  ShapeHandle x, bias;
  TF_RETURN_IF_ERROR(MergeBias(c, 0, 1, &x, &bias));
  c->set_output(0, x);
  return absl::OkStatus();
}

absl::Status GradShape(InferenceContext* c) {
  ShapeHandle x, bias, dx;
  TF_RETURN_IF_ERROR(MergeBias(c, 1, 2, &x, &bias));
  if (!c->Merge(c->input(0), x, &dx).ok()) {
    return InvalidArgument("Expected dy to have the shape of x. Received: dy of shape ",
                           c->DebugString(c->input(0)), ", x of shape ", c->DebugString(x));
  }
  c->set_output(0, dx);
  c->set_output(1, c->Vector(c->Dim(dx, -1)));
  return absl::OkStatus();
}

absl::Status CheckShapes(const TensorShape& x, const TensorShape& bias) {
  if (x.dims() < 1 || bias.dims() != 1 || x.dim_size(x.dims() - 1) != bias.dim_size(0)) {
    return InvalidArgument(
        "Expected x of shape [..., F] and bias of shape [F]. Received: x of "
        "shape ",
        x.DebugString(), ", bias of shape ", bias.DebugString());
  }
  return absl::OkStatus();
}

// x's rows; zero where they have no elements.
int64_t NumRows(const Tensor& x, int64_t columns) {
  return columns == 0 ? 0 : x.NumElements() / columns;
}

template <typename T>
class FusedBiasGeluOp : public OpKernel {
 public:
  explicit FusedBiasGeluOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("approximate", &approximate_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Tensor& bias = context->input(1);
    OP_REQUIRES_OK(context, CheckShapes(x.shape(), bias.shape()));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    const int64_t columns = bias.NumElements();
    FusedBiasGelu(TensorFlowParallel(context),
                  BiasGeluArgs<KernelType<T>>{Data<T>(x), Data<T>(bias), NumRows(x, columns),
                                              columns, approximate_, MutableData<T>(y)});
  }

 private:
  bool approximate_;
};

template <typename T>
class FusedBiasGeluGradOp : public OpKernel {
 public:
  explicit FusedBiasGeluGradOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("approximate", &approximate_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& dy = context->input(0);
    const Tensor& x = context->input(1);
    const Tensor& bias = context->input(2);
    OP_REQUIRES_OK(context, CheckShapes(x.shape(), bias.shape()));
    OP_REQUIRES(
        context, dy.shape() == x.shape(),
        InvalidArgument("Expected dy to have the shape of x. Received: dy of shape ",
                        dy.shape().DebugString(), ", x of shape ", x.shape().DebugString()));
    Tensor* dx = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0, 1}, 0, x.shape(), &dx));
    Tensor* dbias = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, bias.shape(), &dbias));
    const int64_t columns = bias.NumElements();
    const int64_t rows = NumRows(x, columns);
    TensorShape scratch_shape;
    OP_REQUIRES_OK(context, MakeShape({BiasGeluGradScratchSize(rows, columns)}, &scratch_shape));
    Tensor scratch;
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_FLOAT, scratch_shape, &scratch));
    FusedBiasGeluGrad(TensorFlowParallel(context),
                      BiasGeluGradArgs<KernelType<T>>{
                          Data<T>(dy), Data<T>(x), Data<T>(bias), rows, columns, approximate_,
                          MutableData<T>(dx), MutableData<T>(dbias), MutableData<float>(&scratch)});
  }

 private:
  bool approximate_;
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

#define BERT_TF_REGISTER(T)                                                                   \
  REGISTER_KERNEL_BUILDER(                                                                    \
      Name("BertTf>FusedBiasGelu").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),     \
      FusedBiasGeluOp<T>);                                                                    \
  REGISTER_KERNEL_BUILDER(                                                                    \
      Name("BertTf>FusedBiasGeluGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
      FusedBiasGeluGradOp<T>);
BERT_TF_REGISTER(float)
BERT_TF_REGISTER(Eigen::bfloat16)
BERT_TF_REGISTER(Eigen::half)
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
