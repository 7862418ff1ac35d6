// The forms of gelu.h that the GPU kernels use for a storage type.
#pragma once

#include <type_traits>

#include "custom_ops/kernels/cuda/cuda_vec.h"
#include "custom_ops/kernels/gelu/gelu.h"

namespace bert_tf::cuda {
namespace {

// The forms of gelu.h for 16-bit storage types, which round the last digits of float32 away. The
// argument of the exponential is a single float32, and there are so few instructions that the speed
// is limited by memory.
struct FastErfForm {
  static constexpr float kLargest = ErfForm::kLargest;  // its exponential is treated as zero

  static BERT_TF_DEVICE float Bell(float t) {  // exp(-t^2 / 2)
    constexpr float kHalfLog2E = 0.721347520f;
    return FastExp2(-kHalfLog2E * t * t);
  }
  // The ratio of ErfForm (gelu.h) with a fast quotient.
  static BERT_TF_DEVICE float Ratio(float t) {
    float p = 4.153178662e-3f;
    p = p * t + 4.088080715e-2f;
    p = p * t + 0.1839682265f;
    p = p * t + 0.4392822632f;
    p = p * t + 0.5f;
    float q = 1.04103634e-2f;
    q = q * t + 0.1024791038f;
    q = q * t + 0.4714062798f;
    q = q * t + 1.205544595f;
    q = q * t + 1.676449533f;
    q = q * t + 1.0f;
    return p * FastReciprocal(q);
  }
  static BERT_TF_DEVICE float TailTimesT(float t) { return Bell(t) * (t * Ratio(t)); }
  static BERT_TF_DEVICE float Slope(float t) {
    constexpr float kInvSqrt2Pi = 0.398942280f;
    return Bell(t) * (Ratio(t) - kInvSqrt2Pi * t);
  }
};

// SigmoidTailTimesT and SigmoidSlope of gelu.h.
BERT_TF_DEVICE float FastSigmoidTailTimesT(float e, float t) {
  return t * e * FastReciprocal(1.0f + e);
}
BERT_TF_DEVICE float FastSigmoidSlope(float e, float t_slope) {
  const float inverse = FastReciprocal(1.0f + e);
  return e * inverse * (1.0f - t_slope * inverse);
}

struct FastTanhForm {
  static constexpr float kLargest = TanhForm::kLargest;

  static BERT_TF_DEVICE float Exponential(float t) {  // exp(-2 u(t))
    constexpr float k0 = 2.30220818f;                 // 2 sqrt(2 / pi) log2(e)
    constexpr float k1 = 0.102943240f;                // that times 0.044715
    return FastExp2(-t * (k1 * (t * t) + k0));
  }
  static BERT_TF_DEVICE float TailTimesT(float t) {
    return FastSigmoidTailTimesT(Exponential(t), t);
  }
  static BERT_TF_DEVICE float Slope(float t) {
    const float a_slope = 3.0f * TanhForm::kHigh1 * (t * t) + TanhForm::kHigh0;
    return FastSigmoidSlope(Exponential(t), t * a_slope);
  }
};

struct FastSiluForm {
  static constexpr float kLargest = SiluForm::kLargest;

  static BERT_TF_DEVICE float Exponential(float t) {  // exp(-t)
    constexpr float kLog2E = 1.44269504f;
    return FastExp2(-kLog2E * t);
  }
  static BERT_TF_DEVICE float TailTimesT(float t) {
    return FastSigmoidTailTimesT(Exponential(t), t);
  }
  static BERT_TF_DEVICE float Slope(float t) { return FastSigmoidSlope(Exponential(t), t); }
};

template <typename T, typename Form, typename FastForm>
using FormOf = std::conditional_t<std::is_same<T, float>::value, Form, FastForm>;
template <typename T>
using ErfFormOf = FormOf<T, ErfForm, FastErfForm>;
template <typename T>
using TanhFormOf = FormOf<T, TanhForm, FastTanhForm>;
template <typename T>
using SiluFormOf = FormOf<T, SiluForm, FastSiluForm>;

}  // namespace
}  // namespace bert_tf::cuda
