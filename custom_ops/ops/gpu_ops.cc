// The OpKernels for a GPU. The *_op.cc files register the ops. In a build for tests,
// BERT_TF_EMULATED_GPU, the same OpKernels run the emulated kernels on the CPU.
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/ops/adam_weight_decay_op.h"
#include "custom_ops/ops/gpu_attention.h"
#include "custom_ops/ops/kernel_op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;

#ifndef BERT_TF_EMULATED_GPU

constexpr char kDevice[] = "GPU";

// The cudaStream_t on which TensorFlow runs this computation.
void* GpuStream(OpKernelContext* context) {
  return context->op_device_context()->stream()->platform_specific_handle().stream;
}

#else

constexpr char kDevice[] = "CPU";

void* GpuStream(OpKernelContext*) { return nullptr; }

#endif  // BERT_TF_EMULATED_GPU

// The priority of the registrations. The emulated kernels are registered for the CPU and must take
// precedence over the CPU kernels.
constexpr int kPriority = 1;

template <typename T, typename Args, auto kLauncher>
class GpuOp : public KernelOp {
 public:
  using KernelOp::KernelOp;

 protected:
  absl::Status Run(OpKernelContext* context, OpCall<OpKernelCall>* call) override {
    return Launch<Args, T>(type_string(), kLauncher, call, GpuStream(context));
  }
};

class GpuAdamWeightDecayOp : public AdamWeightDecayOp {
 public:
  using AdamWeightDecayOp::AdamWeightDecayOp;

 protected:
  absl::Status Update(OpKernelContext* context, OpCall<VariablesCall>* call) const override {
    return Launch<AdamWeightDecayArgs, float>(type_string(), BertTfCudaAdamWeightDecay, call,
                                              GpuStream(context));
  }
};

REGISTER_KERNEL_BUILDER(Name("BertTf>AdamWeightDecay")
                            .Device(kDevice)
                            .Priority(kPriority)
                            .HostMemory("variables")
                            .HostMemory("means")
                            .HostMemory("squares"),
                        GpuAdamWeightDecayOp);
REGISTER_KERNEL_BUILDER(Name("BertTf>GlobalNorm").Device(kDevice).Priority(kPriority),
                        GpuOp<float, GlobalNormArgs, BertTfCudaGlobalNorm>);

template <typename T, typename Args, auto kLauncher>
class GpuAttentionOp : public KernelOp {
 public:
  using KernelOp::KernelOp;

 protected:
  absl::Status Run(OpKernelContext* context, OpCall<OpKernelCall>* call) override {
    tensorflow::Tensor memory;
    const auto allocate = [&](int64_t bytes) -> void* {
      const auto status =
          context->allocate_temp(tensorflow::DT_INT8, tensorflow::TensorShape({bytes}), &memory);
      return status.ok() ? memory.data() : nullptr;
    };
    return LaunchAttention<Args, T>(type_string(), kLauncher, call, GpuStream(context), allocate);
  }
};

#define BERT_TF_REGISTER_GPU(NAME, OP, ARGS, LAUNCHER)                  \
  BERT_TF_REGISTER_GPU_TYPE(NAME, OP, ARGS, LAUNCHER, float);           \
  BERT_TF_REGISTER_GPU_TYPE(NAME, OP, ARGS, LAUNCHER, Eigen::bfloat16); \
  BERT_TF_REGISTER_GPU_TYPE(NAME, OP, ARGS, LAUNCHER, Eigen::half)
#define BERT_TF_REGISTER_GPU_TYPE(NAME, OP, ARGS, LAUNCHER, T)                         \
  REGISTER_KERNEL_BUILDER(                                                             \
      Name("BertTf>" NAME).Device(kDevice).Priority(kPriority).TypeConstraint<T>("T"), \
      OP<KernelType<T>, ARGS<Gpu>, LAUNCHER>)
BERT_TF_REGISTER_GPU("FusedBiasGelu", GpuOp, BiasGeluArgs, BertTfCudaBiasGelu);
BERT_TF_REGISTER_GPU("FusedBiasGeluGrad", GpuOp, BiasGeluGradArgs, BertTfCudaBiasGeluGrad);
BERT_TF_REGISTER_GPU("FusedGate", GpuOp, GateArgs, BertTfCudaGate);
BERT_TF_REGISTER_GPU("FusedGateGrad", GpuOp, GateArgs, BertTfCudaGate);
BERT_TF_REGISTER_GPU("FusedResidualLayerNorm", GpuOp, ResidualLayerNormArgs,
                     BertTfCudaResidualLayerNorm);
BERT_TF_REGISTER_GPU("FusedResidualLayerNormGrad", GpuOp, ResidualLayerNormGradArgs,
                     BertTfCudaResidualLayerNormGrad);
BERT_TF_REGISTER_GPU("VarlenAttention", GpuAttentionOp, AttentionArgs, BertTfCudaVarlenAttention);
BERT_TF_REGISTER_GPU("VarlenAttentionGrad", GpuAttentionOp, AttentionGradArgs,
                     BertTfCudaVarlenAttentionGrad);

}  // namespace
}  // namespace bert_tf
