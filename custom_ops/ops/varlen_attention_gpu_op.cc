// BertTf>VarlenAttention and its gradient on a GPU; varlen_attention_op.cc registers the ops.
//
// row_splits and the seed stay on the GPU, so no copy to the host is needed. Invalid row splits
// cannot be reported there: they give wrong results, but never an invalid memory access.
#include <type_traits>

#include "custom_ops/ops/gpu_util.h"
#include "custom_ops/ops/varlen_attention_op.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// `type` is the element type, a BertTfCudaType.
template <int type, typename Splits>
struct Gpu {
  static absl::Status Check(const VarlenAttentionCall& call) {
    if (call.head_size() > kBertTfLargestHead) {
      return InvalidArgument("`qkv` must have a head size from 1 to ", +kBertTfLargestHead,
                             " on a GPU. Received: qkv.shape=", call.qkv->shape().DebugString(),
                             ". BERT_TF_OPS=reference supports any head size.");
    }
    if (call.num_sequences() == 0 && call.rows() > 0) {  // this check needs only shapes
      return InvalidArgument("`row_splits` must end with the number of rows of `qkv`, ",
                             call.rows(), ". Received: row_splits.shape=[1]");
    }
    return absl::OkStatus();
  }

  static absl::Status Forward(OpKernelContext* context, const VarlenAttentionCall& call,
                              Tensor* output, Tensor* logsumexp) {
    const VarlenAttentionAttributes& attributes = call.attributes;
    return LaunchStatus(
        "varlen_attention",
        BertTfCudaVarlenAttention(
            type, Address(*call.qkv), Address(*call.row_splits), kSplitsAreInt64,
            call.num_sequences(), call.rows(), call.num_heads(), call.head_size(),
            attributes.causal, attributes.window_size, attributes.num_global_tokens,
            attributes.dropout_rate, Data<int64_t>(*call.seed), MutableAddress(output),
            MutableData<float>(logsumexp), GpuStream(context)));
  }

  static absl::Status Backward(OpKernelContext* context, const VarlenAttentionCall& call,
                               Tensor* d_qkv) {
    const VarlenAttentionAttributes& attributes = call.attributes;
    Tensor scratch;
    TF_RETURN_IF_ERROR(AllocateScratch(
        context, BertTfCudaVarlenAttentionGradScratch(call.rows(), call.num_heads()), &scratch));
    return LaunchStatus(
        "the gradient of varlen_attention",
        BertTfCudaVarlenAttentionGrad(
            type, Address(*call.d_output), Address(*call.qkv), Address(*call.output),
            Data<float>(*call.logsumexp), Address(*call.row_splits), kSplitsAreInt64,
            call.num_sequences(), call.rows(), call.num_heads(), call.head_size(),
            attributes.causal, attributes.window_size, attributes.num_global_tokens,
            attributes.dropout_rate, Data<int64_t>(*call.seed), MutableAddress(d_qkv),
            MutableData<float>(&scratch), GpuStream(context)));
  }

 private:
  static constexpr bool kSplitsAreInt64 = std::is_same<Splits, int64_t>::value;
};

#define BERT_TF_REGISTER(T, Splits)                                      \
  REGISTER_KERNEL_BUILDER(Name("BertTf>VarlenAttention")                 \
                              .Device(kGpuDevice)                        \
                              .Priority(kGpuPriority)                    \
                              .TypeConstraint<T>("T")                    \
                              .TypeConstraint<Splits>("Tsplits"),        \
                          VarlenAttentionOp<Gpu<kCudaType<T>, Splits>>); \
  REGISTER_KERNEL_BUILDER(Name("BertTf>VarlenAttentionGrad")             \
                              .Device(kGpuDevice)                        \
                              .Priority(kGpuPriority)                    \
                              .TypeConstraint<T>("T")                    \
                              .TypeConstraint<Splits>("Tsplits"),        \
                          VarlenAttentionGradOp<Gpu<kCudaType<T>, Splits>>)
#define BERT_TF_REGISTER_TYPE(T) \
  BERT_TF_REGISTER(T, int32_t);  \
  BERT_TF_REGISTER(T, int64_t)
BERT_TF_REGISTER_TYPE(float);
BERT_TF_REGISTER_TYPE(Eigen::bfloat16);
BERT_TF_REGISTER_TYPE(Eigen::half);
#undef BERT_TF_REGISTER_TYPE
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
