// The arguments of the attention ops; op_args.h says how they are bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/attention/quantized_attention.h"
#include "custom_ops/kernels/attention/row_splits.h"
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/ops/op_call.h"

namespace bert_tf {

// The arguments of attention with the row splits to which they point. On a GPU, row splits stay in
// its memory.
template <typename Args>
struct WithRowSplits : Args {
  std::vector<int64_t> checked_row_splits, checked_key_row_splits;
};
template <typename T>
struct AttentionArgs : WithRowSplits<VarlenAttentionArgs<T>> {};
template <>
struct AttentionArgs<Gpu> : CudaAttentionArgs {};
template <typename T>
struct AttentionGradArgs : WithRowSplits<VarlenAttentionGradArgs<T>> {};
template <>
struct AttentionGradArgs<Gpu> : CudaAttentionGradArgs {};
template <typename T>
struct QuantizedAttentionArgs : WithRowSplits<VarlenAttentionArgs<T>> {};
template <typename T>
struct CrossAttentionArgs : WithRowSplits<VarlenAttentionArgs<T>> {};
template <typename T>
struct CrossAttentionGradArgs : WithRowSplits<VarlenAttentionGradArgs<T>> {};

// Reads row splits on the CPU. They are checked here, because their values are known only now.
template <typename Call>
absl::Status BindRowSplits(Call* call, const char* name, const char* of, int64_t rows,
                           std::vector<int64_t>* row_splits) {
  const Buffer input = call->Input(name);
  const std::string error =
      ReadRowSplits(name, of, input.data, input.is_int64, input.sizes[0], rows, row_splits);
  return error.empty() ? call->status() : absl::InvalidArgumentError(error);
}

// Sets the rotation [P, S] on the CPU, after the row splits. Only now it is known whether it has
// enough rows.
template <typename Call>
absl::Status BindRotation(Call* call, VarlenAttentionOptions* args) {
  if (!call->HasInput("rotation")) return absl::OkStatus();
  const Buffer rotation = call->Input("rotation");
  args->rotation = static_cast<const float*>(rotation.data);
  args->rotation_size = rotation.sizes[1];
  for (int64_t b = 0; b < args->num_sequences; ++b) {
    const int64_t length = args->row_splits[b + 1] - args->row_splits[b];
    if (length <= rotation.sizes[0]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("`rotation` must have a row for each place of a sequence. Received: "
                     "rotation.shape=[",
                     rotation.sizes[0], ",", rotation.sizes[1], "], ", length,
                     " tokens in sequence ", b, ". Make a longer table."));
  }
  return call->status();
}

// Sets the vectors of distances [V, 2, N, D] and the row of each distance, on the CPU. Only now it
// is known whether the rows exist.
template <typename Call>
absl::Status BindDistanceVectors(Call* call, VarlenAttentionOptions* args) {
  if (!call->HasInput("distance_vectors")) return absl::OkStatus();
  const Buffer vectors = call->Input("distance_vectors"), rows = call->Input("distance_rows");
  args->distance_vectors = static_cast<const float*>(vectors.data);
  args->num_distance_vectors = vectors.sizes[0];
  args->distance_rows = static_cast<const int32_t*>(rows.data);
  args->max_row_distance = rows.sizes[0] / 2;
  for (int64_t i = 0; i < rows.sizes[0]; ++i) {
    const int32_t row = args->distance_rows[i];
    if (row >= 0 && row < args->num_distance_vectors) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("`distance_rows` must be in [0, ", args->num_distance_vectors,
                     "), the rows of `distance_vectors`. Received: distance_rows[", i, "]=", row));
  }
  return call->status();
}

// Sets what the ops of self-attention have in common: qkv [R, 3, N, D], the row splits, what places
// add to scores and the mask. On a GPU, the row splits are not checked: invalid ones give wrong
// results, but never an invalid memory access.
template <typename T, typename Call, typename Args>
absl::Status BindSelfAttention(Call* call, Args* args) {
  const Buffer qkv = call->Input("qkv");
  args->num_heads = qkv.sizes[2];
  args->head_size = qkv.sizes[3];
  call->Attribute("causal", &args->causal);
  call->Attribute("window_size", &args->window_size);
  call->Attribute("num_global_tokens", &args->num_global_tokens);
  if (call->HasInput("distance_bias")) {
    const Buffer bias = call->Input("distance_bias");
    args->distance_bias = static_cast<const float*>(bias.data);
    args->max_distance = bias.sizes[1] / 2;
  }
  const Buffer row_splits = call->Input("row_splits");
  args->num_sequences = row_splits.sizes[0] - 1;
  if constexpr (kIsGpu<T>) {
    args->qkv = qkv.data;
    args->row_splits = row_splits.data;
    args->row_splits_are_int64 = row_splits.is_int64;
    args->rows = qkv.sizes[0];
    call->Attribute("max_length", &args->max_length);
    if (call->HasInput("rotation")) {
      const Buffer rotation = call->Input("rotation");
      args->rotation = static_cast<const float*>(rotation.data);
      args->rotation_places = rotation.sizes[0];
      args->rotation_size = rotation.sizes[1];
    }
    if (call->HasInput("distance_vectors")) {
      return absl::InvalidArgumentError(
          "`num_distance_vectors` must be 0 on a GPU. Received: 1. Set BERT_TF_OPS=reference.");
    }
    return call->status();
  } else {
    absl::Status status =
        BindRowSplits(call, "row_splits", "qkv", qkv.sizes[0], &args->checked_row_splits);
    args->row_splits = args->checked_row_splits.data();
    args->SetQkv(static_cast<const T*>(qkv.data));
    if (status.ok()) status = BindRotation(call, args);
    return status.ok() ? BindDistanceVectors(call, args) : status;
  }
}

