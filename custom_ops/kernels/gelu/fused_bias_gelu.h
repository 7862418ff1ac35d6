// gelu(x + bias) and its gradient, each in one pass. With T = Gpu (float_types.h),
// the arguments are those of the GPU launchers.
//
//   gelu(s)  = s * Phi(s),             Phi: distribution function of the normal distribution
//   tanh form: gelu(s) = s * sigmoid(2 u),  u = sqrt(2 / pi) * (s + 0.044715 s^3)
//              (the same as s / 2 * (1 + tanh(u)))
//
// Reference: Hendrycks and Gimpel, "Gaussian error linear units", arXiv 1606.08415.
//
// Float32 results are within 8 ulp if they are normal numbers, including the negative tail. The
// result for -inf is zero, for +inf it is +inf, and for NaN it is NaN. The arithmetic is float32
// for all storage types.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"

namespace bert_tf {

// Row-major matrices of [rows, columns]; bias is [columns].
template <typename T>
struct BiasGeluArgs {
  using Element = ElementOf<T>;
  const Element* x = nullptr;
  const Element* bias = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  bool approximate = false;  // the tanh form
  Element* y = nullptr;      // may be x
};

template <typename T>
struct BiasGeluGradArgs {
  using Element = ElementOf<T>;
  const Element* dy = nullptr;
  const Element* x = nullptr;
  const Element* bias = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  bool approximate = false;
  Element* dx = nullptr;     // may be dy or x
  Element* dbias = nullptr;  // [columns]
  float* scratch = nullptr;  // BiasGeluGradScratchSize(rows, columns) elements, on a GPU as
                             // cuda_launchers.h says
};

int64_t BiasGeluGradScratchSize(int64_t rows, int64_t columns);

//   y = gelu(x + bias)
template <typename T>
void FusedBiasGelu(const Parallel& parallel, const BiasGeluArgs<T>& args);

//   dx = dy * gelu'(x + bias),  dbias = sum of dx over the rows
// The results have the same bits for every number of threads.
template <typename T>
void FusedBiasGeluGrad(const Parallel& parallel, const BiasGeluGradArgs<T>& args);

BERT_TF_DECLARE_COPIES(FusedBiasGelu, BiasGeluArgs)
BERT_TF_DECLARE_COPIES(FusedBiasGeluGrad, BiasGeluGradArgs)

}  // namespace bert_tf
