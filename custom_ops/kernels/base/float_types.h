// The storage types of the kernels: bfloat16 and float16 as plain 16-bit words. They have the
// layout of Eigen::bfloat16 and Eigen::half, so the kernels do not need TensorFlow headers. All
// arithmetic is done in float32; simd.h converts numbers when it loads and stores them.
#pragma once

#include <cstdint>

namespace bert_tf {

struct BFloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

}  // namespace bert_tf
