// BertTf>FusedBiasGelu and its gradient on a GPU; fused_bias_gelu_op.cc registers the ops.
#include "custom_ops/ops/gpu_util.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status CheckShapes(const TensorShape& x, const TensorShape& bias) {
  if (x.dims() < 1 || bias.dims() != 1 || x.dim_size(x.dims() - 1) != bias.dim_size(0)) {
    return InvalidArgument(
        "Expected x of shape [..., F] and bias of shape [F]. Received: x of "
        "shape ",
        x.DebugString(), ", bias of shape ", bias.DebugString());
  }
  return absl::OkStatus();
}

int64_t NumRows(const Tensor& x, int64_t columns) {
  return columns == 0 ? 0 : x.NumElements() / columns;
}

template <typename T>
class FusedBiasGeluGpuOp : public OpKernel {
 public:
  explicit FusedBiasGeluGpuOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("approximate", &approximate_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Tensor& bias = context->input(1);
    OP_REQUIRES_OK(context, CheckShapes(x.shape(), bias.shape()));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    const int64_t columns = bias.NumElements();
    OP_REQUIRES_OK(context,
                   LaunchStatus("fused_bias_gelu",
                                BertTfCudaBiasGelu(kCudaType<T>, Address(x), Address(bias),
                                                   NumRows(x, columns), columns, approximate_,
                                                   MutableAddress(y), GpuStream(context))));
  }

 private:
  bool approximate_;
};

template <typename T>
class FusedBiasGeluGradGpuOp : public OpKernel {
 public:
  explicit FusedBiasGeluGradGpuOp(OpKernelConstruction* context) : OpKernel(context) {
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
    Tensor scratch;
    OP_REQUIRES_OK(
        context, AllocateScratch(context, BertTfCudaBiasGeluGradScratch(rows, columns), &scratch));
    OP_REQUIRES_OK(
        context, LaunchStatus("the gradient of fused_bias_gelu",
                              BertTfCudaBiasGeluGrad(
                                  kCudaType<T>, Address(dy), Address(x), Address(bias), rows,
                                  columns, approximate_, MutableAddress(dx), MutableAddress(dbias),
                                  MutableData<float>(&scratch), GpuStream(context))));
  }

 private:
  bool approximate_;
};

#define BERT_TF_REGISTER(T)                                \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedBiasGelu")     \
                              .Device(kGpuDevice)          \
                              .Priority(kGpuPriority)      \
                              .TypeConstraint<T>("T"),     \
                          FusedBiasGeluGpuOp<T>);          \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedBiasGeluGrad") \
                              .Device(kGpuDevice)          \
                              .Priority(kGpuPriority)      \
                              .TypeConstraint<T>("T"),     \
                          FusedBiasGeluGradGpuOp<T>);
BERT_TF_REGISTER(float)
BERT_TF_REGISTER(Eigen::bfloat16)
BERT_TF_REGISTER(Eigen::half)
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
