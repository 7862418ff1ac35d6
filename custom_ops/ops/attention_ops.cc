// The attention ops: BertTf>VarlenAttention, BertTf>VarlenCrossAttention, their gradients, and
// BertTf>QuantizedAttention. varlen_attention.h and quantized_attention.h in
// custom_ops/kernels/attention have the formulas.
#include <cstdint>
#include <limits>
#include <string>

#include "custom_ops/kernels/attention/quantized_attention.h"
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The shape of a tensor with rows of heads.
struct HeadRowsShape {
  ShapeHandle shape;  // [rows, ..., heads, head size]
  DimensionHandle rows, heads, size;

  // `columns` is that of [rows, columns, heads, head size], or 0 for [rows, heads, head size]. The
  // tensor must `be` that: "have shape ...".
  absl::Status Read(InferenceContext* c, const std::string& name, int columns, const char* be) {
    const int rank = columns == 0 ? 3 : 4;
    TF_RETURN_IF_ERROR(ReadShape(c, name.c_str(), rank, be, &shape));
    const auto refuse = [&](const auto&... must) {
      return InvalidArgument("`", name, "` must ", must..., ". Received: ", name,
                             ".shape=", c->DebugString(shape));
    };
    DimensionHandle unused;
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
absl::Status ReadRowSplitsShape(InferenceContext* c, const std::string& name, ShapeHandle* splits) {
  TF_RETURN_IF_ERROR(ReadShape(c, name.c_str(), 1, "have shape [sequences + 1]", splits));
  if (c->Value(c->Dim(*splits, 0)) != 0) return absl::OkStatus();
  return InvalidArgument("`", name, "` must have shape [sequences + 1]. Received: ", name,
                         ".shape=[0]");
}

// An input that the op of self-attention may lack.
struct OptionalInput {
  const char* name;
  const char* number;  // the attribute with 1, or with 0 if the op lacks it
  int rank;
  const char* be;  // how its shape must `be`: "have shape ..."
};

// Reads the shape of an optional input, which must fit: fits(shape).
template <typename Fits>
absl::Status ReadOptionalShape(InferenceContext* c, const OptionalInput& input, ShapeHandle qkv,
                               const Fits& fits, int* number, ShapeHandle* shape) {
  TF_RETURN_IF_ERROR(ReadOptional(c, input.number, number));
  if (*number == 0) return absl::OkStatus();
  TF_RETURN_IF_ERROR(ReadShape(c, input.name, input.rank, input.be, shape));
  if (fits(*shape)) return absl::OkStatus();
  return InvalidArgument("`", input.name, "` must ", input.be, ". Received: ", input.name,
                         ".shape=", c->DebugString(*shape), ", qkv.shape=", c->DebugString(qkv));
}

// Dimensions that are not known are negative, and they may be odd.
bool MayBeOdd(InferenceContext* c, DimensionHandle dimension) {
  return c->Value(dimension) < 0 || c->Value(dimension) % 2 == 1;
}

// Reads the shape of the optional distance bias: [heads, 2 M + 1].
absl::Status ReadDistanceBiasShape(InferenceContext* c, const HeadRowsShape& rows, int* number,
                                   ShapeHandle* shape) {
  const auto fits = [&](ShapeHandle bias) {
    DimensionHandle unused;
    return c->Merge(c->Dim(bias, 0), rows.heads, &unused).ok() && MayBeOdd(c, c->Dim(bias, 1));
  };
  return ReadOptionalShape(
      c,
      {"distance_bias", "num_distance_bias", 2, "have shape [heads, an odd number of distances]"},
      rows.shape, fits, number, shape);
}

// Checks the shape of the optional rotation: [places, S].
absl::Status CheckRotation(InferenceContext* c, ShapeHandle qkv) {
  const auto fits = [&](ShapeHandle rotation) {
    const int64_t columns = c->Value(c->Dim(rotation, 1)), most = c->Value(c->Dim(qkv, 3));
    return columns < 0 || (columns % 2 == 0 && (most < 0 || columns <= most));
  };
  int number;
  ShapeHandle shape;
  return ReadOptionalShape(
      c,
      {"rotation", "num_rotation", 2,
       "have shape [places, an even number of columns, at most the head size]"},
      qkv, fits, &number, &shape);
}

// Checks the shapes of the optional vectors of distances, [V, 2, heads, head size], and their rows.
absl::Status ReadDistanceVectorsShape(InferenceContext* c, ShapeHandle qkv, int* number,
                                      ShapeHandle* shape) {
  const auto fits = [&](ShapeHandle vectors) {
    DimensionHandle unused;
    return c->WithValue(c->Dim(vectors, 1), 2, &unused).ok() &&
           c->Merge(c->Dim(vectors, 2), c->Dim(qkv, 2), &unused).ok() &&
           c->Merge(c->Dim(vectors, 3), c->Dim(qkv, 3), &unused).ok();
  };
  TF_RETURN_IF_ERROR(
      ReadOptionalShape(c,
                        {"distance_vectors", "num_distance_vectors", 4,
                         "have shape [kinds, 2, heads, head size], with those of `qkv`"},
                        qkv, fits, number, shape));
  ShapeHandle rows;
  return ReadOptionalShape(
      c, {"distance_rows", "num_distance_vectors", 1, "have shape [an odd number of distances]"},
      qkv, [&](ShapeHandle shape) { return MayBeOdd(c, c->Dim(shape, 0)); }, number, &rows);
}

// The shapes of the inputs that the ops of self-attention have in common, and those that follow
// from them.
struct AttentionShapes {
  ShapeHandle qkv;            // [R, 3, N, D]
  ShapeHandle output;         // [R, N, D]
  ShapeHandle logsumexp;      // [R, N]
  int num_distance_bias;      // 0 or 1
  ShapeHandle distance_bias;  // [N, 2 M + 1]

  // It also checks the attributes and the row splits.
  absl::Status Read(InferenceContext* c) {
    int64_t num_global_tokens;
    TF_RETURN_IF_ERROR(c->GetAttr("num_global_tokens", &num_global_tokens));
    if (num_global_tokens < 0) {
      return InvalidArgument("`num_global_tokens` must be at least 0. Received: num_global_tokens=",
                             num_global_tokens);
    }
    HeadRowsShape rows;
    TF_RETURN_IF_ERROR(rows.Read(c, "qkv", 3, "have shape [rows, 3, heads, head size]"));
    ShapeHandle splits;
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
  ShapeHandle query;      // [Rq, N, D], and that of the output
  ShapeHandle key_value;  // [Rk, 2, N, D]
  ShapeHandle logsumexp;  // [Rq, N]

  absl::Status Read(InferenceContext* c) {
    HeadRowsShape queries, keys;
    TF_RETURN_IF_ERROR(queries.Read(c, "query", 0, "have shape [rows, heads, head size]"));
    TF_RETURN_IF_ERROR(keys.Read(c, "key_value", 2, "have shape [rows, 2, heads, head size]"));
    DimensionHandle heads, size;
    if (!c->Merge(queries.heads, keys.heads, &heads).ok() ||
        !c->Merge(queries.size, keys.size, &size).ok()) {
      return InvalidArgument(
          "`key_value` must have the heads and the head size of `query`. Received: "
          "key_value.shape=",
          c->DebugString(keys.shape), ", query.shape=", c->DebugString(queries.shape));
    }
    ShapeHandle splits, key_splits, merged;
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

// Reads the shapes of an op with dropout. The seed must be a scalar and the rate in [0, 1).
template <typename Shapes>
absl::Status ReadWithDropout(InferenceContext* c, Shapes* shapes) {
  TF_RETURN_IF_ERROR(shapes->Read(c));
  float dropout_rate;
  TF_RETURN_IF_ERROR(ReadDropoutRate(c, &dropout_rate));
  return CheckSeed(c);
}

// Reads the shapes of a gradient op, whose inputs are also the results of the forward pass and the
// gradient of the `output`, which is one of `shapes`.
template <typename Shapes>
absl::Status ReadGradient(InferenceContext* c, Shapes* shapes, ShapeHandle* output) {
  TF_RETURN_IF_ERROR(ReadWithDropout(c, shapes));
  TF_RETURN_IF_ERROR(MergeShape(c, "d_output", output));
  TF_RETURN_IF_ERROR(MergeShape(c, "output", output));
  return MergeShape(c, "logsumexp", &shapes->logsumexp);
}

REGISTER_OP("BertTf>VarlenAttention")
    .Input("qkv: T")
    .Input("row_splits: Tsplits")
    .Input("seed: int64")
    .Input("distance_bias: num_distance_bias * float")
    .Input("rotation: num_rotation * float")
    .Input("distance_vectors: num_distance_vectors * float")
    .Input("distance_rows: num_distance_vectors * int32")
    .Output("output: T")
    .Output("logsumexp: float")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tsplits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("window_size: int = -1")
    .Attr("num_global_tokens: int = 0")
    .Attr("bfloat16_products: bool = false")
    .Attr("max_length: int >= 0 = 0")
    .Attr("num_distance_bias: int >= 0 = 0")
    .Attr("num_rotation: int >= 0 = 0")
    .Attr("num_distance_vectors: int >= 0 = 0")
    .SetShapeFn([](InferenceContext* c) {
      AttentionShapes shapes;
      TF_RETURN_IF_ERROR(ReadWithDropout(c, &shapes));
      TF_RETURN_IF_ERROR(CheckRotation(c, shapes.qkv));
      int num_vectors;
      ShapeHandle vectors;
      TF_RETURN_IF_ERROR(ReadDistanceVectorsShape(c, shapes.qkv, &num_vectors, &vectors));
      c->set_output(0, shapes.output);
      c->set_output(1, shapes.logsumexp);
      return absl::OkStatus();
    });

REGISTER_OP("BertTf>VarlenAttentionGrad")
    .Input("d_output: T")
    .Input("qkv: T")
    .Input("output: T")
    .Input("logsumexp: float")
    .Input("row_splits: Tsplits")
    .Input("seed: int64")
    .Input("distance_bias: num_distance_bias * float")
    .Input("rotation: num_rotation * float")
    .Input("distance_vectors: num_distance_vectors * float")
    .Input("distance_rows: num_distance_vectors * int32")
    .Output("d_qkv: T")
    .Output("d_distance_bias: num_distance_bias * float")
    .Output("d_distance_vectors: num_distance_vectors * float")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tsplits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("window_size: int = -1")
    .Attr("num_global_tokens: int = 0")
    .Attr("bfloat16_products: bool = false")
    .Attr("max_length: int >= 0 = 0")
    .Attr("num_distance_bias: int >= 0 = 0")
    .Attr("num_rotation: int >= 0 = 0")
    .Attr("num_distance_vectors: int >= 0 = 0")
    .SetShapeFn([](InferenceContext* c) {
      AttentionShapes shapes;
      TF_RETURN_IF_ERROR(ReadGradient(c, &shapes, &shapes.output));
      TF_RETURN_IF_ERROR(CheckRotation(c, shapes.qkv));
      int num_vectors;
      ShapeHandle vectors;
      TF_RETURN_IF_ERROR(ReadDistanceVectorsShape(c, shapes.qkv, &num_vectors, &vectors));
      c->set_output(0, shapes.qkv);
      if (shapes.num_distance_bias == 1) c->set_output(1, shapes.distance_bias);
      if (num_vectors == 1) c->set_output(1 + shapes.num_distance_bias, vectors);
      return absl::OkStatus();
    });

REGISTER_OP("BertTf>VarlenCrossAttention")
    .Input("query: T")
    .Input("key_value: T")
    .Input("query_row_splits: Tquery_splits")
    .Input("key_row_splits: Tkey_splits")
    .Input("seed: int64")
    .Output("output: T")
    .Output("logsumexp: float")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tquery_splits: {int32, int64}")
    .Attr("Tkey_splits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("bfloat16_products: bool = false")
    .SetShapeFn([](InferenceContext* c) {
      CrossAttentionShapes shapes;
      TF_RETURN_IF_ERROR(ReadWithDropout(c, &shapes));
      c->set_output(0, shapes.query);
      c->set_output(1, shapes.logsumexp);
      return absl::OkStatus();
    });

REGISTER_OP("BertTf>VarlenCrossAttentionGrad")
    .Input("d_output: T")
    .Input("query: T")
    .Input("key_value: T")
    .Input("output: T")
    .Input("logsumexp: float")
    .Input("query_row_splits: Tquery_splits")
    .Input("key_row_splits: Tkey_splits")
    .Input("seed: int64")
    .Output("d_query: T")
    .Output("d_key_value: T")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tquery_splits: {int32, int64}")
    .Attr("Tkey_splits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("bfloat16_products: bool = false")
    .SetShapeFn([](InferenceContext* c) {
      CrossAttentionShapes shapes;
      TF_RETURN_IF_ERROR(ReadGradient(c, &shapes, &shapes.query));
      c->set_output(0, shapes.query);
      c->set_output(1, shapes.key_value);
      return absl::OkStatus();
    });

REGISTER_OP("BertTf>QuantizedAttention")
    .Input("qkv: T")
    .Input("row_splits: Tsplits")
    .Input("distance_bias: num_distance_bias * float")
    .Output("output: T")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tsplits: {int32, int64}")
    .Attr("causal: bool = false")
    .Attr("window_size: int = -1")
    .Attr("num_global_tokens: int = 0")
    .Attr("num_distance_bias: int >= 0 = 0")
    .SetShapeFn([](InferenceContext* c) {
      AttentionShapes shapes;
      TF_RETURN_IF_ERROR(shapes.Read(c));
      TF_RETURN_IF_ERROR(CheckDepth(c, "qkv", c->Dim(shapes.qkv, 3), kQuantizedDenseDepth));
      c->set_output(0, shapes.output);
      return absl::OkStatus();
    });

BERT_TF_REGISTER_CPU("VarlenAttention", AttentionArgs, VarlenAttention);
BERT_TF_REGISTER_CPU("VarlenAttentionGrad", AttentionGradArgs, VarlenAttentionGrad);
BERT_TF_REGISTER_CPU("VarlenCrossAttention", CrossAttentionArgs, VarlenAttention);
BERT_TF_REGISTER_CPU("VarlenCrossAttentionGrad", CrossAttentionGradArgs, VarlenAttentionGrad);
BERT_TF_REGISTER_CPU("QuantizedAttention", QuantizedAttentionArgs, QuantizedAttention);

}  // namespace
}  // namespace bert_tf
