// The foreign functions of programs that XLA compiles for a GPU: one for each op with a GPU kernel,
// as in handlers.cc. They only queue the kernels on the stream of XLA, so XLA may record them in a
// command buffer (a CUDA graph), except attention, for which cuDNN may compile a kernel first.
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/ops/gpu_attention.h"
#include "custom_ops/ops/op_args.h"
#include "custom_ops/xla/ffi_call.h"
#include "custom_ops/xla/gpu_platform.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {
namespace {

namespace ffi = xla::ffi;

template <typename Args, typename Launcher>
auto Handler(const char* op, Launcher launcher) {
  return [op, launcher](void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                        ffi::Dictionary attributes) {
    return WithType<float, BFloat16, Float16>(operands, [&](auto type) {
      OpCall<FfiCall> call(operands, results, attributes);
      return ErrorOf(Launch<Args, decltype(type)>(op, launcher, &call, stream));
    });
  };
}

template <typename Args, typename Launcher>
auto AttentionHandler(const char* op, Launcher launcher) {
  return [op, launcher](StreamAndScratch context, ffi::RemainingArgs operands,
                        ffi::RemainingRets results, ffi::Dictionary attributes) {
    const auto allocate = [&](int64_t bytes) {
      constexpr size_t kAlignment = 256;
      return context.scratch.Allocate(static_cast<size_t>(bytes), kAlignment).value_or(nullptr);
    };
    return WithType<float, BFloat16, Float16>(operands, [&](auto type) {
      OpCall<FfiCall> call(operands, results, attributes);
      return ErrorOf(
          LaunchAttention<Args, decltype(type)>(op, launcher, &call, context.stream, allocate));
    });
  };
}

#define BERT_TF_REGISTER(NAME, ARGS, LAUNCHER)                           \
  BERT_TF_REGISTER_HANDLER(NAME, kGpuPlatform, StreamContext,            \
                           Handler<ARGS<Gpu>>("BertTf>" NAME, LAUNCHER), \
                           XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE)
BERT_TF_REGISTER("AdamWeightDecay", AdamArgs, BertTfCudaAdamWeightDecay);
BERT_TF_REGISTER("FusedBiasGelu", BiasGeluArgs, BertTfCudaBiasGelu);
BERT_TF_REGISTER("FusedBiasGeluGrad", BiasGeluGradArgs, BertTfCudaBiasGeluGrad);
BERT_TF_REGISTER("FusedGate", GateArgs, BertTfCudaGate);
BERT_TF_REGISTER("FusedGateGrad", GateArgs, BertTfCudaGate);
BERT_TF_REGISTER("FusedResidualLayerNorm", ResidualLayerNormArgs, BertTfCudaResidualLayerNorm);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", ResidualLayerNormGradArgs,
                 BertTfCudaResidualLayerNormGrad);
BERT_TF_REGISTER("GlobalNorm", NormArgs, BertTfCudaGlobalNorm);
#define BERT_TF_REGISTER_ATTENTION(NAME, ARGS, LAUNCHER)                \
  BERT_TF_REGISTER_HANDLER(NAME, kGpuPlatform, StreamAndScratchContext, \
                           AttentionHandler<ARGS<Gpu>>("BertTf>" NAME, LAUNCHER), 0)
BERT_TF_REGISTER_ATTENTION("VarlenAttention", AttentionArgs, BertTfCudaVarlenAttention);
BERT_TF_REGISTER_ATTENTION("VarlenAttentionGrad", AttentionGradArgs, BertTfCudaVarlenAttentionGrad);
#undef BERT_TF_REGISTER
#undef BERT_TF_REGISTER_ATTENTION

}  // namespace
}  // namespace bert_tf
