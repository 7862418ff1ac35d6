#include "custom_ops/xla/custom_call_op.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "custom_ops/kernels/optimizer/adam_weight_decay.h"
#include "custom_ops/ops/op_definition.h"
#include "custom_ops/xla/tensor_names.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"

namespace bert_tf {

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;

// The attributes in the form that a handler reads, the text of an MLIR dictionary. Types are
// omitted, because the buffers have types.
std::string AttributeText(const tensorflow::NodeDef& node, const TensorNames& names) {
  const auto names_item = [](const char* key, const std::vector<std::string>& tensors) {
    return absl::StrCat(key, " = \"", absl::StrJoin(tensors, std::string(1, kNameSeparator)), "\"");
  };
  std::vector<std::string> items = {names_item(kInputNames, names.inputs),
                                    names_item(kOutputNames, names.outputs)};
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

// A shape with the layout of a TensorFlow tensor, row-major.
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

// A call of the handler with the name of the op, with its attributes. The first `in_place` results
// use the buffers of the operands with the same numbers.
xla::XlaOp CallHandler(XlaOpKernelContext* context, const TensorNames& names,
                       const std::vector<xla::XlaOp>& operands,
                       const std::vector<xla::Shape>& operand_shapes,
                       const std::vector<xla::Shape>& result_shapes, int in_place = 0) {
  std::vector<std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>> aliases;
  for (int64_t i = 0; i < in_place; ++i) {
    aliases.emplace_back(xla::ShapeIndex({i}), std::make_pair(i, xla::ShapeIndex()));
  }
  return xla::CustomCallWithLayout(context->builder(), context->op_kernel().type_string(), operands,
                                   xla::ShapeUtil::MakeTupleShape(result_shapes), operand_shapes,
                                   AttributeText(context->op_kernel().def(), names),
                                   /*has_side_effect=*/false, aliases, /*literal=*/nullptr,
                                   xla::CustomCallSchedule::SCHEDULE_NONE,
                                   xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

class CustomCallOp : public XlaOpKernel {
 public:
  CustomCallOp(OpKernelConstruction* construction, ScratchSize scratch_size)
      : XlaOpKernel(construction), scratch_size_(scratch_size) {}

  void Compile(XlaOpKernelContext* context) override {
    TensorNames names;
    OP_REQUIRES_OK(context, names.Read(def()));
    std::vector<xla::XlaOp> operands;
    std::vector<TensorShape> inputs(context->num_inputs()), outputs;
    std::vector<xla::Shape> operand_shapes, result_shapes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      OP_REQUIRES_OK(context, StaticShape(context, i, &inputs[i]));
      operands.push_back(context->Input(i));
      operand_shapes.push_back(RowMajor(context->input_xla_type(i), inputs[i]));
    }
    OP_REQUIRES_OK(context, InferShapes(def(), inputs, &outputs));
    for (int i = 0; i < context->num_outputs(); ++i) {
      result_shapes.push_back(RowMajor(context->output_xla_type(i), outputs[i]));
    }
    if (scratch_size_ != nullptr) {
      std::vector<Sizes> sizes;
      for (const TensorShape& input : inputs) sizes.push_back(input.dim_sizes());
      const int64_t size = scratch_size_(sizes);
      OP_REQUIRES(context, size >= 0,
                  absl::InvalidArgumentError(absl::StrCat(
                      "The first input of ", type_string(),
                      " must be so small that its scratch fits memory. Received: shape=",
                      inputs[0].DebugString())));
      result_shapes.push_back(RowMajor(xla::F32, TensorShape({size})));
    }
    const xla::XlaOp results = CallHandler(context, names, operands, operand_shapes, result_shapes);
    for (int i = 0; i < context->num_outputs(); ++i) {
      context->SetOutput(i, xla::GetTupleElement(results, i));
    }
  }

 private:
  const ScratchSize scratch_size_;
};

// Reads and assigns the variables. The kernel updates them in place: in their own buffers if these
// were passed to XLA, otherwise in copies.
class AdamWeightDecayOp : public XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* context) override {
    TensorNames names;
    OP_REQUIRES_OK(context, names.Read(def()));
    const int inputs = context->num_inputs();
    int variables = 0;  // and their means
    while (variables < inputs && context->input_type(variables) == tensorflow::DT_RESOURCE) {
      ++variables;
    }
    names.outputs.assign(names.inputs.begin(), names.inputs.begin() + variables);
    std::vector<xla::XlaOp> operands(inputs);
    std::vector<TensorShape> shapes(inputs), outputs;
    for (int i = 0; i < inputs; ++i) {
      if (i < variables) {
        OP_REQUIRES_OK(
            context, context->ReadVariableInput(i, tensorflow::DT_FLOAT, &shapes[i], &operands[i]));
      } else {
        OP_REQUIRES_OK(context, StaticShape(context, i, &shapes[i]));
        operands[i] = context->Input(i);
      }
    }
    OP_REQUIRES_OK(context, InferShapes(def(), shapes, &outputs));
    std::vector<xla::Shape> operand_shapes;
    for (int i = 0; i < inputs; ++i) {
      const TensorShape& shape = shapes[i];
      if (i < variables) {
        const TensorShape& expected = shapes[variables + i % (variables / 3)];
        OP_REQUIRES(
            context, shape == expected,
            absl::InvalidArgumentError(absl::StrCat(
                "The variables must have the shape of their gradient, ", expected.DebugString(),
                ". Received: variable ", i, " of shape ", shape.DebugString())));
      }
      operand_shapes.push_back(
          RowMajor(i < variables ? xla::F32 : context->input_xla_type(i), shape));
    }
    const std::vector<xla::Shape> result_shapes(operand_shapes.begin(),
                                                operand_shapes.begin() + variables);
    const xla::XlaOp results = CallHandler(context, names, operands, operand_shapes, result_shapes,
                                           /*in_place=*/variables);
    for (int i = 0; i < variables; ++i) {
      OP_REQUIRES_OK(context, context->AssignVariable(i, tensorflow::DT_FLOAT,
                                                      xla::GetTupleElement(results, i)));
    }
  }
};

// Registers the OpKernels that `make_op` makes. TensorFlow's macros would need the class of the
// OpKernel in every file with registrations. REGISTER_XLA_OP would not do, because XLA ignores its
// registrations after the first compilation of the process.
template <typename MakeOp>
bool Register(const char* op, const char* device, int priority, const MakeOp& make_op) {
  class Factory : public tensorflow::kernel_factory::OpKernelFactory {
   public:
    explicit Factory(const MakeOp& make_op) : make_op_(make_op) {}
    OpKernel* Create(OpKernelConstruction* construction) override { return make_op_(construction); }

   private:
    const MakeOp make_op_;
  };
  const tensorflow::KernelDef* const definition =
      tensorflow::KernelDefBuilder(op).Device(device).Priority(priority).Build();
  tensorflow::kernel_factory::OpKernelRegistrar(definition, op, std::make_unique<Factory>(make_op));
  return true;
}

}  // namespace

bool RegisterLowering(const char* op, const char* device, ScratchSize scratch_size, int priority) {
  return Register(op, device, priority, [scratch_size](OpKernelConstruction* construction) {
    return new CustomCallOp(construction, scratch_size);
  });
}

bool RegisterAdamWeightDecayLowering(const char* device, int priority) {
  return Register(
      "BertTf>AdamWeightDecay", device, priority,
      [](OpKernelConstruction* construction) { return new AdamWeightDecayOp(construction); });
}

int64_t GlobalNormScratch(const std::vector<Sizes>& inputs) {
  int64_t blocks = 0;
  for (const Sizes& sizes : inputs) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    blocks += NumBlocks(count);
  }
  return blocks;
}

}  // namespace bert_tf
