// Shared by FusedDense and QuantizedDense: the attributes, and the inputs of the epilogue of the
// matmul.
//
// The inputs bias, residual, gamma and beta are lists of no or one tensor. gamma and beta have the
// same number of tensors (num_layer_norm).
#ifndef BERT_TF_CUSTOM_OPS_OPS_DENSE_OP_UTIL_H_
#define BERT_TF_CUSTOM_OPS_OPS_DENSE_OP_UTIL_H_

#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "custom_ops/kernels/base/huge_pages.h"
#include "custom_ops/kernels/base/sizes.h"
#include "custom_ops/kernels/dense/fused_dense.h"
#include "custom_ops/ops/op_attributes.h"
#include "custom_ops/ops/op_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {

// The checked attributes of a dense op. Context is an OpKernelConstruction or an InferenceContext.
struct DenseAttributes {
  int64_t units;
  DenseActivation activation;
  int num_bias;
  int num_residual;
  int num_layer_norm;
  float epsilon;

  template <typename Context>
  absl::Status Read(Context* context) {
    TF_RETURN_IF_ERROR(context->GetAttr("units", &units));
    TF_RETURN_IF_ERROR(ReadOptional(context, "num_bias", &num_bias));
    TF_RETURN_IF_ERROR(ReadOptional(context, "num_residual", &num_residual));
    TF_RETURN_IF_ERROR(ReadOptional(context, "num_layer_norm", &num_layer_norm));
    TF_RETURN_IF_ERROR(ReadEpsilon(context, &epsilon));
    std::string name;
    TF_RETURN_IF_ERROR(context->GetAttr("activation", &name));
    activation = name == "gelu"       ? DenseActivation::kGelu
                 : name == "gelu_new" ? DenseActivation::kApproximateGelu
                                      : DenseActivation::kNone;
    if (activation != DenseActivation::kNone && num_residual + num_layer_norm > 0) {
      return InvalidArgument(
          "`activation` must be 'none' with a residual or LayerNorm. Received: activation=", name,
          ", num_residual=", num_residual, ", num_layer_norm=", num_layer_norm);
    }
    return absl::OkStatus();
  }
};

// Checks that a kernel [depth, units] can be prepacked. `size` is the size of the prepacked kernel.
inline absl::Status CheckPackedSize(int64_t size, int64_t depth, int64_t units) {
  if (size != kTooLarge) return absl::OkStatus();
  return InvalidArgument("A prepacked kernel must have at most ", kLargestSize,
                         " elements. Received: K=", depth, ", units=", units);
}

// How an op prepacks a kernel [depth, units].
struct Packing {
  int64_t (*size)(int64_t depth, int64_t units);  // elements, or kTooLarge
  int64_t most_depth = std::numeric_limits<int64_t>::max();

  absl::Status Check(int64_t depth, int64_t units, const std::string& received,
                     int64_t received_size) const {
    if (depth > most_depth) {
      return InvalidArgument("`x` must have at most ", most_depth,
                             " columns, so that int32 can hold the sums. Received: K=", depth);
    }
    const int64_t packed_size = size(depth, units);
    TF_RETURN_IF_ERROR(CheckPackedSize(packed_size, depth, units));
    if (received_size == kUnknownSize || received_size == packed_size) return absl::OkStatus();
    return InvalidArgument("`packed` must have shape [", packed_size, "] for a kernel of shape [",
                           depth, ", ", units, "]. Received: packed.shape=", received);
  }

  static constexpr int64_t kUnknownSize = -1;
};

