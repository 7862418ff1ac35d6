// The second step of a sum over rows: adds the partial sums of the blocks, always in the same
// order.
#pragma once

#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf::cuda {
namespace {

constexpr int kSumWarps = 8;

// sums[column] = sum over block of partial[block * stride + column]. A warp adds every eighth
// block.
template <typename T>
__global__ void __launch_bounds__(kSumWarps* kWarp)
    ColumnSumsKernel(const float* partial, int64_t blocks, int64_t stride, int64_t columns,
                     T* sums) {
  float* const of_warp = reinterpret_cast<float*>(SharedMemory());  // [kSumWarps, kWarp]
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0.0f;
  if (column < columns) {
    for (int64_t block = warp; block < blocks; block += kSumWarps) {
      sum += partial[block * stride + column];
    }
  }
  of_warp[warp * kWarp + lane] = sum;
  SyncThreads();
  if (warp != 0 || column >= columns) return;
  for (int other = 1; other < kSumWarps; ++other) sum += of_warp[other * kWarp + lane];
  Round(sum, sums + column);
}

#ifndef __CUDACC_RTC__
template <typename T>
int ColumnSums(const float* partial, int64_t blocks, int64_t stride, int64_t columns, T* sums,
               void* stream) {
  const dim3 grid(static_cast<unsigned>(CeilDivide(columns, kWarp)));
  return Launch<ColumnSumsKernel<T>>(grid, kSumWarps * kWarp, kSumWarps * kWarp * sizeof(float),
                                     stream, partial, blocks, stride, columns, sums);
}
#endif  // __CUDACC_RTC__

}  // namespace
}  // namespace bert_tf::cuda
