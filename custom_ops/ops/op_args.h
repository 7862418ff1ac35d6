// The arguments of the kernels from a call of an op, in the same way for OpKernels and for XLA's
// foreign functions, and for CPU and GPU. T is the element type of the kernels, or void for a GPU,
// whose launchers take the type as a number.
//
// Bind sets the arguments from an OpCall: first from the inputs and then from the outputs, both in
// the order of the op's definition. The shape function of the op has checked the shapes before.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "custom_ops/kernels/attention/quantized_attention.h"
#include "custom_ops/kernels/attention/row_splits.h"
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/sizes.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/dense/bfloat16_dense.h"
#include "custom_ops/kernels/dense/fused_dense.h"
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"

namespace bert_tf {

struct Buffer {
  void* data;
  absl::InlinedVector<int64_t, 4> sizes;
  bool is_int64;
};

// A call of an op. Platform is OpKernelCall (kernel_op.h) or FfiCall (ffi_call.h). It has
//   NextInput()           the next input as a Buffer;
//   NextOutput(in_place)  the memory of the next output, which may be that of one of these inputs;
//   NextScratch(count)    the memory of `count` floats until the end of the call;
//   Attribute(name, pointer)  and status(), an error of any of these.
template <typename Platform>
class OpCall : public Platform {
 public:
  using Platform::Platform;

  template <typename T>
  void Input(const T** field) {
    *field = static_cast<const T*>(this->NextInput().data);
  }

  // Null if the op does not have this optional input: `number` is the attribute with the number of
  // its tensors.
  template <typename T>
  void OptionalInput(const char* number, const T** field) {
    *field = IsOne(number) ? static_cast<const T*>(this->NextInput().data) : nullptr;
  }

  // Sets `rows` and `columns` of the arguments to the sizes of this input, [..., columns].
  template <typename T, typename Args>
  void Matrix(const T** field, Args* args) {
    const Buffer input = this->NextInput();
    *field = static_cast<const T*>(input.data);
    args->rows = 1;
    for (size_t i = 0; i + 1 < input.sizes.size(); ++i) {
      args->rows = SizeProduct(args->rows, input.sizes[i]);
    }
    args->columns = input.sizes.back();
  }

  // The value of the seed on the CPU, or its address on a GPU, in whose memory the seed stays.
  void Seed(uint64_t* value) { *value = *static_cast<const uint64_t*>(this->NextInput().data); }
  void Seed(const int64_t** address) { Input(address); }

  template <typename T>
  void Output(T** field, std::initializer_list<const void*> in_place = {}) {
    *field = static_cast<T*>(this->NextOutput(in_place));
  }

  template <typename T>
  void OptionalOutput(const char* number, T** field,
                      std::initializer_list<const void*> in_place = {}) {
    *field = IsOne(number) ? static_cast<T*>(this->NextOutput(in_place)) : nullptr;
  }

