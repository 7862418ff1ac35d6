// Shared by FusedDense and QuantizedDense: the shapes and the OpKernel.
//
// The inputs bias, residual, gamma and beta are lists of no or one tensor. gamma and beta have the
// same number of tensors (num_layer_norm).
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>

#include "custom_ops/kernels/base/huge_pages.h"
#include "custom_ops/kernels/base/sizes.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {

// Checks that a kernel [depth, units] can be prepacked. `size` is the size of the prepacked kernel.
inline absl::Status CheckPackedSize(int64_t size, int64_t depth, int64_t units) {
  if (size != kTooLarge) return absl::OkStatus();
  return InvalidArgument("A prepacked kernel must have at most ", kLargestSize,
                         " elements. Received: K=", depth, ", units=", units);
}

// Checks the attributes, and the shapes of the inputs that both ops have in common: x [M, K],
// packed, bias?, residual?, gamma? and beta?. Sets the shape of the result. `packed_size` is the
// size of a prepacked kernel, or kTooLarge.
inline absl::Status DenseShape(tensorflow::shape_inference::InferenceContext* c,
                               int64_t (*packed_size)(int64_t depth, int64_t units),
                               int64_t most_depth = std::numeric_limits<int64_t>::max()) {
  int64_t num_columns;
  int num_bias, num_residual, num_layer_norm;
  std::string activation;
  TF_RETURN_IF_ERROR(c->GetAttr("units", &num_columns));
  TF_RETURN_IF_ERROR(c->GetAttr("activation", &activation));
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_bias", &num_bias));
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_residual", &num_residual));
  TF_RETURN_IF_ERROR(ReadOptional(c, "num_layer_norm", &num_layer_norm));
  TF_RETURN_IF_ERROR(CheckEpsilon(c));
  if (activation != "none" && num_residual + num_layer_norm > 0) {
    return InvalidArgument(
        "`activation` must be 'none' with a residual or LayerNorm. Received: activation=",
        activation, ", num_residual=", num_residual, ", num_layer_norm=", num_layer_norm);
  }
  tensorflow::shape_inference::ShapeHandle x, packed;
  TF_RETURN_IF_ERROR(ReadShape(c, "x", 2, "have shape [M, K]", &x));
  TF_RETURN_IF_ERROR(ReadShape(c, "packed", 1, "be a vector", &packed));
  if (c->ValueKnown(c->Dim(x, 1))) {
    const int64_t depth = c->Value(c->Dim(x, 1));
    if (depth > most_depth) {
      return InvalidArgument("`x` must have at most ", most_depth,
                             " columns, so that int32 can hold the sums. Received: K=", depth);
    }
    const int64_t size = packed_size(depth, num_columns);
    TF_RETURN_IF_ERROR(CheckPackedSize(size, depth, num_columns));
    if (c->ValueKnown(c->Dim(packed, 0)) && c->Value(c->Dim(packed, 0)) != size) {
      return InvalidArgument("`packed` must have shape [", size, "] for a kernel of shape [", depth,
                             ", ", num_columns,
                             "]. Received: packed.shape=", c->DebugString(packed));
    }
  }
  const auto units = c->MakeDim(num_columns);
  tensorflow::shape_inference::DimensionHandle size;
  if (!c->Multiply(c->Dim(x, 0), units, &size).ok()) {
    return InvalidArgument("The result must have fewer than 2^63 elements. Received: x.shape=",
                           c->DebugString(x), ", units=", num_columns);
  }
  auto y = c->Matrix(c->Dim(x, 0), units);
  auto vector = c->Vector(units);
  for (const char* name : {"bias", "gamma", "beta"}) {
    TF_RETURN_IF_ERROR(MergeShape(c, name, &vector));
  }
  TF_RETURN_IF_ERROR(MergeShape(c, "residual", &y));
  c->set_output(0, y);
  return absl::OkStatus();
}

// It uses huge pages for a prepacked kernel that has the same address in two consecutive calls, and
// so is expected to stay there.
template <typename Args, auto kKernel>
class DenseOp : public CpuOp<Args, kKernel> {
 public:
  using CpuOp<Args, kKernel>::CpuOp;

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context, OpCall<OpKernelCall>* call) override {
    PreferHugePagesFor(context->input(1));
    return CpuOp<Args, kKernel>::Run(context, call);
  }

 private:
  void PreferHugePagesFor(const tensorflow::Tensor& packed) {
    constexpr size_t kLeastBytes = 512 << 10;  // smaller kernels fit the second-level cache
    const void* const data = packed.data();
    if (has_huge_pages_.load(std::memory_order_relaxed)) return;
    if (packed.TotalBytes() < kLeastBytes) return;
    if (last_packed_.exchange(data) != data || has_huge_pages_.exchange(true)) return;
    PreferHugePages(data, packed.TotalBytes());
  }

  std::atomic<const void*> last_packed_{nullptr};
  std::atomic<bool> has_huge_pages_{false};
};

}  // namespace bert_tf
