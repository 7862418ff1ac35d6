// Sizes of buffers, computed without integer overflow.
#pragma once

#include <stdint.h>

namespace bert_tf {

// kTooLarge replaces sizes of more than kLargestSize elements, whose number of bytes may not fit
// int64.
constexpr int64_t kTooLarge = -1;
constexpr int64_t kLargestSize = INT64_MAX / 16;

// a * b, or kTooLarge if the product is too large or a or b is kTooLarge.
inline int64_t SizeProduct(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return kTooLarge;
  return product <= kLargestSize ? product : kTooLarge;
}

// `size` rounded up to a multiple of `multiple`, or kTooLarge.
inline int64_t RoundUpSize(int64_t size, int64_t multiple) {
  return SizeProduct(size / multiple + (size % multiple != 0), multiple);
}

}  // namespace bert_tf
