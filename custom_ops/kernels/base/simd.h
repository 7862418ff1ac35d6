// A vector of float32 lanes, as wide as in the instruction set for which this file is compiled.
//
// It uses the vector extensions that GCC and Clang have in common, so that one source works for
// AVX-512, AVX2 and other instruction sets: `+ - * /`, comparisons and `mask ? a : b` work on whole
// vectors, and a * b + c becomes one FMA with -ffp-contract=fast. Intrinsics are used only for what
// the extensions do not have. All definitions are in an unnamed namespace inside BERT_TF_ISA, so
// that no copy is used in the code for another instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(BERT_TF_NEON)
#include <arm_neon.h>
#endif

#include "custom_ops/kernels/base/float_types.h"

#if !defined(BERT_TF_ISA)
#error "Only sources that isa.bzl compiles for an instruction set may include simd.h."
#endif
#define BERT_TF_INLINE inline __attribute__((always_inline))

namespace bert_tf::BERT_TF_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLanes = kVectorBytes / 4;

BERT_TF_INLINE int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
BERT_TF_INLINE int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
BERT_TF_INLINE int64_t Larger(int64_t a, int64_t b) { return a < b ? b : a; }

// Where part `i` begins if `total` is divided into `parts` parts of about equal size.
BERT_TF_INLINE int64_t PartBegin(int64_t total, int64_t parts, int64_t i) {
  return total * i / parts;
}

constexpr int64_t kCacheLine = 64;  // bytes

using Vec = float __attribute__((vector_size(kVectorBytes)));
using VecI32 = int32_t __attribute__((vector_size(kVectorBytes)));
using VecU32 = uint32_t __attribute__((vector_size(kVectorBytes)));
using VecU16 = uint16_t __attribute__((vector_size(kVectorBytes / 2)));

BERT_TF_INLINE Vec Broadcast(float value) { return Vec{} + value; }
BERT_TF_INLINE VecI32 Bits(Vec v) { return reinterpret_cast<VecI32>(v); }
BERT_TF_INLINE Vec FromBits(VecI32 v) { return reinterpret_cast<Vec>(v); }

// a > b ? a : b and a < b ? a : b. If a or b is NaN, the result is b. Therefore a bound should be
// the first argument: Max(bound, x) keeps a NaN in x.
BERT_TF_INLINE Vec Max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}

BERT_TF_INLINE Vec Min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

BERT_TF_INLINE Vec Abs(Vec v) { return FromBits(Bits(v) & 0x7FFFFFFF); }

// a * b + c with one rounding, for algorithms that need this (elsewhere, the compiler may fuse
// operations). The portable code uses float64, whose additional rounding is 2^-29 of the first.
BERT_TF_INLINE Vec Fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(BERT_TF_NEON)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  using VecF64 = double __attribute__((vector_size(2 * kVectorBytes)));
  return __builtin_convertvector(
      __builtin_convertvector(a, VecF64) * __builtin_convertvector(b, VecF64) +
          __builtin_convertvector(c, VecF64),
      Vec);
#endif
}

// The rounding error of `product` = round(a * b).
BERT_TF_INLINE Vec ProductError(Vec a, Vec b, Vec product) { return Fma(a, b, -product); }

// Unaligned.
template <typename V>
BERT_TF_INLINE V LoadAs(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Loads and stores, unaligned, kLanes elements.
BERT_TF_INLINE Vec Load(const float* p) { return LoadAs<Vec>(p); }

BERT_TF_INLINE void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }

BERT_TF_INLINE Vec Load(const BFloat16* p) {
#if defined(BERT_TF_NEON)
  return (Vec)vshll_n_u16(LoadAs<uint16x4_t>(p), 16);
#else
  return reinterpret_cast<Vec>(__builtin_convertvector(LoadAs<VecU16>(p), VecU32) << 16);
#endif
}

// The bits of the numbers rounded to bfloat16, to nearest even. A NaN becomes a quiet NaN.
BERT_TF_INLINE VecU32 BFloat16Bits(Vec v) {
  const VecU32 bits = reinterpret_cast<VecU32>(v);
  const VecU32 rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const VecU32 nan = (bits >> 16) | 0x40u;
  return (v != v) ? nan : rounded;
}

BERT_TF_INLINE Vec RoundToBfloat16(Vec v) { return reinterpret_cast<Vec>(BFloat16Bits(v) << 16); }

BERT_TF_INLINE void Store(BFloat16* p, Vec v) {
  const VecU16 words = __builtin_convertvector(BFloat16Bits(v), VecU16);
  std::memcpy(p, &words, sizeof(words));
}

