// Products of bytes, shared by quantized_dense and quantized_attention: rows of unsigned bytes
// times panels of W in signed bytes, with exact sums in int32. quantized_dense.h has the layout of
// a panel.
#pragma once

#include <cstdint>
#include <cstring>

#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/dense/neon_byte_products.h"
#include "custom_ops/kernels/dense/quantized_dense.h"
#include "custom_ops/kernels/dense/word_products.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

using VecI16 = int16_t __attribute__((vector_size(kVectorBytes)));

// a[2i] * b[2i] + a[2i + 1] * b[2i + 1]
BERT_TF_INLINE VecI32 MultiplyAddPairs(VecI16 a, VecI16 b) {
#if defined(__AVX512BW__)
  return (VecI32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (VecI32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (VecI32)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  const VecI32 p = reinterpret_cast<VecI32>(a), q = reinterpret_cast<VecI32>(b);
  return ((p << 16) >> 16) * ((q << 16) >> 16) + (p >> 16) * (q >> 16);
#endif
}

// Rounds to the nearest integer, ties to even, for |v| < 2^31.
BERT_TF_INLINE VecI32 RoundToInt(Vec v) {
#if defined(__AVX512F__)
  return (VecI32)_mm512_cvtps_epi32((__m512)v);
#elif defined(__AVX2__)
  return (VecI32)_mm256_cvtps_epi32((__m256)v);
#elif defined(__SSE2__)
  return (VecI32)_mm_cvtps_epi32((__m128)v);
#elif defined(BERT_TF_NEON)
  return (VecI32)vcvtnq_s32_f32((float32x4_t)v);
#else
  VecI32 n;
  for (int i = 0; i < kLanes; ++i) n[i] = static_cast<int32_t>(__builtin_rintf(v[i]));
  return n;
#endif
}

// The scale and the zero point of a row.
struct RowScale {
  float scale;
  int32_t zero;
};

using Bytes = uint8_t __attribute__((vector_size(kLanes)));

// The last byte of each number. Without intrinsics, GCC takes every number out of the vector.
BERT_TF_INLINE Bytes LowBytes(VecI32 n) {
#if defined(__AVX512F__) || !defined(__SSE2__)
  return __builtin_convertvector(n, Bytes);
#else
  n &= 255;
#if defined(__AVX2__)
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128((__m256i)n), _mm256_extracti128_si256((__m256i)n, 1));
#else
  const __m128i words = _mm_packs_epi32((__m128i)n, (__m128i)n);
#endif
  const __m128i bytes = _mm_packus_epi16(words, words);
  return LoadAs<Bytes>(&bytes);
#endif
}

// How numbers become bytes: u = clamp(round(v * inverse) + zero, 0, 255).
struct ByteQuantizer {
  float inverse;  // 1 / scale
  int32_t zero;

  BERT_TF_INLINE Bytes operator()(Vec v) const {
    const float least = static_cast<float>(-zero), largest = static_cast<float>(255 - zero);
    v = Min(Max(v * inverse, Broadcast(least)), Broadcast(largest));
    return LowBytes(RoundToInt(v) + zero);
  }
};

// The same scale and zero point for every row, from `static_scale` of QuantizedDenseArgs.
struct StaticScale {
  float scale;
  ByteQuantizer quantizer;

  explicit StaticScale(const float* static_scale)
      : scale(static_scale[0]), quantizer{1.0f / scale, static_cast<int32_t>(static_scale[1])} {}

  // The scale of a row; `poison` is NaN if it has an infinity or a NaN, and 0 otherwise.
  RowScale Row(float poison) const { return {scale + poison, quantizer.zero}; }
};

BERT_TF_INLINE void StoreBytes(uint8_t* u, Bytes bytes, AllLanes) {
  std::memcpy(u, &bytes, sizeof(bytes));
}
BERT_TF_INLINE void StoreBytes(uint8_t* u, Bytes bytes, SomeLanes lanes) {
  std::memcpy(u, &bytes, static_cast<size_t>(lanes.count));
}

// Quantizes the row values(k, lanes), k < depth.
template <typename Values>
void WriteBytes(const Values& values, const ByteQuantizer& quantizer, int64_t depth, uint8_t* u) {
  ForSingleVectors(depth, [&](auto lanes, int64_t k) BERT_TF_INLINE_LAMBDA {
    StoreBytes(u + k, quantizer(values(k, lanes)), lanes);
  });
  PadRow(depth, u);
}

// Quantizes a row with the scale and zero point of its numbers (quantized_dense.h has the formula).
template <typename Values>
RowScale QuantizeRow(const Values& values, int64_t depth, uint8_t* u) {
  Vec least = {}, largest = {}, poison = {};
  ForVectors(depth, [&](auto lanes, int64_t k, int) BERT_TF_INLINE_LAMBDA {
    const Vec v = values(k, lanes);
    least = Min(least, v);
    largest = Max(largest, v);
    poison += v * 0.0f;  // NaN from an infinity or a NaN
  });
  const float low = -ReduceMax(-least), high = ReduceMax(largest);
  const double span = static_cast<double>(high) - static_cast<double>(low);
  const bool is_finite = ReduceAdd(poison) == 0.0f;
  if (!is_finite || !(span >= static_cast<double>(kSmallestSpan))) {
    std::memset(u, 0, static_cast<size_t>(CeilDivide(depth, kQuad) * kQuad));
    return {is_finite ? 0.0f : __builtin_nanf(""), 0};
  }
  const double step = span / 255.0;
  const int32_t zero = static_cast<int32_t>(__builtin_rint(-static_cast<double>(low) / step));
  WriteBytes(values, {static_cast<float>(1.0 / step), zero}, depth, u);
  return {static_cast<float>(step), zero};
}

// Quantizes a row with a given scale and zero point.
template <typename Values>
RowScale QuantizeRow(const Values& values, const StaticScale& given, int64_t depth, uint8_t* u) {
  Vec poison = {};
  WriteBytes(
      [&](int64_t k, auto lanes) BERT_TF_INLINE_LAMBDA {
        const Vec v = values(k, lanes);
        poison += v * 0.0f;
        return v;
      },
      given.quantizer, depth, u);
  return given.Row(ReduceAdd(poison));
}

// The scales and sums of the columns of a panel, padded with zeros.
struct PanelScales {
  float scale[kDensePanel] = {};
  int32_t sum[kDensePanel] = {};
};

#if defined(__AVX2__)
// Four products of bytes and their sum in one instruction, of AVX512-VNNI or AVX-VNNI.
#if defined(__AVX512F__)
#define BERT_TF_VPDPBUSD "vpdpbusd"
#else
#define BERT_TF_VPDPBUSD "%{vex%} vpdpbusd"
#endif
struct Vnni {
  using Sum = VecI32;
  static constexpr int64_t kNumbers = kQuad;
#if defined(__AVX512F__)
  static constexpr int kTileRows = 14;  // 28 sums, 2 vectors of W and 1 of x: 31 of 32 registers
#else
  static constexpr int kTileRows = 6;  // 12 sums, 2 vectors of W and 1 of x: 15 of 16 registers
#endif
  static constexpr int64_t kRowCycles = 2;
  static constexpr int64_t kPlanes = 1;
  static constexpr bool kMultipliesTiles = false;
  static constexpr bool kPrefetches = true;

  static BERT_TF_INLINE void Split(uint8_t*, int64_t) {}
  static BERT_TF_INLINE VecI32 LoadW(const char* w) { return LoadAs<VecI32>(w); }
  static BERT_TF_INLINE VecI32 LoadX(const uint8_t* words, int64_t) {
    return VecI32{} + LoadAs<int32_t>(words);
  }
  static BERT_TF_INLINE void MultiplyAdd(VecI32 x, VecI32 w, VecI32& sum) {
    // With the intrinsic, GCC 12 moves sums out of the registers, at half the speed.
    asm(BERT_TF_VPDPBUSD " %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  }
};
#endif

// Bytes are converted to int16, separately for even and odd positions: W in the inner loop, once
// for all rows of a tile, and x in advance.
struct Pairs {
  using Sum = VecI32;
  static constexpr int64_t kNumbers = kQuad;
#if defined(__AVX512F__)
  static constexpr int kTileRows = 10;  // 20 sums, 4 vectors of W, 2 of x
#elif defined(BERT_TF_NEON)
  static constexpr int kTileRows = 6;  // 12 sums, 4 vectors of W, 2 of x, and products
#else
  static constexpr int kTileRows = 4;  // 8 sums, 4 vectors of W, 2 of x
#endif
  static constexpr int64_t kRowCycles = 256 / kVectorBytes;
  static constexpr int64_t kPlanes = 2;
  static constexpr bool kMultipliesTiles = false;
  static constexpr bool kPrefetches = kTilesSharePanel;

  struct Numbers {
    VecI16 even, odd;
  };

  // [u0 u1 u2 u3] -> int16 [u0 u2], and `stride` bytes later [u1 u3].
  static BERT_TF_INLINE void Split(uint8_t* words, int64_t stride) {
    for (int64_t k = 0; k < stride; k += kQuad) {
      const auto word = LoadAs<uint32_t>(words + k);
      const uint32_t even = word & 0x00FF00FFu, odd = (word >> 8) & 0x00FF00FFu;
      std::memcpy(words + k, &even, sizeof(even));
      std::memcpy(words + stride + k, &odd, sizeof(odd));
    }
  }
  static BERT_TF_INLINE Numbers LoadW(const char* w) {
    const auto row = LoadAs<VecI16>(w);
    return {(row << 8) >> 8, row >> 8};
  }
  static BERT_TF_INLINE Numbers LoadX(const uint8_t* words, int64_t stride) {
    return {reinterpret_cast<VecI16>(VecI32{} + LoadAs<int32_t>(words)),
            reinterpret_cast<VecI16>(VecI32{} + LoadAs<int32_t>(words + stride / kPlanes))};
  }
  static BERT_TF_INLINE void MultiplyAdd(const Numbers& x, const Numbers& w, VecI32& sum) {
#if defined(BERT_TF_NEON)
    const auto x_even = (int16x8_t)x.even, x_odd = (int16x8_t)x.odd;
    const auto w_even = (int16x8_t)w.even, w_odd = (int16x8_t)w.odd;
    const int32x4_t low = vmlal_s16(vmull_s16(vget_low_s16(w_even), vget_low_s16(x_even)),
                                    vget_low_s16(w_odd), vget_low_s16(x_odd));
    const int32x4_t high = vmlal_high_s16(vmull_high_s16(w_even, x_even), w_odd, x_odd);
    sum += (VecI32)vpaddq_s32(low, high);
#else
    sum += MultiplyAddPairs(w.even, x.even);
    sum += MultiplyAddPairs(w.odd, x.odd);
#endif
  }
};

// Calls function(method) with the Method for these instructions.
template <typename Function>
void WithByteMethod([[maybe_unused]] ByteInstructions instructions, const Function& function) {
#if defined(__AVX2__)
  if (instructions == ByteInstructions::kVnni) return function(Vnni{});
#elif defined(BERT_TF_NEON)
  if (instructions == ByteInstructions::kI8mm) return function(MatrixProducts{});
  if (instructions == ByteInstructions::kDotProduct) return function(DotProducts{});
#endif
  function(Pairs{});
}

// Stores the sums of a tile as floats:
//   z = row_scale * column_scale * (sums - zero * column_sums)
// The row scale is applied last, because only this factor may be huge or tiny.
template <typename Row>
struct DequantizerOf {
  const Row* rows;
  const PanelScales* panel;
  int column;  // the first one of the tile in its panel
  float* z;    // of this panel, `stride` floats per row
  int64_t stride;

  BERT_TF_INLINE void operator()(int i, int vector, VecI32 sums) const {
    const int first = column + vector * kLanes;
    const auto column_sums = LoadAs<VecI32>(panel->sum + first);
    const Vec bracket = __builtin_convertvector(sums - rows[i].zero * column_sums, Vec);
    Store(z + i * stride + first, bracket * Load(panel->scale + first) * rows[i].scale);
  }
};
using Dequantizer = DequantizerOf<RowScale>;

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
