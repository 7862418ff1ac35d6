// The shapes of the attention ops.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {

// The shape of a tensor with rows of heads.
struct HeadRowsShape {
  tensorflow::shape_inference::ShapeHandle shape;  // [rows, ..., heads, head size]
  tensorflow::shape_inference::DimensionHandle rows, heads, size;

  // `columns` is that of [rows, columns, heads, head size], or 0 for [rows, heads, head size]. The
  // tensor must `be` that: "have shape ...".
  absl::Status Read(tensorflow::shape_inference::InferenceContext* c, const std::string& name,
                    int columns, const char* be) {
    const int rank = columns == 0 ? 3 : 4;
    TF_RETURN_IF_ERROR(ReadShape(c, name.c_str(), rank, be, &shape));
    const auto refuse = [&](const auto&... must) {
      return InvalidArgument("`", name, "` must ", must..., ". Received: ", name,
                             ".shape=", c->DebugString(shape));
    };
    tensorflow::shape_inference::DimensionHandle unused;
    if (columns > 0 && !c->WithValue(c->Dim(shape, 1), columns, &unused).ok()) return refuse(be);
    rows = c->Dim(shape, 0), heads = c->Dim(shape, rank - 2), size = c->Dim(shape, rank - 1);
    // Values that are not known are negative.
    if (c->Value(rows) > std::numeric_limits<int32_t>::max()) {
      return refuse("have at most 2^31 - 1 rows, so the batch must be split");
    }
    if (c->Value(size) == 0 && c->Value(heads) > 0) return refuse("have a head size of at least 1");
    return absl::OkStatus();
  }
};

// Reads the shape of row splits: [sequences + 1].
inline absl::Status ReadRowSplitsShape(tensorflow::shape_inference::InferenceContext* c,
                                       const std::string& name,
                                       tensorflow::shape_inference::ShapeHandle* splits) {
  TF_RETURN_IF_ERROR(ReadShape(c, name.c_str(), 1, "have shape [sequences + 1]", splits));
  if (c->Value(c->Dim(*splits, 0)) != 0) return absl::OkStatus();
  return InvalidArgument("`", name, "` must have shape [sequences + 1]. Received: ", name,
                         ".shape=[0]");
}

// Reads the shape of the optional distance bias: [heads, 2 M + 1].
inline absl::Status ReadDistanceBiasShape(tensorflow::shape_inference::InferenceContext* c,
                                          const HeadRowsShape& rows, int* number,
                                          tensorflow::shape_inference::ShapeHandle* shape) {
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_distance_bias", number));
  if (*number == 0) return absl::OkStatus();
  constexpr char kBe[] = "have shape [heads, an odd number of distances]";
  TF_RETURN_IF_ERROR(ReadShape(c, "distance_bias", 2, kBe, shape));
  tensorflow::shape_inference::DimensionHandle unused;
  const int64_t distances = c->Value(c->Dim(*shape, 1));
  if (c->Merge(c->Dim(*shape, 0), rows.heads, &unused).ok() &&
      (distances < 0 || distances % 2 == 1)) {
    return absl::OkStatus();
  }
  return InvalidArgument("`distance_bias` must ", kBe,
                         ". Received: distance_bias.shape=", c->DebugString(*shape),
                         ", qkv.shape=", c->DebugString(rows.shape));
}

// The shapes of the inputs that the ops of self-attention have in common, and those that follow
// from them.
struct AttentionShapes {
  tensorflow::shape_inference::ShapeHandle qkv;            // [R, 3, N, D]
  tensorflow::shape_inference::ShapeHandle output;         // [R, N, D]
  tensorflow::shape_inference::ShapeHandle logsumexp;      // [R, N]
  int num_distance_bias;                                   // 0 or 1
  tensorflow::shape_inference::ShapeHandle distance_bias;  // [N, 2 M + 1]

  // Also checks the attributes and the row splits.
  absl::Status Read(tensorflow::shape_inference::InferenceContext* c) {
    int64_t num_global_tokens;
    TF_RETURN_IF_ERROR(c->GetAttr("num_global_tokens", &num_global_tokens));
    if (num_global_tokens < 0) {
      return InvalidArgument("`num_global_tokens` must be at least 0. Received: num_global_tokens=",
                             num_global_tokens);
    }
    HeadRowsShape rows;
    TF_RETURN_IF_ERROR(rows.Read(c, "qkv", 3, "have shape [rows, 3, heads, head size]"));
    tensorflow::shape_inference::ShapeHandle splits;
    TF_RETURN_IF_ERROR(ReadRowSplitsShape(c, "row_splits", &splits));
    TF_RETURN_IF_ERROR(ReadDistanceBiasShape(c, rows, &num_distance_bias, &distance_bias));
    qkv = rows.shape;
    output = c->MakeShape({rows.rows, rows.heads, rows.size});
    logsumexp = c->MakeShape({rows.rows, rows.heads});
    return absl::OkStatus();
  }
};

// The same for cross-attention.
struct CrossAttentionShapes {
  tensorflow::shape_inference::ShapeHandle query;      // [Rq, N, D], and that of the output
  tensorflow::shape_inference::ShapeHandle key_value;  // [Rk, 2, N, D]
  tensorflow::shape_inference::ShapeHandle logsumexp;  // [Rq, N]

  absl::Status Read(tensorflow::shape_inference::InferenceContext* c) {
    HeadRowsShape queries, keys;
    TF_RETURN_IF_ERROR(queries.Read(c, "query", 0, "have shape [rows, heads, head size]"));
    TF_RETURN_IF_ERROR(keys.Read(c, "key_value", 2, "have shape [rows, 2, heads, head size]"));
    tensorflow::shape_inference::DimensionHandle heads, size;
    if (!c->Merge(queries.heads, keys.heads, &heads).ok() ||
        !c->Merge(queries.size, keys.size, &size).ok()) {
      return InvalidArgument(
          "`key_value` must have the heads and the head size of `query`. Received: "
          "key_value.shape=",
          c->DebugString(keys.shape), ", query.shape=", c->DebugString(queries.shape));
    }
    tensorflow::shape_inference::ShapeHandle splits, key_splits, merged;
    TF_RETURN_IF_ERROR(ReadRowSplitsShape(c, "query_row_splits", &splits));
    TF_RETURN_IF_ERROR(ReadRowSplitsShape(c, "key_row_splits", &key_splits));
    if (!c->Merge(splits, key_splits, &merged).ok()) {
      return InvalidArgument(
          "`key_row_splits` must have the length of `query_row_splits`. Received: "
          "key_row_splits.shape=",
          c->DebugString(key_splits), ", query_row_splits.shape=", c->DebugString(splits));
    }
    query = c->MakeShape({queries.rows, heads, size});
    key_value = c->MakeShape({keys.rows, c->MakeDim(2), heads, size});
    logsumexp = c->MakeShape({queries.rows, heads});
    return absl::OkStatus();
  }
};

// The seed must be a scalar and the rate in [0, 1).
inline absl::Status CheckDropout(tensorflow::shape_inference::InferenceContext* c) {
  float dropout_rate;
  TF_RETURN_IF_ERROR(ReadDropoutRate(c, &dropout_rate));
  return CheckSeed(c);
}

}  // namespace bert_tf
