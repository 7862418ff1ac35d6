// The OpKernels for a GPU. The *_op.cc files register the ops. In a build for tests,
// BERT_TF_EMULATED_GPU, the same OpKernels run the emulated kernels on the CPU.
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/ops/adam_weight_decay_op.h"
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

#define BERT_TF_REGISTER_GPU(NAME, ARGS, LAUNCHER)                  \
  BERT_TF_REGISTER_GPU_TYPE(NAME, ARGS, LAUNCHER, float);           \
  BERT_TF_REGISTER_GPU_TYPE(NAME, ARGS, LAUNCHER, Eigen::bfloat16); \
  BERT_TF_REGISTER_GPU_TYPE(NAME, ARGS, LAUNCHER, Eigen::half)
#define BERT_TF_REGISTER_GPU_TYPE(NAME, ARGS, LAUNCHER, T)                             \
  REGISTER_KERNEL_BUILDER(                                                             \
      Name("BertTf>" NAME).Device(kDevice).Priority(kPriority).TypeConstraint<T>("T"), \
      GpuOp<KernelType<T>, ARGS<Gpu>, LAUNCHER>)
BERT_TF_REGISTER_GPU("FusedBiasGelu", BiasGeluArgs, BertTfCudaBiasGelu);
BERT_TF_REGISTER_GPU("FusedBiasGeluGrad", BiasGeluGradArgs, BertTfCudaBiasGeluGrad);
BERT_TF_REGISTER_GPU("FusedGate", GateArgs, BertTfCudaGate);
BERT_TF_REGISTER_GPU("FusedGateGrad", GateArgs, BertTfCudaGate);
BERT_TF_REGISTER_GPU("FusedResidualLayerNorm", ResidualLayerNormArgs, BertTfCudaResidualLayerNorm);
BERT_TF_REGISTER_GPU("FusedResidualLayerNormGrad", ResidualLayerNormGradArgs,
                     BertTfCudaResidualLayerNormGrad);
BERT_TF_REGISTER_GPU("VarlenAttention", AttentionArgs, BertTfCudaVarlenAttention);
BERT_TF_REGISTER_GPU("VarlenAttentionGrad", AttentionGradArgs, BertTfCudaVarlenAttentionGrad);

}  // namespace
}  // namespace bert_tf
