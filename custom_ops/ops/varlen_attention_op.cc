// BertTf>VarlenAttention and its gradient: shapes, checks, and the call of the kernel. The formula
// stands in custom_ops/kernels/varlen_attention.h.
#include <cstdint>
#include <string>
#include <vector>

#include "custom_ops/kernels/row_splits.h"
#include "custom_ops/kernels/varlen_attention.h"
#include "custom_ops/ops/op_attributes.h"
#include "custom_ops/ops/op_util.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;
using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// qkv is [R, 3, N, D], row_splits [B + 1], seed a scalar; and the attributes.
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
Softmax attention over packed sequences, each row attending to its own sequence.

qkv: [R, 3, N, D], queries, keys and values of all sequences' tokens, one after another.
row_splits: [B + 1], where each sequence begins; the first is 0, the last is R.
seed: of the dropout; not read where dropout_rate is 0.
output: [R, N, D].
logsumexp: [R, N], of each row's scores, for the gradient.
dropout_rate: of the attention probabilities.
causal: a row sees no later row.
window_size: a row sees rows at most so far away, if not negative.
num_global_tokens: the first rows of a sequence, which see and are seen through the window.
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
The gradient of VarlenAttention in qkv; output and logsumexp are that op's.
)doc");

// What the op and its gradient have in common: the attributes and the checks of the inputs.
template <typename Splits>
class VarlenAttentionBase : public OpKernel {
 public:
  explicit VarlenAttentionBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

 protected:
  // Sets the kernel's options, or the context's status. `row_splits` holds what they point at.
  void ReadInputs(OpKernelContext* context, const Tensor& qkv, const Tensor& row_splits,
                  const Tensor& seed, std::vector<int64_t>* splits,
                  VarlenAttentionOptions* options) const {
    OP_REQUIRES(context, qkv.dims() == 4 && qkv.dim_size(1) == 3,
                InvalidArgument("Expected qkv of shape [rows, 3, heads, head size]. Received: "
                                "qkv.shape=",
                                qkv.shape().DebugString()));
    const int64_t rows = qkv.dim_size(0);
    OP_REQUIRES(context, row_splits.dims() == 1,
                InvalidArgument("Expected row_splits of shape [sequences + 1]. Received: "
                                "row_splits.shape=",
                                row_splits.shape().DebugString()));
    OP_REQUIRES_OK(context, CheckAttentionSizes(rows, qkv.dim_size(2), qkv.dim_size(3),
                                                row_splits.dim_size(0), qkv.shape().DebugString()));
    OP_REQUIRES(context, seed.dims() == 0,
                InvalidArgument("Expected a scalar seed. Received: seed.shape=",
                                seed.shape().DebugString()));
    const int64_t count = row_splits.dim_size(0);
    const std::string error = ReadRowSplits(row_splits.flat<Splits>().data(), count, rows, splits);
    OP_REQUIRES(context, error.empty(), InvalidArgument(error));
    options->num_sequences = count - 1;
    options->row_splits = splits->data();
    options->num_heads = qkv.dim_size(2);
    options->head_size = qkv.dim_size(3);
    options->causal = attributes_.causal;
    options->window_size = attributes_.window_size;
    options->num_global_tokens = attributes_.num_global_tokens;
    options->dropout_rate = attributes_.dropout_rate;
    options->seed = static_cast<uint64_t>(seed.scalar<int64_t>()());
    options->num_threads = TensorFlowParallel(context).NumThreads();
  }

 private:
  VarlenAttentionAttributes attributes_;
};

template <typename T, typename Splits>
class VarlenAttentionOp : public VarlenAttentionBase<Splits> {
 public:
  using VarlenAttentionBase<Splits>::VarlenAttentionBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& qkv = context->input(0);
    std::vector<int64_t> splits;
    VarlenAttentionOptions options;
    this->ReadInputs(context, qkv, context->input(1), context->input(2), &splits, &options);
    if (!context->status().ok()) return;
    const int64_t rows = qkv.dim_size(0);
    Tensor* output = nullptr;
    Tensor* logsumexp = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(
                       0, TensorShape({rows, options.num_heads, options.head_size}), &output));
    OP_REQUIRES_OK(context,
                   context->allocate_output(1, TensorShape({rows, options.num_heads}), &logsumexp));
    VarlenAttentionForward(TensorFlowParallel(context), options, Data<T>(qkv),
                           MutableData<T>(output), MutableData<float>(logsumexp));
  }
};

template <typename T, typename Splits>
class VarlenAttentionGradOp : public VarlenAttentionBase<Splits> {
 public:
  using VarlenAttentionBase<Splits>::VarlenAttentionBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& d_output = context->input(0);
    const Tensor& qkv = context->input(1);
    const Tensor& output = context->input(2);
    const Tensor& logsumexp = context->input(3);
    std::vector<int64_t> splits;
    VarlenAttentionOptions options;
    this->ReadInputs(context, qkv, context->input(4), context->input(5), &splits, &options);
    if (!context->status().ok()) return;
    const TensorShape output_shape({qkv.dim_size(0), options.num_heads, options.head_size});
    const TensorShape logsumexp_shape({qkv.dim_size(0), options.num_heads});
    OP_REQUIRES(
        context, output.shape() == output_shape && d_output.shape() == output_shape,
        InvalidArgument("Expected output and d_output of shape ", output_shape.DebugString(),
                        ". Received: output.shape=", output.shape().DebugString(),
                        ", d_output.shape=", d_output.shape().DebugString()));
    OP_REQUIRES(context, logsumexp.shape() == logsumexp_shape,
                InvalidArgument("Expected logsumexp of shape ", logsumexp_shape.DebugString(),
                                ". Received: logsumexp.shape=", logsumexp.shape().DebugString()));
    Tensor* d_qkv = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, qkv.shape(), &d_qkv));
    VarlenAttentionBackward(TensorFlowParallel(context), options, Data<T>(d_output), Data<T>(qkv),
                            Data<T>(output), Data<float>(logsumexp), MutableData<T>(d_qkv));
  }
};

#define BERT_TF_REGISTER(T, Splits)                               \
  REGISTER_KERNEL_BUILDER(Name("BertTf>VarlenAttention")          \
                              .Device(tensorflow::DEVICE_CPU)     \
                              .TypeConstraint<T>("T")             \
                              .TypeConstraint<Splits>("Tsplits"), \
                          VarlenAttentionOp<T, Splits>);          \
  REGISTER_KERNEL_BUILDER(Name("BertTf>VarlenAttentionGrad")      \
                              .Device(tensorflow::DEVICE_CPU)     \
                              .TypeConstraint<T>("T")             \
                              .TypeConstraint<Splits>("Tsplits"), \
                          VarlenAttentionGradOp<T, Splits>)
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
