// BertTf>VarlenAttention and its gradient; custom_ops/kernels/attention/varlen_attention.h has the
// formula.
#include "custom_ops/ops/attention_op_util.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("BertTf>VarlenAttention")
    .Input("qkv: T")
    .Input("row_splits: Tsplits")
    .Input("seed: int64")
    .Input("distance_bias: num_distance_bias * float")
    .Output("output: T")
    .Output("logsumexp: float")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tsplits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("window_size: int = -1")
    .Attr("num_global_tokens: int = 0")
    .Attr("bfloat16_products: bool = false")
    .Attr("num_distance_bias: int >= 0 = 0")
    .SetShapeFn([](InferenceContext* c) {
      AttentionShapes shapes;
      TF_RETURN_IF_ERROR(shapes.Read(c));
      TF_RETURN_IF_ERROR(CheckDropout(c));
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
    .Output("d_qkv: T")
    .Output("d_distance_bias: num_distance_bias * float")
    .Attr("T: {float, bfloat16, half}")
    .Attr("Tsplits: {int32, int64}")
    .Attr("dropout_rate: float = 0.0")
    .Attr("causal: bool = false")
    .Attr("window_size: int = -1")
    .Attr("num_global_tokens: int = 0")
    .Attr("bfloat16_products: bool = false")
    .Attr("num_distance_bias: int >= 0 = 0")
    .SetShapeFn([](InferenceContext* c) {
      AttentionShapes shapes;
      TF_RETURN_IF_ERROR(shapes.Read(c));
      TF_RETURN_IF_ERROR(CheckDropout(c));
      TF_RETURN_IF_ERROR(MergeShape(c, "d_output", &shapes.output));
      TF_RETURN_IF_ERROR(MergeShape(c, "output", &shapes.output));
      TF_RETURN_IF_ERROR(MergeShape(c, "logsumexp", &shapes.logsumexp));
      c->set_output(0, shapes.qkv);
      if (shapes.num_distance_bias == 1) c->set_output(1, shapes.distance_bias);
      return absl::OkStatus();
    });

BERT_TF_REGISTER_CPU("VarlenAttention", CpuOp, AttentionArgs, VarlenAttention);
BERT_TF_REGISTER_CPU("VarlenAttentionGrad", CpuOp, AttentionGradArgs, VarlenAttentionGrad);

}  // namespace
}  // namespace bert_tf
