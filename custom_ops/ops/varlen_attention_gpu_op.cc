// BertTf>VarlenAttention and its gradient on a GPU; varlen_attention_op.cc registers the ops.
//
// row_splits and the seed stay on the GPU, so nothing waits for a copy to the host; row splits that
// are wrong cannot be reported there: they give wrong numbers, never a wrong access.
#include <type_traits>

#include "custom_ops/ops/gpu_util.h"
#include "custom_ops/ops/op_attributes.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class VarlenAttentionGpuBase : public OpKernel {
 public:
  explicit VarlenAttentionGpuBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

 protected:
  static absl::Status CheckInputs(const Tensor& qkv, const Tensor& row_splits, const Tensor& seed) {
    if (qkv.dims() != 4 || qkv.dim_size(1) != 3) {
      return InvalidArgument(
          "Expected qkv of shape [rows, 3, heads, head size]. Received: "
          "qkv.shape=",
          qkv.shape().DebugString());
    }
    if (row_splits.dims() != 1) {
      return InvalidArgument(
          "Expected row_splits of shape [sequences + 1]. Received: "
          "row_splits.shape=",
          row_splits.shape().DebugString());
    }
    TF_RETURN_IF_ERROR(CheckAttentionSizes(qkv.dim_size(0), qkv.dim_size(2), qkv.dim_size(3),
                                           row_splits.dim_size(0), qkv.shape().DebugString()));
    if (qkv.dim_size(3) > kBertTfLargestHead) {
      return InvalidArgument("Expected a head size from 1 to ", +kBertTfLargestHead,
                             " on a GPU. Received: qkv.shape=", qkv.shape().DebugString(),
                             ". BERT_TF_OPS=reference takes any.");
    }
    if (row_splits.dim_size(0) == 1 && qkv.dim_size(0) > 0) {  // what shapes alone tell
      return InvalidArgument("Expected row_splits to end with the number of rows of qkv, ",
                             qkv.dim_size(0), ". Received: row_splits of one element");
    }
    if (seed.dims() != 0) {
      return InvalidArgument("Expected a scalar seed. Received: seed.shape=",
                             seed.shape().DebugString());
    }
    return absl::OkStatus();
  }

  VarlenAttentionAttributes attributes_;
};

template <typename T, typename Splits>
class VarlenAttentionGpuOp : public VarlenAttentionGpuBase {
 public:
  using VarlenAttentionGpuBase::VarlenAttentionGpuBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& qkv = context->input(0);
    const Tensor& row_splits = context->input(1);
    const Tensor& seed = context->input(2);
    OP_REQUIRES_OK(context, CheckInputs(qkv, row_splits, seed));
    const int64_t rows = qkv.dim_size(0), heads = qkv.dim_size(2), head_size = qkv.dim_size(3);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({rows, heads, head_size}), &output));
    Tensor* logsumexp = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({rows, heads}), &logsumexp));
    OP_REQUIRES_OK(
        context,
        LaunchStatus(
            "varlen_attention",
            BertTfCudaVarlenAttention(
                kCudaType<T>, Address(qkv), Address(row_splits),
                std::is_same<Splits, int64_t>::value, row_splits.dim_size(0) - 1, rows, heads,
                head_size, attributes_.causal, attributes_.window_size,
                attributes_.num_global_tokens, attributes_.dropout_rate, Data<int64_t>(seed),
                MutableAddress(output), MutableData<float>(logsumexp), GpuStream(context))));
  }
};

template <typename T, typename Splits>
class VarlenAttentionGradGpuOp : public VarlenAttentionGpuBase {
 public:
  using VarlenAttentionGpuBase::VarlenAttentionGpuBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& d_output = context->input(0);
    const Tensor& qkv = context->input(1);
    const Tensor& output = context->input(2);
    const Tensor& logsumexp = context->input(3);
    const Tensor& row_splits = context->input(4);
    const Tensor& seed = context->input(5);
    OP_REQUIRES_OK(context, CheckInputs(qkv, row_splits, seed));
    const int64_t rows = qkv.dim_size(0), heads = qkv.dim_size(2), head_size = qkv.dim_size(3);
    const TensorShape shape({rows, heads, head_size});
    OP_REQUIRES(context, output.shape() == shape && d_output.shape() == shape,
                InvalidArgument("Expected output and d_output of shape ", shape.DebugString(),
                                ". Received: output.shape=", output.shape().DebugString(),
                                ", d_output.shape=", d_output.shape().DebugString()));
    OP_REQUIRES(context, logsumexp.shape() == TensorShape({rows, heads}),
                InvalidArgument("Expected logsumexp of shape [", rows, ",", heads,
                                "]. Received: logsumexp.shape=", logsumexp.shape().DebugString()));
    Tensor* d_qkv = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, qkv.shape(), &d_qkv));
    Tensor scratch;
    OP_REQUIRES_OK(
        context,
        AllocateScratch(context, BertTfCudaVarlenAttentionGradScratch(rows, heads), &scratch));
    OP_REQUIRES_OK(
        context,
        LaunchStatus(
            "the gradient of varlen_attention",
            BertTfCudaVarlenAttentionGrad(
                kCudaType<T>, Address(d_output), Address(qkv), Address(output),
                Data<float>(logsumexp), Address(row_splits), std::is_same<Splits, int64_t>::value,
                row_splits.dim_size(0) - 1, rows, heads, head_size, attributes_.causal,
                attributes_.window_size, attributes_.num_global_tokens, attributes_.dropout_rate,
                Data<int64_t>(seed), MutableAddress(d_qkv), MutableData<float>(&scratch),
                GpuStream(context))));
  }
};

#define BERT_TF_REGISTER(T, Splits)                               \
  REGISTER_KERNEL_BUILDER(Name("BertTf>VarlenAttention")          \
                              .Device(kGpuDevice)                 \
                              .Priority(kGpuPriority)             \
                              .TypeConstraint<T>("T")             \
                              .TypeConstraint<Splits>("Tsplits"), \
                          VarlenAttentionGpuOp<T, Splits>);       \
  REGISTER_KERNEL_BUILDER(Name("BertTf>VarlenAttentionGrad")      \
                              .Device(kGpuDevice)                 \
                              .Priority(kGpuPriority)             \
                              .TypeConstraint<T>("T")             \
                              .TypeConstraint<Splits>("Tsplits"), \
                          VarlenAttentionGradGpuOp<T, Splits>)
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
