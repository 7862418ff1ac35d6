// epilogue(x W), the dense layer in one pass, with W packed once into panels, on the CPU.
//
//   z = x W + bias
//   y = z | gelu(z) | z + residual | LayerNorm(z + residual) = gamma * n + beta
//
// W is [depth, columns]. Packed, it is cut into as few even blocks of at most kDenseDepth rows as
// can be, those into panels of kDensePanel columns, and a panel holds its rows one after the other,
// as the matmul reads them; the last panel is filled up with zeros. The layout is the same for
// every instruction set.
//
// Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.
//
// The arithmetic is float32 for all storage types, and every element of z is summed in an order
// that follows from `depth` alone: a row of y has the same bits whatever the other rows and however
// many threads there are.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_FUSED_DENSE_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_FUSED_DENSE_H_

#include <cstdint>

#include "custom_ops/kernels/float_types.h"
#include "custom_ops/kernels/parallel.h"

namespace bert_tf {

constexpr int64_t kDensePanel = 32;
constexpr int64_t kDenseDepth = 256;

template <typename T>
struct PackDenseArgs {
  const T* kernel;  // [depth, columns] row-major, or [columns, depth] where transposed
  bool transposed;
  int64_t depth;
  int64_t columns;
  T* packed;  // PackedDenseSize(depth, columns) elements
};

enum class DenseActivation { kNone, kGelu, kApproximateGelu };

// Row-major matrices. LayerNorm is applied where gamma is there; an activation goes with neither
// residual nor LayerNorm.
template <typename T>
struct FusedDenseArgs {
  const T* x;       // [rows, depth]
  const T* packed;  // of W
  const T* bias;    // [columns] or null
  DenseActivation activation;
  const T* residual;  // [rows, columns] or null
  const T* gamma;     // [columns] or null
  const T* beta;      // [columns] or null, with gamma
  float epsilon;
  int64_t rows;
  int64_t depth;
  int64_t columns;
  T* y;  // [rows, columns]; may be residual, not x
};

// sizes.h: kTooLarge where no buffer holds it.
int64_t PackedDenseSize(int64_t depth, int64_t columns);

template <typename T>
void PackDense(const Parallel& parallel, const PackDenseArgs<T>& args);

template <typename T>
void FusedDense(const Parallel& parallel, const FusedDenseArgs<T>& args);

// The copies for each instruction set (isa.h); only tests call them directly.
#define BERT_TF_DECLARE_DENSE(isa)                                          \
  namespace isa {                                                           \
  template <typename T>                                                     \
  void PackDense(const Parallel& parallel, const PackDenseArgs<T>& args);   \
  template <typename T>                                                     \
  void FusedDense(const Parallel& parallel, const FusedDenseArgs<T>& args); \
  }
BERT_TF_DECLARE_DENSE(portable)
BERT_TF_DECLARE_DENSE(avx2)
BERT_TF_DECLARE_DENSE(avx512)
#undef BERT_TF_DECLARE_DENSE

}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_FUSED_DENSE_H_
