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
                    ffi::Dictionary attributes) {
  return ForType(args, [&](auto type) {
    FusedBiasGelu(FfiParallel(pool), BiasGeluArgsOf<decltype(type)>(args, rets, attributes));
    return ffi::Error::Success();
  });
}

ffi::Error BiasGeluGrad(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                        ffi::Dictionary attributes) {
  return ForType(args, [&](auto type) {
    FusedBiasGeluGrad(FfiParallel(pool),
                      BiasGeluGradArgsOf<decltype(type)>(args, rets, attributes));
    return ffi::Error::Success();
  });
}

ffi::Error ResidualLayerNorm(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                             ffi::Dictionary attributes) {
  return ForType(args, [&](auto type) {
    FusedResidualLayerNorm(FfiParallel(pool),
                           ResidualLayerNormArgsOf<decltype(type)>(args, rets, attributes));
    return ffi::Error::Success();
  });
}

ffi::Error ResidualLayerNormGrad(ffi::ThreadPool pool, ffi::RemainingArgs args,
                                 ffi::RemainingRets rets, ffi::Dictionary attributes) {
  return ForType(args, [&](auto type) {
    FusedResidualLayerNormGrad(FfiParallel(pool),
                               ResidualLayerNormGradArgsOf<decltype(type)>(args, rets, attributes));
    return ffi::Error::Success();
  });
}

// Reads the inputs of the epilogue of a dense op, which are the next operands.
template <typename T>
void ReadEpilogue(const ffi::AnyBuffer& x, const ffi::Dictionary& attributes, Operands* in,
                  Results* out, DenseArgs<T>* call) {
  const auto activation = attributes.get<std::string_view>("activation").value();
  const bool layer_norm = IsOne(attributes, "num_layer_norm");
  call->x = static_cast<const T*>(x.untyped_data());
  call->bias = in->NextDataIf<T>(IsOne(attributes, "num_bias"));
  call->activation = activation == "gelu"       ? DenseActivation::kGelu
                     : activation == "gelu_new" ? DenseActivation::kApproximateGelu
                                                : DenseActivation::kNone;
  call->residual = in->NextDataIf<T>(IsOne(attributes, "num_residual"));
  call->gamma = in->NextDataIf<T>(layer_norm);
  call->beta = in->NextDataIf<T>(layer_norm);
  call->epsilon = attributes.get<float>("epsilon").value();
  call->rows = x.dimensions()[0];
  call->depth = x.dimensions()[1];
  call->columns = attributes.get<int64_t>("units").value();
  call->y = out->NextData<T>();
}

ffi::Error Dense(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                 ffi::Dictionary attributes) {
  return ForType(args, [&](auto type) {
    using T = decltype(type);
    Operands in(args);
    Results out(rets);
    const ffi::AnyBuffer x = in.Next();
    FusedDenseArgs<T> call;
    call.packed = in.NextData<T>();
    ReadEpilogue<T>(x, attributes, &in, &out, &call);
    FusedDense(FfiParallel(pool), call);
    return ffi::Error::Success();
  });
}

ffi::Error DenseInt8(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     ffi::Dictionary attributes) {
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
    ReadEpilogue<T>(x, attributes, &in, &out, &call);
    QuantizedDense(FfiParallel(pool), call);
    return ffi::Error::Success();
  });
}

