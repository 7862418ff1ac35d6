// Sums over rows whose result does not depend on the number of threads: rows are cut into blocks
// of a size that follows from their number alone, every block sums its rows in order into a line
// of a scratch buffer, and then the lines are added in order.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_ROW_BLOCKS_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_ROW_BLOCKS_H_

#include <cstdint>

#include "custom_ops/kernels/parallel.h"
#include "custom_ops/kernels/simd.h"

namespace bert_tf {
namespace BERT_TF_ISA {
namespace {

constexpr int64_t kMaxRowBlocks = 64;  // enough to keep as many threads busy
constexpr int64_t kMinRowsInBlock = 8;  // fewer, and the scratch buffer costs more than the rows

BERT_TF_INLINE int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

BERT_TF_INLINE int64_t RowsInBlock(int64_t rows) {
  const int64_t even = CeilDivide(rows, kMaxRowBlocks);
  return even > kMinRowsInBlock ? even : kMinRowsInBlock;
}

BERT_TF_INLINE int64_t NumRowBlocks(int64_t rows) { return CeilDivide(rows, RowsInBlock(rows)); }

BERT_TF_INLINE void FillZeros(float* p, int64_t count) {
  ForVectors(count, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
    Store(p + j, Vec{}, lanes);
  });
}

// sums[j] += v over the lanes.
template <typename Lanes>
BERT_TF_INLINE void AddTo(float* sums, Vec v, Lanes lanes) {
  Store(sums, Load(sums, lanes) + v, lanes);
}

//   sums[j] = sum over block of partial[block * stride + j]
// Blocks of columns are summed at the same time.
template <typename T>
BERT_TF_INLINE void SumRowBlocks(const Parallel& parallel, const float* partial, int64_t blocks,
                                 int64_t stride, int64_t columns, T* sums) {
  constexpr int64_t kUnit = 64;  // columns
  parallel.For(CeilDivide(columns, kUnit), blocks * kUnit / 2, [=](int64_t begin, int64_t end) {
    const int64_t first = begin * kUnit;
    const int64_t last = end * kUnit < columns ? end * kUnit : columns;
    ForVectors(last - first, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
      Vec sum{};
      for (int64_t block = 0; block < blocks; ++block) {
        sum += Load(partial + block * stride + first + j, lanes);
      }
      Store(sums + first + j, sum, lanes);
    });
  });
}

}  // namespace
}  // namespace BERT_TF_ISA
}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_ROW_BLOCKS_H_