// Checks the shapes of the inputs that both ops have in common: x [M, K] and packed, and, starting
// from number `i`, bias?, residual?, gamma?, beta?. Sets the shape of the result.
inline absl::Status DenseShape(tensorflow::shape_inference::InferenceContext* c,
                               const DenseAttributes& attributes, const Packing& packing, int i) {
  using tensorflow::shape_inference::DimensionHandle;
  using tensorflow::shape_inference::ShapeHandle;
  ShapeHandle x, packed;
  if (!c->WithRank(c->input(0), 2, &x).ok()) {
    return InvalidArgument("`x` must have shape [M, K]. Received: x.shape=",
                           c->DebugString(c->input(0)));
  }
  if (!c->WithRank(c->input(1), 1, &packed).ok()) {
    return InvalidArgument("`packed` must be a vector. Received: packed.shape=",
                           c->DebugString(c->input(1)));
  }
  if (c->ValueKnown(c->Dim(x, 1))) {
    const int64_t size =
        c->ValueKnown(c->Dim(packed, 0)) ? c->Value(c->Dim(packed, 0)) : Packing::kUnknownSize;
    TF_RETURN_IF_ERROR(
        packing.Check(c->Value(c->Dim(x, 1)), attributes.units, c->DebugString(packed), size));
  }
  const DimensionHandle units = c->MakeDim(attributes.units);
  const auto check_vector = [&](const char* name) {
    ShapeHandle merged;
    if (c->Merge(c->input(i), c->Vector(units), &merged).ok()) return absl::OkStatus();
    return InvalidArgument("`", name, "` must have shape [", attributes.units,
                           "]. Received: ", name, ".shape=", c->DebugString(c->input(i)));
  };
  ShapeHandle y = c->Matrix(c->Dim(x, 0), units);
  DimensionHandle size;
  if (!c->Multiply(c->Dim(x, 0), units, &size).ok()) {
    return InvalidArgument("The result must have fewer than 2^63 elements. Received: x.shape=",
                           c->DebugString(x), ", units=", attributes.units);
  }
  if (attributes.num_bias == 1) {
    TF_RETURN_IF_ERROR(check_vector("bias"));
    ++i;
  }
  if (attributes.num_residual == 1) {
    ShapeHandle merged;
    if (!c->Merge(c->input(i), y, &merged).ok()) {
      return InvalidArgument("`residual` must have the shape of the result, ", c->DebugString(y),
                             ". Received: residual.shape=", c->DebugString(c->input(i)));
    }
    y = merged;
    ++i;
  }
  if (attributes.num_layer_norm == 1) {
    TF_RETURN_IF_ERROR(check_vector("gamma"));
    ++i;
    TF_RETURN_IF_ERROR(check_vector("beta"));
  }
  c->set_output(0, y);
  return absl::OkStatus();
}

// Sets a field of the arguments to an optional input, which must have this shape, or to null.
template <typename T>
absl::Status ReadOptionalInput(tensorflow::OpKernelContext* context, const char* name,
                               const tensorflow::TensorShape& shape, const T** field) {
  const tensorflow::Tensor* tensor;
  TF_RETURN_IF_ERROR(OptionalInput(context, name, &tensor));
  SetPointer(tensor, field);
  if (tensor == nullptr || tensor->shape() == shape) return absl::OkStatus();
  return InvalidArgument("`", name, "` must have shape ", shape.DebugString(), ". Received: ", name,
                         ".shape=", tensor->shape().DebugString());
}

// Checks the inputs that both ops have in common, x [M, K], packed and, starting from number `i`,
// bias?, residual?, gamma?, beta?. Allocates the result, and sets `packed` and the fields of
// DenseArgs.
template <typename Args>
absl::Status ReadDense(tensorflow::OpKernelContext* context, const DenseAttributes& attributes,
                       const Packing& packing, int i, Args* args) {
  const int64_t units = attributes.units;
  const tensorflow::Tensor *x, *packed;
  TF_RETURN_IF_ERROR(context->input("x", &x));
  TF_RETURN_IF_ERROR(context->input("packed", &packed));
  if (x->dims() != 2) {
    return InvalidArgument("`x` must have shape [M, K]. Received: x.shape=",
                           x->shape().DebugString());
  }
  if (packed->dims() != 1) {
    return InvalidArgument("`packed` must be a vector. Received: packed.shape=",
                           packed->shape().DebugString());
  }
  TF_RETURN_IF_ERROR(
      packing.Check(x->dim_size(1), units, packed->shape().DebugString(), packed->dim_size(0)));
  tensorflow::TensorShape vector, result;
  TF_RETURN_IF_ERROR(MakeShape({units}, &vector));
  TF_RETURN_IF_ERROR(MakeShape({x->dim_size(0), units}, &result));
  SetPointer(x, &args->x);
  SetPointer(packed, &args->packed);
  TF_RETURN_IF_ERROR(ReadOptionalInput(context, "bias", vector, &args->bias));
  TF_RETURN_IF_ERROR(ReadOptionalInput(context, "residual", result, &args->residual));
  TF_RETURN_IF_ERROR(ReadOptionalInput(context, "gamma", vector, &args->gamma));
  TF_RETURN_IF_ERROR(ReadOptionalInput(context, "beta", vector, &args->beta));
  std::vector<int> in_place;
  if (attributes.num_residual == 1) in_place.push_back(i + attributes.num_bias);
  tensorflow::Tensor* y = nullptr;
  TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output(in_place, 0, result, &y));
  SetPointer(y, &args->y);
  args->activation = attributes.activation;
  args->epsilon = attributes.epsilon;
  args->rows = x->dim_size(0);
  args->depth = x->dim_size(1);
  args->columns = units;
  return absl::OkStatus();
}

// Uses huge pages for a kernel that has the same address in two consecutive calls, and so is
// expected to stay there.
class HugePagesOnce {
 public:
  void Prefer(const tensorflow::Tensor& packed) {
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

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_OPS_DENSE_OP_UTIL_H_
