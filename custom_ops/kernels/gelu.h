// gelu and its slope on one vector, both forms. Include it only in sources compiled through
// isa.bzl.
#ifndef BERT_TF_CUSTOM_OPS_KERNELS_GELU_H_
#define BERT_TF_CUSTOM_OPS_KERNELS_GELU_H_

#include "custom_ops/kernels/simd.h"

namespace bert_tf {
namespace BERT_TF_ISA {
namespace {

// Both forms are s times a smooth step from 0 to 1 that is odd around 1/2. With t = |s| and
// tail(t) = step(-t), which goes from 1/2 to 0 and keeps all its digits on the way,
//
//   gelu(s)  = max(s, 0) - t * tail(t)                      for either sign of s
//   gelu'(s) = s < 0 ? slope(t) : 1 - slope(t),   slope(t) = tail(t) + t * tail'(t)
//
// Above kLargest, t * tail(t) is below the smallest float32, so t stops there: no infinity comes
// up inside. An error of the exponential's argument is a relative error of the tail, so that
// argument is carried as a sum of two float32; and the power of two comes last, because
// t * tail(t) may be a normal number where tail(t) is not (and TensorFlow flushes those to zero).

// Phi by the normal distribution:
//   tail(t)  = 0.5 * erfc(t / sqrt(2)) = exp(-t^2 / 2) * ratio(t)
//   tail'(t) = -exp(-t^2 / 2) / sqrt(2 pi)
struct ErfForm {
  static constexpr float kLargest = 15.0f;

  // 0.5 * erfcx(t / sqrt(2)) on [0, 15], a minimax rational function: relative error 6.3e-9, and
  // with positive coefficients only, so that nothing cancels. Fitted to SciPy's erfcx by least
  // squares, reweighted towards the largest errors.
  static BERT_TF_INLINE Vec Ratio(Vec t) {
    Vec p = Broadcast(4.153178662e-3f);
    p = p * t + 4.088080715e-2f;
    p = p * t + 0.1839682265f;
    p = p * t + 0.4392822632f;
    p = p * t + 0.5f;
    Vec q = Broadcast(1.04103634e-2f);
    q = q * t + 0.1024791038f;
    q = q * t + 0.4714062798f;
    q = q * t + 1.205544595f;
    q = q * t + 1.676449533f;
    q = q * t + 1.0f;
    return p / q;
  }

  static BERT_TF_INLINE ExpParts Bell(Vec t) {  // exp(-t^2 / 2)
    const Vec square = t * t;
    return ExpInParts(-0.5f * square, -0.5f * ProductError(t, t, square));
  }

  static BERT_TF_INLINE Vec TailTimesT(Vec t) {
    const ExpParts bell = Bell(t);
    return ScaleByPowerOfTwo(bell.mantissa * (t * Ratio(t)), bell.exponent);
  }

  static BERT_TF_INLINE Vec Slope(Vec t) {
    constexpr float kInvSqrt2Pi = 0.398942280f;
    const ExpParts bell = Bell(t);
    return ScaleByPowerOfTwo(bell.mantissa * (Ratio(t) - kInvSqrt2Pi * t), bell.exponent);
  }
};

// sigmoid(2 u):
//   a(t) = 2 u(t) = t * (k0 + k1 t^2),  e = exp(-a),  tail(t) = e / (1 + e)
//   tail'(t) = -a'(t) * tail / (1 + e),  a'(t) = k0 + 3 k1 t^2
struct TanhForm {
  static constexpr float kLargest = 11.0f;

  // 2 sqrt(2 / pi) and that times 0.044715, each in two parts. kHigh0 has 20 bits: then
  // kHigh0 - w below is exact.
  static constexpr float kHigh0 = 1.59576988220214844f;
  static constexpr float kLow0 = -7.60596418e-7f;
  static constexpr float kHigh1 = 0.0713548138737678528f;
  static constexpr float kLow1 = 2.39883240e-9f;

  static BERT_TF_INLINE ExpParts Exponential(Vec t) {  // exp(-a(t))
    const Vec square = t * t;
    const Vec square_error = ProductError(t, t, square);
    const Vec w = Fma(Broadcast(kHigh1), square, Broadcast(kHigh0));
    const Vec w_error = Fma(Broadcast(kHigh1), square, kHigh0 - w) +
                        (kLow0 + (kLow1 * square + kHigh1 * square_error));
    const Vec a = t * w;
    const Vec a_error = ProductError(t, w, a) + t * w_error;
    return ExpInParts(-a, -a_error);
  }

  static BERT_TF_INLINE Vec TailTimesT(Vec t) {
    const ExpParts e = Exponential(t);
    const Vec quotient = t / (1.0f + ScaleByPowerOfTwo(e.mantissa, e.exponent));
    return ScaleByPowerOfTwo(e.mantissa * quotient, e.exponent);
  }

  static BERT_TF_INLINE Vec Slope(Vec t) {
    const ExpParts e = Exponential(t);
    const Vec inverse = 1.0f / (1.0f + ScaleByPowerOfTwo(e.mantissa, e.exponent));
    const Vec a_slope = (3.0f * kHigh1) * (t * t) + (kHigh0 + kLow0);
    return ScaleByPowerOfTwo(e.mantissa * (inverse * (1.0f - t * a_slope * inverse)), e.exponent);
  }
};

template <typename Form>
BERT_TF_INLINE Vec Gelu(Vec s) {
  const Vec t = Min(Broadcast(Form::kLargest), Abs(s));
  return Max(Vec{}, s) - Form::TailTimesT(t);
}

template <typename Form>
BERT_TF_INLINE Vec GeluSlope(Vec s) {
  const Vec slope = Form::Slope(Min(Broadcast(Form::kLargest), Abs(s)));
  return s < 0.0f ? slope : 1.0f - slope;
}

}  // namespace
}  // namespace BERT_TF_ISA
}  // namespace bert_tf

#endif  // BERT_TF_CUSTOM_OPS_KERNELS_GELU_H_
