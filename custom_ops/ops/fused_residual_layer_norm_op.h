// The device-independent part of the OpKernels of BertTf>FusedResidualLayerNorm and its gradient:
// inputs, checks and outputs. Device is as in fused_bias_gelu_op.h. On a GPU, the seed stays in GPU
// memory.
//
// residual and bias are lists of no or one tensor. The gradient op returns dresidual only if it is
// different from dx, which is the case with residual and dropout (num_dresidual = 1).
#ifndef BERT_TF_CUSTOM_OPS_OPS_FUSED_RESIDUAL_LAYER_NORM_OP_H_
#define BERT_TF_CUSTOM_OPS_OPS_FUSED_RESIDUAL_LAYER_NORM_OP_H_

#include <vector>

#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/ops/op_attributes.h"
#include "custom_ops/ops/op_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace bert_tf {

// Reads the inputs that both ops have in common, checks that they match x [..., H], and sets their
// fields of Args.
template <typename Args>
class ResidualLayerNormInputs {
 public:
  ResidualLayerNormInputs(tensorflow::OpKernelContext* context, Args* args)
      : context_(context), args_(args) {}

  absl::Status Read() {
    const tensorflow::Tensor *gamma, *seed;
    TF_RETURN_IF_ERROR(context_->input("x", &x_));
    TF_RETURN_IF_ERROR(OptionalInput(context_, "residual", &residual_));
    TF_RETURN_IF_ERROR(OptionalInput(context_, "bias", &bias_));
    TF_RETURN_IF_ERROR(context_->input("gamma", &gamma));
    TF_RETURN_IF_ERROR(context_->input("seed", &seed));
    if (x_->dims() < 1) {
      return InvalidArgument("`x` must have shape [..., H]. Received: x.shape=",
                             x_->shape().DebugString());
    }
    args_->rows = 1;
    for (int i = 0; i + 1 < x_->dims(); ++i) args_->rows *= x_->dim_size(i);
    args_->columns = x_->dim_size(x_->dims() - 1);
    TF_RETURN_IF_ERROR(CheckSame("residual", residual_));
    TF_RETURN_IF_ERROR(CheckVector("bias", bias_, args_->columns));
    TF_RETURN_IF_ERROR(CheckVector("gamma", gamma, args_->columns));
    if (seed->dims() != 0) {
      return InvalidArgument("`seed` must be a scalar. Received: seed.shape=",
                             seed->shape().DebugString());
    }
    SetPointer(x_, &args_->x);
    SetPointer(residual_, &args_->residual);
    SetPointer(bias_, &args_->bias);
    SetPointer(gamma, &args_->gamma);
    SetSeed(*seed, &args_->seed);
    return absl::OkStatus();
  }

  // Sets a field to an input with the shape of x.
  template <typename Field>
  absl::Status ReadSame(const char* name, Field* field) const {
    const tensorflow::Tensor* tensor;
    TF_RETURN_IF_ERROR(context_->input(name, &tensor));
    TF_RETURN_IF_ERROR(CheckSame(name, tensor));
    SetPointer(tensor, field);
    return absl::OkStatus();
  }

  // Sets a field to an input of shape [length].
  template <typename Field>
  absl::Status ReadVector(const char* name, int64_t length, Field* field) const {
    const tensorflow::Tensor* tensor;
    TF_RETURN_IF_ERROR(context_->input(name, &tensor));
    TF_RETURN_IF_ERROR(CheckVector(name, tensor, length));
    SetPointer(tensor, field);
    return absl::OkStatus();
  }

  const tensorflow::TensorShape& shape() const { return x_->shape(); }
  bool has_residual() const { return residual_ != nullptr; }
  bool has_bias() const { return bias_ != nullptr; }

 private:
  // Tensors that are null are not checked.
  absl::Status CheckSame(const char* name, const tensorflow::Tensor* tensor) const {
    if (tensor == nullptr || tensor->shape() == x_->shape()) return absl::OkStatus();
    return InvalidArgument(
        "`", name, "` must have the shape of `x`. Received: x.shape=", x_->shape().DebugString(),
        ", ", name, ".shape=", tensor->shape().DebugString());
  }

