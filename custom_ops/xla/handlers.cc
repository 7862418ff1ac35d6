// The foreign functions of programs that XLA compiles for the CPU: one for each op, with the name
// of the op. They pass XLA's buffers to the kernels. custom_call_op.cc has checked the shapes.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "custom_ops/kernels/attention/row_splits.h"
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/dense/fused_dense.h"
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"
#include "custom_ops/xla/ffi_args.h"
#include "custom_ops/xla/ffi_buffers.h"
#include "custom_ops/xla/ffi_parallel.h"
#include "xla/ffi/api/ffi.h"

namespace bert_tf {
namespace {

namespace ffi = xla::ffi;

// Calls fn with a value of the kernels' type that corresponds to the type of the first operand.
template <typename Fn>
ffi::Error ForType(const ffi::RemainingArgs& args, const Fn& fn) {
  switch (args.get<ffi::AnyBuffer>(0).value().element_type()) {
    case ffi::F32:
      return fn(float{});
    case ffi::BF16:
      return fn(BFloat16{});
    case ffi::F16:
      return fn(Float16{});
    default:
      return ffi::Error::InvalidArgument(
          "The first operand must have dtype float32, bfloat16 or float16.");
  }
}

ffi::Error BiasGelu(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                    bool approximate) {
  return ForType(args, [&](auto type) {
    FusedBiasGelu(FfiParallel(pool), BiasGeluArgsOf<decltype(type)>(args, rets, approximate));
    return ffi::Error::Success();
  });
}

ffi::Error BiasGeluGrad(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                        bool approximate) {
  return ForType(args, [&](auto type) {
    FusedBiasGeluGrad(FfiParallel(pool),
                      BiasGeluGradArgsOf<decltype(type)>(args, rets, approximate));
    return ffi::Error::Success();
  });
}

ffi::Error ResidualLayerNorm(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                             int64_t num_residual, int64_t num_bias, float epsilon,
                             float dropout_rate) {
  return ForType(args, [&](auto type) {
    FusedResidualLayerNorm(FfiParallel(pool),
                           ResidualLayerNormArgsOf<decltype(type)>(
                               args, rets, num_residual, num_bias, epsilon, dropout_rate));
    return ffi::Error::Success();
  });
}

ffi::Error ResidualLayerNormGrad(ffi::ThreadPool pool, ffi::RemainingArgs args,
                                 ffi::RemainingRets rets, int64_t num_residual, int64_t num_bias,
                                 int64_t num_dresidual, float dropout_rate) {
  return ForType(args, [&](auto type) {
    FusedResidualLayerNormGrad(
        FfiParallel(pool), ResidualLayerNormGradArgsOf<decltype(type)>(
                               args, rets, num_residual, num_bias, num_dresidual, dropout_rate));
    return ffi::Error::Success();
  });
}

// The epilogue of a dense op: the optional inputs, the attributes and the result.
struct DenseEpilogue {
  int64_t units;
  std::string_view activation;
  float epsilon;
  int64_t num_bias, num_residual, num_layer_norm;

