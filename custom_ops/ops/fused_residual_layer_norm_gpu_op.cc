// BertTf>FusedResidualLayerNorm and its gradient on a GPU; fused_residual_layer_norm_op.cc
// registers the ops and says which inputs and outputs are optional. The seed stays on the GPU.
#include <vector>

#include "custom_ops/ops/gpu_util.h"
#include "custom_ops/ops/op_attributes.h"

namespace bert_tf {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Inputs that both ops have.
struct Inputs {
  const Tensor* x;
  const Tensor* residual = nullptr;
  const Tensor* bias = nullptr;
  const Tensor* gamma;
  const Tensor* seed;
  int64_t rows = 1;
  int64_t columns;
};

absl::Status Optional(OpKernelContext* context, const char* name, const Tensor** tensor) {
  OpInputList list;
  TF_RETURN_IF_ERROR(context->input_list(name, &list));
  if (list.size() == 1) *tensor = &list[0];
  return absl::OkStatus();
}

absl::Status CheckShape(const char* name, const Tensor* tensor, const TensorShape& shape) {
  if (tensor == nullptr || tensor->shape() == shape) return absl::OkStatus();
  return InvalidArgument("Expected ", name, " to have shape ", shape.DebugString(),
                         ". Received: ", name, " of shape ", tensor->shape().DebugString());
}

absl::Status ReadInputs(OpKernelContext* context, Inputs* inputs) {
  TF_RETURN_IF_ERROR(context->input("x", &inputs->x));
  TF_RETURN_IF_ERROR(Optional(context, "residual", &inputs->residual));
  TF_RETURN_IF_ERROR(Optional(context, "bias", &inputs->bias));
  TF_RETURN_IF_ERROR(context->input("gamma", &inputs->gamma));
  TF_RETURN_IF_ERROR(context->input("seed", &inputs->seed));
  const TensorShape& shape = inputs->x->shape();
  if (shape.dims() < 1) {
    return InvalidArgument("Expected x to have shape [..., H]. Received: x of shape ",
                           shape.DebugString());
  }
  for (int i = 0; i + 1 < shape.dims(); ++i) inputs->rows *= shape.dim_size(i);
  inputs->columns = shape.dim_size(shape.dims() - 1);
  const TensorShape features({inputs->columns});
  TF_RETURN_IF_ERROR(CheckShape("residual", inputs->residual, shape));
  TF_RETURN_IF_ERROR(CheckShape("bias", inputs->bias, features));
  TF_RETURN_IF_ERROR(CheckShape("gamma", inputs->gamma, features));
  return CheckShape("seed", inputs->seed, TensorShape({}));
}

const void* AddressOrNull(const Tensor* tensor) {
  return tensor == nullptr ? nullptr : Address(*tensor);
}

template <typename T>
class FusedResidualLayerNormGpuOp : public OpKernel {
 public:
  explicit FusedResidualLayerNormGpuOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
    OP_REQUIRES_OK(context, ReadEpsilon(context, &epsilon_));
  }

  void Compute(OpKernelContext* context) override {
    Inputs inputs;
    OP_REQUIRES_OK(context, ReadInputs(context, &inputs));
    const Tensor* beta;
    OP_REQUIRES_OK(context, context->input("beta", &beta));
    OP_REQUIRES_OK(context, CheckShape("beta", beta, TensorShape({inputs.columns})));
    std::vector<int> in_place = {0};  // x, or else residual
    if (inputs.residual != nullptr) in_place.push_back(1);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output(in_place, 0, inputs.x->shape(), &y));
    Tensor* mean = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({inputs.rows}), &mean));
    Tensor* rstd = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({inputs.rows}), &rstd));
    OP_REQUIRES_OK(
        context,
        LaunchStatus("fused_residual_layer_norm",
                     BertTfCudaResidualLayerNorm(
                         kCudaType<T>, Address(*inputs.x), AddressOrNull(inputs.residual),
                         AddressOrNull(inputs.bias), Address(*inputs.gamma), Address(*beta),
                         inputs.rows, inputs.columns, epsilon_, attributes_.dropout_rate,
                         Data<int64_t>(*inputs.seed), MutableAddress(y), MutableData<float>(mean),
                         MutableData<float>(rstd), GpuStream(context))));
  }

 private:
  ResidualLayerNormAttributes attributes_;
  float epsilon_;
};

