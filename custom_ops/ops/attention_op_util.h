// The shapes of the attention ops.
#pragma once

#include <cstdint>
#include <limits>

#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {

// The shapes of the inputs that the ops have in common, and those that follow from them.
struct AttentionShapes {
  tensorflow::shape_inference::ShapeHandle qkv;        // [R, 3, N, D]
  tensorflow::shape_inference::ShapeHandle output;     // [R, N, D]
  tensorflow::shape_inference::ShapeHandle logsumexp;  // [R, N]

  // Also checks the attributes and the row splits.
  absl::Status Read(tensorflow::shape_inference::InferenceContext* c) {
    int64_t num_global_tokens;
    TF_RETURN_IF_ERROR(c->GetAttr("num_global_tokens", &num_global_tokens));
    if (num_global_tokens < 0) {
      return InvalidArgument("`num_global_tokens` must be at least 0. Received: num_global_tokens=",
                             num_global_tokens);
    }
    const char kQkv[] = "have shape [rows, 3, heads, head size]";
    TF_RETURN_IF_ERROR(ReadShape(c, "qkv", 4, kQkv, &qkv));
    tensorflow::shape_inference::DimensionHandle three;
    if (!c->WithValue(c->Dim(qkv, 1), 3, &three).ok()) {
      return InvalidArgument("`qkv` must ", kQkv, ". Received: qkv.shape=", c->DebugString(qkv));
    }
    tensorflow::shape_inference::ShapeHandle splits;
    TF_RETURN_IF_ERROR(ReadShape(c, "row_splits", 1, "have shape [sequences + 1]", &splits));
    if (c->Value(c->Dim(splits, 0)) == 0) {
      return InvalidArgument(
          "`row_splits` must have shape [sequences + 1]. Received: row_splits.shape=[0]");
    }
    const auto rows = c->Dim(qkv, 0), heads = c->Dim(qkv, 2), size = c->Dim(qkv, 3);
    // Values that are not known are negative.
    if (c->Value(rows) > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("`qkv` must have at most 2^31 - 1 rows. Received: qkv.shape=",
                             c->DebugString(qkv), ". Split the batch.");
    }
    if (c->Value(size) == 0 && c->Value(heads) > 0) {
      return InvalidArgument("`qkv` must have a head size of at least 1. Received: qkv.shape=",
                             c->DebugString(qkv));
    }
    output = c->MakeShape({rows, heads, size});
    logsumexp = c->MakeShape({rows, heads});
    return absl::OkStatus();
  }
};

}  // namespace bert_tf
