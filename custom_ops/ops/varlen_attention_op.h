// The device-independent part of the OpKernels of BertTf>VarlenAttention and its gradient: inputs,
// checks and outputs.
//
// Device has Forward(context, call, output, logsumexp) and Backward(context, call, d_qkv).
#ifndef BERT_TF_CUSTOM_OPS_OPS_VARLEN_ATTENTION_OP_H_
#define BERT_TF_CUSTOM_OPS_OPS_VARLEN_ATTENTION_OP_H_

#include "custom_ops/ops/op_attributes.h"
#include "custom_ops/ops/op_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace bert_tf {

// The inputs of one call, and the sizes that follow from them.
struct VarlenAttentionCall {
  VarlenAttentionAttributes attributes;
  const tensorflow::Tensor* qkv = nullptr;         // [R, 3, N, D]
  const tensorflow::Tensor* row_splits = nullptr;  // [B + 1]
  const tensorflow::Tensor* seed = nullptr;        // []
  // Only in the gradient.
  const tensorflow::Tensor* d_output = nullptr;   // [R, N, D]
  const tensorflow::Tensor* output = nullptr;     // [R, N, D]
  const tensorflow::Tensor* logsumexp = nullptr;  // [R, N]

  int64_t rows() const { return qkv->dim_size(0); }
  int64_t num_sequences() const { return row_splits->dim_size(0) - 1; }
  int64_t num_heads() const { return qkv->dim_size(2); }
  int64_t head_size() const { return qkv->dim_size(3); }
  tensorflow::TensorShape output_shape() const {
    return tensorflow::TensorShape({rows(), num_heads(), head_size()});
  }
  tensorflow::TensorShape logsumexp_shape() const {
    return tensorflow::TensorShape({rows(), num_heads()});
  }

  // Reads the inputs that both ops have in common.
  absl::Status Read(tensorflow::OpKernelContext* context) {
    TF_RETURN_IF_ERROR(context->input("qkv", &qkv));
    TF_RETURN_IF_ERROR(context->input("row_splits", &row_splits));
    TF_RETURN_IF_ERROR(context->input("seed", &seed));
    if (qkv->dims() != 4 || qkv->dim_size(1) != 3) {
      return InvalidArgument(
          "`qkv` must have shape [rows, 3, heads, head size]. Received: qkv.shape=",
          qkv->shape().DebugString());
    }
    if (row_splits->dims() != 1) {
      return InvalidArgument(
          "`row_splits` must have shape [sequences + 1]. Received: row_splits.shape=",
          row_splits->shape().DebugString());
    }
    TF_RETURN_IF_ERROR(CheckAttentionSizes(rows(), num_heads(), head_size(),
                                           row_splits->dim_size(0), qkv->shape().DebugString()));
    if (seed->dims() == 0) return absl::OkStatus();
    return InvalidArgument("`seed` must be a scalar. Received: seed.shape=",
                           seed->shape().DebugString());
  }

  // Reads the inputs that only the gradient has.
  absl::Status ReadGrad(tensorflow::OpKernelContext* context) {
    TF_RETURN_IF_ERROR(context->input("d_output", &d_output));
    TF_RETURN_IF_ERROR(context->input("output", &output));
    TF_RETURN_IF_ERROR(context->input("logsumexp", &logsumexp));
    if (output->shape() != output_shape() || d_output->shape() != output_shape()) {
      return InvalidArgument("`output` and `d_output` must have shape ",
                             output_shape().DebugString(),
                             ". Received: output.shape=", output->shape().DebugString(),
                             ", d_output.shape=", d_output->shape().DebugString());
    }
    if (logsumexp->shape() == logsumexp_shape()) return absl::OkStatus();
    return InvalidArgument("`logsumexp` must have shape ", logsumexp_shape().DebugString(),
                           ". Received: logsumexp.shape=", logsumexp->shape().DebugString());
  }
};

template <typename Device>
class VarlenAttentionOp : public tensorflow::OpKernel {
 public:
  explicit VarlenAttentionOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    VarlenAttentionCall call;
    call.attributes = attributes_;
    OP_REQUIRES_OK(context, call.Read(context));
    tensorflow::Tensor *output = nullptr, *logsumexp = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, call.output_shape(), &output));
    OP_REQUIRES_OK(context, context->allocate_output(1, call.logsumexp_shape(), &logsumexp));
    OP_REQUIRES_OK(context, Device::Forward(context, call, output, logsumexp));
  }

 private:
  VarlenAttentionAttributes attributes_;
};

template <typename Device>
class VarlenAttentionGradOp : public tensorflow::OpKernel {
 public:
  explicit VarlenAttentionGradOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    VarlenAttentionCall call;
    call.attributes = attributes_;
    OP_REQUIRES_OK(context, call.Read(context));
    OP_REQUIRES_OK(context, call.ReadGrad(context));
    tensorflow::Tensor* d_qkv = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, call.qkv->shape(), &d_qkv));
    OP_REQUIRES_OK(context, Device::Backward(context, call, d_qkv));
  }

 private:
  VarlenAttentionAttributes attributes_;
};

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_VARLEN_ATTENTION_OP_H_
