// BertTf>FusedResidualLayerNorm and its gradient; custom_ops/kernels/fused_residual_layer_norm.h
// has the formulas.
//
// residual and bias are lists of no or one tensor. The gradient op returns dresidual only where it
// differs from dx: with residual and dropout (num_dresidual = 1).
#include <vector>

#include "custom_ops/kernels/fused_residual_layer_norm.h"
#include "custom_ops/ops/op_attributes.h"
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
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The shape functions' view of x [..., H] and of what must fit it.
class ShapeMerger {
 public:
  explicit ShapeMerger(InferenceContext* c) : c_(c) {}

  absl::Status SetX(ShapeHandle x) {
    if (!c_->WithRankAtLeast(x, 1, &x_).ok()) {
      return InvalidArgument("Expected x to have shape [..., H]. Received: x of shape ",
                             c_->DebugString(x));
    }
    return absl::OkStatus();
  }

  absl::Status MergeSame(const char* name, ShapeHandle shape) {
    ShapeHandle merged;
    if (!c_->Merge(x_, shape, &merged).ok()) {
      return InvalidArgument("Expected ", name, " to have the shape of x. Received: x of shape ",
                             c_->DebugString(x_), ", ", name, " of shape ", c_->DebugString(shape));
    }
    x_ = merged;
    return absl::OkStatus();
  }

  absl::Status MergeFeatures(const char* name, ShapeHandle shape) {
    ShapeHandle vector;
    DimensionHandle features;
    if (!c_->WithRank(shape, 1, &vector).ok() ||
        !c_->Merge(c_->Dim(x_, -1), c_->Dim(vector, 0), &features).ok()) {
      return InvalidArgument("Expected ", name,
                             " to have shape [H], H the last dimension of x. Received: x of shape ",
                             c_->DebugString(x_), ", ", name, " of shape ", c_->DebugString(shape));
    }
    return c_->ReplaceDim(x_, -1, features, &x_);
  }

  absl::Status CheckSeed(ShapeHandle shape) {
    ShapeHandle scalar;
    if (!c_->WithRank(shape, 0, &scalar).ok()) {
      return InvalidArgument("Expected seed to be a scalar. Received: seed of shape ",
                             c_->DebugString(shape));
    }
    return absl::OkStatus();
  }

  ShapeHandle x() const { return x_; }
  ShapeHandle features() const { return c_->Vector(c_->Dim(x_, -1)); }

  // [rows]: the product of all dimensions but the last.
  ShapeHandle rows() const {
    if (!c_->RankKnown(x_)) return c_->Vector(InferenceContext::kUnknownDim);
    DimensionHandle rows = c_->MakeDim(1);
    for (int i = 0; i + 1 < c_->Rank(x_); ++i) {
      if (!c_->Multiply(rows, c_->Dim(x_, i), &rows).ok()) {
        return c_->Vector(InferenceContext::kUnknownDim);
      }
    }
    return c_->Vector(rows);
  }

 private:
  InferenceContext* c_;
  ShapeHandle x_;
};