ffi::Error Pack(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                ffi::Dictionary attributes) {
  const bool transposed = attributes.get<bool>("transposed").value();
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

// Reads the row splits and the seed, which are the next operands, and the attributes for qkv
// [R, 3, N, D]. `row_splits` stores what the options point to. Returns an error message, which is
// empty if the row splits are valid: their values are known only when the program runs.
std::string ReadAttention(const FfiParallel& parallel, const ffi::AnyBuffer& qkv,
                          const ffi::Dictionary& attributes, Operands* in,
                          std::vector<int64_t>* row_splits, VarlenAttentionOptions* options) {
  const ffi::AnyBuffer splits = in->Next();
  const int64_t count = splits.dimensions()[0];
  const std::string error = ReadRowSplits(splits.untyped_data(), splits.element_type() == ffi::S64,
                                          count, qkv.dimensions()[0], row_splits);
  options->num_sequences = count - 1;
  options->row_splits = row_splits->data();
  options->num_heads = qkv.dimensions()[2];
  options->head_size = qkv.dimensions()[3];
  options->causal = attributes.get<bool>("causal").value();
  options->window_size = attributes.get<int64_t>("window_size").value();
  options->num_global_tokens = attributes.get<int64_t>("num_global_tokens").value();
  options->dropout_rate = attributes.get<float>("dropout_rate").value();
  options->seed = in->NextScalar<uint64_t>();
  options->num_threads = parallel.NumThreads();
  return error;
}

ffi::Error Attention(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     ffi::Dictionary attributes) {
  return ForType(args, [&](auto type) {
    using T = decltype(type);
    Operands in(args);
    Results out(rets);
    const FfiParallel parallel(pool);
    const ffi::AnyBuffer qkv = in.Next();
    std::vector<int64_t> row_splits;
    VarlenAttentionOptions options;
    const std::string error = ReadAttention(parallel, qkv, attributes, &in, &row_splits, &options);
    if (!error.empty()) return ffi::Error::InvalidArgument(error);
    T* const output = out.NextData<T>();
    VarlenAttentionForward(parallel, options, static_cast<const T*>(qkv.untyped_data()), output,
                           out.NextData<float>());
    return ffi::Error::Success();
  });
}

ffi::Error AttentionGrad(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                         ffi::Dictionary attributes) {
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
    VarlenAttentionOptions options;
    const std::string error = ReadAttention(parallel, qkv, attributes, &in, &row_splits, &options);
    if (!error.empty()) return ffi::Error::InvalidArgument(error);
    VarlenAttentionBackward(parallel, options, d_output, static_cast<const T*>(qkv.untyped_data()),
                            output, logsumexp, out.NextData<T>());
    return ffi::Error::Success();
  });
}

// The results have the buffers of the first three operands.
ffi::Error Adam(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                ffi::Dictionary attributes) {
  Operands in(args);
  Results out(rets);
  for (int i = 0; i < 3; ++i) in.Next();
  AdamWeightDecayArgs call;
  const ffi::AnyBuffer gradient = in.Next();
  call.gradient = static_cast<const float*>(gradient.untyped_data());
  call.count = gradient.element_count();
  const float learning_rate = in.NextScalar<float>();
  call.gradient_scale = in.NextScalar<float>();
  call.beta_1 = attributes.get<float>("beta_1").value();
  call.beta_2 = attributes.get<float>("beta_2").value();
  call.epsilon = attributes.get<float>("epsilon").value();
  call.decay = learning_rate * in.NextScalar<float>();
  call.step = learning_rate * AdamBiasCorrection(call.beta_1, call.beta_2, in.NextScalar<float>());
  call.variable = out.NextData<float>();
  call.m = out.NextData<float>();
  call.v = out.NextData<float>();
  AdamWeightDecay(FfiParallel(pool), call);
  return ffi::Error::Success();
}

#define BERT_TF_REGISTER(NAME, FUNCTION)                                               \
  XLA_FFI_REGISTER_HANDLER(                                                            \
      XLA_FFI_GetApi(), "BertTf>" NAME, "Host", +[](XLA_FFI_CallFrame* frame) {        \
        static auto* const handler = BindOp<ffi::ThreadPool>().To(FUNCTION).release(); \
        return handler->Call(frame);                                                   \
      })
BERT_TF_REGISTER("FusedBiasGelu", BiasGelu);
BERT_TF_REGISTER("FusedBiasGeluGrad", BiasGeluGrad);
BERT_TF_REGISTER("FusedResidualLayerNorm", ResidualLayerNorm);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", ResidualLayerNormGrad);
BERT_TF_REGISTER("FusedDense", Dense);
BERT_TF_REGISTER("PackDense", Pack);
BERT_TF_REGISTER("QuantizedDense", DenseInt8);
BERT_TF_REGISTER("VarlenAttention", Attention);
BERT_TF_REGISTER("VarlenAttentionGrad", AttentionGrad);
BERT_TF_REGISTER("AdamWeightDecay", Adam);
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
