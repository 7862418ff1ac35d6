// The foreign functions of programs that XLA compiles for a GPU: one for each op with a GPU kernel,
// as in handlers.cc. They only queue the kernels on the stream of XLA, so XLA may record them in a
// command buffer (a CUDA graph).
#include <cstdint>
#include <string>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/xla/ffi_args.h"
#include "custom_ops/xla/ffi_buffers.h"
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
                    bool approximate) {
  const BiasGeluArgs<void> args = BiasGeluArgsOf<void>(operands, results, approximate);
  return Answer("fused_bias_gelu",
                BertTfCudaBiasGelu(TypeOf(operands), args.x, args.bias, args.rows, args.columns,
                                   args.approximate, args.y, stream));
}

ffi::Error BiasGeluGrad(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                        bool approximate) {
  const BiasGeluGradArgs<void> args = BiasGeluGradArgsOf<void>(operands, results, approximate);
  return Answer(
      "the gradient of fused_bias_gelu",
      BertTfCudaBiasGeluGrad(TypeOf(operands), args.dy, args.x, args.bias, args.rows, args.columns,
                             args.approximate, args.dx, args.dbias, args.scratch, stream));
}

ffi::Error ResidualLayerNorm(void* stream, ffi::RemainingArgs operands, ffi::RemainingRets results,
                             int64_t num_residual, int64_t num_bias, float epsilon,
                             float dropout_rate) {
  const ResidualLayerNormArgs<void> args = ResidualLayerNormArgsOf<void>(
      operands, results, num_residual, num_bias, epsilon, dropout_rate);
  return Answer("fused_residual_layer_norm",
                BertTfCudaResidualLayerNorm(TypeOf(operands), args.x, args.residual, args.bias,
                                            args.gamma, args.beta, args.rows, args.columns,
                                            args.epsilon, args.dropout_rate, args.seed, args.y,
                                            args.mean, args.rstd, stream));
}

ffi::Error ResidualLayerNormGrad(void* stream, ffi::RemainingArgs operands,
                                 ffi::RemainingRets results, int64_t num_residual, int64_t num_bias,
                                 int64_t num_dresidual, float dropout_rate) {
  const ResidualLayerNormGradArgs<void> args = ResidualLayerNormGradArgsOf<void>(
      operands, results, num_residual, num_bias, num_dresidual, dropout_rate);
  return Answer(
      "the gradient of fused_residual_layer_norm",
      BertTfCudaResidualLayerNormGrad(TypeOf(operands), args.dy, args.x, args.residual, args.bias,
                                      args.gamma, args.mean, args.rstd, args.rows, args.columns,
                                      args.dropout_rate, args.seed, args.dx, args.dresidual,
                                      args.dbias, args.dgamma, args.dbeta, args.scratch, stream));
}

// The sizes of qkv [R, 3, N, D] and row_splits [B + 1] for both attention handlers.
struct AttentionSizes {
  AttentionSizes(const ffi::AnyBuffer& qkv, const ffi::AnyBuffer& row_splits)
      : splits_are_int64(row_splits.element_type() == ffi::S64),
        sequences(row_splits.dimensions()[0] - 1),
        rows(qkv.dimensions()[0]),
        heads(qkv.dimensions()[2]),
        head_size(qkv.dimensions()[3]) {}

  ffi::Error Check() const {
    if (sequences < 0 || (sequences == 0 && rows > 0)) {
      return ffi::Error::InvalidArgument(
          "`row_splits` must have shape [sequences + 1] and end with the number of rows, " +
          std::to_string(rows) + ". Received: row_splits.shape=[" + std::to_string(sequences + 1) +
          "]");
    }
    if (head_size < 1 || head_size > kBertTfLargestHead) {
      return ffi::Error::InvalidArgument(
          "`qkv` must have a head size from 1 to " + std::to_string(kBertTfLargestHead) +
          " on a GPU. Received: head size=" + std::to_string(head_size) +
          ". BERT_TF_OPS=reference supports any head size.");
    }
    return ffi::Error::Success();
  }

  int splits_are_int64;
  int64_t sequences, rows, heads, head_size;
};

ffi::Error Attention(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     float dropout_rate, bool causal, int64_t window_size,
                     int64_t num_global_tokens) {
  Operands in(args);
  Results out(rets);
  const ffi::AnyBuffer qkv = in.Next();
  const ffi::AnyBuffer row_splits = in.Next();
  const int64_t* const seed = in.NextData<int64_t>();
  const AttentionSizes sizes(qkv, row_splits);
  if (ffi::Error error = sizes.Check(); error.failure()) return error;
  void* const output = out.NextData<void>();
  return Answer(
      "varlen_attention",
      BertTfCudaVarlenAttention(TypeOf(args), qkv.untyped_data(), row_splits.untyped_data(),
                                sizes.splits_are_int64, sizes.sequences, sizes.rows, sizes.heads,
                                sizes.head_size, causal, window_size, num_global_tokens,
                                dropout_rate, seed, output, out.NextData<float>(), stream));
}

ffi::Error AttentionGrad(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                         float dropout_rate, bool causal, int64_t window_size,
                         int64_t num_global_tokens) {
  Operands in(args);
  Results out(rets);
  const void* const d_output = in.NextData<void>();
  const ffi::AnyBuffer qkv = in.Next();
  const void* const output = in.NextData<void>();
  const float* const logsumexp = in.NextData<float>();
  const ffi::AnyBuffer row_splits = in.Next();
  const int64_t* const seed = in.NextData<int64_t>();
  const AttentionSizes sizes(qkv, row_splits);
  if (ffi::Error error = sizes.Check(); error.failure()) return error;
  void* const d_qkv = out.NextData<void>();
  return Answer("the gradient of varlen_attention",
                BertTfCudaVarlenAttentionGrad(
                    TypeOf(args), d_output, qkv.untyped_data(), output, logsumexp,
                    row_splits.untyped_data(), sizes.splits_are_int64, sizes.sequences, sizes.rows,
                    sizes.heads, sizes.head_size, causal, window_size, num_global_tokens,
                    dropout_rate, seed, d_qkv, out.NextData<float>(), stream));
}

#define BERT_TF_REGISTER(NAME, FUNCTION, BINDING)                    \
  XLA_FFI_REGISTER_HANDLER(                                          \
      XLA_FFI_GetApi(), "BertTf>" NAME, kGpuPlatform,                \
      +[](XLA_FFI_CallFrame* frame) {                                \
        static auto* const handler = BINDING.To(FUNCTION).release(); \
        return handler->Call(frame);                                 \
      },                                                             \
      XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE)
BERT_TF_REGISTER("FusedBiasGelu", BiasGelu, BindBiasGelu<StreamContext>());
BERT_TF_REGISTER("FusedBiasGeluGrad", BiasGeluGrad, BindBiasGelu<StreamContext>());
BERT_TF_REGISTER("FusedResidualLayerNorm", ResidualLayerNorm,
                 BindResidualLayerNorm<StreamContext>());
BERT_TF_REGISTER("FusedResidualLayerNormGrad", ResidualLayerNormGrad,
                 BindResidualLayerNormGrad<StreamContext>());
BERT_TF_REGISTER("VarlenAttention", Attention, BindAttention<StreamContext>());
BERT_TF_REGISTER("VarlenAttentionGrad", AttentionGrad, BindAttention<StreamContext>());
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
