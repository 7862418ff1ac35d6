// The arguments of the ops on the rows of a matrix, of the dense ops and of the optimizer's;
// op_args.h says how they are bound.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
  call->OptionalInput("other_dy", &args->other_dy);
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

}  // namespace bert_tf
