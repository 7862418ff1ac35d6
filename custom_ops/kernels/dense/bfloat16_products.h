// Products of bfloat16 numbers, two of them in a word (word_products.h), with sums in float32.
//
// A sum gets the product of the second numbers of two words first, then that of the first ones,
// each with one rounding, as AVX512-BF16 computes them. A product of two bfloat16 numbers is exact
// in float32, so every instruction set computes the same bits, unless numbers are subnormal: the
// instruction reads and writes these as zeros.
#pragma once

#include <cstdint>
#include <cstring>

#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/dense/word_products.h"

namespace bert_tf::BERT_TF_ISA {
namespace {

#if defined(__AVX512F__)
// Two products and their sum in one instruction, vdpbf16ps.
struct Bfloat16Pairs {
  using Sum = Vec;
  static constexpr int64_t kNumbers = 2;
  static constexpr int kTileRows = 14;  // 28 sums, 2 vectors of W and 1 of x: 31 of 32 registers
  static constexpr int64_t kRowCycles = 2;
  static constexpr int64_t kPlanes = 1;
  static constexpr bool kMultipliesTiles = false;
  static constexpr bool kPrefetches = true;

  static BERT_TF_INLINE void Split(uint8_t*, int64_t) {}
  static BERT_TF_INLINE VecI32 LoadW(const char* w) { return LoadAs<VecI32>(w); }
  static BERT_TF_INLINE VecI32 LoadX(const uint8_t* words, int64_t) {
    return VecI32{} + LoadAs<int32_t>(words);
  }
  static BERT_TF_INLINE void MultiplyAdd(VecI32 x, VecI32 w, Vec& sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
  }
};
#endif

// Numbers are widened to float32, separately for the first and the second ones of the words: W in
// the inner loop, once for all rows of a tile, and x in advance.
struct WidenedPairs {
  using Sum = Vec;
  static constexpr int64_t kNumbers = 2;
#if defined(__AVX512F__)
  static constexpr int kTileRows = 12;  // 24 sums, 4 vectors of W, 2 of x
#elif defined(BERT_TF_NEON)
  static constexpr int kTileRows = 8;  // 16 sums, 4 vectors of W, and x, which is loaded early
#else
  static constexpr int kTileRows = 5;  // 10 sums, 4 vectors of W, 2 of x
#endif
  static constexpr int64_t kRowCycles = 256 / kVectorBytes;
  static constexpr int64_t kPlanes = 2;
  static constexpr bool kMultipliesTiles = false;
  static constexpr bool kPrefetches = true;

  struct Numbers {
    Vec first, second;
  };

  // [x0 x1] -> float32 x0, and `stride` bytes later x1.
  static BERT_TF_INLINE void Split(uint8_t* words, int64_t stride) {
    for (int64_t k = 0; k < stride; k += kWordBytes) {
      const auto word = LoadAs<uint32_t>(words + k);
      const uint32_t first = word << 16, second = word & 0xFFFF0000u;
      std::memcpy(words + k, &first, sizeof(first));
      std::memcpy(words + stride + k, &second, sizeof(second));
    }
  }
  static BERT_TF_INLINE Numbers LoadW(const char* w) {
    const auto words = LoadAs<VecU32>(w);
    return {reinterpret_cast<Vec>(words << 16), reinterpret_cast<Vec>(words & 0xFFFF0000u)};
  }
  static BERT_TF_INLINE Numbers LoadX(const uint8_t* words, int64_t stride) {
    return {FromBits(VecI32{} + LoadAs<int32_t>(words)),
            FromBits(VecI32{} + LoadAs<int32_t>(words + stride / kPlanes))};
  }
  static BERT_TF_INLINE void MultiplyAdd(const Numbers& x, const Numbers& w, Vec& sum) {
    sum += w.second * x.second;
    sum += w.first * x.first;
  }
};

// Stores the sums of a tile, `stride` floats per row.
struct StoreSums {
  float* z;
  int64_t stride;
  int column = 0;  // the first one of the tile in its panel

  BERT_TF_INLINE void operator()(int i, int vector, Vec sums) const {
    Store(z + i * stride + column + vector * kLanes, sums);
  }
};

// Rounds `count` numbers of type T to bfloat16, to nearest even.
template <typename T>
BERT_TF_INLINE void WriteBfloat16(const T* x, int64_t count, uint8_t* words) {
  BFloat16* const numbers = reinterpret_cast<BFloat16*>(words);
  ForSingleVectors(count, [&](auto lanes, int64_t k) BERT_TF_INLINE_LAMBDA {
    Store(numbers + k, Load(x + k, lanes), lanes);
  });
}
BERT_TF_INLINE void WriteBfloat16(const BFloat16* x, int64_t count, uint8_t* words) {
  std::memcpy(words, x, static_cast<size_t>(count) * sizeof(BFloat16));
}

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA
