// The OpKernels for a GPU. The *_op.cc files register the ops, and the *_op.h files have the
// inputs, checks and outputs. In a build for tests, BERT_TF_EMULATED_GPU, the same OpKernels run
// the emulated kernels on the CPU.
#include <cstdint>
#include <string>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/ops/fused_bias_gelu_op.h"
#include "custom_ops/ops/fused_residual_layer_norm_op.h"
#include "custom_ops/ops/op_util.h"
#include "custom_ops/ops/varlen_attention_op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

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

template <typename T>
constexpr int kCudaType = kBertTfFloat32;
template <>
constexpr int kCudaType<Eigen::bfloat16> = kBertTfBFloat16;
template <>
constexpr int kCudaType<Eigen::half> = kBertTfFloat16;

// The status for the result of a launcher, a cudaError_t.
absl::Status LaunchStatus(const char* kernel, int cuda_error) {
  if (cuda_error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("Launching ", kernel, " failed with CUDA error ", cuda_error, "."));
}

template <typename Type>
struct BiasGelu {
  using T = void;

  static absl::Status Run(OpKernelContext* context, const BiasGeluArgs<void>& args) {
    return LaunchStatus("fused_bias_gelu",
                        BertTfCudaBiasGelu(kCudaType<Type>, args, GpuStream(context)));
  }

  static absl::Status Run(OpKernelContext* context, const BiasGeluGradArgs<void>& args) {
    return LaunchStatus("the gradient of fused_bias_gelu",
                        BertTfCudaBiasGeluGrad(kCudaType<Type>, args, GpuStream(context)));
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return BertTfCudaBiasGeluGradScratch(rows, columns);
  }
};

template <typename Type>
struct ResidualLayerNorm {
  using T = void;

  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormArgs<void>& args) {
    return LaunchStatus("fused_residual_layer_norm",
                        BertTfCudaResidualLayerNorm(kCudaType<Type>, args, GpuStream(context)));
  }

  static absl::Status Run(OpKernelContext* context, const ResidualLayerNormGradArgs<void>& args) {
    return LaunchStatus("the gradient of fused_residual_layer_norm",
                        BertTfCudaResidualLayerNormGrad(kCudaType<Type>, args, GpuStream(context)));
  }

  static int64_t GradScratchSize(int64_t rows, int64_t columns) {
    return BertTfCudaResidualLayerNormGradScratch(rows, columns);
  }
};

// row_splits and the seed stay on the GPU, so no copy to the host is needed. Invalid row splits
// cannot be reported there: they give wrong results, but never an invalid memory access.
template <typename T>
struct Attention {
  static absl::Status Forward(OpKernelContext* context, const VarlenAttentionCall& call,
                              Tensor* output, Tensor* logsumexp) {
    CudaAttentionArgs args;
    TF_RETURN_IF_ERROR(ReadArgs(call, &args));
    SetPointer(output, &args.output);
    SetPointer(logsumexp, &args.logsumexp);
    return LaunchStatus("varlen_attention",
                        BertTfCudaVarlenAttention(kCudaType<T>, args, GpuStream(context)));
  }

  static absl::Status Backward(OpKernelContext* context, const VarlenAttentionCall& call,
                               Tensor* d_qkv) {
    CudaAttentionArgs args;
    TF_RETURN_IF_ERROR(ReadArgs(call, &args));
    Tensor scratch;
    TF_RETURN_IF_ERROR(AllocateScratch(
        context, BertTfCudaVarlenAttentionGradScratch(call.rows(), call.num_heads()), &scratch));
    args.output = call.output->data();
    args.logsumexp = static_cast<float*>(call.logsumexp->data());
    SetPointer(call.d_output, &args.d_output);
    SetPointer(d_qkv, &args.d_qkv);
    SetPointer(&scratch, &args.scratch);
    return LaunchStatus("the gradient of varlen_attention",
                        BertTfCudaVarlenAttentionGrad(kCudaType<T>, args, GpuStream(context)));
  }

 private:
  // Sets what both ops have in common.
  static absl::Status ReadArgs(const VarlenAttentionCall& call, CudaAttentionArgs* args) {
    SetPointer(call.qkv, &args->qkv);
    SetPointer(call.row_splits, &args->row_splits);
    args->row_splits_are_int64 = call.row_splits->dtype() == tensorflow::DT_INT64;
    args->num_sequences = call.num_sequences();
    args->rows = call.rows();
    args->num_heads = call.num_heads();
    args->head_size = call.head_size();
    args->causal = call.attributes.causal;
    args->window_size = call.attributes.window_size;
    args->num_global_tokens = call.attributes.num_global_tokens;
    args->dropout_rate = call.attributes.dropout_rate;
    SetSeed(*call.seed, &args->seed);
    const std::string error = CheckCudaAttention(*args);
    return error.empty() ? absl::OkStatus() : InvalidArgument(error);
  }
};

BERT_TF_REGISTER("FusedBiasGelu", kDevice, kPriority, FusedBiasGeluOp, BiasGelu);
BERT_TF_REGISTER("FusedBiasGeluGrad", kDevice, kPriority, FusedBiasGeluGradOp, BiasGelu);
BERT_TF_REGISTER("FusedResidualLayerNorm", kDevice, kPriority, FusedResidualLayerNormOp,
                 ResidualLayerNorm);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", kDevice, kPriority, FusedResidualLayerNormGradOp,
                 ResidualLayerNorm);
BERT_TF_REGISTER("VarlenAttention", kDevice, kPriority, VarlenAttentionOp, Attention);
BERT_TF_REGISTER("VarlenAttentionGrad", kDevice, kPriority, VarlenAttentionGradOp, Attention);

}  // namespace
}  // namespace bert_tf
