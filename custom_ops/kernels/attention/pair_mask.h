// Which queries of a sequence attend to which keys; varlen_attention.h has the formula.
#pragma once

#if defined(BERT_TF_CUDA)
#include "custom_ops/kernels/cuda/cuda_platform.h"
#else
#include "custom_ops/kernels/base/simd.h"
#endif

namespace bert_tf::BERT_TF_ISA {
namespace {

// A position in a sequence. A GPU needs two instructions for most operations with 64 bits.
#if defined(BERT_TF_CUDA)
using Position = int;
#else
using Position = int64_t;
#endif

struct PairMask {
  bool causal;
  bool windowed;
  Position window;
  Position globals;

  BERT_TF_INLINE bool Sees(Position query, Position key) const {
    if (causal && key > query) return false;
    if (!windowed || query < globals || key < globals) return true;
    return query - key <= window && key - query <= window;
  }

  // True if no query of [q0, q1) attends to a key of [k0, k1). False does not mean that one does.
  BERT_TF_INLINE bool HidesAll(Position q0, Position q1, Position k0, Position k1) const {
    if (causal && k0 >= q1) return true;
    if (!windowed || q0 < globals || k0 < globals) return false;
    return k0 - (q1 - 1) > window || q0 - (k1 - 1) > window;
  }

  // True if every query of [q0, q1) attends to every key of [k0, k1).
  BERT_TF_INLINE bool ShowsAll(Position q0, Position q1, Position k0, Position k1) const {
    if (causal && k1 - 1 > q0) return false;
    if (!windowed || q1 <= globals || k1 <= globals) return true;
    return (q1 - 1) - k0 <= window && (k1 - 1) - q0 <= window;
  }
};

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
