// Shared by the ops with prepacked kernels: the checks of shapes, and the OpKernel.
//
// In FusedDense and QuantizedDense, the inputs bias, residual, gamma and beta are lists of no or
// one tensor. gamma and beta have the same number of tensors (num_layer_norm).
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
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

// Checks that a prepacked kernel [depth, units], of which `depth` may be unknown, has the size that
// `packed_size` returns: a number of elements, or kTooLarge.
inline absl::Status CheckPacked(tensorflow::shape_inference::InferenceContext* c, const char* name,
                                int64_t (*packed_size)(int64_t depth, int64_t units),
                                tensorflow::shape_inference::DimensionHandle depth, int64_t units) {
  tensorflow::shape_inference::ShapeHandle packed;
  TF_RETURN_IF_ERROR(ReadShape(c, name, 1, "be a vector", &packed));
  if (!c->ValueKnown(depth)) return absl::OkStatus();
  const int64_t size = packed_size(c->Value(depth), units);
  TF_RETURN_IF_ERROR(CheckPackedSize(size, c->Value(depth), units));
  if (!c->ValueKnown(c->Dim(packed, 0)) || c->Value(c->Dim(packed, 0)) == size) {
    return absl::OkStatus();
  }
  return InvalidArgument("`", name, "` must have shape [", size, "] for a kernel of shape [",
                         c->Value(depth), ", ", units, "]. Received: ", name,
                         ".shape=", c->DebugString(packed));
}

// Checks that int32 can hold the sums of a kernel in 8-bit integers.
inline absl::Status CheckDepth(tensorflow::shape_inference::InferenceContext* c, const char* name,
                               tensorflow::shape_inference::DimensionHandle depth,
                               int64_t most_depth) {
  if (!c->ValueKnown(depth) || c->Value(depth) <= most_depth) return absl::OkStatus();
  return InvalidArgument(
      "`", name, "` must have at most ", most_depth,
      " columns, so that int32 can hold the sums. Received: K=", c->Value(depth));
}

// Checks the shape of a static scale: a scale and a zero point, or empty.
inline absl::Status CheckStaticScale(tensorflow::shape_inference::InferenceContext* c,
                                     const char* number, const char* name) {
  int num_static;
  TF_RETURN_IF_ERROR(ReadOptional(c, number, &num_static));
  if (num_static == 0) return absl::OkStatus();
  tensorflow::shape_inference::ShapeHandle shape;
  TF_RETURN_IF_ERROR(ReadShape(c, name, 1, "be a vector", &shape));
  const auto size = c->Dim(shape, 0);
  if (!c->ValueKnown(size) || c->Value(size) == 0 || c->Value(size) == 2) return absl::OkStatus();
  return InvalidArgument("`", name, "` must have shape [2], a scale and a zero point, or [0]. ",
                         "Received: ", name, ".shape=", c->DebugString(shape));
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
  tensorflow::shape_inference::ShapeHandle x;
  TF_RETURN_IF_ERROR(ReadShape(c, "x", 2, "have shape [M, K]", &x));
  TF_RETURN_IF_ERROR(CheckDepth(c, "x", c->Dim(x, 1), most_depth));
  TF_RETURN_IF_ERROR(CheckPacked(c, "packed", packed_size, c->Dim(x, 1), num_columns));
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

// Checks that these inputs are vectors of this size.
inline absl::Status CheckVectors(tensorflow::shape_inference::InferenceContext* c,
                                 tensorflow::shape_inference::DimensionHandle size,
                                 std::initializer_list<const char*> names) {
  for (const char* name : names) {
    tensorflow::shape_inference::ShapeHandle vector = c->Vector(size);
    TF_RETURN_IF_ERROR(MergeShape(c, name, &vector));
  }
  return absl::OkStatus();
}

// Asks for huge pages for a prepacked kernel that has the same address in two consecutive calls,
// and so is expected to stay there.
class PackedKernel {
 public:
  void PreferHugePagesFor(const tensorflow::Tensor& packed) {
    constexpr size_t kLeastBytes = 512 << 10;  // smaller kernels fit the second-level cache
    const void* const data = packed.data();
    if (has_huge_pages_.load(std::memory_order_relaxed)) return;
    if (packed.TotalBytes() < kLeastBytes) return;
    if (last_packed_.exchange(data) != data || has_huge_pages_.exchange(true)) return;
    PreferHugePages(data, packed.TotalBytes());
  }

 private:
  std::atomic<const void*> last_packed_{nullptr};
  std::atomic<bool> has_huge_pages_{false};
};

// An op whose inputs with these numbers are prepacked kernels.
template <typename Args, auto kKernel, int... kPackedInputs>
class PackedKernelsOp : public CpuOp<Args, kKernel> {
 public:
  using CpuOp<Args, kKernel>::CpuOp;

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context, OpCall<OpKernelCall>* call) override {
    PackedKernel* kernel = kernels_;
    (kernel++->PreferHugePagesFor(context->input(kPackedInputs)), ...);
    return CpuOp<Args, kKernel>::Run(context, call);
  }

 private:
  PackedKernel kernels_[sizeof...(kPackedInputs)];
};

template <typename Args, auto kKernel>
using DenseOp = PackedKernelsOp<Args, kKernel, 1>;

}  // namespace bert_tf
