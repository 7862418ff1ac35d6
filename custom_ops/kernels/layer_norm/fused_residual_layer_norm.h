// LayerNorm(residual + dropout(x + bias)) and its gradient, each in one pass. The structs with T =
// void are arguments of the GPU launchers.
//
//   z = residual + dropout(x + bias)
//   y = gamma * (z - mean(z)) * rstd + beta,  rstd = 1 / sqrt(variance(z) + epsilon)
//
// Reference: Ba, Kiros and Hinton, "Layer normalization", arXiv 1607.06450.
//
// The mean and the variance are computed over the `columns` numbers of a row, the variance with a
// second pass over the row while it is in the cache. The arithmetic is float32 for all storage
// types, except for rows whose sums leave the range of float32 (numbers near 1e19, or near 1e-19
// with a tiny epsilon) or whose numbers are almost equal: these are computed in float64. A row of
// equal numbers with an epsilon of zero is 0 / 0, NaN.
//
// Dropout sets an element to zero with probability dropout_rate and scales the others by
// 1 / (1 - dropout_rate). The random bits are those of philox.h (stream 0, element = flat index).
#pragma once

#include <cstdint>
#include <type_traits>

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

// A seed is a number. In the arguments of the GPU launchers, whose T is void, it is an address in
// GPU memory.
template <typename T>
using SeedOf = std::conditional_t<std::is_void_v<T>, const int64_t*, uint64_t>;

// Row-major matrices of [rows, columns]; bias, gamma and beta are [columns], mean and rstd [rows].
template <typename T>
struct ResidualLayerNormArgs {
  const T* x;
  const T* residual;  // or null
  const T* bias;      // or null
  const T* gamma;
  const T* beta;
  int64_t rows;
  int64_t columns;
  float epsilon;
  float dropout_rate;  // in [0, 1)
  SeedOf<T> seed;
  T* y;  // may be x or residual
  float* mean;
  float* rstd;
};

template <typename T>
struct ResidualLayerNormGradArgs {
  const T* dy;
  const T* x;
  const T* residual;  // or null
  const T* bias;      // or null
  const T* gamma;
  const float* mean;
  const float* rstd;
  int64_t rows;
  int64_t columns;
  float dropout_rate;
  SeedOf<T> seed;
  T* dx;           // may be dy, x or residual
  T* dresidual;    // written only with residual and dropout (without dropout it is equal to dx);
                   // may be dy, x or residual, but not the same as dx
  T* dbias;        // [columns], written only with bias
  T* dgamma;       // [columns]
  T* dbeta;        // [columns]
  float* scratch;  // ResidualLayerNormGradScratchSize(rows, columns) elements, on a GPU as
                   // cuda_launchers.h says
};

int64_t ResidualLayerNormGradScratchSize(int64_t rows, int64_t columns);

template <typename T>
void FusedResidualLayerNorm(const Parallel& parallel, const ResidualLayerNormArgs<T>& args);

// With n = (z - mean) * rstd and g = dy * gamma:
//   dz = rstd * (g - mean(g) - n * mean(g * n))
//   dresidual = dz,  dx = dropout'(dz),  dbias = sum of dx,  dgamma = sum of dy * n,
//   dbeta = sum of dy    (sums over the rows, with the same bits for every number of threads)
template <typename T>
void FusedResidualLayerNormGrad(const Parallel& parallel, const ResidualLayerNormGradArgs<T>& args);

BERT_TF_DECLARE_COPIES(FusedResidualLayerNorm, ResidualLayerNormArgs)
BERT_TF_DECLARE_COPIES(FusedResidualLayerNormGrad, ResidualLayerNormGradArgs)

}  // namespace bert_tf
