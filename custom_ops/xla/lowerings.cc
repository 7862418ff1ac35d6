// The ops under XLA on the CPU (jit_compile=True): each becomes a call of the handler of its name
// (handlers.cc), which runs the same kernel as the OpKernel does.
//
// A lowering takes the op's inputs as operands and its attributes as they are. The op's own shape
// function checks the inputs, whose shapes XLA knows, and gives the shapes of the results.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "custom_ops/kernels/fused_bias_gelu.h"
#include "custom_ops/kernels/fused_residual_layer_norm.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/version.h"

namespace bert_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpRegistrationData;
using tensorflow::OpRegistry;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The attributes as a handler reads them: the text of an MLIR dictionary. Types are left out, the
// buffers have theirs.
std::string AttributeText(const tensorflow::NodeDef& node) {
  std::vector<std::string> items;
  for (const auto& [name, value] : node.attr()) {
    std::string text;
    switch (value.value_case()) {
      case tensorflow::AttrValue::kB:
        text = value.b() ? "true" : "false";
        break;
      case tensorflow::AttrValue::kI:
        text = absl::StrCat(value.i(), " : i64");
        break;
      case tensorflow::AttrValue::kF:  // nine digits give back every float32
        text = absl::StrFormat("%.9e : f32", value.f());
        break;
      case tensorflow::AttrValue::kS:
        text = absl::StrCat("\"", value.s(), "\"");
        break;
      default:
        continue;
    }
    if (name[0] != '_') items.push_back(absl::StrCat(name, " = ", text));
  }
  return absl::StrCat("{", absl::StrJoin(items, ", "), "}");
}

// With the layout of a TensorFlow tensor: row-major.
xla::Shape RowMajor(xla::PrimitiveType type, const TensorShape& shape) {
  const auto sizes = shape.dim_sizes();
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(
      type, std::vector<int64_t>(sizes.begin(), sizes.end()));
}

absl::Status StaticShape(XlaOpKernelContext* context, int input, TensorShape* shape) {
  TF_ASSIGN_OR_RETURN(const xla::Shape xla_shape, context->InputXlaShape(input));
  if (!xla_shape.is_static()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Expected static shapes under XLA. Received: input ", input, " of ",
                     context->op_kernel().type_string(), " of shape ", xla_shape.ToString()));
  }
  return tensorflow::XLAShapeToTensorShape(xla_shape, shape);
}

