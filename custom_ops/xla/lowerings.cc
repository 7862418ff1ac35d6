// The ops under XLA on the CPU (jit_compile=True).
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/gelu/fused_bias_gelu.h"
#include "custom_ops/kernels/layer_norm/fused_residual_layer_norm.h"
#include "custom_ops/xla/custom_call_op.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"

namespace bert_tf {
namespace {

using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;

// Reads and assigns the variables. The kernel updates them in place: in their own buffers if these
// were passed to XLA, otherwise in copies.
class AdamWeightDecayOp : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* context) override {
    TensorShape shape;
    OP_REQUIRES_OK(context, StaticShape(context, kGradient, &shape));
    std::vector<xla::XlaOp> operands(kGradient);
    for (int i = 0; i < kGradient; ++i) {
      TensorShape received;
      OP_REQUIRES_OK(context,
                     context->ReadVariableInput(i, tensorflow::DT_FLOAT, &received, &operands[i]));
      OP_REQUIRES(context, received == shape,
                  absl::InvalidArgumentError(absl::StrCat(
                      "The variables must have the shape of `gradient`, ", shape.DebugString(),
                      ". Received: variable ", i, " of shape ", received.DebugString())));
    }
    const std::vector<xla::Shape> result_shapes(kGradient, RowMajor(xla::F32, shape));
    std::vector<xla::Shape> operand_shapes = result_shapes;
    for (int i = kGradient; i < context->num_inputs(); ++i) {
      OP_REQUIRES_OK(context, StaticShape(context, i, &shape));
      OP_REQUIRES(context, i == kGradient || shape.num_elements() == 1,
                  absl::InvalidArgumentError(
                      absl::StrCat("The inputs after `gradient` must be scalars. Received: input ",
                                   i, " of shape ", shape.DebugString())));
      operands.push_back(context->Input(i));
      operand_shapes.push_back(RowMajor(xla::F32, shape));
    }
    const xla::XlaOp results = CallHandler(context, operands, operand_shapes, result_shapes,
                                           /*in_place=*/kGradient);
    for (int i = 0; i < kGradient; ++i) {
      OP_REQUIRES_OK(context, context->AssignVariable(i, tensorflow::DT_FLOAT,
                                                      xla::GetTupleElement(results, i)));
    }
  }

 private:
  static constexpr int kGradient = 3;  // its index, after the variable and the two means
};

// REGISTER_XLA_OP is not used, because XLA ignores its registrations after the first compilation of
// the process.
#define BERT_TF_REGISTER(NAME, ...) \
  REGISTER_KERNEL_BUILDER(Name("BertTf>" NAME).Device(tensorflow::DEVICE_CPU_XLA_JIT), __VA_ARGS__)
BERT_TF_REGISTER("AdamWeightDecay", AdamWeightDecayOp);
BERT_TF_REGISTER("Bfloat16Dense", CustomCallOp<>);
BERT_TF_REGISTER("Bfloat16FeedForward", CustomCallOp<>);
BERT_TF_REGISTER("FusedBiasGelu", CustomCallOp<>);
BERT_TF_REGISTER("FusedBiasGeluGrad", CustomCallOp<ScratchOfMatrix<BiasGeluGradScratchSize>>);
BERT_TF_REGISTER("FusedDense", CustomCallOp<>);
BERT_TF_REGISTER("FusedResidualLayerNorm", CustomCallOp<>);
BERT_TF_REGISTER("FusedResidualLayerNormGrad",
                 CustomCallOp<ScratchOfMatrix<ResidualLayerNormGradScratchSize>>);
BERT_TF_REGISTER("PackDense", CustomCallOp<>);
BERT_TF_REGISTER("QuantizedAttention", CustomCallOp<>);
BERT_TF_REGISTER("QuantizedDense", CustomCallOp<>);
BERT_TF_REGISTER("QuantizedFeedForward", CustomCallOp<>);
BERT_TF_REGISTER("VarlenAttention", CustomCallOp<>);
BERT_TF_REGISTER("VarlenAttentionGrad", CustomCallOp<>);
BERT_TF_REGISTER("VarlenCrossAttention", CustomCallOp<>);
BERT_TF_REGISTER("VarlenCrossAttentionGrad", CustomCallOp<>);
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
