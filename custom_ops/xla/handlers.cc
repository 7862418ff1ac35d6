// The foreign functions of programs that XLA compiles for the CPU: one for each op, with the name
// of the op. They pass XLA's buffers to the kernels. custom_call_op.cc has checked the shapes.
#include "absl/status/status.h"
#include "custom_ops/ops/op_args.h"
#include "custom_ops/xla/ffi_call.h"
#include "custom_ops/xla/ffi_parallel.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {

namespace {

namespace ffi = xla::ffi;

// Calls a kernel with Args<T> for the type T of the first operand, one of Types.
template <template <typename> class Args, typename... Types, typename Kernel>
auto Handler(Kernel kernel) {
  return [kernel](ffi::ThreadPool pool, ffi::RemainingArgs operands, ffi::RemainingRets results,
                  ffi::Dictionary attributes) {
    return WithType<Types...>(operands, [&](auto type) {
      OpCall<FfiCall> call(operands, results, attributes);
      Args<decltype(type)> args;
      const absl::Status status = BindAll(&call, &args);
      if (status.ok()) kernel(FfiParallel(pool), args);
      return ErrorOf(status);
    });
  };
}

#define BERT_TF_REGISTER_TYPES(NAME, ARGS, KERNEL, ...)                                 \
  BERT_TF_REGISTER_HANDLER(                                                             \
      NAME, "Host", ffi::ThreadPool,                                                    \
      (Handler<ARGS, __VA_ARGS__>(                                                      \
          [](const Parallel& parallel, const auto& args) { KERNEL(parallel, args); })), \
      0)
#define BERT_TF_REGISTER(NAME, ARGS, KERNEL) \
  BERT_TF_REGISTER_TYPES(NAME, ARGS, KERNEL, float, BFloat16, Float16)
BERT_TF_REGISTER("FusedBiasGelu", BiasGeluArgs, FusedBiasGelu);
BERT_TF_REGISTER("FusedBiasGeluGrad", BiasGeluGradArgs, FusedBiasGeluGrad);
BERT_TF_REGISTER("FusedGate", GateArgs, FusedGate);
BERT_TF_REGISTER("FusedGateGrad", GateArgs, FusedGate);
BERT_TF_REGISTER("FusedResidualLayerNorm", ResidualLayerNormArgs, FusedResidualLayerNorm);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", ResidualLayerNormGradArgs,
                 FusedResidualLayerNormGrad);
BERT_TF_REGISTER_TYPES("FusedDense", FusedDenseArgs, FusedDense, float, Float16);
BERT_TF_REGISTER("Bfloat16Dense", Bfloat16DenseArgs, Bfloat16Dense);
BERT_TF_REGISTER("Bfloat16FeedForward", Bfloat16FeedForwardArgs, Bfloat16FeedForward);
BERT_TF_REGISTER("PackDense", PackDenseArgs, PackDense);
BERT_TF_REGISTER("QuantizedAttention", QuantizedAttentionArgs, QuantizedAttention);
BERT_TF_REGISTER("QuantizedDense", QuantizedDenseArgs, QuantizedDense);
BERT_TF_REGISTER("QuantizedFeedForward", QuantizedFeedForwardArgs, QuantizedFeedForward);
BERT_TF_REGISTER("VarlenAttention", AttentionArgs, VarlenAttention);
BERT_TF_REGISTER("VarlenAttentionGrad", AttentionGradArgs, VarlenAttentionGrad);
BERT_TF_REGISTER("VarlenCrossAttention", CrossAttentionArgs, VarlenAttention);
BERT_TF_REGISTER("VarlenCrossAttentionGrad", CrossAttentionGradArgs, VarlenAttentionGrad);
BERT_TF_REGISTER_TYPES("AdamWeightDecay", AdamArgs, AdamWeightDecay, float);
BERT_TF_REGISTER("GlobalNorm", NormArgs, GlobalNorm);
#undef BERT_TF_REGISTER
#undef BERT_TF_REGISTER_TYPES

}  // namespace
}  // namespace bert_tf