 private:
  bool IsOne(const char* number) {
    int64_t value = 0;
    this->Attribute(number, &value);
    return value == 1;
  }
};

template <typename Call, typename T>
absl::Status Bind(Call* call, BiasGeluArgs<T>* args) {
  call->Matrix(&args->x, args);
  call->Input(&args->bias);
  call->Attribute("approximate", &args->approximate);
  call->Output(&args->y, {args->x});
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, BiasGeluGradArgs<T>* args) {
  call->Matrix(&args->dy, args);
  call->Input(&args->x);
  call->Input(&args->bias);
  call->Attribute("approximate", &args->approximate);
  call->Output(&args->dx, {args->dy, args->x});
  call->Output(&args->dbias);
  if constexpr (std::is_void_v<T>) {
    args->scratch = call->NextScratch(BertTfCudaBiasGeluGradScratch(args->rows, args->columns));
  } else {
    args->scratch = call->NextScratch(BiasGeluGradScratchSize(args->rows, args->columns));
  }
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, ResidualLayerNormArgs<T>* args) {
  call->Matrix(&args->x, args);
  call->OptionalInput("num_residual", &args->residual);
  call->OptionalInput("num_bias", &args->bias);
  call->Input(&args->gamma);
  call->Input(&args->beta);
  call->Seed(&args->seed);
  call->Attribute("epsilon", &args->epsilon);
  call->Attribute("dropout_rate", &args->dropout_rate);
  call->Output(&args->y, {args->x, args->residual});
  call->Output(&args->mean);
  call->Output(&args->rstd);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, ResidualLayerNormGradArgs<T>* args) {
  call->Matrix(&args->dy, args);
  call->Input(&args->x);
  call->OptionalInput("num_residual", &args->residual);
  call->OptionalInput("num_bias", &args->bias);
  call->Input(&args->gamma);
  call->Input(&args->mean);
  call->Input(&args->rstd);
  call->Seed(&args->seed);
  call->Attribute("dropout_rate", &args->dropout_rate);
  call->Output(&args->dx, {args->dy});
  call->OptionalOutput("num_dresidual", &args->dresidual, {args->x, args->residual});
  call->OptionalOutput("num_bias", &args->dbias);
  call->Output(&args->dgamma);
  call->Output(&args->dbeta);
  if constexpr (std::is_void_v<T>) {
    args->scratch =
        call->NextScratch(BertTfCudaResidualLayerNormGradScratch(args->rows, args->columns));
  } else {
    args->scratch = call->NextScratch(ResidualLayerNormGradScratchSize(args->rows, args->columns));
  }
  return call->status();
}

template <typename Call>
DenseActivation ReadActivation(Call* call) {
  std::string activation;
  call->Attribute("activation", &activation);
  return activation == "gelu"       ? DenseActivation::kGelu
         : activation == "gelu_new" ? DenseActivation::kApproximateGelu
                                    : DenseActivation::kNone;
}

// Sets what all dense ops have in common, up to the outputs. The epilogue's inputs are the next
// ones.
template <typename Call, typename T>
void BindDense(Call* call, const Buffer& x, DenseArgs<T>* args) {
  args->activation = ReadActivation(call);
  call->Attribute("epsilon", &args->epsilon);
  call->Attribute("units", &args->columns);
  args->x = static_cast<const T*>(x.data);
  args->rows = x.sizes[0];
  args->depth = x.sizes[1];
  call->OptionalInput("num_bias", &args->bias);
  call->OptionalInput("num_residual", &args->residual);
  call->OptionalInput("num_layer_norm", &args->gamma);
  call->OptionalInput("num_layer_norm", &args->beta);
}

// The static scale of x is the next input, unless the graph is of an older version. It is checked
// here, because its values are known only now.
template <typename Call, typename T>
absl::Status BindStaticScale(Call* call, const char* number, QuantizedDenseArgs<T>* args) {
  int64_t inputs = 0;
  call->Attribute(number, &inputs);
  args->static_scale = nullptr;
  if (!call->status().ok() || inputs == 0) return call->status();
  const Buffer input = call->NextInput();
  if (input.sizes[0] == 0) return call->status();
  args->static_scale = static_cast<const float*>(input.data);
  const float scale = args->static_scale[0], zero = args->static_scale[1];
  const bool is_scale = scale >= kSmallestSpan && scale - scale == 0.0f;
  if (is_scale && zero >= 0.0f && zero <= 255.0f &&
      zero == static_cast<float>(static_cast<int>(zero))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "A static scale must be a finite number of at least 2^-100 and its zero point an integer in "
      "[0, 255]. Received: scale=",
      scale, ", zero point=", zero));
}

// FusedDense and Bfloat16Dense.
template <typename Call, typename Args>
absl::Status BindFloatDense(Call* call, Args* args) {
  const Buffer x = call->NextInput();
  call->Input(&args->packed);
  BindDense(call, x, args);
  call->Output(&args->y, {args->residual});
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, FusedDenseArgs<T>* args) {
  return BindFloatDense(call, args);
}

template <typename Call, typename T>
absl::Status Bind(Call* call, Bfloat16DenseArgs<T>* args) {
  return BindFloatDense(call, args);
}

template <typename Call, typename T>
absl::Status Bind(Call* call, QuantizedDenseArgs<T>* args) {
  const Buffer x = call->NextInput();
  call->Input(&args->packed);
  call->Input(&args->column_scale);
  call->Input(&args->column_sums);
  call->Input(&args->smoothing);
  BindDense(call, x, args);
  const absl::Status status = BindStaticScale(call, "num_static", args);
  if (!status.ok()) return status;
  call->Output(&args->y, {args->residual});
  return call->status();
}

// Sets what both feed-forward ops have in common, from x on. All inputs have been read.
template <typename Call, typename Args>
absl::Status BindFeedForward(Call* call, const Buffer& x, Args* args) {
  auto &first = args->first, &second = args->second;
  first.activation = ReadActivation(call);
  call->Attribute("epsilon", &second.epsilon);
  call->Attribute("inner_units", &first.columns);
  first.x = second.residual = static_cast<decltype(first.x)>(x.data);
  first.rows = second.rows = x.sizes[0];
  first.depth = second.columns = x.sizes[1];
  second.depth = first.columns;
  call->Output(&second.y, {first.x});
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, Bfloat16FeedForwardArgs<T>* args) {
  *args = {};
  const Buffer x = call->NextInput();
  for (Bfloat16DenseArgs<T>* layer : {&args->first, &args->second}) {
    call->Input(&layer->packed);
    call->Input(&layer->bias);
  }
  call->Input(&args->second.gamma);
  call->Input(&args->second.beta);
  return BindFeedForward(call, x, args);
}

