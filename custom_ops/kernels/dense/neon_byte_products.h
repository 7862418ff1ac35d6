// Products of bytes with the instructions of newer ARM processors. They are methods of
// word_products.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "custom_ops/kernels/base/simd.h"
#include "custom_ops/kernels/dense/word_products.h"

#if defined(BERT_TF_NEON)

namespace bert_tf::BERT_TF_ISA {
namespace {

// Only these functions are compiled for the instructions. They may run on processors that have
// them.
#define BERT_TF_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define BERT_TF_I8MM __attribute__((target("arch=armv8.2-a+i8mm")))

// Four products of signed bytes and their sum in one instruction, sdot (FEAT_DotProd). The bytes of
// x are unsigned: 128 is subtracted in advance, and 128 times the sum of W is added at the end.
struct DotProducts {
  using Sum = VecI32;
  static constexpr int64_t kNumbers = kQuad;
  static constexpr int kTileRows = 12;  // 26 sums, 2 vectors of W, up to 4 of x: 32 of 32 registers
  static constexpr int64_t kRowCycles = 4;
  static constexpr int64_t kPlanes = 1;
  static constexpr bool kMultipliesTiles = true;
  static constexpr bool kPrefetches = false;

  static BERT_TF_INLINE void Split(uint8_t* words, int64_t stride) {
    for (int64_t k = 0; k < stride; k += kWordBytes) {
      const uint32_t word = LoadAs<uint32_t>(words + k) ^ 0x80808080u;
      std::memcpy(words + k, &word, sizeof(word));
    }
  }

  template <int kRows, typename Output>
  BERT_TF_DOTPROD static void MultiplyTile(int64_t words, WordRows x, const char* w,
                                           const Output& output) {
    VecI32 sum[kRows][kTileVectors] = {}, excess[kTileVectors] = {};
    const int8x8_t minus_128 = vdup_n_s8(-128);
    for (int64_t q = 0; q < words; ++q, w += kPanelWordBytes) {
      int8x16_t row[kTileVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) {
        row[v] = LoadAs<int8x16_t>(w + v * kVectorBytes);
        MultiplyAdd(minus_128, row[v], excess[v]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        // A float is loaded into the first lane of a register in one instruction.
        const auto word = LoadAs<float>(x.words + i * x.stride + q * kWordBytes);
        const auto factor = (int8x8_t)float32x2_t{word};
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) MultiplyAdd(factor, row[v], sum[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) output(i, v, sum[i][v] - excess[v]);
    }
  }

 private:
  // Multiplies by the four bytes in the first lane of x.
  BERT_TF_DOTPROD static BERT_TF_INLINE void MultiplyAdd(int8x8_t x, int8x16_t w, VecI32& sum) {
    sum = (VecI32)vdotq_lane_s32((int32x4_t)sum, w, x, 0);
  }
};

// The products of two rows of x and two columns of W, eight bytes each, in one instruction, usmmla
// (FEAT_I8MM).
struct MatrixProducts {
  using Sum = VecI32;
  static constexpr int64_t kNumbers = kQuad;
  static constexpr int kTileRows = 10;  // 20 vectors of sums, 4 of W and 5 of x: 29 registers
  static constexpr int64_t kRowCycles = 2;
  static constexpr int64_t kPlanes = 1;
  static constexpr bool kMultipliesTiles = true;
  static constexpr bool kPrefetches = false;

  static BERT_TF_INLINE void Split(uint8_t*, int64_t) {}

  template <int kRows, typename Output>
  BERT_TF_I8MM static void MultiplyTile(int64_t words, WordRows x, const char* w,
                                        const Output& output) {
    Sums<kRows> sums = {};
    int64_t q = 0;
    for (; q + 2 <= words; q += 2) AddWords<2>(x, q, w + q * kPanelWordBytes, sums);
    if (q < words) AddWords<1>(x, q, w + q * kPanelWordBytes, sums);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) {
        const auto left = (int64x2_t)sums.of[i / 2][2 * v],
                   right = (int64x2_t)sums.of[i / 2][2 * v + 1];
        output(i, v, (VecI32)(i % 2 == 0 ? vzip1q_s64(left, right) : vzip2q_s64(left, right)));
      }
    }
  }

 private:
  static constexpr int kColumnPairs = kTileColumns / 2;

  // The sums of a pair of rows and a pair of columns are one vector: two of the first row, and two
  // of the second one. If the number of rows is odd, the last one is computed twice.
  template <int kRows>
  struct Sums {
    VecI32 of[(kRows + 1) / 2][kColumnPairs];
  };

  // Adds the products of words [q, q + kWords), one or two.
  template <int kWords, int kRows>
  BERT_TF_I8MM static BERT_TF_INLINE void AddWords(WordRows x, int64_t q, const char* w,
                                                   Sums<kRows>& sums) {
    VecI32 columns[kColumnPairs];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      const auto first = LoadAs<int32x4_t>(w + v * kVectorBytes);
      int32x4_t second = {};
      if (kWords == 2) second = LoadAs<int32x4_t>(w + kPanelWordBytes + v * kVectorBytes);
      columns[2 * v] = (VecI32)vzip1q_s32(first, second);
      columns[2 * v + 1] = (VecI32)vzip2q_s32(first, second);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i += 2) {
      const uint8_t* const word = x.words + i * x.stride + q * kWordBytes;
      const int64x1_t first = LoadWords<kWords>(word);
      const int64x1_t second = i + 1 < kRows ? LoadWords<kWords>(word + x.stride) : first;
      const auto rows = (VecI32)vcombine_s64(first, second);
#pragma GCC unroll 8
      for (int c = 0; c < kColumnPairs; ++c) MultiplyAdd(rows, columns[c], sums.of[i / 2][c]);
    }
  }

  template <int kWords>
  static BERT_TF_INLINE int64x1_t LoadWords(const uint8_t* words) {
    if constexpr (kWords == 2) return LoadAs<int64x1_t>(words);
    return vcreate_s64(LoadAs<uint32_t>(words));
  }

  BERT_TF_I8MM static BERT_TF_INLINE void MultiplyAdd(VecI32 x, VecI32 w, VecI32& sum) {
    sum = (VecI32)vusmmlaq_s32((int32x4_t)sum, (uint8x16_t)x, (int8x16_t)w);
  }
};

}  // namespace
}  // namespace bert_tf::BERT_TF_ISA

#endif  // defined(BERT_TF_NEON)
