// LayerNorm(residual + dropout(x + bias)) and its gradient, each in one pass. With T = Gpu
// (float_types.h), the arguments are those of the GPU launchers.
//
//   z = residual + dropout(x + bias)
//   y = gamma * (z - mean(z)) * rstd + beta,  rstd = 1 / sqrt(variance(z) + epsilon)
//
// RMSNorm (is_rms) is the same with zero for mean(z), also in the variance. GPUs do not have it.
//
// Reference: Ba, Kiros and Hinton, "Layer normalization", arXiv 1607.06450; Zhang and Sennrich,
// "Root mean square layer normalization", arXiv 1910.07467.
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

// A seed is a number or, on a GPU, an address in its memory.
template <typename T>
using SeedOf = std::conditional_t<kIsGpu<T>, const int64_t*, uint64_t>;

// Row-major matrices of [rows, columns]; bias, gamma and beta are [columns], mean and rstd [rows].
template <typename T>
struct ResidualLayerNormArgs {
  using Element = ElementOf<T>;
  const Element* x = nullptr;
  const Element* residual = nullptr;  // or null
  const Element* bias = nullptr;      // or null
  const Element* gamma = nullptr;
  const Element* beta = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  float epsilon = 0.0f;
  float dropout_rate = 0.0f;  // in [0, 1)
  SeedOf<T> seed = {};
  Element* y = nullptr;  // may be x or residual
  float* mean = nullptr;
  float* rstd = nullptr;
  bool is_rms = false;
};

template <typename T>
struct ResidualLayerNormGradArgs {
  using Element = ElementOf<T>;
  const Element* dy = nullptr;
  const Element* x = nullptr;
  const Element* residual = nullptr;  // or null
  const Element* bias = nullptr;      // or null
  const Element* gamma = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  float dropout_rate = 0.0f;
  SeedOf<T> seed = {};
  Element* dx = nullptr;         // may be dy, x or residual
  Element* dresidual = nullptr;  // written only with residual and dropout (without dropout it is
                                 // equal to dx); may be dy, x or residual, but not the same as dx
  Element* dbias = nullptr;      // [columns], written only with bias
  Element* dgamma = nullptr;     // [columns]
  Element* dbeta = nullptr;      // [columns]
  float* scratch = nullptr;  // ResidualLayerNormGradScratchSize(rows, columns) elements, on a GPU
                             // as cuda_launchers.h says
  bool is_rms = false;
  const Element* other_dy = nullptr;  // or null; dy is the sum of both, rounded to their type
};

int64_t ResidualLayerNormGradScratchSize(int64_t rows, int64_t columns);

template <typename T>
void FusedResidualLayerNorm(const Parallel& parallel, const ResidualLayerNormArgs<T>& args);

// With n = (z - mean) * rstd and g = dy * gamma:
//   dz = rstd * (g - mean(g) - n * mean(g * n))    (RMSNorm without mean(g))
//   dresidual = dz,  dx = dropout'(dz),  dbias = sum of dx,  dgamma = sum of dy * n,
//   dbeta = sum of dy    (sums over the rows, with the same bits for every number of threads)
template <typename T>
void FusedResidualLayerNormGrad(const Parallel& parallel, const ResidualLayerNormGradArgs<T>& args);

BERT_TF_DECLARE_COPIES(FusedResidualLayerNorm, ResidualLayerNormArgs)
BERT_TF_DECLARE_COPIES(FusedResidualLayerNormGrad, ResidualLayerNormGradArgs)

}  // namespace bert_tf
