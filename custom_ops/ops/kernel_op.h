// The OpKernels. All but that of AdamWeightDecay are made from the shape function of the op, which
// checks the inputs, and the arguments of the kernel (op_args.h).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

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

// The call of an OpKernel, as op_args.h describes it.
class OpKernelCall {
 public:
  OpKernelCall(tensorflow::OpKernelContext* context, std::vector<tensorflow::TensorShape> outputs)
      : context_(context), output_shapes_(std::move(outputs)) {}

  Buffer NextInput() {
    const tensorflow::Tensor& input = context_->input(next_input_++);
    return {input.data(), input.shape().dim_sizes(), input.dtype() == tensorflow::DT_INT64};
  }

  void* NextOutput(std::initializer_list<const void*> in_place) {
    std::vector<int> inputs;
    for (int i = 0; i < context_->num_inputs(); ++i) {
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
    status_.Update(tensorflow::GetNodeAttr(context_->op_kernel().def(), name, value));
  }

  const absl::Status& status() const { return status_; }

 private:
  tensorflow::OpKernelContext* const context_;
  const std::vector<tensorflow::TensorShape> output_shapes_;
  absl::Status status_;
  int next_input_ = 0;
  int next_output_ = 0;
  tensorflow::Tensor scratch_;
};

class KernelOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) final {
    std::vector<tensorflow::TensorShape> inputs, outputs;
    for (int i = 0; i < context->num_inputs(); ++i) inputs.push_back(context->input(i).shape());
    OP_REQUIRES_OK(context, OutputShapes(inputs, &outputs));
    OpCall<OpKernelCall> call(context, std::move(outputs));
    OP_REQUIRES_OK(context, Run(context, &call));
  }

 protected:
  virtual absl::Status Run(tensorflow::OpKernelContext* context, OpCall<OpKernelCall>* call) = 0;

 private:
  // The shapes of the last call are kept, because the same ones usually follow.
  absl::Status OutputShapes(const std::vector<tensorflow::TensorShape>& inputs,
                            std::vector<tensorflow::TensorShape>* outputs) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (inputs != inputs_) {
      inputs_.clear();
      TF_RETURN_IF_ERROR(InferShapes(def(), inputs, &outputs_));
      inputs_ = inputs;
    }
    *outputs = outputs_;
    return absl::OkStatus();
  }

  std::mutex mutex_;
  std::vector<tensorflow::TensorShape> inputs_;
  std::vector<tensorflow::TensorShape> outputs_;
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
