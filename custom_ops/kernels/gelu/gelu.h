// Both forms of gelu, silu, and their slopes, for one vector. In a .cu.cc file, a vector is one
// number.
#pragma once

#if defined(BERT_TF_CUDA)
#include "custom_ops/kernels/cuda/cuda_vec.h"
#else
#include "custom_ops/kernels/base/simd.h"
#endif

namespace bert_tf::BERT_TF_ISA {
namespace {

// Both forms are s * step(s), where step is a smooth step from 0 to 1 that is symmetric around 1/2.
// With t = |s| and tail(t) = step(-t), which decreases from 1/2 to 0 without loss of precision,
//
//   gelu(s)  = max(s, 0) - t * tail(t)                      for either sign of s
//   gelu'(s) = s < 0 ? slope(t) : 1 - slope(t),   slope(t) = tail(t) + t * tail'(t)
//
// Above kLargest, t * tail(t) is below the smallest float32, so t is limited to kLargest and no
// infinities occur. An error in the argument of the exponential becomes a relative error of the
// tail, so the argument is a sum of two float32 numbers. The power of two is applied last, because
// t * tail(t) may be a normal number even if tail(t) is subnormal (TensorFlow flushes subnormal
// numbers to zero).

// The exact form, with the normal distribution:
//   tail(t)  = exp(-t^2 / 2) * ratio(t),   ratio(t) = 0.5 * erfcx(t / sqrt(2))
//   tail'(t) = -exp(-t^2 / 2) / sqrt(2 pi)
// The speed is limited by the multiplications. Therefore the leading coefficients of the
// exponential and of the numerators are 1, and the denominators are scaled accordingly.
//
// The coefficients are least-squares fits to SciPy's erfcx and to the exponential, reweighted
// towards the largest relative errors (Lawson's method), rounded to float32 and improved by small
// random steps. The last coefficient of each denominator makes the quotient exactly 0.5 at t = 0.
struct ErfForm {
  static constexpr float kLargest = 15.0f;

  // -3859.93164 exp(-t^2 / 2) = mantissa * 2^exponent. With q = t^2 and n = round(-q / (2 ln 2)),
  //   exp(-q / 2) = 2^n exp(-r / 2),  r = q + n * 2 ln 2,  |r| <= ln 2
  // with a relative error of 9.6e-8. float32(2 ln 2) is 3.8e-9 too large. Because n is nearly
  // -q / (2 ln 2), this is a factor of exp(1.4e-9 q), which the quotients below compensate for.
  static BERT_TF_INLINE ExpParts Bell(Vec t) {
    constexpr float kHalfLog2E = 0.721347520444481704f;
    constexpr float kTwoLn2 = 1.38629436111989062f;
    constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const Vec q = t * t;
    const Vec n = (kRoundMagic - kHalfLog2E * q) - kRoundMagic;
    const Vec r = Fma(n, Broadcast(kTwoLn2), q) + ProductError(t, t, q);
    Vec p = r - 10.1076975f;
    p = p * r + 80.4197006f;
    p = p * r - 482.483276f;
    p = p * r + 1929.96533f;
    p = p * r - 3859.93164f;
    return {p, n};
  }

  // The quotient is ratio(t) / -3859.93164, with a relative error of 1e-8 on [0, 13.3]. Its
  // coefficients have the same sign, so that there is no cancellation.
  static BERT_TF_INLINE Vec TailTimesT(Vec t) {
    const ExpParts bell = Bell(t);
    Vec p = t + 9.9180851f;
    p = p * t + 44.8743477f;
    p = p * t + 107.632652f;
    p = p * t + 123.19828f;
    Vec q = -9675.30566f * t - 95967.875f;
    q = q * t - 443705.438f;
    q = q * t - 1139325.25f;
    q = q * t - 1589756.88f;
    q = q * t - 951073.875f;
    return ScaleByPowerOfTwo(bell.mantissa * (t * p) / q, bell.exponent);
  }

  // The quotient is (ratio(t) - t / sqrt(2 pi)) / -3859.93164. Its error is 2.2e-8 on [0, 13.3]: a
  // relative error, except around its zero near 0.75.
  static BERT_TF_INLINE Vec Slope(Vec t) {
    const ExpParts bell = Bell(t);
    Vec p = t + 8.37864685f;
    p = p * t + 29.0961552f;
    p = p * t + 44.4823265f;
    p = p * t + 9.16737652f;
    p = p * t - 47.3126869f;
    Vec q = 9675.375f * t + 81069.1953f;
    q = q * t + 291141.531f;
    q = q * t + 512079.625f;
    q = q * t + 365247.469f;
    return ScaleByPowerOfTwo(bell.mantissa * p / q, bell.exponent);
  }
};

// t * e / (1 + e)
BERT_TF_INLINE Vec SigmoidTailTimesT(const ExpParts& e, Vec t) {
  const Vec quotient = t / (1.0f + ScaleByPowerOfTwo(e.mantissa, e.exponent));
  return ScaleByPowerOfTwo(e.mantissa * quotient, e.exponent);
}

// e / (1 + e) * (1 - t_slope / (1 + e)): the slope of the tail with e = exp(-a(t)) and
// t_slope = t * a'(t)
BERT_TF_INLINE Vec SigmoidSlope(const ExpParts& e, Vec t_slope) {
  const Vec inverse = 1.0f / (1.0f + ScaleByPowerOfTwo(e.mantissa, e.exponent));
  return ScaleByPowerOfTwo(e.mantissa * (inverse * (1.0f - t_slope * inverse)), e.exponent);
}

// The tanh form, with sigmoid(2 u):
//   a(t) = 2 u(t) = t * (k0 + k1 t^2),  e = exp(-a),  tail(t) = e / (1 + e)
//   tail'(t) = -a'(t) * tail / (1 + e),  a'(t) = k0 + 3 k1 t^2
struct TanhForm {
  static constexpr float kLargest = 11.0f;

  // 2 sqrt(2 / pi), and the same times 0.044715, each in two parts. kHigh0 has 20 bits, so that
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

  static BERT_TF_INLINE Vec TailTimesT(Vec t) { return SigmoidTailTimesT(Exponential(t), t); }

  static BERT_TF_INLINE Vec Slope(Vec t) {
    const Vec a_slope = (3.0f * kHigh1) * (t * t) + (kHigh0 + kLow0);
    return SigmoidSlope(Exponential(t), t * a_slope);
  }
};

// silu(s) = s / (1 + exp(-s)), which has the same symmetry:
//   e = exp(-t),  tail(t) = e / (1 + e)
struct SiluForm {
  static constexpr float kLargest = 110.0f;

  static BERT_TF_INLINE Vec TailTimesT(Vec t) {
    return SigmoidTailTimesT(ExpInParts(-t, Vec{}), t);
  }

  static BERT_TF_INLINE Vec Slope(Vec t) { return SigmoidSlope(ExpInParts(-t, Vec{}), t); }
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
}  // namespace bert_tf::BERT_TF_ISA
