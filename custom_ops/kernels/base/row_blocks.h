// Sums over rows that do not depend on the number of threads. The rows are divided into blocks
// whose size depends only on the number of rows. Each block sums its rows in order into one line of
// a scratch buffer, and then the lines are added in order.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/parallel.h"
#include "custom_ops/kernels/base/simd.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

constexpr int64_t kMaxRowBlocks = 64;    // enough work for as many threads
constexpr int64_t kMinRowsInBlock = 32;  // so that there are far fewer partial sums than rows

BERT_TF_INLINE int64_t RowsInBlock(int64_t rows) {
  return Larger(CeilDivide(rows, kMaxRowBlocks), kMinRowsInBlock);
}

// At least one, so that a sum over no rows is zero.
BERT_TF_INLINE int64_t NumRowBlocks(int64_t rows) {
  return rows > 0 ? CeilDivide(rows, RowsInBlock(rows)) : 1;
}

// sums[j] += v over the lanes.
template <typename Lanes>
BERT_TF_INLINE void AddTo(float* sums, Vec v, Lanes lanes) {
  Store(sums, Load(sums, lanes) + v, lanes);
}

//   sums[sum][j] = sum over block of partial[block][sum][j]
// with partial [blocks, kSums, columns] and blocks > 0. The first block of partial is overwritten.
// Ranges of columns are summed in parallel, each in passes over contiguous memory.
template <typename T, int kSums>
BERT_TF_INLINE void SumRowBlocks(const Parallel& parallel, float* partial, int64_t blocks,
                                 int64_t columns, T* const (&sums)[kSums]) {
  constexpr int64_t kUnit = 64;  // columns
  const int64_t cycles = kSums * blocks * kUnit / 4;
  parallel.For(CeilDivide(columns, kUnit), cycles, [=, &sums](int64_t begin, int64_t end) {
    const int64_t first = begin * kUnit;
    const int64_t count = Smaller(end * kUnit, columns) - first;
    for (int sum = 0; sum < kSums; ++sum) {
      float* const total = partial + sum * columns + first;
      for (int64_t block = 1; block < blocks; ++block) {
        const float* const line = total + block * kSums * columns;
        ForVectors(count, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
          AddTo(total + j, Load(line + j, lanes), lanes);
        });
      }
      T* const result = sums[sum] + first;
      ForVectors(count, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
        Store(result + j, Load(total + j, lanes), lanes);
      });
    }
  });
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
