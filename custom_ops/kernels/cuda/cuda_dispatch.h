// Template arguments of the kernels from numbers that are known when they are launched.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_CUDA_CUDA_DISPATCH_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_CUDA_CUDA_DISPATCH_H_

#include <type_traits>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf {
namespace cuda {
namespace {

// A type that holds a number.
template <int value>
using Int = std::integral_constant<int, value>;

// Calls function with a T* for the element type T, a BertTfCudaType.
template <typename Function>
int WithType(int type, const Function& function) {
  switch (type) {
    case kBertTfFloat32:
      return function(static_cast<float*>(nullptr));
    case kBertTfBFloat16:
      return function(static_cast<BFloat16*>(nullptr));
    case kBertTfFloat16:
      return function(static_cast<Float16*>(nullptr));
  }
  return kInvalidValue;
}

}  // namespace
}  // namespace cuda
}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_CUDA_CUDA_DISPATCH_H_
