// BertTf>VarlenAttention and its gradient; custom_ops/kernels/attention/varlen_attention.h has the
// formula.
#include <cstdint>
#include <limits>

#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The shapes of the inputs that both ops have in common, and those that follow from them.
struct AttentionShapes {
  ShapeHandle qkv;        // [R, 3, N, D]
  ShapeHandle output;     // [R, N, D]
  ShapeHandle logsumexp;  // [R, N]

  // Also checks the attributes, the row splits and the seed.
  absl::Status Read(InferenceContext* c) {
    float dropout_rate;
    TF_RETURN_IF_ERROR(ReadDropoutRate(c, &dropout_rate));
    int64_t num_global_tokens;
    TF_RETURN_IF_ERROR(c->GetAttr("num_global_tokens", &num_global_tokens));
    if (num_global_tokens < 0) {
      return InvalidArgument("`num_global_tokens` must be at least 0. Received: num_global_tokens=",
                             num_global_tokens);
    }
    const char kQkv[] = "have shape [rows, 3, heads, head size]";
    TF_RETURN_IF_ERROR(ReadShape(c, "qkv", 4, kQkv, &qkv));
    DimensionHandle three;
    if (!c->WithValue(c->Dim(qkv, 1), 3, &three).ok()) {
      return InvalidArgument("`qkv` must ", kQkv, ". Received: qkv.shape=", c->DebugString(qkv));
    }
    ShapeHandle splits;
    TF_RETURN_IF_ERROR(ReadShape(c, "row_splits", 1, "have shape [sequences + 1]", &splits));
    if (c->Value(c->Dim(splits, 0)) == 0) {
      return InvalidArgument(
          "`row_splits` must have shape [sequences + 1]. Received: row_splits.shape=[0]");
    }
    TF_RETURN_IF_ERROR(CheckSeed(c));
    const DimensionHandle rows = c->Dim(qkv, 0), heads = c->Dim(qkv, 2), size = c->Dim(qkv, 3);
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

REGISTER_OP("BertTf>VarlenAttention")
    .Input("qkv: T")
    .Input("row_splits: Tsplits")
    .Input("seed: int64")
    .Output("output: T")
    .Output("logsumexp: float")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tsplits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("window_size: int = -1")
    .Attr("num_global_tokens: int = 0")
    .SetShapeFn([](InferenceContext* c) {
      AttentionShapes shapes;
      TF_RETURN_IF_ERROR(shapes.Read(c));
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
    .Output("d_qkv: T")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tsplits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("window_size: int = -1")
    .Attr("num_global_tokens: int = 0")
    .SetShapeFn([](InferenceContext* c) {
      AttentionShapes shapes;
      TF_RETURN_IF_ERROR(shapes.Read(c));
      TF_RETURN_IF_ERROR(MergeShape(c, "d_output", &shapes.output));
      TF_RETURN_IF_ERROR(MergeShape(c, "output", &shapes.output));
      TF_RETURN_IF_ERROR(MergeShape(c, "logsumexp", &shapes.logsumexp));
      c->set_output(0, shapes.qkv);
      return absl::OkStatus();
    });

BERT_TF_REGISTER_CPU("VarlenAttention", CpuOp, AttentionArgs, VarlenAttention);
BERT_TF_REGISTER_CPU("VarlenAttentionGrad", CpuOp, AttentionGradArgs, VarlenAttentionGrad);

}  // namespace
}  // namespace bert_tf
