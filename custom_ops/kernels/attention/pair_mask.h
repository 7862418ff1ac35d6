// Which queries of a sequence attend to which keys; varlen_attention.h has the formula.
#pragma once

#if defined(BERT_TF_CUDA)
#include "custom_ops/kernels/cuda/cuda_platform.h"
#else
#include "custom_ops/kernels/base/simd.h"
#endif

namespace bert_tf::BERT_TF_ISA {
namespace {

// 32 bits are enough for the positions in a sequence, and more would be slower.
struct PairMask {
  bool causal;
  bool windowed;
  int32_t window;
  int32_t globals;

  BERT_TF_INLINE bool Sees(int32_t query, int32_t key) const {
    if (causal && key > query) return false;
    if (!windowed || query < globals || key < globals) return true;
    return query - key <= window && key - query <= window;
  }

  // True if no query of [q0, q1) attends to a key of [k0, k1). False does not mean that one does.
  BERT_TF_INLINE bool HidesAll(int32_t q0, int32_t q1, int32_t k0, int32_t k1) const {
    if (causal && k0 >= q1) return true;
    if (!windowed || q0 < globals || k0 < globals) return false;
    return k0 - (q1 - 1) > window || q0 - (k1 - 1) > window;
  }

  // True if every query of [q0, q1) attends to every key of [k0, k1).
  BERT_TF_INLINE bool ShowsAll(int32_t q0, int32_t q1, int32_t k0, int32_t k1) const {
    if (causal && k1 - 1 > q0) return false;
    if (!windowed || q1 <= globals || k1 <= globals) return true;
    return (q1 - 1) - k0 <= window && (k1 - 1) - q0 <= window;
  }
};

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