// Inputs: x, residual?, bias?, gamma, beta, seed.
absl::Status ForwardShape(InferenceContext* c) {
  ResidualLayerNormAttributes attributes;
  TF_RETURN_IF_ERROR(attributes.Read(c));
  const auto [num_residual, num_bias, dropout_rate] = attributes;
  float epsilon;
  TF_RETURN_IF_ERROR(ReadEpsilon(c, &epsilon));
  ShapeMerger merger(c);
  int i = 0;
  TF_RETURN_IF_ERROR(merger.SetX(c->input(i++)));
  if (num_residual == 1) TF_RETURN_IF_ERROR(merger.MergeSame("residual", c->input(i++)));
  if (num_bias == 1) TF_RETURN_IF_ERROR(merger.MergeFeatures("bias", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("gamma", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("beta", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.CheckSeed(c->input(i++)));
  c->set_output(0, merger.x());
  c->set_output(1, merger.rows());
  c->set_output(2, merger.rows());
  return absl::OkStatus();
}

// Inputs: dy, x, residual?, bias?, gamma, mean, rstd, seed.
absl::Status GradShape(InferenceContext* c) {
  ResidualLayerNormAttributes attributes;
  int num_dresidual;
  TF_RETURN_IF_ERROR(attributes.ReadGrad(c, &num_dresidual));
  const auto [num_residual, num_bias, dropout_rate] = attributes;
  ShapeMerger merger(c);
  int i = 1;
  TF_RETURN_IF_ERROR(merger.SetX(c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeSame("dy", c->input(0)));
  if (num_residual == 1) TF_RETURN_IF_ERROR(merger.MergeSame("residual", c->input(i++)));
  if (num_bias == 1) TF_RETURN_IF_ERROR(merger.MergeFeatures("bias", c->input(i++)));
  TF_RETURN_IF_ERROR(merger.MergeFeatures("gamma", c->input(i++)));
  for (const char* name : {"mean", "rstd"}) {
    const ShapeHandle shape = c->input(i++);
    ShapeHandle merged;
    if (!c->Merge(shape, merger.rows(), &merged).ok()) {
      return InvalidArgument("Expected ", name,
                             " to have one element for each row of x. "
                             "Received: x of shape ",
                             c->DebugString(merger.x()), ", ", name, " of shape ",
                             c->DebugString(shape));
    }
  }
  TF_RETURN_IF_ERROR(merger.CheckSeed(c->input(i++)));
  int o = 0;
  c->set_output(o++, merger.x());
  if (num_dresidual == 1) c->set_output(o++, merger.x());
  if (num_bias == 1) c->set_output(o++, merger.features());
  c->set_output(o++, merger.features());
  c->set_output(o++, merger.features());
  return absl::OkStatus();
}

// What both ops have in common: the attributes and the checks of the inputs.
class ResidualLayerNormOpBase : public OpKernel {
 protected:
  using OpKernel::OpKernel;

  // The named optional input, or null.
  static absl::Status Optional(OpKernelContext* context, const char* name, const Tensor** tensor) {
    OpInputList list;
    TF_RETURN_IF_ERROR(context->input_list(name, &list));
    *tensor = list.size() == 0 ? nullptr : &list[0];
    return absl::OkStatus();
  }

  static absl::Status CheckX(const Tensor& x) {
    if (x.dims() >= 1) return absl::OkStatus();
    return InvalidArgument("Expected x to have shape [..., H]. Received: x of shape ",
                           x.shape().DebugString());
  }

  // Null tensors pass.
  static absl::Status CheckSame(const char* name, const Tensor* tensor, const Tensor& x) {
    if (tensor == nullptr || tensor->shape() == x.shape()) return absl::OkStatus();
    return InvalidArgument("Expected ", name, " to have the shape of x. Received: x of shape ",
                           x.shape().DebugString(), ", ", name, " of shape ",
                           tensor->shape().DebugString());
  }

  static absl::Status CheckVector(const char* name, const Tensor* tensor, int64_t length,
                                  const Tensor& x) {
    if (tensor == nullptr || tensor->shape() == TensorShape({length})) return absl::OkStatus();
    return InvalidArgument("Expected ", name, " to have shape [", length,
                           "]. Received: x of shape ", x.shape().DebugString(), ", ", name,
                           " of shape ", tensor->shape().DebugString());
  }

  static absl::Status GetSeed(OpKernelContext* context, uint64_t* seed) {
    const Tensor* tensor;
    TF_RETURN_IF_ERROR(context->input("seed", &tensor));
    if (tensor->dims() != 0) {
      return InvalidArgument("Expected seed to be a scalar. Received: seed of shape ",
                             tensor->shape().DebugString());
    }
    *seed = static_cast<uint64_t>(tensor->scalar<int64_t>()());
    return absl::OkStatus();
  }

  static int64_t NumColumns(const Tensor& x) { return x.dim_size(x.dims() - 1); }

  static int64_t NumRows(const Tensor& x) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < x.dims(); ++i) rows *= x.dim_size(i);
    return rows;
  }

  template <typename T>
  static const KernelType<T>* DataOrNull(const Tensor* tensor) {
    return tensor == nullptr ? nullptr : Data<T>(*tensor);
  }

  ResidualLayerNormAttributes attributes_;
};

template <typename T>
class FusedResidualLayerNormOp : public ResidualLayerNormOpBase {
 public:
  explicit FusedResidualLayerNormOp(OpKernelConstruction* context)
      : ResidualLayerNormOpBase(context) {
    OP_REQUIRES_OK(context, attributes_.Read(context));
    OP_REQUIRES_OK(context, ReadEpsilon(context, &epsilon_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor *x, *residual, *bias, *gamma, *beta;
    OP_REQUIRES_OK(context, context->input("x", &x));
    OP_REQUIRES_OK(context, Optional(context, "residual", &residual));
    OP_REQUIRES_OK(context, Optional(context, "bias", &bias));
    OP_REQUIRES_OK(context, context->input("gamma", &gamma));
    OP_REQUIRES_OK(context, context->input("beta", &beta));
    OP_REQUIRES_OK(context, CheckX(*x));
    const int64_t rows = NumRows(*x);
    const int64_t columns = NumColumns(*x);
    OP_REQUIRES_OK(context, CheckSame("residual", residual, *x));
    OP_REQUIRES_OK(context, CheckVector("bias", bias, columns, *x));
    OP_REQUIRES_OK(context, CheckVector("gamma", gamma, columns, *x));
    OP_REQUIRES_OK(context, CheckVector("beta", beta, columns, *x));
    uint64_t seed = 0;
    OP_REQUIRES_OK(context, GetSeed(context, &seed));

    std::vector<int> in_place = {0};  // x, or else residual
    if (residual != nullptr) in_place.push_back(1);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output(in_place, 0, x->shape(), &y));
    Tensor* mean = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({rows}), &mean));
    Tensor* rstd = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({rows}), &rstd));

    ResidualLayerNormArgs<KernelType<T>> args;
    args.x = Data<T>(*x);
    args.residual = DataOrNull<T>(residual);
    args.bias = DataOrNull<T>(bias);
    args.gamma = Data<T>(*gamma);
    args.beta = Data<T>(*beta);
    args.rows = rows;
    args.columns = columns;
    args.epsilon = epsilon_;
    args.dropout_rate = attributes_.dropout_rate;
    args.seed = seed;
    args.y = MutableData<T>(y);
    args.mean = MutableData<float>(mean);
    args.rstd = MutableData<float>(rstd);
    FusedResidualLayerNorm(TensorFlowParallel(context), args);
  }

 private:
  float epsilon_;
};

