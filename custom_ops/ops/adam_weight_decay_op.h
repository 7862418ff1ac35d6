// The OpKernel of BertTf>AdamWeightDecay, for CPU and GPU.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "custom_ops/ops/kernel_op.h"
#include "custom_ops/ops/shape_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace bert_tf {

// The first inputs are variables, and the outputs are their new values.
class VariablesCall : public OpKernelCall {
 public:
  VariablesCall(const OpKernelCall& call, const std::vector<tensorflow::Tensor>& old_values,
                const std::vector<tensorflow::Tensor>& new_values)
      : OpKernelCall(call), old_values_(old_values), new_values_(new_values) {}

  Buffer InputAt(size_t place) const {
    return place < old_values_.size() ? BufferOf(old_values_[place])
                                      : OpKernelCall::InputAt(static_cast<int>(place));
  }
  void* OutputAt(int place, std::initializer_list<absl::string_view>) const {
    return new_values_[place].data();
  }

 private:
  const std::vector<tensorflow::Tensor>& old_values_;
  const std::vector<tensorflow::Tensor>& new_values_;
};

// Reads, locks and assigns variables as TensorFlow's own optimizers do.
class AdamWeightDecayOp : public KernelOp {
 public:
  using KernelOp::KernelOp;

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context,
                   OpCall<OpKernelCall>* kernel_call) override {
    const int gradients = PlaceOf(names().inputs, "gradients");
    std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables(gradients);
    std::vector<decltype(std::declval<tensorflow::Var&>().mu())> mutexes;
    for (int i = 0; i < gradients; ++i) {
      TF_RETURN_IF_ERROR(tensorflow::LookupResource(
          context, tensorflow::HandleFromInput(context, i), &variables[i]));
      mutexes.push_back(variables[i]->mu());
    }
    // The mutexes are locked in the order of their addresses, as in TensorFlow's ops.
    std::sort(mutexes.begin(), mutexes.end());
    if (std::adjacent_find(mutexes.begin(), mutexes.end()) != mutexes.end()) {
      return InvalidArgument("`variables`, `means` and `squares` must be different variables.");
    }
    std::vector<std::unique_ptr<tensorflow::mutex_lock>> locks;
    for (const auto& mutex : mutexes) {
      locks.push_back(std::make_unique<tensorflow::mutex_lock>(*mutex));
    }

    std::vector<tensorflow::Tensor> old_values, new_values(gradients);
    const int count = gradients / 3;
    for (int i = 0; i < gradients; ++i) {
      tensorflow::Var* const variable = variables[i].get();
      const tensorflow::Tensor& value = *variable->tensor();
      if (!variable->is_initialized || !value.IsInitialized()) {
        return InvalidArgument("The variables must be initialized. Received: variable ", i,
                               " without a value");
      }
      const auto& shape = context->input(gradients + i % count).shape();
      if (value.dtype() != tensorflow::DT_FLOAT || value.shape() != shape) {
        return InvalidArgument("The variables must be float32 of the shape of their gradient, ",
                               shape.DebugString(), ". Received: variable ", i, " of shape ",
                               value.shape().DebugString());
      }
      // A tensor that was read from the variable and is still in use shares its buffer. In that
      // case, the variable gets a new buffer.
      if (value.RefCountIsOne() && !variable->copy_on_read_mode.load()) {
        new_values[i] = value;
      } else {
        TF_RETURN_IF_ERROR(context->allocate_temp(value.dtype(), shape, &new_values[i]));
      }
    }
    for (const auto& variable : variables) old_values.push_back(*variable->tensor());
    OpCall<VariablesCall> call(*kernel_call, old_values, new_values);
    TF_RETURN_IF_ERROR(Update(context, &call));
    for (int i = 0; i < gradients; ++i) *variables[i]->tensor() = new_values[i];
    return absl::OkStatus();
  }

  virtual absl::Status Update(tensorflow::OpKernelContext* context,
                              OpCall<VariablesCall>* call) const = 0;
};

}  // namespace bert_tf
