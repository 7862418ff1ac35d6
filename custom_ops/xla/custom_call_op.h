// An op under XLA: a call of the foreign function that is registered for the platform under the
// name of the op (handlers.cc, gpu_handlers.cc). It runs the same kernel as the OpKernel.
//
// The operands are the inputs of the op, and its attributes are passed unchanged. The shape
// function of the op checks the inputs, whose shapes XLA knows, and computes the shapes of the
// results.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"

namespace bert_tf {

// A shape with the layout of a TensorFlow tensor, row-major.
xla::Shape RowMajor(xla::PrimitiveType type, const tensorflow::TensorShape& shape);

absl::Status StaticShape(tensorflow::XlaOpKernelContext* context, int input,
                         tensorflow::TensorShape* shape);

// A call of the handler with the name of the op, with its attributes. The first `in_place` results
// use the buffers of the operands with the same numbers.
xla::XlaOp CallHandler(tensorflow::XlaOpKernelContext* context,
                       const std::vector<xla::XlaOp>& operands,
                       const std::vector<xla::Shape>& operand_shapes,
                       const std::vector<xla::Shape>& result_shapes, int in_place = 0);

// The number of floats of scratch that a kernel needs for inputs of these shapes. Scratch is an
// additional last result that is not used.
using ScratchSize = int64_t (*)(const std::vector<tensorflow::TensorShape>& inputs);

void CompileCustomCall(tensorflow::XlaOpKernelContext* context, ScratchSize scratch_size);

// kScratchSize is null for an op without scratch.
template <ScratchSize kScratchSize = nullptr>
class CustomCallOp : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(tensorflow::XlaOpKernelContext* context) override {
    CompileCustomCall(context, kScratchSize);
  }
};

// The scratch of a kernel for a first input [..., columns].
template <int64_t (*kSize)(int64_t rows, int64_t columns)>
int64_t ScratchOfMatrix(const std::vector<tensorflow::TensorShape>& inputs) {
  const tensorflow::TensorShape& shape = inputs[0];
  const int64_t columns = shape.dim_size(shape.dims() - 1);
  return kSize(columns == 0 ? 0 : shape.num_elements() / columns, columns);
}

}  // namespace bert_tf
