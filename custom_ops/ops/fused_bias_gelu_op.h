// The device-independent part of the OpKernels of BertTf>FusedBiasGelu and its gradient: inputs,
// checks and outputs.
//
// Device has T, the element type of the kernels, or void for a GPU, whose launchers take the type
// as a number. It also has Run(context, args) for both kinds of arguments and GradScratchSize(rows,
// columns).
#ifndef BERT_TF_CUSTOM_OPS_OPS_FUSED_BIAS_GELU_OP_H_
#define BERT_TF_CUSTOM_OPS_OPS_FUSED_BIAS_GELU_OP_H_

#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/ops/op_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace bert_tf {

// Checks x [..., F] and bias [F], and sets the fields of Args for them and for their sizes.
template <typename Args>
absl::Status ReadBiasGelu(const tensorflow::Tensor& x, const tensorflow::Tensor& bias, Args* args) {
  if (x.dims() < 1 || bias.dims() != 1 || x.dim_size(x.dims() - 1) != bias.dim_size(0)) {
    return InvalidArgument(
        "`x` must have shape [..., F] and `bias` must have shape [F]. Received: x.shape=",
        x.shape().DebugString(), ", bias.shape=", bias.shape().DebugString());
  }
  SetPointer(&x, &args->x);
  SetPointer(&bias, &args->bias);
  args->columns = bias.NumElements();
  args->rows = args->columns == 0 ? 0 : x.NumElements() / args->columns;
  return absl::OkStatus();
}

template <typename Device>
class FusedBiasGeluOp : public tensorflow::OpKernel {
 public:
  explicit FusedBiasGeluOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("approximate", &approximate_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& x = context->input(0);
    BiasGeluArgs<typename Device::T> args;
    args.approximate = approximate_;
    OP_REQUIRES_OK(context, ReadBiasGelu(x, context->input(1), &args));
    tensorflow::Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    SetPointer(y, &args.y);
    OP_REQUIRES_OK(context, Device::Run(context, args));
  }

 private:
  bool approximate_;
};

template <typename Device>
class FusedBiasGeluGradOp : public tensorflow::OpKernel {
 public:
  explicit FusedBiasGeluGradOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("approximate", &approximate_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& dy = context->input(0);
    const tensorflow::Tensor& x = context->input(1);
    const tensorflow::Tensor& bias = context->input(2);
    BiasGeluGradArgs<typename Device::T> args;
    args.approximate = approximate_;
    OP_REQUIRES_OK(context, ReadBiasGelu(x, bias, &args));
    OP_REQUIRES(context, dy.shape() == x.shape(),
                InvalidArgument("`dy` must have the shape of `x`. Received: dy.shape=",
                                dy.shape().DebugString(), ", x.shape=", x.shape().DebugString()));
    tensorflow::Tensor* dx = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0, 1}, 0, x.shape(), &dx));
    tensorflow::Tensor* dbias = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, bias.shape(), &dbias));
    tensorflow::Tensor scratch;
    OP_REQUIRES_OK(
        context,
        AllocateScratch(context, Device::GradScratchSize(args.rows, args.columns), &scratch));
    SetPointer(&dy, &args.dy);
    SetPointer(dx, &args.dx);
    SetPointer(dbias, &args.dbias);
    SetPointer(&scratch, &args.scratch);
    OP_REQUIRES_OK(context, Device::Run(context, args));
  }

 private:
  bool approximate_;
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_FUSED_BIAS_GELU_OP_H_
