// epilogue(x W), a dense layer in one pass, with W prepacked in panels, on the CPU.
//
//   z = x W + bias
//   y = activation(z) | activation(first half of z) * second half
//     | z + residual | LayerNorm(z + residual) = gamma * n + beta
//
// W is [depth, columns]. Prepacking divides it into blocks of at most kDenseDepth rows: as few as
// possible, of about equal size. Blocks are divided into panels of kDensePanel columns, and a panel
// contains its rows one after the other, as the matmul reads them. The last panel is padded with
// zeros. The layout is the same for every instruction set.
//
// Reference: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS
// 34(3), 2008.
//
// The storage types are float32 and float16 (bfloat16_dense.h is for bfloat16); the arithmetic is
// float32 for both. The order in which an element of z is summed
// depends only on `depth`, so the bits of a row of y depend neither on the other rows nor on the
// number of threads.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

constexpr int64_t kDensePanel = 32;
constexpr int64_t kDenseDepth = 256;

template <typename T>
struct PackDenseArgs {
  const T* kernel = nullptr;  // [depth, columns] row-major, or [columns, depth] if transposed
  bool transposed = false;
  int64_t depth = 0;
  int64_t columns = 0;
  T* packed = nullptr;  // PackedDenseSize(depth, columns) elements
};

enum class DenseActivation { kNone, kGelu, kApproximateGelu, kSilu };

// Row-major matrices. LayerNorm is applied if gamma is not null. An activation or a gate cannot be
// combined with a residual or LayerNorm.
template <typename T>
struct DenseArgs {
  const T* x = nullptr;     // [rows, depth]
  const T* bias = nullptr;  // [columns] or null
  DenseActivation activation = DenseActivation::kNone;
  bool is_gated = false;        // then each half of the columns is whole panels
  const T* residual = nullptr;  // [rows, columns] or null
  const T* gamma = nullptr;     // [columns] or null
  const T* beta = nullptr;      // [columns] or null, with gamma
  float epsilon = 0.0f;
  int64_t rows = 0;
  int64_t depth = 0;
  int64_t columns = 0;
  T* y = nullptr;  // [rows, ResultColumns()]; may be residual, not x

  int64_t ResultColumns() const { return is_gated ? columns / 2 : columns; }
};

template <typename T>
struct FusedDenseArgs : DenseArgs<T> {
  const T* packed = nullptr;  // W, prepacked
};

// The number of elements, or kTooLarge (sizes.h).
int64_t PackedDenseSize(int64_t depth, int64_t columns);

// With bfloat16, the layout is that of bfloat16_dense.h.
template <typename T>
void PackDense(const Parallel& parallel, const PackDenseArgs<T>& args);

template <typename T>
void FusedDense(const Parallel& parallel, const FusedDenseArgs<T>& args);

BERT_TF_DECLARE_COPIES(PackDense, PackDenseArgs)
BERT_TF_DECLARE_COPIES(FusedDense, FusedDenseArgs)

}  // namespace bert_tf
