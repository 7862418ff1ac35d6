// Template arguments of the kernels from numbers that are known when they are launched.
#pragma once

#include <type_traits>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf::cuda {
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
}  // namespace bert_tf::cuda
