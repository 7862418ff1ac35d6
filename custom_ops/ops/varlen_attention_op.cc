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
  absl::Status Read(InferenceContext* c, int qkv_index, int splits_index, int seed_index) {
    float dropout_rate;
    TF_RETURN_IF_ERROR(ReadDropoutRate(c, &dropout_rate));
    int64_t num_global_tokens;
    TF_RETURN_IF_ERROR(c->GetAttr("num_global_tokens", &num_global_tokens));
    if (num_global_tokens < 0) {
      return InvalidArgument("`num_global_tokens` must be at least 0. Received: num_global_tokens=",
                             num_global_tokens);
    }
    qkv = c->MakeShape({c->UnknownDim(), c->MakeDim(3), c->UnknownDim(), c->UnknownDim()});
    if (!c->Merge(c->input(qkv_index), qkv, &qkv).ok()) {
      return InvalidArgument(
          "`qkv` must have shape [rows, 3, heads, head size]. Received: qkv.shape=",
          c->DebugString(c->input(qkv_index)));
    }
    ShapeHandle splits;
    TF_RETURN_IF_ERROR(
        ReadShape(c, splits_index, "row_splits", 1, "have shape [sequences + 1]", &splits));
    if (c->Value(c->Dim(splits, 0)) == 0) {
      return InvalidArgument(
          "`row_splits` must have shape [sequences + 1]. Received: row_splits.shape=[0]");
    }
    TF_RETURN_IF_ERROR(CheckSeed(c, seed_index));
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
      TF_RETURN_IF_ERROR(shapes.Read(c, 0, 1, 2));
      c->set_output(0, shapes.output);
      c->set_output(1, shapes.logsumexp);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Softmax attention over packed sequences; each row attends to its own sequence.

qkv: [R, 3, N, D], the queries, keys and values of the tokens of all sequences, one after another.
row_splits: [B + 1], the start of each sequence and R. The first number must be 0.
seed: The seed of the dropout. It has no effect if dropout_rate is 0.
output: [R, N, D].
logsumexp: [R, N], the log-sum-exp of the scores of each row, for the gradient.
dropout_rate: The dropout rate of the attention probabilities.
causal: Whether rows do not attend to later rows.
window_size: The largest distance of rows to which a row attends; no window if negative.
num_global_tokens: The number of first rows of each sequence for which the window does not apply.
)doc");

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
      TF_RETURN_IF_ERROR(shapes.Read(c, 1, 4, 5));
      TF_RETURN_IF_ERROR(MergeShape(c, 0, "d_output", &shapes.output));
      TF_RETURN_IF_ERROR(MergeShape(c, 2, "output", &shapes.output));
      TF_RETURN_IF_ERROR(MergeShape(c, 3, "logsumexp", &shapes.logsumexp));
      c->set_output(0, shapes.qkv);
      return absl::OkStatus();
    })
    .Doc(R"doc(
The gradient of VarlenAttention with respect to qkv.

output: The output of VarlenAttention.
logsumexp: The log-sum-exp of VarlenAttention.
)doc");

BERT_TF_REGISTER_CPU("VarlenAttention", CpuOp, AttentionArgs, VarlenAttention);
BERT_TF_REGISTER_CPU("VarlenAttentionGrad", CpuOp, AttentionGradArgs, VarlenAttentionGrad);

}  // namespace
}  // namespace bert_tf
