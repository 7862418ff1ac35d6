// Sizes of buffers, computed so that no product overflows.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_SIZES_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_SIZES_H_

#include <stdint.h>

namespace bert_tf {

// In place of a size of more elements than any buffer has: int64 must also hold its bytes.
constexpr int64_t kTooLarge = -1;
constexpr int64_t kLargestSize = INT64_MAX / 16;

// a * b, or kTooLarge; also where a or b is kTooLarge.
inline int64_t SizeProduct(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return kTooLarge;
  return product <= kLargestSize ? product : kTooLarge;
}

// The next multiple, or kTooLarge.
inline int64_t RoundUpSize(int64_t size, int64_t multiple) {
  return SizeProduct(size / multiple + (size % multiple != 0), multiple);
}

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_SIZES_H_
