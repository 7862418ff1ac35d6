// Template arguments of the kernels from numbers that are known when they are launched.
#pragma once

#include <cstring>
#include <type_traits>

#include "custom_ops/kernels/cuda/cuda_launchers.h"
#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf::cuda {
namespace {

// A type that holds a number.
template <int value>
using Int = std::integral_constant<int, value>;

#ifndef __CUDACC_RTC__
// Calls function(element) with a number of the element type, a BertTfCudaType.
template <typename Function>
int WithType(int type, const Function& function) {
  switch (type) {
    case kBertTfFloat32:
      return function(float{});
    case kBertTfBFloat16:
      return function(BFloat16{});
    case kBertTfFloat16:
      return function(Float16{});
  }
  return kInvalidValue;
}

// Calls function with the arguments of a launcher as an Args<T> for the element type T.
template <template <typename> class Args, typename Function>
int WithTypedArgs(int type, const Args<Gpu>& call, const Function& function) {
  return WithType(type, [&](auto element) {
    Args<decltype(element)> args;
    static_assert(sizeof(args) == sizeof(call), "only the types of the pointers differ");
    std::memcpy(static_cast<void*>(&args), &call, sizeof(args));
    return function(args);
  });
}
#endif  // __CUDACC_RTC__

}  // namespace
}  // namespace bert_tf::cuda