template <typename Call, typename T>
absl::Status Bind(Call* call, QuantizedFeedForwardArgs<T>* args) {
  QuantizedDenseArgs<T>&first = args->first, &second = args->second;
  first = second = {};
  const Buffer x = call->NextInput();
  for (QuantizedDenseArgs<T>* layer : {&first, &second}) {
    call->Input(&layer->packed);
    call->Input(&layer->column_scale);
    call->Input(&layer->column_sums);
    call->Input(&layer->smoothing);
    call->Input(&layer->bias);
  }
  call->Input(&second.gamma);
  call->Input(&second.beta);
  absl::Status status = BindStaticScale(call, "num_static_1", &first);
  if (status.ok()) status = BindStaticScale(call, "num_static_2", &second);
  return status.ok() ? BindFeedForward(call, x, args) : status;
}

template <typename Call, typename T>
absl::Status Bind(Call* call, PackDenseArgs<T>* args) {
  const Buffer kernel = call->NextInput();
  call->Attribute("transposed", &args->transposed);
  args->kernel = static_cast<const T*>(kernel.data);
  args->depth = kernel.sizes[args->transposed ? 1 : 0];
  args->columns = kernel.sizes[args->transposed ? 0 : 1];
  call->Output(&args->packed);
  return call->status();
}

template <typename T>
struct AttentionArgs : VarlenAttentionArgs<T> {
  std::vector<int64_t> checked_row_splits;  // to which row_splits points
};
template <>
struct AttentionArgs<void> : CudaAttentionArgs {};
template <typename T>
struct AttentionGradArgs : AttentionArgs<T> {};
template <typename T>
struct QuantizedAttentionArgs : AttentionArgs<T> {};
template <typename T>
struct CrossAttentionArgs : AttentionArgs<T> {
  std::vector<int64_t> checked_key_row_splits;
};
template <typename T>
struct CrossAttentionGradArgs : CrossAttentionArgs<T> {};

// Sets the options for qkv [R, 3, N, D]. The row splits are the next input. They are checked here,
// because their values are known only now. On a GPU, they stay in its memory and are not checked:
// invalid ones give wrong results, but never an invalid memory access.
template <typename Call, typename T>
absl::Status BindAttention(Call* call, const Buffer& qkv, AttentionArgs<T>* args) {
  const Buffer row_splits = call->NextInput();
  args->num_sequences = row_splits.sizes[0] - 1;
  args->num_heads = qkv.sizes[2];
  args->head_size = qkv.sizes[3];
  call->Attribute("causal", &args->causal);
  call->Attribute("window_size", &args->window_size);
  call->Attribute("num_global_tokens", &args->num_global_tokens);
  std::string error;
  if constexpr (std::is_void_v<T>) {
    args->qkv = qkv.data;
    args->row_splits = row_splits.data;
    args->row_splits_are_int64 = row_splits.is_int64;
    args->rows = qkv.sizes[0];
    error = CheckCudaAttention(*args);
  } else {
    error = ReadRowSplits("row_splits", "qkv", row_splits.data, row_splits.is_int64,
                          row_splits.sizes[0], qkv.sizes[0], &args->checked_row_splits);
    args->row_splits = args->checked_row_splits.data();
    args->SetQkv(static_cast<const T*>(qkv.data));
  }
  return error.empty() ? call->status() : absl::InvalidArgumentError(error);
}

// The distance bias [N, 2 M + 1], whose shape was checked, is the next input if the op has one.
template <typename Call, typename T>
void BindDistanceBias(Call* call, AttentionArgs<T>* args) {
  int64_t number = 0;
  call->Attribute("num_distance_bias", &number);
  if (number == 0) return;
  const Buffer bias = call->NextInput();
  args->distance_bias = static_cast<const float*>(bias.data);
  args->max_distance = bias.sizes[1] / 2;
}

// The seed is the next input. A GPU multiplies as it does without `bfloat16_products`.
template <typename Call, typename T>
void BindVarlenOptions(Call* call, AttentionArgs<T>* args) {
  call->Attribute("dropout_rate", &args->dropout_rate);
  if constexpr (!std::is_void_v<T>) {
    call->Attribute("bfloat16_products", &args->bfloat16_products);
  }
  call->Seed(&args->seed);
}

