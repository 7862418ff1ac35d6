// Shared by the OpKernels: tensors as the pointers that kernels take, and errors.
#ifndef BERT_TF_CUSTOM_OPS_OPS_OP_UTIL_H_
#define BERT_TF_CUSTOM_OPS_OPS_OP_UTIL_H_

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/kernels/base/float_types.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace bert_tf {

// An InvalidArgument error with the concatenated arguments as its message.
template <typename... Args>
absl::Status InvalidArgument(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

// The kernels' type for a TensorFlow element type, with the same layout.
template <typename T>
using KernelType =
    std::conditional_t<std::is_same_v<T, Eigen::bfloat16>, BFloat16,
                       std::conditional_t<std::is_same_v<T, Eigen::half>, Float16, T>>;

// Makes a shape. If the product of the sizes does not fit int64, the result is an error, whereas
// the constructor of TensorShape would end the process.
inline absl::Status MakeShape(std::initializer_list<int64_t> sizes,
                              tensorflow::TensorShape* shape) {
  return tensorflow::TensorShape::BuildTensorShape(sizes, shape);
}

template <typename T>
const KernelType<T>* Data(const tensorflow::Tensor& tensor) {
  return reinterpret_cast<const KernelType<T>*>(tensor.flat<T>().data());
}

template <typename T>
KernelType<T>* MutableData(tensorflow::Tensor* tensor) {
  return reinterpret_cast<KernelType<T>*>(tensor->flat<T>().data());
}

// Sets a pointer of the arguments of a kernel to the elements of a tensor, or to null. T may be
// void.
template <typename T>
void SetPointer(const tensorflow::Tensor* tensor, const T** pointer) {
  *pointer = tensor == nullptr ? nullptr : static_cast<const T*>(tensor->data());
}
template <typename T>
void SetPointer(tensorflow::Tensor* tensor, T** pointer) {
  *pointer = tensor == nullptr ? nullptr : static_cast<T*>(tensor->data());
}

// Sets the value of the seed on the CPU, or its address on a GPU, in whose memory the seed stays.
inline void SetSeed(const tensorflow::Tensor& seed, uint64_t* value) {
  *value = static_cast<uint64_t>(seed.scalar<int64_t>()());
}
inline void SetSeed(const tensorflow::Tensor& seed, const int64_t** address) {
  *address = Data<int64_t>(seed);
}

// Reads an optional input, which is a list of no or one tensor: null, or the tensor.
inline absl::Status OptionalInput(tensorflow::OpKernelContext* context, const char* name,
                                  const tensorflow::Tensor** tensor) {
  tensorflow::OpInputList list;
  TF_RETURN_IF_ERROR(context->input_list(name, &list));
  *tensor = list.size() == 0 ? nullptr : &list[0];
  return absl::OkStatus();
}

// Allocates `count` floats until the end of the computation.
inline absl::Status AllocateScratch(tensorflow::OpKernelContext* context, int64_t count,
                                    tensorflow::Tensor* scratch) {
  tensorflow::TensorShape shape;
  TF_RETURN_IF_ERROR(MakeShape({count}, &shape));
  return context->allocate_temp(tensorflow::DT_FLOAT, shape, scratch);
}

}  // namespace bert_tf

// Registers the OpKernels KERNEL<ARGUMENT<T>> of the storage types T.
#define BERT_TF_REGISTER(NAME, DEVICE, PRIORITY, KERNEL, ARGUMENT)                  \
  BERT_TF_REGISTER_TYPE(NAME, DEVICE, PRIORITY, KERNEL, ARGUMENT, float);           \
  BERT_TF_REGISTER_TYPE(NAME, DEVICE, PRIORITY, KERNEL, ARGUMENT, Eigen::bfloat16); \
  BERT_TF_REGISTER_TYPE(NAME, DEVICE, PRIORITY, KERNEL, ARGUMENT, Eigen::half)
#define BERT_TF_REGISTER_TYPE(NAME, DEVICE, PRIORITY, KERNEL, ARGUMENT, T)           \
  REGISTER_KERNEL_BUILDER(                                                           \
      Name("BertTf>" NAME).Device(DEVICE).Priority(PRIORITY).TypeConstraint<T>("T"), \
      KERNEL<ARGUMENT<T>>)

#endif  // BERT_TF_CUSTOM_OPS_OPS_OP_UTIL_H_
