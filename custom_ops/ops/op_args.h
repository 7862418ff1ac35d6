// The arguments of the kernels from a call of an op, in the same way for OpKernels and for XLA's
// foreign functions, and for CPU and GPU. T is the element type of the kernels, or Gpu for the
// launchers of a GPU, which take the type as a number.
//
// Bind sets the arguments from an OpCall. Inputs, outputs and attributes have the names of the op's
// definition, and their order does not matter. The shape function of the op has checked the shapes
// before.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "custom_ops/kernels/attention/quantized_attention.h"
#include "custom_ops/kernels/attention/row_splits.h"
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/dense/bfloat16_dense.h"
#include "custom_ops/kernels/dense/fused_dense.h"
#include "custom_ops/kernels/dense/fused_gate.h"
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"
#include "custom_ops/ops/op_call.h"

namespace bert_tf {

// The arguments of ops whose tensors have types of their own.
template <typename>
using NormArgs = GlobalNormArgs;
template <typename>
using AdamArgs = AdamWeightDecayArgs;

template <typename Call>
absl::Status Bind(Call* call, GlobalNormArgs* args) {
  for (const Buffer& tensor : call->InputList("tensors")) {
    args->tensors.push_back({tensor.data, tensor.Count(), tensor.float_type});
  }
  args->scratch = call->Scratch(NumBlocks(args->tensors));
  call->Output("norm", &args->norm);
  return call->status();
}

// The outputs of the call are the new values of the variables and their means.
template <typename Call>
absl::Status Bind(Call* call, AdamWeightDecayArgs* args) {
  const auto variables = call->InputList("variables"), means = call->InputList("means"),
             squares = call->InputList("squares"), gradients = call->InputList("gradients");
  const int count = static_cast<int>(variables.size());
  for (int i = 0; i < count; ++i) {
    const Buffer& gradient = gradients[i];
    const auto old_value = [i](const auto& of) { return static_cast<const float*>(of[i].data); };
    const auto new_value = [&](int list) {
      return static_cast<float*>(call->OutputAt(list * count + i, {}));
    };
    args->tensors.push_back({{gradient.data, gradient.Count(), gradient.float_type},
                             old_value(variables),
                             old_value(means),
                             old_value(squares),
                             new_value(0),
                             new_value(1),
                             new_value(2)});
  }
  call->Input("learning_rates", &args->learning_rates);
  call->Input("weight_decays", &args->weight_decays);
  call->Input("gradient_scale", &args->gradient_scale);
  call->Input("steps", &args->steps);
  call->Attribute("beta_1", &args->beta_1);
  call->Attribute("beta_2", &args->beta_2);
  call->Attribute("epsilon", &args->epsilon);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, BiasGeluArgs<T>* args) {
  call->Matrix("x", &args->x, args);
  call->Input("bias", &args->bias);
  call->Attribute("approximate", &args->approximate);
  call->Output("y", &args->y, {"x"});
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, BiasGeluGradArgs<T>* args) {
  call->Matrix("dy", &args->dy, args);
  call->Input("x", &args->x);
  call->Input("bias", &args->bias);
  call->Attribute("approximate", &args->approximate);
  call->Output("dx", &args->dx, {"dy", "x"});
  call->Output("dbias", &args->dbias);
  if constexpr (kIsGpu<T>) {
    args->scratch = call->Scratch(BertTfCudaBiasGeluGradScratch(args->rows, args->columns));
  } else {
    args->scratch = call->Scratch(BiasGeluGradScratchSize(args->rows, args->columns));
  }
  return call->status();
}

// Sets whether it is RMSNorm, which the kernels for a GPU do not compute.
template <typename T, typename Call>
absl::Status BindRms(Call* call, bool* is_rms) {
  call->Attribute("is_rms", is_rms);
  if (!kIsGpu<T> || !*is_rms) return call->status();
  return absl::InvalidArgumentError(
      "`is_rms` must be False on a GPU. Received: is_rms=True. Set BERT_TF_OPS=reference.");
}

template <typename Call, typename T>
absl::Status Bind(Call* call, ResidualLayerNormArgs<T>* args) {
  call->Matrix("x", &args->x, args);
  call->OptionalInput("residual", &args->residual);
  call->OptionalInput("bias", &args->bias);
  call->Input("gamma", &args->gamma);
  call->Input("beta", &args->beta);
  call->Seed(&args->seed);
  call->Attribute("epsilon", &args->epsilon);
  call->Attribute("dropout_rate", &args->dropout_rate);
  call->Output("y", &args->y, {"x", "residual"});
  call->Output("mean", &args->mean);
  call->Output("rstd", &args->rstd);
  return BindRms<T>(call, &args->is_rms);
}

template <typename Call, typename T>
absl::Status Bind(Call* call, ResidualLayerNormGradArgs<T>* args) {
  call->Matrix("dy", &args->dy, args);
  call->Input("x", &args->x);
  call->OptionalInput("residual", &args->residual);
  call->OptionalInput("bias", &args->bias);
  call->Input("gamma", &args->gamma);
  call->Input("mean", &args->mean);
  call->Input("rstd", &args->rstd);
  call->Seed(&args->seed);
  call->Attribute("dropout_rate", &args->dropout_rate);
  call->Output("dx", &args->dx, {"dy"});
  call->OptionalOutput("dresidual", &args->dresidual, {"x", "residual"});
  call->OptionalOutput("dbias", &args->dbias);
  call->Output("dgamma", &args->dgamma);
  call->Output("dbeta", &args->dbeta);
  if constexpr (kIsGpu<T>) {
    args->scratch =
        call->Scratch(BertTfCudaResidualLayerNormGradScratch(args->rows, args->columns));
  } else {
    args->scratch = call->Scratch(ResidualLayerNormGradScratchSize(args->rows, args->columns));
  }
  return BindRms<T>(call, &args->is_rms);
}

template <typename Call>
DenseActivation ReadActivation(Call* call) {
  std::string activation;
  call->Attribute("activation", &activation);
  return activation == "gelu"       ? DenseActivation::kGelu
         : activation == "gelu_new" ? DenseActivation::kApproximateGelu
         : activation == "silu"     ? DenseActivation::kSilu
                                    : DenseActivation::kNone;
}

// Sets the arguments of the gate, or of its gradient, which has an input `dy`.
template <typename Call, typename T>
absl::Status Bind(Call* call, GateArgs<T>* args) {
  call->Matrix("x", &args->x, args);
  args->columns /= 2;
  args->activation = ReadActivation(call);
  call->OptionalInput("dy", &args->dy);
  call->OptionalOutput("y", &args->result);
  call->OptionalOutput("dx", &args->result, {"x"});
  return call->status();
}

// Sets what all dense ops have in common.
template <typename Call, typename T>
void BindDense(Call* call, DenseArgs<T>* args) {
  args->activation = ReadActivation(call);
  call->Attribute("is_gated", &args->is_gated);
  call->Attribute("epsilon", &args->epsilon);
  call->Attribute("units", &args->columns);
  const Buffer x = call->Input("x");
  args->x = static_cast<const T*>(x.data);
  args->rows = x.sizes[0];
  args->depth = x.sizes[1];
  call->OptionalInput("bias", &args->bias);
  call->OptionalInput("residual", &args->residual);
  call->OptionalInput("gamma", &args->gamma);
  call->OptionalInput("beta", &args->beta);
  call->Output("y", &args->y, {"residual"});
}

// Sets the static scale of x. Graphs of older versions do not have it, and it may be empty. It is
// checked here, because its values are known only now.
template <typename Call, typename T>
absl::Status BindStaticScale(Call* call, const char* name, QuantizedDenseArgs<T>* args) {
  if (!call->HasInput(name)) return absl::OkStatus();
  const Buffer input = call->Input(name);
  if (input.sizes[0] == 0) return absl::OkStatus();
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

template <typename Call, typename T>
absl::Status Bind(Call* call, FusedDenseArgs<T>* args) {
  BindDense(call, args);
  call->Input("packed", &args->packed);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, Bfloat16DenseArgs<T>* args) {
  BindDense(call, args);
  call->Input("packed", &args->packed);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, QuantizedDenseArgs<T>* args) {
  BindDense(call, args);
  call->Input("packed", &args->packed);
  call->Input("scale", &args->column_scale);
  call->Input("column_sums", &args->column_sums);
  call->Input("smoothing", &args->smoothing);
  const absl::Status status = BindStaticScale(call, "static_scale", args);
  return status.ok() ? call->status() : status;
}

// Sets what both feed-forward ops have in common.
template <typename Call, typename Args>
void BindFeedForward(Call* call, Args* args) {
  auto &first = args->first, &second = args->second;
  first.activation = ReadActivation(call);
  call->Attribute("epsilon", &second.epsilon);
  call->Attribute("inner_units", &first.columns);
  const Buffer x = call->Input("x");
  first.x = second.residual = static_cast<decltype(first.x)>(x.data);
  first.rows = second.rows = x.sizes[0];
  first.depth = second.columns = x.sizes[1];
  second.depth = first.columns;
  call->Input("packed_1", &first.packed);
  call->Input("packed_2", &second.packed);
  call->Input("bias_1", &first.bias);
  call->Input("bias_2", &second.bias);
  call->Input("gamma", &second.gamma);
  call->Input("beta", &second.beta);
  call->Output("y", &second.y, {"x"});
}

template <typename Call, typename T>
absl::Status Bind(Call* call, Bfloat16FeedForwardArgs<T>* args) {
  BindFeedForward(call, args);
  return call->status();
}

template <typename Call, typename T>
absl::Status Bind(Call* call, QuantizedFeedForwardArgs<T>* args) {
  BindFeedForward(call, args);
  call->Input("scale_1", &args->first.column_scale);
  call->Input("scale_2", &args->second.column_scale);
  call->Input("column_sums_1", &args->first.column_sums);
  call->Input("column_sums_2", &args->second.column_sums);
  call->Input("smoothing_1", &args->first.smoothing);
  call->Input("smoothing_2", &args->second.smoothing);
  absl::Status status = BindStaticScale(call, "static_scale_1", &args->first);
  if (status.ok()) status = BindStaticScale(call, "static_scale_2", &args->second);
  return status.ok() ? call->status() : status;
}

template <typename Call, typename T>
absl::Status Bind(Call* call, PackDenseArgs<T>* args) {
  const Buffer kernel = call->Input("kernel");
  call->Attribute("transposed", &args->transposed);
  args->kernel = static_cast<const T*>(kernel.data);
  args->depth = kernel.sizes[args->transposed ? 1 : 0];
  args->columns = kernel.sizes[args->transposed ? 0 : 1];
  call->Output("packed", &args->packed);
  return call->status();
}

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

// Sets all arguments of a kernel.
template <typename Call, typename Args>
absl::Status BindAll(Call* call, Args* args) {
  const absl::Status status = Bind(call, args);
  return status.ok() ? call->AllBound() : status;
}

// The status of a launch from what a launcher returns: 0 or an error, or a status.
inline absl::Status StatusOf(absl::string_view op, int error) {
  if (error == 0) return absl::OkStatus();
  const absl::string_view why = BertTfCudaError();
  return absl::InternalError(absl::StrCat(
      "The GPU kernel of ", op, " was not launched: ", why.empty() ? "invalid arguments" : why,
      ". BERT_TF_OPS=reference computes the same with stock TensorFlow."));
}
inline absl::Status StatusOf(absl::string_view, const absl::Status& status) { return status; }

// Calls the launcher of a GPU kernel for tensors of the kernels' type T.
template <typename Args, typename T, typename Launcher, typename Call>
absl::Status Launch(absl::string_view op, Launcher launcher, Call* call, void* stream) {
  Args args;
  const absl::Status status = BindAll(call, &args);
  if (!status.ok()) return status;
  constexpr int kType = std::is_same_v<T, BFloat16>  ? kBertTfBFloat16
                        : std::is_same_v<T, Float16> ? kBertTfFloat16
                                                     : kBertTfFloat32;
  return StatusOf(op, launcher(kType, args, stream));
}

}  // namespace bert_tf
