// The storage types of the kernels: bfloat16 and float16 as plain 16-bit words. They have the
// layout of Eigen::bfloat16 and Eigen::half, so the kernels do not need TensorFlow headers. All
// arithmetic is done in float32; simd.h converts numbers when it loads and stores them.
#pragma once

#include <cstdint>
#include <type_traits>

namespace bert_tf {

struct BFloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

// The storage types as numbers, for lists of tensors of several types.
enum class FloatType { kFloat32, kBFloat16, kFloat16 };

// The T of arguments that a kernel of a GPU takes. Its launcher gets the element type as a number,
// so pointers to elements are pointers to void.
struct Gpu {};

template <typename T>
inline constexpr bool kIsGpu = std::is_same_v<T, Gpu>;
template <typename T>
using ElementOf = std::conditional_t<kIsGpu<T>, void, T>;

}  // namespace bert_tf