template <typename T>
class FusedResidualLayerNormGradGpuOp : public OpKernel {
 public:
  explicit FusedResidualLayerNormGradGpuOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.ReadGrad(context, &num_dresidual_));
  }

  void Compute(OpKernelContext* context) override {
    Inputs inputs;
    OP_REQUIRES_OK(context, ReadInputs(context, &inputs));
    const Tensor *dy, *mean, *rstd;
    OP_REQUIRES_OK(context, context->input("dy", &dy));
    OP_REQUIRES_OK(context, context->input("mean", &mean));
    OP_REQUIRES_OK(context, context->input("rstd", &rstd));
    const TensorShape shape = inputs.x->shape();
    OP_REQUIRES_OK(context, CheckShape("dy", dy, shape));
    OP_REQUIRES_OK(context, CheckShape("mean", mean, TensorShape({inputs.rows})));
    OP_REQUIRES_OK(context, CheckShape("rstd", rstd, TensorShape({inputs.rows})));

    // dx takes the buffer of dy if that is free, dresidual that of x or residual.
    int output = 0;
    Tensor* dx = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, output++, shape, &dx));
    Tensor* dresidual = nullptr;
    if (num_dresidual_ == 1) {
      OP_REQUIRES_OK(
          context, context->forward_input_or_allocate_output({1, 2}, output++, shape, &dresidual));
    }
    const TensorShape features({inputs.columns});
    Tensor* dbias = nullptr;
    if (inputs.bias != nullptr) {
      OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dbias));
    }
    Tensor* dgamma = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dgamma));
    Tensor* dbeta = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dbeta));
    Tensor scratch;
    OP_REQUIRES_OK(context,
                   AllocateScratch(
                       context, BertTfCudaResidualLayerNormGradScratch(inputs.rows, inputs.columns),
                       &scratch));
    OP_REQUIRES_OK(
        context,
        LaunchStatus(
            "the gradient of fused_residual_layer_norm",
            BertTfCudaResidualLayerNormGrad(
                kCudaType<T>, Address(*dy), Address(*inputs.x), AddressOrNull(inputs.residual),
                AddressOrNull(inputs.bias), Address(*inputs.gamma), Data<float>(*mean),
                Data<float>(*rstd), inputs.rows, inputs.columns, attributes_.dropout_rate,
                Data<int64_t>(*inputs.seed), MutableAddress(dx),
                dresidual ? MutableAddress(dresidual) : nullptr,
                dbias ? MutableAddress(dbias) : nullptr, MutableAddress(dgamma),
                MutableAddress(dbeta), MutableData<float>(&scratch), GpuStream(context))));
  }

 private:
  ResidualLayerNormAttributes attributes_;
  int num_dresidual_;
};

#define BERT_TF_REGISTER(T)                                         \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedResidualLayerNorm")     \
                              .Device(kGpuDevice)                   \
                              .Priority(kGpuPriority)               \
                              .TypeConstraint<T>("T"),              \
                          FusedResidualLayerNormGpuOp<T>);          \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedResidualLayerNormGrad") \
                              .Device(kGpuDevice)                   \
                              .Priority(kGpuPriority)               \
                              .TypeConstraint<T>("T"),              \
                          FusedResidualLayerNormGradGpuOp<T>);
BERT_TF_REGISTER(float)
BERT_TF_REGISTER(Eigen::bfloat16)
BERT_TF_REGISTER(Eigen::half)
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
