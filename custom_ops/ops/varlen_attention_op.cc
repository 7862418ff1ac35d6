// BertTf>VarlenAttention and its gradient: shapes, checks, and the call of the kernel.
// custom_ops/kernels/attention/varlen_attention.h has the formula.
#include "custom_ops/ops/varlen_attention_op.h"

#include <cstdint>
#include <string>
#include <vector>

#include "custom_ops/kernels/attention/row_splits.h"
#include "custom_ops/kernels/attention/varlen_attention.h"
#include "custom_ops/ops/op_attributes.h"
#include "custom_ops/ops/op_util.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Checks the attributes, and that qkv is [R, 3, N, D], row_splits is [B + 1] and seed is a scalar.
absl::Status CheckShapes(InferenceContext* c, ShapeHandle qkv, ShapeHandle row_splits,
                         ShapeHandle seed, ShapeHandle* checked_qkv) {
  ShapeHandle unused;
  DimensionHandle three;
  TF_RETURN_IF_ERROR(c->WithRank(qkv, 4, checked_qkv));
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(*checked_qkv, 1), 3, &three));
  TF_RETURN_IF_ERROR(c->WithRank(row_splits, 1, &row_splits));
  TF_RETURN_IF_ERROR(c->WithRank(seed, 0, &unused));
  VarlenAttentionAttributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  return CheckAttentionSizes(c->Value(c->Dim(*checked_qkv, 0)), c->Value(c->Dim(*checked_qkv, 2)),
                             c->Value(c->Dim(*checked_qkv, 3)), c->Value(c->Dim(row_splits, 0)),
                             c->DebugString(*checked_qkv));
}

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
      ShapeHandle qkv;
      TF_RETURN_IF_ERROR(CheckShapes(c, c->input(0), c->input(1), c->input(2), &qkv));
      c->set_output(0, c->MakeShape({c->Dim(qkv, 0), c->Dim(qkv, 2), c->Dim(qkv, 3)}));
      c->set_output(1, c->MakeShape({c->Dim(qkv, 0), c->Dim(qkv, 2)}));
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
      ShapeHandle qkv, unused;
      TF_RETURN_IF_ERROR(CheckShapes(c, c->input(1), c->input(4), c->input(5), &qkv));
      const ShapeHandle output = c->MakeShape({c->Dim(qkv, 0), c->Dim(qkv, 2), c->Dim(qkv, 3)});
      const ShapeHandle logsumexp = c->MakeShape({c->Dim(qkv, 0), c->Dim(qkv, 2)});
      TF_RETURN_IF_ERROR(c->Merge(c->input(0), output, &unused));
      TF_RETURN_IF_ERROR(c->Merge(c->input(2), output, &unused));
      TF_RETURN_IF_ERROR(c->Merge(c->input(3), logsumexp, &unused));
      c->set_output(0, qkv);
      return absl::OkStatus();
    })
    .Doc(R"doc(
The gradient of VarlenAttention with respect to qkv.

output: The output of VarlenAttention.
logsumexp: The log-sum-exp of VarlenAttention.
)doc");

template <typename T>
struct Cpu {
  static absl::Status Forward(OpKernelContext* context, const VarlenAttentionCall& call,
                              Tensor* output, Tensor* logsumexp) {
    std::vector<int64_t> splits;
    VarlenAttentionOptions options;
    TF_RETURN_IF_ERROR(ReadOptions(context, call, &splits, &options));
    VarlenAttentionForward(TensorFlowParallel(context), options, Data<T>(*call.qkv),
                           MutableData<T>(output), MutableData<float>(logsumexp));
    return absl::OkStatus();
  }

  static absl::Status Backward(OpKernelContext* context, const VarlenAttentionCall& call,
                               Tensor* d_qkv) {
    std::vector<int64_t> splits;
    VarlenAttentionOptions options;
    TF_RETURN_IF_ERROR(ReadOptions(context, call, &splits, &options));
    VarlenAttentionBackward(TensorFlowParallel(context), options, Data<T>(*call.d_output),
                            Data<T>(*call.qkv), Data<T>(*call.output), Data<float>(*call.logsumexp),
                            MutableData<T>(d_qkv));
    return absl::OkStatus();
  }

 private:
  // `splits` stores the row splits to which the options point.
  static absl::Status ReadOptions(OpKernelContext* context, const VarlenAttentionCall& call,
                                  std::vector<int64_t>* splits, VarlenAttentionOptions* options) {
    const std::string error =
        ReadRowSplits(call.row_splits->data(), call.row_splits->dtype() == tensorflow::DT_INT64,
                      call.num_sequences() + 1, call.rows(), splits);
    if (!error.empty()) return InvalidArgument(error);
    options->num_sequences = call.num_sequences();
    options->row_splits = splits->data();
    options->num_heads = call.num_heads();
    options->head_size = call.head_size();
    options->causal = call.attributes.causal;
    options->window_size = call.attributes.window_size;
    options->num_global_tokens = call.attributes.num_global_tokens;
    options->dropout_rate = call.attributes.dropout_rate;
    SetSeed(*call.seed, &options->seed);
    options->num_threads = TensorFlowParallel(context).NumThreads();
    return absl::OkStatus();
  }
};

BERT_TF_REGISTER("VarlenAttention", tensorflow::DEVICE_CPU, 0, VarlenAttentionOp, Cpu);
BERT_TF_REGISTER("VarlenAttentionGrad", tensorflow::DEVICE_CPU, 0, VarlenAttentionGradOp, Cpu);

}  // namespace
}  // namespace bert_tf
