#include "custom_ops/xla/custom_call_op.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "custom_ops/ops/kernel_op.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"

namespace bert_tf {

using tensorflow::TensorShape;
using tensorflow::XlaOpKernelContext;

namespace {

// The attributes in the form that a handler reads, the text of an MLIR dictionary. Types are
// omitted, because the buffers have types.
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

}  // namespace

xla::Shape RowMajor(xla::PrimitiveType type, const TensorShape& shape) {
  const auto sizes = shape.dim_sizes();
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(
      type, std::vector<int64_t>(sizes.begin(), sizes.end()));
}

absl::Status StaticShape(XlaOpKernelContext* context, int input, TensorShape* shape) {
  TF_ASSIGN_OR_RETURN(const xla::Shape xla_shape, context->InputXlaShape(input));
  if (!xla_shape.is_static()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Input ", input, " of ", context->op_kernel().type_string(),
                     " must have a static shape under XLA. Received: ", xla_shape.ToString()));
  }
  return tensorflow::XLAShapeToTensorShape(xla_shape, shape);
}

xla::XlaOp CallHandler(XlaOpKernelContext* context, const std::vector<xla::XlaOp>& operands,
                       const std::vector<xla::Shape>& operand_shapes,
                       const std::vector<xla::Shape>& result_shapes, int in_place) {
  std::vector<std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>> aliases;
  for (int64_t i = 0; i < in_place; ++i) {
    aliases.emplace_back(xla::ShapeIndex({i}), std::make_pair(i, xla::ShapeIndex()));
  }
  return xla::CustomCallWithLayout(context->builder(), context->op_kernel().type_string(), operands,
                                   xla::ShapeUtil::MakeTupleShape(result_shapes), operand_shapes,
                                   AttributeText(context->op_kernel().def()),
                                   /*has_side_effect=*/false, aliases, /*literal=*/nullptr,
                                   xla::CustomCallSchedule::SCHEDULE_NONE,
                                   xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

void CompileCustomCall(XlaOpKernelContext* context, ScratchSize scratch_size) {
  std::vector<xla::XlaOp> operands;
  std::vector<TensorShape> inputs(context->num_inputs()), outputs;
  std::vector<xla::Shape> operand_shapes, result_shapes;
  for (int i = 0; i < context->num_inputs(); ++i) {
    OP_REQUIRES_OK(context, StaticShape(context, i, &inputs[i]));
    operands.push_back(context->Input(i));
    operand_shapes.push_back(RowMajor(context->input_xla_type(i), inputs[i]));
  }
  OP_REQUIRES_OK(context, InferShapes(context->op_kernel().def(), inputs, &outputs));
  for (int i = 0; i < context->num_outputs(); ++i) {
    result_shapes.push_back(RowMajor(context->output_xla_type(i), outputs[i]));
  }
  if (scratch_size != nullptr) {
    const int64_t size = scratch_size(inputs);
    OP_REQUIRES(context, size >= 0,
                absl::InvalidArgumentError(
                    absl::StrCat("The first input of ", context->op_kernel().type_string(),
                                 " must be so small that its scratch fits memory. Received: shape=",
                                 inputs[0].DebugString())));
    result_shapes.push_back(RowMajor(xla::F32, TensorShape({size})));
  }
  const xla::XlaOp results = CallHandler(context, operands, operand_shapes, result_shapes);
  for (int i = 0; i < context->num_outputs(); ++i) {
    context->SetOutput(i, xla::GetTupleElement(results, i));
  }
}

}  // namespace bert_tf