template <typename T>
class FusedResidualLayerNormGradOp : public ResidualLayerNormOpBase {
 public:
  explicit FusedResidualLayerNormGradOp(OpKernelConstruction* context)
      : ResidualLayerNormOpBase(context) {
    OP_REQUIRES_OK(context, attributes_.ReadGrad(context, &num_dresidual_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor *dy, *x, *residual, *bias, *gamma, *mean, *rstd;
    OP_REQUIRES_OK(context, context->input("dy", &dy));
    OP_REQUIRES_OK(context, context->input("x", &x));
    OP_REQUIRES_OK(context, Optional(context, "residual", &residual));
    OP_REQUIRES_OK(context, Optional(context, "bias", &bias));
    OP_REQUIRES_OK(context, context->input("gamma", &gamma));
    OP_REQUIRES_OK(context, context->input("mean", &mean));
    OP_REQUIRES_OK(context, context->input("rstd", &rstd));
    OP_REQUIRES_OK(context, CheckX(*x));
    const int64_t rows = NumRows(*x);
    const int64_t columns = NumColumns(*x);
    OP_REQUIRES_OK(context, CheckSame("dy", dy, *x));
    OP_REQUIRES_OK(context, CheckSame("residual", residual, *x));
    OP_REQUIRES_OK(context, CheckVector("bias", bias, columns, *x));
    OP_REQUIRES_OK(context, CheckVector("gamma", gamma, columns, *x));
    OP_REQUIRES_OK(context, CheckVector("mean", mean, rows, *x));
    OP_REQUIRES_OK(context, CheckVector("rstd", rstd, rows, *x));
    uint64_t seed = 0;
    OP_REQUIRES_OK(context, GetSeed(context, &seed));

    // dx takes the buffer of dy if that is free, dresidual that of x or residual.
    Tensor* dx = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x->shape(), &dx));
    int output = 1;
    Tensor* dresidual = nullptr;
    if (num_dresidual_ == 1) {
      OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({1, 2}, output++,
                                                                        x->shape(), &dresidual));
    }
    const TensorShape features({columns});
    Tensor* dbias = nullptr;
    if (bias != nullptr) {
      OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dbias));
    }
    Tensor* dgamma = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dgamma));
    Tensor* dbeta = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(output++, features, &dbeta));
    TensorShape scratch_shape;
    OP_REQUIRES_OK(context,
                   MakeShape({ResidualLayerNormGradScratchSize(rows, columns)}, &scratch_shape));
    Tensor scratch;
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_FLOAT, scratch_shape, &scratch));

    ResidualLayerNormGradArgs<KernelType<T>> args;
    args.dy = Data<T>(*dy);
    args.x = Data<T>(*x);
    args.residual = DataOrNull<T>(residual);
    args.bias = DataOrNull<T>(bias);
    args.gamma = Data<T>(*gamma);
    args.mean = Data<float>(*mean);
    args.rstd = Data<float>(*rstd);
    args.rows = rows;
    args.columns = columns;
    args.dropout_rate = attributes_.dropout_rate;
    args.seed = seed;
    args.dx = MutableData<T>(dx);
    args.dresidual = dresidual == nullptr ? nullptr : MutableData<T>(dresidual);
    args.dbias = dbias == nullptr ? nullptr : MutableData<T>(dbias);
    args.dgamma = MutableData<T>(dgamma);
    args.dbeta = MutableData<T>(dbeta);
    args.scratch = MutableData<float>(&scratch);
    FusedResidualLayerNormGrad(TensorFlowParallel(context), args);
  }

 private:
  int num_dresidual_;
};