  absl::Status CheckVector(const char* name, const tensorflow::Tensor* tensor,
                           int64_t length) const {
    if (tensor == nullptr || tensor->shape() == tensorflow::TensorShape({length})) {
      return absl::OkStatus();
    }
    return InvalidArgument("`", name, "` must have shape [", length,
                           "]. Received: x.shape=", x_->shape().DebugString(), ", ", name,
                           ".shape=", tensor->shape().DebugString());
  }

  tensorflow::OpKernelContext* const context_;
  Args* const args_;
  const tensorflow::Tensor* x_;
  const tensorflow::Tensor* residual_;
  const tensorflow::Tensor* bias_;
};

template <typename Device>
class FusedResidualLayerNormOp : public tensorflow::OpKernel {
 public:
  explicit FusedResidualLayerNormOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
    OP_REQUIRES_OK(context, ReadEpsilon(context, &epsilon_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    ResidualLayerNormArgs<typename Device::T> args;
    ResidualLayerNormInputs inputs(context, &args);
    OP_REQUIRES_OK(context, inputs.Read());
    OP_REQUIRES_OK(context, inputs.ReadVector("beta", args.columns, &args.beta));
    args.epsilon = epsilon_;
    args.dropout_rate = attributes_.dropout_rate;

    std::vector<int> in_place = {0};  // x, or else residual
    if (inputs.has_residual()) in_place.push_back(1);
    tensorflow::Tensor *y = nullptr, *mean = nullptr, *rstd = nullptr;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output(in_place, 0, inputs.shape(), &y));
    const tensorflow::TensorShape rows({args.rows});
    OP_REQUIRES_OK(context, context->allocate_output(1, rows, &mean));
    OP_REQUIRES_OK(context, context->allocate_output(2, rows, &rstd));
    SetPointer(y, &args.y);
    SetPointer(mean, &args.mean);
    SetPointer(rstd, &args.rstd);
    OP_REQUIRES_OK(context, Device::Run(context, args));
  }

 private:
  ResidualLayerNormAttributes attributes_;
  float epsilon_;
};

template <typename Device>
class FusedResidualLayerNormGradOp : public tensorflow::OpKernel {
 public:
  explicit FusedResidualLayerNormGradOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.ReadGrad(context, &num_dresidual_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    ResidualLayerNormGradArgs<typename Device::T> args;
    ResidualLayerNormInputs inputs(context, &args);
    OP_REQUIRES_OK(context, inputs.Read());
    OP_REQUIRES_OK(context, inputs.ReadSame("dy", &args.dy));
    OP_REQUIRES_OK(context, inputs.ReadVector("mean", args.rows, &args.mean));
    OP_REQUIRES_OK(context, inputs.ReadVector("rstd", args.rows, &args.rstd));
    args.dropout_rate = attributes_.dropout_rate;

    // If possible, dx reuses the buffer of dy, and dresidual that of x or residual.
    tensorflow::Tensor *dx = nullptr, *dresidual = nullptr, *dbias = nullptr;
    tensorflow::Tensor *dgamma = nullptr, *dbeta = nullptr, scratch;
    int output = 0;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({0}, output++, inputs.shape(), &dx));
    if (num_dresidual_ == 1) {
      OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(
                                  {1, 2}, output++, inputs.shape(), &dresidual));
    }
    const tensorflow::TensorShape features({args.columns});
    if (inputs.has_bias()) {
      OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dbias));
    }
    OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dgamma));
    OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dbeta));
    OP_REQUIRES_OK(
        context,
        AllocateScratch(context, Device::GradScratchSize(args.rows, args.columns), &scratch));
    SetPointer(dx, &args.dx);
    SetPointer(dresidual, &args.dresidual);
    SetPointer(dbias, &args.dbias);
    SetPointer(dgamma, &args.dgamma);
    SetPointer(dbeta, &args.dbeta);
    SetPointer(&scratch, &args.scratch);
    OP_REQUIRES_OK(context, Device::Run(context, args));
  }

 private:
  ResidualLayerNormAttributes attributes_;
  int num_dresidual_;
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_FUSED_RESIDUAL_LAYER_NORM_OP_H_
