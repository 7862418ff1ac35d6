// BertTf>VarlenCrossAttention and its gradient; custom_ops/kernels/attention/varlen_attention.h has
// the formula.
#include "custom_ops/ops/attention_op_util.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::InferenceContext;

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
      TF_RETURN_IF_ERROR(shapes.Read(c));
      TF_RETURN_IF_ERROR(CheckDropout(c));
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
      TF_RETURN_IF_ERROR(shapes.Read(c));
      TF_RETURN_IF_ERROR(CheckDropout(c));
      TF_RETURN_IF_ERROR(MergeShape(c, "d_output", &shapes.query));
      TF_RETURN_IF_ERROR(MergeShape(c, "output", &shapes.query));
      TF_RETURN_IF_ERROR(MergeShape(c, "logsumexp", &shapes.logsumexp));
      c->set_output(0, shapes.query);
      c->set_output(1, shapes.key_value);
      return absl::OkStatus();
    });

BERT_TF_REGISTER_CPU("VarlenCrossAttention", CpuOp, CrossAttentionArgs, VarlenAttention);
BERT_TF_REGISTER_CPU("VarlenCrossAttentionGrad", CpuOp, CrossAttentionGradArgs,
                     VarlenAttentionGrad);

}  // namespace
}  // namespace bert_tf