// A call of the handler named like the op. `in_place` results take the buffers of the operands
// before them.
xla::XlaOp CallHandler(XlaOpKernelContext* context, const std::vector<xla::XlaOp>& operands,
                       const std::vector<xla::Shape>& operand_shapes,
                       const std::vector<xla::Shape>& result_shapes, int in_place,
                       const std::string& attributes) {
  std::vector<std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>> aliases;
  for (int64_t i = 0; i < in_place; ++i) {
    aliases.emplace_back(xla::ShapeIndex({i}), std::make_pair(i, xla::ShapeIndex()));
  }
  return xla::CustomCallWithLayout(
      context->builder(), context->op_kernel().type_string(), operands,
      xla::ShapeUtil::MakeTupleShape(result_shapes), operand_shapes, attributes,
      /*has_side_effect=*/false, aliases, /*literal=*/nullptr,
      xla::CustomCallSchedule::SCHEDULE_NONE, xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

class CustomCallOp : public XlaOpKernel {
 public:
  explicit CustomCallOp(OpKernelConstruction* context)
      : XlaOpKernel(context), attributes_(AttributeText(context->def())) {}

  void Compile(XlaOpKernelContext* context) override {
    std::vector<xla::XlaOp> operands;
    std::vector<TensorShape> inputs(context->num_inputs());
    std::vector<xla::Shape> operand_shapes, result_shapes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      OP_REQUIRES_OK(context, StaticShape(context, i, &inputs[i]));
      operands.push_back(context->Input(i));
      operand_shapes.push_back(RowMajor(context->input_xla_type(i), inputs[i]));
    }
    OP_REQUIRES_OK(context, InferResults(context, inputs, &result_shapes));
    AddScratch(inputs, &result_shapes);
    const xla::XlaOp results = CallHandler(context, operands, operand_shapes, result_shapes,
                                           /*in_place=*/0, attributes_);
    for (int i = 0; i < context->num_outputs(); ++i) {
      context->SetOutput(i, xla::GetTupleElement(results, i));
    }
  }

 private:
  // Runs the op's shape function.
  absl::Status InferResults(XlaOpKernelContext* context, const std::vector<TensorShape>& inputs,
                            std::vector<xla::Shape>* results) const {
    const OpRegistrationData* op;
    TF_RETURN_IF_ERROR(OpRegistry::Global()->LookUp(type_string(), &op));
    InferenceContext inference(TF_GRAPH_DEF_VERSION, def(), op->op_def,
                               std::vector<ShapeHandle>(inputs.size()), {}, {}, {});
    TF_RETURN_IF_ERROR(inference.construction_status());
    for (size_t i = 0; i < inputs.size(); ++i) {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(inference.MakeShapeFromTensorShape(inputs[i], &shape));
      inference.SetInput(i, shape);
    }
    TF_RETURN_IF_ERROR(inference.Run(op->shape_inference_fn));
    for (int i = 0; i < context->num_outputs(); ++i) {
      const ShapeHandle shape = inference.output(i);
      if (!inference.FullyDefined(shape)) {
        return absl::InternalError(absl::StrCat(
            "Expected the shape function of ", type_string(), " to give output ", i,
            " a static shape. Received: ", inference.DebugString(shape)));
      }
      TensorShape sizes;
      for (int d = 0; d < inference.Rank(shape); ++d) {
        sizes.AddDim(inference.Value(inference.Dim(shape, d)));
      }
      results->push_back(RowMajor(context->output_xla_type(i), sizes));
    }
    return absl::OkStatus();
  }

  // The kernels of some gradients take floats of scratch: a last result, which nobody reads.
  void AddScratch(const std::vector<TensorShape>& inputs, std::vector<xla::Shape>* results) const {
    int64_t (*size)(int64_t rows, int64_t columns) =
        type_string() == "BertTf>FusedBiasGeluGrad"            ? BiasGeluGradScratchSize
        : type_string() == "BertTf>FusedResidualLayerNormGrad" ? ResidualLayerNormGradScratchSize
                                                               : nullptr;
    if (size == nullptr) return;
    const TensorShape& dy = inputs[0];
    const int64_t columns = dy.dim_size(dy.dims() - 1);
    const int64_t rows = columns == 0 ? 0 : dy.num_elements() / columns;
    results->push_back(RowMajor(xla::F32, TensorShape({size(rows, columns)})));
  }

  const std::string attributes_;
};

// Reads and assigns the variables; the kernel updates them in place, in their own buffers where
// XLA was given those, else in copies.
class AdamWeightDecayOp : public XlaOpKernel {
 public:
  explicit AdamWeightDecayOp(OpKernelConstruction* context)
      : XlaOpKernel(context), attributes_(AttributeText(context->def())) {}

  void Compile(XlaOpKernelContext* context) override {
    TensorShape shape;
    OP_REQUIRES_OK(context, StaticShape(context, kGradient, &shape));
    std::vector<xla::XlaOp> operands(kGradient);
    for (int i = 0; i < kGradient; ++i) {
      TensorShape received;
      OP_REQUIRES_OK(context, context->ReadVariableInput(i, tensorflow::DT_FLOAT, &received,
                                                         &operands[i]));
      OP_REQUIRES(context, received == shape,
                  absl::InvalidArgumentError(absl::StrCat(
                      "Expected variables of the gradient's shape ", shape.DebugString(),
                      ". Received: variable ", i, " of shape ", received.DebugString())));
    }
    const std::vector<xla::Shape> result_shapes(kGradient, RowMajor(xla::F32, shape));
    std::vector<xla::Shape> operand_shapes = result_shapes;
    for (int i = kGradient; i < context->num_inputs(); ++i) {
      OP_REQUIRES_OK(context, StaticShape(context, i, &shape));
      OP_REQUIRES(context, i == kGradient || shape.num_elements() == 1,
                  absl::InvalidArgumentError(
                      absl::StrCat("Expected scalars after the gradient. Received: input ", i,
                                   " of shape ", shape.DebugString())));
      operands.push_back(context->Input(i));
      operand_shapes.push_back(RowMajor(xla::F32, shape));
    }
    const xla::XlaOp results = CallHandler(context, operands, operand_shapes, result_shapes,
                                           /*in_place=*/kGradient, attributes_);
    for (int i = 0; i < kGradient; ++i) {
      OP_REQUIRES_OK(context, context->AssignVariable(i, tensorflow::DT_FLOAT,
                                                      xla::GetTupleElement(results, i)));
    }
  }

 private:
  static constexpr int kGradient = 3;  // its place, after the variable and the two means

  const std::string attributes_;
};

// Not REGISTER_XLA_OP: what that registers after the process's first compilation is never seen.
#define BERT_TF_REGISTER(NAME, OP) \
  REGISTER_KERNEL_BUILDER(         \
      Name("BertTf>" NAME).Device(tensorflow::DEVICE_CPU_XLA_JIT), OP)
BERT_TF_REGISTER("AdamWeightDecay", AdamWeightDecayOp);
BERT_TF_REGISTER("FusedBiasGelu", CustomCallOp);
BERT_TF_REGISTER("FusedBiasGeluGrad", CustomCallOp);
BERT_TF_REGISTER("FusedDense", CustomCallOp);
BERT_TF_REGISTER("FusedResidualLayerNorm", CustomCallOp);
BERT_TF_REGISTER("FusedResidualLayerNormGrad", CustomCallOp);
BERT_TF_REGISTER("PackDense", CustomCallOp);
BERT_TF_REGISTER("QuantizedDense", CustomCallOp);
BERT_TF_REGISTER("VarlenAttention", CustomCallOp);
BERT_TF_REGISTER("VarlenAttentionGrad", CustomCallOp);
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
