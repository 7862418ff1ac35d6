// The OpKernels, which are made from the shape function of the op, which checks the inputs, and the
// arguments of the kernel (op_args.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/huge_pages.h"
#include "custom_ops/ops/op_args.h"
#include "custom_ops/ops/op_definition.h"
#include "custom_ops/ops/tensorflow_parallel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace bert_tf {

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

inline Buffer BufferOf(const tensorflow::Tensor& tensor) {
  const tensorflow::DataType type = tensor.dtype();
  return {tensor.data(), tensor.shape().dim_sizes(), type == tensorflow::DT_INT64,
          type == tensorflow::DT_BFLOAT16 ? FloatType::kBFloat16
          : type == tensorflow::DT_HALF   ? FloatType::kFloat16
                                          : FloatType::kFloat32};
}

// The call of an OpKernel, as op_call.h describes it.
class OpKernelCall {
 public:
  OpKernelCall(tensorflow::OpKernelContext* context, const TensorNames& names,
               const Attributes& attributes, const std::vector<tensorflow::TensorShape>& outputs)
      : context_(context), names_(names), attributes_(attributes), output_shapes_(outputs) {}

  const std::vector<std::string>& InputNames() const { return names_.inputs; }
  const std::vector<std::string>& OutputNames() const { return names_.outputs; }

  Buffer InputAt(int place) const { return BufferOf(context_->input(place)); }

  void* OutputAt(int place, std::initializer_list<absl::string_view> in_place) {
    absl::InlinedVector<int, 4> inputs;
    for (const absl::string_view name : in_place) {
      const int input = PlaceOf(names_.inputs, name);
      if (input >= 0) inputs.push_back(input);
    }
    tensorflow::Tensor* output = nullptr;
    status_.Update(
        context_->forward_input_or_allocate_output(inputs, place, output_shapes_[place], &output));
    return output == nullptr ? nullptr : output->data();
  }

  float* Scratch(int64_t count) {
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
  const TensorNames& names_;
  const Attributes& attributes_;
  const std::vector<tensorflow::TensorShape>& output_shapes_;
  absl::Status status_;
  tensorflow::Tensor scratch_;
};

class KernelOp : public tensorflow::OpKernel {
 public:
  explicit KernelOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction), attributes_(def()) {
    OP_REQUIRES_OK(construction, names_.Read(def()));
  }

  void Compute(tensorflow::OpKernelContext* context) final {
    std::shared_ptr<const CallShapes> shapes;
    OP_REQUIRES_OK(context, ShapesOf(context, &shapes));
    OpCall<OpKernelCall> call(context, names_, attributes_, shapes->outputs);
    OP_REQUIRES_OK(context, Run(context, &call));
  }

 protected:
  virtual absl::Status Run(tensorflow::OpKernelContext* context, OpCall<OpKernelCall>* call) = 0;

  const TensorNames& names() const { return names_; }

 private:
  // Shapes that were checked are kept, one set for each number of rows modulo kKept, because the
  // same ones usually follow: those of the last call, or of earlier texts with as many tokens. The
  // shape function takes 0.8 to 2 us on an EPYC at 2.6 GHz (0.1 ms for the 60 ops of a forward pass
  // of BERT-base, a few percent of it for a short text), comparing shapes less than 0.05 us.
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

  TensorNames names_;
  const Attributes attributes_;
  std::mutex mutex_;
  std::array<std::shared_ptr<const CallShapes>, kKept> kept_;
};

// Asks for huge pages for a prepacked kernel that has the same address in two consecutive calls,
// and so is expected to stay there.
class PackedKernel {
 public:
  explicit PackedKernel(int input) : input_(input) {}

  void PreferHugePagesFor(tensorflow::OpKernelContext* context) {
    constexpr size_t kLeastBytes = 512 << 10;  // smaller kernels fit the second-level cache
    const tensorflow::Tensor& packed = context->input(input_);
    const void* const data = packed.data();
    if (has_huge_pages_.load(std::memory_order_relaxed)) return;
    if (packed.TotalBytes() < kLeastBytes) return;
    if (last_packed_.exchange(data) != data || has_huge_pages_.exchange(true)) return;
    PreferHugePages(data, packed.TotalBytes());
  }

 private:
  const int input_;
  std::atomic<const void*> last_packed_{nullptr};
  std::atomic<bool> has_huge_pages_{false};
};

// An op on the CPU. Its inputs whose names begin with `packed` are prepacked kernels.
template <typename Args, auto kKernel>
class CpuOp : public KernelOp {
 public:
  explicit CpuOp(tensorflow::OpKernelConstruction* construction) : KernelOp(construction) {
    for (size_t i = 0; i < names().inputs.size(); ++i) {
      if (names().inputs[i].rfind("packed", 0) == 0) packed_.emplace_back(static_cast<int>(i));
    }
  }

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context, OpCall<OpKernelCall>* call) override {
    for (PackedKernel& kernel : packed_) kernel.PreferHugePagesFor(context);
    Args args;
    TF_RETURN_IF_ERROR(BindAll(call, &args));
    kKernel(TensorFlowParallel(context->device()->tensorflow_cpu_worker_threads()->workers), args);
    return absl::OkStatus();
  }

 private:
  std::deque<PackedKernel> packed_;
};

// The kernels' type for a TensorFlow element type, with the same layout.
template <typename T>
using KernelType =
    std::conditional_t<std::is_same_v<T, Eigen::bfloat16>, BFloat16,
                       std::conditional_t<std::is_same_v<T, Eigen::half>, Float16, T>>;

}  // namespace bert_tf

// Registers the OpKernels of the kernels' types T for the CPU.
#define BERT_TF_REGISTER_CPU(NAME, ARGS, KERNEL)                  \
  BERT_TF_REGISTER_CPU_TYPE(NAME, ARGS, KERNEL, float);           \
  BERT_TF_REGISTER_CPU_TYPE(NAME, ARGS, KERNEL, Eigen::bfloat16); \
  BERT_TF_REGISTER_CPU_TYPE(NAME, ARGS, KERNEL, Eigen::half)
#define BERT_TF_REGISTER_CPU_TYPE(NAME, ARGS, KERNEL, T)                          \
  REGISTER_KERNEL_BUILDER(                                                        \
      Name("BertTf>" NAME).Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
      CpuOp<ARGS<KernelType<T>>, KERNEL<KernelType<T>>>)