REGISTER_OP("BertTf>FusedResidualLayerNorm")
    .Attr("T: {float, bfloat16, half}")
    .Attr("num_residual: int >= 0")
    .Attr("num_bias: int >= 0")
    .Attr("epsilon: float")
    .Attr("dropout_rate: float = 0.0")
    .Input("x: T")
    .Input("residual: num_residual * T")
    .Input("bias: num_bias * T")
    .Input("gamma: T")
    .Input("beta: T")
    .Input("seed: int64")
    .Output("y: T")
    .Output("mean: float")
    .Output("rstd: float")
    .SetShapeFn(ForwardShape);

REGISTER_OP("BertTf>FusedResidualLayerNormGrad")
    .Attr("T: {float, bfloat16, half}")
    .Attr("num_residual: int >= 0")
    .Attr("num_bias: int >= 0")
    .Attr("num_dresidual: int >= 0")
    .Attr("dropout_rate: float = 0.0")
    .Input("dy: T")
    .Input("x: T")
    .Input("residual: num_residual * T")
    .Input("bias: num_bias * T")
    .Input("gamma: T")
    .Input("mean: float")
    .Input("rstd: float")
    .Input("seed: int64")
    .Output("dx: T")
    .Output("dresidual: num_dresidual * T")
    .Output("dbias: num_bias * T")
    .Output("dgamma: T")
    .Output("dbeta: T")
    .SetShapeFn(GradShape);

#define BERT_TF_REGISTER(T)                                                                        \
  REGISTER_KERNEL_BUILDER(                                                                         \
      Name("BertTf>FusedResidualLayerNorm").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
      FusedResidualLayerNormOp<T>);                                                                \
  REGISTER_KERNEL_BUILDER(Name("BertTf>FusedResidualLayerNormGrad")                                \
                              .Device(tensorflow::DEVICE_CPU)                                      \
                              .TypeConstraint<T>("T"),                                             \
                          FusedResidualLayerNormGradOp<T>);
BERT_TF_REGISTER(float)
BERT_TF_REGISTER(Eigen::bfloat16)
BERT_TF_REGISTER(Eigen::half)
#undef BERT_TF_REGISTER

}  // namespace
}  // namespace bert_tf