template <typename Call, typename T>
absl::Status Bind(Call* call, AttentionArgs<T>* args) {
  const Buffer qkv = call->NextInput();
  const absl::Status status = BindAttention(call, qkv, args);
  if (!status.ok()) return status;
  BindVarlenOptions(call, args);
  BindDistanceBias(call, args);
  call->Output(&args->output);
  call->Output(&args->logsumexp);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, AttentionGradArgs<T>* args) {
  call->Input(&args->d_output);
  const Buffer qkv = call->NextInput();
  args->output = static_cast<T*>(call->NextInput().data);
  args->logsumexp = static_cast<float*>(call->NextInput().data);
  const absl::Status status = BindAttention<Call, T>(call, qkv, args);
  if (!status.ok()) return status;
  BindVarlenOptions<Call, T>(call, args);
  BindDistanceBias<Call, T>(call, args);
  if constexpr (std::is_void_v<T>) {
    call->Output(&args->d_qkv);
  } else {
    T* d_qkv;
    call->Output(&d_qkv);
    args->SetQkvGradient(d_qkv);
  }
  call->OptionalOutput("num_distance_bias", &args->d_distance_bias);
  if constexpr (std::is_void_v<T>) {
    const int64_t distances = args->distance_bias == nullptr ? 0 : 2 * args->max_distance + 1;
    args->scratch = call->NextScratch(BertTfCudaVarlenAttentionGradScratch(
        args->rows, args->num_heads, args->num_sequences, distances));
  }
  return call->status();
}

// Sets the options for query [Rq, N, D] and key_value [Rk, 2, N, D]. The row splits of both and the
// seed are the next inputs.
template <typename Call, typename T>
absl::Status BindCrossAttention(Call* call, const Buffer& query, const Buffer& key_value,
                                CrossAttentionArgs<T>* args) {
  const Buffer row_splits = call->NextInput(), key_row_splits = call->NextInput();
  std::string error =
      ReadRowSplits("query_row_splits", "query", row_splits.data, row_splits.is_int64,
                    row_splits.sizes[0], query.sizes[0], &args->checked_row_splits);
  if (error.empty()) {
    error =
        ReadRowSplits("key_row_splits", "key_value", key_row_splits.data, key_row_splits.is_int64,
                      key_row_splits.sizes[0], key_value.sizes[0], &args->checked_key_row_splits);
  }
  if (!error.empty()) return absl::InvalidArgumentError(error);
  args->num_sequences = row_splits.sizes[0] - 1;
  args->row_splits = args->checked_row_splits.data();
  args->key_row_splits = args->checked_key_row_splits.data();
  args->num_heads = query.sizes[1];
  args->head_size = query.sizes[2];
  args->SetQueryKeyValue(static_cast<const T*>(query.data), static_cast<const T*>(key_value.data));
  call->Attribute("causal", &args->causal);
  BindVarlenOptions<Call, T>(call, args);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, CrossAttentionArgs<T>* args) {
  const Buffer query = call->NextInput(), key_value = call->NextInput();
  const absl::Status status = BindCrossAttention(call, query, key_value, args);
  if (!status.ok()) return status;
  call->Output(&args->output);
  call->Output(&args->logsumexp);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, CrossAttentionGradArgs<T>* args) {
  call->Input(&args->d_output);
  const Buffer query = call->NextInput(), key_value = call->NextInput();
  args->output = static_cast<T*>(call->NextInput().data);
  args->logsumexp = static_cast<float*>(call->NextInput().data);
  const absl::Status status = BindCrossAttention<Call, T>(call, query, key_value, args);
  if (!status.ok()) return status;
  T *d_query, *d_key_value;
  call->Output(&d_query);
  call->Output(&d_key_value);
  args->SetQueryKeyValueGradient(d_query, d_key_value);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, QuantizedAttentionArgs<T>* args) {
  const Buffer qkv = call->NextInput();
  const absl::Status status = BindAttention<Call, T>(call, qkv, args);
  if (!status.ok()) return status;
  for (int64_t b = 0; b < args->num_sequences; ++b) {
    const int64_t length = args->row_splits[b + 1] - args->row_splits[b];
    if (length <= kQuantizedAttentionLength) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("A sequence must have at most ", kQuantizedAttentionLength,
                     " tokens, so that int32 can hold the sums. Received: ", length,
                     " tokens in sequence ", b, ". Use varlen_attention."));
  }
  BindDistanceBias<Call, T>(call, args);
  call->Output(&args->output);
  return call->status();
}

// Calls the launcher of a GPU kernel for tensors of the kernels' type T.
template <typename Args, typename T, typename Launcher, typename Call>
absl::Status Launch(absl::string_view op, Launcher launcher, Call* call, void* stream) {
  Args args;
  const absl::Status status = Bind(call, &args);
  if (!status.ok()) return status;
  constexpr int kType = std::is_same_v<T, BFloat16>  ? kBertTfBFloat16
                        : std::is_same_v<T, Float16> ? kBertTfFloat16
                                                     : kBertTfFloat32;
  const int cuda_error = launcher(kType, args, stream);
  if (cuda_error == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("Launching ", op, " failed with CUDA error ", cuda_error, "."));
}

}  // namespace bert_tf
