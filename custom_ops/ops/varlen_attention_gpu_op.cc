// BertTf>VarlenAttention and its gradient on a GPU; varlen_attention_op.cc registers the ops.
//
// row_splits and the seed stay on the GPU, so no copy to the host is needed. Invalid row splits
// cannot be reported there: they give wrong results, but never an invalid memory access.
#include <string>

#include "custom_ops/ops/gpu_util.h"
#include "custom_ops/ops/varlen_attention_op.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T>
struct Gpu {
  static absl::Status Forward(OpKernelContext* context, const VarlenAttentionCall& call,
                              Tensor* output, Tensor* logsumexp) {
    CudaAttentionArgs args;
    TF_RETURN_IF_ERROR(ReadArgs(call, &args));
    SetPointer(output, &args.output);
    SetPointer(logsumexp, &args.logsumexp);
    return LaunchStatus("varlen_attention",
                        BertTfCudaVarlenAttention(kCudaType<T>, args, GpuStream(context)));
  }

  static absl::Status Backward(OpKernelContext* context, const VarlenAttentionCall& call,
                               Tensor* d_qkv) {
    CudaAttentionArgs args;
    TF_RETURN_IF_ERROR(ReadArgs(call, &args));
    Tensor scratch;
    TF_RETURN_IF_ERROR(AllocateScratch(
        context, BertTfCudaVarlenAttentionGradScratch(call.rows(), call.num_heads()), &scratch));
    args.output = call.output->data();
    args.logsumexp = static_cast<float*>(call.logsumexp->data());
    SetPointer(call.d_output, &args.d_output);
    SetPointer(d_qkv, &args.d_qkv);
    SetPointer(&scratch, &args.scratch);
    return LaunchStatus("the gradient of varlen_attention",
                        BertTfCudaVarlenAttentionGrad(kCudaType<T>, args, GpuStream(context)));
  }

 private:
  // Sets what both ops have in common.
  static absl::Status ReadArgs(const VarlenAttentionCall& call, CudaAttentionArgs* args) {
    SetPointer(call.qkv, &args->qkv);
    SetPointer(call.row_splits, &args->row_splits);
    args->row_splits_are_int64 = call.row_splits->dtype() == tensorflow::DT_INT64;
    args->num_sequences = call.num_sequences();
    args->rows = call.rows();
    args->num_heads = call.num_heads();
    args->head_size = call.head_size();
    args->causal = call.attributes.causal;
    args->window_size = call.attributes.window_size;
    args->num_global_tokens = call.attributes.num_global_tokens;
    args->dropout_rate = call.attributes.dropout_rate;
    SetSeed(*call.seed, &args->seed);
    const std::string error = CheckCudaAttention(*args);
    return error.empty() ? absl::OkStatus() : InvalidArgument(error);
  }
};

BERT_TF_REGISTER("VarlenAttention", kGpuDevice, kGpuPriority, VarlenAttentionOp, Gpu);
BERT_TF_REGISTER("VarlenAttentionGrad", kGpuDevice, kGpuPriority, VarlenAttentionGradOp, Gpu);

}  // namespace
}  // namespace bert_tf
