// LayerNorm or RMSNorm of one row, from float32 numbers to the storage type.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/simd.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

struct RowStatistics {
  float mean;
  float rstd;
};

// Computes a row in float64. This is used for the rare rows whose mean or variance is outside of
// the range of float32, or whose numbers are almost equal. It is also used for rows with an
// infinity or a NaN, whose result is NaN, and for rows of equal numbers with an epsilon of zero,
// whose result is 0 / 0, NaN.
template <typename T>
__attribute__((noinline)) RowStatistics NormalizeInFloat64(const float* z, int64_t columns,
                                                           const T* gamma, const T* beta,
                                                           float epsilon, bool is_rms, T* y) {
  double mean = 0.0;
  for (int64_t j = 0; j < columns && !is_rms; ++j) mean += z[j];
  mean /= static_cast<double>(columns);
  double variance = 0.0;
  for (int64_t j = 0; j < columns; ++j) variance += (z[j] - mean) * (z[j] - mean);
  variance /= static_cast<double>(columns);
  const double rstd = 1.0 / __builtin_sqrt(variance + static_cast<double>(epsilon));
  ForVectors(columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
    float normalized[kLanes] = {};
    for (int64_t lane = 0; lane < kLanes && j + lane < columns; ++lane) {
      normalized[lane] = static_cast<float>((z[j + lane] - mean) * rstd);
    }
    Store(y + j, Load(normalized) * Load(gamma + j, lanes) + Load(beta + j, lanes), lanes);
  });
  return {static_cast<float>(mean), static_cast<float>(rstd)};
}

// y = gamma * (z - mean) * rstd + beta,  rstd = 1 / sqrt(variance + epsilon)
// `z_sum` is the sum of the `columns` numbers of z. The variance is computed in a second pass. With
// `is_rms`, the mean counts as zero.
template <typename T>
BERT_TF_INLINE RowStatistics NormalizeRow(const float* z, float z_sum, int64_t columns,
                                          const T* gamma, const T* beta, float epsilon, bool is_rms,
                                          T* y) {
  constexpr float kSmallest = 1e-30f;  // below, the squares in the variance lose digits
  constexpr float kLargest = 3.4028235e38f;
  // (standard deviation / mean)^2; below, the variance may be just a rounding error of the mean.
  constexpr float kAlmostEqual = 1e-8f;
  const float inverse = 1.0f / static_cast<float>(columns);
  const float mean = is_rms ? 0.0f : z_sum * inverse;
  // variance = mean((z - mean)^2)
  Vec squares[kAccumulators] = {};
  ForVectors(columns, [&](auto lanes, int64_t j, int k) BERT_TF_INLINE_LAMBDA {
    const Vec d = ZeroOutside(Load(z + j, lanes) - mean, lanes);
    squares[k] += d * d;
  });
  const float variance = ReduceAdd(squares) * inverse;
  const float sum = variance + epsilon;
  if (!(sum >= kSmallest && sum <= kLargest) || variance < kAlmostEqual * mean * mean) {
    return NormalizeInFloat64(z, columns, gamma, beta, epsilon, is_rms, y);
  }
  const float rstd = 1.0f / __builtin_sqrtf(sum);
  ForVectors(columns, [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA {
    const Vec normalized = (Load(z + j, lanes) - mean) * rstd;
    Store(y + j, normalized * Load(gamma + j, lanes) + Load(beta + j, lanes), lanes);
  });
  return {mean, rstd};
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
