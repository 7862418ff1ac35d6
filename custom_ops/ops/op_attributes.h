// The attributes of the ops, which are read and checked in the same way in the OpKernels for CPU
// and GPU and in the shape functions. The XLA lowerings call the shape functions, and so have the
// same checks.
//
// Context is an OpKernelConstruction or an InferenceContext.
#ifndef BERT_TF_CUSTOM_OPS_OPS_OP_ATTRIBUTES_H_
#define BERT_TF_CUSTOM_OPS_OPS_OP_ATTRIBUTES_H_

#include <cstdint>
#include <limits>
#include <string>

#include "custom_ops/ops/op_util.h"

namespace bert_tf {

template <typename Context>
absl::Status ReadDropoutRate(Context* context, float* rate) {
  TF_RETURN_IF_ERROR(context->GetAttr("dropout_rate", rate));
  if (*rate >= 0.0f && *rate < 1.0f) return absl::OkStatus();
  return InvalidArgument("`dropout_rate` must be in [0, 1). Received: dropout_rate=", *rate);
}

template <typename Context>
absl::Status ReadEpsilon(Context* context, float* epsilon) {
  TF_RETURN_IF_ERROR(context->GetAttr("epsilon", epsilon));
  if (*epsilon >= 0.0f) return absl::OkStatus();
  return InvalidArgument("`epsilon` must be at least 0. Received: epsilon=", *epsilon);
}

// The number of tensors of an optional input: none or one.
template <typename Context>
absl::Status ReadOptional(Context* context, const char* attribute, int* number) {
  TF_RETURN_IF_ERROR(context->GetAttr(attribute, number));
  if (*number <= 1) return absl::OkStatus();
  return InvalidArgument("`", attribute, "` must be 0 or 1. Received: ", attribute, "=", *number);
}

struct ResidualLayerNormAttributes {
  int num_residual;
  int num_bias;
  float dropout_rate;

  template <typename Context>
  absl::Status Read(Context* context) {
    TF_RETURN_IF_ERROR(ReadOptional(context, "num_residual", &num_residual));
    TF_RETURN_IF_ERROR(ReadOptional(context, "num_bias", &num_bias));
    return ReadDropoutRate(context, &dropout_rate);
  }

  // Reads the attributes of the gradient op. num_dresidual says whether dresidual is a separate
  // result.
  template <typename Context>
  absl::Status ReadGrad(Context* context, int* num_dresidual) {
    TF_RETURN_IF_ERROR(Read(context));
    TF_RETURN_IF_ERROR(context->GetAttr("num_dresidual", num_dresidual));
    const int expected = dropout_rate > 0.0f ? num_residual : 0;
    if (*num_dresidual == expected) return absl::OkStatus();
    return InvalidArgument(
        "`num_dresidual` must be ", expected,
        ": 1 only with residual and dropout. Received: num_dresidual=", *num_dresidual);
  }
};

struct VarlenAttentionAttributes {
  float dropout_rate;
  bool causal;
  int64_t window_size;
  int64_t num_global_tokens;

  template <typename Context>
  absl::Status Read(Context* context) {
    TF_RETURN_IF_ERROR(ReadDropoutRate(context, &dropout_rate));
    TF_RETURN_IF_ERROR(context->GetAttr("causal", &causal));
    TF_RETURN_IF_ERROR(context->GetAttr("window_size", &window_size));
    TF_RETURN_IF_ERROR(context->GetAttr("num_global_tokens", &num_global_tokens));
    if (num_global_tokens >= 0) return absl::OkStatus();
    return InvalidArgument("`num_global_tokens` must be at least 0. Received: num_global_tokens=",
                           num_global_tokens);
  }
};

// Checks the sizes of qkv [rows, 3, heads, head size] and the number of row splits. They are
// negative if a shape function does not know them. `qkv_shape` is the shape of qkv as text.
inline absl::Status CheckAttentionSizes(int64_t rows, int64_t heads, int64_t head_size,
                                        int64_t splits, const std::string& qkv_shape) {
  if (rows > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("`qkv` must have at most 2^31 - 1 rows. Received: qkv.shape=", qkv_shape,
                           ". Split the batch.");
  }
  if (head_size == 0 && heads > 0) {
    return InvalidArgument("`qkv` must have a head size of at least 1. Received: qkv.shape=",
                           qkv_shape);
  }
  if (splits == 0) {
    return InvalidArgument(
        "`row_splits` must have shape [sequences + 1]. Received: row_splits.shape=[0]");
  }
  return absl::OkStatus();
}

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_OP_ATTRIBUTES_H_
