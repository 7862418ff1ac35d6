// The functions that gelu.h uses, for a vector of one lane: a thread of a GPU. gelu.h includes this
// file instead of simd.h if BERT_TF_CUDA is defined.
#pragma once

#include <cmath>

#include "custom_ops/kernels/cuda/cuda_platform.h"

namespace bert_tf::cuda {
namespace {

using Vec = float;

BERT_TF_DEVICE Vec Broadcast(float value) { return value; }
BERT_TF_DEVICE Vec Abs(Vec v) { return fabsf(v); }
// If a or b is NaN, the result is b.
BERT_TF_DEVICE Vec Max(Vec a, Vec b) { return a > b ? a : b; }
BERT_TF_DEVICE Vec Min(Vec a, Vec b) { return a < b ? a : b; }
BERT_TF_DEVICE Vec Fma(Vec a, Vec b, Vec c) { return fmaf(a, b, c); }
BERT_TF_DEVICE Vec ProductError(Vec a, Vec b, Vec product) { return fmaf(a, b, -product); }

// As in simd.h.
constexpr float kExpScale = 0x1p40f;
constexpr float kExpMagic = 12582952.0f;

BERT_TF_DEVICE Vec ScaleByPowerOfTwo(Vec v, Vec shifted) {
  const int exponent = static_cast<int>(shifted - kExpMagic) + 40;
  return v * FloatOfBits(static_cast<uint32_t>(exponent + 127) << 23);
}

BERT_TF_DEVICE Vec ScaledExp(Vec x, Vec low) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLog2ELow = 1.92596303e-8f;  // log2(e) - kLog2E
  const Vec scaled = RoundedProduct(x, kLog2E);
  const Vec shifted = scaled + kExpMagic;
  const Vec rest = fmaf(x, kLog2E, -scaled) + fmaf(x, kLog2ELow, low * kLog2E);
  return ScaleByPowerOfTwo(FastExp2(RoundedDifference(scaled, shifted - kExpMagic) + rest),
                           shifted);
}

}  // namespace
}  // namespace bert_tf::cuda
