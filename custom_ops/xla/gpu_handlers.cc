// The foreign functions of programs that XLA compiles for a GPU: one for each op with a GPU kernel,
// as in handlers.cc. They only queue the kernels on the stream of XLA, so XLA may record them in a
// command buffer (a CUDA graph).
#include <cstdint>
#include <string>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/xla/ffi_args.h"
#include "custom_ops/xla/gpu_platform.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {
namespace {

namespace ffi = xla::ffi;

// The element type of the tensors as a BertTfCudaType, or an invalid value if it is not supported.
int TypeOf(const ffi::RemainingArgs& args) {
  switch (args.get<ffi::AnyBuffer>(0).value().element_type()) {
    case ffi::F32:
      return kBertTfFloat32;
    case ffi::BF16:
      return kBertTfBFloat16;
    case ffi::F16:
      return kBertTfFloat16;
    default:
      return -1;
  }
}

ffi::Error Answer(const char* kernel, int cuda_error) {
  if (cuda_error == 0) return ffi::Error::Success();
  return ffi::Error::Internal(std::string("Launching ") + kernel + " failed with CUDA error " +
                              std::to_string(cuda_error) + ".");
}

ffi::Error BiasGelu(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                    ffi::Dictionary attributes) {
  const auto args = BiasGeluArgsOf<void>(operands, results, attributes);
  return Answer("fused_bias_gelu", BertTfCudaBiasGelu(TypeOf(operands), args, stream));
}

ffi::Error BiasGeluGrad(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                        ffi::Dictionary attributes) {
  const auto args = BiasGeluGradArgsOf<void>(operands, results, attributes);
  return Answer("the gradient of fused_bias_gelu",
                BertTfCudaBiasGeluGrad(TypeOf(operands), args, stream));
}

ffi::Error ResidualLayerNorm(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                             ffi::Dictionary attributes) {
  const auto args = ResidualLayerNormArgsOf<void>(operands, results, attributes);
  return Answer("fused_residual_layer_norm",
                BertTfCudaResidualLayerNorm(TypeOf(operands), args, stream));
}

ffi::Error ResidualLayerNormGrad(void* stream, ffi::RemainingArgs operands,
                                 ffi::RemainingRets results, ffi::Dictionary attributes) {
  const auto args = ResidualLayerNormGradArgsOf<void>(operands, results, attributes);
  return Answer("the gradient of fused_residual_layer_norm",
                BertTfCudaResidualLayerNormGrad(TypeOf(operands), args, stream));
}

// The arguments that both attention handlers have in common, for qkv [R, 3, N, D]. row_splits and
// the seed are the next operands.
CudaAttentionArgs ReadAttention(const ffi::AnyBuffer& qkv, const ffi::Dictionary& attributes,
                                Operands* in) {
  const ffi::AnyBuffer row_splits = in->Next();
  CudaAttentionArgs args;
  args.qkv = qkv.untyped_data();
  args.row_splits = row_splits.untyped_data();
  args.row_splits_are_int64 = row_splits.element_type() == ffi::S64;
  args.num_sequences = row_splits.dimensions()[0] - 1;
  args.rows = qkv.dimensions()[0];
  args.num_heads = qkv.dimensions()[2];
  args.head_size = qkv.dimensions()[3];
  args.causal = attributes.get<bool>("causal").value();
  args.window_size = attributes.get<int64_t>("window_size").value();
  args.num_global_tokens = attributes.get<int64_t>("num_global_tokens").value();
  args.dropout_rate = attributes.get<float>("dropout_rate").value();
  args.seed = in->NextData<int64_t>();
  return args;
}

ffi::Error Attention(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                     ffi::Dictionary attributes) {
  Operands in(operands);
  Results out(results);
  const ffi::AnyBuffer qkv = in.Next();
  CudaAttentionArgs args = ReadAttention(qkv, attributes, &in);
  args.output = out.NextData<void>();
  args.logsumexp = out.NextData<float>();
  const std::string error = CheckCudaAttention(args);
  if (!error.empty()) return ffi::Error::InvalidArgument(error);
  return Answer("varlen_attention", BertTfCudaVarlenAttention(TypeOf(operands), args, stream));
}

ffi::Error AttentionGrad(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                         ffi::Dictionary attributes) {
  Operands in(operands);
  Results out(results);
  const void* const d_output = in.NextData<void>();
  const ffi::AnyBuffer qkv = in.Next();
  void* const output = in.Next().untyped_data();
  float* const logsumexp = static_cast<float*>(in.Next().untyped_data());
  CudaAttentionArgs args = ReadAttention(qkv, attributes, &in);
  args.output = output;
  args.logsumexp = logsumexp;
  args.d_output = d_output;
  args.d_qkv = out.NextData<void>();
  args.scratch = out.NextData<float>();
  const std::string error = CheckCudaAttention(args);
  if (!error.empty()) return ffi::Error::InvalidArgument(error);
  return Answer("the gradient of varlen_attention",
                BertTfCudaVarlenAttentionGrad(TypeOf(operands), args, stream));
}

#define BERT_TF_REGISTER(NAME, FUNCTION)                                             \
  XLA_FFI_REGISTER_HANDLER(                                                          \
      XLA_FFI_GetApi(), "BertTf>" NAME, kGpuPlatform,                                \
      +[](XLA_FFI_CallFrame* frame) {                                                \
        static auto* const handler = BindOp<StreamContext>().To(FUNCTION).release(); \
        return handler->Call(frame);                                                 \
      },                                                                             \
      XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE)
BERT_TF_REGISTER("FusedBiasGelu", BiasGelu);
BERT_TF_REGISTER("FusedBiasGeluGrad", BiasGeluGrad);
BERT_TF_REGISTER("FusedResidualLayerNorm", ResidualLayerNorm);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", ResidualLayerNormGrad);
BERT_TF_REGISTER("VarlenAttention", Attention);
BERT_TF_REGISTER("VarlenAttentionGrad", AttentionGrad);
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
