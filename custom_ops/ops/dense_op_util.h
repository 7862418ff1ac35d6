// What FusedDense and QuantizedDense share: the attributes, and the inputs of what follows the
// matmul.
//
// bias and residual are lists of no or one tensor; so are gamma and beta, together
// (num_layer_norm).
#ifndef BERT_TF_CUSTOM_OPS_OPS_DENSE_OP_UTIL_H_
#define BERT_TF_CUSTOM_OPS_OPS_DENSE_OP_UTIL_H_

#include <atomic>
#include <string>
#include <vector>

#include "custom_ops/kernels/fused_dense.h"
#include "custom_ops/kernels/huge_pages.h"
#include "custom_ops/kernels/sizes.h"
#include "custom_ops/ops/op_attributes.h"
#include "custom_ops/ops/op_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {

// The attributes of a dense op, checked; Context is an OpKernelConstruction or an InferenceContext.
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
          "Expected no activation with a residual or LayerNorm. Received: activation=", name,
          ", num_residual=", num_residual, ", num_layer_norm=", num_layer_norm);
    }
    return absl::OkStatus();
  }
};

// Whether a kernel [depth, units] can be packed; `size` is that of the packed kernel.
inline absl::Status CheckPackedSize(int64_t size, int64_t depth, int64_t units) {
  if (size != kTooLarge) return absl::OkStatus();
  return InvalidArgument("Expected a kernel of at most ", kLargestSize,
                         " elements, packed. Received: a kernel of [", depth, ", ", units, "]");
}

// Whether packed is a vector of that size; `received` is its shape as text.
inline absl::Status CheckPacked(int64_t size, int64_t depth, int64_t units, bool fits,
                                const std::string& received) {
  TF_RETURN_IF_ERROR(CheckPackedSize(size, depth, units));
  if (fits) return absl::OkStatus();
  return InvalidArgument("Expected packed to have shape [", size, "], a kernel of [", depth, ", ",
                         units, "] packed. Received: packed of shape ", received);
}

// Checks the shapes of the inputs from number `i` on (bias?, residual?, gamma?, beta?) and sets
// that of the result, for x [M, K].
inline absl::Status DenseEpilogueShape(tensorflow::shape_inference::InferenceContext* c,
                                       const DenseAttributes& attributes, int i) {
  using tensorflow::shape_inference::DimensionHandle;
  using tensorflow::shape_inference::ShapeHandle;
  ShapeHandle x;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &x));
  const DimensionHandle units = c->MakeDim(attributes.units);
  const auto check_vector = [&](const char* name) {
    ShapeHandle merged;
    if (c->Merge(c->input(i), c->Vector(units), &merged).ok()) return absl::OkStatus();
    return InvalidArgument("Expected ", name, " to have shape [", attributes.units,
                           "]. Received: ", name, " of shape ", c->DebugString(c->input(i)));
  };
  ShapeHandle y = c->Matrix(c->Dim(x, 0), units);
  DimensionHandle size;
  if (!c->Multiply(c->Dim(x, 0), units, &size).ok()) {
    return InvalidArgument("Expected a result of fewer than 2^63 elements. Received: x of shape ",
                           c->DebugString(x), ", units=", attributes.units);
  }
  if (attributes.num_bias == 1) {
    TF_RETURN_IF_ERROR(check_vector("bias"));
    ++i;
  }
  if (attributes.num_residual == 1) {
    ShapeHandle merged;
    if (!c->Merge(c->input(i), y, &merged).ok()) {
      return InvalidArgument("Expected residual to have the shape of the result, ",
                             c->DebugString(y), ". Received: residual of shape ",
                             c->DebugString(c->input(i)));
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

// The optional inputs of an epilogue, of the shapes that x [rows, K] asks for; null where there are
// none.
struct DenseEpilogueInputs {
  const tensorflow::Tensor* bias;
  const tensorflow::Tensor* residual;
  const tensorflow::Tensor* gamma;
  const tensorflow::Tensor* beta;

  absl::Status Read(tensorflow::OpKernelContext* context, int64_t rows, int64_t units) {
    tensorflow::TensorShape vector, matrix;
    TF_RETURN_IF_ERROR(MakeShape({units}, &vector));
    TF_RETURN_IF_ERROR(MakeShape({rows, units}, &matrix));
    TF_RETURN_IF_ERROR(Optional(context, "bias", vector, &bias));
    TF_RETURN_IF_ERROR(Optional(context, "residual", matrix, &residual));
    TF_RETURN_IF_ERROR(Optional(context, "gamma", vector, &gamma));
    return Optional(context, "beta", vector, &beta);
  }

  // Sets what FusedDenseArgs and QuantizedDenseArgs have in common.
  template <typename T, typename Args>
  void SetArgs(const DenseAttributes& attributes, const tensorflow::Tensor& x,
               tensorflow::Tensor* y, Args* args) const {
    args->x = Data<T>(x);
    args->bias = DataOrNull<T>(bias);
    args->activation = attributes.activation;
    args->residual = DataOrNull<T>(residual);
    args->gamma = DataOrNull<T>(gamma);
    args->beta = DataOrNull<T>(beta);
    args->epsilon = attributes.epsilon;
    args->rows = x.dim_size(0);
    args->depth = x.dim_size(1);
    args->columns = attributes.units;
    args->y = MutableData<T>(y);
  }

 private:
  // The named optional input of the shape given, or null.
  static absl::Status Optional(tensorflow::OpKernelContext* context, const char* name,
                               const tensorflow::TensorShape& shape,
                               const tensorflow::Tensor** tensor) {
    tensorflow::OpInputList list;
    TF_RETURN_IF_ERROR(context->input_list(name, &list));
    *tensor = list.size() == 0 ? nullptr : &list[0];
    if (*tensor == nullptr || (*tensor)->shape() == shape) return absl::OkStatus();
    return InvalidArgument("Expected ", name, " to have shape ", shape.DebugString(),
                           ". Received: ", name, " of shape ", (*tensor)->shape().DebugString());
  }

  template <typename T>
  static const KernelType<T>* DataOrNull(const tensorflow::Tensor* tensor) {
    return tensor == nullptr ? nullptr : Data<T>(*tensor);
  }
};

// Large pages for a kernel that is met twice at the same place, and so stays there.
class HugePagesOnce {
 public:
  void Prefer(const tensorflow::Tensor& packed) {
    constexpr size_t kLeastBytes = 512 << 10;  // smaller ones fit the second cache
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
