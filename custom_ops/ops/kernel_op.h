// The OpKernels. All but that of AdamWeightDecay are made from the shape function of the op, which
// checks the inputs, and the arguments of the kernel (op_args.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/ops/op_args.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/version.h"

namespace bert_tf {

// Runs the shape function of the op of a node, which checks the shapes of the inputs and the
// attributes, and sets the shapes of the outputs.
inline absl::Status InferShapes(const tensorflow::NodeDef& node,
                                const std::vector<tensorflow::TensorShape>& inputs,
                                std::vector<tensorflow::TensorShape>* outputs) {
  const tensorflow::OpRegistrationData* op;
  TF_RETURN_IF_ERROR(tensorflow::OpRegistry::Global()->LookUp(node.op(), &op));
  const std::vector<tensorflow::PartialTensorShape> shapes(inputs.begin(), inputs.end());
  tensorflow::shape_inference::InferenceContext inference(TF_GRAPH_DEF_VERSION, node, op->op_def,
                                                          shapes, {}, {}, {});
  TF_RETURN_IF_ERROR(inference.construction_status());
  TF_RETURN_IF_ERROR(op->shape_inference_fn(&inference));
  outputs->assign(inference.num_outputs(), {});
  for (int i = 0; i < inference.num_outputs(); ++i) {
    const auto shape = inference.output(i);
    if (!inference.FullyDefined(shape)) {
      return absl::InternalError(
          absl::StrCat("Output ", i, " of ", node.op(),
                       " must have a known shape. Received: shape=", inference.DebugString(shape)));
    }
    for (int d = 0; d < inference.Rank(shape); ++d) {
      const int64_t size = inference.Value(inference.Dim(shape, d));
      TF_RETURN_IF_ERROR((*outputs)[i].AddDimWithStatus(size));
    }
  }
  return absl::OkStatus();
}

// The attributes of a node, by their names. To look them up in the NodeDef in each call would take
// a noticeable part of the time of an op with few rows.
class Attributes {
 public:
  explicit Attributes(const tensorflow::NodeDef& node)
      : values_(node.attr().begin(), node.attr().end()) {}

  absl::Status Get(absl::string_view name, const tensorflow::AttrValue** value) const {
    for (const auto& [key, found] : values_) {
      if (key != name) continue;
      *value = &found;
      return absl::OkStatus();
    }
    return absl::NotFoundError(absl::StrCat("There is no attribute ", name, "."));
  }

 private:
  std::vector<std::pair<std::string, tensorflow::AttrValue>> values_;
};

// The shapes of a call.
struct CallShapes {
  std::vector<tensorflow::TensorShape> inputs;
  std::vector<tensorflow::TensorShape> outputs;
};

// The call of an OpKernel, as op_args.h describes it.
class OpKernelCall {
 public:
  OpKernelCall(tensorflow::OpKernelContext* context, const Attributes& attributes,
               const std::vector<tensorflow::TensorShape>& outputs)
      : context_(context), attributes_(attributes), output_shapes_(outputs) {}

  Buffer NextInput() {
    const tensorflow::Tensor& input = context_->input(next_input_++);
    return {input.data(), input.shape().dim_sizes(), input.dtype() == tensorflow::DT_INT64};
  }

  void* NextOutput(std::initializer_list<const void*> in_place) {
    absl::InlinedVector<int, 4> inputs;
    for (int i = 0; in_place.size() > 0 && i < context_->num_inputs(); ++i) {
      const void* const data = context_->input(i).data();
      if (std::find(in_place.begin(), in_place.end(), data) != in_place.end()) inputs.push_back(i);
    }
    tensorflow::Tensor* output = nullptr;
    const int i = next_output_++;
    status_.Update(
        context_->forward_input_or_allocate_output(inputs, i, output_shapes_[i], &output));
    return output == nullptr ? nullptr : output->data();
  }

  float* NextScratch(int64_t count) {
    tensorflow::TensorShape shape;
    status_.Update(tensorflow::TensorShape::BuildTensorShape({count}, &shape));
    if (!status_.ok()) return nullptr;
    status_.Update(context_->allocate_temp(tensorflow::DT_FLOAT, shape, &scratch_));
    return static_cast<float*>(scratch_.data());
  }

