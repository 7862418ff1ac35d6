// BertTf>FusedDense and BertTf>PackDense; custom_ops/kernels/fused_dense.h has the formulas and the
// layout of a packed kernel.
//
// bias and residual are lists of no or one tensor; so are gamma and beta, together
// (num_layer_norm).
#include "custom_ops/kernels/fused_dense.h"

#include <atomic>
#include <string>
#include <vector>

#include "custom_ops/kernels/huge_pages.h"
#include "custom_ops/ops/op_util.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bert_tf {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The attributes of FusedDense, checked; Context is an OpKernelConstruction or an InferenceContext.
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
    TF_RETURN_IF_ERROR(context->GetAttr("num_bias", &num_bias));
    TF_RETURN_IF_ERROR(context->GetAttr("num_residual", &num_residual));
    TF_RETURN_IF_ERROR(context->GetAttr("num_layer_norm", &num_layer_norm));
    TF_RETURN_IF_ERROR(context->GetAttr("epsilon", &epsilon));
    std::string name;
    TF_RETURN_IF_ERROR(context->GetAttr("activation", &name));
    activation = name == "gelu"       ? DenseActivation::kGelu
                 : name == "gelu_new" ? DenseActivation::kApproximateGelu
                                      : DenseActivation::kNone;
    if (num_bias > 1 || num_residual > 1 || num_layer_norm > 1) {
      return InvalidArgument(
          "Expected num_bias, num_residual and num_layer_norm to be 0 or 1. Received: num_bias=",
          num_bias, ", num_residual=", num_residual, ", num_layer_norm=", num_layer_norm);
    }
    if (activation != DenseActivation::kNone && num_residual + num_layer_norm > 0) {
      return InvalidArgument(
          "Expected no activation with a residual or LayerNorm. Received: activation=", name,
          ", num_residual=", num_residual, ", num_layer_norm=", num_layer_norm);
    }
    if (!(epsilon >= 0.0f)) {
      return InvalidArgument("Expected epsilon >= 0. Received: epsilon=", epsilon);
    }
    return absl::OkStatus();
  }
};

absl::Status WrongPackedSize(int64_t depth, int64_t units, const std::string& received) {
  return InvalidArgument("Expected packed to have shape [", PackedDenseSize(depth, units),
                         "], a kernel of [", depth, ", ", units,
                         "] packed. Received: packed of shape ", received);
}

