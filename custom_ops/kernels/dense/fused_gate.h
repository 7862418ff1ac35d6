// The gate of a feed-forward layer (GeGLU, SwiGLU) or its gradient, in one pass. fused_dense.h
// computes the gate in the op of the matmul, for inference. With T = Gpu (float_types.h), the
// arguments are those of the GPU launcher.
//
//   x = [s, factor],  f = gelu (fused_bias_gelu.h) or silu(s) = s / (1 + exp(-s))
//   y = f(s) * factor,  dx = [dy * factor * f'(s), dy * f(s)]
//
// Reference: Shazeer, "GLU variants improve Transformer", arXiv 2002.05202.
//
// Float32 values of f are within 8 ulp if they are normal numbers, including the negative tail.
// f(-inf) is zero, f(+inf) is +inf, and f(NaN) is NaN. The arithmetic is float32 for all storage
// types.
#pragma once

#include <cstdint>

#include "custom_ops/kernels/base/float_types.h"
#include "custom_ops/kernels/base/isa.h"
#include "custom_ops/kernels/base/parallel.h"
#include "custom_ops/kernels/dense/fused_dense.h"

namespace bert_tf {

// Row-major matrices.
template <typename T>
struct GateArgs {
  using Element = ElementOf<T>;
  const Element* dy = nullptr;  // [rows, columns] for the gradient, otherwise null
  const Element* x = nullptr;   // [rows, 2 columns]
  int64_t rows = 0;
  int64_t columns = 0;
  DenseActivation activation = DenseActivation::kSilu;  // f, not kNone
  Element* result = nullptr;  // y [rows, columns], or dx [rows, 2 columns], which may be x
};

template <typename T>
void FusedGate(const Parallel& parallel, const GateArgs<T>& args);

BERT_TF_DECLARE_COPIES(FusedGate, GateArgs)

}  // namespace bert_tf