  template <typename T>
  void Attribute(const char* name, T* value) {
    const tensorflow::AttrValue* found = nullptr;
    status_.Update(attributes_.Get(name, &found));
    if (found == nullptr) return;
    if constexpr (std::is_same_v<T, bool>) {
      *value = found->b();
    } else if constexpr (std::is_floating_point_v<T>) {
      *value = found->f();
    } else if constexpr (std::is_integral_v<T>) {
      *value = found->i();
    } else {
      *value = found->s();
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  tensorflow::OpKernelContext* const context_;
  const Attributes& attributes_;
  const std::vector<tensorflow::TensorShape>& output_shapes_;
  absl::Status status_;
  int next_input_ = 0;
  int next_output_ = 0;
  tensorflow::Tensor scratch_;
};

class KernelOp : public tensorflow::OpKernel {
 public:
  explicit KernelOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction), attributes_(def()) {}

  void Compute(tensorflow::OpKernelContext* context) final {
    std::shared_ptr<const CallShapes> shapes;
    OP_REQUIRES_OK(context, ShapesOf(context, &shapes));
    OpCall<OpKernelCall> call(context, attributes_, shapes->outputs);
    OP_REQUIRES_OK(context, Run(context, &call));
  }

 protected:
  virtual absl::Status Run(tensorflow::OpKernelContext* context, OpCall<OpKernelCall>* call) = 0;

 private:
  // Shapes that were checked are kept, one set for each number of rows modulo kKept, because the
  // same ones usually follow: those of the last call, or of earlier texts with as many tokens.
  static constexpr int64_t kKept = 64;

  absl::Status ShapesOf(tensorflow::OpKernelContext* context,
                        std::shared_ptr<const CallShapes>* shapes) {
    const tensorflow::TensorShape& first = context->input(0).shape();
    std::shared_ptr<const CallShapes>& kept =
        kept_[first.dims() == 0 ? 0 : first.dim_size(0) % kKept];
    {
      std::lock_guard<std::mutex> lock(mutex_);
      *shapes = kept;
    }
    if (*shapes != nullptr && AreInputs(context, (*shapes)->inputs)) return absl::OkStatus();
    auto checked = std::make_shared<CallShapes>();
    for (int i = 0; i < context->num_inputs(); ++i) {
      checked->inputs.push_back(context->input(i).shape());
    }
    TF_RETURN_IF_ERROR(InferShapes(def(), checked->inputs, &checked->outputs));
    *shapes = std::move(checked);
    std::lock_guard<std::mutex> lock(mutex_);
    kept = *shapes;
    return absl::OkStatus();
  }

  static bool AreInputs(tensorflow::OpKernelContext* context,
                        const std::vector<tensorflow::TensorShape>& shapes) {
    for (int i = 0; i < context->num_inputs(); ++i) {
      if (context->input(i).shape() != shapes[i]) return false;
    }
    return true;
  }

  const Attributes attributes_;
  std::mutex mutex_;
  std::array<std::shared_ptr<const CallShapes>, kKept> kept_;
};

template <typename Args, auto kKernel>
class CpuOp : public KernelOp {
 public:
  using KernelOp::KernelOp;

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context, OpCall<OpKernelCall>* call) override {
    Args args;
    TF_RETURN_IF_ERROR(Bind(call, &args));
    kKernel(TensorFlowParallel(context), args);
    return absl::OkStatus();
  }
};

// The kernels' type for a TensorFlow element type, with the same layout.
template <typename T>
using KernelType =
    std::conditional_t<std::is_same_v<T, Eigen::bfloat16>, BFloat16,
                       std::conditional_t<std::is_same_v<T, Eigen::half>, Float16, T>>;

}  // namespace bert_tf

// Registers the OpKernels OP<ARGS<T>, KERNEL<T>> of the kernels' types T for the CPU.
#define BERT_TF_REGISTER_CPU(NAME, OP, ARGS, KERNEL)                  \
  BERT_TF_REGISTER_CPU_TYPE(NAME, OP, ARGS, KERNEL, float);           \
  BERT_TF_REGISTER_CPU_TYPE(NAME, OP, ARGS, KERNEL, Eigen::bfloat16); \
  BERT_TF_REGISTER_CPU_TYPE(NAME, OP, ARGS, KERNEL, Eigen::half)
#define BERT_TF_REGISTER_CPU_TYPE(NAME, OP, ARGS, KERNEL, T)                      \
  REGISTER_KERNEL_BUILDER(                                                        \
      Name("BertTf>" NAME).Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
      OP<ARGS<KernelType<T>>, KERNEL<KernelType<T>>>)