// Inputs: x, packed, bias?, residual?, gamma?, beta?.
absl::Status DenseShape(InferenceContext* c) {
  DenseAttributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  ShapeHandle x, packed;
  if (!c->WithRank(c->input(0), 2, &x).ok()) {
    return InvalidArgument("Expected x to have shape [M, K]. Received: x of shape ",
                           c->DebugString(c->input(0)));
  }
  if (!c->WithRank(c->input(1), 1, &packed).ok()) {
    return InvalidArgument("Expected packed to be a vector. Received: packed of shape ",
                           c->DebugString(c->input(1)));
  }
  if (c->ValueKnown(c->Dim(x, 1)) && c->ValueKnown(c->Dim(packed, 0))) {
    const int64_t depth = c->Value(c->Dim(x, 1));
    if (c->Value(c->Dim(packed, 0)) != PackedDenseSize(depth, attributes.units)) {
      return WrongPackedSize(depth, attributes.units, c->DebugString(packed));
    }
  }
  int i = 2;
  const DimensionHandle units = c->MakeDim(attributes.units);
  const auto check_vector = [&](const char* name) {
    ShapeHandle merged;
    if (c->Merge(c->input(i), c->Vector(units), &merged).ok()) return absl::OkStatus();
    return InvalidArgument("Expected ", name, " to have shape [", attributes.units,
                           "]. Received: ", name, " of shape ", c->DebugString(c->input(i)));
  };
  ShapeHandle y = c->Matrix(c->Dim(x, 0), units);
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

absl::Status PackShape(InferenceContext* c) {
  bool transposed;
  TF_RETURN_IF_ERROR(c->GetAttr("transposed", &transposed));
  ShapeHandle kernel;
  if (!c->WithRank(c->input(0), 2, &kernel).ok()) {
    return InvalidArgument("Expected kernel to be a matrix. Received: kernel of shape ",
                           c->DebugString(c->input(0)));
  }
  const DimensionHandle depth = c->Dim(kernel, transposed ? 1 : 0);
  const DimensionHandle units = c->Dim(kernel, transposed ? 0 : 1);
  c->set_output(0, c->Vector(c->ValueKnown(depth) && c->ValueKnown(units)
                                 ? PackedDenseSize(c->Value(depth), c->Value(units))
                                 : InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

template <typename T>
class FusedDenseOp : public OpKernel {
 public:
  explicit FusedDenseOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    const int64_t units = attributes_.units;
    const Tensor& x = context->input(0);
    const Tensor& packed = context->input(1);
    OP_REQUIRES(context, x.dims() == 2,
                InvalidArgument("Expected x to have shape [M, K]. Received: x of shape ",
                                x.shape().DebugString()));
    const int64_t rows = x.dim_size(0);
    const int64_t depth = x.dim_size(1);
    OP_REQUIRES(context, packed.shape() == TensorShape({PackedDenseSize(depth, units)}),
                WrongPackedSize(depth, units, packed.shape().DebugString()));
    const TensorShape vector({units}), matrix({rows, units});
    const Tensor *bias, *residual, *gamma, *beta;
    OP_REQUIRES_OK(context, Optional(context, "bias", vector, &bias));
    OP_REQUIRES_OK(context, Optional(context, "residual", matrix, &residual));
    OP_REQUIRES_OK(context, Optional(context, "gamma", vector, &gamma));
    OP_REQUIRES_OK(context, Optional(context, "beta", vector, &beta));

    std::vector<int> in_place;
    if (residual != nullptr) in_place.push_back(2 + attributes_.num_bias);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(in_place, 0, matrix, &y));
    FusedDenseArgs<KernelType<T>> args;
    args.x = Data<T>(x);
    args.packed = Data<T>(packed);
    args.bias = DataOrNull(bias);
    args.activation = attributes_.activation;
    args.residual = DataOrNull(residual);
    args.gamma = DataOrNull(gamma);
    args.beta = DataOrNull(beta);
    args.epsilon = attributes_.epsilon;
    args.rows = rows;
    args.depth = depth;
    args.columns = units;
    args.y = MutableData<T>(y);
    PreferHugePagesOnce(packed);
    FusedDense(TensorFlowParallel(context), args);
  }

 private:
  // A kernel that is met twice at the same place stays there.
  void PreferHugePagesOnce(const Tensor& packed) {
    constexpr size_t kLeastBytes = 512 << 10;  // smaller ones fit the second cache
    const void* const data = packed.data();
    if (has_huge_pages_.load(std::memory_order_relaxed)) return;
    if (packed.TotalBytes() < kLeastBytes) return;
    if (last_packed_.exchange(data) != data || has_huge_pages_.exchange(true)) return;
    PreferHugePages(data, packed.TotalBytes());
  }

  // The named optional input of the shape given, or null.
  static absl::Status Optional(OpKernelContext* context, const char* name,
                               const TensorShape& shape, const Tensor** tensor) {
    OpInputList list;
    TF_RETURN_IF_ERROR(context->input_list(name, &list));
    *tensor = list.size() == 0 ? nullptr : &list[0];
    if (*tensor == nullptr || (*tensor)->shape() == shape) return absl::OkStatus();
    return InvalidArgument("Expected ", name, " to have shape ", shape.DebugString(),
                           ". Received: ", name, " of shape ", (*tensor)->shape().DebugString());
  }

  static const KernelType<T>* DataOrNull(const Tensor* tensor) {
    return tensor == nullptr ? nullptr : Data<T>(*tensor);
  }

  DenseAttributes attributes_;
  std::atomic<const void*> last_packed_{nullptr};
  std::atomic<bool> has_huge_pages_{false};
};

template <typename T>
class PackDenseOp : public OpKernel {
 public:
  explicit PackDenseOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("transposed", &transposed_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& kernel = context->input(0);
    OP_REQUIRES(context, kernel.dims() == 2,
                InvalidArgument("Expected kernel to be a matrix. Received: kernel of shape ",
                                kernel.shape().DebugString()));
    const int64_t depth = kernel.dim_size(transposed_ ? 1 : 0);
    const int64_t units = kernel.dim_size(transposed_ ? 0 : 1);
    Tensor* packed = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(
                                0, TensorShape({PackedDenseSize(depth, units)}), &packed));
    PackDense(TensorFlowParallel(context),
              PackDenseArgs<KernelType<T>>{Data<T>(kernel), transposed_, depth, units,
                                           MutableData<T>(packed)});
  }

 private:
  bool transposed_;
};

REGISTER_OP("BertTf>FusedDense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("units: int >= 0")
    .Attr("activation: {'none', 'gelu', 'gelu_new'} = 'none'")
    .Attr("epsilon: float = 1e-12")
    .Attr("num_bias: int >= 0")
    .Attr("num_residual: int >= 0")
    .Attr("num_layer_norm: int >= 0")
    .Input("x: T")
    .Input("packed: T")
    .Input("bias: num_bias * T")
    .Input("residual: num_residual * T")
    .Input("gamma: num_layer_norm * T")
    .Input("beta: num_layer_norm * T")
    .Output("y: T")
    .SetShapeFn(DenseShape);

REGISTER_OP("BertTf>PackDense")
    .Attr("T: {float, bfloat16, half}")
    .Attr("transposed: bool = false")
    .Input("kernel: T")
    .Output("packed: T")
    .SetShapeFn(PackShape);

#define BERT_TF_REGISTER(T)                                                                   \
  REGISTER_KERNEL_BUILDER(                                                                    \
      Name("BertTf>FusedDense").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),        \
      FusedDenseOp<T>);                                                                       \
  REGISTER_KERNEL_BUILDER(                                                                    \
      Name("BertTf>PackDense").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),         \
      PackDenseOp<T>);
BERT_TF_REGISTER(float)
BERT_TF_REGISTER(Eigen::bfloat16)
BERT_TF_REGISTER(Eigen::half)
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
