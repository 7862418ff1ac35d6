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

// e^(x + low) = mantissa * 2^exponent
struct ExpParts {
  Vec mantissa;
  Vec exponent;
};
BERT_TF_DEVICE ExpParts ExpInParts(Vec x, Vec low) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLog2ELow = 1.92596303e-8f;  // log2(e) - kLog2E
  const Vec scaled = RoundedProduct(x, kLog2E);
  const Vec n = rintf(scaled);
  const Vec rest = fmaf(x, kLog2E, -scaled) + fmaf(x, kLog2ELow, low * kLog2E);
  return {FastExp2(RoundedDifference(scaled, n) + rest), n};
}

// v * 2^n for n in [-252, 127], rounded once.
BERT_TF_DEVICE Vec ScaleByPowerOfTwo(Vec v, Vec n) {
  const int exponent = static_cast<int>(n);
  const int first = exponent < -126 ? -126 : exponent;
  return v * FloatOfBits(static_cast<uint32_t>(first + 127) << 23) *
         FloatOfBits(static_cast<uint32_t>(exponent - first + 127) << 23);
}

}  // namespace
}  // namespace bert_tf::cuda