  template <typename T>
  void Read(const ffi::AnyBuffer& x, Operands* in, Results* out, DenseArgs<T>* call) const {
    call->x = static_cast<const T*>(x.untyped_data());
    call->bias = in->NextDataIf<T>(num_bias == 1);
    call->activation = activation == "gelu"       ? DenseActivation::kGelu
                       : activation == "gelu_new" ? DenseActivation::kApproximateGelu
                                                  : DenseActivation::kNone;
    call->residual = in->NextDataIf<T>(num_residual == 1);
    call->gamma = in->NextDataIf<T>(num_layer_norm == 1);
    call->beta = in->NextDataIf<T>(num_layer_norm == 1);
    call->epsilon = epsilon;
    call->rows = x.dimensions()[0];
    call->depth = x.dimensions()[1];
    call->columns = units;
    call->y = out->NextData<T>();
  }
};

ffi::Error Dense(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                 int64_t units, std::string_view activation, float epsilon, int64_t num_bias,
                 int64_t num_residual, int64_t num_layer_norm) {
  return ForType(args, [&](auto type) {
    using T = decltype(type);
    Operands in(args);
    Results out(rets);
    const ffi::AnyBuffer x = in.Next();
    FusedDenseArgs<T> call;
    call.packed = in.NextData<T>();
    DenseEpilogue{units, activation, epsilon, num_bias, num_residual, num_layer_norm}.Read<T>(
        x, &in, &out, &call);
    FusedDense(FfiParallel(pool), call);
    return ffi::Error::Success();
  });
}

ffi::Error DenseInt8(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     int64_t units, std::string_view activation, float epsilon, int64_t num_bias,
                     int64_t num_residual, int64_t num_layer_norm) {
  return ForType(args, [&](auto type) {
    using T = decltype(type);
    Operands in(args);
    Results out(rets);
    const ffi::AnyBuffer x = in.Next();
    QuantizedDenseArgs<T> call;
    call.packed = in.NextData<int8_t>();
    call.column_scale = in.NextData<float>();
    call.column_sums = in.NextData<int32_t>();
    call.smoothing = in.NextData<float>();
    DenseEpilogue{units, activation, epsilon, num_bias, num_residual, num_layer_norm}.Read<T>(
        x, &in, &out, &call);
    QuantizedDense(FfiParallel(pool), call);
    return ffi::Error::Success();
  });
}

ffi::Error Pack(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                bool transposed) {
  return ForType(args, [&](auto type) {
    using T = decltype(type);
    Operands in(args);
    Results out(rets);
    const ffi::AnyBuffer kernel = in.Next();
    PackDense(FfiParallel(pool),
              PackDenseArgs<T>{static_cast<const T*>(kernel.untyped_data()), transposed,
                               kernel.dimensions()[transposed ? 1 : 0],
                               kernel.dimensions()[transposed ? 0 : 1], out.NextData<T>()});
    return ffi::Error::Success();
  });
}

// Checks row_splits, whose values are known only when the program runs.
std::string ReadSplits(const ffi::AnyBuffer& buffer, int64_t rows,
                       std::vector<int64_t>* row_splits) {
  const int64_t count = buffer.dimensions()[0];
  if (count == 0) {
    return "`row_splits` must have shape [sequences + 1]. Received: row_splits.shape=[0]";
  }
  if (buffer.element_type() == ffi::S32) {
    return ReadRowSplits(static_cast<const int32_t*>(buffer.untyped_data()), count, rows,
                         row_splits);
  }
  return ReadRowSplits(static_cast<const int64_t*>(buffer.untyped_data()), count, rows, row_splits);
}

// qkv is [R, 3, N, D].
VarlenAttentionOptions AttentionOptions(const FfiParallel& parallel, const ffi::AnyBuffer& qkv,
                                        const std::vector<int64_t>& row_splits, uint64_t seed,
                                        float dropout_rate, bool causal, int64_t window_size,
                                        int64_t num_global_tokens) {
  VarlenAttentionOptions options;
  options.num_sequences = static_cast<int64_t>(row_splits.size()) - 1;
  options.row_splits = row_splits.data();
  options.num_heads = qkv.dimensions()[2];
  options.head_size = qkv.dimensions()[3];
  options.causal = causal;
  options.window_size = window_size;
  options.num_global_tokens = num_global_tokens;
  options.dropout_rate = dropout_rate;
  options.seed = seed;
  options.num_threads = parallel.NumThreads();
  return options;
}

ffi::Error Attention(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     float dropout_rate, bool causal, int64_t window_size,
                     int64_t num_global_tokens) {
  return ForType(args, [&](auto type) {
    using T = decltype(type);
    Operands in(args);
    Results out(rets);
    const FfiParallel parallel(pool);
    const ffi::AnyBuffer qkv = in.Next();
    std::vector<int64_t> row_splits;
    const std::string error = ReadSplits(in.Next(), qkv.dimensions()[0], &row_splits);
    if (!error.empty()) return ffi::Error::InvalidArgument(error);
    const VarlenAttentionOptions options =
        AttentionOptions(parallel, qkv, row_splits, in.NextScalar<uint64_t>(), dropout_rate, causal,
                         window_size, num_global_tokens);
    T* const output = out.NextData<T>();
    VarlenAttentionForward(parallel, options, static_cast<const T*>(qkv.untyped_data()), output,
                           out.NextData<float>());
    return ffi::Error::Success();
  });
}

ffi::Error AttentionGrad(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                         float dropout_rate, bool causal, int64_t window_size,
                         int64_t num_global_tokens) {
  return ForType(args, [&](auto type) {
    using T = decltype(type);
    Operands in(args);
    Results out(rets);
    const FfiParallel parallel(pool);
    const T* const d_output = in.NextData<T>();
    const ffi::AnyBuffer qkv = in.Next();
    const T* const output = in.NextData<T>();
    const float* const logsumexp = in.NextData<float>();
    std::vector<int64_t> row_splits;
    const std::string error = ReadSplits(in.Next(), qkv.dimensions()[0], &row_splits);
    if (!error.empty()) return ffi::Error::InvalidArgument(error);
    const VarlenAttentionOptions options =
        AttentionOptions(parallel, qkv, row_splits, in.NextScalar<uint64_t>(), dropout_rate, causal,
                         window_size, num_global_tokens);
    VarlenAttentionBackward(parallel, options, d_output, static_cast<const T*>(qkv.untyped_data()),
                            output, logsumexp, out.NextData<T>());
    return ffi::Error::Success();
  });
}

// The results have the buffers of the first three operands.
ffi::Error Adam(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                float beta_1, float beta_2, float epsilon) {
  Operands in(args);
  Results out(rets);
  for (int i = 0; i < 3; ++i) in.Next();
  AdamWeightDecayArgs call;
  const ffi::AnyBuffer gradient = in.Next();
  call.gradient = static_cast<const float*>(gradient.untyped_data());
  call.count = gradient.element_count();
  const float learning_rate = in.NextScalar<float>();
  call.gradient_scale = in.NextScalar<float>();
  call.beta_1 = beta_1;
  call.beta_2 = beta_2;
  call.epsilon = epsilon;
  call.decay = learning_rate * in.NextScalar<float>();
  call.step = learning_rate * AdamBiasCorrection(beta_1, beta_2, in.NextScalar<float>());
  call.variable = out.NextData<float>();
  call.m = out.NextData<float>();
  call.v = out.NextData<float>();
  AdamWeightDecay(FfiParallel(pool), call);
  return ffi::Error::Success();
}

auto BindDense() {
  return BindOp<ffi::ThreadPool>()
      .Attr<int64_t>("units")
      .Attr<std::string_view>("activation")
      .Attr<float>("epsilon")
      .Attr<int64_t>("num_bias")
      .Attr<int64_t>("num_residual")
      .Attr<int64_t>("num_layer_norm");
}

#define BERT_TF_REGISTER(NAME, FUNCTION, BINDING)                               \
  XLA_FFI_REGISTER_HANDLER(                                                     \
      XLA_FFI_GetApi(), "BertTf>" NAME, "Host", +[](XLA_FFI_CallFrame* frame) { \
        static auto* const handler = BINDING.To(FUNCTION).release();            \
        return handler->Call(frame);                                            \
      })
BERT_TF_REGISTER("FusedBiasGelu", BiasGelu, BindBiasGelu<ffi::ThreadPool>());
BERT_TF_REGISTER("FusedBiasGeluGrad", BiasGeluGrad, BindBiasGelu<ffi::ThreadPool>());
BERT_TF_REGISTER("FusedResidualLayerNorm", ResidualLayerNorm,
                 BindResidualLayerNorm<ffi::ThreadPool>());
BERT_TF_REGISTER("FusedResidualLayerNormGrad", ResidualLayerNormGrad,
                 BindResidualLayerNormGrad<ffi::ThreadPool>());
BERT_TF_REGISTER("FusedDense", Dense, BindDense());
BERT_TF_REGISTER("PackDense", Pack, BindOp<ffi::ThreadPool>().Attr<bool>("transposed"));
BERT_TF_REGISTER("QuantizedDense", DenseInt8, BindDense());
BERT_TF_REGISTER("VarlenAttention", Attention, BindAttention<ffi::ThreadPool>());
BERT_TF_REGISTER("VarlenAttentionGrad", AttentionGrad, BindAttention<ffi::ThreadPool>());
BERT_TF_REGISTER(
    "AdamWeightDecay", Adam,
    BindOp<ffi::ThreadPool>().Attr<float>("beta_1").Attr<float>("beta_2").Attr<float>("epsilon"));
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
