// BertTf>QuantizedAttention; custom_ops/kernels/attention/quantized_attention.h has the formula.
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/ops/attention_op_util.h"
#include "custom_ops/ops/dense_op_util.h"
#include "custom_ops/ops/kernel_op.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::shape_inference::InferenceContext;

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

BERT_TF_REGISTER_CPU("QuantizedAttention", CpuOp, QuantizedAttentionArgs, QuantizedAttention);

}  // namespace
}  // namespace bert_tf