// Sets what the ops of cross-attention have in common: query [Rq, N, D], key_value [Rk, 2, N, D],
// their row splits and the mask.
template <typename T, typename Call, typename Args>
absl::Status BindCrossAttention(Call* call, Args* args) {
  const Buffer query = call->Input("query"), key_value = call->Input("key_value");
  args->num_heads = query.sizes[1];
  args->head_size = query.sizes[2];
  call->Attribute("causal", &args->causal);
  absl::Status status =
      BindRowSplits(call, "query_row_splits", "query", query.sizes[0], &args->checked_row_splits);
  status.Update(BindRowSplits(call, "key_row_splits", "key_value", key_value.sizes[0],
                              &args->checked_key_row_splits));
  args->num_sequences = static_cast<int64_t>(args->checked_row_splits.size()) - 1;
  args->row_splits = args->checked_row_splits.data();
  args->key_row_splits = args->checked_key_row_splits.data();
  args->SetQueryKeyValue(static_cast<const T*>(query.data), static_cast<const T*>(key_value.data));
  return status;
}

// Sets the dropout, and how products are computed. A GPU multiplies as it does without
// `bfloat16_products`.
template <typename T, typename Call, typename Args>
void BindDropout(Call* call, Args* args) {
  call->Attribute("dropout_rate", &args->dropout_rate);
  call->Seed(&args->seed);
  if constexpr (!kIsGpu<T>) call->Attribute("bfloat16_products", &args->bfloat16_products);
}

// Sets the results of the forward pass, as its outputs or as inputs of the gradient.
template <typename Call, typename Args>
void BindResults(Call* call, Args* args) {
  call->Output("output", &args->output);
  call->Output("logsumexp", &args->logsumexp);
}
template <typename Call, typename Args>
void BindGradientInputs(Call* call, Args* args) {
  call->Input("d_output", &args->d_output);
  call->Input("output", &args->output);
  call->Input("logsumexp", &args->logsumexp);
}

template <typename Call, typename T>
absl::Status Bind(Call* call, AttentionArgs<T>* args) {
  const absl::Status status = BindSelfAttention<T>(call, args);
  if (!status.ok()) return status;
  BindDropout<T>(call, args);
  BindResults(call, args);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, AttentionGradArgs<T>* args) {
  const absl::Status status = BindSelfAttention<T>(call, args);
  if (!status.ok()) return status;
  BindDropout<T>(call, args);
  BindGradientInputs(call, args);
  if constexpr (kIsGpu<T>) {
    call->Output("d_qkv", &args->d_qkv);
    const int64_t distances = args->distance_bias == nullptr ? 0 : 2 * args->max_distance + 1;
    args->scratch = call->Scratch(BertTfCudaVarlenAttentionGradScratch(
        args->rows, args->num_heads, args->num_sequences, distances));
  } else {
    T* d_qkv = nullptr;
    call->Output("d_qkv", &d_qkv);
    args->SetQkvGradient(d_qkv);
  }
  call->OptionalOutput("d_distance_bias", &args->d_distance_bias);
  if constexpr (!kIsGpu<T>) call->OptionalOutput("d_distance_vectors", &args->d_distance_vectors);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, CrossAttentionArgs<T>* args) {
  const absl::Status status = BindCrossAttention<T>(call, args);
  if (!status.ok()) return status;
  BindDropout<T>(call, args);
  BindResults(call, args);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, CrossAttentionGradArgs<T>* args) {
  const absl::Status status = BindCrossAttention<T>(call, args);
  if (!status.ok()) return status;
  BindDropout<T>(call, args);
  BindGradientInputs(call, args);
  T *d_query = nullptr, *d_key_value = nullptr;
  call->Output("d_query", &d_query);
  call->Output("d_key_value", &d_key_value);
  args->SetQueryKeyValueGradient(d_query, d_key_value);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, QuantizedAttentionArgs<T>* args) {
  const absl::Status status = BindSelfAttention<T>(call, args);
  if (!status.ok()) return status;
  for (int64_t b = 0; b < args->num_sequences; ++b) {
    const int64_t length = args->row_splits[b + 1] - args->row_splits[b];
    if (length <= kQuantizedAttentionLength) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("A sequence must have at most ", kQuantizedAttentionLength,
                     " tokens, so that int32 can hold the sums. Received: ", length,
                     " tokens in sequence ", b, ". Use varlen_attention."));
  }
  call->Output("output", &args->output);
  return call->status();
}

}  // namespace bert_tf