#if defined(__AVX512F__)
BERT_TF_INLINE Vec Load(const Float16* p) {
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
BERT_TF_INLINE void Store(Float16* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
BERT_TF_INLINE Vec Load(const Float16* p) {
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
BERT_TF_INLINE void Store(Float16* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(BERT_TF_NEON)
BERT_TF_INLINE Vec Load(const Float16* p) { return (Vec)vcvt_f32_f16(LoadAs<float16x4_t>(p)); }
BERT_TF_INLINE void Store(Float16* p, Vec v) {
  const float16x4_t halves = vcvt_f16_f32((float32x4_t)v);
  std::memcpy(p, &halves, sizeof(halves));
}
#else
// float16 -> float32. The exponent is shifted. Subnormal numbers are integer multiples of 2^-24.
// They must not be computed from subnormal float32 numbers, which TensorFlow's threads read as
// zero.
BERT_TF_INLINE Vec Load(const Float16* p) {
  const VecU32 words = __builtin_convertvector(LoadAs<VecU16>(p), VecU32);
  const VecU32 sign = (words & 0x8000u) << 16;
  const VecU32 magnitude = words & 0x7FFFu;
  const VecU32 normal = (magnitude << 13) + (112u << 23);
  const Vec multiple = __builtin_convertvector(reinterpret_cast<VecI32>(magnitude), Vec);
  const VecU32 subnormal = reinterpret_cast<VecU32>(multiple * 0x1p-24f);
  const VecU32 special = (magnitude << 13) | 0x7F800000u;  // infinities and NaNs
  VecU32 bits = magnitude < 0x0400u ? subnormal : normal;
  bits = magnitude >= 0x7C00u ? special : bits;
  return reinterpret_cast<Vec>(bits | sign);
}

// float32 -> float16, rounded to nearest even. For subnormal results, the processor rounds when it
// adds a power of two whose last bit corresponds to the last bit of the float16.
BERT_TF_INLINE void Store(Float16* p, Vec v) {
  const VecU32 bits = reinterpret_cast<VecU32>(v);
  const VecU32 sign = (bits >> 16) & 0x8000u;
  const VecU32 magnitude = bits & 0x7FFFFFFFu;
  const VecU32 odd = (magnitude >> 13) & 1u;
  const VecU32 normal = (magnitude - (112u << 23) + 0xFFFu + odd) >> 13;
  const Vec shifted = reinterpret_cast<Vec>(magnitude) + 0.5f;
  const VecU32 subnormal = reinterpret_cast<VecU32>(shifted) - 0x3F000000u;
  VecU32 half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= 0x477FF000u ? (VecU32{} + 0x7C00u) : half;  // 65520 and above: infinity
  half = magnitude > 0x7F800000u ? (VecU32{} + 0x7E00u) : half;   // NaN
  const VecU16 words = __builtin_convertvector(half | sign, VecU16);
  std::memcpy(p, &words, sizeof(words));
}
#endif

// The lanes of a vector that a loop body works on: all, or only the first ones at the end of a row.
// Loop bodies are generic lambdas that accept both types. Loads set the other lanes to zero.
struct AllLanes {};
struct SomeLanes {
  int64_t count;
};

template <typename T>
BERT_TF_INLINE Vec Load(const T* p, AllLanes) {
  return Load(p);
}
template <typename T>
BERT_TF_INLINE void Store(T* p, Vec v, AllLanes) {
  Store(p, v);
}

template <typename T>
BERT_TF_INLINE Vec Load(const T* p, SomeLanes lanes) {
  T buffer[kLanes] = {};
  std::memcpy(buffer, p, static_cast<size_t>(lanes.count) * sizeof(T));
  return Load(buffer);
}
template <typename T>
BERT_TF_INLINE void Store(T* p, Vec v, SomeLanes lanes) {
  T buffer[kLanes];
  Store(buffer, v);
  std::memcpy(p, buffer, static_cast<size_t>(lanes.count) * sizeof(T));
}

#if defined(__AVX512F__)
BERT_TF_INLINE __mmask16 MaskOf(SomeLanes lanes) {
  return static_cast<__mmask16>((1u << lanes.count) - 1u);
}
BERT_TF_INLINE Vec Load(const float* p, SomeLanes lanes) {
  return (Vec)_mm512_maskz_loadu_ps(MaskOf(lanes), p);
}
BERT_TF_INLINE void Store(float* p, Vec v, SomeLanes lanes) {
  _mm512_mask_storeu_ps(p, MaskOf(lanes), (__m512)v);
}
#endif

// `v` with zeros in all other lanes.
BERT_TF_INLINE Vec ZeroOutside(Vec v, AllLanes) { return v; }
BERT_TF_INLINE Vec ZeroOutside(Vec v, SomeLanes lanes) {
  float buffer[kLanes];
  Store(buffer, v);
  return Load(buffer, lanes);
}

// An attribute for the lambdas that are passed to the loops below.
#define BERT_TF_INLINE_LAMBDA __attribute__((always_inline))

// Calls body(lanes, j) for j = 0, kLanes, 2 kLanes, … below count.
template <typename Body>
BERT_TF_INLINE void ForSingleVectors(int64_t count, const Body& body) {
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) body(AllLanes{}, j);
  if (j < count) body(SomeLanes{count - j}, j);
}

// Calls body(lanes, j, k) for j = 0, kLanes, 2 kLanes, … below count. k = 0, 1, 2, 3, 0, … is the
// accumulator that a sum should use, so that four additions are executed at a time.
constexpr int kAccumulators = 4;

template <typename Body>
BERT_TF_INLINE void ForVectors(int64_t count, const Body& body) {
  int64_t j = 0;
  for (; j + kAccumulators * kLanes <= count; j += kAccumulators * kLanes) {
    body(AllLanes{}, j, 0);
    body(AllLanes{}, j + kLanes, 1);
    body(AllLanes{}, j + 2 * kLanes, 2);
    body(AllLanes{}, j + 3 * kLanes, 3);
  }
  for (; j + kLanes <= count; j += kLanes) body(AllLanes{}, j, 0);
  if (j < count) body(SomeLanes{count - j}, j, 0);
}

BERT_TF_INLINE void FillZeros(float* p, int64_t count) {
  ForVectors(count,
             [&](auto lanes, int64_t j, int) BERT_TF_INLINE_LAMBDA { Store(p + j, Vec{}, lanes); });
}

// Repeatedly combines the lower and the upper half of the lanes with `combine`, until one lane is
// left. The order is always the same.
template <typename Lanes, typename Combine>
BERT_TF_INLINE float ReduceLanes(Lanes v, const Combine& combine) {
  if constexpr (sizeof(v) == 2 * sizeof(float)) {
    return combine(v[0], v[1]);
  } else {
    // GCC 12 ignores the attribute in `using`, because it depends on a template argument.
    typedef float Half __attribute__((vector_size(sizeof(Lanes) / 2)));
    Half halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return ReduceLanes(combine(halves[0], halves[1]), combine);
  }
}

BERT_TF_INLINE float ReduceAdd(Vec v) {
  return ReduceLanes(v, [](auto a, auto b) BERT_TF_INLINE_LAMBDA { return a + b; });
}

BERT_TF_INLINE float ReduceMax(Vec v) {
  return ReduceLanes(v, [](auto a, auto b) BERT_TF_INLINE_LAMBDA { return a < b ? b : a; });
}

BERT_TF_INLINE float ReduceAdd(const Vec (&sums)[kAccumulators]) {
  return ReduceAdd((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// v * 2^n for integers n in [-250, 254], with two factors so that subnormal results and 2^128 are
// correct.
BERT_TF_INLINE Vec ScaleByPowerOfTwo(Vec v, Vec n) {
#if defined(__AVX512F__)
  return (Vec)_mm512_scalef_ps((__m512)v, (__m512)n);
#else
  constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: a float32 whose last bits are n
  const VecI32 exponent = Bits(n + kRoundMagic) - Bits(Broadcast(kRoundMagic));
  const VecI32 first = exponent >> 1;
  const VecI32 second = exponent - first;
  return v * FromBits((first + 127) << 23) * FromBits((second + 127) << 23);
#endif
}

// mantissa * 2^exponent = e^(x + low), with the mantissa in [0.7, 1.5], for |x| <= 150 and a `low`
// so small that x + low rounds to x. The error is about 1 ulp, and NaN gives NaN. There are two
// parts, because a product may be a normal number even if the exponential itself is not.
//
// With x = n·ln2 + r and |r| <= ln2 / 2, e^r is a polynomial of degree 7.
struct ExpParts {
  Vec mantissa;
  Vec exponent;
};

BERT_TF_INLINE ExpParts ExpInParts(Vec x, Vec low) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;  // has few bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Vec n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  const Vec r = ((x - n * kLn2High) - n * kLn2Low) + low;
  Vec p = Broadcast(1.9875691500e-4f);  // Cephes expf coefficients (Moshier)
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return {p, n};
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
